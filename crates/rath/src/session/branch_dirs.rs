//! The directories that the branches of a session work in, one for each branch.
//!
//! The user's directory stays with the branch that was placed there. A fork gets a directory of its own when its first tool
//! runs. A merged branch takes over the user's directory from the branch that its sides forked from, unless that branch went on
//! meanwhile: so the work of a fan of forks ends up where it began. Two branches never work in one directory at the same
//! time.

mod assignment;
mod branch_dir;
mod fork_sandbox;
mod looking;
mod opening;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rath_record::chunk::Tree;
use rath_record::{BranchId, Record};

pub(super) use self::assignment::placed_branch;
pub(crate) use self::branch_dir::{BranchDir, CallChanges};
pub(crate) use self::looking::OutdatedFiles;
use super::ignored_files::UnsharedPath;
use super::mirror::Mirror;
use super::store_list::{ListedStore, StoreIdResult, StoreList, StoreUri};
use super::version_folders::VERSIONS_DIR;
use super::versions::Versions;
use crate::blocking::drop_on_pool;
use crate::error::ErrorKind;
use crate::sandbox::{RATH_DIR, Root, Sandbox};
use crate::secrets::Secrets;
use crate::session::{Error, Result};
use crate::store::rath_dir;

/// The directories of all branches of a session. A session and its forks share one value.
pub(crate) struct BranchDirs {
    sandbox: Sandbox,
    /// The directory whose ignored directories all branches share, if it is not that of the sandbox.
    original: Option<PathBuf>,
    /// The copies of its files, if the sandbox is no directory of this machine.
    mirror: OnceLock<Arc<Mirror>>,
    versions: OnceLock<Versions>,
    /// Locked while the versions or the mirror are opened.
    opening: Mutex<()>,
    state: Mutex<DirAssignments>,
    /// The stores that are known to be on the list of the directory.
    listed_stores: Mutex<HashSet<ListedStore>>,
    /// The forks that have a sandbox of their own, because that of the session is no directory of this machine.
    forks: Mutex<HashMap<BranchId, Arc<BranchDirs>>>,
    /// The branch that the sandbox is for, if it is that of a fork.
    owner: Option<BranchId>,
}

/// The branches that have a directory.
#[derive(Default)]
struct DirAssignments {
    /// The directory of each branch that has run a tool.
    by_branch: HashMap<BranchId, DirSlot>,
    /// The branch that works in the user's directory.
    root: Option<BranchId>,
    /// The first tree that was seen in the user's directory: the files before any branch changed them.
    first: Option<Tree>,
}

/// The place for the directory of one branch. The first caller fills it while others wait for the lock.
type DirSlot = Arc<Mutex<Option<Arc<BranchDir>>>>;

/// A branch that needs a directory.
pub(crate) struct DirRequest<'a> {
    pub(crate) branch: BranchId,
    pub(crate) record: &'a Record,
    /// For a merged branch: the branch whose directory it may take over, and the last known tree there.
    pub(crate) takes_over_from: Option<&'a (BranchId, Option<Tree>)>,
    /// The values that no stored version may hold.
    pub(crate) secrets: &'a Secrets,
}

impl BranchDirs {
    /// Creates the directories of a session that was placed in `sandbox`.
    pub(crate) fn new(sandbox: Sandbox) -> Self {
        BranchDirs {
            sandbox,
            original: None,
            mirror: OnceLock::new(),
            versions: OnceLock::new(),
            opening: Mutex::default(),
            state: Mutex::default(),
            listed_stores: Mutex::default(),
            forks: Mutex::default(),
            owner: None,
        }
    }

    /// Gives all branches the directories that git ignores in `original`, in place of those in the sandbox.
    pub(crate) fn sharing(mut self, original: Option<PathBuf>) -> Self {
        self.original = original;
        self
    }

    /// Returns true if these are the directories of a fork that has a sandbox of its own.
    pub(crate) fn is_of_fork(&self) -> bool {
        self.owner.is_some()
    }

    /// Returns the sandbox that the session was placed in.
    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Opens the copies of the sandbox's files, which are in a folder of mirrors, or end with the session; none if the sandbox is a
    /// directory of this machine, or this machine keeps no versions. Blocks.
    pub(crate) fn open_mirror(&self, folder: Option<&Path>) -> Result<Option<Arc<Mirror>>> {
        if self.sandbox.directory().is_some() || !cfg!(unix) {
            return Ok(None);
        }
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.mirror.get().is_none() {
            let mirror = Arc::new(Mirror::open(&self.sandbox, folder)?);
            self.mirror.get_or_init(|| mirror);
        }
        Ok(self.mirror.get().cloned())
    }

