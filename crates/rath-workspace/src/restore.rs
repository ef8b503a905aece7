//! Restoring a tree in a workspace, writing only the files that differ.
//!
//! A file is replaced or removed only as a snapshot found it. Another program may save it at any time, so it is looked at before,
//! and again when it has left its place: if it is another file by then, it is put back.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::changes::{TreeChange, Version, join_path};
use crate::checkout::cannot_write;
use crate::dir::{Dir, DirEntry, EntryKind, FileType, Stat};
use crate::disk::{self, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::listing::Listing;
use crate::objects::{self, Objects};
use crate::paths;
use crate::rename::{directory, last_name};
use crate::tree::{Mode, ObjectId};

/// The number of times that a file is put back which another program saves all the time.
const MAX_EXCHANGES: usize = 100;

/// One restore.
pub(crate) struct Restore<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) root: &'a Handle,
    pub(crate) root_path: &'a Path,
    /// The contents as a snapshot found them. Files that were changed since stay.
    pub(crate) dir: &'a Arc<Dir>,
    pub(crate) care: Care,
}

/// The care that is taken of files which other programs change meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// A file is looked at again when it has left its place.
    LookAfter,
    /// A file is looked at just before: to move one of an overlay mount away would copy it.
    LookBefore,
    /// No other program knows of the directory.
    None,
}

/// A restore that failed on its way.
pub(crate) struct FailedRestore<'a> {
    pub(crate) error: Error,
    /// The changes that were applied, or may have been, in their order.
    pub(crate) applied: Vec<&'a TreeChange>,
}

