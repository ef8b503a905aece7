//! From the rows of a file to a session.

use std::sync::Arc;

use rath_record::chunk::{Assistant, Call, Chunk, Instructions, Outcome, Placed, ToolResult};
use rath_record::{BranchId, Text, Usage, draw};
use serde_json::value::RawValue;

use super::{CAME_FROM, Origin, VERSION};
use crate::error::ErrorKind;
use crate::interchange::Imported;
use crate::interchange::beside::Beside;
use crate::interchange::members::{Members, Notes};
use crate::interchange::rebuild::Rebuild;
use crate::interchange::time;
use crate::session::Session;
use crate::session::{Error, Result};

/// Reads a session file of the Python OpenRath, whole, damaged or cut off anywhere.
///
/// What can be read is read; what is missing is told in the notes, and in the session where it is missing. A call without
/// a result may have been made: it stays open, as one whose end nobody knows.
pub fn read(bytes: &[u8]) -> Result<Imported> {
    let notes = Notes::default();
    let file = File::read(bytes, &notes)?;
    let closed = file.trailer.is_some();
    let record = file.rebuild(&notes);
    Ok(Imported { session: Session::resume(record.into_record()), notes: notes.into_list(), closed })
}

/// What the rows of a file say.
#[derive(Default)]
struct File {
    header: Option<Header>,
    rows: Vec<Row>,
    /// The index that the next chunk should have.
    next: u64,
    /// How many chunks were read.
    chunks: u64,
    trailer: Option<Trailer>,
    /// A header in the middle of the file, until it is known whether a session begins there.
    second: Option<Header>,
}

struct Header {
    origin: Origin,
    branch: Option<BranchId>,
    /// What rath wrote beside it, if it did.
    ours: bool,
    place: Option<String>,
}

/// What a row says, or a remark where something is missing.
struct Row {
    chunk: Chunk,
    beside: Beside,
}

impl Row {
    fn is_answer(&self) -> bool {
        matches!(self.chunk, Chunk::Assistant(_))
    }

    fn is_gap(&self) -> bool {
        matches!(self.chunk, Chunk::Note(_))
    }
}

struct Trailer {
    usage: Option<Usage>,
    /// All that rath counted, if it wrote it.
    ours: Option<Usage>,
}

