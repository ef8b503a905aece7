//! The directories that the branches of a session work in, one for each branch.
//!
//! The user's directory stays with the branch that was placed there. A fork gets a directory of its own when its first tool
//! runs. A merged branch takes over the user's directory from the branch that its sides forked from, unless that branch went on
//! meanwhile: so the work of a fan of forks ends up where it began. Two branches never work in one directory at the same
//! time.

mod branch_dir;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rath_record::chunk::{Chunk, Effect, Observed, Tree};
use rath_record::{BranchId, Record, Step, view};

pub(crate) use self::branch_dir::{BranchDir, CallChanges};
use self::branch_dir::{TrackedDir, hide_in_versions};
use super::ignored_files::{SharingSandbox, UnsharedPath};
use super::mirror::{Mirror, MirrorStart};
use super::occupant::{Occupant, read_occupant};
use super::store_list::{ListedStore, StoreIdResult, StoreList, StoreUri};
use super::update_note::UpdateNote;
use super::version_folders::{VERSIONS_DIR, missing_files};
use super::versions::{self, Versions};
use super::work_lock::WorkLock;
use crate::blocking::drop_on_pool;
use crate::error::ErrorKind;
use crate::policy::ActivePolicy;
use crate::sandbox::{ForkStart, RATH_DIR, Root, Sandbox, TempDir, private_paths_in};
use crate::secrets::Secrets;
use crate::session::{Error, Result};
use crate::store::rath_dir;
use crate::workspace::{ForkShare, Workspace};

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

    /// Returns the directories of a fork that has a sandbox of its own, if it was opened.
    pub(crate) fn fork_dirs(&self, branch: BranchId) -> Option<Arc<BranchDirs>> {
        self.forks.lock().unwrap_or_else(PoisonError::into_inner).get(&branch).cloned()
    }

    /// Opens the sandbox of a fork, if the branch works in none of the session's and one can be made for it. A new one is still to be
    /// [filled](Mirror::fill). Blocks.
    pub(crate) fn open_fork(&self, request: &DirRequest<'_>) -> Result<Option<(Arc<BranchDirs>, MirrorStart)>> {
        if let Some(dirs) = self.fork_dirs(request.branch) {
            return Ok(Some((dirs, MirrorStart::Files)));
        }
        let (Some(mirror), Some(root)) = (self.mirror.get(), self.root()) else { return Ok(None) };
        let path = self.fork_path(root, request.branch);
        let is_known = Mirror::is_complete_in(&path);
        if !is_known && (self.owner.is_some() || self.works_in_root(root, request)) {
            return Ok(None);
        }
        let start = if is_known { ForkStart::Existing } else { ForkStart::New };
        let Some(sandbox) = mirror.sandbox().for_fork(&request.branch.to_string(), start) else { return Ok(None) };
        let Some(store) = self.versions()? else { return Ok(None) };
        let recorded = view::tree(request.record).or_else(|| view::unobserved(request.record)?.since);
        let tree = recorded.or_else(|| self.state().first.clone());
        if !is_known {
            // What a killed process left was not complete.
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(cannot_store(&path, error)),
                _ => crate::store::make_folder(&path).map_err(|error| cannot_store(&path, error))?,
            }
            if let Some(tree) = &tree {
                let left_out = store.objects().checkout(versions::tree_id(tree)?, &path)?.left_out;
                if !left_out.is_empty() {
                    return Err(missing_files());
                }
            }
        }
        let mut dirs = BranchDirs::new(sandbox.clone());
        dirs.mirror = OnceLock::from(Arc::new(Mirror::of_fork(sandbox, path)));
        dirs.versions = OnceLock::from(Versions::from(store.objects().clone()));
        dirs.owner = Some(request.branch);
        let dirs = self
            .forks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(request.branch)
            .or_insert(Arc::new(dirs))
            .clone();
        Ok(Some((dirs, if tree.is_some() { MirrorStart::Files } else { MirrorStart::AsMade })))
    }

    /// Returns true if a branch works in the sandbox of the session, or is about to take it over.
    fn works_in_root(&self, root: &Path, request: &DirRequest<'_>) -> bool {
        if self.assigned(request.branch).is_some() {
            return true;
        }
        let occupant = self.state().root;
        if self.may_use_root(root, request) && occupant.is_none_or(|occupant| occupant == request.branch) {
            return true;
        }
        let Some((from, _)) = request.takes_over_from else { return false };
        if self.occupant_of(request.record).is_some_and(|occupant| occupant.branch != *from) {
            return false;
        }
        match self.assigned(*from) {
            Some(dir) => {
                let head = dir.tracked().and_then(|tracked| tracked.head);
                head.is_none_or(|head| request.record.find(head).is_some())
            }
            None => self.is_vacated(*from, request),
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
    fn occupant_of(&self, record: &Record) -> Option<Occupant> {
        let occupant = self.root().and_then(read_occupant);
        occupant.filter(|occupant| Some(occupant.first_branch) == first_branch(record))
    }

    /// Returns the directory of a branch if it has one already. Does not block.
    pub(crate) fn assigned(&self, branch: BranchId) -> Option<Arc<BranchDir>> {
        let slot = self.state().by_branch.get(&branch).cloned()?;
        // A lock that is held means that the directory is being created.
        slot.try_lock().ok()?.clone()
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
    fn first_tree(&self, origin: &mut Workspace) -> Result<Tree> {
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

    /// Returns true if the branch `from` was the last to work in the user's directory, and all its steps are on the record of
    /// the request.
    fn is_vacated(&self, from: BranchId, request: &DirRequest<'_>) -> bool {
        let was_last = match self.occupant_of(request.record) {
            Some(occupant) => {
                occupant.branch == from && occupant.head.is_none_or(|at| request.record.find(at).is_some())
            }
            None => placed_branch(request.record) == Some(from),
        };
        was_last && self.state().root.is_none_or(|occupant| occupant == from)
    }

    /// Assigns the user's directory to a branch, if the branch may use it and no other does.
    fn claims_root(&self, request: &DirRequest<'_>) -> bool {
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

    /// Opens a directory that exists, and completes an update of its files that was interrupted.
    fn open(&self, directory: &Path, store: &Versions, request: &DirRequest<'_>) -> Result<Arc<BranchDir>> {
        let mut workspace = self.workspace(directory, store, request.secrets)?;
        let recorded = view::tree(request.record);
        self.note(directory, store, request).complete(&mut workspace, recorded.as_ref().as_slice())?;
        self.dir(directory, workspace, store, request)
    }

    /// Opens the workspace of a directory, which keeps no version of a file that holds a secret.
    fn workspace(&self, directory: &Path, store: &Versions, secrets: &Secrets) -> Result<Workspace> {
        let index = self.index(directory, store);
        let root = self.root();
        let mut workspace = match Some(directory) == root {
            true => Workspace::open(directory, store.objects(), &index)?,
            false => Workspace::open_fork(directory, store.objects(), &index)?,
        };
        // In a fork too: what is created there under a private name would be merged into the directory.
        let mut left_out = root.map(private_paths_in).unwrap_or_default();
        if self.original_of(directory).is_some() {
            left_out.extend(self.share(directory)?.directories());
        }
        workspace.leave_out(&left_out)?;
        hide_in_versions(&mut workspace, secrets);
        Ok(workspace)
    }

    /// Returns the path of the snapshot index for a directory.
    fn index(&self, directory: &Path, store: &Versions) -> PathBuf {
        store.objects().folder().join("index").join(self.name(directory))
    }

    /// Returns the note about an update of a directory.
    fn note(&self, directory: &Path, store: &Versions, request: &DirRequest<'_>) -> UpdateNote {
        let session = first_branch(request.record).unwrap_or(request.branch);
        UpdateNote::new(store.objects(), &self.name(directory), session)
    }

    /// Returns the name of a directory among those of the session.
    fn name(&self, directory: &Path) -> String {
        // The directory of a fork has the name of its branch.
        let name = directory.file_name().filter(|_| Some(directory) != self.root() || self.owner.is_some());
        name.map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// Returns the directory whose ignored directories are shared with another one; none if that is the user's own.
    fn original_of(&self, directory: &Path) -> Option<&Path> {
        self.original.as_deref().or_else(|| self.sandbox.directory().filter(|root| *root != directory))
    }

    /// Returns the shared directories of a directory.
    fn share(&self, directory: &Path) -> Result<ForkShare> {
        let canonical = directory.canonicalize()?;
        Ok(match Some(directory) == self.sandbox.directory() {
            true => ForkShare::within(&canonical, &canonical.join(RATH_DIR).join("workspace").join("shared")),
            false => ForkShare::of(&canonical),
        })
    }

    /// Returns the sandbox over a directory together with its workspace.
    fn dir(
        &self,
        directory: &Path,
        mut workspace: Workspace,
        store: &Versions,
        request: &DirRequest<'_>,
    ) -> Result<Arc<BranchDir>> {
        let (sandbox, unshared) = match self.original_of(directory) {
            None => (self.sandbox.clone(), Vec::new()),
            Some(root) => {
                let share = self.share(directory)?;
                let over = SharingSandbox::over(&self.sandbox, root, share, workspace.objects())?;
                let SharingSandbox { sandbox, left_out, unshared } = over.ok_or_else(|| {
                    Error::new(ErrorKind::Place, format_args!("{} cannot be forked", self.sandbox.uri()))
                })?;
                workspace.leave_out_new(&left_out);
                (sandbox, unshared)
            }
        };
        let tracked = TrackedDir::new(workspace, self.note(directory, store, request));
        let mirror = self.mirror.get().cloned();
        Ok(Arc::new(BranchDir { sandbox, tracked: Some(Mutex::new(tracked)), mirror, unshared }))
    }

    /// Returns the state of the files of a branch, with the changes since the tree on the record. None if there are no changes
    /// and no call may have made some, or if no tree is known. Creates nothing.
    pub(crate) fn changes_since_record(
        &self,
        request: &DirRequest<'_>,
        listed: OutdatedFiles,
    ) -> Result<Option<Observed>> {
        let Some(root) = self.root() else { return Ok(None) };
        let has_versions = self.has_versions()?;
        let unobserved = view::unobserved(request.record);
        let (since, calls) = unobserved.map_or((None, Vec::new()), |it| (it.since, it.calls));
        let Some(known) = since.or_else(|| view::tree(request.record)) else { return Ok(None) };
        if let Some(mirror) = self.mirror.get().filter(|mirror| !mirror.is_current()) {
            let reason = mirror.unseen_reason().unwrap_or_else(|| "they were not looked at".to_owned());
            return Err(Error::new(ErrorKind::Place, format_args!("its files cannot be seen: {reason}")));
        }
        let directory = self.own_path(root, request);
        // A directory without versions may be another one than that of the session. Its tree tells.
        let mut temporary = None;
        let store = match has_versions {
            true => self.versions()?,
            false => Some(&temporary.insert(TemporaryVersions::create()?).versions),
        };
        let Some(store) = store else { return Ok(None) };
        let (found, outdated) = match directory {
            Some(directory) => {
                let mut workspace = self.workspace(&directory, store, request.secrets)?;
                self.note(&directory, store, request).complete(&mut workspace, &[&known])?;
                let snapshot = workspace.snapshot()?;
                (versions::tree(snapshot.tree), versions::outdated_effects(&snapshot))
            }
            // The directory of the branch will be made from the tree on the record.
            None if store.objects().has_tree(versions::tree_id(&known)?) => (known.clone(), Vec::new()),
            None => return Err(missing_files()),
        };
        let mut effects = if found == known { Vec::new() } else { store.diff(Some(&known), &found)? };
        effects.extend(outdated.into_iter().filter(|file| listed == OutdatedFiles::All || !is_recorded(request, file)));
        if found == known && effects.is_empty() && calls.is_empty() {
            return Ok(None);
        }
        Ok(Some(Observed::new(found).with_effects(effects).with_calls(calls)))
    }

    /// Returns true if a branch has a directory: that of a fork is made by its first tool, and a merge may still have to take one over.
    pub(crate) fn has_dir(&self, request: &DirRequest<'_>) -> bool {
        self.root().is_some_and(|root| self.own_path(root, request).is_some())
    }

    /// Returns the directory of a branch, if it has one.
    fn own_path(&self, root: &Path, request: &DirRequest<'_>) -> Option<PathBuf> {
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
    fn fork_path(&self, root: &Path, branch: BranchId) -> PathBuf {
        root.join(RATH_DIR).join("work").join(branch.to_string())
    }

    /// Returns true if a branch is the one to work in the user's directory.
    fn may_use_root(&self, root: &Path, request: &DirRequest<'_>) -> bool {
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

    fn state(&self) -> MutexGuard<'_, DirAssignments> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the step that records the files of a branch that has none on its record. Creates no directory for a fork.
    pub(crate) fn observe_first(
        &self,
        request: &DirRequest<'_>,
        policy: Option<&Arc<ActivePolicy>>,
    ) -> Result<Option<Observed>> {
        let versions = match self.versions() {
            // Tools that only read can work in such a directory. The others report the error.
            Err(error) if is_read_only(&error) => return Ok(None),
            versions => versions?,
        };
        let (Some(root), Some(store)) = (self.sandbox.directory(), versions) else { return Ok(None) };
        let has_dir = self.assigned(request.branch).is_some()
            || Workspace::is_fork(&self.fork_path(root, request.branch))
            || self.claims_root(request);
        if has_dir {
            return self.observe(&*self.dir_for(request)?, None, policy);
        }
        let mut origin = self.workspace(root, store, request.secrets)?;
        Ok(Some(Observed::new(self.first_tree(&mut origin)?)))
    }

    /// Takes a snapshot before a tool runs, and returns the step to record if the files are not as the record says.
    ///
    /// From here on, files that the policy guards can be put back.
    pub(crate) fn observe(
        &self,
        dir: &BranchDir,
        known: Option<&Tree>,
        policy: Option<&Arc<ActivePolicy>>,
    ) -> Result<Option<Observed>> {
        let Some(mut tracked) = dir.tracked() else { return Ok(None) };
        let policy = policy.filter(|_| dir.can_put_back());
        // From the first look of the session on, no call can hide its changes by ignoring files.
        if known.is_some() {
            tracked.workspace.keep_tracked();
        }
        let TrackedDir { workspace, note, .. } = &mut *tracked;
        note.complete(workspace, known.as_slice())?;
        let now = tracked.workspace.snapshot()?;
        tracked.workspace.keep_tracked();
        let tree = versions::tree(now.tree);
        self.state().first.get_or_insert_with(|| tree.clone());
        tracked.first.get_or_insert_with(|| now.clone());
        let last = tracked.last.replace(now.clone());
        tracked.back_up(&dir.sandbox, policy)?;
        let Some(known) = known else { return Ok(Some(Observed::new(tree))) };
        let effects = match last {
            Some(last) if versions::tree(last.tree) == *known => {
                versions::effects(tracked.workspace.changes(&last, &now)?)
            }
            _ if *known == tree => Vec::new(),
            _ => versions::effects(tracked.workspace.objects().diff(Some(versions::tree_id(known)?), now.tree)?),
        };
        // Untracked files may have changed although the tree is the same.
        if *known == tree && effects.is_empty() {
            return Ok(None);
        }
        Ok(Some(Observed::new(tree).with_effects(effects)))
    }
}

/// The files that are listed as changed because their present content is not kept, and cannot be compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutdatedFiles {
    /// Those of which the record does not say so yet.
    New,
    All,
}

/// Returns true if the newest step about a file says that its content is not kept.
fn is_recorded(request: &DirRequest<'_>, file: &Effect) -> bool {
    let newest = request.record.find_newest(|step| {
        let effect = step.chunk().effects().iter().find(|effect| effect.path == file.path)?;
        Some(effect.unkept == file.unkept)
    });
    newest.unwrap_or(false)
}

/// Versions of files that are removed when the value is dropped.
struct TemporaryVersions {
    versions: Versions,
    _folder: TempDir,
}

impl TemporaryVersions {
    fn create() -> Result<Self> {
        let folder = TempDir::create_blocking("versions")?;
        Ok(TemporaryVersions { versions: Versions::open(&folder.path().join(VERSIONS_DIR))?, _folder: folder })
    }
}

/// Closes the versions, which removes their temporary files, on the blocking pool.
impl Drop for BranchDirs {
    fn drop(&mut self) {
        drop_on_pool((self.versions.take(), self.mirror.take(), std::mem::take(&mut self.forks)));
    }
}

/// Returns the branch that was placed last.
pub(super) fn placed_branch(record: &Record) -> Option<BranchId> {
    record.find_newest(|step| matches!(step.chunk(), Chunk::Placed(_)).then_some(step.stamp().branch))
}

/// Returns the branch that the session began with.
fn first_branch(record: &Record) -> Option<BranchId> {
    record.steps().first().map(|step| step.stamp().branch)
}

fn write_occupant(root: &Path, store: &Versions, request: &DirRequest<'_>) -> Result<()> {
    let first_branch = first_branch(request.record).unwrap_or(request.branch);
    let occupant = Occupant { branch: request.branch, first_branch, head: request.record.head().map(Step::id) };
    occupant.write(root, store.objects())
}

/// Returns true if a directory cannot be written.
fn is_read_only(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    let kinds = [std::io::ErrorKind::PermissionDenied, std::io::ErrorKind::ReadOnlyFilesystem];
    source.is_some_and(|source| kinds.contains(&source.kind()))
}

fn cannot_store(root: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Place, format_args!("cannot store versions of `{}`", root.display())).because(error)
}

#[cfg(all(test, unix))]
mod tests;
