//! Changing a part of a file.

mod near;

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};

use super::{PATH, cannot, count, spec, text};
use crate::sandbox::{Part, Sandbox};
use crate::session::Result;
use crate::tool::{Output, Tool, ToolCx, Touch};

/// Changes a part of a file.
#[derive(Clone, Copy, Debug)]
pub struct EditFile;

/// How long a file can be that is edited.
const BYTES_MOST: u64 = 16 * 1024 * 1024;
/// How many lines are named.
const LINES_NAMED: usize = 20;

impl Tool for EditFile {
    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "path": {"type": "string", "description": PATH},
            "old": {
                "type": "string",
                "minLength": 1,
                "description": "The text to replace, exactly as the file has it, indentation included. It has to be there \
                                once: add lines around it until it is.",
            },
            "new": {"type": "string", "description": "The text to put in its place."},
            "all": {"type": "boolean", "description": "Whether to replace it wherever it is; left out, it has to be there once."},
        });
        let description = "Replaces a text in a file by another and leaves the rest as it is, line endings included. If the \
                           text is not there, the answer shows what comes nearest.";
        spec("edit_file", description, properties, &["path", "old", "new"])
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        vec![Touch::write(text(arguments, "path"))]
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let which = if arguments["all"].as_bool() == Some(true) { Which::All } else { Which::Only };
        let (path, old, new) = (text(&arguments, "path"), text(&arguments, "old"), text(&arguments, "new"));
        edit(&cx.sandbox()?, path, old, new, which).await
    }
}

/// Which of the places is meant that a text is at.
#[derive(Clone, Copy, PartialEq)]
enum Which {
    Only,
    All,
}

async fn edit(sandbox: &Sandbox, path: &str, old: &str, new: &str, which: Which) -> Result<Output> {
    let read = async || sandbox.read(path, Part { from: 0, most: BYTES_MOST + 1 }).await;
    let before = read().await?;
    if before.len() as u64 > BYTES_MOST {
        return Err(cannot("edit", path, format_args!("it has more than {BYTES_MOST} bytes")));
    }
    let text = std::str::from_utf8(&before).map_err(|_| cannot("edit", path, "it is not UTF-8 text"))?;
    let edited = replaced(text, old, new, which).map_err(|why| cannot("edit", path, why))?;
    if read().await? != before {
        return Err(cannot("edit", path, "it was changed by somebody else meanwhile; read it again"));
    }
    sandbox.write(path, edited.text.as_bytes()).await?;
    let lines = named(&edited.lines);
    Ok(match edited.lines.len() {
        1 => format!("replaced it in {lines}").into(),
        times => format!("replaced it {times} times, in {lines}").into(),
    })
}

#[derive(Debug, PartialEq)]
struct Edited {
    text: String,
    /// In which lines it was.
    lines: Vec<usize>,
}

/// Replaces a text in another, or says why not.
fn replaced(text: &str, old: &str, new: &str, which: Which) -> Result<Edited, String> {
    if old.is_empty() {
        return Err("`old` is empty".to_owned());
    }
    if old == new {
        return Err("`old` and `new` are the same".to_owned());
    }
    // Models write line feeds. Whoever writes carriage returns means them.
    let plain = if old.contains('\r') { Plain::as_is(text) } else { Plain::of(text) };
    let found = places(&plain.text, old, which);
    if found.is_empty() {
        return Err(near::miss(&plain.text, old));
    }
    let lines = line_numbers(&plain.text, &found);
    if which == Which::Only && found.len() > 1 {
        let times = count(found.len(), "time");
        return Err(format!("`old` is there {times}, in {}; add lines around it, or set `all`", named(&lines)));
    }
    let mut edited = String::with_capacity(text.len());
    let mut done = 0;
    for at in found {
        let (start, end) = (plain.original(at), plain.original(at + old.len()));
        edited.push_str(&text[done..start]);
        plain.add_like(&text[start..end], new, &mut edited);
        done = end;
    }
    edited.push_str(&text[done..]);
    Ok(Edited { text: edited, lines })
}

/// Where a text is in another. Where only one place is meant, two that overlap are two.
fn places(text: &str, wanted: &str, which: Which) -> Vec<usize> {
    let mut places = Vec::new();
    let mut from = 0;
    let step = match which {
        Which::All => wanted.len(),
        Which::Only => wanted.chars().next().map_or(1, char::len_utf8),
    };
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(wanted)) {
        places.push(from + at);
        from += at + step;
    }
    places
}

/// In which line each of these places is; they rise.
fn line_numbers(text: &str, places: &[usize]) -> Vec<usize> {
    let (mut line, mut known) = (1, 0);
    let number = |place: &usize| {
        line += memchr::memchr_iter(b'\n', &text.as_bytes()[known..*place]).count();
        known = *place;
        line
    };
    places.iter().map(number).collect()
}

/// Lines in words: `line 3`, `lines 3, 7 and 9`.
fn named(lines: &[usize]) -> String {
    let mut known = lines.to_vec();
    known.dedup();
    let more = known.len().saturating_sub(LINES_NAMED);
    let mut words: Vec<_> = known.iter().take(LINES_NAMED).map(usize::to_string).collect();
    if more > 0 {
        words.push(format!("{more} more"));
    }
    match &words[..] {
        [one] => format!("line {one}"),
        [first @ .., last] => format!("lines {} and {last}", first.join(", ")),
        [] => "no line".to_owned(),
    }
}

/// A text whose lines all end in a line feed, and where it came from.
struct Plain {
    text: String,
    /// Where line feeds stand that had a carriage return before them.
    returns: Vec<usize>,
    /// Whether most lines had one.
    mostly: bool,
    as_is: bool,
}

impl Plain {
    fn as_is(text: &str) -> Self {
        Plain { text: text.to_owned(), returns: Vec::new(), mostly: false, as_is: true }
    }

    fn of(text: &str) -> Self {
        let mut plain = String::with_capacity(text.len());
        let mut returns = Vec::new();
        let mut pieces = text.split("\r\n");
        plain.extend(pieces.next());
        for piece in pieces {
            returns.push(plain.len());
            plain.push('\n');
            plain.push_str(piece);
        }
        let mostly = returns.len() * 2 > memchr::memchr_iter(b'\n', plain.as_bytes()).count();
        Plain { text: plain, returns, mostly, as_is: false }
    }

    /// Where a place in the plain text was in the original.
    fn original(&self, place: usize) -> usize {
        place + self.returns.partition_point(|at| *at < place)
    }

    /// Adds a text with line endings as those that it replaces, or as most of the file.
    fn add_like(&self, replaced: &str, new: &str, edited: &mut String) {
        let returns = if replaced.contains('\n') { replaced.contains("\r\n") } else { self.mostly };
        match returns && !self.as_is {
            true => edited.push_str(&new.replace("\r\n", "\n").replace('\n', "\r\n")),
            false => edited.push_str(new),
        }
    }
}

#[cfg(test)]
mod tests;
