//! Session files of the Python OpenRath: JSON lines, version 1.
//!
//! A file is a `header` row (the session's id, where it comes from, its sandbox), one `chunk` row for each message
//! (`system`, `user`, `assistant`, `tool_result`), and a `trailer` row (how many chunks, tokens in all). Rows are appended
//! as things happen, so a file without a trailer is one whose writer died.
//!
//! | in a session | in a file |
//! |---|---|
//! | instructions | a `system` row; the loop of the Python OpenRath leaves them out of its files |
//! | what the user said, a summary, what a memory gave back | a `user` row |
//! | an answer, its calls | an `assistant` row |
//! | a result | a `tool_result` row |
//! | tokens of each answer | the sum, in the trailer |
//! | a fork, a merge | the ids of the sessions that this one came of, in the header |
//!
//! Reasoning, outcomes, effects, tokens of each answer and the like stand under `rath` in a row, where the Python OpenRath
//! keeps them and does not look. What a summary stands for, pictures, and all that no model reads is not written.

mod read;
mod write;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use read::read;
pub use write::write;

/// The version of the format.
const VERSION: u64 = 1;

/// How the remark begins that keeps where a session came from.
const CAME_FROM: &str = "came from the Python OpenRath: ";

/// Where a session comes from, as its header says it. Kept in the record as a remark, and written again from there.
#[derive(Clone, Serialize, Deserialize)]
struct Origin {
    id: String,
    created_at: Option<String>,
    parent_session_ids: Vec<String>,
    lineage_operator: String,
    lineage_kind: String,
    lineage_extras: Vec<(String, Arc<RawValue>)>,
    sandbox_backend: Option<String>,
    sandbox_handle_id: Option<String>,
}

/// Tokens, as a trailer counts them.
#[derive(Serialize)]
struct Tokens {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}
