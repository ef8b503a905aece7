//! The kinds of failure, and the errors of the planes below the session.

/// The kinds of failure that a caller may want to tell apart.
///
/// Returned by [`Error::kind`](crate::Error::kind).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Two sessions cannot be merged.
    Merge,
    /// The session has no such step.
    NoSuchStep,
    /// A sandbox cannot be opened or used.
    Place,
    /// A file could not be read or written.
    Io,
    /// A file has another format, or is from a newer version.
    Format,
    /// A provider is not known or not set up.
    Provider,
    /// The key is missing, or the provider rejects it.
    Key,
    /// The provider has no such model.
    Model,
    /// The provider rejects the request, or withholds the answer.
    Refused,
    /// The provider is overloaded or has an internal error.
    Busy,
    /// A time limit was reached.
    Timeout,
    /// The provider cannot be reached, or the connection broke.
    Connection,
    /// The answer of a provider cannot be parsed, or is empty.
    Answer,
    /// The budget is used up.
    Budget,
    /// The model cannot be asked now: a call has no result, or there is nothing to answer.
    Turn,
    /// A payload that a request needs is missing.
    Payload,
    /// A request cannot be rebuilt from the record.
    Request,
    /// A script of answers does not fit the run.
    Script,
    /// The definition of a tool is not valid, or a tool failed.
    Tool,
    /// A call or a conflict waits for a decision.
    Approval,
    /// A rule of a policy is not valid.
    Policy,
    /// The session was made by others, and was not adopted.
    Guest,
    /// A limit other than the budget was reached.
    Limit,
    /// The reply of a selector names no route.
    Route,
    /// A summary is not valid.
    Summary,
    /// A memory cannot be read or written.
    Memory,
    /// Arguments are not valid.
    Arguments,
    /// The run was cancelled.
    Cancelled,
    /// A store cannot be read or written.
    Store,
    /// Stored data is damaged or missing.
    Damaged,
    /// The store has no such session.
    NoSuchSession,
    /// Another writer has, or had, the same session or file.
    Conflict,
    /// The state differs from what the session recorded.
    Differs,
    /// A required check has not passed on the current files.
    Check,
    /// A replayed program diverges from the recording.
    Replay,
    /// Any other failure, as of a user's workflow.
    Other,
}

/// All kinds.
const EVERY_KIND: [ErrorKind; 36] = [
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
    ErrorKind::Policy,
    ErrorKind::Guest,
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
    ErrorKind::Check,
    ErrorKind::Replay,
    ErrorKind::Other,
];

impl ErrorKind {
    /// Returns true if the operation may succeed when it is tried again.
    pub fn is_temporary(self) -> bool {
        matches!(self, ErrorKind::Busy | ErrorKind::Timeout | ErrorKind::Connection)
    }

    /// Returns the name under which the kind is recorded.
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
            ErrorKind::Policy => "policy",
            ErrorKind::Guest => "guest",
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
            ErrorKind::Check => "check",
            ErrorKind::Replay => "replay",
            ErrorKind::Other => "other",
        }
    }

    /// Returns the kind that is recorded under a name.
    pub(crate) fn named(name: &str) -> Self {
        EVERY_KIND.into_iter().find(|kind| kind.name() == name).unwrap_or(ErrorKind::Other)
    }
}

/// The fields that the errors of all planes have in common.
pub(crate) struct Details<K> {
    pub(crate) kind: K,
    /// Empty if the source speaks for itself.
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl<K> Details<K> {
    /// Wraps an error, with the message of that error.
    pub(crate) fn wrap(kind: K, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Details { kind, message: String::new(), hint: None, source: Some(Box::new(error)) }
    }

    /// Returns the error behind this one; the one behind the source, if the source speaks for itself.
    pub(crate) fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let source = self.source.as_deref()?;
        if self.message.is_empty() { source.source() } else { Some(source) }
    }
}

impl<K> std::fmt::Display for Details<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.source {
            Some(source) if self.message.is_empty() => write!(f, "{source}"),
            _ => f.write_str(&self.message),
        }
    }
}

