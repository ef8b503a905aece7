//! The log beside a database: groups of entries. A group is synced before it is reported as durable.
//!
//! ```text
//! header  magic 16 · store 16 · base u64 · table u64 · moved u64 · seal of the table 16 · seal of the rest 16
//! group   magic 8 · length of what follows u64 · place u64 · seal 16 · entries
//! table   place u64 · byte u64, as often as `moved` says
//! ```
//!
//! An entry is identified by its place: the byte of the log at which it was first written. A log that is rewritten without
//! some of its entries keeps the places of all others, and its table maps places to bytes. `base` is the place up to which a
//! reader must know the branches already: a rewritten log leaves out their state before that place.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rath_record::Seal;

use super::entry;

const MAGIC: &[u8; 16] = b"rath steps 1\n\0\0\0";
pub(super) const GROUP_MAGIC: &[u8; 8] = b"rathgrp\n";
/// The length of the header, and of the head of a group, in bytes.
pub(super) const HEADER: u64 = 16 + 16 + 3 * 8 + 16 + 16;
pub(super) const GROUP_HEAD_BYTES: usize = 8 + 8 + 8 + 16;
/// The length at which a group of a rewritten log ends, in bytes.
const MAX_COPIED_GROUP_BYTES: usize = 1 << 20;
/// The time to wait for the lock of another process, which may have been stopped while it holds the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);
/// The unit that a disk writes as a whole, in bytes.
pub(super) const SECTOR_BYTES: u64 = 512;

/// A log, open for reading and appending.
pub(super) struct Log {
    bytes: LogStorage,
    store: [u8; 16],
    base: u64,
    /// The bytes at which the table begins and ends.
    table: (u64, u64),
    /// Pairs of a place and the byte at which it is now, both ascending.
    moved: Vec<(u64, u64)>,
}

/// The reasons why a log cannot be opened.
pub(super) enum LogOpenError {
    Io(io::Error),
    Damaged,
}

impl From<io::Error> for LogOpenError {
    fn from(error: io::Error) -> Self {
        LogOpenError::Io(error)
    }
}

/// Returns the path of the log of a database.
pub(super) fn log_path(database: &Path) -> PathBuf {
    sibling_path(database, "-steps")
}

