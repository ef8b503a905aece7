//! The rows of branches, each with a seal.

use std::sync::Arc;

use rath_record::{BranchId, Seal, Step, StepId, Timestamp, Totals};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::{BranchSummary, Signature};
use super::scan::{self, BRANCHES};
use super::step_row::{FieldReader, SEAL_BYTES};
use super::transaction::holder_of;
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The state of a branch.
#[derive(Clone)]
pub(super) struct BranchRow {
    /// The rowid, in the order in which branches began.
    pub(super) b: i64,
    pub(super) id: BranchId,
    pub(super) family: BranchId,
    /// The newest step: its place and its id.
    pub(super) head: u64,
    pub(super) head_id: StepId,
    /// The place from which another branch continues.
    pub(super) followed: u64,
    /// The number of the writer; 0 if the branch is closed.
    pub(super) writer: u64,
    /// The number of claims so far.
    pub(super) epoch: u64,
    at: Option<Timestamp>,
    totals: Vec<u8>,
    /// The signature under the newest step.
    pub(super) signature: Option<Signature>,
    pub(super) title: Arc<str>,
}

/// The newest step of a branch, and what its row holds of it.
pub(super) struct NewHead<'a> {
    pub(super) place: u64,
    pub(super) step: &'a Step,
    pub(super) totals: Vec<u8>,
    pub(super) signature: Option<Signature>,
}

impl BranchRow {
    /// Creates the row of a new branch that is closed.
    pub(super) fn new(
        b: i64,
        (id, family): (BranchId, BranchId),
        NewHead { place, step, totals, signature }: NewHead<'_>,
        title: Arc<str>,
    ) -> Self {
        let (head_id, at) = (step.id(), step.stamp().at);
        BranchRow {
            b,
            id,
            family,
            head: place,
            head_id,
            followed: 0,
            writer: 0,
            epoch: 0,
            at,
            totals,
            signature,
            title,
        }
    }

    /// Sets the newest step.
    pub(super) fn move_to(&mut self, NewHead { place, step, totals, signature }: NewHead<'_>) {
        (self.head, self.head_id, self.at) = (place, step.id(), step.stamp().at);
        (self.totals, self.signature) = (totals, signature);
    }

    /// Inserts the row, or updates it if it is in the table.
    pub(super) fn save(&self, connection: &Connection, is_new: bool, scratch: &mut Vec<u8>) -> rusqlite::Result<()> {
        scratch.clear();
        let at = self.at.map_or(i64::MIN, |at| at.0);
        for number in [self.head, self.followed, self.writer, self.epoch, at.cast_unsigned()] {
            scratch.extend_from_slice(&number.to_le_bytes());
        }
        scratch.extend_from_slice(&self.head_id.0);
        scratch.extend_from_slice(&self.totals);
        self.signature.iter().for_each(|signature| scratch.extend_from_slice(&signature.0));
        let seal = seal(self.b, [&self.id.0, &self.family.0], scratch, &self.title);
        scratch.extend_from_slice(&seal);
        if is_new {
            let sql = "INSERT INTO branches(b, id, family, title, state) VALUES (?, ?, ?, ?, ?)";
            let values = params![self.b, &self.id.0[..], &self.family.0[..], &*self.title, &scratch[..]];
            connection.prepare_cached(sql)?.execute(values)?;
        } else {
            let mut update = connection.prepare_cached("UPDATE branches SET title = ?, state = ? WHERE b = ?")?;
            update.execute(params![&*self.title, &scratch[..], self.b])?;
        }
        Ok(())
    }

    /// Finds a branch; the inner error means that the seal of the row does not match.
    pub(super) fn find(connection: &Connection, id: BranchId) -> rusqlite::Result<Option<Result<Self>>> {
        let sql = "SELECT b, id, family, title, state FROM branches WHERE id = ?";
        let found =
            connection.prepare_cached(sql)?.query_row([&id.0[..]], |row| Ok(BranchRow::read(row))).optional()?;
        Ok(found.map(|row| row.filter(|row| row.id == id).ok_or_else(|| changed(id))))
    }

    /// Finds a branch, without the index if the index does not lead to an undamaged row.
    pub(super) fn find_or_scan(connection: &Connection, id: BranchId) -> rusqlite::Result<Option<Result<Self>>> {
        let found = BranchRow::find(connection, id);
        if let Ok(Some(Ok(_))) = &found {
            return found;
        }
        let mut row = None;
        scan::each_row(connection, BRANCHES, |_, columns| {
            row = row.take().or(columns.ok().and_then(BranchRow::read).filter(|row| row.id == id));
        })?;
        row.map_or(found, |row| Ok(Some(Ok(row))))
    }

