//! The link between a session and its directory, which is found on first use.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rath_record::BranchId;
use rath_record::chunk::Tree;

use super::Session;
use super::branch_dirs::{BranchDir, BranchDirs, DirRequest};
use super::merged_files::find_take_over;
use super::store_list::{StoreIdResult, StoreList, StoreUri};
use super::versions::Versions;
use super::write_turn::WriteTurn;
use crate::blocking::run_blocking;
use crate::error::ErrorKind;
use crate::sandbox::{RATH_DIR, Sandbox};
use crate::session::{Error, Result};
use crate::store::{Store, key_within_reach, path_within_reach};

/// The directory that a session works in, as far as it is known. A fork shares the directories and gets its own on first use.
#[derive(Clone, Default)]
pub(super) struct Placement {
    dirs: Arc<SessionDirs>,
    /// The session whose directory this one works in: a call's own session works where the call was made.
    pub(super) within: Option<Arc<Session>>,
    /// The turn that the calls take which are made to do the work of this session.
    pub(super) write_turn: Option<WriteTurn>,
    /// For a merged branch, the branch whose directory it may take over. Filled on first use if the session was opened
    /// from a store.
    takes_over_from: Arc<OnceLock<Option<TakeOver>>>,
}

/// The directories of a session and its forks.
#[derive(Clone, Default)]
struct SessionDirs {
    /// Filled on first use if the session was opened from a store.
    branch_dirs: OnceLock<Arc<BranchDirs>>,
    /// The directory in whose `.rath` the versions of files are that came with the session.
    files_in: Option<PathBuf>,
}

/// A branch, and the last known tree in its directory.
pub(super) type TakeOver = (BranchId, Option<Tree>);

impl Placement {
    /// Returns the placement of a session in a sandbox.
    pub(super) fn placed(sandbox: Sandbox) -> Self {
        Placement::in_dirs(BranchDirs::new(sandbox))
    }

    /// Returns the placement of a session in its directories.
    pub(super) fn in_dirs(branch_dirs: BranchDirs) -> Self {
        let branch_dirs = OnceLock::from(Arc::new(branch_dirs));
        Placement { dirs: Arc::new(SessionDirs { branch_dirs, files_in: None }), ..Placement::default() }
    }

    /// Returns the placement of a fork.
    pub(super) fn for_fork(&self) -> Self {
        Placement { dirs: self.dirs.clone(), ..Placement::default() }
    }

    /// Returns the placement of a session that has no place any more.
    pub(super) fn without_dirs(&self) -> Self {
        let dirs = SessionDirs { branch_dirs: OnceLock::new(), files_in: self.dirs.files_in.clone() };
        Placement { dirs: Arc::new(dirs), ..Placement::default() }
    }

    /// Returns the placement of a session whose versions of files came with it.
    pub(super) fn with_files_in(&self, directory: PathBuf) -> Self {
        let dirs = SessionDirs { files_in: Some(directory), ..(*self.dirs).clone() };
        Placement { dirs: Arc::new(dirs), ..self.clone() }
    }

    /// Returns the directory in whose `.rath` the versions of files are that came with the session.
    pub(super) fn files_in(&self) -> Option<&Path> {
        self.dirs.files_in.as_deref()
    }

    /// Returns the directories of the session's branches, if they are known.
    pub(super) fn branch_dirs(&self) -> Option<&Arc<BranchDirs>> {
        self.dirs.branch_dirs.get()
    }

    /// Returns the placement of a session that does the work of a call in `session`.
    pub(super) fn within(&self, session: &Session) -> Self {
        let (dirs, write_turn) = (self.dirs.clone(), self.write_turn.clone());
        Placement { dirs, within: Some(Arc::new(session.quiet())), write_turn, ..Placement::default() }
    }

    /// Returns the placement of a merged session.
    pub(super) fn merged(&self, ours: &Session, theirs: &Session) -> Self {
        let takes_over_from = ours.head().zip(theirs.head()).and_then(|(ours, theirs)| find_take_over(ours, theirs));
        Placement { takes_over_from: Arc::new(OnceLock::from(takes_over_from)), ..self.clone() }
    }
}

impl Session {
    /// Returns the directory of this branch. Blocks: the directory of a fork is created here.
    pub(crate) fn branch_dir(&self) -> Result<Arc<BranchDir>> {
        if let Some(session) = &self.live.place.within {
            return session.branch_dir();
        }
        let dir = self.with_dir_request(BranchDirs::dir_for)?;
        dir.hide(self.secrets());
        Ok(dir)
    }

