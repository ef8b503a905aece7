//! Directories below the first level of a workspace that commands may not change: the `.rath` and `.git` of other projects.

use std::io::ErrorKind as ErrorKindIo;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// The nested projects of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NestedProjects {
    /// Every `.rath`.
    pub(super) rath: Vec<NestedPath>,
    /// Every `.git`: a directory, or the file of a submodule or a second working tree.
    pub(super) git: Vec<NestedPath>,
}

/// A path relative to the workspace, and the file or directory that was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NestedPath {
    pub(super) path: PathBuf,
    device: u64,
    inode: u64,
}

/// The most bytes of a `.git` that is a file.
const MAX_GIT_FILE_BYTES: u64 = 8192;
/// The most nested projects that a workspace can have: each is a mount of every command.
const MAX_NESTED_PROJECTS: usize = 4096;

impl NestedProjects {
    /// Finds the nested projects of a workspace, on its own file system and on others. No link is followed.
    pub(super) fn find(workspace: &Path) -> Result<Self> {
        let mut nested = NestedProjects::default();
        let mut below = vec![PathBuf::new()];
        while let Some(directory) = below.pop() {
            let entries = match std::fs::read_dir(workspace.join(&directory)) {
                Ok(entries) => entries,
                // A file that commands may write.
                Err(error) if error.kind() == ErrorKindIo::NotADirectory => continue,
                Err(error) if directory == Path::new("") => {
                    return Err(Error::new(ErrorKind::Io, format_args!("cannot list the workspace: {error}")));
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
            for entry in entries.flatten() {
                let (path, kind) = (directory.join(entry.file_name()), entry.file_type());
                let found = match entry.file_name() {
                    name if name == crate::RATH_DIR => &mut nested.rath,
                    name if name == ".git" => &mut nested.git,
                    _ => {
                        if kind.is_ok_and(|kind| kind.is_dir()) {
                            below.push(path);
                        }
                        continue;
                    }
                };
                if !is_top && !kind.is_ok_and(|kind| kind.is_symlink()) {
                    found.extend(NestedPath::new(workspace, path.clone()));
                }
                if entry.file_name() == ".git" {
                    nested
                        .git
                        .extend(git_directory(workspace, &path).and_then(|path| NestedPath::new(workspace, path)));
                }
            }
            if nested.rath.len() + nested.git.len() > MAX_NESTED_PROJECTS {
                let message = format!("wanted at most {MAX_NESTED_PROJECTS} projects below the workspace, found more");
                let hint = "choose a smaller directory as the workspace";
                return Err(Error::new(ErrorKind::Unavailable, message).with_hint(hint));
            }
        }
        Ok(nested)
    }

    /// Returns true if each path still leads to what was found there. A command can rename the directory above it, and with
    /// it take a `.git` to a path that the next command would not find protected.
    pub(super) fn is_current(&self, workspace: &Path) -> bool {
        let mut all = self.rath.iter().chain(&self.git);
        all.all(|known| NestedPath::new(workspace, known.path.clone()).as_ref() == Some(known))
    }
}

/// Returns the directory of a repository that a `.git` names, as a link or as the file of a module or a second working tree, if it is
/// elsewhere in the workspace.
fn git_directory(workspace: &Path, git: &Path) -> Option<PathBuf> {
    let path = workspace.join(git);
    let kind = path.symlink_metadata().ok()?;
    let named = match kind.is_file() {
        true if kind.len() <= MAX_GIT_FILE_BYTES => {
            let text = std::fs::read_to_string(&path).ok()?;
            path.parent()?.join(text.strip_prefix("gitdir:")?.trim())
        }
        _ if kind.is_symlink() => path,
        _ => return None,
    };
    let inside = named.canonicalize().ok()?.strip_prefix(workspace.canonicalize().ok()?).ok()?.to_owned();
    // A repository in the `.git` of another is protected with it.
    let is_protected = inside.iter().any(|name| name == ".git") || inside.as_os_str().is_empty();
    (!is_protected).then_some(inside)
}

impl NestedPath {
    fn new(workspace: &Path, path: PathBuf) -> Option<Self> {
        let metadata = workspace.join(&path).symlink_metadata().ok()?;
        Some(NestedPath { path, device: metadata.dev(), inode: metadata.ino() })
    }
}
