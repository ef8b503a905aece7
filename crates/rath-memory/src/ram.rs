//! Notes that last as long as the process.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;

use crate::docs::DocFacts;
use crate::error::Result;
use crate::index::Index;
use crate::note::{Note, NoteId, NotePath, is_under};
use crate::postings::Doc;
use crate::store::{Hit, Lookup, Position, Query, Removal, Shelf, Size};
use crate::vectors::{Calibration, CodedVector, SignIndex, not_usable};
use crate::view::{Hits, Lifetimes, ViewRequest, search_limit};

pub(crate) struct RamNotes {
    notes: BTreeMap<Doc, Note>,
    ids: HashMap<NoteId, Doc>,
    forgotten: HashMap<NoteId, i64>,
    last: Doc,
    sessions: Numbers,
    paths: Numbers,
    /// The newest note of each thread.
    threads: HashMap<String, Doc>,
    lifetimes: Lifetimes,
    index: Index,
    models: BTreeMap<String, RamVectors>,
}

/// The vectors of a model.
struct RamVectors {
    index: SignIndex,
    coded: HashMap<Doc, CodedVector>,
}

/// Numbers for texts, from 1.
#[derive(Default)]
struct Numbers(HashMap<String, u32>);

impl Numbers {
    fn of(&mut self, text: &str) -> u32 {
        let next = self.0.len() as u32 + 1;
        *self.0.entry(text.to_owned()).or_insert(next)
    }
}

impl RamNotes {
    pub(crate) fn new() -> Self {
        RamNotes {
            notes: BTreeMap::new(),
            ids: HashMap::new(),
            forgotten: HashMap::new(),
            last: 0,
            sessions: Numbers::default(),
            paths: Numbers::default(),
            threads: HashMap::new(),
            lifetimes: Lifetimes::default(),
            index: Index::new(),
            models: BTreeMap::new(),
        }
    }

    fn add(&mut self, note: &Note) {
        self.last += 1;
        let doc = self.last;
        let before = note.thread.as_ref().and_then(|thread| self.threads.insert(thread.clone(), doc)).unwrap_or(0);
        let session = note.source.as_ref().map_or(0, |source| self.sessions.of(&source.session));
        let path = self.paths.of(note.path.as_str());
        let terms = self.index.analyze(note);
        self.index.docs.insert(doc, DocFacts { length: terms.length, before, session, path });
        self.index.add_postings(doc, terms);
        let replaced = note.replaces.as_ref().and_then(|old| self.ids.get(old));
        self.lifetimes.replaced.extend(replaced.map(|old| (*old, doc)));
        self.lifetimes.expiring.extend(note.expires.map(|expires| (expires, doc)));
        self.ids.insert(note.id.clone(), doc);
        self.notes.insert(doc, note.clone());
    }
}

impl Shelf for RamNotes {
    fn remember(&mut self, notes: &[Note]) -> Result<Position> {
        for note in notes {
            if !self.ids.contains_key(&note.id) && !self.forgotten.contains_key(&note.id) {
                self.add(note);
            }
        }
        self.position()
    }

    fn recall(&mut self, query: &Query) -> Result<Vec<Hit>> {
        let under = |path: &str| query.under.iter().any(|under| is_under(path, under));
        let paths = (!query.under.is_empty()).then(|| {
            let mut paths: Vec<u32> =
                self.paths.0.iter().filter(|(path, _)| under(path)).map(|(_, number)| *number).collect();
            paths.sort_unstable();
            paths
        });
        let request = ViewRequest {
            last: query.as_of.map_or(self.last, |position| position.0.min(self.last)),
            session: query.session.as_ref().and_then(|session| self.sessions.0.get(session)).copied().unwrap_or(0),
            own: query.own.iter().filter_map(|id| self.ids.get(id)).copied().collect(),
            paths,
            now: query.now,
        };
        let visible = self.lifetimes.visible(&self.index.docs, &request);
        let limit = search_limit(query);
        let found = self.index.search(&query.text, &visible, limit, |_| Ok::<_, Infallible>(Vec::new()));
        let mut found = found.unwrap_or_default();
        if let Some(vector) = &query.vector
            && let Some(model) = self.models.get(&vector.model)
        {
            let read = |doc| Ok(model.coded.get(&doc).cloned());
            found = model.index.add_similar(&self.index.docs, &visible, vector, found, limit, read)?;
        }
        let mut hits = Hits::new(query.limit);
        for found in found {
            if hits.is_full() {
                break;
            }
            if let Some(note) = self.notes.get(&found.doc) {
                hits.add(note.clone(), found);
            }
        }
        Ok(hits.finish())
    }

    fn read(&mut self, id: &NoteId) -> Result<Lookup> {
        let note = self.ids.get(id).and_then(|doc| self.notes.get(doc));
        Ok(match (note, self.forgotten.get(id)) {
            (Some(note), _) => Lookup::Note(Box::new(note.clone())),
            (None, Some(at)) => Lookup::Forgotten(*at),
            (None, None) => Lookup::Unknown,
        })
    }

