//! Assembling answers of Anthropic's Messages.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use rath_record::chunk::{Call, Finish, Json};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;

use super::frame::EventFrame;
use super::json::{ShortList, each_member, json_members, string};
use super::text::TextBuffer;
use super::{JsonText, check_call_count, check_call_name, emit, is_error_object, reported_error};
use crate::provider::answer::{Answer, AnswerFacts, Delta, DeltaSink};
use crate::provider::error::{ProviderError, ProviderErrorKind};
use crate::provider::usage::parse_messages_usage;

/// An incomplete answer.
#[derive(Default)]
pub(super) struct MessagesAnswer {
    /// The blocks in the order in which they began.
    blocks: Vec<PartialBlock>,
    /// The position in `blocks` of the block with each index.
    by_index: HashMap<usize, usize>,
    /// The frame of events with text only, and the block that the text belongs to.
    frame: EventFrame,
    frame_block: usize,
    call_count: usize,
    finish: Option<String>,
    usage: BTreeMap<String, Box<RawValue>>,
    facts: AnswerFacts,
    begun: bool,
    pub(super) done: bool,
}

/// The most members of the usage that are kept.
const MAX_USAGE_MEMBERS: usize = 1_000;

/// An incomplete block of the answer's content.
enum PartialBlock {
    Text(TextBuffer),
    Thinking {
        text: TextBuffer,
        signature: TextBuffer,
    },
    Call {
        nth: usize,
        id: String,
        tool: String,
        /// The JSON of the input that the block began with, unless that is empty.
        input: String,
        json: TextBuffer,
    },
    /// A block that only the provider reads, as JSON, with the part of its input that arrived in pieces.
    Opaque {
        block: String,
        json: TextBuffer,
    },
}

#[derive(Deserialize)]
struct MessagesEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    index: Option<usize>,
    #[serde(borrow)]
    delta: Option<MessagesDelta<'a>>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// More of a block, or a change to the message as a whole.
#[derive(Deserialize)]
struct MessagesDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    text: Option<JsonText<'a>>,
    #[serde(borrow)]
    thinking: Option<JsonText<'a>>,
    #[serde(borrow)]
    signature: Option<JsonText<'a>>,
    #[serde(borrow)]
    partial_json: Option<JsonText<'a>>,
    #[serde(borrow)]
    stop_reason: Option<Cow<'a, str>>,
}

/// A whole answer, or the part of it that is known at its start.
#[derive(Deserialize)]
struct MessageObject<'a> {
    id: Option<String>,
    model: Option<String>,
    #[serde(borrow, default)]
    content: ShortList<&'a RawValue>,
    stop_reason: Option<String>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

