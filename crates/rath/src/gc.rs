//! Giving back the space of sessions that are deleted: their steps, and the versions of files that no other session names.
//!
//! Sessions are deleted first, versions of files after that. So a process that is killed in between loses nothing that a session
//! names, and the next collection finishes: the directories that are still to be looked at are noted beside the store.

mod directory;
mod names;
mod pending;
mod retention;

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use rath_record::BranchId;

use self::directory::DirectoryGc;
use self::names::VersionNames;
use self::pending::PendingDirs;
use crate::blocking::run_blocking;
use crate::sandbox::{RATH_DIR, Sandbox};
use crate::session::{Error, Result, StoreList, StoreUri};
use crate::store::{FreedSpace, Store, StoreError, StoreErrorKind, rath_dir};
use crate::workspace::{CollectMode, FileCount};

pub use self::retention::{KeepReason, Retention, RetentionPlan, RetentionRule};

/// A collection: deletes sessions, and frees the space that no session needs.
///
/// ```
/// use rath::gc::Gc;
/// use rath::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// let store = Store::open(&format!("sqlite:{}", directory.join(".rath/rath.db").display())).await?;
/// let report = Gc::new().dry_run().run(&store, &[], directory).await?;
/// assert!(report.deleted.is_empty() && report.directories.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Gc {
    is_dry_run: bool,
    removes_edited_forks: bool,
    without: Vec<String>,
}

/// The result of a collection.
///
/// Returned by [`Gc::run`].
#[derive(Debug, Default)]
pub struct GcReport {
    /// The sessions that were deleted.
    pub deleted: Vec<BranchId>,
    /// The sessions that could not be deleted, each with the reason.
    pub refused: Vec<(BranchId, StoreError)>,
    /// The space that was freed in the store.
    pub store: FreedSpace,
    /// The directories whose versions were looked at.
    pub directories: Vec<DirectoryReport>,
}

/// The result of a collection in one directory.
///
/// Part of [`GcReport`].
#[derive(Debug)]
pub struct DirectoryReport {
    /// The directory that holds `.rath`.
    pub directory: PathBuf,
    /// The files that were removed.
    pub removed: RemovedFiles,
    /// Forks of deleted sessions with changes that no step records. They were kept.
    pub edited_forks: Vec<PathBuf>,
    /// The reason why nothing was removed, if that is so.
    pub skipped: Option<SkipReason>,
}

/// The files that were removed from a directory, by kind.
///
/// Part of [`DirectoryReport`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedFiles {
    /// Versions of files and directories.
    pub versions: FileCount,
    /// Files of base versions, which forks shared.
    pub base_versions: FileCount,
    /// Files in the directories of forks.
    pub forks: FileCount,
    /// Indexes of directories.
    pub indexes: FileCount,
    /// Files that were moved aside when a call's changes were undone.
    pub put_back: FileCount,
}

impl RemovedFiles {
    /// Returns the kinds with their names, in a fixed order.
    pub fn kinds(&self) -> [(&'static str, FileCount); 5] {
        [
            ("versions", self.versions),
            ("base_versions", self.base_versions),
            ("forks", self.forks),
            ("indexes", self.indexes),
            ("put_back", self.put_back),
        ]
    }

    /// Returns the number of all files.
    pub fn total(&self) -> FileCount {
        let mut total = FileCount::default();
        self.kinds().into_iter().for_each(|(_, count)| total.add(count));
        total
    }
}

/// The reason why nothing was removed from a directory.
///
/// Part of [`DirectoryReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// A process works in the directory.
    InUse,
    /// A store whose sessions name versions cannot be read.
    UnreadableStore {
        /// The URI of the store.
        uri: String,
        /// The error.
        why: String,
    },
    /// The versions are damaged, so it is not known what they consist of.
    Damaged {
        /// The error.
        why: String,
    },
}

impl Gc {
    /// Creates a collection.
    pub fn new() -> Self {
        Gc::default()
    }

    /// Counts what would be removed, and changes nothing.
    pub fn dry_run(mut self) -> Self {
        self.is_dry_run = true;
        self
    }

    /// Removes also the directories of forks with changes that no step records.
    pub fn remove_edited_forks(mut self) -> Self {
        self.removes_edited_forks = true;
        self
    }

    /// Frees the versions that only this store names, which is gone.
    pub fn without_store(mut self, uri: impl Into<String>) -> Self {
        self.without.push(uri.into());
        self
    }

