//! One transaction on a store: its checks, and the group of entries that it appends.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rath_record::{BranchId, Parent, Payload, Step, StepId, StorageState};
use rusqlite::{Connection, params};

use super::super::holder::now;
use super::super::title::branch_title;
use super::super::{
    BranchSummary, FIRST_EPOCH, Holder, StepPlaces, Write, WriteRight, branch_held, branch_moved, missing_parent,
    parent_not_stored, right_lost,
};
use super::branch::BranchRow;
use super::change::TransactionError;
use super::entry::{self, EntryEncoder, StepPlacement};
use super::index::BranchIndex;
use super::log::{GROUP_HEAD_BYTES, Log};
use super::log_reader::LogReader;
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The length of the JSON of a step, in bytes.
const MAX_STEP_BYTES: usize = 1 << 30;

/// A transaction. The log is locked and all its entries have been read.
pub(super) struct Transaction<'a> {
    pub(super) connection: &'a Connection,
    pub(super) log: &'a Log,
    pub(super) index: &'a mut BranchIndex,
    /// The branches that this process writes.
    pub(super) held: &'a mut HashSet<BranchId>,
    /// The number of this process among the writers of the store.
    pub(super) own: &'a mut Option<u64>,
    pub(super) lease: Duration,
    /// The group, with space for its head.
    pub(super) group: &'a mut Vec<u8>,
    /// True if payloads are in a SQLite transaction that is not committed.
    pub(super) has_payloads: bool,
}

