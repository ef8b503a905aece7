//! Checking the versions of files that recorded sessions name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use rath_record::lineage::Lineage;
use rath_record::{BranchId, SHORT_ID_DIGITS, StepId};
use rath_workspace::{ObjectKind, Objects, WalkedContent, WalkedObject};

use super::bundle::NamedRoots;
use crate::blocking::run_blocking;
use crate::session::{Error, Result, Session, StoredSession, versions_in};
use crate::store::Store;

/// The result of reading all versions of files that sessions name, and comparing each with its id.
///
/// Returned by [`Session::check_files`] and [`Store::check_files`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileCheck {
    /// The number of versions of files that are as they were stored.
    pub files: u64,
    /// The number of versions of directories that are as they were stored.
    pub directories: u64,
    /// The number of bytes of all these.
    pub bytes: u64,
    /// The number of files whose content was removed on purpose.
    pub forgotten: u64,
    /// The number of versions that were not in the copy that the sessions came from.
    pub absent: u64,
    /// The versions that are missing or damaged, up to [`FileCheck::MAX_LISTED`].
    pub damage: Vec<FileDamage>,
    /// The number of those that are not listed.
    pub unlisted: u64,
}

/// A version of a file or directory that is missing or damaged.
///
/// Part of [`FileCheck`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDamage {
    /// The first step that needs it.
    pub step: StepId,
    /// The path at which it was found first; empty for all files of the step, and for a file in a conflict.
    pub path: String,
    /// True if it is that of a directory.
    pub is_directory: bool,
    /// The id of the version.
    pub id: String,
    /// The kind of damage.
    pub fault: FileFault,
}

/// The kind of damage of a version.
///
/// Part of [`FileDamage`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileFault {
    /// It is not stored.
    Missing,
    /// It cannot be read, or has another content than it had.
    Damaged {
        /// The error.
        why: String,
    },
}

impl fmt::Display for FileDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {:.SHORT_ID_DIGITS$}", self.step)?;
        match &*self.path {
            "" if self.is_directory => f.write_str(": its files are ")?,
            "" => f.write_str(": a file in its conflicts is ")?,
            path => write!(f, ", {path}: its version is ")?,
        }
        match &self.fault {
            FileFault::Missing => f.write_str("missing"),
            FileFault::Damaged { .. } => f.write_str("damaged"),
        }
    }
}

impl FileCheck {
    /// The number of damages that are listed.
    pub const MAX_LISTED: usize = 1_000;

    /// Returns true if every version that was looked for was found as it was stored. Content that was removed on purpose, and versions
    /// that never were here, do not count.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty()
    }

    fn walk(&mut self, folders: &[Objects], names: &NamedRoots) {
        for WalkedObject { id, kind, root, path, content } in Objects::walk(folders, names.roots()) {
            let fault = match content {
                WalkedContent::Intact(content) => {
                    self.bytes += content.len() as u64;
                    *(if kind == ObjectKind::Blob { &mut self.files } else { &mut self.directories }) += 1;
                    continue;
                }
                WalkedContent::Forgotten { .. } => {
                    self.forgotten += 1;
                    continue;
                }
                WalkedContent::Absent => {
                    self.absent += 1;
                    continue;
                }
                // Nothing is hidden from a check.
                WalkedContent::Missing | WalkedContent::Hidden => FileFault::Missing,
                WalkedContent::Damaged(error) => FileFault::Damaged { why: error.message() },
            };
            if self.damage.len() < Self::MAX_LISTED {
                let (step, id, is_directory) = (names.step(root), id.to_string(), kind == ObjectKind::Tree);
                self.damage.push(FileDamage { step, path, is_directory, id, fault });
            } else {
                self.unlisted += 1;
            }
        }
    }
}

impl Session {
    /// Reads every version of a file that the session names, and compares it with its id.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> rath::Result<()> {
    /// let check = Session::user("hello").check_files().await?;
    /// assert!(check.is_whole());
    /// assert_eq!(check.files, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check_files(&self) -> Result<FileCheck> {
        let session = self.quiet();
        let check = move || {
            let mut check = FileCheck::default();
            check.walk(&session.version_folders(), &NamedRoots::of(&session.lineage()));
            Ok(check)
        };
        run_blocking(check).await.map_err(|error: Error| error.with_session(self))
    }
}

impl Store {
    /// Reads every version of a file that a session of the store names, and compares it with its id, each once.
    ///
    /// The files of a session are looked for at its place, and in `directory`: see [`Session::with_files_in`]. A session that cannot be
    /// read is passed over, as far as that is so: [`check`](Store::check) reports it.
    pub async fn check_files(&self, directory: impl AsRef<Path>) -> Result<FileCheck> {
        let first = self.check_files_once(directory.as_ref()).await?;
        if first.is_whole() {
            return Ok(first);
        }
        // Sessions that other processes delete are read before, and their files after. So damage is what is found twice, for
        // sessions that are still there.
        let mut check = self.check_files_once(directory.as_ref()).await?;
        if first.unlisted == 0 {
            check.damage.retain(|damage| first.damage.iter().any(|other| other.id == damage.id));
            check.unlisted = 0;
        }
        Ok(check)
    }

    async fn check_files_once(&self, directory: &Path) -> Result<FileCheck> {
        let (store, directory) = (self.clone(), directory.to_owned());
        let sessions = self.list().await?.into_iter().map(|summary| (summary.family, summary.branch)).collect();
        run_blocking(move || Ok(check_store(&store, sessions, &directory))).await
    }
}

/// Checks the files of all sessions, each given by its first branch and a branch. Blocks.
fn check_store(store: &Store, branches: Vec<(BranchId, BranchId)>, directory: &Path) -> FileCheck {
    let mut families: BTreeMap<BranchId, Vec<BranchId>> = BTreeMap::new();
    branches.into_iter().for_each(|(family, branch)| families.entry(family).or_default().push(branch));
    // Most sessions have their files in the same folders, and share files there.
    let mut groups: BTreeMap<BTreeSet<PathBuf>, NamedRoots> = BTreeMap::new();
    for branches in families.into_values() {
        let read = branches.into_iter().filter_map(|branch| StoredSession::read(store, branch).ok());
        let sessions: Vec<_> = read.map(|stored| stored.session.with_files_in(directory)).collect();
        let names = groups.entry(sessions.iter().flat_map(Session::version_dirs).collect()).or_default();
        let lineage = Lineage::new(sessions.iter().filter_map(Session::head).cloned());
        lineage.walk().into_iter().for_each(|step| names.add_step(step.id(), &step.json()));
    }
    let mut check = FileCheck::default();
    for (directories, names) in groups {
        let opened = directories.iter().filter_map(|directory| versions_in(directory)?.ok());
        check.walk(&opened.map(|versions| versions.objects().clone()).collect::<Vec<_>>(), &names);
    }
    check
}
