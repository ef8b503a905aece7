//! The HTTP client: keys, time limits, size limits, and the meaning of failures.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rath_record::draw;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use secrecy::SecretString;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::{Instant, Sleep, sleep_until};

use super::answer::{Answer, DeltaSink};
use super::assemble::{Assembler, json_list, json_members, reported_error, stated_wait};
use super::error::{ProviderError, ProviderErrorKind, RetryAdvice};
use super::keys::{AfterRateLimit, Keys, RejectedKeys, instant_after};
use super::render::Request;
use crate::secrets::Secrets;

/// The time limits for a server.
///
/// Keep-alives do not count as an answer: each real event of a stream must arrive within the time for the first byte.
///
/// ```
/// use std::time::Duration;
///
/// use rath::prelude::*;
/// use rath::provider::Timeouts;
///
/// let timeouts = Timeouts { connect: Duration::from_secs(5), ..Timeouts::default() };
/// let provider = Provider::from(OpenAi::new("gpt-5").timeouts(timeouts));
/// # drop(provider);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The time to establish a connection.
    pub connect: Duration,
    /// The time from sending a request to the first byte of its answer.
    pub first_byte: Duration,
    /// The time from one byte of an answer to the next.
    pub idle: Duration,
    /// The time from sending a request to the end of its answer, however much of it arrives. An answer that takes longer is
    /// not asked for again.
    pub total: Duration,
}

impl Default for Timeouts {
    /// Returns ten seconds, five minutes, two minutes and one hour: models may think for a while.
    fn default() -> Self {
        let [connect, first_byte, idle, total] = [10, 300, 120, 3600].map(Duration::from_secs);
        Timeouts { connect, first_byte, idle, total }
    }
}

impl Timeouts {
    /// Returns the same limit for the first byte and for every later one.
    pub fn for_answer(wait: Duration) -> Self {
        Timeouts { first_byte: wait, idle: wait, ..Timeouts::default() }
    }
}

/// The header that carries the key.
#[derive(Clone, Copy)]
pub(crate) enum Auth {
    Bearer,
    ApiKey,
    GoogleApiKey,
}

/// A client for one server.
pub(crate) struct HttpClient {
    base: Url,
    /// The base URL as it is shown, without secrets.
    endpoint: Arc<str>,
    pub(crate) auth: Auth,
    keys: Keys,
    /// The environment variable for the key, if the server requires one.
    pub(crate) key_variable: Option<&'static str>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) timeouts: Timeouts,
    /// The most bytes that an answer may have.
    pub(crate) max_bytes: usize,
    client: OnceLock<Result<reqwest::Client, String>>,
    /// The first path that was requested, and its URL.
    first_url: OnceLock<(String, Url)>,
}

/// The header for a key that is not a bearer token.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
/// The default limit for the size of an answer.
pub(crate) const DEFAULT_MAX_BYTES: usize = 64 << 20;
/// The most bytes of a server's error message that are kept: some servers repeat the request in it.
const MAX_MESSAGE_BYTES: usize = 2_000;
/// The time to wait for the end of the body after the end of the answer.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);
/// The time to wait for the body of an error.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(2);
/// The most bytes of an error's body that are read.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

impl HttpClient {
    pub(crate) fn new(base: Url, auth: Auth, keys: Vec<SecretString>, headers: Vec<(HeaderName, HeaderValue)>) -> Self {
        // A header or a part of the URL may be another kind of key, judged by its name.
        let values = headers.iter().filter(|(name, _)| is_secret_name(name.as_str()));
        let values = values.filter_map(|(_, value)| Some(value.to_str().ok()?.to_owned()));
        let user = [base.username().to_owned(), base.password().unwrap_or_default().to_owned()];
        let query = base.query_pairs().filter(|(name, value)| is_secret_name(name) || value.is_empty());
        let query = query.map(|(name, value)| if value.is_empty() { name.into_owned() } else { value.into_owned() });
        let whole: Vec<String> = values.chain(user).chain(query).collect();
        // In `Bearer KEY` and `session=KEY` the key alone is a secret as well.
        let parts = whole.iter().flat_map(|value| value.split([' ', ';', ',', '=']).map(str::to_owned));
        let secrets: Vec<String> = parts.chain(whole.iter().cloned()).filter(|secret| secret.len() >= 8).collect();
        let keys = Keys::new(keys, secrets);
        let (timeouts, client) = (Timeouts::default(), OnceLock::new());
        let endpoint = endpoint(&base).into();
        HttpClient {
            base,
            endpoint,
            auth,
            keys,
            key_variable: None,
            headers,
            timeouts,
            max_bytes: DEFAULT_MAX_BYTES,
            client,
            first_url: OnceLock::new(),
        }
    }

