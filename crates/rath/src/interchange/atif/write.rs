//! From a session to a trajectory.

use std::collections::{HashMap, HashSet, VecDeque};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rath_record::chunk::{self, Assistant, Chunk, Compressed, Identity, Image, Json, MemoryEvent, Strategy, ToolSpec};
use rath_record::{CallId, Record, Step, StepId, Text, Usage};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{DEPTH_MOST, VERSION, Whole};
use crate::interchange::Exported;
use crate::interchange::beside::{self, Beside, Kept, Stands};
use crate::interchange::members::Notes;
use crate::interchange::time;
use crate::provider::Prices;
use crate::session::Session;

/// Writes a session as a trajectory, with the work that is kept aside in it.
///
/// Money is written where the record tells it. For what it would cost by a list of prices, [`write_priced`].
pub fn write(session: &Session) -> Exported {
    write_priced(session, &Prices::none())
}

/// Writes a session as a trajectory, with what each answer cost.
pub fn write_priced(session: &Session, prices: &Prices) -> Exported {
    let session = session.begun();
    let notes = Notes::default();
    let id = session.id().to_string();
    let mut writer = Writer { id: id.clone(), prices, notes: &notes, written: HashSet::new() };
    let trajectory = writer.trajectory(session.as_record(), id, None, 0);
    let mut bytes = serde_json::to_vec(&trajectory).expect("a trajectory has string keys and finite numbers");
    bytes.push(b'\n');
    Exported { bytes, notes: notes.into_list() }
}

struct Writer<'a> {
    id: String,
    prices: &'a Prices,
    notes: &'a Notes,
    /// The steps that stand somewhere in the document: what branches share stands there once.
    written: HashSet<StepId>,
}