    fn list(&mut self, under: &[NotePath], after: Position, limit: usize) -> Result<Vec<(Position, Note)>> {
        let notes = self.notes.range(after.0.saturating_add(1)..);
        let notes = notes.filter(|(_, note)| under.is_empty() || under.iter().any(|under| note.path.is_under(under)));
        Ok(notes.take(limit).map(|(doc, note)| (Position(*doc), note.clone())).collect())
    }

    fn numbers(&mut self, ids: &[NoteId]) -> Result<Vec<Doc>> {
        Ok(ids.iter().filter_map(|id| self.ids.get(id)).copied().collect())
    }

    fn forget(&mut self, docs: &[Doc], removal: Removal, now: i64) -> Result<Vec<NoteId>> {
        let docs = with_versions(docs.iter().copied().collect(), &self.lifetimes.replaced, removal);
        let mut gone = Vec::new();
        for doc in &docs {
            if let Some(note) = self.notes.remove(doc) {
                self.index.remove_recent(*doc, &self.index.analyze(&note));
                let (before, after) = (self.index.docs.get(*doc).before, self.index.docs.remove(*doc));
                if let Some(last) = note.thread.as_ref().filter(|_| after == 0).and_then(|it| self.threads.get_mut(it))
                {
                    *last = before;
                }
                self.ids.remove(&note.id);
                self.forgotten.insert(note.id.clone(), now);
                gone.push(note.id);
            }
        }
        self.lifetimes.remove(&docs);
        for model in self.models.values_mut() {
            docs.iter().for_each(|doc| model.index.remove(*doc));
            model.coded.retain(|doc, _| !docs.contains(doc));
        }
        gone.sort_unstable();
        Ok(gone)
    }

    fn of_session(&mut self, session: &str) -> Result<Vec<Doc>> {
        let is_its = |note: &Note| note.source.as_ref().is_some_and(|source| source.session == session);
        Ok(self.notes.iter().filter(|(_, note)| is_its(note)).map(|(doc, _)| *doc).collect())
    }

    fn said_before(&mut self, micros: i64) -> Result<Vec<Doc>> {
        Ok(self.notes.iter().filter(|(_, note)| note.at < micros).map(|(doc, _)| *doc).collect())
    }

    fn expired(&mut self, now: i64) -> Result<Vec<Doc>> {
        let expired = self.lifetimes.expiring.iter().filter(|(expires, _)| *expires <= now);
        Ok(expired.map(|(_, doc)| *doc).collect())
    }

    fn position(&mut self) -> Result<Position> {
        Ok(Position(self.last))
    }

    fn size(&mut self) -> Result<Size> {
        let bytes = self.notes.values().map(|note| note.text.len() as u64).sum();
        Ok(Size { notes: self.notes.len() as u64, bytes })
    }

    fn oldest_beyond(&mut self, most: Size) -> Result<Vec<Doc>> {
        let mut size = Size::default();
        let beyond = self.notes.iter().rev().filter(|(_, note)| {
            size = Size { notes: size.notes + 1, bytes: size.bytes + note.text.len() as u64 };
            size.exceeds(most)
        });
        Ok(beyond.map(|(doc, _)| *doc).collect())
    }

    fn models(&mut self) -> Result<Vec<String>> {
        Ok(self.models.keys().cloned().collect())
    }

    fn calibrate(&mut self, model: &str, vectors: &[Vec<f32>]) -> Result<()> {
        let index = SignIndex::new(Calibration::measure(vectors)?);
        self.models.entry(model.to_owned()).or_insert(RamVectors { index, coded: HashMap::new() });
        Ok(())
    }

    fn without_vector(&mut self, model: &str, limit: usize) -> Result<Vec<Note>> {
        let model = self.models.get(model);
        let has_none = |doc: &Doc| model.is_none_or(|model| !model.index.contains(*doc));
        let without = self.notes.iter().rev().filter(|(doc, _)| has_none(doc));
        Ok(without.take(limit).map(|(_, note)| note.clone()).collect())
    }

    fn remove_model(&mut self, model: &str) -> Result<()> {
        self.models.remove(model);
        Ok(())
    }

    fn add_vectors(&mut self, model: &str, vectors: &[(NoteId, Vec<f32>)]) -> Result<()> {
        let model = self.models.get_mut(model).ok_or_else(|| not_usable("the model was not measured"))?;
        let coded: Vec<CodedVector> =
            vectors.iter().map(|(_, vector)| model.index.calibration.code(vector)).collect::<Result<_>>()?;
        for ((id, _), vector) in vectors.iter().zip(coded) {
            if let Some(doc) = self.ids.get(id) {
                model.index.insert(*doc, &vector);
                model.coded.insert(*doc, vector);
            }
        }
        Ok(())
    }
}

/// Adds the versions of these notes that are removed with them.
///
/// An older version goes with every one: it must not come back. A newer one stays where only old notes are removed.
pub(crate) fn with_versions(mut docs: HashSet<Doc>, replaced: &[(Doc, Doc)], removal: Removal) -> HashSet<Doc> {
    loop {
        let before = docs.len();
        for (old, new) in replaced {
            if docs.contains(new) || removal == Removal::AllVersions && docs.contains(old) {
                docs.extend([*old, *new]);
            }
        }
        if docs.len() == before {
            return docs;
        }
    }
}
