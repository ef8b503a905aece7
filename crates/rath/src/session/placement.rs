//! The link between a session and its directory: found on first use, observed around every call, merged with the session.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rath_record::chunk::{Chunk, Effect, Merged, Observed, Outcome, Strategy, Tree};
use rath_record::{BranchId, Record, Step, lineage, view};

use super::Session;
use super::branch_dirs::{BranchDir, BranchDirs, CallChanges, DirRequest, OutdatedFiles, placed_branch};
use super::changed_paths::ChangedPaths;
use super::mirror::is_unseen_note;
use super::put_back::PutBackReport;
use super::store_list::{StoreIdResult, StoreList, StoreUri};
use super::versions::{self, Versions};
use super::write_turn::WriteTurn;
use crate::blocking::run_blocking;
use crate::error::ErrorKind;
use crate::place::Place;
use crate::sandbox::{RATH_DIR, Sandbox};
use crate::session::{Error, Result};
use crate::store::{Store, key_within_reach, path_within_reach};

/// The directory that a session works in, as far as it is known. A fork shares the directories and gets its own on first use.
#[derive(Clone, Default)]
pub(super) struct Placement {
    dirs: Arc<SessionDirs>,
    /// The session whose directory this one works in: a call's own session works where the call was made.
    within: Option<Arc<Session>>,
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
type TakeOver = (BranchId, Option<Tree>);

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

/// The files of a session, compared with its record.
pub(super) enum SeenFiles {
    AsRecorded,
    Changed(Observed),
    /// They could not be looked at.
    Unseen,
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
    fn with_dir_request<T>(&self, work: impl FnOnce(&BranchDirs, &DirRequest<'_>) -> Result<T>) -> Result<T> {
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

    /// Returns the newest tree of the directory before the next call: that of this record, or of the one that this session works
    /// within.
    pub(crate) fn tree_before_call(&self) -> Option<Tree> {
        let known = self.tree().or_else(|| view::unobserved(&self.record)?.since);
        known.or_else(|| self.live.place.within.as_ref()?.tree_before_call())
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
    fn takes_over_from(&self) -> Option<&TakeOver> {
        self.live.place.takes_over_from.get_or_init(|| self.find_take_over()).as_ref()
    }

    /// Finds the branch whose directory this one may take over, if this one began with a merge and no tool has run in a directory
    /// since.
    fn find_take_over(&self) -> Option<TakeOver> {
        let mut without_files = HashSet::new();
        let merge = self.record.find_newest(|step| match step.chunk() {
            _ if step.stamp().branch != self.branch.id => Some(None),
            Chunk::Merged(merged) if merged.strategy != Strategy::Aside => Some(Some(step.clone())),
            // A call that got no directory failed, and its result has no tree.
            Chunk::ToolResult(result) if result.outcome == Outcome::Failed && result.tree.is_none() => {
                without_files.insert(result.call.clone());
                None
            }
            Chunk::ToolStarted(started) if !without_files.remove(&started.call) => Some(None),
            _ => None,
        });
        let merge = merge.flatten()?;
        let [ours, theirs] = merge.parents() else { return None };
        find_take_over(ours.step()?, theirs.step()?)
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

    /// Returns the part of a change that one of several parallel calls made: the tree with that part alone, and its effects.
    ///
    /// The given effects were collected whenever one of the calls ended, so they may name files that were temporary.
    pub(crate) async fn changes_of_call(
        &self,
        before: Tree,
        after: Tree,
        effects: Vec<Effect>,
    ) -> Result<(Tree, Vec<Effect>)> {
        self.with_versions(move |session, versions| {
            let tree = versions.with_changes(&before, &after, &effects)?;
            let changes = all_changes(versions, &before, &tree, &effects)?;
            session.sync_versions().map(|()| (tree, changes))
        })
        .await
    }

    /// Returns the changes from one tree to another, with the given effects on files that have no version.
    pub(crate) async fn changes_between(&self, before: Tree, after: Tree, effects: Vec<Effect>) -> Result<Vec<Effect>> {
        self.with_versions(move |_, versions| all_changes(versions, &before, &after, &effects)).await
    }

    /// Returns the changes that calls on this record made, if they were made in the directory of the session that this one works
    /// within.
    pub(crate) fn effects_in_this_directory(&self) -> Vec<Effect> {
        if self.live.place.within.is_none() {
            return Vec::new();
        }
        let steps = self.as_record().steps().into_iter();
        // Changes that were observed between calls are those of others: of another sub-agent, or of the user.
        let by_calls = steps.filter(|step| !matches!(step.chunk(), Chunk::Observed(_)));
        by_calls.flat_map(|step| step.chunk().effects()).cloned().collect()
    }

    /// Takes a snapshot before a tool may change files, and records changes that no call on this record is known to have made.
    pub(crate) async fn observe(&mut self) -> Result<()> {
        let seen = self.see_files().await?;
        self.record_seen(seen);
        Ok(())
    }

    /// Takes a snapshot, and returns the step to record, if the files are not as the record says.
    pub(super) async fn see_files(&self) -> Result<SeenFiles> {
        let unobserved = view::unobserved(&self.record);
        let (since, calls) = unobserved.map_or((None, Vec::new()), |it| (it.since, it.calls));
        let known = since.or_else(|| self.tree());
        let policy = self.policy().cloned();
        let observe = move |branch_dirs: &BranchDirs, dir: Arc<BranchDir>| {
            branch_dirs.observe(&dir, known.as_ref(), policy.as_ref())
        };
        Ok(match Box::pin(self.with_files(observe)).await? {
            Some(Some(observed)) => SeenFiles::Changed(observed.with_calls(calls)),
            Some(None) => SeenFiles::AsRecorded,
            None => SeenFiles::Unseen,
        })
    }

    pub(super) fn record_seen(&mut self, seen: SeenFiles) {
        match seen {
            SeenFiles::Changed(observed) => _ = self.push(observed),
            SeenFiles::AsRecorded => {}
            SeenFiles::Unseen => self.record_unseen(),
        }
    }

    /// Records the files that a session begins with, if its record has none: those of its directory, or those that the directory
    /// of a fork will be made from. A replay records what was recorded.
    pub(crate) async fn record_first_tree(&mut self) -> Result<()> {
        if self.place().is_none() || self.tree().is_some() || view::unobserved(&self.record).is_some() {
            return Ok(());
        }
        if let Some(replay) = self.replaying() {
            let recorded = replay.next_look(self);
            recorded.into_iter().for_each(|step| self.append_recorded(&step));
            return Ok(());
        }
        if self.live.place.within.is_some() || self.is_guest() {
            return Ok(());
        }
        if self.mirror().await?.is_some() {
            // If a sandbox elsewhere cannot be forked, the tools of a fork report the error.
            let is_own = self.opened_dirs().is_some_and(|dirs| dirs.is_of_fork());
            let is_fork = placed_branch(&self.record) != Some(self.branch.id);
            return if is_fork && !is_own { Ok(()) } else { self.observe().await };
        }
        let (session, policy) = (self.quiet(), self.policy().cloned());
        let observe = move || {
            let observed = session.with_dir_request(|dirs, request| dirs.observe_first(request, policy.as_ref()))?;
            session.sync_versions().map(|()| observed)
        };
        let observed = run_blocking(observe).await.map_err(|error| error.with_session(self))?;
        observed.into_iter().for_each(|observed| _ = self.push(observed));
        Ok(())
    }

    /// Looks at the files if calls were started whose end was not observed, and records the state that they are in.
    ///
    /// Called before such a call is closed. If the directory is not there, the record goes on to say that it was not
    /// observed.
    pub(crate) async fn look(&mut self) -> Result<()> {
        if view::unobserved(&self.record).is_none() {
            return Ok(());
        }
        let observed = self.find_unrecorded(OutdatedFiles::New).await?;
        observed.into_iter().for_each(|observed| _ = self.push(observed));
        Ok(())
    }

    /// Returns the state of the files, if it is not the one on the record and can be seen.
    pub(super) async fn find_unrecorded(&self, listed: OutdatedFiles) -> Result<Option<Observed>> {
        if self.place().is_none() || self.is_guest() || self.replaying().is_some() {
            return Ok(None);
        }
        let session = self.quiet();
        let look = move || {
            if session.branch_dirs()?.is_there() { session.changes_since_record(listed) } else { Ok(None) }
        };
        Box::pin(self.with_fetched_files(look)).await.map_err(|error| error.with_session(self))
    }

    /// Takes a snapshot after a tool may have changed files, and puts back those for which `refuse` returns a reason.
    pub(crate) async fn changes_except(
        &self,
        is_approved: bool,
        refuse: impl Fn(&Effect, &ChangedPaths<'_>) -> Option<String> + Send + 'static,
    ) -> Result<CallChanges> {
        let policy = self.policy().cloned();
        let look = move |_: &BranchDirs, dir: Arc<BranchDir>| dir.changes_except(policy.as_ref(), is_approved, refuse);
        let unseen = || CallChanges { put_back: PutBackReport::default(), changes: Ok(None) };
        Ok(Box::pin(self.with_files(look)).await?.unwrap_or_else(unseen))
    }

    /// Returns the state of the files, with the changes since the tree on the record. None if there are no changes and no call
    /// may have made some, or if nothing is known about the files. Blocks; creates and takes over nothing.
    ///
    /// The state is stored, and can be recorded.
    pub(crate) fn changes_since_record(&self, listed: OutdatedFiles) -> Result<Option<Observed>> {
        if let Some(session) = &self.live.place.within {
            return session.changes_since_record(listed);
        }
        let branch_dirs = self.branch_dirs()?;
        let (branch, record, secrets) = (self.branch.id, &self.record, self.secrets());
        let request = DirRequest { branch, record, takes_over_from: None, secrets };
        let observed = branch_dirs.changes_since_record(&request, listed)?;
        if observed.is_some() {
            branch_dirs.sync()?;
        }
        Ok(observed)
    }

    /// Returns the place of this session, if the other session has files in another place.
    pub(super) fn place_after_merge(&self, theirs: &Session) -> Option<Place> {
        let here = self.place()?;
        let differs = theirs.place().map(|there| there != here && theirs.tree().is_some());
        // Theirs is read after ours, and would void the place of ours.
        let voids = || theirs.as_record().newest_first().any(Step::voids_earlier_decisions);
        differs.unwrap_or_else(voids).then_some(here)
    }

    /// Merges the files of two sessions, and returns the step that records it.
    pub(super) async fn merge_files(&self, theirs: &Session, strategy: Strategy) -> Result<Merged> {
        let plain = Merged::from(strategy);
        let (Some(our_head), Some(their_head)) = (self.head(), theirs.head()) else { return Ok(plain) };
        if strategy == Strategy::Aside {
            return Ok(plain);
        }
        if let Some(replay) = self.replaying() {
            return Ok(replay.recorded_merge(our_head.id(), their_head.id(), strategy).unwrap_or(plain));
        }
        let Some(their_tree) = theirs.tree() else { return Ok(plain) };
        let base = lineage::merge_base(our_head, their_head).map(|step| Record::at(step.clone()));
        let base_tree = base.as_ref().and_then(view::tree);
        if base_tree.as_ref() == Some(&their_tree) {
            return Ok(plain.with_tree(self.tree()));
        }
        self.require_own("merge files into it")?;
        let theirs = theirs.quiet();
        self.with_versions(move |ours, versions| ours.merge_trees(versions, &theirs, base_tree, their_tree, plain))
            .await
    }

    /// Merges the trees of two sessions, and adds the result to the step that records it. Blocks.
    fn merge_trees(
        &self,
        versions: &Versions,
        theirs: &Session,
        base_tree: Option<Tree>,
        their_tree: Tree,
        plain: Merged,
    ) -> Result<Merged> {
        // The first tree of theirs is the base if the two never had a tree in common, as when they worked in different places.
        let their_first = || view::trees(theirs.as_record()).list.first().map(|first| first.tree.clone());
        if self.place() != theirs.place() {
            versions.take_from(&theirs.versions()?, &their_tree)?;
            their_first().iter().try_for_each(|tree| versions.take_from(&theirs.versions()?, tree))?;
        }
        let Some(our_tree) = self.tree() else {
            self.sync_versions()?;
            return Ok(plain.with_tree(their_tree));
        };
        let base = base_tree
            .filter(|_| self.place() == theirs.place())
            .or_else(their_first)
            .unwrap_or_else(|| our_tree.clone());
        let (tree, conflicts) = versions.merge(&base, &our_tree, &their_tree)?;
        let ours = versions.diff(Some(&our_tree), &tree)?;
        let mut effects = versions.diff(Some(&their_tree), &tree)?;
        effects.retain(|effect| ours.iter().any(|change| change.path == effect.path));
        self.sync_versions()?;
        Ok(plain.with_tree(tree).with_effects(effects).with_conflicts(conflicts))
    }
}

/// Returns the changes from one tree to another by path, with the given effects on files that have no version.
fn all_changes(versions: &Versions, before: &Tree, after: &Tree, effects: &[Effect]) -> Result<Vec<Effect>> {
    let mut changes = versions::untracked(effects);
    let tracked = versions.diff(Some(before), after)?;
    let is_new = |effect: &Effect| !changes.iter().any(|known| known.path == effect.path);
    let tracked: Vec<_> = tracked.into_iter().filter(is_new).collect();
    changes.extend(tracked);
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(changes)
}

/// Returns the branch whose directory a merged session may take over: the one that both sides forked from.
fn find_take_over(ours: &Step, theirs: &Step) -> Option<TakeOver> {
    let fork_point = fork_point(ours, theirs)?;
    let branch = fork_point.stamp().branch;
    let last = [ours, theirs].into_iter().find(|side| side.stamp().branch == branch).unwrap_or(&fork_point);
    let tree = view::tree(&Record::at(last.clone()));
    // If that branch never looked at its directory, the first fork of it that did found the files there.
    let first_tree = |side: &Step| view::trees(&Record::at(side.clone())).list.first().map(|first| first.tree.clone());
    Some((branch, tree.or_else(|| first_tree(ours)).or_else(|| first_tree(theirs))))
}

/// Returns the step where one side forked from the other, or both forked from a third branch.
fn fork_point(ours: &Step, theirs: &Step) -> Option<Step> {
    let split = lineage::diff(ours, theirs);
    let base = lineage::merge_base(ours, theirs)?;
    let is_fork = |step: &Step| matches!(step.chunk(), Chunk::Forked(_));
    // Forks made in different processes may begin with equal steps, which are then shared without being their parent's.
    let are_twins = [&split.ours, &split.theirs].iter().all(|side| side.first().is_some_and(|step| !is_fork(step)));
    if !are_twins {
        return Some(base.clone());
    }
    let mut passed_fork = false;
    Record::at(base.clone()).find_newest(|step| {
        let found = passed_fork.then(|| step.clone());
        passed_fork |= is_fork(step);
        found
    })
}

/// Returns true for chunks that record an observation of the workspace, or that it could not be observed.
pub(crate) fn is_of_workspace(chunk: &Chunk) -> bool {
    matches!(chunk, Chunk::Observed(_) | Chunk::Restored(_) | Chunk::Checked(_) | Chunk::Placed(_))
        || is_unseen_note(chunk)
}
