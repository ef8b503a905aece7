//! Whose turn it is: the agent loop as a pure decision over the record.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::chunk::{Call, Choice, Chunk};
use crate::id::{CallId, StepId};
use crate::lineage::Newest;
use crate::pairing::Waiting;
use crate::payload::Text;
use crate::record::Record;
use crate::step::{Link, Parents, Step};

/// Says what an agent has to do next.
///
/// Everything is in the record: pending work is a call without a result, and there is no state beside it.
pub fn next(record: &Record) -> Next {
    let Some(head) = record.head() else { return Next::Done };
    match head.line().turn.due() {
        Due::Tools { .. } => Next::RunTools(open_calls(head)),
        Due::Model => Next::AskModel,
        Due::Nothing => Next::Done,
    }
}

/// The same without naming the calls, which is known without looking back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Due {
    /// The model is to be asked.
    Model,
    /// Calls have no result yet.
    Tools {
        /// How many.
        open: u64,
    },
    /// The model has answered, or nobody has said anything.
    #[default]
    Nothing,
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
    tail: Tail,
    /// How many calls have no result.
    open: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Tail {
    /// Nobody has said anything.
    #[default]
    Quiet,
    /// The model is to speak.
    Asked,
    /// The model has spoken.
    Answered,
    /// The model has spoken, and a selector said who goes on.
    Chosen,
}

impl State {
    pub(crate) fn due(&self) -> Due {
        match self.tail {
            _ if self.open > 0 => Due::Tools { open: self.open },
            Tail::Asked | Tail::Chosen => Due::Model,
            Tail::Quiet | Tail::Answered => Due::Nothing,
        }
    }

    /// As two numbers, for a shelf.
    pub(crate) fn numbers(&self) -> [u64; 2] {
        [self.tail as u64, self.open]
    }

    pub(crate) fn from_numbers([tail, open]: [u64; 2]) -> Option<Self> {
        let tail =
            [Tail::Quiet, Tail::Asked, Tail::Answered, Tail::Chosen].into_iter().find(|it| *it as u64 == tail)?;
        Some(State { tail, open })
    }

    pub(crate) fn follow(&mut self, chunk: &Chunk, open: &mut OpenCalls) {
        match chunk {
            Chunk::User(_) => self.tail = Tail::Asked,
            // A new agent takes over a conversation; with nothing said yet it has nothing to answer.
            Chunk::Instructions(_) if matches!(self.tail, Tail::Answered | Tail::Chosen) => self.tail = Tail::Asked,
            Chunk::Selected(selected) => match (&selected.choice, self.tail) {
                (Choice::Chosen { .. }, Tail::Answered) => self.tail = Tail::Chosen,
                (Choice::Done, Tail::Chosen) => self.tail = Tail::Answered,
                _ => {}
            },
            Chunk::Assistant(answer) => {
                self.tail = Tail::Answered;
                open.ask(&answer.calls);
            }
            // A result that no call waits for says nothing to the model.
            Chunk::ToolResult(result) if open.close(&result.call) => self.tail = Tail::Asked,
            _ => {}
        }
        self.open = open.count;
    }

    /// Goes on by a whole line that is read after this one.
    pub(crate) fn go_on(&mut self, theirs: &State, open: &mut OpenCalls, their_open: &OpenCalls) {
        if theirs.tail != Tail::Quiet {
            self.tail = theirs.tail;
        }
        open.add(their_open);
        self.open = open.count;
    }
}

/// The calls without a result at the end of a line, by name.
///
/// Steps only count them: a list in every step of a turn of many calls would grow with its square. Whoever appends keeps
/// this beside the head; it can be found again from the record.
#[derive(Clone, Default)]
pub(crate) struct OpenCalls {
    count: u64,
    by_name: Option<Arc<HashMap<CallId, u64>>>,
}

impl OpenCalls {
    /// Those on the line that ends at `head`.
    pub(crate) fn at(head: &Step) -> Self {
        let mut open = OpenCalls::default();
        let mut state = State::default();
        for step in since_closed(head) {
            state.follow(step.chunk(), &mut open);
        }
        open
    }

    /// Those on the line that a step with these parents goes on from. A merge finds its own.
    pub(crate) fn before(parents: &Parents) -> Self {
        match parents {
            Parents::Two(_) if parents.both().is_some() => OpenCalls::default(),
            _ => parents.as_slice().iter().find_map(Link::step).map(OpenCalls::at).unwrap_or_default(),
        }
    }

    fn ask(&mut self, calls: &[Call]) {
        if !calls.is_empty() {
            self.count = self.count.saturating_add(calls.len() as u64);
            let by_name = Arc::make_mut(self.by_name.get_or_insert_default());
            calls.iter().for_each(|call| *by_name.entry(call.id.clone()).or_default() += 1);
        }
    }

    /// Takes out one call of this name, if there is one.
    fn close(&mut self, name: &CallId) -> bool {
        let Some(by_name) = self.by_name.as_mut().filter(|open| open.contains_key(name)) else { return false };
        let by_name = Arc::make_mut(by_name);
        self.count -= 1;
        if let Some(of_name) = by_name.get_mut(name) {
            *of_name -= 1;
            if *of_name == 0 {
                by_name.remove(name);
            }
        }
        if by_name.is_empty() {
            self.by_name = None;
        }
        true
    }

    fn add(&mut self, more: &OpenCalls) {
        if let Some(names) = &more.by_name {
            self.count = self.count.saturating_add(more.count);
            let by_name = Arc::make_mut(self.by_name.get_or_insert_default());
            names.iter().for_each(|(name, count)| *by_name.entry(name.clone()).or_default() += count);
        }
    }
}

/// The calls without a result on the line that ends at `head`, in the order in which they were asked for.
pub(crate) fn open_calls(head: &Step) -> Vec<Pending> {
    Open::of(&since_closed(head)).calls()
}

/// The end of the line at `head`, oldest first, from after the last step at which no call was open.
fn since_closed(head: &Step) -> VecDeque<&Step> {
    // Along the first parents a step's own count is that of all that is read up to it.
    let mut ours = std::iter::successors(Some(head), |step| step.first_parent());
    let closed = ours.find(|step| step.line().turn.open == 0).map(Step::id);
    let mut turn = VecDeque::new();
    for step in Newest::of(Some(head)).take_while(|step| Some(step.id()) != closed) {
        turn.push_front(step);
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
                Chunk::ToolStarted(started) => open.start(&started.call),
                Chunk::Approved(approved) => open.decide(&approved.call, Slot::Approved),
                Chunk::Denied(denied) => open.decide(&denied.call, Slot::Denied(&denied.reason)),
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
    fn start(&mut self, call: &CallId) {
        if let Some(&at) = self.waiting.named(call).find(|at| self.calls[**at].2 != Slot::Started) {
            self.calls[at].2 = Slot::Started;
        }
    }

    /// Of calls with one name, a decision means the first that has none yet, then one that nobody knows the end of, and
    /// where all are decided it takes back the first.
    fn decide(&mut self, call: &CallId, slot: Slot<'a>) {
        let named = |slot: Option<Slot<'_>>| {
            self.waiting.named(call).copied().find(|at| slot.is_none_or(|slot| self.calls[*at].2 == slot))
        };
        if let Some(at) = named(Some(Slot::New)).or_else(|| named(Some(Slot::Started))).or_else(|| named(None)) {
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
