//! A memory in an OpenViking service.
//!
//! Each note is a file of its own below one directory of the service: the text, which the service makes searchable, and one line with the
//! rest. Questions are answered by the search of the service; what they may find is decided here.

mod client;
mod file;

use std::collections::HashSet;

use rath_memory::{Hit, Lookup, Note, NoteId, NotePath, Position, Query};
use serde_json::{Value, json};

use self::client::{ServiceAnswer, ServiceClient};
use self::file::{NoteFile, file_name, is_file_name};
use super::{Forget, Hits, MemoryBackend, MemoryCapabilities, MemoryError, MemoryErrorKind, now};

/// The directory of the notes in the service.
const NOTES_URI: &str = "viking://resources/rath-notes";
/// The most notes that a memory lists.
const MAX_NOTES: usize = 10_000;
/// The number of files that are asked for, for each note that is wanted: some may not be found by the question.
const FILES_PER_NOTE: usize = 4;
/// The similarity from which on a file is found, unless another one is set.
const DEFAULT_MIN_SCORE: f32 = 0.3;

/// A memory in an [OpenViking](https://github.com/volcengine/OpenViking) service, which other programs can search too.
///
/// Notes are found by the vectors of the service's model. It has no positions, and forgets nothing for good: [`Memory::forget`] is an error
/// that says so.
///
/// ```
/// use rath::Memory;
/// use rath::memory::OpenViking;
///
/// # fn main() -> Result<(), rath::memory::MemoryError> {
/// let memory = Memory::new(OpenViking::new("http://127.0.0.1:1933")?.key("secret"));
/// assert_eq!(memory.uri(), "openviking:http://127.0.0.1:1933");
/// assert!(!memory.capabilities().forgets);
/// # Ok(())
/// # }
/// ```
///
/// [`Memory::forget`]: super::Memory::forget
pub struct OpenViking {
    uri: String,
    client: ServiceClient,
    min_score: f32,
}

impl OpenViking {
    /// Creates a memory in the service at an address such as `http://127.0.0.1:1933`, without a key.
    pub fn new(address: &str) -> Result<Self, MemoryError> {
        let client = ServiceClient::new(address)?;
        let uri = format!("openviking:{}", client.address());
        Ok(OpenViking { uri, client, min_score: DEFAULT_MIN_SCORE })
    }

    /// Creates a memory in the service at an address, with the key in `OPENVIKING_API_KEY` if that is set.
    pub fn from_env(address: &str) -> Result<Self, MemoryError> {
        let memory = OpenViking::new(address)?;
        Ok(match std::env::var("OPENVIKING_API_KEY").ok().filter(|key| !key.trim().is_empty()) {
            Some(key) => memory.key(key),
            None => memory,
        })
    }

    /// Sets the key.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.client.set_key(key.into());
        self
    }

    /// Sets the similarity from which on a note is found, from 0 to 1. The default is 0.3; what fits depends on the model of the service.
    pub fn min_score(mut self, score: f32) -> Self {
        self.min_score = score;
        self
    }

    /// Reads the file of a note, if there is one.
    async fn read_file(&self, name: &str) -> Result<Option<NoteFile>, MemoryError> {
        let uri = format!("{NOTES_URI}/{name}");
        let query = [("uri", uri.as_str()), ("raw", "true")];
        match self.client.get("/api/v1/content/read", &query).await? {
            ServiceAnswer::Missing => Ok(None),
            ServiceAnswer::Result(result) => {
                let text = result.as_str().or_else(|| result.get("content")?.as_str());
                let text = text.ok_or_else(|| self.client.unreadable("a file has no text"))?;
                NoteFile::parse(text).map(Some).ok_or_else(|| {
                    let message = format!("the file {uri} of the OpenViking service is no note of rath");
                    MemoryError::new(MemoryErrorKind::Damaged, message)
                })
            }
        }
    }

    /// Writes the file of a note, and waits until it can be found.
    async fn write_file(&self, file: &NoteFile, mode: &str) -> Result<(), MemoryError> {
        let body = json!({
            "uri": format!("{NOTES_URI}/{}", file_name(&file.note.id)),
            "content": file.to_text(),
            "mode": mode,
            "wait": true,
            "processing_mode": "vectors_only",
        });
        match self.client.post("/api/v1/content/write", &body).await? {
            ServiceAnswer::Result(_) => Ok(()),
            ServiceAnswer::Missing => Err(self.client.unreadable("a note cannot be written: its directory is missing")),
        }
    }

    /// Returns the names of the files of all notes.
    async fn file_names(&self) -> Result<Vec<String>, MemoryError> {
        let limit = (MAX_NOTES + 1).to_string();
        let query = [("uri", NOTES_URI), ("simple", "true"), ("output", "original"), ("node_limit", &limit)];
        let listed = match self.client.get("/api/v1/fs/ls", &query).await? {
            ServiceAnswer::Missing => return Ok(Vec::new()),
            ServiceAnswer::Result(Value::Array(entries)) => entries,
            ServiceAnswer::Result(_) => return Err(self.client.unreadable("a list of files is no list")),
        };
        if listed.len() > MAX_NOTES {
            let message = format!("the memory has more than {MAX_NOTES} notes, and cannot be listed");
            return Err(MemoryError::new(MemoryErrorKind::Invalid, message));
        }
        let name = |entry: &Value| {
            let path = entry.as_str().or_else(|| ["uri", "name"].iter().find_map(|name| entry.get(name)?.as_str()))?;
            let name = path.trim_end_matches('/').rsplit('/').next()?;
            is_file_name(name).then(|| name.to_owned())
        };
        Ok(listed.iter().filter_map(name).collect())
    }
}

