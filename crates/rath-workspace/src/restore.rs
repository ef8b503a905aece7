//! A workspace made equal to a tree, touching what differs.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode as Permissions};
use rustix::io::Errno;

use super::changes::{TreeChange, Version, join_path};
use super::checkout::{cannot_write, write_all};
use super::dir::{Dir, DirEntry, EntryKind};
use super::disk;
use super::objects::{self, Objects};
use super::paths;
use super::rename::{directory, last_name};
use super::tree::Mode;
use crate::error::{Error, ErrorKind, Result};

/// A workspace that is being restored.
pub(super) struct Restore<'a> {
    pub(super) objects: &'a Objects,
    pub(super) root: &'a OwnedFd,
    /// What is there.
    pub(super) dir: &'a Arc<Dir>,
    /// A folder for files that are not where they belong yet, if it is on the same file system.
    pub(super) staging: &'a Path,
}

impl Restore<'_> {
    /// Makes these changes. If something that is not kept is in the way, none is made.
    pub(super) fn run(&self, changed: &[TreeChange]) -> Result<()> {
        let mut there = Vec::new();
        for one in changed.iter().filter(|one| one.after.is_some()) {
            there.push(self.check_target(one)?);
        }
        let mut there = there.into_iter();
        let mut left = BTreeSet::new();
        for one in changed.iter().rev().filter(|one| one.before.is_some() && one.after.is_none()) {
            self.remove(one).map_err(|error| cannot_write(&one.path, error.into()))?;
            left.insert(directory(&one.path));
        }
        self.remove_empty(left);
        for one in changed {
            let Some(version) = one.after else { continue };
            if there.next() != Some(WriteTarget::AlreadyThere) {
                self.write_file(&one.path, version)?;
            }
        }
        Ok(())
    }

    /// Whether a file can be written without losing anything that is not kept.
    fn check_target(&self, one: &TreeChange) -> Result<WriteTarget> {
        let blocked = |path: &[u8]| {
            let path = paths::path_text(path);
            let message =
                format!("cannot restore `{}`: `{path}` is in its way, and is not kept", paths::path_text(&one.path));
            Error::new(ErrorKind::Io, message).with_hint(format!("move or remove `{path}`"))
        };
        let mut dir = self.dir;
        let mut path = Vec::new();
        let mut names = one.path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            path = join_path(&path, name);
            let Some(entry) = dir.find(name) else { return Ok(WriteTarget::Free) };
            let is_last = names.peek().is_none();
            match (entry.kind, dir.child(entry)) {
                (_, Some(child)) if !is_last => dir = child,
                (_, Some(child)) => {
                    return match find_untracked(child) {
                        Some(below) => Err(blocked(&join_path(&path, &below))),
                        None => Ok(WriteTarget::Free),
                    };
                }
                (EntryKind::Tracked(_), None) => return Ok(WriteTarget::Free),
                (EntryKind::Untracked(_), None) if is_last && self.is_same_file(entry, one)? => {
                    return Ok(WriteTarget::AlreadyThere);
                }
                (EntryKind::Untracked(_), None) => return Err(blocked(&path)),
            }
        }
        Ok(WriteTarget::Free)
    }

    /// Whether a file of which no version is kept is the one that is wanted.
    fn is_same_file(&self, entry: &DirEntry, one: &TreeChange) -> Result<bool> {
        let Some((mode, id)) = one.after else { return Ok(false) };
        let is_file = entry.stat.file_type() == rustix::fs::FileType::RegularFile;
        if !is_file || !mode.is_file() || entry.stat.is_executable() != (mode == Mode::Executable) {
            return Ok(false);
        }
        let wanted = self.objects.get(id, objects::ObjectKind::Blob)?;
        if wanted.len() as u64 != entry.stat.size {
            return Ok(false);
        }
        let read = || -> Result<Vec<u8>, Errno> {
            let dir = disk::open_path(self.root, directory(&one.path))?;
            let mut content = Vec::with_capacity(wanted.len() + 1);
            disk::read_all(&disk::open_file(&dir, last_name(&one.path))?, &mut content, wanted.len() as u64)?;
            Ok(content)
        };
        Ok(read().is_ok_and(|content| content == wanted))
    }

    fn remove(&self, one: &TreeChange) -> Result<(), Errno> {
        let dir = disk::open_path(self.root, directory(&one.path))?;
        match rustix::fs::unlinkat(&dir, last_name(&one.path), AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            done => done,
        }
    }

    /// Removes directories as far as nothing is left in them.
    fn remove_empty(&self, directories: BTreeSet<&[u8]>) {
        for mut path in directories.into_iter().rev() {
            while !path.is_empty() {
                let Ok(above) = disk::open_path(self.root, directory(path)) else { break };
                if rustix::fs::unlinkat(&above, last_name(path), AtFlags::REMOVEDIR).is_err() {
                    break;
                }
                path = directory(path);
            }
        }
    }

    /// Puts a file in its place: whoever looks finds the old one or the new one.
    fn write_file(&self, path: &[u8], version: Version) -> Result<()> {
        let content = self.objects.get(version.1, objects::ObjectKind::Blob)?;
        let put = || -> std::io::Result<()> {
            let dir = self.directory_for(path)?;
            let name = last_name(path);
            if disk::stat(&dir, name).is_ok_and(|stat| stat.file_type() == rustix::fs::FileType::Directory) {
                self.remove_empty_tree(path)?;
            }
            // Where the folder is on another file system, the file waits beside its place.
            match disk::open_root(self.staging).and_then(|staging| write_via(&staging, &dir, name, version.0, &content))
            {
                Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::XDEV | Errno::NOENT)) => {
                    write_via(&dir, &dir, name, version.0, &content)
                }
                done => done,
            }
        };
        put().map_err(|error| cannot_write(path, error))
    }

    /// The directory that a file lies in, made where it is missing.
    fn directory_for(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let mut dir = disk::open_dir(self.root, b".")?;
        for name in directory(path).split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            dir = match disk::open_dir(&dir, name) {
                Err(Errno::NOENT) => {
                    rustix::fs::mkdirat(&dir, name, Permissions::from_raw_mode(0o777))?;
                    disk::open_dir(&dir, name)?
                }
                opened => opened?,
            };
        }
        Ok(dir)
    }

    /// Removes a directory that holds nothing but directories.
    fn remove_empty_tree(&self, path: &[u8]) -> std::io::Result<()> {
        let mut rest = vec![path.to_vec()];
        let mut found = Vec::new();
        while let Some(path) = rest.pop() {
            let mut listing = disk::Listing::default();
            listing.read(&disk::open_path(self.root, &path)?)?;
            rest.extend((0..listing.entries.len()).map(|nth| join_path(&path, listing.name(nth))));
            found.push(path);
        }
        for path in found.iter().rev() {
            let above = disk::open_path(self.root, directory(path))?;
            rustix::fs::unlinkat(&above, last_name(path), AtFlags::REMOVEDIR)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteTarget {
    Free,
    /// What is wanted is there already.
    AlreadyThere,
}

/// The path of something in a directory that no version is kept of, beside directories with nothing in them.
fn find_untracked(dir: &Arc<Dir>) -> Option<Vec<u8>> {
    let mut rest = vec![(Vec::new(), dir)];
    while let Some((path, dir)) = rest.pop() {
        for entry in &dir.entries {
            let below = join_path(&path, dir.name(entry));
            match (entry.kind, dir.child(entry)) {
                (EntryKind::Tracked(Mode::Directory), Some(child)) => rest.push((below, child)),
                (EntryKind::Tracked(_), _) => {}
                (EntryKind::Untracked(_), _) => return Some(below),
            }
        }
    }
    None
}

fn write_via(staging: &OwnedFd, dir: &OwnedFd, name: &[u8], mode: Mode, content: &[u8]) -> std::io::Result<()> {
    let temporary = objects::temp_path(Path::new(".rath-restore"));
    let temporary = temporary.as_os_str().to_string_lossy().replace('/', "-");
    let waiting = temporary.as_bytes();
    let write = || -> std::io::Result<()> {
        if mode == Mode::Link {
            rustix::fs::symlinkat(content, staging, waiting)?;
        } else {
            write_all(&disk::create_file(staging, waiting, mode == Mode::Executable)?, content)?;
        }
        Ok(rustix::fs::renameat(staging, waiting, dir, name)?)
    };
    let written = write();
    if written.is_err() {
        let _ = rustix::fs::unlinkat(staging, waiting, AtFlags::empty());
    }
    written
}
