//! Removing the content of single files, though trees name it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{CollectMode, Collector, entries};
use crate::change::Digest;
use crate::error::Result;
use crate::forgotten::ForgottenFile;
use crate::objects::{ObjectKind, Objects, hash_object};
use crate::overlay;
use crate::tree::{self, EMPTY_TREE, Mode, ObjectId, TreeId};

/// A search for some files in many trees. A directory that several trees share is read once.
///
/// Returned by [`Collector::search`].
#[derive(Debug)]
pub struct TreeSearch<'a> {
    objects: &'a Objects,
    wanted: HashSet<ObjectId>,
    /// The files that were found, by tree.
    found: HashMap<ObjectId, Arc<BTreeSet<ObjectId>>>,
}

impl TreeSearch<'_> {
    /// Returns those of the files that a tree holds. A tree that is not stored here, or cannot be read, holds none.
    pub fn files_in(&mut self, tree: TreeId) -> Arc<BTreeSet<ObjectId>> {
        // The trees to read, and those that were read, whose files are known after those of their directories.
        let mut rest: Vec<(ObjectId, Option<BTreeSet<ObjectId>>, Vec<ObjectId>)> = vec![(tree.0, None, Vec::new())];
        while let Some((id, own, directories)) = rest.pop() {
            if let Some(mut files) = own {
                directories.iter().filter_map(|id| self.found.get(id)).for_each(|below| files.extend(&**below));
                self.found.insert(id, Arc::new(files));
            } else if !self.found.contains_key(&id) {
                let (files, directories) = self.read(id).unwrap_or_default();
                let unread: Vec<_> = directories.iter().map(|id| (*id, None, Vec::new())).collect();
                rest.push((id, Some(files), directories));
                rest.extend(unread);
            }
        }
        self.found[&tree.0].clone()
    }

    /// Returns the files that are searched for in a tree itself, and its directories.
    fn read(&self, id: ObjectId) -> Option<(BTreeSet<ObjectId>, Vec<ObjectId>)> {
        let bytes = self.objects.get(id, ObjectKind::Tree).ok()?;
        let (directories, files): (Vec<_>, Vec<_>) =
            tree::entries(id, &bytes).ok()?.into_iter().partition(|entry| entry.mode == Mode::Directory);
        let files = files.into_iter().map(|entry| entry.id).filter(|id| self.wanted.contains(id));
        Some((files.collect(), directories.into_iter().map(|entry| entry.id).collect()))
    }
}