    /// Runs `work` on the directories of the session's branches, with the request of this branch. Blocks.
    pub(super) fn with_dir_request<T>(
        &self,
        work: impl FnOnce(&BranchDirs, &DirRequest<'_>) -> Result<T>,
    ) -> Result<T> {
        self.require_own("use its files")?;
        let branch_dirs = self.branch_dirs()?;
        self.keep_store_out(branch_dirs.sandbox());
        if branch_dirs.assigned(self.branch.id).is_none() {
            self.refuse_store_in(branch_dirs.sandbox()).map_err(|error| error.with_session(self))?;
        }
        let request = self.dir_request();
        if let Some(replay) = self.replaying().filter(|_| branch_dirs.assigned(self.branch.id).is_none()) {
            replay.copy_files_for(self, request.takes_over_from.and_then(|(_, tree)| tree.clone()))?;
        }
        work(&branch_dirs, &request).map_err(|error| error.with_session(self))
    }

    pub(super) fn dir_request(&self) -> DirRequest<'_> {
        let (takes_over_from, secrets) = (self.takes_over_from(), self.secrets());
        DirRequest { branch: self.branch.id, record: &self.record, takes_over_from, secrets }
    }

    /// Returns the directory of this machine that the tools of this session work in. For a fork that is a directory of its own, which
    /// its first tool creates. None if the session has no such place.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let project = tempfile::tempdir().expect("a directory");
    /// let session = Session::user("Go.").to(Sandbox::local(project.path()));
    /// assert_eq!(session.working_directory().await.as_deref(), Some(project.path()));
    /// assert_ne!(session.fork().working_directory().await.as_deref(), Some(project.path()));
    /// # }
    /// ```
    pub async fn working_directory(&self) -> Option<PathBuf> {
        let session = self.quiet();
        let find = move || session.branch_dirs().map(|dirs| dirs.expected_path(&session.dir_request()));
        run_blocking(find).await.ok().flatten()
    }

    /// Returns true if the files of this session are in its directory. They are not before the first tool of a fork, and after a merge
    /// whose files could not be written: the next turn writes them.
    pub async fn has_working_directory(&self) -> bool {
        let session = self.quiet();
        let find = move || session.branch_dirs().map(|dirs| dirs.has_dir(&session.dir_request()));
        run_blocking(find).await.unwrap_or(false)
    }

    /// Lets the session work in the directory of another one, as the work of one of its calls.
    pub(crate) fn placed_within(mut self, outer: &Session) -> Self {
        self.live.place = outer.live.place.within(outer);
        self
    }

    /// Fails if tools could not use the session's directory: it is not there, its `.rath` is not this user's or holds links, or the
    /// store of the session is among the files that tools write.
    ///
    /// An agent with tools checks this before it asks the model.
    pub async fn check_directory(&self) -> Result<()> {
        let session = self.quiet();
        let check = move || match session.place() {
            None => Ok(()),
            Some(_) => {
                let branch_dirs = session.branch_dirs()?;
                branch_dirs.check_directory()?;
                session.refuse_store_in(branch_dirs.sandbox())
            }
        };
        run_blocking(check).await.map_err(|error: Error| error.with_session(self))
    }

    /// Fails if tools could not use the session's place: its kind is not known here, or [`check_directory`] fails.
    ///
    /// [`check_directory`]: Session::check_directory
    pub(crate) async fn require_place(&self) -> Result<()> {
        let is_in_use = self.live.place.within.is_some() || self.assigned_dir().is_some();
        if is_in_use || self.is_guest() || self.replaying().is_some() || self.place().is_none() {
            return Ok(());
        }
        self.check_directory().await
    }

    /// Hides the store of the session from commands, wherever it is.
    pub(super) fn keep_store_out(&self, sandbox: &Sandbox) {
        if let Some(store) = self.recorder().and_then(|recorder| recorder.store().path()) {
            sandbox.keep_out(store);
        }
        let others = self.live.kept_out.iter().chain(&self.live.memories);
        others.for_each(|path| sandbox.keep_out(path));
    }

    /// Hides the directory of a memory from commands. Tools cannot be used where they could write to it.
    pub(crate) fn keep_memory_out(&mut self, memory: &Path) {
        if !self.live.memories.iter().any(|known| known == memory) {
            self.live.memories.push(memory.to_owned());
        }
    }

