//! The earlier state of single files, from which each can be recovered by itself.
//!
//! A backup refers to a stored version where there is one. The content of other files is in memory, so that it never
//! reaches the objects.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::changes::join_path;
use crate::dir::{Dir, DirEntry, EntryKind, FileType, Stat};
use crate::disk::{self, Handle};
use crate::error::{Error, Result};
use crate::listing::Listing;
use crate::objects::{ObjectKind, hash_object};
use crate::rename::{directory, last_name};
use crate::tree::{Mode, ObjectId};
use crate::walk::MAX_DEPTH;
use crate::{ChangeKind, Presence, Snapshot, UntrackedReason, Workspace, paths};

/// The number of bytes that the backups of a workspace hold in memory.
const MAX_MEMORY_BYTES: usize = Workspace::DEFAULT_MAX_FILE_SIZE as usize;

/// The states that some files of a workspace had in a snapshot.
///
/// ```
/// use rath_workspace::{ChangeKind, Objects, Workspace};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let project = temp.path().join("project");
/// # std::fs::create_dir(&project)?;
///
/// std::fs::write(project.join("notes.txt"), "one\n")?;
/// let objects = Objects::open(&temp.path().join("versions"))?;
/// let mut workspace = Workspace::open(&project, &objects, &temp.path().join("index"))?;
/// let before = workspace.snapshot()?;
/// let backups = workspace.back_up(&before, None, &|path| path == "notes.txt", &[])?;
///
/// std::fs::write(project.join("notes.txt"), "two\n")?;
/// assert_eq!(workspace.changed_since(&backups)?, [("notes.txt".to_owned(), ChangeKind::Modified)]);
/// workspace.recover("notes.txt", &before, &backups, &temp.path().join("aside"))?;
/// assert_eq!(std::fs::read_to_string(project.join("notes.txt"))?, "one\n");
/// assert_eq!(std::fs::read_to_string(temp.path().join("aside/notes.txt"))?, "two\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Backups {
    dir: Arc<Dir>,
    pub(crate) files: BTreeMap<Vec<u8>, Backup>,
}

/// The state of one file.
#[derive(Clone, Debug)]
pub(crate) struct Backup {
    pub(crate) stat: Stat,
    /// True if the file may have changed later without a change of its metadata.
    pub(crate) racy: bool,
    pub(crate) content: BackupContent,
}

/// The content of a file, or the target of a link.
#[derive(Clone, Debug)]
pub(crate) enum BackupContent {
    Version(ObjectId),
    Memory(Arc<[u8]>),
    /// No content is known, for this reason.
    Missing(UntrackedReason),
}

impl Workspace {
    /// Backs up the files of the last snapshot for which `is_wanted` returns true, and those below the directories `searched`, which
    /// the snapshot does not know.
    ///
    /// `previous` are earlier backups of the same choice: what did not change since is taken from there, without a look at
    /// the file. At most 32 MiB are held in memory; a file beyond that cannot be recovered.
    pub fn back_up(
        &self,
        snapshot: &Snapshot,
        previous: Option<&Backups>,
        is_wanted: &dyn Fn(&str) -> bool,
        searched: &[String],
    ) -> Result<Backups> {
        let mut backups = Backups { dir: snapshot.dir.clone(), files: BTreeMap::new() };
        let mut wanted = Vec::new();
        let mut memory = 0;
        let mut root = None;
        let previous_files = previous.map(|previous| &previous.files);
        let mut rest = vec![(Vec::new(), &snapshot.dir, previous.map(|previous| &previous.dir))];
        while let Some((path, dir, known)) = rest.pop() {
            if let (Some(known), Some(files)) = (known, previous_files)
                && Arc::ptr_eq(known, dir)
            {
                let is_searched = |path: &[u8]| searched.iter().any(|above| is_below(path, &paths::path_bytes(above)));
                for (path, backup) in files_below(files, &path).filter(|(path, _)| !is_searched(path)) {
                    memory += backup.memory_bytes();
                    backups.files.insert(path.clone(), backup.clone());
                }
                continue;
            }
            for entry in &dir.entries {
                let child_path = join_path(&path, dir.name(entry));
                if let Some(child) = dir.child(entry) {
                    let known = known.and_then(|known| known.child(known.find(dir.name(entry))?));
                    rest.push((child_path, child, known));
                    continue;
                }
                let is_directory = entry.stat.file_type() == FileType::Directory;
                if is_directory || !is_wanted(&paths::path_text(&child_path)) {
                    continue;
                }
                wanted.push((child_path, *entry));
            }
        }
        for directory in searched {
            let Ok(directory) = paths::parse_path(directory) else { continue };
            let _ = self.search(directory, &mut |dir, name, path| {
                if is_wanted(&paths::path_text(path))
                    && let Ok(stat) = disk::stat(dir, name)
                {
                    let entry = DirEntry::new(EntryKind::Untracked(UntrackedReason::Ignored));
                    wanted.push((path.to_owned(), DirEntry { stat, ..entry }));
                }
                ControlFlow::Continue(())
            })?;
        }
        for (path, entry) in wanted {
            let known = previous_files.and_then(|files| files.get(&path));
            let backup = match known.filter(|known| known.stat == entry.stat && !known.racy) {
                Some(known) => known.clone(),
                None => {
                    if root.is_none() {
                        root = Some(self.open_root()?);
                    }
                    let free = MAX_MEMORY_BYTES.saturating_sub(memory);
                    Backup::new(root.as_ref(), &path, &entry, free)
                }
            };
            memory += backup.memory_bytes();
            backups.files.insert(path, backup);
        }
        Ok(backups)
    }

