//! Notes that agents keep across runs.
//!
//! Programs hold a [`Memory`]; authors of a memory implement [`MemoryBackend`]. A [`Note`] is a short text with its path, its
//! speaker, its time and the steps that it came from. What an agent does with a memory is a step of the session: see
//! [`Agent::memory`](crate::flow::Agent::memory).

mod local;
#[cfg(feature = "http")]
mod openviking;
#[cfg(all(feature = "http", feature = "sqlite"))]
mod vectors;

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use rath_memory::NoteError;
pub use rath_memory::{Hit, Lookup, MAX_ID_BYTES, Note, NoteId, NotePath, Position, Query, Size, Source};

#[cfg(feature = "sqlite")]
pub use self::local::LocalMemory;
#[cfg(not(feature = "sqlite"))]
use self::local::LocalMemory;
#[cfg(feature = "http")]
pub use self::openviking::OpenViking;
use crate::error::plane_error;

plane_error! {
    /// A failure of a memory.
    ///
    /// Returned by [`Memory::open`] and the other methods of a memory.
    MemoryError;
    /// The kinds of failure of a memory.
    ///
    /// Returned by [`MemoryError::kind`].
    MemoryErrorKind {
        /// A file could not be read or written.
        Io => Io,
        /// The memory has too much to do.
        Busy => Busy,
        /// The memory did not answer in time.
        Timeout => Timeout,
        /// The memory cannot be reached, or the connection broke.
        Connection => Connection,
        /// The file of the memory is damaged, or is no memory.
        Damaged => Damaged,
        /// A note, a path or a URI is not valid.
        Invalid => Arguments,
        /// This kind of memory cannot do it: see [`Memory::capabilities`].
        Unsupported => Memory,
        /// Any other failure to read or write the memory.
        Other => Memory,
    }
}

/// A handle to notes that are kept across runs.
///
/// ```
/// use rath::prelude::*;
/// use rath::memory::Note;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rath::memory::MemoryError> {
/// let memory = Memory::in_process("notes"); // `Memory::open("local:.rath/memory")` outlives the process
/// let id = memory.remember(Note::new("The user works mostly in Python.")).await?;
/// let hits = memory.recall("Does the user know Python?").await?;
/// assert_eq!(hits[0].note.id, id);
///
/// let id = memory.update(&id, "The user works mostly in Rust.").await?;
/// memory.forget(&[id]).await?;
/// assert!(memory.recall("the user's work").await?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Memory(Arc<dyn ErasedMemory>);

/// The notes that a question found, best first.
///
/// Returned by [`Memory::recall`]. It can be used as a slice of [`Hit`]s.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Hits {
    /// The notes.
    pub list: Vec<Hit>,
    /// The reason why a part of the memory was not searched, or not in every way.
    pub notice: Option<String>,
}

impl From<Vec<Hit>> for Hits {
    fn from(list: Vec<Hit>) -> Self {
        Hits { list, notice: None }
    }
}

impl std::ops::Deref for Hits {
    type Target = [Hit];

    fn deref(&self) -> &[Hit] {
        &self.list
    }
}

impl IntoIterator for Hits {
    type Item = Hit;
    type IntoIter = std::vec::IntoIter<Hit>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

/// Notes in the order in which they were written, each with its position.
///
/// Returned by [`Memory::list`]. It can be used as a slice.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct NotePage {
    /// The notes.
    pub list: Vec<(Position, Note)>,
    /// The notes that could not be read, and were left out.
    pub notice: Option<String>,
}

impl From<Vec<(Position, Note)>> for NotePage {
    fn from(list: Vec<(Position, Note)>) -> Self {
        NotePage { list, notice: None }
    }
}

impl std::ops::Deref for NotePage {
    type Target = [(Position, Note)];

    fn deref(&self) -> &[(Position, Note)] {
        &self.list
    }
}

