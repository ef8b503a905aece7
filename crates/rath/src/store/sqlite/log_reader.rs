//! Reading a log: single entries by place, or all entries from a place on.

use std::io;

use rath_record::{BranchId, StepId};

use super::entry::{self, ENTRY_PREFIX_BYTES, EntryFault, LogEntry, StepRow};
use super::log::{GROUP_HEAD_BYTES, HEADER, Log, SECTOR_BYTES};

/// The number of bytes read before and after an entry. Steps before it are read next.
const READ_BEFORE_BYTES: usize = 56 * 1024;
const READ_AFTER_BYTES: usize = 8 * 1024;
/// The number of bytes read at once by a scan.
const SCAN_BLOCK_BYTES: usize = 256 * 1024;

/// Reads parts of a log through a buffer.
pub(super) struct LogReader<'a> {
    log: &'a Log,
    /// The buffer, and the byte of the log at which it begins.
    bytes: Vec<u8>,
    from: u64,
    back: usize,
    ahead: usize,
}

impl<'a> LogReader<'a> {
    /// Creates a reader that goes back from step to step.
    pub(super) fn back(log: &'a Log) -> Self {
        LogReader { log, bytes: Vec::new(), from: 0, back: READ_BEFORE_BYTES, ahead: READ_AFTER_BYTES }
    }

    fn ahead(log: &'a Log) -> Self {
        LogReader { log, bytes: Vec::new(), from: 0, back: 0, ahead: SCAN_BLOCK_BYTES }
    }

    /// Returns the bytes from `at` on, fewer at the end of the log.
    fn get(&mut self, at: u64, length: usize) -> io::Result<&[u8]> {
        let is_here = at >= self.from && at + length as u64 <= self.from + self.bytes.len() as u64;
        if !is_here {
            self.from = at.saturating_sub(self.back as u64);
            let before = usize::try_from(at - self.from).unwrap_or_default();
            let all = self.log.size().saturating_sub(self.from);
            let wanted = (before + length.max(self.ahead)).min(usize::try_from(all).unwrap_or(usize::MAX));
            self.bytes.resize(wanted, 0);
            let read = self.log.read(&mut self.bytes, self.from);
            self.bytes.truncate(*read.as_ref().unwrap_or(&0));
            read?;
        }
        let bytes = self.bytes.get((at - self.from) as usize..).unwrap_or_default();
        Ok(&bytes[..bytes.len().min(length)])
    }

    /// Reads the step at a place.
    pub(super) fn step(&mut self, place: u64) -> Result<StepRow, EntryFault> {
        match self.entry(self.log.byte(place), place)?.0 {
            LogEntry::Step(row) => Ok(row),
            _ => Err(EntryFault::new("the row is missing")),
        }
    }

    /// Reads the id and the branch of the step at a place, if there is one.
    pub(super) fn step_and_branch(&mut self, place: u64) -> Option<(StepId, BranchId)> {
        let at = self.log.byte(place);
        let (_, head) = entry::lengths(self.get(at, ENTRY_PREFIX_BYTES).ok()?, place)?;
        let head = self.get(at, head).ok().filter(|bytes| bytes.len() == head && entry::is_sealed(bytes))?;
        entry::step_and_branch(head)
    }

    /// Reads the entry at a byte. Returns the entry and its length.
    fn entry(&mut self, at: u64, place: u64) -> Result<(LogEntry, usize), EntryFault> {
        let cannot = |error: io::Error| EntryFault::new(format!("the row cannot be read: {error}"));
        let first = self.get(at, ENTRY_PREFIX_BYTES).map_err(cannot)?;
        if first.len() < ENTRY_PREFIX_BYTES {
            return Err(EntryFault::new("the row is missing"));
        }
        let Some((length, head)) = entry::lengths(first, place) else {
            return Err(EntryFault::new("the row is missing, or was changed where it begins"));
        };
        let bytes = self.get(at, head).map_err(cannot)?;
        if bytes.len() < head || !entry::is_sealed(bytes) {
            let step = entry::step_and_branch(bytes).map(|(id, _)| id);
            return Err(EntryFault { step, what: "the row was changed: its seal does not match".to_owned() });
        }
        let bytes = self.get(at, length).map_err(cannot)?;
        if bytes.len() < length {
            let step = entry::step_and_branch(bytes).map(|(id, _)| id);
            return Err(EntryFault { step, what: "the row was cut".to_owned() });
        }
        let (head, rest) = bytes.split_at(head);
        Ok((entry::read(place, head, rest)?, length))
    }

