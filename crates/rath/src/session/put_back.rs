//! Putting back files that a call changed and that the policy does not let it change.
//!
//! A file in the way of an earlier version is moved aside, so nothing is lost: the change may be the user's own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rath_record::chunk::{Change, Effect, UnkeptReason};

use super::{Result, versions};
use crate::sandbox::RATH_DIR;
use crate::workspace::{ChangeKind, Permissions, Snapshot, UntrackedReason, Workspace};

/// The changes that are undone: which files are removed, and which become what they were.
#[derive(Default)]
struct PutBackPlan {
    /// New files.
    created: Vec<String>,
    /// Files with an earlier version: the path where each is now, and the path where it was.
    changed: Vec<(String, String)>,
    /// The paths of both, each with the reason.
    paths: Vec<(String, String)>,
}

/// Puts back the files of some effects, and returns the paths that were put back, each with the reason. `before` is the
/// directory as it was before the call.
pub(super) fn put_back(
    workspace: &mut Workspace,
    before: &Snapshot,
    refused: Vec<(Effect, String)>,
) -> Result<Vec<(String, String)>> {
    let mut plan = plan(workspace, before, refused)?;
    let aside = aside_directory(workspace.root());
    for path in &plan.created {
        // What cannot be moved stays, and is among the changes.
        if workspace.move_aside(path, &aside).ok().flatten().is_none() {
            plan.paths.retain(|(known, _)| known != path);
        }
    }
    if !plan.changed.is_empty() && restore(workspace, before, &plan.changed, &aside).is_err() {
        let is_changed = |path: &String| plan.changed.iter().any(|(at, was)| at == path || was == path);
        plan.paths.retain(|(path, _)| !is_changed(path));
    }
    restore_empty_directories(workspace, before)?;
    Ok(plan.paths)
}

/// Decides which files can be put back.
fn plan(workspace: &Workspace, before: &Snapshot, refused: Vec<(Effect, String)>) -> Result<PutBackPlan> {
    let (untracked, unlistable) = (before.untracked(), before.unlistable());
    let mut plan = PutBackPlan::default();
    for (effect, why) in refused {
        let was = match &effect.change {
            Change::Created if existed_untracked(&untracked, &unlistable, &effect.path) => continue,
            Change::Created => {
                plan.created.push(effect.path.clone());
                plan.paths.push((effect.path, why));
                continue;
            }
            Change::Renamed { from } => from.clone(),
            _ => effect.path.clone(),
        };
        // A file that was ignored before, and is not any longer, has no earlier version.
        if workspace.objects().read(before.tree, &was)?.is_some() {
            // Both paths of a rename: half of it would lose the file.
            let other = Some(was.clone()).filter(|was| *was != effect.path);
            plan.paths.extend(other.into_iter().chain([effect.path.clone()]).map(|path| (path, why.clone())));
            plan.changed.push((effect.path, was));
        }
    }
    Ok(plan)
}

/// Returns true if a path was there before, and is not part of a tree. Everything below an ignored directory is untracked with it,
/// and below one that could not be listed; a large file stands for itself.
fn existed_untracked(untracked: &[(String, UntrackedReason)], unlistable: &[String], path: &str) -> bool {
    let is_above = |above: &str| path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'));
    unlistable.iter().any(|above| is_above(above))
        || untracked.iter().any(|(known, reason)| match reason {
            UntrackedReason::EmptyDirectory => false,
            UntrackedReason::Ignored => known == path || is_above(known),
            _ => known == path,
        })
}

/// Returns a new directory for what is moved aside.
fn aside_directory(root: &Path) -> PathBuf {
    root.join(RATH_DIR).join("put-back").join(uuid::Uuid::now_v7().simple().to_string())
}

/// Gives files their earlier versions. If that fails, they stay as they are.
fn restore(workspace: &mut Workspace, before: &Snapshot, changed: &[(String, String)], aside: &Path) -> Result<()> {
    let now = workspace.snapshot()?;
    let paths = changed.iter().flat_map(|(at, was)| [at.as_str(), was.as_str()]);
    let wanted = workspace.objects().with_paths(now.tree, before.tree, paths)?;
    // All that is replaced or removed, whatever it is.
    let mut permissions: HashMap<String, Permissions> = HashMap::new();
    for change in workspace.objects().diff(Some(now.tree), wanted)? {
        let from = if let ChangeKind::Renamed { from } = change.kind { Some(from) } else { None };
        for path in from.into_iter().chain([change.path]) {
            let moved = workspace.move_aside(&path, aside).ok().flatten();
            permissions.extend(moved.map(|moved| (path, moved)));
        }
    }
    if let Err(error) = workspace.restore(wanted) {
        workspace.restore(now.tree)?;
        return Err(error.into());
    }
    // A version in a tree has no permissions but that to execute.
    for (at, was) in changed {
        if let Some(kept) = permissions.get(at) {
            workspace.set_permissions(was, *kept)?;
        }
    }
    Ok(())
}

/// Creates directories again that were empty before, which are not part of a tree.
fn restore_empty_directories(workspace: &mut Workspace, before: &Snapshot) -> Result<()> {
    let now = workspace.snapshot()?;
    for effect in versions::effects(workspace.changes(before, &now)?) {
        if effect.change == Change::Deleted && effect.unkept == Some(UnkeptReason::EmptyDirectory) {
            workspace.create_directory(&effect.path)?;
        }
    }
    Ok(())
}
