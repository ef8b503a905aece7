//! The versions of a directory, as git objects in a folder of their own.
//!
//! [`Objects`] keeps versions; a [`Workspace`] is a directory whose versions are kept. Nothing of a `.git` that may be there
//! is read, locked, run or written: not its index, its configuration, its hooks or filters. Line endings stay as they are,
//! and `.gitattributes` is a file like any other.
//!
//! What a [`Snapshot`] keeps, as git would: files with their executable bit, links as links (never followed), names as bytes.
//! What it does not keep, and [`Workspace::changes`] still names when its metadata changes:
//!
//! - what a `.gitignore` in the workspace names, by git's rules. There are no rules layers_dir those files, and a file that was
//!   kept before it came to be ignored is kept no longer. An ignored directory is looked into for metadata only; one that holds
//!   more than 10,000 names is named as a whole, by its own metadata. When more than 20 paths changed in one, it is named
//!   instead of them;
//! - `.git`, at any depth, named as one path. Its `objects` are not looked into: git writes no object without writing something
//!   else too. The files of a repository inside the workspace are files like any others;
//! - files that are larger than 32 MiB, unless [`Workspace::max_file_size`] says otherwise;
//! - pipes, sockets and devices, and what cannot be read: files and directories that are closed to us, directories nested more
//!   than 2,048 deep, and files made to collide with others;
//! - directories with nothing in them;
//! - `.rath` below the first level, and files that a tool is index_key to put in the place of others (`.rath-`, 32 digits, `.tmp`).
//!
//! The `.rath` of the workspace itself is ours: it is neither kept nor named. Neither are times, owners, or permissions beyond
//! the executable bit.
//!
//! A snapshot is one pass over names and metadata. A file is read again if its size, its times, its inode or its mode are not
//! as they were, or if it was last changed so shortly before it was read that it may have changed again without a trace. One
//! that changes while it is read is read again, five times at limits; what is kept is always what was read. What goes away
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
mod dir_node;
mod disk;
mod edit;
mod error;
mod fork_method;
mod glob;
mod ignore;
mod index;
mod limits;
mod lines;
mod merge;
mod objects;
#[cfg(target_os = "linux")]
mod overlay;
#[cfg(not(target_os = "linux"))]
#[path = "overlay_unsupported.rs"]
mod overlay;
mod pack;
mod patch;
mod paths;
mod pool;
mod queries;
mod rename;
mod restore;
mod tree;
mod walk;

pub use self::bisect::{Bisect, Verdict};
pub use self::blame::{BlamedLine, Revision};
pub use self::change::{ChangeKind, Digest, FileChange, UntrackedReason};
pub use self::edit::TempCheckout;
pub use self::error::{Error, ErrorKind, Result};
pub use self::fork_method::ForkMethod;
pub use self::ignore::IgnoreRules;
pub use self::merge::{Conflict, ConflictKind, Labels, MergeResult};
pub use self::objects::Objects;
pub use self::paths::{path_bytes, path_text};
pub use self::queries::TreeFile;
pub use self::tree::{Mode, ObjectId, TreeId};

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::batch::Batch;
use self::checkout::CopySource;
use self::dir::{Dir, EntryKind};
use self::index::IndexKey;
use self::limits::SnapshotLimits;
use self::overlay::OverlayMount;
use self::restore::Restore;

/// A directory whose versions are kept.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
    objects: Objects,
    /// Where what is known of files is kept between processes.
    index: PathBuf,
    max_file_size: u64,
    limits: SnapshotLimits,
    known: Option<Arc<Dir>>,
    /// Whether more is known than the index says.
    unsaved: bool,
    /// What keeps it overlay, where it is.
    overlay: Option<OverlayMount>,
}

/// A directory as it was at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What is kept of it.
    pub tree: TreeId,
    dir: Arc<Dir>,
}

impl Workspace {
    /// Files larger than this are not kept, unless told otherwise.
    pub const DEFAULT_MAX_FILE_SIZE: u64 = 32 << 20;

