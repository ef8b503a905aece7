//! Rules by which old sessions are deleted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rath_record::turn::PendingWork;
use rath_record::{BranchId, Chunk, view};
use rath_workspace::Collector;

use super::find_directories;
use super::names::VersionNames;
use super::pending::PendingDirs;
use crate::blocking::run_blocking;
use crate::sandbox::RATH_DIR;
use crate::session::Result as SessionResult;
use crate::store::{BranchSummary, Store};

/// Rules that choose the sessions of a store to delete, oldest first.
///
/// A session that is being written, has calls without a result, or has no step with a time, is never chosen. If the sessions that no
/// rule may delete are larger than [`max_size`](Retention::max_size) by themselves, that rule chooses none of the others:
/// [`RetentionPlan::unreachable_size`].
///
/// ```
/// use std::time::Duration;
///
/// use rath::gc::{Gc, Retention};
/// use rath::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// let store = Store::open(&format!("sqlite:{}", directory.join(".rath/rath.db").display())).await?;
/// let rules = Retention::new().older_than(Duration::from_secs(30 * 24 * 3600)).max_size(2 << 30);
/// let plan = rules.plan(&store, directory).await?;
/// assert!(plan.delete.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Retention {
    max_age: Option<Duration>,
    max_bytes: Option<u64>,
    keeps_named: bool,
}

/// The sessions that rules choose.
///
/// Returned by [`Retention::plan`].
#[derive(Clone, Debug, Default)]
pub struct RetentionPlan {
    /// The sessions to delete, oldest first, each with the rule that chose it.
    pub delete: Vec<(BranchId, RetentionRule)>,
    /// The sessions that a rule would delete, and that are kept all the same.
    pub kept: Vec<(BranchId, KeepReason)>,
    /// The bytes of the sessions that no rule may delete, if they are more than the maximum size. Then that rule deletes nothing.
    pub unreachable_size: Option<u64>,
}

/// The rule that chose a session.
///
/// Part of [`RetentionPlan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetentionRule {
    /// Its last step is too old.
    Age,
    /// All sessions together are too large.
    Size,
}

/// The reason why a session is kept that a rule would delete.
///
/// Part of [`RetentionPlan`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepReason {
    /// A process writes it.
    InUse {
        /// The process.
        holder: String,
    },
    /// It has calls without a result.
    Waiting,
    /// It has a branch that a person named.
    Named {
        /// The name.
        name: String,
    },
    /// None of its steps has a time.
    UnknownAge,
    /// Its files cannot be measured.
    Damaged {
        /// The error.
        why: String,
    },
}

/// A session with all its branches.
struct SessionFacts {
    family: BranchId,
    branches: Vec<BranchId>,
    /// The time of its newest step, in microseconds since 1970.
    at: Option<i64>,
    keep: Option<KeepReason>,
}

impl Retention {
    /// Creates rules that choose nothing.
    pub fn new() -> Self {
        Retention::default()
    }

    /// Chooses sessions whose newest step is older than this.
    pub fn older_than(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }

