//! Forks that have a sandbox of their own, because that of the session is no directory of this machine.

use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError};

use rath_record::{BranchId, view};

use super::{BranchDirs, DirRequest, cannot_store};
use crate::sandbox::ForkStart;
use crate::session::Result;
use crate::session::mirror::{Mirror, MirrorStart};
use crate::session::version_folders::missing_files;
use crate::session::versions::{self, Versions};

impl BranchDirs {
    /// Returns the directories of a fork that has a sandbox of its own, if it was opened.
    pub(crate) fn fork_dirs(&self, branch: BranchId) -> Option<Arc<BranchDirs>> {
        self.forks.lock().unwrap_or_else(PoisonError::into_inner).get(&branch).cloned()
    }

    /// Opens the sandbox of a fork, if the branch works in none of the session's and one can be made for it. A new one is still to be
    /// [filled](Mirror::fill). Blocks.
    pub(crate) fn open_fork(&self, request: &DirRequest<'_>) -> Result<Option<(Arc<BranchDirs>, MirrorStart)>> {
        if let Some(dirs) = self.fork_dirs(request.branch) {
            return Ok(Some((dirs, MirrorStart::Files)));
        }
        let (Some(mirror), Some(root)) = (self.mirror.get(), self.root()) else { return Ok(None) };
        let path = self.fork_path(root, request.branch);
        let is_known = Mirror::is_complete_in(&path);
        if !is_known && (self.owner.is_some() || self.works_in_root(root, request)) {
            return Ok(None);
        }
        let start = if is_known { ForkStart::Existing } else { ForkStart::New };
        let Some(sandbox) = mirror.sandbox().for_fork(&request.branch.to_string(), start) else { return Ok(None) };
        let Some(store) = self.versions()? else { return Ok(None) };
        let recorded = view::tree(request.record).or_else(|| view::unobserved(request.record)?.since);
        let tree = recorded.or_else(|| self.state().first.clone());
        if !is_known {
            // What a killed process left was not complete.
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(cannot_store(&path, error)),
                _ => crate::store::make_folder(&path).map_err(|error| cannot_store(&path, error))?,
            }
            if let Some(tree) = &tree {
                let left_out = store.objects().checkout(versions::tree_id(tree)?, &path)?.left_out;
                if !left_out.is_empty() {
                    return Err(missing_files());
                }
            }
        }
        let mut dirs = BranchDirs::new(sandbox.clone());
        dirs.mirror = OnceLock::from(Arc::new(Mirror::of_fork(sandbox, path)));
        dirs.versions = OnceLock::from(Versions::from(store.objects().clone()));
        dirs.owner = Some(request.branch);
        let dirs = self
            .forks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(request.branch)
            .or_insert(Arc::new(dirs))
            .clone();
        Ok(Some((dirs, if tree.is_some() { MirrorStart::Files } else { MirrorStart::AsMade })))
    }

    /// Returns true if a branch works in the sandbox of the session, or is about to take it over.
    fn works_in_root(&self, root: &Path, request: &DirRequest<'_>) -> bool {
        if self.assigned(request.branch).is_some() {
            return true;
        }
        let occupant = self.state().root;
        if self.may_use_root(root, request) && occupant.is_none_or(|occupant| occupant == request.branch) {
            return true;
        }
        let Some((from, _)) = request.takes_over_from else { return false };
        if self.occupant_of(request.record).is_some_and(|occupant| occupant.branch != *from) {
            return false;
        }
        match self.assigned(*from) {
            Some(dir) => {
                let head = dir.tracked().and_then(|tracked| tracked.head);
                head.is_none_or(|head| request.record.find(head).is_some())
            }
            None => self.is_vacated(*from, request),
        }
    }
}
