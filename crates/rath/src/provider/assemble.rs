//! Assembling an answer from its pieces.
//!
//! There is one assembler for each shape. An answer is finished only when its end has arrived.

mod chat;
mod frame;
mod gemini;
mod json;
mod messages;
mod responses;
mod text;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use rath_record::chunk::Call;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use self::json::{string, string_or_number};
use super::answer::{Answer, Delta, DeltaSink};
use super::error::{ProviderError, ProviderErrorKind, RetryAdvice};
use super::settings::Shape;
use super::sse::SseParser;

pub(crate) use self::json::{count_json_values, each_member, json_list, json_members};

/// The members that hold reasoning in Chat Completions; servers use different ones.
pub(super) const REASONING_MEMBERS: [&str; 4] = ["reasoning_content", "reasoning", "reasoning_text", "thinking"];

/// The most calls that one answer may ask for.
const MAX_CALLS_PER_ANSWER: usize = 1_000;
/// The most bytes of the name of a tool, and of the id of a call, which some servers put other things into.
const MAX_TOOL_NAME_BYTES: usize = 1 << 10;
const MAX_CALL_ID_BYTES: usize = 64 << 10;
/// The most JSON values in the arguments of all calls of an answer: parsed, one takes hundreds of bytes.
pub(crate) const MAX_ARGUMENT_VALUES: usize = 200_000;

/// Assembles an answer of any shape from its bytes. Backends with a transport of their own can use it.
///
/// ```
/// use rath::provider::{Assembler, Shape};
///
/// let mut assembler = Assembler::new(Shape::Chat);
/// assembler.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"hel", &mut |_| {})?;
/// assembler.feed(b"lo\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", &mut |_| {})?;
/// assert_eq!(assembler.finish(&mut |_| {})?.text, "hello");
/// # Ok::<(), rath::provider::ProviderError>(())
/// ```
pub struct Assembler {
    parser: SseParser,
    answer: PartialAnswer,
    /// The number of events so far, without keep-alives.
    event_count: u64,
}

/// An incomplete answer.
enum PartialAnswer {
    Chat(Box<chat::ChatAnswer>),
    Messages(Box<messages::MessagesAnswer>),
    Responses(Box<responses::ResponsesAnswer>),
    Gemini(Box<gemini::GeminiAnswer>),
}

impl Assembler {
    /// Creates an assembler for an answer in this shape.
    pub fn new(shape: Shape) -> Self {
        let answer = match shape {
            Shape::Chat => PartialAnswer::Chat(Box::default()),
            Shape::Messages => PartialAnswer::Messages(Box::default()),
            Shape::Responses => PartialAnswer::Responses(Box::default()),
            Shape::Gemini => PartialAnswer::Gemini(Box::default()),
        };
        Assembler { parser: SseParser::default(), answer, event_count: 0 }
    }

    /// Reads more of a stream of events, which may be split anywhere.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        let Assembler { parser, answer, event_count } = self;
        parser.feed(bytes, |data| {
            *event_count += u64::from(!is_ping(data));
            answer.read_event(data, sink)
        })
    }

    /// Returns the number of events so far, without keep-alives.
    pub(super) fn event_count(&self) -> u64 {
        self.event_count
    }

    /// Returns true if the end of the answer has arrived.
    pub fn is_done(&self) -> bool {
        match &self.answer {
            PartialAnswer::Chat(chat) => chat.done,
            PartialAnswer::Messages(messages) => messages.done,
            PartialAnswer::Responses(responses) => responses.done,
            PartialAnswer::Gemini(gemini) => gemini.done,
        }
    }

    /// Returns the answer, or an error if its end has not arrived.
    pub fn finish(mut self, sink: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        let rest = self.parser.finish();
        self.answer.finish(&rest, sink)
    }

    /// Reads an answer that arrived as one JSON object.
    pub fn whole(mut self, body: &[u8], sink: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        match &mut self.answer {
            PartialAnswer::Chat(chat) => chat.read_whole(body, sink)?,
            PartialAnswer::Messages(messages) => messages.read_whole(body, sink)?,
            PartialAnswer::Responses(responses) => responses.read_whole(body, sink)?,
            PartialAnswer::Gemini(gemini) => gemini.read_whole(body, sink)?,
        }
        self.finish(sink)
    }
}

