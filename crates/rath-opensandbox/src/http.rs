//! HTTP requests: each once, each with limits of time and size, and no redirect is followed.

use std::error::Error as StdError;
use std::time::{Duration, SystemTime};

use rath_sandbox::{Error, ErrorKind, Result};
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderValue};
use reqwest::{Method, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of the JSON of an answer.
pub(crate) const MAX_JSON_BYTES: usize = 16 << 20;
/// The most bytes of an answer that reports an error.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// The most characters of a server's message that are shown.
const MAX_MESSAGE_CHARS: usize = 300;
/// The number of times that a request which changes nothing is sent.
const READ_ATTEMPTS: u32 = 3;
/// The pause before such a request is sent again.
const READ_PAUSE: Duration = Duration::from_millis(200);

/// The clients for all requests.
pub(crate) struct Clients {
    /// For this machine: a proxy cannot reach its loopback.
    local: ClientPair,
    /// For other machines, through the proxies that the environment names.
    others: ClientPair,
    key: Option<SecretString>,
}

struct ClientPair {
    /// Keeps connections open.
    pooled: reqwest::Client,
    /// Makes a connection for each request. A command is sent on a new one: on an old one that the server is just closing, it would
    /// not be known whether the command arrived.
    fresh: reqwest::Client,
}

/// A request.
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<(HeaderValue, Vec<u8>)>,
    /// The time in which all of the answer has to arrive.
    pub(crate) timeout: Duration,
    /// The most bytes of the answer.
    pub(crate) max_bytes: usize,
}

/// An answer.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// The time of the server's clock.
    pub(crate) date: Option<SystemTime>,
    /// The key, which is not shown: a server may repeat it.
    key: Option<SecretString>,
}

/// A request that got no answer.
#[derive(Debug)]
pub(crate) struct NoReply {
    /// The reason, without the URL and the key.
    pub(crate) reason: String,
    /// True if the server cannot have read the request.
    pub(crate) was_not_sent: bool,
}

/// A server's description of an error.
#[derive(Deserialize)]
struct ErrorBody {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Clients {
    /// Creates the clients. Errors do not show the key.
    pub(crate) fn new(key: Option<SecretString>) -> Result<Self> {
        // This fails if the program has installed another provider of cryptography, which works as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let build = |max_idle: usize, is_local: bool| {
            let builder = reqwest::Client::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                // A redirect could carry the key to another host, and a command to another sandbox.
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .pool_max_idle_per_host(max_idle)
                .user_agent(concat!("rath/", env!("CARGO_PKG_VERSION")));
            let builder = if is_local { builder.no_proxy() } else { builder };
            builder.build().map_err(|error| {
                Error::new(ErrorKind::Unavailable, format_args!("cannot set up HTTP: {}", root_cause(&error)))
            })
        };
        let local = ClientPair { pooled: build(16, true)?, fresh: build(0, true)? };
        let others = ClientPair { pooled: build(16, false)?, fresh: build(0, false)? };
        Ok(Clients { local, others, key })
    }

    fn for_url(&self, url: &Url) -> &ClientPair {
        if is_local(url) { &self.local } else { &self.others }
    }

    /// Sends a request once.
    pub(crate) async fn send(&self, request: Request) -> Result<Reply, NoReply> {
        let (timeout, max_bytes) = (request.timeout, request.max_bytes);
        let answered = async {
            let client = &self.for_url(&request.url).pooled;
            let response = client.execute(request.build()).await.map_err(|error| NoReply::from(&error))?;
            self.read_reply(response, max_bytes).await
        };
        tokio::time::timeout(timeout, answered).await.unwrap_or_else(|_| {
            let reason = format!("it did not answer in {} seconds", timeout.as_secs().max(1));
            Err(NoReply { reason, was_not_sent: false })
        })
    }

    /// Sends a request that changes nothing, and sends it again if there is no answer, or one that says that the server is not ready.
    pub(crate) async fn read(&self, request: impl Fn() -> Request) -> Result<Reply, NoReply> {
        let mut attempt = 1;
        loop {
            let answered = self.send(request()).await;
            let is_temporary = answered.as_ref().map_or(true, |reply| matches!(reply.status, 429 | 500..=599));
            if !is_temporary || attempt == READ_ATTEMPTS {
                return answered;
            }
            tokio::time::sleep(READ_PAUSE * attempt).await;
            attempt += 1;
        }
    }

    /// Sends a request on a connection of its own, and returns the answer before its body.
    pub(crate) async fn stream(&self, request: Request) -> Result<Response, NoReply> {
        let (timeout, client) = (request.timeout, &self.for_url(&request.url).fresh);
        let sent = tokio::time::timeout(timeout, client.execute(request.build())).await;
        let sent = sent.map_err(|_| {
            let reason = format!("it did not answer in {} seconds", timeout.as_secs().max(1));
            NoReply { reason, was_not_sent: false }
        })?;
        sent.map_err(|error| NoReply::from(&error))
    }

