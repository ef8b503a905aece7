//! Reading a trajectory as a session.

mod builder;
mod parts;

use std::collections::BTreeSet;

use rath_record::chunk::{
    Assistant, Call, Chunk, Compressed, Image, Instructions, Json, Outcome, ToolResult, ToolSpec, User,
};
use rath_record::{BranchId, Record, Text, draw};
use serde_json::value::RawValue;

use self::builder::{DeferredStep, TrajectoryBuilder};
use self::parts::{AgentInfo, StepMetrics, take_content, take_extras};
use super::{MAX_DEPTH, ORIGIN_PREFIX, TrajectoryExtras, whole};
use crate::error::ErrorKind;
use crate::interchange::Import;
use crate::interchange::extras::{Extras, StepMeaning};
use crate::interchange::notes::{NoteCode, Notes};
use crate::interchange::object::ObjectReader;
use crate::interchange::time;
use crate::secrets::Secrets;
use crate::session::Session;
use crate::session::{Error, Result};

/// Reads a trajectory of any agent, of any version 1.
///
/// A trajectory is one JSON document: nothing can be read from a document that is cut off. Parts that a session has no
/// place for are left out and noted.
///
/// ```
/// use rath::interchange::atif;
/// use rath::prelude::*;
///
/// let export = atif::write(&Session::user("hello"));
/// let import = atif::read(&export.bytes)?;
/// assert_eq!(import.session.chunk_count(), 1);
/// # Ok::<(), Error>(())
/// ```
pub fn read(bytes: &[u8]) -> Result<Import> {
    read_hiding(bytes, &Secrets::default())
}

/// Reads a trajectory as [`read`] does, without these values.
///
/// Texts that look like keys are always hidden.
///
/// ```
/// use rath::interchange::atif;
/// use rath::prelude::*;
/// use rath::secrets::AddOutcome;
///
/// let export = atif::write(&Session::user("log in with correct horse"));
/// let mut secrets = Secrets::default();
/// assert_eq!(secrets.add("PASSWORD", "correct horse"), AddOutcome::Added);
/// let import = atif::read_hiding(&export.bytes, &secrets)?;
/// assert_eq!(import.session.chunks().next(), Some(&Chunk::user("log in with [secret PASSWORD]")));
/// # Ok::<(), Error>(())
/// ```
pub fn read_hiding(bytes: &[u8], secrets: &Secrets) -> Result<Import> {
    let notes = Notes::default();
    let text = std::str::from_utf8(bytes).map_err(|error| not_a_trajectory(&error.to_string()))?;
    let text = text.trim_start_matches('\u{feff}');
    let mut root = ObjectReader::parse("the trajectory", text, &notes).map_err(|error| {
        let is_cut = error.is_eof();
        let error = not_a_trajectory(&error.to_string());
        if is_cut { error.with_hint("the document is cut off; it can only be read whole") } else { error }
    })?;
    check_version(root.take_string("schema_version").as_deref(), &notes)?;
    let continued = root.take_string("continued_trajectory_ref");
    if let Some(path) = &continued {
        notes.add(
            NoteCode::Elsewhere,
            format!("continues in another document, which is not read: {}", draw::preview(path)),
        );
    }
    let whole = whole::read(text, &notes, secrets);
    let record = whole.unwrap_or_else(|| AtifReader { notes: &notes, secrets }.read_trajectory(root, None, 0));
    let session = Session::resume(record).hiding(secrets.clone());
    Ok(Import { session, notes: notes.into_list_hiding(secrets), closed: continued.is_none() })
}

/// Fails unless the version is 1. Notes a minor version above 1.8.
fn check_version(schema_version: Option<&str>, notes: &Notes) -> Result<()> {
    let Some(version) = schema_version.and_then(|version| version.strip_prefix("ATIF-v")) else {
        return Err(not_a_trajectory("there is no `schema_version` that begins with `ATIF-v`"));
    };
    if version.split('.').next() != Some("1") {
        return Err(Error::new(
            ErrorKind::Format,
            format_args!("wanted a trajectory of version 1, found version {}", draw::preview(version)),
        )
        .with_hint("read it with a newer rath"));
    }
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    if minor.is_none_or(|minor| minor > 8) {
        notes.add(
            NoteCode::Newer,
            format!("version {} is newer than 1.8: members that it added are left out", draw::preview(version)),
        );
    }
    Ok(())
}

fn not_a_trajectory(found: &str) -> Error {
    Error::new(ErrorKind::Format, format_args!("wanted an ATIF trajectory: {found}"))
        .with_hint(r#"a trajectory is one JSON object: {"schema_version": "ATIF-v1.8", "agent": {..}, "steps": [..]}"#)
}

/// A reader of one document.
struct AtifReader<'n> {
    notes: &'n Notes,
    secrets: &'n Secrets,
}

