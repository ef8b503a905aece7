//! Embeddings: texts as vectors.

use rath_record::Usage;
use rath_record::chunk::Identity;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::assemble::reported_error;
use super::error::{ProviderError, ProviderErrorKind, RetryAdvice};
use super::http::HttpClient;
use super::keys::RejectedKeys;
use super::openai::OpenAi;
use super::registry::Env;
use super::retry::Retry;
use super::usage::parse_chat_usage;

/// A client for embeddings in OpenAI's format, created by [`OpenAi::embedder`](super::OpenAi::embedder).
///
/// ```
/// use rath::prelude::*;
///
/// # fn main() -> rath::Result<()> {
/// let embedder = OpenAi::new("nomic-embed").base_url("http://127.0.0.1:8080/v1")?.embedder().batch(64);
/// assert_eq!(embedder.identity().model, "nomic-embed");
/// # Ok(())
/// # }
/// ```
pub struct Embedder {
    identity: Identity,
    http: HttpClient,
    batch: usize,
    retry: Retry,
}

/// Vectors of the same length, one for each text.
///
/// Returned by [`Embedder::embed`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embeddings {
    /// The vectors, in the order of the texts.
    pub vectors: Vec<Vec<f32>>,
    /// The tokens used, as far as the provider reports them.
    pub usage: Usage,
}

#[derive(Deserialize)]
struct EmbeddingsReply<'a> {
    #[serde(default)]
    data: Vec<EmbeddingItem>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct EmbeddingItem {
    index: Option<usize>,
    embedding: Vec<f32>,
}

impl Embedder {
    pub(super) fn new(identity: Identity, http: HttpClient) -> Self {
        Embedder { identity, http, batch: 128, retry: Retry::default() }
    }

    /// Opens the embedder that a URI names, such as `openai:text-embedding-3-small`. Its key and its address are those of
    /// [`OpenAi::from_env`](super::OpenAi::from_env).
    pub fn open(uri: &str) -> Result<Self, ProviderError> {
        match uri.split_once(':') {
            Some(("openai", model)) if !model.trim().is_empty() => {
                Ok(OpenAi::from_env(model.trim(), &Env::process())?.embedder())
            }
            _ => {
                let message = format!("wanted a model for vectors such as `openai:MODEL`, found `{uri}`");
                let error = ProviderError::new(ProviderErrorKind::Setup, message);
                Err(error.with_hint("OPENAI_BASE_URL names another server than OpenAI's"))
            }
        }
    }

    /// Returns the provider and the model.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Sets the number of texts in one request; 0 counts as 1.
    pub fn batch(mut self, texts: usize) -> Self {
        self.batch = texts.max(1);
        self
    }

    /// Sets how often a request is tried.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Turns texts into vectors, with one request for each batch.
    pub async fn embed(&self, texts: &[impl AsRef<str>]) -> Result<Embeddings, ProviderError> {
        let mut embeddings = Embeddings::default();
        for batch in texts.chunks(self.batch) {
            let batch: Vec<&str> = batch.iter().map(AsRef::as_ref).collect();
            let (vectors, usage) = self.request(&batch).await?;
            embeddings.vectors.extend(vectors);
            embeddings.usage += usage;
        }
        let mut lengths = embeddings.vectors.iter().map(Vec::len);
        if let Some(first) = lengths.next()
            && let Some(other) = lengths.find(|length| *length != first)
        {
            let message = format!("vectors of different lengths: {first} and {other}");
            return Err(ProviderError::unreadable(message));
        }
        Ok(embeddings)
    }

    async fn request(&self, texts: &[&str]) -> Result<(Vec<Vec<f32>>, Usage), ProviderError> {
        let body = serde_json::json!({ "model": self.identity.model, "input": texts, "encoding_format": "float" });
        let body = bytes::Bytes::from(body.to_string());
        let (mut attempts, rejected) = (0, RejectedKeys::default());
        loop {
            let reply = self.http.fetch("/embeddings", body.clone(), &rejected).await;
            let error = match reply.and_then(|reply| parse_reply(&reply, texts.len())) {
                Ok(embeddings) => return Ok(embeddings),
                Err(error) => error,
            };
            attempts += u32::from(error.retry() != RetryAdvice::OtherKey);
            match self.retry.wait(attempts, &error) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
        }
    }
}

impl std::fmt::Debug for Embedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedder").field("identity", &self.identity).field("batch", &self.batch).finish_non_exhaustive()
    }
}

fn parse_reply(reply: &[u8], wanted: usize) -> Result<(Vec<Vec<f32>>, Usage), ProviderError> {
    let reply: EmbeddingsReply<'_> = serde_json::from_slice(reply)
        .map_err(|error| ProviderError::unreadable(format_args!("wanted embeddings: {error}")))?;
    if let Some(error) = reply.error {
        return Err(reported_error(error.get(), None, ProviderErrorKind::Refused));
    }
    // The vectors may arrive in any order.
    let mut vectors = vec![None; wanted];
    let found = reply.data.len();
    for (nth, item) in reply.data.into_iter().enumerate() {
        if let Some(vector) = vectors.get_mut(item.index.unwrap_or(nth)) {
            *vector = Some(item.embedding).filter(|vector| !vector.is_empty());
        }
    }
    let vectors: Option<Vec<_>> = vectors.into_iter().collect();
    let vectors =
        vectors.ok_or_else(|| ProviderError::unreadable(format_args!("wanted {wanted} vectors, found {found}")))?;
    let usage = reply.usage.and_then(|usage| parse_chat_usage(usage.get())).unwrap_or_default();
    Ok((vectors, usage))
}
