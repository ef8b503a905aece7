//! The facts about each note that a search needs, in memory: its length, its neighbours, its session and its path.

use crate::postings::Doc;

/// The facts about one note.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DocFacts {
    /// The number of terms in the text.
    pub(crate) length: u16,
    /// The note before this one in its thread, or 0.
    pub(crate) before: Doc,
    /// The number of the session that it came from, or 0.
    pub(crate) session: u32,
    /// The number of its path; 0 for a note that is gone.
    pub(crate) path: u32,
}

/// The length of the facts of one note as bytes.
pub(crate) const FACTS_BYTES: usize = 2 + 4 + 4 + 4;

impl DocFacts {
    /// Returns the facts as bytes.
    pub(crate) fn to_bytes(self) -> [u8; FACTS_BYTES] {
        let mut bytes = [0; FACTS_BYTES];
        bytes[..2].copy_from_slice(&self.length.to_le_bytes());
        for (at, number) in [(2, self.before), (6, self.session), (10, self.path)] {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads what [`DocFacts::to_bytes`] wrote.
    pub(crate) fn from_bytes(bytes: &[u8; FACTS_BYTES]) -> Self {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let length = u16::from_le_bytes([bytes[0], bytes[1]]);
        DocFacts { length, before: number(2), session: number(6), path: number(10) }
    }
}

/// The facts about all notes. The note with the number n is at n.
#[derive(Default)]
pub(crate) struct Docs {
    facts: Vec<DocFacts>,
    /// The note after each in its thread, or 0.
    after: Vec<Doc>,
    /// The number of notes that are there.
    count: u32,
    /// The number of terms in all of them.
    length: u64,
}

impl Docs {
    /// Returns the number of the newest note, or 0.
    pub(crate) fn last(&self) -> Doc {
        self.facts.len().saturating_sub(1) as Doc
    }

    /// Adds a note. Numbers that were left out are notes that are gone.
    pub(crate) fn insert(&mut self, doc: Doc, mut facts: DocFacts) {
        let at = doc as usize;
        if self.facts.len() <= at {
            self.facts.resize(at + 1, DocFacts::default());
            self.after.resize(at + 1, 0);
        }
        // A damaged file must not lead a walk along a thread in a circle.
        if facts.before >= doc {
            facts.before = 0;
        }
        if facts.path != 0 {
            self.count += 1;
            self.length += u64::from(facts.length);
        }
        if let Some(after) = self.after.get_mut(facts.before as usize).filter(|_| facts.before != 0) {
            *after = doc;
        }
        self.facts[at] = facts;
    }

    /// Takes a note out. Its neighbours in the thread become neighbours of each other; returns the one after it, or 0.
    pub(crate) fn remove(&mut self, doc: Doc) -> Doc {
        let at = doc as usize;
        let Some(facts) = self.facts.get(at).copied().filter(|facts| facts.path != 0) else { return 0 };
        self.count -= 1;
        self.length -= u64::from(facts.length);
        let after = std::mem::take(&mut self.after[at]);
        self.facts[at] = DocFacts::default();
        if let Some(next) = self.facts.get_mut(after as usize).filter(|_| after != 0) {
            next.before = facts.before;
        }
        if let Some(next) = self.after.get_mut(facts.before as usize).filter(|_| facts.before != 0) {
            *next = after;
        }
        after
    }

    /// Returns the facts about a note; those of a note that is gone if there is none with this number.
    pub(crate) fn get(&self, doc: Doc) -> DocFacts {
        self.facts.get(doc as usize).copied().unwrap_or_default()
    }

    /// Returns the notes that are there, in their order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Doc> + '_ {
        self.facts.iter().enumerate().filter(|(_, facts)| facts.path != 0).map(|(doc, _)| doc as Doc)
    }

    /// Returns true if there is a note with such facts.
    pub(crate) fn any(&self, wanted: impl Fn(&DocFacts) -> bool) -> bool {
        self.facts.iter().any(|facts| facts.path != 0 && wanted(facts))
    }

    /// Returns the notes of a session.
    pub(crate) fn of_session(&self, session: u32) -> Vec<Doc> {
        let found = self.facts.iter().enumerate().filter(|(_, facts)| facts.session == session && facts.path != 0);
        found.map(|(doc, _)| doc as Doc).collect()
    }

    /// Returns the notes whose path is not among these. `paths` is sorted.
    pub(crate) fn not_under(&self, paths: &[u32]) -> Vec<Doc> {
        let others = self.facts.iter().enumerate();
        let others = others.filter(|(_, facts)| facts.path != 0 && paths.binary_search(&facts.path).is_err());
        others.map(|(doc, _)| doc as Doc).collect()
    }
}

/// The notes that a search may find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visible {
    /// Notes up to this one are found, except those in `without`.
    pub(crate) last: Doc,
    /// Sorted.
    pub(crate) without: Vec<Doc>,
    /// Notes after `last` that are found too. Sorted.
    pub(crate) also: Vec<Doc>,
}

impl Visible {
    /// Returns true if the search may find this note.
    pub(crate) fn contains(&self, docs: &Docs, doc: Doc) -> bool {
        let is_in_view = match doc <= self.last {
            true => self.without.binary_search(&doc).is_err(),
            false => self.also.binary_search(&doc).is_ok(),
        };
        is_in_view && docs.get(doc).path != 0
    }

    /// Returns the highest number of a note that may be found.
    pub(crate) fn highest(&self) -> Doc {
        self.also.last().map_or(self.last, |last| self.last.max(*last))
    }

    /// Returns the number of notes in view, and their mean length.
    pub(crate) fn statistics(&self, docs: &Docs) -> (f32, f32) {
        let sum = |docs: &mut dyn Iterator<Item = DocFacts>| {
            docs.filter(|facts| facts.path != 0)
                .fold((0_u32, 0_u64), |(count, length), facts| (count + 1, length + u64::from(facts.length)))
        };
        let upto = match self.last >= docs.last() {
            true => (docs.count, docs.length),
            false => sum(&mut docs.facts.iter().take(self.last as usize + 1).copied()),
        };
        let without = sum(&mut self.without.iter().filter(|doc| **doc <= self.last).map(|doc| docs.get(*doc)));
        let also = sum(&mut self.also.iter().map(|doc| docs.get(*doc)));
        let count = upto.0 - without.0 + also.0;
        let length = upto.1 - without.1 + also.1;
        (count as f32, (length as f32 / count.max(1) as f32).max(1.0))
    }

    /// Returns the notes in view before this one in its thread, nearest first.
    pub(crate) fn before<'a>(&'a self, docs: &'a Docs, doc: Doc) -> impl Iterator<Item = Doc> + 'a {
        self.along(docs, doc, move |doc| docs.get(doc).before)
    }

    /// Returns the notes in view after this one in its thread, nearest first.
    pub(crate) fn after<'a>(&'a self, docs: &'a Docs, doc: Doc) -> impl Iterator<Item = Doc> + 'a {
        self.along(docs, doc, move |doc| docs.after.get(doc as usize).copied().unwrap_or(0))
    }

    fn along<'a>(&'a self, docs: &'a Docs, doc: Doc, next: impl Fn(Doc) -> Doc + 'a) -> impl Iterator<Item = Doc> + 'a {
        let step = move |doc: &Doc| Some(next(*doc)).filter(|next| *next != 0);
        std::iter::successors(step(&doc), step).filter(move |doc| self.contains(docs, *doc))
    }
}
