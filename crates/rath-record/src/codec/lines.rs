//! Blocks of bytes into rows, each checked by itself and against the one before.

use std::borrow::Cow;

use super::damage::{Damage, Ending, Fault, LISTED_MAX, Report};
use super::row::{self, Body, Holds, ParentIds, Row, SEAL_OPEN, StepRow, Writer};
use super::{CodecError, ROW_MAX, VERSION};
use crate::chunk::Chunk;
use crate::id::{BranchId, Digest, Seal, StepId};
use crate::payload::Payload;
use crate::step::Stamp;

/// How many places inside a broken line are tried as the beginning of a row.
const RESYNC_MAX: usize = 64;

/// Takes in a file block by block and hands out its undamaged rows.
#[derive(Default)]
pub(crate) struct Lines {
    pub(crate) report: Report,
    /// The line that the last block left unfinished.
    partial: Vec<u8>,
    /// Whether that line is too long to be one, so that its bytes are only counted.
    overlong: bool,
    /// The number that the next row should have; the header is row 0.
    expected: u64,
    last: Option<Seal>,
    /// How many broken lines there were since the last row, and where the report lists them.
    broken: u64,
    listed: Vec<usize>,
    /// How long the last broken line is.
    broken_bytes: u64,
    /// Whether the file ends without a line break.
    unbroken: bool,
    /// Who wrote last.
    writer: Option<Writer>,
    newer: Option<u64>,
    /// The first bytes of the file, as many as tell whether it is one of ours.
    beginning: Vec<u8>,
}

/// What ends a line.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    InLineBreak,
    AtEndOfFile,
}

/// An undamaged row.
#[allow(clippy::large_enum_variant, reason = "nearly every row is the large one, and none is kept")]
pub(crate) enum Found<'a> {
    Step(FoundStep<'a>),
    Payload(Place, Digest, Payload),
    /// A name that is known not to be here, and the session in whose file it is.
    Gone(Place, Digest, Option<BranchId>),
}

/// An undamaged step: its id follows from its parents and its chunk's JSON.
pub(crate) struct FoundStep<'a> {
    pub(crate) place: Place,
    pub(crate) id: StepId,
    pub(crate) parents: ParentIds,
    pub(crate) stamp: Stamp,
    pub(crate) chunk: Chunk,
    pub(crate) json: Cow<'a, str>,
    pub(crate) withheld: Option<Digest>,
}

/// Where somebody who writes on would begin.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    pub(crate) n: u64,
    pub(crate) seal: Seal,
    /// How many bytes of a row that was cut stand at the end.
    pub(crate) cut: u64,
    /// Whether the last row lacks its line break.
    pub(crate) unbroken: bool,
    pub(crate) steps: u64,
    /// How often somebody began to write.
    pub(crate) epoch: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) line: u64,
    pub(crate) offset: u64,
    pub(crate) n: u64,
}

impl Place {
    pub(crate) fn damage(self, step: Option<StepId>, fault: Fault) -> Damage {
        Damage { line: self.line, offset: self.offset, row: Some(self.n), step, fault }
    }
}

