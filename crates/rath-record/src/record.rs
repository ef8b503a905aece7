//! A record: one head and everything it descends from.

use std::fmt;

use crate::chunk::{Chunk, Merged, Strategy};
use crate::id::{CallId, StepId};
use crate::lineage::{self, Lineage, NewestFirst, ReadingOrder};
use crate::step::{Parent, Parents, Stamp, Step};
use crate::totals::MAX_CONCAT_STEPS;
use crate::turn::{self, OpenCalls};
use crate::usage::Usage;

/// The longest line whose steps are kept in memory when one of them is looked for.
const MAX_KEPT_STEPS: u64 = 20_000;

/// One head and everything it descends from.
///
/// A record is cheap to clone and never changed in place: pushing moves this head and leaves every clone where it was.
///
/// ```
/// use rath_record::chunk::Strategy;
/// use rath_record::{BranchId, Chunk, Record, Stamp};
///
/// let on = |branch| Stamp::on(BranchId([branch; 16]));
/// let mut ours = Record::new();
/// ours.push(Chunk::user("Plan a trip"), on(1));
/// let mut theirs = ours.clone();
/// ours.push(Chunk::user("to the sea"), on(1));
/// theirs.push(Chunk::user("in May"), on(2));
///
/// let merged = ours.merge(&theirs, Strategy::Ancestor, on(3))?;
/// assert_eq!(merged.chunk_count(), 3);
/// # Ok::<(), rath_record::MergeError>(())
/// ```
#[derive(Clone, Default)]
pub struct Record {
    head: Option<Step>,
    /// The calls without a result at the head, if they have been computed before.
    open: Option<OpenCalls>,
}

impl Record {
    /// Makes an empty record.
    pub fn new() -> Self {
        Record::default()
    }

    /// Makes the record that ends at `head`.
    pub fn at(head: Step) -> Self {
        Record { head: Some(head), open: None }
    }

    /// The newest step.
    pub fn head(&self) -> Option<&Step> {
        self.head.as_ref()
    }

    /// Appends a step.
    pub fn push(&mut self, chunk: Chunk, stamp: Stamp) -> &Step {
        self.push_with_json(chunk, stamp).0
    }

    /// Appends a step and returns it with its JSON.
    ///
    /// The JSON was made to compute the id, so a store need not encode the step again.
    pub fn push_with_json(&mut self, chunk: Chunk, stamp: Stamp) -> (&Step, Vec<u8>) {
        let parents = match self.head.take() {
            Some(head) => Parents::One(Parent::Loaded(head)),
            None => Parents::None,
        };
        let open = self.open.get_or_insert_with(|| OpenCalls::before(&parents));
        let (step, json) = Step::next(parents, chunk, stamp, open);
        (self.head.insert(step), json)
    }

    /// Merges two records: shared steps once, then ours, then theirs.
    ///
    /// If ours contains all of theirs, or theirs continues from the head of ours, that record is the result and no
    /// step is added.
    pub fn merge(&self, theirs: &Record, merged: impl Into<Merged>, stamp: Stamp) -> Result<Record, MergeError> {
        let merged = merged.into();
        let (Some(our_head), Some(their_head)) = (self.head(), theirs.head()) else {
            return Ok(if self.head.is_some() { self.clone() } else { theirs.clone() });
        };
        // A branch that is kept aside is not read: its open calls do not matter, and it cannot come between our calls
        // and their results.
        let sides = if merged.strategy == Strategy::Aside {
            &[][..]
        } else {
            &[(Side::Ours, our_head), (Side::Theirs, their_head)]
        };
        for &(side, head) in sides {
            if let [open, ..] = &turn::pending_calls(head)[..] {
                return Err(MergeError::OpenCall {
                    side,
                    call: open.call.id.clone(),
                    tool: open.call.tool.to_string(),
                    step: open.origin.answer,
                });
            }
        }
        let comparison = lineage::compare(our_head, their_head);
        match merged.strategy {
            Strategy::Ancestor => {
                // Steps that ours keeps aside are present, and not read yet.
                let unread =
                    || our_head.totals().asides && !lineage::read_by_theirs_only(our_head, their_head).is_empty();
                if comparison.theirs.is_empty() && !unread() {
                    return Ok(self.clone());
                }
                // Theirs can be the result only if its reading order begins with ours. Otherwise ours would be
                // reordered, and merging three sessions in different orders would show different things.
                if comparison.ours.is_empty() && lineage::has_prefix(their_head, our_head) {
                    return Ok(theirs.clone());
                }
            }
            Strategy::Aside => {
                if comparison.theirs.is_empty() {
                    return Ok(self.clone());
                }
            }
            Strategy::Concat => {
                let steps = our_head.totals().steps.saturating_add(their_head.totals().steps);
                if steps >= MAX_CONCAT_STEPS {
                    return Err(MergeError::TooLong { steps });
                }
            }
        }
        Ok(Record::at(Step::merge(our_head, their_head, merged, stamp, comparison)))
    }

