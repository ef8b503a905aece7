//! The collection in one directory.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rath_record::BranchId;
use rath_workspace::{CollectMode, Collector, ForkFiles, Objects, TreeId, fork_of_layers, read_at_most};

use super::names::VersionNames;
use super::sources::{Source, SourceReader, visit_unlisted_files};
use super::{DirectoryReport, Gc, KeptFork, KeptForkReason, RemovedFiles, SkipReason};
use crate::blocking::run_blocking;
use crate::sandbox::RATH_DIR;
use crate::session::{ListedStore, Result, StoreList, StoreUri, occupant_branch, occupant_file, remove_copies};
use crate::store::{Store, StoreId, rath_dir};

/// The collection in one directory.
pub(super) struct DirectoryGc {
    pub(super) root: PathBuf,
    pub(super) options: Gc,
    pub(super) store: Store,
    /// The sessions of the store that count as deleted.
    pub(super) gone: HashSet<BranchId>,
}

/// The names in all stores of a directory.
#[derive(Default)]
struct AllNames {
    versions: VersionNames,
    branches: HashSet<BranchId>,
    /// The stores that name something.
    naming: HashSet<StoreUri>,
    /// The ids of all stores that were read.
    ids: HashMap<StoreUri, Option<StoreId>>,
    /// The sessions of the own store that count as deleted.
    gone: HashSet<BranchId>,
}

impl DirectoryGc {
    /// Removes what no session names.
    pub(super) async fn run(self, deleted_trees: &HashSet<TreeId>) -> Result<DirectoryReport> {
        let (folder, mode) = (self.folder(), self.options.mode());
        let (root, store) = (self.root.clone(), self.store.clone());
        let opened = run_blocking(move || -> Result<_> {
            rath_dir::check(&root.join(RATH_DIR))?;
            let collector = Collector::open(&folder, mode);
            if let (Ok(Some(_)), CollectMode::Remove, Some(uri)) = (&collector, mode, StoreUri::of(&store)) {
                StoreList::add_if_moved(&root, &uri, || Ok(store.id()?))?;
            }
            Ok(collector)
        });
        let collector = match opened.await? {
            Ok(Some(collector)) => collector,
            Ok(None) => return Ok(self.skipped(SkipReason::InUse)),
            Err(error) => return Ok(self.skipped(SkipReason::Damaged { why: error.message() })),
        };
        // From here on no process works in the directory, so no store names more than it does now.
        let names = AllNames { gone: self.gone.clone(), ..AllNames::default() };
        let names = match names.add_all(&self.root, &self.store, |uri| self.is_without(uri)).await {
            Ok(names) => names,
            Err(reason) => return Ok(self.skipped(reason)),
        };
        let deleted_trees = deleted_trees.clone();
        run_blocking(move || self.collect(collector, &names, &deleted_trees)).await
    }

    fn folder(&self) -> PathBuf {
        self.root.join(RATH_DIR).join("workspace")
    }

    fn skipped(&self, reason: SkipReason) -> DirectoryReport {
        let (directory, removed) = (self.root.clone(), RemovedFiles::default());
        let (kept_forks, kept_packs) = (Vec::new(), Vec::new());
        DirectoryReport { directory, removed, kept_forks, kept_packs, skipped: Some(reason) }
    }

    fn is_without(&self, uri: &StoreUri) -> bool {
        let here = std::env::current_dir().unwrap_or_default();
        self.options.without.iter().any(|without| StoreUri::from_list(without, &here) == *uri)
    }

