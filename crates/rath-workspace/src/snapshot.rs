//! The state of a directory at one time, and questions about it.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::changes::join_path;
use crate::dir::{Dir, EntryKind, FileType};
use crate::disk::{self, Handle};
use crate::error::Result;
use crate::ignore::{self, IgnoreLevel};
use crate::listing::Listing;
use crate::rename::{directory, last_name};
use crate::walk::MAX_DEPTH;
use crate::{Presence, TreeId, UntrackedReason, Workspace, paths};

/// Receives the directory that holds a file, the file's name, and its path.
pub(crate) type VisitFile<'a> = dyn FnMut(&Handle, &[u8], &[u8]) -> ControlFlow<()> + 'a;

/// The contents of a directory at one time.
///
/// Returned by [`Workspace::snapshot`]. See [`Workspace`] for an example.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The tree of the tracked files.
    pub tree: TreeId,
    pub(crate) dir: Arc<Dir>,
}

impl Snapshot {
    pub(crate) fn new(dir: Arc<Dir>) -> Self {
        Snapshot { tree: TreeId(dir.tree()), dir }
    }

    /// Returns the untracked paths, with the reason for each.
    ///
    /// An ignored directory is one path, without its contents.
    pub fn untracked(&self) -> Vec<(String, UntrackedReason)> {
        let mut untracked = Vec::new();
        let mut rest = vec![(Vec::new(), &self.dir)];
        while let Some((path, dir)) = rest.pop() {
            for entry in &dir.entries {
                let child_path = join_path(&path, dir.name(entry));
                match (entry.kind, dir.child(entry)) {
                    (EntryKind::Untracked(reason) | EntryKind::Outdated(_, reason), _) => {
                        untracked.push((paths::path_text(&child_path).into_owned(), reason));
                    }
                    (_, Some(child)) if child.entries.is_empty() => {
                        untracked.push((paths::path_text(&child_path).into_owned(), UntrackedReason::EmptyDirectory));
                    }
                    (_, Some(child)) => rest.push((child_path, child)),
                    _ => {}
                }
            }
        }
        untracked.sort_by(|one, other| one.0.cmp(&other.0));
        untracked
    }

    /// Returns the files whose present content is not kept, with the reason for each: the tree has an earlier version of them.
    pub fn outdated(&self) -> Vec<(String, UntrackedReason)> {
        let mut outdated = Vec::new();
        let mut rest = vec![(Vec::new(), &self.dir)];
        while let Some((path, dir)) = rest.pop() {
            for entry in &dir.entries {
                match (entry.kind, dir.child(entry)) {
                    (EntryKind::Outdated(_, reason), _) => {
                        outdated.push((paths::path_text(&join_path(&path, dir.name(entry))).into_owned(), reason));
                    }
                    (_, Some(child)) => rest.push((join_path(&path, dir.name(entry)), child)),
                    _ => {}
                }
            }
        }
        outdated.sort_by(|one, other| one.0.cmp(&other.0));
        outdated
    }

    /// Returns the knowledge about a path, tracked or not.
    pub fn presence(&self, path: &str) -> Presence {
        let Ok(path) = paths::parse_path(path) else { return Presence::Absent };
        let mut dir = &self.dir;
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            let Some(entry) = dir.find(name) else { return Presence::Absent };
            if names.peek().is_none() {
                break;
            }
            match dir.child(entry) {
                Some(child) if child.is_unread() => return Presence::Unknown,
                Some(child) => dir = child,
                None if entry.stat.file_type() == FileType::Directory => return Presence::Unknown,
                None => return Presence::Absent,
            }
        }
        Presence::Present
    }

    /// Returns the outermost directory above a path that the rules of this snapshot ignore, whether it was there or not.
    pub fn ignored_above(&self, path: &str) -> Option<String> {
        let path = paths::parse_path(path).ok()?;
        let (mut dir, mut rules, mut start) = (Some(&self.dir), None, 0);
        loop {
            if let Some(patterns) = dir.and_then(|dir| dir.patterns.as_ref()) {
                rules = IgnoreLevel::push(&rules, patterns, &path[..start.max(1) - 1]);
            }
            let end = start + path[start..].iter().position(|byte| *byte == b'/')?;
            let name = &path[start..end];
            if name.eq_ignore_ascii_case(b".git") || ignore::ignores(&rules, &path[..end], true) {
                return Some(paths::path_text(&path[..end]).into_owned());
            }
            dir = dir.and_then(|dir| dir.child(dir.find(name)?));
            start = end + 1;
        }
    }

    /// Returns the paths of all links, sorted.
    pub fn links(&self) -> Vec<String> {
        let mut links = self.leaves(FileType::Link);
        links.sort();
        links
    }

    /// Returns the directories whose contents are not known: ignored ones with too many names, and those that could not be listed.
    pub fn unread(&self) -> Vec<String> {
        self.leaves(FileType::Directory)
    }

    /// Returns the paths of a type without known contents. Of a directory that can no longer be read, the path and those of an earlier
    /// snapshot below it.
    fn leaves(&self, file_type: FileType) -> Vec<String> {
        let (mut leaves, mut rest) = (Vec::new(), vec![(Vec::new(), &self.dir)]);
        while let Some((path, dir)) = rest.pop() {
            for entry in &dir.entries {
                let child_path = || join_path(&path, dir.name(entry));
                match dir.child(entry) {
                    Some(child) => {
                        if child.is_unread() && !dir.is_unread() && file_type == FileType::Directory {
                            leaves.push(paths::path_text(&child_path()).into_owned());
                        }
                        rest.push((child_path(), child));
                    }
                    None if entry.stat.file_type() == file_type => {
                        leaves.push(paths::path_text(&child_path()).into_owned());
                    }
                    None => {}
                }
            }
        }
        leaves
    }

    /// Returns true if a path was a link.
    pub fn is_link(&self, path: &str) -> bool {
        self.file_type(path) == Some(FileType::Link)
    }

    /// Returns true if a path was a directory.
    pub fn is_directory(&self, path: &str) -> bool {
        self.file_type(path) == Some(FileType::Directory)
    }

    fn file_type(&self, path: &str) -> Option<FileType> {
        let path = paths::parse_path(path).ok()?;
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let (entry, dir) = self.entry(&names)?;
        // The metadata of a directory that was read is with its contents.
        Some(if dir.is_some() { FileType::Directory } else { entry.stat.file_type() })
    }
}

