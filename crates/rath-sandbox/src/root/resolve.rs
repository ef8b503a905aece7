//! Resolution of paths that never leaves the root.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::Root;

/// The result of resolving a path.
pub(super) struct ResolvedPath {
    /// The components of the path relative to the root, without symlinks and `..`.
    pub(super) names: Vec<OsString>,
    pub(super) target: Target,
}

/// The file that a path leads to.
pub(super) enum Target {
    Directory(OwnedFd),
    /// Neither a directory nor a symlink.
    Entry {
        directory: OwnedFd,
        name: OsString,
        stat: Stat,
    },
    /// Nothing: the first of the names is missing in the directory, and the others would be below it.
    Missing {
        directory: OwnedFd,
        names: Vec<OsString>,
    },
}

/// The reason why a path cannot be used.
pub(super) enum PathError {
    Outside,
    /// The path leads into the reserved directory.
    RathDir,
    /// The path of a file to be written leads into a `.git`.
    GitDir,
    /// The path leads to a private file of the user.
    Private,
    /// The settings of the sandbox hide the file.
    Hidden,
    /// The path was changed while it was resolved: another attempt may succeed.
    Changing,
    TooDeep,
    NotAFile,
    TooManyEntries,
    Errno(Errno),
}

impl From<Errno> for PathError {
    fn from(errno: Errno) -> Self {
        PathError::Errno(errno)
    }
}

/// The flags to open a directory on the way. With `O_PATH`, it need not be readable.
#[cfg(target_os = "linux")]
const TRAVERSE_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const TRAVERSE_FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The largest number of symlinks that one path may lead through.
const MAX_SYMLINKS: usize = 40;
/// The deepest path in directories: each of them is held open during the walk.
const MAX_DEPTH: usize = 256;

impl Root {
    /// Resolves a path.
    pub(super) fn find(&self, path: &str) -> Result<ResolvedPath, PathError> {
        let resolved = match self.find_with_openat2(path) {
            Some(resolved) => resolved,
            None => self.walk(Path::new(path))?,
        };
        self.check_visible(resolved.names.iter().map(OsString::as_os_str))?;
        // A path that ends in a slash must be a directory.
        match resolved.target {
            Target::Entry { .. } if requires_directory(path) => Err(Errno::NOTDIR.into()),
            _ => Ok(resolved),
        }
    }

