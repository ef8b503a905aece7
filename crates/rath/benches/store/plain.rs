//! A store in SQLite tables and nothing else: the baseline that the store's own log is measured against.
//!
//! One row a step, one row a branch, one transaction for all writes that wait. StepPlaces carry the same seals, ids and totals as
//! the entries of the log, so both stores detect the same damage and read the same steps back. Leases that expire,
//! deletion and salvage are left out: no benchmark uses them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use rath::record::{
    LazyStep, Parent, Parents, Seal, Stamp, Step, StepSource, StorageState, StoredChunk, Totals, Usage,
};
use rath::store::{
    BranchSummary, CheckReport, Damage, FreedSpace, Holder, Result, StepPlaces, StoreBackend, StoreError,
    StoreErrorKind, StoredBranch, Write, WriteRight,
};
use rath::{BranchId, Chunk, Digest, StepId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

const TABLES: &str = "
CREATE TABLE steps(s INTEGER PRIMARY KEY, head BLOB NOT NULL, json BLOB NOT NULL);
CREATE TABLE branches(b INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, family BLOB NOT NULL, title TEXT NOT NULL,
    writer INTEGER NOT NULL, state BLOB NOT NULL);
CREATE TABLE payloads(digest BLOB PRIMARY KEY, data BLOB NOT NULL);
";

/// The length of SQLite's WAL at which it is copied into the database, in bytes: as far as our index may be behind.
const CHECKPOINT_BYTES: u64 = 64 << 20;
/// The number of steps fetched at once.
const RUN: usize = 64;

/// A store in SQLite tables.
pub(crate) struct Plain {
    uri: String,
    writer: Mutex<Writer>,
    reader: Arc<Mutex<Connection>>,
}

struct Writer {
    connection: Connection,
    branches: HashMap<BranchId, Branch>,
    /// The rowids of the newest step and the newest branch.
    newest: (i64, i64),
}

/// The columns of a branch that a write needs.
#[derive(Clone)]
struct Branch {
    row: i64,
    head: StepId,
    epoch: u64,
}

impl Plain {
    pub(crate) fn open(folder: &Path, page_size: u32) -> Self {
        let path = folder.join("plain.db");
        let connection = Connection::open(&path).expect("a database");
        connection.pragma_update(None, "page_size", page_size).expect("a page size");
        settings(&connection, page_size);
        if connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)) == Ok(0) {
            connection.execute_batch(TABLES).expect("tables");
        }
        let newest = |table: &str, column: &str| {
            let sql = format!("SELECT coalesce(max({column}), 0) FROM {table}");
            connection.query_row(&sql, [], |row| row.get(0)).expect("a number")
        };
        let newest = (newest("steps", "s"), newest("branches", "b"));
        let reader = Connection::open(&path).expect("a database");
        settings(&reader, page_size);
        Plain {
            uri: format!("plain:{}", path.display()),
            writer: Mutex::new(Writer { connection, branches: HashMap::new(), newest }),
            reader: Arc::new(Mutex::new(reader)),
        }
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.reader.lock().expect("nobody panics")
    }
}

fn settings(connection: &Connection, page_size: u32) {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).expect("a setting");
    connection.pragma_update(None, "synchronous", "FULL").expect("a setting");
    connection.pragma_update(None, "cache_size", -65536).expect("a setting");
    let pages = CHECKPOINT_BYTES / u64::from(page_size);
    connection.pragma_update(None, "wal_autocheckpoint", pages.cast_signed()).expect("a setting");
    connection.set_prepared_statement_cache_capacity(32);
}

