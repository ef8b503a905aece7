//! The handle to a collection of notes.

#[cfg(feature = "sqlite")]
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::note::{Note, NoteId, NotePath};
use crate::postings::Doc;
use crate::ram::RamNotes;
#[cfg(feature = "sqlite")]
use crate::sqlite::SqliteNotes;

/// A collection of notes. All calls block.
///
/// ```
/// use rath_memory::{Note, NoteStore, Query};
///
/// let notes = NoteStore::in_process();
/// notes.remember(&[Note::new("The user works mostly in Python."), Note::new("Deploy on Mondays only.")])?;
/// let hits = notes.recall(&Query::new("when do we deploy?"))?;
/// assert_eq!(hits[0].note.text, "Deploy on Mondays only.");
/// assert!(notes.recall(&Query::new("favourite food"))?.is_empty());
/// # Ok::<(), rath_memory::NoteError>(())
/// ```
pub struct NoteStore(Mutex<Box<dyn Shelf>>);

/// A moment in the life of a store: all notes that were written up to then.
///
/// Returned by [`NoteStore::remember`], for [`Query::as_of`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u32);

/// The number of notes, and of the bytes of their texts.
///
/// Returned by [`NoteStore::size`], and passed to [`NoteStore::forget_beyond`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// The number of notes.
    pub notes: u64,
    /// The number of bytes of their texts.
    pub bytes: u64,
}

impl Size {
    /// A size that nothing exceeds.
    pub const UNLIMITED: Size = Size { notes: u64::MAX, bytes: u64::MAX };

    /// Returns true if there are more notes, or more bytes, than `most`.
    pub fn exceeds(self, most: Size) -> bool {
        self.notes > most.notes || self.bytes > most.bytes
    }
}

/// A question to a [`NoteStore`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Query {
    /// The question.
    pub text: String,
    /// The most notes to find.
    pub limit: usize,
    /// The paths to search below; none means all.
    pub under: Vec<NotePath>,
    /// The position up to which notes are found.
    pub as_of: Option<Position>,
    /// The session that asks. Of its own notes, those in `own` are found.
    pub session: Option<String>,
    /// Notes of the session that are found, also those after `as_of`.
    pub own: Vec<NoteId>,
    /// The present time, in microseconds since 1970, by which notes have expired or not.
    pub now: i64,
    /// The question as a vector. Notes whose vectors are similar are found too.
    pub vector: Option<QuestionVector>,
}

/// A question as a vector of a model.
///
/// Part of [`Query`].
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionVector {
    /// The name of the model, as [`NoteStore::calibrate`] got it.
    pub model: String,
    /// The vector.
    pub numbers: Vec<f32>,
}

impl Query {
    /// Makes a question that finds at most 8 notes.
    pub fn new(text: impl Into<String>) -> Self {
        Query {
            text: text.into(),
            limit: 8,
            under: Vec::new(),
            as_of: None,
            session: None,
            own: Vec::new(),
            now: 0,
            vector: None,
        }
    }

    /// Sets the most notes to find.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Searches below this path; several paths add up.
    pub fn under(mut self, path: NotePath) -> Self {
        self.under.push(path);
        self
    }

    /// Finds only notes that were written up to a position.
    pub fn as_of(mut self, position: Position) -> Self {
        self.as_of = Some(position);
        self
    }

    /// Names the session that asks, and those of its notes that are found.
    pub fn session(mut self, session: impl Into<String>, own: Vec<NoteId>) -> Self {
        self.session = Some(session.into());
        self.own = own;
        self
    }

    /// Sets the present time, in microseconds since 1970.
    pub fn now(mut self, micros: i64) -> Self {
        self.now = micros;
        self
    }

    /// Sets the question as a vector of a model.
    pub fn vector(mut self, model: impl Into<String>, numbers: Vec<f32>) -> Self {
        self.vector = Some(QuestionVector { model: model.into(), numbers });
        self
    }
}

impl From<&str> for Query {
    fn from(text: &str) -> Self {
        Query::new(text)
    }
}

impl From<String> for Query {
    fn from(text: String) -> Self {
        Query::new(text)
    }
}

