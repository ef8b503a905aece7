//! The index: metadata of the files of a workspace, stored in a file between processes.
//!
//! An index is used only if it is complete, belongs to this workspace and these objects, and names no object that can
//! have been lost since: an index that was written before its objects were synced is used only until the machine is
//! restarted. Files that were changed shortly before the index was written are read again after a restart: if the power
//! went, the disk may have their metadata and not their content.

use std::path::Path;
use std::sync::Arc;

use crate::change::UntrackedReason;
use crate::dir::{Dir, DirEntry, EntryKind, Stat};
use crate::temporaries::Temporaries;
use crate::tree::{Mode, ObjectId};
use crate::{disk, objects, regular_file};

/// The first bytes of an index.
const MAGIC: &[u8; 16] = b"rath workspace 2";

/// The age from which on the content of a file counts as being on the disk, in nanoseconds. Linux writes changed pages after
/// 30 seconds, or 10 minutes if it saves power.
const WRITTEN_BACK_AFTER: i64 = 10 * 60 * 1_000_000_000;

/// The workspace that an index belongs to.
#[derive(Clone, Copy)]
pub(crate) struct IndexKey {
    /// The identity of the folder of objects.
    pub(crate) objects: [u8; 16],
    /// The inode of the directory; 0 for the base version of forks.
    pub(crate) root: u64,
    /// The size limit for tracked files that the snapshot used.
    pub(crate) max_file_size: u64,
    /// A hash of the paths that the snapshot left out; 0 for none.
    pub(crate) left_out: u64,
}

/// An index that was read from a file.
pub(crate) struct LoadedIndex {
    /// The contents of the directory.
    pub(crate) dir: Arc<Dir>,
    /// True if the objects that the index names were durable when it was written.
    pub(crate) synced: bool,
}

/// Writes an index. The file is replaced as a whole.
pub(crate) fn write(
    path: &Path,
    temporaries: &Temporaries,
    key: &IndexKey,
    dir: &Dir,
    synced: bool,
) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(1 << 16);
    write_header(&mut bytes, key);
    bytes.push(u8::from(synced));
    bytes.extend_from_slice(&boot_id().unwrap_or([0; 36]));
    bytes.extend_from_slice(&disk::file_clock_now().to_le_bytes());
    // A directory is written before its subdirectories, and flags them in its entries: no offsets are needed.
    let mut rest = vec![dir];
    while let Some(dir) = rest.pop() {
        write_dir(&mut bytes, dir);
        rest.extend(dir.children.iter().map(|child| &**child).rev());
    }
    let checksum = blake3::hash(&bytes);
    bytes.extend_from_slice(checksum.as_bytes());
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)?;
    temporaries.write_new(path, &bytes)
}

/// Removes an index, if there is one.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Reads an index; none if it is missing, damaged, or cannot be trusted.
pub(crate) fn read(path: &Path, key: &IndexKey) -> Option<LoadedIndex> {
    let bytes = regular_file::read_at_most(path, objects::MAX_INDEX_BYTES).ok()?;
    let (bytes, checksum) = bytes.split_last_chunk::<32>()?;
    if blake3::hash(bytes).as_bytes() != checksum {
        return None;
    }
    let mut wanted = Vec::new();
    write_header(&mut wanted, key);
    let mut rest = bytes.strip_prefix(&*wanted)?;
    let synced = *rest.split_off_first()? == 1;
    let written_during = rest.split_off(..36)?;
    let is_this_boot = Some(written_during) == boot_id().as_ref().map(<[u8; 36]>::as_slice);
    if !synced && !is_this_boot {
        return None;
    }
    let written_at = read_array(&mut rest).map(i64::from_le_bytes)?;
    let trusted_before = if is_this_boot { i64::MAX } else { written_at.saturating_sub(WRITTEN_BACK_AFTER) };
    let dir = read_dirs(&mut rest, trusted_before)?;
    rest.is_empty().then_some(LoadedIndex { dir, synced })
}

/// Returns the tree of the directory that an index describes; none if it is damaged.
pub(crate) fn tree_of(path: &Path) -> Option<ObjectId> {
    let bytes = regular_file::read_at_most(path, objects::MAX_INDEX_BYTES).ok()?;
    let header = MAGIC.len() + 16 + 8 + 8 + 1 + 36 + 8;
    let mut rest = bytes.strip_prefix(MAGIC)?.get(header - MAGIC.len()..)?;
    read_dir(&mut rest, i64::MAX).map(|(dir, _)| dir.tree())
}

fn write_header(bytes: &mut Vec<u8>, key: &IndexKey) {
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&key.objects);
    bytes.extend_from_slice(&key.root.to_le_bytes());
    bytes.extend_from_slice(&key.max_file_size.to_le_bytes());
    bytes.extend_from_slice(&key.left_out.to_le_bytes());
}

/// Returns the id that the kernel generates at every start of the machine.
pub(crate) fn boot_id() -> Option<[u8; 36]> {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    text.get(..36)?.try_into().ok()
}

