//! Running a command.

use std::time::Duration;

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};

use super::{command, spec, text};
use crate::sandbox::Command;
use crate::session::Result;
use crate::tool::{Output, Tool, ToolCx, Touch};

/// Runs a command.
#[derive(Clone, Copy, Debug)]
pub struct Shell;

/// How long a command may take, in seconds.
pub(super) const SECONDS_MOST: u64 = 600;
/// How much longer the call may take, so that what was printed till then is not lost.
pub(super) const GRACE: Duration = Duration::from_secs(30);

impl Tool for Shell {
    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "command": {"type": "string", "description": "The command, as for `sh -c`."},
            "cwd": {"type": "string", "description": "The directory to run it in, relative to the workspace; the workspace itself if left out."},
            "timeout": {
                "type": "integer",
                "minimum": 1,
                "maximum": SECONDS_MOST,
                "description": "After how many seconds to end it; 600 if left out.",
            },
        });
        let description = "Runs a command in the workspace and gives what it prints, then what it prints as errors, and its \
                           exit code if that is not 0. Nothing can be typed into it, and nothing it starts runs on when it \
                           has ended. Each call is a new shell: set variables and change directories in the same command.";
        spec("shell", description, properties, &["command"])
    }

    fn touches(&self, _: &Value) -> Vec<Touch> {
        vec![Touch::everything()]
    }

    fn time_limit(&self) -> Duration {
        Duration::from_secs(SECONDS_MOST) + GRACE
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let mut line = Command::shell(text(&arguments, "command"));
        line.cwd = text(&arguments, "cwd").to_owned();
        line.time = Duration::from_secs(arguments["timeout"].as_u64().unwrap_or(SECONDS_MOST).min(SECONDS_MOST));
        command::said(&command::run(cx, &line).await?, &line)
    }
}
