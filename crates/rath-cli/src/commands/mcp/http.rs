//! The server by HTTP, for programs of this machine that have its secret.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::handler::Handler;
use super::serve::MAX_MESSAGE_BYTES;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::signals;

/// The variable with the secret of the server.
const TOKEN_VARIABLE: &str = "RATH_MCP_TOKEN";
/// The fewest bytes of a secret that a user chooses.
const MIN_TOKEN_BYTES: usize = 16;
/// The number of connections at the same time.
const MAX_CONNECTIONS: usize = 32;
/// The time after which a connection is closed: the client opens another one.
const CONNECTION_TIME: Duration = Duration::from_secs(120);
/// The time in which the head of a request has to arrive.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The time in which a request is read and answered, or given up.
const REQUEST_TIME: Duration = Duration::from_secs(90);
/// The most bytes of the head of a request.
const MAX_HEAD_BYTES: usize = 64 * 1024;

type Service = StreamableHttpService<Handler, NeverSessionManager>;
type Body = BoxBody<Bytes, Infallible>;

/// Serves clients at an address of this machine until the program is asked to stop.
pub(super) async fn serve(address: SocketAddr, handler: Handler) -> CommandResult {
    let token = Arc::new(Token::choose()?);
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    let (listener, address) = bound.await.map_err(|error: std::io::Error| {
        Failure::new(format!("cannot listen at {address}: {error}"), "choose another port, or 0 for any")
    })?;
    let service = service(handler, address);
    output::message!("serving at http://{address}/mcp{}", token.path());
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let accept = async {
        loop {
            let Ok(permit) = connections.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Too many open files, for example.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (service, token) = (service.clone(), token.clone());
            tokio::spawn(async move {
                let _permit = permit;
                serve_connection(stream, service, token).await;
            });
        }
    };
    tokio::select! {
        () = accept => {}
        () = signals::stop_requested() => {}
    }
    Ok(Exit::Success)
}

/// Returns the hosts of URLs by which a server at an address can be asked.
fn hosts(address: SocketAddr) -> Vec<String> {
    let own = match address.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let others = ["127.0.0.1", "localhost", "[::1]"].into_iter().filter(|name| *name != own);
    let names = others.chain([&*own]);
    // Clients leave out the port that an address without one means.
    let hosts = |name: &str| {
        let without_port = (address.port() == 80).then(|| name.to_owned());
        [format!("{name}:{}", address.port())].into_iter().chain(without_port)
    };
    names.flat_map(hosts).collect()
}

/// Returns the service. It keeps no state between requests, and accepts those that name this machine alone: a page in a browser
/// cannot make it answer under another name.
fn service(handler: Handler, address: SocketAddr) -> Service {
    let hosts = hosts(address);
    let origins: Vec<_> = hosts.iter().map(|host| format!("http://{host}")).collect();
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_allowed_hosts(hosts)
        .with_allowed_origins(origins)
        .enforce_origin_validation()
        .with_max_request_body_bytes(MAX_MESSAGE_BYTES);
    StreamableHttpService::new(move || Ok(handler.clone()), Arc::default(), config)
}

async fn serve_connection(stream: TcpStream, service: Service, token: Arc<Token>) {
    let answer = |request: Request<Incoming>| {
        let (service, token) = (service.clone(), token.clone());
        async move {
            if let Err(status) = token.check(&request) {
                return Ok::<_, Infallible>(refusal(status));
            }
            let answered = tokio::time::timeout(REQUEST_TIME, service.handle(request)).await;
            Ok(answered.unwrap_or_else(|_| refusal(StatusCode::REQUEST_TIMEOUT)))
        }
    };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(MAX_HEAD_BYTES);
    // A client that never reads keeps a connection no longer than this. One that fails is the client's concern.
    let serving = http.serve_connection(TokioIo::new(stream), service_fn(answer));
    let _ = tokio::time::timeout(CONNECTION_TIME, serving).await;
}

fn refusal(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"refused")).boxed());
    *response.status_mut() = status;
    // Who has not got the secret does not get to keep a connection.
    response.headers_mut().insert(hyper::header::CONNECTION, hyper::header::HeaderValue::from_static("close"));
    response
}

/// The secret of a server: every program of this machine can connect to it, of every user.
struct Token {
    text: String,
    /// True if the user chose it, so that it is not printed.
    is_chosen: bool,
}

