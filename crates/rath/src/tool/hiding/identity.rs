//! The identity of a file, on Unix.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use crate::policy::FileIdentity;

/// Returns the identity of a file.
pub(super) fn identity(metadata: &Metadata) -> Option<FileIdentity> {
    Some((metadata.dev(), metadata.ino(), metadata.created().ok()))
}

/// Returns true if a file has other names: hard links.
pub(super) fn has_other_names(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.nlink() > 1
}
