//! Directories that cannot be read: a tree keeps the last versions of their files, and no file of them counts as the present one.

use std::sync::Arc;

use crate::change::UntrackedReason;
use crate::dir::{Dir, DirEntry, EntryKind, FILE_TYPE, Stat};
use crate::error::Result;
use crate::ignore;
use crate::limits::check_tree;
use crate::objects::{ObjectKind, Objects};
use crate::tree::{self, EMPTY_TREE, Mode, ObjectId};

/// The time of change of a directory that could not be read, which no directory has.
const UNREAD: i64 = i64::MIN;

impl Dir {
    /// Returns true if the directory could not be read: its contents are those of an earlier snapshot.
    pub(crate) fn is_unread(&self) -> bool {
        self.own.changed == UNREAD
    }

    /// Returns the directory as one that can no longer be read, with everything below it.
    pub(crate) fn unread(self: &Arc<Dir>) -> Arc<Dir> {
        // In a loop: recursion would overflow the stack for directories nested thousands deep.
        let (mut dir, mut children, mut above) = (self.clone(), Vec::new(), Vec::new());
        loop {
            let next = dir.children.get(children.len()).filter(|_| !dir.is_unread()).cloned();
            if let Some(child) = next {
                above.push((std::mem::replace(&mut dir, child), std::mem::take(&mut children)));
                continue;
            }
            let unread = if dir.is_unread() { dir } else { Arc::new(dir.unread_with(children)) };
            let Some((parent, mut siblings)) = above.pop() else { return unread };
            siblings.push(unread);
            (dir, children) = (parent, siblings);
        }
    }

    fn unread_with(&self, children: Vec<Arc<Dir>>) -> Dir {
        let mut dir = Dir::default();
        (dir.names, dir.entries, dir.children) = (self.names.clone(), self.entries.clone(), children);
        dir.own = Stat { changed: UNREAD, mode: self.own.mode, ..Stat::default() };
        (dir.tree, dir.rules, dir.patterns) = (self.tree, self.rules, self.patterns.clone());
        for entry in &mut dir.entries {
            if let EntryKind::Tracked(mode) | EntryKind::Outdated(mode, _) = entry.kind
                && mode != Mode::Directory
            {
                entry.make_outdated(mode, entry.stat.mode & FILE_TYPE);
            }
        }
        dir
    }
}

impl DirEntry {
    fn make_outdated(&mut self, mode: Mode, file_type: u32) {
        self.kind = EntryKind::Outdated(mode, UntrackedReason::Special);
        // No file has this metadata, so the file is read as soon as that is possible.
        (self.stat, self.racy) = (Stat { mode: file_type, ..Stat::default() }, false);
    }
}

/// Returns the files of a tree as a directory that was not read yet.
pub(crate) fn dir_of_tree(objects: &Objects, tree: ObjectId) -> Result<Arc<Dir>> {
    check_tree(objects, tree)?;
    let (mut dir, mut missing) = unread_dir(objects, tree)?;
    let mut above = Vec::new();
    loop {
        if let Some(id) = missing.get(dir.children.len()).copied() {
            let below = unread_dir(objects, id)?;
            above.push((std::mem::replace(&mut dir, below.0), std::mem::replace(&mut missing, below.1)));
            continue;
        }
        let Some((mut parent, missing_there)) = above.pop() else { return Ok(Arc::new(dir)) };
        parent.children.push(Arc::new(dir));
        (dir, missing) = (parent, missing_there);
    }
}

/// Returns one directory of a tree, and the trees of its subdirectories.
fn unread_dir(objects: &Objects, id: ObjectId) -> Result<(Dir, Vec<ObjectId>)> {
    let (mut dir, mut below) = (Dir::default(), Vec::new());
    dir.own = Stat { changed: UNREAD, mode: 0o040_755, ..Stat::default() };
    dir.rules = ignore::OTHER_RULES;
    dir.tree = Some(id).filter(|id| *id != EMPTY_TREE);
    let bytes = objects.get(id, ObjectKind::Tree)?;
    let mut entries = tree::entries(id, &bytes)?;
    entries.sort_unstable_by_key(|entry| entry.name);
    for wanted in entries {
        let mut entry = DirEntry::new(EntryKind::Tracked(wanted.mode));
        match wanted.mode {
            Mode::Directory => {
                entry.child = Some(below.len() as u32);
                below.push(wanted.id);
            }
            mode => {
                entry.make_outdated(mode, if mode == Mode::Link { 0o120_000 } else { 0o100_000 });
                entry.id = wanted.id;
            }
        }
        dir.push(wanted.name, entry);
    }
    Ok((dir, below))
}
