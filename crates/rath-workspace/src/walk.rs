//! The one pass over a directory that a snapshot is: names and metadata of everything, the content of what changed.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::change::Digest;
use crate::change::Untracked;
use rustix::fs::FileType;

use super::batch::Batch;
use super::dir::{Dir, Entry, Kind, Stat};
use super::disk::{self, Listing};
use super::ignore::{self, Level, Patterns, Rules};
use super::most::{Found, Most};
use super::node::{Made, Node, OpenDir, Way};
use super::objects::{self, Objects};
use super::tree::{Mode, ObjectId};
use super::{pool, quote};
use crate::error::ErrorKind;
use crate::error::{Error, Result};

/// Directories nested deeper than this are not kept: git reads no tree that is.
pub(super) const DEEPEST: usize = 2048;

/// An ignored directory with more in it than this is named as a whole, by its own metadata.
pub(super) const WATCHED: usize = 10_000;

/// How often a file is read again that changes while it is read.
const ATTEMPTS: usize = 5;

/// What a directory is walked for.
struct About {
    known: Option<Arc<Dir>>,
    purpose: Purpose,
}

enum Purpose {
    /// To keep what the rules from above, and its own, let be kept.
    Keep(Rules),
    /// To notice changes by metadata.
    Watch(Arc<Watch>),
}

/// A directory that is ignored, with everything in it.
struct Watch {
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
    largest: u64,
    found: Found,
    open: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Scratch {
    listing: Listing,
    content: Vec<u8>,
    path: Vec<u8>,
}

type Job = (Arc<Node<About>>, Way);

/// Looks at everything in a directory, and reads what is not as it was known.
pub(super) fn walk(
    root: &OwnedFd,
    objects: &Objects,
    batch: &Batch<'_>,
    (largest, most): (u64, Most),
    known: Option<Arc<Dir>>,
) -> Result<Arc<Dir>> {
    let found = Found::new(most);
    let walk = Walk { root, objects, batch, since: disk::now(), largest, found, open: Arc::default() };
    let result = Mutex::new(None);
    let node = Node::root(About { known, purpose: Purpose::Keep(None) });
    pool::run(vec![(node, Way::Path)], |job, scratch, more| {
        if let Some(made) = walk.visit(job, scratch, more)? {
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        }
        Ok(())
    })?;
    match result.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(Made::Dir(dir)) => Ok(dir),
        _ => Err(Error::new(ErrorKind::Io, "the workspace cannot be read; its directory may be gone or closed to us")),
    }
}

