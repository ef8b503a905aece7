//! Copies of damaged sessions, and files that stores do not touch.

use rath::prelude::*;
use rath::record::Record;
use rath::record::codec::Report;
use rath::store::Store;
use rath::{SalvageReport, salvage_blocking};

use crate::support::{block_on, close};

fn three_steps() -> Session {
    let mut session = Session::user("one");
    session.push(Chunk::assistant("two"));
    session.push(Chunk::user("three"));
    session
}

fn replaced(bytes: Vec<u8>, from: &str, to: &str) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|it| it == from.as_bytes()).expect("it is there");
    [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat()
}

#[test]
fn a_salvaged_copy_is_whole_and_marks_what_is_lost() {
    let folder = rath_test_support::temp_dir();
    let [path, copy] = ["s.rath", "copy.rath"].map(|name| folder.path().join(name));
    let session = three_steps();
    let lost = session.as_record().steps()[1].id();
    std::fs::write(&path, replaced(session.to_bytes().expect("bytes"), "two", "tow")).expect("written");
    let opened = Session::open_blocking(&path).expect("opened");
    assert!(!opened.report.is_whole());
    let report = salvage_blocking(&opened.lineage, &copy).expect("copied");
    assert_eq!(report, SalvageReport { steps: 2, lost_steps: vec![lost], lost_payloads: vec![] });
    assert_eq!(report, SalvageReport::new(&opened.lineage));
    let Report { gone, steps, .. } = rath::verify_blocking(&copy).expect("checked");
    assert!(rath::verify_blocking(&copy).expect("checked").is_whole());
    assert_eq!((gone, steps), (1, 2));
    // A copy that is continued stays undamaged.
    let mut again = Session::open_blocking(&copy).expect("opened").session;
    again.push(Chunk::assistant("four"));
    again.save_blocking(&copy).expect("saved");
    assert!(rath::verify_blocking(&copy).expect("checked").is_whole());
    // An existing file is not replaced.
    let error = salvage_blocking(&opened.lineage, &copy).expect_err("it is there");
    assert!(error.message().ends_with("there is a file of that name"), "{error}");
}

#[test]
fn steps_on_both_sides_of_a_damaged_row_are_found() {
    for kind in ["sqlite", "jsonl"] {
        let folder = rath_test_support::temp_dir();
        let uri = format!("{kind}:{}", folder.path().join("store").display());
        let store = block_on(Store::open(&uri)).expect("a store");
        let session = block_on(three_steps().record(&store)).expect("recorded");
        let id = session.id();
        close(session, store);
        let file = match kind {
            "sqlite" => folder.path().join("store"),
            _ => folder.path().join(format!("store/{id}.jsonl")),
        };
        std::fs::write(&file, replaced(std::fs::read(&file).expect("read"), "two", "tow")).expect("written");
        let store = block_on(Store::open(&uri)).expect("a store");
        assert_eq!(block_on(store.read(id)).expect("read").session.chunk_count(), if kind == "sqlite" { 3 } else { 1 });
        let pieces = block_on(store.pieces(id)).expect("read");
        let words: Vec<_> = pieces.walk().into_iter().map(|step| step.json().into_owned()).collect();
        assert_eq!(words.len(), 2, "{kind}: {words:?}");
        assert_eq!(SalvageReport::new(&pieces).lost_steps.len(), 1);
        // The remaining steps can be recorded in another store.
        let elsewhere = block_on(Store::open("memory:")).expect("a store");
        let rest = Session::resume(Record::at(pieces.heads()[1].clone()));
        block_on(rest.record(&elsewhere)).expect("recorded");
    }
}

