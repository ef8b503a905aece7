//! Texts as vectors.

use rath_record::Usage;
use rath_record::chunk::Identity;
use serde::Deserialize;
use serde_json::Value;

use super::answer::Failure;
use super::assemble::reported;
use super::http::Http;
use super::keys::Refused;
use super::retry::{self, Retry};
use crate::error::ErrorKind;
use crate::session::Result;

/// A client for embeddings of the OpenAI shape. Made by [`OpenAi::embedder`](super::OpenAi::embedder).
pub struct Embedder {
    identity: Identity,
    http: Http,
    batch: usize,
    retry: Retry,
}

/// Vectors, one for each text, all of the same length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embedded {
    /// The vectors, in the order of the texts.
    pub vectors: Vec<Vec<f32>>,
    /// What they cost, as far as the provider said.
    pub usage: Usage,
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    data: Vec<Item>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Item {
    index: Option<usize>,
    embedding: Vec<f32>,
}

impl Embedder {
    pub(super) fn new(identity: Identity, http: Http) -> Self {
        Embedder { identity, http, batch: 128, retry: Retry::default() }
    }

    /// Which provider and model.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Sets how many texts go into one request; none counts as one.
    pub fn batch(mut self, texts: usize) -> Self {
        self.batch = texts.max(1);
        self
    }

    /// Sets how often a request is tried.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Turns texts into vectors, in as many requests as it takes.
    pub async fn embed(&self, texts: &[impl AsRef<str>]) -> Result<Embedded> {
        let mut embedded = Embedded::default();
        for batch in texts.chunks(self.batch) {
            let batch: Vec<&str> = batch.iter().map(AsRef::as_ref).collect();
            let (vectors, usage) = self.request(&batch).await?;
            embedded.vectors.extend(vectors);
            embedded.usage += usage;
        }
        let mut lengths = embedded.vectors.iter().map(Vec::len);
        if let Some(first) = lengths.next()
            && let Some(other) = lengths.find(|length| *length != first)
        {
            let message = format!("vectors of different lengths: {first} and {other}");
            return Err(Failure::unreadable(message).into());
        }
        Ok(embedded)
    }

    async fn request(&self, texts: &[&str]) -> Result<(Vec<Vec<f32>>, Usage)> {
        let body = serde_json::json!({ "model": self.identity.model, "input": texts, "encoding_format": "float" });
        let body = bytes::Bytes::from(body.to_string());
        let (mut made, refused) = (0, Refused::default());
        loop {
            let fetched = self.http.fetch("/embeddings", body.clone(), &refused).await;
            let failure = match fetched.and_then(|reply| read(&reply, texts.len())) {
                Ok(embedded) => return Ok(embedded),
                Err(failure) => failure,
            };
            made += u32::from(failure.again != super::Again::OtherKey);
            match self.retry.wait(made, &failure, retry::random()) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(failure.into()),
            }
        }
    }
}

impl std::fmt::Debug for Embedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedder").field("identity", &self.identity).field("batch", &self.batch).finish_non_exhaustive()
    }
}

fn read(reply: &[u8], wanted: usize) -> Result<(Vec<Vec<f32>>, Usage), Failure> {
    let reply: Reply = serde_json::from_slice(reply)
        .map_err(|error| Failure::unreadable(format_args!("wanted embeddings: {error}")))?;
    if let Some(error) = reply.error {
        return Err(reported(&error, None, ErrorKind::Refused));
    }
    // They need not come in order.
    let mut vectors = vec![None; wanted];
    let found = reply.data.len();
    for (nth, item) in reply.data.into_iter().enumerate() {
        if let Some(place) = vectors.get_mut(item.index.unwrap_or(nth)) {
            *place = Some(item.embedding).filter(|vector| !vector.is_empty());
        }
    }
    let vectors: Option<Vec<_>> = vectors.into_iter().collect();
    let vectors = vectors.ok_or_else(|| Failure::unreadable(format_args!("wanted {wanted} vectors, found {found}")))?;
    let usage = reply.usage.as_ref().and_then(super::usage::chat).unwrap_or_default();
    Ok((vectors, usage))
}
