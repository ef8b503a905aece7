//! The walk over a directory that takes a snapshot: it reads all names and metadata, and the content of changed files.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::SecretFinder;
use crate::batch::Batch;
use crate::change::{Digest, UntrackedReason};
use crate::changes::join_path;
use crate::dir::{Dir, DirEntry, EntryKind, FileType, Stat};
use crate::dir_node::{DirAccess, DirNode, DirResult, OpenDir};
use crate::disk::{self, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::ignore::{self, IgnoreLevel, Patterns, Rules};
use crate::limits::{SnapshotLimits, SnapshotUsage};
use crate::listing::Listing;
use crate::objects::{self, Objects};
use crate::tree::{Mode, ObjectId};
use crate::{paths, pool, temporaries};

/// The largest depth of tracked directories: git reads no tree that is nested deeper.
pub(crate) const MAX_DEPTH: usize = 2048;

/// The number of names that are watched in one ignored directory. A directory with a larger number is reported as a
/// whole, by its own metadata.
pub(crate) const MAX_IGNORED_ENTRIES: usize = 10_000;

/// The number of times that a file is read if it changes while it is read.
const MAX_READ_ATTEMPTS: usize = 5;

/// The context of a directory during a walk.
struct WalkContext {
    /// The directory in the previous snapshot.
    known: Option<Arc<Dir>>,
    purpose: Purpose,
}

/// The reason why a directory is read.
enum Purpose {
    /// To store its files, except for those that these rules of the directories above, or its own, ignore.
    Track(Rules),
    /// To store the files that the previous snapshot has: the directory is ignored, and was not then.
    KeepTracked(Rules),
    /// To detect changes by metadata only.
    Watch(Arc<WatchedDir>),
}

/// An ignored directory, with everything below it.
struct WatchedDir {
    /// The number of names seen so far.
    seen: AtomicUsize,
    stat: Stat,
    /// True for a `.git` directory.
    is_git: bool,
    depth: usize,
}

/// One walk.
pub(crate) struct Walk<'a> {
    root: &'a Handle,
    objects: &'a Objects,
    batch: &'a Batch<'a>,
    /// The start of the walk. A file with this or a later time stamp may change again without a change of its metadata.
    since: i64,
    max_file_size: u64,
    usage: SnapshotUsage,
    /// The files that stay tracked although they are ignored now, besides those that the previous snapshot has; none if no
    /// files stay tracked then.
    keeps_tracked: Option<&'a BTreeSet<Vec<u8>>>,
    /// Returns true for bytes that hold a secret.
    find_secret: Option<&'a SecretFinder>,
    /// The paths that are skipped.
    left_out: &'a BTreeSet<Vec<u8>>,
    open: Arc<AtomicUsize>,
}

/// Buffers that a thread reuses for all its directories.
#[derive(Default)]
struct Scratch {
    listing: Listing,
    content: Vec<u8>,
    path: Vec<u8>,
}

type WalkJob = (Arc<DirNode<WalkContext>>, DirAccess);

/// Walks a directory, and reads the files whose metadata differs from the previous snapshot.
pub(crate) fn walk(
    root: &Handle,
    objects: &Objects,
    batch: &Batch<'_>,
    (max_file_size, limits): (u64, SnapshotLimits),
    (known, keeps_tracked): (Option<Arc<Dir>>, Option<&BTreeSet<Vec<u8>>>),
    (find_secret, left_out): (Option<&SecretFinder>, &BTreeSet<Vec<u8>>),
) -> Result<Arc<Dir>> {
    let (usage, since, open) = (SnapshotUsage::new(limits), disk::file_clock_now(), Arc::default());
    let walk = Walk { root, objects, batch, since, max_file_size, usage, keeps_tracked, find_secret, left_out, open };
    let result = Mutex::new(None);
    let node = DirNode::root(WalkContext { known, purpose: Purpose::Track(None) });
    pool::run(vec![(node, DirAccess::ByPath)], |job, scratch, jobs| {
        if let Some(dir) = walk.visit(job, scratch, jobs)? {
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(dir);
        }
        Ok(())
    })?;
    match result.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(DirResult::Dir(dir)) => Ok(dir),
        _ => Err(Error::new(
            ErrorKind::Io,
            "the directory cannot be read: it was removed, or its permissions do not allow it",
        )),
    }
}

