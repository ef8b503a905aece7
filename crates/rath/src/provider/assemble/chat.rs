//! Answers in the shape of OpenAI's Chat Completions.

use std::borrow::Cow;
use std::collections::HashMap;

use rath_record::chunk::{Call, Finish, Json};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::frame::Frame;
use super::gather::Gather;
use super::{REASONING, Words, is_failure, reported, tell};
use crate::error::ErrorKind;
use crate::provider::answer::{Answer, Delta, Facts, Failure, Sink};
use crate::provider::usage;

/// An answer under way.
#[derive(Default)]
pub(super) struct Chat {
    text: Gather,
    reasoning: Gather,
    /// The name under which reasoning comes: servers disagree on it, and want it back under theirs.
    reasoning_name: Option<&'static str>,
    reasoning_details: Vec<Box<RawValue>>,
    calls: Vec<CallUnderWay>,
    /// Where the newest call with each index stands, and the one with each id.
    by_index: HashMap<u64, usize>,
    by_id: HashMap<String, usize>,
    /// Where those stand that began with the newest piece that began any.
    group: usize,
    finish: Option<String>,
    refused: bool,
    usage: Option<Box<RawValue>>,
    facts: Facts,
    /// What stands around the words in most events.
    frame: Frame,
    /// Whether it is known what answers: it is said with every piece.
    named: bool,
    /// Whether there was any choice.
    spoke: bool,
    /// Whether it does not come in pieces.
    at_once: bool,
    /// Whether the end has come.
    pub(super) done: bool,
}

/// Where a piece of a call stands among those that came with it.
#[derive(Clone, Copy)]
struct Place {
    nth: usize,
    of: usize,
}

/// Whether a message came all at once.
#[derive(Clone, Copy, PartialEq)]
enum Whole {
    Yes,
    No,
}

#[derive(Default)]
struct CallUnderWay {
    id: String,
    tool: String,
    arguments: Gather,
}

/// What is said about an answer with every event of it, and need be read only once.
#[derive(Deserialize)]
struct About<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow)]
    service_tier: Option<Cow<'a, str>>,
    #[serde(borrow)]
    system_fingerprint: Option<Cow<'a, str>>,
}

/// One event, or a whole answer.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Piece<'a>>,
    /// All of it, where it does not come in pieces.
    #[serde(borrow)]
    message: Option<Piece<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow)]
    content: Option<Words<'a>>,
    #[serde(borrow)]
    refusal: Option<Words<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<Words<'a>>,
    #[serde(borrow)]
    reasoning: Option<Words<'a>>,
    #[serde(borrow)]
    reasoning_text: Option<Words<'a>>,
    #[serde(borrow)]
    thinking: Option<Words<'a>>,
    #[serde(borrow)]
    reasoning_details: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallPiece<'a>>>,
}

#[derive(Deserialize)]
struct CallPiece<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<Words<'a>>,
}

impl Chat {
    pub(super) fn event(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        if data.trim_ascii() == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        if let Some(words) = self.frame.words(data).filter(|_| !self.done) {
            tell(Delta::Text(self.text.push(words)), sink);
            return Ok(());
        }
        // Keep-alives and what follows the end say nothing.
        if data.iter().all(u8::is_ascii_whitespace) || self.done {
            return Ok(());
        }
        self.read(data, sink)
    }

    /// The answer in one object, which is its own end.
    pub(super) fn whole(&mut self, body: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        self.at_once = true;
        self.read(body, sink)?;
        if !self.spoke {
            return Err(Failure::unreadable("the answer holds no choices"));
        }
        self.done = true;
        Ok(())
    }

    pub(super) fn end(mut self, sink: &mut Sink<'_>) -> Result<Answer, Failure> {
        // The count comes after everything else, so with a reason to stop it is an end too.
        let counted = self.finish.is_some() && self.usage.is_some();
        if !self.done && !counted {
            return Err(Failure::cut());
        }
        let raw = self.finish.as_deref();
        if raw == Some("error") {
            return Err(Failure::new(ErrorKind::Busy, "the provider ended the answer with an error"));
        }
        if raw.is_none() && self.text.is_empty() && self.calls.is_empty() && self.reasoning.is_empty() {
            return Err(Failure::cut());
        }
        let finish = match raw {
            Some("length" | "max_tokens" | "model_length") => Finish::Length,
            Some("content_filter") => Finish::Filtered,
            _ if self.refused => Finish::Filtered,
            _ if !self.calls.is_empty() => Finish::Calls,
            _ => Finish::Stop,
        };
        self.facts.set_some("finish", self.finish.as_deref());
        let mut usage = None;
        if let Some(raw) = &self.usage {
            usage = serde_json::from_str(raw.get()).ok().as_ref().and_then(usage::chat);
            self.facts.set("usage", raw);
        }
        sink(Delta::Finish(finish));
        usage.into_iter().for_each(|usage| sink(Delta::Usage(usage)));
        let sidecar = self.sidecar();
        let calls = self.calls.into_iter().enumerate().map(|(nth, call)| {
            let id = if call.id.is_empty() { format!("call_{nth}") } else { call.id };
            let arguments = call.arguments.finish();
            let arguments = if arguments.trim().is_empty() { "{}".to_owned() } else { arguments };
            Call::new(id, call.tool, arguments)
        });
        Ok(Answer {
            calls: calls.collect(),
            text: self.text.finish(),
            reasoning: self.reasoning.finish(),
            finish,
            usage,
            facts: self.facts,
            sidecar,
        })
    }

