//! Finding the notes that fit a question: BM25 over a note, its neighbours and the passage around it.
//!
//! 1. Candidates: the best notes by their own text, their author, date and path. Terms are taken rarest first. Once a note that
//!    has only the terms that are left cannot be among the candidates, those terms are looked up for the candidates alone.
//! 2. In context: the notes next to a candidate in its thread become candidates too, since an answer often does not repeat the
//!    words of its question. Each is scored with the terms of the two notes before and after it, which count less than its own.
//! 3. The passage: of the best, the notes around each are scored as one text, and that score is added in part: a note in a
//!    conversation about the question goes before one that has the word by chance.
//!
//! A note is found if it and its neighbours have a tenth of the question, by the weight of its terms, or if it has one term that hardly
//! any other note has. So one common word of a long question finds nothing.
//!
//! The terms beside a text - its author, date and path - say which of several notes is meant. They make no hit alone, unless the notes
//! in view have no more of the question than that: a note that has terms only there is found if the notes around it have others in
//! their texts.
//!
//! All statistics are those of the notes in view, so a search that must not see some notes gives the result, to the last bit, that
//! it would give if they did not exist.

use std::cmp::Ordering;
use std::collections::HashSet;

use crate::docs::{Docs, Visible};
use crate::error::Result;
use crate::postings::{Count, Doc, PostingList};

/// The saturation of BM25: the more often a term occurs, the less each occurrence adds.
const K1: f32 = 1.2;
/// The part of a text's length that counts against it. Notes are short, and a longer one says more rather than the same at length.
const B: f32 = 0.4;
/// The weight of terms in the note next to a note, and in the one after that.
const NEIGHBOUR_WEIGHTS: [f32; 2] = [0.4, 0.2];
/// The number of notes on each side that form a passage with a note.
const PASSAGE_REACH: usize = 8;
/// The part of a passage's score that a note in it gets.
const PASSAGE_WEIGHT: f32 = 0.3;
/// The part of a passage's length that counts against it.
const PASSAGE_B: f32 = 0.5;
/// The least part of a question, by the weight of its terms, that a note and its neighbours must have. A rare term in the note itself
/// is enough: of a long question, one word can be what it is about.
const MIN_COVERAGE: f32 = 0.1;
/// The weight from which a term is rare, as a part of that of a term in one note: 4 of 100 notes have it, or 13 of 10,000.
const RARE_TERM_PART: f32 = 0.75;
/// The part of a question's terms, one of this many, that must be beside texts if no text has any of them.
const BESIDE_TERMS_PART: usize = 3;
/// The least number of notes that are looked at in context, and that are looked at with their passage.
const MIN_CANDIDATES: usize = 128;
const MIN_PASSAGES: usize = 64;
/// The weight of a similarity. Words count more: a name or a number in them is the one that was asked for, or another.
const SIMILARITY_WEIGHT: f32 = 0.5;

/// A note that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Match {
    pub(crate) doc: Doc,
    pub(crate) score: f32,
    /// The note itself has a term of the question, in its text if the question has any that is not beside texts.
    pub(crate) has_words: bool,
    /// The similarity of the note's vector to that of the question, if it was found by it.
    pub(crate) similarity: Option<f32>,
}

/// Memory that searches use one after the other, so that none has to ask for it.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The score of each note so far. All are 0 between searches.
    scores: Vec<f32>,
    touched: Vec<Doc>,
    /// The notes that have a term in their text so far. None has between searches.
    has_text: Vec<bool>,
    /// A place for each note. All are 0 between searches.
    slots: Vec<u32>,
}

