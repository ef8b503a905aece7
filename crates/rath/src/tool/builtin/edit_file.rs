//! The tool that replaces a part of a file.

use rath_record::chunk::ToolSpec;
use rath_workspace::text_patch;
use serde_json::{Value, json};

use super::nearest_paths::or_nearest_paths;
use super::similar::MissingLines;
use super::{PATH_DESCRIPTION, count, file_error, spec, text};
use crate::sandbox::{ByteRange, Sandbox};
use crate::session::Result;
use crate::tool::{Output, Tool, ToolCx, Touch};

/// Replaces a part of a file.
///
/// Part of [`files`](super::files).
#[derive(Clone, Copy, Debug)]
pub struct EditFile;

/// The size of the largest file that can be edited, before and after the edit.
pub(super) const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// The number of occurrences that are looked for where one is expected.
const MAX_COUNTED_OCCURRENCES: usize = 100;
/// The number of lines that an answer lists.
const MAX_LISTED_LINES: usize = 20;

impl Tool for EditFile {
    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "path": {"type": "string", "description": PATH_DESCRIPTION},
            "old_string": {
                "type": "string",
                "minLength": 1,
                "description": "The text to replace, exactly as the file has it, indentation included. It has to be there \
                                once: add lines around it until it is.",
            },
            "new_string": {"type": "string", "description": "The text to put in its place."},
            "replace_all": {"type": "boolean", "description": "Whether to replace it wherever it is; left out, it has to be there once."},
        });
        let description = "Replaces a text in a file by another and leaves the rest as it is, line endings included. If the \
                           text is not there, the answer shows what comes nearest.";
        spec("edit_file", description, properties, &["path", "old_string", "new_string"])
    }

    fn is_builtin(&self) -> bool {
        true
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        vec![Touch::write(text(arguments, "path"))]
    }

    async fn preview(&self, cx: &ToolCx, arguments: &Value) -> Option<String> {
        let path = text(arguments, "path");
        let before = read_text(&cx.sandbox().await.ok()?, path).await.ok()?;
        let (old, new, mode) = edit_of(arguments);
        let edited = replace(&before, old, new, mode).ok()?;
        Some(text_patch(path, Some(&before), Some(&edited.text)))
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let (old, new, mode) = edit_of(&arguments);
        edit(&cx.sandbox().await?, text(&arguments, "path"), old, new, mode).await
    }
}

/// Returns the text to replace, the new text, and the occurrences that are meant.
fn edit_of(arguments: &Value) -> (&str, &str, EditMode) {
    let mode = if arguments["replace_all"].as_bool() == Some(true) { EditMode::All } else { EditMode::Only };
    (text(arguments, "old_string"), text(arguments, "new_string"), mode)
}

/// The occurrences of a text that are replaced.
#[derive(Clone, Copy, PartialEq)]
enum EditMode {
    /// The only one: more than one is an error.
    Only,
    All,
}

async fn edit(sandbox: &Sandbox, path: &str, old: &str, new: &str, mode: EditMode) -> Result<Output> {
    let before = read_text(sandbox, path).await?;
    let edited = replace(&before, old, new, mode).map_err(|why| file_error("edit", path, why))?;
    if read_text(sandbox, path).await? != before {
        return Err(file_error("edit", path, "it changed while it was edited; read it again"));
    }
    sandbox.write(path, edited.text.as_bytes()).await?;
    let lines = format_lines(&edited.lines);
    Ok(match edited.lines.len() {
        1 => format!("replaced it in {lines}").into(),
        times => format!("replaced it {times} times, in {lines}").into(),
    })
}

