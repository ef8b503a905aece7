//! Providers: models of any vendor behind one interface.
//!
//! Programs hold a [`Provider`]; a [`ProviderBackend`] is what the author of one writes. Everything here works on the record
//! and on bytes: it renders a record into a request, sends it, and assembles the answer. The loop that asks, retries and
//! appends to a session is [`Provider::ask`].

mod answer;
#[cfg(feature = "http")]
mod anthropic;
mod assemble;
#[cfg(feature = "http")]
mod embed;
mod error;
mod forecast;
#[cfg(feature = "http")]
mod gemini;
#[cfg(feature = "http")]
mod http;
mod keys;
#[cfg(feature = "http")]
mod openai;
mod output_limit;
mod price;
mod registry;
mod render;
mod report;
mod retry;
mod script;
#[cfg(feature = "http")]
mod server;
mod settings;
mod sse;
mod usage;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rath_record::chunk::Identity;

pub use answer::{Answer, AnswerFacts, Delta, DeltaSink};
#[cfg(feature = "http")]
pub use anthropic::Anthropic;
pub use assemble::Assembler;
#[cfg(feature = "http")]
pub use embed::{Embedder, Embeddings};
pub use error::{ProviderError, ProviderErrorKind, RetryAdvice};
pub use forecast::Forecast;
#[cfg(feature = "http")]
pub use gemini::Gemini;
#[cfg(feature = "http")]
pub use http::Timeouts;
#[cfg(feature = "http")]
pub use openai::OpenAi;
pub use price::{Cost, Price, Prices};
pub use rath_record::Money;
pub use registry::{Env, ProviderRegistry};
pub use render::Request;
pub use report::{RenderReport, ReportPart, Treatment};
pub use retry::Retry;
pub use script::Script;
pub use settings::{PromptCache, Settings, Shape, Streaming};

pub(crate) use assemble::{MAX_ARGUMENT_VALUES, check_calls, count_json_values};
#[cfg(feature = "http")]
pub(crate) use http::is_local;
pub(crate) use output_limit::OutputLimit;
pub(crate) use price::{cost, identity_of};
pub(crate) use render::{RequestCache, RequestTarget, estimate_tokens};

use crate::secrets::Secrets;

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
    backend: Arc<dyn DynProviderBackend>,
    retry: Retry,
    prices: Arc<Prices>,
}

/// The interface that the author of a provider implements.
///
/// A backend makes one attempt and returns its result. When to try again, what may be spent and what is recorded is decided
/// in one place for all backends.
///
/// ```
/// use std::sync::Arc;
///
/// use rath::chunk::Identity;
/// use rath::prelude::*;
/// use rath::provider::{Answer, DeltaSink, ProviderBackend, ProviderError, Request, Settings, Shape};
///
/// /// Answers with the length of the request.
/// struct Length(Identity, Arc<Settings>);
///
/// impl ProviderBackend for Length {
///     fn identity(&self) -> &Identity {
///         &self.0
///     }
///
///     fn settings(&self) -> &Arc<Settings> {
///         &self.1
///     }
///
///     async fn send(&self, request: &Request, _sink: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
///         Ok(Answer { text: format!("{} bytes", request.body().len()), ..Answer::default() })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// let identity = Identity { provider: "house".to_owned(), model: "length".to_owned() };
/// let provider = Provider::new(Length(identity, Arc::new(Settings::new(Shape::Chat))));
/// let session = provider.ask(Session::user("hello")).await?;
/// assert!(session.text().is_some_and(|text| text.ends_with(" bytes")));
/// # Ok(())
/// # }
/// ```
pub trait ProviderBackend: Send + Sync + 'static {
    /// Returns the provider and the model, as they are recorded. Never a credential.
    fn identity(&self) -> &Identity;

    /// Returns the wire format of the requests, and the parts of them that are not in the record.
    fn settings(&self) -> &Arc<Settings>;

    /// Returns the option that limits the length of answers. A budget sets it if no option limits them.
    fn limit_option(&self) -> &'static str {
        self.settings().usual_limit_member()
    }

    /// Returns the values that must never be recorded: the keys.
    ///
    /// Called with every request, so store the value instead of building it here.
    fn secrets(&self) -> Secrets {
        Secrets::default()
    }

    /// Sends a request and reads the answer, passing its pieces to `sink` if it is streamed.
    ///
    /// Dropping the future ends the attempt and closes the connection. A stream that ends early is an error.
    fn send(
        &self,
        request: &Request,
        sink: &mut DeltaSink<'_>,
    ) -> impl Future<Output = Result<Answer, ProviderError>> + Send;
}

