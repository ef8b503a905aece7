//! The database beside other programs, and files that are not the store that they seem to be.

use std::path::Path;

use rath::BranchId;
use rath::prelude::*;
use rath::store::{Store, StoreError, StoreErrorKind};
use rusqlite::Connection;

use super::common::uri;
use crate::support::{block_on, close};

/// Creates a store with two sessions in a directory. Returns the second session.
fn two_sessions(folder: &Path) -> BranchId {
    let store = block_on(Store::open(&uri("sqlite", folder))).expect("a store");
    let [one, two] = ["one", "two"].map(|words| {
        let mut session = block_on(Session::user(words).record(&store)).expect("recorded");
        session.push(Chunk::assistant("x".repeat(10_000)));
        block_on(session.durable()).expect("durable");
        session
    });
    let id = two.id();
    close((one, two), store);
    id
}

fn database(folder: &Path) -> std::path::PathBuf {
    uri("sqlite", folder).strip_prefix("sqlite:").expect("a path").into()
}

fn edit(folder: &Path, sql: &str) {
    let connection = Connection::open(database(folder)).expect("a database");
    connection.execute_batch(sql).expect("edited");
}

fn open(folder: &Path) -> Result<Store, StoreError> {
    block_on(Store::open(&uri("sqlite", folder)))
}

/// Returns true if this process has a lock on a file.
#[cfg(target_os = "linux")]
fn is_locked(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let inode = std::fs::metadata(path).expect("a file").ino();
    let (own, file) = (format!(" {} ", std::process::id()), format!(":{inode} "));
    // A line may be missing from the list while other tests take and release locks.
    (0..100).any(|_| {
        let locks = std::fs::read_to_string("/proc/locks").expect("the list of locks");
        locks.lines().any(|line| line.contains(" POSIX ") && line.contains(&own) && line.contains(&file))
    })
}

/// SQLite in another process deletes the WAL of a database that no process has locked.
#[cfg(target_os = "linux")]
#[test]
fn an_open_store_keeps_its_lock() {
    let folder = rath_test_support::temp_dir();
    let id = two_sessions(folder.path());
    let database = database(folder.path());
    assert!(!is_locked(&database), "no store is open");
    let store = open(folder.path()).expect("a store");
    assert!(is_locked(&database), "opened");
    let second = open(folder.path()).expect("a store");
    block_on(second.list()).expect("a list");
    block_on(second.close()).expect("closed");
    assert!(is_locked(&database), "a second handle was closed");
    let session = block_on(store.read(id)).expect("a session").session;
    block_on(store.check()).expect("a report");
    block_on(store.compact()).expect("compacted");
    assert!(is_locked(&database), "read and compacted");
    edit(folder.path(), "UPDATE steps SET json = x'00' WHERE s = 3");
    block_on(store.pieces(id)).expect("pieces");
    assert!(is_locked(&database), "the pages were scanned");
    close(session, store);
    assert!(!is_locked(&database), "all are closed");
}

#[test]
fn a_damaged_store_is_not_compacted() {
    for damage in [
        "DELETE FROM branches WHERE b = 2",
        "UPDATE branches SET title = 'x' WHERE b = 1",
        "INSERT INTO steps VALUES (-7, x'00', x'00')",
        "INSERT INTO counts VALUES ('branches', 9223372036854775807, 0)",
        "INSERT INTO counts VALUES ('branches', 2, 9223372036854775807)",
        "INSERT INTO counts VALUES ('steps', 4, 9223372036854775807)",
        "INSERT INTO counts VALUES ('steps', 4, 'text')",
    ] {
        let folder = rath_test_support::temp_dir();
        two_sessions(folder.path());
        edit(folder.path(), damage);
        let store = open(folder.path()).expect("a store");
        let report = block_on(store.check()).expect("a report");
        assert!(!report.damage.is_empty(), "{damage}");
        let error = block_on(store.compact()).expect_err(damage);
        assert_eq!(error.kind(), StoreErrorKind::Damaged, "{damage}: {error}");
        assert_eq!(block_on(store.check()).expect("a report").steps, report.steps, "{damage}");
        // Recording may be refused, and never panics or damages more.
        let recorded = block_on(Session::user("three").record(&store));
        if let Err(error) = &recorded {
            assert_eq!(error.kind(), ErrorKind::Damaged, "{damage}: {error}");
        }
        drop(recorded);
        let _ = block_on(store.close());
        let connection = Connection::open(database(folder.path())).expect("a database");
        let good: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("checked");
        assert_eq!(good, "ok", "{damage}");
    }
}

#[test]
fn an_empty_database_of_another_kind_is_not_made_a_store() {
    for sql in [
        "PRAGMA page_size = 1024; CREATE TABLE x(y); DROP TABLE x; VACUUM",
        "PRAGMA auto_vacuum = 1; CREATE TABLE x(y); DROP TABLE x; VACUUM",
        "PRAGMA encoding = 'UTF-16'; CREATE TABLE x(y); DROP TABLE x; VACUUM",
        "PRAGMA user_version = 5",
    ] {
        let folder = rath_test_support::temp_dir();
        edit(folder.path(), sql);
        let before = std::fs::read(database(folder.path())).expect("a file");
        let error = open(folder.path()).expect_err(sql);
        assert_eq!(error.kind(), StoreErrorKind::Format, "{sql}: {error}");
        assert_eq!(std::fs::read(database(folder.path())).expect("a file"), before, "{sql}");
    }
}

#[cfg(unix)]
#[test]
fn a_link_leads_to_the_store_and_its_wal() {
    let (folder, links) = (rath_test_support::temp_dir(), rath_test_support::temp_dir());
    two_sessions(folder.path());
    std::os::unix::fs::symlink(database(folder.path()), database(links.path())).expect("a link");
    let writing = open(folder.path()).expect("a store");
    let session = block_on(Session::user("three").record(&writing)).expect("recorded");
    // The newest session is in the WAL, beside the file and not beside the link.
    let store = open(links.path()).expect("a store");
    assert_eq!(block_on(store.list()).expect("a list").len(), 3);
    close((), store);
    close(session, writing);
    std::fs::remove_file(database(folder.path())).expect("removed");
    assert!(open(links.path()).is_err(), "the link leads nowhere, and no store is made there");
    assert!(!database(folder.path()).exists());
}

#[cfg(unix)]
#[test]
fn a_pipe_is_no_store() {
    let folder = rath_test_support::temp_dir();
    let made = rath_test_support::program("mkfifo").arg(database(folder.path())).status();
    assert!(made.expect("mkfifo").success());
    let error = open(folder.path()).expect_err("refused");
    assert!(error.message().ends_with("it is not a regular file"), "{}", error.message());
}
