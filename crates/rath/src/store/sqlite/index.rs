//! The state of branches that is in the log and not yet in the database.
//!
//! The log is authoritative. The database notes the place up to which it reflects the log; the changes after that place are
//! here, read from the log or written by this process.

use std::collections::HashMap;

use rath_record::BranchId;
use rusqlite::{Connection, OptionalExtension, params};

use super::super::Holder;
use super::branch::BranchRow;
use super::change::TransactionError;
use super::entry::LogEntry;
use super::log::Log;
use super::log_reader::{self, LogReader};
use super::schema;

/// The changes to branches and writers after the place that the database reflects.
pub(super) struct BranchIndex {
    known: HashMap<BranchId, KnownBranch>,
    /// The writers by number, each with the time at which its lease expires.
    writers: HashMap<u64, (String, i64)>,
    /// The places of unreadable entries.
    unreadable: Vec<u64>,
    /// The place up to which the log has been read.
    pub(super) end: u64,
    /// The place up to which the database reflects the log, as last seen by this process.
    reflected: u64,
}

struct KnownBranch {
    /// None if the branch does not exist.
    row: Option<BranchRow>,
    /// The place of the first entry about the branch, if it is not in the database.
    began: u64,
    /// True if the database may be out of date.
    is_ahead: bool,
}

impl BranchIndex {
    pub(super) fn new(reflected: u64) -> Self {
        BranchIndex {
            known: HashMap::new(),
            writers: HashMap::new(),
            unreadable: Vec::new(),
            end: reflected,
            reflected,
        }
    }

    /// Returns an index without any change beyond the database.
    pub(super) fn with_database_only(&self) -> Self {
        BranchIndex::new(self.reflected)
    }

    /// Drops all changes: they are read from the log again.
    pub(super) fn reset(&mut self) {
        *self = self.with_database_only();
    }

    /// Returns the number of bytes of the log that the database does not reflect.
    pub(super) fn bytes_behind_log(&self) -> u64 {
        self.end - self.reflected
    }

    /// Returns true if the database is up to date.
    pub(super) fn is_flushed(&self) -> bool {
        self.end == self.reflected && !self.known.values().any(|known| known.is_ahead)
    }

    /// Returns true if there are unreadable entries that the database does not list yet.
    pub(super) fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    /// Returns the current row of a branch.
    pub(super) fn get(
        &mut self,
        connection: &Connection,
        id: BranchId,
    ) -> Result<Option<&mut BranchRow>, TransactionError> {
        Ok(self.known(connection, id)?.row.as_mut())
    }

    fn known(&mut self, connection: &Connection, id: BranchId) -> Result<&mut KnownBranch, TransactionError> {
        use std::collections::hash_map::Entry::{Occupied, Vacant};
        Ok(match self.known.entry(id) {
            Occupied(known) => known.into_mut(),
            Vacant(unknown) => {
                let row = BranchRow::find(connection, id)?.transpose()?;
                unknown.insert(KnownBranch { row, began: 0, is_ahead: false })
            }
        })
    }

    /// Changes the row of a branch, if there is one.
    pub(super) fn change(
        &mut self,
        connection: &Connection,
        id: BranchId,
        change: impl FnOnce(&mut BranchRow),
    ) -> Result<(), TransactionError> {
        let known = self.known(connection, id)?;
        if let Some(row) = &mut known.row {
            change(row);
            known.is_ahead = true;
        }
        Ok(())
    }

    /// Replaces the row of a branch.
    pub(super) fn put(&mut self, connection: &Connection, row: BranchRow, place: u64) -> Result<(), TransactionError> {
        let known = self.known(connection, row.id)?;
        if known.row.is_none() {
            known.began = place;
        }
        (known.row, known.is_ahead) = (Some(row), true);
        Ok(())
    }

    pub(super) fn remove(&mut self, id: BranchId) {
        self.known.insert(id, KnownBranch { row: None, began: 0, is_ahead: true });
    }

    pub(super) fn add_writer(&mut self, place: u64, who: String, expires: i64) {
        self.writers.insert(place, (who, expires));
    }

