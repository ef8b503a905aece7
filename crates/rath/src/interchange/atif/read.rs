//! From a trajectory to a session.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rath_record::chunk::{
    Assistant, Call, Chunk, Compressed, Identity, Image, Instructions, Json, Outcome, ToolResult, ToolSpec, User,
};
use rath_record::{BranchId, Record, StepId, Text, Usage, draw};
use serde_json::value::RawValue;

use super::{CAME_FROM, DEPTH_MOST, Whole};
use crate::error::ErrorKind;
use crate::interchange::Imported;
use crate::interchange::beside::{Beside, Stands};
use crate::interchange::members::{Members, Notes};
use crate::interchange::rebuild::Rebuild;
use crate::interchange::time;
use crate::session::Session;
use crate::session::{Error, Result};

/// Reads a trajectory of any agent, of any version 1.
///
/// It is one document: cut off, nothing of it can be read. What others tell and a session has no place for is left out,
/// and said.
pub fn read(bytes: &[u8]) -> Result<Imported> {
    let notes = Notes::default();
    let text = std::str::from_utf8(bytes).map_err(|error| not_one(&error.to_string()))?;
    let mut root = Members::read("the trajectory", text.trim_start_matches('\u{feff}'), &notes).map_err(|error| {
        let cut = error.is_eof();
        let error = not_one(&error.to_string());
        if cut { error.with_hint("the document is cut off; it can only be read whole") } else { error }
    })?;
    match root.text("schema_version").as_deref().and_then(|version| version.strip_prefix("ATIF-v")) {
        Some(version) if version.split('.').next() == Some("1") => {
            let newer =
                version.split('.').nth(1).and_then(|minor| minor.parse().ok()).is_none_or(|minor: u32| minor > 8);
            if newer {
                notes.add(format!(
                    "the version {} is newer than 1.8: what it added is left out",
                    draw::preview(version)
                ));
            }
        }
        Some(version) => {
            return Err(Error::new(
                ErrorKind::Format,
                format_args!("wanted a trajectory of version 1, found version {}", draw::preview(version)),
            )
            .with_hint("read it with a newer rath"));
        }
        None => return Err(not_one("there is no `schema_version` that begins with `ATIF-v`")),
    }
    let continued = root.text("continued_trajectory_ref");
    if let Some(path) = &continued {
        notes.add(format!("it goes on in another document, which is not read: {}", draw::preview(path)));
    }
    let record = Reader { notes: &notes }.trajectory(root, None, 0);
    Ok(Imported { session: Session::resume(record), notes: notes.into_list(), closed: continued.is_none() })
}

fn not_one(found: &str) -> Error {
    Error::new(ErrorKind::Format, format_args!("wanted an ATIF trajectory: {found}"))
        .with_hint(r#"a trajectory is one JSON object: {"schema_version": "ATIF-v1.8", "agent": {..}, "steps": [..]}"#)
}

struct Reader<'n> {
    notes: &'n Notes,
}

/// What is known of a trajectory while its steps are read.
struct Line {
    rebuild: Rebuild,
    tools: Vec<ToolSpec>,
    /// Whether rath wrote it.
    ours: bool,
    /// What others said to the agent before anything else, which is what it is told.
    told: Vec<String>,
    begun: bool,
    /// The steps of the record that each step became, by its number.
    made: HashMap<u64, Vec<StepId>>,
    /// Results that came later than their step, by the step that they came after.
    late: BTreeMap<u64, Vec<(u64, ToolResult, Beside)>>,
    chunks: BTreeMap<u64, Vec<Beside>>,
    subs: HashMap<String, Record>,
    kept: HashSet<String>,
    counted: Usage,
}

