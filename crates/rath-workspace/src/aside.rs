//! Moving files of a workspace aside, beneath its directory and without following links.

use std::io;
use std::path::Path;

use crate::disk::{self, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::rename::{directory, last_name};
use crate::{Workspace, paths};

/// The permissions of a file that was moved aside, to be given to the version that takes its place.
///
/// Returned by [`Workspace::move_aside`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions(u32);

impl Workspace {
    /// Moves a file or a directory of the workspace below another directory, and returns its permissions. Returns none if there
    /// is nothing at the path, or if a link is on the way to it.
    ///
    /// Directories that are empty after that are removed. A directory that the user may not write in is made writable for the
    /// moment.
    pub fn move_aside(&self, path: &str, aside: &Path) -> Result<Option<Permissions>> {
        let failed = |error: io::Error| Error::new(ErrorKind::Io, format_args!("cannot move `{path}` aside: {error}"));
        let bytes = paths::parse_path(path)?;
        let names: Vec<&[u8]> = bytes.split(|byte| *byte == b'/').collect();
        let Some((name, parents)) = names.split_last() else { return Ok(None) };
        let mut handles = vec![self.open_root()?];
        for (nth, parent) in parents.iter().enumerate() {
            match open_dir(&handles[nth], parent) {
                Ok(handle) => handles.push(handle),
                Err(_) => return Ok(None),
            }
        }
        let directory = &handles[parents.len()];
        let Ok(stat) = disk::stat(directory, name) else { return Ok(None) };
        let target = create_path(aside, parents).map_err(failed)?;
        let moved = disk::rename((directory, name), (&target, name)).or_else(|error| match disk::is_denied(&error) {
            true => writable_for(directory, || disk::rename((directory, name), (&target, name))),
            false => Err(error),
        });
        moved.map_err(failed)?;
        // From the innermost out, up to the first directory that is not empty.
        for (nth, parent) in parents.iter().enumerate().rev() {
            if disk::remove_dir(&handles[nth], parent).is_err() {
                break;
            }
        }
        Ok(Some(Permissions(stat.mode & 0o7777)))
    }

    /// Lets the user list a directory of the workspace whose permissions do not allow that. Returns true if it was one, and can
    /// be listed now.
    pub fn make_listable(&self, path: &str) -> Result<bool> {
        let path = paths::parse_path(path)?;
        let Ok(parent) = disk::open_path(&self.open_root()?, directory(&path)) else { return Ok(false) };
        let name = last_name(&path);
        let is_denied = disk::open_dir(&parent, name).is_err_and(|error| disk::is_denied(&error));
        Ok(is_denied && disk::make_accessible(&parent, name).is_ok() && disk::open_dir(&parent, name).is_ok())
    }

    /// Gives a regular file of the workspace these permissions, if it is there.
    pub fn set_permissions(&self, path: &str, Permissions(mode): Permissions) -> Result<()> {
        let path = paths::parse_path(path)?;
        let parent = disk::open_path(&self.open_root()?, directory(&path));
        if let Ok(file) = parent.and_then(|parent| disk::open_file(&parent, last_name(&path))) {
            let _ = disk::set_mode(&file, mode);
        }
        Ok(())
    }

    /// Creates an empty directory of the workspace, with those that it lies in. Does nothing if a link is in its way.
    pub fn create_directory(&self, path: &str) -> Result<()> {
        let bytes = paths::parse_path(path)?;
        let mut directory = self.open_root()?;
        for name in bytes.split(|byte| *byte == b'/') {
            let _ = disk::create_dir(&directory, name);
            match disk::open_dir(&directory, name) {
                Ok(below) => directory = below,
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }
}

/// Opens a directory, also one that the user may not enter now but owns.
fn open_dir(above: &Handle, name: &[u8]) -> io::Result<Handle> {
    disk::open_dir(above, name).or_else(|error| match disk::is_denied(&error) {
        true => {
            disk::make_accessible(above, name)?;
            disk::open_dir(above, name)
        }
        false => Err(error),
    })
}

/// Runs work on a directory that is writable meanwhile.
fn writable_for<T>(directory: &Handle, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mode = disk::stat_open(directory)?.mode & 0o7777;
    disk::set_mode(directory, mode | 0o700)?;
    let done = work();
    let _ = disk::set_mode(directory, mode);
    done
}

/// Creates directories below another, and opens the last.
fn create_path(top: &Path, names: &[&[u8]]) -> io::Result<Handle> {
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