/// Returns at most `limit` notes in view, best first. Each term has one list, empty if no note has the term.
pub(crate) fn search(
    docs: &Docs,
    visible: &Visible,
    lists: &[PostingList<'_>],
    limit: usize,
    scratch: &mut Scratch,
) -> Vec<Match> {
    let (count, mean_length) = visible.statistics(docs);
    let mut terms: Vec<Term<'_, '_>> = lists.iter().map(|list| Term::new(list, visible, count)).collect();
    let known = terms.iter().filter(|term| term.is_known).count();
    let is_about_beside =
        known * BESIDE_TERMS_PART >= terms.len() && terms.iter().all(|term| term.is_beside || !term.is_known);
    if is_about_beside {
        // Around a name or a date, a question has words such as `happen`, which say little if no note has them.
        terms.retain(|term| term.is_known);
        terms.iter_mut().for_each(|term| term.asked = term.beside_weight);
    }
    let names_all = is_about_beside && known == lists.len();
    let search = Search { docs, visible, terms, mean_length, is_about_beside, names_all };
    let candidates = search.candidates(limit.max(MIN_CANDIDATES), scratch);
    scratch.slots.resize(docs.last() as usize + 1, 0);
    let found = search.in_context(&candidates, &mut scratch.slots);
    // Apart: those that only their passage can make a match must not take the places of matches.
    let (mut found, mut others): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| found.is_covered);
    for found in [&mut found, &mut others] {
        found.sort_unstable_by(|one, other| one.found.order(&other.found));
        found.truncate(limit.max(MIN_PASSAGES));
    }
    found.append(&mut others);
    search.add_passages(&mut found, &mut scratch.slots);
    let mut found: Vec<Match> = found.into_iter().filter(|found| found.is_covered).map(|found| found.found).collect();
    // The part of the question that a note has: questions differ in their terms, and scores do not.
    let asked = search.terms.iter().map(|term| term.weight).sum::<f32>() * (K1 + 1.0);
    found.iter_mut().for_each(|found| found.score /= asked);
    sort(&mut found);
    found.truncate(limit);
    found
}

/// Adds notes that are similar to the question, and the similarity of those that were found by words: how much of the question a
/// note has in words, and half of how alike the two are.
///
/// Joining the two lists by places (reciprocal rank fusion) was tried, and puts notes that are alike by chance before those that
/// have the name or the number that was asked for.
pub(crate) fn add_similar(
    mut found: Vec<Match>,
    mut similarity: impl FnMut(Doc) -> Result<Option<f32>>,
    similar: &[(Doc, f32)],
    limit: usize,
) -> Result<Vec<Match>> {
    for found in &mut found {
        found.similarity = similarity(found.doc)?.filter(|similarity| *similarity > 0.0);
    }
    let known: HashSet<Doc> = found.iter().map(|found| found.doc).collect();
    let new = similar.iter().filter(|(doc, _)| !known.contains(doc));
    found.extend(new.map(|(doc, alike)| Match { doc: *doc, score: 0.0, has_words: false, similarity: Some(*alike) }));
    for found in &mut found {
        found.score += SIMILARITY_WEIGHT * found.similarity.unwrap_or(0.0);
    }
    sort(&mut found);
    found.truncate(limit);
    Ok(found)
}

/// Sorts the best first; of two with one score, the newer first.
fn sort(found: &mut [Match]) {
    found.sort_unstable_by(Match::order);
}

impl Match {
    fn order(&self, other: &Match) -> Ordering {
        other.score.total_cmp(&self.score).then(other.doc.cmp(&self.doc))
    }
}

/// A note with terms of the question in its context.
struct InContext {
    found: Match,
    /// Its text and those next to it have enough of the question. Otherwise its passage has to have it.
    is_covered: bool,
}

/// One term of a question.
struct Term<'a, 'b> {
    list: &'a PostingList<'b>,
    /// The weight of the term: the rarer, the more it says.
    weight: f32,
    /// The weight of the term beside a text: names and dates are beside many texts that do not have them. A candidate is found by
    /// it; which of several is best is said by the other, since they differ in whom and when they are about.
    beside_weight: f32,
    /// The part that the term has in the weight of the question.
    asked: f32,
    /// A note in view has the term.
    is_known: bool,
    /// A note in view has the term beside its text only.
    is_beside: bool,
    /// Hardly any note in view has the term in its text.
    is_rare: bool,
    /// The most that the term adds to the score of a note.
    most: f32,
}

