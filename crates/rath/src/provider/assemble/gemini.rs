//! Assembling answers of Gemini's generateContent.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rath_record::chunk::{Call, Finish, Json};
use serde::de::MapAccess;
use serde_json::json;
use serde_json::value::RawValue;

use super::json::{FromMembers, ObjectMembers, OtherMembers, ShortList, json_members, read_other, string};
use super::text::TextBuffer;
use super::{JsonText, OptionalText, check_call_count, check_call_name, emit, is_error_object, reported_error};
use crate::provider::answer::{Answer, AnswerFacts, Delta, DeltaSink};
use crate::provider::error::{ProviderError, ProviderErrorKind};
use crate::provider::usage::parse_gemini_usage;

/// An incomplete answer.
#[derive(Default)]
pub(super) struct GeminiAnswer {
    /// The parts in the order in which they arrived.
    parts: Vec<PartialPart>,
    call_count: usize,
    finish: Option<String>,
    finish_message: Option<String>,
    /// The reason why the server does not answer the request.
    block_reason: Option<String>,
    usage: Option<Box<RawValue>>,
    facts: AnswerFacts,
    /// The members of the answer that this version does not read, by name, each value once.
    metadata: BTreeMap<String, Vec<Box<RawValue>>>,
    metadata_count: usize,
    /// True if the answer is one object and not a stream.
    is_whole: bool,
    /// True once the server has said that nothing follows. Most end the stream instead: what comes after the reason to stop is part
    /// of the answer.
    pub(super) done: bool,
}

/// The most parts of an answer, and members of it that are kept unread. No server means so many.
const MAX_PARTS: usize = 10_000;

/// A part of the answer. Neighbouring pieces of text are one part, unless one of them has a signature.
enum PartialPart {
    Text {
        text: TextBuffer,
        is_thought: bool,
        /// The members that only the provider reads, each after a comma.
        others: String,
    },
    Call {
        /// The provider's id, if it gave one.
        id: Option<String>,
        tool: String,
        arguments: String,
        /// The members of the call itself that only the provider reads.
        call_others: String,
        others: String,
    },
    /// A part that only the provider reads, as JSON.
    Opaque(String),
}

/// An event of a stream, or a whole answer.
#[derive(Default)]
struct GeminiEvent<'a> {
    candidates: Option<ShortList<ObjectMembers<Candidate<'a>>>>,
    prompt_feedback: Option<&'a RawValue>,
    usage: Option<&'a RawValue>,
    id: OptionalText<'a>,
    model: OptionalText<'a>,
    error: Option<&'a RawValue>,
    others: OtherMembers<'a>,
}

#[derive(Default)]
struct Candidate<'a> {
    index: Option<u64>,
    content: Option<ObjectMembers<CandidateContent<'a>>>,
    finish: Option<Cow<'a, str>>,
    finish_message: OptionalText<'a>,
    others: OtherMembers<'a>,
}

#[derive(Default)]
struct CandidateContent<'a> {
    parts: Option<ShortList<ObjectMembers<CandidatePart<'a>>>>,
}

#[derive(Default)]
struct CandidatePart<'a> {
    text: Option<JsonText<'a>>,
    is_thought: bool,
    call: Option<&'a RawValue>,
    others: OtherMembers<'a>,
}

#[derive(Default)]
struct CandidateCall<'a> {
    id: Option<&'a RawValue>,
    tool: Option<&'a RawValue>,
    arguments: Option<&'a RawValue>,
    others: OtherMembers<'a>,
}

impl<'de> FromMembers<'de> for GeminiEvent<'de> {
    fn read<A: MapAccess<'de>>(&mut self, name: Cow<'de, str>, members: &mut A) -> Result<(), A::Error> {
        match &*name {
            "candidates" => self.candidates = members.next_value()?,
            "promptFeedback" => self.prompt_feedback = members.next_value()?,
            "usageMetadata" => self.usage = members.next_value()?,
            "responseId" => self.id = members.next_value()?,
            "modelVersion" => self.model = members.next_value()?,
            "error" => self.error = members.next_value()?,
            _ => read_other(&mut self.others, name, members)?,
        }
        Ok(())
    }
}

impl<'de> FromMembers<'de> for Candidate<'de> {
    fn read<A: MapAccess<'de>>(&mut self, name: Cow<'de, str>, members: &mut A) -> Result<(), A::Error> {
        match &*name {
            "index" => self.index = members.next_value()?,
            "content" => self.content = members.next_value()?,
            "finishReason" => self.finish = members.next_value()?,
            "finishMessage" => self.finish_message = members.next_value()?,
            _ => read_other(&mut self.others, name, members)?,
        }
        Ok(())
    }
}

