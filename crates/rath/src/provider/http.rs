//! The one place that talks HTTP: keys, time limits, size limits, and what a failure means.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::answer::{Again, Answer, Delta, Failure, Sink};
use super::assemble::{Assembly, reported};
use super::render::Request;
use crate::error::{Error, ErrorKind, Result};

/// How long to wait for a server.
///
/// What keeps a connection alive is not an answer: for each piece of that, a server has as long as for the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// From sending a request to the first byte of its answer.
    pub first_byte: Duration,
    /// From one byte of an answer to the next.
    pub idle: Duration,
}

impl Default for Timeouts {
    /// Ten seconds, five minutes, two minutes: models may think for a while.
    fn default() -> Self {
        let [connect, first_byte, idle] = [10, 300, 120].map(Duration::from_secs);
        Timeouts { connect, first_byte, idle }
    }
}

impl Timeouts {
    /// The same time for the first byte and for every later one.
    pub fn of(wait: Duration) -> Self {
        Timeouts { first_byte: wait, idle: wait, ..Timeouts::default() }
    }
}

/// How a key is shown to a server.
#[derive(Clone, Copy)]
pub(crate) enum Auth {
    Bearer,
    ApiKey,
}

/// A server, and what is needed to ask it.
pub(crate) struct Http {
    pub(crate) base: Url,
    pub(crate) auth: Auth,
    pub(crate) keys: Vec<SecretString>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) timeouts: Timeouts,
    /// The most bytes that an answer may have.
    pub(crate) most: usize,
    client: OnceLock<Result<reqwest::Client, String>>,
    /// Which key is used, and behind it which were refused: one bit each.
    key: AtomicU64,
    refused: AtomicU64,
}

/// The most bytes that an answer may have, unless told otherwise.
pub(crate) const MOST: usize = 64 << 20;
/// How much of an error's body is read.
const ERROR_MOST: usize = 64 << 10;