impl<'a, 'b> Term<'a, 'b> {
    fn new(list: &'a PostingList<'b>, visible: &Visible, count: f32) -> Self {
        let (mut with_term, mut in_text) = list.count_notes(visible.last);
        let without: Vec<Doc> = visible.without.iter().take_while(|doc| **doc <= visible.last).copied().collect();
        // A damaged file may have counted others.
        list.find_each(&without, |_, count| {
            with_term = with_term.saturating_sub(1);
            in_text = in_text.saturating_sub(u32::from(count.in_text() > 0));
        });
        list.find_each(&visible.also, |_, count| {
            with_term += 1;
            in_text += u32::from(count.in_text() > 0);
        });
        let weight = |notes: u32| (1.0 + (count - notes as f32 + 0.5).max(0.0) / (notes as f32 + 0.5)).ln();
        // No note can have more of a term that is in no text.
        let asked = if in_text == 0 { weight(with_term) } else { weight(in_text) };
        let mut term = Term {
            list,
            weight: weight(in_text),
            beside_weight: weight(with_term),
            asked,
            is_known: with_term > 0,
            is_beside: with_term > in_text,
            // Of one or two notes, more than half would have it.
            is_rare: in_text > 0 && in_text as f32 <= count / 2.0 && weight(in_text) >= RARE_TERM_PART * weight(1),
            most: 0.0,
        };
        let highest = list.highest();
        term.most = term.candidate_score(f32::from(highest.in_text()) / (1.0 - B), highest);
        term
    }

    /// Returns the score as a candidate of a note with these occurrences in its text, and with this count beside it.
    fn candidate_score(&self, in_text: f32, count: Count) -> f32 {
        // A term that nearly every one of very many notes has weighs nothing.
        let part = self.beside_weight / self.weight.max(f32::MIN_POSITIVE);
        self.weight * saturate(in_text + weight_beside(count) * part)
    }
}

fn saturate(occurrences: f32) -> f32 {
    occurrences * (K1 + 1.0) / (K1 + occurrences)
}

/// Returns the weight of the occurrences beside the text, as a number of those in the text.
fn weight_beside(count: Count) -> f32 {
    f32::from(count.halves_beside()) / 2.0
}

struct Search<'a, 'b> {
    docs: &'a Docs,
    visible: &'a Visible,
    terms: Vec<Term<'a, 'b>>,
    mean_length: f32,
    /// The notes in view have no more of the question than what is beside texts.
    is_about_beside: bool,
    /// All terms of the question are beside texts.
    names_all: bool,
}

impl Search<'_, '_> {
    /// Returns the best notes by what they say themselves, in the order of their numbers.
    ///
    /// A note that has terms only beside its text is none, unless the question is about that: of a speaker with many notes, they
    /// would take the places of all that have a word. It is reached by its neighbours.
    fn candidates(&self, limit: usize, scratch: &mut Scratch) -> Vec<Doc> {
        let Scratch { scores, touched, has_text, .. } = scratch;
        let highest = self.visible.highest();
        has_text.resize(has_text.len().max(highest as usize + 1), false);
        scores.resize(scores.len().max(highest as usize + 1), 0.0);
        let mut rarest_first: Vec<&Term<'_, '_>> = self.terms.iter().filter(|term| !term.list.is_empty()).collect();
        rarest_first.sort_by(|one, other| other.weight.total_cmp(&one.weight));
        let mut left: f32 = rarest_first.iter().map(|term| term.most).sum();
        let mut closed: Option<Vec<Doc>> = None;
        for term in rarest_first {
            if closed.is_none() && touched.len() >= limit {
                let bar = self.nth_best(touched, scores, has_text, limit);
                if bar > left {
                    let mut hopeful: Vec<Doc> =
                        touched.iter().filter(|doc| scores[**doc as usize] + left >= bar).copied().collect();
                    hopeful.sort_unstable();
                    closed = Some(hopeful);
                }
            }
            match &closed {
                Some(hopeful) => term.list.find_each(hopeful, |at, count| {
                    scores[hopeful[at] as usize] += self.own_score(term, hopeful[at], count);
                    has_text[hopeful[at] as usize] |= count.in_text() > 0;
                }),
                None => term.list.each_up_to(highest, |doc, count| {
                    let score = &mut scores[doc as usize];
                    if *score == 0.0 {
                        touched.push(doc);
                    }
                    *score += self.own_score(term, doc, count);
                    has_text[doc as usize] |= count.in_text() > 0;
                }),
            }
            left -= term.most;
        }
        let mut best: Vec<Match> = closed
            .as_ref()
            .unwrap_or(touched)
            .iter()
            .filter(|doc| self.is_about_beside || has_text[**doc as usize])
            .map(|doc| Match { doc: *doc, score: scores[*doc as usize], has_words: true, similarity: None })
            .collect();
        for doc in touched.drain(..) {
            (scores[doc as usize], has_text[doc as usize]) = (0.0, false);
        }
        best.retain(|found| self.visible.contains(self.docs, found.doc));
        if best.len() > limit {
            best.select_nth_unstable_by(limit, |one, other| {
                other.score.total_cmp(&one.score).then(other.doc.cmp(&one.doc))
            });
            best.truncate(limit);
        }
        let mut best: Vec<Doc> = best.into_iter().map(|found| found.doc).collect();
        best.sort_unstable();
        best
    }