    /// Deletes sessions of a store, each given by the branch that it began with, and frees the space that no session needs.
    ///
    /// Files are looked at in `directory`, and in all directories that sessions of the store were placed in.
    pub async fn run(&self, store: &Store, delete: &[BranchId], directory: &Path) -> Result<GcReport> {
        let mut report = GcReport::default();
        let families = store.list().await?.into_iter().map(|summary| summary.family).collect::<HashSet<_>>();
        let deleted: HashSet<BranchId> = delete.iter().copied().collect();
        let pending = PendingDirs::of(store);
        let directories = {
            let (store, pending, directory) = (store.clone(), pending.clone(), directory.to_owned());
            let (families, deleted) = (families.clone(), deleted.clone());
            run_blocking(move || find_directories(&store, &pending, &directory, &families, &deleted)).await?
        };
        if self.is_dry_run {
            report.store = store.measure_delete(delete).await?;
            report.deleted = delete.to_vec();
        } else {
            let (pending, noted, trees) = (pending.clone(), directories.clone(), directories.deleted_trees.clone());
            run_blocking(move || -> Result<()> {
                for root in &noted.roots {
                    rath_dir::check(&root.join(RATH_DIR))?;
                    directory::note_deleted_trees(root, &trees)?;
                }
                Ok(pending.add(&noted.roots)?)
            })
            .await?;
            (report.deleted, report.refused) = delete_all(store, delete).await?;
            report.store = store.compact().await?;
        }
        let gone = if self.is_dry_run { deleted } else { HashSet::new() };
        for root in &directories.roots {
            let gc =
                DirectoryGc { root: root.clone(), options: self.clone(), store: store.clone(), gone: gone.clone() };
            report.directories.push(gc.run(&directories.deleted_trees).await?);
        }
        if !self.is_dry_run {
            // A directory with forks that were kept is looked at again.
            let is_finished = |done: &&DirectoryReport| done.skipped.is_none() && done.edited_forks.is_empty();
            let finished = report.directories.iter().filter(is_finished);
            let finished: Vec<_> = finished.map(|done| done.directory.clone()).collect();
            run_blocking(move || pending.remove(&finished).map_err(Error::from)).await?;
        }
        Ok(report)
    }

    fn mode(&self) -> CollectMode {
        if self.is_dry_run { CollectMode::DryRun } else { CollectMode::Remove }
    }
}

/// Makes collections in a directory keep the versions that sessions of a store name.
///
/// Recording a session in a store does this for the directory that the session works in, unless the session is a
/// [guest](crate::Session::is_guest): what a guest names is not touched without the user's consent.
///
/// ```no_run
/// use rath::prelude::*;
///
/// # async fn example() -> rath::Result<()> {
/// let store = Store::open("sqlite:copies.db").await?;
/// rath::gc::keep_versions_of(&store, ".".as_ref()).await?;
/// # Ok(())
/// # }
/// ```
pub async fn keep_versions_of(store: &Store, directory: &Path) -> Result<()> {
    let (uri, directory) = (StoreUri::of(store), directory.to_owned());
    run_blocking(move || uri.map_or(Ok(()), |uri| StoreList::add_if_used(&directory, &uri))).await
}

/// The directories that a collection looks at.
#[derive(Clone, Debug, Default)]
struct GcDirs {
    roots: BTreeSet<PathBuf>,
    /// The trees that the deleted sessions recorded: what is in a fork is not lost with them.
    deleted_trees: HashSet<rath_workspace::TreeId>,
}

/// Finds the directories that sessions of a store were placed in. Blocks.
fn find_directories(
    store: &Store,
    pending: &PendingDirs,
    directory: &Path,
    families: &HashSet<BranchId>,
    deleted: &HashSet<BranchId>,
) -> Result<GcDirs> {
    let mut names = VersionNames::default();
    let kept = families.difference(deleted).copied().collect();
    store.visit_json(&kept, |json| names.add_place(json))?;
    let mut of_deleted = VersionNames::default();
    store.visit_json(deleted, |json| of_deleted.add_step(json))?;
    let places = names.places.iter().chain(&of_deleted.places);
    let placed = places.filter_map(|place| Sandbox::open(place).ok()?.directory().map(Path::to_owned));
    // A session of others may name any directory. One whose versions it names has this store in its list.
    let own = StoreUri::of(store);
    let is_listed = |root: &PathBuf| {
        let listed = StoreList::of(root).read().unwrap_or_default();
        listed.iter().any(|uri| Some(StoreUri::from_list(uri, root)) == own)
    };
    let placed = placed.filter(is_listed);
    let candidates = placed.chain([directory.to_owned()]).chain(pending.read());
    let roots = candidates.filter_map(|root| root.canonicalize().ok());
    let has_versions = |root: &PathBuf| root.join(RATH_DIR).join("workspace").is_dir();
    Ok(GcDirs { roots: roots.filter(has_versions).collect(), deleted_trees: of_deleted.trees })
}

/// Deletes sessions, those first that rest on others. Returns the deleted ones, and those that could not be deleted.
async fn delete_all(store: &Store, families: &[BranchId]) -> Result<(Vec<BranchId>, Vec<(BranchId, StoreError)>)> {
    let (mut deleted, mut rest) = (Vec::new(), families.to_vec());
    loop {
        let mut refused = Vec::new();
        let before = deleted.len();
        for family in std::mem::take(&mut rest) {
            match store.delete(family).await {
                Ok(()) => deleted.push(family),
                Err(error) if error.kind() == StoreErrorKind::Conflict => refused.push((family, error)),
                Err(error) => return Err(error.into()),
            }
        }
        if refused.is_empty() || deleted.len() == before {
            return Ok((deleted, refused));
        }
        rest = refused.into_iter().map(|(family, _)| family).collect();
    }
}
