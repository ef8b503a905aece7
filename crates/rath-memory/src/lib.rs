//! Notes that are found again: short texts with their origin, stored for good or until they are forgotten.
//!
//! A [`NoteStore`] finds notes by the words of a question, in English, in code, and in scripts without spaces. It knows no
//! sessions: the session that a note came from is a name to it.

// The index is the same without a file; the parts that write it are not used then.
#![cfg_attr(not(feature = "sqlite"), allow(dead_code))]

mod analysis;
mod docs;
mod error;
mod index;
mod note;
mod postings;
mod ram;
mod search;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
mod vectors;
mod view;

pub use error::{NoteError, Result};
pub use note::{MAX_ID_BYTES, MAX_TEXT_BYTES, Note, NoteId, NotePath, Source};
#[cfg(feature = "sqlite")]
pub use sqlite::MEMORY_FILE;
pub use store::{Hit, Lookup, NoteStore, Position, Query, QuestionVector, Size};
pub use vectors::UNRELATED_TEXTS;
