//! Forks by overlay mount: many forks share one unchanged base version, and each stores only its own changes.
//!
//! A base version lies in `versions/<tree>` of the folder of objects and is never written to; forks of the same tree,
//! or of a similar one, share it. The changes of a fork lie next to its directory, in `<directory>.layers`, with a file
//! that names the base version. The two are mounted together while a workspace of the fork is open: the last one to
//! close unmounts them, and the next one to open mounts them again. A mount that is left after a crash is used as it
//! is, or unmounted by [`sweep`].
//!
//! This needs an overlay file system and the permission to mount it. Without either, files are copied.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, UnmountFlags};

use crate::checkout::{self, CopySource};
use crate::dir::Dir;
use crate::error::{Error, ErrorKind, Result};
use crate::fork_method::MountedFork;
use crate::objects::{self, Objects};
use crate::restore::{Care, Restore};
use crate::tree::ObjectId;
use crate::{changes, disk, index, regular_file};

/// A directory with fewer files than this is copied: that is fast, and an ordinary directory needs no mount.
const MIN_FILES_FOR_OVERLAY: usize = 1_000;

/// A base version may differ from the tree of a fork in this many files.
const MAX_CHANGES_FROM_BASE: usize = 1_000;

/// The file in the layers directory that names the base version. It is written last, so it marks a complete fork.
const BASE_FILE: &str = "below";

/// The lock file in the layers directory.
const LOCK_FILE: &str = "lock";

/// The end of the name of the layers directory.
pub(crate) const LAYERS_SUFFIX: &str = ".layers";

/// The number of attempts to mount a fork that another process unmounts at the same time.
const MAX_MOUNT_TRIES: usize = 16;

/// The number of existing base versions that are compared with a tree.
const MAX_BASES_COMPARED: usize = 4;

/// A mounted directory. Dropping the last handle unmounts it.
#[derive(Debug)]
pub(crate) struct OverlayMount {
    directory: PathBuf,
    /// A lock file: shared by all open workspaces of the directory, exclusive while mounting or unmounting.
    lock: File,
}

/// A checked out version that forks share.
struct BaseVersion {
    tree: ObjectId,
    folder: PathBuf,
}

/// Returns true if an overlay can be mounted where `trial` is. Tries it with empty directories in `trial`, which is removed.
///
/// The mount is never attached to a directory, where the kernel can do that: it ends with this process.
pub(crate) fn can_mount(trial: &Path) -> bool {
    let [base, layers, at] = ["below", "own", "at"].map(|name| trial.join(name));
    let tried = create_dir(&base).and_then(|()| create_dir(&at)).and_then(|()| match mount_detached(&base, &layers) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOSYS) => mount(&base, &layers, &at),
        tried => tried,
    });
    unmount_trial(trial);
    let _ = fs::remove_dir_all(trial);
    tried.is_ok()
}

/// Unmounts the overlay of a trial, if it is mounted.
pub(crate) fn unmount_trial(trial: &Path) {
    let at = trial.join("at");
    if is_mounted(&at).unwrap_or_default() {
        unmount(&at);
    }
}

fn unmount(directory: &Path) {
    let _ = rustix::mount::unmount(directory, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
}

/// Cleans up the forks that killed processes left in a directory.
pub(crate) fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let layers = entry.path();
        let Some(name) = layers.file_name().and_then(|name| name.to_str()?.strip_suffix(LAYERS_SUFFIX)) else {
            continue;
        };
        let fork = directory.join(name);
        let lock = File::open(layers.join(LOCK_FILE)).ok();
        // The lock file is there before the directory has its name.
        if lock.as_ref().is_some_and(|lock| rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_err())
        {
            continue;
        }
        if !is_complete(&fork) {
            clear(&fork);
        } else if is_mounted(&fork).unwrap_or_default() {
            unmount(&fork);
        }
    }
}

/// Returns the path in the upper layer of the innermost fork that a path leads through.
pub(crate) fn path_in_layer(path: &Path) -> Option<PathBuf> {
    let fork = path.ancestors().skip(1).find(|above| layers_dir(above).join("upper").is_dir())?;
    Some(layers_dir(fork).join("upper").join(path.strip_prefix(fork).ok()?))
}

