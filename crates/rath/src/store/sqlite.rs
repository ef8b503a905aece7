//! A store in a SQLite file and a log beside it.
//!
//! Every step goes to the end of the log, whatever session it is of, and what is said of branches with it: a group of a
//! thousand sessions is one write and one sync. The log is the truth. The database is an index to it, to be looked at with
//! any tool that opens one: it says where every branch stands, and holds what is too long for a row. It is brought up to
//! date when there is time, and before anybody reads from it.
//!
//! There is no index by id; a step is found through its children, which hold its place. Every entry is sealed: nobody else
//! notices when a byte changes.

mod branch;
mod change;
mod entry;
mod index;
mod log;
mod page;
mod pages;
mod rewrite;
mod schema;
mod wal;
mod walk;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use rath_record::{BranchId, Step, StepId, StepSource};
use rusqlite::{Connection, params};

use self::branch::BranchRow;
use self::change::{Refused, Writer};
use self::index::Index;
use self::log::{Log, log_of};
use self::page::expiry;
use self::pages::FIRST_PLACE;
use self::walk::{Library, Shelves};
use super::holder::LEASE;
use super::registry::Create;
use super::{Check, Freed, Holder, Listed, Read, Rows, StoreBackend, Write, make_folder, sync_folder, trouble};
use crate::error::ErrorKind;
use crate::session::{Error, Result};

/// How much of the log the database may be behind while there is no time to bring it up to date, in bytes.
const BEHIND_MOST: u64 = 64 << 20;

/// A store in a SQLite file and a log beside it.
pub struct Sqlite {
    uri: String,
    path: Option<PathBuf>,
    writer: Mutex<Writer>,
    shelves: Arc<Shelves>,
    lease: Duration,
}

impl Sqlite {
    /// Opens the files, and makes them, and the folder that they are in, if that is wanted.
    pub fn open(path: &str, create: Create) -> Result<Self> {
        let uri = format!("sqlite:{path}");
        if path.is_empty() {
            return Err(Error::new(ErrorKind::Store, "no file is named").with_hint("write `sqlite:.rath/rath.db`"));
        }
        let file = Path::new(path);
        if !file.exists() {
            if create == Create::Never {
                return Err(Error::new(ErrorKind::Store, format_args!("there is no store at {path}"))
                    .with_hint("`rath run` makes one; `--store` names another"));
            }
            make_folder(file.parent().unwrap_or(Path::new(""))).map_err(|error| trouble(&uri, "make", error))?;
        }
        // A database has a header of a hundred bytes. One with less was cut; one with nothing may never have been written.
        let length = std::fs::metadata(file).map_or(0, |file| file.len());
        if (1..100).contains(&length) || (length == 0 && file.exists() && create == Create::Never) {
            let message = format!("{uri} is damaged: it was cut off at its beginning, and holds nothing");
            return Err(Error::new(ErrorKind::Damaged, message));
        }
        wal::check(file).map_err(|error| trouble(&uri, "read", error))??;
        let make_log = || {
            let made = Log::create(&log_of(file), uuid::Uuid::now_v7().into_bytes());
            // Its name is durable before a database says that it is there.
            let made = made.and_then(|made| sync_folder(file).map(|()| made));
            let made = made.map_err(|error| trouble(&uri, "write to", error))?;
            made.map(|log| log.store()).ok_or_else(|| change::without_database(&log_of(file)))
        };
        let open = || -> rusqlite::Result<_> {
            let writer = Connection::open(file)?;
            if schema::is_of_others(&writer)? {
                return Ok(Err(schema::of_others(&uri)));
            }
            if let Err(error) = schema::prepare(&writer, make_log)? {
                return Ok(Err(error));
            }
            let reader = Connection::open(file)?;
            schema::settings(&reader)?;
            Ok(Ok((writer, reader)))
        };
        let (writer, reader) = open().map_err(|error| schema::told(&uri, error))??;
        schema::check_version(&reader, &uri)?;
        // The names of the file and of its log are durable before anything in them is: SQLite does not insist on it.
        sync_folder(file).map_err(|error| trouble(&uri, "write to", error))?;
        let opened = change::open_log(file, &reader).and_then(|(log, about)| Ok((log.end()?, log, about)));
        let (end, log, about) = opened.map_err(|refused| refused.told(&uri, "read"))?;
        let mut store = Sqlite::with(uri, Some(file.to_owned()), writer, Some(reader), (log, about.reflected));
        if end < about.reflected {
            let writer = store.writer.get_mut().unwrap_or_else(PoisonError::into_inner);
            writer.broken = Some(schema::shorter(about.reflected - end));
        }
        Ok(store)
    }

