//! Anthropic, and servers with the same API.

use rath_record::chunk::Identity;

use super::Provider;
use super::error::ProviderError;
use super::http::{self, Auth};
use super::output_limit::known_output_tokens;
use super::registry::Env;
use super::server::{HttpBackend, ServerConfig, server_methods};
use super::settings::{PromptCache, Settings, Shape};

const BASE_URL: &str = "https://api.anthropic.com";
const KEY_VARIABLE: &str = "ANTHROPIC_API_KEY";
const API_VERSION: &str = "2023-06-01";

/// A model behind Anthropic's Messages API, at Anthropic or at any other server.
///
/// ```
/// use rath::prelude::*;
///
/// let provider = Provider::from(Anthropic::new("claude-sonnet-4-5").key("sk-ant-..").max_tokens(500));
/// assert_eq!(provider.identity().to_string(), "anthropic:claude-sonnet-4-5");
/// ```
#[derive(Clone, Debug)]
pub struct Anthropic {
    model: String,
    server: ServerConfig,
    settings: Settings,
}

impl Anthropic {
    /// Creates a model at Anthropic.
    ///
    /// An answer has at most as many tokens as the model writes, or 8,192 if that is not known, unless
    /// [`max_tokens`](Anthropic::max_tokens) sets another limit.
    pub fn new(model: impl Into<String>) -> Self {
        let model = model.into();
        let settings = settings_for(&model);
        Anthropic { model, server: ServerConfig::new(BASE_URL), settings }
    }

    /// Reads the configuration from the environment: `ANTHROPIC_API_KEY` (several keys separated by commas),
    /// `ANTHROPIC_BASE_URL`, and `ANTHROPIC_DEFAULT_MODEL` if `model` is empty.
    pub fn from_env(model: &str, env: &Env) -> Result<Self, ProviderError> {
        let (model, mut server) = ServerConfig::from_env(model, env, "ANTHROPIC", &[KEY_VARIABLE], BASE_URL)?;
        server.base = trim_path(server.base);
        let settings = settings_for(&model);
        Ok(Anthropic { model, server, settings })
    }

    /// Sets the base URL: the part before `/v1/messages`.
    pub fn base_url(mut self, url: &str) -> Result<Self, ProviderError> {
        self.server.base = trim_path(http::parse_base_url(url, BASE_URL)?);
        Ok(self)
    }

    /// Sets how long the prompt is cached; `None` for no cache.
    pub fn cache(mut self, cache: Option<PromptCache>) -> Self {
        self.settings.cache = cache;
        self
    }

    /// Limits the tokens of an answer.
    pub fn max_tokens(mut self, max: u64) -> Self {
        self.settings.set("max_tokens", max).expect("a number is JSON");
        self
    }

    server_methods!();
}

/// Returns the settings for a model: its own limit of answer tokens, if it is known.
fn settings_for(model: &str) -> Settings {
    let mut settings = Settings::new(Shape::Messages);
    let identity = Identity { provider: "anthropic".to_owned(), model: model.to_owned() };
    if let Some(tokens) = known_output_tokens(&identity) {
        settings.set("max_tokens", tokens).expect("a number is JSON");
    }
    settings
}

impl From<Anthropic> for Provider {
    fn from(anthropic: Anthropic) -> Self {
        let identity = Identity { provider: "anthropic".to_owned(), model: anthropic.model };
        let mut server = anthropic.server;
        server.add_default_header("anthropic-version", API_VERSION);
        let http = server.into_client(Auth::ApiKey, BASE_URL, KEY_VARIABLE);
        Provider::new(HttpBackend::new(identity, anthropic.settings, http, "/v1/messages"))
    }
}

/// Removes the path of the API and its version from a URL: some people write them into the base URL.
fn trim_path(mut base: reqwest::Url) -> reqwest::Url {
    let path = base.path().trim_end_matches('/').trim_end_matches("/messages").trim_end_matches("/v1").to_owned();
    base.set_path(&path);
    base
}
