//! The tables of the database, the settings of a connection, and the checks that a file is a store.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use super::super::registry::Create;
use super::super::{NO_STORE_HINT, StoreId, failed, unwritable_hint};
use super::database_file::DatabaseFile;
use super::transaction::TransactionError;
use super::wal;
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The version of the tables.
const VERSION: i64 = 2;
/// The application id in the header of the file: `rath` in ASCII.
const APPLICATION: i64 = 0x7261_7468;
/// The size of a page, in bytes.
pub(super) const PAGE_BYTES: usize = 4096;
/// The length of the header of a database, in bytes.
const HEADER_BYTES: u64 = 100;
/// The length of the WAL at which a commit moves it into the database, in pages: 64 MiB.
const WAL_PAGES: i64 = (64 << 20) / PAGE_BYTES as i64;
/// The time to wait for the lock of another process, which may have been stopped while it holds the lock.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// The highest rowid that is used. A higher one is damage.
pub(super) const MAX_ROWID: i64 = i64::MAX / 2;

/// The definitions of the tables. Their comments are part of every store, and are compared when it is opened: they stay as they are.
/// A row of `counts` is also named `store UUID`, with the id of the store.
const TABLES: &str = "
CREATE TABLE steps(
    s INTEGER PRIMARY KEY,     -- a step comes after its parents
    head BLOB NOT NULL,        -- its id, its parents and its stamp, with a seal
    json BLOB NOT NULL         -- its chunk
);
CREATE TABLE branches(
    b INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    family BLOB NOT NULL,      -- the branch that the session began with
    title TEXT NOT NULL,
    state BLOB NOT NULL        -- its newest step, its writer and its totals, with a seal over the whole row
);
CREATE UNIQUE INDEX branch_ids ON branches(id);
CREATE TABLE payloads(
    p INTEGER PRIMARY KEY,
    digest BLOB NOT NULL,
    state BLOB NOT NULL,       -- text, bytes or erased, with a seal
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX payload_digests ON payloads(digest);
CREATE TABLE writers(
    w INTEGER PRIMARY KEY,
    who TEXT NOT NULL,
    expires INTEGER NOT NULL   -- in microseconds since 1970
);
CREATE TABLE counts(
    name TEXT PRIMARY KEY,     -- of a table, when rows were last deleted on purpose
    rows INTEGER NOT NULL,     -- the number of rows that were left
    newest INTEGER NOT NULL    -- the highest rowid until then
);
";

/// The ways to open a database, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenMode {
    ReadWrite,
    ReadOnly,
    /// Without locks and without a WAL: for a directory that cannot be written to.
    Immutable,
    /// A copy in memory, with the transactions in the WAL: for a directory that cannot be written to.
    Copy,
}

/// A connection of a store.
pub(super) struct StoreConnection {
    connection: Connection,
    /// Closed after the connection. None for a database in memory.
    _file: Option<DatabaseFile>,
}

impl Deref for StoreConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl StoreConnection {
    /// Creates a connection that keeps the file of the database open.
    pub(super) fn to_file(connection: Connection, path: &Path) -> std::io::Result<Self> {
        Ok(StoreConnection { connection, _file: Some(DatabaseFile::open(path)?) })
    }

    /// Creates a connection to a copy of a database that is lost.
    pub(super) fn to_copy(connection: Connection) -> Self {
        StoreConnection { connection, _file: None }
    }

    /// Creates a connection to a database in memory.
    pub(super) fn in_memory() -> rusqlite::Result<Self> {
        let connection = Connection::open_in_memory().and_then(set_up)?;
        prepare(&connection)?;
        Ok(StoreConnection { connection, _file: None })
    }

    /// Copies a database to a temporary one, which SQLite removes with the connection. In memory is as much of it as fits the cache.
    pub(super) fn copy_to_temporary(from: &Connection) -> rusqlite::Result<Self> {
        let mut connection = Connection::open("").and_then(set_up)?;
        let backup = rusqlite::backup::Backup::new(from, &mut connection)?;
        backup.run_to_completion(i32::MAX, std::time::Duration::ZERO, None)?;
        drop(backup);
        Ok(StoreConnection { connection, _file: None })
    }
}

