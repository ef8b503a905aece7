//! The contents of a directory as a snapshot found them.

use std::sync::Arc;

use crate::change::UntrackedReason;
use crate::ignore::{Patterns, RulesId};
use crate::tree::{self, EMPTY_TREE, Mode, ObjectId};

/// A directory as a snapshot found it. Subdirectories that did not change are shared with the previous snapshot.
#[derive(Debug, Default)]
pub(crate) struct Dir {
    /// The names of all entries, one after the other.
    pub(crate) names: Vec<u8>,
    /// The entries, sorted by name.
    pub(crate) entries: Vec<DirEntry>,
    /// The subdirectories that were read.
    pub(crate) children: Vec<Arc<Dir>>,
    /// The metadata of the directory from before it was listed: the names are the same as long as it is unchanged.
    pub(crate) own: Stat,
    /// True if names may have been added or removed later without changing `own`.
    pub(crate) racy: bool,
    /// The tree object of the tracked files; none if there are none.
    pub(crate) tree: Option<ObjectId>,
    /// The ignore rules that were applied.
    pub(crate) rules: RulesId,
    /// The patterns of the directory's own `.gitignore`, if it was read.
    pub(crate) patterns: Option<Arc<Patterns>>,
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirEntry {
    pub(crate) start: u32,
    pub(crate) length: u16,
    /// True if the file may have changed after it was read without a change of its metadata.
    pub(crate) racy: bool,
    pub(crate) kind: EntryKind,
    /// The position in `children`, for a directory that was read.
    pub(crate) child: Option<u32>,
    pub(crate) stat: Stat,
    /// The blob of a tracked file or link.
    pub(crate) id: ObjectId,
}

/// The two kinds of entries: part of the tree, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Tracked(Mode),
    /// Part of the tree with an earlier version: the present one is not kept. Without that, the file would count as deleted.
    Outdated(Mode, UntrackedReason),
    Untracked(UntrackedReason),
}

/// The metadata of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) modified: i64,
    pub(crate) changed: i64,
    /// The type and the permissions, in the numbers of Unix.
    pub(crate) mode: u32,
}

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileType {
    File,
    Directory,
    Link,
    /// A pipe, a socket or a device.
    Special,
    /// The file system did not return the type, or the permissions do not allow reading it.
    Unknown,
}

/// The bits of a mode that have the type of a file.
pub(crate) const FILE_TYPE: u32 = 0o170_000;

impl Stat {
    pub(crate) fn file_type(&self) -> FileType {
        match self.mode & FILE_TYPE {
            0o100_000 => FileType::File,
            0o040_000 => FileType::Directory,
            0o120_000 => FileType::Link,
            0 => FileType::Unknown,
            _ => FileType::Special,
        }
    }

    pub(crate) fn is_executable(&self) -> bool {
        self.mode & 0o100 != 0
    }
}

impl Dir {
    /// Returns true if names in this directory or below it, one after the other, hold something that `find` finds.
    pub(crate) fn has_names(&self, find: &dyn Fn(&[u8]) -> bool) -> bool {
        let mut rest = vec![self];
        while let Some(dir) = rest.pop() {
            if find(&dir.names) {
                return true;
            }
            rest.extend(dir.children.iter().map(|child| &**child));
        }
        false
    }

    /// Returns the name of an entry.
    pub(crate) fn name(&self, entry: &DirEntry) -> &[u8] {
        &self.names[entry.start as usize..][..usize::from(entry.length)]
    }

    /// Returns the subdirectory of an entry, if it was read.
    pub(crate) fn child(&self, entry: &DirEntry) -> Option<&Arc<Dir>> {
        self.children.get(entry.child? as usize)
    }

    /// Returns the entry with a name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&DirEntry> {
        let at = self.entries.binary_search_by(|entry| self.name(entry).cmp(name)).ok()?;
        Some(&self.entries[at])
    }

    /// Returns the number of names in this directory and all below it.
    #[cfg(target_os = "linux")]
    pub(crate) fn names(&self) -> usize {
        let (mut names, mut rest) = (0, vec![self]);
        while let Some(dir) = rest.pop() {
            names += dir.entries.len();
            rest.extend(dir.children.iter().map(|child| &**child));
        }
        names
    }

    /// Returns the number of files and links in this directory and all below it.
    pub(crate) fn file_count(&self) -> u64 {
        let (mut files, mut rest) = (0, vec![self]);
        while let Some(dir) = rest.pop() {
            files += (dir.entries.len() - dir.children.len()) as u64;
            rest.extend(dir.children.iter().map(|child| &**child));
        }
        files
    }

    /// Returns the id of the tree, which is the empty tree if nothing is tracked.
    pub(crate) fn tree(&self) -> ObjectId {
        self.tree.unwrap_or(EMPTY_TREE)
    }

    /// Returns the bytes of the tree object; none if nothing is tracked.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut entries: Vec<tree::TreeEntry<'_>> = self
            .entries
            .iter()
            .filter_map(|entry| match entry.kind {
                EntryKind::Tracked(Mode::Directory) => {
                    let id = self.child(entry)?.tree?;
                    Some(tree::TreeEntry { mode: Mode::Directory, name: self.name(entry), id })
                }
                EntryKind::Tracked(mode) | EntryKind::Outdated(mode, _) => {
                    Some(tree::TreeEntry { mode, name: self.name(entry), id: entry.id })
                }
                EntryKind::Untracked(_) => None,
            })
            .collect();
        (!entries.is_empty()).then(|| tree::encode(&mut entries))
    }

    /// Returns true if two directories are equal and share the same children.
    pub(crate) fn is_same(&self, other: &Dir) -> bool {
        self.rules == other.rules
            && (self.own, self.racy) == (other.own, other.racy)
            && self.names == other.names
            && self.entries == other.entries
            && self.patterns.is_some() == other.patterns.is_some()
            && self.children.len() == other.children.len()
            && self.children.iter().zip(&other.children).all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

/// Drops the children in a loop: recursion would overflow the stack for directories nested thousands deep.
impl Drop for Dir {
    fn drop(&mut self) {
        let mut rest = std::mem::take(&mut self.children);
        while let Some(child) = rest.pop() {
            if let Some(mut child) = Arc::into_inner(child) {
                rest.append(&mut child.children);
            }
        }
    }
}
