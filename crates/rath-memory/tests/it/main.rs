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

/// Returns the ids of the notes that are found, best first.
fn recall(store: &NoteStore, query: &Query) -> Vec<String> {
    store.recall(query).expect("an answer").into_iter().map(|hit| hit.note.id.to_string()).collect()
}
