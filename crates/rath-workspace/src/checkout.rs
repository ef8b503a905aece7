//! A tree written to a directory that nobody uses yet.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::Mode as Permissions;
use rustix::io::Errno;

use super::dir::{Dir, DirEntry, EntryKind};
use super::dir_node::{DirAccess, DirNode, DirResult, OpenDir};
use super::disk;
use super::objects::{self, Objects};
use super::tree::{self, Mode, ObjectId};
use super::{changes, paths, pool};
use crate::error::{Error, ErrorKind, Result};

/// A directory whose files may be copied, as far as they are what is known of them.
pub(super) struct CopySource {
    pub(super) root: OwnedFd,
    pub(super) known: Arc<Dir>,
}

struct CheckoutContext {
    tree: ObjectId,
    /// What is known of the same directory in the live workspace.
    live: Option<Arc<Dir>>,
}

struct Checkout<'a> {
    objects: &'a Objects,
    root: &'a OwnedFd,
    live: Option<&'a OwnedFd>,
    open: Arc<AtomicUsize>,
    /// Whether the file system refused to share blocks between files.
    cannot_share: AtomicBool,
}

/// How deep files are copied from the live workspace; below, they come from the versions.
const MAX_COPY_DEPTH: usize = 64;

type CheckoutJob = (Arc<DirNode<CheckoutContext>>, DirAccess);

/// Writes a tree to a new or empty directory, and says what is there then.
///
/// Every name is checked and opened in the directory that was just made for it, without following links: whatever a tree holds,
/// nothing is written outside.
pub(super) fn checkout(objects: &Objects, tree: ObjectId, into: &Path, live: Option<CopySource>) -> Result<Arc<Dir>> {
    let failed = |error| objects::io_error(into, "write to", error);
    check_empty(into)?;
    std::fs::create_dir_all(into).map_err(failed)?;
    let root = disk::open_root(into).map_err(failed)?;
    check_tree(objects, tree)?;
    let (live, known) = live.map(|live| (live.root, live.known)).unzip();
    let cannot_share = AtomicBool::new(cfg!(not(target_os = "linux")));
    let checkout = Checkout { objects, root: &root, live: live.as_ref(), open: Arc::default(), cannot_share };
    let result = Mutex::new(None);
    pool::run(
        vec![(DirNode::root(CheckoutContext { tree, live: known }), DirAccess::ByPath)],
        |job, content, more| {
            if let Some(DirResult::Dir(dir)) = checkout.write(job, content, more)? {
                *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(dir);
            }
            Ok(())
        },
    )?;
    // What changes from here on is stamped later than all that was written.
    disk::wait_for_tick();
    let dir = result.into_inner().unwrap_or_else(PoisonError::into_inner);
    dir.ok_or_else(|| Error::new(ErrorKind::Io, "the directory could not be written to its end"))
}

