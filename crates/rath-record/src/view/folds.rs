//! What was folded into summaries.

use std::collections::HashMap;

use crate::chunk::{Chunk, Compressed};
use crate::id::StepId;
use crate::record::Record;
use crate::step::Step;

/// A summary, and what it stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Fold<'a> {
    /// The step that holds the summary.
    pub step: &'a Step,
    /// The summary, and the names of what it hides.
    pub compressed: &'a Compressed,
    /// The steps that it hides, as they were.
    pub hidden: Vec<&'a Step>,
}

/// Every summary in `record` with what it stands for, oldest first.
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
