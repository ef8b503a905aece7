//! What was found in a directory, entry by entry.

use std::sync::Arc;

use crate::change::Untracked;

use super::ignore::{Patterns, RulesId};
use super::tree::{self, EMPTY, Mode, ObjectId};

/// A directory as it was found. What did not change is shared with what was found before.
#[derive(Debug, Default)]
pub(super) struct Dir {
    /// The names of all entries, one after the other.
    pub(super) names: Vec<u8>,
    /// By name.
    pub(super) entries: Vec<Entry>,
    pub(super) children: Vec<Arc<Dir>>,
    /// What the file system said of the directory itself before it was listed: as long as it says so, the names are the same.
    pub(super) own: Stat,
    /// Names may have come or gone since without a trace in that.
    pub(super) racy: bool,
    /// The tree object of what is kept; none where nothing is.
    pub(super) tree: Option<ObjectId>,
    /// The rules by which it was decided what is ignored.
    pub(super) rules: RulesId,
    /// Its own `.gitignore`, where it was read.
    pub(super) patterns: Option<Arc<Patterns>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) start: u32,
    pub(super) length: u16,
    /// It may have changed after it was read without a trace in its metadata.
    pub(super) racy: bool,
    pub(super) kind: Kind,
    /// Which of the children it is, for a directory that was looked into.
    pub(super) child: Option<u32>,
    pub(super) stat: Stat,
    /// Its blob, for what is kept and no directory.
    pub(super) id: ObjectId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Kept(Mode),
    Unkept(Untracked),
}

/// What the file system says of a file without opening it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) modified: i64,
    pub(super) changed: i64,
    pub(super) mode: u32,
}

impl Dir {
    pub(super) fn name(&self, entry: &Entry) -> &[u8] {
        &self.names[entry.start as usize..][..usize::from(entry.length)]
    }

    pub(super) fn child(&self, entry: &Entry) -> Option<&Arc<Dir>> {
        self.children.get(entry.child? as usize)
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|entry| self.name(entry).cmp(name)).ok()?;
        Some(&self.entries[at])
    }

    /// How many names were found, here and below.
    #[cfg(target_os = "linux")]
    pub(super) fn names(&self) -> usize {
        let (mut names, mut rest) = (0, vec![self]);
        while let Some(dir) = rest.pop() {
            names += dir.entries.len();
            rest.extend(dir.children.iter().map(|child| &**child));
        }
        names
    }

    /// The id of its tree, whether or not anything is in it.
    pub(super) fn tree(&self) -> ObjectId {
        self.tree.unwrap_or(EMPTY)
    }

    /// The bytes of the tree object of what is kept; none where nothing is.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut entries: Vec<tree::Entry<'_>> = self
            .entries
            .iter()
            .filter_map(|entry| match entry.kind {
                Kind::Kept(Mode::Directory) => {
                    let id = self.child(entry)?.tree?;
                    Some(tree::Entry { mode: Mode::Directory, name: self.name(entry), id })
                }
                Kind::Kept(mode) => Some(tree::Entry { mode, name: self.name(entry), id: entry.id }),
                Kind::Unkept(_) => None,
            })
            .collect();
        (!entries.is_empty()).then(|| tree::encode(&mut entries))
    }

    /// Whether it is the same as another, with the very same children.
    pub(super) fn is(&self, other: &Dir) -> bool {
        self.rules == other.rules
            && (self.own, self.racy) == (other.own, other.racy)
            && self.names == other.names
            && self.entries == other.entries
            && self.patterns.is_some() == other.patterns.is_some()
            && self.children.len() == other.children.len()
            && self.children.iter().zip(&other.children).all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

/// One after the other: a recursion would overflow the stack for directories nested by the thousand.
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
