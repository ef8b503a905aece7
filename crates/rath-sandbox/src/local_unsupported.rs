//! [`Sandbox::local`] and [`Sandbox::isolated`] for platforms other than Unix: every use of such a sandbox is an error.

use std::path::PathBuf;

use super::{ByteRange, Command, DirEntry, Output, Sandbox, SandboxBackend, Sink};
use crate::error::{Error, Result};

/// A sandbox that this platform cannot provide.
struct UnsupportedSandbox {
    uri: String,
    /// The kind, as in a URI.
    kind: &'static str,
    /// The platform that provides it.
    platform: &'static str,
}

impl Sandbox {
    /// Creates a sandbox that runs commands as ordinary processes of the user. On this platform its use is an error.
    pub fn local(directory: impl Into<PathBuf>) -> Self {
        UnsupportedSandbox::create("local", "Unix", directory.into())
    }

    /// Creates a sandbox that runs commands in namespaces of their own. On this platform its use is an error.
    pub fn isolated(directory: impl Into<PathBuf>) -> Self {
        UnsupportedSandbox::create("isolated", "Linux", directory.into())
    }
}

impl UnsupportedSandbox {
    fn create(kind: &'static str, platform: &'static str, directory: PathBuf) -> Sandbox {
        let uri = format!("{kind}:{}", directory.display());
        Sandbox::new(UnsupportedSandbox { uri, kind, platform })
    }

    fn fail<T>(&self) -> Result<T> {
        Err(Error::needs_platform(format_args!("a sandbox `{}:`", self.kind), self.platform))
    }
}

impl SandboxBackend for UnsupportedSandbox {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn run(&self, _: &Command, _: &mut Sink<'_>) -> Result<Output> {
        self.fail()
    }

    async fn read(&self, _: &str, _: ByteRange) -> Result<Vec<u8>> {
        self.fail()
    }

    async fn write(&self, _: &str, _: &[u8]) -> Result<()> {
        self.fail()
    }

    async fn list(&self, _: &str) -> Result<Vec<DirEntry>> {
        self.fail()
    }

    async fn stat(&self, _: &str) -> Result<Option<DirEntry>> {
        self.fail()
    }

    async fn capabilities(&self) -> Result<super::Capabilities> {
        self.fail()
    }
}
