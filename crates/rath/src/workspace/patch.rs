//! What differs between two trees, line by line.

use std::fmt::Write as _;

use rath_record::chunk::{Change, Effect, Tree};

use super::lines::{Hunk, Numbers, diff, is_binary, lines};
use super::objects::{Kind, Objects};
use super::quote;
use super::tree::Mode;
use crate::error::Result;

/// How many lines stand around what changed.
const CONTEXT: usize = 3;

/// A file on one side: what it is, and what it holds.
type Side = Option<(Mode, Vec<u8>)>;

impl Objects {
    /// A patch from one tree to another, which `git apply` takes. Of files that are no text it says only that they differ.
    pub fn patch(&self, before: &Tree, after: &Tree) -> Result<String> {
        let mut text = String::new();
        for Effect { path, change, .. } in self.diff(Some(before), after)? {
            let from = match change {
                Change::Renamed { from } => from,
                _ => path.clone(),
            };
            let (old, new) = (self.side(before, &from)?, self.side(after, &path)?);
            let is_link = |side: &Side| side.as_ref().is_some_and(|(mode, _)| *mode == Mode::Link);
            if old.is_some() && new.is_some() && is_link(&old) != is_link(&new) {
                // A file does not become a link: one goes and the other comes.
                write(&mut text, (&from, &old), (&from, &None));
                write(&mut text, (&path, &None), (&path, &new));
            } else {
                write(&mut text, (&from, &old), (&path, &new));
            }
        }
        Ok(text)
    }

    fn side(&self, tree: &Tree, path: &str) -> Result<Side> {
        let Some((mode, id)) = self.version(tree, path)? else { return Ok(None) };
        self.get(id, Kind::Blob).map(|content| Some((mode, content)))
    }
}

fn write(text: &mut String, (from, old): (&str, &Side), (to, new): (&str, &Side)) {
    let (a, b) = (quote::with_side("a", from), quote::with_side("b", to));
    let _ = writeln!(text, "diff --git {a} {b}");
    let _ = match (old, new) {
        (None, Some((mode, _))) => writeln!(text, "new file mode {}", mode.octal()),
        (Some((mode, _)), None) => writeln!(text, "deleted file mode {}", mode.octal()),
        (Some((old, _)), Some((new, _))) if old != new => {
            writeln!(text, "old mode {}\nnew mode {}", old.octal(), new.octal())
        }
        _ => Ok(()),
    };
    if from != to {
        let _ = writeln!(text, "rename from {}\nrename to {}", quote::with_side("", from), quote::with_side("", to));
    }
    let content = |side: &Side| side.as_ref().map(|(_, content)| content.clone()).unwrap_or_default();
    let (old_content, new_content) = (content(old), content(new));
    if old_content == new_content {
        return;
    }
    let name = |side: &Side, name: String| if side.is_some() { name } else { "/dev/null".to_owned() };
    let (a, b) = (name(old, a), name(new, b));
    let is_text = |content: &[u8]| !is_binary(content) && std::str::from_utf8(content).is_ok();
    if !is_text(&old_content) || !is_text(&new_content) {
        let _ = writeln!(text, "Binary files {a} and {b} differ");
        return;
    }
    let _ = writeln!(text, "--- {a}\n+++ {b}");
    let (old, new) = (lines(&old_content), lines(&new_content));
    let mut numbers = Numbers::default();
    let hunks = diff(&numbers.of(&old), &numbers.of(&new));
    // What is so near that the lines around it would touch stands together.
    for near in hunks.chunk_by(|one, next| next.before.start - one.before.end <= 2 * CONTEXT) {
        write_near(text, near, &old, &new);
    }
}

fn write_near(text: &mut String, hunks: &[Hunk], old: &[&[u8]], new: &[&[u8]]) {
    let (Some(first), Some(last)) = (hunks.first(), hunks.last()) else { return };
    let ahead = first.before.start.min(CONTEXT);
    let behind = (old.len() - last.before.end).min(CONTEXT);
    let (start, end) = (first.before.start - ahead, last.before.end + behind);
    let after = first.after.start - ahead..last.after.end + behind;
    let place = |start: usize, length: usize| format!("{},{length}", if length == 0 { start } else { start + 1 });
    let _ = writeln!(text, "@@ -{} +{} @@", place(start, end - start), place(after.start, after.len()));
    let mut at = start;
    for hunk in hunks {
        old[at..hunk.before.start].iter().for_each(|line| write_line(text, ' ', line));
        old[hunk.before.clone()].iter().for_each(|line| write_line(text, '-', line));
        new[hunk.after.clone()].iter().for_each(|line| write_line(text, '+', line));
        at = hunk.before.end;
    }
    old[at..end].iter().for_each(|line| write_line(text, ' ', line));
}

fn write_line(text: &mut String, mark: char, line: &[u8]) {
    text.push(mark);
    text.push_str(&String::from_utf8_lossy(line));
    if !line.ends_with(b"\n") {
        text.push_str("\n\\ No newline at end of file\n");
    }
}