impl Writer {
    fn append(&mut self, write: &Write, rows: &StepPlaces) -> rusqlite::Result<Result<()>> {
        let conflict = || Ok(Err(StoreError::new(StoreErrorKind::Conflict, "the branch is somewhere else")));
        let known = match self.branches.get(&write.branch) {
            Some(known) => Some(known.clone()),
            None if matches!(write.right, WriteRight::New(_)) => None,
            None => find(&self.connection, write.branch)?.map(|(row, epoch, listed)| Branch {
                row,
                head: listed.head,
                epoch,
            }),
        };
        let mut branch = match (&write.right, known) {
            (WriteRight::New(_), None) => {
                self.newest.1 += 1;
                Branch { row: self.newest.1, head: StepId([0; 32]), epoch: 1 }
            }
            (WriteRight::Held(epoch), Some(known)) if known.epoch == *epoch && Some(known.head) == write.after => known,
            _ => return conflict(),
        };
        let Some(head) = write.steps.last() else { return Ok(Ok(())) };
        let mut packed = Vec::with_capacity(512);
        for (nth, step) in write.steps.iter().enumerate() {
            self.newest.0 += 1;
            let row = self.newest.0;
            for (digest, payload) in step.chunk().payloads() {
                let sql = "INSERT INTO payloads(digest, data) VALUES (?, ?) ON CONFLICT DO NOTHING";
                self.connection.prepare_cached(sql)?.execute(params![&digest.0[..], payload.bytes()])?;
            }
            packed.clear();
            pack(&mut packed, row.cast_unsigned(), step, rows);
            let mut insert = self.connection.prepare_cached("INSERT INTO steps(s, head, json) VALUES (?, ?, ?)")?;
            insert.execute(params![row, &packed[..], &*write.json(nth)])?;
            rows.set(step, StorageState::At(row.cast_unsigned()));
        }
        packed.clear();
        for number in [self.newest.0.cast_unsigned(), branch.epoch, at_of(head.stamp()).cast_unsigned()] {
            packed.extend_from_slice(&number.to_le_bytes());
        }
        packed.extend_from_slice(&head.id().0);
        packed.extend_from_slice(&head.encode_totals());
        seal(&mut packed, &write.branch.0);
        if let WriteRight::New(_) = write.right {
            let sql = "INSERT INTO branches(b, id, family, title, writer, state) VALUES (?, ?, ?, ?, 1, ?)";
            let title = write.title.as_deref().unwrap_or_default();
            let values = params![branch.row, &write.branch.0[..], &write.family.0[..], title, &packed[..]];
            self.connection.prepare_cached(sql)?.execute(values)?;
        } else {
            let mut update = self.connection.prepare_cached("UPDATE branches SET state = ? WHERE b = ?")?;
            update.execute(params![&packed[..], branch.row])?;
        }
        branch.head = head.id();
        self.branches.insert(write.branch, branch);
        Ok(Ok(()))
    }
}

fn at_of(stamp: &Stamp) -> i64 {
    stamp.at.map_or(i64::MIN, |at| at.0)
}

/// Appends the seal of what is there and of a name.
fn seal(packed: &mut Vec<u8>, name: &[u8]) {
    let length = packed.len();
    packed.extend_from_slice(name);
    let seal = Seal::compute(packed);
    packed.truncate(length);
    packed.extend_from_slice(&seal.0);
}

/// Returns the bytes before a seal, if the seal fits.
fn unseal<'a>(bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (packed, seal) = bytes.split_at_checked(bytes.len().checked_sub(16)?)?;
    let mut sealed = [0; 512];
    let length = packed.len() + name.len();
    let fits = if length > sealed.len() {
        Seal::compute(&[packed, name].concat()).0 == *seal
    } else {
        sealed[..packed.len()].copy_from_slice(packed);
        sealed[packed.len()..length].copy_from_slice(name);
        Seal::compute(&sealed[..length]).0 == *seal
    };
    fits.then_some(packed)
}

/// Packs all that a step knows beside its chunk.
fn pack(out: &mut Vec<u8>, row: u64, step: &Step, rows: &StepPlaces) {
    let stamp = step.stamp();
    out.extend_from_slice(&[step.parents().len() as u8, u8::from(stamp.usage.is_some())]);
    out.extend_from_slice(&step.id().0);
    out.extend_from_slice(&stamp.branch.0);
    for link in step.parents() {
        let at = if let StorageState::At(at) = rows.lookup(link) { at } else { 0 };
        out.extend_from_slice(&link.id().0);
        out.extend_from_slice(&at.to_le_bytes());
    }
    out.extend_from_slice(&at_of(stamp).to_le_bytes());
    if let Some(Usage { input, output, cached_read, cache_write, reasoning }) = stamp.usage {
        [input, output, cached_read, cache_write, reasoning]
            .iter()
            .for_each(|it| out.extend_from_slice(&it.to_le_bytes()));
    }
    let by = stamp.by.as_deref().unwrap_or_default();
    out.extend_from_slice(&(by.len() as u32).to_le_bytes());
    out.extend_from_slice(by.as_bytes());
    out.extend_from_slice(&step.encode_totals());
    seal(out, &row.to_le_bytes());
}

