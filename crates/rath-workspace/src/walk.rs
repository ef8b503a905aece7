//! The one pass over a directory that a snapshot is: names and metadata of everything, the content of what changed.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::change::Digest;
use crate::change::UntrackedReason;
use rustix::fs::FileType;

use super::batch::Batch;
use super::dir::{Dir, DirEntry, EntryKind, Stat};
use super::dir_node::{DirAccess, DirNode, DirResult, OpenDir};
use super::disk::{self, Listing};
use super::ignore::{self, IgnoreLevel, Patterns, Rules};
use super::limits::{SnapshotLimits, SnapshotUsage};
use super::objects::{self, Objects};
use super::tree::{Mode, ObjectId};
use super::{paths, pool};
use crate::error::ErrorKind;
use crate::error::{Error, Result};

/// Directories nested deeper than this are not kept: git reads no tree that is.
pub(super) const MAX_DEPTH: usize = 2048;

/// An ignored directory with more in it than this is named as a finish_dir, by its own metadata.
pub(super) const MAX_IGNORED_ENTRIES: usize = 10_000;

/// How often a file is read again that changes while it is read.
const MAX_READ_ATTEMPTS: usize = 5;

/// What a directory is walked for.
struct WalkContext {
    known: Option<Arc<Dir>>,
    purpose: Purpose,
}

enum Purpose {
    /// To keep what the rules from above, and its own, let be kept.
    Track(Rules),
    /// To notice changes by metadata.
    Watch(Arc<WatchedDir>),
}

/// A directory that is ignored, with everything in it.
struct WatchedDir {
    /// What was seen in it so far.
    seen: AtomicUsize,
    stat: Stat,
    /// It is git's own.
    is_git: bool,
    depth: usize,
}

/// One pass.
pub(super) struct Walk<'a> {
    root: &'a OwnedFd,
    objects: &'a Objects,
    batch: &'a Batch<'a>,
    /// A file stamped with this moment or later may change again without a trace.
    since: i64,
    max_file_size: u64,
    usage: SnapshotUsage,
    open: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Scratch {
    listing: Listing,
    content: Vec<u8>,
    path: Vec<u8>,
}

type WalkJob = (Arc<DirNode<WalkContext>>, DirAccess);

/// Looks at everything in a directory, and reads what is not as it was known.
pub(super) fn walk(
    root: &OwnedFd,
    objects: &Objects,
    batch: &Batch<'_>,
    (max_file_size, limits): (u64, SnapshotLimits),
    known: Option<Arc<Dir>>,
) -> Result<Arc<Dir>> {
    let usage = SnapshotUsage::new(limits);
    let walk = Walk { root, objects, batch, since: disk::file_clock_now(), max_file_size, usage, open: Arc::default() };
    let result = Mutex::new(None);
    let node = DirNode::root(WalkContext { known, purpose: Purpose::Track(None) });
    pool::run(vec![(node, DirAccess::ByPath)], |job, scratch, more| {
        if let Some(made) = walk.visit(job, scratch, more)? {
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        }
        Ok(())
    })?;
    match result.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(DirResult::Dir(dir)) => Ok(dir),
        _ => Err(Error::new(ErrorKind::Io, "the workspace cannot be read; its directory may be gone or closed to us")),
    }
}

