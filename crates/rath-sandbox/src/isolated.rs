//! Commands in a world of their own: this machine read-only, no network, nothing writable but the workspace.

#[cfg(target_os = "linux")]
mod filter;
#[cfg(target_os = "linux")]
mod view;
#[cfg(target_os = "linux")]
mod world;

#[cfg(target_os = "linux")]
pub(crate) use self::world::World;

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::files::Digest;

use super::beneath::Root;
use super::capabilities::{Capabilities, Host, Isolation, Network};
use super::environment::environment;
use super::limits::{Enforced, Limits, Namespace};
use super::local::OUTPUT;
use super::options::{Reading, Writing};
use super::process::{Errand, Spool, Start};
use super::{Command, Entry, Part, Ran, Sandbox, SandboxBackend, Sink};
use crate::error::{Error, ErrorKind, Result};

/// Commands in a world of their own, in a directory of this machine.
///
/// They see the machine read-only, without what is private to people and services, and can write in the workspace only;
/// `/tmp` and the home directory are empty and last as long as the command. They have no network but themselves, no
/// processes of others, no devices, no privileges, and no way to get any of it. The environment is as with
/// [`Local`](super::Local), and so is what happens to processes at the end.
///
/// All of this is done by the kernel; where it lacks a part, nothing runs, and the error says which part that is.
///
/// ```
/// use rath_sandbox::{Isolated, Sandbox};
///
/// let sandbox = Sandbox::new(Isolated::new("./").network().memory(1 << 30));
/// assert_eq!(sandbox.uri(), "isolated:./?network=on&memory=1g");
/// ```
#[derive(Debug)]
pub struct Isolated {
    asked: Asked,
    uri: String,
    spool: Arc<Spool>,
    opened: Mutex<Option<Arc<Opened>>>,
}

/// What is asked for.
#[derive(Clone, Debug)]
struct Asked {
    directory: PathBuf,
    /// Where commands see the directory, if not where it is.
    at: Option<PathBuf>,
    network: Network,
    host: Host,
    limits: Limits,
    hidden: Vec<PathBuf>,
    shown: Vec<PathBuf>,
    env: Vec<(String, String)>,
    output: u64,
}

struct Opened {
    root: Root,
    world: Arc<World>,
    enforced: Enforced,
    capabilities: OnceLock<Capabilities>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Opened").field(&self.root.path()).finish()
    }
}

/// How many processes and threads a command may have, unless told otherwise.
const PROCESSES: u64 = 1024;

/// What the URI of one may ask for.
const OPTIONS: &[&str] =
    &["network", "host", "memory", "processes", "file_size", "cpu_time", "output", "hide", "show", "at"];
const NETWORKS: [(&str, Network); 2] = [("off", Network::Off), ("on", Network::On)];
const HOSTS: [(&str, Host); 2] = [("read-only", Host::ReadOnly), ("hidden", Host::Hidden)];

