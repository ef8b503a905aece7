//! The directory of one branch: snapshots around calls, changes that are put back, and updates.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rath_record::chunk::{Change, Effect, Tree, UnkeptReason};
use rath_record::{BranchId, Record, StepId};

use crate::blocking::drop_on_pool;
use crate::error::ErrorKind;
use crate::links::{Links, SeenRoot};
use crate::policy::ActivePolicy;
use crate::sandbox::Sandbox;
use crate::secrets::Secrets;
use crate::session::changed_paths::{ChangedPaths, LinkedFiles};
use crate::session::ignored_files::UnsharedPath;
use crate::session::mirror::Mirror;
use crate::session::occupant::{Occupant, read_occupant};
use crate::session::put_back::{PutBackReport, Refusal, put_back};
use crate::session::update_note::{Attempt, UpdateNote, until_unchanged};
use crate::session::versions::{self, Versions};
use crate::session::work_lock::WorkLock;
use crate::session::{Error, Result};
use crate::workspace::{Backups, Presence, Snapshot, Workspace};

/// The directory that a branch works in.
pub(crate) struct BranchDir {
    pub(super) sandbox: Sandbox,
    pub(super) tracked: Option<Mutex<TrackedDir>>,
    /// The mirror, if the tracked directory is one.
    pub(super) mirror: Option<Arc<Mirror>>,
    /// The ignored paths of the user's directory that this one does not have.
    pub(super) unshared: Vec<UnsharedPath>,
}

/// A directory whose versions are stored.
pub(super) struct TrackedDir {
    pub(super) workspace: Workspace,
    pub(super) note: UpdateNote,
    /// The first snapshot that was taken before a call.
    pub(super) first: Option<Snapshot>,
    /// The ignored paths that calls changed and that were left, except for calls that a person approved. A directory stands for
    /// all below it.
    left_ignored: HashSet<String>,
    /// The last snapshot.
    pub(super) last: Option<Snapshot>,
    /// The backups of the files in the last snapshot that a policy guards, and the policy.
    backups: Option<(Arc<ActivePolicy>, Backups)>,
    /// The links in the last snapshot, for that policy.
    links: Arc<Links>,
    /// The newest step of the branch that works here.
    pub(super) head: Option<StepId>,
}

/// The files of a directory before an update, and after it.
pub(super) struct UpdatePlan {
    found: Snapshot,
    now: Tree,
    /// The files that the record knows.
    known: Tree,
    wanted: Tree,
    /// True if an earlier update was interrupted, and this one completes it.
    was_interrupted: bool,
}

/// The number of directories, one in the other, that are made listable after a call.
const MAX_UNLISTABLE_LEVELS: usize = 64;

/// The result of looking at a directory after a call.
pub(crate) struct CallChanges {
    /// The files that were put back, and those that could not be.
    pub(crate) put_back: PutBackReport,
    /// The files now, and the changes since the directory was looked at last; none if its versions are not stored. An error does
    /// not keep files from being put back.
    pub(crate) changes: Result<Option<(Tree, Vec<Effect>)>>,
}

impl TrackedDir {
    pub(super) fn new(workspace: Workspace, note: UpdateNote) -> Self {
        TrackedDir {
            workspace,
            note,
            first: None,
            left_ignored: HashSet::new(),
            last: None,
            backups: None,
            links: Arc::default(),
            head: None,
        }
    }

    /// Does the work of [`BranchDir::update_to`] once.
    fn update_to(&mut self, tree: &Tree, last_tree: Option<&Tree>, store: &Versions) -> Result<Attempt<()>> {
        let UpdatePlan { found, now, known, wanted, was_interrupted } = self.plan_update(tree, last_tree, store)?;
        let TrackedDir { workspace, note, last, .. } = self;
        if now != wanted
            && let Attempt::Changed(error) = note.update(workspace, &found, [&known, tree, &wanted])?
        {
            return Ok(Attempt::Changed(error));
        }
        if now != wanted || was_interrupted {
            note.remove();
        }
        *last = Some(workspace.snapshot()?);
        Ok(Attempt::Done(()))
    }

