//! One line of a log for a turn or an event.

use std::collections::BTreeSet;

use rath::Text;
use rath::chunk::{Chunk, Merged, Outcome, Resolution, Strategy, Verdict};
use rath::record::draw::{self, BranchNames, Entry, EntryKind, count, preview, shorten};
use rath::record::lineage::Lineage;
use rath::record::{SHORT_ID_DIGITS, Step, Timestamp};
use unicode_width::UnicodeWidthStr;

use crate::output::{self, BRANCH, FAINT};

/// The columns of an age such as `59m ago`.
const AGE_COLUMNS: usize = 7;
/// The width from which on the time is shown in place of the age.
const COLUMNS_FOR_TIMES: usize = 120;
const TIME_COLUMNS: usize = "2026-11-19 14:00 UTC".len();
/// The columns that the name of a branch may take.
const MAX_BRANCH_COLUMNS: usize = 16;
/// The fewest columns that a text is shortened to. A graph that leaves less is cut.
const MIN_TEXT_COLUMNS: usize = 12;
const ARROW: &str = " → ";

/// Draws entries of a log on lines that fit a width.
pub(super) struct EntryLine {
    names: BranchNames,
    has_branches: bool,
    columns: usize,
    now: Timestamp,
}

impl EntryLine {
    pub(super) fn new(lineage: &Lineage) -> Self {
        let names = BranchNames::new(lineage);
        EntryLine { has_branches: names.len() > 1, names, columns: output::columns(), now: output::now() }
    }

    /// Returns the width that the lines fit.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Draws an entry on a line, after a graph with so many columns.
    pub(super) fn draw(&self, entry: &Entry<'_>, graph: usize) -> String {
        let step = entry.newest();
        let (at, at_columns) = match step.stamp().at {
            at if self.columns >= COLUMNS_FOR_TIMES => (at.map(output::minute), TIME_COLUMNS),
            at => (at.map(|at| output::age(at, self.now)), AGE_COLUMNS),
        };
        let at = at.unwrap_or_default();
        let mut line = format!("{}  {FAINT}{at:<at_columns$}{FAINT:#}  ", output::short(&step.id()));
        let mut before = graph + SHORT_ID_DIGITS + 2 + at_columns + 2;
        if self.has_branches {
            let name = shorten(self.names.name_of_step(step), MAX_BRANCH_COLUMNS);
            before += name.width() + 2;
            line.push_str(&format!("{BRANCH}{name}{BRANCH:#}  "));
        }
        let columns = self.columns.saturating_sub(before).max(MIN_TEXT_COLUMNS);
        match entry.kind {
            EntryKind::Turn => line.push_str(&Turn::of(&entry.steps).draw(columns)),
            EntryKind::Event => line.push_str(&shorten(&self.event(step), columns)),
        }
        line
    }

    /// Describes an event.
    fn event(&self, step: &Step) -> String {
        let branch = step.parents().get(1).and_then(|parent| parent.step());
        let branch = branch.map_or_else(|| "a branch".to_owned(), |step| self.names.display_name(step));
        match step.chunk() {
            Chunk::Merged(merged) => describe_merge(merged, &branch),
            Chunk::Checked(it) => {
                let verdict = match it.verdict {
                    Verdict::Passed => "passed",
                    Verdict::Failed => "failed",
                    _ => "could not run",
                };
                format!("check {verdict}: {}", it.check)
            }
            Chunk::Decided(it) => {
                let taken = match it.taken {
                    Resolution::Ours => "our version",
                    Resolution::Theirs => "their version",
                    Resolution::Edited => "an edited version",
                    Resolution::Markers => "both versions, with conflict markers",
                };
                format!("conflict in {} decided: {taken}", it.path)
            }
            Chunk::Restored(it) => {
                format!("files restored to step {}, {} changed", it.to.short(), count(it.effects.len() as u64, "file"))
            }
            Chunk::Compressed(it) => {
                format!("summary of {}: {}", count(it.hidden.len() as u64, "step"), text(&it.summary, self.columns))
            }
            Chunk::Resumed(it) if it.is_incomplete => {
                format!("copied from a damaged file: {}", it.differences.join("; "))
            }
            Chunk::Resumed(it) => format!("continued although: {}", it.differences.join("; ")),
            Chunk::Adopted(it) => format!("taken over by {}", it.by),
            chunk => draw::describe(chunk),
        }
    }
}

