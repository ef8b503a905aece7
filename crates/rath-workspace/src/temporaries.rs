//! Temporary files and directories, and their removal after a process that was killed.
//!
//! All temporaries of one opening of a folder of objects lie in a directory of their own, `tmp/<id>` of the folder. The file
//! `tmp/<id>.lock` is locked as long as the opening lives. The system releases the lock when the process ends, also if it
//! is killed, and every other process can test it, also from another PID namespace: a directory whose lock is free is removed by the next opening.
//!
//! A temporary that has to lie elsewhere, because it is renamed within another file system, is noted before it is created: the
//! file `<number>.note` in the directory of the opening holds its path.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::{disk, objects, overlay, regular_file};

/// The temporaries of one opening of a folder.
#[derive(Debug)]
pub(crate) struct Temporaries {
    /// The directory `tmp` of the folder.
    parent: PathBuf,
    /// The directory of this opening, from its first temporary on.
    own: Mutex<Option<LockedDir>>,
    next: AtomicU64,
}

/// A directory that no other process removes while its lock file is locked.
#[derive(Debug)]
struct LockedDir {
    path: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

/// A temporary beside the file that it will replace. Dropping this removes its note, and the file unless it was renamed.
pub(crate) struct NotedTemporary {
    path: PathBuf,
    note: PathBuf,
}

/// The end of the name of a lock file.
const LOCK_SUFFIX: &str = ".lock";
/// The end of the name of a note.
const NOTE_SUFFIX: &str = ".note";

/// Returns a name that no other process generates.
pub(crate) fn unique_name() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

impl Temporaries {
    pub(crate) fn new(folder: &Path) -> Self {
        Temporaries { parent: folder.join("tmp"), own: Mutex::default(), next: AtomicU64::new(0) }
    }

    /// Returns the directory of this opening, which is created by the first call.
    pub(crate) fn directory(&self) -> io::Result<PathBuf> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = &*own {
            return Ok(own.path.clone());
        }
        let created = LockedDir::create(&self.parent)?;
        Ok(own.insert(created).path.clone())
    }

    /// Returns the path of a temporary file or directory that no other thread and no other process uses.
    pub(crate) fn path(&self) -> io::Result<PathBuf> {
        Ok(self.directory()?.join(self.next.fetch_add(1, Relaxed).to_string()))
    }

    /// Returns the path of a temporary file or directory in another directory, after it has been noted.
    pub(crate) fn path_in(&self, directory: &Path) -> io::Result<NotedTemporary> {
        let mut note = self.path()?.into_os_string();
        note.push(NOTE_SUFFIX);
        let path = std::path::absolute(directory)?.join(format!(".rath-{}.tmp", unique_name()));
        let noted = NotedTemporary { path, note: note.into() };
        fs::write(&noted.note, noted.path.as_os_str().as_encoded_bytes())?;
        Ok(noted)
    }

    /// Calls `write` with the path of a temporary file or directory, and renames that to `path`: it appears as a whole or not at
    /// all.
    pub(crate) fn place<T, E: From<io::Error>>(
        &self,
        path: &Path,
        write: impl Fn(&Path) -> Result<T, E>,
    ) -> Result<T, E> {
        let temporary = self.path()?;
        let written = write(&temporary).inspect_err(|_| remove(&temporary))?;
        match fs::rename(&temporary, path).inspect_err(|_| remove(&temporary)) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                let noted = self.path_in(path.parent().unwrap_or(path))?;
                let written = write(&noted.path)?;
                fs::rename(&noted.path, path)?;
                Ok(written)
            }
            renamed => Ok(renamed.map(|()| written)?),
        }
    }

    /// Writes a file, which appears as a whole or not at all.
    pub(crate) fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.place(path, |temporary| fs::write(temporary, bytes))
    }
}

impl NotedTemporary {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for NotedTemporary {
    fn drop(&mut self) {
        remove(&self.path);
        let _ = fs::remove_file(&self.note);
    }
}

impl LockedDir {
    fn create(parent: &Path) -> io::Result<Self> {
        loop {
            fs::create_dir_all(parent)?;
            let path = parent.join(unique_name());
            let lock_path = lock_path(&path);
            let lock = match File::options().append(true).create_new(true).open(&lock_path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                lock => lock?,
            };
            lock.lock()?;
            // Another process may have found the file before it was locked, and removed it.
            if disk::is_same_file(&lock, &lock_path) {
                fs::create_dir(&path)?;
                return Ok(LockedDir { path, lock_path, _lock: lock });
            }
        }
    }
}

/// Removes the directory, then the lock file.
impl Drop for LockedDir {
    fn drop(&mut self) {
        let _ = disk::remove_tree(&self.path);
        let _ = fs::remove_file(&self.lock_path);
        let _ = self.path.parent().map(fs::remove_dir);
    }
}

fn lock_path(directory: &Path) -> PathBuf {
    let mut path = directory.as_os_str().to_owned();
    path.push(LOCK_SUFFIX);
    path.into()
}

fn remove(path: &Path) {
    let _ = fs::remove_file(path).or_else(|_| disk::remove_tree(path));
}

/// Removes the temporaries of processes that have ended. Those of live processes stay.
pub(crate) fn sweep(folder: &Path) {
    let parent = folder.join("tmp");
    for entry in fs::read_dir(&parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let directory = parent.join(name.strip_suffix(LOCK_SUFFIX).unwrap_or(name));
        // A lock file is created before its directory and removed after it.
        let lock = match File::open(lock_path(&directory)) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => continue,
        };
        if lock.as_ref().is_none_or(|lock| lock.try_lock().is_ok()) {
            sweep_directory(&directory);
            let _ = fs::remove_file(lock_path(&directory));
        }
    }
}

/// Removes the directory of an opening that has ended, and the temporaries elsewhere that are noted in it.
fn sweep_directory(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            overlay::unmount_trial(&path);
        } else if entry.file_name().as_encoded_bytes().ends_with(NOTE_SUFFIX.as_bytes()) {
            let note = regular_file::read_at_most(&path, objects::MAX_SMALL_FILE_BYTES);
            let _ = note.map(|note| remove_noted(&disk::path_from_bytes(&note)));
        }
    }
    remove(directory);
}

/// Removes a temporary that was noted. Its name is checked: a note may come from elsewhere, and must not name other files.
fn remove_noted(path: &Path) {
    let is_temporary = path.file_name().is_some_and(|name| is_temporary_name(name.as_encoded_bytes()));
    if is_temporary && path.is_absolute() {
        remove(path);
        // The changes of a fork that is not mounted lie in its upper layer.
        overlay::path_in_layer(path).iter().for_each(|path| remove(path));
    }
}

/// Returns true for the name of a temporary beside the file that it will replace.
pub(crate) fn is_temporary_name(name: &[u8]) -> bool {
    let middle = name.strip_prefix(b".rath-").and_then(|rest| rest.strip_suffix(b".tmp"));
    middle.is_some_and(|middle| middle.len() == 32 && middle.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(all(test, unix))]
mod tests;
