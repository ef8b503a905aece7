//! The sandbox: settings, files, and the container that runs its commands.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rath_sandbox::backend::{
    CancelOnDrop, PrivatePlaceholders, ProtectedPaths, Spool, absolute, run_blocking, with_files_beside,
};
use rath_sandbox::{
    ByteRange, Capabilities, Command, Digest, DirEntry, Error, ErrorKind, Isolation, Network, Output, Result, Root,
    Sandbox, SandboxBackend, Sink, private_paths_in, resolved,
};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::command_text::CommandText;
use crate::engine::{Engine, find_socket};
use crate::live::LiveContainer;
use crate::mounts::{BindMount, HOME, HiddenPath, MountRequest, plan};
use crate::options::{GitAccess, Options};
use crate::running::{self, OutputLimits};
use crate::spec::{ContainerSpec, Machine};

/// A sandbox that runs commands in a container.
///
/// Commands see the files of the image, read-only, and the workspace, which they can write: at its own path, or at the one of
/// [`seen_at`](Self::seen_at). `/tmp`, `/var/tmp` and the home directory are empty at first and last as long as the container. There is
/// a loopback network only, no privileges and no way to get any. No `.rath` in the workspace is visible, and every `.git` is
/// read-only. Commands run as the user, so files in the workspace belong to the user. The environment is that of the image, and what is
/// added here or by the command.
///
/// The directory is opened, and the engine is looked for, at the first use: at `DOCKER_HOST`, then `podman/podman.sock` in
/// `XDG_RUNTIME_DIR`, `/run/podman/podman.sock` and `/var/run/docker.sock`.
///
/// ```
/// use rath_container::Container;
/// use rath_sandbox::Sandbox;
///
/// let container = Container::image("docker.io/library/rust:1.95").directory("/srv/app").network().memory(1 << 30);
/// let uri = "container:docker.io/library/rust:1.95?directory=/srv/app&network=on&memory=1g";
/// assert_eq!(Sandbox::new(container).uri(), uri);
/// ```
#[derive(Debug)]
pub struct Container {
    options: Options,
    uri: String,
    spool: Arc<Spool>,
    workspace: Arc<WorkspaceState>,
    /// The container that runs. Commands hold the lock for reading: another container starts when none runs, since a command could
    /// put a link in the place of a directory that is to be mounted.
    live: Arc<RwLock<Option<ReadyContainer>>>,
}

/// The facts about the workspace that commands need, and the placeholders in it.
#[derive(Debug, Default)]
struct WorkspaceState {
    protected: Mutex<Option<Arc<ProtectedPaths>>>,
    private: Mutex<PrivatePlaceholders>,
}

/// A container that runs, and the mounts that it was started with.
#[derive(Debug)]
struct ReadyContainer {
    container: LiveContainer,
    mounts: Vec<BindMount>,
}

impl ReadyContainer {
    fn fits(&self, mounts: &[BindMount]) -> bool {
        self.mounts == mounts && self.container.is_alive()
    }
}

/// The number of containers that one command waits for, if each ends before the command starts.
const MAX_STARTS: usize = 3;

impl Container {
    /// Creates a sandbox of an image, in the working directory of the process. The name is checked at the first use.
    pub fn image(image: impl Into<String>) -> Self {
        Container::with_options(Options::new(image.into(), PathBuf::from(".")), Arc::new(Spool::new(None)))
    }

    fn with_options(options: Options, spool: Arc<Spool>) -> Self {
        Container { options, uri: String::new(), spool, workspace: Arc::default(), live: Arc::default() }.with_uri()
    }

    /// Parses the part of a URI after `container:`.
    pub(crate) fn from_uri_rest(rest: &str) -> Result<Self> {
        Ok(Container::with_options(Options::parse(rest)?, Arc::new(Spool::new(None))))
    }

