//! Where sessions outlive their process.
//!
//! A [`Store`] is what people hold, a [`StoreBackend`] what authors write. A session that is recorded hands every step over
//! as it is appended; one thread a store writes them, all that wait at once in one go, and says when they are durable. A
//! tool starts when the step that says so is durable, and a run ends when all of its steps are.

mod certificate;
mod desk;
mod holder;
mod jsonl;
mod recorder;
mod registry;
mod sqlite;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rath_record::lineage::Lineage;
use rath_record::{BranchId, Parent, Record, Step, StepId, StorageState, Text, Timestamp, Totals};

pub use certificate::{Certificate, Difference, Resumed};
pub use holder::Holder;
pub use jsonl::Jsonl;
pub use registry::{Create, Registry};
pub use sqlite::Sqlite;

pub(crate) use recorder::Recorder;

use crate::error::ErrorKind;
use crate::session::Session;
use crate::session::{Error, Result};
use desk::Desk;

/// Where sessions outlive their process.
///
/// ```
/// use rath::prelude::*;
///
/// # async fn example() -> Result<()> {
/// let store = Store::open("memory:")?;
/// let mut session = Session::user("hello").record(&store).await?;
/// session.push(Chunk::assistant("hi"));
/// session.durable().await?;
/// assert_eq!(store.read(session.id())?.session.text(), Some("hi"));
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    backend: Arc<dyn StoreBackend>,
    rows: Arc<Rows>,
    desk: Arc<Desk>,
}

/// What the author of a store writes.
///
/// Calls block. Those that write are made by one thread of the store's, one after the other; those that read come from
/// anywhere, at any time.
pub trait StoreBackend: Send + Sync + 'static {
    /// The URI that opens it again.
    fn uri(&self) -> &str;

    /// Appends, all of it durable when it returns. An answer for each: a branch that is held by somebody else, or is not
    /// where the writer thinks it is, is refused and the others are written. An error says that nothing can be relied on:
    /// the store is not written to again.
    fn write(&self, group: &[Write], rows: &Rows) -> Result<Vec<Result<()>>>;

    /// Takes the right to append to a branch that is there, unless somebody holds it who may be alive. Gives the number
    /// of this right, which is higher than every one before, and that of nobody after.
    fn claim(&self, branch: BranchId, holder: &Holder) -> Result<u64>;

    /// Gives back rights to append: the branches are closed.
    fn release(&self, rights: &[(BranchId, u64)]) -> Result<()>;

    /// How long a holder counts as alive after it was heard of last.
    fn lease(&self) -> Duration {
        holder::LEASE
    }

    /// Says that a holder is alive.
    fn renew(&self, holder: &Holder) -> Result<()>;

    /// Nothing is to be written for now: there is time to tidy up.
    fn rest(&self) -> Result<()> {
        Ok(())
    }

    /// Every branch, in the order in which they began.
    fn list(&self) -> Result<Vec<Listed>>;

    /// One of them.
    fn listed(&self, branch: BranchId) -> Result<Option<Listed>>;

    /// Reads a branch back, and checks everything that it rests on. Steps may be left on the shelf.
    fn read(&self, branch: BranchId, rows: &Arc<Rows>) -> Result<Read>;

    /// The newest step of every piece of a session that can be read, oldest first: one, unless damage parts it.
    fn pieces(&self, branch: BranchId, rows: &Arc<Rows>) -> Result<Vec<Step>> {
        Ok(self.read(branch, rows)?.head.into_iter().collect())
    }

    /// Checks all there is.
    fn check(&self) -> Result<Check>;

    /// Removes what a step says, for good. Its place in the record stays, and still checks.
    fn forget(&self, branch: BranchId, step: StepId) -> Result<()>;

    /// Removes a session and all its branches, unless others rest on them.
    fn delete(&self, family: BranchId) -> Result<()>;

    /// Gives back room that nothing needs.
    fn compact(&self) -> Result<Freed>;
}

/// Steps to be appended to a branch.
pub struct Write {
    /// The session that the branch is part of: the branch that it began with.
    pub family: BranchId,
    /// The branch.
    pub branch: BranchId,
    /// By which right.
    pub right: Right,
    /// Where the branch has to be: its head. None for one that has no step yet.
    pub after: Option<StepId>,
    /// The steps, parents before children. They may be of other branches, too, which nobody stored before.
    pub steps: Vec<Step>,
    /// What people read in a list, if it is to be set.
    pub title: Option<Arc<str>>,
    /// The JSON of the newest step, where it is at hand.
    said: Option<Vec<u8>>,
}

