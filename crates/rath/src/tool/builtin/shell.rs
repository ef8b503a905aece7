//! The tool that runs a command.

use std::time::Duration;

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};

use super::{command, spec, text, texts};
use crate::policy::Use;
use crate::sandbox::Command;
use crate::session::Result;
use crate::tool::{Output, Tool, ToolCx, Touch};

/// Runs a command.
///
/// Part of [`all`](super::all). See [`Blame`](crate::Blame) for an example.
#[derive(Clone, Copy, Debug)]
pub struct Shell;

/// The number of seconds that a command may take.
pub(super) const MAX_SECONDS: u64 = 600;
/// The time that the call may take beyond that, so that the output of a command that is killed is not lost.
pub(super) const OUTPUT_GRACE: Duration = Duration::from_secs(30);

impl Tool for Shell {
    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "command": {"type": "string", "description": "The command, as for `sh -c`."},
            "cwd": {"type": "string", "description": "The directory to run it in, relative to the workspace; the workspace itself if left out."},
            "timeout": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_SECONDS,
                "description": "After how many seconds to end it; 600 if left out.",
            },
            "hosts": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Hosts that it has to reach over the network, such as `crates.io` or `*.crates.io`. The user is \
                                asked first, so leave it out unless the command failed without.",
            },
            "outside": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Absolute paths outside of the workspace that it has to write. The user is asked first, so \
                                leave it out unless the command failed without.",
            },
        });
        let description = "Runs a command in the workspace and gives what it prints, then what it prints as errors, and its \
                           exit code if that is not 0. Nothing can be typed into it, and nothing it starts runs on when it \
                           has ended. Each call is a new shell: set variables and change directories in the same command.";
        spec("shell", description, properties, &["command"])
    }

    fn is_builtin(&self) -> bool {
        true
    }

    fn touches(&self, _: &Value) -> Vec<Touch> {
        vec![Touch::everything()]
    }

    fn uses(&self, arguments: &Value) -> Vec<Use> {
        let line = text(arguments, "command");
        let line = match text(arguments, "cwd") {
            "" | "." => line.to_owned(),
            cwd => format!("cd '{}' && {line}", cwd.replace('\'', r"'\''")),
        };
        let hosts = texts(arguments, "hosts").into_iter().map(Use::Host);
        let outside = texts(arguments, "outside").into_iter().map(Use::Outside);
        [Use::CommandLine(line)].into_iter().chain(hosts).chain(outside).collect()
    }

    fn time_limit(&self) -> Duration {
        Duration::from_secs(MAX_SECONDS) + OUTPUT_GRACE
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let mut line = Command::shell(text(&arguments, "command"));
        line.cwd = text(&arguments, "cwd").to_owned();
        line.timeout = Duration::from_secs(arguments["timeout"].as_u64().unwrap_or(MAX_SECONDS).min(MAX_SECONDS));
        line.extra = cx.extra_access().clone();
        command::to_output(&command::run(cx, &line).await?, &line)
    }
}
