//! The tables, and whether a file is one of ours.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use super::super::trouble;
use crate::error::{Error, ErrorKind, Result};

/// The version of the tables.
const VERSION: i64 = 1;
/// `rath`, by which tools that look at files know ours.
const APPLICATION: i64 = 0x7261_7468;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS steps(
    n INTEGER PRIMARY KEY,     -- in the order in which they were appended
    id BLOB NOT NULL,
    parents BLOB NOT NULL,     -- their ids, 32 bytes each, ours first
    ours INTEGER NOT NULL,     -- their rows; 0 for none, and for one that was lost before
    theirs INTEGER NOT NULL,
    branch BLOB NOT NULL,
    by TEXT,
    usage TEXT,
    at INTEGER,                -- microseconds since 1970
    totals BLOB NOT NULL,      -- what is known of the whole line
    withheld BLOB,             -- the chunk's digest, where this is only what is left of it
    chunk TEXT NOT NULL,
    seal BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS payloads(
    p INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    is_text INTEGER NOT NULL,
    data BLOB                  -- nothing, if it was to be forgotten
);
CREATE TABLE IF NOT EXISTS branches(
    b INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    family BLOB NOT NULL,      -- the branch that the session began with
    head INTEGER NOT NULL,     -- its newest step: row and id
    head_id BLOB NOT NULL,
    totals BLOB NOT NULL,
    at INTEGER,
    title TEXT NOT NULL,
    followed INTEGER NOT NULL, -- the row that another branch goes on from
    writer INTEGER,            -- who writes it; nobody, if it is closed
    epoch INTEGER NOT NULL,    -- how often somebody took the right to
    seal BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS writers(
    w INTEGER PRIMARY KEY,
    who TEXT NOT NULL,
    expires INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS counted(
    name TEXT PRIMARY KEY,     -- of which table, when rows were last taken out on purpose,
    rows INTEGER NOT NULL,     -- how many were left,
    newest INTEGER NOT NULL    -- and the highest of them
);
";

/// Makes the tables, if they are not there.
pub(super) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    settings(connection)?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version == 0 {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        connection.execute_batch(TABLES)?;
        connection.pragma_update(None, "user_version", VERSION)?;
        connection.pragma_update(None, "application_id", APPLICATION)?;
        connection.execute_batch("COMMIT")?;
    }
    Ok(())
}

/// Whether a database has tables, and they are not ours. It is left as it is.
pub(super) fn is_of_others(connection: &Connection) -> rusqlite::Result<bool> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    Ok(number("PRAGMA application_id")? != APPLICATION && number("SELECT count(*) FROM sqlite_master")? > 0)
}

/// What holds for every connection.
pub(super) fn settings(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(20))?;
    connection.set_prepared_statement_cache_capacity(32);
    // To its end: the change is made when its one row has been read, and then it can fail.
    let mut mode = String::new();
    let mut statement = connection.prepare("PRAGMA journal_mode = WAL")?;
    let mut answer = statement.query([])?;
    while let Some(row) = answer.next()? {
        mode = row.get(0)?;
    }
    // SQLite goes on without its log where it cannot make one, and says nothing.
    if !matches!(&*mode, "wal" | "memory") {
        let failed = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
        return Err(rusqlite::Error::SqliteFailure(failed, Some("it cannot be switched to its log".to_owned())));
    }
    // Acknowledged means durable: the log is synced with every change.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // What is deleted is overwritten.
    connection.pragma_update(None, "secure_delete", "ON")?;
    // When the log is moved into the file is the store's to say.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // A group is written once, and not before it is whole: in KiB.
    connection.pragma_update(None, "cache_size", -16384)?;
    // A log that begins anew is cut behind its first change: then what a crash left of a change can be told from damage.
    connection.pragma_update_and_check(None, "journal_size_limit", 0, |_| Ok(()))?;
    Ok(())
}

pub(super) fn check_version(connection: &Connection, uri: &str) -> Result<()> {
    let number = |pragma: &str| connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0));
    let version = number("user_version").map_err(|error| told(uri, error))?;
    let application = number("application_id").map_err(|error| told(uri, error))?;
    if application != APPLICATION {
        return Err(of_others(uri));
    }
    let tables = tables(connection).map_err(|error| told(uri, error))?;
    let wanted = Connection::open_in_memory().and_then(|fresh| {
        fresh.execute_batch(TABLES)?;
        self::tables(&fresh)
    });
    if version == VERSION && tables != wanted.map_err(|error| told(uri, error))? {
        let message = format!("{uri} is damaged: what it says of its tables was changed");
        return Err(Error::new(ErrorKind::Damaged, message));
    }
    if version != VERSION {
        let message = format!("{uri} has version {version}; this program reads version {VERSION}");
        return Err(Error::new(ErrorKind::Format, message).with_hint("open it with a newer rath"));
    }
    Ok(())
}

