//! Access to files that is confined to one directory.

mod remove;
mod replace;
mod resolve;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use self::replace::NewContent;
use self::resolve::{PathError, ResolvedPath, Target, enter, file_type, race_or_errno, requires_directory};
pub(crate) use self::resolve::{is_git_dir, is_rath_dir};
use super::files::{ByteRange, DirEntry, FileKind, RATH_DIR, is_temporary_name};
use super::mount_table::MountTable;
use super::private_paths::private_paths_in;
use crate::error::{Error, ErrorKind, Result};

/// A directory to which file operations are confined.
///
/// A path is relative to the directory; an absolute path is accepted if it begins with the directory's own. Symlinks are
/// followed anywhere in a path as long as they stay inside. Their targets are read and walked rather than opened, so a
/// concurrent change of a path cannot lead out. File systems that are mounted inside belong to the directory.
///
/// Pipes, sockets and devices are refused before they are opened, and so is the directory [`RATH_DIR`], under any name. A
/// hard link to a file outside can be read: its creator was able to read that file. Such a file is never written: a write
/// replaces the directory entry with a new file.
///
/// All calls block.
///
/// ```
/// use rath_sandbox::{ByteRange, ErrorKind, Root};
///
/// # fn main() -> rath_sandbox::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let root = Root::open(directory.path())?;
/// root.write("notes.txt", b"one\ntwo\n")?;
/// assert_eq!(root.read("notes.txt", ByteRange { offset: 4, max_len: 3 })?, b"two");
/// assert_eq!(root.stat("../notes.txt").unwrap_err().kind(), ErrorKind::OutsideWorkspace);
/// # Ok(())
/// # }
/// ```
pub struct Root {
    /// The path of the directory when it was opened, without symlinks.
    path: PathBuf,
    fd: OwnedFd,
    /// Private files of the user below the directory, each as the names that lead to it.
    private: Vec<Vec<OsString>>,
    /// Files below the directory that the settings of the sandbox hide, in the same form.
    hidden: Vec<Vec<OsString>>,
    /// True if paths without symlinks are resolved with one system call, on systems that have it.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    uses_openat2: bool,
}

/// The largest number of bytes that one call reads.
const MAX_READ_BYTES: u64 = 64 * 1024 * 1024;
/// The largest number of entries of a directory that is listed.
const MAX_DIR_ENTRIES: usize = 100_000;
/// The number of times that a path is resolved if it changes meanwhile.
const MAX_ATTEMPTS: usize = 64;
/// The longest path that an error message repeats in full.
const MAX_SHOWN_PATH_BYTES: usize = 256;

const FILE_FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

impl Root {
    /// Opens a directory of this machine.
    pub fn open(path: &Path) -> Result<Root> {
        Root::open_io(path).map_err(|error| cannot_open(path, error))
    }

    fn open_io(path: &Path) -> std::io::Result<Root> {
        let path = path.canonicalize()?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        #[cfg(target_os = "linux")]
        let flags = flags | OFlags::PATH;
        let fd = rustix::fs::open(&path, flags, Mode::empty())?;
        let private = private_paths_in(&path).iter().map(|path| path_names(path)).collect();
        Ok(Root { path, fd, private, hidden: Vec::new(), uses_openat2: true })
    }