pub(super) fn sibling_path(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

impl Log {
    pub(super) fn in_memory(store: [u8; 16]) -> Self {
        let log = Log::new(LogStorage::Memory(RwLock::default()), store);
        log.bytes.write(&log.header(), 0).expect("memory takes every write");
        log
    }

    /// Creates an empty log; an existing empty log is opened. None if the existing log has entries.
    pub(super) fn create(path: &Path, store: [u8; 16]) -> io::Result<Option<Self>> {
        match Log::open(path) {
            Ok(log) => return Ok((log.end()? == HEADER).then_some(log)),
            Err(LogOpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            // A crash left the beginning of a log that was never used.
            Err(LogOpenError::Damaged) if std::fs::metadata(path)?.len() <= HEADER => {}
            Err(LogOpenError::Damaged) => return Ok(None),
            Err(LogOpenError::Io(error)) => return Err(error),
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        let log = Log::new(LogStorage::File(file), store);
        log.bytes.write(&log.header(), 0)?;
        log.bytes.sync()?;
        Ok(Some(log))
    }

    pub(super) fn open(path: &Path) -> Result<Self, LogOpenError> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut log = Log::new(LogStorage::File(file), [0; 16]);
        let mut header = [0; HEADER as usize];
        if log.bytes.read(&mut header, 0)? < header.len() {
            return Err(LogOpenError::Damaged);
        }
        let (said, seal) = header.split_at(header.len() - 16);
        let mut fields = entry::FieldReader(said);
        let mut read = || {
            let magic: [u8; 16] = fields.array()?;
            let store = fields.array()?;
            let numbers = [fields.u64()?, fields.u64()?, fields.u64()?];
            (magic == *MAGIC).then_some((store, numbers, fields.array::<16>()?))
        };
        let known = read().filter(|_| Seal::compute(said).0 == *seal);
        let (store, [base, table, moved], table_seal) = known.ok_or(LogOpenError::Damaged)?;
        (log.store, log.base) = (store, base);
        if moved > 0 {
            let room = log.bytes.len()?.saturating_sub(table) / 16;
            let mut bytes = vec![0; usize::try_from(moved.min(room)).unwrap_or_default() * 16];
            log.bytes.read(&mut bytes, table)?;
            if moved > room || Seal::compute(&bytes).0 != table_seal {
                return Err(LogOpenError::Damaged);
            }
            log.table = (table, table + bytes.len() as u64);
            let mut fields = entry::FieldReader(&bytes);
            log.moved = std::iter::from_fn(|| Some((fields.u64()?, fields.u64()?))).collect();
        }
        Ok(log)
    }

    fn new(bytes: LogStorage, store: [u8; 16]) -> Self {
        Log { bytes, store, base: 0, table: (0, 0), moved: vec![(HEADER, HEADER)] }
    }

    /// Returns the id of the store that the log belongs to.
    pub(super) fn store(&self) -> [u8; 16] {
        self.store
    }

    /// Returns the place up to which a reader must know the branches already.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Returns the place after the last entry.
    pub(super) fn end(&self) -> io::Result<u64> {
        let (place, byte) = self.moved[self.moved.len() - 1];
        Ok(place + self.bytes.len()?.saturating_sub(byte))
    }

    /// Returns the size of the log in bytes.
    pub(super) fn size(&self) -> u64 {
        self.bytes.len().unwrap_or_default()
    }

    /// Locks the log against all other processes until the guard is dropped; none after [`LOCK_TIMEOUT`].
    pub(super) fn lock(log: &Arc<Self>) -> io::Result<Option<LockedLog>> {
        let LogStorage::File(file) = &log.bytes else { return Ok(Some(LockedLog(log.clone()))) };
        let (begun, mut pause) = (Instant::now(), Duration::from_micros(20));
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(LockedLog(log.clone()))),
                Err(TryLockError::WouldBlock) if begun.elapsed() > LOCK_TIMEOUT => return Ok(None),
                Err(TryLockError::WouldBlock) => std::thread::sleep(pause),
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }

    /// Returns true if another log has replaced this file.
    pub(super) fn is_replaced(&self) -> io::Result<bool> {
        match &self.bytes {
            #[cfg(unix)]
            LogStorage::File(file) => Ok(std::os::unix::fs::MetadataExt::nlink(&file.metadata()?) == 0),
            _ => Ok(false),
        }
    }

    /// Appends a group, which begins with space for its head. Durable on return.
    pub(super) fn append(&self, group: &mut [u8], place: u64) -> io::Result<()> {
        self.put_head(group, place);
        self.bytes.write(group, self.byte(place))?;
        self.bytes.sync()
    }

    /// Removes everything from a place on.
    pub(super) fn cut(&self, place: u64) -> io::Result<()> {
        self.bytes.cut(self.byte(place))?;
        self.bytes.sync()
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.bytes.sync()
    }

    fn put_head(&self, group: &mut [u8], place: u64) {
        let length = (group.len() - GROUP_HEAD_BYTES) as u64;
        group[..8].copy_from_slice(GROUP_MAGIC);
        group[8..16].copy_from_slice(&length.to_le_bytes());
        group[16..24].copy_from_slice(&place.to_le_bytes());
        let seal = self.group_seal(&group[..24]);
        group[24..GROUP_HEAD_BYTES].copy_from_slice(&seal);
    }

    fn group_seal(&self, head: &[u8]) -> [u8; 16] {
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(&self.store);
        bytes[16..].copy_from_slice(head);
        Seal::compute(&bytes).0
    }

    fn header(&self) -> Vec<u8> {
        let table: Vec<u8> = self.moved_bytes();
        let moved = if self.base == 0 { 0 } else { self.moved.len() as u64 };
        let mut header = Vec::with_capacity(HEADER as usize);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&self.store);
        [self.base, self.table.0, moved].iter().for_each(|number| header.extend_from_slice(&number.to_le_bytes()));
        header.extend_from_slice(&Seal::compute(&table).0);
        let seal = Seal::compute(&header);
        header.extend_from_slice(&seal.0);
        header
    }

    fn moved_bytes(&self) -> Vec<u8> {
        self.moved.iter().flat_map(|(place, byte)| [place.to_le_bytes(), byte.to_le_bytes()]).flatten().collect()
    }

    /// Reads the place and the length of a group from its head.
    pub(super) fn read_head(&self, head: &[u8]) -> Option<(u64, u64)> {
        let mut fields = entry::FieldReader(head);
        let magic: [u8; 8] = fields.array()?;
        let (length, place, seal) = (fields.u64()?, fields.u64()?, fields.array::<16>()?);
        (magic == *GROUP_MAGIC && self.group_seal(&head[..24]) == seal).then_some((place, length))
    }

    /// Skips the table, if it begins at this byte.
    pub(super) fn past_table(&self, byte: u64) -> u64 {
        if byte == self.table.0 { self.table.1 } else { byte }
    }

    /// Reads from a byte on, up to the end of the log. Returns the number of bytes read.
    pub(super) fn read(&self, into: &mut [u8], byte: u64) -> io::Result<usize> {
        self.bytes.read(into, byte)
    }

    /// Returns the place of a byte.
    pub(super) fn place(&self, byte: u64) -> u64 {
        let after = self.moved.partition_point(|(_, from)| *from <= byte);
        let (place, from) = self.moved[after.saturating_sub(1)];
        place + byte.saturating_sub(from)
    }

    /// Returns the byte of a place.
    pub(super) fn byte(&self, place: u64) -> u64 {
        let after = self.moved.partition_point(|(from, _)| *from <= place);
        let (from, byte) = self.moved[after.saturating_sub(1)];
        byte + place.saturating_sub(from)
    }

    /// Writes a new log with the given entries and renames it over the old one. A crash leaves either the old or the new log.
    pub(super) fn rewrite<'a>(
        &self,
        path: Option<&Path>,
        entries: impl FnOnce(&mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> + 'a,
    ) -> io::Result<Self> {
        let next = path.map(|path| sibling_path(path, ".new"));
        let bytes = match &next {
            Some(next) => {
                LogStorage::File(OpenOptions::new().read(true).write(true).create(true).truncate(true).open(next)?)
            }
            None => LogStorage::Memory(RwLock::default()),
        };
        let end = self.end()?;
        let mut log = Log { base: end, moved: Vec::new(), ..Log::new(bytes, self.store) };
        let mut copy = LogCopier { at: HEADER, group: Vec::new(), place: 0 };
        entries(&mut |place, entry| copy.entry(&mut log, place, entry))?;
        copy.close(&mut log)?;
        let table = copy.at;
        // New entries continue at the place where the old log ends.
        let after = table + 16 * (log.moved.len() as u64 + 1);
        log.moved.push((end, after));
        log.table = (table, after);
        log.bytes.write(&log.moved_bytes(), table)?;
        log.bytes.write(&log.header(), 0)?;
        log.bytes.sync()?;
        if let (Some(next), Some(path)) = (&next, path) {
            std::fs::rename(next, path)?;
            super::super::sync_parent(path)?;
        }
        Ok(log)
    }
}

