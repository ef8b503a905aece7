//! Encoding steps as the lines of a file.

use std::collections::HashSet;

use super::objects::Object;
use super::row::{MAX_NUMBER, RowWriter, Signature, WriterInfo};
use super::scanner::AppendPosition;
use super::{CodecError, MAX_ROW_BYTES, VERSION_WITH_FILES, VERSION_WITH_MARKS, VERSION_WITHOUT_MARKS};
use crate::id::{BranchId, Digest};
use crate::record::Record;
use crate::step::Step;

/// Encodes steps as the lines of a file.
///
/// The lines are buffered; [`Encoder::take_bytes`] returns what is to be written next.
///
/// ```
/// use rath_record::codec::{self, Encoder};
/// # use rath_record::{BranchId, Chunk, Record, Stamp};
///
/// # let mut record = Record::new();
/// # record.push(Chunk::user("Hello"), Stamp::on(BranchId([1; 16])));
/// let mut encoder = Encoder::new();
/// for step in record.steps() {
///     encoder.push_step(step)?;
/// }
/// let file = encoder.finish();
/// assert_eq!(codec::read(&file)?.record.head(), record.head());
/// # Ok::<(), codec::CodecError>(())
/// ```
pub struct Encoder {
    out: Vec<u8>,
    rows: RowWriter,
    steps: u64,
    payloads: HashSet<Digest>,
    /// True if rows say that all rows before them are durable.
    has_marks: bool,
}

impl Encoder {
    /// Starts a file that is written at once.
    pub fn new() -> Self {
        Encoder::with_version(VERSION_WITHOUT_MARKS)
    }

    /// Starts a file that is written bit by bit, and of which a power cut may leave an unfinished end.
    ///
    /// The caller takes the header, makes it durable and calls [`Encoder::mark_synced`] before it adds a row.
    pub fn for_appending() -> Self {
        Encoder::with_version(VERSION_WITH_MARKS)
    }

    /// Starts a file that is written at once, and holds the versions of files that its steps name: after all steps, each after the
    /// directory that names it.
    pub fn with_files() -> Self {
        Encoder::with_version(VERSION_WITH_FILES)
    }

    fn with_version(version: u64) -> Self {
        let mut out = Vec::new();
        let rows = RowWriter::start(&mut out, version);
        let has_marks = version == VERSION_WITH_MARKS;
        Encoder { out, rows, steps: 0, payloads: HashSet::new(), has_marks }
    }

    /// Continues a file, beginning with a row that names the writer.
    ///
    /// The file is first cut to [`AppendPosition::length`] and synced; the bytes belong after that. `payloads` are those that the
    /// file has already.
    pub fn append_at(
        position: AppendPosition,
        writer: impl Into<String>,
        payloads: impl IntoIterator<Item = Digest>,
    ) -> Self {
        let mut out = Vec::new();
        if position.lacks_line_break {
            out.push(b'\n');
        }
        let mut rows = RowWriter::after(position.n, position.seal);
        if position.has_marks {
            rows.mark_synced();
        }
        let epoch = (position.epoch + 1).min(MAX_NUMBER);
        rows.open(&mut out, &WriterInfo { epoch, by: writer.into() });
        let payloads = payloads.into_iter().collect();
        Encoder { out, rows, steps: position.steps, payloads, has_marks: position.has_marks }
    }

    /// Notes that all bytes are durable, and that no row was added since they were taken. The next row says so: if a row before
    /// it cannot be read, that is damage, and not the unfinished end that a power cut leaves.
    pub fn mark_synced(&mut self) {
        if self.has_marks {
            self.rows.mark_synced();
        }
    }

    /// Adds a row that names the writer of a new file.
    pub fn with_writer(mut self, writer: impl Into<String>) -> Self {
        self.rows.open(&mut self.out, &WriterInfo { epoch: 1, by: writer.into() });
        self
    }

    /// Adds a row that declares a step or a payload as absent from this file.
    ///
    /// `elsewhere` is the session whose file has it, if any.
    pub fn push_gone(&mut self, name: Digest, elsewhere: Option<BranchId>) {
        self.rows.gone(&mut self.out, name.0, elsewhere);
    }

    /// Encodes all of `record` as one closed file.
    pub fn encode_record(record: &Record) -> Result<Vec<u8>, CodecError> {
        let mut encoder = Encoder::new();
        for step in record.all_steps() {
            encoder.push_step(step)?;
        }
        Ok(encoder.finish())
    }

    /// Adds a step and, before it, every payload of it that the file does not have yet.
    ///
    /// The caller must add parents before their children.
    pub fn push_step(&mut self, step: &Step) -> Result<(), CodecError> {
        self.push_signed_step(step, None)
    }

    /// Adds a step as [`Encoder::push_step`] does, with a signature under it.
    ///
    /// ```
    /// use rath_record::codec::{self, Encoder, Signature};
    /// # use rath_record::{BranchId, Chunk, Record, Stamp};
    ///
    /// # let (mut record, branch) = (Record::new(), BranchId([1; 16]));
    /// # record.push(Chunk::user("Hello"), Stamp::on(branch));
    /// let head = record.head().expect("a step was pushed");
    /// let mut encoder = Encoder::new();
    /// encoder.push_signed_step(head, Some(Signature([7; 15])))?;
    /// let contents = codec::read(&encoder.finish())?;
    /// assert_eq!(contents.signatures[&(branch, head.id())], Signature([7; 15]));
    /// # Ok::<(), codec::CodecError>(())
    /// ```
    pub fn push_signed_step(&mut self, step: &Step, signature: Option<Signature>) -> Result<(), CodecError> {
        for (digest, payload) in step.chunk().payloads() {
            if !self.payloads.contains(&digest) {
                self.push_row(|rows, out| rows.payload(out, digest, &payload))?;
                self.payloads.insert(digest);
            }
        }
        self.push_row(|rows, out| rows.step(out, step, signature))?;
        self.steps += 1;
        Ok(())
    }

    /// Adds a version of a file or of a directory to a file that was started with [`Encoder::with_files`].
    pub fn push_object(&mut self, object: &Object) -> Result<(), CodecError> {
        self.push_row(|rows, out| rows.object(out, object))
    }

    fn push_row(&mut self, write: impl FnOnce(&mut RowWriter, &mut Vec<u8>)) -> Result<(), CodecError> {
        let start = self.out.len();
        let mut rows = self.rows;
        write(&mut rows, &mut self.out);
        let bytes = self.out.len() - start;
        if bytes > MAX_ROW_BYTES {
            // Removes the row, so that the rows before and after it stay valid.
            self.out.truncate(start);
            return Err(CodecError::RowTooLong { bytes });
        }
        self.rows = rows;
        Ok(())
    }

    /// The number of buffered bytes.
    pub fn buffered_bytes(&self) -> usize {
        self.out.len()
    }

    /// Takes the bytes that were encoded since the last call.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Adds the closing row. The file can still be continued later.
    pub fn close(&mut self) {
        self.rows.end(&mut self.out, self.steps);
    }

    /// Closes the file and returns the bytes that were encoded since the last call of [`Encoder::take_bytes`].
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
