//! Opening the directory of a branch: its workspace, its name, and the ignored directories that it shares.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rath_record::view;

use super::assignment::first_branch;
use super::branch_dir::{TrackedDir, hide_in_versions};
use super::{BranchDir, BranchDirs, DirRequest};
use crate::error::ErrorKind;
use crate::sandbox::{RATH_DIR, private_paths_in};
use crate::secrets::Secrets;
use crate::session::ignored_files::SharingSandbox;
use crate::session::update_note::UpdateNote;
use crate::session::versions::Versions;
use crate::session::{Error, Result};
use crate::workspace::{ForkShare, Workspace};

impl BranchDirs {
    /// Opens a directory that exists, and completes an update of its files that was interrupted.
    pub(super) fn open(&self, directory: &Path, store: &Versions, request: &DirRequest<'_>) -> Result<Arc<BranchDir>> {
        let mut workspace = self.workspace(directory, store, request.secrets)?;
        let recorded = view::tree(request.record);
        self.note(directory, store, request).complete(&mut workspace, recorded.as_ref().as_slice())?;
        self.dir(directory, workspace, store, request)
    }

    /// Opens the workspace of a directory, which keeps no version of a file that holds a secret.
    pub(super) fn workspace(&self, directory: &Path, store: &Versions, secrets: &Secrets) -> Result<Workspace> {
        let index = self.index(directory, store);
        let root = self.root();
        let mut workspace = match Some(directory) == root {
            true => Workspace::open(directory, store.objects(), &index)?,
            false => Workspace::open_fork(directory, store.objects(), &index)?,
        };
        // In a fork too: what is created there under a private name would be merged into the directory.
        let mut left_out = root.map(private_paths_in).unwrap_or_default();
        if self.original_of(directory).is_some() {
            left_out.extend(self.share(directory)?.directories());
        }
        workspace.leave_out(&left_out)?;
        hide_in_versions(&mut workspace, secrets);
        Ok(workspace)
    }

    /// Returns the path of the snapshot index for a directory.
    pub(super) fn index(&self, directory: &Path, store: &Versions) -> PathBuf {
        store.objects().folder().join("index").join(self.name(directory))
    }

    /// Returns the note about an update of a directory.
    pub(super) fn note(&self, directory: &Path, store: &Versions, request: &DirRequest<'_>) -> UpdateNote {
        let session = first_branch(request.record).unwrap_or(request.branch);
        UpdateNote::new(store.objects(), &self.name(directory), session)
    }

    /// Returns the name of a directory among those of the session.
    fn name(&self, directory: &Path) -> String {
        // The directory of a fork has the name of its branch.
        let name = directory.file_name().filter(|_| Some(directory) != self.root() || self.owner.is_some());
        name.map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// Returns the directory whose ignored directories are shared with another one; none if that is the user's own.
    fn original_of(&self, directory: &Path) -> Option<&Path> {
        self.original.as_deref().or_else(|| self.sandbox.directory().filter(|root| *root != directory))
    }

    /// Returns the shared directories of a directory.
    fn share(&self, directory: &Path) -> Result<ForkShare> {
        let canonical = directory.canonicalize()?;
        Ok(match Some(directory) == self.sandbox.directory() {
            true => ForkShare::within(&canonical, &canonical.join(RATH_DIR).join("workspace").join("shared")),
            false => ForkShare::of(&canonical),
        })
    }

    /// Returns the sandbox over a directory together with its workspace.
    pub(super) fn dir(
        &self,
        directory: &Path,
        mut workspace: Workspace,
        store: &Versions,
        request: &DirRequest<'_>,
    ) -> Result<Arc<BranchDir>> {
        let (sandbox, unshared) = match self.original_of(directory) {
            None => (self.sandbox.clone(), Vec::new()),
            Some(root) => {
                let share = self.share(directory)?;
                let over = SharingSandbox::over(&self.sandbox, root, share, workspace.objects())?;
                let SharingSandbox { sandbox, left_out, unshared } = over.ok_or_else(|| {
                    Error::new(ErrorKind::Place, format_args!("{} cannot be forked", self.sandbox.uri()))
                })?;
                workspace.leave_out_new(&left_out);
                (sandbox, unshared)
            }
        };
        let tracked = TrackedDir::new(workspace, self.note(directory, store, request));
        let mirror = self.mirror.get().cloned();
        Ok(Arc::new(BranchDir { sandbox, tracked: Some(Mutex::new(tracked)), mirror, unshared }))
    }
}
