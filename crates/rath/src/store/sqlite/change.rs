//! Transactions on a store: one at a time across processes, each with all that was appended before.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rath_record::BranchId;
use rusqlite::Connection;
use rusqlite::ErrorCode::{DiskFull, SystemIoFailure};

use super::super::failed;
use super::Sqlite;
use super::index::BranchIndex;
use super::log::{Log, LogOpenError, log_path};
use super::schema::{self, LogState};
use super::transaction::Transaction;
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The state of the writer.
pub(super) struct SqliteWriter {
    pub(super) connection: Arc<Mutex<Connection>>,
    pub(super) log: Arc<Log>,
    pub(super) index: BranchIndex,
    /// The branches that this process writes.
    pub(super) held: HashSet<BranchId>,
    /// The number of this process among the writers of the store.
    pub(super) own: Option<u64>,
    pub(super) group: Vec<u8>,
    /// The reason why nothing further is written: after a failure of the disk its content is unknown.
    pub(super) broken: Option<StoreError>,
}

/// A failure inside a transaction. [`TransactionError::describe`] makes a [`StoreError`] of it.
pub(super) enum TransactionError {
    /// An error that is complete already.
    Store(StoreError),
    /// An error of SQLite.
    Sqlite(rusqlite::Error),
    /// The log could not be read, locked or cut.
    Log(io::Error),
    /// A group could not be written or synced.
    Commit(io::Error),
}

impl From<rusqlite::Error> for TransactionError {
    fn from(error: rusqlite::Error) -> Self {
        TransactionError::Sqlite(error)
    }
}

impl From<io::Error> for TransactionError {
    fn from(error: io::Error) -> Self {
        TransactionError::Log(error)
    }
}

impl From<StoreError> for TransactionError {
    fn from(error: StoreError) -> Self {
        TransactionError::Store(error)
    }
}

impl TransactionError {
    /// Makes an error that names the store and the action.
    pub(super) fn describe(self, uri: &str, action: &str) -> StoreError {
        match self {
            TransactionError::Store(error) => error,
            TransactionError::Sqlite(error) if action == "read" => schema::describe(uri, error),
            TransactionError::Sqlite(error) => failed(uri, action, error),
            TransactionError::Log(error) | TransactionError::Commit(error) => failed(uri, action, error),
        }
    }

    /// Returns the error if no further write can follow it.
    pub(super) fn if_fatal(self) -> Result<(), Self> {
        if self.is_fatal() { Err(self) } else { Ok(()) }
    }

    /// Returns true if the content of the disk is unknown after this error.
    fn is_fatal(&self) -> bool {
        match self {
            TransactionError::Store(_) => false,
            TransactionError::Sqlite(error) => matches!(error.sqlite_error_code(), Some(SystemIoFailure | DiskFull)),
            TransactionError::Log(_) | TransactionError::Commit(_) => true,
        }
    }
}

