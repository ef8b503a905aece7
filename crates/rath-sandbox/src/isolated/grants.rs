//! The files that a command can read and write where Landlock is the only wall.
//!
//! Landlock allows a directory with everything below it, and nothing can be taken out again. So a directory that holds
//! something protected is not allowed itself, but the other files and directories in it are. In particular, if the workspace
//! has a `.rath` or a `.git`, a command cannot create, rename or remove files in the workspace directory itself.

use std::path::{Path, PathBuf};

use super::GitAccess;
use super::hidden::{hidden_paths, kept_in_place};
use super::mounts::{DEVICES, MountRequest, hidden_dirs, visible_dirs};
use super::nested::NestedPath;
use crate::error::Result;

/// The files and directories that a command can reach, each with everything below it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Grants {
    pub(super) readable: Vec<PathBuf>,
    pub(super) writable: Vec<PathBuf>,
}

impl Grants {
    /// Computes what a command can reach. `temp` is its temporary directory.
    pub(super) fn new(request: &MountRequest<'_>, temp: &Path) -> Result<Self> {
        let outside: Vec<_> = request.outside.iter().map(|(path, _)| path.clone()).collect();
        // What no command may reach, wherever it is.
        let mut hidden: Vec<_> = hidden_paths(request, Vec::new())?.into_iter().map(|hidden| hidden.path).collect();
        let mut git: Vec<_> = kept_in_place(request).into_iter().collect();
        let others = request.outside.iter().map(|(path, nested)| (&**path, nested));
        for (above, nested) in [(request.directory, request.nested)].into_iter().chain(others) {
            let paths = |nested: &[NestedPath], first: &str| {
                let nested = nested.iter().map(|nested| above.join(&nested.path));
                nested.chain([above.join(first)]).collect::<Vec<_>>()
            };
            hidden.extend(canonical(paths(&nested.rath, crate::RATH_DIR)));
            if above != request.directory || request.git != GitAccess::Writable {
                git.extend(canonical(paths(&nested.git, ".git")));
                git.extend(canonical(nested.settings.iter().map(|setting| above.join(&setting.path))));
            }
        }
        let covers = hidden_dirs(request);
        let mut grants = Grants::default();
        let system = [Path::new("/dev"), request.directory, temp].map(Path::to_owned);
        // The directory of a branch is in the `.rath` of its project.
        let around = request.directory.ancestors().filter(|above| above.ends_with(crate::RATH_DIR)).map(Path::to_owned);
        // The directory of a fork is in the workspace that it is a fork of, too.
        let hidden_outside: Vec<_> = hidden.iter().chain(request.originals).cloned().collect();
        let except = hidden_outside.iter().chain(&covers).cloned().chain(system).chain(outside.clone()).chain(around);
        let elsewhere: Vec<_> = except.collect();
        add_around(Path::new("/"), &elsewhere, &mut grants.readable);
        for path in visible_dirs(request, &covers) {
            add_around(&path, &hidden_outside, &mut grants.readable);
        }
        let outside = outside.iter().map(|path| (path.as_path(), &hidden_outside));
        for (path, hidden) in [(request.directory, &hidden)].into_iter().chain(outside) {
            let protected: Vec<_> = hidden.iter().chain(&git).cloned().collect();
            add_around(path, hidden, &mut grants.readable);
            add_around(path, &protected, &mut grants.writable);
        }
        // It holds nothing of others, and lies in a directory that is hidden.
        grants.readable.push(temp.to_owned());
        grants.writable.push(temp.to_owned());
        for device in DEVICES.map(|name| Path::new("/dev").join(name)) {
            grants.readable.push(device.clone());
            grants.writable.push(device);
        }
        Ok(grants)
    }
}

/// Returns those of the paths that are there, without links.
fn canonical(paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    paths.into_iter().filter_map(|path| path.canonicalize().ok()).collect()
}

/// Adds the files and directories below a path, itself included, that neither are nor hold one of `except`.
fn add_around(path: &Path, except: &[PathBuf], grants: &mut Vec<PathBuf>) {
    if except.iter().any(|except| path.starts_with(except)) {
        return;
    }
    if !except.iter().any(|except| except.starts_with(path)) {
        return grants.push(path.to_owned());
    }
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        // A link leads to a path that is treated by itself.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            add_around(&entry.path(), except, grants);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_something_protected_is_taken_apart() {
        let folder = tempfile::tempdir().expect("a directory");
        for path in ["a/b/c", "a/b/.git", "a/d", ".rath"] {
            std::fs::create_dir_all(folder.path().join(path)).expect("a directory");
        }
        std::fs::write(folder.path().join("a/file"), "").expect("a file");
        std::os::unix::fs::symlink("a", folder.path().join("link")).expect("a link");
        let mut grants = Vec::new();
        let except = ["a/b/.git", ".rath"].map(|path| folder.path().join(path));
        add_around(folder.path(), &except, &mut grants);
        grants.sort();
        assert_eq!(grants, ["a/b/c", "a/d", "a/file"].map(|path| folder.path().join(path)));
    }
}
