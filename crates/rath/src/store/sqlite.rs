//! A store in one SQLite file, to be looked at with any tool that opens one.
//!
//! Steps are rows in the order in which they were appended, whatever session they are of: a group of a thousand sessions
//! then fills the same few pages, where a table ordered by session would touch a thousand. So there is no index by id; a
//! step is found through its children, which hold its row. Every row is sealed: SQLite does not notice when a byte of a page
//! changes.

mod rows;
mod schema;
mod walk;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rath_record::chunk::Chunk;
use rath_record::{BranchId, Digest, Kept, Link, Payload, Shelf, Step, StepId};
use rusqlite::ErrorCode::{DiskFull, SystemIoFailure};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use self::rows::{BranchRow, StepRow};
use self::schema::Table;
use super::desk::again;
use super::holder::{LEASE, now};
use super::registry::Create;
use super::{
    Check, FIRST, Freed, Holder, Listed, Read, Right, Rows, StoreBackend, Write, fenced, held, make_folder, moved,
    not_kept, orphan, sync_folder, trouble,
};
use crate::error::{Error, ErrorKind, Result};

/// How long the log may get while there is no time to move it into the file, in bytes.
const LOG_MOST: u64 = 64 << 20;

/// A store in one SQLite file.
pub struct Sqlite {
    uri: String,
    path: Option<PathBuf>,
    writer: Mutex<Writer>,
    reader: Arc<Mutex<Connection>>,
    lease: Duration,
}

/// The connection that writes, and what it knows of the branches that it holds.
struct Writer {
    connection: Arc<Mutex<Connection>>,
    held: HashMap<BranchId, BranchRow>,
    /// Those of them that nobody else can have taken since they were looked at in the file.
    sure: HashSet<BranchId>,
    /// The row of this process among those who write.
    own: Option<i64>,
    /// Changes when somebody else has written.
    version: i64,
    /// Why nothing further is written: after a failure of the disk nobody knows what is on it.
    broken: Option<Error>,
}

impl Sqlite {
    /// Opens the file, and makes it, and the folder that it is in, if that is wanted.
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
        schema::check_log(file).map_err(|error| trouble(&uri, "read", error))??;
        let open = || -> rusqlite::Result<_> {
            let writer = Connection::open(file)?;
            if schema::is_of_others(&writer)? {
                return Ok(None);
            }
            schema::prepare(&writer)?;
            let reader = Connection::open(file)?;
            schema::settings(&reader)?;
            Ok(Some((writer, reader)))
        };
        let opened = open().map_err(|error| schema::told(&uri, error))?;
        let (writer, reader) = opened.ok_or_else(|| schema::of_others(&uri))?;
        schema::check_version(&reader, &uri)?;
        // The names of the file and of its log are durable before anything in them is: SQLite does not insist on it.
        sync_folder(file).map_err(|error| trouble(&uri, "write to", error))?;
        Ok(Sqlite::with(uri, Some(file.to_owned()), writer, Some(reader)))
    }

    /// A store that lasts as long as the handle.
    pub fn in_memory() -> Result<Self> {
        let uri = "memory:".to_owned();
        let connection = Connection::open_in_memory().and_then(|connection| {
            schema::prepare(&connection)?;
            Ok(connection)
        });
        let connection = connection.map_err(|error| trouble(&uri, "open", error))?;
        Ok(Sqlite::with(uri, None, connection, None))
    }

    fn with(uri: String, path: Option<PathBuf>, writer: Connection, reader: Option<Connection>) -> Self {
        let connection = Arc::new(Mutex::new(writer));
        let reader = reader.map_or_else(|| connection.clone(), |reader| Arc::new(Mutex::new(reader)));
        Sqlite {
            uri,
            path,
            writer: Mutex::new(Writer {
                connection,
                held: HashMap::new(),
                sure: HashSet::new(),
                own: None,
                version: 0,
                broken: None,
            }),
            reader,
            lease: LEASE,
        }
    }

    /// Sets how long a writer counts as alive after it was heard of last; half a minute unless told.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something as one change, which is durable when it is done.
    fn change<T>(
        &self,
        action: &str,
        work: impl FnOnce(&Connection, &mut Held<'_>) -> Result<T, Refused>,
    ) -> Result<T> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Writer { connection, held, sure, own, version, broken } = &mut *writer;
        if let Some(error) = broken {
            return Err(again(error));
        }
        let known = *own;
        let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let done = transaction.map_err(Refused::Sqlite).and_then(|transaction| {
            let now = transaction.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
            if std::mem::replace(version, now) != now {
                sure.clear();
            }
            let done = work(&transaction, &mut Held { branches: held, sure, own, lease: self.lease })?;
            transaction.commit()?;
            Ok(done)
        });
        done.map_err(|refused| {
            // What was noted on the way is not in the file.
            *own = known;
            match refused {
                Refused::Told(error) => error,
                Refused::Sqlite(error) => {
                    let fatal = matches!(error.sqlite_error_code(), Some(SystemIoFailure | DiskFull));
                    let error = trouble(&self.uri, action, error);
                    if fatal {
                        broken.get_or_insert_with(|| again(&error));
                    }
                    error
                }
            }
        })
    }

    fn no_such(&self, branch: BranchId) -> Error {
        Error::new(ErrorKind::NoSuchSession, format_args!("no session {branch} in {}", self.uri))
            .with_hint("`rath ls` lists them")
    }
}

