//! Where a session's tools run, as the record knows it.

use std::fmt;

/// Where a session's tools run: the URI of a sandbox, `local:./` for one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place(String);

impl Place {
    /// A place as it stands in a record, which may have been written by others.
    pub(crate) fn recorded(uri: &str) -> Self {
        Place(uri.to_owned())
    }

    /// The URI.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
