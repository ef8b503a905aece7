//! Models: any provider, one record.
//!
//! A [`Provider`] is what people hold, a [`ProviderBackend`] what authors write. Every call goes the same way: the record
//! is rendered into a request, the budget is asked, the request is sent, what comes back is put together, and the answer
//! is appended with the digest of its request. What went wrong on the way is appended too.

mod answer;
mod anthropic;
mod assemble;
mod embed;
mod forecast;
mod http;
mod keys;
mod openai;
mod price;
mod registry;
mod render;
mod report;
mod retry;
mod script;
mod server;
mod settings;
mod sse;
mod usage;

use std::collections::HashSet;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use rath_record::chunk::{Assistant, Call, Chunk, Failed, Identity, Image, Retry as RetryChunk, User};
use rath_record::turn::Next;
use rath_record::{CallId, Digest, StepId, Text, Usage};

pub use answer::{Again, Answer, Delta, Facts, Failure, Sink};
pub use anthropic::Anthropic;
pub use assemble::Assembly;
pub use embed::{Embedded, Embedder};
pub use forecast::Forecast;
pub use http::Timeouts;
pub use openai::OpenAi;
pub use price::{Cost, Money, Price, Prices};
pub use registry::{Env, Registry};
pub use render::Request;
pub use report::{Fate, Part, Report};
pub use retry::Retry;
pub use script::Script;
pub use settings::{Cache, Settings, Shape, Streaming};

pub(crate) use price::{asked, cost};
pub(crate) use render::{Reuse, Target};

use crate::budget::Ask as BudgetAsk;
use crate::error::ErrorKind;
use crate::secrets::Secrets;
use crate::session::{Error, EventKind, Result, Session, StopReason, within_limits};

/// A model that can be asked, on a tokio runtime with time and IO enabled.
///
/// ```
/// use rath::prelude::*;
///
/// # async fn example() -> Result<()> {
/// let provider = Provider::from(Script::of([r#"{"text": "The Seine."}"#])?);
/// let session = provider.ask(Session::user("Which river runs through Paris?")).await?;
/// assert_eq!(session.text(), Some("The Seine."));
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
pub struct Provider {
    backend: Arc<dyn Erased>,
    retry: Retry,
    prices: Arc<Prices>,
}

/// What the author of a provider writes.
///
/// A backend makes one attempt and says what came of it. When to try again, what it may cost and what is recorded is
/// decided for all of them in one place.
pub trait ProviderBackend: Send + Sync + 'static {
    /// Which provider and model: what stands in the record. Never a credential.
    fn identity(&self) -> &Identity;

    /// The shape of its requests, and what they hold beside what is in the record.
    fn settings(&self) -> &Arc<Settings>;

    /// What must never be recorded of it: its keys. Asked for with every call, so keep it rather than make it.
    fn secrets(&self) -> Secrets {
        Secrets::default()
    }

    /// Sends a request and takes in the answer, piece by piece where it comes so.
    ///
    /// Dropping the future ends the attempt and closes the connection. A stream that ends early is a [`Failure`].
    fn send(&self, request: &Request, sink: &mut Sink<'_>) -> impl Future<Output = Result<Answer, Failure>> + Send;
}

/// The same, so that one handle holds any of them.
trait Erased: Send + Sync {
    fn identity(&self) -> &Identity;
    fn settings(&self) -> &Arc<Settings>;
    fn secrets(&self) -> Secrets;
    fn send<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut Sink<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send + 'a>>;
}

impl<B: ProviderBackend> Erased for B {
    fn identity(&self) -> &Identity {
        ProviderBackend::identity(self)
    }

    fn settings(&self) -> &Arc<Settings> {
        ProviderBackend::settings(self)
    }

    fn secrets(&self) -> Secrets {
        ProviderBackend::secrets(self)
    }

    fn send<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut Sink<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send + 'a>> {
        Box::pin(ProviderBackend::send(self, request, sink))
    }
}

impl Provider {
    /// A provider with this backend.
    pub fn new(backend: impl ProviderBackend) -> Self {
        Provider { backend: Arc::new(backend), retry: Retry::default(), prices: Prices::shared_list() }
    }

    /// The provider that a URI names: `openai:MODEL`, `anthropic:MODEL` or `script:FILE`.
    ///
    /// Keys and whatever else is not in the URI come from the environment of the process: `OPENAI_API_KEY`,
    /// `OPENAI_BASE_URL`, `OPENAI_DEFAULT_MODEL`, and the same for `ANTHROPIC`. For other kinds see [`Registry`].
    pub fn open(uri: &str) -> Result<Self> {
        Registry::new().open(uri, &Env::process())
    }

    /// The provider that a session knows, as one that can be replayed and not asked: who answered last, and with which
    /// settings. None where nobody did.
    pub fn recorded(session: &Session) -> Option<Self> {
        session.as_record().newest_first().find_map(|step| match step.chunk() {
            Chunk::Assistant(answer) => {
                let settings = Settings::from_json(answer.settings.as_ref()?).ok()?;
                Some(Provider::new(Recorded { identity: answer.provider.clone()?, settings: Arc::new(settings) }))
            }
            _ => None,
        })
    }

