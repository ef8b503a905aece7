//! The error type of this crate.

use std::error::Error as StdError;
use std::fmt;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation: its kind, a message, and a hint for the person who can act.
///
/// `Display` prints the message alone; `Debug` adds the errors behind it and the hint.
///
/// ```
/// use rath_workspace::{ErrorKind, Objects, Workspace};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let objects = Objects::open(&temp.path().join("versions"))?;
/// # let mut workspace = Workspace::open(temp.path(), &objects, &temp.path().join("index"))?;
/// let unknown = "git:1111111111111111111111111111111111111111".parse()?;
/// let error = objects.files(unknown).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Missing);
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<ErrorDetails>);

/// The contents of an error, boxed to keep results small.
struct ErrorDetails {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kinds of failure that callers can distinguish.
///
/// Returned by [`Error::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file or directory cannot be read or written.
    Io,
    /// Stored objects are damaged.
    Damaged,
    /// An object is not stored.
    Missing,
    /// A directory cannot be used as a workspace.
    Directory,
    /// The result of a merge cannot be stored.
    Merge,
    /// A tree id or a path cannot be parsed.
    Format,
    /// A stored version of a file is larger than the operation reads.
    TooLarge,
    /// The content of a file was removed on purpose.
    Forgotten,
    /// A file was changed since the snapshot that it is compared with.
    Changed,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Error(Box::new(ErrorDetails { kind, message: message.to_string(), hint: None, source: None }))
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the error that caused this one. The message must not repeat it.
    pub(crate) fn because(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Box::new(source));
        self
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the message and the errors behind it, each after a colon, without the hint.
    pub fn message(&self) -> String {
        let sources = std::iter::successors(self.source(), |error| (*error).source());
        sources.fold(self.0.message.clone(), |text, source| format!("{text}: {source}"))
    }

    /// Returns the advice for the person who can act.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Takes the error apart into its message, its hint and the error behind it.
    pub fn into_parts(self) -> (String, Option<String>, Option<Box<dyn StdError + Send + Sync>>) {
        let ErrorDetails { message, hint, source, .. } = *self.0;
        (message, hint, source)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error::new(ErrorKind::Io, "a file operation failed").because(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())?;
        self.0.hint.iter().try_for_each(|hint| write!(f, "\nhint: {hint}"))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}
