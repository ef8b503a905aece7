//! Asking a model to continue a session.
//!
//! Every call takes the same steps: the record is rendered into a request, the budget is checked, the request is sent,
//! and the answer is appended with the digest of its request. Failed attempts are appended too.

mod attempt;
mod pieces;

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use rath_record::chunk::{Assistant, Chunk, Failed, Image, Retry as RetryChunk, ToolResult, User};
use rath_record::turn::Next;
use rath_record::{Digest, Text};
use tracing::Instrument;

use self::attempt::Attempt;
use self::pieces::{Audience, HiddenPieces};
use super::{Error, Result, Session};
use super::{spans, within_limits};
use crate::budget::Reservation;
use crate::error::ErrorKind;
use crate::provider::{
    Delta, DeltaSink, Forecast, Provider, Request, RequestTarget, RetryAdvice, Settings, check_calls, estimate_tokens,
};

/// The most keys that are tried for one call, even if a backend offers more.
const MAX_KEYS_PER_CALL: u32 = 1_000;

impl Provider {
    /// Returns the provider and the settings of the newest answer in a session, or `None` if no model has answered.
    ///
    /// The provider can be used for a replay. Asking it fails.
    pub fn recorded(session: &Session) -> Option<Self> {
        session.as_record().newest_first().find_map(|step| match step.chunk() {
            Chunk::Assistant(answer) => {
                let settings = Settings::from_json(answer.settings.as_ref()?).ok()?;
                Some(Provider::from_record(answer.provider.clone()?, settings.without_output_limit()))
            }
            _ => None,
        })
    }

    /// Asks the model to continue a session. Await the call to get the session with the answer.
    ///
    /// Every failed attempt is a step of its own. If none succeeds, the error carries the session, whose last step holds
    /// the reason.
    pub fn ask<'a>(&self, session: Session) -> Ask<'a> {
        Ask { provider: self.clone(), session, sink: None }
    }

    /// Asks the model a question about an image. Returns a session with the question, the image and the answer.
    pub async fn describe(&self, image: Image, question: &str) -> Result<Session> {
        let mut session = Session::empty();
        session.push(User::new(question).with_images(vec![image]));
        self.ask(session).await
    }

    /// Returns the request that [`ask`](Provider::ask) would send, with a report of what would be lost.
    pub fn request(&self, session: &Session) -> Result<Request> {
        session.render(self.target())
    }

    /// Estimates the number of tokens of the next request.
    ///
    /// The estimate starts from the provider's own count for the last request if the session has only grown since.
    pub fn tokens(&self, session: &Session) -> Result<u64> {
        match self.counted_tokens(session) {
            Some((counted, bytes_since)) => Ok(counted.saturating_add(estimate_tokens(bytes_since))),
            None => Ok(self.request(session)?.tokens),
        }
    }

    /// Returns the provider's count of the tokens up to its last answer, and the bytes of text since. Returns `None` if the next
    /// request does not begin with the last one.
    fn counted_tokens(&self, session: &Session) -> Option<(u64, u64)> {
        let mut bytes_since = 0;
        for step in session.as_record().newest_first() {
            match (step.chunk(), step.stamp().usage) {
                (Chunk::Assistant(answer), Some(usage)) if answer.provider.as_ref() == Some(self.identity()) => {
                    return Some((usage.total(), bytes_since));
                }
                (Chunk::Assistant(_) | Chunk::Instructions(_) | Chunk::Compressed(_) | Chunk::Merged(_), _) => break,
                (Chunk::User(User { images, .. }) | Chunk::ToolResult(ToolResult { images, .. }), _)
                    if !images.is_empty() =>
                {
                    break;
                }
                (Chunk::User(user), _) => bytes_since += loaded_bytes(&user.text),
                (Chunk::ToolResult(result), _) => bytes_since += loaded_bytes(&result.output),
                _ => {}
            }
        }
        None
    }

    /// Estimates how much of the next request the provider may have in its prompt cache.
    pub fn forecast(&self, session: &Session) -> Result<Forecast> {
        let (target, request) = (self.target(), self.request(session)?);
        let earlier = Forecast::candidates(session.as_record()).into_iter().filter_map(|(step, answer)| {
            let same_model = answer.provider.as_ref() == Some(target.identity);
            let before = Session::before(step)?;
            let sent = same_model.then(|| rebuild(&before, answer).ok()).flatten()?;
            Some((step, sent))
        });
        Ok(Forecast::compare(&request, earlier, target.settings))
    }
}

