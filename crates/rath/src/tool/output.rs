//! The output of a tool, and the part of it that a model reads.

use rath_record::chunk::{Image, Json};
use rath_record::{Digest, Text};
use serde::Serialize;
use serde_json::Value;

use crate::error::ErrorKind;
use crate::session::{Error, Result};

/// The output of a tool.
///
/// ```
/// use rath::tool::Output;
///
/// assert_eq!(Output::from("done").text, "done");
/// assert_eq!(Output::from_value(&[1, 2])?.text, "[1,2]");
/// # Ok::<(), rath::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The text for the model, which is shown as much of it as the tool's limit allows.
    pub text: String,
    /// The images for the model. A model that reads only text from tools is told of their types and sizes.
    pub images: Vec<Image>,
    /// The output as a value for programs, which the model does not read.
    pub structured: Option<Json>,
    /// True if the call failed, and the output says why. A failure that is a text alone is an error of the call instead.
    pub is_failure: bool,
}

impl Output {
    /// Creates an output from a value: a string as it is, any other value as JSON.
    pub fn from_value(value: &impl Serialize) -> Result<Self> {
        let value = serde_json::to_value(value)
            .map_err(|error| Error::new(ErrorKind::Tool, "the output cannot be written as JSON").because(error))?;
        Ok(Output::from(match value {
            Value::String(text) => text,
            value => value.to_string(),
        }))
    }
}

impl From<String> for Output {
    fn from(text: String) -> Self {
        Output { text, ..Output::default() }
    }
}

impl From<&str> for Output {
    fn from(text: &str) -> Self {
        Output::from(text.to_owned())
    }
}

/// The name of the tool that reads the rest of an output.
pub(crate) const READ_OUTPUT: &str = "read_output";

/// Returns the part of a text that a model is shown, and the whole text if that is longer.
pub(super) fn truncate(text: String, limit: usize) -> (Text, Option<Text>) {
    if text.len() <= limit {
        return (text.into(), None);
    }
    let digest = Digest::compute(text.as_bytes());
    let end = text.floor_char_boundary(limit);
    let note = truncation_note(&digest, end, text.len());
    (format!("{}\n{note}", &text[..end]).into(), Some(text.into()))
}

/// Returns the note that follows a text which was cut.
pub(super) fn truncation_note(digest: &Digest, end: usize, bytes: usize) -> String {
    format!(
        "[cut after {end} of {bytes} bytes; to read on, call `{READ_OUTPUT}` with {{\"digest\": \"{digest}\", \"offset\": {end}}}]"
    )
}
