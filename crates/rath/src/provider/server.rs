//! The configuration of a server, and the backend that uses it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use rath_record::chunk::Identity;
use reqwest::header::{HeaderName, HeaderValue};
use secrecy::SecretString;

use super::ProviderBackend;
use super::answer::{Answer, DeltaSink};
use super::error::{ProviderError, ProviderErrorKind};
use super::http::{self, Auth, HttpClient, Timeouts};
use super::registry::Env;
use super::render::Request;
use super::settings::Settings;
use crate::secrets::Secrets;

/// The address of a server, and what requests to it need.
#[derive(Clone)]
pub(super) struct ServerConfig {
    pub(super) base: reqwest::Url,
    pub(super) keys: Vec<SecretString>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) timeouts: Timeouts,
    pub(super) max_bytes: usize,
}

/// Prints the host, and nothing that may be secret.
impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.base.host_str().unwrap_or_default();
        f.debug_struct("Server").field("host", &host).field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

impl ServerConfig {
    pub(super) fn new(base: &str) -> Self {
        let base = reqwest::Url::parse(base).expect("the base URLs of providers are valid");
        ServerConfig {
            base,
            keys: Vec::new(),
            headers: Vec::new(),
            timeouts: Timeouts::default(),
            max_bytes: http::DEFAULT_MAX_BYTES,
        }
    }

    /// Reads the model and the server from the environment variables with this prefix, and the key from the first of
    /// `key_variables` that is set.
    pub(super) fn from_env(
        model: &str,
        env: &Env,
        prefix: &str,
        key_variables: &[&str],
        base: &str,
    ) -> Result<(String, Self), ProviderError> {
        let mut server = ServerConfig::new(base);
        let variable = |name: &str| env.get(name).filter(|value| !value.trim().is_empty());
        let get = |name: &str| variable(&format!("{prefix}_{name}"));
        if let Some(url) = get("BASE_URL") {
            server.base = http::parse_base_url(&url, base)
                .map_err(|error| error.with_hint(format!("check {prefix}_BASE_URL")))?;
        }
        if let Some(keys) = key_variables.iter().find_map(|name| variable(name)) {
            server.set_keys(keys.split(','));
        } else if server.has_host_of(base) {
            let message = format!("there is no key for {}", server.base.host_str().unwrap_or(base));
            return Err(
                ProviderError::new(ProviderErrorKind::Key, message).with_hint(format!("set {}", key_variables[0]))
            );
        }
        let model = Some(model.to_owned()).filter(|model| !model.is_empty()).or_else(|| get("DEFAULT_MODEL"));
        let model = model.ok_or_else(|| {
            ProviderError::new(ProviderErrorKind::Model, "no model is named")
                .with_hint(format!("write `{}:MODEL`, or set {prefix}_DEFAULT_MODEL", prefix.to_lowercase()))
        })?;
        Ok((model, server))
    }

    /// Returns true if the host is that of this URL.
    pub(super) fn has_host_of(&self, base: &str) -> bool {
        self.base.host_str() == ServerConfig::new(base).base.host_str()
    }

    pub(super) fn set_keys(&mut self, keys: impl IntoIterator<Item = impl Into<String>>) {
        let keys = keys.into_iter().map(|key| key.into().trim().to_owned()).filter(|key| !key.is_empty());
        self.keys = keys.map(SecretString::from).collect();
    }

    pub(super) fn add_header(&mut self, name: &str, value: &str) -> Result<(), ProviderError> {
        let invalid = || {
            let message = format!("the header `{name}` has a name or a value that HTTP does not allow");
            ProviderError::new(ProviderErrorKind::Setup, message)
        };
        let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
        // The value may be another kind of key.
        value.set_sensitive(true);
        self.headers.push((name.parse().map_err(|_| invalid())?, value));
        Ok(())
    }

    /// Adds a header, unless it is set already.
    pub(super) fn add_default_header(&mut self, name: &'static str, value: &'static str) {
        if !self.headers.iter().any(|(known, _)| known == name) {
            self.headers.push((HeaderName::from_static(name), HeaderValue::from_static(value)));
        }
    }

    /// Creates the client. The server at `base` requires a key, whose environment variable is `key_variable`.
    pub(super) fn into_client(self, auth: Auth, base: &str, key_variable: &'static str) -> HttpClient {
        let requires_key = self.has_host_of(base);
        let mut http = HttpClient::new(self.base, auth, self.keys, self.headers);
        http.key_variable = Some(key_variable).filter(|_| requires_key);
        http.timeouts = self.timeouts;
        http.max_bytes = self.max_bytes;
        http
    }
}

/// The backend for a model on a server.
pub(super) struct HttpBackend {
    identity: Identity,
    settings: Arc<Settings>,
    http: HttpClient,
    /// The path of requests below the base URL.
    path: Cow<'static, str>,
    /// The option that limits the length of answers, if it is not the usual one.
    limit_option: Option<&'static str>,
}

impl HttpBackend {
    pub(super) fn new(
        identity: Identity,
        settings: Settings,
        http: HttpClient,
        path: impl Into<Cow<'static, str>>,
    ) -> Self {
        HttpBackend { identity, settings: Arc::new(settings), http, path: path.into(), limit_option: None }
    }

    /// Sets the option that limits the length of answers.
    pub(super) fn limited_by(mut self, option: &'static str) -> Self {
        self.limit_option = Some(option);
        self
    }
}

impl ProviderBackend for HttpBackend {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    fn limit_option(&self) -> &'static str {
        self.limit_option.unwrap_or_else(|| self.settings.usual_limit_member())
    }

    fn secrets(&self) -> Secrets {
        self.http.secrets().clone()
    }

    async fn send(&self, request: &Request, sink: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        self.http.ask(&self.path, request, sink).await
    }
}

/// Defines the setters that all providers on a server have in common. Each has the fields `server` and `settings`.
macro_rules! server_methods {
    () => {
        /// Sets the key.
        pub fn key(self, key: impl Into<String>) -> Self {
            self.keys([key])
        }

        /// Sets several keys. If one is rejected, the next is tried.
        pub fn keys(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
            self.server.set_keys(keys);
            self
        }

        /// Sets the time limits.
        pub fn timeouts(mut self, timeouts: $crate::provider::Timeouts) -> Self {
            self.server.timeouts = timeouts;
            self
        }

        /// Sets the most bytes that an answer may have.
        pub fn max_bytes(mut self, max: usize) -> Self {
            self.server.max_bytes = max;
            self
        }

        /// Requests answers as a whole instead of in pieces.
        pub fn without_streaming(mut self) -> Self {
            self.settings.stream = $crate::provider::Streaming::Whole;
            self
        }

        /// Adds a header to every request.
        pub fn header(mut self, name: &str, value: &str) -> Result<Self, $crate::provider::ProviderError> {
            self.server.add_header(name, value)?;
            Ok(self)
        }

        /// Sets any further member of the request: `temperature`, `tool_choice`, `thinking`, ..
        pub fn option(
            mut self,
            name: &str,
            value: impl serde::Serialize,
        ) -> Result<Self, $crate::provider::ProviderError> {
            self.settings.set(name, value)?;
            Ok(self)
        }
    };
}
pub(super) use server_methods;
