//! Assembling answers of OpenAI's Chat Completions.

use std::borrow::Cow;

use rath_record::chunk::{Call, Finish, Json};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::frame::EventFrame;
use super::json::{JsonScan, ShortList, json_members, string};
use super::text::TextBuffer;
use super::{
    JsonText, OptionalText, REASONING_MEMBERS, check_call_count, check_call_name, emit, is_error_object, reported_error,
};
use crate::provider::answer::{Answer, AnswerFacts, Delta, DeltaSink};
use crate::provider::error::{ProviderError, ProviderErrorKind};
use crate::provider::usage::parse_chat_usage;

/// An incomplete answer.
#[derive(Default)]
pub(super) struct ChatAnswer {
    text: TextBuffer,
    reasoning: TextBuffer,
    /// The member that holds the reasoning: servers disagree on it, and expect it back under the same name.
    reasoning_member: Option<&'static str>,
    /// The JSON of the details, with commas between them.
    reasoning_details: String,
    /// Google's signature of the message.
    signature: Option<Box<RawValue>>,
    /// The calls. They are few, so a call is found by going through them, the newest first.
    calls: Vec<PartialCall>,
    /// The position of the first call that began with the newest event in which any call began.
    group_start: usize,
    finish: Option<String>,
    has_refusal: bool,
    usage: Option<Box<RawValue>>,
    facts: AnswerFacts,
    /// The frame of events with text only.
    frame: EventFrame,
    /// True once id and model are known, which every event repeats.
    has_metadata: bool,
    /// True once a choice has arrived.
    has_choice: bool,
    /// True if the answer is one object and not a stream.
    is_whole: bool,
    /// True once the end of the answer has arrived.
    pub(super) done: bool,
}

/// The position of a piece of a call among those in the same event.
#[derive(Clone, Copy)]
struct PiecePosition {
    nth: usize,
    of: usize,
}

/// The form of a message.
#[derive(Clone, Copy, PartialEq)]
enum MessageForm {
    Delta,
    Whole,
}

#[derive(Default)]
struct PartialCall {
    /// The index that the newest piece gave.
    index: Option<u64>,
    id: String,
    tool: String,
    arguments: TextBuffer,
    /// The end of the arguments so far.
    scan: JsonScan,
    /// State that only the provider reads, such as Google's signature.
    extra_content: Option<Box<RawValue>>,
}

/// An event of a stream, or a whole answer, with the arguments of calls in the form `A`.
#[derive(Deserialize)]
struct ChatEvent<'a, A> {
    #[serde(borrow)]
    choices: Option<ShortList<ChatChoice<'a, A>>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    // The metadata, which every event of an answer repeats and which is read once.
    #[serde(borrow, default)]
    id: OptionalText<'a>,
    #[serde(borrow, default)]
    model: OptionalText<'a>,
    #[serde(borrow, default)]
    service_tier: OptionalText<'a>,
    #[serde(borrow, default)]
    system_fingerprint: OptionalText<'a>,
}

#[derive(Deserialize)]
struct ChatChoice<'a, A> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<ChatDelta<'a, A>>,
    /// The whole message, if the answer is not a stream. In a box, so that the events of a stream stay small.
    #[serde(borrow)]
    message: Option<Box<ChatDelta<'a, A>>>,
    #[serde(borrow)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct ChatDelta<'a, A> {
    #[serde(borrow)]
    content: Option<JsonText<'a>>,
    #[serde(borrow)]
    refusal: Option<JsonText<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<JsonText<'a>>,
    #[serde(borrow)]
    reasoning: Option<JsonText<'a>>,
    #[serde(borrow)]
    reasoning_text: Option<JsonText<'a>>,
    #[serde(borrow)]
    thinking: Option<JsonText<'a>>,
    #[serde(borrow)]
    reasoning_details: Option<ShortList<&'a RawValue>>,
    #[serde(borrow)]
    tool_calls: Option<ShortList<ChatCallDelta<'a, A>>>,
    #[serde(borrow)]
    extra_content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ChatCallDelta<'a, A> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    function: Option<ChatFunctionDelta<'a, A>>,
    #[serde(borrow)]
    extra_content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ChatFunctionDelta<'a, A> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    arguments: Option<A>,
}

/// Arguments of a call as bytes.
trait ArgumentBytes<'a> {
    fn into_bytes(self) -> Cow<'a, [u8]>;
}

/// The usual form: a string, which may end within a character.
impl<'a> ArgumentBytes<'a> for JsonText<'a> {
    fn into_bytes(self) -> Cow<'a, [u8]> {
        self.bytes
    }
}

