//! Opening sandboxes by URI.

use std::sync::Arc;

use super::Sandbox;
#[cfg(all(unix, feature = "process"))]
use super::{Isolated, Local};
use crate::error::{Error, ErrorKind, Result};

type Opener = Arc<dyn Fn(&str) -> Result<Sandbox> + Send + Sync>;

/// The kinds of sandbox that a URI can name, by scheme.
///
/// ```
/// use rath_sandbox::Registry;
///
/// let error = Registry::new().open("dcoker:rust").unwrap_err();
/// assert_eq!(error.message(), "unknown kind of sandbox `dcoker`; known: local, isolated");
/// ```
#[derive(Clone)]
pub struct Registry {
    kinds: Vec<(String, Opener)>,
}

impl Registry {
    /// Creates a registry of the built-in kinds: `local` and `isolated`. It is empty on platforms other than Unix, and
    /// without the feature `process`.
    pub fn new() -> Self {
        let registry = Registry { kinds: Vec::new() };
        #[cfg(all(unix, feature = "process"))]
        let registry = registry
            .with("local", |rest| Ok(Sandbox::new(Local::from_uri_rest(rest)?)))
            .with("isolated", |rest| Ok(Sandbox::new(Isolated::from_uri_rest(rest)?)));
        registry
    }

    /// Adds a kind, or replaces the one with the same scheme. `open` receives the part of the URI after the colon.
    pub fn with(mut self, scheme: &str, open: impl Fn(&str) -> Result<Sandbox> + Send + Sync + 'static) -> Self {
        self.kinds.retain(|(known, _)| known != scheme);
        self.kinds.push((scheme.to_owned(), Arc::new(open)));
        self
    }

    /// Returns true if the kind of sandbox that a URI names is in the registry.
    pub fn knows(&self, uri: &str) -> bool {
        let scheme = uri.split_once(':').map_or(uri, |(scheme, _)| scheme);
        self.kinds.iter().any(|(known, _)| known == scheme)
    }

    /// Opens the sandbox that a URI names. Its directory is opened at the first use.
    pub fn open(&self, uri: &str) -> Result<Sandbox> {
        let Some((scheme, rest)) = uri.split_once(':') else {
            return Err(Error::new(ErrorKind::Config, format_args!("wanted a sandbox, found `{uri}`"))
                .with_hint("write the kind of sandbox, a colon, and where: `isolated:./`"));
        };
        match self.kinds.iter().find(|(known, _)| known == scheme) {
            Some((_, open)) => open(rest),
            None if !cfg!(unix) && scheme == "local" => Err(Error::needs_platform("a sandbox `local:`", "Unix")),
            None if !cfg!(unix) && scheme == "isolated" => Err(Error::needs_platform("a sandbox `isolated:`", "Linux")),
            None => {
                let known = self.kinds.iter().map(|(known, _)| known.as_str()).collect::<Vec<_>>().join(", ");
                let error =
                    Error::new(ErrorKind::Config, format_args!("unknown kind of sandbox `{scheme}`; known: {known}"));
                // A build without the feature `process` has neither of the two.
                let needs_feature = !cfg!(feature = "process") && ["local", "isolated"].contains(&scheme);
                Err(if needs_feature {
                    error.with_hint("build with the feature `process` of `rath-sandbox` (`sandbox` of `openrath`)")
                } else {
                    error
                })
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
