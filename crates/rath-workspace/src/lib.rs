//! The versions of a directory, as git objects in a folder of their own.
//!
//! [`Objects`] keeps versions; a [`Workspace`] is a directory whose versions are kept. Nothing of a `.git` that may be there
//! is read, locked, run or written: not its index, its configuration, its hooks or filters. Line endings stay as they are,
//! and `.gitattributes` is a file like any other.
//!
//! What a [`Snapshot`] keeps, as git would: files with their executable bit, links as links (never followed), names as bytes.
//! What it does not keep, and [`Workspace::changes`] still names when its metadata changes:
//!
//! - what a `.gitignore` in the workspace names, by git's rules. There are no rules beside those files, and a file that was
//!   kept before it came to be ignored is kept no longer. An ignored directory is looked into for metadata only; one that holds
//!   more than 10,000 names is named as a whole, by its own metadata. When more than 20 paths changed in one, it is named
//!   instead of them;
//! - `.git`, at any depth, named as one path. Its `objects` are not looked into: git writes no object without writing something
//!   else too. The files of a repository inside the workspace are files like any others;
//! - files that are larger than 32 MiB, unless [`Workspace::largest`] says otherwise;
//! - pipes, sockets and devices, and what cannot be read: files and directories that are closed to us, directories nested more
//!   than 2,048 deep, and files made to collide with others;
//! - directories with nothing in them;
//! - `.rath` below the first level, and files that a tool is about to put in the place of others (`.rath-`, 32 digits, `.tmp`).
//!
//! The `.rath` of the workspace itself is ours: it is neither kept nor named. Neither are times, owners, or permissions beyond
//! the executable bit.
//!
//! A snapshot is one pass over names and metadata. A file is read again if its size, its times, its inode or its mode are not
//! as they were, or if it was last changed so shortly before it was read that it may have changed again without a trace. One
//! that changes while it is read is read again, five times at most; what is kept is always what was read. What goes away
//! meanwhile is not there.
//!
//! A directory with more than 1,000,000 names that are not ignored, or more than 8 GiB in files that have to be read at once, is
//! no workspace: nobody means to keep versions of a whole machine.

mod batch;
mod bisect;
mod blame;
mod change;
mod changes;
mod checkout;
mod dir;
mod disk;
mod edit;
mod error;
mod fork_method;
mod glob;
mod ignore;
mod index;
#[cfg(target_os = "linux")]
mod layers;
#[cfg(not(target_os = "linux"))]
#[path = "no_layers.rs"]
mod layers;
mod lines;
mod merge;
mod most;
mod node;
mod objects;
mod pack;
mod patch;
mod pool;
mod quote;
mod rename;
mod restore;
mod tree;
mod versions;
mod walk;

pub use self::bisect::{Bisect, Verdict};
pub use self::blame::{BlamedLine, Revision};
pub use self::change::{ChangeKind, Digest, FileChange, Untracked};
pub use self::edit::TempCheckout;
pub use self::error::{Error, ErrorKind, Result};
pub use self::fork_method::ForkMethod;
pub use self::ignore::IgnoreRules;
pub use self::merge::{Conflict, ConflictKind, Joined, Labels};
pub use self::objects::Objects;
pub use self::quote::{path_bytes, path_text};
pub use self::tree::{Mode, ObjectId, TreeId};
pub use self::versions::Kept;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::batch::Batch;
use self::checkout::Live;
use self::dir::{Dir, Kind};
use self::layers::Layers;
use self::most::Most;
use self::restore::Restore;

/// A directory whose versions are kept.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
    objects: Objects,
    /// Where what is known of files is kept between processes.
    index: PathBuf,
    largest: u64,
    most: Most,
    known: Option<Arc<Dir>>,
    /// Whether more is known than the index says.
    unsaved: bool,
    /// What keeps it mounted, where it is.
    mounted: Option<Layers>,
}

/// A directory as it was at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What is kept of it.
    pub tree: TreeId,
    found: Arc<Dir>,
}

impl Workspace {
    /// Files larger than this are not kept, unless told otherwise.
    pub const LARGEST: u64 = 32 << 20;

    /// Opens a directory. `index` is a file that holds what is known of it between processes: where it is missing or
    /// damaged, the next snapshot takes longer.
    pub fn open(root: &Path, objects: &Objects, index: &Path) -> Result<Self> {
        Workspace::open_with(root, objects, index, None)
    }

    /// Opens a directory that [`fork`](Workspace::fork) made.
    pub fn open_fork(root: &Path, objects: &Objects, index: &Path) -> Result<Self> {
        let layers = Layers::open(objects, root)?;
        Workspace::open_with(root, objects, index, layers)
    }