/// A note that was found.
///
/// Returned by [`NoteStore::recall`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Hit {
    /// The note.
    pub note: Note,
    /// The higher, the better it fits: the part of the question that the note and its neighbours have, and half of its similarity.
    pub score: f32,
    /// The note itself has a word of the question. Otherwise it was found by the notes next to it, by its vector, or by its
    /// speaker, its date or its path, with other words in the question that no note has.
    pub has_words: bool,
    /// The similarity of the note's vector to the question's, from 0 to 1, if it was found by that.
    pub similarity: Option<f32>,
    /// Other notes with the same text that were found with it.
    pub duplicates: Vec<NoteId>,
}

impl Hit {
    /// Makes a hit that a service found by the similarity of vectors, from 0 to 1.
    pub fn similar(note: Note, similarity: f32) -> Self {
        Hit { note, score: similarity, has_words: false, similarity: Some(similarity), duplicates: Vec::new() }
    }
}

/// The state of a note.
///
/// Returned by [`NoteStore::read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The note is there.
    Note(Box<Note>),
    /// The note was forgotten, at this time in microseconds since 1970.
    Forgotten(i64),
    /// There never was such a note.
    Unknown,
}

/// The extent of a removal of notes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// The notes and all their versions. The files hold nothing of them afterwards.
    AllVersions,
    /// The notes and the versions before them. The files hold nothing of them afterwards.
    OlderVersions,
    /// The notes and the versions before them. Bytes of them may stay in the files until more are removed.
    ByLimit,
}

/// A place that notes are stored in.
pub(crate) trait Shelf: Send {
    fn remember(&mut self, notes: &[Note]) -> Result<Position>;
    fn recall(&mut self, query: &Query) -> Result<Vec<Hit>>;
    fn read(&mut self, id: &NoteId) -> Result<Lookup>;
    fn list(&mut self, under: &[NotePath], after: Position, limit: usize) -> Result<Vec<(Position, Note)>>;
    /// Returns the numbers of those of these notes that are there. A note of a damaged file may have a number and no id.
    fn numbers(&mut self, ids: &[NoteId]) -> Result<Vec<Doc>>;
    fn forget(&mut self, docs: &[Doc], removal: Removal, now: i64) -> Result<Vec<NoteId>>;
    fn of_session(&mut self, session: &str) -> Result<Vec<Doc>>;
    fn said_before(&mut self, micros: i64) -> Result<Vec<Doc>>;
    fn expired(&mut self, now: i64) -> Result<Vec<Doc>>;
    fn position(&mut self) -> Result<Position>;
    fn size(&mut self) -> Result<Size>;
    /// Returns the notes that are left once the newest of at most this size are taken.
    fn oldest_beyond(&mut self, most: Size) -> Result<Vec<Doc>>;
    fn models(&mut self) -> Result<Vec<String>>;
    fn calibrate(&mut self, model: &str, vectors: &[Vec<f32>]) -> Result<()>;
    fn without_vector(&mut self, model: &str, limit: usize) -> Result<Vec<Note>>;
    fn add_vectors(&mut self, model: &str, vectors: &[(NoteId, Vec<f32>)]) -> Result<()>;
    fn remove_model(&mut self, model: &str) -> Result<()>;
}

impl NoteStore {
    /// Makes a store that lasts as long as the process.
    pub fn in_process() -> Self {
        NoteStore(Mutex::new(Box::new(RamNotes::new())))
    }

    /// Opens the store in a directory, and creates both if they are missing.
    #[cfg(feature = "sqlite")]
    pub fn open(directory: &Path) -> Result<Self> {
        Ok(NoteStore(Mutex::new(Box::new(SqliteNotes::open(directory)?))))
    }

    /// Writes notes, all or none. They are durable when this returns.
    ///
    /// A note whose id is known, or was forgotten, is not written again.
    pub fn remember(&self, notes: &[Note]) -> Result<Position> {
        notes.iter().try_for_each(Note::check)?;
        self.shelf().remember(notes)
    }

    /// Finds notes for a question, best first. Of notes with equal texts, the best is returned and names the others.
    ///
    /// A note is found if it and the notes next to it in its thread have a tenth of the question, by the weight of its words; if it has
    /// a word of the question that hardly any other note has; or if its vector is similar to that of the question. None is found
    /// otherwise. Words of questions and of grammar count for nothing.
    pub fn recall(&self, query: &Query) -> Result<Vec<Hit>> {
        self.shelf().recall(query)
    }

    /// Reads a note.
    pub fn read(&self, id: &NoteId) -> Result<Lookup> {
        self.shelf().read(id)
    }

