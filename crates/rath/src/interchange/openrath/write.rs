//! Writing a session as the rows of a file.

mod schema;

use std::collections::HashMap;
use std::sync::Arc;

use rath_record::chunk::{Assistant, Chunk, MemoryEvent, Strategy, ToolResult, ToolSpec};
use rath_record::graph::Ids;
use rath_record::view::{CallResult, Exchange, Message};
use rath_record::{BranchId, Record, Stamp, Step, StepId, Text, Timestamp, Usage, lineage};
use serde::Serialize;
use serde_json::value::RawValue;

use self::schema::{
    AssistantPayload, CallFunction, CallObject, ChunkRow, HeaderExtras, HeaderRow, MessagePayload, ResultPayload,
    SandboxSpec, TokenCounts, TrailerExtras, TrailerRow,
};
use super::{ORIGIN_PREFIX, SessionOrigin, VERSION};
use crate::interchange::Export;
use crate::interchange::extras::{self, EmbeddedChunk, Extras};
use crate::interchange::notes::{NoteCode, Notes};
use crate::interchange::time;
use crate::session::Session;

/// Writes the messages that a model sees of a session, as a file that the Python OpenRath loads and resumes.
///
/// See [`openrath::read`](fn@super::read) for an example.
pub fn write(session: &Session) -> Export {
    write_with(session, ParentFiles::Missing)
}

/// The files of the sessions that a session descends from.
#[derive(Clone, Copy, PartialEq)]
enum ParentFiles {
    /// They are written too.
    Written,
    Missing,
}

fn write_with(session: &Session, parents: ParentFiles) -> Export {
    let session = session.with_opening();
    let notes = Notes::default();
    let mut rows = JsonLines::default();
    rows.push(&header(&session));
    let count = ChunkWriter::new(&session, &mut rows, &notes).write(&session);
    let usage = session.usage();
    let trailer = TrailerRow {
        record_type: "trailer",
        closed_at: session.as_record().newest_first().find_map(|step| step.stamp().at).and_then(time::format),
        final_chunk_count: count,
        cumulative_usage: (usage != Usage::default()).then(|| TokenCounts {
            prompt_tokens: usage.input,
            completion_tokens: usage.output,
            total_tokens: usage.total(),
        }),
        rath: TrailerExtras { usage },
    };
    rows.push(&trailer);
    note_losses(&session, parents, &notes);
    Export { bytes: rows.0.into_bytes(), notes: notes.into_list() }
}

/// Writes a session and the sessions that it descends from, each as a file of its own, oldest first.
///
/// The Python OpenRath finds a session by its id: the file of each is called `ID.jsonl`.
///
/// ```
/// use rath::interchange::openrath;
/// use rath::prelude::*;
///
/// let session = Session::user("hello");
/// let mut fork = session.fork();
/// fork.push(Chunk::assistant("hi"));
/// let files = openrath::write_all(&fork);
/// assert_eq!(files.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [session.id(), fork.id()]);
///
/// let bytes: Vec<_> = files.into_iter().map(|(_, export)| export.bytes).collect();
/// let imported = openrath::read_all(&bytes)?;
/// assert_eq!(imported[1].session.lineage().ancestors(imported[1].session.head().expect("a step").id())[0].chunk(), &Chunk::user("hello"));
/// # Ok::<(), Error>(())
/// ```
pub fn write_all(session: &Session) -> Vec<(BranchId, Export)> {
    let lineage = session.with_opening().lineage();
    let walk = lineage.walk();
    let branches = lineage::branches(&walk).into_iter();
    branches
        .map(|branch| (branch.id, write_with(&Session::resume(Record::at(branch.head.clone())), ParentFiles::Written)))
        .collect()
}

/// Rows as lines of JSON.
#[derive(Default)]
struct JsonLines(String);

