//! Whose turn it is: the agent loop as a pure decision over the record.

use std::sync::Arc;

use crate::chunk::{Call, Chunk};
use crate::id::{CallId, StepId};
use crate::payload::Text;
use crate::record::Record;

/// Says what an agent has to do next.
///
/// Everything is in the record: pending work is a call without a result, and there is no state beside it.
pub fn next(record: &Record) -> Next {
    let Some(head) = record.head() else { return Next::Done };
    let state = &head.line().turn;
    match (&state.open, state.tail) {
        (Some(open), _) => Next::RunTools(open.to_vec()),
        (None, Tail::Asked) => Next::AskModel,
        (None, Tail::Quiet | Tail::Answered) => Next::Done,
    }
}

/// What an agent has to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Something was said that the model has not answered.
    AskModel,
    /// These calls have no result yet.
    RunTools(Vec<Pending>),
    /// The model has answered, or nobody has said anything.
    Done,
}

/// A call without a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    /// The answer that asked for it.
    pub step: StepId,
    /// The call.
    pub call: Call,
    /// How far it got.
    pub progress: Progress,
}

/// How far a call without a result got.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// Nothing was done.
    New,
    /// A person let it go ahead.
    Approved,
    /// A person refused it: its result has yet to say so.
    Denied {
        /// Why.
        reason: Text,
    },
    /// It was started, and nobody knows how it ended.
    Unknown,
}

/// Whose turn it is at the end of a line, folded forward with it.
#[derive(Clone, Default)]
pub(crate) struct State {
    /// The calls without a result, in call order. Shared: nearly every step leaves it as it was.
    open: Option<Arc<[Pending]>>,
    tail: Tail,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Tail {
    /// Nobody has said anything.
    #[default]
    Quiet,
    /// The model is to speak.
    Asked,
    /// The model has spoken.
    Answered,
}

impl State {
    pub(crate) fn open(&self) -> &[Pending] {
        self.open.as_deref().unwrap_or_default()
    }

    pub(crate) fn follow(&mut self, id: StepId, chunk: &Chunk) {
        match chunk {
            Chunk::User(_) => self.tail = Tail::Asked,
            // A new agent takes over a conversation; with nothing said yet it has nothing to answer.
            Chunk::Instructions(_) if self.tail == Tail::Answered => self.tail = Tail::Asked,
            Chunk::Assistant(answer) => {
                self.tail = Tail::Answered;
                if !answer.calls.is_empty() {
                    let new = answer.calls.iter().map(|call| Pending {
                        step: id,
                        call: call.clone(),
                        progress: Progress::New,
                    });
                    self.open = Some(self.open().iter().cloned().chain(new).collect());
                }
            }
            Chunk::ToolStarted(started) => self.progress(&started.call, Progress::Unknown),
            Chunk::Approved(approved) => self.progress(&approved.call, Progress::Approved),
            Chunk::Denied(denied) => {
                self.progress(&denied.call, Progress::Denied { reason: denied.reason.clone() });
            }
            Chunk::ToolResult(result) => {
                if let Some(closed) = position(self.open(), |open| open.call.id == result.call) {
                    let open = self.open();
                    let left: Arc<[_]> = open[..closed].iter().chain(&open[closed + 1..]).cloned().collect();
                    self.open = (!left.is_empty()).then_some(left);
                    self.tail = Tail::Asked;
                }
            }
            _ => {}
        }
    }

    fn progress(&mut self, call: &CallId, progress: Progress) {
        // Of two calls with one id, the second start means the second call.
        if let Some(found) = position(self.open(), |open| open.call.id == *call && open.progress != Progress::Unknown) {
            let mut open = self.open().to_vec();
            open[found].progress = progress;
            self.open = Some(open.into());
        }
    }
}

/// The call that a later step means. Turns may reuse an id: it is the newest turn's, and there the first that fits.
fn position(open: &[Pending], fits: impl Fn(&Pending) -> bool) -> Option<usize> {
    let turn = open.iter().rev().find(|pending| fits(pending))?.step;
    open.iter().position(|pending| pending.step == turn && fits(pending))
}
