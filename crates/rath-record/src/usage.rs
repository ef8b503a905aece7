//! Token counts of model calls.

use std::fmt;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// Token counts, defined the same way for every provider.
///
/// `input` is everything the model read, cached or not, so `cached_read` and `cache_write` are parts of it; `output`
/// is everything it wrote, so `reasoning` is a part of it.
///
/// ```
/// use rath_record::Usage;
///
/// let usage = Usage::new(100, 20) + Usage::new(150, 5);
/// assert_eq!(usage.total(), 275);
/// assert_eq!(usage.to_string(), "250 in, 25 out");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Tokens read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub input: u64,
    /// Tokens written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub output: u64,
    /// The part of `input` that came from the provider's prompt cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_read: u64,
    /// The part of `input` that was written to the cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    /// The part of `output` that was reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning: u64,
}

impl Usage {
    /// Makes the usage of a call with nothing cached.
    pub fn new(input: u64, output: u64) -> Self {
        Usage { input, output, ..Usage::default() }
    }

    /// Returns a copy in which no number is above `max`.
    pub(crate) fn capped_at(&self, max: u64) -> Self {
        Usage {
            input: self.input.min(max),
            output: self.output.min(max),
            cached_read: self.cached_read.min(max),
            cache_write: self.cache_write.min(max),
            reasoning: self.reasoning.min(max),
        }
    }

    /// The sum of tokens read and written.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

impl Add for Usage {
    type Output = Usage;

    /// Saturates at the largest number: a damaged count must not wrap round to a small one.
    fn add(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cached_read: self.cached_read.saturating_add(other.cached_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        *self = *self + other;
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in, {} out", self.input, self.output)
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
