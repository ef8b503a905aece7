//! Stores: places where sessions outlive their process.
//!
//! Programs hold a [`Store`]; authors of a store implement [`StoreBackend`]. A recorded session hands over every step when
//! the step is appended. Each store has one writer thread, which writes all steps that wait in one group and reports when
//! the group is durable. A tool starts when the step that announces it is durable, and a run ends when all of its steps are.
//!
//! Nothing here knows a session: reading and resuming sessions is in the session's own modules.

mod branch_writer;
mod deletion;
mod error;
mod holder;
mod jsonl;
#[cfg(unix)]
mod owner;
pub(crate) mod rath_dir;
mod registry;
#[cfg(feature = "sqlite")]
mod sqlite;
mod step_places;
mod store_id;
mod title;
mod user_key;
mod writer_thread;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rath_record::lineage::Lineage;
use rath_record::{BranchId, Digest, Parent, Payload, Step, StepId, StorageState, Timestamp, Totals};

use crate::blocking::run_blocking;
use crate::place::SandboxKinds;
use crate::secrets::Secrets;

pub use deletion::{Deletion, DeletionRefusal};
pub use error::{Result, StoreError, StoreErrorKind};
pub use holder::Holder;
pub use jsonl::Jsonl;
pub use rath_dir::{home_file_within_reach, path_within_reach};
pub use rath_record::codec::Signature;
pub use registry::{Create, Registry};
#[cfg(feature = "sqlite")]
pub use sqlite::Sqlite;
pub use step_places::StepPlaces;
pub use store_id::StoreId;
pub use user_key::UserKey;

pub(crate) use branch_writer::{BranchWriter, BranchWriterState};
pub(crate) use jsonl::has_session_files;
pub(crate) use step_places::{StepKey, key_of};
pub(crate) use title::{branch_title, first_message, has_message};
pub(crate) use user_key::{Signer, key_within_reach};
pub(crate) use writer_thread::WriterThread;

/// A place where sessions outlive their process.
///
/// Clones are handles on the same store, and every session that is recorded in it holds one. When the last handle is dropped,
/// the writer thread writes all that is queued and ends; [`close`](Store::close) waits for that.
///
/// ```
/// use rath::prelude::*;
///
/// # async fn example() -> Result<()> {
/// let store = Store::open("memory:").await?;
/// let mut session = Session::user("hello").record(&store).await?;
/// session.push(Chunk::assistant("hi"));
/// session.durable().await?;
/// assert_eq!(store.read(session.id()).await?.session.text(), Some("hi"));
/// drop(session);
/// store.close().await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
pub struct Store(Arc<StoreInner>, SessionDefaults);

/// The settings that a handle on a store gives to its sessions.
#[derive(Clone, Default)]
struct SessionDefaults {
    secrets: Secrets,
    sandboxes: SandboxKinds,
}

struct StoreInner {
    backend: Arc<dyn StoreBackend>,
    rows: Arc<StepPlaces>,
    signer: Arc<Signer>,
    /// The id that lists of stores have, once it is asked for.
    id: OnceLock<Option<StoreId>>,
    /// Dropped after the backend: the writer thread is the last to drop that, which may touch the disk.
    writer_thread: OpenWriter,
}

/// The writer thread of a store that is open. Dropping this tells the thread to end.
struct OpenWriter(Arc<WriterThread>);