impl PartialAnswer {
    fn read_event(&mut self, data: &[u8], sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        // Some servers leave out the blank lines, so that several objects arrive as one event.
        if memchr::memchr(b'\n', data).is_some() && serde_json::from_slice::<IgnoredAny>(data).is_err() {
            return data.split(|byte| *byte == b'\n').try_for_each(|line| self.read_object(line, sink));
        }
        self.read_object(data, sink)
    }

    fn read_object(&mut self, data: &[u8], sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        match self {
            PartialAnswer::Chat(chat) => chat.read_event(data, sink),
            PartialAnswer::Messages(messages) => messages.read_event(data, sink),
            PartialAnswer::Responses(responses) => responses.read_event(data, sink),
            PartialAnswer::Gemini(gemini) => gemini.read_event(data, sink),
        }
    }

    fn finish(mut self, rest: &[u8], sink: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        // The blank line after the last event may be missing. A complete JSON object, or `[DONE]`, was not cut off.
        let last = rest.split(|byte| *byte == b'\n').next_back().unwrap_or_default().trim_ascii();
        let is_complete = || last.starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(last).is_ok();
        if !last.is_empty() && (last == b"[DONE]" || is_complete()) {
            self.read_event(rest, sink)?;
        }
        match self {
            PartialAnswer::Chat(chat) => chat.finish(sink),
            PartialAnswer::Messages(messages) => messages.finish(sink),
            PartialAnswer::Responses(responses) => responses.finish(sink),
            PartialAnswer::Gemini(gemini) => gemini.finish(sink),
        }
    }
}

/// Fails if an answer asks for too many calls.
fn check_call_count(calls: usize) -> Result<(), ProviderError> {
    if calls <= MAX_CALLS_PER_ANSWER {
        return Ok(());
    }
    Err(ProviderError::unreadable(format_args!("the answer asks for more than {MAX_CALLS_PER_ANSWER} calls")))
}

/// Fails if the calls of an answer are too many, or their arguments too large to be parsed.
pub(crate) fn check_calls(calls: &[Call]) -> Result<(), ProviderError> {
    check_call_count(calls.len())?;
    let arguments = calls.iter().filter_map(|call| call.arguments.as_str());
    if arguments.map(count_json_values).sum::<usize>() <= MAX_ARGUMENT_VALUES {
        return Ok(());
    }
    let message = format!("the arguments of the calls have more than {MAX_ARGUMENT_VALUES} JSON values");
    Err(ProviderError::unreadable(message))
}

/// Fails if the id of a call or the name of its tool is too long.
fn check_call_name(id: &str, tool: &str) -> Result<(), ProviderError> {
    for (what, text, max) in [("id of a call", id, MAX_CALL_ID_BYTES), ("name of a tool", tool, MAX_TOOL_NAME_BYTES)] {
        if text.len() > max {
            return Err(ProviderError::unreadable(format_args!("the {what} has more than {max} bytes")));
        }
    }
    Ok(())
}

