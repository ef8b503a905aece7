//! Opening stores by URI.

use std::sync::Arc;

#[cfg(feature = "sqlite")]
use super::Sqlite;
use super::{Jsonl, Store};
use crate::blocking::run_blocking;
use crate::store::error::{Result, StoreError, StoreErrorKind};

type StoreOpener = Arc<dyn Fn(&str, Create) -> Result<Store> + Send + Sync>;

/// The choice to create a store that does not exist.
///
/// Passed to [`Registry::open_as`]. See [`Jsonl`](super::Jsonl) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// Creates the store.
    IfMissing,
    /// Returns an error.
    Never,
}

/// The kinds of store that a URI can name.
///
/// ```
/// use rath::store::Registry;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let error = Registry::new().open("sqlight:rath.db").await.unwrap_err();
/// assert_eq!(error.message(), "unknown kind of store `sqlight`; known: sqlite, jsonl, memory");
/// # }
/// ```
#[derive(Clone)]
pub struct Registry {
    kinds: Vec<(String, StoreOpener)>,
}

impl Registry {
    /// Creates a registry with the kinds that rath has built in.
    pub fn new() -> Self {
        let registry = Registry { kinds: Vec::new() };
        #[cfg(feature = "sqlite")]
        let registry = registry.with("sqlite", |path, create| Store::new(Sqlite::open(path, create)?));
        let registry = registry.with("jsonl", |path, create| Store::new(Jsonl::open(path, create)?));
        #[cfg(feature = "sqlite")]
        let registry = registry.with("memory", |_, _| Store::new(Sqlite::in_memory()?));
        registry
    }

    /// Adds a kind. `open` gets the part of the URI after the colon, and runs on a thread that may block.
    pub fn with(mut self, scheme: &str, open: impl Fn(&str, Create) -> Result<Store> + Send + Sync + 'static) -> Self {
        self.kinds.retain(|(known, _)| known != scheme);
        self.kinds.push((scheme.to_owned(), Arc::new(open)));
        self
    }

    /// Opens the store that a URI names, and creates it if it does not exist.
    pub async fn open(&self, uri: &str) -> Result<Store> {
        self.open_as(uri, Create::IfMissing).await
    }

    /// Opens the store that a URI names.
    pub async fn open_as(&self, uri: &str, create: Create) -> Result<Store> {
        let Some((scheme, rest)) = uri.split_once(':') else {
            return Err(StoreError::new(StoreErrorKind::Store, format_args!("wanted a store, found `{uri}`"))
                .with_hint("write the kind of store, a colon, and where: `sqlite:.rath/rath.db`"));
        };
        match self.kinds.iter().find(|(known, _)| known == scheme) {
            Some((_, open)) => {
                let (open, rest) = (open.clone(), rest.to_owned());
                // The key exists before a sandbox is set up that hides it.
                run_blocking(move || open(&rest, create).inspect(Store::load_key)).await
            }
            None => {
                let known = self.kinds.iter().map(|(known, _)| known.as_str()).collect::<Vec<_>>().join(", ");
                let message = format!("unknown kind of store `{scheme}`; known: {known}");
                let error = StoreError::new(StoreErrorKind::Store, message);
                // A build without SQLite knows neither of the two.
                let needs_feature = !cfg!(feature = "sqlite") && ["memory", "sqlite"].contains(&scheme);
                Err(if needs_feature { error.with_hint("build rath with its feature `sqlite`") } else { error })
            }
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Registry::new()
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.kinds.iter().map(|(scheme, _)| scheme)).finish()
    }
}
