//! The trees of a workspace over time, and its unresolved conflicts.

use std::collections::{HashMap, HashSet};

use crate::chunk::{Call, Chunk, Conflict, Outcome, Tree};
use crate::id::{CallId, StepId};
use crate::record::Record;
use crate::step::Step;

/// The workspace trees of a record, each after the trees that it was made from.
///
/// ```
/// use rath_record::chunk::{Observed, Tree};
/// use rath_record::{BranchId, Record, Stamp, view};
///
/// let mut record = Record::new();
/// for id in ["git:1111", "git:2222"] {
///     record.push(Observed::new(Tree(id.to_owned())).into(), Stamp::on(BranchId([1; 16])));
/// }
/// let trees = view::trees(&record);
/// assert!(trees.descends_from(1, 0));
/// assert_eq!(view::tree(&record).as_ref(), Some(trees.list[1].tree));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Trees<'a> {
    /// The head that the view reflects.
    pub head: Option<StepId>,
    /// The trees.
    pub list: Vec<RecordedTree<'a>>,
    /// The newest tree at every step, as an index into the list.
    by_step: HashMap<StepId, usize>,
}

/// A workspace tree, with the step that recorded it.
///
/// Part of [`Trees`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordedTree<'a> {
    /// The step that recorded the tree.
    pub step: &'a Step,
    /// The tree.
    pub tree: &'a Tree,
    /// The trees that this one was made from, as indices into the list: none for the first, two for a merge.
    pub before: Vec<usize>,
    /// True if files in the tree were in conflict, and not decided.
    pub is_in_conflict: bool,
}

/// Returns the workspace trees of `record`, each after the trees that it was made from.
///
/// See [`Trees`] for an example.
pub fn trees(record: &Record) -> Trees<'_> {
    let mut trees = Trees { head: record.head().map(Step::id), list: Vec::new(), by_step: HashMap::new() };
    let mut open = OpenConflicts::default();
    for step in record.read_steps() {
        let is_in_conflict = open.append(step);
        let parents = match step.merged_parents() {
            Some((ours, theirs)) => vec![ours, theirs],
            None => step.first_parent().into_iter().collect(),
        };
        let before: Vec<usize> = parents.iter().filter_map(|parent| trees.at(parent.id())).collect();
        let newest = match step.chunk().tree() {
            Some(tree) => {
                trees.list.push(RecordedTree { step, tree, before, is_in_conflict });
                Some(trees.list.len() - 1)
            }
            None => before.first().copied(),
        };
        newest.into_iter().for_each(|newest| _ = trees.by_step.insert(step.id(), newest));
    }
    trees
}

impl Trees<'_> {
    /// Returns the newest tree at a step, as an index into the list.
    pub fn at(&self, step: StepId) -> Option<usize> {
        self.by_step.get(&step).copied()
    }

    /// Returns whether `tree` is `earlier`, or was made from it.
    pub fn descends_from(&self, tree: usize, earlier: usize) -> bool {
        let mut visited = vec![false; self.list.len()];
        let mut queue = vec![tree];
        while let Some(index) = queue.pop() {
            if index == earlier {
                return true;
            }
            // Trees stand in the list after those that they were made from.
            if index > earlier && !std::mem::replace(&mut visited[index], true) {
                queue.extend(&self.list[index].before);
            }
        }
        false
    }

    /// Returns the trees that led to the newest one, which is the last.
    ///
    /// A tree that several steps recorded in a row appears once. Earlier trees with files in conflict are left out: what follows
    /// was made from those before them.
    pub fn history(&self) -> Vec<RecordedTree<'_>> {
        let Some(head) = self.head.and_then(|head| self.at(head)) else { return Vec::new() };
        // For every tree, the trees that stand for it: itself, or the first one of the unchanged trees that it continues, or those
        // that led to a conflict.
        let mut standing: Vec<Vec<usize>> = Vec::with_capacity(head + 1);
        for (index, recorded) in self.list[..=head].iter().enumerate() {
            let equal = recorded.before.iter().find(|before| self.list[**before].tree == recorded.tree);
            standing.push(match equal {
                _ if recorded.is_in_conflict && index != head => stand_for(&recorded.before, &standing),
                Some(before) if !self.list[*before].is_in_conflict => standing[*before].clone(),
                _ => vec![index],
            });
        }
        let mut leads_to_head = vec![false; head + 1];
        standing[head].iter().for_each(|index| leads_to_head[*index] = true);
        for index in (0..=head).rev() {
            if leads_to_head[index] {
                let before = stand_for(&self.list[index].before, &standing);
                before.into_iter().for_each(|before| leads_to_head[before] = true);
            }
        }
        let mut new_indices = vec![0; head + 1];
        let mut history: Vec<RecordedTree<'_>> = Vec::new();
        for index in (0..=head).filter(|index| leads_to_head[*index]) {
            new_indices[index] = history.len();
            let before = stand_for(&self.list[index].before, &standing);
            let before = before.into_iter().map(|before| new_indices[before]).collect();
            history.push(RecordedTree { before, ..self.list[index].clone() });
        }
        history
    }
}

