//! Sandboxes on an [OpenSandbox](https://github.com/alibaba/OpenSandbox) server: a container for each, reached over HTTP.
//!
//! ```no_run
//! use rath_opensandbox::{OpenSandbox, OpenSandboxServer};
//! use rath_sandbox::{Command, Sandbox};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> rath_sandbox::Result<()> {
//! let server = OpenSandboxServer::from_env(); // OPEN_SANDBOX_DOMAIN and OPEN_SANDBOX_API_KEY
//! let sandbox = Sandbox::new(OpenSandbox::image("python:3.13").memory("1Gi").no_network().on(&server));
//! sandbox.write("hello.py", b"print('hello')\n").await?;
//! assert_eq!(sandbox.run(&Command::shell("python3 hello.py")).await?.stdout.text(), "hello\n");
//! sandbox.close().await
//! # }
//! ```
//!
//! # Guarantees
//!
//! - **A command runs once.** If the connection breaks, the outcome of the command is unknown, and the error says so. Only requests that
//!   change nothing are sent again.
//! - **A sandbox has a name that rath chose**, which is part of its URI: so it is found again by a later process, and a lost answer to its
//!   creation leaves none behind.
//! - **What a program created is removed** when its last handle to the sandbox and those of its forks is dropped, or by
//!   [`Sandbox::close`], which waits for it; unless [`keep`](OpenSandbox::keep) is set. A sandbox that was found by its name is removed by
//!   [`Sandbox::close`] alone, and only if commands ran or files were changed in it through these handles: a look removes nothing. If the
//!   program is killed, the server removes the sandbox when its [time](OpenSandbox::timeout) is over, which is renewed as long as there
//!   is a handle.
//! - **The key goes to the server alone**, never to a sandbox, and is in no URI, error and log.
//!
//! # Limits
//!
//! - The image needs a shell with the usual programs (those of busybox are enough). They make it possible to send output byte for byte,
//!   and to find the processes that a command leaves behind.
//! - Processes of a command are found by a mark in their environment, `RATH_COMMAND`. One that was started without it, as by `env -i`, is
//!   left until the sandbox is removed.
//! - A program that exits with a status of 129 to 192 is taken for one that was ended by a signal.
//! - Files have no marks, since each command can set their times: a look at all files reads them.
//!
//! This crate needs Unix; elsewhere it is empty.
#![cfg(unix)]

mod code;
mod command;
mod files;
mod frames;
mod group;
mod http;
mod remote;
mod server;
mod settings;
mod time;
mod upload;

pub use self::code::{CodeError, CodeOutput, Interpreter};
pub use self::server::OpenSandboxServer;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rath_sandbox::{
    ByteRange, Capabilities, Command, Digest, DirEntry, ForkStart, Isolation, Network, Output, OutputCapture, Result,
    Sandbox, SandboxBackend, Sink,
};

use self::group::SandboxGroup;
use self::remote::Remote;
use self::settings::{Access, NetworkPolicy, Origin, Settings, new_name};

/// A sandbox on an OpenSandbox server.
///
/// It is created at the first use. Clones are handles to the same sandbox.
///
/// ```
/// use rath_opensandbox::OpenSandbox;
/// use rath_sandbox::Sandbox;
///
/// let sandbox = Sandbox::new(OpenSandbox::image("python:3.13").memory("1Gi").allow_host("pypi.org"));
/// let (image, settings) = sandbox.uri().split_once('?').expect("settings");
/// assert_eq!(image, "opensandbox:python:3.13");
/// assert!(settings.starts_with("name=") && settings.ends_with("&memory=1Gi&network=off&host=pypi.org"));
/// ```
#[derive(Clone)]
pub struct OpenSandbox {
    settings: Settings,
    uri: String,
    server: OpenSandboxServer,
    remote: Arc<Mutex<Option<Arc<Remote>>>>,
    group: Arc<SandboxGroup>,
}

