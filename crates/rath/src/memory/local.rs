//! A memory in a directory of this machine, or in the process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(all(feature = "http", feature = "sqlite"))]
use std::time::Duration;

#[cfg(feature = "sqlite")]
use rath_memory::MEMORY_FILE;
use rath_memory::{Lookup, Note, NoteId, NotePath, NoteStore, Position, Query, Size};

#[cfg(all(feature = "http", feature = "sqlite"))]
use super::vectors::VectorSource;
use super::{Forget, Hits, MemoryBackend, MemoryError, MemoryErrorKind, NotePage, now};
#[cfg(feature = "sqlite")]
use crate::blocking::run_blocking;
#[cfg(all(feature = "http", feature = "sqlite"))]
use crate::provider::Embedder;
#[cfg(all(feature = "http", feature = "sqlite"))]
use crate::secrets::Secrets;
#[cfg(feature = "sqlite")]
use crate::store::{make_folder, rath_dir};

/// A memory in a directory of this machine: a SQLite database that several processes can use at once.
///
/// ```
/// use rath::Memory;
/// use rath::memory::{LocalMemory, Note};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let directory = folder.path().join("memory");
/// # let directory = directory.to_str().expect("text");
/// let memory = Memory::new(LocalMemory::open(directory).await?);
/// memory.remember(Note::new("Deploy on Mondays only.")).await?;
/// drop(memory);
///
/// let memory = Memory::new(LocalMemory::open(directory).await?);
/// assert_eq!(memory.recall("deployment").await?.len(), 1);
/// # Ok(())
/// # }
/// ```
#[cfg_attr(not(feature = "sqlite"), expect(unreachable_pub, reason = "it serves `Memory::in_process` alone"))]
pub struct LocalMemory {
    uri: String,
    /// None if the notes last as long as the process.
    directory: Option<PathBuf>,
    notes: Arc<NoteStore>,
    most: Size,
    #[cfg(all(feature = "http", feature = "sqlite"))]
    vectors: Option<VectorSource>,
}

#[cfg(feature = "sqlite")]
impl LocalMemory {
    /// Opens the memory in a directory, and creates it if it does not exist.
    pub async fn open(directory: &str) -> Result<Self, MemoryError> {
        if directory.is_empty() {
            let error = MemoryError::new(MemoryErrorKind::Invalid, "no directory is named");
            return Err(error.with_hint("write `local:.rath/memory`"));
        }
        // Absolute: the record knows the memory by it, from whichever directory the session goes on.
        let directory = std::path::absolute(directory).map_err(|error| failed(Path::new(directory), error))?;
        let uri = format!("local:{}", directory.display());
        let opened = directory.clone();
        let notes = run_blocking(move || open_store(&opened)).await?;
        Ok(LocalMemory::of(uri, Some(directory), notes))
    }

    /// Limits the number of notes: each write forgets the oldest beyond it.
    pub fn max_notes(mut self, notes: u64) -> Self {
        self.most.notes = notes;
        self
    }

    /// Limits the bytes of the texts of all notes: each write forgets the oldest beyond it.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.most.bytes = bytes;
        self
    }

    /// Finds notes by their meaning too, by vectors of a model: its server reads every note and every question.
    ///
    /// A note gets its vector before the next question is answered. If the model fails, notes are found by words alone, and the
    /// answer has a notice.
    #[cfg(all(feature = "http", feature = "sqlite"))]
    pub fn embedder(mut self, embedder: Embedder) -> Self {
        self.vectors = Some(VectorSource::new(embedder));
        self
    }

    /// Gives a vector to each note that has none, and returns their number.
    #[cfg(all(feature = "http", feature = "sqlite"))]
    pub async fn add_vectors(&self) -> Result<usize, MemoryError> {
        match &self.vectors {
            Some(vectors) => vectors.add_vectors(&self.notes, usize::MAX).await,
            None => Ok(0),
        }
    }

    /// Removes all vectors of the model, and its measure: if the model has changed, its vectors cannot be compared.
    #[cfg(all(feature = "http", feature = "sqlite"))]
    pub async fn remove_vectors(&self) -> Result<(), MemoryError> {
        match &self.vectors {
            Some(vectors) => vectors.remove(&self.notes).await,
            None => Ok(()),
        }
    }

    /// Returns the models whose vectors notes of this memory have, such as `openai:text-embedding-3-small`.
    pub async fn vector_models(&self) -> Result<Vec<String>, MemoryError> {
        self.run(|notes| Ok(notes.models()?)).await
    }

    /// Limits the time in which the model for vectors answers for a few notes: two minutes unless told.
    #[cfg(all(feature = "http", feature = "sqlite"))]
    pub fn vector_timeout(mut self, limit: Duration) -> Self {
        self.vectors = self.vectors.map(|vectors| vectors.timeout(limit));
        self
    }

    /// Hides these secrets in what the model for vectors reads: a note may be older than a secret. Texts that look like one are hidden
    /// in any case.
    #[cfg(all(feature = "http", feature = "sqlite"))]
    pub fn hide(mut self, secrets: &Secrets) -> Self {
        self.vectors = self.vectors.map(|vectors| vectors.hide(secrets));
        self
    }
}