/// Reads a text file.
pub(super) async fn read_text(sandbox: &Sandbox, path: &str) -> Result<String> {
    let bytes = sandbox.read(path, ByteRange { offset: 0, max_len: MAX_FILE_BYTES + 1 }).await;
    let bytes = or_nearest_paths(sandbox, path, bytes.map_err(Into::into)).await?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(file_error("edit", path, format_args!("it has more than {MAX_FILE_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| file_error("edit", path, "it is not UTF-8 text"))
}

#[derive(Debug, PartialEq)]
struct Edit {
    /// The file after the edit.
    text: String,
    /// The lines of the occurrences.
    lines: Vec<usize>,
}

/// Replaces a text in another, or says why that is not possible.
fn replace(text: &str, old: &str, new: &str, mode: EditMode) -> Result<Edit, String> {
    if old.is_empty() {
        return Err("`old_string` is empty".to_owned());
    }
    if old == new {
        return Err("`old_string` and `new_string` are the same".to_owned());
    }
    // Models write line feeds; a carriage return in `old` is meant as such.
    let plain = if old.contains('\r') { NormalizedText::verbatim(text) } else { NormalizedText::new(text) };
    let offsets = find_occurrences(&plain.text, old, mode);
    if offsets.is_empty() {
        let lines: Vec<_> = plain.text.lines().collect();
        let wanted: Vec<_> = old.trim_matches('\n').lines().collect();
        let missing = MissingLines { wanted: &wanted, argument: "`old_string`" };
        return Err(format!("`old_string` is not there{}", missing.describe_nearest(&lines)));
    }
    let lines = line_numbers(&plain.text, &offsets);
    if mode == EditMode::Only && offsets.len() > 1 {
        let times = match offsets.len() {
            MAX_COUNTED_OCCURRENCES => format!("at least {MAX_COUNTED_OCCURRENCES} times"),
            known => count(known, "time"),
        };
        return Err(format!(
            "`old_string` is there {times}, in {}; add lines around it, or set `replace_all`",
            format_lines(&lines)
        ));
    }
    let mut edited = String::with_capacity(text.len());
    let mut done = 0;
    for at in offsets {
        let (start, end) = (plain.original_offset(at), plain.original_offset(at + old.len()));
        edited.push_str(&text[done..start]);
        plain.push_like(&text[start..end], new, &mut edited);
        done = end;
        check_length(&edited)?;
    }
    edited.push_str(&text[done..]);
    check_length(&edited)?;
    Ok(Edit { text: edited, lines })
}

/// Fails if a file would be too long: a text that occurs often can be replaced by a far longer one.
fn check_length(edited: &str) -> Result<(), String> {
    match edited.len() as u64 > MAX_FILE_BYTES {
        true => Err(format!("it would have more than {MAX_FILE_BYTES} bytes")),
        false => Ok(()),
    }
}

/// Returns the offsets of a text in another. Overlapping occurrences count only where one occurrence is expected.
fn find_occurrences(text: &str, wanted: &str, mode: EditMode) -> Vec<usize> {
    let mut offsets = Vec::new();
    let mut from = 0;
    let step = match mode {
        EditMode::All => wanted.len(),
        EditMode::Only => wanted.chars().next().map_or(1, char::len_utf8),
    };
    let most = if mode == EditMode::All { usize::MAX } else { MAX_COUNTED_OCCURRENCES };
    let finder = memchr::memmem::Finder::new(wanted);
    while let Some(at) = text.as_bytes().get(from..).and_then(|rest| finder.find(rest)).filter(|_| offsets.len() < most)
    {
        offsets.push(from + at);
        from += at + step;
    }
    offsets
}

/// Returns the line number of each offset. The offsets are in ascending order.
fn line_numbers(text: &str, offsets: &[usize]) -> Vec<usize> {
    let (mut line, mut known) = (1, 0);
    let number = |offset: &usize| {
        line += memchr::memchr_iter(b'\n', &text.as_bytes()[known..*offset]).count();
        known = *offset;
        line
    };
    offsets.iter().map(number).collect()
}

/// Formats line numbers: `line 3`, `lines 3, 7 and 9`.
fn format_lines(lines: &[usize]) -> String {
    let mut known = lines.to_vec();
    known.dedup();
    let more = known.len().saturating_sub(MAX_LISTED_LINES);
    let mut words: Vec<_> = known.iter().take(MAX_LISTED_LINES).map(usize::to_string).collect();
    if more > 0 {
        words.push(format!("{more} more"));
    }
    match &words[..] {
        [one] => format!("line {one}"),
        [first @ .., last] => format!("lines {} and {last}", first.join(", ")),
        [] => "no line".to_owned(),
    }
}

/// A text with line feeds as line endings, which can be mapped back to the original.
struct NormalizedText {
    text: String,
    /// The offsets of line feeds that had a carriage return before them.
    returns: Vec<usize>,
    /// True if most lines had one.
    mostly_returns: bool,
    /// True if the text is not changed.
    is_verbatim: bool,
}

impl NormalizedText {
    fn verbatim(text: &str) -> Self {
        NormalizedText { text: text.to_owned(), returns: Vec::new(), mostly_returns: false, is_verbatim: true }
    }

    fn new(text: &str) -> Self {
        let mut plain = String::with_capacity(text.len());
        let mut returns = Vec::new();
        let mut pieces = text.split("\r\n");
        plain.extend(pieces.next());
        for piece in pieces {
            returns.push(plain.len());
            plain.push('\n');
            plain.push_str(piece);
        }
        let mostly_returns = returns.len() * 2 > memchr::memchr_iter(b'\n', plain.as_bytes()).count();
        NormalizedText { text: plain, returns, mostly_returns, is_verbatim: false }
    }

    /// Returns the offset in the original of an offset in the normalized text.
    fn original_offset(&self, offset: usize) -> usize {
        offset + self.returns.partition_point(|at| *at < offset)
    }

    /// Appends a text with the line endings of the text that it replaces, or else of most of the file.
    fn push_like(&self, replaced: &str, new: &str, edited: &mut String) {
        let returns = if replaced.contains('\n') { replaced.contains("\r\n") } else { self.mostly_returns };
        match returns && !self.is_verbatim {
            true => edited.push_str(&new.replace("\r\n", "\n").replace('\n', "\r\n")),
            false => edited.push_str(new),
        }
    }
}

#[cfg(test)]
mod tests;
