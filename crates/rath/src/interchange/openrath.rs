//! Session files of the Python OpenRath: JSON lines, version 1.
//!
//! A file is a `header` row (the session's id, its origin, its sandbox), one `chunk` row for each message (`system`, `user`,
//! `assistant`, `tool_result`), and a `trailer` row (the number of chunks, the total of tokens). Rows are appended as things
//! happen, so the writer of a file without a trailer died.
//!
//! | in a session | in a file |
//! |---|---|
//! | instructions | a `system` row; the loop of the Python OpenRath does not write any |
//! | a user message, a summary, recalled memories | a `user` row |
//! | an answer, its calls | an `assistant` row |
//! | a result | a `tool_result` row |
//! | tokens of each answer | the sum, in the trailer |
//! | a fork, a merge | the ids of the parent sessions, in the header; [`write_all`] writes these sessions too |
//!
//! Reasoning, outcomes, effects, tokens of each answer and the like are written under `rath` in a row. The Python OpenRath
//! preserves that member and ignores it. The steps that a summary replaces, pictures, and everything that no model reads
//! are not written.

mod read;
mod write;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use read::{read, read_all, read_all_hiding, read_hiding};
pub use write::{write, write_all};

/// The version of the format.
const VERSION: u64 = 1;

/// The beginning of the note that holds the origin of an imported session.
const ORIGIN_PREFIX: &str = "came from the Python OpenRath: ";

/// The origin of a session, as its header gives it.
///
/// An import stores the origin in the record as a note, and an export writes it from there. The names of the fields are
/// written to files.
#[derive(Clone, Serialize, Deserialize)]
struct SessionOrigin {
    id: String,
    created_at: Option<String>,
    parent_session_ids: Vec<String>,
    lineage_operator: String,
    lineage_kind: String,
    lineage_extras: Vec<(String, Arc<RawValue>)>,
    sandbox_backend: Option<String>,
    sandbox_handle_id: Option<String>,
}
