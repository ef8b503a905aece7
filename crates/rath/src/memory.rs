//! What is known across runs.
//!
//! A [`Memory`] is what people hold, a [`MemoryBackend`] what authors write. What an agent is told to remember is a step of
//! the session at once, and goes into the memory when it is committed: what is pending is in the record and nowhere else.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use rath_record::Digest;
use rath_record::chunk::RecalledEntry;

use crate::session::Result;

/// What is known across runs.
///
/// ```
/// use rath::prelude::*;
///
/// let memory = Memory::in_process("notes");
/// assert_eq!(memory.uri(), "process:notes");
/// ```
#[derive(Clone)]
pub struct Memory(Arc<dyn Erased>);

/// What the author of a memory writes.
pub trait MemoryBackend: Send + Sync + 'static {
    /// The URI under which it stands in the record. Never a credential.
    fn uri(&self) -> &str;

    /// Takes in facts, and gives the name of the entry that each became. The same fact twice is one entry.
    fn commit(&self, facts: &[String]) -> impl Future<Output = Result<Vec<String>>> + Send;

    /// What it knows about a question, best first, at most `most`.
    fn recall(&self, query: &str, most: usize) -> impl Future<Output = Result<Vec<RecalledEntry>>> + Send;

    /// Removes entries, and gives the names of those that were there.
    fn forget(&self, entries: &[String]) -> impl Future<Output = Result<Vec<String>>> + Send;
}

impl Memory {
    /// A memory with this backend.
    pub fn new(backend: impl MemoryBackend) -> Self {
        Memory(Arc::new(backend))
    }

    /// A memory that lasts as long as the process. It finds facts by the words that they share with a question.
    pub fn in_process(name: &str) -> Self {
        Memory::new(InProcess { uri: format!("process:{name}"), entries: Mutex::default() })
    }

    /// The URI under which it stands in the record.
    pub fn uri(&self) -> &str {
        self.0.uri()
    }

    /// Takes in facts, and gives the name of the entry that each became.
    pub async fn commit(&self, facts: &[String]) -> Result<Vec<String>> {
        self.0.commit(facts).await
    }

    /// What it knows about a question, best first, at most `most`.
    pub async fn recall(&self, query: &str, most: usize) -> Result<Vec<RecalledEntry>> {
        self.0.recall(query, most).await
    }

    /// Removes entries, and gives the names of those that were there.
    pub async fn forget(&self, entries: &[String]) -> Result<Vec<String>> {
        self.0.forget(entries).await
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Memory").field(&self.uri()).finish()
    }
}

type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A memory behind a pointer.
trait Erased: Send + Sync {
    fn uri(&self) -> &str;
    fn commit<'a>(&'a self, facts: &'a [String]) -> Later<'a, Vec<String>>;
    fn recall<'a>(&'a self, query: &'a str, most: usize) -> Later<'a, Vec<RecalledEntry>>;
    fn forget<'a>(&'a self, entries: &'a [String]) -> Later<'a, Vec<String>>;
}

impl<B: MemoryBackend> Erased for B {
    fn uri(&self) -> &str {
        MemoryBackend::uri(self)
    }

    fn commit<'a>(&'a self, facts: &'a [String]) -> Later<'a, Vec<String>> {
        Box::pin(MemoryBackend::commit(self, facts))
    }

    fn recall<'a>(&'a self, query: &'a str, most: usize) -> Later<'a, Vec<RecalledEntry>> {
        Box::pin(MemoryBackend::recall(self, query, most))
    }

    fn forget<'a>(&'a self, entries: &'a [String]) -> Later<'a, Vec<String>> {
        Box::pin(MemoryBackend::forget(self, entries))
    }
}

/// Facts in the order in which they came.
struct InProcess {
    uri: String,
    entries: Mutex<Vec<RecalledEntry>>,
}

/// The name of the entry that a fact becomes: its own digest, so that the same fact is the same entry.
pub(crate) fn entry(fact: &str) -> String {
    format!("{:.16}", Digest::compute(fact.as_bytes()))
}

impl MemoryBackend for InProcess {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn commit(&self, facts: &[String]) -> Result<Vec<String>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let names = facts.iter().map(|fact| {
            let name = entry(fact);
            if entries.iter().all(|known| known.entry != name) {
                entries.push(RecalledEntry { entry: name.clone(), text: fact.as_str().into() });
            }
            name
        });
        Ok(names.collect())
    }

    async fn recall(&self, query: &str, most: usize) -> Result<Vec<RecalledEntry>> {
        let words = words(query);
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let score = |known: &RecalledEntry| {
            let theirs = self::words(known.text.as_str().unwrap_or_default());
            words.iter().filter(|word| theirs.contains(word)).count()
        };
        let mut found: Vec<_> =
            entries.iter().map(|known| (score(known), known)).filter(|(score, _)| *score > 0).collect();
        // The sort keeps the order of equals: older facts first.
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        Ok(found.into_iter().take(most).map(|(_, known)| known.clone()).collect())
    }

    async fn forget(&self, names: &[String]) -> Result<Vec<String>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = names.iter().filter(|name| entries.iter().any(|known| known.entry == **name)).cloned().collect();
        entries.retain(|known| !names.contains(&known.entry));
        Ok(gone)
    }
}

/// Words that say nothing about what a text is about.
const EMPTY: &str = " a about an and are at be but by did do for from had has have how i in is it its me my not of on or our \
                     so tell that the their them they this to us was we were what when where which who why will with you your ";

/// The words of a text that say something, each once. Where words are not set apart, pairs of characters.
fn words(text: &str) -> Vec<String> {
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
            false if EMPTY.contains(&format!(" {} ", word.to_lowercase())) => {}
            false => add(word.to_lowercase()),
        }
    }
    words
}

/// Chinese, Japanese and Korean.
fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{20000}'..='\u{3ffff}')
}
