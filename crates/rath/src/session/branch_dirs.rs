//! The directories that the branches of a session work in, one for each branch.
//!
//! The user's directory stays with the branch that was placed there. A fork gets a directory of its own when its first tool
//! runs. A merged branch takes over the user's directory from the branch that its sides forked from, unless that branch went on
//! meanwhile: so the work of a fan of forks ends up where it began. Two branches never work in one directory at the same
//! time.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rath_record::chunk::{Change, Chunk, Effect, Observed, Tree, UnkeptReason};
use rath_record::{BranchId, Record, Step, StepId, view};

use super::changed_paths::{ChangedPaths, LinkedFiles};
use super::ignored_files::{SharingSandbox, UnsharedPath};
use super::mirror::Mirror;
use super::occupant::{Occupant, read_occupant};
use super::put_back::{PutBackReport, Refusal, put_back};
use super::store_list::{ListedStore, StoreIdResult, StoreList, StoreUri};
use super::update_note::UpdateNote;
use super::versions::{self, Versions};
use super::work_lock::WorkLock;
use crate::blocking::drop_on_pool;
use crate::error::ErrorKind;
use crate::links::{Links, SeenRoot};
use crate::policy::ActivePolicy;
use crate::sandbox::{RATH_DIR, Root, Sandbox, private_paths_in};
use crate::secrets::Secrets;
use crate::session::{Error, Result};
use crate::store::rath_dir;
use crate::workspace::{Backups, ForkShare, Presence, Snapshot, Workspace};

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

/// The number of directories, one in the other, that are made listable after a call.
const MAX_UNLISTABLE_LEVELS: usize = 64;

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

/// The directory that a branch works in.
pub(crate) struct BranchDir {
    sandbox: Sandbox,
    tracked: Option<Mutex<TrackedDir>>,
    /// The mirror, if the tracked directory is one.
    mirror: Option<Arc<Mirror>>,
    /// The ignored paths of the user's directory that this one does not have.
    unshared: Vec<UnsharedPath>,
}

