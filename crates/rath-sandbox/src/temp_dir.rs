//! Temporary directories of this program, and the removal of those that killed processes left.
//!
//! A directory `rath-PURPOSE-UUID` lies in the user's own directory of rath, which is hidden from commands: one that can write the
//! system's directory for temporary files could put a link in its place. The file `rath-PURPOSE-UUID.lock` beside it is locked as
//! long as the directory is in use. The system releases the lock when the process ends, also if it is killed, and every other process
//! can test it, also from another PID namespace: the next process that needs such a directory removes those whose lock is free.

#[cfg(unix)]
mod lock_file;
#[cfg(not(unix))]
#[path = "temp_dir/lock_file_unsupported.rs"]
mod lock_file;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use self::lock_file::{create_lock, create_own_dirs, create_private_dir, free_bytes, open_lock};
pub(crate) use self::lock_file::{is_own, is_same_file};
use crate::private_paths::own_data_directory;

/// A directory that only the user can read, and that is removed on drop. If the process is killed, a later one removes it.
///
/// ```
/// use rath_sandbox::TempDir;
///
/// # fn main() -> std::io::Result<()> {
/// let directory = TempDir::create_blocking("example")?;
/// std::fs::write(directory.path().join("notes.txt"), "one\n")?;
/// let path = directory.path().to_owned();
/// drop(directory);
/// assert!(!path.exists());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

/// The end of the name of a lock file.
const LOCK_SUFFIX: &str = ".lock";

/// The number of attempts to create a directory whose lock file another process removes at the same time.
const MAX_TRIES: usize = 16;

/// The age from which on a directory of an earlier version, which has no lock file, counts as left behind.
const MAX_UNLOCKED_AGE: Duration = Duration::from_secs(24 * 3600);

/// The free space of a disk below which another one is preferred, in bytes. Long output takes as much by default.
const MIN_FREE_BYTES: u64 = 256 << 20;

impl TempDir {
    /// Creates an empty directory for a purpose, which is one word in lower case. Removes those of killed processes first. Blocks.
    ///
    /// It is in `rath/tmp` in the user's data directory; in the system's directory for temporary files if this user cannot write there,
    /// or if that disk is nearly full and the other one has more room.
    pub fn create_blocking(purpose: &str) -> io::Result<Self> {
        let shared = std::env::temp_dir();
        let own = own_folder().filter(|folder| create_own_dirs(folder).is_ok());
        let own = own.filter(|folder| has_room(free_bytes(folder), || free_bytes(&shared)));
        let own = own.and_then(|folder| TempDir::create_swept(&folder, purpose).ok());
        own.map_or_else(|| TempDir::create_swept(&shared, purpose), Ok)
    }

    /// Creates an empty directory like [`create_blocking`](TempDir::create_blocking), in the system's directory for temporary files: for
    /// a workspace, which cannot be where commands see nothing. Blocks.
    pub fn create_workspace_blocking(purpose: &str) -> io::Result<Self> {
        TempDir::create_swept(&std::env::temp_dir(), purpose)
    }

    fn create_swept(folder: &Path, purpose: &str) -> io::Result<Self> {
        sweep(folder);
        TempDir::create_in(folder, purpose)
    }

    fn create_in(folder: &Path, purpose: &str) -> io::Result<Self> {
        for _ in 0..MAX_TRIES {
            let path = folder.join(format!("rath-{purpose}-{}", uuid::Uuid::now_v7()));
            let lock_path = lock_path(&path);
            let lock = create_lock(&lock_path)?;
            // Another process may have found the file before it was locked, and removed it.
            if lock.try_lock().is_ok() && is_same_file(&lock, &lock_path) {
                create_private_dir(&path).inspect_err(|_| _ = fs::remove_file(&lock_path))?;
                return Ok(TempDir { path, lock_path, _lock: lock });
            }
        }
        Err(io::Error::other("the lock file of a temporary directory is removed again and again"))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes the directory, then the lock file.
impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        let _ = fs::remove_file(&self.lock_path);
    }
}