/// Copies entries to another log.
struct LogCopier {
    /// The next byte to write.
    at: u64,
    group: Vec<u8>,
    place: u64,
}

impl LogCopier {
    fn entry(&mut self, log: &mut Log, place: u64, entry: &[u8]) -> io::Result<()> {
        let goes_on = self.place + self.group.len() as u64 == place && self.group.len() < MAX_COPIED_GROUP_BYTES;
        if self.group.is_empty() || !goes_on {
            self.close(log)?;
            self.place = place - GROUP_HEAD_BYTES as u64;
            self.group.resize(GROUP_HEAD_BYTES, 0);
            let is_moved = |(from, byte): &(u64, u64)| self.at.wrapping_sub(*byte) != self.place.wrapping_sub(*from);
            if log.moved.last().is_none_or(is_moved) {
                log.moved.push((self.place, self.at));
            }
        }
        self.group.extend_from_slice(entry);
        Ok(())
    }

    fn close(&mut self, log: &mut Log) -> io::Result<()> {
        if !self.group.is_empty() {
            log.put_head(&mut self.group, self.place);
            log.bytes.write(&self.group, self.at)?;
            self.at += self.group.len() as u64;
            self.group.clear();
        }
        Ok(())
    }
}

/// A log that is locked against other processes.
pub(super) struct LockedLog(Arc<Log>);

impl std::ops::Deref for LockedLog {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.0
    }
}

impl Drop for LockedLog {
    fn drop(&mut self) {
        if let LogStorage::File(file) = &self.0.bytes {
            let _ = file.unlock();
        }
    }
}

/// The storage of a log.
enum LogStorage {
    File(File),
    Memory(RwLock<Vec<u8>>),
}

impl LogStorage {
    fn len(&self) -> io::Result<u64> {
        match self {
            LogStorage::File(file) => file.metadata().map(|facts| facts.len()),
            LogStorage::Memory(bytes) => Ok(bytes.read().unwrap_or_else(PoisonError::into_inner).len() as u64),
        }
    }

    /// Reads up to the end of the storage. Returns the number of bytes read.
    fn read(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.read_some(&mut into[done..], at + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_some(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        match self {
            #[cfg(unix)]
            LogStorage::File(file) => std::os::unix::fs::FileExt::read_at(file, into, at),
            #[cfg(not(unix))]
            LogStorage::File(file) => {
                use std::io::{Read, Seek, SeekFrom};
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(at))?;
                file.read(into)
            }
            LogStorage::Memory(bytes) => {
                let bytes = bytes.read().unwrap_or_else(PoisonError::into_inner);
                let from = bytes.get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default();
                let length = from.len().min(into.len());
                into[..length].copy_from_slice(&from[..length]);
                Ok(length)
            }
        }
    }

    fn write(&self, from: &[u8], at: u64) -> io::Result<()> {
        match self {
            #[cfg(unix)]
            LogStorage::File(file) => std::os::unix::fs::FileExt::write_all_at(file, from, at),
            #[cfg(not(unix))]
            LogStorage::File(file) => {
                use std::io::{Seek, SeekFrom, Write};
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(at))?;
                file.write_all(from)
            }
            LogStorage::Memory(bytes) => {
                let mut bytes = bytes.write().unwrap_or_else(PoisonError::into_inner);
                let (at, end) = (at as usize, at as usize + from.len());
                let length = bytes.len().max(end);
                bytes.resize(length, 0);
                bytes[at..end].copy_from_slice(from);
                Ok(())
            }
        }
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        match self {
            LogStorage::File(file) => file.set_len(length),
            LogStorage::Memory(bytes) => {
                bytes.write().unwrap_or_else(PoisonError::into_inner).truncate(length as usize);
                Ok(())
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self {
            LogStorage::File(file) => file.sync_data(),
            LogStorage::Memory(_) => Ok(()),
        }
    }
}
