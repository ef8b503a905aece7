//! Running a command as a check.

use std::time::Duration;

use rath_record::chunk::{ToolSpec, Verdict};
use serde_json::{Value, json};

use super::shell::{GRACE, SECONDS_MOST};
use super::{spec, text};
use crate::sandbox::Command;
use crate::session::{Result, checked};
use crate::tool::{Output, Tool, ToolCx, Touch};

/// Runs a command as a check: what it found is on the record, and holds until what it saw changes.
#[derive(Clone, Copy, Debug)]
pub struct Check;

impl Tool for Check {
    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "command": {"type": "string", "description": "The command, as for `sh -c`; exit code 0 means that it passed."},
            "inputs": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The files and directories that the outcome depends on; all if left out.",
            },
        });
        let description = "Runs a command that checks the work, such as the tests, and puts on record whether it passed. Use it \
                           rather than `shell` whenever the outcome is meant to show that something is right.";
        spec("check", description, properties, &["command"])
    }

    fn touches(&self, _: &Value) -> Vec<Touch> {
        vec![Touch::everything()]
    }

    fn time_limit(&self) -> Duration {
        Duration::from_secs(SECONDS_MOST) + GRACE
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let inputs: Vec<String> = arguments["inputs"].as_array().into_iter().flatten().filter_map(name).collect();
        let command = text(&arguments, "command");
        let mut sink = |_, printed: &[u8]| cx.output(String::from_utf8_lossy(printed));
        let ran = cx.sandbox()?.run(&Command::shell(command), &mut sink).await;
        let checked = checked(command, &inputs, cx.session().tree(), &ran);
        let verdict = match checked.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::Broken => "could not run",
        };
        let said = format!("{verdict}\n{}", checked.output);
        cx.add_check(checked);
        Ok(said.into())
    }
}

fn name(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
