//! Empty files and directories in the place of private files that are missing: a command could create them, and have a key or a
//! configuration of its own used later.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::hidden;
use crate::blocking::drop_on_pool;
use crate::error::{Error, ErrorKind, Result};
use crate::mount_table::MountTable;
use crate::private_paths::{
    PRIVATE_HOME_DIRS, PRIVATE_HOME_FILES, home_directories, homes_at, named_homes, own_directories, resolved,
};
use crate::temp_dir::{is_own, is_same_file};

/// Empty files and directories in the place of private ones that are missing in a workspace, for sandboxes that mount it elsewhere: a
/// missing name cannot be covered.
///
/// They are removed with the value, unless they have content by then. See [`crate::backend`] for an example.
#[derive(Debug, Default)]
pub struct PrivatePlaceholders(Option<Placeholders>);

impl PrivatePlaceholders {
    /// Creates those that are missing in a workspace. Fails if a private path is a link, or leads through one. Blocks.
    pub fn hold(&mut self, workspace: &Path) -> Result<()> {
        let homes = homes_at(&MountTable::read().unwrap_or_default(), home_directories());
        let own: Vec<PathBuf> = own_directories().flat_map(|path| [resolved(&path), path]).collect();
        keep_private(&private_in(&[workspace], &homes, &own)?, self.0.get_or_insert_default())
    }
}

impl Drop for PrivatePlaceholders {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(drop_on_pool);
    }
}

/// The files and directories that were created, for each home directory.
#[derive(Debug, Default)]
pub(super) struct Placeholders {
    homes: Vec<LockedHome>,
}

/// A private path, and the home directory that it belongs to. The directories of the key and the configuration belong to rath.
#[derive(Clone, Debug)]
pub(super) struct PrivatePath {
    pub(super) path: PathBuf,
    pub(super) kind: PlaceholderKind,
    pub(super) home: Option<PathBuf>,
}

/// A home directory with placeholders. They are removed with the value, unless they have content by then, or another process hides them
/// too: removing what is hidden would show it to the commands of that process.
#[derive(Debug)]
struct LockedHome {
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
    /// Creates a private path, unless something is there.
    ///
    /// Every process that hides it locks the same directory: the home directory, wherever the writable directory begins. What belongs
    /// to rath stays, and needs no lock.
    pub(super) fn create(&mut self, private: &PrivatePath) -> io::Result<()> {
        let PrivatePath { path, kind, home } = private;
        let Some(home) = home else { return create_missing(path, *kind).map(|_| ()) };
        // One lock, also if the directory is mounted at several paths.
        let known = self.homes.iter().position(|known| known.path == *home || is_same_file(&known.lock, home));
        let nth = known.unwrap_or(self.homes.len());
        if known.is_none() {
            let created = create_missing(home, PlaceholderKind::Directory)?;
            // Neither this program nor a command can create it.
            if !home.is_dir() {
                return Ok(());
            }
            let lock = lock_shared(home, MAX_LOCK_WAIT)?;
            self.homes.push(LockedHome { path: home.clone(), lock, created });
        }
        self.homes[nth].created.extend(create_missing(path, *kind)?);
        Ok(())
    }
}

/// Returns the private paths in directories that commands can write. Fails if one is a link, or leads through one.
pub(super) fn private_in(roots: &[&Path], homes: &[PathBuf], own: &[PathBuf]) -> Result<Vec<PrivatePath>> {
    let of_home = |home: &PathBuf| {
        let dirs = PRIVATE_HOME_DIRS.map(|name| (home.join(name), PlaceholderKind::Directory));
        let files = PRIVATE_HOME_FILES.map(|name| (home.join(name), PlaceholderKind::File));
        let paths = dirs.into_iter().chain(files);
        paths.map(|(path, kind)| PrivatePath { path, kind, home: Some(home.clone()) }).collect::<Vec<_>>()
    };
    let own = own.iter().map(|path| PrivatePath { path: path.clone(), kind: PlaceholderKind::Directory, home: None });
    let above = |path: &Path| roots.iter().copied().find(|above| path.starts_with(above));
    let private: Vec<_> = homes.iter().flat_map(of_home).chain(own).filter(|it| above(&it.path).is_some()).collect();
    let named: Vec<_> = named_homes().collect();
    for path in private.iter().map(|private| &private.path).chain(&named) {
        above(path).map_or(Ok(()), |above| hidden::refuse_links(above, path))?;
    }
    Ok(private)
}

