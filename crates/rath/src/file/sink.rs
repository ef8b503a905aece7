//! Checking the versions of files in a session file, and taking them over.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rath_record::chunk::NamedObjects;
use rath_record::codec::{Fault, Object, ObjectContent, ObjectKind, ObjectSink};
use rath_record::{ObjectId, StepId};
use rath_workspace::{ImportCounts, ImportError, ObjectImport, Objects};

use crate::gc;
use crate::secrets::Secrets;
use crate::session::{Error, Result, open_versions};

/// Compares the versions of files in a session file with their ids, and holds those back that are to be stored.
///
/// A version has to be named by a step or by a directory before it; another one is damage of the file, and is not stored.
#[derive(Default)]
pub(crate) struct FileChecker {
    import: ObjectImport,
    /// The first step that names a version.
    steps: HashMap<ObjectId, StepId>,
    /// The directory in whose `.rath` the versions are stored; none to check them only.
    into: Option<PathBuf>,
    folder: Option<Objects>,
    secrets: Secrets,
    /// The id of a version that holds a secret of the user.
    secret: Option<ObjectId>,
    /// The first failure of this machine: no damage of the file.
    failed: Option<Error>,
}

impl FileChecker {
    /// Creates a checker that stores the versions in the `.rath` of a directory, once [`finish`](FileChecker::finish) is called.
    pub(crate) fn storing_in(directory: &Path, secrets: &Secrets) -> Self {
        FileChecker { into: Some(directory.to_owned()), secrets: secrets.clone(), ..FileChecker::default() }
    }

    /// Returns the id of a version that holds a secret of the user.
    pub(crate) fn secret(&self) -> Option<ObjectId> {
        self.secret
    }

    /// Takes the first failure to store something.
    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        self.failed.take()
    }

    /// Reads what the sessions name that are recorded for the directory, if not everything came: what a file of others says about these
    /// versions does not count.
    pub(crate) async fn read_names_here(&mut self) {
        if let Some(directory) = self.into.as_ref().filter(|_| self.import.is_incomplete()) {
            self.import.note_named_here(gc::named_versions(directory).await);
        }
    }

    /// Stores all versions durably, and lists those that were named and are not here. Returns the folder too: while it is open, no
    /// collection removes anything. Blocks.
    pub(crate) fn finish(mut self) -> Result<(ImportCounts, Option<Objects>)> {
        // A session that comes without its files can be imported where none can be stored.
        if self.folder.is_none() && !self.steps.is_empty() && self.open_folder().is_err() {
            let absent = self.steps.len() as u64;
            return Ok((ImportCounts { absent, ..ImportCounts::default() }, None));
        }
        Ok((self.import.finish()?, self.folder))
    }

    /// Opens the folder before the first version is stored: a session without files needs none.
    fn open_folder(&mut self) -> Result<()> {
        if let Some(directory) = self.into.as_ref().filter(|_| self.folder.is_none()) {
            let folder = open_versions(directory)?;
            self.import.store_in(&folder);
            self.folder = Some(folder);
        }
        Ok(())
    }

    fn name(&mut self, step: StepId, id: ObjectId, kind: ObjectKind) {
        self.steps.entry(id).or_insert(step);
        // The limit on the number of names is reported with the first version that is above it.
        let _ = self.import.expect(workspace_id(id), workspace_kind(kind));
    }

    fn add(&mut self, object: Object) -> Result<(), ImportError> {
        let id = workspace_id(object.id);
        match object.content {
            ObjectContent::Here { kind, bytes, zlib } => {
                let content = self.import.add(id, workspace_kind(kind), bytes, &zlib)?;
                if self.secrets.has_values() && self.secret.is_none() {
                    let has_secret = self.secrets.has_known_value(&String::from_utf8_lossy(&content));
                    self.secret = has_secret.then_some(object.id);
                }
                Ok(())
            }
            ObjectContent::Missing => self.import.add_gone(id, None),
            ObjectContent::Forgotten { bytes, digest } => {
                self.import.add_gone(id, Some((bytes, rath_workspace::Digest(digest.0))))
            }
        }
    }
}

impl ObjectSink for FileChecker {
    fn step(&mut self, step: StepId, json: &str) {
        let named = NamedObjects::of(json);
        named.tree.into_iter().for_each(|tree| self.name(step, tree, ObjectKind::Tree));
        named.files.into_iter().for_each(|file| self.name(step, file, ObjectKind::Blob));
    }

    fn object(&mut self, object: Object) -> Result<(), Fault> {
        // After a failure nothing is stored.
        if self.failed.is_some() {
            return Ok(());
        }
        if let Err(error) = self.open_folder() {
            self.failed = Some(error);
            return Ok(());
        }
        match self.add(object) {
            Ok(()) => Ok(()),
            Err(ImportError::Store(error)) => {
                self.failed = Some(error.into());
                Ok(())
            }
            Err(ImportError::TooLarge) => Err(Fault::ObjectTooLarge),
            Err(ImportError::Unnamed) => Err(Fault::UnnamedObject),
            Err(_) => Err(Fault::ObjectMismatch),
        }
    }

    fn missing(&mut self) -> Vec<(StepId, ObjectId)> {
        let missing = self.import.missing().map(|(id, root)| (ObjectId(id.0), ObjectId(root.0)));
        let mut missing: Vec<_> = missing.filter_map(|(id, root)| Some((*self.steps.get(&root)?, id))).collect();
        missing.sort_unstable();
        missing
    }
}

pub(super) fn workspace_id(id: ObjectId) -> rath_workspace::ObjectId {
    rath_workspace::ObjectId(id.0)
}

pub(super) fn workspace_kind(kind: ObjectKind) -> rath_workspace::ObjectKind {
    match kind {
        ObjectKind::Blob => rath_workspace::ObjectKind::Blob,
        ObjectKind::Tree => rath_workspace::ObjectKind::Tree,
    }
}
