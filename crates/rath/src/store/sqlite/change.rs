//! Changes to a store: one at a time, each knowing all that others have said before.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rath_record::BranchId;
use rusqlite::Connection;
use rusqlite::ErrorCode::{DiskFull, SystemIoFailure};

use super::super::desk::again;
use super::super::trouble;
use super::Sqlite;
use super::index::Index;
use super::log::{Log, Unfit, log_of};
use super::page::Page;
use super::schema::{self, About};
use crate::error::ErrorKind;
use crate::session::{Error, Result};

/// Whoever writes, and what it knows.
pub(super) struct Writer {
    pub(super) connection: Arc<Mutex<Connection>>,
    pub(super) log: Arc<Log>,
    pub(super) index: Index,
    /// The branches that somebody in this process writes.
    pub(super) held: HashSet<BranchId>,
    /// The number of this process among those who write.
    pub(super) own: Option<u64>,
    pub(super) group: Vec<u8>,
    /// Why nothing further is written: after a failure of the disk nobody knows what is on it.
    pub(super) broken: Option<Error>,
}

/// Why something was not done.
pub(super) enum Refused {
    /// For a reason that is told as it is.
    Told(Error),
    /// Because SQLite could not.
    Sqlite(rusqlite::Error),
    /// Because the log could not be read, locked or cut.
    Io(io::Error),
    /// Because a group could not be written or synced.
    Lost(io::Error),
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Self {
        Refused::Sqlite(error)
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Refused::Io(error)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Told(error)
    }
}

impl Refused {
    /// In words that say what it is about.
    pub(super) fn told(self, uri: &str, action: &str) -> Error {
        match self {
            Refused::Told(error) => error,
            Refused::Sqlite(error) if action == "read" => schema::told(uri, error),
            Refused::Sqlite(error) => trouble(uri, action, error),
            Refused::Io(error) | Refused::Lost(error) => trouble(uri, action, error),
        }
    }

    /// Passes on what nothing can come after.
    pub(super) fn if_fatal(self) -> Result<(), Self> {
        if self.is_fatal() { Err(self) } else { Ok(()) }
    }

    /// Whether nobody knows any more what is on the disk.
    fn is_fatal(&self) -> bool {
        match self {
            Refused::Told(_) => false,
            Refused::Sqlite(error) => matches!(error.sqlite_error_code(), Some(SystemIoFailure | DiskFull)),
            Refused::Io(_) | Refused::Lost(_) => true,
        }
    }
}

impl Sqlite {
    /// Makes a change, which is durable when it is done.
    pub(super) fn change<T>(&self, work: impl FnOnce(&mut Page<'_>) -> Result<T, Refused>) -> Result<T> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match &writer.broken {
            Some(error) => Err(again(error)),
            None => self.locked(&mut writer, work),
        }
    }

