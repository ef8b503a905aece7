//! Files of a `jsonl:` store that other programs change while a process writes them.

use std::fs;
use std::path::{Path, PathBuf};

use rath::BranchId;
use rath::prelude::*;
use rath::store::Store;

use super::common::uri;
use crate::support::block_on;

fn file_of(folder: &Path, session: BranchId) -> PathBuf {
    folder.join("store").join(format!("{session}.jsonl"))
}

/// A store, a session in it with two steps, and the path of its file.
fn two_steps(folder: &Path) -> (Store, Session, PathBuf) {
    let store = block_on(Store::open(&uri("jsonl", folder))).expect("a store");
    let mut session = block_on(Session::user("one").record(&store)).expect("recorded");
    session.push(Chunk::assistant("two"));
    block_on(session.durable()).expect("durable");
    let path = file_of(folder, session.id());
    (store, session, path)
}

/// A change that another program makes to the file of a session.
type FileChange = (&'static str, fn(&Path));

const CHANGES: [FileChange; 5] = [
    ("removed", |path| fs::remove_file(path).expect("removed")),
    ("moved", |path| fs::rename(path, path.with_extension("old")).expect("moved")),
    ("replaced by a copy", |path| {
        let copy = path.with_extension("new");
        fs::copy(path, &copy).expect("copied");
        fs::rename(copy, path).expect("replaced");
    }),
    ("written anew in its place", |path| fs::write(path, "").expect("written")),
    ("cut", |path| fs::OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(100)).expect("cut")),
];

#[test]
fn a_step_in_a_file_that_another_program_changed_is_not_acknowledged() {
    for (what, change) in CHANGES {
        let folder = rath_test_support::temp_dir();
        let (store, mut session, path) = two_steps(folder.path());
        let other = block_on(Session::user("another session").record(&store)).expect("recorded");
        change(&path);
        session.push(Chunk::user("three"));
        let error = block_on(session.durable()).expect_err(what);
        let short = session.id().short();
        let message =
            format!("another program replaced, removed or cut the file of session {short} while it was written");
        assert!(error.message().starts_with(&message), "{what}: {error}");
        assert!(error.hint().is_some(), "{what}");
        let mut left = error.into_session().expect("the session is in memory");
        assert_eq!(left.chunk_count(), 3, "{what}");
        left.push(Chunk::user("four"));
        block_on(left.durable()).expect_err("no later step is acknowledged either");
        let mut other = other;
        other.push(Chunk::assistant("more"));
        block_on(other.durable()).expect_err("the store is not written any further");
        drop((session, left, other));
        block_on(store.close()).expect_err("the store could not be written");
    }
}

/// A file that is too long is not read, and costs no other session.
#[test]
fn a_file_that_is_too_long_is_not_read() {
    let folder = rath_test_support::temp_dir();
    let (store, session, path) = two_steps(folder.path());
    let other = block_on(Session::user("another session").record(&store)).expect("recorded").id();
    let id = session.id();
    drop(session);
    block_on(store.close()).expect("closed");
    // It takes no room on the disk.
    fs::OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len((4 << 30) + 1)).expect("longer");
    let store = block_on(Store::open(&uri("jsonl", folder.path()))).expect("a store");
    let limit = "a session file of 4294967297 bytes is too long, the limit is 4294967296";
    let error = block_on(store.read(id)).expect_err("it is too long");
    assert!(error.message().contains(limit), "{error}");
    let unlisted = block_on(store.unlisted()).expect("a list");
    assert!(unlisted.len() == 1 && unlisted[0].damage.what.contains(limit), "{unlisted:?}");
    assert!(block_on(store.read(other)).is_ok());
}

/// Makes a session, and another one in a file of its own that continues from its first step. Returns both.
fn two_files(folder: &Path) -> [BranchId; 2] {
    let (store, session, _) = two_steps(folder);
    let id = session.id();
    // While one process writes the first file, a branch that another one begins gets a file of its own.
    let other = block_on(Store::open(&uri("jsonl", folder))).expect("a store");
    let mut fork = block_on(async { other.read(id).await?.session.fork().record(&other).await }).expect("recorded");
    fork.push(Chunk::user("in the fork"));
    block_on(fork.durable()).expect("durable");
    let ids = [id, fork.id()];
    drop((session, fork));
    block_on(store.close()).expect("closed");
    block_on(other.close()).expect("closed");
    assert!(ids.iter().all(|id| file_of(folder, *id).exists()));
    ids
}

/// Cuts a file after its header, or after the row of its first step.
fn cut_at_row(path: &Path, rows: usize) {
    let text = fs::read_to_string(path).expect("a file");
    let end: usize = text.split_inclusive('\n').take(rows).map(str::len).sum();
    assert!(end < text.len());
    fs::write(path, &text[..end]).expect("cut");
}

#[test]
fn a_file_whose_steps_another_session_continues_from_is_missed() {
    let changes: [FileChange; 2] =
        [("removed", |path| fs::remove_file(path).expect("removed")), ("cut", |path| cut_at_row(path, 3))];
    for (what, change) in changes {
        let folder = rath_test_support::temp_dir();
        let [first, fork] = two_files(folder.path());
        let open = || block_on(Store::open(&uri("jsonl", folder.path()))).expect("a store");
        assert_eq!(block_on(open().check()).expect("checked").damage, []);
        change(&file_of(folder.path(), first));
        let missing = format!("which is not in {first}.jsonl; put that file back");
        let check = block_on(open().check()).expect("checked");
        assert!(check.damage.iter().any(|damage| damage.what.ends_with(&missing)), "{what}: {:?}", check.damage);
        let found = block_on(open().read(fork)).expect("the rest can be read");
        assert!(found.damage[0].what.ends_with(&missing), "{what}: {:?}", found.damage);
        let resumed = block_on(open().resume(fork)).expect("resumed");
        assert!(resumed.certificate().to_string().contains(&missing), "{what}: {}", resumed.certificate());
    }
}

#[test]
fn no_session_is_deleted_that_a_moved_file_needs() {
    let folder = rath_test_support::temp_dir();
    let [first, fork] = two_files(folder.path());
    let (own, aside) = (file_of(folder.path(), fork), folder.path().join("store/old/fork.jsonl"));
    fs::create_dir(folder.path().join("store/old")).expect("made");
    fs::rename(&own, &aside).expect("moved");
    let store = block_on(Store::open(&uri("jsonl", folder.path()))).expect("a store");
    for deletion in [block_on(store.measure_delete(&[first])), block_on(store.delete_all(&[first]))] {
        let refused = deletion.expect("planned").refused;
        assert_eq!(refused.len(), 1, "{refused:?}");
        let message = refused[0].error.message();
        assert_eq!(message, format!("old/fork.jsonl needs steps of the session {}", first.short()));
        let hint = refused[0].error.hint().unwrap_or_default();
        assert!(hint.starts_with("`mv -n ") && hint.contains(&format!("{fork}.jsonl")), "{hint}");
    }
    assert!(file_of(folder.path(), first).exists());
    // Beside a copy of the session it needs no other one.
    fs::copy(file_of(folder.path(), first), aside.with_file_name(format!("{first}.jsonl"))).expect("copied");
    assert_eq!(block_on(store.delete_all(&[first])).expect("deleted").deleted, [first]);
}
