//! A store in a SQLite database and a log beside it.
//!
//! All steps are appended to the log, with the changes to their branches: a group of a thousand sessions is one write and one
//! sync. The log is authoritative. The database is an index of the log that any SQLite tool can open: it holds the state of
//! every branch, and payloads that are too long for an entry. The database is brought up to date when the store is idle, and
//! before it is read.
//!
//! There is no index by id; a step is found through its children, which hold its place. Every entry has a seal, because nothing
//! else detects a changed byte.

mod branch;
mod change;
mod entry;
mod index;
mod log;
mod log_reader;
mod rewrite;
mod schema;
mod transaction;
mod wal;
mod walk;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use rath_record::{BranchId, Step, StepId, StepSource};
use rusqlite::{Connection, params};

use self::branch::BranchRow;
use self::change::{SqliteWriter, TransactionError};
use self::index::BranchIndex;
use self::log::{Log, log_path};
use self::log_reader::FIRST_PLACE;
use self::transaction::expiry;
use self::walk::{ReadHandles, StepLoader};
use super::holder::LEASE;
use super::registry::Create;
use super::{
    BranchSummary, CheckReport, FreedSpace, Holder, StepPlaces, StoreBackend, StoredBranch, Write, failed, make_folder,
    sync_parent,
};
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The number of bytes by which the database may be behind the log while the store is busy.
const MAX_BYTES_BEHIND_LOG: u64 = 64 << 20;

/// A store in a SQLite database and a log beside it.
pub struct Sqlite {
    uri: String,
    path: Option<PathBuf>,
    writer: Mutex<SqliteWriter>,
    source: Arc<ReadHandles>,
    lease: Duration,
}

impl Sqlite {
    /// Opens the files, and creates them and their directory if `create` allows that.
    pub fn open(path: &str, create: Create) -> Result<Self> {
        let uri = format!("sqlite:{path}");
        if path.is_empty() {
            return Err(
                StoreError::new(StoreErrorKind::Store, "no file is named").with_hint("write `sqlite:.rath/rath.db`")
            );
        }
        let file = Path::new(path);
        if !file.exists() {
            if create == Create::Never {
                return Err(StoreError::new(StoreErrorKind::Store, format_args!("there is no store at {path}"))
                    .with_hint("`rath run` makes one; `--store` names another"));
            }
            make_folder(file.parent().unwrap_or(Path::new(""))).map_err(|error| failed(&uri, "make", error))?;
        }
        // A database has a header of 100 bytes: a shorter file was cut. An empty file may never have been written.
        let length = std::fs::metadata(file).map_or(0, |file| file.len());
        if (1..100).contains(&length) || (length == 0 && file.exists() && create == Create::Never) {
            let message = format!("{uri} is damaged: it was cut off at its beginning, and holds nothing");
            return Err(StoreError::new(StoreErrorKind::Damaged, message));
        }
        wal::check(file).map_err(|error| failed(&uri, "read", error))??;
        let make_log = || {
            let made = Log::create(&log_path(file), uuid::Uuid::now_v7().into_bytes());
            // The name of the log is durable before a database refers to it.
            let made = made.and_then(|made| sync_parent(file).map(|()| made));
            let made = made.map_err(|error| failed(&uri, "write to", error))?;
            made.map(|log| log.store()).ok_or_else(|| change::missing_database(&log_path(file)))
        };
        let open = || -> rusqlite::Result<_> {
            let writer = Connection::open(file)?;
            if schema::is_foreign(&writer)? {
                return Ok(Err(schema::foreign_database(&uri)));
            }
            if let Err(error) = schema::prepare(&writer, make_log)? {
                return Ok(Err(error));
            }
            let reader = Connection::open(file)?;
            schema::settings(&reader)?;
            Ok(Ok((writer, reader)))
        };
        let (writer, reader) = open().map_err(|error| schema::describe(&uri, error))??;
        schema::check_version(&reader, &uri)?;
        // The names of both files are durable before their content is. SQLite does not guarantee that.
        sync_parent(file).map_err(|error| failed(&uri, "write to", error))?;
        let opened = change::open_log(file, &reader).and_then(|(log, about)| Ok((log.end()?, log, about)));
        let (end, log, about) = opened.map_err(|error| error.describe(&uri, "read"))?;
        let mut store = Sqlite::with(uri, Some(file.to_owned()), writer, Some(reader), (log, about.reflected));
        if end < about.reflected {
            let writer = store.writer.get_mut().unwrap_or_else(PoisonError::into_inner);
            writer.broken = Some(schema::truncated_log(about.reflected - end));
        }
        Ok(store)
    }

    /// Creates a store that lasts as long as the handle.
    pub fn in_memory() -> Result<Self> {
        let uri = "memory:".to_owned();
        let log = Log::in_memory(uuid::Uuid::now_v7().into_bytes());
        let connection = Connection::open_in_memory().and_then(|connection| {
            let prepared = schema::prepare(&connection, || Ok(log.store()))?;
            Ok(prepared.map(|()| connection))
        });
        let connection = connection.map_err(|error| failed(&uri, "open", error))??;
        Ok(Sqlite::with(uri, None, connection, None, (log, FIRST_PLACE)))
    }

