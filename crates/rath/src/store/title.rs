//! Titles of branches, for lists.

use std::sync::Arc;

use rath_record::chunk::Strategy;
use rath_record::{BranchId, Chunk, Parent, Step, Text, lineage};

/// The number of steps that are searched backwards for a title.
const MAX_STEPS_SEARCHED: usize = 256;

/// The length of the text that a title is made from, in bytes.
const MAX_TITLE_SOURCE_BYTES: usize = 400;

/// Returns the title of a branch: the first message of the user on it, or its name, or the last message before it.
pub(crate) fn branch_title(branch: BranchId, head: &Step, steps: &[Step]) -> Option<Arc<str>> {
    let name = || {
        steps.iter().filter(|step| step.stamp().branch == branch).find_map(|step| match step.chunk() {
            Chunk::Forked(forked) => forked.name.as_deref().map(Into::into),
            _ => None,
        })
    };
    first_message(branch, steps).or_else(name).or_else(|| last_message(head))
}

/// Returns the first message of the user on a branch.
pub(crate) fn first_message(branch: BranchId, steps: &[Step]) -> Option<Arc<str>> {
    steps.iter().filter(|step| step.stamp().branch == branch).find_map(message)
}

/// Returns true if a stored branch has a message of the user. A branch too long to be searched is assumed to have one.
pub(crate) fn has_message(branch: BranchId, head: Option<&Step>) -> bool {
    let line = std::iter::successors(head, |step| step.parents().first().and_then(Parent::step));
    let own: Vec<_> = line.take(MAX_STEPS_SEARCHED).take_while(|step| step.stamp().branch == branch).collect();
    own.len() == MAX_STEPS_SEARCHED || own.into_iter().any(|step| message(step).is_some())
}

/// Makes a title from a text, unless the text is a payload that is not loaded.
pub(super) fn from_text(text: &Text) -> Option<Arc<str>> {
    let text = text.as_str()?;
    Some(rath_record::draw::preview(text.get(..text.floor_char_boundary(MAX_TITLE_SOURCE_BYTES))?).into())
}

/// Returns the last message of the user on the line that led to a step.
///
/// The line of a merge goes on at the common ancestor of its sides: a merge is about what its sides share.
fn last_message(head: &Step) -> Option<Arc<str>> {
    let line = std::iter::successors(Some(head), |step| match (step.parents(), step.chunk()) {
        ([ours, theirs], Chunk::Merged(merged)) if merged.strategy != Strategy::Aside => {
            let shared =
                ours.step().zip(theirs.step()).and_then(|(ours, theirs)| lineage::common_ancestor(ours, theirs));
            shared.or(ours.step())
        }
        (parents, _) => parents.first().and_then(Parent::step),
    });
    line.take(MAX_STEPS_SEARCHED).find_map(message)
}

fn message(step: &Step) -> Option<Arc<str>> {
    match step.chunk() {
        Chunk::User(user) => from_text(&user.text),
        _ => None,
    }
}
