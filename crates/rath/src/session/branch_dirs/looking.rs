//! Looking at the files of a branch: the changes since its record, and the snapshots around calls.

use std::collections::HashMap;
use std::sync::Arc;

use rath_record::chunk::{Effect, Observed, Tree};
use rath_record::view;

use super::branch_dir::TrackedDir;
use super::{BranchDir, BranchDirs, DirRequest};
use crate::error::ErrorKind;
use crate::policy::ActivePolicy;
use crate::sandbox::TempDir;
use crate::session::version_folders::{VERSIONS_DIR, missing_files};
use crate::session::versions::{self, Versions};
use crate::session::{Error, Result};
use crate::workspace::Workspace;

/// The files that are listed as changed because their present content is not kept, and cannot be compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutdatedFiles {
    /// Those of which the record does not say so yet.
    New,
    All,
}

impl BranchDirs {
    /// Returns the state of the files of a branch, with the changes since the tree on the record. None if there are no changes
    /// and no call may have made some, or if no tree is known. Creates nothing.
    pub(crate) fn changes_since_record(
        &self,
        request: &DirRequest<'_>,
        listed: OutdatedFiles,
    ) -> Result<Option<Observed>> {
        let Some(root) = self.root() else { return Ok(None) };
        let has_versions = self.has_versions()?;
        let unobserved = view::unobserved(request.record);
        let (since, calls) = unobserved.map_or((None, Vec::new()), |it| (it.since, it.calls));
        let Some(known) = since.or_else(|| view::tree(request.record)) else { return Ok(None) };
        if let Some(mirror) = self.mirror.get().filter(|mirror| !mirror.is_current()) {
            let reason = mirror.unseen_reason().unwrap_or_else(|| "they were not looked at".to_owned());
            return Err(Error::new(ErrorKind::Place, format_args!("its files cannot be seen: {reason}")));
        }
        let directory = self.own_path(root, request);
        // A directory without versions may be another one than that of the session. Its tree tells.
        let mut temporary = None;
        let store = match has_versions {
            true => self.versions()?,
            false => Some(&temporary.insert(TemporaryVersions::create()?).versions),
        };
        let Some(store) = store else { return Ok(None) };
        let (found, outdated) = match directory {
            Some(directory) => {
                let mut workspace = self.workspace(&directory, store, request.secrets)?;
                workspace.assume(versions::tree_id(&known)?);
                self.note(&directory, store, request).complete(&mut workspace, &[&known])?;
                let snapshot = workspace.snapshot()?;
                (versions::tree(snapshot.tree), versions::outdated_effects(&snapshot))
            }
            // The directory of the branch will be made from the tree on the record.
            None if store.objects().has_tree(versions::tree_id(&known)?) => (known.clone(), Vec::new()),
            None => return Err(missing_files()),
        };
        let mut effects = if found == known { Vec::new() } else { store.diff(Some(&known), &found)? };
        effects.extend(match listed {
            OutdatedFiles::All => outdated,
            OutdatedFiles::New => unrecorded(request, outdated),
        });
        if found == known && effects.is_empty() && calls.is_empty() {
            return Ok(None);
        }
        Ok(Some(Observed::new(found).with_effects(effects).with_calls(calls)))
    }

    /// Returns the step that records the files of a branch that has none on its record. Creates no directory for a fork.
    pub(crate) fn observe_first(
        &self,
        request: &DirRequest<'_>,
        policy: Option<&Arc<ActivePolicy>>,
    ) -> Result<Option<Observed>> {
        let versions = match self.versions() {
            // Tools that only read can work in such a directory. The others report the error.
            Err(error) if is_read_only(&error) => return Ok(None),
            versions => versions?,
        };
        let (Some(root), Some(store)) = (self.sandbox.directory(), versions) else { return Ok(None) };
        let has_dir = self.assigned(request.branch).is_some()
            || Workspace::is_fork(&self.fork_path(root, request.branch))
            || self.claims_root(request);
        if has_dir {
            return self.observe(&*self.dir_for(request)?, None, policy);
        }
        let mut origin = self.workspace(root, store, request.secrets)?;
        Ok(Some(Observed::new(self.first_tree(&mut origin)?)))
    }

    /// Takes a snapshot before a tool runs, and returns the step to record if the files are not as the record says.
    ///
    /// From here on, files that the policy guards can be put back.
    pub(crate) fn observe(
        &self,
        dir: &BranchDir,
        known: Option<&Tree>,
        policy: Option<&Arc<ActivePolicy>>,
    ) -> Result<Option<Observed>> {
        let Some(mut tracked) = dir.tracked() else { return Ok(None) };
        let policy = policy.filter(|_| dir.can_put_back());
        // From the first look of the session on, no call can hide its changes by ignoring files.
        if let Some(known) = known {
            tracked.workspace.keep_tracked();
            tracked.workspace.assume(versions::tree_id(known)?);
        }
        let TrackedDir { workspace, note, .. } = &mut *tracked;
        note.complete(workspace, known.as_slice())?;
        let now = tracked.workspace.snapshot()?;
        tracked.workspace.keep_tracked();
        let tree = versions::tree(now.tree);
        self.state().first.get_or_insert_with(|| tree.clone());
        tracked.first.get_or_insert_with(|| now.clone());
        let last = tracked.last.replace(now.clone());
        tracked.back_up(&dir.sandbox, policy)?;
        let Some(known) = known else { return Ok(Some(Observed::new(tree))) };
        let effects = match last {
            Some(last) if versions::tree(last.tree) == *known => {
                versions::effects(tracked.workspace.changes(&last, &now)?)
            }
            _ if *known == tree => Vec::new(),
            _ => versions::effects(tracked.workspace.objects().diff(Some(versions::tree_id(known)?), now.tree)?),
        };
        // Untracked files may have changed although the tree is the same.
        if *known == tree && effects.is_empty() {
            return Ok(None);
        }
        Ok(Some(Observed::new(tree).with_effects(effects)))
    }
}

/// Returns the files of which the newest step about them does not say that their content is not kept.
fn unrecorded(request: &DirRequest<'_>, mut outdated: Vec<Effect>) -> Vec<Effect> {
    if outdated.is_empty() {
        return outdated;
    }
    let mut newest = HashMap::new();
    for effect in request.record.newest_first().flat_map(|step| step.chunk().effects()) {
        newest.entry(effect.path.as_str()).or_insert(effect.unkept);
    }
    outdated.retain(|file| newest.get(file.path.as_str()) != Some(&file.unkept));
    outdated
}

/// Versions of files that are removed when the value is dropped.
struct TemporaryVersions {
    versions: Versions,
    _folder: TempDir,
}

impl TemporaryVersions {
    fn create() -> Result<Self> {
        let folder = TempDir::create_blocking("versions")?;
        Ok(TemporaryVersions { versions: Versions::open(&folder.path().join(VERSIONS_DIR))?, _folder: folder })
    }
}

/// Returns true if a directory cannot be written.
fn is_read_only(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    let kinds = [std::io::ErrorKind::PermissionDenied, std::io::ErrorKind::ReadOnlyFilesystem];
    source.is_some_and(|source| kinds.contains(&source.kind()))
}