    /// Fails if the store of the session, its memory, or the key of the user, is among the files that its tools write.
    fn refuse_store_in(&self, sandbox: &Sandbox) -> Result<()> {
        if let Some(key) = sandbox.directory().and_then(key_within_reach) {
            let message = format!("your key {} is in the directory that tools write", key.display());
            let hint = "with it, sessions of others could be taken for yours: work in another directory";
            return Err(Error::new(ErrorKind::Place, message).with_hint(hint));
        }
        let Some(root) = sandbox.directory() else { return Ok(()) };
        let store = self.recorder().and_then(|recorder| recorder.store().path()).map(|path| ("store", path));
        let memories = self.live.memories.iter().map(|path| ("memory", path.as_path()));
        let within_reach = store.into_iter().chain(memories).find(|(_, path)| path_within_reach(path, root).is_some());
        let Some((kind, path)) = within_reach else { return Ok(()) };
        let message = format!("the {kind} {} is in the directory that tools write", path.display());
        let hint = format!("put it in `{RATH_DIR}`, which tools cannot reach, or outside of the directory");
        Err(Error::new(ErrorKind::Place, message).with_hint(hint))
    }

    /// Returns the branch whose directory this one may take over, if there is one.
    pub(super) fn takes_over_from(&self) -> Option<&TakeOver> {
        self.live.place.takes_over_from.get_or_init(|| self.find_take_over()).as_ref()
    }

    /// Returns the directories that this branch has a part in: those of the session's branches, or those of its own sandbox. Opens the
    /// sandbox that the record names, if none is open.
    pub(crate) fn branch_dirs(&self) -> Result<Arc<BranchDirs>> {
        let dirs = self.session_dirs()?;
        Ok(dirs.fork_dirs(self.outermost().branch.id).unwrap_or(dirs))
    }

    /// Returns the directories that this branch has a part in, if they are open.
    pub(super) fn opened_dirs(&self) -> Option<Arc<BranchDirs>> {
        let dirs = self.live.place.branch_dirs()?.clone();
        Some(dirs.fork_dirs(self.outermost().branch.id).unwrap_or(dirs))
    }

    /// Returns the session whose directory this one works in.
    pub(super) fn outermost(&self) -> &Session {
        self.live.place.within.as_deref().map_or(self, Session::outermost)
    }

    /// Returns the directories of the session's branches, without those that have a sandbox of their own.
    pub(super) fn session_dirs(&self) -> Result<Arc<BranchDirs>> {
        if let Some(replay) = self.replaying() {
            return replay.branch_dirs().ok_or_else(|| Error::new(ErrorKind::Place, "nothing runs in a replay"));
        }
        if let Some(branch_dirs) = self.live.place.branch_dirs() {
            return Ok(branch_dirs.clone());
        }
        self.require_own("use its files")?;
        let place = self.place().ok_or_else(|| match self.forgotten_place() {
            None => {
                Error::new(ErrorKind::Place, "the session has no sandbox").with_hint("place it with `session.to(..)`")
            }
            Some(_) => {
                let message = "the session has no sandbox any more: a step of it was removed with `rath forget`";
                Error::new(ErrorKind::Place, message)
                    .with_hint("`rath resume --sandbox` gives it one, in a program `session.to(..)`")
            }
        })?;
        let sandbox = self.open_place(&place)?;
        Ok(self.live.place.dirs.branch_dirs.get_or_init(|| Arc::new(BranchDirs::new(sandbox))).clone())
    }

    /// Returns the newest tree on the record, or an error that says how to get one.
    pub(super) fn known_tree(&self) -> Result<Tree> {
        self.tree().ok_or_else(|| {
            let at = self.head().map(|step| format!(" at step {}", step.id().short())).unwrap_or_default();
            Error::new(ErrorKind::Place, format_args!("the session has no recorded files{at}"))
                .with_hint("files are recorded when an agent with tools runs in a sandbox")
                .with_session(self)
        })
    }

    /// Runs `work` on the session's directory in the blocking pool, then makes new versions durable.
    ///
    /// Work that looks at files uses [`with_files`](Session::with_files).
    pub(crate) async fn with_dir<T: Send + 'static>(
        &self,
        work: impl FnOnce(&BranchDirs, Arc<BranchDir>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.open_own_sandbox().await?;
        let may_take_over = self.assigned_dir().is_none() && self.takes_over_from().is_some();
        // In a box, as all work on files: agents that call agents would need a larger stack.
        match may_take_over {
            true => Box::pin(self.work_in_taken_dir(work)).await,
            false => Box::pin(self.work_in_dir(work)).await,
        }
    }

    /// Runs `work` on the session's directory in the blocking pool, then makes new versions durable. Of files elsewhere, there are
    /// current copies.
    pub(super) async fn work_in_dir<T: Send + 'static>(
        &self,
        work: impl FnOnce(&BranchDirs, Arc<BranchDir>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let session = self.quiet();
        let work = move || {
            let done = work(&*session.branch_dirs()?, session.branch_dir()?)?;
            session.sync_versions().map(|()| done)
        };
        run_blocking(work).await.map_err(|error| error.with_session(self))
    }

