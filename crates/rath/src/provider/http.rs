//! The one place that talks HTTP: keys, time limits, size limits, and what a failure means.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rath_record::draw;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use secrecy::SecretString;
use serde_json::Value;
use tokio::time::{Instant, Sleep, sleep_until};

use super::answer::{Again, Answer, Failure, Sink};
use super::assemble::{Assembly, reported};
use super::keys::{Keys, Refused, Then};
use super::render::Request;
use crate::error::ErrorKind;
use crate::secrets::Secrets;
use crate::session::{Error, Result};

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
    base: Url,
    /// The same, as it is shown.
    endpoint: Arc<str>,
    pub(crate) auth: Auth,
    keys: Keys,
    /// The variable that names a key, where the server gives no answer without one.
    pub(crate) key_from: Option<&'static str>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) timeouts: Timeouts,
    /// The most bytes that an answer may have.
    pub(crate) most: usize,
    client: OnceLock<Result<reqwest::Client, String>>,
    /// The first path that was asked for, and where it is.
    first_url: OnceLock<(String, Url)>,
}

/// The most bytes that an answer may have, unless told otherwise.
pub(crate) const MOST: usize = 64 << 20;
/// How much of what a server says of a failure is kept: some repeat the request in it.
const MESSAGE_MOST: usize = 2_000;
/// How long the rest of an answer is waited for that is not needed any more.
const LINGER: Duration = Duration::from_millis(50);
/// How long the body of an error is waited for.
const ERROR_WAIT: Duration = Duration::from_secs(2);
/// How much of an error's body is read.
const ERROR_MOST: usize = 64 << 10;

impl Http {
    pub(crate) fn new(base: Url, auth: Auth, keys: Vec<SecretString>, headers: Vec<(HeaderName, HeaderValue)>) -> Self {
        // A header or a part of the URL may be another kind of key, by its name.
        let values = headers.iter().filter(|(name, _)| names_a_secret(name.as_str()));
        let values = values.filter_map(|(_, value)| Some(value.to_str().ok()?.to_owned()));
        let user = [base.username().to_owned(), base.password().unwrap_or_default().to_owned()];
        let query = base.query_pairs().filter(|(name, value)| names_a_secret(name) || value.is_empty());
        let query = query.map(|(name, value)| if value.is_empty() { name.into_owned() } else { value.into_owned() });
        let whole: Vec<String> = values.chain(user).chain(query).collect();
        // Of `Bearer KEY` and `session=KEY` the key is the secret.
        let parts = whole.iter().flat_map(|value| value.split([' ', ';', ',', '=']).map(str::to_owned));
        let secrets: Vec<String> = parts.chain(whole.iter().cloned()).filter(|secret| secret.len() >= 8).collect();
        let keys = Keys::new(keys, secrets);
        let (timeouts, client) = (Timeouts::default(), OnceLock::new());
        let endpoint = endpoint(&base).into();
        Http {
            base,
            endpoint,
            auth,
            keys,
            key_from: None,
            headers,
            timeouts,
            most: MOST,
            client,
            first_url: OnceLock::new(),
        }
    }

    /// What a session must not record of how the server is reached.
    pub(crate) fn secrets(&self) -> &Secrets {
        self.keys.secrets()
    }

    /// Sends a request to a model and takes in its answer: one attempt.
    pub(crate) async fn ask(&self, path: &str, request: &Request, sink: &mut Sink<'_>) -> Result<Answer, Failure> {
        let answer = self.attempt(path, request, sink).await;
        let mut answer = answer.map_err(|failure| self.scrub(failure))?;
        answer.facts.set("endpoint", self.endpoint());
        answer.facts.scrub(|text| self.keys.hide(text));
        answer.scrub(|text| self.keys.hide_long(text));
        Ok(answer)
    }

    /// Sends a request whose answer is one JSON object: one attempt.
    pub(crate) async fn fetch(&self, path: &str, body: Bytes, refused: &Refused) -> Result<Bytes, Failure> {
        let fetched = async {
            let mut body = self.post(path, body, refused).await?;
            let bytes = body.all().await?;
            if body.looks_like_html(&bytes) {
                return Err(self.not_json(&bytes));
            }
            Ok(bytes)
        };
        fetched.await.map_err(|failure| self.scrub(failure))
    }

