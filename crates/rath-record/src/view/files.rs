//! What changed in the workspace, and by which call.

use std::collections::BTreeMap;

use crate::chunk::{Change, Chunk, Effect, Unkept};
use crate::id::{CallId, Digest, StepId};
use crate::record::Record;
use crate::step::Step;

/// The files that tool calls changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Files<'a> {
    /// The head it reflects.
    pub head: Option<StepId>,
    /// Every path that was touched.
    pub list: BTreeMap<&'a str, File<'a>>,
}

/// The last known state of one path.
#[derive(Clone, Debug, PartialEq)]
pub struct File<'a> {
    /// The digest of its content; none if the path is gone, or not kept.
    pub digest: Option<Digest>,
    /// Why no version of it is kept, where none is.
    pub unkept: Option<Unkept>,
    /// The step that left it so.
    pub step: &'a Step,
    /// The call behind that step; none if it was found so, or joined.
    pub call: Option<&'a CallId>,
    /// Earlier steps whose version this one did not start from: two branches, or someone outside, wrote it too.
    pub diverged: Vec<StepId>,
}

/// The files that tool calls changed up to the head of `record`.
pub fn files(record: &Record) -> Files<'_> {
    let mut list: BTreeMap<&str, File<'_>> = BTreeMap::new();
    for step in record.lineage_order() {
        let call = match step.chunk() {
            Chunk::ToolResult(result) => Some(&result.call),
            _ => None,
        };
        for effect in step.chunk().effects() {
            let now = |digest| File { digest, unkept: effect.unkept, step, call, diverged: Vec::new() };
            if let Change::Renamed { from } = &effect.change {
                put(&mut list, from, now(None), effect.before);
            }
            put(&mut list, &effect.path, now(after(effect)), before(effect));
        }
    }
    Files { head: record.head().map(Step::id), list }
}

fn put<'a>(list: &mut BTreeMap<&'a str, File<'a>>, path: &'a str, mut now: File<'a>, before: Option<Digest>) {
    if let Some(known) = list.remove(path)
        && known.digest != before
    {
        // Whoever starts from what is known settles the matter; and two that came to the same content do not disagree.
        now.diverged = known.diverged;
        if known.digest != now.digest {
            now.diverged.push(known.step.id());
        }
    }
    list.insert(path, now);
}

/// What the call found at the path: after a rename that is nothing, the content stood elsewhere.
fn before(effect: &Effect) -> Option<Digest> {
    match effect.change {
        Change::Created | Change::Renamed { .. } => None,
        Change::Modified | Change::Deleted => effect.before,
    }
}

fn after(effect: &Effect) -> Option<Digest> {
    match effect.change {
        Change::Deleted => None,
        Change::Created | Change::Modified | Change::Renamed { .. } => effect.after,
    }
}
