//! The row of a branch, packed and sealed in the same way in the log and in the database.

use std::sync::Arc;

use rath_record::{BranchId, Seal, Step, StepId, Timestamp, Totals};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::{BranchSummary, Holder};
use super::entry::{FieldReader, SEAL};
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The state of a branch.
#[derive(Clone)]
pub(super) struct BranchRow {
    pub(super) id: BranchId,
    pub(super) family: BranchId,
    /// The newest step: its place and its id.
    pub(super) head: u64,
    pub(super) head_id: StepId,
    /// The place from which another branch continues.
    pub(super) followed: u64,
    /// The writer of the branch: the place of its entry in the log; 0 if the branch is closed.
    pub(super) writer: u64,
    /// The number of claims so far.
    pub(super) epoch: u64,
    at: Option<Timestamp>,
    totals: Vec<u8>,
    pub(super) title: Arc<str>,
}

/// The length of the fields before the totals, in bytes.
const NUMBERS: usize = 5 * 8 + 32;

impl BranchRow {
    /// Creates the row of a new branch that is closed.
    pub(super) fn new(id: BranchId, family: BranchId, (place, head): (u64, &Step), title: Arc<str>) -> Self {
        let mut row = BranchRow {
            id,
            family,
            head: 0,
            head_id: head.id(),
            followed: 0,
            writer: 0,
            epoch: 0,
            at: None,
            totals: Vec::new(),
            title,
        };
        row.move_to(place, head.id(), head.stamp().at, head.encode_totals());
        row
    }

    pub(super) fn move_to(&mut self, place: u64, id: StepId, at: Option<Timestamp>, totals: Vec<u8>) {
        (self.head, self.head_id, self.at, self.totals) = (place, id, at, totals);
    }