    /// Returns the keys and other secrets that a session must not record.
    pub(crate) fn secrets(&self) -> &Secrets {
        self.keys.secrets()
    }

    /// Sends a request to a model and reads its answer: one attempt.
    pub(crate) async fn ask(
        &self,
        path: &str,
        request: &Request,
        sink: &mut DeltaSink<'_>,
    ) -> Result<Answer, ProviderError> {
        let answer = self.attempt(path, request, sink).await;
        let mut answer = answer.map_err(|error| self.hide_keys(error))?;
        answer.facts.set("endpoint", self.endpoint());
        answer.facts.rewrite(|text| self.keys.hide(text));
        answer.rewrite(|text| self.keys.hide_long(text));
        Ok(answer)
    }

    /// Sends a request whose answer is one JSON object: one attempt.
    pub(crate) async fn fetch(&self, path: &str, body: Bytes, rejected: &RejectedKeys) -> Result<Bytes, ProviderError> {
        let fetched = async {
            let mut body = self.post(path, body, rejected).await?;
            let mut bytes = Vec::new();
            body.read_rest(&mut bytes).await?;
            if body.looks_like_html(&bytes) {
                return Err(self.not_json(&bytes));
            }
            Ok(bytes.into())
        };
        fetched.await.map_err(|error| self.hide_keys(error))
    }

    async fn attempt(&self, path: &str, request: &Request, sink: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        let mut body = self.post(path, request.bytes.clone(), &request.rejected_keys).await?;
        let mut assembler = Assembler::new(request.settings.shape);
        let headers = body.reported_headers();
        let is_stream = body.content_type.contains("event-stream");
        body.event_deadline = is_stream.then(|| instant_after(self.timeouts.first_byte));
        let first = if is_stream { body.read_to_content().await? } else { Bytes::new() };
        // The Content-Type is unreliable in both directions: an early failure may claim to be a stream, and a stream may
        // not. The first bytes decide.
        let mut answer = if is_stream && !matches!(content_start(&first), [b'{' | b'<', ..]) {
            self.read_stream(assembler, first, &mut body, sink).await?
        } else {
            let mut bytes = Vec::from(first);
            body.read_rest(&mut bytes).await?;
            let fields = [&b"data:"[..], b"event:", b"id:", b"retry:", b":"];
            match content_start(&bytes) {
                whole @ [b'{', ..] => assembler.whole(whole, sink)?,
                stream if fields.iter().any(|field| stream.starts_with(field)) => {
                    assembler.feed(&bytes, sink)?;
                    assembler.finish(sink)?
                }
                _ => return Err(self.not_json(&bytes)),
            }
        };
        if !headers.is_empty() {
            answer.facts.set("headers", &headers);
        }
        Ok(answer)
    }

    /// Reads an answer that arrives in pieces.
    async fn read_stream(
        &self,
        mut assembler: Assembler,
        first: Bytes,
        body: &mut ResponseBody,
        sink: &mut DeltaSink<'_>,
    ) -> Result<Answer, ProviderError> {
        let mut next = Some(first);
        while let Some(bytes) = next {
            let before = assembler.event_count();
            assembler.feed(&bytes, sink)?;
            if assembler.is_done() {
                body.drain().await;
                break;
            }
            if assembler.event_count() > before {
                body.event_deadline = Some(instant_after(self.timeouts.first_byte));
            }
            next = body.read().await?;
        }
        assembler.finish(sink)
    }