    /// Sets how often a call is tried.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the prices by which a budget counts money.
    pub fn prices(mut self, prices: Prices) -> Self {
        self.prices = Arc::new(prices);
        self
    }

    /// Which provider and model.
    pub fn identity(&self) -> &Identity {
        self.backend.identity()
    }

    /// What must never be recorded of it. A session hides it from when it is asked on; to hide it sooner, in what the user
    /// says for one, use [`Session::hiding`].
    pub fn secrets(&self) -> Secrets {
        self.backend.secrets()
    }

    /// Asks the model to go on from a session. Await it for the session with the answer.
    ///
    /// Every failed attempt is a step of its own. If none succeeds, the error carries the session, in which the last step
    /// says why.
    pub fn ask<'a>(&self, session: Session) -> Ask<'a> {
        Ask { provider: self.clone(), session, sink: None }
    }

    /// Asks the model what an image shows. The session that comes back holds the question, the image and the answer.
    pub async fn describe(&self, image: Image, question: &str) -> Result<Session> {
        let mut session = Session::empty();
        session.push(User { text: question.into(), images: vec![image] });
        self.ask(session).await
    }

    /// The request that asking would send, and what it would lose on the way.
    pub fn request(&self, session: &Session) -> Result<Request> {
        session.render(self.target())
    }

    /// About how many tokens the next request has.
    ///
    /// Counted from what the provider said of the last one where the session only went on from there.
    pub fn tokens(&self, session: &Session) -> Result<u64> {
        let mut since = 0;
        for step in session.as_record().newest_first() {
            match (step.chunk(), step.stamp().usage) {
                (Chunk::Assistant(answer), Some(usage)) if answer.provider.as_ref() == Some(self.identity()) => {
                    return Ok(usage.total().saturating_add(render::tokens(since)));
                }
                // What the request held is no longer what the last one held.
                (Chunk::Assistant(_) | Chunk::Instructions(_) | Chunk::Compressed(_) | Chunk::Merged(_), _) => break,
                (Chunk::User(user), _) => since += length(&user.text),
                (Chunk::ToolResult(result), _) => since += length(&result.output),
                _ => {}
            }
        }
        Ok(self.request(session)?.tokens)
    }

    /// How much of the next request the provider may have in its prompt cache.
    pub fn forecast(&self, session: &Session) -> Result<Forecast> {
        forecast::forecast(session, self.target())
    }

    fn target(&self) -> Target<'_> {
        Target { identity: self.backend.identity(), settings: self.backend.settings() }
    }
}

/// One that has said all it will ever say.
struct Recorded {
    identity: Identity,
    settings: Arc<Settings>,
}

impl ProviderBackend for Recorded {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    async fn send(&self, _: &Request, _: &mut Sink<'_>) -> Result<Answer, Failure> {
        let message = format!("{} is only known from a record, and cannot be asked", self.identity);
        Err(Failure::new(ErrorKind::Provider, message).with_hint("open it by its URI: `Provider::open(..)`"))
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("identity", self.identity())
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

/// A model call that is about to be made. Await it.
#[must_use = "nothing is sent until it is awaited"]
pub struct Ask<'a> {
    provider: Provider,
    session: Session,
    sink: Option<Box<Sink<'a>>>,
}

/// How many keys are tried for one call, whatever a backend says.
const KEYS_MOST: u32 = 1_000;

impl<'a> Ask<'a> {
    /// Hands on the pieces of the answer as they come.
    pub fn each(mut self, sink: impl FnMut(Delta<'_>) + Send + 'a) -> Self {
        self.sink = Some(Box::new(sink));
        self
    }

    /// What awaiting it does, for those whose own future has room for it.
    pub(crate) async fn run(self) -> Result<Session> {
        let Ask { provider, mut session, sink } = self;
        let mut sink: Box<Sink<'_>> = sink.unwrap_or_else(|| Box::new(|_| {}));
        session.hide_also(&provider.secrets());
        check_turn(&session)?;
        let request = provider.request(&session)?;
        if let Some(replay) = session.replaying().cloned() {
            return Box::pin(replay.replay_answer(session, &request, &mut *sink)).await;
        }
        let hold = match session.purse() {
            Some((budget, depth)) => {
                let (identity, prices) = (&request.identity, &*provider.prices);
                let hold = budget.hold(&BudgetAsk { identity, tokens: request.tokens, depth, prices });
                Some(hold.map_err(|stop| StopReason::Budget(stop).record(&mut session))?)
            }
            None => None,
        };
        note_losses(&mut session, &request);
        let mut keys = 0;
        for made in 1.. {
            let told = (!session.hub().is_empty()).then(|| (session.quiet(), session.hub().clone()));
            let mut both = |delta: Delta<'_>| {
                sink(delta);
                if let Some((session, hub)) = &told
                    && let Some(event) = event(delta)
                {
                    hub.emit(session, || event);
                }
            };
            let sent = within_limits(&session, provider.backend.send(&request, &mut both)).await;
            let failure = match sent {
                Ok(Ok(answer)) => {
                    let (step, usage) = record(&mut session, &request, answer);
                    if let Some(hold) = hold {
                        hold.settle(step, usage);
                        tell_budget(&session);
                    }
                    return Ok(session);
                }
                Ok(Err(failure)) => failure,
                Err(stopped) => return Err(stopped.record(&mut session)),
            };
            // Another key is tried beside the attempts that are allowed.
            keys += u32::from(failure.again == Again::OtherKey);
            let wait = provider.retry.wait(made - keys, &failure, retry::random()).filter(|_| keys <= KEYS_MOST);
            let Some(wait) = wait else {
                let (error, message) = (failure.kind.name().to_owned(), failure.message.as_str().into());
                session.push(Failed { error, message });
                return Err(Error::from(failure).with_session(&session));
            };
            let (attempt, of) = (made, provider.retry.attempts.max(1).saturating_add(keys));
            sink(Delta::Retry { attempt, of, error: &failure.message, wait });
            session.emit(|| EventKind::Retry { attempt, of, error: failure.message.clone(), wait });
            session.push(RetryChunk { attempt, of, error: failure.message.into() });
            if !wait.is_zero() {
                let waited = within_limits(&session, tokio::time::sleep(wait)).await;
                waited.map_err(|stopped| stopped.record(&mut session))?;
            }
        }
        unreachable!("attempts and keys are both counted")
    }
}

impl<'a> IntoFuture for Ask<'a> {
    type Output = Result<Session>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Session>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { Session::settled(self.run().await).await })
    }
}

