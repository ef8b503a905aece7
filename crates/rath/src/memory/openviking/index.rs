//! The order in which the notes of a service were written, as far as it is known.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rath_memory::{NotePath, Position};

use super::file::NoteFile;

/// The files of notes in the order in which they were written. The name of a file does not tell it, so each is read once.
///
/// Files are added at the end only: the position of one stays the same while a list is read page by page.
#[derive(Default)]
pub(super) struct NoteIndex(Mutex<Vec<IndexEntry>>);

/// A file whose place is known.
#[derive(Clone)]
pub(super) struct IndexEntry {
    pub(super) name: String,
    pub(super) path: NotePath,
}

impl NoteIndex {
    /// Returns those of these files whose place is not known.
    pub(super) fn unknown(&self, names: Vec<String>) -> Vec<String> {
        let entries = self.entries();
        let known: HashSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        names.into_iter().filter(|name| !known.contains(name.as_str())).collect()
    }

    /// Adds files behind those that are known, by the times at which they were written.
    pub(super) fn add<'a>(&self, files: impl Iterator<Item = (&'a String, &'a NoteFile)>) {
        let mut files: Vec<_> = files.collect();
        files.sort_by_key(|(_, file)| (file.written, &file.note.id));
        let mut entries = self.entries();
        // Another list may have added some meanwhile.
        let known: HashSet<String> = entries.iter().map(|entry| entry.name.clone()).collect();
        let new = files.into_iter().filter(|(name, _)| !known.contains(*name));
        entries.extend(new.map(|(name, file)| IndexEntry { name: name.clone(), path: file.note.path.clone() }));
    }

    /// Returns the files after a position that are below one of these paths, or all, each with its position.
    pub(super) fn after(&self, position: Position, under: &[NotePath]) -> Vec<(Position, IndexEntry)> {
        let is_wanted = |path: &NotePath| under.is_empty() || under.iter().any(|under| path.is_under(under));
        let numbered = (1..).map(Position).zip(self.entries().clone());
        numbered.filter(|(nth, entry)| *nth > position && is_wanted(&entry.path)).collect()
    }

    fn entries(&self) -> MutexGuard<'_, Vec<IndexEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
