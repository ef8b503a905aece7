//! Rows of the tables, each with a seal over all it says.

use std::ops::ControlFlow;
use std::sync::Arc;

use rath_record::{BranchId, Digest, Link, Seal, Stamp, Step, StepId, Timestamp, Totals, Usage};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::{Holder, Listed};
use crate::error::{Error, ErrorKind, Result};

/// One step, as it stands in its table.
pub(super) struct StepRow {
    pub(super) n: i64,
    pub(super) id: StepId,
    pub(super) parents: Vec<StepId>,
    pub(super) ours: i64,
    pub(super) theirs: i64,
    pub(super) stamp: Stamp,
    pub(super) totals: Vec<u8>,
    pub(super) withheld: Option<Digest>,
    pub(super) chunk: String,
    pub(super) seal: [u8; 16],
}

/// The columns of a step, in a statement.
macro_rules! step_sql {
    ($before:literal, $after:literal) => {
        concat!($before, "n, id, parents, ours, theirs, branch, by, usage, at, totals, withheld, chunk, seal", $after)
    };
}

impl StepRow {
    pub(super) fn of(step: &Step, n: i64, place: impl Fn(&Link) -> i64) -> Self {
        let parents = step.parents();
        StepRow {
            n,
            id: step.id(),
            parents: parents.iter().map(Link::id).collect(),
            ours: parents.first().map_or(0, &place),
            theirs: parents.get(1).map_or(0, &place),
            stamp: step.stamp().clone(),
            totals: step.totals(),
            withheld: step.withheld(),
            chunk: step.json().into_owned(),
            seal: [0; 16],
        }
    }