impl IntoIterator for NotePage {
    type Item = (Position, Note);
    type IntoIter = std::vec::IntoIter<(Position, Note)>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

/// The notes that are to be forgotten.
///
/// Passed to [`Memory::forget_where`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forget {
    /// Notes by their ids, with all their versions.
    Notes(Vec<NoteId>),
    /// Notes by their ids, with the versions before them. Their new versions stay, as they do below.
    WithOlder(Vec<NoteId>),
    /// All notes of a session, with all their versions.
    OfSession(String),
    /// All notes that were said before a time, in microseconds since 1970.
    SaidBefore(i64),
    /// All notes whose time is over at a time, in microseconds since 1970.
    Expired(i64),
    /// The oldest notes, until the rest has at most this size.
    Beyond(Size),
}

/// The operations that not every kind of memory can do.
///
/// Returned by [`Memory::capabilities`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCapabilities {
    /// True if notes can be forgotten for good. Otherwise [`Memory::forget`] fails with an error of the kind
    /// [`Unsupported`](MemoryErrorKind::Unsupported).
    pub forgets: bool,
}

impl Default for MemoryCapabilities {
    /// Returns the capabilities of a memory that can do everything.
    fn default() -> Self {
        MemoryCapabilities { forgets: true }
    }
}

/// The trait that the author of a memory implements.
///
/// ```
/// use rath::Memory;
/// use rath::memory::{Forget, Hits, Lookup, MemoryBackend, MemoryError, Note, NoteId, NotePage, NotePath, Position, Query};
///
/// /// Stores nothing.
/// struct Nothing;
///
/// impl MemoryBackend for Nothing {
///     fn uri(&self) -> &str {
///         "nothing:"
///     }
///
///     async fn remember(&self, _notes: &[Note]) -> Result<Option<Position>, MemoryError> {
///         Ok(None)
///     }
///
///     async fn position(&self) -> Result<Option<Position>, MemoryError> {
///         Ok(None)
///     }
///
///     async fn recall(&self, _query: &Query) -> Result<Hits, MemoryError> {
///         Ok(Hits::default())
///     }
///
///     async fn read(&self, _id: &NoteId) -> Result<Lookup, MemoryError> {
///         Ok(Lookup::Unknown)
///     }
///
///     async fn list(
///         &self,
///         _under: &[NotePath],
///         _after: Position,
///         _limit: usize,
///     ) -> Result<NotePage, MemoryError> {
///         Ok(NotePage::default())
///     }
///
///     async fn forget(&self, _what: &Forget) -> Result<Vec<NoteId>, MemoryError> {
///         Ok(Vec::new())
///     }
/// }
///
/// assert_eq!(Memory::new(Nothing).uri(), "nothing:");
/// ```
pub trait MemoryBackend: Send + Sync + 'static {
    /// Returns the URI that the record knows the memory by. It must not hold a credential.
    fn uri(&self) -> &str;

    /// Returns the directory of a memory that has files on this machine. Tools must not be able to write there.
    fn directory(&self) -> Option<&Path> {
        None
    }

    /// Returns what the memory can do.
    fn capabilities(&self) -> MemoryCapabilities {
        MemoryCapabilities::default()
    }

    /// Writes notes, all or none, and returns the position after them. They are durable when this returns.
    ///
    /// A note whose id is known, or was forgotten, is not written again. A memory without positions returns None.
    fn remember(&self, notes: &[Note]) -> impl Future<Output = Result<Option<Position>, MemoryError>> + Send;

    /// Returns the present position: all notes that were written so far. A memory without positions returns None.
    fn position(&self) -> impl Future<Output = Result<Option<Position>, MemoryError>> + Send;

    /// Finds notes for a question, best first, and nothing if none fits.
    fn recall(&self, query: &Query) -> impl Future<Output = Result<Hits, MemoryError>> + Send;

    /// Reads a note.
    fn read(&self, id: &NoteId) -> impl Future<Output = Result<Lookup, MemoryError>> + Send;

    /// Lists notes below these paths, or all, oldest first, after a position.
    fn list(
        &self,
        under: &[NotePath],
        after: Position,
        limit: usize,
    ) -> impl Future<Output = Result<NotePage, MemoryError>> + Send;

    /// Removes notes for good, with the versions of them that go with them, and returns the ids of those that existed.
    fn forget(&self, what: &Forget) -> impl Future<Output = Result<Vec<NoteId>, MemoryError>> + Send;
}

