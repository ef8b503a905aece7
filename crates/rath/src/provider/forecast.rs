//! A forecast of how much of a request a provider has in its prompt cache.

use std::fmt;
use std::sync::Arc;

use rath_record::chunk::{Assistant, Chunk};
use rath_record::{Record, Step, StepId};

use super::render::Request;
use super::settings::{Settings, Shape};

/// The part of a request that a provider may find in its prompt cache, if it still has the request before.
///
/// Returned by [`Provider::forecast`](super::Provider::forecast).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// The answer to the earlier request that the next one is compared with.
    pub after: Option<StepId>,
    /// The size of the request in bytes.
    pub bytes: u64,
    /// The number of bytes that both requests begin with.
    pub shared_bytes: u64,
    /// The estimated number of tokens in the request.
    pub tokens: u64,
    /// The estimated number of tokens that come from the cache.
    pub cached_tokens: u64,
}

/// The fewest tokens that providers cache.
const MIN_CACHED_TOKENS: u64 = 1_024;
/// The fewest tokens that all of Gemini's models cache.
const MIN_CACHED_BY_GEMINI_TOKENS: u64 = 4_096;
/// OpenAI caches whole blocks of this many tokens.
const CACHE_BLOCK_TOKENS: u64 = 128;

impl Forecast {
    /// Returns the answers whose requests the next one may share a beginning with.
    ///
    /// These are the newest answer along first parents, whose request is most like the next one, and the newest of all.
    pub(crate) fn candidates(record: &Record) -> Vec<(&Step, &Assistant)> {
        let has_request = |step: &'_ Step| matches!(step.chunk(), Chunk::Assistant(answer) if answer.request.is_some());
        let first_parents =
            std::iter::successors(record.head(), |step| step.parents().first().and_then(|link| link.step()));
        let nearest = first_parents.into_iter().find(|step| has_request(step));
        let newest = record.newest_first().find(|step| has_request(step));
        let answers = [nearest, newest].into_iter().flatten().filter_map(|step| match step.chunk() {
            Chunk::Assistant(answer) => Some((step, answer)),
            _ => None,
        });
        answers.collect()
    }

    /// Compares the next request with earlier ones, each with the step of its answer, by the earlier one that shares most.
    pub(crate) fn compare<'a>(
        request: &Request,
        earlier: impl Iterator<Item = (&'a Step, Request)>,
        settings: &Arc<Settings>,
    ) -> Self {
        let earlier = earlier.map(|(step, sent)| (step, shared_prefix(&sent, request), sent));
        let Some((step, shared_bytes, sent)) = earlier.max_by_key(|(_, shared, _)| *shared) else {
            return Forecast {
                after: None,
                bytes: request.bytes.len() as u64,
                shared_bytes: 0,
                tokens: request.tokens,
                cached_tokens: 0,
            };
        };
        // The provider's count for the earlier request gives the ratio of bytes to tokens.
        let counted = step.stamp().usage.map(|usage| usage.input).filter(|input| *input > 0).unwrap_or(sent.tokens);
        let scale = |bytes: u64| u64::try_from(u128::from(bytes) * u128::from(counted) / sent.bytes.len() as u128);
        let tokens = scale(request.bytes.len() as u64).unwrap_or(u64::MAX);
        let shares_all_messages = shared_bytes >= sent.messages_end() as u64;
        let cached = if shares_all_messages { counted } else { scale(shared_bytes).unwrap_or_default() };
        let cached = match settings.shape {
            Shape::Chat | Shape::Responses => cached / CACHE_BLOCK_TOKENS * CACHE_BLOCK_TOKENS,
            Shape::Messages if settings.cache.is_none() => 0,
            // Only a prefix that was cached as a whole is found: the entire request, or the instructions, whose size in
            // tokens is not known.
            Shape::Messages if shares_all_messages => cached,
            Shape::Messages => 0,
            Shape::Gemini if cached < MIN_CACHED_BY_GEMINI_TOKENS => 0,
            Shape::Gemini => cached,
        };
        Forecast {
            after: Some(step.id()),
            bytes: request.bytes.len() as u64,
            shared_bytes,
            tokens: tokens.max(cached),
            cached_tokens: if cached >= MIN_CACHED_TOKENS { cached } else { 0 },
        }
    }
}

/// Returns how many bytes two requests begin with, up to the last message of the first.
fn shared_prefix(sent: &Request, next: &Request) -> u64 {
    let sent = &sent.bytes[..sent.messages_end()];
    sent.iter().zip(&next.bytes[..]).take_while(|(ours, theirs)| ours == theirs).count() as u64
}

/// Prints `about 1200 of 1500 tokens from the prompt cache`.
impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "about {} of {} tokens from the prompt cache", self.cached_tokens, self.tokens)
    }
}