/// The operations that the author of a store implements.
///
/// All calls block. Calls that write come from one thread of the store, one after the other; calls that read come from any
/// thread, at any time.
///
/// Implemented by [`Jsonl`] and, with the feature `sqlite`, by `Sqlite`.
pub trait StoreBackend: Send + Sync + 'static {
    /// Returns the URI that opens this store.
    fn uri(&self) -> &str;

    /// Returns a name of the store that no other store on this machine has, such as its canonical path; none if the store
    /// ends with the process. Part of every [`Signature`].
    fn location(&self) -> Option<String> {
        Some(self.uri().to_owned())
    }

    /// Returns the file or directory on this machine that holds the store, if there is one. Tools must not write it.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Returns the id of this store, by which it is told from a later one at the same place. A store that has none gets a durable one
    /// if `create` allows that.
    ///
    /// The default has none: then a store that was lost and made anew is taken for the earlier one.
    fn id(&self, create: Create) -> Result<Option<StoreId>> {
        let _ = create;
        Ok(None)
    }

    /// Appends a group of writes, all of them durable on return.
    ///
    /// Returns one answer for each write: a write to a branch that another writer holds, or whose head is not
    /// [`Write::after`], is refused, and the others are written. An error of the whole call means that the state of the disk
    /// is unknown: the store is not written to again.
    fn write(&self, group: &[Write], rows: &StepPlaces) -> Result<Vec<Result<()>>>;

    /// Takes the right to append to an existing branch, unless a holder that may be alive has it.
    ///
    /// Returns the epoch of the right, which is higher than all epochs of this branch before.
    fn claim(&self, branch: BranchId, holder: &Holder) -> Result<u64>;

    /// Releases rights to append, each given as a branch and an epoch.
    fn release(&self, rights: &[(BranchId, u64)]) -> Result<()>;

    /// Returns the time for which a holder counts as alive after its last renewal.
    fn lease(&self) -> Duration {
        holder::LEASE
    }

    /// Renews the lease of a holder.
    fn renew(&self, holder: &Holder) -> Result<()>;

    /// Does housekeeping. Called when nothing has been written for a while.
    fn idle(&self) -> Result<()> {
        Ok(())
    }

    /// Lists all branches, in the order in which they began. Branches that damage keeps out of the list are left out.
    fn list(&self) -> Result<Vec<BranchSummary>>;

    /// Returns the branches that damage keeps out of the list.
    fn unlisted(&self) -> Result<Vec<UnlistedBranch>> {
        Ok(Vec::new())
    }

    /// Returns the session files of this store that are in no list, because they were renamed, copied or moved. What they name is not
    /// deleted.
    ///
    /// The default returns none.
    fn unlisted_files(&self) -> Result<Vec<UnlistedFile>> {
        Ok(Vec::new())
    }

    /// Stores payloads again that were lost, and returns their number. Payloads that were erased on purpose stay erased.
    ///
    /// The default stores none.
    fn restore(&self, payloads: &[(Digest, Payload)]) -> Result<u64> {
        let _ = payloads;
        Ok(0)
    }

    /// Returns the entry of one branch in the list.
    fn summary(&self, branch: BranchId) -> Result<Option<BranchSummary>>;

    /// Reads a branch and checks all steps that it descends from. Steps may be loaded later, on access.
    fn read(&self, branch: BranchId, rows: &Arc<StepPlaces>) -> Result<StoredBranch>;

    /// Returns the newest step of every readable piece of a session, oldest first: one, unless damage splits the session.
    fn pieces(&self, branch: BranchId, rows: &Arc<StepPlaces>) -> Result<Vec<Step>> {
        Ok(self.read(branch, rows)?.head.into_iter().collect())
    }

    /// Calls a function with the JSON of every step that the branches of some sessions descend from, and the session. A step that
    /// several of these sessions share is passed with the first of them. Fails if one of the steps cannot be read.
    fn visit_json(
        &self,
        families: &[BranchId],
        rows: &Arc<StepPlaces>,
        visit: &mut dyn FnMut(BranchId, &str),
    ) -> Result<()> {
        let mut branches: HashMap<BranchId, Vec<BranchId>> = HashMap::new();
        for summary in self.list()? {
            branches.entry(summary.family).or_default().push(summary.branch);
        }
        let mut visited = HashSet::new();
        for family in families {
            let mut heads = Vec::new();
            for branch in branches.remove(family).unwrap_or_default() {
                let stored = self.read(branch, rows)?;
                if let Some(damage) = stored.damage.first() {
                    return Err(StoreError::new(StoreErrorKind::Damaged, damage));
                }
                heads.extend(stored.head);
            }
            let lineage = Lineage::new(heads);
            let new = lineage.walk().into_iter().filter(|step| visited.insert(step.id()));
            new.for_each(|step| visit(*family, &step.json()));
        }
        Ok(())
    }

    /// Checks the whole store.
    fn check(&self) -> Result<CheckReport>;

    /// Erases the content of a step, wherever this store has it: sessions that begin alike have the same steps. The step keeps its
    /// place in the record, and the record still verifies.
    ///
    /// Fails, and changes nothing, if another writer holds the branch. A step that was erased before is erased again.
    fn forget(&self, branch: BranchId, step: StepId) -> Result<ErasedStep>;

    /// Deletes sessions, each given by the branch that it began with, with all their branches.
    ///
    /// A session stays, and is part of the result, if a process writes it, or if another session that stays needs steps of it, as a
    /// merge of the two does. [`Deletion::plan`] decides that. Fails, and deletes nothing, if there is no such session.
    fn delete(&self, families: &[BranchId]) -> Result<Deletion>;

    /// Frees space that is no longer used.
    fn compact(&self) -> Result<FreedSpace>;

    /// Returns the result that [`delete`](StoreBackend::delete) and [`compact`](StoreBackend::compact) would have. Changes nothing.
    fn measure_delete(&self, families: &[BranchId]) -> Result<Deletion>;
}