struct Held<'a> {
    branches: &'a mut HashMap<BranchId, BranchRow>,
    sure: &'a mut HashSet<BranchId>,
    own: &'a mut Option<i64>,
    lease: Duration,
}

impl Held<'_> {
    fn insert(&mut self, row: BranchRow) {
        self.sure.insert(row.id);
        self.branches.insert(row.id, row);
    }

    fn remove(&mut self, branch: BranchId) {
        self.sure.remove(&branch);
        self.branches.remove(&branch);
    }

    /// Forgets a branch that somebody took meanwhile, which is for the file to say. True if it was one.
    fn let_go_if_lost(&mut self, connection: &Connection, branch: BranchId) -> rusqlite::Result<bool> {
        let Some(row) = self.branches.get(&branch) else { return Ok(false) };
        if self.sure.contains(&branch) || row.is_held(connection)? {
            self.sure.insert(branch);
            return Ok(false);
        }
        self.remove(branch);
        Ok(true)
    }
}

/// Why something was not done.
enum Refused {
    /// For a reason that is told as it is.
    Told(Error),
    /// Because SQLite could not.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Self {
        Refused::Sqlite(error)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Told(error)
    }
}

impl StoreBackend for Sqlite {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn write(&self, group: &[Write], rows: &Rows) -> Result<Vec<Result<()>>> {
        let answers = self.change("write to", |connection, held| {
            let mut last: i64 =
                connection.prepare_cached("SELECT coalesce(max(n), 0) FROM steps")?.query_row([], |row| row.get(0))?;
            let mut answers = Vec::with_capacity(group.len());
            for write in group {
                answers.push(append(connection, held, write, rows, &mut last)?);
            }
            Ok(answers)
        })?;
        // Moving the log into the file costs as much as writing it: that is put off until there is time, or too much of it.
        if self.log_size() > LOG_MOST {
            // What is in the log is durable as it is.
            let _ = self.tidy();
        }
        Ok(answers)
    }

    fn rest(&self) -> Result<()> {
        self.tidy()
    }

    fn claim(&self, branch: BranchId, holder: &Holder) -> Result<u64> {
        self.change("write to", |connection, known| {
            let mut row = BranchRow::find(connection, branch)?.ok_or_else(|| self.no_such(branch))?.checked()?;
            // What this process let go of without a word is its own to take again.
            if row.writer.is_none() || row.writer != *known.own || known.branches.contains_key(&branch) {
                refuse_if_held(connection, &row)?;
            }
            row.writer = Some(own_row(connection, known, holder)?);
            row.epoch += 1;
            row.update(connection)?;
            let epoch = row.epoch;
            known.insert(row);
            Ok(epoch)
        })
    }

    fn release(&self, rights: &[(BranchId, u64)]) -> Result<()> {
        self.change("write to", |connection, held| {
            for (branch, epoch) in rights {
                // Somebody in this process may hold it by a newer right.
                if held.branches.get(branch).is_some_and(|row| row.epoch == *epoch) {
                    held.remove(*branch);
                }
                let row = BranchRow::find(connection, *branch)?.filter(|row| row.epoch == *epoch);
                if let Some(mut row) = row.filter(|row| row.is_whole()) {
                    row.writer = None;
                    row.update(connection)?;
                }
            }
            Ok(())
        })
    }