    /// Reads the head of the group at a byte. Returns its place and its length, head included.
    fn group(&mut self, at: u64) -> io::Result<Option<(u64, u64)>> {
        let log = self.log;
        let head = self.get(at, GROUP_HEAD_BYTES)?;
        let Some((place, length)) = log.read_head(head) else { return Ok(None) };
        Ok((log.byte(place) == at).then_some((place, length.saturating_add(GROUP_HEAD_BYTES as u64))))
    }

    /// Finds the next byte at which a group begins.
    fn next_group(&mut self, after: u64, end: u64) -> io::Result<Option<u64>> {
        let mut at = after;
        while at < end {
            let here = self.get(at, SCAN_BLOCK_BYTES)?.to_vec();
            for nth in memchr::memmem::find_iter(&here, super::log::GROUP_MAGIC) {
                if self.group(at + nth as u64)?.is_some() {
                    return Ok(Some(at + nth as u64));
                }
            }
            // The last bytes may begin the magic of a group.
            at += here.len().saturating_sub(super::log::GROUP_MAGIC.len() - 1).max(1) as u64;
        }
        Ok(None)
    }

    /// Finds the next byte of a group at which an entry begins.
    fn next_entry(&mut self, after: u64, end: u64, shift: u64) -> io::Result<u64> {
        for at in after..end {
            let place = at.wrapping_sub(shift);
            if let Some((_, head)) = entry::lengths(self.get(at, ENTRY_PREFIX_BYTES)?, place)
                && at + head as u64 <= end
                && entry::is_sealed(self.get(at, head)?)
            {
                return Ok(at);
            }
        }
        Ok(end)
    }

    /// Returns true if an entry of a group is damaged and part of the group was never written.
    fn is_torn(&mut self, at: u64, end: u64, place: u64) -> io::Result<bool> {
        let mut next = at + GROUP_HEAD_BYTES as u64;
        while next < end {
            match self.entry(next, place + (next - at)) {
                Ok((_, length)) => next += length as u64,
                Err(_) => return self.has_hole(at, end),
            }
        }
        Ok(false)
    }

    /// Returns true if a sector has only zeros: written sectors never have.
    fn has_hole(&mut self, at: u64, end: u64) -> io::Result<bool> {
        let mut from = at;
        while from < end {
            let to = ((from / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
            let sector = self.get(from, (to - from) as usize)?;
            if sector.len() >= 16 && sector.iter().all(|byte| *byte == 0) {
                return Ok(true);
            }
            from = to;
        }
        Ok(false)
    }
}

/// Calls `each` with all entries from a place on, in the order in which they were written.
///
/// Returns the place of the unfinished group that a crash left at the end, if there is one.
pub(super) fn scan(
    log: &Log,
    from: u64,
    mut each: impl FnMut(u64, Result<(LogEntry, &[u8]), EntryFault>),
) -> io::Result<Option<u64>> {
    let mut reader = LogReader::ahead(log);
    let (mut at, end) = (log.byte(from), log.size());
    while at < end {
        at = log.past_table(at);
        let Some((place, length)) = reader.group(at)? else {
            let head = reader.get(at, GROUP_HEAD_BYTES)?;
            let is_nothing = head.len() < GROUP_HEAD_BYTES || head.iter().all(|byte| *byte == 0);
            match reader.next_group(at + 1, end)? {
                None if is_nothing => return Ok((at < end).then(|| log.place(at))),
                next => {
                    each(log.place(at), Err(EntryFault::new("where a group begins it was changed")));
                    at = next.unwrap_or(end);
                    continue;
                }
            }
        };
        let after = at.saturating_add(length);
        if after > end || after == end && reader.is_torn(at, after, place)? {
            return Ok(Some(place));
        }
        let shift = at.wrapping_sub(place);
        at += GROUP_HEAD_BYTES as u64;
        while at < after {
            let here = at.wrapping_sub(shift);
            match reader.entry(at, here) {
                Ok((entry, length)) => {
                    each(here, Ok((entry, reader.get(at, length)?)));
                    at += length as u64;
                }
                Err(fault) => {
                    each(here, Err(fault));
                    at = reader.next_entry(at + 1, after, shift)?;
                }
            }
        }
    }
    Ok(None)
}

/// The place of the first group.
pub(super) const FIRST_PLACE: u64 = HEADER;
