//! Removing what killed processes left in the directory of a store.
//!
//! The name of such a file begins with the id of its session. A new file of a session is locked by the process that writes it, and
//! the other temporary files belong to the process that has locked the file of their session.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

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
        let mut without_session = Vec::new();
        for (family, name) in self.own_files()? {
            let path = self.folder.join(&name);
            let is_temporary = path.extension().is_some_and(|extension| extension == "tmp");
            match self.path(family).exists() {
                true if is_temporary => {
                    // A process that rewrites the session has locked its file, and one that begins it the temporary one.
                    let lock = self.separate_lock(family)?.or_else(|| File::open(self.path(family)).ok());
                    if lock.is_some_and(|lock| lock.try_lock().is_ok()) {
                        self.remove_unlocked(family, &path)?;
                    }
                }
                true => {}
                false if is_temporary => self.remove_unlocked(family, &path)?,
                false => without_session.push((family, path)),
            }
        }
        // A process that begins a session creates its temporary file before its signatures.
        let begun: HashSet<_> =
            self.own_files()?.into_iter().filter(|(_, name)| is_row_file(name)).map(|(it, _)| it).collect();
        for (_, path) in without_session.into_iter().filter(|(family, _)| !begun.contains(family)) {
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }

    /// Returns the files that belong to a session, with the session.
    fn own_files(&self) -> Result<Vec<(BranchId, OsString)>> {
        let entries = std::fs::read_dir(&self.folder).map_err(|error| self.io_error("read", error))?;
        let own = entries.flatten().filter_map(|entry| {
            let name = entry.file_name();
            let (family, _) = name.to_str()?.split_once('.')?;
            Some((family.parse().ok()?, name))
        });
        Ok(own.collect())
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

/// Returns true for a file that holds steps, under its own name or a temporary one.
fn is_row_file(name: &OsString) -> bool {
    name.to_str().is_some_and(|name| name.ends_with(".jsonl") || name.ends_with(".tmp"))
}