    /// Notes that another branch continues from the head of this one, if the place is its head.
    pub(super) fn follow(&mut self, connection: &Connection, id: BranchId, place: u64) -> Result<(), TransactionError> {
        match self.get(connection, id) {
            Ok(Some(row)) if row.head == place => self.change(connection, id, |row| row.followed = place),
            // The row of the other branch is damaged; its reader reports that.
            Ok(_) | Err(TransactionError::Store(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns a writer, and the time at which its lease expires.
    pub(super) fn writer(&self, connection: &Connection, writer: u64) -> rusqlite::Result<Option<(Holder, i64)>> {
        let known = || {
            let (who, expires) = self.writers.get(&writer)?;
            Some((Holder::from_json(who)?, *expires))
        };
        Ok(writer_of(connection, writer)?.or_else(known))
    }

    /// Reads the entries that others have appended. The log is locked.
    pub(super) fn catch_up(&mut self, connection: &Connection, log: &Log) -> Result<(), TransactionError> {
        let end = log.end()?;
        if end == self.end {
            return Ok(());
        }
        self.reflected = schema::log_state(connection)?.reflected;
        if self.reflected > self.end {
            self.reset();
        }
        if end < self.end {
            return Err(TransactionError::Store(schema::truncated_log(self.end - end)));
        }
        if end == self.end {
            return Ok(());
        }
        // The writer may have crashed before its sync: steps that continue from these entries must not outlive them.
        log.sync()?;
        let mut failed = Ok(());
        let cut = log_reader::scan(log, self.end, |place, entry| {
            if failed.is_ok() {
                failed = match entry {
                    Ok((entry, _)) => self.apply(connection, log, place, entry),
                    Err(_) => {
                        self.unreadable.push(place);
                        Ok(())
                    }
                };
            }
        })?;
        failed?;
        if let Some(place) = cut {
            log.cut(place)?;
        }
        self.end = cut.unwrap_or(end);
        Ok(())
    }

    fn apply(
        &mut self,
        connection: &Connection,
        log: &Log,
        place: u64,
        entry: LogEntry,
    ) -> Result<(), TransactionError> {
        match entry {
            LogEntry::Step(row) => {
                let parents = row.parents.iter().zip(row.elsewhere).filter(|(_, is_elsewhere)| *is_elsewhere);
                for ((_, parent), _) in parents {
                    if let Some((_, branch)) = LogReader::back(log).step_and_branch(*parent) {
                        self.follow(connection, branch, *parent)?;
                    }
                }
                if row.moves {
                    let (id, branch, at) = (row.id, row.stamp.branch, row.stamp.at);
                    self.change(connection, branch, |known| known.move_to(place, id, at, row.totals))?;
                }
                Ok(())
            }
            LogEntry::Branch(row) => self.put(connection, row, place),
            LogEntry::Gone(id) => {
                self.remove(id);
                Ok(())
            }
            LogEntry::Writer(who, expires) => {
                self.add_writer(place, who, expires);
                Ok(())
            }
        }
    }

    /// Brings the database up to date. The log is locked and has been read to its end. StepPlaces that `own` writes stay cached.
    pub(super) fn flush(&mut self, connection: &Connection, own: Option<u64>) -> Result<(), TransactionError> {
        if !self.is_flushed() {
            let transaction =
                rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate)?;
            let mut ahead: Vec<_> = self.known.iter().filter(|(_, known)| known.is_ahead).collect();
            ahead.sort_by_key(|(_, known)| known.began);
            let gone: Vec<_> = ahead.iter().filter(|(_, known)| known.row.is_none()).collect();
            for (id, _) in &gone {
                transaction.prepare_cached("DELETE FROM branches WHERE id = ?")?.execute(params![&id.0[..]])?;
            }
            if !gone.is_empty() {
                schema::count(&transaction)?;
            }
            let mut scratch = Vec::new();
            for row in ahead.iter().filter_map(|(_, known)| known.row.as_ref()) {
                row.save(&transaction, &mut scratch)?;
            }
            for (number, (who, expires)) in &self.writers {
                let sql = "INSERT OR IGNORE INTO writers(w, who, expires) VALUES (?, ?, ?)";
                transaction.prepare_cached(sql)?.execute(params![number.cast_signed(), who, expires])?;
            }
            for place in &self.unreadable {
                let sql = "INSERT OR IGNORE INTO wounds(place) VALUES (?)";
                transaction.prepare_cached(sql)?.execute([place.cast_signed()])?;
            }
            schema::reflect(&transaction, self.end)?;
            transaction.commit()?;
            self.reflected = self.end;
        }
        self.writers.clear();
        self.unreadable.clear();
        self.known.retain(|_, known| {
            (known.is_ahead, known.began) = (false, 0);
            own.is_some() && known.row.as_ref().map(|row| row.writer) == own
        });
        Ok(())
    }
}

/// Returns a writer from the database.
pub(super) fn writer_of(connection: &Connection, writer: u64) -> rusqlite::Result<Option<(Holder, i64)>> {
    if writer == 0 {
        return Ok(None);
    }
    let found = connection
        .prepare_cached("SELECT who, expires FROM writers WHERE w = ?")?
        .query_row([writer.cast_signed()], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))
        .optional()?;
    Ok(found.and_then(|(who, expires)| Some((Holder::from_json(&who)?, expires))))
}
