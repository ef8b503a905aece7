//! Answers in the shape of Anthropic's Messages.

use std::borrow::Cow;
use std::collections::HashMap;

use rath_record::chunk::{Call, Finish, Json};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::frame::Frame;
use super::gather::Gather;
use super::{Words, is_failure, reported, tell};
use crate::error::ErrorKind;
use crate::provider::answer::{Answer, Delta, Facts, Failure, Sink};
use crate::provider::usage;

/// An answer under way.
#[derive(Default)]
pub(super) struct Messages {
    /// In the order in which they began.
    blocks: Vec<Block>,
    /// Where the block with each index stands.
    by_index: HashMap<usize, usize>,
    /// What stands around the words in most events, and the block that they belong to.
    frame: Frame,
    framed: usize,
    calls: usize,
    finish: Option<String>,
    usage: Map<String, Value>,
    facts: Facts,
    begun: bool,
    pub(super) done: bool,
}

/// One block of the answer's content.
enum Block {
    Text(Gather),
    Thinking {
        text: Gather,
        signature: Gather,
    },
    Call {
        nth: usize,
        id: String,
        tool: String,
        input: Value,
        json: Gather,
    },
    /// What only the provider reads, with what of its input came in pieces.
    Opaque {
        block: Value,
        json: Gather,
    },
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    index: Option<usize>,
    #[serde(borrow)]
    delta: Option<Piece<'a>>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// More of a block; what else an event has to say of the whole.
#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    text: Option<Words<'a>>,
    #[serde(borrow)]
    thinking: Option<Words<'a>>,
    #[serde(borrow)]
    signature: Option<Words<'a>>,
    #[serde(borrow)]
    partial_json: Option<Words<'a>>,
    #[serde(borrow)]
    stop_reason: Option<Cow<'a, str>>,
}

/// A whole answer, or what is known of it when it begins.
#[derive(Deserialize)]
struct Whole {
    id: Option<String>,
    model: Option<String>,
    #[serde(default)]
    content: Vec<Value>,
    stop_reason: Option<String>,
    usage: Option<Value>,
}