impl JsonLines {
    fn push(&mut self, row: &impl Serialize) {
        let json = serde_json::to_string(row).expect("a row has string keys and finite numbers");
        // The Python OpenRath breaks lines at every line break of Unicode, and JSON allows these three unescaped in strings.
        // Outside of strings they cannot occur, so escaping all of them is correct.
        let escaped = json.chars().map(|c| match c {
            '\u{85}' => Err("\\u0085"),
            '\u{2028}' => Err("\\u2028"),
            '\u{2029}' => Err("\\u2029"),
            c => Ok(c),
        });
        for c in escaped {
            match c {
                Ok(c) => self.0.push(c),
                Err(escape) => self.0.push_str(escape),
            }
        }
        self.0.push('\n');
    }
}

fn header(session: &Session) -> HeaderRow {
    let place = session.place().map(|place| place.to_string());
    let local = place.as_deref().and_then(|place| place.strip_prefix("local:")).map(str::to_owned);
    let origin = noted_origin(session).or_else(|| lineage_origin(session)).unwrap_or_else(|| SessionOrigin {
        id: session.id().to_string(),
        created_at: None,
        parent_session_ids: Vec::new(),
        lineage_operator: "Session.empty".to_owned(),
        lineage_kind: "op_create".to_owned(),
        lineage_extras: Vec::new(),
        sandbox_backend: None,
        sandbox_handle_id: None,
    });
    let began = session.as_record().steps().first().and_then(|step| step.stamp().at).and_then(time::format);
    // The format requires a time. An unknown one is written as the earliest.
    let epoch = || time::format(Timestamp(0)).expect("1970 is a year that Python knows");
    HeaderRow {
        record_type: "header",
        schema_version: VERSION,
        id: origin.id,
        created_at: origin.created_at.or(began).unwrap_or_else(epoch),
        parent_session_ids: origin.parent_session_ids,
        lineage_operator: origin.lineage_operator,
        lineage_kind: origin.lineage_kind,
        lineage_extras: origin.lineage_extras,
        sandbox_backend: local.as_ref().map(|_| "local".to_owned()).or(origin.sandbox_backend),
        sandbox_spec: local.map(|working_dir| SandboxSpec {
            image: None,
            entrypoint: None,
            env: None,
            timeout_seconds: None,
            working_dir,
        }),
        sandbox_handle_id: origin.sandbox_handle_id,
        rath: HeaderExtras { place },
    }
}

/// Returns the origin that an import noted in the record, if the session was imported.
fn noted_origin(session: &Session) -> Option<SessionOrigin> {
    let id = session.id().to_string();
    let origins = session.as_record().newest_first().filter_map(|step| match step.chunk() {
        Chunk::Note(note) => {
            serde_json::from_str::<SessionOrigin>(note.text.as_str()?.strip_prefix(ORIGIN_PREFIX)?).ok()
        }
        _ => None,
    });
    origins.into_iter().find(|origin| origin.id == id)
}

/// Returns the origin that the lineage gives.
fn lineage_origin(session: &Session) -> Option<SessionOrigin> {
    #[derive(serde::Deserialize)]
    struct GraphRow {
        id: String,
        parent_session_ids: Vec<String>,
        lineage_operator: String,
        lineage_kind: String,
        lineage_extras: Vec<(String, Arc<RawValue>)>,
    }
    let id = session.id().to_string();
    let graph = session.export(Ids::Original);
    let rows = graph.lines().filter_map(|line| serde_json::from_str::<GraphRow>(line).ok());
    let row = rows.into_iter().find(|row| row.id == id)?;
    Some(SessionOrigin {
        id,
        created_at: None,
        parent_session_ids: row.parent_session_ids,
        lineage_operator: row.lineage_operator,
        lineage_kind: row.lineage_kind,
        lineage_extras: row.lineage_extras,
        sandbox_backend: None,
        sandbox_handle_id: None,
    })
}

/// A writer of the chunk rows.
struct ChunkWriter<'a> {
    rows: &'a mut JsonLines,
    notes: &'a Notes,
    /// The index of the next row.
    index: u64,
    progress: HashMap<StepId, Vec<EmbeddedChunk>>,
    /// The stamps of the results by address, because a view shows results without their steps.
    stamps: HashMap<*const ToolResult, &'a Stamp>,
}

