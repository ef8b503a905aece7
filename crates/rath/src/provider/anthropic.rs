//! Anthropic's Messages.

use rath_record::chunk::Identity;

use super::Provider;
use super::http::{self, Auth};
use super::registry::Env;
use super::server::{Backend, Server, server_methods};
use super::settings::{Cache, Settings, Shape};
use crate::session::Result;

const BASE: &str = "https://api.anthropic.com";
const KEY: &str = "ANTHROPIC_API_KEY";
const VERSION: &str = "2023-06-01";

/// Anthropic's Messages, or a server that speaks as they do.
#[derive(Clone, Debug)]
pub struct Anthropic {
    model: String,
    server: Server,
    settings: Settings,
}

impl Anthropic {
    /// A model of Anthropic's. An answer may have 8,192 tokens unless [`max_tokens`](Anthropic::max_tokens) says more.
    pub fn new(model: impl Into<String>) -> Self {
        Anthropic { model: model.into(), server: Server::new(BASE), settings: Settings::new(Shape::Messages) }
    }

    /// What the environment says: `ANTHROPIC_API_KEY` (several keys with commas between them), `ANTHROPIC_BASE_URL`, and
    /// `ANTHROPIC_DEFAULT_MODEL` where `model` is empty.
    pub fn from_env(model: &str, env: &Env) -> Result<Self> {
        let (model, mut server) = Server::from_env(model, env, "ANTHROPIC", BASE)?;
        server.base = trim(server.base);
        Ok(Anthropic { model, server, settings: Settings::new(Shape::Messages) })
    }

    /// Sets where requests go: what stands before `/v1/messages`.
    pub fn base_url(mut self, url: &str) -> Result<Self> {
        self.server.base = trim(http::base_url(url, BASE)?);
        Ok(self)
    }

    /// Sets how long the prompt is to be kept, or that it is not.
    pub fn cache(mut self, cache: Option<Cache>) -> Self {
        self.settings.cache = cache;
        self
    }

    /// Limits the tokens of an answer.
    pub fn max_tokens(mut self, most: u64) -> Self {
        self.settings.set("max_tokens", most).expect("a number is JSON");
        self
    }

    server_methods!();
}

impl From<Anthropic> for Provider {
    fn from(anthropic: Anthropic) -> Self {
        let identity = Identity { provider: "anthropic".to_owned(), model: anthropic.model };
        let mut server = anthropic.server;
        server.default_header("anthropic-version", VERSION);
        let http = server.into_http(Auth::ApiKey, BASE, KEY);
        Provider::new(Backend::new(identity, anthropic.settings, http, "/v1/messages"))
    }
}

/// Some write the version into the base URL and some do not.
fn trim(mut base: reqwest::Url) -> reqwest::Url {
    let path = base.path().trim_end_matches('/').trim_end_matches("/messages").trim_end_matches("/v1").to_owned();
    base.set_path(&path);
    base
}
