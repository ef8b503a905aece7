//! Forgotten notes leave no trace but their id.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use rath_memory::{Note, NoteId, NoteStore, Position, Query, Size, Source};
use rath_test_support::{Chance, seeds, temp_dir};
use rusqlite::Connection;

use crate::{calibration, id, note, open, random_vector, recall};

/// The number of notes that are forgotten, and of those that stay.
const NOTES: usize = 1_000;

/// Returns a word that is in one note only, spelled so that no stemmer changes it.
fn rare(nth: usize) -> String {
    format!("qx{}zk", nth.to_string().bytes().map(|digit| (b'a' + digit - b'0') as char).collect::<String>())
}

fn secret(nth: usize) -> Note {
    let text = format!("The password of {} was changed by Martha, 秘密{} too", rare(nth), rare(nth));
    note(format!("secret{nth}"), &text)
        .at(1_000_000)
        .thread(format!("secrets {}", nth / 10))
        .said_by(format!("Teller{}", rare(nth)))
}

fn public(nth: usize) -> Note {
    note(format!("public{nth}"), &format!("Plant number{nth} grows in the garden of house{}", nth % 37))
        .at(9_000_000)
        .thread(format!("plants {}", nth / 10))
}

fn files_hold(directory: &Path, text: &str) -> bool {
    files(directory)
        .iter()
        .any(|bytes| bytes.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text.as_bytes())))
}

fn files_hold_bytes(directory: &Path, wanted: &[u8]) -> bool {
    files(directory).iter().any(|bytes| bytes.windows(wanted.len()).any(|part| part == wanted))
}

fn files(directory: &Path) -> Vec<Vec<u8>> {
    let files = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    files.map(|file| fs::read(file).expect("a file")).collect()
}

/// Reads the vector of a note as it is in the file: it is not on two pages.
fn stored_vector(directory: &Path, note: &Note) -> Vec<u8> {
    let file = Connection::open(directory.join("notes.db")).expect("a database");
    let sql = "SELECT vector FROM vectors v JOIN notes n ON v.doc = n.doc WHERE n.id = ?1";
    file.query_row(sql, [note.id.as_str()], |row| row.get(0)).expect("a vector")
}

/// The models whose vectors the notes have.
const MODELS: [&str; 2] = ["test:one", "test:two"];

/// Gives each note a vector of each model that points anywhere.
fn add_vectors(store: &NoteStore, notes: &[Note]) {
    for model in MODELS {
        store.calibrate(model, &calibration()).expect("measured");
        let vectors = notes.iter().map(|note| (note.id.clone(), vector_of(note)));
        store.add_vectors(model, &vectors.collect::<Vec<_>>()).expect("added");
    }
}

fn vector_of(note: &Note) -> Vec<f32> {
    random_vector(note.id.as_str().bytes().fold(7, |seed, byte| seed * 31 % 1_000_003 + u64::from(byte)))
}