/// Steps to be appended to a branch.
///
/// Passed to [`StoreBackend::write`].
pub struct Write {
    /// The session that the branch is part of: the branch that the session began with.
    pub family: BranchId,
    /// The branch.
    pub branch: BranchId,
    /// The right by which the steps are appended.
    pub right: WriteRight,
    /// The head that the branch must have. None for a branch without steps.
    pub after: Option<StepId>,
    /// The steps, parents before children. They may include steps of other branches that are not stored yet.
    pub steps: Vec<Step>,
    /// The title of the branch in lists, if it is to be set.
    pub title: Option<Arc<str>>,
    /// The JSON of the newest step, if it was encoded already.
    pub(crate) newest_json: Option<Vec<u8>>,
    /// Signs the steps; none for a guest.
    pub(crate) signer: Option<Arc<Signer>>,
    /// The steps before an adoption. They are those of others.
    pub(crate) unsigned: HashSet<StepId>,
}

impl Write {
    /// Returns the signature that the store keeps with a step that is, or may become, the newest of a branch; none for the steps of
    /// a guest, and for those before an adoption.
    pub fn signature(&self, branch: BranchId, head: &Step) -> Option<Signature> {
        let signer = self.signer.as_ref().filter(|_| !self.unsigned.contains(&head.id()))?;
        signer.sign(branch, head.id())
    }

    /// Returns true if the write stores this parent, perhaps again.
    pub(crate) fn includes(&self, link: &Parent) -> bool {
        self.steps.iter().any(|step| step.id() == link.id())
    }

    /// Returns the JSON of one of the steps, exactly as it is hashed and stored.
    pub fn json(&self, nth: usize) -> Cow<'_, [u8]> {
        if let Some(json) = self.newest_json.as_ref().filter(|_| nth + 1 == self.steps.len()) {
            return Cow::Borrowed(json);
        }
        match self.steps[nth].json() {
            Cow::Borrowed(json) => Cow::Borrowed(json.as_bytes()),
            Cow::Owned(json) => Cow::Owned(json.into_bytes()),
        }
    }
}

/// The right by which a branch is appended to.
///
/// Part of [`Write`].
#[derive(Clone, Debug)]
pub enum WriteRight {
    /// The branch is new, and this holder gets it.
    New(Arc<Holder>),
    /// The branch is held, with this epoch.
    Held(u64),
}

/// The epoch of the right of the holder that begins a branch.
pub const FIRST_EPOCH: u64 = 1;

/// A branch in a list.
///
/// Returned by [`Store::list`].
#[derive(Clone, Debug)]
pub struct BranchSummary {
    /// The branch.
    pub branch: BranchId,
    /// The session that the branch is part of: the branch that the session began with.
    pub family: BranchId,
    /// The newest step of the branch.
    pub head: StepId,
    /// The totals of the record up to that step.
    pub totals: Totals,
    /// The first message of the user, or the name of the branch.
    pub title: Arc<str>,
    /// The time at which the newest step was appended.
    pub at: Option<Timestamp>,
    /// True if no other branch continues from the newest step.
    pub is_tip: bool,
    /// The holder that writes the branch, or wrote it last and did not close it.
    pub holder: Option<Arc<Holder>>,
}

/// A branch that damage keeps out of the list.
///
/// Returned by [`Store::unlisted`].
#[derive(Clone, Debug)]
pub struct UnlistedBranch {
    /// The branch, if it is known. [`Store::pieces`] returns what can be read of it.
    pub branch: Option<BranchId>,
    /// The damage.
    pub damage: Damage,
}

/// A session file below the directory of a store that the store does not list.
///
/// Returned by [`Store::unlisted_files`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlistedFile {
    /// The path of the file, or of a directory that cannot be read.
    pub path: PathBuf,
    /// True if the file has a wrong name or is at a wrong place. False in a store below this one, which lists the file.
    pub is_misplaced: bool,
}

