//! Assembling answers of Anthropic's Messages.

use std::borrow::Cow;
use std::collections::HashMap;

use rath_record::chunk::{Call, Finish, Json};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::frame::EventFrame;
use super::text::TextBuffer;
use super::{JsonText, emit, is_error_object, reported_error};
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
    usage: Map<String, Value>,
    facts: AnswerFacts,
    begun: bool,
    pub(super) done: bool,
}

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
        input: Value,
        json: TextBuffer,
    },
    /// A block that only the provider reads, with the part of its input that arrived in pieces.
    Opaque {
        block: Value,
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
struct MessageObject {
    id: Option<String>,
    model: Option<String>,
    #[serde(default)]
    content: Vec<Value>,
    stop_reason: Option<String>,
    usage: Option<Value>,
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
                    self.read_message(serde_json::from_str(message.get()).map_err(invalid_answer)?, sink);
                }
            }
            "content_block_start" => {
                let block = event.content_block.map(RawValue::get).unwrap_or("null");
                self.open_block(event.index, serde_json::from_str(block).map_err(invalid_answer)?, sink);
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
                    self.merge_usage(serde_json::from_str(usage.get()).unwrap_or_default());
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
            let body: Value = serde_json::from_slice(body).unwrap_or_default();
            if is_error_object(&body) {
                return Err(reported_error(&body, None, ProviderErrorKind::Refused));
            }
            return Err(ProviderError::unreadable("wanted an answer of the Messages API: its type is not `message`"));
        }
        self.read_message(serde_json::from_slice(body).map_err(invalid_answer)?, sink);
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
        let raw = Value::Object(self.usage);
        let usage = parse_messages_usage(&raw);
        if raw.as_object().is_some_and(|raw| !raw.is_empty()) {
            self.facts.set_text("service_tier", raw.get("service_tier").and_then(Value::as_str));
            self.facts.set("usage", &raw);
        }
        sink(Delta::Finish(finish));
        usage.into_iter().for_each(|usage| sink(Delta::Usage(usage)));
        let mut answer = Answer { finish, usage, facts: self.facts, ..Answer::default() };
        let mut layout = Vec::with_capacity(self.blocks.len());
        for block in self.blocks {
            layout.extend(block.finish(&mut answer));
        }
        if layout.iter().any(|block| !matches!(block["type"].as_str(), Some("text" | "tool_use"))) {
            answer.sidecar = Json::parse(&json!({ "content": layout }).to_string()).ok();
        }
        Ok(answer)
    }

    fn read_message(&mut self, message: MessageObject, sink: &mut DeltaSink<'_>) {
        self.begun = true;
        self.facts.set_text("id", message.id.as_deref());
        self.facts.set_text("model", message.model.as_deref());
        self.finish = message.stop_reason.or(self.finish.take());
        self.merge_usage(message.usage.unwrap_or_default());
        for (index, block) in message.content.into_iter().enumerate() {
            self.open_block(Some(index), block, sink);
        }
    }

    /// Replaces earlier counts by later ones, except by those that are missing or 0.
    fn merge_usage(&mut self, usage: Value) {
        let Value::Object(usage) = usage else { return };
        for (name, count) in usage {
            let is_zero = count == 0 && self.usage.contains_key(&name);
            if !count.is_null() && !is_zero {
                self.usage.insert(name, count);
            }
        }
    }

    fn open_block(&mut self, index: Option<usize>, block: Value, sink: &mut DeltaSink<'_>) {
        let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        let buffer = |name: &str| {
            let mut buffer = TextBuffer::default();
            buffer.push(text(name).as_bytes());
            buffer
        };
        let partial = match text("type") {
            "text" => {
                let text = buffer("text");
                emit(Delta::Text(text.as_str()), sink);
                PartialBlock::Text(text)
            }
            "thinking" => {
                let text = buffer("thinking");
                emit(Delta::Reasoning(text.as_str()), sink);
                PartialBlock::Thinking { text, signature: buffer("signature") }
            }
            "tool_use" => {
                let (nth, id, tool) = (self.call_count, text("id").to_owned(), text("name").to_owned());
                self.call_count += 1;
                let input = block.get("input").cloned().unwrap_or_default();
                let arguments = if is_empty(&input) { String::new() } else { input.to_string() };
                sink(Delta::Call { nth, id: &id, tool: &tool, arguments: &arguments });
                PartialBlock::Call { nth, id, tool, input, json: TextBuffer::default() }
            }
            _ => PartialBlock::Opaque { block, json: TextBuffer::default() },
        };
        self.push_block(index, partial);
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
                _ => PartialBlock::Opaque { block: Value::Null, json: TextBuffer::default() },
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
    /// Adds the block to the answer. Returns its entry in the recorded order of blocks.
    fn finish(self, answer: &mut Answer) -> Option<Value> {
        match self {
            PartialBlock::Text(text) => {
                let text = text.finish();
                answer.text.push_str(&text);
                (!text.is_empty()).then(|| json!({ "type": "text", "bytes": text.len() }))
            }
            PartialBlock::Thinking { text, signature } => {
                let (text, signature) = (text.finish(), signature.finish());
                answer.reasoning.push_str(&text);
                // The provider does not accept reasoning without its signature.
                (!signature.is_empty()).then(|| json!({ "type": "thinking", "thinking": text, "signature": signature }))
            }
            PartialBlock::Call { id, tool, input, json, .. } => {
                let streamed = json.finish();
                let arguments = if !streamed.trim().is_empty() {
                    streamed
                } else if is_empty(&input) {
                    "{}".to_owned()
                } else {
                    input.to_string()
                };
                let id = if id.is_empty() { format!("call_{}", answer.calls.len()) } else { id };
                answer.calls.push(Call::new(id, tool, arguments));
                Some(json!({ "type": "tool_use" }))
            }
            PartialBlock::Opaque { mut block, json } => {
                if let Ok(input) = serde_json::from_str::<Value>(json.as_str())
                    && let Some(block) = block.as_object_mut()
                {
                    block.insert("input".to_owned(), input);
                }
                block.get("type").is_some_and(Value::is_string).then_some(block)
            }
        }
    }
}

/// Returns true if an event is of a kind that this version has to be able to parse. Unknown kinds are ignored.
fn is_known_event(data: &[u8]) -> bool {
    let Ok(event) = serde_json::from_str::<Value>(&String::from_utf8_lossy(data)) else { return true };
    let kind = |value: &Value| value.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    match &*kind(&event) {
        "content_block_delta" => {
            let piece = event.get("delta").map(kind).unwrap_or_default();
            matches!(&*piece, "text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta")
        }
        "message_start" | "content_block_start" | "message_delta" | "error" => true,
        _ => event.get("error").is_some(),
    }
}

fn is_empty(input: &Value) -> bool {
    input.is_null() || input.as_object().is_some_and(Map::is_empty)
}

fn stream_error(error: Option<&RawValue>) -> ProviderError {
    let error = error.and_then(|error| serde_json::from_str(error.get()).ok()).unwrap_or(Value::Null);
    reported_error(&error, None, ProviderErrorKind::Busy)
}

fn invalid_answer(error: serde_json::Error) -> ProviderError {
    ProviderError::unreadable(format_args!("wanted an answer of the Messages API: {error}"))
}
