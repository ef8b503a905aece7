//! Laws over random programs of writes, new versions, forgetting and questions.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use rath_memory::{Lookup, Note, NoteId, NoteStore, Position, Query, Source};
use rath_test_support::temp_dir;

use crate::{DIMENSIONS, calibration, id, note, open, random_vector, recall};

/// Few words, so that questions find something.
const WORDS: [&str; 12] =
    ["apple", "river", "deploy", "parse_config", "server", "Ann", "北京", "猫", "tests", "port", "garden", "moon"];
/// The name of the model of the vectors.
const MODEL: &str = "test:words";
const SESSIONS: [&str; 3] = ["s0", "s1", "s2"];

#[derive(Clone, Debug)]
enum Op {
    /// Writes notes of some words in a thread and a session.
    Write(Vec<(Vec<usize>, usize, usize)>),
    /// Writes a new version of a note, from a session or from none.
    Replace(usize, Vec<usize>, usize),
    Forget(usize),
    ForgetSession(usize),
    /// Asks, as a session that has some of its notes, at a position.
    Ask(Vec<usize>, usize, u8, usize),
    /// Gives vectors to some notes.
    AddVectors(u8),
    /// Closes the file, and opens it again.
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let words = || vec(0..WORDS.len(), 1..6);
    prop_oneof![
        4 => vec((words(), 0..4_usize, 0..4_usize), 1..6).prop_map(Op::Write),
        1 => (any::<prop::sample::Index>(), words(), 0..5_usize)
            .prop_map(|(nth, words, session)| Op::Replace(nth.index(1_000), words, session)),
        1 => any::<prop::sample::Index>().prop_map(|nth| Op::Forget(nth.index(1_000))),
        1 => (0..SESSIONS.len()).prop_map(Op::ForgetSession),
        4 => (words(), 0..4_usize, any::<u8>(), 0..1_000_usize).prop_map(|(words, session, own, at)| Op::Ask(words, session, own, at)),
        2 => any::<u8>().prop_map(Op::AddVectors),
        1 => Just(Op::Reopen),
    ]
}

fn text(words: &[usize]) -> String {
    words.iter().map(|nth| WORDS[*nth]).collect::<Vec<_>>().join(" ")
}

/// Returns a vector that is the sum of those of the words.
fn vector(words: &[usize]) -> Vec<f32> {
    let words = words.iter().map(|word| random_vector(*word as u64));
    words.fold(vec![0.0; DIMENSIONS], |sum, word| sum.iter().zip(word).map(|(x, y)| x + y).collect())
}

/// The notes that were written, in their order. None for those that are forgotten.
#[derive(Default)]
struct Written(Vec<Option<Note>>);

impl Written {
    fn write(&mut self, stores: &[&NoteStore], mut notes: Vec<Note>) {
        for note in &mut notes {
            note.id = id(format!("n{}", self.0.len()));
            self.0.push(Some(note.clone()));
        }
        for store in stores {
            store.remember(&notes).expect("written");
        }
    }

    fn forget(&mut self, gone: &[NoteId]) {
        self.0
            .iter_mut()
            .filter(|note| note.as_ref().is_some_and(|note| gone.contains(&note.id)))
            .for_each(|note| *note = None);
    }

    fn query(&self, words: &[usize], session: usize, own: u8, at: usize) -> Query {
        let mut query = Query::new(text(words)).limit(50);
        if !own.is_multiple_of(3) {
            query = query.vector(MODEL, vector(words));
        }
        if own % 3 == 2 {
            // Only the vector can find something.
            query.text = "zzz".to_owned();
        }
        if let Some(session) = SESSIONS.get(session) {
            let own_notes = self.of_session(session).filter(|(nth, _)| own >> (nth % 8) & 1 == 1);
            query = query.session(*session, own_notes.map(|(_, note)| note.id.clone()).collect());
        }
        if at < 700 {
            query.as_of(Position(if self.0.is_empty() { 0 } else { (at % self.0.len()) as u32 + 1 }))
        } else {
            query
        }
    }

