//! The tool that changes several files by a patch.

mod change;
mod fit;
mod parse;

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};

use self::change::PatchChanges;
pub(super) use self::parse::Patch;
use super::{spec, text};
use crate::session::Result;
use crate::tool::{Output, Tool, ToolCx, Touch};

/// Changes several files by a patch: all of its changes, or none.
///
/// The format is the one between `*** Begin Patch` and `*** End Patch` that models of OpenAI write. Places are found by the lines around
/// them, exactly or else without regard to white space at the ends of lines.
///
/// Part of [`files`](super::files).
#[derive(Clone, Copy, Debug)]
pub struct ApplyPatch;

impl Tool for ApplyPatch {
    fn spec(&self) -> ToolSpec {
        let properties = json!({"input": {"type": "string", "description": "The patch."}});
        let description = "Changes, adds, deletes and moves files: all that the patch says, or nothing if a part does not fit. \
                           It begins with `*** Begin Patch` and ends with `*** End Patch`. In between, for each file: \
                           `*** Update File: PATH`, then `*** Move to: PATH` if it moves, then hunks; or `*** Add File: PATH`, \
                           then its lines, each with `+` in front; or `*** Delete File: PATH`. A hunk begins with `@@`, and \
                           then, if that is needed to find the place, a line above it such as `@@ fn main() {`. Its lines begin \
                           with a space if they stay, `-` if they go and `+` if they are new; give three that stay before and \
                           after. `*** End of File` follows lines that are the last of the file. Paths are relative to the workspace.";
        spec("apply_patch", description, properties, &["input"])
    }

    fn is_builtin(&self) -> bool {
        true
    }

    fn refuses(&self, arguments: &Value) -> Option<String> {
        Patch::parse(text(arguments, "input")).err()
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        let patch = Patch::parse(text(arguments, "input"));
        patch.iter().flat_map(Patch::paths).map(Touch::write).collect()
    }

    async fn preview(&self, cx: &ToolCx, arguments: &Value) -> Option<String> {
        let input = text(arguments, "input");
        let changes = PatchChanges::of(&cx.sandbox().await.ok()?, Patch::parse(input).ok()?).await;
        // A person sees what the model wants, also if it cannot be done.
        Some(changes.map_or_else(|error| format!("{input}\n\n{}", error.message()), |changes| changes.as_diff()))
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let patch = Patch::parse(text(&arguments, "input"));
        let patch = patch.map_err(|why| crate::session::Error::new(crate::error::ErrorKind::Arguments, why))?;
        let sandbox = cx.sandbox().await?;
        let changes = PatchChanges::of(&sandbox, patch).await?;
        changes.write(&sandbox).await?;
        Ok(changes.describe().into())
    }
}

#[cfg(test)]
mod tests;
