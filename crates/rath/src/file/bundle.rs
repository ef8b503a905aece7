//! Bundles: session files that hold the versions of files which their steps name.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use rath_record::chunk::NamedObjects;
use rath_record::codec::{Encoder, Object, ObjectContent, ObjectKind};
use rath_record::lineage::Lineage;
use rath_record::{Digest, ObjectId, StepId};
use rath_workspace::{Objects, WalkedContent, WalkedObject, pack_content};

use super::sink::{FileChecker, workspace_id, workspace_kind};
use super::{SalvageReport, SessionFile, WriteError, flush, io_error, push_steps, write_atomically};
use crate::blocking::run_blocking;
use crate::error::ErrorKind;
use crate::secrets::Secrets;
use crate::session::{Error, Result, Session, lossy_path};

/// The choice to put versions of files into a bundle or not.
///
/// Passed to [`Session::export_bundle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleFiles {
    /// The bundle holds every version of a file that its steps name.
    Include,
    /// The bundle holds steps only.
    LeaveOut,
}

/// The contents of a bundle that was written.
///
/// Returned by [`Session::export_bundle`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BundleReport {
    /// The number of steps.
    pub steps: u64,
    /// The number of versions of files.
    pub files: u64,
    /// The number of versions of directories.
    pub directories: u64,
    /// The number of versions of files whose content was removed on purpose.
    pub forgotten: u64,
    /// The versions that steps name and that are not in the bundle.
    pub left_out: Vec<LeftOut>,
}

/// A version of a file or directory that is not in a bundle.
///
/// Part of [`BundleReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The first step that needs it.
    pub step: StepId,
    /// The path; empty for all files of the step.
    pub path: String,
    /// The reason.
    pub reason: LeftOutReason,
}

/// The reason why a version is not in a bundle.
///
/// Part of [`LeftOut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftOutReason {
    /// It is not stored here.
    Missing,
    /// It is damaged.
    Damaged,
    /// It holds a secret of the user.
    Secret,
    /// A rule of the session's policy forbids to read it.
    Hidden,
    /// It is too large for a bundle.
    TooLarge,
}

/// A bundle that was read: its session, and the files that came with it. Nothing of them is stored yet.
///
/// ```
/// use rath::{Bundle, BundleFiles, Secrets};
/// # use rath::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("hello.rath");
/// Session::user("hello").export_bundle(&path, BundleFiles::Include).await?;
///
/// let bundle = Bundle::read(&path, directory.path(), &Secrets::default()).await?;
/// assert!(bundle.file.report.is_whole());
/// let imported = bundle.files.store().await?;
/// assert_eq!((bundle.file.session.chunk_count(), imported.stored), (1, 0));
/// # Ok(())
/// # }
/// ```
pub struct Bundle {
    /// The session, and the result of checking the file, with the versions of files in it.
    pub file: SessionFile,
    /// The files that came with it.
    pub files: StagedFiles,
}

/// The files of a bundle that was read. They are in a temporary file, and are removed when this is dropped.
///
/// Part of [`Bundle`].
pub struct StagedFiles(FileChecker);

/// The files of a bundle that were stored.
///
/// Returned by [`StagedFiles::store`].
#[derive(Debug, Default)]
pub struct ImportedFiles {
    /// The number of versions of files and directories that were stored.
    pub stored: u64,
    /// The number of versions that were here before.
    pub known: u64,
    /// The number of files that stay without their content, because it was removed here on purpose.
    pub forgotten_here: u64,
    /// The number of versions that steps name, and that are neither in the bundle nor here.
    pub absent: u64,
    /// Keeps collections from removing the files before the steps that name them are recorded.
    pub hold: FileHold,
}

