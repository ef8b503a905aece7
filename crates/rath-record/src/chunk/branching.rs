//! Kinds about branches: forks, merges and detachments.

use serde::{Deserialize, Serialize};

use super::workspace::{Conflict, Effect, Tree};
use crate::id::{CallId, CounterId, StepId};

/// A branch was forked from its parent here.
///
/// See [`Lineage`](crate::lineage::Lineage) for an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Forked {
    /// One more than the number of branches forked from the same head before.
    ///
    /// It keeps two forks apart that record the same steps.
    pub nth: u64,
    /// The counter that `nth` is from, if the head was read from a store or a file. None if the program that appended the
    /// head counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<CounterId>,
    /// The head of the session at the time of the fork, if the branch continues from an earlier step instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<StepId>,
    /// The name given to the branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The head of the other side, if the branch began with a merge of two sessions one of which contains the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merges: Option<StepId>,
}

/// Two branches were merged here: the first parent is ours, the second theirs.
///
/// Passed to [`Record::merge`](crate::Record::merge).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Merged {
    /// The way in which the two were merged.
    pub strategy: Strategy,
    /// A number like [`Forked::nth`], counted on our side: it keeps two merges of the same sides apart.
    #[serde(default = "first_nth", skip_serializing_if = "is_first_nth")]
    pub nth: u64,
    /// A counter like [`Forked::counter`], on our side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<CounterId>,
    /// A head like [`Forked::from`], on our side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<StepId>,
    /// The workspace tree after the merge, if there is a workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Tree>,
    /// The changes to files that differ from both sides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// The changes of the two sides that could not be combined.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// The call that the other side is the work of, if it is kept aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
}

fn first_nth() -> u64 {
    1
}

fn is_first_nth(nth: &u64) -> bool {
    *nth == 1
}

/// A way to merge two branches.
///
/// Passed to [`Record::merge`](crate::Record::merge).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Strategy {
    /// Shared steps once, then ours, then theirs.
    #[default]
    Ancestor,
    /// All of ours, then all of theirs, so that shared steps appear twice.
    Concat,
    /// Only ours is read.
    ///
    /// Theirs is kept aside: its cost counts, the log shows it, and no other view has it.
    Aside,
}

/// A branch was detached here: it keeps its steps and no longer has a parent branch.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Detached {
    /// A number like [`Forked::nth`].
    pub nth: u64,
    /// A counter like [`Forked::counter`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<CounterId>,
    /// A head like [`Forked::from`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<StepId>,
}
