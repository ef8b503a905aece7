//! Endings of answers after which a run is not over, or not well: withheld, cut off, empty, paused.

use rath_record::chunk::{Assistant, Chunk, Failed, Finish, Outcome, ToolResult};
use rath_record::turn::{PendingCall, Progress};
use serde_json::value::RawValue;

use crate::error::ErrorKind;
use crate::provider::{OutputLimit, Settings};
use crate::session::{Error, Result, Session};

/// The number of times that a model may go on with one answer that was cut off.
const MAX_CONTINUATIONS: u32 = 3;
/// The number of times that an empty answer is asked for again.
const MAX_EMPTY_ANSWERS: u32 = 1;
/// The number of times that a provider may pause one answer.
const MAX_PAUSES: u32 = 20;

const ASK_AGAIN: &str = "Your answer was empty. Answer, or say in words that you are done.";
const WITHHELD_CALL: &str = "not made: the provider withheld the answer that asked for this call";

/// The end of an answer, as far as an agent acts on it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Complete,
    Withheld,
    /// The text stops in the middle.
    CutOff,
    /// There is neither text nor a call.
    Empty,
    Paused,
}

impl Ending {
    fn of(answer: &Assistant) -> Self {
        match answer.finish {
            Finish::Filtered => Ending::Withheld,
            // A call that was cut off is closed before the others are made, and its result tells the model.
            Finish::Length if answer.calls.is_empty() => Ending::CutOff,
            _ if answer.is_paused() => Ending::Paused,
            _ if answer.calls.is_empty() && is_blank(answer) => Ending::Empty,
            _ => Ending::Complete,
        }
    }
}

/// The endings of one run that followed each other.
#[derive(Default)]
pub(super) struct Endings {
    continuations: u32,
    empty_answers: u32,
    pauses: u32,
}

impl Endings {
    /// Acts on the newest answer: fails, or tells the model what is missing, so that it is asked again.
    pub(super) fn act_on(&mut self, session: &mut Session) -> Result<()> {
        let head = session.head().cloned();
        let Some(Chunk::Assistant(answer)) = head.as_ref().map(|step| step.chunk()) else { return Ok(()) };
        match Ending::of(answer) {
            Ending::Complete => *self = Endings::default(),
            // The calls are closed first, when it is their turn.
            Ending::Withheld if !answer.calls.is_empty() => {}
            Ending::Withheld => return Err(withheld(session)),
            Ending::CutOff => {
                let limit = describe_limit(answer);
                let sentence =
                    limit.as_ref().map(|limit| format!(" An answer has at most {limit}.")).unwrap_or_default();
                session
                    .push(Chunk::user(format!("Your answer was cut off.{sentence} Go on exactly where it stopped.")));
                self.continuations += 1;
                if self.continuations > MAX_CONTINUATIONS {
                    let limit = limit.map(|limit| format!(" at {limit}")).unwrap_or_default();
                    let message =
                        format!("the answer was cut off{limit}, and so were {MAX_CONTINUATIONS} continuations");
                    let hint = "run it again to continue, or allow longer answers with the option `max_tokens`";
                    return Err(failed(session, ErrorKind::Limit, message, hint));
                }
            }
            Ending::Empty => {
                self.empty_answers += 1;
                if self.empty_answers > MAX_EMPTY_ANSWERS {
                    let message = "the model gave an empty answer, and another one when it was asked again";
                    let hint = "say more of what you want, or ask another model";
                    return Err(failed(session, ErrorKind::Answer, message.to_owned(), hint));
                }
                session.push(Chunk::user(ASK_AGAIN));
            }
            Ending::Paused => {
                self.pauses += 1;
                if self.pauses > MAX_PAUSES {
                    let message = format!("the provider paused the answer more than {MAX_PAUSES} times");
                    return Err(failed(session, ErrorKind::Limit, message, "run it again to continue"));
                }
            }
        }
        Ok(())
    }
}

/// Returns the text of the newest answer, with that of the answers that it continues.
pub(super) fn whole_answer(session: &Session) -> String {
    let mut parts = Vec::new();
    for step in session.as_record().newest_first() {
        match step.chunk() {
            Chunk::Assistant(answer) if parts.is_empty() || is_continued(answer) => {
                parts.push(answer.text.as_str().unwrap_or_default());
            }
            // A message of the agent itself asks it to go on.
            Chunk::User(_) if step.stamp().by.is_some() => {}
            Chunk::Assistant(_) | Chunk::User(_) | Chunk::ToolResult(_) => break,
            _ => {}
        }
    }
    parts.into_iter().rev().collect()
}