    fn read(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        if !self.named {
            self.about(data);
        }
        match serde_json::from_slice::<Event<'_>>(data) {
            Ok(event) if event.choices.is_none() && event.usage.is_none() && event.error.is_none() => {
                match serde_json::from_slice(data) {
                    Ok(event) if is_failure(&event) => Err(reported(&event, None, self.wrong())),
                    _ => Ok(()),
                }
            }
            Ok(event) => {
                if let Some(words) = only_words(&event).filter(|_| self.named) {
                    self.frame.learn(data, words);
                }
                self.take(event, sink)
            }
            Err(_) => {
                let mended = mend(data)?;
                self.take(serde_json::from_slice(&mended).map_err(unlike)?, sink)
            }
        }
    }

    fn about(&mut self, data: &[u8]) {
        let Ok(about) = serde_json::from_slice::<About<'_>>(data) else { return };
        let said = |name: &Option<Cow<'_, str>>| name.as_ref().is_some_and(|name| !name.is_empty());
        self.named = said(&about.id) && said(&about.model);
        self.facts.set_some("id", about.id.as_deref());
        self.facts.set_some("model", about.model.as_deref());
        self.facts.set_some("service_tier", about.service_tier.as_deref());
        self.facts.set_some("system_fingerprint", about.system_fingerprint.as_deref());
    }

    fn take(&mut self, event: Event<'_>, sink: &mut Sink<'_>) -> Result<(), Failure> {
        if let Some(error) = event.error.filter(|error| !matches!(error.get(), "\"\"" | "false" | "{}")) {
            let error = serde_json::from_str(error.get()).unwrap_or(Value::Null);
            return Err(reported(&error, None, self.wrong()));
        }
        if let Some(usage) = event.usage.filter(|usage| usage.get().starts_with('{')) {
            self.usage = Some(usage.to_owned());
        }
        for choice in event.choices.into_iter().flatten().filter(|choice| choice.index.unwrap_or_default() == 0) {
            // Some say all of it again at the end.
            let said = !self.text.is_empty() || !self.calls.is_empty();
            self.spoke = true;
            if let Some(piece) = choice.delta {
                self.piece(piece, Whole::No, sink);
            } else if let Some(message) = choice.message.filter(|_| !said) {
                self.piece(message, Whole::Yes, sink);
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                self.finish = Some(reason.into_owned());
            }
        }
        Ok(())
    }

    /// What kind of failure one is that does not say: in the middle of an answer something broke.
    fn wrong(&self) -> ErrorKind {
        if self.at_once { ErrorKind::Refused } else { ErrorKind::Busy }
    }

    fn piece(&mut self, piece: Piece<'_>, whole: Whole, sink: &mut Sink<'_>) {
        // One text may come under two names at once: it is taken once.
        let said = [piece.reasoning_content, piece.reasoning, piece.reasoning_text, piece.thinking];
        let named = REASONING
            .into_iter()
            .zip(said)
            .find_map(|(name, words)| words.filter(|words| !words.bytes.is_empty()).map(|words| (name, words)));
        let details = piece.reasoning_details.unwrap_or_default();
        match &named {
            Some((name, words)) => {
                self.reasoning_name = Some(name);
                tell(Delta::Reasoning(self.reasoning.push(&words.bytes)), sink);
            }
            None => {
                for detail in &details {
                    let detail: Value = serde_json::from_str(detail.get()).unwrap_or_default();
                    let words = detail.get("text").or(detail.get("summary")).and_then(Value::as_str);
                    tell(Delta::Reasoning(self.reasoning.push(words.unwrap_or_default().as_bytes())), sink);
                }
            }
        }
        self.reasoning_details.extend(details.into_iter().map(ToOwned::to_owned));
        if let Some(words) = piece.content {
            tell(Delta::Reasoning(self.reasoning.push(words.reasoning.as_bytes())), sink);
            tell(Delta::Text(self.text.push(&words.bytes)), sink);
        }
        if let Some(words) = piece.refusal.filter(|words| !words.bytes.is_empty()) {
            self.refused = true;
            tell(Delta::Text(self.text.push(&words.bytes)), sink);
        }
        let known = self.calls.len();
        let pieces = piece.tool_calls.unwrap_or_default();
        let of = pieces.len();
        for (nth, call) in pieces.into_iter().enumerate() {
            self.call(call, Some(Place { nth, of }).filter(|_| whole == Whole::No), sink);
        }
        if self.calls.len() > known {
            self.group = known;
        }
    }

    /// Takes in a piece of a call, at its place among those that came with it; a whole call has none.
    fn call(&mut self, piece: CallPiece<'_>, place: Option<Place>, sink: &mut Sink<'_>) {
        let id = piece.id.as_deref().unwrap_or_default();
        let function = piece.function.unwrap_or(Function { name: None, arguments: None });
        let name = function.name.as_deref().unwrap_or_default();
        let arguments = function.arguments.map(|words| words.bytes).unwrap_or_default();
        let known = place.and_then(|place| self.meant(piece.index, place, id, name, &arguments));
        let nth = known.unwrap_or_else(|| {
            self.calls.push(CallUnderWay::default());
            self.calls.len() - 1
        });
        if let Some(index) = piece.index {
            self.by_index.insert(index, nth);
        }
        let call = &mut self.calls[nth];
        if call.id.is_empty() && !id.is_empty() {
            call.id = id.to_owned();
            self.by_id.insert(id.to_owned(), nth);
        }
        if call.tool != name && call.arguments.is_empty() {
            call.tool.push_str(name);
        }
        let arguments = call.arguments.push(&arguments);
        sink(Delta::Call { nth, id: &call.id, tool: &call.tool, arguments });
    }

    /// Which call a piece goes on with; none if it begins a new one.
    ///
    /// Servers give calls an index, an id, both or neither, and a known id says most. Where what they give says that a
    /// piece goes on with a call, it still begins a new one if it names a tool and that call has another name, or another
    /// id, or is complete.
    fn meant(&self, index: Option<u64>, place: Place, id: &str, name: &str, arguments: &[u8]) -> Option<usize> {
        let last = self.calls.len().checked_sub(1);
        let by_id = self.by_id.get(id).copied();
        let by_index = index.and_then(|index| self.by_index.get(&index)).copied();
        let (nth, sure) = match (by_id, index) {
            // Calls may share an id: then the index tells them apart.
            (Some(_), Some(_)) if by_index.is_none() && !name.is_empty() => return None,
            (Some(_), Some(_)) if by_index.is_some_and(|nth| self.calls[nth].id == id) => (by_index?, true),
            (Some(nth), _) => (nth, true),
            (None, Some(_)) => (by_index?, true),
            // Calls that began together go on together.
            (None, None) if name.is_empty() && id.is_empty() && place.of > 1 => {
                ((self.group + place.nth).min(last?), false)
            }
            (None, None) => (last?, false),
        };
        if name.is_empty() {
            return Some(nth);
        }
        let call = &self.calls[nth];
        let so_far = call.arguments.as_str();
        let complete = || so_far.ends_with('}') && serde_json::from_str::<IgnoredAny>(so_far).is_ok();
        let other_id = !id.is_empty() && !call.id.is_empty() && call.id != id;
        // A name may come in pieces, though never two at once.
        let goes_on = sure && place.nth == 0 && so_far.is_empty();
        let other_name = call.tool != name && !call.tool.is_empty() && !goes_on;
        let begins = other_name
            || other_id
            || (!sure && (place.nth > 0 || (so_far.is_empty() && arguments.is_empty())))
            || (!arguments.trim_ascii().is_empty() && complete());
        (!begins).then_some(nth)
    }

    fn sidecar(&self) -> Option<Json> {
        let json = if !self.reasoning_details.is_empty() {
            format!(r#"{{"reasoning_details":{}}}"#, serde_json::to_string(&self.reasoning_details).ok()?)
        } else {
            format!(r#"{{"reasoning":"{}"}}"#, self.reasoning_name?)
        };
        Json::parse(&json).ok()
    }
}

/// The words of an event that holds nothing else, where they stand in it as they are.
fn only_words<'a>(event: &Event<'a>) -> Option<&'a [u8]> {
    let Event { choices: Some(choices), usage: None, error: None } = event else { return None };
    let [Choice { index: None | Some(0), delta: Some(piece), message: None, finish_reason: None }] = &choices[..]
    else {
        return None;
    };
    let Piece {
        content: Some(Words { bytes: Cow::Borrowed(words), .. }),
        refusal: None,
        reasoning_content: None,
        reasoning: None,
        reasoning_text: None,
        thinking: None,
        reasoning_details: None,
        tool_calls: None,
    } = piece
    else {
        return None;
    };
    Some(words)
}

/// An event with arguments as an object instead of a text, which some servers send, made regular.
fn mend(data: &[u8]) -> Result<Vec<u8>, Failure> {
    let text = String::from_utf8_lossy(data);
    let mut event: Value = serde_json::from_str(&text).map_err(unlike)?;
    let choices = event.get_mut("choices").and_then(Value::as_array_mut).into_iter().flatten();
    for choice in choices {
        for part in ["delta", "message"] {
            let calls = choice.get_mut(part).and_then(|part| part.get_mut("tool_calls")).and_then(Value::as_array_mut);
            for arguments in calls.into_iter().flatten().filter_map(|call| call.pointer_mut("/function/arguments")) {
                if !arguments.is_string() && !arguments.is_null() {
                    *arguments = Value::String(arguments.to_string());
                }
            }
        }
    }
    Ok(event.to_string().into_bytes())
}

fn unlike(error: serde_json::Error) -> Failure {
    Failure::unreadable(format_args!("wanted an answer of the Chat Completions API: {error}"))
}