/// Why a database cannot be a store.
pub(super) fn of_others(uri: &str) -> Error {
    Error::new(ErrorKind::Format, format_args!("{uri} is a database of something else"))
}

/// What a database says of its tables.
fn tables(connection: &Connection) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    let sql = "SELECT name, sql FROM sqlite_schema ORDER BY name";
    connection.prepare(sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// An error of SQLite in words that say what it is about.
pub(super) fn told(uri: &str, error: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    match error.sqlite_error_code() {
        Some(NotADatabase) => {
            Error::new(ErrorKind::Format, format_args!("{uri} is not a database, or its beginning is damaged"))
        }
        Some(DatabaseCorrupt) => Error::new(ErrorKind::Damaged, format_args!("{uri} is damaged: {error}"))
            .with_hint("`rath salvage` copies what is good"),
        _ => trouble(uri, "read", error),
    }
}

/// Notes how many rows a table has after some were taken out on purpose.
pub(super) fn count(connection: &Connection, table: Table) -> rusqlite::Result<()> {
    let (name, key) = table.names();
    let sql = format!(
        "REPLACE INTO counted(name, rows, newest) SELECT '{name}', count(*), coalesce(max({key}), 0) FROM {name}"
    );
    connection.execute(&sql, []).map(|_| ())
}

/// How many rows of a table are missing, of which so many were found: every one since the last count has the next number.
pub(super) fn missing(connection: &Connection, table: Table, found: i64, highest: i64) -> rusqlite::Result<i64> {
    let sql = "SELECT coalesce(sum(rows), 0), coalesce(sum(newest), 0) FROM counted WHERE name = ?";
    let (rows, newest): (i64, i64) =
        connection.query_row(sql, [table.names().0], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows + (highest - newest) - found)
}

/// A table whose rows are counted.
#[derive(Clone, Copy)]
pub(super) enum Table {
    Steps,
    Branches,
}

impl Table {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Table::Steps => ("steps", "n"),
            Table::Branches => ("branches", "b"),
        }
    }
}

/// The log beside a database.
pub(super) fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Looks at the log beside a database before SQLite does.
///
/// SQLite reads its log up to the first frame that is not as it was written, and takes the rest for what a crash left. If
/// whole changes stand after that frame, it is not the end of the log: it was damaged, and changes that somebody was told
/// are durable would be dropped without a word.
pub(super) fn check_log(database: &Path) -> std::io::Result<Result<()>> {
    let name = log_of(database);
    let mut before = None;
    // What is read while somebody writes may look like anything: it is damaged if it stays as it is.
    for _ in 0..LOG_READS {
        let mut log = Vec::new();
        match File::open(&name) {
            Ok(mut file) => file.read_to_end(&mut log)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Ok(())),
            Err(error) => return Err(error),
        };
        let lost = lost_changes(&log);
        if lost == 0 {
            return Ok(Ok(()));
        }
        if before.as_ref() == Some(&log) {
            let message =
                format!("the log of {} is damaged: {lost} of its newest changes cannot be read", database.display());
            return Ok(Err(Error::new(ErrorKind::Damaged, message)
                .with_hint("move the file that ends in `-wal` away to open the store without them")));
        }
        before = Some(log);
        std::thread::sleep(BETWEEN_READS);
    }
    Ok(Ok(()))
}

/// How often a log is read that looks damaged, and how long after each time.
const LOG_READS: u32 = 50;
const BETWEEN_READS: Duration = Duration::from_millis(10);

const HEADER: usize = 32;
const FRAME: usize = 24;

