//! A workspace made equal to a tree, touching what differs.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode as Permissions};
use rustix::io::Errno;

use super::changes::{Changed, Version, join};
use super::checkout::{failed, write_all};
use super::dir::{Dir, Entry, Kind};
use super::disk;
use super::objects::{self, Objects};
use super::quote;
use super::rename::{directory, last_name};
use super::tree::Mode;
use crate::error::{Error, ErrorKind, Result};

/// A workspace that is being restored.
pub(super) struct Restore<'a> {
    pub(super) objects: &'a Objects,
    pub(super) root: &'a OwnedFd,
    /// What is there.
    pub(super) found: &'a Arc<Dir>,
    /// A folder for files that are not where they belong yet, if it is on the same file system.
    pub(super) aside: &'a Path,
}

impl Restore<'_> {
    /// Makes these changes. If something that is not kept is in the way, none is made.
    pub(super) fn run(&self, changed: &[Changed]) -> Result<()> {
        let mut there = Vec::new();
        for one in changed.iter().filter(|one| one.after.is_some()) {
            there.push(self.is_clear(one)?);
        }
        let mut there = there.into_iter();
        let mut left = BTreeSet::new();
        for one in changed.iter().rev().filter(|one| one.before.is_some() && one.after.is_none()) {
            self.remove(one).map_err(|error| failed(&one.path, error.into()))?;
            left.insert(directory(&one.path));
        }
        self.remove_empty(left);
        for one in changed {
            let Some(version) = one.after else { continue };
            if there.next() != Some(Clear::Same) {
                self.put(&one.path, version)?;
            }
        }
        Ok(())
    }

    /// Whether a file can be written without losing anything that is not kept.
    fn is_clear(&self, one: &Changed) -> Result<Clear> {
        let blocked = |path: &[u8]| {
            let path = quote::shown(path);
            let message =
                format!("cannot restore `{}`: `{path}` is in its way, and is not kept", quote::shown(&one.path));
            Error::new(ErrorKind::Io, message).with_hint(format!("move or remove `{path}`"))
        };
        let mut dir = self.found;
        let mut path = Vec::new();
        let mut names = one.path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            path = join(&path, name);
            let Some(entry) = dir.find(name) else { return Ok(Clear::Free) };
            let is_last = names.peek().is_none();
            match (entry.kind, dir.child(entry)) {
                (_, Some(child)) if !is_last => dir = child,
                (_, Some(child)) => {
                    return match unkept(child) {
                        Some(below) => Err(blocked(&join(&path, &below))),
                        None => Ok(Clear::Free),
                    };
                }
                (Kind::Kept(_), None) => return Ok(Clear::Free),
                (Kind::Unkept(_), None) if is_last && self.is(entry, one)? => return Ok(Clear::Same),
                (Kind::Unkept(_), None) => return Err(blocked(&path)),
            }
        }
        Ok(Clear::Free)
    }

    /// Whether a file of which no version is kept is the one that is wanted.
    fn is(&self, entry: &Entry, one: &Changed) -> Result<bool> {
        let Some((mode, id)) = one.after else { return Ok(false) };
        let is_file = entry.stat.file_type() == rustix::fs::FileType::RegularFile;
        if !is_file || !mode.is_file() || entry.stat.is_executable() != (mode == Mode::Executable) {
            return Ok(false);
        }
        let wanted = self.objects.get(id, objects::Kind::Blob)?;
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

    fn remove(&self, one: &Changed) -> Result<(), Errno> {
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
    fn put(&self, path: &[u8], version: Version) -> Result<()> {
        let content = self.objects.get(version.1, objects::Kind::Blob)?;
        let put = || -> std::io::Result<()> {
            let dir = self.directory_for(path)?;
            let name = last_name(path);
            if disk::stat(&dir, name).is_ok_and(|stat| stat.file_type() == rustix::fs::FileType::Directory) {
                self.remove_hollow(path)?;
            }
            // Where the folder is on another file system, the file waits beside its place.
            match disk::open_root(self.aside).and_then(|aside| put_from(&aside, &dir, name, version.0, &content)) {
                Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::XDEV | Errno::NOENT)) => {
                    put_from(&dir, &dir, name, version.0, &content)
                }
                done => done,
            }
        };
        put().map_err(|error| failed(path, error))
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
    fn remove_hollow(&self, path: &[u8]) -> std::io::Result<()> {
        let mut rest = vec![path.to_vec()];
        let mut found = Vec::new();
        while let Some(path) = rest.pop() {
            let mut listing = disk::Listing::default();
            listing.read(&disk::open_path(self.root, &path)?)?;
            rest.extend((0..listing.entries.len()).map(|nth| join(&path, listing.name(nth))));
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
enum Clear {
    Free,
    /// What is wanted is there already.
    Same,
}

/// The path of something in a directory that no version is kept of, beside directories with nothing in them.
fn unkept(dir: &Arc<Dir>) -> Option<Vec<u8>> {
    let mut rest = vec![(Vec::new(), dir)];
    while let Some((path, dir)) = rest.pop() {
        for entry in &dir.entries {
            let below = join(&path, dir.name(entry));
            match (entry.kind, dir.child(entry)) {
                (Kind::Kept(Mode::Directory), Some(child)) => rest.push((below, child)),
                (Kind::Kept(_), _) => {}
                (Kind::Unkept(_), _) => return Some(below),
            }
        }
    }
    None
}

fn put_from(aside: &OwnedFd, dir: &OwnedFd, name: &[u8], mode: Mode, content: &[u8]) -> std::io::Result<()> {
    let temporary = objects::temporary(Path::new(".rath-restore"));
    let temporary = temporary.as_os_str().to_string_lossy().replace('/', "-");
    let waiting = temporary.as_bytes();
    let write = || -> std::io::Result<()> {
        if mode == Mode::Link {
            rustix::fs::symlinkat(content, aside, waiting)?;
        } else {
            write_all(&disk::create_file(aside, waiting, mode == Mode::Executable)?, content)?;
        }
        Ok(rustix::fs::renameat(aside, waiting, dir, name)?)
    };
    let written = write();
    if written.is_err() {
        let _ = rustix::fs::unlinkat(aside, waiting, AtFlags::empty());
    }
    written
}
