//! A step that is forgotten: in every store, directory and session that has it.

use std::path::Path;

use rath::StepId;
use rath::chunk::{Call, Effect, Observed, Outcome, ToolResult, ToolStarted, Tree};
use rath::gc::{ForgetReport, SkipReason};
use rath::prelude::*;
use rath::record::{Stamp, Timestamp};
use rath::workspace::{ErrorKind as FileErrorKind, Objects};

use crate::files::{placed, work};
use crate::support::{block_on, folder};

const KINDS: [&str; 2] = ["sqlite", "jsonl"];

fn open(kind: &str, directory: &Path) -> Store {
    block_on(Store::open(&format!("{kind}:{}", directory.join("sessions").display()))).expect("a store")
}

fn record(session: Session, store: &Store) -> Session {
    block_on(session.record(store)).expect("recorded")
}

fn wait_until_durable(session: &Session) {
    block_on(session.durable()).expect("durable");
}

/// Returns the step that changed a file first.
fn writer_of(session: &Session, path: &str) -> StepId {
    let is_of_path = |effect: &Effect| effect.path == path;
    let steps = session.as_record().steps().into_iter();
    let mut writers = steps.filter(|step| step.chunk().effects().iter().any(is_of_path));
    writers.next().expect("a step").id()
}

/// Drops a session, and forgets a step of it.
fn forget(store: &Store, session: Session, step: StepId) -> ForgetReport {
    let id = session.id();
    drop(session);
    rath_test_support::wait_until("the session is released", || {
        block_on(store.list()).expect("a list").iter().all(|summary| summary.branch != id || summary.holder.is_none())
    });
    block_on(store.forget(id, step)).expect("forgotten")
}

/// Returns the content of a file in a tree; the kind of the error if it cannot be read.
fn content(directory: &Path, tree: &str, path: &str) -> Result<Option<String>, FileErrorKind> {
    let objects = Objects::open_read_only(&directory.join(".rath/workspace")).expect("versions");
    let content = objects.read(tree.parse().expect("a tree"), path).map_err(|error| error.kind())?;
    Ok(content.map(|content| String::from_utf8(content).expect("UTF-8")))
}

fn tree(session: &Session) -> String {
    session.tree().expect("a tree").0
}

#[test]
fn versions_that_a_merge_copied_to_another_directory_are_forgotten_there_too() {
    for kind in KINDS {
        let (stores, here, there) = (folder(&[]), folder(&[("a.txt", "a\n")]), folder(&[("x.txt", "x\n")]));
        let store = open(kind, stores.path());
        let ours = work(record(placed(&here), &store), &[&["echo b > b.txt"]]);
        let theirs = work(record(placed(&there), &store), &[&["echo secret > secret.txt"]]);
        let step = writer_of(&theirs, "secret.txt");
        let merged = block_on(ours.merge(&theirs)).expect("merged");
        wait_until_durable(&merged);
        let (our_tree, their_tree) = (tree(&merged), tree(&theirs));
        assert_eq!(content(here.path(), &our_tree, "secret.txt"), Ok(Some("secret\n".to_owned())));
        drop((ours, merged));
        let report = forget(&store, theirs, step);
        assert!(report.is_complete(), "{report:?}");
        for (directory, tree) in [(&here, &our_tree), (&there, &their_tree)] {
            assert_eq!(content(directory.path(), tree, "secret.txt"), Err(FileErrorKind::Forgotten), "{report:?}");
        }
        assert_eq!(content(here.path(), &our_tree, "b.txt"), Ok(Some("b\n".to_owned())));
        assert_eq!(content(there.path(), &their_tree, "x.txt"), Ok(Some("x\n".to_owned())));
    }
}