impl<'de> FromMembers<'de> for CandidateContent<'de> {
    fn read<A: MapAccess<'de>>(&mut self, name: Cow<'de, str>, members: &mut A) -> Result<(), A::Error> {
        match &*name {
            "parts" => self.parts = members.next_value()?,
            _ => _ = members.next_value::<&RawValue>()?,
        }
        Ok(())
    }
}

impl<'de> FromMembers<'de> for CandidatePart<'de> {
    fn read<A: MapAccess<'de>>(&mut self, name: Cow<'de, str>, members: &mut A) -> Result<(), A::Error> {
        match &*name {
            "text" => self.text = members.next_value()?,
            "thought" => self.is_thought = members.next_value::<Option<bool>>()?.unwrap_or_default(),
            "functionCall" => self.call = members.next_value()?,
            // Some servers of this shape have the name in another form.
            "thought_signature" => read_other(&mut self.others, "thoughtSignature".into(), members)?,
            _ => read_other(&mut self.others, name, members)?,
        }
        Ok(())
    }
}

impl<'de> FromMembers<'de> for CandidateCall<'de> {
    fn read<A: MapAccess<'de>>(&mut self, name: Cow<'de, str>, members: &mut A) -> Result<(), A::Error> {
        match &*name {
            "id" => self.id = members.next_value()?,
            "name" => self.tool = members.next_value()?,
            "args" => self.arguments = members.next_value()?,
            _ => read_other(&mut self.others, name, members)?,
        }
        Ok(())
    }
}

impl GeminiAnswer {
    pub(super) fn read_event(&mut self, data: &[u8], sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        if data.trim_ascii() == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        if data.iter().all(u8::is_ascii_whitespace) || self.done {
            return Ok(());
        }
        match std::str::from_utf8(data) {
            Ok(event) => self.parse_event(event, sink),
            // A server may cut a character in two.
            Err(_) => self.parse_event(&String::from_utf8_lossy(data), sink),
        }
    }

    /// Reads an answer that is one object, whose end is the end of the answer.
    pub(super) fn read_whole(&mut self, body: &[u8], sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        self.is_whole = true;
        let body = std::str::from_utf8(body).map_err(|_| ProviderError::unreadable("the answer is not UTF-8"))?;
        self.parse_event(body, sink)?;
        let [candidates, feedback] = json_members(body, ["candidates", "promptFeedback"]);
        if candidates.is_none() && feedback.is_none() {
            return Err(ProviderError::unreadable("wanted an answer of the Gemini API: it has no `candidates`"));
        }
        self.done = true;
        Ok(())
    }

