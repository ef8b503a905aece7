//! Empty files and directories in the place of private files that are missing: a command could create them, and have a key or a
//! configuration of its own used later.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// The files and directories that were created, for each directory that commands can write.
#[derive(Debug, Default)]
pub(super) struct Placeholders {
    directories: Vec<LockedDir>,
}

/// A directory with placeholders. They are removed with the value, unless they have content by then, or another process hides them
/// too: removing what is hidden would show it to the commands of that process.
#[derive(Debug)]
struct LockedDir {
    path: PathBuf,
    /// The directory, with a shared lock as long as the placeholders are needed.
    lock: File,
    /// In the order of their creation.
    created: Vec<PathBuf>,
}

/// The time that another process may take to remove its placeholders.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(30);
/// The time between two attempts to lock a directory.
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// The kind of a placeholder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PlaceholderKind {
    Directory,
    File,
}

impl Placeholders {
    /// Creates a path below a directory, unless something is there.
    pub(super) fn create(&mut self, directory: &Path, path: &Path, kind: PlaceholderKind) -> io::Result<()> {
        let known = self.directories.iter().position(|known| known.path == directory);
        let nth = known.unwrap_or(self.directories.len());
        if known.is_none() {
            let lock = lock_shared(directory, MAX_LOCK_WAIT)?;
            self.directories.push(LockedDir { path: directory.to_owned(), lock, created: Vec::new() });
        }
        let above = path.ancestors().skip(1).take_while(|above| *above != directory);
        let mut parents: Vec<_> = above.collect();
        parents.reverse();
        for parent in parents {
            self.directories[nth].create_one(parent, PlaceholderKind::Directory)?;
        }
        self.directories[nth].create_one(path, kind)
    }
}

/// Opens a directory with a shared lock. Fails if another process keeps it locked for longer than `wait`.
fn lock_shared(directory: &Path, wait: Duration) -> io::Result<File> {
    let lock = File::open(directory)?;
    let start = Instant::now();
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(lock),
            Err(Errno::WOULDBLOCK) if start.elapsed() < wait => std::thread::sleep(LOCK_RETRY),
            Err(Errno::WOULDBLOCK) => {
                let message =
                    format!("another process keeps `{}` locked for {} s", directory.display(), wait.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl LockedDir {
    fn create_one(&mut self, path: &Path, kind: PlaceholderKind) -> io::Result<()> {
        let created = match kind {
            PlaceholderKind::Directory => create_private_dir(path),
            PlaceholderKind::File => File::options().write(true).create_new(true).open(path).map(|_| ()),
        };
        match created {
            Ok(()) => self.created.push(path.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn create_private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().mode(0o700).create(path)
}

impl Drop for LockedDir {
    fn drop(&mut self) {
        if rustix::fs::flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        for path in self.created.iter().rev() {
            // A directory that is not empty is not removed.
            let _ = match path.symlink_metadata() {
                Ok(metadata) if metadata.is_dir() => fs::remove_dir(path),
                Ok(metadata) if metadata.is_file() && metadata.len() == 0 => fs::remove_file(path),
                _ => Ok(()),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_another_process_keeps_locked_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().expect("a directory");
        let other = File::open(folder.path()).expect("opened");
        rustix::fs::flock(&other, FlockOperation::LockExclusive).expect("locked");
        let error = lock_shared(folder.path(), Duration::ZERO).expect_err("it is locked");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(other);
        lock_shared(folder.path(), Duration::ZERO).expect("it is free");
    }
}
