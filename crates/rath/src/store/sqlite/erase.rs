//! Erasing the content of a step, and freeing space.
//!
//! SQLite leaves parts of deleted and moved rows in its pages. `VACUUM` writes all pages anew, and a checkpoint that truncates the
//! WAL leaves no copy there.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rath_record::chunk::Chunk;
use rath_record::{BranchId, Digest, StepId};
use rusqlite::params;

use super::super::holder::{Holder, now};
use super::super::title::from_text;
use super::super::{Erased, FreedSpace, StoreBackend as _};
use super::branch_row::BranchRow;
use super::scan::{self, BRANCHES, STEPS};
use super::schema::{LOCK_TIMEOUT, StoreConnection};
use super::transaction::{Transaction, TransactionError};
use super::{Sqlite, check, payload, schema};
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The time for which a writer on another machine is listed after its lease has expired, in microseconds.
const WRITER_RETENTION_MICROS: i64 = 24 * 3600 * 1_000_000;

/// The time to wait until no other process reads, and the time between two attempts.
const MAX_CHECKPOINT_WAIT: Duration = Duration::from_secs(2);
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(5);

impl Sqlite {
    pub(super) fn forget_step(&self, branch: BranchId, step: StepId) -> Result<Erased> {
        self.write_transaction(|transaction| {
            let row = transaction.branch(branch)?.cloned().ok_or_else(|| self.no_such(branch))?;
            transaction.refuse_if_held(&row)?;
            let mut found = None;
            scan::walk_back(transaction.connection, [row.head], |_, row| {
                found = found.take().or(row.ok().filter(|row| row.id == step));
            })?;
            let Some(mut found) = found else {
                let message = format!("no step {} in the session {}", step.short(), branch.short());
                return Err(StoreError::new(StoreErrorKind::NoSuchStep, message).into());
            };
            let chunk = Chunk::decode(&found.json).map_err(|error| StoreError::new(StoreErrorKind::Store, error))?;
            erase_payloads(transaction, chunk.payload_digests(), found.place)?;
            // The title in the list must not keep the erased text.
            if let Chunk::User(user) = &chunk
                && let Some(title) = from_text(&user.text)
            {
                for relative in BranchRow::of_family(transaction.connection, row.family)? {
                    if transaction.branch(relative)?.is_some_and(|row| row.title == title) {
                        transaction.change(relative, |row| row.title = "[forgotten]".into())?;
                    }
                }
            }
            found.withheld.get_or_insert_with(|| Digest::compute(found.json.as_bytes()));
            let mut json = Vec::new();
            chunk.redacted().encode(&mut json);
            found.json = String::from_utf8(json).expect("JSON is UTF-8");
            let values = params![found.encode(), found.json.as_bytes(), found.place.cast_signed()];
            transaction.connection.execute("UPDATE steps SET head = ?, json = ? WHERE s = ?", values)?;
            Ok(())
        })?;
        self.vacuum()
    }

    pub(super) fn compact_all(&self) -> Result<FreedSpace> {
        self.checkpoint(Duration::ZERO)?;
        let before = self.size();
        let steps = self.write_transaction(|transaction| {
            // Steps without a branch are removed: first, every branch must be known to be there.
            if let Some(damage) = check::all(transaction.connection)?.damage.into_iter().next() {
                let message = format!("the store is damaged, and compacting it could lose more: {}", damage.what);
                let error = StoreError::new(StoreErrorKind::Damaged, message);
                return Err(error
                    .with_hint("`rath verify` names what is damaged, `rath salvage` copies what is good")
                    .into());
            }
            let (places, digests) = check::referenced(transaction.connection)?;
            let mut next = places.into_iter().peekable();
            let removed = transaction.remove_steps(|place| {
                while next.next_if(|kept| *kept < place).is_some() {}
                next.peek() == Some(&place)
            })?;
            payload::sweep(transaction.connection, &digests)?;
            sweep_writers(transaction)?;
            Ok(removed)
        })?;
        let erased = self.vacuum()?;
        Ok(FreedSpace { bytes: before.saturating_sub(self.size()), steps, erased })
    }