    /// Runs `work` on the stored versions of the session's files in the blocking pool.
    pub(super) async fn with_versions<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Session, &Versions) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let session = self.quiet();
        let work = move || work(&session, &session.versions()?);
        run_blocking(work).await.map_err(|error: Error| error.with_session(self))
    }

    /// Opens the sandbox of a fork that has one of its own, with its files, unless the branch has a directory.
    async fn open_own_sandbox(&self) -> Result<()> {
        match self.assigned_dir() {
            Some(_) => Ok(()),
            None => Box::pin(self.mirror()).await.map(drop),
        }
    }

    /// Returns the sandbox over the directory of this branch. The directory of a fork is created here.
    pub(crate) async fn branch_sandbox(&self) -> Result<Sandbox> {
        if let Some(dir) = self.assigned_dir() {
            return Ok(dir.sandbox().clone());
        }
        self.open_own_sandbox().await?;
        if self.takes_over_from().is_some() {
            return self.with_dir(|_, dir| Ok(dir.sandbox().clone())).await;
        }
        let session = self.quiet();
        run_blocking(move || session.branch_dir().map(|dir| dir.sandbox().clone())).await
    }

    /// Returns the directory of this branch if it has one already. Does not block.
    pub(super) fn assigned_dir(&self) -> Option<Arc<BranchDir>> {
        match &self.live.place.within {
            Some(session) => session.assigned_dir(),
            None if self.replaying().is_some() => None,
            None => self.opened_dirs()?.assigned(self.branch.id),
        }
    }

    /// Makes stored versions durable before a step that names them is recorded in a store.
    pub(super) fn sync_versions(&self) -> Result<()> {
        match (self.live.place.branch_dirs(), self.recorder()) {
            (Some(branch_dirs), Some(recorder)) => {
                if let Some(uri) = StoreUri::of(recorder.store()) {
                    branch_dirs.list_store(&uri, || Ok(recorder.store().make_id()?))?;
                }
                branch_dirs.sync()
            }
            _ => Ok(()),
        }
    }

    /// Lists the store that the session is about to be recorded in among those that name versions of its files.
    pub(super) async fn list_store(&self, store: &Store) -> Result<()> {
        let (session, store) = (self.quiet(), store.clone());
        let list = move || match StoreUri::of(&store) {
            Some(uri) => session.list_uri(&uri, || Ok(store.make_id()?)),
            None => Ok(()),
        };
        run_blocking(list).await.map_err(|error| error.with_session(self))
    }

    /// Lists a store at its present place, if the directory of the session has it at another one. Blocks.
    pub(super) fn list_moved(&self, store: &Store) -> Result<()> {
        // The place of a guest is not touched.
        let place = self.place().filter(|_| !self.is_guest());
        let root = place.and_then(|place| self.files_dir(&place));
        match root.zip(StoreUri::of(store)) {
            Some((root, uri)) => StoreList::add_if_moved(&root, &uri, || Ok(store.id()?)),
            None => Ok(()),
        }
    }

    /// Lists the file that the session is about to be saved in among those that name versions of its files. Blocks.
    pub(crate) fn list_file(&self, path: &Path) -> Result<()> {
        self.list_uri(&StoreUri::of_file(path), || Ok(StoreUri::file_id(&self.lineage())))
    }

    fn list_uri(&self, uri: &StoreUri, id: impl FnOnce() -> StoreIdResult) -> Result<()> {
        if let Some(branch_dirs) = self.live.place.branch_dirs() {
            return branch_dirs.list_store(uri, id);
        }
        // The place of a guest is not touched.
        let place = self.place().filter(|_| !self.is_guest());
        let root = place.and_then(|place| self.files_dir(&place));
        match root {
            Some(root) => StoreList::add_if_used(&root, uri, id),
            None => Ok(()),
        }
    }

    /// Runs [`sync_versions`](Session::sync_versions) in the blocking pool.
    pub(crate) async fn make_versions_durable(&self) -> Result<()> {
        if self.live.place.branch_dirs().is_none() {
            return Ok(());
        }
        let session = self.quiet();
        run_blocking(move || session.sync_versions()).await.map_err(|error| error.with_session(self))
    }

    /// Returns the directory of this branch, created in the blocking pool if need be.
    pub(crate) async fn prepare_dir(&self) -> Result<Arc<BranchDir>> {
        self.with_dir(|_, dir| Ok(dir)).await
    }
}
