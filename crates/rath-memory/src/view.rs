//! The notes that a question may find.

use std::collections::HashSet;

use crate::docs::{Docs, Visible};
use crate::note::Note;
use crate::postings::Doc;
use crate::search::Match;
use crate::store::{Hit, Query};

/// The facts about versions and times of notes, for all notes that have any.
#[derive(Default)]
pub(crate) struct Lifetimes {
    /// A note, and its new version.
    pub(crate) replaced: Vec<(Doc, Doc)>,
    /// A time in microseconds since 1970, and the note that expires then.
    pub(crate) expiring: Vec<(i64, Doc)>,
}

/// The parts of a question that decide which notes are in view, as numbers.
pub(crate) struct ViewRequest {
    pub(crate) last: Doc,
    /// The session that asks, or 0.
    pub(crate) session: u32,
    pub(crate) own: HashSet<Doc>,
    /// The paths to search below, sorted; None means all.
    pub(crate) paths: Option<Vec<u32>>,
    pub(crate) now: i64,
}

impl Lifetimes {
    /// Returns the notes that are in view.
    pub(crate) fn visible(&self, docs: &Docs, request: &ViewRequest) -> Visible {
        let mut without: Vec<Doc> = match request.session {
            0 => Vec::new(),
            session => docs.of_session(session).into_iter().filter(|doc| !request.own.contains(doc)).collect(),
        };
        without.sort_unstable();
        let mut also: Vec<Doc> = request.own.iter().filter(|doc| **doc > request.last).copied().collect();
        also.sort_unstable();
        let mut visible = Visible { last: request.last, without, also };
        // A version that is known replaces the one before it, also once its time is over and where another path is asked for.
        let hidden: Vec<Doc> =
            self.replaced.iter().filter(|(_, new)| visible.contains(docs, *new)).map(|(old, _)| *old).collect();
        let expired = self.expiring.iter().filter(|(expires, _)| *expires <= request.now);
        let hidden = hidden.into_iter().chain(expired.map(|(_, doc)| *doc));
        visible.without.extend(hidden.chain(request.paths.iter().flat_map(|paths| docs.not_under(paths))));
        visible.without.sort_unstable();
        visible.without.dedup();
        visible.also.retain(|doc| visible.without.binary_search(doc).is_err());
        visible
    }

    /// Forgets about notes that are gone.
    pub(crate) fn remove(&mut self, gone: &HashSet<Doc>) {
        self.replaced.retain(|(old, new)| !gone.contains(old) && !gone.contains(new));
        self.expiring.retain(|(_, doc)| !gone.contains(doc));
    }
}

/// The least number of notes that are found by words if their similarities count too.
const MIN_BEFORE_SIMILARITY: usize = 128;

/// Returns the most notes to search for, so that enough are left without those whose text is the same.
pub(crate) fn search_limit(query: &Query) -> usize {
    let limit = query.limit.saturating_mul(2).saturating_add(16);
    if query.vector.is_some() { limit.max(MIN_BEFORE_SIMILARITY) } else { limit }
}

/// Collects what was found, best first: each text once.
pub(crate) struct Hits {
    limit: usize,
    list: Vec<Hit>,
}

impl Hits {
    pub(crate) fn new(limit: usize) -> Self {
        Hits { limit, list: Vec::new() }
    }

    pub(crate) fn add(&mut self, note: Note, found: Match) {
        if let Some(known) = self.list.iter_mut().find(|hit| hit.note.text == note.text) {
            known.duplicates.push(note.id);
        } else {
            let Match { score, has_words, similarity, .. } = found;
            self.list.push(Hit { note, score, has_words, similarity, duplicates: Vec::new() });
        }
    }

    /// Returns true if no more notes are wanted.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= self.limit
    }

    pub(crate) fn finish(self) -> Vec<Hit> {
        self.list
    }
}