impl Messages {
    pub(super) fn event(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        if data.iter().all(u8::is_ascii_whitespace) || self.done {
            return Ok(());
        }
        if let Some(words) = self.frame.words(data)
            && let Some(Block::Text(text)) = self.blocks.get_mut(self.framed)
        {
            tell(Delta::Text(text.push(words)), sink);
            return Ok(());
        }
        let event: Event<'_> = match serde_json::from_slice(data) {
            Ok(event) => event,
            Err(error) => return if should_be_read(data) { Err(unlike(error)) } else { Ok(()) },
        };
        match event.kind.as_deref().unwrap_or_default() {
            "message_start" => {
                if let Some(message) = event.message {
                    self.about(serde_json::from_str(message.get()).map_err(unlike)?, sink);
                }
            }
            "content_block_start" => {
                let block = event.content_block.map(RawValue::get).unwrap_or("null");
                self.open(event.index, serde_json::from_str(block).map_err(unlike)?, sink);
            }
            "content_block_delta" => {
                if let Some(piece) = event.delta {
                    self.piece(event.index, piece, data, sink);
                }
            }
            "message_delta" => {
                let reason = event.delta.and_then(|delta| delta.stop_reason);
                self.finish = reason.map(Cow::into_owned).or(self.finish.take());
                if let Some(usage) = event.usage {
                    self.count(serde_json::from_str(usage.get()).unwrap_or_default());
                }
            }
            "message_stop" => self.done = self.begun,
            "error" => return Err(failure(event.error)),
            "" if event.error.is_some() => return Err(failure(event.error)),
            // `ping`, the end of a block, and kinds that are yet to come.
            _ => {}
        }
        Ok(())
    }

    /// The answer in one object, which is its own end.
    pub(super) fn whole(&mut self, body: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        #[derive(Deserialize)]
        struct Kind<'a> {
            #[serde(borrow, rename = "type")]
            kind: Option<Cow<'a, str>>,
            #[serde(borrow)]
            error: Option<&'a RawValue>,
        }
        let kind: Kind<'_> = serde_json::from_slice(body).map_err(unlike)?;
        if kind.error.is_some() {
            return Err(failure(kind.error));
        }
        if kind.kind.as_deref() != Some("message") {
            let body: Value = serde_json::from_slice(body).unwrap_or_default();
            if is_failure(&body) {
                return Err(reported(&body, None, ErrorKind::Refused));
            }
            return Err(Failure::unreadable("wanted an answer of the Messages API: its type is not `message`"));
        }
        self.about(serde_json::from_slice(body).map_err(unlike)?, sink);
        self.done = true;
        Ok(())
    }

    pub(super) fn end(mut self, sink: &mut Sink<'_>) -> Result<Answer, Failure> {
        if !self.done {
            return Err(Failure::cut());
        }
        let finish = match self.finish.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => Finish::Length,
            Some("refusal") => Finish::Filtered,
            _ if self.calls > 0 => Finish::Calls,
            _ => Finish::Stop,
        };
        self.facts.set_some("finish", self.finish.as_deref());
        let raw = Value::Object(self.usage);
        let usage = usage::messages(&raw);
        if raw.as_object().is_some_and(|raw| !raw.is_empty()) {
            self.facts.set_some("service_tier", raw.get("service_tier").and_then(Value::as_str));
            self.facts.set("usage", &raw);
        }
        sink(Delta::Finish(finish));
        usage.into_iter().for_each(|usage| sink(Delta::Usage(usage)));
        let mut answer = Answer { finish, usage, facts: self.facts, ..Answer::default() };
        let mut layout = Vec::with_capacity(self.blocks.len());
        for block in self.blocks {
            layout.extend(block.settle(&mut answer));
        }
        if layout.iter().any(|block| !matches!(block["type"].as_str(), Some("text" | "tool_use"))) {
            answer.sidecar = Json::parse(&json!({ "content": layout }).to_string()).ok();
        }
        Ok(answer)
    }

    fn about(&mut self, message: Whole, sink: &mut Sink<'_>) {
        self.begun = true;
        self.facts.set_some("id", message.id.as_deref());
        self.facts.set_some("model", message.model.as_deref());
        self.finish = message.stop_reason.or(self.finish.take());
        self.count(message.usage.unwrap_or_default());
        for (index, block) in message.content.into_iter().enumerate() {
            self.open(Some(index), block, sink);
        }
    }

    /// Later counts stand for earlier ones, but for what they do not name, or name as nothing.
    fn count(&mut self, usage: Value) {
        let Value::Object(usage) = usage else { return };
        for (name, count) in usage {
            let nothing = count == 0 && self.usage.contains_key(&name);
            if !count.is_null() && !nothing {
                self.usage.insert(name, count);
            }
        }
    }

    fn open(&mut self, index: Option<usize>, block: Value, sink: &mut Sink<'_>) {
        let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        let gathered = |name: &str| {
            let mut gather = Gather::default();
            gather.push(text(name).as_bytes());
            gather
        };
        let opened = match text("type") {
            "text" => {
                let gather = gathered("text");
                tell(Delta::Text(gather.as_str()), sink);
                Block::Text(gather)
            }
            "thinking" => {
                let gather = gathered("thinking");
                tell(Delta::Reasoning(gather.as_str()), sink);
                Block::Thinking { text: gather, signature: gathered("signature") }
            }
            "tool_use" => {
                let (nth, id, tool) = (self.calls, text("id").to_owned(), text("name").to_owned());
                self.calls += 1;
                let input = block.get("input").cloned().unwrap_or_default();
                let arguments = if is_empty(&input) { String::new() } else { input.to_string() };
                sink(Delta::Call { nth, id: &id, tool: &tool, arguments: &arguments });
                Block::Call { nth, id, tool, input, json: Gather::default() }
            }
            _ => Block::Opaque { block, json: Gather::default() },
        };
        self.add(index, opened);
    }

    fn add(&mut self, index: Option<usize>, block: Block) {
        self.frame = Frame::default();
        self.by_index.extend(index.map(|index| (index, self.blocks.len())));
        self.blocks.push(block);
    }

    fn piece(&mut self, index: Option<usize>, piece: Piece<'_>, data: &[u8], sink: &mut Sink<'_>) {
        let known = match index {
            Some(index) => self.by_index.get(&index).copied(),
            None => self.blocks.len().checked_sub(1),
        };
        // A block whose beginning was not said begins with its first piece.
        let nth = known.unwrap_or_else(|| {
            let block = match piece.kind.as_deref() {
                Some("thinking_delta" | "signature_delta") => {
                    Block::Thinking { text: Gather::default(), signature: Gather::default() }
                }
                Some("text_delta") => Block::Text(Gather::default()),
                _ => Block::Opaque { block: Value::Null, json: Gather::default() },
            };
            self.add(index, block);
            self.blocks.len() - 1
        });
        if let (Some(Words { bytes: Cow::Borrowed(words), .. }), Some("text_delta")) =
            (&piece.text, piece.kind.as_deref())
            && self.frame.learn(data, words)
        {
            self.framed = nth;
        }
        let block = &mut self.blocks[nth];
        let bytes = |words: Option<Words<'_>>| words.map(|words| words.bytes.into_owned()).unwrap_or_default();
        match block {
            Block::Text(text) => {
                if let Some(words) = piece.text {
                    tell(Delta::Text(text.push(&words.bytes)), sink);
                }
            }
            Block::Thinking { text, signature } => {
                if let Some(words) = piece.thinking {
                    tell(Delta::Reasoning(text.push(&words.bytes)), sink);
                }
                signature.push(&bytes(piece.signature));
            }
            Block::Call { nth, id, tool, json, .. } => {
                let arguments = json.push(&bytes(piece.partial_json));
                if !arguments.is_empty() {
                    sink(Delta::Call { nth: *nth, id, tool, arguments });
                }
            }
            Block::Opaque { json, .. } => {
                json.push(&bytes(piece.partial_json));
            }
        }
    }
}

