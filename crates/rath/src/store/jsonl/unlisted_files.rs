//! Session files below the directory of a store that its list does not have: files that were renamed, copied or moved there.
//!
//! By their content they are session files, and they may be the last of their sessions. So nothing is deleted that they need.

use std::ffi::OsStr;
use std::io::{self, ErrorKind as IoKind, Read as _};
use std::path::Path;

use rath_record::codec::{FileContents, ROW_START};
use rath_record::{BranchId, StepId};
use rath_workspace::open_regular_file;

use super::super::rath_dir::NO_STORES;
use super::super::{Damage, UnlistedFile, shell_word};
use super::Jsonl;
use super::id_file::ID_FILE;
use super::step_finder::{session_file, session_named};
use super::sweep::session_of_temporary;
use crate::sandbox::RATH_DIR;
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The bytes of a file called `.jsonl` in which a row is looked for: the first rows may be damaged.
const MAX_SEARCHED_BYTES: u64 = 1 << 16;

/// Returns true if a directory, or one below it, has a session file. Blocks.
pub(crate) fn has_session_files(folder: &Path) -> io::Result<bool> {
    let mut names = std::fs::read_dir(folder)?.flatten().map(|entry| entry.file_name());
    Ok(names.any(|name| session_named(&name).is_some()) || !find(folder)?.is_empty())
}

impl Jsonl {
    /// Returns the session files that are not in the list.
    pub(super) fn find_unlisted(&self) -> Result<Vec<UnlistedFile>> {
        find(&self.folder).map_err(|error| self.io_error("read", error))
    }

    /// Describes the files that have a wrong name or place.
    pub(super) fn misplaced(&self) -> Result<Vec<Damage>> {
        let mut misplaced = Vec::new();
        for UnlistedFile { path, .. } in self.find_unlisted()?.into_iter().filter(|file| file.is_misplaced) {
            let what = match self.read_unlisted(&path) {
                Err(_) if !path.exists() => continue,
                Err(error) => error.message(),
                Ok((contents, _)) => match session_in(&path, &contents) {
                    Some(session) => {
                        format!(
                            "it is not listed and holds session {}; {}",
                            session.short(),
                            self.advice(&path, &contents)
                        )
                    }
                    None => "it holds no step of a session".to_owned(),
                },
            };
            misplaced.push(Damage { place: self.name_below(&path), step: None, what });
        }
        Ok(misplaced)
    }

    /// Returns those of some sessions that files outside of the list need, each with the reason to keep it. A file that cannot be
    /// read may need all of them.
    pub(super) fn needed_by_unlisted(&self, families: &[BranchId]) -> Result<Vec<(BranchId, StoreError)>> {
        let mut needed = Vec::new();
        for UnlistedFile { path, .. } in self.find_unlisted()? {
            let name = self.name_below(&path);
            match self.read_unlisted(&path) {
                Err(_) if !path.exists() => {}
                Err(error) => needed.extend(families.iter().map(|family| {
                    let message = format!("{name} may need steps of the session {}: {error}", family.short());
                    (*family, StoreError::new(StoreErrorKind::Damaged, message).with_hint(remove_or_move(&path)))
                })),
                Ok((contents, needs)) => {
                    // A copy of a whole store has its own copies of the sessions.
                    let is_beside = |family| path.parent().is_some_and(|folder| session_file(folder, family).exists());
                    let own = families.iter().filter(|family| needs.contains(family) && !is_beside(**family));
                    needed.extend(own.map(|family| {
                        let message = format!("{name} needs steps of the session {}", family.short());
                        let error = StoreError::new(StoreErrorKind::Damaged, message);
                        (*family, error.with_hint(self.advice(&path, &contents)))
                    }));
                }
            }
        }
        Ok(needed)
    }

    /// Returns the reasons why files outside of the list may have the text of a step.
    pub(super) fn copies_in_unlisted(&self, step: StepId) -> Result<Vec<StoreError>> {
        let mut copies = Vec::new();
        for UnlistedFile { path, .. } in self.find_unlisted()? {
            let name = self.name_below(&path);
            let message = match self.read_unlisted(&path) {
                Err(_) if !path.exists() => continue,
                Err(error) => format!("{name}: {error}"),
                Ok((contents, _)) => {
                    let has_text = contents.steps.iter().any(|found| found.id() == step && found.withheld().is_none());
                    if !has_text {
                        continue;
                    }
                    format!("{name} has the step, and is not in the list; {}", self.advice(&path, &contents))
                }
            };
            copies.push(StoreError::new(StoreErrorKind::Damaged, message));
        }
        Ok(copies)
    }

