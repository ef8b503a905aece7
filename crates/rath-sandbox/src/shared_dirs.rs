//! Directories of a workspace that a sandbox in another directory shows.

use std::path::{Path, PathBuf};

/// Directories of a workspace that a sandbox in another directory shows at the same paths, such as dependencies that no version
/// of the files holds.
///
/// Commands can read them. They can change those that have a folder for changes, and the changes stay there: the workspace is
/// never written. Commands that share such a folder run one after the other. Where the system cannot mount an overlay, commands can read
/// all of them and change none: see [`Sandbox::read_only_dirs`](crate::Sandbox::read_only_dirs).
///
/// Passed to [`Sandbox::with_shared`](crate::Sandbox::with_shared).
///
/// ```
/// use rath_sandbox::{SharedDir, SharedDirs};
///
/// let modules = SharedDir { path: "node_modules".into(), changes: Some("/tmp/fork.shared/node_modules".into()) };
/// let shared = SharedDirs { original: "/project".into(), directories: vec![modules] };
/// assert!(shared.find("node_modules/a/index.js".as_ref()).is_some());
/// assert!(shared.find("src/main.js".as_ref()).is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedDirs {
    /// The workspace that the directories belong to.
    pub original: PathBuf,
    /// The directories. None is in another.
    pub directories: Vec<SharedDir>,
}

/// A directory that is shown, or a file.
///
/// Part of [`SharedDirs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDir {
    /// The path, relative to the workspace, without links.
    pub path: PathBuf,
    /// The folder with the changes, which exists and is on the file system of the workspace; none if commands can only read.
    pub changes: Option<PathBuf>,
}

impl SharedDirs {
    /// Returns the directory that a path is in, and the rest of the path. The path is relative to the workspace, without links.
    pub fn find<'a, 'p>(&'a self, path: &'p Path) -> Option<(&'a SharedDir, &'p Path)> {
        self.directories.iter().find_map(|shared| Some((shared, path.strip_prefix(&shared.path).ok()?)))
    }
}

impl SharedDir {
    /// Returns the part of the folder for changes that holds changed files.
    pub fn upper(&self) -> Option<PathBuf> {
        self.changes.as_ref().map(|changes| changes.join("upper"))
    }

    /// Returns the part of the folder for changes that the kernel works in.
    pub fn work(&self) -> Option<PathBuf> {
        self.changes.as_ref().map(|changes| changes.join("work"))
    }
}