/// Returns true unless the directory is an overlay fork that was not completed.
pub(crate) fn is_complete(directory: &Path) -> bool {
    !layers_dir(directory).exists() || layers_dir(directory).join(BASE_FILE).exists()
}

/// Removes a fork that was not completed.
pub(crate) fn clear(directory: &Path) {
    unmount(directory);
    let _ = fs::remove_dir_all(layers_dir(directory));
    let _ = fs::remove_dir(directory);
}

/// Unmounts a fork that no process uses.
pub(crate) fn unmount_fork(directory: &Path) {
    if is_mounted(directory).unwrap_or_default() {
        unmount(directory);
    }
}

/// Returns the base version of a fork; none for an ordinary directory.
pub(crate) fn base_of(directory: &Path) -> Option<ObjectId> {
    let bytes =
        regular_file::read_at_most(&layers_dir(directory).join(BASE_FILE), objects::MAX_SMALL_FILE_BYTES).ok()?;
    ObjectId::from_hex(std::str::from_utf8(&bytes).ok()?.trim())
}

/// Returns the directory with the changes of a fork; none for an ordinary directory.
pub(crate) fn upper_layer(directory: &Path) -> Option<PathBuf> {
    Some(layers_dir(directory).join("upper")).filter(|upper| upper.is_dir())
}

/// Mounts a tree at a new or empty directory; none if the files are to be copied.
pub(crate) fn fork(
    objects: &Objects,
    tree: ObjectId,
    into: &Path,
    key: &index::IndexKey,
    source: Option<CopySource>,
) -> Result<Option<MountedFork>> {
    if layers_dir(into).exists() {
        return Err(objects::io_error(into, "create the fork", std::io::ErrorKind::AlreadyExists.into()));
    }
    let is_large = source.as_ref().is_some_and(|source| source.known.names() >= MIN_FILES_FOR_OVERLAY);
    if !is_large || !objects.can_mount_overlay() {
        return Ok(None);
    }
    let failed = |error| objects::io_error(into, "create the fork", error);
    let similar = BaseVersion::find_similar(objects, tree)?;
    let (base, changes_from_base) = match similar {
        Some(similar) => similar,
        None => {
            objects.add_intact_base(tree);
            (BaseVersion::create(objects, tree, key, source)?, Vec::new())
        }
    };
    let unchecked_base = (!objects.has_intact_base(base.tree)).then_some(base.tree);
    create_dir(into).map_err(failed)?;
    // The layers are locked before they have their name: without a lock, an unfinished fork belongs to a process that is dead.
    let create_locked = |layers: &Path| -> std::io::Result<File> {
        create_dir(layers)?;
        let lock = open_lock(layers)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        Ok(lock)
    };
    let lock = objects.temporaries().place(&layers_dir(into), create_locked).map_err(failed)?;
    let overlay = OverlayMount::mount_at(into, lock, || Ok(base.files()))?;
    let known = base.known(objects, key);
    if !changes_from_base.is_empty() {
        let root = disk::open_root(into).map_err(failed)?;
        let dir = known.clone().unwrap_or_default();
        let restore = Restore { objects, root: &root, root_path: into, dir: &dir, care: Care::None };
        restore.run(&changes_from_base).map_err(|failed| failed.error)?;
    }
    // The fork is complete from here on.
    let name = format!("{}\n", base.tree);
    objects.temporaries().write_new(&layers_dir(into).join(BASE_FILE), name.as_bytes()).map_err(failed)?;
    Ok(Some(MountedFork { overlay, known, unchecked_base }))
}

