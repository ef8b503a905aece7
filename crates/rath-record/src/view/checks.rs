//! Which checks ran, and whether they still cover the current state.

use std::collections::BTreeMap;

use crate::chunk::{Checked, Chunk};
use crate::id::StepId;
use crate::record::Record;
use crate::step::Step;

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
    /// The workspace changed after it, or on a branch that it did not see.
    Stale,
}

/// The newest run of every check up to the head of `record`.
pub fn checks(record: &Record) -> Checks<'_> {
    let changes = record.head().map(|head| head.line().changes).unwrap_or_default();
    let mut list = BTreeMap::new();
    for step in record.lineage_order() {
        if let Chunk::Checked(checked) = step.chunk() {
            // The changes behind a check are among those behind the head: equal in number, they are the same.
            let freshness = if step.line().changes == changes { Freshness::Fresh } else { Freshness::Stale };
            list.insert(checked.check.as_str(), Check { step, checked, freshness });
        }
    }
    Checks { head: record.head().map(Step::id), list }
}
