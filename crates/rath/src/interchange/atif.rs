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
//! All other chunks (checks, choices, failures, notes, ..) are written whole under `rath` in the `extra` members of the
//! format, and are read back from there. Forks and merges are not written: the steps are in the order in which a model
//! reads them.

mod read;
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
    /// The chunks that are not steps of the trajectory, each with the number of the step it came after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    chunks: Vec<Extras>,
}
