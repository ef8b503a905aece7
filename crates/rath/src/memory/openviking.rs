//! A memory in an OpenViking service.
//!
//! Each note is two files of the service: its text alone, which the service searches, and the note, with one line for all but the text. The
//! service makes a vector of a whole file, so that line would make a note less similar to its questions. What a question may find is decided
//! here.

mod client;
mod file;
mod index;

use std::collections::{HashMap, HashSet};

use rath_memory::{Hit, Lookup, Note, NoteId, NotePath, Position, Query};
use serde_json::{Value, json};

use self::client::{ServiceAnswer, ServiceClient};
use self::file::{NoteFile, file_name, is_file_name};
use self::index::NoteIndex;
use super::{Forget, Hits, MemoryBackend, MemoryCapabilities, MemoryError, MemoryErrorKind, NotePage, now};

/// The directory of the notes in the service.
const NOTES_URI: &str = "viking://resources/rath-notes";
/// The directory of their texts, which is searched.
const TEXTS_URI: &str = "viking://resources/rath-notes/texts";
/// The most notes that a memory lists.
const MAX_NOTES: usize = 10_000;
/// The number of files that are asked for, for each note that is wanted: some may not be found by the question.
const FILES_PER_NOTE: usize = 4;
/// The most damaged files that a notice names.
const MAX_NAMED_FILES: usize = 5;
/// The score from which on a text is found, unless another one is set: a cosine of 0.3.
const DEFAULT_MIN_SCORE: f32 = 0.65;

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
    index: NoteIndex,
}

/// A file in the directory of the notes.
enum StoredFile {
    Note(Box<NoteFile>),
    /// It is no note of rath, or not any more.
    Damaged,
    Missing,
}

