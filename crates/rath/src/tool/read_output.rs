//! Reading on where a tool's output was cut.

use rath_record::Digest;
use rath_record::chunk::{Chunk, ToolSpec};
use serde_json::{Value, json};

use super::output::{READ_ON, read_on};
use super::{Nature, OUTPUT_LIMIT, Output, Tool, ToolCx};
use crate::error::ErrorKind;
use crate::session::Session;
use crate::session::{Error, Result};

/// Gives an agent the rest of an output that was too long to be shown at once.
///
/// An agent has it from the moment on when the first output was cut, and not before: every tool costs tokens.
pub(crate) struct ReadOutput;

impl ReadOutput {
    /// Whether anything was cut that could be read on.
    pub(crate) fn is_needed(session: &Session) -> bool {
        session.as_record().newest_first().any(|step| whole(step.chunk()).is_some())
    }
}

impl Tool for ReadOutput {
    fn spec(&self) -> ToolSpec {
        let schema = json!({
            "type": "object",
            "properties": {
                "digest": {"type": "string", "description": "The digest that stands where the output was cut."},
                "offset": {"type": "integer", "minimum": 0, "description": "The byte to read on from."},
            },
            "required": ["digest", "offset"],
            "additionalProperties": false,
        });
        ToolSpec::new(READ_ON, "Reads on in an output that was cut.", schema)
    }

    fn nature(&self, _: &Value) -> Nature {
        Nature::ReadOnly
    }

    /// It cuts for itself.
    fn output_limit(&self) -> usize {
        usize::MAX
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let digest = arguments["digest"].as_str().unwrap_or_default().trim();
        let offset = usize::try_from(arguments["offset"].as_u64().unwrap_or_default()).unwrap_or(usize::MAX);
        let session = cx.session();
        let texts = session.as_record().newest_first().filter_map(|step| whole(step.chunk()));
        // A few digits are enough, as for people.
        let named = |text: &&str| digest.len() >= 8 && Digest::compute(text.as_bytes()).to_string().starts_with(digest);
        let Some(text) = texts.into_iter().find(named) else {
            return Err(Error::new(ErrorKind::Tool, format_args!("no output has the digest `{digest}`")));
        };
        let begin = text.floor_char_boundary(offset.min(text.len()));
        let end = text.floor_char_boundary(begin.saturating_add(OUTPUT_LIMIT).min(text.len()));
        let part = &text[begin..end];
        Ok(match end < text.len() {
            true => format!("{part}\n{}", read_on(&Digest::compute(text.as_bytes()), end, text.len())).into(),
            false => part.into(),
        })
    }
}

fn whole(chunk: &Chunk) -> Option<&str> {
    match chunk {
        Chunk::ToolResult(result) => result.whole.as_ref()?.as_str(),
        _ => None,
    }
}
