//! The record as text for people: one line per chunk, and the graph of steps.

mod entries;
mod visible;

use std::collections::HashMap;
use std::fmt;

use renderdag::{Ancestor, GraphRowRenderer, Renderer};

use crate::chunk::{
    Assistant, Call, Change, Choice, Chunk, Effect, Finish, MemoryEvent, Outcome, Resolution, Strategy, Verdict,
};
use crate::id::{BranchId, SHORT_ID_DIGITS, StepId};
use crate::lineage::{self, Lineage};
use crate::payload::Text;
use crate::step::Step;

pub use entries::{Entry, EntryKind, entries, entry_rows};
pub use visible::{is_visible, one_line, preview, printable, shorten};

/// Draws the graph, newest step first, with id, branch and content of every step.
///
/// ```
/// use rath_record::{BranchId, Chunk, Record, Stamp, draw};
///
/// let mut record = Record::new();
/// record.push(Chunk::user("Hello"), Stamp::on(BranchId([1; 16])));
/// record.push(Chunk::assistant("Hi!"), Stamp::on(BranchId([1; 16])));
/// let text = draw::graph(&record.lineage());
/// assert!(text.contains("main  user: Hello"));
/// ```
pub fn graph(lineage: &Lineage) -> String {
    let names = BranchNames::new(lineage);
    let mut text = String::new();
    rows(lineage, |step| format!("{} {}  {}", step.id().short(), names.display_name(step), headline(step)))
        .for_each(|row| text.push_str(&row));
    text
}

/// Draws the graph row by row, newest step first, with a text of the caller's for every step.
///
/// ```
/// use rath_record::{BranchId, Chunk, Record, Stamp, draw};
///
/// let mut record = Record::new();
/// record.push(Chunk::user("Hello"), Stamp::on(BranchId([1; 16])));
/// let rows: String = draw::rows(&record.lineage(), draw::headline).collect();
/// assert!(rows.contains("user: Hello"));
/// ```
pub fn rows(lineage: &Lineage, mut text: impl FnMut(&Step) -> String) -> impl Iterator<Item = String> {
    let mut renderer = GraphRowRenderer::<StepId>::new().output().with_min_row_height(1).build_box_drawing();
    lineage.walk().into_iter().rev().map(move |step| {
        let parents = step.parents().iter().map(|parent| match parent.step() {
            Some(parent) => Ancestor::Parent(parent.id()),
            None => Ancestor::Anonymous,
        });
        let glyph = if step.parents().len() == 2 { "◆" } else { "○" };
        renderer.next_row(step.id(), parents.collect(), glyph.to_owned(), text(step))
    })
}

/// Shows the graph as text, newest step first.
impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(graph(self).trim_end())
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The names of the branches of a lineage.
///
/// ```
/// use rath_record::draw::BranchNames;
/// use rath_record::{BranchId, Chunk, Record, Stamp};
///
/// let mut record = Record::new();
/// record.push(Chunk::user("Hello"), Stamp::on(BranchId([1; 16])));
/// let names = BranchNames::new(&record.lineage());
/// assert_eq!(names.name_of(BranchId([1; 16])), "main");
/// ```
pub struct BranchNames(HashMap<BranchId, String>);

impl BranchNames {
    /// Collects the names of the branches of `lineage`.
    pub fn new(lineage: &Lineage) -> Self {
        BranchNames(lineage::branches(&lineage.walk()).into_iter().map(|branch| (branch.id, branch.name)).collect())
    }

    /// Returns the number of branches.
    #[expect(clippy::len_without_is_empty, reason = "a lineage without branches has no steps")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the name of the branch that `step` is on.
    pub fn name_of_step(&self, step: &Step) -> &str {
        self.name_of(step.stamp().branch)
    }

    /// Returns the name of a branch, or `?` if it is not in the lineage.
    pub fn name_of(&self, branch: BranchId) -> &str {
        self.0.get(&branch).map_or("?", String::as_str)
    }

    /// Returns the name of the branch that `step` is on, as [`one_line`].
    pub fn display_name(&self, step: &Step) -> String {
        one_line(self.name_of_step(step))
    }
}

/// Describes a step on one line: its content, the module that appended it and its usage.
///
/// ```
/// use rath_record::{BranchId, Chunk, Record, Stamp, Usage, draw};
///
/// let mut record = Record::new();
/// let stamp = Stamp::on(BranchId([1; 16])).by("readme.agent").usage(Usage::new(20, 5));
/// let line = draw::headline(record.push(Chunk::assistant("Done."), stamp));
/// assert!(line.starts_with("assistant: Done."));
/// assert!(line.contains("readme.agent"));
/// ```
pub fn headline(step: &Step) -> String {
    let mut line = describe(step.chunk());
    if let Some(by) = &step.stamp().by {
        line.push_str(&format!("  [{}]", preview(by)));
    }
    if let Some(usage) = step.stamp().usage {
        line.push_str(&format!("  ({usage})"));
    }
    line
}