    /// Returns the root without these files and directories. The paths are absolute and without links, and need not exist.
    pub fn hiding(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Root {
        let inside = paths.into_iter().filter_map(|path| Some(path_names(path.strip_prefix(&self.path).ok()?)));
        self.hidden = inside.filter(|names| !names.is_empty()).collect();
        self
    }

    /// Returns the root with every path walked name by name, as on systems without `openat2`. For tests.
    #[doc(hidden)]
    pub fn without_openat2(mut self) -> Root {
        self.uses_openat2 = false;
        self
    }

    /// Returns the path of the directory, without symlinks.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a part of a file, at most 64 MiB.
    pub fn read(&self, path: &str, range: ByteRange) -> Result<Vec<u8>> {
        self.attempt("read", path, || {
            let Target::Entry { directory, name, stat } = self.find_file(path)?.target else {
                return Err(Errno::NOENT.into());
            };
            check_file(&stat)?;
            let fd = rustix::fs::openat(&directory, &name, FILE_FLAGS, Mode::empty()).map_err(race_or_errno)?;
            check_file(&rustix::fs::fstat(&fd)?)?;
            Ok(read_range(File::from(fd), range).map_err(to_errno)?)
        })
    }

    /// Writes a file, and creates missing directories above it.
    ///
    /// A concurrent reader gets the old content or the new one, never a mixture. An existing file keeps its permissions
    /// and, where that is allowed, its owner. Other hard links to it keep the old content.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.write_unless(path, bytes, &AtomicBool::new(false), None)
    }

    /// Writes a file as [`write`](Self::write) does, unless the flag is set before the new file gets its name. The temporary file is
    /// created in `staging` if possible, and beside the file otherwise.
    pub fn write_unless(
        &self,
        path: &str,
        bytes: &[u8],
        is_cancelled: &AtomicBool,
        staging: Option<&Path>,
    ) -> Result<()> {
        let new = NewContent { bytes, is_cancelled, staging };
        self.attempt("write", path, || match self.find_to_write(path)?.target {
            Target::Directory(_) => Err(Errno::ISDIR.into()),
            Target::Missing { .. } if requires_directory(path) => Err(Errno::ISDIR.into()),
            Target::Entry { directory, name, stat } => {
                check_file(&stat)?;
                // Replacing a file needs permission for the directory only. A file that is not writable must stay as it is.
                match rustix::fs::openat(&directory, &name, FILE_FLAGS | OFlags::WRONLY, Mode::empty()) {
                    Ok(fd) => check_file(&rustix::fs::fstat(&fd)?)?,
                    // The file of a running program can be replaced, though not written.
                    Err(Errno::TXTBSY) => {}
                    Err(errno) => return Err(race_or_errno(errno)),
                }
                new.replace(directory.as_fd(), &name, Some(&stat))
            }
            Target::Missing { mut directory, mut names } => {
                let name = names.pop().expect("a missing path has a name");
                for above in names {
                    match rustix::fs::mkdirat(&directory, &above, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => directory = enter(directory.as_fd(), &above)?,
                        Err(errno) => return Err(errno.into()),
                    }
                }
                new.replace(directory.as_fd(), &name, None)
            }
        })
    }

