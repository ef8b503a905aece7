//! Reading the rows of a file as a session.

mod chunks;
mod parents;
mod rows;

use std::collections::HashSet;

use rath_record::chunk::Chunk;
use rath_record::{BranchId, Usage, draw};
use serde_json::value::RawValue;

use self::parents::BuiltFile;
use self::rows::{ParsedHeader, ParsedTrailer};
use crate::error::ErrorKind;
use crate::interchange::Import;
use crate::interchange::builder::RecordBuilder;
use crate::interchange::extras::Extras;
use crate::interchange::notes::{NoteCode, Notes};
use crate::interchange::object::ObjectReader;
use crate::secrets::Secrets;
use crate::session::Session;
use crate::session::{Error, Result};

/// Reads a session file of the Python OpenRath, which may be damaged or cut off anywhere.
///
/// Everything readable is read. Missing parts are listed in the notes, and marked in the session at their position. A call
/// without a result may have been made: it stays open and counts as started, with an unknown outcome.
///
/// ```
/// use rath::interchange::openrath;
/// use rath::prelude::*;
///
/// let mut export = openrath::write(&Session::user("hello"));
/// export.bytes.extend(b"{\"cut off");
/// let import = openrath::read(&export.bytes)?;
/// assert_eq!(import.session.messages().list.len(), 1);
/// assert!(!import.notes.is_empty()); // a part is missing
/// # Ok::<(), Error>(())
/// ```
pub fn read(bytes: &[u8]) -> Result<Import> {
    read_hiding(bytes, &Secrets::default())
}

/// Reads a session file as [`read`] does, without these values.
///
/// Texts that look like keys are always hidden.
///
/// ```
/// use rath::interchange::openrath;
/// use rath::prelude::*;
/// use rath::secrets::AddOutcome;
///
/// let export = openrath::write(&Session::user("log in with correct horse"));
/// let mut secrets = Secrets::default();
/// assert_eq!(secrets.add("PASSWORD", "correct horse"), AddOutcome::Added);
/// let import = openrath::read_hiding(&export.bytes, &secrets)?;
/// assert_eq!(import.session.chunks().next(), Some(&Chunk::user("log in with [secret PASSWORD]")));
/// # Ok::<(), Error>(())
/// ```
pub fn read_hiding(bytes: &[u8], secrets: &Secrets) -> Result<Import> {
    Ok(read_all_hiding(&[bytes], secrets)?.remove(0))
}

/// Reads the files of several sessions, such as those in a directory of the Python OpenRath, in the order in which they are given.
///
/// A session that was forked or merged from others among them continues from their steps, as far as its rows are the same. See
/// [`write_all`](fn@super::write_all) for an example.
pub fn read_all<B: AsRef<[u8]>>(files: &[B]) -> Result<Vec<Import>> {
    read_all_hiding(files, &Secrets::default())
}

/// Reads the files of several sessions as [`read_all`] does, without these values.
///
/// See [`read_hiding`] for an example.
pub fn read_all_hiding<B: AsRef<[u8]>>(files: &[B], secrets: &Secrets) -> Result<Vec<Import>> {
    let notes: Vec<Notes> = files.iter().map(|_| Notes::default()).collect();
    let parsed = files.iter().zip(&notes).map(|(file, notes)| ParsedFile::parse(file.as_ref(), notes));
    let parsed = parsed.collect::<Result<Vec<_>>>()?;
    let closed: Vec<bool> = parsed.iter().map(|file| file.trailer.is_some()).collect();
    let index = parents::by_branch(&parsed);
    let known: HashSet<BranchId> = index.keys().copied().collect();
    let parents: Vec<Vec<usize>> = parsed.iter().map(|file| parents::parents_of(file, &index)).collect();
    let order = parents::parents_first(&parents);
    let mut parsed: Vec<Option<ParsedFile>> = parsed.into_iter().map(Some).collect();
    let mut built: Vec<Option<BuiltFile>> = parsed.iter().map(|_| None).collect();
    for at in order {
        if let Some(file) = parsed[at].take() {
            // A session that descends from itself has no parents that could be read before it.
            let parents: Vec<&BuiltFile> = parents[at].iter().filter_map(|parent| built[*parent].as_ref()).collect();
            built[at] = Some(file.build(&parents, &known, &notes[at], secrets));
        }
    }
    let sessions = built.into_iter().flatten().zip(closed).zip(notes);
    let imports = sessions.map(|((file, closed), notes)| Import {
        session: Session::resume(file.record).hiding(secrets.clone()),
        notes: notes.into_list_hiding(secrets),
        closed,
    });
    Ok(imports.collect())
}

