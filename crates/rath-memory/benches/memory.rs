//! The time to find, write and open notes: `cargo xtask bench`.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use rath_bench::{Table, medians, time};
use rath_memory::{Note, NoteStore, Position, Query, UNRELATED_TEXTS};

/// The numbers of notes, and the most milliseconds that a recall should take, by its median.
const SIZES: [(usize, f64); 3] = [(1_000, 0.3), (100_000, 2.0), (1_000_000, 10.0)];
/// The number of notes in a conversation.
const THREAD_NOTES: usize = 20;
/// The number of different words.
const WORDS: u64 = 40_000;
const QUESTIONS: usize = 200;
/// The number of notes that are written at once.
const BATCH: usize = 20_000;

fn main() {
    let wanted: Vec<_> = std::env::args().skip(1).filter(|case| !case.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|one| one == name);
    let mut table = Table::default();
    // In the project directory: the system's temporary directory may be in memory.
    let folder = tempfile::tempdir_in(".").expect("a folder");
    if is_wanted("remember") {
        remember(&mut table, folder.path());
    }
    if is_wanted("recall") {
        recall(&mut table, folder.path());
    }
    if is_wanted("vectors") {
        vectors(&mut table, folder.path());
    }
    drop(folder);
    table.print();
}

fn recall(table: &mut Table, folder: &Path) {
    for (size, bound) in SIZES {
        let directory = folder.join(size.to_string());
        let store = NoteStore::open(&directory).expect("a store");
        let mut words = Words(7);
        for first in (0..size).step_by(BATCH) {
            let notes: Vec<Note> = (first..size.min(first + BATCH)).map(|nth| note(nth, &mut words)).collect();
            store.remember(&notes).expect("durable");
        }
        drop(store);
        let start = Instant::now();
        let store = NoteStore::open(&directory).expect("a store");
        assert_eq!(store.position().expect("a position"), Position(size as u32));
        let mut words = Words(11);
        store.recall(&Query::new(words.question())).expect("an answer");
        let opened = start.elapsed();
        let mut found = 0;
        let mut times: Vec<Duration> = Vec::new();
        for _ in 0..QUESTIONS {
            let query = Query::new(words.question());
            times.push(time(|| found += store.recall(&query).expect("an answer").len()));
        }
        times.sort();
        assert!(found > QUESTIONS, "most questions are answered");
        let name = |what: &str, limit: f64| format!("{what} {size} notes, against {limit} ms");
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        table.at_most(&name("median recall in", bound), milliseconds(times[QUESTIONS / 2]) / bound, 1.0);
        table.informative(
            &name("recall at the 95th percentile in", bound),
            milliseconds(times[QUESTIONS * 95 / 100]) / bound,
        );
        if size == 1_000_000 {
            table.at_most(&name("opening, with the first recall in", 200.0), milliseconds(opened) / 200.0, 1.0);
        }
    }
}

/// Questions whose vectors are compared too, in notes with as many numbers each as a small model gives.
fn vectors(table: &mut Table, folder: &Path) {
    const NOTES: usize = 100_000;
    const DIMENSIONS: u64 = 384;
    let store = NoteStore::open(&folder.join("vectors")).expect("a store");
    let (mut words, mut numbers) = (Words(7), Words(5));
    let mut vector = || (0..DIMENSIONS).map(|_| numbers.below(2_001) as f32 / 1_000.0 - 1.0).collect::<Vec<f32>>();
    store.calibrate("m", &(0..UNRELATED_TEXTS.len()).map(|_| vector()).collect::<Vec<_>>()).expect("measured");
    for first in (0..NOTES).step_by(BATCH) {
        let notes: Vec<Note> = (first..NOTES.min(first + BATCH)).map(|nth| note(nth, &mut words)).collect();
        store.remember(&notes).expect("durable");
        store
            .add_vectors("m", &notes.into_iter().map(|note| (note.id, vector())).collect::<Vec<_>>())
            .expect("durable");
    }
    let questions: Vec<Query> = (0..QUESTIONS).map(|_| Query::new(words.question())).collect();
    let with_vectors: Vec<Query> = questions.iter().map(|question| question.clone().vector("m", vector())).collect();
    let (mut nth, mut other) = (0, 0);
    let (with, without) = medians(
        QUESTIONS,
        || {
            store.recall(&with_vectors[nth % QUESTIONS]).expect("an answer");
            nth += 1;
        },
        || {
            store.recall(&questions[other % QUESTIONS]).expect("an answer");
            other += 1;
        },
    );
    let name = format!("recall with vectors in {NOTES} notes, against one by words");
    table.informative(&name, with.as_secs_f64() / without.as_secs_f64());
}