    /// Chooses the oldest sessions, until the steps and files of the others have no more than this many bytes.
    pub fn max_size(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Chooses no session with a branch that was named when it was forked.
    pub fn keep_named(mut self) -> Self {
        self.keeps_named = true;
        self
    }

    /// Returns true if there is no rule that could choose a session.
    pub fn is_empty(&self) -> bool {
        self.max_age.is_none() && self.max_bytes.is_none()
    }

    /// Chooses sessions of a store. Deletes nothing.
    pub async fn plan(&self, store: &Store, directory: &Path) -> SessionResult<RetentionPlan> {
        if self.is_empty() {
            return Ok(RetentionPlan::default());
        }
        let mut sessions = self.sessions(store).await?;
        // The newest first; sessions of the same time in the order in which they began. Those without a time are kept, wherever they are.
        sessions.sort_by_key(|session| std::cmp::Reverse((session.at, session.family)));
        let mut chosen: HashMap<BranchId, RetentionRule> = HashMap::new();
        if let Some(age) = self.max_age {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let oldest = i64::try_from(now.saturating_sub(age).as_micros()).unwrap_or(i64::MAX);
            let is_old = |session: &&SessionFacts| session.at.is_none_or(|at| at < oldest);
            chosen.extend(sessions.iter().filter(is_old).map(|session| (session.family, RetentionRule::Age)));
        }
        let mut plan = RetentionPlan::default();
        if let Some(max) = self.max_bytes {
            let is_staying = |session: &&SessionFacts| session.keep.is_some() || !chosen.contains_key(&session.family);
            // Those that stay in any case count first.
            let (fixed, free): (Vec<_>, Vec<_>) =
                sessions.iter().filter(is_staying).partition(|session| session.keep.is_some());
            let order: Vec<_> = fixed.iter().chain(&free).map(|it| (it.family, it.branches.clone())).collect();
            let (store, directory) = (store.clone(), directory.to_owned());
            let fixed: HashSet<_> = fixed.iter().map(|session| session.family).collect();
            let sizes = run_blocking(move || sizes(&store, &directory, &order)).await?;
            let damaged: HashMap<_, _> =
                sizes.iter().filter_map(|size| Some((size.family, size.damage.clone()?))).collect();
            for session in &mut sessions {
                let damage = damaged.get(&session.family).map(|why| KeepReason::Damaged { why: why.clone() });
                session.keep = session.keep.take().or(damage);
            }
            match choose_by_size(&sizes, &fixed, max) {
                Ok(too_large) => {
                    chosen.extend(too_large.into_iter().map(|family| (family, RetentionRule::Size)));
                }
                Err(bytes) => plan.unreachable_size = Some(bytes),
            }
        }
        for session in sessions.into_iter().rev() {
            match (chosen.get(&session.family), session.keep) {
                (Some(_), Some(reason)) => plan.kept.push((session.family, reason)),
                (Some(rule), None) => plan.delete.push((session.family, *rule)),
                (None, _) => {}
            }
        }
        Ok(plan)
    }

    async fn sessions(&self, store: &Store) -> SessionResult<Vec<SessionFacts>> {
        let mut families: BTreeMap<BranchId, Vec<BranchSummary>> = BTreeMap::new();
        for summary in store.list().await? {
            families.entry(summary.family).or_default().push(summary);
        }
        let mut sessions = Vec::new();
        for (family, list) in families {
            let at = list.iter().filter_map(|summary| summary.at).map(|at| at.0).max();
            let keep = self.keep_reason(store, &list).await?;
            let keep = keep.or(at.is_none().then_some(KeepReason::UnknownAge));
            let branches = list.into_iter().map(|summary| summary.branch).collect();
            sessions.push(SessionFacts { family, branches, at, keep });
        }
        Ok(sessions)
    }

    /// Returns the reason why no rule deletes a session.
    async fn keep_reason(&self, store: &Store, list: &[BranchSummary]) -> SessionResult<Option<KeepReason>> {
        let holder = list.iter().find_map(|summary| summary.holder.as_ref().filter(|holder| !holder.is_dead()));
        if let Some(holder) = holder {
            return Ok(Some(KeepReason::InUse { holder: holder.to_string() }));
        }
        let is_waiting = |summary: &BranchSummary| matches!(summary.totals.pending, PendingWork::Tools { .. });
        if list.iter().any(|summary| summary.is_tip && is_waiting(summary)) {
            return Ok(Some(KeepReason::Waiting));
        }
        let may_wait = |summary: &BranchSummary| summary.is_tip && summary.totals.conflicts > 0;
        for summary in list.iter().filter(|summary| self.keeps_named || may_wait(summary)) {
            let stored = store.read(summary.branch).await?;
            if may_wait(summary) && !view::conflicts(stored.session.as_record()).is_empty() {
                return Ok(Some(KeepReason::Waiting));
            }
            if !self.keeps_named {
                continue;
            }
            let name = stored.session.as_record().find_newest(|step| match step.chunk() {
                _ if step.stamp().branch != summary.branch => Some(None),
                Chunk::Forked(forked) => Some(forked.name.clone()),
                _ => None,
            });
            if let Some(name) = name.flatten() {
                return Ok(Some(KeepReason::Named { name }));
            }
        }
        Ok(None)
    }
}

/// The size of a session.
struct SessionSize {
    family: BranchId,
    /// The bytes of its steps, and of the files that no session before it has.
    bytes: u64,
    /// The reason why its files could not be measured as a whole.
    damage: Option<String>,
}

/// Returns the sessions that are to be deleted so that the others have at most `max` bytes. The `sizes` are in the order in which sessions
/// stay; those that are fixed or damaged stay in any case. If these alone are too large, the error is their size.
fn choose_by_size(sizes: &[SessionSize], fixed: &HashSet<BranchId>, max: u64) -> Result<Vec<BranchId>, u64> {
    let is_fixed = |size: &&SessionSize| fixed.contains(&size.family) || size.damage.is_some();
    let (fixed, free): (Vec<_>, Vec<_>) = sizes.iter().partition(is_fixed);
    let mut sum = fixed.iter().fold(0, |sum: u64, size| sum.saturating_add(size.bytes));
    if sum > max {
        return Err(sum);
    }
    let fits = |size: &&&SessionSize| {
        sum = sum.saturating_add(size.bytes);
        sum <= max
    };
    let fitting = free.iter().take_while(fits).count();
    Ok(free[fitting..].iter().map(|size| size.family).collect())
}

/// Returns the sizes of sessions, in this order. Blocks.
fn sizes(store: &Store, directory: &Path, order: &[(BranchId, Vec<BranchId>)]) -> SessionResult<Vec<SessionSize>> {
    let families: HashSet<BranchId> =
        store.list_whole(&HashSet::new())?.into_iter().map(|summary| summary.family).collect();
    let roots = find_directories(store, &PendingDirs::of(store), directory, &families, &HashSet::new())?.roots;
    let open = |root: &PathBuf| Collector::open_shared(&root.join(RATH_DIR).join("workspace")).ok();
    // Versions that cannot be read are not counted, so fewer sessions are chosen.
    let mut collectors: Vec<_> = roots.iter().filter_map(open).collect();
    // One pass over the store, whatever the number of sessions.
    let mut names: HashMap<BranchId, VersionNames> = HashMap::new();
    let order_of_families: Vec<_> = order.iter().map(|(family, _)| *family).collect();
    store.visit_json(&order_of_families, |family, json| names.entry(family).or_default().add_step(json))?;
    let mut sizes = Vec::new();
    for (family, branches) in order {
        let names = names.remove(family).unwrap_or_default();
        let mut size = SessionSize { family: *family, bytes: names.bytes, damage: None };
        for collector in &mut collectors {
            let before = collector.kept_bytes();
            for tree in &names.trees {
                // A damaged tree costs its own session: that one stays.
                if let Err(error) = collector.keep_tree(*tree) {
                    size.damage = Some(error.message());
                }
            }
            size.bytes += collector.kept_bytes() - before;
        }
        for (root, branch) in roots.iter().flat_map(|root| branches.iter().map(move |branch| (root, branch))) {
            size.bytes += Collector::fork_bytes(&root.join(RATH_DIR).join("work").join(branch.to_string()));
        }
        sizes.push(size);
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_sessions_that_fit_stay() {
        let [one, two, three] = [1, 2, 3].map(|nth| BranchId([nth; 16]));
        let size = |family, bytes| SessionSize { family, bytes, damage: None };
        let sizes = [size(three, 10), size(two, 10), size(one, 10)];
        for (max, expected) in [(30, vec![]), (29, vec![one]), (10, vec![two, one]), (0, vec![three, two, one])] {
            assert_eq!(choose_by_size(&sizes, &HashSet::new(), max), Ok(expected), "{max}");
        }
    }

    #[test]
    fn a_size_that_cannot_be_reached_deletes_nothing() {
        let [one, two, three] = [1, 2, 3].map(|nth| BranchId([nth; 16]));
        let size = |family, bytes| SessionSize { family, bytes, damage: None };
        let damaged = SessionSize { damage: Some("lost".to_owned()), ..size(two, 10) };
        let (sizes, fixed) = ([size(three, 100), damaged, size(one, 10)], HashSet::from([three]));
        for (max, expected) in [(120, Ok(vec![])), (119, Ok(vec![one])), (110, Ok(vec![one])), (109, Err(110))] {
            assert_eq!(choose_by_size(&sizes, &fixed, max), expected, "{max}");
        }
    }
}
