//! Conformance suites for the backends of rath: an author runs them as tests.
//!
//! ```
//! use rath::Store;
//! use rath_testkit::store::{StoreCase, conforms};
//!
//! conforms(&mut || StoreCase::lasting(Store::open("memory:").expect("a store")));
//! ```

pub mod sandbox;
pub mod store;