    /// Decides what the files become when they are made equal to a tree. Fails if one of them was changed meanwhile, and by the tree as
    /// well. Writes nothing.
    pub(super) fn plan_update(
        &mut self,
        tree: &Tree,
        last_tree: Option<&Tree>,
        store: &Versions,
    ) -> Result<UpdatePlan> {
        let TrackedDir { workspace, note, last, .. } = self;
        last_tree.map(versions::tree_id).transpose()?.into_iter().for_each(|tree| workspace.assume(tree));
        let found = workspace.snapshot()?;
        let now = versions::tree(found.tree);
        let known = last.as_ref().map(|last| versions::tree(last.tree)).or_else(|| last_tree.cloned());
        let known = known.unwrap_or_else(|| tree.clone());
        let interrupted = note.completed(workspace, &[&known, tree])?;
        let was_interrupted = interrupted.is_some();
        let meant = interrupted.unwrap_or_else(|| now.clone());
        let wanted = if meant == *tree || meant == known {
            tree.clone()
        } else {
            let (merged, conflicts) = store.merge(&known, tree, &meant)?;
            if let [first, ..] = &conflicts[..] {
                let message =
                    format!("`{}` was changed in the directory meanwhile, and by the merge as well", first.path);
                return Err(Error::new(ErrorKind::Conflict, message).with_hint(
                    "move your change elsewhere and resume, or check the session out into another directory",
                ));
            }
            merged
        };
        Ok(UpdatePlan { found, now, known, wanted, was_interrupted })
    }

    /// Returns the links of a snapshot with the names that they give to files.
    fn follow_links(&self, sandbox: &Sandbox, policy: &ActivePolicy, mut links: Vec<String>) -> Links {
        // Names through links are bounded in number: those that no call made come first.
        links.sort_by_cached_key(|link| !self.first.as_ref().is_some_and(|first| first.is_link(link)));
        let seen = (!links.is_empty()).then(|| SeenRoot::of(sandbox)).flatten();
        let links = links.iter().map(|link| versions::lossy_path(link));
        policy.guarded_links(&seen.map_or_else(Vec::new, |seen| seen.follow_links(links)))
    }

    /// Backs up the links of the last snapshot and the files that a policy guards, under any name through links.
    pub(super) fn back_up(&mut self, sandbox: &Sandbox, policy: Option<&Arc<ActivePolicy>>) -> Result<()> {
        let (Some(policy), Some(last)) = (policy, &self.last) else {
            (self.backups, self.links) = (None, Arc::default());
            return Ok(());
        };
        let all_links = last.links();
        let found: HashSet<String> = all_links.iter().cloned().collect();
        let links = self.follow_links(sandbox, policy, all_links);
        let previous = self.backups.take().filter(|(known, _)| Arc::ptr_eq(known, policy) && links == *self.links);
        let is_guarded = |path: &str| found.contains(path) || guards(policy, &links, self.first.as_ref(), path);
        let searched = unread_with_guards(policy, self.first.as_ref(), last);
        let previous = previous.as_ref().map(|(_, backups)| backups);
        let backups = self.workspace.back_up(last, previous, &is_guarded, &searched)?;
        (self.backups, self.links) = (Some((policy.clone(), backups)), Arc::new(links));
        Ok(())
    }
}

impl BranchDir {
    /// Returns the sandbox over this directory.
    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Returns the ignored paths of the user's directory that this one does not have, or that commands could only read.
    pub(crate) fn unshared(&self) -> Vec<UnsharedPath> {
        UnsharedPath::with_read_only(self.unshared.clone(), &self.sandbox)
    }

    /// Returns true if versions of the files are stored.
    pub(crate) fn is_tracked(&self) -> bool {
        self.tracked.is_some()
    }

    /// Returns true if files that a call changed can be put back: those of a mirror are copies.
    pub(super) fn can_put_back(&self) -> bool {
        self.mirror.is_none()
    }

    /// Returns the last snapshot.
    pub(crate) fn last_look(&self) -> Option<Snapshot> {
        self.tracked()?.last.clone()
    }

    /// Returns the files about which the trees of the last look and of one before do not say all: those that were written to although
    /// they are as before, and those that cannot be read.
    pub(crate) fn uncertain_since(&self, before: &Snapshot) -> Result<Vec<Effect>> {
        let Some(tracked) = self.tracked() else { return Ok(Vec::new()) };
        let Some(last) = &tracked.last else { return Ok(Vec::new()) };
        let mut uncertain = versions::effects(tracked.workspace.rewritten(before, last)?);
        uncertain.extend(versions::outdated_effects(last));
        Ok(uncertain)
    }

    /// Forgets the last snapshot, if the files could not be seen since.
    pub(crate) fn forget_last_look(&self) {
        self.tracked().into_iter().for_each(|mut tracked| tracked.last = None);
    }

