//! The branches, heads and damage in the file of a session.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use rath_record::codec::{Ending, FileContents};
use rath_record::lineage::Lineage;
use rath_record::{BranchId, Step, StepId, Totals};

use super::super::title::branch_title;
use super::super::{BranchSummary, Damage, Holder};

/// Returns the branches in a file with their heads, in the order in which they began. Branches in other files are left out.
pub(super) fn branches(opened: &FileContents) -> Vec<(BranchId, Step)> {
    let mut index: HashMap<BranchId, usize> = HashMap::new();
    let mut found: Vec<(BranchId, Step)> = Vec::new();
    for step in &opened.steps {
        let branch = step.stamp().branch;
        match index.get(&branch).map(|at| &mut found[*at].1) {
            None => {
                index.insert(branch, found.len());
                found.push((branch, step.clone()));
            }
            Some(head) if advances(head.id(), step) => *head = step.clone(),
            Some(_) => {}
        }
    }
    found
}

/// Returns true if a branch with this head advances to a step.
///
/// A write that continues from an older step than the head was refused; such steps are in the file only if a fork descends from
/// them. A piece of the branch without a parent was split off by damage and does not move the head.
pub(super) fn advances(head: StepId, step: &Step) -> bool {
    step.parents().first().is_some_and(|link| {
        let is_same_branch = |parent: &Step| parent.stamp().branch == step.stamp().branch;
        link.id() == head || !link.step().is_some_and(is_same_branch)
    })
}

/// Returns the list entries of the branches in a file.
pub(super) fn summaries(family: BranchId, opened: &FileContents) -> Vec<BranchSummary> {
    let heads: HashSet<StepId> = opened.heads.iter().map(Step::id).collect();
    let lineage = Lineage::new(opened.heads.clone());
    let walk: Vec<Step> = lineage.walk().into_iter().cloned().collect();
    let writer = opened.writer.as_ref().and_then(|writer| Holder::from_json(&writer.by));
    let holder = writer.filter(|_| opened.report.ending != Ending::Closed).map(Arc::new);
    let list = branches(opened).into_iter().map(|(branch, head)| BranchSummary {
        branch,
        family,
        head: head.id(),
        totals: Totals::decode(&head.encode_totals()).unwrap_or_default(),
        title: branch_title(branch, &head, &walk).unwrap_or_default(),
        at: head.stamp().at,
        is_tip: heads.contains(&head.id()),
        holder: holder.clone(),
    });
    list.collect()
}

/// Returns the damage in a file, line by line.
pub(super) fn damage(path: &Path, opened: &FileContents) -> Vec<Damage> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let damage = opened.report.damage.iter().map(|damage| {
        let place = format!("{name}, line {} (from byte {})", damage.line, damage.offset);
        Damage { place, step: damage.step, what: damage.fault.to_string() }
    });
    damage.collect()
}