/// Removes the temporary directories of this user's processes that were killed. Those of live processes stay. Blocks.
///
/// [`TempDir::create_blocking`] does this too, in the folder that it uses.
///
/// ```
/// rath_sandbox::sweep_temporaries_blocking();
/// ```
pub fn sweep_temporaries_blocking() {
    own_folder().into_iter().chain([std::env::temp_dir()]).for_each(|folder| sweep(&folder));
}

/// Returns the temporary directories that [`sweep_temporaries_blocking`] would remove. Removes nothing. Blocks.
///
/// ```
/// let left = rath_sandbox::left_temporaries_blocking();
/// println!("{} directories were left behind", left.len());
/// ```
pub fn left_temporaries_blocking() -> Vec<PathBuf> {
    let mut left = Vec::new();
    for folder in own_folder().into_iter().chain([std::env::temp_dir()]) {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let directory = entry.path();
            let is_own_directory =
                || fs::symlink_metadata(&directory).is_ok_and(|metadata| metadata.is_dir() && is_own(&metadata));
            let Some(created) = created_at(&directory).filter(|_| is_own_directory()) else { continue };
            let is_left = match open_lock(&lock_path(&directory)) {
                Ok(lock) => lock.try_lock().is_ok(),
                Err(_) => !lock_path(&directory).exists() && is_old(created, &directory),
            };
            left.extend(is_left.then_some(directory));
        }
    }
    left
}

/// Returns the folder for temporary directories that is hidden from commands, if the user has a home directory.
fn own_folder() -> Option<PathBuf> {
    own_data_directory().map(|directory| directory.join("tmp"))
}

/// Returns true if there is room on the user's disk, or no more on the shared one. Space that is not known counts as room.
fn has_room(own: Option<u64>, shared: impl Fn() -> Option<u64>) -> bool {
    own.is_none_or(|own| own >= MIN_FREE_BYTES || shared().is_none_or(|shared| shared <= own))
}

fn lock_path(directory: &Path) -> PathBuf {
    let mut path = directory.as_os_str().to_owned();
    path.push(LOCK_SUFFIX);
    path.into()
}

/// Removes the directories in a folder whose processes have ended.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let directory = folder.join(name.strip_suffix(LOCK_SUFFIX).unwrap_or(name));
        let Some(created) = created_at(&directory) else { continue };
        if name.ends_with(LOCK_SUFFIX) {
            sweep_locked(&directory);
        } else if !lock_path(&directory).exists() && is_old(created, &directory) {
            remove_own(&directory);
        }
    }
}

/// Removes a directory with its lock file, if the lock is free.
fn sweep_locked(directory: &Path) {
    let path = lock_path(directory);
    let Ok(lock) = open_lock(&path) else { return };
    let is_own = lock.metadata().is_ok_and(|metadata| metadata.is_file() && is_own(&metadata));
    if is_own && lock.try_lock().is_ok() && is_same_file(&lock, &path) && remove_own(directory) {
        let _ = fs::remove_file(&path);
    }
}

/// Removes a directory of this user. Returns true if there is none afterwards. A link is left alone.
fn remove_own(directory: &Path) -> bool {
    match fs::symlink_metadata(directory) {
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(metadata) => metadata.is_dir() && is_own(&metadata) && fs::remove_dir_all(directory).is_ok(),
    }
}

/// Returns the time at which a directory was created, from its name; none for a name of another program.
fn created_at(directory: &Path) -> Option<SystemTime> {
    let name = directory.file_name()?.to_str()?.strip_prefix("rath-")?;
    let (purpose, id) = name.split_once('-')?;
    let is_word = !purpose.is_empty() && purpose.bytes().all(|byte| byte.is_ascii_lowercase());
    let id = uuid::Uuid::try_parse(id)
        .ok()
        .filter(|id| is_word && id.hyphenated().to_string() == name[purpose.len() + 1..])?;
    let (seconds, nanos) = id.get_timestamp()?.to_unix();
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

/// Returns true if a directory was created and changed so long ago that no process uses it.
fn is_old(created: SystemTime, directory: &Path) -> bool {
    let changed = fs::symlink_metadata(directory).and_then(|metadata| metadata.modified());
    let is_old = |at: SystemTime| at.elapsed().is_ok_and(|age| age > MAX_UNLOCKED_AGE);
    is_old(created) && changed.is_ok_and(is_old)
}

#[cfg(all(test, unix))]
mod tests;