impl<'n> Reader<'n> {
    fn trajectory(&self, mut root: Members<'n>, nested: Option<u64>, depth: usize) -> Record {
        let notes = self.notes;
        let ids = ["trajectory_id", "session_id"].map(|name| root.text(name));
        let named =
            |id: &Option<String>| uuid::Uuid::try_parse(id.as_deref()?).ok().map(|id| BranchId(id.into_bytes()));
        // Sub-agents share the id of a session: that is not theirs.
        let branch = named(&ids[0]).or_else(|| nested.is_none().then(|| named(&ids[1]))?);
        let ours: Option<Whole> = root.object("extra").and_then(|mut extra| {
            let ours = extra.get("rath", "what rath writes there");
            extra.end();
            ours
        });
        let agent = root.object("agent").map(|agent| Agent::read(agent, notes)).unwrap_or_default();
        let mut line = Line::on(branch, agent.tools, ours.is_some());
        match nested {
            Some(nth) => line.rebuild.named(agent.name.unwrap_or_default(), nth),
            None if ours.is_none() => {
                let kept = serde_json::json!({
                    "trajectory_id": ids[0], "session_id": ids[1],
                    "agent": agent.name, "version": agent.version, "model": agent.model,
                });
                line.rebuild.note(format!("{CAME_FROM}{kept}"), None, None);
            }
            None => {}
        }
        for beside in ours.map(|ours| ours.chunks).unwrap_or_default() {
            line.chunks.entry(beside.after.unwrap_or_default()).or_default().push(beside);
        }
        for (raw, nth) in root.list("subagent_trajectories").iter().zip(1_u64..) {
            self.sub(&mut line, &root, raw, nth, depth);
        }
        line.after(0, notes);
        let steps = root.list("steps");
        for (raw, number) in steps.iter().zip(1_u64..) {
            if let Some(step) = Members::of(format!("{}, step {number}", root.place()), raw, notes) {
                self.step(&mut line, step, number);
            }
            line.after(number, notes);
        }
        line.begin();
        line.after_all(notes);
        if let Some(text) = root.text("notes") {
            line.rebuild.note(text, None, None);
        }
        if let Some(totals) = root.object("final_metrics") {
            line.totals(totals);
        }
        for id in
            line.subs.keys().filter(|id| !line.kept.contains(*id)).cloned().collect::<std::collections::BTreeSet<_>>()
        {
            notes.count("sub-agent's trajectory", "kept at the end: nothing refers to it");
            line.keep(&id);
        }
        line.rebuild.settle(notes);
        root.end();
        line.rebuild.into_record()
    }

    fn sub(&self, line: &mut Line, root: &Members<'n>, raw: &RawValue, nth: u64, depth: usize) {
        if depth + 1 >= DEPTH_MOST {
            return self.notes.count("sub-agent's trajectory", "left out: it stands too deep inside of others");
        }
        let Some(sub) = Members::of(format!("{}, sub-agent {nth}", root.place()), raw, self.notes) else { return };
        // The id is read twice: here, for those who refer to it.
        #[derive(serde::Deserialize)]
        struct Id {
            trajectory_id: String,
        }
        let id = serde_json::from_str::<Id>(raw.get()).map(|id| id.trajectory_id);
        let id = id.unwrap_or_else(|_| {
            sub.note("there is no `trajectory_id`, so that nothing can refer to it");
            format!("\0{nth}")
        });
        let mut sub = sub;
        sub.text("schema_version");
        if let Some(path) = sub.text("continued_trajectory_ref") {
            sub.note(format_args!("it goes on in another document, which is not read: {}", draw::preview(&path)));
        }
        let record = self.trajectory(sub, Some(nth), depth + 1);
        if line.subs.insert(id, record).is_some() {
            self.notes.count("sub-agent's trajectory", "left out: another has the same id");
        }
    }

