//! From a session to the rows of a file.

use std::collections::HashMap;

use rath_record::chunk::{Chunk, MemoryEvent, Strategy, ToolResult, ToolSpec};
use rath_record::graph::Ids;
use rath_record::view::{CallResult, Message};
use rath_record::{Stamp, Text, Timestamp, Usage};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{CAME_FROM, Origin, Tokens, VERSION};
use crate::interchange::Exported;
use crate::interchange::beside::{self, Beside};
use crate::interchange::members::Notes;
use crate::interchange::time;
use crate::session::Session;

/// Writes what a model sees of a session, as a file that the Python OpenRath loads and goes on from.
pub fn write(session: &Session) -> Exported {
    let session = session.begun();
    let notes = Notes::default();
    let mut rows = Rows::default();
    rows.push(&header(&session));
    let count = chunks(&session, &mut rows, &notes);
    let usage = session.usage();
    let trailer = Trailer {
        record_type: "trailer",
        closed_at: session.as_record().newest_first().find_map(|step| step.stamp().at).and_then(time::to_text),
        final_chunk_count: count,
        cumulative_usage: (usage != Usage::default()).then(|| Tokens {
            prompt_tokens: usage.input,
            completion_tokens: usage.output,
            total_tokens: usage.total(),
        }),
        rath: Counted { usage },
    };
    rows.push(&trailer);
    note_losses(&session, &notes);
    Exported { bytes: rows.0.into_bytes(), notes: notes.into_list() }
}

/// The rows so far.
#[derive(Default)]
struct Rows(String);

impl Rows {
    fn push(&mut self, row: &impl Serialize) {
        let json = serde_json::to_string(row).expect("a row has string keys and finite numbers");
        // The Python OpenRath breaks lines wherever Unicode may, which JSON allows inside of strings. Outside of them these
        // cannot stand, so that an escape is always right.
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

#[derive(Serialize)]
struct Header {
    record_type: &'static str,
    schema_version: u64,
    id: String,
    created_at: String,
    parent_session_ids: Vec<String>,
    lineage_operator: String,
    lineage_kind: String,
    lineage_extras: Vec<(String, std::sync::Arc<RawValue>)>,
    sandbox_backend: Option<String>,
    sandbox_spec: Option<Sandbox>,
    sandbox_handle_id: Option<String>,
    rath: Place,
}

#[derive(Serialize)]
struct Sandbox {
    image: Option<String>,
    entrypoint: Option<Vec<String>>,
    env: Option<()>,
    timeout_seconds: Option<f64>,
    working_dir: String,
}

/// What a header holds for rath: that rath wrote it, and where tools run.
#[derive(Serialize)]
struct Place {
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
}

#[derive(Serialize)]
struct Row<P> {
    record_type: &'static str,
    index: u64,
    kind: &'static str,
    payload: P,
}

#[derive(Serialize)]
struct Said<'a> {
    content: &'a str,
    rath: Beside,
}

#[derive(Serialize)]
struct Answer<'a> {
    content: Option<&'a str>,
    tool_calls: Option<Vec<Call<'a>>>,
    rath: Beside,
}

#[derive(Serialize)]
struct Call<'a> {
    id: String,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: String,
}

#[derive(Serialize)]
struct Outcome<'a> {
    tool_call_id: String,
    name: &'a str,
    content: &'a str,
    rath: Beside,
}

#[derive(Serialize)]
struct Trailer {
    record_type: &'static str,
    closed_at: Option<String>,
    final_chunk_count: u64,
    cumulative_usage: Option<Tokens>,
    rath: Counted,
}

/// All tokens, with those that the format has no member for.
#[derive(Serialize)]
struct Counted {
    usage: Usage,
}

