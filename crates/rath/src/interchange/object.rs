//! A reader for JSON objects that other programs wrote.

use std::collections::BTreeMap;

use rath_record::draw;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::notes::{NoteCode, Notes};

/// A JSON object whose members are taken one by one.
///
/// A member of an unexpected type is noted when it is taken, a member that was never taken by [`finish`](Self::finish).
pub(super) struct ObjectReader<'n> {
    /// The position of the object in the file, for notes.
    location: String,
    members: BTreeMap<String, Box<RawValue>>,
    notes: &'n Notes,
}

impl<'n> ObjectReader<'n> {
    /// Parses an object.
    pub(super) fn parse(location: impl Into<String>, json: &str, notes: &'n Notes) -> Result<Self, serde_json::Error> {
        Ok(ObjectReader { location: location.into(), members: serde_json::from_str(json)?, notes })
    }

    /// Parses an object; adds a note and returns none if `json` is no object.
    pub(super) fn parse_or_note(location: impl Into<String>, json: &RawValue, notes: &'n Notes) -> Option<Self> {
        let location = location.into();
        let object = ObjectReader::parse(&*location, json.get(), notes);
        if object.is_err() {
            notes.add(NoteCode::Invalid, format!("{location}: wanted an object, found {}", draw::preview(json.get())));
        }
        object.ok()
    }

    /// Returns the position of the object in the file.
    pub(super) fn location(&self) -> &str {
        &self.location
    }

    /// Adds a note about this object.
    pub(super) fn note(&self, code: NoteCode, note: impl std::fmt::Display) {
        self.notes.add(code, format!("{}: {note}", self.location));
    }

    /// Takes a member as raw JSON; none if it is missing or `null`.
    pub(super) fn take_raw(&mut self, name: &str) -> Option<Box<RawValue>> {
        self.members.remove(name).filter(|json| json.get() != "null")
    }

    /// Takes a member of type `T`. `wanted` describes the type, for the note about a member of another type.
    pub(super) fn take<T: DeserializeOwned>(&mut self, name: &str, wanted: &str) -> Option<T> {
        let raw = self.take_raw(name)?;
        let value = serde_json::from_str(raw.get());
        if value.is_err() {
            self.note(
                NoteCode::Invalid,
                format_args!("wanted {wanted} as `{name}`, found {}", draw::preview(raw.get())),
            );
        }
        value.ok()
    }

    /// Returns a member of type `T` and leaves it in its place.
    pub(super) fn peek<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        self.members.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok())
    }

    pub(super) fn take_string(&mut self, name: &str) -> Option<String> {
        self.take(name, "a string")
    }

    pub(super) fn take_number(&mut self, name: &str) -> Option<u64> {
        self.take(name, "a whole number")
    }

    pub(super) fn take_list(&mut self, name: &str) -> Vec<Box<RawValue>> {
        self.take(name, "a list").unwrap_or_default()
    }

    /// Takes a member that is an object itself.
    pub(super) fn take_object(&mut self, name: &str) -> Option<ObjectReader<'n>> {
        let raw = self.take_raw(name)?;
        ObjectReader::parse_or_note(format!("{}, `{name}`", self.location), &raw, self.notes)
    }

    /// Returns whether every member was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Notes every member that was not taken.
    pub(super) fn finish(self) {
        for name in self.members.iter().filter(|(_, json)| json.get() != "null").map(|(name, _)| name) {
            self.note(NoteCode::LeftOut, format_args!("the member {} is unknown and left out", draw::preview(name)));
        }
    }
}
