//! The trees that a workspace went through, and what is undecided in it.

use std::collections::HashMap;

use crate::chunk::{Call, Chunk, Conflict, Strategy, Tree};
use crate::id::StepId;
use crate::record::Record;
use crate::step::{Link, Step};

/// The trees that a record knows, each after those that it came from.
#[derive(Clone, Debug)]
pub struct Trees<'a> {
    /// The head it reflects.
    pub head: Option<StepId>,
    /// The trees.
    pub list: Vec<TreeAt<'a>>,
    /// The newest tree at every step, by its place in the list.
    seen: HashMap<StepId, usize>,
}

/// A tree, and the step that says that the workspace was so.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeAt<'a> {
    /// The step.
    pub step: &'a Step,
    /// The tree.
    pub tree: &'a Tree,
    /// The trees that it came from, by their places in the list: none for the first, two for a merge.
    pub before: Vec<usize>,
}

/// The trees that a record knows, each after those that it came from.
pub fn trees(record: &Record) -> Trees<'_> {
    let mut trees = Trees { head: record.head().map(Step::id), list: Vec::new(), seen: HashMap::new() };
    // For every step, the first tree of the line that it is on: what is kept aside began where it is kept.
    let mut first: HashMap<StepId, usize> = HashMap::new();
    for step in record.lineage_order() {
        let parents: Vec<StepId> = step.parents().iter().map(Link::id).collect();
        let before: Vec<usize> = parents.iter().filter_map(|parent| trees.seen.get(parent).copied()).collect();
        let aside = matches!(step.chunk(), Chunk::Merged(merged) if merged.strategy == Strategy::Aside);
        if aside
            && let [ours, theirs] = &parents[..]
            && let (Some(ours), Some(begun)) = (trees.seen.get(ours), first.get(theirs))
            && begun > ours
            && trees.list[*begun].before.is_empty()
        {
            trees.list[*begun].before.push(*ours);
        }
        let now = match step.chunk().tree() {
            Some(tree) => {
                trees.list.push(TreeAt { step, tree, before });
                Some(trees.list.len() - 1)
            }
            // What is kept aside was done in the same workspace, after what ours knew.
            None if aside => before.last().copied(),
            None => before.first().copied(),
        };
        if let Some(now) = now {
            trees.seen.insert(step.id(), now);
            let begun = parents.first().and_then(|ours| first.get(ours)).copied();
            first.insert(step.id(), begun.unwrap_or(now));
        }
    }
    trees
}

impl Trees<'_> {
    /// The newest tree at a step, by its place in the list.
    pub fn at(&self, step: StepId) -> Option<usize> {
        self.seen.get(&step).copied()
    }

    /// Whether a tree is another, or came from it.
    pub fn came_from(&self, tree: usize, earlier: usize) -> bool {
        let mut known = vec![false; self.list.len()];
        let mut open = vec![tree];
        while let Some(at) = open.pop() {
            if at == earlier {
                return true;
            }
            // Trees stand after those that they came from.
            if at > earlier && !std::mem::replace(&mut known[at], true) {
                open.extend(&self.list[at].before);
            }
        }
        false
    }

    /// The trees that led to the newest one, which is the last; one that stayed as it was is there once.
    pub fn leading(&self) -> Vec<TreeAt<'_>> {
        let Some(head) = self.head.and_then(|head| self.at(head)) else { return Vec::new() };
        // What stayed as it was is known by the place of what it stayed like.
        let mut same: Vec<usize> = (0..=head).collect();
        for (at, here) in self.list[..=head].iter().enumerate() {
            let like = here.before.iter().find(|before| self.list[**before].tree == here.tree);
            like.into_iter().for_each(|before| same[at] = same[*before]);
        }
        let mut leads = vec![false; head + 1];
        leads[same[head]] = true;
        for at in (0..=head).rev().filter(|at| same[*at] == *at) {
            if leads[at] {
                self.list[at].before.iter().for_each(|before| leads[same[*before]] = true);
            }
        }
        let mut places = vec![0; head + 1];
        let mut leading: Vec<TreeAt<'_>> = Vec::new();
        for at in (0..=head).filter(|at| leads[*at]) {
            places[at] = leading.len();
            let before = self.list[at].before.iter().map(|before| places[same[*before]]).collect();
            leading.push(TreeAt { before, ..self.list[at].clone() });
        }
        leading
    }
}

/// The call that a result closes, and the answer that asked for it.
pub fn asked(result: &Step) -> Option<(&Call, &Step)> {
    let Chunk::ToolResult(closing) = result.chunk() else { return None };
    let mut line = std::iter::successors(result.first_parent(), |step| step.first_parent());
    line.find_map(|step| match step.chunk() {
        Chunk::Assistant(answer) => Some((answer.calls.iter().find(|call| call.id == closing.call)?, step)),
        _ => None,
    })
}

/// The newest workspace tree that the record knows; none where something may have changed it since that nobody saw.
pub fn tree(record: &Record) -> Option<Tree> {
    let known = record.find_newest(|step| match step.chunk().tree() {
        Some(tree) => Some(Some(tree.clone())),
        None => step.chunk().changes_workspace().then_some(None),
    });
    known.flatten()
}

/// What both sides of a merge changed in ways that do not fit together, and nobody has decided on.
pub fn conflicts(record: &Record) -> Vec<&Conflict> {
    let mut open: Vec<&Conflict> = Vec::new();
    if record.head().is_none_or(|head| head.line().conflicts == 0) {
        return open;
    }
    for step in record.lineage_order() {
        match step.chunk() {
            Chunk::Merged(merged) => open.extend(&merged.conflicts),
            Chunk::Decided(decided) => open.retain(|conflict| conflict.path != decided.path),
            _ => {}
        }
    }
    open
}