/// Returns the outcome of a call in words.
///
/// ```
/// use rath_record::{chunk::Outcome, draw};
///
/// assert_eq!(draw::outcome_text(Outcome::TimedOut), "timed out");
/// ```
pub fn outcome_text(outcome: Outcome) -> &'static str {
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

/// Returns the reason why the model stopped in words.
///
/// ```
/// use rath_record::{chunk::Finish, draw};
///
/// assert_eq!(draw::finish_text(Finish::Length), "out of tokens");
/// ```
pub fn finish_text(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Calls => "calls",
        Finish::Length => "out of tokens",
        Finish::Filtered => "withheld by the provider",
    }
}

/// Describes the change of a file: a sign for the kind of change, and the path.
///
/// ```
/// use rath_record::chunk::{Change, Effect};
/// use rath_record::draw::describe_effect;
///
/// assert_eq!(describe_effect(&Effect::new("a.txt", Change::Deleted)), "-a.txt");
/// ```
pub fn describe_effect(effect: &Effect) -> String {
    let path = preview(&effect.path);
    match &effect.change {
        Change::Created => format!("+{path}"),
        Change::Modified => format!("~{path}"),
        Change::Deleted => format!("-{path}"),
        Change::Renamed { from } => format!("{}→{path}", preview(from)),
    }
}

/// Describes changes of files on one line, as far as they fit.
fn describe_effects(effects: &[Effect]) -> String {
    let mut line: String =
        effects.iter().take(MAX_LISTED_CHANGES).map(|effect| format!(" {}", describe_effect(effect))).collect();
    if effects.len() > MAX_LISTED_CHANGES {
        line.push_str(&format!(" and {} more", effects.len() - MAX_LISTED_CHANGES));
    }
    line
}

/// The number of changed paths that are named on one line.
const MAX_LISTED_CHANGES: usize = 20;

