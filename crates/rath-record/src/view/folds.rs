//! The folds of a record.

use std::collections::HashMap;

use crate::chunk::{Chunk, Compressed};
use crate::id::StepId;
use crate::record::Record;
use crate::step::Step;

/// A summary, and the steps that it stands for.
///
/// ```
/// use rath_record::chunk::Compressed;
/// use rath_record::{BranchId, Chunk, Record, Stamp, view};
///
/// let mut record = Record::new();
/// let first = record.push(Chunk::user("A long story"), Stamp::on(BranchId([1; 16]))).id();
/// record.push(Compressed::new([first], "The user told a story.").into(), Stamp::on(BranchId([1; 16])));
/// let folds = view::folds(&record);
/// assert_eq!(folds[0].hidden[0].id(), first);
/// ```
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
///
/// See [`Fold`] for an example.
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
