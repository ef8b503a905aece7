//! The stores whose sessions name versions of the files in a directory, listed in `.rath/workspace/stores`.
//!
//! A store may be anywhere. Without the list, versions that a store elsewhere names would be taken for garbage. The list has the id of
//! each store: one that was lost must not be mistaken for another that was made at its place.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rath_record::lineage::Lineage;
use rath_workspace::{open_regular_file, read_at_most};
use serde::{Deserialize, Serialize};

use super::Result;
use crate::sandbox::RATH_DIR;
use crate::store::{Store, StoreId, has_session_files, rath_dir};
use crate::workspace::Objects;

/// The list of stores of a directory.
pub(crate) struct StoreList {
    path: PathBuf,
}

/// A line of a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum ListedStore {
    /// A store at a URI, whichever it is: older versions of rath wrote no ids.
    Any(String),
    /// The store at a URI with this id.
    WithId { store: String, id: StoreId },
}

/// The id of a store that is listed. The store is asked for it only if a directory lists the store: it may have to make one.
pub(crate) type StoreIdResult = Result<Option<StoreId>>;

impl ListedStore {
    pub(crate) fn new(uri: String, id: Option<StoreId>) -> Self {
        match id {
            Some(id) => ListedStore::WithId { store: uri, id },
            None => ListedStore::Any(uri),
        }
    }

    /// Returns the URI, as the list of a directory has it.
    pub(crate) fn uri(&self, root: &Path) -> StoreUri {
        match self {
            ListedStore::Any(uri) | ListedStore::WithId { store: uri, .. } => StoreUri::from_list(uri, root),
        }
    }

    /// Returns the id of the store; none if it may be any.
    pub(crate) fn id(&self) -> Option<&StoreId> {
        match self {
            ListedStore::Any(_) => None,
            ListedStore::WithId { id, .. } => Some(id),
        }
    }
}

/// The URI of a store that outlives the process, with an absolute path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoreUri {
    scheme: String,
    rest: StoreTarget,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum StoreTarget {
    Path(PathBuf),
    /// The rest of the URI, for a store that is not on this machine.
    Other(String),
}

/// The most bytes of a list that are read.
const MAX_LIST_BYTES: u64 = 1 << 20;

impl StoreUri {
    /// Returns the URI of a store; none if the store ends with the process.
    pub(crate) fn of(store: &Store) -> Option<Self> {
        let (scheme, rest) = store.uri().split_once(':')?;
        let rest = match store.path() {
            Some(path) => StoreTarget::Path(absolute(path)),
            None => StoreTarget::Other(rest.to_owned()),
        };
        store.is_lasting().then(|| StoreUri { scheme: scheme.to_owned(), rest })
    }

    /// Returns the URI of a session file.
    pub(crate) fn of_file(path: &Path) -> Self {
        StoreUri { scheme: "file".to_owned(), rest: StoreTarget::Path(absolute(path)) }
    }

    /// Returns the id of a session file, by which it is told from the file of another session.
    pub(crate) fn file_id(lineage: &Lineage) -> Option<StoreId> {
        lineage.walk().first().map(|step| StoreId::new(step.stamp().branch.to_string()))
    }

    /// Returns the URI that a list has: a path in the directory of the list is relative, so the directory can be moved.
    pub(crate) fn within(&self, root: &Path) -> String {
        let rest = match &self.rest {
            StoreTarget::Path(path) => path.strip_prefix(absolute(root)).unwrap_or(path).display().to_string(),
            StoreTarget::Other(rest) => rest.clone(),
        };
        format!("{}:{rest}", self.scheme)
    }

    /// Returns the URI that the list of a directory has.
    pub(crate) fn from_list(uri: &str, root: &Path) -> Self {
        let (scheme, rest) = uri.split_once(':').unwrap_or(("", uri));
        let rest = match scheme {
            "sqlite" | "jsonl" | "file" => StoreTarget::Path(absolute(&absolute(root).join(rest))),
            _ => StoreTarget::Other(rest.to_owned()),
        };
        StoreUri { scheme: scheme.to_owned(), rest }
    }

    /// Returns the path of a session file; none for another store.
    pub(crate) fn session_file(&self) -> Option<&Path> {
        match &self.rest {
            StoreTarget::Path(path) if self.scheme == "file" => Some(path),
            _ => None,
        }
    }
}

impl std::fmt::Display for StoreUri {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.rest {
            StoreTarget::Path(path) => write!(f, "{}:{}", self.scheme, path.display()),
            StoreTarget::Other(rest) => write!(f, "{}:{rest}", self.scheme),
        }
    }
}

/// The number of bytes by which a store is recognised.
const START_BYTES: u64 = 128;
const SESSION_FILE_HEADER: &[u8] = br#""format":"rath record""#;

/// Returns the first bytes of a file.
fn first_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    open_regular_file(path)?.take(START_BYTES).read_to_end(&mut start)?;
    Ok(start)
}

/// Returns true for the first bytes of a SQLite database of rath, by its application id. As long as that is in the WAL, the file says
/// nothing.
fn is_database(start: &[u8], has_wal: impl Fn() -> bool) -> bool {
    match start.get(68..72) {
        _ if start.is_empty() => has_wal(),
        Some(application) if start.starts_with(b"SQLite format 3\0") => {
            application == b"rath" || application == [0; 4] && has_wal()
        }
        _ => false,
    }
}