impl Http {
    pub(crate) fn new(base: Url, auth: Auth, keys: Vec<SecretString>) -> Self {
        Http {
            base,
            auth,
            keys,
            headers: Vec::new(),
            timeouts: Timeouts::default(),
            most: MOST,
            client: OnceLock::new(),
            key: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Sends a request to a model and takes in its answer: one attempt.
    pub(crate) async fn ask(&self, path: &str, request: &Request, sink: &mut Sink<'_>) -> Result<Answer, Failure> {
        let answer = self.attempt(path, request, sink).await;
        let mut answer = answer.map_err(|failure| self.scrub(failure))?;
        answer.facts.set("endpoint", self.endpoint());
        answer.facts.scrub(|text| self.hide_keys(text));
        Ok(answer)
    }

    /// Sends a request whose answer is one JSON object: one attempt.
    pub(crate) async fn fetch(&self, path: &str, body: Bytes) -> Result<Bytes, Failure> {
        let fetched = async {
            let mut body = self.post(path, body).await?;
            let bytes = body.all().await?;
            if body.looks_like_html(&bytes) {
                return Err(self.not_json(&bytes));
            }
            Ok(bytes)
        };
        fetched.await.map_err(|failure| self.scrub(failure))
    }

    async fn attempt(&self, path: &str, request: &Request, sink: &mut Sink<'_>) -> Result<Answer, Failure> {
        let mut body = self.post(path, request.bytes.clone()).await?;
        let mut assembly = Assembly::new(request.settings.shape);
        let headers = body.facts();
        let mut answer = if body.content_type.contains("event-stream") {
            let mut pieces = 0_u64;
            body.patience = Some(Instant::now() + self.timeouts.first_byte);
            while let Some(bytes) = body.chunk().await? {
                let before = pieces;
                let mut count = |delta: Delta<'_>| {
                    pieces += 1;
                    sink(delta);
                };
                assembly.feed(&bytes, &mut count)?;
                if pieces > before {
                    body.patience = Some(Instant::now() + self.timeouts.first_byte);
                }
                if assembly.is_done() {
                    body.drain().await;
                    break;
                }
            }
            assembly.finish(sink)?
        } else {
            let bytes = body.all().await?;
            match bytes.trim_ascii_start() {
                [b'{', ..] => assembly.whole(&bytes, sink)?,
                // A stream under another name.
                [b'd', b'a', b't', b'a', b':', ..] | [b'e', b'v', b'e', b'n', b't', b':', ..] | [b':', ..] => {
                    assembly.feed(&bytes, sink)?;
                    assembly.finish(sink)?
                }
                _ => return Err(self.not_json(&bytes)),
            }
        };
        if !headers.is_empty() {
            answer.facts.set("headers", &headers);
        }
        Ok(answer)
    }

    async fn post(&self, path: &str, body: Bytes) -> Result<Body, Failure> {
        let client = self.client()?;
        let nth = self.key.load(Ordering::Relaxed) as usize;
        let first_byte = Instant::now() + self.timeouts.first_byte;
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
        let mut builder = client.post(url).header(CONTENT_TYPE, "application/json").body(body);
        for (name, value) in &self.headers {
            builder = builder.header(name, value);
        }
        if let Some(key) = self.keys.get(nth) {
            let (name, value) = match self.auth {
                Auth::Bearer => ("authorization", format!("Bearer {}", key.expose_secret())),
                Auth::ApiKey => ("x-api-key", key.expose_secret().to_owned()),
            };
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| Failure::new(ErrorKind::Key, "the key has characters that a header cannot hold"))?;
            value.set_sensitive(true);
            builder = builder.header(name, value);
        }
        let sent = timeout_at(first_byte, builder.send()).await.map_err(|_| silent(&self.endpoint()))?;
        let response = sent.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        let mut body = Body {
            content_type,
            headers: response.headers().clone(),
            response,
            deadline: first_byte,
            patience: None,
            idle: self.timeouts.idle,
            read: 0,
            most: self.most,
            endpoint: self.endpoint(),
        };
        if status.is_success() { Ok(body) } else { Err(self.refusal(nth, status, &mut body).await) }
    }

    fn client(&self) -> Result<&reqwest::Client, Failure> {
        let client = self.client.get_or_init(|| {
            // Somebody may have installed one before: either will do.
            let _ = rustls::crypto::ring::default_provider().install_default();
            reqwest::Client::builder()
                .connect_timeout(self.timeouts.connect)
                // A redirect could carry the key to another host.
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(concat!("rath/", env!("CARGO_PKG_VERSION")))
                .build()
                .map_err(|error| error.to_string())
        });
        client.as_ref().map_err(|error| Failure::new(ErrorKind::Provider, error))
    }

    /// Where requests go, without what may be secret in a URL.
    pub(crate) fn endpoint(&self) -> String {
        let mut shown = self.base.clone();
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        shown.set_query(None);
        shown.as_str().trim_end_matches('/').to_owned()
    }

    /// What a status that is no success means.
    async fn refusal(&self, nth: usize, status: StatusCode, body: &mut Body) -> Failure {
        let bytes = body.beginning().await;
        if status.is_redirection() {
            let to = body.headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("elsewhere");
            let to = to.split(['?', '#']).next().unwrap_or_default();
            let message = format!("{} redirects to {to}, where a key is not sent", self.endpoint());
            return Failure::new(ErrorKind::Refused, message).with_hint("set the base URL to where it redirects");
        }
        let json: Option<Value> = serde_json::from_slice(&bytes).ok();
        let error = json.as_ref().map(|json| json.get("error").or(json.get("detail")).unwrap_or(json));
        let mut failure = match error {
            Some(error) => reported(error, Some(status.as_u16()), ErrorKind::Refused),
            None => {
                let text = String::from_utf8_lossy(&bytes);
                let said = rath_record::draw::preview(text.trim());
                let said = if said.is_empty() { "nothing".to_owned() } else { format!("`{said}`") };
                let error = Value::String(format!("{} says {said}", self.endpoint()));
                reported(&error, Some(status.as_u16()), ErrorKind::Refused)
            }
        };
        match failure.kind {
            ErrorKind::Key => self.key_refused(nth, &mut failure),
            ErrorKind::Busy => {
                let after = retry_after(&body.headers, SystemTime::now());
                let other = status == StatusCode::TOO_MANY_REQUESTS && self.next_key(nth);
                failure.again = Again::Later(if other { Some(Duration::ZERO) } else { after });
            }
            ErrorKind::Model => {
                failure.hint = Some(format!("check the name of the model: {} does not serve it", self.endpoint()));
            }
            _ if status == StatusCode::NOT_FOUND => {
                failure.hint = Some(format!("check the base URL: requests go below {}", self.endpoint()));
            }
            _ => {}
        }
        failure
    }