    /// Fails if a path, given as its names, is private or hidden, or leads through a directory that is.
    pub(super) fn check_visible<'a>(&self, names: impl Iterator<Item = &'a OsStr> + Clone) -> Result<(), PathError> {
        let is_in = |paths: &[Vec<OsString>]| {
            paths.iter().any(|path| {
                let mut names = names.clone();
                path.iter().all(|name| names.next() == Some(name))
            })
        };
        match (is_in(&self.private), is_in(&self.hidden)) {
            (true, _) => Err(PathError::Private),
            (_, true) => Err(PathError::Hidden),
            (false, false) => Ok(()),
        }
    }

    /// Resolves a path with one system call; `None` if the path needs a walk, such as one with symlinks.
    #[cfg(target_os = "linux")]
    fn find_with_openat2(&self, path: &str) -> Option<ResolvedPath> {
        use rustix::fs::ResolveFlags;
        let plain = |part: Component<'_>| match part {
            Component::Normal(name) => Some(name.to_owned()),
            _ => None,
        };
        let parts = Path::new(path).components().filter(|part| *part != Component::CurDir);
        let names: Vec<_> = parts.map(plain).collect::<Option<_>>()?;
        let (name, above) = names.split_last()?;
        if !self.uses_openat2 || names.len() > MAX_DEPTH || names.iter().any(|name| is_rath_dir(name)) {
            return None;
        }
        let directory = match above {
            [] => self.fd.try_clone().ok()?,
            _ => {
                let above: std::path::PathBuf = above.iter().collect();
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
                rustix::fs::openat2(&self.fd, &above, TRAVERSE_FLAGS, Mode::empty(), resolve).ok()?
            }
        };
        let target = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Target::Missing { directory, names: vec![name.clone()] },
            Ok(stat) => match file_type(&stat) {
                FileType::Symlink => return None,
                FileType::Directory => Target::Directory(enter(directory.as_fd(), name).ok()?),
                _ => Target::Entry { directory, name: name.clone(), stat },
            },
            Err(_) => return None,
        };
        Some(ResolvedPath { names, target })
    }

    #[cfg(not(target_os = "linux"))]
    fn find_with_openat2(&self, _: &str) -> Option<ResolvedPath> {
        None
    }

    /// Resolves a path one name at a time.
    ///
    /// A symlink is never opened: its target is walked by the same rules, and `..` returns to a directory that is held open
    /// from the way in. So a concurrent change of the path cannot lead out of the root.
    pub(super) fn walk(&self, path: &Path) -> Result<ResolvedPath, PathError> {
        let mut remaining = Vec::new();
        let mut passed: Vec<(OsString, OwnedFd)> = Vec::new();
        let mut missing: Vec<OsString> = Vec::new();
        let mut entry: Option<(OsString, Stat)> = None;
        let mut links = 0;
        self.push_components(path, &mut remaining)?;
        while let Some(name) = remaining.pop() {
            if entry.is_some() {
                return Err(Errno::NOTDIR.into());
            }
            if name == ".." {
                // `..` after a missing directory returns to the directory that it is missing in.
                if missing.pop().is_none() && passed.pop().is_none() {
                    return Err(PathError::Outside);
                }
                continue;
            }
            if is_rath_dir(&name) {
                return Err(PathError::RathDir);
            }
            if passed.len() + missing.len() == MAX_DEPTH {
                return Err(PathError::TooDeep);
            }
            if !missing.is_empty() {
                missing.push(name);
                continue;
            }
            let at = passed.last().map_or(self.fd.as_fd(), |(_, fd)| fd.as_fd());
            let stat = match rustix::fs::statat(at, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => {
                    missing.push(name);
                    continue;
                }
                Err(errno) => return Err(errno.into()),
            };
            match file_type(&stat) {
                FileType::Symlink => {
                    links += 1;
                    if links > MAX_SYMLINKS {
                        return Err(Errno::LOOP.into());
                    }
                    let target = rustix::fs::readlinkat(at, &name, Vec::new()).map_err(race_or_errno)?;
                    let target = OsString::from_vec(target.into_bytes());
                    if self.push_components(Path::new(&target), &mut remaining)? == WalkBase::Root {
                        passed.clear();
                    }
                }
                FileType::Directory => {
                    let fd = enter(at, &name)?;
                    passed.push((name, fd));
                }
                _ => entry = Some((name, stat)),
            }
        }
        let last = entry.as_ref().map(|(name, _)| name.clone());
        let names = passed.iter().map(|(name, _)| name.clone()).chain(missing.clone()).chain(last).collect();
        let directory = match passed.pop() {
            Some((_, fd)) => fd,
            None => self.fd.try_clone().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?,
        };
        let target = match entry {
            Some((name, stat)) => Target::Entry { directory, name, stat },
            None if missing.is_empty() => Target::Directory(directory),
            None => Target::Missing { directory, names: missing },
        };
        Ok(ResolvedPath { names, target })
    }

    /// Pushes the components of a path, to be walked next. An absolute path has to begin with that of the root.
    fn push_components(&self, path: &Path, remaining: &mut Vec<OsString>) -> Result<WalkBase, PathError> {
        let (path, base) = match path.is_absolute() {
            false => (path, WalkBase::Current),
            true => (path.strip_prefix(&self.path).map_err(|_| PathError::Outside)?, WalkBase::Root),
        };
        let part = |part: Component<'_>| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
        };
        remaining.extend(path.components().rev().filter_map(part));
        Ok(base)
    }
}

/// The directory that a path is relative to.
#[derive(PartialEq)]
enum WalkBase {
    Current,
    Root,
}

/// Returns true if a path can only name a directory.
pub(super) fn requires_directory(path: &str) -> bool {
    path.ends_with('/') || path.ends_with("/.")
}

/// Opens a directory that was not a symlink a moment ago.
pub(super) fn enter(at: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, PathError> {
    rustix::fs::openat(at, name, TRAVERSE_FLAGS, Mode::empty()).map_err(race_or_errno)
}

/// Returns `Changing` for an error that means that another file is there than a moment ago.
pub(super) fn race_or_errno(errno: Errno) -> PathError {
    match errno {
        Errno::NOTDIR | Errno::LOOP | Errno::NOENT | Errno::INVAL => PathError::Changing,
        errno => PathError::Errno(errno),
    }
}

pub(super) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Returns true if a name in the root is that of the reserved directory. Case is ignored, as on some file systems.
pub(crate) fn is_rath_dir(name: &OsStr) -> bool {
    name.as_bytes().eq_ignore_ascii_case(super::RATH_DIR.as_bytes())
}

/// Returns true if a name is that of a repository of git. Case is ignored, as on some file systems.
pub(crate) fn is_git_dir(name: &OsStr) -> bool {
    name.as_bytes().eq_ignore_ascii_case(b".git")
}