    fn of_session<'a>(&'a self, session: &'a str) -> impl Iterator<Item = (usize, &'a Note)> + 'a {
        let notes = self.0.iter().enumerate().filter_map(|(nth, note)| Some((nth, note.as_ref()?)));
        notes.filter(move |(_, note)| note.source.as_ref().is_some_and(|source| source.session == session))
    }

    /// Writes the notes that a question may find, and no others, to a new store.
    fn replayed(&self, query: &Query, vectors: &[(NoteId, Vec<f32>)]) -> NoteStore {
        let store = NoteStore::in_process();
        let notes = self.0.iter().enumerate().filter_map(|(nth, note)| Some((nth, note.as_ref()?)));
        let in_view = notes.filter(|(nth, note)| {
            let is_early = query.as_of.is_none_or(|position| *nth < position.0 as usize);
            let is_of_asker =
                note.source.as_ref().is_some_and(|source| query.session.as_ref() == Some(&source.session));
            query.own.contains(&note.id) || is_early && !is_of_asker
        });
        let in_view: Vec<Note> = in_view.map(|(_, note)| note.clone()).collect();
        store.remember(&in_view).expect("written");
        store.calibrate(MODEL, &calibration()).expect("measured");
        let in_view: Vec<NoteId> = in_view.into_iter().map(|note| note.id).collect();
        let vectors: Vec<_> = vectors.iter().filter(|(id, _)| in_view.contains(id)).cloned().collect();
        store.add_vectors(MODEL, &vectors).expect("added");
        store
    }
}

fn answers(store: &NoteStore, query: &Query) -> Vec<(String, u32, Option<u32>)> {
    let hits = store.recall(query).expect("an answer");
    hits.into_iter().map(|hit| (hit.note.text, hit.score.to_bits(), hit.similarity.map(f32::to_bits))).collect()
}

fn check(ops: Vec<Op>) {
    let directory = temp_dir();
    let ram = NoteStore::in_process();
    // A second handle, as another process has one.
    let (mut file, other) = (open(directory.path()), open(directory.path()));
    for store in [&ram, &file] {
        store.calibrate(MODEL, &calibration()).expect("measured");
    }
    let mut written = Written::default();
    let mut vectors: Vec<(NoteId, Vec<f32>)> = Vec::new();
    for (nth, op) in ops.into_iter().enumerate() {
        match op {
            Op::Write(notes) => {
                let notes = notes.iter().map(|(words, thread, session)| {
                    let mut note = note("n", &text(words)).at(1_700_000_000_000_000);
                    note.thread = (*thread < 3).then(|| format!("t{thread}"));
                    note.source = SESSIONS.get(*session).map(|session| Source::new(*session, vec!["1a".to_owned()]));
                    note
                });
                written.write(&[&ram, if nth % 2 == 0 { &file } else { &other }], notes.collect());
            }
            Op::Replace(nth, words, session) if !written.0.is_empty() => {
                let nth = nth % written.0.len();
                let mut new = note("n", &text(&words));
                new.source = SESSIONS.get(session).map(|session| Source::new(*session, Vec::new()));
                new.replaces = Some(id(format!("n{nth}")));
                written.write(&[&ram, &file], vec![new]);
            }
            Op::Forget(nth) if !written.0.is_empty() => {
                let target = [id(format!("n{}", nth % written.0.len()))];
                let gone = ram.forget(&target, 5).expect("forgotten");
                assert_eq!(file.forget(&target, 5).expect("forgotten"), gone);
                written.forget(&gone);
            }
            Op::ForgetSession(session) => {
                let gone = ram.forget_session(SESSIONS[session], 5).expect("forgotten");
                assert_eq!(other.forget_session(SESSIONS[session], 5).expect("forgotten"), gone);
                written.forget(&gone);
            }
            Op::Ask(words, session, own, at) => {
                let query = written.query(&words, session, own, at);
                let expected = answers(&ram, &query);
                assert_eq!(answers(&file, &query), expected, "{query:?}");
                assert_eq!(answers(&other, &query), expected, "{query:?}");
                let mut all = query.clone();
                (all.as_of, all.session, all.own) = (None, None, Vec::new());
                assert_eq!(answers(&written.replayed(&query, &vectors), &all), expected, "{query:?}");
            }
            Op::AddVectors(mask) => {
                let with_vector = |nth: &usize| mask >> (nth % 8) & 1 == 1;
                let added = (0..written.0.len()).filter(with_vector).map(|nth| {
                    let text = written.0[nth].as_ref().map_or("apple", |note| &note.text);
                    let words: Vec<usize> = (0..WORDS.len()).filter(|word| text.contains(WORDS[*word])).collect();
                    (id(format!("n{nth}")), vector(&words))
                });
                let added: Vec<(NoteId, Vec<f32>)> = added.collect();
                ram.add_vectors(MODEL, &added).expect("added");
                (if mask % 2 == 0 { &file } else { &other }).add_vectors(MODEL, &added).expect("added");
                let missing = |store: &NoteStore| store.without_vector(MODEL, 1_000).expect("a list");
                assert_eq!(missing(&file), missing(&ram));
                vectors.retain(|(id, _)| added.iter().all(|(other, _)| other != id));
                vectors.extend(added);
            }
            Op::Reopen => {
                drop(file);
                file = open(directory.path());
            }
            Op::Replace(..) | Op::Forget(_) => {}
        }
        assert_eq!(other.size().expect("a size"), ram.size().expect("a size"));
        let listed = file.list(&[], Position(0), usize::MAX).expect("a list");
        let listed: HashMap<u32, Note> = listed.into_iter().map(|(position, note)| (position.0, note)).collect();
        for (nth, note) in written.0.iter().enumerate() {
            assert_eq!(listed.get(&(nth as u32 + 1)), note.as_ref());
            let read = other.read(&id(format!("n{nth}"))).expect("read");
            match note {
                Some(note) => assert_eq!(read, Lookup::Note(Box::new(note.clone()))),
                None => assert_eq!(read, Lookup::Forgotten(5)),
            }
        }
    }
}