impl<'n> AtifReader<'n> {
    /// Reads a trajectory. `nested` is the number of a sub-agent's trajectory within its parent.
    fn read_trajectory(&self, mut root: ObjectReader<'n>, nested: Option<u64>, depth: usize) -> Record {
        let notes = self.notes;
        let ids = ["trajectory_id", "session_id"].map(|name| root.take_string(name));
        let branch_id =
            |id: &Option<String>| uuid::Uuid::try_parse(id.as_deref()?).ok().map(|id| BranchId(id.into_bytes()));
        // Sub-agents share the `session_id` of the document, so it does not identify their branches.
        let branch = branch_id(&ids[0]).or_else(|| nested.is_none().then(|| branch_id(&ids[1]))?);
        let extras: Option<TrajectoryExtras> = root.take_object("extra").and_then(|mut extra| {
            let extras = extra.take("rath", "what rath writes there");
            extra.finish();
            extras
        });
        let agent = root.take_object("agent").map(|agent| AgentInfo::read(agent, notes)).unwrap_or_default();
        let mut builder = TrajectoryBuilder::new(branch, agent.tools, extras.is_some(), self.secrets);
        match nested {
            Some(nth) if extras.is_none() => builder.record.open_branch(agent.name.unwrap_or_default(), nth),
            None if extras.is_none() => {
                let origin = serde_json::json!({
                    "trajectory_id": ids[0], "session_id": ids[1],
                    "agent": agent.name, "version": agent.version, "model": agent.model,
                });
                builder.record.push_note(format!("{ORIGIN_PREFIX}{origin}"), None, None);
            }
            _ => {}
        }
        for extras in extras.map(|extras| extras.chunks).unwrap_or_default() {
            builder.defer(extras.nth.unwrap_or(u64::MAX), DeferredStep::Chunk(extras));
        }
        for (raw, nth) in root.take_list("subagent_trajectories").iter().zip(1_u64..) {
            self.read_subagent(&mut builder, &root, raw, nth, depth);
        }
        let steps = root.take_list("steps");
        let totals = root.take_object("final_metrics");
        builder.assign_uncounted_cost(&steps, totals.as_ref());
        for (raw, number) in steps.iter().zip(1_u64..) {
            let location = format!("{}, step {number}", root.location());
            if let Some(step) = ObjectReader::parse_or_note(location, raw, notes) {
                self.read_step(&mut builder, step, number);
            }
        }
        builder.push_instructions();
        builder.push_deferred(u64::MAX, notes);
        if let Some(text) = root.take_string("notes") {
            builder.record.push_note(text, None, None);
        }
        if let Some(totals) = totals {
            builder.push_uncounted_usage(totals);
        }
        let unreferenced: BTreeSet<_> =
            builder.subagents.keys().filter(|id| !builder.kept_asides.contains(*id)).cloned().collect();
        for id in unreferenced {
            notes.count(NoteCode::Changed, "sub-agent's trajectory", "kept at the end: nothing refers to it");
            builder.keep_aside(&id);
        }
        builder.record.mark_open_calls(notes);
        root.finish();
        builder.record.into_record()
    }

    fn read_subagent(
        &self,
        builder: &mut TrajectoryBuilder,
        parent: &ObjectReader<'n>,
        raw: &RawValue,
        nth: u64,
        depth: usize,
    ) {
        if depth + 1 >= MAX_DEPTH {
            return self.notes.count(NoteCode::LeftOut, "sub-agent's trajectory", "left out: nested too deeply");
        }
        let location = format!("{}, sub-agent {nth}", parent.location());
        let Some(mut subagent) = ObjectReader::parse_or_note(location, raw, self.notes) else { return };
        // `read_trajectory` takes the id out of the object, and references need it here too.
        #[derive(serde::Deserialize)]
        struct SubagentId {
            trajectory_id: String,
        }
        let id = serde_json::from_str::<SubagentId>(raw.get()).map(|id| id.trajectory_id);
        let unreferenced = format!("\0{nth}");
        let id = match id {
            Ok(id) if builder.subagents.contains_key(&id) => {
                subagent
                    .note(NoteCode::Invalid, "an earlier one has the same `trajectory_id`, so nothing can refer to it");
                unreferenced
            }
            Ok(id) => id,
            Err(_) => {
                subagent.note(NoteCode::Invalid, "there is no `trajectory_id`, so nothing can refer to it");
                unreferenced
            }
        };
        subagent.take_string("schema_version");
        if let Some(path) = subagent.take_string("continued_trajectory_ref") {
            subagent.note(
                NoteCode::Elsewhere,
                format_args!("continues in another document, which is not read: {}", draw::preview(&path)),
            );
        }
        let record = self.read_trajectory(subagent, Some(nth), depth + 1);
        builder.subagents.insert(id, record);
    }

