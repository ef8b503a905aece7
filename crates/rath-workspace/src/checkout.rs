//! Writing a tree to a new or empty directory.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::dir::{Dir, DirEntry, EntryKind};
use crate::dir_node::{DirAccess, DirNode, DirResult, OpenDir};
use crate::disk::{self, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{check_tree, measure_tree};
use crate::objects::{self, Objects};
use crate::queries::TreeFile;
use crate::tree::{self, Mode, ObjectId, TreeId};
use crate::{changes, forgotten, paths, pool};

/// A directory that files can be copied from, if their metadata is still as known.
pub(crate) struct CopySource {
    pub(crate) root: Handle,
    pub(crate) known: Arc<Dir>,
}

/// A file or directory that a checkout left out, because its content is not stored.
///
/// Returned by [`Objects::checkout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutFile {
    /// The path.
    pub path: String,
    /// True if the content was removed on purpose; otherwise it is missing or damaged.
    pub is_forgotten: bool,
}

/// The context of a directory during a checkout.
struct CheckoutContext {
    tree: ObjectId,
    /// The corresponding directory in the copy source.
    source: Option<Arc<Dir>>,
}

/// One checkout.
struct Checkout<'a> {
    objects: &'a Objects,
    root: &'a Handle,
    source: Option<&'a Handle>,
    /// The files that are not written, because their content is not stored; none if that is an error.
    left_out: Option<&'a Mutex<Vec<LeftOutFile>>>,
    /// The directories that are not written.
    unreadable: &'a HashMap<ObjectId, Error>,
    open: Arc<AtomicUsize>,
    /// True after the file system refused to share blocks between files.
    cannot_share: AtomicBool,
}

/// The depth down to which files are copied from the source; below, they are read from the objects.
const MAX_COPY_DEPTH: usize = 64;

type CheckoutJob = (Arc<DirNode<CheckoutContext>>, DirAccess);

/// Writes a tree to a new or empty directory, and returns its contents.
///
/// Every name is checked and opened in the directory that was just created for it, without following links: no tree can
/// cause a write outside of the directory.
pub(crate) fn checkout(objects: &Objects, tree: ObjectId, into: &Path, source: Option<CopySource>) -> Result<Arc<Dir>> {
    check_empty(into)?;
    // Before anything is written: a damaged tree writes nothing.
    check_tree(objects, tree)?;
    if let Some(file) = forgotten_in(objects, tree)?.first() {
        return Err(forgotten::forgotten_file(&file.path));
    }
    write_tree(objects, tree, into, source, None, &HashMap::new())
}

/// Writes a tree to a new or empty directory, without the files whose content is not stored, and returns these by path.
pub(crate) fn checkout_stored(objects: &Objects, tree: ObjectId, into: &Path) -> Result<(Arc<Dir>, Vec<LeftOutFile>)> {
    check_empty(into)?;
    let unreadable = measure_tree(objects, tree)?;
    let left_out = Mutex::default();
    let dir = write_tree(objects, tree, into, None, Some(&left_out), &unreadable)?;
    let mut left_out = left_out.into_inner().unwrap_or_else(PoisonError::into_inner);
    left_out.sort_by(|one, other| one.path.cmp(&other.path));
    Ok((dir, left_out))
}

/// Writes a tree to a directory. What cannot be read is an error, unless there is a list for it.
fn write_tree(
    objects: &Objects,
    tree: ObjectId,
    into: &Path,
    source: Option<CopySource>,
    left_out: Option<&Mutex<Vec<LeftOutFile>>>,
    unreadable: &HashMap<ObjectId, Error>,
) -> Result<Arc<Dir>> {
    let failed = |error| objects::io_error(into, "write to", error);
    std::fs::create_dir_all(into).map_err(failed)?;
    let root = disk::open_root(into).map_err(failed)?;
    let (source, known) = source.map(|source| (source.root, source.known)).unzip();
    let cannot_share = AtomicBool::new(!disk::CAN_SHARE_BLOCKS);
    let (open, source) = (Arc::default(), source.as_ref());
    let checkout = Checkout { objects, root: &root, source, left_out, unreadable, open, cannot_share };
    let result = Mutex::new(None);
    pool::run(
        vec![(DirNode::root(CheckoutContext { tree, source: known }), DirAccess::ByPath)],
        |job, content, jobs| {
            if let Some(DirResult::Dir(dir)) = checkout.write(job, content, jobs)? {
                *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(dir);
            }
            Ok(())
        },
    )?;
    // Later changes get a later time stamp than all files that were written.
    disk::wait_for_tick();
    let dir = result.into_inner().unwrap_or_else(PoisonError::into_inner);
    dir.ok_or_else(|| Error::new(ErrorKind::Io, "the directory could not be written completely"))
}