impl Walk<'_> {
    fn visit(&self, (node, way): Job, scratch: &mut Scratch, more: &mut Vec<Job>) -> Result<Option<Made>> {
        let whole = |node: &Node<About>, dir: Dir| self.whole(node, dir);
        if let Purpose::Watch(watch) = &node.about.purpose
            && watch.seen.load(Relaxed) > WATCHED
        {
            return node.made(Made::Gone, &whole);
        }
        let opened = match self.open(&node, &way) {
            Ok(fd) => OpenDir::new(fd, &self.open),
            Err(error) if disk::is_gone(error) => return node.made(Made::Gone, &whole),
            Err(error) if disk::is_closed(error) => {
                let stat = self.stat(&node, &way).unwrap_or_default();
                let why = match node.about.purpose {
                    Purpose::Keep(_) => Untracked::Special,
                    Purpose::Watch(_) => Untracked::Ignored,
                };
                return node.made(Made::Unkept(why, stat), &whole);
            }
            Err(error) => return Err(failed(&node.path(), error.into())),
        };
        let mut dir = Dir::default();
        dir.own = disk::stat_of(&opened.fd).map_err(|error| failed(&node.path(), error.into()))?;
        dir.racy = dir.own.changed >= self.since;
        match &node.about.known {
            Some(known) if known.own == dir.own && !known.racy => known.list(&mut scratch.listing),
            _ => match scratch.listing.read(&opened.fd) {
                Err(error) if rustix::io::Errno::from_io_error(&error).is_some_and(disk::is_gone) => {
                    return node.made(Made::Gone, &whole);
                }
                listed => listed.map_err(|error| failed(&node.path(), error))?,
            },
        }
        let before = more.len();
        match &node.about.purpose {
            Purpose::Keep(rules) => self.keep(&node, rules, &opened, scratch, &mut dir, more)?,
            Purpose::Watch(watch) => self.watch(&node, watch, &opened, scratch, &mut dir, more)?,
        }
        let children = more.len() - before;
        node.found(dir, children, &whole)
    }

    /// Looks at a directory whose files are kept.
    fn keep(
        &self,
        node: &Arc<Node<About>>,
        above: &Rules,
        opened: &Arc<OpenDir>,
        scratch: &mut Scratch,
        dir: &mut Dir,
        more: &mut Vec<Job>,
    ) -> Result<()> {
        let known = node.about.known.as_ref();
        let Scratch { listing, content, path } = scratch;
        self.found.names(listing.entries.len())?;
        path.clear();
        dir.patterns = self.patterns(opened, listing, known, content);
        if above.is_some() || dir.patterns.is_some() {
            *path = node.path();
        }
        let rules = match &dir.patterns {
            Some(patterns) => Level::below(above, patterns, path),
            None => above.clone(),
        };
        dir.rules = ignore::id(&rules);
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
            let is_ours = name.eq_ignore_ascii_case(b".rath");
            if is_ours && node.depth == 0 {
                continue;
            }
            let before = known.and_then(|known| seek(known, &mut position, name).map(|entry| (known, entry)));
            let mut stat = None;
            let file_type = match file_type {
                FileType::Unknown => match self.look(node, opened, name)? {
                    None => continue,
                    Some(found) => stat.insert(found).file_type(),
                },
                known => known,
            };
            let is_directory = file_type == FileType::Directory;
            let is_git = name.eq_ignore_ascii_case(b".git");
            let ignored = is_git
                || is_ours
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
            // What is known of a directory from when it was ignored says nothing of one that is not, and the other way round.
            let child = before.filter(|(_, entry)| entry.is_ignored() == ignored);
            let child = child.and_then(|(known, entry)| known.child(entry)).cloned();
            let mut entry = Entry::new(Kind::Kept(Mode::Directory));
            if is_directory && !ignored && node.depth < DEEPEST {
                entry.child = Some((more.len() - first) as u32);
                let about = About { known: child, purpose: Purpose::Keep(rules.clone()) };
                more.push((node.below(more.len() - first, name, about), opened.way()));
                dir.push(name, entry);
                continue;
            }
            let Some(stat) = stat.map_or_else(|| self.look(node, opened, name), |stat| Ok(Some(stat)))? else {
                continue;
            };
            entry.stat = stat;
            if ignored {
                entry.kind = Kind::Unkept(Untracked::Ignored);
                // One that held too much is looked into again only when it changed itself.
                let held_too_much =
                    child.is_none() && before.is_some_and(|(_, entry)| entry.is_ignored() && entry.stat == stat);
                if is_directory && !held_too_much && node.depth < DEEPEST {
                    entry.child = Some((more.len() - first) as u32);
                    let watch = Watch { seen: AtomicUsize::new(0), stat, is_git, depth: node.depth + 1 };
                    let about = About { known: child, purpose: Purpose::Watch(Arc::new(watch)) };
                    more.push((node.below(more.len() - first, name, about), opened.way()));
                }
            } else if is_directory {
                entry.kind = Kind::Unkept(Untracked::Special);
            } else {
                let before = before.map(|(_, entry)| *entry);
                match self.leaf(node, opened, name, stat, before, content)? {
                    None => continue,
                    Some(found) => entry = found,
                }
            }
            dir.push(name, entry);
        }
        Ok(())
    }

    /// Looks at a directory that is ignored.
    fn watch(
        &self,
        node: &Arc<Node<About>>,
        watch: &Arc<Watch>,
        opened: &Arc<OpenDir>,
        scratch: &mut Scratch,
        dir: &mut Dir,
        more: &mut Vec<Job>,
    ) -> Result<()> {
        let listing = &scratch.listing;
        if watch.seen.fetch_add(listing.entries.len(), Relaxed) + listing.entries.len() > WATCHED {
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
            let Some(stat) = self.look(node, opened, name)? else { continue };
            let mut entry = Entry { stat, ..Entry::new(Kind::Unkept(Untracked::Ignored)) };
            if stat.file_type() == FileType::Directory && node.depth < DEEPEST {
                let known = node.about.known.as_ref();
                let child = known.and_then(|known| known.child(seek(known, &mut position, name)?)).cloned();
                entry.child = Some((more.len() - first) as u32);
                let about = About { known: child, purpose: Purpose::Watch(watch.clone()) };
                more.push((node.below(more.len() - first, name, about), opened.way()));
                // The time of a directory changes with what is in it, which is looked at itself.
                entry.stat = Stat { mode: stat.mode, ..Stat::default() };
            }
            dir.push(name, entry);
        }
        Ok(())
    }

    /// What a directory becomes when everything in it is known.
    fn whole(&self, node: &Node<About>, mut dir: Dir) -> Result<Made> {
        if let Purpose::Watch(watch) = &node.about.purpose
            && node.depth == watch.depth
            && watch.seen.load(Relaxed) > WATCHED
        {
            return Ok(Made::Unkept(Untracked::Ignored, watch.stat));
        }
        if let Some(known) = &node.about.known
            && dir.is(known)
        {
            return Ok(Made::Dir(known.clone()));
        }
        if let Purpose::Keep(_) = node.about.purpose
            && let Some(bytes) = dir.encode()
        {
            let collides = || Error::new(ErrorKind::Io, "a directory has names that are made to collide with others");
            dir.tree = Some(self.batch.put(objects::Kind::Tree, &bytes)?.ok_or_else(collides)?);
        }
        Ok(Made::Dir(Arc::new(dir)))
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
        match self.read(opened, b".gitignore", content) {
            Ok(Read::All(_)) => Some(Arc::new(Patterns::parse(content))),
            _ => None,
        }
    }

    /// What a file, a link or anything else that is no directory is kept as, if it is still there.
    fn leaf(
        &self,
        node: &Node<About>,
        opened: &OpenDir,
        name: &[u8],
        stat: Stat,
        before: Option<Entry>,
        content: &mut Vec<u8>,
    ) -> Result<Option<Entry>> {
        if let Some(before) = before
            && before.stat == stat
            && !before.racy
            && before.child.is_none()
            && before.kind != Kind::Unkept(Untracked::Ignored)
        {
            return Ok(Some(before));
        }
        let unkept = |why, stat| Ok(Some(Entry { stat, ..Entry::new(Kind::Unkept(why)) }));
        let (mode, stat) = match stat.file_type() {
            FileType::RegularFile if stat.size > self.largest => return unkept(Untracked::TooLarge, stat),
            FileType::RegularFile => match self.read(opened, name, content) {
                Ok(Read::All(stat)) => (if stat.is_executable() { Mode::Executable } else { Mode::File }, stat),
                Ok(Read::TooLarge(stat)) => return unkept(Untracked::TooLarge, stat),
                Ok(Read::Other) => return Ok(None),
                Err(error) if disk::is_gone(error) => return Ok(None),
                Err(error) if disk::is_closed(error) => return unkept(Untracked::Special, stat),
                Err(error) => return Err(failed(&below(node, name), error.into())),
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
                Err(error) => return Err(failed(&below(node, name), error.into())),
            },
            _ => return unkept(Untracked::Special, stat),
        };
        self.found.bytes(content.len())?;
        let Some(id) = self.batch.put(objects::Kind::Blob, content)? else {
            return unkept(Untracked::Special, stat);
        };
        self.objects.remember(id, Digest::of(content));
        let racy = stat.changed >= self.since;
        Ok(Some(Entry { id, stat, racy, ..Entry::new(Kind::Kept(mode)) }))
    }

    /// Reads a file until it holds still, or often enough: then what was read last is what counts.
    fn read(&self, opened: &OpenDir, name: &[u8], content: &mut Vec<u8>) -> rustix::io::Result<Read> {
        let file = disk::open_file(&opened.fd, name)?;
        let mut before = disk::stat_of(&file)?;
        if before.file_type() != FileType::RegularFile {
            return Ok(Read::Other);
        }
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
            }
            content.clear();
            content.reserve(before.size.min(self.largest) as usize + 1);
            disk::read_all(&file, content, self.largest)?;
            if content.len() as u64 > self.largest {
                return Ok(Read::TooLarge(disk::stat_of(&file)?));
            }
            let after = disk::stat_of(&file)?;
            if after == before && content.len() as u64 == after.size {
                return Ok(Read::All(after));
            }
            before = after;
        }
        // It is written to all the time. No time is in the future, so that it is read again the next time.
        Ok(Read::All(Stat { changed: i64::MAX, ..before }))
    }

    /// What the file system says of a name, if it is still there.
    fn look(&self, node: &Node<About>, opened: &OpenDir, name: &[u8]) -> Result<Option<Stat>> {
        match disk::stat(&opened.fd, name) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if disk::is_gone(error) => Ok(None),
            // A directory that may be listed and not entered.
            Err(error) if disk::is_closed(error) => Ok(Some(Stat::default())),
            Err(error) => Err(failed(&below(node, name), error.into())),
        }
    }

    fn open(&self, node: &Node<About>, way: &Way) -> rustix::io::Result<OwnedFd> {
        match (way, &node.above) {
            (Way::Open(above), _) => disk::open_dir(&above.fd, &node.name),
            (Way::Path, None) => disk::open_dir(self.root, b"."),
            (Way::Path, Some((above, _))) => disk::open_dir(&self.reopen(above)?, &node.name),
        }
    }

    fn stat(&self, node: &Node<About>, way: &Way) -> rustix::io::Result<Stat> {
        match (way, &node.above) {
            (Way::Open(above), _) => disk::stat(&above.fd, &node.name),
            (Way::Path, None) => disk::stat_of(self.root),
            (Way::Path, Some((above, _))) => disk::stat(&self.reopen(above)?, &node.name),
        }
    }

    fn reopen(&self, node: &Node<About>) -> rustix::io::Result<OwnedFd> {
        disk::open_path(self.root, &node.path())
    }
}