impl Workspace {
    /// Returns true if a path is a link now.
    pub fn is_link_now(&self, path: &str) -> bool {
        let Ok(path) = paths::parse_path(path) else { return false };
        let parent = self.open_root().ok().and_then(|root| disk::open_path(&root, directory(&path)).ok());
        let stat = parent.and_then(|parent| disk::stat(&parent, last_name(&path)).ok());
        stat.is_some_and(|stat| stat.file_type() == FileType::Link)
    }

    /// Calls `visit` for each file at a path of a snapshot or below it, and for each link, until it breaks. Of directories whose
    /// contents the snapshot does not know, the files are those that are there now.
    pub fn files_below(
        &self,
        snapshot: &Snapshot,
        path: &str,
        visit: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let path = if path.is_empty() { Vec::new() } else { paths::parse_path(path)? };
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let (top, mut unread) = match snapshot.entry(&names) {
            _ if path.is_empty() => (Some(&snapshot.dir), Vec::new()),
            Some((_, Some(dir))) => (Some(dir), Vec::new()),
            Some((entry, None)) if entry.stat.file_type() != FileType::Directory => {
                return Ok(visit(&paths::path_text(&path)));
            }
            Some(_) => (None, vec![path.clone()]),
            None if snapshot.presence(&paths::path_text(&path)) == Presence::Unknown => (None, vec![path.clone()]),
            None => (None, Vec::new()),
        };
        let mut rest: Vec<_> = top.map(|dir| (path, dir)).into_iter().collect();
        while let Some((path, dir)) = rest.pop() {
            if dir.is_unread() {
                unread.push(path.clone());
            }
            for entry in &dir.entries {
                let child_path = join_path(&path, dir.name(entry));
                match dir.child(entry) {
                    Some(child) => rest.push((child_path, child)),
                    None if entry.stat.file_type() == FileType::Directory => unread.push(child_path),
                    None => {
                        if visit(&paths::path_text(&child_path)).is_break() {
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                }
            }
        }
        for directory in unread {
            if self.search(directory, &mut |_, _, path| visit(&paths::path_text(path)))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Calls `visit` for each file below a directory as it is now, until it breaks. Looks at names only, of any number.
    pub(crate) fn search(&self, directory: Vec<u8>, visit: &mut VisitFile<'_>) -> Result<ControlFlow<()>> {
        let (root, mut listing) = (self.open_root()?, Listing::default());
        let mut rest = vec![(directory, 0)];
        while let Some((path, depth)) = rest.pop() {
            let Ok(dir) = disk::open_path(&root, &path) else { continue };
            if disk::list(&dir, &mut listing).is_err() {
                continue;
            }
            for (nth, (_, _, file_type)) in listing.entries.iter().enumerate() {
                let (name, child_path) = (listing.name(nth), join_path(&path, listing.name(nth)));
                let is_directory = match file_type {
                    FileType::Unknown => disk::stat(&dir, name).is_ok_and(|it| it.file_type() == FileType::Directory),
                    known => *known == FileType::Directory,
                };
                if is_directory && depth < MAX_DEPTH {
                    rest.push((child_path, depth + 1));
                } else if visit(&dir, name, &child_path).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
