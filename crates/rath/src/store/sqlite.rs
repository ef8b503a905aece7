//! A store in a SQLite database: one file, which any SQLite tool can open.
//!
//! Every step, every branch and every long text or picture is a row. A group of writes is one transaction, so nothing can be half
//! there, and it is durable when it is reported: SQLite writes and syncs its WAL with every transaction. The right by which a branch
//! is appended to, and its newest step, are compared inside the transaction.
//!
//! There is no index of steps by id; a step is found through its children, which hold its place. Every step, branch and payload has a
//! seal or is named by its digest, because SQLite detects damage to its own structure only: a changed byte is found and located, and
//! what is undamaged stays readable.
//!
//! The limit of this is SQLite's own: its WAL is read up to the first frame whose checksum does not match, and what follows counts as
//! a transaction that was not finished. If the disk changes a byte in the middle of a WAL after a crash, the transactions behind that
//! byte are lost, and the store is as it was before them. The WAL is therefore moved into the database whenever the store is idle,
//! and when it is closed.

mod branch_row;
mod check;
mod database_file;
mod erase;
mod loader;
mod payload;
mod prepared;
mod salvage;
mod scan;
mod schema;
mod step_row;
mod transaction;
mod wal;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rath_record::{BranchId, Digest, Payload, Step, StepId, StepSource};
use rusqlite::Connection;

use self::branch_row::BranchRow;
use self::check::Pieces;
use self::database_file::DatabaseFile;
use self::loader::{CheckedRows, StepLoader};
use self::prepared::PreparedWrite;
use self::salvage::PageScan;
use self::schema::{OpenMode, StoreConnection};
use self::transaction::{SqliteWriter, TransactionError, renew};
use super::holder::LEASE;
use super::registry::Create;
use super::user_key::location_of;
use super::{
    BranchSummary, CheckReport, Deletion, ErasedStep, FreedSpace, Holder, NO_STORE_HINT, StepPlaces, StoreBackend,
    StoreId, StoredBranch, UnlistedBranch, Write, failed, make_folder, rath_dir, shell_word, sync_parent,
    unwritable_hint,
};
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// A store in a SQLite database.
///
/// ```
/// use rath::Store;
/// use rath::store::Sqlite;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// let store = Store::new(Sqlite::in_memory()?)?;
/// assert!(store.list().await?.is_empty());
/// # Ok(())
/// # }
/// ```
pub struct Sqlite {
    uri: String,
    path: Option<PathBuf>,
    location: Option<String>,
    writer: Mutex<SqliteWriter>,
    reader: Arc<Mutex<StoreConnection>>,
    lease: Duration,
}

