//! The error of everything below the session that has to do with providers.

use std::fmt;
use std::time::Duration;

use super::render::RenderError;
use crate::error::{ErrorKind, plane_error};

plane_error! {
    /// A failed operation of a provider, with advice on whether to try it again.
    ///
    /// The message is in the provider's own words where there are some.
    ///
    /// ```
    /// use rath::provider::{ProviderError, ProviderErrorKind, RetryAdvice};
    ///
    /// let error = ProviderError::new(ProviderErrorKind::Busy, "all slots are taken");
    /// assert_eq!(error.retry(), RetryAdvice::Later(None));
    /// ```
    ProviderError with Option<RetryAdvice>;
    /// The kinds of failure of a provider.
    ///
    /// Returned by [`ProviderError::kind`].
    ProviderErrorKind {
        /// The provider is named or set up wrongly.
        Setup => Provider,
        /// There is no key, or the provider rejects it.
        Key => Key,
        /// The provider has no such model.
        Model => Model,
        /// The provider refuses the request.
        Refused => Refused,
        /// The provider is overloaded, or fails internally.
        Busy => Busy,
        /// Nothing arrived in time.
        Timeout => Timeout,
        /// The provider cannot be reached, or the connection broke.
        Connection => Connection,
        /// The answer cannot be read.
        Answer => Answer,
        /// A request cannot be built.
        Request => Request,
        /// A payload that the request needs is missing.
        Payload => Payload,
        /// A script does not fit the calls that are made.
        Script => Script,
        /// A file or a text has the wrong format.
        Format => Format,
        /// A file cannot be read.
        Io => Io,
    }
}

/// Advice on when a failed attempt is worth repeating.
///
/// Returned by [`ProviderError::retry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAdvice {
    /// Another attempt would fail in the same way.
    Never,
    /// Another attempt may succeed later: after this time, if the provider named one.
    Later(Option<Duration>),
    /// Another key is available. It is tried at once, and is not counted as an attempt.
    OtherKey,
}

impl From<std::io::Error> for ProviderError {
    fn from(error: std::io::Error) -> Self {
        ProviderError::wrap(ProviderErrorKind::Io, error)
    }
}

impl ProviderError {
    /// Sets when to try again. Without this, the kind decides: a temporary one is tried again later, others never.
    pub fn with_retry(mut self, advice: RetryAdvice) -> Self {
        self.1 = Some(advice);
        self
    }

    /// Returns when to try again.
    pub fn retry(&self) -> RetryAdvice {
        self.1.unwrap_or(match ErrorKind::from(self.kind()).is_temporary() {
            true => RetryAdvice::Later(None),
            false => RetryAdvice::Never,
        })
    }

    /// Creates the error for an answer that cannot be read.
    pub(crate) fn unreadable(message: impl fmt::Display) -> Self {
        ProviderError::new(ProviderErrorKind::Answer, message)
    }

    /// Creates the error for an answer that ended before it was finished.
    pub(crate) fn truncated() -> Self {
        ProviderError::new(ProviderErrorKind::Connection, "the answer was cut off before it was finished")
    }

    /// Rewrites the message and the hint, wherever `rewrite` returns another text, and limits the message to
    /// `max_bytes`.
    ///
    /// The errors behind this one become part of the message: they may hold what is rewritten.
    pub(super) fn rewrite(mut self, rewrite: impl Fn(&str) -> Option<String>, max_bytes: usize) -> Self {
        let mut message = self.message();
        message = rewrite(&message).unwrap_or(message);
        message.truncate(message.floor_char_boundary(max_bytes));
        self.0.message = message;
        self.0.source = None;
        self.0.hint = self.0.hint.map(|hint| rewrite(&hint).unwrap_or(hint));
        self
    }
}

impl From<RenderError> for ProviderError {
    fn from(error: RenderError) -> Self {
        let (kind, hint) = match &error {
            RenderError::Missing(_) => {
                (ProviderErrorKind::Payload, "open the session from a file that holds the payload")
            }
            RenderError::TooManyChunks { .. } | RenderError::TooLong { .. } => {
                (ProviderErrorKind::Request, "continue from an earlier step, before it grew that long")
            }
        };
        ProviderError::wrap(kind, error).with_hint(hint)
    }
}
