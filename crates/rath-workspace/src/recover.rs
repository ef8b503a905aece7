//! Recovering single files of a workspace, beneath its directory and without following links.
//!
//! Each path is recovered by itself. What is in its way is moved aside, whether tracked or not, and a recovery that fails is
//! undone.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::aside::{accessed, create_path, move_entry, open_dir};
use crate::backup::{Backup, BackupContent, Backups};
use crate::dir::{Dir, DirEntry, EntryKind, FileType};
use crate::disk::{self, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::objects::ObjectKind;
use crate::temporaries::Temporaries;
use crate::tree::Mode;
use crate::{Snapshot, UntrackedReason, Workspace, paths};

impl Workspace {
    /// Gives a path the state that it has in the backups or in a snapshot: type, content and permissions. Returns false if it has
    /// that state already.
    ///
    /// Files in the way are moved below `aside`, which has to be on the same file system. On failure the files stay as they were
    /// found; if that fails too, the error says where they are.
    ///
    /// See [`Backups`] for an example.
    pub fn recover(&self, path: &str, before: &Snapshot, backups: &Backups, aside: &Path) -> Result<bool> {
        let bytes = paths::parse_path(path)?;
        let names: Vec<&[u8]> = bytes.split(|byte| *byte == b'/').collect();
        let mut recovery = Recovery {
            before,
            aside,
            temporaries: self.objects.temporaries(),
            root: self.open_root()?,
            undo: Vec::new(),
        };
        let recovered = match (backups.files.get(&bytes), before.entry(&names)) {
            (Some(backup), _) => recovery.file(&names, backup, &self.content(backup)?),
            (None, Some((_, Some(_)))) => recovery.parents(&names).map(|_| true),
            (None, Some((entry, None))) => {
                let backup = Backup::of_version(entry).ok_or_else(|| no_version(entry.kind.untracked_reason()))?;
                recovery.file(&names, &backup, &self.content(&backup)?)
            }
            (None, None) => return Err(no_version(None)),
        };
        recovered.map_err(|error| {
            let failed = Error::new(ErrorKind::Io, error);
            match recovery.undo() {
                Ok(()) => failed,
                Err(_) => failed.with_hint(format!("what was there is in `{}`", aside.display())),
            }
        })
    }

    /// Returns the content of a backup.
    fn content(&self, backup: &Backup) -> Result<Vec<u8>> {
        match &backup.content {
            BackupContent::Version(id) => self.objects.get(*id, ObjectKind::Blob),
            BackupContent::Memory(content) => Ok(content.to_vec()),
            BackupContent::Missing(reason) => Err(no_version(Some(*reason))),
        }
    }
}

/// Returns the error for a path of which no earlier content is known.
fn no_version(reason: Option<UntrackedReason>) -> Error {
    let because = match reason {
        Some(UntrackedReason::Ignored) => ", since it was ignored",
        Some(UntrackedReason::TooLarge) => ", since it was too large",
        Some(UntrackedReason::Special) => ", since it was no file that can be read",
        Some(UntrackedReason::Secret) => ", since it held a secret",
        Some(UntrackedReason::EmptyDirectory) | None => "",
    };
    Error::new(ErrorKind::Io, format_args!("no earlier content is known{because}"))
}

/// One recovery.
struct Recovery<'a> {
    before: &'a Snapshot,
    aside: &'a Path,
    temporaries: &'a Temporaries,
    root: Handle,
    undo: Vec<UndoStep>,
}

/// The reversal of one change of a recovery.
enum UndoStep {
    /// Moves what was moved aside back.
    MoveBack { dir: Arc<Handle>, name: Vec<u8>, aside: (Handle, Vec<u8>) },
    /// Removes a directory that was created.
    RemoveDir { dir: Arc<Handle>, name: Vec<u8> },
}

