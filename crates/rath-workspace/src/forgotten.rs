//! The files whose content was removed on purpose, listed in the file `forgotten` of a folder of objects.
//!
//! Trees still name such a file. Without the list, its missing content would be taken for damage. A line holds the id of the
//! blob, the size of its content and the digest of its content, so that differences between trees are known without it.
//!
//! The list forbids nothing: a file that has the same content again is stored again, and is found before the list is read. Before
//! that, a line `stored` with the id says so: from then on it is damage if the content is missing. Content that a later line removes again is not to come back from an old pack; content
//! that was stored again is.
//!
//! A line `absent` with an id stands for an object that was not in the copy of a session that its directory was made from. It is no
//! damage either, until a line `stored` says that the object is here.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::change::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::objects::{self, Objects, io_error};
use crate::regular_file::read_at_most;
use crate::tree::ObjectId;

/// A file whose content was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForgottenFile {
    /// The size of the content, in bytes.
    pub(crate) size: u64,
    pub(crate) digest: Digest,
}

/// The objects that are not stored, and are known not to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AbsenceList {
    /// The files whose content was removed, by blob.
    pub(crate) forgotten: HashMap<ObjectId, ForgottenFile>,
    /// The files whose content was removed and stored again since, or was about to be. That one of them is missing is damage.
    pub(crate) stored_again: HashMap<ObjectId, ForgottenFile>,
    /// The objects that were never here.
    pub(crate) absent: HashSet<ObjectId>,
}

/// The name of the list.
pub(crate) const LIST_FILE: &str = "forgotten";

/// The start of a line with the id of a content that is stored again.
const STORED_AGAIN: &str = "stored ";
/// The start of a line with the id of an object that was never here.
const ABSENT: &str = "absent ";

impl Objects {
    /// Returns the files whose content was removed and not stored again, by blob.
    pub(crate) fn forgotten_files(&self) -> HashMap<ObjectId, ForgottenFile> {
        self.absences().forgotten
    }

    /// Returns the objects that are known not to be stored.
    pub(crate) fn absences(&self) -> AbsenceList {
        let bytes = read_at_most(&list_path(self.folder()), objects::MAX_INDEX_BYTES).unwrap_or_default();
        let mut list = AbsenceList::default();
        let id_after = |line: &str, start| line.strip_prefix(start).and_then(ObjectId::from_hex);
        for line in String::from_utf8_lossy(&bytes).lines() {
            if let Some(id) = id_after(line, STORED_AGAIN) {
                list.stored_again.extend(list.forgotten.remove_entry(&id));
                list.absent.remove(&id);
            } else if let Some(id) = id_after(line, ABSENT) {
                list.absent.insert(id);
            } else if let Some((id, file)) = parse_line(line) {
                list.stored_again.remove(&id);
                list.forgotten.insert(id, file);
            }
        }
        list
    }

    /// Adds objects to the list that are not in the copy of a session which this folder gets, durably.
    pub(crate) fn add_absent(&self, ids: impl IntoIterator<Item = ObjectId>) -> Result<()> {
        self.append_lines(ids.into_iter().map(|id| format!("{ABSENT}{id}\n")).collect())
    }

    /// Adds files to the list, durably.
    pub(crate) fn add_forgotten(&self, files: &[(ObjectId, ForgottenFile)]) -> Result<()> {
        self.append_lines(files.iter().map(|(id, file)| format!("{id} {} {}\n", file.size, file.digest)).collect())
    }

    /// Notes durably which of some objects are about to be stored that the list has.
    pub(crate) fn note_stored_again(&self, ids: &HashSet<ObjectId>) -> Result<()> {
        let AbsenceList { forgotten, absent, .. } = self.absences();
        let again: HashSet<_> = forgotten.into_keys().chain(absent).filter(|id| ids.contains(id)).collect();
        self.append_lines(again.iter().map(|id| format!("{STORED_AGAIN}{id}\n")).collect())
    }

    /// Appends lines to the list, durably.
    ///
    /// Two processes may append at the same time, so all lines are appended in one write. A line that a crash cut off is not
    /// continued by the next one.
    fn append_lines(&self, lines: String) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let lines = format!("\n{lines}");
        let path = list_path(self.folder());
        let add = || -> io::Result<()> {
            let mut file = File::options().append(true).create(true).open(&path)?;
            file.write_all(lines.as_bytes())?;
            file.sync_all()?;
            File::open(self.folder())?.sync_all()
        };
        add().map_err(|error| io_error(&path, "write to", error))
    }

    /// Fails if the content of one of some files was removed. Called before the first file is written, so that none is written
    /// then.
    pub(crate) fn check_remembered<'p>(
        &self,
        files: impl IntoIterator<Item = (std::borrow::Cow<'p, str>, ObjectId)>,
    ) -> Result<()> {
        let forgotten = self.forgotten_files();
        if forgotten.is_empty() {
            return Ok(());
        }
        let is_forgotten = |id: &ObjectId| forgotten.contains_key(id) && !self.contains(*id);
        match files.into_iter().find(|(_, id)| is_forgotten(id)) {
            Some((path, _)) => Err(forgotten_file(&path)),
            None => Ok(()),
        }
    }
}

/// Returns the error for a file whose content was removed.
pub(crate) fn forgotten_file(path: &str) -> Error {
    Error::new(ErrorKind::Forgotten, format_args!("the content of `{path}` was removed with `rath forget`"))
}

/// Returns the error for content that was removed, of a file whose path is not known.
pub(crate) fn forgotten_content() -> Error {
    Error::new(ErrorKind::Forgotten, "the content of this file was removed with `rath forget`")
}

/// Adds the path of a file to an error that says that its content was removed.
pub(crate) fn with_path(error: Error, path: &str) -> Error {
    if error.kind() == ErrorKind::Forgotten { forgotten_file(path) } else { error }
}

fn list_path(folder: &Path) -> PathBuf {
    folder.join(LIST_FILE)
}

fn parse_line(line: &str) -> Option<(ObjectId, ForgottenFile)> {
    let mut words = line.split(' ');
    let (id, size, digest) = (words.next()?, words.next()?, words.next()?);
    let digest = parse_digest(digest)?;
    Some((ObjectId::from_hex(id)?, ForgottenFile { size: size.parse().ok()?, digest }))
}

fn parse_digest(hex: &str) -> Option<Digest> {
    let mut digest = [0; 32];
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    for (nth, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * nth..2 * nth + 2], 16).ok()?;
    }
    Some(Digest(digest))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_a_crash_cut_off_is_continued() {
        let temp = rath_test_support::temp_dir();
        let objects = Objects::open(&temp.path().join("versions")).expect("versions");
        let file = |size| ForgottenFile { size, digest: Digest::compute(b"x") };
        let ids = [ObjectId([1; 20]), ObjectId([2; 20])];
        objects.add_forgotten(&[(ids[0], file(7))]).expect("written");
        let path = list_path(objects.folder());
        let mut bytes = std::fs::read(&path).expect("a list");
        bytes.extend_from_slice(b"0303030303 4");
        std::fs::write(&path, bytes).expect("written");
        objects.add_forgotten(&[(ids[1], file(9))]).expect("written");
        assert_eq!(objects.forgotten_files(), HashMap::from([(ids[0], file(7)), (ids[1], file(9))]));
    }
}
