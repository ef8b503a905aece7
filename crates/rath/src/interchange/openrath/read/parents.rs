//! Sessions that descend from one another, each in a file of its own.

use std::collections::{HashMap, HashSet};

use rath_record::chunk::{Chunk, Forked, Merged, Strategy};
use rath_record::{BranchId, CounterId, Record, Stamp, Step, StepId};

use super::{ParsedChunk, ParsedFile};

/// A session that was read from its file.
pub(super) struct BuiltFile {
    pub(super) record: Record,
    /// The chunk of each row, with its step.
    pub(super) rows: Vec<(Chunk, Step)>,
}

/// The steps of its parents that a session continues from.
pub(super) struct SharedSteps {
    /// The record that the session's own steps are appended to: at a fork or a merge of the parents.
    pub(super) record: Record,
    /// The rows that are in it.
    pub(super) rows: Vec<(Chunk, Step)>,
}

/// Returns the indices of files, parents before children, from the indices of the parents of each.
///
/// A file that descends from itself is before one of its parents.
pub(super) fn parents_first(parents: &[Vec<usize>]) -> Vec<usize> {
    let mut order = Vec::with_capacity(parents.len());
    let mut is_seen = vec![false; parents.len()];
    let mut is_placed = vec![false; parents.len()];
    for root in 0..parents.len() {
        let mut stack = vec![root];
        while let Some(at) = stack.pop() {
            if is_placed[at] {
                continue;
            }
            if std::mem::replace(&mut is_seen[at], true) {
                is_placed[at] = true;
                order.push(at);
                continue;
            }
            stack.push(at);
            stack.extend(parents[at].iter().copied().filter(|parent| !is_seen[*parent]));
        }
    }
    order
}

/// Returns the index of the file of each session. Of two files of one session, it is the first.
pub(super) fn by_branch(files: &[ParsedFile]) -> HashMap<BranchId, usize> {
    let branches = files.iter().enumerate().filter_map(|(at, file)| Some((file.header.as_ref()?.branch?, at)));
    branches.rev().collect()
}

/// Returns the indices of the files of a session's parents.
pub(super) fn parents_of(file: &ParsedFile, index: &HashMap<BranchId, usize>) -> Vec<usize> {
    let parents = file.header.iter().flat_map(|header| header.parents());
    parents.filter_map(|parent| index.get(&parent).copied()).collect()
}

/// Finds the steps of its parents that a session with these rows continues from; none if it shares none.
pub(super) fn shared_steps(
    chunks: &[ParsedChunk],
    branch: BranchId,
    kind: &str,
    parents: &[&BuiltFile],
) -> Option<SharedSteps> {
    if let ("op_merge", [ours, theirs]) = (kind, parents)
        && let Some(merged) = merge(chunks, branch, ours, theirs)
    {
        return Some(merged);
    }
    let common = |parent: &&BuiltFile| {
        chunks.iter().zip(&parent.rows).take_while(|(parsed, (chunk, _))| parsed.chunk == *chunk).count()
    };
    // Of two parents with equally many rows, the first is the one that the session goes on from.
    let (count, parent) =
        parents.iter().rev().map(|parent| (common(parent), parent)).max_by_key(|(count, _)| *count)?;
    let rows = parent.rows[..count].to_vec();
    let mut record = Record::at(rows.last()?.1.clone());
    // The id of the session tells its fork from all others of that step.
    let forked = Forked::new(1).with_counter(CounterId(branch.0));
    record.push(forked.into(), Stamp::on(branch));
    Some(SharedSteps { record, rows })
}

/// Merges two parents, if a session begins with the rows of that merge: all of ours, then those that only theirs has.
fn merge(chunks: &[ParsedChunk], branch: BranchId, ours: &BuiltFile, theirs: &BuiltFile) -> Option<SharedSteps> {
    let known: HashSet<StepId> = ours.rows.iter().map(|(_, step)| step.id()).collect();
    let only_theirs = theirs.rows.iter().filter(|(_, step)| !known.contains(&step.id()));
    let rows: Vec<_> = ours.rows.iter().chain(only_theirs).cloned().collect();
    let is_same = chunks.len() >= rows.len() && rows.iter().zip(chunks).all(|((chunk, _), own)| *chunk == own.chunk);
    let merged = Merged::new(Strategy::Ancestor).with_counter(CounterId(branch.0));
    let record = is_same.then(|| ours.record.merge(&theirs.record, merged, Stamp::on(branch)))?.ok()?;
    Some(SharedSteps { record, rows })
}
