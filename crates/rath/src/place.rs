//! The place where a session's tools run, as it is recorded.

use std::fmt;

/// The place where a session's tools run: the URI of a sandbox, such as `local:./`.
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
