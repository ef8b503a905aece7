//! Changes to a store: one at a time, each knowing all that others have said before.

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

/// Whoever writes, and what it knows.
pub(super) struct SqliteWriter {
    pub(super) connection: Arc<Mutex<Connection>>,
    pub(super) log: Arc<Log>,
    pub(super) index: BranchIndex,
    /// The branches that somebody in this process writes.
    pub(super) held: HashSet<BranchId>,
    /// The number of this process among those who write.
    pub(super) own: Option<u64>,
    pub(super) group: Vec<u8>,
    /// Why nothing further is written: after a failure of the disk nobody knows what is on it.
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
    /// In words that say what it is about.
    pub(super) fn describe(self, uri: &str, action: &str) -> StoreError {
        match self {
            TransactionError::Store(error) => error,
            TransactionError::Sqlite(error) if action == "read" => schema::describe(uri, error),
            TransactionError::Sqlite(error) => failed(uri, action, error),
            TransactionError::Log(error) | TransactionError::Commit(error) => failed(uri, action, error),
        }
    }

    /// Passes on what nothing can come after.
    pub(super) fn if_fatal(self) -> Result<(), Self> {
        if self.is_fatal() { Err(self) } else { Ok(()) }
    }

    /// Whether nobody knows any more what is on the disk.
    fn is_fatal(&self) -> bool {
        match self {
            TransactionError::Store(_) => false,
            TransactionError::Sqlite(error) => matches!(error.sqlite_error_code(), Some(SystemIoFailure | DiskFull)),
            TransactionError::Log(_) | TransactionError::Commit(_) => true,
        }
    }
}

impl Sqlite {
    /// Makes a change, which is durable when it is done.
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
        // What can be read of a store that failed before is read.
        if was_broken { Ok(()) } else { flushed }
    }

    /// Looks at what the log says, without a word to the database. What is left of a store that failed is looked at as well.
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

    /// Does something with all that the log says, while nobody else can say anything.
    pub(super) fn locked<T>(
        &self,
        writer: &mut SqliteWriter,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<T> {
        let connection = writer.connection.clone();
        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let known = writer.own;
        let done = self.attempt(writer, &connection, work);
        // One that held very much is not kept for those that do not.
        writer.group.shrink_to(MAX_IDLE_GROUP_BYTES);
        done.map_err(|error| {
            // What was noted on the way is not in the log.
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
            // For as long as it is locked, nobody can put another in its place.
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
            // What nobody was told is kept must not be found later, as far as that can be helped.
            let _ = log.cut(transaction.index.end);
        }
        done
    }

    /// Opens the log that was put in the place of the one that is known.
    fn reopen_log(&self, writer: &mut SqliteWriter, connection: &Connection) -> Result<(), TransactionError> {
        let Some(path) = &self.path else { return Ok(()) };
        let (log, about) = open_log(path, connection)?;
        writer.index = BranchIndex::new(about.reflected);
        self.use_log(writer, log);
        Ok(())
    }

    /// Goes on with another log.
    pub(super) fn use_log(&self, writer: &mut SqliteWriter, log: Log) {
        writer.log = Arc::new(log);
        self.source.set_log(writer.log.clone());
    }

    /// The log that is there now.
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

    /// Moves everything from SQLite's own log into the file.
    pub(super) fn checkpoint(&self) -> Result<()> {
        if self.run_checkpoint("PRAGMA wal_checkpoint(TRUNCATE)")? {
            let message = format!("{} is being read, and its log still holds what was removed", self.uri);
            return Err(
                StoreError::new(StoreErrorKind::Conflict, message).with_hint("do it again when nobody reads it")
            );
        }
        Ok(())
    }

    /// The same as far as nobody is in the way.
    pub(super) fn checkpoint_passive(&self) -> Result<()> {
        self.run_checkpoint("PRAGMA wal_checkpoint(PASSIVE)").map(|_| ())
    }

    /// Whether somebody was in the way.
    fn run_checkpoint(&self, how: &str) -> Result<bool> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = writer.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = connection.query_row(how, [], |row| row.get(0));
        moved.map_err(|error| failed(&self.uri, "write to", error))
    }
}

/// How much room for a group is kept for the next one, in bytes.
const MAX_IDLE_GROUP_BYTES: usize = 16 << 20;

/// Why nothing can be written now.
fn busy(uri: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Store, format_args!("cannot write to {uri}: another process keeps it locked"))
        .with_hint("see whether one that writes to it was stopped")
}

/// The log placement a database, if it is the one that the database speaks of.
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

/// Why a database is not made placement a log that is there.
pub(super) fn missing_database(log: &Path) -> StoreError {
    StoreError::new(
        StoreErrorKind::Damaged,
        format_args!("{} holds steps, and the database placement it is missing", log.display()),
    )
    .with_hint("a store is both files: copy and move them together")
}