impl File {
    fn read(bytes: &[u8], notes: &Notes) -> Result<Self> {
        let mut file = File::default();
        let mut lines = bytes.split(|byte| *byte == b'\n').zip(1_u64..).peekable();
        while let Some((line, number)) = lines.next() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let place = format!("row {number}");
            let text = std::str::from_utf8(line).map_err(|error| error.to_string());
            let row = text.and_then(|text| Members::read(place, text, notes).map_err(|error| error.to_string()));
            match row {
                Ok(row) => file.row(row, notes)?,
                // An object ends with its brace, so a row that was cut off cannot be taken for a whole one.
                Err(_) if lines.peek().is_none() => file.gap(notes, format!("row {number}, the last one, is cut off")),
                Err(error) => file.gap(notes, format!("row {number} cannot be read: {error}")),
            }
        }
        if file.header.is_none() && file.chunks == 0 {
            return Err(not_one(bytes));
        }
        if file.header.is_none() {
            notes.add("there is no header: the session gets an id of its own, and where it came from is not known");
        }
        Ok(file)
    }

    fn row(&mut self, mut row: Members<'_>, notes: &Notes) -> Result<()> {
        match row.text("record_type").as_deref() {
            Some("header") => {
                if self.header.is_none() {
                    self.header = Some(Header::read(row, notes)?);
                } else {
                    row.note("is a second header");
                    self.second = Some(Header::read(row, notes)?);
                }
            }
            Some("chunk") => {
                if self.trailer.take().is_some() {
                    row.note("stands after a trailer");
                }
                self.chunk(row, notes);
            }
            Some("trailer") => {
                if self.trailer.is_some() {
                    row.note("is a second trailer");
                }
                self.trailer = Some(Trailer::read(row, self.chunks, notes));
            }
            found => {
                let found = found.map_or("none".to_owned(), draw::preview);
                self.gap(
                    notes,
                    format!("{}: wanted `header`, `chunk` or `trailer` as `record_type`, found {found}", row.place()),
                );
            }
        }
        Ok(())
    }

    fn chunk(&mut self, mut row: Members<'_>, notes: &Notes) {
        let index = row.number("index");
        // A writer that goes on in the file of one that died begins anew, with the first chunk.
        if let Some(second) = self.second.take().filter(|_| index == Some(0)) {
            row.note(format_args!(
                "begins another session: of the one before it, {} left out",
                draw::count(self.chunks, "chunk")
            ));
            *self = File { header: Some(second), ..File::default() };
        }
        match index {
            Some(index) if index > self.next => {
                let missing = draw::count(index - self.next, "chunk");
                self.gap(notes, format!("{missing} missing before the one with index {index}"));
            }
            Some(index) if index == self.next => {}
            Some(index) => row.note(format_args!("wanted the index {}, found {index}", self.next)),
            None => row.note(format_args!("wanted the index {}, found none", self.next)),
        }
        self.next = index.unwrap_or(self.next).max(self.next).saturating_add(1);
        let kind = row.text("kind").unwrap_or_default();
        let payload = row.object("payload");
        let place = row.place().to_owned();
        row.end();
        let Some(mut payload) = payload else { return self.gap(notes, format!("{place}: there is no `payload`")) };
        let beside = beside(&mut payload);
        let read = match kind.as_str() {
            "system" => system(&mut payload, beside),
            "user" => (Chunk::user(content(&mut payload)), beside),
            "assistant" => assistant(&mut payload, beside, notes),
            "tool_result" => result(&mut payload, beside),
            kind => {
                let found = draw::preview(kind);
                return self.gap(notes, format!("{place}: the kind of chunk {found} is not known"));
            }
        };
        payload.end();
        self.chunks += 1;
        self.rows.push(Row { chunk: read.0, beside: read.1 });
    }

    fn gap(&mut self, notes: &Notes, what: String) {
        notes.add(&*what);
        self.rows.push(Row { chunk: Chunk::note(what), beside: Beside::default() });
    }

    /// Makes one of the system rows that stand together, for an agent is told one text.
    fn join_instructions(&mut self, notes: &Notes) {
        let mut texts: Vec<String> = Vec::new();
        let mut rows: Vec<Row> = Vec::with_capacity(self.rows.len());
        for row in std::mem::take(&mut self.rows) {
            match (&row.chunk, rows.last_mut().map(|row| &mut row.chunk)) {
                (Chunk::Instructions(more), Some(Chunk::Instructions(before))) => {
                    notes.count("system row", "joined with the one before: an agent is told one text");
                    if texts.is_empty() {
                        texts.push(before.text.to_string());
                    }
                    texts.push(more.text.to_string());
                    continue;
                }
                (Chunk::Instructions(_), Some(_)) => {
                    notes.count("system row", "in the middle: from there on it is what an agent is told");
                }
                (_, Some(Chunk::Instructions(before))) if !texts.is_empty() => {
                    before.text = std::mem::take(&mut texts).join("\n\n").into();
                }
                _ => {}
            }
            rows.push(row);
        }
        if let Some(Row { chunk: Chunk::Instructions(last), .. }) = rows.last_mut()
            && !texts.is_empty()
        {
            last.text = texts.join("\n\n").into();
        }
        self.rows = rows;
    }

    fn rebuild(mut self, notes: &Notes) -> Rebuild {
        self.join_instructions(notes);
        let rest = self.share_usage(notes);
        let mut rebuild = Rebuild::on(self.header.as_ref().and_then(|header| header.branch));
        let told = self.rows.iter().any(|row| matches!(row.chunk, Chunk::Instructions(_)));
        if !told && !self.header.as_ref().is_some_and(|header| header.ours) {
            notes.add(
                "there is no system row: the loop of the Python OpenRath does not write down what an agent is told",
            );
        }
        if let Some(header) = self.header {
            header.begin(&mut rebuild, self.rows.is_empty(), notes);
        }
        for row in self.rows {
            let beside = row.beside;
            match row.chunk {
                Chunk::Assistant(answer) => _ = rebuild.answer(answer, &beside, beside.progress.as_deref()),
                Chunk::ToolResult(result) => {
                    let call = result.call.clone();
                    if !rebuild.result(result, &beside).1 {
                        notes.add(format!("a result for `{call}`, which no call waits for, is kept and not shown"));
                    }
                }
                chunk => _ = rebuild.push(chunk, &beside),
            }
        }
        if let Some(rest) = rest {
            rebuild.note("tokens that the file counts and no row of it used", None, Some(rest));
        }
        if self.trailer.is_none() {
            const UNCLOSED: &str = "there is no trailer: the session was not closed, and what came last may be missing";
            notes.add(UNCLOSED);
            rebuild.note(UNCLOSED, None, None);
        }
        rebuild.settle(notes);
        rebuild
    }

    /// Puts the tokens of the trailer on the rows, and says what is left of them.
    ///
    /// The Python OpenRath counts those of one run, and the rows before it may have come from rath with their own.
    fn share_usage(&mut self, notes: &Notes) -> Option<Usage> {
        let counted = self.rows.iter().filter_map(|row| row.beside.usage);
        let counted = counted.fold(Usage::default(), |sum, usage| sum + usage);
        let Some(trailer) = &self.trailer else {
            if counted == Usage::default() && self.chunks > 0 {
                notes.add("what the model calls used is not known: it stands in the trailer");
            }
            return None;
        };
        if let Some(all) = trailer.ours {
            return rest(all, counted, notes);
        }
        let answers = self.rows.iter().filter(|row| row.is_answer()).count();
        let Some(usage) = trailer.usage.filter(|usage| *usage != Usage::default()) else {
            if counted == Usage::default() && answers > 0 {
                notes.add("what the model calls used is not known: the trailer does not say");
            }
            return None;
        };
        // A summary is the user's words to the Python OpenRath, though a model wrote it.
        let asked = |row: &Row| if answers > 0 { row.is_answer() } else { !row.is_gap() };
        match self.rows.iter_mut().rev().find(|row| asked(row) && row.beside.usage.is_none()) {
            Some(row) => {
                row.beside.usage = Some(usage);
                if answers > 1 {
                    notes.add("tokens are counted for the whole run: all of them stand at its last answer");
                }
                None
            }
            None => rest(usage, counted, notes),
        }
    }
}

