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
use crate::links::{FollowedPath, Links, SeenRoot, follow};
use crate::policy::{ActivePolicy, Policy};
use crate::sandbox::{
    ByteRange, Capabilities, Command, Digest, DirEntry, Error, ErrorKind, Output, RATH_DIR, Result, Sandbox,
    SandboxBackend, SharedDirs, Sink, private_paths_in,
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

/// Returns the files in the directory of a sandbox that commands under a policy do not see now, relative to the directory: those that
/// the policy forbids to read, private ones of the user, and those that the sandbox hides. Blocks.
///
/// For a process that is no call, such as a server: calls of a session are kept from these files anyway.
///
/// ```
/// use rath::policy::{Permission, Policy, Rule};
/// use rath::prelude::*;
/// use rath::tool::hidden_files_blocking;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// std::fs::write(directory.path().join("notes.txt"), "private")?;
/// let policy = Policy::new(Mode::Workspace).rules([Rule::new(Permission::Deny, "read notes.txt")?]);
/// let hidden = hidden_files_blocking(&Sandbox::local(directory.path()), policy)?;
/// assert_eq!(hidden, [std::path::Path::new("notes.txt")]);
/// # Ok(())
/// # }
/// ```
pub fn hidden_files_blocking(sandbox: &Sandbox, policy: Policy) -> Result<Vec<PathBuf>> {
    let found = HiddenFiles::find(sandbox, Some(Arc::new(ActivePolicy::new(policy))))?.found;
    let mut hidden: Vec<_> = found.into_iter().collect();
    hidden.sort();
    Ok(hidden)
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
        if let Some((policy, seen)) = policy.as_ref().zip(SeenRoot::of(sandbox)) {
            found.extend(find_with_shared(sandbox, &seen, policy)?);
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
    /// Fails if a file is hidden under any of its names.
    async fn check(&self, path: &str) -> Result<()> {
        let (sandbox, given, policy) = (self.inner.clone(), path.to_owned(), self.policy.clone());
        let rule = run_blocking(move || -> Result<_> {
            let seen = SeenRoot::of(&sandbox);
            let FollowedPath { target, names, .. } = follow(seen.as_ref(), &given);
            let top = seen.as_ref().map(|seen| seen.root.path());
            let file = top.and_then(|top| std::fs::symlink_metadata(top.join(&target)).ok());
            let identity = file.as_ref().and_then(identity);
            let mounted = seen.as_ref().map(|seen| seen.root.other_names(&target)).unwrap_or_default();
            let is_named = names.iter().chain(&mounted).any(|name| policy.hides(name).is_some());
            if policy.hides_file(&target, identity) || is_named {
                return Ok(true);
            }
            let Some((top, seen)) = top.zip(seen.as_ref()) else { return Ok(false) };
            // One of its other names may be hidden.
            if file.as_ref().is_some_and(has_other_names) || policy.hidden_paths(top).is_none() {
                find_with_shared(&sandbox, seen, &policy)?;
            }
            let hidden = policy.hidden_paths(top).unwrap_or_default();
            let is_hidden = Path::new(&target).ancestors().any(|above| hidden.contains(above));
            Ok(is_hidden || policy.hides_file(&target, identity))
        });
        match rule.await? {
            true => Err(Error::new(ErrorKind::Io, format_args!("the user's rules do not allow to read `{path}`"))),
            false => Ok(()),
        }
    }

    /// Returns the files that a command must not see.
    async fn hidden_files(&self) -> Result<Vec<PathBuf>> {
        let (sandbox, policy) = (self.inner.clone(), self.policy.clone());
        let find = move || match SeenRoot::of(&sandbox) {
            Some(seen) => find_with_shared(&sandbox, &seen, &policy),
            None => Ok(Vec::new()),
        };
        run_blocking(find).await
    }
}

/// Finds the files and directories in the directory of a sandbox that a policy hides, and those in directories of another workspace that
/// the sandbox shows.
fn find_with_shared(sandbox: &Sandbox, seen: &SeenRoot, policy: &ActivePolicy) -> Result<Vec<PathBuf>> {
    let mut found = find_hidden(seen, policy)?;
    if let Some((shared, original)) = sandbox.shared().zip(SeenRoot::original_of(sandbox)) {
        let in_original = find_hidden(&original, policy)?;
        found.extend(in_original.into_iter().filter(|path| shared.find(path).is_some()));
        policy.set_hidden_paths(seen.root.path(), found.iter().cloned().collect());
    }
    Ok(found)
}

/// Finds the files and directories in a directory that a policy hides, under all their names.
fn find_hidden(seen: &SeenRoot, policy: &ActivePolicy) -> Result<Vec<PathBuf>> {
    let top = seen.root.path();
    let (mut found, links) = walk_hidden(top, policy, &Links::default())?;
    let links = policy.hiding_links(&seen.follow_links(links));
    if !links.is_plain() {
        found = walk_hidden(top, policy, &links)?.0;
    }
    policy.set_hidden_paths(top, found.iter().cloned().collect());
    Ok(found)
}

/// Finds the files and directories below a directory that a policy hides, under the names that links give them too. Returns all
/// links besides.
///
/// A directory that cannot be looked into is hidden as a whole: a command may be able to.
fn walk_hidden(top: &Path, policy: &ActivePolicy, links: &Links) -> Result<(Vec<PathBuf>, Vec<String>)> {
    let (mut found, mut found_links, mut seen) = (Vec::new(), Vec::new(), 0);
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
            let name = path.to_string_lossy();
            let hides = is_hidden || links.names(&name).iter().any(|name| policy.hides_file(name, identity));
            if metadata.as_ref().is_some_and(|metadata| metadata.is_symlink()) {
                found_links.push(name.into_owned());
            }
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
    Ok((found, found_links))
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

    async fn remove(&self, path: &str) -> Result<()> {
        self.inner.remove(path).await
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

    fn with_shared(&self, directory: &Path, shared: &SharedDirs) -> Option<Sandbox> {
        Some(hiding(self.inner.with_shared(directory, shared)?, &self.policy))
    }

    fn can_show_dirs(&self) -> bool {
        self.inner.can_show_dirs()
    }

    fn read_only_dirs(&self) -> Vec<PathBuf> {
        self.inner.read_only_dirs()
    }

    fn shared(&self) -> Option<&SharedDirs> {
        self.inner.shared()
    }

    fn keep_out(&self, path: &Path) {
        self.inner.keep_out(path);
    }
}