    /// Returns the steps in reading order, including markers.
    pub fn steps(&self) -> Vec<&Step> {
        self.head().map(|head| ReadingOrder::new(head).collect()).unwrap_or_default()
    }

    /// Returns the steps in reading order, each once even if a merge repeats it.
    pub(crate) fn read_steps(&self) -> Vec<&Step> {
        self.head().map(|head| ReadingOrder::read_once(head).collect()).unwrap_or_default()
    }

    /// Returns every step once, including those of branches that are kept aside. For what is paid, stored or looked up by id.
    pub(crate) fn all_steps(&self) -> Vec<&Step> {
        ReadingOrder::each_once(self.head().into_iter()).collect()
    }

    /// Iterates over the steps from the newest back, computed on demand.
    pub fn newest_first(&self) -> NewestFirst<'_> {
        NewestFirst::new(self.head())
    }

    /// Calls `pick` from the newest step back, and returns the first result that is `Some`.
    ///
    /// On a long line without merges, steps that are loaded on the way are dropped again: looking far back costs no memory. Those
    /// of a short one are kept, since it will be read again.
    pub fn find_newest<T>(&self, mut pick: impl FnMut(&Step) -> Option<T>) -> Option<T> {
        let mut step = self.head()?.clone();
        if step.totals().merged {
            return self.newest_first().find_map(pick);
        }
        let is_kept = step.totals().steps <= MAX_KEPT_STEPS;
        loop {
            if let Some(picked) = pick(&step) {
                return Some(picked);
            }
            step = match step.parents().first()? {
                Parent::Loaded(parent) => parent.clone(),
                Parent::Lazy(parent) if is_kept => parent.step()?.clone(),
                Parent::Lazy(parent) => parent.load_once()?,
                Parent::Missing(_) => return None,
            };
        }
    }

    /// Returns the steps that are read after `earlier`, oldest first.
    ///
    /// `None` if the reading order of this record does not begin with that of `earlier`.
    pub fn steps_after(&self, earlier: &Step) -> Option<Vec<&Step>> {
        let head = self.head()?;
        let mut first_parents = std::iter::successors(Some(head), |step| step.first_parent());
        // Lines only grow along the first parents, so `earlier` cannot come after a shorter line.
        if first_parents.find(|step| step.totals().steps <= earlier.totals().steps)? != earlier {
            return None;
        }
        let mut after = Vec::new();
        for step in self.newest_first().take_while(|step| *step != earlier) {
            // The merge reads all of theirs, which may contain `earlier`.
            if step.totals().repeats {
                return None;
            }
            after.push(step);
        }
        after.reverse();
        Some(after)
    }

    /// Returns the step with this id, if it is part of this record, kept aside or not.
    pub fn find(&self, id: StepId) -> Option<&Step> {
        let on_line = self.newest_first().find(|step| step.id() == id);
        on_line.or_else(|| self.all_steps().into_iter().find(|step| step.id() == id))
    }

    /// The number of chunks, without markers.
    pub fn chunk_count(&self) -> u64 {
        self.head().map(Step::chunk_count).unwrap_or_default()
    }

    /// The usage of all model calls, each counted once.
    pub fn usage(&self) -> Usage {
        self.head().map(Step::cumulative_usage).unwrap_or_default()
    }

    /// The graph of steps behind the head.
    pub fn lineage(&self) -> Lineage {
        Lineage::new(self.head.clone())
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.steps()).finish()
    }
}

/// A side of a merge.
///
/// Part of [`MergeError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The record that `merge` was called on.
    Ours,
    /// The record that was passed to `merge`.
    Theirs,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Ours => "our side",
            Side::Theirs => "their side",
        })
    }
}

/// The reason why two records cannot be merged.
///
/// Returned by [`Record::merge`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// A call has no result. After a merge its result could be recorded anywhere.
    #[error("{side} has a call without a result: `{call}` ({tool}), of the answer {}", step.short())]
    OpenCall {
        /// The side that the call is on.
        side: Side,
        /// The call.
        call: CallId,
        /// The tool that the call is for.
        tool: String,
        /// The answer that asked for the call.
        step: StepId,
    },
    /// The concatenated line would be too long.
    #[error("the concatenated session would have {steps} steps, the limit is {MAX_CONCAT_STEPS}")]
    TooLong {
        /// The length that the line would have, in steps.
        steps: u64,
    },
}
