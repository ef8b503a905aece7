//! A directory under construction: it becomes a [`Dir`] when all its subdirectories are complete.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::change::UntrackedReason;
use crate::dir::{Dir, EntryKind, Stat};
use crate::disk::Handle;
use crate::error::Result;

/// A directory that is being read or written.
pub(crate) struct DirNode<T> {
    /// The parent directory, and the position among the subdirectories there.
    pub(crate) parent: Option<(Arc<DirNode<T>>, usize)>,
    pub(crate) name: Vec<u8>,
    pub(crate) depth: usize,
    /// The data that the walk or the checkout needs for this directory.
    pub(crate) context: T,
    partial: Mutex<PartialDir>,
    /// The number of subdirectories that are not complete yet.
    missing: AtomicUsize,
}

/// The contents so far: subdirectories that are not complete are none.
#[derive(Default)]
struct PartialDir {
    dir: Dir,
    children: Vec<Option<DirResult>>,
}

/// The result of reading or writing a directory.
#[derive(Clone)]
pub(crate) enum DirResult {
    Dir(Arc<Dir>),
    /// The directory no longer exists.
    Gone,
    /// The directory was not read, or not completely; only its metadata is known.
    Untracked(UntrackedReason, Stat),
}

/// The way to open a directory. The number of directories that stay open is limited.
#[derive(Clone)]
pub(crate) enum DirAccess {
    /// In its parent directory, which is still open.
    Open(Arc<OpenDir>),
    /// From the root, name by name.
    ByPath,
}

/// An open directory, counted as long as it is open.
pub(crate) struct OpenDir {
    pub(crate) handle: Handle,
    count: Arc<AtomicUsize>,
}

/// The number of directories that may stay open for their subdirectories; others are opened again by their path.
const MAX_OPEN_DIRS: usize = 128;

impl OpenDir {
    /// Counts a directory that was opened.
    pub(crate) fn new(handle: Handle, count: &Arc<AtomicUsize>) -> Arc<Self> {
        count.fetch_add(1, Ordering::Relaxed);
        Arc::new(OpenDir { handle, count: count.clone() })
    }

    /// Returns the way in which a subdirectory can be opened.
    pub(crate) fn access(self: &Arc<Self>) -> DirAccess {
        if self.count.load(Ordering::Relaxed) > MAX_OPEN_DIRS {
            DirAccess::ByPath
        } else {
            DirAccess::Open(self.clone())
        }
    }
}

impl Drop for OpenDir {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T> DirNode<T> {
    /// Creates the root.
    pub(crate) fn root(context: T) -> Arc<Self> {
        Self::make(None, Vec::new(), 0, context)
    }

    /// Creates the node of a subdirectory.
    pub(crate) fn child(self: &Arc<Self>, slot: usize, name: &[u8], context: T) -> Arc<Self> {
        Self::make(Some((self.clone(), slot)), name.to_vec(), self.depth + 1, context)
    }

    fn make(parent: Option<(Arc<Self>, usize)>, name: Vec<u8>, depth: usize, context: T) -> Arc<Self> {
        let (partial, missing) = (Mutex::default(), AtomicUsize::new(0));
        Arc::new(DirNode { parent, name, depth, context, partial, missing })
    }

    /// Returns the path from the root, with slashes between the names.
    pub(crate) fn path(&self) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::with_capacity(self.depth);
        let mut node = self;
        while let Some((parent, _)) = &node.parent {
            names.push(&node.name);
            node = parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// Stores the contents of a directory that has `children` subdirectories.
    ///
    /// The thread that completes the last subdirectory completes this directory too. `finish_dir` turns the contents
    /// into a result when everything in it is complete. Returns the result of the root if this call completed it.
    pub(crate) fn fill(
        self: &Arc<Self>,
        dir: Dir,
        children: usize,
        finish_dir: &impl Fn(&Self, Dir) -> Result<DirResult>,
    ) -> Result<Option<DirResult>> {
        {
            let mut partial = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
            partial.dir = dir;
            partial.children.resize_with(children, || None);
            self.missing.store(children, Ordering::Release);
        }
        if children == 0 { self.finish(finish_dir) } else { Ok(None) }
    }

    /// Sets the result of a directory, and completes each parent for which it was the last missing subdirectory.
    pub(crate) fn complete(
        self: &Arc<Self>,
        result: DirResult,
        finish_dir: &impl Fn(&Self, Dir) -> Result<DirResult>,
    ) -> Result<Option<DirResult>> {
        let mut result = result;
        let mut node = self.clone();
        // Goes up as long as this was the last subdirectory that the parent waited for.
        while let Some((parent, slot)) = node.parent.clone() {
            parent.partial.lock().unwrap_or_else(PoisonError::into_inner).children[slot] = Some(result);
            if parent.missing.fetch_sub(1, Ordering::AcqRel) > 1 {
                return Ok(None);
            }
            result = parent.assemble(finish_dir)?;
            node = parent;
        }
        Ok(Some(result))
    }

    fn finish(self: &Arc<Self>, finish_dir: &impl Fn(&Self, Dir) -> Result<DirResult>) -> Result<Option<DirResult>> {
        let result = self.assemble(finish_dir)?;
        self.complete(result, finish_dir)
    }

    /// Puts the results of all subdirectories in place.
    fn assemble(&self, finish_dir: &impl Fn(&Self, Dir) -> Result<DirResult>) -> Result<DirResult> {
        let partial = std::mem::take(&mut *self.partial.lock().unwrap_or_else(PoisonError::into_inner));
        let PartialDir { mut dir, mut children } = partial;
        let mut complete_children = Vec::with_capacity(children.len());
        dir.entries.retain_mut(|entry| {
            let Some(slot) = entry.child else { return true };
            match children.get_mut(slot as usize).and_then(Option::take) {
                Some(DirResult::Dir(child)) => {
                    entry.child = Some(complete_children.len() as u32);
                    complete_children.push(child);
                    true
                }
                Some(DirResult::Untracked(why, stat)) => {
                    (entry.child, entry.kind, entry.stat) = (None, EntryKind::Untracked(why), stat);
                    true
                }
                Some(DirResult::Gone) | None => false,
            }
        });
        dir.children = complete_children;
        finish_dir(self, dir)
    }
}
