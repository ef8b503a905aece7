//! The directories that a collection has still to look at, listed in a file beside the store.
//!
//! A deleted session no longer says which directory it worked in. Several processes may change the list at the same time, so it is
//! locked meanwhile, and only appended to: a line that a kill cut off is left out.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rath_workspace::read_at_most;
use serde::{Deserialize, Serialize};

use crate::store::{Store, rath_dir};

/// The list beside a store.
#[derive(Clone, Debug)]
pub(super) struct PendingDirs {
    /// None for a store without a file.
    path: Option<PathBuf>,
}

/// A line of the list.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PendingLine {
    Added(PathBuf),
    Removed(PathBuf),
}

/// The most bytes of a list: those of some ten thousand collections.
const MAX_LIST_BYTES: u64 = 16 << 20;

/// The time to wait while another process changes the list, and the pause between two attempts.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

impl PendingDirs {
    pub(super) fn of(store: &Store) -> Self {
        let path = store.path().map(|path| {
            let mut path = path.as_os_str().to_owned();
            path.push(".gc");
            path.into()
        });
        PendingDirs { path }
    }

    /// Returns the directories of the list. Fails if the list cannot be read: without it, directories would be forgotten.
    pub(super) fn read(&self) -> io::Result<BTreeSet<PathBuf>> {
        let Some(path) = &self.path else { return Ok(BTreeSet::new()) };
        rath_dir::check_file(path)?;
        match read_at_most(path, MAX_LIST_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
            bytes => bytes.map(|bytes| parse(&bytes)).map_err(|error| unreadable(path, &error)),
        }
    }

    /// Adds directories, durably.
    pub(super) fn add(&self, directories: &BTreeSet<PathBuf>) -> io::Result<()> {
        self.change(|known| directories.difference(known).cloned().map(PendingLine::Added).collect())
    }

    /// Removes directories.
    pub(super) fn remove(&self, directories: &[PathBuf]) -> io::Result<()> {
        if self.read()?.is_empty() {
            return Ok(());
        }
        self.change(|known| {
            directories.iter().filter(|it| known.contains(*it)).cloned().map(PendingLine::Removed).collect()
        })
    }

    /// Appends lines that `lines` returns for the directories in the list. A list without directories is emptied.
    fn change(&self, lines: impl FnOnce(&BTreeSet<PathBuf>) -> Vec<PendingLine>) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        rath_dir::check_file(path)?;
        let failed = |error| unwritable(path, &error);
        let open = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = open.map_err(failed)?;
        lock_within(&file, path, MAX_LOCK_WAIT)?;
        let mut bytes = Vec::new();
        (&file).take(MAX_LIST_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_LIST_BYTES {
            let error = io::Error::other(format!("it has more than {MAX_LIST_BYTES} bytes"));
            return Err(unreadable(path, &error));
        }
        // A path that is no text cannot be in a list.
        let is_text = |line: &PendingLine| match line {
            PendingLine::Added(path) | PendingLine::Removed(path) => path.to_str().is_some(),
        };
        let mut new = String::new();
        for line in lines(&parse(&bytes)).into_iter().filter(is_text) {
            new += &format!("\n{}\n", serde_json::to_string(&line)?);
        }
        bytes.extend_from_slice(new.as_bytes());
        if parse(&bytes).is_empty() {
            return file.set_len(0).map_err(failed);
        }
        let mut append = || {
            file.seek(io::SeekFrom::End(0))?;
            file.write_all(new.as_bytes())?;
            file.sync_all()
        };
        append().map_err(failed)
    }
}

/// Locks the list. Fails if another process keeps it locked.
fn lock_within(file: &File, path: &Path, max_wait: Duration) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if start.elapsed() >= max_wait => {
                let (path, seconds) = (path.display(), max_wait.as_secs());
                let message = format!(
                    "another process has kept the list of directories {path} locked for {seconds} seconds; try again when that \
                     process has ended"
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> io::Error {
    io::Error::other(format!("cannot read the list of directories {}: {error}", path.display()))
}

fn unwritable(path: &Path, error: &io::Error) -> io::Error {
    let message = format!("cannot write the list of directories {}: {error}", path.display());
    io::Error::new(error.kind(), message)
}

fn parse(bytes: &[u8]) -> BTreeSet<PathBuf> {
    let mut directories = BTreeSet::new();
    for line in bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()) {
        match line {
            PendingLine::Added(path) => _ = directories.insert(path),
            PendingLine::Removed(path) => _ = directories.remove(&path),
        }
    }
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_cannot_be_read_is_no_empty_list() {
        let folder = rath_test_support::temp_dir();
        let path = folder.path().join("store.gc");
        let list = PendingDirs { path: Some(path.clone()) };
        assert!(list.read().expect("no list").is_empty());
        let directory = PathBuf::from("/work");
        list.add(&BTreeSet::from([directory.clone()])).expect("added");
        let file = File::options().append(true).open(&path).expect("opened");
        file.set_len(MAX_LIST_BYTES + 1).expect("lengthened");
        for failed in
            [list.read().map(|_| ()), list.remove(std::slice::from_ref(&directory)), list.add(&BTreeSet::new())]
        {
            let message = failed.expect_err("it is too long").to_string();
            assert!(message.contains("store.gc: it has more than"), "{message}");
        }
        file.set_len(1 << 20).expect("shortened");
        assert_eq!(list.read().expect("read"), BTreeSet::from([directory]));
    }

    #[test]
    fn a_list_that_cannot_be_written_is_named() {
        let folder = rath_test_support::temp_dir();
        let list = PendingDirs { path: Some(folder.path().join("missing/store.gc")) };
        let error = list.add(&BTreeSet::from(["/work".into()])).expect_err("there is no directory");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().starts_with("cannot write the list of directories"), "{error}");
        assert!(error.to_string().contains("missing/store.gc: "), "{error}");
    }

    #[test]
    fn waiting_for_a_list_ends_with_an_error_that_names_it() {
        let folder = rath_test_support::temp_dir();
        let path = folder.path().join("store.gc");
        let open = || File::options().append(true).create(true).open(&path).expect("opened");
        let (other, own, short) = (open(), open(), Duration::from_millis(20));
        other.lock().expect("locked");
        let message = lock_within(&own, &path, short).expect_err("it is locked").to_string();
        assert!(message.starts_with("another process has kept the list of directories"), "{message}");
        assert!(message.contains("store.gc locked for 0 seconds; try again"), "{message}");
        drop(other);
        lock_within(&own, &path, short).expect("it is free");
    }
}
