//! The lock of a folder of objects: shared by all that use the folder, exclusive while objects are removed.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use crate::disk;

/// A lock on a folder. Dropping it, or the end of the process, releases it.
#[derive(Debug)]
pub(crate) struct FolderLock(#[allow(dead_code, reason = "the open file holds the lock")] File);

/// The name of the lock file.
pub(crate) const LOCK_FILE: &str = "lock";

impl FolderLock {
    /// Creates the folder if it is missing, and locks it for use. Blocks while objects are being removed.
    pub(crate) fn share(folder: &Path) -> io::Result<Self> {
        loop {
            let file = open(folder)?;
            file.lock_shared()?;
            if disk::is_same_file(&file, &folder.join(LOCK_FILE)) {
                return Ok(FolderLock(file));
            }
        }
    }

    /// Locks a folder that exists for reading. None if the folder has no lock file.
    pub(crate) fn share_existing(folder: &Path) -> io::Result<Option<Self>> {
        match File::open(folder.join(LOCK_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => {
                let file = file?;
                file.lock_shared()?;
                Ok(Some(FolderLock(file)))
            }
        }
    }

    /// Locks a folder that exists against all use. None while it is in use.
    pub(crate) fn try_exclusive(folder: &Path) -> io::Result<Option<Self>> {
        let path = folder.join(LOCK_FILE);
        let file = open_lock(&path)?;
        match file.try_lock() {
            Ok(()) if disk::is_same_file(&file, &folder.join(LOCK_FILE)) => Ok(Some(FolderLock(file))),
            Ok(()) | Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

fn open(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    open_lock(&folder.join(LOCK_FILE))
}

/// Opens a lock file for reading and writing: some file systems lock no other files.
fn open_lock(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}
