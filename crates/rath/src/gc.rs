//! Giving back the space of sessions that are deleted: their steps, and the versions of files that no other session names.
//!
//! Sessions are deleted first, versions of files after that. So a process that is killed in between loses nothing that a session
//! names, and the next collection finishes: the directories that are still to be looked at are noted beside the store.

mod directory;
mod forget;
mod forgotten_files;
mod names;
mod pending;
mod retention;
mod sources;

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use rath_record::BranchId;

use self::directory::DirectoryGc;
use self::names::VersionNames;
use self::pending::PendingDirs;
use crate::ErrorKind;
use crate::blocking::run_blocking;
use crate::sandbox::RATH_DIR;
use crate::session::{Error, ListedStore, Result, StoreList, StoreUri, dir_of_stored_place};
use crate::store::{DeletionRefusal, FreedSpace, Store, StoreError, StoreId, rath_dir, unwritable_hint};
use crate::workspace::{CollectMode, FileCount};

pub(crate) use self::sources::named_versions;

pub use self::forget::{FileCopy, ForgetReport, ForgottenFiles, LostFiles, SameFile};
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
    /// All branches of these sessions.
    pub branches: Vec<BranchId>,
    /// The sessions that could not be deleted.
    pub refused: Vec<DeletionRefusal>,
    /// The sessions to be deleted that could not be read as a whole, each with its damage.
    pub damaged: Vec<(BranchId, Vec<String>)>,
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
    /// Forks of deleted sessions with files that no step records. They were kept.
    pub kept_forks: Vec<KeptFork>,
    /// Packs of versions whose index is lost, and cannot be computed. They were kept.
    pub kept_packs: Vec<PathBuf>,
    /// The reason why nothing was removed, if that is so.
    pub skipped: Option<SkipReason>,
}

/// The directory of a fork of a deleted session, which was kept.
///
/// Part of [`DirectoryReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFork {
    /// The directory.
    pub path: PathBuf,
    /// The reason why it was kept.
    pub reason: KeptForkReason,
}

