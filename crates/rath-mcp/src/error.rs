//! The error of every operation on a server.

use std::error::Error as StdError;
use std::fmt;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation: its kind, a message, and a hint for the person who can act.
///
/// `Display` prints the message alone; `Debug` adds the errors behind it and the hint. No message contains a value of a variable or
/// of a header.
///
/// ```
/// use rath_mcp::{ErrorKind, ServerConfig};
///
/// let error = ServerConfig::http("notes", "https:///mcp").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Config);
/// assert_eq!(error.to_string(), "the server `notes`: its `url` has no host");
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
    /// A configuration is not valid, or names no such server.
    Config,
    /// A server cannot be started or reached.
    Start,
    /// A server has ended, or has closed the connection.
    Closed,
    /// A time limit was reached.
    Timeout,
    /// The answer of a server is not valid.
    Answer,
    /// A server rejects a request.
    Refused,
    /// A limit other than a time limit was reached.
    Limit,
}

impl Error {
    /// Creates an error. The message is lower case without a full stop, and does not repeat the source.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Error(Box::new(Details { kind, message: message.to_string(), hint: None, source: None }))
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

    /// Returns an error with the same kind, message and hint.
    pub(crate) fn copied(&self) -> Self {
        let copied = Error::new(self.kind(), self.message());
        match self.hint() {
            Some(hint) => copied.with_hint(hint),
            None => copied,
        }
    }

    /// Returns the advice for the person who can act.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
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