fn check_turn(session: &Session) -> Result<()> {
    let wrong = match session.next() {
        Next::AskModel => return Ok(()),
        Next::RunTools(calls) => {
            let call = &calls[0].call;
            Error::new(ErrorKind::Turn, format_args!("the call `{}` ({}) has no result yet", call.id, call.tool))
                .with_hint("run the tools, and push their results, before the model is asked again")
        }
        Next::Done => {
            let why = if session.messages().list.is_empty() { "nobody spoke" } else { "the model has the last word" };
            Error::new(ErrorKind::Turn, format_args!("there is nothing to answer: {why}"))
                .with_hint("push what the user says")
        }
    };
    Err(wrong.with_session(session))
}

fn length(text: &Text) -> u64 {
    text.as_str().map_or(0, |text| text.len() as u64)
}

/// What those who listen to the session are told of a piece of an answer.
fn event(delta: Delta<'_>) -> Option<EventKind> {
    match delta {
        Delta::Text(text) => Some(EventKind::Text(text.to_owned())),
        Delta::Reasoning(text) => Some(EventKind::Reasoning(text.to_owned())),
        _ => None,
    }
}

fn tell_budget(session: &Session) {
    if let Some(budget) = session.budget() {
        let (tokens, turns, limits) = (budget.spent_tokens(), budget.spent_turns(), budget.limits());
        session.emit(|| EventKind::Budget { tokens, turns, limits });
    }
}

/// What another model said may not survive as it was: that is noted when the model changes, and not with every turn.
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

fn record(session: &mut Session, request: &Request, mut answer: Answer) -> (StepId, Usage) {
    tell_apart(&mut answer.calls);
    let usage = answer.cost(request);
    (session.push_with_usage(answer.into_chunk(request), usage), usage)
}

/// Some servers give two calls of one answer the same name: whoever decides on one of them has to be able to say which.
fn tell_apart(calls: &mut [Call]) {
    let mut named = HashSet::with_capacity(calls.len());
    for call in calls {
        let name = call.id.clone();
        for nth in 2.. {
            if named.insert(call.id.clone()) {
                break;
            }
            call.id = CallId::from(format!("{name}_{nth}").as_str());
        }
    }
}

/// The request that an answer in the record came of, byte for byte.
pub(crate) fn rebuild(session: &Session, answer: &Assistant) -> Result<Request> {
    let asked: Option<(Digest, _, _)> =
        (|| Some((answer.request?, answer.provider.as_ref()?, answer.settings.as_ref()?)))();
    let Some((digest, identity, settings)) = asked else {
        return Err(Error::new(
            ErrorKind::Request,
            "no request stands behind this answer: it was not given by a provider",
        ));
    };
    let settings = Settings::from_json(settings).map_err(|error| {
        Error::new(ErrorKind::Request, format_args!("the request was made in a way that is not known here: {error}"))
            .with_hint("a newer version of rath may know it")
    })?;
    let request = session.render(Target { identity, settings: &Arc::new(settings) })?;
    if request.digest != digest {
        let message =
            format!("rebuilt, the request has digest {:.8}, and what was sent had {digest:.8}", request.digest);
        return Err(Error::new(ErrorKind::Request, message));
    }
    Ok(request)
}