/// Returns true for an event that only keeps the connection alive.
fn is_ping(data: &[u8]) -> bool {
    data.trim_ascii().is_empty() || (data.len() < 64 && memchr::memmem::find(data, br#""ping""#).is_some())
}

/// Returns true for an object that reports an error without a member `error`: a message with a code, a type or the like.
fn is_error_object(event: &str) -> bool {
    let found = json_members(event, ["message", "detail", "code", "type", "object", "status"]);
    let [has_message, has_detail, names @ ..] = found.map(|value| value.and_then(string_or_number).is_some());
    (has_message && names.contains(&true)) || has_detail
}

/// Passes a piece to `sink`, unless it is empty.
fn emit(delta: Delta<'_>, sink: &mut DeltaSink<'_>) {
    if !matches!(delta, Delta::Text("") | Delta::Reasoning("")) {
        sink(delta);
    }
}

/// A string in JSON, as bytes: a server may cut a character in two.
struct JsonText<'a> {
    bytes: Cow<'a, [u8]>,
    /// The reasoning, if the text is a list of parts and some of them are reasoning.
    reasoning: Option<Box<str>>,
}

impl<'a> JsonText<'a> {
    fn new(bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        JsonText { bytes: bytes.into(), reasoning: None }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JsonTextVisitor;

        impl<'de> Visitor<'de> for JsonTextVisitor {
            type Value = JsonText<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or a list of parts")
            }

            fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
                Ok(JsonText::new(bytes))
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
                Ok(JsonText::new(bytes.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
                let (mut text, mut reasoning) = (String::new(), String::new());
                while parts.next_element_seed(PartText::of_message(&mut text, &mut reasoning))?.is_some() {}
                let reasoning = Some(reasoning).filter(|text| !text.is_empty()).map(String::into_boxed_str);
                Ok(JsonText { bytes: text.into_bytes().into(), reasoning })
            }
        }

        deserializer.deserialize_bytes(JsonTextVisitor)
    }
}

/// A string in JSON, or nothing if a server sent a value of another type.
#[derive(Default)]
struct OptionalText<'a>(Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for OptionalText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OptionalTextVisitor;

        impl<'de> Visitor<'de> for OptionalTextVisitor {
            type Value = OptionalText<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(OptionalText(Some(text.into())))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(OptionalText(Some(text.to_owned().into())))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(OptionalText::default())
            }

            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(OptionalText::default())
            }

            fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
                Ok(OptionalText::default())
            }

            fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
                Ok(OptionalText::default())
            }

            fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
                Ok(OptionalText::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                IgnoredAny.visit_seq(items)?;
                Ok(OptionalText::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
                IgnoredAny.visit_map(members)?;
                Ok(OptionalText::default())
            }
        }

        deserializer.deserialize_any(OptionalTextVisitor)
    }
}

/// Appends the text of a part of a message, of a list of parts, or of the member `text` of either.
struct PartText<'a> {
    text: &'a mut String,
    /// The reasoning, which only the parts of a message itself have.
    reasoning: Option<&'a mut String>,
}

impl<'a> PartText<'a> {
    fn of_message(text: &'a mut String, reasoning: &'a mut String) -> Self {
        PartText { text, reasoning: Some(reasoning) }
    }
}

