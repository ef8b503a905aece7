//! A sandbox elsewhere, for tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use rath::prelude::*;
use rath::sandbox::{
    ByteRange, Command, Digest, DirEntry, Error as SandboxError, ErrorKind as SandboxErrorKind, FileKind, Output,
    Registry, Result as SandboxResult, SandboxBackend, Sink,
};

/// The size up to which the mark of a file is its digest: times may be too coarse.
const MAX_DIGESTED_BYTES: u64 = 1 << 20;

/// A directory that sessions know by list, read and write only.
#[derive(Clone)]
pub(super) struct Remote {
    uri: String,
    root: PathBuf,
    inner: Sandbox,
    pub(super) behaviour: Arc<Behaviour>,
}

/// The behaviour of a sandbox, which tests change, and the paths that were read in it.
#[derive(Default)]
pub(super) struct Behaviour {
    /// The paths that were read.
    reads: Mutex<Vec<String>>,
    pub(super) has_marks: AtomicBool,
    pub(super) can_remove: AtomicBool,
    /// True while files cannot be listed.
    pub(super) is_down: AtomicBool,
    /// Entries that are listed besides those that are there.
    pub(super) extra: Mutex<Vec<DirEntry>>,
}

impl Remote {
    pub(super) fn new(root: &Path) -> Self {
        let behaviour = Behaviour { has_marks: true.into(), can_remove: true.into(), ..Behaviour::default() };
        let (root, inner) = (root.to_owned(), Sandbox::local(root));
        Remote { uri: "remote:box".to_owned(), root, inner, behaviour: Arc::new(behaviour) }
    }

    pub(super) fn sandbox(&self) -> Sandbox {
        Sandbox::new(self.clone())
    }

    pub(super) fn kinds(&self) -> Registry {
        let remote = self.clone();
        Registry::new().with("remote", move |_| Ok(remote.sandbox()))
    }

    /// Returns the paths that were read since the last call, by name.
    pub(super) fn take_reads(&self) -> Vec<String> {
        let mut reads = std::mem::take(&mut *self.behaviour.reads.lock().expect("a lock"));
        reads.sort();
        reads
    }
}

impl SandboxBackend for Remote {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn run(&self, command: &Command, sink: &mut Sink<'_>) -> SandboxResult<Output> {
        self.inner.run_streaming(command, sink).await
    }

    async fn read(&self, path: &str, range: ByteRange) -> SandboxResult<Vec<u8>> {
        self.behaviour.reads.lock().expect("a lock").push(path.to_owned());
        self.inner.read(path, range).await
    }

    async fn write(&self, path: &str, bytes: &[u8]) -> SandboxResult<()> {
        self.inner.write(path, bytes).await
    }

    async fn remove(&self, path: &str) -> SandboxResult<()> {
        match self.behaviour.can_remove.load(Relaxed) {
            true => {
                std::fs::remove_file(self.root.join(path))?;
                let above = Path::new(path).ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
                above.take_while(|above| std::fs::remove_dir(self.root.join(above)).is_ok()).for_each(drop);
                Ok(())
            }
            false => Err(SandboxError::new(SandboxErrorKind::Unavailable, "no file is removed here")),
        }
    }

    async fn list(&self, path: &str) -> SandboxResult<Vec<DirEntry>> {
        if self.behaviour.is_down.load(Relaxed) {
            return Err(SandboxError::new(SandboxErrorKind::Unavailable, "the line is dead"));
        }
        tokio::task::yield_now().await;
        let mut entries = self.inner.list(path).await?;
        for entry in entries.iter_mut().filter(|entry| entry.kind == FileKind::File) {
            let file = self.root.join(path).join(&entry.name);
            let mark = match entry.bytes > MAX_DIGESTED_BYTES {
                true => format!("{} bytes", entry.bytes),
                false => Digest::from_content(&std::fs::read(file)?).to_string(),
            };
            entry.mark = self.behaviour.has_marks.load(Relaxed).then_some(mark);
        }
        if path.is_empty() {
            entries.extend(self.behaviour.extra.lock().expect("a lock").iter().cloned());
        }
        Ok(entries)
    }

    async fn stat(&self, path: &str) -> SandboxResult<Option<DirEntry>> {
        self.inner.stat(path).await
    }
}