fn remember(table: &mut Table, folder: &Path) {
    let store = NoteStore::open(&folder.join("remember")).expect("a store");
    let mut file = File::create(folder.join("log")).expect("a file");
    let mut words = Words(3);
    let mut other = Words(3);
    let mut nth = 0;
    let mut measure = |rounds| {
        let mut remember = || {
            nth += 1;
            store.remember(&[note(nth, &mut words)]).expect("durable");
        };
        // As SQLite does, with fsync.
        let append = || {
            file.write_all(note(0, &mut other).text.as_bytes()).expect("written");
            file.sync_all().expect("durable");
        };
        let (durable, bare) = medians(rounds, &mut remember, append);
        (durable.as_secs_f64() / bare.as_secs_f64(), bare)
    };
    // The WAL of SQLite grows at first, and is used again from its beginning later.
    let (first, _) = measure(100);
    let (later, bare) = measure(2_000);
    table.at_most("remembering a note, against an append and fsync", later, 2.0);
    table.informative("remembering one of the first 100 notes, against an append and fsync", first);
    let mut batches = |count: usize, nth: usize| {
        let store = NoteStore::open(&folder.join(format!("batches {count} {nth}"))).expect("a store");
        let notes: Vec<Note> = (0..count * 1_000).map(|nth| note(nth, &mut words)).collect();
        let taken = time(|| {
            notes.chunks(1_000).for_each(|batch| {
                store.remember(batch).expect("durable");
            });
        });
        bare.as_secs_f64() * notes.len() as f64 / taken.as_secs_f64()
    };
    let mut batch: Vec<f64> = (0..9).map(|nth| batches(1, nth)).collect();
    batch.sort_by(f64::total_cmp);
    table.at_least("notes a second in a batch of 1,000, against appends with fsync", batch[4], 10.0);
    table.informative("the same for 10,000 notes, with the index that is written for them", batches(10, 0));
}

/// Makes a note of 8 to 23 words, in a conversation.
fn note(nth: usize, words: &mut Words) -> Note {
    let count = 8 + words.below(16);
    let text: Vec<String> = (0..count).map(|_| words.word()).collect();
    let speaker = if nth.is_multiple_of(2) { "Ann" } else { "Ben" };
    Note::new(text.join(" "))
        .said_by(speaker)
        .thread(format!("talk {}", nth / THREAD_NOTES))
        .at(nth as i64 * 60_000_000)
}

/// Words that are as rare as those of a language: the nth occurs about 1/n as often as the first.
struct Words(u64);

impl Words {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn word(&mut self) -> String {
        let random = self.below(1 << 53) as f64 / (1_u64 << 53) as f64;
        let nth = (WORDS as f64).powf(random) as u64;
        // Consonants and vowels, so that no stemmer takes them for forms of one word.
        let (consonants, vowels) = (b"bcdfghjklmnpqrtvwz", b"aiou");
        let mut left = nth * 7_919 + 40_000;
        let mut word = String::new();
        while left > 0 {
            word.push(consonants[(left % 18) as usize] as char);
            left /= 18;
            word.push(vowels[(left % 4) as usize] as char);
            left /= 4;
        }
        word + "k"
    }

    fn question(&mut self) -> String {
        let words: Vec<String> = (0..5).map(|_| self.word()).collect();
        words.join(" ")
    }
}
