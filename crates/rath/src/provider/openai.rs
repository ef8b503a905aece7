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
const CHAT_PATH: &str = "/chat/completions";
const RESPONSES_PATH: &str = "/responses";

/// The first letters of the models at OpenAI that do not reason, and refuse to be asked for it.
const NO_REASONING: [&str; 6] = ["chatgpt", "ft:gpt-3", "ft:gpt-4", "gpt-3", "gpt-4", "gpt-5-chat"];

/// A model at OpenAI, or at any other server with one of its APIs.
///
/// OpenAI's own address is asked with the Responses API, and other servers with Chat Completions, which most of them have.
/// An address that ends with `/responses` or `/chat/completions` names the API itself.
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
            settings: Settings::new(Shape::Responses),
            max_tokens: None,
        }
    }

    /// Reads the configuration from the environment: `OPENAI_API_KEY` (several keys separated by commas),
    /// `OPENAI_BASE_URL`, and `OPENAI_DEFAULT_MODEL` if `model` is empty.
    pub fn from_env(model: &str, env: &Env) -> Result<Self, ProviderError> {
        let (model, server) = ServerConfig::from_env(model, env, "OPENAI", &[KEY_VARIABLE], BASE_URL)?;
        let base = server.base.clone();
        Ok(OpenAi { server, ..OpenAi::new(model) }.at(base))
    }

    /// Sets the base URL: the part before `/chat/completions` or `/responses`. With it, the URL names the API.
    pub fn base_url(self, url: &str) -> Result<Self, ProviderError> {
        Ok(self.at(http::parse_base_url(url, BASE_URL)?))
    }

    /// Sets the address, and the shape of its API.
    fn at(mut self, mut base: reqwest::Url) -> Self {
        let path = base.path().trim_end_matches('/').to_owned();
        let named = [(RESPONSES_PATH, Shape::Responses), (CHAT_PATH, Shape::Chat)]
            .into_iter()
            .find_map(|(api, shape)| Some((path.strip_suffix(api)?.to_owned(), shape)));
        let (path, shape) = named.map_or((path, None), |(path, shape)| (path, Some(shape)));
        base.set_path(&path);
        self.server.base = base;
        let usual = if self.server.has_host_of(BASE_URL) { Shape::Responses } else { Shape::Chat };
        self.settings.shape = shape.unwrap_or(usual);
        self
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
        // OpenAI's newer models refuse the name that every other server knows.
        let chat_limit = if server.has_host_of(BASE_URL) { "max_completion_tokens" } else { "max_tokens" };
        if let Some(max) = max_tokens {
            settings.set(chat_limit, max).expect("a number is JSON");
        }
        let path = match settings.shape {
            Shape::Responses => RESPONSES_PATH,
            _ => CHAT_PATH,
        };
        if settings.shape == Shape::Responses {
            set_for_responses(&mut settings, &model);
        }
        let identity = Identity { provider: "openai".to_owned(), model };
        let http = server.into_client(Auth::Bearer, BASE_URL, KEY_VARIABLE);
        let shape = settings.shape;
        let backend = HttpBackend::new(identity, settings, http, path);
        Provider::new(if shape == Shape::Chat { backend.limited_by(chat_limit) } else { backend })
    }
}

/// Gives options that Chat Completions has too the names of Responses, and asks models that reason for their encrypted reasoning:
/// without it, they begin anew after every call.
fn set_for_responses(settings: &mut Settings, model: &str) {
    for name in ["max_completion_tokens", "max_tokens"] {
        if let Some(max) = settings.take(name) {
            settings.set_default("max_output_tokens", max);
        }
    }
    if let Some(effort) = settings.take("reasoning_effort") {
        settings.set_default("reasoning", serde_json::json!({ "effort": effort }));
    }
    if !NO_REASONING.iter().any(|start| model.starts_with(start)) {
        settings.set_default("include", ["reasoning.encrypted_content"]);
    }
}
