//! Servers that are reached by HTTP, with bounds on all that they send.
//!
//! The client of the library reads a body that is no stream to its end, also one without an end, so this is one of our own.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use rath::Secrets;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, ServerJsonRpcMessage};
use rmcp::service::ClientLifecycleMode;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, SseError, StreamableHttpClient, StreamableHttpClientTransportConfig,
    StreamableHttpError, StreamableHttpPostResponse,
};
use secrecy::ExposeSecret;
use sse_stream::{Sse, SseStream};

use crate::config::HttpServer;
use crate::connection::{Connection, may_be_older, newer_or_older};
use crate::error::{Error, ErrorKind, Result};
use crate::event_limit::EventLimit;
use crate::limits::Limits;
use crate::message;
use crate::stdio::Diagnostics;

/// The time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of the body of an error.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// The bytes of it that are shown.
const MAX_SHOWN_BYTES: usize = 200;
/// The shortest time after which a server can ask for its stream to be opened again: 0 would be a loop.
const MIN_RETRY_MILLIS: u64 = 1_000;
/// The longest such time.
const MAX_RETRY_MILLIS: u64 = 60_000;
/// The end of a connection whose session the server has forgotten, as it does when it is started anew.
const SESSION_FORGOTTEN: &str = "it does not know the session any more";

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// Opens a connection.
pub(crate) async fn connect(server: &HttpServer, limits: &Limits, secrets: &Secrets) -> Result<Connection> {
    let deadline = tokio::time::Instant::now() + limits.start;
    match connect_with(server, limits, secrets, (newer_or_older(), deadline)).await {
        Err(error) if may_be_older(&error) => {
            connect_with(server, limits, secrets, (ClientLifecycleMode::Initialize, deadline)).await
        }
        result => result,
    }
}

async fn connect_with(
    server: &HttpServer,
    limits: &Limits,
    secrets: &Secrets,
    (mode, deadline): (ClientLifecycleMode, tokio::time::Instant),
) -> Result<Connection> {
    let diagnostics = Arc::new(Diagnostics::new(secrets.clone()));
    let client =
        BoundedClient { client: client(server)?, max_bytes: limits.message_bytes, diagnostics: diagnostics.clone() };
    let mut headers = HashMap::new();
    for (name, value) in &server.headers {
        let invalid = || Error::new(ErrorKind::Config, format_args!("the header `{name}` is not valid"));
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| invalid())?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?, value);
    }
    let config = StreamableHttpClientTransportConfig::with_uri(server.url.expose_secret())
        .custom_headers(headers)
        .max_sse_event_size(limits.message_bytes)
        // A session that the server has forgotten ends the connection: a new one is a new start, which is noted.
        .reinit_on_expired_session(false);
    let transport = StreamableHttpClientTransport::with_client(client, config);
    let connection = Connection::agree(transport, diagnostics, None, Vec::new(), (mode, deadline)).await;
    connection.map_err(|error| Error::new(error.kind(), format_args!("{} at {}", error.message(), server.host())))
}

fn client(server: &HttpServer) -> Result<reqwest::Client> {
    // Fails if the program has chosen another one, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirect could carry the headers to another host.
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("rath/", env!("CARGO_PKG_VERSION")));
    // A proxy cannot reach this machine's loopback.
    let builder = if server.is_loopback() { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| Error::new(ErrorKind::Start, "no HTTP client").because(error))
}

/// An HTTP client that reads no more than a number of bytes of a message.
#[derive(Clone)]
struct BoundedClient {
    client: reqwest::Client,
    max_bytes: usize,
    diagnostics: Arc<Diagnostics>,
}

pub(crate) type HttpError = StreamableHttpError<reqwest::Error>;

