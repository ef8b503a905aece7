//! The owners of configuration files, on systems where a file has no user id.

use std::path::Path;

/// Returns false: there are no user ids to compare.
pub(super) fn is_of_others(_: &Path, _: &Path) -> bool {
    false
}