/// Returns the trees that stand for these, each once.
fn stand_for(trees: &[usize], standing: &[Vec<usize>]) -> Vec<usize> {
    let mut all: Vec<usize> = Vec::new();
    for tree in trees.iter().flat_map(|tree| &standing[*tree]) {
        if !all.contains(tree) {
            all.push(*tree);
        }
    }
    all
}

/// The steps of a walk after which files are in conflict.
#[derive(Default)]
struct OpenConflicts {
    /// The paths in conflict after each step that has some.
    by_step: HashMap<StepId, Vec<String>>,
}

impl OpenConflicts {
    /// Adds the next step, and returns whether files are in conflict after it.
    fn append(&mut self, step: &Step) -> bool {
        if step.totals().conflicts == 0 {
            return false;
        }
        let mut paths = match step.merged_parents() {
            // A decision on one side may be about a conflict of the other.
            Some(_) => {
                let merged = Record::at(step.clone());
                conflicts(&merged).into_iter().map(|conflict| conflict.path.clone()).collect()
            }
            None => step.first_parent().and_then(|parent| self.by_step.get(&parent.id())).cloned().unwrap_or_default(),
        };
        match step.chunk() {
            Chunk::Merged(merged) if step.merged_parents().is_none() => {
                paths.extend(merged.conflicts.iter().map(|conflict| conflict.path.clone()));
            }
            Chunk::Decided(decided) => paths.retain(|path| *path != decided.path),
            _ => {}
        }
        let is_in_conflict = !paths.is_empty();
        if is_in_conflict {
            self.by_step.insert(step.id(), paths);
        }
        is_in_conflict
    }
}

/// Returns the call that a result closes, with the answer that asked for it.
///
/// ```
/// use rath_record::chunk::Call;
/// use rath_record::{BranchId, Chunk, Record, Stamp, view};
///
/// let mut record = Record::new();
/// record.push(Chunk::calls([Call::new("c1", "list", "{}")]), Stamp::on(BranchId([1; 16])));
/// let result = record.push(Chunk::result("c1", "3 files"), Stamp::on(BranchId([1; 16])));
/// let (call, _) = view::find_call(result).expect("the call is recorded");
/// assert_eq!(&*call.tool, "list");
/// ```
pub fn find_call(result: &Step) -> Option<(&Call, &Step)> {
    let Chunk::ToolResult(tool_result) = result.chunk() else { return None };
    let mut line = std::iter::successors(result.first_parent(), |step| step.first_parent());
    line.find_map(|step| match step.chunk() {
        Chunk::Assistant(answer) => Some((answer.calls.iter().find(|call| call.id == tool_result.call)?, step)),
        _ => None,
    })
}