impl OverlayMount {
    /// Mounts the directory of a fork; none for an ordinary directory.
    pub(crate) fn open(objects: &Objects, directory: &Path) -> Result<Option<Self>> {
        let file = layers_dir(directory).join(BASE_FILE);
        if !file.exists() {
            return Ok(None);
        }
        let base = || {
            let bytes = regular_file::read_at_most(&file, objects::MAX_SMALL_FILE_BYTES);
            let bytes = bytes.map_err(|error| objects::io_error(&file, "read", error))?;
            let text = String::from_utf8_lossy(&bytes);
            let damaged = |what: String| Error::new(ErrorKind::Damaged, what);
            let tree = ObjectId::from_hex(text.trim())
                .ok_or_else(|| damaged(format!("`{}` does not name a base version", file.display())))?;
            let files = BaseVersion::at(objects, tree).files();
            let missing = || damaged(format!("the base version {tree} of `{}` is missing", directory.display()));
            if files.is_dir() { Ok(files) } else { Err(missing()) }
        };
        let lock = open_lock(&layers_dir(directory)).map_err(|error| objects::io_error(directory, "mount", error))?;
        OverlayMount::mount_at(directory, lock, base).map(Some)
    }

    /// Mounts the base version that `base` returns, unless it is mounted already.
    fn mount_at(directory: &Path, lock: File, base: impl Fn() -> Result<PathBuf>) -> Result<Self> {
        let failed = |error: std::io::Error| objects::io_error(directory, "mount", error);
        let overlay = OverlayMount { directory: directory.to_owned(), lock };
        for _ in 0..MAX_MOUNT_TRIES {
            let is_only_user = rustix::fs::flock(&overlay.lock, FlockOperation::NonBlockingLockExclusive).is_ok();
            if is_only_user && !is_mounted(directory).map_err(failed)? {
                mount(&base()?, &layers_dir(directory), directory).map_err(failed)?;
            }
            rustix::fs::flock(&overlay.lock, FlockOperation::LockShared).map_err(|error| failed(error.into()))?;
            // Another process may have had the lock in between, and have unmounted the directory.
            if is_mounted(directory).map_err(failed)? {
                return Ok(overlay);
            }
            rustix::fs::flock(&overlay.lock, FlockOperation::Unlock).map_err(|error| failed(error.into()))?;
            std::thread::yield_now();
        }
        let message = format!("`{}` is mounted by a process in another mount namespace", directory.display());
        Err(Error::new(ErrorKind::Directory, message).with_hint("end that process, or create another fork"))
    }
}

impl Drop for OverlayMount {
    fn drop(&mut self) {
        if rustix::fs::flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            unmount(&self.directory);
        }
    }
}

impl BaseVersion {
    /// Returns the base version of a tree, whether or not it exists.
    fn at(objects: &Objects, tree: ObjectId) -> Self {
        BaseVersion { tree, folder: objects.folder().join("versions").join(tree.to_string()) }
    }

    /// Returns the directory with the files.
    fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Returns a base version that is equal or similar to a tree, and the changes from it to the tree.
    fn find_similar(objects: &Objects, tree: ObjectId) -> Result<Option<(Self, Vec<changes::TreeChange>)>> {
        let same = BaseVersion::at(objects, tree);
        if same.files().is_dir() {
            return Ok(Some((same, Vec::new())));
        }
        let entries = fs::read_dir(objects.folder().join("versions")).into_iter().flatten().flatten();
        let mut known: Vec<_> = entries
            .filter_map(|entry| {
                let tree = ObjectId::from_hex(entry.file_name().to_str()?)?;
                Some((entry.metadata().ok()?.modified().ok()?, tree))
            })
            .collect();
        known.sort_unstable_by_key(|(modified, _)| std::cmp::Reverse(*modified));
        for (_, known) in known.into_iter().take(MAX_BASES_COMPARED) {
            let changes_from_base = changes::diff_trees(objects, Some(known), tree)?;
            if changes_from_base.len() <= MAX_CHANGES_FROM_BASE {
                return Ok(Some((BaseVersion::at(objects, known), changes_from_base)));
            }
        }
        Ok(None)
    }