/// Returns the files of notes in an answer to a question, each with its similarity.
fn found_files(found: &Value) -> Vec<(String, f32)> {
    let (mut files, mut seen) = (Vec::new(), HashSet::new());
    for list in ["resources", "memories", "skills"] {
        for item in found.get(list).and_then(Value::as_array).into_iter().flatten() {
            let uri = item.get("uri").and_then(Value::as_str).unwrap_or_default();
            let name = uri.rsplit('/').next().unwrap_or_default();
            let score = item.get("score").and_then(Value::as_f64).unwrap_or_default() as f32;
            // Not what the service adds, such as the summary of a directory.
            if is_file_name(name) && score > 0.0 && score.is_finite() && seen.insert(name) {
                files.push((name.to_owned(), score.min(1.0)));
            }
        }
    }
    files
}

impl MemoryBackend for OpenViking {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn capabilities(&self) -> MemoryCapabilities {
        MemoryCapabilities { forgets: false }
    }

    /// Writes one note after the other. If one cannot be written, those before it are; writing all again adds the others.
    async fn remember(&self, notes: &[Note]) -> Result<Option<Position>, MemoryError> {
        notes.iter().try_for_each(Note::check)?;
        for note in notes {
            if self.read_file(&file_name(&note.id)).await?.is_some() {
                continue;
            }
            self.write_file(&NoteFile { note: note.clone(), written: now(), replaced_by: None }, "create").await?;
            let Some(replaced) = &note.replaces else { continue };
            // The old version can be read, and is not found any more.
            if let Some(old) = self.read_file(&file_name(replaced)).await? {
                self.write_file(&NoteFile { replaced_by: Some(note.id.clone()), ..old }, "replace").await?;
            }
        }
        Ok(None)
    }

    async fn position(&self) -> Result<Option<Position>, MemoryError> {
        Ok(None)
    }

    async fn recall(&self, query: &Query) -> Result<Hits, MemoryError> {
        if query.as_of.is_some() {
            let message = "an OpenViking memory has no positions: it cannot be asked for what was known earlier";
            return Err(MemoryError::new(MemoryErrorKind::Unsupported, message));
        }
        if query.text.trim().is_empty() || query.limit == 0 {
            return Ok(Hits::default());
        }
        let body = json!({
            "query": query.text,
            "target_uri": NOTES_URI,
            "limit": query.limit.saturating_mul(FILES_PER_NOTE).min(MAX_NOTES),
            "score_threshold": self.min_score,
        });
        let found = match self.client.post("/api/v1/search/find", &body).await? {
            ServiceAnswer::Missing => return Ok(Hits::default()),
            ServiceAnswer::Result(found) => found,
        };
        let mut hits: Vec<Hit> = Vec::new();
        // No more than was asked for: each is a request.
        for (name, score) in
            found_files(&found).into_iter().take(query.limit.saturating_mul(FILES_PER_NOTE).min(MAX_NOTES))
        {
            // What the service shows of a file may be a summary: the note is read.
            let Some(file) = self.read_file(&name).await? else { continue };
            if file.is_found_by(query) {
                hits.push(Hit::similar(file.note, score));
            }
            if hits.len() == query.limit {
                break;
            }
        }
        hits.sort_by(|one, other| other.score.total_cmp(&one.score));
        Ok(hits.into())
    }

    async fn read(&self, id: &NoteId) -> Result<Lookup, MemoryError> {
        Ok(match self.read_file(&file_name(id)).await? {
            // Of two ids with one digest, one is unknown.
            Some(file) if file.note.id == *id => Lookup::Note(Box::new(file.note)),
            _ => Lookup::Unknown,
        })
    }

    /// Returns notes in the order in which they were written. Their positions are the places in that order.
    async fn list(
        &self,
        under: &[NotePath],
        after: Position,
        limit: usize,
    ) -> Result<Vec<(Position, Note)>, MemoryError> {
        let mut files = Vec::new();
        for name in self.file_names().await? {
            files.extend(self.read_file(&name).await?);
        }
        files.sort_by(|one, other| (one.written, &one.note.id).cmp(&(other.written, &other.note.id)));
        let numbered = files.into_iter().zip(1..).map(|(file, nth)| (Position(nth), file.note));
        let is_wanted = |note: &Note| under.is_empty() || under.iter().any(|path| note.path.is_under(path));
        let wanted = numbered.filter(|(position, note)| *position > after && is_wanted(note));
        Ok(wanted.take(limit).collect())
    }

    async fn forget(&self, _what: &Forget) -> Result<Vec<NoteId>, MemoryError> {
        let message =
            "an OpenViking memory cannot forget for good: the service may keep copies, of which rath does not know";
        Err(MemoryError::new(MemoryErrorKind::Unsupported, message)
            .with_hint(format!("remove the files below {NOTES_URI} with the tools of the service")))
    }
}
