//! Whose turn it is: the agent loop as a pure decision over the record.

use std::collections::VecDeque;

use crate::chunk::{Call, Chunk};
use crate::id::{CallId, StepId};
use crate::lineage::Newest;
use crate::pairing::Waiting;
use crate::payload::Text;
use crate::record::Record;
use crate::step::Step;

/// Says what an agent has to do next.
///
/// Everything is in the record: pending work is a call without a result, and there is no state beside it.
pub fn next(record: &Record) -> Next {
    let Some(head) = record.head() else { return Next::Done };
    let open = open_calls(head);
    match head.line().turn.tail {
        _ if !open.is_empty() => Next::RunTools(open),
        Tail::Asked => Next::AskModel,
        Tail::Quiet | Tail::Answered => Next::Done,
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

/// What is known of the turn at the end of a line, folded forward with it.
///
/// Which calls are open is not among it: every step of a turn would keep a list of its own. It is found when it is
/// asked for, by reading back to where there may be one.
#[derive(Clone, Default)]
pub(crate) struct State {
    tail: Tail,
    /// The oldest answer that may have a call without a result.
    asked: Option<StepId>,
    /// The generation before which looking again for open calls is not worth it.
    recheck: u64,
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
    pub(crate) fn follow(&mut self, id: StepId, chunk: &Chunk) {
        match chunk {
            Chunk::User(_) => self.tail = Tail::Asked,
            Chunk::ToolResult(_) if self.asked.is_some() => self.tail = Tail::Asked,
            // A new agent takes over a conversation; with nothing said yet it has nothing to answer.
            Chunk::Instructions(_) if self.tail == Tail::Answered => self.tail = Tail::Asked,
            Chunk::Assistant(answer) => {
                self.tail = Tail::Answered;
                if !answer.calls.is_empty() {
                    self.asked = self.asked.or(Some(id));
                }
            }
            _ => {}
        }
    }

    /// Forgets the turns before an answer that comes after `head`, if they are closed.
    ///
    /// A call that is never closed would be looked for at every answer: each time in vain, the wait doubles.
    pub(crate) fn settle(&mut self, head: &Step) {
        let generation = head.line().generation;
        if self.asked.is_none() || generation < self.recheck {
            return;
        }
        let turn = since(head, self.asked);
        if Open::of(&turn).calls().is_empty() {
            *self = State { tail: self.tail, ..State::default() };
        } else {
            self.recheck = generation.saturating_add(turn.len() as u64);
        }
    }
}

/// The calls without a result on the line that ends at `head`, in the order in which they were asked for.
pub(crate) fn open_calls(head: &Step) -> Vec<Pending> {
    Open::of(&since(head, head.line().turn.asked)).calls()
}

/// The end of the line at `head` from the step `asked` on, oldest first; empty without one.
fn since(head: &Step, asked: Option<StepId>) -> VecDeque<&Step> {
    let mut turn = VecDeque::new();
    if let Some(asked) = asked {
        for step in Newest::of(Some(head)) {
            turn.push_front(step);
            if step.id() == asked {
                break;
            }
        }
    }
    turn
}

/// The calls of some turns, and which of them are closed.
#[derive(Default)]
struct Open<'a> {
    calls: Vec<(StepId, &'a Call, Slot<'a>)>,
    /// Where the open ones stand.
    waiting: Waiting<'a, usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Slot<'a> {
    New,
    Approved,
    Denied(&'a Text),
    Started,
    Closed,
}

impl<'a> Open<'a> {
    fn of(turn: &VecDeque<&'a Step>) -> Self {
        let mut open = Open::default();
        for step in turn {
            match step.chunk() {
                Chunk::Assistant(answer) => open.ask(step.id(), &answer.calls),
                Chunk::ToolStarted(started) => open.mark(&started.call, Slot::Started),
                Chunk::Approved(approved) => open.mark(&approved.call, Slot::Approved),
                Chunk::Denied(denied) => open.mark(&denied.call, Slot::Denied(&denied.reason)),
                Chunk::ToolResult(result) => {
                    if let Some(closed) = open.waiting.close(&result.call) {
                        open.calls[closed].2 = Slot::Closed;
                    }
                }
                _ => {}
            }
        }
        open
    }

    fn ask(&mut self, step: StepId, calls: &'a [Call]) {
        let first = self.calls.len();
        self.waiting.ask(calls.iter().enumerate().map(|(at, call)| (&call.id, first + at)));
        self.calls.extend(calls.iter().map(|call| (step, call, Slot::New)));
    }

    /// Of two calls with one name, the second start means the second call.
    fn mark(&mut self, call: &CallId, slot: Slot<'a>) {
        if let Some(&at) = self.waiting.named(call).find(|at| self.calls[**at].2 != Slot::Started) {
            self.calls[at].2 = slot;
        }
    }

    fn calls(self) -> Vec<Pending> {
        let pending = self.calls.into_iter().filter_map(|(step, call, slot)| {
            let progress = match slot {
                Slot::New => Progress::New,
                Slot::Approved => Progress::Approved,
                Slot::Denied(reason) => Progress::Denied { reason: reason.clone() },
                Slot::Started => Progress::Unknown,
                Slot::Closed => return None,
            };
            Some(Pending { step, call: call.clone(), progress })
        });
        pending.collect()
    }
}