    fn step(&self, line: &mut Line, mut step: Members<'n>, number: u64) {
        if step.number("step_id") != Some(number) {
            step.note(format_args!("wanted {number} as `step_id`"));
        }
        let mut beside = beside(&mut step, self.notes);
        let timestamp = step.text("timestamp");
        beside.at = timestamp.as_deref().and_then(time::from_text).or(beside.at);
        if timestamp.is_some() && beside.at.is_none() {
            step.note("wanted a time in the form of ISO 8601 as `timestamp`");
        }
        if step.raw("reasoning_effort").is_some() {
            self.notes.count("level of effort", "left out");
        }
        if step.number("llm_call_count").is_some_and(|calls| calls != 1) {
            self.notes.count("step", "of no model call, or of several, taken as one answer");
        }
        let copied = step.get::<bool>("is_copied_context", "true or false") == Some(true);
        let message = self.content(&mut step, "message").unwrap_or_default();
        let made = match step.text("source").as_deref() {
            Some("user") => {
                line.begin();
                let (text, images) = message;
                vec![line.rebuild.push(Chunk::User(User { text: text.into(), images }), &beside)]
            }
            Some("agent") => self.agent(line, &mut step, number, message, (beside, copied)),
            Some("system") => self.system(line, &mut step, message.0, beside),
            found => {
                let found = found.map_or("none".to_owned(), draw::preview);
                step.note(format_args!(
                    "wanted `user`, `agent` or `system` as `source`, found {found}: kept as a remark"
                ));
                vec![line.rebuild.note(message.0, beside.at, beside.usage)]
            }
        };
        line.made.entry(number).or_default().extend(made);
        self.observation(line, &mut step, number, None);
        step.end();
    }

    fn agent(
        &self,
        line: &mut Line,
        step: &mut Members<'n>,
        number: u64,
        (text, images): (String, Vec<Image>),
        (mut beside, copied): (Beside, bool),
    ) -> Vec<StepId> {
        line.begin();
        let lost = line.rebuild.give_up();
        self.notes.count_many(lost, "call", "without a result, though the agent went on: what came of it is not known");
        self.notes.count_many(images.len() as u64, "picture", "in an answer left out");
        let metrics = step.object("metrics").map(|metrics| Measured::read(metrics, self.notes)).unwrap_or_default();
        beside.usage = beside.usage.or(metrics.usage).filter(|_| !copied);
        line.counted += beside.usage.unwrap_or_default();
        let model = step.text("model_name");
        let raw = step.list("tool_calls");
        let place = step.place().to_owned();
        let calls: Vec<Call> = raw
            .iter()
            .zip(1_u64..)
            .filter_map(|(raw, nth)| self.call(Members::of(format!("{place}, call {nth}"), raw, self.notes)?, nth))
            .collect();
        let ids: Vec<_> = calls.iter().map(|call| call.id.to_string()).collect();
        let mut answer = Assistant {
            text: text.into(),
            reasoning: step.text("reasoning_content").map(Text::from).unwrap_or_default(),
            calls,
            provider: model.map(|model| identity(&model)),
            facts: metrics.cost.map(|cost| Json::from(serde_json::json!({ "cost_usd": cost }))),
            ..Assistant::default()
        };
        beside.fill_answer(&mut answer);
        let mut made = vec![line.rebuild.answer(answer, &beside, beside.progress.as_deref())];
        made.extend(self.observation(line, step, number, Some(&ids)));
        made
    }

    fn call(&self, mut call: Members<'n>, nth: u64) -> Option<Call> {
        let beside = beside(&mut call, self.notes);
        let id = call.text("tool_call_id").unwrap_or_else(|| {
            call.note("there is no `tool_call_id`");
            format!("call-{nth}")
        });
        let Some(name) = call.text("function_name") else {
            call.note("there is no `function_name`: the call is left out");
            return None;
        };
        let raw = call.raw("arguments");
        if !raw.as_ref().is_some_and(|raw| raw.get().starts_with('{')) {
            call.note("wanted an object as `arguments`");
        }
        let arguments = beside.arguments.or(raw.map(|raw| raw.get().to_owned())).unwrap_or_default();
        call.end();
        Some(Call::new(id, Arc::<str>::from(name), arguments))
    }

