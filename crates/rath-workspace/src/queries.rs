//! Reading trees: their files, their differences, and checkouts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

use crate::change::FileChange;
use crate::changes::Version;
use crate::checkout::LeftOutFile;
use crate::error::Result;
use crate::objects::{ObjectKind, Objects};
use crate::tree::{self, Mode, ObjectId, TreeId};
use crate::{changes, checkout, forgotten, paths};

/// A file in a tree.
///
/// Returned by [`Objects::files`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// The path. A path that is not UTF-8 is quoted with octal digits, as git does.
    pub path: String,
    /// The mode.
    pub mode: Mode,
    /// The blob with the content.
    pub id: ObjectId,
}

/// The result of a checkout.
///
/// Returned by [`Objects::checkout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedOut {
    /// The number of files and links that were written.
    pub files: u64,
    /// The files and directories that were left out, by path.
    pub left_out: Vec<LeftOutFile>,
}

impl Objects {
    /// Returns the changes from one tree to another, by path; `None` stands for an empty directory.
    pub fn diff(&self, before: Option<TreeId>, after: TreeId) -> Result<Vec<FileChange>> {
        let before = before.map(|tree| tree.0);
        let mut changes = changes::file_changes(self, changes::diff_trees(self, before, after.0)?)?;
        changes.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(changes)
    }

    /// Returns the content of a file in a tree, or the target of a link; none if there is no such file.
    pub fn read(&self, tree: TreeId, path: &str) -> Result<Option<Vec<u8>>> {
        let version = self.version(tree, path)?;
        let read = version.map(|(_, id)| self.get(id, ObjectKind::Blob)).transpose();
        read.map_err(|error| forgotten::with_path(error, path))
    }

    /// Returns the content of a file in a tree, and fails if it has more than `max` bytes.
    pub(crate) fn read_at_most(&self, tree: TreeId, path: &str, max: u64) -> Result<Option<Vec<u8>>> {
        let version = self.version(tree, path)?;
        let read = version.map(|(_, id)| self.get_at_most(id, ObjectKind::Blob, max)).transpose();
        read.map_err(|error| forgotten::with_path(error, path))
    }

    /// Returns true if a tree itself is stored.
    pub fn has_tree(&self, tree: TreeId) -> bool {
        tree.0 == tree::EMPTY_TREE || self.contains(tree.0)
    }

    /// Returns true if the content of a blob is stored.
    pub fn has_content(&self, id: ObjectId) -> bool {
        self.get(id, ObjectKind::Blob).is_ok()
    }

    /// Returns all files of a tree, by path.
    pub fn files(&self, tree: TreeId) -> Result<Vec<TreeFile>> {
        let all = changes::diff_trees(self, None, tree.0)?;
        let files = all.into_iter().filter_map(|file| {
            let (mode, id) = file.after?;
            Some(TreeFile { path: paths::path_text(&file.path).into_owned(), mode, id })
        });
        Ok(files.collect())
    }

    /// Writes a tree to a new or empty directory.
    ///
    /// Nothing is written outside of the directory: a tree with names that a directory cannot hold is rejected before
    /// the first write, and links are never followed. Files whose content is not stored are left out, and returned: it was removed on
    /// purpose, or is missing or damaged.
    pub fn checkout(&self, tree: TreeId, into: &Path) -> Result<CheckedOut> {
        let (dir, left_out) = checkout::checkout_stored(self, tree.0, into)?;
        Ok(CheckedOut { files: dir.file_count(), left_out })
    }

    /// Returns the version of a file in a tree; none if there is no such file.
    pub(crate) fn version(&self, tree: TreeId, path: &str) -> Result<Option<(Mode, ObjectId)>> {
        TreeReader::new(self, tree).version(&paths::parse_path(path)?)
    }
}

/// Finds files of a tree by their paths. Each directory is read once, however many files are looked for.
pub(crate) struct TreeReader<'a> {
    objects: &'a Objects,
    tree: TreeId,
    directories: HashMap<ObjectId, HashMap<Vec<u8>, Version>>,
}

impl<'a> TreeReader<'a> {
    pub(crate) fn new(objects: &'a Objects, tree: TreeId) -> Self {
        TreeReader { objects, tree, directories: HashMap::new() }
    }

    /// Returns the version of a file, by the bytes of its path; none if there is no such file.
    pub(crate) fn version(&mut self, path: &[u8]) -> Result<Option<Version>> {
        let mut at = self.tree.0;
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            let entry = self.directory(at)?.get(name).copied();
            match (entry, names.peek()) {
                (Some((Mode::Directory, id)), Some(_)) => at = id,
                (Some((mode, id)), None) if mode != Mode::Directory => return Ok(Some((mode, id))),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Returns the entries of a directory by their names.
    fn directory(&mut self, id: ObjectId) -> Result<&HashMap<Vec<u8>, Version>> {
        match self.directories.entry(id) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(vacant) => {
                let bytes = self.objects.get(id, ObjectKind::Tree)?;
                let mut versions = HashMap::new();
                for entry in tree::entries(id, &bytes)? {
                    // Others may write a tree with two entries of one name: the first counts.
                    versions.entry(entry.name.to_vec()).or_insert((entry.mode, entry.id));
                }
                Ok(vacant.insert(versions))
            }
        }
    }
}
