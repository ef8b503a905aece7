//! The server by HTTP, for programs of this machine that have its secret.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::handler::Handler;
use super::serve::MAX_MESSAGE_BYTES;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::signals;

/// The variable with the secret of the server.
const TOKEN_VARIABLE: &str = "RATH_MCP_TOKEN";
/// The fewest bytes of a secret that a user chooses.
const MIN_TOKEN_BYTES: usize = 16;
/// The number of connections that have not shown the secret. When there is another one, the oldest of them is closed.
const MAX_UNPROVEN_CONNECTIONS: usize = 64;
/// The number of requests with the secret that are read and answered at the same time.
const MAX_REQUESTS: usize = 64;
/// The time after which a connection is closed: a client that never reads keeps it no longer.
const CONNECTION_TIME: Duration = Duration::from_secs(120);
/// The time in which the head of a request has to arrive.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The time in which a request is read and answered, or given up.
const REQUEST_TIME: Duration = Duration::from_secs(90);
/// The most bytes of the head of a request.
const MAX_HEAD_BYTES: usize = 64 * 1024;

type Service = StreamableHttpService<Handler, NeverSessionManager>;
type Body = BoxBody<Bytes, Infallible>;

/// The state of a server that its connections share.
struct Server {
    /// The hosts that a request can name.
    hosts: Vec<String>,
    service: Service,
    requests: Arc<Semaphore>,
    token: Token,
}

/// Serves clients at an address of this machine until the program is asked to stop.
pub(super) async fn serve(address: SocketAddr, handler: Handler) -> CommandResult {
    let token = Token::choose()?;
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    let (listener, address) = bound.await.map_err(|error: std::io::Error| {
        Failure::new(format!("cannot listen at {address}: {error}"), "choose another port, or 0 for any")
    })?;
    let server = Arc::new(Server {
        hosts: hosts(address),
        service: service(handler, address),
        requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
        token,
    });
    output::message!("serving at http://{address}/mcp{}", server.token.path());
    let accept = async {
        let mut unproven = UnprovenConnections::default();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Too many open files, for example.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let closing = unproven.add().await;
            tokio::spawn(serve_connection(stream, closing, server.clone()));
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

/// The connections that have not shown the secret, oldest first.
///
/// Every program of the machine can open connections and send nothing. They close each other's, and none of a client that has shown
/// the secret.
#[derive(Default)]
struct UnprovenConnections(VecDeque<mpsc::Sender<()>>);

impl UnprovenConnections {
    /// Adds a connection, for which the oldest is closed if there are too many. Returns what asks the new one to close. It is dropped
    /// when the connection has shown the secret or has ended.
    async fn add(&mut self) -> mpsc::Receiver<()> {
        self.0.retain(|connection| !connection.is_closed());
        if self.0.len() >= MAX_UNPROVEN_CONNECTIONS
            && let Some(oldest) = self.0.pop_front()
        {
            let _ = oldest.try_send(());
            oldest.closed().await;
        }
        let (close, closing) = mpsc::channel(1);
        self.0.push_back(close);
        closing
    }
}

/// Serves a connection, which has one request.
async fn serve_connection(stream: TcpStream, mut closing: mpsc::Receiver<()>, server: Arc<Server>) {
    let (show, shown) = oneshot::channel();
    let show = Mutex::new(Some(show));
    let answer = |request: Request<Incoming>| {
        let admitted = server.admit(&request).map(|permit| {
            let show = show.lock().unwrap_or_else(PoisonError::into_inner).take();
            _ = show.map(|show| show.send(permit));
        });
        let service = server.service.clone();
        async move {
            if let Err(status) = admitted {
                return Ok::<_, Infallible>(refusal(status));
            }
            let answered = tokio::time::timeout(REQUEST_TIME, service.handle(request)).await;
            Ok(answered.unwrap_or_else(|_| refusal(StatusCode::REQUEST_TIMEOUT)))
        }
    };
    let mut http = http1::Builder::new();
    // A connection that waits for a second request would be in the way of others, or be closed just when it is used.
    http.keep_alive(false);
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(MAX_HEAD_BYTES);
    let serving = http.serve_connection(TokioIo::new(stream), service_fn(answer));
    // A connection that fails is the client's concern.
    let mut serving = pin!(tokio::time::timeout(CONNECTION_TIME, serving));
    let permit = tokio::select! {
        // First what has arrived: a client that sends its request at once is answered, however many others connect.
        biased;
        _ = &mut serving => return,
        permit = shown => permit,
        _ = closing.recv() => return,
    };
    drop(closing);
    let _ = serving.await;
    drop(permit);
}

impl Server {
    /// Returns the permit for a request that has the secret and names this server, or the status of the refusal.
    fn admit<B>(&self, request: &Request<B>) -> Result<OwnedSemaphorePermit, StatusCode> {
        self.token.check(request)?;
        check_names(request, &self.hosts)?;
        self.requests.clone().try_acquire_owned().map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
    }
}

/// Fails if a request names two hosts or two origins, or another host in its first line. All else about names is checked by rmcp.
fn check_names<B>(request: &Request<B>, hosts: &[String]) -> Result<(), StatusCode> {
    if [HOST, ORIGIN].iter().any(|name| request.headers().get_all(name).iter().nth(1).is_some()) {
        return Err(StatusCode::BAD_REQUEST);
    }
    let is_known = |name: &str| hosts.iter().any(|host| host.eq_ignore_ascii_case(name));
    match request.uri().authority() {
        Some(authority) if !is_known(authority.as_str()) => Err(StatusCode::FORBIDDEN),
        _ => Ok(()),
    }
}

fn refusal(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"refused")).boxed());
    *response.status_mut() = status;
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
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
    fn a_refusal_says_how_to_show_the_secret() {
        let shown = |status| refusal(status).headers().get(WWW_AUTHENTICATE).is_some_and(|it| it == "Bearer");
        assert!(shown(StatusCode::UNAUTHORIZED) && !shown(StatusCode::NOT_FOUND));
    }

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
    fn a_request_names_one_host_and_one_origin() {
        let hosts = hosts("127.0.0.1:8".parse().expect("an address"));
        for (target, headers, expected) in [
            ("/mcp", &[][..], Ok(())),
            ("/mcp", &["Host", "Origin"], Ok(())),
            ("/mcp", &["Host", "Host"], Err(StatusCode::BAD_REQUEST)),
            ("/mcp", &["Host", "Origin", "Origin"], Err(StatusCode::BAD_REQUEST)),
            ("http://127.0.0.1:8/mcp", &["Host"], Ok(())),
            ("http://LocalHost:8/mcp", &["Host"], Ok(())),
            ("http://[::1]:8/mcp", &["Host"], Ok(())),
            ("http://example.com/mcp", &["Host"], Err(StatusCode::FORBIDDEN)),
            ("http://127.0.0.1/mcp", &["Host"], Err(StatusCode::FORBIDDEN)),
            ("http://127.0.0.1:9/mcp", &["Host"], Err(StatusCode::FORBIDDEN)),
            ("http://a@127.0.0.1:8/mcp", &["Host"], Err(StatusCode::FORBIDDEN)),
            ("http://127.0.0.1:8@example.com/mcp", &["Host"], Err(StatusCode::FORBIDDEN)),
        ] {
            let request =
                headers.iter().fold(Request::builder().uri(target), |request, name| request.header(*name, "a"));
            let request = request.body(()).expect("a request");
            assert_eq!(check_names(&request, &hosts), expected, "{target} {headers:?}");
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
