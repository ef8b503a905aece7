//! The tool that reads the rest of an output that was cut.

use rath_record::Digest;
use rath_record::chunk::{Chunk, ToolSpec};
use serde_json::{Value, json};

use super::output::{READ_OUTPUT, truncation_note};
use super::{Nature, OUTPUT_LIMIT, Output, Tool, ToolCx};
use crate::error::ErrorKind;
use crate::session::{Error, Result, Session};

/// Reads the rest of an output that was too long to be shown at once.
///
/// An agent has this tool only once an output was cut: every tool costs tokens.
pub(crate) struct ReadOutput;

impl ReadOutput {
    /// Returns true if an output of the session was cut.
    pub(crate) fn is_needed(session: &Session) -> bool {
        session.as_record().newest_first().any(|step| whole_output(step.chunk()).is_some())
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
        ToolSpec::new(READ_OUTPUT, "Reads on in an output that was cut.", schema)
    }

    fn nature(&self, _: &Value) -> Nature {
        Nature::ReadOnly
    }

    /// The tool limits its output itself.
    fn output_limit(&self) -> usize {
        usize::MAX
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let digest = arguments["digest"].as_str().unwrap_or_default().trim();
        let offset = usize::try_from(arguments["offset"].as_u64().unwrap_or_default()).unwrap_or(usize::MAX);
        let session = cx.session();
        let texts = session.as_record().newest_first().filter_map(|step| whole_output(step.chunk()));
        // The first digits of a digest are enough.
        let has_digest =
            |text: &&str| digest.len() >= 8 && Digest::compute(text.as_bytes()).to_string().starts_with(digest);
        let Some(text) = texts.into_iter().find(has_digest) else {
            return Err(Error::new(ErrorKind::Tool, format_args!("no output has the digest `{digest}`")));
        };
        let begin = text.floor_char_boundary(offset.min(text.len()));
        let end = text.floor_char_boundary(begin.saturating_add(OUTPUT_LIMIT).min(text.len()));
        let part = &text[begin..end];
        Ok(match end < text.len() {
            true => format!("{part}\n{}", truncation_note(&Digest::compute(text.as_bytes()), end, text.len())).into(),
            false => part.into(),
        })
    }
}

/// Returns the whole output of a result that was cut.
fn whole_output(chunk: &Chunk) -> Option<&str> {
    match chunk {
        Chunk::ToolResult(result) => result.whole.as_ref()?.as_str(),
        _ => None,
    }
}
