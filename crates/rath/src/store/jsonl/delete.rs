//! Deleting the files of sessions.

use std::collections::{HashMap, HashSet};

use rath_record::BranchId;

use super::super::{Deletion, sync_folder};
use super::Jsonl;
use super::contents::branches;
use super::open_file::lock_path;
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The contents of a file that is deleted.
pub(super) struct DeletedFile {
    branches: Vec<BranchId>,
    steps: u64,
    bytes: u64,
}

impl DeletedFile {
    pub(super) fn add_to(self, deletion: &mut Deletion, family: BranchId) {
        deletion.deleted.push(family);
        deletion.branches.extend(self.branches);
        deletion.freed.steps += self.steps;
        deletion.freed.bytes += self.bytes;
    }
}

impl Jsonl {
    /// Decides which sessions can be deleted. Returns the contents of their files too, as far as a report needs them.
    pub(super) fn plan_delete(&self, families: &[BranchId]) -> Result<(Deletion, HashMap<BranchId, DeletedFile>)> {
        let mut busy = Vec::new();
        for family in families {
            if !self.path(*family).exists() {
                return Err(self.no_such(*family));
            }
            busy.extend(self.lock_idle(*family).err().map(|error| (*family, error)));
        }
        busy.extend(self.needed_by_unlisted(families)?);
        let wanted: HashSet<BranchId> = families.iter().copied().collect();
        let (mut needs, mut files, mut unreadable) = (HashSet::new(), HashMap::new(), HashMap::new());
        for family in self.families()? {
            // The names of other files are enough: what those need is in their own rows.
            let read = self.read_with_needs(&self.path(family));
            if read.is_err() && !self.path(family).exists() {
                continue;
            }
            let contents = match read {
                Ok((contents, others)) => {
                    needs.extend(others.into_iter().map(|other| (family, other)));
                    self.require_own(family, contents).ok().filter(|contents| !contents.steps.is_empty())
                }
                // It may need steps of any session.
                Err(error) => {
                    needs.extend(wanted.iter().map(|other| (family, *other)));
                    unreadable.insert(family, error);
                    None
                }
            };
            if wanted.contains(&family) {
                // What is known of a session without steps is its id.
                let (branches, steps) = match contents {
                    Some(read) => (branches(&read).into_iter().map(|(branch, _)| branch).collect(), read.steps.len()),
                    None => (vec![family], 0),
                };
                let bytes = std::fs::metadata(self.path(family)).map_or(0, |facts| facts.len());
                files.insert(family, DeletedFile { branches, steps: steps as u64, bytes });
            }
        }
        let mut deletion = Deletion::plan(families, busy, &needs);
        for refusal in &mut deletion.refused {
            let by = refusal.needed_by.iter().find_map(|other| Some((*other, unreadable.get(other)?)));
            if let Some((other, error)) = by {
                let (id, file) = (refusal.family.short(), self.file_name(other));
                let message = format!("{file} may need steps of the session {id}, and cannot be read: {error}");
                refusal.error = StoreError::new(StoreErrorKind::Conflict, message)
                    .with_hint("delete them together, or put the file back");
            }
        }
        Ok((deletion, files))
    }

    /// Removes the file of a session that no process writes.
    pub(super) fn remove_file(&self, family: BranchId) -> Result<()> {
        let path = self.path(family);
        let _locked = self.lock_idle(family)?;
        let removed = std::fs::remove_file(&path).and_then(|()| sync_folder(&self.folder));
        removed.map_err(|error| self.io_error("write to", error))?;
        // A lock file that stays does no harm.
        let _ = lock_path(&path).map(std::fs::remove_file);
        Ok(())
    }
}
