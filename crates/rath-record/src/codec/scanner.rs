//! Splitting blocks of bytes into rows, each checked by itself and against the row before.

use std::borrow::Cow;

use super::damage::{Damage, Ending, Fault, MAX_LISTED_DAMAGE, Report};
use super::objects::{Object, ObjectContent, ObjectKind};
use super::row::{self, ParentIds, ROW_START, Row, RowBody, RowContent, Signature, StepRow, WriterInfo};
use super::{CodecError, FORMAT_VERSION, MAX_ROW_BYTES, VERSION_WITH_FILES, VERSION_WITH_MARKS};
use crate::chunk::Chunk;
use crate::id::{BranchId, Digest, Seal, StepId};
use crate::payload::Payload;
use crate::step::Stamp;

/// The number of places inside a damaged line that are tried as the start of a row.
const MAX_RESYNC_ATTEMPTS: usize = 64;

/// Scans a file block by block and emits its undamaged rows.
#[derive(Default)]
pub(crate) struct RowScanner {
    pub(crate) report: Report,
    /// The unfinished last line of the previous block.
    partial: Vec<u8>,
    /// True if that line is too long to be a row, so that its bytes are only counted.
    overlong: bool,
    /// The number that the next row should have; the header is row 0.
    expected: u64,
    last_seal: Option<Seal>,
    /// The number of damaged lines since the last row, and their indices in the report.
    damaged_lines: u64,
    damaged_indices: Vec<usize>,
    /// The length of the last damaged line, in bytes.
    last_damaged_bytes: u64,
    /// True if the file ends without a line break.
    lacks_line_break: bool,
    /// The writer named by the last `open` row.
    writer: Option<WriterInfo>,
    /// The version in the header, if that is undamaged.
    version: Option<u64>,
    newer_version: Option<u64>,
    /// The state before the first fault since the last row that says that all rows before it are durable.
    unfinished: Option<Box<UnfinishedEnd>>,
    has_content: bool,
    /// The first bytes of the file, enough to tell whether it is a session file.
    first_bytes: Vec<u8>,
}

/// The state of a scan before an end that may be unfinished: none of the rows in it need have been acknowledged.
struct UnfinishedEnd {
    line: u64,
    offset: u64,
    report: Report,
    expected: u64,
    last_seal: Option<Seal>,
    writer: Option<WriterInfo>,
}

/// The end of a line.
#[derive(Clone, Copy, PartialEq)]
enum LineEnd {
    LineBreak,
    EndOfFile,
}

/// An undamaged row.
#[allow(clippy::large_enum_variant, reason = "nearly every row is the large one, and none is kept")]
pub(crate) enum IntactRow<'a> {
    Step(IntactStep<'a>),
    Payload(RowLocation, Digest, Payload),
    /// An id or digest that is declared as absent, and the session whose file has it.
    Gone(RowLocation, Digest, Option<BranchId>),
    /// A version of a file. Its content is not checked yet.
    Object(RowLocation, Object),
}

/// An undamaged step: its id matches its parents and its chunk's JSON.
pub(crate) struct IntactStep<'a> {
    pub(crate) location: RowLocation,
    pub(crate) id: StepId,
    pub(crate) parents: ParentIds,
    pub(crate) stamp: Stamp,
    pub(crate) chunk: Chunk,
    pub(crate) json: Cow<'a, str>,
    pub(crate) withheld: Option<Digest>,
    pub(crate) signature: Option<Signature>,
}

/// The place at which a file can be continued.
///
/// ```
/// use rath_record::codec::{self, Encoder};
/// # use rath_record::{BranchId, Chunk, Record, Stamp};
///
/// # let mut record = Record::new();
/// # record.push(Chunk::user("Hello"), Stamp::on(BranchId([1; 16])));
/// let mut file = Encoder::new().finish();
/// let contents = codec::read(&file)?;
/// let position = contents.position.expect("the file has rows");
/// file.truncate(position.length as usize);
/// let mut encoder = Encoder::append_at(position, "me", contents.payloads);
/// encoder.push_step(record.head().expect("a step was pushed"))?;
/// file.extend(encoder.finish());
/// assert_eq!(codec::read(&file)?.record.head(), record.head());
/// # Ok::<(), codec::CodecError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AppendPosition {
    /// The length up to the last whole row, in bytes. What follows was never acknowledged, and the writer cuts it off.
    pub length: u64,
    pub(crate) n: u64,
    pub(crate) seal: Seal,
    /// True if rows can say that all rows before them are durable.
    pub(crate) has_marks: bool,
    /// True if the last row lacks its line break.
    pub(crate) lacks_line_break: bool,
    pub(crate) steps: u64,
    /// The number of times that the file was opened for writing.
    pub(crate) epoch: u64,
}

