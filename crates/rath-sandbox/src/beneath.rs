//! Files that are opened beneath one directory, and nowhere else.

mod walk;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use self::walk::{Found, Lost, Spot, enter, is_own, kind, names_directory, swapped};
use super::files::{Entry, Kind, Part};
use crate::error::{Error, ErrorKind, Result};

/// A directory whose files are opened beneath it only.
///
/// A path is relative to it; an absolute one is taken if it begins with the directory's own. Links are followed, as far as
/// they stay inside, wherever they stand in a path; they are read and walked rather than opened, so nothing that is
/// swapped meanwhile leads out. What is mounted inside belongs to it.
///
/// Pipes, sockets and devices are refused before they are opened, and the folder `.rath`, which is rath's own, by whatever
/// name it is reached. Another name of a file outside, a hard link, can be read: to make one, somebody had to be able to
/// read that file. It is never written: writing puts a new file in the place of the old.
pub struct Root {
    /// Where it was when it was opened, without links.
    path: PathBuf,
    fd: OwnedFd,
    /// Whether paths without links are opened in one go, where the system can.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    walks_straight: bool,
}

/// The folder in a workspace that is rath's own.
pub const OWN: &str = ".rath";

/// At most how many bytes are read at once.
const PART_MOST: u64 = 64 * 1024 * 1024;
/// At most how many entries of a directory are read.
const ENTRIES_MOST: usize = 100_000;
/// How often a path is looked up that changes meanwhile.
const ATTEMPTS: usize = 64;
/// How much of a path is said again.
const SAID_MOST: usize = 256;

const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

impl Root {
    /// Opens a directory of this machine.
    pub fn open(path: &Path) -> Result<Root> {
        Root::at(path).map_err(|error| no_place(path.display(), error))
    }

    pub(crate) fn at(path: &Path) -> std::io::Result<Root> {
        let path = path.canonicalize()?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        #[cfg(target_os = "linux")]
        let flags = flags | OFlags::PATH;
        let fd = rustix::fs::open(&path, flags, Mode::empty())?;
        Ok(Root { path, fd, walks_straight: true })
    }

    /// The same, with every path walked name by name, as where the system cannot do better.
    #[doc(hidden)]
    pub fn walking(mut self) -> Root {
        self.walks_straight = false;
        self
    }

    /// Where it is on this machine.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a part of a file, and never more than 64 MiB.
    pub fn read(&self, path: &str, part: Part) -> Result<Vec<u8>> {
        self.attempt("read", path, || {
            let Spot::Entry { directory, name, stat } = self.file(path)?.spot else { return Err(Errno::NOENT.into()) };
            check_file(&stat)?;
            let fd = rustix::fs::openat(&directory, &name, FILE, Mode::empty()).map_err(swapped)?;
            check_file(&rustix::fs::fstat(&fd)?)?;
            Ok(read(File::from(fd), part).map_err(errno)?)
        })
    }

