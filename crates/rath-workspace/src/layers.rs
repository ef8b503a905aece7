//! Forks that cost next to nothing: a mount that shows a version, and keeps what is changed in it to itself.
//!
//! Below lies a version that nobody writes to, in `versions/<tree>` of the folder of objects; forks of the same tree, or of one
//! near it, share it. What is changed lies beside the fork's directory, in `<directory>.layers`, which also says which version
//! is below. As long as somebody works there the two are mounted together; whoever is the last to let go unmounts them, and
//! whoever comes next mounts them again. After a crash the mount is left, and is used as it is.
//!
//! This takes an overlay file system, and the right to mount one. Where either is missing, files are copied.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;
use rustix::mount::{MountFlags, UnmountFlags};

use super::checkout::{self, Live};
use super::dir::Dir;
use super::objects::{self, Objects};
use super::restore::Restore;
use super::tree::ObjectId;
use super::{changes, disk, index};
use crate::error::{Error, ErrorKind, Result};

/// A directory with fewer files than this is copied: that is quick, and an ordinary directory is the better one.
const WORTH_IT: usize = 1_000;

/// A version is near if no more files than this are different.
const NEAR: usize = 1_000;

/// The file that says which version is below. It is written last.
const BELOW: &str = "below";

/// How many versions are looked at for one that is near.
const LOOKED_AT: usize = 4;

/// A directory that is mounted while this is there.
#[derive(Debug)]
pub(super) struct Layers {
    directory: PathBuf,
    /// Held together by all who work there, and alone by whoever mounts or unmounts.
    lock: File,
}

/// A version that forks rest on.
struct Below {
    tree: ObjectId,
    folder: PathBuf,
}

/// Whether a directory can be mounted over others below this folder: two that hold nothing are, for a moment.
pub(crate) fn can(folder: &Path) -> bool {
    let trial = folder.join(format!(".rath-{}", objects::unique_name()));
    let [below, own, at] = ["below", "own", "at"].map(|name| trial.join(name));
    let tried = make(&below).and_then(|()| make(&at)).and_then(|()| mount(&below, &own, &at));
    if tried.is_ok() {
        let _ = rustix::mount::unmount(&at, UnmountFlags::DETACH);
    }
    let _ = fs::remove_dir_all(&trial);
    tried.is_ok()
}

/// Whether making a fork's directory came to its end, if it was begun in this way.
pub(super) fn is_whole(directory: &Path) -> bool {
    !beside(directory).exists() || beside(directory).join(BELOW).exists()
}

/// Removes what is left where making a fork's directory did not come to its end.
pub(super) fn clear(directory: &Path) {
    let _ = rustix::mount::unmount(directory, UnmountFlags::DETACH);
    let _ = fs::remove_dir_all(beside(directory));
    let _ = fs::remove_dir(directory);
}

/// Makes a new or empty directory show a tree; none where it is to be copied. With it, what is known of its files: as they
/// are, or as they are in a version near it.
pub(super) fn fork(
    objects: &Objects,
    tree: ObjectId,
    into: &Path,
    about: &index::About,
    live: Option<Live>,
) -> Result<Option<(Layers, Option<Arc<Dir>>)>> {
    if beside(into).exists() {
        return Err(objects::at(into, "make the fork", std::io::ErrorKind::AlreadyExists.into()));
    }
    let is_large = live.as_ref().is_some_and(|live| live.known.names() >= WORTH_IT);
    if !is_large || !objects.can_layer() {
        return Ok(None);
    }
    let failed = |error| objects::at(into, "make the fork", error);
    let (below, differs) = match Below::near(objects, tree)? {
        Some(found) => found,
        None => (Below::make(objects, tree, about, live)?, Vec::new()),
    };
    make(into).and_then(|()| make(&beside(into))).map_err(failed)?;
    let layers = Layers::enter(into, || Ok(below.files()))?;
    let known = below.known(objects, about);
    if !differs.is_empty() {
        let root = disk::open_root(into).map_err(failed)?;
        let found = known.clone().unwrap_or_default();
        Restore { objects, root: &root, found: &found, aside: &beside(into) }.run(&differs)?;
    }
    // From here on it is whole.
    objects::write_new(&beside(into), &beside(into).join(BELOW), format!("{}\n", below.tree).as_bytes())
        .map_err(failed)?;
    Ok(Some((layers, known)))
}

impl Layers {
    /// The directory that a fork works in, mounted if it is one that is: none for an ordinary one.
    pub(super) fn open(objects: &Objects, directory: &Path) -> Result<Option<Self>> {
        let file = beside(directory).join(BELOW);
        if !file.exists() {
            return Ok(None);
        }
        let below = || {
            let text = fs::read_to_string(&file).map_err(|error| objects::at(&file, "read", error))?;
            let damaged = |what: String| Error::new(ErrorKind::Damaged, what);
            let tree = ObjectId::from_hex(text.trim())
                .ok_or_else(|| damaged(format!("`{}` does not say which version is below", file.display())))?;
            let files = Below::at(objects, tree).files();
            let gone = || damaged(format!("the version {tree} that `{}` rests on is gone", directory.display()));
            if files.is_dir() { Ok(files) } else { Err(gone()) }
        };
        Layers::enter(directory, below).map(Some)
    }