#[test]
fn a_session_that_is_being_written_is_named_or_forgets_too() {
    for kind in KINDS {
        let stores = folder(&[]);
        let store = open(kind, stores.path());
        let held = record(Session::user("my number is 4711"), &store);
        let other = record(Session::user("my number is 4711"), &store);
        [&held, &other].into_iter().for_each(wait_until_durable);
        let step = other.head().expect("a step").id();
        assert_eq!(held.head().expect("a step").id(), step, "the two begin alike");
        let report = forget(&store, other, step);
        let refused: Vec<_> = report.refused.iter().map(|(session, _)| *session).collect();
        let stored = block_on(store.read(held.id())).expect("stored").session;
        let has_text = format!("{:?}", stored.chunks().collect::<Vec<_>>()).contains("number is 4711");
        assert_eq!(has_text, refused.contains(&held.id()), "{kind}: {report:?}");
        let report = forget(&store, held, step);
        assert!(report.is_complete(), "{kind}: {report:?}");
        let bytes: Vec<u8> =
            std::fs::read_dir(stores.path()).expect("files").flatten().fold(Vec::new(), |all, entry| {
                let files = std::fs::read_dir(entry.path()).into_iter().flatten().flatten().map(|entry| entry.path());
                files
                    .chain([entry.path()])
                    .fold(all, |all, path| [all, std::fs::read(path).unwrap_or_default()].concat())
            });
        assert!(!contains(&bytes, "number is 4711"), "{kind}");
    }
}

#[test]
fn a_store_in_memory_forgets_files_too() {
    let folder = folder(&[("a.txt", "a\n")]);
    let store = block_on(Store::open("memory:")).expect("a store");
    let session = work(record(placed(&folder), &store), &[&["echo secret > secret.txt"]]);
    wait_until_durable(&session);
    let (step, tree) = (writer_of(&session, "secret.txt"), tree(&session));
    let (id, in_use) = (session.id(), Objects::open(&folder.path().join(".rath/workspace")).expect("versions"));
    let report = forget(&store, session, step);
    assert_eq!(report.directories[0].skipped, Some(SkipReason::InUse), "{report:?}");
    drop(in_use);
    let report = block_on(store.forget(id, step)).expect("forgotten");
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(report.directories[0].removed, ["secret.txt"]);
    assert_eq!(content(folder.path(), &tree, "secret.txt"), Err(FileErrorKind::Forgotten));
}

#[test]
fn of_calls_that_ran_at_the_same_time_one_is_forgotten() {
    for kind in KINDS {
        let (stores, folder) = (folder(&[]), folder(&[("a.txt", "a\n")]));
        let store = open(kind, stores.path());
        let calls = ["echo draft > one.txt; sleep 0.2; echo secret > one.txt", "echo plain > two.txt"];
        let session = work(record(placed(&folder), &store), &[&calls]);
        wait_until_durable(&session);
        let (step, tree) = (writer_of(&session, "one.txt"), tree(&session));
        let report = forget(&store, session, step);
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(content(folder.path(), &tree, "one.txt"), Err(FileErrorKind::Forgotten), "{report:?}");
        assert_eq!(content(folder.path(), &tree, "two.txt"), Ok(Some("plain\n".to_owned())));
        assert_eq!(report.directories[0].still_in.len(), 1, "the user's own file: {report:?}");
    }
}

#[test]
fn forgetting_a_step_that_others_made_removes_no_file_that_they_claim() {
    for kind in KINDS {
        let (stores, twin, folder) = (folder(&[]), folder(&[("a.txt", "mine\n")]), folder(&[("a.txt", "mine\n")]));
        let store = open(kind, stores.path());
        let claimed = tree(&work(placed(&twin), &[&["true"]]));
        // It says that its call wrote the user's file, and that this was before the user's session.
        let mut forged = placed(&folder);
        forged.push(Observed::new(Tree("git:4b825dc642cb6eb9a060e54bf8d69288fbee4904".to_owned())));
        forged.push(Chunk::calls([Call::new("c1", "shell", "{}")]));
        forged.push(ToolResult::new("c1", Outcome::Ok, "done").with_tree(Some(Tree(claimed.clone()))));
        let step = forged.head().expect("a step").id();
        let guest = record(Session::resume(forged.as_record().clone()), &store);
        let own = work(record(placed(&folder), &store), &[&["echo new > new.txt"]]);
        [&guest, &own].into_iter().for_each(wait_until_durable);
        let own_tree = tree(&own);
        drop(own);
        let report = forget(&store, guest, step);
        assert_eq!(content(folder.path(), &own_tree, "a.txt"), Ok(Some("mine\n".to_owned())), "{kind}: {report:?}");
        assert_eq!(report.directories[0].kept.len(), 1, "{kind}: {report:?}");
    }
}

