//! A difference between a program and the recording.

use std::fmt;

use rath_record::{Digest, Payload, Step, StepId, draw};
use serde_json::{Value, json};

use super::json_diff;

const REQUEST_POINTER: &str = "/request";

/// The first difference between a program and the recording that it is replayed over.
///
/// Part of [`ReplayReport`](crate::replay::ReplayReport).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Divergence {
    /// The recorded step that the program did not append. If the recording has ended, its last step there.
    pub step: Option<StepId>,
    /// A summary of that step, on one line.
    pub summary: String,
    /// The JSON pointer to the first difference in the step's chunk: `/text`, `/tools/0/description`. Empty if the whole
    /// chunk differs.
    pub pointer: String,
    /// The value in the recording; none if the recording has ended.
    pub expected: Option<String>,
    /// The value that the program has; none if the program has ended.
    pub found: Option<String>,
    /// A further explanation.
    pub detail: Option<String>,
}

impl Divergence {
    fn at(step: &Step, pointer: impl Into<String>, expected: Option<String>, found: Option<String>) -> Self {
        let (step, summary) = (Some(step.id()), draw::describe(step.chunk()));
        Divergence { step, summary, pointer: pointer.into(), expected, found, detail: None }
    }

    /// The program appended another step than the recorded one.
    pub(crate) fn between(recorded: &Step, found: &Step) -> Self {
        let whole = || {
            let theirs = found.parents().get(1).map(|theirs| format!(" with {}", theirs.id().short()));
            Divergence::unexpected_action(
                recorded,
                format!("{}{}", draw::describe(found.chunk()), theirs.unwrap_or_default()),
            )
        };
        if recorded.chunk().kind() != found.chunk().kind() {
            return whole();
        }
        let read = |step: &Step| {
            let mut value = serde_json::from_str(&step.json()).unwrap_or_default();
            inline_payloads(&mut value, &step.chunk().payloads());
            value
        };
        let (ours, theirs) = (read(recorded), read(found));
        match json_diff::first_difference(&ours, &theirs) {
            Some(difference) => {
                let text = |value: Option<&Value>| Some(value.map_or("nothing".to_owned(), Value::to_string));
                Divergence::at(recorded, difference.pointer, text(difference.ours), text(difference.theirs))
            }
            None => whole(),
        }
    }

    /// Two values differ at a place in a step.
    pub(crate) fn between_values(recorded: &Step, pointer: &str, expected: &Value, found: &Value) -> Self {
        Divergence::at(recorded, pointer, Some(expected.to_string()), Some(found.to_string()))
    }

    /// The program sends another request than the recorded one.
    pub(crate) fn between_requests(recorded: &Step, expected: Digest, found: Digest) -> Self {
        Divergence::between_values(recorded, REQUEST_POINTER, &json!(expected), &json!(found))
    }

    /// Returns true if the request is all that differs.
    pub(crate) fn is_of_request(&self) -> bool {
        self.pointer == REQUEST_POINTER
    }

    /// The program begins an action that is not the recorded one.
    pub(crate) fn unexpected_action(recorded: &Step, found: String) -> Self {
        Divergence::at(recorded, "", Some(draw::describe(recorded.chunk())), Some(found))
    }

    /// The program continues after the recording has ended.
    pub(crate) fn after_end(last: Option<StepId>, found: &Step) -> Self {
        let summary = "the last step there".to_owned();
        let found = Some(draw::describe(found.chunk()));
        Divergence { step: last, summary, pointer: String::new(), expected: None, found, detail: None }
    }

    /// The program acts in a session that is not part of the recording.
    pub(crate) fn outside_recording(head: StepId, action: String) -> Self {
        let found = Some(format!("{action} after step {}", head.short()));
        let detail = Some("the session in which it is done is not part of the recorded one".to_owned());
        Divergence { step: None, summary: String::new(), pointer: String::new(), expected: None, found, detail }
    }

    /// The program has ended, and the recording continues.
    pub(crate) fn ended_early(recorded: &Step, error: Option<&str>) -> Self {
        let detail = error.map(|error| format!("it ended with an error: {error}"));
        Divergence { detail, ..Divergence::at(recorded, "", Some(draw::describe(recorded.chunk())), None) }
    }

    /// Adds that a text is missing from the recording.
    pub(crate) fn after_forgotten(mut self, forgotten: StepId) -> Self {
        let reason = format!("step {} was forgotten: the program may differ for that reason alone", forgotten.short());
        self.detail = Some(self.detail.map_or_else(|| reason.clone(), |detail| format!("{detail}\n  {reason}")));
        self
    }

    pub(crate) fn with_detail(mut self, detail: Option<String>) -> Self {
        self.detail = detail;
        self
    }
}

/// Replaces references to payloads with their texts, so that the texts are compared and not their digests.
fn inline_payloads(value: &mut Value, payloads: &[(Digest, Payload)]) {
    if payloads.is_empty() {
        return;
    }
    let text = value.get("digest").and_then(Value::as_str).and_then(|digest| {
        let (_, payload) = payloads.iter().find(|(known, _)| known.to_string() == digest)?;
        payload.clone().into_text()
    });
    match (text, value) {
        (Some(text), value) => *value = Value::from(&*text),
        (None, Value::Array(list)) => list.iter_mut().for_each(|value| inline_payloads(value, payloads)),
        (None, Value::Object(members)) => members.values_mut().for_each(|value| inline_payloads(value, payloads)),
        (None, _) => {}
    }
}

/// Writes the step and the pointer, then the expected and the found value, on a few lines.
impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "diverges at step {} ({})", step.short(), self.summary)?,
            None => f.write_str("diverges outside the recording")?,
        }
        if !self.pointer.is_empty() {
            write!(f, ", {}", self.pointer)?;
        }
        let (ours, theirs) = (self.expected.as_deref(), self.found.as_deref());
        let (expected, found) = json_diff::preview_pair(ours.unwrap_or_default(), theirs.unwrap_or_default());
        let expected = if ours.is_some() { expected } else { "nothing, the recording ends here".to_owned() };
        let found = if theirs.is_some() { found } else { "nothing, the program ended".to_owned() };
        write!(f, "\n  expected: {expected}\n  found:    {found}")?;
        match &self.detail {
            Some(detail) => write!(f, "\n  {detail}"),
            None => Ok(()),
        }
    }
}