impl Isolated {
    /// Commands in a directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let asked = Asked {
            directory: directory.into(),
            at: None,
            network: Network::Off,
            host: Host::ReadOnly,
            limits: Limits::default(),
            hidden: Vec::new(),
            shown: Vec::new(),
            env: Vec::new(),
            output: OUTPUT,
        };
        Isolated::asked(asked, Arc::new(Spool::new(None)))
    }

    fn asked(asked: Asked, spool: Arc<Spool>) -> Self {
        Isolated { asked, uri: String::new(), spool, opened: Mutex::new(None) }.named()
    }

    /// What stands after `isolated:`.
    pub(super) fn read(rest: &str) -> Result<Self> {
        let reading = Reading::new("isolated", rest, OPTIONS)?;
        let mut isolated = Isolated::new(&reading.directory);
        let asked = &mut isolated.asked;
        asked.network = reading.word("network", &NETWORKS)?.unwrap_or(Network::Off);
        asked.host = reading.word("host", &HOSTS)?.unwrap_or_default();
        asked.limits = reading.limits()?;
        asked.output = reading.bytes("output")?.unwrap_or(OUTPUT);
        asked.hidden = reading.all("hide").map(PathBuf::from).collect();
        asked.shown = reading.all("show").map(PathBuf::from).collect();
        asked.at = reading.all("at").last().map(PathBuf::from);
        Ok(isolated.named())
    }

    /// Lets commands have the network of this machine, with all that listens on it.
    pub fn network(mut self) -> Self {
        self.asked.network = Network::On;
        self.named()
    }

    /// At most this many bytes of memory.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.asked.limits.memory = Some(bytes);
        self.named()
    }

    /// At most this many processes and threads at the same time; 1024 unless told otherwise, where this machine can see to it.
    pub fn processes(mut self, most: u64) -> Self {
        self.asked.limits.processes = Some(most);
        self.named()
    }

    /// No file that is written may be larger.
    pub fn file_size(mut self, bytes: u64) -> Self {
        self.asked.limits.file_size = Some(bytes);
        self.named()
    }

    /// No process may use more processor time.
    pub fn cpu_time(mut self, time: Duration) -> Self {
        self.asked.limits.cpu_time = Some(time);
        self.named()
    }

    /// At most this many bytes may be printed by one command, on both streams together; 256 MiB unless told otherwise.
    pub fn output(mut self, bytes: u64) -> Self {
        self.asked.output = bytes;
        self.named()
    }

    /// Hides a file or a folder from commands. A relative path is one in the workspace.
    pub fn hide(mut self, path: impl Into<PathBuf>) -> Self {
        self.asked.hidden.push(path.into());
        self.named()
    }

    /// Shows a folder, read-only, that is hidden otherwise.
    pub fn show(mut self, path: impl Into<PathBuf>) -> Self {
        self.asked.shown.push(path.into());
        self.named()
    }

    /// Shows the machine read-only, but for what is private. This is so unless told otherwise.
    pub fn read_only_host(mut self) -> Self {
        self.asked.host = Host::ReadOnly;
        self.named()
    }

    /// Shows nothing of the machine but its programs and libraries.
    pub fn hidden_host(mut self) -> Self {
        self.asked.host = Host::Hidden;
        self.named()
    }

    /// Adds to what commands find in their environment. It is not in the URI, since it may be a secret.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.asked.env.push((name.into(), value.into()));
        self
    }

    /// Keeps what commands print and nobody can hold in this folder, instead of one that is removed with the sandbox.
    pub fn spool(mut self, folder: impl Into<PathBuf>) -> Self {
        self.spool = Arc::new(Spool::new(Some(folder.into())));
        self
    }

    fn named(mut self) -> Self {
        let asked = &self.asked;
        let mut writing = Writing::new("isolated", &asked.directory);
        let word = |words: &[(&'static str, bool)]| words.iter().find(|(_, is)| *is).map(|(word, _)| *word);
        writing.option("network", word(&[("on", asked.network == Network::On)]));
        writing.option("host", word(&[("hidden", asked.host == Host::Hidden)]));
        writing.limits(&asked.limits);
        writing.option("output", Some(asked.output).filter(|output| *output != OUTPUT));
        writing.paths("hide", &asked.hidden);
        writing.paths("show", &asked.shown);
        writing.option("at", asked.at.as_ref().map(|at| at.display()));
        self.uri = writing.finish();
        self
    }

    fn opened(&self) -> Result<Arc<Opened>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        Ok(opened.insert(Arc::new(self.asked.open()?)).clone())
    }

    async fn run_in(&self, opened: &Opened, command: &Command, sink: &mut Sink<'_>) -> Result<Ran> {
        // Both, since what has no name is not there, and what cannot be entered has one.
        let _ = opened.root.directory(&command.cwd)?;
        let below = opened.root.name(&command.cwd).unwrap_or_default();
        let errand = Errand {
            command,
            env: environment(std::env::vars_os(), self.asked.env.iter().chain(&command.env)),
            start: Start::Below(CString::new(below).unwrap_or_default()),
            rlimits: opened.enforced.rlimits.clone(),
            groups: opened.enforced.groups(),
            world: Some(opened.world.clone()),
            output: self.asked.output,
            spool: &self.spool,
        };
        errand.run(sink).await
    }
}

