//! Steps into lines.

use std::collections::HashSet;

use super::lines::Position;
use super::row::{RowWriter, Writer};
use super::{CodecError, ROW_MAX};
use crate::id::{BranchId, Digest};
use crate::record::Record;
use crate::step::Step;

/// Turns steps into the lines of a file.
///
/// Whoever holds it writes out what [`Encoder::take`] gives, as often as it likes.
pub struct Encoder {
    out: Vec<u8>,
    rows: RowWriter,
    steps: u64,
    payloads: HashSet<Digest>,
}

impl Encoder {
    /// Starts a file.
    pub fn new() -> Self {
        let mut out = Vec::new();
        let rows = RowWriter::start(&mut out);
        Encoder { out, rows, steps: 0, payloads: HashSet::new() }
    }

    /// Goes on with a file, and says first who does.
    ///
    /// What is taken next belongs after the last byte of the file, whatever that is.
    pub fn go_on(from: Position, by: impl Into<String>, payloads: impl IntoIterator<Item = Digest>) -> Self {
        let mut out = Vec::new();
        // What was cut gets a line of its own; after a whole row that lacks its line break it is the line break.
        if from.cut > 0 || from.unbroken {
            out.push(b'\n');
        }
        let mut rows = RowWriter::after(from.n, from.seal);
        rows.open(&mut out, from.cut, &Writer { epoch: from.epoch + 1, by: by.into() });
        Encoder { out, rows, steps: from.steps, payloads: payloads.into_iter().collect() }
    }

    /// Says of a file that was just begun who writes it.
    pub fn opened_by(mut self, by: impl Into<String>) -> Self {
        self.rows.open(&mut self.out, 0, &Writer { epoch: 1, by: by.into() });
        self
    }

    /// Says that a step or a payload is not in this file, and in the file of which session it is, if in any.
    pub fn gone(&mut self, name: Digest, elsewhere: Option<BranchId>) {
        self.rows.gone(&mut self.out, name.0, elsewhere);
    }

    /// Encodes all of `record` as one closed file.
    pub fn record(record: &Record) -> Result<Vec<u8>, CodecError> {
        let mut encoder = Encoder::new();
        for step in record.lineage_order() {
            encoder.step(step)?;
        }
        Ok(encoder.finish())
    }

    /// Appends a step and, before it, every payload of it that the file has not got yet.
    ///
    /// Parents come before their children: that is the caller's to keep.
    pub fn step(&mut self, step: &Step) -> Result<(), CodecError> {
        for (digest, payload) in step.chunk().payloads() {
            if !self.payloads.contains(&digest) {
                self.row(|rows, out| rows.payload(out, digest, &payload))?;
                self.payloads.insert(digest);
            }
        }
        self.row(|rows, out| rows.step(out, step))?;
        self.steps += 1;
        Ok(())
    }

    fn row(&mut self, write: impl FnOnce(&mut RowWriter, &mut Vec<u8>)) -> Result<(), CodecError> {
        let start = self.out.len();
        let mut rows = self.rows;
        write(&mut rows, &mut self.out);
        let bytes = self.out.len() - start;
        if bytes > ROW_MAX {
            // As if it had not been tried: what is encoded so far stays good, and so does what comes.
            self.out.truncate(start);
            return Err(CodecError::RowTooLong { bytes });
        }
        self.rows = rows;
        Ok(())
    }

    /// How many bytes wait to be taken.
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    /// What has been encoded since the last time.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Says that whoever writes has written all there is. Somebody may go on later.
    pub fn close(&mut self) {
        self.rows.end(&mut self.out, self.steps);
    }

    /// Closes the file and gives what has been encoded since the last time.
    pub fn finish(mut self) -> Vec<u8> {
        self.close();
        self.out
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder::new()
    }
}
