//! Objects that others wrote, taken apart member by member.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use rath_record::draw;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// How many notes are worth reading. A file that is not what it seems to be can give one for every row.
const NOTES_MOST: usize = 100;

/// What a person should know about what was read or written.
#[derive(Default)]
pub(super) struct Notes {
    list: RefCell<Vec<String>>,
    left_off: Cell<u64>,
    /// Things that happen many times are told once, with their number: what, how often, and why.
    counted: RefCell<Vec<(&'static str, u64, &'static str)>>,
}

impl Notes {
    pub(super) fn add(&self, note: impl Into<String>) {
        let mut list = self.list.borrow_mut();
        if list.len() < NOTES_MOST { list.push(note.into()) } else { self.left_off.set(self.left_off.get() + 1) }
    }

    /// Counts one of `things`, of which `why` is to be said once.
    pub(super) fn count(&self, thing: &'static str, why: &'static str) {
        self.count_many(1, thing, why);
    }

    pub(super) fn count_many(&self, many: u64, thing: &'static str, why: &'static str) {
        if many == 0 {
            return;
        }
        let mut counted = self.counted.borrow_mut();
        match counted.iter_mut().find(|(known, _, reason)| *known == thing && *reason == why) {
            Some((_, number, _)) => *number += many,
            None => counted.push((thing, many, why)),
        }
    }

    pub(super) fn into_list(self) -> Vec<String> {
        let mut list = self.list.into_inner();
        if self.left_off.get() > 0 {
            list.push(format!("{} like these", draw::count(self.left_off.get(), "more note")));
        }
        let counted = self.counted.into_inner();
        list.extend(counted.into_iter().map(|(thing, many, why)| format!("{} {why}", draw::count(many, thing))));
        list
    }
}

/// An object that others wrote. What is of another type than wanted, or not known at all, is noted.
pub(super) struct Members<'n> {
    place: String,
    map: BTreeMap<String, Box<RawValue>>,
    notes: &'n Notes,
}

impl<'n> Members<'n> {
    /// Takes an object apart; says why that cannot be done.
    pub(super) fn read(place: impl Into<String>, json: &str, notes: &'n Notes) -> Result<Self, serde_json::Error> {
        Ok(Members { place: place.into(), map: serde_json::from_str(json)?, notes })
    }

    /// The same, or a note.
    pub(super) fn of(place: impl Into<String>, json: &RawValue, notes: &'n Notes) -> Option<Self> {
        let place = place.into();
        let read = Members::read(&*place, json.get(), notes);
        if read.is_err() {
            notes.add(format!("{place}: wanted an object, found {}", draw::preview(json.get())));
        }
        read.ok()
    }

    /// Where it stands.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Adds a note about this object.
    pub(super) fn note(&self, note: impl std::fmt::Display) {
        self.notes.add(format!("{}: {note}", self.place));
    }

    /// A member as it is written; `null` is as good as none.
    pub(super) fn raw(&mut self, name: &str) -> Option<Box<RawValue>> {
        self.map.remove(name).filter(|json| json.get() != "null")
    }

    /// A member of a type; `wanted` says which, for the note if it is not.
    pub(super) fn get<T: DeserializeOwned>(&mut self, name: &str, wanted: &str) -> Option<T> {
        let raw = self.raw(name)?;
        let read = serde_json::from_str(raw.get());
        if read.is_err() {
            self.note(format_args!("wanted {wanted} as `{name}`, found {}", draw::preview(raw.get())));
        }
        read.ok()
    }

    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        self.get(name, "a string")
    }

    pub(super) fn number(&mut self, name: &str) -> Option<u64> {
        self.get(name, "a whole number")
    }

    pub(super) fn list(&mut self, name: &str) -> Vec<Box<RawValue>> {
        self.get(name, "a list").unwrap_or_default()
    }

    /// A member that is an object itself.
    pub(super) fn object(&mut self, name: &str) -> Option<Members<'n>> {
        let raw = self.raw(name)?;
        Members::of(format!("{}, `{name}`", self.place), &raw, self.notes)
    }

    /// Whether all of it has been taken.
    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Says what is left.
    pub(super) fn end(self) {
        for name in self.map.iter().filter(|(_, json)| json.get() != "null").map(|(name, _)| name) {
            self.note(format_args!("the member {} is not known and is left out", draw::preview(name)));
        }
    }
}
