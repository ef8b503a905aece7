//! Gemini, and servers with the same API.

use rath_record::chunk::Identity;

use super::Provider;
use super::error::ProviderError;
use super::http::{self, Auth};
use super::registry::Env;
use super::server::{HttpBackend, ServerConfig, server_methods};
use super::settings::{Settings, Shape, Streaming};

const BASE_URL: &str = "https://generativelanguage.googleapis.com/v1beta";
const API_VERSION: &str = "/v1beta";
const KEY_VARIABLE: &str = "GEMINI_API_KEY";
/// The variables that hold a key, the first before the others.
const KEY_VARIABLES: [&str; 2] = [KEY_VARIABLE, "GOOGLE_API_KEY"];

/// Options that other providers have under another name.
const OPTION_NAMES: [(&str, &str); 6] = [
    ("max_completion_tokens", "maxOutputTokens"),
    ("max_output_tokens", "maxOutputTokens"),
    ("max_tokens", "maxOutputTokens"),
    ("stop", "stopSequences"),
    ("top_k", "topK"),
    ("top_p", "topP"),
];

/// A model behind Gemini's generateContent, at Google or at any other server.
///
/// Options are members of `generationConfig`: `temperature`, `thinkingConfig`, `responseJsonSchema`, .. Those of the request itself,
/// such as `toolConfig` and `safetySettings`, keep their place.
///
/// ```
/// use rath::prelude::*;
///
/// let provider = Provider::from(Gemini::new("gemini-3-flash-preview").key("AIza..").max_tokens(500));
/// assert_eq!(provider.identity().to_string(), "gemini:gemini-3-flash-preview");
/// ```
#[derive(Clone, Debug)]
pub struct Gemini {
    model: String,
    server: ServerConfig,
    settings: Settings,
}

impl Gemini {
    /// Creates a model at Google.
    pub fn new(model: impl Into<String>) -> Self {
        Gemini { model: model.into(), server: ServerConfig::new(BASE_URL), settings: Settings::new(Shape::Gemini) }
    }

    /// Reads the configuration from the environment: `GEMINI_API_KEY`, or else `GOOGLE_API_KEY` (several keys separated by commas),
    /// `GEMINI_BASE_URL`, and `GEMINI_DEFAULT_MODEL` if `model` is empty.
    pub fn from_env(model: &str, env: &Env) -> Result<Self, ProviderError> {
        let (model, mut server) = ServerConfig::from_env(model, env, "GEMINI", &KEY_VARIABLES, BASE_URL)?;
        server.base = with_version(server.base);
        Ok(Gemini { server, ..Gemini::new(model) })
    }

    /// Sets the base URL: the part before `/models`. Without a path, it gets that of the API's version, `/v1beta`.
    pub fn base_url(mut self, url: &str) -> Result<Self, ProviderError> {
        self.server.base = with_version(http::parse_base_url(url, BASE_URL)?);
        Ok(self)
    }

    /// Limits the tokens of an answer, reasoning included.
    pub fn max_tokens(mut self, max: u64) -> Self {
        self.settings.set("maxOutputTokens", max).expect("a number is JSON");
        self
    }

    server_methods!();
}

impl From<Gemini> for Provider {
    fn from(gemini: Gemini) -> Self {
        let Gemini { model, server, mut settings } = gemini;
        rename_options(&mut settings);
        let model = model.strip_prefix("models/").map_or(model.clone(), str::to_owned);
        // Tuned models have a path of their own.
        let folder = if model.contains('/') { "" } else { "models/" };
        let name = model.replace('?', "%3F");
        let path = match settings.stream {
            Streaming::Pieces => format!("/{folder}{name}:streamGenerateContent?alt=sse"),
            Streaming::Whole => format!("/{folder}{name}:generateContent"),
        };
        let identity = Identity { provider: "gemini".to_owned(), model };
        let http = server.into_client(Auth::GoogleApiKey, BASE_URL, KEY_VARIABLE);
        Provider::new(HttpBackend::new(identity, settings, http, path))
    }
}

/// Gives options of other providers the names of this one.
fn rename_options(settings: &mut Settings) {
    for (name, renamed) in OPTION_NAMES {
        if let Some(value) = settings.take(name) {
            match name == "stop" && value.as_str().starts_with('"') {
                true => settings.set_default(renamed, [value]),
                false => settings.set_default(renamed, value),
            }
        }
    }
    if let Some(effort) = settings.take("reasoning_effort") {
        settings.set_default("thinkingConfig", serde_json::json!({ "thinkingLevel": effort }));
    }
}

/// Adds the version of the API to a URL without a path: some people leave it out of the base URL.
fn with_version(mut base: reqwest::Url) -> reqwest::Url {
    let path = base.path().trim_end_matches('/').trim_end_matches("/models").to_owned();
    base.set_path(if path.is_empty() { API_VERSION } else { &path });
    base
}
