//! The tables of the database, and the checks that a file is a store.

use std::time::Duration;

use rath_record::Seal;
use rusqlite::{Connection, OptionalExtension, params};

use super::super::failed;
use super::change::TransactionError;
use super::log_reader::FIRST_PLACE;
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The version of the tables.
const VERSION: i64 = 1;
/// The application id in the header of the file: `rath` in ASCII.
const APPLICATION: i64 = 0x7261_7468;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS about(
    one INTEGER PRIMARY KEY,   -- there is one row
    store BLOB NOT NULL,       -- which store it is, as its log says as well
    reflected INTEGER NOT NULL, -- the place in the log up to which all is said here
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
    title TEXT NOT NULL,
    state BLOB NOT NULL        -- its newest step, who writes it, its totals; and a seal over all of the row
);
CREATE TABLE IF NOT EXISTS writers(
    w INTEGER PRIMARY KEY,     -- the place in the log that says so
    who TEXT NOT NULL,
    expires INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS counted(
    name TEXT PRIMARY KEY,     -- of which table, when rows were last taken out on purpose,
    rows INTEGER NOT NULL,     -- how many were left,
    newest INTEGER NOT NULL    -- and the highest of them
);
CREATE TABLE IF NOT EXISTS wounds(
    place INTEGER PRIMARY KEY  -- in the log, of what could not be read when it was to be said here
);
";

/// Creates the tables, if they do not exist, after creating the log.
pub(super) fn prepare(connection: &Connection, log: impl FnOnce() -> Result<[u8; 16]>) -> rusqlite::Result<Result<()>> {
    settings(connection)?;
    let version = || connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
    if version()? != 0 {
        return Ok(Ok(()));
    }
    let made = rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have created them meanwhile.
    if version()? != 0 {
        return Ok(Ok(()));
    }
    let store = match log() {
        Ok(store) => store,
        Err(error) => return Ok(Err(error)),
    };
    connection.execute_batch(TABLES)?;
    let about = LogState { store, reflected: FIRST_PLACE };
    connection.execute(
        "INSERT INTO about(one, store, reflected, seal) VALUES (1, ?, ?, ?)",
        params![&about.store[..], about.reflected.cast_signed(), &about.sealed()[..]],
    )?;
    connection.pragma_update(None, "user_version", VERSION)?;
    connection.pragma_update(None, "application_id", APPLICATION)?;
    made.commit()?;
    // The id of the store must survive the loss of SQLite's own log.
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    Ok(Ok(()))
}

/// The state of the log as the database knows it.
#[derive(Clone, Copy)]
pub(super) struct LogState {
    /// The id of the store.
    pub(super) store: [u8; 16],
    /// The place up to which the database reflects the log.
    pub(super) reflected: u64,
}

impl LogState {
    fn sealed(self) -> [u8; 16] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.store);
        bytes[16..].copy_from_slice(&self.reflected.to_le_bytes());
        Seal::compute(&bytes).0
    }
}

pub(super) fn log_state(connection: &Connection) -> Result<LogState, TransactionError> {
    let mut statement = connection.prepare_cached("SELECT store, reflected, seal FROM about WHERE one = 1")?;
    let about = statement.query_row([], |row| {
        let read = || {
            let store = row.get_ref(0).ok()?.as_blob().ok()?.try_into().ok()?;
            let about = LogState { store, reflected: row.get::<_, i64>(1).ok()?.cast_unsigned() };
            (about.sealed() == row.get_ref(2).ok()?.as_blob().ok()?).then_some(about)
        };
        Ok(read())
    });
    let about = about.optional()?.flatten();
    let changed = || {
        StoreError::new(
            StoreErrorKind::Damaged,
            "what the database says of its log was changed: its seal does not match",
        )
    };
    about.ok_or_else(|| TransactionError::Store(changed()))
}

/// Notes that the database reflects the log up to a place.
pub(super) fn reflect(connection: &Connection, reflected: u64) -> Result<(), TransactionError> {
    let about = LogState { reflected, ..log_state(connection)? };
    let mut statement = connection.prepare_cached("UPDATE about SET reflected = ?, seal = ? WHERE one = 1")?;
    statement.execute(params![reflected.cast_signed(), &about.sealed()[..]])?;
    Ok(())
}