fn describe_merge(merged: &Merged, branch: &str) -> String {
    match merged.strategy {
        Strategy::Ancestor if !merged.conflicts.is_empty() => {
            let paths: Vec<_> = merged.conflicts.iter().map(|conflict| conflict.path.as_str()).collect();
            format!("merged {branch}, conflicts in {}", paths.join(", "))
        }
        Strategy::Ancestor => format!("merged {branch}"),
        Strategy::Concat => format!("appended {branch}"),
        // A model of this branch reads none of it.
        _ => format!("separate work on {branch} ended"),
    }
}

/// A turn as a log shows it.
#[derive(Default)]
pub(crate) struct Turn<'a> {
    said: Option<&'a Text>,
    end: Option<TurnEnd<'a>>,
    /// The tools that were called, in the order of their first calls, each with the number of its calls.
    tools: Vec<(&'a str, u64)>,
    calls: u64,
    failed: u64,
    refused: u64,
    changed: BTreeSet<&'a str>,
    changed_outside: BTreeSet<&'a str>,
    newest: Option<&'a Step>,
}

/// The newest thing that ended a turn.
enum TurnEnd<'a> {
    Answer(&'a Text),
    Stopped(&'a Text),
    Failed(&'a Text),
}

impl<'a> Turn<'a> {
    /// Returns the turn that consists of these steps.
    pub(crate) fn of(steps: &[&'a Step]) -> Self {
        let mut turn = Turn { newest: steps.last().copied(), ..Turn::default() };
        for step in steps {
            match step.chunk() {
                Chunk::User(it) => turn.said = Some(&it.text),
                Chunk::Assistant(it) => {
                    turn.end = Some(TurnEnd::Answer(&it.text)).filter(|_| !it.text.is_empty());
                    for call in &it.calls {
                        turn.calls += 1;
                        match turn.tools.iter_mut().find(|(tool, _)| *tool == &*call.tool) {
                            Some((_, calls)) => *calls += 1,
                            None => turn.tools.push((&call.tool, 1)),
                        }
                    }
                }
                Chunk::ToolResult(it) => {
                    match it.outcome {
                        Outcome::Ok | Outcome::Unknown | Outcome::Cancelled => {}
                        Outcome::Denied => turn.refused += 1,
                        _ => turn.failed += 1,
                    }
                    turn.changed.extend(it.effects.iter().map(|effect| effect.path.as_str()));
                }
                Chunk::Observed(it) => {
                    turn.changed_outside.extend(it.effects.iter().map(|effect| effect.path.as_str()));
                }
                Chunk::Interrupted(it) => turn.end = Some(TurnEnd::Stopped(&it.reason)),
                Chunk::Failed(it) => turn.end = Some(TurnEnd::Failed(&it.message)),
                _ => {}
            }
        }
        turn
    }

    /// Describes the calls and the changed files: in full, without the tools, and as short as possible.
    pub(crate) fn folded(&self) -> Vec<String> {
        let calls = (self.calls > 0).then(|| count(self.calls, "call"));
        let tools = self.tools.iter().map(|(tool, calls)| match calls {
            1 => preview(tool),
            calls => format!("{} x{calls}", preview(tool)),
        });
        let counts = [(self.failed, "failed"), (self.refused, "refused")];
        let counts =
            counts.into_iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}"));
        let counts: Vec<_> = counts.collect();
        let full_calls = calls.as_ref().map(|calls| {
            let tools = tools.collect::<Vec<_>>().join(", ");
            let counts = if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) };
            format!("{calls}: {tools}{counts}")
        });
        let files = |paths: &BTreeSet<&str>| (!paths.is_empty()).then(|| count(paths.len() as u64, "file"));
        let changed = files(&self.changed).map(|files| format!("{files} changed"));
        let outside = files(&self.changed_outside).map(|files| format!("{files} changed outside"));
        let join = |parts: Vec<Option<String>>| parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let short_counts = (!counts.is_empty()).then(|| counts.join(", "));
        let forms = vec![
            join(vec![full_calls, changed.clone(), outside.clone()]),
            join(vec![calls.clone(), short_counts, changed.clone(), outside.clone()]),
            join(vec![calls.clone(), files(&self.changed)]),
            join(vec![calls]),
        ];
        forms.into_iter().filter(|form| !form.is_empty()).collect()
    }

    /// Returns what the user said, at most so many columns of it; none if the turn has no message.
    pub(crate) fn said(&self, columns: usize) -> Option<String> {
        self.said.map(|said| text(said, columns))
    }

    /// Draws the turn on so many columns: what the user said, what the agent answered, and the calls in brackets.
    fn draw(&self, columns: usize) -> String {
        let end = self.end.as_ref().map(|end| match end {
            TurnEnd::Answer(answer) => text(answer, columns),
            TurnEnd::Stopped(reason) => shorten(&format!("stopped: {}", text(reason, columns)), columns),
            TurnEnd::Failed(message) => shorten(&format!("failed: {}", text(message, columns)), columns),
        });
        let (said, end) = match (self.said(columns), end) {
            // Neither a message nor an answer: what an agent began with.
            (None, None) => (self.newest.map(|step| shorten(&draw::describe(step.chunk()), columns)), None),
            both => both,
        };
        let natural = said.iter().chain(&end).map(|text| text.width()).sum::<usize>();
        let arrow = if end.is_some() { ARROW } else { "" };
        // The calls get what the texts leave, or else up to half of the line, in the longest form that fits.
        let free = columns.saturating_sub(natural + arrow.width());
        let room = free.max(columns / 2);
        let folded = self.folded().into_iter().find(|form| form.width() + "  []".len() <= room);
        let folded = folded.map(|form| format!("  {FAINT}[{form}]{FAINT:#}")).unwrap_or_default();
        let folded_columns = output::without_styles(&folded).width();
        let room = columns.saturating_sub(folded_columns + arrow.width()).max(MIN_TEXT_COLUMNS / 2);
        let (said, end) = (said.unwrap_or_default(), end.unwrap_or_default());
        let (said_columns, end_columns) = share(room, said.width(), end.width());
        format!("{}{arrow}{}{folded}", shorten(&said, said_columns), shorten(&end, end_columns))
    }
}

