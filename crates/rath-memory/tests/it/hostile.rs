//! Files of others: they are refused or read, and never stop the program.

use rath_memory::{Lookup, NoteStore, Position, Query, Size};
use rath_test_support::{Chance, seeds, temp_dir};
use rusqlite::Connection;

use crate::{calibration, id, note, open, random_vector, recall};

/// Writes enough notes that there is a segment, and some after it.
fn filled() -> (rath_test_support::TempDir, Connection) {
    let directory = temp_dir();
    let store = open(directory.path());
    let notes: Vec<_> = (0..2_500).map(|nth| note(nth, &format!("plant number{nth} grows")).thread("t")).collect();
    store.remember(&notes[..2_200]).expect("written");
    store.remember(&notes[2_200..]).expect("written");
    store.calibrate("m", &calibration()).expect("measured");
    let vectors = (0..2_500).map(|nth| (id(nth), random_vector(nth))).collect::<Vec<_>>();
    store.add_vectors("m", &vectors).expect("added");
    drop(store);
    let file = Connection::open(directory.path().join("notes.db")).expect("a database");
    (directory, file)
}

#[test]
fn damaged_rows_are_errors_or_harmless() {
    for damage in [
        "UPDATE postings SET list = randomblob(length(list))",
        "UPDATE postings SET list = zeroblob(100000)",
        "UPDATE postings SET list = list || list",
        "UPDATE postings SET first = 4000000000",
        "UPDATE segments SET last = 4000000000",
        "UPDATE segments SET last = 2100",
        "UPDATE segments SET first = 7",
        "UPDATE segments SET facts = randomblob(length(facts))",
        "UPDATE segments SET facts = zeroblob(0)",
        "DELETE FROM segments",
        "DELETE FROM postings",
        "UPDATE notes SET doc = 4000000000 WHERE doc = 2499",
        "UPDATE notes SET doc = -1 WHERE doc = 2499",
        "UPDATE notes SET before = 2499, thread = 77777",
        "UPDATE notes SET before = doc",
        "UPDATE notes SET path = 999",
        "UPDATE notes SET id = 'two words' WHERE doc = 3",
        "UPDATE notes SET text = zeroblob(30)",
        "UPDATE names SET text = '../..' || name",
        "UPDATE counts SET value = 9000000000000",
        "UPDATE counts SET value = -5",
        "UPDATE counts SET value = 9223372036854775807 WHERE name = 'changes'",
        "UPDATE counts SET value = 4294967295 WHERE name = 'position'",
        "UPDATE counts SET value = -1 WHERE name = 'position'",
        "UPDATE notes SET doc = 0, expires = 1, has_lifetime = 1 WHERE doc = 6",
        "UPDATE notes SET text = printf('%.*c', 1000000, 'x') WHERE doc = 2499",
        "DELETE FROM counts",
        "UPDATE notes SET has_lifetime = 1, replaces = id",
        "UPDATE vectors SET vector = zeroblob(1000000) WHERE doc = 2400",
        "UPDATE vectors SET vector = zeroblob(48)",
        "UPDATE vectors SET vector = 'text'",
        "UPDATE vectors SET doc = 4000000000 WHERE doc = 2400",
        "UPDATE vectors SET doc = -1 WHERE doc = 2400",
        "UPDATE vectors SET doc = 900000000 WHERE doc = 2400",
        "UPDATE vectors SET change = 9000000000000",
        "UPDATE models SET mean = zeroblob(3)",
        "UPDATE models SET mean = zeroblob(400000)",
        "UPDATE models SET mean = x'0000c07f0000c07f'",
        "UPDATE models SET spread = -1",
        "UPDATE models SET spread = 'wide'",
        "DELETE FROM models",
        "INSERT INTO forgotten SELECT id, doc, 1, 99999999 FROM notes",
    ] {
        let (directory, file) = filled();
        file.execute_batch(damage).expect("it is a statement");
        drop(file);
        let Ok(store) = NoteStore::open(directory.path()) else { continue };
        for question in ["plants that grow", "number7", "number2400"] {
            let _ = store.recall(&Query::new(question).limit(20));
            let _ = store.recall(&Query::new(question).as_of(Position(1_000)).session("s", vec![id(3)]));
        }
        let _ = store.recall(&Query::new("x").vector("m", random_vector(2_400)));
        let _ = store.recall(&Query::new("x").vector("m", vec![f32::NAN; 48]));
        let _ = store.without_vector("m", 10);
        let _ = store.add_vectors("m", &[(id(7), random_vector(8))]);
        let _ = store.list(&[], Position(0), 10);
        let _ = store.remember(&[note("new", "another plant").thread("t")]);
        let _ = store.forget(&[id(5), id(2_400)], 1);
        let _ = store.forget_expired(5);
        let _ = store.size();
        let _ = store.remove_model("m");
        let _ = store.recall(&Query::new("plant"));
    }
}