impl Restore<'_> {
    /// Applies changes. If an untracked file is in the way, or a file is not as in the snapshot, none is applied.
    pub(crate) fn run<'c>(&self, changed: &'c [TreeChange]) -> std::result::Result<(), FailedRestore<'c>> {
        let mut applied = Vec::new();
        self.apply(changed, &mut applied).map_err(|error| FailedRestore { error, applied })
    }

    fn apply<'c>(&self, changed: &'c [TreeChange], applied: &mut Vec<&'c TreeChange>) -> Result<()> {
        let wanted = changed.iter().filter_map(|change| Some((paths::path_text(&change.path), change.after?.1)));
        self.objects.check_remembered(wanted)?;
        changed.iter().try_for_each(|change| self.check_readable(change))?;
        let mut targets = Vec::new();
        for change in changed {
            match change.after {
                Some(_) => targets.push(self.check_target(change)?),
                None => self.check_removal(change)?,
            }
        }
        for change in changed {
            self.check_unchanged(change).map_err(|error| error.of(&change.path))?;
        }
        let mut targets = targets.into_iter();
        let mut emptied = BTreeSet::new();
        for change in changed.iter().rev().filter(|change| change.before.is_some() && change.after.is_none()) {
            match self.remove(change) {
                Ok(true) => applied.push(change),
                Ok(false) => {}
                Err(error) => return Err(error.noting(change, applied)),
            }
            emptied.insert(directory(&change.path));
        }
        self.remove_empty(emptied);
        for change in changed {
            let Some(version) = change.after else { continue };
            if targets.next() != Some(WriteTarget::AlreadyThere) {
                let content = self.objects.get(version.1, objects::ObjectKind::Blob)?;
                match self.write_file(change, version.0, &content) {
                    Ok(()) => applied.push(change),
                    Err(error) => return Err(error.noting(change, applied)),
                }
            }
        }
        Ok(())
    }

    /// Undoes changes, except for files that other programs have changed since. A change that cannot be undone keeps none of the others from it.
    pub(crate) fn undo(&self, applied: &[&TreeChange]) -> Result<()> {
        let (mut emptied, mut failed) = (BTreeSet::new(), None);
        for change in applied.iter().rev() {
            let undone = || -> Result<bool, FileError> {
                if !self.has_version(&change.path, change.after)? {
                    return Ok(false);
                }
                let Some((mode, id)) = change.before else {
                    let dir = disk::open_path(self.root, directory(&change.path))?;
                    disk::remove_file(&dir, last_name(&change.path))?;
                    return Ok(true);
                };
                let content = self.objects.get(id, objects::ObjectKind::Blob).map_err(FileError::Other)?;
                let dir = self.directory_for(&change.path)?;
                self.with_temporary(&change.path, &dir, |temporary| {
                    let _open = write_new(temporary, mode, &content)?;
                    Ok(disk::rename(temporary, (&dir, last_name(&change.path)))?)
                })?;
                Ok(false)
            };
            match undone() {
                Ok(true) => _ = emptied.insert(directory(&change.path)),
                Ok(false) => {}
                Err(error) => _ = failed.get_or_insert(error.of(&change.path)),
            }
        }
        self.remove_empty(emptied);
        failed.map_or(Ok(()), Err)
    }

    /// Fails if a file is in a directory that could not be read: neither is it known what is there, nor that nothing is.
    fn check_readable(&self, change: &TreeChange) -> Result<()> {
        let mut dir = self.dir;
        for (end, _) in change.path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let above = &change.path[..end];
            match dir.find(last_name(above)).and_then(|entry| dir.child(entry)) {
                None => return Ok(()),
                Some(child) if child.is_unread() => {
                    let (path, above) = (paths::path_text(&change.path), paths::path_text(above));
                    let message = format!("cannot restore `{path}`: the directory `{above}` cannot be read");
                    return Err(Error::new(ErrorKind::Io, message)
                        .with_hint(format!("allow yourself to read and write `{above}`, or move it elsewhere")));
                }
                Some(child) => dir = child,
            }
        }
        Ok(())
    }

    /// Fails if removing a file would lose a version of it that is not kept.
    fn check_removal(&self, change: &TreeChange) -> Result<()> {
        match self.seen(change).map(|entry| entry.kind) {
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

    /// Returns the entry of a path in the snapshot, if it has one.
    fn seen(&self, change: &TreeChange) -> Option<&DirEntry> {
        let mut names = change.path.split(|byte| *byte == b'/');
        let last = names.next_back()?;
        names.try_fold(self.dir, |dir, name| dir.child(dir.find(name)?))?.find(last)
    }

    /// Fails if a file is no longer the one of the snapshot.
    fn check_unchanged(&self, change: &TreeChange) -> Result<(), FileError> {
        if self.care == Care::None || change.before.is_none() {
            return Ok(());
        }
        let seen = self.seen(change).ok_or(FileError::Changed)?;
        let dir = match disk::open_path(self.root, directory(&change.path)) {
            // What is to be removed may be gone already.
            Err(error) if disk::is_gone(&error) && change.after.is_none() => return Ok(()),
            Err(error) if disk::is_gone(&error) => return Err(FileError::Changed),
            opened => opened?,
        };
        let at = (&dir, last_name(&change.path));
        let is_gone = || matches!(disk::stat(at.0, at.1), Err(error) if disk::is_gone(&error));
        match self.is_as_seen(at, seen, Position::InPlace)? || (change.after.is_none() && is_gone()) {
            true => Ok(()),
            false => Err(FileError::Changed),
        }
    }

    /// Returns true if a file is the one of the snapshot, with the same content.
    fn is_as_seen(&self, at: (&Handle, &[u8]), seen: &DirEntry, position: Position) -> io::Result<bool> {
        let found = match disk::stat(at.0, at.1) {
            Err(error) if disk::is_gone(&error) => return Ok(false),
            found => found?,
        };
        let plain = |stat: &Stat| (stat.size, stat.modified, stat.mode);
        if plain(&found) != plain(&seen.stat) {
            return Ok(false);
        }
        // A rename changes this time.
        let changed = if position == Position::Moved { found.changed } else { seen.stat.changed };
        let is_same_file = found == Stat { changed, ..seen.stat };
        // The clock of files is coarse: a change right after the snapshot may show in the content alone.
        if is_same_file && !seen.racy {
            return Ok(true);
        }
        Ok(content_id(at, found.size)? == Some(seen.id))
    }

    /// Returns true if a path has a version, or nothing where that is none.
    fn has_version(&self, path: &[u8], version: Option<Version>) -> io::Result<bool> {
        let dir = match disk::open_path(self.root, directory(path)) {
            Err(error) if disk::is_gone(&error) => return Ok(version.is_none()),
            opened => opened?,
        };
        let at = (&dir, last_name(path));
        let found = match disk::stat(at.0, at.1) {
            Err(error) if disk::is_gone(&error) => return Ok(version.is_none()),
            found => found?,
        };
        let Some((mode, id)) = version else { return Ok(false) };
        let found_mode = match found.file_type() {
            FileType::Link => Mode::Link,
            FileType::File if found.is_executable() => Mode::Executable,
            FileType::File => Mode::File,
            _ => return Ok(false),
        };
        Ok(found_mode == mode && content_id(at, found.size)? == Some(id))
    }

    /// Removes a file. Returns false if it was gone already.
    fn remove(&self, change: &TreeChange) -> Result<bool, FileError> {
        let dir = match disk::open_path(self.root, directory(&change.path)) {
            Err(error) if disk::is_gone(&error) => return Ok(false),
            opened => opened?,
        };
        let at = (&dir, last_name(&change.path));
        if self.care != Care::LookAfter {
            self.check_unchanged(change)?;
            return match disk::remove_file(at.0, at.1) {
                Err(error) if disk::is_gone(&error) => Ok(false),
                removed => Ok(removed.map(|()| true)?),
            };
        }
        let seen = self.seen(change).ok_or(FileError::Changed)?;
        let removed = self.with_temporary(&change.path, &dir, |temporary| {
            disk::rename(at, temporary)?;
            let is_as_seen = self.is_as_seen(temporary, seen, Position::Moved);
            if !matches!(is_as_seen, Ok(true)) {
                // If the other program has saved it once more, that is what stays.
                disk::rename_new(temporary, at).map_err(FileError::from_rename)?;
                return Err(is_as_seen.map_or_else(FileError::Io, |_| FileError::Changed));
            }
            Ok(disk::remove_file(temporary.0, temporary.1)?)
        });
        match removed {
            Err(FileError::Io(error)) if disk::is_gone(&error) => Ok(false),
            removed => removed.map(|()| true),
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
    fn write_file(&self, change: &TreeChange, mode: Mode, content: &[u8]) -> Result<(), FileError> {
        let path = &*change.path;
        let dir = match change.before {
            // The directory of a file that was there is not made anew.
            Some(_) if self.care != Care::None => disk::open_path(self.root, directory(path))
                .map_err(|error| if disk::is_gone(&error) { FileError::Changed } else { FileError::Io(error) })?,
            _ => self.directory_for(path)?,
        };
        let at = (&dir, last_name(path));
        if disk::stat(at.0, at.1).is_ok_and(|stat| stat.file_type() == FileType::Directory) {
            // Its files were removed before, unless there are new ones.
            self.remove_empty_tree(path).map_err(|_| FileError::Changed)?;
        }
        if self.care == Care::LookBefore {
            self.check_unchanged(change)?;
        }
        self.with_temporary(path, &dir, |temporary| {
            // As long as the file is open, no other one gets its inode.
            let open = write_new(temporary, mode, content)?;
            if let Some(file) = open.as_ref().filter(|_| self.care != Care::None) {
                // After a power cut the file has the old content or the new content too, never a part.
                disk::sync_content(file)?;
            }
            self.put_in_place(temporary, at, change)
        })
    }

    /// Gives a temporary file the name of the file that it replaces, if that is as the snapshot found it.
    fn put_in_place(
        &self,
        temporary: (&Handle, &[u8]),
        at: (&Handle, &[u8]),
        change: &TreeChange,
    ) -> Result<(), FileError> {
        let seen = match change.before {
            _ if self.care == Care::None => return Ok(disk::rename(temporary, at)?),
            None => return disk::rename_new(temporary, at).map_err(FileError::from_rename),
            Some(_) if self.care == Care::LookBefore => return Ok(disk::rename(temporary, at)?),
            Some(_) => self.seen(change).ok_or(FileError::Changed)?,
        };
        let inode = |at: (&Handle, &[u8])| disk::stat(at.0, at.1).map(|stat| stat.inode);
        let mut placed = inode(temporary)?;
        if !disk::exchange(temporary, at).map_err(FileError::from_rename)? {
            // On this file system it can only be looked at before.
            self.check_unchanged(change)?;
            return Ok(disk::rename(temporary, at)?);
        }
        let is_as_seen = self.is_as_seen(temporary, seen, Position::Moved);
        if !matches!(is_as_seen, Ok(true)) {
            for _ in 0..MAX_EXCHANGES {
                let putting = inode(temporary)?;
                disk::exchange(temporary, at).map_err(FileError::from_rename)?;
                // If the other program has saved once more, what it saved last is what stays.
                if inode(temporary)? == placed {
                    break;
                }
                placed = putting;
            }
            return Err(is_as_seen.map_or_else(FileError::Io, |_| FileError::Changed));
        }
        Ok(disk::remove_file(temporary.0, temporary.1)?)
    }

    /// Calls `work` with the name of a temporary file: among those of the objects, or in the directory of the file if that is
    /// on another file system.
    fn with_temporary(
        &self,
        path: &[u8],
        dir: &Handle,
        work: impl Fn((&Handle, &[u8])) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let temporaries = self.objects.temporaries();
        let staging = disk::open_root(&temporaries.directory()?)?;
        let temporary = temporaries.path()?;
        let name = |path: &Path| path.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
        let (staged, clear) = (name(&temporary), |dir: &Handle, name: &[u8]| _ = disk::remove_file(dir, name));
        match work((&staging, &staged)).inspect_err(|_| clear(&staging, &staged)) {
            // The fork is a mount, for example.
            Err(FileError::Io(error)) if error.kind() == io::ErrorKind::CrossesDevices => {
                let noted = temporaries.path_in(&self.root_path.join(disk::path_from_bytes(directory(path))))?;
                work((dir, &name(noted.path())))
            }
            done => done,
        }
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

/// The reason why a file was neither written nor removed.
enum FileError {
    Io(io::Error),
    Other(Error),
    /// Another program has changed it since the snapshot.
    Changed,
}

impl FileError {
    /// Returns the reason for a rename that failed because of what is there, or is not.
    fn from_rename(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound => FileError::Changed,
            _ => FileError::Io(error),
        }
    }

    fn of(self, path: &[u8]) -> Error {
        match self {
            FileError::Io(error) => cannot_write(path, error),
            FileError::Other(error) => error,
            FileError::Changed => {
                let message = format!("`{}` was changed by another program meanwhile", paths::path_text(path));
                Error::new(ErrorKind::Changed, message).with_hint("it was left as it is: try again")
            }
        }
    }

    /// Adds a change that failed to those that were applied, unless the file was left alone.
    fn noting<'c>(self, change: &'c TreeChange, applied: &mut Vec<&'c TreeChange>) -> Error {
        if !matches!(self, FileError::Changed) {
            applied.push(change);
        }
        self.of(&change.path)
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        FileError::Io(error)
    }
}

/// The position of a file that is compared with a snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    InPlace,
    Moved,
}

/// Writes a new file or link, and returns the open file.
fn write_new((dir, name): (&Handle, &[u8]), mode: Mode, content: &[u8]) -> io::Result<Option<Handle>> {
    if mode == Mode::Link {
        return disk::create_link(dir, name, content).map(|()| None);
    }
    let file = disk::create_file(dir, name, mode == Mode::Executable)?;
    disk::write_all(&file, content)?;
    Ok(Some(file))
}

/// Returns the id of the content of a file or link; none if it is no version.
fn content_id((dir, name): (&Handle, &[u8]), size: u64) -> io::Result<Option<ObjectId>> {
    let content = match disk::read_link(dir, name)? {
        Some(target) => target,
        None => {
            let mut content = Vec::new();
            disk::read_all(&disk::open_file(dir, name)?, &mut content, size)?;
            content
        }
    };
    Ok(objects::hash_object(objects::ObjectKind::Blob, &content))
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
