//! Updates of a directory: all its files become those of another tree, even if the process is killed meanwhile.
//!
//! Both trees are noted before the first file changes, and the note is removed when the record has the new tree. The next opening
//! that finds a note brings the files to the one of the two trees that is on the record. Changes of others meanwhile stay.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::PathBuf;

use rath_record::chunk::Tree;
use rath_workspace::{Objects, Workspace, read_at_most};

use super::versions::{self, Versions};
use super::{Error, Result};
use crate::error::ErrorKind;

/// The most bytes of a note.
const MAX_NOTE_BYTES: u64 = 1 << 10;

/// The note about the update of one directory.
pub(super) struct UpdateNote {
    path: PathBuf,
    /// Locked while an update of this process is not over.
    file: Option<File>,
}

impl UpdateNote {
    /// Returns the note of the directory that has this name among those of a session.
    pub(super) fn new(objects: &Objects, name: &str) -> Self {
        UpdateNote { path: objects.folder().join("updates").join(name), file: None }
    }

    /// Makes the files equal to `wanted`: those of the tree after the update, merged with changes of others. The note stays until
    /// [`remove`](UpdateNote::remove).
    pub(super) fn update(
        &mut self,
        workspace: &mut Workspace,
        before: &Tree,
        after: &Tree,
        wanted: &Tree,
    ) -> Result<()> {
        self.write(before, after).map_err(|error| {
            let message = format!("cannot write the note {}", self.path.display());
            Error::new(ErrorKind::Place, message).because(error)
        })?;
        let restored = versions::tree_id(wanted).and_then(|wanted| Ok(workspace.restore(wanted)?));
        if restored.is_err() {
            // The files are as they were.
            self.remove();
        }
        restored.map(drop)
    }

    fn write(&mut self, before: &Tree, after: &Tree) -> std::io::Result<()> {
        self.path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        let mut file = OpenOptions::new().create(true).write(true).truncate(false).open(&self.path)?;
        file.lock()?;
        file.set_len(0)?;
        file.write_all(format!("{} {}\n", before.0, after.0).as_bytes())?;
        self.file = Some(file);
        Ok(())
    }

    /// Removes the note: the record has the new tree.
    pub(super) fn remove(&mut self) {
        // If this fails, the next opening finds the files as the record says.
        let _ = std::fs::remove_file(&self.path);
        self.file = None;
    }

    /// Finishes an update that was interrupted, if the recorded tree is the new one, or undoes it, if that is the old one.
    pub(super) fn complete(&mut self, workspace: &mut Workspace, recorded: Option<&Tree>) -> Result<()> {
        let Ok(text) = read_at_most(&self.path, MAX_NOTE_BYTES) else { return Ok(()) };
        let is_locked = |file: File| matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        // The update of another process is not over.
        if self.file.is_none() && File::open(&self.path).is_ok_and(is_locked) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&text);
        if let Some((before, after)) = text.trim_end().split_once(' ') {
            let [before, after] = [before, after].map(|tree| Tree(tree.to_owned()));
            match recorded {
                Some(recorded) if *recorded == after => bring(workspace, &before, &after)?,
                Some(recorded) if *recorded == before => bring(workspace, &after, &before)?,
                _ => {}
            }
        }
        self.remove();
        Ok(())
    }
}

/// Brings files that are partly those of one tree to another tree, with the changes of others since.
fn bring(workspace: &mut Workspace, from: &Tree, to: &Tree) -> Result<()> {
    let found = versions::tree(workspace.snapshot()?.tree);
    if found == *to {
        return Ok(());
    }
    let (merged, conflicts) = Versions::from(workspace.objects().clone()).merge(from, to, &found)?;
    // With changes of others in the same files, all of them stay, and the next look records them.
    if conflicts.is_empty() {
        workspace.restore(versions::tree_id(&merged)?)?;
    }
    Ok(())
}