/// The kinds of memory that a URI can name.
const KINDS: &str = match (cfg!(feature = "sqlite"), cfg!(feature = "http")) {
    (true, true) => "local, process, openviking",
    (true, false) => "local, process",
    (false, true) => "process, openviking",
    (false, false) => "process",
};

impl Memory {
    /// Creates a memory with this backend.
    pub fn new(backend: impl MemoryBackend) -> Self {
        Memory(Arc::new(backend))
    }

    /// Creates a memory that lasts as long as the process.
    pub fn in_process(name: &str) -> Self {
        Memory::new(LocalMemory::in_process(name))
    }

    /// Opens the memory that a URI names: `local:DIRECTORY`, `process:NAME` or `openviking:http://HOST:PORT`.
    ///
    /// A local memory is created if it does not exist. The key for an OpenViking service is that in `OPENVIKING_API_KEY`, so the URI has to
    /// come from the user.
    pub async fn open(uri: &str) -> Result<Self, MemoryError> {
        let Some((scheme, rest)) = uri.split_once(':') else {
            let error = MemoryError::new(MemoryErrorKind::Invalid, format!("wanted a memory, found `{uri}`"));
            return Err(error.with_hint("write the kind of memory, a colon, and where: `local:.rath/memory`"));
        };
        match scheme {
            #[cfg(feature = "sqlite")]
            "local" => LocalMemory::open(rest).await.map(Memory::new),
            "process" => Ok(Memory::in_process(rest)),
            #[cfg(feature = "http")]
            "openviking" => OpenViking::from_env(rest).map(Memory::new),
            _ => {
                let message = format!("unknown kind of memory `{scheme}`; known: {KINDS}");
                let error = MemoryError::new(MemoryErrorKind::Invalid, message);
                let needed = match scheme {
                    "local" => Some("sqlite"),
                    "openviking" => Some("http"),
                    _ => None,
                };
                Err(match needed {
                    Some(feature) => error.with_hint(format!("build rath with its feature `{feature}`")),
                    None => error,
                })
            }
        }
    }

    /// Returns the URI that the record knows the memory by.
    pub fn uri(&self) -> &str {
        self.0.uri()
    }

    /// Returns the directory of a memory that has files on this machine.
    pub fn directory(&self) -> Option<&Path> {
        self.0.directory()
    }

    /// Returns what the memory can do.
    pub fn capabilities(&self) -> MemoryCapabilities {
        self.0.capabilities()
    }

    /// Writes a note, and returns its id. It is durable when this returns.
    pub async fn remember(&self, note: Note) -> Result<NoteId, MemoryError> {
        self.remember_all(std::slice::from_ref(&note)).await?;
        Ok(note.id)
    }

    /// Writes notes, all or none, and returns the position after them. They are durable when this returns.
    ///
    /// A note whose id is known, or was forgotten, is not written again.
    pub async fn remember_all(&self, notes: &[Note]) -> Result<Option<Position>, MemoryError> {
        self.0.remember(notes).await
    }

    /// Returns the present position: all notes that were written so far.
    pub async fn position(&self) -> Result<Option<Position>, MemoryError> {
        self.0.position().await
    }

    /// Finds notes for a question, best first, and nothing if none fits.
    pub async fn recall(&self, query: impl Into<Query>) -> Result<Hits, MemoryError> {
        self.0.recall(&query.into()).await
    }

    /// Reads a note.
    pub async fn read(&self, id: &NoteId) -> Result<Lookup, MemoryError> {
        self.0.read(id).await
    }

    /// Lists notes below these paths, or all, oldest first, after a position.
    pub async fn list(&self, under: &[NotePath], after: Position, limit: usize) -> Result<NotePage, MemoryError> {
        self.0.list(under, after, limit).await
    }

    /// Writes a new version of a note, and returns its id. Questions find the new version.
    pub async fn update(&self, id: &NoteId, text: impl Into<String>) -> Result<NoteId, MemoryError> {
        let mut note = match self.read(id).await? {
            Lookup::Note(note) => *note,
            Lookup::Forgotten(_) => {
                return Err(MemoryError::new(MemoryErrorKind::Invalid, format!("the note {id} was forgotten")));
            }
            Lookup::Unknown => {
                return Err(MemoryError::new(MemoryErrorKind::Invalid, format!("there is no note {id}")));
            }
        };
        note.replaces = Some(std::mem::replace(&mut note.id, NoteId::random()));
        note.text = text.into();
        self.remember(note).await
    }

