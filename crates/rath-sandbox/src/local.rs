//! The `local` sandbox: ordinary processes of the user, in a directory of this machine.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::blocking::{CancelOnDrop, run_blocking};
use super::capabilities::{Capabilities, Isolation, Network};
use super::environment::environment;
use super::limits::{ActiveLimits, Limits, PidScope};
use super::process::{SpawnRequest, Spool, WorkingDir};
use super::root::Root;
use super::uri::{UriOptions, UriWriter, absolute};
use super::{ByteRange, Command, DirEntry, Output, Process, Sandbox, SandboxBackend, Sink};
use crate::error::Result;
#[cfg(target_os = "linux")]
use crate::error::{Error, ErrorKind};
use crate::files::Digest;

/// A sandbox that runs commands as ordinary processes of the user.
///
/// A command can do anything that the user can. It does not inherit the environment of the program, which may hold
/// secrets: only `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `LANG`, `LANGUAGE`, `LC_*`, `TERM` and `TZ` are passed on,
/// and the variables that are added here or by the command. When a command ends, reaches its timeout or is dropped, all
/// processes that it started are killed, daemons included.
///
/// The directory is opened at the first use. A relative path is relative to the working directory of the process now: the URI is absolute.
///
/// ```
/// use rath_sandbox::{Local, Sandbox};
///
/// let sandbox = Sandbox::new(Local::new("/srv/app").file_size(1 << 30));
/// assert_eq!(sandbox.uri(), "local:/srv/app?file_size=1g");
/// ```
pub struct Local {
    directory: PathBuf,
    uri: String,
    limits: Limits,
    env: Vec<(String, String)>,
    max_output_bytes: u64,
    spool: Arc<Spool>,
    /// The directory for temporary files.
    staging: Arc<Mutex<Option<PathBuf>>>,
    opened: Arc<Mutex<Option<Arc<OpenLocal>>>>,
}

/// The parts of a local sandbox that exist from its first use on.
struct OpenLocal {
    root: Root,
    limits: ActiveLimits,
}

/// The default limit on the output of a command, in bytes.
pub const DEFAULT_MAX_OUTPUT_BYTES: u64 = 256 * 1024 * 1024;

/// The options of a `local:` URI.
const OPTIONS: &[&str] = &["memory", "processes", "file_size", "cpu_time", "output"];

impl Local {
    /// Creates a sandbox in a directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let local = Local {
            directory: absolute(directory),
            uri: String::new(),
            limits: Limits::default(),
            env: Vec::new(),
            max_output_bytes: DEFAULT_MAX_OUTPUT_BYTES,
            spool: Arc::new(Spool::new(None)),
            staging: Arc::default(),
            opened: Arc::default(),
        };
        local.with_uri()
    }

    /// Parses the part of a URI after `local:`.
    pub(super) fn from_uri_rest(rest: &str) -> Result<Self> {
        let options = UriOptions::parse("local", rest, OPTIONS)?;
        let mut local = Local::new(&options.directory);
        local.limits = options.limits()?;
        local.max_output_bytes = options.bytes("output")?.unwrap_or(DEFAULT_MAX_OUTPUT_BYTES);
        Ok(local.with_uri())
    }

    /// Limits memory, in bytes.
    ///
    /// A control group limits all processes of the sandbox together. A machine without one limits the data of each process;
    /// [`Capabilities::memory`] tells which.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.limits.memory = Some(bytes);
        self.with_uri()
    }

    /// Limits the number of processes and threads that exist at the same time.
    pub fn processes(mut self, max: u64) -> Self {
        self.limits.processes = Some(max);
        self.with_uri()
    }

    /// Limits the size of each file that is written, in bytes.
    pub fn file_size(mut self, bytes: u64) -> Self {
        self.limits.file_size = Some(bytes);
        self.with_uri()
    }

    /// Limits the processor time of each process.
    pub fn cpu_time(mut self, time: Duration) -> Self {
        self.limits.cpu_time = Some(time);
        self.with_uri()
    }

    /// Limits the output of each command, in bytes of both streams together. The default is 256 MiB.
    pub fn output(mut self, bytes: u64) -> Self {
        self.max_output_bytes = bytes;
        self.with_uri()
    }

    /// Adds an environment variable. The variable is not part of the URI, since it may be a secret.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Writes output that is too much for memory to this directory, instead of one that is removed with the sandbox.
    pub fn spool(mut self, directory: impl Into<PathBuf>) -> Self {
        self.spool = Arc::new(Spool::new(Some(directory.into())));
        self
    }

    /// Updates the URI after a setting has changed.
    fn with_uri(mut self) -> Self {
        let mut writer = UriWriter::new("local", &self.directory);
        writer.limits(&self.limits);
        writer.option("output", Some(self.max_output_bytes).filter(|bytes| *bytes != DEFAULT_MAX_OUTPUT_BYTES));
        self.uri = writer.finish();
        self
    }

    /// Runs work on the open sandbox in the blocking pool. The first call opens the sandbox.
    async fn with_open<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<OpenLocal>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (directory, limits, opened) = (self.directory.clone(), self.limits.clone(), self.opened.clone());
        run_blocking(move || work(&OpenLocal::get_or_open(&opened, &directory, &limits)?)).await
    }

    /// Returns the open sandbox and the directory that a command starts in.
    async fn open_for(&self, command: &Command) -> Result<(Arc<OpenLocal>, OwnedFd)> {
        let cwd = command.cwd.clone();
        self.with_open(move |open| Ok((open.clone(), open.root.open_directory(&cwd)?))).await
    }

    /// Returns the request to spawn a command.
    fn request<'a>(&self, open: &'a OpenLocal, cwd: OwnedFd, command: &'a Command) -> SpawnRequest<'a> {
        SpawnRequest {
            command,
            env: environment(std::env::vars_os(), self.env.iter().chain(&command.env)),
            cwd: WorkingDir::Open(cwd),
            rlimits: open.limits.rlimits.clone(),
            cgroups: open.limits.cgroups(),
            namespace: None,
            confinement: None,
            hosts: None,
            max_output_bytes: self.max_output_bytes,
            spool: self.spool.clone(),
        }
    }
}