/// A directory whose versions are stored.
struct TrackedDir {
    workspace: Workspace,
    note: UpdateNote,
    /// The first snapshot that was taken before a call.
    first: Option<Snapshot>,
    /// The ignored paths that calls changed and that were left, except for calls that a person approved. A directory stands for
    /// all below it.
    left_ignored: HashSet<String>,
    /// The last snapshot.
    last: Option<Snapshot>,
    /// The backups of the files in the last snapshot that a policy guards, and the policy.
    backups: Option<(Arc<ActivePolicy>, Backups)>,
    /// The links in the last snapshot, for that policy.
    links: Arc<Links>,
    /// The newest step of the branch that works here.
    head: Option<StepId>,
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
        }
    }

    /// Gives all branches the directories that git ignores in `original`, in place of those in the sandbox.
    pub(crate) fn sharing(mut self, original: Option<PathBuf>) -> Self {
        self.original = original;
        self
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
        let store = Versions::open(&root.join(RATH_DIR).join("workspace"))?;
        store.objects().sweep_forks(&root.join(RATH_DIR).join("work"));
        if self.mirror.get().is_none() {
            self.sandbox.stage_in(&store.objects().temp_directory()?);
        }
        Ok(Some(self.versions.get_or_init(|| store)))
    }

    /// Fails if the directory `.rath` of the sandbox is not this user's, or holds links.
    pub(crate) fn check_rath_dir(&self) -> Result<()> {
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
        let (Some(root), Some(store)) = (current, self.versions()?) else {
            if self.claims_root(request) {
                let (sandbox, unshared) = (self.sandbox.clone(), Vec::new());
                return Ok(Arc::new(BranchDir { sandbox, tracked: None, mirror: None, unshared }));
            }
            return Err(self.cannot_fork());
        };
        let fork_path = self.fork_path(root, request.branch);
        if Workspace::is_fork(&fork_path) {
            return self.open(&fork_path, store, request, None);
        }
        if let Some(dir) = self.take_over(request, root, store)? {
            return Ok(dir);
        }
        if self.claims_root(request) {
            return self.open(root, store, request, None);
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
            None if self.is_vacated(*from, request) => self.open(root, store, request, last_tree.as_ref())?,
            None => return Ok(None),
        };
        dir.hide(request.secrets);
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
    /// `last_tree` is that of the branch that it was taken over from.
    fn open(
        &self,
        directory: &Path,
        store: &Versions,
        request: &DirRequest<'_>,
        last_tree: Option<&Tree>,
    ) -> Result<Arc<BranchDir>> {
        let mut workspace = self.workspace(directory, store, request.secrets)?;
        let recorded = view::tree(request.record);
        let recorded: Vec<_> = recorded.iter().chain(last_tree).collect();
        self.note(directory, store, request).complete(&mut workspace, &recorded)?;
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
        let name = directory.file_name().filter(|_| Some(directory) != self.root());
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
    pub(crate) fn changes_since_record(&self, request: &DirRequest<'_>) -> Result<Option<Observed>> {
        let Some(root) = self.root() else { return Ok(None) };
        Root::open(root)?;
        let unobserved = view::unobserved(request.record);
        let (since, calls) = unobserved.map_or((None, Vec::new()), |it| (it.since, it.calls));
        let Some(known) = since.or_else(|| view::tree(request.record)) else { return Ok(None) };
        if let Some(mirror) = self.mirror.get().filter(|mirror| !mirror.is_current()) {
            let reason = mirror.unseen_reason().unwrap_or_else(|| "they were not looked at".to_owned());
            return Err(Error::new(ErrorKind::Place, format_args!("its files cannot be seen: {reason}")));
        }
        let fork_path = self.fork_path(root, request.branch);
        let directory = match Workspace::is_fork(&fork_path) {
            true => Some(&*fork_path),
            false => self.may_use_root(root, request).then_some(root),
        };
        let Some(store) = self.versions()? else { return Ok(None) };
        let found = match directory {
            Some(directory) => {
                let mut workspace = self.workspace(directory, store, request.secrets)?;
                self.note(directory, store, request).complete(&mut workspace, &[&known])?;
                versions::tree(workspace.snapshot()?.tree)
            }
            // The directory of the branch will be made from the tree on the record.
            None => known.clone(),
        };
        if found == known {
            return Ok((!calls.is_empty()).then(|| Observed::new(found).with_calls(calls)));
        }
        let effects = store.diff(Some(&known), &found)?;
        Ok(Some(Observed::new(found).with_effects(effects).with_calls(calls)))
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

/// Closes the versions, which removes their temporary files, on the blocking pool.
impl Drop for BranchDirs {
    fn drop(&mut self) {
        drop_on_pool((self.versions.take(), self.mirror.take()));
    }
}

/// The result of looking at a directory after a call.
pub(crate) struct CallChanges {
    /// The files that were put back, and those that could not be.
    pub(crate) put_back: PutBackReport,
    /// The files now, and the changes since the directory was looked at last; none if its versions are not stored. An error does
    /// not keep files from being put back.
    pub(crate) changes: Result<Option<(Tree, Vec<Effect>)>>,
}

impl TrackedDir {
    fn new(workspace: Workspace, note: UpdateNote) -> Self {
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

    /// Returns the links of a snapshot with the names that they give to files.
    fn follow_links(&self, sandbox: &Sandbox, policy: &ActivePolicy, mut links: Vec<String>) -> Links {
        // Names through links are bounded in number: those that no call made come first.
        links.sort_by_cached_key(|link| !self.first.as_ref().is_some_and(|first| first.is_link(link)));
        let seen = (!links.is_empty()).then(|| SeenRoot::of(sandbox)).flatten();
        let links = links.iter().map(|link| versions::lossy_path(link));
        policy.guarded_links(&seen.map_or_else(Vec::new, |seen| seen.follow_links(links)))
    }

    /// Backs up the links of the last snapshot and the files that a policy guards, under any name through links.
    fn back_up(&mut self, sandbox: &Sandbox, policy: Option<&Arc<ActivePolicy>>) -> Result<()> {
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
    fn can_put_back(&self) -> bool {
        self.mirror.is_none()
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
    fn keep_tracked(&self, record: &Record) {
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

    /// Makes the files equal to a tree, and returns the tree that is there then with the changes since the last look.
    ///
    /// If the record does not get the tree, the next look undoes this. Call [`updated`](BranchDir::updated) once it has it.
    pub(crate) fn restore(&self, tree: &Tree) -> Result<(Tree, Vec<Effect>)> {
        if let Some(mut tracked) = self.tracked() {
            let TrackedDir { workspace, note, last, .. } = &mut *tracked;
            let before = match last {
                Some(last) => versions::tree(last.tree),
                None => versions::tree(workspace.snapshot()?.tree),
            };
            note.update(workspace, &before, tree, tree)?;
        }
        Ok(self.changes_since_last_look()?.unwrap_or_else(|| (tree.clone(), Vec::new())))
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

    /// Makes the files equal to a tree, merged with changes that were made outside the session meanwhile.
    fn update_to(&self, tree: &Tree, last_tree: Option<&Tree>, store: &Versions) -> Result<()> {
        let Some(mut tracked) = self.tracked() else { return Ok(()) };
        let found = versions::tree(tracked.workspace.snapshot()?.tree);
        let known = tracked.last.as_ref().map(|last| versions::tree(last.tree)).or_else(|| last_tree.cloned());
        let known = known.unwrap_or_else(|| tree.clone());
        let wanted = if found == *tree || found == known {
            tree.clone()
        } else {
            let (merged, conflicts) = store.merge(&known, tree, &found)?;
            if let [first, ..] = &conflicts[..] {
                let message =
                    format!("`{}` was changed in the directory meanwhile, and by the merge as well", first.path);
                return Err(Error::new(ErrorKind::Conflict, message).with_hint(
                    "move your change elsewhere and resume, or check the session out into another directory",
                ));
            }
            merged
        };
        if found != wanted {
            let TrackedDir { workspace, note, .. } = &mut *tracked;
            note.update(workspace, &known, tree, &wanted)?;
            note.remove();
        }
        tracked.last = Some(tracked.workspace.snapshot()?);
        Ok(())
    }

    fn tracked(&self) -> Option<MutexGuard<'_, TrackedDir>> {
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

fn hide_in_versions(workspace: &mut Workspace, secrets: &Secrets) {
    if secrets.has_values() {
        let secrets = secrets.clone();
        workspace.secret_finder(Arc::new(move |bytes: &[u8]| secrets.has_known_value(&String::from_utf8_lossy(bytes))));
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
