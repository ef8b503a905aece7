//! A sandbox without the files that a policy forbids to read.
//!
//! Tools that list and search look at many files, and a command at any: so the files are kept from them here, not where a
//! call is decided.

#[cfg(unix)]
mod identity;
#[cfg(not(unix))]
#[path = "hiding/identity_unsupported.rs"]
mod identity;

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::identity::{has_other_names, identity};
use crate::blocking::run_blocking;
use crate::policy::ActivePolicy;
use crate::sandbox::{
    ByteRange, Capabilities, Command, Digest, DirEntry, Error, ErrorKind, Output, RATH_DIR, Result, Root, Sandbox,
    SandboxBackend, Sink, private_paths_in,
};

/// The number of directory entries that are looked at for files to hide from a command.
const MAX_ENTRIES: usize = 500_000;

/// A sandbox, and the policy that hides some of its files.
struct HidingSandbox {
    inner: Sandbox,
    policy: Arc<ActivePolicy>,
}

/// Returns a sandbox without the files that the policy forbids to read.
pub(super) fn hiding(inner: Sandbox, policy: &Arc<ActivePolicy>) -> Sandbox {
    match policy.hides_files() {
        true => Sandbox::new(HidingSandbox { inner, policy: policy.clone() }),
        false => inner,
    }
}

/// The files in a workspace that tools do not read: private ones of the user, those of rath, and those that a sandbox or a policy hides.
pub(super) struct HiddenFiles {
    policy: Option<Arc<ActivePolicy>>,
    found: HashSet<PathBuf>,
}

impl HiddenFiles {
    /// Looks for the hidden files that the directory of a sandbox has now; none if it is not on this machine. Blocks.
    pub(super) fn find(sandbox: &Sandbox, policy: Option<Arc<ActivePolicy>>) -> Result<Self> {
        let policy = policy.filter(|policy| policy.hides_files());
        let Some(directory) = sandbox.directory() else { return Ok(HiddenFiles { policy, found: HashSet::new() }) };
        let top = directory.canonicalize()?;
        let mut found: HashSet<_> = private_paths_in(directory).into_iter().collect();
        let of_sandbox = sandbox.hidden().iter().filter_map(|path| top.join(path).canonicalize().ok());
        found.extend(of_sandbox.filter_map(|path| path.strip_prefix(&top).ok().map(Path::to_owned)));
        if let Some(policy) = &policy {
            found.extend(find_hidden(directory, policy)?);
        }
        Ok(HiddenFiles { policy, found })
    }

    /// Returns the outermost hidden path that is the file, which need not exist, or a directory above it.
    pub(super) fn outermost<'a>(&self, file: &'a str) -> Option<&'a str> {
        let ends = file.match_indices('/').map(|(at, _)| at).chain([file.len()]);
        ends.map(|end| &file[..end]).find(|path| {
            // Case is ignored, as on some file systems.
            let is_own = path.rsplit('/').next().is_some_and(|name| name.eq_ignore_ascii_case(RATH_DIR));
            let is_denied = self.policy.as_ref().is_some_and(|policy| policy.hides(path).is_some());
            is_own || is_denied || self.found.contains(Path::new(path))
        })
    }
}

impl HidingSandbox {
    /// Fails if a path leads to a file that is hidden, by whatever links.
    async fn check(&self, path: &str) -> Result<()> {
        let (directory, name, policy) =
            (self.inner.directory().map(Path::to_owned), path.to_owned(), self.policy.clone());
        let rule = run_blocking(move || -> Result<_> {
            let root = directory.and_then(|directory| Root::open(&directory).ok());
            let canonical = root.as_ref().and_then(|root| root.canonical_name(&name)).unwrap_or(name);
            let file = root.as_ref().and_then(|root| std::fs::symlink_metadata(root.path().join(&canonical)).ok());
            let identity = file.as_ref().and_then(identity);
            let mounted = root.as_ref().map(|root| root.other_names(&canonical)).unwrap_or_default();
            if [&canonical].into_iter().chain(&mounted).any(|name| policy.hides_file(name, identity)) {
                return Ok(true);
            }
            // One of its other names may be hidden.
            if let Some(root) = root.filter(|_| file.as_ref().is_some_and(has_other_names)) {
                find_hidden(root.path(), &policy)?;
            }
            Ok(policy.hides_file(&canonical, identity))
        });
        match rule.await? {
            true => Err(Error::new(ErrorKind::Io, format_args!("the user's rules do not allow to read `{path}`"))),
            false => Ok(()),
        }
    }