/// Creates the error for a log that was truncated.
pub(super) fn truncated_log(missing: u64) -> StoreError {
    let message = format!("the log of the store was cut: its last {missing} bytes are missing");
    StoreError::new(StoreErrorKind::Damaged, message).with_hint("`rath salvage` copies what is good")
}

/// Returns true if a database has tables of another program. Such a file is not changed.
pub(super) fn is_foreign(connection: &Connection) -> rusqlite::Result<bool> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    Ok(number("PRAGMA application_id")? != APPLICATION && number("SELECT count(*) FROM sqlite_master")? > 0)
}

/// Sets the options of a connection.
pub(super) fn settings(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(20))?;
    connection.set_prepared_statement_cache_capacity(32);
    // The statement is run to its end: the switch happens after its one row was read, and can fail then.
    let mut mode = String::new();
    let mut statement = connection.prepare("PRAGMA journal_mode = WAL")?;
    let mut answer = statement.query([])?;
    while let Some(row) = answer.next()? {
        mode = row.get(0)?;
    }
    // Where SQLite cannot create its log, it continues without one and reports no error.
    if !matches!(&*mode, "wal" | "memory") {
        let failed = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
        return Err(rusqlite::Error::SqliteFailure(failed, Some("it cannot be switched to its log".to_owned())));
    }
    // Acknowledged means durable: the log is synced with every transaction.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Deleted data is overwritten.
    connection.pragma_update(None, "secure_delete", "ON")?;
    // The store decides when to run a checkpoint.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // In KiB: enough for the list of a hundred thousand sessions.
    connection.pragma_update(None, "cache_size", -65536)?;
    // After a reset the log is truncated behind its first transaction: that tells an unfinished transaction from damage.
    connection.pragma_update_and_check(None, "journal_size_limit", 0, |_| Ok(()))?;
    Ok(())
}

pub(super) fn check_version(connection: &Connection, uri: &str) -> Result<()> {
    let number = |pragma: &str| connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0));
    let version = number("user_version").map_err(|error| describe(uri, error))?;
    let application = number("application_id").map_err(|error| describe(uri, error))?;
    if application != APPLICATION {
        return Err(foreign_database(uri));
    }
    let tables = tables(connection).map_err(|error| describe(uri, error))?;
    let wanted = Connection::open_in_memory().and_then(|fresh| {
        fresh.execute_batch(TABLES)?;
        self::tables(&fresh)
    });
    if version == VERSION && tables != wanted.map_err(|error| describe(uri, error))? {
        let message = format!("{uri} is damaged: what it says of its tables was changed");
        return Err(StoreError::new(StoreErrorKind::Damaged, message));
    }
    if version != VERSION {
        let message = format!("{uri} has version {version}; this program reads version {VERSION}");
        return Err(StoreError::new(StoreErrorKind::Format, message).with_hint("open it with a newer rath"));
    }
    Ok(())
}

/// Creates the error for a database of another program.
pub(super) fn foreign_database(uri: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Format, format_args!("{uri} is a database of something else"))
}

/// Returns the names and definitions of all tables.
fn tables(connection: &Connection) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    let sql = "SELECT name, sql FROM sqlite_schema ORDER BY name";
    connection.prepare(sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Makes an error that names the store from an error of SQLite.
pub(super) fn describe(uri: &str, error: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    match error.sqlite_error_code() {
        Some(NotADatabase) => StoreError::new(
            StoreErrorKind::Format,
            format_args!("{uri} is not a database, or its beginning is damaged"),
        ),
        Some(DatabaseCorrupt) => StoreError::new(StoreErrorKind::Damaged, format_args!("{uri} is damaged: {error}"))
            .with_hint("`rath salvage` copies what is good"),
        _ => failed(uri, "read", error),
    }
}

/// Notes the number of branches after a deletion.
pub(super) fn count(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "REPLACE INTO counted(name, rows, newest) SELECT 'branches', count(*), coalesce(max(b), 0) FROM branches";
    connection.execute(sql, []).map(|_| ())
}

/// Returns the number of missing branches. Since the last count, every branch has the next number.
pub(super) fn missing(connection: &Connection, found: i64, highest: i64) -> rusqlite::Result<i64> {
    let sql = "SELECT coalesce(sum(rows), 0), coalesce(sum(newest), 0) FROM counted WHERE name = 'branches'";
    let (rows, newest): (i64, i64) = connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows + (highest - newest) - found)
}