impl Sqlite {
    /// Opens the file, and creates it and its directory if `create` allows that.
    ///
    /// A file that cannot be written to is opened for reading.
    pub fn open(path: &str, create: Create) -> Result<Self> {
        let uri = format!("sqlite:{path}");
        if path.is_empty() {
            let error = StoreError::new(StoreErrorKind::Store, "no file is named");
            return Err(error.with_hint("write `sqlite:.rath/rath.db`"));
        }
        // SQLite gives a meaning of its own to some relative paths.
        let file = std::path::absolute(path).map_err(|error| failed(&uri, "open", error))?;
        rath_dir::check(&file).map_err(|error| failed(&uri, "open", error))?;
        let file = &follow_link(&uri, file)?;
        if file.is_dir() {
            let message = format!("wanted a file for {uri}, found a directory");
            let hint = format!("write `sqlite:{}`", Path::new(path).join("rath.db").display());
            return Err(StoreError::new(StoreErrorKind::Store, message).with_hint(hint));
        }
        let is_there = file.try_exists().map_err(|error| failed(&uri, "open", error))?;
        let opened = is_there.then(|| DatabaseFile::open(file)).transpose();
        let opened = opened.map_err(|error| failed(&uri, "open", error))?;
        if create == Create::IfMissing {
            opened
                .iter()
                .try_for_each(|opened| schema::empty_if_zero(file, opened))
                .map_err(|error| failed(&uri, "open", error))?;
        }
        if let Some(lost) = schema::lost_database(file, &uri) {
            return Sqlite::open_lost(uri, file, lost);
        }
        let header = schema::read_header(file, &uri, opened.as_ref(), create)?;
        if !is_there {
            if create == Create::Never {
                return Err(no_store(path, file));
            }
            make_folder(file.parent().unwrap_or(Path::new(""))).map_err(|error| failed(&uri, "make", error))?;
        }
        let (reason, modes) = match schema::move_foreign_journal(file, &header) {
            // SQLite would write the content of the journal to the database.
            Err(error) => (unwritable(&uri, file, &error.to_string()), &READ_MODES[1..]),
            Ok(()) => match Sqlite::open_for_writing(&uri, file, &header) {
                Ok(opened) => return Ok(opened),
                Err(TransactionError::Sqlite(error)) if is_there && schema::is_unwritable(&error) => {
                    (unwritable(&uri, file, &error.to_string()), &READ_MODES[..])
                }
                Err(error) => return Err(error.describe(&uri, Some(file), "open")),
            },
        };
        let open = |access: &OpenMode| schema::open_for_reading(&uri, file, &header, *access).ok();
        let Some(reader) = modes.iter().find_map(open) else {
            return Err(reason);
        };
        let reader = StoreConnection::to_file(reader, file).map_err(|error| failed(&uri, "read", error))?;
        let reader = Arc::new(Mutex::new(reader));
        Ok(Sqlite::new(uri, Some(file.to_owned()), reader.clone(), reader, Some(reason)))
    }

    /// Opens a store for reading whose database is lost, if its WAL has all of it.
    fn open_lost(uri: String, file: &Path, lost: StoreError) -> Result<Self> {
        let opened = wal::read_with_wal(None, &schema::wal_path(file))
            .and_then(|content| schema::connect_to_copy(&content).map_err(std::io::Error::other));
        let Ok(reader) = opened else { return Err(lost) };
        schema::check_header(&reader, file, &uri, &[]).map_err(|error| error.describe(&uri, Some(file), "open"))?;
        let reader = Arc::new(Mutex::new(StoreConnection::to_copy(reader)));
        Ok(Sqlite::new(uri, Some(file.to_owned()), reader.clone(), reader, Some(lost)))
    }

    fn open_for_writing(uri: &str, file: &Path, header: &[u8]) -> Result<Self, TransactionError> {
        let writer = schema::connect(file, OpenMode::ReadWrite)?;
        schema::check_header(&writer, file, uri, header)?;
        schema::prepare(&writer)?;
        let reader = schema::connect(file, OpenMode::ReadWrite)?;
        let mut broken = None;
        if writer.is_readonly("main")? {
            broken = Some(unwritable(uri, file, "the file is read-only"));
        }
        // The name of the file is durable before its content is. SQLite does not guarantee that.
        if let Err(error) = sync_parent(file) {
            broken.get_or_insert(failed(uri, "write to", error));
        }
        let keep = |connection| StoreConnection::to_file(connection, file).map(|kept| Arc::new(Mutex::new(kept)));
        let [writer, reader] = [keep(writer), keep(reader)];
        let failed = |error| TransactionError::Store(failed(uri, "open", error));
        Ok(Sqlite::new(uri.to_owned(), Some(file.to_owned()), writer.map_err(failed)?, reader.map_err(failed)?, broken))
    }

    /// Creates a store that lasts as long as the handle.
    pub fn in_memory() -> Result<Self> {
        let uri = "memory:".to_owned();
        let connection = StoreConnection::in_memory();
        let connection = connection.map_err(|error| schema::failed_in_sqlite(&uri, "open", &error))?;
        let connection = Arc::new(Mutex::new(connection));
        Ok(Sqlite::new(uri, None, connection.clone(), connection, None))
    }

