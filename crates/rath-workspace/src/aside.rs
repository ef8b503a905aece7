//! Moving files of a workspace aside, beneath its directory and without following links.

use std::io;
use std::path::Path;

use crate::disk::{self, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::temporaries::unique_name;
use crate::{Snapshot, Workspace, paths};

impl Workspace {
    /// Moves a file or a directory of the workspace below another directory, which has to be on the same file system. Returns
    /// false if there is nothing at the path, or if a link is on the way to it.
    ///
    /// Directories that are empty after that and were not there in a snapshot are removed. A directory that the user may not
    /// write in is made writable for the moment.
    pub fn move_aside(&self, path: &str, before: &Snapshot, aside: &Path) -> Result<bool> {
        let bytes = paths::parse_path(path)?;
        let names: Vec<&[u8]> = bytes.split(|byte| *byte == b'/').collect();
        let root = self.open_root()?;
        move_names(root, &names, before, aside)
            .map_err(|error| Error::new(ErrorKind::Io, format_args!("cannot move `{path}` aside")).because(error))
    }

    /// Lets the user look at a path of the workspace, and list it if it is a directory, where the permissions of directories do not
    /// allow that. Returns true if permissions were changed.
    pub fn make_listable(&self, path: &str) -> Result<bool> {
        let bytes = paths::parse_path(path)?;
        let mut dir = self.open_root()?;
        let mut is_changed = false;
        for name in bytes.split(|byte| *byte == b'/') {
            // A directory can be listed, and not be entered.
            if disk::stat(&dir, name).is_err_and(|error| disk::is_denied(&error)) {
                let mode = disk::stat_open(&dir)?.mode & 0o7777;
                is_changed |= disk::set_mode(&dir, mode | 0o700).is_ok();
            }
            let is_denied = disk::open_dir(&dir, name).is_err_and(|error| disk::is_denied(&error));
            is_changed |= is_denied && disk::make_accessible(&dir, name).is_ok();
            match disk::open_dir(&dir, name) {
                Ok(below) => dir = below,
                Err(_) => break,
            }
        }
        Ok(is_changed)
    }

    /// Lets the user list, enter and write the directory of the workspace again, as far as that was allowed in a snapshot.
    pub fn restore_access(&self, before: &Snapshot) -> Result<()> {
        // In a directory that cannot be entered, `.` leads nowhere.
        let root = std::path::absolute(&self.root);
        root.and_then(|root| disk::add_mode(&root, before.dir.own.mode & 0o700)).map_err(|error| {
            let message = format!("cannot change the permissions of `{}`", self.root.display());
            Error::new(ErrorKind::Io, message).because(error)
        })
    }
}

/// Moves a path below a directory aside, and removes the directories that are empty and new then.
fn move_names(root: Handle, names: &[&[u8]], before: &Snapshot, aside: &Path) -> io::Result<bool> {
    let Some((name, parents)) = names.split_last() else { return Ok(false) };
    let mut handles = vec![root];
    for (nth, parent) in parents.iter().enumerate() {
        match open_dir(&handles[nth], parent) {
            Ok(handle) => handles.push(handle),
            Err(error) if disk::is_gone(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    let dir = &handles[parents.len()];
    match accessed(dir, || disk::stat(dir, name)) {
        Ok(_) => {}
        Err(error) if disk::is_gone(&error) => return Ok(false),
        Err(error) => return Err(error),
    }
    move_entry(dir, name, aside, parents)?;
    // From the innermost out, up to the first directory that is not empty or was there before.
    for (nth, parent) in parents.iter().enumerate().rev() {
        let was_there = before.entry(&parents[..=nth]).is_some();
        if was_there || accessed(&handles[nth], || disk::remove_dir(&handles[nth], parent)).is_err() {
            break;
        }
    }
    Ok(true)
}

/// Moves a name of a directory below `aside`, and returns its new place. Nothing that is there already is replaced.
pub(crate) fn move_entry(dir: &Handle, name: &[u8], aside: &Path, parents: &[&[u8]]) -> io::Result<(Handle, Vec<u8>)> {
    // What was moved before may have the same name, or be a file where a directory is needed.
    let mut target = create_path(aside, parents);
    if !target.as_ref().is_ok_and(|target| disk::stat(target, name).is_err_and(|error| disk::is_gone(&error))) {
        target = create_path(&aside.join(unique_name()), parents);
    }
    let target = target?;
    let rename = || disk::rename((dir, name), (&target, name));
    let moved = accessed(dir, rename).or_else(|error| match disk::is_denied(&error) {
        // A directory that is moved is written to as well.
        true => accessed(dir, || disk::make_accessible(dir, name).and_then(|()| rename())),
        false => Err(error),
    });
    moved.map(|()| (target, name.to_vec()))
}

/// Opens a directory, also one that the user may not enter now but owns.
pub(crate) fn open_dir(above: &Handle, name: &[u8]) -> io::Result<Handle> {
    accessed(above, || {
        disk::open_dir(above, name).or_else(|error| match disk::is_denied(&error) {
            true => {
                disk::make_accessible(above, name)?;
                disk::open_dir(above, name)
            }
            false => Err(error),
        })
    })
}

/// Does work in a directory. If the permissions of the directory do not allow the work, they are others meanwhile.
pub(crate) fn accessed<T>(directory: &Handle, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let denied = match work() {
        Err(error) if disk::is_denied(&error) => error,
        done => return done,
    };
    let mode = disk::stat_open(directory)?.mode & 0o7777;
    if mode & 0o700 == 0o700 || disk::set_mode(directory, mode | 0o700).is_err() {
        return Err(denied);
    }
    let done = work();
    let _ = disk::set_mode(directory, mode);
    done
}

/// Creates directories below another, and opens the last.
pub(crate) fn create_path(top: &Path, names: &[&[u8]]) -> io::Result<Handle> {
    std::fs::create_dir_all(top)?;
    let mut directory = disk::open_root(top)?;
    for name in names {
        match disk::create_dir(&directory, name) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => directory = disk::open_dir(&directory, name)?,
        }
    }
    Ok(directory)
}

#[cfg(all(test, unix))]
mod tests;
