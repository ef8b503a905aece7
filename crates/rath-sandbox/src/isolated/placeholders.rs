//! Empty files and directories in the place of private files that are missing: a command could create them, and have a key or a
//! configuration of its own used later.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// The files and directories that were created. They are removed with the value, unless they have content by then, or another process
/// hides them too: removing what is hidden would show it to the commands of that process.
#[derive(Debug, Default)]
pub(super) struct Placeholders {
    /// In the order of their creation.
    created: Vec<PathBuf>,
    /// The workspace, with a shared lock as long as the placeholders are needed.
    lock: Option<File>,
}

/// The kind of a placeholder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PlaceholderKind {
    Directory,
    File,
}

impl Placeholders {
    /// Creates a path below a directory, unless something is there.
    pub(super) fn create(&mut self, directory: &Path, path: &Path, kind: PlaceholderKind) -> io::Result<()> {
        if self.lock.is_none() {
            let lock = File::open(directory)?;
            rustix::fs::flock(&lock, FlockOperation::LockShared)?;
            self.lock = Some(lock);
        }
        let above = path.ancestors().skip(1).take_while(|above| *above != directory);
        let mut parents: Vec<_> = above.collect();
        parents.reverse();
        for parent in parents {
            self.create_one(parent, PlaceholderKind::Directory)?;
        }
        self.create_one(path, kind)
    }

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

impl Drop for Placeholders {
    fn drop(&mut self) {
        let is_alone = |lock: &File| rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if !self.lock.as_ref().is_some_and(is_alone) {
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
