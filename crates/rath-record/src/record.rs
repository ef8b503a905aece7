//! One head and everything it descends from.

use std::fmt;

use crate::chunk::{Chunk, Merged, Strategy};
use crate::id::{CallId, StepId};
use crate::lineage::{self, Lineage, Newest, Order};
use crate::step::{Link, Parents, Stamp, Step};
use crate::turn::{self, OpenCalls};
use crate::usage::Usage;

/// A concatenating merge may not make a line longer than this many steps: doubling gets out of hand quickly.
pub const CONCAT_MAX: u64 = 1 << 24;

/// One head and everything it descends from.
///
/// Cheap to clone and never changed in place: pushing moves this head and leaves every clone where it was.
#[derive(Clone, Default)]
pub struct Record {
    head: Option<Step>,
    /// The calls that wait for a result at the head, if they have been found before.
    open: Option<OpenCalls>,
}

impl Record {
    /// A record of nothing.
    pub fn new() -> Self {
        Record::default()
    }

    /// The record that ends at `head`.
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

    /// Appends a step, and gives its JSON, which was made to name it: whoever stores it need not make it again.
    pub fn push_with_json(&mut self, chunk: Chunk, stamp: Stamp) -> (&Step, Vec<u8>) {
        let parents = match self.head.take() {
            Some(head) => Parents::One(Link::Step(head)),
            None => Parents::None,
        };
        let open = self.open.get_or_insert_with(|| OpenCalls::before(&parents));
        let (step, json) = Step::next(parents, chunk, stamp, open);
        (self.head.insert(step), json)
    }

    /// Joins two records: what they share once, then ours, then theirs.
    ///
    /// Where ours holds all of theirs, or theirs goes on from where ours ends, that is the result and no step is added.
    pub fn merge(&self, theirs: &Record, how: impl Into<Merged>, stamp: Stamp) -> Result<Record, MergeError> {
        let how = how.into();
        let (Some(our_head), Some(their_head)) = (self.head(), theirs.head()) else {
            return Ok(if self.head.is_some() { self.clone() } else { theirs.clone() });
        };
        // What is kept aside is not read, so its calls are nobody's business, and it cannot part ours from their results.
        let sides = if how.strategy == Strategy::Aside {
            &[][..]
        } else {
            &[(Side::Ours, our_head), (Side::Theirs, their_head)]
        };
        for &(side, head) in sides {
            if let [open, ..] = &turn::open_calls(head)[..] {
                return Err(MergeError::OpenCall {
                    side,
                    call: open.call.id.clone(),
                    tool: open.call.tool.to_string(),
                    step: open.step,
                });
            }
        }
        let split = lineage::compare(our_head, their_head);
        match how.strategy {
            Strategy::Ancestor => {
                // What ours keeps aside is here, and still to be read.
                let unread =
                    || our_head.line().asides && !lineage::read_by_theirs_only(our_head, their_head).is_empty();
                if split.theirs.is_empty() && !unread() {
                    return Ok(self.clone());
                }
                // Theirs can stand for both only if it is read as ours was, up to where ours ends. Otherwise ours would
                // be reordered, and merging three sessions one way or the other would show different things.
                if split.ours.is_empty() && lineage::begins_with(their_head, our_head) {
                    return Ok(theirs.clone());
                }
            }
            Strategy::Aside => {
                if split.theirs.is_empty() {
                    return Ok(self.clone());
                }
            }
            Strategy::Concat => {
                let steps = our_head.line().steps.saturating_add(their_head.line().steps);
                if steps >= CONCAT_MAX {
                    return Err(MergeError::TooLong { steps });
                }
            }
        }
        Ok(Record::at(Step::merge(our_head, their_head, how, stamp, split)))
    }

    /// The steps in reading order, markers included.
    pub fn steps(&self) -> Vec<&Step> {
        self.head().map(|head| Order::of(head).collect()).unwrap_or_default()
    }

    /// The steps in reading order, each once even where a merge repeats it, with what is kept aside.
    pub(crate) fn lineage_order(&self) -> Vec<&Step> {
        Order::once(self.head().into_iter()).collect()
    }

    /// The steps from the newest back, computed as they are asked for.
    pub fn newest_first(&self) -> Newest<'_> {
        Newest::of(self.head())
    }

    /// What `pick` makes of the newest step that it takes. Where no branches meet, what is fetched from a shelf on the way
    /// is let go again: looking far back costs no memory.
    pub fn find_newest<T>(&self, mut pick: impl FnMut(&Step) -> Option<T>) -> Option<T> {
        let mut step = self.head()?.clone();
        if step.line().merged {
            return self.newest_first().find_map(pick);
        }
        loop {
            if let Some(found) = pick(&step) {
                return Some(found);
            }
            let before = match step.parents().first()? {
                Link::Step(step) => step.clone(),
                Link::Shelved(shelved) => shelved.look()?,
                Link::Gone(_) => return None,
            };
            step = before;
        }
    }

    /// The steps read after `earlier`, oldest first, where this record goes on from it: what was read up to it is read
    /// first, and these then.
    pub fn after(&self, earlier: &Step) -> Option<Vec<&Step>> {
        let head = self.head()?;
        let mut ours = std::iter::successors(Some(head), |step| step.first_parent());
        // Along the first parents lines only grow, so a shorter one lies behind it.
        if ours.find(|step| step.line().steps <= earlier.line().steps)? != earlier {
            return None;
        }
        let mut after = Vec::new();
        for step in self.newest_first().take_while(|step| *step != earlier) {
            // It reads all of theirs, and `earlier` may be among it.
            if step.line().repeats {
                return None;
            }
            after.push(step);
        }
        after.reverse();
        Some(after)
    }

    /// The step with this id, if it is part of this record, kept aside or not.
    pub fn find(&self, id: StepId) -> Option<&Step> {
        let read = self.newest_first().find(|step| step.id() == id);
        read.or_else(|| self.lineage_order().into_iter().find(|step| step.id() == id))
    }

    /// How many chunks there are, markers left out.
    pub fn chunk_count(&self) -> u64 {
        self.head().map(Step::chunk_count).unwrap_or_default()
    }

    /// What all model calls cost together, each counted once.
    pub fn usage(&self) -> Usage {
        self.head().map(Step::cumulative_usage).unwrap_or_default()
    }

    /// The graph of steps behind the head.
    pub fn lineage(&self) -> Lineage {
        Lineage::of(self.head.clone())
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.steps()).finish()
    }
}

/// A side of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that was asked to merge.
    Ours,
    /// The one it was given.
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

/// Why two records cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// A call has no result: joined now, its result could land anywhere.
    #[error("{side} has a call without a result: `{call}` ({tool}), asked for in step {}", step.short())]
    OpenCall {
        /// Which side has it.
        side: Side,
        /// The call.
        call: CallId,
        /// Its tool.
        tool: String,
        /// The answer that asked for it.
        step: StepId,
    },
    /// Concatenation would make the line too long.
    #[error("concatenated, the line would have {steps} steps; the most is {CONCAT_MAX}")]
    TooLong {
        /// How long it would be.
        steps: u64,
    },
}