/// A branch as it was read.
///
/// Returned by [`StoreBackend::read`].
pub struct StoredBranch {
    /// The entry of the branch in the list.
    pub summary: BranchSummary,
    /// The newest step, if it is readable.
    pub head: Option<Step>,
    /// The signature that was stored with the newest step.
    pub signature: Option<Signature>,
    /// Damage to the steps that the branch descends from.
    pub damage: Vec<Damage>,
}

/// Damage at one place of a store.
///
/// Part of [`CheckReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The place, in the terms of the store.
    pub place: String,
    /// The step, if it is known.
    pub step: Option<StepId>,
    /// A description of the damage.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)?;
        if let Some(step) = self.step {
            write!(f, ", step {}", step.short())?;
        }
        write!(f, ": {}", self.what)
    }
}

/// The result of a check of a whole store.
///
/// Returned by [`Store::check`].
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The number of branches.
    pub branches: u64,
    /// The number of steps.
    pub steps: u64,
    /// All damage that was found.
    pub damage: Vec<Damage>,
}

/// The space that a compaction freed.
///
/// Returned by [`Store::compact`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreedSpace {
    /// The number of bytes. If a copy is kept until other processes are done, they are freed then.
    pub bytes: u64,
    /// The number of steps that no branch descended from.
    pub steps: u64,
    /// The extent to which what was freed is erased.
    pub erased: Erased,
}

/// The result of erasing a step.
///
/// Returned by [`StoreBackend::forget`].
#[derive(Debug, Default)]
pub struct ErasedStep {
    /// The extent to which the content is erased.
    pub erased: Erased,
    /// The sessions whose own copy of the step still has its content, each with the reason.
    pub refused: Vec<(BranchId, StoreError)>,
}

/// The extent to which removed content is erased from the files of a store.
///
/// Part of [`ErasedStep`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Erased {
    /// No copy is left.
    #[default]
    Completely,
    /// Another process has the store open, and a log of the store keeps a copy until no process does.
    WhenIdle,
}

impl Store {
    /// Opens the store that a URI names: `sqlite:PATH`, `jsonl:DIRECTORY` or `memory:`. For other kinds see [`Registry`].
    pub async fn open(uri: &str) -> Result<Self> {
        Registry::new().open(uri).await
    }

    /// Creates a store with this backend. Sessions are recognised by the key of the user who runs this process.
    pub fn new(backend: impl StoreBackend) -> Result<Self> {
        let signer = backend.location().map_or_else(Signer::in_memory, Signer::at);
        Store::start(Arc::new(backend), signer)
    }

    /// Creates a store with this backend that recognises sessions by this key. See [`UserKey`] for an example.
    pub fn signed_with(backend: impl StoreBackend, key: UserKey) -> Result<Self> {
        let signer = Signer::with_key(backend.location().unwrap_or_default(), key);
        Store::start(Arc::new(backend), signer)
    }

    fn start(backend: Arc<dyn StoreBackend>, signer: Signer) -> Result<Self> {
        let (rows, signer) = (Arc::new(StepPlaces::new()), Arc::new(signer));
        let writer_thread = OpenWriter(WriterThread::start(backend.clone(), rows.clone())?);
        Ok(Store(
            Arc::new(StoreInner { backend, rows, signer, id: OnceLock::new(), writer_thread }),
            SessionDefaults::default(),
        ))
    }

    /// Lets every session that is read or recorded by this handle hide these values, as [`Session::hiding`] does.
    ///
    /// A session that is resumed is compared with its files before the program has it. No version is kept of files that hold
    /// such a value.
    ///
    /// [`Session::hiding`]: crate::Session::hiding
    pub fn hiding(mut self, secrets: &Secrets) -> Self {
        self.1.secrets.add_all(secrets);
        self
    }