/// A model call that is sent when it is awaited.
///
/// ```
/// use rath::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// # let provider = Provider::from(Script::of([r#"{"text": "The Seine."}"#])?);
/// let mut text = String::new();
/// let ask = provider.ask(Session::user("Which river runs through Paris?")).each(|delta| {
///     if let Delta::Text(piece) = delta {
///         text.push_str(piece);
///     }
/// });
/// let session = ask.await?;
/// assert_eq!(session.text(), Some(text.as_str()));
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is sent until it is awaited"]
pub struct Ask<'a> {
    provider: Provider,
    session: Session,
    sink: Option<Box<DeltaSink<'a>>>,
}

impl<'a> Ask<'a> {
    /// Passes each piece of the answer to `sink` as it arrives.
    pub fn each(mut self, sink: impl FnMut(Delta<'_>) + Send + 'a) -> Self {
        self.sink = Some(Box::new(sink));
        self
    }

    async fn run(self) -> Result<Session> {
        let Ask { provider, mut session, sink } = self;
        provider.ask_in(&mut session, sink).await?;
        Ok(session)
    }
}

impl Provider {
    /// Asks the model to continue a session, and appends the answer to it: see [`ask`](Provider::ask).
    pub(crate) async fn ask_in(&self, session: &mut Session, sink: Option<Box<DeltaSink<'_>>>) -> Result<()> {
        session.require_own("continue it")?;
        session.hide_also(&self.secrets());
        check_turn(session)?;
        let request = self.request(session)?;
        if let Some(replay) = session.replaying().cloned() {
            let mut sink = sink.unwrap_or_else(|| Box::new(|_| {}));
            return Box::pin(replay.replay_answer(session, &request, &mut *sink)).await;
        }
        let (request, reservation) = self.within_budget(session, request).await?;
        note_losses(session, &request);
        let span = spans::model_span(session, &request);
        let asked = self.send_until_answered(session, sink, request, reservation).instrument(span.clone()).await;
        spans::record_answer(&span, session, &asked);
        asked
    }

    /// Sends a request, again where an attempt fails that may succeed later, and appends the answer.
    async fn send_until_answered(
        &self,
        session: &mut Session,
        sink: Option<Box<DeltaSink<'_>>>,
        mut request: Request,
        mut reservation: Option<Reservation>,
    ) -> Result<()> {
        let mut rejected_keys = 0;
        let mut audience = Audience::new(session, sink);
        for nth in 1.. {
            let mut attempt = Attempt::new(&request, reservation.take());
            let sent = match &mut audience {
                None => within_limits(session, self.send(&request, &mut |delta| attempt.note(&delta))).await,
                Some(audience) => {
                    audience.session = session.quiet();
                    let mut pieces = HiddenPieces::new(session.secrets());
                    let mut show = |delta: Delta<'_>| {
                        attempt.note(&delta);
                        pieces.push(delta, &mut |delta| audience.show(delta));
                    };
                    let sent = within_limits(session, self.send(&request, &mut show)).await;
                    // A backend need not say that an answer ends.
                    if let Ok(Ok(_)) = &sent {
                        pieces.finish(&mut |delta| audience.show(delta));
                    }
                    sent
                }
            };
            let checked = sent.map(|sent| sent.and_then(|answer| check_calls(&answer.calls).map(|()| answer)));
            let error = match checked {
                Ok(Ok(answer)) => {
                    attempt.push_answer(session, request, answer);
                    return Ok(());
                }
                Ok(Err(error)) => error,
                Err(stopped) => return Err(attempt.push_stop(session, stopped)),
            };
            // Trying another key is not counted as an attempt.
            rejected_keys += u32::from(error.retry() == RetryAdvice::OtherKey);
            let retry = self.retry_policy();
            let wait = retry.wait(nth - rejected_keys, &error).filter(|_| rejected_keys <= MAX_KEYS_PER_CALL);
            let message = error.message();
            let Some(wait) = wait else {
                let kind = ErrorKind::from(error.kind()).name().to_owned();
                attempt.push_failure(session, Failed::new(kind, message));
                return Err(Error::from(error).with_session(session));
            };
            let of = retry.attempts.max(1).saturating_add(rejected_keys);
            if let Some(audience) = &mut audience {
                let shown = session.secrets().hide(&message);
                audience.show(Delta::Retry { attempt: nth, of, error: shown.as_ref().unwrap_or(&message), wait });
            }
            spans::retry_event(session, nth, of, &message);
            attempt.push_retry(session, RetryChunk::new(nth, of, message));
            if !wait.is_zero() {
                let waited = within_limits(session, tokio::time::sleep(wait)).await;
                waited.map_err(|stopped| stopped.record(session))?;
            }
            if session.budget().is_some() {
                // The attempt may have used a part of the budget, and others may have used the rest.
                let mut again = self.request(session)?;
                again.rejected_keys = request.rejected_keys;
                (request, reservation) = self.within_budget(session, again).await?;
            }
        }
        unreachable!("attempts and keys are both limited")
    }
}

