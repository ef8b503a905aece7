//! The owner of a file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// Returns true if the user who runs this process owns a file.
pub(super) fn is_this_user(metadata: &Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw()
}
