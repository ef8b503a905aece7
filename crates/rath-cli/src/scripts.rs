//! The scripts that sessions used. Their paths are kept in the user's own directory: a model would read what is on the record, and
//! commands what is beside a store.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rath::Session;
use rath::record::{BranchId, Step};
use rath::sandbox::own_data_directory;

use crate::output;

/// The most bytes of a path.
const MAX_PATH_BYTES: u64 = 8_192;
/// The number of files that are looked at when one is written.
const MAX_FILES_TO_SWEEP: usize = 1_000;

/// Keeps the path of the script that a stored session uses now. A script that cannot be kept is named again by the user.
pub(crate) fn keep(session: &Session, model: &str) {
    let Some(script) = model.strip_prefix("script:") else { return };
    let is_stored = session.store().is_some_and(|store| store.path().is_some());
    let Some(file) = file_of(session.id()).filter(|_| is_stored) else { return };
    let path = Path::new(script).canonicalize().ok().and_then(|path| Some(path.to_str()?.to_owned()));
    // A secret in the path is kept nowhere.
    let path = path.filter(|path| !output::has_secrets(path));
    let result = match path {
        Some(path) if read(&file).as_deref() == Some(Path::new(&path)) => return,
        Some(path) => write(&file, &path),
        None => fs::remove_file(&file).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        }),
    };
    if let Err(error) = result {
        output::warning(&format!("the path of the script is not kept in {}: {error}", output::path(&file)));
    }
}

/// Returns the script that a session used last, or the one that it was forked from, if it is still there.
pub(crate) fn of_session(session: &Session) -> Option<PathBuf> {
    let branches = session.as_record().newest_first().map(|step: &Step| step.stamp().branch);
    let mut last = None;
    let mut changes =
        [session.id()].into_iter().chain(branches).filter(|branch| last.replace(*branch) != Some(*branch));
    changes.find_map(|branch| read(&file_of(branch)?)).filter(|path| path.is_file())
}

/// Returns the file with the path of a session's script.
fn file_of(session: BranchId) -> Option<PathBuf> {
    Some(own_data_directory()?.join("scripts").join(session.to_string()))
}

fn read(file: &Path) -> Option<PathBuf> {
    // A pipe would wait for a writer.
    let metadata = fs::symlink_metadata(file).ok()?;
    let is_path = metadata.is_file() && metadata.len() <= MAX_PATH_BYTES;
    if !is_path {
        return None;
    }
    fs::read_to_string(file).ok().map(PathBuf::from)
}

/// Writes a path anew, and removes those of scripts that are gone.
fn write(file: &Path, path: &str) -> io::Result<()> {
    let folder = file.parent().expect("a file in a folder");
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(folder)?.take(MAX_FILES_TO_SWEEP).filter_map(Result::ok) {
        // Another process writes to a file with an extension.
        let is_whole = entry.path().extension().is_none();
        if is_whole && read(&entry.path()).is_some_and(|script| !script.exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let new = file.with_extension(std::process::id().to_string());
    let _ = fs::remove_file(&new);
    fs::File::create_new(&new)?.write_all(path.as_bytes())?;
    fs::rename(&new, file).inspect_err(|_| _ = fs::remove_file(&new))
}