    /// Sends a request. The response is in a box because it is large, and moved several times.
    async fn post(&self, path: &str, body: Bytes, rejected: &RejectedKeys) -> Result<Box<ResponseBody>, ProviderError> {
        let client = self.client()?;
        let key = self.keys.pick(rejected);
        if let (None, Some(variable)) = (key, self.key_variable) {
            let message = format!("there is no key for {}", self.base.host_str().unwrap_or_default());
            return Err(ProviderError::new(ProviderErrorKind::Key, message)
                .with_hint(format!("set it with `key`, or read it from {variable} with `from_env`")));
        }
        let answer_deadline = instant_after(self.timeouts.total);
        let first_byte = instant_after(self.timeouts.first_byte).min(answer_deadline);
        let request = client.post(self.url(path)).body(body).build();
        let mut request = request.map_err(|error| self.connection_error(&error))?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some((_, key)) = key {
            let (name, value) = match self.auth {
                Auth::Bearer => (AUTHORIZATION, HeaderValue::try_from(format!("Bearer {key}"))),
                Auth::ApiKey => (X_API_KEY, HeaderValue::from_str(key)),
                Auth::GoogleApiKey => (X_GOOG_API_KEY, HeaderValue::from_str(key)),
            };
            let mut value = value.map_err(|_| {
                ProviderError::new(ProviderErrorKind::Key, "the key has characters that a header cannot hold")
            })?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        // Headers that the program sets replace ours.
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        let mut timer = DeadlineTimer::new(self.timeouts.idle);
        let sent = timer
            .wait(first_byte, client.execute(request))
            .await
            .map_err(|DeadlineElapsed| no_answer(&self.endpoint))?;
        let response = sent.map_err(|error| self.connection_error(&error))?;
        let status = response.status();
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        let mut body = Box::new(ResponseBody {
            content_type,
            response,
            byte_deadline: first_byte,
            event_deadline: None,
            answer_deadline,
            timeouts: self.timeouts,
            bytes_read: 0,
            max_bytes: self.max_bytes,
            endpoint: self.endpoint.clone(),
            timer,
        });
        if status.is_success() {
            Ok(body)
        } else {
            Err(self.status_error(key.map(|(nth, _)| nth), path, status, &mut body, rejected).await)
        }
    }

    /// Returns the URL of a path with its query. It is nearly always the same path, so the first one is cached.
    fn url(&self, path: &str) -> Url {
        let join = || {
            let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
            let mut url = self.base.clone();
            url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
            if let Some(query) = query {
                let before = url.query().map(|before| format!("{before}&")).unwrap_or_default();
                url.set_query(Some(&format!("{before}{query}")));
            }
            url
        };
        let (known, url) = self.first_url.get_or_init(|| (path.to_owned(), join()));
        if known == path { url.clone() } else { join() }
    }

    fn client(&self) -> Result<&reqwest::Client, ProviderError> {
        let client = self.client.get_or_init(|| {
            // This fails if the program has installed another provider of cryptography, which works as well.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let builder = reqwest::Client::builder()
                .connect_timeout(self.timeouts.connect)
                // A redirect could carry the key to another host.
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(concat!("rath/", env!("CARGO_PKG_VERSION")));
            // A proxy cannot reach this machine's loopback.
            let builder = if is_local(&self.base) { builder.no_proxy() } else { builder };
            builder.build().map_err(|error| error.to_string())
        });
        client.as_ref().map_err(|error| ProviderError::new(ProviderErrorKind::Setup, error))
    }

    /// Returns the base URL of requests without the secrets in it.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns the error for a status that is not a success.
    async fn status_error(
        &self,
        key: Option<usize>,
        path: &str,
        status: StatusCode,
        body: &mut ResponseBody,
        rejected: &RejectedKeys,
    ) -> ProviderError {
        let bytes = body.read_error().await;
        // Secrets are hidden before the text is cut: a part of a key is a secret too.
        let text = self.without_keys(&bytes);
        if status.is_redirection() {
            let to = body
                .response
                .headers()
                .get(LOCATION)
                .map_or_else(|| "elsewhere".into(), |to| self.without_keys(to.as_bytes()));
            let to = to.split(['?', '#']).next().unwrap_or_default();
            let message = format!("{} redirects to {to}, and keys are not sent there", self.endpoint());
            return ProviderError::new(ProviderErrorKind::Refused, message)
                .with_hint("set the base URL to that address");
        }
        let stated = match serde_json::from_str::<&RawValue>(&text) {
            Ok(json) => {
                // Some servers wrap the error of a stream in a list.
                let json = json_list(json).and_then(|list| list.into_iter().next()).unwrap_or(json);
                json_members(json.get(), ["error"])[0].unwrap_or(json).get().to_owned()
            }
            Err(_) => {
                let body = draw::preview(text.trim());
                let body = if body.is_empty() { "an empty body".to_owned() } else { format!("`{body}`") };
                Value::String(format!("{} answered with {body}", self.endpoint())).to_string()
            }
        };
        let mut error = reported_error(&stated, Some(status.as_u16()), ProviderErrorKind::Refused);
        let endpoint = self.endpoint();
        match error.kind() {
            ProviderErrorKind::Key => error = self.key_error(key, error, rejected),
            ProviderErrorKind::Busy => {
                let after = retry_after(body.response.headers(), SystemTime::now()).or_else(|| stated_wait(&stated));
                let wait = match key.filter(|_| status == StatusCode::TOO_MANY_REQUESTS) {
                    Some(key) => match self.keys.cool_down(key, after, rejected) {
                        AfterRateLimit::OtherKey => Some(Duration::ZERO),
                        AfterRateLimit::Wait(wait) => wait,
                    },
                    None => after,
                };
                error = error.with_retry(RetryAdvice::Later(wait));
            }
            ProviderErrorKind::Model => {
                error = error.with_hint(format!("check the name of the model: {endpoint} does not serve it"));
            }
            _ if status == StatusCode::NOT_FOUND => {
                let sent_to = format!("{endpoint}{path}");
                let often = if sent_to.contains("/v1/") || sent_to.contains("/v1beta/") {
                    ""
                } else {
                    ", which often ends in /v1"
                };
                error = error.with_hint(format!("check the base URL{often}: the request went to {sent_to}"));
            }
            _ => {}
        }
        error
    }

    /// Adds to the error for a rejected key whether another key is tried.
    fn key_error(&self, key: Option<usize>, error: ProviderError, rejected: &RejectedKeys) -> ProviderError {
        if key.is_some_and(|key| self.keys.reject(key, rejected)) {
            return error.with_retry(RetryAdvice::OtherKey).with_hint("another key is tried");
        }
        error.with_retry(RetryAdvice::Never).with_hint(match self.keys.len() {
            0 => format!("{} requires a key", self.endpoint()),
            1 => "check the key, and that it is one for this provider".to_owned(),
            many => format!("none of the {many} keys is accepted: check them"),
        })
    }

    /// Returns the text of a body without the keys in it.
    fn without_keys(&self, bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let text = self.keys.hide(&text).unwrap_or(text);
        // In other forms too: what is cut later would not be recognised.
        self.secrets().hide(&text).unwrap_or(text)
    }

    fn not_json(&self, bytes: &[u8]) -> ProviderError {
        let text = self.without_keys(&bytes[..bytes.len().min(MAX_ERROR_BODY_BYTES)]);
        let found = match draw::preview(&text) {
            found if found.is_empty() => "nothing".to_owned(),
            found => format!("`{found}`"),
        };
        ProviderError::unreadable(format_args!("wanted JSON, found {found}"))
            .with_hint(format!("check the base URL: requests go below {}", self.endpoint()))
    }

    fn connection_error(&self, error: &reqwest::Error) -> ProviderError {
        if error.is_timeout() {
            let message = format!("no connection to {} within {:?}", self.endpoint(), self.timeouts.connect);
            return ProviderError::new(ProviderErrorKind::Timeout, message);
        }
        let (endpoint, cause) = (self.endpoint(), root_cause(error));
        if error.is_connect() {
            return ProviderError::new(ProviderErrorKind::Connection, format_args!("cannot reach {endpoint}: {cause}"))
                .with_hint("check the base URL, and that the server runs");
        }
        ProviderError::new(ProviderErrorKind::Connection, format_args!("{endpoint} broke the connection off: {cause}"))
    }

    fn hide_keys(&self, error: ProviderError) -> ProviderError {
        error.rewrite(|text| self.keys.hide(text), MAX_MESSAGE_BYTES)
    }
}

/// The body of a response while it is read.
struct ResponseBody {
    response: Response,
    content_type: String,
    /// The time by which the next byte must arrive.
    byte_deadline: Instant,
    /// The time by which the next event of a stream must arrive.
    event_deadline: Option<Instant>,
    /// The time by which the answer must be complete.
    answer_deadline: Instant,
    timeouts: Timeouts,
    bytes_read: usize,
    max_bytes: usize,
    endpoint: Arc<str>,
    timer: DeadlineTimer,
}

/// A timer for the deadlines of one attempt.
///
/// The timer is reset only when it fires too early or a deadline comes closer: a timer for each piece of an answer would cost more
/// than the piece.
struct DeadlineTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// The longest time that the timer is first set to.
    max_sleep: Duration,
}

