//! One error for everything, and the session so far with it.

use std::fmt;

use crate::session::Session;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, what to do about it, and the session so far.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    session: Option<Session>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The kinds of failure a caller may want to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Two sessions cannot be joined.
    Merge,
    /// There is no such step in the session.
    NoSuchStep,
    /// A place is not one.
    Place,
    /// A file could not be read or written.
    Io,
    /// A file is not one of ours, or from a newer version.
    Format,
    /// A provider is not named or set up as it should be.
    Provider,
    /// There is no key, or the provider refuses it.
    Key,
    /// The provider has no such model.
    Model,
    /// The provider refuses the request.
    Refused,
    /// The provider has too much to do, or fails inside.
    Busy,
    /// Nothing came for too long.
    Timeout,
    /// The provider cannot be reached, or the connection broke.
    Connection,
    /// The answer cannot be read.
    Answer,
    /// The budget is used up.
    Budget,
    /// It is not the model's turn.
    Turn,
    /// A payload that would have to be sent is not at hand.
    Payload,
    /// A request cannot be rebuilt as it was sent.
    Request,
    /// A script does not fit what happens.
    Script,
    /// A tool is not one that a model can be told about.
    Tool,
    /// A call waits for a person's decision.
    Approval,
    /// A limit that is not a budget's was reached.
    Limit,
    /// A selector's reply names no route.
    Route,
    /// A summary cannot stand for what it would hide.
    Summary,
    /// A memory could not be asked or written.
    Memory,
    /// Arguments do not fit what they are for.
    Arguments,
    /// The run was stopped from outside.
    Cancelled,
    /// A store could not be read or written.
    Store,
    /// What is stored was changed or is missing.
    Damaged,
    /// There is no such session in the store.
    NoSuchSession,
    /// Somebody else writes, or wrote, the same session.
    Conflict,
    /// Something is not as the session was left.
    Differs,
    /// A program does something else than the recording that it is replayed over.
    Replay,
    /// What a workflow was to do failed, for a reason of its own.
    Other,
}

/// Every kind there is.
const EVERY_KIND: [ErrorKind; 33] = [
    ErrorKind::Merge,
    ErrorKind::NoSuchStep,
    ErrorKind::Place,
    ErrorKind::Io,
    ErrorKind::Format,
    ErrorKind::Provider,
    ErrorKind::Key,
    ErrorKind::Model,
    ErrorKind::Refused,
    ErrorKind::Busy,
    ErrorKind::Timeout,
    ErrorKind::Connection,
    ErrorKind::Answer,
    ErrorKind::Budget,
    ErrorKind::Turn,
    ErrorKind::Payload,
    ErrorKind::Request,
    ErrorKind::Script,
    ErrorKind::Tool,
    ErrorKind::Approval,
    ErrorKind::Limit,
    ErrorKind::Route,
    ErrorKind::Summary,
    ErrorKind::Memory,
    ErrorKind::Arguments,
    ErrorKind::Cancelled,
    ErrorKind::Store,
    ErrorKind::Damaged,
    ErrorKind::NoSuchSession,
    ErrorKind::Conflict,
    ErrorKind::Differs,
    ErrorKind::Replay,
    ErrorKind::Other,
];

impl ErrorKind {
    /// Whether the same thing may work a moment later.
    pub fn is_temporary(self) -> bool {
        matches!(self, ErrorKind::Busy | ErrorKind::Timeout | ErrorKind::Connection)
    }

    /// The name under which it is recorded.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ErrorKind::Merge => "merge",
            ErrorKind::NoSuchStep => "no_such_step",
            ErrorKind::Place => "place",
            ErrorKind::Io => "io",
            ErrorKind::Format => "format",
            ErrorKind::Provider => "provider",
            ErrorKind::Key => "key",
            ErrorKind::Model => "model",
            ErrorKind::Refused => "refused",
            ErrorKind::Busy => "busy",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Connection => "connection",
            ErrorKind::Answer => "answer",
            ErrorKind::Budget => "budget",
            ErrorKind::Turn => "turn",
            ErrorKind::Payload => "payload",
            ErrorKind::Request => "request",
            ErrorKind::Script => "script",
            ErrorKind::Tool => "tool",
            ErrorKind::Approval => "approval",
            ErrorKind::Limit => "limit",
            ErrorKind::Route => "route",
            ErrorKind::Summary => "summary",
            ErrorKind::Memory => "memory",
            ErrorKind::Arguments => "arguments",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Store => "store",
            ErrorKind::Damaged => "damaged",
            ErrorKind::NoSuchSession => "no_such_session",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Differs => "differs",
            ErrorKind::Replay => "replay",
            ErrorKind::Other => "other",
        }
    }

    /// The kind that is recorded under a name.
    pub(crate) fn named(name: &str) -> Self {
        EVERY_KIND.into_iter().find(|kind| kind.name() == name).unwrap_or(ErrorKind::Other)
    }
}

impl Error {
    /// What went wrong: lower case, no full stop, what was wanted and what was found.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Error(Box::new(Inner { kind, message, hint: None, session: None, source: None }))
    }

    /// An error of one's own, from any other.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let error = error.into();
        let mut other = Error::new(ErrorKind::Other, &error);
        other.0.source = Some(error);
        other
    }

    /// Adds what the person who can act may do.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the session as far as it came. What that one hides is hidden in what the error says too.
    pub fn with_session(mut self, session: &Session) -> Self {
        for text in [Some(&mut self.0.message), self.0.hint.as_mut()].into_iter().flatten() {
            if let Some(hidden) = session.secrets().hide(text) {
                *text = hidden;
            }
        }
        self.0.session = Some(session.clone());
        self
    }

    /// Adds the error behind it.
    pub fn because(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Box::new(source));
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same thing may work a moment later.
    pub fn is_temporary(&self) -> bool {
        if self.kind().is_temporary() {
            return true;
        }
        let io = self.0.source.as_ref().and_then(|source| source.downcast_ref::<std::io::Error>());
        io.is_some_and(|error| {
            use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
            matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
        })
    }

    /// What the person who can act may do.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The session as far as it came.
    pub fn session(&self) -> Option<&Session> {
        self.0.session.as_ref()
    }

    /// The same with its session, if it carries one, made into another.
    pub(crate) fn map_session(mut self, map: impl FnOnce(Session) -> Session) -> Self {
        self.0.session = self.0.session.map(map);
        self
    }

    /// What went wrong, without the hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The same, to go on with.
    pub fn into_session(self) -> Option<Session> {
        self.0.session
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match &self.0.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// As it is displayed: a program whose `main` returns it prints what a person can read.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error::new(ErrorKind::Io, &error).because(error)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}