impl BoundedClient {
    fn request(
        &self,
        method: Method,
        uri: &str,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> RequestBuilder {
        let mut request = self.client.request(method, uri).header(ACCEPT, format!("{EVENTS}, {JSON}"));
        if let Some(session) = session {
            request = request.header(SESSION_ID, session);
        }
        headers.into_iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    /// Returns the events of a body.
    fn events(&self, response: Response) -> BoxStream<'static, Result<Sse, SseError>> {
        let limit = EventLimit::new(self.max_bytes);
        let chunks = stream::try_unfold((response, limit), async |(mut response, mut limit)| {
            let Some(chunk) = response.chunk().await.map_err(|error| std::io::Error::other(error.without_url()))?
            else {
                return Ok(None);
            };
            limit.add(&chunk)?;
            Ok::<_, std::io::Error>(Some((chunk, (response, limit))))
        });
        let events = SseStream::from_bytes_stream(chunks);
        events.map(|event| event.map(checked)).boxed()
    }

    /// Returns the answer to a request whose status is no success: an error of the protocol in its body, or the status itself.
    async fn refused(
        &self,
        message: &ClientJsonRpcMessage,
        has_session: bool,
        response: Response,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let status = response.status();
        let challenge =
            response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(match challenge {
                Some(challenge) => StreamableHttpError::AuthRequired(AuthRequiredError::new(
                    self.diagnostics.one_line(&challenge, 500),
                )),
                None => status_error(status),
            });
        }
        let body = read_body(response, MAX_ERROR_BYTES).await.unwrap_or_default();
        let error = match serde_json::from_slice(&body) {
            Ok(ServerJsonRpcMessage::Error(error)) => Some(error),
            _ => None,
        };
        // Many servers answer 400 in the place of 404. Only the error tells.
        if has_session
            && status == StatusCode::BAD_REQUEST
            && error.as_ref().is_some_and(|error| is_about_session(&error.error))
        {
            return Err(self.session_forgotten());
        }
        if let ClientJsonRpcMessage::Request(request) = message {
            let is_discovery = matches!(request.request, ClientRequest::DiscoverRequest(_));
            // A server of an older version does not know the request, and is asked in the older way.
            if is_discovery && !has_session && status.is_client_error() {
                let unknown = || ErrorData::invalid_request(format!("HTTP {status}"), None);
                let error = error.map_or_else(unknown, |error| error.error);
                let answer = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
                return Ok(StreamableHttpPostResponse::Json(answer, None));
            }
        }
        match error {
            Some(error) => {
                let answer = answer_to(message, ServerJsonRpcMessage::Error(error))?;
                Ok(StreamableHttpPostResponse::Json(answer, None))
            }
            None => Err(status_error(status)),
        }
    }

    /// Notes that the connection has ended, so that the next use opens a new one.
    fn session_forgotten(&self) -> HttpError {
        self.diagnostics.set_end(SESSION_FORGOTTEN);
        StreamableHttpError::SessionExpired
    }
}

impl StreamableHttpClient for BoundedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let request = self.request(Method::POST, &uri, session_id.as_deref(), custom_headers);
        let request = request.header(CONTENT_TYPE, JSON).body(serde_json::to_vec(&message)?);
        let response = request.send().await.map_err(client_error)?;
        let status = response.status();
        let wants_answer = matches!(message, ClientJsonRpcMessage::Request(_));
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return match wants_answer {
                true => Err(no_answer()),
                false => Ok(StreamableHttpPostResponse::Accepted),
            };
        }
        if status == StatusCode::NOT_FOUND && session_id.is_some() {
            return Err(self.session_forgotten());
        }
        if !status.is_success() {
            return self.refused(&message, session_id.is_some(), response).await;
        }
        let session = response.headers().get(SESSION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let media_type = media_type(&response);
        if media_type == EVENTS {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response), session));
        }
        let body = read_body(response, self.max_bytes).await?;
        match message::read(&body) {
            Ok(answer) => Ok(StreamableHttpPostResponse::Json(answer_to(&message, answer)?, session)),
            // A notification has no answer.
            Err(_) if !wants_answer => Ok(StreamableHttpPostResponse::Accepted),
            Err(error) if media_type == JSON => {
                let problem = error.problem.clone();
                let answer = error.answer().ok_or(StreamableHttpError::UnexpectedServerResponse(problem.into()))?;
                Ok(StreamableHttpPostResponse::Json(answer, session))
            }
            Err(_) => {
                let media_type = self.diagnostics.one_line(&media_type, MAX_SHOWN_BYTES);
                Err(StreamableHttpError::UnexpectedContentType(Some(media_type)))
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        let request = self.request(Method::DELETE, &uri, Some(&session_id), custom_headers);
        // Many servers do not support it; the session ends by itself then.
        request.send().await.map(drop).map_err(client_error)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        let mut request = self.request(Method::GET, &uri, session_id.as_deref(), custom_headers);
        if let Some(id) = last_event_id {
            request = request.header(LAST_EVENT_ID, id);
        }
        let response = request.send().await.map_err(client_error)?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status if !status.is_success() => Err(status_error(status)),
            _ if media_type(&response) != EVENTS => Err(StreamableHttpError::ServerDoesNotSupportSse),
            _ => Ok(self.events(response)),
        }
    }
}