    /// Removes what is not named. Blocks.
    fn collect(
        self,
        mut collector: Collector,
        names: &AllNames,
        deleted_trees: &HashSet<TreeId>,
    ) -> Result<DirectoryReport> {
        let damaged = |error: rath_workspace::Error| SkipReason::Damaged { why: error.message() };
        for tree in &names.versions.trees {
            if let Err(error) = collector.keep_tree(*tree) {
                return Ok(self.skipped(damaged(error)));
            }
        }
        names.versions.files.iter().for_each(|file| collector.keep_file(*file));
        let mut recorded = read_deleted_trees(&self.root);
        recorded.extend(deleted_trees);
        recorded.extend(&names.versions.trees);
        let (mut removed, mut kept_forks, mut lost) = (RemovedFiles::default(), Vec::new(), Vec::new());
        for (branch, path) in self.forks() {
            let is_named = branch.is_some_and(|branch| names.branches.contains(&branch));
            let reason = match is_named || self.options.removes_edited_forks {
                true => None,
                false => keep_reason(&collector, &path, &recorded),
            };
            if !is_named && reason.is_none() {
                lost.push(path);
                continue;
            }
            if let Err(error) = collector.keep_fork(&path) {
                return Ok(self.skipped(damaged(error)));
            }
            kept_forks.extend(reason.map(|reason| KeptFork { path, reason }));
        }
        for fork in lost {
            removed.forks.add(collector.remove_fork(&fork)?);
        }
        for directory in self.lost_put_back(names) {
            removed.put_back.add(collector.remove_with_files(&directory)?);
        }
        let garbage = collector.collect()?;
        (removed.versions, removed.base_versions, removed.indexes) =
            (garbage.objects, garbage.base_versions, garbage.indexes);
        if self.options.mode() == CollectMode::Remove {
            self.remove_records(collector.objects(), names, kept_forks.is_empty())?;
        }
        let (directory, kept_packs) = (self.root.clone(), collector.unreadable_packs().to_vec());
        Ok(DirectoryReport { directory, removed, kept_forks, kept_packs, skipped: None })
    }

    /// Returns the directories of forks, each with its branch.
    fn forks(&self) -> Vec<(Option<BranchId>, PathBuf)> {
        forks_of(&self.root)
    }

    /// Returns the directories of files that were moved aside before the oldest session began. While it is not known when a session
    /// began, there are none.
    fn lost_put_back(&self, names: &AllNames) -> Vec<PathBuf> {
        let mut found = entries(&self.root.join(RATH_DIR).join("put-back"));
        found.retain(|path| {
            let id = path.file_name().and_then(|name| uuid::Uuid::try_parse(name.to_str()?).ok());
            let at = id.and_then(|id| began(id.into_bytes()));
            let is_after = |branch: &BranchId| at.zip(began(branch.0)).is_some_and(|(at, began)| at < began);
            names.branches.iter().all(is_after)
        });
        found
    }

    /// Removes what is recorded about sessions that are gone.
    fn remove_records(&self, objects: &Objects, names: &AllNames, has_no_kept_forks: bool) -> Result<()> {
        if occupant_branch(&self.root).is_some_and(|branch| !names.branches.contains(&branch)) {
            let _ = fs::remove_file(occupant_file(&self.root));
        }
        if has_no_kept_forks {
            let _ = fs::remove_file(deleted_trees_file(&self.root));
        }
        // The path of a store may be written in several ways. A later collection looks for forks only where its store is listed.
        let present = names.naming.iter().filter_map(|uri| Some((uri, names.ids.get(uri)?)));
        let present: Vec<_> = present.map(|(uri, id)| ListedStore::new(uri.within(&self.root), id.clone())).collect();
        StoreList::of(&self.root).retain(objects, &present, |listed| {
            let uri = listed.uri(&self.root);
            // A store at whose place another one was read is gone.
            let is_gone = listed.id().is_some() && names.ids.get(&uri).is_some_and(|id| id.as_ref() != listed.id());
            !is_gone && (!has_no_kept_forks || names.naming.contains(&uri))
        })?;
        if names.naming.is_empty() {
            remove_copies(&self.root)?;
        }
        let own = self.root.join(RATH_DIR);
        ["work", "put-back"].iter().for_each(|name| _ = fs::remove_dir(own.join(name)));
        Ok(())
    }
}

impl AllNames {
    fn add_store(&mut self, store: &Store, uri: Option<&StoreUri>, gone: &HashSet<BranchId>) -> Result<()> {
        let kept = store.list_whole(gone)?;
        let families: HashSet<_> = kept.iter().map(|summary| summary.family).collect();
        let families: Vec<_> = families.into_iter().collect();
        let mut versions = VersionNames::default();
        store.visit_json(&families, |_, json| versions.add_step(json))?;
        visit_unlisted_files(store, |lineage| {
            for step in lineage.walk() {
                versions.add_step(&step.json());
                self.branches.insert(step.stamp().branch);
            }
        })?;
        let is_naming = !versions.trees.is_empty() || !versions.files.is_empty();
        self.naming.extend(uri.filter(|_| is_naming).cloned());
        self.branches.extend(kept.into_iter().map(|summary| summary.branch));
        self.versions.add(versions);
        Ok(())
    }
}

