//! Reading all rows of a table, and walking back from step to step, as far as the pages of the database are readable.

use std::collections::{BinaryHeap, HashSet};

use rusqlite::{Connection, OptionalExtension, Row};

use super::step_row::{RowFault, StepRow, step_and_branch};
use rath_record::{BranchId, StepId};

/// The query for the rows of a table after a rowid.
pub(super) const STEPS: &str = "SELECT s, head, json FROM steps WHERE s > ? ORDER BY s";
pub(super) const BRANCHES: &str = "SELECT b, id, family, title, state FROM branches WHERE b > ? ORDER BY b";

/// The query for the rows of steps up to a place, backwards.
const STEPS_BACK: &str = "SELECT s, head, json FROM steps WHERE s <= ? ORDER BY s DESC";

/// The number of rows that the cursor passes over before it is placed anew.
const MAX_ROWS_PASSED: usize = 64;

/// Calls `each` with every row of a table and its rowid, ascending.
///
/// If a page cannot be read, `each` gets the error with the first rowid that is missing, and the scan continues behind it.
pub(super) fn each_row(
    connection: &Connection,
    sql: &str,
    mut each: impl FnMut(i64, Result<&Row<'_>, &rusqlite::Error>),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut last = 0;
    loop {
        let mut rows = statement.query([last])?;
        let error = loop {
            match rows.next() {
                Ok(Some(row)) => {
                    let at = row.get(0)?;
                    // On a damaged page the order of the rows is not to be relied on.
                    if at > last {
                        last = at;
                        each(at, Ok(row));
                    }
                }
                Ok(None) => return Ok(()),
                Err(error) => break error,
            }
        };
        drop(rows);
        each(last + 1, Err(&error));
        let is_readable = |after: i64| match statement.query([after]).and_then(|mut rows| rows.next().map(|_| ())) {
            Ok(()) => Ok(true),
            Err(error) if is_damage(&error) => Ok(false),
            Err(error) => Err(error),
        };
        match next_readable(last, is_readable)? {
            Some(next) => last = next,
            None => return Ok(()),
        }
    }
}

/// Finds the first rowid above `last` from which a scan can continue: in growing steps, then by halving the last one.
fn next_readable(
    last: i64,
    mut is_readable: impl FnMut(i64) -> rusqlite::Result<bool>,
) -> rusqlite::Result<Option<i64>> {
    let (mut bad, mut step) = (last, 1);
    let mut good = loop {
        let Some(next) = bad.checked_add(step) else { return Ok(None) };
        if is_readable(next)? {
            break next;
        }
        (bad, step) = (next, step.saturating_mul(2));
    };
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        if is_readable(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(Some(good))
}

/// Returns true if a part of the file cannot be read: its content is damaged, or the disk cannot read it.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, SystemIoFailure};
    // A row whose columns have other types than the table is damaged too.
    error.sqlite_error_code().is_none_or(|code| matches!(code, DatabaseCorrupt | NotADatabase | SystemIoFailure))
}

/// Calls `each` with all ancestors of some places, each once, newest first.
///
/// A step always has a higher place than its parents: a heap of the places to visit is enough. The rows before a step are nearly
/// always its parents, or near them: one cursor goes backwards over the table, and is placed anew only where the next place is far
/// away.
pub(super) fn walk_back(
    connection: &Connection,
    heads: impl IntoIterator<Item = u64>,
    each: impl FnMut(u64, Result<StepRow, RowFault>),
) -> rusqlite::Result<()> {
    walk_back_from(connection, heads, |_| true, each)
}

/// Calls `each` as [`walk_back`] does, with the places that are not visited yet.
pub(super) fn walk_back_new(
    connection: &Connection,
    heads: impl IntoIterator<Item = u64>,
    visited: &mut HashSet<u64>,
    each: impl FnMut(u64, Result<StepRow, RowFault>),
) -> rusqlite::Result<()> {
    // The ancestors of a visited place are visited too.
    walk_back_from(connection, heads, |place| visited.insert(place), each)
}

fn walk_back_from(
    connection: &Connection,
    heads: impl IntoIterator<Item = u64>,
    mut is_new: impl FnMut(u64) -> bool,
    mut each: impl FnMut(u64, Result<StepRow, RowFault>),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(STEPS_BACK)?;
    let mut open: BinaryHeap<u64> = heads.into_iter().filter(|head| is_new(*head)).collect();
    let mut visit = |open: &mut BinaryHeap<u64>, place: u64, row: Result<StepRow, RowFault>| {
        while open.peek() == Some(&place) {
            open.pop();
        }
        if let Ok(row) = &row {
            let parents = row.parents.iter().map(|(_, parent)| *parent);
            open.extend(parents.filter(|parent| (1..place).contains(parent) && is_new(*parent)));
        }
        each(place, row);
    };
    while let Some(first) = open.peek().copied() {
        let mut rows = statement.query([first.cast_signed()])?;
        let (mut passed, mut is_first) = (0, true);
        while let Some(wanted) = open.peek().copied() {
            let (found, at) = match rows.next() {
                Ok(Some(row)) => (Ok(row), row.get::<_, i64>(0)?.cast_unsigned()),
                Ok(None) => (Err(missing()), 0),
                Err(error) if is_damage(&error) => (Err(RowFault::unreadable(&error)), 0),
                Err(error) => return Err(error),
            };
            if at == wanted {
                visit(&mut open, wanted, found.and_then(|row| decode(wanted, row)));
                passed = 0;
            } else if is_first {
                visit(&mut open, wanted, Err(found.err().unwrap_or_else(missing)));
                break;
            } else if at < wanted || passed == MAX_ROWS_PASSED {
                break;
            } else {
                passed += 1;
            }
            is_first = false;
        }
    }
    Ok(())
}

/// Calls `each` with the step at a place, and then with the one at each place that `each` returns, as far as they can be read.
///
/// Places go backwards: one cursor is enough, unless the next place is far away.
pub(super) fn rows_back(
    connection: &Connection,
    first: u64,
    mut each: impl FnMut(StepRow) -> Option<u64>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(STEPS_BACK)?;
    let mut wanted = first;
    loop {
        let (mut rows, mut passed) = (statement.query([wanted.cast_signed()])?, 0);
        loop {
            let Some(row) = rows.next()? else { return Ok(()) };
            let at = row.get::<_, i64>(0)?.cast_unsigned();
            if at == wanted {
                let Some(next) = decode(at, row).ok().and_then(&mut each) else { return Ok(()) };
                (wanted, passed) = (next, 0);
            } else if at < wanted {
                return Ok(());
            } else if passed == MAX_ROWS_PASSED {
                break;
            } else {
                passed += 1;
            }
        }
    }
}

/// Reads the step at a place.
pub(super) fn step(connection: &Connection, place: u64) -> rusqlite::Result<Result<StepRow, RowFault>> {
    let mut statement = connection.prepare_cached("SELECT s, head, json FROM steps WHERE s = ?")?;
    match statement.query_row([place.cast_signed()], |row| Ok(decode(place, row))).optional() {
        Ok(row) => Ok(row.unwrap_or_else(|| Err(missing()))),
        Err(error) if is_damage(&error) => Ok(Err(RowFault::unreadable(&error))),
        Err(error) => Err(error),
    }
}

/// Reads the id and the branch of the step at a place, if the row is undamaged.
pub(super) fn id_and_branch(connection: &Connection, place: u64) -> rusqlite::Result<Option<(StepId, BranchId)>> {
    let mut statement = connection.prepare_cached("SELECT head FROM steps WHERE s = ?")?;
    let read = |row: &Row<'_>| Ok(row.get_ref(0)?.as_blob().ok().and_then(|head| step_and_branch(place, head)));
    match statement.query_row([place.cast_signed()], read).optional() {
        Ok(found) => Ok(found.flatten()),
        Err(error) if is_damage(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Decodes a row of [`STEPS`].
pub(super) fn decode(place: u64, row: &Row<'_>) -> Result<StepRow, RowFault> {
    let blob = |column: usize| row.get_ref(column).ok()?.as_blob().ok();
    match (blob(1), blob(2)) {
        (Some(head), Some(json)) => StepRow::decode(place, head, json),
        _ => Err(RowFault::new("the row cannot be read")),
    }
}

fn missing() -> RowFault {
    RowFault::new("the row is missing")
}