    /// Keeps files that hold one of these values out of the stored versions.
    pub(crate) fn hide(&self, secrets: &Secrets) {
        if let Some(mut tracked) = self.tracked() {
            hide_in_versions(&mut tracked.workspace, secrets);
        }
    }

    /// Keeps the files tracked that a session has seen and that were removed: they may appear again, and be ignored then.
    pub(super) fn keep_tracked(&self, record: &Record) {
        let Some(mut tracked) = self.tracked() else { return };
        let effects = record.newest_first().flat_map(|step| step.chunk().effects());
        let removed = effects.filter_map(|effect| match &effect.change {
            Change::Deleted if effect.unkept.is_none() => Some(effect.path.as_str()),
            Change::Renamed { from } => Some(from.as_str()),
            _ => None,
        });
        let mut removed = removed.peekable();
        if removed.peek().is_some() {
            tracked.workspace.keep_tracked_paths(removed);
        }
    }

    /// Returns the path, unless it is an overlay that is mounted only while it is in use.
    pub(crate) fn permanent_path(&self) -> Option<&Path> {
        let is_mounted = self.tracked().is_some_and(|tracked| tracked.workspace.is_mounted());
        self.sandbox.directory().filter(|_| !is_mounted)
    }

    /// Takes a snapshot, and returns its tree with the changes since the last snapshot.
    pub(crate) fn changes_since_last_look(&self) -> Result<Option<(Tree, Vec<Effect>)>> {
        let Some(mut tracked) = self.tracked() else { return Ok(None) };
        let now = tracked.workspace.snapshot()?;
        let effects = match &tracked.last {
            Some(last) => {
                let policy = tracked.backups.as_ref().map(|(policy, _)| policy);
                let (links, first) = (&tracked.links, tracked.first.as_ref());
                let is_guarded = |path: &str| policy.is_some_and(|policy| guards(policy, links, first, path));
                versions::effects(tracked.workspace.changes_listing(last, &now, &is_guarded)?)
            }
            None => Vec::new(),
        };
        let tree = versions::tree(now.tree);
        tracked.last = Some(now);
        Ok(Some((tree, effects)))
    }

