//! The decisions about a mirror: which files of a listing are looked at, and which copies are read anew, removed or sent back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rath_workspace::{IgnoreRules, Workspace};
use serde::{Deserialize, Serialize};

use crate::sandbox::{DirEntry, FileKind, RATH_DIR, is_temporary_name};

/// The name of the directory of a repository, of which no version is kept.
const GIT_DIR: &str = ".git";

/// The name of a file with ignore rules.
pub(super) const GITIGNORE: &str = ".gitignore";

/// The longest name of a file that is copied, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// The limits of a mirror. The files of a sandbox that exceeds one of them are not versioned.
#[derive(Clone, Copy, Debug)]
pub(super) struct MirrorLimits {
    /// The number of names in all directories that are listed.
    pub(super) names: usize,
    /// The number of directories, one in the other.
    pub(super) depth: usize,
    /// The number of bytes of a path.
    pub(super) path_bytes: usize,
    /// The number of bytes of one file. A larger one has no versions, as in a directory of this machine.
    pub(super) file_bytes: u64,
    /// The number of bytes of all files that have versions.
    pub(super) total_bytes: u64,
}

impl MirrorLimits {
    pub(super) const DEFAULT: MirrorLimits = MirrorLimits {
        names: 100_000,
        depth: 64,
        path_bytes: 2_048,
        file_bytes: Workspace::DEFAULT_MAX_FILE_SIZE,
        total_bytes: 1 << 30,
    };
}

/// The limit that a sandbox exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExceededLimit {
    Names(usize),
    Depth(usize),
    PathBytes(usize),
    TotalBytes(u64),
}

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExceededLimit::Names(limit) => write!(f, "there are more than {limit} files that no `.gitignore` matches"),
            ExceededLimit::Depth(limit) => write!(f, "more than {limit} directories are nested"),
            ExceededLimit::PathBytes(limit) => write!(f, "a path has more than {limit} bytes"),
            ExceededLimit::TotalBytes(limit) => write!(f, "the files have more than {} MiB", limit >> 20),
        }
    }
}

/// An entry that the sandbox lists, and that the mirror gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListedEntry {
    Directory,
    File {
        mark: Option<String>,
    },
    /// A file that is too large to have versions. Its copy has the same length, and no content.
    Large {
        bytes: u64,
        mark: Option<String>,
    },
}

/// The entries that the mirror gets, by path.
pub(super) type Listing = BTreeMap<String, ListedEntry>;

/// A directory of the sandbox that is to be listed.
#[derive(Clone, Debug)]
pub(super) struct ListedDir {
    /// The path, empty for the topmost one.
    pub(super) path: String,
    depth: usize,
    rules: IgnoreRules,
    /// True if the directory is ignored, and has files that were seen before.
    is_ignored: bool,
}

/// A walk through the directories of a sandbox, which are listed one after the other.
pub(super) struct Walk<'a> {
    limits: MirrorLimits,
    known: &'a KnownFiles,
    names: usize,
    total_bytes: u64,
    listing: Listing,
}

impl<'a> Walk<'a> {
    pub(super) fn new(limits: MirrorLimits, known: &'a KnownFiles) -> Self {
        Walk { limits, known, names: 0, total_bytes: 0, listing: Listing::new() }
    }

    /// Returns the directory that a walk begins with.
    pub(super) fn top() -> ListedDir {
        ListedDir { path: String::new(), depth: 0, rules: IgnoreRules::default(), is_ignored: false }
    }

