//! A note: a short text, its path, and its origin.

use std::fmt;
use std::str::FromStr;

use crate::error::{NoteError, Result};

/// The most bytes of a note's text.
pub const MAX_TEXT_BYTES: usize = 64 << 10;
/// The most bytes of an id.
pub const MAX_ID_BYTES: usize = 128;
/// The most bytes of a path.
const MAX_PATH_BYTES: usize = 512;

/// A short text that can be found again.
///
/// ```
/// use rath_memory::Note;
///
/// let note = Note::new("Deploy with `make ship`.").path("memory://shared/deploy".parse()?).said_by("Ann");
/// assert_eq!(note.path.to_string(), "memory://shared/deploy");
/// # Ok::<(), rath_memory::NoteError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// The name of the note.
    pub id: NoteId,
    /// The place of the note among others.
    pub path: NotePath,
    /// The text.
    pub text: String,
    /// The name of the person or agent who said it.
    pub said_by: Option<String>,
    /// The time at which it was said, in microseconds since 1970.
    pub at: i64,
    /// The conversation that it is a part of. Notes of one thread are neighbours in the order in which they are written.
    pub thread: Option<String>,
    /// The session that it came from.
    pub source: Option<Source>,
    /// The time from which it is no longer found, in microseconds since 1970.
    pub expires: Option<i64>,
    /// The note that this one is a new version of.
    pub replaces: Option<NoteId>,
    /// A part of the note could not be read from the file of its memory, and is left out or replaced.
    pub is_damaged: bool,
}

/// The session that a note came from.
///
/// Part of [`Note`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Source {
    /// The session. Its notes are found by other sessions; on its own branches, by those that say that they have them.
    pub session: String,
    /// The steps of the session that hold what the note says.
    pub steps: Vec<String>,
}

impl Source {
    /// Makes a source of a session and its steps.
    pub fn new(session: impl Into<String>, steps: Vec<String>) -> Self {
        Source { session: session.into(), steps }
    }
}

impl Note {
    /// Makes a note with a random id in `memory://user`.
    pub fn new(text: impl Into<String>) -> Self {
        Note::with_id(NoteId::random(), NotePath::user(), text)
    }

    /// Makes a note with this id. A note whose id is known already is not written again.
    pub fn with_id(id: NoteId, path: NotePath, text: impl Into<String>) -> Self {
        Note {
            id,
            path,
            text: text.into(),
            said_by: None,
            at: 0,
            thread: None,
            source: None,
            expires: None,
            replaces: None,
            is_damaged: false,
        }
    }

    /// Sets the path.
    pub fn path(mut self, path: NotePath) -> Self {
        self.path = path;
        self
    }

    /// Sets the name of the person or agent who said it.
    pub fn said_by(mut self, name: impl Into<String>) -> Self {
        self.said_by = Some(name.into());
        self
    }

    /// Sets the time at which it was said, in microseconds since 1970.
    pub fn at(mut self, micros: i64) -> Self {
        self.at = micros;
        self
    }

    /// Sets the conversation that it is a part of.
    pub fn thread(mut self, thread: impl Into<String>) -> Self {
        self.thread = Some(thread.into());
        self
    }

    /// Sets the session that it came from.
    pub fn source(mut self, source: Source) -> Self {
        self.source = Some(source);
        self
    }

    /// Sets the time from which it is no longer found, in microseconds since 1970.
    pub fn expires(mut self, micros: i64) -> Self {
        self.expires = Some(micros);
        self
    }

    /// Makes it a new version of a note.
    pub fn replaces(mut self, id: NoteId) -> Self {
        self.replaces = Some(id);
        self
    }

    /// Checks that the note can be stored: it has a text, which is not too long.
    pub fn check(&self) -> Result<()> {
        if self.text.trim().is_empty() {
            return Err(NoteError::Invalid("a note needs a text".to_owned()));
        }
        if self.text.len() > MAX_TEXT_BYTES {
            let bytes = self.text.len();
            return Err(NoteError::Invalid(format!(
                "a note has at most {MAX_TEXT_BYTES} bytes of text, found {bytes}"
            )));
        }
        if self.replaces.as_ref() == Some(&self.id) {
            return Err(NoteError::Invalid("a note cannot replace itself".to_owned()));
        }
        Ok(())
    }
}

/// The name of a note: a short text without spaces.
///
/// ```
/// use rath_memory::NoteId;
///
/// let id = NoteId::random();
/// assert_eq!(id.to_string().parse::<NoteId>()?, id);
/// assert!("two words".parse::<NoteId>().is_err());
/// # Ok::<(), rath_memory::NoteError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoteId(String);

impl NoteId {
    /// Makes an id that no other note has: 32 hexadecimal digits.
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        // Without randomness of the system nothing here is safe to go on with.
        getrandom::fill(&mut bytes).expect("the system has randomness");
        NoteId(format!("{:032x}", u128::from_be_bytes(bytes)))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NoteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for NoteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for NoteId {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self> {
        let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
        if text.is_empty() || text.len() > MAX_ID_BYTES || !text.chars().all(is_plain) {
            let text = text.escape_debug();
            return Err(NoteError::Invalid(format!(
                "`{text}` is no id of a note: an id has 1 to {MAX_ID_BYTES} bytes, no spaces"
            )));
        }
        Ok(NoteId(text.to_owned()))
    }
}

/// The scopes that a path begins with.
const SCOPES: [&str; 4] = ["user", "agent", "session", "shared"];

/// The place of a note among others: a scope and a path, as in `memory://shared/docs/deploy`.
///
/// The scopes are `user`, `agent`, `session` and `shared`.
///
/// ```
/// use rath_memory::NotePath;
///
/// let path: NotePath = "memory://user/preferences".parse()?;
/// assert!(path.is_under(&"memory://user".parse()?));
/// assert!("memory://elsewhere".parse::<NotePath>().is_err());
/// # Ok::<(), rath_memory::NoteError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NotePath(String);

impl NotePath {
    /// Returns `memory://user`.
    pub(crate) fn user() -> Self {
        NotePath("user".to_owned())
    }

    /// Returns true if the path is this one, or begins with its parts.
    pub fn is_under(&self, other: &NotePath) -> bool {
        is_under(&self.0, other)
    }

    /// Returns the scope and the path, without `memory://`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns true if a path, without `memory://`, is `under` or below it.
pub(crate) fn is_under(path: &str, under: &NotePath) -> bool {
    path.strip_prefix(under.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl fmt::Display for NotePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory://{}", self.0)
    }
}

impl FromStr for NotePath {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self> {
        let invalid =
            |reason: &str| NoteError::Invalid(format!("`{}` is no path of a note: {reason}", text.escape_debug()));
        let path = text.strip_prefix("memory://").unwrap_or(text).trim_end_matches('/');
        let scope = path.split('/').next().unwrap_or_default();
        if !SCOPES.contains(&scope) {
            return Err(invalid(&format!(
                "it begins with one of {}",
                SCOPES.map(|scope| format!("memory://{scope}")).join(", ")
            )));
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(invalid("it is too long"));
        }
        if path.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
            return Err(invalid("a part of it is empty or made of dots"));
        }
        if path.chars().any(char::is_control) {
            return Err(invalid("it has a control character"));
        }
        Ok(NotePath(path.to_owned()))
    }
}
