//! File system calls that work on one name in an open directory: none follows a symbolic link or splits a path.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use crate::dir::Stat;

/// Opens a directory that the user named, and follows symbolic links.
pub(crate) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a directory in another one. Fails for a symbolic link.
pub(crate) fn open_dir(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Opens a directory below another one, name by name. Fails if one of the names is a symbolic link.
pub(crate) fn open_path(root: &OwnedFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let mut dir = open_dir(root, b".")?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        dir = open_dir(&dir, name)?;
    }
    Ok(dir)
}

/// Reads to the end of a file, or until slightly more than `max` bytes are read.
pub(crate) fn read_all(file: &OwnedFd, content: &mut Vec<u8>, max: u64) -> rustix::io::Result<()> {
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
pub(crate) fn open_file(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Creates a file that does not exist yet.
pub(crate) fn create_file(dir: &OwnedFd, name: &[u8], executable: bool) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = if executable { 0o777 } else { 0o666 };
    rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(mode))
}

/// Returns the metadata of a name in a directory, without following a symbolic link.
pub(crate) fn stat(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<Stat> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Stat::new(&stat))
}

/// Returns the metadata of an open file.
pub(crate) fn stat_fd(file: &OwnedFd) -> rustix::io::Result<Stat> {
    rustix::fs::fstat(file).map(|stat| Stat::new(&stat))
}

/// Returns true for an error that means that a file or directory no longer exists.
pub(crate) fn is_gone(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE)
}

/// Returns true for an error that means that the permissions do not allow the access.
pub(crate) fn is_denied(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(error, Errno::ACCESS | Errno::PERM)
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

    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode as rustix::fs::RawMode)
    }

    pub(crate) fn is_executable(&self) -> bool {
        self.mode & 0o100 != 0
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

/// The names in a directory, sorted.
///
/// All names are stored one after the other in `names`; an entry holds the start and the length of its name, and its
/// file type as far as the file system returned it.
#[derive(Default)]
pub(crate) struct Listing {
    pub(crate) names: Vec<u8>,
    pub(crate) entries: Vec<(u32, u16, FileType)>,
    #[cfg(target_os = "linux")]
    buffer: Vec<std::mem::MaybeUninit<u8>>,
}

impl Listing {
    /// Returns the name of an entry.
    pub(crate) fn name(&self, nth: usize) -> &[u8] {
        let (start, length, _) = self.entries[nth];
        &self.names[start as usize..][..usize::from(length)]
    }

    /// Reads a directory, and sorts its names.
    pub(crate) fn read(&mut self, dir: &OwnedFd) -> io::Result<()> {
        self.names.clear();
        self.entries.clear();
        self.fill(dir)?;
        let names = &self.names;
        let name = |(start, length, _): &(u32, u16, FileType)| &names[*start as usize..][..usize::from(*length)];
        self.entries.sort_unstable_by(|one, other| name(one).cmp(name(other)));
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn fill(&mut self, dir: &OwnedFd) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(1 << 16, std::mem::MaybeUninit::uninit());
        let mut entries = rustix::fs::RawDir::new(dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            self.add(entry.file_name().to_bytes(), entry.file_type())?;
        }
        self.buffer = buffer;
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    fn fill(&mut self, dir: &OwnedFd) -> io::Result<()> {
        for entry in rustix::fs::Dir::read_from(dir)? {
            let entry = entry?;
            self.add(entry.file_name().to_bytes(), entry.file_type())?;
        }
        Ok(())
    }

    /// Adds an entry, unless it is `.` or `..`.
    fn add(&mut self, name: &[u8], kind: FileType) -> io::Result<()> {
        if name == b"." || name == b".." {
            return Ok(());
        }
        let start = u32::try_from(self.names.len()).map_err(io::Error::other)?;
        let length = u16::try_from(name.len()).map_err(io::Error::other)?;
        self.names.extend_from_slice(name);
        self.entries.push((start, length, kind));
        Ok(())
    }
}