    fn open_with(root: &Path, objects: &Objects, index: &Path, layers: Option<Layers>) -> Result<Self> {
        let (root, objects, index) = (root.to_owned(), objects.clone(), index.to_owned());
        let (largest, most) = (Self::LARGEST, Most::default());
        let mut workspace =
            Workspace { root, objects, index, largest, most, known: None, unsaved: false, mounted: layers };
        workspace.load()?;
        Ok(workspace)
    }

    /// Sets how large a file may be that is kept.
    pub fn largest(mut self, bytes: u64) -> Result<Self> {
        if self.largest != bytes {
            self.largest = bytes;
            self.load()?;
        }
        Ok(self)
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether it is a fork that is mounted as long as somebody holds it.
    pub fn is_mounted(&self) -> bool {
        self.mounted.is_some()
    }

    /// Where its versions are kept.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The last snapshot, as far as it is known, be it of an earlier process.
    pub fn last(&self) -> Option<Snapshot> {
        self.known.clone().map(Snapshot::new)
    }

    /// Keeps the directory as it is now. It is durable after [`Objects::sync`].
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        let root = self.open_root()?;
        let batch = Batch::new(&self.objects);
        let found = walk::walk(&root, &self.objects, &batch, (self.largest, self.most), self.known.clone())?;
        batch.finish()?;
        self.unsaved |= !self.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &found));
        self.known = Some(found.clone());
        Ok(Snapshot::new(found))
    }

    /// What changed between two snapshots, by path: what is kept, and what is not.
    pub fn changes(&self, before: &Snapshot, after: &Snapshot) -> Result<Vec<FileChange>> {
        changes::between(&self.objects, Some(&before.found), &after.found)
    }

    /// Makes the kept files equal to a tree, and says what is there then.
    ///
    /// Only what differs is touched; whoever looks at a file finds all of the old one or all of the new one. What is not kept
    /// stays, and where it is in the way of a file, nothing is restored at all. What is there before is kept in a snapshot.
    pub fn restore(&mut self, tree: TreeId) -> Result<Snapshot> {
        let wanted = tree.0;
        let before = self.snapshot()?;
        let changed = changes::of_trees(&self.objects, Some(before.found.tree()), wanted)?;
        if changed.is_empty() {
            return Ok(before);
        }
        let root = self.open_root()?;
        let aside = self.index.parent().unwrap_or(&self.root);
        Restore { objects: &self.objects, root: &root, found: &before.found, aside }.run(&changed)?;
        self.snapshot()
    }

    /// A new directory with what a tree holds, and what is known of it in another index. Nothing else sees what is changed in
    /// it.
    ///
    /// Where this process may mount an overlay and there are many files, they are shared with other forks until they are
    /// changed: the directory is there as long as a workspace of it is held, and [`open_fork`](Workspace::open_fork) brings it
    /// back. Elsewhere files share their blocks with those of this workspace if the file system can do that, or are copied.
    /// They are never hard links: a program that writes in place would write to both.
    pub fn fork(&self, tree: TreeId, into: &Path, index: &Path) -> Result<Workspace> {
        let live = || match (&self.known, self.open_root()) {
            (Some(known), Ok(root)) => Some(Live { root, known: known.clone() }),
            _ => None,
        };
        if !layers::is_whole(into) {
            layers::clear(into);
        }
        checkout::has_room(into)?;
        let id = tree.0;
        let (known, layers) = match layers::fork(&self.objects, id, into, &self.about()?, live())? {
            Some((layers, known)) => (known, Some(layers)),
            None => {
                // It is there as a whole or not at all.
                let making = objects::temporary(into.parent().unwrap_or(into));
                let made = checkout::checkout(&self.objects, id, &making, live()).and_then(|known| {
                    std::fs::rename(&making, into).map_err(|error| objects::at(into, "write to", error))?;
                    Ok(known)
                });
                let _ = std::fs::remove_dir_all(&making);
                (Some(made?), None)
            }
        };
        let (root, index) = (into.to_owned(), index.to_owned());
        let (objects, largest, most) = (self.objects.clone(), self.largest, self.most);
        let mut fork = Workspace { root, objects, index, largest, most, known, unsaved: true, mounted: layers };
        if fork.known.as_ref().is_none_or(|known| known.tree() != id) {
            fork.snapshot()?;
        }
        Ok(fork)
    }

    /// Whether a directory is one that [`fork`](Workspace::fork) made, to its end.
    pub fn is_fork(directory: &Path) -> bool {
        directory.is_dir() && layers::is_whole(directory)
    }

    /// Writes what is known to the index. This is done when a workspace is let go, too.
    pub fn save(&mut self) -> Result<()> {
        let Some(known) = self.known.as_ref().filter(|_| self.unsaved) else { return Ok(()) };
        let synced = self.objects.is_synced();
        index::write(&self.index, &self.about()?, known, synced)
            .map_err(|error| objects::at(&self.index, "write the index", error))?;
        self.unsaved = false;
        Ok(())
    }

    fn load(&mut self) -> Result<()> {
        let read = index::read(&self.index, &self.about()?);
        if read.as_ref().is_some_and(|read| !read.synced) {
            self.objects.doubt();
        }
        self.known = read.map(|read| read.dir);
        Ok(())
    }

    fn about(&self) -> Result<index::About> {
        let root = disk::stat_of(&self.open_root()?).map_err(std::io::Error::from)?;
        Ok(index::About { objects: self.objects.identity(), root: root.inode, largest: self.largest })
    }

    fn open_root(&self) -> Result<OwnedFd> {
        disk::open_root(&self.root).map_err(|error| objects::at(&self.root, "open the workspace", error))
    }
}