impl Write {
    /// The JSON of one of the steps, exactly as it is hashed and stored.
    pub fn json(&self, nth: usize) -> Cow<'_, [u8]> {
        if let Some(said) = self.said.as_ref().filter(|_| nth + 1 == self.steps.len()) {
            return Cow::Borrowed(said);
        }
        match self.steps[nth].json() {
            Cow::Borrowed(json) => Cow::Borrowed(json.as_bytes()),
            Cow::Owned(json) => Cow::Owned(json.into_bytes()),
        }
    }
}

/// By which right a branch is appended to.
#[derive(Clone, Debug)]
pub enum Right {
    /// It is new, and whoever begins it holds it.
    New(Arc<Holder>),
    /// It is held, by the right of this number.
    Held(u64),
}

/// The number of the right of whoever begins a branch.
pub const FIRST: u64 = 1;

/// A branch in a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The branch.
    pub branch: BranchId,
    /// The session that it is part of: the branch that it began with.
    pub family: BranchId,
    /// Its newest step.
    pub head: StepId,
    /// What is known of it from that step alone.
    pub totals: Totals,
    /// What it is about: the user's first words, or its name.
    pub title: Arc<str>,
    /// When its newest step was appended.
    pub at: Option<Timestamp>,
    /// Whether no other branch goes on from where it ends.
    pub is_tip: bool,
    /// Who writes it, or wrote it last and did not close it.
    pub holder: Option<Arc<Holder>>,
}

/// A branch as it was read back.
pub struct Read {
    /// What the list says of it.
    pub listed: Listed,
    /// Its newest step, if that can be read.
    pub head: Option<Step>,
    /// What is wrong with what it rests on.
    pub damage: Vec<Damage>,
}

/// One thing that is wrong in a store, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where, in the words of the store.
    pub place: String,
    /// The step, where it is known.
    pub step: Option<StepId>,
    /// What is wrong.
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

/// What a check of a whole store found.
#[derive(Clone, Debug, Default)]
pub struct Check {
    /// How many branches there are.
    pub branches: u64,
    /// How many steps.
    pub steps: u64,
    /// What is wrong.
    pub damage: Vec<Damage>,
}

/// What was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// How many bytes the store takes less.
    pub bytes: u64,
    /// How many steps are gone that no branch rested on.
    pub steps: u64,
}

/// A session as it stands in a store, for reading.
#[derive(Debug)]
pub struct Found {
    /// The session. What is appended to it is not recorded.
    pub session: Session,
    /// What the list says of it.
    pub listed: Listed,
    /// What is wrong with what it rests on.
    pub damage: Vec<Damage>,
}

/// Where a store keeps which step.
///
/// It is written down in the steps themselves; for a step that another store had first, here.
pub struct Rows {
    token: u64,
    others: Mutex<HashMap<StepId, StorageState>>,
    /// Whether there is any of them: nearly always there is none.
    any: AtomicBool,
}

impl Rows {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Rows { token: NEXT.fetch_add(1, Ordering::Relaxed), others: Mutex::default(), any: AtomicBool::new(false) }
    }

    /// What tells this store from every other in the process.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Whether the store keeps a step, found out without fetching it.
    pub fn of(&self, link: &Parent) -> StorageState {
        match link.storage_state(self.token) {
            StorageState::NotStored => self.other(link.id()),
            kept => kept,
        }
    }

    /// Whether the store keeps a step.
    pub fn of_step(&self, step: &Step) -> StorageState {
        match step.storage_state(self.token) {
            StorageState::NotStored => self.other(step.id()),
            kept => kept,
        }
    }

    /// Writes down whether it does.
    pub fn set(&self, step: &Step, kept: StorageState) {
        let is_noted = step.set_storage_state(self.token, kept);
        if is_noted && !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        match others.get_mut(&step.id()) {
            Some(copies) => *copies = kept,
            None if is_noted => {}
            None => {
                self.any.store(true, Ordering::Release);
                others.insert(step.id(), kept);
            }
        }
    }

    /// The same for every copy of a step, until one of them is said to be kept elsewhere.
    fn set_copies(&self, id: StepId, kept: StorageState) {
        self.any.store(true, Ordering::Release);
        self.others.lock().unwrap_or_else(PoisonError::into_inner).insert(id, kept);
    }

    fn other(&self, id: StepId) -> StorageState {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).get(&id).copied().unwrap_or(StorageState::NotStored)
    }
}