impl Token {
    fn choose() -> Result<Self, Failure> {
        match std::env::var_os(TOKEN_VARIABLE) {
            Some(text) => {
                // A text that is not Unicode has a character that no secret can have.
                let text = text.to_string_lossy().into_owned();
                let wrong = |problem: String| {
                    let hint = "set it to a long random text such as `openssl rand -hex 16` prints, or not at all";
                    Err(Failure::new(format!("{TOKEN_VARIABLE} {problem}"), hint).with_exit(Exit::Usage))
                };
                // All others can be written in more than one way in a URL, or not at all in a header.
                if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)) {
                    return wrong("has a character other than `A-Z`, `a-z`, `0-9`, `-`, `.`, `_` and `~`".to_owned());
                }
                if text.len() < MIN_TOKEN_BYTES {
                    return wrong(format!("has fewer than {MIN_TOKEN_BYTES} characters"));
                }
                Ok(Token { text, is_chosen: true })
            }
            None => {
                let mut bytes = [0; 16];
                getrandom::fill(&mut bytes).map_err(|error| {
                    Failure::new(format!("there is no randomness for a secret: {error}"), "set RATH_MCP_TOKEN")
                })?;
                let text = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                Ok(Token { text, is_chosen: false })
            }
        }
    }

    /// Returns the end of the URL that is printed.
    fn path(&self) -> String {
        if self.is_chosen { format!("/${TOKEN_VARIABLE}") } else { format!("/{}", self.text) }
    }

    /// Fails unless a request has the secret, in its path or as `Authorization: Bearer`.
    fn check<B>(&self, request: &Request<B>) -> Result<(), StatusCode> {
        let path = request.uri().path();
        let given = match path.strip_prefix("/mcp") {
            Some("") => {
                let header = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
                header.and_then(|value| value.strip_prefix(b"Bearer ")).unwrap_or_default()
            }
            Some(rest) if rest.starts_with('/') => &rest.as_bytes()[1..],
            _ => return Err(StatusCode::NOT_FOUND),
        };
        if is_equal(given, self.text.as_bytes()) { Ok(()) } else { Err(StatusCode::UNAUTHORIZED) }
    }
}

/// Compares two texts in a time that does not depend on where they differ.
fn is_equal(given: &[u8], secret: &[u8]) -> bool {
    let differences = given.iter().zip(secret).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differences) == 0 && given.len() == secret.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_origins_have_no_port_at_port_80() {
        for (address, expected) in [
            ("127.0.0.1:8", "localhost:8 [::1]:8 127.0.0.1:8"),
            ("127.0.0.2:8", "127.0.0.1:8 localhost:8 [::1]:8 127.0.0.2:8"),
            ("[::1]:80", "127.0.0.1:80 127.0.0.1 localhost:80 localhost [::1]:80 [::1]"),
        ] {
            assert_eq!(hosts(address.parse().expect("an address")).join(" "), expected);
        }
    }

    #[test]
    fn a_request_needs_the_secret() {
        let token = Token { text: "correct horse battery".to_owned(), is_chosen: true };
        let secret_path = "/mcp/correct%20horse";
        for (path, header, expected) in [
            ("/mcp", Some("Bearer correct horse battery"), Ok(())),
            ("/mcp", Some("correct horse battery"), Err(StatusCode::UNAUTHORIZED)),
            ("/mcp", Some("Bearer correct horse batterx"), Err(StatusCode::UNAUTHORIZED)),
            ("/mcp", Some("Bearer correct horse battery2"), Err(StatusCode::UNAUTHORIZED)),
            ("/mcp", Some("Bearer "), Err(StatusCode::UNAUTHORIZED)),
            ("/mcp", None, Err(StatusCode::UNAUTHORIZED)),
            ("/mcp/", None, Err(StatusCode::UNAUTHORIZED)),
            (secret_path, None, Err(StatusCode::UNAUTHORIZED)),
            ("/mcpcorrect", None, Err(StatusCode::NOT_FOUND)),
            ("/", Some("Bearer correct horse battery"), Err(StatusCode::NOT_FOUND)),
        ] {
            let mut request = Request::builder().uri(path);
            if let Some(header) = header {
                request = request.header(AUTHORIZATION, header);
            }
            let request = request.body(()).expect("a request");
            assert_eq!(token.check(&request), expected, "{path} {header:?}");
        }
        let token = Token { text: "0123456789abcdef".to_owned(), is_chosen: false };
        let request = Request::builder().uri("/mcp/0123456789abcdef").body(()).expect("a request");
        assert_eq!(token.check(&request), Ok(()));
    }
}