    /// Returns the copies of the sandbox's files, if they are open.
    pub(crate) fn mirror(&self) -> Option<&Arc<Mirror>> {
        self.mirror.get()
    }

    /// Returns the directory that has the files of the sandbox, or copies of them; none if there is none on this machine.
    pub(crate) fn root(&self) -> Option<&Path> {
        self.sandbox.directory().or_else(|| Some(self.mirror.get()?.root()))
    }

    /// Returns true if the files are in a directory of this machine, or there are current copies of them.
    pub(crate) fn is_there(&self) -> bool {
        self.mirror.get().is_none_or(|mirror| mirror.is_current()) && self.root().is_some_and(Path::is_dir)
    }

    /// Returns the stored versions of the files; none if the sandbox is not a directory of this machine, and has no mirror.
    pub(crate) fn versions(&self) -> Result<Option<&Versions>> {
        let Some(root) = self.root() else { return Ok(None) };
        if let Some(store) = self.versions.get() {
            return Ok(Some(store));
        }
        // One thread opens them: a second opening would be dropped, with the temporary directory that the sandbox was told to use.
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = self.versions.get() {
            return Ok(Some(store));
        }
        // A directory that was moved or removed is not created again.
        Root::open(root)?;
        self.check_rath_dir()?;
        crate::store::make_folder(&root.join(RATH_DIR)).map_err(|error| cannot_store(root, error))?;
        let store = Versions::open(&root.join(RATH_DIR).join(VERSIONS_DIR))?;
        store.objects().sweep_forks(&root.join(RATH_DIR).join("work"));
        if self.mirror.get().is_none() {
            self.sandbox.stage_in(&store.objects().temp_directory()?);
        }
        Ok(Some(self.versions.get_or_init(|| store)))
    }

    /// Returns true if there are stored versions of the files. Creates nothing; fails if the directory is not there.
    pub(crate) fn has_versions(&self) -> Result<bool> {
        let Some(root) = self.root() else { return Ok(false) };
        Root::open(root)?;
        Ok(self.versions.get().is_some() || root.join(RATH_DIR).join(VERSIONS_DIR).is_dir())
    }

    /// Fails if the directory of the sandbox is not there, or its `.rath` is not this user's or holds links.
    pub(crate) fn check_directory(&self) -> Result<()> {
        self.sandbox.directory().map_or(Ok(()), |root| Root::open(root).map(drop))?;
        self.check_rath_dir()
    }

    /// Fails if the directory `.rath` of the sandbox is not this user's, or holds links.
    fn check_rath_dir(&self) -> Result<()> {
        let Some(root) = self.root() else { return Ok(()) };
        rath_dir::check(&root.join(RATH_DIR)).map_err(|error| cannot_store(root, error))
    }

    /// Adds a store to the list of those that may name versions of these files, if there are versions. Blocks.
    pub(crate) fn list_store(&self, uri: &StoreUri, id: impl FnOnce() -> StoreIdResult) -> Result<()> {
        let (Some(root), true) = (self.root(), self.versions.get().is_some()) else { return Ok(()) };
        let mut listed = self.listed_stores.lock().unwrap_or_else(PoisonError::into_inner);
        let store = ListedStore::new(uri.within(root), id()?);
        if !listed.contains(&store) {
            StoreList::of(root).add(&store).map_err(|error| cannot_store(root, error))?;
            listed.insert(store);
        }
        Ok(())
    }

    /// Returns the ignored paths that the directories so far do not have.
    pub(crate) fn unshared(&self) -> Vec<UnsharedPath> {
        let mut unshared: Vec<UnsharedPath> = Vec::new();
        for dir in self.state().by_branch.values().filter_map(|slot| slot.try_lock().ok()?.clone()) {
            let new = dir.unshared().into_iter().filter(|path| !unshared.contains(path)).collect::<Vec<_>>();
            unshared.extend(new);
        }
        unshared.sort_by(|one, other| one.path.cmp(&other.path));
        unshared
    }

    /// Makes all stored versions durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.versions.get().map_or(Ok(()), Versions::sync)
    }

    fn state(&self) -> MutexGuard<'_, DirAssignments> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the versions, which removes their temporary files, on the blocking pool.
impl Drop for BranchDirs {
    fn drop(&mut self) {
        drop_on_pool((self.versions.take(), self.mirror.take(), std::mem::take(&mut self.forks)));
    }
}

fn cannot_store(root: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Place, format_args!("cannot store versions of `{}`", root.display())).because(error)
}

#[cfg(all(test, unix))]
mod tests;