impl Store {
    /// The store that a URI names: `sqlite:PATH`, `jsonl:DIRECTORY` or `memory:`. For other kinds see [`Registry`].
    pub fn open(uri: &str) -> Result<Self> {
        Registry::new().open(uri)
    }

    /// A store with this backend.
    pub fn new(backend: impl StoreBackend) -> Result<Self> {
        let (backend, rows): (Arc<dyn StoreBackend>, _) = (Arc::new(backend), Arc::new(Rows::new()));
        let desk = Desk::open(backend.clone(), rows.clone())?;
        Ok(Store(Arc::new(Inner { backend, rows, desk })))
    }

    /// The URI that opens it again.
    pub fn uri(&self) -> &str {
        self.0.backend.uri()
    }

    /// Every branch, in the order in which they began.
    pub fn list(&self) -> Result<Vec<Listed>> {
        self.0.backend.list()
    }

    /// The branch that a person means: its whole id, or the beginning or the end of one that no other has; or the same of
    /// the step that it ends with.
    pub fn find(&self, name: &str) -> Result<BranchId> {
        if let Ok(branch) = name.parse::<BranchId>() {
            return Ok(branch);
        }
        let name = name.to_lowercase();
        let fits = |listed: &&Listed| {
            let branch = listed.branch.to_string();
            !name.is_empty()
                && (branch.starts_with(&name) || branch.ends_with(&name) || listed.head.to_string().starts_with(&name))
        };
        let list = self.list()?;
        let found: Vec<_> = list.iter().filter(fits).collect();
        match &found[..] {
            [one] => Ok(one.branch),
            [] => Err(self.no_such(&name)),
            more => {
                let names = more.iter().take(5).map(|listed| listed.branch.short()).collect::<Vec<_>>().join(", ");
                let message = format!("`{name}` may mean any of {} sessions: {names}", more.len());
                Err(Error::new(ErrorKind::NoSuchSession, message).with_hint("give more of its id"))
            }
        }
    }

    /// Reads a session, as far as it can be read. What is appended to it is not recorded.
    pub fn read(&self, branch: BranchId) -> Result<Found> {
        let Read { listed, head, damage } = self.0.backend.read(branch, &self.0.rows)?;
        let record = head.map(Record::at).unwrap_or_default();
        Ok(Found { session: Session::resume(record), listed, damage })
    }

    /// Opens a session to go on with it: nobody else may append to it meanwhile.
    ///
    /// Look at the certificate: [`Resumed::complete`] gives the session if all is as it was left.
    pub async fn resume(&self, branch: BranchId) -> Result<Resumed> {
        let holder = self.0.desk.holder().clone();
        // At the desk: what was let go here before is closed by then.
        let claim = move |backend: &dyn StoreBackend| {
            let left_open_by = backend.listed(branch)?.and_then(|listed| listed.holder);
            Ok((left_open_by, backend.claim(branch, &holder)?))
        };
        let (left_open_by, epoch) = self.0.desk.ask(claim).await?;
        let found = match self.read(branch) {
            Ok(found) => found,
            Err(error) => {
                self.0.desk.release(branch, epoch);
                return Err(error);
            }
        };
        let recorder = Recorder::resumed(self, &found.listed, epoch, found.session.head());
        Ok(Resumed::new(found, left_open_by, Some(recorder)))
    }

    /// Opens a session to go on from where it stands as a fork, whoever writes it meanwhile.
    ///
    /// What is done with it is not recorded before [`Session::record`] is called.
    pub fn fork(&self, branch: BranchId) -> Result<Resumed> {
        Ok(Resumed::new(self.read(branch)?, None, None).forked())
    }

    /// Everything of a session that can be read. Where damage parts it, that is more than [`Store::read`] gives.
    pub fn pieces(&self, branch: BranchId) -> Result<Lineage> {
        Ok(Lineage::new(self.0.backend.pieces(branch, &self.0.rows)?))
    }

    /// Checks all there is.
    pub fn check(&self) -> Result<Check> {
        self.0.backend.check()
    }