impl OpenLocal {
    /// Opens the directory and sets up the limits, once.
    fn get_or_open(
        opened: &Mutex<Option<Arc<OpenLocal>>>,
        directory: &Path,
        limits: &Limits,
    ) -> Result<Arc<OpenLocal>> {
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        // The supervisor needs this list to find the processes that a command left behind.
        #[cfg(target_os = "linux")]
        if rustix::fs::access(super::process::CHILDREN, rustix::fs::Access::READ_OK).is_err() {
            let message = "cannot find the processes that a command leaves behind on this machine";
            return Err(Error::new(ErrorKind::Unavailable, message)
                .with_hint("`/proc` has to be mounted, by a kernel with CONFIG_PROC_CHILDREN"));
        }
        let fresh = OpenLocal { root: Root::open(directory)?, limits: limits.enforce(PidScope::Host)? };
        Ok(opened.insert(Arc::new(fresh)).clone())
    }
}

impl SandboxBackend for Local {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn run(&self, command: &Command, sink: &mut Sink<'_>) -> Result<Output> {
        let (open, cwd) = self.open_for(command).await?;
        self.request(&open, cwd, command).run(sink).await
    }

    async fn start(&self, command: &Command) -> Result<Process> {
        let (open, cwd) = self.open_for(command).await?;
        self.request(&open, cwd, command).start(open.clone())
    }

    async fn read(&self, path: &str, range: ByteRange) -> Result<Vec<u8>> {
        let path = path.to_owned();
        self.with_open(move |open| open.root.read(&path, range)).await
    }

    async fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let (path, bytes, cancel) = (path.to_owned(), bytes.to_owned(), CancelOnDrop::default());
        let flag = cancel.flag();
        let staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.with_open(move |open| open.root.write_unless(&path, &bytes, &flag, staging.as_deref())).await
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let path = path.to_owned();
        self.with_open(move |open| open.root.remove(&path)).await
    }

    async fn list(&self, path: &str) -> Result<Vec<DirEntry>> {
        let path = path.to_owned();
        self.with_open(move |open| open.root.list(&path)).await
    }

    async fn stat(&self, path: &str) -> Result<Option<DirEntry>> {
        let path = path.to_owned();
        self.with_open(move |open| open.root.stat(&path)).await
    }

    async fn spool_path(&self, digest: Digest) -> Result<Option<PathBuf>> {
        let spool = self.spool.clone();
        run_blocking(move || Ok(spool.find(digest))).await
    }

    async fn capabilities(&self) -> Result<Capabilities> {
        let open = self.with_open(|open| Ok(open.clone())).await?;
        Ok(Capabilities {
            isolation: Isolation::None,
            network: Network::On,
            hosts: Vec::new(),
            writable: Vec::new(),
            landlock: false,
            memory: open.limits.memory,
            processes: open.limits.processes,
            file_size: open.limits.file_size,
            cpu_time: open.limits.cpu_time,
            streaming: true,
        })
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.directory)
    }

    fn stage_in(&self, directory: &Path) {
        *self.staging.lock().unwrap_or_else(PoisonError::into_inner) = Some(directory.to_owned());
    }

    fn with_directory(&self, directory: &Path) -> Option<Sandbox> {
        let other = Local {
            directory: directory.to_owned(),
            uri: String::new(),
            limits: self.limits.clone(),
            env: self.env.clone(),
            max_output_bytes: self.max_output_bytes,
            spool: self.spool.clone(),
            staging: self.staging.clone(),
            opened: Arc::default(),
        };
        Some(Sandbox::new(other.with_uri()))
    }
}
