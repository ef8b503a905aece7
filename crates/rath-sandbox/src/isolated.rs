//! The `isolated` sandbox: namespaces with a read-only machine, no network, and a writable workspace.

#[cfg(target_os = "linux")]
mod confinement;
#[cfg(target_os = "linux")]
mod grants;
mod hosts;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod namespace;
mod nested;
#[cfg(target_os = "linux")]
mod proxy;
#[cfg(target_os = "linux")]
mod seccomp;

pub(crate) use self::hosts::AllowedHosts;
#[cfg(target_os = "linux")]
pub(crate) use self::proxy::{Proxy, offer_listener};

#[cfg(target_os = "linux")]
pub(crate) use self::confinement::Confinement;
#[cfg(target_os = "linux")]
pub(crate) use self::namespace::Namespace;

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use self::nested::NestedProjects;
use super::blocking::{CancelOnDrop, drop_on_pool, run_blocking};
use super::capabilities::{Capabilities, HostAccess, Isolation, Network};
use super::environment::environment;
use super::limits::{ActiveLimits, Limits, PidScope};
use super::local::DEFAULT_MAX_OUTPUT_BYTES;
use super::process::{SpawnRequest, Spool, WorkingDir};
use super::root::Root;
use super::temp_dir::TempDir;
use super::uri::{UriOptions, UriWriter};
use super::{ByteRange, Command, DirEntry, ExtraAccess, Output, Sandbox, SandboxBackend, Sink};
use crate::error::{Error, ErrorKind, Result};
use crate::files::Digest;

/// A sandbox that runs each command in namespaces of its own.
///
/// A command sees the machine read-only, without the private files of people and services, and can write in the workspace
/// only. `/tmp` and the home directory are empty, and last as long as the command. The command has a loopback network
/// only and no Unix sockets except connected pairs, sees no processes of others and no devices, and has no privileges and no
/// way to get any. No `.rath` in the workspace is visible, and every `.git` is read-only: those that are there when the
/// sandbox is first used. Environment variables and the end of processes are as in [`Local`](super::Local).
///
/// All of this is enforced by the kernel. If the kernel lacks a part, nothing runs, and the error names the part.
///
/// ```
/// use rath_sandbox::{Isolated, Sandbox};
///
/// let sandbox = Sandbox::new(Isolated::new("./").network().memory(1 << 30));
/// assert_eq!(sandbox.uri(), "isolated:./?network=on&memory=1g");
/// ```
#[derive(Debug)]
pub struct Isolated {
    options: IsolatedOptions,
    uri: String,
    spool: Arc<Spool>,
    /// Found at the first use, and again if one of them has moved.
    nested: Arc<Mutex<Option<Arc<NestedProjects>>>>,
    opened: Arc<Mutex<Option<Arc<OpenIsolated>>>>,
}

/// The settings of an isolated sandbox.
#[derive(Clone, Debug)]
struct IsolatedOptions {
    directory: PathBuf,
    walls: Walls,
    /// The path at which commands see the directory, if it is not the directory's own.
    mount_path: Option<MountPath>,
    network: Network,
    /// The hosts that commands can reach, if the network is [`Network::Hosts`].
    hosts: AllowedHosts,
    host: HostAccess,
    git: GitAccess,
    limits: Limits,
    hidden: Vec<PathBuf>,
    /// Hidden paths that are not part of the URI. Sandboxes in other directories share them.
    kept_out: Arc<Mutex<Vec<PathBuf>>>,
    shown: Vec<PathBuf>,
    /// Paths outside of the workspace that commands can write.
    writable: Vec<PathBuf>,
    env: Vec<(String, String)>,
    max_output_bytes: u64,
}

/// The mechanism of the kernel that separates commands from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walls {
    Namespaces,
    Landlock,
}

/// The access of commands to the `.git` of the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GitAccess {
    ReadOnly,
    /// Writable but for hooks and configuration, which run programs later.
    Commit,
    Writable,
}

/// The path at which commands see a directory.
#[derive(Clone, Debug)]
enum MountPath {
    /// This path.
    Given(PathBuf),
    /// The path of this directory, without symlinks.
    SameAs(PathBuf),
}

