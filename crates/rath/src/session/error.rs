//! The error of every operation on a session: a kind, a message, a hint, and the session so far.

use std::fmt;

use super::Session;
use crate::error::{Details, ErrorKind, chain, is_temporary_io, write_report};
use crate::memory::MemoryError;
use crate::policy::RuleError;
use crate::provider::ProviderError;
use crate::store::StoreError;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation: its kind, a message, a hint for the person who can act, and the session so far.
///
/// `Display` prints the message alone, as error reporters expect; `Debug` prints the message, the errors behind it and
/// the hint, so that a program whose `main` returns this error prints all of it.
///
/// ```
/// use rath::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// let script = Script::of([r#"{"error": {"status": 401, "message": "unknown key"}}"#])?;
/// let error = Provider::from(script).ask(Session::user("hello")).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Key);
/// let session = error.into_session().expect("the session so far");
/// assert_eq!(session.messages().list.len(), 1);
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    details: Details<ErrorKind>,
    session: Option<Session>,
}

impl Error {
    /// Creates an error. The message is lower case without a full stop, and says what was wanted and what was found.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        let details = Details { kind, message: message.to_string(), hint: None, source: None };
        details.into()
    }

    /// Wraps any error under [`ErrorKind::Other`], with the message of that error.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Details { kind: ErrorKind::Other, message: String::new(), hint: None, source: Some(error.into()) }.into()
    }

    /// Wraps an error, with the message of that error.
    pub fn wrap(kind: ErrorKind, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Details::wrap(kind, error).into()
    }

    /// Adds advice for the person who can act.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.details.hint = Some(hint.into());
        self
    }

    /// Adds the session as it was when the operation failed. Secrets of that session are removed from the message, the hint and
    /// the errors behind this one.
    pub fn with_session(mut self, session: &Session) -> Self {
        let (details, secrets) = (&mut self.0.details, session.secrets());
        for text in [Some(&mut details.message), details.hint.as_mut()].into_iter().flatten() {
            if let Some(hidden) = secrets.hide(text) {
                *text = hidden;
            }
        }
        if let Some(source) = &details.source
            && let Some(hidden) = secrets.hide(&chain(&**source))
        {
            // The texts of others cannot be changed: one error with all of them takes their place.
            let kind = source.downcast_ref::<std::io::Error>().map_or(std::io::ErrorKind::Other, |error| error.kind());
            details.source = Some(Box::new(std::io::Error::new(kind, hidden)));
        }
        self.0.session = Some(session.clone());
        self
    }

    /// Adds the error that caused this one. The message must not repeat it.
    pub fn because(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.details.source = Some(Box::new(source));
        self
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.details.kind
    }

    /// Returns true if the operation may succeed when it is tried again.
    pub fn is_temporary(&self) -> bool {
        self.kind().is_temporary() || is_temporary_io(self.0.details.source.as_deref())
    }

    /// Returns the advice for the person who can act.
    pub fn hint(&self) -> Option<&str> {
        self.0.details.hint.as_deref()
    }

    /// Returns the session as it was when the operation failed.
    pub fn session(&self) -> Option<&Session> {
        self.0.session.as_ref()
    }

    /// Replaces the session, if there is one.
    pub(crate) fn map_session(mut self, map: impl FnOnce(Session) -> Session) -> Self {
        self.0.session = self.0.session.map(map);
        self
    }

    /// Returns the message and the errors behind it, each after a colon, without the hint.
    pub fn message(&self) -> String {
        chain(self)
    }

    /// Takes the session out of the error.
    pub fn into_session(self) -> Option<Session> {
        self.0.session
    }
}

impl From<Details<ErrorKind>> for Error {
    fn from(details: Details<ErrorKind>) -> Self {
        Error(Box::new(Inner { details, session: None }))
    }
}

impl From<MemoryError> for Error {
    fn from(error: MemoryError) -> Self {
        Details::from(error).into()
    }
}

impl From<ProviderError> for Error {
    fn from(error: ProviderError) -> Self {
        Details::from(error).into()
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Details::from(error).into()
    }
}

impl From<RuleError> for Error {
    fn from(error: RuleError) -> Self {
        Error::new(ErrorKind::Policy, error)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error::wrap(ErrorKind::Io, error)
    }
}

impl From<rath_workspace::Error> for Error {
    fn from(error: rath_workspace::Error) -> Self {
        use rath_workspace::ErrorKind as Kind;
        let kind = match error.kind() {
            Kind::Damaged | Kind::Missing => ErrorKind::Damaged,
            Kind::Directory => ErrorKind::Place,
            Kind::Merge => ErrorKind::Merge,
            Kind::Format => ErrorKind::Format,
            _ => ErrorKind::Io,
        };
        let (message, hint, source) = error.into_parts();
        Details { kind, message, hint, source }.into()
    }
}

impl From<rath_sandbox::Error> for Error {
    fn from(error: rath_sandbox::Error) -> Self {
        use rath_sandbox::ErrorKind as Kind;
        let kind = if error.kind() == Kind::Io { ErrorKind::Io } else { ErrorKind::Place };
        let (message, hint, source) = error.into_parts();
        Details { kind, message, hint, source }.into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.details, f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_report(f, self, self.hint())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.details.source()
    }
}