/// The deadline passed before the work was done.
struct DeadlineElapsed;

impl DeadlineTimer {
    fn new(max_sleep: Duration) -> Self {
        DeadlineTimer { sleep: None, max_sleep }
    }

    /// Waits for some work until a deadline.
    async fn wait<T>(&mut self, deadline: Instant, work: impl Future<Output = T>) -> Result<T, DeadlineElapsed> {
        let mut work = pin!(work);
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(done));
            }
            let first = || deadline.min(instant_after(self.max_sleep));
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(first())));
            if sleep.deadline() > deadline {
                sleep.as_mut().reset(deadline);
            }
            while sleep.as_mut().poll(context).is_ready() {
                if Instant::now() >= deadline {
                    return Poll::Ready(Err(DeadlineElapsed));
                }
                sleep.as_mut().reset(deadline);
            }
            Poll::Pending
        })
        .await
    }
}

impl ResponseBody {
    /// Reads the next bytes. Returns `None` at the end of the body.
    async fn read(&mut self) -> Result<Option<Bytes>, ProviderError> {
        let deadline = self.event_deadline.map_or(self.byte_deadline, |event| self.byte_deadline.min(event));
        let deadline = deadline.min(self.answer_deadline);
        let read = self.timer.wait(deadline, self.response.chunk()).await;
        let read = read.map_err(|DeadlineElapsed| match self.bytes_read {
            0 => no_answer(&self.endpoint),
            _ if deadline == self.answer_deadline => {
                let message = format!("the answer was not complete after {:?}", self.timeouts.total);
                ProviderError::new(ProviderErrorKind::Timeout, message).with_retry(RetryAdvice::Never)
            }
            _ if deadline < self.byte_deadline => ProviderError::new(
                ProviderErrorKind::Timeout,
                format_args!("{} sends nothing but keep-alives", self.endpoint),
            ),
            _ => {
                let message = format!("the answer stalled for {:?}", self.timeouts.idle);
                ProviderError::new(ProviderErrorKind::Timeout, message)
            }
        })?;
        let Some(bytes) = read.map_err(|error| {
            ProviderError::new(
                ProviderErrorKind::Connection,
                format_args!("the answer was cut off: {}", root_cause(&error)),
            )
        })?
        else {
            return Ok(None);
        };
        self.byte_deadline = instant_after(self.timeouts.idle);
        self.bytes_read += bytes.len();
        if self.bytes_read > self.max_bytes {
            return Err(ProviderError::unreadable(format_args!("the answer has more than {} bytes", self.max_bytes)));
        }
        Ok(Some(bytes))
    }