    /// Returns the values that sessions of this handle hide.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.1.secrets
    }

    /// Lets every session that is read or recorded by this handle open its place with these kinds of sandbox, as
    /// [`Session::sandboxes`] does.
    ///
    /// A session that is resumed is compared with its files before the program has it. Collections open the places of all sessions
    /// to find the directories that have versions of files, so opening a sandbox should do nothing before its first use.
    ///
    /// [`Session::sandboxes`]: crate::Session::sandboxes
    pub fn sandboxes(mut self, kinds: crate::sandbox::Registry) -> Self {
        self.1.sandboxes = SandboxKinds::new(kinds);
        self
    }

    /// Returns the kinds of sandbox that the places of sessions of this handle are opened with.
    pub(crate) fn sandbox_kinds(&self) -> &SandboxKinds {
        &self.1.sandboxes
    }

    /// Returns the URI that opens this store.
    pub fn uri(&self) -> &str {
        self.0.backend.uri()
    }

    /// Returns the file or directory on this machine that holds the store, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.0.backend.path()
    }

    /// Lists all branches, in the order in which they began. [`unlisted`](Store::unlisted) returns those that damage keeps out of
    /// the list.
    pub async fn list(&self) -> Result<Vec<BranchSummary>> {
        self.call(|store| store.backend.list()).await
    }

    /// Returns the branches that damage keeps out of the list.
    pub async fn unlisted(&self) -> Result<Vec<UnlistedBranch>> {
        self.call(|store| store.backend.unlisted()).await
    }

    /// Returns the session files below the directory of a `jsonl:` store that are in no list, because they were renamed, copied or
    /// moved. What they name is not deleted.
    pub async fn unlisted_files(&self) -> Result<Vec<UnlistedFile>> {
        self.call(|store| store.backend.unlisted_files()).await
    }

    /// Stores payloads of a session again that the store has lost, and returns their number. Payloads that were erased on purpose
    /// stay erased.
    pub async fn restore_payloads(&self, from: &Lineage) -> Result<u64> {
        let payloads = from.walk().into_iter().flat_map(|step| step.chunk().payloads()).collect::<Vec<_>>();
        self.0.writer_thread.0.call(move |backend| backend.restore(&payloads)).await
    }

    /// Finds a branch by its id, by a unique beginning or end of its id, or by a unique beginning of the id of its head.
    pub async fn find(&self, name: &str) -> Result<BranchId> {
        if let Ok(branch) = name.parse::<BranchId>() {
            return Ok(branch);
        }
        let name = name.to_lowercase();
        let matches = |summary: &&BranchSummary| {
            let branch = summary.branch.to_string();
            !name.is_empty()
                && (branch.starts_with(&name)
                    || branch.ends_with(&name)
                    || summary.branch.short().starts_with(&name)
                    || summary.head.to_string().starts_with(&name))
        };
        let list = self.list().await?;
        let candidates: Vec<_> = list.iter().filter(matches).collect();
        match &candidates[..] {
            [one] => Ok(one.branch),
            [] => {
                // A session whose entry is damaged can be salvaged.
                let ids = self.unlisted().await?.into_iter().filter_map(|unlisted| unlisted.branch);
                let is_named = |branch: &BranchId| {
                    let id = branch.to_string();
                    !name.is_empty()
                        && (id.starts_with(&name) || id.ends_with(&name) || branch.short().starts_with(&name))
                };
                match &ids.filter(is_named).collect::<Vec<_>>()[..] {
                    [one] => Ok(*one),
                    _ => Err(self.no_such_session(&name)),
                }
            }
            more => {
                let names = more.iter().take(5).map(|summary| summary.branch.short()).collect::<Vec<_>>().join(", ");
                let message = format!("`{name}` may mean any of {} sessions: {names}", more.len());
                Err(StoreError::new(StoreErrorKind::NoSuchSession, message).with_hint("give more of its id"))
            }
        }
    }

    /// Returns all readable pieces of a session. Where damage splits the session, that is more than [`Store::read`] returns.
    pub async fn pieces(&self, branch: BranchId) -> Result<Lineage> {
        Ok(Lineage::new(self.call(move |store| store.backend.pieces(branch, &store.rows)).await?))
    }

    /// Checks the whole store.
    pub async fn check(&self) -> Result<CheckReport> {
        self.call(|store| store.backend.check()).await
    }

    /// Erases the content of a step in this store.
    pub(crate) async fn erase_step(&self, branch: BranchId, step: StepId) -> Result<ErasedStep> {
        self.0.writer_thread.0.call(move |backend| backend.forget(branch, step)).await
    }

    /// Deletes a session with all its branches. Fails if a process writes it, or another session needs steps of it.
    pub async fn delete(&self, family: BranchId) -> Result<()> {
        self.delete_all(&[family]).await?.into_result()
    }

    /// Frees space that is no longer used.
    pub async fn compact(&self) -> Result<FreedSpace> {
        self.0.writer_thread.0.call(|backend| backend.compact()).await
    }

    /// Deletes sessions with all their branches. A session that cannot be deleted, because a process writes it or another session
    /// that stays needs steps of it, is part of the result.
    pub async fn delete_all(&self, families: &[BranchId]) -> Result<Deletion> {
        let families = families.to_vec();
        self.0.writer_thread.0.call(move |backend| backend.delete(&families)).await
    }

    /// Returns the result that [`delete_all`](Store::delete_all) and [`compact`](Store::compact) would have. Changes nothing.
    pub async fn measure_delete(&self, families: &[BranchId]) -> Result<Deletion> {
        let families = families.to_vec();
        self.call(move |store| store.backend.measure_delete(&families)).await
    }

    /// Lists all branches, except those of sessions that count as gone. Fails if damage keeps some out of the list. Blocks.
    pub(crate) fn list_whole(&self, gone: &HashSet<BranchId>) -> Result<Vec<BranchSummary>> {
        let is_gone = |unlisted: &UnlistedBranch| unlisted.branch.is_some_and(|branch| gone.contains(&branch));
        if let Some(unlisted) = self.0.backend.unlisted()?.iter().find(|unlisted| !is_gone(unlisted)) {
            return Err(StoreError::new(StoreErrorKind::Damaged, &unlisted.damage));
        }
        let list = self.0.backend.list()?;
        Ok(list.into_iter().filter(|summary| !gone.contains(&summary.family)).collect())
    }

    /// Returns the session files that are in no list. Blocks.
    pub(crate) fn find_unlisted_files(&self) -> Result<Vec<UnlistedFile>> {
        self.0.backend.unlisted_files()
    }

    /// Calls a function with the JSON of every step of some sessions, and the session. Blocks.
    pub(crate) fn visit_json(&self, families: &[BranchId], mut visit: impl FnMut(BranchId, &str)) -> Result<()> {
        self.0.backend.visit_json(families, &self.0.rows, &mut visit)
    }

    /// Returns the id of the store, if it has one. Blocks.
    pub(crate) fn id(&self) -> Result<Option<StoreId>> {
        self.0.backend.id(Create::Never)
    }

    /// Returns the id of the store, which gets a durable one if it has none. Blocks when it is called first.
    pub(crate) fn make_id(&self) -> Result<Option<StoreId>> {
        if let Some(known) = self.0.id.get() {
            return Ok(known.clone());
        }
        let id = self.0.backend.id(Create::IfMissing)?;
        Ok(self.0.id.get_or_init(|| id).clone())
    }

    /// Returns true if the store outlives the process.
    pub(crate) fn is_lasting(&self) -> bool {
        self.0.backend.location().is_some()
    }

    /// Gives up this handle, and completes when all that was queued is durable.
    ///
    /// With the last handle the store is closed: the call completes when all rights to append are released and the writer
    /// thread has ended. Sessions that are recorded in the store hold it open, so drop them first. Fails if the store could not
    /// be written.
    pub async fn close(self) -> Result<()> {
        let writer_thread = self.writer_thread().clone();
        drop(self);
        writer_thread.drained().await
    }

    /// Reads from the backend in the blocking pool.
    async fn call<T: Send + 'static>(&self, call: impl FnOnce(&StoreInner) -> Result<T> + Send + 'static) -> Result<T> {
        let store = self.0.clone();
        run_blocking(move || call(&store)).await
    }

    pub(crate) fn rows(&self) -> &StepPlaces {
        &self.0.rows
    }

    /// Reads the key that signs the steps. Blocks.
    fn load_key(&self) {
        let _ = self.0.signer.load_key();
    }

    /// Returns the signer of the steps in this store.
    pub(crate) fn signer(&self) -> &Arc<Signer> {
        &self.0.signer
    }

    pub(crate) fn writer_thread(&self) -> &Arc<WriterThread> {
        &self.0.writer_thread.0
    }

    /// Reads a branch and checks all steps that it descends from. Blocks.
    pub(crate) fn read_branch(&self, branch: BranchId) -> Result<StoredBranch> {
        self.0.backend.read(branch, &self.0.rows)
    }

    /// Returns true if this user recorded a branch here. Blocks.
    pub(crate) fn is_own(&self, stored: &StoredBranch) -> bool {
        let BranchSummary { branch, head, .. } = stored.summary;
        self.0.signer.is_own(branch, head, stored.signature)
    }

    fn no_such_session(&self, name: &str) -> StoreError {
        StoreError::new(StoreErrorKind::NoSuchSession, format_args!("no session `{name}` in {}", self.uri()))
            .with_hint("`rath ls` lists them")
    }
}

