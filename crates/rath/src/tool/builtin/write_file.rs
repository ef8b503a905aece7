//! The tool that writes a file.

use rath_record::chunk::ToolSpec;
use rath_workspace::text_patch;
use serde_json::{Value, json};

use super::edit_file::read_text;
use super::{PATH_DESCRIPTION, spec, text};
use crate::session::Result;
use crate::tool::{Nature, Output, Tool, ToolCx, Touch};

/// Writes a file.
///
/// Part of [`files`](super::files).
#[derive(Clone, Copy, Debug)]
pub struct WriteFile;

impl Tool for WriteFile {
    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "path": {"type": "string", "description": PATH_DESCRIPTION},
            "content": {"type": "string", "description": "The whole of the file from now on."},
        });
        let description = "Writes a text file, and the directories that it lies in. What the file said before is gone; to \
                           change a part of it, use `edit_file`.";
        spec("write_file", description, properties, &["path", "content"])
    }

    fn is_builtin(&self) -> bool {
        true
    }

    fn nature(&self, _: &Value) -> Nature {
        Nature::Idempotent { key: None }
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        vec![Touch::write(text(arguments, "path"))]
    }

    async fn preview(&self, cx: &ToolCx, arguments: &Value) -> Option<String> {
        let (path, sandbox) = (text(arguments, "path"), cx.sandbox().await.ok()?);
        // A file that is no text has no diff.
        let before = match sandbox.stat(path).await.ok()? {
            Some(_) => Some(read_text(&sandbox, path).await.ok()?),
            None => None,
        };
        Some(text_patch(path, before.as_deref(), Some(text(arguments, "content"))))
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let (path, bytes) = (text(&arguments, "path"), text(&arguments, "content").as_bytes());
        cx.sandbox().await?.write(path, bytes).await?;
        Ok(format!("wrote {} bytes", bytes.len()).into())
    }
}