impl LocalMemory {
    /// Creates a memory that lasts as long as the process.
    pub(super) fn in_process(name: &str) -> Self {
        LocalMemory::of(format!("process:{name}"), None, NoteStore::in_process())
    }

    fn of(uri: String, directory: Option<PathBuf>, notes: NoteStore) -> Self {
        LocalMemory {
            uri,
            directory,
            notes: Arc::new(notes),
            most: Size::UNLIMITED,
            #[cfg(all(feature = "http", feature = "sqlite"))]
            vectors: None,
        }
    }

    /// Adds the question as a vector, and returns a notice if that cannot be done, or not for all notes.
    #[cfg(all(feature = "http", feature = "sqlite"))]
    async fn add_question_vector(&self, query: &mut Query) -> Option<String> {
        let vectors = self.vectors.as_ref().filter(|_| query.vector.is_none())?;
        match vectors.question(&self.notes, &query.text).await {
            Ok(question) => {
                *query = std::mem::replace(query, Query::new("")).vector(question.model, question.numbers);
                let notice = "older notes have no vectors yet, and were found by words alone";
                (!question.is_complete).then(|| notice.to_owned())
            }
            Err(error) => Some(by_words_alone(&error)),
        }
    }

    /// Runs work on the notes; on the blocking pool if they are in a file.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&NoteStore) -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<T, MemoryError> {
        match &self.directory {
            #[cfg(feature = "sqlite")]
            Some(directory) => {
                let notes = self.notes.clone();
                run_blocking(move || work(&notes)).await.map_err(|error| of_file(directory, error))
            }
            _ => work(&self.notes),
        }
    }
}

/// Names the file in an error about it. Errors about a note or a question stay as they are.
#[cfg(feature = "sqlite")]
fn of_file(directory: &Path, error: MemoryError) -> MemoryError {
    let file = directory.join(MEMORY_FILE);
    let named = |kind| MemoryError::new(kind, format!("{}: {}", file.display(), error.message()));
    match error.kind() {
        kind @ (MemoryErrorKind::Io | MemoryErrorKind::Busy) => named(kind),
        kind @ MemoryErrorKind::Damaged => named(kind)
            .with_hint("put a copy of the directory in its place, or move it away: the next note begins a new memory"),
        _ => error,
    }
}

fn by_words_alone(error: &MemoryError) -> String {
    format!("notes were found by words alone: {}", error.message())
}

#[cfg(feature = "sqlite")]
fn open_store(directory: &Path) -> Result<NoteStore, MemoryError> {
    rath_dir::check(directory).map_err(|error| failed(directory, error))?;
    // It may have come from elsewhere too, by any name: a link would lead to another file.
    rath_dir::check_entries(directory).map_err(|error| failed(directory, error))?;
    make_folder(directory).map_err(|error| failed(directory, error))?;
    NoteStore::open(directory).map_err(|error| of_file(directory, error.into()))
}

#[cfg(feature = "sqlite")]
fn failed(directory: &Path, error: std::io::Error) -> MemoryError {
    MemoryError::new(MemoryErrorKind::Io, format!("cannot open the memory {}", directory.display())).because(error)
}