    /// Reads the first bytes, up to the first that are not white space.
    async fn read_to_content(&mut self) -> Result<Bytes, ProviderError> {
        let first = self.read().await?.ok_or_else(ProviderError::truncated)?;
        if !content_start(&first).is_empty() {
            return Ok(first);
        }
        let mut bytes = Vec::from(first);
        loop {
            let more = self.read().await?.ok_or_else(ProviderError::truncated)?;
            bytes.extend_from_slice(&more);
            if !content_start(&more).is_empty() {
                return Ok(bytes.into());
            }
        }
    }

    /// Appends the rest of the body.
    async fn read_rest(&mut self, bytes: &mut Vec<u8>) -> Result<(), ProviderError> {
        while let Some(more) = self.read().await? {
            bytes.extend_from_slice(&more);
        }
        Ok(())
    }

    /// Reads the body of an error, up to a small limit of time and size: the status alone says enough.
    async fn read_error(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.event_deadline = Some(instant_after(ERROR_BODY_TIMEOUT));
        while let Ok(Some(more)) = self.read().await {
            bytes.extend_from_slice(&more);
            if bytes.len() >= MAX_ERROR_BODY_BYTES {
                bytes.truncate(MAX_ERROR_BODY_BYTES);
                break;
            }
        }
        bytes
    }

