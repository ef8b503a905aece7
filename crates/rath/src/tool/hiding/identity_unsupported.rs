//! The identity of a file, on systems other than Unix: they have no numbers of files.

use std::fs::Metadata;

use crate::policy::FileIdentity;

/// Returns none.
pub(super) fn identity(_: &Metadata) -> Option<FileIdentity> {
    None
}

/// Returns false: other names are not known.
pub(super) fn has_other_names(_: &Metadata) -> bool {
    false
}