    async fn attempt(&self, path: &str, request: &Request, sink: &mut Sink<'_>) -> Result<Answer, Failure> {
        let mut body = self.post(path, request.bytes.clone(), &request.refused).await?;
        let mut assembly = Assembly::new(request.settings.shape);
        let headers = body.facts();
        let streams = body.content_type.contains("event-stream");
        let mut bytes = Vec::new();
        body.patience = streams.then(|| in_time(self.timeouts.first_byte));
        while streams && start(&bytes).is_empty() {
            let Some(more) = body.chunk().await? else { return Err(Failure::cut()) };
            bytes.extend_from_slice(&more);
        }
        // A server that fails early may forget to say that what it says is no stream, and another that it is one.
        let mut answer = if streams && !matches!(start(&bytes), [b'{' | b'<', ..]) {
            self.pieces(assembly, bytes.into(), &mut body, sink).await?
        } else {
            bytes.extend_from_slice(&body.all().await?);
            let fields = [&b"data:"[..], b"event:", b"id:", b"retry:", b":"];
            match start(&bytes) {
                whole @ [b'{', ..] => assembly.whole(whole, sink)?,
                stream if fields.iter().any(|field| stream.starts_with(field)) => {
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

    /// Takes in an answer piece by piece.
    async fn pieces(
        &self,
        mut assembly: Assembly,
        first: Bytes,
        body: &mut Body,
        sink: &mut Sink<'_>,
    ) -> Result<Answer, Failure> {
        let mut next = Some(first);
        body.patience = Some(in_time(self.timeouts.first_byte));
        while let Some(bytes) = next {
            let before = assembly.heard();
            assembly.feed(&bytes, sink)?;
            if assembly.is_done() {
                body.drain().await;
                break;
            }
            if assembly.heard() > before {
                body.patience = Some(in_time(self.timeouts.first_byte));
            }
            next = body.chunk().await?;
        }
        assembly.finish(sink)
    }

    async fn post(&self, path: &str, body: Bytes, refused: &Refused) -> Result<Body, Failure> {
        let client = self.client()?;
        let key = self.keys.pick(refused);
        if let (None, Some(variable)) = (key, self.key_from) {
            let message = format!("there is no key for {}", self.base.host_str().unwrap_or_default());
            return Err(Failure::new(ErrorKind::Key, message)
                .with_hint(format!("give it one with `key`, or take it from {variable} with `from_env`")));
        }
        let first_byte = in_time(self.timeouts.first_byte);
        let url = self.url(path);
        let mut headers = HeaderMap::with_capacity(4 + self.headers.len());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some((_, key)) = key {
            let (name, value) = match self.auth {
                Auth::Bearer => ("authorization", format!("Bearer {key}")),
                Auth::ApiKey => ("x-api-key", key.to_owned()),
            };
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| Failure::new(ErrorKind::Key, "the key has characters that a header cannot hold"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        // What a program sets stands in place of ours.
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        let builder = client.post(url).headers(headers).body(body);
        let mut alarm = Alarm::new(self.timeouts.idle);
        let sent = alarm.by(first_byte, builder.send()).await.map_err(|Late| silent(&self.endpoint))?;
        let response = sent.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        let mut body = Body {
            content_type,
            response,
            deadline: first_byte,
            patience: None,
            idle: self.timeouts.idle,
            read: 0,
            most: self.most,
            endpoint: self.endpoint.clone(),
            alarm,
        };
        if status.is_success() {
            Ok(body)
        } else {
            Err(self.refusal(key.map(|(nth, _)| nth), path, status, &mut body, refused).await)
        }
    }

    /// Where a path is. It is nearly always the same.
    fn url(&self, path: &str) -> Url {
        let below = || {
            let mut url = self.base.clone();
            url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
            url
        };
        let (known, url) = self.first_url.get_or_init(|| (path.to_owned(), below()));
        if known == path { url.clone() } else { below() }
    }

    fn client(&self) -> Result<&reqwest::Client, Failure> {
        let client = self.client.get_or_init(|| {
            // Somebody may have installed one before: either will do.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let builder = reqwest::Client::builder()
                .connect_timeout(self.timeouts.connect)
                // A redirect could carry the key to another host.
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(concat!("rath/", env!("CARGO_PKG_VERSION")));
            // No proxy knows the way to this machine.
            let builder = if is_local(&self.base) { builder.no_proxy() } else { builder };
            builder.build().map_err(|error| error.to_string())
        });
        client.as_ref().map_err(|error| Failure::new(ErrorKind::Provider, error))
    }

    /// Where requests go, without what may be secret in a URL.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// What a status that is no success means.
    async fn refusal(
        &self,
        key: Option<usize>,
        path: &str,
        status: StatusCode,
        body: &mut Body,
        refused: &Refused,
    ) -> Failure {
        let bytes = body.beginning().await;
        // Before anything is cut from it: a part of a key is a secret too.
        let text = self.shown(&bytes);
        if status.is_redirection() {
            let to = body.response.headers().get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("elsewhere");
            let to = to.split(['?', '#']).next().unwrap_or_default();
            let message = format!("{} redirects to {to}, where a key is not sent", self.endpoint());
            return Failure::new(ErrorKind::Refused, message).with_hint("set the base URL to where it redirects");
        }
        let json: Option<Value> = serde_json::from_str(&text).ok();
        let error = json.as_ref().map(|json| json.get("error").unwrap_or(json));
        let mut failure = match error {
            Some(error) => reported(error, Some(status.as_u16()), ErrorKind::Refused),
            None => {
                let said = draw::preview(text.trim());
                let said = if said.is_empty() { "nothing".to_owned() } else { format!("`{said}`") };
                let error = Value::String(format!("{} says {said}", self.endpoint()));
                reported(&error, Some(status.as_u16()), ErrorKind::Refused)
            }
        };
        let endpoint = self.endpoint();
        match failure.kind {
            ErrorKind::Key => self.key_refused(key, &mut failure, refused),
            ErrorKind::Busy => {
                let after = retry_after(body.response.headers(), SystemTime::now());
                failure.again = match key.filter(|_| status == StatusCode::TOO_MANY_REQUESTS) {
                    Some(key) => match self.keys.rest(key, after, refused) {
                        Then::OtherKey => Again::Later(Some(Duration::ZERO)),
                        Then::Wait(wait) => Again::Later(wait),
                    },
                    None => Again::Later(after),
                };
            }
            ErrorKind::Model => {
                failure.hint = Some(format!("check the name of the model: {endpoint} does not serve it"));
            }
            _ if status == StatusCode::NOT_FOUND => {
                let sent_to = format!("{endpoint}{path}");
                let often = if sent_to.contains("/v1/") { "" } else { ", which often ends in /v1" };
                failure.hint = Some(format!("check the base URL{often}: the request went to {sent_to}"));
            }
            _ => {}
        }
        failure
    }

    /// Goes on with another key, if one is left.
    fn key_refused(&self, key: Option<usize>, failure: &mut Failure, refused: &Refused) {
        if key.is_some_and(|key| self.keys.refuse(key, refused)) {
            failure.again = Again::OtherKey;
            failure.hint = Some("another key is tried".to_owned());
            return;
        }
        failure.again = Again::Never;
        failure.hint = Some(match self.keys.len() {
            0 => format!("{} wants a key", self.endpoint()),
            1 => "check the key, and that it is one for this provider".to_owned(),
            many => format!("none of the {many} keys is accepted: check them"),
        });
    }

    /// What a server said, without what is secret in it.
    fn shown(&self, bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.keys.hide(&text).unwrap_or(text)
    }

    fn not_json(&self, bytes: &[u8]) -> Failure {
        let found = match draw::preview(&self.shown(&bytes[..bytes.len().min(ERROR_MOST)])) {
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
        failure.message = self.keys.hide(&failure.message).unwrap_or(failure.message);
        failure.message.truncate(failure.message.floor_char_boundary(MESSAGE_MOST));
        failure.hint = failure.hint.map(|hint| self.keys.hide(&hint).unwrap_or(hint));
        failure
    }
}

/// An answer on its way.
struct Body {
    response: Response,
    content_type: String,
    /// When the next byte must be there.
    deadline: Instant,
    /// When the next piece of an answer must be there, in a stream.
    patience: Option<Instant>,
    idle: Duration,
    read: usize,
    most: usize,
    endpoint: Arc<str>,
    alarm: Alarm,
}

/// Wakes whoever waits when a deadline has passed. There is one for an attempt, and it is set anew only when it rings too
/// early or a deadline comes closer: a timer for each piece of an answer would cost more than the piece.
struct Alarm {
    timer: Option<Pin<Box<Sleep>>>,
    /// How far ahead it is set at most.
    most: Duration,
}

/// The deadline has passed.
struct Late;

impl Alarm {
    fn new(most: Duration) -> Self {
        Alarm { timer: None, most }
    }

    /// Waits for some work, until a deadline.
    async fn by<T>(&mut self, deadline: Instant, work: impl Future<Output = T>) -> Result<T, Late> {
        let mut work = pin!(work);
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(done));
            }
            let soon = || deadline.min(in_time(self.most));
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(soon())));
            if timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            while timer.as_mut().poll(context).is_ready() {
                if Instant::now() >= deadline {
                    return Poll::Ready(Err(Late));
                }
                timer.as_mut().reset(deadline);
            }
            Poll::Pending
        })
        .await
    }
}

impl Body {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        let deadline = self.patience.map_or(self.deadline, |patience| self.deadline.min(patience));
        let chunk = self.alarm.by(deadline, self.response.chunk()).await.map_err(|Late| match self.read {
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
        self.deadline = in_time(self.idle);
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
        self.patience = Some(in_time(ERROR_WAIT));
        while let Ok(Some(more)) = self.chunk().await {
            bytes.extend_from_slice(&more);
            if bytes.len() >= ERROR_MOST {
                bytes.truncate(ERROR_MOST);
                break;
            }
        }
        bytes
    }

    /// Reads what follows the end of an answer, so that the connection can be used again; a server that goes on is left.
    async fn drain(&mut self) {
        self.patience = Some(in_time(LINGER));
        while let Ok(Some(_)) = self.chunk().await {}
    }

    fn looks_like_html(&self, bytes: &[u8]) -> bool {
        self.content_type.contains("html") || bytes.trim_ascii_start().starts_with(b"<")
    }

    /// What the headers say about limits, and the name of the request.
    fn facts(&self) -> BTreeMap<String, String> {
        let said =
            |name: &str| name.contains("ratelimit") || matches!(name, "request-id" | "x-request-id" | "retry-after");
        let named = self.response.headers().iter().filter(|(name, _)| said(name.as_str()));
        named.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned()))).collect()
    }
}