    fn system(&self, line: &mut Line, step: &mut Members<'n>, text: String, mut beside: Beside) -> Vec<StepId> {
        if let Some(kept) = beside.chunk.take() {
            line.begin();
            return match kept.chunk() {
                Some(chunk) => vec![line.rebuild.push(chunk, &beside)],
                None => {
                    step.note("what rath kept there cannot be read: the words are kept as a remark");
                    vec![line.rebuild.note(text, beside.at, beside.usage)]
                }
            };
        }
        match beside.stands_for {
            Some(Stands::Asides) => Vec::new(),
            Some(Stands::Instructions) => {
                line.begin();
                let tools = beside.tools.take().unwrap_or_else(|| line.tools.clone());
                let instructions = Instructions { text: text.into(), tools, provider: beside.provider.take() };
                vec![line.rebuild.push(Chunk::Instructions(instructions), &beside)]
            }
            Some(Stands::Compressed) => {
                line.begin();
                let made = |numbers: &[u64]| {
                    numbers.iter().filter_map(|number| line.made.get(number)).flatten().copied().collect()
                };
                let (hidden, kept) = (made(&beside.hidden), made(&beside.kept));
                let compressed = Compressed { hidden, kept, summary: text.into() };
                vec![line.rebuild.push(Chunk::Compressed(compressed), &beside)]
            }
            // What stands before everything else is what an agent is told. Later it may be anything that the system said
            // to whomever: an agent that goes on must not take that for what it is told.
            None if !line.begun => {
                line.told.push(text);
                Vec::new()
            }
            None => {
                self.notes.count("system step", "in the middle kept as a remark, which no model reads");
                vec![line.rebuild.note(text, beside.at, beside.usage)]
            }
        }
    }

    /// What came of the calls of an agent's step, or what else was observed; only an agent's step has `calls`.
    fn observation(
        &self,
        line: &mut Line,
        step: &mut Members<'n>,
        number: u64,
        calls: Option<&[String]>,
    ) -> Vec<StepId> {
        let mut made = Vec::new();
        let Some(mut observation) = step.object("observation") else { return made };
        let place = observation.place().to_owned();
        let results: Vec<_> = observation
            .list("results")
            .iter()
            .zip(1_u64..)
            .filter_map(|(raw, nth)| Members::of(format!("{place}, result {nth}"), raw, self.notes))
            .map(|mut result| (result.text("source_call_id"), result))
            .collect();
        observation.end();
        // A result that does not say whose it is belongs to the first call that no other result is for.
        let free =
            calls.unwrap_or_default().iter().filter(|id| !results.iter().any(|(call, _)| call.as_ref() == Some(id)));
        let mut free = free.cloned().collect::<Vec<_>>().into_iter();
        for (call, mut result) in results {
            let mut beside = beside(&mut result, self.notes);
            let content = self.content(&mut result, "content");
            let referred: Vec<_> = result.list("subagent_trajectory_ref");
            for raw in &referred {
                if let Some(reference) = Members::of(format!("{}, reference", result.place()), raw, self.notes) {
                    self.refer(line, reference);
                }
            }
            let call = call.or_else(|| content.as_ref().and_then(|_| free.next()));
            let (text, images) = content.clone().unwrap_or_default();
            self.notes.count_many(images.len() as u64, "picture", "in a result left out: a result is text");
            result.end();
            match call {
                Some(call) => {
                    let mut closed = ToolResult::new(call, Outcome::Ok, text);
                    beside.fill_result(&mut closed);
                    match beside.after {
                        Some(after) => line.late.entry(after).or_default().push((number, closed, beside)),
                        None => made.push(line.close(closed, &beside, self.notes)),
                    }
                }
                None if content.is_none() => {}
                // Only an agent reads what came of what it did.
                None if calls.is_some() => {
                    self.notes.count("observation", "without a call taken as what the user said");
                    made.push(line.rebuild.push(Chunk::user(text), &beside));
                }
                None => made.push(line.rebuild.note(text, beside.at, None)),
            }
        }
        made
    }

    fn refer(&self, line: &mut Line, mut reference: Members<'n>) {
        let id = reference.text("trajectory_id");
        let path = reference.text("trajectory_path");
        reference.text("session_id");
        reference.raw("extra");
        match id {
            Some(id) if line.subs.contains_key(&id) => line.keep(&id),
            id => {
                let what = id.or(path).unwrap_or_default();
                reference
                    .note(format_args!("the sub-agent's trajectory is not in this document: {}", draw::preview(&what)));
            }
        }
        reference.end();
    }