    fn with(
        uri: String,
        path: Option<PathBuf>,
        writer: Connection,
        reader: Option<Connection>,
        (log, reflected): (Log, u64),
    ) -> Self {
        let (connection, log) = (Arc::new(Mutex::new(writer)), Arc::new(log));
        let reader = reader.map_or_else(|| connection.clone(), |reader| Arc::new(Mutex::new(reader)));
        Sqlite {
            uri,
            path,
            source: Arc::new(ReadHandles { connection: reader, log: RwLock::new(log.clone()) }),
            writer: Mutex::new(SqliteWriter {
                connection,
                log,
                index: BranchIndex::new(reflected),
                held: HashSet::new(),
                own: None,
                group: Vec::new(),
                broken: None,
            }),
            lease: LEASE,
        }
    }

    /// Sets the time for which a writer counts as alive after its last renewal. The default is 30 seconds.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.source.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from the database after bringing it up to date.
    fn reading<T>(&self, work: impl FnOnce(&Connection, &Log) -> Result<T, TransactionError>) -> Result<T> {
        self.flush_index()?;
        let read = || {
            let connection = self.reader();
            // One read transaction: another process may be writing.
            let moment = connection.unchecked_transaction()?;
            schema::log_state(&moment)?;
            work(&moment, &*self.current_log(&moment)?)
        };
        read().map_err(|error| error.describe(&self.uri, "read"))
    }

    fn no_such(&self, branch: BranchId) -> StoreError {
        StoreError::new(StoreErrorKind::NoSuchSession, format_args!("no session {branch} in {}", self.uri))
            .with_hint("`rath ls` lists them")
    }
}

impl StoreBackend for Sqlite {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn write(&self, group: &[Write], rows: &StepPlaces) -> Result<Vec<Result<()>>> {
        self.write_transaction(|transaction| {
            let mut answers = Vec::with_capacity(group.len());
            for write in group {
                answers.push(transaction.append(write, rows)?);
            }
            if transaction.index.bytes_behind_log() > MAX_BYTES_BEHIND_LOG {
                // The group is appended before the index is flushed.
                transaction.finish()?;
                transaction.begin();
                // The group is durable already; a failed flush is repeated later, unless the disk failed.
                transaction
                    .index
                    .flush(transaction.connection, *transaction.own)
                    .or_else(TransactionError::if_fatal)?;
            }
            Ok(answers)
        })
    }

    fn idle(&self) -> Result<()> {
        self.flush_index()?;
        self.checkpoint_passive()
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
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = writer.own else { return Ok(()) };
        let connection = writer.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let sql = "INSERT INTO writers(w, who, expires) VALUES (?, ?, ?)
                   ON CONFLICT(w) DO UPDATE SET expires = excluded.expires";
        let renewed = connection.execute(sql, params![own.cast_signed(), holder.to_json(), expiry(self.lease)]);
        renewed.map(|_| ()).map_err(|error| failed(&self.uri, "write to", error))
    }

    fn list(&self) -> Result<Vec<BranchSummary>> {
        self.reading(|connection, _| walk::list(connection))
    }

    fn summary(&self, branch: BranchId) -> Result<Option<BranchSummary>> {
        self.read_transaction(|transaction| transaction.summary(branch).map(|found| found.map(|(_, summary)| summary)))
    }

    fn read(&self, branch: BranchId, rows: &Arc<StepPlaces>) -> Result<StoredBranch> {
        let found = self.read_transaction(|transaction| {
            // Unreadable places go to the database, where every reader finds them.
            if transaction.index.has_unreadable() {
                transaction.index.flush(transaction.connection, *transaction.own)?;
            }
            transaction.summary(branch)
        })?;
        let (row, summary) = found.ok_or_else(|| self.no_such(branch))?;
        let checked = {
            let connection = self.reader();
            self.current_log(&connection).and_then(|log| walk::check(&connection, &log, &row))
        };
        let damage = checked.map_err(|error| error.describe(&self.uri, "read"))?;
        let head = StepLoader::new(self.source.clone(), rows.clone()).fetch(row.head, row.head_id);
        Ok(StoredBranch { summary, head, damage })
    }

    fn pieces(&self, branch: BranchId, rows: &Arc<StepPlaces>) -> Result<Vec<Step>> {
        let heads = self.reading(|connection, log| {
            let row = BranchRow::find(connection, branch)?.ok_or_else(|| self.no_such(branch))?;
            let mut relatives = HashSet::from([branch]);
            if let Ok(row) = &row {
                relatives.extend(BranchRow::of_family(connection, row.family)?);
            }
            walk::pieces(log, row.ok().map(|row| row.head), &relatives)
        })?;
        let library = StepLoader::new(self.source.clone(), rows.clone());
        Ok(heads.into_iter().filter_map(|(place, id)| library.fetch(place, id)).collect())
    }

    fn check(&self) -> Result<CheckReport> {
        self.reading(walk::check_all)
    }

    fn forget(&self, branch: BranchId, step: StepId) -> Result<()> {
        self.forget_step(branch, step)
    }

    fn delete(&self, family: BranchId) -> Result<()> {
        self.write_transaction(|transaction| {
            transaction.index.flush(transaction.connection, *transaction.own)?;
            let branches = BranchRow::of_family(transaction.connection, family)?;
            if branches.is_empty() {
                return Err(self.no_such(family).into());
            }
            for branch in &branches {
                if let Some(row) = transaction.index.get(transaction.connection, *branch)?.cloned() {
                    transaction.refuse_if_held(&row)?;
                }
            }
            branches.into_iter().for_each(|branch| transaction.remove(branch));
            Ok(())
        })
    }

    fn compact(&self) -> Result<FreedSpace> {
        self.compact_all()
    }
}

/// Brings the database up to date before the files are closed.
impl Drop for Sqlite {
    fn drop(&mut self) {
        let _ = self.flush_index();
    }
}
