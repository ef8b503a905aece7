//! OpenAI, and the many servers with the same API.

use rath_record::chunk::Identity;

use super::Provider;
use super::embed::Embedder;
use super::error::ProviderError;
use super::http::{self, Auth};
use super::registry::Env;
use super::server::{HttpBackend, ServerConfig, server_methods};
use super::settings::{Settings, Shape};

const BASE_URL: &str = "https://api.openai.com/v1";
const KEY_VARIABLE: &str = "OPENAI_API_KEY";

/// A model behind OpenAI's Chat Completions API, at OpenAI or at any other server.
///
/// ```
/// use rath::prelude::*;
///
/// # fn main() -> Result<()> {
/// let provider = Provider::from(OpenAi::new("qwen3").base_url("http://127.0.0.1:8080/v1")?.max_tokens(500));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OpenAi {
    model: String,
    server: ServerConfig,
    settings: Settings,
    max_tokens: Option<u64>,
}

impl OpenAi {
    /// Creates a model at OpenAI. Other servers are set with [`base_url`](OpenAi::base_url).
    pub fn new(model: impl Into<String>) -> Self {
        OpenAi {
            model: model.into(),
            server: ServerConfig::new(BASE_URL),
            settings: Settings::new(Shape::Chat),
            max_tokens: None,
        }
    }

    /// Reads the configuration from the environment: `OPENAI_API_KEY` (several keys separated by commas),
    /// `OPENAI_BASE_URL`, and `OPENAI_DEFAULT_MODEL` if `model` is empty.
    pub fn from_env(model: &str, env: &Env) -> Result<Self, ProviderError> {
        let (model, mut server) = ServerConfig::from_env(model, env, "OPENAI", BASE_URL)?;
        server.base = trim_path(server.base);
        Ok(OpenAi { server, ..OpenAi::new(model) })
    }

    /// Sets the base URL: the part before `/chat/completions`.
    pub fn base_url(mut self, url: &str) -> Result<Self, ProviderError> {
        self.server.base = trim_path(http::parse_base_url(url, BASE_URL)?);
        Ok(self)
    }

    /// Limits the tokens of an answer.
    pub fn max_tokens(mut self, max: u64) -> Self {
        self.max_tokens = Some(max);
        self
    }

    /// Creates a client for the server's embeddings, with this model.
    pub fn embedder(self) -> Embedder {
        let identity = Identity { provider: "openai".to_owned(), model: self.model };
        Embedder::new(identity, self.server.into_client(Auth::Bearer, BASE_URL, KEY_VARIABLE))
    }

    server_methods!();
}

impl From<OpenAi> for Provider {
    fn from(openai: OpenAi) -> Self {
        let OpenAi { model, server, mut settings, max_tokens } = openai;
        if let Some(max) = max_tokens {
            // OpenAI's newer models refuse the name that every other server knows.
            let name = if server.has_host_of(BASE_URL) { "max_completion_tokens" } else { "max_tokens" };
            settings.set(name, max).expect("a number is JSON");
        }
        let identity = Identity { provider: "openai".to_owned(), model };
        let http = server.into_client(Auth::Bearer, BASE_URL, KEY_VARIABLE);
        Provider::new(HttpBackend::new(identity, settings, http, "/chat/completions"))
    }
}

/// Removes the path of the API from a URL: some people write the whole address instead of its base.
fn trim_path(mut base: reqwest::Url) -> reqwest::Url {
    let path = base.path().trim_end_matches('/').trim_end_matches("/chat/completions").to_owned();
    base.set_path(&path);
    base
}