/// A note of which a part cannot be read is listed with the rest of it, and can be forgotten; the others are as they were.
#[test]
fn a_damaged_note_stands_in_no_other_notes_way() {
    for damage in [
        "text = zeroblob(30)",
        "text = x'ffff'",
        "text = ''",
        "path = 999",
        "path = 'x'",
        "thread = 999, before = 'x'",
        "at = 'x', said_by = x'ff'",
        "has_lifetime = 1, expires = 'x', replaces = 'two words'",
        "session = 999, steps = x'ff'",
    ] {
        for doc in [7, 2_450] {
            let (directory, file) = filled();
            file.execute_batch(&format!("UPDATE notes SET {damage} WHERE doc = {doc}")).expect("it is a statement");
            drop(file);
            let other = open(directory.path());
            assert!(!recall(&other, &Query::new("number2000")).is_empty());
            let store = open(directory.path());
            assert_eq!(store.list(&[], Position(0), usize::MAX).expect("a list").len(), 2_500, "{damage}");
            assert!(matches!(store.read(&id(doc - 1)).expect("read"), Lookup::Note(_)), "{damage}");
            assert_eq!(store.forget(&[id(doc - 1)], 1).expect("forgotten").len(), 1, "{damage}");
            assert_eq!(store.list(&[], Position(0), usize::MAX).expect("a list").len(), 2_499, "{damage}");
            for store in [&store, &other, &open(directory.path())] {
                let hits = recall(store, &Query::new("number2000"));
                assert_eq!(hits.first().map(String::as_str), Some("2000"), "{damage}");
            }
            let file = Connection::open(directory.path().join("notes.db")).expect("a database");
            let sql = "SELECT count(*) FROM postings WHERE term = ?1";
            let of_term: i64 = file.query_row(sql, [format!("number{}", doc - 1)], |row| row.get(0)).expect("a count");
            assert_eq!(of_term, 0, "{damage}");
        }
    }
}

/// Notes whose ids cannot be read are removed when their time is over or the memory is full, and keep no write from being done.
#[test]
fn notes_whose_ids_cannot_be_read_are_removed_by_limits() {
    for id in ["x'ff'", "CAST(x'c328' AS TEXT)", "'two words'", "''"] {
        for (has_expired, damaged) in [(true, 3), (false, 3), (true, 2_450)] {
            let (directory, file) = filled();
            let expires = if has_expired { "has_lifetime = 1, expires = 4," } else { "" };
            file.execute_batch(&format!("UPDATE notes SET {expires} id = {id} WHERE doc = {damaged}"))
                .expect("it is a statement");
            let store = open(directory.path());
            assert!(!recall(&store, &Query::new("number2000")).is_empty());
            match has_expired {
                true => store.forget_expired(5),
                false => store.forget_beyond(Size { notes: 2_000, ..Size::UNLIMITED }, 5),
            }
            .unwrap_or_else(|error| panic!("{id}: {error}"));
            let left: i64 = file
                .query_row("SELECT count(*) FROM notes WHERE doc = ?1", [damaged], |row| row.get(0))
                .expect("a count");
            assert_eq!(left, 0, "{id}");
            let size = store.size().expect("a size").notes;
            assert_eq!(size, if has_expired { 2_499 } else { 2_000 }, "{id}");
            for store in [&store, &open(directory.path())] {
                assert_eq!(recall(store, &Query::new("number2000")).first().map(String::as_str), Some("2000"), "{id}");
            }
        }
    }
}

