//! The checks that ran, and whether they still cover the current state of the workspace.

use std::collections::BTreeMap;

use super::workspace;
use crate::chunk::{Change, Checked, Chunk, Effect, Tree, UnkeptReason};
use crate::id::StepId;
use crate::lineage;
use crate::record::Record;
use crate::step::Step;
use crate::turn::{self, Progress};

/// The newest run of every check.
///
/// ```
/// use rath_record::chunk::{Checked, Verdict};
/// use rath_record::view::{self, Freshness};
/// # use rath_record::{BranchId, Record, Stamp};
///
/// # let mut record = Record::new();
/// record.push(Checked::new("cargo test", Verdict::Passed).into(), Stamp::on(BranchId([1; 16])));
/// let checks = view::checks(&record);
/// assert_eq!(checks.list["cargo test"].checked.verdict, Verdict::Passed);
/// assert_eq!(checks.list["cargo test"].freshness, Freshness::Fresh);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Checks<'a> {
    /// The head that the view reflects.
    pub head: Option<StepId>,
    /// The checks, by name.
    pub list: BTreeMap<&'a str, Check<'a>>,
}

/// The newest run of one check.
///
/// Part of [`Checks`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Check<'a> {
    /// The step that recorded the run.
    pub step: &'a Step,
    /// The recorded run.
    pub checked: &'a Checked,
    /// The freshness of the run.
    pub freshness: Freshness,
}

/// Tells whether a check covers the current state of the workspace.
///
/// Part of [`Check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The workspace, or the part of it that the check depends on, is as the check saw it.
    Fresh,
    /// The workspace changed after the check or on a branch that it did not see, or a running call may change it. A step that was
    /// forgotten may have been such a change, or a later run.
    Stale,
}

/// Returns the newest run of every check up to the head of `record`.
///
/// See [`Checks`] for an example.
pub fn checks(record: &Record) -> Checks<'_> {
    let mut list = BTreeMap::new();
    let newest: BTreeMap<&str, &Step> = record
        .read_steps()
        .into_iter()
        .filter_map(|step| match step.chunk() {
            // The id of a step that was forgotten does not show what it said.
            Chunk::Checked(checked) if step.withheld().is_none() => Some((checked.check.as_str(), step)),
            _ => None,
        })
        .collect();
    let current = (!newest.is_empty()).then(|| CurrentState::new(record));
    for (name, step) in newest {
        let (Chunk::Checked(checked), Some(current)) = (step.chunk(), &current) else { continue };
        let freshness = if current.is_covered_by(step, checked) { Freshness::Fresh } else { Freshness::Stale };
        list.insert(name, Check { step, checked, freshness });
    }
    Checks { head: record.head().map(Step::id), list }
}

/// The state that checks are compared with.
struct CurrentState<'a> {
    head: Option<&'a Step>,
    tree: Option<Tree>,
    /// True if a call was started and has no result: it may be changing anything right now.
    running: bool,
}

impl<'a> CurrentState<'a> {
    fn new(record: &'a Record) -> Self {
        let head = record.head();
        let may_run = |progress: &Progress| {
            progress.is_in_doubt() || matches!(progress, Progress::Forgotten | Progress::Ambiguous)
        };
        let running = |head| turn::pending_calls(head).iter().any(|pending| may_run(&pending.progress));
        CurrentState { head, tree: workspace::tree(record), running: head.is_some_and(running) }
    }

    fn is_covered_by(&self, step: &Step, checked: &Checked) -> bool {
        let Some(head) = self.head.filter(|_| !self.running) else { return false };
        // Since the check, or on another branch.
        let since = lineage::read_by_theirs_only(step, head);
        if since.iter().any(|step| step.withheld().is_some()) {
            return false;
        }
        let is_unchanged = match (&checked.tree, &self.tree) {
            (Some(checked_tree), Some(tree)) => checked_tree == tree,
            // Files changed while it ran.
            (None, Some(_)) => false,
            _ => !since.iter().any(|step| step.chunk().changes_workspace()),
        };
        // A file of which no version is kept may have changed although the tree is the same.
        let is_uncompared = |effect: &Effect| {
            effect.unkept.is_some_and(|why| !matches!(why, UnkeptReason::Ignored | UnkeptReason::EmptyDirectory))
                && (checked.inputs.is_empty() || touches(&checked.inputs, effect))
        };
        let is_compared = || !since.iter().any(|step| step.chunk().effects().iter().any(is_uncompared));
        (is_unchanged && is_compared())
            || (!checked.inputs.is_empty() && leaves_inputs_unchanged(&since, &checked.inputs))
    }
}

/// Returns whether a change concerns the inputs of a check.
fn touches(inputs: &[String], effect: &Effect) -> bool {
    let depends_on = |path: &str| inputs.iter().any(|input| covers(input, path));
    match &effect.change {
        Change::Renamed { from } => depends_on(from) || depends_on(&effect.path),
        _ => depends_on(&effect.path),
    }
}

/// Returns whether no change in these steps concerns the inputs of a check.
fn leaves_inputs_unchanged(since: &[&Step], inputs: &[String]) -> bool {
    // A change that was not observed may concern anything.
    since.iter().all(|step| {
        let chunk = step.chunk();
        let is_observed = !chunk.changes_workspace() || chunk.tree().is_some();
        is_observed && !chunk.effects().iter().any(|effect| touches(inputs, effect))
    })
}

/// Returns whether `path` is the input that a check depends on, or lies below it.
///
/// ```
/// use rath_record::view::covers;
///
/// assert!(covers("src", "src/main.rs"));
/// assert!(!covers("src", "srcs/main.rs"));
/// ```
pub fn covers(input: &str, path: &str) -> bool {
    let input = input.trim_start_matches("./").trim_end_matches('/');
    let below = path.strip_prefix(input).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    below || matches!(input, "" | ".")
}