impl MemoryBackend for LocalMemory {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    async fn remember(&self, notes: &[Note]) -> Result<Option<Position>, MemoryError> {
        let (written, most) = (notes.to_vec(), self.most);
        self.run(move |notes| remember(notes, &written, most)).await
    }

    async fn position(&self) -> Result<Option<Position>, MemoryError> {
        self.run(|notes| Ok(Some(notes.position()?))).await
    }

    async fn recall(&self, query: &Query) -> Result<Hits, MemoryError> {
        #[cfg_attr(not(all(feature = "http", feature = "sqlite")), expect(unused_mut))]
        let mut query = query.clone();
        #[cfg(all(feature = "http", feature = "sqlite"))]
        let notice = self.add_question_vector(&mut query).await;
        #[cfg(not(all(feature = "http", feature = "sqlite")))]
        let notice = None;
        let mut by_words = query.clone();
        let has_vector = by_words.vector.take().is_some();
        match self.run(move |notes| Ok(notes.recall(&query)?)).await {
            Ok(list) => Ok(Hits { list, notice }),
            // The model may have changed since the notes got their vectors.
            Err(error) if has_vector => {
                let list = self.run(move |notes| Ok(notes.recall(&by_words)?)).await?;
                Ok(Hits { list, notice: Some(by_words_alone(&error)) })
            }
            Err(error) => Err(error),
        }
    }

    async fn read(&self, id: &NoteId) -> Result<Lookup, MemoryError> {
        let id = id.clone();
        self.run(move |notes| Ok(notes.read(&id)?)).await
    }

    async fn list(&self, under: &[NotePath], after: Position, limit: usize) -> Result<NotePage, MemoryError> {
        let under = under.to_vec();
        self.run(move |notes| Ok(notes.list(&under, after, limit)?.into())).await
    }

    async fn forget(&self, what: &Forget) -> Result<Vec<NoteId>, MemoryError> {
        let what = what.clone();
        self.run(move |notes| forget(notes, &what)).await
    }
}

/// Writes notes to a store, and removes those whose time is over, and the oldest beyond a size.
fn remember(store: &NoteStore, notes: &[Note], most: Size) -> Result<Option<Position>, MemoryError> {
    let size = Size { notes: notes.len() as u64, bytes: notes.iter().map(|note| note.text.len() as u64).sum() };
    if size.exceeds(most) {
        let (count, verb) = if size.notes == 1 { ("note", "does") } else { ("notes", "do") };
        let limits = [(most.notes, "notes"), (most.bytes, "bytes")].into_iter().filter(|(most, _)| *most != u64::MAX);
        let limits = limits.map(|(most, unit)| format!("{most} {unit}")).collect::<Vec<_>>().join(" and ");
        let Size { notes, bytes } = size;
        let message = format!("{notes} {count} of {bytes} bytes {verb} not fit in a memory of at most {limits}");
        return Err(MemoryError::new(MemoryErrorKind::Invalid, message));
    }
    store.forget_expired(now())?;
    let position = store.remember(notes)?;
    if most != Size::UNLIMITED {
        store.forget_beyond(most, now())?;
    }
    Ok(Some(position))
}

/// Removes notes from a store.
fn forget(notes: &NoteStore, what: &Forget) -> Result<Vec<NoteId>, MemoryError> {
    let forgotten = match what {
        Forget::Notes(ids) => notes.forget(ids, now()),
        Forget::WithOlder(ids) => notes.forget_with_older(ids, now()),
        Forget::OfSession(session) => notes.forget_session(session, now()),
        Forget::SaidBefore(micros) => notes.forget_before(*micros, now()),
        Forget::Expired(micros) => notes.forget_expired(*micros),
        Forget::Beyond(size) => notes.forget_beyond(*size, now()),
    };
    let forgotten = forgotten?;
    // What was removed by a limit, now or at a write, leaves the files at once.
    if matches!(what, Forget::Expired(_) | Forget::Beyond(_)) {
        notes.forget(&[], now())?;
    }
    Ok(forgotten)
}
