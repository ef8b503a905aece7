//! Assembling answers of OpenAI's Responses.

use std::borrow::Cow;
use std::collections::HashMap;

use rath_record::chunk::{Call, Finish, Json};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;

use super::json::{ShortList, json_members, string};
use super::text::TextBuffer;
use super::{JsonText, check_call_count, check_call_name, emit, is_error_object, reported_error};
use crate::provider::answer::{Answer, AnswerFacts, Delta, DeltaSink};
use crate::provider::error::{ProviderError, ProviderErrorKind};
use crate::provider::usage::parse_responses_usage;

/// An incomplete answer.
#[derive(Default)]
pub(super) struct ResponsesAnswer {
    /// The items in the order in which they began.
    items: Vec<PartialItem>,
    /// The position in `items` of the item with each index.
    by_index: HashMap<u64, usize>,
    call_count: usize,
    /// The position of the last message that has text.
    last_message: Option<usize>,
    status: Option<String>,
    /// The reason why the answer is incomplete.
    reason: Option<String>,
    usage: Option<Box<RawValue>>,
    facts: AnswerFacts,
    pub(super) done: bool,
}

/// The most items of an answer, and parts of a message. They are larger in memory than in JSON, and no server means so many.
const MAX_ITEMS: usize = 10_000;

/// The text between two messages of an answer.
const MESSAGE_GAP: &str = "\n\n";

/// An incomplete item of the answer.
struct PartialItem {
    content: PartialContent,
    /// True once the item has arrived as a whole.
    is_whole: bool,
}

