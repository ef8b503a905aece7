//! Conformance suites for the backends of rath: an author runs them as tests.
//!
//! ```
//! use rath::Store;
//! use rath_testkit::store::{StoreCase, conforms};
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
//! let mut open = || StoreCase::lasting(runtime.block_on(Store::open("memory:")).expect("a store"));
//! conforms(&mut open);
//! ```

/// The programs on this page of the guide are compiled and run with the tests.
#[cfg(all(doctest, target_os = "linux"))]
mod guide {
    #[doc = include_str!("../../../docs/guide/backends.md")]
    struct BackendsPage;
}

mod body;
mod http;
pub mod memory;
#[cfg(unix)]
pub mod opensandbox;
pub mod openviking;
pub mod record;
pub mod sandbox;
pub mod store;