    /// Writes a file and the directories that it lies in.
    ///
    /// Whoever reads meanwhile finds all of the old or all of the new. A file that was there keeps its permissions and,
    /// where that is allowed, its owner; its other names, if it has any, keep what it said before.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.attempt("write", path, || match self.file(path)?.spot {
            Spot::Directory(_) => Err(Errno::ISDIR.into()),
            Spot::Missing { .. } if names_directory(path) => Err(Errno::ISDIR.into()),
            Spot::Entry { directory, name, stat } => {
                check_file(&stat)?;
                // Whoever may write in the directory could replace a file that they may not write.
                match rustix::fs::openat(&directory, &name, FILE | OFlags::WRONLY, Mode::empty()) {
                    Ok(fd) => check_file(&rustix::fs::fstat(&fd)?)?,
                    // A program that runs can be replaced.
                    Err(Errno::TXTBSY) => {}
                    Err(errno) => return Err(swapped(errno)),
                }
                put(directory.as_fd(), &name, bytes, Some(&stat))
            }
            Spot::Missing { mut directory, mut names } => {
                let name = names.pop().expect("something is missing");
                for above in names {
                    match rustix::fs::mkdirat(&directory, &above, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => directory = enter(directory.as_fd(), &above)?,
                        Err(errno) => return Err(errno.into()),
                    }
                }
                put(directory.as_fd(), &name, bytes, None)
            }
        })
    }

    /// What is in a directory, by name. Links are listed as links.
    pub fn list(&self, path: &str) -> Result<Vec<Entry>> {
        self.attempt("list", path, || {
            let found = self.find(path)?;
            let fd = directory(found.spot)?;
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            let mut entries = Vec::new();
            for entry in Dir::new(rustix::fs::openat(&fd, ".", flags, Mode::empty())?)? {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "." || name == ".." || is_temporary_name(name) || found.names.is_empty() && is_own(name) {
                    continue;
                }
                if entries.len() == ENTRIES_MOST {
                    return Err(Lost::TooManyEntries);
                }
                match rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => entries.push(told(name, &stat)),
                    // It went away meanwhile.
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(entries)
        })
    }

    /// What is at a path, if anything is; a link is followed.
    pub fn look(&self, path: &str) -> Result<Option<Entry>> {
        self.attempt("look at", path, || {
            let found = match self.find(path) {
                // Nothing lies in a file.
                Err(Lost::Errno(Errno::NOTDIR)) => return Ok(None),
                found => found?,
            };
            Ok(match found.spot {
                Spot::Missing { .. } => None,
                Spot::Entry { name, stat, .. } => Some(told(&name, &stat)),
                Spot::Directory(_) => {
                    let name = found.names.last().map_or(".".into(), |name| name.to_string_lossy().into_owned());
                    Some(Entry { name, kind: Kind::Directory, bytes: 0 })
                }
            })
        })
    }

    /// A directory, to start a command in. What is read through it has to be opened anew.
    pub fn directory(&self, path: &str) -> Result<OwnedFd> {
        self.attempt("enter", path, || directory(self.find(path)?.spot))
    }

    /// The one name that a path has, relative to the root, whatever links lead there; none where it leads out.
    ///
    /// What is not there yet has one too: a link to nothing means what would be made where it leads.
    pub fn name(&self, path: &str) -> Option<String> {
        Some(self.resolve(path).ok()?.to_string_lossy().into_owned())
    }

    /// The same as a path, or why there is none.
    pub fn resolve(&self, path: &str) -> Result<PathBuf> {
        Ok(self.attempt("look at", path, || self.find(path))?.names.iter().collect())
    }

    /// What a path means, where a file is wanted.
    fn file(&self, path: &str) -> Result<Found, Lost> {
        let found = self.find(path)?;
        if let Spot::Directory(_) = found.spot { Err(Errno::ISDIR.into()) } else { Ok(found) }
    }

    /// Does something with a path, again if somebody changes what the path leads through.
    fn attempt<T>(&self, what: &str, path: &str, work: impl Fn() -> Result<T, Lost>) -> Result<T> {
        if path.contains('\0') {
            let path = shortened(&path.replace('\0', "\\0"));
            return Err(Error::new(ErrorKind::Io, format_args!("cannot {what} `{path}`: no path holds a NUL")));
        }
        let mut attempts = (0..ATTEMPTS).map(|_| work()).skip_while(|done| matches!(done, Err(Lost::Changing)));
        attempts.next().unwrap_or(Err(Lost::Changing)).map_err(|lost| lost.told(what, path))
    }
}

impl Lost {
    /// In words that hold no path but the one that was asked for.
    fn told(self, what: &str, path: &str) -> Error {
        let path = shortened(path);
        let why = match self {
            Lost::Outside => {
                return Error::new(ErrorKind::OutsideWorkspace, format_args!("`{path}` is outside the workspace"))
                    .with_hint("paths are relative to the workspace, and stay in it");
            }
            Lost::Own => {
                return Error::new(ErrorKind::OutsideWorkspace, format_args!("`{path}` is in rath's own folder"))
                    .with_hint("what rath keeps of a session is read with the `rath` program");
            }
            Lost::Changing => "it changes all the time",
            Lost::TooDeep => "it lies too deep",
            Lost::NotAFile => "it is not an ordinary file",
            Lost::TooManyEntries => "it has more than 100000 entries",
            Lost::Errno(errno) => match errno {
                Errno::NOENT if matches!(what, "list" | "enter") => "there is no such directory",
                Errno::NOENT => "there is no such file",
                Errno::ACCESS | Errno::PERM => "permission denied",
                Errno::ISDIR => "it is a directory",
                Errno::NOTDIR => "it is not a directory",
                Errno::LOOP => "it leads through too many links",
                Errno::NAMETOOLONG => "its name is too long",
                Errno::NOSPC | Errno::DQUOT => "there is no room left",
                Errno::ROFS => "the file system is read-only",
                Errno::MFILE | Errno::NFILE => "too many files are open",
                errno => {
                    let why = std::io::Error::from(errno).kind();
                    return Error::new(ErrorKind::Io, format_args!("cannot {what} `{path}`: {why}"));
                }
            },
        };
        Error::new(ErrorKind::Io, format_args!("cannot {what} `{path}`: {why}"))
    }
}

