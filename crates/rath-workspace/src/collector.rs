//! Removing the versions that nothing names any longer.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::objects::{ObjectKind, Objects, io_error};
use crate::tree::{self, EMPTY_TREE, Mode, ObjectId, TreeId};
use crate::{disk, forgotten, index, overlay};

mod forget;
mod forks;
mod packs;

use self::packs::StoredPack;

pub use self::forget::TreeSearch;
pub use self::forks::{ForkFiles, fork_of_layers};

/// The removal of versions from a folder of objects, while no other process uses the folder.
///
/// All that is to stay is named first; [`collect`](Collector::collect) removes the rest. A process that is killed meanwhile loses
/// nothing that was named, and the next collection finishes.
///
/// ```
/// use rath_workspace::{CollectMode, Collector, Objects, Workspace};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let project = temp.path().join("project");
/// # std::fs::create_dir(&project)?;
/// # std::fs::write(project.join("notes.txt"), "one\n")?;
///
/// let folder = temp.path().join("versions");
/// let objects = Objects::open(&folder)?;
/// let mut workspace = Workspace::open(&project, &objects, &temp.path().join("index"))?;
/// let first = workspace.snapshot()?.tree;
/// std::fs::write(project.join("notes.txt"), "two\n")?;
/// let second = workspace.snapshot()?.tree;
/// assert!(Collector::open(&folder, CollectMode::Remove)?.is_none(), "the folder is in use");
/// drop((workspace, objects));
///
/// let mut collector = Collector::open(&folder, CollectMode::Remove)?.expect("the folder is not in use");
/// collector.keep_tree(second)?;
/// assert_eq!(collector.collect()?.objects.files, 2, "a tree, and the version of a file");
/// drop(collector);
/// let objects = Objects::open(&folder)?;
/// assert!(objects.read(first, "notes.txt").is_err());
/// assert_eq!(objects.read(second, "notes.txt")?.as_deref(), Some(&b"two\n"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Collector {
    /// A handle that locks the folder, and stores nothing.
    objects: Objects,
    mode: CollectMode,
    stored: HashMap<ObjectId, StoredSize>,
    kept: HashSet<ObjectId>,
    kept_bytes: u64,
    /// The base versions that stay.
    bases: HashSet<ObjectId>,
    /// The base versions that forks share.
    fork_bases: HashSet<ObjectId>,
    /// The indexes that stay if all that they name is kept, by name.
    indexes: HashSet<String>,
    /// The files whose content is removed, though trees that are kept name them, with the size of each.
    forgotten: HashMap<ObjectId, u64>,
    /// The packs whose objects are not known. They stay.
    unreadable_packs: Vec<PathBuf>,
    /// True if a tree that is to stay is damaged.
    is_damaged: bool,
}

/// The choice to remove what is not kept, or to count it only.
///
/// Passed to [`Collector::open`]. See [`Collector`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectMode {
    /// Removes it.
    Remove,
    /// Counts it, and changes nothing.
    DryRun,
}

/// The number of bytes that an object takes in its file or pack. An object that is there twice counts once.
type StoredSize = u64;

/// A number of files, and their bytes.
///
/// Part of [`Garbage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCount {
    /// The number of files; of objects, where these are counted.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl FileCount {
    /// Adds another count.
    pub fn add(&mut self, other: FileCount) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// The files that a collection removed, or would remove.
///
/// Returned by [`Collector::collect`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// Objects, in files of their own or in packs.
    pub objects: FileCount,
    /// Files of base versions, which forks shared.
    pub base_versions: FileCount,
    /// Indexes of directories.
    pub indexes: FileCount,
}

impl Collector {
    /// Locks a folder of objects. None while a process uses the folder.
    pub fn open(folder: &Path, mode: CollectMode) -> Result<Option<Self>> {
        let Some(objects) = Objects::open_exclusive(folder, mode)? else { return Ok(None) };
        Collector::new(objects, mode).map(Some)
    }

    /// Opens a folder of objects beside the processes that use it, to measure versions. Removes nothing.
    pub fn open_shared(folder: &Path) -> Result<Self> {
        Collector::new(Objects::open_read_only(folder)?, CollectMode::DryRun)
    }