impl MountPath {
    /// Returns the path as it was given.
    fn as_path(&self) -> &Path {
        match self {
            MountPath::Given(path) | MountPath::SameAs(path) => path,
        }
    }
}

/// The parts of an isolated sandbox that exist from its first use on.
struct OpenIsolated {
    root: Root,
    nested: Arc<NestedProjects>,
    /// The paths that are kept out besides those of the settings.
    kept_out: Vec<PathBuf>,
    namespace: Option<Arc<Namespace>>,
    confinement: Arc<Confinement>,
    /// The directory for temporary files of commands, if they have no `/tmp` of their own.
    temp: Option<TempDir>,
    hosts: Arc<AllowedHosts>,
    limits: ActiveLimits,
    capabilities: OnceLock<Capabilities>,
}

impl Drop for OpenIsolated {
    fn drop(&mut self) {
        self.temp.take().into_iter().for_each(drop_on_pool);
    }
}

impl std::fmt::Debug for OpenIsolated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OpenIsolated").field(&self.root.path()).finish()
    }
}

/// The default limit on the processes and threads of a command.
const DEFAULT_MAX_PROCESSES: u64 = 1024;

/// The options of an `isolated:` URI.
const OPTIONS: &[&str] = &[
    "network",
    "host",
    "git",
    "walls",
    "memory",
    "processes",
    "file_size",
    "cpu_time",
    "output",
    "hide",
    "show",
    "write",
    "at",
];
const HOST_VALUES: [(&str, HostAccess); 2] = [("read-only", HostAccess::ReadOnly), ("hidden", HostAccess::Hidden)];

const WALL_VALUES: [(&str, Walls); 2] = [("namespaces", Walls::Namespaces), ("landlock", Walls::Landlock)];

const GIT_VALUES: [(&str, GitAccess); 2] = [("read-only", GitAccess::ReadOnly), ("write", GitAccess::Writable)];

