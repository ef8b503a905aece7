//! The decision when a model call is tried again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use super::error::{ProviderError, RetryAdvice};

/// The number of attempts for a model call, and the waits in between.
///
/// ```
/// use rath::prelude::*;
/// use rath::provider::Retry;
///
/// # fn main() -> rath::Result<()> {
/// # let provider = Provider::from(Script::of([r#"{"text": "hi"}"#])?);
/// let patient = provider.retry(Retry { attempts: 10, ..Retry::default() });
/// # drop(patient);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The number of attempts, the first included; 0 counts as 1.
    pub attempts: u32,
    /// The longest wait before the second attempt. It doubles with each further attempt.
    pub first: Duration,
    /// The longest wait of all, even if the provider asks for more.
    pub longest: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { attempts: 4, first: Duration::from_millis(500), longest: Duration::from_secs(60) }
    }
}

impl Retry {
    /// Makes one attempt only.
    pub fn never() -> Self {
        Retry { attempts: 1, ..Retry::default() }
    }

    /// Returns the wait before the next attempt, or `None` if there is to be none. `made` attempts have been counted.
    pub(crate) fn wait(&self, made: u32, error: &ProviderError) -> Option<Duration> {
        self.wait_with_jitter(made, error.retry(), random_fraction())
    }

    /// Returns the wait before the next attempt. `jitter` is from 0 to 1.
    fn wait_with_jitter(&self, made: u32, advice: RetryAdvice, jitter: f64) -> Option<Duration> {
        match advice {
            RetryAdvice::Never => None,
            RetryAdvice::OtherKey => Some(Duration::ZERO),
            RetryAdvice::Later(_) if made >= self.attempts => None,
            // A little longer than the provider asked for, so that clients with the same answer do not return together.
            RetryAdvice::Later(Some(after)) => {
                Some(after.min(self.longest).mul_f64(1.0 + 0.1 * jitter).min(self.longest))
            }
            RetryAdvice::Later(None) => {
                let doubled = self.first.saturating_mul(1 << made.saturating_sub(1).min(20));
                Some(doubled.min(self.longest).mul_f64(0.5 + 0.5 * jitter))
            }
        }
    }
}

/// Returns a number from 0 to 1. The standard library's hasher has a random key, which is random enough for a jitter.
fn random_fraction() -> f64 {
    RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::ProviderErrorKind;

    #[track_caller]
    fn check(made: u32, advice: RetryAdvice, jitter: f64, expected: &str) {
        let wait = Retry::default().wait_with_jitter(made, advice, jitter);
        assert_eq!(wait.map_or("gives up".to_owned(), |wait| format!("{wait:?}")), expected);
    }

    #[test]
    fn waits_double_with_jitter_up_to_the_longest() {
        check(1, RetryAdvice::Later(None), 0.0, "250ms");
        check(1, RetryAdvice::Later(None), 1.0, "500ms");
        check(3, RetryAdvice::Later(None), 1.0, "2s");
        let patient = Retry { attempts: 99, ..Retry::default() };
        let busy = ProviderError::new(ProviderErrorKind::Busy, "busy");
        assert_eq!(patient.wait_with_jitter(80, busy.retry(), 1.0), Some(Duration::from_secs(60)));
    }

    #[test]
    fn the_wait_that_the_provider_asks_for_is_kept_up_to_the_longest() {
        check(1, RetryAdvice::Later(Some(Duration::from_secs(7))), 0.0, "7s");
        check(1, RetryAdvice::Later(Some(Duration::from_secs(10))), 1.0, "11s");
        check(1, RetryAdvice::Later(Some(Duration::from_secs(3600))), 0.0, "60s");
        check(1, RetryAdvice::Later(Some(Duration::ZERO)), 0.7, "0ns");
        check(1, RetryAdvice::Later(Some(Duration::MAX)), 1.0, "60s");
    }

    #[test]
    fn attempts_are_counted_and_another_key_is_not_one() {
        check(3, RetryAdvice::Later(None), 0.0, "1s");
        check(4, RetryAdvice::Later(None), 0.0, "gives up");
        check(4, RetryAdvice::Later(Some(Duration::ZERO)), 0.0, "gives up");
        check(4, RetryAdvice::OtherKey, 0.0, "0ns");
        check(1, RetryAdvice::Never, 0.0, "gives up");
    }
}
