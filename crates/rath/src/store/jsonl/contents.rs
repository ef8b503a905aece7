//! What the file of a session says.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use rath_record::codec::{Ending, FileContents, Reader};
use rath_record::lineage::Lineage;
use rath_record::{BranchId, Step, StepId, Totals};

use super::super::title::branch_title;
use super::super::{BranchSummary, Damage, Holder};

/// Finds a step in the file of another session, and reads no further than it.
pub(super) fn find_step(folder: &Path, family: BranchId, id: StepId) -> Option<Step> {
    let bytes = std::fs::read(folder.join(format!("{family}.jsonl"))).ok()?;
    let folder = folder.to_owned();
    let mut reader = Reader::new().with_step_finder(move |id, family| find_step(&folder, family, id));
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        reader.feed(line);
        if let Some(step) = reader.step(id) {
            return Some(step.clone());
        }
    }
    None
}

/// The branches in a file, with their heads, in the order in which they began. What is in the files of others is left out.
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

/// Whether a branch that is at `head` moves on to a step of it. Whoever went on from where somebody else had gone on before
/// was refused; those steps are here only if a fork rests on them. A piece of it that goes on from nothing is one that damage
/// parted from it, and is kept aside.
pub(super) fn advances(head: StepId, step: &Step) -> bool {
    step.parents().first().is_some_and(|link| {
        let is_same_branch = |parent: &Step| parent.stamp().branch == step.stamp().branch;
        link.id() == head || !link.step().is_some_and(is_same_branch)
    })
}

/// What a list says of the branches in a file.
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

/// What is wrong with a file, line by line.
pub(super) fn damage(path: &Path, opened: &FileContents) -> Vec<Damage> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let damage = opened.report.damage.iter().map(|damage| {
        let place = format!("{name}, line {} (from byte {})", damage.line, damage.offset);
        Damage { place, step: damage.step, what: damage.fault.to_string() }
    });
    damage.collect()
}
