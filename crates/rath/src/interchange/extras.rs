//! The parts of a step that a foreign format has no members for, written under the name `rath`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rath_record::chunk::{Assistant, Chunk, Effect, Finish, Identity, Json, Outcome, ToolResult, ToolSpec, Tree};
use rath_record::turn::{self, Next};
use rath_record::{CallId, Digest, Payload, Record, Stamp, Step, StepId, Text, Timestamp, Usage};
use serde::{Deserialize, Serialize};

/// The parts of a step that a format has no members for. Each format leaves out the fields that it has a member for.
///
/// The names of the fields are written to files.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Extras {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Usage>,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finish: Option<Finish>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) provider: Option<Identity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) settings: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) facts: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sidecar: Option<Json>,
    /// Starts and decisions of the answer's calls that have no result; unknown if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) progress: Option<Vec<EmbeddedChunk>>,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) whole: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) effects: Vec<Effect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tree: Option<Tree>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) put_back: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) not_put_back: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) structured: Option<Json>,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<Vec<ToolSpec>>,
    /// The [positions](Self::nth) of the steps that a summary replaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) hidden: Vec<u64>,
    /// The [positions](Self::nth) of the steps that stay visible beside a summary.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) kept: Vec<u64>,
    /// The arguments of a call as the model wrote them, if they are not a JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<String>,
    /// The position of the step in the session, where a file has another order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nth: Option<u64>,
    /// The meaning of the format's step, if its other members do not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stands_for: Option<StepMeaning>,
    /// The whole chunk, if the format has nothing like it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) chunk: Option<EmbeddedChunk>,
}

/// The meaning of a system step. The names of the variants are written to files.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StepMeaning {
    /// The prompt of an agent.
    Instructions,
    /// A summary.
    Compressed,
    /// No text of its own, only references to asides.
    Asides,
}

impl Extras {
    /// Returns the extras of a step with this stamp.
    pub(super) fn from_stamp(stamp: &Stamp) -> Self {
        Extras { by: stamp.by.clone(), at: stamp.at, usage: stamp.usage, ..Extras::default() }
    }

    /// Adds the parts of an answer other than its text, its reasoning and its calls.
    pub(super) fn with_answer(self, answer: &Assistant) -> Self {
        Extras {
            finish: Some(answer.finish).filter(|finish| *finish != default_finish(answer)),
            provider: answer.provider.clone(),
            request: answer.request,
            settings: answer.settings.clone(),
            facts: answer.facts.clone(),
            sidecar: answer.sidecar.clone(),
            ..self
        }
    }

    /// Adds the parts of a result other than its output.
    pub(super) fn with_result(self, result: &ToolResult) -> Self {
        Extras {
            outcome: Some(result.outcome),
            whole: result.whole.as_ref().and_then(Text::as_str).map(str::to_owned),
            effects: result.effects.clone(),
            tree: result.tree.clone(),
            put_back: result.put_back.clone(),
            not_put_back: result.not_put_back.clone(),
            structured: result.structured.clone(),
            ..self
        }
    }

    /// Moves the parts that [`with_answer`](Self::with_answer) added into an answer.
    pub(super) fn fill_answer(&mut self, answer: &mut Assistant) {
        answer.finish = self.finish.unwrap_or(default_finish(answer));
        answer.provider = self.provider.take().or(answer.provider.take());
        answer.request = self.request;
        answer.settings = self.settings.take();
        answer.facts = self.facts.take().or(answer.facts.take());
        answer.sidecar = self.sidecar.take();
    }

    /// Moves the parts that [`with_result`](Self::with_result) added into a result.
    pub(super) fn fill_result(&mut self, result: &mut ToolResult) {
        result.outcome = self.outcome.unwrap_or(result.outcome);
        result.whole = self.whole.take().map(Text::from);
        result.effects = std::mem::take(&mut self.effects);
        result.tree = self.tree.take();
        result.put_back = std::mem::take(&mut self.put_back);
        result.not_put_back = std::mem::take(&mut self.not_put_back);
        result.structured = self.structured.take();
    }
}

/// Returns the finish reason that follows from an answer's calls. It is not written.
fn default_finish(answer: &Assistant) -> Finish {
    if answer.calls.is_empty() { Finish::Stop } else { Finish::Calls }
}