    /// Reads an answer to its end.
    async fn read_reply(&self, mut response: Response, max_bytes: usize) -> Result<Reply, NoReply> {
        let date = response.headers().get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        let status = response.status().as_u16();
        let limit = if response.status().is_success() { max_bytes } else { MAX_ERROR_BYTES };
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| NoReply::from(&error))? {
            body.extend_from_slice(&piece);
            if body.len() > limit {
                if !(200..300).contains(&status) {
                    body.truncate(limit);
                    break;
                }
                let reason = format!("its answer has more than {limit} bytes");
                return Err(NoReply { reason, was_not_sent: false });
            }
        }
        Ok(Reply { status, body, date, key: self.key.clone() })
    }

    /// Reads what an answer says about an error.
    pub(crate) async fn read_error(&self, response: Response) -> Reply {
        let status = response.status().as_u16();
        let read = tokio::time::timeout(Duration::from_secs(5), self.read_reply(response, MAX_ERROR_BYTES)).await;
        read.ok().and_then(Result::ok).unwrap_or(Reply { status, body: Vec::new(), date: None, key: None })
    }
}

impl Request {
    pub(crate) fn new(method: Method, url: Url) -> Self {
        let (timeout, max_bytes) = (Duration::from_secs(60), MAX_JSON_BYTES);
        Request { method, url, headers: HeaderMap::new(), body: None, timeout, max_bytes }
    }

    pub(crate) fn json(mut self, body: &serde_json::Value) -> Self {
        self.body = Some((HeaderValue::from_static("application/json"), body.to_string().into_bytes()));
        self
    }

    fn build(self) -> reqwest::Request {
        let mut request = reqwest::Request::new(self.method, self.url);
        *request.headers_mut() = self.headers;
        if let Some((kind, body)) = self.body {
            request.headers_mut().insert(CONTENT_TYPE, kind);
            *request.body_mut() = Some(body.into());
        }
        request
    }
}

impl From<&reqwest::Error> for NoReply {
    fn from(error: &reqwest::Error) -> Self {
        NoReply { reason: root_cause(error), was_not_sent: error.is_connect() || error.is_builder() }
    }
}

impl Reply {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Parses the JSON of an answer.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body).map_err(|_| {
            let found = one_line(&self.text());
            Error::new(ErrorKind::Io, format_args!("the OpenSandbox server answered with something else: `{found}`"))
                .with_hint("check its address")
        })
    }

    /// Returns the status and the message of an answer that reports an error.
    pub(crate) fn describe(&self) -> String {
        let text = self.text();
        let stated = match serde_json::from_str::<ErrorBody>(&text) {
            Ok(ErrorBody { code, message }) if !code.is_empty() || !message.is_empty() => format!("{code}: {message}"),
            _ => text,
        };
        match one_line(&stated) {
            stated if stated.is_empty() => format!("status {}", self.status),
            stated => format!("status {}, {stated}", self.status),
        }
    }

    /// Returns true if there is no such sandbox or file. An address that leads elsewhere has no code in its answer.
    pub(crate) fn is_missing(&self) -> bool {
        let has_code = || serde_json::from_slice::<ErrorBody>(&self.body).is_ok_and(|body| !body.code.is_empty());
        self.status == 404 && has_code()
    }

    /// Returns the beginning of the body, without the key.
    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(MAX_ERROR_BYTES)]);
        match self.key.as_ref().map(ExposeSecret::expose_secret).filter(|key| !key.is_empty()) {
            Some(key) => text.replace(key, "[key]"),
            None => text.into_owned(),
        }
    }
}

/// Returns true if a URL is on this machine.
fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns a text of others on one line, without control characters, cut to a length.
pub(crate) fn one_line(text: &str) -> String {
    let text: String = text.trim().chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    match text.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

/// Returns the innermost error behind this one: those around it repeat the URL.
fn root_cause(error: &dyn StdError) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    one_line(&cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_machine() {
        for (url, is_on_it) in [
            ("http://127.0.0.1:8080/v1", true),
            ("http://127.1.2.3", true),
            ("https://[::1]:8080", true),
            ("http://LOCALHOST", true),
            ("http://10.0.0.1", false),
            ("http://[2001:db8::1]", false),
            ("http://localhost.example.com", false),
        ] {
            assert_eq!(is_local(&Url::parse(url).expect("a URL")), is_on_it, "{url}");
        }
    }

    #[test]
    fn what_a_server_says_is_shown_without_the_key_and_cut() {
        let key = Some(SecretString::from("key-7f2".to_owned()));
        let body = format!("<p>key-7f2\n{}", "x".repeat(1 << 20)).into_bytes();
        let reply = Reply { status: 404, body, date: None, key };
        for text in [reply.json::<ErrorBody>().err().expect("no JSON").to_string(), reply.describe()] {
            assert!(text.contains("<p>[key] xxx") && text.len() < 2 * MAX_MESSAGE_CHARS, "{text}");
        }
        assert!(!reply.is_missing(), "it is the answer of another server");
    }
}
