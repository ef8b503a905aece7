//! The part of a write that is done before the database is locked.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use rath_record::{BranchId, Parent, StorageState};

use super::super::title::branch_title;
use super::super::{StepPlaces, Write};

/// A write with everything that may have to be loaded from a store: loading locks a database, perhaps this one.
pub(super) struct PreparedWrite<'a> {
    pub(super) write: &'a Write,
    /// The JSON of every step.
    pub(super) json: Vec<Cow<'a, [u8]>>,
    /// The other branches that have steps in this write, each with its newest step there and a title.
    pub(super) others: Vec<(BranchId, usize, Arc<str>)>,
}

impl<'a> PreparedWrite<'a> {
    pub(super) fn new(write: &'a Write, rows: &StepPlaces) -> Self {
        for link in write.steps.iter().flat_map(|step| step.parents()) {
            if matches!(link, Parent::Lazy(_)) && !matches!(rows.lookup(link), StorageState::At(_)) {
                link.step();
            }
        }
        let mut newest: HashMap<BranchId, usize> = HashMap::new();
        for (nth, step) in write.steps.iter().enumerate().filter(|(_, step)| step.stamp().branch != write.branch) {
            newest.insert(step.stamp().branch, nth);
        }
        let mut newest: Vec<_> = newest.into_iter().collect();
        newest.sort_unstable_by_key(|(_, nth)| *nth);
        let title = |branch, nth: usize| branch_title(branch, &write.steps[nth], &write.steps).unwrap_or_default();
        let others = newest.into_iter().map(|(branch, nth)| (branch, nth, title(branch, nth))).collect();
        PreparedWrite { write, json: (0..write.steps.len()).map(|nth| write.json(nth)).collect(), others }
    }
}