/// The reason why the directory of a fork was kept.
///
/// Part of [`KeptFork`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeptForkReason {
    /// Its files differ from every tree that a step records.
    Edited,
    /// It has files that no tree holds: files that are ignored or too large.
    Untracked {
        /// The first of them.
        paths: Vec<String>,
        /// The number of all of them.
        count: u64,
    },
    /// Its files could not be read.
    Unreadable {
        /// The error.
        why: String,
    },
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
    /// Another store or session file is at the place of one whose sessions name versions.
    ReplacedStore {
        /// The URI of the store.
        uri: String,
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

    /// Removes also the directories of forks with files that no step records.
    pub fn remove_edited_forks(mut self) -> Self {
        self.removes_edited_forks = true;
        self
    }

    /// Frees the versions that only this store names, which is gone. A store that is at its place and can be read keeps its own.
    pub fn without_store(mut self, uri: impl Into<String>) -> Self {
        self.without.push(uri.into());
        self
    }

    /// Deletes sessions of a store, each given by the branch that it began with, and frees the space that no session needs.
    ///
    /// Files are looked at in `directory`, and in all directories that sessions of the store were placed in. A directory that belongs to a
    /// store of which this one is a copy is left alone.
    pub async fn run(&self, store: &Store, delete: &[BranchId], directory: &Path) -> Result<GcReport> {
        let mut report = GcReport::default();
        let families = store.list().await?.into_iter().map(|summary| summary.family).collect::<HashSet<_>>();
        let pending = PendingDirs::of(store);
        let mut directories = {
            let (store, pending, directory) = (store.clone(), pending.clone(), directory.to_owned());
            let deleted = delete.iter().copied().collect();
            run_blocking(move || find_directories(&store, &pending, &directory, &families, &deleted)).await?
        };
        for root in directories.roots.clone() {
            if sources::is_of_original(&root, store).await? {
                directories.roots.remove(&root);
            }
        }
        self.check_without(store, &directories.roots).await?;
        report.damaged.clone_from(&directories.damaged);
        let mut gone = HashSet::new();
        if self.is_dry_run {
            let deletion = store.measure_delete(delete).await?;
            gone.extend(&deletion.deleted);
            (report.deleted, report.branches) = (deletion.deleted, deletion.branches);
            (report.refused, report.store) = (deletion.refused, deletion.freed);
        } else {
            let (pending, noted, trees) = (pending.clone(), directories.clone(), directories.deleted_trees.clone());
            run_blocking(move || -> Result<()> {
                for root in &noted.roots {
                    rath_dir::check(&root.join(RATH_DIR))?;
                    directory::note_deleted_trees(root, &trees)?;
                }
                pending.add(&noted.roots).map_err(|error| {
                    let hint = unwritable_hint(error.kind());
                    hint.into_iter().fold(Error::from(error), Error::with_hint)
                })
            })
            .await?;
            let deletion = store.delete_all(delete).await?;
            (report.deleted, report.branches, report.refused) = (deletion.deleted, deletion.branches, deletion.refused);
            report.store = store.compact().await?;
        }
        for root in &directories.roots {
            let gc =
                DirectoryGc { root: root.clone(), options: self.clone(), store: store.clone(), gone: gone.clone() };
            report.directories.push(gc.run(&directories.deleted_trees).await?);
        }
        if !self.is_dry_run {
            // A directory with forks that were kept is looked at again.
            let is_finished = |done: &&DirectoryReport| done.skipped.is_none() && done.kept_forks.is_empty();
            let finished = report.directories.iter().filter(is_finished);
            let finished: Vec<_> = finished.map(|done| done.directory.clone()).collect();
            run_blocking(move || pending.remove(&finished).map_err(Error::from)).await?;
        }
        Ok(report)
    }

    /// Fails if a store that is said to be gone is none of those that may name versions of the directories.
    async fn check_without(&self, store: &Store, roots: &BTreeSet<PathBuf>) -> Result<()> {
        if self.without.is_empty() {
            return Ok(());
        }
        let mut known: BTreeSet<_> = StoreUri::of(store).iter().map(ToString::to_string).collect();
        for root in roots {
            // A list that cannot be read is reported with its directory.
            known.extend(sources::listed(root).await.into_iter().flatten().map(|(uri, _)| uri.to_string()));
        }
        let here = std::env::current_dir().unwrap_or_default();
        let is_unknown = |uri: &&String| !known.contains(&StoreUri::from_list(uri, &here).to_string());
        let Some(unknown) = self.without.iter().find(is_unknown) else { return Ok(()) };
        let known: Vec<_> = known.iter().map(|uri| format!("`{uri}`")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let message = format!("no store `{unknown}` may name versions of these files; known: {known}");
        Err(Error::new(ErrorKind::Arguments, message))
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
    let (store, directory) = (store.clone(), directory.to_owned());
    run_blocking(move || match StoreUri::of(&store) {
        Some(uri) => StoreList::add_if_used(&directory, &uri, || Ok(store.make_id()?)),
        None => Ok(()),
    })
    .await
}

/// The directories that a collection looks at.
#[derive(Clone, Debug, Default)]
struct GcDirs {
    roots: BTreeSet<PathBuf>,
    /// The trees that the deleted sessions recorded: what is in a fork is not lost with them.
    deleted_trees: HashSet<rath_workspace::TreeId>,
    /// The deleted sessions that cannot be read as a whole, each with its damage.
    damaged: Vec<(BranchId, Vec<String>)>,
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
    let kept: Vec<_> = families.difference(deleted).copied().collect();
    store.visit_json(&kept, |_, json| names.add_place(json))?;
    let mut of_deleted = VersionNames::default();
    let deleted: Vec<_> = deleted.iter().copied().collect();
    let is_whole = store.visit_json(&deleted, |_, json| of_deleted.add_step(json)).is_ok();
    let mut damaged = Vec::new();
    // A session that cannot be read can be deleted. A fork is kept if its tree is not known.
    for family in deleted.iter().filter(|family| !is_whole || !families.contains(family)) {
        let visited = store.visit_json(&[*family], |_, json| of_deleted.add_step(json));
        if visited.is_err() || !families.contains(family) {
            damaged.push((*family, find_damage(store, *family, visited.err())));
        }
    }
    let places = names.places.iter().chain(&of_deleted.places);
    let placed = places.filter_map(|place| dir_of_stored_place(store, place));
    // A session of others may name any directory. One whose versions it names has this store in its list.
    let own = StoreUri::of(store);
    // The same holds for the list of directories, which may come with the store.
    let id = store.id()?;
    let others = placed.chain(pending.read()?).filter(|root| is_listed(root, own.as_ref(), id.as_ref()));
    let candidates = others.chain([directory.to_owned()]);
    let roots = candidates.filter_map(|root| root.canonicalize().ok());
    let roots = roots.filter(|root| has_versions(root)).collect();
    Ok(GcDirs { roots, deleted_trees: of_deleted.trees, damaged })
}

/// Describes the damage of a session, of which a visit of all steps has said this. Blocks.
fn find_damage(store: &Store, family: BranchId, visited: Option<StoreError>) -> Vec<String> {
    let damage: Vec<String> = match store.read_branch(family) {
        Ok(stored) => stored.damage.iter().map(ToString::to_string).collect(),
        Err(error) => vec![error.message()],
    };
    // It may be in a branch of the session.
    if damage.is_empty() { visited.iter().map(StoreError::message).collect() } else { damage }
}

/// Returns true if a store is in the list of a directory, there or at the place that it was moved from. Blocks.
fn is_listed(root: &Path, store: Option<&StoreUri>, id: Option<&StoreId>) -> bool {
    let listed = StoreList::of(root).read().unwrap_or_default();
    let is_own = |listed: &ListedStore| Some(&listed.uri(root)) == store || id.is_some() && listed.id() == id;
    listed.iter().any(is_own)
}

/// Returns true if versions of the files in a directory are stored. Blocks.
fn has_versions(root: &Path) -> bool {
    root.join(RATH_DIR).join("workspace").is_dir()
}