    /// Opens a directory. `index` is a file that holds what is known of it between processes: where it is missing or
    /// damaged, the next snapshot takes longer.
    pub fn open(root: &Path, objects: &Objects, index: &Path) -> Result<Self> {
        Workspace::open_with(root, objects, index, None)
    }

    /// Opens a directory that [`fork`](Workspace::fork) made.
    pub fn open_fork(root: &Path, objects: &Objects, index: &Path) -> Result<Self> {
        let overlay = OverlayMount::open(objects, root)?;
        Workspace::open_with(root, objects, index, overlay)
    }

    fn open_with(root: &Path, objects: &Objects, index: &Path, overlay: Option<OverlayMount>) -> Result<Self> {
        let (root, objects, index) = (root.to_owned(), objects.clone(), index.to_owned());
        let (max_file_size, limits) = (Self::DEFAULT_MAX_FILE_SIZE, SnapshotLimits::default());
        let mut workspace =
            Workspace { root, objects, index, max_file_size, limits, known: None, unsaved: false, overlay: overlay };
        workspace.load()?;
        Ok(workspace)
    }

    /// Sets how large a file may be that is kept.
    pub fn max_file_size(mut self, bytes: u64) -> Result<Self> {
        if self.max_file_size != bytes {
            self.max_file_size = bytes;
            self.load()?;
        }
        Ok(self)
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether it is a fork that is overlay as long as somebody holds it.
    pub fn is_mounted(&self) -> bool {
        self.overlay.is_some()
    }

    /// Where its versions are kept.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The last snapshot, as far as it is known, be it of an earlier process.
    pub fn last_snapshot(&self) -> Option<Snapshot> {
        self.known.clone().map(Snapshot::new)
    }

    /// Keeps the directory as it is now. It is durable after [`Objects::sync`].
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        let root = self.open_root()?;
        let batch = Batch::new(&self.objects);
        let found = walk::walk(&root, &self.objects, &batch, (self.max_file_size, self.limits), self.known.clone())?;
        batch.finish()?;
        self.unsaved |= !self.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &found));
        self.known = Some(found.clone());
        Ok(Snapshot::new(found))
    }

    /// What changed between two snapshots, by path: what is kept, and what is not.
    pub fn changes(&self, before: &Snapshot, after: &Snapshot) -> Result<Vec<FileChange>> {
        changes::diff_snapshots(&self.objects, Some(&before.dir), &after.dir)
    }

    /// Makes the kept files equal to a tree, and says what is there then.
    ///
    /// Only what differs is touched; whoever looks at a file finds all of the old one or all of the new one. What is not kept
    /// stays, and where it is in the way of a file, nothing is restored at all. What is there before is kept in a snapshot.
    pub fn restore(&mut self, tree: TreeId) -> Result<Snapshot> {
        let wanted = tree.0;
        let before = self.snapshot()?;
        let changed = changes::diff_trees(&self.objects, Some(before.dir.tree()), wanted)?;
        if changed.is_empty() {
            return Ok(before);
        }
        let root = self.open_root()?;
        let staging = self.index.parent().unwrap_or(&self.root);
        Restore { objects: &self.objects, root: &root, dir: &before.dir, staging }.run(&changed)?;
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
            (Some(known), Ok(root)) => Some(CopySource { root, known: known.clone() }),
            _ => None,
        };
        if !overlay::is_complete(into) {
            overlay::clear(into);
        }
        checkout::check_empty(into)?;
        let id = tree.0;
        let (known, overlay) = match overlay::fork(&self.objects, id, into, &self.index_key()?, live())? {
            Some((overlay, known)) => (known, Some(overlay)),
            None => {
                // It is there as a whole or not at all.
                let making = objects::temp_path(into.parent().unwrap_or(into));
                let made = checkout::checkout(&self.objects, id, &making, live()).and_then(|known| {
                    std::fs::rename(&making, into).map_err(|error| objects::io_error(into, "write to", error))?;
                    Ok(known)
                });
                let _ = std::fs::remove_dir_all(&making);
                (Some(made?), None)
            }
        };
        let (root, index) = (into.to_owned(), index.to_owned());
        let (objects, max_file_size, limits) = (self.objects.clone(), self.max_file_size, self.limits);
        let mut fork =
            Workspace { root, objects, index, max_file_size, limits, known, unsaved: true, overlay: overlay };
        if fork.known.as_ref().is_none_or(|known| known.tree() != id) {
            fork.snapshot()?;
        }
        Ok(fork)
    }

    /// Whether a directory is one that [`fork`](Workspace::fork) made, to its end.
    pub fn is_fork(directory: &Path) -> bool {
        directory.is_dir() && overlay::is_complete(directory)
    }

    /// Writes what is known to the index. This is done when a workspace is let go, too.
    pub fn save(&mut self) -> Result<()> {
        let Some(known) = self.known.as_ref().filter(|_| self.unsaved) else { return Ok(()) };
        let synced = self.objects.is_synced();
        index::write(&self.index, &self.index_key()?, known, synced)
            .map_err(|error| objects::io_error(&self.index, "write the index", error))?;
        self.unsaved = false;
        Ok(())
    }

    fn load(&mut self) -> Result<()> {
        let read = index::read(&self.index, &self.index_key()?);
        if read.as_ref().is_some_and(|read| !read.synced) {
            self.objects.mark_unsynced();
        }
        self.known = read.map(|read| read.dir);
        Ok(())
    }

    fn index_key(&self) -> Result<IndexKey> {
        let root = disk::stat_fd(&self.open_root()?).map_err(std::io::Error::from)?;
        Ok(IndexKey { objects: self.objects.identity(), root: root.inode, max_file_size: self.max_file_size })
    }

    fn open_root(&self) -> Result<OwnedFd> {
        disk::open_root(&self.root).map_err(|error| objects::io_error(&self.root, "open the workspace", error))
    }
}