/// Returns true for an IO error that may not occur again: interrupted, timed out or would block.
pub(crate) fn is_temporary_io(source: Option<&(dyn std::error::Error + Send + Sync + 'static)>) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    let io = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    io.is_some_and(|error| matches!(error.kind(), Interrupted | TimedOut | WouldBlock))
}

/// Returns the message of an error and of each error behind it, after a colon.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

/// Writes an error for people: the message with all sources, then the hint on a line of its own.
pub(crate) fn write_report(
    f: &mut std::fmt::Formatter<'_>,
    error: &dyn std::error::Error,
    hint: Option<&str>,
) -> std::fmt::Result {
    f.write_str(&chain(error))?;
    hint.map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
}

/// Defines the error of one plane: a kind, a message, a hint and a source. It knows no session; [`crate::Error`] takes
/// its parts over and adds the session.
///
/// Each kind of the plane names the [`ErrorKind`] that it becomes. A plane whose error carries one more value names its
/// type after `with`; it begins as the default of that type, and is the second field of the error.
#[allow(unused_macros)]
macro_rules! plane_error {
    (
        $(#[$error_doc:meta])* $error:ident $(with $extra:ty)?;
        $(#[$kind_doc:meta])* $kind:ident { $($(#[$variant_doc:meta])* $variant:ident => $flat:ident),+ $(,)? }
    ) => {
        $(#[$error_doc])*
        pub struct $error(Box<$crate::error::Details<$kind>> $(, $extra)?);

        $(#[$kind_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $kind { $($(#[$variant_doc])* $variant),+ }

        impl $error {
            /// Creates an error. The message is lower case without a full stop, and does not repeat the source.
            pub fn new(kind: $kind, message: impl std::fmt::Display) -> Self {
                let message = message.to_string();
                let details = $crate::error::Details { kind, message, hint: None, source: None };
                $error(Box::new(details) $(, <$extra>::default())?)
            }

            /// Wraps an error, with the message of that error.
            pub fn wrap(kind: $kind, error: impl std::error::Error + Send + Sync + 'static) -> Self {
                $error(Box::new($crate::error::Details::wrap(kind, error)) $(, <$extra>::default())?)
            }

            /// Adds advice for the person who can act.
            pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
                self.0.hint = Some(hint.into());
                self
            }

            /// Adds the error that caused this one.
            pub fn because(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
                self.0.source = Some(Box::new(source));
                self
            }

            /// Returns the message and the errors behind it, each after a colon, without the hint.
            pub fn message(&self) -> String {
                $crate::error::chain(self)
            }

            /// Returns the kind of failure.
            pub fn kind(&self) -> $kind {
                self.0.kind
            }

            /// Returns the advice for the person who can act.
            pub fn hint(&self) -> Option<&str> {
                self.0.hint.as_deref()
            }

            /// Returns true if the operation may succeed when it is tried again.
            pub fn is_temporary(&self) -> bool {
                $crate::error::ErrorKind::from(self.0.kind).is_temporary()
                    || $crate::error::is_temporary_io(self.0.source.as_deref())
            }
        }

        impl From<$kind> for $crate::error::ErrorKind {
            fn from(kind: $kind) -> Self {
                match kind { $($kind::$variant => $crate::error::ErrorKind::$flat),+ }
            }
        }

        impl From<$error> for $crate::error::Details<$crate::error::ErrorKind> {
            fn from(error: $error) -> Self {
                let $crate::error::Details { kind, message, hint, source } = *error.0;
                $crate::error::Details { kind: kind.into(), message, hint, source }
            }
        }

        impl std::fmt::Display for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.0, f)
            }
        }

        /// Prints the message, its causes and the hint, so that a test that unwraps the error reads well.
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::error::write_report(f, self, self.hint())
            }
        }

        impl std::error::Error for $error {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                self.0.source()
            }
        }
    };
}
#[allow(unused_imports)]
pub(crate) use plane_error;