    /// Returns the entries of a directory, sorted by name. Symlinks are listed as symlinks.
    pub fn list(&self, path: &str) -> Result<Vec<DirEntry>> {
        self.attempt("list", path, || {
            let resolved = self.find(path)?;
            let fd = into_directory(resolved.target)?;
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            let mut entries = Vec::new();
            for entry in Dir::new(rustix::fs::openat(&fd, ".", flags, Mode::empty())?)? {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "."
                    || name == ".."
                    || is_temporary_name(name)
                    || is_rath_dir(name)
                    || self.check_visible(resolved.names.iter().map(OsString::as_os_str).chain([name])).is_err()
                {
                    continue;
                }
                if entries.len() == MAX_DIR_ENTRIES {
                    return Err(PathError::TooManyEntries);
                }
                match rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => entries.push(to_entry(name, &stat)),
                    // Removed since the directory was read.
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(entries)
        })
    }

    /// Returns the file or directory at a path, or `None` if there is none. Symlinks are followed.
    pub fn stat(&self, path: &str) -> Result<Option<DirEntry>> {
        self.attempt("look at", path, || {
            let resolved = match self.find(path) {
                // A path below a file leads to nothing.
                Err(PathError::Errno(Errno::NOTDIR)) => return Ok(None),
                resolved => resolved?,
            };
            Ok(match resolved.target {
                Target::Missing { .. } => None,
                Target::Entry { name, stat, .. } => Some(to_entry(&name, &stat)),
                Target::Directory(_) => {
                    let name = resolved.names.last().map_or(".".into(), |name| name.to_string_lossy().into_owned());
                    Some(DirEntry::new(name, FileKind::Directory, 0))
                }
            })
        })
    }

    /// Opens a directory, for a command to start in. On Linux the descriptor is `O_PATH`: nothing can be read through it.
    pub fn open_directory(&self, path: &str) -> Result<OwnedFd> {
        self.attempt("enter", path, || into_directory(self.find(path)?.target))
    }

    /// Returns the path relative to the root, without symlinks and `..`, as text; `None` if it leads out of the root.
    ///
    /// A path to a missing file has such a name too. A dangling symlink has the name of the file that writing through it
    /// would create.
    pub fn canonical_name(&self, path: &str) -> Option<String> {
        Some(self.resolve(path).ok()?.to_string_lossy().into_owned())
    }

    /// Returns the other paths in the root at which a mount shows the same file, as text. The path is a
    /// [`canonical_name`](Self::canonical_name).
    pub fn other_names(&self, name: &str) -> Vec<String> {
        let places = MountTable::read().unwrap_or_default().places(&self.path.join(name)).into_iter().skip(1);
        let inside = places.filter_map(|place| place.strip_prefix(&self.path).ok().map(Path::to_owned));
        inside.map(|path| path.to_string_lossy().into_owned()).collect()
    }

    /// Returns the path relative to the root, without symlinks and `..`.
    pub fn resolve(&self, path: &str) -> Result<PathBuf> {
        Ok(self.attempt("look at", path, || self.find(path))?.names.iter().collect())
    }

    /// Resolves a path that must not be a directory.
    /// Resolves a path for a write, which must not lead into a `.git`: git runs what stands there.
    fn find_to_write(&self, path: &str) -> Result<ResolvedPath, PathError> {
        let resolved = self.find_file(path)?;
        match resolved.names.iter().any(|name| is_git_dir(name)) {
            true => Err(PathError::GitDir),
            false => Ok(resolved),
        }
    }

    fn find_file(&self, path: &str) -> Result<ResolvedPath, PathError> {
        let resolved = self.find(path)?;
        if let Target::Directory(_) = resolved.target { Err(Errno::ISDIR.into()) } else { Ok(resolved) }
    }

    /// Runs an operation on a path, and repeats it if the path is changed concurrently. `verb` is for error messages.
    fn attempt<T>(&self, verb: &str, path: &str, work: impl Fn() -> Result<T, PathError>) -> Result<T> {
        if path.contains('\0') {
            let path = shorten(&path.replace('\0', "\\0"));
            return Err(Error::new(
                ErrorKind::Io,
                format_args!("cannot {verb} `{path}`: a path cannot contain a NUL byte"),
            ));
        }
        let mut attempts =
            (0..MAX_ATTEMPTS).map(|_| work()).skip_while(|result| matches!(result, Err(PathError::Changing)));
        attempts.next().unwrap_or(Err(PathError::Changing)).map_err(|error| error.into_error(verb, path))
    }
}

impl PathError {
    /// Returns the error for the caller. Its message contains no path except the requested one.
    fn into_error(self, verb: &str, path: &str) -> Error {
        let path = shorten(path);
        let reason = match self {
            PathError::Outside => {
                return Error::new(ErrorKind::OutsideWorkspace, format_args!("`{path}` is outside the workspace"))
                    .with_hint("use a path relative to the workspace, without a `..` that leaves it");
            }
            PathError::RathDir => {
                return Error::new(
                    ErrorKind::OutsideWorkspace,
                    format_args!("`{path}` is in the reserved directory `.rath`"),
                )
                .with_hint("choose a path outside `.rath`");
            }
            PathError::GitDir => {
                return Error::new(ErrorKind::OutsideWorkspace, format_args!("`{path}` is in the directory `.git`"))
                    .with_hint("files in `.git` are written by git only");
            }
            PathError::Private => {
                let message = format!("`{path}` is a private file of the user");
                return Error::new(ErrorKind::OutsideWorkspace, message);
            }
            PathError::Hidden => {
                return Error::new(ErrorKind::OutsideWorkspace, format_args!("the sandbox hides `{path}`"));
            }
            PathError::Changing => "it keeps changing",
            PathError::TooDeep => "it is nested too deeply",
            PathError::NotAFile => "it is not an ordinary file",
            PathError::TooManyEntries => "it has more than 100000 entries",
            PathError::Errno(errno) => match errno {
                Errno::NOENT if matches!(verb, "list" | "enter") => "there is no such directory",
                Errno::NOENT => "there is no such file",
                Errno::ACCESS | Errno::PERM => "permission denied",
                Errno::ISDIR => "it is a directory",
                Errno::NOTDIR => "it is not a directory",
                Errno::LOOP => "it leads through too many symlinks",
                Errno::NAMETOOLONG => "its name is too long",
                Errno::NOSPC | Errno::DQUOT => "there is no space left",
                Errno::ROFS => "the file system is read-only",
                Errno::MFILE | Errno::NFILE => "too many files are open",
                errno => {
                    let reason = std::io::Error::from(errno).kind();
                    return Error::new(ErrorKind::Io, format_args!("cannot {verb} `{path}`: {reason}"));
                }
            },
        };
        Error::new(ErrorKind::Io, format_args!("cannot {verb} `{path}`: {reason}"))
    }
}

/// Returns the names that lead to a relative path.
fn path_names(path: &Path) -> Vec<OsString> {
    path.iter().map(|name| name.to_owned()).collect()
}

/// Returns the error for a directory that cannot be opened.
fn cannot_open(path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format_args!("cannot work in `{}`", path.display()))
        .with_hint("the directory has to be there")
        .because(error)
}

