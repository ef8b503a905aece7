//! The root module for platforms other than Unix: no directory can be opened, so no other method is ever called.

use std::path::{Path, PathBuf};

use super::files::{ByteRange, DirEntry};
use crate::error::{Error, Result};

/// A directory to which file operations are confined. There is none on this platform: see [`open`](Self::open).
#[derive(Debug)]
pub struct Root(Never);

/// A type without values.
#[derive(Clone, Copy, Debug)]
enum Never {}

impl Root {
    /// Fails: paths can be confined to a directory on Unix only.
    pub fn open(path: &Path) -> Result<Root> {
        Err(Error::needs_platform(format_args!("a sandbox in the directory `{}`", path.display()), "Unix"))
    }

    /// Returns the path of the directory, without symlinks.
    pub fn path(&self) -> &Path {
        match self.0 {}
    }

    /// Reads a part of a file, at most 64 MiB.
    pub fn read(&self, _path: &str, _range: ByteRange) -> Result<Vec<u8>> {
        match self.0 {}
    }

    /// Writes a file, and creates missing directories above it.
    pub fn write(&self, _path: &str, _bytes: &[u8]) -> Result<()> {
        match self.0 {}
    }

    /// Removes a file, and the directories above it that are empty then.
    pub fn remove(&self, _path: &str) -> Result<()> {
        match self.0 {}
    }

    /// Returns the entries of a directory, sorted by name. Symlinks are listed as symlinks.
    pub fn list(&self, _path: &str) -> Result<Vec<DirEntry>> {
        match self.0 {}
    }

    /// Returns the file or directory at a path, or `None` if there is none. Symlinks are followed.
    pub fn stat(&self, _path: &str) -> Result<Option<DirEntry>> {
        match self.0 {}
    }

    /// Returns the path relative to the root, without symlinks and `..`, as text; `None` if it leads out of the root.
    pub fn canonical_name(&self, _path: &str) -> Option<String> {
        match self.0 {}
    }

    /// Returns the other paths in the root at which a mount shows the same file, as text.
    pub fn other_names(&self, _name: &str) -> Vec<String> {
        match self.0 {}
    }

    /// Returns the path relative to the root, without symlinks and `..`.
    pub fn resolve(&self, _path: &str) -> Result<PathBuf> {
        match self.0 {}
    }
}