/// A step as a row holds it.
struct StepRow {
    row: u64,
    id: StepId,
    parents: Vec<(StepId, u64)>,
    stamp: Stamp,
    totals: Vec<u8>,
    json: String,
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes, 8)?.try_into().ok().map(u64::from_le_bytes)
}

fn step_row(connection: &Connection, row: u64) -> rusqlite::Result<Option<StepRow>> {
    let mut select = connection.prepare_cached("SELECT head, json FROM steps WHERE s = ?")?;
    let found = select.query_row([row.cast_signed()], |columns| {
        Ok(unpack(row, columns.get_ref(0)?.as_blob()?, columns.get_ref(1)?.as_blob()?))
    });
    Ok(found.optional()?.flatten())
}

fn unpack(row: u64, head: &[u8], json: &[u8]) -> Option<StepRow> {
    let mut head = unseal(head, &row.to_le_bytes())?;
    let (parents, has_usage) = (take(&mut head, 1)?[0], take(&mut head, 1)?[0] == 1);
    let id = StepId(take(&mut head, 32)?.try_into().ok()?);
    let branch = BranchId(take(&mut head, 16)?.try_into().ok()?);
    let parents = (0..parents).map(|_| Some((StepId(take(&mut head, 32)?.try_into().ok()?), number(&mut head)?)));
    let parents: Vec<_> = parents.collect::<Option<_>>()?;
    let at = Some(number(&mut head)?.cast_signed()).filter(|at| *at != i64::MIN).map(Timestamp);
    let mut usage = None;
    if has_usage {
        let mut next = || number(&mut head);
        let [input, output, cached_read, cache_write, reasoning] = [next()?, next()?, next()?, next()?, next()?];
        usage = Some(Usage { input, output, cached_read, cache_write, reasoning });
    }
    let length = u32::from_le_bytes(take(&mut head, 4)?.try_into().ok()?) as usize;
    let by = Some(std::str::from_utf8(take(&mut head, length)?).ok()?).filter(|by| !by.is_empty()).map(Into::into);
    let ids: Vec<_> = parents.iter().map(|(id, _)| *id).collect();
    let mut stamp = Stamp::on(branch);
    (stamp.by, stamp.usage, stamp.at) = (by, usage, at);
    let fits = StepId::compute(&ids, Digest::compute(json)) == id;
    let json = std::str::from_utf8(json).ok()?.to_owned();
    fits.then(|| StepRow { row, id, parents, stamp, totals: head.to_vec(), json })
}

/// Checks every step of a line, as our store does when it reads a branch.
///
/// The rows before a step are nearly always its parents, or near them: one cursor goes backwards over the table, and is
/// placed anew only where the next parent is far away.
fn check_line(connection: &Connection, head: u64, damage: &mut Vec<Damage>) -> rusqlite::Result<()> {
    let mut select = connection.prepare_cached("SELECT s, head, json FROM steps WHERE s <= ? ORDER BY s DESC")?;
    let mut next = head;
    while next > 0 {
        let mut rows = select.query([next.cast_signed()])?;
        let mut skipped = 0;
        let mut found = false;
        while next > 0 && skipped < RUN {
            let Some(row) = rows.next()? else { break };
            let at = row.get::<_, i64>(0)?.cast_unsigned();
            if at != next {
                skipped += 1;
                continue;
            }
            (found, skipped) = (true, 0);
            let read = unpack(at, row.get_ref(1)?.as_blob()?, row.get_ref(2)?.as_blob()?);
            if read.is_none() {
                damage.push(Damage { place: format!("row {at}"), step: None, what: "unreadable".to_owned() });
            }
            next = read.and_then(|row| row.parents.first().map(|(_, parent)| *parent)).unwrap_or(0);
        }
        if !found {
            damage.push(Damage { place: format!("row {next}"), step: None, what: "missing".to_owned() });
            next = 0;
        }
    }
    Ok(())
}

