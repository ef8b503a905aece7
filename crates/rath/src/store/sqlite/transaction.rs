//! Transactions that write: one at a time across processes, each with all that was committed before.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rath_record::{BranchId, Parent, Step, StorageState};
use rusqlite::ErrorCode::{DiskFull, SystemIoFailure};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::super::holder::now;
use super::super::{
    FIRST_EPOCH, Holder, StepPlaces, WriteRight, branch_held, branch_moved, missing_parent, parent_not_stored,
    right_lost,
};
use super::branch_row::{BranchRow, NewHead};
use super::payload;
use super::prepared::PreparedWrite;
use super::schema::StoreConnection;
use super::{Sqlite, scan, schema, step_row};
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The state of the writer.
pub(super) struct SqliteWriter {
    pub(super) connection: Arc<Mutex<StoreConnection>>,
    /// Rows of branches as they are in the database, unless another connection has written to it.
    known: HashMap<BranchId, KnownBranch>,
    /// The highest places of a step and of a branch.
    newest_step: u64,
    newest_branch: i64,
    /// SQLite's number for the state of the database that `known` is from.
    data_version: i64,
    /// The branches that this process writes.
    held: HashSet<BranchId>,
    /// The number of this process among the writers of the store.
    pub(super) own: Option<u64>,
    /// The reason why nothing further is written: after a failure of the disk its content is unknown.
    pub(super) broken: Option<StoreError>,
    /// A buffer for packed rows.
    scratch: Vec<u8>,
}

struct KnownBranch {
    row: BranchRow,
    /// True until the row was inserted.
    is_new: bool,
    /// True if the row differs from the table.
    is_changed: bool,
}

/// A failure inside a transaction. [`TransactionError::describe`] makes a [`StoreError`] of it.
pub(super) enum TransactionError {
    /// An error that is complete already.
    Store(StoreError),
    /// An error of SQLite.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for TransactionError {
    fn from(error: rusqlite::Error) -> Self {
        TransactionError::Sqlite(error)
    }
}

impl From<StoreError> for TransactionError {
    fn from(error: StoreError) -> Self {
        TransactionError::Store(error)
    }
}

impl TransactionError {
    /// Makes an error that names the store and the action.
    pub(super) fn describe(self, uri: &str, path: Option<&Path>, action: &str) -> StoreError {
        match self {
            TransactionError::Store(error) => error,
            TransactionError::Sqlite(error) => schema::describe(uri, path, action, error),
        }
    }

    /// Returns true if the content of the disk is unknown after this error.
    fn is_fatal(&self) -> bool {
        match self {
            TransactionError::Store(_) => false,
            TransactionError::Sqlite(error) => matches!(error.sqlite_error_code(), Some(SystemIoFailure | DiskFull)),
        }
    }
}

impl SqliteWriter {
    pub(super) fn new(connection: Arc<Mutex<StoreConnection>>, broken: Option<StoreError>) -> Self {
        SqliteWriter {
            connection,
            known: HashMap::new(),
            newest_step: 0,
            newest_branch: 0,
            data_version: UNKNOWN_DATA_VERSION,
            held: HashSet::new(),
            own: None,
            broken,
            scratch: Vec::new(),
        }
    }
}

impl Sqlite {
    /// Runs a transaction, which is durable on return.
    pub(super) fn write_transaction<T>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<T> {
        let mut writer = self.writer();
        if let Some(error) = &writer.broken {
            return Err(error.duplicate());
        }
        let connection = writer.connection.clone();
        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let own = writer.own;
        let done = commit(&mut writer, &connection, self.lease, work);
        done.map_err(|error| {
            writer.own = own;
            let is_fatal = error.is_fatal();
            let error = error.describe(&self.uri, self.path.as_deref(), "write to");
            if is_fatal {
                writer.broken.get_or_insert_with(|| error.duplicate());
            }
            error
        })
    }
}

fn commit<T>(
    writer: &mut SqliteWriter,
    connection: &Connection,
    lease: Duration,
    work: impl FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError>,
) -> Result<T, TransactionError> {
    // Rolled back when it is dropped without a commit.
    let immediate = rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let data_version = schema::number(connection, "PRAGMA data_version")?;
    // Until the commit, the rows in memory may differ from the database.
    if std::mem::replace(&mut writer.data_version, UNKNOWN_DATA_VERSION) != data_version {
        writer.known.clear();
        writer.newest_step = schema::newest(connection, "steps")?.cast_unsigned();
        writer.newest_branch = schema::newest(connection, "branches")?;
        if writer.newest_step.cast_signed().max(writer.newest_branch) > schema::MAX_ROWID {
            let message = "the store is damaged: the numbers of its rows were changed";
            return Err(StoreError::new(StoreErrorKind::Damaged, message).into());
        }
    }
    let mut transaction = Transaction { connection, writer, lease, changed: Vec::new() };
    let done = work(&mut transaction)?;
    transaction.save()?;
    immediate.commit()?;
    writer.data_version = data_version;
    Ok(done)
}

