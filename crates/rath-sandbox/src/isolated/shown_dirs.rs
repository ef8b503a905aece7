//! Directories of another workspace that a sandbox shows, and file operations in them.
//!
//! Commands see each of them as one directory, by a mount of their own. File operations look at the two parts of it: the folder with
//! the changes, in which the kernel marks removed files, and the directory of the workspace.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::nested::NestedProjects;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{ByteRange, DirEntry};
use crate::root::Root;
use crate::{SharedDir, SharedDirs};

/// The directories of another workspace that a sandbox shows, as they are at one time.
pub(super) struct ShownDirs {
    /// The workspace, without the files that are hidden.
    root: Root,
    /// Each directory that is there, with every `.rath` in it.
    directories: Vec<(SharedDir, Arc<NestedProjects>)>,
    /// Every `.rath` in the directories, relative to the workspace.
    rath: Vec<PathBuf>,
}

/// The part of a shown directory that holds a file.
enum Layer<'a> {
    /// The folder with the changes, and the rest of the path.
    Changes { shared: &'a SharedDir, rest: PathBuf, hides_original: bool },
    /// The workspace, and the whole path.
    Original(PathBuf),
    /// The file was removed.
    Removed,
}

impl ShownDirs {
    /// Looks at the directories of a workspace. One that is not there, or leads through a link, is left out, and one that cannot be
    /// listed.
    pub(super) fn find(
        shared: &SharedDirs,
        root: Root,
        rath_dirs_in: impl Fn(&Path) -> Result<Arc<NestedProjects>>,
    ) -> Self {
        let (mut directories, mut rath) = (Vec::new(), Vec::new());
        for shared in &shared.directories {
            let directory = root.path().join(&shared.path);
            if directory.canonicalize().ok().as_ref() != Some(&directory) {
                continue;
            }
            // A `.git` holds no projects, and may be a file.
            let is_git = shared.path == Path::new(".git");
            let nested = if is_git { Ok(Arc::default()) } else { rath_dirs_in(&directory) };
            let Ok(nested) = nested else { continue };
            rath.extend(nested.rath.iter().map(|nested| shared.path.join(&nested.path)));
            directories.push((shared.clone(), nested));
        }
        ShownDirs { root, directories, rath }
    }

    /// Returns the workspace.
    pub(super) fn original(&self) -> &Path {
        self.root.path()
    }

    pub(super) fn directories(&self) -> impl Iterator<Item = &SharedDir> {
        self.directories.iter().map(|(shared, _)| shared)
    }

    /// Waits until no other command, in any process, uses the folders with the changes: what two overlays do to one folder is not
    /// defined. The folders are free again when the files are closed.
    pub(super) fn lock(&self) -> Result<Vec<File>> {
        let folders = self.directories().filter_map(|shared| shared.changes.as_ref());
        folders.map(|folder| lock(folder)).collect()
    }

    /// Returns every `.rath` in the directories, relative to the workspace.
    pub(super) fn rath_dirs(&self) -> impl Iterator<Item = &Path> {
        self.rath.iter().map(|path| &**path)
    }

    /// Returns the path of a file of the workspace, relative to it, if it is in one of the directories.
    pub(super) fn relative(&self, path: &Path) -> Option<PathBuf> {
        let inside = path.strip_prefix(self.original()).ok()?;
        self.directories().any(|shared| inside.starts_with(&shared.path)).then(|| inside.to_owned())
    }

    /// Returns true if the directories are there as they were found.
    pub(super) fn is_current(&self) -> bool {
        let is_current = |(shared, nested): &(SharedDir, Arc<NestedProjects>)| {
            let directory = self.original().join(&shared.path);
            directory.symlink_metadata().is_ok() && nested.is_current(&directory)
        };
        self.directories.iter().all(is_current)
    }

    /// Reads a part of a file; none if the path is in none of the directories. The path has no links.
    pub(super) fn read(&self, path: &Path, range: ByteRange) -> Option<Result<Vec<u8>>> {
        Some(match self.layer(path)? {
            Layer::Changes { shared, rest, .. } => {
                changes(shared).and_then(|root| root.read(&without_links(&root, &rest)?, range))
            }
            Layer::Original(path) => without_links(&self.root, &path).and_then(|path| self.root.read(&path, range)),
            Layer::Removed => Err(missing(path)),
        })
    }

    /// Writes a file to the folder with the changes; none if the path is in none of the directories.
    pub(super) fn write(&self, path: &Path, bytes: &[u8], is_cancelled: &AtomicBool) -> Option<Result<()>> {
        let (shared, rest) = self.find_dir(path)?;
        // The file or directory that is removed would be in the way as a device.
        if matches!(self.layer(path), Some(Layer::Removed)) {
            let message = format!("`{}` was removed here, and only a command can create it again", path.display());
            return Some(Err(Error::new(ErrorKind::Io, message)));
        }
        let _lock = match shared.changes.as_ref().map(|folder| lock(folder)).transpose() {
            Ok(lock) => lock,
            Err(error) => return Some(Err(error)),
        };
        Some(changes(shared).and_then(|root| root.write_unless(&text(rest), bytes, is_cancelled, None)))
    }

