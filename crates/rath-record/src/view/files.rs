//! The files that changed, and the calls that changed them.

use std::collections::BTreeMap;

use crate::chunk::{Change, Chunk, Effect, UnkeptReason};
use crate::id::{CallId, Digest, StepId};
use crate::record::Record;
use crate::step::Step;

/// The files that were changed.
///
/// ```
/// use rath_record::chunk::{Change, Effect, Outcome, ToolResult};
/// use rath_record::view;
/// # use rath_record::{BranchId, Record, Stamp};
///
/// # let mut record = Record::new();
/// let effect = Effect::new("a.txt", Change::Created);
/// let result = ToolResult::new("c1", Outcome::Ok, "written").with_effects([effect]);
/// record.push(result.into(), Stamp::on(BranchId([1; 16])));
/// assert!(view::files(&record).list.contains_key("a.txt"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChangedFiles<'a> {
    /// The head that the view reflects.
    pub head: Option<StepId>,
    /// The changed files, by path.
    pub list: BTreeMap<&'a str, ChangedFile<'a>>,
}

/// The last known state of one path.
///
/// Part of [`ChangedFiles`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChangedFile<'a> {
    /// The digest of the content; `None` if the path was deleted, or its content is not kept.
    pub digest: Option<Digest>,
    /// The reason why no version of the file is kept, if none is.
    pub unkept: Option<UnkeptReason>,
    /// The step that changed the file last.
    pub step: &'a Step,
    /// The call behind that step; `None` if the change was observed or came from a merge.
    pub call: Option<&'a CallId>,
    /// Earlier steps whose version this one did not start from: two branches, or something outside, changed the file
    /// too.
    pub diverged: Vec<StepId>,
}

/// Returns the files that were changed up to the head of `record`.
///
/// See [`ChangedFiles`] for an example.
pub fn files(record: &Record) -> ChangedFiles<'_> {
    let mut list: BTreeMap<&str, ChangedFile<'_>> = BTreeMap::new();
    for step in record.read_steps() {
        let call = match step.chunk() {
            Chunk::ToolResult(result) => Some(&result.call),
            _ => None,
        };
        for effect in step.chunk().effects() {
            let file = |digest| ChangedFile { digest, unkept: effect.unkept, step, call, diverged: Vec::new() };
            if let Change::Renamed { from } = &effect.change {
                record_change(&mut list, from, file(None), effect.before);
            }
            record_change(&mut list, &effect.path, file(digest_after(effect)), digest_before(effect));
        }
    }
    ChangedFiles { head: record.head().map(Step::id), list }
}

fn record_change<'a>(
    list: &mut BTreeMap<&'a str, ChangedFile<'a>>,
    path: &'a str,
    mut file: ChangedFile<'a>,
    before: Option<Digest>,
) {
    if let Some(known) = list.remove(path)
        && known.digest != before
    {
        // A change that starts from the known version resolves the divergence, and two changes to the same content do
        // not diverge.
        file.diverged = known.diverged;
        if known.digest != file.digest {
            file.diverged.push(known.step.id());
        }
    }
    list.insert(path, file);
}

/// Returns the digest that the call found at the path. After a rename it is `None`: the content was at another path.
fn digest_before(effect: &Effect) -> Option<Digest> {
    match effect.change {
        Change::Created | Change::Renamed { .. } => None,
        Change::Modified | Change::Deleted => effect.before,
    }
}

fn digest_after(effect: &Effect) -> Option<Digest> {
    match effect.change {
        Change::Deleted => None,
        Change::Created | Change::Modified | Change::Renamed { .. } => effect.after,
    }
}
