//! Facts that agents keep across runs.
//!
//! Programs hold a [`Memory`]; authors of a memory implement [`MemoryBackend`]. A fact that an agent is to remember is a
//! step of the session at once, and is written to the memory when it is committed. Until then it is in the record only.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use rath_record::Digest;
use rath_record::chunk::RecalledEntry;

use crate::error::plane_error;

plane_error! {
    /// A failure of a memory.
    ///
    /// Returned by [`Memory::commit`], [`Memory::recall`] and [`Memory::forget`].
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
        /// Any other failure to read or write the memory.
        Other => Memory,
    }
}

/// A handle to facts that are kept across runs.
///
/// ```
/// use rath::prelude::*;
///
/// let memory = Memory::in_process("notes");
/// assert_eq!(memory.uri(), "process:notes");
/// ```
#[derive(Clone)]
pub struct Memory(Arc<dyn ErasedMemory>);

/// The trait that the author of a memory implements.
///
/// ```
/// use rath::Memory;
/// use rath::chunk::RecalledEntry;
/// use rath::memory::{MemoryBackend, MemoryError};
///
/// /// Stores nothing.
/// struct Nothing;
///
/// impl MemoryBackend for Nothing {
///     fn uri(&self) -> &str {
///         "nothing:"
///     }
///
///     async fn commit(&self, facts: &[String]) -> Result<Vec<String>, MemoryError> {
///         Ok(facts.to_vec())
///     }
///
///     async fn recall(&self, _query: &str, _limit: usize) -> Result<Vec<RecalledEntry>, MemoryError> {
///         Ok(Vec::new())
///     }
///
///     async fn forget(&self, _entries: &[String]) -> Result<Vec<String>, MemoryError> {
///         Ok(Vec::new())
///     }
/// }
///
/// assert_eq!(Memory::new(Nothing).uri(), "nothing:");
/// ```
pub trait MemoryBackend: Send + Sync + 'static {
    /// Returns the URI that the record knows the memory by. It must not hold a credential.
    fn uri(&self) -> &str;

    /// Stores facts, and returns the name of each fact's entry. Equal facts have one entry.
    fn commit(&self, facts: &[String]) -> impl Future<Output = Result<Vec<String>, MemoryError>> + Send;

    /// Finds at most `limit` entries for a question, best first.
    fn recall(&self, query: &str, limit: usize)
    -> impl Future<Output = Result<Vec<RecalledEntry>, MemoryError>> + Send;

    /// Removes entries by name, and returns the names of those that existed.
    fn forget(&self, entries: &[String]) -> impl Future<Output = Result<Vec<String>, MemoryError>> + Send;
}

impl Memory {
    /// Creates a memory with this backend.
    pub fn new(backend: impl MemoryBackend) -> Self {
        Memory(Arc::new(backend))
    }

    /// Creates a memory that lasts as long as the process.
    ///
    /// It finds facts by the words that they share with a question.
    pub fn in_process(name: &str) -> Self {
        Memory::new(InProcess { uri: format!("process:{name}"), entries: Mutex::default() })
    }

    /// Returns the URI that the record knows the memory by.
    pub fn uri(&self) -> &str {
        self.0.uri()
    }

    /// Stores facts, and returns the name of each fact's entry.
    pub async fn commit(&self, facts: &[String]) -> Result<Vec<String>, MemoryError> {
        self.0.commit(facts).await
    }

    /// Finds at most `limit` entries for a question, best first.
    pub async fn recall(&self, query: &str, limit: usize) -> Result<Vec<RecalledEntry>, MemoryError> {
        self.0.recall(query, limit).await
    }

    /// Removes entries by name, and returns the names of those that existed.
    pub async fn forget(&self, entries: &[String]) -> Result<Vec<String>, MemoryError> {
        self.0.forget(entries).await
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Memory").field(&self.uri()).finish()
    }
}

type MemoryFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, MemoryError>> + Send + 'a>>;

