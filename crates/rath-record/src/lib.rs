//! The record behind a rath session.
//!
//! A [`Step`] is one immutable thing that happened: it has a [`Chunk`] as its content and refers to its parents. A
//! [`Record`] is one head and everything it descends from. Everything else is computed from that: [`lineage`] (order,
//! ancestry, merging), [`view`] (the conversation that a model sees, changed files, cost), [`turn`] (the next action of an
//! agent) and [`codec`] (the record as a file, which `docs/format.md` specifies byte by byte).
//!
//! This crate is pure: no IO, no async, no clock, no randomness. It decides, and `rath` acts.

mod call_queue;
pub mod chunk;
pub mod codec;
pub mod draw;
pub mod graph;
mod id;
mod lazy;
pub mod lineage;
mod money;
mod naming;
mod payload;
mod record;
mod step;
mod timestamp;
mod totals;
pub mod turn;
mod usage;
pub mod view;

pub use chunk::Chunk;
pub use id::{BranchId, CallId, CounterId, Digest, IdError, ObjectId, SHORT_ID_DIGITS, Seal, StepId, Timestamp};
pub use lazy::{LazyStep, StepSource, StorageState};
pub use money::Money;
pub use payload::{Blob, MAX_INLINE_BYTES, Payload, Reference, Text};
pub use record::{MergeError, Record, Side};
pub use step::{Parent, Parents, Stamp, Step, StoredChunk};
pub use totals::{MAX_CONCAT_STEPS, Totals};
pub use usage::Usage;