impl OpenSandbox {
    /// Creates a sandbox from an image.
    pub fn image(image: impl Into<String>) -> Self {
        OpenSandbox::from_settings(Settings::new(image.into(), Origin::New(new_name())))
    }

    /// Uses a sandbox that was created otherwise, by the id that the server gave it. It is never removed, and its time not renewed.
    pub fn attach(id: impl Into<String>) -> Self {
        OpenSandbox::from_settings(Settings::new(String::new(), Origin::Foreign(id.into())))
    }

    pub(crate) fn from_settings(settings: Settings) -> Self {
        let uri = settings.uri();
        OpenSandbox {
            settings,
            uri,
            server: OpenSandboxServer::from_env(),
            remote: Arc::default(),
            group: Arc::default(),
        }
    }

    /// Sets the server, instead of the one that the environment names.
    pub fn on(mut self, server: &OpenSandboxServer) -> Self {
        self.server = server.clone();
        self.remote = Arc::default();
        self
    }

    /// Sets the program that runs in the sandbox as long as it exists, with its arguments. Without it, one that does nothing.
    pub fn entrypoint(self, words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.with(|settings| settings.entrypoint = words.into_iter().map(Into::into).collect())
    }

    /// Adds an environment variable. The variable is not part of the URI, since it may be a secret.
    pub fn env(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|settings| _ = settings.env.insert(name.into(), value.into()))
    }

    /// Limits the processors, in the words of the server: `2`, `500m`. Without any limit it is one processor and 1 GiB of memory.
    pub fn cpu(self, limit: impl Into<String>) -> Self {
        self.with(|settings| _ = settings.limits.insert("cpu", limit.into()))
    }

    /// Limits memory, in the words of the server: `512Mi`, `4Gi`.
    pub fn memory(self, limit: impl Into<String>) -> Self {
        self.with(|settings| _ = settings.limits.insert("memory", limit.into()))
    }

    /// Takes the network away. Without this call the sandbox has the network that the server gives it.
    pub fn no_network(self) -> Self {
        self.with(|settings| {
            if settings.network == NetworkPolicy::OfServer {
                settings.network = NetworkPolicy::Only(Vec::new());
            }
        })
    }

    /// Allows a host, such as `example.com` or `*.example.com`. All others are forbidden.
    pub fn allow_host(self, host: impl Into<String>) -> Self {
        self.with(|settings| match &mut settings.network {
            NetworkPolicy::Only(hosts) => hosts.push(host.into()),
            NetworkPolicy::OfServer => settings.network = NetworkPolicy::Only(vec![host.into()]),
        })
    }

    /// Sets the workspace: an absolute path in the sandbox, or one that begins with `~/`. The default is `/workspace`.
    pub fn workdir(self, path: impl Into<String>) -> Self {
        self.with(|settings| settings.workdir = path.into())
    }

    /// Sets the time after which the server removes the sandbox if it is not used: a minute at least, and half an hour by default. It is
    /// renewed as long as there is a handle.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|settings| settings.timeout = timeout)
    }

    /// Limits the output of each command, in bytes of both streams together. The default is 256 MiB.
    pub fn output(self, bytes: u64) -> Self {
        self.with(|settings| settings.max_output_bytes = bytes)
    }

    /// Keeps the sandbox when the last handle is dropped, until its time is over.
    pub fn keep(self) -> Self {
        self.with(|settings| settings.keep = true)
    }

    /// Reaches the sandbox through the server, instead of at an address of its own.
    pub fn through_server(self) -> Self {
        self.with(|settings| settings.access = Access::ThroughServer)
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self.uri = self.settings.uri();
        self.remote = Arc::default();
        self
    }

    /// Returns the id that the server gave the sandbox. Creates the sandbox if need be.
    pub async fn id(&self) -> Result<String> {
        self.remote()?.id().await
    }

    /// Pauses the sandbox. The next use resumes it.
    pub async fn pause(&self) -> Result<()> {
        self.remote()?.pause().await
    }

    /// Gives the sandbox its whole time again. This happens by itself as long as there is a handle; with [`attach`](Self::attach) it does
    /// not.
    pub async fn renew(&self) -> Result<()> {
        self.remote()?.renew().await
    }

    /// Starts an interpreter in the sandbox, if its image has one for the language.
    pub async fn interpreter(&self, language: &str) -> Result<Interpreter> {
        Interpreter::start(&self.remote()?, language).await
    }

    fn remote(&self) -> Result<Arc<Remote>> {
        let mut remote = self.remote.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(remote) = &*remote {
            return Ok(remote.clone());
        }
        self.settings.check()?;
        let opened = Remote::new(self.server.open()?, self.settings.clone(), self.group.clone());
        Ok(remote.insert(opened).clone())
    }
}