/// The form of some servers: the arguments themselves. A string is read as such.
impl<'a> ArgumentBytes<'a> for &'a RawValue {
    fn into_bytes(self) -> Cow<'a, [u8]> {
        string(self).map_or(self.get().as_bytes().into(), |text| text.into_bytes().into())
    }
}

impl ChatAnswer {
    pub(super) fn read_event(&mut self, data: &[u8], sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        if data.trim_ascii() == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        if let Some(text) = self.frame.text(data).filter(|_| !self.done) {
            emit(Delta::Text(self.text.push(text)), sink);
            return Ok(());
        }
        // Keep-alives, and anything after the end, are ignored.
        if data.iter().all(u8::is_ascii_whitespace) || self.done {
            return Ok(());
        }
        self.parse_event(data, sink)
    }

    /// Reads an answer that is one object, whose end is the end of the answer.
    pub(super) fn read_whole(&mut self, body: &[u8], sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        self.is_whole = true;
        self.parse_event(body, sink)?;
        if !self.has_choice {
            return Err(ProviderError::unreadable("the answer has no choices"));
        }
        self.done = true;
        Ok(())
    }

    pub(super) fn finish(mut self, sink: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        // The usage is the last event before the end, so together with a reason to stop it is an end too.
        let has_usage = self.finish.is_some() && self.usage.is_some();
        if !self.done && !has_usage {
            return Err(ProviderError::truncated());
        }
        let raw = self.finish.as_deref();
        if raw == Some("error") {
            return Err(ProviderError::new(ProviderErrorKind::Busy, "the provider ended the answer with an error"));
        }
        if raw.is_none() && self.text.is_empty() && self.calls.is_empty() && self.reasoning.is_empty() {
            return Err(ProviderError::truncated());
        }
        let finish = match raw {
            Some("length" | "max_tokens" | "model_length") => Finish::Length,
            Some("content_filter") => Finish::Filtered,
            _ if self.has_refusal => Finish::Filtered,
            _ if !self.calls.is_empty() => Finish::Calls,
            _ => Finish::Stop,
        };
        self.facts.set_text("finish", self.finish.as_deref());
        let mut usage = None;
        if let Some(raw) = self.usage.take() {
            usage = parse_chat_usage(raw.get());
            self.facts.set_raw("usage", raw);
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

    fn parse_event(&mut self, data: &[u8], sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        let parsed = serde_json::from_slice::<ChatEvent<'_, JsonText<'_>>>(data);
        if let Ok(event) = &parsed {
            self.read_metadata(event);
        }
        match parsed {
            Ok(event) if event.choices.is_none() && event.usage.is_none() && event.error.is_none() => {
                match std::str::from_utf8(data) {
                    Ok(event) if is_error_object(event) => Err(reported_error(event, None, self.default_error_kind())),
                    _ => Ok(()),
                }
            }
            Ok(event) => {
                if let Some(text) = sole_text(&event).filter(|_| self.has_metadata) {
                    self.frame.learn(data, text);
                }
                self.apply(event, sink)
            }
            Err(_) => {
                let text = String::from_utf8_lossy(data);
                let event: ChatEvent<'_, &RawValue> = serde_json::from_str(&text).map_err(invalid_answer)?;
                self.read_metadata(&event);
                self.apply(event, sink)
            }
        }
    }

    /// Reads the metadata, unless id and model are known already. A member that is not a string is left out.
    fn read_metadata<A>(&mut self, event: &ChatEvent<'_, A>) {
        if self.has_metadata {
            return;
        }
        self.facts.set_text("id", event.id.0.as_deref());
        self.facts.set_text("model", event.model.0.as_deref());
        self.facts.set_text("service_tier", event.service_tier.0.as_deref());
        self.facts.set_text("system_fingerprint", event.system_fingerprint.0.as_deref());
        self.has_metadata = self.facts.get("id").is_some() && self.facts.get("model").is_some();
    }

    fn apply<'a, A: ArgumentBytes<'a>>(
        &mut self,
        event: ChatEvent<'a, A>,
        sink: &mut DeltaSink<'_>,
    ) -> Result<(), ProviderError> {
        if let Some(error) = event.error.filter(|error| !matches!(error.get(), "\"\"" | "false" | "{}")) {
            return Err(reported_error(error.get(), None, self.default_error_kind()));
        }
        if let Some(usage) = event.usage.filter(|usage| usage.get().starts_with('{')) {
            self.usage = Some(usage.to_owned());
        }
        let choices = event.choices.unwrap_or_default().0.into_iter();
        for choice in choices.filter(|choice| choice.index.unwrap_or_default() == 0) {
            // Some servers repeat the whole message at the end of a stream.
            let has_content = !self.text.is_empty() || !self.calls.is_empty();
            self.has_choice = true;
            if let Some(delta) = choice.delta {
                self.read_delta(delta, MessageForm::Delta, sink)?;
            } else if let Some(message) = choice.message.filter(|_| !has_content) {
                self.read_delta(*message, MessageForm::Whole, sink)?;
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                self.finish = Some(reason.into_owned());
            }
        }
        Ok(())
    }

    /// Returns the kind of an error that does not name one: in the middle of a stream, the server failed.
    fn default_error_kind(&self) -> ProviderErrorKind {
        if self.is_whole { ProviderErrorKind::Refused } else { ProviderErrorKind::Busy }
    }

    fn read_delta<'a, A: ArgumentBytes<'a>>(
        &mut self,
        delta: ChatDelta<'a, A>,
        form: MessageForm,
        sink: &mut DeltaSink<'_>,
    ) -> Result<(), ProviderError> {
        // The same reasoning may stand in two members: it is read once.
        let members = [delta.reasoning_content, delta.reasoning, delta.reasoning_text, delta.thinking];
        let reasoning = REASONING_MEMBERS
            .into_iter()
            .zip(members)
            .find_map(|(name, text)| text.filter(|text| !text.bytes.is_empty()).map(|text| (name, text)));
        let details = delta.reasoning_details.unwrap_or_default().0;
        match &reasoning {
            Some((name, text)) => {
                self.reasoning_member = Some(name);
                emit(Delta::Reasoning(self.reasoning.push(&text.bytes)), sink);
            }
            None => {
                for detail in &details {
                    let [text, summary] = json_members(detail.get(), ["text", "summary"]);
                    let text = text.or(summary).and_then(string).unwrap_or_default();
                    emit(Delta::Reasoning(self.reasoning.push(text.as_bytes())), sink);
                }
            }
        }
        for detail in details {
            if !self.reasoning_details.is_empty() {
                self.reasoning_details.push(',');
            }
            self.reasoning_details.push_str(detail.get());
        }
        if let Some(content) = delta.content {
            if let Some(reasoning) = content.reasoning {
                emit(Delta::Reasoning(self.reasoning.push(reasoning.as_bytes())), sink);
            }
            emit(Delta::Text(self.text.push(&content.bytes)), sink);
        }
        if let Some(refusal) = delta.refusal.filter(|refusal| !refusal.bytes.is_empty()) {
            self.has_refusal = true;
            emit(Delta::Text(self.text.push(&refusal.bytes)), sink);
        }
        let signature = delta.extra_content.and_then(google_signature);
        self.signature = signature.map(ToOwned::to_owned).or(self.signature.take());
        let calls_before = self.calls.len();
        let pieces = delta.tool_calls.unwrap_or_default().0;
        let of = pieces.len();
        for (nth, piece) in pieces.into_iter().enumerate() {
            let position = Some(PiecePosition { nth, of }).filter(|_| form == MessageForm::Delta);
            self.read_call(piece, position, sink)?;
            check_call_count(self.calls.len())?;
        }
        if self.calls.len() > calls_before {
            self.group_start = calls_before;
        }
        Ok(())
    }

    /// Reads a piece of a call; `position` is `None` for a whole call.
    fn read_call<'a, A: ArgumentBytes<'a>>(
        &mut self,
        piece: ChatCallDelta<'a, A>,
        position: Option<PiecePosition>,
        sink: &mut DeltaSink<'_>,
    ) -> Result<(), ProviderError> {
        let id = piece.id.as_deref().unwrap_or_default();
        let function = piece.function.unwrap_or(ChatFunctionDelta { name: None, arguments: None });
        let name = function.name.as_deref().unwrap_or_default();
        let arguments = function.arguments.map(A::into_bytes).unwrap_or_default();
        let continued = position.and_then(|position| self.find_call(piece.index, position, id, name, &arguments));
        let nth = continued.unwrap_or_else(|| {
            self.calls.push(PartialCall::default());
            self.calls.len() - 1
        });
        let call = &mut self.calls[nth];
        call.index = piece.index.or(call.index);
        if call.id.is_empty() {
            call.id = id.to_owned();
        }
        if call.tool != name && call.arguments.is_empty() {
            call.tool.push_str(name);
        }
        check_call_name(&call.id, &call.tool)?;
        let extra_content = piece.extra_content.filter(|extra| extra.get().starts_with('{'));
        call.extra_content = extra_content.map(ToOwned::to_owned).or(call.extra_content.take());
        let arguments = call.arguments.push(&arguments);
        call.scan.push(arguments);
        sink(Delta::Call { nth, id: &call.id, tool: &call.tool, arguments });
        Ok(())
    }

    /// Returns the call that a piece continues, or `None` if the piece begins a new one.
    ///
    /// Servers give calls an index, an id, both or neither, and a known id is the most reliable. A piece that continues a
    /// call by index or id still begins a new one if it names a tool and that call has another name, or another id, or is
    /// complete.
    fn find_call(
        &self,
        index: Option<u64>,
        position: PiecePosition,
        id: &str,
        name: &str,
        arguments: &[u8],
    ) -> Option<usize> {
        let last = self.calls.len().checked_sub(1);
        let by_id = self.calls.iter().rposition(|call| !id.is_empty() && call.id == id);
        let by_index = self.calls.iter().rposition(|call| index.is_some() && call.index == index);
        let (nth, is_certain) = match (by_id, index) {
            // Calls may share an id; then the index distinguishes them.
            (Some(_), Some(_)) if by_index.is_none() && !name.is_empty() => return None,
            (Some(_), Some(_)) if by_index.is_some_and(|nth| self.calls[nth].id == id) => (by_index?, true),
            (Some(nth), _) => (nth, true),
            (None, Some(_)) => (by_index?, true),
            // Calls that began in one event continue in the same order.
            (None, None) if name.is_empty() && id.is_empty() && position.of > 1 => {
                ((self.group_start + position.nth).min(last?), false)
            }
            (None, None) => (last?, false),
        };
        if name.is_empty() {
            return Some(nth);
        }
        let call = &self.calls[nth];
        let has_arguments = !call.arguments.as_str().is_empty();
        let has_other_id = !id.is_empty() && !call.id.is_empty() && call.id != id;
        // A name may arrive in pieces, though never two in one event.
        let continues_name = is_certain && position.nth == 0 && !has_arguments;
        let has_other_name = call.tool != name && !call.tool.is_empty() && !continues_name;
        let begins_call = has_other_name
            || has_other_id
            || (!is_certain && (position.nth > 0 || (!has_arguments && arguments.is_empty())))
            || (!arguments.trim_ascii().is_empty() && call.scan.is_closed_object());
        (!begins_call).then_some(nth)
    }

    fn sidecar(&self) -> Option<Json> {
        let mut members = Vec::new();
        if !self.reasoning_details.is_empty() {
            members.push(format!(r#""reasoning_details":[{}]"#, self.reasoning_details));
        } else if let Some(name) = self.reasoning_member {
            members.push(format!(r#""reasoning":"{name}""#));
        }
        members.extend(self.signature.as_ref().map(|signature| format!(r#""signature":{signature}"#)));
        if self.calls.iter().any(|call| call.extra_content.is_some()) {
            let extras = self.calls.iter().map(|call| call.extra_content.as_ref().map_or("null", |extra| extra.get()));
            members.push(format!(r#""calls":[{}]"#, extras.collect::<Vec<_>>().join(",")));
        }
        Json::parse(&format!("{{{}}}", members.join(","))).ok().filter(|_| !members.is_empty())
    }
}

/// Returns the signature in Google's extra content. Its other members say what the piece is, and not what is sent back.
fn google_signature(extra_content: &RawValue) -> Option<&RawValue> {
    let google = json_members(extra_content.get(), ["google"])[0]?;
    json_members(google.get(), ["thought_signature"])[0].filter(|signature| signature.get().starts_with('"'))
}

/// Returns the text of an event that holds nothing else, if the text stands in the event without escapes.
fn sole_text<'a, A>(event: &ChatEvent<'a, A>) -> Option<&'a [u8]> {
    let ChatEvent { choices: Some(ShortList(choices)), usage: None, error: None, .. } = event else { return None };
    let [ChatChoice { index: None | Some(0), delta: Some(delta), message: None, finish_reason: None }] = &choices[..]
    else {
        return None;
    };
    let ChatDelta {
        content: Some(JsonText { bytes: Cow::Borrowed(text), .. }),
        refusal: None,
        reasoning_content: None,
        reasoning: None,
        reasoning_text: None,
        thinking: None,
        reasoning_details: None,
        tool_calls: None,
        extra_content: None,
    } = delta
    else {
        return None;
    };
    Some(text)
}

fn invalid_answer(error: serde_json::Error) -> ProviderError {
    ProviderError::unreadable(format_args!("wanted an answer of the Chat Completions API: {error}"))
}
