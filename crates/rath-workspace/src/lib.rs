//! Versions of a directory, stored as git objects.
//!
//! A [`Workspace`] is a directory whose versions are stored, and [`Objects`] is the folder that stores them. A
//! [`Snapshot`] turns the files of the directory into a tree, and a [`TreeId`] names that tree from then on. Trees can
//! be compared, merged, checked out, restored and searched, in any process and long after the directory has changed.
//!
//! All calls block: they read and write files on the current thread.
//!
//! ```
//! use rath_workspace::{Labels, Objects, Workspace};
//! # use std::fs;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let temp = tempfile::tempdir()?;
//! let project = temp.path().join("project");
//! fs::create_dir(&project)?;
//! fs::write(project.join("notes.txt"), "one\ntwo\nthree\nfour\nfive\n")?;
//!
//! // Open the directory, and store its first version.
//! let objects = Objects::open(&temp.path().join("versions"))?;
//! let mut workspace = Workspace::open(&project, &objects, &temp.path().join("index"))?;
//! let base = workspace.snapshot()?.tree;
//!
//! // Change a file, store a second version, and compare the two.
//! fs::write(project.join("notes.txt"), "ONE\ntwo\nthree\nfour\nfive\n")?;
//! let ours = workspace.snapshot()?.tree;
//! let changes = objects.diff(Some(base), ours)?;
//! assert_eq!(changes[0].path, "notes.txt");
//! assert!(objects.patch(base, ours)?.contains("-one\n+ONE\n"));
//!
//! // Go back, and make another change.
//! let now = workspace.snapshot()?;
//! workspace.restore(&now, base)?;
//! fs::write(project.join("notes.txt"), "one\ntwo\nthree\nfour\nFIVE\n")?;
//! let theirs = workspace.snapshot()?.tree;
//!
//! // Merge both changes, and write the result to a new directory.
//! let merged = objects.merge(base, ours, theirs, Labels { ours: "ours", theirs: "theirs" })?;
//! assert!(merged.conflicts.is_empty());
//! objects.checkout(merged.tree, &temp.path().join("merged"))?;
//! assert_eq!(fs::read_to_string(temp.path().join("merged/notes.txt"))?, "ONE\ntwo\nthree\nfour\nFIVE\n");
//! # Ok(())
//! # }
//! ```
//!
//! | to | use |
//! |---|---|
//! | store a version | [`Workspace::snapshot`], then [`Objects::sync`] to make it durable |
//! | list changes | [`Workspace::changes`] between snapshots, [`Objects::diff`] and [`Objects::patch`] between trees |
//! | read a version | [`Objects::files`], [`Objects::read`], [`Objects::checkout`], [`Objects::temp_checkout`] |
//! | return to a version | [`Workspace::restore`] |
//! | return single files to their state before | [`Workspace::back_up`], then [`Workspace::recover`] |
//! | work on several versions at once | [`Workspace::fork`], and [`ForkShare`] for the files that git ignores |
//! | combine versions | [`Objects::merge`], [`Objects::with_paths`], [`Objects::with_version`], [`Objects::with_content`] |
//! | read all that versions consist of | [`Objects::walk`] |
//! | take over versions of others | [`ObjectImport`] |
//! | remove versions that nothing names | [`Collector`] |
//! | find the origin of a line | [`Objects::blame`] |
//! | find the version that broke something | [`Bisect`] |
//!
//! The example `versions` shows them together: `cargo run -p rath-workspace --example versions`.
//!
//! # Git
//!
//! Objects, trees, ignore rules, renames and merges follow git, so `git --git-dir FOLDER` can read the folder. Git itself is
//! never run, and the `.git` of a directory is never read, locked or written: neither its index nor its configuration,
//! hooks or filters. Line endings are not changed, and `.gitattributes` is an ordinary file.
//!
//! # Tracked files
//!
//! A snapshot stores what git would: files with their executable bit, symbolic links (which are never followed), and names
//! as bytes. It does not store times, owners, or other permissions. Some paths are *untracked*: no version of them is
//! stored, and [`Workspace::changes`] reports a change of their metadata:
//!
//! - paths that a `.gitignore` in the workspace ignores. There are no other rules, and a tracked file that becomes ignored
//!   is no longer tracked, unless [`Workspace::keep_tracked`] was called. Ignored directories are read for metadata only. A directory with more than 10,000 names is
//!   reported as a whole, by its own metadata; with more than 20 changes, it is reported instead of them;
//! - `.git` at any depth, reported as one path. Its `objects` are skipped, because git writes no object without changing
//!   another file too. Other files of a nested repository are ordinary files;
//! - files larger than 32 MiB, or than [`Workspace::max_file_size`];
//! - pipes, sockets and devices; files and directories that the permissions do not allow reading, of which no version is stored yet;
//!   directories nested more than 2,048 deep; and files that are part of a SHA-1 collision attack;
//! - empty directories;
//! - `.rath` below the first level, and temporary files that are about to be renamed (`.rath-`, 32 digits, `.tmp`).
//!
//! A tracked file that becomes too large or gets a secret, and files and directories that can no longer be read, keep their last
//! versions: [`Snapshot::outdated`] names these files, and a restore that would change one fails.
//!
//! The `.rath` directory of the workspace itself is neither stored nor reported.
//!
//! # Cost
//!
//! A snapshot reads all names and metadata once. The content of a file is read only if its size, times, inode or mode
//! changed, or if it changed so shortly before the last read that a further change may have left no trace. A file that
//! changes while it is read is read again, at most five times; the stored content is always what was read last. Files that
//! disappear meanwhile are left out.
//!
//! A directory with more than 1,000,000 names that are not ignored, or with more than 8 GiB in files that have to be read at
//! once, is rejected: it is more likely `/` or a home directory than a project.
//!
//! # Platforms
//!
//! Versions need Unix: elsewhere [`Objects::open`] returns an error of the kind [`ErrorKind::Directory`]. [`IgnoreRules`],
//! [`Bisect`] and paths work everywhere. Forks by overlay mount and files that share blocks need Linux; other Unix systems
//! copy files.

