//! What a session holds and a format has no place for: it stands beside, under the name `rath`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rath_record::chunk::{Assistant, Chunk, Effect, Finish, Identity, Json, Outcome, ToolResult, ToolSpec, Tree};
use rath_record::turn::{self, Next};
use rath_record::{CallId, Digest, Payload, Record, Stamp, Step, StepId, Text, Timestamp, Usage};
use serde::{Deserialize, Serialize};

/// What rath knows of a step and a format has no member for. Each format leaves out what it has one for.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Beside {
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
    /// What was done about the calls of an answer that have no result. Where this is not told, nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) progress: Option<Vec<Kept>>,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) whole: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) effects: Vec<Effect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tree: Option<Tree>,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<Vec<ToolSpec>>,
    /// The numbers of the steps that a summary stands for, and of those that it does not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) hidden: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) kept: Vec<u64>,
    /// The arguments of a call as the model wrote them, where they are not an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<String>,
    /// The number of the step after which it comes, where that is not its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<u64>,
    /// What a step of the format stands for, where that cannot be seen from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stands_for: Option<Stands>,
    /// The whole chunk, where the format has nothing like it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) chunk: Option<Kept>,
}

/// What a step of a format stands for.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stands {
    /// What an agent is told.
    Instructions,
    /// A summary.
    Compressed,
    /// Nothing but the work that it refers to.
    Asides,
}

impl Beside {
    pub(super) fn of(stamp: &Stamp) -> Self {
        Beside { by: stamp.by.clone(), at: stamp.at, usage: stamp.usage, ..Beside::default() }
    }

    /// Adds what stands in an answer beside its words, its reasoning and its calls.
    pub(super) fn answer(self, answer: &Assistant, progress: Vec<Kept>) -> Self {
        // Those that follow from the rest are not worth a member.
        let plain = if answer.calls.is_empty() { Finish::Stop } else { Finish::Calls };
        Beside {
            finish: Some(answer.finish).filter(|finish| *finish != plain),
            provider: answer.provider.clone(),
            request: answer.request,
            settings: answer.settings.clone(),
            facts: answer.facts.clone(),
            sidecar: answer.sidecar.clone(),
            progress: (!answer.calls.is_empty()).then_some(progress),
            ..self
        }
    }

    /// Adds what stands in a result beside its output.
    pub(super) fn result(self, result: &ToolResult) -> Self {
        Beside {
            outcome: Some(result.outcome),
            whole: result.whole.as_ref().and_then(Text::as_str).map(str::to_owned),
            effects: result.effects.clone(),
            tree: result.tree.clone(),
            ..self
        }
    }

    /// Fills in an answer what is beside it.
    pub(super) fn fill_answer(&mut self, answer: &mut Assistant) {
        let plain = if answer.calls.is_empty() { Finish::Stop } else { Finish::Calls };
        answer.finish = self.finish.unwrap_or(plain);
        answer.provider = self.provider.take().or(answer.provider.take());
        answer.request = self.request;
        answer.settings = self.settings.take();
        answer.facts = self.facts.take().or(answer.facts.take());
        answer.sidecar = self.sidecar.take();
    }

    /// Fills in a result what is beside it.
    pub(super) fn fill_result(&mut self, result: &mut ToolResult) {
        result.outcome = self.outcome.unwrap_or(result.outcome);
        result.whole = self.whole.take().map(Text::from);
        result.effects = std::mem::take(&mut self.effects);
        result.tree = self.tree.take();
    }
}

/// A chunk as JSON, with what would stand beside its row.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    json: Json,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    texts: BTreeMap<Digest, String>,
    /// In base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    bytes: BTreeMap<Digest, String>,
}

impl Kept {
    pub(super) fn of(step: &Step) -> Self {
        let json = Json::parse(&step.json()).expect("a chunk's JSON is JSON");
        let mut kept = Kept { json, texts: BTreeMap::new(), bytes: BTreeMap::new() };
        for (digest, payload) in step.chunk().payloads() {
            match payload {
                Payload::Text(text) => _ = kept.texts.insert(digest, text.to_string()),
                Payload::Bytes(bytes) => _ = kept.bytes.insert(digest, BASE64.encode(bytes)),
            }
        }
        kept
    }

    /// The chunk; none where this is not one.
    pub(super) fn chunk(&self) -> Option<Chunk> {
        let mut chunk = match Chunk::decode(self.json.as_str()) {
            Ok(chunk) => chunk,
            // Whoever read and wrote the file in between may have moved its members: the kind has to be the first.
            Err(_) => {
                let mut members: serde_json::Map<String, serde_json::Value> =
                    serde_json::from_str(self.json.as_str()).ok()?;
                let kind = members.remove("kind")?;
                let rest = serde_json::Value::Object(members).to_string();
                let comma = if rest == "{}" { "" } else { "," };
                Chunk::decode(&format!(r#"{{"kind":{kind}{comma}{}"#, &rest[1..])).ok()?
            }
        };
        // What is not what its name says is not put in its place.
        chunk.fill_payloads(|digest| {
            let text = self.texts.get(digest).map(|text| Payload::Text(text.as_str().into()));
            let bytes = || Some(Payload::Bytes(BASE64.decode(self.bytes.get(digest)?).ok()?.into()));
            text.or_else(bytes).filter(|payload| Digest::compute(payload.bytes()) == *digest)
        });
        Some(chunk)
    }
}

/// What was done about the calls without a result, by the answer that asked for them.
///
/// Only this much is kept of starts and decisions: those of calls that ended say nothing any more.
pub(super) fn progress(record: &Record) -> HashMap<StepId, Vec<Kept>> {
    let Next::RunTools(open) = turn::next(record) else { return HashMap::new() };
    let mut asked: HashMap<StepId, Vec<CallId>> = HashMap::new();
    for pending in open {
        asked.entry(pending.step).or_default().push(pending.call.id);
    }
    let mut progress: HashMap<StepId, Vec<Kept>> = HashMap::new();
    let mut by_call: HashMap<CallId, StepId> = HashMap::new();
    for step in record.steps() {
        let about = match step.chunk() {
            Chunk::ToolStarted(started) => &started.call,
            Chunk::Approved(approved) => &approved.call,
            Chunk::Denied(denied) => &denied.call,
            _ => {
                let calls = asked.remove(&step.id()).unwrap_or_default();
                by_call.extend(calls.into_iter().map(|call| (call, step.id())));
                continue;
            }
        };
        if let Some(answer) = by_call.get(about) {
            progress.entry(*answer).or_default().push(Kept::of(step));
        }
    }
    progress
}