impl SourceReader for AllNames {
    fn add(&mut self, source: &Source) -> Result<()> {
        let uri = source.uri();
        if let Some(uri) = &uri {
            self.ids.insert(uri.clone(), source.id()?);
        }
        match source {
            Source::OwnStore(store) => {
                let gone = std::mem::take(&mut self.gone);
                self.add_store(store, uri.as_ref(), &gone)
            }
            Source::Store(uri, store) => self.add_store(store, Some(uri), &HashSet::new()),
            Source::File(uri, lineage) => {
                for step in lineage.walk() {
                    self.versions.add_step(&step.json());
                    self.branches.insert(step.stamp().branch);
                }
                self.naming.insert(uri.clone());
                Ok(())
            }
        }
    }
}

/// Returns the directories of forks of a directory, each with its branch.
pub(super) fn forks_of(root: &Path) -> Vec<(Option<BranchId>, PathBuf)> {
    let mut forks: Vec<_> = entries(&root.join(RATH_DIR).join("work"))
        .into_iter()
        .map(|path| fork_of_layers(&path).unwrap_or(path))
        .map(|path| (path.file_name().and_then(|name| name.to_str()?.parse().ok()), path))
        .collect();
    forks.sort_by(|one: &(Option<BranchId>, PathBuf), other| one.1.cmp(&other.1));
    forks.dedup();
    forks
}

/// Returns the reason why the directory of a fork is not removed; none if each of its files is part of a tree that was recorded.
fn keep_reason(collector: &Collector, fork: &Path, recorded: &HashSet<TreeId>) -> Option<KeptForkReason> {
    if Collector::is_remnant(fork) {
        return None;
    }
    match collector.fork_files(fork) {
        Err(error) => Some(KeptForkReason::Unreadable { why: error.message() }),
        Ok(files) if !recorded.contains(&files.tree) => Some(KeptForkReason::Edited),
        Ok(ForkFiles { untracked: paths, untracked_count: count, .. }) => {
            (count > 0).then_some(KeptForkReason::Untracked { paths, count })
        }
    }
}

/// Returns the time at which an id was made, in milliseconds since 1970; none for an id that holds no time.
pub(super) fn began(id: [u8; 16]) -> Option<u64> {
    let (seconds, nanos) = uuid::Uuid::from_bytes(id).get_timestamp()?.to_unix();
    Some(seconds * 1000 + u64::from(nanos) / 1_000_000)
}

pub(super) fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The file that lists the trees of deleted sessions, as long as forks of theirs are there.
fn deleted_trees_file(root: &Path) -> PathBuf {
    root.join(RATH_DIR).join("workspace").join("deleted-trees")
}

/// The most bytes of that file that are read.
const MAX_TREES_BYTES: u64 = 64 << 20;

fn read_deleted_trees(root: &Path) -> HashSet<TreeId> {
    let bytes = read_at_most(&deleted_trees_file(root), MAX_TREES_BYTES).unwrap_or_default();
    String::from_utf8_lossy(&bytes).lines().filter_map(|line| line.parse().ok()).collect()
}

/// Notes the trees that sessions recorded which are about to be deleted, if there are forks. After that, the content of a fork that
/// is one of these trees is known not to be a user's own. Blocks.
pub(super) fn note_deleted_trees(root: &Path, trees: &HashSet<TreeId>) -> io::Result<()> {
    if trees.is_empty() || entries(&root.join(RATH_DIR).join("work")).is_empty() {
        return Ok(());
    }
    let mut lines = String::from("\n");
    trees.iter().for_each(|tree| lines += &format!("{tree}\n"));
    let mut file = fs::File::options().append(true).create(true).open(deleted_trees_file(root))?;
    file.write_all(lines.as_bytes())?;
    file.sync_all()
}