/// Returns the files of a tree whose content was removed.
fn forgotten_in(objects: &Objects, tree: ObjectId) -> Result<Vec<TreeFile>> {
    let forgotten = objects.forgotten_files();
    if forgotten.is_empty() {
        return Ok(Vec::new());
    }
    let mut files = objects.files(TreeId(tree))?;
    files.retain(|file| forgotten.contains_key(&file.id) && !objects.contains(file.id));
    Ok(files)
}

/// Fails if a path is a file or a directory with contents.
pub(crate) fn check_empty(into: &Path) -> Result<()> {
    if into.exists() && !into.is_dir() {
        let message = format!("wanted a new or empty directory, found the file `{}`", into.display());
        return Err(Error::new(ErrorKind::Io, message));
    }
    let first = match std::fs::read_dir(into) {
        Ok(mut entries) => entries.next(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(objects::io_error(into, "write to", error)),
    };
    if first.is_some() {
        let message = format!("wanted a new or empty directory, found files in `{}`", into.display());
        return Err(Error::new(ErrorKind::Io, message));
    }
    Ok(())
}

impl Checkout<'_> {
    /// Writes one directory, and adds a job for each subdirectory.
    fn write(
        &self,
        (node, access): CheckoutJob,
        content: &mut Vec<u8>,
        jobs: &mut Vec<CheckoutJob>,
    ) -> Result<Option<DirResult>> {
        let failed = |name: &[u8], error: io::Error| cannot_write(&changes::join_path(&node.path(), name), error);
        let dir = self.open_dir(&node, &access).map_err(|error| failed(b"", error))?;
        let opened = OpenDir::new(dir, &self.open);
        let bytes = self.objects.get(node.context.tree, objects::ObjectKind::Tree)?;
        let mut entries = tree::entries(node.context.tree, &bytes)?;
        entries.sort_unstable_by_key(|entry| entry.name);
        let mut dir_contents = Dir::default();
        dir_contents.tree = Some(node.context.tree).filter(|_| !entries.is_empty());
        let source = self.source_dir(&node);
        let first = jobs.len();
        for wanted in &entries {
            let path = || changes::join_path(&node.path(), wanted.name);
            if self.unreadable.contains_key(&wanted.id) {
                self.leave_out(&path(), false);
                continue;
            }
            let mut entry = DirEntry::new(EntryKind::Tracked(wanted.mode));
            entry.id = wanted.id;
            match wanted.mode {
                Mode::Directory => {
                    disk::create_dir(&opened.handle, wanted.name).map_err(|error| failed(wanted.name, error))?;
                    entry.child = Some((jobs.len() - first) as u32);
                    entry.id = ObjectId([0; 20]);
                    let known = node.context.source.as_ref();
                    let source = known.and_then(|known| known.child(known.find(wanted.name)?)).cloned();
                    jobs.push((
                        node.child(jobs.len() - first, wanted.name, CheckoutContext { tree: wanted.id, source }),
                        opened.access(),
                    ));
                }
                Mode::Link => {
                    let Some(target) = self.read(wanted.id, path)? else { continue };
                    disk::create_link(&opened.handle, wanted.name, &target)
                        .map_err(|error| failed(wanted.name, error))?;
                    entry.stat = disk::stat(&opened.handle, wanted.name).map_err(|error| failed(wanted.name, error))?;
                }
                Mode::File | Mode::Executable => {
                    // Without a source to copy from, the content is read before the file is there.
                    let blob = match source {
                        Some(_) => None,
                        None => match self.read(wanted.id, path)? {
                            None => continue,
                            blob => blob,
                        },
                    };
                    let file = disk::create_file(&opened.handle, wanted.name, wanted.mode == Mode::Executable)
                        .map_err(|error| failed(wanted.name, error))?;
                    if !self
                        .copy(source.as_ref(), wanted, &file, content)
                        .map_err(|error| failed(wanted.name, error))?
                    {
                        let blob = match blob {
                            Some(blob) => blob,
                            None => self.objects.get(wanted.id, objects::ObjectKind::Blob)?,
                        };
                        disk::write_all(&file, &blob).map_err(|error| failed(wanted.name, error))?;
                    }
                    entry.stat = disk::stat_open(&file).map_err(|error| failed(wanted.name, error))?;
                }
            }
            dir_contents.push(wanted.name, entry);
        }
        let children = jobs.len() - first;
        node.fill(dir_contents, children, &|_, dir| Ok(DirResult::Dir(Arc::new(dir))))
    }

    /// Reads the content of a file; none if it is not stored, and is left out.
    fn read(&self, id: ObjectId, path: impl Fn() -> Vec<u8>) -> Result<Option<Vec<u8>>> {
        match self.objects.get(id, objects::ObjectKind::Blob) {
            Err(error) if self.left_out.is_some() && error.kind() != ErrorKind::Io => {
                self.leave_out(&path(), error.kind() == ErrorKind::Forgotten);
                Ok(None)
            }
            content => content.map(Some),
        }
    }

    fn leave_out(&self, path: &[u8], is_forgotten: bool) {
        if let Some(left_out) = self.left_out {
            let path = paths::path_text(path).into_owned();
            left_out.lock().unwrap_or_else(PoisonError::into_inner).push(LeftOutFile { path, is_forgotten });
        }
    }

    /// Copies a file from the source, and returns false if the file is not there with the wanted content.
    ///
    /// Sharing blocks is safe, since a write to either file gives it blocks of its own. A hard link would not be safe:
    /// a program that writes in place would write to both.
    fn copy(
        &self,
        source: Option<&(Handle, &Arc<Dir>)>,
        wanted: &tree::TreeEntry<'_>,
        file: &Handle,
        content: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let Some((source, known)) = source else { return Ok(false) };
        let Some(entry) = known.find(wanted.name) else { return Ok(false) };
        if entry.id != wanted.id || entry.racy || !matches!(entry.kind, EntryKind::Tracked(mode) if mode.is_file()) {
            return Ok(false);
        }
        // Small files are read as fast from the objects, where their content is checked.
        if entry.stat.size < 1 << 14 && self.cannot_share.load(Relaxed) {
            return Ok(false);
        }
        let Ok(source) = disk::open_file(source, wanted.name) else { return Ok(false) };
        let is_as_known = || disk::stat_open(&source).is_ok_and(|stat| stat == entry.stat);
        if !is_as_known() {
            return Ok(false);
        }
        if !self.share(&source, file) {
            content.clear();
            content.reserve(entry.stat.size as usize + 1);
            disk::read_all(&source, content, u64::MAX)?;
            // The content is right if the metadata is still the same after reading.
            if !is_as_known() || content.len() as u64 != entry.stat.size {
                return Ok(false);
            }
            disk::write_all(file, content)?;
            return Ok(true);
        }
        if is_as_known() {
            return Ok(true);
        }
        disk::truncate(file)?;
        Ok(false)
    }

    /// Shares the blocks of two files; returns false if the file system cannot.
    fn share(&self, source: &Handle, file: &Handle) -> bool {
        if self.cannot_share.load(Relaxed) {
            return false;
        }
        let shared = disk::share_blocks(source, file);
        if !shared {
            self.cannot_share.store(true, Relaxed);
        }
        shared
    }

    /// Opens a directory that was created by an earlier job.
    fn open_dir(&self, node: &DirNode<CheckoutContext>, access: &DirAccess) -> io::Result<Handle> {
        match (access, &node.parent) {
            (DirAccess::Open(parent), _) => disk::open_dir(&parent.handle, &node.name),
            (DirAccess::ByPath, _) => disk::open_path(self.root, &node.path()),
        }
    }

    /// Returns the directory in the source whose files may be copied into this one.
    fn source_dir<'n>(&self, node: &'n DirNode<CheckoutContext>) -> Option<(Handle, &'n Arc<Dir>)> {
        // The directory is opened name by name from the root, which is slow for deep paths.
        let (root, known) = (self.source.filter(|_| node.depth < MAX_COPY_DEPTH)?, node.context.source.as_ref()?);
        Some((disk::open_path(root, &node.path()).ok()?, known))
    }
}

/// Returns the error of a failed write to a path of the workspace.
pub(crate) fn cannot_write(path: &[u8], error: io::Error) -> Error {
    let text = paths::path_text(path);
    Error::new(ErrorKind::Io, format_args!("cannot write `{text}` in the workspace")).because(error)
}
