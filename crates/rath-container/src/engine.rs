//! Requests to podman or docker, by the API that they share.
//!
//! Each request has a connection of its own, a limit on the time, and a limit on the bytes that are read: an engine that answers slowly,
//! endlessly or not at all is an error.

use std::future::Future;
use std::io::{Error as IoError, Result as IoResult};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bollard::errors::Error as ApiError;
use bollard::models::{ContainerCreateBody, ContainerSummary, ImageInspect};
use bollard::query_parameters::{CreateContainerOptions, ListContainersOptions, RemoveContainerOptions};
use bollard::{API_DEFAULT_VERSION, BollardRequest, ClientVersion, Docker};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue};
use hyper_util::rt::TokioIo;
use rath_sandbox::backend::run_blocking;
use rath_sandbox::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

/// The most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// The time in which an engine that is looked for has to answer.
const FIND_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of attempts to list containers, and the pause between two.
const LIST_ATTEMPTS: usize = 5;
const LIST_INTERVAL: Duration = Duration::from_millis(50);
/// The most characters of an engine's message that are repeated.
const MAX_MESSAGE_CHARS: usize = 400;

/// A connection to podman or docker.
#[derive(Debug)]
pub(crate) struct Engine {
    docker: Docker,
    socket: PathBuf,
    timeout: Duration,
    pub(crate) facts: EngineFacts,
}

/// The facts about an engine that decide how a container is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineFacts {
    pub(crate) is_podman: bool,
    /// True if the engine is a process of this user, who is not root.
    pub(crate) is_rootless: bool,
}

/// The parts of an answer's head that tell what answers.
#[derive(Clone, Debug, Default)]
struct ServerHead {
    is_podman: bool,
    api_version: Option<(usize, usize)>,
}

impl Engine {
    /// Connects to the engine at a socket, and asks it what it is. Its own report about itself would take podman a second.
    pub(crate) async fn connect(socket: PathBuf, timeout: Duration) -> Result<Self> {
        let head = Arc::new(Mutex::new(ServerHead::default()));
        let connect = |version: &ClientVersion| {
            let (socket, head) = (socket.clone(), head.clone());
            let transport = move |request: BollardRequest| send(socket.clone(), head.clone(), request);
            let seconds = timeout.as_secs().saturating_add(1);
            Docker::connect_with_custom_transport(transport, Some("http://engine"), seconds, version).map_err(|error| {
                Error::new(ErrorKind::Unavailable, "cannot set up requests to the engine").because(error)
            })
        };
        let docker = connect(API_DEFAULT_VERSION)?;
        let facts = EngineFacts::default();
        let mut engine = Engine { docker, socket: socket.clone(), timeout, facts };
        engine.bounded("reach the engine", engine.docker.ping()).await?;
        let ServerHead { is_podman, api_version } = head.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (major_version, minor_version) = api_version.ok_or_else(|| {
            let message = format!("{}: wanted the version of its API", engine.answered());
            Error::new(ErrorKind::Unavailable, message).with_hint("it has to be the socket of podman or docker")
        })?;
        let own = (API_DEFAULT_VERSION.major_version, API_DEFAULT_VERSION.minor_version);
        if (major_version, minor_version) < own {
            engine.docker = connect(&ClientVersion { major_version, minor_version })?;
        }
        let own = rustix::process::geteuid();
        let is_rootless = run_blocking(move || {
            Ok(!own.is_root() && std::fs::metadata(&socket).is_ok_and(|it| it.uid() == own.as_raw()))
        });
        engine.facts = EngineFacts { is_podman, is_rootless: is_rootless.await? };
        Ok(engine)
    }