    fn lease(&self) -> Duration {
        self.lease
    }

    fn renew(&self, _: &Holder) -> Result<()> {
        self.change("write to", |connection, held| {
            if let Some(own) = *held.own {
                connection.execute("UPDATE writers SET expires = ? WHERE w = ?", params![expiry(held.lease), own])?;
            }
            Ok(())
        })
    }

    fn list(&self) -> Result<Vec<Listed>> {
        let connection = self.reader();
        walk::list(&connection).map_err(|error| schema::told(&self.uri, error))?
    }

    fn listed(&self, branch: BranchId) -> Result<Option<Listed>> {
        let connection = self.reader();
        let found = BranchRow::find(&connection, branch).map_err(|error| schema::told(&self.uri, error))?;
        let Some(row) = found else { return Ok(None) };
        let row = row.checked()?;
        let writer = row.writer.map(|writer| writer_of(&connection, writer)).transpose();
        let writer = writer.map_err(|error| schema::told(&self.uri, error))?.flatten();
        Ok(Some(row.listed(writer.map(|(holder, _)| holder))))
    }

    fn read(&self, branch: BranchId, rows: &Arc<Rows>) -> Result<Read> {
        let connection = self.reader();
        let told = |error| schema::told(&self.uri, error);
        // Everything of one moment: somebody may be writing.
        let moment = connection.unchecked_transaction().map_err(told)?;
        let row = BranchRow::find(&moment, branch).map_err(told)?.ok_or_else(|| self.no_such(branch))?.checked()?;
        let writer = row.writer.map(|writer| writer_of(&moment, writer)).transpose().map_err(told)?.flatten();
        let head = row.head;
        let listed = row.listed(writer.map(|(holder, _)| holder));
        let damage = walk::check(&moment, [head]).map_err(told)?.damage;
        drop(moment);
        drop(connection);
        let head = walk::Library::new(self.reader.clone(), rows.clone()).fetch(head.unsigned_abs(), listed.head);
        Ok(Read { listed, head, damage })
    }

    fn pieces(&self, branch: BranchId, rows: &Arc<Rows>) -> Result<Vec<Step>> {
        let connection = self.reader();
        let found = BranchRow::find(&connection, branch).map_err(|error| schema::told(&self.uri, error))?;
        let row = found.ok_or_else(|| self.no_such(branch))?;
        let heads = walk::pieces(&connection, &row).map_err(|error| schema::told(&self.uri, error))?;
        drop(connection);
        let library = walk::Library::new(self.reader.clone(), rows.clone());
        Ok(heads.into_iter().filter_map(|(n, id)| library.fetch(n.unsigned_abs(), id)).collect())
    }

    fn check(&self) -> Result<Check> {
        walk::check_all(&self.reader()).map_err(|error| schema::told(&self.uri, error))
    }

    fn forget(&self, branch: BranchId, step: StepId) -> Result<()> {
        self.change("write to", |connection, _| {
            let row = BranchRow::find(connection, branch)?.ok_or_else(|| self.no_such(branch))?.checked()?;
            refuse_if_held(connection, &row)?;
            let Some(mut found) = walk::find(connection, row.head, step)? else {
                let message = format!("no step {} in the session {}", step.short(), branch.short());
                return Err(Error::new(ErrorKind::NoSuchStep, message).into());
            };
            let chunk = Chunk::decode(&found.chunk).map_err(|error| Error::new(ErrorKind::Store, error))?;
            found.withheld.get_or_insert_with(|| Digest::of(found.chunk.as_bytes()));
            let mut json = Vec::new();
            chunk.forgotten().encode(&mut json);
            found.chunk = String::from_utf8(json).expect("JSON is UTF-8");
            found.replace(connection)?;
            // What other steps say as well stays theirs.
            for digest in chunk.references() {
                if !walk::is_named(connection, &digest)? {
                    connection.execute("UPDATE payloads SET data = NULL WHERE digest = ?", params![&digest.0[..]])?;
                }
            }
            // A list must not go on saying it.
            if let Chunk::User(user) = &chunk
                && let Some(title) = super::title(&user.text)
            {
                for mut row in BranchRow::entitled(connection, row.family, &title)? {
                    row.title = "[forgotten]".into();
                    row.update(connection)?;
                }
            }
            Ok(())
        })?;
        // What is gone must not stand in the log either.
        self.flush()
    }