proptest! {
    #![proptest_config(rath_test_support::property(64))]

    #[test]
    fn a_question_sees_what_a_memory_with_only_the_notes_in_view_sees(ops in vec(op(), 1..30)) {
        check(ops);
    }
}

#[test]
fn among_more_notes_in_view_a_note_has_to_be_more_similar() {
    let directory = temp_dir();
    for store in [NoteStore::in_process(), open(directory.path())] {
        store.calibrate(MODEL, &calibration()).expect("measured");
        let notes: Vec<Note> = (0..5_000).map(|nth| note(nth, "a note")).collect();
        store.remember(&notes).expect("written");
        let [mut question, mut near] = [vec![0.0; DIMENSIONS], vec![0.0; DIMENSIONS]];
        (question[0], near[0], near[1]) = (1.0, 0.52, 0.85);
        let others = (1..5_000).map(|nth| (id(nth), random_vector(nth)));
        let vectors: Vec<_> = [(id(0), near)].into_iter().chain(others).collect();
        store.add_vectors(MODEL, &vectors).expect("added");
        let is_found = |query: &Query| recall(&store, query).contains(&"0".to_owned());
        let query = Query::new("zzz").limit(1_000).vector(MODEL, question);
        assert!(is_found(&query.clone().as_of(Position(1))) && is_found(&query.clone().as_of(Position(50))));
        assert!(!is_found(&query));
    }
}

/// Segments are made of thousands of notes, so this has many of them.
#[test]
fn notes_in_segments_are_found_as_those_in_memory_are() {
    let directory = temp_dir();
    let (ram, file) = (NoteStore::in_process(), open(directory.path()));
    let other = open(directory.path());
    let make = |nth: usize| {
        let words: Vec<usize> = (0..3 + nth % 4).map(|at| (nth * 7 + at * nth / 3 + at) % WORDS.len()).collect();
        let mut note =
            note(format!("n{nth}"), &format!("{} number{}", text(&words), nth % 977)).at(nth as i64 * 1_000_000);
        note.thread = Some(format!("t{}", nth / 15));
        note.source = Some(Source::new(format!("s{}", nth / 300), Vec::new()));
        note
    };
    let mut next = 0;
    for size in [700, 1_500, 10, 2_100, 30, 29_000, 2_048, 900] {
        let notes: Vec<Note> = (next..next + size).map(make).collect();
        next += size;
        for store in [&ram, &file] {
            store.remember(&notes).expect("written");
        }
        let gone: Vec<_> = (0..20).map(|nth| id(format!("n{}", (nth * 7_919 + size) % next))).collect();
        assert_eq!(ram.forget(&gone, 1).expect("forgotten"), other.forget(&gone, 1).expect("forgotten"));
        let reopened = open(directory.path());
        for (nth, question) in
            ["apple river number17", "parseConfig", "猫 moon", "Ann number5 number500", "port"].iter().enumerate()
        {
            let query = Query::new(*question).limit(10).as_of(Position((next - nth * next / 7) as u32));
            let own = vec![id(format!("n{}", nth * 300 + 5)), id(format!("n{}", next - 1))];
            for query in [query.clone(), query.session(format!("s{nth}"), own)] {
                let expected = answers(&ram, &query);
                for store in [&file, &other, &reopened] {
                    assert_eq!(answers(store, &query), expected, "{query:?} after {next} notes");
                }
            }
        }
    }
}
