//! The record as text for people: one line a chunk, and the graph of steps.

use std::collections::HashMap;

use renderdag::{Ancestor, GraphRowRenderer, Renderer};
use unicode_width::UnicodeWidthStr;

use crate::chunk::{
    Assistant, Call, Change, Choice, Chunk, Effect, Finish, MemoryEvent, Outcome, Strategy, Taken, Verdict,
};
use crate::id::{BranchId, StepId};
use crate::lineage::{self, Lineage};
use crate::payload::Text;
use crate::step::Step;

/// How many columns of a text a headline shows.
const PREVIEW: usize = 60;

/// Draws the graph, newest first: for every step its id, its branch, and what it says.
pub fn graph(lineage: &Lineage) -> String {
    let names = Names::of(lineage);
    let mut drawn = String::new();
    rows(lineage, |step| format!("{} {}  {}", step.id().short(), names.shown(step), headline(step)))
        .for_each(|row| drawn.push_str(&row));
    drawn
}

/// Draws the graph row by row, newest first, with a text of the caller's for every step.
pub fn rows(lineage: &Lineage, mut text: impl FnMut(&Step) -> String) -> impl Iterator<Item = String> {
    let mut renderer = GraphRowRenderer::<StepId>::new().output().with_min_row_height(1).build_box_drawing();
    lineage.walk().into_iter().rev().map(move |step| {
        let parents = step.parents().iter().map(|link| match link.step() {
            Some(parent) => Ancestor::Parent(parent.id()),
            None => Ancestor::Anonymous,
        });
        let glyph = if step.parents().len() == 2 { "◆" } else { "○" };
        renderer.next_row(step.id(), parents.collect(), glyph.to_owned(), text(step))
    })
}

/// What the branches of a lineage are called.
pub struct Names(HashMap<BranchId, String>);

impl Names {
    /// Names the branches of `lineage`.
    pub fn of(lineage: &Lineage) -> Self {
        Names(lineage::branches(&lineage.walk()).into_iter().map(|branch| (branch.id, branch.name)).collect())
    }

    /// The name of the branch that `step` is on.
    pub fn of_step(&self, step: &Step) -> &str {
        self.of_branch(step.stamp().branch)
    }

    /// The name of a branch.
    pub fn of_branch(&self, branch: BranchId) -> &str {
        self.0.get(&branch).map_or("?", String::as_str)
    }

    /// The same as it is shown: control characters made visible.
    pub fn shown(&self, step: &Step) -> String {
        self.of_step(step).chars().map(visible).collect()
    }
}

/// What a step says, who said it and what it cost, on one line.
pub fn headline(step: &Step) -> String {
    let mut line = says(step.chunk());
    if let Some(by) = &step.stamp().by {
        line.push_str(&format!("  [{}]", preview(by)));
    }
    if let Some(usage) = step.stamp().usage {
        line.push_str(&format!("  ({usage})"));
    }
    line
}

/// How a call ended, in words.
pub fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::UnknownTool => "unknown tool",
        Outcome::BadJson => "bad JSON",
        Outcome::BadArguments => "bad arguments",
        Outcome::Failed => "failed",
        Outcome::TimedOut => "timed out",
        Outcome::Denied => "denied",
        Outcome::Cancelled => "cancelled",
        Outcome::Unknown => "unknown",
    }
}

/// Why the model stopped, in words.
pub fn finish(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Calls => "calls",
        Finish::Length => "out of tokens",
        Finish::Filtered => "withheld by the provider",
    }
}

/// What a call changed, in a word.
pub fn changed(effect: &Effect) -> String {
    let path = preview(&effect.path);
    match &effect.change {
        Change::Created => format!("+{path}"),
        Change::Modified => format!("~{path}"),
        Change::Deleted => format!("-{path}"),
        Change::Renamed { from } => format!("{}→{path}", preview(from)),
    }
}

/// What changed, path by path, as far as it fits on a line.
fn changes(effects: &[Effect]) -> String {
    let mut line: String = effects.iter().take(CHANGES).map(|effect| format!(" {}", changed(effect))).collect();
    if effects.len() > CHANGES {
        line.push_str(&format!(" and {} more", effects.len() - CHANGES));
    }
    line
}

/// How many changed paths are named on one line.
const CHANGES: usize = 20;

