//! What comes back from a provider: pieces, a whole answer, or a failure.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rath_record::Usage;
use rath_record::chunk::{Assistant, Call, Finish, Json};
use serde::Serialize;
use serde_json::value::RawValue;

use super::render::Request;
use crate::error::ErrorKind;
use crate::session::Error;

/// A piece of an answer, as it comes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delta<'a> {
    /// More words.
    Text(&'a str),
    /// More reasoning.
    Reasoning(&'a str),
    /// More of a call.
    Call {
        /// Which call of the answer, from 0.
        nth: usize,
        /// The provider's name for it, once it is known.
        id: &'a str,
        /// Its tool, as far as it is known.
        tool: &'a str,
        /// More of its arguments.
        arguments: &'a str,
    },
    /// The model stopped.
    Finish(Finish),
    /// What the answer cost.
    Usage(Usage),
    /// The attempt failed: what came of it is void, and another begins after a while.
    Retry {
        /// Which attempt failed, from 1.
        attempt: u32,
        /// How many there may be.
        of: u32,
        /// What went wrong.
        error: &'a str,
        /// How long until the next one.
        wait: Duration,
    },
}

/// Takes the pieces of an answer as they come.
pub type Sink<'a> = dyn FnMut(Delta<'_>) + Send + 'a;

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The words.
    pub text: String,
    /// The reasoning that the provider let us see.
    pub reasoning: String,
    /// The calls it asks for.
    pub calls: Vec<Call>,
    /// Why the model stopped.
    pub finish: Finish,
    /// What it cost, if the provider said so.
    pub usage: Option<Usage>,
    /// What the provider said about it.
    pub facts: Facts,
    /// State that only this provider can read.
    pub sidecar: Option<Json>,
}

impl Answer {
    /// What it cost: as the provider said, or by the length of what was sent and received.
    pub(crate) fn cost(&mut self, request: &Request) -> Usage {
        self.usage.unwrap_or_else(|| {
            self.facts.set("usage_estimated", true);
            let calls = self.calls.iter().map(|call| call.tool.len() + call.arguments.as_str().map_or(0, str::len));
            let output = self.text.len() + self.reasoning.len() + calls.sum::<usize>();
            Usage::new(request.tokens, super::render::tokens(output as u64))
        })
    }

    /// Changes what the model said wherever `mend` has something to change in it. What only the provider reads cannot be
    /// changed, and is dropped.
    pub(crate) fn scrub(&mut self, mend: impl Fn(&str) -> Option<String>) {
        for text in [&mut self.text, &mut self.reasoning] {
            if let Some(mended) = mend(text) {
                *text = mended;
                self.sidecar = None;
            }
        }
        for call in &mut self.calls {
            if let Some(mended) = call.arguments.as_str().and_then(&mend) {
                call.arguments = mended.into();
            }
        }
        self.sidecar = self.sidecar.take().filter(|sidecar| mend(sidecar.as_str()).is_none());
    }

    /// As it is recorded.
    pub(crate) fn into_chunk(self, request: &Request) -> Assistant {
        Assistant {
            text: self.text.into(),
            reasoning: self.reasoning.into(),
            calls: self.calls,
            finish: self.finish,
            request: Some(request.digest),
            settings: Some(request.stored.clone()),
            provider: Some(request.identity.clone()),
            facts: self.facts.into_json(),
            sidecar: self.sidecar,
        }
    }
}

/// What a provider said about its answer, as it said it: `id`, `model`, `finish`, `usage`, `headers`, ..
#[derive(Clone, Default)]
pub struct Facts(BTreeMap<String, Box<RawValue>>);

impl Facts {
    /// Adds a fact.
    pub fn set(&mut self, name: &str, value: impl Serialize) {
        if let Ok(value) = serde_json::value::to_raw_value(&value) {
            self.0.insert(name.to_owned(), value);
        }
    }

    /// A fact, as JSON.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.get())
    }

    /// Adds a text that may or may not be given.
    pub(crate) fn set_some(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.set(name, value);
        }
    }

    /// Changes every fact that `mend` has something to change in.
    pub(crate) fn scrub(&mut self, mend: impl Fn(&str) -> Option<String>) {
        for value in self.0.values_mut() {
            if let Some(mended) = mend(value.get()).and_then(|text| RawValue::from_string(text).ok()) {
                *value = mended;
            }
        }
    }

    fn into_json(self) -> Option<Json> {
        let json = serde_json::value::to_raw_value(&self.0).ok().filter(|_| !self.0.is_empty());
        json.map(Json::from)
    }
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(name, value)| (name, value.get()))).finish()
    }
}

impl PartialEq for Facts {
    fn eq(&self, other: &Self) -> bool {
        let texts = |facts: &Facts| facts.0.values().map(|value| value.get().to_owned()).collect::<Vec<_>>();
        self.0.keys().eq(other.0.keys()) && texts(self) == texts(other)
    }
}

/// Why an attempt gave no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind of failure.
    pub kind: ErrorKind,
    /// What went wrong, in the provider's own words where there are some.
    pub message: String,
    /// What the person who can act may do.
    pub hint: Option<String>,
    /// Whether it is worth trying again.
    pub again: Again,
}

/// Whether a failed attempt is worth repeating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It would fail in the same way.
    Never,
    /// After a while; not before this time, if the provider named one.
    Later(Option<Duration>),
    /// At once, and beside the attempts that are allowed: another key is at hand.
    OtherKey,
}

impl Failure {
    /// One that is worth trying again if its kind is a temporary one.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        let again = if kind.is_temporary() { Again::Later(None) } else { Again::Never };
        Failure { kind, message: message.to_string(), hint: None, again }
    }

    /// Adds what the person who can act may do.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// An answer that cannot be read.
    pub(crate) fn unreadable(message: impl fmt::Display) -> Self {
        Failure::new(ErrorKind::Answer, message)
    }

    /// An answer that ended before it was finished.
    pub(crate) fn cut() -> Self {
        Failure::new(ErrorKind::Connection, "the answer was cut off before it was finished")
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let error = Error::new(failure.kind, failure.message);
        match failure.hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}
