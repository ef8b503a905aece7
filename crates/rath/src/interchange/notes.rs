//! Notes for the user about what an import or an export lost.

use std::cell::{Cell, RefCell};
use std::fmt;

use rath_record::draw;

use crate::secrets::Secrets;

/// A part of a file or of a session that an import or an export could not take over as it is.
///
/// Its `Display` is a line for people; programs compare the code.
///
/// ```
/// use rath::interchange::{NoteCode, openrath};
/// use rath::prelude::*;
///
/// let mut session = Session::user("hello");
/// session.push(Chunk::note("a remark"));
/// let note = &openrath::write(&session).notes[0];
/// assert_eq!(note.code, NoteCode::LeftOut);
/// assert_eq!(note.to_string(), "1 note left out: the format holds only what a model reads");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The kind of loss.
    pub code: NoteCode,
    /// A sentence that names the part.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The kinds of loss at an import or an export.
///
/// Part of [`Note`]. `Display` is the name of the code, which does not change between versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoteCode {
    /// It is in the source and not in the result.
    LeftOut,
    /// It is in the result in another form.
    Changed,
    /// The source does not have it.
    Missing,
    /// It cannot be read.
    Damaged,
    /// It is not what the format says, and was read as far as possible.
    Invalid,
    /// Two parts of the file contradict each other.
    Mismatch,
    /// A call has no result.
    InDoubt,
    /// It is in another file, which was not read.
    Elsewhere,
    /// The file is of a newer version.
    Newer,
}

impl NoteCode {
    /// Returns the name of the code.
    pub fn as_str(self) -> &'static str {
        match self {
            NoteCode::LeftOut => "left_out",
            NoteCode::Changed => "changed",
            NoteCode::Missing => "missing",
            NoteCode::Damaged => "damaged",
            NoteCode::Invalid => "invalid",
            NoteCode::Mismatch => "mismatch",
            NoteCode::InDoubt => "in_doubt",
            NoteCode::Elsewhere => "elsewhere",
            NoteCode::Newer => "newer",
        }
    }
}

impl fmt::Display for NoteCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The largest number of separate notes; the others are only counted.
///
/// A file in another format than it seems to be can give a note for every row.
const MAX_NOTES: usize = 100;

/// The notes of one import or export.
#[derive(Default)]
pub(super) struct Notes {
    list: RefCell<Vec<Note>>,
    /// The number of notes beyond [`MAX_NOTES`], and the code of the first of them.
    omitted: Cell<Option<(u64, NoteCode)>>,
    /// Things that occur many times and get one note together: the thing, its number, and the reason.
    counted: RefCell<Vec<CountedNote>>,
}

/// Things that get one note together.
struct CountedNote {
    code: NoteCode,
    thing: &'static str,
    number: u64,
    reason: &'static str,
}

impl Notes {
    /// Adds a note.
    pub(super) fn add(&self, code: NoteCode, text: impl Into<String>) {
        let mut list = self.list.borrow_mut();
        if list.len() < MAX_NOTES {
            list.push(Note { code, text: text.into() });
        } else {
            let (number, first) = self.omitted.get().unwrap_or((0, code));
            self.omitted.set(Some((number + 1, first)));
        }
    }

    /// Counts one `thing`. All things with the same `reason` get one note together.
    pub(super) fn count(&self, code: NoteCode, thing: &'static str, reason: &'static str) {
        self.count_many(code, 1, thing, reason);
    }

    /// Counts `number` things. All things with the same `reason` get one note together.
    pub(super) fn count_many(&self, code: NoteCode, number: u64, thing: &'static str, reason: &'static str) {
        if number == 0 {
            return;
        }
        let mut counted = self.counted.borrow_mut();
        match counted.iter_mut().find(|known| known.thing == thing && known.reason == reason) {
            Some(known) => known.number += number,
            None => counted.push(CountedNote { code, thing, number, reason }),
        }
    }

    /// Returns all notes without secrets.
    pub(super) fn into_list_hiding(self, secrets: &Secrets) -> Vec<Note> {
        let mut list = self.into_list();
        list.iter_mut().for_each(|note| secrets.hide(&note.text).into_iter().for_each(|hidden| note.text = hidden));
        list
    }

    /// Returns all notes.
    pub(super) fn into_list(self) -> Vec<Note> {
        let mut list = self.list.into_inner();
        if let Some((number, code)) = self.omitted.get() {
            list.push(Note { code, text: format!("{} like these", draw::count(number, "more note")) });
        }
        let counted = self.counted.into_inner();
        list.extend(counted.into_iter().map(|CountedNote { code, thing, number, reason }| Note {
            code,
            text: format!("{} {reason}", draw::count(number, thing)),
        }));
        list
    }
}