    /// Returns the files that are not as in their backups, each with the kind of its change. Looks at these files directly.
    ///
    /// A file that cannot be looked at counts as changed.
    pub fn changed_since(&self, backups: &Backups) -> Result<Vec<(String, ChangeKind)>> {
        let root = self.open_root()?;
        let mut opened: Option<(&[u8], io::Result<Handle>)> = None;
        let mut changed = Vec::new();
        for (path, backup) in &backups.files {
            let directory = directory(path);
            if opened.as_ref().is_none_or(|(known, _)| *known != directory) {
                opened = Some((directory, disk::open_path(&root, directory)));
            }
            let parent = opened.as_ref().and_then(|(_, parent)| parent.as_ref().ok());
            let stat = parent.map(|parent| disk::stat(parent, last_name(path)));
            let is_same = match (parent, &stat) {
                (Some(parent), Some(Ok(stat))) => backup.is_same(parent, last_name(path), stat),
                _ => false,
            };
            if !is_same {
                let kind = if matches!(stat, Some(Ok(_))) { ChangeKind::Modified } else { ChangeKind::Deleted };
                changed.push((paths::path_text(path).into_owned(), kind));
            }
        }
        Ok(changed)
    }
}

impl Workspace {
    /// Returns the new files and directories for which `is_wanted` returns true. Looks at names only, of any number, so this works
    /// where a snapshot fails.
    ///
    /// Paths below a returned directory are left out. A path in a directory with too many names to be known counts as new.
    pub fn new_paths(&self, before: &Snapshot, is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<String>> {
        let root = self.open_root()?;
        let (mut found, mut listing) = (Vec::new(), Listing::default());
        let mut rest = vec![(Vec::new(), Some(&before.dir), 0)];
        while let Some((path, known, depth)) = rest.pop() {
            let open = || disk::open_path(&root, &path);
            // One that could not be listed before is the user's own.
            let was_listed = || before.presence(&paths::path_text(&join_path(&path, b"x"))) != Presence::Unknown;
            let opened =
                open().or_else(|error| match was_listed() && self.make_listable(&paths::path_text(&path))? {
                    true => Ok(open()?),
                    false => Err(Error::from(error)),
                });
            let Ok(dir) = opened else { continue };
            if disk::list(&dir, &mut listing).is_err() {
                continue;
            }
            for (nth, (_, _, file_type)) in listing.entries.iter().enumerate() {
                let name = listing.name(nth);
                if depth == 0 && name == b".rath" {
                    continue;
                }
                let entry = known.and_then(|known| Some((known, known.find(name)?)));
                let child = entry.and_then(|(known, entry)| known.child(entry));
                let is_directory = match file_type {
                    FileType::Unknown => disk::stat(&dir, name).is_ok_and(|it| it.file_type() == FileType::Directory),
                    known => *known == FileType::Directory,
                };
                let child_path = join_path(&path, name);
                let is_new = entry.is_none() || child.is_some() && !is_directory;
                if is_new && is_wanted(&paths::path_text(&child_path)) {
                    found.push(paths::path_text(&child_path).into_owned());
                } else if is_directory && depth < MAX_DEPTH {
                    rest.push((child_path, child, depth + 1));
                }
            }
        }
        Ok(found)
    }
}

fn is_below(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Returns the files below a directory.
fn files_below<'a>(
    files: &'a BTreeMap<Vec<u8>, Backup>,
    path: &[u8],
) -> impl Iterator<Item = (&'a Vec<u8>, &'a Backup)> {
    let prefix = if path.is_empty() { Vec::new() } else { join_path(path, b"") };
    files.range(prefix.clone()..).take_while(move |(path, _)| path.starts_with(&prefix))
}

impl Backups {
    /// Returns true if there is a backup of a file.
    pub fn contains(&self, path: &str) -> bool {
        paths::parse_path(path).is_ok_and(|path| self.files.contains_key(&path))
    }
}

impl Backup {
    /// Backs up a file. Its content is read unless it has a version, if it has at most `free` bytes.
    fn new(root: Option<&Handle>, path: &[u8], entry: &DirEntry, free: usize) -> Self {
        let (stat, racy) = (entry.stat, entry.racy);
        let missing = |reason| Backup { stat, racy, content: BackupContent::Missing(reason) };
        match entry.kind {
            EntryKind::Tracked(_) => Backup { stat, racy, content: BackupContent::Version(entry.id) },
            EntryKind::Outdated(_, reason) | EntryKind::Untracked(reason) => {
                let read = root.map(|root| read(root, path, free));
                match read {
                    Some(Ok(backup)) => backup,
                    Some(Err(error)) if error.kind() == io::ErrorKind::FileTooLarge => {
                        missing(UntrackedReason::TooLarge)
                    }
                    _ => missing(reason),
                }
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        match &self.content {
            BackupContent::Memory(content) => content.len(),
            _ => 0,
        }
    }

    /// Returns true if the file in a directory has the type, the permissions and the content of the backup.
    pub(crate) fn is_same(&self, parent: &Handle, name: &[u8], found: &Stat) -> bool {
        if *found == self.stat && !self.racy {
            return true;
        }
        found.mode == self.stat.mode && self.has_content(parent, name, found)
    }

    /// Returns true if the file in a directory has the type and the content of the backup.
    pub(crate) fn has_content(&self, parent: &Handle, name: &[u8], found: &Stat) -> bool {
        if found.file_type() != self.stat.file_type() || found.size != self.stat.size {
            return false;
        }
        let content = || match found.file_type() {
            FileType::File => read_file(parent, name, found.size).map(|(_, content)| content),
            FileType::Link => disk::read_link(parent, name)?.ok_or_else(|| io::ErrorKind::InvalidData.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        };
        match &self.content {
            BackupContent::Version(id) => {
                content().is_ok_and(|found| hash_object(ObjectKind::Blob, &found) == Some(*id))
            }
            BackupContent::Memory(kept) => content().is_ok_and(|found| found[..] == kept[..]),
            BackupContent::Missing(_) => *found == self.stat,
        }
    }

    /// Returns the mode of the file in a tree.
    pub(crate) fn mode(&self) -> Option<Mode> {
        match self.stat.file_type() {
            FileType::File => Some(Mode::File),
            FileType::Link => Some(Mode::Link),
            _ => None,
        }
    }
}

/// Reads a file or a link into memory. Fails with `FileTooLarge` if it has more than `max` bytes.
fn read(root: &Handle, path: &[u8], max: usize) -> io::Result<Backup> {
    let since = disk::file_clock_now();
    let parent = disk::open_path(root, directory(path))?;
    let name = last_name(path);
    let stat = disk::stat(&parent, name)?;
    let (stat, content) = match stat.file_type() {
        FileType::File if stat.size <= max as u64 => read_file(&parent, name, max as u64)?,
        FileType::File => return Err(io::ErrorKind::FileTooLarge.into()),
        FileType::Link => (stat, disk::read_link(&parent, name)?.ok_or(io::ErrorKind::InvalidData)?),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    Ok(Backup { stat, racy: stat.changed >= since, content: BackupContent::Memory(content.into()) })
}

/// Reads a regular file of at most `max` bytes.
fn read_file(parent: &Handle, name: &[u8], max: u64) -> io::Result<(Stat, Vec<u8>)> {
    let file = disk::open_file(parent, name)?;
    let stat = disk::stat_open(&file)?;
    if stat.file_type() != FileType::File {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut content = Vec::with_capacity(stat.size.min(max) as usize + 1);
    disk::read_all(&file, &mut content, max)?;
    if content.len() as u64 > max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok((stat, content))
}