/// A hold on the versions of a directory: while it exists, no collection removes any.
///
/// Part of [`ImportedFiles`].
#[derive(Debug, Default)]
pub struct FileHold(#[allow(dead_code, reason = "the handle is the hold")] Option<Objects>);

/// The most bytes of compressed content that fit into a row with its base64.
const MAX_PACKED_BYTES: usize = 700 << 20;

impl Session {
    /// Writes the session to a file for others, atomically: as [`save`](Session::save) does, without the user's signature, and with the
    /// versions of files that its steps name.
    ///
    /// A version that is not here, that holds a secret of the user, or that a rule of the session's [policy](Session::under) forbids to
    /// read, is left out and reported. The bundle says that it is missing.
    /// Content that was [forgotten](crate::Store::forget) is not in a bundle.
    pub async fn export_bundle(&self, path: impl AsRef<Path>, files: BundleFiles) -> Result<BundleReport> {
        let (path, session) = (path.as_ref().to_owned(), self.with_opening());
        let write = move || write_atomically(&path, |out| session.write_bundle(out, files));
        run_blocking(write).await.map_err(|error: Error| error.with_session(self))
    }

    /// Writes the session to `out`, on the current thread. See [`export_bundle`](Session::export_bundle).
    pub fn export_bundle_to_blocking(&self, out: &mut dyn Write, files: BundleFiles) -> Result<BundleReport> {
        let written = self.with_opening().write_bundle(out, files);
        written.map_err(|error| error.describe(None).with_session(self))
    }

    fn write_bundle(&self, out: &mut dyn Write, files: BundleFiles) -> Result<BundleReport, WriteError> {
        let lineage = self.lineage();
        let names = NamedRoots::of(&lineage);
        // A session that names no file has none to carry.
        let mut encoder = match files {
            BundleFiles::Include if !names.list.is_empty() => Encoder::with_files(),
            _ => Encoder::new(),
        };
        let SalvageReport { steps, .. } = push_steps(out, &mut encoder, &lineage, None)?;
        let mut report = BundleReport { steps, ..BundleReport::default() };
        if files == BundleFiles::Include {
            let (folders, policy) = (self.version_folders(), self.policy().filter(|policy| policy.hides_files()));
            let hides = policy.map(|policy| |path: &str| policy.hides(&lossy_path(path)).is_some());
            let hides = hides.as_ref().map(|hides| hides as &dyn Fn(&str) -> bool);
            for walked in Objects::walk(&folders, names.roots()).hiding(hides) {
                let step = names.step(walked.root);
                encoder.push_object(&report.add(walked, step, self.secrets())?)?;
                flush(out, &mut encoder)?;
            }
        }
        out.write_all(&encoder.finish())?;
        Ok(report)
    }
}

impl BundleReport {
    /// Counts an object, and returns it as the bundle holds it.
    fn add(&mut self, walked: WalkedObject, step: StepId, secrets: &Secrets) -> Result<Object, WriteError> {
        let WalkedObject { id, kind, path, content, .. } = walked;
        let id = ObjectId(id.0);
        let content = match content {
            WalkedContent::Intact(content) => content,
            WalkedContent::Forgotten { size, digest } => {
                self.forgotten += 1;
                let content = ObjectContent::Forgotten { bytes: size, digest: Digest(digest.0) };
                return Ok(Object { id, content });
            }
            WalkedContent::Missing | WalkedContent::Absent => {
                return Ok(self.leave_out(id, step, path, LeftOutReason::Missing));
            }
            WalkedContent::Damaged(_) => return Ok(self.leave_out(id, step, path, LeftOutReason::Damaged)),
            WalkedContent::Hidden => return Ok(self.leave_out(id, step, path, LeftOutReason::Hidden)),
        };
        if secrets.has_values() && secrets.has_known_value(&String::from_utf8_lossy(&content)) {
            return Ok(self.leave_out(id, step, path, LeftOutReason::Secret));
        }
        let (bytes, zlib) = (content.len() as u64, pack_content(&content)?);
        if zlib.len() > MAX_PACKED_BYTES {
            return Ok(self.leave_out(id, step, path, LeftOutReason::TooLarge));
        }
        let kind = match kind {
            rath_workspace::ObjectKind::Blob => ObjectKind::Blob,
            rath_workspace::ObjectKind::Tree => ObjectKind::Tree,
        };
        *(if kind == ObjectKind::Blob { &mut self.files } else { &mut self.directories }) += 1;
        Ok(Object { id, content: ObjectContent::Here { kind, bytes, zlib } })
    }

    fn leave_out(&mut self, id: ObjectId, step: StepId, path: String, reason: LeftOutReason) -> Object {
        self.left_out.push(LeftOut { step, path, reason });
        Object { id, content: ObjectContent::Missing }
    }
}

impl Bundle {
    /// Reads a session file, and compares the versions of files in it with their ids. They are written to a temporary file in the
    /// `.rath` of `directory`, and are stored by [`StagedFiles::store`].
    ///
    /// Damage is reported in [`SessionFile::report`]; everything undamaged is read. Fails if a file holds a value of `secrets`.
    pub async fn read(path: impl AsRef<Path>, directory: impl AsRef<Path>, secrets: &Secrets) -> Result<Bundle> {
        let (path, directory) = (path.as_ref().to_owned(), directory.as_ref().to_owned());
        let mut checker = FileChecker::storing_in(&directory, secrets);
        run_blocking(move || {
            let opened = File::open(&path).map_err(|error| io_error("open", &path, error))?;
            let file = Session::read_file_with(&path, opened, &mut checker)?;
            if let Some(error) = checker.take_failure() {
                return Err(error);
            }
            if let Some(id) = checker.secret() {
                let message = format!("version {id:.8} of a file in {} holds a secret of yours", path.display());
                let hint = "nothing is imported; it can be without the variable of the environment that has the secret";
                return Err(Error::new(ErrorKind::Policy, message).with_hint(hint));
            }
            Ok(Bundle { file, files: StagedFiles(checker) })
        })
        .await
    }
}

impl StagedFiles {
    /// Stores the files durably. The steps that name them are recorded after that, while [`ImportedFiles::hold`] exists.
    pub async fn store(mut self) -> Result<ImportedFiles> {
        self.0.read_names_here().await;
        let (counts, hold) = run_blocking(move || self.0.finish()).await?;
        let (stored, known) = (counts.objects, counts.known);
        let (forgotten_here, absent) = (counts.forgotten_here, counts.absent);
        Ok(ImportedFiles { stored, known, forgotten_here, absent, hold: FileHold(hold) })
    }
}

/// The versions that the steps of a lineage name, each once, with the first step that names it.
#[derive(Default)]
pub(super) struct NamedRoots {
    pub(super) list: Vec<(rath_workspace::ObjectId, rath_workspace::ObjectKind)>,
    steps: HashMap<rath_workspace::ObjectId, StepId>,
}

impl NamedRoots {
    pub(super) fn of(lineage: &Lineage) -> Self {
        let mut names = NamedRoots::default();
        lineage.walk().into_iter().for_each(|step| names.add_step(step.id(), &step.json()));
        names
    }

    pub(super) fn add_step(&mut self, step: StepId, json: &str) {
        let NamedObjects { tree, files } = NamedObjects::of(json);
        let trees = tree.into_iter().map(|tree| (tree, ObjectKind::Tree));
        for (id, kind) in trees.chain(files.into_iter().map(|file| (file, ObjectKind::Blob))) {
            let id = workspace_id(id);
            if let std::collections::hash_map::Entry::Vacant(new) = self.steps.entry(id) {
                new.insert(step);
                self.list.push((id, workspace_kind(kind)));
            }
        }
    }

    pub(super) fn roots(&self) -> impl Iterator<Item = (rath_workspace::ObjectId, rath_workspace::ObjectKind)> + '_ {
        self.list.iter().copied()
    }

    /// Returns the first step that names a root.
    pub(super) fn step(&self, root: rath_workspace::ObjectId) -> StepId {
        self.steps[&root]
    }
}
