//! File system calls of Unix. Those that take a name work on that name in an open directory: none follows a symbolic link
//! or splits a path.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::dir::{FileType, Stat};
use crate::error::Result;
use crate::listing::Listing;

/// An open file or directory.
pub(crate) type Handle = OwnedFd;

/// True if files can share blocks, on some file systems.
pub(crate) const CAN_SHARE_BLOCKS: bool = cfg!(target_os = "linux");

/// Fails on a platform without versions of directories.
pub(crate) fn check_platform() -> Result<()> {
    Ok(())
}

/// Returns true if a path leads to an open file, and not to another that has taken its place.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let path = directory.path().join("lock");
/// let file = std::fs::File::create(&path)?;
/// assert!(rath_workspace::is_same_file(&file, &path));
/// std::fs::rename(&path, directory.path().join("old"))?;
/// assert!(!rath_workspace::is_same_file(&file, &path));
/// # Ok(())
/// # }
/// ```
pub fn is_same_file(file: &File, path: &Path) -> bool {
    let (open, named) = (file.metadata(), std::fs::symlink_metadata(path));
    open.is_ok_and(|open| named.is_ok_and(|named| (open.dev(), open.ino()) == (named.dev(), named.ino())))
}

/// Returns the path that bytes stand for.
pub(crate) fn path_from_bytes(bytes: &[u8]) -> PathBuf {
    std::ffi::OsStr::from_bytes(bytes).into()
}

/// Opens a directory that the user named, and follows symbolic links.
pub(crate) fn open_root(path: &Path) -> io::Result<Handle> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a directory in another one. Fails for a symbolic link.
pub(crate) fn open_dir(dir: &Handle, name: &[u8]) -> io::Result<Handle> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

/// Opens a directory below another one, name by name. Fails if one of the names is a symbolic link.
pub(crate) fn open_path(root: &Handle, path: &[u8]) -> io::Result<Handle> {
    let mut dir = open_dir(root, b".")?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        dir = open_dir(&dir, name)?;
    }
    Ok(dir)
}

/// Reads to the end of a file, or until slightly more than `max` bytes are read.
pub(crate) fn read_all(file: &Handle, content: &mut Vec<u8>, max: u64) -> io::Result<()> {
    loop {
        if content.len() == content.capacity() {
            content.reserve(1 << 16);
        }
        let read = rustix::io::retry_on_intr(|| rustix::io::read(file, rustix::buffer::spare_capacity(content)))?;
        if read == 0 || content.len() as u64 > max {
            return Ok(());
        }
    }
}

/// Opens a file for reading. Fails for a symbolic link, and does not wait for a file that has become a pipe.
pub(crate) fn open_file(dir: &Handle, name: &[u8]) -> io::Result<Handle> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

/// Opens an ordinary file for reading. Fails for a symbolic link, and does not wait for a pipe.
pub(crate) fn open_plain_file(path: &Path) -> io::Result<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no ordinary file")),
    }
}

/// Opens a file that the user named for reading, and follows symbolic links. Does not wait for the other end of a pipe.
pub(crate) fn open_without_waiting(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Creates a file that does not exist yet.
pub(crate) fn create_file(dir: &Handle, name: &[u8], executable: bool) -> io::Result<Handle> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = if executable { 0o777 } else { 0o666 };
    Ok(rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(mode))?)
}

/// Creates a directory in another one.
pub(crate) fn create_dir(dir: &Handle, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o777))?)
}

/// Creates a symbolic link.
pub(crate) fn create_link(dir: &Handle, name: &[u8], target: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::symlinkat(target, dir, name)?)
}

