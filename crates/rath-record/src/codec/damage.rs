//! The result of checking a file: its damage, with locations.

use std::collections::BTreeMap;
use std::fmt;

use crate::id::{Digest, ObjectId, SHORT_ID_DIGITS, StepId};

/// The number of damages that a report lists; it counts the rest.
///
/// A file of random bytes must not fill the memory.
pub const MAX_LISTED_DAMAGE: usize = 1_000;

/// The result of checking a file.
///
/// ```
/// use rath_record::codec::{self, Encoder, Fault};
/// # use rath_record::{BranchId, Chunk, Record, Stamp};
///
/// # let mut record = Record::new();
/// # record.push(Chunk::user("Hello"), Stamp::on(BranchId([1; 16])));
/// let file = Encoder::encode_record(&record)?;
/// let changed = String::from_utf8_lossy(&file).replace("Hello", "Hullo");
/// let report = codec::read(changed.as_bytes())?.report;
/// assert_eq!(report.damage[0].fault, Fault::SealMismatch);
/// assert_eq!(report.damage[0].line, 2);
/// # Ok::<(), codec::CodecError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The number of lines.
    pub lines: u64,
    /// The number of lines that are undamaged rows.
    pub rows: u64,
    /// The number of rows that are steps.
    pub steps: u64,
    /// The damage, in file order, up to [`MAX_LISTED_DAMAGE`].
    pub damage: Vec<Damage>,
    /// The number of damages that are not listed.
    pub unlisted: u64,
    /// The number of ids and digests that the file declares as absent: lost before, or forgotten.
    pub gone: u64,
    /// The number of steps with a redacted chunk.
    pub withheld: u64,
    /// True if the file is of a kind that holds all versions of files which its steps name, or says which are missing.
    pub has_files: bool,
    /// The number of rows that hold the version of a file.
    pub files: u64,
    /// The number of rows that hold the version of a directory.
    pub directories: u64,
    /// The number of versions that the file declares as absent: not found when it was written, or forgotten.
    pub gone_objects: u64,
    /// The number of versions that steps name, for a file of a kind that holds none.
    pub absent_objects: u64,
    /// The number of rows that were cut off when a writer died.
    ///
    /// They are no damage: such a row was never acknowledged.
    pub cuts: u64,
    /// The way in which the file ends.
    pub ending: Ending,
    /// The number of chunks that this version cannot read, by kind.
    ///
    /// They are kept, and are no damage.
    pub unread: BTreeMap<String, u64>,
}

impl Report {
    /// Returns whether the file is closed and undamaged.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty() && self.ending == Ending::Closed
    }

    /// Returns the number of damaged places.
    ///
    /// Missing parents and payloads are not counted, since they follow from damage elsewhere, unless there is no other
    /// damage.
    pub fn damaged_places(&self) -> u64 {
        let is_consequence = |damage: &&Damage| {
            matches!(damage.fault, Fault::MissingParent(_) | Fault::MissingPayload(_) | Fault::MissingObject(_))
        };
        let consequences = self.damage.iter().filter(is_consequence).count();
        let all = self.damage.len();
        (if consequences == all { all } else { all - consequences }) as u64 + self.unlisted
    }

    pub(crate) fn add(&mut self, damage: Damage) {
        if self.damage.len() < MAX_LISTED_DAMAGE {
            self.damage.push(damage);
        } else {
            self.unlisted += 1;
        }
    }

    pub(crate) fn add_unread(&mut self, kind: &str) {
        // A kind is a short name; a longer one is cut, so that the report stays small.
        let kind: String = kind.chars().take(64).collect();
        if self.unread.len() < MAX_LISTED_DAMAGE || self.unread.contains_key(&kind) {
            *self.unread.entry(kind).or_default() += 1;
        }
    }
}

/// The way in which a file ends.
///
/// Part of [`Report`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// The file ends with its closing row.
    Closed,
    /// The file ends after another whole row: it was cut off there, or is still being written.
    #[default]
    Open,
    /// The file ends in the middle of a row.
    Cut {
        /// The number of bytes of that row that are present.
        bytes: u64,
    },
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Closed => f.write_str("closed"),
            Ending::Open => f.write_str("ends without its closing row: cut off there, or still being written"),
            Ending::Cut { bytes } => write!(f, "cut off {bytes} bytes into a row; read up to the last whole row"),
        }
    }
}

