//! Going through what a database holds: reading steps back, checking them, listing branches.

use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rath_record::chunk::Chunk;
use rath_record::{BranchId, Digest, Kept, Link, Parents, Payload, Shelf, Shelved, Step, StepId, Stored};
use rusqlite::{Connection, OptionalExtension, params};

use super::super::{Check, Damage, Listed, Rows};
use super::rows::{BranchRow, StepRow};
use super::schema::{self, Table};
use super::writer_of;
use crate::error::{Error, ErrorKind, Result};

/// How many steps are fetched at once.
const RUN: usize = 64;
/// How much damage is listed.
const LISTED_MAX: usize = 1_000;

/// Gives out steps when somebody looks at them.
pub(super) struct Library {
    connection: Arc<Mutex<Connection>>,
    rows: Arc<Rows>,
    /// Itself, for the steps that it hands out.
    own: Weak<Library>,
}

impl Library {
    pub(super) fn new(connection: Arc<Mutex<Connection>>, rows: Arc<Rows>) -> Arc<Self> {
        Arc::new_cyclic(|own| Library { connection, rows, own: own.clone() })
    }
}

impl Shelf for Library {
    fn token(&self) -> u64 {
        self.rows.token()
    }

    /// A step and some of those before it; what is before those stays on the shelf.
    fn fetch(&self, place: u64, id: StepId) -> Option<Step> {
        let shelf: Arc<dyn Shelf> = self.own.upgrade()?;
        load(&self.connection, &self.rows, i64::try_from(place).ok()?, id, &shelf)
    }
}

fn load(connection: &Mutex<Connection>, rows: &Rows, n: i64, id: StepId, shelf: &Arc<dyn Shelf>) -> Option<Step> {
    let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
    let mut run: Vec<StepRow> = Vec::new();
    let (mut next, mut wanted) = (n, id);
    while run.len() < RUN {
        // What cannot be read ends the run; if it is the step that was asked for, it is lost.
        let row = StepRow::load(&connection, next).ok().flatten();
        let Some(row) = row.filter(|row| row.id == wanted && row.fault().is_none()) else { break };
        let only = (row.parents.len() == 1 && row.ours > 0).then(|| (row.ours, row.parents[0]));
        run.push(row);
        let Some(before) = only else { break };
        (next, wanted) = before;
    }
    let mut step: Option<Step> = None;
    for row in run.into_iter().rev() {
        let places = [row.ours, row.theirs];
        let mut links = row.parents.iter().zip(places).map(|(id, place)| match (&step, place) {
            (Some(step), _) if step.id() == *id => Link::Step(step.clone()),
            (_, 1..) => Link::Shelved(Arc::new(Shelved::new(*id, place as u64, shelf.clone()))),
            _ => Link::Gone(Box::new(*id)),
        });
        let parents = match (links.next(), links.next()) {
            (None, _) => Parents::None,
            (Some(one), None) => Parents::One(one),
            (Some(ours), Some(theirs)) => Parents::Two([ours, theirs]),
        };
        let mut chunk = Chunk::decode(&row.chunk).ok()?;
        if !chunk.references().is_empty() || matches!(chunk, Chunk::Other(_)) {
            chunk.fill(|digest| payload(&connection, digest).ok().flatten());
        }
        let said = Stored { chunk, json: &row.chunk, withheld: row.withheld };
        let loaded = Step::shelved(parents, said, row.stamp, &row.totals)?;
        rows.set(&loaded, Kept::At(row.n as u64));
        step = Some(loaded);
    }
    step.filter(|step| step.id() == id)
}

/// A payload, if it is as it was written.
fn payload(connection: &Connection, digest: &Digest) -> rusqlite::Result<Option<Payload>> {
    let found = stored_payload(connection, digest)?;
    let Some((is_text, Some(data))) = found else { return Ok(None) };
    if Digest::of(&data) != *digest {
        return Ok(None);
    }
    let bytes = |data: Vec<u8>| Payload::Bytes(data.into());
    Ok(Some(match is_text {
        true => {
            String::from_utf8(data).map_or_else(|error| bytes(error.into_bytes()), |text| Payload::Text(text.into()))
        }
        false => bytes(data),
    }))
}

/// Whether any step names a payload.
pub(super) fn is_named(connection: &Connection, digest: &Digest) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS(SELECT 1 FROM steps WHERE instr(chunk, ?) > 0)";
    connection.query_row(sql, [digest.to_string()], |row| row.get(0))
}