    /// Returns the score of the `limit`th best note in view that may be a candidate, or 0.
    fn nth_best(&self, touched: &[Doc], scores: &[f32], has_text: &[bool], limit: usize) -> f32 {
        let wanted = touched.iter().filter(|doc| self.is_about_beside || has_text[**doc as usize]);
        let in_view = wanted.filter(|doc| self.visible.contains(self.docs, **doc));
        let mut in_view: Vec<f32> = in_view.map(|doc| scores[*doc as usize]).collect();
        if in_view.len() < limit {
            return 0.0;
        }
        *in_view.select_nth_unstable_by(limit - 1, |one, other| other.total_cmp(one)).1
    }

    fn own_score(&self, term: &Term<'_, '_>, doc: Doc, count: Count) -> f32 {
        term.candidate_score(f32::from(count.in_text()) / self.length_norm(doc), count)
    }

    /// Returns what an occurrence in a text of this length is divided by.
    fn length_norm(&self, doc: Doc) -> f32 {
        1.0 - B + B * f32::from(self.docs.get(doc).length) / self.mean_length
    }

    /// Returns the least weight of the terms that a note must have in its context.
    fn least_covered(&self) -> f32 {
        self.terms.iter().map(|term| term.asked).sum::<f32>() * MIN_COVERAGE
    }

    /// Scores the candidates and the notes next to them, each with its neighbours.
    fn in_context(&self, candidates: &[Doc], slots: &mut [u32]) -> Vec<InContext> {
        const REACH: usize = NEIGHBOUR_WEIGHTS.len();
        let mut scored = DocSet::new(slots);
        for doc in candidates {
            scored.insert(*doc);
            self.around::<REACH>(*doc).iter().for_each(|(_, doc)| scored.insert(doc));
        }
        let scored = scored.finish();
        let around: Vec<Around<REACH>> = scored.iter().map(|doc| self.around(*doc)).collect();
        let mut read = DocSet::new(slots);
        scored.iter().for_each(|doc| read.insert(*doc));
        around.iter().flat_map(Around::iter).for_each(|(_, doc)| read.insert(doc));
        let counts = self.counts(read.finish(), slots);
        let least = self.least_covered();
        let mut found = Vec::new();
        for (doc, around) in scored.into_iter().zip(&around) {
            let (mut score, mut covered, mut has_words, mut has_text) = (0.0, 0.0, false, self.is_about_beside);
            let mut has_rare = false;
            for (at, term) in self.terms.iter().enumerate() {
                let own = counts.in_text(doc, at);
                let beside = weight_beside(counts.count(doc, at));
                let in_text = around
                    .iter()
                    .fold(own, |sum, (distance, doc)| sum + NEIGHBOUR_WEIGHTS[distance] * counts.in_text(doc, at));
                has_rare |= own > 0.0 && term.is_rare;
                has_words |= own > 0.0 || self.names_all && beside > 0.0;
                has_text |= in_text > 0.0;
                if in_text + beside > 0.0 {
                    score += term.weight * saturate(in_text + beside);
                    covered += if in_text > 0.0 { term.weight } else { term.beside_weight };
                }
            }
            if score > 0.0 && (covered >= least || has_rare || !has_text) {
                let found_here = Match { doc, score, has_words, similarity: None };
                found.push(InContext { found: found_here, is_covered: has_text });
            }
        }
        counts.clear();
        found
    }

