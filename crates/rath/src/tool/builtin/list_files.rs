//! The tool that lists a directory.

use std::collections::VecDeque;

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};

use super::nearest_paths::with_nearest_paths;
use super::tree::{Directory, MAX_DEPTH};
use super::{spec, text};
use crate::sandbox::FileKind;
use crate::session::Result;
use crate::tool::{Nature, Output, Tool, ToolCx, Touch};

/// Lists a directory.
///
/// Part of [`read_only`](super::read_only).
#[derive(Clone, Copy, Debug)]
pub struct ListFiles;

/// The number of names that are shown.
const MAX_SHOWN_NAMES: usize = 1_000;
/// The number of names beyond those that are counted.
const MAX_COUNTED_NAMES: usize = 20_000;

impl Tool for ListFiles {
    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "path": {"type": "string", "description": "The directory, relative to the workspace; the workspace itself if left out."},
            "depth": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_DEPTH,
                "description": "How many directories deep to look; 1 if left out.",
            },
        });
        let description = "Lists a directory: one name a line, directories with a slash and links with an @ at the end. \
                           With `depth` it lists what is below, too, except in `.git` and in what `.gitignore` leaves out.";
        spec("list_files", description, properties, &[])
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
        let sandbox = cx.sandbox().await?;
        let depth = arguments["depth"].as_u64().unwrap_or(1).min(MAX_DEPTH);
        let mut waiting = VecDeque::from([Directory::open(&sandbox, text(&arguments, "path")).await]);
        let (mut shown, mut left_out) = (Vec::new(), 0);
        // Level by level, so that the deepest names are the ones left out.
        while let Some(mut directory) = waiting.pop_front() {
            let children = match directory.children(&sandbox).await {
                Ok(children) => children,
                Err(error) if directory.depth == 0 => {
                    return Err(with_nearest_paths(&sandbox, text(&arguments, "path"), error).await);
                }
                // It was removed meanwhile, or may not be read.
                Err(_) => continue,
            };
            for child in children {
                if shown.len() < MAX_SHOWN_NAMES {
                    let mark = match child.entry.kind {
                        FileKind::Directory => "/",
                        FileKind::Symlink => "@",
                        FileKind::File | FileKind::Other => "",
                    };
                    shown.push(format!("{}{mark}", child.shown));
                } else {
                    left_out += 1;
                }
                let is_walked = child.entry.kind == FileKind::Directory && !child.ignored;
                if is_walked && directory.depth + 1 < depth && left_out < MAX_COUNTED_NAMES {
                    waiting.push_back(directory.below(&child));
                }
            }
            tokio::task::yield_now().await;
        }
        shown.sort();
        if left_out > 0 {
            let more = if left_out < MAX_COUNTED_NAMES { "" } else { "more than " };
            shown.push(format!("[{more}{left_out} more are left out; list a directory further down]"));
        }
        Ok(shown.join("\n").into())
    }
}
