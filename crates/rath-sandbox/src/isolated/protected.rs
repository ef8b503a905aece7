//! The files of a workspace that commands may not see or change, for sandboxes that mount it elsewhere.

use std::path::{Path, PathBuf};

use super::nested::NestedProjects;
use crate::error::Result;
use crate::files::RATH_DIR;
use crate::mount_table::MountTable;

/// The files and directories of a workspace that commands may not see or change. Paths are relative to the workspace.
///
/// See [`crate::backend`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectedPaths {
    /// Every `.rath`, and directories that cannot be listed.
    pub hidden: Vec<PathBuf>,
    /// Every `.git`, and the hooks and settings that repositories name.
    pub read_only: Vec<PathBuf>,
    /// The directories above these below the workspace, from the outermost: one that is renamed would take a repository to a path that
    /// is not protected.
    pub pinned: Vec<PathBuf>,
    nested: NestedProjects,
    /// The `.rath` and the `.git` of the workspace itself, as far as they are there.
    own: [bool; 2],
}

impl ProtectedPaths {
    /// Looks for the paths in a workspace. No link is followed. Blocks.
    pub fn find(workspace: &Path) -> Result<Self> {
        let nested = NestedProjects::find(workspace, &MountTable::read().unwrap_or_default())?;
        let own = own_paths(workspace);
        let top = [RATH_DIR, ".git"].iter().zip(own).map(|(name, is_there)| is_there.then(|| PathBuf::from(name)));
        let [rath, git] = <[_; 2]>::try_from(top.collect::<Vec<_>>()).unwrap_or_default();
        let paths = |found: &[super::nested::NestedPath]| found.iter().map(|it| it.path.clone()).collect::<Vec<_>>();
        let hidden: Vec<_> = rath.into_iter().chain(paths(&nested.rath)).collect();
        let is_hidden = |path: &PathBuf| hidden.iter().any(|hidden| path.starts_with(hidden));
        let mut read_only: Vec<_> = git
            .into_iter()
            .chain(paths(&nested.git))
            .chain(paths(&nested.settings))
            .filter(|it| !is_hidden(it))
            .collect();
        read_only.sort();
        read_only.dedup();
        let above = |path: &PathBuf| path.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>();
        let mut pinned: Vec<_> = hidden.iter().chain(&read_only).flat_map(above).collect();
        pinned.retain(|path| !path.as_os_str().is_empty() && !read_only.iter().any(|other| path.starts_with(other)));
        // A directory comes before those in it.
        pinned.sort();
        pinned.dedup();
        Ok(ProtectedPaths { hidden, read_only, pinned, nested, own })
    }

    /// Returns true if each path still leads to what was found there, and no `.rath` or `.git` of the workspace itself has come or gone.
    /// Blocks.
    pub fn is_current(&self, workspace: &Path) -> bool {
        self.own == own_paths(workspace) && self.nested.is_current(workspace)
    }
}

/// Returns true for each of `.rath` and `.git` that is a directory or a file of the workspace. What a link leads to is looked for by itself.
fn own_paths(workspace: &Path) -> [bool; 2] {
    [RATH_DIR, ".git"].map(|name| workspace.join(name).symlink_metadata().is_ok_and(|it| !it.is_symlink()))
}

/// Returns a path and, if it is a file, the files beside it whose names continue its own behind a `-`, such as those of a database.
/// Blocks.
///
/// See [`crate::backend`] for an example.
pub fn with_files_beside(path: &Path) -> Vec<PathBuf> {
    let mut files = vec![path.to_owned()];
    if let (Some(name), Some(parent), true) = (path.file_name(), path.parent(), path.is_file()) {
        let prefix = [name.as_encoded_bytes(), b"-"].concat();
        let is_beside = |entry: &std::fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(&prefix);
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten().filter(is_beside);
        files.extend(entries.map(|entry| entry.path()).filter(|path| path.is_file()));
    }
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_are_found_with_the_directories_above_them() {
        let folder = tempfile::tempdir().expect("a directory");
        for path in [".rath/work/x/.git", ".git/hooks", "a/b/.git", "a/c/.rath", "d"] {
            std::fs::create_dir_all(folder.path().join(path)).expect("a directory");
        }
        let found = ProtectedPaths::find(folder.path()).expect("found");
        let text = |paths: &[PathBuf]| paths.iter().map(|it| it.display().to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(text(&found.hidden), ".rath a/c/.rath");
        assert_eq!(text(&found.read_only), ".git a/b/.git");
        assert_eq!(text(&found.pinned), "a a/b a/c");
        assert!(found.is_current(folder.path()));
        std::fs::rename(folder.path().join("a/b"), folder.path().join("e")).expect("renamed");
        assert!(!found.is_current(folder.path()));
    }

    #[test]
    fn a_repository_that_appears_is_noticed() {
        let folder = tempfile::tempdir().expect("a directory");
        let found = ProtectedPaths::find(folder.path()).expect("found");
        assert_eq!((found.hidden.len(), found.read_only.len(), found.pinned.len()), (0, 0, 0));
        std::fs::create_dir(folder.path().join(".rath")).expect("a directory");
        assert!(!found.is_current(folder.path()));
    }
}
