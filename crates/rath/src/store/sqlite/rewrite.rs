//! Rewriting the log: to erase a step, or to drop the steps that no branch descends from.

use std::collections::HashSet;
use std::io;
use std::sync::PoisonError;

use rath_record::chunk::Chunk;
use rath_record::{BranchId, Digest, StepId};
use rusqlite::{Connection, TransactionBehavior, params};

use super::super::holder::now;
use super::super::{FreedSpace, failed};
use super::Sqlite;
use super::branch::BranchRow;
use super::change::TransactionError;
use super::entry::{EntryEncoder, LogEntry, StepRow};
use super::log::{Log, log_path};
use super::log_reader::{FIRST_PLACE, scan};
use super::transaction::Transaction;
use super::walk;
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The time for which a writer is listed after its lease has expired, in microseconds.
const WRITER_RETENTION_MICROS: i64 = 24 * 3600 * 1_000_000;

impl Sqlite {
    pub(super) fn forget_step(&self, branch: BranchId, step: StepId) -> Result<()> {
        self.replace_log(|transaction| {
            let row =
                transaction.index.get(transaction.connection, branch)?.cloned().ok_or_else(|| self.no_such(branch))?;
            transaction.refuse_if_held(&row)?;
            let Some(mut found) = walk::find(transaction.log, row.head, step) else {
                let message = format!("no step {} in the session {}", step.short(), branch.short());
                return Err(StoreError::new(StoreErrorKind::NoSuchStep, message).into());
            };
            let chunk = Chunk::decode(&found.chunk).map_err(|error| StoreError::new(StoreErrorKind::Store, error))?;
            // Payloads that other steps refer to stay.
            let references = chunk.payload_digests();
            let named = walk::referenced_payloads(transaction.log, &references, found.place)?;
            let change = rusqlite::Transaction::new_unchecked(transaction.connection, TransactionBehavior::Immediate)?;
            for digest in references.iter().filter(|digest| !named.contains(digest)) {
                change.execute("UPDATE payloads SET data = NULL WHERE digest = ?", params![&digest.0[..]])?;
            }
            change.commit()?;
            // The title in the list must not keep the erased text.
            if let Chunk::User(user) = &chunk
                && let Some(title) = super::super::title::from_text(&user.text)
            {
                for relatives in BranchRow::of_family(transaction.connection, row.family)? {
                    if transaction.index.get(transaction.connection, relatives)?.is_some_and(|row| row.title == title) {
                        transaction
                            .index
                            .change(transaction.connection, relatives, |row| row.title = "[forgotten]".into())?;
                    }
                }
                transaction.index.flush(transaction.connection, *transaction.own)?;
            }
            found.withheld.get_or_insert_with(|| Digest::compute(found.chunk.as_bytes()));
            let mut json = Vec::new();
            chunk.redacted().encode(&mut json);
            found.chunk = String::from_utf8(json).expect("JSON is UTF-8");
            let mut entry = Vec::new();
            EntryEncoder(&mut entry).row(&found);
            let log =
                self.copy_log(transaction.log, |row| Some(if row.place == found.place { Some(&entry) } else { None }))?;
            Ok((log, ()))
        })?;
        // The erased text must not stay in SQLite's own log either.
        self.checkpoint()
    }

    pub(super) fn compact_all(&self) -> Result<FreedSpace> {
        let before = self.size();
        let steps = self.replace_log(|transaction| {
            let (referenced, named) = walk::referenced(transaction.connection, transaction.log)?;
            let (mut next, mut removed) = (referenced.iter().peekable(), 0);
            let log = self.copy_log(transaction.log, |row| {
                while next.next_if(|place| **place < row.place).is_some() {}
                let is_kept = next.peek() == Some(&&row.place);
                removed += u64::from(!is_kept);
                is_kept.then_some(None)
            })?;
            sweep(transaction.connection, &named)?;
            Ok((log, removed))
        })?;
        self.checkpoint()?;
        {
            let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let connection = writer.connection.lock().unwrap_or_else(PoisonError::into_inner);
            connection.execute_batch("VACUUM").map_err(|error| failed(&self.uri, "compact", error))?;
        }
        self.checkpoint()?;
        Ok(FreedSpace { bytes: before.saturating_sub(self.size()), steps })
    }

    /// Runs work that returns a new log, which replaces the current one.
    fn replace_log<T>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<(Log, T), TransactionError>,
    ) -> Result<T> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &writer.broken {
            return Err(error.duplicate());
        }
        let (log, done) = self.locked(&mut writer, |transaction| {
            // The new log leaves out the state of branches: the database has it.
            transaction.index.flush(transaction.connection, *transaction.own)?;
            work(transaction)
        })?;
        self.use_log(&mut writer, log);
        Ok(done)
    }

    /// Copies the log. For each step, `keep` returns none to drop it, or optionally an entry to put in its place.
    fn copy_log<'a>(
        &self,
        log: &Log,
        mut keep: impl FnMut(&StepRow) -> Option<Option<&'a Vec<u8>>>,
    ) -> Result<Log, TransactionError> {
        let mut damaged = None;
        let path = self.path.as_deref().map(log_path);
        let made = log.rewrite(path.as_deref(), |put| {
            let mut failed: io::Result<()> = Ok(());
            scan(log, FIRST_PLACE, |_, entry| match entry {
                Ok((LogEntry::Step(row), bytes)) => {
                    if let (Ok(()), Some(other)) = (&failed, keep(&row)) {
                        failed = put(row.place, other.map_or(bytes, |other| other));
                    }
                }
                Ok(_) => {}
                Err(fault) => _ = damaged.get_or_insert(fault.what),
            })?;
            failed?;
            // A log with unreadable entries is not replaced.
            if damaged.is_some() { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
        });
        match damaged {
            Some(why) => Err(walk::damaged(&why).into()),
            None => Ok(made?),
        }
    }

    fn size(&self) -> u64 {
        let database = self.path.as_deref().map_or(0, |path| std::fs::metadata(path).map_or(0, |file| file.len()));
        database + self.source.log().size()
    }
}

/// Removes unreferenced payloads, and writers whose lease expired long ago.
fn sweep(connection: &Connection, named: &HashSet<Digest>) -> Result<(), TransactionError> {
    let change = rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    change.execute_batch("CREATE TEMP TABLE IF NOT EXISTS named(digest BLOB PRIMARY KEY); DELETE FROM named;")?;
    for digest in named {
        change.prepare_cached("INSERT INTO named(digest) VALUES (?)")?.execute(params![&digest.0[..]])?;
    }
    change.execute("DELETE FROM payloads WHERE digest NOT IN (SELECT digest FROM named)", [])?;
    change.execute("DELETE FROM named", [])?;
    let mut writers = HashSet::new();
    BranchRow::every(&change, |row| writers.extend(row.map(|(_, row)| row.writer)))?;
    let old: Vec<i64> = change
        .prepare("SELECT w FROM writers WHERE expires < ?")?
        .query_map([now().saturating_sub(WRITER_RETENTION_MICROS)], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for old in old.into_iter().filter(|old| !writers.contains(&old.cast_unsigned())) {
        change.execute("DELETE FROM writers WHERE w = ?", [old])?;
    }
    change.commit()?;
    Ok(())
}