    fn new(
        uri: String,
        path: Option<PathBuf>,
        writer: Arc<Mutex<StoreConnection>>,
        reader: Arc<Mutex<StoreConnection>>,
        broken: Option<StoreError>,
    ) -> Self {
        let location = path.as_deref().map(location_of);
        Sqlite { uri, path, location, writer: Mutex::new(SqliteWriter::new(writer, broken)), reader, lease: LEASE }
    }

    /// Sets the time for which a writer counts as alive after its last renewal. The default is 30 seconds.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    fn writer(&self) -> MutexGuard<'_, SqliteWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a transaction that reads.
    fn read_transaction<T>(&self, work: impl FnOnce(&Connection) -> Result<T, TransactionError>) -> Result<T> {
        let connection = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || {
            let moment = connection.unchecked_transaction()?;
            work(&moment)
        };
        read().map_err(|error| error.describe(&self.uri, self.path.as_deref(), "read"))
    }

    /// Returns the advice for a deletion that branches which are not listed stop.
    fn unlisted_hint(&self, unlisted: &[&UnlistedBranch]) -> String {
        let uri = shell_word(&self.uri);
        let ids: Option<Vec<_>> = unlisted.iter().map(|it| Some(it.branch?.short())).collect();
        match ids.as_deref() {
            // It is not known which session was lost, so none can be named.
            None => format!(
                "`rath verify --store {uri}` names the damage; put a copy of the store back, or copy each session with \
                 `rath salvage` and `rath import` it into a new store"
            ),
            Some(ids) => {
                let delete: String = ids.iter().map(|id| format!(" --delete {id}")).collect();
                format!(
                    "`rath gc{delete} --store {uri}` deletes what is damaged; before that, `rath salvage {} copy.rath --store \
                     {uri}` copies what is good of it",
                    ids[0]
                )
            }
        }
    }

    fn no_such(&self, branch: BranchId) -> StoreError {
        StoreError::new(StoreErrorKind::NoSuchSession, format_args!("no session {branch} in {}", self.uri))
            .with_hint("`rath ls` lists them")
    }
}

/// The ways to open a database that cannot be written to, in the order in which they are tried.
const READ_MODES: [OpenMode; 3] = [OpenMode::ReadOnly, OpenMode::Immutable, OpenMode::Copy];

/// Creates the error for a store that is not there.
fn no_store(path: &str, file: &Path) -> StoreError {
    let versions = file.with_file_name("workspace");
    let error = StoreError::new(StoreErrorKind::Missing, format_args!("there is no store at {path}"));
    match versions.join("objects").is_dir() {
        false => error.with_hint(NO_STORE_HINT),
        // Versions of files do not tell which session they are from.
        true => error.with_hint(format!(
            "if it was lost, put a copy of it back before you run or collect anything here; until then the versions of files \
             that it named stay, and `git --git-dir '{}' cat-file --batch-check --batch-all-objects` lists them",
            versions.display()
        )),
    }
}

/// Creates the error for writes to a store that is read only. The system's reason is clearer than that of SQLite.
fn unwritable(uri: &str, file: &Path, reason: &str) -> StoreError {
    let system = try_to_write(file).err();
    let reason = system.as_ref().map_or_else(|| reason.to_owned(), ToString::to_string);
    let error = StoreError::new(StoreErrorKind::Store, format_args!("cannot write to {uri}: {reason}"));
    system.and_then(|error| unwritable_hint(error.kind())).into_iter().fold(error, StoreError::with_hint)
}

/// Writes a page to a file beside the database, and removes the file.
fn try_to_write(database: &Path) -> std::io::Result<()> {
    std::fs::OpenOptions::new().append(true).open(database)?;
    let beside = database.with_extension(format!("tmp-{}", uuid::Uuid::now_v7().simple()));
    let written = std::fs::write(&beside, vec![0; 16 * schema::PAGE_BYTES]);
    let _ = std::fs::remove_file(&beside);
    written
}

