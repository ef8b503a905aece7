//! A memory in a directory of this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rath_memory::{Lookup, MEMORY_FILE, Note, NoteId, NotePath, NoteStore, Position, Query, Size};

use super::in_process::{forget, remember};
#[cfg(feature = "http")]
use super::vectors::VectorSource;
use super::{Forget, Hits, MemoryBackend, MemoryError, MemoryErrorKind, NotePage};
use crate::blocking::run_blocking;
#[cfg(feature = "http")]
use crate::provider::Embedder;
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
pub struct LocalMemory {
    uri: String,
    directory: PathBuf,
    notes: Arc<NoteStore>,
    most: Size,
    #[cfg(feature = "http")]
    vectors: Option<VectorSource>,
}

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
        Ok(LocalMemory {
            uri,
            directory,
            notes: Arc::new(notes),
            most: Size::UNLIMITED,
            #[cfg(feature = "http")]
            vectors: None,
        })
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
    #[cfg(feature = "http")]
    pub fn embedder(mut self, embedder: Embedder) -> Self {
        self.vectors = Some(VectorSource::new(embedder));
        self
    }

    /// Gives a vector to each note that has none, and returns their number.
    #[cfg(feature = "http")]
    pub async fn add_vectors(&self) -> Result<usize, MemoryError> {
        match &self.vectors {
            Some(vectors) => vectors.add_vectors(&self.notes, usize::MAX).await,
            None => Ok(0),
        }
    }

    /// Removes all vectors of the model, and its measure: if the model has changed, its vectors cannot be compared.
    #[cfg(feature = "http")]
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

    /// Adds the question as a vector, and returns a notice if that cannot be done, or not for all notes.
    #[cfg(feature = "http")]
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

    /// Runs blocking work on the notes.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&NoteStore) -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<T, MemoryError> {
        let notes = self.notes.clone();
        let done = run_blocking(move || work(&notes)).await;
        done.map_err(|error| of_file(&self.directory, error))
    }
}

/// Names the file in an error about it. Errors about a note or a question stay as they are.
fn of_file(directory: &Path, error: MemoryError) -> MemoryError {
    match error.kind() {
        MemoryErrorKind::Io | MemoryErrorKind::Busy | MemoryErrorKind::Damaged => {
            let file = directory.join(MEMORY_FILE);
            MemoryError::new(error.kind(), format!("{}: {}", file.display(), error.message()))
        }
        _ => error,
    }
}

fn by_words_alone(error: &MemoryError) -> String {
    format!("notes were found by words alone: {}", error.message())
}

fn open_store(directory: &Path) -> Result<NoteStore, MemoryError> {
    rath_dir::check(directory).map_err(|error| failed(directory, error))?;
    // It may have come from elsewhere too, by any name: a link would lead to another file.
    rath_dir::check_entries(directory).map_err(|error| failed(directory, error))?;
    make_folder(directory).map_err(|error| failed(directory, error))?;
    NoteStore::open(directory).map_err(|error| of_file(directory, error.into()))
}

fn failed(directory: &Path, error: std::io::Error) -> MemoryError {
    MemoryError::new(MemoryErrorKind::Io, format!("cannot open the memory {}", directory.display())).because(error)
}

impl MemoryBackend for LocalMemory {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.directory)
    }

    async fn remember(&self, notes: &[Note]) -> Result<Option<Position>, MemoryError> {
        let (written, most) = (notes.to_vec(), self.most);
        self.run(move |notes| remember(notes, &written, most)).await
    }

    async fn position(&self) -> Result<Option<Position>, MemoryError> {
        self.run(|notes| Ok(Some(notes.position()?))).await
    }

    async fn recall(&self, query: &Query) -> Result<Hits, MemoryError> {
        #[cfg_attr(not(feature = "http"), expect(unused_mut))]
        let mut query = query.clone();
        #[cfg(feature = "http")]
        let notice = self.add_question_vector(&mut query).await;
        #[cfg(not(feature = "http"))]
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