    /// Chooses the workspace.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.options.directory = absolute(directory);
        self.with_uri()
    }

    /// Shows the workspace to commands at another absolute path than its own.
    pub fn seen_at(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.seen_at = Some(path.into());
        self.with_uri()
    }

    /// Gives commands the network that the engine gives containers by default.
    pub fn network(mut self) -> Self {
        self.options.network = Network::On;
        self.with_uri()
    }

    /// Limits the memory of all processes together, in bytes. What is in `/tmp` and in the home directory counts.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.options.limits.memory = Some(bytes);
        self.with_uri()
    }

    /// Limits the number of processes and threads that exist at the same time: two of them are rath's, and one for each command. The default
    /// is 1024.
    pub fn processes(mut self, max: u64) -> Self {
        self.options.limits.processes = Some(max);
        self.with_uri()
    }

    /// Limits the use of processors by all processes together, in thousandths of one processor.
    pub fn milli_cpus(mut self, milli: u64) -> Self {
        self.options.milli_cpus = Some(milli.max(10));
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

    /// Hides a file or a directory of the workspace from commands and from file operations. A relative path is relative to the workspace.
    ///
    /// It need not exist: it is looked for before each command, and a container that shows it is replaced.
    pub fn hide(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.hidden.push(path.into());
        self.with_uri()
    }

    /// Lets commands write the `.git` of the workspace, as committing needs. Its hooks and its configuration run commands outside of the
    /// container whenever git is used there.
    pub fn writable_git(mut self) -> Self {
        self.options.git = GitAccess::Writable;
        self.with_uri()
    }

    /// Adds an environment variable. The variable is not part of the URI, since it may be a secret, and the engine does not see it.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.env.push((name.into(), value.into()));
        self
    }

    /// Writes output that is too much for memory to this directory, instead of one that is removed with the sandbox.
    pub fn spool(mut self, directory: impl Into<PathBuf>) -> Self {
        self.spool = Arc::new(Spool::new(Some(directory.into())));
        self
    }

    /// Uses the engine at this socket, instead of looking for one.
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.socket = Some(path.into());
        self
    }

    /// Sets the time that the engine is given for each answer. The default is a minute.
    pub fn engine_timeout(mut self, time: Duration) -> Self {
        self.options.engine_timeout = time;
        self
    }

    /// Sets the time for which the container waits for its session after this process has been killed. The default is a minute.
    pub fn kept_after_crash(mut self, time: Duration) -> Self {
        self.options.kept_after_crash = time;
        self
    }

    /// Updates the URI after a setting has changed.
    fn with_uri(mut self) -> Self {
        self.uri = self.options.uri();
        self
    }

    /// Runs work on the open workspace in the blocking pool.
    async fn with_root<T: Send + 'static>(&self, work: impl FnOnce(&Root) -> Result<T> + Send + 'static) -> Result<T> {
        let options = self.options.clone();
        run_blocking(move || work(&open_root(&options)?)).await
    }

    /// Returns a container that runs and shows what commands may see now. It keeps running while the guard lives.
    ///
    /// Waits up to `wait` for commands to end, if something has to be covered that was not there when they began.
    async fn ready(&self, hidden: &[PathBuf], wait: Duration) -> Result<OwnedRwLockReadGuard<Option<ReadyContainer>>> {
        self.options.check_image()?;
        let (options, workspace, hidden) = (self.options.clone(), self.workspace.clone(), hidden.to_owned());
        let find = move || find_mounts(&options, &workspace, &hidden);
        let mounts = run_blocking(find.clone()).await?;
        let guard = self.live.clone().read_owned().await;
        if guard.as_ref().is_some_and(|ready| ready.fits(&mounts)) {
            return Ok(guard);
        }
        drop(guard);
        let guard = tokio::time::timeout(wait, self.live.clone().write_owned()).await.map_err(|_| {
            let message = format!("other commands still run in the container after {} s", wait.as_secs());
            let hint = "files have to be covered that were not there when those began; wait until they end";
            Error::new(ErrorKind::Unavailable, message).with_hint(hint)
        })?;
        // A container that is being started is not abandoned with its caller.
        let options = self.options.clone();
        let start = tokio::spawn(async move {
            let mut guard = guard;
            // Commands may have changed files until now.
            let mounts = run_blocking(find).await?;
            if !guard.as_ref().is_some_and(|ready| ready.fits(&mounts)) {
                *guard = None;
                *guard = Some(start(&options, mounts).await?);
            }
            Ok(OwnedRwLockWriteGuard::downgrade(guard))
        });
        start
            .await
            .map_err(|error| Error::new(ErrorKind::Io, "the start of a container was interrupted").because(error))?
    }
}

