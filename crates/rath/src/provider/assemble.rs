//! From the pieces of an answer to the whole.
//!
//! One assembler for each wire shape. An answer counts as finished only when its end has come.

mod chat;
mod frame;
mod gather;
mod messages;

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::answer::{Answer, Delta, Failure, Sink};
use super::settings::Shape;
use super::sse::Events;
use crate::error::ErrorKind;

/// The names under which reasoning comes in the shape of Chat Completions.
pub(super) const REASONING: [&str; 4] = ["reasoning_content", "reasoning", "reasoning_text", "thinking"];

/// An answer under way, in either shape: for a backend that gets one over some other wire.
///
/// ```
/// use rath::provider::{Assembly, Shape};
///
/// let mut assembly = Assembly::new(Shape::Chat);
/// assembly.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"hel", &mut |_| {})?;
/// assembly.feed(b"lo\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", &mut |_| {})?;
/// assert_eq!(assembly.finish(&mut |_| {})?.text, "hello");
/// # Ok::<(), rath::provider::Failure>(())
/// ```
pub struct Assembly {
    events: Events,
    shape: Shaped,
    /// How many events have come that are more than a sign of life.
    heard: u64,
}

enum Shaped {
    Chat(Box<chat::Chat>),
    Messages(Box<messages::Messages>),
}

impl Assembly {
    /// Nothing yet, of an answer in this shape.
    pub fn new(shape: Shape) -> Self {
        let shape = match shape {
            Shape::Chat => Shaped::Chat(Box::default()),
            Shape::Messages => Shaped::Messages(Box::default()),
        };
        Assembly { events: Events::default(), shape, heard: 0 }
    }

    /// Takes in more of a stream of events, split anywhere.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        let Assembly { events, shape, heard } = self;
        events.feed(bytes, |data| {
            *heard += u64::from(!is_ping(data));
            shape.event(data, sink)
        })
    }

    /// How many events have come that are more than a sign of life.
    pub(super) fn heard(&self) -> u64 {
        self.heard
    }

    /// Whether the end has come, so that nothing more is to be waited for.
    pub fn is_done(&self) -> bool {
        match &self.shape {
            Shaped::Chat(chat) => chat.done,
            Shaped::Messages(messages) => messages.done,
        }
    }

    /// The answer, if all of it has come.
    pub fn finish(mut self, sink: &mut Sink<'_>) -> Result<Answer, Failure> {
        let rest = self.events.rest();
        self.shape.end(&rest, sink)
    }

    /// The answer that came at once.
    pub fn whole(mut self, body: &[u8], sink: &mut Sink<'_>) -> Result<Answer, Failure> {
        match &mut self.shape {
            Shaped::Chat(chat) => chat.whole(body, sink)?,
            Shaped::Messages(messages) => messages.whole(body, sink)?,
        }
        self.finish(sink)
    }
}

impl Shaped {
    fn event(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        // Some servers leave out the blank lines: then several objects arrive as one event.
        if memchr::memchr(b'\n', data).is_some() && serde_json::from_slice::<serde::de::IgnoredAny>(data).is_err() {
            return data.split(|byte| *byte == b'\n').try_for_each(|line| self.one(line, sink));
        }
        self.one(data, sink)
    }

    fn one(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        match self {
            Shaped::Chat(chat) => chat.event(data, sink),
            Shaped::Messages(messages) => messages.event(data, sink),
        }
    }

    fn end(mut self, rest: &[u8], sink: &mut Sink<'_>) -> Result<Answer, Failure> {
        // The blank line after the last event may be missing. What is whole JSON, or says that it is the end, is not cut.
        let last = rest.split(|byte| *byte == b'\n').next_back().unwrap_or_default().trim_ascii();
        if last == b"[DONE]" || serde_json::from_slice::<Map<String, Value>>(last).is_ok() {
            self.event(rest, sink)?;
        }
        match self {
            Shaped::Chat(chat) => chat.end(sink),
            Shaped::Messages(messages) => messages.end(sink),
        }
    }
}

