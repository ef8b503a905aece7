//! From a path to what it means, without ever leaving the root.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::Root;

/// What a path means.
pub(super) struct Found {
    /// The one name that it has, part by part, whatever links led there.
    pub(super) names: Vec<OsString>,
    pub(super) spot: Spot,
}

/// What is where a path leads.
pub(super) enum Spot {
    Directory(OwnedFd),
    /// Neither a directory nor a link.
    Entry {
        directory: OwnedFd,
        name: OsString,
        stat: Stat,
    },
    /// Nothing yet: the first of these is missing in the directory, and the others below it.
    Missing {
        directory: OwnedFd,
        names: Vec<OsString>,
    },
}

/// Why a path leads nowhere.
pub(super) enum Lost {
    Outside,
    /// Into the folder that is rath's own.
    Own,
    /// Somebody changes what it leads through: another attempt may find it.
    Changing,
    TooDeep,
    NotAFile,
    TooManyEntries,
    Errno(Errno),
}

impl From<Errno> for Lost {
    fn from(errno: Errno) -> Self {
        Lost::Errno(errno)
    }
}

/// A directory on the way. Nothing is read through it, so that it need not be readable.
#[cfg(target_os = "linux")]
const ON_THE_WAY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const ON_THE_WAY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How many links are followed for one path.
const LINKS_MOST: usize = 40;
/// How many directories deep a path may lead: each is held open on the way.
const DEPTH_MOST: usize = 256;

impl Root {
    /// Finds what a path means.
    pub(super) fn find(&self, path: &str) -> Result<Found, Lost> {
        let found = match self.straight(path) {
            Some(found) => found,
            None => self.walk(Path::new(path))?,
        };
        // What ends in a slash is a directory.
        match found.spot {
            Spot::Entry { .. } if names_directory(path) => Err(Errno::NOTDIR.into()),
            _ => Ok(found),
        }
    }

    /// The same in one step, for a path that leads there without a link.
    #[cfg(target_os = "linux")]
    fn straight(&self, path: &str) -> Option<Found> {
        use rustix::fs::ResolveFlags;
        let plain = |part: Component<'_>| match part {
            Component::Normal(name) => Some(name.to_owned()),
            _ => None,
        };
        let parts = Path::new(path).components().filter(|part| *part != Component::CurDir);
        let names: Vec<_> = parts.map(plain).collect::<Option<_>>()?;
        let (name, above) = names.split_last()?;
        if !self.walks_straight || names.len() > DEPTH_MOST || is_own(&names[0]) {
            return None;
        }
        let directory = match above {
            [] => self.fd.try_clone().ok()?,
            _ => {
                let above: std::path::PathBuf = above.iter().collect();
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
                rustix::fs::openat2(&self.fd, &above, ON_THE_WAY, Mode::empty(), resolve).ok()?
            }
        };
        let spot = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Spot::Missing { directory, names: vec![name.clone()] },
            Ok(stat) => match kind(&stat) {
                FileType::Symlink => return None,
                FileType::Directory => Spot::Directory(enter(directory.as_fd(), name).ok()?),
                _ => Spot::Entry { directory, name: name.clone(), stat },
            },
            Err(_) => return None,
        };
        Some(Found { names, spot })
    }

    #[cfg(not(target_os = "linux"))]
    fn straight(&self, _: &str) -> Option<Found> {
        None
    }

    /// One name at a time. A link is never opened: what it says is walked by the same rules, and `..` goes back to a
    /// directory that was passed on the way. So it does not matter what anybody swaps meanwhile.
    fn walk(&self, path: &Path) -> Result<Found, Lost> {
        let mut left = Vec::new();
        let mut passed: Vec<(OsString, OwnedFd)> = Vec::new();
        let mut missing: Vec<OsString> = Vec::new();
        let mut entry: Option<(OsString, Stat)> = None;
        let mut links = 0;
        self.add(path, &mut left)?;
        while let Some(name) = left.pop() {
            if entry.is_some() {
                return Err(Errno::NOTDIR.into());
            }
            if name == ".." {
                // Where a directory is missing, the way back out of it is still known.
                if missing.pop().is_none() && passed.pop().is_none() {
                    return Err(Lost::Outside);
                }
                continue;
            }
            if passed.is_empty() && missing.is_empty() && is_own(&name) {
                return Err(Lost::Own);
            }
            if passed.len() + missing.len() == DEPTH_MOST {
                return Err(Lost::TooDeep);
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
            match kind(&stat) {
                FileType::Symlink => {
                    links += 1;
                    if links > LINKS_MOST {
                        return Err(Errno::LOOP.into());
                    }
                    let target = rustix::fs::readlinkat(at, &name, Vec::new()).map_err(swapped)?;
                    let target = OsString::from_vec(target.into_bytes());
                    if self.add(Path::new(&target), &mut left)? == Start::Root {
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
        let spot = match entry {
            Some((name, stat)) => Spot::Entry { directory, name, stat },
            None if missing.is_empty() => Spot::Directory(directory),
            None => Spot::Missing { directory, names: missing },
        };
        Ok(Found { names, spot })
    }

    /// Puts the parts of a path before those that are left. An absolute one has to begin as the root's own does.
    fn add(&self, path: &Path, left: &mut Vec<OsString>) -> Result<Start, Lost> {
        let (path, from) = match path.is_absolute() {
            false => (path, Start::Here),
            true => (path.strip_prefix(&self.path).map_err(|_| Lost::Outside)?, Start::Root),
        };
        let part = |part: Component<'_>| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
        };
        left.extend(path.components().rev().filter_map(part));
        Ok(from)
    }
}

/// Where a path is walked from.
#[derive(PartialEq)]
enum Start {
    Here,
    Root,
}

/// Whether a path can only mean a directory.
pub(super) fn names_directory(path: &str) -> bool {
    path.ends_with('/') || path.ends_with("/.")
}

/// Opens a directory that is known not to be a link.
pub(super) fn enter(at: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Lost> {
    rustix::fs::openat(at, name, ON_THE_WAY, Mode::empty()).map_err(swapped)
}

/// What an error means where something else was there a moment ago.
pub(super) fn swapped(errno: Errno) -> Lost {
    match errno {
        Errno::NOTDIR | Errno::LOOP | Errno::NOENT | Errno::INVAL => Lost::Changing,
        errno => Lost::Errno(errno),
    }
}

pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Whether a name in the root is that of rath's own folder. There are file systems on which case makes no difference.
pub(super) fn is_own(name: &OsStr) -> bool {
    name.as_bytes().eq_ignore_ascii_case(super::OWN.as_bytes())
}