impl Lines {
    /// Takes in the next bytes of the file.
    pub(crate) fn feed(&mut self, mut block: &[u8], found: &mut dyn FnMut(&mut Report, Found<'_>)) {
        self.beginning.extend(block.iter().take(SEAL_OPEN.len() - self.beginning.len()));
        while let Some(end) = memchr::memchr(b'\n', block) {
            let (line, rest) = (&block[..end], &block[end + 1..]);
            if self.partial.is_empty() && !self.overlong {
                self.line(line, Ends::InLineBreak, found);
            } else {
                self.keep(line);
                let whole = std::mem::take(&mut self.partial);
                self.line(&whole, Ends::InLineBreak, found);
            }
            self.report.bytes += 1;
            block = rest;
        }
        self.keep(block);
    }

    /// Takes in the end of the file.
    pub(crate) fn finish(&mut self, found: &mut dyn FnMut(&mut Report, Found<'_>)) -> Result<(), CodecError> {
        if !self.partial.is_empty() || self.overlong {
            let rest = std::mem::take(&mut self.partial);
            self.unbroken = true;
            self.line(&rest, Ends::AtEndOfFile, found);
        }
        self.name_broken(None);
        match self.newer {
            Some(found) => Err(CodecError::NewerVersion { found }),
            None if self.report.rows == 0 && !SEAL_OPEN.as_bytes().starts_with(&self.beginning) => {
                Err(CodecError::NotARecord)
            }
            None => Ok(()),
        }
    }

    /// Where somebody who writes on would begin.
    pub(crate) fn position(&self) -> Option<Position> {
        let (seal, n) = (self.last?, self.expected.checked_sub(1)?);
        let cut = match self.report.ending {
            Ending::Cut { bytes } => bytes,
            Ending::Open | Ending::Closed => 0,
        };
        let unbroken = self.unbroken;
        Some(Position {
            n,
            seal,
            cut,
            unbroken,
            steps: self.report.steps,
            epoch: self.writer.as_ref().map_or(0, |it| it.epoch),
        })
    }

    /// Who wrote last.
    pub(crate) fn writer(&self) -> Option<&Writer> {
        self.writer.as_ref()
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.overlong || self.partial.len() + bytes.len() >= ROW_MAX {
            self.report.bytes += (self.partial.len() + bytes.len()) as u64;
            self.partial.clear();
            self.overlong = true;
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }

    fn line(&mut self, line: &[u8], ends: Ends, found: &mut dyn FnMut(&mut Report, Found<'_>)) {
        if self.newer.is_some() {
            return;
        }
        self.report.lines += 1;
        if std::mem::take(&mut self.overlong) || line.len() >= ROW_MAX {
            self.broken_line(line.len() as u64, Fault::NotARow);
        } else {
            match row::parse(line) {
                Ok(row) => self.row(row, 0, found),
                Err(fault) => self.salvage(line, fault, ends, found),
            }
        }
        self.report.bytes += line.len() as u64;
    }

    /// Looks for whole rows in a broken line: where a line break was destroyed, the rows on both its sides are good.
    fn salvage(&mut self, line: &[u8], fault: Fault, ends: Ends, found: &mut dyn FnMut(&mut Report, Found<'_>)) {
        let starts = memchr::memmem::find_iter(line, SEAL_OPEN).filter(|start| *start > 0).take(RESYNC_MAX);
        let starts: Vec<usize> = starts.collect();
        let mut before = starts.iter().copied().chain([line.len()]).filter_map(|end| end.checked_sub(1));
        let front = before.find_map(|end| Some((end, row::parse(&line[..end]).ok()?)));
        let back = starts.iter().find_map(|start| Some((*start, row::parse(&line[*start..]).ok()?)));
        // What the rows found leave over at the end of a file is a row that was cut.
        let over = line.len() - front.as_ref().map_or(0, |(end, _)| end + 1);
        // After the end somebody may have begun to write again.
        let begun = ends == Ends::AtEndOfFile && line.iter().zip(SEAL_OPEN.as_bytes()).all(|(a, b)| a == b);
        if self.report.ending == Ending::Closed && !begun && front.is_none() && back.is_none() {
            self.broken_line(line.len() as u64, Fault::AfterEnd);
        } else if ends == Ends::AtEndOfFile && back.is_none() && over > 0 {
            self.report.ending = Ending::Cut { bytes: over as u64 };
        } else if front.is_none() {
            self.broken_line(line.len() as u64, fault);
        }
        if let Some((_, row)) = front {
            let n = row.n();
            self.row(row, 0, found);
            self.report.add(self.here(Some(n), Fault::LineBreak));
        }
        if let Some((start, row)) = back {
            self.row(row, start as u64, found);
        }
    }

    fn here(&self, row: Option<u64>, fault: Fault) -> Damage {
        Damage { line: self.report.lines, offset: self.report.bytes, row, step: None, fault }
    }

    fn broken_line(&mut self, bytes: u64, fault: Fault) {
        self.broken_bytes = bytes;
        if self.report.damage.len() < LISTED_MAX {
            self.listed.push(self.report.damage.len());
        }
        self.broken += 1;
        self.report.add(self.here(None, fault));
    }

    /// Gives the broken lines since the last row the numbers of the rows they were.
    ///
    /// `next` is the number of the row that comes after them; none at the end of the file.
    fn name_broken(&mut self, next: Option<u64>) {
        let lost = match next {
            Some(next) => next.saturating_sub(self.expected),
            None if self.report.ending == Ending::Closed => 0,
            None => self.broken,
        };
        if lost > 0 {
            for (nth, listed) in self.listed.iter().enumerate() {
                if let Some(damage) = self.report.damage.get_mut(*listed) {
                    // A line broken in two is one row.
                    damage.row = Some(self.expected + (nth as u64).min(lost - 1));
                }
            }
        }
        self.listed.clear();
    }

    fn row(&mut self, row: Row<'_>, start: u64, found: &mut dyn FnMut(&mut Report, Found<'_>)) {
        let n = row.n();
        let (prev, holds) = match row.body {
            Body::Header { version } if version > VERSION && self.report.rows == 0 => {
                self.newer = Some(version);
                return;
            }
            Body::Header { .. } => (None, None),
            Body::Link { prev, holds, .. } => (Some(prev), Some(holds)),
        };
        let place = Place { line: self.report.lines, offset: self.report.bytes + start, n };
        let step = match &holds {
            Some(Holds::Step(step)) => Some(step.id),
            _ => None,
        };
        if let Some(Holds::Open { cut, .. }) = &holds {
            self.reopened(*cut);
        }
        if n >= self.expected {
            self.name_broken(Some(n));
        }
        if n < self.expected && self.last == Some(row.seal) {
            return self.report.add(place.damage(step, Fault::Twice));
        }
        self.report.rows += 1;
        if let Some(fault) = self.misplaced(n, prev) {
            self.report.add(place.damage(step, fault));
        }
        if n >= self.expected {
            self.expected = n + 1;
            self.last = Some(row.seal);
            self.broken = 0;
        }
        match holds {
            None => {}
            Some(Holds::Step(row)) => self.step(row, place, found),
            Some(Holds::Payload(digest, text)) => match text.decode() {
                Some(payload) if Digest::of(payload.bytes()) == digest => {
                    found(&mut self.report, Found::Payload(place, digest, payload));
                }
                _ => self.report.add(place.damage(None, Fault::Payload)),
            },
            Some(Holds::Gone(name, elsewhere)) => {
                self.report.gone += u64::from(elsewhere.is_none());
                found(&mut self.report, Found::Gone(place, name, elsewhere));
            }
            Some(Holds::Open { writer, .. }) => self.writer = Some(writer),
            Some(Holds::End { steps }) => {
                // Lost steps have been reported where they are missing.
                if steps != self.report.steps && self.report.damage.is_empty() {
                    self.report.add(place.damage(None, Fault::Count { counted: steps, found: self.report.steps }));
                }
                self.report.ending = Ending::Closed;
            }
        }
    }

    /// Somebody goes on writing: the file is open again, and a row that was cut before is no damage.
    fn reopened(&mut self, cut: u64) {
        self.report.ending = Ending::Open;
        if cut > 0 && self.broken > 0 && self.broken_bytes == cut {
            self.report.cuts += 1;
            self.broken -= 1;
            if let Some(listed) = self.listed.pop() {
                self.report.damage.remove(listed);
            }
        }
    }

    /// What is wrong with a good row where it stands, after all the rows before it.
    fn misplaced(&self, n: u64, prev: Option<Seal>) -> Option<Fault> {
        if self.report.ending == Ending::Closed {
            return Some(Fault::AfterEnd);
        }
        if n < self.expected {
            return Some(Fault::OutOfOrder { after: self.expected - 1 });
        }
        let lost = n - self.expected;
        if lost > self.broken {
            let first = self.expected + self.broken;
            return Some(if n == 1 && first == 0 { Fault::NoHeader } else { Fault::Missing { first, last: n - 1 } });
        }
        (lost == 0 && self.last != prev).then_some(Fault::Chain)
    }

    fn step(&mut self, row: StepRow<'_>, place: Place, found: &mut dyn FnMut(&mut Report, Found<'_>)) {
        let StepRow { id, parents, stamp, withheld, chunk: json } = row;
        let digest = withheld.unwrap_or_else(|| Digest::of(json.as_bytes()));
        if StepId::of(parents.as_slice(), digest) != id {
            self.report.add(place.damage(Some(id), Fault::Id));
            return;
        }
        let chunk = match Chunk::decode(json) {
            Ok(chunk) => chunk,
            Err(error) => return self.report.add(place.damage(Some(id), error.into())),
        };
        if let Chunk::Other(other) = &chunk {
            self.report.unread(other.kind());
        }
        self.report.steps += 1;
        self.report.withheld += u64::from(withheld.is_some());
        let json = Cow::Borrowed(json);
        found(&mut self.report, Found::Step(FoundStep { place, id, parents, stamp, chunk, json, withheld }));
    }
}
