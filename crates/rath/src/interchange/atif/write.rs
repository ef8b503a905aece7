//! Writing a session as a trajectory.

mod schema;

use std::collections::{HashMap, HashSet, VecDeque};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rath_record::chunk::{self, Assistant, Chunk, Compressed, Identity, Image, MemoryEvent, Strategy, ToolSpec};
use rath_record::{CallId, Money, Record, Step, StepId, Text, Usage};
use serde_json::value::RawValue;

use self::schema::{
    AgentObject, ContentPart, FinalMetrics, ImageSource, MessageContent, MetricsObject, ObservationResult, RathExtra,
    StepObject, ToolCallObject, ToolObject, Trajectory, TrajectoryRef,
};
use super::{MAX_DEPTH, TrajectoryExtras, VERSION, whole};
use crate::interchange::Export;
use crate::interchange::extras::{EmbeddedChunk, Extras, StepMeaning};
use crate::interchange::notes::{NoteCode, Notes};
use crate::interchange::time;
use crate::provider::Prices;
use crate::session::Session;

/// Writes a session as a trajectory, with its asides.
///
/// The cost of an answer is written if the record holds it. [`write_priced`] computes the other costs from a price list.
///
/// See [`atif::read`](fn@super::read) for an example.
pub fn write(session: &Session) -> Export {
    write_priced(session, &Prices::none())
}

/// Writes a session as a trajectory, with the cost of each answer.
///
/// ```
/// use rath::interchange::atif;
/// use rath::prelude::*;
/// use rath::provider::Prices;
///
/// let export = atif::write_priced(&Session::user("hello"), &Prices::list());
/// assert!(export.notes.is_empty());
/// ```
pub fn write_priced(session: &Session, prices: &Prices) -> Export {
    let session = session.with_opening();
    let notes = Notes::default();
    let mut trajectory = document(&session, prices, &notes);
    trajectory.extra.rath.session = whole::encode(&session, &notes);
    let mut bytes = serde_json::to_vec(&trajectory).expect("a trajectory has string keys and finite numbers");
    bytes.push(b'\n');
    Export { bytes, notes: notes.into_list() }
}

/// Returns the trajectory of a session as JSON, without the session itself.
pub(super) fn trajectory_value(session: &Session) -> serde_json::Value {
    let trajectory = document(session, &Prices::none(), &Notes::default());
    serde_json::to_value(trajectory).expect("a trajectory has string keys and finite numbers")
}

fn document(session: &Session, prices: &Prices, notes: &Notes) -> Trajectory {
    let id = session.id().to_string();
    let mut writer = AtifWriter { session_id: id.clone(), prices, notes, written: HashSet::new() };
    writer.trajectory(session.as_record(), id, None, 0)
}

/// A writer of one document.
struct AtifWriter<'a> {
    session_id: String,
    prices: &'a Prices,
    notes: &'a Notes,
    /// The steps that are in the document. A step that several branches share is written once.
    written: HashSet<StepId>,
}