    fn new(objects: Objects, mode: CollectMode) -> Result<Self> {
        let folder = objects.folder().to_owned();
        let unreadable_packs = packs::read_unindexed(&objects)?;
        let (unindexed, indexed): (Vec<_>, Vec<_>) =
            StoredPack::open_all(&objects)?.into_iter().partition(StoredPack::is_unindexed);
        let mut stored: HashMap<ObjectId, StoredSize> = indexed.iter().flat_map(StoredPack::sizes).collect();
        for (path, id) in loose_objects(&folder)? {
            stored.insert(id, fs::metadata(&path).map_or(0, |metadata| metadata.len()));
        }
        // A kill while a file was removed may have left a pack that still has it. Its content must not come back with the index,
        // unless it was stored again since.
        let listed = if unindexed.is_empty() { HashMap::new() } else { objects.forgotten_files() };
        let left = unindexed.iter().flat_map(StoredPack::ids).filter(|id| !stored.contains_key(id));
        let removed = |id| listed.get(&id).map(|file| (id, file.size));
        let forgotten = left.filter_map(removed).collect();
        for (id, size) in unindexed.iter().flat_map(StoredPack::sizes) {
            stored.entry(id).or_insert(size);
        }
        let (kept, bases, indexes) = (HashSet::new(), HashSet::new(), HashSet::from(["root".to_owned()]));
        let fork_bases = HashSet::new();
        Ok(Collector {
            objects,
            mode,
            stored,
            kept,
            kept_bytes: 0,
            bases,
            fork_bases,
            indexes,
            forgotten,
            unreadable_packs,
            is_damaged: false,
        })
    }

