//! A scan of the pages of a database file for the rows of steps, without SQLite.
//!
//! If a page that leads to others is damaged, SQLite does not find the rows below it. The rows themselves are undamaged, and
//! each has a seal: a cell with a matching seal is a step, on whichever page it is found.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use super::database_file::DatabaseFile;
use super::schema::PAGE_BYTES;
use super::step_row::{StepRow, step_and_branch};

/// The length of the header of a database, before the header of its first page, in bytes.
const FILE_HEADER_BYTES: usize = 100;
/// The length of the header of a leaf page, in bytes.
const LEAF_HEADER_BYTES: usize = 8;
/// The length up to which a row is stored in one piece, in bytes, and the least of a longer row that is on its first page.
const MAX_LOCAL_BYTES: usize = PAGE_BYTES - 35;
const MIN_LOCAL_BYTES: usize = (PAGE_BYTES - 12) * 32 / 255 - 23;

/// The rows of steps in a file, by place.
pub(super) struct PageScan {
    file: DatabaseFile,
    file_bytes: u64,
    /// The page and the offset of the cell of each step.
    cells: HashMap<u64, (u64, usize)>,
}

impl PageScan {
    /// Reads all pages of a file.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let file = DatabaseFile::open(path)?;
        let file_bytes = file.length()?;
        let pages = file_bytes / PAGE_BYTES as u64;
        let mut cells = HashMap::new();
        for number in 1..=pages {
            // A page that the disk cannot read is skipped.
            let Some(page) = read_page(&file, number) else { continue };
            let start = if number == 1 { FILE_HEADER_BYTES } else { 0 };
            // The kind of the page and the number of its cells may be damaged too, so every two bytes may point to a cell.
            for pointer in page[start + LEAF_HEADER_BYTES..].chunks_exact(2) {
                let offset = usize::from(u16::from_be_bytes([pointer[0], pointer[1]]));
                if offset >= LEAF_HEADER_BYTES
                    && let Some((place, head, _)) = read_cell((&file, file_bytes), &page, offset)
                    && step_and_branch(place, &head).is_some()
                {
                    cells.insert(place, (number, offset));
                }
            }
        }
        Ok(PageScan { file, file_bytes, cells })
    }

    /// Reads the step at a place, if it was found and is undamaged.
    pub(super) fn read(&self, place: u64) -> Option<StepRow> {
        let (number, offset) = *self.cells.get(&place)?;
        let page = read_page(&self.file, number)?;
        let (_, head, json) = read_cell((&self.file, self.file_bytes), &page, offset)?;
        StepRow::decode(place, &head, &json).ok()
    }

    /// Returns all steps that were found and are undamaged.
    pub(super) fn steps(&self) -> impl Iterator<Item = StepRow> {
        self.cells.keys().filter_map(|place| self.read(*place))
    }
}

fn read_page(file: &DatabaseFile, number: u64) -> Option<Vec<u8>> {
    let mut page = vec![0; PAGE_BYTES];
    file.read_at(number.checked_sub(1)? * PAGE_BYTES as u64, &mut page).ok()?;
    Some(page)
}

/// Reads a cell of a leaf page as a row of the table of steps: its rowid and its two columns.
fn read_cell((file, file_bytes): (&DatabaseFile, u64), page: &[u8], offset: usize) -> Option<(u64, Vec<u8>, Vec<u8>)> {
    let mut cell = page.get(offset..)?;
    let (length, place) = (usize::try_from(varint(&mut cell)?).ok()?, varint(&mut cell)?);
    // A row is never longer than its file. Without a limit, overflow pages that lead back to each other would fill the memory.
    if length as u64 > file_bytes {
        return None;
    }
    let local = local_bytes(length);
    let mut row = cell.get(..local)?.to_vec();
    // The types of the columns are always on the first page. Most cells that are none are recognised by them.
    let mut header = &row[..];
    let header_length = usize::try_from(varint(&mut header)?).ok()?;
    let [rowid, head, json] = [varint(&mut header)?, varint(&mut header)?, varint(&mut header)?];
    let (head, json) = (blob_bytes(head)?, blob_bytes(json)?);
    let is_row = rowid == 0 && header_length == row.len() - header.len();
    if !is_row || header_length.checked_add(head)?.checked_add(json)? != length {
        return None;
    }
    let mut next = cell.get(local..local + 4).filter(|_| local < length);
    let mut overflow: Vec<u8>;
    while let Some(pointer) = next {
        let number = u32::from_be_bytes(pointer.try_into().ok()?);
        overflow = read_page(file, u64::from(number))?;
        row.extend_from_slice(&overflow[4..4 + (length - row.len()).min(PAGE_BYTES - 4)]);
        next = Some(&overflow[..4]).filter(|_| row.len() < length);
    }
    let json = row.get(header_length + head..)?.to_vec();
    Some((place, row.get(header_length..header_length + head)?.to_vec(), json))
}

/// Returns the part of a row that is on its first page, in bytes.
fn local_bytes(length: usize) -> usize {
    if length <= MAX_LOCAL_BYTES {
        return length;
    }
    let local = MIN_LOCAL_BYTES + (length - MIN_LOCAL_BYTES) % (PAGE_BYTES - 4);
    if local <= MAX_LOCAL_BYTES { local } else { MIN_LOCAL_BYTES }
}

/// Returns the length of a blob from the type of its column.
fn blob_bytes(kind: u64) -> Option<usize> {
    let length = kind.checked_sub(12).filter(|length| length % 2 == 0)?;
    usize::try_from(length / 2).ok()
}

/// Reads a number in SQLite's variable length: seven bits of each byte, highest first, and all eight of a ninth.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for nth in 0..9 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if nth == 8 {
            return Some(number << 8 | u64::from(*byte));
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}