impl MessagesAnswer {
    pub(super) fn read_event(&mut self, data: &[u8], sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        if data.iter().all(u8::is_ascii_whitespace) || self.done {
            return Ok(());
        }
        if let Some(piece) = self.frame.text(data)
            && let Some(PartialBlock::Text(text)) = self.blocks.get_mut(self.frame_block)
        {
            emit(Delta::Text(text.push(piece)), sink);
            return Ok(());
        }
        let event: MessagesEvent<'_> = match serde_json::from_slice(data) {
            Ok(event) => event,
            Err(error) => return if is_known_event(data) { Err(invalid_answer(error)) } else { Ok(()) },
        };
        match event.kind.as_deref().unwrap_or_default() {
            "message_start" => {
                if let Some(message) = event.message {
                    self.read_message(serde_json::from_str(message.get()).map_err(invalid_answer)?, sink)?;
                }
            }
            "content_block_start" => {
                let block = event.content_block.map(RawValue::get).unwrap_or("null");
                self.open_block(event.index, block, sink)?;
            }
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    self.read_delta(event.index, delta, data, sink);
                }
            }
            "message_delta" => {
                let reason = event.delta.and_then(|delta| delta.stop_reason);
                self.finish = reason.map(Cow::into_owned).or(self.finish.take());
                if let Some(usage) = event.usage {
                    self.merge_usage(usage)?;
                }
            }
            "message_stop" => self.done = self.begun,
            "error" => return Err(stream_error(event.error)),
            "" if event.error.is_some() => return Err(stream_error(event.error)),
            // `ping`, the end of a block, and kinds that this version does not know.
            _ => {}
        }
        Ok(())
    }

    /// Reads an answer that is one object, whose end is the end of the answer.
    pub(super) fn read_whole(&mut self, body: &[u8], sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        #[derive(Deserialize)]
        struct ObjectKind<'a> {
            #[serde(borrow, rename = "type")]
            kind: Option<Cow<'a, str>>,
            #[serde(borrow)]
            error: Option<&'a RawValue>,
        }
        let object: ObjectKind<'_> = serde_json::from_slice(body).map_err(invalid_answer)?;
        if object.error.is_some() {
            return Err(stream_error(object.error));
        }
        if object.kind.as_deref() != Some("message") {
            let body = std::str::from_utf8(body).unwrap_or_default();
            if is_error_object(body) {
                return Err(reported_error(body, None, ProviderErrorKind::Refused));
            }
            return Err(ProviderError::unreadable("wanted an answer of the Messages API: its type is not `message`"));
        }
        self.read_message(serde_json::from_slice(body).map_err(invalid_answer)?, sink)?;
        self.done = true;
        Ok(())
    }

    pub(super) fn finish(mut self, sink: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        if !self.done {
            return Err(ProviderError::truncated());
        }
        let finish = match self.finish.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => Finish::Length,
            Some("refusal") => Finish::Filtered,
            _ if self.call_count > 0 => Finish::Calls,
            _ => Finish::Stop,
        };
        self.facts.set_text("finish", self.finish.as_deref());
        // A tool of the provider takes long: the answer goes on when it is sent back.
        if self.finish.as_deref() == Some("pause_turn") && self.call_count == 0 {
            self.facts.set("paused", true);
        }
        let service_tier = self.usage.get("service_tier").and_then(|tier| string(tier));
        self.facts.set_text("service_tier", service_tier.as_deref());
        if !self.usage.is_empty() {
            self.facts.set("usage", &self.usage);
        }
        let usage = self.facts.get("usage").and_then(parse_messages_usage);
        sink(Delta::Finish(finish));
        usage.into_iter().for_each(|usage| sink(Delta::Usage(usage)));
        let mut answer = Answer { finish, usage, facts: self.facts, ..Answer::default() };
        let mut layout = String::new();
        let mut has_state = false;
        for block in self.blocks {
            has_state |= block.finish(&mut answer, &mut layout);
        }
        if has_state {
            answer.sidecar = Json::parse(&format!(r#"{{"content":[{layout}]}}"#)).ok();
        }
        Ok(answer)
    }

    fn read_message(&mut self, message: MessageObject<'_>, sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        self.begun = true;
        self.facts.set_text("id", message.id.as_deref());
        self.facts.set_text("model", message.model.as_deref());
        self.finish = message.stop_reason.or(self.finish.take());
        message.usage.map_or(Ok(()), |usage| self.merge_usage(usage))?;
        let mut blocks = message.content.0.into_iter().enumerate();
        blocks.try_for_each(|(index, block)| self.open_block(Some(index), block.get(), sink))
    }

    /// Replaces earlier counts by later ones, except by those that are missing or 0.
    fn merge_usage(&mut self, usage: &RawValue) -> Result<(), ProviderError> {
        // A usage that is not an object counts nothing.
        let _ = each_member(usage.get(), |name, count| {
            let is_zero = count.get() == "0" && self.usage.contains_key(name);
            if count.get() != "null" && !is_zero && self.usage.len() <= MAX_USAGE_MEMBERS {
                self.usage.insert(name.to_owned(), count.to_owned());
            }
        });
        if self.usage.len() > MAX_USAGE_MEMBERS {
            let message = format!("the usage of the answer has more than {MAX_USAGE_MEMBERS} members");
            return Err(ProviderError::unreadable(message));
        }
        Ok(())
    }

    /// Begins a block, which is JSON.
    fn open_block(&mut self, index: Option<usize>, block: &str, sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        let [kind, text, thinking, signature, id, name, input] =
            json_members(block, ["type", "text", "thinking", "signature", "id", "name", "input"]);
        let buffer = |json: Option<&RawValue>| {
            let mut buffer = TextBuffer::default();
            let text = json.and_then(|json| serde_json::from_str::<JsonText<'_>>(json.get()).ok());
            text.into_iter().for_each(|text| _ = buffer.push(&text.bytes));
            buffer
        };
        let partial = match &*kind.and_then(string).unwrap_or_default() {
            "text" => {
                let text = buffer(text);
                emit(Delta::Text(text.as_str()), sink);
                PartialBlock::Text(text)
            }
            "thinking" => {
                let text = buffer(thinking);
                emit(Delta::Reasoning(text.as_str()), sink);
                PartialBlock::Thinking { text, signature: buffer(signature) }
            }
            "tool_use" => {
                let nth = self.call_count;
                self.call_count += 1;
                check_call_count(self.call_count)?;
                let [id, tool] = [id, name].map(|text| text.and_then(string).unwrap_or_default());
                check_call_name(&id, &tool)?;
                let input = input.map(RawValue::get).filter(|input| !is_empty(input)).unwrap_or_default().to_owned();
                sink(Delta::Call { nth, id: &id, tool: &tool, arguments: &input });
                PartialBlock::Call { nth, id, tool, input, json: TextBuffer::default() }
            }
            _ => PartialBlock::Opaque { block: block.to_owned(), json: TextBuffer::default() },
        };
        self.push_block(index, partial);
        Ok(())
    }

    fn push_block(&mut self, index: Option<usize>, block: PartialBlock) {
        self.frame = EventFrame::default();
        self.by_index.extend(index.map(|index| (index, self.blocks.len())));
        self.blocks.push(block);
    }

    fn read_delta(&mut self, index: Option<usize>, delta: MessagesDelta<'_>, data: &[u8], sink: &mut DeltaSink<'_>) {
        let known = match index {
            Some(index) => self.by_index.get(&index).copied(),
            None => self.blocks.len().checked_sub(1),
        };
        // A block without a start event begins with its first piece.
        let nth = known.unwrap_or_else(|| {
            let block = match delta.kind.as_deref() {
                Some("thinking_delta" | "signature_delta") => {
                    PartialBlock::Thinking { text: TextBuffer::default(), signature: TextBuffer::default() }
                }
                Some("text_delta") => PartialBlock::Text(TextBuffer::default()),
                _ => PartialBlock::Opaque { block: String::new(), json: TextBuffer::default() },
            };
            self.push_block(index, block);
            self.blocks.len() - 1
        });
        if let (Some(JsonText { bytes: Cow::Borrowed(text), .. }), Some("text_delta")) =
            (&delta.text, delta.kind.as_deref())
            && self.frame.learn(data, text)
        {
            self.frame_block = nth;
        }
        let block = &mut self.blocks[nth];
        let bytes = |text: Option<JsonText<'_>>| text.map(|text| text.bytes.into_owned()).unwrap_or_default();
        match block {
            PartialBlock::Text(text) => {
                if let Some(piece) = delta.text {
                    emit(Delta::Text(text.push(&piece.bytes)), sink);
                }
            }
            PartialBlock::Thinking { text, signature } => {
                if let Some(piece) = delta.thinking {
                    emit(Delta::Reasoning(text.push(&piece.bytes)), sink);
                }
                signature.push(&bytes(delta.signature));
            }
            PartialBlock::Call { nth, id, tool, json, .. } => {
                let arguments = json.push(&bytes(delta.partial_json));
                if !arguments.is_empty() {
                    sink(Delta::Call { nth: *nth, id, tool, arguments });
                }
            }
            PartialBlock::Opaque { json, .. } => {
                json.push(&bytes(delta.partial_json));
            }
        }
    }
}

impl PartialBlock {
    /// Adds the block to the answer, and its entry to the recorded order of blocks. Returns true if the entry holds state that
    /// is nowhere else in the answer.
    fn finish(self, answer: &mut Answer, layout: &mut String) -> bool {
        let (entry, has_state) = match self {
            PartialBlock::Text(text) => {
                let text = text.finish();
                answer.text.push_str(&text);
                let entry = format!(r#"{{"bytes":{},"type":"text"}}"#, text.len());
                (Some(entry).filter(|_| !text.is_empty()), false)
            }
            PartialBlock::Thinking { text, signature } => {
                let (text, signature) = (text.finish(), signature.finish());
                answer.reasoning.push_str(&text);
                // The provider does not accept reasoning without its signature.
                let has_signature = !signature.is_empty();
                let entry =
                    has_signature.then(|| json!({ "type": "thinking", "thinking": text, "signature": signature }));
                (entry.map(|entry| entry.to_string()), has_signature)
            }
            PartialBlock::Call { id, tool, input, json, .. } => {
                let streamed = json.finish();
                let arguments = [streamed, input].into_iter().find(|text| !text.trim().is_empty());
                let id = if id.is_empty() { format!("call_{}", answer.calls.len()) } else { id };
                answer.calls.push(Call::new(id, tool, arguments.unwrap_or_else(|| "{}".to_owned())));
                (Some(r#"{"type":"tool_use"}"#.to_owned()), false)
            }
            PartialBlock::Opaque { block, json } => {
                let kind = json_members(&block, ["type"])[0].and_then(string);
                (kind.is_some().then(|| with_input(block, json.as_str())), kind.is_some())
            }
        };
        if let Some(entry) = entry {
            layout.push_str(if layout.is_empty() { "" } else { "," });
            layout.push_str(&entry);
        }
        has_state
    }
}

/// Returns a block with the input that arrived in pieces, if that is JSON.
fn with_input(block: String, input: &str) -> String {
    let Ok(input) = serde_json::from_str::<&RawValue>(input) else { return block };
    let mut written = String::from("{");
    // The block was parsed before, so this cannot fail.
    let _ = each_member(&block, |name, value| {
        if name != "input" {
            let _ = write!(written, "{}:{value},", serde_json::Value::from(name));
        }
    });
    let _ = write!(written, r#""input":{input}}}"#);
    written
}

/// Returns true if an event is of a kind that this version has to be able to parse. Unknown kinds are ignored.
fn is_known_event(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    if serde_json::from_str::<IgnoredAny>(&text).is_err() {
        return true;
    }
    let [kind, delta, error] = json_members(&text, ["type", "delta", "error"]);
    match &*kind.and_then(string).unwrap_or_default() {
        "content_block_delta" => {
            let piece =
                delta.and_then(|delta| json_members(delta.get(), ["type"])[0]).and_then(string).unwrap_or_default();
            matches!(&*piece, "text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta")
        }
        "message_start" | "content_block_start" | "message_delta" | "error" => true,
        _ => error.is_some(),
    }
}

/// Returns true if the input of a call, which is JSON, is missing or has no members.
fn is_empty(input: &str) -> bool {
    let mut is_empty = true;
    input == "null" || (each_member(input, |_, _| is_empty = false).is_ok() && is_empty)
}

fn stream_error(error: Option<&RawValue>) -> ProviderError {
    reported_error(error.map_or("null", RawValue::get), None, ProviderErrorKind::Busy)
}

fn invalid_answer(error: serde_json::Error) -> ProviderError {
    ProviderError::unreadable(format_args!("wanted an answer of the Messages API: {error}"))
}