mod aside;
mod backup;
mod batch;
mod bisect;
mod blame;
mod change;
mod changes;
mod checkout;
mod collector;
mod dir;
mod dir_copy;
mod dir_node;
#[cfg(unix)]
mod disk;
#[cfg(not(unix))]
#[path = "disk_unsupported.rs"]
mod disk;
mod edit;
mod error;
mod folder_lock;
mod forgotten;
mod fork_method;
mod fork_share;
mod glob;
mod ignore;
mod ignored;
mod index;
mod limits;
mod lines;
mod listing;
mod merge;
mod object_import;
mod object_walk;
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
mod recover;
mod regular_file;
mod rename;
mod restore;
mod snapshot;
mod temporaries;
#[cfg(all(test, unix))]
mod tests;
mod tree;
mod unread;
mod walk;

pub use self::backup::Backups;
pub use self::bisect::{Bisect, Verdict};
pub use self::blame::{BlamedLine, Revision};
pub use self::change::{ChangeKind, Digest, FileChange, Presence, UntrackedReason};
pub use self::checkout::LeftOutFile;
pub use self::collector::{CollectMode, Collector, FileCount, ForkFiles, Garbage, TreeSearch, fork_of_layers};
pub use self::disk::is_same_file;
pub use self::edit::TempCheckout;
pub use self::error::{Error, ErrorKind, Result};
pub use self::fork_method::ForkMethod;
pub use self::fork_share::{CopyBudget, CopyOutcome, ForkShare};
pub use self::ignore::IgnoreRules;
pub use self::ignored::IgnoredPaths;
pub use self::merge::{Conflict, ConflictKind, Labels, MergeResult};
pub use self::object_import::{ImportCounts, ImportError, ObjectImport, pack_content};
pub use self::object_walk::{ObjectWalk, WalkedContent, WalkedObject};
pub use self::objects::{ObjectKind, Objects};
pub use self::patch::text_patch;
pub use self::paths::{path_bytes, path_text};
pub use self::queries::{CheckedOut, TreeFile};
pub use self::regular_file::{open_regular_file, read_at_most};
pub use self::snapshot::Snapshot;
pub use self::tree::{Mode, ObjectId, TreeId};

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::batch::Batch;
use self::checkout::CopySource;
use self::dir::Dir;
use self::disk::Handle;
use self::index::IndexKey;
use self::limits::SnapshotLimits;
use self::overlay::OverlayMount;
use self::restore::{Care, FailedRestore, Restore};

