//! The `isolated` sandbox: namespaces with a read-only machine, no network, and a writable workspace.

#[cfg(target_os = "linux")]
mod commit_dir;
#[cfg(target_os = "linux")]
mod confinement;
mod git_settings;
#[cfg(target_os = "linux")]
mod grants;
#[cfg(target_os = "linux")]
mod hidden;
mod hosts;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod namespace;
mod nested;
mod open;
mod options;
#[cfg(target_os = "linux")]
mod placeholders;
mod protected;
#[cfg(target_os = "linux")]
mod proxy;
#[cfg(target_os = "linux")]
mod seccomp;
#[cfg(target_os = "linux")]
mod shown_dirs;

pub(crate) use self::hosts::AllowedHosts;
#[cfg(target_os = "linux")]
pub use self::placeholders::PrivatePlaceholders;
pub use self::protected::{ProtectedPaths, with_files_beside};
#[cfg(target_os = "linux")]
pub(crate) use self::proxy::{Proxy, offer_listener};

#[cfg(target_os = "linux")]
pub(crate) use self::confinement::Confinement;
#[cfg(target_os = "linux")]
pub(crate) use self::namespace::Namespace;

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[cfg(target_os = "linux")]
use self::commit_dir::CommitDir;
use self::open::{OpenIsolated, OpeningState};
use self::options::{GitAccess, IsolatedOptions, MountPath, Walls};
#[cfg(target_os = "linux")]
use super::ExitStatus;
use super::blocking::{CancelOnDrop, run_blocking};
use super::capabilities::{Capabilities, HostAccess, Isolation, Network};
use super::environment::environment;
use super::process::{SpawnRequest, Spool, WorkingDir};
use super::{ByteRange, Command, DirEntry, ExtraAccess, Output, Process, Sandbox, SandboxBackend, SharedDirs, Sink};
use crate::error::{Error, ErrorKind, Result};
use crate::files::Digest;
use crate::private_paths::resolved;
use crate::uri::absolute;

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
/// let sandbox = Sandbox::new(Isolated::new("/srv/app").network().memory(1 << 30));
/// assert_eq!(sandbox.uri(), "isolated:/srv/app?network=on&memory=1g");
/// ```
#[derive(Debug)]
pub struct Isolated {
    options: IsolatedOptions,
    uri: String,
    spool: Arc<Spool>,
    /// Found at the first use, and again if one of them has moved.
    state: Arc<Mutex<OpeningState>>,
    opened: Arc<Mutex<Option<Arc<OpenIsolated>>>>,
}