/// Returns the target of a symbolic link; none if the name is not a link.
pub(crate) fn read_link(dir: &Handle, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    match rustix::fs::readlinkat(dir, name, Vec::new()) {
        Ok(target) => Ok(Some(target.into_bytes())),
        Err(Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Renames a file. A file that has the new name is replaced.
pub(crate) fn rename(from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> io::Result<()> {
    Ok(rustix::fs::renameat(from.0, from.1, to.0, to.1)?)
}

/// Renames a file to a name that does not exist. On a file system without such renames, the name is looked at first.
pub(crate) fn rename_new(from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> io::Result<()> {
    match rename_as(RenameMode::New, from, to) {
        Err(error) if is_unsupported(&error) => match stat(to.0, to.1) {
            Err(error) if is_gone(&error) => rename(from, to),
            found => found.and(Err(io::ErrorKind::AlreadyExists.into())),
        },
        renamed => renamed,
    }
}

/// Exchanges a file with another one. Returns false on a file system without such renames: nothing has changed then.
pub(crate) fn exchange(one: (&Handle, &[u8]), other: (&Handle, &[u8])) -> io::Result<bool> {
    match rename_as(RenameMode::Exchange, one, other) {
        Err(error) if is_unsupported(&error) => Ok(false),
        exchanged => exchanged.map(|()| true),
    }
}

/// The renames that replace no file.
enum RenameMode {
    New,
    Exchange,
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn rename_as(mode: RenameMode, from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> io::Result<()> {
    let flags = match mode {
        RenameMode::New => rustix::fs::RenameFlags::NOREPLACE,
        RenameMode::Exchange => rustix::fs::RenameFlags::EXCHANGE,
    };
    Ok(rustix::fs::renameat_with(from.0, from.1, to.0, to.1, flags)?)
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn rename_as(_mode: RenameMode, _from: (&Handle, &[u8]), _to: (&Handle, &[u8])) -> io::Result<()> {
    Err(Errno::NOSYS.into())
}

/// Returns true if a file system or system does not know the kind of rename.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP))
}

/// Removes a file or a link.
pub(crate) fn remove_file(dir: &Handle, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?)
}

/// Removes an empty directory.
pub(crate) fn remove_dir(dir: &Handle, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?)
}

/// Sets the permissions of an open file or directory.
pub(crate) fn set_mode(file: &Handle, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode as _))?)
}

/// Sets the time of the last change of an open file or directory, in nanoseconds.
pub(crate) fn set_modified(file: &Handle, nanos: i64) -> io::Result<()> {
    let time =
        rustix::fs::Timespec { tv_sec: nanos.div_euclid(1_000_000_000), tv_nsec: nanos.rem_euclid(1_000_000_000) as _ };
    let omit = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    Ok(rustix::fs::futimens(file, &rustix::fs::Timestamps { last_access: omit, last_modification: time })?)
}

/// Adds permissions to a directory that the user named, and follows symbolic links.
pub(crate) fn add_mode(path: &Path, bits: u32) -> io::Result<()> {
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    let mode = rustix::fs::stat(path)?.st_mode as u32 & 0o7777;
    if mode & bits == bits {
        return Ok(());
    }
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode((mode | bits) as _))?)
}

/// Removes a directory with all that is in it, also where the permissions do not allow the user to list or write it.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mut rest = vec![path.to_owned()];
            while let Some(directory) = rest.pop() {
                let _ = add_mode(&directory, 0o700);
                let below = std::fs::read_dir(&directory).into_iter().flatten().flatten();
                let is_directory = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
                rest.extend(below.filter(is_directory).map(|entry| entry.path()));
            }
            std::fs::remove_dir_all(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Lets the user enter a directory and write in it.
pub(crate) fn make_accessible(dir: &Handle, name: &[u8]) -> io::Result<()> {
    let found = stat(dir, name)?;
    if found.file_type() != FileType::Directory {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let mode = Mode::from_raw_mode((found.mode & 0o7777 | 0o700) as _);
    Ok(rustix::fs::chmodat(dir, name, mode, AtFlags::empty())?)
}

/// Returns the metadata of a name in a directory, without following a symbolic link.
pub(crate) fn stat(dir: &Handle, name: &[u8]) -> io::Result<Stat> {
    Ok(Stat::new(&rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// Returns the metadata of an open file.
pub(crate) fn stat_open(file: &Handle) -> io::Result<Stat> {
    Ok(Stat::new(&rustix::fs::fstat(file)?))
}

/// Returns true for an error that means that a file or directory no longer exists.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE))
}

/// Returns true for an error that means that the permissions do not allow the access.
pub(crate) fn is_denied(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ACCESS | Errno::PERM))
}

/// Moves the position of a file to its beginning.
pub(crate) fn rewind(file: &Handle) -> io::Result<()> {
    rustix::fs::seek(file, rustix::fs::SeekFrom::Start(0))?;
    Ok(())
}

/// Removes the content of a file.
pub(crate) fn truncate(file: &Handle) -> io::Result<()> {
    Ok(rustix::fs::ftruncate(file, 0)?)
}

/// Blocks until the content of a file is durable.
pub(crate) fn sync_content(file: &Handle) -> io::Result<()> {
    Ok(rustix::fs::fdatasync(file)?)
}

/// Writes all bytes to a file.
pub(crate) fn write_all(file: &Handle, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(file, bytes))?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Reads bytes at an offset of a file, and returns their number. The position of the file does not change.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buffer, offset)
}