/// What a chunk says, on one line.
pub fn says(chunk: &Chunk) -> String {
    let kind = chunk.kind();
    match chunk {
        Chunk::Instructions(it) if it.tools.is_empty() => format!("{kind}: {}", text(&it.text)),
        Chunk::Instructions(it) => {
            format!("{kind}: {} (tools: {})", text(&it.text), names(it.tools.iter().map(|tool| &tool.name)))
        }
        Chunk::User(it) if it.images.is_empty() => format!("{kind}: {}", text(&it.text)),
        Chunk::User(it) => format!("{kind}: {} (images: {})", text(&it.text), it.images.len()),
        Chunk::Assistant(it) => format!("{kind}{}", answer(it)),
        Chunk::ToolStarted(it) => format!("tool started: {}", preview(&it.call.0)),
        Chunk::ToolResult(it) => {
            let (output, outcome) = (text(&it.output), outcome(it.outcome));
            let mut line = format!("tool result: {} {outcome}", preview(&it.call.0));
            if !output.is_empty() {
                // What a model reads of a failure begins with these words too.
                let rest = output.strip_prefix(outcome).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&output);
                line.push_str(&format!(": {rest}"));
            }
            line + &changes(&it.effects)
        }
        Chunk::Placed(it) => format!("{kind}: {}", preview(&it.place)),
        Chunk::Observed(it) if it.effects.is_empty() => format!("{kind}: {}", preview(&it.tree.0)),
        Chunk::Observed(it) => format!("{kind}:{}", changes(&it.effects)),
        Chunk::Decided(it) => {
            let taken = match it.taken {
                Taken::Ours => "ours",
                Taken::Theirs => "theirs",
                Taken::Edited => "edited",
                Taken::Markers => "both, with marks",
            };
            format!("{kind}: {} {taken}", preview(&it.path))
        }
        Chunk::Memory(it) => match &it.event {
            MemoryEvent::Remember { text: fact } => format!("remember: {}", text(fact)),
            MemoryEvent::Recall { query, found } => format!("recall: {} ({} found)", text(query), found.len()),
            MemoryEvent::Commit { entries } => format!("commit: {}", names(entries)),
            MemoryEvent::Forget { entries } => format!("forget: {}", names(entries)),
        },
        Chunk::Compressed(it) => {
            format!("{kind}: {} into: {}", count(it.hidden.len() as u64, "step"), text(&it.summary))
        }
        Chunk::Selected(it) => {
            let choice = match &it.choice {
                Choice::Chosen { route } => preview(route),
                Choice::Done => "done".to_owned(),
                Choice::OutOfRange => format!("out of range: {}", text(&it.reply)),
                Choice::Unparseable => format!("unparseable: {}", text(&it.reply)),
                Choice::Empty => "empty reply".to_owned(),
            };
            format!("{kind}: {choice} (of {})", it.menu.len())
        }
        Chunk::Checked(it) => {
            let verdict = match it.verdict {
                Verdict::Passed => "passed",
                Verdict::Failed => "failed",
                Verdict::Broken => "could not run",
            };
            format!("{kind}: {} {verdict}", preview(&it.check))
        }
        Chunk::Forked(_) | Chunk::Detached(_) => kind.to_owned(),
        Chunk::Merged(it) => match it.strategy {
            Strategy::Ancestor if !it.conflicts.is_empty() => {
                format!("{kind} (conflicts: {})", names(it.conflicts.iter().map(|conflict| &conflict.path)))
            }
            Strategy::Ancestor => kind.to_owned(),
            Strategy::Concat => format!("{kind} (concat)"),
            Strategy::Aside => "kept aside".to_owned(),
        },
        Chunk::Retry(it) => format!("{kind}: attempt {} of {} failed: {}", it.attempt, it.of, text(&it.error)),
        Chunk::Interrupted(it) => format!("{kind}: {}", text(&it.reason)),
        Chunk::Approved(it) => format!("{kind}: {}", preview(&it.call.0)),
        Chunk::Denied(it) => format!("{kind}: {}: {}", preview(&it.call.0), text(&it.reason)),
        Chunk::Failed(it) => format!("{kind}: {}: {}", preview(&it.error), text(&it.message)),
        Chunk::Resumed(it) => format!("{kind}: {}", preview(&it.differences.join("; "))),
        Chunk::Note(it) => format!("{kind}: {}", text(&it.text)),
        Chunk::Other(it) => format!("{} (not read by this version): {}", preview(it.kind()), preview(it.json())),
    }
}

/// A number of things in words: `1 step`, `2 steps`.
pub fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A text on one line: white space folded, control characters made visible, cut where it gets wide.
pub fn preview(text: &str) -> String {
    let mut line = String::new();
    let mut width = 0;
    // Where to cut if the next piece does not fit: a column is left for the mark.
    let mut cut = 0;
    let words = text.split_whitespace().enumerate();
    // No more is looked at than fits: a text of ten megabytes must not be folded for sixty columns.
    let chars = words.flat_map(|(nth, word)| (nth > 0).then_some(' ').into_iter().chain(word.chars()));
    for c in chars {
        let piece = visible(c);
        width += UnicodeWidthStr::width(&*piece);
        if width > PREVIEW {
            line.truncate(cut);
            line.push('…');
            break;
        }
        line.push_str(&piece);
        if width < PREVIEW {
            cut = line.len();
        }
    }
    line
}

/// A text in full, but that control characters are made visible: what a model wrote must not drive a terminal.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\n' | '\t') { shown.push(c) } else { shown.push_str(&visible(c)) }
    }
    shown
}

/// The character, or its escape if it would do something else than be seen: control characters, and those that turn the
/// direction of what follows and so could make a line read as another.
fn visible(c: char) -> String {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if c.is_control() || turns { c.escape_default().to_string() } else { c.to_string() }
}

fn text(text: &Text) -> String {
    match text {
        Text::Here(here) => preview(here),
        Text::Away(_) => text.to_string(),
    }
}

fn names<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    preview(&names.into_iter().map(String::as_str).collect::<Vec<_>>().join(", "))
}

fn answer(answer: &Assistant) -> String {
    let mut line = String::new();
    if !answer.text.is_empty() || answer.calls.is_empty() {
        line.push_str(&format!(": {}", text(&answer.text)));
    }
    if matches!(answer.finish, Finish::Length | Finish::Filtered) {
        line.push_str(&format!(" ({})", finish(answer.finish)));
    }
    for (nth, call) in answer.calls.iter().enumerate() {
        line.push_str(if nth == 0 { " calls " } else { ", " });
        line.push_str(&called(call));
    }
    line
}

fn called(call: &Call) -> String {
    format!("{}({})", preview(&call.tool), text(&call.arguments))
}
