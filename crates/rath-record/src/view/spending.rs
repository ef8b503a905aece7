//! The cost of model calls, by branch and by module.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::id::{BranchId, StepId};
use crate::money::Money;
use crate::record::Record;
use crate::step::Step;
use crate::usage::Usage;

/// The cost of the model calls of a record; each call counts once, however many branches contain it.
///
/// ```
/// use rath_record::{BranchId, Chunk, Record, Stamp, Usage, view};
///
/// let mut record = Record::new();
/// let stamp = Stamp::on(BranchId([1; 16])).by("agent").usage(Usage::new(20, 5));
/// record.push(Chunk::assistant("Hi!"), stamp);
/// let spending = view::spending(&record);
/// assert_eq!((spending.total.calls, spending.total.usage), (1, Usage::new(20, 5)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spending {
    /// The head that the view reflects.
    pub head: Option<StepId>,
    /// The cost of all calls.
    pub total: CallUsage,
    /// The cost by the branch that made the calls, in order of first call.
    pub by_branch: Vec<(BranchId, CallUsage)>,
    /// The cost by the module that made the calls, in order of first call.
    pub by_module: Vec<(Option<Arc<str>>, CallUsage)>,
}

/// A number of calls, their tokens, and the cost that is on record.
///
/// Part of [`Spending`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallUsage {
    /// The number of model calls.
    pub calls: u64,
    /// The tokens of those calls.
    pub usage: Usage,
    /// The money that the record states for those calls. Others may have cost more, by a price list.
    pub recorded_cost: Money,
}

/// Returns the cost of the model calls up to the head of `record`.
///
/// See [`Spending`] for an example.
pub fn spending(record: &Record) -> Spending {
    let mut total = CallUsage::default();
    let mut by_branch = Tally::default();
    let mut by_module = Tally::default();
    for step in record.all_steps() {
        let stamp = step.stamp();
        let cost = step.chunk().recorded_cost();
        if let Some(usage) = stamp.usage.or(cost.map(|_| Usage::default())) {
            let cost = cost.unwrap_or_default();
            total.add(usage, cost);
            by_branch.entry(&stamp.branch).add(usage, cost);
            by_module.entry(&stamp.by).add(usage, cost);
        }
    }
    Spending { head: record.head().map(Step::id), total, by_branch: by_branch.list, by_module: by_module.list }
}

impl CallUsage {
    fn add(&mut self, usage: Usage, cost: Money) {
        self.calls += 1;
        self.usage += usage;
        self.recorded_cost += cost;
    }
}

/// Sums by key, in order of first appearance.
struct Tally<K> {
    list: Vec<(K, CallUsage)>,
    index: HashMap<K, usize>,
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Tally { list: Vec::new(), index: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Tally<K> {
    fn entry(&mut self, key: &K) -> &mut CallUsage {
        let index = *self.index.entry(key.clone()).or_insert_with(|| {
            self.list.push((key.clone(), CallUsage::default()));
            self.list.len() - 1
        });
        &mut self.list[index].1
    }
}