    /// Removes what a step says, for good. Its place in the record stays, and still checks.
    pub async fn forget(&self, branch: BranchId, step: StepId) -> Result<()> {
        self.0.desk.ask(move |backend| backend.forget(branch, step)).await
    }

    /// Removes a session and all its branches, unless others rest on them.
    pub async fn delete(&self, family: BranchId) -> Result<()> {
        self.0.desk.ask(move |backend| backend.delete(family)).await
    }

    /// Gives back room that nothing needs.
    pub async fn compact(&self) -> Result<Freed> {
        self.0.desk.ask(|backend| backend.compact()).await
    }

    fn rows(&self) -> &Rows {
        &self.0.rows
    }

    fn desk(&self) -> &Arc<Desk> {
        &self.0.desk
    }

    fn listed(&self, branch: BranchId) -> Result<Option<Listed>> {
        self.0.backend.listed(branch)
    }

    fn no_such(&self, name: &str) -> Error {
        Error::new(ErrorKind::NoSuchSession, format_args!("no session `{name}` in {}", self.uri()))
            .with_hint("`rath ls` lists them")
    }
}

impl Drop for Inner {
    /// What was handed over is written before anybody can think that it is over.
    fn drop(&mut self) {
        self.desk.close();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.uri()).finish()
    }
}

/// What a list says of a branch that is about this.
fn title(text: &Text) -> Option<Arc<str>> {
    let words = text.as_str()?;
    Some(rath_record::draw::preview(words.get(..words.floor_char_boundary(400))?).into())
}

/// The first step that a write goes on from and that is not in the store: its own write was refused.
fn orphan(write: &Write, rows: &Rows) -> Option<StepId> {
    let own: HashSet<StepId> =
        if write.steps.len() > 1 { write.steps.iter().map(Step::id).collect() } else { HashSet::new() };
    let links = write.steps.iter().flat_map(Step::parents).filter(|link| !matches!(link, Parent::Missing(_)));
    let mut lost = links.filter(|link| !matches!(rows.of(link), StorageState::At(_)) && !own.contains(&link.id()));
    // What another store cannot give out was lost before.
    lost.find(|link| link.step().is_some()).map(Parent::id)
}

/// Makes a folder and those above it. One called `.rath` is kept out of version control.
pub(crate) fn make_folder(folder: &Path) -> std::io::Result<()> {
    if folder.as_os_str().is_empty() || folder.exists() {
        return Ok(());
    }
    let mut maker = std::fs::DirBuilder::new();
    maker.recursive(true);
    // What agents do is nobody else's business.
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut maker, 0o700);
    maker.create(folder)?;
    if folder.file_name().is_some_and(|name| name == ".rath") {
        std::fs::write(folder.join(".gitignore"), "*\n")?;
    }
    sync_folder(folder)
}

/// Makes a name durable: it is when the folder that it is in is.
fn sync_folder(of: &Path) -> std::io::Result<()> {
    let above = of.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(above)?.sync_all()
}

/// What was lost where a store cannot be read or written.
fn trouble(uri: &str, action: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Store, format_args!("cannot {action} {uri}")).because(error)
}

/// Why what goes on from a step cannot be relied on.
fn not_kept(step: StepId) -> Error {
    Error::new(ErrorKind::Store, format_args!("a step that it goes on from is not kept: {}", step.short()))
}

/// Why a branch cannot be appended to by one who thinks that it is somewhere else.
fn moved(branch: BranchId) -> Error {
    Error::new(ErrorKind::Conflict, format_args!("somebody else went on with the session {}", branch.short()))
        .with_hint("go on from here by yourself with `session.fork()`, or open the session anew")
}

/// Why a branch cannot be appended to by one who lost the right to it.
fn fenced(branch: BranchId, holder: Option<&Holder>) -> Error {
    let who = holder.map_or_else(|| "somebody else".to_owned(), Holder::to_string);
    Error::new(ErrorKind::Conflict, format_args!("the right to write the session {} was lost to {who}", branch.short()))
        .with_hint("go on from here by yourself with `session.fork()`")
}

/// Why a branch cannot be claimed.
fn held(branch: BranchId, holder: &Holder) -> Error {
    Error::new(ErrorKind::Conflict, format_args!("the session {} is being written by {holder}", branch.short()))
        .with_hint("wait until it is done, or go on by yourself: read it, and `fork` it")
}