    /// Checks out a base version.
    fn create(objects: &Objects, tree: ObjectId, key: &index::IndexKey, source: Option<CopySource>) -> Result<Self> {
        let base = BaseVersion::at(objects, tree);
        let versions = objects.folder().join("versions");
        let failed = |error| objects::io_error(&versions, "create a base version in", error);
        // The version appears as a whole or not at all.
        let temp = objects.temporaries().path().map_err(failed)?;
        create_dir(&versions).map_err(failed)?;
        let result = checkout::checkout(objects, tree, &temp.join("files"), source).and_then(|known| {
            let key = index::IndexKey { root: 0, ..*key };
            index::write(&temp.join("index"), objects.temporaries(), &key, &known, objects.is_synced())
                .map_err(failed)?;
            // Forks share the files for as long as they exist: a power cut must not leave a version without its content.
            disk::sync_file_system(&temp).map_err(failed)?;
            match fs::rename(&temp, &base.folder) {
                // Another process was faster.
                Err(_) if base.files().is_dir() => Ok(()),
                renamed => renamed.map_err(failed),
            }
        });
        let _ = fs::remove_dir_all(&temp);
        result.map(|()| base)
    }

    /// Returns the known metadata of the files.
    fn known(&self, objects: &Objects, key: &index::IndexKey) -> Option<Arc<Dir>> {
        let read = index::read(&self.folder.join("index"), &index::IndexKey { root: 0, ..*key })?;
        if !read.synced {
            objects.mark_unsynced();
        }
        Some(read.dir)
    }
}

/// Returns the directory next to a fork that stores its changes.
pub(crate) fn layers_dir(directory: &Path) -> PathBuf {
    let mut path = directory.as_os_str().to_owned();
    path.push(LAYERS_SUFFIX);
    path.into()
}

fn open_lock(layers: &Path) -> std::io::Result<File> {
    File::options().create(true).append(true).open(layers.join(LOCK_FILE))
}

fn create_dir(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)
}

/// Mounts `base` at a directory, with changes stored in `layers`.
fn mount(base: &Path, layers: &Path, at: &Path) -> std::io::Result<()> {
    let [base, upper, work] = layer_paths(base, layers)?;
    // The kernel leaves this marker if the machine stopped while the overlay was mounted. It can be removed because
    // opening a fork takes a snapshot of all files.
    let _ = fs::remove_dir_all(Path::new(&work).join("work").join("incompat"));
    let settings = OVERLAY_SETTINGS.map(|(name, value)| format!(",{name}={value}")).concat();
    // Without `volatile`, unmounting would wait until the whole file system is synced.
    let options = format!("lowerdir={base},upperdir={upper},workdir={work}{settings},volatile");
    let options = std::ffi::CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount("rath", at, "overlay", flags, Some(options.as_c_str()))?)
}

/// The settings of an overlay; `redirect_dir` allows renaming directories.
const OVERLAY_SETTINGS: [(&str, &str); 3] = [("redirect_dir", "on"), ("index", "off"), ("metacopy", "off")];

/// Creates a mount that is attached to no directory, and drops it.
fn mount_detached(base: &Path, layers: &Path) -> std::io::Result<()> {
    let [base, upper, work] = layer_paths(base, layers)?;
    let overlay = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in
        [("lowerdir", &*base), ("upperdir", &upper), ("workdir", &work)].iter().chain(&OVERLAY_SETTINGS)
    {
        rustix::mount::fsconfig_set_string(overlay.as_fd(), *name, *value)?;
    }
    rustix::mount::fsconfig_set_flag(overlay.as_fd(), "volatile")?;
    rustix::mount::fsconfig_create(overlay.as_fd())?;
    rustix::mount::fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    Ok(())
}

/// Creates the directories of the upper layer, and returns the three paths of an overlay.
fn layer_paths(base: &Path, layers: &Path) -> std::io::Result<[String; 3]> {
    let (upper, work) = (layers.join("upper"), layers.join("work"));
    create_dir(&upper)?;
    create_dir(&work)?;
    let as_option = |path: &Path| -> std::io::Result<String> {
        let path = path.canonicalize()?;
        // The mount options would end a path at these characters.
        let path = path.to_str().filter(|path| !path.contains([',', ':', '\\', '"']));
        Ok(path.map(str::to_owned).ok_or(std::io::ErrorKind::InvalidInput)?)
    };
    Ok([as_option(base)?, as_option(&upper)?, as_option(&work)?])
}

/// Returns true if a directory lies on another file system than its parent.
fn is_mounted(directory: &Path) -> std::io::Result<bool> {
    let parent = directory.parent().unwrap_or(directory);
    Ok(fs::metadata(directory)?.dev() != fs::metadata(parent)?.dev())
}