impl SandboxBackend for OpenSandbox {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn run(&self, command: &Command, sink: &mut Sink<'_>) -> Result<Output> {
        let remote = self.remote()?;
        let running = command::start_command(&remote, command)?;
        running.finish(OutputCapture::new(&remote.output_files), self.settings.max_output_bytes, sink).await
    }

    async fn read(&self, path: &str, range: ByteRange) -> Result<Vec<u8>> {
        let (remote, path) = (self.remote()?, path.to_owned());
        remote.clone().perform(async move { files::read(&remote, &path, range).await }).await
    }

    async fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let (remote, path, bytes) = (self.remote()?, path.to_owned(), bytes.to_owned());
        remote.clone().perform(async move { files::write(&remote, &path, &bytes).await }).await
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let (remote, path) = (self.remote()?, path.to_owned());
        remote.clone().perform(async move { files::remove(&remote, &path).await }).await
    }

    async fn list(&self, path: &str) -> Result<Vec<DirEntry>> {
        let (remote, path) = (self.remote()?, path.to_owned());
        remote.clone().perform(async move { files::list(&remote, &path).await }).await
    }

    async fn stat(&self, path: &str) -> Result<Option<DirEntry>> {
        let (remote, path) = (self.remote()?, path.to_owned());
        remote.clone().perform(async move { files::stat(&remote, &path).await }).await
    }

    async fn spool_path(&self, digest: Digest) -> Result<Option<PathBuf>> {
        self.remote()?.output_files.find(digest).await
    }

    async fn capabilities(&self) -> Result<Capabilities> {
        self.remote()?.probe().await?;
        let (network, hosts) = match &self.settings.network {
            NetworkPolicy::OfServer => (Network::On, Vec::new()),
            NetworkPolicy::Only(hosts) if hosts.is_empty() => (Network::Off, Vec::new()),
            NetworkPolicy::Only(hosts) => (Network::Hosts, hosts.clone()),
        };
        let mut capabilities = Capabilities::default();
        (capabilities.isolation, capabilities.network, capabilities.hosts) = (Isolation::Remote, network, hosts);
        capabilities.streaming = true;
        Ok(capabilities)
    }

    fn for_fork(&self, fork: &str, start: ForkStart) -> Option<Sandbox> {
        let name = match &self.settings.origin {
            Origin::New(name) | Origin::Known(name) => name,
            // Its image is not known.
            Origin::Foreign(_) => return None,
        };
        let name = Digest::from_content(format!("{name} {fork}").as_bytes()).to_string()[..name.len()].to_owned();
        let mut settings = self.settings.clone();
        settings.origin = match start {
            ForkStart::New => Origin::New(name),
            ForkStart::Existing => Origin::Known(name),
        };
        let (uri, server, group) = (settings.uri(), self.server.clone(), self.group.clone());
        Some(Sandbox::new(OpenSandbox { settings, uri, server, remote: Arc::default(), group }))
    }

    async fn close(&self) -> Result<()> {
        self.group.close().await
    }
}