/// What is left of `all` when `counted` is taken away.
fn rest(all: Usage, counted: Usage, notes: &Notes) -> Option<Usage> {
    if all.input < counted.input || all.output < counted.output {
        notes.add(format!("the trailer counts fewer tokens ({all}) than the rows ({counted})"));
    }
    let rest = Usage {
        input: all.input.saturating_sub(counted.input),
        output: all.output.saturating_sub(counted.output),
        cached_read: all.cached_read.saturating_sub(counted.cached_read),
        cache_write: all.cache_write.saturating_sub(counted.cache_write),
        reasoning: all.reasoning.saturating_sub(counted.reasoning),
    };
    (rest != Usage::default()).then_some(rest)
}

/// The kinds of origin that the Python OpenRath knows.
const KINDS: [&str; 9] = [
    "unknown",
    "leaf_user",
    "leaf_system",
    "op_create",
    "op_session_loop",
    "op_fork",
    "op_detach",
    "op_merge",
    "op_session_compress",
];

impl Header {
    fn read(mut row: Members<'_>, notes: &Notes) -> Result<Self> {
        match row.number("schema_version") {
            Some(VERSION) => {}
            Some(version) => {
                return Err(Error::new(
                    ErrorKind::Format,
                    format_args!("wanted a session file of version {VERSION}, found version {version}"),
                )
                .with_hint(if version > VERSION {
                    "read it with a newer rath"
                } else {
                    "let the Python OpenRath that wrote it save it again"
                }));
            }
            None => row.note(format_args!("wanted {VERSION} as `schema_version`, found none")),
        }
        let id = row.text("id").unwrap_or_default();
        let branch = uuid::Uuid::try_parse(&id).ok().map(|id| BranchId(id.into_bytes()));
        if branch.is_none() {
            row.note(format_args!(
                "wanted a UUID as `id`, found `{}`: the session gets an id of its own",
                draw::preview(&id)
            ));
        }
        let created_at = row.text("created_at");
        if created_at.as_deref().and_then(time::from_text).is_none() {
            row.note("there is no time at which the session began");
        }
        let parent_session_ids: Vec<String> = row.get("parent_session_ids", "a list of ids").unwrap_or_default();
        for parent in parent_session_ids.iter().filter(|parent| uuid::Uuid::try_parse(parent).is_err()) {
            row.note(format_args!("wanted UUIDs as `parent_session_ids`, found `{}`", draw::preview(parent)));
        }
        let operator = row.text("lineage_operator");
        let kind = row.text("lineage_kind");
        if operator.is_none() || !kind.as_deref().is_some_and(|kind| KINDS.contains(&kind)) {
            let found = kind.as_deref().map_or("none".to_owned(), draw::preview);
            row.note(format_args!("how the session came about is not known: `lineage_kind` is {found}"));
        }
        let extras = row.get("lineage_extras", "a list of pairs").unwrap_or_default();
        let backend = row.text("sandbox_backend");
        let directory = row.object("sandbox_spec").and_then(|mut spec| {
            // Its environment may hold keys: it is not looked at.
            let kept = ["image", "entrypoint", "env", "timeout_seconds"].map(|name| spec.raw(name).is_some());
            if kept.contains(&true) {
                spec.note("how the sandbox was made (image, entry point, environment, time limit) is left out");
            }
            let directory = spec.text("working_dir");
            spec.end();
            directory
        });
        let handle = row.text("sandbox_handle_id");
        let beside = row.object("rath");
        let ours = beside.is_some();
        let place = beside.and_then(|mut beside| {
            let place = beside.text("place");
            beside.end();
            place
        });
        if let (Some(backend), None) = (&backend, &place) {
            let of = directory.map(|directory| format!(", in `{}`", draw::preview(&directory))).unwrap_or_default();
            notes.add(format!(
                "its tools ran in a sandbox of the kind `{}`{of}: say where they run from here on with `to`",
                draw::preview(backend)
            ));
        }
        let origin = Origin {
            id: branch.map_or(id, |branch| branch.to_string()),
            created_at,
            parent_session_ids,
            lineage_operator: operator.unwrap_or_else(|| "implicit".to_owned()),
            lineage_kind: kind.unwrap_or_else(|| "unknown".to_owned()),
            lineage_extras: extras,
            sandbox_backend: backend,
            sandbox_handle_id: handle,
        };
        row.end();
        Ok(Header { origin, branch, ours, place })
    }