/// Why a directory is no place to work in.
pub(crate) fn no_place(place: impl std::fmt::Display, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format_args!("cannot work in `{place}`"))
        .with_hint("the directory has to be there")
        .because(error)
}

/// Whether a name is that of a file that is being written.
pub fn is_temporary_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.len() == TEMPORARY.len() + 36 && name.starts_with(TEMPORARY.as_bytes()) && name.ends_with(b".tmp")
}

const TEMPORARY: &str = ".rath-";

/// A new file beside the one whose place it is to take. It goes away unless it does.
struct Temporary<'a> {
    directory: BorrowedFd<'a>,
    name: String,
    file: File,
}

impl<'a> Temporary<'a> {
    fn make(directory: BorrowedFd<'a>, mode: Mode) -> Result<Self, Errno> {
        let name = format!("{TEMPORARY}{}.tmp", uuid::Uuid::now_v7().simple());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, &name, flags, mode)?.into();
        Ok(Temporary { directory, name, file })
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // It is not there any more once it has its name.
        let _ = rustix::fs::unlinkat(self.directory, &self.name, AtFlags::empty());
    }
}

/// Puts a file with these bytes in a directory, in the place of one that may be there.
fn put(directory: BorrowedFd<'_>, name: &OsStr, bytes: &[u8], before: Option<&Stat>) -> Result<(), Lost> {
    // Nobody else reads what nobody else could read before.
    let mut temporary = Temporary::make(directory, Mode::from_raw_mode(if before.is_some() { 0o600 } else { 0o666 }))?;
    temporary.file.write_all(bytes).map_err(errno)?;
    if let Some(before) = before {
        let made = rustix::fs::fstat(&temporary.file)?;
        if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid) {
            let owner = (rustix::fs::Uid::from_raw(before.st_uid), rustix::fs::Gid::from_raw(before.st_gid));
            let _ = rustix::fs::fchown(&temporary.file, Some(owner.0), Some(owner.1));
        }
        rustix::fs::fchmod(&temporary.file, Mode::from_raw_mode(before.st_mode & 0o777))?;
    }
    rustix::fs::renameat(directory, &temporary.name, directory, name)?;
    Ok(())
}

fn read(mut file: File, part: Part) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if i64::try_from(part.from).is_ok() {
        file.seek(SeekFrom::Start(part.from))?;
        file.take(part.most.min(PART_MOST)).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// A pipe or a device may never answer, and nobody could break off.
fn check_file(stat: &Stat) -> Result<(), Lost> {
    match kind(stat) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Err(Lost::NotAFile),
    }
}

fn directory(spot: Spot) -> Result<OwnedFd, Lost> {
    match spot {
        Spot::Directory(fd) => Ok(fd),
        Spot::Entry { .. } => Err(Errno::NOTDIR.into()),
        Spot::Missing { .. } => Err(Errno::NOENT.into()),
    }
}

fn told(name: &OsStr, stat: &Stat) -> Entry {
    let kind = match kind(stat) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    };
    let bytes = if kind == Kind::File { u64::try_from(stat.st_size).unwrap_or_default() } else { 0 };
    Entry { name: name.to_string_lossy().into_owned(), kind, bytes }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// A path as it is said again.
fn shortened(path: &str) -> String {
    if path.len() <= SAID_MOST {
        return path.to_owned();
    }
    format!("{}…", &path[..path.floor_char_boundary(SAID_MOST)])
}

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Root").field(&self.path).finish()
    }
}