/// An index that is lost is made once, and not by each process anew.
#[test]
fn an_index_that_was_lost_is_in_the_file_again() {
    let segmented = |file: &Connection| -> i64 {
        file.query_row("SELECT coalesce(max(last), 0) FROM segments", [], |row| row.get(0)).expect("a number")
    };
    let find = |store: &NoteStore| {
        assert_eq!(recall(store, &Query::new("number2000")).first().map(String::as_str), Some("2000"));
    };
    // Made by other rules.
    let (directory, file) = filled();
    file.execute_batch("UPDATE counts SET value = 1 WHERE name = 'analysis'").expect("it is a statement");
    let store = open(directory.path());
    assert_eq!(segmented(&file), 0);
    find(&store);
    assert_eq!(segmented(&file), 2_500);
    find(&store);
    find(&open(directory.path()));
    // With a damaged note.
    file.execute_batch("UPDATE notes SET text = zeroblob(30) WHERE doc = 7").expect("it is a statement");
    store.forget(&[id(6)], 1).expect("forgotten");
    assert_eq!(segmented(&file), 2_500);
    find(&store);
    find(&open(directory.path()));
}

/// The notes of a segment that cannot be written are found.
#[test]
fn notes_are_found_if_their_segment_cannot_be_written() {
    let directory = temp_dir();
    let store = open(directory.path());
    let file = Connection::open(directory.path().join("notes.db")).expect("a database");
    let full = "CREATE TRIGGER t BEFORE INSERT ON segments BEGIN SELECT RAISE(ABORT, 'full'); END";
    file.execute_batch(full).expect("it is a statement");
    let notes: Vec<_> = (0..2_500).map(|nth| note(nth, &format!("plant number{nth} grows"))).collect();
    store.remember(&notes).expect("written");
    for _ in 0..3 {
        assert_eq!(recall(&store, &Query::new("number2000")), ["2000"]);
    }
}

/// Bytes of a file that others wrote, or that a disk lost, lead to errors or to other answers, and never to a panic.
#[test]
fn damaged_bytes_are_errors_or_harmless() {
    let (directory, file) = filled();
    file.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("it is a statement");
    drop(file);
    let whole = std::fs::read(directory.path().join("notes.db")).expect("a file");
    for seed in seeds(60) {
        let mut chance = Chance(seed * 7 + 1);
        let mut bytes = whole.clone();
        for _ in 0..1 + chance.below(30) {
            let page = chance.below(bytes.len() as u64 / 4_096) * 4_096;
            // Mostly in the header and the list of cells of a page, where it tells most.
            let within = [12, 200, 4_096][chance.below(3) as usize];
            let at = (page + chance.below(within)).max(100) as usize;
            let other = (chance.below(bytes.len() as u64 / 2) * 2) as usize;
            match chance.below(3) {
                0 => bytes[at] = chance.below(256) as u8,
                1 => bytes.swap(at, other),
                // Cells of a page change places.
                _ => (0..2).for_each(|byte| {
                    bytes.swap(page as usize + 8 + byte, page as usize + 8 + 2 * (1 + other % 9) + byte);
                }),
            }
        }
        let damaged = temp_dir();
        std::fs::write(damaged.path().join("notes.db"), bytes).expect("written");
        let Ok(store) = NoteStore::open(damaged.path()) else { continue };
        let _ = store.recall(&Query::new("plants number7").limit(20).session("s", vec![id(3)]));
        let _ = store.recall(&Query::new("x").vector("m", random_vector(2_400)));
        let mut after = Position(0);
        while let Ok(page) = store.list(&[], after, 100)
            && let Some((last, _)) = page.last()
        {
            assert!(*last > after, "a list goes on");
            after = *last;
        }
        let _ = store.remember(&[note("new", "another plant").thread("t")]);
        let _ = store.forget(&[id(5), id(2_400)], 1);
        let _ = store.recall(&Query::new("plant"));
    }
}

#[test]
fn other_databases_and_other_tables_are_refused() {
    for (statement, reason) in [
        ("PRAGMA application_id = 1", "no memory of rath"),
        ("PRAGMA user_version = 9", "version 9"),
        ("CREATE TABLE extra(x)", "not those of rath"),
        ("CREATE TRIGGER t AFTER INSERT ON notes BEGIN DELETE FROM forgotten; END", "not those of rath"),
        ("CREATE VIEW v AS SELECT 1", "not those of rath"),
    ] {
        let (directory, file) = filled();
        file.execute_batch(statement).expect("it is a statement");
        drop(file);
        let error = NoteStore::open(directory.path()).expect_err("it is refused").to_string();
        assert!(error.contains(reason), "{statement}: {error}");
    }
    let directory = temp_dir();
    std::fs::write(directory.path().join("notes.db"), "no database at all, but a text of some length")
        .expect("written");
    assert!(NoteStore::open(directory.path()).is_err());
}