/// Opens a connection.
pub(super) fn connect(path: &Path, access: OpenMode) -> rusqlite::Result<Connection> {
    let connection = match access {
        OpenMode::ReadWrite => Connection::open(path)?,
        OpenMode::ReadOnly => Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?,
        OpenMode::Immutable => {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            Connection::open_with_flags(immutable_uri(path), flags)?
        }
        OpenMode::Copy => {
            let file = DatabaseFile::open(path);
            let content = file.and_then(|file| wal::read_with_wal(Some(&file), &wal_path(path)));
            return connect_to_copy(&content.map_err(cannot_open)?);
        }
    };
    set_up(connection)
}

/// Opens a connection to the content of a database, for reading.
pub(super) fn connect_to_copy(content: &[u8]) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    connection.deserialize_read_exact("main", content, content.len(), true)?;
    set_up(connection)
}

fn cannot_open(error: std::io::Error) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
    rusqlite::Error::SqliteFailure(code, Some(error.to_string()))
}

fn set_up(connection: Connection) -> rusqlite::Result<Connection> {
    connection.busy_timeout(LOCK_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(32);
    // In KiB: enough for the list of a hundred thousand sessions.
    connection.pragma_update(None, "cache_size", -65536)?;
    Ok(connection)
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

/// Prepares a connection for writing, and creates the tables in an empty database.
pub(super) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    // The statement is run to its end: the switch happens after its one row was read, and can fail then.
    let mut mode = String::new();
    let mut statement = connection.prepare("PRAGMA journal_mode = WAL")?;
    let mut answer = statement.query([])?;
    while let Some(row) = answer.next()? {
        mode = row.get(0)?;
    }
    // Where SQLite cannot create its WAL, it continues without one and reports no error.
    if !matches!(&*mode, "wal" | "memory") {
        let failed = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
        return Err(rusqlite::Error::SqliteFailure(failed, Some("it cannot be switched to a WAL".to_owned())));
    }
    // Acknowledged means durable: the WAL is synced with every transaction.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", WAL_PAGES)?;
    if number(connection, "PRAGMA user_version")? != 0 {
        return Ok(());
    }
    let create = rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // Another process may have created them meanwhile.
    if number(connection, "SELECT count(*) FROM sqlite_schema")? == 0 {
        connection.execute_batch(TABLES)?;
        connection.pragma_update(None, "user_version", VERSION)?;
        connection.pragma_update(None, "application_id", APPLICATION)?;
        add_store_id(connection)?;
    }
    create.commit()
}

/// The beginning of the name under which the table `counts` has the id of the store. Programs that know no ids keep such a row.
const ID_PREFIX: &str = "store ";

/// Returns the id of the store.
pub(super) fn store_id(connection: &Connection) -> rusqlite::Result<Option<StoreId>> {
    let sql = "SELECT name FROM counts WHERE name GLOB ? || '*' ORDER BY name";
    let mut names = connection.prepare(sql)?;
    let mut names = names.query_map([ID_PREFIX], |row| row.get::<_, String>(0))?;
    names.find_map(|name| name.map(|name| StoreId::from_stored(name.strip_prefix(ID_PREFIX)?)).transpose()).transpose()
}

/// Gives the store an id.
pub(super) fn add_store_id(connection: &Connection) -> rusqlite::Result<StoreId> {
    let id = StoreId::random();
    connection.execute("INSERT INTO counts(name, rows, newest) VALUES (?, 0, 0)", [format!("{ID_PREFIX}{id}")])?;
    Ok(id)
}

/// Opens a connection that only reads.
pub(super) fn open_for_reading(
    uri: &str,
    path: &Path,
    header: &[u8],
    access: OpenMode,
) -> Result<Connection, TransactionError> {
    // Without its WAL, a database may be older than the store.
    if access == OpenMode::Immutable && length(&wal_path(path)) > 0 {
        return Err(StoreError::new(StoreErrorKind::Store, format_args!("cannot read {uri}: it has a WAL")).into());
    }
    let connection = connect(path, access)?;
    check_header(&connection, path, uri, header)?;
    if number(&connection, "SELECT count(*) FROM sqlite_schema")? == 0 {
        let message = format!("there is no store at {}: it was not created to its end", path.display());
        return Err(StoreError::new(StoreErrorKind::Missing, message).with_hint(NO_STORE_HINT).into());
    }
    Ok(connection)
}

/// Empties a file of zeros: a power cut may leave the first page of a store so, while the store is being created.
pub(super) fn empty_if_zero(path: &Path, file: &DatabaseFile) -> std::io::Result<()> {
    let is_zero = |bytes: Vec<u8>| !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0);
    if file.length()? <= PAGE_BYTES as u64 && is_zero(file.read_start(PAGE_BYTES as u64)?) {
        std::fs::OpenOptions::new().write(true).open(path)?.set_len(0)?;
    }
    Ok(())
}