impl Walk<'_> {
    /// Reads one directory, and adds a job for each subdirectory.
    fn visit(
        &self,
        (node, access): WalkJob,
        scratch: &mut Scratch,
        jobs: &mut Vec<WalkJob>,
    ) -> Result<Option<DirResult>> {
        let finish_dir = |node: &DirNode<WalkContext>, dir: Dir| self.finish_dir(node, dir);
        if let Purpose::Watch(watch) = &node.context.purpose
            && watch.seen.load(Relaxed) > MAX_IGNORED_ENTRIES
        {
            return node.complete(DirResult::Gone, &finish_dir);
        }
        let opened = match self.open(&node, &access) {
            Ok(handle) => OpenDir::new(handle, &self.open),
            Err(error) if disk::is_gone(&error) => return node.complete(DirResult::Gone, &finish_dir),
            Err(error) if disk::is_denied(&error) => {
                if let (Purpose::Track(_) | Purpose::KeepTracked(_), Some(known)) =
                    (&node.context.purpose, &node.context.known)
                    && node.parent.is_some()
                    && !known.entries.is_empty()
                {
                    // Files that were tracked so far are not deleted because they cannot be looked at.
                    return node.complete(DirResult::Dir(known.unread()), &finish_dir);
                }
                let stat = self.stat(&node, &access).unwrap_or_default();
                let reason = match node.context.purpose {
                    Purpose::Track(_) | Purpose::KeepTracked(_) => UntrackedReason::Special,
                    Purpose::Watch(_) => UntrackedReason::Ignored,
                };
                return node.complete(DirResult::Untracked(reason, stat), &finish_dir);
            }
            Err(error) => return Err(cannot_read(&node.path(), error)),
        };
        let mut dir = Dir::default();
        dir.own = disk::stat_open(&opened.handle).map_err(|error| cannot_read(&node.path(), error))?;
        dir.racy = dir.own.changed >= self.since;
        match &node.context.known {
            Some(known) if known.own == dir.own && !known.racy => known.list(&mut scratch.listing),
            _ => match disk::list(&opened.handle, &mut scratch.listing) {
                Err(error) if disk::is_gone(&error) => {
                    return node.complete(DirResult::Gone, &finish_dir);
                }
                listed => listed.map_err(|error| cannot_read(&node.path(), error))?,
            },
        }
        let before = jobs.len();
        match &node.context.purpose {
            Purpose::Track(rules) | Purpose::KeepTracked(rules) => {
                self.visit_tracked(&node, rules, &opened, scratch, &mut dir, jobs)?;
            }
            Purpose::Watch(watch) => self.visit_ignored(&node, watch, &opened, scratch, &mut dir, jobs)?,
        }
        let children = jobs.len() - before;
        node.fill(dir, children, &finish_dir)
    }

    /// Reads a directory whose files are tracked.
    fn visit_tracked(
        &self,
        node: &Arc<DirNode<WalkContext>>,
        parent_rules: &Rules,
        opened: &Arc<OpenDir>,
        scratch: &mut Scratch,
        dir: &mut Dir,
        jobs: &mut Vec<WalkJob>,
    ) -> Result<()> {
        let known = node.context.known.as_ref();
        let Scratch { listing, content, path } = scratch;
        self.usage.add_names(listing.entries.len())?;
        path.clear();
        dir.patterns = self.patterns(opened, listing, known, content);
        if parent_rules.is_some() || dir.patterns.is_some() || !self.left_out.is_empty() {
            *path = node.path();
        }
        let rules = match &dir.patterns {
            Some(patterns) => IgnoreLevel::push(parent_rules, patterns, path),
            None => parent_rules.clone(),
        };
        dir.rules = ignore::rules_id(&rules);
        // Under the same rules, the previous decision on each name still holds.
        let same_rules = known.is_some_and(|known| known.rules == dir.rules);
        if !path.is_empty() {
            path.push(b'/');
        }
        let base = path.len();
        let is_excluded = matches!(node.context.purpose, Purpose::KeepTracked(_));
        let mut has_kept = is_excluded;
        let mut position = 0;
        dir.names.reserve(listing.names.len());
        dir.entries.reserve(listing.entries.len());
        let first = jobs.len();
        for nth in 0..listing.entries.len() {
            let (name, file_type) = (listing.name(nth), listing.entries[nth].2);
            let is_rath = name.eq_ignore_ascii_case(b".rath");
            // In other letters it is another directory, where the file system tells them apart.
            if name == b".rath" && node.depth == 0 {
                continue;
            }
            if !self.left_out.is_empty() {
                path.truncate(base);
                path.extend_from_slice(name);
                if self.left_out.contains(path) {
                    continue;
                }
            }
            let before = known.and_then(|known| find_from(known, &mut position, name).map(|entry| (known, entry)));
            let mut stat = None;
            let file_type = match file_type {
                FileType::Unknown => match self.stat_entry(node, opened, name)? {
                    None => continue,
                    Some(metadata) => stat.insert(metadata).file_type(),
                },
                known => known,
            };
            let is_directory = match file_type {
                // The permissions do not allow a look at it.
                FileType::Unknown => before.is_some_and(|(_, entry)| entry.is_directory()),
                known => known == FileType::Directory,
            };
            let is_git = name.eq_ignore_ascii_case(b".git");
            let is_secret = is_directory && self.find_secret.is_some_and(|find| find(name));
            let is_never_tracked = is_git || is_rath || temporaries::is_temporary_name(name) || is_secret;
            let by_rules = !is_never_tracked
                && match before {
                    Some((_, entry)) if same_rules && is_directory == entry.is_directory() => entry.is_ignored(),
                    _ if is_excluded => true,
                    _ => {
                        rules.is_some() && {
                            path.truncate(base);
                            path.extend_from_slice(name);
                            ignore::ignores(&rules, path, is_directory)
                        }
                    }
                };
            let was_tracked = |entry: &DirEntry| {
                !matches!(entry.kind, EntryKind::Untracked(_)) && entry.is_directory() == is_directory
            };
            let is_kept = by_rules
                && self.keeps_tracked.is_some_and(|removed| {
                    before.is_some_and(|(_, entry)| was_tracked(entry))
                        || !removed.is_empty() && {
                            path.truncate(base);
                            path.extend_from_slice(name);
                            was_removed(removed, path, is_directory)
                        }
                });
            has_kept |= is_kept;
            let ignored = is_never_tracked || by_rules && !is_kept;
            // The previous contents of a directory are no use if it was ignored then and is not now, or the reverse.
            let child = before.filter(|(_, entry)| entry.is_ignored() == ignored);
            let child = child.and_then(|(known, entry)| known.child(entry)).cloned();
            let mut entry = DirEntry::new(EntryKind::Tracked(Mode::Directory));
            if is_directory && !ignored && node.depth < MAX_DEPTH {
                entry.child = Some((jobs.len() - first) as u32);
                let purpose = if is_kept { Purpose::KeepTracked(rules.clone()) } else { Purpose::Track(rules.clone()) };
                let context = WalkContext { known: child, purpose };
                jobs.push((node.child(jobs.len() - first, name, context), opened.access()));
                dir.push(name, entry);
                continue;
            }
            let Some(stat) = stat.map_or_else(|| self.stat_entry(node, opened, name), |stat| Ok(Some(stat)))? else {
                continue;
            };
            entry.stat = stat;
            if ignored {
                entry.kind = EntryKind::Untracked(UntrackedReason::Ignored);
                // A directory with too many names is read again only if its own metadata changed.
                let had_too_many =
                    child.is_none() && before.is_some_and(|(_, entry)| entry.is_ignored() && entry.stat == stat);
                if is_directory && !had_too_many && node.depth < MAX_DEPTH {
                    entry.child = Some((jobs.len() - first) as u32);
                    let watch = WatchedDir { seen: AtomicUsize::new(0), stat, is_git, depth: node.depth + 1 };
                    let context = WalkContext { known: child, purpose: Purpose::Watch(Arc::new(watch)) };
                    jobs.push((node.child(jobs.len() - first, name, context), opened.access()));
                }
            } else if is_directory {
                entry.kind = EntryKind::Untracked(UntrackedReason::Special);
            } else {
                let before = before.map(|(_, entry)| *entry);
                match self.visit_file(node, opened, name, stat, before, content)? {
                    None => continue,
                    Some(stored) => entry = stored,
                }
            }
            dir.push(name, entry);
        }
        if has_kept {
            // These decisions do not follow from the rules, so the next walk decides anew.
            dir.rules = ignore::OTHER_RULES;
        }
        Ok(())
    }

    /// Reads the metadata in an ignored directory.
    fn visit_ignored(
        &self,
        node: &Arc<DirNode<WalkContext>>,
        watch: &Arc<WatchedDir>,
        opened: &Arc<OpenDir>,
        scratch: &mut Scratch,
        dir: &mut Dir,
        jobs: &mut Vec<WalkJob>,
    ) -> Result<()> {
        let listing = &scratch.listing;
        if watch.seen.fetch_add(listing.entries.len(), Relaxed) + listing.entries.len() > MAX_IGNORED_ENTRIES {
            return Ok(());
        }
        let first = jobs.len();
        let mut position = 0;
        for nth in 0..listing.entries.len() {
            let name = listing.name(nth);
            // `objects` can be very large, and git writes no object without changing another file too.
            if watch.is_git && node.depth == watch.depth && name == b"objects" {
                continue;
            }
            let Some(stat) = self.stat_entry(node, opened, name)? else { continue };
            let mut entry = DirEntry { stat, ..DirEntry::new(EntryKind::Untracked(UntrackedReason::Ignored)) };
            if stat.file_type() == FileType::Directory && node.depth < MAX_DEPTH {
                let known = node.context.known.as_ref();
                let child = known.and_then(|known| known.child(find_from(known, &mut position, name)?)).cloned();
                entry.child = Some((jobs.len() - first) as u32);
                let context = WalkContext { known: child, purpose: Purpose::Watch(watch.clone()) };
                jobs.push((node.child(jobs.len() - first, name, context), opened.access()));
                // The times of a directory change with its contents, which are compared themselves.
                entry.stat = Stat { mode: stat.mode, ..Stat::default() };
            }
            dir.push(name, entry);
        }
        Ok(())
    }

    /// Turns the contents of a directory into a result when all subdirectories are complete.
    fn finish_dir(&self, node: &DirNode<WalkContext>, mut dir: Dir) -> Result<DirResult> {
        if let Purpose::Watch(watch) = &node.context.purpose
            && node.depth == watch.depth
            && watch.seen.load(Relaxed) > MAX_IGNORED_ENTRIES
        {
            return Ok(DirResult::Untracked(UntrackedReason::Ignored, watch.stat));
        }
        if let Some(known) = &node.context.known
            && dir.is_same(known)
        {
            return Ok(DirResult::Dir(known.clone()));
        }
        if let Purpose::Track(_) | Purpose::KeepTracked(_) = node.context.purpose
            && let Some(bytes) = dir.encode()
        {
            let collides =
                || Error::new(ErrorKind::Io, "the names in a directory are part of a SHA-1 collision attack");
            dir.tree = Some(self.batch.put(objects::ObjectKind::Tree, &bytes)?.ok_or_else(collides)?);
        }
        Ok(DirResult::Dir(Arc::new(dir)))
    }

    /// Returns the patterns of a directory's own `.gitignore`, if it is a regular file.
    fn patterns(
        &self,
        opened: &OpenDir,
        listing: &Listing,
        known: Option<&Arc<Dir>>,
        content: &mut Vec<u8>,
    ) -> Option<Arc<Patterns>> {
        let nth = (0..listing.entries.len()).find(|nth| listing.name(*nth) == b".gitignore")?;
        let before = known.and_then(|known| Some((known.find(b".gitignore")?, known.patterns.as_ref()?)));
        let stat = match disk::stat(&opened.handle, listing.name(nth)) {
            // Files that were ignored so far are not stored because their rules cannot be read.
            Err(error) if disk::is_denied(&error) => return before.map(|(_, patterns)| patterns.clone()),
            stat => stat.ok()?,
        };
        if stat.file_type() != FileType::File {
            return None;
        }
        if let Some((entry, patterns)) = before
            && entry.stat == stat
            && !entry.racy
        {
            return Some(patterns.clone());
        }
        match self.read_file(opened, b".gitignore", content) {
            Ok(FileRead::All(_)) => Some(Arc::new(Patterns::parse(content))),
            Err(error) if disk::is_denied(&error) => before.map(|(_, patterns)| patterns.clone()),
            _ => None,
        }
    }

    /// Stores a file or a link, and returns its entry; none if it no longer exists.
    fn visit_file(
        &self,
        node: &DirNode<WalkContext>,
        opened: &OpenDir,
        name: &[u8],
        stat: Stat,
        before: Option<DirEntry>,
        content: &mut Vec<u8>,
    ) -> Result<Option<DirEntry>> {
        if let Some(before) = before
            && before.stat == stat
            && !before.racy
            && before.child.is_none()
            && before.kind != EntryKind::Untracked(UntrackedReason::Ignored)
        {
            return Ok(Some(before));
        }
        let untracked = |reason, stat| Ok(Some(DirEntry { stat, ..DirEntry::new(EntryKind::Untracked(reason)) }));
        // A file that was kept so far is not deleted because its present version is not kept.
        let unkept = |reason, stat| match before.map(|before| (before.kind, before.id)) {
            Some((EntryKind::Tracked(mode) | EntryKind::Outdated(mode, _), id)) if mode != Mode::Directory => {
                Ok(Some(DirEntry { id, stat, ..DirEntry::new(EntryKind::Outdated(mode, reason)) }))
            }
            _ => untracked(reason, stat),
        };
        let (mode, stat) = match stat.file_type() {
            FileType::File if stat.size > self.max_file_size => {
                return unkept(UntrackedReason::TooLarge, stat);
            }
            FileType::File => match self.read_file(opened, name, content) {
                Ok(FileRead::All(stat)) => (if stat.is_executable() { Mode::Executable } else { Mode::File }, stat),
                Ok(FileRead::TooLarge(stat)) => return unkept(UntrackedReason::TooLarge, stat),
                Ok(FileRead::NotAFile) => return Ok(None),
                Err(error) if disk::is_gone(&error) => return Ok(None),
                Err(error) if disk::is_denied(&error) => return unkept(UntrackedReason::Special, stat),
                Err(error) => return Err(cannot_read(&child_path(node, name), error)),
            },
            FileType::Link => match disk::read_link(&opened.handle, name) {
                Ok(Some(target)) => {
                    content.clear();
                    content.extend_from_slice(&target);
                    (Mode::Link, stat)
                }
                // The name was a link a moment ago.
                Ok(None) => return Ok(None),
                Err(error) if disk::is_gone(&error) => return Ok(None),
                Err(error) => return Err(cannot_read(&child_path(node, name), error)),
            },
            // The directory can be listed, and not entered.
            FileType::Unknown => return unkept(UntrackedReason::Special, stat),
            _ => return untracked(UntrackedReason::Special, stat),
        };
        self.usage.add_bytes(content.len())?;
        if self.find_secret.is_some_and(|find| find(name)) {
            return untracked(UntrackedReason::Secret, stat);
        }
        if self.find_secret.is_some_and(|find| find(content)) {
            return unkept(UntrackedReason::Secret, stat);
        }
        let Some(id) = self.batch.put(objects::ObjectKind::Blob, content)? else {
            return unkept(UntrackedReason::Special, stat);
        };
        self.objects.cache_digest(id, Digest::compute(content));
        let racy = stat.changed >= self.since;
        Ok(Some(DirEntry { id, stat, racy, ..DirEntry::new(EntryKind::Tracked(mode)) }))
    }

    /// Reads a file until it did not change during a read, or `MAX_READ_ATTEMPTS` times; then the last read counts.
    fn read_file(&self, opened: &OpenDir, name: &[u8], content: &mut Vec<u8>) -> std::io::Result<FileRead> {
        let file = disk::open_file(&opened.handle, name)?;
        let mut before = disk::stat_open(&file)?;
        if before.file_type() != FileType::File {
            return Ok(FileRead::NotAFile);
        }
        for attempt in 0..MAX_READ_ATTEMPTS {
            if attempt > 0 {
                disk::rewind(&file)?;
            }
            content.clear();
            content.reserve(before.size.min(self.max_file_size) as usize + 1);
            disk::read_all(&file, content, self.max_file_size)?;
            if content.len() as u64 > self.max_file_size {
                return Ok(FileRead::TooLarge(disk::stat_open(&file)?));
            }
            let after = disk::stat_open(&file)?;
            if after == before && content.len() as u64 == after.size {
                return Ok(FileRead::All(after));
            }
            before = after;
        }
        // The file is being written to all the time. A change time in the future makes the next snapshot read it again.
        Ok(FileRead::All(Stat { changed: i64::MAX, ..before }))
    }

    /// Returns the metadata of a name; none if it no longer exists.
    fn stat_entry(&self, node: &DirNode<WalkContext>, opened: &OpenDir, name: &[u8]) -> Result<Option<Stat>> {
        match disk::stat(&opened.handle, name) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if disk::is_gone(&error) => Ok(None),
            // The permissions allow listing the directory, and not entering it.
            Err(error) if disk::is_denied(&error) => Ok(Some(Stat::default())),
            Err(error) => Err(cannot_read(&child_path(node, name), error)),
        }
    }

    /// Opens a directory.
    fn open(&self, node: &DirNode<WalkContext>, access: &DirAccess) -> std::io::Result<Handle> {
        match (access, &node.parent) {
            (DirAccess::Open(parent), _) => disk::open_dir(&parent.handle, &node.name),
            (DirAccess::ByPath, None) => disk::open_dir(self.root, b"."),
            (DirAccess::ByPath, Some((parent, _))) => disk::open_dir(&self.open_by_path(parent)?, &node.name),
        }
    }

    /// Returns the metadata of a directory.
    fn stat(&self, node: &DirNode<WalkContext>, access: &DirAccess) -> std::io::Result<Stat> {
        match (access, &node.parent) {
            (DirAccess::Open(parent), _) => disk::stat(&parent.handle, &node.name),
            (DirAccess::ByPath, None) => disk::stat_open(self.root),
            (DirAccess::ByPath, Some((parent, _))) => disk::stat(&self.open_by_path(parent)?, &node.name),
        }
    }

    fn open_by_path(&self, node: &DirNode<WalkContext>) -> std::io::Result<Handle> {
        disk::open_path(self.root, &node.path())
    }
}