    fn delete(&self, family: BranchId) -> Result<()> {
        self.change("write to", |connection, held| {
            let branches = BranchRow::of_family(connection, family)?;
            if branches.is_empty() {
                return Err(self.no_such(family).into());
            }
            for row in &branches {
                refuse_if_held(connection, row)?;
                connection.execute("DELETE FROM branches WHERE b = ?", params![row.b])?;
                held.remove(row.id);
            }
            schema::count(connection, Table::Branches)?;
            Ok(())
        })
    }

    fn compact(&self) -> Result<Freed> {
        let before = self.size();
        let steps = self.change("write to", |connection, _| Ok(walk::sweep(connection)?))?;
        self.flush()?;
        {
            let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let connection = writer.connection.lock().unwrap_or_else(PoisonError::into_inner);
            connection.execute_batch("VACUUM").map_err(|error| trouble(&self.uri, "compact", error))?;
        }
        self.flush()?;
        Ok(Freed { bytes: before.saturating_sub(self.size()), steps })
    }
}

impl Sqlite {
    /// Moves everything from the log into the file.
    fn flush(&self) -> Result<()> {
        if self.checkpoint("PRAGMA wal_checkpoint(TRUNCATE)")? {
            let message = format!("{} is being read, and its log still holds what was removed", self.uri);
            return Err(Error::new(ErrorKind::Conflict, message).with_hint("do it again when nobody reads it"));
        }
        Ok(())
    }

    /// The same as far as nobody is in the way.
    fn tidy(&self) -> Result<()> {
        self.checkpoint("PRAGMA wal_checkpoint(PASSIVE)").map(|_| ())
    }

    /// Whether somebody was in the way.
    fn checkpoint(&self, how: &str) -> Result<bool> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = writer.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let flushed = connection.query_row(how, [], |row| row.get(0));
        flushed.map_err(|error| trouble(&self.uri, "write to", error))
    }

    /// How long the log is.
    fn log_size(&self) -> u64 {
        self.path.as_deref().map_or(0, |path| std::fs::metadata(schema::log_of(path)).map_or(0, |file| file.len()))
    }

    fn size(&self) -> u64 {
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        self.path.as_deref().map_or(0, size)
    }
}

/// Appends to one branch. The outer error is the store's, the inner one is for whoever wanted it.
fn append(
    connection: &Connection,
    held: &mut Held<'_>,
    write: &Write,
    rows: &Rows,
    last: &mut i64,
) -> Result<Result<()>, Refused> {
    // Whether it may be written is found out before anything is.
    let lost = held.let_go_if_lost(connection, write.branch)?;
    match (&write.right, held.branches.get(&write.branch)) {
        (Right::New(_), Some(_)) => return Ok(Err(moved(write.branch))),
        (Right::New(_), None) => {
            if BranchRow::find(connection, write.branch)?.is_some() {
                return Ok(Err(moved(write.branch)));
            }
        }
        (Right::Held(epoch), Some(row)) if row.epoch == *epoch => {
            if Some(row.head_id) != write.after {
                return Ok(Err(moved(write.branch)));
            }
        }
        _ => {
            let found = if lost { BranchRow::find(connection, write.branch)? } else { None };
            let writer = found.and_then(|row| row.writer).map(|writer| writer_of(connection, writer)).transpose()?;
            let writer = writer.flatten().map(|(holder, _)| holder);
            return Ok(Err(fenced(write.branch, writer.as_ref())));
        }
    }
    let Some(head) = write.steps.last() else { return Ok(Ok(())) };
    if let Some(parent) = orphan(write, rows) {
        return Ok(Err(not_kept(parent)));
    }
    // On a branch of its own nothing can be deleted meanwhile; elsewhere it can, with what goes on from it.
    for link in write.steps.iter().flat_map(|step| step.parents().iter().filter(|link| is_elsewhere(link, step))) {
        if let Kept::At(at) = rows.of(link)
            && !StepRow::is_there(connection, at, link.id())?
        {
            return Ok(Err(not_kept(link.id())));
        }
    }
    let mut others: HashMap<BranchId, (i64, &Step)> = HashMap::new();
    for step in &write.steps {
        *last += 1;
        insert(connection, step, rows, *last)?;
        let branch = step.stamp().branch;
        if branch != write.branch {
            others.insert(branch, (*last, step));
        }
        for parent in step.parents().iter().filter_map(Link::step).filter(|parent| parent.stamp().branch != branch) {
            follow(connection, held, parent, rows)?;
        }
    }
    for (branch, (n, step)) in others {
        if BranchRow::find(connection, branch)?.is_none() {
            let title = super::recorder::about(branch, step, &write.steps).unwrap_or_default();
            BranchRow::new(branch, write.family, (n, step), title).insert(connection)?;
        }
    }
    match held.branches.get_mut(&write.branch) {
        Some(row) => {
            row.move_to(*last, head);
            write.title.iter().for_each(|title| row.title = title.clone());
            row.update(connection)?;
        }
        None => {
            let mut row =
                BranchRow::new(write.branch, write.family, (*last, head), write.title.clone().unwrap_or_default());
            if let Right::New(holder) = &write.right {
                row.writer = Some(own_row(connection, held, holder)?);
                row.epoch = FIRST;
            }
            row.insert(connection)?;
            held.insert(row);
        }
    }
    Ok(Ok(()))
}