    fn enter(directory: &Path, below: impl FnOnce() -> Result<PathBuf>) -> Result<Self> {
        let failed = |error: std::io::Error| objects::at(directory, "mount", error);
        let folder = beside(directory);
        let lock = File::options().create(true).append(true).open(folder.join("lock")).map_err(failed)?;
        let layers = Layers { directory: directory.to_owned(), lock };
        let alone = rustix::fs::flock(&layers.lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if alone && !is_mounted(directory).map_err(failed)? {
            mount(&below()?, &folder, directory).map_err(failed)?;
        }
        rustix::fs::flock(&layers.lock, FlockOperation::LockShared).map_err(|error| failed(error.into()))?;
        if !is_mounted(directory).map_err(failed)? {
            let what = format!("`{}` is mounted by somebody who cannot be seen from here", directory.display());
            return Err(Error::new(ErrorKind::Directory, what).with_hint("end that process, or fork the session"));
        }
        Ok(layers)
    }
}

impl Drop for Layers {
    fn drop(&mut self) {
        if rustix::fs::flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = rustix::mount::unmount(&self.directory, UnmountFlags::DETACH);
        }
    }
}

impl Below {
    fn at(objects: &Objects, tree: ObjectId) -> Self {
        Below { tree, folder: objects.folder().join("versions").join(tree.to_string()) }
    }

    fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// A version that is the tree or near it, and how the tree is different.
    fn near(objects: &Objects, tree: ObjectId) -> Result<Option<(Self, Vec<changes::Changed>)>> {
        let same = Below::at(objects, tree);
        if same.files().is_dir() {
            return Ok(Some((same, Vec::new())));
        }
        let found = fs::read_dir(objects.folder().join("versions")).into_iter().flatten().flatten();
        let mut known: Vec<_> = found
            .filter_map(|entry| {
                let tree = ObjectId::from_hex(entry.file_name().to_str()?)?;
                Some((entry.metadata().ok()?.modified().ok()?, tree))
            })
            .collect();
        known.sort_unstable_by_key(|(modified, _)| std::cmp::Reverse(*modified));
        for (_, known) in known.into_iter().take(LOOKED_AT) {
            let differs = changes::of_trees(objects, Some(known), tree)?;
            if differs.len() <= NEAR {
                return Ok(Some((Below::at(objects, known), differs)));
            }
        }
        Ok(None)
    }

    fn make(objects: &Objects, tree: ObjectId, about: &index::About, live: Option<Live>) -> Result<Self> {
        let below = Below::at(objects, tree);
        let versions = objects.folder().join("versions");
        let failed = |error| objects::at(&versions, "make a version in", error);
        // It is there as a whole or not at all.
        let making = objects::temporary(&versions);
        let made = checkout::checkout(objects, tree, &making.join("files"), live).and_then(|known| {
            let about = index::About { root: 0, ..*about };
            index::write(&making.join("index"), &about, &known, objects.is_synced()).map_err(failed)?;
            match fs::rename(&making, &below.folder) {
                // Somebody else was faster.
                Err(_) if below.files().is_dir() => Ok(()),
                renamed => renamed.map_err(failed),
            }
        });
        let _ = fs::remove_dir_all(&making);
        made.map(|()| below)
    }

    fn known(&self, objects: &Objects, about: &index::About) -> Option<Arc<Dir>> {
        let read = index::read(&self.folder.join("index"), &index::About { root: 0, ..*about })?;
        if !read.synced {
            objects.doubt();
        }
        Some(read.dir)
    }
}

/// Where what is changed in a fork's directory lies.
fn beside(directory: &Path) -> PathBuf {
    let mut path = directory.as_os_str().to_owned();
    path.push(".layers");
    path.into()
}

fn make(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)
}

/// Mounts what is below, under what was changed, at a directory.
fn mount(below: &Path, own: &Path, at: &Path) -> std::io::Result<()> {
    let (upper, work) = (own.join("upper"), own.join("work"));
    make(&upper)?;
    make(&work)?;
    let paths = [below, &upper, &work].map(|path| path.canonicalize());
    let [below, upper, work] = paths;
    let (below, upper, work) = (below?, upper?, work?);
    let told = |path: &Path| {
        // These would be read as the end of a path.
        let path = path.to_str().filter(|path| !path.contains([',', ':', '\\', '"']));
        path.map(str::to_owned).ok_or(std::io::ErrorKind::InvalidInput)
    };
    // What lies there may be from before the machine went down. Whoever opens it looks at all of it anyway.
    let _ = fs::remove_dir_all(work.join("work").join("incompat"));
    // Directories can be renamed like any others, which takes `redirect_dir`. Without `volatile`, to unmount one would wait for
    // the whole file system to be synced.
    let options = format!(
        "lowerdir={},upperdir={},workdir={},redirect_dir=on,index=off,metacopy=off,volatile",
        told(&below)?,
        told(&upper)?,
        told(&work)?
    );
    let options = std::ffi::CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount("rath", at, "overlay", flags, Some(options.as_c_str()))?)
}

fn is_mounted(directory: &Path) -> std::io::Result<bool> {
    let above = directory.parent().unwrap_or(directory);
    Ok(fs::metadata(directory)?.dev() != fs::metadata(above)?.dev())
}
