//! The lock of a folder of objects: shared by all that use the folder, exclusive while objects are removed.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::disk;
use crate::error::{Error, ErrorKind, Result};
use crate::objects::io_error;

/// A lock on a folder. Dropping it, or the end of the process, releases it.
#[derive(Debug)]
pub(crate) struct FolderLock(File);

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread is just starting has a copy of it.
        let _ = self.0.unlock();
    }
}

/// The name of the lock file.
pub(crate) const LOCK_FILE: &str = "lock";

/// The time to wait while another process removes objects, and the pause between two attempts.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

impl FolderLock {
    /// Creates the folder if it is missing, and locks it for use. Blocks while objects are being removed, and fails if that takes
    /// too long.
    pub(crate) fn share(folder: &Path) -> Result<Self> {
        let open = || open(folder).map_err(|error| io_error(folder, "open the versions in", error));
        share_within(folder, MAX_LOCK_WAIT, open)
    }

    /// Locks a folder that exists for reading. None if its lock file is missing or cannot be opened: then nothing keeps a process
    /// that may write there from removing objects.
    pub(crate) fn share_existing(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(LOCK_FILE);
        match File::open(&path) {
            Err(_) => Ok(None),
            Ok(_) => share_within(folder, MAX_LOCK_WAIT, || {
                File::open(&path).map_err(|error| io_error(folder, "open the versions in", error))
            })
            .map(Some),
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

/// Shares the lock of the file that `open` returns. A file that was replaced before it was locked is opened again.
fn share_within(folder: &Path, max_wait: Duration, open: impl Fn() -> Result<File>) -> Result<FolderLock> {
    let start = Instant::now();
    loop {
        let file = open()?;
        match file.try_lock_shared() {
            Ok(()) if disk::is_same_file(&file, &folder.join(LOCK_FILE)) => return Ok(FolderLock(file)),
            Ok(()) | Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(io_error(folder, "lock the versions in", error)),
        }
        if start.elapsed() >= max_wait {
            let message = format!(
                "another process removes unused versions in `{}`, and was not done within {} seconds",
                folder.display(),
                max_wait.as_secs()
            );
            return Err(Error::new(ErrorKind::Directory, message).with_hint("try again when that process has ended"));
        }
        std::thread::sleep(LOCK_PAUSE);
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_folder_ends_with_an_error_that_says_why() {
        let folder = tempfile::tempdir().expect("a folder");
        let exclusive = FolderLock::try_exclusive(folder.path()).expect("locked").expect("not in use");
        let open = || Ok(open(folder.path())?);
        let short = Duration::from_millis(20);
        let error = share_within(folder.path(), short, open).expect_err("it is locked");
        assert!(error.to_string().starts_with("another process removes unused versions in"), "{error}");
        assert!(error.hint().is_some());
        drop(exclusive);
        share_within(folder.path(), short, open).expect("it is free");
        // A file system on which a file is never recognised by its number.
        let other = || Ok(tempfile::tempfile()?);
        assert!(share_within(folder.path(), short, other).is_err(), "attempts are bounded");
    }
}