/// A directory whose versions are stored.
///
/// ```
/// use rath_workspace::{ChangeKind, Objects, Workspace};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let project = temp.path().join("project");
/// # std::fs::create_dir(&project)?;
///
/// let objects = Objects::open(&temp.path().join("versions"))?;
/// let mut workspace = Workspace::open(&project, &objects, &temp.path().join("index"))?;
/// let before = workspace.snapshot()?;
/// std::fs::write(project.join("notes.txt"), "one\n")?;
/// let after = workspace.snapshot()?;
/// assert_eq!(workspace.changes(&before, &after)?[0].kind, ChangeKind::Created);
/// workspace.restore(&after, before.tree)?;
/// assert!(!project.join("notes.txt").exists());
/// # Ok(())
/// # }
/// ```
pub struct Workspace {
    root: PathBuf,
    objects: Objects,
    /// The path of the index.
    index: PathBuf,
    max_file_size: u64,
    limits: SnapshotLimits,
    /// The tracked files that were removed since [`Workspace::keep_tracked`] was called; none before that. If they appear again,
    /// they are tracked, although they are ignored.
    removed: Option<BTreeSet<Vec<u8>>>,
    secret_finder: Option<Arc<SecretFinder>>,
    /// The paths that are neither stored nor written.
    left_out: BTreeSet<Vec<u8>>,
    /// The contents in the last snapshot.
    known: Option<Arc<Dir>>,
    /// The files of the last version, if no snapshot of it is known.
    assumed: Option<Arc<Dir>>,
    /// True if `known` is newer than the index.
    unsaved: bool,
    /// The mount, for a fork by overlay.
    overlay: Option<OverlayMount>,
}

/// A function that returns true for bytes that hold a secret.
pub type SecretFinder = dyn Fn(&[u8]) -> bool + Send + Sync;

impl std::fmt::Debug for Workspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workspace").field("root", &self.root).field("index", &self.index).finish_non_exhaustive()
    }
}

impl Workspace {
    /// The size limit for tracked files, unless [`max_file_size`](Workspace::max_file_size) sets another.
    pub const DEFAULT_MAX_FILE_SIZE: u64 = 32 << 20;

    /// Opens a directory.
    ///
    /// `index` is a file for the metadata of the last snapshot. If it is missing or damaged, the next snapshot takes
    /// longer.
    pub fn open(root: &Path, objects: &Objects, index: &Path) -> Result<Self> {
        Workspace::open_with(root, objects, index, None)
    }

    /// Opens a directory that [`fork`](Workspace::fork) created, and mounts it if necessary.
    pub fn open_fork(root: &Path, objects: &Objects, index: &Path) -> Result<Self> {
        let overlay = OverlayMount::open(objects, root)?;
        Workspace::open_with(root, objects, index, overlay)
    }

    fn open_with(root: &Path, objects: &Objects, index: &Path, overlay: Option<OverlayMount>) -> Result<Self> {
        let (root, objects, index) = (root.to_owned(), objects.clone(), index.to_owned());
        let (max_file_size, limits) = (Self::DEFAULT_MAX_FILE_SIZE, SnapshotLimits::default());
        let (removed, known, unsaved) = (None, None, false);
        let mut workspace = Workspace {
            root,
            objects,
            index,
            max_file_size,
            limits,
            removed,
            secret_finder: None,
            left_out: BTreeSet::new(),
            known,
            assumed: None,
            unsaved,
            overlay,
        };
        workspace.load()?;
        Ok(workspace)
    }

    /// Sets the number of names that are not ignored; a snapshot of a directory with more of them fails.
    pub fn max_names(mut self, names: u64) -> Self {
        self.limits.names = names;
        self
    }