/// Shares columns between two texts: each gets what it needs, or half if both need more.
fn share(columns: usize, one: usize, other: usize) -> (usize, usize) {
    let half = columns / 2;
    match (one <= half, other <= columns - half) {
        _ if one + other <= columns => (one, other),
        (true, _) => (one, columns - one),
        (_, true) => (columns - other, other),
        _ => (half, columns - half),
    }
}

/// Returns the beginning of a text, or says that the text is not there.
fn text(text: &Text, columns: usize) -> String {
    match text.as_str() {
        Some(present) => shorten(present, columns),
        None => text.to_string(),
    }
}

/// Cuts what a row has beyond the width, line by line. A row of a turn fits, unless its graph leaves too little room.
pub(super) fn cut_row(row: &str, columns: usize) -> String {
    let mut cut = String::with_capacity(row.len());
    for line in row.split_inclusive('\n') {
        match output::without_styles(line).trim_end_matches('\n').width() > columns {
            true => cut.push_str(&format!("{}\n", cut_columns(line, columns))),
            false => cut.push_str(line),
        }
    }
    cut
}

/// Returns the beginning of a line that fits, with an ellipsis. Blanks stay as they are, and styles take no columns.
fn cut_columns(line: &str, columns: usize) -> String {
    let (mut cut, mut width, mut is_style) = (String::new(), 0, false);
    for c in line.chars() {
        is_style = is_style || c == '\u{1b}';
        if !is_style {
            let mut buffer = [0; 4];
            width += c.encode_utf8(&mut buffer).width();
            if width >= columns {
                break;
            }
        }
        cut.push(c);
        is_style = is_style && c != 'm';
    }
    let is_styled = cut.contains('\u{1b}');
    format!("{}…{}", cut.trim_end(), if is_styled { "\u{1b}[0m" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_shared() {
        for (columns, one, other, expected) in
            [(20, 5, 5, (5, 5)), (20, 5, 50, (5, 15)), (20, 50, 5, (15, 5)), (21, 50, 50, (10, 11)), (20, 0, 9, (0, 9))]
        {
            assert_eq!(share(columns, one, other), expected);
        }
    }

    #[test]
    fn a_graph_that_is_too_wide_is_cut_by_columns() {
        let row = format!("│ │ ● {BRANCH}宽宽宽宽宽宽宽宽宽{BRANCH:#}\n├─╯\n");
        assert_eq!(cut_row(&row, 40), row);
        assert_eq!(output::without_styles(&cut_row(&row, 13)), "│ │ ● 宽宽宽…\n├─╯\n");
        assert!(cut_row(&row, 13).contains("…\u{1b}[0m\n"), "the style ends");
    }
}
