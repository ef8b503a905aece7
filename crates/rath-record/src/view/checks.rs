//! Which checks ran, and whether they still cover the current state.

use std::collections::BTreeMap;

use crate::chunk::{Checked, Chunk};
use crate::id::StepId;
use crate::record::Record;
use crate::step::Step;
use crate::turn::{self, Progress};

/// The newest run of every check.
#[derive(Clone, Debug, PartialEq)]
pub struct Checks<'a> {
    /// The head it reflects.
    pub head: Option<StepId>,
    /// The checks, by name.
    pub list: BTreeMap<&'a str, Check<'a>>,
}

/// The newest run of one check.
#[derive(Clone, Debug, PartialEq)]
pub struct Check<'a> {
    /// The step that recorded it.
    pub step: &'a Step,
    /// What it found.
    pub checked: &'a Checked,
    /// Whether it covers the current state.
    pub freshness: Freshness,
}

/// Whether a check covers the current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Every change to the workspace came before it.
    Fresh,
    /// The workspace changed after it, or on a branch that it did not see, or a call is running that may change it.
    Stale,
}

/// The newest run of every check up to the head of `record`.
pub fn checks(record: &Record) -> Checks<'_> {
    let changes = record.head().map(|head| head.line().changes).unwrap_or_default();
    // A call that was started may be changing anything right now.
    let running = record
        .head()
        .is_some_and(|head| turn::open_calls(head).iter().any(|pending| pending.progress == Progress::Unknown));
    let mut list = BTreeMap::new();
    for step in record.lineage_order() {
        if let Chunk::Checked(checked) = step.chunk() {
            // The changes behind a check are among those behind the head: equal in number, they are the same.
            let covered = step.line().changes == changes && !running;
            let freshness = if covered { Freshness::Fresh } else { Freshness::Stale };
            list.insert(checked.check.as_str(), Check { step, checked, freshness });
        }
    }
    Checks { head: record.head().map(Step::id), list }
}