    pub(super) fn finish(mut self, sink: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        let raw = self.finish.as_deref().or(self.block_reason.as_deref());
        if raw.is_none() && !(self.is_whole && self.done && !self.parts.is_empty()) {
            return Err(ProviderError::truncated());
        }
        let finish = match raw.unwrap_or_default() {
            "MAX_TOKENS" => Finish::Length,
            "MALFORMED_FUNCTION_CALL" | "MALFORMED_RESPONSE" | "UNEXPECTED_TOOL_CALL" => {
                return Err(self.failed(ProviderErrorKind::Busy, "the model wrote a call that cannot be read"));
            }
            "MISSING_THOUGHT_SIGNATURE" | "TOO_MANY_TOOL_CALLS" => {
                return Err(
                    self.failed(ProviderErrorKind::Refused, "the provider ended the answer because of its calls")
                );
            }
            reason if self.block_reason.is_some() || is_withheld(reason) => Finish::Filtered,
            _ if self.call_count > 0 => Finish::Calls,
            _ => Finish::Stop,
        };
        self.facts.set_text("finish", raw);
        self.facts.set_text("finish_message", self.finish_message.as_deref());
        if let Some(metadata) = self.metadata_json() {
            self.facts.set_raw("metadata", metadata);
        }
        let mut usage = None;
        if let Some(raw) = self.usage.take() {
            usage = parse_gemini_usage(raw.get());
            self.facts.set_raw("usage", raw);
        }
        sink(Delta::Finish(finish));
        usage.into_iter().for_each(|usage| sink(Delta::Usage(usage)));
        let mut answer = Answer { finish, usage, facts: self.facts, ..Answer::default() };
        let (mut layout, mut has_state) = (Vec::new(), false);
        for part in self.parts {
            has_state |= part.finish(&mut answer, &mut layout);
        }
        if has_state {
            answer.sidecar = Json::parse(&format!(r#"{{"parts":[{}]}}"#, layout.join(","))).ok();
        }
        Ok(answer)
    }

    /// Returns the members that are kept unread, as they were sent. One that came with several values is a list of them.
    fn metadata_json(&self) -> Option<Box<RawValue>> {
        let members = self.metadata.iter().map(|(name, values)| match &values[..] {
            [value] => format!("{}:{value}", json!(name)),
            values => {
                let values: Vec<_> = values.iter().map(|value| value.get()).collect();
                format!("{}:[{}]", json!(name), values.join(","))
            }
        });
        let members: Vec<_> = members.collect();
        let json = Some(members.join(",")).filter(|members| !members.is_empty())?;
        RawValue::from_string(format!("{{{json}}}")).ok()
    }

    /// Returns the error for an answer that the provider gave up.
    fn failed(&self, kind: ProviderErrorKind, message: &str) -> ProviderError {
        let stated = self.finish_message.as_deref().filter(|stated| !stated.trim().is_empty());
        let reason = self.finish.as_deref().unwrap_or_default();
        ProviderError::new(kind, format_args!("{} ({reason})", stated.unwrap_or(message)))
    }

    fn parse_event(&mut self, event: &str, sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        let parsed: ObjectMembers<GeminiEvent<'_>> = serde_json::from_str(event).map_err(invalid_answer)?;
        let parsed = parsed.0;
        // In the middle of a stream, the server failed.
        let usual = if self.is_whole { ProviderErrorKind::Refused } else { ProviderErrorKind::Busy };
        if let Some(error) = parsed.error {
            return Err(reported_error(error.get(), None, usual));
        }
        if parsed.candidates.is_none() && parsed.prompt_feedback.is_none() && is_error_object(event) {
            return Err(reported_error(event, None, usual));
        }
        self.facts.set_text("id", parsed.id.0.as_deref());
        self.facts.set_text("model", parsed.model.0.as_deref());
        if let Some(usage) = parsed.usage.filter(|usage| usage.get().starts_with('{')) {
            self.usage = Some(usage.to_owned());
        }
        if let Some(feedback) = parsed.prompt_feedback {
            let reason = json_members(feedback.get(), ["blockReason"])[0].and_then(string);
            self.block_reason = reason.or(self.block_reason.take());
            self.keep("promptFeedback", feedback)?;
        }
        self.keep_all(parsed.others)?;
        for ObjectMembers(candidate) in parsed.candidates.unwrap_or_default().0 {
            if candidate.index.unwrap_or_default() == 0 {
                self.read_candidate(candidate, sink)?;
            }
        }
        Ok(())
    }

    fn read_candidate(&mut self, candidate: Candidate<'_>, sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        let parts = candidate.content.and_then(|content| content.0.parts).unwrap_or_default();
        for ObjectMembers(part) in parts.0 {
            self.read_part(part, sink)?;
        }
        if let Some(reason) = candidate.finish.filter(|reason| !reason.is_empty()) {
            self.finish = Some(reason.into_owned());
        }
        if let Some(message) = candidate.finish_message.0 {
            self.finish_message = Some(message.into_owned());
        }
        self.keep_all(candidate.others)
    }

    fn read_part(&mut self, part: CandidatePart<'_>, sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        let CandidatePart { text, is_thought, call, others } = part;
        let others = write_members(&others);
        match (text, call) {
            (_, Some(call)) => self.read_call(call.get(), others, sink),
            (Some(text), None) => self.add_text(&text.bytes, is_thought, others, sink),
            (None, None) if others.is_empty() => Ok(()),
            (None, None) => {
                let thought = if is_thought { r#","thought":true"# } else { "" };
                let members = format!("{thought}{others}");
                self.push(PartialPart::Opaque(format!("{{{}}}", &members[1..])))
            }
        }
    }

    fn add_text(
        &mut self,
        bytes: &[u8],
        is_thought: bool,
        others: String,
        sink: &mut DeltaSink<'_>,
    ) -> Result<(), ProviderError> {
        if bytes.is_empty() && others.is_empty() {
            return Ok(());
        }
        let continues = others.is_empty()
            && matches!(self.parts.last(), Some(PartialPart::Text { is_thought: last, others, .. })
                if *last == is_thought && others.is_empty());
        if !continues {
            self.push(PartialPart::Text { text: TextBuffer::default(), is_thought, others })?;
        }
        if let Some(PartialPart::Text { text, .. }) = self.parts.last_mut() {
            let piece = text.push(bytes);
            emit(if is_thought { Delta::Reasoning(piece) } else { Delta::Text(piece) }, sink);
        }
        Ok(())
    }

    fn read_call(&mut self, call: &str, others: String, sink: &mut DeltaSink<'_>) -> Result<(), ProviderError> {
        let parsed: ObjectMembers<CandidateCall<'_>> = serde_json::from_str(call).map_err(invalid_answer)?;
        let CandidateCall { id, tool, arguments, others: call_others } = parsed.0;
        let id = id.and_then(string).filter(|id| !id.is_empty());
        let tool = tool.and_then(string).unwrap_or_default();
        let nth = self.call_count;
        self.call_count += 1;
        check_call_count(self.call_count)?;
        check_call_name(id.as_deref().unwrap_or_default(), &tool)?;
        let arguments = arguments.map_or("{}", RawValue::get).to_owned();
        let shown = id.clone().unwrap_or_else(|| generated_id(nth));
        sink(Delta::Call { nth, id: &shown, tool: &tool, arguments: &arguments });
        let call_others = write_members(&call_others);
        self.push(PartialPart::Call { id, tool, arguments, call_others, others })
    }

    fn push(&mut self, part: PartialPart) -> Result<(), ProviderError> {
        if self.parts.len() == MAX_PARTS {
            return Err(ProviderError::unreadable(format_args!("the answer has more than {MAX_PARTS} parts")));
        }
        self.parts.push(part);
        Ok(())
    }

    fn keep_all(&mut self, members: OtherMembers<'_>) -> Result<(), ProviderError> {
        members.into_iter().try_for_each(|(name, value)| self.keep(&name, value))
    }

    /// Keeps a member of the answer that this version does not read. Servers repeat most of them with every event.
    fn keep(&mut self, name: &str, value: &RawValue) -> Result<(), ProviderError> {
        let known = self.metadata.get_mut(name);
        if known.as_ref().and_then(|values| values.last()).is_some_and(|last| last.get() == value.get()) {
            return Ok(());
        }
        if self.metadata_count == MAX_PARTS {
            return Err(ProviderError::unreadable(format_args!("the answer has more than {MAX_PARTS} members")));
        }
        self.metadata_count += 1;
        match known {
            Some(values) => values.push(value.to_owned()),
            None => _ = self.metadata.insert(name.to_owned(), vec![value.to_owned()]),
        }
        Ok(())
    }
}

impl PartialPart {
    /// Adds the part to the answer, and its entry to the recorded order of parts. Returns true if the entry holds state that is
    /// nowhere else in the answer.
    fn finish(self, answer: &mut Answer, layout: &mut Vec<String>) -> bool {
        match self {
            PartialPart::Text { text, is_thought, others } => {
                let text = text.finish();
                let thought = if is_thought { r#","thought":true"# } else { "" };
                layout.push(format!(r#"{{"text":{}{thought}{others}}}"#, text.len()));
                if is_thought { &mut answer.reasoning } else { &mut answer.text }.push_str(&text);
                !others.is_empty()
            }
            PartialPart::Call { id, tool, arguments, call_others, others } => {
                let members = format!("{}{call_others}", if id.is_some() { r#","id":true"# } else { "" });
                let members_of_call = members.strip_prefix(',').unwrap_or_default();
                layout.push(format!(r#"{{"functionCall":{{{members_of_call}}}{others}}}"#));
                let id = id.unwrap_or_else(|| generated_id(answer.calls.len()));
                answer.calls.push(Call::new(id, tool, arguments));
                !members.is_empty() || !others.is_empty()
            }
            PartialPart::Opaque(json) => {
                layout.push(json);
                true
            }
        }
    }
}

/// Returns the id of a call to which the server gave none.
fn generated_id(nth: usize) -> String {
    format!("call_{nth}")
}

/// Writes members of an object, each after a comma.
fn write_members(members: &OtherMembers<'_>) -> String {
    members.iter().map(|(name, value)| format!(",{}:{value}", json!(name))).collect()
}

/// Returns true if an answer ends with this reason because the provider withholds the rest.
fn is_withheld(reason: &str) -> bool {
    const REASONS: [&str; 9] = [
        "BLOCKLIST",
        "LANGUAGE",
        "MODEL_ARMOR",
        "NO_IMAGE",
        "OTHER",
        "PROHIBITED_CONTENT",
        "RECITATION",
        "SAFETY",
        "SPII",
    ];
    REASONS.contains(&reason) || reason.starts_with("IMAGE_")
}

fn invalid_answer(error: serde_json::Error) -> ProviderError {
    ProviderError::unreadable(format_args!("wanted an answer of the Gemini API: {error}"))
}
