//! Restoring a tree in a workspace, writing only the files that differ.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::changes::{TreeChange, Version, join_path};
use crate::checkout::cannot_write;
use crate::dir::{Dir, DirEntry, EntryKind, FileType};
use crate::disk::{self, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::listing::Listing;
use crate::objects::{self, Objects};
use crate::paths;
use crate::rename::{directory, last_name};
use crate::tree::Mode;

/// One restore.
pub(crate) struct Restore<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) root: &'a Handle,
    pub(crate) root_path: &'a Path,
    /// The current contents.
    pub(crate) dir: &'a Arc<Dir>,
}

impl Restore<'_> {
    /// Applies changes. If an untracked file is in the way, none is applied.
    pub(crate) fn run(&self, changed: &[TreeChange]) -> Result<()> {
        let wanted = changed.iter().filter_map(|change| Some((paths::path_text(&change.path), change.after?.1)));
        self.objects.check_remembered(wanted)?;
        let mut targets = Vec::new();
        for change in changed {
            match change.after {
                Some(_) => targets.push(self.check_target(change)?),
                None => self.check_removal(change)?,
            }
        }
        let mut targets = targets.into_iter();
        let mut emptied = BTreeSet::new();
        for change in changed.iter().rev().filter(|change| change.before.is_some() && change.after.is_none()) {
            self.remove(change).map_err(|error| cannot_write(&change.path, error))?;
            emptied.insert(directory(&change.path));
        }
        self.remove_empty(emptied);
        for change in changed {
            let Some(version) = change.after else { continue };
            if targets.next() != Some(WriteTarget::AlreadyThere) {
                self.write_file(&change.path, version)?;
            }
        }
        Ok(())
    }

    /// Fails if removing a file would lose a version of it that is not kept.
    fn check_removal(&self, change: &TreeChange) -> Result<()> {
        let mut names = change.path.split(|byte| *byte == b'/');
        let last = names.next_back().and_then(|last| {
            let above = names.try_fold(self.dir, |dir, name| dir.child(dir.find(name)?))?;
            above.find(last)
        });
        match last.map(|entry| entry.kind) {
            Some(EntryKind::Outdated(..)) => {
                let path = paths::path_text(&change.path);
                let message = format!("cannot remove `{path}`: no version of its present content is kept");
                Err(Error::new(ErrorKind::Io, message).with_hint(format!("move or delete `{path}`")))
            }
            _ => Ok(()),
        }
    }

    /// Fails if writing a file would overwrite an untracked file.
    fn check_target(&self, change: &TreeChange) -> Result<WriteTarget> {
        let blocked = |path: &[u8]| {
            let path = paths::path_text(path);
            let message = format!(
                "cannot restore `{}`: the untracked file `{path}` is in the way",
                paths::path_text(&change.path)
            );
            Error::new(ErrorKind::Io, message).with_hint(format!("move or delete `{path}`"))
        };
        let mut dir = self.dir;
        let mut path = Vec::new();
        let mut names = change.path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            path = join_path(&path, name);
            let Some(entry) = dir.find(name) else { return Ok(WriteTarget::Free) };
            let is_last = names.peek().is_none();
            match (entry.kind, dir.child(entry)) {
                (_, Some(child)) if !is_last => dir = child,
                (_, Some(child)) => {
                    return match find_untracked(child) {
                        Some(child_path) => Err(blocked(&join_path(&path, &child_path))),
                        None => Ok(WriteTarget::Free),
                    };
                }
                (EntryKind::Tracked(_), None) => return Ok(WriteTarget::Free),
                (EntryKind::Untracked(_) | EntryKind::Outdated(..), None)
                    if is_last && self.is_same_file(entry, change)? =>
                {
                    return Ok(WriteTarget::AlreadyThere);
                }
                (EntryKind::Untracked(_) | EntryKind::Outdated(..), None) => return Err(blocked(&path)),
            }
        }
        Ok(WriteTarget::Free)
    }

    /// Returns true if an untracked file has the wanted content and mode.
    fn is_same_file(&self, entry: &DirEntry, change: &TreeChange) -> Result<bool> {
        let Some((mode, id)) = change.after else { return Ok(false) };
        let is_file = entry.stat.file_type() == FileType::File;
        if !is_file || !mode.is_file() || entry.stat.is_executable() != (mode == Mode::Executable) {
            return Ok(false);
        }
        let wanted = self.objects.get(id, objects::ObjectKind::Blob)?;
        if wanted.len() as u64 != entry.stat.size {
            return Ok(false);
        }
        let read = || -> io::Result<Vec<u8>> {
            let dir = disk::open_path(self.root, directory(&change.path))?;
            let mut content = Vec::with_capacity(wanted.len() + 1);
            disk::read_all(&disk::open_file(&dir, last_name(&change.path))?, &mut content, wanted.len() as u64)?;
            Ok(content)
        };
        Ok(read().is_ok_and(|content| content == wanted))
    }

    /// Removes a file.
    fn remove(&self, change: &TreeChange) -> io::Result<()> {
        let dir = disk::open_path(self.root, directory(&change.path))?;
        match disk::remove_file(&dir, last_name(&change.path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Removes directories and their parents if they are empty.
    fn remove_empty(&self, directories: BTreeSet<&[u8]>) {
        for mut path in directories.into_iter().rev() {
            while !path.is_empty() {
                let Ok(parent) = disk::open_path(self.root, directory(path)) else { break };
                if disk::remove_dir(&parent, last_name(path)).is_err() {
                    break;
                }
                path = directory(path);
            }
        }
    }

    /// Writes a file by renaming a temporary file: a reader sees the old content or the new content, never a part.
    fn write_file(&self, path: &[u8], version: Version) -> Result<()> {
        let content = self.objects.get(version.1, objects::ObjectKind::Blob)?;
        let put = || -> io::Result<()> {
            let dir = self.directory_for(path)?;
            let name = last_name(path);
            if disk::stat(&dir, name).is_ok_and(|stat| stat.file_type() == FileType::Directory) {
                self.remove_empty_tree(path)?;
            }
            let temporaries = self.objects.temporaries();
            let staging = disk::open_root(&temporaries.directory()?)?;
            match write_via((&staging, &temporaries.path()?), (&dir, name), version.0, &content) {
                // The fork is a mount, for example: the temporary file is created in the target directory.
                Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                    let directory = self.root_path.join(disk::path_from_bytes(directory(path)));
                    let noted = temporaries.path_in(&directory)?;
                    write_via((&dir, noted.path()), (&dir, name), version.0, &content)
                }
                done => done,
            }
        };
        put().map_err(|error| cannot_write(path, error))
    }

    /// Opens the directory of a file, and creates it if it is missing.
    fn directory_for(&self, path: &[u8]) -> io::Result<Handle> {
        let mut dir = disk::open_dir(self.root, b".")?;
        for name in directory(path).split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            dir = match disk::open_dir(&dir, name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    disk::create_dir(&dir, name)?;
                    disk::open_dir(&dir, name)?
                }
                opened => opened?,
            };
        }
        Ok(dir)
    }

    /// Removes a directory that contains only directories.
    fn remove_empty_tree(&self, path: &[u8]) -> io::Result<()> {
        let mut rest = vec![path.to_vec()];
        let mut directories = Vec::new();
        while let Some(path) = rest.pop() {
            let mut listing = Listing::default();
            disk::list(&disk::open_path(self.root, &path)?, &mut listing)?;
            rest.extend((0..listing.entries.len()).map(|nth| join_path(&path, listing.name(nth))));
            directories.push(path);
        }
        for path in directories.iter().rev() {
            let parent = disk::open_path(self.root, directory(path))?;
            disk::remove_dir(&parent, last_name(path))?;
        }
        Ok(())
    }
}

