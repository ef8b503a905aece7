//! What a check of a file found.

use std::collections::BTreeMap;
use std::fmt;

use crate::id::{Digest, SHORT, StepId};

/// How many damages a report lists; it counts the rest. A file of nonsense must not fill the memory.
pub const LISTED_MAX: usize = 1_000;

/// What a check of a file found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many bytes it has.
    pub bytes: u64,
    /// How many lines it has.
    pub lines: u64,
    /// How many of its lines are undamaged rows.
    pub rows: u64,
    /// How many of those are steps.
    pub steps: u64,
    /// What is wrong with it, in file order, the first [`LISTED_MAX`].
    pub damage: Vec<Damage>,
    /// How much damage is not listed.
    pub unlisted: u64,
    /// How many names are known not to be in it: lost before, or forgotten.
    pub gone: u64,
    /// How many steps are there in part only, because the rest was to be forgotten.
    pub withheld: u64,
    /// How many rows were cut when a writer died, and were not gone on from. Nobody was told that they were kept.
    pub cuts: u64,
    /// How it ends.
    pub ending: Ending,
    /// Chunks that this version cannot read, by kind. They are kept; it is no damage.
    pub unread: BTreeMap<String, u64>,
}

impl Report {
    /// Whether the file is closed and all of it is as it was written.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty() && self.ending == Ending::Closed
    }

    /// How many places are damaged: what only follows from damage elsewhere is not counted, unless there is no other.
    pub fn places(&self) -> u64 {
        let follows = |damage: &&Damage| matches!(damage.fault, Fault::MissingParent(_) | Fault::MissingPayload(_));
        let following = self.damage.iter().filter(follows).count();
        let all = self.damage.len();
        (if following == all { all } else { all - following }) as u64 + self.unlisted
    }

    pub(crate) fn add(&mut self, damage: Damage) {
        if self.damage.len() < LISTED_MAX {
            self.damage.push(damage);
        } else {
            self.unlisted += 1;
        }
    }

    pub(crate) fn unread(&mut self, kind: &str) {
        // A kind is a name; what is longer is kept short here so that a report stays one.
        let kind: String = kind.chars().take(64).collect();
        if self.unread.len() < LISTED_MAX || self.unread.contains_key(&kind) {
            *self.unread.entry(kind).or_default() += 1;
        }
    }
}

/// How a file ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// With its closing row.
    Closed,
    /// After a whole row that is not the closing one: it was cut there, or is still being written.
    #[default]
    Open,
    /// In the middle of a row.
    Cut {
        /// How many bytes of that row are there.
        bytes: u64,
    },
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Closed => f.write_str("closed"),
            Ending::Open => f.write_str("ends without its closing row: cut there, or still being written"),
            Ending::Cut { bytes } => write!(f, "cut off {bytes} bytes into a row; read up to the last whole row"),
        }
    }
}

/// One thing that is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The line, from 1.
    pub line: u64,
    /// Where the line begins, in bytes.
    pub offset: u64,
    /// The row's number, where it is known.
    pub row: Option<u64>,
    /// The step, where the row is one and can be read.
    pub step: Option<StepId>,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} (from byte {})", self.line, self.offset)?;
        if let Some(row) = self.row {
            write!(f, ", row {row}")?;
        }
        if let Some(step) = self.step {
            write!(f, ", step {step:.SHORT$}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

/// What is wrong with a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It does not read as a row.
    #[error("not a row")]
    NotARow,
    /// Its bytes are not those that were sealed.
    #[error("the row was changed: its seal does not fit its bytes")]
    Seal,
    /// The line break after it is something else.
    #[error("the line break after the row was changed")]
    LineBreak,
    /// There is no header, or not where it should be.
    #[error("the header is missing")]
    NoHeader,
    /// Rows before this one are gone.
    #[error("{} missing before it", rows(*.first, *.last))]
    Missing {
        /// The first that is gone.
        first: u64,
        /// The last that is gone.
        last: u64,
    },
    /// It stands after a later row.
    #[error("the row is out of order: row {after} stands before it")]
    OutOfOrder {
        /// The row before it.
        after: u64,
    },
    /// It is there twice.
    #[error("the row is there twice")]
    Twice,
    /// The row before it is not the one it was written after.
    #[error("it was not written after the row before: one of the two was replaced or sealed anew")]
    Chain,
    /// It stands after the closing row.
    #[error("it stands after the closing row")]
    AfterEnd,
    /// Its id does not follow from its parents and its chunk.
    #[error("the step's id does not fit its parents and its chunk")]
    Id,
    /// Its chunk is not JSON, or has no kind.
    #[error("{0}")]
    Chunk(#[from] crate::chunk::ChunkError),
    /// A parent stands nowhere before it.
    #[error("parent {0:.SHORT$} is not in the file before it")]
    MissingParent(StepId),
    /// A payload stands nowhere before it.
    #[error("payload {0:.SHORT$} is not in the file before it")]
    MissingPayload(Digest),
    /// A payload is not what its digest says.
    #[error("the payload does not fit its digest")]
    Payload,
    /// The closing row counts other steps than there are.
    #[error("the closing row counts {counted} steps; {found} are there")]
    Count {
        /// What it says.
        counted: u64,
        /// What there is.
        found: u64,
    },
}

fn rows(first: u64, last: u64) -> String {
    if first == last { format!("row {first} is") } else { format!("rows {first} to {last} are") }
}