/// Returns the error for a database that is missing or empty although it has a WAL, which SQLite would delete.
pub(super) fn lost_database(path: &Path, uri: &str) -> Option<StoreError> {
    (length(path) == 0 && length(&wal_path(path)) > 0).then(|| {
        let message =
            format!("{uri} is missing or empty, and the file that ends in `-wal` beside it holds its newest steps");
        StoreError::new(StoreErrorKind::Damaged, message).with_hint("put the database back beside it")
    })
}

/// Moves a journal away that does not belong to the database: SQLite would write the content of the journal to it.
///
/// A store has a WAL. It has a journal only while its first page is written.
pub(super) fn move_foreign_journal(path: &Path, header: &[u8]) -> std::io::Result<()> {
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    let has_wal = header.get(18..20).is_some_and(|versions| versions.contains(&2));
    let is_store = has_wal && is_marked(header);
    if !is_store || length(path) <= PAGE_BYTES as u64 || !Path::new(&journal).try_exists()? {
        return Ok(());
    }
    let mut aside = journal.clone();
    aside.push(format!(".foreign-{}", uuid::Uuid::now_v7().simple()));
    match std::fs::rename(&journal, &aside) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        moved => moved,
    }
}

/// Reads and checks the header of a file before SQLite opens it. The header of a new file is empty.
pub(super) fn read_header(path: &Path, uri: &str, file: Option<&DatabaseFile>, create: Create) -> Result<Vec<u8>> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let header = file.read_start(HEADER_BYTES).map_err(|error| failed(uri, "read", error))?;
    // An empty file is a store that is being created, or was about to be.
    if header.iter().all(|byte| *byte == 0) && create == Create::Never {
        let message = format!("there is no store at {}: the file is empty", path.display());
        return Err(StoreError::new(StoreErrorKind::Missing, message).with_hint(NO_STORE_HINT));
    }
    if !header.is_empty() && (header.len() as u64) < HEADER_BYTES {
        return Err(truncated(uri, header.len() as u64, HEADER_BYTES));
    }
    if !header.is_empty() && !header.starts_with(b"SQLite format 3\0") {
        return Err(StoreError::new(StoreErrorKind::Format, not_a_database(uri)));
    }
    // SQLite would write to the file if it has a journal. The mark of a store may be in its WAL until the second page is written.
    let is_foreign = !header.is_empty() && !is_marked(&header) && length(path) > PAGE_BYTES as u64;
    if is_foreign && length(&wal_path(path)) == 0 {
        return Err(StoreError::new(StoreErrorKind::Format, format_args!("{uri} {FOREIGN_DATABASE}")));
    }
    Ok(header)
}

/// Returns true if the header of a database has the mark of a store.
fn is_marked(header: &[u8]) -> bool {
    header.get(68..72).is_some_and(|mark| mark == (APPLICATION as u32).to_be_bytes())
}

const FOREIGN_DATABASE: &str = "is a database of something else";