/// Returns the file that a link leads to: SQLite keeps the WAL beside that file.
fn follow_link(uri: &str, file: PathBuf) -> Result<PathBuf> {
    if !std::fs::symlink_metadata(&file).is_ok_and(|metadata| metadata.is_symlink()) {
        return Ok(file);
    }
    std::fs::canonicalize(&file).map_err(|error| failed(uri, "follow the link", error))
}

impl StoreBackend for Sqlite {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn location(&self) -> Option<String> {
        self.location.clone()
    }

    fn id(&self, create: Create) -> Result<Option<StoreId>> {
        let id = self.read_transaction(|connection| Ok(schema::store_id(connection)?))?;
        if id.is_some() || create == Create::Never {
            return Ok(id);
        }
        self.write_transaction(|transaction| match schema::store_id(transaction.connection)? {
            // Another process was faster.
            Some(id) => Ok(Some(id)),
            None => Ok(Some(schema::add_store_id(transaction.connection)?)),
        })
    }

    fn write(&self, group: &[Write], rows: &StepPlaces) -> Result<Vec<Result<()>>> {
        let group: Vec<_> = group.iter().map(|write| PreparedWrite::new(write, rows)).collect();
        self.write_transaction(|transaction| group.iter().map(|write| transaction.append(write, rows)).collect())
    }

    fn idle(&self) -> Result<()> {
        self.checkpoint(Duration::ZERO).map(|_| ())
    }

    fn claim(&self, branch: BranchId, holder: &Holder) -> Result<u64> {
        self.write_transaction(|transaction| {
            Ok(transaction.claim(branch, holder)?.ok_or_else(|| self.no_such(branch))?)
        })
    }

    fn release(&self, rights: &[(BranchId, u64)]) -> Result<()> {
        self.write_transaction(|transaction| {
            rights.iter().try_for_each(|(branch, epoch)| transaction.release(*branch, *epoch))
        })
    }

    fn lease(&self) -> Duration {
        self.lease
    }

    fn renew(&self, holder: &Holder) -> Result<()> {
        let writer = self.writer();
        let Some(own) = writer.own else { return Ok(()) };
        let connection = writer.connection.lock().unwrap_or_else(PoisonError::into_inner);
        renew(&connection, own, holder, self.lease)
            .map_err(|error| schema::failed_in_sqlite(&self.uri, "write to", &error))
    }

    fn list(&self) -> Result<Vec<BranchSummary>> {
        self.read_transaction(|connection| Ok(check::list(connection)?))
    }

    fn unlisted(&self) -> Result<Vec<UnlistedBranch>> {
        self.read_transaction(|connection| Ok(check::unlisted(connection)?))
    }

    fn restore(&self, payloads: &[(Digest, Payload)]) -> Result<u64> {
        self.write_transaction(|transaction| {
            let mut restored = 0;
            for (digest, payload) in payloads {
                restored += u64::from(payload::restore(transaction.connection, *digest, payload)?);
            }
            Ok(restored)
        })
    }

    fn summary(&self, branch: BranchId) -> Result<Option<BranchSummary>> {
        self.read_transaction(|connection| {
            // By the index alone: nearly every new session is looked for first.
            let row = BranchRow::find(connection, branch)?.transpose()?;
            Ok(row.map(|row| row.summary(connection)).transpose()?)
        })
    }

    fn read(&self, branch: BranchId, rows: &Arc<StepPlaces>) -> Result<StoredBranch> {
        let mut checked = CheckedRows::default();
        let (row, summary, damage) = self.read_transaction(|connection| {
            let row = BranchRow::find_or_scan(connection, branch)?.ok_or_else(|| self.no_such(branch))??;
            let (summary, damage) = (row.summary(connection)?, check::branch(connection, &row, &mut checked)?);
            Ok((row, summary, damage))
        })?;
        let head = StepLoader::new(&self.reader, rows, None, checked).fetch(row.head, row.head_id);
        Ok(StoredBranch { summary, head, signature: row.signature, damage })
    }