/// Reads steps when they are looked at.
struct Fetcher {
    connection: Arc<Mutex<Connection>>,
    rows: Arc<StepPlaces>,
    own: Weak<Fetcher>,
}

impl StepSource for Fetcher {
    fn token(&self) -> u64 {
        self.rows.token()
    }

    fn fetch(&self, place: u64, id: StepId) -> Option<Step> {
        let shelf: Arc<dyn StepSource> = self.own.upgrade()?;
        let mut run = Vec::new();
        {
            let connection = self.connection.lock().ok()?;
            let (mut next, mut wanted) = (place, id);
            while run.len() < RUN {
                let Some(row) = step_row(&connection, next).ok()?.filter(|row| row.id == wanted) else { break };
                let only = match row.parents[..] {
                    [(id, place)] if place > 0 => Some((place, id)),
                    _ => None,
                };
                run.push(row);
                let Some(before) = only else { break };
                (next, wanted) = before;
            }
        }
        let mut step: Option<Step> = None;
        for row in run.into_iter().rev() {
            let mut links = row.parents.iter().map(|(id, place)| match (&step, place) {
                (Some(step), _) if step.id() == *id => Parent::Loaded(step.clone()),
                (_, 1..) => Parent::Lazy(Arc::new(LazyStep::new(*id, *place, shelf.clone()))),
                _ => Parent::Missing(Box::new(*id)),
            });
            let parents = match (links.next(), links.next()) {
                (None, _) => Parents::None,
                (Some(one), None) => Parents::One(one),
                (Some(ours), Some(theirs)) => Parents::Two([ours, theirs]),
            };
            let stored = StoredChunk { chunk: Chunk::decode(&row.json).ok()?, json: &row.json, withheld: None };
            let loaded = Step::from_store(parents, stored, row.stamp, &row.totals)?;
            self.rows.set(&loaded, StorageState::At(row.row));
            step = Some(loaded);
        }
        step.filter(|step| step.id() == id)
    }
}

/// The number and the epoch of a branch, with its line in a list; none if its seal does not fit.
fn listed(row: &Row<'_>) -> rusqlite::Result<Option<(i64, u64, BranchSummary)>> {
    let blob = |column: usize| -> rusqlite::Result<&[u8]> { Ok(row.get_ref(column)?.as_blob()?) };
    let (id, family, title, state) = (blob(1)?, blob(2)?, row.get_ref(3)?.as_str()?, blob(4)?);
    let b = row.get(0)?;
    let read = || {
        let mut state = unseal(state, id)?;
        let (_, epoch, at) = (number(&mut state)?, number(&mut state)?, number(&mut state)?.cast_signed());
        let head = StepId(take(&mut state, 32)?.try_into().ok()?);
        let (branch, family) = (BranchId(id.try_into().ok()?), BranchId(family.try_into().ok()?));
        let at = Some(at).filter(|at| *at != i64::MIN).map(Timestamp);
        let totals = Totals::decode(state)?;
        Some((
            b,
            epoch,
            BranchSummary { branch, family, head, totals, title: title.into(), at, is_tip: true, holder: None },
        ))
    };
    Ok(read())
}

fn find(connection: &Connection, branch: BranchId) -> rusqlite::Result<Option<(i64, u64, BranchSummary)>> {
    let sql = "SELECT b, id, family, title, state FROM branches WHERE id = ?";
    Ok(connection.prepare_cached(sql)?.query_row([&branch.0[..]], listed).optional()?.flatten())
}

fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::wrap(StoreErrorKind::Store, error)
}

