//! Failures of a note store.

/// A failure to read or write notes.
///
/// Returned by the methods of [`NoteStore`](crate::NoteStore).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoteError {
    /// A file could not be read or written.
    #[error("{0}")]
    Io(String),
    /// The memory is in a place where nothing can be written.
    #[error("the memory cannot be written to: {0}")]
    Unwritable(String),
    /// Another process wrote for too long.
    #[error("another process is writing to the memory")]
    Busy,
    /// The file is no memory, or is damaged.
    #[error("{0}")]
    Damaged(String),
    /// A note that cannot be stored.
    #[error("{0}")]
    Invalid(String),
}

/// The result of reading or writing notes.
///
/// See [`NoteStore`](crate::NoteStore) for an example.
pub type Result<T, E = NoteError> = std::result::Result<T, E>;
