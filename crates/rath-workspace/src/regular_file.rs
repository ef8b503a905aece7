//! Opening and reading files at paths of others: only regular ones, and no more than a limit.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::disk;

/// Opens a regular file for reading. Fails for a pipe or a device, without waiting for it. Links are followed.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("notes.txt");
/// std::fs::write(&path, "one\n")?;
/// assert!(rath_workspace::open_regular_file(&path).is_ok());
/// assert!(rath_workspace::open_regular_file(folder.path()).is_err());
/// # Ok(())
/// # }
/// ```
pub fn open_regular_file(path: &Path) -> io::Result<File> {
    let file = disk::open_without_waiting(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// Reads a regular file. Fails if it has more than `max` bytes.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("notes.txt");
/// std::fs::write(&path, "one\n")?;
/// assert_eq!(rath_workspace::read_at_most(&path, 4)?, b"one\n");
/// assert!(rath_workspace::read_at_most(&path, 3).is_err());
/// # Ok(())
/// # }
/// ```
pub fn read_at_most(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular_file(path)?.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max {
        true => Err(io::Error::other(format!("it has more than {max} bytes"))),
        false => Ok(bytes),
    }
}