/// One damage of a file, with its location.
///
/// Part of [`Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The line number, from 1.
    pub line: u64,
    /// The offset of the line in the file, in bytes.
    pub offset: u64,
    /// The number of the row, if it is known.
    pub row: Option<u64>,
    /// The id of the step, if the row is a readable step.
    pub step: Option<StepId>,
    /// The kind of damage.
    pub fault: Fault,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} (from byte {})", self.line, self.offset)?;
        if let Some(row) = self.row {
            write!(f, ", row {row}")?;
        }
        if let Some(step) = self.step {
            write!(f, ", step {step:.SHORT_ID_DIGITS$}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

/// A kind of damage.
///
/// Part of [`Damage`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The line is not a row.
    #[error("not a row")]
    NotARow,
    /// The bytes do not match the seal.
    #[error("the row was changed: its seal does not match its bytes")]
    SealMismatch,
    /// The line break after the row was overwritten.
    #[error("the line break after the row was overwritten")]
    LineBreak,
    /// The header is missing or not at the start.
    #[error("the header is missing")]
    NoHeader,
    /// Rows before this one are missing.
    #[error("{} missing before it", missing_rows(*.first, *.last))]
    Missing {
        /// The number of the first missing row.
        first: u64,
        /// The number of the last missing row.
        last: u64,
    },
    /// The row stands after a later row.
    #[error("the row is out of order: row {after} stands before it")]
    OutOfOrder {
        /// The number of that later row.
        after: u64,
    },
    /// The row appears twice.
    #[error("the row appears twice")]
    Duplicate,
    /// The row names another row as the one before it.
    #[error("the row does not follow the row before it: one of the two was replaced or sealed anew")]
    BrokenChain,
    /// The row stands after the closing row.
    #[error("the row stands after the closing row")]
    AfterEnd,
    /// The id does not match the parents and the chunk.
    #[error("the step's id does not match its parents and its chunk")]
    IdMismatch,
    /// The chunk is not JSON, or has no kind.
    #[error("{0}")]
    Chunk(#[from] crate::chunk::ChunkError),
    /// A parent does not stand before the step.
    #[error("parent {0:.SHORT_ID_DIGITS$} is not in the file before it")]
    MissingParent(StepId),
    /// A payload does not stand before the step.
    #[error("payload {0:.SHORT_ID_DIGITS$} is not in the file before it")]
    MissingPayload(Digest),
    /// The payload does not match its digest.
    #[error("the payload does not match its digest")]
    DigestMismatch,
    /// The version of a file or directory does not match its id, or cannot be read.
    #[error("the version of a file does not match its id")]
    ObjectMismatch,
    /// The version of a file or directory is larger than any that is stored.
    #[error("the version of a file is too large")]
    ObjectTooLarge,
    /// Neither a step nor a directory before it names the version.
    #[error("nothing before it names this version of a file")]
    UnnamedObject,
    /// A version that a step or a directory names is not in the file.
    #[error("version {0:.SHORT_ID_DIGITS$} of a file is not in the file")]
    MissingObject(ObjectId),
    /// The closing row has a wrong number of steps.
    #[error("the closing row counts {counted} steps, the file has {found}")]
    StepCount {
        /// The number in the closing row.
        counted: u64,
        /// The number of steps in the file.
        found: u64,
    },
}

impl Fault {
    /// Returns a name for the kind of damage that does not change between versions.
    pub fn code(&self) -> &'static str {
        match self {
            Fault::NotARow => "not_a_row",
            Fault::SealMismatch => "seal_mismatch",
            Fault::LineBreak => "line_break",
            Fault::NoHeader => "no_header",
            Fault::Missing { .. } => "missing_rows",
            Fault::OutOfOrder { .. } => "out_of_order",
            Fault::Duplicate => "duplicate",
            Fault::BrokenChain => "broken_chain",
            Fault::AfterEnd => "after_end",
            Fault::IdMismatch => "id_mismatch",
            Fault::Chunk(_) => "chunk",
            Fault::MissingParent(_) => "missing_parent",
            Fault::MissingPayload(_) => "missing_payload",
            Fault::DigestMismatch => "digest_mismatch",
            Fault::ObjectMismatch => "object_mismatch",
            Fault::ObjectTooLarge => "object_too_large",
            Fault::UnnamedObject => "unnamed_object",
            Fault::MissingObject(_) => "missing_object",
            Fault::StepCount { .. } => "step_count",
        }
    }
}

fn missing_rows(first: u64, last: u64) -> String {
    if first == last { format!("row {first} is") } else { format!("rows {first} to {last} are") }
}
