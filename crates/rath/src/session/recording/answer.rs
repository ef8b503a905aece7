//! Recorded answers of models and memories.

use std::borrow::Cow;
use std::sync::Arc;

use rath_record::Step;
use rath_record::chunk::{Assistant, Chunk, Failed, Interrupted, MemoryEvent};
use serde_json::{Value, json};

use super::Replay;
use super::divergence::Divergence;
use super::json_diff;
use crate::error::ErrorKind;
use crate::provider::{Delta, DeltaSink, Request, RequestTarget, Settings};
use crate::session::Session;
use crate::session::StopReason;
use crate::session::{Error, Result, note_losses};

impl Replay {
    /// Appends the recorded answer to a request, with the recorded retries and failures before it. Nothing is sent.
    pub(crate) async fn replay_answer(
        &self,
        session: &mut Session,
        request: &Request,
        sink: &mut DeltaSink<'_>,
    ) -> Result<()> {
        self.ensure_not_diverged(session)?;
        // An interruption before the request was sent is recorded before the notes about the request.
        if !self.next_is(session, |chunk| matches!(chunk, Chunk::Interrupted(_))) {
            note_losses(session, request);
        }
        loop {
            let action = || format!("{} is asked", request.identity);
            let step = self.next_step(session, action, is_answer).await?;
            if let Chunk::Assistant(answer) = step.chunk() {
                let request = with_recorded_limit(session, answer, request);
                match request_divergence(&step, answer, &request) {
                    Some(divergence) if divergence.is_of_request() && session.has_forgotten() => {
                        self.count_forgotten_request();
                    }
                    Some(divergence) => return Err(self.diverge(session, divergence)),
                    None if answer.request.is_some() => self.count_request(),
                    None => {}
                }
                send_deltas(answer, sink);
                session.append_recorded(&step);
                return Ok(());
            }
            session.append_recorded(&step);
            if let Some(error) = recorded_failure(&step) {
                return Err(error.with_session(session));
            }
        }
    }

    /// Returns the recorded answer of a memory, or its recorded failure. `read` reads the answer from the recorded event.
    pub(crate) async fn replay_memory<T>(
        &self,
        session: &mut Session,
        read: impl Fn(&MemoryEvent) -> Option<T>,
    ) -> Result<T> {
        let answer = |chunk: &Chunk| match chunk {
            Chunk::Memory(memory) => read(&memory.event),
            _ => None,
        };
        let action = || "a memory is asked".to_owned();
        let step = self.next_step(session, action, |chunk| answer(chunk).is_some() || is_failure(chunk)).await?;
        if let Some(answer) = answer(step.chunk()) {
            return Ok(answer);
        }
        session.append_recorded(&step);
        let error = recorded_failure(&step).expect("a step that is neither an answer nor a failure was not asked for");
        Err(error.with_session(session))
    }
}

fn is_answer(chunk: &Chunk) -> bool {
    matches!(chunk, Chunk::Assistant(_) | Chunk::Retry(_)) || is_failure(chunk)
}

/// Returns whether the chunk records that a model or a memory failed, or was interrupted.
///
/// A limit is a failure of the agent, not of a model or a memory.
fn is_failure(chunk: &Chunk) -> bool {
    match chunk {
        Chunk::Failed(failed) => failed.error != ErrorKind::Limit.name(),
        Chunk::Interrupted(_) => true,
        _ => false,
    }
}

/// Returns the error of a recorded failure or interruption.
pub(crate) fn recorded_failure(step: &Step) -> Option<Error> {
    match step.chunk() {
        Chunk::Failed(Failed { error, message, .. }) => Some(Error::new(ErrorKind::named(error), message)),
        Chunk::Interrupted(Interrupted { reason, .. }) => Some(Error::new(StopReason::error_kind(reason), reason)),
        _ => None,
    }
}

/// Sends the answer as one delta of reasoning and one of text.
fn send_deltas(answer: &Assistant, sink: &mut DeltaSink<'_>) {
    let delta = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    if let Some(reasoning) = answer.reasoning.as_str().and_then(delta) {
        sink(Delta::Reasoning(&reasoning));
    }
    if let Some(text) = answer.text.as_str().and_then(delta) {
        sink(Delta::Text(&text));
    }
}

/// Returns a request with the limit of its answer that a budget set when it was recorded, if one did: a replay has no budget.
fn with_recorded_limit<'a>(session: &Session, answer: &Assistant, request: &'a Request) -> Cow<'a, Request> {
    let recorded = || {
        let settings = Settings::from_json(answer.settings.as_ref()?).ok()?;
        if settings == *request.settings || settings.without_output_limit() != *request.settings {
            return None;
        }
        let settings = Arc::new(settings);
        session.render(RequestTarget { identity: &request.identity, settings: &settings }).ok()
    };
    recorded().map_or(Cow::Borrowed(request), Cow::Owned)
}

/// Returns the difference between a request and the request of the recorded answer.
fn request_divergence(step: &Step, answer: &Assistant, request: &Request) -> Option<Divergence> {
    let digest = answer.request.filter(|digest| *digest != request.digest);
    let identity = answer.provider.as_ref().filter(|identity| **identity != request.identity);
    if let Some(identity) = identity {
        let (ours, theirs) = (json!(identity), json!(request.identity));
        let difference = json_diff::first_difference(&ours, &theirs)?;
        let nothing = Value::Null;
        let (ours, theirs) = (difference.ours.unwrap_or(&nothing), difference.theirs.unwrap_or(&nothing));
        let pointer = format!("/provider{}", difference.pointer);
        return Some(Divergence::between_values(step, &pointer, ours, theirs));
    }
    let divergence = Divergence::between_requests(step, digest?, request.digest);
    Some(divergence.with_detail(describe_body_difference(step, answer, request)))
}

/// Describes the first difference between the bodies of two requests, if the recorded one can be rebuilt.
fn describe_body_difference(step: &Step, answer: &Assistant, request: &Request) -> Option<String> {
    let recorded = crate::session::rebuild(&Session::before(step)?, answer).ok()?;
    let read = |request: &Request| serde_json::from_slice::<Value>(&request.bytes).ok();
    let (ours, theirs) = (read(&recorded)?, read(request)?);
    let Some(difference) = json_diff::first_difference(&ours, &theirs) else {
        return Some("the bodies of the two requests hold the same JSON, written differently".to_owned());
    };
    let text = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
    let (ours, theirs) = json_diff::preview_pair(&text(difference.ours), &text(difference.theirs));
    Some(format!("in the request, at {}: expected {ours}, found {theirs}", difference.pointer))
}
