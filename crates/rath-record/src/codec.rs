//! The record as a file: one JSON object a line, each sealed, each naming the one before.
//!
//! `docs/format.md` specifies every byte. Here is only what the bytes mean; whoever calls does the reading and
//! writing: [`Encoder`] turns steps into lines, [`Reader`] turns lines back into steps, and [`Verifier`] checks a file
//! of any length in memory that does not grow with it. None of them stops at damage: it is reported, with its place,
//! and everything undamaged is read.

mod damage;
mod encoder;
mod lines;
mod reader;
mod row;
mod verifier;

pub use damage::{Damage, Ending, Fault, LISTED_MAX, Report};
pub use encoder::Encoder;
pub use lines::Position;
pub use reader::{Opened, Reader, read};
pub use row::Writer;
pub use verifier::Verifier;

/// The version of the format that is written. Every version up to it is read.
pub const VERSION: u64 = 1;

/// The longest row, in bytes. A payload that does not fit cannot be stored; a line that is longer is not a row.
pub const ROW_MAX: usize = 1 << 30;

/// Why a file cannot be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// It was written by a newer program.
    #[error("the file has format version {found}; this program reads versions up to {VERSION}")]
    NewerVersion {
        /// Its version.
        found: u64,
    },
    /// It is something else.
    #[error("not a rath session file: no line of it is a row")]
    NotARecord,
    /// A payload is too long.
    #[error("a row of {bytes} bytes is too long; the most is {ROW_MAX}")]
    RowTooLong {
        /// How long it would be.
        bytes: usize,
    },
}