/// Returns the body of the answer to a message: an error is about the request, also if its id is another one. Fails for anything else
/// that is not the answer to the request, which would wait for its time limit.
fn answer_to(message: &ClientJsonRpcMessage, answer: ServerJsonRpcMessage) -> Result<ServerJsonRpcMessage, HttpError> {
    let ClientJsonRpcMessage::Request(request) = message else { return Ok(answer) };
    match answer {
        ServerJsonRpcMessage::Error(error) => Ok(ServerJsonRpcMessage::error(error.error, Some(request.id.clone()))),
        ServerJsonRpcMessage::Response(response) if response.id != request.id => Err(no_answer()),
        ServerJsonRpcMessage::Response(_) => Ok(answer),
        ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => Err(no_answer()),
    }
}

/// Returns the error for a response to a request that holds no answer to it.
fn no_answer() -> HttpError {
    StreamableHttpError::UnexpectedServerResponse("its response holds no answer to the request".into())
}

/// Returns true for the error of a server that does not know the session, in the words of the servers that are in use.
fn is_about_session(error: &ErrorData) -> bool {
    /// The most bytes between the word `session` and the problem.
    const MAX_DISTANCE: usize = 24;
    let text = error.message.to_ascii_lowercase();
    let is_near = |(at, word): (usize, &str)| {
        let start = text.floor_char_boundary(at.saturating_sub(MAX_DISTANCE));
        let end = text.ceil_char_boundary((at + word.len() + MAX_DISTANCE).min(text.len()));
        let near = &text[start..end];
        ["not found", "expired", "invalid", "no valid", "unknown"].iter().any(|problem| near.contains(problem))
    };
    [-32600, -32001, -32000].contains(&error.code.0) && text.match_indices("session").any(is_near)
}

/// Returns an event that the library can read: it would drop another one, and its request would wait.
fn checked(mut event: Sse) -> Sse {
    event.retry = event.retry.map(|retry| retry.clamp(MIN_RETRY_MILLIS, MAX_RETRY_MILLIS));
    event.data = event.data.and_then(|data| match message::read(data.as_bytes()) {
        Ok(_) => Some(data),
        Err(error) => serde_json::to_string(&error.answer()?).ok(),
    });
    event
}

/// Describes an error to a person: its own text names parts of the library.
pub(crate) fn describe(error: &HttpError) -> String {
    match error {
        StreamableHttpError::Client(error) => {
            let sources = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
            let cause = sources.last().map(ToString::to_string).unwrap_or_default();
            let problem = if error.is_connect() { "it cannot be reached" } else { "the connection is broken" };
            format!("{problem}: {cause}")
        }
        StreamableHttpError::HttpStatus(error) => format!("it answers HTTP {}", error.status),
        StreamableHttpError::AuthRequired(error) => {
            format!("it asks for authorization: {}", error.www_authenticate_header)
        }
        StreamableHttpError::UnexpectedServerResponse(problem) => problem.to_string(),
        StreamableHttpError::UnexpectedContentType(Some(kind)) => format!("its answer is not JSON but `{kind}`"),
        StreamableHttpError::UnexpectedContentType(None) => "its answer has no type".to_owned(),
        StreamableHttpError::Deserialize(error) => format!("its answer is not valid: {error}"),
        StreamableHttpError::SessionExpired => SESSION_FORGOTTEN.to_owned(),
        StreamableHttpError::TransportChannelClosed => "the connection is closed".to_owned(),
        error => error.to_string(),
    }
}

fn status_error(status: StatusCode) -> HttpError {
    StreamableHttpError::HttpStatus(HttpStatusError::new(status.as_u16(), None))
}

/// Returns an error without the address, which may contain a secret.
fn client_error(error: reqwest::Error) -> HttpError {
    StreamableHttpError::Client(error.without_url())
}

fn media_type(response: &Response) -> String {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Reads a body of up to so many bytes.
async fn read_body(mut response: Response, max_bytes: usize) -> Result<Bytes, HttpError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(client_error)? {
        if body.len() + chunk.len() > max_bytes {
            let message = format!("it sent a message of more than {max_bytes} bytes");
            return Err(StreamableHttpError::UnexpectedServerResponse(Cow::Owned(message)));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}