    /// Reads the rest of the body after the answer, so that the connection can be reused. A server that keeps sending is
    /// given up on.
    async fn drain(&mut self) {
        self.event_deadline = Some(instant_after(DRAIN_TIMEOUT));
        while let Ok(Some(_)) = self.read().await {}
    }

    fn looks_like_html(&self, bytes: &[u8]) -> bool {
        self.content_type.contains("html") || bytes.trim_ascii_start().starts_with(b"<")
    }

    /// Returns the headers that are recorded with an answer: rate limits and the id of the request.
    fn reported_headers(&self) -> BTreeMap<String, String> {
        let is_reported =
            |name: &str| name.contains("ratelimit") || matches!(name, "request-id" | "x-request-id" | "retry-after");
        let mut reported = BTreeMap::new();
        for (name, value) in self.response.headers().iter().filter(|(name, _)| is_reported(name.as_str())) {
            reported.extend(value.to_str().ok().map(|value| (name.to_string(), value.to_owned())));
        }
        reported
    }
}

/// Returns a URL without its user name, password and query, which may be secret.
fn endpoint(base: &Url) -> String {
    let mut shown = base.clone();
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.set_query(None);
    shown.as_str().trim_end_matches('/').to_owned()
}

/// Returns true if a URL is on this machine.
pub(crate) fn is_local(base: &Url) -> bool {
    let host = base.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns true if a header or a parameter of this name may hold a secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let parts =
        ["auth", "bearer", "code", "cookie", "cred", "jwt", "key", "pass", "pwd", "secret", "session", "sig", "token"];
    parts.iter().any(|part| name.contains(part))
}

/// Skips the byte order mark and the white space before the content of a body.
fn content_start(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes).trim_ascii_start()
}

fn no_answer(endpoint: &str) -> ProviderError {
    ProviderError::new(ProviderErrorKind::Timeout, format_args!("{endpoint} accepts the request and does not answer"))
}

/// Parses the time after which a server wants to be asked again: in seconds, in milliseconds, or as a date.
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

/// Returns the innermost error behind this one.
///
/// The innermost error says what happened; those around it repeat the URL, which may hold secrets.
fn root_cause(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

/// Parses a base URL.
pub(crate) fn parse_base_url(text: &str, example: &str) -> Result<Url, ProviderError> {
    let invalid = || {
        // A URL may hold a password, and a key in its query.
        let shown = text.split('@').next_back().unwrap_or_default();
        let shown = shown.split(['?', '#']).next().unwrap_or_default();
        ProviderError::new(
            ProviderErrorKind::Setup,
            format_args!("wanted a base URL such as `{example}`, found `{shown}`"),
        )
        .with_hint("it begins with http:// or https://")
    };
    let url = Url::parse(text.trim()).map_err(|_| invalid())?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() { Ok(url) } else { Err(invalid()) }
}
