//! `rath memory import`: write the notes of a file.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use rath::memory::{Lookup, Note, NoteId};
use rath::record::Digest;
use rath::record::draw::{count, shorten};
use serde_json::json;

use crate::memories::{self, MemoryArg, NoteJson};
use crate::output::{self, CommandResult, Exit, Failure, hide_secrets};

/// Write the notes of a file, all or none
///
/// Each line of the file is a JSON object with `text` and, where known, `id`, `path`, `said_by`, `at`, `thread`, `expires`,
/// `replaces` and `source` with `session` and `steps`. Times are written as in 2026-01-31T12:00:00Z, or in microseconds since
/// 1970. A note whose id is known is not written again; one without an id gets one from its line, so that a file
/// can be imported twice.
#[derive(clap::Args)]
pub(super) struct ImportNotesArgs {
    /// The file, with one JSON object per line; `-` reads stdin
    file: PathBuf,
    #[command(flatten)]
    memory: MemoryArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// The most bytes of a line: several times the longest note.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// The mark of UTF-8 at the beginning of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The columns of a message of the JSON parser.
const MESSAGE_COLUMNS: usize = 200;

pub(super) async fn run(args: &ImportNotesArgs) -> CommandResult {
    let name = if args.file.as_os_str() == "-" { "stdin".to_owned() } else { output::path(&args.file) };
    let failed = |error: &io::Error| {
        Failure::new(
            format!("cannot read {name}: {error}"),
            "name a file with one JSON object per line, or `-` for stdin",
        )
    };
    let notes = match args.file.as_os_str() == "-" {
        true => read_notes(io::stdin().lock(), &name),
        false => read_notes(BufReader::new(File::open(&args.file).map_err(|error| failed(&error))?), &name),
    };
    let notes = notes.map_err(|error| match error {
        BadNotes::Io(error) => failed(&error),
        BadNotes::Line(message) => Failure::new(message, format!("nothing is imported; {HINT}")),
    })?;
    let memory = args.memory.open_or_create().await?;
    let (mut new, mut forgotten) = (HashSet::new(), 0);
    for note in &notes {
        match memory.read(&note.id).await? {
            Lookup::Unknown => _ = new.insert(&note.id),
            Lookup::Forgotten(_) => forgotten += 1,
            Lookup::Note(_) => {}
        }
    }
    memory.remember_all(&notes).await?;
    let written = new.len();
    let known = notes.len() - written - forgotten;
    if args.json {
        let json = json!({"written": written, "known": known, "forgotten": forgotten});
        output::data(|out| output::json_line(out, &json))?;
        return Ok(Exit::Success);
    }
    output::text(|out| writeln!(out, "{} written, {known} known already", count(written as u64, "note")))?;
    if forgotten > 0 {
        output::note(&format!("{} left out: forgotten before", count(forgotten as u64, "note")));
    }
    Ok(Exit::Success)
}

const HINT: &str = "a line is a JSON object such as {\"text\": \"Deploy on Mondays only.\", \"said_by\": \"Ann\"}";

/// The reason why notes cannot be imported.
enum BadNotes {
    Io(io::Error),
    Line(String),
}

/// Reads notes, one from each line that is not empty.
fn read_notes(mut lines: impl BufRead, name: &str) -> Result<Vec<Note>, BadNotes> {
    let mut notes = Vec::new();
    for number in 1_u64.. {
        let mut line = Vec::new();
        lines.by_ref().take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut line).map_err(BadNotes::Io)?;
        let bad = |message: String| BadNotes::Line(format!("{name}, line {number}: {message}"));
        if line.is_empty() {
            break;
        }
        // Some editors begin a file with a mark of its encoding.
        if number == 1 && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        if line.len() as u64 > MAX_LINE_BYTES {
            return Err(bad(format!("it has more than {MAX_LINE_BYTES} bytes")));
        }
        if !line.trim_ascii().is_empty() {
            notes.push(read_note(&line).map_err(bad)?);
        }
    }
    Ok(notes)
}

fn read_note(line: &[u8]) -> Result<Note, String> {
    // A list of values would be read as the members in their order.
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err("wanted a JSON object".to_owned());
    }
    let json: NoteJson = serde_json::from_slice(line).map_err(|error| {
        // The parser sees one line. Its message may repeat the name of a member, which may be long.
        shorten(&error.to_string().replace(" at line 1 column ", " at column "), MESSAGE_COLUMNS)
    })?;
    let digest = || format!("{:.32}", Digest::compute(line.trim_ascii())).parse::<NoteId>();
    let mut note = json.note(|| digest().expect("hexadecimal digits are an id"))?;
    note.text = hide_secrets(note.text);
    note.said_by = note.said_by.map(hide_secrets);
    memories::refuse_secrets(&note)?;
    Ok(note)
}