    /// Returns the entries of a directory; none if the path is in none of the directories.
    pub(super) fn list(&self, path: &Path) -> Option<Result<Vec<DirEntry>>> {
        let (shared, rest) = self.find_dir(path)?;
        let changed = shared.upper().map(|upper| upper.join(rest)).filter(|changed| changed.is_dir());
        let original = match self.layer(path)? {
            Layer::Removed => return Some(Err(missing(path))),
            // Its own files hide those of the workspace.
            Layer::Changes { hides_original: true, .. } => Ok(Vec::new()),
            _ => without_links(&self.root, path).and_then(|path| self.root.list(&path)),
        };
        let Some(changed) = changed else { return Some(original) };
        let own = match changes(shared).and_then(|root| root.list(&without_links(&root, rest)?)) {
            Ok(own) => own,
            Err(error) => return Some(Err(error)),
        };
        // A directory may be new.
        let original = original.unwrap_or_default();
        let mut entries: BTreeMap<_, _> = original.into_iter().chain(own).map(|it| (it.name.clone(), it)).collect();
        entries.retain(|name, _| !is_removed(&changed.join(name)));
        Some(Ok(entries.into_values().collect()))
    }

    /// Returns the file or directory at a path; none if the path is in none of the directories.
    pub(super) fn stat(&self, path: &Path) -> Option<Result<Option<DirEntry>>> {
        Some(match self.layer(path)? {
            // The directory as a whole.
            Layer::Changes { rest, .. } if rest.as_os_str().is_empty() => self.root.stat(&text(path)),
            Layer::Changes { shared, rest, .. } => {
                changes(shared).and_then(|root| root.stat(&without_links(&root, &rest)?))
            }
            Layer::Original(path) => without_links(&self.root, &path).and_then(|path| self.root.stat(&path)),
            Layer::Removed => Ok(None),
        })
    }

    fn find_dir<'p>(&self, path: &'p Path) -> Option<(&SharedDir, &'p Path)> {
        self.directories().find_map(|shared| Some((shared, path.strip_prefix(&shared.path).ok()?)))
    }

    /// Finds the part that holds a file, name by name.
    fn layer(&self, path: &Path) -> Option<Layer<'_>> {
        let (shared, rest) = self.find_dir(path)?;
        let Some(mut upper) = shared.upper() else { return Some(Layer::Original(path.to_owned())) };
        let mut hides_original = false;
        for name in rest {
            upper.push(name);
            match upper.symlink_metadata() {
                Ok(metadata) if is_whiteout(&metadata) => return Some(Layer::Removed),
                Ok(metadata) if metadata.is_dir() => hides_original |= is_opaque(&upper),
                Ok(_) => {
                    hides_original = true;
                    break;
                }
                Err(_) if hides_original => return Some(Layer::Removed),
                Err(_) => return Some(Layer::Original(path.to_owned())),
            }
        }
        Some(Layer::Changes { shared, rest: rest.to_owned(), hides_original })
    }
}

/// Returns a path as text, and fails if a name in it is a link: rules about files are asked about the path, and the file that the link
/// leads to may be another one.
fn without_links(root: &Root, path: &Path) -> Result<String> {
    if root.resolve(&text(path))? == path {
        return Ok(text(path));
    }
    let message = format!("`{}` leads through a link in a directory that git ignores", path.display());
    Err(Error::new(ErrorKind::OutsideWorkspace, message).with_hint("a command can follow it"))
}

/// Opens the folder with the changes of a directory.
fn changes(shared: &SharedDir) -> Result<Root> {
    let Some(upper) = shared.upper() else {
        let message = format!("`{}` can only be read here", shared.path.display());
        return Err(Error::new(ErrorKind::Io, message));
    };
    Root::open(&upper)
}

/// Waits for the lock of a folder with changes.
fn lock(folder: &Path) -> Result<File> {
    let file = File::open(folder).and_then(|file| file.lock().map(|()| file));
    file.map_err(|error| Error::new(ErrorKind::Io, format_args!("cannot lock `{}`", folder.display())).because(error))
}

fn missing(path: &Path) -> Error {
    Error::new(ErrorKind::Io, format_args!("cannot read `{}`: there is no such file", path.display()))
}

fn text(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".to_owned() } else { path.to_string_lossy().into_owned() }
}

/// Returns true if the kernel has marked a file of the directory below as removed.
fn is_whiteout(metadata: &Metadata) -> bool {
    metadata.file_type().is_char_device() && metadata.rdev() == 0
}

fn is_removed(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| is_whiteout(&metadata))
}

/// Returns true if the kernel has marked a directory as one that hides the directory below.
fn is_opaque(directory: &Path) -> bool {
    let mut value = [0; 4];
    let found = rustix::fs::lgetxattr(directory, "user.overlay.opaque", &mut value);
    found.is_ok_and(|bytes| value[..bytes] == *b"y")
}