/// The result of reading a file.
enum FileRead {
    All(Stat),
    TooLarge(Stat),
    /// The name is no longer a regular file.
    NotAFile,
}

impl DirEntry {
    pub(crate) fn new(kind: EntryKind) -> Self {
        let (stat, id) = (Stat::default(), ObjectId([0; 20]));
        DirEntry { start: 0, length: 0, racy: false, kind, child: None, stat, id }
    }

    fn is_directory(&self) -> bool {
        self.kind == EntryKind::Tracked(Mode::Directory)
            || self.child.is_some()
            || self.stat.file_type() == FileType::Directory
    }

    fn is_ignored(&self) -> bool {
        self.kind == EntryKind::Untracked(UntrackedReason::Ignored)
    }

    fn file_type(&self) -> FileType {
        match self.kind {
            _ if self.is_directory() => FileType::Directory,
            EntryKind::Tracked(Mode::Link) => FileType::Link,
            EntryKind::Tracked(_) => FileType::File,
            // The file type is not known if the permissions do not allow reading metadata.
            EntryKind::Untracked(_) if self.stat.mode == 0 => FileType::Unknown,
            EntryKind::Untracked(_) | EntryKind::Outdated(..) => self.stat.file_type(),
        }
    }
}

impl Dir {
    /// Fills a listing with the names of this directory, without reading it again.
    fn list(&self, listing: &mut Listing) {
        listing.clear();
        listing.names.extend_from_slice(&self.names);
        listing.entries.extend(self.entries.iter().map(|entry| (entry.start, entry.length, entry.file_type())));
    }

