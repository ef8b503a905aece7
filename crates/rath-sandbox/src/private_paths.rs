//! The private files of a home directory. They are kept from commands and from file tools if the home directory is in the
//! workspace.

#[cfg(unix)]
#[path = "private_paths/unix.rs"]
mod system;
#[cfg(not(unix))]
#[path = "private_paths/other.rs"]
mod system;

use std::path::{Path, PathBuf};

use self::system::account_home;
use crate::mount_table::MountTable;

/// Directories with keys, passwords and mail, relative to the home directory.
pub(crate) const PRIVATE_HOME_DIRS: [&str; 12] = [
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".config",
    ".docker",
    ".kube",
    ".local/share/keyrings",
    ".local/share/rath",
    ".mozilla",
    ".thunderbird",
    ".password-store",
];

/// Files with passwords, tokens and histories, relative to the home directory.
pub(crate) const PRIVATE_HOME_FILES: [&str; 10] = [
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".pgpass",
];

/// Returns the private files and directories of a home directory.
pub(crate) fn private_paths_of(home: &Path) -> impl Iterator<Item = PathBuf> {
    PRIVATE_HOME_DIRS.into_iter().chain(PRIVATE_HOME_FILES).map(|name| home.join(name))
}

/// Returns the paths below a directory that tools neither read nor write, relative to it: the private files of the home directory, and
/// the user's key and configuration of rath, wherever they are.
///
/// The paths need not exist. One that is a link, or that is mounted a second time, is there twice if both places are in the directory.
///
/// ```
/// use std::path::Path;
///
/// let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
/// if let Some(home) = home {
///     assert!(rath_sandbox::private_paths_in(&home).iter().any(|path| path == Path::new(".ssh")));
/// }
/// ```
pub fn private_paths_in(directory: &Path) -> Vec<PathBuf> {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mounts = MountTable::read().unwrap_or_default();
    let homes = homes_at(&mounts, home_directories());
    let mut paths = Vec::new();
    for path in homes.iter().flat_map(|home| private_paths_of(home)).chain(own_directories()) {
        for path in mounts.places_with_parts(&resolved(&path)).into_iter().chain([path]) {
            if let Ok(inside) = path.strip_prefix(&directory)
                && !inside.as_os_str().is_empty()
                && !paths.iter().any(|known| known == inside)
            {
                paths.push(inside.to_owned());
            }
        }
    }
    paths
}

/// Returns the home directories of the user, without links: the one that `HOME` names, and the one of the account. They may differ, as
/// under `sudo`, and `HOME` may be empty.
///
/// ```
/// let homes = rath_sandbox::home_directories();
/// assert!(homes.iter().all(|home| home.is_absolute()));
/// ```
pub fn home_directories() -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = Vec::new();
    for home in named_homes().map(|home| resolved(&home)) {
        if !homes.contains(&home) {
            homes.push(home);
        }
    }
    homes
}

/// Returns home directories at every path where a mount shows them.
pub(crate) fn homes_at(mounts: &MountTable, homes: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut all = homes.clone();
    for place in homes.iter().flat_map(|home| mounts.places(home)) {
        if !all.contains(&place) {
            all.push(place);
        }
    }
    all
}

/// Directories of the system. Accounts of services have them as their home, and there is nothing private in them.
const SYSTEM_DIRS: [&str; 9] = ["/bin", "/sbin", "/lib", "/usr", "/etc", "/dev", "/proc", "/sys", "/nix"];

fn is_of_system(home: &Path) -> bool {
    SYSTEM_DIRS.iter().any(|system| home.starts_with(system))
}

/// Returns the home directories of the user as they are named.
pub(crate) fn named_homes() -> impl Iterator<Item = PathBuf> {
    let account = account_home().filter(|home| !is_of_system(home));
    std::env::home_dir().into_iter().chain(account).filter(|home| home.is_absolute())
}

/// Returns a path without links, as far as it is there.
///
/// ```
/// use std::path::Path;
///
/// let here = std::env::current_dir()?.canonicalize()?;
/// assert_eq!(rath_sandbox::resolved(&here.join("./missing")), here.join("missing"));
/// assert_eq!(rath_sandbox::resolved(Path::new("/..")), Path::new("/"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn resolved(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match found.map(|(above, found)| (found, path.strip_prefix(above))) {
        // A path with a slash at its end is none of a file.
        Some((found, Ok(missing))) => found.join(missing).components().collect(),
        _ => path.to_owned(),
    }
}

/// Returns the directories of the user's key and configuration as they are named, if they are not in their usual places in the home
/// directory.
pub(crate) fn own_directories() -> impl Iterator<Item = PathBuf> {
    let named = ["XDG_DATA_HOME", "XDG_CONFIG_HOME"].into_iter().filter_map(std::env::var_os);
    named.map(|named| PathBuf::from(named).join("rath")).filter(|path| path.is_absolute())
}

/// Returns the directory of the user's key, which is hidden from commands wherever it is; none if the user has no home directory.
///
/// ```
/// if let Some(directory) = rath_sandbox::own_data_directory() {
///     assert!(directory.ends_with("rath"));
/// }
/// ```
pub fn own_data_directory() -> Option<PathBuf> {
    let variable = if cfg!(windows) { "LOCALAPPDATA" } else { "XDG_DATA_HOME" };
    let named = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    // Without a variable the system knows the home directory of the user. One that does not exist is not created.
    let home = || std::env::home_dir().filter(|home| home.is_absolute() && home.is_dir());
    named.or_else(|| home().map(|home| home.join(".local/share"))).map(|data| data.join("rath"))
}
