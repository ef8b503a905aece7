//! Files and directories that belong to this user alone.

use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Creates a lock file that does not exist yet.
pub(super) fn create_lock(path: &Path) -> io::Result<File> {
    File::options().append(true).create_new(true).mode(0o600).open(path)
}

/// Creates a directory that only this user can enter.
pub(super) fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Creates a directory and its ancestors that only this user can enter, unless another user owns the nearest that exists.
pub(super) fn create_own_dirs(path: &Path) -> io::Result<()> {
    let existing = path.ancestors().find_map(|above| above.metadata().ok());
    match existing.is_some_and(|existing| is_own(&existing)) {
        true => DirBuilder::new().recursive(true).mode(0o700).create(path),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Opens a lock file. Does not follow a link, and does not wait for a pipe.
pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Returns true for a file of this user.
pub(crate) fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw()
}

/// Returns the bytes that this user can write on the disk of a directory.
pub(super) fn free_bytes(directory: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Returns true if a path leads to an open file.
pub(crate) fn is_same_file(file: &File, path: &Path) -> bool {
    let (open, named) = (file.metadata(), std::fs::symlink_metadata(path));
    open.is_ok_and(|open| named.is_ok_and(|named| (open.dev(), open.ino()) == (named.dev(), named.ino())))
}
