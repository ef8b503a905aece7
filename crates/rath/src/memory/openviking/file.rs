//! The file of a note: its text, and a line of JSON with the rest.

use rath_memory::{Note, NoteId, Query, Source};
use serde::{Deserialize, Serialize};

/// The ending of the names of files.
const ENDING: &str = ".md";
/// The length of the names without it.
const NAME_DIGITS: usize = 32;
/// The beginning and the end of the last line.
const START: &str = "<!-- rath-note ";
const END: &str = " -->";

/// A note, and what the memory knows of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NoteFile {
    pub(super) note: Note,
    /// The time at which it was written, in microseconds since 1970.
    pub(super) written: i64,
    /// The newer version of the note.
    pub(super) replaced_by: Option<NoteId>,
}

/// The last line of a file.
#[derive(Serialize, Deserialize)]
struct NoteDetails {
    id: String,
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    said_by: Option<String>,
    at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thread: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    steps: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replaces: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replaced_by: Option<String>,
    written: i64,
    /// The number of bytes of the text: services add line ends.
    bytes: usize,
}

/// Returns the name of the file of a note.
pub(super) fn file_name(id: &NoteId) -> String {
    format!("{}{ENDING}", &blake3::hash(id.as_str().as_bytes()).to_hex()[..NAME_DIGITS])
}

/// Returns true for a name that [`file_name`] returns.
pub(super) fn is_file_name(name: &str) -> bool {
    let digits = name.strip_suffix(ENDING).unwrap_or_default();
    digits.len() == NAME_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

impl NoteFile {
    /// Returns the content of the file.
    pub(super) fn to_text(&self) -> String {
        let note = &self.note;
        let (session, steps) =
            note.source.as_ref().map(|source| (source.session.clone(), source.steps.clone())).unzip();
        let details = NoteDetails {
            id: note.id.to_string(),
            path: note.path.to_string(),
            said_by: note.said_by.clone(),
            at: note.at,
            thread: note.thread.clone(),
            session,
            steps: steps.unwrap_or_default(),
            expires: note.expires,
            replaces: note.replaces.as_ref().map(ToString::to_string),
            replaced_by: self.replaced_by.as_ref().map(ToString::to_string),
            written: self.written,
            bytes: note.text.len(),
        };
        // Without `>` the line cannot end early.
        let details = serde_json::to_string(&details).unwrap_or_default().replace('>', "\\u003e");
        format!("{}\n\n{START}{details}{END}\n", note.text)
    }

    /// Parses the content of a file; none if it is not that of a note.
    pub(super) fn parse(content: &str) -> Option<Self> {
        let (_, line) = content.trim_end().rsplit_once('\n')?;
        let details: NoteDetails = serde_json::from_str(line.strip_prefix(START)?.strip_suffix(END)?).ok()?;
        let mut note =
            Note::with_id(details.id.parse().ok()?, details.path.parse().ok()?, content.get(..details.bytes)?);
        (note.said_by, note.at, note.thread, note.expires) =
            (details.said_by, details.at, details.thread, details.expires);
        note.source = details.session.map(|session| Source::new(session, details.steps));
        note.replaces = details.replaces.map(|id| id.parse()).transpose().ok()?;
        note.check().ok()?;
        let replaced_by = details.replaced_by.map(|id| id.parse()).transpose().ok()?;
        Some(NoteFile { note, written: details.written, replaced_by })
    }

    /// Returns true if a question may find the note.
    pub(super) fn is_found_by(&self, query: &Query) -> bool {
        let note = &self.note;
        let is_under = query.under.is_empty() || query.under.iter().any(|path| note.path.is_under(path));
        let is_expired = note.expires.is_some_and(|expires| expires <= query.now);
        let of_session = note.source.as_ref().is_some_and(|source| query.session.as_ref() == Some(&source.session));
        let is_of_other_branch = of_session && !query.own.contains(&note.id);
        is_under && !is_expired && !is_of_other_branch && self.replaced_by.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_survives_its_file() {
        let id: NoteId = "a-note/../x".parse().expect("an id");
        let mut note = Note::with_id(id, "memory://shared/a".parse().expect("a path"), "Two\nlines --> <!-- ü\n\n");
        note = note.said_by("Ann -->").at(7).thread("t").expires(9).replaces("old".parse().expect("an id"));
        note = note.source(Source::new("s", vec!["1a".to_owned()]));
        let file = NoteFile { note, written: 5, replaced_by: Some("new".parse().expect("an id")) };
        let text = file.to_text();
        assert_eq!(NoteFile::parse(&text).as_ref(), Some(&file));
        assert_eq!(NoteFile::parse(text.trim_end()).as_ref(), Some(&file), "{text}");
        assert!(is_file_name(&file_name(&file.note.id)));
        for other in ["", "text", "<!-- rath-note {} -->", "a\n<!-- rath-note {} -->", &text[..text.len() - 9]] {
            assert_eq!(NoteFile::parse(other), None, "{other}");
        }
    }
}
