//! The assignment of directories to branches: which branch works in the user's directory, which take it over, and which get one of their own.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use rath_record::chunk::{Chunk, Tree};
use rath_record::{BranchId, Record, Step, view};

use super::branch_dir::TrackedDir;
use super::{BranchDir, BranchDirs, DirRequest};
use crate::error::ErrorKind;
use crate::sandbox::{RATH_DIR, Sandbox};
use crate::session::occupant::{Occupant, read_occupant};
use crate::session::version_folders::missing_files;
use crate::session::versions::{self, Versions};
use crate::session::work_lock::WorkLock;
use crate::session::{Error, Result};
use crate::workspace::Workspace;

impl BranchDirs {
    /// Returns the directory of a branch. Blocks: the directory of a fork is created by the first call.
    pub(crate) fn dir_for(&self, request: &DirRequest<'_>) -> Result<Arc<BranchDir>> {
        let slot = self.state().by_branch.entry(request.branch).or_default().clone();
        let mut assigned = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dir) = &*assigned {
            // While copies were missing, the directory was not tracked.
            let is_tracked = dir.tracked.is_some() || !self.mirror.get().is_some_and(|mirror| mirror.is_current());
            if is_tracked && !self.was_taken_over(dir, request) {
                return Ok(dir.clone());
            }
            // The directory may be another branch's now, which a merge in another process or by another handle began.
            *assigned = None;
            let mut state = self.state();
            state.root = state.root.filter(|occupant| *occupant != request.branch);
        }
        let dir = self.create(request)?;
        dir.keep_tracked(request.record);
        *assigned = Some(dir.clone());
        Ok(dir)
    }

    /// Returns true if a directory is the user's, and another branch of the session works there now.
    fn was_taken_over(&self, dir: &BranchDir, request: &DirRequest<'_>) -> bool {
        self.is_root(dir) && self.occupant_of(request.record).is_some_and(|occupant| occupant.branch != request.branch)
    }

    /// Returns true if a directory is the user's, and no fork.
    fn is_root(&self, dir: &BranchDir) -> bool {
        let [own, root] = [&dir.sandbox, &self.sandbox].map(Sandbox::directory);
        own == root || own.zip(root).is_some_and(|(own, root)| root.canonicalize().is_ok_and(|root| own == root))
    }

    /// Returns the branch that works in the user's directory, if it is one of the session of a record.
    pub(super) fn occupant_of(&self, record: &Record) -> Option<Occupant> {
        let occupant = self.root().and_then(read_occupant);
        occupant.filter(|occupant| Some(occupant.first_branch) == first_branch(record))
    }

    /// Returns the directory of a branch if it has one already. Does not block.
    pub(crate) fn assigned(&self, branch: BranchId) -> Option<Arc<BranchDir>> {
        let slot = self.state().by_branch.get(&branch).cloned()?;
        // A lock that is held means that the directory is being created.
        slot.try_lock().ok()?.clone()
    }

    /// Opens or creates the directory of a branch.
    fn create(&self, request: &DirRequest<'_>) -> Result<Arc<BranchDir>> {
        let current = self.root().filter(|_| self.mirror.get().is_none_or(|mirror| mirror.is_current()));
        // Recorded files are written from stored versions: where there are none, nothing is created.
        let writes = |root: &Path| view::tree(request.record).is_some() && !self.may_use_root(root, request);
        if self.sandbox.directory().is_some_and(writes) && !self.has_versions()? {
            return Err(missing_files());
        }
        let (Some(root), Some(store)) = (current, self.versions()?) else {
            if self.claims_root(request) {
                let (sandbox, unshared) = (self.sandbox.clone(), Vec::new());
                return Ok(Arc::new(BranchDir { sandbox, tracked: None, mirror: None, unshared }));
            }
            return Err(self.cannot_fork());
        };
        let fork_path = self.fork_path(root, request.branch);
        if Workspace::is_fork(&fork_path) {
            return self.open(&fork_path, store, request);
        }
        if self.owner.is_none()
            && let Some(dir) = self.take_over(request, root, store)?
        {
            return Ok(dir);
        }
        if self.claims_root(request) {
            return self.open(root, store, request);
        }
        if self.mirror.get().is_some() {
            return Err(self.cannot_fork());
        }
        let mut origin = self.workspace(root, store, request.secrets)?;
        let recorded = view::tree(request.record).or_else(|| view::unobserved(request.record)?.since);
        let tree = recorded.map_or_else(|| self.first_tree(&mut origin), Ok)?;
        let workspace = origin.fork(versions::tree_id(&tree)?, &fork_path, &self.index(&fork_path, store))?;
        self.dir(&fork_path, workspace, store, request)
    }

    /// Returns the first tree that was seen in the user's directory.
    pub(super) fn first_tree(&self, origin: &mut Workspace) -> Result<Tree> {
        let first = self.state().first.clone();
        // Without one, no branch has changed a file yet.
        let tree = first.map_or_else(|| origin.snapshot().map(|now| versions::tree(now.tree)), Ok)?;
        Ok(self.state().first.get_or_insert(tree).clone())
    }

    fn cannot_fork(&self) -> Error {
        let message = format!("the sandbox {} cannot be forked, and another branch works in it", self.sandbox.uri());
        Error::new(ErrorKind::Place, message).with_hint("place the fork elsewhere with `session.to(..)`")
    }

    /// Takes over the user's directory from another branch, and brings it to the files of this one; none if that branch works
    /// elsewhere or went on meanwhile.
    fn take_over(&self, request: &DirRequest<'_>, root: &Path, store: &Versions) -> Result<Option<Arc<BranchDir>>> {
        let Some((from, last_tree)) = request.takes_over_from else { return Ok(None) };
        let slot = self.state().by_branch.get(from).cloned();
        let mut held = slot.as_ref().map(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner));
        // While a call runs there, the directory is not taken over.
        let Some(_taking_over) = WorkLock::try_exclusive(store.objects()) else { return Ok(None) };
        if self.occupant_of(request.record).is_some_and(|occupant| occupant.branch != *from) {
            return Ok(None);
        }
        let dir = match held.as_ref().and_then(|held| (**held).clone()) {
            // The directory of a fork has the name of its branch, and stays with it.
            Some(dir) if !self.is_root(&dir) => return Ok(None),
            Some(dir) => {
                let head = dir.tracked().and_then(|tracked| tracked.head);
                if head.is_some_and(|head| request.record.find(head).is_none()) {
                    return Ok(None);
                }
                dir
            }
            None if self.is_vacated(*from, request) => {
                self.dir(root, self.workspace(root, store, request.secrets)?, store, request)?
            }
            None => return Ok(None),
        };
        dir.hide(request.secrets);
        // Checks all files before it changes one.
        if let Some(tree) = view::tree(request.record) {
            dir.update_to(&tree, last_tree.as_ref(), store)?;
        }
        // On failure above, the directory stays with its previous branch.
        held.iter_mut().for_each(|held| **held = None);
        self.state().root = Some(request.branch);
        write_occupant(root, store, request)?;
        Ok(Some(dir))
    }

    /// Returns the user's directory, if a merged branch is still to take it over.
    pub(crate) fn awaited_root(&self, request: &DirRequest<'_>) -> Option<&Path> {
        let root = self.sandbox.directory().filter(|root| root.is_dir())?;
        let takes_over = request.takes_over_from.is_some_and(|(from, _)| self.is_vacated(*from, request));
        (self.owner.is_none() && takes_over && self.own_path(root, request).is_none()).then_some(root)
    }

    /// Fails if a change in the user's directory keeps a merged branch from taking it over. Changes no file.
    pub(crate) fn check_take_over(&self, request: &DirRequest<'_>) -> Result<()> {
        let (Some(root), Some(tree)) = (self.awaited_root(request), view::tree(request.record)) else { return Ok(()) };
        // Where there are no versions, none are created.
        let Some(store) = self.has_versions()?.then(|| self.versions()).transpose()?.flatten() else { return Ok(()) };
        let workspace = self.workspace(root, store, request.secrets)?;
        let last_tree = request.takes_over_from.and_then(|(_, tree)| tree.as_ref());
        let mut tracked = TrackedDir::new(workspace, self.note(root, store, request));
        tracked.plan_update(&tree, last_tree, store).map(drop)
    }

    /// Returns true if the branch `from` was the last to work in the user's directory, and all its steps are on the record of
    /// the request.
    pub(super) fn is_vacated(&self, from: BranchId, request: &DirRequest<'_>) -> bool {
        let was_last = match self.occupant_of(request.record) {
            Some(occupant) => {
                occupant.branch == from && occupant.head.is_none_or(|at| request.record.find(at).is_some())
            }
            None => placed_branch(request.record) == Some(from),
        };
        was_last && self.state().root.is_none_or(|occupant| occupant == from)
    }

    /// Assigns the user's directory to a branch, if the branch may use it and no other does.
    pub(super) fn claims_root(&self, request: &DirRequest<'_>) -> bool {
        let root = self.root();
        let may_use = root.map_or_else(
            || placed_branch(request.record) == Some(request.branch),
            |root| self.may_use_root(root, request),
        );
        let mut state = self.state();
        if may_use && state.root.is_none_or(|occupant| occupant == request.branch) {
            state.root = Some(request.branch);
            drop(state);
            // If this fails, a later process reports that files differ.
            let _ = root.zip(self.versions.get()).map(|(root, store)| write_occupant(root, store, request));
            return true;
        }
        false
    }

    /// Returns true if a branch has a directory: that of a fork is made by its first tool, and a merge may still have to take one over.
    pub(crate) fn has_dir(&self, request: &DirRequest<'_>) -> bool {
        self.root().is_some_and(|root| self.own_path(root, request).is_some())
    }

    /// Returns the directory of a branch, if it has one.
    pub(super) fn own_path(&self, root: &Path, request: &DirRequest<'_>) -> Option<PathBuf> {
        let fork_path = self.fork_path(root, request.branch);
        match Workspace::is_fork(&fork_path) {
            true => Some(fork_path),
            false => self.may_use_root(root, request).then(|| root.to_owned()),
        }
    }

    /// Returns the directory that a branch works in, or will. Creates nothing.
    pub(crate) fn expected_path(&self, request: &DirRequest<'_>) -> Option<PathBuf> {
        let root = self.sandbox.directory()?;
        let fork_path = self.fork_path(root, request.branch);
        let takes_over = || request.takes_over_from.is_some_and(|(from, _)| self.is_vacated(*from, request));
        let is_root = !Workspace::is_fork(&fork_path) && (self.may_use_root(root, request) || takes_over());
        Some(if is_root { root.to_owned() } else { fork_path })
    }

    /// Returns the path of the directory that a fork gets.
    pub(super) fn fork_path(&self, root: &Path, branch: BranchId) -> PathBuf {
        root.join(RATH_DIR).join("work").join(branch.to_string())
    }

    /// Returns true if a branch is the one to work in the user's directory.
    pub(super) fn may_use_root(&self, root: &Path, request: &DirRequest<'_>) -> bool {
        if self.owner == Some(request.branch) {
            return true;
        }
        let occupant = read_occupant(root);
        let is_occupant = occupant.as_ref().is_some_and(|occupant| occupant.branch == request.branch);
        // A branch that descends from this one took over the directory.
        let was_taken_over = !is_occupant
            && occupant.is_some_and(|occupant| Some(occupant.first_branch) == first_branch(request.record));
        is_occupant || (placed_branch(request.record) == Some(request.branch) && !was_taken_over)
    }
}

/// Returns the branch that was placed last.
pub(in crate::session) fn placed_branch(record: &Record) -> Option<BranchId> {
    record.find_newest(|step| matches!(step.chunk(), Chunk::Placed(_)).then_some(step.stamp().branch))
}

/// Returns the branch that the session began with.
pub(super) fn first_branch(record: &Record) -> Option<BranchId> {
    record.steps().first().map(|step| step.stamp().branch)
}

fn write_occupant(root: &Path, store: &Versions, request: &DirRequest<'_>) -> Result<()> {
    let first_branch = first_branch(request.record).unwrap_or(request.branch);
    let occupant = Occupant { branch: request.branch, first_branch, head: request.record.head().map(Step::id) };
    occupant.write(root, store.objects())
}