/// Returns the newest workspace tree that the record knows.
///
/// `None` if the workspace may have changed since in a way that was not observed.
///
/// See [`Trees`] for an example.
pub fn tree(record: &Record) -> Option<Tree> {
    let newest = record.find_newest(|step| match step.chunk().tree() {
        Some(tree) => Some(Some(tree.clone())),
        None => step.chunk().changes_workspace().then_some(None),
    });
    newest.flatten()
}

/// The calls that may have changed the workspace since it was last observed.
///
/// ```
/// use rath_record::chunk::{Call, Observed, ToolStarted, Tree};
/// use rath_record::{BranchId, CallId, Chunk, Record, Stamp, view};
///
/// let (mut record, tree) = (Record::new(), Tree("git:1111".to_owned()));
/// let calls = Chunk::calls([Call::new("c1", "shell", "{}")]);
/// for chunk in [calls, Observed::new(tree.clone()).into(), ToolStarted::new("c1").into()] {
///     record.push(chunk, Stamp::on(BranchId([1; 16])));
/// }
/// let unobserved = view::unobserved(&record).expect("the end of the call was not observed");
/// assert_eq!((unobserved.since, unobserved.calls), (Some(tree), vec![CallId::from("c1")]));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Unobserved {
    /// The workspace tree before the calls, if one is recorded.
    pub since: Option<Tree>,
    /// The calls, oldest first. They were started and have no result, or one that was not observed.
    pub calls: Vec<CallId>,
}

/// Returns the calls that may have changed the workspace since it was last observed, if there are any.
///
/// See [`Unobserved`] for an example.
pub fn unobserved(record: &Record) -> Option<Unobserved> {
    let (mut since, mut calls): (Option<Tree>, _) = (None, Vec::new());
    let mut ended: HashSet<&CallId> = HashSet::new();
    for step in record.newest_first() {
        let tree = step.chunk().tree();
        since = since.or_else(|| tree.cloned());
        match step.chunk() {
            Chunk::Placed(_) => break,
            // The tree of a result lacks the changes of calls of the same answer that had not ended.
            Chunk::ToolResult(result) if tree.is_some() => _ = ended.insert(&result.call),
            Chunk::Assistant(_) if since.is_some() => break,
            _ if tree.is_some() => break,
            // A result that no program recorded was given by a person.
            Chunk::ToolResult(result) if result.outcome != Outcome::Unknown && step.stamp().by.is_some() => {
                ended.insert(&result.call);
            }
            Chunk::ToolStarted(started) if !ended.contains(&started.call) && !calls.contains(&started.call) => {
                calls.push(started.call.clone());
            }
            // Ids of calls are unique only within a turn.
            Chunk::Assistant(answer) => answer.calls.iter().for_each(|call| _ = ended.remove(&call.id)),
            _ => {}
        }
    }
    calls.reverse();
    (!calls.is_empty()).then_some(Unobserved { since, calls })
}

/// Returns the conflicts of merges that are not resolved yet.
///
/// ```
/// use rath_record::chunk::{Conflict, Merged, Strategy};
/// use rath_record::{BranchId, Record, Stamp, view};
///
/// let mut record = Record::new();
/// let merged = Merged::new(Strategy::Ancestor).with_conflicts([Conflict::new("a.txt", "content")]);
/// record.push(merged.into(), Stamp::on(BranchId([1; 16])));
/// assert_eq!(view::conflicts(&record)[0].path, "a.txt");
/// ```
pub fn conflicts(record: &Record) -> Vec<&Conflict> {
    let mut unresolved: Vec<&Conflict> = Vec::new();
    if record.head().is_none_or(|head| head.totals().conflicts == 0) {
        return unresolved;
    }
    for step in record.read_steps() {
        match step.chunk() {
            Chunk::Merged(merged) => unresolved.extend(&merged.conflicts),
            Chunk::Decided(decided) => unresolved.retain(|conflict| conflict.path != decided.path),
            _ => {}
        }
    }
    unresolved
}
