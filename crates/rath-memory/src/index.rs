//! The index: facts about all notes, and the postings of those that are in no segment of the file yet.

use std::collections::HashMap;

use crate::analysis::{Analyzer, Side};
use crate::docs::{Docs, Visible};
use crate::note::Note;
use crate::postings::{self, Count, Doc, PostingList};
use crate::search::{Match, Scratch, search};

/// The weight of a term in the name of the person who said it, in halves of one in the text.
const SAID_BY_HALVES: u8 = 2;
/// The weight of a term in the date and in the path.
const BESIDE_HALVES: u8 = 1;
/// The most terms of a question that are searched for.
const MAX_QUERY_TERMS: usize = 64;
/// The number of postings from which those of a term in memory are encoded.
const OPEN_POSTINGS: usize = 128;

/// The terms of a note with their counts, and the number of terms in its text.
pub(crate) struct NoteTerms {
    pub(crate) counts: HashMap<String, Count>,
    pub(crate) length: u16,
}

/// The index of a note store.
pub(crate) struct Index {
    analyzer: Analyzer,
    pub(crate) docs: Docs,
    recent: HashMap<String, RecentPostings>,
    scratch: Scratch,
}

/// Postings in memory: bytes, and those that do not fill a block yet.
#[derive(Default)]
struct RecentPostings {
    encoded: Vec<u8>,
    open: Vec<(Doc, Count)>,
}

impl Index {
    pub(crate) fn new() -> Self {
        Index { analyzer: Analyzer::new(), docs: Docs::default(), recent: HashMap::new(), scratch: Scratch::default() }
    }

    /// Cuts a note into terms.
    pub(crate) fn analyze(&self, note: &Note) -> NoteTerms {
        let mut counts: HashMap<String, Count> = HashMap::new();
        let terms = self.analyzer.terms(&note.text, Side::Note);
        let length = u16::try_from(terms.len()).unwrap_or(u16::MAX);
        terms.into_iter().for_each(|term| counts.entry(term).or_default().add_in_text());
        let mut add_beside = |text: &str, halves: u8| {
            let terms = self.analyzer.terms(text, Side::Note);
            terms.into_iter().for_each(|term| counts.entry(term).or_default().add_beside(halves));
        };
        add_beside(note.said_by.as_deref().unwrap_or_default(), SAID_BY_HALVES);
        // Below `session` is the id of a session: a question that has a part of it is not about that session.
        let path = note.path.as_str().split_once('/').filter(|(scope, _)| *scope != "session");
        add_beside(path.map_or("", |(_, path)| path), BESIDE_HALVES);
        add_beside(&date_words(note.at), BESIDE_HALVES);
        NoteTerms { counts, length }
    }

    /// Adds the postings of a note that is in no segment.
    pub(crate) fn add_postings(&mut self, doc: Doc, terms: NoteTerms) {
        for (term, count) in terms.counts {
            let list = self.recent.entry(term).or_default();
            list.open.push((doc, count));
            if list.open.len() == OPEN_POSTINGS {
                postings::encode(&list.open, &mut list.encoded);
                list.open.clear();
            }
        }
    }

    /// Takes a note out of the postings in memory.
    pub(crate) fn remove_recent(&mut self, doc: Doc, terms: &NoteTerms) {
        for term in terms.counts.keys() {
            let Some(list) = self.recent.get_mut(term) else { continue };
            list.open.retain(|(other, _)| *other != doc);
            if let Some(rest) = postings::without(&list.encoded, &[doc]) {
                list.encoded = rest;
            }
            if list.open.is_empty() && list.encoded.is_empty() {
                self.recent.remove(term);
            }
        }
    }

    /// Takes the postings out of memory, by term: they belong in a segment now.
    pub(crate) fn take_recent(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut lists: Vec<_> = self.recent.drain().map(|(term, list)| (term, list.bytes())).collect();
        lists.sort_unstable();
        lists
    }

    /// Returns at most `limit` notes in view, best first. `stored` reads the postings of a term from the segments.
    pub(crate) fn search<E>(
        &mut self,
        query: &str,
        visible: &Visible,
        limit: usize,
        mut stored: impl FnMut(&str) -> Result<Vec<Vec<u8>>, E>,
    ) -> Result<Vec<Match>, E> {
        let mut terms: Vec<String> = Vec::new();
        for term in self.analyzer.terms(query, Side::Query) {
            if !terms.contains(&term) {
                terms.push(term);
            }
        }
        terms.truncate(MAX_QUERY_TERMS);
        let mut lists = Vec::new();
        for term in &terms {
            let mut parts = stored(term)?;
            parts.extend(self.recent.get(term).map(RecentPostings::to_bytes));
            lists.push(parts);
        }
        let lists: Vec<_> = lists.iter().map(|parts| PostingList::parse(parts.iter().map(Vec::as_slice))).collect();
        Ok(search(&self.docs, visible, &lists, limit, &mut self.scratch))
    }
}

impl RecentPostings {
    fn bytes(mut self) -> Vec<u8> {
        postings::encode(&self.open, &mut self.encoded);
        self.encoded
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.encoded.clone();
        postings::encode(&self.open, &mut bytes);
        bytes
    }
}

/// Returns the day of a time as words, so that a question about a month or a year finds what was said then.
fn date_words(micros: i64) -> String {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    if micros == 0 {
        return String::new();
    }
    let days = micros.div_euclid(86_400_000_000) + 719_468;
    // Eras of 400 years that begin in March, so that the day of a leap year is the last.
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 2, 0) } else { (month - 10, 1) };
    format!("{day} {} {}", MONTHS[month as usize], year + era * 400 + next)
}