impl Isolated {
    /// Creates a sandbox in a directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let options = IsolatedOptions {
            directory: directory.into(),
            walls: Walls::Namespaces,
            mount_path: None,
            network: Network::Off,
            hosts: AllowedHosts::default(),
            host: HostAccess::ReadOnly,
            git: GitAccess::ReadOnly,
            limits: Limits::default(),
            hidden: Vec::new(),
            kept_out: Arc::default(),
            shown: Vec::new(),
            writable: Vec::new(),
            env: Vec::new(),
            max_output_bytes: DEFAULT_MAX_OUTPUT_BYTES,
        };
        Isolated::with_options(options, Arc::new(Spool::new(None)))
    }

    fn with_options(options: IsolatedOptions, spool: Arc<Spool>) -> Self {
        Isolated { options, uri: String::new(), spool, nested: Arc::default(), opened: Arc::default() }.with_uri()
    }

    /// Parses the part of a URI after `isolated:`.
    pub(super) fn from_uri_rest(rest: &str) -> Result<Self> {
        let parsed = UriOptions::parse("isolated", rest, OPTIONS)?;
        let mut isolated = Isolated::new(&parsed.directory);
        let options = &mut isolated.options;
        match parsed.all("network").last() {
            None | Some("off") => {}
            Some("on") => options.network = Network::On,
            Some(hosts) => hosts.split(',').try_for_each(|host| options.add_host(host)).map_err(|_| {
                let wanted = "wanted off, on or hosts such as `example.com,*.example.com`";
                let message = format!("{wanted} as `network` of a sandbox of the kind `isolated`, found `{hosts}`");
                Error::new(ErrorKind::Config, message)
            })?,
        }
        options.host = parsed.word("host", &HOST_VALUES)?.unwrap_or_default();
        options.walls = parsed.word("walls", &WALL_VALUES)?.unwrap_or(Walls::Namespaces);
        options.git = parsed.word("git", &GIT_VALUES)?.unwrap_or(GitAccess::ReadOnly);
        options.limits = parsed.limits()?;
        options.max_output_bytes = parsed.bytes("output")?.unwrap_or(DEFAULT_MAX_OUTPUT_BYTES);
        options.hidden = parsed.all("hide").map(PathBuf::from).collect();
        options.shown = parsed.all("show").map(PathBuf::from).collect();
        options.writable = parsed.all("write").map(PathBuf::from).collect();
        options.mount_path = parsed.all("at").last().map(|path| MountPath::Given(path.into()));
        Ok(isolated.with_uri())
    }

    /// Gives commands the network of this machine, including the services that listen on it.
    pub fn network(mut self) -> Self {
        self.options.network = Network::On;
        self.with_uri()
    }

    /// Lets commands reach a host, such as `example.com`, `*.example.com` or `localhost:8080`. Without a port these are the
    /// ports of HTTP and HTTPS.
    ///
    /// Programs reach it through a proxy, which the usual environment variables name. A name does not lead to this machine,
    /// unless it is `localhost` or an address.
    ///
    /// ```
    /// use rath_sandbox::{Isolated, Sandbox};
    ///
    /// # fn main() -> rath_sandbox::Result<()> {
    /// let sandbox = Sandbox::new(Isolated::new("./").allow_host("crates.io")?.allow_host("*.crates.io")?);
    /// assert_eq!(sandbox.uri(), "isolated:./?network=crates.io,*.crates.io");
    /// # Ok(())
    /// # }
    /// ```
    pub fn allow_host(mut self, host: &str) -> Result<Self> {
        self.options.add_host(host)?;
        Ok(self.with_uri())
    }

    /// Lets commands write a file or a directory outside of the workspace.
    pub fn writable(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.writable.push(path.into());
        self.with_uri()
    }

    /// Limits memory, in bytes.
    ///
    /// A control group limits all processes of the sandbox together. A machine without one limits the data of each process;
    /// [`Capabilities::memory`] tells which.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.options.limits.memory = Some(bytes);
        self.with_uri()
    }

    /// Limits the number of processes and threads that exist at the same time.
    ///
    /// The default is 1024, or no limit on a machine that cannot enforce one.
    pub fn processes(mut self, max: u64) -> Self {
        self.options.limits.processes = Some(max);
        self.with_uri()
    }

    /// Limits the size of each file that is written, in bytes.
    pub fn file_size(mut self, bytes: u64) -> Self {
        self.options.limits.file_size = Some(bytes);
        self.with_uri()
    }

    /// Limits the processor time of each process.
    pub fn cpu_time(mut self, time: Duration) -> Self {
        self.options.limits.cpu_time = Some(time);
        self.with_uri()
    }

    /// Limits the output of each command, in bytes of both streams together. The default is 256 MiB.
    pub fn output(mut self, bytes: u64) -> Self {
        self.options.max_output_bytes = bytes;
        self.with_uri()
    }

    /// Hides a file or a directory from commands. A relative path is relative to the workspace.
    pub fn hide(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.hidden.push(path.into());
        self.with_uri()
    }

    /// Shows a directory, read-only, that is hidden by default.
    pub fn show(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.shown.push(path.into());
        self.with_uri()
    }

    /// Shows the machine read-only, without its private files. This is the default.
    pub fn read_only_host(mut self) -> Self {
        self.options.host = HostAccess::ReadOnly;
        self.with_uri()
    }

    /// Shows only the programs and libraries of the machine.
    pub fn hidden_host(mut self) -> Self {
        self.options.host = HostAccess::Hidden;
        self.with_uri()
    }

    /// Lets commands write the `.git` of the workspace, as committing needs. Its hooks and its configuration run commands
    /// outside of the sandbox whenever git is used there.
    pub fn writable_git(mut self) -> Self {
        self.options.git = GitAccess::Writable;
        self.with_uri()
    }

    /// Separates commands by Landlock alone, on a machine that allows no namespaces. This needs Linux 6.12.
    ///
    /// Commands write in the workspace only and in a temporary directory (`TMPDIR`), read no private files, have no network, or that of
    /// the machine, no sockets of Unix, no privileges and the same filter of system calls, and cannot signal or look into processes of
    /// others. Weaker than with namespaces:
    ///
    /// - commands see the names and arguments of all processes, and the names, sizes and times of all files;
    /// - if the workspace has a `.rath` or a `.git`, commands change the files in it, but create, rename and remove files only in
    ///   its subdirectories;
    /// - `chmod` by path fails; the times of an open file, and its mode (not by root), can be set if it belongs to the user, also
    ///   outside of the workspace;
    /// - some hosts only ([`allow_host`](Self::allow_host)) and `at` are errors.
    ///
    /// ```
    /// use rath_sandbox::{Isolated, Sandbox};
    ///
    /// let sandbox = Sandbox::new(Isolated::new("./").without_namespaces());
    /// assert_eq!(sandbox.uri(), "isolated:./?walls=landlock");
    /// ```
    pub fn without_namespaces(mut self) -> Self {
        self.options.walls = Walls::Landlock;
        self.with_uri()
    }

    /// Adds an environment variable. The variable is not part of the URI, since it may be a secret.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.env.push((name.into(), value.into()));
        self
    }

    /// Writes output that is too much for memory to this directory, instead of one that is removed with the sandbox.
    pub fn spool(mut self, directory: impl Into<PathBuf>) -> Self {
        self.spool = Arc::new(Spool::new(Some(directory.into())));
        self
    }

    /// Updates the URI after a setting has changed.
    fn with_uri(mut self) -> Self {
        let options = &self.options;
        let mut writer = UriWriter::new("isolated", &options.directory);
        writer.option(
            "network",
            match options.network {
                Network::Off => None,
                Network::Hosts => Some(options.hosts.names().join(",")),
                Network::On => Some("on".to_owned()),
            },
        );
        writer.option("host", (options.host == HostAccess::Hidden).then_some("hidden"));
        writer.option("walls", (options.walls == Walls::Landlock).then_some("landlock"));
        writer.option("git", (options.git == GitAccess::Writable).then_some("write"));
        writer.limits(&options.limits);
        writer.option("output", Some(options.max_output_bytes).filter(|bytes| *bytes != DEFAULT_MAX_OUTPUT_BYTES));
        writer.paths("hide", &options.hidden);
        writer.paths("show", &options.shown);
        writer.paths("write", &options.writable);
        writer.option("at", options.mount_path.as_ref().map(|path| path.as_path().display()));
        self.uri = writer.finish();
        self
    }

    /// Runs work on the open sandbox in the blocking pool. The first call opens the sandbox.
    async fn with_open<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<OpenIsolated>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (options, nested, opened) = (self.options.clone(), self.nested.clone(), self.opened.clone());
        run_blocking(move || work(&options.get_or_open(&nested, &opened)?)).await
    }

    async fn run_in(&self, open: Arc<OpenIsolated>, command: &Command, sink: &mut Sink<'_>) -> Result<Output> {
        let (root, cwd) = (open.clone(), command.cwd.clone());
        let cwd = run_blocking(move || {
            // Both are needed: a missing directory has a canonical name too, and the command enters it by that name.
            let directory = root.root.open_directory(&cwd)?;
            let name = || CString::new(root.root.canonical_name(&cwd).unwrap_or_default()).unwrap_or_default();
            Ok(match root.namespace {
                Some(_) => WorkingDir::InWorkspace(name()),
                None => WorkingDir::Open(directory),
            })
        });
        let cwd = cwd.await?;
        let mut added = if open.hosts.is_empty() { Vec::new() } else { proxy_variables() };
        let temp = open.temp.as_ref().map(|temp| temp.path().to_string_lossy().into_owned());
        added.extend(temp.map(|temp| ("TMPDIR".to_owned(), temp)));
        let request = SpawnRequest {
            command,
            env: environment(std::env::vars_os(), added.iter().chain(&self.options.env).chain(&command.env)),
            cwd,
            rlimits: open.limits.rlimits.clone(),
            cgroups: open.limits.cgroups(),
            namespace: open.namespace.clone(),
            confinement: Some(open.confinement.clone()),
            hosts: Some(&open.hosts).filter(|hosts| !hosts.is_empty()).cloned(),
            max_output_bytes: self.options.max_output_bytes,
            spool: self.spool.clone(),
        };
        request.run(sink).await
    }
}