/// Whether a parent is known to be, or may be, on another branch than its child.
fn is_elsewhere(link: &Link, child: &Step) -> bool {
    match link {
        Link::Step(parent) => parent.stamp().branch != child.stamp().branch,
        Link::Shelved(_) => true,
        Link::Gone(_) => false,
    }
}

/// Writes one step, and its payloads before it.
fn insert(connection: &Connection, step: &Step, rows: &Rows, n: i64) -> rusqlite::Result<()> {
    for (digest, payload) in step.chunk().payloads() {
        let is_text = matches!(payload, Payload::Text(_));
        connection
            .prepare_cached(
                "INSERT INTO payloads(digest, is_text, data) VALUES (?, ?, ?)
                 ON CONFLICT(digest) DO UPDATE SET data = excluded.data WHERE data IS NULL",
            )?
            .execute(params![&digest.0[..], is_text, payload.bytes()])?;
    }
    StepRow::of(step, n, |link| match rows.of(link) {
        Kept::At(at) => i64::try_from(at).unwrap_or_default(),
        Kept::No | Kept::Soon => 0,
    })
    .insert(connection)?;
    rows.set(step, Kept::At(n as u64));
    Ok(())
}

/// Notes that another branch goes on from where one ends.
fn follow(connection: &Connection, held: &mut Held<'_>, parent: &Step, rows: &Rows) -> rusqlite::Result<()> {
    let Kept::At(at) = rows.of_step(parent) else { return Ok(()) };
    let branch = parent.stamp().branch;
    held.let_go_if_lost(connection, branch)?;
    let row = match held.branches.get(&branch) {
        Some(row) => Some(row.clone()),
        None => BranchRow::find(connection, branch)?.filter(BranchRow::is_whole),
    };
    if let Some(mut row) = row.filter(|row| row.head as u64 == at) {
        row.followed = row.head;
        row.update(connection)?;
        held.branches.entry(branch).and_modify(|known| *known = row);
    }
    Ok(())
}

/// Whether nobody writes a branch who may be alive.
fn refuse_if_held(connection: &Connection, row: &BranchRow) -> Result<(), Refused> {
    if let Some(writer) = row.writer
        && let Some((holder, expires)) = writer_of(connection, writer)?
        && !holder.is_dead()
        && expires > now()
    {
        return Err(held(row.id, &holder).into());
    }
    Ok(())
}

/// The row of this process among those who write.
fn own_row(connection: &Connection, held: &mut Held<'_>, holder: &Holder) -> rusqlite::Result<i64> {
    if let Some(own) = *held.own {
        return Ok(own);
    }
    connection
        .execute("INSERT INTO writers(who, expires) VALUES (?, ?)", params![holder.to_json(), expiry(held.lease)])?;
    Ok(*held.own.insert(connection.last_insert_rowid()))
}

/// Who writes, and until when it counts as alive without being heard of.
fn writer_of(connection: &Connection, writer: i64) -> rusqlite::Result<Option<(Holder, i64)>> {
    let found = connection
        .prepare_cached("SELECT who, expires FROM writers WHERE w = ?")?
        .query_row([writer], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))
        .optional()?;
    Ok(found.and_then(|(who, expires)| Some((Holder::from_json(&who)?, expires))))
}

fn expiry(lease: Duration) -> i64 {
    now().saturating_add(i64::try_from(lease.as_micros()).unwrap_or(i64::MAX))
}
