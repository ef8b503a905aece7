//! Putting back files that a call changed and that the policy does not let it change.
//!
//! Each path is put back by itself: one that fails leaves the others alone, and is reported as not put back. A file in the
//! way of an earlier version is moved aside, so nothing is lost: the change may be the user's own.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rath_record::chunk::{Change, Effect, UnkeptReason};

use super::Result;
use crate::sandbox::RATH_DIR;
use crate::workspace::{self, Backups, ChangeKind, Presence, Snapshot, Workspace};

/// A change that the policy does not allow.
pub(crate) struct Refusal {
    pub(crate) effect: Effect,
    pub(crate) reason: String,
}

/// The files of refused changes, as they were left.
#[derive(Default)]
pub(crate) struct PutBackReport {
    /// The paths that are as before, each with the reason.
    pub(crate) restored: Vec<(String, String)>,
    /// The paths that are not as before, each with the reason and the error.
    pub(crate) failed: Vec<(String, String)>,
}

impl PutBackReport {
    pub(crate) fn is_empty(&self) -> bool {
        self.restored.is_empty() && self.failed.is_empty()
    }

    /// Returns a line about the files that were put back, and one about those that were not.
    pub(crate) fn describe(&self) -> impl Iterator<Item = String> {
        let titles = [("put back as before", &self.restored), ("not put back", &self.failed)];
        titles.into_iter().filter(|(_, files)| !files.is_empty()).map(|(title, files)| {
            let files: Vec<_> = files.iter().map(|(path, why)| format!("{path} ({why})")).collect();
            format!("{title}: {}", files.join(", "))
        })
    }

    /// Adds the paths of another report.
    pub(crate) fn add(&mut self, other: PutBackReport) {
        self.restored.extend(other.restored);
        self.failed.extend(other.failed);
    }
}

/// Puts back the files of refused changes, and those with a backup that are not as in it. `before` is the directory as it was
/// before the call. `is_of_calls` returns true for a file that earlier calls wrote while it was ignored.
pub(super) fn put_back(
    workspace: &Workspace,
    before: &Snapshot,
    is_of_calls: &dyn Fn(&str) -> bool,
    backups: &Backups,
    refused: Vec<Refusal>,
    refuse: &dyn Fn(&Effect) -> Option<Refusal>,
) -> Result<PutBackReport> {
    let changed = workspace.changed_since(backups)?;
    if refused.is_empty() && changed.is_empty() {
        return Ok(PutBackReport::default());
    }
    let mut steps = PutBackSteps::default();
    for Refusal { effect, reason } in refused {
        let was = before.presence(&effect.path);
        let is_of_calls = was != Presence::Absent && is_of_calls(&effect.path);
        let is_unignored = effect.before.is_none() && effect.after.is_some();
        match effect.change {
            Change::Created if was == Presence::Absent || is_of_calls => {
                steps.add(effect.path, PutBackStep::Remove, reason);
            }
            // A directory was there, which has no version of its own.
            Change::Created | Change::Modified if before.is_directory(&effect.path) => {
                steps.add(effect.path, PutBackStep::Recover, reason);
            }
            Change::Modified if is_unignored && is_of_calls => steps.add(effect.path, PutBackStep::Remove, reason),
            // A rename is put back at both paths: half of it would lose the file.
            Change::Renamed { from } => {
                steps.add(from, PutBackStep::Recover, reason.clone());
                steps.add(effect.path, PutBackStep::Remove, reason);
            }
            Change::Deleted if effect.unkept == Some(UnkeptReason::EmptyDirectory) => {
                steps.add(effect.path, PutBackStep::Recover, reason);
            }
            Change::Modified | Change::Deleted if effect.before.is_some() || backups.contains(&effect.path) => {
                steps.add(effect.path, PutBackStep::Recover, reason);
            }
            _ => {}
        }
    }
    // A change that the snapshot does not show, or that no snapshot could be taken of.
    for (path, kind) in changed {
        let change = if kind == ChangeKind::Deleted { Change::Deleted } else { Change::Modified };
        if let Some(Refusal { effect, reason }) = refuse(&Effect::new(path, change)) {
            steps.add(effect.path, PutBackStep::Recover, reason);
        }
    }
    let aside = aside_directory(workspace.root());
    Ok(steps.run(|path, step| match step {
        // A path where nothing is any longer went with the directory above it.
        PutBackStep::Remove => workspace.move_aside(path, before, &aside).map(|_| true),
        PutBackStep::Recover => workspace.recover(path, before, backups, &aside),
    }))
}

/// The paths that are put back after one call, in the order of the report.
#[derive(Default)]
struct PutBackSteps {
    list: Vec<(String, PutBackStep, String)>,
    paths: HashSet<String>,
}

/// The way in which a path is put back.
#[derive(Clone, Copy, PartialEq)]
enum PutBackStep {
    /// Moves a new file aside.
    Remove,
    /// Gives a path the state that it had.
    Recover,
}

impl PutBackSteps {
    fn add(&mut self, path: String, step: PutBackStep, reason: String) {
        if self.paths.insert(path.clone()) {
            self.list.push((path, step, reason));
        }
    }

    /// Does all steps. A path for which `work` returns false was as before.
    ///
    /// New files are removed first: one of them may be in the place of a directory.
    fn run(self, work: impl Fn(&str, PutBackStep) -> workspace::Result<bool>) -> PutBackReport {
        let mut results: Vec<_> = self.list.iter().map(|_| Ok(false)).collect();
        for step in [PutBackStep::Remove, PutBackStep::Recover] {
            for (result, (path, _, _)) in results.iter_mut().zip(&self.list).filter(|(_, (_, own, _))| *own == step) {
                *result = work(path, step);
            }
        }
        let mut report = PutBackReport::default();
        for ((path, _, reason), result) in self.list.into_iter().zip(results) {
            match result {
                Ok(true) => report.restored.push((path, reason)),
                Ok(false) => {}
                Err(error) => report.failed.push((path, format!("{reason}; {error}"))),
            }
        }
        report
    }
}

/// Returns a new directory for what is moved aside.
fn aside_directory(root: &Path) -> PathBuf {
    root.join(RATH_DIR).join("put-back").join(uuid::Uuid::now_v7().simple().to_string())
}
