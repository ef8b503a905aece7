//! Where tools run: commands and files, in a directory of this machine or elsewhere.
//!
//! A [`Sandbox`] is what people hold, a [`SandboxBackend`] what authors write.

mod beneath;
mod capabilities;
mod command;
#[cfg(feature = "process")]
mod environment;
mod error;
mod files;
#[cfg(feature = "process")]
mod groups;
#[cfg(feature = "process")]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports, reason = "commands run on Linux only"))]
mod isolated;
#[cfg(feature = "process")]
mod limits;
#[cfg(feature = "process")]
mod local;
#[cfg(feature = "process")]
mod options;
#[cfg(feature = "process")]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports, reason = "commands run on Linux only"))]
mod process;
mod registry;

pub use self::beneath::{OWN, Root, is_temporary_name};
pub use self::capabilities::{Capabilities, Host, Isolation, Limit, Mechanism, Network};
pub use self::command::{Command, Ended, Printed, Ran, Sink, Stream};
pub use self::error::{Error, ErrorKind, Result};
pub use self::files::{Digest, Entry, Kind, Part};
#[cfg(feature = "process")]
pub use self::isolated::Isolated;
#[cfg(feature = "process")]
pub use self::local::Local;
pub use self::registry::Registry;

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

/// Where tools run.
///
/// Handles are shared: the last one that is let go closes the sandbox. A directory that the user gave is never removed.
#[derive(Clone)]
pub struct Sandbox(Arc<dyn Erased>);

/// What the author of a sandbox writes.
///
/// Paths are relative to the workspace, and none may lead out of it: not by `..`, not as an absolute path, not by a link,
/// not because somebody changes a directory on the way. Such a path is an error of the kind
/// [`OutsideWorkspace`](crate::ErrorKind::OutsideWorkspace). What goes wrong with a file is one of the kind [`Io`](crate::ErrorKind::Io), in words
/// that hold no path but the one that was asked for.
pub trait SandboxBackend: Send + Sync + 'static {
    /// The URI under which it stands in the record, and by which it is opened again. Never a credential.
    fn uri(&self) -> &str;

    /// Runs a command to its end, and gives what it prints to the sink as it comes.
    ///
    /// When this comes back or is dropped, nothing that the command started is left running.
    fn run(&self, command: &Command, sink: &mut Sink<'_>) -> impl Future<Output = Result<Ran>> + Send;

    /// Reads a part of a file.
    fn read(&self, path: &str, part: Part) -> impl Future<Output = Result<Vec<u8>>> + Send;

    /// Writes a file and the directories that it lies in. Whoever reads meanwhile finds all of the old or all of the new.
    fn write(&self, path: &str, bytes: &[u8]) -> impl Future<Output = Result<()>> + Send;

    /// What is in a directory, by name.
    fn list(&self, path: &str) -> impl Future<Output = Result<Vec<Entry>>> + Send;

    /// What is at a path, if anything is; a link is followed as far as it stays inside.
    fn look(&self, path: &str) -> impl Future<Output = Result<Option<Entry>>> + Send;

    /// The file that holds what a command printed, where that was too much for memory.
    fn spooled(&self, digest: Digest) -> Option<PathBuf> {
        let _ = digest;
        None
    }

    /// What it can do on this machine, found by trying it.
    fn capabilities(&self) -> impl Future<Output = Result<Capabilities>> + Send {
        async { Ok(Capabilities::default()) }
    }

    /// The directory on this machine that it works in, if it is one: then the versions of its files can be kept.
    fn directory(&self) -> Option<&Path> {
        None
    }

    /// A sandbox of the same kind that works in another directory of this machine.
    ///
    /// Where the two can be told apart by what commands see, the other shows the path of this one.
    fn over(&self, directory: &Path) -> Option<Sandbox> {
        let _ = directory;
        None
    }
}

impl Sandbox {
    /// The sandbox that a URI names, as `isolated:./?network=on`: one of the kinds that rath brings.
    pub fn open(uri: &str) -> Result<Self> {
        Registry::new().open(uri)
    }

    #[cfg(feature = "process")]
    /// Ordinary processes of the user in a directory of this machine. See [`Local`] for what can be set.
    pub fn local(directory: impl Into<PathBuf>) -> Self {
        Sandbox::new(Local::new(directory))
    }