/// Keeps commands from creating private files that are missing.
pub(super) fn keep_private(private: &[PrivatePath], placeholders: &mut Placeholders) -> Result<()> {
    private.iter().try_for_each(|private| {
        placeholders.create(private).map_err(|error| {
            let message = format!("cannot keep commands from creating `{}`", private.path.display());
            Error::new(ErrorKind::Io, message).because(error)
        })
    })
}

/// Creates a path, and the directories above it. Returns those that were missing. Stops where no command can create one either: what
/// stands there is kept in its place.
fn create_missing(path: &Path, kind: PlaceholderKind) -> io::Result<Vec<PathBuf>> {
    let mut missing: Vec<_> = path.ancestors().take_while(|path| path.symlink_metadata().is_err()).collect();
    missing.reverse();
    let mut created = Vec::new();
    for missing in missing {
        let kind = if missing == path { kind } else { PlaceholderKind::Directory };
        match create_one(missing, kind) {
            Ok(()) => created.push(missing.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if is_beyond_commands(error.kind(), missing.parent().and_then(Access::of)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(created)
}

/// The access of this user to a directory.
#[derive(Clone, Copy, Debug)]
struct Access {
    /// True if the user owns the directory, and so can change its permissions.
    is_own: bool,
    can_search: bool,
}

impl Access {
    fn of(directory: &Path) -> Option<Self> {
        let metadata = directory.symlink_metadata().ok()?;
        Some(Access { is_own: is_own(&metadata), can_search: directory.join(".").symlink_metadata().is_ok() })
    }
}

/// Returns true if no command can create what this program could not create in a directory. A command is of the same user, also if that
/// is root, and has no privileges.
fn is_beyond_commands(error: io::ErrorKind, above: Option<Access>) -> bool {
    match (error, above) {
        (io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotADirectory, _) => true,
        // A directory that cannot be searched is hidden as a whole. A command could make another one writable.
        (io::ErrorKind::PermissionDenied, Some(above)) => !above.is_own || !above.can_search,
        _ => false,
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

/// Creates a file or directory that only the user can read: if it stays behind, other programs fill it.
fn create_one(path: &Path, kind: PlaceholderKind) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    match kind {
        PlaceholderKind::Directory => fs::DirBuilder::new().mode(0o700).create(path),
        PlaceholderKind::File => File::options().write(true).create_new(true).mode(0o600).open(path).map(|_| ()),
    }
}

impl Drop for LockedHome {
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
    fn a_placeholder_may_be_missing_where_no_command_can_create_one() {
        use io::ErrorKind::{NotADirectory, PermissionDenied, ReadOnlyFilesystem, StorageFull};
        let access = |is_own, can_search| Some(Access { is_own, can_search });
        for (error, above, expected) in [
            (ReadOnlyFilesystem, access(true, true), true),
            (NotADirectory, None, true),
            (PermissionDenied, access(false, true), true),
            (PermissionDenied, access(true, false), true),
            (PermissionDenied, access(true, true), false),
            (PermissionDenied, None, false),
            (StorageFull, access(true, true), false),
        ] {
            assert_eq!(is_beyond_commands(error, above), expected, "{error:?} {above:?}");
        }
        let folder = tempfile::tempdir().expect("a directory");
        File::create(folder.path().join("file")).expect("created");
        let below = folder.path().join("file/below/placeholder");
        assert_eq!(create_missing(&below, PlaceholderKind::File).expect("none is needed"), Vec::<PathBuf>::new());
    }

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
