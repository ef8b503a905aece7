//! The tables of the database and the settings of a connection.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::{StoredIndex, count, set_count};
use crate::analysis::ANALYSIS_VERSION;
use crate::error::{NoteError, Result};

/// The name of the database in the directory of a memory.
pub const MEMORY_FILE: &str = "notes.db";
/// The application id in the header of the file: `note` in ASCII.
const APPLICATION: i64 = 0x6e6f_7465;
/// The version of the tables.
const VERSION: i64 = 1;
/// The time to wait for another process that writes.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// The definitions of the tables. They are compared when a file is opened: they stay as they are.
const TABLES: &str = "\
CREATE TABLE notes(
    doc INTEGER PRIMARY KEY,    -- its number, in the order of writing; never used again
    id TEXT NOT NULL,
    path INTEGER NOT NULL,      -- the number of its path in names
    session INTEGER NOT NULL,   -- of the session that it came from, or 0
    thread INTEGER NOT NULL,    -- of its conversation, or 0
    before INTEGER NOT NULL,    -- the note before it in its conversation, or 0
    at INTEGER NOT NULL,        -- the time at which it was said, in microseconds since 1970
    expires INTEGER,
    replaces TEXT,              -- the id of the note that it is a new version of
    has_lifetime INTEGER,       -- 1 if it expires or replaces
    said_by TEXT,
    steps TEXT,                 -- the steps of the session that it came from
    text TEXT NOT NULL
);
CREATE UNIQUE INDEX note_ids ON notes(id);
CREATE INDEX note_sessions ON notes(session) WHERE session != 0;
CREATE INDEX note_threads ON notes(thread) WHERE thread != 0;
CREATE INDEX note_lifetimes ON notes(doc) WHERE has_lifetime = 1;
CREATE TABLE names(
    name INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,      -- 1 path, 2 session, 3 conversation
    text TEXT NOT NULL
);
CREATE UNIQUE INDEX name_texts ON names(kind, text);
CREATE TABLE forgotten(
    id TEXT PRIMARY KEY,
    doc INTEGER NOT NULL,
    at INTEGER NOT NULL,
    change INTEGER NOT NULL
);
CREATE INDEX forgotten_changes ON forgotten(change);
CREATE TABLE segments(
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    facts BLOB NOT NULL         -- of each note from first to last
);
CREATE TABLE postings(
    term TEXT NOT NULL,
    first INTEGER NOT NULL,     -- of the segment
    list BLOB NOT NULL,
    PRIMARY KEY(term, first)
) WITHOUT ROWID;
CREATE TABLE models(
    model INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    mean BLOB NOT NULL,         -- of the vectors of unrelated texts: numbers of 32 bits
    spread REAL NOT NULL        -- of the similarities between them
);
CREATE TABLE vectors(
    model INTEGER NOT NULL,
    doc INTEGER NOT NULL,
    change INTEGER NOT NULL,
    vector BLOB NOT NULL,       -- without the mean: numbers of 8 bits
    PRIMARY KEY(model, doc)
) WITHOUT ROWID;
CREATE INDEX vector_changes ON vectors(model, change);
CREATE TABLE counts(
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
);
";

/// Opens the database in a directory, and creates both if they are missing. Where nothing can be written, opens it for reading.
pub(super) fn open(directory: &Path) -> Result<(Connection, StoredIndex)> {
    std::fs::create_dir_all(directory)
        .map_err(|error| NoteError::Io(format!("cannot create {}: {error}", directory.display())))?;
    let path = directory.join(MEMORY_FILE);
    let error = match Connection::open(&path).map_err(NoteError::from).and_then(prepare) {
        Err(error @ (NoteError::Unwritable(_) | NoteError::Io(_))) => error,
        opened => return Ok((opened?, StoredIndex::Usable)),
    };
    // Without a lock: what cannot be written does not change. A WAL that was left would not be read.
    let wal = directory.join(format!("{MEMORY_FILE}-wal")).metadata();
    if wal.is_ok_and(|wal| wal.len() > 0) || !path.is_file() {
        return Err(error);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection = set_up(Connection::open_with_flags(immutable_uri(&path), flags)?)?;
    check(&connection)?;
    let stored = match count(&connection, "analysis")? == ANALYSIS_VERSION {
        true => StoredIndex::Usable,
        false => StoredIndex::ByOtherRules,
    };
    Ok((connection, stored))
}

/// Returns the URI by which SQLite opens a file that does not change.
fn immutable_uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri + "?immutable=1"
}

fn set_up(connection: Connection) -> Result<Connection> {
    connection.busy_timeout(LOCK_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Without this, SQLite plans a statement anew for each value, in case it rules out a partial index.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // A file of others must not run its triggers and views with rights of this program.
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

/// Prepares a connection for writing, and creates the tables if the file is new.
fn prepare(connection: Connection) -> Result<Connection> {
    let connection = set_up(connection)?;
    connection.pragma_update(None, "secure_delete", true)?;
    // The copy by which a file is rewritten holds all notes: it has no place in a directory for temporary files.
    // SQLite has one such directory for all connections of a process, so it cannot be that of this memory.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if (application, tables) == (0, 0) {
        create(&connection)?;
    }
    check(&connection)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    if count(&connection, "analysis")? != ANALYSIS_VERSION {
        drop_index(&connection)?;
    }
    Ok(connection)
}

fn create(connection: &Connection) -> Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    // Another process may have been faster.
    if tables == 0 {
        connection.execute_batch(TABLES)?;
        connection.pragma_update(None, "application_id", APPLICATION)?;
        connection.pragma_update(None, "user_version", VERSION)?;
        set_count(connection, "analysis", ANALYSIS_VERSION)?;
    }
    connection.execute_batch("COMMIT")?;
    Ok(())
}

/// Checks that the file is a memory of this version, with these tables and no others.
fn check(connection: &Connection) -> Result<()> {
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application != APPLICATION {
        return Err(NoteError::Damaged("the file is no memory of rath".to_owned()));
    }
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version != VERSION {
        return Err(NoteError::Damaged(format!(
            "the memory has version {version}; this program reads version {VERSION}"
        )));
    }
    // Sorted: rewriting the file puts the tables before the indexes.
    let mut query = connection.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY sql")?;
    let found: Vec<String> = query.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut wanted: Vec<&str> = TABLES.split(";\n").filter(|sql| !sql.is_empty()).collect();
    wanted.sort_unstable();
    if found != wanted {
        return Err(NoteError::Damaged("the tables of the memory are not those of rath".to_owned()));
    }
    Ok(())
}

/// Removes an index that was made by other rules. The next search makes a new one, and writes its segments.
fn drop_index(connection: &Connection) -> Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    if count(&transaction, "analysis")? != ANALYSIS_VERSION {
        transaction.execute_batch("DELETE FROM segments; DELETE FROM postings")?;
        set_count(&transaction, "analysis", ANALYSIS_VERSION)?;
    }
    transaction.commit()?;
    Ok(())
}