/// Returns an absolute path, without links where that is possible.
fn absolute(path: &Path) -> PathBuf {
    let canonical = path.canonicalize().or_else(|_| {
        let path = std::path::absolute(path)?;
        let parent = path.parent().map_or_else(|| Ok(PathBuf::new()), Path::canonicalize)?;
        Ok::<_, io::Error>(parent.join(path.file_name().unwrap_or_default()))
    });
    canonical.or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

impl StoreList {
    /// Returns the list of a directory.
    pub(crate) fn of(root: &Path) -> Self {
        StoreList { path: root.join(RATH_DIR).join("workspace").join("stores") }
    }

    /// Adds a store to the list of a directory, if versions of its files are stored and its `.rath` is this user's.
    pub(crate) fn add_if_used(root: &Path, uri: &StoreUri, id: impl FnOnce() -> StoreIdResult) -> Result<()> {
        let own = root.join(RATH_DIR);
        if own.join("workspace").is_dir() && rath_dir::check(&own).is_ok() {
            StoreList::of(root).add(&ListedStore::new(uri.within(root), id()?))?;
        }
        Ok(())
    }

    /// Adds a store to the list of a directory that has it at another place: it was moved or copied, and names the same versions.
    pub(crate) fn add_if_moved(root: &Path, uri: &StoreUri, id: impl FnOnce() -> StoreIdResult) -> Result<()> {
        let list = StoreList::of(root);
        let ids: HashSet<_> = list.read()?.iter().filter_map(ListedStore::id).cloned().collect();
        if ids.is_empty() || rath_dir::check(&root.join(RATH_DIR)).is_err() {
            return Ok(());
        }
        match id()?.filter(|id| ids.contains(id)) {
            Some(id) => Ok(list.add(&ListedStore::new(uri.within(root), Some(id)))?),
            None => Ok(()),
        }
    }

    /// Returns the stores that lie in the `.rath` of a directory: an older version of rath, or a copy that a person made, put them in no
    /// list.
    pub(crate) fn find_unlisted(root: &Path) -> io::Result<Vec<StoreUri>> {
        let own = root.join(RATH_DIR);
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(&own)? {
            let entry = entry?;
            // A name that is no text cannot be part of a URI.
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if entry.file_type()?.is_dir() {
                if !rath_dir::NO_STORES.contains(&&*name) && has_session_files(&entry.path())? {
                    found.insert(format!("jsonl:{RATH_DIR}/{name}"));
                }
                continue;
            }
            // A database may be lost, and its WAL be there.
            if let Some(database) = name.strip_suffix("-wal").filter(|database| !own.join(database).exists()) {
                found.insert(format!("sqlite:{RATH_DIR}/{database}"));
                continue;
            }
            let start = first_bytes(&own.join(&name))?;
            if is_database(&start, || own.join(format!("{name}-wal")).exists()) {
                found.insert(format!("sqlite:{RATH_DIR}/{name}"));
            } else if memchr::memmem::find(&start, SESSION_FILE_HEADER).is_some() {
                found.insert(format!("file:{RATH_DIR}/{name}"));
            }
        }
        Ok(found.iter().map(|uri| StoreUri::from_list(uri, root)).collect())
    }

    /// Adds a store, durably.
    ///
    /// Two processes may add at the same time, so a line is appended in one write. A line that a crash cut off is not continued by
    /// the next one; its store has recorded nothing yet.
    pub(crate) fn add(&self, new: &ListedStore) -> io::Result<()> {
        if self.read()?.contains(new) {
            return Ok(());
        }
        let line = format!("\n{}\n", serde_json::to_string(new)?);
        let mut file = File::options().append(true).create(true).open(&self.path)?;
        file.write_all(line.as_bytes())?;
        file.sync_all()?;
        File::open(self.path.parent().unwrap_or(&self.path))?.sync_all()
    }

    /// Returns all stores.
    pub(crate) fn read(&self) -> io::Result<Vec<ListedStore>> {
        let bytes = match read_at_most(&self.path, MAX_LIST_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes?,
        };
        let mut list: Vec<ListedStore> = Vec::new();
        for store in bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()) {
            if !list.contains(&store) {
                list.push(store);
            }
        }
        Ok(list)
    }

    /// Removes stores from the list. If one is removed, those at `present` are listed: it may be one of them, which was moved. No other
    /// process uses the directory meanwhile.
    pub(crate) fn retain(
        &self,
        objects: &Objects,
        present: &[ListedStore],
        keep: impl Fn(&ListedStore) -> bool,
    ) -> Result<()> {
        let list = self.read()?;
        let mut kept: Vec<_> = list.iter().filter(|store| keep(store)).collect();
        if kept.len() == list.len() {
            return Ok(());
        }
        let new: Vec<_> = present.iter().filter(|store| !kept.contains(store)).collect();
        kept.extend(new);
        if kept.is_empty() {
            return Ok(fs::remove_file(&self.path)?);
        }
        let lines =
            kept.iter().map(|store| Ok(serde_json::to_string(store)? + "\n")).collect::<io::Result<String>>()?;
        let new = objects.temp_directory()?.join("stores");
        fs::write(&new, lines)?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, &self.path)?;
        Ok(File::open(self.path.parent().unwrap_or(&self.path))?.sync_all()?)
    }
}
