//! Where a program does something else than the recording.

use std::fmt;

use rath_record::{Digest, Payload, Step, StepId, draw};
use serde_json::Value;

use super::differ;

/// Where a program first does something else than the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Divergence {
    /// The recorded step that did not come about again. Where the recording has nothing more, the last that it has there.
    pub step: Option<StepId>,
    /// What that step says, on one line.
    pub says: String,
    /// The JSON pointer to the first difference in its chunk: `/text`, `/tools/0/description`. Empty where the whole of it
    /// differs.
    pub pointer: String,
    /// What stands there in the recording; none where it has nothing more.
    pub expected: Option<String>,
    /// What the program has there; none where it does nothing more.
    pub found: Option<String>,
    /// What else can be said about it.
    pub detail: Option<String>,
}

impl Divergence {
    fn at(step: &Step, pointer: impl Into<String>, expected: Option<String>, found: Option<String>) -> Self {
        let (step, says) = (Some(step.id()), draw::describe(step.chunk()));
        Divergence { step, says, pointer: pointer.into(), expected, found, detail: None }
    }

    /// Another step came than the recorded one.
    pub(super) fn between(recorded: &Step, found: &Step) -> Self {
        let whole = || {
            let theirs = found.parents().get(1).map(|theirs| format!(" with {}", theirs.id().short()));
            Divergence::instead(recorded, format!("{}{}", draw::describe(found.chunk()), theirs.unwrap_or_default()))
        };
        if recorded.chunk().kind() != found.chunk().kind() {
            return whole();
        }
        let read = |step: &Step| {
            let mut value = serde_json::from_str(&step.json()).unwrap_or_default();
            put_in_place(&mut value, &step.chunk().payloads());
            value
        };
        let (ours, theirs) = (read(recorded), read(found));
        match differ::first(&ours, &theirs) {
            Some(place) => {
                let say = |value: Option<&Value>| Some(value.map_or("nothing".to_owned(), Value::to_string));
                Divergence::at(recorded, place.pointer, say(place.ours), say(place.theirs))
            }
            None => whole(),
        }
    }

    /// Two values differ at a place in a step.
    pub(crate) fn values(recorded: &Step, pointer: &str, expected: &Value, found: &Value) -> Self {
        Divergence::at(recorded, pointer, Some(expected.to_string()), Some(found.to_string()))
    }

    /// The program does something that is no step yet, and not what was recorded.
    pub(super) fn instead(recorded: &Step, found: String) -> Self {
        Divergence::at(recorded, "", Some(draw::describe(recorded.chunk())), Some(found))
    }

    /// The program goes on where the recording does not.
    pub(super) fn beyond(last: Option<StepId>, found: &Step) -> Self {
        let says = "the last step there".to_owned();
        let found = Some(draw::describe(found.chunk()));
        Divergence { step: last, says, pointer: String::new(), expected: None, found, detail: None }
    }

    /// The program does something in a session that is not in the recording.
    pub(super) fn off_the_record(head: StepId, doing: String) -> Self {
        let found = Some(format!("{doing} after step {}", head.short()));
        let detail = Some("the session in which it is done is not part of the recorded one".to_owned());
        Divergence { step: None, says: String::new(), pointer: String::new(), expected: None, found, detail }
    }

    /// The recording goes on where the program does not.
    pub(super) fn ended(recorded: &Step, error: Option<&str>) -> Self {
        let detail = error.map(|error| format!("it ended with an error: {error}"));
        Divergence { detail, ..Divergence::at(recorded, "", Some(draw::describe(recorded.chunk())), None) }
    }

    pub(super) fn with_detail(mut self, detail: Option<String>) -> Self {
        self.detail = detail;
        self
    }
}

/// Puts texts that stand beside the row where their names stand: what differs is the text.
fn put_in_place(value: &mut Value, payloads: &[(Digest, Payload)]) {
    if payloads.is_empty() {
        return;
    }
    let named = value.get("digest").and_then(Value::as_str).and_then(|digest| {
        let (_, payload) = payloads.iter().find(|(known, _)| known.to_string() == digest)?;
        payload.clone().into_text()
    });
    match (named, value) {
        (Some(text), value) => *value = Value::from(&*text),
        (None, Value::Array(list)) => list.iter_mut().for_each(|value| put_in_place(value, payloads)),
        (None, Value::Object(members)) => members.values_mut().for_each(|value| put_in_place(value, payloads)),
        (None, _) => {}
    }
}

/// A few plain lines: where, what was expected, what was found.
impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "diverges at step {} ({})", step.short(), self.says)?,
            None => f.write_str("diverges outside the recording")?,
        }
        if !self.pointer.is_empty() {
            write!(f, ", {}", self.pointer)?;
        }
        let (ours, theirs) = (self.expected.as_deref(), self.found.as_deref());
        let (expected, found) = differ::shown(ours.unwrap_or_default(), theirs.unwrap_or_default());
        let expected = if ours.is_some() { expected } else { "nothing, the recording ends here".to_owned() };
        let found = if theirs.is_some() { found } else { "nothing, the program ended".to_owned() };
        write!(f, "\n  expected: {expected}\n  found:    {found}")?;
        match &self.detail {
            Some(detail) => write!(f, "\n  {detail}"),
            None => Ok(()),
        }
    }
}