/// Opens the workspace without the files that the settings hide. Blocks.
fn open_root(options: &Options) -> Result<Root> {
    let root = Root::open(&options.directory)?;
    let hidden = options.hidden.iter().map(|path| in_workspace(options, root.path(), path)).collect::<Vec<_>>();
    Ok(root.hiding(hidden))
}

/// Returns the place in the workspace that a path names, without links.
fn in_workspace(options: &Options, workspace: &Path, path: &Path) -> PathBuf {
    // In a fork, an absolute path in the original is one in the fork too, where commands see it.
    let inside =
        path.strip_prefix(options.seen_at()).or_else(|_| path.strip_prefix(&options.directory)).unwrap_or(path);
    resolved(&workspace.join(inside))
}

/// Looks for everything that is mounted in a container. Blocks.
fn find_mounts(options: &Options, state: &WorkspaceState, hidden: &[PathBuf]) -> Result<Vec<BindMount>> {
    let root = Root::open(&options.directory)?;
    let workspace = root.path();
    let protected = {
        let mut known = state.protected.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some(known) if known.is_current(workspace) => known.clone(),
            _ => known.insert(Arc::new(ProtectedPaths::find(workspace)?)).clone(),
        }
    };
    // A private file that is missing could be created by a command, and a missing name cannot be covered.
    state.private.lock().unwrap_or_else(PoisonError::into_inner).hold(workspace)?;
    let named = options.hidden.iter().chain(hidden).map(|path| in_workspace(options, workspace, path));
    let private = private_paths_in(workspace).into_iter().map(|path| resolved(&workspace.join(path)));
    let kept_out = options.kept_out().into_iter().flat_map(|path| with_files_beside(&resolved(&path)));
    let as_hidden = |path: PathBuf| {
        let inside = path.strip_prefix(workspace).ok().filter(|inside| !inside.as_os_str().is_empty())?;
        Some(HiddenPath { path: inside.to_owned(), is_dir: path.metadata().ok()?.is_dir() })
    };
    let mut hidden: Vec<_> = named.chain(private).chain(kept_out).filter_map(as_hidden).collect();
    hidden.sort();
    hidden.dedup();
    let seen_at = options.seen_at.as_deref().unwrap_or(workspace);
    plan(&MountRequest { workspace, seen_at, git: options.git, protected: &protected, hidden: &hidden })
}

/// Starts a container with these mounts, or takes over the one that a process with the same settings left.
async fn start(options: &Options, mounts: Vec<BindMount>) -> Result<ReadyContainer> {
    let socket = match options.socket.clone() {
        Some(socket) => socket,
        None => run_blocking(|| find_socket(|name| std::env::var(name).ok(), Path::exists)).await?,
    };
    let engine = Engine::connect(socket, options.engine_timeout).await?;
    let image = engine.image(&options.image).await?;
    let machine = run_blocking(|| Ok(Machine::look())).await?;
    let spec = ContainerSpec::new(options, engine.facts, &image, mounts.clone(), machine)?;
    Ok(ReadyContainer { container: LiveContainer::start(engine, spec).await?, mounts })
}

/// Returns the environment of a command. The last value of a name wins.
fn environment(image: &[String], options: &Options, command: &Command) -> Vec<String> {
    let home = ("HOME".to_owned(), HOME.to_owned());
    let split = |variable: &String| {
        let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
        (name.to_owned(), value.to_owned())
    };
    let image = image.iter().map(split);
    let mut env: Vec<(String, String)> = Vec::new();
    for (name, value) in image.chain([home]).chain(options.env.iter().chain(&command.env).cloned()) {
        match env.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => env.push((name, value)),
        }
    }
    env.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

impl SandboxBackend for Container {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn run(&self, command: &Command, sink: &mut Sink<'_>) -> Result<Output> {
        let (cwd, options) = (command.cwd.clone(), self.options.clone());
        let directory = self.with_root(move |root| {
            // Both are needed: a missing directory has a canonical name too, and the command enters it by that name.
            root.open_directory(&cwd)?;
            let seen_at = options.seen_at.as_deref().unwrap_or(root.path());
            Ok(seen_at.join(root.canonical_name(&cwd).unwrap_or_default()))
        });
        let directory = directory.await?.display().to_string();
        for _ in 0..MAX_STARTS {
            let guard = self.ready(&command.hidden, command.timeout).await?;
            let Some(ready) = &*guard else { break };
            let env = environment(&ready.container.env, &self.options, command);
            let text = CommandText::new(command, &directory, &env)?;
            let limits = OutputLimits { max_bytes: self.options.max_output_bytes, spool: self.spool.clone() };
            if let Some(output) = running::run(&ready.container, command, &text, limits, sink).await? {
                return Ok(output);
            }
        }
        let message = format!("the container ended {MAX_STARTS} times before the command could start");
        Err(Error::new(ErrorKind::Unavailable, message).with_hint("see if another program removes containers of rath"))
    }

