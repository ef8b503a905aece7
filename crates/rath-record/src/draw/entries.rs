//! The entries of a log: the turns of a session, and the events between them.

use std::collections::HashMap;

use renderdag::{Ancestor, GraphRowRenderer, Renderer};
use unicode_width::UnicodeWidthStr;

use crate::chunk::Chunk;
use crate::id::StepId;
use crate::lineage::Lineage;
use crate::step::Step;

/// A part of a log that is shown on one line.
///
/// ```
/// use rath_record::draw::{EntryKind, entries};
/// use rath_record::{BranchId, Chunk, Record, Stamp};
///
/// let mut record = Record::new();
/// for chunk in [Chunk::user("Hello"), Chunk::assistant("Hi!"), Chunk::user("Bye")] {
///     record.push(chunk, Stamp::on(BranchId([1; 16])));
/// }
/// let lineage = record.lineage();
/// let turns = entries(&lineage);
/// assert_eq!(turns.iter().map(|turn| turn.steps.len()).collect::<Vec<_>>(), [2, 1]);
/// assert_eq!(turns[0].kind, EntryKind::Turn);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// The kind of entry.
    pub kind: EntryKind,
    /// The steps of the entry, oldest first; each is the first parent of the next. There is at least one.
    pub steps: Vec<&'a Step>,
    /// The entries that lead to this one, as indices into the list; `None` for one that is missing.
    parents: Vec<Option<usize>>,
}

/// A kind of [`Entry`].
///
/// Part of [`Entry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A message of the user and all that follows it: answers, calls and their results.
    Turn,
    /// One step that is shown by itself: a fork, a merge, a check, a restore, ..
    Event,
}

impl<'a> Entry<'a> {
    /// Returns the newest step of the entry.
    pub fn newest(&self) -> &'a Step {
        self.steps.last().expect("an entry is made with a step")
    }
}

/// Returns the turns and events of a lineage, parents before children.
///
/// See [`Entry`] for an example.
pub fn entries(lineage: &Lineage) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    // The entry of each step, for the steps after it.
    let mut entry_of: HashMap<StepId, usize> = HashMap::new();
    for step in lineage.walk() {
        let of_parent = step.first_parent().and_then(|parent| entry_of.get(&parent.id())).copied();
        let continued = of_parent.filter(|index| continues(&entries[*index], step));
        let index = match continued {
            Some(index) => {
                entries[index].steps.push(step);
                index
            }
            None => {
                let kind = if is_event(step.chunk()) { EntryKind::Event } else { EntryKind::Turn };
                let parents = step.parents().iter().map(|parent| entry_of.get(&parent.id()).copied()).collect();
                entries.push(Entry { kind, steps: vec![step], parents });
                entries.len() - 1
            }
        };
        entry_of.insert(step.id(), index);
    }
    entries
}

/// Returns true if a step is part of the turn that its first parent belongs to.
fn continues(entry: &Entry<'_>, step: &Step) -> bool {
    let last = entry.newest();
    let is_next = step.first_parent().is_some_and(|parent| parent.id() == last.id())
        && step.stamp().branch == last.stamp().branch;
    if entry.kind == EntryKind::Event || !is_next || is_event(step.chunk()) {
        return false;
    }
    // The instructions of an agent may come before the message that it answers.
    let has_begun = |step: &&Step| matches!(step.chunk(), Chunk::User(_) | Chunk::Assistant(_));
    !matches!(step.chunk(), Chunk::User(_)) || !entry.steps.iter().any(has_begun)
}

/// Returns true for a step that a log shows on a line of its own.
fn is_event(chunk: &Chunk) -> bool {
    matches!(
        chunk,
        Chunk::Forked(_)
            | Chunk::Merged(_)
            | Chunk::Detached(_)
            | Chunk::Checked(_)
            | Chunk::Restored(_)
            | Chunk::Decided(_)
            | Chunk::Compressed(_)
            | Chunk::Resumed(_)
            | Chunk::Adopted(_)
            | Chunk::Other(_)
    )
}

/// Draws the graph of a log row by row, the newest entry first. `text` is called with an entry and the number of columns that the
/// graph takes before its text.
///
/// ```
/// use rath_record::draw::{entries, entry_rows};
/// use rath_record::{BranchId, Chunk, Record, Stamp};
///
/// let mut record = Record::new();
/// for chunk in [Chunk::user("Hello"), Chunk::assistant("Hi!"), Chunk::user("Bye")] {
///     record.push(chunk, Stamp::on(BranchId([1; 16])));
/// }
/// let lineage = record.lineage();
/// let rows: String = entry_rows(&entries(&lineage), |entry, _| format!("{} steps", entry.steps.len())).collect();
/// assert_eq!(rows, "●  1 steps\n●  2 steps\n");
/// ```
pub fn entry_rows<'e>(
    entries: &'e [Entry<'e>],
    mut text: impl FnMut(&'e Entry<'e>, usize) -> String,
) -> impl Iterator<Item = String> {
    /// Stands for the text until the width of the graph is known.
    const TEXT: &str = "\u{1}";
    let mut renderer = GraphRowRenderer::<usize>::new().output().with_min_row_height(1).build_box_drawing();
    entries.iter().enumerate().rev().map(move |(index, entry)| {
        let parents = entry.parents.iter().map(|parent| match parent {
            Some(parent) => Ancestor::Parent(*parent),
            None => Ancestor::Anonymous,
        });
        let glyph = match entry.kind {
            EntryKind::Turn => "●",
            EntryKind::Event if entry.parents.len() == 2 => "◆",
            EntryKind::Event => "○",
        };
        let row = renderer.next_row(index, parents.collect(), glyph.to_owned(), TEXT.to_owned());
        let graph = row.split(TEXT).next().unwrap_or_default();
        let shown = text(entry, UnicodeWidthStr::width(graph));
        row.replacen(TEXT, &shown, 1)
    })
}