impl Writer<'_> {
    fn trajectory(&mut self, record: &Record, id: String, name: Option<String>, depth: usize) -> Trajectory {
        let mut line = Line { progress: beside::progress(record), ..Line::default() };
        let tools = newest_tools(record);
        let model = record.newest_first().find_map(|step| asked(step.chunk())).map(|identity| identity.model.clone());
        for step in record.steps() {
            if self.written.insert(step.id()) {
                line.step(step, &tools, self);
            } else if !step.chunk().is_marker() {
                self.notes.count("step", "written once, though read on several branches");
            }
        }
        line.refer();
        let mut trajectories: Vec<Trajectory> = Vec::new();
        for (head, id) in std::mem::take(&mut line.asides) {
            if depth + 1 >= DEPTH_MOST {
                self.notes.count("branch", "left out: it is kept aside too deep inside of others");
                line.forget(&id);
                continue;
            }
            let record = Record::at(head);
            let name = record.steps().into_iter().find_map(|step| match step.chunk() {
                Chunk::Forked(forked) if !self.written.contains(&step.id()) => forked.name.clone(),
                _ => None,
            });
            trajectories.push(self.trajectory(&record, id, name, depth + 1));
        }
        let total = line.total;
        let (name, version) = (name.unwrap_or_else(|| "rath".to_owned()), env!("CARGO_PKG_VERSION"));
        let final_metrics = FinalMetrics {
            total_prompt_tokens: total.input,
            total_completion_tokens: total.output,
            total_cached_tokens: total.cached_read,
            total_cost_usd: line.cost,
            total_steps: line.steps.len() as u64,
        };
        Trajectory {
            schema_version: VERSION,
            session_id: self.id.clone(),
            trajectory_id: id,
            agent: Agent {
                name,
                version,
                model_name: model,
                tool_definitions: tools.into_iter().map(Tool::of).collect(),
            },
            steps: line.steps,
            final_metrics,
            extra: Extra { rath: Whole { chunks: line.chunks } },
            subagent_trajectories: trajectories,
        }
    }

    fn text(&self, text: &Text) -> String {
        if text.as_str().is_none() {
            self.notes.count("text", "not at hand: the document says so in its place");
        }
        text.to_string()
    }

    fn content(&self, text: &Text, images: &[Image]) -> Content {
        let text = self.text(text);
        let parts: Vec<Part> = images.iter().filter_map(|image| self.part(image)).collect();
        if parts.is_empty() {
            return Content::Text(text);
        }
        let text = (!text.is_empty()).then_some(Part { r#type: "text", text: Some(text), source: None });
        Content::Parts(text.into_iter().chain(parts).collect())
    }

    fn part(&self, image: &Image) -> Option<Part> {
        let known = ["image/jpeg", "image/png", "image/gif", "image/webp"].contains(&&*image.media_type);
        let Some(data) = image.blob.data().filter(|_| known) else {
            self.notes.count("picture", "left out: it is not at hand, or of a kind that the format does not know");
            return None;
        };
        let path = format!("data:{};base64,{}", image.media_type, BASE64.encode(data));
        let source = ImageSource { media_type: image.media_type.clone(), path };
        Some(Part { r#type: "image", text: None, source: Some(source) })
    }

    fn cost(&self, answer: &Assistant, usage: Option<Usage>) -> Option<f64> {
        #[derive(serde::Deserialize)]
        struct Facts {
            cost_usd: f64,
        }
        let told = answer.facts.as_ref().and_then(|facts| serde_json::from_str::<Facts>(facts.as_str()).ok());
        let price = || Some(self.prices.get(answer.provider.as_ref()?)?.cost(usage?).as_dollars());
        told.map(|facts| facts.cost_usd).or_else(price)
    }
}

/// A trajectory as far as it is written.
#[derive(Default)]
struct Line {
    steps: Vec<StepObject>,
    chunks: Vec<Beside>,
    /// Where the calls without a result stand: the number of the step. A result means the newest turn's.
    waiting: HashMap<CallId, VecDeque<usize>>,
    /// The number of the step that each step of the record became a part of.
    numbers: HashMap<StepId, u64>,
    progress: HashMap<StepId, Vec<Kept>>,
    /// What is kept aside, by the name that it is referred to by.
    asides: Vec<(Step, String)>,
    /// Of those, the ones that nothing refers to yet.
    unreferred: Vec<String>,
    total: Usage,
    cost: Option<f64>,
}

impl Line {
    fn step(&mut self, step: &Step, tools: &[ToolSpec], writer: &Writer<'_>) {
        const IN_ORDER: &str = "not written: steps stand in the order in which they are read";
        // Work for a call is kept right before its result.
        if !matches!(step.chunk(), Chunk::ToolResult(_)) && !is_aside(step.chunk()) {
            self.refer();
        }
        let rath = Beside::of(step.stamp());
        match step.chunk() {
            Chunk::User(user) => {
                let message = writer.content(&user.text, &user.images);
                self.push(step, StepObject { message, ..StepObject::new("user", rath) });
            }
            Chunk::Instructions(instructions) => {
                let other = (instructions.tools != tools).then(|| instructions.tools.clone());
                let provider = instructions.provider.clone();
                let rath = Beside { tools: other, provider, stands_for: Some(Stands::Instructions), ..rath };
                self.system(step, writer.text(&instructions.text), rath);
            }
            Chunk::Assistant(answer) => self.answer(step, answer, rath, writer),
            Chunk::ToolResult(result) => self.result(step, result, rath, writer),
            Chunk::Compressed(compressed) => {
                let Compressed { hidden, kept, summary } = compressed;
                let numbers = |ids: &[StepId]| {
                    let mut numbers: Vec<u64> = ids.iter().filter_map(|id| self.numbers.get(id).copied()).collect();
                    numbers.dedup();
                    numbers
                };
                let (hidden, kept) = (numbers(hidden), numbers(kept));
                let rath = Beside { hidden, kept, stands_for: Some(Stands::Compressed), ..rath };
                self.system(step, writer.text(summary), rath);
            }
            Chunk::Memory(memory) => match &memory.event {
                MemoryEvent::Recall { found, .. } if !found.is_empty() => {
                    let text: Vec<_> = found.iter().map(|recalled| writer.text(&recalled.text)).collect();
                    self.system(step, text.join("\n\n"), Beside { chunk: Some(Kept::of(step)), ..rath });
                }
                _ => self.keep(step, rath),
            },
            Chunk::Merged(merged) if merged.strategy == Strategy::Aside => {
                if let Some(head) = step.parents().get(1).and_then(|theirs| theirs.step()) {
                    self.aside(head);
                }
            }
            Chunk::Forked(_) => {
                writer.notes.count("fork", IN_ORDER);
            }
            Chunk::Merged(_) => {
                writer.notes.count("merge", IN_ORDER);
            }
            Chunk::Detached(_) => {
                writer.notes.count("detachment", IN_ORDER);
            }
            // Those of calls that are open stand at the answer; those of others say nothing any more.
            Chunk::ToolStarted(_) | Chunk::Approved(_) | Chunk::Denied(_) => {}
            _ => self.keep(step, rath),
        }
    }

    fn answer(&mut self, step: &Step, answer: &Assistant, rath: Beside, writer: &Writer<'_>) {
        let usage = step.stamp().usage;
        let open = self.progress.remove(&step.id()).unwrap_or_default();
        let cost = writer.cost(answer, usage);
        // What the format has a member for is not told twice.
        let rath = Beside { usage: rath.usage.filter(|usage| plain(*usage) != *usage), ..rath }.answer(answer, open);
        let calls = answer.calls.iter().map(|call| ToolCall::of(call, writer));
        let reasoning = Some(writer.text(&answer.reasoning)).filter(|reasoning| !reasoning.is_empty());
        let object = StepObject {
            model_name: answer.provider.as_ref().map(|identity| identity.model.clone()),
            message: writer.content(&answer.text, &[]),
            reasoning_content: reasoning,
            tool_calls: calls.collect(),
            metrics: usage.map(|usage| Metrics {
                prompt_tokens: usage.input,
                completion_tokens: usage.output,
                cached_tokens: usage.cached_read,
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

    fn result(&mut self, step: &Step, result: &chunk::ToolResult, rath: Beside, writer: &Writer<'_>) {
        let Some(at) = self.waiting.get_mut(&result.call).and_then(VecDeque::pop_front) else {
            self.refer();
            return self.keep(step, rath);
        };
        let last = self.steps.len();
        let after = (at + 1 != last).then_some(last as u64);
        let refs = self.unreferred.drain(..).map(Reference::to).collect();
        let observed = Observed {
            source_call_id: Some(result.call.to_string()),
            content: Some(writer.text(&result.output)),
            subagent_trajectory_ref: refs,
            extra: Some(Extra { rath: Beside { after, ..rath.result(result) } }),
        };
        self.numbers.insert(step.id(), at as u64 + 1);
        self.steps[at].observe(observed);
    }

    fn system(&mut self, step: &Step, message: String, rath: Beside) {
        self.push(step, StepObject { message: Content::Text(message), ..StepObject::new("system", rath) });
    }

    /// Keeps a chunk that is no step, where it stands.
    fn keep(&mut self, step: &Step, rath: Beside) {
        let after = Some(self.steps.len() as u64);
        self.chunks.push(Beside { chunk: Some(Kept::of(step)), after, ..rath });
    }

    fn push(&mut self, step: &Step, mut object: StepObject) {
        object.step_id = self.steps.len() as u64 + 1;
        object.timestamp = step.stamp().at.and_then(time::to_text);
        if object.timestamp.is_some() {
            object.extra.rath.at = None;
        }
        self.numbers.insert(step.id(), object.step_id);
        self.steps.push(object);
    }

    fn aside(&mut self, head: &Step) {
        let branch = head.stamp().branch.to_string();
        let taken = |name: &str| self.asides.iter().any(|(_, known)| known == name);
        let mut others = (2_u64..).map(|nth| format!("{branch}-{nth}"));
        let name = if taken(&branch) { others.find(|name| !taken(name)) } else { None }.unwrap_or(branch);
        self.unreferred.push(name.clone());
        self.asides.push((head.clone(), name));
    }

    /// Refers to what was kept aside and belongs to no call.
    fn refer(&mut self) {
        if self.unreferred.is_empty() {
            return;
        }
        let refs = self.unreferred.drain(..).map(Reference::to).collect();
        let observed = Observed { source_call_id: None, content: None, subagent_trajectory_ref: refs, extra: None };
        if self.steps.last().is_none_or(|step| step.source != "agent") {
            let rath = Beside { stands_for: Some(Stands::Asides), ..Beside::default() };
            let message = Content::Text("work of others is kept here".to_owned());
            let step_id = self.steps.len() as u64 + 1;
            self.steps.push(StepObject { step_id, message, ..StepObject::new("system", rath) });
        }
        if let Some(last) = self.steps.last_mut() {
            last.observe(observed);
        }
    }

    /// Takes back every reference to a trajectory that is not there.
    fn forget(&mut self, id: &str) {
        for observation in self.steps.iter_mut().filter_map(|step| step.observation.as_mut()) {
            for observed in &mut observation.results {
                observed.subagent_trajectory_ref.retain(|reference| reference.trajectory_id != id);
            }
        }
    }
}

/// The tools that the agent has last.
fn newest_tools(record: &Record) -> Vec<ToolSpec> {
    let instructions = record.newest_first().find_map(|step| match step.chunk() {
        Chunk::Instructions(instructions) => Some(instructions.tools.clone()),
        _ => None,
    });
    instructions.unwrap_or_default()
}

fn asked(chunk: &Chunk) -> Option<&Identity> {
    match chunk {
        Chunk::Assistant(answer) => answer.provider.as_ref(),
        Chunk::Instructions(instructions) => instructions.provider.as_ref(),
        _ => None,
    }
}

fn is_aside(chunk: &Chunk) -> bool {
    matches!(chunk, Chunk::Merged(merged) if merged.strategy == Strategy::Aside)
}

/// The part of usage that the format has members for.
fn plain(usage: Usage) -> Usage {
    Usage { cached_read: usage.cached_read, ..Usage::new(usage.input, usage.output) }
}

#[derive(Serialize)]
struct Trajectory {
    schema_version: &'static str,
    session_id: String,
    trajectory_id: String,
    agent: Agent,
    steps: Vec<StepObject>,
    final_metrics: FinalMetrics,
    extra: Extra<Whole>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subagent_trajectories: Vec<Trajectory>,
}

#[derive(Serialize)]
struct Extra<T> {
    rath: T,
}

#[derive(Serialize)]
struct Agent {
    name: String,
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_name: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_definitions: Vec<Tool>,
}

#[derive(Serialize)]
struct Tool {
    r#type: &'static str,
    function: Function,
}

#[derive(Serialize)]
struct Function {
    name: String,
    description: String,
    parameters: Json,
}

impl Tool {
    fn of(ToolSpec { name, description, parameters }: ToolSpec) -> Self {
        Tool { r#type: "function", function: Function { name, description, parameters } }
    }
}

#[derive(Serialize)]
struct StepObject {
    step_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_name: Option<String>,
    message: Content,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observation: Option<Observation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<Metrics>,
    extra: Extra<Beside>,
}

impl StepObject {
    fn new(source: &'static str, rath: Beside) -> Self {
        StepObject {
            step_id: 0,
            timestamp: None,
            source,
            model_name: None,
            message: Content::Text(String::new()),
            reasoning_content: None,
            tool_calls: Vec::new(),
            observation: None,
            metrics: None,
            extra: Extra { rath },
        }
    }

    fn observe(&mut self, observed: Observed) {
        self.observation.get_or_insert(Observation { results: Vec::new() }).results.push(observed);
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Serialize)]
struct Part {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<ImageSource>,
}

#[derive(Serialize)]
struct ImageSource {
    media_type: String,
    path: String,
}

#[derive(Serialize)]
struct ToolCall {
    tool_call_id: String,
    function_name: String,
    arguments: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<Extra<Beside>>,
}

impl ToolCall {
    fn of(call: &chunk::Call, writer: &Writer<'_>) -> Self {
        let written = writer.text(&call.arguments);
        let raw = RawValue::from_string(written.trim().to_owned()).ok();
        // The whole of it has to be an object, with nothing around it, or it would not come back as it was.
        let object = raw.filter(|raw| raw.get().starts_with('{') && raw.get() == written);
        let nothing = || RawValue::from_string("{}".to_owned()).expect("an object");
        if object.is_none() && !written.trim().is_empty() {
            writer
                .notes
                .count("call", "written without arguments: what the model wrote is not an object, and stands beside");
        }
        let extra = object.is_none().then(|| Extra { rath: Beside { arguments: Some(written), ..Beside::default() } });
        ToolCall {
            tool_call_id: call.id.to_string(),
            function_name: call.tool.to_string(),
            arguments: object.unwrap_or_else(nothing),
            extra,
        }
    }
}

#[derive(Serialize)]
struct Observation {
    results: Vec<Observed>,
}

#[derive(Serialize)]
struct Observed {
    #[serde(skip_serializing_if = "Option::is_none")]
    source_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subagent_trajectory_ref: Vec<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<Extra<Beside>>,
}

#[derive(Serialize)]
struct Reference {
    trajectory_id: String,
}

impl Reference {
    fn to(trajectory_id: String) -> Self {
        Reference { trajectory_id }
    }
}

#[derive(Serialize)]
struct Metrics {
    prompt_tokens: u64,
    completion_tokens: u64,
    cached_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_usd: Option<f64>,
}

#[derive(Serialize)]
struct FinalMetrics {
    total_prompt_tokens: u64,
    total_completion_tokens: u64,
    total_cached_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_cost_usd: Option<f64>,
    total_steps: u64,
}