    /// Words and pictures.
    fn content(&self, members: &mut Members<'n>, name: &str) -> Option<(String, Vec<Image>)> {
        let raw = members.raw(name)?;
        if let Ok(text) = serde_json::from_str::<String>(raw.get()) {
            return Some((text, Vec::new()));
        }
        let Ok(parts) = serde_json::from_str::<Vec<Box<RawValue>>>(raw.get()) else {
            members.note(format_args!("wanted a string or a list of parts as `{name}`: it is taken as it is written"));
            return Some((raw.get().to_owned(), Vec::new()));
        };
        let (mut texts, mut images) = (Vec::new(), Vec::new());
        for (raw, nth) in parts.iter().zip(1_u64..) {
            let Some(mut part) = Members::of(format!("{}, part {nth}", members.place()), raw, self.notes) else {
                continue;
            };
            let kind = part.text("type");
            texts.extend(part.text("text"));
            if let Some(mut source) = part.object("source") {
                let media_type = source.text("media_type").unwrap_or_default();
                let path = source.text("path").unwrap_or_default();
                source.raw("duration_sec");
                match picture(&media_type, &path).filter(|_| kind.as_deref() == Some("image")) {
                    Some(image) => images.push(image),
                    None => {
                        part.note(format_args!("left out, for it is not in the document: {}", draw::preview(&path)));
                    }
                }
                source.end();
            }
            part.end();
        }
        Some((texts.join("\n"), images))
    }
}

impl Line {
    fn on(branch: Option<BranchId>, tools: Vec<ToolSpec>, ours: bool) -> Self {
        Line {
            rebuild: Rebuild::on(branch),
            tools,
            ours,
            told: Vec::new(),
            begun: false,
            made: HashMap::new(),
            late: BTreeMap::new(),
            chunks: BTreeMap::new(),
            subs: HashMap::new(),
            kept: HashSet::new(),
            counted: Usage::default(),
        }
    }

    /// Tells the agent what others told it, once that is all known.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.begun, true) || self.ours {
            return;
        }
        let text = std::mem::take(&mut self.told).join("\n\n");
        if !text.is_empty() || !self.tools.is_empty() {
            let instructions = Instructions { text: text.into(), tools: self.tools.clone(), provider: None };
            self.rebuild.push(Chunk::Instructions(instructions), &Beside::default());
        }
    }

    fn close(&mut self, result: ToolResult, beside: &Beside, notes: &Notes) -> StepId {
        let call = result.call.clone();
        let (step, waited) = self.rebuild.result(result, beside);
        if !waited {
            notes.add(format!("a result for `{call}`, which no call waits for, is kept and not shown"));
        }
        step
    }

    /// Appends what came after a step and stands elsewhere.
    fn after(&mut self, number: u64, notes: &Notes) {
        for (of, result, beside) in self.late.remove(&number).unwrap_or_default() {
            let step = self.close(result, &beside, notes);
            self.made.entry(of).or_default().push(step);
        }
        for mut beside in self.chunks.remove(&number).unwrap_or_default() {
            match beside.chunk.take().and_then(|kept| kept.chunk()) {
                Some(chunk) => _ = self.rebuild.push(chunk, &beside),
                None => notes.count("chunk", "of rath cannot be read and is left out"),
            }
        }
    }

    fn after_all(&mut self, notes: &Notes) {
        let numbers: std::collections::BTreeSet<u64> = self.late.keys().chain(self.chunks.keys()).copied().collect();
        if !numbers.is_empty() {
            notes.add("steps that others are said to come after are not there");
        }
        numbers.into_iter().for_each(|number| self.after(number, notes));
    }

    fn keep(&mut self, id: &str) {
        if let Some(work) = self.subs.get(id)
            && self.kept.insert(id.to_owned())
        {
            self.rebuild.keep_aside(work);
        }
    }

    /// Counts what the whole used and no step did.
    fn totals(&mut self, mut totals: Members<'_>) {
        let mut tokens = |name| totals.number(name);
        let [input, output, cached] =
            ["total_prompt_tokens", "total_completion_tokens", "total_cached_tokens"].map(&mut tokens);
        tokens("total_steps");
        if let Some(cost) = totals.get::<f64>("total_cost_usd", "an amount").filter(|_| !self.ours) {
            totals.note(format_args!("what all of it cost, ${cost}, is kept where an answer tells its part"));
        }
        totals.raw("extra");
        let counted = self.counted;
        let beyond = |total: Option<u64>, counted: u64| total.unwrap_or(counted).saturating_sub(counted);
        let rest = Usage {
            cached_read: beyond(cached, counted.cached_read),
            ..Usage::new(beyond(input, counted.input), beyond(output, counted.output))
        };
        if input.is_some_and(|input| input < counted.input) || output.is_some_and(|output| output < counted.output) {
            totals.note(format_args!("counts fewer tokens than the steps, which is {counted}"));
        }
        if rest != Usage::default() {
            totals.note(format_args!("counts more tokens than the steps: {rest}"));
            self.rebuild.note("tokens that the trajectory counts and no step of it used", None, Some(rest));
        }
        totals.end();
    }
}

