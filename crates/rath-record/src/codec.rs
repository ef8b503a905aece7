//! The record as a file: one JSON object per line, each sealed and each with the seal of the line before.
//!
//! `docs/format.md` specifies every byte. This module does no IO; the caller reads and writes the file. [`Encoder`]
//! turns steps into lines, [`Reader`] turns lines back into steps, and [`Verifier`] checks a file of any length in
//! constant memory. None of them stops at damage: it is reported with its location, and everything undamaged is read.

mod damage;
mod encoder;
mod objects;
mod reader;
mod row;
mod scanner;
mod verifier;

pub use damage::{Damage, Ending, Fault, MAX_LISTED_DAMAGE, Report};
pub use encoder::Encoder;
pub use objects::{Object, ObjectContent, ObjectKind, ObjectSink, SkipObjects};
pub use reader::{FileContents, Reader, read};
pub use row::{ROW_START, Signature, WriterInfo};
pub use scanner::AppendPosition;
pub use verifier::Verifier;

/// The newest version of the format. Every version up to it can be read; a file has the lowest that describes it.
pub const FORMAT_VERSION: u64 = 3;
/// The version of files that are written at once.
const VERSION_WITHOUT_MARKS: u64 = 1;
/// The version of files whose rows say that all rows before them are durable.
const VERSION_WITH_MARKS: u64 = 2;
/// The version of files that are written at once, with the versions of files that their steps name.
const VERSION_WITH_FILES: u64 = 3;

/// The length of the longest row, in bytes.
///
/// A payload that does not fit cannot be stored, and a longer line is not a row.
pub const MAX_ROW_BYTES: usize = 1 << 30;

/// The reason why a file cannot be read or written at all.
///
/// Returned by [`read`] and [`Encoder::push_step`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The file was written by a newer program.
    #[error("the file has format version {found}; this program reads versions up to {FORMAT_VERSION}")]
    NewerVersion {
        /// The version of the file.
        found: u64,
    },
    /// The file is not a session file.
    #[error("not a rath session file: no line of it is a row")]
    NotARecord,
    /// A payload is too long.
    #[error("a row of {bytes} bytes is too long, the limit is {MAX_ROW_BYTES}")]
    RowTooLong {
        /// The length that the row would have, in bytes.
        bytes: usize,
    },
}