#[test]
fn a_forgotten_payload_is_no_damage_in_a_file() {
    let folder = rath_test_support::temp_dir();
    let store = block_on(Store::open("memory:")).expect("a store");
    let long = "many words ".repeat(2_000);
    let session = block_on(Session::user(long).record(&store)).expect("recorded");
    let (id, head) = (session.id(), session.head().expect("a step").id());
    drop(session);
    block_on(store.forget(id, head)).expect("forgotten");
    let found = block_on(store.read(id)).expect("read").session;
    let path = folder.path().join("s.rath");
    found.save_blocking(&path).expect("saved");
    let report = rath::verify_blocking(&path).expect("checked");
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(report.withheld, 1);
    assert!(!std::fs::read_to_string(&path).expect("text").contains("many words"));
    assert!(SalvageReport::new(&found.lineage()).is_whole(), "a forgotten payload is not lost");
}

#[test]
fn a_fork_is_listed_as_soon_as_it_is_recorded() {
    for kind in ["sqlite", "jsonl", "memory"] {
        let folder = rath_test_support::temp_dir();
        let store =
            block_on(Store::open(&format!("{kind}:{}", folder.path().join("store").display()))).expect("a store");
        let id = block_on(three_steps().record(&store)).expect("recorded").id();
        let resumed = block_on(store.fork(id)).expect("forked");
        assert!(resumed.certificate().is_complete());
        let fork = resumed.complete().expect("complete");
        assert_eq!(block_on(store.list()).expect("a list").len(), 1, "{kind}: it is not stored before it is recorded");
        let fork = block_on(fork.record(&store)).expect("recorded");
        let list = block_on(store.list()).expect("a list");
        let heads: Vec<_> = list.iter().map(|listed| (listed.branch, listed.is_tip)).collect();
        assert_eq!(heads, [(id, false), (fork.id(), true)], "{kind}");
        let check = block_on(store.check()).expect("checked");
        assert_eq!((check.steps, check.damage.len()), (4, 0), "{kind}: a step is stored once");
    }
}

#[test]
fn a_database_of_something_else_is_left_as_it_is() {
    let folder = rath_test_support::temp_dir();
    let path = folder.path().join("other.db");
    rusqlite::Connection::open(&path).and_then(|other| other.execute_batch("CREATE TABLE t(x)")).expect("a database");
    let before = std::fs::read(&path).expect("read");
    let error = block_on(Store::open(&format!("sqlite:{}", path.display()))).expect_err("it is not ours");
    assert!(error.message().ends_with("is a database of something else"), "{error}");
    assert_eq!(std::fs::read(&path).expect("read"), before);
}

/// Another program that was killed needs its journal, and it alone knows when to roll it back.
#[test]
fn the_journal_of_a_database_of_something_else_is_left_as_it_is() {
    // A database with a WAL has a journal for a moment, when its mode is changed.
    for mode in ["DELETE", "WAL"] {
        let folder = rath_test_support::temp_dir();
        let (path, journal) = (folder.path().join("other.db"), folder.path().join("other.db-journal"));
        let fill = "CREATE TABLE t(x); WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 99)
                    INSERT INTO t SELECT zeroblob(9000) FROM n;";
        let other = rusqlite::Connection::open(&path).expect("a database");
        other.execute_batch(&format!("PRAGMA journal_mode = {mode}; {fill}")).expect("filled");
        drop(other);
        let copy = folder.path().join("copy.db");
        std::fs::copy(&path, &copy).expect("copied");
        let other = rusqlite::Connection::open(&copy).expect("a database");
        let change = "PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; BEGIN; UPDATE t SET x = zeroblob(9999);";
        other.execute_batch(change).expect("changed");
        std::fs::copy(folder.path().join("copy.db-journal"), &journal).expect("a hot journal");
        let state = || [&path, &journal].map(|path| std::fs::read(path).expect("read"));
        let before = state();
        for create in [rath::store::Create::Never, rath::store::Create::IfMissing] {
            let error = rath::store::Sqlite::open(path.to_str().expect("UTF-8"), create).err().expect("it is not ours");
            assert!(error.to_string().ends_with("is a database of something else"), "{mode}: {error}");
        }
        assert!(state() == before, "{mode}");
        drop(other);
    }
}
