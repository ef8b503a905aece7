//! A database and its WAL, read without SQLite.
//!
//! SQLite reads a WAL only where it can write an index of it. On a full disk, or in a directory without write permission, the
//! transactions in the WAL are added to a copy of the database in memory instead.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::database_file::DatabaseFile;
use super::schema::PAGE_BYTES;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// The first four bytes of a WAL; the lowest bit says in which order checksums read bytes.
const MAGIC: u32 = 0x377f_0682;
/// The number of attempts to read files that another process does not change meanwhile.
const MAX_ATTEMPTS: usize = 20;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(5);

/// The committed transactions of a WAL.
struct WalPages<'a> {
    pages: BTreeMap<u32, &'a [u8]>,
    /// The number of pages that the database has after them.
    count: u32,
}

/// Returns the content of a database with all transactions in its WAL. `file` is none if the database is lost: then all pages
/// have to be in the WAL.
pub(super) fn read_with_wal(file: Option<&DatabaseFile>, wal: &Path) -> io::Result<Vec<u8>> {
    for _ in 0..MAX_ATTEMPTS {
        let bytes = std::fs::read(wal)?;
        let database = match file {
            Some(file) => file.read_start(u64::MAX)?,
            None => Vec::new(),
        };
        // Pages of a transaction that is not in `bytes` may be in the database already, even if the WAL only grew.
        if std::fs::read(wal)? == bytes {
            return add_pages(database, &bytes);
        }
        std::thread::sleep(ATTEMPT_PAUSE);
    }
    Err(io::Error::other("another process is writing it"))
}

fn add_pages(mut database: Vec<u8>, wal: &[u8]) -> io::Result<Vec<u8>> {
    if let Some(committed) = WalPages::read(wal) {
        let length = committed.count as usize * PAGE_BYTES;
        let known = (database.len() / PAGE_BYTES) as u32;
        let missing = (known + 1..=committed.count).filter(|number| !committed.pages.contains_key(number)).count();
        if missing > 0 {
            let found = committed.count as usize - missing;
            return Err(io::Error::other(format!("{found} of {} pages are there", committed.count)));
        }
        database.resize(length, 0);
        for (number, page) in committed.pages.range(1..=committed.count) {
            let start = (*number as usize - 1) * PAGE_BYTES;
            database[start..start + PAGE_BYTES].copy_from_slice(page);
        }
    }
    // The header says that there is a WAL, which a database in memory cannot have.
    if let Some(versions) = database.get_mut(18..20) {
        versions.fill(1);
    }
    Ok(database)
}

impl<'a> WalPages<'a> {
    /// Reads all transactions up to the first frame that is incomplete, as SQLite does; none if there are none.
    fn read(wal: &'a [u8]) -> Option<Self> {
        let (header, mut rest) = wal.split_at_checked(HEADER_BYTES)?;
        let magic = read_u32(header, 0);
        if magic & !1 != MAGIC || read_u32(header, 8) as usize != PAGE_BYTES {
            return None;
        }
        let read_word = if magic & 1 == 0 { u32::from_le_bytes } else { u32::from_be_bytes };
        let mut sum = checksum(read_word, [0, 0], &header[..24]);
        if sum != [read_u32(header, 24), read_u32(header, 28)] {
            return None;
        }
        let (mut pages, mut open, mut count) = (BTreeMap::new(), BTreeMap::new(), 0);
        while let Some((frame, after)) = rest.split_at_checked(FRAME_HEADER_BYTES + PAGE_BYTES) {
            let (frame, page) = frame.split_at(FRAME_HEADER_BYTES);
            sum = checksum(read_word, checksum(read_word, sum, &frame[..8]), page);
            let is_same = frame[8..16] == header[16..24] && sum == [read_u32(frame, 16), read_u32(frame, 20)];
            if !is_same || read_u32(frame, 0) == 0 {
                break;
            }
            open.insert(read_u32(frame, 0), page);
            // The last frame of a transaction has the number of pages after it.
            if read_u32(frame, 4) > 0 {
                count = read_u32(frame, 4);
                pages.append(&mut open);
            }
            rest = after;
        }
        (count > 0).then_some(WalPages { pages, count })
    }
}

/// Computes SQLite's checksum of a number of words, from the checksum of what precedes them.
fn checksum(read_word: fn([u8; 4]) -> u32, [mut first, mut second]: [u32; 2], bytes: &[u8]) -> [u32; 2] {
    let (words, _) = bytes.as_chunks::<4>();
    let (pairs, _) = words.as_chunks::<2>();
    for [one, two] in pairs {
        first = first.wrapping_add(read_word(*one)).wrapping_add(second);
        second = second.wrapping_add(read_word(*two)).wrapping_add(first);
    }
    [first, second]
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_be_bytes)
}