/// An error where something is in the directory already.
pub(super) fn check_empty(into: &Path) -> Result<()> {
    if into.exists() && !into.is_dir() {
        let message = format!("wanted a new or empty directory, found the file `{}`", into.display());
        return Err(Error::new(ErrorKind::Io, message));
    }
    let first = match std::fs::read_dir(into) {
        Ok(mut found) => found.next(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(objects::io_error(into, "write to", error)),
    };
    if first.is_some() {
        let message = format!("wanted a new or empty directory, found files in `{}`", into.display());
        return Err(Error::new(ErrorKind::Io, message));
    }
    Ok(())
}

/// Reads every tree object before anything is written, so that a bad one writes nothing.
fn check_tree(objects: &Objects, tree: ObjectId) -> Result<()> {
    let mut rest = vec![(tree, 0)];
    while let Some((tree, depth)) = rest.pop() {
        if depth > super::walk::MAX_DEPTH {
            let message = format!("the tree {tree} is nested deeper than {} directories", super::walk::MAX_DEPTH);
            return Err(Error::new(ErrorKind::Damaged, message));
        }
        let bytes = objects.get(tree, objects::ObjectKind::Tree)?;
        let directories = tree::entries(tree, &bytes)?.into_iter().filter(|entry| entry.mode == Mode::Directory);
        rest.extend(directories.map(|entry| (entry.id, depth + 1)));
    }
    Ok(())
}

impl Checkout<'_> {
    fn write(
        &self,
        (node, access): CheckoutJob,
        content: &mut Vec<u8>,
        more: &mut Vec<CheckoutJob>,
    ) -> Result<Option<DirResult>> {
        let failed = |name: &[u8], error: io::Error| cannot_write(&changes::join_path(&node.path(), name), error);
        let dir = self.open_dir(&node, &access).map_err(|error| failed(b"", error.into()))?;
        let opened = OpenDir::new(dir, &self.open);
        let bytes = self.objects.get(node.context.tree, objects::ObjectKind::Tree)?;
        let mut entries = tree::entries(node.context.tree, &bytes)?;
        entries.sort_unstable_by_key(|entry| entry.name);
        let mut found = Dir::default();
        found.tree = Some(node.context.tree).filter(|_| !entries.is_empty());
        let live = self.live_dir(&node);
        let first = more.len();
        for one in &entries {
            let mut entry = DirEntry::new(EntryKind::Tracked(one.mode));
            entry.id = one.id;
            match one.mode {
                Mode::Directory => {
                    rustix::fs::mkdirat(&opened.fd, one.name, Permissions::from_raw_mode(0o777))
                        .map_err(|error| failed(one.name, error.into()))?;
                    entry.child = Some((more.len() - first) as u32);
                    entry.id = ObjectId([0; 20]);
                    let known = node.context.live.as_ref();
                    let live = known.and_then(|known| known.child(known.find(one.name)?)).cloned();
                    more.push((
                        node.child(more.len() - first, one.name, CheckoutContext { tree: one.id, live }),
                        opened.access(),
                    ));
                }
                Mode::Link => {
                    let target = self.objects.get(one.id, objects::ObjectKind::Blob)?;
                    rustix::fs::symlinkat(&*target, &opened.fd, one.name)
                        .map_err(|error| failed(one.name, error.into()))?;
                    entry.stat = disk::stat(&opened.fd, one.name).map_err(|error| failed(one.name, error.into()))?;
                }
                Mode::File | Mode::Executable => {
                    let file = disk::create_file(&opened.fd, one.name, one.mode == Mode::Executable)
                        .map_err(|error| failed(one.name, error.into()))?;
                    if !self.copy(live.as_ref(), one, &file, content).map_err(|error| failed(one.name, error))? {
                        let blob = self.objects.get(one.id, objects::ObjectKind::Blob)?;
                        write_all(&file, &blob).map_err(|error| failed(one.name, error))?;
                    }
                    entry.stat = disk::stat_fd(&file).map_err(|error| failed(one.name, error.into()))?;
                }
            }
            found.push(one.name, entry);
        }
        let children = more.len() - first;
        node.fill(found, children, &|_, dir| Ok(DirResult::Dir(Arc::new(dir))))
    }

    /// Copies a file from the live workspace, if it is there as it is wanted, and says whether it was.
    ///
    /// Sharing blocks is safe, since a write to either file gives it blocks of its own. A hard link would not be: what writes
    /// in place would write to both.
    fn copy(
        &self,
        live: Option<&(OwnedFd, &Arc<Dir>)>,
        one: &tree::TreeEntry<'_>,
        file: &OwnedFd,
        content: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let Some((live, known)) = live else { return Ok(false) };
        let Some(entry) = known.find(one.name) else { return Ok(false) };
        if entry.id != one.id || entry.racy || !matches!(entry.kind, EntryKind::Tracked(mode) if mode.is_file()) {
            return Ok(false);
        }
        // Small files come as fast from the versions, where their content is checked.
        if entry.stat.size < 1 << 14 && self.cannot_share.load(Relaxed) {
            return Ok(false);
        }
        let Ok(source) = disk::open_file(live, one.name) else { return Ok(false) };
        let is_as_known = || disk::stat_fd(&source).is_ok_and(|stat| stat == entry.stat);
        if !is_as_known() {
            return Ok(false);
        }
        if !self.share(&source, file) {
            content.clear();
            content.reserve(entry.stat.size as usize + 1);
            disk::read_all(&source, content, u64::MAX)?;
            // Whatever was read before the file was looked at again is what was known.
            if !is_as_known() || content.len() as u64 != entry.stat.size {
                return Ok(false);
            }
            write_all(file, content)?;
            return Ok(true);
        }
        if is_as_known() {
            return Ok(true);
        }
        rustix::fs::ftruncate(file, 0)?;
        Ok(false)
    }

    #[cfg(target_os = "linux")]
    fn share(&self, source: &OwnedFd, file: &OwnedFd) -> bool {
        if self.cannot_share.load(Relaxed) {
            return false;
        }
        let shared = rustix::fs::ioctl_ficlone(file, source).is_ok();
        if !shared {
            self.cannot_share.store(true, Relaxed);
        }
        shared
    }

    #[cfg(not(target_os = "linux"))]
    fn share(&self, _source: &OwnedFd, _file: &OwnedFd) -> bool {
        false
    }

    fn open_dir(&self, node: &DirNode<CheckoutContext>, access: &DirAccess) -> Result<OwnedFd, Errno> {
        match (access, &node.above) {
            (DirAccess::Open(above), _) => disk::open_dir(&above.fd, &node.name),
            (DirAccess::ByPath, _) => disk::open_path(self.root, &node.path()),
        }
    }

    /// The directory of the live workspace whose files may be copied into this one.
    fn live_dir<'n>(&self, node: &'n DirNode<CheckoutContext>) -> Option<(OwnedFd, &'n Arc<Dir>)> {
        // It is opened from the root on, which is no good far down.
        let (root, known) = (self.live.filter(|_| node.depth < MAX_COPY_DEPTH)?, node.context.live.as_ref()?);
        Some((disk::open_path(root, &node.path()).ok()?, known))
    }
}

pub(super) fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(file, bytes))?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[written..];
    }
    Ok(())
}

pub(super) fn cannot_write(path: &[u8], error: io::Error) -> Error {
    let shown = paths::path_text(path);
    Error::new(ErrorKind::Io, format_args!("cannot write `{shown}` in the workspace")).because(error)
}
