//! The folds of a record.

use std::collections::HashMap;

use crate::chunk::{Chunk, Compressed};
use crate::id::StepId;
use crate::record::Record;
use crate::step::Step;

/// A summary, and the steps that it stands for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Fold<'a> {
    /// The step that holds the summary.
    pub step: &'a Step,
    /// The summary, and the ids of the hidden steps.
    pub compressed: &'a Compressed,
    /// The hidden steps.
    pub hidden: Vec<&'a Step>,
}

/// Returns every fold in `record`, oldest first.
pub fn folds(record: &Record) -> Vec<Fold<'_>> {
    let steps = record.steps();
    let by_id: HashMap<StepId, &Step> = steps.iter().map(|step| (step.id(), *step)).collect();
    let folds = steps.iter().filter_map(|step| match step.chunk() {
        Chunk::Compressed(compressed) => {
            let hidden = compressed.hidden.iter().filter_map(|id| by_id.get(id).copied()).collect();
            Some(Fold { step, compressed, hidden })
        }
        _ => None,
    });
    folds.collect()
}