/// The rows of a file.
#[derive(Default)]
struct ParsedFile {
    header: Option<ParsedHeader>,
    chunks: Vec<ParsedChunk>,
    /// The index that the next chunk row should have.
    next_index: u64,
    /// The number of chunk rows that could be read.
    chunk_count: u64,
    trailer: Option<ParsedTrailer>,
    /// A header in the middle of the file, until the next chunk row shows whether a session begins there.
    second_header: Option<ParsedHeader>,
}

/// The chunk of a row, or a note in the place of a missing row.
struct ParsedChunk {
    chunk: Chunk,
    extras: Extras,
}

impl ParsedChunk {
    fn is_answer(&self) -> bool {
        matches!(self.chunk, Chunk::Assistant(_))
    }

    fn is_gap(&self) -> bool {
        matches!(self.chunk, Chunk::Note(_))
    }
}

impl ParsedFile {
    fn parse(bytes: &[u8], notes: &Notes) -> Result<Self> {
        let mut file = ParsedFile::default();
        let mut lines = bytes.split(|byte| *byte == b'\n').zip(1_u64..).peekable();
        while let Some((line, number)) = lines.next() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let location = format!("row {number}");
            let text = std::str::from_utf8(line).map_err(|error| error.to_string());
            let row =
                text.and_then(|text| ObjectReader::parse(location, text, notes).map_err(|error| error.to_string()));
            match row {
                Ok(row) => file.add_row(row, notes)?,
                // An object ends with a brace, so a row that was cut off never parses.
                Err(_) if lines.peek().is_none() => {
                    file.add_gap(notes, NoteCode::Damaged, format!("row {number}, the last one, is cut off"));
                }
                Err(error) => file.add_gap(notes, NoteCode::Damaged, format!("row {number} cannot be read: {error}")),
            }
        }
        if file.header.is_none() && file.chunk_count == 0 {
            return Err(not_a_session_file(bytes));
        }
        if file.header.is_none() {
            notes.add(NoteCode::Missing, "there is no header: the session gets a new id, and its origin is not known");
        }
        Ok(file)
    }

    fn add_row(&mut self, mut row: ObjectReader<'_>, notes: &Notes) -> Result<()> {
        match row.take_string("record_type").as_deref() {
            Some("header") => {
                if self.header.is_none() {
                    self.header = Some(ParsedHeader::read(row, notes)?);
                } else {
                    row.note(NoteCode::Invalid, "is a second header");
                    self.second_header = Some(ParsedHeader::read(row, notes)?);
                }
            }
            Some("chunk") => {
                if self.trailer.take().is_some() {
                    row.note(NoteCode::Invalid, "follows a trailer");
                }
                self.add_chunk(row, notes);
            }
            Some("trailer") => {
                if self.trailer.is_some() {
                    row.note(NoteCode::Invalid, "is a second trailer");
                }
                self.trailer = Some(ParsedTrailer::read(row, self.chunk_count, notes));
            }
            found => {
                let found = found.map_or("none".to_owned(), draw::preview);
                let location = row.location();
                self.add_gap(
                    notes,
                    NoteCode::Damaged,
                    format!("{location}: wanted `header`, `chunk` or `trailer` as `record_type`, found {found}"),
                );
            }
        }
        Ok(())
    }

    fn add_chunk(&mut self, mut row: ObjectReader<'_>, notes: &Notes) {
        let index = row.take_number("index");
        // A writer that appends to the file of a writer that died begins a new session, with index 0.
        if let Some(header) = self.second_header.take().filter(|_| index == Some(0)) {
            row.note(
                NoteCode::LeftOut,
                format_args!(
                    "begins another session: {} of the one before left out",
                    draw::count(self.chunk_count, "chunk")
                ),
            );
            *self = ParsedFile { header: Some(header), ..ParsedFile::default() };
        }
        match index {
            Some(index) if index > self.next_index => {
                let missing = draw::count(index - self.next_index, "chunk");
                self.add_gap(notes, NoteCode::Missing, format!("{missing} missing before the one with index {index}"));
            }
            Some(index) if index == self.next_index => {}
            Some(index) => {
                row.note(NoteCode::Invalid, format_args!("wanted the index {}, found {index}", self.next_index));
            }
            None => row.note(NoteCode::Invalid, format_args!("wanted the index {}, found none", self.next_index)),
        }
        self.next_index = index.unwrap_or(self.next_index).max(self.next_index).saturating_add(1);
        let kind = row.take_string("kind").unwrap_or_default();
        let payload = row.take_object("payload");
        let location = row.location().to_owned();
        row.finish();
        let Some(mut payload) = payload else {
            return self.add_gap(notes, NoteCode::Damaged, format!("{location}: there is no `payload`"));
        };
        let Some((chunk, extras)) = chunks::read_payload(&kind, &mut payload, notes) else {
            let found = draw::preview(&kind);
            return self.add_gap(
                notes,
                NoteCode::Damaged,
                format!("{location}: the kind of chunk {found} is not known"),
            );
        };
        payload.finish();
        self.chunk_count += 1;
        self.chunks.push(ParsedChunk { chunk, extras });
    }

    /// Notes missing rows, and marks the gap in the session.
    fn add_gap(&mut self, notes: &Notes, code: NoteCode, reason: String) {
        notes.add(code, &*reason);
        self.chunks.push(ParsedChunk { chunk: Chunk::note(reason), extras: Extras::default() });
    }

    /// Joins adjacent system rows, because an agent has one prompt.
    fn join_instructions(&mut self, notes: &Notes) {
        let mut texts: Vec<String> = Vec::new();
        let mut joined: Vec<ParsedChunk> = Vec::with_capacity(self.chunks.len());
        for parsed in std::mem::take(&mut self.chunks) {
            match (&parsed.chunk, joined.last_mut().map(|last| &mut last.chunk)) {
                (Chunk::Instructions(more), Some(Chunk::Instructions(before))) => {
                    notes.count(NoteCode::Changed, "system row", "joined with the one before: an agent has one prompt");
                    if texts.is_empty() {
                        texts.push(before.text.to_string());
                    }
                    texts.push(more.text.to_string());
                    continue;
                }
                (Chunk::Instructions(_), Some(_)) => {
                    notes.count(NoteCode::Changed, "system row", "in the middle: it is the prompt from there on");
                }
                (_, Some(Chunk::Instructions(before))) if !texts.is_empty() => {
                    before.text = std::mem::take(&mut texts).join("\n\n").into();
                }
                _ => {}
            }
            joined.push(parsed);
        }
        if let Some(ParsedChunk { chunk: Chunk::Instructions(last), .. }) = joined.last_mut()
            && !texts.is_empty()
        {
            last.text = texts.join("\n\n").into();
        }
        self.chunks = joined;
    }

    /// Builds the session of the file. `known` has the sessions that are read together with it, among them its `parents`.
    fn build(
        mut self,
        parents: &[&BuiltFile],
        known: &HashSet<BranchId>,
        notes: &Notes,
        secrets: &Secrets,
    ) -> BuiltFile {
        self.join_instructions(notes);
        let mut unassigned = self.assign_usage(notes);
        let branch = self.header.as_ref().and_then(|header| header.branch);
        let mut record = RecordBuilder::new(branch, secrets);
        let kind = self.header.as_ref().map_or("", ParsedHeader::lineage_kind);
        let shared = branch.and_then(|branch| parents::shared_steps(&self.chunks, branch, kind, parents));
        let mut rows = Vec::with_capacity(self.chunks.len());
        if let Some(shared) = shared {
            // Tokens of the parents that are in no row are counted in their records.
            let in_rows = self.chunks[..shared.rows.len()].iter().filter_map(|parsed| parsed.extras.usage);
            let in_rows = in_rows.fold(Usage::default(), |sum, usage| sum + usage);
            let elsewhere = without(shared.record.usage(), in_rows);
            unassigned = unassigned.map(|rest| without(rest, elsewhere)).filter(|rest| *rest != Usage::default());
            let inherited: Vec<_> = self.chunks.drain(..shared.rows.len()).collect();
            record.continue_from(shared.record, inherited.iter().map(|parsed| (&parsed.chunk, &parsed.extras)));
            rows = shared.rows;
        }
        let has_prompt = rows.iter().map(|(chunk, _)| chunk).chain(self.chunks.iter().map(|parsed| &parsed.chunk));
        let has_prompt = has_prompt.into_iter().any(|chunk| matches!(chunk, Chunk::Instructions(_)));
        if !has_prompt && !self.header.as_ref().is_some_and(|header| header.is_from_rath) {
            notes.add(
                NoteCode::Missing,
                "there is no system row: the Python OpenRath does not save the prompt of an agent",
            );
        }
        let first = self.chunks.first();
        let mut place = self.header.and_then(|header| header.push_to(&mut record, first, known, notes));
        for ParsedChunk { chunk, extras } in self.chunks {
            let row = chunk.clone();
            match chunk {
                Chunk::Assistant(answer) => _ = record.push_answer(answer, &extras, extras.progress.as_deref()),
                Chunk::ToolResult(result) => {
                    let call = result.call.clone();
                    if !record.push_result(result, &extras).1 {
                        notes.add(
                            NoteCode::Invalid,
                            format!("a result for `{call}` matches no open call: it is kept and not shown"),
                        );
                    }
                }
                chunk => _ = record.push(chunk, &extras),
            }
            rows.extend(record.head().cloned().map(|step| (row, step)));
            // The first step of a session tells how the session began.
            record.push_place(place.take());
        }
        record.push_place(place);
        if let Some(usage) = unassigned {
            record.push_note("tokens that the file counts and no row of it used", None, Some(usage));
        }
        if self.trailer.is_none() {
            const UNCLOSED: &str = "there is no trailer: the session was not closed, and what came last may be missing";
            notes.add(NoteCode::Missing, UNCLOSED);
            record.push_note(UNCLOSED, None, None);
        }
        record.mark_open_calls(notes);
        BuiltFile { record: record.into_record(), rows }
    }

    /// Assigns the tokens of the trailer to the rows. Returns the tokens that no row used.
    ///
    /// The Python OpenRath counts the tokens of one run. Earlier rows may come from rath and have counts of their own.
    fn assign_usage(&mut self, notes: &Notes) -> Option<Usage> {
        let counted = self.chunks.iter().filter_map(|parsed| parsed.extras.usage);
        let counted = counted.fold(Usage::default(), |sum, usage| sum + usage);
        let Some(trailer) = &self.trailer else {
            if counted == Usage::default() && self.chunk_count > 0 {
                notes.add(
                    NoteCode::Missing,
                    "the tokens that were used are not known: the trailer, which counts them, is missing",
                );
            }
            return None;
        };
        if let Some(total) = trailer.rath_usage {
            return subtract(total, counted, notes);
        }
        let answers = self.chunks.iter().filter(|parsed| parsed.is_answer()).count();
        let Some(usage) = trailer.usage.filter(|usage| *usage != Usage::default()) else {
            if counted == Usage::default() && answers > 0 {
                notes
                    .add(NoteCode::Missing, "the tokens that were used are not known: the trailer does not count them");
            }
            return None;
        };
        // The Python OpenRath writes a summary as a user row, although a model made it.
        let may_have_used = |parsed: &ParsedChunk| if answers > 0 { parsed.is_answer() } else { !parsed.is_gap() };
        match self.chunks.iter_mut().rev().find(|parsed| may_have_used(parsed) && parsed.extras.usage.is_none()) {
            Some(parsed) => {
                parsed.extras.usage = Some(usage);
                if answers > 1 {
                    notes.add(
                        NoteCode::Changed,
                        "tokens are counted for the whole run: all of them are assigned to its last answer",
                    );
                }
                None
            }
            None => subtract(usage, counted, notes),
        }
    }
}