impl Recovery<'_> {
    /// Recovers a file or a link.
    fn file(&mut self, names: &[&[u8]], backup: &Backup, content: &[u8]) -> io::Result<bool> {
        let Some((name, parents)) = names.split_last() else { return Ok(false) };
        let dir = self.parents(parents)?;
        let found = match accessed(&dir, || disk::stat(&dir, name)) {
            Ok(stat) => Some(stat),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if let Some(stat) = &found {
            if accessed(&dir, || Ok(backup.is_same(&dir, name, stat)))? {
                return Ok(false);
            }
            let is_file = stat.file_type() == FileType::File;
            if is_file && backup.has_content(&dir, name, stat) && set_mode(&dir, name, backup.stat.mode).is_ok() {
                return Ok(true);
            }
        }
        // The new file is complete before the old one is moved.
        let staging = create_path(self.aside, &[])?;
        let noted = self.temporaries.path_in(self.aside)?;
        let waiting = noted.path().file_name().unwrap_or_default().as_encoded_bytes();
        let done = write(&staging, waiting, backup, content).and_then(|()| {
            if found.is_some() {
                self.move_away(&dir, name, parents)?;
            }
            accessed(&dir, || disk::rename((&staging, waiting), (&dir, name)))
        });
        drop(noted);
        // The directory for what is moved aside is there for that only.
        if found.is_none() && self.undo.iter().all(|step| matches!(step, UndoStep::RemoveDir { .. })) {
            let _ = std::fs::remove_dir(self.aside);
        }
        done.map(|()| true)
    }

    /// Opens a directory, name by name, and creates the missing ones with the permissions that they had.
    fn parents(&mut self, names: &[&[u8]]) -> io::Result<Arc<Handle>> {
        let mut dir = Arc::new(disk::open_dir(&self.root, b".")?);
        for (nth, name) in names.iter().enumerate() {
            let opened = match open_dir(&dir, name) {
                Ok(opened) => opened,
                Err(error) => {
                    match accessed(&dir, || disk::stat(&dir, name)) {
                        Ok(stat) if stat.file_type() == FileType::Directory => return Err(error),
                        Ok(_) => self.move_away(&dir, name, &names[..nth])?,
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                    accessed(&dir, || disk::create_dir(&dir, name))?;
                    self.undo.push(UndoStep::RemoveDir { dir: dir.clone(), name: name.to_vec() });
                    let opened = open_dir(&dir, name)?;
                    if let Some((_, Some(known))) = self.before.entry(&names[..=nth]) {
                        disk::set_mode(&opened, known.own.mode & 0o7777)?;
                    }
                    opened
                }
            };
            dir = Arc::new(opened);
        }
        Ok(dir)
    }

    /// Moves what has a name in a directory aside.
    fn move_away(&mut self, dir: &Arc<Handle>, name: &[u8], parents: &[&[u8]]) -> io::Result<()> {
        let aside = move_entry(dir, name, self.aside, parents)?;
        self.undo.push(UndoStep::MoveBack { dir: dir.clone(), name: name.to_vec(), aside });
        Ok(())
    }

    /// Undoes all changes, and returns the last error of those that could not be undone.
    fn undo(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        while let Some(step) = self.undo.pop() {
            let undone = match &step {
                UndoStep::MoveBack { dir, name, aside: (from, at) } => {
                    accessed(dir, || disk::rename((from, at), (dir, name)))
                }
                UndoStep::RemoveDir { dir, name } => accessed(dir, || disk::remove_dir(dir, name)),
            };
            result = undone.and(result);
        }
        result
    }
}

/// Gives a regular file permissions.
fn set_mode(dir: &Handle, name: &[u8], mode: u32) -> io::Result<()> {
    disk::set_mode(&disk::open_file(dir, name)?, mode & 0o7777)
}

/// Writes a file or a link under a temporary name.
fn write(staging: &Handle, name: &[u8], backup: &Backup, content: &[u8]) -> io::Result<()> {
    match backup.mode() {
        Some(Mode::Link) => disk::create_link(staging, name, content),
        Some(_) => {
            let file = disk::create_file(staging, name, false)?;
            // Before the content: a private file is at no time readable by others.
            disk::set_mode(&file, backup.stat.mode & 0o777)?;
            disk::write_all(&file, content)?;
            disk::set_mode(&file, backup.stat.mode & 0o7777)
        }
        None => Err(io::ErrorKind::InvalidInput.into()),
    }
}

impl Backup {
    /// Returns the backup of a file that has a version.
    fn of_version(entry: &DirEntry) -> Option<Self> {
        let is_file = matches!(entry.kind, EntryKind::Tracked(mode) if mode != Mode::Directory);
        is_file.then_some(Backup { stat: entry.stat, racy: entry.racy, content: BackupContent::Version(entry.id) })
    }
}

impl EntryKind {
    pub(crate) fn untracked_reason(self) -> Option<UntrackedReason> {
        match self {
            EntryKind::Outdated(_, reason) | EntryKind::Untracked(reason) => Some(reason),
            EntryKind::Tracked(_) => None,
        }
    }
}

impl Snapshot {
    /// Returns the entry at a path, with its contents if it is a directory that was read.
    pub(crate) fn entry(&self, names: &[&[u8]]) -> Option<(&DirEntry, Option<&Arc<Dir>>)> {
        let (last, above) = names.split_last()?;
        let dir = above.iter().try_fold(&self.dir, |dir, name| dir.child(dir.find(name)?))?;
        let entry = dir.find(last)?;
        Some((entry, dir.child(entry)))
    }
}

#[cfg(all(test, unix))]
mod tests;
