//! The calls without a result at the end of a line.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::call_queue::CallQueue;
use crate::chunk::{Call, CallOrigin, Chunk};
use crate::id::{CallId, StepId};
use crate::lineage::NewestFirst;
use crate::payload::Text;
use crate::step::{Parent, Parents, Step};

/// A call without a result.
///
/// Part of [`Next::RunTools`](super::Next::RunTools).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PendingCall {
    /// The answer that asked for the call, and its position there.
    pub origin: CallOrigin,
    /// The call.
    pub call: Call,
    /// The progress of the call.
    pub progress: Progress,
}

/// The progress of a call without a result.
///
/// Part of [`PendingCall`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// The call was neither decided nor started.
    New,
    /// A person approved the call.
    Approved,
    /// A person denied the call; the result that tells the model is still to be recorded.
    Denied {
        /// The reason.
        reason: Text,
    },
    /// The call was started, and its end is not known.
    Unknown,
    /// The call ran a workflow that waits for a decision. A step keeps the work so far.
    Paused {
        /// The step that keeps the work aside.
        work: StepId,
    },
    /// The user said something else before the call was started, or while it was paused: it is not made.
    Superseded,
    /// The call was asked for on another branch, or before the session was adopted: it is made only if it is approved.
    Held,
    /// The call is held, and it may have been started: before the session was adopted, or by a step that was forgotten. Its end
    /// is not known.
    HeldUnknown,
    /// The answer that asked for the call was forgotten. The call is not made: its id does not show what was asked for.
    Forgotten,
    /// The call is held, and another open call has the same id. Neither is made: results and starts tell calls apart by their ids.
    Ambiguous,
}

impl Progress {
    /// Returns true if the call was or may have been started, and its end is not known.
    pub fn is_in_doubt(&self) -> bool {
        matches!(self, Progress::Unknown | Progress::HeldUnknown)
    }
}

/// Returns the call that a decision about this id is for: of several calls with the id, the first that is not begun, then one that
/// is held, then one in doubt, then any.
///
/// ```
/// use rath_record::chunk::Call;
/// use rath_record::turn::{self, Next};
/// use rath_record::{BranchId, Chunk, Record, Stamp};
///
/// let mut record = Record::new();
/// record.push(Chunk::calls([Call::new("c1", "rm", "{}")]), Stamp::on(BranchId([1; 16])));
/// let Next::RunTools(calls) = turn::next(&record) else { panic!("no call waits") };
/// let call = turn::call_to_decide(&calls, &"c1".into()).expect("the call waits");
/// assert_eq!(call.origin.index, 0);
/// ```
pub fn call_to_decide<'a>(calls: &'a [PendingCall], id: &CallId) -> Option<&'a PendingCall> {
    let rank = |progress: &Progress| match progress {
        Progress::New => 0,
        Progress::Held => 1,
        Progress::Unknown | Progress::HeldUnknown => 2,
        _ => 3,
    };
    calls.iter().filter(|pending| pending.call.id == *id).min_by_key(|pending| rank(&pending.progress))
}

/// The number of calls without a result at the end of a line, by id.
///
/// Steps hold only the total: a list in every step of a turn would grow with the square of its calls. A record keeps
/// this value for its head; it can be computed again from the steps.
#[derive(Clone, Default)]
pub(crate) struct OpenCalls {
    count: u64,
    by_id: Option<Arc<HashMap<CallId, u64>>>,
}

impl OpenCalls {
    /// Returns the open calls of the line that ends at `head`.
    pub(crate) fn at(head: &Step) -> Self {
        let mut open = OpenCalls::default();
        for step in steps_since_closed(head) {
            open.append(step.chunk());
        }
        open
    }