/// An attempt under way, of any backend.
type SendFuture<'a> = Pin<Box<dyn Future<Output = Result<Answer, ProviderError>> + Send + 'a>>;

/// A [`ProviderBackend`] whose type is erased, so that one handle can hold any of them.
trait DynProviderBackend: Send + Sync {
    fn identity(&self) -> &Identity;
    fn settings(&self) -> &Arc<Settings>;
    fn limit_option(&self) -> &'static str;
    fn secrets(&self) -> Secrets;
    fn send<'a>(&'a self, request: &'a Request, sink: &'a mut DeltaSink<'_>) -> SendFuture<'a>;
}

impl<B: ProviderBackend> DynProviderBackend for B {
    fn identity(&self) -> &Identity {
        ProviderBackend::identity(self)
    }

    fn settings(&self) -> &Arc<Settings> {
        ProviderBackend::settings(self)
    }

    fn limit_option(&self) -> &'static str {
        ProviderBackend::limit_option(self)
    }

    fn secrets(&self) -> Secrets {
        ProviderBackend::secrets(self)
    }

    fn send<'a>(&'a self, request: &'a Request, sink: &'a mut DeltaSink<'_>) -> SendFuture<'a> {
        Box::pin(ProviderBackend::send(self, request, sink))
    }
}

impl Provider {
    /// Creates a provider with this backend.
    pub fn new(backend: impl ProviderBackend) -> Self {
        Provider { backend: Arc::new(backend), retry: Retry::default(), prices: Prices::shared_list() }
    }

    /// Opens the provider that a URI names: `openai:MODEL`, `anthropic:MODEL`, `gemini:MODEL` or
    /// `script:FILE`.
    ///
    /// Keys and everything else that is not in the URI come from the environment of the process: `OPENAI_API_KEY`,
    /// `OPENAI_BASE_URL`, `OPENAI_DEFAULT_MODEL`, and the same for `ANTHROPIC` and `GEMINI`. For other kinds see
    /// [`ProviderRegistry`].
    pub async fn open(uri: &str) -> Result<Self, ProviderError> {
        ProviderRegistry::new().open(uri, &Env::process()).await
    }

    /// Creates a provider that is known from a record only.
    pub(crate) fn from_record(identity: Identity, settings: Settings) -> Self {
        Provider::new(RecordedBackend { identity, settings: Arc::new(settings) })
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

    /// Returns the provider and the model.
    pub fn identity(&self) -> &Identity {
        self.backend.identity()
    }

    /// Returns the values that must never be recorded.
    ///
    /// A session hides them from the first call on. To hide them earlier, for example in what the user says, use
    /// [`Session::hiding`](crate::Session::hiding).
    pub fn secrets(&self) -> Secrets {
        self.backend.secrets()
    }

    pub(crate) fn target(&self) -> RequestTarget<'_> {
        RequestTarget { identity: self.backend.identity(), settings: self.backend.settings() }
    }

    /// Returns the limit of the answers to its requests.
    pub(crate) fn output_limit(&self) -> OutputLimit {
        OutputLimit::of(self.identity(), self.backend.settings())
    }

    /// Returns the settings with which answers have at most this many tokens.
    pub(crate) fn settings_with_output_limit(&self, tokens: u64) -> Arc<Settings> {
        Arc::new(self.backend.settings().with_output_limit(tokens, self.backend.limit_option()))
    }

    pub(crate) fn retry_policy(&self) -> &Retry {
        &self.retry
    }

    pub(crate) fn price_list(&self) -> &Prices {
        &self.prices
    }

    /// Makes one attempt.
    pub(crate) fn send<'a>(&'a self, request: &'a Request, sink: &'a mut DeltaSink<'_>) -> SendFuture<'a> {
        self.backend.send(request, sink)
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

/// A provider known from a record only. Asking it fails.
struct RecordedBackend {
    identity: Identity,
    settings: Arc<Settings>,
}

impl ProviderBackend for RecordedBackend {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    async fn send(&self, _: &Request, _: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        let message = format!("{} is known from a record only and cannot be asked", self.identity);
        Err(ProviderError::new(ProviderErrorKind::Setup, message)
            .with_hint("open the model by its URI: `Provider::open(..)`"))
    }
}