    /// A store that lasts as long as the handle.
    pub fn in_memory() -> Result<Self> {
        let uri = "memory:".to_owned();
        let log = Log::in_memory(uuid::Uuid::now_v7().into_bytes());
        let connection = Connection::open_in_memory().and_then(|connection| {
            let prepared = schema::prepare(&connection, || Ok(log.store()))?;
            Ok(prepared.map(|()| connection))
        });
        let connection = connection.map_err(|error| trouble(&uri, "open", error))??;
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
            shelves: Arc::new(Shelves { connection: reader, log: RwLock::new(log.clone()) }),
            writer: Mutex::new(Writer {
                connection,
                log,
                index: Index::new(reflected),
                held: HashSet::new(),
                own: None,
                group: Vec::new(),
                broken: None,
            }),
            lease: LEASE,
        }
    }

    /// Sets how long a writer counts as alive after it was heard of last; half a minute unless told.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.shelves.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads something that is up to date.
    fn reading<T>(&self, work: impl FnOnce(&Connection, &Log) -> Result<T, Refused>) -> Result<T> {
        self.settle()?;
        let read = || {
            let connection = self.reader();
            // Everything of one moment: somebody may be writing.
            let moment = connection.unchecked_transaction()?;
            schema::about(&moment)?;
            work(&moment, &*self.current_log(&moment)?)
        };
        read().map_err(|refused| refused.told(&self.uri, "read"))
    }

    fn no_such(&self, branch: BranchId) -> Error {
        Error::new(ErrorKind::NoSuchSession, format_args!("no session {branch} in {}", self.uri))
            .with_hint("`rath ls` lists them")
    }
}

impl StoreBackend for Sqlite {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn write(&self, group: &[Write], rows: &Rows) -> Result<Vec<Result<()>>> {
        self.change(|page| {
            let mut answers = Vec::with_capacity(group.len());
            for write in group {
                answers.push(page.append(write, rows)?);
            }
            if page.index.is_ahead_by() > BEHIND_MOST {
                // What this group says comes after it.
                page.finish()?;
                page.begin();
                // It is written in any case, and can be said later; unless the disk failed.
                page.index.flush(page.connection, *page.own).or_else(Refused::if_fatal)?;
            }
            Ok(answers)
        })
    }

    fn rest(&self) -> Result<()> {
        self.settle()?;
        self.tidy()
    }

    fn claim(&self, branch: BranchId, holder: &Holder) -> Result<u64> {
        self.change(|page| Ok(page.claim(branch, holder)?.ok_or_else(|| self.no_such(branch))?))
    }

    fn release(&self, rights: &[(BranchId, u64)]) -> Result<()> {
        self.change(|page| rights.iter().try_for_each(|(branch, epoch)| page.release(*branch, *epoch)))
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
        renewed.map(|_| ()).map_err(|error| trouble(&self.uri, "write to", error))
    }

    fn list(&self) -> Result<Vec<Listed>> {
        self.reading(|connection, _| walk::list(connection))
    }

    fn listed(&self, branch: BranchId) -> Result<Option<Listed>> {
        self.look(|page| page.listed(branch).map(|found| found.map(|(_, listed)| listed)))
    }

    fn read(&self, branch: BranchId, rows: &Arc<Rows>) -> Result<Read> {
        let found = self.look(|page| {
            // Where something could not be read, that is for everybody to know.
            if page.index.is_wounded() {
                page.index.flush(page.connection, *page.own)?;
            }
            page.listed(branch)
        })?;
        let (row, listed) = found.ok_or_else(|| self.no_such(branch))?;
        let checked = {
            let connection = self.reader();
            self.current_log(&connection).and_then(|log| walk::check(&connection, &log, &row))
        };
        let damage = checked.map_err(|refused| refused.told(&self.uri, "read"))?;
        let head = Library::new(self.shelves.clone(), rows.clone()).fetch(row.head, row.head_id);
        Ok(Read { listed, head, damage })
    }

    fn pieces(&self, branch: BranchId, rows: &Arc<Rows>) -> Result<Vec<Step>> {
        let heads = self.reading(|connection, log| {
            let row = BranchRow::find(connection, branch)?.ok_or_else(|| self.no_such(branch))?;
            let mut kin = HashSet::from([branch]);
            if let Ok(row) = &row {
                kin.extend(BranchRow::of_family(connection, row.family)?);
            }
            walk::pieces(log, row.ok().map(|row| row.head), &kin)
        })?;
        let library = Library::new(self.shelves.clone(), rows.clone());
        Ok(heads.into_iter().filter_map(|(place, id)| library.fetch(place, id)).collect())
    }

    fn check(&self) -> Result<Check> {
        self.reading(walk::check_all)
    }

    fn forget(&self, branch: BranchId, step: StepId) -> Result<()> {
        self.forget_step(branch, step)
    }

    fn delete(&self, family: BranchId) -> Result<()> {
        self.change(|page| {
            page.index.flush(page.connection, *page.own)?;
            let branches = BranchRow::of_family(page.connection, family)?;
            if branches.is_empty() {
                return Err(self.no_such(family).into());
            }
            for branch in &branches {
                if let Some(row) = page.index.get(page.connection, *branch)?.cloned() {
                    page.refuse_if_held(&row)?;
                }
            }
            branches.into_iter().for_each(|branch| page.remove(branch));
            Ok(())
        })
    }

    fn compact(&self) -> Result<Freed> {
        self.compact_all()
    }
}

/// What was written is said in the database before the files are let go.
impl Drop for Sqlite {
    fn drop(&mut self) {
        let _ = self.settle();
    }
}