    /// Packs the row for the log.
    pub(super) fn pack(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.0);
        out.extend_from_slice(&self.family.0);
        out.extend_from_slice(&((NUMBERS + self.totals.len()) as u32).to_le_bytes());
        self.pack_state(out);
        out.extend_from_slice(self.title.as_bytes());
    }

    pub(super) fn unpack(bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader(bytes);
        let (id, family) = (BranchId(fields.array()?), BranchId(fields.array()?));
        let length = fields.u32()? as usize;
        let state = fields.take(length)?;
        BranchRow::from_state(id, family, state, fields.text()?.into())
    }

    /// Packs the fields that change with every step.
    fn pack_state(&self, out: &mut Vec<u8>) {
        let at = self.at.map_or(i64::MIN, |at| at.0);
        for number in [self.head, self.followed, self.writer, self.epoch, at.cast_unsigned()] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.head_id.0);
        out.extend_from_slice(&self.totals);
    }

    fn from_state(id: BranchId, family: BranchId, state: &[u8], title: Arc<str>) -> Option<Self> {
        let mut fields = FieldReader(state);
        let [head, followed, writer, epoch] = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let at = Some(fields.i64()?).filter(|at| *at != i64::MIN).map(Timestamp);
        let head_id = StepId(fields.array()?);
        let totals = fields.0.to_vec();
        Totals::decode(&totals)?;
        Some(BranchRow { id, family, head, head_id, followed, writer, epoch, at, totals, title })
    }

    /// Inserts or updates the row in the database.
    pub(super) fn save(&self, connection: &Connection, scratch: &mut Vec<u8>) -> rusqlite::Result<()> {
        scratch.clear();
        self.pack_state(scratch);
        let seal = sealed([&self.id.0, &self.family.0], scratch, &self.title);
        scratch.extend_from_slice(&seal);
        let sql = "INSERT INTO branches(id, family, title, state) VALUES (?, ?, ?, ?)
                   ON CONFLICT(id) DO UPDATE SET family = excluded.family, title = excluded.title, state = excluded.state";
        connection.prepare_cached(sql)?.execute(params![
            &self.id.0[..],
            &self.family.0[..],
            &*self.title,
            &scratch[..]
        ])?;
        Ok(())
    }

    /// Finds a branch; the inner error means that the seal of the row does not fit.
    pub(super) fn find(connection: &Connection, id: BranchId) -> rusqlite::Result<Option<Result<Self>>> {
        let sql = "SELECT b, id, family, title, state FROM branches WHERE id = ?";
        let found =
            connection.prepare_cached(sql)?.query_row([&id.0[..]], |row| Ok(BranchRow::read(row))).optional()?;
        Ok(found.map(|row| row.ok().flatten().map(|(_, row)| row).ok_or_else(|| changed(id))))
    }

    /// Returns the ids of all branches of a session.
    pub(super) fn of_family(connection: &Connection, family: BranchId) -> rusqlite::Result<Vec<BranchId>> {
        let mut statement = connection.prepare("SELECT id FROM branches WHERE family = ? ORDER BY b")?;
        let rows =
            statement.query_map([&family.0[..]], |row| Ok(row.get_ref(0)?.as_blob()?.try_into().map(BranchId)))?;
        rows.filter_map(|id| id.map(Result::ok).transpose()).collect()
    }

    /// Calls `each` with every branch and its number, in the order in which they began; none for a row whose seal does not fit.
    pub(super) fn every(connection: &Connection, mut each: impl FnMut(Option<(i64, Self)>)) -> rusqlite::Result<()> {
        let sql = "SELECT b, id, family, title, state FROM branches ORDER BY b";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            each(BranchRow::read(row).ok().flatten());
        }
        Ok(())
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Option<(i64, Self)>> {
        let Some((b, id, family, title, state)) = parts(row)? else { return Ok(None) };
        Ok(BranchRow::from_state(id, family, state, title.into()).map(|row| (b, row)))
    }

    /// Calls `each` with the number, the writer and the list entry of every branch, in the order in which they began; none for a
    /// row whose seal does not fit.
    pub(super) fn list(
        connection: &Connection,
        mut each: impl FnMut(Option<(i64, u64, BranchSummary)>),
    ) -> rusqlite::Result<()> {
        let sql = "SELECT b, id, family, title, state FROM branches ORDER BY b";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            each(BranchRow::read_summary(row).ok().flatten());
        }
        Ok(())
    }

    /// Reads a list entry without copying anything but the title.
    fn read_summary(row: &Row<'_>) -> rusqlite::Result<Option<(i64, u64, BranchSummary)>> {
        let Some((b, branch, family, title, state)) = parts(row)? else { return Ok(None) };
        let read = || {
            let mut fields = FieldReader(state);
            let [head, followed, writer, _] = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
            let at = Some(fields.i64()?).filter(|at| *at != i64::MIN).map(Timestamp);
            let (head_id, totals) = (StepId(fields.array()?), Totals::decode(fields.0)?);
            let (title, is_tip) = (title.into(), followed != head);
            Some((b, writer, BranchSummary { branch, family, head: head_id, totals, title, at, is_tip, holder: None }))
        };
        Ok(read())
    }

    pub(super) fn summary(&self, holder: Option<Holder>) -> BranchSummary {
        BranchSummary {
            branch: self.id,
            family: self.family,
            head: self.head_id,
            totals: Totals::decode(&self.totals).unwrap_or_default(),
            title: self.title.clone(),
            at: self.at,
            is_tip: self.followed != self.head,
            holder: holder.map(Arc::new),
        }
    }
}

/// The columns of a row whose seal fits.
type BranchColumns<'a> = (i64, BranchId, BranchId, &'a str, &'a [u8]);

fn parts<'a>(row: &'a Row<'_>) -> rusqlite::Result<Option<BranchColumns<'a>>> {
    let blob = |column: usize| -> rusqlite::Result<&[u8]> { Ok(row.get_ref(column)?.as_blob()?) };
    let (id, family, state) = (blob(1)?, blob(2)?, blob(4)?);
    let title = row.get_ref(3)?.as_str()?;
    let Some(length) = state.len().checked_sub(SEAL) else { return Ok(None) };
    let (state, seal) = state.split_at(length);
    if sealed([id, family], state, title) != *seal {
        return Ok(None);
    }
    let (Ok(id), Ok(family)) = (id.try_into(), family.try_into()) else { return Ok(None) };
    Ok(Some((row.get(0)?, BranchId(id), BranchId(family), title, state)))
}

/// Computes the seal of a row.
fn sealed(step_and_branch: [&[u8]; 2], state: &[u8], title: &str) -> [u8; SEAL] {
    // One call on a buffer on the stack: a list has very many rows, and each call and allocation costs.
    let parts = [step_and_branch[0], step_and_branch[1], state, &(title.len() as u64).to_le_bytes(), title.as_bytes()];
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

/// Creates the error for a row whose seal does not fit.
fn changed(id: BranchId) -> StoreError {
    let message = format!("what the store says of the session {} was changed: its seal does not match", id.short());
    StoreError::new(StoreErrorKind::Damaged, message).with_hint("`rath salvage` copies what is good")
}