impl<'de> DeserializeSeed<'de> for PartText<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PartText<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of a message")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.text.push_str(text);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<(), A::Error> {
        while parts.next_element_seed(PartText { text: self.text, reasoning: None })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            match (&*name, &mut self.reasoning) {
                ("text", _) => members.next_value_seed(PartText { text: self.text, reasoning: None })?,
                ("thinking", Some(reasoning)) => {
                    members.next_value_seed(PartText { text: reasoning, reasoning: None })?;
                }
                _ => _ = members.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

/// Returns the error that a provider reports in an error object, which is JSON. `default_kind` is the kind if neither the
/// status nor the object gives one.
pub(crate) fn reported_error(error: &str, status: Option<u16>, default_kind: ProviderErrorKind) -> ProviderError {
    let found = json_members(error, ["message", "detail", "error", "type", "status", "code"]);
    let [message, detail, inner, kind, state, code] = found.map(|value| value.and_then(string_or_number));
    // Other servers have the number of the status there, or a word for people.
    let state = state.filter(|name| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'));
    let whole = || serde_json::from_str(error).unwrap_or_else(|_| error.trim().to_owned());
    let message = message.or(detail).or(inner).unwrap_or_else(whole);
    let mut names: Vec<_> = [kind, state, code].into_iter().flatten().collect();
    let code = names.iter().find_map(|name| name.parse().ok());
    let kind = classify(status.or(code), &names, &message).unwrap_or(default_kind);
    names.extend(status.filter(|status| code != Some(*status)).map(|status| status.to_string()));
    let message = if names.is_empty() { message } else { format!("{message} ({})", names.join(", ")) };
    let too_long = kind == ProviderErrorKind::Refused && is_too_long(&message);
    let wait = Some(()).filter(|()| kind == ProviderErrorKind::Busy).and_then(|()| stated_wait(error));
    let error = ProviderError::new(kind, message);
    if too_long {
        return error.with_hint("the session is longer than the model reads: compress it, or ask another model");
    }
    match wait {
        Some(wait) => error.with_retry(RetryAdvice::Later(Some(wait))),
        None => error,
    }
}

/// Returns the time after which a server wants to be asked again, if its error object names one, such as `"retryDelay":"34.5s"`.
pub(crate) fn stated_wait(error: &str) -> Option<Duration> {
    let details = json_list(json_members(error, ["details"])[0]?)?;
    let delays =
        details.into_iter().filter_map(|detail| json_members(detail.get(), ["retryDelay"])[0].and_then(string));
    let seconds = delays.filter_map(|delay| delay.strip_suffix('s')?.parse::<f64>().ok());
    seconds.filter_map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok()).max()
}

/// Returns the kind of an error by its status, its names and its message.
fn classify(status: Option<u16>, names: &[String], message: &str) -> Option<ProviderErrorKind> {
    let is_named = |wanted: &[&str]| names.iter().any(|name| wanted.contains(&&**name));
    let message = message.to_ascii_lowercase();
    let contains = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
    let no_such = ["not found", "not exist", "unknown model", "no such model", "invalid model", "not a valid model"];
    const KEY_NAMES: [&str; 7] = [
        "insufficient_quota",
        "billing_error",
        "authentication_error",
        "permission_error",
        "invalid_api_key",
        "UNAUTHENTICATED",
        "PERMISSION_DENIED",
    ];
    // Google has no name of its own for them.
    if is_named(&KEY_NAMES) || contains(&["api key not valid", "api key expired"]) {
        return Some(ProviderErrorKind::Key);
    }
    const BUSY_NAMES: [&str; 10] = [
        "overloaded_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "api_error",
        "server_error",
        "ABORTED",
        "DEADLINE_EXCEEDED",
        "INTERNAL",
        "RESOURCE_EXHAUSTED",
        "UNAVAILABLE",
    ];
    if is_named(&BUSY_NAMES) {
        return Some(ProviderErrorKind::Busy);
    }
    match status {
        Some(401..=403) => return Some(ProviderErrorKind::Key),
        Some(408 | 409 | 425 | 429 | 500 | 502..=599) => return Some(ProviderErrorKind::Busy),
        _ => {}
    }
    let not_found = contains(&no_such) || is_named(&["not_found_error"]);
    if is_named(&["model_not_found", "model_not_supported"]) || (message.contains("model") && not_found) {
        return Some(ProviderErrorKind::Model);
    }
    let refused =
        is_named(&["invalid_request_error", "not_supported_error"]) || matches!(status, Some(400..=499 | 501));
    refused.then_some(ProviderErrorKind::Refused)
}

fn is_too_long(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let phrases = [
        "context length",
        "maximum context",
        "context_length",
        "context size",
        "too long",
        "context window",
        "maximum number of tokens",
    ];
    phrases.iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_that_an_error_names_is_the_longest_of_its_details() {
        for (error, seconds) in [
            (r#"{"details":[{"@type":"x"},{"retryDelay":"34.5s"},{"retryDelay":"2s"}]}"#, Some(34.5)),
            (r#"{"details":[{"retryDelay":"-1s"}]}"#, Some(0.0)),
            (r#"{"details":[{"retryDelay":"1e300s"},{"retryDelay":"soon"},{"retryDelay":7},4]}"#, None),
            (r#"{"details":{}}"#, None),
            ("{}", None),
        ] {
            let found = stated_wait(error);
            assert_eq!(found.map(|wait| wait.as_secs_f64()), seconds, "{error}");
            let busy = r#"{"code":429,"status":"RESOURCE_EXHAUSTED","message":"later","#;
            let stated =
                reported_error(&error.replacen('{', busy, 1).replace(",}", "}"), None, ProviderErrorKind::Refused);
            assert_eq!(
                (stated.kind(), stated.retry()),
                (ProviderErrorKind::Busy, RetryAdvice::Later(found)),
                "{error}"
            );
        }
    }
}