/// Whether an event only says that the server is still there.
fn is_ping(data: &[u8]) -> bool {
    data.trim_ascii().is_empty() || (data.len() < 64 && memchr::memmem::find(data, br#""ping""#).is_some())
}

/// An object that tells of a failure without calling it an error: a message, with what else such an object has.
fn is_failure(event: &Value) -> bool {
    let says = |name: &str| event.get(name).is_some_and(|value| value.is_string() || value.is_number());
    (says("message") && (says("code") || says("type") || says("object") || says("status"))) || says("detail")
}

/// Hands on a piece, if there is anything in it.
fn tell(delta: Delta<'_>, sink: &mut Sink<'_>) {
    if !matches!(delta, Delta::Text("") | Delta::Reasoning("")) {
        sink(delta);
    }
}

/// Words in JSON: their bytes, since a server may cut a character in two.
struct Words<'a> {
    bytes: Cow<'a, [u8]>,
    /// The reasoning among them, where they come as a list of parts.
    reasoning: String,
}

impl<'a> Words<'a> {
    fn new(bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        Words { bytes: bytes.into(), reasoning: String::new() }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Words<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl<'de> Visitor<'de> for Bytes {
            type Value = Words<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or a list of parts")
            }

            fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
                Ok(Words::new(bytes))
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
                Ok(Words::new(bytes.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
                let (mut text, mut reasoning) = (String::new(), String::new());
                while let Some(part) = parts.next_element::<Value>()? {
                    if !part.is_object() && !part.is_string() {
                        return Err(A::Error::custom("a part of a message is an object"));
                    }
                    said(&part, &mut text);
                    part.get("thinking").into_iter().for_each(|thinking| said(thinking, &mut reasoning));
                }
                Ok(Words { bytes: text.into_bytes().into(), reasoning })
            }
        }

        deserializer.deserialize_bytes(Bytes)
    }
}

/// The text of a part, or of a list of them.
fn said(part: &Value, text: &mut String) {
    match part {
        Value::String(words) => text.push_str(words),
        Value::Array(parts) => parts.iter().for_each(|part| said(part, text)),
        _ => part.get("text").into_iter().for_each(|part| said(part, text)),
    }
}

/// The failure that a provider reports in an error object, wherever it stands. `else_kind` is for one that says nothing
/// by which it could be told.
pub(crate) fn reported(error: &Value, status: Option<u16>, else_kind: ErrorKind) -> Failure {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let member = |name: &str| error.get(name).and_then(text);
    let said = ["message", "detail", "error"].iter().find_map(|name| member(name));
    let message = said.or_else(|| text(error)).unwrap_or_else(|| error.to_string());
    let mut names: Vec<_> = [member("type"), member("code")].into_iter().flatten().collect();
    let told = names.iter().find_map(|name| name.parse().ok());
    let known = classify(status.or(told), &names, &message).unwrap_or(else_kind);
    names.extend(status.filter(|status| told != Some(*status)).map(|status| status.to_string()));
    let message = if names.is_empty() { message } else { format!("{message} ({})", names.join(", ")) };
    let failure = Failure::new(known, message);
    if failure.kind == ErrorKind::Refused && is_too_long(&failure.message) {
        return failure.with_hint("the session is longer than the model reads: compress it, or ask another model");
    }
    failure
}

/// The kind of a failure, by its status and the names that providers have for it.
fn classify(status: Option<u16>, names: &[String], message: &str) -> Option<ErrorKind> {
    let named = |wanted: &[&str]| names.iter().any(|name| wanted.contains(&&**name));
    let message = message.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
    let no_such = ["not found", "not exist", "unknown model", "no such model", "invalid model", "not a valid model"];
    if named(&["insufficient_quota", "billing_error", "authentication_error", "permission_error", "invalid_api_key"]) {
        return Some(ErrorKind::Key);
    }
    if named(&["overloaded_error", "rate_limit_error", "rate_limit_exceeded", "api_error", "server_error"]) {
        return Some(ErrorKind::Busy);
    }
    match status {
        Some(401..=403) => return Some(ErrorKind::Key),
        Some(408 | 409 | 425 | 429 | 500 | 502..=599) => return Some(ErrorKind::Busy),
        _ => {}
    }
    let not_found = says(&no_such) || named(&["not_found_error"]);
    if named(&["model_not_found", "model_not_supported"]) || (message.contains("model") && not_found) {
        return Some(ErrorKind::Model);
    }
    let refused = named(&["invalid_request_error", "not_supported_error"]) || matches!(status, Some(400..=499 | 501));
    refused.then_some(ErrorKind::Refused)
}

fn is_too_long(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["context length", "maximum context", "context_length", "context size", "too long", "context window"]
        .iter()
        .any(|words| message.contains(words))
}