impl Block {
    /// Adds the block to the answer, and gives back how it is named in the order of blocks.
    fn settle(self, answer: &mut Answer) -> Option<Value> {
        match self {
            Block::Text(text) => {
                let text = text.finish();
                answer.text.push_str(&text);
                (!text.is_empty()).then(|| json!({ "type": "text", "bytes": text.len() }))
            }
            Block::Thinking { text, signature } => {
                let (text, signature) = (text.finish(), signature.finish());
                answer.reasoning.push_str(&text);
                // Without its signature it is not taken back.
                (!signature.is_empty()).then(|| json!({ "type": "thinking", "thinking": text, "signature": signature }))
            }
            Block::Call { id, tool, input, json, .. } => {
                let written = json.finish();
                let arguments = if !written.trim().is_empty() {
                    written
                } else if is_empty(&input) {
                    "{}".to_owned()
                } else {
                    input.to_string()
                };
                let id = if id.is_empty() { format!("call_{}", answer.calls.len()) } else { id };
                answer.calls.push(Call::new(id, tool, arguments));
                Some(json!({ "type": "tool_use" }))
            }
            Block::Opaque { mut block, json } => {
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

/// Whether an event that cannot be read is of a kind that should be. Kinds that are yet to come say nothing.
fn should_be_read(data: &[u8]) -> bool {
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

fn failure(error: Option<&RawValue>) -> Failure {
    let error = error.and_then(|error| serde_json::from_str(error.get()).ok()).unwrap_or(Value::Null);
    reported(&error, None, ErrorKind::Busy)
}

fn unlike(error: serde_json::Error) -> Failure {
    Failure::unreadable(format_args!("wanted an answer of the Messages API: {error}"))
}