impl Transaction<'_> {
    /// Begins a group.
    pub(super) fn begin(&mut self) {
        self.group.clear();
        self.group.resize(GROUP_HEAD_BYTES, 0);
    }

    /// Commits: first the payloads, then the group that refers to them.
    pub(super) fn finish(&mut self) -> Result<(), TransactionError> {
        if std::mem::take(&mut self.has_payloads) {
            self.connection.execute_batch("COMMIT")?;
        }
        if self.group.len() > GROUP_HEAD_BYTES {
            self.log.append(self.group, self.index.end).map_err(TransactionError::Commit)?;
            self.index.end += self.group.len() as u64;
        }
        Ok(())
    }

    /// Returns the place of the next entry.
    fn place(&self) -> u64 {
        self.index.end + self.group.len() as u64
    }

    /// Returns the id and the branch of the step at a place, if there is one.
    fn step_and_branch(&self, place: u64) -> Option<(StepId, BranchId)> {
        match place.checked_sub(self.index.end) {
            None => LogReader::back(self.log).step_and_branch(place),
            Some(here) => entry::step_and_branch(self.group.get(usize::try_from(here).ok()?..)?),
        }
    }

    /// Appends the whole state of a branch.
    pub(super) fn put(&mut self, row: BranchRow) -> Result<(), TransactionError> {
        let place = self.place();
        EntryEncoder(self.group).branch(place, &row);
        self.index.put(self.connection, row, place)
    }

    /// Appends the removal of a branch.
    pub(super) fn remove(&mut self, branch: BranchId) {
        let place = self.place();
        EntryEncoder(self.group).gone(place, branch);
        self.index.remove(branch);
        self.held.remove(&branch);
    }

    /// Returns the number of this process among the writers of the store, and appends it if it is new.
    fn own(&mut self, holder: &Holder) -> u64 {
        if let Some(own) = *self.own {
            return own;
        }
        let (place, who, expires) = (self.place(), holder.to_json(), expiry(self.lease));
        EntryEncoder(self.group).writer(place, &who, expires);
        self.index.add_writer(place, who, expires);
        *self.own.insert(place)
    }

    /// Returns the row of a branch, and its entry in the list.
    pub(super) fn summary(&mut self, branch: BranchId) -> Result<Option<(BranchRow, BranchSummary)>, TransactionError> {
        let Some(row) = self.index.get(self.connection, branch)?.cloned() else { return Ok(None) };
        let holder = self.index.writer(self.connection, row.writer)?.map(|(holder, _)| holder);
        let summary = row.summary(holder);
        Ok(Some((row, summary)))
    }

    /// Claims the right to append to a branch.
    pub(super) fn claim(&mut self, branch: BranchId, holder: &Holder) -> Result<Option<u64>, TransactionError> {
        let Some(mut row) = self.index.get(self.connection, branch)?.cloned() else { return Ok(None) };
        // A right that this process dropped without releasing it can be claimed again by this process.
        if Some(row.writer) != *self.own || self.held.contains(&branch) {
            self.refuse_if_held(&row)?;
        }
        row.writer = self.own(holder);
        row.epoch += 1;
        let epoch = row.epoch;
        self.put(row)?;
        self.held.insert(branch);
        Ok(Some(epoch))
    }

    /// Releases the right to append to a branch, unless there is a newer one.
    pub(super) fn release(&mut self, branch: BranchId, epoch: u64) -> Result<(), TransactionError> {
        let row = match self.index.get(self.connection, branch) {
            Err(TransactionError::Store(_)) => return Ok(()),
            row => row?.filter(|row| row.epoch == epoch).cloned(),
        };
        if let Some(mut row) = row {
            row.writer = 0;
            self.held.remove(&branch);
            self.put(row)?;
        }
        Ok(())
    }

    /// Fails if a writer that may be alive holds the branch.
    pub(super) fn refuse_if_held(&self, row: &BranchRow) -> Result<(), TransactionError> {
        if let Some((holder, expires)) = self.index.writer(self.connection, row.writer)?
            && !holder.is_dead()
            && expires > now()
        {
            return Err(branch_held(row.id, &holder).into());
        }
        Ok(())
    }

    /// Appends to one branch. The outer error is of the store, the inner one is for the writer of this branch.
    pub(super) fn append(&mut self, write: &Write, rows: &StepPlaces) -> Result<Result<()>, TransactionError> {
        // All checks come before the first entry.
        let own = *self.own;
        let row = self.index.get(self.connection, write.branch)?;
        match (&write.right, row) {
            (WriteRight::New(_), None) => {}
            (WriteRight::New(_), Some(_)) => return Ok(Err(branch_moved(write.branch))),
            (WriteRight::Held(epoch), Some(row)) if row.epoch == *epoch && Some(row.writer) == own => {
                if Some(row.head_id) != write.after {
                    return Ok(Err(branch_moved(write.branch)));
                }
            }
            (WriteRight::Held(_), row) => {
                let writer = row.map_or(0, |row| row.writer);
                let writer = if Some(writer) == own { None } else { self.index.writer(self.connection, writer)? };
                return Ok(Err(right_lost(write.branch, writer.map(|(holder, _)| holder).as_ref())));
            }
        }
        let Some(head) = write.steps.last() else { return Ok(Ok(())) };
        if let Some(parent) = missing_parent(write, rows) {
            return Ok(Err(parent_not_stored(parent)));
        }
        // Only on other branches can parents be deleted meanwhile, with the steps that continue from them.
        for link in write.steps.iter().flat_map(|step| step.parents().iter().filter(|link| may_be_gone(link, step))) {
            if let StorageState::At(at) = rows.lookup(link)
                && self.step_and_branch(at).map(|(id, _)| id) != Some(link.id())
            {
                return Ok(Err(parent_not_stored(link.id())));
            }
        }
        let said: Vec<_> = (0..write.steps.len()).map(|nth| write.json(nth)).collect();
        if let Some(long) = said.iter().map(|json| json.len()).find(|length| *length > MAX_STEP_BYTES) {
            let message = format!("a step of {long} bytes is too long to be kept; the most is {MAX_STEP_BYTES}");
            return Ok(Err(StoreError::new(StoreErrorKind::Store, message)));
        }
        let is_new = matches!(write.right, WriteRight::New(_));
        let is_plain = !is_new && write.title.is_none() && head.stamp().branch == write.branch;
        let mut others: HashMap<BranchId, (u64, &Step)> = HashMap::new();
        let mut last = 0;
        for (nth, (step, json)) in write.steps.iter().zip(&said).enumerate() {
            last = self.step(step, json, rows, is_plain && nth + 1 == write.steps.len())?;
            if step.stamp().branch != write.branch {
                others.insert(step.stamp().branch, (last, step));
            }
        }
        for (branch, (place, step)) in others {
            if self.index.get(self.connection, branch)?.is_none() {
                let title = branch_title(branch, step, &write.steps).unwrap_or_default();
                self.put(BranchRow::new(branch, write.family, (place, step), title))?;
            }
        }
        if is_plain {
            return Ok(Ok(()));
        }
        let row = self.index.get(self.connection, write.branch)?.cloned();
        let title = || write.title.clone().unwrap_or_default();
        let mut row = row.unwrap_or_else(|| BranchRow::new(write.branch, write.family, (last, head), title()));
        row.move_to(last, head.id(), head.stamp().at, head.encode_totals());
        write.title.iter().for_each(|title| row.title = title.clone());
        if let WriteRight::New(holder) = &write.right {
            (row.writer, row.epoch) = (self.own(holder), FIRST_EPOCH);
            self.held.insert(write.branch);
        }
        self.put(row)?;
        Ok(Ok(()))
    }

    /// Appends one step, after its payloads. Returns its place.
    fn step(&mut self, step: &Step, json: &[u8], rows: &StepPlaces, moves: bool) -> Result<u64, TransactionError> {
        for (digest, payload) in step.chunk().payloads() {
            if !std::mem::replace(&mut self.has_payloads, true) {
                self.connection.execute_batch("BEGIN IMMEDIATE")?;
            }
            let is_text = matches!(payload, Payload::Text(_));
            self.connection
                .prepare_cached(
                    "INSERT INTO payloads(digest, is_text, data) VALUES (?, ?, ?)
                     ON CONFLICT(digest) DO UPDATE SET data = excluded.data WHERE data IS NULL",
                )?
                .execute(params![&digest.0[..], is_text, payload.bytes()])?;
        }
        let mut placement = StepPlacement { places: [0; 2], elsewhere: [false; 2], moves };
        for (nth, link) in step.parents().iter().enumerate().take(2) {
            let StorageState::At(at) = rows.lookup(link) else { continue };
            placement.places[nth] = at;
            let branch = match link {
                Parent::Loaded(parent) => Some(parent.stamp().branch),
                // A step that is not loaded is not loaded for this.
                _ => self.step_and_branch(at).map(|(_, branch)| branch),
            };
            if let Some(branch) = branch.filter(|branch| *branch != step.stamp().branch) {
                placement.elsewhere[nth] = true;
                self.index.follow(self.connection, branch, at)?;
            }
        }
        let (place, totals) = (self.place(), step.encode_totals());
        EntryEncoder(self.group).step(place, step, json, &totals, &placement);
        rows.set(step, StorageState::At(place));
        if moves {
            let (branch, at) = (step.stamp().branch, step.stamp().at);
            self.index.change(self.connection, branch, |row| row.move_to(place, step.id(), at, totals))?;
        }
        Ok(place)
    }
}

/// Returns true if a parent is, or may be, on another branch than its child.
fn may_be_gone(link: &Parent, child: &Step) -> bool {
    match link {
        Parent::Loaded(parent) => parent.stamp().branch != child.stamp().branch,
        Parent::Lazy(_) => true,
        Parent::Missing(_) => false,
    }
}

pub(super) fn expiry(lease: Duration) -> i64 {
    now().saturating_add(i64::try_from(lease.as_micros()).unwrap_or(i64::MAX))
}
