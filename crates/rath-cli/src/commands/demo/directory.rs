//! The directory of the demo: a small project with a failing test, and beside it the store.

use std::fs;
use std::io::ErrorKind as IoErrorKind;
use std::path::{Path, PathBuf};

use super::uri;
use crate::output::{self, Failure};

/// The files of the project.
// In a sandbox without namespaces, commands create no files beside these: the file that one adds to is here.
const FILES: [(&str, &str); 6] = [
    ("README", include_str!("project/README")),
    ("CHANGES", include_str!("project/CHANGES")),
    ("split.sh", include_str!("project/split.sh")),
    ("test.sh", include_str!("project/test.sh")),
    ("endure.sh", include_str!("project/endure.sh")),
    ("model.jsonl", include_str!("project/model.jsonl")),
];

/// The name of the directory where the user names none.
const DEFAULT_NAME: &str = "rath-demo";
/// The number of names that are tried.
const MAX_NAMES: u32 = 1000;

/// The directory in which the demo runs.
pub(super) struct DemoDirectory {
    /// The absolute path, as it is recorded.
    path: PathBuf,
}

impl DemoDirectory {
    /// Makes the directory, which must not exist, and writes the project into it.
    pub(super) fn create(named: Option<&Path>) -> Result<Self, Failure> {
        let path = match named {
            Some(path) => make(path)?.then(|| path.to_owned()),
            None => make_default()?,
        };
        let Some(path) = path else {
            let shown = output::path(named.unwrap_or(Path::new(DEFAULT_NAME)));
            return Err(Failure::new(format!("{shown} exists"), "`rath demo --dir PATH` makes another directory"));
        };
        let directory = DemoDirectory::existing(&path)?;
        for (name, text) in FILES {
            fs::write(directory.path.join(name), text).map_err(|error| unusable(&path, &error))?;
        }
        Ok(directory)
    }

    /// Opens a directory that is there.
    pub(super) fn existing(path: &Path) -> Result<Self, Failure> {
        let path = path.canonicalize().map_err(|error| unusable(path, &error))?;
        Ok(DemoDirectory { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the URI of the store, the default one of the program in this directory.
    pub(super) fn store(&self) -> String {
        uri("sqlite", &self.path.join(".rath/rath.db"))
    }

    /// Returns the URI of the memory, the default one of the program in this directory.
    pub(super) fn memory(&self) -> String {
        uri("local", &self.path.join(".rath/memory"))
    }
}

/// Makes a directory. Returns false if there is something at its place.
fn make(path: &Path) -> Result<bool, Failure> {
    match fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == IoErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(unusable(path, &error)),
    }
}

/// Makes the directory with the first default name that is free.
fn make_default() -> Result<Option<PathBuf>, Failure> {
    for nth in 1..=MAX_NAMES {
        let name = if nth == 1 { DEFAULT_NAME.to_owned() } else { format!("{DEFAULT_NAME}-{nth}") };
        if make(Path::new(&name))? {
            return Ok(Some(name.into()));
        }
    }
    Ok(None)
}

fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    let message = format!("cannot make the directory {}: {error}", output::path(path));
    Failure::new(message, "`rath demo --dir PATH` makes one where you may write")
}

/// Returns the commands after which `rath ..` works in the directory.
pub(super) fn commands_to_enter(path: &Path) -> Vec<String> {
    let mut commands = vec![format!("cd {}", output::quote(&relative(path).display().to_string()))];
    // A program that was built here and not installed is not on the path.
    if let Some(folder) = folder_to_add() {
        commands.push(format!("export PATH=\"$PATH\":{}", output::quote(&folder.display().to_string())));
    }
    commands
}

/// Returns a path relative to the current directory, if it lies in there.
fn relative(path: &Path) -> &Path {
    let current = std::env::current_dir().and_then(|current| current.canonicalize()).unwrap_or_default();
    path.strip_prefix(current).unwrap_or(path)
}

/// Returns the folder of this program, unless the shell finds this program by its name.
fn folder_to_add() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.canonicalize().ok()?;
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let name = format!("rath{}", std::env::consts::EXE_SUFFIX);
    let found = std::env::split_paths(&paths).map(|folder| folder.join(&name)).find(|path| path.is_file());
    let is_found = found.and_then(|found| found.canonicalize().ok()).is_some_and(|found| found == program);
    if is_found { None } else { Some(program.parent()?.to_owned()) }
}