fn read_range(mut file: File, range: ByteRange) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if i64::try_from(range.offset).is_ok() {
        file.seek(SeekFrom::Start(range.offset))?;
        file.take(range.max_len.min(MAX_READ_BYTES)).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Fails unless this is a regular file: reading a pipe or a device may block for ever.
fn check_file(stat: &Stat) -> Result<(), PathError> {
    match file_type(stat) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Err(PathError::NotAFile),
    }
}

fn into_directory(target: Target) -> Result<OwnedFd, PathError> {
    match target {
        Target::Directory(fd) => Ok(fd),
        Target::Entry { .. } => Err(Errno::NOTDIR.into()),
        Target::Missing { .. } => Err(Errno::NOENT.into()),
    }
}

fn to_entry(name: &OsStr, stat: &Stat) -> DirEntry {
    let kind = match file_type(stat) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let bytes = if kind == FileKind::File { u64::try_from(stat.st_size).unwrap_or_default() } else { 0 };
    DirEntry::new(name.to_string_lossy(), kind, bytes)
}

fn to_errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Shortens a path for an error message.
fn shorten(path: &str) -> String {
    if path.len() <= MAX_SHOWN_PATH_BYTES {
        return path.to_owned();
    }
    format!("{}…", &path[..path.floor_char_boundary(MAX_SHOWN_PATH_BYTES)])
}

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Root").field(&self.path).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_write_leaves_everything_as_it_was() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = Root::open(directory.path()).expect("it is there");
        root.write("there.txt", b"old").expect("it is written");
        for path in ["there.txt", "new.txt"] {
            root.write_unless(path, b"new", &AtomicBool::new(true), None).expect_err("it is cancelled");
        }
        let names: Vec<_> = root.list(".").expect("a list").into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["there.txt"]);
        assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 1, "no temporary file is left");
        assert_eq!(std::fs::read(directory.path().join("there.txt")).expect("a file"), b"old");
    }
}
