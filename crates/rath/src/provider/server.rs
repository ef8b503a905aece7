//! How a server is reached: what both kinds of provider are built with.

use std::fmt;
use std::sync::Arc;

use rath_record::chunk::Identity;
use reqwest::header::{HeaderName, HeaderValue};
use secrecy::SecretString;

use super::ProviderBackend;
use super::answer::{Answer, Failure, Sink};
use super::http::{self, Auth, Http, Timeouts};
use super::registry::Env;
use super::render::Request;
use super::settings::Settings;
use crate::error::ErrorKind;
use crate::secrets::Secrets;
use crate::session::{Error, Result};

/// How a server is reached.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) base: reqwest::Url,
    pub(super) keys: Vec<SecretString>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) timeouts: Timeouts,
    pub(super) most: usize,
}

/// Shows where, and nothing that may be secret.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.base.host_str().unwrap_or_default();
        f.debug_struct("Server").field("host", &host).field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

impl Server {
    pub(super) fn new(base: &str) -> Self {
        let base = reqwest::Url::parse(base).expect("the addresses of providers are URLs");
        Server { base, keys: Vec::new(), headers: Vec::new(), timeouts: Timeouts::default(), most: http::MOST }
    }

    /// The model and the server that the variables with this prefix name.
    pub(super) fn from_env(model: &str, env: &Env, prefix: &str, base: &str) -> Result<(String, Self)> {
        let mut server = Server::new(base);
        let get = |name: &str| env.get(&format!("{prefix}_{name}")).filter(|value| !value.trim().is_empty());
        if let Some(url) = get("BASE_URL") {
            server.base =
                http::base_url(&url, base).map_err(|error| error.with_hint(format!("check {prefix}_BASE_URL")))?;
        }
        if let Some(keys) = get("API_KEY") {
            server.set_keys(keys.split(','));
        } else if server.is_at(base) {
            let message = format!("there is no key for {}", server.base.host_str().unwrap_or(base));
            return Err(Error::new(ErrorKind::Key, message).with_hint(format!("set {prefix}_API_KEY")));
        }
        let model = Some(model.to_owned()).filter(|model| !model.is_empty()).or_else(|| get("DEFAULT_MODEL"));
        let model = model.ok_or_else(|| {
            Error::new(ErrorKind::Model, "no model is named")
                .with_hint(format!("write `{}:MODEL`, or set {prefix}_DEFAULT_MODEL", prefix.to_lowercase()))
        })?;
        Ok((model, server))
    }

    /// Whether it is the one with this address, however that is written.
    pub(super) fn is_at(&self, base: &str) -> bool {
        self.base.host_str() == Server::new(base).base.host_str()
    }

    pub(super) fn set_keys(&mut self, keys: impl IntoIterator<Item = impl Into<String>>) {
        let keys = keys.into_iter().map(|key| key.into().trim().to_owned()).filter(|key| !key.is_empty());
        self.keys = keys.map(SecretString::from).collect();
    }

    pub(super) fn add_header(&mut self, name: &str, value: &str) -> Result<()> {
        let wrong =
            || Error::new(ErrorKind::Provider, format_args!("`{name}`, or its value, cannot stand in a header"));
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        // It may be another kind of key.
        value.set_sensitive(true);
        self.headers.push((name.parse().map_err(|_| wrong())?, value));
        Ok(())
    }

    /// Adds a header, unless it was given.
    pub(super) fn default_header(&mut self, name: &'static str, value: &'static str) {
        if !self.headers.iter().any(|(known, _)| known == name) {
            self.headers.push((HeaderName::from_static(name), HeaderValue::from_static(value)));
        }
    }

    /// `key_from` is the variable that names a key for the server at `base`, which wants one.
    pub(super) fn into_http(self, auth: Auth, base: &str, key_from: &'static str) -> Http {
        let wants_key = self.is_at(base);
        let mut http = Http::new(self.base, auth, self.keys, self.headers);
        http.key_from = Some(key_from).filter(|_| wants_key);
        http.timeouts = self.timeouts;
        http.most = self.most;
        http
    }
}

/// A model on a server.
pub(super) struct Backend {
    identity: Identity,
    settings: Arc<Settings>,
    http: Http,
    /// Where below the base URL requests go.
    path: &'static str,
}

impl Backend {
    pub(super) fn new(identity: Identity, settings: Settings, http: Http, path: &'static str) -> Self {
        Backend { identity, settings: Arc::new(settings), http, path }
    }
}

impl ProviderBackend for Backend {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    fn secrets(&self) -> Secrets {
        self.http.secrets().clone()
    }

    async fn send(&self, request: &Request, sink: &mut Sink<'_>) -> Result<Answer, Failure> {
        self.http.ask(self.path, request, sink).await
    }
}

/// What is set in the same way for every provider that is a server: each has a `server` and `settings`.
macro_rules! server_methods {
    () => {
        /// Sets the key.
        pub fn key(self, key: impl Into<String>) -> Self {
            self.keys([key])
        }

        /// Sets several keys. If one is refused, the next is tried.
        pub fn keys(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
            self.server.set_keys(keys);
            self
        }

        /// Sets how long the server is waited for.
        pub fn timeouts(mut self, timeouts: $crate::provider::Timeouts) -> Self {
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
            self.settings.stream = $crate::provider::Streaming::Whole;
            self
        }

        /// Adds a header to every request.
        pub fn header(mut self, name: &str, value: &str) -> $crate::Result<Self> {
            self.server.add_header(name, value)?;
            Ok(self)
        }

        /// Sets any further member of the request: `temperature`, `tool_choice`, `thinking`, ..
        pub fn option(mut self, name: &str, value: impl serde::Serialize) -> $crate::Result<Self> {
            self.settings.set(name, value)?;
            Ok(self)
        }
    };
}
pub(super) use server_methods;