enum Read {
    All(Stat),
    TooLarge(Stat),
    /// It is no file any more.
    Other,
}

impl Entry {
    pub(super) fn new(kind: Kind) -> Self {
        let (stat, id) = (Stat::default(), ObjectId([0; 20]));
        Entry { start: 0, length: 0, racy: false, kind, child: None, stat, id }
    }

    fn is_directory(&self) -> bool {
        self.kind == Kind::Kept(Mode::Directory) || self.child.is_some() || self.stat.file_type() == FileType::Directory
    }

    fn is_ignored(&self) -> bool {
        self.kind == Kind::Unkept(Untracked::Ignored)
    }

    fn file_type(&self) -> FileType {
        match self.kind {
            _ if self.is_directory() => FileType::Directory,
            Kind::Kept(Mode::Link) => FileType::Symlink,
            Kind::Kept(_) => FileType::RegularFile,
            // Of what is closed to us nothing is known.
            Kind::Unkept(_) if self.stat.mode == 0 => FileType::Unknown,
            Kind::Unkept(_) => self.stat.file_type(),
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
    pub(super) fn push(&mut self, name: &[u8], mut entry: Entry) {
        (entry.start, entry.length) = (self.names.len() as u32, name.len() as u16);
        self.names.extend_from_slice(name);
        self.entries.push(entry);
    }
}

/// The entry of this name, at or after a position: both sides are in the order of names.
fn seek<'a>(dir: &'a Dir, position: &mut usize, name: &[u8]) -> Option<&'a Entry> {
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

fn below(node: &Node<About>, name: &[u8]) -> Vec<u8> {
    let mut path = node.path();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

fn failed(path: &[u8], error: std::io::Error) -> Error {
    let shown = if path.is_empty() { ".".into() } else { quote::shown(path) };
    Error::new(ErrorKind::Io, format_args!("cannot read `{shown}` in the workspace")).because(error)
}

/// Returns true for a file that is written under another name and about to be renamed to its own.
fn is_temporary(name: &[u8]) -> bool {
    let middle = name.strip_prefix(b".rath-").and_then(|rest| rest.strip_suffix(b".tmp"));
    middle.is_some_and(|middle| middle.len() == 32 && middle.iter().all(u8::is_ascii_hexdigit))
}