/// Who acted.
#[derive(Default)]
struct Agent {
    name: Option<String>,
    version: Option<String>,
    model: Option<String>,
    tools: Vec<ToolSpec>,
}

impl Agent {
    fn read(mut agent: Members<'_>, notes: &Notes) -> Self {
        let [name, version, model] = ["name", "version", "model_name"].map(|name| agent.text(name));
        if agent.raw("extra").is_some() {
            agent.note("its `extra` is left out");
        }
        let place = agent.place().to_owned();
        let tools = agent.list("tool_definitions");
        let tools = tools
            .iter()
            .zip(1_u64..)
            .filter_map(|(raw, nth)| tool(Members::of(format!("{place}, tool {nth}"), raw, notes)?));
        let tools = tools.collect();
        agent.end();
        Agent { name, version, model, tools }
    }
}

/// A tool, in the form of one server or another.
fn tool(mut tool: Members<'_>) -> Option<ToolSpec> {
    let inner = tool.object("function");
    let mut spec = inner.unwrap_or(tool);
    let Some(name) = spec.text("name") else {
        spec.note("there is no `name`: the tool is left out");
        return None;
    };
    let description = spec.text("description").unwrap_or_default();
    let parameters = spec.raw("parameters").or_else(|| spec.raw("input_schema")).map(Json::from);
    let any = || Json::from(serde_json::json!({ "type": "object" }));
    Some(ToolSpec::new(name, description, parameters.unwrap_or_else(any)))
}

/// What a model call used.
#[derive(Default)]
struct Measured {
    usage: Option<Usage>,
    cost: Option<f64>,
}

impl Measured {
    fn read(mut metrics: Members<'_>, notes: &Notes) -> Self {
        let [input, output, cached] =
            ["prompt_tokens", "completion_tokens", "cached_tokens"].map(|name| metrics.number(name));
        let cost = metrics.get("cost_usd", "an amount");
        for name in ["prompt_token_ids", "completion_token_ids", "logprobs"] {
            if metrics.raw(name).is_some() {
                notes.count("list of tokens", "left out: a session holds words");
            }
        }
        let reasoning = metrics.object("extra").and_then(|mut extra| extra.number("reasoning_tokens"));
        let usage = Usage {
            cached_read: cached.unwrap_or_default(),
            reasoning: reasoning.unwrap_or_default(),
            ..Usage::new(input.unwrap_or_default(), output.unwrap_or_default())
        };
        metrics.end();
        Measured { usage: (input.is_some() || output.is_some()).then_some(usage), cost }
    }
}

/// What rath wrote into the `extra` of an object.
fn beside(members: &mut Members<'_>, notes: &Notes) -> Beside {
    let Some(mut extra) = members.object("extra") else { return Beside::default() };
    let beside = extra.get("rath", "what rath writes there");
    if !extra.is_empty() {
        notes.count("`extra` member", "left out");
    }
    beside.unwrap_or_default()
}

/// Which model, by a name that may say whose it is.
fn identity(model: &str) -> Identity {
    let (provider, model) = model.split_once('/').unwrap_or(("unknown", model));
    Identity { provider: provider.to_owned(), model: model.to_owned() }
}

/// A picture that stands in the document itself.
fn picture(media_type: &str, path: &str) -> Option<Image> {
    let data = path.strip_prefix("data:")?.strip_prefix(media_type)?.strip_prefix(";base64,")?;
    Some(Image::new(media_type, BASE64.decode(data).ok()?))
}