impl<'a> ChunkWriter<'a> {
    fn new(session: &'a Session, rows: &'a mut JsonLines, notes: &'a Notes) -> Self {
        let results = session.as_record().steps().into_iter().filter_map(|step| match step.chunk() {
            Chunk::ToolResult(result) => Some((std::ptr::from_ref(result), step.stamp())),
            _ => None,
        });
        let progress = extras::open_call_progress(session.as_record());
        ChunkWriter { rows, notes, index: 0, progress, stamps: results.collect() }
    }

    /// Writes the messages that a model sees, and returns the number of rows.
    fn write(mut self, session: &Session) -> u64 {
        let view = session.messages();
        if let Some((step, instructions)) = view.instructions {
            let rath = Extras {
                provider: instructions.provider.clone(),
                tools: Some(instructions.tools.clone()).filter(|tools: &Vec<ToolSpec>| !tools.is_empty()),
                ..Extras::from_stamp(step.stamp())
            };
            let content = self.text(&instructions.text);
            self.push("system", MessagePayload { content: &content, rath });
        }
        for message in &view.list {
            let step = message.step();
            match message {
                Message::User(_, user) => {
                    let reason = "left out: the format holds text only";
                    self.notes.count_many(NoteCode::LeftOut, user.images.len() as u64, "picture", reason);
                    self.push_user(step, &self.text(&user.text));
                }
                Message::Recalled(_, found) => {
                    let texts: Vec<_> = found.iter().map(|recalled| self.text(&recalled.text)).collect();
                    self.notes.count(
                        NoteCode::Changed,
                        "recall",
                        "written as a user message: the format has no memory",
                    );
                    self.push_user(step, &texts.join("\n\n"));
                }
                Message::Summary(_, summary) => {
                    self.notes.count(
                        NoteCode::Changed,
                        "summary",
                        "written as a user message: what it replaces is left out",
                    );
                    self.push_user(step, &self.text(summary));
                }
                Message::Assistant(_, answer, exchanges) => {
                    self.push_answer(step, answer, exchanges);
                    exchanges.iter().for_each(|exchange| self.push_result(exchange));
                }
            }
        }
        self.index
    }

    fn push(&mut self, kind: &'static str, payload: impl Serialize) {
        self.rows.push(&ChunkRow { record_type: "chunk", index: self.index, kind, payload });
        self.index += 1;
    }

    fn push_user(&mut self, step: &Step, content: &str) {
        self.push("user", MessagePayload { content, rath: Extras::from_stamp(step.stamp()) });
    }

