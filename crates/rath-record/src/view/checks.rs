//! The checks that ran, and whether they still cover the current state of the workspace.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use super::workspace;
use crate::chunk::{Change, Checked, Chunk, Effect, Observed, Tree, UnkeptReason, Verdict};
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
/// Of the runs of a check on both sides of a merge neither is newer: one that holds counts before one that does not, and of several a
/// failure counts before a success. So the order of the sides does not matter.
///
/// See [`Checks`] for an example.
pub fn checks(record: &Record) -> Checks<'_> {
    let mut list = BTreeMap::new();
    let newest = newest_runs(record);
    let current = (!newest.is_empty()).then(|| CurrentState::new(record));
    for (name, runs) in newest {
        let Some(current) = &current else { continue };
        let runs = runs.into_iter().filter_map(|step| {
            let Chunk::Checked(checked) = step.chunk() else { return None };
            let freshness = if current.is_covered_by(step, checked) { Freshness::Fresh } else { Freshness::Stale };
            Some(Check { step, checked, freshness })
        });
        // Of runs that are alike, the content decides and not the id, which depends on work that is kept aside.
        let content = |check: &Check<'_>| serde_json::to_string(check.checked).unwrap_or_default();
        let rank = |check: &Check<'_>| {
            let is_success = check.checked.verdict == Verdict::Passed;
            (check.freshness == Freshness::Stale, is_success, content(check), check.step.id())
        };
        list.extend(runs.min_by_key(rank).map(|check| (name, check)));
    }
    Checks { head: record.head().map(Step::id), list }
}

/// Returns the runs of each check after which there is no other: the newest one, or one of each side of a merge.
fn newest_runs(record: &Record) -> BTreeMap<&str, Vec<&Step>> {
    let steps = record.read_steps();
    let mut all: BTreeMap<&str, Vec<&Step>> = BTreeMap::new();
    for step in &steps {
        // The id of a step that was forgotten does not show what it said.
        if let (Chunk::Checked(checked), None) = (step.chunk(), step.withheld()) {
            all.entry(&checked.check).or_default().push(step);
        }
    }
    let has_sides = record.head().is_some_and(|head| head.totals().merged) && all.values().any(|runs| runs.len() > 1);
    if has_sides {
        return RunOrder::default().newest(&steps);
    }
    all.values_mut().for_each(|runs| _ = runs.drain(..runs.len() - 1));
    all
}

/// The runs of checks, each after those that came before it on its line.
#[derive(Default)]
struct RunOrder<'a> {
    runs: Vec<&'a Step>,
    /// For each run, those of the same check that it is newer than, without those that these are newer than.
    before: Vec<Vec<usize>>,
}

/// The newest runs of each check at a step, as indices into the list of runs.
type NewestAt<'a> = Rc<BTreeMap<&'a str, Vec<usize>>>;

impl<'a> RunOrder<'a> {
    /// Returns the newest runs at the last of these steps, of which each stands after its parents.
    fn newest(mut self, steps: &[&'a Step]) -> BTreeMap<&'a str, Vec<&'a Step>> {
        let mut by_step: HashMap<StepId, NewestAt<'a>> = HashMap::new();
        let mut newest = NewestAt::default();
        for step in steps {
            let at = |parent: &Step| by_step.get(&parent.id()).cloned().unwrap_or_default();
            newest = match step.merged_parents() {
                Some((ours, theirs)) => self.join(at(ours), &at(theirs)),
                None => step.first_parent().map(at).unwrap_or_default(),
            };
            if let (Chunk::Checked(checked), None) = (step.chunk(), step.withheld()) {
                let older = Rc::make_mut(&mut newest).insert(&checked.check, vec![self.runs.len()]);
                self.runs.push(step);
                self.before.push(older.unwrap_or_default());
            }
            by_step.insert(step.id(), newest.clone());
        }
        let steps = |runs: &Vec<usize>| runs.iter().map(|run| self.runs[*run]).collect();
        newest.iter().map(|(check, runs)| (*check, steps(runs))).collect()
    }

    /// Returns the newest runs after a merge of two sides.
    fn join(&self, mut ours: NewestAt<'a>, theirs: &NewestAt<'a>) -> NewestAt<'a> {
        for (check, theirs) in theirs.iter() {
            if ours.get(check) == Some(theirs) {
                continue;
            }
            let runs = Rc::make_mut(&mut ours).entry(check).or_default();
            let both: BTreeSet<usize> = runs.iter().chain(theirs).copied().collect();
            *runs = both.iter().copied().filter(|run| !self.has_newer(*run, &both)).collect();
        }
        ours
    }

    /// Returns whether one of these runs is newer than `run`.
    fn has_newer(&self, run: usize, of: &BTreeSet<usize>) -> bool {
        let mut queue: Vec<usize> = of.iter().filter(|newer| **newer != run).copied().collect();
        let mut seen = HashSet::new();
        while let Some(newer) = queue.pop() {
            if newer == run {
                return true;
            }
            // A run stands after those that it is newer than.
            if newer > run && seen.insert(newer) {
                queue.extend(&self.before[newer]);
            }
        }
        false
    }
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
            || (!checked.inputs.is_empty()
                && leaves_inputs_unchanged(&since, &checked.inputs)
                && has_seen_first_trees(step, &since))
    }
}

/// Returns whether the line of a check has each tree that other steps saw first: such a look has no tree to be compared with, and names
/// no changes.
fn has_seen_first_trees(check: &Step, since: &[&Step]) -> bool {
    let is_first = |observed: &Observed| observed.effects.is_empty() && observed.calls.is_empty();
    let first = since.iter().filter_map(|step| match step.chunk() {
        Chunk::Observed(observed) if is_first(observed) => Some(&observed.tree),
        _ => None,
    });
    let mut unknown: HashSet<&Tree> = first.collect();
    if unknown.is_empty() {
        return true;
    }
    let line = Record::at(check.clone());
    line.newest_first().any(|step| {
        step.chunk().tree().into_iter().for_each(|tree| _ = unknown.remove(tree));
        unknown.is_empty()
    })
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