/// A URL without what may be secret in it.
fn endpoint(base: &Url) -> String {
    let mut shown = base.clone();
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.set_query(None);
    shown.as_str().trim_end_matches('/').to_owned()
}

fn is_local(base: &Url) -> bool {
    let host = base.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether a header or a parameter of this name may hold a secret.
fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let parts =
        ["auth", "bearer", "code", "cookie", "cred", "jwt", "key", "pass", "pwd", "secret", "session", "sig", "token"];
    parts.iter().any(|part| name.contains(part))
}

/// A time ahead; one that no clock can show is as good as never.
pub(super) fn in_time(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait).unwrap_or_else(|| now + Duration::from_secs(365 * 24 * 3600))
}

/// What a body begins with, but for what may stand before anything.
fn start(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes).trim_ascii_start()
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
        // A URL may hold a password, and a key behind its question mark.
        let shown = text.split('@').next_back().unwrap_or_default();
        let shown = shown.split(['?', '#']).next().unwrap_or_default();
        Error::new(ErrorKind::Provider, format_args!("wanted a base URL such as `{example}`, found `{shown}`"))
            .with_hint("it begins with http:// or https://")
    };
    let url = Url::parse(text.trim()).map_err(|_| wrong())?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() { Ok(url) } else { Err(wrong()) }
}