impl Sqlite {
    /// Runs a transaction, which is durable on return.
    pub(super) fn write_transaction<T>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<T> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match &writer.broken {
            Some(error) => Err(error.duplicate()),
            None => self.locked(&mut writer, work),
        }
    }

    /// Brings the database up to date.
    pub(super) fn flush_index(&self) -> Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |log: &Log| Ok::<_, io::Error>(!log.is_replaced()? && log.end()? == writer.index.end);
        if writer.index.is_flushed() && is_known(&writer.log).unwrap_or(false) {
            return Ok(());
        }
        let was_broken = writer.broken.is_some();
        let flushed =
            self.locked(&mut writer, |transaction| transaction.index.flush(transaction.connection, *transaction.own));
        // A store that failed before can still be read.
        if was_broken { Ok(()) } else { flushed }
    }

    /// Reads the current state without writing to the database. Also works on a store that failed, as far as it is readable.
    pub(super) fn read_transaction<T>(
        &self,
        work: impl Fn(&mut Transaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<T> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let was_broken = writer.broken.is_some();
        match self.locked(&mut writer, &work) {
            Err(_) if was_broken => {}
            result => return result,
        }
        let SqliteWriter { connection, log, index, held, own, group, .. } = &mut *writer;
        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let (connection, index, lease) = (&*connection, &mut index.with_database_only(), self.lease);
        let mut transaction = Transaction { connection, log, index, held, own, lease, group, has_payloads: false };
        work(&mut transaction).map_err(|error| error.describe(&self.uri, "read"))
    }

    /// Runs work under the lock of the log, with all entries read.
    pub(super) fn locked<T>(
        &self,
        writer: &mut SqliteWriter,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<T> {
        let connection = writer.connection.clone();
        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let known = writer.own;
        let done = self.attempt(writer, &connection, work);
        // The buffer of a very large group is not kept for the next one.
        writer.group.shrink_to(MAX_IDLE_GROUP_BYTES);
        done.map_err(|error| {
            // Changes of a failed transaction are not in the log.
            writer.own = known;
            writer.index.reset();
            let is_fatal = error.is_fatal();
            let error = error.describe(&self.uri, "write to");
            if is_fatal {
                writer.broken.get_or_insert_with(|| error.duplicate());
            }
            error
        })
    }

    fn attempt<T>(
        &self,
        writer: &mut SqliteWriter,
        connection: &Connection,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<T, TransactionError> {
        let log = loop {
            let log = Log::lock(&writer.log)?.ok_or_else(|| busy(&self.uri))?;
            // While the log is locked, no other process can replace it.
            if !log.is_replaced()? {
                break log;
            }
            drop(log);
            self.reopen_log(writer, connection)?;
        };
        let SqliteWriter { index, held, own, group, .. } = writer;
        index.catch_up(connection, &log)?;
        let mut transaction =
            Transaction { connection, log: &log, index, held, own, lease: self.lease, group, has_payloads: false };
        transaction.begin();
        let done = work(&mut transaction).and_then(|done| transaction.finish().map(|()| done));
        if done.is_err() && transaction.has_payloads {
            let _ = connection.execute_batch("ROLLBACK");
        }
        if let Err(TransactionError::Commit(_)) = &done {
            // Steps that were not reported as durable must not be found later, if that can be prevented.
            let _ = log.cut(transaction.index.end);
        }
        done
    }

    /// Opens the log that replaced the known one.
    fn reopen_log(&self, writer: &mut SqliteWriter, connection: &Connection) -> Result<(), TransactionError> {
        let Some(path) = &self.path else { return Ok(()) };
        let (log, about) = open_log(path, connection)?;
        writer.index = BranchIndex::new(about.reflected);
        self.use_log(writer, log);
        Ok(())
    }

    /// Continues with another log.
    pub(super) fn use_log(&self, writer: &mut SqliteWriter, log: Log) {
        writer.log = Arc::new(log);
        self.source.set_log(writer.log.clone());
    }

    /// Returns the current log, opening it if the known one was replaced.
    pub(super) fn current_log(&self, connection: &Connection) -> Result<Arc<Log>, TransactionError> {
        let log = self.source.log();
        match &self.path {
            Some(path) if log.is_replaced()? => {
                let log = Arc::new(open_log(path, connection)?.0);
                self.source.set_log(log.clone());
                Ok(log)
            }
            _ => Ok(log),
        }
    }

    /// Moves all of SQLite's own log into the database.
    pub(super) fn checkpoint(&self) -> Result<()> {
        if self.run_checkpoint("PRAGMA wal_checkpoint(TRUNCATE)")? {
            let message = format!("{} is being read, and its log still holds what was removed", self.uri);
            return Err(
                StoreError::new(StoreErrorKind::Conflict, message).with_hint("do it again when nobody reads it")
            );
        }
        Ok(())
    }

    /// Moves SQLite's own log into the database, as far as no reader prevents it.
    pub(super) fn checkpoint_passive(&self) -> Result<()> {
        self.run_checkpoint("PRAGMA wal_checkpoint(PASSIVE)").map(|_| ())
    }

    /// Runs a checkpoint. Returns true if a reader prevented part of it.
    fn run_checkpoint(&self, how: &str) -> Result<bool> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = writer.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = connection.query_row(how, [], |row| row.get(0));
        moved.map_err(|error| failed(&self.uri, "write to", error))
    }
}

/// The capacity of the group buffer that is kept for the next group, in bytes.
const MAX_IDLE_GROUP_BYTES: usize = 16 << 20;

/// Creates the error for a log that another process keeps locked.
fn busy(uri: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Store, format_args!("cannot write to {uri}: another process keeps it locked"))
        .with_hint("see whether one that writes to it was stopped")
}

/// Opens the log beside a database, if the database refers to it.
pub(super) fn open_log(database: &Path, connection: &Connection) -> Result<(Log, LogState), TransactionError> {
    let path = log_path(database);
    let told = |what: &str| {
        StoreError::new(StoreErrorKind::Damaged, format_args!("{} {what}", path.display()))
            .with_hint("a store is both files: copy and move them together")
    };
    let about = schema::log_state(connection)?;
    let log = match Log::open(&path) {
        Ok(log) => log,
        Err(LogOpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Err(told("is missing: it holds the steps of the store").into());
        }
        Err(LogOpenError::Io(error)) => return Err(error.into()),
        Err(LogOpenError::Damaged) => return Err(told("is damaged: where it begins it was changed or cut").into()),
    };
    if log.store() != about.store {
        return Err(told("is of another store").into());
    }
    if log.base() > about.reflected {
        return Err(told("is newer than its database, which has to be restored with it").into());
    }
    Ok((log, about))
}

/// Creates the error for a log without its database.
pub(super) fn missing_database(log: &Path) -> StoreError {
    StoreError::new(
        StoreErrorKind::Damaged,
        format_args!("{} holds steps, and the database beside it is missing", log.display()),
    )
    .with_hint("a store is both files: copy and move them together")
}
