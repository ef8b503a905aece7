//! The record behind a rath session.
//!
//! A [`Step`] is one immutable thing that happened; it says a [`Chunk`] and names the steps it came after. A
//! [`Record`] is one head and everything it descends from. All else is computed from that: [`lineage`] (order,
//! ancestry, merging), [`view`] (what a model sees, what changed, what it cost), [`turn`] (what to do next), and
//! [`codec`] (the record as a file, byte by byte as `docs/format.md` says).
//!
//! This crate is pure: no IO, no async, no clock, no randomness. What it decides, `rath` carries out.

pub mod chunk;
pub mod codec;
pub mod draw;
pub mod graph;
mod id;
mod line;
pub mod lineage;
mod naming;
mod pairing;
mod payload;
mod record;
mod shelf;
mod step;
mod timestamp;
pub mod turn;
mod usage;
pub mod view;

pub use chunk::Chunk;
pub use id::{BranchId, CallId, Digest, IdError, SHORT, Seal, StepId, Timestamp};
pub use line::Totals;
pub use payload::{Blob, INLINE_MAX, Payload, Reference, Text};
pub use record::{CONCAT_MAX, MergeError, Record, Side};
pub use shelf::{Kept, Shelf, Shelved};
pub use step::{Link, Parents, Stamp, Step, Stored};
pub use usage::Usage;
