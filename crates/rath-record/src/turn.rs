//! The agent loop as a pure decision over the record.
//!
//! [`next`] says what an agent has to do: ask the model, run tools, or nothing.

mod calls;
mod state;

use crate::record::Record;

pub use calls::{PendingCall, Progress, call_to_decide};
pub use state::PendingWork;

pub(crate) use calls::{OpenCalls, pending_calls};
pub(crate) use state::TurnState;

/// Returns what an agent has to do next.
///
/// Everything is in the record: pending work is a call without a result, and there is no other state.
///
/// ```
/// use rath_record::turn::{self, Next};
/// use rath_record::{BranchId, Chunk, Record, Stamp};
///
/// let mut record = Record::new();
/// record.push(Chunk::user("Hello"), Stamp::on(BranchId([1; 16])));
/// assert!(matches!(turn::next(&record), Next::AskModel));
/// record.push(Chunk::assistant("Hi!"), Stamp::on(BranchId([1; 16])));
/// assert!(matches!(turn::next(&record), Next::Done));
/// ```
pub fn next(record: &Record) -> Next {
    let Some(head) = record.head() else { return Next::Done };
    match head.totals().turn.pending_work() {
        PendingWork::Tools { .. } => Next::RunTools(pending_calls(head)),
        PendingWork::Model => Next::AskModel,
        PendingWork::Nothing => Next::Done,
    }
}

/// The next action of an agent.
///
/// Returned by [`next`].
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// There is something that the model has not answered.
    AskModel,
    /// These calls have no result yet.
    RunTools(Vec<PendingCall>),
    /// The model has answered, or the conversation is empty.
    Done,
}
