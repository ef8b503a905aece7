//! The OpenSandbox server: its address and key, and the sandboxes on it.

mod sandboxes;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rath_sandbox::{Error, ErrorKind, Registry, Result, Sandbox};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use secrecy::{ExposeSecret, SecretString};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

pub(crate) use self::sandboxes::{CreateFailure, Execd, SandboxInfo, State};
use super::OpenSandbox;
use super::http::{Clients, NoReply, Reply, Request};
use super::settings::{SCHEME, Settings};

/// The environment variable for the address.
const ADDRESS_VARIABLE: &str = "OPEN_SANDBOX_DOMAIN";
/// The environment variable for the key.
const KEY_VARIABLE: &str = "OPEN_SANDBOX_API_KEY";
/// The header that carries the key.
const KEY_HEADER: HeaderName = HeaderName::from_static("open-sandbox-api-key");

/// An OpenSandbox server: its address, and the key for it. Neither is ever part of a URI or a record.
///
/// ```
/// use rath_opensandbox::{OpenSandbox, OpenSandboxServer};
/// use rath_sandbox::{Registry, Sandbox};
///
/// let server = OpenSandboxServer::new("http://127.0.0.1:8080").key("secret");
/// let sandbox = Sandbox::new(OpenSandbox::image("python:3.13").on(&server));
///
/// // The kinds of sandbox that a program can open by URI.
/// let kinds = server.add_to(Registry::new());
/// assert!(kinds.knows(sandbox.uri()));
/// ```
#[derive(Clone)]
pub struct OpenSandboxServer(Arc<ServerSettings>);

struct ServerSettings {
    /// The address, as it was given; none if it is not set.
    address: Option<String>,
    key: Option<SecretString>,
    live: Mutex<Option<Arc<Server>>>,
}

/// An open server.
pub(crate) struct Server {
    base: Url,
    key: Option<SecretString>,
    pub(crate) clients: Clients,
    /// Requests are made here, so that those which have to be made last longer than the caller's runtime: ending a command whose call
    /// was dropped, and removing a sandbox that is not used any more.
    runtime: OnceLock<Runtime>,
}

impl OpenSandboxServer {
    /// Creates a server with an address such as `http://127.0.0.1:8080`. Without a scheme it is `http`.
    pub fn new(address: impl Into<String>) -> Self {
        OpenSandboxServer::with(Some(address.into()), None)
    }

    /// Creates a server with the address and the key in the environment: `OPEN_SANDBOX_DOMAIN` and `OPEN_SANDBOX_API_KEY`. If there is no
    /// address, the first use of a sandbox fails.
    pub fn from_env() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        OpenSandboxServer::with(variable(ADDRESS_VARIABLE), variable(KEY_VARIABLE))
    }

    /// Sets the key.
    pub fn key(self, key: impl Into<String>) -> Self {
        OpenSandboxServer::with(self.0.address.clone(), Some(key.into()))
    }

    /// Adds the kind `opensandbox:` to a registry.
    pub fn add_to(&self, registry: Registry) -> Registry {
        let server = self.clone();
        registry
            .with(SCHEME, move |rest| Ok(Sandbox::new(OpenSandbox::from_settings(Settings::parse(rest)?).on(&server))))
    }

    fn with(address: Option<String>, key: Option<String>) -> Self {
        let key = key.map(SecretString::from);
        OpenSandboxServer(Arc::new(ServerSettings { address, key, live: Mutex::default() }))
    }

    /// Returns the open server. All sandboxes on it share one.
    pub(crate) fn open(&self) -> Result<Arc<Server>> {
        let mut live = self.0.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*live {
            return Ok(server.clone());
        }
        let Some(address) = &self.0.address else {
            return Err(Error::new(ErrorKind::Config, "no OpenSandbox server is set").with_hint(format!(
                "set {ADDRESS_VARIABLE} to its address, such as `http://127.0.0.1:8080`, and {KEY_VARIABLE}"
            )));
        };
        let server = Server {
            base: parse_address(address)?,
            key: self.0.key.clone(),
            clients: Clients::new(self.0.key.clone())?,
            runtime: OnceLock::new(),
        };
        Ok(live.insert(Arc::new(server)).clone())
    }
}

