//! Files and directories of a workspace that commands may not change: the `.rath` and `.git` of projects below the first level,
//! repositories without a working tree, and the hooks and settings that repositories name.

use std::collections::BTreeSet;
#[cfg(target_os = "linux")]
use std::ffi::OsStr;
use std::io::ErrorKind as ErrorKindIo;
#[cfg(target_os = "linux")]
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::git_settings::named_paths;
use crate::error::{Error, ErrorKind, Result};
use crate::mount_table::MountTable;
use crate::root::{is_git_dir, is_rath_dir};

/// The nested projects of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NestedProjects {
    /// Every `.rath`.
    pub(super) rath: Vec<NestedPath>,
    /// Every `.git`: a directory, or the file of a submodule or a second working tree. Also every repository without a working tree.
    pub(super) git: Vec<NestedPath>,
    /// Every directory of hooks and every file of settings in the workspace that a repository names.
    pub(super) settings: Vec<NestedPath>,
    /// The paths without links that repositories in the workspace or above it name, wherever they lead.
    named: BTreeSet<PathBuf>,
}

/// A path relative to the workspace, and the file or directory that was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NestedPath {
    pub(super) path: PathBuf,
    device: u64,
    inode: u64,
}

/// The names by which git knows a repository without a working tree.
const REPOSITORY_PARTS: [&str; 4] = ["HEAD", "objects", "refs", "config"];
/// The most bytes of a `.git` that is a file.
const MAX_GIT_FILE_BYTES: u64 = 8192;
/// The most nested projects that a workspace can have: each is a mount of every command.
const MAX_NESTED_PROJECTS: usize = 4096;

impl NestedProjects {
    /// Finds the nested projects of a workspace, on its own file system and on others. No link is followed.
    pub(super) fn find(workspace: &Path, mounts: &MountTable) -> Result<Self> {
        let mut nested = NestedProjects::default();
        let mut below = vec![PathBuf::new()];
        let mut repositories = Vec::new();
        while let Some(directory) = below.pop() {
            // A directory that can be listed and not searched is as one that cannot be listed.
            let path = workspace.join(&directory);
            let entries = match path.join(".").symlink_metadata().and_then(|_| std::fs::read_dir(&path)) {
                Ok(entries) => entries,
                // A file that commands may write.
                Err(error) if error.kind() == ErrorKindIo::NotADirectory => continue,
                Err(error) if directory == Path::new("") => {
                    let shown = workspace.display();
                    let message = format!("cannot list `{shown}`, which commands can write: {error}");
                    let hint =
                        format!("`ls -ld '{shown}'` shows its owner and its permissions: you need all three (rwx)");
                    return Err(Error::new(ErrorKind::Io, message).with_hint(hint));
                }
                // A command can make it listable: it is hidden as a whole.
                Err(error) if error.kind() == ErrorKindIo::PermissionDenied => {
                    nested.rath.extend(NestedPath::new(workspace, directory));
                    continue;
                }
                // It has gone meanwhile.
                Err(_) => continue,
            };
            let is_top = directory == Path::new("");
            let mut parts = 0;
            for entry in entries.flatten() {
                let (path, kind) = (directory.join(entry.file_name()), entry.file_type());
                let found = match entry.file_name() {
                    name if is_rath_dir(&name) => &mut nested.rath,
                    name if is_git_dir(&name) => &mut nested.git,
                    name => {
                        parts += usize::from(REPOSITORY_PARTS.iter().any(|part| name == *part));
                        if kind.is_ok_and(|kind| kind.is_dir()) {
                            below.push(path);
                        }
                        continue;
                    }
                };
                // Those of the workspace itself are treated with it.
                let is_of_workspace = is_top && [crate::RATH_DIR, ".git"].iter().any(|own| entry.file_name() == *own);
                if !is_of_workspace && !kind.is_ok_and(|kind| kind.is_symlink()) {
                    found.extend(NestedPath::new(workspace, path.clone()));
                }
                if is_git_dir(&entry.file_name()) {
                    repositories.push(path.clone());
                    nested
                        .git
                        .extend(git_directory(workspace, &path).and_then(|path| NestedPath::new(workspace, path)));
                }
            }
            if parts == REPOSITORY_PARTS.len() && !is_top {
                repositories.push(directory.clone());
                nested.git.extend(NestedPath::new(workspace, directory));
            }
            if nested.rath.len() + nested.git.len() > MAX_NESTED_PROJECTS {
                let message = format!("wanted at most {MAX_NESTED_PROJECTS} projects below the workspace, found more");
                let hint = "choose a smaller directory as the workspace";
                return Err(Error::new(ErrorKind::Unavailable, message).with_hint(hint));
            }
        }
        if let Ok(workspace) = workspace.canonicalize() {
            nested.find_named(&workspace, &repositories, mounts);
            nested.find_own_settings(&workspace);
            nested.find_settings(&workspace, &[]);
        }
        Ok(nested)
    }

