//! The files that no command may see, at every place where a mount shows them.

use std::collections::BTreeSet;
use std::io::ErrorKind as ErrorKindIo;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::mounts::MountRequest;
use super::namespace::IfMissing;
use super::nested::NestedProjects;
use crate::error::{Error, ErrorKind, Result};
use crate::private_paths::{private_paths_of, resolved};

/// A file or a directory that no command may see, without links.
pub(super) struct HiddenPath {
    pub(super) path: PathBuf,
    pub(super) if_missing: IfMissing,
}

/// Files and directories of the machine with keys and passwords.
const SECRET_PATHS: [&str; 14] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/ssh",
    "/etc/krb5.keytab",
    "/etc/docker",
    "/etc/kubernetes",
    "/etc/NetworkManager/system-connections",
    "/sys/kernel/debug",
    "/sys/kernel/tracing",
];

/// The directory with the configuration of the machine.
const CONFIGURATION_DIR: &str = "/etc";
/// The most files of the configuration that are looked at.
const MAX_CONFIGURATION_FILES: usize = 200_000;

/// The most places at which a hidden path can be: each is a mount of every command.
const MAX_PLACES: usize = 1024;

/// Returns the files and directories that no command may see: private ones of the user and of the machine, those that the user hides, and
/// these sockets. Where another mount shows a `.rath` of the workspace, it is one of them.
pub(super) fn hidden_paths(request: &MountRequest<'_>, sockets: Vec<PathBuf>) -> Result<Vec<HiddenPath>> {
    // A private path in a directory that commands can write was created if it was missing.
    let private = private_home_paths(request).chain(request.own.iter().cloned()).map(|path| (path, IfMissing::Fail));
    let secret = SECRET_PATHS.iter().map(PathBuf::from).filter(|path| is_readable(path));
    let hidden = request.hidden.iter().map(|path| request.directory.join(path));
    let others = hidden.chain(secret).chain(root_only_paths(request)?).chain(sockets);
    let others = others.map(|path| (path, IfMissing::Skip));
    let mut all = Vec::new();
    for (path, if_missing) in private.chain(others) {
        let places = request.mounts.places_with_parts(&resolved(&path));
        if places.len() > MAX_PLACES {
            let message = format!("cannot hide `{}` at more than {MAX_PLACES} places", path.display());
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        all.extend(places.into_iter().map(|path| HiddenPath { path, if_missing }));
    }
    for (above, nested) in projects(request) {
        let nested = nested.rath.iter().map(|nested| above.join(&nested.path));
        for path in nested.chain([above.join(crate::RATH_DIR)]) {
            let others = request.mounts.places_with_parts(&path).into_iter().skip(1);
            all.extend(others.map(|path| HiddenPath { path, if_missing: IfMissing::Skip }));
        }
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for hidden in all.into_iter().filter(|hidden| seen.insert(hidden.path.clone())) {
        match hidden.path.metadata() {
            Ok(_) => found.push(hidden),
            Err(error) if [ErrorKindIo::NotFound, ErrorKindIo::NotADirectory].contains(&error.kind()) => {}
            // What the user cannot reach needs no cover, unless a command can change that.
            Err(_) if !is_in_writable(request, &hidden.path) => {}
            // It is in a directory that cannot be searched, and that is hidden as a whole.
            Err(_) if projects(request).any(|(above, nested)| nested.hides(above, &hidden.path)) => {}
            Err(error) => {
                let message = format!("cannot hide `{}` from commands: {error}", hidden.path.display());
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
        }
    }
    Ok(found)
}

/// Returns the directories that commands can write, with the projects in them.
fn projects<'a>(request: &'a MountRequest<'_>) -> impl Iterator<Item = (&'a Path, &'a NestedProjects)> {
    let outside = request.outside.iter().map(|(above, nested)| (&**above, nested));
    [(request.directory, request.nested)].into_iter().chain(outside)
}

fn is_in_writable(request: &MountRequest<'_>, path: &Path) -> bool {
    projects(request).any(|(above, _)| path.starts_with(above))
}

/// Returns the files and directories that stand above private paths which are missing, in a directory that commands can write. No
/// command can create the private path as long as they stay.
pub(super) fn kept_in_place(request: &MountRequest<'_>) -> BTreeSet<PathBuf> {
    let private = private_home_paths(request).chain(request.own.iter().cloned());
    let missing = private.filter(|path| is_in_writable(request, path) && path.symlink_metadata().is_err());
    let nearest = |path: PathBuf| path.ancestors().find(|above| above.symlink_metadata().is_ok()).map(Path::to_owned);
    missing.filter_map(nearest).filter(|path| is_in_writable(request, path)).collect()
}

/// Returns the private paths of the user and of the machine, without links. They need not exist.
pub(super) fn private_places(request: &MountRequest<'_>) -> Vec<PathBuf> {
    let private =
        private_home_paths(request).chain(SECRET_PATHS.iter().map(PathBuf::from)).chain(request.own.iter().cloned());
    private.flat_map(|path| request.mounts.places_with_parts(&resolved(&path))).collect()
}

/// Fails if a private path in a directory that commands can write is a link, or leads through one: a command could remove the link, and
/// put its own in its place.
pub(super) fn refuse_links(directory: &Path, private: &Path) -> Result<()> {
    let mut names = private.ancestors().take_while(|above| *above != directory);
    match names.find(|above| above.is_symlink()) {
        Some(link) => {
            let message = format!("cannot hide `{}` from commands: `{}` is a link", private.display(), link.display());
            Err(Error::new(ErrorKind::Config, message).with_hint("let commands write another directory"))
        }
        None => Ok(()),
    }
}

/// Returns the private files and directories of the home directory.
fn private_home_paths(request: &MountRequest<'_>) -> impl Iterator<Item = PathBuf> {
    request.homes.iter().flat_map(|home| private_paths_of(home))
}

/// Returns the files and directories of the machine's configuration that ordinary users cannot read, if this user is root: a command
/// must not read them just because rath runs as root. What the user shows, or lets commands write, is not among them.
fn root_only_paths(request: &MountRequest<'_>) -> Result<Vec<PathBuf>> {
    let (mut found, mut seen) = (Vec::new(), 0);
    let is_root = rustix::process::geteuid().is_root();
    let mut directories: Vec<_> = is_root.then(|| PathBuf::from(CONFIGURATION_DIR)).into_iter().collect();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MAX_CONFIGURATION_FILES {
                let message = format!("{CONFIGURATION_DIR} has more than {MAX_CONFIGURATION_FILES} files");
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            // Of the entry itself: what a link leads to counts where it is.
            let Ok(metadata) = entry.metadata() else { continue };
            let path = entry.path();
            let is_given = is_in_writable(request, &path) || request.shown.iter().any(|shown| path.starts_with(shown));
            let wanted = if metadata.is_dir() { 0o005 } else { 0o004 };
            if metadata.is_symlink() || is_given {
                continue;
            } else if metadata.mode() & wanted != wanted {
                found.push(path);
            } else if metadata.is_dir() {
                directories.push(path);
            }
        }
    }
    Ok(found)
}

/// Returns true if the user can read a file. One that the user cannot read needs no cover.
fn is_readable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok()
}

/// Returns the paths of listening sockets: a read-only file system does not prevent connecting to them.
pub(super) fn listening_sockets() -> Vec<PathBuf> {
    let list = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut sockets: Vec<_> = list
        .lines()
        .filter_map(|line| line.split_whitespace().nth(7))
        .filter(|path| path.starts_with('/'))
        .map(PathBuf::from)
        .collect();
    sockets.sort();
    sockets.dedup();
    sockets
}