impl<'a> IntoFuture for Ask<'a> {
    type Output = Result<Session>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Session>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { Session::wait_until_durable(self.run().await).await })
    }
}

fn check_turn(session: &Session) -> Result<()> {
    let error = match session.next() {
        Next::AskModel => return Ok(()),
        Next::RunTools(calls) => {
            let call = &calls[0].call;
            Error::new(ErrorKind::Turn, format_args!("the call `{}` ({}) has no result yet", call.id, call.tool))
                .with_hint("run the tools, and push their results, before the model is asked again")
        }
        Next::Done => {
            let is_empty = session.messages().list.is_empty();
            let why = if is_empty { "the session has no messages" } else { "the last message is the model's" };
            Error::new(ErrorKind::Turn, format_args!("there is nothing to answer: {why}"))
                .with_hint("push what the user says")
        }
    };
    Err(error.with_session(session))
}

/// Returns the length of a text, or 0 if the text is not loaded.
fn loaded_bytes(text: &Text) -> u64 {
    text.as_str().map_or(0, |text| text.len() as u64)
}

/// Appends a note of what the request loses, if the model is another than that of the last answer.
///
/// Once for each change of model, not with every turn.
pub(crate) fn note_losses(session: &mut Session, request: &Request) {
    let last = session.as_record().newest_first().find_map(|step| match step.chunk() {
        Chunk::Assistant(Assistant { provider, .. }) => Some(provider.as_ref()),
        _ => None,
    });
    if let Some(Some(last)) = last
        && *last != request.identity
        && !request.report.is_lossless()
    {
        let report = request.report.to_string().replace('\n', "; ");
        session.push(Chunk::note(format!("from {last} to {}: {report}", request.identity)));
    }
}

/// Rebuilds the request behind an answer in the record, byte for byte. `session` ends right before the answer.
pub(crate) fn rebuild(session: &Session, answer: &Assistant) -> Result<Request> {
    rebuild_with(answer, |target| session.render(target), |request| request.digest)
}

/// Fails where [`rebuild`] does, and makes no copy of the request.
pub(crate) fn check_rebuild(session: &Session, answer: &Assistant) -> Result<()> {
    rebuild_with(answer, |target| session.request_digest(target), |digest| *digest).map(drop)
}

fn rebuild_with<T>(
    answer: &Assistant,
    render: impl FnOnce(RequestTarget<'_>) -> Result<T>,
    digest_of: impl FnOnce(&T) -> Digest,
) -> Result<T> {
    let recorded: Option<(Digest, _, _)> =
        (|| Some((answer.request?, answer.provider.as_ref()?, answer.settings.as_ref()?)))();
    let Some((digest, identity, settings)) = recorded else {
        return Err(Error::new(ErrorKind::Request, "this answer has no request: it did not come from a provider"));
    };
    let settings = Settings::from_json(settings).map_err(|error| {
        Error::new(ErrorKind::Request, "the request was sent with settings that this version cannot read")
            .with_hint("open the session with a newer version of rath")
            .because(error)
    })?;
    let rebuilt = render(RequestTarget { identity, settings: &Arc::new(settings) })?;
    let found = digest_of(&rebuilt);
    if found != digest {
        let message = format!("the rebuilt request has digest {found:.8}, the one sent had {digest:.8}");
        return Err(Error::new(ErrorKind::Request, message));
    }
    Ok(rebuilt)
}
