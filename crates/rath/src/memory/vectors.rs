//! Vectors for the notes of a memory, from a provider.

use std::sync::Arc;
use std::time::Duration;

use rath_memory::{Note, NoteId, NoteStore, UNRELATED_TEXTS};

use super::{MemoryError, MemoryErrorKind};
use crate::blocking::run_blocking;
use crate::provider::{Embedder, ProviderError};
use crate::secrets::Secrets;

/// The most notes that get a vector before a question is answered.
const MAX_NOTES_BEFORE_ANSWER: usize = 256;
/// The notes that get a vector in one transaction. A model on this machine may take a second for them.
const NOTES_AT_ONCE: usize = 64;
/// The most bytes of a text that the model reads: about 500 tokens. Many models refuse a text that is longer than their window,
/// and all that is sent with it.
const MAX_EMBEDDED_BYTES: usize = 2_000;
/// The time after which a question is answered without vectors.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The time in which the model answers for a few notes, unless told: one on this machine may be slow, and one that hangs ends here.
const EMBED_TIMEOUT: Duration = Duration::from_secs(120);

/// The model that turns notes and questions into vectors.
#[derive(Clone)]
pub(super) struct VectorSource {
    embedder: Arc<Embedder>,
    /// The name by which a store knows the model.
    model: String,
    /// The secrets, which the model never reads.
    secrets: Secrets,
    timeout: Duration,
}

/// A question as a vector, and whether all notes have one.
pub(super) struct VectorQuestion {
    pub(super) model: String,
    pub(super) numbers: Vec<f32>,
    pub(super) is_complete: bool,
}

impl VectorSource {
    pub(super) fn new(embedder: Embedder) -> Self {
        let identity = embedder.identity();
        let model = format!("{}:{}", identity.provider, identity.model);
        VectorSource { embedder: Arc::new(embedder), model, secrets: Secrets::default(), timeout: EMBED_TIMEOUT }
    }

    pub(super) fn hide(mut self, secrets: &Secrets) -> Self {
        self.secrets.add_all(secrets);
        self
    }

    pub(super) fn timeout(self, timeout: Duration) -> Self {
        VectorSource { timeout, ..self }
    }

    /// Turns a question into a vector, after the newest notes without one have got theirs.
    pub(super) async fn question(&self, store: &Arc<NoteStore>, text: &str) -> Result<VectorQuestion, MemoryError> {
        let work = async {
            let is_complete = self.add_vectors(store, MAX_NOTES_BEFORE_ANSWER).await? < MAX_NOTES_BEFORE_ANSWER;
            let numbers = self.embed(&[text]).await?.pop().unwrap_or_default();
            Ok(VectorQuestion { model: self.model.clone(), numbers, is_complete })
        };
        let late = || MemoryError::new(MemoryErrorKind::Timeout, "the model for vectors did not answer in time");
        tokio::time::timeout(ANSWER_TIMEOUT, work).await.unwrap_or_else(|_| Err(late()))
    }

    /// Gives vectors to notes that have none, newest first, until at least `limit` have got one, and returns their number.
    pub(super) async fn add_vectors(&self, store: &Arc<NoteStore>, limit: usize) -> Result<usize, MemoryError> {
        self.calibrate(store).await?;
        let mut all = 0;
        while all < limit {
            let added = self.add_some(store).await?;
            all += added;
            if added < NOTES_AT_ONCE {
                break;
            }
        }
        Ok(all)
    }

    /// Removes all vectors of the model, and its measure.
    pub(super) async fn remove(&self, store: &Arc<NoteStore>) -> Result<(), MemoryError> {
        let model = self.model.clone();
        in_store(store, move |store| Ok(store.remove_model(&model)?)).await
    }

    /// Measures the model, if the store has no measure of it.
    async fn calibrate(&self, store: &Arc<NoteStore>) -> Result<(), MemoryError> {
        let model = self.model.clone();
        let is_measured = in_store(store, move |store| Ok(store.models()?.contains(&model))).await?;
        if !is_measured {
            let (model, vectors) = (self.model.clone(), self.embed(&UNRELATED_TEXTS).await?);
            in_store(store, move |store| Ok(store.calibrate(&model, &vectors)?)).await?;
        }
        Ok(())
    }

    async fn add_some(&self, store: &Arc<NoteStore>) -> Result<usize, MemoryError> {
        let model = self.model.clone();
        let notes = in_store(store, move |store| Ok(store.without_vector(&model, NOTES_AT_ONCE)?)).await?;
        if notes.is_empty() {
            return Ok(0);
        }
        let texts: Vec<String> = notes.iter().map(embedded_text).collect();
        let vectors = self.embed(&texts).await?;
        let vectors: Vec<(NoteId, Vec<f32>)> = notes.into_iter().map(|note| note.id).zip(vectors).collect();
        let (model, count) = (self.model.clone(), vectors.len());
        in_store(store, move |store| Ok(store.add_vectors(&model, &vectors)?)).await?;
        Ok(count)
    }

    async fn embed(&self, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<f32>>, MemoryError> {
        // Before they are cut: half of a secret would not be recognized.
        let hidden: Vec<Option<String>> = texts.iter().map(|text| self.secrets.hide(text.as_ref())).collect();
        let texts = texts.iter().zip(&hidden).map(|(text, hidden)| cut(hidden.as_deref().unwrap_or(text.as_ref())));
        let texts: Vec<&str> = texts.collect();
        let late = |_| {
            let message = format!("the model for vectors {} did not answer within {:?}", self.model, self.timeout);
            let error = MemoryError::new(MemoryErrorKind::Timeout, message);
            error.with_hint("OPENAI_BASE_URL names its server; notes that have got a vector keep it")
        };
        Ok(tokio::time::timeout(self.timeout, self.embedder.embed(&texts)).await.map_err(late)??.vectors)
    }
}

/// Returns the text of a note, with its speaker: questions often name them.
fn embedded_text(note: &Note) -> String {
    match &note.said_by {
        Some(name) => format!("{name}: {}", note.text),
        None => note.text.clone(),
    }
}

/// Returns the beginning of a text.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_EMBEDDED_BYTES)]
}

async fn in_store<T: Send + 'static>(
    store: &Arc<NoteStore>,
    work: impl FnOnce(&NoteStore) -> Result<T, MemoryError> + Send + 'static,
) -> Result<T, MemoryError> {
    let store = store.clone();
    run_blocking(move || work(&store)).await
}

impl From<ProviderError> for MemoryError {
    fn from(error: ProviderError) -> Self {
        MemoryError::new(MemoryErrorKind::Connection, "the model for vectors failed").because(error)
    }
}
