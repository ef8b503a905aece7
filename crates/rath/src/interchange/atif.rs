//! Trajectories in the Agent Trajectory Interchange Format: one JSON document, version 1.8.
//!
//! A trajectory is a list of steps with a source (`user`, `agent`, `system`). An agent's step holds what it said, its
//! reasoning, its calls, what came of them, and its tokens; work that it had done by other agents is a trajectory of its own
//! inside of the document.
//!
//! | in a session | in a trajectory |
//! |---|---|
//! | instructions | a `system` step; the tools stand at the agent |
//! | what the user said, with pictures | a `user` step; a picture is a `data:` URL |
//! | an answer, its calls, their results | an `agent` step with its observation |
//! | a summary, what a memory gave back | a `system` step |
//! | work kept aside | a sub-agent's trajectory, referred to where it was kept |
//!
//! Everything else that was recorded (checks, choices, failures, remarks, ..) stands whole under `rath` in the `extra`
//! members that the format has for it, and comes back from there. What forks and merges there were is not written: the
//! steps stand in the order in which they are read.

mod read;
mod write;

use serde::{Deserialize, Serialize};

use super::beside::Beside;

pub use read::read;
pub use write::{write, write_priced};

/// The version that is written.
const VERSION: &str = "ATIF-v1.8";

/// How the remark begins that keeps where a session came from.
const CAME_FROM: &str = "came from an ATIF trajectory: ";

/// How deep trajectories may stand in one another. Those that others nest deeper are left out, and so are ours.
const DEPTH_MOST: usize = 24;

/// What stands under `rath` for a whole trajectory.
#[derive(Serialize, Deserialize)]
struct Whole {
    /// What was recorded and is not a step, each with the number of the step it came after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    chunks: Vec<Beside>,
}
