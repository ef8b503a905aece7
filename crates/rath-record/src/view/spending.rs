//! What the model calls cost, and who made them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::id::{BranchId, StepId};
use crate::record::Record;
use crate::step::Step;
use crate::usage::Usage;

/// What the model calls of a record cost, each counted once however many branches contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spending {
    /// The head it reflects.
    pub head: Option<StepId>,
    /// All of it.
    pub total: Spent,
    /// By the branch that made the call, in order of their first calls.
    pub by_branch: Vec<(BranchId, Spent)>,
    /// By the module that made the call, in order of their first calls.
    pub by_module: Vec<(Option<Arc<str>>, Spent)>,
}

/// Calls and their tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// How many model calls.
    pub calls: u64,
    /// Their tokens.
    pub usage: Usage,
}

/// What the model calls up to the head of `record` cost.
pub fn spending(record: &Record) -> Spending {
    let mut total = Spent::default();
    let mut by_branch = Tally::default();
    let mut by_module = Tally::default();
    for step in record.lineage_order() {
        let stamp = step.stamp();
        if let Some(usage) = stamp.usage {
            total.add(usage);
            by_branch.of(&stamp.branch).add(usage);
            by_module.of(&stamp.by).add(usage);
        }
    }
    Spending { head: record.head().map(Step::id), total, by_branch: by_branch.list, by_module: by_module.list }
}

impl Spent {
    fn add(&mut self, usage: Usage) {
        self.calls += 1;
        self.usage += usage;
    }
}

/// Sums by key, in order of first appearance.
struct Tally<K> {
    list: Vec<(K, Spent)>,
    index: HashMap<K, usize>,
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Tally { list: Vec::new(), index: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Tally<K> {
    fn of(&mut self, key: &K) -> &mut Spent {
        let at = *self.index.entry(key.clone()).or_insert_with(|| {
            self.list.push((key.clone(), Spent::default()));
            self.list.len() - 1
        });
        &mut self.list[at].1
    }
}