    fn read_step(&self, builder: &mut TrajectoryBuilder, mut step: ObjectReader<'n>, number: u64) {
        if step.take_number("step_id") != Some(number) {
            step.note(NoteCode::Invalid, format_args!("wanted {number} as `step_id`"));
        }
        let mut extras = take_extras(&mut step, self.notes);
        let timestamp = step.take_string("timestamp");
        extras.at = timestamp.as_deref().and_then(time::parse).or(extras.at);
        if timestamp.is_some() && extras.at.is_none() {
            step.note(NoteCode::Invalid, "wanted a time in the form of ISO 8601 as `timestamp`");
        }
        if step.take_raw("reasoning_effort").is_some() {
            self.notes.count(NoteCode::LeftOut, "level of reasoning effort", "left out");
        }
        if step.take_number("llm_call_count").is_some_and(|calls| calls != 1) {
            self.notes.count(NoteCode::Changed, "step", "of no model call, or of several, read as one answer");
        }
        builder.push_deferred_before(extras.nth, self.notes);
        let is_copied = step.take::<bool>("is_copied_context", "true or false") == Some(true);
        let message = take_content(&mut step, "message", self.notes).unwrap_or_default();
        match step.take_string("source").as_deref() {
            Some("user") => {
                builder.push_instructions();
                let (text, images) = message;
                builder.push(Chunk::User(User::new(text).with_images(images)), &extras);
            }
            Some("agent") => self.read_agent_step(builder, &mut step, number, message, (extras, is_copied)),
            Some("system") => self.read_system_step(builder, &mut step, message.0, extras),
            found => {
                let found = found.map_or("none".to_owned(), draw::preview);
                step.note(
                    NoteCode::Invalid,
                    format_args!("wanted `user`, `agent` or `system` as `source`, found {found}: kept as a note"),
                );
                builder.push(Chunk::note(message.0), &extras);
            }
        }
        self.read_observation(builder, &mut step, None);
        step.finish();
    }

    fn read_agent_step(
        &self,
        builder: &mut TrajectoryBuilder,
        step: &mut ObjectReader<'n>,
        number: u64,
        (text, images): (String, Vec<Image>),
        (mut extras, is_copied): (Extras, bool),
    ) {
        builder.push_instructions();
        let abandoned = builder.record.close_abandoned_calls();
        self.notes.count_many(
            NoteCode::InDoubt,
            abandoned,
            "call",
            "without a result, though the agent continued: whether it took effect is not known",
        );
        self.notes.count_many(NoteCode::LeftOut, images.len() as u64, "picture", "in an answer left out");
        let metrics =
            step.take_object("metrics").map(|metrics| StepMetrics::read(metrics, self.notes)).unwrap_or_default();
        extras.usage = extras.usage.or(metrics.usage).filter(|_| !is_copied);
        builder.counted += extras.usage.unwrap_or_default();
        let cost = builder.with_uncounted_cost(number, metrics.cost.filter(|_| !is_copied));
        let model = step.take_string("model_name");
        let calls = step.take_list("tool_calls");
        let location = step.location().to_owned();
        let calls: Vec<Call> = calls
            .iter()
            .zip(1_u64..)
            .filter_map(|(raw, nth)| {
                let call = ObjectReader::parse_or_note(format!("{location}, call {nth}"), raw, self.notes)?;
                parts::read_call(call, nth, self.notes)
            })
            .collect();
        let ids: Vec<_> = calls.iter().map(|call| call.id.to_string()).collect();
        let mut answer = Assistant::new(text)
            .with_reasoning(step.take_string("reasoning_content").map(Text::from).unwrap_or_default())
            .with_calls(calls)
            .with_provider(model.map(|model| parts::parse_identity(&model)))
            .with_facts(cost.map(|cost| Json::from(serde_json::json!({ "cost_usd": cost }))));
        extras.fill_answer(&mut answer);
        builder.push_answer(answer, &extras);
        self.read_observation(builder, step, Some(&ids));
    }