    /// Brings the database up to date.
    pub(super) fn settle(&self) -> Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |log: &Log| Ok::<_, io::Error>(!log.is_replaced()? && log.end()? == writer.index.end);
        if writer.index.is_settled() && is_known(&writer.log).unwrap_or(false) {
            return Ok(());
        }
        let was_broken = writer.broken.is_some();
        let settled = self.locked(&mut writer, |page| page.index.flush(page.connection, *page.own));
        // What can be read of a store that failed before is read.
        if was_broken { Ok(()) } else { settled }
    }

    /// Looks at what the log says, without a word to the database. What is left of a store that failed is looked at as well.
    pub(super) fn look<T>(&self, work: impl Fn(&mut Page<'_>) -> Result<T, Refused>) -> Result<T> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let was_broken = writer.broken.is_some();
        match self.locked(&mut writer, &work) {
            Err(_) if was_broken => {}
            looked => return looked,
        }
        let Writer { connection, log, index, held, own, group, .. } = &mut *writer;
        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let (connection, index, lease) = (&*connection, &mut index.afresh(), self.lease);
        let mut page = Page { connection, log, index, held, own, lease, group, has_payloads: false };
        work(&mut page).map_err(|refused| refused.told(&self.uri, "read"))
    }

    /// Does something with all that the log says, while nobody else can say anything.
    pub(super) fn locked<T>(
        &self,
        writer: &mut Writer,
        work: impl FnOnce(&mut Page<'_>) -> Result<T, Refused>,
    ) -> Result<T> {
        let connection = writer.connection.clone();
        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let known = writer.own;
        let done = self.attempt(writer, &connection, work);
        // One that held very much is not kept for those that do not.
        writer.group.shrink_to(GROUP_KEPT);
        done.map_err(|refused| {
            // What was noted on the way is not in the log.
            writer.own = known;
            writer.index.reset();
            let is_fatal = refused.is_fatal();
            let error = refused.told(&self.uri, "write to");
            if is_fatal {
                writer.broken.get_or_insert_with(|| again(&error));
            }
            error
        })
    }

    fn attempt<T>(
        &self,
        writer: &mut Writer,
        connection: &Connection,
        work: impl FnOnce(&mut Page<'_>) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let log = loop {
            let log = Log::lock(&writer.log)?.ok_or_else(|| busy(&self.uri))?;
            // For as long as it is locked, nobody can put another in its place.
            if !log.is_replaced()? {
                break log;
            }
            drop(log);
            self.open_again(writer, connection)?;
        };
        let Writer { index, held, own, group, .. } = writer;
        index.catch_up(connection, &log)?;
        let mut page = Page { connection, log: &log, index, held, own, lease: self.lease, group, has_payloads: false };
        page.begin();
        let done = work(&mut page).and_then(|done| page.finish().map(|()| done));
        if done.is_err() && page.has_payloads {
            let _ = connection.execute_batch("ROLLBACK");
        }
        if let Err(Refused::Lost(_)) = &done {
            // What nobody was told is kept must not be found later, as far as that can be helped.
            let _ = log.cut(page.index.end);
        }
        done
    }

    /// Opens the log that was put in the place of the one that is known.
    fn open_again(&self, writer: &mut Writer, connection: &Connection) -> Result<(), Refused> {
        let Some(path) = &self.path else { return Ok(()) };
        let (log, about) = open_log(path, connection)?;
        writer.index = Index::new(about.reflected);
        self.take_log(writer, log);
        Ok(())
    }

    /// Goes on with another log.
    pub(super) fn take_log(&self, writer: &mut Writer, log: Log) {
        writer.log = Arc::new(log);
        self.shelves.set_log(writer.log.clone());
    }

    /// The log that is there now.
    pub(super) fn current_log(&self, connection: &Connection) -> Result<Arc<Log>, Refused> {
        let log = self.shelves.log();
        match &self.path {
            Some(path) if log.is_replaced()? => {
                let log = Arc::new(open_log(path, connection)?.0);
                self.shelves.set_log(log.clone());
                Ok(log)
            }
            _ => Ok(log),
        }
    }

    /// Moves everything from SQLite's own log into the file.
    pub(super) fn checkpoint(&self) -> Result<()> {
        if self.moved("PRAGMA wal_checkpoint(TRUNCATE)")? {
            let message = format!("{} is being read, and its log still holds what was removed", self.uri);
            return Err(Error::new(ErrorKind::Conflict, message).with_hint("do it again when nobody reads it"));
        }
        Ok(())
    }

    /// The same as far as nobody is in the way.
    pub(super) fn tidy(&self) -> Result<()> {
        self.moved("PRAGMA wal_checkpoint(PASSIVE)").map(|_| ())
    }

    /// Whether somebody was in the way.
    fn moved(&self, how: &str) -> Result<bool> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = writer.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = connection.query_row(how, [], |row| row.get(0));
        moved.map_err(|error| trouble(&self.uri, "write to", error))
    }
}

/// How much room for a group is kept for the next one, in bytes.
const GROUP_KEPT: usize = 16 << 20;

/// Why nothing can be written now.
fn busy(uri: &str) -> Error {
    Error::new(ErrorKind::Store, format_args!("cannot write to {uri}: another process keeps it locked"))
        .with_hint("see whether one that writes to it was stopped")
}

/// The log beside a database, if it is the one that the database speaks of.
pub(super) fn open_log(database: &Path, connection: &Connection) -> Result<(Log, About), Refused> {
    let path = log_of(database);
    let told = |what: &str| {
        Error::new(ErrorKind::Damaged, format_args!("{} {what}", path.display()))
            .with_hint("a store is both files: copy and move them together")
    };
    let about = schema::about(connection)?;
    let log = match Log::open(&path) {
        Ok(log) => log,
        Err(Unfit::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Err(told("is missing: it holds the steps of the store").into());
        }
        Err(Unfit::Io(error)) => return Err(error.into()),
        Err(Unfit::Damaged) => return Err(told("is damaged: where it begins it was changed or cut").into()),
    };
    if log.store() != about.store {
        return Err(told("is of another store").into());
    }
    if log.base() > about.reflected {
        return Err(told("is newer than its database, which has to be restored with it").into());
    }
    Ok((log, about))
}

/// Why a database is not made beside a log that is there.
pub(super) fn without_database(log: &Path) -> Error {
    Error::new(ErrorKind::Damaged, format_args!("{} holds steps, and the database beside it is missing", log.display()))
        .with_hint("a store is both files: copy and move them together")
}
