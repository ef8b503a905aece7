//! The directories that a collection has still to look at, listed in a file beside the store.
//!
//! A deleted session no longer says which directory it worked in.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::store::{Store, rath_dir};

/// The list beside a store.
#[derive(Clone, Debug)]
pub(super) struct PendingDirs {
    /// None for a store without a file.
    path: Option<PathBuf>,
}

/// The most bytes of a list that are read.
const MAX_LIST_BYTES: u64 = 1 << 20;

impl PendingDirs {
    pub(super) fn of(store: &Store) -> Self {
        let path = store.path().map(|path| {
            let mut path = path.as_os_str().to_owned();
            path.push(".gc");
            path.into()
        });
        PendingDirs { path }
    }

    /// Returns the directories of the list.
    pub(super) fn read(&self) -> BTreeSet<PathBuf> {
        let read = |path: &PathBuf| rath_dir::read_at_most(path, MAX_LIST_BYTES).ok();
        self.path.as_ref().and_then(read).and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// Adds directories, durably.
    pub(super) fn add(&self, directories: &BTreeSet<PathBuf>) -> io::Result<()> {
        let known = self.read();
        if directories.is_subset(&known) { Ok(()) } else { self.write(&known.union(directories).cloned().collect()) }
    }

    /// Removes directories.
    pub(super) fn remove(&self, directories: &[PathBuf]) -> io::Result<()> {
        let known = self.read();
        let rest: BTreeSet<PathBuf> = known.iter().filter(|known| !directories.contains(known)).cloned().collect();
        if let Some(path) = &self.path {
            let _ = fs::remove_file(new_path(path));
        }
        match &self.path {
            Some(path) if rest.is_empty() && path.exists() => fs::remove_file(path),
            _ if rest == known => Ok(()),
            _ => self.write(&rest),
        }
    }

    fn write(&self, directories: &BTreeSet<PathBuf>) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let temporary = new_path(path);
        fs::write(&temporary, serde_json::to_vec(directories)?)?;
        fs::File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, path)
    }
}

/// Returns the path of a list that is being written. One that a killed process left is removed by the next collection.
fn new_path(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".new");
    path.into()
}