    /// Returns the objects.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Keeps a tree with all that it consists of, as far as it is stored. Fails if one of its trees is damaged: then it is not known what
    /// to keep, and [`collect`](Collector::collect) fails too.
    ///
    /// An object of another kind is kept by itself: the name may come from a text.
    pub fn keep_tree(&mut self, tree: TreeId) -> Result<()> {
        self.bases.insert(tree.0);
        if self.stored.contains_key(&tree.0) && self.objects.get(tree.0, ObjectKind::Blob).is_ok() {
            self.keep_object(tree.0);
            return Ok(());
        }
        let (mut rest, mut new) = (vec![tree.0], Vec::new());
        while let Some(id) = rest.pop() {
            if id == EMPTY_TREE || !self.keep_object(id) {
                continue;
            }
            new.push(id);
            let kept = self.objects.get(id, ObjectKind::Tree).and_then(|bytes| {
                for entry in tree::entries(id, &bytes)? {
                    match entry.mode {
                        Mode::Directory => rest.push(entry.id),
                        _ => _ = self.keep_object(entry.id),
                    }
                }
                Ok(())
            });
            if let Err(error) = kept {
                // A tree that is kept was read as a whole: the next tree that has this one fails too.
                for id in new.into_iter().filter(|id| self.kept.remove(id)) {
                    self.kept_bytes -= self.stored.get(&id).copied().unwrap_or_default();
                }
                self.is_damaged = true;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Keeps the version of a file.
    pub fn keep_file(&mut self, id: ObjectId) {
        self.keep_object(id);
    }

    /// Keeps the base version of a fork, and the index of the name of the fork.
    pub fn keep_fork(&mut self, fork: &Path) -> Result<()> {
        self.indexes.extend(fork.file_name().and_then(|name| name.to_str()).map(str::to_owned));
        match overlay::base_of(fork) {
            Some(base) => {
                self.fork_bases.insert(base);
                self.keep_tree(TreeId(base))
            }
            None => Ok(()),
        }
    }

    /// Returns the bytes of all objects that are kept so far.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Returns the packs whose index is lost and cannot be computed. They stay: a session may name their objects.
    pub fn unreadable_packs(&self) -> &[PathBuf] {
        &self.unreadable_packs
    }

    /// Removes a directory with all that is in it, and returns the number of files.
    pub fn remove_with_files(&self, directory: &Path) -> Result<FileCount> {
        let count = count_files(directory);
        if self.mode == CollectMode::Remove {
            self.remove_directory(directory)?;
        }
        Ok(count)
    }

    /// Removes all objects, base versions and indexes that are not kept. Packs are written anew without them.
    pub fn collect(&self) -> Result<Garbage> {
        if self.is_damaged {
            return Err(Error::new(ErrorKind::Damaged, "a tree that is to stay is damaged"));
        }
        // Indexes first: one that names an object which is gone would be believed.
        let indexes = self.collect_indexes()?;
        let base_versions = self.collect_bases()?;
        let mut objects = self.collect_packs()?;
        objects.add(self.collect_loose()?);
        if self.mode == CollectMode::Remove {
            self.remove_empty_folders();
            if !self.forgotten.is_empty() {
                // After a power cut, a file whose removal was not durable would be there again.
                let folder = self.objects.folder();
                disk::sync_file_system(folder).map_err(|error| io_error(folder, "sync the versions in", error))?;
            }
        }
        Ok(Garbage { objects, base_versions, indexes })
    }

    /// Adds an object to those that are kept. Returns false if it was kept already, or is not stored.
    fn keep_object(&mut self, id: ObjectId) -> bool {
        let Some(size) = self.stored.get(&id).filter(|_| !self.forgotten.contains_key(&id)) else { return false };
        let is_new = self.kept.insert(id);
        self.kept_bytes += if is_new { *size } else { 0 };
        is_new
    }

    fn collect_indexes(&self) -> Result<FileCount> {
        let folder = self.objects.folder().join("index");
        let mut count = FileCount::default();
        for entry in entries(&folder)? {
            let path = entry.path();
            let is_of_kept = entry.file_name().to_str().is_some_and(|name| self.indexes.contains(name));
            let is_stored = |tree: ObjectId| tree == EMPTY_TREE || self.kept.contains(&tree);
            // A file that still has a forgotten content is read again: its next version has to be complete.
            let is_complete =
                || index::tree_of(&path).is_some_and(|tree| is_stored(tree) && !self.names_forgotten(tree));
            if is_of_kept && is_complete() {
                continue;
            }
            count.add(FileCount { files: 1, bytes: entry.metadata().map_or(0, |metadata| metadata.len()) });
            self.remove_file(&path)?;
        }
        Ok(count)
    }

    fn collect_bases(&self) -> Result<FileCount> {
        let mut count = FileCount::default();
        for entry in entries(&self.objects.folder().join("versions"))? {
            let tree = entry.file_name().to_str().and_then(ObjectId::from_hex);
            let is_kept = |tree: ObjectId| {
                self.fork_bases.contains(&tree) || self.bases.contains(&tree) && !self.names_forgotten(tree)
            };
            if !tree.is_some_and(is_kept) {
                count.add(self.remove_with_files(&entry.path())?);
            }
        }
        Ok(count)
    }

    /// Writes the kept objects of all packs that hold others too to one new pack, and removes these packs.
    fn collect_packs(&self) -> Result<FileCount> {
        let mut count = FileCount::default();
        let mut partial = Vec::new();
        let stored = StoredPack::open_all(&self.objects)?;
        let indexed: HashSet<ObjectId> =
            stored.iter().filter(|pack| !pack.is_unindexed()).flat_map(StoredPack::ids).collect();
        let is_elsewhere = |id: &ObjectId| indexed.contains(id) || self.objects.has_loose(*id);
        for pack in stored {
            if pack.is_unindexed() {
                let mut needed = pack.ids().filter(|id| self.kept.contains(id) && !is_elsewhere(id));
                if needed.next().is_none() {
                    let lost = pack.ids().filter(|id| !is_elsewhere(id)).count();
                    count.add(FileCount { files: lost as u64, bytes: pack.bytes() });
                    self.remove_file(&pack.files()[1])?;
                    continue;
                }
            }
            let kept = pack.ids().filter(|id| self.kept.contains(id)).count();
            let holds_forgotten = || pack.ids().any(|id| self.forgotten.contains_key(&id));
            if kept == pack.count() || !(pack.can_be_split() || holds_forgotten()) {
                if pack.is_unindexed() && self.mode == CollectMode::Remove {
                    pack.write_index(&self.objects)?;
                }
                continue;
            }
            count.add(FileCount { files: (pack.count() - kept) as u64, bytes: pack.bytes() });
            partial.push(pack);
        }
        if partial.is_empty() {
            return Ok(count);
        }
        let written = packs::rewrite(&self.objects, &partial, &self.kept, self.mode)?;
        count.bytes = count.bytes.saturating_sub(written);
        if self.mode == CollectMode::Remove {
            // The new pack is durable. Without its index, a pack is not used.
            for pack in &partial {
                let [index, path] = pack.files();
                if !pack.is_unindexed() {
                    self.remove_file(&index)?;
                }
                self.remove_file(&path)?;
            }
        }
        Ok(count)
    }

    fn collect_loose(&self) -> Result<FileCount> {
        let mut count = FileCount::default();
        for (path, id) in loose_objects(self.objects.folder())? {
            if !self.kept.contains(&id) {
                count.add(FileCount { files: 1, bytes: fs::metadata(&path).map_or(0, |metadata| metadata.len()) });
                self.remove_file(&path)?;
            }
        }
        Ok(count)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        match self.mode {
            CollectMode::DryRun => Ok(()),
            CollectMode::Remove => fs::remove_file(path).map_err(|error| io_error(path, "remove", error)),
        }
    }

    /// Removes a directory. It is moved to the temporaries first, so it disappears as a whole or not at all.
    fn remove_directory(&self, path: &Path) -> Result<()> {
        let failed = |error| io_error(path, "remove", error);
        if !path.exists() {
            return Ok(());
        }
        let temporary = self.objects.temporaries().path().map_err(failed)?;
        match fs::rename(path, &temporary) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => disk::remove_tree(path).map_err(failed),
            renamed => renamed.and_then(|()| disk::remove_tree(&temporary)).map_err(failed),
        }
    }

    /// Removes directories of the folder that are empty, and the list of forgotten files if no tree is left to name them.
    fn remove_empty_folders(&self) {
        let folder = self.objects.folder();
        let fans = entries(&folder.join("objects")).into_iter().flatten();
        let is_fan = |path: &PathBuf| path.file_name().is_some_and(|name| name.len() == 2);
        fans.map(|entry| entry.path()).filter(is_fan).for_each(|path| _ = fs::remove_dir(path));
        if self.kept.is_empty() && self.bases.is_empty() {
            let _ = fs::remove_file(folder.join(forgotten::LIST_FILE));
        }
        ["index", "versions"].iter().for_each(|name| _ = fs::remove_dir(folder.join(name)));
    }
}

/// Returns the entries of a directory; none if it does not exist.
fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>> {
    let failed = |error| io_error(folder, "list", error);
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries.map_err(failed)?.collect::<io::Result<_>>().map_err(failed),
    }
}

/// Returns the objects that have a file of their own.
fn loose_objects(folder: &Path) -> Result<Vec<(PathBuf, ObjectId)>> {
    let mut found = Vec::new();
    for fan in entries(&folder.join("objects"))? {
        let Some(first) = fan.file_name().to_str().filter(|name| name.len() == 2).map(str::to_owned) else { continue };
        for entry in entries(&fan.path())? {
            let id = entry.file_name().to_str().and_then(|rest| ObjectId::from_hex(&format!("{first}{rest}")));
            found.extend(id.map(|id| (entry.path(), id)));
        }
    }
    Ok(found)
}

/// Counts the files below a directory. Links are not followed.
fn count_files(directory: &Path) -> FileCount {
    let (mut count, mut rest) = (FileCount::default(), vec![directory.to_owned()]);
    while let Some(directory) = rest.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => rest.push(entry.path()),
                Ok(metadata) => count.add(FileCount { files: 1, bytes: metadata.len() }),
                Err(_) => {}
            }
        }
    }
    count
}

/// Returns the error for a pack that cannot be read.
fn unreadable_pack(path: &Path) -> Error {
    Error::new(ErrorKind::Damaged, format_args!("the pack `{}` is damaged", path.display()))
}

#[cfg(all(test, unix))]
mod tests;