    /// Goes on with another key, if one is left.
    fn key_refused(&self, nth: usize, failure: &mut Failure) {
        self.refused.fetch_or(1 << nth.min(63), Ordering::Relaxed);
        if self.next_key(nth) {
            failure.again = Again::OtherKey;
            failure.hint = Some("another key is tried".to_owned());
            return;
        }
        // A key may be mended or paid for: the next request tries them all again.
        self.refused.store(0, Ordering::Relaxed);
        failure.again = Again::Never;
        failure.hint = Some(match self.keys.len() {
            0 => format!("{} wants a key", self.endpoint()),
            1 => "check the key, and that it is one for this provider".to_owned(),
            many => format!("none of the {many} keys is accepted: check them"),
        });
    }

    /// Moves on from a key. Says whether there is another that was not refused.
    fn next_key(&self, nth: usize) -> bool {
        let refused = self.refused.load(Ordering::Relaxed);
        let keys = self.keys.len();
        let next = (1..keys).map(|ahead| (nth + ahead) % keys).find(|key| refused & (1 << (*key).min(63)) == 0);
        if let Some(next) = next {
            self.key.store(next as u64, Ordering::Relaxed);
        }
        next.is_some()
    }

    fn not_json(&self, bytes: &[u8]) -> Failure {
        let found = match rath_record::draw::preview(&String::from_utf8_lossy(&bytes[..bytes.len().min(1024)])) {
            found if found.is_empty() => "nothing".to_owned(),
            found => format!("`{found}`"),
        };
        Failure::unreadable(format_args!("wanted JSON, found {found}"))
            .with_hint(format!("check the base URL: requests go below {}", self.endpoint()))
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        if error.is_timeout() {
            let message = format!("no connection to {} within {:?}", self.endpoint(), self.timeouts.connect);
            return Failure::new(ErrorKind::Timeout, message);
        }
        let (endpoint, cause) = (self.endpoint(), root(error));
        if error.is_connect() {
            return Failure::new(ErrorKind::Connection, format_args!("cannot reach {endpoint}: {cause}"))
                .with_hint("check the base URL, and that the server runs");
        }
        Failure::new(ErrorKind::Connection, format_args!("{endpoint} broke the connection off: {cause}"))
    }

    fn scrub(&self, mut failure: Failure) -> Failure {
        failure.message = self.hide_keys(&failure.message).unwrap_or(failure.message);
        failure.hint = failure.hint.map(|hint| self.hide_keys(&hint).unwrap_or(hint));
        failure
    }

    /// The text without the keys, if one is in it: a server may say the key that it was shown.
    fn hide_keys(&self, text: &str) -> Option<String> {
        let keys = self.keys.iter().map(ExposeSecret::expose_secret).filter(|key| key.len() >= 4);
        let found: Vec<_> = keys.filter(|key| text.contains(*key)).collect();
        (!found.is_empty()).then(|| found.iter().fold(text.to_owned(), |text, key| text.replace(*key, "[key]")))
    }
}