impl Drop for OpenWriter {
    /// Tells the writer thread to end when its queue is empty. Does not wait for it.
    fn drop(&mut self) {
        self.0.finish_and_end();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.uri()).finish()
    }
}

/// Returns the first parent in a write that is not in the store because its own write was refused.
fn missing_parent(write: &Write, rows: &StepPlaces) -> Option<StepId> {
    let own: HashSet<StepKey> =
        if write.steps.len() > 1 { write.steps.iter().map(key_of).collect() } else { HashSet::new() };
    let missing = write.steps.iter().flat_map(Step::parents);
    let missing = missing.filter(|link| !matches!(rows.lookup(link), StorageState::At(_)));
    // A parent that cannot be loaded was lost before this write.
    missing.filter_map(Parent::step).find(|parent| !own.contains(&key_of(parent))).map(Step::id)
}

/// Creates a directory and its ancestors. A directory called `.rath` is kept out of version control.
pub(crate) fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    // Sessions are private to the user.
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let missing: Vec<&Path> = folder.ancestors().take_while(|above| !is_there(above)).collect();
    for folder in missing.into_iter().rev() {
        match builder.create(folder) {
            // Another process has created it.
            Err(_) if folder.is_dir() => {}
            created => created?,
        }
        if folder.file_name().is_some_and(|name| name == crate::sandbox::RATH_DIR) {
            std::fs::write(folder.join(".gitignore"), "*\n")?;
        }
        // A directory is durable if those above it are.
        sync_parent(folder)?;
    }
    Ok(())
}

