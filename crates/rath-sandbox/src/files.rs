//! Files as sandboxes see them: parts, directory entries, digests.

use std::fmt;

/// Which part of a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// From which byte.
    pub from: u64,
    /// At most how many.
    pub most: u64,
}

/// Something in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// How many bytes, for a file.
    pub bytes: u64,
}

/// What something in a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A link, wherever it leads.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// The BLAKE3 digest of output that was written to a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Computes the digest of some content.
    pub fn of(content: &[u8]) -> Self {
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