    /// Returns the open calls before a step with these parents. A merge computes its own.
    pub(crate) fn before(parents: &Parents) -> Self {
        match parents {
            Parents::Two(_) if parents.both().is_some() => OpenCalls::default(),
            _ => parents.as_slice().iter().find_map(Parent::step).map(OpenCalls::at).unwrap_or_default(),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Updates the open calls by one step, and returns whether the step closed a call.
    pub(super) fn append(&mut self, chunk: &Chunk) -> bool {
        match chunk {
            Chunk::Assistant(answer) => {
                self.open(&answer.calls);
                false
            }
            Chunk::ToolResult(result) => self.close(&result.call),
            _ => false,
        }
    }

    fn open(&mut self, calls: &[Call]) {
        if !calls.is_empty() {
            self.count = self.count.saturating_add(calls.len() as u64);
            let by_id = Arc::make_mut(self.by_id.get_or_insert_default());
            calls.iter().for_each(|call| *by_id.entry(call.id.clone()).or_default() += 1);
        }
    }

    /// Removes one call with this id, and returns whether there was one.
    fn close(&mut self, id: &CallId) -> bool {
        let Some(by_id) = self.by_id.as_mut().filter(|by_id| by_id.contains_key(id)) else { return false };
        let by_id = Arc::make_mut(by_id);
        self.count -= 1;
        if let Some(count) = by_id.get_mut(id) {
            *count -= 1;
            if *count == 0 {
                by_id.remove(id);
            }
        }
        if by_id.is_empty() {
            self.by_id = None;
        }
        true
    }

    /// Adds the open calls of another line.
    pub(super) fn add(&mut self, other: &OpenCalls) {
        if let Some(others) = &other.by_id {
            self.count = self.count.saturating_add(other.count);
            let by_id = Arc::make_mut(self.by_id.get_or_insert_default());
            others.iter().for_each(|(id, count)| *by_id.entry(id.clone()).or_default() += count);
        }
    }
}

/// Returns the calls without a result on the line that ends at `head`, in the order in which they were asked for.
pub(crate) fn pending_calls(head: &Step) -> Vec<PendingCall> {
    CallTracker::follow(&steps_since_closed(head)).into_pending()
}

/// Returns the end of the line at `head`, oldest first, from after the last step at which no call was open.
fn steps_since_closed(head: &Step) -> VecDeque<&Step> {
    // Along the first parents, the count in a step covers everything that is read up to it.
    let mut first_parents = std::iter::successors(Some(head), |step| step.first_parent());
    let closed = first_parents.find(|step| !step.totals().turn.has_open_calls()).map(Step::id);
    let mut steps = VecDeque::new();
    for step in NewestFirst::new(Some(head)).take_while(|step| Some(step.id()) != closed) {
        steps.push_front(step);
    }
    steps
}

/// The calls of some steps, with the status of each.
#[derive(Default)]
struct CallTracker<'a> {
    calls: Vec<(CallOrigin, &'a Call, CallStatus<'a>)>,
    /// The open calls, as indices into `calls`.
    open: CallQueue<'a, usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum CallStatus<'a> {
    New,
    Approved,
    Denied(&'a Text),
    Started,
    Paused(StepId),
    Superseded,
    Held,
    /// Held because of an adoption or a forgotten step: only a decision that names its origin is about the call.
    Voided,
    /// As [`Voided`](CallStatus::Voided), and the call may have been started.
    VoidedStarted,
    Forgotten,
    Ambiguous,
    Closed,
}

impl<'a> CallTracker<'a> {
    fn follow(steps: &VecDeque<&'a Step>) -> Self {
        let mut tracker = CallTracker::default();
        for step in steps {
            match step.chunk() {
                Chunk::Assistant(answer) => {
                    let status = if step.withheld().is_some() { CallStatus::Forgotten } else { CallStatus::New };
                    tracker.open(step.id(), &answer.calls, status);
                }
                Chunk::ToolStarted(started) => tracker.start(&started.call),
                Chunk::Approved(approved) => tracker.decide(&approved.call, approved.origin, CallStatus::Approved),
                Chunk::Denied(denied) => {
                    tracker.decide(&denied.call, denied.origin, CallStatus::Denied(&denied.reason));
                }
                Chunk::ToolResult(result) => {
                    if let Some(index) = tracker.open.close(&result.call) {
                        tracker.calls[index].2 = CallStatus::Closed;
                    }
                }
                Chunk::User(_) => tracker.replace(|status| match status {
                    CallStatus::New | CallStatus::Held | CallStatus::Voided | CallStatus::Paused(_) => {
                        CallStatus::Superseded
                    }
                    other => other,
                }),
                Chunk::Forked(_) | Chunk::Detached(_) => tracker.replace(|status| match status {
                    CallStatus::New | CallStatus::Approved => CallStatus::Held,
                    // The work goes on in one branch only.
                    CallStatus::Paused(_) => CallStatus::Started,
                    other => other,
                }),
                Chunk::Merged(merged) => merged.call.iter().for_each(|call| tracker.pause(call, step.id())),
                _ => {}
            }
            if step.withheld().is_some() {
                // The step may have been the start of any of them.
                tracker.void(|_| CallStatus::VoidedStarted);
            } else if step.voids_earlier_decisions() {
                tracker.void(|status| match status {
                    CallStatus::Started | CallStatus::Paused(_) | CallStatus::VoidedStarted => {
                        CallStatus::VoidedStarted
                    }
                    _ => CallStatus::Voided,
                });
            }
        }
        tracker
    }

    /// Lets every open call wait for a decision, with a status that does not depend on earlier decisions.
    fn void(&mut self, voided: impl Fn(CallStatus<'a>) -> CallStatus<'a>) {
        for (_, call, status) in &mut self.calls {
            *status = match *status {
                CallStatus::Closed | CallStatus::Forgotten => *status,
                _ if self.open.with_id(&call.id).nth(1).is_some() => CallStatus::Ambiguous,
                _ => voided(*status),
            };
        }
    }

    /// Replaces the status of every call.
    fn replace(&mut self, change: impl Fn(CallStatus<'a>) -> CallStatus<'a>) {
        self.calls.iter_mut().for_each(|(_, _, status)| *status = change(*status));
    }

    fn open(&mut self, answer: StepId, calls: &'a [Call], status: CallStatus<'a>) {
        let first = self.calls.len();
        self.open.add_turn(calls.iter().enumerate().map(|(nth, call)| (&call.id, first + nth)));
        self.calls.extend((0..).zip(calls).map(|(index, call)| (CallOrigin { answer, index }, call, status)));
    }

    /// Marks a call as started. Of two calls with one id, the second start belongs to the second call.
    fn start(&mut self, id: &CallId) {
        let may_start = |status| !matches!(status, CallStatus::Started | CallStatus::Forgotten | CallStatus::Ambiguous);
        if let Some(&index) = self.open.with_id(id).find(|index| may_start(self.calls[**index].2)) {
            self.calls[index].2 = CallStatus::Started;
        }
    }

    /// Marks a started call as paused.
    fn pause(&mut self, id: &CallId, work: StepId) {
        let mut started = self.open.with_id(id).copied();
        let is_started = |status: CallStatus<'_>| matches!(status, CallStatus::Started | CallStatus::Paused(_));
        if let Some(index) = started.find(|index| is_started(self.calls[*index].2)) {
            self.calls[index].2 = CallStatus::Paused(work);
        }
    }

    /// Records a decision about a call.
    ///
    /// Without an origin, of several calls with one id, it belongs to the first undecided one, then to the first started one;
    /// if all are decided, it replaces the decision of the first. It belongs to none that an adoption or a forgotten step
    /// voided: the call that it was about may be one that was forgotten.
    fn decide(&mut self, id: &CallId, origin: Option<CallOrigin>, decision: CallStatus<'a>) {
        let find = |fits: &dyn Fn(CallOrigin, CallStatus<'_>) -> bool| {
            self.open.with_id(id).copied().find(|index| fits(self.calls[*index].0, self.calls[*index].2))
        };
        let index = match origin {
            Some(origin) => find(&|found, _| found == origin),
            None => find(&|_, status| status == CallStatus::New)
                .or_else(|| find(&|_, status| status == CallStatus::Started))
                .or_else(|| find(&|_, status| !matches!(status, CallStatus::Voided | CallStatus::VoidedStarted))),
        };
        let keeps = |status| match status {
            CallStatus::Forgotten | CallStatus::Ambiguous => true,
            // An approval does not let the work of a paused call begin anew.
            CallStatus::Paused(_) => decision == CallStatus::Approved,
            _ => false,
        };
        if let Some(index) = index.filter(|index| !keeps(self.calls[*index].2)) {
            self.calls[index].2 = decision;
        }
    }

    fn into_pending(self) -> Vec<PendingCall> {
        let pending = self.calls.into_iter().filter_map(|(origin, call, status)| {
            let progress = match status {
                CallStatus::New => Progress::New,
                CallStatus::Approved => Progress::Approved,
                CallStatus::Denied(reason) => Progress::Denied { reason: reason.clone() },
                CallStatus::Started => Progress::Unknown,
                CallStatus::Paused(work) => Progress::Paused { work },
                CallStatus::Superseded => Progress::Superseded,
                CallStatus::Held | CallStatus::Voided => Progress::Held,
                CallStatus::VoidedStarted => Progress::HeldUnknown,
                CallStatus::Forgotten => Progress::Forgotten,
                CallStatus::Ambiguous => Progress::Ambiguous,
                CallStatus::Closed => return None,
            };
            Some(PendingCall { origin, call: call.clone(), progress })
        });
        pending.collect()
    }
}