impl Isolated {
    /// Creates a sandbox in a directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let options = IsolatedOptions::new(directory.into());
        Isolated::with_options(options, Arc::new(Spool::new(None)))
    }

    fn with_options(options: IsolatedOptions, spool: Arc<Spool>) -> Self {
        Isolated { options, uri: String::new(), spool, state: Arc::default(), opened: Arc::default() }.with_uri()
    }

    /// Parses the part of a URI after `isolated:`.
    pub(super) fn from_uri_rest(rest: &str) -> Result<Self> {
        Ok(Isolated::with_options(IsolatedOptions::parse(rest)?, Arc::new(Spool::new(None))))
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
    /// let sandbox = Sandbox::new(Isolated::new("/srv/app").allow_host("crates.io")?.allow_host("*.crates.io")?);
    /// assert_eq!(sandbox.uri(), "isolated:/srv/app?network=crates.io,*.crates.io");
    /// # Ok(())
    /// # }
    /// ```
    pub fn allow_host(mut self, host: &str) -> Result<Self> {
        self.options.add_host(host)?;
        Ok(self.with_uri())
    }

    /// Lets commands write a file or a directory outside of the workspace.
    pub fn writable(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.writable.push(absolute(path));
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

    /// Hides a file or a directory from commands and from file operations. A relative path is relative to the workspace.
    ///
    /// It need not exist: it is looked for before each command and each file operation.
    pub fn hide(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.hidden.push(path.into());
        self.with_uri()
    }

    /// Shows a directory, read-only, that is hidden by default.
    pub fn show(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.shown.push(absolute(path));
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
    /// let sandbox = Sandbox::new(Isolated::new("/srv/app").without_namespaces());
    /// assert_eq!(sandbox.uri(), "isolated:/srv/app?walls=landlock");
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
        self.uri = self.options.uri();
        self
    }

    /// Returns a sandbox with the same settings in another directory, which commands see at the path of this one.
    fn in_directory(&self, directory: &Path, shared: Option<Arc<SharedDirs>>) -> Option<Sandbox> {
        let original = match (&shared, &self.options.original) {
            (Some(shared), _) => &shared.original,
            (None, Some(original)) => original,
            (None, None) => &self.options.directory,
        };
        let original = std::path::absolute(original).ok()?;
        let mount_path = self.options.mount_path.clone().unwrap_or_else(|| MountPath::SameAs(original.clone()));
        // A path that leads into the original by another name hides the file of the other directory too.
        let mut hidden = self.options.hidden.clone();
        let inside = |path: &PathBuf| {
            let inside = resolved(&original.join(path)).strip_prefix(resolved(&original)).ok()?.to_owned();
            (!inside.as_os_str().is_empty() && !self.options.hidden.contains(&inside)).then_some(inside)
        };
        hidden.extend(self.options.hidden.iter().filter_map(inside).collect::<Vec<_>>());
        let (directory, mount_path, original) = (directory.to_owned(), Some(mount_path), Some(original));
        let options = IsolatedOptions { directory, mount_path, shared, original, hidden, ..self.options.clone() };
        Some(Sandbox::new(Isolated::with_options(options, self.spool.clone())))
    }

    /// Runs work on the open sandbox in the blocking pool. The first call opens the sandbox.
    async fn with_open<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<OpenIsolated>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (options, state, opened) = (self.options.clone(), self.state.clone(), self.opened.clone());
        run_blocking(move || work(&options.get_or_open(&state, &opened)?)).await
    }

    async fn run_in(&self, open: Arc<OpenIsolated>, command: &Command, sink: &mut Sink<'_>) -> Result<Output> {
        self.request(&open, command).await?.run(sink).await
    }

    /// Returns the request to spawn a command.
    async fn request<'a>(&self, open: &'a Arc<OpenIsolated>, command: &'a Command) -> Result<SpawnRequest<'a>> {
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
        Ok(SpawnRequest {
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
        })
    }

    /// Opens the sandbox for a command.
    async fn open_for(&self, command: &Command) -> Result<Arc<OpenIsolated>> {
        // Landlock allows the files that are there when the command starts.
        let is_usual = command.extra == ExtraAccess::default() && command.hidden.is_empty();
        match is_usual && self.options.walls == Walls::Namespaces {
            true => self.with_open(|open| Ok(open.clone())).await,
            false => {
                let mut options = self.options.with_extra(&command.extra)?;
                options.hidden.extend(command.hidden.iter().cloned());
                let state = self.state.clone();
                run_blocking(move || options.open(&state).map(Arc::new)).await
            }
        }
    }
}

/// A namespace on a system that has none. It cannot be created.
#[cfg(not(target_os = "linux"))]
pub(crate) enum Namespace {}

/// The restrictions of a command on a system that has none. They cannot be created.
#[cfg(not(target_os = "linux"))]
pub(crate) enum Confinement {}

#[cfg(target_os = "linux")]
use self::landlock::is_available as has_landlock;
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

/// Creates a `.rath` that is missing, kept out of version control. Where that is not possible, no command can create one either, or the
/// opening of the directory reports why.
fn make_rath_dir(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if std::fs::DirBuilder::new().mode(0o700).create(path).is_ok() {
        std::fs::write(path.join(".gitignore"), "*\n")
            .map_err(|error| Error::new(ErrorKind::Io, "cannot write in `.rath`").because(error))?;
    }
    Ok(())
}

