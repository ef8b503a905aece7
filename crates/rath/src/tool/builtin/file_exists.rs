//! The tool that says whether a path exists.

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};

use super::{PATH_DESCRIPTION, spec, text};
use crate::sandbox::FileKind;
use crate::session::Result;
use crate::tool::{Nature, Output, Tool, ToolCx, Touch};

/// Says whether a path exists, and what it is.
///
/// Part of [`read_only`](super::read_only).
#[derive(Clone, Copy, Debug)]
pub struct FileExists;

impl Tool for FileExists {
    fn spec(&self) -> ToolSpec {
        let path = json!({"path": {"type": "string", "description": PATH_DESCRIPTION}});
        spec(
            "file_exists",
            "Says whether something is at a path, and what: a file of how many bytes, or a directory.",
            path,
            &["path"],
        )
    }

    fn is_builtin(&self) -> bool {
        true
    }

    fn nature(&self, _: &Value) -> Nature {
        Nature::ReadOnly
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        vec![Touch::read(text(arguments, "path"))]
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let entry = cx.sandbox().await?.stat(text(&arguments, "path")).await?;
        let Some(entry) = entry else { return Ok("no".into()) };
        Ok(match entry.kind {
            FileKind::File => format!("yes, a file of {} bytes", entry.bytes),
            FileKind::Directory => "yes, a directory".to_owned(),
            FileKind::Symlink => "yes, a link".to_owned(),
            FileKind::Other => "yes, but it is no ordinary file".to_owned(),
        }
        .into())
    }
}