    /// Returns the name of the program that people type.
    pub(crate) fn program(&self) -> &'static str {
        if self.facts.is_podman { "podman" } else { "docker" }
    }

    /// Returns an image. It is never fetched: the error says how the user fetches it.
    pub(crate) async fn image(&self, name: &str) -> Result<ImageInspect> {
        let program = self.program();
        self.request("look at the image", self.docker.inspect_image(name)).await?.map_err(|error| match error {
            ApiError::DockerResponseServerError { status_code: 404, .. } => {
                Error::new(ErrorKind::Unavailable, format_args!("{program} does not have the image `{name}`"))
                    .with_hint(format!("`{program} pull {name}` fetches it"))
            }
            error => self.failed("look at the image", error),
        })
    }

    /// Returns the containers with a label in these states.
    ///
    /// While one of them changes its state, podman gives the state a name that docker does not have, and the answer cannot be read. After
    /// some attempts there is no list.
    pub(crate) async fn list(&self, label: &str, states: &[&str]) -> Result<Option<Vec<ContainerSummary>>> {
        let states = states.iter().map(|state| (*state).to_owned()).collect();
        let filters = Some([("label".to_owned(), vec![label.to_owned()]), ("status".to_owned(), states)].into());
        let options = ListContainersOptions { all: true, filters, ..ListContainersOptions::default() };
        for _ in 0..LIST_ATTEMPTS {
            match self.request("list containers", self.docker.list_containers(Some(options.clone()))).await? {
                Err(ApiError::JsonDataError { .. }) => tokio::time::sleep(LIST_INTERVAL).await,
                listed => return listed.map(Some).map_err(|error| self.failed("list containers", error)),
            }
        }
        Ok(None)
    }

    /// Creates a container, and returns its id.
    pub(crate) async fn create(&self, name: String, body: ContainerCreateBody) -> Result<String> {
        let options = CreateContainerOptions { name: Some(name), ..CreateContainerOptions::default() };
        let created = self.bounded("create a container", self.docker.create_container(Some(options), body)).await?;
        if !is_container_id(&created.id) {
            let message = format!("{}: wanted the id of a container", self.answered());
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        // Docker creates a container without a limit that it cannot enforce, and says so.
        if let Some(warning) = created.warnings.iter().find(|it| it.contains("discarded")) {
            let message = format!("the engine cannot enforce a limit on this machine: {}", one_line(warning));
            self.remove(&created.id).await?;
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Ok(created.id)
    }

    /// Starts a container.
    pub(crate) async fn start(&self, id: &str) -> Result<()> {
        self.bounded("start the container", self.docker.start_container(id, None)).await
    }

    /// Removes a container, also while it runs. One that is gone is no error.
    pub(crate) async fn remove(&self, id: &str) -> Result<()> {
        let options = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
        match self.request("remove a container", self.docker.remove_container(id, Some(options))).await? {
            // Another process may be removing it.
            Ok(()) | Err(ApiError::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(()),
            Err(error) => Err(self.failed("remove a container", error)),
        }
    }

    async fn bounded<T>(&self, what: &str, work: impl Future<Output = Result<T, ApiError>>) -> Result<T> {
        self.request(what, work).await?.map_err(|error| self.failed(what, error))
    }

    /// Waits for an answer as long as the engine is given.
    async fn request<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<Result<T, ApiError>> {
        tokio::time::timeout(self.timeout, work).await.map_err(|_| {
            let message = format!("cannot {what}: {} does not answer", self.socket.display());
            Error::new(ErrorKind::Unavailable, message)
                .with_hint("see if the engine runs: `podman info`, `docker info`")
        })
    }

    fn answered(&self) -> String {
        format!("cannot understand the answer of {}", self.socket.display())
    }

    /// Returns the error for a request that failed. The engine's own words are shortened.
    fn failed(&self, what: &str, error: ApiError) -> Error {
        let program = self.program();
        match error {
            ApiError::DockerResponseServerError { status_code, message } => {
                let message = format!("cannot {what}: {program} answered {status_code}: {}", one_line(&message));
                Error::new(ErrorKind::Unavailable, message)
            }
            ApiError::IOError { err } => self.unreachable(what, &err),
            ApiError::HyperResponseError { err } if err.is_closed() || err.is_incomplete_message() => {
                self.unreachable(what, &"it closed the connection")
            }
            error => {
                let error = one_line(&error.to_string());
                Error::new(ErrorKind::Unavailable, format_args!("cannot {what}: {}: {error}", self.answered()))
            }
        }
    }

    fn unreachable(&self, what: &str, why: &dyn std::fmt::Display) -> Error {
        let why = one_line(&why.to_string());
        let message = format!("cannot {what}: {} cannot be reached: {why}", self.socket.display());
        Error::new(ErrorKind::Unavailable, message).with_hint("`systemctl --user start podman.socket` starts podman's")
    }
}

/// Returns the name and the socket of the engine, if it answers.
pub(crate) async fn find() -> Result<String> {
    let find = || find_socket(|name| std::env::var(name).ok(), |path| path.exists());
    let engine = Engine::connect(run_blocking(find).await?, FIND_TIMEOUT).await?;
    Ok(format!("{} at {}", engine.program(), engine.socket.display()))
}

/// Returns the socket of the engine: the one that `DOCKER_HOST` names, or the first that is there. Blocks.
pub(crate) fn find_socket(
    variable: impl Fn(&str) -> Option<String>,
    exists: impl Fn(&Path) -> bool,
) -> Result<PathBuf> {
    if let Some(host) = variable("DOCKER_HOST").filter(|host| !host.is_empty()) {
        return match host.strip_prefix("unix://") {
            Some(path) if path.starts_with('/') => Ok(path.into()),
            _ => {
                // It may hold a password.
                let scheme: String = host.chars().take_while(char::is_ascii_alphanumeric).take(16).collect();
                let message = format!(
                    "wanted a socket such as `unix:///run/podman/podman.sock` in DOCKER_HOST, found `{scheme}:..`"
                );
                Err(Error::new(ErrorKind::Unavailable, message)
                    .with_hint("containers work on files of this machine: their engine has to run here"))
            }
        };
    }
    let own = variable("XDG_RUNTIME_DIR").filter(|directory| directory.starts_with('/'));
    let own = own.map(|directory| Path::new(&directory).join("podman/podman.sock"));
    let shared = ["/run/podman/podman.sock", "/var/run/docker.sock"].map(PathBuf::from);
    own.into_iter().chain(shared).find(|path| exists(path)).ok_or_else(|| {
        Error::new(ErrorKind::Unavailable, "found no socket of podman or docker").with_hint(
            "`systemctl --user start podman.socket` starts podman's; `DOCKER_HOST=unix://PATH` names another",
        )
    })
}

/// Returns true for the id of a container: it is a part of a path in requests.
pub(crate) fn is_container_id(id: &str) -> bool {
    (12..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns a text of others on one line of bounded length.
fn one_line(text: &str) -> String {
    let line: String =
        text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MAX_MESSAGE_CHARS).collect();
    let words: Vec<_> = line.split_whitespace().collect();
    words.join(" ")
}

/// Sends a request on a connection of its own, and notes what answers.
async fn send(
    socket: PathBuf,
    head: Arc<Mutex<ServerHead>>,
    request: BollardRequest,
) -> Result<hyper::Response<hyper::body::Incoming>, ApiError> {
    let stream = UnixStream::connect(&socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(BoundedStream::new(stream))).await?;
    // It ends with the answer, or when the sender and the answer are dropped.
    tokio::spawn(async move { _ = connection.await });
    let (mut parts, body) = request.into_parts();
    // A server wants the path alone.
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse()?;
    parts.headers.insert(HOST, HeaderValue::from_static("localhost"));
    let answer = sender.send_request(BollardRequest::from_parts(parts, body)).await?;
    let found = ServerHead::parse(|name| answer.headers().get(name)?.to_str().ok());
    *head.lock().unwrap_or_else(PoisonError::into_inner) = found;
    Ok(answer)
}

impl ServerHead {
    fn parse<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Self {
        let version = header("api-version").and_then(|version| version.split_once('.'));
        ServerHead {
            is_podman: header("libpod-api-version").is_some(),
            api_version: version.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?))),
        }
    }
}

