//! Anthropic's Messages.

use std::sync::Arc;

use rath_record::chunk::Identity;
use serde::Serialize;

use super::answer::{Answer, Failure, Sink};
use super::http::{self, Auth, Http, Timeouts};
use super::registry::Env;
use super::render::Request;
use super::server::Server;
use super::settings::{Cache, Settings, Shape, Streaming};
use super::{Provider, ProviderBackend};
use crate::error::Result;

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

    /// Sets the key.
    pub fn key(self, key: impl Into<String>) -> Self {
        self.keys([key])
    }

    /// Sets several keys. If one is refused, the next is tried.
    pub fn keys(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.server.set_keys(keys);
        self
    }

    /// Sets where requests go: what stands before `/v1/messages`.
    pub fn base_url(mut self, url: &str) -> Result<Self> {
        self.server.base = trim(http::base_url(url, BASE)?);
        Ok(self)
    }

    /// Adds a header to every request, `anthropic-beta` for one.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self> {
        self.server.add_header(name, value)?;
        Ok(self)
    }

    /// Sets how long the server is waited for.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.server.timeouts = timeouts;
        self
    }

    /// Sets the most bytes that an answer may have.
    pub fn most_bytes(mut self, most: usize) -> Self {
        self.server.most = most;
        self
    }

    /// Asks for answers in one piece.
    pub fn whole(mut self) -> Self {
        self.settings.stream = Streaming::Whole;
        self
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

    /// Sets any further member of the request: `temperature`, `thinking`, ..
    pub fn option(mut self, name: &str, value: impl Serialize) -> Result<Self> {
        self.settings.set(name, value)?;
        Ok(self)
    }
}

impl From<Anthropic> for Provider {
    fn from(anthropic: Anthropic) -> Self {
        let identity = Identity { provider: "anthropic".to_owned(), model: anthropic.model };
        let mut server = anthropic.server;
        server.add_header("anthropic-version", VERSION).expect("the version is a header");
        let http = server.into_http(Auth::ApiKey, BASE, KEY);
        Provider::new(Backend { identity, settings: Arc::new(anthropic.settings), http })
    }
}

struct Backend {
    identity: Identity,
    settings: Arc<Settings>,
    http: Http,
}

impl ProviderBackend for Backend {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    async fn send(&self, request: &Request, sink: &mut Sink<'_>) -> Result<Answer, Failure> {
        self.http.ask("/v1/messages", request, sink).await
    }
}

/// Some write the version into the base URL and some do not.
fn trim(mut base: reqwest::Url) -> reqwest::Url {
    let path = base.path().trim_end_matches('/').trim_end_matches("/messages").trim_end_matches("/v1").to_owned();
    base.set_path(&path);
    base
}
