//! Commands and files behind walls.
//!
//! A [`Sandbox`] runs commands and reads and writes files in one directory, the workspace. It is opened by URI or built:
//!
#![cfg_attr(all(feature = "process", target_os = "linux"), doc = "```")]
#![cfg_attr(not(all(feature = "process", target_os = "linux")), doc = "```ignore")]
//! use rath_sandbox::{ByteRange, Command, ErrorKind, ExitStatus, Sandbox};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> rath_sandbox::Result<()> {
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path().display();
//! let sandbox = Sandbox::open(&format!("local:{directory}?file_size=1g"))?;
//! sandbox.write("greeting.txt", b"hello\n").await?;
//!
//! let output = sandbox.run(&Command::shell("cat greeting.txt; echo oops >&2; exit 3")).await?;
//! assert_eq!(output.status, ExitStatus::Exit(3));
//! assert_eq!(output.stdout.head, b"hello\n");
//! assert_eq!(output.stderr.head, b"oops\n");
//!
//! // No path leads out of the workspace.
//! let everything = ByteRange { offset: 0, max_len: u64::MAX };
//! let error = sandbox.read("../secret", everything).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::OutsideWorkspace);
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! There are two kinds of sandbox. Both run commands on Linux only: see [platforms](#platforms).
//!
//! | | `local:` ([`Local`]) | `isolated:` ([`Isolated`]) |
//! |---|---|---|
//! | files by name ([`read`](Sandbox::read), [`write`](Sandbox::write), [`list`](Sandbox::list), [`stat`](Sandbox::stat)) | workspace only | workspace only |
//! | commands write | anywhere the user can | the workspace; `/tmp`, `/var/tmp`, `/dev/shm` and the home directory of one command |
//! | commands read | anything the user can | the machine without its private files, or programs and libraries only |
//! | network | the machine's | none, or the machine's |
//! | processes of others | visible | invisible |
//! | privileges | the user's | none: no capabilities, no setuid programs, a seccomp filter |
//! | environment | a short list of harmless variables, and what is added | the same |
//! | processes of a command that ended, timed out or was dropped | all killed, daemons included | all killed, daemons included |
//! | limits on memory, processes, file size, processor time, output | on request | on request; processes by default |
//!
//! A restriction that was asked for and that the machine cannot provide is an error of the kind
//! [`Unavailable`](ErrorKind::Unavailable): nothing runs without it. [`Sandbox::capabilities`] returns what is in force.
//!
//! The walls are those of the Linux kernel, which all commands share: a bug in the kernel is a way out. `isolated` does not
//! limit the use of the disk, and does not hide the programs and the configuration of the machine.
//!
//! # Platforms
//!
//! | | Linux | other Unix | elsewhere |
//! |---|---|---|---|
//! | types and traits for backends, [`Registry`] | yes | yes | yes |
//! | `local:` and [`Root`]: files | yes | yes | error: needs Unix |
//! | `local:`: commands and limits | yes | error: needs Linux | error: needs Unix |
//! | `isolated:` | yes | error: needs Linux | error: needs Linux |
//!
//! The errors are of the kind [`Unavailable`](ErrorKind::Unavailable). Other Unix systems return them at the first use of a
//! sandbox; elsewhere [`Sandbox::open`] returns them, and the builders [`Local`] and [`Isolated`] do not exist.
//!
//! # Backends
//!
//! A sandbox of another kind, such as a container or a remote machine, implements [`SandboxBackend`]. [`Registry`] adds its
//! scheme to those that a URI can name. Without the feature `process` this crate holds the types for such backends only,
//! and [`Root`], which confines paths to a directory.
//!
//! `unsafe` code is in two places: `process`, which clones processes and moves the environment, and `isolated`, which makes system calls that have no
//! safe wrapper.

#[cfg(all(unix, feature = "process"))]
pub mod backend;
#[cfg(all(unix, feature = "process"))]
mod blocking;
mod capabilities;
#[cfg(all(unix, feature = "process"))]
mod capture;
#[cfg(all(unix, feature = "process"))]
mod cgroups;
mod command;
#[cfg(all(unix, feature = "process"))]
mod environment;
mod error;
mod files;
#[cfg(all(unix, feature = "process"))]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports, reason = "commands run on Linux only"))]
mod isolated;
#[cfg(all(unix, feature = "process"))]
mod limits;
#[cfg(all(unix, feature = "process"))]
mod local;
#[cfg(all(not(unix), feature = "process"))]
mod local_unsupported;
#[cfg(target_os = "linux")]
mod mount_table;
#[cfg(not(target_os = "linux"))]
#[path = "mount_table_unsupported.rs"]
mod mount_table;
mod private_paths;
#[cfg(all(unix, feature = "process"))]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports, reason = "commands run on Linux only"))]
mod process;
mod registry;
#[cfg(unix)]
mod root;
#[cfg(not(unix))]
#[path = "root_unsupported.rs"]
mod root;
mod running_process;
mod shared_dirs;
mod temp_dir;
#[cfg(all(unix, feature = "process"))]
mod uri;

pub use self::capabilities::{Capabilities, HostAccess, Isolation, Limit, Mechanism, Network};
#[cfg(all(unix, feature = "process"))]
pub use self::capture::{OutputCapture, OutputFiles};
pub use self::command::{CapturedStream, Command, ExitStatus, ExtraAccess, Output, Sink, Stream};
pub use self::error::{Error, ErrorKind, Result};
pub use self::files::{ByteRange, Digest, DirEntry, FileKind, RATH_DIR, is_temporary_name};
#[cfg(all(unix, feature = "process"))]
pub use self::isolated::Isolated;
#[cfg(all(unix, feature = "process"))]
pub use self::local::Local;
pub use self::private_paths::{home_directories, own_data_directory, private_paths_in, resolved};
#[cfg(all(target_os = "linux", feature = "process"))]
pub use self::process::hide_environment;
pub use self::registry::Registry;
pub use self::root::Root;
pub use self::running_process::{Process, ProcessControl, ProcessInput, ProcessOutput};
pub use self::shared_dirs::{SharedDir, SharedDirs};
pub use self::temp_dir::{TempDir, left_temporaries_blocking, sweep_temporaries_blocking};

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

/// A directory in which commands run and files are read and written.
///
/// Clones are handles to the same sandbox, which is closed when the last one is dropped. The directory itself is never
/// removed.
///
#[cfg_attr(all(feature = "process", target_os = "linux"), doc = "```")]
#[cfg_attr(not(all(feature = "process", target_os = "linux")), doc = "```ignore")]
/// use rath_sandbox::{Command, Sandbox};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath_sandbox::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let sandbox = Sandbox::local(directory.path());
/// sandbox.write("src/main.rs", b"fn main() {}\n").await?;
/// assert_eq!(sandbox.list("src").await?[0].name, "main.rs");
/// assert_eq!(sandbox.run(&Command::shell("wc -l < src/main.rs")).await?.stdout.text().trim(), "1");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sandbox(Arc<dyn ErasedBackend>);

/// The implementation of a sandbox.
///
/// Paths are relative to the workspace. A path that leads out of it (by `..`, as an absolute path, through a symlink, or
/// because a directory on the way is replaced meanwhile) is an error of the kind
/// [`OutsideWorkspace`](crate::ErrorKind::OutsideWorkspace). Other failures of a file operation are of the kind
/// [`Io`](crate::ErrorKind::Io); their messages contain no path except the requested one.
///
/// Futures are polled on the threads of a runtime, so work that blocks belongs on other threads. When the future of a write is
/// dropped, the write should not take effect later.
///
/// Implemented by [`Local`] and [`Isolated`].
pub trait SandboxBackend: Send + Sync + 'static {
    /// Returns the URI that opens this sandbox again. It must not contain a credential, since callers may store it.
    fn uri(&self) -> &str;

    /// Runs a command to its end, and passes its output to the sink as it arrives.
    ///
    /// When the future has completed or is dropped, no process of the command is left running.
    fn run(&self, command: &Command, sink: &mut Sink<'_>) -> impl Future<Output = Result<Output>> + Send;

    /// Starts a command with open pipes: see [`Sandbox::start`]. The default starts nothing, and fails.
    fn start(&self, command: &Command) -> impl Future<Output = Result<Process>> + Send {
        let _ = command;
        async move {
            let message = format!("cannot start a process that stays: {} runs commands to their end only", self.uri());
            Err(Error::new(ErrorKind::Unavailable, message).with_hint("its backend lacks `SandboxBackend::start`"))
        }
    }

    /// Reads a part of a file.
    fn read(&self, path: &str, range: ByteRange) -> impl Future<Output = Result<Vec<u8>>> + Send;

    /// Writes a file, and creates missing directories above it. A concurrent reader gets the old content or the new one,
    /// never a mixture.
    fn write(&self, path: &str, bytes: &[u8]) -> impl Future<Output = Result<()>> + Send;

    /// Removes a file, and the directories above it that are empty then, except the workspace.
    ///
    /// Called for files that a tool deletes and, if the workspace is no directory of this machine, to give it the files of another
    /// version: those that the version does not have are removed before others are written. The default removes nothing, and fails.
    fn remove(&self, path: &str) -> impl Future<Output = Result<()>> + Send {
        async move {
            let message = format!("cannot remove {path}: {} removes no files", self.uri());
            Err(Error::new(ErrorKind::Unavailable, message).with_hint("its backend lacks `SandboxBackend::remove`"))
        }
    }

    /// Returns the entries of a directory, sorted by name. The path of the workspace itself is empty.
    fn list(&self, path: &str) -> impl Future<Output = Result<Vec<DirEntry>>> + Send;

    /// Returns the file or directory at a path, or `None` if there is none. Symlinks are followed inside the workspace.
    fn stat(&self, path: &str) -> impl Future<Output = Result<Option<DirEntry>>> + Send;

    /// Returns the file with output that was too much for memory, by the digest of that output.
    fn spool_path(&self, digest: Digest) -> impl Future<Output = Result<Option<PathBuf>>> + Send {
        let _ = digest;
        async { Ok(None) }
    }

    /// Returns the restrictions that are in force on this machine, after trying them.
    fn capabilities(&self) -> impl Future<Output = Result<Capabilities>> + Send {
        async { Ok(Capabilities::default()) }
    }

    /// Returns the workspace, if it is a directory of this machine.
    fn directory(&self) -> Option<&Path> {
        None
    }

    /// Returns the path at which commands see the workspace, if that is a directory of this machine.
    fn seen_at(&self) -> Option<&Path> {
        self.directory()
    }

    /// Returns the paths that the settings hide. Relative ones are relative to the workspace.
    fn hidden(&self) -> &[PathBuf] {
        &[]
    }

    /// Returns a sandbox with the same settings in another directory of this machine, if the backend can work there.
    ///
    /// Commands see the other directory at the path of this one, where the backend can arrange that.
    fn with_directory(&self, directory: &Path) -> Option<Sandbox> {
        let _ = directory;
        None
    }

    /// Returns a sandbox with the same settings and a workspace of its own, for a fork, if the workspace is no directory of this machine
    /// and the backend can make another one. See [`Sandbox::for_fork`].
    fn for_fork(&self, fork: &str, start: ForkStart) -> Option<Sandbox> {
        let _ = (fork, start);
        None
    }

    /// Ends what the sandbox and its forks keep running elsewhere, and waits until it has ended. See [`Sandbox::close`].
    fn close(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Returns a sandbox in another directory, as [`with_directory`](Self::with_directory) does, that shows directories of a workspace
    /// too; none if the backend cannot.
    fn with_shared(&self, directory: &Path, shared: &SharedDirs) -> Option<Sandbox> {
        let _ = (directory, shared);
        None
    }

    /// Returns true if [`with_shared`](Self::with_shared) can show directories.
    fn can_show_dirs(&self) -> bool {
        false
    }

    /// Returns the directories of another workspace that a command could only read, although they have a folder for changes.
    fn read_only_dirs(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns the directories of another workspace that this sandbox shows.
    fn shared(&self) -> Option<&SharedDirs> {
        None
    }

    /// Hides a file or directory of this machine from commands from now on, where the backend can: see [`Sandbox::keep_out`].
    fn keep_out(&self, path: &Path) {
        let _ = path;
    }

    /// Creates temporary files in this directory of this machine from now on, where the backend can: see [`Sandbox::stage_in`].
    fn stage_in(&self, directory: &Path) {
        let _ = directory;
    }
}

/// The state of the workspace of a fork.
///
/// Passed to [`Sandbox::for_fork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkStart {
    /// It is made at the first use, and empty.
    New,
    /// It was made before, and has the files of the fork.
    Existing,
}

impl Sandbox {
    /// Opens a sandbox of one of the built-in kinds by its URI, such as `isolated:./?network=on`.
    ///
    /// The directory is opened at the first use.
    pub fn open(uri: &str) -> Result<Self> {
        Registry::new().open(uri)
    }

    /// Creates a sandbox that runs commands as ordinary processes of the user. See [`Local`] for its settings.
    #[cfg(all(unix, feature = "process"))]
    pub fn local(directory: impl Into<PathBuf>) -> Self {
        Sandbox::new(Local::new(directory))
    }

    /// Creates a sandbox that runs commands in namespaces of their own. See [`Isolated`] for its settings.
    #[cfg(all(unix, feature = "process"))]
    pub fn isolated(directory: impl Into<PathBuf>) -> Self {
        Sandbox::new(Isolated::new(directory))
    }

    /// Creates a sandbox from its backend.
    pub fn new(backend: impl SandboxBackend) -> Self {
        Sandbox(Arc::new(backend))
    }

    /// Returns the URI that opens this sandbox again. It contains no credential.
    pub fn uri(&self) -> &str {
        self.0.uri()
    }

    /// Runs a command to its end, and returns its output.
    ///
    /// Dropping the future kills the command. No process of the command outlives the call.
    pub async fn run(&self, command: &Command) -> Result<Output> {
        self.0.run(command, &mut |_, _| {}).await
    }

    /// Runs a command to its end, and passes its output to the sink as it arrives.
    ///
    /// The returned output is the same as that of [`run`](Self::run).
    pub async fn run_streaming(&self, command: &Command, sink: &mut Sink<'_>) -> Result<Output> {
        self.0.run(command, sink).await
    }

    /// Starts a command with open pipes, behind the same walls as the commands that [`run`](Self::run) runs.
    ///
    /// The process lives until it ends or the returned value is dropped: neither the timeout of the command nor the limit on output
    /// holds for it. See [`Process`] for an example.
    pub async fn start(&self, command: &Command) -> Result<Process> {
        self.0.start(command).await
    }

    /// Reads a part of a file.
    pub async fn read(&self, path: &str, range: ByteRange) -> Result<Vec<u8>> {
        self.0.read(path, range).await
    }

    /// Writes a file, and creates missing directories above it. A concurrent reader gets the old content or the new one,
    /// never a mixture.
    pub async fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.0.write(path, bytes).await
    }

    /// Removes a file, if the backend can. Directories above it that are empty then are removed too. A symlink is not removed.
    pub async fn remove(&self, path: &str) -> Result<()> {
        self.0.remove(path).await
    }

    /// Returns the entries of a directory, sorted by name. The path of the workspace itself is empty.
    pub async fn list(&self, path: &str) -> Result<Vec<DirEntry>> {
        self.0.list(path).await
    }

    /// Returns the file or directory at a path, or `None` if there is none. Symlinks are followed inside the workspace.
    pub async fn stat(&self, path: &str) -> Result<Option<DirEntry>> {
        self.0.stat(path).await
    }

    /// Returns the file with output that was too much for memory, by the digest of that output.
    pub async fn spool_path(&self, digest: Digest) -> Result<Option<PathBuf>> {
        self.0.spool_path(digest).await
    }

    /// Returns the restrictions that are in force on this machine, after trying them.
    pub async fn capabilities(&self) -> Result<Capabilities> {
        self.0.capabilities().await
    }

    /// Returns the workspace, if it is a directory of this machine.
    pub fn directory(&self) -> Option<&Path> {
        self.0.directory()
    }

    /// Returns the path at which commands see the workspace, if that is a directory of this machine.
    pub fn seen_at(&self) -> Option<&Path> {
        self.0.seen_at()
    }

    /// Returns the paths that the settings hide. Relative ones are relative to the workspace.
    ///
    /// ```
    /// # #[cfg(all(unix, feature = "process"))] {
    /// use rath_sandbox::{Isolated, Sandbox};
    ///
    /// assert_eq!(Sandbox::new(Isolated::new("./").hide("notes")).hidden(), ["notes"].map(std::path::PathBuf::from));
    /// # }
    /// ```
    pub fn hidden(&self) -> &[PathBuf] {
        self.0.hidden()
    }

    /// Returns a sandbox with the same settings in another directory of this machine, if the backend can work there.
    ///
    /// Commands see the other directory at the path of this one, where the backend can arrange that. Behind walls they do not see this one.
    pub fn with_directory(&self, directory: &Path) -> Option<Sandbox> {
        self.0.with_directory(directory)
    }

    /// Returns a sandbox with the same settings and a workspace of its own, if the workspace is no directory of this machine and the
    /// backend can make another one. One name gives one sandbox, in later processes too.
    ///
    /// The workspace of a new fork is empty. That of an existing one is not made again: if it is gone, every use fails.
    pub fn for_fork(&self, fork: &str, start: ForkStart) -> Option<Sandbox> {
        self.0.for_fork(fork, start)
    }

    /// Ends what the sandbox and its forks keep running elsewhere, and waits until it has ended: a remote machine that was made for them
    /// is removed, unless its settings say that it stays. Nothing can be done in them afterwards. The drop of the last handle does the
    /// same without waiting. For a directory of this machine there is nothing to end.
    ///
    /// ```
    /// # #[cfg(all(unix, feature = "process"))] {
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> rath_sandbox::Result<()> {
    /// rath_sandbox::Sandbox::local("./").close().await
    /// # }
    /// # main().expect("there is nothing to end");
    /// # }
    /// ```
    pub async fn close(&self) -> Result<()> {
        self.0.close().await
    }

    /// Returns a sandbox in another directory, as [`with_directory`](Self::with_directory) does, that shows directories of a workspace
    /// too: those that no version of its files holds. None if the backend cannot; one that cannot show directories may still keep the
    /// rest of the workspace out of sight, if `shared` names none.
    pub fn with_shared(&self, directory: &Path, shared: &SharedDirs) -> Option<Sandbox> {
        self.0.with_shared(directory, shared)
    }

    /// Returns true if [`with_shared`](Self::with_shared) can show directories.
    pub fn can_show_dirs(&self) -> bool {
        self.0.can_show_dirs()
    }

    /// Returns the directories of another workspace that a command could only read, although they have a folder for changes: the system
    /// could not mount an overlay.
    pub fn read_only_dirs(&self) -> Vec<PathBuf> {
        self.0.read_only_dirs()
    }

    /// Returns the directories of another workspace that this sandbox shows.
    pub fn shared(&self) -> Option<&SharedDirs> {
        self.0.shared()
    }

    /// Hides a file or directory of this machine from commands from now on, together with the files beside it whose names
    /// continue its own behind a `-`, as those of a database do. An isolated sandbox can; it is not part of its URI, and holds in
    /// the sandboxes that [`with_directory`](Self::with_directory) returned too.
    pub fn keep_out(&self, path: &Path) {
        self.0.keep_out(path);
    }

    /// Creates the temporary files of [`write`](Self::write) in this directory of this machine from now on, if it is on the file
    /// system of the file that is written. Otherwise they are beside that file, and a file `NAME.note` in the directory holds
    /// their path meanwhile. This holds in the sandboxes that [`with_directory`](Self::with_directory) returned too.
    ///
    /// The caller removes both if the process is killed.
    pub fn stage_in(&self, directory: &Path) {
        self.0.stage_in(directory);
    }
}

#[cfg(all(unix, feature = "process"))]
impl From<Local> for Sandbox {
    fn from(local: Local) -> Self {
        Sandbox::new(local)
    }
}

#[cfg(all(unix, feature = "process"))]
impl From<Isolated> for Sandbox {
    fn from(isolated: Isolated) -> Self {
        Sandbox::new(isolated)
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sandbox").field(&self.uri()).finish()
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The object-safe form of [`SandboxBackend`].
trait ErasedBackend: Send + Sync {
    fn uri(&self) -> &str;
    fn run<'a>(&'a self, command: &'a Command, sink: &'a mut Sink<'_>) -> BoxFuture<'a, Output>;
    fn start<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Process>;
    fn read<'a>(&'a self, path: &'a str, range: ByteRange) -> BoxFuture<'a, Vec<u8>>;
    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> BoxFuture<'a, ()>;
    fn remove<'a>(&'a self, path: &'a str) -> BoxFuture<'a, ()>;
    fn list<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Vec<DirEntry>>;
    fn stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Option<DirEntry>>;
    fn spool_path(&self, digest: Digest) -> BoxFuture<'_, Option<PathBuf>>;
    fn capabilities(&self) -> BoxFuture<'_, Capabilities>;
    fn directory(&self) -> Option<&Path>;
    fn seen_at(&self) -> Option<&Path>;
    fn hidden(&self) -> &[PathBuf];
    fn with_directory(&self, directory: &Path) -> Option<Sandbox>;
    fn for_fork(&self, fork: &str, start: ForkStart) -> Option<Sandbox>;
    fn close(&self) -> BoxFuture<'_, ()>;
    fn with_shared(&self, directory: &Path, shared: &SharedDirs) -> Option<Sandbox>;
    fn can_show_dirs(&self) -> bool;
    fn read_only_dirs(&self) -> Vec<PathBuf>;
    fn shared(&self) -> Option<&SharedDirs>;
    fn keep_out(&self, path: &Path);
    fn stage_in(&self, directory: &Path);
}

impl<B: SandboxBackend> ErasedBackend for B {
    fn uri(&self) -> &str {
        SandboxBackend::uri(self)
    }

    fn run<'a>(&'a self, command: &'a Command, sink: &'a mut Sink<'_>) -> BoxFuture<'a, Output> {
        Box::pin(SandboxBackend::run(self, command, sink))
    }

    fn start<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Process> {
        Box::pin(SandboxBackend::start(self, command))
    }

    fn read<'a>(&'a self, path: &'a str, range: ByteRange) -> BoxFuture<'a, Vec<u8>> {
        Box::pin(SandboxBackend::read(self, path, range))
    }

    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> BoxFuture<'a, ()> {
        Box::pin(SandboxBackend::write(self, path, bytes))
    }

    fn remove<'a>(&'a self, path: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(SandboxBackend::remove(self, path))
    }

    fn list<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Vec<DirEntry>> {
        Box::pin(SandboxBackend::list(self, path))
    }

    fn stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Option<DirEntry>> {
        Box::pin(SandboxBackend::stat(self, path))
    }

    fn spool_path(&self, digest: Digest) -> BoxFuture<'_, Option<PathBuf>> {
        Box::pin(SandboxBackend::spool_path(self, digest))
    }

    fn capabilities(&self) -> BoxFuture<'_, Capabilities> {
        Box::pin(SandboxBackend::capabilities(self))
    }

    fn directory(&self) -> Option<&Path> {
        SandboxBackend::directory(self)
    }

    fn seen_at(&self) -> Option<&Path> {
        SandboxBackend::seen_at(self)
    }

    fn hidden(&self) -> &[PathBuf] {
        SandboxBackend::hidden(self)
    }

    fn with_directory(&self, directory: &Path) -> Option<Sandbox> {
        SandboxBackend::with_directory(self, directory)
    }

    fn for_fork(&self, fork: &str, start: ForkStart) -> Option<Sandbox> {
        SandboxBackend::for_fork(self, fork, start)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(SandboxBackend::close(self))
    }

    fn with_shared(&self, directory: &Path, shared: &SharedDirs) -> Option<Sandbox> {
        SandboxBackend::with_shared(self, directory, shared)
    }

    fn can_show_dirs(&self) -> bool {
        SandboxBackend::can_show_dirs(self)
    }

    fn read_only_dirs(&self) -> Vec<PathBuf> {
        SandboxBackend::read_only_dirs(self)
    }

    fn shared(&self) -> Option<&SharedDirs> {
        SandboxBackend::shared(self)
    }

    fn keep_out(&self, path: &Path) {
        SandboxBackend::keep_out(self, path);
    }

    fn stage_in(&self, directory: &Path) {
        SandboxBackend::stage_in(self, directory);
    }
}
