//! How a server is reached: what both kinds of provider are built with.

use reqwest::header::{HeaderName, HeaderValue};
use secrecy::SecretString;

use super::http::{self, Auth, Http, Timeouts};
use super::registry::Env;
use crate::error::{Error, ErrorKind, Result};

/// How a server is reached.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) base: reqwest::Url,
    pub(super) keys: Vec<SecretString>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) timeouts: Timeouts,
    pub(super) most: usize,
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
        let wrong = || Error::new(ErrorKind::Provider, format_args!("`{name}` is not a header with that value"));
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        // It may be another kind of key.
        value.set_sensitive(true);
        self.headers.push((name.parse().map_err(|_| wrong())?, value));
        Ok(())
    }

    pub(super) fn into_http(self, auth: Auth) -> Http {
        let mut http = Http::new(self.base, auth, self.keys);
        http.headers = self.headers;
        http.timeouts = self.timeouts;
        http.most = self.most;
        http
    }
}
