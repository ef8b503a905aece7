//! Notes for the user about what an import or an export lost.

use std::cell::{Cell, RefCell};

use rath_record::draw;

use crate::secrets::Secrets;

/// The largest number of separate notes; the others are only counted.
///
/// A file in another format than it seems to be can give a note for every row.
const MAX_NOTES: usize = 100;

/// The notes of one import or export.
#[derive(Default)]
pub(super) struct Notes {
    list: RefCell<Vec<String>>,
    /// The number of notes beyond [`MAX_NOTES`].
    omitted: Cell<u64>,
    /// Things that occur many times and get one note together: the thing, its number, and the reason.
    counted: RefCell<Vec<(&'static str, u64, &'static str)>>,
}

impl Notes {
    /// Adds a note.
    pub(super) fn add(&self, note: impl Into<String>) {
        let mut list = self.list.borrow_mut();
        if list.len() < MAX_NOTES { list.push(note.into()) } else { self.omitted.set(self.omitted.get() + 1) }
    }

    /// Counts one `thing`. All things with the same `reason` get one note together.
    pub(super) fn count(&self, thing: &'static str, reason: &'static str) {
        self.count_many(1, thing, reason);
    }

    /// Counts `number` things. All things with the same `reason` get one note together.
    pub(super) fn count_many(&self, number: u64, thing: &'static str, reason: &'static str) {
        if number == 0 {
            return;
        }
        let mut counted = self.counted.borrow_mut();
        match counted.iter_mut().find(|(known, _, why)| *known == thing && *why == reason) {
            Some((_, total, _)) => *total += number,
            None => counted.push((thing, number, reason)),
        }
    }

    /// Returns all notes without secrets, one line each.
    pub(super) fn into_list_hiding(self, secrets: &Secrets) -> Vec<String> {
        let mut list = self.into_list();
        list.iter_mut().for_each(|note| secrets.hide(note).into_iter().for_each(|hidden| *note = hidden));
        list
    }

    /// Returns all notes, one line each.
    pub(super) fn into_list(self) -> Vec<String> {
        let mut list = self.list.into_inner();
        if self.omitted.get() > 0 {
            list.push(format!("{} like these", draw::count(self.omitted.get(), "more note")));
        }
        let counted = self.counted.into_inner();
        list.extend(
            counted.into_iter().map(|(thing, number, reason)| format!("{} {reason}", draw::count(number, thing))),
        );
        list
    }
}
