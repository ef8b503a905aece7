//! The tool that runs a command as a check.

use std::time::Duration;

use rath_record::chunk::{ToolSpec, Verdict};
use serde_json::{Value, json};

use super::shell::{MAX_SECONDS, OUTPUT_GRACE};
use super::{spec, text, texts};
use crate::policy::Use;
use crate::sandbox::Command;
use crate::session::{Result, checked};
use crate::tool::{Output, Tool, ToolCx, Touch};

/// Runs a command as a check: its verdict is on the record, and holds until its inputs change.
///
/// Part of [`all`](super::all).
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

    fn is_builtin(&self) -> bool {
        true
    }

    fn touches(&self, _: &Value) -> Vec<Touch> {
        vec![Touch::everything()]
    }

    fn uses(&self, arguments: &Value) -> Vec<Use> {
        vec![Use::CommandLine(text(arguments, "command").to_owned())]
    }

    fn time_limit(&self) -> Duration {
        Duration::from_secs(MAX_SECONDS) + OUTPUT_GRACE
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let inputs = texts(&arguments, "inputs");
        // A model may name what is still to come.
        let inputs = cx.session().follow_inputs(&inputs).await.unwrap_or(inputs);
        let command = text(&arguments, "command");
        let mut sink = |_, printed: &[u8]| cx.output(String::from_utf8_lossy(printed));
        let result = cx.sandbox().await?.run_streaming(&Command::shell(command), &mut sink).await;
        let checked = checked(command, &inputs, cx.session().tree(), &result);
        let verdict = match checked.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            _ => "could not run",
        };
        let text = format!("{verdict}\n{}", checked.output);
        cx.add_check(checked);
        Ok(text.into())
    }
}