/// Checks that a database is a store of this version, before anything is written to it.
///
/// A database without tables is accepted. The fields of the header that decide how pages are read and allocated have one value
/// in every store: with another one, SQLite would overwrite pages that are in use.
pub(super) fn check_header(
    connection: &Connection,
    path: &Path,
    uri: &str,
    header: &[u8],
) -> Result<(), TransactionError> {
    // In one transaction: another process may be creating the tables.
    let moment = connection.unchecked_transaction()?;
    let [application, version] = [number(&moment, "PRAGMA application_id")?, number(&moment, "PRAGMA user_version")?];
    let tables = number(&moment, "SELECT count(*) FROM sqlite_schema")?;
    moment.finish()?;
    let error = |kind, message: String| StoreError::new(kind, format_args!("{uri} {message}"));
    // The sizes of pages and of their reserved parts, and three numbers that SQLite requires. They never change.
    let layout = [(PAGE_BYTES >> 8) as u8, 0, 0, 64, 32, 32];
    let encoding: String = connection.query_row("PRAGMA encoding", [], |row| row.get(0))?;
    let has_layout = (header.is_empty() || header[16..18] == layout[..2] && header[20..24] == layout[2..])
        && encoding == "UTF-8"
        && number(connection, "PRAGMA auto_vacuum")? == 0;
    if application != APPLICATION {
        if tables == 0 && version == 0 && has_layout {
            return Ok(());
        }
        return Err(error(StoreErrorKind::Format, FOREIGN_DATABASE.to_owned()).into());
    }
    if version == 1 {
        let message = "has version 1, which kept its steps in a second file and was never released".to_owned();
        return Err(error(StoreErrorKind::Format, message).with_hint("record in another store").into());
    }
    if version > VERSION {
        let message = format!("has version {version}; this program reads version {VERSION}");
        return Err(error(StoreErrorKind::Format, message).with_hint("open it with a newer rath").into());
    }
    let is_good = version == VERSION && has_layout && has_tables(connection)? && has_whole_file(connection, path)?;
    if !is_good {
        if let Some((found, wanted)) = missing_bytes(path) {
            return Err(truncated(uri, found, wanted).into());
        }
        let message = "is damaged: its header or the definitions of its tables were changed".to_owned();
        return Err(error(StoreErrorKind::Damaged, message).into());
    }
    Ok(())
}