fn is_there(folder: &Path) -> bool {
    folder.as_os_str().is_empty() || folder.exists()
}

/// Makes the name of a file or directory durable, by syncing the directory that holds it.
fn sync_parent(path: &Path) -> std::io::Result<()> {
    sync_folder(path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

/// Makes the names in a directory durable. Windows does this without a call, and has none for it.
pub(crate) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    if cfg!(unix) { std::fs::File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Creates the error for a failed operation on a store.
fn failed(uri: &str, action: &str, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::new(StoreErrorKind::Store, format_args!("cannot {action} {uri}")).because(error)
}

/// Returns the advice for a store that can be read and not written, from the error of a write.
pub(crate) fn unwritable_hint(error: std::io::ErrorKind) -> Option<&'static str> {
    use std::io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match error {
        StorageFull | QuotaExceeded => Some("free some space; the store can be read meanwhile"),
        PermissionDenied | ReadOnlyFilesystem => {
            Some("the store can be read; `rath export` and `rath import` copy a session to another store")
        }
        _ => None,
    }
}

/// Returns a text as a word that a shell reads back.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    match text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The advice for a store that is not there.
const NO_STORE_HINT: &str = "`rath run 'What is in this directory?'` makes one; `--store` names another";

/// Creates the error for a step whose parent is not in the store.
pub(crate) fn parent_not_stored(step: StepId) -> StoreError {
    StoreError::new(StoreErrorKind::Store, format_args!("its parent is not in the store: step {}", step.short()))
}

/// Creates the error for a write to a branch whose head is another one.
pub(crate) fn branch_moved(branch: BranchId) -> StoreError {
    let message = format!("another writer has continued the session {}", branch.short());
    StoreError::new(StoreErrorKind::Conflict, message)
        .with_hint("continue on a branch of your own with `session.fork()`, or open the session again")
}

/// Creates the error for a write by a right that another holder has taken.
pub(crate) fn right_lost(branch: BranchId, holder: Option<&Holder>) -> StoreError {
    let who = holder.map_or_else(|| "another writer".to_owned(), Holder::to_string);
    let message = format!("the right to write the session {} was lost to {who}", branch.short());
    StoreError::new(StoreErrorKind::Conflict, message)
        .with_hint("continue on a branch of your own with `session.fork()`")
}

/// Creates the error for a claim of a branch that a live holder writes.
fn branch_held(branch: BranchId, holder: &dyn fmt::Display) -> StoreError {
    let message = format!("the session {} is being written by {holder}", branch.short());
    StoreError::new(StoreErrorKind::Conflict, message)
        .with_hint("wait until it is done, or continue on a branch of your own with `Store::fork`")
}