    /// Finds every `.rath` in a directory whose repositories need no protection: no command can change them. A directory that cannot be
    /// listed counts as one. This is faster than [`find`](Self::find), since files are not looked at.
    #[cfg(target_os = "linux")]
    pub(super) fn find_rath_dirs(directory: &Path) -> Result<Self> {
        use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, openat, statat};
        use rustix::io::Errno;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (mut nested, mut buffer) = (NestedProjects::default(), Vec::with_capacity(1 << 16));
        let mut below = vec![PathBuf::new()];
        while let Some(inner) = below.pop() {
            let opened = match openat(CWD, directory.join(&inner), flags, Mode::empty()) {
                Ok(opened) => opened,
                Err(errno) if inner == Path::new("") => return Err(std::io::Error::from(errno).into()),
                Err(Errno::ACCESS) => {
                    nested.rath.extend(NestedPath::new(directory, inner));
                    continue;
                }
                // It has gone meanwhile.
                Err(_) => continue,
            };
            let mut entries = RawDir::new(&opened, buffer.spare_capacity_mut());
            while let Some(Ok(entry)) = entries.next() {
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                let is_dir = match entry.file_type() {
                    FileType::Directory => name != "." && name != "..",
                    FileType::Unknown => {
                        let stat = statat(&opened, entry.file_name(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
                        stat.is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Directory)
                            && name != "."
                            && name != ".."
                    }
                    _ => false,
                };
                if is_rath_dir(name) && entry.file_type() != FileType::Symlink {
                    nested.rath.extend(NestedPath::new(directory, inner.join(name)));
                } else if is_dir {
                    below.push(inner.join(name));
                }
            }
        }
        Ok(nested)
    }

    /// Returns the projects with the settings that repositories of other directories name here.
    pub(super) fn named_by(mut self, workspace: &Path, others: &[&NestedProjects]) -> Self {
        if let Ok(workspace) = workspace.canonicalize() {
            self.find_settings(&workspace, others);
        }
        self
    }

    /// Finds the hooks and settings that repositories name: those in the workspace, those that it is a part of, and, also where no
    /// repository is, the user's own settings. Also parts of a repository that are mounted by themselves.
    fn find_named(&mut self, workspace: &Path, repositories: &[PathBuf], mounts: &MountTable) {
        let above = workspace.ancestors().map(|above| above.join(".git"));
        let above = above.filter(|git| git.starts_with(workspace) || git.exists());
        let bare = workspace.ancestors().filter(|above| is_repository(above)).map(Path::to_owned);
        for path in above.chain(bare).chain(repositories.iter().map(|git| workspace.join(git))) {
            let worktree = path.parent().filter(|_| path.file_name().is_some_and(is_git_dir)).unwrap_or(&path);
            let git = named_repository(&path).unwrap_or_else(|| path.clone());
            let named = named_paths(worktree, &git).into_iter().chain([git]);
            let named = named.filter_map(|path| path.canonicalize().ok());
            self.named.extend(named.flat_map(|path| mounts.places_with_parts(&path)));
        }
    }

