//! OpenAI, and the many servers that speak as it does.

use rath_record::chunk::Identity;

use super::Provider;
use super::embed::Embedder;
use super::http::{self, Auth};
use super::registry::Env;
use super::server::{Backend, Server, server_methods};
use super::settings::{Settings, Shape};
use crate::session::Result;

const BASE: &str = "https://api.openai.com/v1";
const KEY: &str = "OPENAI_API_KEY";

/// OpenAI's Chat Completions, or a server that speaks as they do.
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
    server: Server,
    settings: Settings,
    max_tokens: Option<u64>,
}

impl OpenAi {
    /// A model of OpenAI's.
    pub fn new(model: impl Into<String>) -> Self {
        OpenAi {
            model: model.into(),
            server: Server::new(BASE),
            settings: Settings::new(Shape::Chat),
            max_tokens: None,
        }
    }

    /// What the environment says: `OPENAI_API_KEY` (several keys with commas between them), `OPENAI_BASE_URL`, and
    /// `OPENAI_DEFAULT_MODEL` where `model` is empty.
    pub fn from_env(model: &str, env: &Env) -> Result<Self> {
        let (model, mut server) = Server::from_env(model, env, "OPENAI", BASE)?;
        server.base = trim(server.base);
        Ok(OpenAi { server, ..OpenAi::new(model) })
    }

    /// Sets where requests go: what stands before `/chat/completions`.
    pub fn base_url(mut self, url: &str) -> Result<Self> {
        self.server.base = trim(http::base_url(url, BASE)?);
        Ok(self)
    }

    /// Limits the tokens of an answer.
    pub fn max_tokens(mut self, most: u64) -> Self {
        self.max_tokens = Some(most);
        self
    }

    /// A client for the server's embeddings, with this model.
    pub fn embedder(self) -> Embedder {
        let identity = Identity { provider: "openai".to_owned(), model: self.model };
        Embedder::new(identity, self.server.into_http(Auth::Bearer, BASE, KEY))
    }

    server_methods!();
}

impl From<OpenAi> for Provider {
    fn from(openai: OpenAi) -> Self {
        let OpenAi { model, server, mut settings, max_tokens } = openai;
        if let Some(most) = max_tokens {
            // OpenAI's newer models refuse the name that every other server knows.
            let name = if server.is_at(BASE) { "max_completion_tokens" } else { "max_tokens" };
            settings.set(name, most).expect("a number is JSON");
        }
        let identity = Identity { provider: "openai".to_owned(), model };
        let http = server.into_http(Auth::Bearer, BASE, KEY);
        Provider::new(Backend::new(identity, settings, http, "/chat/completions"))
    }
}

/// Some write the whole address of the API and some its base.
fn trim(mut base: reqwest::Url) -> reqwest::Url {
    let path = base.path().trim_end_matches('/').trim_end_matches("/chat/completions").to_owned();
    base.set_path(&path);
    base
}