    /// Returns the space that a deletion and a compaction would free, by trying it on a copy in memory.
    pub(super) fn measure(&self, families: &[BranchId]) -> Result<FreedSpace> {
        let failed = |error| schema::describe(&self.uri, self.path.as_deref(), "read", error);
        let copy = {
            let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            StoreConnection::copy_in_memory(&reader).map_err(failed)?
        };
        let copy = std::sync::Arc::new(std::sync::Mutex::new(copy));
        let size = || -> rusqlite::Result<u64> {
            let copy = copy.lock().unwrap_or_else(PoisonError::into_inner);
            let number = |name| copy.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
            Ok((number("page_count")? * number("page_size")?).cast_unsigned())
        };
        let before = size().map_err(failed)?;
        let store = Sqlite::new("memory:".to_owned(), None, copy.clone(), copy.clone(), None);
        families.iter().try_for_each(|family| store.delete(*family))?;
        let steps = store.compact()?.steps;
        Ok(FreedSpace { bytes: before.saturating_sub(size().map_err(failed)?), steps, ..FreedSpace::default() })
    }

    /// Writes all pages anew, and moves them into the database.
    fn vacuum(&self) -> Result<Erased> {
        {
            let writer = self.writer();
            let connection = writer.connection.lock().unwrap_or_else(PoisonError::into_inner);
            let vacuum = connection.execute_batch("VACUUM");
            vacuum.map_err(|error| schema::describe(&self.uri, self.path.as_deref(), "compact", error))?;
        }
        // While other processes read, SQLite keeps the WAL. The last one that closes the store removes it.
        let start = Instant::now();
        while self.checkpoint(CHECKPOINT_PAUSE)? {
            if start.elapsed() > MAX_CHECKPOINT_WAIT {
                return Ok(Erased::WhenIdle);
            }
            std::thread::sleep(CHECKPOINT_PAUSE);
        }
        Ok(Erased::Completely)
    }

    /// Moves the WAL into the database and empties it. Returns true if another connection prevented part of it for `timeout`.
    ///
    /// A WAL that was moved and not emptied would be read again after a crash.
    pub(super) fn checkpoint(&self, timeout: Duration) -> Result<bool> {
        let writer = self.writer();
        let connection = writer.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let checkpoint = || {
            connection.busy_timeout(timeout)?;
            let is_busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
            connection.busy_timeout(LOCK_TIMEOUT)?;
            is_busy
        };
        checkpoint().map_err(|error| schema::describe(&self.uri, self.path.as_deref(), "write to", error))
    }

    fn size(&self) -> u64 {
        self.path.as_deref().map_or(0, |path| std::fs::metadata(path).map_or(0, |file| file.len()))
    }
}

/// Erases payloads that no step refers to, except the step at `place`.
fn erase_payloads(transaction: &Transaction<'_>, mut digests: Vec<Digest>, place: u64) -> Result<(), TransactionError> {
    if digests.is_empty() {
        return Ok(());
    }
    // An unreadable step that refers to the payload too does not keep it.
    scan::each_row(transaction.connection, STEPS, |at, row| {
        if let Ok(row) = row
            && at.cast_unsigned() != place
        {
            let json = row.get_ref(2).ok().and_then(|json| json.as_blob().ok()).unwrap_or_default();
            digests.retain(|digest| memchr::memmem::find(json, digest.to_string().as_bytes()).is_none());
        }
    })?;
    digests.into_iter().try_for_each(|digest| payload::erase(transaction.connection, digest))?;
    Ok(())
}

/// Deletes writers of no branch that have ended, or whose lease expired long ago.
fn sweep_writers(transaction: &Transaction<'_>) -> Result<(), TransactionError> {
    let mut writers = HashSet::new();
    scan::each_row(transaction.connection, BRANCHES, |_, row| {
        writers.extend(row.ok().and_then(BranchRow::read).map(|row| row.writer.cast_signed()));
    })?;
    let old = now().saturating_sub(WRITER_RETENTION_MICROS);
    let known: Vec<(i64, String, i64)> = transaction
        .connection
        .prepare("SELECT w, who, expires FROM writers")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (number, who, expires) in known {
        let is_over = expires < old || Holder::from_json(&who).is_some_and(|holder| holder.is_dead());
        if is_over && !writers.contains(&number) {
            transaction.connection.execute("DELETE FROM writers WHERE w = ?", [number])?;
        }
    }
    Ok(())
}