impl AtifWriter<'_> {
    fn trajectory(&mut self, record: &Record, id: String, name: Option<String>, depth: usize) -> Trajectory {
        let mut trajectory = TrajectoryWriter::default();
        let tools = newest_tools(record);
        let model =
            record.newest_first().find_map(|step| provider(step.chunk())).map(|identity| identity.model.clone());
        for (step, nth) in record.steps().into_iter().zip(1_u64..) {
            if self.written.insert(step.id()) {
                trajectory.push_step(step, nth, &tools, self);
            } else if !step.chunk().is_marker() {
                self.notes.count(NoteCode::Changed, "step", "written once, though shared by several branches");
            }
        }
        trajectory.push_aside_refs();
        let mut subagents: Vec<Trajectory> = Vec::new();
        for (head, id) in std::mem::take(&mut trajectory.asides) {
            if depth + 1 >= MAX_DEPTH {
                self.notes.count(NoteCode::LeftOut, "branch", "left out: asides are nested too deeply");
                trajectory.remove_refs(&id);
                continue;
            }
            let record = Record::at(head);
            let name = record.steps().into_iter().find_map(|step| match step.chunk() {
                Chunk::Forked(forked) if !self.written.contains(&step.id()) => forked.name.clone(),
                _ => None,
            });
            subagents.push(self.trajectory(&record, id, name, depth + 1));
        }
        let total = trajectory.total;
        let (name, version) = (name.unwrap_or_else(|| "rath".to_owned()), env!("CARGO_PKG_VERSION"));
        let final_metrics = FinalMetrics {
            total_prompt_tokens: total.input,
            total_completion_tokens: total.output,
            total_cached_tokens: total.cached_read,
            total_cost_usd: trajectory.cost,
            total_steps: trajectory.steps.len() as u64,
        };
        Trajectory {
            schema_version: VERSION,
            session_id: self.session_id.clone(),
            trajectory_id: id,
            agent: AgentObject {
                name,
                version,
                model_name: model,
                tool_definitions: tools.into_iter().map(ToolObject::new).collect(),
            },
            steps: trajectory.steps,
            final_metrics,
            extra: RathExtra { rath: TrajectoryExtras { session: None, chunks: trajectory.chunks } },
            subagent_trajectories: subagents,
        }
    }

    /// Returns a text, or a placeholder and a note if its payload is missing.
    fn text(&self, text: &Text) -> String {
        if text.as_str().is_none() {
            self.notes.count(NoteCode::Missing, "text", "missing from the session: the document says so in its place");
        }
        text.to_string()
    }

    fn content(&self, text: &Text, images: &[Image]) -> MessageContent {
        let text = self.text(text);
        let images: Vec<ContentPart> = images.iter().filter_map(|image| self.image_part(image)).collect();
        if images.is_empty() {
            return MessageContent::Text(text);
        }
        let text = (!text.is_empty()).then_some(ContentPart { r#type: "text", text: Some(text), source: None });
        MessageContent::Parts(text.into_iter().chain(images).collect())
    }

    fn image_part(&self, image: &Image) -> Option<ContentPart> {
        let is_supported = ["image/jpeg", "image/png", "image/gif", "image/webp"].contains(&&*image.media_type);
        let Some(data) = image.blob.data().filter(|_| is_supported) else {
            self.notes.count(
                NoteCode::LeftOut,
                "picture",
                "left out: its data is missing, or the format does not have its media type",
            );
            return None;
        };
        let path = format!("data:{};base64,{}", image.media_type, BASE64.encode(data));
        let source = ImageSource { media_type: image.media_type.clone(), path };
        Some(ContentPart { r#type: "image", text: None, source: Some(source) })
    }

    fn call(&self, call: &chunk::Call) -> ToolCallObject {
        let written = self.text(&call.arguments);
        let raw = RawValue::from_string(written.trim().to_owned()).ok();
        // Text around the object would be lost: arguments with any are not written as an object.
        let object = raw.filter(|raw| raw.get().starts_with('{') && raw.get() == written);
        let empty = || RawValue::from_string("{}".to_owned()).expect("an object");
        if object.is_none() && !written.trim().is_empty() {
            self.notes.count(
                NoteCode::Changed,
                "call",
                "written without arguments: they are not a JSON object, and are kept under `rath`",
            );
        }
        let extra =
            object.is_none().then(|| RathExtra { rath: Extras { arguments: Some(written), ..Extras::default() } });
        ToolCallObject {
            tool_call_id: call.id.to_string(),
            function_name: call.tool.to_string(),
            arguments: object.unwrap_or_else(empty),
            extra,
        }
    }

    /// Returns the cost of an answer in US dollars: the recorded cost, or the cost by the price list.
    fn cost(&self, step: &Step, answer: &Assistant) -> Option<f64> {
        let by_price = || Some(self.prices.get(answer.provider.as_ref()?)?.cost(step.stamp().usage?));
        step.chunk().recorded_cost().or_else(by_price).map(Money::as_dollars)
    }
}

/// The steps of one trajectory under construction.
#[derive(Default)]
struct TrajectoryWriter {
    steps: Vec<StepObject>,
    /// The chunks that are not steps of the trajectory.
    chunks: Vec<Extras>,
    /// Indices into `steps` of the calls without a result. A result belongs to the newest answer with a call of its id.
    waiting: HashMap<CallId, VecDeque<usize>>,
    /// The positions of the steps that are written.
    positions: HashMap<StepId, u64>,
    /// The heads of the asides, with the ids of their trajectories.
    asides: Vec<(Step, String)>,
    /// References to asides that belong to no step yet.
    unreferenced: Vec<TrajectoryRef>,
    total: Usage,
    /// In US dollars.
    cost: Option<f64>,
}

impl TrajectoryWriter {
    fn push_step(&mut self, step: &Step, nth: u64, tools: &[ToolSpec], writer: &AtifWriter<'_>) {
        const NO_GRAPH: &str = "under `rath` only: steps are written in the order in which they are read";
        self.positions.insert(step.id(), nth);
        // An aside belongs to the call whose result follows it, if one does.
        if !matches!(step.chunk(), Chunk::ToolResult(_)) && !is_aside(step.chunk()) {
            self.push_aside_refs();
        }
        let rath = Extras { nth: Some(nth), ..Extras::from_stamp(step.stamp()) };
        match step.chunk() {
            Chunk::User(user) => {
                let message = writer.content(&user.text, &user.images);
                self.push(step, StepObject { message, ..StepObject::new("user", rath) });
            }
            Chunk::Instructions(instructions) => {
                let other_tools = (instructions.tools != tools).then(|| instructions.tools.clone());
                let provider = instructions.provider.clone();
                let stands_for = Some(StepMeaning::Instructions);
                let rath = Extras { tools: other_tools, provider, stands_for, ..rath };
                self.push_system(step, writer.text(&instructions.text), rath);
            }
            Chunk::Assistant(answer) => self.push_answer(step, answer, rath, writer),
            Chunk::ToolResult(result) => self.push_result(step, result, rath, writer),
            Chunk::Compressed(compressed) => {
                let Compressed { hidden, kept, summary, .. } = compressed;
                let positions =
                    |ids: &[StepId]| ids.iter().filter_map(|id| self.positions.get(id).copied()).collect::<Vec<_>>();
                let (hidden, kept) = (positions(hidden), positions(kept));
                let rath = Extras { hidden, kept, stands_for: Some(StepMeaning::Compressed), ..rath };
                self.push_system(step, writer.text(summary), rath);
            }
            Chunk::Memory(memory) => match &memory.event {
                MemoryEvent::Recall { found, .. } if !found.is_empty() => {
                    let text: Vec<_> = found.iter().map(|recalled| writer.text(&recalled.text)).collect();
                    let rath = Extras { chunk: Some(EmbeddedChunk::from_step(step)), ..rath };
                    self.push_system(step, text.join("\n\n"), rath);
                }
                _ => self.push_chunk(EmbeddedChunk::from_step(step), rath),
            },
            Chunk::Merged(merged) if merged.strategy == Strategy::Aside => {
                if let Some(head) = step.parents().get(1).and_then(|theirs| theirs.step()) {
                    self.add_aside(head, nth);
                }
            }
            Chunk::Forked(_) | Chunk::Merged(_) | Chunk::Detached(_) => {
                let marker = match step.chunk() {
                    Chunk::Forked(_) => "fork",
                    Chunk::Merged(_) => "merge",
                    _ => "detachment",
                };
                writer.notes.count(NoteCode::LeftOut, marker, NO_GRAPH);
                self.push_chunk(EmbeddedChunk::from_step(step), rath);
            }
            Chunk::Approved(_) | Chunk::Denied(_) => {
                self.push_chunk(EmbeddedChunk::without_origin(step.chunk().clone()), rath);
            }
            _ => self.push_chunk(EmbeddedChunk::from_step(step), rath),
        }
    }

    fn push_answer(&mut self, step: &Step, answer: &Assistant, rath: Extras, writer: &AtifWriter<'_>) {
        let usage = step.stamp().usage;
        let cost = writer.cost(step, answer);
        // Usage that `metrics` holds in full is not written a second time.
        let usage_extra = rath.usage.filter(|usage| representable(*usage) != *usage);
        let rath = Extras { usage: usage_extra, ..rath }.with_answer(answer);
        let calls = answer.calls.iter().map(|call| writer.call(call));
        let reasoning = Some(writer.text(&answer.reasoning)).filter(|reasoning| !reasoning.is_empty());
        let object = StepObject {
            model_name: answer.provider.as_ref().map(|identity| identity.model.clone()),
            message: writer.content(&answer.text, &[]),
            reasoning_content: reasoning,
            tool_calls: calls.collect(),
            metrics: (usage.is_some() || cost.is_some()).then(|| MetricsObject {
                prompt_tokens: usage.map(|usage| usage.input),
                completion_tokens: usage.map(|usage| usage.output),
                cached_tokens: usage.map(|usage| usage.cached_read),
                cost_usd: cost,
            }),
            ..StepObject::new("agent", rath)
        };
        for call in answer.calls.iter().rev() {
            self.waiting.entry(call.id.clone()).or_default().push_front(self.steps.len());
        }
        self.total += usage.unwrap_or_default();
        self.cost = cost.map(|cost| cost + self.cost.unwrap_or_default()).or(self.cost);
        self.push(step, object);
    }

    fn push_result(&mut self, step: &Step, result: &chunk::ToolResult, rath: Extras, writer: &AtifWriter<'_>) {
        let Some(index) = self.waiting.get_mut(&result.call).and_then(VecDeque::pop_front) else {
            self.push_aside_refs();
            return self.push_chunk(EmbeddedChunk::from_step(step), rath);
        };
        let reason = "left out: the format holds text only in the result of a call";
        writer.notes.count_many(NoteCode::LeftOut, result.images.len() as u64, "picture", reason);
        let observed = ObservationResult {
            source_call_id: Some(result.call.to_string()),
            content: Some(writer.text(&result.output)),
            subagent_trajectory_ref: std::mem::take(&mut self.unreferenced),
            extra: Some(RathExtra { rath: rath.with_result(result) }),
        };
        self.steps[index].push_observation(observed);
    }

    fn push_system(&mut self, step: &Step, message: String, rath: Extras) {
        self.push(step, StepObject { message: MessageContent::Text(message), ..StepObject::new("system", rath) });
    }

    /// Adds a chunk that the format has no step for.
    fn push_chunk(&mut self, chunk: EmbeddedChunk, rath: Extras) {
        self.chunks.push(Extras { chunk: Some(chunk), ..rath });
    }

    fn push(&mut self, step: &Step, mut object: StepObject) {
        object.step_id = self.steps.len() as u64 + 1;
        object.timestamp = step.stamp().at.and_then(time::format);
        if object.timestamp.is_some() {
            object.extra.rath.at = None;
        }
        self.steps.push(object);
    }

    /// Adds an aside under an id that no other aside of the trajectory has.
    fn add_aside(&mut self, head: &Step, nth: u64) {
        let branch = head.stamp().branch.to_string();
        let is_taken = |id: &str| self.asides.iter().any(|(_, known)| known == id);
        let mut numbered = (2_u64..).map(|nth| format!("{branch}-{nth}"));
        let id = if is_taken(&branch) { numbered.find(|id| !is_taken(id)) } else { None }.unwrap_or(branch);
        let extra = RathExtra { rath: Extras { nth: Some(nth), ..Extras::default() } };
        self.unreferenced.push(TrajectoryRef { trajectory_id: id.clone(), extra });
        self.asides.push((head.clone(), id));
    }

    /// Adds references to the asides that belong to no call.
    fn push_aside_refs(&mut self) {
        if self.unreferenced.is_empty() {
            return;
        }
        let refs = std::mem::take(&mut self.unreferenced);
        let observed =
            ObservationResult { source_call_id: None, content: None, subagent_trajectory_ref: refs, extra: None };
        if self.steps.last().is_none_or(|step| step.source != "agent") {
            let rath = Extras { stands_for: Some(StepMeaning::Asides), ..Extras::default() };
            let message = MessageContent::Text("work of others is kept here".to_owned());
            let step_id = self.steps.len() as u64 + 1;
            self.steps.push(StepObject { step_id, message, ..StepObject::new("system", rath) });
        }
        if let Some(last) = self.steps.last_mut() {
            last.push_observation(observed);
        }
    }

    /// Removes every reference to a trajectory that is not written.
    fn remove_refs(&mut self, id: &str) {
        for observation in self.steps.iter_mut().filter_map(|step| step.observation.as_mut()) {
            for observed in &mut observation.results {
                observed.subagent_trajectory_ref.retain(|reference| reference.trajectory_id != id);
            }
        }
    }
}

/// Returns the tools of the newest instructions.
fn newest_tools(record: &Record) -> Vec<ToolSpec> {
    let instructions = record.newest_first().find_map(|step| match step.chunk() {
        Chunk::Instructions(instructions) => Some(instructions.tools.clone()),
        _ => None,
    });
    instructions.unwrap_or_default()
}

/// Returns the provider that a chunk names.
fn provider(chunk: &Chunk) -> Option<&Identity> {
    match chunk {
        Chunk::Assistant(answer) => answer.provider.as_ref(),
        Chunk::Instructions(instructions) => instructions.provider.as_ref(),
        _ => None,
    }
}

fn is_aside(chunk: &Chunk) -> bool {
    matches!(chunk, Chunk::Merged(merged) if merged.strategy == Strategy::Aside)
}

/// Returns the part of a usage that the format has members for.
fn representable(usage: Usage) -> Usage {
    Usage { cached_read: usage.cached_read, ..Usage::new(usage.input, usage.output) }
}
