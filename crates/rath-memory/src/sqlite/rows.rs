//! Rows of the table of notes, and the texts that have numbers. What cannot be read is left out.

use std::collections::HashMap;

use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, Row, Rows, Transaction, params};

use crate::docs::DocFacts;
use crate::error::Result;
use crate::note::{MAX_TEXT_BYTES, Note, NotePath, Source};
use crate::postings::{Doc, MAX_DOC};

/// The kinds of texts that have numbers.
#[derive(Clone, Copy)]
pub(super) enum NameKind {
    Path = 1,
    Session = 2,
    Thread = 3,
}

/// The columns of a note, in the order in which [`Names::note`] reads them.
pub(super) const NOTE_COLUMNS: &str =
    "n.doc, n.id, n.path, n.session, n.thread, n.before, n.at, n.expires, n.replaces, n.said_by, n.steps, n.text";

/// A row of the table of notes.
pub(super) struct StoredNote {
    pub(super) doc: Doc,
    pub(super) note: Note,
    /// The facts about the note but for its length.
    pub(super) facts: DocFacts,
    /// A part of the row cannot be read, and is left out or replaced: the note can be seen and forgotten all the same.
    pub(super) is_damaged: bool,
}

/// The texts that have numbers, as far as they were looked up.
pub(super) struct Names<'a> {
    transaction: &'a Transaction<'a>,
    texts: HashMap<u32, String>,
    numbers: HashMap<(u8, String), u32>,
}

impl<'a> Names<'a> {
    pub(super) fn new(transaction: &'a Transaction<'a>) -> Self {
        Names { transaction, texts: HashMap::new(), numbers: HashMap::new() }
    }

    fn text(&mut self, number: u32) -> Result<Option<String>> {
        if let Some(text) = self.texts.get(&number) {
            return Ok(Some(text.clone()));
        }
        let mut query = self.transaction.prepare_cached("SELECT text FROM names WHERE name = ?1")?;
        // One that cannot be read is as if it were not there.
        let text: Option<Option<String>> = query.query_row([number], |row| Ok(row.get(0).ok())).optional()?;
        let text = text.flatten();
        self.texts.extend(text.iter().map(|text| (number, text.clone())));
        Ok(text)
    }

    pub(super) fn find(&self, kind: NameKind, text: &str) -> Result<Option<u32>> {
        let mut query = self.transaction.prepare_cached("SELECT name FROM names WHERE kind = ?1 AND text = ?2")?;
        Ok(query.query_row(params![kind as u8, text], |row| row.get(0)).optional()?)
    }

    /// Returns the number of a text, and gives it one if it has none.
    pub(super) fn number(&mut self, kind: NameKind, text: &str) -> Result<u32> {
        let key = (kind as u8, text.to_owned());
        if let Some(number) = self.numbers.get(&key) {
            return Ok(*number);
        }
        let number = match self.find(kind, text)? {
            Some(number) => number,
            None => {
                let mut insert = self.transaction.prepare_cached("INSERT INTO names(kind, text) VALUES (?1, ?2)")?;
                insert.insert(params![kind as u8, text])? as u32
            }
        };
        self.numbers.insert(key, number);
        Ok(number)
    }

    /// Calls `visit` with each note of rows with [`NOTE_COLUMNS`], in the order of their numbers, until it returns false.
    ///
    /// A row that names no note is left out, and so is one that is not in order: the pages of a damaged file may lead in a circle.
    pub(super) fn each_note(
        &mut self,
        mut rows: Rows<'_>,
        after: Doc,
        mut visit: impl FnMut(StoredNote) -> bool,
    ) -> Result<()> {
        let mut before = after;
        while let Some(row) = rows.next()? {
            let Some(stored) = self.note(row)?.filter(|stored| stored.doc > before) else { continue };
            before = stored.doc;
            if !visit(stored) {
                break;
            }
        }
        Ok(())
    }

    fn note(&mut self, row: &Row<'_>) -> Result<Option<StoredNote>> {
        let doc = row.get::<_, Doc>(0).ok().filter(|doc| (1..=MAX_DOC).contains(doc));
        let id = row.get::<_, String>(1).ok().and_then(|id| id.parse().ok());
        let (Some(doc), Some(id)) = (doc, id) else { return Ok(None) };
        let (bytes, mut is_damaged) = match row.get_ref(11)? {
            ValueRef::Text(bytes) => (bytes, bytes.is_empty()),
            ValueRef::Blob(bytes) => (bytes, true),
            _ => (&[][..], true),
        };
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT_BYTES)]);
        is_damaged |= text.as_bytes() != bytes;
        let mut numbers = [0; 4];
        for (number, column) in numbers.iter_mut().zip(2..) {
            *number = row.get(column).unwrap_or_else(|_| {
                is_damaged = true;
                0
            });
        }
        let [path, session, thread, before] = numbers;
        let path_text = self.text(path)?.and_then(|path| path.parse().ok());
        is_damaged |= path_text.is_none();
        let mut note = Note::with_id(id, path_text.unwrap_or_else(NotePath::user), text);
        let (at, said_by) = (row.get(6), row.get(9));
        // These are in the index too.
        is_damaged |= at.is_err() || said_by.is_err();
        (note.at, note.said_by) = (at.unwrap_or_default(), said_by.unwrap_or_default());
        let (expires, replaces, steps) =
            (row.get(7), row.get::<_, Option<String>>(8), row.get::<_, Option<String>>(10));
        // These are not.
        let mut is_rest_damaged = expires.is_err() || replaces.is_err() || steps.is_err();
        note.expires = expires.unwrap_or_default();
        if let Some(id) = replaces.unwrap_or_default() {
            note.replaces = id.parse().ok();
            is_rest_damaged |= note.replaces.is_none();
        }
        if thread != 0 {
            note.thread = self.text(thread)?;
            is_rest_damaged |= note.thread.is_none();
        }
        if session != 0 {
            let steps = steps.unwrap_or_default().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
            note.source = self.text(session)?.map(|session| Source::new(session, steps));
            is_rest_damaged |= note.source.is_none();
        }
        note.is_damaged = is_damaged || is_rest_damaged;
        let facts = DocFacts { length: 0, before, session, path };
        Ok(Some(StoredNote { doc, note, facts, is_damaged }))
    }
}
