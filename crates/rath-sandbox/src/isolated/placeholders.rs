//! Empty files and directories in the place of private files that are missing: a command could create them, and have a key or a
//! configuration of its own used later.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The files and directories that were created, in this order. They are removed with the value, unless they have content by then.
#[derive(Debug, Default)]
pub(super) struct Placeholders(Vec<PathBuf>);

/// The kind of a placeholder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PlaceholderKind {
    Directory,
    File,
}

impl Placeholders {
    /// Creates a path below a directory, unless something is there.
    pub(super) fn create(&mut self, directory: &Path, path: &Path, kind: PlaceholderKind) -> io::Result<()> {
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
            Ok(()) => self.0.push(path.to_owned()),
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
        for path in self.0.iter().rev() {
            // A directory that is not empty is not removed.
            let _ = match path.symlink_metadata() {
                Ok(metadata) if metadata.is_dir() => fs::remove_dir(path),
                Ok(metadata) if metadata.is_file() && metadata.len() == 0 => fs::remove_file(path),
                _ => Ok(()),
            };
        }
    }
}
