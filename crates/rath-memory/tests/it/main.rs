//! The promises of a note store, for notes in memory and in a file.

mod finding;
mod forgetting;
mod hostile;
mod kill;
mod views;

use std::path::Path;

use rath_memory::{Note, NoteId, NoteStore, Query};

fn open(directory: &Path) -> NoteStore {
    NoteStore::open(directory).expect("the store opens")
}

fn id(name: impl ToString) -> NoteId {
    name.to_string().parse().expect("an id")
}

fn note(name: impl ToString, text: &str) -> Note {
    Note::with_id(id(name), "memory://user".parse().expect("a path"), text)
}

/// The number of numbers in the vectors of tests.
const DIMENSIONS: usize = 48;

/// Returns a vector that points anywhere, the same for each seed.
fn random_vector(seed: u64) -> Vec<f32> {
    let mut chance = rath_test_support::Chance(seed.wrapping_mul(7_919).wrapping_add(1));
    (0..DIMENSIONS).map(|_| chance.below(2_001) as f32 / 1_000.0 - 1.0).collect()
}

/// Returns the vectors of the unrelated texts.
fn calibration() -> Vec<Vec<f32>> {
    (0..rath_memory::UNRELATED_TEXTS.len() as u64).map(|nth| random_vector(1_000 + nth)).collect()
}

/// Returns the ids of the notes that are found, best first.
fn recall(store: &NoteStore, query: &Query) -> Vec<String> {
    store.recall(query).expect("an answer").into_iter().map(|hit| hit.note.id.to_string()).collect()
}