/// A backend of any type, behind a pointer.
trait ErasedMemory: Send + Sync {
    fn uri(&self) -> &str;
    fn commit<'a>(&'a self, facts: &'a [String]) -> MemoryFuture<'a, Vec<String>>;
    fn recall<'a>(&'a self, query: &'a str, limit: usize) -> MemoryFuture<'a, Vec<RecalledEntry>>;
    fn forget<'a>(&'a self, entries: &'a [String]) -> MemoryFuture<'a, Vec<String>>;
}

impl<B: MemoryBackend> ErasedMemory for B {
    fn uri(&self) -> &str {
        MemoryBackend::uri(self)
    }

    fn commit<'a>(&'a self, facts: &'a [String]) -> MemoryFuture<'a, Vec<String>> {
        Box::pin(MemoryBackend::commit(self, facts))
    }

    fn recall<'a>(&'a self, query: &'a str, limit: usize) -> MemoryFuture<'a, Vec<RecalledEntry>> {
        Box::pin(MemoryBackend::recall(self, query, limit))
    }

    fn forget<'a>(&'a self, entries: &'a [String]) -> MemoryFuture<'a, Vec<String>> {
        Box::pin(MemoryBackend::forget(self, entries))
    }
}

/// A memory in the memory of this process.
struct InProcess {
    uri: String,
    /// In the order in which the facts were committed.
    entries: Mutex<Vec<RecalledEntry>>,
}

/// Returns the name of a fact's entry: the fact's digest, so that equal facts have one entry.
pub(crate) fn entry_name(fact: &str) -> String {
    format!("{:.16}", Digest::compute(fact.as_bytes()))
}

impl MemoryBackend for InProcess {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn commit(&self, facts: &[String]) -> Result<Vec<String>, MemoryError> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let names = facts.iter().map(|fact| {
            let name = entry_name(fact);
            if entries.iter().all(|known| known.entry != name) {
                entries.push(RecalledEntry::new(name.clone(), fact.as_str()));
            }
            name
        });
        Ok(names.collect())
    }

    async fn recall(&self, query: &str, limit: usize) -> Result<Vec<RecalledEntry>, MemoryError> {
        let asked = keywords(query);
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let score = |known: &RecalledEntry| {
            let words = keywords(known.text.as_str().unwrap_or_default());
            asked.iter().filter(|word| words.contains(word)).count()
        };
        let mut matches: Vec<_> =
            entries.iter().map(|known| (score(known), known)).filter(|(score, _)| *score > 0).collect();
        // The sort is stable, so of two facts with one score the older comes first.
        matches.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        Ok(matches.into_iter().take(limit).map(|(_, known)| known.clone()).collect())
    }

    async fn forget(&self, names: &[String]) -> Result<Vec<String>, MemoryError> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = names.iter().filter(|name| entries.iter().any(|known| known.entry == **name)).cloned().collect();
        entries.retain(|known| !names.contains(&known.entry));
        Ok(removed)
    }
}

/// Words that are too common to search for, each between two spaces.
const STOP_WORDS: &str = " a about an and are at be but by did do for from had has have how i in is it its me my not of on or our \
                     so tell that the their them they this to us was we were what when where which who why will with you your ";

/// Returns the words of a text without stop words, each once.
///
/// Scripts that put no space between words give pairs of characters instead.
fn keywords(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |word: String| {
        if !words.contains(&word) {
            words.push(word);
        }
    };
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let characters: Vec<char> = word.chars().collect();
        match characters.iter().any(|c| is_unspaced(*c)) {
            true if characters.len() > 1 => characters.windows(2).for_each(|pair| add(pair.iter().collect())),
            true => add(word.to_owned()),
            false if STOP_WORDS.contains(&format!(" {} ", word.to_lowercase())) => {}
            false => add(word.to_lowercase()),
        }
    }
    words
}

/// Returns true for characters of Chinese, Japanese and Korean, which put no space between words.
fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{20000}'..='\u{3ffff}')
}