/// A number that SQLite gives to no state of a database.
const UNKNOWN_DATA_VERSION: i64 = -1;

/// A transaction that writes. No other connection writes until it ends.
pub(super) struct Transaction<'a> {
    pub(super) connection: &'a Connection,
    writer: &'a mut SqliteWriter,
    lease: Duration,
    /// The branches whose rows differ from the table.
    changed: Vec<(i64, BranchId)>,
}

impl Transaction<'_> {
    /// Writes the changed rows of branches, in the order of their numbers.
    fn save(&mut self) -> rusqlite::Result<()> {
        self.changed.sort_unstable();
        for (_, id) in std::mem::take(&mut self.changed) {
            if let Some(known) = self.writer.known.get_mut(&id) {
                known.row.save(self.connection, known.is_new, &mut self.writer.scratch)?;
                (known.is_new, known.is_changed) = (false, false);
            }
        }
        // Rows that this process does not write are not kept in memory.
        let SqliteWriter { known, own, held, .. } = &mut *self.writer;
        if known.len() > 2 * held.len() + 64 {
            known.retain(|_, known| Some(known.row.writer) == *own);
        }
        Ok(())
    }

    /// Returns the row of a branch.
    pub(super) fn branch(&mut self, id: BranchId) -> Result<Option<&BranchRow>, TransactionError> {
        use std::collections::hash_map::Entry::{Occupied, Vacant};
        Ok(match self.writer.known.entry(id) {
            Occupied(known) => Some(&known.into_mut().row),
            Vacant(unknown) => match BranchRow::find(self.connection, id)?.transpose()? {
                Some(row) => Some(&unknown.insert(KnownBranch { row, is_new: false, is_changed: false }).row),
                None => None,
            },
        })
    }

    /// Changes the row of a branch, if there is one.
    pub(super) fn change(&mut self, id: BranchId, change: impl FnOnce(&mut BranchRow)) -> Result<(), TransactionError> {
        self.branch(id)?;
        if let Some(known) = self.writer.known.get_mut(&id) {
            change(&mut known.row);
            if !std::mem::replace(&mut known.is_changed, true) {
                self.changed.push((known.row.b, id));
            }
        }
        Ok(())
    }

    /// Adds a branch.
    fn add(&mut self, ids: (BranchId, BranchId), head: NewHead<'_>, title: Arc<str>) {
        self.writer.newest_branch += 1;
        let row = BranchRow::new(self.writer.newest_branch, ids, head, title);
        self.changed.push((row.b, row.id));
        self.writer.known.insert(row.id, KnownBranch { row, is_new: true, is_changed: true });
    }

    /// Deletes branches.
    pub(super) fn remove(&mut self, branches: &[BranchId]) -> Result<(), TransactionError> {
        for branch in branches {
            self.connection.execute("DELETE FROM branches WHERE id = ?", params![&branch.0[..]])?;
            self.writer.known.remove(branch);
            self.writer.held.remove(branch);
        }
        schema::count(self.connection, "branches", self.writer.newest_branch)?;
        Ok(schema::count(self.connection, "steps", self.writer.newest_step.cast_signed())?)
    }

    /// Deletes the steps for which `is_kept` returns false. Returns the number of deleted steps.
    pub(super) fn remove_steps(&mut self, mut is_kept: impl FnMut(u64) -> bool) -> Result<u64, TransactionError> {
        let mut places = Vec::new();
        scan::each_row(self.connection, "SELECT s FROM steps WHERE s > ? ORDER BY s", |place, _| places.push(place))?;
        let mut removed = 0;
        for place in places.into_iter().filter(|place| !is_kept(place.cast_unsigned())) {
            removed += self.connection.prepare_cached("DELETE FROM steps WHERE s = ?")?.execute([place])? as u64;
        }
        if removed > 0 {
            // A place is not used again: sessions in memory may refer to it.
            schema::count(self.connection, "steps", self.writer.newest_step.cast_signed())?;
        }
        Ok(removed)
    }

    /// Returns the number of this process among the writers of the store, and adds the process if it is new.
    fn own(&mut self, holder: &Holder) -> Result<u64, TransactionError> {
        if let Some(own) = self.writer.own {
            return Ok(own);
        }
        // A random number: a number that was used once must not return.
        let own = uuid::Uuid::now_v7().as_u64_pair().1 & u64::MAX >> 1;
        renew(self.connection, own, holder, self.lease)?;
        Ok(*self.writer.own.insert(own))
    }

    /// Claims the right to append to a branch.
    pub(super) fn claim(&mut self, branch: BranchId, holder: &Holder) -> Result<Option<u64>, TransactionError> {
        let Some(row) = self.branch(branch)?.cloned() else { return Ok(None) };
        // A right that this process dropped without releasing it can be claimed again by this process.
        if Some(row.writer) != self.writer.own || self.writer.held.contains(&branch) {
            self.refuse_if_held(&row)?;
        }
        let message = "the store is damaged: the session was claimed too often";
        let damaged = || StoreError::new(StoreErrorKind::Damaged, message);
        let (writer, epoch) = (self.own(holder)?, row.epoch.checked_add(1).ok_or_else(damaged)?);
        self.change(branch, |row| (row.writer, row.epoch) = (writer, epoch))?;
        self.writer.held.insert(branch);
        Ok(Some(epoch))
    }

    /// Releases the right to append to a branch, unless there is a newer one.
    pub(super) fn release(&mut self, branch: BranchId, epoch: u64) -> Result<(), TransactionError> {
        match self.branch(branch) {
            Ok(Some(row)) if row.epoch == epoch => {
                self.writer.held.remove(&branch);
                self.change(branch, |row| row.writer = 0)
            }
            // A damaged row is reported to its readers.
            Ok(_) | Err(TransactionError::Store(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Fails if a writer that may be alive holds the branch.
    pub(super) fn refuse_if_held(&self, row: &BranchRow) -> Result<(), TransactionError> {
        if let Some((holder, expires)) = writer_of(self.connection, row.writer)?
            && !holder.is_dead()
            && expires > now()
        {
            return Err(branch_held(row.id, &holder).into());
        }
        Ok(())
    }

    /// Appends to one branch. The outer error is of the store, the inner one is for the writer of this branch.
    pub(super) fn append(
        &mut self,
        write: &PreparedWrite<'_>,
        rows: &StepPlaces,
    ) -> Result<Result<()>, TransactionError> {
        // All checks come before the first change.
        match self.refusal(write, rows) {
            Ok(None) => {}
            Ok(Some(refused)) | Err(TransactionError::Store(refused)) => return Ok(Err(refused)),
            Err(error) => return Err(error),
        }
        let PreparedWrite { write, json, others } = write;
        let Some(head) = write.steps.last() else { return Ok(Ok(())) };
        let (mut last, mut totals) = (0, Vec::new());
        for (step, json) in write.steps.iter().zip(json) {
            totals = step.encode_totals();
            last = self.step(step, json, &totals, rows)?;
        }
        for (branch, nth, title) in others {
            if self.branch(*branch)?.is_none()
                && let StorageState::At(place) = rows.lookup_step(&write.steps[*nth])
            {
                let step = &write.steps[*nth];
                let (totals, signature) = (step.encode_totals(), write.signature(*branch, step));
                self.add((*branch, write.family), NewHead { place, step, totals, signature }, title.clone());
            }
        }
        let head = NewHead { place: last, step: head, totals, signature: write.signature(write.branch, head) };
        if let WriteRight::New(holder) = &write.right {
            let writer = self.own(holder)?;
            self.add((write.branch, write.family), head, write.title.clone().unwrap_or_default());
            self.change(write.branch, |row| (row.writer, row.epoch) = (writer, FIRST_EPOCH))?;
            self.writer.held.insert(write.branch);
        } else {
            self.change(write.branch, |row| {
                row.move_to(head);
                write.title.iter().for_each(|title| row.title = title.clone());
            })?;
        }
        Ok(Ok(()))
    }

    /// Returns the reason why a write is refused, if there is one.
    fn refusal(
        &mut self,
        write: &PreparedWrite<'_>,
        rows: &StepPlaces,
    ) -> Result<Option<StoreError>, TransactionError> {
        let PreparedWrite { write, json, .. } = write;
        let (own, newest) = (self.writer.own, self.writer.newest_step);
        let row = self.branch(write.branch)?;
        match (&write.right, row) {
            (WriteRight::New(_), None) => {}
            (WriteRight::New(_), Some(_)) => return Ok(Some(branch_moved(write.branch))),
            (WriteRight::Held(epoch), Some(row)) if row.epoch == *epoch && Some(row.writer) == own => {
                if Some(row.head_id) != write.after {
                    return Ok(Some(branch_moved(write.branch)));
                }
                if row.head > newest {
                    let message = "the newest steps cannot be found: the store is damaged";
                    return Ok(Some(StoreError::new(StoreErrorKind::Damaged, message)));
                }
            }
            (WriteRight::Held(_), row) => {
                let writer = row.map_or(0, |row| row.writer);
                let writer = if Some(writer) == own { None } else { writer_of(self.connection, writer)? };
                return Ok(Some(right_lost(write.branch, writer.map(|(holder, _)| holder).as_ref())));
            }
        }
        if let Some(parent) = missing_parent(write, rows) {
            return Ok(Some(parent_not_stored(parent)));
        }
        // Only on other branches can parents be deleted meanwhile, with the steps that continue from them.
        for link in write.steps.iter().flat_map(|step| step.parents().iter().filter(|link| may_be_gone(link, step))) {
            if let StorageState::At(at) = rows.lookup(link)
                && scan::id_and_branch(self.connection, at)?.map(|(id, _)| id) != Some(link.id())
                && !write.includes(link)
            {
                return Ok(Some(parent_not_stored(link.id())));
            }
        }
        if let Some(long) = json.iter().map(|json| json.len()).find(|length| *length > MAX_STEP_BYTES) {
            let message = format!("a step of {long} bytes is too long to be kept; the most is {MAX_STEP_BYTES}");
            return Ok(Some(StoreError::new(StoreErrorKind::Store, message)));
        }
        Ok(None)
    }

    /// Inserts one step and its payloads. Returns its place.
    fn step(&mut self, step: &Step, json: &[u8], totals: &[u8], rows: &StepPlaces) -> Result<u64, TransactionError> {
        let payloads = step.chunk().payloads();
        for (digest, payload) in &payloads {
            payload::insert(self.connection, *digest, payload)?;
        }
        let digests = step.chunk().payload_digests();
        for digest in digests.into_iter().filter(|digest| payloads.iter().all(|(known, _)| known != digest)) {
            payload::insert_lost(self.connection, digest)?;
        }
        let mut places = [0; 2];
        for (nth, link) in step.parents().iter().enumerate().take(2) {
            let StorageState::At(at) = rows.lookup(link) else { continue };
            places[nth] = at;
            let branch = match link {
                Parent::Loaded(parent) => Some(parent.stamp().branch),
                // A step that is not loaded is not loaded for this.
                _ => scan::id_and_branch(self.connection, at)?.map(|(_, branch)| branch),
            };
            if let Some(branch) = branch.filter(|branch| *branch != step.stamp().branch) {
                self.follow(branch, at)?;
            }
        }
        self.writer.newest_step += 1;
        let (place, packed) = (self.writer.newest_step, &mut self.writer.scratch);
        packed.clear();
        step_row::encode(packed, place, step, json, totals, places);
        let mut insert = self.connection.prepare_cached("INSERT INTO steps(s, head, json) VALUES (?, ?, ?)")?;
        insert.execute(params![place.cast_signed(), &packed[..], json])?;
        rows.set(step, StorageState::At(place));
        Ok(place)
    }

    /// Notes that another branch continues from the head of this one, if the place is its head.
    fn follow(&mut self, id: BranchId, place: u64) -> Result<(), TransactionError> {
        match self.branch(id) {
            Ok(Some(row)) if row.head == place && row.followed != place => self.change(id, |row| row.followed = place),
            // A damaged row is reported to its readers.
            Ok(_) | Err(TransactionError::Store(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The length of the JSON of a step, in bytes: a row of SQLite has at most 10⁹.
const MAX_STEP_BYTES: usize = 900_000_000;

/// Returns true if a parent is, or may be, on another branch than its child.
fn may_be_gone(link: &Parent, child: &Step) -> bool {
    match link {
        Parent::Loaded(parent) => parent.stamp().branch != child.stamp().branch,
        Parent::Lazy(_) => true,
        Parent::Missing(_) => false,
    }
}

/// Adds a writer, or renews its lease.
pub(super) fn renew(connection: &Connection, writer: u64, holder: &Holder, lease: Duration) -> rusqlite::Result<()> {
    let expires = now().saturating_add(i64::try_from(lease.as_micros()).unwrap_or(i64::MAX));
    let sql = "INSERT INTO writers(w, who, expires) VALUES (?, ?, ?)
               ON CONFLICT(w) DO UPDATE SET expires = excluded.expires";
    connection.prepare_cached(sql)?.execute(params![writer.cast_signed(), holder.to_json(), expires]).map(|_| ())
}

/// Returns the holder of a branch for a reader, who reads on if the table of writers is damaged.
pub(super) fn holder_of(connection: &Connection, writer: u64) -> rusqlite::Result<Option<Arc<Holder>>> {
    match writer_of(connection, writer) {
        Ok(writer) => Ok(writer.map(|(holder, _)| Arc::new(holder))),
        Err(error) if scan::is_damage(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns a writer, and the time at which its lease expires.
fn writer_of(connection: &Connection, writer: u64) -> rusqlite::Result<Option<(Holder, i64)>> {
    if writer == 0 {
        return Ok(None);
    }
    let found = connection
        .prepare_cached("SELECT who, expires FROM writers WHERE w = ?")?
        .query_row([writer.cast_signed()], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))
        .optional()?;
    Ok(found.and_then(|(who, expires)| Some((Holder::from_json(&who)?, expires))))
}
