//! Answers of a provider, whole and in pieces.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use rath_record::Usage;
use rath_record::chunk::{Assistant, Call, Finish, Json};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::render::{Request, estimate_tokens};

/// A piece of an answer, as it arrives.
///
/// Passed to [`Ask::each`](crate::Ask::each).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delta<'a> {
    /// More text.
    Text(&'a str),
    /// More reasoning.
    Reasoning(&'a str),
    /// More of a call.
    Call {
        /// The index of the call in the answer, from 0.
        nth: usize,
        /// The provider's id of the call, once it is known.
        id: &'a str,
        /// The name of the tool, as far as it is known.
        tool: &'a str,
        /// More of the arguments.
        arguments: &'a str,
    },
    /// The model stopped.
    Finish(Finish),
    /// The tokens that the answer used.
    Usage(Usage),
    /// The attempt failed: its pieces are void, and another attempt follows.
    Retry {
        /// The number of the failed attempt, from 1.
        attempt: u32,
        /// The most attempts that are made.
        of: u32,
        /// The message of the error.
        error: &'a str,
        /// The time until the next attempt.
        wait: Duration,
    },
}

/// A callback for the pieces of an answer.
pub type DeltaSink<'a> = dyn FnMut(Delta<'_>) + Send + 'a;

/// A whole answer.
///
/// Returned by [`ProviderBackend::send`](super::ProviderBackend::send).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// The reasoning that the provider reveals.
    pub reasoning: String,
    /// The calls that the model asks for.
    pub calls: Vec<Call>,
    /// The reason why the model stopped.
    pub finish: Finish,
    /// The tokens used, if the provider reports them.
    pub usage: Option<Usage>,
    /// The metadata that the provider reports.
    pub facts: AnswerFacts,
    /// State that only this provider can read.
    pub sidecar: Option<Json>,
}

impl Answer {
    /// Returns the usage that the provider reported, or an estimate by the length of request and answer.
    pub(crate) fn usage_or_estimate(&mut self, request: &Request) -> Usage {
        self.usage.unwrap_or_else(|| {
            self.facts.set("usage_estimated", true);
            let calls = self.calls.iter().map(|call| call.tool.len() + call.arguments.as_str().map_or(0, str::len));
            let output = self.text.len() + self.reasoning.len() + calls.sum::<usize>();
            Usage::new(request.tokens, estimate_tokens(output as u64))
        })
    }

    /// Replaces each text for which `rewrite` returns another one.
    ///
    /// State that only the provider can read cannot be rewritten, and is dropped instead.
    pub(crate) fn rewrite(&mut self, rewrite: impl Fn(&str) -> Option<String>) {
        for text in [&mut self.text, &mut self.reasoning] {
            if let Some(rewritten) = rewrite(text) {
                *text = rewritten;
                self.sidecar = None;
            }
        }
        for call in &mut self.calls {
            if let Some(rewritten) = call.arguments.as_str().and_then(&rewrite) {
                call.arguments = rewritten.into();
            }
        }
        self.sidecar = self.sidecar.take().filter(|sidecar| rewrite(sidecar.as_str()).is_none());
    }

    /// Returns the chunk that is recorded.
    pub(crate) fn into_chunk(self, request: Request) -> Assistant {
        Assistant::new(self.text)
            .with_reasoning(self.reasoning)
            .with_calls(self.calls)
            .with_finish(self.finish)
            .with_request(request.digest)
            .with_settings(request.settings_json)
            .with_provider(request.identity)
            .with_facts(self.facts.into_json())
            .with_sidecar(self.sidecar)
    }
}

/// The metadata that a provider reports with an answer, unchanged: `id`, `model`, `finish`, `usage`, `headers`, ..
///
/// Part of [`Answer`].
#[derive(Clone, Default)]
pub struct AnswerFacts(Vec<(Cow<'static, str>, Box<RawValue>)>);

impl AnswerFacts {
    /// Sets a fact.
    pub fn set(&mut self, name: impl Into<Cow<'static, str>>, value: impl Serialize) {
        if let Ok(value) = serde_json::value::to_raw_value(&value) {
            self.set_raw(name, value);
        }
    }

    /// Sets a fact to JSON that a provider sent.
    pub(crate) fn set_raw(&mut self, name: impl Into<Cow<'static, str>>, value: Box<RawValue>) {
        let name = name.into();
        match self.position(&name) {
            Ok(nth) => self.0[nth].1 = value,
            Err(nth) => self.0.insert(nth, (name, value)),
        }
    }

    /// Returns a fact, as JSON.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.position(name).ok().map(|nth| self.0[nth].1.get())
    }

    /// Returns the position of a fact, or the one that a new fact of this name gets: facts are ordered by name.
    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(name))
    }

    /// Sets a fact to a text, unless the text is missing or empty.
    pub(crate) fn set_text(&mut self, name: &'static str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.set(name, value);
        }
    }

    /// Replaces each fact for whose JSON `rewrite` returns other JSON.
    pub(crate) fn rewrite(&mut self, rewrite: impl Fn(&str) -> Option<String>) {
        for (_, value) in &mut self.0 {
            if let Some(rewritten) = rewrite(value.get()).and_then(|text| RawValue::from_string(text).ok()) {
                *value = rewritten;
            }
        }
    }

    /// Returns the names and the JSON of all facts, ordered by name.
    fn members(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, value.get()))
    }

    fn into_json(self) -> Option<Json> {
        let json = serde_json::value::to_raw_value(&self).ok().filter(|_| !self.0.is_empty());
        json.map(Json::from)
    }
}

impl Serialize for AnswerFacts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl fmt::Debug for AnswerFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.members()).finish()
    }
}

impl PartialEq for AnswerFacts {
    fn eq(&self, other: &Self) -> bool {
        self.members().eq(other.members())
    }
}