    /// Removes notes and all their versions for good, and returns the ids of those that existed.
    pub async fn forget(&self, ids: &[NoteId]) -> Result<Vec<NoteId>, MemoryError> {
        self.forget_where(&Forget::Notes(ids.to_vec())).await
    }

    /// Removes notes for good, and returns the ids of those that existed.
    ///
    /// The file of a memory in a directory is written anew, which takes as much memory as it is large.
    pub async fn forget_where(&self, what: &Forget) -> Result<Vec<NoteId>, MemoryError> {
        self.0.forget(what).await
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Memory").field(&self.uri()).finish()
    }
}

impl From<NoteError> for MemoryError {
    fn from(error: NoteError) -> Self {
        let kind = match error {
            NoteError::Io(_) | NoteError::Unwritable(_) => MemoryErrorKind::Io,
            NoteError::Busy => MemoryErrorKind::Busy,
            NoteError::Damaged(_) => MemoryErrorKind::Damaged,
            NoteError::Invalid(_) => MemoryErrorKind::Invalid,
            _ => MemoryErrorKind::Other,
        };
        MemoryError::wrap(kind, error)
    }
}

impl From<std::io::Error> for MemoryError {
    fn from(error: std::io::Error) -> Self {
        MemoryError::wrap(MemoryErrorKind::Io, error)
    }
}

/// Returns the present time, in microseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

type MemoryFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, MemoryError>> + Send + 'a>>;

/// A backend of any type, behind a pointer.
trait ErasedMemory: Send + Sync {
    fn uri(&self) -> &str;
    fn directory(&self) -> Option<&Path>;
    fn capabilities(&self) -> MemoryCapabilities;
    fn remember<'a>(&'a self, notes: &'a [Note]) -> MemoryFuture<'a, Option<Position>>;
    fn position<'a>(&'a self) -> MemoryFuture<'a, Option<Position>>;
    fn recall<'a>(&'a self, query: &'a Query) -> MemoryFuture<'a, Hits>;
    fn read<'a>(&'a self, id: &'a NoteId) -> MemoryFuture<'a, Lookup>;
    fn list<'a>(&'a self, under: &'a [NotePath], after: Position, limit: usize) -> MemoryFuture<'a, NotePage>;
    fn forget<'a>(&'a self, what: &'a Forget) -> MemoryFuture<'a, Vec<NoteId>>;
}

impl<B: MemoryBackend> ErasedMemory for B {
    fn uri(&self) -> &str {
        MemoryBackend::uri(self)
    }

    fn directory(&self) -> Option<&Path> {
        MemoryBackend::directory(self)
    }

    fn capabilities(&self) -> MemoryCapabilities {
        MemoryBackend::capabilities(self)
    }

    fn remember<'a>(&'a self, notes: &'a [Note]) -> MemoryFuture<'a, Option<Position>> {
        Box::pin(MemoryBackend::remember(self, notes))
    }

    fn position<'a>(&'a self) -> MemoryFuture<'a, Option<Position>> {
        Box::pin(MemoryBackend::position(self))
    }

    fn recall<'a>(&'a self, query: &'a Query) -> MemoryFuture<'a, Hits> {
        Box::pin(MemoryBackend::recall(self, query))
    }

    fn read<'a>(&'a self, id: &'a NoteId) -> MemoryFuture<'a, Lookup> {
        Box::pin(MemoryBackend::read(self, id))
    }

    fn list<'a>(&'a self, under: &'a [NotePath], after: Position, limit: usize) -> MemoryFuture<'a, NotePage> {
        Box::pin(MemoryBackend::list(self, under, after, limit))
    }

    fn forget<'a>(&'a self, what: &'a Forget) -> MemoryFuture<'a, Vec<NoteId>> {
        Box::pin(MemoryBackend::forget(self, what))
    }
}
