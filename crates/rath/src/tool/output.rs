//! What a tool says, and how much of it a model reads.

use rath_record::{Digest, Text};
use serde::Serialize;
use serde_json::Value;

use crate::error::ErrorKind;
use crate::session::{Error, Result};

/// What a tool says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// What the model reads, or as much of it as the tool's limit allows.
    pub text: String,
}

impl Output {
    /// A text as it is, and anything else as JSON.
    pub fn of(value: &impl Serialize) -> Result<Self> {
        let value = serde_json::to_value(value).map_err(|error| {
            Error::new(ErrorKind::Tool, format_args!("the output cannot be written as JSON: {error}"))
        })?;
        Ok(Output {
            text: match value {
                Value::String(text) => text,
                value => value.to_string(),
            },
        })
    }
}

impl From<String> for Output {
    fn from(text: String) -> Self {
        Output { text }
    }
}

impl From<&str> for Output {
    fn from(text: &str) -> Self {
        Output { text: text.to_owned() }
    }
}

/// The name of the tool that a model reads on with.
pub(crate) const READ_ON: &str = "read_output";

/// As much of a text as a model is shown, and the whole of it where that is more.
pub(super) fn shown(text: String, limit: usize) -> (Text, Option<Text>) {
    if text.len() <= limit {
        return (text.into(), None);
    }
    let digest = Digest::compute(text.as_bytes());
    let end = text.floor_char_boundary(limit);
    let note = read_on(&digest, end, text.len());
    (format!("{}\n{note}", &text[..end]).into(), Some(text.into()))
}

/// What stands where a text was cut.
pub(super) fn read_on(digest: &Digest, end: usize, bytes: usize) -> String {
    format!(
        "[cut after {end} of {bytes} bytes; to read on, call `{READ_ON}` with {{\"digest\": \"{digest}\", \"offset\": {end}}}]"
    )
}