/// An answer on its way.
struct Body {
    response: Response,
    content_type: String,
    headers: HeaderMap,
    /// When the next byte must be there.
    deadline: Instant,
    /// When the next piece of an answer must be there, in a stream.
    patience: Option<Instant>,
    idle: Duration,
    read: usize,
    most: usize,
    endpoint: String,
}

impl Body {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        let deadline = self.patience.map_or(self.deadline, |patience| self.deadline.min(patience));
        let chunk = timeout_at(deadline, self.response.chunk()).await.map_err(|_| match self.read {
            0 => silent(&self.endpoint),
            _ if deadline < self.deadline => {
                Failure::new(ErrorKind::Timeout, format_args!("{} sends nothing but keep-alives", self.endpoint))
            }
            _ => Failure::new(ErrorKind::Timeout, format_args!("the answer stalled for {:?}", self.idle)),
        })?;
        let Some(bytes) = chunk.map_err(|error| {
            Failure::new(ErrorKind::Connection, format_args!("the answer was cut off: {}", root(&error)))
        })?
        else {
            return Ok(None);
        };
        self.deadline = Instant::now() + self.idle;
        self.read += bytes.len();
        if self.read > self.most {
            return Err(Failure::unreadable(format_args!("the answer has more than {} bytes", self.most)));
        }
        Ok(Some(bytes))
    }

    async fn all(&mut self) -> Result<Bytes, Failure> {
        let mut all = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            all.extend_from_slice(&bytes);
        }
        Ok(all.into())
    }

    /// What can be had of it without effort: of an error the status says enough.
    async fn beginning(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Ok(Some(more)) = self.chunk().await {
            bytes.extend_from_slice(&more);
            if bytes.len() >= ERROR_MOST {
                bytes.truncate(ERROR_MOST);
                break;
            }
        }
        bytes
    }

    /// Reads what follows the end of an answer, so that the connection can be used again. A server that keeps it open is
    /// not waited for.
    async fn drain(&mut self) {
        self.patience = None;
        self.deadline = Instant::now() + Duration::from_millis(50);
        while let Ok(Some(_)) = self.chunk().await {
            self.deadline = Instant::now() + Duration::from_millis(50);
        }
    }

    fn looks_like_html(&self, bytes: &[u8]) -> bool {
        self.content_type.contains("html") || bytes.trim_ascii_start().starts_with(b"<")
    }

    /// What the headers say about limits, and the name of the request.
    fn facts(&self) -> BTreeMap<String, String> {
        let said =
            |name: &str| name.contains("ratelimit") || matches!(name, "request-id" | "x-request-id" | "retry-after");
        let named = self.headers.iter().filter(|(name, _)| said(name.as_str()));
        named.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned()))).collect()
    }
}

fn silent(endpoint: &str) -> Failure {
    Failure::new(ErrorKind::Timeout, format_args!("{endpoint} accepts the request and says nothing"))
}

/// When a server wants to be asked again: in seconds, in milliseconds, or at a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|millis| millis.parse().ok()) {
        return Duration::try_from_secs_f64(f64::max(0.0, millis) / 1e3).ok();
    }
    let after = text(RETRY_AFTER.as_str())?;
    match after.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds.max(0.0)).ok(),
        Err(_) => httpdate::parse_http_date(after).ok().map(|date| date.duration_since(now).unwrap_or_default()),
    }
}

/// The innermost cause, which says what happened; what is around it only says where, and names the URL.
fn root(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

/// Reads a base URL.
pub(crate) fn base_url(text: &str, example: &str) -> Result<Url> {
    let wrong = || {
        // A URL may hold a password: what is shown is what stands before it.
        let shown = text.split('@').next_back().unwrap_or_default();
        Error::new(ErrorKind::Provider, format_args!("wanted a base URL such as `{example}`, found `{shown}`"))
    };
    let url = Url::parse(text.trim()).map_err(|_| wrong())?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() { Ok(url) } else { Err(wrong()) }
}