/// Prints nothing of the address, which may hold a password, and nothing of the key.
impl fmt::Debug for OpenSandboxServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenSandboxServer")
    }
}

/// Parses the address of a server.
fn parse_address(address: &str) -> Result<Url> {
    let text = address.trim();
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&text).ok().filter(|url| {
        let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        matches!(url.scheme(), "http" | "https") && url.has_host() && url.fragment().is_none() && is_plain
    });
    url.ok_or_else(|| {
        Error::new(ErrorKind::Config, "the address of the OpenSandbox server cannot be used").with_hint(format!(
            "{ADDRESS_VARIABLE} is an address such as `http://127.0.0.1:8080`, without a user, a password and a query"
        ))
    })
}

impl Server {
    /// Starts work that goes on when the caller does not wait for it.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<JoinHandle<T>> {
        if self.runtime.get().is_none() {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("rath-opensandbox")
                .enable_all()
                .build()
                .map_err(|error| Error::new(ErrorKind::Unavailable, "cannot start a thread").because(error))?;
            if let Err(second) = self.runtime.set(runtime) {
                second.shutdown_background();
            }
        }
        match self.runtime.get() {
            Some(runtime) => Ok(runtime.spawn(work)),
            None => Err(Error::new(ErrorKind::Unavailable, "cannot start a thread")),
        }
    }

    async fn send(&self, request: Request) -> Result<Reply> {
        self.clients.send(request).await.map_err(|no_reply| self.unreachable(&no_reply))
    }

    async fn read(&self, request: impl Fn() -> Request) -> Result<Reply> {
        let mut headers = HeaderMap::new();
        self.add_key(&mut headers)?;
        let request = || {
            let mut request = request();
            request.headers.clone_from(&headers);
            request
        };
        self.clients.read(request).await.map_err(|no_reply| self.unreachable(&no_reply))
    }

    fn request(&self, method: Method, path: &[&str]) -> Result<Request> {
        let mut request = Request::new(method, self.url(path)?);
        self.add_key(&mut request.headers)?;
        Ok(request)
    }

    fn add_key(&self, headers: &mut HeaderMap) -> Result<()> {
        if let Some(key) = &self.key {
            let value = HeaderValue::from_str(key.expose_secret());
            let message = "the key for OpenSandbox has characters that a header cannot hold";
            let mut value = value.map_err(|_| Error::new(ErrorKind::Config, message))?;
            value.set_sensitive(true);
            headers.insert(KEY_HEADER, value);
        }
        Ok(())
    }

    fn url(&self, path: &[&str]) -> Result<Url> {
        let mut url = self.base.clone();
        let segments = url.path_segments_mut();
        let mut segments =
            segments.map_err(|()| Error::new(ErrorKind::Config, "the address of the server has no path"))?;
        segments.pop_if_empty().push("v1").extend(path);
        drop(segments);
        Ok(url)
    }

    fn refused(&self, what: impl fmt::Display, reply: &Reply) -> Error {
        let error = Error::new(
            ErrorKind::Unavailable,
            format_args!("{what}: the OpenSandbox server answered with {}", reply.describe()),
        );
        match reply.status {
            401 | 403 => error.with_hint(format!("check the key in {KEY_VARIABLE}")),
            404 => error.with_hint(format!("check {ADDRESS_VARIABLE}")),
            _ => error,
        }
    }

    fn unreachable(&self, no_reply: &NoReply) -> Error {
        let server = self.base.host_str().unwrap_or_default();
        let message = format!("the OpenSandbox server {server} cannot be asked: {}", no_reply.reason);
        Error::new(ErrorKind::Unavailable, message)
            .with_hint(format!("check {ADDRESS_VARIABLE}, and that the server runs"))
    }
}

/// Stops the threads without waiting for them: the last handle may be dropped by one of them.
impl Drop for Server {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_no_secrets() {
        for address in ["127.0.0.1:8080", "http://a", "https://a/b/"] {
            assert!(parse_address(address).is_ok(), "{address}");
        }
        for address in ["", "ftp://a", "http://u:p@a", "http://a?key=1", "http://a#b", "http://"] {
            let error = parse_address(address).expect_err(address);
            assert!(!error.to_string().contains("u:p"), "{error}");
        }
    }
}
