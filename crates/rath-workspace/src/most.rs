//! How much a workspace may hold: whoever works in `/` by mistake is told so before it is copied.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{Error, ErrorKind, Result};

/// How much one look at a workspace may find.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    /// Names that are not ignored.
    pub(super) names: u64,
    /// Bytes in files that have to be read.
    pub(super) bytes: u64,
}

/// What one look has found so far.
pub(super) struct Found {
    most: Most,
    names: AtomicU64,
    bytes: AtomicU64,
}

impl Default for Most {
    fn default() -> Self {
        Most { names: 1_000_000, bytes: 8 << 30 }
    }
}

impl Found {
    pub(super) fn new(most: Most) -> Self {
        Found { most, names: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    pub(super) fn names(&self, more: usize) -> Result<()> {
        let most = self.most.names;
        if self.names.fetch_add(more as u64, Relaxed) + more as u64 > most {
            return Err(too_much(format_args!("more than {most} files and directories")));
        }
        Ok(())
    }

    pub(super) fn bytes(&self, more: usize) -> Result<()> {
        let most = self.most.bytes;
        if self.bytes.fetch_add(more as u64, Relaxed) + more as u64 > most {
            return Err(too_much(format_args!("more than {} MiB that are new", most >> 20)));
        }
        Ok(())
    }
}

fn too_much(what: std::fmt::Arguments<'_>) -> Error {
    Error::new(ErrorKind::Directory, format_args!("too much for a workspace: it holds {what}"))
        .with_hint("work in the directory of one project, and name in its `.gitignore` what is no part of it")
}
