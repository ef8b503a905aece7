//! The ids of stores.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The id that a store keeps as long as it exists, also if it is moved or copied. Another store at the same place has another one.
///
/// Returned by [`StoreBackend::id`](super::StoreBackend::id).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoreId(String);

impl StoreId {
    /// Creates the id with this text.
    pub fn new(text: impl Into<String>) -> Self {
        StoreId(text.into())
    }

    /// Returns an id that no other store has.
    pub fn random() -> Self {
        StoreId(uuid::Uuid::now_v7().to_string())
    }

    /// Returns the id that a store has stored as text; none if the text is no such id.
    pub(super) fn from_stored(text: &str) -> Option<Self> {
        uuid::Uuid::try_parse(text).ok().map(|id| StoreId(id.to_string()))
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