    /// Adds an entry after all others.
    pub(crate) fn push(&mut self, name: &[u8], mut entry: DirEntry) {
        (entry.start, entry.length) = (self.names.len() as u32, name.len() as u16);
        self.names.extend_from_slice(name);
        self.entries.push(entry);
    }
}

/// Returns the entry with a name, at or after a position; both sides are sorted by name.
fn find_from<'a>(dir: &'a Dir, position: &mut usize, name: &[u8]) -> Option<&'a DirEntry> {
    while let Some(entry) = dir.entries.get(*position) {
        match dir.name(entry).cmp(name) {
            std::cmp::Ordering::Less => *position += 1,
            std::cmp::Ordering::Equal => {
                *position += 1;
                return Some(entry);
            }
            std::cmp::Ordering::Greater => return None,
        }
    }
    None
}

/// Returns true if a file was removed that was tracked at this path, or below it.
fn was_removed(removed: &BTreeSet<Vec<u8>>, path: &[u8], is_directory: bool) -> bool {
    match is_directory {
        true => {
            let below = join_path(path, b"");
            removed.range(below.clone()..).next().is_some_and(|path| path.starts_with(&below))
        }
        false => removed.contains(path),
    }
}

/// Returns the path of a name in a directory.
fn child_path(node: &DirNode<WalkContext>, name: &[u8]) -> Vec<u8> {
    let mut path = node.path();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

fn cannot_read(path: &[u8], error: std::io::Error) -> Error {
    let text = if path.is_empty() { ".".into() } else { paths::path_text(path) };
    Error::new(ErrorKind::Io, format_args!("cannot read `{text}` in the workspace")).because(error)
}
