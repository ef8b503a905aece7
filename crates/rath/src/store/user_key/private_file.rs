//! Files that only their user can read and write.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::store::owner::is_this_user;

/// Creates a directory and its ancestors, unless another user owns the nearest that exists.
pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    if let Some(existing) = path.ancestors().find(|path| path.exists()) {
        check(is_this_user(&existing.metadata()?), "another user owns the home directory")?;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a file with this content.
pub(super) fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Reads at most `limit` bytes of a file that no other user can read or write.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // A link would lead elsewhere, and opening a pipe would wait for ever.
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)?;
    let metadata = file.metadata()?;
    let is_private = is_this_user(&metadata) && metadata.mode() & 0o077 == 0;
    check(is_private && metadata.is_file(), "the user's key is not private")?;
    let mut content = Vec::new();
    file.take(limit).read_to_end(&mut content)?;
    Ok(content)
}

fn check(is_right: bool, problem: &str) -> io::Result<()> {
    if is_right { Ok(()) } else { Err(io::Error::other(problem)) }
}