/// The times of a call that a crash ended and that was run again, in milliseconds.
pub(crate) const CALL_TIMES: CallTimes =
    CallTimes { before: 1_700_000_000_000, first: 1_700_000_001_000, second: 1_700_000_002_000 };

/// See [`CALL_TIMES`].
pub(crate) struct CallTimes {
    before: u64,
    pub(crate) first: u64,
    pub(crate) second: u64,
}

/// Returns a session whose last step is the result of a call that ran twice, and whose files in `locked.txt` were put back.
pub(crate) fn called_twice(directory: &Path) -> Session {
    let placed = Session::user("go").to(Sandbox::local(directory));
    let (branch, mut record) = (placed.id(), placed.as_record().clone());
    let mut push = |millis: u64, chunk: Chunk| {
        let at = Timestamp(i64::try_from(millis * 1000).expect("a time"));
        record.push(chunk, Stamp::on(branch).at(at));
    };
    push(CALL_TIMES.before, Chunk::calls([Call::new("c1", "shell", "{}")]));
    push(CALL_TIMES.first, ToolStarted::new("c1").into());
    push(CALL_TIMES.second, ToolStarted::new("c1").into());
    let result = ToolResult::new("c1", Outcome::Ok, "done").with_put_back(["locked.txt".to_owned()]);
    push(CALL_TIMES.second + 500, result.into());
    Session::resume_own(record)
}

/// The content of a file that was moved aside.
///
/// Four digits alone would be found by chance in a file with digests.
pub(crate) const MOVED_ASIDE: &str = "secret 4711";

/// Returns true if a text is among the bytes.
pub(crate) fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Writes a file that was moved aside at this time, in milliseconds. Returns the directory of that time.
pub(crate) fn move_aside(directory: &Path, millis: u64) -> std::path::PathBuf {
    let time = uuid::Timestamp::from_unix(
        uuid::NoContext,
        millis / 1000,
        u32::try_from(millis % 1000).expect("small") * 1_000_000,
    );
    let aside = directory.join(".rath/put-back").join(uuid::Uuid::new_v7(time).simple().to_string());
    std::fs::create_dir_all(&aside).expect("a directory");
    std::fs::write(aside.join("locked.txt"), MOVED_ASIDE).expect("written");
    aside
}

/// The result of a call that ran again after a crash speaks of all attempts.
#[test]
fn what_an_attempt_before_a_crash_wrote_and_was_put_back_is_forgotten_too() {
    for kind in KINDS {
        let folder = folder(&[("a.txt", "a\n")]);
        drop(Objects::open(&folder.path().join(".rath/workspace")).expect("versions"));
        let store = open(kind, &folder.path().join(".rath"));
        let session = record(called_twice(folder.path()), &store);
        wait_until_durable(&session);
        let step = session.head().expect("a step").id();
        let asides = [CALL_TIMES.before - 1, CALL_TIMES.first + 5, CALL_TIMES.second + 5, CALL_TIMES.second + 600]
            .map(|millis| move_aside(folder.path(), millis));
        let report = forget(&store, session, step);
        assert!(report.is_complete(), "{kind}: {report:?}");
        assert_eq!(asides.map(|aside| aside.exists()), [true, false, false, true], "{kind}: {report:?}");
    }
}
