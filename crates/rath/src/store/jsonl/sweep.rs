//! Removing what killed processes left in the directory of a store.
//!
//! The name of such a file begins with the id of its session. A new file of a session is locked by the process that writes it, and
//! the other temporary files belong to the process that has locked the file of their session.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use rath_record::BranchId;

use super::{Jsonl, JsonlState};
use crate::store::error::Result;

impl Jsonl {
    /// Sweeps, unless this handle did so before.
    pub(super) fn sweep_once(&self, state: &mut JsonlState) {
        if !std::mem::replace(&mut state.is_swept, true) {
            // What cannot be removed now is removed by a later process.
            let _ = self.sweep();
        }
    }

    /// Removes the files that processes left which were killed while they began, rewrote or deleted a session.
    pub(super) fn sweep(&self) -> Result<()> {
        for (family, path) in self.temporaries()? {
            let is_rewritten = || -> Result<bool> {
                // A process that rewrites the session has locked its file, and one that begins it the temporary one.
                let lock = self.separate_lock(family)?.or_else(|| File::open(self.path(family)).ok());
                Ok(lock.is_none_or(|lock| lock.try_lock().is_err()))
            };
            if !self.path(family).exists() || !is_rewritten()? {
                self.remove_unlocked(family, &path)?;
            }
        }
        Ok(())
    }

    /// Returns the temporary files, each with its session.
    fn temporaries(&self) -> Result<Vec<(BranchId, PathBuf)>> {
        let entries = std::fs::read_dir(&self.folder).map_err(|error| self.io_error("read", error))?;
        let temporaries =
            entries.flatten().filter_map(|entry| Some((session_of_temporary(&entry.file_name())?, entry.path())));
        Ok(temporaries.collect())
    }

    /// Removes a temporary file that no process has locked. It is locked meanwhile, so that a process that has just created it
    /// notices.
    fn remove_unlocked(&self, family: BranchId, path: &Path) -> Result<()> {
        let lock = match self.separate_lock(family)? {
            Some(lock) => Ok(lock),
            None => File::options().append(true).open(path),
        };
        if let Ok(lock) = lock
            && self.lock_file(&lock)?
        {
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }
}

/// Returns the session in the name of a temporary file. A file that a user gave another name, such as `ID.jsonl.tmp`, is none.
pub(super) fn session_of_temporary(name: &OsStr) -> Option<BranchId> {
    let (family, unique) = name.to_str()?.strip_suffix(".tmp")?.split_once('.')?;
    uuid::Uuid::try_parse(unique).ok().and_then(|_| family.parse().ok())
}