impl Collector {
    /// Returns a search for some files in the stored trees.
    pub fn search(&self, wanted: impl IntoIterator<Item = ObjectId>) -> TreeSearch<'_> {
        TreeSearch { objects: &self.objects, wanted: wanted.into_iter().collect(), found: HashMap::new() }
    }

    /// Lets [`collect`](Collector::collect) remove the content of some files, though trees that are kept name them. Called before
    /// the first tree is kept. Returns those of the files whose content is stored.
    ///
    /// The files are put on a list first: a reader that needs the content is told that it was removed on purpose. A file with the same
    /// content that is stored later is stored as any other.
    ///
    /// ```
    /// use rath_workspace::{CollectMode, Collector, ErrorKind, Objects, Workspace};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let temp = tempfile::tempdir()?;
    /// # let project = temp.path().join("project");
    /// # std::fs::create_dir(&project)?;
    /// # let folder = temp.path().join("versions");
    ///
    /// std::fs::write(project.join("key.txt"), "4711\n")?;
    /// let objects = Objects::open(&folder)?;
    /// let tree = Workspace::open(&project, &objects, &temp.path().join("index"))?.snapshot()?.tree;
    /// let key = objects.files(tree)?[0].id;
    /// drop(objects);
    ///
    /// let mut collector = Collector::open(&folder, CollectMode::Remove)?.expect("the folder is not in use");
    /// collector.forget([key])?;
    /// collector.keep_tree(tree)?;
    /// collector.collect()?;
    /// assert_eq!(collector.copies_below(&project), [project.join("key.txt")]);
    /// let error = Objects::open(&folder)?.read(tree, "key.txt").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Forgotten);
    /// # Ok(())
    /// # }
    /// ```
    pub fn forget(&mut self, files: impl IntoIterator<Item = ObjectId>) -> Result<HashSet<ObjectId>> {
        let listed = self.objects.absences();
        let (mut new, mut found) = (Vec::new(), HashSet::new());
        for id in files {
            let again = listed.stored_again.get(&id);
            let file = match listed.forgotten.get(&id).or(again) {
                Some(file) => {
                    found.extend(self.objects.has_content(id).then_some(id));
                    new.extend(again.map(|file| (id, *file)));
                    *file
                }
                None => {
                    let Ok(content) = self.objects.get(id, ObjectKind::Blob) else { continue };
                    found.insert(id);
                    let (size, digest) = (content.len() as u64, Digest::compute(&content));
                    let file = ForgottenFile { size, digest };
                    new.push((id, file));
                    file
                }
            };
            self.forgotten.insert(id, file.size);
        }
        match self.mode {
            CollectMode::Remove => self.objects.add_forgotten(&new).map(|()| found),
            CollectMode::DryRun => Ok(found),
        }
    }

    /// Keeps everything that is stored, but what is to be forgotten.
    pub fn keep_all(&mut self) -> Result<()> {
        self.is_damaged = false;
        let stored: Vec<_> = self.stored.keys().copied().collect();
        stored.into_iter().for_each(|id| _ = self.keep_object(id));
        let folder = self.objects.folder().to_owned();
        for entry in entries(&folder.join("versions"))? {
            self.bases.extend(entry.file_name().to_str().and_then(ObjectId::from_hex));
        }
        for entry in entries(&folder.join("index"))? {
            self.indexes.extend(entry.file_name().to_str().map(str::to_owned));
        }
        Ok(())
    }

    /// Unlocks the folder, and returns the files below a directory that have the content of a file that is forgotten. Links are not
    /// followed; a link whose target is that content is found too.
    pub fn copies_below(self, directory: &Path) -> Vec<PathBuf> {
        let Collector { objects, forgotten, .. } = self;
        let sizes: HashSet<u64> = forgotten.values().copied().collect();
        if sizes.is_empty() {
            return Vec::new();
        }
        let own = objects.folder().join("objects");
        // The directory may be large, and other processes may need the versions.
        drop(objects);
        let (mut found, mut rest) = (Vec::new(), vec![directory.to_owned()]);
        while let Some(directory) = rest.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let (path, metadata) = (entry.path(), entry.metadata());
                match metadata {
                    Ok(metadata) if metadata.is_dir() && path != own => rest.push(path),
                    Ok(metadata) if sizes.contains(&metadata.len()) => {
                        let content = match metadata.is_symlink() {
                            true => fs::read_link(&path).map(|target| target.into_os_string().into_encoded_bytes()),
                            false if metadata.is_file() => fs::read(&path),
                            false => continue,
                        };
                        let id = content.ok().and_then(|content| hash_object(ObjectKind::Blob, &content));
                        found.extend(id.filter(|id| forgotten.contains_key(id)).map(|_| path));
                    }
                    _ => {}
                }
            }
        }
        found.sort();
        found
    }

    /// Returns the base version of a fork, whose files the fork shares; none for an ordinary directory.
    pub fn base_of_fork(fork: &Path) -> Option<TreeId> {
        overlay::base_of(fork).map(TreeId)
    }

    /// Returns true if a tree names a file that is forgotten.
    pub(super) fn names_forgotten(&self, tree: ObjectId) -> bool {
        tree != EMPTY_TREE
            && !self.forgotten.is_empty()
            && !self.search(self.forgotten.keys().copied()).files_in(TreeId(tree)).is_empty()
    }
}

#[cfg(all(test, unix))]
mod tests;