    fn read_system_step(
        &self,
        builder: &mut TrajectoryBuilder,
        step: &mut ObjectReader<'n>,
        text: String,
        mut extras: Extras,
    ) {
        if let Some(embedded) = extras.chunk.take() {
            builder.push_instructions();
            let chunk = embedded.decode().unwrap_or_else(|| {
                step.note(NoteCode::Damaged, "the chunk under `rath` cannot be read: the message is kept as a note");
                Chunk::note(text)
            });
            return builder.push(chunk, &extras);
        }
        match extras.stands_for {
            Some(StepMeaning::Asides) => {}
            Some(StepMeaning::Instructions) => {
                builder.push_instructions();
                let tools: Vec<ToolSpec> = extras.tools.take().unwrap_or_else(|| builder.tools.clone());
                let instructions = Instructions::new(text).with_tools(tools).with_provider(extras.provider.take());
                builder.push(Chunk::Instructions(instructions), &extras);
            }
            Some(StepMeaning::Compressed) => {
                builder.push_instructions();
                let steps = |positions: &[u64]| {
                    positions.iter().filter_map(|nth| builder.steps.get(nth)).copied().collect::<Vec<_>>()
                };
                let (hidden, kept) = (steps(&extras.hidden), steps(&extras.kept));
                let compressed = Compressed::new(hidden, text).with_kept(kept);
                builder.push(Chunk::Compressed(compressed), &extras);
            }
            // System steps at the beginning are the prompt. A later one may be any message, for the agent or for others, so
            // it must not become the prompt of a resumed session.
            None if !builder.has_instructions => {
                builder.prompt.push(text);
            }
            None => {
                self.notes.count(
                    NoteCode::Changed,
                    "system step",
                    "in the middle kept as a note, which no model reads",
                );
                builder.push(Chunk::note(text), &extras);
            }
        }
    }

    /// Reads the observation of a step: results of calls, and other things that were observed.
    ///
    /// `calls` holds the ids of an agent's calls; it is none for a step of another source.
    fn read_observation(&self, builder: &mut TrajectoryBuilder, step: &mut ObjectReader<'n>, calls: Option<&[String]>) {
        let Some(mut observation) = step.take_object("observation") else { return };
        let location = observation.location().to_owned();
        let results: Vec<_> = observation
            .take_list("results")
            .iter()
            .zip(1_u64..)
            .filter_map(|(raw, nth)| ObjectReader::parse_or_note(format!("{location}, result {nth}"), raw, self.notes))
            .map(|mut result| (result.take_string("source_call_id"), result))
            .collect();
        observation.finish();
        // A result without the id of a call belongs to the first call that no other result names.
        let unnamed =
            calls.unwrap_or_default().iter().filter(|id| !results.iter().any(|(call, _)| call.as_ref() == Some(id)));
        let mut unnamed = unnamed.cloned().collect::<Vec<_>>().into_iter();
        for (call, mut result) in results {
            let mut extras = take_extras(&mut result, self.notes);
            let content = take_content(&mut result, "content", self.notes);
            for raw in &result.take_list("subagent_trajectory_ref") {
                let location = format!("{}, reference", result.location());
                if let Some(reference) = ObjectReader::parse_or_note(location, raw, self.notes) {
                    self.read_reference(builder, reference);
                }
            }
            let call = call.or_else(|| content.as_ref().and_then(|_| unnamed.next()));
            let (text, images) = content.clone().unwrap_or_default();
            self.notes.count_many(
                NoteCode::LeftOut,
                images.len() as u64,
                "picture",
                "in a result left out: a result is text",
            );
            result.finish();
            match call {
                Some(call) => {
                    let mut result = ToolResult::new(call, Outcome::Ok, text);
                    extras.fill_result(&mut result);
                    match extras.nth {
                        Some(nth) => builder.defer_until_reached(nth, DeferredStep::Result(result, extras)),
                        None => builder.push_result(result, &extras, self.notes),
                    }
                }
                None if content.is_none() => {}
                // An agent reads what it observed, so the text has to stay visible to the model.
                None if calls.is_some() => {
                    self.notes.count(NoteCode::Changed, "observation", "without a call read as a user message");
                    builder.push(Chunk::user(text), &extras);
                }
                None => builder.push(Chunk::note(text), &Extras { usage: None, ..extras }),
            }
        }
    }

    /// Reads a reference to a sub-agent's trajectory and keeps that trajectory aside.
    fn read_reference(&self, builder: &mut TrajectoryBuilder, mut reference: ObjectReader<'n>) {
        let id = reference.take_string("trajectory_id");
        let path = reference.take_string("trajectory_path");
        reference.take_string("session_id");
        let extras = take_extras(&mut reference, self.notes);
        match id {
            Some(id) if builder.subagents.contains_key(&id) => match extras.nth {
                Some(nth) => builder.defer_until_reached(nth, DeferredStep::Aside(id)),
                None => builder.keep_aside(&id),
            },
            id => {
                let target = id.or(path).unwrap_or_default();
                reference.note(
                    NoteCode::Elsewhere,
                    format_args!("the sub-agent's trajectory is not in this document: {}", draw::preview(&target)),
                );
            }
        }
        reference.finish();
    }
}
