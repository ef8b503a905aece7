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
use super::super::{Deletion, Erased, FreedSpace, StoreBackend as _};
use super::branch_row::BranchRow;
use super::check::ReferencedRows;
use super::scan::{self, BRANCHES, STEPS};
use super::schema::{LOCK_TIMEOUT, StoreConnection};
use super::step_row::{StepRow, step_and_branch};
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
            let mut is_found = false;
            scan::walk_back(transaction.connection, [row.head], |_, row| {
                is_found |= row.is_ok_and(|row| row.id == step);
            })?;
            if !is_found {
                let message = format!("no step {} in the session {}", step.short(), branch.short());
                return Err(StoreError::new(StoreErrorKind::NoSuchStep, message).into());
            }
            let copies = copies_of(transaction, step)?;
            let places: Vec<u64> = copies.iter().map(|copy| copy.place).collect();
            for copy in copies {
                erase(transaction, copy, &places)?;
            }
            Ok(())
        })?;
        self.vacuum()
    }

    pub(super) fn compact_all(&self) -> Result<FreedSpace> {
        self.checkpoint(Duration::ZERO)?;
        let before = self.size()?;
        let steps = self.write_transaction(|transaction| {
            // Steps without a branch are removed: first, every branch must be known to be there.
            if let Some(damage) = check::kept(transaction.connection)?.damage.into_iter().next() {
                let message = format!("the store is damaged, and compacting it could lose more: {}", damage.what);
                let error = StoreError::new(StoreErrorKind::Damaged, message);
                return Err(error
                    .with_hint("`rath verify` names what is damaged, `rath salvage` copies what is good")
                    .into());
            }
            let ReferencedRows { places, digests, unfollowed } = check::referenced(transaction.connection)?;
            for branch in unfollowed {
                transaction.change(branch, |row| row.followed = 0)?;
            }
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
        Ok(FreedSpace { bytes: before.saturating_sub(self.size()?), steps, erased })
    }

    /// Returns the result of a deletion and a compaction, by trying them on a temporary copy.
    pub(super) fn measure(&self, families: &[BranchId]) -> Result<Deletion> {
        let failed = |error| schema::describe(&self.uri, self.path.as_deref(), "read", error);
        let copy = {
            let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            StoreConnection::copy_to_temporary(&reader).map_err(failed)?
        };
        let copy = std::sync::Arc::new(std::sync::Mutex::new(copy));
        let store = Sqlite::new(self.uri.clone(), None, copy.clone(), copy, None);
        let deletion = store.delete(families)?;
        Ok(Deletion { freed: store.compact()?, ..deletion })
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

    /// Returns the size of the database. That of its file would depend on how much of the WAL other processes let be moved.
    fn size(&self) -> Result<u64> {
        let writer = self.writer();
        let connection = writer.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let number = |name| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
        let size = || Ok(number("page_count")?.saturating_mul(number("page_size")?).unsigned_abs());
        size().map_err(|error| schema::describe(&self.uri, self.path.as_deref(), "read", error))
    }
}

/// Returns all rows of a step: sessions that begin alike have one each.
fn copies_of(transaction: &Transaction<'_>, step: StepId) -> Result<Vec<StepRow>, TransactionError> {
    let mut places = Vec::new();
    scan::each_row(transaction.connection, STEPS, |at, row| {
        let id = row.ok().and_then(|row| {
            let head = row.get_ref(1).ok()?.as_blob().ok()?;
            step_and_branch(at.cast_unsigned(), head)
        });
        places.extend(id.filter(|(id, _)| *id == step).map(|_| at.cast_unsigned()));
    })?;
    let mut copies = Vec::new();
    for place in places {
        copies.extend(scan::step(transaction.connection, place)?.ok());
    }
    Ok(copies)
}

/// Erases the content of one row. The rows of the same step are at `places`.
fn erase(transaction: &mut Transaction<'_>, mut row: StepRow, places: &[u64]) -> Result<(), TransactionError> {
    let chunk = Chunk::decode(&row.json).map_err(|error| StoreError::new(StoreErrorKind::Store, error))?;
    erase_payloads(transaction, chunk.payload_digests(), places)?;
    // The title in the list must not keep the erased text.
    let family = transaction.branch(row.stamp.branch)?.map(|branch| branch.family);
    if let (Chunk::User(user), Some(family)) = (&chunk, family)
        && let Some(title) = from_text(&user.text)
    {
        for relative in BranchRow::of_family(transaction.connection, family)? {
            if transaction.branch(relative)?.is_some_and(|row| row.title == title) {
                transaction.change(relative, |row| row.title = Chunk::FORGOTTEN_TEXT.into())?;
            }
        }
    }
    row.withheld.get_or_insert_with(|| Digest::compute(row.json.as_bytes()));
    let mut json = Vec::new();
    chunk.redacted().encode(&mut json);
    row.json = String::from_utf8(json).expect("JSON is UTF-8");
    let values = params![row.encode(), row.json.as_bytes(), row.place.cast_signed()];
    transaction.connection.execute("UPDATE steps SET head = ?, json = ? WHERE s = ?", values)?;
    Ok(())
}

/// Erases payloads that no step refers to, except the rows at `places`.
fn erase_payloads(
    transaction: &Transaction<'_>,
    mut digests: Vec<Digest>,
    places: &[u64],
) -> Result<(), TransactionError> {
    if digests.is_empty() {
        return Ok(());
    }
    // An unreadable step that refers to the payload too does not keep it.
    scan::each_row(transaction.connection, STEPS, |at, row| {
        if let Ok(row) = row
            && !places.contains(&at.cast_unsigned())
        {
            let json = row.get_ref(2).ok().and_then(|json| json.as_blob().ok()).unwrap_or_default();
            let may_refer = |digest: &Digest| memchr::memmem::find(json, digest.to_string().as_bytes()).is_some();
            if digests.iter().any(may_refer) {
                // The digest of a file in an effect is no reference.
                let referred = payload::digests(&String::from_utf8_lossy(json));
                digests.retain(|digest| !referred.contains(digest));
            }
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