/// A connection from which a bounded number of bytes can be read.
struct BoundedStream {
    stream: UnixStream,
    remaining: usize,
}

impl BoundedStream {
    fn new(stream: UnixStream) -> Self {
        BoundedStream { stream, remaining: MAX_ANSWER_BYTES }
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<IoResult<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let read = buffer.filled().len() - before;
        match self.remaining.checked_sub(read) {
            Some(remaining) => self.remaining = remaining,
            None => return Poll::Ready(Err(IoError::other("the answer is too long"))),
        }
        result
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<IoResult<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_looked_for_where_engines_have_it() {
        let own = "/run/user/7/podman/podman.sock";
        let (podman, docker) = ("/run/podman/podman.sock", "/var/run/docker.sock");
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], std::result::Result<&'a str, &'a str>);
        let rows: [Row<'_>; 8] = [
            (&[("DOCKER_HOST", "unix:///x/y.sock")], &[docker], Ok("/x/y.sock")),
            (&[("DOCKER_HOST", "tcp://me:secret@host:1")], &[docker], Err("found `tcp:..`")),
            (&[("DOCKER_HOST", "unix://relative")], &[docker], Err("found `unix:..`")),
            (&[("DOCKER_HOST", "")], &[docker], Ok(docker)),
            (&[("XDG_RUNTIME_DIR", "/run/user/7")], &[own, podman, docker], Ok(own)),
            (&[("XDG_RUNTIME_DIR", "/run/user/7")], &[podman, docker], Ok(podman)),
            (&[("XDG_RUNTIME_DIR", "relative")], &[docker], Ok(docker)),
            (&[], &[], Err("found no socket of podman or docker")),
        ];
        for (variables, sockets, expected) in rows {
            let variable =
                |name: &str| variables.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned());
            let found = find_socket(variable, |path| sockets.iter().any(|socket| path == Path::new(socket)));
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, Path::new(expected)),
                (Err(error), Err(expected)) => {
                    assert!(error.message().contains(expected) && error.hint().is_some(), "{error}");
                    assert!(!format!("{error:?}").contains("secret"));
                }
                (found, expected) => panic!("{variables:?}: wanted {expected:?}, found {found:?}"),
            }
        }
    }

    #[test]
    fn the_words_of_an_engine_are_one_short_line() {
        assert_eq!(one_line("a\n\u{1b}[2Jb\t\tc"), "a [2Jb c");
        assert!(one_line(&"x".repeat(10_000)).len() <= MAX_MESSAGE_CHARS);
        for id in ["", "../x", "abc", &"g".repeat(64), &"a".repeat(65)] {
            assert!(!is_container_id(id), "{id}");
        }
        assert!(is_container_id(&"0a".repeat(32)));
    }
}
