//! The place where a session's tools run, as it is recorded.

use std::fmt;
use std::sync::Arc;

use rath_sandbox::{Registry, Sandbox};

/// The place where a session's tools run: the URI of a sandbox, such as `local:/srv/app`. Its paths are absolute if this version recorded it.
///
/// Returned by [`Session::place`](crate::Session::place).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place(String);

impl Place {
    /// Creates a place from a record. The URI is not checked: another program may have written the record.
    pub(crate) fn from_record(uri: &str) -> Self {
        Place(uri.to_owned())
    }

    /// Returns the URI.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The kinds of sandbox that a recorded place can name: the built-in ones, or those that the program gave.
#[derive(Clone, Default)]
pub(crate) struct SandboxKinds(Option<Arc<Registry>>);

impl SandboxKinds {
    /// Returns the kinds of a registry.
    pub(crate) fn new(registry: Registry) -> Self {
        SandboxKinds(Some(Arc::new(registry)))
    }

    /// Returns these kinds if the program gave them, and the others otherwise.
    pub(crate) fn or(self, others: &SandboxKinds) -> Self {
        if self.0.is_some() { self } else { others.clone() }
    }

    /// Opens the sandbox at a recorded place. Its directory is opened at the first use.
    pub(crate) fn open(&self, place: &str) -> rath_sandbox::Result<Sandbox> {
        let built_in = || Arc::new(Registry::new());
        let registry = self.0.clone().unwrap_or_else(built_in);
        registry.open(place).map_err(|error| match error.hint() {
            None if !registry.knows(place) => error.with_hint(
                "a program adds its own kinds where it opens sessions, with `store.sandboxes(..)` or `session.sandboxes(..)`; \
                 `rath resume --sandbox`, in a program `session.to(..)`, places the session elsewhere",
            ),
            _ => error,
        })
    }
}