/// Returns true if the tables are those of a store, each with a root page of its own.
fn has_tables(connection: &Connection) -> rusqlite::Result<bool> {
    let tables = |connection: &Connection| -> rusqlite::Result<Vec<(String, Option<String>)>> {
        let sql = "SELECT name, sql FROM sqlite_schema ORDER BY name";
        connection.prepare(sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    };
    let fresh = Connection::open_in_memory()?;
    fresh.execute_batch(TABLES)?;
    let twice = number(connection, "SELECT count(*) - count(DISTINCT rootpage) FROM sqlite_schema")?;
    Ok(twice == 0 && tables(connection)? == tables(&fresh)?)
}

/// Returns true if the number of pages in the header is that of the file. With a WAL, the header is in the WAL.
fn has_whole_file(connection: &Connection, path: &Path) -> rusqlite::Result<bool> {
    // While a transaction reads the file without a WAL, no checkpoint changes it.
    let moment = connection.unchecked_transaction()?;
    number(&moment, "SELECT count(*) FROM sqlite_schema")?;
    let pages = number(&moment, "PRAGMA page_count")?;
    let (wal, file) = (length(&wal_path(path)), length(path));
    Ok(wal > 0 || file == pages.cast_unsigned() * PAGE_BYTES as u64)
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

/// Returns the path of the WAL of a database.
pub(super) fn wal_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Makes an error that names the store from an error of SQLite.
pub(super) fn describe(uri: &str, path: Option<&Path>, action: &str, error: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseCorrupt, DiskFull, NotADatabase};
    if let rusqlite::Error::InvalidColumnType(..) = error {
        return StoreError::new(StoreErrorKind::Damaged, format_args!("{uri} is damaged: {error}"));
    }
    match error.sqlite_error_code() {
        Some(NotADatabase) => StoreError::new(StoreErrorKind::Format, not_a_database(uri)),
        Some(DatabaseCorrupt) => match path.and_then(missing_bytes) {
            Some((found, wanted)) => truncated(uri, found, wanted),
            None => {
                let damaged = StoreError::new(StoreErrorKind::Damaged, format_args!("{uri} is damaged: {error}"));
                // Nothing can be copied from a file that cannot be opened.
                if action == "open" { damaged } else { damaged.with_hint("`rath salvage` copies what is good") }
            }
        },
        code if code == Some(DiskFull) || is_index_too_large(&error) => {
            let full = failed_in_sqlite(uri, action, &error);
            unwritable_hint(std::io::ErrorKind::StorageFull).into_iter().fold(full, StoreError::with_hint)
        }
        Some(DatabaseBusy) => {
            StoreError::new(StoreErrorKind::Store, format_args!("cannot use {uri}: another process keeps it locked"))
                .with_hint("see whether a process that writes to it was stopped")
        }
        _ => failed_in_sqlite(uri, action, &error),
    }
}

/// Returns true if the index beside the WAL did not fit the disk.
fn is_index_too_large(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

/// Creates the error for an action that failed in SQLite.
pub(super) fn failed_in_sqlite(uri: &str, action: &str, error: &rusqlite::Error) -> StoreError {
    // The text alone: the error behind it says it again, with a number.
    failed(uri, action, std::io::Error::other(error.to_string()))
}

/// Returns true if a database may be readable although it could not be opened for writing.
pub(super) fn is_unwritable(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, DiskFull, PermissionDenied, ReadOnly, SystemIoFailure};
    let codes = [CannotOpen, DiskFull, PermissionDenied, ReadOnly, SystemIoFailure];
    error.sqlite_error_code().is_some_and(|code| codes.contains(&code))
}

/// Returns the length of a file and the length that its header says, if the file is too short.
fn missing_bytes(path: &Path) -> Option<(u64, u64)> {
    let file = DatabaseFile::open(path).ok()?;
    let pages = u32::from_be_bytes(file.read_start(HEADER_BYTES).ok()?.get(28..32)?.try_into().ok()?);
    let (found, wanted) = (file.length().ok()?, u64::from(pages) * PAGE_BYTES as u64);
    (found < wanted).then_some((found, wanted))
}

fn truncated(uri: &str, found: u64, wanted: u64) -> StoreError {
    let message = format!("{uri} is damaged: the file was cut off, and {found} of at least {wanted} bytes are there");
    StoreError::new(StoreErrorKind::Damaged, message)
}

fn not_a_database(uri: &str) -> String {
    format!("{uri} is not a database, or its beginning is damaged")
}

/// Runs a query that returns one number.
pub(super) fn number(connection: &Connection, sql: &str) -> rusqlite::Result<i64> {
    connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

/// Notes how many rows a table has after rows were deleted on purpose, and the highest rowid that it ever had.
pub(super) fn count(connection: &Connection, table: &str, newest: i64) -> rusqlite::Result<()> {
    let sql = format!("REPLACE INTO counts(name, rows, newest) SELECT ?, count(*), ? FROM {table}");
    connection.execute(&sql, params![table, newest]).map(|_| ())
}

/// Returns the highest rowid that a table ever had.
pub(super) fn newest(connection: &Connection, table: &str) -> rusqlite::Result<i64> {
    let sql = format!(
        "SELECT max((SELECT coalesce(max(rowid), 0) FROM {table}),
                    (SELECT coalesce(max(newest), 0) FROM counts WHERE name = '{table}'))"
    );
    number(connection, &sql)
}

/// Returns the number of missing branches. Since the last count, every branch has the next number.
pub(super) fn missing_branches(connection: &Connection, found: i64, highest: i64) -> rusqlite::Result<i64> {
    let sql = "SELECT coalesce(sum(rows), 0), coalesce(sum(newest), 0) FROM counts WHERE name = 'branches'";
    let (rows, newest): (i64, i64) = connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    // A damaged page may lose rows in the table or in its index.
    let indexed = number(connection, "SELECT count(*) FROM branches INDEXED BY branch_ids")?;
    // The numbers may be damaged too.
    let missing = i128::from(rows) + i128::from(highest.max(newest)) - i128::from(newest) - i128::from(found);
    Ok(if missing == 0 { indexed - found } else { i64::try_from(missing).unwrap_or(i64::MAX) })
}