    fn pieces(&self, branch: BranchId, rows: &Arc<StepPlaces>) -> Result<Vec<Step>> {
        let (mut pieces, relatives) = self.read_transaction(|connection| {
            let row = BranchRow::find_or_scan(connection, branch).ok().flatten().and_then(Result::ok);
            let mut relatives = HashSet::from([branch]);
            if let Some(row) = &row {
                relatives.extend(BranchRow::of_family(connection, row.family).unwrap_or_default());
            }
            Ok((Pieces::read(connection, row.map(|row| row.head), &relatives)?, relatives))
        })?;
        let mut scan = None;
        if pieces.is_damaged
            && let Some(path) = &self.path
        {
            // The scan reads the database, and not its WAL.
            let _ = self.checkpoint(Duration::ZERO);
            let found = PageScan::new(path).map_err(|error| failed(&self.uri, "read", error))?;
            pieces.add_scan(&found, &relatives);
            scan = Some(found);
        }
        let heads = pieces.heads();
        if heads.is_empty() {
            return Err(self.no_such(branch));
        }
        let loader = StepLoader::new(&self.reader, rows, scan, CheckedRows::default());
        Ok(heads.into_iter().filter_map(|(place, id)| loader.fetch(place, id)).collect())
    }

    fn visit_json(
        &self,
        families: &[BranchId],
        _: &Arc<StepPlaces>,
        visit: &mut dyn FnMut(BranchId, &str),
    ) -> Result<()> {
        self.read_transaction(|connection| check::visit_json(connection, families, visit))
    }

    fn check(&self) -> Result<CheckReport> {
        self.read_transaction(|connection| Ok(check::all(connection)?))
    }

    fn forget(&self, branch: BranchId, step: StepId) -> Result<ErasedStep> {
        let erased = self.forget_step(branch, step)?;
        Ok(ErasedStep { erased, refused: Vec::new() })
    }

    fn delete(&self, families: &[BranchId]) -> Result<Deletion> {
        self.write_transaction(|transaction| {
            let unlisted = check::unlisted(transaction.connection)?;
            let is_named = |it: &&UnlistedBranch| it.branch.is_some_and(|branch| families.contains(&branch));
            // Without a row, steps are all that is left of a session. After a deletion, they would count as deleted too.
            let others: Vec<_> = unlisted.iter().filter(|other| !is_named(other)).collect();
            if let Some(other) = others.first() {
                let message = format!("the store is damaged, and deleting sessions could lose more: {}", other.damage);
                let hint = self.unlisted_hint(&others);
                return Err(StoreError::new(StoreErrorKind::Damaged, message).with_hint(hint).into());
            }
            let unlisted: HashSet<BranchId> = unlisted.into_iter().filter_map(|it| it.branch).collect();
            let mut busy = Vec::new();
            for family in families {
                let branches = BranchRow::of_family(transaction.connection, *family)?;
                if branches.is_empty() && !unlisted.contains(family) {
                    return Err(self.no_such(*family).into());
                }
                for branch in branches.into_iter().filter(|branch| !unlisted.contains(branch)) {
                    let Some(row) = transaction.branch(branch)?.cloned() else { continue };
                    match transaction.refuse_if_held(&row) {
                        Err(TransactionError::Store(error)) => {
                            busy.push((*family, error));
                            break;
                        }
                        checked => checked?,
                    }
                }
            }
            let mut deletion = Deletion::plan(families, busy, &check::needs(transaction.connection)?);
            for family in &deletion.deleted {
                let listed = BranchRow::of_family(transaction.connection, *family)?;
                // What is known of a session whose row is damaged is its id.
                let is_damaged = unlisted.contains(family) && !listed.contains(family);
                deletion.branches.extend(is_damaged.then_some(*family).into_iter().chain(listed));
            }
            transaction.remove(&deletion.branches)?;
            Ok(deletion)
        })
    }

    fn compact(&self) -> Result<FreedSpace> {
        self.compact_all()
    }

    fn measure_delete(&self, families: &[BranchId]) -> Result<Deletion> {
        self.measure(families)
    }
}
