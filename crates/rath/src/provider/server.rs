//! How a server is reached: what both kinds of provider are built with.

use std::fmt;

use reqwest::header::{HeaderName, HeaderValue};
use secrecy::SecretString;

use super::http::{self, Auth, Http, Timeouts};
use super::registry::Env;
use crate::error::{Error, ErrorKind, Result};

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