    /// Adds the entries of a directory, with the content of its `.gitignore`, and returns the directories to list next.
    ///
    /// Names that no file of a workspace can have are passed over, and of several entries with one name all but the first.
    pub(super) fn add(
        &mut self,
        directory: &ListedDir,
        entries: Vec<DirEntry>,
        gitignore: Option<&[u8]>,
    ) -> Result<Vec<ListedDir>, ExceededLimit> {
        let MirrorLimits { names, depth, path_bytes, file_bytes, total_bytes } = self.limits;
        let base = directory.path.as_bytes();
        let rules =
            gitignore.map_or_else(|| directory.rules.clone(), |content| directory.rules.with_gitignore(base, content));
        let (mut below, mut seen) = (Vec::new(), BTreeSet::new());
        for entry in entries {
            if !is_file_name(&entry.name) || !seen.insert(entry.name.clone()) {
                continue;
            }
            let path = join(&directory.path, &entry.name);
            let is_directory = entry.kind == FileKind::Directory;
            let is_ignored = directory.is_ignored || rules.ignores(path.as_bytes(), is_directory);
            let was_seen = if is_directory { self.known.has_below(&path) } else { self.known.has_seen(&path) };
            if is_ignored && !was_seen {
                continue;
            }
            self.names += 1;
            if self.names > names {
                return Err(ExceededLimit::Names(names));
            }
            if path.len() > path_bytes {
                return Err(ExceededLimit::PathBytes(path_bytes));
            }
            let listed = match entry.kind {
                FileKind::Directory => {
                    if directory.depth == depth {
                        return Err(ExceededLimit::Depth(depth));
                    }
                    let (rules, depth) = (rules.clone(), directory.depth + 1);
                    below.push(ListedDir { path: path.clone(), depth, rules, is_ignored });
                    ListedEntry::Directory
                }
                FileKind::File if entry.bytes > file_bytes => {
                    ListedEntry::Large { bytes: entry.bytes, mark: entry.mark }
                }
                FileKind::File => {
                    self.total_bytes = self.total_bytes.saturating_add(entry.bytes);
                    if self.total_bytes > total_bytes {
                        return Err(ExceededLimit::TotalBytes(total_bytes));
                    }
                    ListedEntry::File { mark: entry.mark }
                }
                FileKind::Symlink | FileKind::Other => continue,
            };
            self.listing.insert(path, listed);
        }
        Ok(below)
    }

    /// Removes a directory that is gone since it was listed.
    pub(super) fn remove(&mut self, directory: &ListedDir) {
        self.listing.remove(&directory.path);
    }

    pub(super) fn finish(self) -> Listing {
        self.listing
    }
}

/// Returns true if a file of a workspace can have this name, and versions of it are kept.
fn is_file_name(name: &str) -> bool {
    let is_reserved = [RATH_DIR, GIT_DIR, ".", ".."].iter().any(|reserved| name.eq_ignore_ascii_case(reserved));
    let is_one_name = !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.contains(['/', '\0']);
    is_one_name && !is_reserved && !is_temporary_name(name.as_ref())
}

/// Returns true if each name of a path is one that a file of a workspace can have.
pub(super) fn is_file_path(path: &str) -> bool {
    path.split('/').all(is_file_name)
}

/// Returns the path of an entry of a directory.
pub(super) fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// The files that the mirror has, as they were read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct KnownFiles {
    pub(super) files: BTreeMap<String, KnownFile>,
    /// The files that were seen and are gone. If they appear again, they are copied although they may be ignored then.
    #[serde(default)]
    removed: BTreeSet<String>,
}

/// A file that the mirror has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KnownFile {
    /// The mark that the file had when it was listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mark: Option<String>,
    /// The digest of the content, in hexadecimal; none for a copy without the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) digest: Option<String>,
    /// The copy on the disk. A copy that is not as it was written is written again.
    #[serde(skip)]
    pub(super) copy: Option<FileStat>,
}

/// The metadata of a copy, by which a change of the copy is noticed: files are replaced, never written in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStat {
    pub(super) bytes: u64,
    pub(super) modified: Option<std::time::SystemTime>,
    pub(super) inode: u64,
}

impl KnownFiles {
    fn has_seen(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.removed.contains(path)
    }

    /// Returns true if a file in a directory was seen.
    pub(super) fn has_below(&self, directory: &str) -> bool {
        let prefix = format!("{directory}/");
        let is_below = |path: Option<&String>| path.is_some_and(|path| path.starts_with(&prefix));
        is_below(self.files.range(prefix.clone()..).next().map(|(path, _)| path))
            || is_below(self.removed.range(prefix.clone()..).next())
    }

    /// Returns the files of a listing, none of which was read.
    pub(super) fn unread(listing: &Listing) -> Self {
        let is_file = |entry: &ListedEntry| !matches!(entry, ListedEntry::Directory);
        let files = listing.iter().filter(|(_, entry)| is_file(entry));
        let unread = || KnownFile { mark: None, digest: None, copy: None };
        KnownFiles { files: files.map(|(path, _)| (path.clone(), unread())).collect(), removed: BTreeSet::new() }
    }

