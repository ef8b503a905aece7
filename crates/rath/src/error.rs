//! The kinds of failure, and the errors of the planes below the session.

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