fn header(session: &Session) -> Header {
    let place = session.place().map(|place| place.to_string());
    let local = place.as_deref().and_then(|place| place.strip_prefix("local:")).map(str::to_owned);
    let origin = came_from(session).or_else(|| exported(session)).unwrap_or_else(|| Origin {
        id: session.id().to_string(),
        created_at: None,
        parent_session_ids: Vec::new(),
        lineage_operator: "Session.empty".to_owned(),
        lineage_kind: "op_create".to_owned(),
        lineage_extras: Vec::new(),
        sandbox_backend: None,
        sandbox_handle_id: None,
    });
    let began = session.as_record().steps().first().and_then(|step| step.stamp().at).and_then(time::to_text);
    // A header has to have a time. One that nobody knows is the earliest there is.
    let epoch = || time::to_text(Timestamp(0)).expect("1970 is a year that Python knows");
    Header {
        record_type: "header",
        schema_version: VERSION,
        id: origin.id,
        created_at: origin.created_at.or(began).unwrap_or_else(epoch),
        parent_session_ids: origin.parent_session_ids,
        lineage_operator: origin.lineage_operator,
        lineage_kind: origin.lineage_kind,
        lineage_extras: origin.lineage_extras,
        sandbox_backend: local.as_ref().map(|_| "local".to_owned()).or(origin.sandbox_backend),
        sandbox_spec: local.map(|working_dir| Sandbox {
            image: None,
            entrypoint: None,
            env: None,
            timeout_seconds: None,
            working_dir,
        }),
        sandbox_handle_id: origin.sandbox_handle_id,
        rath: Place { place },
    }
}

/// Where a session comes from that the Python OpenRath wrote before.
fn came_from(session: &Session) -> Option<Origin> {
    let id = session.id().to_string();
    let origins = session.as_record().newest_first().filter_map(|step| match step.chunk() {
        Chunk::Note(note) => serde_json::from_str::<Origin>(note.text.as_str()?.strip_prefix(CAME_FROM)?).ok(),
        _ => None,
    });
    origins.into_iter().find(|origin| origin.id == id)
}

/// Where a session comes from, as the graph says it.
fn exported(session: &Session) -> Option<Origin> {
    #[derive(serde::Deserialize)]
    struct Branch {
        id: String,
        parent_session_ids: Vec<String>,
        lineage_operator: String,
        lineage_kind: String,
        lineage_extras: Vec<(String, std::sync::Arc<RawValue>)>,
    }
    let id = session.id().to_string();
    let graph = session.export(Ids::Original);
    let branches = graph.lines().filter_map(|line| serde_json::from_str::<Branch>(line).ok());
    let own = branches.into_iter().find(|branch| branch.id == id)?;
    Some(Origin {
        id,
        created_at: None,
        parent_session_ids: own.parent_session_ids,
        lineage_operator: own.lineage_operator,
        lineage_kind: own.lineage_kind,
        lineage_extras: own.lineage_extras,
        sandbox_backend: None,
        sandbox_handle_id: None,
    })
}