impl SandboxBackend for Isolated {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn run(&self, command: &Command, sink: &mut Sink<'_>) -> Result<Output> {
        let open = self.open_for(command).await?;
        #[cfg(target_os = "linux")]
        let _locks = {
            let open = open.clone();
            run_blocking(move || open.shared.as_ref().map(|shared| shared.lock()).transpose()).await?
        };
        let output = self.run_in(open.clone(), command, sink).await?;
        #[cfg(target_os = "linux")]
        if let Some(namespace) = &open.namespace {
            let read_only = namespace.failed_overlays().map(Path::to_owned);
            self.state.lock().unwrap_or_else(PoisonError::into_inner).read_only.extend(read_only);
        }
        #[cfg(target_os = "linux")]
        if output.status == ExitStatus::Exit(0) && open.commit.is_some() {
            run_blocking(move || open.commit.as_ref().map_or(Ok(()), CommitDir::publish)).await?;
        }
        Ok(output)
    }

    async fn start(&self, command: &Command) -> Result<Process> {
        // A commit is published when its command has ended, which this one may never do.
        let mut command = command.clone();
        command.extra.git = false;
        // A name that is missing cannot be hidden, and the process may live when others create it.
        let rath_dir = self.options.directory.join(crate::RATH_DIR);
        run_blocking(move || make_rath_dir(&rath_dir)).await?;
        let open = self.open_for(&command).await?;
        #[cfg(target_os = "linux")]
        let locks = {
            let open = open.clone();
            run_blocking(move || open.shared.as_ref().map(|shared| shared.lock()).transpose()).await?
        };
        #[cfg(not(target_os = "linux"))]
        let locks = ();
        self.request(&open, &command).await?.start((open.clone(), locks))
    }

    async fn read(&self, path: &str, range: ByteRange) -> Result<Vec<u8>> {
        let path = path.to_owned();
        self.with_open(move |open| open.read(&path, range)).await
    }

    async fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let (path, bytes, cancel) = (path.to_owned(), bytes.to_owned(), CancelOnDrop::default());
        let flag = cancel.flag();
        let staging = self.options.staging.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.with_open(move |open| open.write(&path, &bytes, &flag, staging.as_deref())).await
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let path = path.to_owned();
        self.with_open(move |open| open.remove(&path)).await
    }

    async fn list(&self, path: &str) -> Result<Vec<DirEntry>> {
        let path = path.to_owned();
        self.with_open(move |open| open.list(&path)).await
    }

    async fn stat(&self, path: &str) -> Result<Option<DirEntry>> {
        let path = path.to_owned();
        self.with_open(move |open| open.stat(&path)).await
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
            writable: self.options.writable.clone(),
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

    fn seen_at(&self) -> Option<&Path> {
        let given = self.options.mount_path.as_ref().filter(|_| self.options.walls == Walls::Namespaces);
        Some(given.map_or(&self.options.directory, MountPath::as_path))
    }

    fn hidden(&self) -> &[PathBuf] {
        &self.options.hidden
    }

    fn keep_out(&self, path: &Path) {
        let Ok(path) = std::path::absolute(path) else { return };
        let mut kept_out = self.options.kept_out.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept_out.contains(&path) {
            kept_out.push(path);
        }
    }

    fn stage_in(&self, directory: &Path) {
        *self.options.staging.lock().unwrap_or_else(PoisonError::into_inner) = Some(directory.to_owned());
    }

    fn with_directory(&self, directory: &Path) -> Option<Sandbox> {
        self.in_directory(directory, None)
    }

    fn with_shared(&self, directory: &Path, shared: &SharedDirs) -> Option<Sandbox> {
        let can_show = self.can_show_dirs() || shared.directories.is_empty();
        can_show.then(|| self.in_directory(directory, Some(Arc::new(shared.clone()))))?
    }

    fn can_show_dirs(&self) -> bool {
        self.options.walls == Walls::Namespaces
    }

    fn read_only_dirs(&self) -> Vec<PathBuf> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).read_only.iter().cloned().collect()
    }

    fn shared(&self) -> Option<&SharedDirs> {
        self.options.shared.as_deref().filter(|shared| !shared.directories.is_empty())
    }
}