/// Describes a chunk on one line.
///
/// ```
/// use rath_record::{Chunk, draw};
///
/// assert_eq!(draw::describe(&Chunk::result("c1", "3 files")), "tool result: c1 ok: 3 files");
/// ```
pub fn describe(chunk: &Chunk) -> String {
    let kind = chunk.kind();
    match chunk {
        Chunk::Instructions(it) if it.tools.is_empty() => format!("{kind}: {}", preview_text(&it.text)),
        Chunk::Instructions(it) => {
            format!(
                "{kind}: {} (tools: {})",
                preview_text(&it.text),
                join_names(it.tools.iter().map(|tool| &tool.name))
            )
        }
        Chunk::User(it) if it.images.is_empty() => format!("{kind}: {}", preview_text(&it.text)),
        Chunk::User(it) => format!("{kind}: {} (images: {})", preview_text(&it.text), it.images.len()),
        Chunk::Assistant(it) => format!("{kind}{}", describe_answer(it)),
        Chunk::ToolStarted(it) => {
            // That the mode allowed a call is the usual case, and says nothing about this one.
            let rule = it.rule.iter().filter(|rule| !rule.starts_with("mode "));
            let rule: String = rule.map(|rule| format!(" ({})", preview(rule))).collect();
            format!("tool started: {}{rule}", preview(&it.call.0))
        }
        Chunk::ToolResult(it) => {
            let (output, outcome) = (preview_text(&it.output), outcome_text(it.outcome));
            let mut line = format!("tool result: {} {outcome}", preview(&it.call.0));
            if !output.is_empty() {
                // The text that a model reads of a failure begins with the outcome too.
                let rest = output.strip_prefix(outcome).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&output);
                line.push_str(&format!(": {rest}"));
            }
            if !it.images.is_empty() {
                line.push_str(&format!(" (images: {})", it.images.len()));
            }
            line.push_str(&describe_effects(&it.effects));
            if !it.put_back.is_empty() {
                line.push_str(&format!(" (put back: {})", join_names(it.put_back.iter())));
            }
            if !it.not_put_back.is_empty() {
                line.push_str(&format!(" (not put back: {})", join_names(it.not_put_back.iter())));
            }
            line
        }
        Chunk::Placed(it) => format!("sandbox: {}", preview(&it.place)),
        Chunk::Observed(it) if it.effects.is_empty() => format!("files recorded: {}", short_tree(&it.tree.0)),
        Chunk::Observed(it) if it.calls.is_empty() => {
            format!("changed outside the agent:{}", describe_effects(&it.effects))
        }
        Chunk::Observed(it) => {
            let calls = join_names(it.calls.iter().map(|call| &*call.0));
            format!("changed by {calls}, or outside the agent:{}", describe_effects(&it.effects))
        }
        Chunk::Decided(it) => {
            let taken = match it.taken {
                Resolution::Ours => "ours",
                Resolution::Theirs => "theirs",
                Resolution::Edited => "edited",
                Resolution::Markers => "both, with conflict markers",
            };
            format!("{kind}: {} {taken}", preview(&it.path))
        }
        Chunk::Restored(it) => format!("{kind} to {}:{}", it.to.short(), describe_effects(&it.effects)),
        Chunk::Memory(it) => match &it.event {
            MemoryEvent::Remember { text: fact, .. } => format!("remember: {}", preview_text(fact)),
            MemoryEvent::Recall { query, found, notice, .. } => {
                let notice = notice.as_ref().map(|notice| format!("; {}", preview(notice))).unwrap_or_default();
                format!("recall: {} ({} found{notice})", preview_text(query), found.len())
            }
            // A run has many, with names that say nothing.
            MemoryEvent::Commit { entries, .. } => match entries.len() {
                1 => "commit: 1 note".to_owned(),
                count => format!("commit: {count} notes"),
            },
            MemoryEvent::Forget { entries } => format!("forget: {}", join_names(entries)),
        },
        Chunk::Compressed(it) => {
            format!("{kind}: {} into: {}", count(it.hidden.len() as u64, "step"), preview_text(&it.summary))
        }
        Chunk::Selected(it) => {
            let choice = match &it.choice {
                Choice::Chosen { route } => preview(route),
                Choice::Done => "done".to_owned(),
                Choice::OutOfRange => format!("out of range: {}", preview_text(&it.reply)),
                Choice::Unparseable => format!("unparseable: {}", preview_text(&it.reply)),
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
                format!("{kind} (conflicts: {})", join_names(it.conflicts.iter().map(|conflict| &conflict.path)))
            }
            Strategy::Ancestor => kind.to_owned(),
            Strategy::Concat => format!("{kind} (concat)"),
            Strategy::Aside => "separate work".to_owned(),
        },
        Chunk::Retry(it) => format!("{kind}: attempt {} of {} failed: {}", it.attempt, it.of, preview_text(&it.error)),
        Chunk::Interrupted(it) => format!("{kind}: {}", preview_text(&it.reason)),
        Chunk::Asked(it) => format!("{kind}: {}: {}", preview(&it.call.0), preview(&it.why)),
        Chunk::Approved(it) => {
            let rules = match &it.rules[..] {
                [] => String::new(),
                rules => format!("; from here on {}", preview(&rules.join(", "))),
            };
            format!("{kind}{}: {}{rules}", by_person(&it.by), preview(&it.call.0))
        }
        Chunk::Denied(it) => {
            let rule = it.rule.iter().map(|rule| format!(" (rule: {})", preview(rule))).collect::<String>();
            format!("{kind}{}: {}: {}{rule}", by_person(&it.by), preview(&it.call.0), preview_text(&it.reason))
        }
        Chunk::Failed(it) => format!("{kind}: {}: {}", preview(&it.error), preview_text(&it.message)),
        Chunk::Adopted(it) => format!("{kind}: by {}", preview(&it.by)),
        Chunk::Resumed(it) if it.is_incomplete => {
            format!("copied from a damaged file: {}", preview(&it.differences.join("; ")))
        }
        Chunk::Resumed(it) => format!("{kind}: {}", preview(&it.differences.join("; "))),
        Chunk::Note(it) => format!("{kind}: {}", preview_text(&it.text)),
        Chunk::Other(it) => format!("{} (not read by this version): {}", preview(it.kind()), preview(it.json())),
    }
}

/// Returns a version of files by as many digits as a step has, without its kind.
fn short_tree(tree: &str) -> String {
    let digits = tree.split_once(':').map_or(tree, |(_, digits)| digits);
    preview(&digits.chars().take(SHORT_ID_DIGITS).collect::<String>())
}

fn by_person(person: &Option<String>) -> String {
    person.iter().map(|person| format!(" by {}", preview(person))).collect()
}

/// Formats a number with its noun: `1 step`, `2 steps`.
///
/// ```
/// assert_eq!(rath_record::draw::count(3, "file"), "3 files");
/// ```
pub fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

fn preview_text(text: &Text) -> String {
    match text {
        Text::Present(content) => preview(content),
        Text::Missing(_) => text.to_string(),
    }
}

fn join_names<'a, T: AsRef<str> + ?Sized + 'a>(names: impl IntoIterator<Item = &'a T>) -> String {
    preview(&names.into_iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", "))
}

fn describe_answer(answer: &Assistant) -> String {
    let mut line = String::new();
    if !answer.text.is_empty() || answer.calls.is_empty() {
        line.push_str(&format!(": {}", preview_text(&answer.text)));
    }
    if matches!(answer.finish, Finish::Length | Finish::Filtered) {
        line.push_str(&format!(" ({})", finish_text(answer.finish)));
    }
    for (nth, call) in answer.calls.iter().enumerate() {
        line.push_str(if nth == 0 { " calls " } else { ", " });
        line.push_str(&describe_call(call));
    }
    line
}

fn describe_call(call: &Call) -> String {
    format!("{}({})", preview(&call.tool), preview_text(&call.arguments))
}