/// Returns `total` without `counted`; none if nothing remains.
fn subtract(total: Usage, counted: Usage, notes: &Notes) -> Option<Usage> {
    if total.input < counted.input || total.output < counted.output {
        notes.add(NoteCode::Mismatch, format!("the trailer counts fewer tokens ({total}) than the rows ({counted})"));
    }
    let rest = without(total, counted);
    (rest != Usage::default()).then_some(rest)
}

/// Returns the tokens of `total` that are not in `counted`.
fn without(total: Usage, counted: Usage) -> Usage {
    Usage {
        input: total.input.saturating_sub(counted.input),
        output: total.output.saturating_sub(counted.output),
        cached_read: total.cached_read.saturating_sub(counted.cached_read),
        cache_write: total.cache_write.saturating_sub(counted.cache_write),
        reasoning: total.reasoning.saturating_sub(counted.reasoning),
    }
}

/// Returns the error about a file without a header and without chunks.
fn not_a_session_file(bytes: &[u8]) -> Error {
    const WANTED: &str = "wanted a session file of the Python OpenRath";
    let first = bytes.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    let Some(first) = first else {
        return Error::new(ErrorKind::Format, format_args!("{WANTED}, found an empty file"))
            .with_hint("its first row, the header, is written when a session begins");
    };
    let text = String::from_utf8_lossy(&first[..first.len().min(400)]);
    let error = Error::new(ErrorKind::Format, format_args!("{WANTED}, found {}", draw::preview(&text)));
    if text.starts_with(r#"{"seal":"#) {
        return error.with_hint("this looks like a session file of rath: open it with `Session::open`");
    }
    let is_json = serde_json::from_slice::<&RawValue>(first).is_ok();
    error.with_hint(match is_json {
        true => r#"such a file begins with `{"record_type": "header"`"#,
        false => "its first row, the header, is cut off or damaged, and there is no other",
    })
}