fn write_dir(bytes: &mut Vec<u8>, dir: &Dir) {
    bytes.extend_from_slice(&(dir.entries.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&dir.rules);
    write_stat(bytes, dir.own);
    bytes.push(u8::from(dir.tree.is_some()) | u8::from(dir.racy) << 1);
    bytes.extend_from_slice(&dir.tree().0);
    for entry in &dir.entries {
        let name = dir.name(entry);
        bytes.extend_from_slice(&entry.length.to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.push(kind_number(entry.kind) | u8::from(entry.racy) << 6 | u8::from(entry.child.is_some()) << 7);
        write_stat(bytes, entry.stat);
        bytes.extend_from_slice(&entry.id.0);
    }
}

fn write_stat(bytes: &mut Vec<u8>, stat: Stat) {
    let Stat { inode, size, modified, changed, mode } = stat;
    bytes.extend_from_slice(&inode.to_le_bytes());
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(&modified.to_le_bytes());
    bytes.extend_from_slice(&changed.to_le_bytes());
    bytes.extend_from_slice(&mode.to_le_bytes());
}

fn read_stat(rest: &mut &[u8]) -> Option<Stat> {
    Some(Stat {
        inode: read_array(rest).map(u64::from_le_bytes)?,
        size: read_array(rest).map(u64::from_le_bytes)?,
        modified: read_array(rest).map(i64::from_le_bytes)?,
        changed: read_array(rest).map(i64::from_le_bytes)?,
        mode: read_array(rest).map(u32::from_le_bytes)?,
    })
}

/// Reads a directory and everything below it, in the order of writing. What was changed at `trusted_before` or later counts as
/// changed.
fn read_dirs(rest: &mut &[u8], trusted_before: i64) -> Option<Arc<Dir>> {
    let mut open: Vec<(Dir, usize)> = vec![read_dir(rest, trusted_before)?];
    loop {
        let (dir, missing) = open.last_mut()?;
        if *missing > 0 {
            *missing -= 1;
            let next = read_dir(rest, trusted_before)?;
            open.push(next);
            continue;
        }
        let done = Arc::new(std::mem::take(dir));
        open.pop();
        match open.last_mut() {
            Some((parent, _)) => parent.children.push(done),
            None => return Some(done),
        }
    }
}

/// Reads one directory, and returns it with the number of its subdirectories.
fn read_dir(rest: &mut &[u8], trusted_before: i64) -> Option<(Dir, usize)> {
    let is_recent = |stat: Stat| stat.changed.max(stat.modified) >= trusted_before;
    let count = read_array(rest).map(u32::from_le_bytes)?;
    let mut dir = Dir::default();
    dir.rules = read_array(rest)?;
    dir.own = read_stat(rest)?;
    let flags = *rest.split_off_first()?;
    dir.racy = flags & 2 != 0 || is_recent(dir.own);
    dir.tree = Some(ObjectId(read_array(rest)?)).filter(|_| flags & 1 != 0);
    let mut children = 0;
    for _ in 0..count {
        let length = read_array(rest).map(u16::from_le_bytes)?;
        let name = rest.split_off(..usize::from(length))?;
        let flags = *rest.split_off_first()?;
        let mut entry = DirEntry::new(kind_from_number(flags & 63)?);
        entry.racy = flags & 64 != 0;
        if flags & 128 != 0 {
            entry.child = Some(children);
            children += 1;
        }
        entry.stat = read_stat(rest)?;
        entry.racy |= is_recent(entry.stat);
        entry.id = ObjectId(read_array(rest)?);
        dir.push(name, entry);
    }
    Some((dir, children as usize))
}

fn read_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    rest.split_off(..N)?.try_into().ok()
}

/// The kinds of entries; the position of a kind is its number in the file.
const KINDS: [EntryKind; 18] = [
    EntryKind::Tracked(Mode::File),
    EntryKind::Tracked(Mode::Executable),
    EntryKind::Tracked(Mode::Link),
    EntryKind::Tracked(Mode::Directory),
    EntryKind::Untracked(UntrackedReason::Ignored),
    EntryKind::Untracked(UntrackedReason::TooLarge),
    EntryKind::Untracked(UntrackedReason::EmptyDirectory),
    EntryKind::Untracked(UntrackedReason::Special),
    EntryKind::Untracked(UntrackedReason::Secret),
    EntryKind::Outdated(Mode::File, UntrackedReason::Secret),
    EntryKind::Outdated(Mode::Executable, UntrackedReason::Secret),
    EntryKind::Outdated(Mode::Link, UntrackedReason::Secret),
    EntryKind::Outdated(Mode::File, UntrackedReason::TooLarge),
    EntryKind::Outdated(Mode::Executable, UntrackedReason::TooLarge),
    EntryKind::Outdated(Mode::Link, UntrackedReason::TooLarge),
    EntryKind::Outdated(Mode::File, UntrackedReason::Special),
    EntryKind::Outdated(Mode::Executable, UntrackedReason::Special),
    EntryKind::Outdated(Mode::Link, UntrackedReason::Special),
];

fn kind_number(kind: EntryKind) -> u8 {
    KINDS.iter().position(|one| *one == kind).unwrap_or(KINDS.len()) as u8
}

fn kind_from_number(number: u8) -> Option<EntryKind> {
    KINDS.get(usize::from(number)).copied()
}