/// Saves what is known, if it can: without it, the next snapshot takes longer.
impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = self.save();
    }
}

impl Snapshot {
    fn new(found: Arc<Dir>) -> Self {
        Snapshot { tree: TreeId(found.tree()), found }
    }

    /// What was there and is not kept, by path.
    ///
    /// Of an ignored directory only its own path, not what is in it.
    pub fn unkept(&self) -> Vec<(String, Untracked)> {
        let mut unkept = Vec::new();
        let mut rest = vec![(Vec::new(), &self.found)];
        while let Some((path, dir)) = rest.pop() {
            for entry in &dir.entries {
                let below = changes::join(&path, dir.name(entry));
                match (entry.kind, dir.child(entry)) {
                    (Kind::Unkept(why), _) => unkept.push((quote::shown(&below).into_owned(), why)),
                    (_, Some(child)) if child.entries.is_empty() => {
                        unkept.push((quote::shown(&below).into_owned(), Untracked::EmptyDirectory));
                    }
                    (_, Some(child)) => rest.push((below, child)),
                    _ => {}
                }
            }
        }
        unkept.sort_by(|one, other| one.0.cmp(&other.0));
        unkept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known of a workspace with one file, changed by hand.
    fn known(dir: &Dir, change: impl Fn(&mut dir::Entry)) -> Arc<Dir> {
        let mut altered = Dir::default();
        for entry in &dir.entries {
            let mut entry = *entry;
            change(&mut entry);
            altered.push(dir.name(&entry), entry);
        }
        Arc::new(altered)
    }

    #[test]
    fn a_directory_that_holds_too_much_is_no_workspace() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("ignored")).expect("a directory");
        std::fs::write(root.join(".gitignore"), "ignored\n").expect("written");
        for nth in 0..20 {
            std::fs::write(root.join("ignored").join(format!("{nth}")), "1234").expect("written");
        }
        let objects = Objects::open(&folder.path().join("versions")).expect("versions");
        let look = |names, bytes| {
            let mut workspace = Workspace::open(&root, &objects, &folder.path().join("index")).expect("a workspace");
            workspace.most = Most { names, bytes };
            workspace.snapshot().map(|_| ()).map_err(|error| error.message())
        };
        assert_eq!(look(2, 8), Ok(()));
        std::fs::write(root.join("file"), "12345678\n").expect("written");
        let told = Err("too much for a workspace: it holds more than 2 files and directories".to_owned());
        assert_eq!(look(2, 100), told);
        let told = Err("too much for a workspace: it holds more than 0 MiB that are new".to_owned());
        assert_eq!(look(3, 8), told);
        assert_eq!(look(3, 17), Ok(()));
    }

    #[test]
    fn what_may_have_changed_unseen_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, versions) = (folder.path().join("root"), folder.path().join("versions"));
        std::fs::create_dir(&root).expect("a directory");
        let objects = Objects::open(&versions).expect("versions");
        let mut workspace = Workspace::open(&root, &objects, &folder.path().join("index")).expect("a workspace");
        // Within one tick of the clock: soon, on any machine.
        let racy = (0..1_000).any(|nth| {
            std::fs::write(root.join("file"), format!("{nth}")).expect("written");
            workspace.snapshot().expect("a snapshot").found.entries[0].racy
        });
        assert!(racy);
        disk::next_tick();
        disk::next_tick();
        let sure = workspace.snapshot().expect("a snapshot");
        assert!(!sure.found.entries[0].racy);
        let wrong = ObjectId([7; 20]);
        for racy in [true, false] {
            workspace.known = Some(known(&sure.found, |entry| (entry.id, entry.racy) = (wrong, racy)));
            let id = workspace.snapshot().expect("a snapshot").found.entries[0].id;
            assert_eq!(id, if racy { sure.found.entries[0].id } else { wrong });
        }
        workspace.known = Some(known(&sure.found, |entry| {
            (entry.id, entry.racy, entry.stat.changed) = (wrong, false, entry.stat.changed - 1);
        }));
        assert_eq!(workspace.snapshot().expect("a snapshot").tree, sure.tree);
    }
}
