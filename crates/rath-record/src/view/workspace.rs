//! The trees of a workspace over time, and its unresolved conflicts.

use std::collections::{HashMap, HashSet};

use crate::chunk::{Call, Chunk, Conflict, Outcome, Strategy, Tree};
use crate::id::{CallId, StepId};
use crate::record::Record;
use crate::step::{Parent, Step};

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
}

/// Returns the workspace trees of `record`, each after the trees that it was made from.
///
/// See [`Trees`] for an example.
pub fn trees(record: &Record) -> Trees<'_> {
    let mut trees = Trees { head: record.head().map(Step::id), list: Vec::new(), by_step: HashMap::new() };
    // For every step, the first tree of its line: a branch that is kept aside started from the tree where it is kept.
    let mut first_trees: HashMap<StepId, usize> = HashMap::new();
    for step in record.all_steps() {
        let parents: Vec<StepId> = step.parents().iter().map(Parent::id).collect();
        let before: Vec<usize> = parents.iter().filter_map(|parent| trees.by_step.get(parent).copied()).collect();
        let is_aside = matches!(step.chunk(), Chunk::Merged(merged) if merged.strategy == Strategy::Aside);
        if is_aside
            && let [ours, theirs] = &parents[..]
            && let (Some(ours), Some(first)) = (trees.by_step.get(ours), first_trees.get(theirs))
            && first > ours
            && trees.list[*first].before.is_empty()
        {
            trees.list[*first].before.push(*ours);
        }
        let newest = match step.chunk().tree() {
            Some(tree) => {
                trees.list.push(RecordedTree { step, tree, before });
                Some(trees.list.len() - 1)
            }
            // The branch kept aside worked in the same workspace, after the trees that ours knew.
            None if is_aside => before.last().copied(),
            None => before.first().copied(),
        };
        if let Some(newest) = newest {
            trees.by_step.insert(step.id(), newest);
            let first = parents.first().and_then(|ours| first_trees.get(ours)).copied();
            first_trees.insert(step.id(), first.unwrap_or(newest));
        }
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
    /// A tree that several steps recorded in a row appears once.
    pub fn history(&self) -> Vec<RecordedTree<'_>> {
        let Some(head) = self.head.and_then(|head| self.at(head)) else { return Vec::new() };
        // For every tree, the first one of the unchanged trees that it continues.
        let mut first_equal: Vec<usize> = (0..=head).collect();
        for (index, recorded) in self.list[..=head].iter().enumerate() {
            let equal = recorded.before.iter().find(|before| self.list[**before].tree == recorded.tree);
            equal.into_iter().for_each(|before| first_equal[index] = first_equal[*before]);
        }
        let mut leads_to_head = vec![false; head + 1];
        leads_to_head[first_equal[head]] = true;
        for index in (0..=head).rev().filter(|index| first_equal[*index] == *index) {
            if leads_to_head[index] {
                self.list[index].before.iter().for_each(|before| leads_to_head[first_equal[*before]] = true);
            }
        }
        let mut new_indices = vec![0; head + 1];
        let mut history: Vec<RecordedTree<'_>> = Vec::new();
        for index in (0..=head).filter(|index| leads_to_head[*index]) {
            new_indices[index] = history.len();
            let before = self.list[index].before.iter().map(|before| new_indices[first_equal[*before]]).collect();
            history.push(RecordedTree { before, ..self.list[index].clone() });
        }
        history
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
    for step in record.all_steps() {
        match step.chunk() {
            Chunk::Merged(merged) => unresolved.extend(&merged.conflicts),
            Chunk::Decided(decided) => unresolved.retain(|conflict| conflict.path != decided.path),
            _ => {}
        }
    }
    unresolved
}
