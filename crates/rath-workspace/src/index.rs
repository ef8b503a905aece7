//! What is known of a workspace's files, kept in a file between processes.
//!
//! It is believed only if it is whole, of this workspace and of these objects, and if nothing that it rests on can have been
//! lost since: what was not synced is believed as long as the machine has not been started anew.

use std::path::Path;
use std::sync::Arc;

use crate::change::Untracked;

use super::dir::{Dir, Entry, Kind, Stat};
use super::objects;
use super::tree::{Mode, ObjectId};

const MAGIC: &[u8; 16] = b"rath workspace 1";

/// What an index is of.
#[derive(Clone, Copy)]
pub(super) struct About {
    /// Which folder of objects.
    pub(super) objects: [u8; 16],
    /// Which directory: what the file system calls it.
    pub(super) root: u64,
    pub(super) largest: u64,
}

/// An index that was read.
pub(super) struct Read {
    pub(super) dir: Arc<Dir>,
    /// Whether the objects that it names were durable when it was written.
    pub(super) synced: bool,
}

/// Writes what is known to a file, which is whole or not there.
pub(super) fn write(path: &Path, about: &About, dir: &Dir, synced: bool) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(1 << 16);
    head(&mut bytes, about);
    bytes.push(u8::from(synced));
    bytes.extend_from_slice(&boot().unwrap_or([0; 36]));
    // A directory stands before those in it, and says how many there are: none has to know where another is.
    let mut rest = vec![dir];
    while let Some(dir) = rest.pop() {
        put(&mut bytes, dir);
        rest.extend(dir.children.iter().map(|child| &**child).rev());
    }
    let seal = blake3::hash(&bytes);
    bytes.extend_from_slice(seal.as_bytes());
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)?;
    objects::write_new(folder, path, &bytes)
}

/// Reads what was known, if it can be believed.
pub(super) fn read(path: &Path, about: &About) -> Option<Read> {
    let bytes = std::fs::read(path).ok()?;
    let (bytes, seal) = bytes.split_last_chunk::<32>()?;
    if blake3::hash(bytes).as_bytes() != seal {
        return None;
    }
    let mut wanted = Vec::new();
    head(&mut wanted, about);
    let mut rest = bytes.strip_prefix(&*wanted)?;
    let synced = *rest.split_off_first()? == 1;
    let written_in = rest.split_off(..36)?;
    if !synced && Some(written_in) != boot().as_ref().map(<[u8; 36]>::as_slice) {
        return None;
    }
    let dir = take(&mut rest)?;
    rest.is_empty().then_some(Read { dir, synced })
}

fn head(bytes: &mut Vec<u8>, about: &About) {
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&about.objects);
    bytes.extend_from_slice(&about.root.to_le_bytes());
    bytes.extend_from_slice(&about.largest.to_le_bytes());
}

/// What tells this start of the machine from others.
fn boot() -> Option<[u8; 36]> {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    text.get(..36)?.try_into().ok()
}

fn put(bytes: &mut Vec<u8>, dir: &Dir) {
    bytes.extend_from_slice(&(dir.entries.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&dir.rules);
    put_stat(bytes, dir.own);
    bytes.push(u8::from(dir.tree.is_some()) | u8::from(dir.racy) << 1);
    bytes.extend_from_slice(&dir.tree().0);
    for entry in &dir.entries {
        let name = dir.name(entry);
        bytes.extend_from_slice(&entry.length.to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.push(kind_number(entry.kind) | u8::from(entry.racy) << 6 | u8::from(entry.child.is_some()) << 7);
        put_stat(bytes, entry.stat);
        bytes.extend_from_slice(&entry.id.0);
    }
}

fn put_stat(bytes: &mut Vec<u8>, stat: Stat) {
    let Stat { inode, size, modified, changed, mode } = stat;
    bytes.extend_from_slice(&inode.to_le_bytes());
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(&modified.to_le_bytes());
    bytes.extend_from_slice(&changed.to_le_bytes());
    bytes.extend_from_slice(&mode.to_le_bytes());
}

fn take_stat(rest: &mut &[u8]) -> Option<Stat> {
    Some(Stat {
        inode: number(rest).map(u64::from_le_bytes)?,
        size: number(rest).map(u64::from_le_bytes)?,
        modified: number(rest).map(i64::from_le_bytes)?,
        changed: number(rest).map(i64::from_le_bytes)?,
        mode: number(rest).map(u32::from_le_bytes)?,
    })
}

/// Reads a directory and all in it, in the order in which they were written.
fn take(rest: &mut &[u8]) -> Option<Arc<Dir>> {
    let mut open: Vec<(Dir, usize)> = vec![take_one(rest)?];
    loop {
        let (dir, missing) = open.last_mut()?;
        if *missing > 0 {
            *missing -= 1;
            let next = take_one(rest)?;
            open.push(next);
            continue;
        }
        let done = Arc::new(std::mem::take(dir));
        open.pop();
        match open.last_mut() {
            Some((above, _)) => above.children.push(done),
            None => return Some(done),
        }
    }
}

/// A directory, and how many are in it.
fn take_one(rest: &mut &[u8]) -> Option<(Dir, usize)> {
    let count = number(rest).map(u32::from_le_bytes)?;
    let mut dir = Dir::default();
    dir.rules = number(rest)?;
    dir.own = take_stat(rest)?;
    let flags = *rest.split_off_first()?;
    dir.racy = flags & 2 != 0;
    dir.tree = Some(ObjectId(number(rest)?)).filter(|_| flags & 1 != 0);
    let mut children = 0;
    for _ in 0..count {
        let length = number(rest).map(u16::from_le_bytes)?;
        let name = rest.split_off(..usize::from(length))?;
        let flags = *rest.split_off_first()?;
        let mut entry = Entry::new(numbered(flags & 63)?);
        entry.racy = flags & 64 != 0;
        if flags & 128 != 0 {
            entry.child = Some(children);
            children += 1;
        }
        entry.stat = take_stat(rest)?;
        entry.id = ObjectId(number(rest)?);
        dir.push(name, entry);
    }
    Some((dir, children as usize))
}

fn number<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    rest.split_off(..N)?.try_into().ok()
}

const KINDS: [Kind; 8] = [
    Kind::Kept(Mode::File),
    Kind::Kept(Mode::Executable),
    Kind::Kept(Mode::Link),
    Kind::Kept(Mode::Directory),
    Kind::Unkept(Untracked::Ignored),
    Kind::Unkept(Untracked::TooLarge),
    Kind::Unkept(Untracked::EmptyDirectory),
    Kind::Unkept(Untracked::Special),
];

fn kind_number(kind: Kind) -> u8 {
    KINDS.iter().position(|one| *one == kind).unwrap_or(KINDS.len()) as u8
}

fn numbered(number: u8) -> Option<Kind> {
    KINDS.get(usize::from(number)).copied()
}
