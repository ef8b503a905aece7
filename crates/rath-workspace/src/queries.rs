//! What is in a tree, and what is different between two.

use std::path::Path;

use crate::change::FileChange;
use crate::tree::TreeId;

use super::objects::{ObjectKind, Objects};
use super::tree::{self, Mode, ObjectId};
use super::{changes, checkout, paths};
use crate::error::Result;

/// A file in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Its path: as it is where it is UTF-8, else in quotes with octal digits, as git writes it.
    pub path: String,
    /// What it is.
    pub mode: Mode,
    /// The object that holds its content.
    pub id: ObjectId,
}

impl Objects {
    /// What changed from one tree to another, by path; from nothing, where there is none before.
    pub fn diff(&self, before: Option<TreeId>, after: TreeId) -> Result<Vec<FileChange>> {
        let before = before.map(|tree| tree.0);
        let mut effects = changes::file_changes(self, changes::diff_trees(self, before, after.0)?)?;
        effects.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(effects)
    }

    /// The content of a file in a tree, or where a link leads; none if there is no such file.
    pub fn read(&self, tree: TreeId, path: &str) -> Result<Option<Vec<u8>>> {
        let found = self.version(tree, path)?;
        found.map(|(_, id)| self.get(id, ObjectKind::Blob)).transpose()
    }

    /// Every file in a tree, by path.
    pub fn files(&self, tree: TreeId) -> Result<Vec<TreeFile>> {
        let all = changes::diff_trees(self, None, tree.0)?;
        let kept = all.into_iter().filter_map(|one| {
            let (mode, id) = one.after?;
            Some(TreeFile { path: paths::path_text(&one.path).into_owned(), mode, id })
        });
        Ok(kept.collect())
    }

    /// Writes a tree to a new or empty directory.
    ///
    /// Nothing is written outside of it, whatever names and links the tree holds; one with names that no directory may hold is
    /// refused before anything is written.
    pub fn checkout(&self, tree: TreeId, into: &Path) -> Result<()> {
        checkout::checkout(self, tree.0, into, None).map(drop)
    }

    /// Which version of a file a tree holds; none if there is no such file.
    pub(super) fn version(&self, tree: TreeId, path: &str) -> Result<Option<(Mode, ObjectId)>> {
        self.entry(tree.0, &paths::parse_path(path)?)
    }

    /// The same of a path that is bytes.
    pub(super) fn entry(&self, tree: ObjectId, path: &[u8]) -> Result<Option<(Mode, ObjectId)>> {
        let mut at = tree;
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            let bytes = self.get(at, ObjectKind::Tree)?;
            let found = tree::entries(at, &bytes)?.into_iter().find(|entry| entry.name == name);
            match (found, names.peek()) {
                (Some(entry), Some(_)) if entry.mode == Mode::Directory => at = entry.id,
                (Some(entry), None) if entry.mode != Mode::Directory => return Ok(Some((entry.mode, entry.id))),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }
}