    /// Adds what git runs or reads in a repository without a working tree that is the workspace itself: it is not read-only as a
    /// whole.
    fn find_own_settings(&mut self, workspace: &Path) {
        const SETTINGS: [&str; 6] = ["config", "config.worktree", "hooks", "info", "modules", "worktrees"];
        if is_repository(workspace) {
            self.named.extend(SETTINGS.iter().filter_map(|name| workspace.join(name).canonicalize().ok()));
        }
    }

    fn find_settings(&mut self, workspace: &Path, others: &[&NestedProjects]) {
        let named = self.named.iter().chain(others.iter().flat_map(|other| &other.named));
        let inside: BTreeSet<_> =
            named.filter_map(|path| path.strip_prefix(workspace).ok().map(Path::to_owned)).collect();
        // The workspace as a whole cannot be read-only, and what is in these directories is protected with them.
        let is_apart = |path: &PathBuf| {
            !path.as_os_str().is_empty() && !path.iter().any(|name| is_git_dir(name) || is_rath_dir(name))
        };
        let settings = inside.into_iter().filter(is_apart).filter_map(|path| NestedPath::new(workspace, path));
        self.settings = settings.take(MAX_NESTED_PROJECTS).collect();
    }

    /// Returns true if a path is in a directory that is hidden as a whole.
    pub(super) fn hides(&self, workspace: &Path, path: &Path) -> bool {
        self.rath.iter().any(|rath| path.starts_with(workspace.join(&rath.path)))
    }

    /// Returns true if each path still leads to what was found there. A command can rename the directory above it, and with
    /// it take a `.git` to a path that the next command would not find protected.
    pub(super) fn is_current(&self, workspace: &Path) -> bool {
        let mut all = self.rath.iter().chain(&self.git).chain(&self.settings);
        all.all(|known| NestedPath::new(workspace, known.path.clone()).as_ref() == Some(known))
    }
}

/// Returns true if a directory is one that git takes for a repository.
fn is_repository(directory: &Path) -> bool {
    REPOSITORY_PARTS.iter().all(|part| directory.join(part).exists())
}

/// Returns the directory of a repository that a `.git` names, as a link or as the file of a module or a second working tree, if it is
/// elsewhere in the workspace.
fn git_directory(workspace: &Path, git: &Path) -> Option<PathBuf> {
    let named = named_repository(&workspace.join(git))?;
    let inside = named.canonicalize().ok()?.strip_prefix(workspace.canonicalize().ok()?).ok()?.to_owned();
    // A repository in the `.git` of another is protected with it.
    let is_protected = inside.iter().any(is_git_dir) || inside.as_os_str().is_empty();
    (!is_protected).then_some(inside)
}

/// Returns the directory that a `.git` names; none if the `.git` is that directory.
fn named_repository(git: &Path) -> Option<PathBuf> {
    let kind = git.symlink_metadata().ok()?;
    match kind.is_file() {
        true if kind.len() <= MAX_GIT_FILE_BYTES => {
            let text = std::fs::read_to_string(git).ok()?;
            Some(git.parent()?.join(text.strip_prefix("gitdir:")?.trim()))
        }
        _ if kind.is_symlink() => Some(git.to_owned()),
        _ => None,
    }
}

impl NestedPath {
    fn new(workspace: &Path, path: PathBuf) -> Option<Self> {
        let metadata = workspace.join(&path).symlink_metadata().ok()?;
        Some(NestedPath { path, device: metadata.dev(), inode: metadata.ino() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_directory_that_cannot_be_listed_names_it() {
        let folder = tempfile::tempdir().expect("a directory");
        let gone = folder.path().join("gone");
        let error = NestedProjects::find(&gone, &MountTable::default()).expect_err("it is not there");
        assert!(error.to_string().starts_with(&format!("cannot list `{}`", gone.display())), "{error}");
    }
}
