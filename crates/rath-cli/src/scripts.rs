//! The scripts that sessions used. Their paths are kept beside the store, since a model would read what is on the record.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rath::record::{BranchId, Step};
use rath::{Session, Store};

use crate::output;
use crate::sessions::opened_stores;

/// Keeps the path of the script that a stored session uses now. A script that cannot be kept is named again by the user.
pub(crate) fn keep(session: &Session, model: &str) {
    let Some(script) = model.strip_prefix("script:") else { return };
    let Some(list) = session.store().and_then(list_of) else { return };
    let path = Path::new(script).canonicalize().ok().and_then(|path| Some(path.to_str()?.to_owned()));
    // A secret in the path is kept nowhere.
    let Some(path) = path.filter(|path| !output::has_secrets(path)) else { return };
    let mut entries = read(&list).unwrap_or_default();
    let id = session.id().to_string();
    if entries.iter().rev().find(|entry| entry.0 == id).is_some_and(|entry| entry.1 == path) {
        return;
    }
    entries.retain(|entry| entry.0 != id);
    entries.push((id, path));
    if let Err(error) = write(&list, &entries) {
        output::warning(&format!("the path of the script is not kept in {}: {error}", output::path(&list)));
    }
}

/// Returns the script that a session used last, or the one that it was forked from, if it is still there.
pub(crate) fn of_session(session: &Session) -> Option<PathBuf> {
    let lists: Vec<_> = opened_stores().iter().filter_map(list_of).collect();
    let entries: Vec<_> = lists.iter().filter_map(|list| read(list).ok()).flatten().collect();
    if entries.is_empty() {
        return None;
    }
    let of_branch = |branch: BranchId| {
        let id = branch.to_string();
        entries.iter().rev().find(|entry| entry.0 == id).map(|entry| PathBuf::from(&entry.1))
    };
    let branches = session.as_record().newest_first().map(|step: &Step| step.stamp().branch);
    let mut last = None;
    let mut changes =
        [session.id()].into_iter().chain(branches).filter(|branch| last.replace(*branch) != Some(*branch));
    changes.find_map(of_branch).filter(|path| path.is_file())
}

/// Returns the file with the paths: beside the file or the directory of the store.
fn list_of(store: &Store) -> Option<PathBuf> {
    let store = store.path()?;
    let name = format!("{}.scripts", store.file_name()?.to_str()?);
    Some(store.with_file_name(name))
}

/// Reads the entries of a file, oldest first: the id of a session, and the path of its script.
fn read(list: &Path) -> io::Result<Vec<(String, String)>> {
    // A pipe would wait for a writer.
    if !fs::symlink_metadata(list)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let text = fs::read_to_string(list)?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Writes the file anew. It takes the place of what is there, so that no link leads to another file.
fn write(list: &Path, entries: &[(String, String)]) -> io::Result<()> {
    let lines: Vec<_> = entries.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    let new = list.with_extension(format!("scripts.{}", std::process::id()));
    // What another process left there, or planted, is not written to.
    let _ = fs::remove_file(&new);
    fs::File::create_new(&new)?.write_all((lines.join("\n") + "\n").as_bytes())?;
    fs::rename(&new, list).inspect_err(|_| _ = fs::remove_file(&new))
}
