//! Byte ranges, directory entries, digests and reserved names of the file operations.

use std::ffi::OsStr;
use std::fmt;

/// The name of the directory in a workspace that is reserved for rath.
///
/// File operations and isolated commands cannot reach it.
pub const RATH_DIR: &str = ".rath";

/// The beginning of the names of temporary files. A UUID and `.tmp` follow.
const TEMP_FILE_PREFIX: &str = ".rath-";

/// Returns a name for a temporary file that no other process uses.
#[cfg(unix)]
pub(crate) fn temporary_name() -> String {
    format!("{TEMP_FILE_PREFIX}{}.tmp", uuid::Uuid::now_v7().simple())
}

/// Returns true if a name is that of a temporary file of [`Root::write`](crate::Root::write).
///
/// ```
/// use rath_sandbox::is_temporary_name;
///
/// assert!(is_temporary_name(".rath-01980a5e7a407cc28d4e3f2b1c0d9e8f.tmp".as_ref()));
/// assert!(!is_temporary_name("notes.txt".as_ref()));
/// ```
pub fn is_temporary_name(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.len() == TEMP_FILE_PREFIX.len() + 36
        && name.starts_with(TEMP_FILE_PREFIX.as_bytes())
        && name.ends_with(b".tmp")
}

/// A part of a file.
///
/// Passed to [`Sandbox::read`](crate::Sandbox::read). See [`Root`](crate::Root) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The position of the first byte.
    pub offset: u64,
    /// The largest number of bytes to read. Fewer are read if the file ends before.
    pub max_len: u64,
}

/// An entry of a directory.
///
/// Returned by [`Sandbox::list`](crate::Sandbox::list) and [`Sandbox::stat`](crate::Sandbox::stat).
///
/// ```
/// use rath_sandbox::{DirEntry, FileKind};
///
/// let entry = DirEntry::new("notes.txt", FileKind::File, 12).with_mark("mtime 1789552800.25");
/// assert_eq!((&*entry.name, entry.bytes), ("notes.txt", 12));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirEntry {
    /// The name of the entry. Invalid UTF-8 is replaced.
    pub name: String,
    /// The type of the entry.
    pub kind: FileKind,
    /// The size of a file in bytes. 0 for other kinds.
    pub bytes: u64,
    /// A text that changes whenever the content of the file does, such as an ETag, or the time of the last change where that is exact
    /// enough. A file with the same mark as before is not read again. None if the backend has no such text.
    pub mark: Option<String>,
}

impl DirEntry {
    /// Creates an entry without a mark.
    pub fn new(name: impl Into<String>, kind: FileKind, bytes: u64) -> Self {
        DirEntry { name: name.into(), kind, bytes, mark: None }
    }

    /// Adds a mark, which changes whenever the content of the file does.
    pub fn with_mark(mut self, mark: impl Into<String>) -> Self {
        self.mark = Some(mark.into());
        self
    }
}

/// The type of a directory entry.
///
/// Part of [`DirEntry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link. Its target may be missing, or outside the workspace.
    Symlink,
    /// A pipe, a socket or a device.
    Other,
}

/// The BLAKE3 digest of output that was written to a file.
///
/// Part of [`CapturedStream`](crate::CapturedStream).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Computes the digest of some content.
    pub fn from_content(content: &[u8]) -> Self {
        Digest(*blake3::hash(content).as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