    /// Notes that a file is gone. Beyond the number of names that a mirror may have, removed files are forgotten.
    pub(super) fn remove(&mut self, path: &str) {
        if self.files.remove(path).is_some() && self.removed.len() < MirrorLimits::DEFAULT.names {
            self.removed.insert(path.to_owned());
        }
    }
}

/// An entry of the mirror on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopiedEntry {
    Directory,
    File(FileStat),
    /// A link or a special file, which no fetch makes.
    Other,
}

/// The entries of the mirror on the disk, by path.
pub(super) type Copies = BTreeMap<String, CopiedEntry>;

/// The work that brings a mirror to the files of its sandbox.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FetchPlan {
    /// The entries to remove, each after those in it.
    pub(super) remove: Vec<String>,
    /// The files that are gone.
    pub(super) forget: Vec<String>,
    /// The directories to make, each after the one above it.
    pub(super) make: Vec<String>,
    /// The files to read, with the marks that they have.
    pub(super) read: Vec<(String, Option<String>)>,
    /// The files whose copies have no content, with their lengths and marks.
    pub(super) large: Vec<(String, u64, Option<String>)>,
}

/// Decides how the copies become those of the listed files.
pub(super) fn plan_fetch(listing: &Listing, copies: &Copies, known: &KnownFiles) -> FetchPlan {
    let mut plan = FetchPlan::default();
    for (path, copy) in copies.iter().rev() {
        let stays = match listing.get(path) {
            Some(ListedEntry::Directory) => *copy == CopiedEntry::Directory,
            Some(ListedEntry::File { .. } | ListedEntry::Large { .. }) => matches!(copy, CopiedEntry::File(_)),
            None => false,
        };
        if !stays {
            plan.remove.push(path.clone());
        }
    }
    let is_listed =
        |path: &String| matches!(listing.get(path), Some(ListedEntry::File { .. } | ListedEntry::Large { .. }));
    plan.forget = known.files.keys().filter(|path| !is_listed(path)).cloned().collect();
    for (path, entry) in listing {
        let copy = match copies.get(path) {
            Some(CopiedEntry::File(copy)) => Some(*copy),
            _ => None,
        };
        let known = known.files.get(path).filter(|known| copy.is_some() && known.copy == copy);
        let has_mark = |mark: &Option<String>| mark.is_some() && known.is_some_and(|known| known.mark == *mark);
        match entry {
            ListedEntry::Directory if copies.get(path) == Some(&CopiedEntry::Directory) => {}
            ListedEntry::Directory => plan.make.push(path.clone()),
            ListedEntry::File { mark } => {
                if !(has_mark(mark) && known.is_some_and(|known| known.digest.is_some())) {
                    plan.read.push((path.clone(), mark.clone()));
                }
            }
            ListedEntry::Large { bytes, mark } => {
                let is_same = known.is_some_and(|known| known.digest.is_none() && known.mark == *mark);
                if !is_same || copy.is_none_or(|copy| copy.bytes != *bytes) {
                    plan.large.push((path.clone(), *bytes, mark.clone()));
                }
            }
        }
    }
    plan
}

/// The changes of a mirror that its sandbox gets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SendPlan {
    /// The files to remove.
    pub(super) remove: Vec<String>,
    /// The files to write.
    pub(super) write: Vec<String>,
}

/// Decides which files the sandbox gets: those that are not as they were fetched. Fails with the path of an entry that no sandbox can
/// be given.
pub(super) fn plan_send(copies: &Copies, known: &KnownFiles) -> Result<SendPlan, String> {
    let mut plan = SendPlan::default();
    for (path, copy) in copies {
        match copy {
            CopiedEntry::Directory => {}
            CopiedEntry::Other => return Err(path.clone()),
            CopiedEntry::File(stat) => {
                let is_same = known.files.get(path).is_some_and(|known| known.copy == Some(*stat));
                if !is_same {
                    plan.write.push(path.clone());
                }
            }
        }
    }
    let is_gone = |path: &&String| !matches!(copies.get(*path), Some(CopiedEntry::File(_)));
    plan.remove = known.files.keys().filter(is_gone).cloned().collect();
    Ok(plan)
}