    /// Returns the ids of all branches of a session.
    pub(super) fn of_family(connection: &Connection, family: BranchId) -> rusqlite::Result<Vec<BranchId>> {
        let mut statement = connection.prepare("SELECT id FROM branches WHERE family = ? ORDER BY b")?;
        let rows =
            statement.query_map([&family.0[..]], |row| Ok(row.get_ref(0)?.as_blob()?.try_into().map(BranchId)))?;
        rows.filter_map(|id| id.map(Result::ok).transpose()).collect()
    }

    /// Reads a row; none if its seal does not match.
    pub(super) fn read(row: &Row<'_>) -> Option<Self> {
        let Columns { b, id, family, title, state } = Columns::read(row)?;
        let mut fields = FieldReader(state);
        let [head, followed, writer, epoch] = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let at = Some(fields.i64()?).filter(|at| *at != i64::MIN).map(Timestamp);
        let (head_id, title) = (StepId(fields.array()?), title.into());
        let (totals, signature) = Totals::split_encoded(fields.0)?;
        // A row of an earlier version has none, or a longer one that begins with the same bytes.
        let (totals, signature) = (totals.to_vec(), signature.first_chunk().copied().map(Signature));
        Some(BranchRow { b, id, family, head, head_id, followed, writer, epoch, at, totals, signature, title })
    }

    /// Reads the number, the writer and the list entry of a branch, and copies nothing but the title; none if the seal of the
    /// row does not match.
    pub(super) fn read_summary(row: &Row<'_>) -> Option<(i64, u64, BranchSummary)> {
        let Columns { b, id, family, title, state } = Columns::read(row)?;
        let mut fields = FieldReader(state);
        let [head, followed, writer, _] = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let at = Some(fields.i64()?).filter(|at| *at != i64::MIN).map(Timestamp);
        let (head_id, totals) = (StepId(fields.array()?), Totals::decode(fields.0)?);
        let (title, is_tip) = (title.into(), followed != head);
        let summary = BranchSummary { branch: id, family, head: head_id, totals, title, at, is_tip, holder: None };
        Some((b, writer, summary))
    }

    /// Returns the entry of the branch in the list.
    pub(super) fn summary(&self, connection: &Connection) -> rusqlite::Result<BranchSummary> {
        Ok(BranchSummary {
            branch: self.id,
            family: self.family,
            head: self.head_id,
            totals: Totals::decode(&self.totals).unwrap_or_default(),
            title: self.title.clone(),
            at: self.at,
            is_tip: self.followed != self.head,
            holder: holder_of(connection, self.writer)?,
        })
    }
}

/// The columns of a row whose seal matches.
struct Columns<'a> {
    b: i64,
    id: BranchId,
    family: BranchId,
    title: &'a str,
    state: &'a [u8],
}

impl<'a> Columns<'a> {
    fn read(row: &'a Row<'_>) -> Option<Self> {
        let blob = |column: usize| row.get_ref(column).ok()?.as_blob().ok();
        let (b, id, family, state) = (row.get(0).ok()?, blob(1)?, blob(2)?, blob(4)?);
        let title = row.get_ref(3).ok()?.as_str().ok()?;
        let (state, sealed) = state.split_at_checked(state.len().checked_sub(SEAL_BYTES)?)?;
        let is_same = seal(b, [id, family], state, title) == *sealed;
        let (id, family) = (BranchId(id.try_into().ok()?), BranchId(family.try_into().ok()?));
        is_same.then_some(Columns { b, id, family, title, state })
    }
}

/// Computes the seal of a row.
fn seal(b: i64, ids: [&[u8]; 2], state: &[u8], title: &str) -> [u8; SEAL_BYTES] {
    // One call on a buffer on the stack: a list has very many rows, and each call and allocation costs.
    let lengths = [b.to_le_bytes(), (title.len() as u64).to_le_bytes()];
    let parts = [ids[0], ids[1], state, &lengths[0], &lengths[1], title.as_bytes()];
    let mut bytes = [0; 512];
    let length: usize = parts.iter().map(|part| part.len()).sum();
    if length > bytes.len() {
        return Seal::compute(&parts.concat()).0;
    }
    let mut at = 0;
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    Seal::compute(&bytes[..length]).0
}

/// Creates the error for a row whose seal does not match.
fn changed(id: BranchId) -> StoreError {
    let message = format!("the row of the session {} was changed: its seal does not match", id.short());
    StoreError::new(StoreErrorKind::Damaged, message).with_hint("`rath salvage` copies what is good")
}