/// Saves what is known, if it can: without it, the next snapshot takes longer.
impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = self.save();
    }
}

impl Snapshot {
    fn new(dir: Arc<Dir>) -> Self {
        Snapshot { tree: TreeId(dir.tree()), dir }
    }

    /// What was there and is not kept, by path.
    ///
    /// Of an ignored directory only its own path, not what is in it.
    pub fn untracked(&self) -> Vec<(String, UntrackedReason)> {
        let mut untracked = Vec::new();
        let mut rest = vec![(Vec::new(), &self.dir)];
        while let Some((path, dir)) = rest.pop() {
            for entry in &dir.entries {
                let below = changes::join_path(&path, dir.name(entry));
                match (entry.kind, dir.child(entry)) {
                    (EntryKind::Untracked(why), _) => untracked.push((paths::path_text(&below).into_owned(), why)),
                    (_, Some(child)) if child.entries.is_empty() => {
                        untracked.push((paths::path_text(&below).into_owned(), UntrackedReason::EmptyDirectory));
                    }
                    (_, Some(child)) => rest.push((below, child)),
                    _ => {}
                }
            }
        }
        untracked.sort_by(|one, other| one.0.cmp(&other.0));
        untracked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known of a workspace with one file, changed by hand.
    fn known(dir: &Dir, change: impl Fn(&mut dir::DirEntry)) -> Arc<Dir> {
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
            workspace.limits = SnapshotLimits { names, bytes };
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
            workspace.snapshot().expect("a snapshot").dir.entries[0].racy
        });
        assert!(racy);
        disk::wait_for_tick();
        disk::wait_for_tick();
        let sure = workspace.snapshot().expect("a snapshot");
        assert!(!sure.dir.entries[0].racy);
        let wrong = ObjectId([7; 20]);
        for racy in [true, false] {
            workspace.known = Some(known(&sure.dir, |entry| (entry.id, entry.racy) = (wrong, racy)));
            let id = workspace.snapshot().expect("a snapshot").dir.entries[0].id;
            assert_eq!(id, if racy { sure.dir.entries[0].id } else { wrong });
        }
        workspace.known = Some(known(&sure.dir, |entry| {
            (entry.id, entry.racy, entry.stat.changed) = (wrong, false, entry.stat.changed - 1);
        }));
        assert_eq!(workspace.snapshot().expect("a snapshot").tree, sure.tree);
    }
}
