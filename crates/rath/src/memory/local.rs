//! A memory in a directory of this machine.

use std::path::Path;
use std::sync::Arc;

use rath_memory::{Hit, Lookup, Note, NoteId, NotePath, NoteStore, Position, Query};

use super::in_process::{forget, remember};
use super::{Forget, MemoryBackend, MemoryError, MemoryErrorKind};
use crate::blocking::run_blocking;
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
    notes: Arc<NoteStore>,
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
        let notes = run_blocking(move || open_store(&directory)).await?;
        Ok(LocalMemory { uri, notes: Arc::new(notes) })
    }

    /// Runs blocking work on the notes.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&NoteStore) -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<T, MemoryError> {
        let notes = self.notes.clone();
        run_blocking(move || work(&notes)).await
    }
}

fn open_store(directory: &Path) -> Result<NoteStore, MemoryError> {
    rath_dir::check(directory).map_err(|error| failed(directory, error))?;
    // It may have come from elsewhere too, by any name: a link would lead to another file.
    rath_dir::check_entries(directory).map_err(|error| failed(directory, error))?;
    make_folder(directory).map_err(|error| failed(directory, error))?;
    Ok(NoteStore::open(directory)?)
}

fn failed(directory: &Path, error: std::io::Error) -> MemoryError {
    MemoryError::new(MemoryErrorKind::Io, format!("cannot open the memory {}", directory.display())).because(error)
}

impl MemoryBackend for LocalMemory {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn remember(&self, notes: &[Note]) -> Result<Option<Position>, MemoryError> {
        let written = notes.to_vec();
        self.run(move |notes| remember(notes, &written)).await
    }

    async fn position(&self) -> Result<Option<Position>, MemoryError> {
        self.run(|notes| Ok(Some(notes.position()?))).await
    }

    async fn recall(&self, query: &Query) -> Result<Vec<Hit>, MemoryError> {
        let query = query.clone();
        self.run(move |notes| Ok(notes.recall(&query)?)).await
    }

    async fn read(&self, id: &NoteId) -> Result<Lookup, MemoryError> {
        let id = id.clone();
        self.run(move |notes| Ok(notes.read(&id)?)).await
    }

    async fn list(
        &self,
        under: &[NotePath],
        after: Position,
        limit: usize,
    ) -> Result<Vec<(Position, Note)>, MemoryError> {
        let under = under.to_vec();
        self.run(move |notes| Ok(notes.list(&under, after, limit)?)).await
    }

    async fn forget(&self, what: &Forget) -> Result<Vec<NoteId>, MemoryError> {
        let what = what.clone();
        self.run(move |notes| forget(notes, &what)).await
    }
}
