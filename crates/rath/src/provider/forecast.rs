//! How much of a request a provider may have seen before.

use std::fmt;

use rath_record::chunk::{Assistant, Chunk};
use rath_record::{Record, Step, StepId};

use super::render::{Request, Target};
use super::{rebuild, settings::Shape};
use crate::session::Result;
use crate::session::Session;

/// What a provider may find of a request in its prompt cache, if it still has the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// The answer whose request is the one before.
    pub after: Option<StepId>,
    /// How many bytes the request has.
    pub bytes: u64,
    /// How many of them the one before began with.
    pub shared_bytes: u64,
    /// About how many tokens the request has.
    pub tokens: u64,
    /// About how many of them the provider will have in its cache.
    pub cached_tokens: u64,
}

/// Providers keep nothing shorter than this.
const SHORTEST: u64 = 1_024;
/// OpenAI keeps whole blocks of so many tokens.
const BLOCK: u64 = 128;

pub(super) fn forecast(session: &Session, target: Target<'_>) -> Result<Forecast> {
    let request = session.render(target)?;
    let before = candidates(session.as_record()).into_iter().filter_map(|(step, answer)| {
        let home = answer.provider.as_ref() == Some(target.identity);
        let earlier = Session::before(step)?;
        let sent = home.then(|| rebuild(&earlier, answer).ok()).flatten()?;
        Some((step, shared(&sent, &request), sent))
    });
    let best = before.max_by_key(|(_, shared, _)| *shared);
    let Some((step, shared_bytes, sent)) = best else {
        return Ok(Forecast {
            after: None,
            bytes: request.bytes.len() as u64,
            shared_bytes: 0,
            tokens: request.tokens,
            cached_tokens: 0,
        });
    };
    // What the provider counted then says how many bytes a token has here.
    let counted = step.stamp().usage.map(|usage| usage.input).filter(|input| *input > 0).unwrap_or(sent.tokens);
    let scale = |bytes: u64| u64::try_from(u128::from(bytes) * u128::from(counted) / sent.bytes.len() as u128);
    let tokens = scale(request.bytes.len() as u64).unwrap_or(u64::MAX);
    let whole = shared_bytes >= sent.messages_end() as u64;
    let cached = if whole { counted } else { scale(shared_bytes).unwrap_or_default() };
    let cached = match target.settings.shape {
        Shape::Chat => cached / BLOCK * BLOCK,
        Shape::Messages if target.settings.cache.is_none() => 0,
        // Only what was kept as a whole is found: all that was sent, or the instructions, which is less than can be told.
        Shape::Messages if whole => cached,
        Shape::Messages => 0,
    };
    Ok(Forecast {
        after: Some(step.id()),
        bytes: request.bytes.len() as u64,
        shared_bytes,
        tokens: tokens.max(cached),
        cached_tokens: if cached >= SHORTEST { cached } else { 0 },
    })
}

/// The newest answer on our side, whose request is most like the next one, and the newest of all.
fn candidates(record: &Record) -> Vec<(&Step, &Assistant)> {
    let answer = |step: &'_ Step| matches!(step.chunk(), Chunk::Assistant(answer) if answer.request.is_some());
    let ours = std::iter::successors(record.head(), |step| step.parents().first().and_then(|link| link.step()));
    let found = [ours.into_iter().find(|step| answer(step)), record.newest_first().find(|step| answer(step))];
    let answers = found.into_iter().flatten().filter_map(|step| match step.chunk() {
        Chunk::Assistant(answer) => Some((step, answer)),
        _ => None,
    });
    answers.collect()
}

/// How many bytes two requests begin with, up to the last message of the first.
fn shared(sent: &Request, next: &Request) -> u64 {
    let sent = &sent.bytes[..sent.messages_end()];
    sent.iter().zip(&next.bytes[..]).take_while(|(ours, theirs)| ours == theirs).count() as u64
}

/// `about 1200 of 1500 tokens from the prompt cache`.
impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "about {} of {} tokens from the prompt cache", self.cached_tokens, self.tokens)
    }
}
