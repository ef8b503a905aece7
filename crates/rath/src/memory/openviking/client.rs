//! Requests to an OpenViking service.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;

use super::super::{MemoryError, MemoryErrorKind};
use crate::provider::is_local;

/// The header that carries the key.
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");
/// The time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time in which an answer has to be complete: the service may ask a model.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// The most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// The most characters of the service's message that are shown.
const MAX_MESSAGE_CHARS: usize = 300;

/// A client for one service. Nothing is sent twice.
pub(super) struct ServiceClient {
    base: Url,
    key: Option<SecretString>,
    http: OnceLock<Result<reqwest::Client, String>>,
}

/// The answer of the service.
pub(super) enum ServiceAnswer {
    Result(Value),
    /// There is no such file or directory.
    Missing,
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    error: Option<ReportedError>,
}

#[derive(Deserialize)]
struct ReportedError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Value,
}

impl ServiceClient {
    pub(super) fn new(address: &str) -> Result<Self, MemoryError> {
        let base = Url::parse(address.trim()).ok().filter(|url| {
            let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
            matches!(url.scheme(), "http" | "https") && url.has_host() && url.fragment().is_none() && is_plain
        });
        let base = base.ok_or_else(|| {
            MemoryError::new(MemoryErrorKind::Invalid, "the address of the OpenViking service cannot be used")
                .with_hint(
                    "write `openviking:http://127.0.0.1:1933`; the key is not a part of it: set OPENVIKING_API_KEY",
                )
        })?;
        Ok(ServiceClient { base, key: None, http: OnceLock::new() })
    }

    pub(super) fn set_key(&mut self, key: String) {
        self.key = Some(SecretString::from(key));
    }

    /// Returns the address without a separator at its end.
    pub(super) fn address(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    pub(super) async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<ServiceAnswer, MemoryError> {
        let mut url = self.url(path);
        url.query_pairs_mut().extend_pairs(query);
        self.send(reqwest::Request::new(Method::GET, url)).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<ServiceAnswer, MemoryError> {
        let mut request = reqwest::Request::new(Method::POST, self.url(path));
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *request.body_mut() = Some(body.to_string().into());
        self.send(request).await
    }

    fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
        url
    }

    async fn send(&self, mut request: reqwest::Request) -> Result<ServiceAnswer, MemoryError> {
        if let Some(key) = &self.key {
            let value = HeaderValue::from_str(key.expose_secret());
            let message = "the key for OpenViking has characters that a header cannot hold";
            let mut value = value.map_err(|_| MemoryError::new(MemoryErrorKind::Invalid, message))?;
            value.set_sensitive(true);
            request.headers_mut().insert(KEY_HEADER, value);
        }
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, self.exchange(request)).await;
        let (status, body) = answered.map_err(|_| {
            let message = format!("the OpenViking service did not answer in {} seconds", ANSWER_TIMEOUT.as_secs());
            MemoryError::new(MemoryErrorKind::Timeout, message)
        })??;
        let envelope: Option<Envelope> = serde_json::from_slice(&body).ok();
        // Without the name of a file it is the address that was not found, in this service or another.
        let names_a_file = |error: &ReportedError| error.code == "NOT_FOUND" && error.details["resource"].is_string();
        if envelope.as_ref().and_then(|it| it.error.as_ref()).is_some_and(names_a_file) {
            return Ok(ServiceAnswer::Missing);
        }
        let is_ok = |envelope: &Envelope| {
            envelope.error.is_none() && envelope.status.as_deref().is_none_or(|status| status == "ok")
        };
        match envelope {
            Some(envelope) if (200..300).contains(&status) && is_ok(&envelope) => {
                Ok(ServiceAnswer::Result(envelope.result))
            }
            envelope => Err(self.refused(status, envelope.and_then(|it| it.error), &body)),
        }
    }

    async fn exchange(&self, request: reqwest::Request) -> Result<(u16, Vec<u8>), MemoryError> {
        let mut response = self.http()?.execute(request).await.map_err(|error| self.broken(&error))?;
        let (status, mut body) = (response.status().as_u16(), Vec::new());
        while let Some(piece) = response.chunk().await.map_err(|error| self.broken(&error))? {
            body.extend_from_slice(&piece);
            if body.len() > MAX_ANSWER_BYTES {
                return Err(self.unreadable(&format!("an answer has more than {MAX_ANSWER_BYTES} bytes")));
            }
        }
        Ok((status, body))
    }

    fn http(&self) -> Result<&reqwest::Client, MemoryError> {
        let client = self.http.get_or_init(|| {
            // This fails if the program has installed another provider of cryptography, which works as well.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let builder = reqwest::Client::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                // A redirect could carry the key to another host.
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .user_agent(concat!("rath/", env!("CARGO_PKG_VERSION")));
            // A proxy cannot reach this machine's loopback.
            let builder = if is_local(&self.base) { builder.no_proxy() } else { builder };
            builder.build().map_err(|error| error.to_string())
        });
        client.as_ref().map_err(|error| MemoryError::new(MemoryErrorKind::Other, error))
    }

    fn refused(&self, status: u16, error: Option<ReportedError>, body: &[u8]) -> MemoryError {
        let stated = match error {
            Some(ReportedError { code, message, .. }) => format!("{code}: {message}"),
            None => String::from_utf8_lossy(&body[..body.len().min(4_096)]).into_owned(),
        };
        let message = format!("the OpenViking service answered with status {status}: {}", self.shown(&stated));
        let kind = match status {
            // 409: another program writes the same file.
            409 | 429 | 503 => MemoryErrorKind::Busy,
            400 | 422 => MemoryErrorKind::Invalid,
            _ => MemoryErrorKind::Other,
        };
        let error = MemoryError::new(kind, message);
        match status {
            401 | 403 => error.with_hint("set OPENVIKING_API_KEY to the key of a user"),
            404 => error.with_hint("check its address and its version"),
            _ => error,
        }
    }

    /// Returns the error for an answer that cannot be understood.
    pub(super) fn unreadable(&self, what: &str) -> MemoryError {
        MemoryError::new(MemoryErrorKind::Other, format!("the OpenViking service answered with something else: {what}"))
            .with_hint("check its address and its version")
    }

    fn broken(&self, error: &reqwest::Error) -> MemoryError {
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let host = self.base.host_str().unwrap_or_default();
        let message = format!("the OpenViking service at {host} cannot be asked: {}", self.shown(&cause.to_string()));
        MemoryError::new(MemoryErrorKind::Connection, message).with_hint("check the address, and that the service runs")
    }

    /// Returns a text of the service on one line, without the key, cut to a length.
    fn shown(&self, text: &str) -> String {
        let text = match self.key.as_ref().map(ExposeSecret::expose_secret).filter(|key| !key.is_empty()) {
            Some(key) => text.replace(key, "[key]"),
            None => text.to_owned(),
        };
        let line = text.trim().chars().map(|char| if char.is_control() { ' ' } else { char });
        line.take(MAX_MESSAGE_CHARS).collect()
    }
}