    fn begin(self, rebuild: &mut Rebuild, empty: bool, notes: &Notes) {
        let origin = &self.origin;
        let began = origin.created_at.as_deref().and_then(time::from_text).filter(|_| !self.ours);
        // What rath wrote has its own times, and says nothing here unless it came of others, or nothing was said yet.
        if !self.ours || empty || !origin.parent_session_ids.is_empty() {
            let json = serde_json::to_string(origin).expect("an origin has string keys and no numbers of its own");
            rebuild.note(format!("{CAME_FROM}{json}"), began, None);
        }
        if !origin.parent_session_ids.is_empty() {
            let parents: Vec<_> = origin.parent_session_ids.iter().map(|id| draw::preview(id)).collect();
            let operator = draw::preview(&origin.lineage_operator);
            notes.add(format!(
                "it came of other sessions by {operator}, which are not in this file: {}",
                parents.join(", ")
            ));
        }
        if let Some(place) = self.place {
            rebuild.push(Chunk::Placed(Placed { place, tree: None }), &Beside::default());
        }
    }
}

impl Trailer {
    fn read(mut row: Members<'_>, chunks: u64, notes: &Notes) -> Self {
        match row.number("final_chunk_count") {
            Some(count) if count == chunks => {}
            Some(count) => row.note(format_args!("counts {}, and {chunks} could be read", draw::count(count, "chunk"))),
            None => row.note("does not count the chunks"),
        }
        if let Some(at) = row.text("closed_at").filter(|at| time::from_text(at).is_none()) {
            row.note(format_args!("wanted a time as `closed_at`, found `{}`", draw::preview(&at)));
        }
        let usage = row.object("cumulative_usage").map(|mut tokens| {
            let [input, output, total] =
                ["prompt_tokens", "completion_tokens", "total_tokens"].map(|name| tokens.number(name));
            let usage = Usage::new(input.unwrap_or_default(), output.unwrap_or_default());
            if [input, output, total].contains(&None) || total != Some(usage.total()) {
                tokens.note("the tokens do not add up");
            }
            tokens.end();
            usage
        });
        let ours = row.object("rath").and_then(|mut beside| {
            let usage: Option<Usage> = beside.get("usage", "tokens");
            beside.end();
            usage
        });
        if let Some((all, told)) = ours.zip(usage)
            && (all.input, all.output) != (told.input, told.output)
        {
            notes.add(format!("the trailer counts tokens twice, and not alike: {told}, and {all}"));
        }
        row.end();
        Trailer { usage, ours }
    }
}

fn beside(payload: &mut Members<'_>) -> Beside {
    payload.get("rath", "what rath writes there").unwrap_or_default()
}

/// The text of a row, whatever it is: what is not a text is taken as it is written.
fn content(payload: &mut Members<'_>) -> Text {
    match payload.raw("content") {
        Some(raw) => serde_json::from_str::<String>(raw.get()).map(Text::from).unwrap_or_else(|_| {
            payload.note("wanted a string as `content`: what is there is taken as it is written");
            raw.get().into()
        }),
        None => {
            payload.note("there is no `content`");
            Text::default()
        }
    }
}

