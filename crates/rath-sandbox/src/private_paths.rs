//! The private files of a home directory. They are kept from commands and from file tools if the home directory is in the
//! workspace.

use std::ffi::OsString;
use std::path::Path;

/// Files and directories with keys, passwords, mail and histories, relative to the home directory.
pub(crate) const PRIVATE_HOME_PATHS: [&str; 22] = [
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".config",
    ".docker",
    ".kube",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".local/share/keyrings",
    ".local/share/rath",
    ".mozilla",
    ".thunderbird",
    ".password-store",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".pgpass",
];

/// Returns the private paths below a directory, each as the names that lead to it.
pub(crate) fn private_paths_in(directory: &Path) -> Vec<Vec<OsString>> {
    let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    let Some(inside) = home.as_ref().and_then(|home| home.strip_prefix(directory).ok()) else { return Vec::new() };
    let paths = PRIVATE_HOME_PATHS.iter().map(|path| inside.join(path));
    paths.map(|path| path.iter().map(|name| name.to_owned()).collect()).collect()
}