impl Walk<'_> {
    fn visit(
        &self,
        (node, access): WalkJob,
        scratch: &mut Scratch,
        more: &mut Vec<WalkJob>,
    ) -> Result<Option<DirResult>> {
        let finish_dir = |node: &DirNode<WalkContext>, dir: Dir| self.finish_dir(node, dir);
        if let Purpose::Watch(watch) = &node.context.purpose
            && watch.seen.load(Relaxed) > MAX_IGNORED_ENTRIES
        {
            return node.complete(DirResult::Gone, &finish_dir);
        }
        let opened = match self.open(&node, &access) {
            Ok(fd) => OpenDir::new(fd, &self.open),
            Err(error) if disk::is_gone(error) => return node.complete(DirResult::Gone, &finish_dir),
            Err(error) if disk::is_denied(error) => {
                let stat = self.stat(&node, &access).unwrap_or_default();
                let why = match node.context.purpose {
                    Purpose::Track(_) => UntrackedReason::Special,
                    Purpose::Watch(_) => UntrackedReason::Ignored,
                };
                return node.complete(DirResult::Untracked(why, stat), &finish_dir);
            }
            Err(error) => return Err(cannot_read(&node.path(), error.into())),
        };
        let mut dir = Dir::default();
        dir.own = disk::stat_fd(&opened.fd).map_err(|error| cannot_read(&node.path(), error.into()))?;
        dir.racy = dir.own.changed >= self.since;
        match &node.context.known {
            Some(known) if known.own == dir.own && !known.racy => known.list(&mut scratch.listing),
            _ => match scratch.listing.read(&opened.fd) {
                Err(error) if rustix::io::Errno::from_io_error(&error).is_some_and(disk::is_gone) => {
                    return node.complete(DirResult::Gone, &finish_dir);
                }
                listed => listed.map_err(|error| cannot_read(&node.path(), error))?,
            },
        }
        let before = more.len();
        match &node.context.purpose {
            Purpose::Track(rules) => self.visit_tracked(&node, rules, &opened, scratch, &mut dir, more)?,
            Purpose::Watch(watch) => self.visit_ignored(&node, watch, &opened, scratch, &mut dir, more)?,
        }
        let children = more.len() - before;
        node.fill(dir, children, &finish_dir)
    }

    /// Looks at a directory whose files are kept.
    fn visit_tracked(
        &self,
        node: &Arc<DirNode<WalkContext>>,
        above: &Rules,
        opened: &Arc<OpenDir>,
        scratch: &mut Scratch,
        dir: &mut Dir,
        more: &mut Vec<WalkJob>,
    ) -> Result<()> {
        let known = node.context.known.as_ref();
        let Scratch { listing, content, path } = scratch;
        self.usage.add_names(listing.entries.len())?;
        path.clear();
        dir.patterns = self.patterns(opened, listing, known, content);
        if above.is_some() || dir.patterns.is_some() {
            *path = node.path();
        }
        let rules = match &dir.patterns {
            Some(patterns) => IgnoreLevel::push(above, patterns, path),
            None => above.clone(),
        };
        dir.rules = ignore::rules_id(&rules);
        // By the same rules, what was ignored still is, and what was not is not.
        let same_rules = known.is_some_and(|known| known.rules == dir.rules);
        if !path.is_empty() {
            path.push(b'/');
        }
        let base = path.len();
        let mut position = 0;
        dir.names.reserve(listing.names.len());
        dir.entries.reserve(listing.entries.len());
        let first = more.len();
        for nth in 0..listing.entries.len() {
            let (name, file_type) = (listing.name(nth), listing.entries[nth].2);
            let is_rath = name.eq_ignore_ascii_case(b".rath");
            if is_rath && node.depth == 0 {
                continue;
            }
            let before = known.and_then(|known| find_from(known, &mut position, name).map(|entry| (known, entry)));
            let mut stat = None;
            let file_type = match file_type {
                FileType::Unknown => match self.stat_entry(node, opened, name)? {
                    None => continue,
                    Some(found) => stat.insert(found).file_type(),
                },
                known => known,
            };
            let is_directory = file_type == FileType::Directory;
            let is_git = name.eq_ignore_ascii_case(b".git");
            let ignored = is_git
                || is_rath
                || is_temporary(name)
                || match before {
                    Some((_, entry)) if same_rules && is_directory == entry.is_directory() => entry.is_ignored(),
                    _ => {
                        rules.is_some() && {
                            path.truncate(base);
                            path.extend_from_slice(name);
                            ignore::ignores(&rules, path, is_directory)
                        }
                    }
                };
            // What is known of a directory from when it was ignored says nothing of one that is not, and the other access round.
            let child = before.filter(|(_, entry)| entry.is_ignored() == ignored);
            let child = child.and_then(|(known, entry)| known.child(entry)).cloned();
            let mut entry = DirEntry::new(EntryKind::Tracked(Mode::Directory));
            if is_directory && !ignored && node.depth < MAX_DEPTH {
                entry.child = Some((more.len() - first) as u32);
                let context = WalkContext { known: child, purpose: Purpose::Track(rules.clone()) };
                more.push((node.child(more.len() - first, name, context), opened.access()));
                dir.push(name, entry);
                continue;
            }
            let Some(stat) = stat.map_or_else(|| self.stat_entry(node, opened, name), |stat| Ok(Some(stat)))? else {
                continue;
            };
            entry.stat = stat;
            if ignored {
                entry.kind = EntryKind::Untracked(UntrackedReason::Ignored);
                // One that held too much is looked into again only when it changed itself.
                let held_too_much =
                    child.is_none() && before.is_some_and(|(_, entry)| entry.is_ignored() && entry.stat == stat);
                if is_directory && !held_too_much && node.depth < MAX_DEPTH {
                    entry.child = Some((more.len() - first) as u32);
                    let watch = WatchedDir { seen: AtomicUsize::new(0), stat, is_git, depth: node.depth + 1 };
                    let context = WalkContext { known: child, purpose: Purpose::Watch(Arc::new(watch)) };
                    more.push((node.child(more.len() - first, name, context), opened.access()));
                }
            } else if is_directory {
                entry.kind = EntryKind::Untracked(UntrackedReason::Special);
            } else {
                let before = before.map(|(_, entry)| *entry);
                match self.visit_file(node, opened, name, stat, before, content)? {
                    None => continue,
                    Some(found) => entry = found,
                }
            }
            dir.push(name, entry);
        }
        Ok(())
    }

    /// Looks at a directory that is ignored.
    fn visit_ignored(
        &self,
        node: &Arc<DirNode<WalkContext>>,
        watch: &Arc<WatchedDir>,
        opened: &Arc<OpenDir>,
        scratch: &mut Scratch,
        dir: &mut Dir,
        more: &mut Vec<WalkJob>,
    ) -> Result<()> {
        let listing = &scratch.listing;
        if watch.seen.fetch_add(listing.entries.len(), Relaxed) + listing.entries.len() > MAX_IGNORED_ENTRIES {
            return Ok(());
        }
        let first = more.len();
        let mut position = 0;
        for nth in 0..listing.entries.len() {
            let name = listing.name(nth);
            // Git writes no object without writing somewhere else too, and there may be very many.
            if watch.is_git && node.depth == watch.depth && name == b"objects" {
                continue;
            }
            let Some(stat) = self.stat_entry(node, opened, name)? else { continue };
            let mut entry = DirEntry { stat, ..DirEntry::new(EntryKind::Untracked(UntrackedReason::Ignored)) };
            if stat.file_type() == FileType::Directory && node.depth < MAX_DEPTH {
                let known = node.context.known.as_ref();
                let child = known.and_then(|known| known.child(find_from(known, &mut position, name)?)).cloned();
                entry.child = Some((more.len() - first) as u32);
                let context = WalkContext { known: child, purpose: Purpose::Watch(watch.clone()) };
                more.push((node.child(more.len() - first, name, context), opened.access()));
                // The time of a directory changes with what is in it, which is looked at itself.
                entry.stat = Stat { mode: stat.mode, ..Stat::default() };
            }
            dir.push(name, entry);
        }
        Ok(())
    }

    /// What a directory becomes when everything in it is known.
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
        if let Purpose::Track(_) = node.context.purpose
            && let Some(bytes) = dir.encode()
        {
            let collides = || Error::new(ErrorKind::Io, "a directory has names that are made to collide with others");
            dir.tree = Some(self.batch.put(objects::ObjectKind::Tree, &bytes)?.ok_or_else(collides)?);
        }
        Ok(DirResult::Dir(Arc::new(dir)))
    }

    /// The patterns of a directory's own `.gitignore`, if it has one that is a file.
    fn patterns(
        &self,
        opened: &OpenDir,
        listing: &Listing,
        known: Option<&Arc<Dir>>,
        content: &mut Vec<u8>,
    ) -> Option<Arc<Patterns>> {
        let nth = (0..listing.entries.len()).find(|nth| listing.name(*nth) == b".gitignore")?;
        let stat = disk::stat(&opened.fd, listing.name(nth)).ok()?;
        if stat.file_type() != FileType::RegularFile {
            return None;
        }
        let before = known.and_then(|known| Some((known.find(b".gitignore")?, known.patterns.as_ref()?)));
        if let Some((entry, patterns)) = before
            && entry.stat == stat
            && !entry.racy
        {
            return Some(patterns.clone());
        }
        match self.read_file(opened, b".gitignore", content) {
            Ok(FileRead::All(_)) => Some(Arc::new(Patterns::parse(content))),
            _ => None,
        }
    }

    /// What a file, a link or anything else that is no directory is kept as, if it is still there.
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
        let unkept = |why, stat| Ok(Some(DirEntry { stat, ..DirEntry::new(EntryKind::Untracked(why)) }));
        let (mode, stat) = match stat.file_type() {
            FileType::RegularFile if stat.size > self.max_file_size => return unkept(UntrackedReason::TooLarge, stat),
            FileType::RegularFile => match self.read_file(opened, name, content) {
                Ok(FileRead::All(stat)) => (if stat.is_executable() { Mode::Executable } else { Mode::File }, stat),
                Ok(FileRead::TooLarge(stat)) => return unkept(UntrackedReason::TooLarge, stat),
                Ok(FileRead::NotAFile) => return Ok(None),
                Err(error) if disk::is_gone(error) => return Ok(None),
                Err(error) if disk::is_denied(error) => return unkept(UntrackedReason::Special, stat),
                Err(error) => return Err(cannot_read(&child_path(node, name), error.into())),
            },
            FileType::Symlink => match rustix::fs::readlinkat(&opened.fd, name, Vec::new()) {
                Ok(target) => {
                    content.clear();
                    content.extend_from_slice(target.as_bytes());
                    (Mode::Link, stat)
                }
                // It was a link a moment ago.
                Err(rustix::io::Errno::INVAL) => return Ok(None),
                Err(error) if disk::is_gone(error) => return Ok(None),
                Err(error) => return Err(cannot_read(&child_path(node, name), error.into())),
            },
            _ => return unkept(UntrackedReason::Special, stat),
        };
        self.usage.add_bytes(content.len())?;
        let Some(id) = self.batch.put(objects::ObjectKind::Blob, content)? else {
            return unkept(UntrackedReason::Special, stat);
        };
        self.objects.cache_digest(id, Digest::compute(content));
        let racy = stat.changed >= self.since;
        Ok(Some(DirEntry { id, stat, racy, ..DirEntry::new(EntryKind::Tracked(mode)) }))
    }

    /// Reads a file until it holds still, or often enough: then what was read last is what counts.
    fn read_file(&self, opened: &OpenDir, name: &[u8], content: &mut Vec<u8>) -> rustix::io::Result<FileRead> {
        let file = disk::open_file(&opened.fd, name)?;
        let mut before = disk::stat_fd(&file)?;
        if before.file_type() != FileType::RegularFile {
            return Ok(FileRead::NotAFile);
        }
        for attempt in 0..MAX_READ_ATTEMPTS {
            if attempt > 0 {
                rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
            }
            content.clear();
            content.reserve(before.size.min(self.max_file_size) as usize + 1);
            disk::read_all(&file, content, self.max_file_size)?;
            if content.len() as u64 > self.max_file_size {
                return Ok(FileRead::TooLarge(disk::stat_fd(&file)?));
            }
            let after = disk::stat_fd(&file)?;
            if after == before && content.len() as u64 == after.size {
                return Ok(FileRead::All(after));
            }
            before = after;
        }
        // It is written to all the time. No time is in the future, so that it is read again the next time.
        Ok(FileRead::All(Stat { changed: i64::MAX, ..before }))
    }

    /// What the file system says of a name, if it is still there.
    fn stat_entry(&self, node: &DirNode<WalkContext>, opened: &OpenDir, name: &[u8]) -> Result<Option<Stat>> {
        match disk::stat(&opened.fd, name) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if disk::is_gone(error) => Ok(None),
            // A directory that may be listed and not entered.
            Err(error) if disk::is_denied(error) => Ok(Some(Stat::default())),
            Err(error) => Err(cannot_read(&child_path(node, name), error.into())),
        }
    }

    fn open(&self, node: &DirNode<WalkContext>, access: &DirAccess) -> rustix::io::Result<OwnedFd> {
        match (access, &node.above) {
            (DirAccess::Open(above), _) => disk::open_dir(&above.fd, &node.name),
            (DirAccess::ByPath, None) => disk::open_dir(self.root, b"."),
            (DirAccess::ByPath, Some((above, _))) => disk::open_dir(&self.reopen(above)?, &node.name),
        }
    }

    fn stat(&self, node: &DirNode<WalkContext>, access: &DirAccess) -> rustix::io::Result<Stat> {
        match (access, &node.above) {
            (DirAccess::Open(above), _) => disk::stat(&above.fd, &node.name),
            (DirAccess::ByPath, None) => disk::stat_fd(self.root),
            (DirAccess::ByPath, Some((above, _))) => disk::stat(&self.reopen(above)?, &node.name),
        }
    }

    fn reopen(&self, node: &DirNode<WalkContext>) -> rustix::io::Result<OwnedFd> {
        disk::open_path(self.root, &node.path())
    }
}

