//! Trees made from other trees by replacing a few paths.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use crate::batch::Batch;
use crate::error::{Error, ErrorKind, Result};
use crate::objects::{self, ObjectKind, Objects};
use crate::queries::{TreeFile, TreeReader};
use crate::tree::{self, EMPTY_TREE, Mode, ObjectId, TreeEntry, TreeId};
use crate::{ForkShare, checkout, disk, paths};

/// The new content of a path: a file, or nothing.
type Replacement = Option<(Mode, ObjectId)>;

/// The replacements for one name in a directory, and below it.
#[derive(Default)]
struct Edits<'a> {
    here: Option<Replacement>,
    below: Vec<(&'a [u8], Replacement)>,
}

impl Objects {
    /// Returns a tree in which these paths are as in the tree `after`, and all others as in `tree`.
    pub fn with_paths<'p>(
        &self,
        tree: TreeId,
        after: TreeId,
        paths: impl IntoIterator<Item = &'p str>,
    ) -> Result<TreeId> {
        let (mut replacements, mut files) = (BTreeMap::new(), TreeReader::new(self, after));
        for path in paths {
            let path = paths::parse_path(path)?;
            let version = files.version(&path)?;
            replacements.insert(path, version);
        }
        self.edit(tree, &replacements)
    }

    /// Returns a tree in which the path of a conflict holds one of its versions, or nothing.
    ///
    /// `sides` are the versions of both sides: a merge may have written the file to the paths of both.
    pub fn with_version(
        &self,
        tree: TreeId,
        path: &str,
        sides: &[TreeFile],
        version: Option<&TreeFile>,
    ) -> Result<TreeId> {
        let mut replacements = self.removals(tree, path, sides)?;
        if let Some(version) = version {
            replacements.insert(paths::parse_path(&version.path)?, Some((version.mode, version.id)));
        }
        self.edit(tree, &replacements)
    }

    /// Returns a tree in which the path of a conflict holds this content.
    ///
    /// `sides` are the versions of both sides, as in [`with_version`](Objects::with_version). The file is executable if
    /// one of them is.
    pub fn with_content(&self, tree: TreeId, path: &str, sides: &[TreeFile], content: &[u8]) -> Result<TreeId> {
        let mut replacements = self.removals(tree, path, sides)?;
        let is_executable = sides.iter().any(|version| version.mode == Mode::Executable);
        let batch = Batch::new(self);
        let id = batch.put(ObjectKind::Blob, content)?.ok_or_else(collides)?;
        batch.finish()?;
        replacements
            .insert(paths::parse_path(path)?, Some((if is_executable { Mode::Executable } else { Mode::File }, id)));
        self.edit(tree, &replacements)
    }

    /// Returns the removal of all files that the merge wrote for a conflict.
    fn removals(&self, tree: TreeId, path: &str, sides: &[TreeFile]) -> Result<BTreeMap<Vec<u8>, Replacement>> {
        let mut replacements = BTreeMap::from([(paths::parse_path(path)?, None)]);
        let mut files = TreeReader::new(self, tree);
        for version in sides {
            // If one side renamed the file, the merge may have written it under both names.
            let path = paths::parse_path(&version.path)?;
            if files.version(&path)?.is_some_and(|(_, id)| id == version.id) {
                replacements.insert(path, None);
            }
        }
        Ok(replacements)
    }

    /// Copies a tree and all its objects from another folder.
    pub fn copy_tree_from(&self, other: &Objects, tree: TreeId) -> Result<()> {
        let batch = Batch::new(self);
        let mut rest = vec![(tree.0, ObjectKind::Tree)];
        // Objects of the batch are not found before it is finished.
        let mut copied = HashSet::new();
        let mut forgotten = Vec::new();
        while let Some((id, kind)) = rest.pop() {
            if !copied.insert(id) || id == EMPTY_TREE || self.contains_intact(id, kind) {
                continue;
            }
            let content = match other.get(id, kind) {
                // A tree stays complete if it is known why the content of a file is missing.
                Err(error) if error.kind() == ErrorKind::Forgotten => {
                    forgotten.extend(other.forgotten_files().get(&id).map(|file| (id, *file)));
                    continue;
                }
                content => content?,
            };
            if kind == ObjectKind::Tree {
                let children = tree::entries(id, &content)?.into_iter();
                rest.extend(children.map(|entry| match entry.mode {
                    Mode::Directory => (entry.id, ObjectKind::Tree),
                    _ => (entry.id, ObjectKind::Blob),
                }));
            }
            batch.put(kind, &content)?;
        }
        // What is listed here stays as it is listed.
        let listed = self.forgotten_files();
        forgotten.retain(|(id, _)| !listed.contains_key(id));
        self.add_forgotten(&forgotten)?;
        batch.finish()
    }

    /// Writes a tree to a temporary directory, which is removed when the result is dropped. Fails if the content of one of its files
    /// was removed.
    pub fn temp_checkout(&self, tree: TreeId) -> Result<TempCheckout> {
        let path = self.temporaries().path().map_err(|error| objects::io_error(self.folder(), "write to", error))?;
        let checkout = TempCheckout { path, objects: self.clone() };
        checkout::checkout(self, tree.0, checkout.path(), None)?;
        Ok(checkout)
    }

    fn edit(&self, tree: TreeId, replacements: &BTreeMap<Vec<u8>, Replacement>) -> Result<TreeId> {
        let batch = Batch::new(self);
        let replacements: Vec<_> = replacements.iter().map(|(path, replacement)| (&path[..], *replacement)).collect();
        let id = self.edit_in(&batch, tree.0, &replacements)?;
        batch.finish()?;
        Ok(TreeId(id.unwrap_or(EMPTY_TREE)))
    }

    /// Returns the tree of a directory after the replacements below it; none if it is empty then.
    fn edit_in(
        &self,
        batch: &Batch<'_>,
        tree: ObjectId,
        replacements: &[(&[u8], Replacement)],
    ) -> Result<Option<ObjectId>> {
        let bytes = self.get(tree, ObjectKind::Tree)?;
        let current = tree::entries(tree, &bytes)?;
        let mut entries: BTreeMap<&[u8], TreeEntry<'_>> =
            current.into_iter().map(|entry| (entry.name, entry)).collect();
        let mut names: BTreeMap<&[u8], Edits<'_>> = BTreeMap::new();
        for (path, replacement) in replacements {
            match memchr::memchr(b'/', path) {
                None => names.entry(path).or_default().here = Some(*replacement),
                Some(at) => names.entry(&path[..at]).or_default().below.push((&path[at + 1..], *replacement)),
            }
        }
        for (name, Edits { here, below }) in names {
            let known = entries.get(name).map(|entry| (entry.mode, entry.id));
            let directory = known.filter(|(mode, _)| *mode == Mode::Directory).map(|(_, id)| id);
            let needs_dir = below.iter().any(|(_, replacement)| replacement.is_some());
            let now = match (here, directory) {
                // A new file replaces a directory at its path.
                (Some(Some(file)), _) if !needs_dir => Some(file),
                _ if needs_dir || directory.is_some() => {
                    let tree = self.edit_in(batch, directory.unwrap_or(EMPTY_TREE), &below)?;
                    tree.map(|tree| (Mode::Directory, tree))
                }
                (Some(_), _) => None,
                (None, _) => known,
            };
            match now {
                Some((mode, id)) => _ = entries.insert(name, TreeEntry { mode, name, id }),
                None => _ = entries.remove(name),
            }
        }
        let mut entries: Vec<_> = entries.into_values().collect();
        if entries.is_empty() {
            return Ok(None);
        }
        batch.put(ObjectKind::Tree, &tree::encode(&mut entries))?.ok_or_else(collides).map(Some)
    }
}

fn collides() -> Error {
    Error::new(ErrorKind::Io, "the content is part of a SHA-1 collision attack and cannot be stored")
}

/// A temporary directory with the files of a tree, removed on drop.
///
/// Returned by [`Objects::temp_checkout`].
pub struct TempCheckout {
    path: PathBuf,
    /// The directory belongs to the temporaries of this handle, and is removed with them.
    objects: Objects,
}

impl TempCheckout {
    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the objects that the files come from.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }
}

impl Drop for TempCheckout {
    fn drop(&mut self) {
        for path in [&self.path, ForkShare::of(&self.path).folder()] {
            let _ = disk::remove_tree(path);
        }
    }
}