    /// Lists notes below these paths, or all, oldest first, after a position.
    pub fn list(&self, under: &[NotePath], after: Position, limit: usize) -> Result<Vec<(Position, Note)>> {
        self.shelf().list(under, after, limit)
    }

    /// Removes notes and all their versions for good, and returns the ids of those that existed.
    ///
    /// Neither the files nor the index hold any of their text afterwards, nor of notes that were removed before. The file is
    /// written anew, which takes as much memory as it is large, and twice that on the disk for a moment.
    pub fn forget(&self, ids: &[NoteId], now: i64) -> Result<Vec<NoteId>> {
        let mut shelf = self.shelf();
        let docs = shelf.numbers(ids)?;
        shelf.forget(&docs, Removal::AllVersions, now)
    }

    /// Removes notes and the versions before them for good, and returns the ids of those that existed. Their new versions stay.
    pub fn forget_with_older(&self, ids: &[NoteId], now: i64) -> Result<Vec<NoteId>> {
        let mut shelf = self.shelf();
        let docs = shelf.numbers(ids)?;
        shelf.forget(&docs, Removal::OlderVersions, now)
    }

    /// Removes all notes of a session for good, with all their versions.
    pub fn forget_session(&self, session: &str, now: i64) -> Result<Vec<NoteId>> {
        let mut shelf = self.shelf();
        let docs = shelf.of_session(session)?;
        shelf.forget(&docs, Removal::AllVersions, now)
    }

    /// Removes all notes for good that were said before a time. New versions that were said later stay.
    pub fn forget_before(&self, micros: i64, now: i64) -> Result<Vec<NoteId>> {
        let mut shelf = self.shelf();
        let docs = shelf.said_before(micros)?;
        shelf.forget(&docs, Removal::OlderVersions, now)
    }

    /// Removes all notes whose time is over, and the versions before them.
    ///
    /// Bytes of them may stay in the files until 64 notes, or an eighth of all, are removed in this way. [`forget`](Self::forget)
    /// removes them at once, also if it is called without notes.
    pub fn forget_expired(&self, now: i64) -> Result<Vec<NoteId>> {
        let mut shelf = self.shelf();
        let docs = shelf.expired(now)?;
        // Every write comes here, and forgetting reads the index and empties the log.
        if docs.is_empty() { Ok(Vec::new()) } else { shelf.forget(&docs, Removal::ByLimit, now) }
    }

    /// Returns the number of notes, and of the bytes of their texts.
    pub fn size(&self) -> Result<Size> {
        self.shelf().size()
    }

    /// Removes the oldest notes, and the versions before them, until the rest has at most this size.
    ///
    /// Bytes of them may stay in the files for a while, as after [`forget_expired`](Self::forget_expired).
    pub fn forget_beyond(&self, most: Size, now: i64) -> Result<Vec<NoteId>> {
        let mut shelf = self.shelf();
        if !shelf.size()?.exceeds(most) {
            return Ok(Vec::new());
        }
        let docs = shelf.oldest_beyond(most)?;
        shelf.forget(&docs, Removal::ByLimit, now)
    }

    /// Returns the names of the models whose vectors this store can hold.
    pub fn models(&self) -> Result<Vec<String>> {
        self.shelf().models()
    }

    /// Measures a model by the vectors that it gives to [`UNRELATED_TEXTS`](crate::UNRELATED_TEXTS). Its vectors can be added then.
    ///
    /// A model that was measured before keeps its measure.
    pub fn calibrate(&self, model: &str, vectors: &[Vec<f32>]) -> Result<()> {
        self.shelf().calibrate(model, vectors)
    }

    /// Returns notes that have no vector of a model, newest first.
    pub fn without_vector(&self, model: &str, limit: usize) -> Result<Vec<Note>> {
        self.shelf().without_vector(model, limit)
    }

    /// Adds vectors of a model to notes. A note that is not there gets none.
    pub fn add_vectors(&self, model: &str, vectors: &[(NoteId, Vec<f32>)]) -> Result<()> {
        self.shelf().add_vectors(model, vectors)
    }

    /// Removes a model, and all its vectors.
    pub fn remove_model(&self, model: &str) -> Result<()> {
        self.shelf().remove_model(model)
    }

    /// Returns the present position.
    pub fn position(&self) -> Result<Position> {
        self.shelf().position()
    }

    fn shelf(&self) -> MutexGuard<'_, Box<dyn Shelf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for NoteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NoteStore")
    }
}
