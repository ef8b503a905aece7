//! What every backend of rath has to keep, as tests that its author can run.
//!
//! ```
//! use rath::Store;
//! use rath_testkit::store::{Case, conforms};
//!
//! conforms(&mut || Case::lasting(Store::open("memory:").expect("a store")));
//! ```

pub mod sandbox;
pub mod store;