/// The state of a path before it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteTarget {
    /// The path can be written.
    Free,
    /// The file has the wanted content already.
    AlreadyThere,
}

/// Returns the path of an untracked file in a directory; none if all its files are tracked.
fn find_untracked(dir: &Arc<Dir>) -> Option<Vec<u8>> {
    let mut rest = vec![(Vec::new(), dir)];
    while let Some((path, dir)) = rest.pop() {
        for entry in &dir.entries {
            let child_path = join_path(&path, dir.name(entry));
            match (entry.kind, dir.child(entry)) {
                (EntryKind::Tracked(Mode::Directory), Some(child)) => rest.push((child_path, child)),
                (EntryKind::Tracked(_), _) => {}
                (EntryKind::Untracked(_) | EntryKind::Outdated(..), _) => return Some(child_path),
            }
        }
    }
    None
}

/// Writes a temporary file, and renames it to its name in a directory. The last name of a path is the name of the temporary.
fn write_via(
    (staging, temporary): (&Handle, &Path),
    (dir, name): (&Handle, &[u8]),
    mode: Mode,
    content: &[u8],
) -> io::Result<()> {
    let waiting = temporary.file_name().unwrap_or_default().as_encoded_bytes();
    let write = || -> io::Result<()> {
        if mode == Mode::Link {
            disk::create_link(staging, waiting, content)?;
        } else {
            disk::write_all(&disk::create_file(staging, waiting, mode == Mode::Executable)?, content)?;
        }
        disk::rename((staging, waiting), (dir, name))
    };
    let written = write();
    if written.is_err() {
        let _ = disk::remove_file(staging, waiting);
    }
    written
}
