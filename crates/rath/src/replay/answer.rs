//! What models and memories say in a replay: what the recording says that they said.

use rath_record::Step;
use rath_record::chunk::{Assistant, Chunk, Failed, Interrupted, MemoryEvent};
use serde_json::{Value, json};

use super::differ;
use super::divergence::Divergence;
use super::recording::Replay;
use crate::error::ErrorKind;
use crate::limits::Stopped;
use crate::provider::{Delta, DeltaSink, Request};
use crate::session::Session;
use crate::session::{Error, Result, note_losses};

impl Replay {
    /// What came of a model call, with everything that went wrong on the way. Nothing is sent.
    pub(crate) async fn answer(
        &self,
        mut session: Session,
        request: &Request,
        sink: &mut DeltaSink<'_>,
    ) -> Result<Session> {
        self.check(&session)?;
        // What stops a call before it is sent stands before what is noted about its request.
        if !self.comes(&session, |chunk| matches!(chunk, Chunk::Interrupted(_))) {
            note_losses(&mut session, request);
        }
        loop {
            let doing = || format!("{} is asked", request.identity);
            let step = self.next(&session, doing, is_answer).await?;
            if let Chunk::Assistant(answer) = step.chunk() {
                if let Some(divergence) = other_request(&step, answer, request) {
                    return Err(self.diverge(&session, divergence));
                }
                if answer.request.is_some() {
                    self.count_request();
                }
                tell(answer, sink);
                session.go_on_by(&step);
                return Ok(session);
            }
            session.go_on_by(&step);
            if let Some(error) = failure(&step) {
                return Err(error.with_session(&session));
            }
        }
    }

    /// What a memory said. `read` finds it in what is recorded of it.
    pub(crate) async fn remembered<T>(
        &self,
        session: &mut Session,
        read: impl Fn(&MemoryEvent) -> Option<T>,
    ) -> Result<T> {
        let said = |chunk: &Chunk| match chunk {
            Chunk::Memory(memory) => read(&memory.event),
            _ => None,
        };
        let doing = || "a memory is asked".to_owned();
        let step = self.next(session, doing, |chunk| said(chunk).is_some() || is_failure(chunk)).await?;
        if let Some(said) = said(step.chunk()) {
            return Ok(said);
        }
        session.go_on_by(&step);
        let wrong = failure(&step).expect("what is neither an answer nor a failure was not wanted");
        Err(wrong.with_session(session))
    }
}

fn is_answer(chunk: &Chunk) -> bool {
    matches!(chunk, Chunk::Assistant(_) | Chunk::Retry(_)) || is_failure(chunk)
}

/// Whether it says that a model or a memory failed, or was not waited for. That an agent may ask no more is not said by
/// either.
fn is_failure(chunk: &Chunk) -> bool {
    match chunk {
        Chunk::Failed(failed) => failed.error != ErrorKind::Limit.name(),
        Chunk::Interrupted(_) => true,
        _ => false,
    }
}

/// The error that a recorded failure was told as.
pub(crate) fn failure(step: &Step) -> Option<Error> {
    match step.chunk() {
        Chunk::Failed(Failed { error, message }) => Some(Error::new(ErrorKind::named(error), message)),
        Chunk::Interrupted(Interrupted { reason }) => Some(Error::new(Stopped::kind_of(reason), reason)),
        _ => None,
    }
}

/// Hands on the answer in one piece.
fn tell(answer: &Assistant, sink: &mut DeltaSink<'_>) {
    let piece = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    if let Some(reasoning) = answer.reasoning.as_str().and_then(piece) {
        sink(Delta::Reasoning(&reasoning));
    }
    if let Some(text) = answer.text.as_str().and_then(piece) {
        sink(Delta::Text(&text));
    }
}

/// How the request differs from the one that the recorded answer came of.
fn other_request(step: &Step, answer: &Assistant, request: &Request) -> Option<Divergence> {
    let digest = answer.request.filter(|digest| *digest != request.digest);
    let identity = answer.provider.as_ref().filter(|identity| **identity != request.identity);
    if let Some(identity) = identity {
        let (ours, theirs) = (json!(identity), json!(request.identity));
        let place = differ::first(&ours, &theirs)?;
        let nothing = Value::Null;
        let (ours, theirs) = (place.ours.unwrap_or(&nothing), place.theirs.unwrap_or(&nothing));
        return Some(Divergence::values(step, &format!("/provider{}", place.pointer), ours, theirs));
    }
    let told = Divergence::values(step, "/request", &json!(digest?), &json!(request.digest));
    Some(told.with_detail(inside(step, answer, request)))
}

/// Where the bodies of two requests differ, if the recorded one can be rebuilt.
fn inside(step: &Step, answer: &Assistant, request: &Request) -> Option<String> {
    let recorded = crate::session::rebuild(&Session::before(step)?, answer).ok()?;
    let read = |request: &Request| serde_json::from_slice::<Value>(&request.bytes).ok();
    let (ours, theirs) = (read(&recorded)?, read(request)?);
    let Some(place) = differ::first(&ours, &theirs) else {
        return Some("the bodies of the two requests hold the same, written differently".to_owned());
    };
    let say = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
    let (ours, theirs) = differ::shown(&say(place.ours), &say(place.theirs));
    Some(format!("in the request, at {}: expected {ours}, found {theirs}", place.pointer))
}
