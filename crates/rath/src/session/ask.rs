//! Asking a model to continue a session.
//!
//! Every call takes the same steps: the record is rendered into a request, the budget is checked, the request is sent,
//! and the answer is appended with the digest of its request. Failed attempts are appended too.

use std::collections::HashSet;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use rath_record::chunk::{Assistant, Call, Chunk, Failed, Image, Retry as RetryChunk, User};
use rath_record::turn::Next;
use rath_record::{CallId, Digest, StepId, Text, Usage};
use tracing::Instrument;

use super::{Error, Result, Session};
use super::{EventKind, Hub, StopReason, spans, within_limits};
use crate::budget::{CallEstimate, Reservation};
use crate::error::ErrorKind;
use crate::provider::{
    Answer, Delta, DeltaSink, Forecast, Provider, Request, RequestTarget, RetryAdvice, Settings, check_calls,
    estimate_tokens,
};
use crate::secrets::{SecretStream, Secrets};

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
                Some(Provider::from_record(answer.provider.clone()?, settings))
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
        let mut bytes_since = 0;
        for step in session.as_record().newest_first() {
            match (step.chunk(), step.stamp().usage) {
                (Chunk::Assistant(answer), Some(usage)) if answer.provider.as_ref() == Some(self.identity()) => {
                    return Ok(usage.total().saturating_add(estimate_tokens(bytes_since)));
                }
                // The next request does not begin with the last one.
                (Chunk::Assistant(_) | Chunk::Instructions(_) | Chunk::Compressed(_) | Chunk::Merged(_), _) => break,
                (Chunk::User(user), _) => bytes_since += loaded_bytes(&user.text),
                (Chunk::ToolResult(result), _) => bytes_since += loaded_bytes(&result.output),
                _ => {}
            }
        }
        Ok(self.request(session)?.tokens)
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
        let reservation = match session.budget_and_depth() {
            Some((budget, depth)) => {
                let (identity, prices) = (&request.identity, self.price_list());
                let reserved = budget.reserve(&CallEstimate { identity, tokens: request.tokens, depth, prices });
                Some(reserved.map_err(|error| StopReason::Budget(error).record(session))?)
            }
            None => None,
        };
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
        request: Request,
        reservation: Option<Reservation>,
    ) -> Result<()> {
        let mut rejected_keys = 0;
        let mut audience = Audience::new(session, sink);
        for attempt in 1.. {
            let mut arrived = String::new();
            let mut keep = |delta: &Delta<'_>| {
                if let Delta::Text(text) = delta {
                    arrived.push_str(text);
                }
            };
            let sent = match &mut audience {
                None => within_limits(session, self.send(&request, &mut |delta| keep(&delta))).await,
                Some(audience) => {
                    audience.session = session.quiet();
                    let mut pieces = HiddenPieces::new(session.secrets());
                    let mut show = |delta: Delta<'_>| {
                        keep(&delta);
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
                    let (step, usage) = push_answer(session, request, answer);
                    if let Some(reservation) = reservation {
                        reservation.commit(step, usage);
                        emit_budget(session);
                    }
                    return Ok(());
                }
                Ok(Err(error)) => error,
                Err(stopped) => {
                    let partial = partial(&arrived, session.secrets());
                    return Err(stopped.record_after(partial, session));
                }
            };
            // Trying another key is not counted as an attempt.
            rejected_keys += u32::from(error.retry() == RetryAdvice::OtherKey);
            let retry = self.retry_policy();
            let wait = retry.wait(attempt - rejected_keys, &error).filter(|_| rejected_keys <= MAX_KEYS_PER_CALL);
            let message = error.message();
            let Some(wait) = wait else {
                let kind = ErrorKind::from(error.kind()).name().to_owned();
                let partial = partial(&arrived, session.secrets());
                session.push(Failed::new(kind, message).with_partial(partial));
                return Err(Error::from(error).with_session(session));
            };
            let of = retry.attempts.max(1).saturating_add(rejected_keys);
            if let Some(audience) = &mut audience {
                let shown = session.secrets().hide(&message);
                audience.show(Delta::Retry { attempt, of, error: shown.as_ref().unwrap_or(&message), wait });
            }
            spans::retry_event(session, attempt, of, &message);
            session.push(RetryChunk::new(attempt, of, message));
            if !wait.is_zero() {
                let waited = within_limits(session, tokio::time::sleep(wait)).await;
                waited.map_err(|stopped| stopped.record(session))?;
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

/// Returns the part of an answer that can be recorded: what may be the beginning of a secret is left out.
fn partial(arrived: &str, secrets: &Secrets) -> Option<Text> {
    Some(secrets.stream().push(arrived)).filter(|text| !text.is_empty()).map(Text::from)
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

/// The callback and the listeners that get the pieces of an answer.
struct Audience<'a> {
    sink: Option<Box<DeltaSink<'a>>>,
    /// The session when the attempt began, for events.
    session: Session,
    hub: Hub,
}

impl<'a> Audience<'a> {
    /// Returns `None` if there is neither a callback nor a listener.
    fn new(session: &Session, sink: Option<Box<DeltaSink<'a>>>) -> Option<Self> {
        let hub = session.hub().clone();
        (sink.is_some() || !hub.is_empty()).then(|| Audience { sink, session: session.quiet(), hub })
    }

    fn show(&mut self, delta: Delta<'_>) {
        self.sink.iter_mut().for_each(|sink| sink(delta));
        let event = match delta {
            Delta::Text(text) => EventKind::Text(text.to_owned()),
            Delta::Reasoning(text) => EventKind::Reasoning(text.to_owned()),
            Delta::Retry { attempt, of, error, wait } => {
                EventKind::Retry { attempt, of, error: error.to_owned(), wait }
            }
            _ => return,
        };
        self.hub.emit(&self.session, || event);
    }
}

/// The pieces of an answer without secrets: a key may arrive letter by letter.
struct HiddenPieces {
    text: SecretStream,
    reasoning: SecretStream,
    /// The arguments of each call.
    calls: Vec<CallPieces>,
    secrets: Secrets,
}

/// The arguments of a call while they arrive.
struct CallPieces {
    nth: usize,
    /// The id and the name of the tool as they arrived.
    given: (String, String),
    /// Both without secrets.
    id: String,
    tool: String,
    arguments: SecretStream,
    is_shown: bool,
}

impl HiddenPieces {
    fn new(secrets: &Secrets) -> Self {
        HiddenPieces {
            text: secrets.stream(),
            reasoning: secrets.stream(),
            calls: Vec::new(),
            secrets: secrets.clone(),
        }
    }

    /// Passes a piece on, as far as it can be shown.
    fn push(&mut self, delta: Delta<'_>, show: &mut dyn FnMut(Delta<'_>)) {
        match delta {
            Delta::Text(piece) => {
                show_reasoning(&self.reasoning.release_short(), show);
                show_text(&self.text.push(piece), show);
            }
            Delta::Reasoning(piece) => {
                show_text(&self.text.release_short(), show);
                show_reasoning(&self.reasoning.push(piece), show);
            }
            Delta::Call { nth, id, tool, arguments } => {
                show_text(&self.text.release_short(), show);
                show_reasoning(&self.reasoning.release_short(), show);
                let given = &self.call(nth).given;
                let is_known = given.0 == id && given.1 == tool;
                if !is_known || arguments.is_empty() {
                    let hide = |name: &str| self.secrets.hide(name).unwrap_or_else(|| name.to_owned());
                    let hidden = (hide(id), hide(tool));
                    // The name of a tool may arrive in pieces too, before the arguments.
                    let may_continue = arguments.is_empty() && self.secrets.stream().push(tool) != hidden.1;
                    let call = self.call(nth);
                    (call.id, call.tool) = hidden;
                    (call.given, call.is_shown) = ((id.to_owned(), tool.to_owned()), !may_continue);
                }
                let call = self.call(nth);
                call.is_shown |= !arguments.is_empty();
                let arguments = call.arguments.push(arguments);
                if call.is_shown {
                    show(Delta::Call { nth, id: &call.id, tool: &call.tool, arguments: &arguments });
                }
            }
            _ => {
                self.finish(show);
                show(delta);
            }
        }
    }

    /// Returns the pieces of a call, which is nearly always the newest.
    fn call(&mut self, nth: usize) -> &mut CallPieces {
        let known = self.calls.iter().rposition(|call| call.nth == nth);
        let position = known.unwrap_or_else(|| {
            let (id, tool, arguments) = (String::new(), String::new(), self.secrets.stream());
            self.calls.push(CallPieces { nth, given: Default::default(), id, tool, arguments, is_shown: false });
            self.calls.len() - 1
        });
        &mut self.calls[position]
    }

    /// Shows everything that was held back.
    fn finish(&mut self, show: &mut dyn FnMut(Delta<'_>)) {
        show_reasoning(&self.reasoning.finish(), show);
        show_text(&self.text.finish(), show);
        for CallPieces { nth, id, tool, mut arguments, is_shown, .. } in std::mem::take(&mut self.calls) {
            let arguments = arguments.finish();
            if !arguments.is_empty() || !is_shown {
                show(Delta::Call { nth, id: &id, tool: &tool, arguments: &arguments });
            }
        }
    }
}

fn show_text(text: &str, show: &mut dyn FnMut(Delta<'_>)) {
    if !text.is_empty() {
        show(Delta::Text(text));
    }
}

fn show_reasoning(text: &str, show: &mut dyn FnMut(Delta<'_>)) {
    if !text.is_empty() {
        show(Delta::Reasoning(text));
    }
}

fn emit_budget(session: &Session) {
    if let Some(budget) = session.budget() {
        let (tokens, turns, limits) = (budget.spent_tokens(), budget.spent_turns(), budget.limits());
        session.emit(|| EventKind::Budget { tokens, turns, limits });
    }
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

fn push_answer(session: &mut Session, request: Request, mut answer: Answer) -> (StepId, Usage) {
    // Two ids may be equal once the secrets in them are hidden.
    for call in &mut answer.calls {
        session.secrets().hide(&call.id.0).into_iter().for_each(|id| call.id = CallId::from(id.as_str()));
    }
    make_call_ids_unique(&mut answer.calls);
    let usage = answer.usage_or_estimate(&request);
    (session.push_with_usage(answer.into_chunk(request), usage), usage)
}

/// Renames calls whose id occurs earlier in the same answer, which some servers send: a decision about a call names it by
/// its id.
fn make_call_ids_unique(calls: &mut [Call]) {
    if calls.len() < 2 {
        return;
    }
    let mut ids = HashSet::with_capacity(calls.len());
    for call in calls {
        let id = call.id.clone();
        for nth in 2.. {
            if ids.insert(call.id.clone()) {
                break;
            }
            call.id = CallId::from(format!("{id}_{nth}").as_str());
        }
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