/// The location of a row: its line, the offset of the line in bytes, and its number.
#[derive(Clone, Copy)]
pub(crate) struct RowLocation {
    pub(crate) line: u64,
    pub(crate) offset: u64,
    pub(crate) n: u64,
}

impl RowLocation {
    pub(crate) fn damage(self, step: Option<StepId>, fault: Fault) -> Damage {
        Damage { line: self.line, offset: self.offset, row: Some(self.n), step, fault }
    }
}

impl RowScanner {
    /// Processes the next bytes of the file.
    pub(crate) fn feed(&mut self, mut block: &[u8], emit: &mut dyn FnMut(&mut Report, IntactRow<'_>)) {
        self.first_bytes.extend(block.iter().take(ROW_START.len() - self.first_bytes.len()));
        self.has_content = self.has_content || block.iter().any(|byte| *byte != 0);
        while let Some(end) = memchr::memchr(b'\n', block) {
            let (line, rest) = (&block[..end], &block[end + 1..]);
            if self.partial.is_empty() && !self.overlong {
                self.scan_line(line, LineEnd::LineBreak, emit);
            } else {
                self.buffer_partial(line);
                let whole = std::mem::take(&mut self.partial);
                self.scan_line(&whole, LineEnd::LineBreak, emit);
            }
            self.report.bytes += 1;
            block = rest;
        }
        self.buffer_partial(block);
    }

    /// Processes the end of the file.
    pub(crate) fn finish(&mut self, emit: &mut dyn FnMut(&mut Report, IntactRow<'_>)) -> Result<(), CodecError> {
        if !self.partial.is_empty() || self.overlong {
            let last_line = std::mem::take(&mut self.partial);
            self.lacks_line_break = true;
            self.scan_line(&last_line, LineEnd::EndOfFile, emit);
        }
        self.number_damaged_lines(None);
        self.cut_unfinished_end();
        match self.newer_version {
            Some(found) => Err(CodecError::NewerVersion { found }),
            // A file system may leave zeros where nothing was written.
            None if self.report.rows == 0 && !self.has_content => {
                let (bytes, lines) = (self.report.bytes, self.report.lines);
                let ending = if bytes == 0 { Ending::Open } else { Ending::Cut { bytes } };
                self.report = Report { bytes, lines, ending, ..Report::default() };
                Ok(())
            }
            None if self.report.rows == 0 && !ROW_START.as_bytes().starts_with(&self.first_bytes) => {
                Err(CodecError::NotARecord)
            }
            None => Ok(()),
        }
    }

    /// Returns the line at which an unfinished end begins, once the whole file was scanned.
    pub(crate) fn cut_line(&self) -> Option<u64> {
        self.unfinished.as_ref().map(|end| end.line)
    }

    /// Goes back to the state before an unfinished end.
    fn cut_unfinished_end(&mut self) {
        let Some(end) = &self.unfinished else { return };
        let (bytes, lines) = (self.report.bytes, self.report.lines);
        let ending = Ending::Cut { bytes: bytes - end.offset };
        self.report = Report { bytes, lines, ending, ..end.report.clone() };
        (self.expected, self.last_seal, self.writer) = (end.expected, end.last_seal, end.writer.clone());
        self.lacks_line_break = false;
    }

    /// Notes a fault in the current line: unless a later row says that all before it was durable, the file ends here.
    fn begin_unfinished_end(&mut self) {
        if self.has_marks() && self.unfinished.is_none() {
            self.unfinished = Some(Box::new(UnfinishedEnd {
                line: self.report.lines,
                offset: self.report.bytes,
                report: self.report.clone(),
                expected: self.expected,
                last_seal: self.last_seal,
                writer: self.writer.clone(),
            }));
        }
    }

    /// Returns true if rows say that all rows before them are durable.
    fn has_marks(&self) -> bool {
        self.version == Some(VERSION_WITH_MARKS)
    }

    /// Returns the location at which the file can be continued; `None` if it has no row.
    pub(crate) fn position(&self) -> Option<AppendPosition> {
        let (seal, n) = (self.last_seal?, self.expected.checked_sub(1)?);
        let cut = match self.report.ending {
            Ending::Cut { bytes } => bytes,
            Ending::Open | Ending::Closed => 0,
        };
        Some(AppendPosition {
            length: self.report.bytes - cut,
            n,
            seal,
            has_marks: self.has_marks(),
            lacks_line_break: self.lacks_line_break && cut == 0,
            steps: self.report.steps,
            epoch: self.writer.as_ref().map_or(0, |it| it.epoch),
        })
    }

    /// The writer named by the last `open` row.
    pub(crate) fn writer(&self) -> Option<&WriterInfo> {
        self.writer.as_ref()
    }

    fn buffer_partial(&mut self, bytes: &[u8]) {
        if self.overlong || self.partial.len() + bytes.len() >= MAX_ROW_BYTES {
            self.report.bytes += (self.partial.len() + bytes.len()) as u64;
            self.partial.clear();
            self.overlong = true;
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }

    fn scan_line(&mut self, line: &[u8], end: LineEnd, emit: &mut dyn FnMut(&mut Report, IntactRow<'_>)) {
        if self.newer_version.is_some() {
            return;
        }
        self.report.lines += 1;
        if std::mem::take(&mut self.overlong) || line.len() >= MAX_ROW_BYTES {
            self.begin_unfinished_end();
            self.add_damaged_line(line.len() as u64, Fault::NotARow);
        } else {
            match row::parse(line) {
                Ok(row) => self.add_row(row, 0, emit),
                Err(fault) => {
                    self.begin_unfinished_end();
                    self.salvage(line, fault, end, emit);
                }
            }
        }
        self.report.bytes += line.len() as u64;
    }

    /// Looks for whole rows in a damaged line: if a line break was overwritten, the rows on both sides of it are
    /// intact.
    fn salvage(&mut self, line: &[u8], fault: Fault, end: LineEnd, emit: &mut dyn FnMut(&mut Report, IntactRow<'_>)) {
        let starts = memchr::memmem::find_iter(line, ROW_START).filter(|start| *start > 0).take(MAX_RESYNC_ATTEMPTS);
        let starts: Vec<usize> = starts.collect();
        let mut before = starts.iter().copied().chain([line.len()]).filter_map(|end| end.checked_sub(1));
        let front = before.find_map(|end| Some((end, row::parse(&line[..end]).ok()?)));
        let back = starts.iter().find_map(|start| Some((*start, row::parse(&line[*start..]).ok()?)));
        // Bytes that are left over at the end of the file belong to a row that was cut off.
        let left_over = line.len() - front.as_ref().map_or(0, |(end, _)| end + 1);
        // After the closing row a writer may have begun to continue the file.
        let may_reopen = end == LineEnd::EndOfFile && line.iter().zip(ROW_START.as_bytes()).all(|(a, b)| a == b);
        if self.report.ending == Ending::Closed && !may_reopen && front.is_none() && back.is_none() {
            self.add_damaged_line(line.len() as u64, Fault::AfterEnd);
        } else if end == LineEnd::EndOfFile && back.is_none() && left_over > 0 {
            self.report.ending = Ending::Cut { bytes: left_over as u64 };
        } else if front.is_none() {
            self.add_damaged_line(line.len() as u64, fault);
        }
        if let Some((_, row)) = front {
            let n = row.n();
            self.add_row(row, 0, emit);
            self.report.add(self.damage_here(Some(n), Fault::LineBreak));
        }
        if let Some((start, row)) = back {
            self.add_row(row, start as u64, emit);
        }
    }

    fn damage_here(&self, row: Option<u64>, fault: Fault) -> Damage {
        Damage { line: self.report.lines, offset: self.report.bytes, row, step: None, fault }
    }

    fn add_damaged_line(&mut self, bytes: u64, fault: Fault) {
        self.last_damaged_bytes = bytes;
        if self.report.damage.len() < MAX_LISTED_DAMAGE {
            self.damaged_indices.push(self.report.damage.len());
        }
        self.damaged_lines += 1;
        self.report.add(self.damage_here(None, fault));
    }

    /// Assigns row numbers to the damaged lines since the last row.
    ///
    /// `next` is the number of the row after them; `None` at the end of the file.
    fn number_damaged_lines(&mut self, next: Option<u64>) {
        let lost = match next {
            Some(next) => next.saturating_sub(self.expected),
            None if self.report.ending == Ending::Closed => 0,
            None => self.damaged_lines,
        };
        if lost > 0 {
            for (nth, index) in self.damaged_indices.iter().enumerate() {
                if let Some(damage) = self.report.damage.get_mut(*index) {
                    // A line that was broken in two is one row.
                    damage.row = Some(self.expected + (nth as u64).min(lost - 1));
                }
            }
        }
        self.damaged_indices.clear();
    }

    fn add_row(&mut self, row: Row<'_>, start: u64, emit: &mut dyn FnMut(&mut Report, IntactRow<'_>)) {
        let n = row.n();
        let (prev, after_sync, content) = match row.body {
            RowBody::Header { version } if version > FORMAT_VERSION && self.report.rows == 0 => {
                self.newer_version = Some(version);
                return;
            }
            RowBody::Header { version } => {
                self.version.get_or_insert(version);
                self.report.has_files |= version == VERSION_WITH_FILES;
                (None, false, None)
            }
            RowBody::Chained { prev, after_sync, content, .. } => (Some(prev), after_sync, Some(content)),
        };
        // All that stands before such a row was durable. If it cannot be read now, that is damage.
        let is_mark = n >= self.expected && (after_sync || matches!(content, Some(RowContent::End { .. })));
        if is_mark {
            self.unfinished = None;
        }
        let location = RowLocation { line: self.report.lines, offset: self.report.bytes + start, n };
        let step = match &content {
            Some(RowContent::Step(step)) => Some(step.id),
            _ => None,
        };
        if let Some(RowContent::Open { cut, .. }) = &content {
            self.reopen(*cut);
        }
        if n >= self.expected {
            self.number_damaged_lines(Some(n));
        }
        if n < self.expected && self.last_seal == Some(row.seal) {
            self.begin_unfinished_end();
            return self.report.add(location.damage(step, Fault::Duplicate));
        }
        if let Some(fault) = self.position_fault(n, prev) {
            if !is_mark {
                self.begin_unfinished_end();
            }
            self.report.add(location.damage(step, fault));
        }
        self.report.rows += 1;
        if n >= self.expected {
            self.expected = n + 1;
            self.last_seal = Some(row.seal);
            self.damaged_lines = 0;
        }
        match content {
            None => {}
            Some(RowContent::Step(row)) => self.add_step(row, location, emit),
            Some(RowContent::Payload(digest, text)) => match text.decode() {
                Some(payload) if Digest::compute(payload.bytes()) == digest => {
                    emit(&mut self.report, IntactRow::Payload(location, digest, payload));
                }
                _ => self.report.add(location.damage(None, Fault::DigestMismatch)),
            },
            Some(RowContent::Gone(name, elsewhere)) => {
                self.report.gone += u64::from(elsewhere.is_none());
                emit(&mut self.report, IntactRow::Gone(location, name, elsewhere));
            }
            Some(RowContent::Object(object)) => {
                match object.content {
                    ObjectContent::Here { kind: ObjectKind::Blob, .. } => self.report.files += 1,
                    ObjectContent::Here { kind: ObjectKind::Tree, .. } => self.report.directories += 1,
                    ObjectContent::Missing | ObjectContent::Forgotten { .. } => self.report.gone_objects += 1,
                }
                emit(&mut self.report, IntactRow::Object(location, object));
            }
            Some(RowContent::Open { writer, .. }) => self.writer = Some(writer),
            Some(RowContent::End { steps }) => {
                // Lost steps have been reported as missing rows already.
                if steps != self.report.steps && self.report.damage.is_empty() {
                    self.report
                        .add(location.damage(None, Fault::StepCount { counted: steps, found: self.report.steps }));
                }
                self.report.ending = Ending::Closed;
            }
        }
    }

    /// Handles a writer that continues the file: it is open again, and a row that was cut off before is no damage.
    fn reopen(&mut self, cut: u64) {
        self.report.ending = Ending::Open;
        if cut > 0 && self.damaged_lines > 0 && self.last_damaged_bytes == cut {
            self.report.cuts += 1;
            self.damaged_lines -= 1;
            if let Some(index) = self.damaged_indices.pop() {
                self.report.damage.remove(index);
            }
        }
    }

    /// Returns what is wrong with the position of an intact row, given the rows before it.
    fn position_fault(&self, n: u64, prev: Option<Seal>) -> Option<Fault> {
        if self.report.ending == Ending::Closed {
            return Some(Fault::AfterEnd);
        }
        if n < self.expected {
            return Some(Fault::OutOfOrder { after: self.expected - 1 });
        }
        let lost = n - self.expected;
        if lost > self.damaged_lines {
            let first = self.expected + self.damaged_lines;
            return Some(if n == 1 && first == 0 { Fault::NoHeader } else { Fault::Missing { first, last: n - 1 } });
        }
        (lost == 0 && self.last_seal != prev).then_some(Fault::BrokenChain)
    }

    fn add_step(&mut self, row: StepRow<'_>, location: RowLocation, emit: &mut dyn FnMut(&mut Report, IntactRow<'_>)) {
        let StepRow { id, parents, stamp, withheld, signature, chunk: json } = row;
        let digest = withheld.unwrap_or_else(|| Digest::compute(json.as_bytes()));
        if StepId::compute(parents.as_slice(), digest) != id {
            self.report.add(location.damage(Some(id), Fault::IdMismatch));
            return;
        }
        let chunk = match Chunk::decode(json) {
            Ok(chunk) => chunk,
            Err(error) => return self.report.add(location.damage(Some(id), error.into())),
        };
        if let Chunk::Other(other) = &chunk {
            self.report.add_unread(other.kind());
        }
        self.report.steps += 1;
        self.report.withheld += u64::from(withheld.is_some());
        let json = Cow::Borrowed(json);
        let step = IntactStep { location, id, parents, stamp, chunk, json, withheld, signature };
        emit(&mut self.report, IntactRow::Step(step));
    }
}