    /// Adds to each note a part of the score of the passage around it.
    fn add_passages(&self, found: &mut [InContext], slots: &mut [u32]) {
        let around: Vec<Around<PASSAGE_REACH>> = found.iter().map(|found| self.around(found.found.doc)).collect();
        let mut read = DocSet::new(slots);
        found.iter().for_each(|found| read.insert(found.found.doc));
        around.iter().flat_map(Around::iter).for_each(|(_, doc)| read.insert(doc));
        let counts = self.counts(read.finish(), slots);
        let mean_length = self.mean_length * (2 * PASSAGE_REACH + 1) as f32;
        let least = self.least_covered();
        for (InContext { found, is_covered }, around) in found.iter_mut().zip(&around) {
            // A note without a thread is its own passage, and has its score already.
            if around.iter().next().is_none() {
                continue;
            }
            let passage = || around.iter().map(|(_, doc)| doc).chain([found.doc]);
            let length: f32 = passage().map(|doc| f32::from(self.docs.get(doc).length)).sum();
            let norm = 1.0 - PASSAGE_B + PASSAGE_B * length / mean_length;
            let (mut score, mut covered) = (0.0, 0.0);
            for (at, term) in self.terms.iter().enumerate() {
                let occurrences: u32 = passage().map(|doc| u32::from(counts.count(doc, at).in_text())).sum();
                score += term.weight * saturate(occurrences as f32 / norm);
                covered += if occurrences > 0 { term.weight } else { 0.0 };
            }
            found.score += PASSAGE_WEIGHT * score;
            *is_covered |= covered > 0.0 && covered >= least;
        }
        counts.clear();
    }

    fn around<const REACH: usize>(&self, doc: Doc) -> Around<REACH> {
        let mut around = Around { before: [0; REACH], after: [0; REACH] };
        let before = self.visible.before(self.docs, doc);
        around.before.iter_mut().zip(before).for_each(|(place, doc)| *place = doc);
        let after = self.visible.after(self.docs, doc);
        around.after.iter_mut().zip(after).for_each(|(place, doc)| *place = doc);
        around
    }

    /// Reads how often each term occurs in these notes, which are sorted.
    fn counts<'s>(&self, docs: Vec<Doc>, slots: &'s mut [u32]) -> Counts<'s> {
        let terms = self.terms.len();
        let mut counts = vec![Count::default(); docs.len() * terms];
        for (at, term) in self.terms.iter().enumerate() {
            term.list.find_each(&docs, |doc, count| counts[doc * terms + at] = count);
        }
        let per_length = docs.iter().map(|doc| 1.0 / self.length_norm(*doc)).collect();
        docs.iter().zip(0..).for_each(|(doc, slot)| slots[*doc as usize] = slot);
        Counts { slots, docs, terms, counts, per_length }
    }
}

/// The notes around one in its thread, nearest first on each side; 0 for none.
struct Around<const REACH: usize> {
    before: [Doc; REACH],
    after: [Doc; REACH],
}

impl<const REACH: usize> Around<REACH> {
    /// Returns each note and its distance, from 0.
    fn iter(&self) -> impl Iterator<Item = (usize, Doc)> + '_ {
        let before = self.before.iter().copied().enumerate().take_while(|(_, doc)| *doc != 0);
        before.chain(self.after.iter().copied().enumerate().take_while(|(_, doc)| *doc != 0))
    }
}

/// A set of notes. A slot is 0 for every note outside it.
struct DocSet<'a> {
    slots: &'a mut [u32],
    docs: Vec<Doc>,
}

impl<'a> DocSet<'a> {
    fn new(slots: &'a mut [u32]) -> Self {
        DocSet { slots, docs: Vec::new() }
    }

    fn insert(&mut self, doc: Doc) {
        let slot = &mut self.slots[doc as usize];
        if *slot == 0 {
            *slot = 1;
            self.docs.push(doc);
        }
    }

    /// Returns the notes in their order.
    fn finish(mut self) -> Vec<Doc> {
        self.docs.iter().for_each(|doc| self.slots[*doc as usize] = 0);
        self.docs.sort_unstable();
        self.docs
    }
}

/// The counts of all terms in some notes.
struct Counts<'a> {
    /// The place of each of the notes in `docs`.
    slots: &'a mut [u32],
    docs: Vec<Doc>,
    terms: usize,
    counts: Vec<Count>,
    /// The weight of one occurrence in the text of each note, by its length.
    per_length: Vec<f32>,
}

impl Counts<'_> {
    fn count(&self, doc: Doc, term: usize) -> Count {
        self.counts[self.slots[doc as usize] as usize * self.terms + term]
    }

    /// Returns the occurrences in a text, by the length of the text.
    fn in_text(&self, doc: Doc, term: usize) -> f32 {
        let slot = self.slots[doc as usize] as usize;
        f32::from(self.counts[slot * self.terms + term].in_text()) * self.per_length[slot]
    }

    /// Leaves all slots at 0.
    fn clear(self) {
        self.docs.iter().for_each(|doc| self.slots[*doc as usize] = 0);
    }
}