impl OpenViking {
    /// Creates a memory in the service at an address such as `http://127.0.0.1:1933`, without a key.
    pub fn new(address: &str) -> Result<Self, MemoryError> {
        let client = ServiceClient::new(address)?;
        let uri = format!("openviking:{}", client.address());
        Ok(OpenViking { uri, client, min_score: DEFAULT_MIN_SCORE, index: NoteIndex::default() })
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

    /// Sets the score from which on a note is found, from 0 to 1. The default is 0.65; what fits depends on the model of the service.
    ///
    /// Unless the service is configured otherwise, its score for a cosine of `c` is `(1 + c) / 2`: 0.5 for texts that have nothing to do
    /// with each other.
    pub fn min_score(mut self, score: f32) -> Self {
        self.min_score = score;
        self
    }

    /// Reads a file.
    async fn read_file(&self, name: &str) -> Result<StoredFile, MemoryError> {
        let uri = uri_of(name);
        let query = [("uri", uri.as_str()), ("raw", "true")];
        let result = match self.client.get("/api/v1/content/read", &query).await? {
            ServiceAnswer::Missing => return Ok(StoredFile::Missing),
            ServiceAnswer::Result(result) => result,
        };
        let text = result.as_str().or_else(|| result.get("content")?.as_str());
        Ok(text.and_then(NoteFile::parse).map_or(StoredFile::Damaged, |file| StoredFile::Note(Box::new(file))))
    }

    /// Reads the file of one note, if there is one. A damaged one is an error.
    async fn read_note(&self, id: &NoteId) -> Result<Option<NoteFile>, MemoryError> {
        match self.read_file(&file_name(id)).await? {
            StoredFile::Note(file) => Ok(Some(*file)),
            StoredFile::Missing => Ok(None),
            StoredFile::Damaged => {
                let message =
                    format!("the file {} of the OpenViking service is no note of rath", uri_of(&file_name(id)));
                Err(MemoryError::new(MemoryErrorKind::Damaged, message))
            }
        }
    }

    /// Writes the file of a note.
    async fn write_note(&self, file: &NoteFile) -> Result<(), MemoryError> {
        self.write_file(&uri_of(&file_name(&file.note.id)), &file.to_text()).await
    }

    /// Writes a file, new or not, and waits until it can be found.
    async fn write_file(&self, uri: &str, content: &str) -> Result<(), MemoryError> {
        let body = json!({
            "uri": uri,
            "content": content,
            "mode": "replace",
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
        // The directory of the texts is in the list too.
        let limit = (MAX_NOTES + 2).to_string();
        let query = [("uri", NOTES_URI), ("simple", "true"), ("output", "original"), ("node_limit", &limit)];
        let listed = match self.client.get("/api/v1/fs/ls", &query).await? {
            ServiceAnswer::Missing => return Ok(Vec::new()),
            ServiceAnswer::Result(Value::Array(entries)) => entries,
            ServiceAnswer::Result(_) => return Err(self.client.unreadable("a list of files is no list")),
        };
        if listed.len() > MAX_NOTES + 1 {
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

/// Returns the URI of a file in the directory of the notes.
fn uri_of(name: &str) -> String {
    format!("{NOTES_URI}/{name}")
}

/// Returns a notice about files that were left out, if there are some.
fn damage_notice(damaged: &[String]) -> Option<String> {
    let named: Vec<String> = damaged.iter().take(MAX_NAMED_FILES).map(|name| uri_of(name)).collect();
    let more = damaged.len().checked_sub(MAX_NAMED_FILES).filter(|more| *more > 0);
    let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
    let named = named.join(", ");
    (!damaged.is_empty()).then(|| format!("left out, since they are no notes of rath or damaged: {named}{more}"))
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
            if self.read_note(&note.id).await?.is_none() {
                // The text first: where the service cannot make its vector, it keeps the file and answers with an error. Without the file
                // of the note it is written again.
                self.write_file(&format!("{TEXTS_URI}/{}", file_name(&note.id)), &note.text).await?;
                self.write_note(&NoteFile { note: note.clone(), written: now(), replaced_by: None }).await?;
            }
            // Also if the note was there: an earlier attempt may have come no further.
            let Some(replaced) = &note.replaces else { continue };
            // The old version can be read, and is not found any more. A damaged one is not found anyway.
            if let StoredFile::Note(old) = self.read_file(&file_name(replaced)).await?
                && old.replaced_by.is_none()
            {
                self.write_note(&NoteFile { replaced_by: Some(note.id.clone()), ..*old }).await?;
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
            "target_uri": TEXTS_URI,
            "limit": query.limit.saturating_mul(FILES_PER_NOTE).min(MAX_NOTES),
            "score_threshold": self.min_score,
        });
        let found = match self.client.post("/api/v1/search/find", &body).await? {
            ServiceAnswer::Missing => return Ok(Hits::default()),
            ServiceAnswer::Result(found) => found,
        };
        let (mut hits, mut damaged): (Vec<Hit>, Vec<String>) = Default::default();
        // No more than was asked for: each is a request.
        for (name, score) in
            found_files(&found).into_iter().take(query.limit.saturating_mul(FILES_PER_NOTE).min(MAX_NOTES))
        {
            // The text has no path, time and source: the note is read.
            match self.read_file(&name).await? {
                StoredFile::Note(file) if file.is_found_by(query) => hits.push(Hit::similar(file.note, score)),
                StoredFile::Note(_) | StoredFile::Missing => {}
                StoredFile::Damaged => damaged.push(name),
            }
            if hits.len() == query.limit {
                break;
            }
        }
        hits.sort_by(|one, other| other.score.total_cmp(&one.score));
        Ok(Hits { list: hits, notice: damage_notice(&damaged) })
    }

    async fn read(&self, id: &NoteId) -> Result<Lookup, MemoryError> {
        Ok(match self.read_note(id).await? {
            // Of two ids with one digest, one is unknown.
            Some(file) if file.note.id == *id => Lookup::Note(Box::new(file.note)),
            _ => Lookup::Unknown,
        })
    }

    /// Returns notes in the order in which they were written. Their positions are the places in that order.
    ///
    /// The first list reads all files, to find out the order; after that, each reads those of the notes that it returns.
    async fn list(&self, under: &[NotePath], after: Position, limit: usize) -> Result<NotePage, MemoryError> {
        let (mut files, mut damaged) = (HashMap::new(), Vec::new());
        for name in self.index.unknown(self.file_names().await?) {
            match self.read_file(&name).await? {
                StoredFile::Note(file) => _ = files.insert(name, *file),
                StoredFile::Damaged => damaged.push(name),
                StoredFile::Missing => {}
            }
        }
        self.index.add(files.iter());
        let mut list = Vec::new();
        for (position, entry) in self.index.after(after, under) {
            if list.len() >= limit {
                break;
            }
            let stored = match files.remove(&entry.name) {
                Some(file) => StoredFile::Note(Box::new(file)),
                None => self.read_file(&entry.name).await?,
            };
            match stored {
                StoredFile::Note(file) => list.push((position, file.note)),
                StoredFile::Damaged => damaged.push(entry.name),
                StoredFile::Missing => {}
            }
        }
        Ok(NotePage { list, notice: damage_notice(&damaged) })
    }

    async fn forget(&self, _what: &Forget) -> Result<Vec<NoteId>, MemoryError> {
        let message =
            "an OpenViking memory cannot forget for good: the service may keep copies, of which rath does not know";
        Err(MemoryError::new(MemoryErrorKind::Unsupported, message)
            .with_hint(format!("remove the files below {NOTES_URI} with the tools of the service")))
    }
}
