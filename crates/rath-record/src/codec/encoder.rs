//! Steps into lines.

use std::collections::HashSet;

use super::row::RowWriter;
use super::{CodecError, ROW_MAX};
use crate::id::Digest;
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

    /// Closes the file and gives what has been encoded since the last time.
    pub fn finish(mut self) -> Vec<u8> {
        self.rows.end(&mut self.out, self.steps);
        self.out
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder::new()
    }
}
