//! When a model call is tried again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use super::answer::{Again, Failure};

/// How often a model call is tried, and how long is waited in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How many attempts there are, the first included; none counts as one.
    pub attempts: u32,
    /// The longest wait before the second attempt. It doubles with each.
    pub first: Duration,
    /// The longest wait of all, even where the provider asks for more.
    pub longest: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { attempts: 4, first: Duration::from_millis(500), longest: Duration::from_secs(60) }
    }
}

impl Retry {
    /// One attempt only.
    pub fn never() -> Self {
        Retry { attempts: 1, ..Retry::default() }
    }

    /// How long to wait before another attempt, if there is to be one. `made` have been counted; `random` is from 0 to 1.
    pub(crate) fn wait(&self, made: u32, failure: &Failure, random: f64) -> Option<Duration> {
        match failure.again {
            Again::Never => None,
            Again::OtherKey => Some(Duration::ZERO),
            Again::Later(_) if made >= self.attempts => None,
            // A little more than was asked for, lest all who were told the same come at the same moment.
            Again::Later(Some(asked)) => Some(asked.min(self.longest).mul_f64(1.0 + 0.1 * random).min(self.longest)),
            Again::Later(None) => {
                let doubled = self.first.saturating_mul(1 << made.saturating_sub(1).min(20));
                Some(doubled.min(self.longest).mul_f64(0.5 + 0.5 * random))
            }
        }
    }
}

/// A number from 0 to 1. The standard library's hasher is keyed at random, and no better randomness is needed.
pub(crate) fn random() -> f64 {
    RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[track_caller]
    fn check(made: u32, again: Again, random: f64, expected: &str) {
        let failure = Failure { again, ..Failure::new(ErrorKind::Busy, "busy") };
        let wait = Retry::default().wait(made, &failure, random);
        assert_eq!(wait.map_or("gives up".to_owned(), |wait| format!("{wait:?}")), expected);
    }

    #[test]
    fn waits_double_with_jitter_up_to_the_longest() {
        check(1, Again::Later(None), 0.0, "250ms");
        check(1, Again::Later(None), 1.0, "500ms");
        check(3, Again::Later(None), 1.0, "2s");
        let patient = Retry { attempts: 99, ..Retry::default() };
        let busy = Failure::new(ErrorKind::Busy, "busy");
        assert_eq!(patient.wait(80, &busy, 1.0), Some(Duration::from_secs(60)));
    }

    #[test]
    fn what_the_provider_asks_for_is_waited_for_and_no_longer_than_the_longest() {
        check(1, Again::Later(Some(Duration::from_secs(7))), 0.0, "7s");
        check(1, Again::Later(Some(Duration::from_secs(10))), 1.0, "11s");
        check(1, Again::Later(Some(Duration::from_secs(3600))), 0.0, "60s");
        check(1, Again::Later(Some(Duration::ZERO)), 0.7, "0ns");
        check(1, Again::Later(Some(Duration::MAX)), 1.0, "60s");
    }

    #[test]
    fn attempts_are_counted_and_another_key_is_not_one() {
        check(3, Again::Later(None), 0.0, "1s");
        check(4, Again::Later(None), 0.0, "gives up");
        check(4, Again::Later(Some(Duration::ZERO)), 0.0, "gives up");
        check(4, Again::OtherKey, 0.0, "0ns");
        check(1, Again::Never, 0.0, "gives up");
    }
}