/// Nothing can be shown where the system has no such thing.
#[cfg(not(target_os = "linux"))]
pub(crate) enum World {}

impl Asked {
    #[cfg(not(target_os = "linux"))]
    fn open(&self) -> Result<Opened> {
        Err(Error::new(ErrorKind::Unavailable, "cannot isolate commands on this machine: this needs Linux")
            .with_hint("`local:` runs commands without isolation"))
    }

    #[cfg(target_os = "linux")]
    fn open(&self) -> Result<Opened> {
        let root = Root::open(&self.directory)?;
        let enforced = match self.limits.processes {
            Some(_) => self.limits.enforce(Namespace::Own)?,
            // Nobody asked for it: where nothing can see to it, there is none, and the capabilities say so.
            None => {
                let limited = Limits { processes: Some(PROCESSES), ..self.limits.clone() };
                limited.enforce(Namespace::Own).or_else(|_| self.limits.enforce(Namespace::Own))?
            }
        };
        let at = match &self.at {
            Some(at) if at.is_absolute() => at.clone(),
            Some(at) => {
                let why = format_args!("wanted an absolute path as `at`, found `{}`", at.display()).to_string();
                return Err(Error::new(ErrorKind::Unavailable, why));
            }
            None => root.path().to_owned(),
        };
        let env = environment(std::env::vars_os(), &self.env);
        let variable = |name: &str| env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let home = variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let sights = view::Sights {
            directory: root.path(),
            at: &at,
            home: home.map(|home| home.canonicalize().unwrap_or(home)).filter(|home| home != Path::new("/")),
            path: variable("PATH").unwrap_or_default(),
            host: self.host,
            hidden: &self.hidden,
            shown: &self.shown,
        };
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let last_capability = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap_or_default();
        let world = World {
            network: self.network,
            users: [
                (c"/proc/self/setgroups", b"deny".to_vec()),
                (c"/proc/self/uid_map", format!("{user} {user} 1").into_bytes()),
                (c"/proc/self/gid_map", format!("{group} {group} 1").into_bytes()),
            ],
            pid_max: enforced.pid_max.map(|most| most.to_string().into_bytes()),
            acts: view::acts(&sights)?,
            workspace: view::text(&at)?,
            filters: filter::filters()?,
            last_capability: last_capability.trim().parse().unwrap_or(40),
        };
        Ok(Opened { root, world: Arc::new(world), enforced, capabilities: OnceLock::new() })
    }
}

impl SandboxBackend for Isolated {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn run(&self, command: &Command, sink: &mut Sink<'_>) -> Result<Ran> {
        let opened = self.opened()?;
        self.run_in(&opened, command, sink).await
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

    /// A command is run for it, once: all parts have to be there.
    async fn capabilities(&self) -> Result<Capabilities> {
        let opened = self.opened()?;
        if let Some(capabilities) = opened.capabilities.get() {
            return Ok(capabilities.clone());
        }
        self.run_in(&opened, &Command::shell(":"), &mut |_, _| {}).await?;
        let capabilities = Capabilities {
            isolation: Isolation::Namespaces(self.asked.host),
            network: self.asked.network,
            memory: opened.enforced.memory,
            processes: opened.enforced.processes,
            file_size: opened.enforced.file_size,
            cpu_time: opened.enforced.cpu_time,
            streaming: true,
        };
        Ok(opened.capabilities.get_or_init(|| capabilities).clone())
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.asked.directory)
    }

    fn over(&self, directory: &Path) -> Option<Sandbox> {
        let seen = self.asked.at.clone().or_else(|| std::path::absolute(&self.asked.directory).ok())?;
        let seen = seen.canonicalize().unwrap_or(seen);
        let asked = Asked { directory: directory.to_owned(), at: Some(seen), ..self.asked.clone() };
        Some(Sandbox::new(Isolated::asked(asked, self.spool.clone())))
    }
}