fn forget_in_every_way(extra: usize) {
    let directory = temp_dir();
    let store = open(directory.path());
    let reader = open(directory.path());
    let mut notes: Vec<Note> = Vec::new();
    for nth in 0..NOTES {
        let mut secret = secret(nth);
        if nth % 4 == 1 {
            secret.source = Some(Source::new("spilled", vec!["ab".to_owned()]));
        }
        if nth % 4 == 2 {
            secret.at = 10;
        }
        notes.extend([secret, public(nth)]);
    }
    notes.extend((0..extra).map(|nth| public(NOTES + nth)));
    store.remember(&notes).expect("written");
    add_vectors(&store, &notes);
    let questions: Vec<Query> =
        (0..NOTES).step_by(50).map(|nth| Query::new(format!("plants number{nth} house{}", nth % 37))).collect();
    let only_public = NoteStore::in_process();
    let public: Vec<Note> = notes.iter().filter(|note| note.id.as_str().starts_with("public")).cloned().collect();
    only_public.remember(&public).expect("written");
    add_vectors(&only_public, &public);
    let by_vector = |note: &Note, model: &str| Query::new("zzz").vector(model, vector_of(note));
    let secret_notes: Vec<&Note> = notes.iter().filter(|note| note.id.as_str().starts_with("secret")).collect();
    let coded: Vec<Vec<u8>> =
        secret_notes.iter().step_by(9).map(|note| stored_vector(directory.path(), note)).collect();
    for (note, vector) in secret_notes.iter().step_by(9).zip(&coded) {
        assert_eq!(recall(&reader, &by_vector(note, MODELS[1])).first(), Some(&note.id.to_string()));
        assert!(files_hold_bytes(directory.path(), vector));
    }
    assert!(!recall(&reader, &Query::new(rare(17))).is_empty());
    assert!(files_hold(directory.path(), &rare(17)));

    // By id, by session, by age, and by question.
    let ids: Vec<_> = (0..NOTES).step_by(4).map(|nth| id(format!("secret{nth}"))).collect();
    assert_eq!(store.forget(&ids, 7).expect("forgotten").len(), NOTES / 4);
    assert_eq!(store.forget_session("spilled", 7).expect("forgotten").len(), NOTES / 4);
    assert_eq!(store.forget_before(20, 7).expect("forgotten").len(), NOTES / 4);
    let rest: Vec<_> = store.recall(&Query::new("passwords that Martha changed").limit(NOTES)).expect("an answer");
    let rest: Vec<_> = rest.into_iter().map(|hit| hit.note.id).collect();
    assert_eq!(store.forget(&rest, 7).expect("forgotten").len(), NOTES / 4);

    let reopened = open(directory.path());
    for store in [&store, &reader, &reopened] {
        for question in
            ["password", "passwords changed", "changing a password", "Martha", "秘密", "what did Martha change"]
        {
            assert!(recall(store, &Query::new(question).limit(50)).is_empty(), "{question}");
        }
        for nth in (0..NOTES).step_by(9) {
            assert!(recall(store, &Query::new(rare(nth))).is_empty());
            assert!(recall(store, &Query::new(format!("what did Teller{} say", rare(nth)))).is_empty());
        }
        for (nth, note) in secret_notes.iter().step_by(9).enumerate() {
            let found = recall(store, &by_vector(note, MODELS[nth % 2]));
            assert!(found.iter().all(|id| id.starts_with("public")), "{found:?}");
        }
        for (nth, note) in public.iter().step_by(50).enumerate() {
            let query = by_vector(note, MODELS[nth % 2]);
            assert_eq!(recall(store, &query), recall(&only_public, &query));
            assert!(!recall(store, &query).is_empty());
        }
        // What else was known is found as if the forgotten had never been there.
        for question in &questions {
            let found = |store: &NoteStore| -> Vec<_> {
                let hits = store.recall(question).expect("an answer");
                hits.into_iter().map(|hit| (hit.note.text, hit.score.to_bits())).collect()
            };
            assert_eq!(found(store), found(&only_public));
        }
        assert_eq!(store.read(&id("secret4")).expect("read"), rath_memory::Lookup::Forgotten(7));
    }
    for text in ["password", "Martha", "秘密", "Teller", "secrets ", "spilled"] {
        assert!(!files_hold(directory.path(), text), "{text}");
    }
    for vector in &coded {
        assert!(!files_hold_bytes(directory.path(), vector));
    }
    for nth in (0..NOTES).step_by(9) {
        assert!(!files_hold(directory.path(), &rare(nth)), "{}", rare(nth));
    }
    // A run that is committed again does not bring them back.
    store.remember(&notes).expect("written");
    add_vectors(&store, &notes);
    assert!(recall(&store, &Query::new("password")).is_empty());
    assert!(coded.iter().all(|vector| !files_hold_bytes(directory.path(), vector)));
}

#[test]
fn forgotten_notes_are_in_no_answer_and_no_file() {
    forget_in_every_way(0);
}

#[test]
fn forgotten_notes_are_in_no_segment() {
    forget_in_every_way(3_000);
}

