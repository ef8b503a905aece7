//! Changes between two versions of a directory.

use std::fmt;

/// One path that differs between two versions of a directory.
///
/// Returned by [`Objects::diff`](crate::Objects::diff) and [`Workspace::changes`](crate::Workspace::changes).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileChange {
    /// The path, relative to the workspace. A path that is not UTF-8 is quoted with octal digits, as git does.
    pub path: String,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The digest of the content before; none if there was no file.
    pub before: Option<Digest>,
    /// The digest of the content after; none if there is no file.
    pub after: Option<Digest>,
    /// The reason why the path is not part of a tree. Only metadata says that an untracked path changed.
    pub untracked: Option<UntrackedReason>,
}

/// The kinds of change.
///
/// Part of [`FileChange`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The path is new.
    Created,
    /// The content or the mode differs.
    Modified,
    /// The path no longer exists.
    Deleted,
    /// The file had another path before.
    Renamed {
        /// The path before.
        from: String,
    },
}

/// The reasons why a path is not part of a tree.
///
/// Part of [`FileChange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UntrackedReason {
    /// A `.gitignore` names it, or it belongs to version control itself.
    Ignored,
    /// The file is too large.
    TooLarge,
    /// The directory is empty.
    EmptyDirectory,
    /// A pipe, a socket, a device, or something that cannot be read.
    Special,
    /// The name or the content of the file holds a secret: see [`Workspace::secret_finder`](crate::Workspace::secret_finder).
    Secret,
}

/// The knowledge of a snapshot about a path.
///
/// Returned by [`Snapshot::presence`](crate::Snapshot::presence).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The path was there.
    Present,
    /// The path was not there.
    Absent,
    /// The path is in a directory that could not be listed, or in an ignored one with too many names.
    Unknown,
}

/// The BLAKE3 digest of a file's content.
///
/// Part of [`FileChange`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Computes the digest of some content.
    pub fn compute(content: &[u8]) -> Self {
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