    /// Takes a snapshot after a call, and puts back changed files for which `refuse` returns a reason. Returns the changes since the
    /// last snapshot.
    ///
    /// The changed files are moved to `.rath/put-back`, so nothing is lost. Files that were there before are looked at one by one, so
    /// they are put back even if the snapshot fails. The files that the policy guards are backed up for the next call.
    pub(crate) fn changes_except(
        &self,
        policy: Option<&Arc<ActivePolicy>>,
        is_approved: bool,
        refuse: impl Fn(&Effect, &ChangedPaths<'_>) -> Option<String>,
    ) -> Result<CallChanges> {
        let before = self.tracked().and_then(|tracked| tracked.last.clone());
        if !self.can_put_back() {
            // Without the files before the call, its changes cannot be told.
            let changes = before.map_or(Ok(None), |_| self.changes_since_last_look());
            return Ok(CallChanges { put_back: PutBackReport::default(), changes });
        }
        let changes = self.all_changes(before.as_ref());
        let mut report = PutBackReport::default();
        let (Some(before), Some(mut tracked)) = (before, self.tracked()) else {
            return Ok(CallChanges { put_back: report, changes });
        };
        let first = tracked.first.clone().unwrap_or_else(|| before.clone());
        let (last, links) = (tracked.last.clone(), tracked.links.clone());
        let after = last
            .as_ref()
            .zip(changes.as_ref().ok().and_then(Option::as_ref))
            .map(|(last, (_, effects))| (last, &effects[..]));
        let is_link = |path: &str| [Some(&before), last.as_ref()].into_iter().flatten().any(|it| it.is_link(path));
        let changes_links = |effects: &[Effect]| effects.iter().any(|effect| changed_paths_of(effect).any(is_link));
        let links_after = after
            .filter(|(_, effects)| changes_links(effects))
            .zip(policy)
            .map(|((last, _), policy)| tracked.follow_links(&self.sandbox, policy, last.links()));
        let paths = ChangedPaths {
            workspace: &tracked.workspace,
            first: &first,
            before: LinkedFiles { snapshot: &before, links: &links },
            after: after.map(|(snapshot, effects)| {
                (LinkedFiles { snapshot, links: links_after.as_ref().unwrap_or(&links) }, effects)
            }),
            compared: Cell::new(0),
            walked: RefCell::default(),
        };
        let refuse = |effect: &Effect| {
            let reason = refuse(effect, &paths)?;
            Some(Refusal { effect: effect.clone(), reason })
        };
        let effects = changes.iter().flatten().flat_map(|(_, effects)| effects);
        let mut refused: Vec<_> = effects.filter_map(refuse).collect();
        let has_unread = || {
            let policy = tracked.backups.as_ref().map(|(policy, _)| policy);
            policy
                .zip(after)
                .is_some_and(|(policy, (after, _))| !unread_with_guards(policy, Some(&first), after).is_empty())
        };
        if changes.is_err() || has_unread() {
            let created = |path: &str| {
                let effect = Effect::new(path, Change::Created);
                // Without a snapshot it is not known which names a new link gives to files.
                let is_unknown = || after.is_none() && tracked.workspace.is_link_now(path);
                let unknown =
                    |effect| Refusal { effect, reason: "a new link, and the files could not be read".to_owned() };
                refuse(&effect).or_else(|| is_unknown().then(|| unknown(effect)))
            };
            let new = tracked.workspace.new_paths(&before, &|path| created(path).is_some())?;
            refused.extend(new.iter().filter_map(|path| created(path)));
        }
        if let Some((_, backups)) = &tracked.backups {
            let left = |path: &str| tracked.left_ignored.iter().any(|left| is_at_or_below(path, left));
            let is_of_calls = |path: &str| first.presence(path) == Presence::Absent && left(path);
            report = put_back(&tracked.workspace, &before, &is_of_calls, backups, refused, &refuse)?;
        }
        if !is_approved {
            let effects = changes.iter().flatten().flat_map(|(_, effects)| effects);
            let ignored = effects.filter(|effect| effect.unkept == Some(UnkeptReason::Ignored));
            tracked.left_ignored.extend(ignored.map(|effect| effect.path.clone()));
        }
        if changes.is_err() || report.is_empty() {
            if changes.is_ok() {
                tracked.back_up(&self.sandbox, policy)?;
            }
            return Ok(CallChanges { put_back: report, changes });
        }
        // The changes that stay are those since the look before the call.
        tracked.last = Some(before);
        drop(tracked);
        let mut changes = self.changes_since_last_look();
        // A file without a version is as before although its metadata differs.
        for (_, effects) in changes.iter_mut().flatten() {
            let is_restored = |path: &str| report.restored.iter().any(|(restored, _)| restored == path);
            effects.retain(|effect| effect.unkept.is_none() || !is_restored(&effect.path));
        }
        if let (Some(mut tracked), true) = (self.tracked(), changes.is_ok()) {
            tracked.back_up(&self.sandbox, policy)?;
        }
        Ok(CallChanges { put_back: report, changes })
    }

    /// Takes a snapshot after a call, and returns its tree with the changes since the last snapshot, also in directories that the
    /// call made unlistable.
    fn all_changes(&self, before: Option<&Snapshot>) -> Result<Option<(Tree, Vec<Effect>)>> {
        if let (Some(before), Some(tracked)) = (before, self.tracked()) {
            tracked.workspace.restore_access(before)?;
        }
        let Some((mut tree, mut effects)) = self.changes_since_last_look()? else { return Ok(None) };
        for _ in 0..MAX_UNLISTABLE_LEVELS {
            match self.look_into_unlistable(before, &effects)? {
                Some(found) => (tree, effects) = found,
                None => break,
            }
        }
        Ok(Some((tree, effects)))
    }

    /// Makes directories listable that the call made unlistable, and looks again. Returns none if there are none: a call could hide
    /// files in them that others read by their name.
    fn look_into_unlistable(
        &self,
        before: Option<&Snapshot>,
        effects: &[Effect],
    ) -> Result<Option<(Tree, Vec<Effect>)>> {
        let (Some(before), Some(mut tracked)) = (before, self.tracked()) else { return Ok(None) };
        let special = effects.iter().filter(|effect| effect.unkept == Some(UnkeptReason::Special)).collect::<Vec<_>>();
        if special.is_empty() {
            return Ok(None);
        }
        let (untracked, mut is_changed) = (before.untracked(), false);
        for effect in special {
            let was_there = untracked.iter().any(|(known, _)| *known == effect.path);
            is_changed |= !was_there && tracked.workspace.make_listable(&effect.path)?;
        }
        if !is_changed {
            return Ok(None);
        }
        tracked.last = Some(before.clone());
        drop(tracked);
        self.changes_since_last_look()
    }

    /// Makes the files equal to a tree, and returns the tree that is there then with the changes since the last look. If others changed
    /// one of the files since, the next look finds the change.
    ///
    /// If the record does not get the tree, the next look undoes this. Call [`updated`](BranchDir::updated) once it has it.
    pub(crate) fn restore(&self, tree: &Tree) -> Result<Attempt<(Tree, Vec<Effect>)>> {
        if let Some(mut tracked) = self.tracked() {
            let TrackedDir { workspace, note, last, .. } = &mut *tracked;
            let found = match last {
                Some(last) => last.clone(),
                None => workspace.snapshot()?,
            };
            let before = versions::tree(found.tree);
            if let Attempt::Changed(error) = note.update(workspace, &found, [&before, tree, tree])? {
                return Ok(Attempt::Changed(error));
            }
        }
        Ok(Attempt::Done(self.changes_since_last_look()?.unwrap_or_else(|| (tree.clone(), Vec::new()))))
    }

    /// Ends an update of the files: the record has their tree.
    pub(crate) fn updated(&self) {
        self.tracked().into_iter().for_each(|mut tracked| tracked.note.remove());
    }

    /// Keeps the directory from being taken over by another branch as long as the lock lives. Blocks.
    pub(crate) fn work_lock(&self) -> Option<WorkLock> {
        WorkLock::shared(self.tracked()?.workspace.objects())
    }

    /// Stores the newest step of the branch that works here, for this process and for later ones.
    pub(crate) fn set_head(&self, branch: BranchId, step: Option<StepId>) {
        let Some(mut tracked) = self.tracked() else { return };
        tracked.head = step;
        let root = self.sandbox.directory().unwrap_or_else(|| tracked.workspace.root());
        // If this fails, a later process reports that files differ.
        if let Some(occupant) = read_occupant(root).filter(|occupant| occupant.branch == branch) {
            let _ = Occupant { head: step, ..occupant }.write(root, tracked.workspace.objects());
        }
    }

    /// Makes the files equal to a tree, merged with changes that were made outside the session meanwhile. Changes no file if one of
    /// them is in conflict. An update that was interrupted counts as none.
    pub(super) fn update_to(&self, tree: &Tree, last_tree: Option<&Tree>, store: &Versions) -> Result<()> {
        let Some(mut tracked) = self.tracked() else { return Ok(()) };
        until_unchanged(|| tracked.update_to(tree, last_tree, store))
    }

    pub(super) fn tracked(&self) -> Option<MutexGuard<'_, TrackedDir>> {
        self.tracked.as_ref().map(|tracked| tracked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Closes the workspace, which writes its index, on the blocking pool.
impl Drop for BranchDir {
    fn drop(&mut self) {
        drop_on_pool((self.tracked.take(), self.mirror.take()));
    }
}

/// Returns true if the policy guards a path on the record under one of its names, by the ignore rules of the first snapshot.
fn guards(policy: &ActivePolicy, links: &Links, first: Option<&Snapshot>, path: &str) -> bool {
    let ignored_dir = |name: &str| first.and_then(|first| first.ignored_above(name));
    // Nearly all paths are on no list.
    let is_guarded = |name: &String| policy.guards(name, None) && policy.guards(name, ignored_dir(name).as_deref());
    links.names(&versions::lossy_path(path)).iter().any(is_guarded)
}

/// Returns the directories of a snapshot whose contents are not known, and in which the policy may guard files: those that only a
/// call has made ignored, and others for some rules and names.
fn unread_with_guards(policy: &ActivePolicy, first: Option<&Snapshot>, snapshot: &Snapshot) -> Vec<String> {
    let is_chosen = |path: &str| {
        let below = format!("{path}/x");
        first.is_some_and(|it| it.presence(&below) != Presence::Unknown && it.ignored_above(&below).is_none())
    };
    let mut unread = snapshot.unread();
    unread.retain(|path| is_chosen(path) || policy.may_guard_below(&versions::lossy_path(path)));
    unread
}

/// Returns the path of a changed file, and the one that it was renamed from.
fn changed_paths_of(effect: &Effect) -> impl Iterator<Item = &str> {
    let from = match &effect.change {
        Change::Renamed { from } => Some(from.as_str()),
        _ => None,
    };
    from.into_iter().chain([effect.path.as_str()])
}

fn is_at_or_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(super) fn hide_in_versions(workspace: &mut Workspace, secrets: &Secrets) {
    if secrets.has_values() {
        let secrets = secrets.clone();
        workspace.secret_finder(Arc::new(move |bytes: &[u8]| secrets.has_known_value(&String::from_utf8_lossy(bytes))));
    }
}