    fn push_answer(&mut self, step: &Step, answer: &Assistant, exchanges: &[Exchange<'_>]) {
        let progress = self.progress.remove(&step.id()).unwrap_or_default();
        let reasoning = Some(self.text(&answer.reasoning)).filter(|reasoning| !reasoning.is_empty());
        let progress = (!answer.calls.is_empty()).then_some(progress);
        let mut rath = Extras { reasoning, progress, ..Extras::from_stamp(step.stamp()).with_answer(answer) };
        // Progress names calls by their recorded ids, which do not match a renamed call. Without progress a call is read as
        // started, which is always safe.
        if exchanges.iter().any(|it| it.id != it.call.id && it.result == CallResult::Missing) {
            rath.progress = None;
        }
        let text = self.text(&answer.text);
        let calls = exchanges.iter().map(|exchange| CallObject {
            id: exchange.id.to_string(),
            r#type: "function",
            function: CallFunction { name: &exchange.call.tool, arguments: self.text(&exchange.call.arguments) },
        });
        let payload = AssistantPayload {
            content: Some(&*text).filter(|text| !text.is_empty()),
            tool_calls: Some(calls.collect()).filter(|calls: &Vec<_>| !calls.is_empty()),
            rath,
        };
        self.push("assistant", payload);
    }

    /// Writes the result of a call, or notes that there is none.
    fn push_result(&mut self, exchange: &Exchange<'_>) {
        if exchange.id != exchange.call.id {
            self.notes.count(NoteCode::Changed, "call", "renamed: the id of a call is unique in a file");
        }
        let CallResult::Recorded(result) = exchange.result else {
            let (id, tool) = (&exchange.id, &exchange.call.tool);
            self.notes.add(
                NoteCode::InDoubt,
                format!(
                    "call `{id}` ({tool}) has no result: most models refuse such a conversation, rath can resume it"
                ),
            );
            return;
        };
        let stamp = self.stamps.get(&std::ptr::from_ref(result));
        let rath = stamp.map(|stamp| Extras::from_stamp(stamp)).unwrap_or_default();
        let reason = "left out: the format holds text only";
        self.notes.count_many(NoteCode::LeftOut, result.images.len() as u64, "picture", reason);
        let content = self.text(&result.output);
        let payload = ResultPayload {
            tool_call_id: exchange.id.to_string(),
            name: &exchange.call.tool,
            content: &content,
            rath: rath.with_result(result),
        };
        self.push("tool_result", payload);
    }

    /// Returns a text, or a placeholder and a note if its payload is missing.
    fn text(&self, text: &Text) -> String {
        if text.as_str().is_none() {
            self.notes.count(NoteCode::Missing, "text", "missing from the session: the file says so in its place");
        }
        text.to_string()
    }
}

/// Counts the steps of the record that are in no row.
fn note_losses(session: &Session, parents: ParentFiles, notes: &Notes) {
    const UNREAD: &str = "left out: the format holds only what a model reads";
    const NO_GRAPH: &str = "written in the header only: a file holds one sequence of rows";
    let prompt = session.messages().instructions.map(|(step, _)| step.id());
    for step in session.as_record().steps() {
        match step.chunk() {
            Chunk::Instructions(_) if Some(step.id()) != prompt => {
                notes.count(NoteCode::LeftOut, "prompt", "left out: a model reads only the newest");
            }
            Chunk::Memory(memory) if !matches!(&memory.event, MemoryEvent::Recall { found, .. } if !found.is_empty()) =>
            {
                notes.count(NoteCode::LeftOut, "memory event", UNREAD);
            }
            Chunk::Selected(_) => notes.count(NoteCode::LeftOut, "selection", UNREAD),
            Chunk::Checked(_) => notes.count(NoteCode::LeftOut, "check", UNREAD),
            Chunk::Observed(_) => notes.count(NoteCode::LeftOut, "observation", UNREAD),
            Chunk::Decided(_) => notes.count(NoteCode::LeftOut, "decision", UNREAD),
            Chunk::Restored(_) => notes.count(NoteCode::LeftOut, "restoration", UNREAD),
            Chunk::Retry(_) => notes.count(NoteCode::LeftOut, "failed attempt", UNREAD),
            Chunk::Interrupted(_) => notes.count(NoteCode::LeftOut, "interruption", UNREAD),
            Chunk::Failed(_) => notes.count(NoteCode::LeftOut, "failure", UNREAD),
            Chunk::Adopted(_) => notes.count(NoteCode::LeftOut, "adoption", UNREAD),
            Chunk::Resumed(_) => notes.count(NoteCode::LeftOut, "resumption", UNREAD),
            Chunk::Note(note) if !is_origin(&note.text) => notes.count(NoteCode::LeftOut, "note", UNREAD),
            Chunk::Other(_) => notes.count(NoteCode::LeftOut, "chunk of a newer version", UNREAD),
            Chunk::Forked(_) | Chunk::Detached(_) if parents == ParentFiles::Written => {}
            Chunk::Forked(_) => notes.count(NoteCode::LeftOut, "fork", NO_GRAPH),
            Chunk::Detached(_) => notes.count(NoteCode::LeftOut, "detachment", NO_GRAPH),
            Chunk::Merged(merged) if merged.strategy == Strategy::Aside => {
                notes.count(NoteCode::LeftOut, "aside", "left out, except for its tokens");
            }
            Chunk::Merged(_) if parents == ParentFiles::Written => {}
            Chunk::Merged(_) => notes.count(NoteCode::LeftOut, "merge", NO_GRAPH),
            _ => {}
        }
    }
    if session.place().is_some_and(|place| !place.as_str().starts_with("local:")) {
        notes.add(
            NoteCode::Changed,
            "where tools run is written under `rath` only: the format has no sandbox of that kind",
        );
    }
}

fn is_origin(text: &Text) -> bool {
    text.as_str().is_some_and(|text| text.starts_with(ORIGIN_PREFIX))
}