    async fn read(&self, path: &str, range: ByteRange) -> Result<Vec<u8>> {
        let path = path.to_owned();
        self.with_root(move |root| root.read(&path, range)).await
    }

    async fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let (path, bytes, cancel) = (path.to_owned(), bytes.to_owned(), CancelOnDrop::default());
        let flag = cancel.flag();
        let staging = self.options.staging.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.with_root(move |root| root.write_unless(&path, &bytes, &flag, staging.as_deref())).await
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let path = path.to_owned();
        self.with_root(move |root| root.remove(&path)).await
    }

    async fn list(&self, path: &str) -> Result<Vec<DirEntry>> {
        let path = path.to_owned();
        self.with_root(move |root| root.list(&path)).await
    }

    async fn stat(&self, path: &str) -> Result<Option<DirEntry>> {
        let path = path.to_owned();
        self.with_root(move |root| root.stat(&path)).await
    }

    async fn spool_path(&self, digest: Digest) -> Result<Option<PathBuf>> {
        let spool = self.spool.clone();
        run_blocking(move || Ok(spool.find(digest))).await
    }

    /// Returns the restrictions in force. The first call starts the container.
    async fn capabilities(&self) -> Result<Capabilities> {
        let guard = self.ready(&[], self.options.engine_timeout).await?;
        let limits = guard.as_ref().map(|ready| ready.container.limits.clone()).unwrap_or_default();
        let mut capabilities = Capabilities::default();
        capabilities.isolation = Isolation::Container;
        capabilities.network = self.options.network;
        capabilities.memory = limits.memory;
        capabilities.processes = limits.processes;
        capabilities.file_size = limits.file_size;
        capabilities.cpu_time = limits.cpu_time;
        capabilities.streaming = true;
        Ok(capabilities)
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.options.directory)
    }

    fn seen_at(&self) -> Option<&Path> {
        Some(self.options.seen_at())
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

    /// Returns a sandbox with a container of its own, in which the other directory is where this one is here.
    fn with_directory(&self, directory: &Path) -> Option<Sandbox> {
        let mut options = self.options.clone();
        options.seen_at = Some(self.options.seen_at.clone().unwrap_or_else(|| resolved(&self.options.directory)));
        options.directory = directory.to_owned();
        Some(Sandbox::new(Container::with_options(options, self.spool.clone())))
    }
}

impl From<Container> for Sandbox {
    fn from(container: Container) -> Self {
        Sandbox::new(container)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_variable_wins() {
        let mut options = Options::new("a".to_owned(), "/w".into());
        options.env = vec![("A".to_owned(), "settings".to_owned()), ("=odd".to_owned(), "\n".to_owned())];
        let mut command = Command::shell("env");
        command.env = vec![("A".to_owned(), "command".to_owned())];
        let env =
            environment(&["PATH=/bin".to_owned(), "HOME=/root".to_owned(), "FLAG".to_owned()], &options, &command);
        assert_eq!(env, ["PATH=/bin", "HOME=/home/rath", "FLAG=", "A=command", "=odd=\n"]);
    }

    #[test]
    fn a_fork_is_seen_at_the_path_of_the_original() {
        let original = Sandbox::new(Container::image("a").directory("/nowhere/app").hide("/nowhere/app/.env"));
        let fork = original.with_directory("/nowhere/fork".as_ref()).expect("it is on this machine");
        assert_eq!(fork.uri(), "container:a?directory=/nowhere/fork&hide=/nowhere/app/.env&at=/nowhere/app");
        assert_eq!((fork.directory(), fork.seen_at()), (Some("/nowhere/fork".as_ref()), Some("/nowhere/app".as_ref())));
    }
}
