//! Looking whether something is there.

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};

use super::{PATH, spec, text};
use crate::sandbox::Kind;
use crate::session::Result;
use crate::tool::{Nature, Output, Tool, ToolCx, Touch};

/// Looks whether something is there.
#[derive(Clone, Copy, Debug)]
pub struct FileExists;

impl Tool for FileExists {
    fn spec(&self) -> ToolSpec {
        let path = json!({"path": {"type": "string", "description": PATH}});
        spec(
            "file_exists",
            "Says whether something is at a path, and what: a file of how many bytes, or a directory.",
            path,
            &["path"],
        )
    }

    fn nature(&self, _: &Value) -> Nature {
        Nature::ReadOnly
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        vec![Touch::read(text(arguments, "path"))]
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let found = cx.sandbox()?.look(text(&arguments, "path")).await?;
        let Some(found) = found else { return Ok("no".into()) };
        Ok(match found.kind {
            Kind::File => format!("yes, a file of {} bytes", found.bytes),
            Kind::Directory => "yes, a directory".to_owned(),
            Kind::Link => "yes, a link".to_owned(),
            Kind::Other => "yes, but it is no ordinary file".to_owned(),
        }
        .into())
    }
}
