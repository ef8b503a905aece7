//! Limits for one snapshot: a workspace opened at `/` by mistake fails early instead of being copied.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{Error, ErrorKind, Result};

/// The limits for one snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotLimits {
    /// The number of names that are not ignored.
    pub(crate) names: u64,
    /// The number of bytes in files that have to be read.
    pub(crate) bytes: u64,
}

/// The names and bytes that a snapshot has found so far.
pub(crate) struct SnapshotUsage {
    limits: SnapshotLimits,
    names: AtomicU64,
    bytes: AtomicU64,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        SnapshotLimits { names: 1_000_000, bytes: 8 << 30 }
    }
}

impl SnapshotUsage {
    pub(crate) fn new(limits: SnapshotLimits) -> Self {
        SnapshotUsage { limits, names: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Counts names, and fails if there are too many.
    pub(crate) fn add_names(&self, more: usize) -> Result<()> {
        let max = self.limits.names;
        if self.names.fetch_add(more as u64, Relaxed) + more as u64 > max {
            return Err(too_large(format_args!("more than {max} files and directories")));
        }
        Ok(())
    }

    /// Counts bytes, and fails if there are too many.
    pub(crate) fn add_bytes(&self, more: usize) -> Result<()> {
        let max = self.limits.bytes;
        if self.bytes.fetch_add(more as u64, Relaxed) + more as u64 > max {
            return Err(too_large(format_args!("more than {} MiB in new or changed files", max >> 20)));
        }
        Ok(())
    }
}

fn too_large(found: std::fmt::Arguments<'_>) -> Error {
    Error::new(ErrorKind::Directory, format_args!("the directory is too large for a workspace: found {found}"))
        .with_hint("work in the directory of one project, and list generated files in its `.gitignore`")
}
