//! A directory on its way to becoming a [`Dir`]: it is one when all directories in it are.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::change::Untracked;

use super::dir::{Dir, Kind, Stat};
use crate::error::Result;

/// A directory that is being looked into or written.
pub(super) struct Node<T> {
    /// The directory that it lies in, and which of the directories there it is.
    pub(super) above: Option<(Arc<Node<T>>, usize)>,
    pub(super) name: Vec<u8>,
    pub(super) depth: usize,
    /// What is known of it from the start.
    pub(super) about: T,
    building: Mutex<Building>,
    /// How many directories in it are not there yet.
    missing: AtomicUsize,
}

#[derive(Default)]
struct Building {
    dir: Dir,
    children: Vec<Option<Made>>,
}

/// What became of a directory.
#[derive(Clone)]
pub(super) enum Made {
    Dir(Arc<Dir>),
    /// It is not there any more.
    Gone,
    /// It was not looked into, or not to the end: this is all that is known of it.
    Unkept(Untracked, Stat),
}

/// How a directory is reached: few enough may be open at a time.
#[derive(Clone)]
pub(super) enum Way {
    Open(Arc<OpenDir>),
    /// From the root on, name by name.
    Path,
}

/// An open directory that is counted as long as it is open.
pub(super) struct OpenDir {
    pub(super) fd: OwnedFd,
    count: Arc<AtomicUsize>,
}

/// How many directories may wait open for those in them; others are opened again by their path.
const OPEN: usize = 128;

impl OpenDir {
    pub(super) fn new(fd: OwnedFd, count: &Arc<AtomicUsize>) -> Arc<Self> {
        count.fetch_add(1, Ordering::Relaxed);
        Arc::new(OpenDir { fd, count: count.clone() })
    }

    /// The way to it, for what is in it.
    pub(super) fn way(self: &Arc<Self>) -> Way {
        if self.count.load(Ordering::Relaxed) > OPEN { Way::Path } else { Way::Open(self.clone()) }
    }
}

impl Drop for OpenDir {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T> Node<T> {
    pub(super) fn root(about: T) -> Arc<Self> {
        Self::make(None, Vec::new(), 0, about)
    }

    pub(super) fn below(self: &Arc<Self>, slot: usize, name: &[u8], about: T) -> Arc<Self> {
        Self::make(Some((self.clone(), slot)), name.to_vec(), self.depth + 1, about)
    }

    fn make(above: Option<(Arc<Self>, usize)>, name: Vec<u8>, depth: usize, about: T) -> Arc<Self> {
        let (building, missing) = (Mutex::default(), AtomicUsize::new(0));
        Arc::new(Node { above, name, depth, about, building, missing })
    }

    /// Its names from the root on, with slashes between.
    pub(super) fn path(&self) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::with_capacity(self.depth);
        let mut node = self;
        while let Some((above, _)) = &node.above {
            names.push(&node.name);
            node = above;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// Takes in what was found, with as many directories as are to come; those are finished later, whoever is last.
    ///
    /// `whole` makes a directory of what was found, when everything in it is there.
    pub(super) fn found(
        self: &Arc<Self>,
        dir: Dir,
        children: usize,
        whole: &impl Fn(&Self, Dir) -> Result<Made>,
    ) -> Result<Option<Made>> {
        {
            let mut building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
            building.dir = dir;
            building.children.resize_with(children, || None);
            self.missing.store(children, Ordering::Release);
        }
        if children == 0 { self.finish(whole) } else { Ok(None) }
    }

    /// Says at once what became of it.
    pub(super) fn made(
        self: &Arc<Self>,
        made: Made,
        whole: &impl Fn(&Self, Dir) -> Result<Made>,
    ) -> Result<Option<Made>> {
        let mut made = made;
        let mut node = self.clone();
        // Upwards, as long as it was the last that its parent waited for.
        while let Some((above, slot)) = node.above.clone() {
            above.building.lock().unwrap_or_else(PoisonError::into_inner).children[slot] = Some(made);
            if above.missing.fetch_sub(1, Ordering::AcqRel) > 1 {
                return Ok(None);
            }
            made = above.assemble(whole)?;
            node = above;
        }
        Ok(Some(made))
    }

    fn finish(self: &Arc<Self>, whole: &impl Fn(&Self, Dir) -> Result<Made>) -> Result<Option<Made>> {
        let made = self.assemble(whole)?;
        self.made(made, whole)
    }

    fn assemble(&self, whole: &impl Fn(&Self, Dir) -> Result<Made>) -> Result<Made> {
        let building = std::mem::take(&mut *self.building.lock().unwrap_or_else(PoisonError::into_inner));
        let Building { mut dir, mut children } = building;
        let mut there = Vec::with_capacity(children.len());
        dir.entries.retain_mut(|entry| {
            let Some(slot) = entry.child else { return true };
            match children.get_mut(slot as usize).and_then(Option::take) {
                Some(Made::Dir(child)) => {
                    entry.child = Some(there.len() as u32);
                    there.push(child);
                    true
                }
                Some(Made::Unkept(why, stat)) => {
                    (entry.child, entry.kind, entry.stat) = (None, Kind::Unkept(why), stat);
                    true
                }
                Some(Made::Gone) | None => false,
            }
        });
        dir.children = there;
        whole(self, dir)
    }
}
