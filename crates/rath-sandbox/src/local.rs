//! Ordinary processes of the user, in a directory of this machine.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::files::Digest;

use super::beneath::Root;
use super::capabilities::{Capabilities, Isolation, Network};
use super::environment::environment;
use super::limits::{Enforced, Limits, Namespace};
use super::options::{Reading, Writing};
use super::process::{Errand, Spool, Start};
use super::{Command, Entry, Part, Ran, Sandbox, SandboxBackend, Sink};
use crate::error::Error;
#[cfg(target_os = "linux")]
use crate::error::ErrorKind;
use crate::error::Result;

/// Commands as ordinary processes of the user, in a directory of this machine.
///
/// They can do whatever the user can. What they do not get is the program's environment: `PATH`, `HOME`, `USER`, `LOGNAME`,
/// `SHELL`, `LANG`, `LANGUAGE`, `LC_*`, `TERM` and `TZ` pass, and what is added here. When a command ends, its time is over or its call is given
/// up, everything that it started is killed, daemons included.
///
/// Nothing is opened before it is used.
///
/// ```
/// use rath_sandbox::{Local, Sandbox};
///
/// let sandbox = Sandbox::new(Local::new("./").file_size(1 << 30));
/// assert_eq!(sandbox.uri(), "local:./?file_size=1g");
/// ```
pub struct Local {
    directory: PathBuf,
    uri: String,
    limits: Limits,
    env: Vec<(String, String)>,
    output: u64,
    spool: Arc<Spool>,
    opened: Mutex<Option<Arc<Opened>>>,
}

struct Opened {
    root: Root,
    enforced: Enforced,
}

/// How much a command may print, unless told otherwise.
pub(super) const OUTPUT: u64 = 256 * 1024 * 1024;

/// What the URI of one may ask for.
const OPTIONS: &[&str] = &["memory", "processes", "file_size", "cpu_time", "output"];

impl Local {
    /// Commands in a directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let local = Local {
            directory: directory.into(),
            uri: String::new(),
            limits: Limits::default(),
            env: Vec::new(),
            output: OUTPUT,
            spool: Arc::new(Spool::new(None)),
            opened: Mutex::new(None),
        };
        local.named()
    }

    /// What stands after `local:`.
    pub(super) fn read(rest: &str) -> Result<Self> {
        let reading = Reading::new("local", rest, OPTIONS)?;
        let mut local = Local::new(&reading.directory);
        local.limits = reading.limits()?;
        local.output = reading.bytes("output")?.unwrap_or(OUTPUT);
        Ok(local.named())
    }

    /// At most this many bytes of memory.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.limits.memory = Some(bytes);
        self.named()
    }

    /// At most this many processes and threads at the same time.
    pub fn processes(mut self, most: u64) -> Self {
        self.limits.processes = Some(most);
        self.named()
    }

    /// No file that is written may be larger.
    pub fn file_size(mut self, bytes: u64) -> Self {
        self.limits.file_size = Some(bytes);
        self.named()
    }

    /// No process may use more processor time.
    pub fn cpu_time(mut self, time: Duration) -> Self {
        self.limits.cpu_time = Some(time);
        self.named()
    }

    /// At most this many bytes may be printed by one command, on both streams together; 256 MiB unless told otherwise.
    pub fn output(mut self, bytes: u64) -> Self {
        self.output = bytes;
        self.named()
    }

    /// Adds to what commands find in their environment. It is not in the URI, since it may be a secret.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Keeps what commands print and nobody can hold in this folder, instead of one that is removed with the sandbox.
    pub fn spool(mut self, folder: impl Into<PathBuf>) -> Self {
        self.spool = Arc::new(Spool::new(Some(folder.into())));
        self
    }

    fn named(mut self) -> Self {
        let mut writing = Writing::new("local", &self.directory);
        writing.limits(&self.limits);
        writing.option("output", Some(self.output).filter(|output| *output != OUTPUT));
        self.uri = writing.finish();
        self
    }

    fn opened(&self) -> Result<Arc<Opened>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        #[cfg(target_os = "linux")]
        if rustix::fs::access(super::process::CHILDREN, rustix::fs::Access::READ_OK).is_err() {
            let why = "this machine does not say which processes a command leaves behind";
            return Err(
                Error::new(ErrorKind::Unavailable, why).with_hint("`/proc` has to be mounted, with `children` in it")
            );
        }
        let fresh = Opened { root: Root::open(&self.directory)?, enforced: self.limits.enforce(Namespace::Shared)? };
        Ok(opened.insert(Arc::new(fresh)).clone())
    }
}

impl SandboxBackend for Local {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn run(&self, command: &Command, sink: &mut Sink<'_>) -> Result<Ran> {
        let opened = self.opened()?;
        let errand = Errand {
            command,
            env: environment(std::env::vars_os(), self.env.iter().chain(&command.env)),
            start: Start::In(opened.root.directory(&command.cwd)?),
            rlimits: opened.enforced.rlimits.clone(),
            groups: opened.enforced.groups(),
            world: None,
            output: self.output,
            spool: &self.spool,
        };
        errand.run(sink).await
    }

    async fn read(&self, path: &str, part: Part) -> Result<Vec<u8>> {
        self.opened()?.root.read(path, part)
    }

    async fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.opened()?.root.write(path, bytes)
    }

    async fn list(&self, path: &str) -> Result<Vec<Entry>> {
        self.opened()?.root.list(path)
    }

    async fn look(&self, path: &str) -> Result<Option<Entry>> {
        self.opened()?.root.look(path)
    }

    fn spooled(&self, digest: Digest) -> Option<PathBuf> {
        self.spool.find(digest)
    }

    async fn capabilities(&self) -> Result<Capabilities> {
        let opened = self.opened()?;
        Ok(Capabilities {
            isolation: Isolation::None,
            network: Network::On,
            memory: opened.enforced.memory,
            processes: opened.enforced.processes,
            file_size: opened.enforced.file_size,
            cpu_time: opened.enforced.cpu_time,
            streaming: true,
        })
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.directory)
    }

    fn over(&self, directory: &Path) -> Option<Sandbox> {
        let other = Local {
            directory: directory.to_owned(),
            uri: String::new(),
            limits: self.limits.clone(),
            env: self.env.clone(),
            output: self.output,
            spool: self.spool.clone(),
            opened: Mutex::new(None),
        };
        Some(Sandbox::new(other.named()))
    }
}