/// Finds a step behind a head.
pub(super) fn find(connection: &Connection, head: i64, id: StepId) -> rusqlite::Result<Option<StepRow>> {
    let mut found = None;
    behind(connection, [head], |_, row| {
        if let Ok(Some(row)) = row
            && row.id == id
        {
            found = Some(row);
        }
    })?;
    Ok(found)
}

/// Goes through everything behind some rows, each once, newest first.
///
/// A step always has a higher row than those it goes on from: so all that has to be remembered is which rows are next.
fn behind(
    connection: &Connection,
    heads: impl IntoIterator<Item = i64>,
    mut each: impl FnMut(i64, rusqlite::Result<Option<StepRow>>),
) -> rusqlite::Result<()> {
    let mut open: BinaryHeap<i64> = heads.into_iter().collect();
    while let Some(&start) = open.peek() {
        let mut passed = 0;
        StepRow::back_from(connection, start, |n, row| {
            // What is not there any more comes up before what is.
            while let Some(&next) = open.peek().filter(|next| **next > n) {
                take(&mut open, next);
                each(next, Ok(None));
            }
            if open.peek() != Some(&n) {
                passed += 1;
                let far = open.is_empty() || passed > PASSED_MOST;
                return if far { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            }
            passed = 0;
            take(&mut open, n);
            if let Ok(row) = &row {
                // A damaged row may name anything.
                open.extend([row.ours, row.theirs].into_iter().filter(|parent| (1..n).contains(parent)));
            }
            each(n, row.map(Some));
            if open.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        // Nothing further back is there at all.
        if open.peek() == Some(&start) {
            take(&mut open, start);
            each(start, Ok(None));
        }
    }
    Ok(())
}

/// How many rows of other sessions are passed over before the next one is looked up.
const PASSED_MOST: usize = 16;

/// Takes a row out, as often as it is there.
fn take(open: &mut BinaryHeap<i64>, n: i64) {
    while open.peek() == Some(&n) {
        open.pop();
    }
}

/// The newest step, with its row, of every piece of a session that can be read, oldest first.
pub(super) fn pieces(connection: &Connection, branch: &BranchRow) -> rusqlite::Result<Vec<(i64, StepId)>> {
    let mut found: BTreeMap<i64, StepId> = BTreeMap::new();
    let mut followed: HashSet<i64> = HashSet::new();
    let mut parted = !branch.is_whole();
    let mut take = |n: i64, row: &StepRow| match row.fault() {
        None => {
            found.insert(n, row.id);
            followed.extend([row.ours, row.theirs]);
            false
        }
        Some(_) => true,
    };
    behind(connection, [branch.head], |n, row| {
        parted |= !matches!(&row, Ok(Some(row)) if !take(n, row));
    })?;
    // What is behind a row that cannot be read is found by what the rows themselves say they belong to.
    if parted {
        let family = BranchRow::of_family(connection, branch.family).unwrap_or_default();
        let kin: HashSet<BranchId> = family.iter().map(|row| row.id).chain([branch.id]).collect();
        StepRow::back_from(connection, i64::MAX, |n, row| {
            if let Ok(row) = row
                && kin.contains(&row.stamp.branch)
            {
                take(n, &row);
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok(found.into_iter().filter(|(n, _)| !followed.contains(n)).collect())
}

/// What was found on the way, and what is still to be compared.
#[derive(Default)]
pub(super) struct Checking {
    pub(super) damage: Vec<Damage>,
    steps: u64,
    /// Which id the step in a row has to have, as its children say.
    wanted: HashMap<i64, StepId>,
}

impl Checking {
    fn add(&mut self, n: i64, step: Option<StepId>, what: impl Into<String>) {
        if self.damage.len() < LISTED_MAX {
            self.damage.push(Damage { place: format!("row {n}"), step, what: what.into() });
        }
    }

    fn row(&mut self, connection: &Connection, n: i64, row: rusqlite::Result<Option<StepRow>>) {
        let wanted = self.wanted.remove(&n);
        let row = match row {
            Ok(Some(row)) => row,
            Ok(None) => return self.add(n, wanted, "the row is missing"),
            Err(error) => return self.add(n, wanted, format!("the row cannot be read: {error}")),
        };
        self.steps += 1;
        if let Some(fault) = row.fault() {
            return self.add(n, Some(row.id), fault);
        }
        if wanted.is_some_and(|wanted| wanted != row.id) {
            self.add(n, wanted, "another step stands in its row");
        }
        for (place, id) in [row.ours, row.theirs].into_iter().zip(&row.parents) {
            // One that has no row was lost before it was stored here, and is known to be.
            if place > 0 {
                let known = self.wanted.insert(place, *id);
                if known.is_some_and(|known| known != *id) || place >= n {
                    self.add(n, Some(row.id), "it names the wrong row for its parent");
                }
            }
        }
        // Only a chunk with a payload names a digest.
        if memchr::memmem::find(row.chunk.as_bytes(), b"\"digest\":").is_none() {
            return;
        }
        let Ok(chunk) = Chunk::decode(&row.chunk) else { return self.add(n, Some(row.id), "the row cannot be read") };
        for digest in chunk.references() {
            match payload_state(connection, &digest) {
                Ok(State::Good | State::Forgotten) => {}
                Ok(State::Changed) => self.add(n, Some(row.id), format!("its payload {digest:.8} was changed")),
                Ok(State::Missing) => self.add(n, Some(row.id), format!("its payload {digest:.8} is missing")),
                Err(error) => self.add(n, Some(row.id), format!("its payload {digest:.8} cannot be read: {error}")),
            }
        }
    }
}

enum State {
    Good,
    Changed,
    Missing,
    Forgotten,
}

fn payload_state(connection: &Connection, digest: &Digest) -> rusqlite::Result<State> {
    Ok(match stored_payload(connection, digest)? {
        None => State::Missing,
        Some((_, None)) => State::Forgotten,
        Some((_, Some(data))) if Digest::of(&data) == *digest => State::Good,
        Some((_, Some(_))) => State::Changed,
    })
}

/// Whether a payload is a text, and its bytes unless it was forgotten. One query for whoever reads and whoever checks: what
/// one of them cannot read is damage.
fn stored_payload(connection: &Connection, digest: &Digest) -> rusqlite::Result<Option<(bool, Option<Vec<u8>>)>> {
    connection
        .prepare_cached("SELECT is_text, data FROM payloads WHERE digest = ?")?
        .query_row(params![&digest.0[..]], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// Checks everything behind some rows.
pub(super) fn check(connection: &Connection, heads: impl IntoIterator<Item = i64>) -> rusqlite::Result<Checking> {
    let mut checking = Checking::default();
    behind(connection, heads, |n, row| checking.row(connection, n, row))?;
    checking.damage.reverse();
    Ok(checking)
}

/// Checks all there is.
pub(super) fn check_all(connection: &Connection) -> rusqlite::Result<Check> {
    let mut checking = Checking::default();
    let mut heads = Vec::new();
    let mut known = HashSet::new();
    let mut branches: (i64, i64) = (0, 0);
    let mut bad = Vec::new();
    BranchRow::every(connection, |row| match row {
        Ok(row) => {
            branches = (branches.0 + 1, branches.1.max(row.b));
            if !row.is_whole() {
                bad.push((row.b, "what is said of the session was changed: its seal does not fit".to_owned()));
            }
            checking.wanted.insert(row.head, row.head_id);
            heads.push(row.head);
            known.insert(row.id);
        }
        Err(error) => {
            branches.0 += 1;
            bad.push((branches.0, format!("what is said of the session cannot be read: {error}")));
        }
    })?;
    let mut steps: (i64, i64) = (0, 0);
    let mut homeless: HashSet<BranchId> = HashSet::new();
    StepRow::back_from(connection, i64::MAX, |n, row| {
        steps = (steps.0 + 1, steps.1.max(n));
        match row {
            Ok(row) => {
                if row.fault().is_none() && !known.contains(&row.stamp.branch) {
                    homeless.insert(row.stamp.branch);
                }
                checking.row(connection, n, Ok(Some(row)));
            }
            Err(error) => checking.row(connection, n, Err(error)),
        }
        ControlFlow::Continue(())
    })?;
    let missing: Vec<_> = checking.wanted.drain().collect();
    for (n, step) in missing {
        checking.add(n, Some(step), "the row is missing");
    }
    checking.damage.sort_by_key(|damage| damage.place.trim_start_matches("row ").parse::<i64>().unwrap_or_default());
    let mut damage: Vec<_> =
        bad.into_iter().map(|(b, what)| Damage { place: format!("branch {b}"), step: None, what }).collect();
    damage.append(&mut checking.damage);
    for (table, name, (found, highest)) in [(Table::Steps, "steps", steps), (Table::Branches, "branches", branches)] {
        let missing = schema::missing(connection, table, found, highest)?;
        if missing != 0 {
            let what = format!("{found} rows are there, and {} should be", found + missing);
            damage.push(Damage { place: format!("table {name}"), step: None, what });
        }
    }
    // Branches that were deleted leave steps behind until the store is compacted.
    if schema::missing(connection, Table::Branches, 0, 0)? == 0 {
        for branch in homeless {
            let what = format!("it has steps of the session {}, and does not list it", branch.short());
            damage.push(Damage { place: "table branches".to_owned(), step: None, what });
        }
    }
    let whole: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if whole != "ok" {
        damage.push(Damage { place: "the file".to_owned(), step: None, what: whole });
    }
    Ok(Check { branches: branches.0.unsigned_abs(), steps: checking.steps, damage })
}

/// For how many sessions room is made at once.
const LISTED_FIRST: usize = 1 << 20;

/// Every branch, in the order in which they began.
pub(super) fn list(connection: &Connection) -> rusqlite::Result<Result<Vec<Listed>>> {
    let rows: i64 = connection.query_row("SELECT coalesce(max(b), 0) FROM branches", [], |row| row.get(0))?;
    let mut list = Vec::with_capacity(usize::try_from(rows).unwrap_or_default().min(LISTED_FIRST));
    let mut wrong = None;
    let mut last = 0;
    let mut holders = HashMap::new();
    let mut writers = Vec::new();
    BranchRow::list(connection, |row| match row {
        Some((b, writer, listed)) => {
            last = last.max(b);
            writers.push(writer);
            list.push(listed);
        }
        None => _ = wrong.get_or_insert("what is said of a session was changed"),
    })?;
    for (listed, writer) in list.iter_mut().zip(writers) {
        let Some(writer) = writer else { continue };
        if let std::collections::hash_map::Entry::Vacant(entry) = holders.entry(writer) {
            entry.insert(writer_of(connection, writer)?.map(|(holder, _)| Arc::new(holder)));
        }
        listed.holder = holders.get(&writer).cloned().flatten();
    }
    if schema::missing(connection, Table::Branches, list.len() as i64, last)? != 0 {
        wrong.get_or_insert("sessions are missing");
    }
    Ok(match wrong {
        None => Ok(list),
        Some(what) => Err(Error::new(ErrorKind::Damaged, format_args!("the list of sessions is damaged: {what}"))
            .with_hint("`rath verify` names what is damaged, `rath salvage` copies what is good")),
    })
}

/// Removes the steps and payloads that no branch rests on. Gives how many steps.
pub(super) fn sweep(connection: &Connection) -> rusqlite::Result<u64> {
    let mut heads = Vec::new();
    BranchRow::every(connection, |row| heads.extend(row.ok().map(|row| row.head)))?;
    connection.execute_batch(
        "CREATE TEMP TABLE IF NOT EXISTS rested(n INTEGER PRIMARY KEY);
         CREATE TEMP TABLE IF NOT EXISTS named(digest BLOB PRIMARY KEY);
         DELETE FROM rested; DELETE FROM named;",
    )?;
    let mut failed = None;
    behind(connection, heads, |n, row| {
        let rest = || -> rusqlite::Result<()> {
            connection.prepare_cached("INSERT INTO rested(n) VALUES (?)")?.execute([n])?;
            let chunk = row?.and_then(|row| Chunk::decode(&row.chunk).ok());
            let digests = chunk.map(|chunk| match &chunk {
                Chunk::Other(other) => {
                    other.json().split('"').filter_map(|it| Digest::from_hex(it.as_bytes())).collect()
                }
                _ => chunk.references(),
            });
            for digest in digests.unwrap_or_default() {
                let sql = "INSERT OR IGNORE INTO named(digest) VALUES (?)";
                connection.prepare_cached(sql)?.execute(params![&digest.0[..]])?;
            }
            Ok(())
        };
        if failed.is_none() {
            failed = rest().err();
        }
    })?;
    // What cannot be read may rest on anything: nothing is removed then.
    if let Some(error) = failed {
        return Err(error);
    }
    let steps = connection.execute("DELETE FROM steps WHERE n NOT IN (SELECT n FROM rested)", [])?;
    connection.execute("DELETE FROM payloads WHERE digest NOT IN (SELECT digest FROM named)", [])?;
    schema::count(connection, Table::Steps)?;
    connection.execute(
        "DELETE FROM writers WHERE w NOT IN (SELECT writer FROM branches WHERE writer IS NOT NULL) AND expires < ?",
        [super::now()],
    )?;
    Ok(steps as u64)
}