    /// Reads a file that is not in the list, and the sessions of whose steps it needs. Fails if it cannot be read as a whole.
    fn read_unlisted(&self, path: &Path) -> Result<(FileContents, Vec<BranchId>)> {
        let (contents, needs) = self.read_with_needs(path)?;
        match contents.report.damage.first() {
            None => Ok((contents, needs)),
            Some(damage) => {
                let message = format!("it is damaged, line {}: {}", damage.line, damage.fault);
                Err(StoreError::new(StoreErrorKind::Damaged, message))
            }
        }
    }

    /// Returns the advice for a file that is not in the list.
    fn advice(&self, path: &Path, contents: &FileContents) -> String {
        match session_in(path, contents).map(|session| self.path(session)) {
            Some(place) if !place.exists() => {
                let [path, place] = [path, &place].map(|path| shell_word(&path.display().to_string()));
                format!("`mv -n {path} {place}` puts it at its place")
            }
            _ => remove_or_move(path),
        }
    }

    /// Returns the name of a file below the directory of the store.
    fn name_below(&self, path: &Path) -> String {
        path.strip_prefix(&self.folder).unwrap_or(path).display().to_string()
    }
}

fn remove_or_move(path: &Path) -> String {
    format!("if you do not need {}, remove it, or move it out of the store", path.display())
}

/// Returns the session in a file: the one that its name begins with, or that of its first step.
fn session_in(path: &Path, contents: &FileContents) -> Option<BranchId> {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let named = name.get(..BranchId([0; 16]).to_string().len()).and_then(|id| id.parse().ok());
    let mut branches = contents.steps.iter().map(|step| step.stamp().branch);
    let first = branches.clone().next();
    named.filter(|named| branches.any(|branch| branch == *named)).or(first)
}

/// Finds the session files in a directory and below it, except those with the name of a session in the directory itself. What cannot
/// be read may be one.
fn find(folder: &Path) -> io::Result<Vec<UnlistedFile>> {
    let (mut found, mut directories) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(directory) = directories.pop() {
        let entries = std::fs::read_dir(&directory).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
        let entries = match entries {
            Err(error) if directory == folder => return Err(error),
            Err(error) if error.kind() == IoKind::NotFound => continue,
            Err(_) => {
                found.push(UnlistedFile { path: directory, is_misplaced: true });
                continue;
            }
            Ok(entries) => entries,
        };
        let is_own = directory == folder;
        let is_store = is_own || entries.iter().any(|entry| entry.file_name() == ID_FILE);
        for entry in entries {
            let (name, path) = (entry.file_name(), entry.path());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.extend(may_hold_sessions(&directory, &name).then_some(path));
                continue;
            }
            let has_name = is_store && session_named(&name).is_some();
            if !(is_own && has_name) && session_of_temporary(&name).is_none() && is_session_file(&path) {
                found.push(UnlistedFile { path, is_misplaced: !has_name });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// Returns false for the directories of a workspace that rath looks for stores in by other means, and for those with users' files.
fn may_hold_sessions(directory: &Path, name: &OsStr) -> bool {
    let is_in_rath_dir = directory.file_name().is_some_and(|name| name == RATH_DIR);
    name != RATH_DIR && !(is_in_rath_dir && NO_STORES.iter().any(|no_store| name == *no_store))
}

/// Returns true for a file that begins as session files of all versions do, and for one that cannot be read.
fn is_session_file(path: &Path) -> bool {
    let is_called_so = path.extension().is_some_and(|extension| extension == "jsonl");
    let length = if is_called_so { MAX_SEARCHED_BYTES } else { ROW_START.len() as u64 };
    let mut start = Vec::new();
    match open_regular_file(path).and_then(|file| file.take(length).read_to_end(&mut start)) {
        Ok(_) => memchr::memmem::find(&start, ROW_START.as_bytes()).is_some(),
        Err(_) => std::fs::metadata(path).is_ok_and(|facts| facts.is_file()),
    }
}