    /// Returns the files that a command must not see.
    async fn hidden_files(&self) -> Result<Vec<PathBuf>> {
        let Some(directory) = self.inner.directory().map(Path::to_owned) else { return Ok(Vec::new()) };
        let policy = self.policy.clone();
        run_blocking(move || find_hidden(&directory, &policy)).await
    }
}

/// Finds the files and directories below a directory that a policy hides, under all their names.
///
/// A directory that cannot be looked into is hidden as a whole: a command may be able to.
fn find_hidden(top: &Path, policy: &ActivePolicy) -> Result<Vec<PathBuf>> {
    let (mut found, mut seen) = (Vec::new(), 0);
    // Files with other names, which may be hidden ones that are found later.
    let mut linked = Vec::new();
    let mut directories = VecDeque::from([(PathBuf::new(), false)]);
    while let Some((directory, is_hidden)) = directories.pop_front() {
        let entries = match std::fs::read_dir(top.join(&directory)) {
            Ok(entries) => entries,
            Err(_) if is_hidden => continue,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(_) => {
                found.push(directory);
                continue;
            }
        };
        for entry in entries {
            let Ok(entry) = entry else {
                found.push(directory);
                break;
            };
            seen += 1;
            if seen > MAX_ENTRIES {
                let message = format!("there are more than {MAX_ENTRIES} files to compare with rules about reading");
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            let path = directory.join(entry.file_name());
            // Of the entry itself: a link has an identity of its own.
            let metadata = entry.metadata().ok();
            let identity = metadata.as_ref().and_then(identity);
            let hides = is_hidden || policy.hides_file(&path.to_string_lossy(), identity);
            if is_hidden {
                policy.hide_file(identity);
            } else if hides {
                found.push(path.clone());
            } else if metadata.as_ref().is_some_and(has_other_names) {
                linked.push((path.clone(), identity));
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push_back((path, hides));
            }
        }
    }
    found
        .extend(linked.into_iter().filter(|(path, it)| policy.hides_file(&path.to_string_lossy(), *it)).map(|it| it.0));
    Ok(found)
}

impl SandboxBackend for HidingSandbox {
    fn uri(&self) -> &str {
        self.inner.uri()
    }

    async fn run(&self, command: &Command, sink: &mut Sink<'_>) -> Result<Output> {
        let mut command = command.clone();
        command.hidden.extend(self.hidden_files().await?);
        self.inner.run_streaming(&command, sink).await
    }

    async fn read(&self, path: &str, range: ByteRange) -> Result<Vec<u8>> {
        self.check(path).await?;
        self.inner.read(path, range).await
    }

    async fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.inner.write(path, bytes).await
    }

    async fn list(&self, path: &str) -> Result<Vec<DirEntry>> {
        self.check(path).await?;
        self.inner.list(path).await
    }

    async fn stat(&self, path: &str) -> Result<Option<DirEntry>> {
        self.inner.stat(path).await
    }

    async fn spool_path(&self, digest: Digest) -> Result<Option<PathBuf>> {
        self.inner.spool_path(digest).await
    }

    async fn capabilities(&self) -> Result<Capabilities> {
        self.inner.capabilities().await
    }

    fn directory(&self) -> Option<&Path> {
        self.inner.directory()
    }

    fn seen_at(&self) -> Option<&Path> {
        self.inner.seen_at()
    }

    fn hidden(&self) -> &[PathBuf] {
        self.inner.hidden()
    }

    fn with_directory(&self, directory: &Path) -> Option<Sandbox> {
        Some(hiding(self.inner.with_directory(directory)?, &self.policy))
    }

    fn keep_out(&self, path: &Path) {
        self.inner.keep_out(path);
    }
}