/// Writes all bytes at an offset of a file. The position of the file does not change.
pub(crate) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// Makes a new file share the blocks of another one; returns false if the file system cannot.
#[cfg(target_os = "linux")]
pub(crate) fn share_blocks(source: &Handle, file: &Handle) -> bool {
    rustix::fs::ioctl_ficlone(file, source).is_ok()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn share_blocks(_source: &Handle, _file: &Handle) -> bool {
    false
}

/// Returns true if files in a directory can share blocks. Tries it with two unnamed files.
#[cfg(target_os = "linux")]
pub(crate) fn can_share_blocks(directory: &Path) -> bool {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = || rustix::fs::open(directory, flags, Mode::from_raw_mode(0o600));
    match (file(), file()) {
        (Ok(from), Ok(to)) => rustix::io::write(&from, &[1; 4096]).is_ok() && share_blocks(&from, &to),
        _ => false,
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn can_share_blocks(_directory: &Path) -> bool {
    false
}

/// Returns true if a directory is on a file system that can store the changes of an overlay: an ordinary one, with attributes of users.
#[cfg(target_os = "linux")]
pub(crate) fn can_store_layers(directory: &Path) -> bool {
    /// Overlays themselves, those over a network or a program, and those without permissions, by their magic numbers.
    const UNABLE: [u32; 7] = [0x794c_7630, 0x6969, 0x6573_5546, 0x0102_1997, 0xff53_4d42, 0xfe53_4d42, 0x4d44];
    let can_mount = rustix::fs::statfs(directory).is_ok_and(|found| !UNABLE.contains(&(found.f_type as u32)));
    // Reading one that is not there fails otherwise where there can be none.
    let read = rustix::fs::getxattr(directory, "user.overlay.opaque", &mut [0; 4]);
    can_mount && !matches!(read, Err(Errno::OPNOTSUPP))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn can_store_layers(_directory: &Path) -> bool {
    false
}

/// Makes durable everything that was written to the file system of a folder.
#[cfg(target_os = "linux")]
pub(crate) fn sync_file_system(folder: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(folder)?)?)
}

/// Makes durable everything that was written to any file system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn sync_file_system(_folder: &Path) -> io::Result<()> {
    rustix::fs::sync();
    Ok(())
}

impl Stat {
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    fn new(stat: &rustix::fs::Stat) -> Self {
        let time = |seconds: i64, nanos: i64| seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos);
        Stat {
            inode: stat.st_ino as u64,
            size: stat.st_size as u64,
            modified: time(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: time(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            mode: stat.st_mode as u32,
        }
    }
}

/// Returns the time of the clock that stamps files, in nanoseconds: later changes are stamped with this time or a later
/// one.
pub(crate) fn file_clock_now() -> i64 {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::RealtimeCoarse;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Realtime;
    let now = rustix::time::clock_gettime(clock);
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    (now.tv_sec as i64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as i64)
}

/// Blocks until the clock that stamps files has moved on: a few milliseconds at most.
pub(crate) fn wait_for_tick() {
    let before = file_clock_now();
    for _ in 0..200 {
        if file_clock_now() > before {
            return;
        }
        std::thread::sleep(std::time::Duration::from_micros(500));
    }
}

fn file_type(kind: rustix::fs::FileType) -> FileType {
    match kind {
        rustix::fs::FileType::RegularFile => FileType::File,
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Link,
        rustix::fs::FileType::Unknown => FileType::Unknown,
        _ => FileType::Special,
    }
}

/// Reads the names in a directory, and sorts them.
pub(crate) fn list(dir: &Handle, listing: &mut Listing) -> io::Result<()> {
    listing.clear();
    add_names(dir, listing)?;
    listing.sort();
    Ok(())
}

#[cfg(target_os = "linux")]
fn add_names(dir: &Handle, listing: &mut Listing) -> io::Result<()> {
    let mut buffer = std::mem::take(&mut listing.buffer);
    buffer.resize(1 << 16, std::mem::MaybeUninit::uninit());
    let mut entries = rustix::fs::RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        listing.add(entry.file_name().to_bytes(), file_type(entry.file_type()))?;
    }
    listing.buffer = buffer;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn add_names(dir: &Handle, listing: &mut Listing) -> io::Result<()> {
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        listing.add(entry.file_name().to_bytes(), file_type(entry.file_type()))?;
    }
    Ok(())
}