fn system(payload: &mut Members<'_>, mut beside: Beside) -> (Chunk, Beside) {
    let (tools, provider) = (beside.tools.take().unwrap_or_default(), beside.provider.take());
    (Chunk::Instructions(Instructions { text: content(payload), tools, provider }), beside)
}

fn assistant(payload: &mut Members<'_>, mut beside: Beside, notes: &Notes) -> (Chunk, Beside) {
    let calls: Vec<Call> = payload
        .list("tool_calls")
        .iter()
        .zip(1_u64..)
        .filter_map(|(raw, nth)| call(Members::of(format!("{}, call {nth}", payload.place()), raw, notes)?, nth))
        .collect();
    // An answer may be calls alone, and then there need be no words.
    let text = match payload.raw("content") {
        Some(raw) => serde_json::from_str::<String>(raw.get()).map(Text::from).unwrap_or_else(|_| {
            payload.note("wanted a string as `content`: what is there is taken as it is written");
            raw.get().into()
        }),
        None => Text::default(),
    };
    let reasoning = beside.reasoning.take().map(Text::from).unwrap_or_default();
    let mut answer = Assistant { text, reasoning, calls, ..Assistant::default() };
    beside.fill_answer(&mut answer);
    (Chunk::Assistant(answer), beside)
}

fn call(mut call: Members<'_>, nth: u64) -> Option<Call> {
    let id = call.text("id").unwrap_or_else(|| {
        call.note("there is no `id`, and so no result can be its own");
        format!("call-{nth}")
    });
    if call.text("type").is_none_or(|kind| kind != "function") {
        call.note("wanted `function` as `type`");
    }
    let Some(mut function) = call.object("function") else {
        call.note("there is no `function`: the call is left out");
        return None;
    };
    let name = function.text("name").unwrap_or_else(|| {
        function.note("there is no `name`");
        String::new()
    });
    // Some models send nothing at all where a tool takes nothing, and some servers an object.
    let arguments = function.raw("arguments").map(|raw| match serde_json::from_str::<String>(raw.get()) {
        Ok(arguments) => arguments,
        Err(_) => raw.get().to_owned(),
    });
    function.end();
    call.end();
    Some(Call::new(id, Arc::<str>::from(name), arguments.unwrap_or_default()))
}

fn result(payload: &mut Members<'_>, mut beside: Beside) -> (Chunk, Beside) {
    let call = payload.text("tool_call_id").unwrap_or_else(|| {
        payload.note("there is no `tool_call_id`, and so no call that this is the result of");
        String::new()
    });
    // The call says which tool it is.
    payload.text("name");
    let output = content(payload);
    let mut result = ToolResult::new(call, output.as_str().map_or(Outcome::Ok, outcome), output.clone());
    beside.fill_result(&mut result);
    (Chunk::ToolResult(result), beside)
}

/// How a call ended, as the Python OpenRath tells the model.
fn outcome(output: &str) -> Outcome {
    #[derive(serde::Deserialize)]
    struct Failure {
        ok: bool,
        error_kind: String,
    }
    match serde_json::from_str::<Failure>(output) {
        Ok(Failure { ok: false, error_kind }) => match error_kind.as_str() {
            "unknown_tool" => Outcome::UnknownTool,
            "invalid_tool_arguments" => Outcome::BadJson,
            _ => Outcome::Failed,
        },
        _ => Outcome::Ok,
    }
}

fn not_one(bytes: &[u8]) -> Error {
    const WANTED: &str = "wanted a session file of the Python OpenRath";
    let first = bytes.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    let Some(first) = first else {
        return Error::new(ErrorKind::Format, format_args!("{WANTED}, found nothing"))
            .with_hint("its first row, the header, is written when a session begins");
    };
    let text = String::from_utf8_lossy(&first[..first.len().min(400)]);
    let error = Error::new(ErrorKind::Format, format_args!("{WANTED}, found {}", draw::preview(&text)));
    if text.starts_with(r#"{"seal":"#) {
        return error.with_hint("this may be a file of rath: open it as such");
    }
    let whole = serde_json::from_slice::<&RawValue>(first).is_ok();
    error.with_hint(match whole {
        true => r#"such a file begins with `{"record_type": "header"`"#,
        false => "its first row, the header, is cut off or damaged, and there is no other",
    })
}