/// A namespace on a system that has none. It cannot be created.
#[cfg(not(target_os = "linux"))]
pub(crate) enum Namespace {}

/// The restrictions of a command on a system that has none. They cannot be created.
#[cfg(not(target_os = "linux"))]
pub(crate) enum Confinement {}

#[cfg(target_os = "linux")]
use self::grants::Grants;
#[cfg(target_os = "linux")]
use self::landlock::{LandlockRules, is_available as has_landlock};
#[cfg(target_os = "linux")]
use self::proxy::variables as proxy_variables;

/// There is no Landlock on other systems.
#[cfg(not(target_os = "linux"))]
fn has_landlock() -> bool {
    false
}

/// There is no proxy on a system without namespaces.
#[cfg(not(target_os = "linux"))]
fn proxy_variables() -> Vec<(String, String)> {
    Vec::new()
}

impl IsolatedOptions {
    fn add_host(&mut self, host: &str) -> Result<()> {
        self.hosts.add(host)?;
        if self.network == Network::Off {
            self.network = Network::Hosts;
        }
        Ok(())
    }

    fn kept_out(&self) -> Vec<PathBuf> {
        self.kept_out.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns these settings with access that one command has beyond them.
    fn with_extra(&self, extra: &ExtraAccess) -> Result<Self> {
        let mut options = self.clone();
        extra.hosts.iter().try_for_each(|host| options.add_host(host))?;
        for path in &extra.writable {
            // A link that was changed meanwhile would lead to a place that no decision was about.
            if Path::new(path).canonicalize().ok().as_deref() != Some(Path::new(path)) {
                let message = format!("wanted a path without links and `..` to write, found `{path}`");
                return Err(Error::new(ErrorKind::Config, message));
            }
            options.writable.push(path.into());
        }
        if extra.git && options.git == GitAccess::ReadOnly {
            options.git = GitAccess::Commit;
        }
        Ok(options)
    }

    /// Opens the directory, sets up the limits and prepares the namespace, once, and again if nested projects have moved.
    fn get_or_open(
        &self,
        nested: &Mutex<Option<Arc<NestedProjects>>>,
        opened: &Mutex<Option<Arc<OpenIsolated>>>,
    ) -> Result<Arc<OpenIsolated>> {
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        match &*opened {
            Some(opened) if opened.kept_out == self.kept_out() && opened.nested.is_current(opened.root.path()) => {
                Ok(opened.clone())
            }
            _ => Ok(opened.insert(Arc::new(self.open(nested)?)).clone()),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn open(&self, _: &Mutex<Option<Arc<NestedProjects>>>) -> Result<OpenIsolated> {
        Err(Error::needs_platform("a sandbox `isolated:`", "Linux"))
    }

    #[cfg(target_os = "linux")]
    fn open(&self, nested: &Mutex<Option<Arc<NestedProjects>>>) -> Result<OpenIsolated> {
        let root = Root::open(&self.directory)?;
        let scope = match self.walls {
            Walls::Namespaces => PidScope::Namespace,
            Walls::Landlock => PidScope::Host,
        };
        let limits = match self.limits.processes {
            Some(_) => self.limits.enforce(scope)?,
            // The default limit is dropped on a machine that cannot enforce it; the capabilities show that.
            None => {
                let with_default = Limits { processes: Some(DEFAULT_MAX_PROCESSES), ..self.limits.clone() };
                with_default.enforce(scope).or_else(|_| self.limits.enforce(scope))?
            }
        };
        let mount_path = match &self.mount_path {
            _ if self.walls == Walls::Landlock => root.path().to_owned(),
            Some(MountPath::SameAs(path)) => path.canonicalize().unwrap_or_else(|_| path.clone()),
            Some(MountPath::Given(path)) if path.is_absolute() => path.clone(),
            Some(MountPath::Given(path)) => {
                let message = format!("wanted an absolute path as `at`, found `{}`", path.display());
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            None => root.path().to_owned(),
        };
        if [root.path(), &*mount_path].contains(&Path::new("/")) {
            return Err(Error::new(ErrorKind::Config, "wanted a workspace other than `/` for an isolated sandbox"));
        }
        let nested = {
            let mut known = nested.lock().unwrap_or_else(PoisonError::into_inner);
            match &*known {
                Some(nested) if nested.is_current(root.path()) => nested.clone(),
                _ => known.insert(Arc::new(NestedProjects::find(root.path())?)).clone(),
            }
        };
        let env = environment(std::env::vars_os(), &self.env);
        let variable = |name: &str| env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let home = variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        // The user's key and configuration, if they are not in the home directory, which is hidden.
        let own = ["XDG_DATA_HOME", "XDG_CONFIG_HOME"].into_iter().filter_map(std::env::var_os);
        let own: Vec<PathBuf> =
            own.map(|own| PathBuf::from(own).join("rath")).filter(|own| own.is_absolute()).collect();
        let kept_out = self.kept_out();
        // What is in a `.rath` of the workspace is hidden with it.
        let is_apart = |path: &&PathBuf| match path.strip_prefix(root.path()) {
            Ok(inside) => inside.iter().all(|name| name != crate::RATH_DIR),
            Err(_) => true,
        };
        let beside = kept_out.iter().filter(is_apart).flat_map(|path| with_files_beside(path));
        let hidden: Vec<PathBuf> = self.hidden.iter().cloned().chain(own.iter().cloned()).chain(beside).collect();
        let request = mounts::MountRequest {
            directory: root.path(),
            mount_path: &mount_path,
            home: home.map(|home| home.canonicalize().unwrap_or(home)).filter(|home| home != Path::new("/")),
            path: variable("PATH").unwrap_or_default(),
            host: self.host,
            network: self.network,
            git: self.git,
            nested: &nested,
            hidden: &hidden,
            shown: &self.shown,
            writable: &self.writable,
            own: &own,
        };
        let (namespace, landlock, temp) = match self.walls {
            Walls::Namespaces => {
                let landlock = LandlockRules::beneath_mounts(mounts::writable_dirs(&request)?, self.network);
                (Some(Arc::new(self.namespace(&request, &limits)?)), landlock, None)
            }
            Walls::Landlock => {
                self.refuse_without_namespaces()?;
                let temp = TempDir::create("rath-tmp").map_err(|error| {
                    Error::new(ErrorKind::Io, "cannot create a temporary directory for commands").because(error)
                })?;
                let Grants { readable, writable } = Grants::new(&request, &temp.path().canonicalize()?)?;
                let paths = |paths: Vec<PathBuf>| paths.iter().map(|path| mounts::c_path(path)).collect::<Result<_>>();
                (None, LandlockRules::alone(paths(readable)?, paths(writable)?), Some(temp))
            }
        };
        let last_capability = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap_or_default();
        let confinement = Confinement {
            walls: self.walls,
            landlock,
            filters: seccomp::filters(self.network, self.walls)?,
            last_capability: last_capability.trim().parse().unwrap_or(40),
        };
        let hosts = if self.network == Network::Hosts { self.hosts.clone() } else { AllowedHosts::default() };
        let (confinement, hosts) = (Arc::new(confinement), Arc::new(hosts));
        Ok(OpenIsolated {
            root,
            nested,
            kept_out,
            namespace,
            confinement,
            temp,
            hosts,
            limits,
            capabilities: OnceLock::new(),
        })
    }

    /// Prepares the namespaces of commands.
    #[cfg(target_os = "linux")]
    fn namespace(&self, request: &mounts::MountRequest<'_>, limits: &ActiveLimits) -> Result<Namespace> {
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(Namespace {
            network: self.network,
            id_maps: [
                (c"/proc/self/setgroups", b"deny".to_vec()),
                (c"/proc/self/uid_map", format!("{user} {user} 1").into_bytes()),
                (c"/proc/self/gid_map", format!("{group} {group} 1").into_bytes()),
            ],
            pid_max: limits.pid_max.map(|max| max.to_string().into_bytes()),
            mount_ops: mounts::plan(request)?,
            workspace: mounts::c_path(request.mount_path)?,
        })
    }

    /// Fails if something was asked for that needs namespaces, or if Landlock cannot stand alone here.
    #[cfg(target_os = "linux")]
    fn refuse_without_namespaces(&self) -> Result<()> {
        let needs = |what: &str| {
            let message = format!("{what} needs namespaces, which `walls=landlock` does without");
            Err(Error::new(ErrorKind::Unavailable, message))
        };
        if !landlock::can_stand_alone() {
            let message = "this machine cannot isolate commands by Landlock alone";
            return Err(Error::new(ErrorKind::Unavailable, message)
                .with_hint("this needs Linux 6.12 or newer, with `landlock` in `/sys/kernel/security/lsm`"));
        }
        match (&self.mount_path, self.network, self.git) {
            (Some(MountPath::Given(_)), ..) => needs("another path for the workspace (`at`)"),
            (_, Network::Hosts, _) => needs("a network of some hosts only"),
            (.., GitAccess::Commit) => needs("committing without changing hooks and settings"),
            _ => Ok(()),
        }
    }
}

/// Returns a path and, if it is a file, the files beside it whose names continue its own behind a `-`.
fn with_files_beside(path: &Path) -> Vec<PathBuf> {
    let mut files = vec![path.to_owned()];
    if let (Some(name), Some(parent), true) = (path.file_name(), path.parent(), path.is_file()) {
        let prefix = [name.as_encoded_bytes(), b"-"].concat();
        let is_beside = |entry: &std::fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(&prefix);
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten().filter(is_beside);
        files.extend(entries.map(|entry| entry.path()).filter(|path| path.is_file()));
    }
    files
}

impl SandboxBackend for Isolated {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn run(&self, command: &Command, sink: &mut Sink<'_>) -> Result<Output> {
        // Landlock allows the files that are there when the command starts.
        let is_usual = command.extra == ExtraAccess::default() && command.hidden.is_empty();
        let open = match is_usual && self.options.walls == Walls::Namespaces {
            true => self.with_open(|open| Ok(open.clone())).await?,
            false => {
                let mut options = self.options.with_extra(&command.extra)?;
                options.hidden.extend(command.hidden.iter().cloned());
                let nested = self.nested.clone();
                run_blocking(move || options.open(&nested).map(Arc::new)).await?
            }
        };
        self.run_in(open, command, sink).await
    }

    async fn read(&self, path: &str, range: ByteRange) -> Result<Vec<u8>> {
        let path = path.to_owned();
        self.with_open(move |open| open.root.read(&path, range)).await
    }

    async fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let (path, bytes, cancel) = (path.to_owned(), bytes.to_owned(), CancelOnDrop::default());
        let flag = cancel.flag();
        self.with_open(move |open| open.root.write_unless(&path, &bytes, &flag)).await
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

    /// Returns the restrictions in force. The first call runs a command, which fails if the machine lacks a part.
    async fn capabilities(&self) -> Result<Capabilities> {
        let open = self.with_open(|open| Ok(open.clone())).await?;
        if let Some(capabilities) = open.capabilities.get() {
            return Ok(capabilities.clone());
        }
        self.run_in(open.clone(), &Command::shell(":"), &mut |_, _| {}).await?;
        let capabilities = Capabilities {
            isolation: match self.options.walls {
                Walls::Namespaces => Isolation::Namespaces(self.options.host),
                Walls::Landlock => Isolation::Landlock(self.options.host),
            },
            network: self.options.network,
            hosts: open.hosts.names(),
            landlock: has_landlock(),
            memory: open.limits.memory,
            processes: open.limits.processes,
            file_size: open.limits.file_size,
            cpu_time: open.limits.cpu_time,
            streaming: true,
        };
        Ok(open.capabilities.get_or_init(|| capabilities).clone())
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.options.directory)
    }

    fn keep_out(&self, path: &Path) {
        let Ok(path) = std::path::absolute(path) else { return };
        let mut kept_out = self.options.kept_out.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept_out.contains(&path) {
            kept_out.push(path);
        }
    }

    fn with_directory(&self, directory: &Path) -> Option<Sandbox> {
        let mount_path = match &self.options.mount_path {
            Some(path) => path.clone(),
            None => MountPath::SameAs(std::path::absolute(&self.options.directory).ok()?),
        };
        let options =
            IsolatedOptions { directory: directory.to_owned(), mount_path: Some(mount_path), ..self.options.clone() };
        Some(Sandbox::new(Isolated::with_options(options, self.spool.clone())))
    }
}
