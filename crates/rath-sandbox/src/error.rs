//! The error of every operation on a sandbox.

use std::error::Error as StdError;
use std::fmt;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation: its kind, a message, and a hint for the person who can act.
///
/// `Display` prints the message alone; `Debug` adds the errors behind it and the hint.
///
/// ```
/// use rath_sandbox::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::Unavailable, "docker is not running").with_hint("start it with `dockerd`");
/// assert_eq!(error.to_string(), "docker is not running");
/// assert_eq!(error.hint(), Some("start it with `dockerd`"));
/// ```
pub struct Error(Box<Details>);

struct Details {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kinds of failure that a caller may want to tell apart.
///
/// Returned by [`Error::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file cannot be read or written, or a program cannot be started.
    Io,
    /// A path leads out of the workspace, or into the directory that belongs to rath.
    OutsideWorkspace,
    /// This machine cannot provide the sandbox that was asked for.
    Unavailable,
    /// A URI, an option or a command is not valid.
    Config,
}

impl Error {
    /// Creates an error. The message is lower case without a full stop, and does not repeat the source.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Error(Box::new(Details { kind, message: message.to_string(), hint: None, source: None }))
    }

    /// Creates the error for a part of this crate that only another platform has.
    #[cfg_attr(unix, allow(dead_code, reason = "Linux has all parts, and other Unix systems all but commands"))]
    pub(crate) fn needs_platform(part: impl fmt::Display, platform: &str) -> Self {
        let message = format!("{part} needs {platform}; this is {}", std::env::consts::OS);
        Error::new(ErrorKind::Unavailable, message)
    }

    /// Adds advice for the person who can act.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the error that caused this one. The message must not repeat it.
    pub fn because(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
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
        let Details { message, hint, source, .. } = *self.0;
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