impl StoreBackend for Plain {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn write(&self, group: &[Write], rows: &StepPlaces) -> Result<Vec<Result<()>>> {
        let mut writer = self.writer.lock().expect("nobody panics");
        let writer = &mut *writer;
        let write = |writer: &mut Writer| -> rusqlite::Result<_> {
            writer.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            let answers = group.iter().map(|write| writer.append(write, rows)).collect::<rusqlite::Result<Vec<_>>>()?;
            writer.connection.prepare_cached("COMMIT")?.execute([])?;
            Ok(answers)
        };
        write(writer).map_err(failed)
    }

    fn claim(&self, branch: BranchId, _: &Holder) -> Result<u64> {
        let found = find(&self.reader(), branch).map_err(failed)?;
        found
            .map(|(_, epoch, _)| epoch)
            .ok_or_else(|| StoreError::new(StoreErrorKind::NoSuchSession, "no such session"))
    }

    fn release(&self, rights: &[(BranchId, u64)]) -> Result<()> {
        let writer = self.writer.lock().expect("nobody panics");
        let write = || -> rusqlite::Result<()> {
            writer.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            for known in rights.iter().filter_map(|(branch, _)| writer.branches.get(branch)) {
                writer.connection.prepare_cached("UPDATE branches SET writer = 0 WHERE b = ?")?.execute([known.row])?;
            }
            writer.connection.prepare_cached("COMMIT")?.execute([])?;
            Ok(())
        };
        write().map_err(failed)
    }

    fn idle(&self) -> Result<()> {
        let writer = self.writer.lock().expect("nobody panics");
        writer.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(failed)
    }

    fn renew(&self, _: &Holder) -> Result<()> {
        Ok(())
    }

    fn list(&self) -> Result<Vec<BranchSummary>> {
        let connection = self.reader();
        let read = || -> rusqlite::Result<_> {
            let mut select =
                connection.prepare_cached("SELECT b, id, family, title, state FROM branches ORDER BY b")?;
            let mut rows = select.query([])?;
            let mut list = Vec::new();
            while let Some(row) = rows.next()? {
                list.extend(listed(row)?.map(|(_, _, listed)| listed));
            }
            Ok(list)
        };
        read().map_err(failed)
    }

    fn summary(&self, branch: BranchId) -> Result<Option<BranchSummary>> {
        Ok(find(&self.reader(), branch).map_err(failed)?.map(|(_, _, listed)| listed))
    }

    fn read(&self, branch: BranchId, rows: &Arc<StepPlaces>) -> Result<StoredBranch> {
        let sql = "SELECT b, id, family, title, state FROM branches WHERE id = ?";
        let mut damage = Vec::new();
        let (listed, head) = {
            let connection = self.reader();
            let mut read = || -> rusqlite::Result<_> {
                let found = connection.prepare_cached(sql)?.query_row([&branch.0[..]], |row| {
                    let state = row.get_ref(4)?.as_blob()?;
                    let head = number(&mut { state }).unwrap_or_default();
                    Ok(listed(row)?.map(|(_, _, listed)| (listed, head)))
                });
                let found = found.optional()?.flatten();
                let head = found.as_ref().map_or(0, |(_, head)| *head);
                check_line(&connection, head, &mut damage)?;
                Ok(found)
            };
            read().map_err(failed)?.ok_or_else(|| StoreError::new(StoreErrorKind::NoSuchSession, "no such session"))?
        };
        let (connection, rows) = (self.reader.clone(), rows.clone());
        let fetcher = Arc::new_cyclic(|own| Fetcher { connection, rows, own: own.clone() });
        let head = fetcher.fetch(head, listed.head);
        Ok(StoredBranch { summary: listed, head, damage })
    }

    fn check(&self) -> Result<CheckReport> {
        Err(StoreError::new(StoreErrorKind::Store, "no benchmark checks a store"))
    }

    fn forget(&self, _: BranchId, _: StepId) -> Result<()> {
        Err(StoreError::new(StoreErrorKind::Store, "no benchmark forgets a step"))
    }

    fn delete(&self, _: BranchId) -> Result<()> {
        Err(StoreError::new(StoreErrorKind::Store, "no benchmark deletes a session"))
    }

    fn compact(&self) -> Result<FreedSpace> {
        Err(StoreError::new(StoreErrorKind::Store, "no benchmark compacts a store"))
    }
}