    pub(super) fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.write(connection, step_sql!("INSERT INTO steps(", ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"))
    }

    /// Writes it where it stands already.
    pub(super) fn replace(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.write(connection, step_sql!("REPLACE INTO steps(", ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"))
    }

    fn write(&self, connection: &Connection, sql: &str) -> rusqlite::Result<()> {
        let mut parents = [0; 64];
        for (bytes, parent) in parents.chunks_exact_mut(32).zip(&self.parents) {
            bytes.copy_from_slice(&parent.0);
        }
        let usage = self.stamp.usage.map(|usage| serde_json::to_string(&usage).expect("numbers are written as JSON"));
        connection.prepare_cached(sql)?.execute(params![
            self.n,
            &self.id.0[..],
            &parents[..self.parents.len().min(2) * 32],
            self.ours,
            self.theirs,
            &self.stamp.branch.0[..],
            self.stamp.by.as_deref(),
            usage,
            self.stamp.at.map(|at| at.0),
            self.totals,
            self.withheld.as_ref().map(|digest| &digest.0[..]),
            self.chunk,
            &self.sealed()[..],
        ])?;
        Ok(())
    }

    pub(super) fn load(connection: &Connection, n: i64) -> rusqlite::Result<Option<Self>> {
        let sql = step_sql!("SELECT ", " FROM steps WHERE n = ?");
        connection.prepare_cached(sql)?.query_row([n], StepRow::read).optional()
    }

    /// Whether a row holds the step of this name.
    pub(super) fn is_there(connection: &Connection, n: u64, id: StepId) -> rusqlite::Result<bool> {
        let mut statement = connection.prepare_cached("SELECT 1 FROM steps WHERE n = ? AND id = ?")?;
        statement.exists(params![i64::try_from(n).unwrap_or_default(), &id.0[..]])
    }

    /// The steps from a row back, newest first, as long as `each` wants more.
    pub(super) fn back_from(
        connection: &Connection,
        n: i64,
        mut each: impl FnMut(i64, rusqlite::Result<Self>) -> ControlFlow<()>,
    ) -> rusqlite::Result<()> {
        let sql = step_sql!("SELECT ", " FROM steps WHERE n <= ? ORDER BY n DESC");
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([n])?;
        while let Some(row) = rows.next()? {
            if each(row.get(0)?, StepRow::read(row)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let parents: &[u8] = row.get_ref(2)?.as_blob()?;
        let usage: Option<&str> = row.get_ref(7)?.as_str_or_null()?;
        let usage = match usage {
            None => None,
            Some(json) => Some(serde_json::from_str::<Usage>(json).map_err(wrong)?),
        };
        Ok(StepRow {
            n: row.get(0)?,
            id: StepId(bytes(row, 1)?),
            parents: parents.chunks(32).map(|it| it.try_into().map(StepId).map_err(wrong)).collect::<Result<_, _>>()?,
            ours: row.get(3)?,
            theirs: row.get(4)?,
            stamp: Stamp {
                branch: BranchId(bytes(row, 5)?),
                by: row.get_ref(6)?.as_str_or_null()?.map(Into::into),
                usage,
                at: row.get::<_, Option<i64>>(8)?.map(Timestamp),
            },
            totals: row.get(9)?,
            withheld: row
                .get_ref(10)?
                .as_blob_or_null()?
                .map(|it| it.try_into().map(Digest))
                .transpose()
                .map_err(wrong)?,
            chunk: row.get_ref(11)?.as_str()?.to_owned(),
            seal: bytes(row, 12)?,
        })
    }

    /// What is wrong with it, if anything.
    pub(super) fn fault(&self) -> Option<&'static str> {
        if self.sealed() != self.seal {
            return Some("the row was changed: its seal does not fit");
        }
        if self.parents.len() > 2 {
            return Some("it has more than two parents");
        }
        let digest = self.withheld.unwrap_or_else(|| Digest::of(self.chunk.as_bytes()));
        if StepId::of(&self.parents, digest) != self.id {
            return Some("the step's id does not fit its parents and its chunk");
        }
        // That the chunk can be read follows from its id: nothing else was ever named so.
        Totals::read(&self.totals).is_none().then_some("the row cannot be read")
    }

    /// The seal: of all that the id does not cover, and the id; of the chunk itself where the id is not made of it.
    fn sealed(&self) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"rath step row 1\n");
        hasher.update(&self.n.to_le_bytes());
        hasher.update(&self.id.0);
        hasher.update(&[self.parents.len() as u8]);
        self.parents.iter().for_each(|parent| _ = hasher.update(&parent.0));
        hasher.update(&self.ours.to_le_bytes());
        hasher.update(&self.theirs.to_le_bytes());
        hasher.update(&self.stamp.branch.0);
        let mut field = |bytes: Option<&[u8]>| {
            hasher.update(&bytes.map_or(u64::MAX, |bytes| bytes.len() as u64).to_le_bytes());
            hasher.update(bytes.unwrap_or_default());
        };
        field(self.stamp.by.as_ref().map(|by| by.as_bytes()));
        let Usage { input, output, cached_read, cache_write, reasoning } = self.stamp.usage.unwrap_or_default();
        let usage = [input, output, cached_read, cache_write, reasoning].map(u64::to_le_bytes).concat();
        field(self.stamp.usage.map(|_| &usage[..]));
        field(self.stamp.at.map(|at| at.0.to_le_bytes()).as_ref().map(|at| &at[..]));
        field(Some(&self.totals));
        if let Some(withheld) = &self.withheld {
            field(Some(&withheld.0));
            field(Some(self.chunk.as_bytes()));
        }
        first_half(&hasher)
    }
}

/// One branch, as it stands in its table.
#[derive(Clone)]
pub(super) struct BranchRow {
    pub(super) b: i64,
    pub(super) id: BranchId,
    pub(super) family: BranchId,
    pub(super) head: i64,
    pub(super) head_id: StepId,
    totals: Vec<u8>,
    at: Option<i64>,
    pub(super) title: Arc<str>,
    pub(super) followed: i64,
    pub(super) writer: Option<i64>,
    pub(super) epoch: u64,
    seal: [u8; 16],
}

/// The columns of a branch, in a statement.
macro_rules! branch_sql {
    ($before:literal, $after:literal) => {
        concat!($before, "b, id, family, head, head_id, totals, at, title, followed, writer, epoch, seal", $after)
    };
}

impl BranchRow {
    /// A branch that is new, and closed.
    pub(super) fn new(id: BranchId, family: BranchId, (n, head): (i64, &Step), title: Arc<str>) -> Self {
        let mut row = BranchRow {
            b: 0,
            id,
            family,
            head: 0,
            head_id: head.id(),
            totals: Vec::new(),
            at: None,
            title,
            followed: 0,
            writer: None,
            epoch: 0,
            seal: [0; 16],
        };
        row.move_to(n, head);
        row
    }

    pub(super) fn move_to(&mut self, n: i64, head: &Step) {
        self.head = n;
        self.head_id = head.id();
        self.totals = head.totals();
        self.at = head.stamp().at.map(|at| at.0);
    }

    pub(super) fn insert(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.seal = self.sealed();
        let sql = "INSERT INTO branches(id, family, head, head_id, totals, at, title, followed, writer, epoch, seal, b)
                   VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        self.write(connection, sql)?;
        self.b = connection.last_insert_rowid();
        Ok(())
    }

    pub(super) fn update(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.seal = self.sealed();
        let sql = "UPDATE branches SET (id, family, head, head_id, totals, at, title, followed, writer, epoch, seal)
                   = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE b = ?";
        self.write(connection, sql)
    }

    fn write(&self, connection: &Connection, sql: &str) -> rusqlite::Result<()> {
        let epoch = i64::try_from(self.epoch).unwrap_or(i64::MAX);
        connection.prepare_cached(sql)?.execute(params![
            &self.id.0[..],
            &self.family.0[..],
            self.head,
            &self.head_id.0[..],
            self.totals,
            self.at,
            &*self.title,
            self.followed,
            self.writer,
            epoch,
            &self.seal[..],
            Some(self.b).filter(|b| *b > 0),
        ])?;
        Ok(())
    }

    /// Whether the file still says that it is held by the right that is known here, and where it was left.
    pub(super) fn is_held(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let sql = "SELECT epoch, head FROM branches WHERE b = ?";
        let found: Option<(i64, i64)> =
            connection.prepare_cached(sql)?.query_row([self.b], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        Ok(found == Some((i64::try_from(self.epoch).unwrap_or(i64::MAX), self.head)))
    }

    pub(super) fn find(connection: &Connection, id: BranchId) -> rusqlite::Result<Option<Self>> {
        let sql = branch_sql!("SELECT ", " FROM branches WHERE id = ?");
        connection.prepare_cached(sql)?.query_row([&id.0[..]], BranchRow::read).optional()
    }

    pub(super) fn of_family(connection: &Connection, family: BranchId) -> rusqlite::Result<Vec<Self>> {
        let sql = branch_sql!("SELECT ", " FROM branches WHERE family = ?");
        connection.prepare(sql)?.query_map([&family.0[..]], BranchRow::read)?.collect()
    }

    /// The branches of a session that a list says this of.
    pub(super) fn entitled(connection: &Connection, family: BranchId, title: &str) -> rusqlite::Result<Vec<Self>> {
        let sql = branch_sql!("SELECT ", " FROM branches WHERE family = ? AND title = ?");
        connection.prepare(sql)?.query_map(params![&family.0[..], title], BranchRow::read)?.collect()
    }

    /// Every branch there is, in the order in which they began.
    pub(super) fn every(connection: &Connection, mut each: impl FnMut(rusqlite::Result<Self>)) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(branch_sql!("SELECT ", " FROM branches ORDER BY b"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            each(BranchRow::read(row));
        }
        Ok(())
    }

    /// What a list says of every branch there is, in the order in which they began, with its row and that of its writer;
    /// none where a row is not as it was written.
    pub(super) fn list(
        connection: &Connection,
        mut each: impl FnMut(Option<(i64, Option<i64>, Listed)>),
    ) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(branch_sql!("SELECT ", " FROM branches ORDER BY b"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            each(BranchRow::read_listed(row).ok().flatten());
        }
        Ok(())
    }

    /// Without a copy of anything but the title.
    fn read_listed(row: &Row<'_>) -> rusqlite::Result<Option<(i64, Option<i64>, Listed)>> {
        let blob = |column: usize| -> rusqlite::Result<&[u8]> { Ok(row.get_ref(column)?.as_blob()?) };
        let (id, family, head_id, totals) = (blob(1)?, blob(2)?, blob(4)?, blob(5)?);
        let (head, at, followed): (i64, Option<i64>, i64) = (row.get(3)?, row.get(6)?, row.get(8)?);
        let (title, writer): (&str, Option<i64>) = (row.get_ref(7)?.as_str()?, row.get(9)?);
        let epoch = u64::try_from(row.get::<_, i64>(10)?).map_err(wrong)?;
        let numbers = [head, at.unwrap_or(i64::MIN), followed, writer.unwrap_or(-1)];
        if branch_seal([id, family, head_id], numbers, epoch, totals, title) != blob(11)? {
            return Ok(None);
        }
        let Some(totals) = Totals::read(totals) else { return Ok(None) };
        let listed = Listed {
            branch: BranchId(id.try_into().map_err(wrong)?),
            family: BranchId(family.try_into().map_err(wrong)?),
            head: StepId(head_id.try_into().map_err(wrong)?),
            totals,
            title: title.into(),
            at: at.map(Timestamp),
            is_tip: followed != head,
            holder: None,
        };
        Ok(Some((row.get(0)?, writer, listed)))
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(BranchRow {
            b: row.get(0)?,
            id: BranchId(bytes(row, 1)?),
            family: BranchId(bytes(row, 2)?),
            head: row.get(3)?,
            head_id: StepId(bytes(row, 4)?),
            totals: row.get(5)?,
            at: row.get(6)?,
            title: row.get_ref(7)?.as_str()?.into(),
            followed: row.get(8)?,
            writer: row.get(9)?,
            epoch: u64::try_from(row.get::<_, i64>(10)?).map_err(wrong)?,
            seal: bytes(row, 11)?,
        })
    }

    /// The row, unless it is not as it was written.
    pub(super) fn checked(self) -> Result<Self> {
        if self.is_whole() {
            return Ok(self);
        }
        let message =
            format!("what the store says of the session {} was changed: its seal does not fit", self.id.short());
        Err(Error::new(ErrorKind::Damaged, message).with_hint("`rath salvage` copies what is good"))
    }

    pub(super) fn is_whole(&self) -> bool {
        self.sealed() == self.seal && Totals::read(&self.totals).is_some()
    }

    pub(super) fn listed(self, holder: Option<Holder>) -> Listed {
        Listed {
            branch: self.id,
            family: self.family,
            head: self.head_id,
            totals: Totals::read(&self.totals).unwrap_or_default(),
            title: self.title,
            at: self.at.map(Timestamp),
            is_tip: self.followed != self.head,
            holder: holder.map(Arc::new),
        }
    }

    fn sealed(&self) -> [u8; 16] {
        let names = [&self.id.0[..], &self.family.0, &self.head_id.0];
        let numbers = [self.head, self.at.unwrap_or(i64::MIN), self.followed, self.writer.unwrap_or(-1)];
        branch_seal(names, numbers, self.epoch, &self.totals, &self.title)
    }
}

/// The seal over what is said of a branch.
fn branch_seal(names: [&[u8]; 3], numbers: [i64; 4], epoch: u64, totals: &[u8], title: &str) -> [u8; 16] {
    // All of it at once: a list has very many, and each call costs.
    let mut fields = Vec::with_capacity(256);
    fields.extend_from_slice(b"rath branch row 1\n");
    names.iter().for_each(|name| fields.extend_from_slice(name));
    numbers.iter().for_each(|number| fields.extend_from_slice(&number.to_le_bytes()));
    fields.extend_from_slice(&epoch.to_le_bytes());
    fields.extend_from_slice(&(totals.len() as u64).to_le_bytes());
    fields.extend_from_slice(totals);
    fields.extend_from_slice(title.as_bytes());
    Seal::of(&fields).0
}

fn first_half(hasher: &blake3::Hasher) -> [u8; 16] {
    let mut seal = Seal([0; 16]);
    seal.0.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    seal.0
}

fn bytes<const N: usize>(row: &Row<'_>, column: usize) -> rusqlite::Result<[u8; N]> {
    row.get_ref(column)?.as_blob()?.try_into().map_err(wrong)
}

fn wrong(error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, Box::new(error))
}
