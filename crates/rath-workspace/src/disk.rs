//! The file system, one name at a time: nothing here follows a link or takes a path apart.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::dir::Stat;

/// Opens a directory that the user named, wherever links lead.
pub(super) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a directory in another, unless it is a link.
pub(super) fn open_dir(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Opens a directory below another, name by name, unless one of them is a link.
pub(super) fn open_path(root: &OwnedFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let mut dir = open_dir(root, b".")?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        dir = open_dir(&dir, name)?;
    }
    Ok(dir)
}

/// Reads to the end of a file, or a little more than `most` bytes.
pub(super) fn read_all(file: &OwnedFd, content: &mut Vec<u8>, most: u64) -> rustix::io::Result<()> {
    loop {
        if content.len() == content.capacity() {
            content.reserve(1 << 16);
        }
        let read = rustix::io::retry_on_intr(|| rustix::io::read(file, rustix::buffer::spare_capacity(content)))?;
        if read == 0 || content.len() as u64 > most {
            return Ok(());
        }
    }
}

/// Opens a file to read it, unless it is a link. One that has become a pipe is not waited for.
pub(super) fn open_file(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Makes a file that is not there yet.
pub(super) fn create_file(dir: &OwnedFd, name: &[u8], executable: bool) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = if executable { 0o777 } else { 0o666 };
    rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(mode))
}

pub(super) fn stat(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<Stat> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Stat::of(&stat))
}

pub(super) fn stat_of(file: &OwnedFd) -> rustix::io::Result<Stat> {
    rustix::fs::fstat(file).map(|stat| Stat::of(&stat))
}

/// What something is not there any more looks like.
pub(super) fn is_gone(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE)
}

/// What something that we may not read looks like.
pub(super) fn is_closed(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(error, Errno::ACCESS | Errno::PERM)
}

impl Stat {
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    fn of(stat: &rustix::fs::Stat) -> Self {
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
    pub(super) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode as rustix::fs::RawMode)
    }

    pub(super) fn is_executable(&self) -> bool {
        self.mode & 0o100 != 0
    }
}

/// The clock by which files are stamped, in nanoseconds: what changes from now on is stamped with this or later.
pub(super) fn now() -> i64 {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::RealtimeCoarse;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Realtime;
    let now = rustix::time::clock_gettime(clock);
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    (now.tv_sec as i64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as i64)
}

/// Waits until the clock by which files are stamped has moved on: a few milliseconds at most.
pub(super) fn next_tick() {
    let before = now();
    for _ in 0..200 {
        if now() > before {
            return;
        }
        std::thread::sleep(std::time::Duration::from_micros(500));
    }
}

/// What is in a directory: names one after the other, and for each where its name is and what it is, as far as is known.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) names: Vec<u8>,
    pub(super) entries: Vec<(u32, u16, FileType)>,
    #[cfg(target_os = "linux")]
    buffer: Vec<std::mem::MaybeUninit<u8>>,
}

impl Listing {
    pub(super) fn name(&self, nth: usize) -> &[u8] {
        let (start, length, _) = self.entries[nth];
        &self.names[start as usize..][..usize::from(length)]
    }

    /// Reads a directory, in the order of names.
    pub(super) fn read(&mut self, dir: &OwnedFd) -> io::Result<()> {
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
