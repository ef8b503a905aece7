//! Trajectories in the Agent Trajectory Interchange Format: one JSON document, version 1.8.
//!
//! A trajectory is a list of steps with a source (`user`, `agent`, `system`). A step of an agent holds its message, its
//! reasoning, its calls, their results, and its tokens. The work of a sub-agent is a trajectory of its own inside the
//! document.
//!
//! | in a session | in a trajectory |
//! |---|---|
//! | instructions | a `system` step; the tools are listed under `agent` |
//! | a user message, with pictures | a `user` step; a picture is a `data:` URL |
//! | an answer, its calls, their results | an `agent` step with its observation |
//! | a summary, recalled memories | a `system` step |
//! | an aside | a sub-agent's trajectory, with a reference at the step where it was kept |
//!
//! The steps are in the order in which a model reads them. The document holds the session itself too, under `rath` in the
//! `extra` member that the format leaves to its writers: it is read back from there as it was written, with every step, file
//! version, fork and merge, as long as the steps of the document say the same. If another program has changed the document, its
//! steps are read instead. Everything about a step that the format has no member for (trees and effects of calls, starts, checks,
//! failures, ..) is under `rath` in the `extra` of that step or of the trajectory for this; only forks and merges are lost then.

mod read;
mod whole;
mod write;

use serde::{Deserialize, Serialize};

use super::extras::Extras;

pub use read::{read, read_hiding};
pub use write::{write, write_priced};

/// The version that is written.
const VERSION: &str = "ATIF-v1.8";

/// The beginning of the note that holds the origin of an imported session.
const ORIGIN_PREFIX: &str = "came from an ATIF trajectory: ";

/// The largest depth of trajectories inside one another. Deeper ones are neither read nor written.
const MAX_DEPTH: usize = 24;

/// The member `rath` in the `extra` of a trajectory. The names of the fields are written to files.
#[derive(Serialize, Deserialize)]
struct TrajectoryExtras {
    /// The session itself, as the text of a session file. A sub-agent's trajectory has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// The chunks that are not steps of the trajectory, each with its position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    chunks: Vec<Extras>,
}