/// Writes what a model sees, and says how many rows that is.
fn chunks(session: &Session, rows: &mut Rows, notes: &Notes) -> u64 {
    let view = session.messages();
    let mut progress = beside::progress(session.as_record());
    // A view shows results without their steps.
    let results = session.as_record().steps().into_iter().filter_map(|step| match step.chunk() {
        Chunk::ToolResult(result) => Some((std::ptr::from_ref(result), step.stamp())),
        _ => None,
    });
    let stamps: HashMap<*const ToolResult, &Stamp> = results.collect();
    let mut index = 0;
    let mut next = || {
        index += 1;
        index - 1
    };
    let said = |rows: &mut Rows, index, kind, content: &str, rath| {
        rows.push(&Row { record_type: "chunk", index, kind, payload: Said { content, rath } });
    };
    let here = |text: &Text| {
        if text.as_str().is_none() {
            notes.count("text", "not at hand: the file says so in its place");
        }
        text.to_string()
    };
    if let Some((step, instructions)) = view.instructions {
        let rath = Beside {
            provider: instructions.provider.clone(),
            tools: Some(instructions.tools.clone()).filter(|tools: &Vec<ToolSpec>| !tools.is_empty()),
            ..Beside::of(step.stamp())
        };
        said(rows, next(), "system", &here(&instructions.text), rath);
    }
    for message in &view.list {
        let step = message.step();
        match message {
            Message::User(_, user) => {
                notes.count_many(user.images.len() as u64, "picture", "left out: the format holds text only");
                said(rows, next(), "user", &here(&user.text), Beside::of(step.stamp()));
            }
            Message::Recalled(_, found) => {
                let text = found.iter().map(|recalled| here(&recalled.text)).collect::<Vec<_>>().join("\n\n");
                notes.count("recall", "written as what the user said: the format has no memory");
                said(rows, next(), "user", &text, Beside::of(step.stamp()));
            }
            Message::Summary(_, summary) => {
                notes.count("summary", "written as what the user said, and what it stands for is left out");
                said(rows, next(), "user", &here(summary), Beside::of(step.stamp()));
            }
            Message::Assistant(_, answer, exchanges) => {
                let open = progress.remove(&step.id()).unwrap_or_default();
                let reasoning = Some(here(&answer.reasoning)).filter(|reasoning| !reasoning.is_empty());
                let mut rath = Beside { reasoning, ..Beside::of(step.stamp()).answer(answer, open) };
                // What was done about a call is told by its name. Untold, it counts as begun, which is always safe.
                if exchanges.iter().any(|it| it.id != it.call.id && it.result == CallResult::Missing) {
                    rath.progress = None;
                }
                let text = here(&answer.text);
                let calls = exchanges.iter().map(|exchange| Call {
                    id: exchange.id.to_string(),
                    r#type: "function",
                    function: Function { name: &exchange.call.tool, arguments: here(&exchange.call.arguments) },
                });
                let payload = Answer {
                    content: Some(&*text).filter(|text| !text.is_empty()),
                    tool_calls: Some(calls.collect()).filter(|calls: &Vec<_>| !calls.is_empty()),
                    rath,
                };
                rows.push(&Row { record_type: "chunk", index: next(), kind: "assistant", payload });
                for exchange in exchanges {
                    if exchange.id != exchange.call.id {
                        notes.count("call", "renamed: in one file every name means one call");
                    }
                    let CallResult::Recorded(result) = exchange.result else {
                        let (id, tool) = (&exchange.id, &exchange.call.tool);
                        notes.add(format!(
                            "call `{id}` ({tool}) has no result: most models refuse to go on from there, and rath does not"
                        ));
                        continue;
                    };
                    let rath =
                        stamps.get(&std::ptr::from_ref(result)).map(|stamp| Beside::of(stamp)).unwrap_or_default();
                    let payload = Outcome {
                        tool_call_id: exchange.id.to_string(),
                        name: &exchange.call.tool,
                        content: &here(&result.output),
                        rath: rath.result(result),
                    };
                    rows.push(&Row { record_type: "chunk", index: next(), kind: "tool_result", payload });
                }
            }
        }
    }
    index
}

/// Counts what stands in the record and in no row.
fn note_losses(session: &Session, notes: &Notes) {
    const UNREAD: &str = "left out: the format holds only what a model reads";
    const LINE: &str = "told by the header alone: a file holds one line of rows";
    let told = session.messages().instructions.map(|(step, _)| step.id());
    for step in session.as_record().steps() {
        match step.chunk() {
            Chunk::Instructions(_) if Some(step.id()) != told => {
                notes.count("prompt", "left out: the newest one is what a model is told");
            }
            Chunk::Memory(memory) if !matches!(&memory.event, MemoryEvent::Recall { found, .. } if !found.is_empty()) =>
            {
                notes.count("memory event", UNREAD);
            }
            Chunk::Selected(_) => notes.count("selection", UNREAD),
            Chunk::Checked(_) => notes.count("check", UNREAD),
            Chunk::Observed(_) => notes.count("observation", UNREAD),
            Chunk::Decided(_) => notes.count("decision", UNREAD),
            Chunk::Retry(_) => notes.count("failed attempt", UNREAD),
            Chunk::Interrupted(_) => notes.count("interruption", UNREAD),
            Chunk::Failed(_) => notes.count("failure", UNREAD),
            Chunk::Resumed(_) => notes.count("resumption", UNREAD),
            Chunk::Note(note) if !is_origin(&note.text) => notes.count("note", UNREAD),
            Chunk::Other(_) => notes.count("chunk of a newer version", UNREAD),
            Chunk::Forked(_) => notes.count("fork", LINE),
            Chunk::Detached(_) => notes.count("detachment", LINE),
            Chunk::Merged(merged) if merged.strategy == Strategy::Aside => {
                notes.count("branch", "kept aside and left out, but for its tokens");
            }
            Chunk::Merged(_) => notes.count("merge", LINE),
            _ => {}
        }
    }
    if session.place().is_some_and(|place| !place.as_str().starts_with("local:")) {
        notes.add("where its tools run is told under `rath` alone: the format knows other kinds of places");
    }
}

fn is_origin(text: &Text) -> bool {
    text.as_str().is_some_and(|text| text.starts_with(CAME_FROM))
}