enum FileRead {
    All(Stat),
    TooLarge(Stat),
    /// It is no file any more.
    NotAFile,
}

impl DirEntry {
    pub(super) fn new(kind: EntryKind) -> Self {
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
            EntryKind::Tracked(Mode::Link) => FileType::Symlink,
            EntryKind::Tracked(_) => FileType::RegularFile,
            // Of what is closed to us nothing is known.
            EntryKind::Untracked(_) if self.stat.mode == 0 => FileType::Unknown,
            EntryKind::Untracked(_) => self.stat.file_type(),
        }
    }
}

impl Dir {
    /// The names that were found, as a directory would list them.
    fn list(&self, listing: &mut Listing) {
        listing.names.clear();
        listing.names.extend_from_slice(&self.names);
        listing.entries.clear();
        listing.entries.extend(self.entries.iter().map(|entry| (entry.start, entry.length, entry.file_type())));
    }

    /// Adds an entry after all others.
    pub(super) fn push(&mut self, name: &[u8], mut entry: DirEntry) {
        (entry.start, entry.length) = (self.names.len() as u32, name.len() as u16);
        self.names.extend_from_slice(name);
        self.entries.push(entry);
    }
}

/// The entry of this name, at or after a position: both sides are in the order of names.
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

fn child_path(node: &DirNode<WalkContext>, name: &[u8]) -> Vec<u8> {
    let mut path = node.path();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

fn cannot_read(path: &[u8], error: std::io::Error) -> Error {
    let shown = if path.is_empty() { ".".into() } else { paths::path_text(path) };
    Error::new(ErrorKind::Io, format_args!("cannot read `{shown}` in the workspace")).because(error)
}

/// Returns true for a file that is written under another name and context to be renamed to its own.
fn is_temporary(name: &[u8]) -> bool {
    let middle = name.strip_prefix(b".rath-").and_then(|rest| rest.strip_suffix(b".tmp"));
    middle.is_some_and(|middle| middle.len() == 32 && middle.iter().all(u8::is_ascii_hexdigit))
}