enum PartialContent {
    Message {
        parts: Vec<PartialPart>,
        phase: Option<Box<RawValue>>,
        /// True if the text of another message comes before.
        has_gap: bool,
    },
    Reasoning {
        text: TextBuffer,
        /// The kind and the number of the part that the text ended with.
        part: Option<(&'static str, u64)>,
        /// The item as it is sent back: none without its encrypted content.
        sealed: Option<String>,
    },
    Call {
        nth: usize,
        id: String,
        tool: String,
        arguments: TextBuffer,
    },
    /// An item that only the provider reads, as JSON.
    Opaque(String),
}

/// An incomplete part of a message.
struct PartialPart {
    index: u64,
    text: TextBuffer,
    is_refusal: bool,
    annotations: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ResponsesEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    output_index: Option<u64>,
    content_index: Option<u64>,
    summary_index: Option<u64>,
    #[serde(borrow)]
    delta: Option<JsonText<'a>>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

/// A whole answer, or the part of it that is known so far.
#[derive(Deserialize)]
struct ResponseObject<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow)]
    service_tier: Option<Cow<'a, str>>,
    #[serde(borrow)]
    status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    output: Option<ShortList<&'a RawValue>>,
    #[serde(borrow)]
    incomplete_details: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl ResponsesAnswer {
    pub(super) fn read_event(&mut self, data: &[u8], sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        if data.iter().all(u8::is_ascii_whitespace) || data.trim_ascii() == b"[DONE]" || self.done {
            return Ok(());
        }
        let event: ResponsesEvent<'_> = match serde_json::from_slice(data) {
            Ok(event) => event,
            Err(error) => return if is_known_event(data) { Err(invalid_answer(error)) } else { Ok(()) },
        };
        let delta = event.delta.map(|delta| delta.bytes).unwrap_or_default();
        match event.kind.as_deref().unwrap_or_default() {
            "response.created" | "response.in_progress" | "response.queued" => {
                self.read_response(event.response, sink)?;
            }
            "response.output_item.added" => {
                if let Some(item) = event.item {
                    self.open_item(event.output_index, item.get(), sink)?;
                }
            }
            "response.output_item.done" => {
                if let Some(item) = event.item {
                    self.close_item(event.output_index, item.get(), sink)?;
                }
            }
            "response.output_text.delta" => {
                self.add_text(event.output_index, event.content_index, &delta, false, sink)?;
            }
            "response.refusal.delta" => {
                self.add_text(event.output_index, event.content_index, &delta, true, sink)?;
            }
            "response.reasoning_summary_text.delta" => {
                let part = ("summary", event.summary_index.unwrap_or_default());
                self.add_reasoning(event.output_index, part, &delta, sink)?;
            }
            "response.reasoning_text.delta" => {
                let part = ("content", event.content_index.unwrap_or_default());
                self.add_reasoning(event.output_index, part, &delta, sink)?;
            }
            "response.function_call_arguments.delta" => {
                let at = self.item_at(event.output_index, |answer| answer.new_call(String::new(), String::new()))?;
                if let PartialContent::Call { nth, id, tool, arguments } = &mut self.items[at].content {
                    let piece = arguments.push(&delta);
                    if !piece.is_empty() {
                        sink(Delta::Call { nth: *nth, id, tool, arguments: piece });
                    }
                }
            }
            kind @ ("response.completed" | "response.incomplete" | "response.failed" | "response.cancelled") => {
                // The event says it too, and the object in it may not.
                self.status = kind.strip_prefix("response.").map(str::to_owned);
                self.read_response(event.response, sink)?;
                self.done = true;
            }
            "error" => {
                let inner =
                    event.error.filter(|error| error.get().starts_with('{')).map(|error| error.get().to_owned());
                let whole = || json!({"message": event.message, "code": event.code}).to_string();
                return Err(reported_error(&inner.unwrap_or_else(whole), None, ProviderErrorKind::Busy));
            }
            "" if event.error.is_some_and(|error| error.get() != "null") => {
                return Err(stream_error(event.error));
            }
            "" => match std::str::from_utf8(data) {
                Ok(event) if is_error_object(event) => {
                    return Err(reported_error(event, None, ProviderErrorKind::Busy));
                }
                _ => {}
            },
            // Keep-alives, the ends of parts, and kinds that this version does not know.
            _ => {}
        }
        Ok(())
    }

    /// Reads an answer that is one object, whose end is the end of the answer.
    pub(super) fn read_whole(&mut self, body: &[u8], sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        let text = std::str::from_utf8(body).map_err(|_| ProviderError::unreadable("the answer is not UTF-8"))?;
        let _: &RawValue = serde_json::from_str(text).map_err(invalid_answer)?;
        let [error, output] = json_members(text, ["error", "output"]);
        if let Some(error) = error.filter(|error| error.get() != "null") {
            return Err(reported_error(error.get(), None, ProviderErrorKind::Refused));
        }
        if output.is_none() {
            if is_error_object(text) {
                return Err(reported_error(text, None, ProviderErrorKind::Refused));
            }
            return Err(ProviderError::unreadable("wanted an answer of the Responses API: it has no `output`"));
        }
        self.read_object(text, sink)?;
        self.done = true;
        Ok(())
    }

    pub(super) fn finish(mut self, sink: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        if !self.done || matches!(self.status.as_deref(), Some("in_progress" | "queued")) {
            return Err(ProviderError::truncated());
        }
        if matches!(self.status.as_deref(), Some("cancelled" | "failed")) {
            return Err(ProviderError::new(ProviderErrorKind::Busy, "the provider ended the answer before its end"));
        }
        let has_refusal = self.items.iter().any(PartialItem::has_refusal);
        let finish = match (self.status.as_deref(), self.reason.as_deref()) {
            (_, Some("content_filter")) => Finish::Filtered,
            (Some("incomplete"), _) => Finish::Length,
            _ if has_refusal => Finish::Filtered,
            _ if self.call_count > 0 => Finish::Calls,
            _ => Finish::Stop,
        };
        self.facts.set_text("finish", self.reason.as_deref().or(self.status.as_deref()));
        let mut usage = None;
        if let Some(raw) = self.usage.take() {
            usage = parse_responses_usage(raw.get());
            self.facts.set_raw("usage", raw);
        }
        sink(Delta::Finish(finish));
        usage.into_iter().for_each(|usage| sink(Delta::Usage(usage)));
        let mut answer = Answer { finish, usage, facts: self.facts, ..Answer::default() };
        let (mut layout, mut has_state) = (Vec::new(), false);
        for item in self.items {
            has_state |= item.finish(&mut answer, &mut layout);
        }
        if has_state {
            answer.sidecar = Json::parse(&format!(r#"{{"items":[{}]}}"#, layout.join(","))).ok();
        }
        Ok(answer)
    }

    /// Reads what an event says about the answer as a whole.
    fn read_response(&mut self, response: Option<&RawValue>, sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        response.map_or(Ok(()), |response| self.read_object(response.get(), sink))
    }

    fn read_object(&mut self, json: &str, sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        let response: ResponseObject<'_> = serde_json::from_str(json).map_err(invalid_answer)?;
        if response.error.is_some_and(|error| error.get() != "null") || response.status.as_deref() == Some("failed") {
            return Err(stream_error(response.error));
        }
        self.facts.set_text("id", response.id.as_deref());
        self.facts.set_text("model", response.model.as_deref());
        self.facts.set_text("service_tier", response.service_tier.as_deref());
        self.status = response.status.map(Cow::into_owned).or(self.status.take());
        let reason = response.incomplete_details.and_then(|it| json_members(it.get(), ["reason"])[0]).and_then(string);
        self.reason = reason.or(self.reason.take());
        if let Some(usage) = response.usage.filter(|usage| usage.get().starts_with('{')) {
            self.usage = Some(usage.to_owned());
        }
        let items = response.output.unwrap_or_default().0.into_iter().enumerate();
        for (index, item) in items {
            // Nearly always it came before, in pieces.
            let is_known = self.by_index.get(&(index as u64)).is_some_and(|at| self.items[*at].is_whole);
            if !is_known {
                self.close_item(Some(index as u64), item.get(), sink)?;
            }
        }
        Ok(())
    }

    /// Begins an item, which is JSON. Returns its position.
    fn open_item(&mut self, index: Option<u64>, item: &str, sink: &mut DeltaSink<'_>) -> Result<usize, ProviderError> {
        let [kind, id, name] = json_members(item, ["type", "call_id", "name"]);
        let content = match &*kind.and_then(string).unwrap_or_default() {
            "message" => PartialContent::new_message(),
            "reasoning" => PartialContent::new_reasoning(),
            "function_call" => {
                let [id, tool] = [id, name].map(|text| text.and_then(string).unwrap_or_default());
                let content = self.new_call(id, tool)?;
                if let PartialContent::Call { nth, id, tool, .. } = &content {
                    sink(Delta::Call { nth: *nth, id, tool, arguments: "" });
                }
                content
            }
            _ => PartialContent::Opaque(item.to_owned()),
        };
        self.push_item(index, content)
    }

    /// Reads an item that has arrived as a whole. What came in pieces before is kept as it came.
    fn close_item(&mut self, index: Option<u64>, item: &str, sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        let known = match index {
            Some(index) => self.by_index.get(&index).copied(),
            None => self.items.len().checked_sub(1).filter(|at| !self.items[*at].is_whole),
        };
        let at = match known {
            Some(at) => at,
            None => self.open_item(index, item, sink)?,
        };
        if self.items[at].is_whole {
            return Ok(());
        }
        self.items[at].is_whole = true;
        match &mut self.items[at].content {
            PartialContent::Message { phase, .. } => {
                let [parts, whole_phase] = json_members(item, ["content", "phase"]);
                *phase = whole_phase.filter(|phase| phase.get().starts_with('"')).map(ToOwned::to_owned);
                let parts = parts.and_then(|parts| serde_json::from_str::<ShortList<&RawValue>>(parts.get()).ok());
                self.close_message(at, parts.unwrap_or_default().0, sink)
            }
            PartialContent::Reasoning { text, sealed, .. } => {
                *sealed = sealed_reasoning(item);
                if text.is_empty() {
                    let [summary, content] = json_members(item, ["summary", "content"]);
                    for (kind, list) in [("summary", summary), ("content", content)] {
                        let parts = list.and_then(|list| serde_json::from_str::<ShortList<&RawValue>>(list.get()).ok());
                        for (nth, part) in parts.unwrap_or_default().0.into_iter().enumerate() {
                            let piece = json_members(part.get(), ["text"])[0].and_then(string).unwrap_or_default();
                            self.add_reasoning_at(at, (kind, nth as u64), piece.as_bytes(), sink);
                        }
                    }
                }
                Ok(())
            }
            PartialContent::Call { nth, id, tool, arguments } => {
                let [whole_id, name, text] = json_members(item, ["call_id", "name", "arguments"]);
                let [whole_id, name] = [whole_id, name].map(|text| text.and_then(string).unwrap_or_default());
                check_call_name(&whole_id, &name)?;
                *id = if id.is_empty() { whole_id } else { std::mem::take(id) };
                *tool = if tool.is_empty() { name } else { std::mem::take(tool) };
                if arguments.is_empty() {
                    // Some servers send the arguments themselves instead of their text.
                    let text = text.map(|text| string(text).unwrap_or_else(|| text.get().to_owned()));
                    let piece = arguments.push(text.unwrap_or_default().as_bytes());
                    if !piece.is_empty() {
                        sink(Delta::Call { nth: *nth, id, tool, arguments: piece });
                    }
                }
                Ok(())
            }
            PartialContent::Opaque(json) => {
                *json = item.to_owned();
                Ok(())
            }
        }
    }

    /// Adds the parts of a whole message whose text did not come in pieces, and the annotations of all.
    fn close_message(
        &mut self,
        at: usize,
        parts: Vec<&RawValue>,
        sink: &mut DeltaSink<'_>,
    ) -> Result<(), ProviderError> {
        for (nth, part) in parts.into_iter().enumerate() {
            let [kind, text, refusal, annotations] =
                json_members(part.get(), ["type", "text", "refusal", "annotations"]);
            let is_refusal = kind.and_then(string).as_deref() == Some("refusal");
            let text = if is_refusal { refusal } else { text };
            let text = text.and_then(|text| serde_json::from_str::<JsonText<'_>>(text.get()).ok());
            let text = text.map(|text| text.bytes.into_owned()).unwrap_or_default();
            let part = self.part_at(at, nth as u64, is_refusal)?;
            let has_text = !part.text.is_empty();
            part.annotations = annotations.filter(|list| is_filled_list(list)).map(ToOwned::to_owned);
            if !has_text {
                self.add_text_at(at, nth as u64, &text, is_refusal, sink)?;
            }
        }
        Ok(())
    }

    fn add_text(
        &mut self,
        index: Option<u64>,
        part: Option<u64>,
        bytes: &[u8],
        is_refusal: bool,
        sink: &mut DeltaSink<'_>,
    ) -> Result<(), ProviderError> {
        let at = self.item_at(index, |_| Ok(PartialContent::new_message()))?;
        self.add_text_at(at, part.unwrap_or_default(), bytes, is_refusal, sink)
    }

    fn add_text_at(
        &mut self,
        at: usize,
        part: u64,
        bytes: &[u8],
        is_refusal: bool,
        sink: &mut DeltaSink<'_>,
    ) -> Result<(), ProviderError> {
        let PartialContent::Message { has_gap, .. } = &mut self.items[at].content else { return Ok(()) };
        if bytes.is_empty() {
            return Ok(());
        }
        if self.last_message != Some(at) {
            if self.last_message.is_some() && !*has_gap {
                *has_gap = true;
                emit(Delta::Text(MESSAGE_GAP), sink);
            }
            self.last_message = Some(at);
        }
        let text = &mut self.part_at(at, part, is_refusal)?.text;
        emit(Delta::Text(text.push(bytes)), sink);
        Ok(())
    }

    /// Returns a part of a message, which it begins if there is none.
    fn part_at(&mut self, at: usize, index: u64, is_refusal: bool) -> Result<&mut PartialPart, ProviderError> {
        let PartialContent::Message { parts, .. } = &mut self.items[at].content else {
            return Err(ProviderError::unreadable("an item of the answer has the parts of a message and is none"));
        };
        let known = parts.iter().rposition(|part| part.index == index);
        if known.is_none() {
            check_item_count(parts.len())?;
            parts.push(PartialPart { index, text: TextBuffer::default(), is_refusal, annotations: None });
        }
        let nth = known.unwrap_or(parts.len() - 1);
        Ok(&mut parts[nth])
    }

    fn add_reasoning(
        &mut self,
        index: Option<u64>,
        part: (&'static str, u64),
        bytes: &[u8],
        sink: &mut DeltaSink<'_>,
    ) -> Result<(), ProviderError> {
        let at = self.item_at(index, |_| Ok(PartialContent::new_reasoning()))?;
        self.add_reasoning_at(at, part, bytes, sink);
        Ok(())
    }

    fn add_reasoning_at(&mut self, at: usize, part: (&'static str, u64), bytes: &[u8], sink: &mut DeltaSink<'_>) {
        if let PartialContent::Reasoning { text, part: last, .. } = &mut self.items[at].content {
            if last.is_some_and(|last| last != part) {
                emit(Delta::Reasoning(text.push(MESSAGE_GAP.as_bytes())), sink);
            }
            *last = Some(part);
            emit(Delta::Reasoning(text.push(bytes)), sink);
        }
    }

    /// Returns the position of the item that a piece belongs to. One without a beginning is begun.
    fn item_at(
        &mut self,
        index: Option<u64>,
        begin: impl FnOnce(&mut Self) -> Result<PartialContent, ProviderError>,
    ) -> Result<usize, ProviderError> {
        let known = match index {
            Some(index) => self.by_index.get(&index).copied(),
            None => self.items.len().checked_sub(1),
        };
        match known {
            Some(at) => Ok(at),
            None => {
                let content = begin(self)?;
                self.push_item(index, content)
            }
        }
    }

    fn new_call(&mut self, id: String, tool: String) -> Result<PartialContent, ProviderError> {
        let nth = self.call_count;
        self.call_count += 1;
        check_call_count(self.call_count)?;
        check_call_name(&id, &tool)?;
        Ok(PartialContent::Call { nth, id, tool, arguments: TextBuffer::default() })
    }

    fn push_item(&mut self, index: Option<u64>, content: PartialContent) -> Result<usize, ProviderError> {
        check_item_count(self.items.len())?;
        let at = self.items.len();
        self.by_index.extend(index.map(|index| (index, at)));
        self.items.push(PartialItem { content, is_whole: false });
        Ok(at)
    }
}

impl PartialContent {
    fn new_message() -> Self {
        PartialContent::Message { parts: Vec::new(), phase: None, has_gap: false }
    }

    fn new_reasoning() -> Self {
        PartialContent::Reasoning { text: TextBuffer::default(), part: None, sealed: None }
    }
}

impl PartialItem {
    fn has_refusal(&self) -> bool {
        let PartialContent::Message { parts, .. } = &self.content else { return false };
        parts.iter().any(|part| part.is_refusal && !part.text.is_empty())
    }

    /// Adds the item to the answer, and its entry to the recorded order of items. Returns true if the entry holds state that is
    /// nowhere else in the answer.
    fn finish(self, answer: &mut Answer, layout: &mut Vec<String>) -> bool {
        let (entry, has_state) = match self.content {
            PartialContent::Message { mut parts, phase, has_gap } => {
                parts.sort_by_key(|part| part.index);
                let gap = if has_gap { MESSAGE_GAP } else { "" };
                answer.text.push_str(gap);
                let mut has_state = phase.is_some();
                let entries = parts.into_iter().map(|part| {
                    let text = part.text.finish();
                    answer.text.push_str(&text);
                    has_state |= part.is_refusal || part.annotations.is_some();
                    let mut entry = json!({ "bytes": text.len() }).to_string();
                    entry.pop();
                    entry.push_str(if part.is_refusal { r#","refusal":true"# } else { "" });
                    if let Some(annotations) = part.annotations {
                        entry.push_str(r#","annotations":"#);
                        entry.push_str(annotations.get());
                    }
                    entry + "}"
                });
                let parts = entries.collect::<Vec<_>>().join(",");
                let phase = phase.map(|phase| format!(r#","phase":{phase}"#)).unwrap_or_default();
                let gap = if has_gap { format!(r#","gap":{}"#, gap.len()) } else { String::new() };
                (Some(format!(r#"{{"type":"message"{phase}{gap},"parts":[{parts}]}}"#)), has_state || has_gap)
            }
            PartialContent::Reasoning { text, sealed, .. } => {
                let text = text.finish();
                let gap = if answer.reasoning.is_empty() || text.is_empty() { "" } else { MESSAGE_GAP };
                answer.reasoning.push_str(gap);
                answer.reasoning.push_str(&text);
                let has_state = sealed.is_some();
                (sealed, has_state)
            }
            PartialContent::Call { id, tool, arguments, .. } => {
                let arguments = arguments.finish();
                let arguments = if arguments.trim().is_empty() { "{}".to_owned() } else { arguments };
                let id = if id.is_empty() { format!("call_{}", answer.calls.len()) } else { id };
                answer.calls.push(Call::new(id, tool, arguments));
                (Some(r#"{"type":"function_call"}"#.to_owned()), false)
            }
            PartialContent::Opaque(json) => {
                let has_kind = json_members(&json, ["type"])[0].and_then(string).is_some();
                (Some(json).filter(|_| has_kind), has_kind)
            }
        };
        layout.extend(entry);
        has_state
    }
}

/// Returns the members of an item of reasoning that are sent back; none if its encrypted content is missing, without which a server
/// that keeps no state cannot read it.
fn sealed_reasoning(item: &str) -> Option<String> {
    let [id, summary, content, encrypted] = json_members(item, ["id", "summary", "content", "encrypted_content"]);
    let encrypted = encrypted.filter(|text| text.get().starts_with('"') && text.get() != r#""""#)?;
    let mut sealed = r#"{"type":"reasoning""#.to_owned();
    if let Some(id) = id.filter(|id| id.get().starts_with('"')) {
        sealed.push_str(&format!(r#","id":{id}"#));
    }
    let summary = summary.filter(|list| list.get().starts_with('[')).map_or("[]", RawValue::get);
    sealed.push_str(&format!(r#","summary":{summary}"#));
    if let Some(content) = content.filter(|list| is_filled_list(list)) {
        sealed.push_str(&format!(r#","content":{content}"#));
    }
    Some(sealed + &format!(r#","encrypted_content":{encrypted}}}"#))
}

fn is_filled_list(json: &RawValue) -> bool {
    json.get().strip_prefix('[').is_some_and(|rest| !rest.trim_start().starts_with(']'))
}

/// Fails if there is no room for another item, or another part of a message.
fn check_item_count(count: usize) -> Result<(), ProviderError> {
    if count < MAX_ITEMS {
        return Ok(());
    }
    Err(ProviderError::unreadable(format_args!("the answer has more than {MAX_ITEMS} items")))
}

/// Returns true if an event is of a kind that this version has to be able to parse. Unknown kinds are ignored.
fn is_known_event(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    if serde_json::from_str::<IgnoredAny>(&text).is_err() {
        return true;
    }
    let [kind, error] = json_members(&text, ["type", "error"]);
    match &*kind.and_then(string).unwrap_or_default() {
        "response.created"
        | "response.in_progress"
        | "response.queued"
        | "response.output_item.added"
        | "response.output_item.done"
        | "response.output_text.delta"
        | "response.refusal.delta"
        | "response.reasoning_summary_text.delta"
        | "response.reasoning_text.delta"
        | "response.function_call_arguments.delta"
        | "response.completed"
        | "response.incomplete"
        | "response.failed"
        | "response.cancelled"
        | "error" => true,
        _ => error.is_some(),
    }
}

fn stream_error(error: Option<&RawValue>) -> ProviderError {
    reported_error(error.map_or("null", RawValue::get), None, ProviderErrorKind::Busy)
}

fn invalid_answer(error: serde_json::Error) -> ProviderError {
    ProviderError::unreadable(format_args!("wanted an answer of the Responses API: {error}"))
}
