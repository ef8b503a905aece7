//! The owners of configuration files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns true if a file, or the link in its place, is neither of this user nor of root nor of the owner of the directory: in a
/// directory such as `/tmp` others can create it.
pub(crate) fn is_of_others(path: &Path, directory: &Path) -> bool {
    let owner = fs::metadata(directory).map(|metadata| metadata.uid()).ok();
    let users = [Some(0), Some(rustix::process::geteuid().as_raw()), owner];
    let found = [fs::symlink_metadata(path), fs::metadata(path)].into_iter().flatten();
    found.map(|metadata| metadata.uid()).any(|uid| !users.contains(&Some(uid)))
}

/// Returns true if users other than the owner can read or write a file.
pub(crate) fn is_readable_by_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o077 != 0)
}

/// Creates a file that only its owner can read.
pub(super) fn create_private(path: &Path) -> std::io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}