/// A chunk as JSON, together with its payloads. The names of the fields are written to files.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EmbeddedChunk {
    json: Json,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    texts: BTreeMap<Digest, String>,
    /// Binary payloads in base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    bytes: BTreeMap<Digest, String>,
}

impl EmbeddedChunk {
    /// Encodes the chunk of a step.
    pub(super) fn from_step(step: &Step) -> Self {
        Self::new(&step.json(), step.chunk())
    }

    /// Encodes a start or a decision without the origin of its call: in the file, the steps have other ids.
    pub(super) fn without_origin(mut chunk: Chunk) -> Self {
        match &mut chunk {
            Chunk::Approved(approved) => approved.origin = None,
            Chunk::Denied(denied) => denied.origin = None,
            _ => {}
        }
        let mut json = Vec::new();
        chunk.encode(&mut json);
        Self::new(&String::from_utf8_lossy(&json), &chunk)
    }

    fn new(json: &str, chunk: &Chunk) -> Self {
        let json = Json::parse(json).expect("a chunk's JSON is JSON");
        let mut embedded = EmbeddedChunk { json, texts: BTreeMap::new(), bytes: BTreeMap::new() };
        for (digest, payload) in chunk.payloads() {
            match payload {
                Payload::Text(text) => _ = embedded.texts.insert(digest, text.to_string()),
                Payload::Bytes(bytes) => _ = embedded.bytes.insert(digest, BASE64.encode(bytes)),
            }
        }
        embedded
    }

    /// Decodes the chunk; none if the JSON is not a chunk.
    pub(super) fn decode(&self) -> Option<Chunk> {
        let mut chunk = match Chunk::decode(self.json.as_str()) {
            Ok(chunk) => chunk,
            // A program that rewrote the file may have reordered the members, and `kind` has to be the first.
            Err(_) => {
                let mut members: serde_json::Map<String, serde_json::Value> =
                    serde_json::from_str(self.json.as_str()).ok()?;
                let kind = members.remove("kind")?;
                let rest = serde_json::Value::Object(members).to_string();
                let comma = if rest == "{}" { "" } else { "," };
                Chunk::decode(&format!(r#"{{"kind":{kind}{comma}{}"#, &rest[1..])).ok()?
            }
        };
        // A payload that does not have the digest it is filed under is ignored.
        chunk.fill_payloads(|digest| {
            let text = self.texts.get(digest).map(|text| Payload::Text(text.as_str().into()));
            let bytes = || Some(Payload::Bytes(BASE64.decode(self.bytes.get(digest)?).ok()?.into()));
            text.or_else(bytes).filter(|payload| Digest::compute(payload.bytes()) == *digest)
        });
        Some(chunk)
    }
}

/// Returns the starts and decisions of calls without a result, by the answer that made the calls.
///
/// A format whose rows are messages has no place for those of calls that have ended.
pub(super) fn open_call_progress(record: &Record) -> HashMap<StepId, Vec<EmbeddedChunk>> {
    let Next::RunTools(open) = turn::next(record) else { return HashMap::new() };
    let mut calls_by_answer: HashMap<StepId, Vec<CallId>> = HashMap::new();
    for pending in open {
        calls_by_answer.entry(pending.origin.answer).or_default().push(pending.call.id);
    }
    let mut progress: HashMap<StepId, Vec<EmbeddedChunk>> = HashMap::new();
    let mut answer_by_call: HashMap<CallId, StepId> = HashMap::new();
    for step in record.steps() {
        let call = match step.chunk() {
            Chunk::ToolStarted(started) => &started.call,
            Chunk::Approved(approved) => &approved.call,
            Chunk::Denied(denied) => &denied.call,
            _ => {
                let calls = calls_by_answer.remove(&step.id()).unwrap_or_default();
                answer_by_call.extend(calls.into_iter().map(|call| (call, step.id())));
                continue;
            }
        };
        if let Some(answer) = answer_by_call.get(call) {
            progress.entry(*answer).or_default().push(EmbeddedChunk::without_origin(step.chunk().clone()));
        }
    }
    progress
}