#[test]
fn an_old_version_does_not_come_back() {
    let store = NoteStore::in_process();
    store
        .remember(&[
            note("old", "port 80"),
            note("new", "port 81").replaces(id("old")),
            note("newest", "port 82").replaces(id("new")),
        ])
        .expect("written");
    assert_eq!(store.forget(&[id("new")], 1).expect("forgotten").len(), 3);
    assert!(recall(&store, &Query::new("port")).is_empty());
}

/// Notes that are too old go with the versions before them, and leave the versions after them.
#[test]
fn a_limit_removes_no_newer_version() {
    type RemovalCase = (&'static str, fn(&NoteStore) -> rath_memory::Result<Vec<NoteId>>, &'static [&'static str]);
    let ways: [RemovalCase; 9] = [
        ("by id", |store| store.forget(&[id("v2")], 9), &["other"]),
        ("by id, with older versions", |store| store.forget_with_older(&[id("v2")], 9), &["v3", "other"]),
        ("the newest by id", |store| store.forget_with_older(&[id("v3")], 9), &["other"]),
        ("the oldest by age", |store| store.forget_before(15, 9), &["v2", "v3", "other"]),
        ("two by age", |store| store.forget_before(25, 9), &["v3", "other"]),
        ("the oldest by its time", |store| store.forget_expired(100), &["v2", "v3", "other"]),
        ("a new version by its time", |store| store.forget_expired(300), &["other"]),
        (
            "the oldest by number",
            |store| store.forget_beyond(Size { notes: 3, ..Size::UNLIMITED }, 9),
            &["v2", "v3", "other"],
        ),
        ("two by size", |store| store.forget_beyond(Size { bytes: 13, ..Size::UNLIMITED }, 9), &["v3", "other"]),
    ];
    for (name, forget, left) in ways {
        let directory = temp_dir();
        for store in [NoteStore::in_process(), open(directory.path())] {
            let notes = [
                note("v1", "port 80").at(10).expires(100),
                note("v2", "port 81").at(20).replaces(id("v1")),
                note("v3", "port 82").at(30).replaces(id("v2")).expires(300),
                note("other", "port 9").at(40),
            ];
            store.remember(&notes).expect("written");
            let before = store.list(&[], Position(0), usize::MAX).expect("a list").len();
            let gone = forget(&store).expect("forgotten");
            let listed = store.list(&[], Position(0), usize::MAX).expect("a list");
            let listed: Vec<String> = listed.into_iter().map(|(_, note)| note.id.to_string()).collect();
            assert_eq!(listed, left, "{name}");
            assert_eq!(gone.len() + listed.len(), before, "{name}");
            let mut found = recall(&store, &Query::new("port").now(50));
            found.sort();
            let newest = if left.contains(&"v3") { &["other", "v3"][..] } else { &["other"] };
            assert_eq!(found, newest, "{name}");
        }
    }
}

/// A note whose time is over is no reason to take its older version for what is known now.
#[test]
fn a_version_whose_time_is_over_does_not_bring_back_the_one_before_it() {
    let directory = temp_dir();
    for store in [NoteStore::in_process(), open(directory.path())] {
        let notes = [note("old", "port 80"), note("new", "port 81").replaces(id("old")).expires(100)];
        store.remember(&notes).expect("written");
        assert_eq!(recall(&store, &Query::new("port").now(99)), ["new"]);
        assert!(recall(&store, &Query::new("port").now(100)).is_empty());
        assert_eq!(store.forget_expired(100).expect("forgotten"), [id("new"), id("old")]);
        assert!(recall(&store, &Query::new("port").now(100)).is_empty());
    }
}

/// A limit that removes many notes rewrites the file, and one that removes few leaves that to the next removal.
#[test]
fn no_file_holds_many_notes_that_a_limit_removed() {
    for seed in seeds(4) {
        let mut chance = Chance(seed);
        let directory = temp_dir();
        let store = open(directory.path());
        let mut notes = |first: u64, count: u64, last: u64| -> Vec<Note> {
            let text = |nth: u64, chance: &mut Chance| note(nth, &marked(&format!("qx{nth}zk"), chance));
            (first..first + count).map(|nth| text(nth, &mut chance).expires(1 + chance.below(last) as i64)).collect()
        };
        let left = || {
            let there = store.list(&[], Position(0), usize::MAX).expect("a list");
            let there: HashSet<String> = there.into_iter().map(|(_, note)| note.id.to_string()).collect();
            marks(directory.path()).into_iter().filter(|nth| !there.contains(nth)).collect::<Vec<_>>()
        };
        notes(0, 400, 4).chunks(30).for_each(|notes| _ = store.remember(notes).expect("written"));
        for now in 1..=3 {
            let gone = store.forget_expired(now).expect("forgotten").len();
            assert!(gone >= 64 && left().is_empty(), "seed {seed}: {gone} gone, left: {:?}", left());
        }
        notes(400, 50, 40).chunks(7).for_each(|notes| _ = store.remember(notes).expect("written"));
        (4..30).for_each(|now| _ = store.forget_expired(now).expect("forgotten"));
        store.forget(&[], 1).expect("nothing to forget");
        assert!(left().is_empty(), "seed {seed}: {:?}", left());
    }
}

/// If the file cannot be rewritten, that is an error, and the log of changes is empty all the same.
#[test]
fn the_log_holds_nothing_if_the_file_cannot_be_rewritten() {
    let directory = temp_dir();
    let store = open(directory.path());
    store.remember(&(0..200).map(secret).collect::<Vec<_>>()).expect("written");
    store.forget(&[], 1).expect("nothing to forget");
    drop(store);
    // The tables are copied one after the other; this one is not used without vectors.
    let path = directory.path().join("notes.db");
    let file = Connection::open(&path).expect("a database");
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'vectors'";
    let page = file.query_row(sql, [], |row| row.get::<_, u32>(0)).expect("a page") as usize;
    drop(file);
    let mut bytes = fs::read(&path).expect("a file");
    bytes[(page - 1) * 4_096..page * 4_096].fill(0xff);
    fs::write(&path, bytes).expect("written");
    let store = open(directory.path());
    let log = || fs::metadata(directory.path().join("notes.db-wal")).expect("a log").len();
    let retry = || {
        let file = Connection::open(&path).expect("a database");
        let sql = "SELECT coalesce(max(value), 0) FROM counts WHERE name = 'retry_removed'";
        file.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a number")
    };
    let error = store.forget(&[secret(7).id], 1).expect_err("the file cannot be rewritten").to_string();
    assert!(error.contains("forget once more"), "{error}");
    assert_eq!(log(), 0);
    assert!(!files_hold(directory.path(), &secret(7).text));
    // A limit is not an error, and does not try again at each write.
    for (left, wanted) in [(190, 0), (130, 70 + 64), (129, 70 + 64), (60, 140 + 64)] {
        store.forget_beyond(Size { notes: left, ..Size::UNLIMITED }, 1).expect("forgotten");
        assert_eq!((store.size().expect("a size").notes, retry(), log()), (left, wanted, 0));
    }
}

/// Notes are counted when a segment is written and when some are forgotten: the size is right at every other time too.
#[test]
fn the_size_is_that_of_the_notes_that_are_there() {
    let directory = temp_dir();
    let store = open(directory.path());
    let other = open(directory.path());
    let mut next = 0;
    for (added, forgotten) in [(1, 0), (3, 2), (2_100, 0), (5, 5), (0, 1_500), (700, 1), (2_100, 2_100), (1, 0)] {
        let notes: Vec<Note> = (next..next + added).map(|nth| note(nth, &format!("plänt {nth}"))).collect();
        next += added;
        other.remember(&notes).expect("written");
        let ids: Vec<NoteId> = (next - forgotten..next).map(id).collect();
        store.forget(&ids, 1).expect("forgotten");
        let there = store.list(&[], Position(0), usize::MAX).expect("a list");
        let bytes = there.iter().map(|(_, note)| note.text.len() as u64).sum();
        let wanted = (Size { notes: there.len() as u64, bytes }, Position(next as u32));
        for store in [&store, &other, &open(directory.path())] {
            assert_eq!((store.size().expect("a size"), store.position().expect("a position")), wanted);
        }
    }
}

#[test]
fn the_oldest_notes_beyond_a_size_are_forgotten() {
    let directory = temp_dir();
    for store in [NoteStore::in_process(), open(directory.path())] {
        let notes: Vec<Note> = (0..100).map(|nth| note(nth, &format!("plant {nth:03}"))).collect();
        store.remember(&notes).expect("written");
        assert_eq!(store.size().expect("a size"), Size { notes: 100, bytes: 900 });
        assert_eq!(store.forget_beyond(Size { notes: 100, bytes: 900 }, 1).expect("nothing to do").len(), 0);
        assert_eq!(store.forget_beyond(Size { notes: 60, ..Size::UNLIMITED }, 1).expect("forgotten").len(), 40);
        assert_eq!(store.forget_beyond(Size { bytes: 95, ..Size::UNLIMITED }, 1).expect("forgotten").len(), 50);
        assert_eq!(store.size().expect("a size"), Size { notes: 10, bytes: 90 });
        assert_eq!(recall(&store, &Query::new("plant").limit(100)).len(), 10);
        assert!(matches!(store.read(&id(89)).expect("read"), rath_memory::Lookup::Forgotten(1)));
        assert!(matches!(store.read(&id(90)).expect("read"), rath_memory::Lookup::Note(_)));
        assert_eq!(store.forget_beyond(Size::default(), 1).expect("forgotten").len(), 10);
    }
}

/// Returns a text of random length, most of them short, in which every few bytes say whose it is.
fn marked(mark: &str, chance: &mut Chance) -> String {
    let most = [40, 400, 4_000, 40_000][chance.below(4) as usize];
    let mark = format!("{mark} ");
    mark.repeat(1 + chance.below(most) as usize / mark.len())
}

/// SQLite moves notes between pages as others come and go, and zeroes only the place where each was last.
#[test]
fn no_file_holds_bytes_of_forgotten_notes_of_any_size() {
    for seed in seeds(4) {
        let mut chance = Chance(seed);
        let directory = temp_dir();
        let store = open(directory.path());
        let mut next = 0;
        for round in 0..4 {
            let notes: Vec<Note> = (next..next + 20 + chance.below(80))
                .map(|nth| {
                    let secret = note(nth, &marked(&format!("qx{nth}zk"), &mut chance)).said_by(format!("qx{nth}zk"));
                    secret.thread(format!("qx{nth}zk {round}")).at(nth as i64)
                })
                .collect();
            next += notes.len() as u64;
            for notes in notes.chunks(1 + chance.below(40) as usize) {
                store.remember(notes).expect("written");
            }
            let gone: Vec<NoteId> = (0..next).filter(|_| chance.below(3) > 0).map(id).collect();
            for gone in gone.chunks(1 + chance.below(40) as usize) {
                store.forget(gone, 1).expect("forgotten");
                let there = store.list(&[], Position(0), usize::MAX).expect("a list");
                let there: HashSet<String> = there.into_iter().map(|(_, note)| format!("{}", note.id)).collect();
                let left: Vec<String> =
                    marks(directory.path()).into_iter().filter(|nth| !there.contains(nth)).collect();
                assert!(left.is_empty(), "seed {seed}, round {round}: {left:?}");
            }
        }
    }
}

/// Returns the numbers in the texts, speakers and conversations that any file holds.
fn marks(directory: &Path) -> HashSet<String> {
    let mut found = HashSet::new();
    for bytes in files(directory) {
        for (at, _) in bytes.windows(2).enumerate().filter(|(_, start)| start == b"qx") {
            let digits: Vec<u8> = bytes[at + 2..].iter().copied().take_while(u8::is_ascii_digit).collect();
            if bytes[at + 2 + digits.len()..].starts_with(b"zk") {
                found.insert(String::from_utf8(digits).expect("digits"));
            }
        }
    }
    found
}