    #[cfg(feature = "process")]
    /// Processes in a world of their own, in a directory of this machine. See [`Isolated`] for what can be set.
    pub fn isolated(directory: impl Into<PathBuf>) -> Self {
        Sandbox::new(Isolated::new(directory))
    }

    /// A sandbox with this backend.
    pub fn new(backend: impl SandboxBackend) -> Self {
        Sandbox(Arc::new(backend))
    }

    /// The URI under which it stands in the record.
    pub fn uri(&self) -> &str {
        self.0.uri()
    }

    /// Runs a command to its end, and gives what it prints to the sink as it comes.
    pub async fn run(&self, command: &Command, sink: &mut Sink<'_>) -> Result<Ran> {
        self.0.run(command, sink).await
    }

    /// Reads a part of a file.
    pub async fn read(&self, path: &str, part: Part) -> Result<Vec<u8>> {
        self.0.read(path, part).await
    }

    /// Writes a file and the directories that it lies in.
    pub async fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.0.write(path, bytes).await
    }

    /// What is in a directory, by name.
    pub async fn list(&self, path: &str) -> Result<Vec<Entry>> {
        self.0.list(path).await
    }

    /// What is at a path, if anything is.
    pub async fn look(&self, path: &str) -> Result<Option<Entry>> {
        self.0.look(path).await
    }

    /// The file that holds what a command printed, where that was too much for memory.
    pub fn spooled(&self, digest: Digest) -> Option<PathBuf> {
        self.0.spooled(digest)
    }

    /// What it can do on this machine, found by trying it.
    pub async fn capabilities(&self) -> Result<Capabilities> {
        self.0.capabilities().await
    }

    /// The directory on this machine that it works in, if it is one.
    pub fn directory(&self) -> Option<&Path> {
        self.0.directory()
    }

    /// A sandbox of the same kind that works in another directory of this machine.
    pub fn over(&self, directory: &Path) -> Option<Sandbox> {
        self.0.over(directory)
    }
}

#[cfg(feature = "process")]
impl From<Local> for Sandbox {
    fn from(local: Local) -> Self {
        Sandbox::new(local)
    }
}

#[cfg(feature = "process")]
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

type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A sandbox behind a pointer.
trait Erased: Send + Sync {
    fn uri(&self) -> &str;
    fn run<'a>(&'a self, command: &'a Command, sink: &'a mut Sink<'_>) -> Later<'a, Ran>;
    fn read<'a>(&'a self, path: &'a str, part: Part) -> Later<'a, Vec<u8>>;
    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> Later<'a, ()>;
    fn list<'a>(&'a self, path: &'a str) -> Later<'a, Vec<Entry>>;
    fn look<'a>(&'a self, path: &'a str) -> Later<'a, Option<Entry>>;
    fn spooled(&self, digest: Digest) -> Option<PathBuf>;
    fn capabilities(&self) -> Later<'_, Capabilities>;
    fn directory(&self) -> Option<&Path>;
    fn over(&self, directory: &Path) -> Option<Sandbox>;
}

impl<B: SandboxBackend> Erased for B {
    fn uri(&self) -> &str {
        SandboxBackend::uri(self)
    }

    fn run<'a>(&'a self, command: &'a Command, sink: &'a mut Sink<'_>) -> Later<'a, Ran> {
        Box::pin(SandboxBackend::run(self, command, sink))
    }

    fn read<'a>(&'a self, path: &'a str, part: Part) -> Later<'a, Vec<u8>> {
        Box::pin(SandboxBackend::read(self, path, part))
    }

    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> Later<'a, ()> {
        Box::pin(SandboxBackend::write(self, path, bytes))
    }

    fn list<'a>(&'a self, path: &'a str) -> Later<'a, Vec<Entry>> {
        Box::pin(SandboxBackend::list(self, path))
    }

    fn look<'a>(&'a self, path: &'a str) -> Later<'a, Option<Entry>> {
        Box::pin(SandboxBackend::look(self, path))
    }

    fn spooled(&self, digest: Digest) -> Option<PathBuf> {
        SandboxBackend::spooled(self, digest)
    }

    fn capabilities(&self) -> Later<'_, Capabilities> {
        Box::pin(SandboxBackend::capabilities(self))
    }

    fn directory(&self) -> Option<&Path> {
        SandboxBackend::directory(self)
    }

    fn over(&self, directory: &Path) -> Option<Sandbox> {
        SandboxBackend::over(self, directory)
    }
}
