//! The error of everything below the session: the backends, the registry and the writer thread.

use crate::error::plane_error;

/// A result whose error is [`StoreError`].
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

plane_error! {
    /// A failed operation of a store: its kind, a message, and a hint for the person who can act.
    ///
    /// Returned by [`Store::open`](super::Store::open).
    StoreError;
    /// The kinds of failure of a store.
    ///
    /// Returned by [`StoreError::kind`].
    StoreErrorKind {
        /// A store could not be opened, read or written.
        Store => Store,
        /// There is no store at the path, and none was to be created.
        Missing => Store,
        /// Stored data was changed or is missing.
        Damaged => Damaged,
        /// The file or directory is not a store, or was written by a newer version.
        Format => Format,
        /// The store has no such session.
        NoSuchSession => NoSuchSession,
        /// The session has no such step.
        NoSuchStep => NoSuchStep,
        /// Another writer holds the session, or has appended to it.
        Conflict => Conflict,
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        StoreError::wrap(StoreErrorKind::Store, error)
    }
}

impl StoreError {
    /// Returns an error with the same kind, text and hint, for another caller.
    pub(crate) fn duplicate(&self) -> Self {
        let copy = StoreError::new(self.kind(), self.message());
        match self.hint() {
            Some(hint) => copy.with_hint(hint),
            None => copy,
        }
    }
}