    /// Sets the size limit for tracked files, in bytes.
    pub fn max_file_size(mut self, bytes: u64) -> Result<Self> {
        if self.max_file_size != bytes {
            self.max_file_size = bytes;
            self.load()?;
        }
        Ok(self)
    }

    /// Keeps the files tracked that the last snapshot has, and those of every snapshot from here on, even if they become
    /// ignored, or are removed and appear again. So nothing can hide its changes by adding to a `.gitignore`.
    pub fn keep_tracked(&mut self) {
        self.removed.get_or_insert_default();
    }

    /// Adds files that were tracked before the last snapshot to those that [`keep_tracked`](Workspace::keep_tracked) keeps.
    pub fn keep_tracked_paths<'a>(&mut self, paths: impl IntoIterator<Item = &'a str>) {
        let paths = paths.into_iter().filter_map(|path| paths::parse_path(path).ok());
        self.removed.get_or_insert_default().extend(paths);
    }

    /// Keeps versions of files that hold a secret out of the objects, and their names out of the index. Such a file is untracked from the next time on that it is
    /// read.
    pub fn secret_finder(&mut self, find: Arc<SecretFinder>) {
        self.secret_finder = Some(find);
    }

    /// Leaves files and directories of the user out, by their paths relative to the directory: no version of them is stored, nothing is
    /// reported of them, and a tree that has such a path is not restored. Forks do not have them, and leave out the same paths.
    pub fn leave_out(&mut self, paths: &[PathBuf]) -> Result<()> {
        let names = |path: &PathBuf| path.iter().map(|name| name.as_encoded_bytes().to_vec()).collect::<Vec<_>>();
        let left_out = paths.iter().map(|path| names(path).join(&b'/')).collect();
        if self.left_out != left_out {
            self.left_out = left_out;
            // The index belongs to snapshots that left out the same paths.
            self.load()?;
        }
        Ok(())
    }

    /// Leaves further paths out, as [`leave_out`](Workspace::leave_out) does, which the last snapshot does not have.
    pub fn leave_out_new(&mut self, paths: &[PathBuf]) {
        let names = |path: &PathBuf| path.iter().map(|name| name.as_encoded_bytes().to_vec()).collect::<Vec<_>>();
        let known = self.left_out.len();
        self.left_out.extend(paths.iter().map(|path| names(path).join(&b'/')));
        self.unsaved |= self.left_out.len() != known;
    }

    /// Returns the path of the directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns true if the directory is a fork by overlay, which is mounted only while a workspace of it is open.
    pub fn is_mounted(&self) -> bool {
        self.overlay.is_some()
    }

    /// Returns the objects that store the versions.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the last snapshot, which may be from an earlier process; none if it is not known.
    pub fn last_snapshot(&self) -> Option<Snapshot> {
        self.known.clone().map(Snapshot::new)
    }

    /// Takes a tree for the last version, if no snapshot is known because the index was lost: what cannot be read keeps its version in
    /// this tree. Does nothing if the tree is not stored.
    pub fn assume(&mut self, tree: TreeId) {
        if self.known.is_none() {
            self.assumed = unread::dir_of_tree(&self.objects, tree.0).ok();
        }
    }

    /// Stores the current contents of the directory. They are durable after [`Objects::sync`].
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        let root = self.open_root()?;
        let batch = Batch::new(&self.objects);
        let before = self.known.clone().or_else(|| self.assumed.clone());
        let (limits, known) = ((self.max_file_size, self.limits), (before.clone(), self.removed.as_ref()));
        let leaves = (self.secret_finder.as_deref(), &self.left_out);
        let dir = walk::walk(&root, &self.objects, &batch, limits, known, leaves)?;
        batch.finish()?;
        self.assumed = None;
        if let (Some(removed), Some(known)) = (&mut self.removed, &before) {
            removed.extend(changes::removed_paths(known, &dir));
        }
        self.unsaved |= !self.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &dir));
        self.known = Some(dir.clone());
        Ok(Snapshot::new(dir))
    }

    /// Fails if changes are of paths that are left out.
    fn check_left_out(&self, changed: &[changes::TreeChange]) -> Result<()> {
        let is_left_out = |path: &[u8]| {
            let mut ends =
                path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end).chain([path.len()]);
            let leads_to = |left_out: &Vec<u8>| left_out.strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
            ends.any(|end| self.left_out.contains(&path[..end])) || self.left_out.iter().any(leads_to)
        };
        match changed.iter().find(|change| !self.left_out.is_empty() && is_left_out(&change.path)) {
            None => Ok(()),
            Some(change) => {
                let path = paths::path_text(&change.path);
                let message = format!("no versions are kept of `{path}`, and it is not restored");
                Err(Error::new(ErrorKind::Directory, message))
            }
        }
    }

    /// Returns the changes between two snapshots, by path, of tracked and untracked files.
    ///
    /// An ignored directory with more than 20 changes is one path.
    pub fn changes(&self, before: &Snapshot, after: &Snapshot) -> Result<Vec<FileChange>> {
        self.changes_listing(before, after, &|_| false)
    }

    /// Returns the tracked files that were written to between two snapshots although their content is the same: in between it may have
    /// been another one.
    pub fn rewritten(&self, before: &Snapshot, after: &Snapshot) -> Result<Vec<FileChange>> {
        changes::rewritten(&self.objects, &before.dir, &after.dir)
    }

    /// Returns the changes between two snapshots, as [`changes`](Workspace::changes) does, with each path in an ignored directory
    /// for which `is_listed` returns true.
    pub fn changes_listing(
        &self,
        before: &Snapshot,
        after: &Snapshot,
        is_listed: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<FileChange>> {
        changes::diff_snapshots(&self.objects, Some(&before.dir), &after.dir, is_listed)
    }

    /// Makes the tracked files equal to a tree, and returns the snapshot after that. `before` is a snapshot of the directory: what is
    /// overwritten is stored in it.
    ///
    /// Only files that differ are written, each by a rename: a reader sees the old content or the new content, never a
    /// part. Untracked files stay; if one is in the way, the restore fails and changes nothing. A file that another program has changed
    /// since the snapshot stays as well, and the restore fails with [`ErrorKind::Changed`]. A restore that fails on its way undoes what
    /// it did.
    pub fn restore(&mut self, before: &Snapshot, tree: TreeId) -> Result<Snapshot> {
        let changed = changes::diff_trees(&self.objects, Some(before.dir.tree()), tree.0)?;
        if changed.is_empty() {
            return Ok(before.clone());
        }
        self.check_left_out(&changed)?;
        let root = self.open_root()?;
        let care = if self.overlay.is_some() { Care::LookBefore } else { Care::LookAfter };
        let restore = Restore { objects: &self.objects, root: &root, root_path: &self.root, dir: &before.dir, care };
        if let Err(FailedRestore { error, applied }) = restore.run(&changed) {
            return Err(match restore.undo(&applied) {
                Ok(()) => error,
                Err(second) => {
                    let message = format!("{error}; and the files before could not be put back: {second}");
                    Error::new(ErrorKind::Io, message)
                }
            });
        }
        self.snapshot()
    }

    /// Creates a directory with the files of a tree, independent of this one.
    ///
    /// If this process may mount an overlay and there are many files, the fork shares them with other forks until they
    /// are changed. Such a directory has contents only while a workspace of it is open;
    /// [`open_fork`](Workspace::open_fork) mounts it again. Otherwise files share their blocks with those of this
    /// workspace if the file system supports it, or are copied. They are never hard links: a program that writes in
    /// place would write to both.
    ///
    /// `index` is the path of the new workspace's own index.
    pub fn fork(&self, tree: TreeId, into: &Path, index: &Path) -> Result<Workspace> {
        let source = || match (&self.known, self.open_root()) {
            (Some(known), Ok(root)) => Some(CopySource { root, known: known.clone() }),
            _ => None,
        };
        if !overlay::is_complete(into) {
            overlay::clear(into);
        }
        checkout::check_empty(into)?;
        if let Some(mounted) = overlay::fork(&self.objects, tree.0, into, &self.index_key()?, source())? {
            let is_known = mounted.known.as_ref().is_some_and(|known| known.tree() == tree.0);
            let mut fork = self.new_fork(into, index, mounted.known, Some(mounted.overlay));
            if is_known && mounted.unchecked_base.is_none() {
                return Ok(fork);
            }
            let found = fork.snapshot()?;
            let Some(base) = mounted.unchecked_base else { return Ok(fork) };
            if found.tree == tree && found.untracked().is_empty() {
                self.objects.add_intact_base(base);
                return Ok(fork);
            }
            drop(fork);
            overlay::clear(into);
        }
        if let Some(parent) = into.parent() {
            std::fs::create_dir_all(parent).map_err(|error| objects::io_error(into, "write to", error))?;
        }
        let checkout = |temp: &Path| checkout::checkout(&self.objects, tree.0, temp, source());
        let known = self.objects.temporaries().place(into, checkout)?;
        // The files are durable before a step that names them is: the next sync covers the whole file system.
        self.objects.mark_unsynced();
        let mut fork = self.new_fork(into, index, Some(known), None);
        if fork.known.as_ref().is_none_or(|known| known.tree() != tree.0) {
            fork.snapshot()?;
        }
        Ok(fork)
    }

    /// Creates the workspace of a fork in a directory.
    fn new_fork(
        &self,
        root: &Path,
        index: &Path,
        known: Option<Arc<Dir>>,
        overlay: Option<overlay::OverlayMount>,
    ) -> Workspace {
        let (objects, max_file_size, limits) = (self.objects.clone(), self.max_file_size, self.limits);
        Workspace {
            root: root.to_owned(),
            objects,
            index: index.to_owned(),
            max_file_size,
            limits,
            removed: self.removed.clone(),
            secret_finder: self.secret_finder.clone(),
            left_out: self.left_out.clone(),
            known,
            assumed: None,
            unsaved: true,
            overlay,
        }
    }

    /// Returns true if a directory exists, unless it is a fork that was not completed.
    pub fn is_fork(directory: &Path) -> bool {
        directory.is_dir() && overlay::is_complete(directory)
    }

    /// Writes the index. Dropping a workspace does this too. If the name of a file holds a secret, there is no index.
    pub fn save(&mut self) -> Result<()> {
        let is_stored = self.unsaved && !self.objects.discards();
        let Some(known) = self.known.as_ref().filter(|_| is_stored) else { return Ok(()) };
        if self.secret_finder.as_ref().is_some_and(|find| known.has_names(&**find)) {
            self.unsaved = false;
            return index::remove(&self.index)
                .map_err(|error| objects::io_error(&self.index, "remove the index", error));
        }
        let synced = self.objects.is_synced();
        index::write(&self.index, self.objects.temporaries(), &self.index_key()?, known, synced)
            .map_err(|error| objects::io_error(&self.index, "write the index", error))?;
        self.unsaved = false;
        Ok(())
    }

    /// Reads the index.
    fn load(&mut self) -> Result<()> {
        let loaded = index::read(&self.index, &self.index_key()?);
        if loaded.as_ref().is_some_and(|loaded| !loaded.synced) {
            self.objects.mark_unsynced();
        }
        self.known = loaded.map(|loaded| loaded.dir);
        Ok(())
    }

    /// Returns the key that an index of this workspace has.
    fn index_key(&self) -> Result<IndexKey> {
        let root = disk::stat_open(&self.open_root()?)?;
        let objects = self.objects.identity();
        Ok(IndexKey { objects, root: root.inode, max_file_size: self.max_file_size, left_out: self.left_out_hash() })
    }

    /// Returns a number that differs for other paths that are left out; 0 for none.
    fn left_out_hash(&self) -> u64 {
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        self.left_out.iter().fold(0, |sum, path| path.iter().chain(b"/").fold(sum, hash))
    }

    pub(crate) fn open_root(&self) -> Result<Handle> {
        disk::open_root(&self.root).map_err(|error| objects::io_error(&self.root, "open the workspace", error))
    }
}

/// Writes the index. An error is ignored: without the index, the next snapshot takes longer.
impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = self.save();
    }
}