/// Returns true if the next answer goes on with the text of this one.
fn is_continued(answer: &Assistant) -> bool {
    matches!(Ending::of(answer), Ending::CutOff | Ending::Paused)
}

/// Closes the calls that must not be made because their answer was withheld or ended before they did. Returns true if there are some.
/// Fails for an answer that was withheld.
pub(super) fn close_unfinished(session: &mut Session, calls: &[PendingCall]) -> Result<bool> {
    let new = || calls.iter().filter(|pending| pending.progress == Progress::New);
    let finish_of = |pending: &PendingCall| {
        let step = session.as_record().find(pending.origin.answer)?;
        let Chunk::Assistant(answer) = step.chunk() else { return None };
        let is_last = pending.origin.index as usize + 1 == answer.calls.len();
        Some((answer.finish, is_last, describe_limit(answer)))
    };
    let mut results = Vec::new();
    let mut is_withheld = false;
    for pending in new() {
        let output = match finish_of(pending) {
            Some((Finish::Filtered, ..)) => {
                is_withheld = true;
                WITHHELD_CALL.to_owned()
            }
            Some((Finish::Length, true, limit)) if !has_whole_arguments(pending) => {
                let limit = limit.map(|limit| format!(" at {limit}")).unwrap_or_default();
                format!(
                    "not made: the answer was cut off{limit}, before the arguments ended. Make the call again, shorter."
                )
            }
            _ => continue,
        };
        results.push(ToolResult::new(pending.call.id.clone(), Outcome::Cancelled, output));
    }
    let is_closed = !results.is_empty();
    for result in results {
        session.push(result);
    }
    if is_withheld { Err(withheld(session)) } else { Ok(is_closed) }
}

/// Returns true if the arguments of a call are known to be whole. An empty object stands also for arguments that did not begin.
fn has_whole_arguments(pending: &PendingCall) -> bool {
    let arguments = pending.call.arguments.as_str().unwrap_or_default().trim();
    arguments != "{}" && serde_json::from_str::<&RawValue>(arguments).is_ok()
}

fn withheld(session: &mut Session) -> Error {
    let message = "the provider withheld the answer, or a part of it".to_owned();
    failed(session, ErrorKind::Refused, message, "ask in other words, or ask another model")
}

/// Records a failure of the run, and returns it.
fn failed(session: &mut Session, kind: ErrorKind, message: String, hint: &str) -> Error {
    session.push(Failed::new(kind.name(), message.as_str()));
    Error::new(kind, message).with_hint(hint).with_session(session)
}

/// Returns the limit of an answer in words, if it is on record.
fn describe_limit(answer: &Assistant) -> Option<String> {
    let settings = Settings::from_json(answer.settings.as_ref()?).ok()?;
    let limit = OutputLimit::of(answer.provider.as_ref()?, &settings);
    limit.is_in_force.then(|| rath_record::draw::count(limit.most, "token"))
}

fn is_blank(answer: &Assistant) -> bool {
    answer.text.as_str().is_some_and(|text| text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_follows_from_the_answer_alone() {
        let answer = |text: &str, finish| Assistant::new(text).with_finish(finish);
        let call = rath_record::chunk::Call::new("c1", "look", "{}");
        assert_eq!(Ending::of(&answer("hi", Finish::Stop)), Ending::Complete);
        assert_eq!(Ending::of(&answer(" \n", Finish::Stop)), Ending::Empty);
        assert_eq!(Ending::of(&answer("", Finish::Calls)), Ending::Empty);
        assert_eq!(Ending::of(&answer("", Finish::Calls).with_calls([call.clone()])), Ending::Complete);
        assert_eq!(Ending::of(&answer("h", Finish::Length)), Ending::CutOff);
        assert_eq!(Ending::of(&answer("h", Finish::Length).with_calls([call.clone()])), Ending::Complete);
        assert_eq!(Ending::of(&answer("h", Finish::Filtered).with_calls([call])), Ending::Withheld);
    }
}