/// How many whole changes stand in a log after the place where SQLite stops reading it.
fn lost_changes(log: &[u8]) -> usize {
    let number = |at: usize| log.get(at..at + 4).map(|it| u32::from_be_bytes([it[0], it[1], it[2], it[3]]));
    let (Some(magic), Some(size)) = (number(0), number(8)) else { return 0 };
    let page = size as usize;
    if log.len() < HEADER + FRAME || magic & 0xffff_fffe != 0x377f_0682 || !page.is_power_of_two() || page < 512 {
        // Not a header that SQLite would read. If it was one, what follows is lost.
        return usize::from(log.len() > HEADER && log.iter().any(|byte| *byte != 0));
    }
    let word = |at: usize| {
        let it = &log[at..at + 4];
        let it = [it[0], it[1], it[2], it[3]];
        if magic & 1 == 1 { u32::from_be_bytes(it) } else { u32::from_le_bytes(it) }
    };
    let sum = |mut sum: (u32, u32), from: usize, to: usize| {
        for at in (from..to).step_by(8) {
            sum.0 = sum.0.wrapping_add(word(at)).wrapping_add(sum.1);
            sum.1 = sum.1.wrapping_add(word(at + 4)).wrapping_add(sum.0);
        }
        sum
    };
    let mut running = sum((0, 0), 0, 24);
    if (number(24), number(28)) != (Some(running.0), Some(running.1)) {
        return usize::from(log.len() > HEADER);
    }
    let salt = &log[16..24];
    let (mut good, mut whole, mut lost) = (true, 0, 0);
    // Whether all that cannot be read is the end of the first change, with what was there before still behind it.
    let mut unfinished = false;
    let mut at = HEADER;
    while at + FRAME + page <= log.len() {
        // A frame of an earlier log has both halves of the salt from there.
        let own = log[at + 8..at + 12] == salt[..4] || log[at + 12..at + 16] == salt[4..];
        let ends_change = number(at + 4).is_some_and(|pages| pages > 0);
        let was_good = good;
        if good {
            let next = sum(sum(running, at, at + 8), at + FRAME, at + FRAME + page);
            good = log[at + 8..at + 16] == *salt && (number(at + 16), number(at + 20)) == (Some(next.0), Some(next.1));
            running = next;
        }
        if good {
            whole += usize::from(ends_change);
        } else if own && ends_change {
            lost += 1;
            unfinished = was_good && whole == 0;
        } else if own {
            unfinished = false;
        }
        at += FRAME + page;
        if !own && unfinished && lost == 1 {
            return 0;
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log of a database in which two changes were made after it began anew.
    fn log(path: &Path, cut: bool) -> (Connection, Vec<u8>) {
        let connection = Connection::open(path).expect("a database");
        settings(&connection).expect("it is set up");
        if !cut {
            connection.pragma_update_and_check(None, "journal_size_limit", -1, |_| Ok(())).expect("a setting");
        }
        let change = |sql: &str| connection.execute_batch(sql).expect("a change");
        change("CREATE TABLE words(word)");
        (0..20).for_each(|_| change("INSERT INTO words VALUES (zeroblob(9000))"));
        connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).expect("a checkpoint");
        change("INSERT INTO words VALUES (1)");
        let mut name = path.as_os_str().to_owned();
        name.push("-wal");
        if cut {
            change("INSERT INTO words VALUES (2)");
        }
        let log = std::fs::read(name).expect("a log");
        (connection, log)
    }

    #[test]
    fn what_a_crash_leaves_of_a_change_is_told_from_damage() {
        let folder = tempfile::tempdir().expect("a folder");
        let frame = FRAME + 4096;
        // Cut behind its first change, so that nothing of the log before stands behind.
        let (_cut, log_now) = log(&folder.path().join("cut"), true);
        assert_eq!(log_now.len(), HEADER + 2 * frame);
        // As SQLite leaves it: what stood there before is behind the one change.
        let (_uncut, log_before) = log(&folder.path().join("uncut"), false);
        assert!(log_before.len() > HEADER + 20 * frame);
        let check = |name: &str, log: &[u8], at: Option<usize>, lost: usize| {
            let mut log = log.to_vec();
            at.into_iter().for_each(|at| log[at] ^= 1);
            assert_eq!(lost_changes(&log), lost, "{name}");
        };
        check("as it was written", &log_now, None, 0);
        check("the first change", &log_now, Some(HEADER + 100), 2);
        check("the last change", &log_now, Some(HEADER + frame + 100), 1);
        check("half of its salt", &log_now, Some(HEADER + frame + 9), 1);
        check("the other half", &log_now, Some(HEADER + frame + 13), 1);
        check("the header", &log_now, Some(5), 1);
        check("cut in the last change", &log_now[..log_now.len() - 1], None, 0);
        check("with what was before", &log_before, None, 0);
        check("killed in the first change since", &log_before, Some(HEADER + 100), 0);
    }
}
