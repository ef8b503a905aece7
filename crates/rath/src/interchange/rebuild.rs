//! A session, made from what others wrote.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rath_record::chunk::{Assistant, Chunk, Forked, Merged, Outcome, Strategy, ToolResult, ToolStarted};
use rath_record::{BranchId, CallId, Record, Stamp, StepId, Timestamp, Usage};

use super::beside::{Beside, Kept};
use super::members::Notes;
use crate::session::Session;

/// A record that grows by what is read, and what has to be known of it on the way.
///
/// It has no clock: a step is as old as the file says, or of no known age.
pub(super) struct Rebuild {
    record: Record,
    branch: BranchId,
    calls: Vec<Asked>,
    /// Where the calls without a result stand in `calls`: a result means the newest turn's, and there the first.
    waiting: HashMap<CallId, VecDeque<usize>>,
    progress: Vec<Chunk>,
    asides: u64,
}

/// A call that was asked for.
struct Asked {
    id: CallId,
    tool: Arc<str>,
    open: bool,
    /// Whether it is known what was done about it.
    told: bool,
}

impl Rebuild {
    /// Begins on a branch; on one of its own if there is no id.
    pub(super) fn on(branch: Option<BranchId>) -> Self {
        let branch = branch.unwrap_or_else(|| Session::empty().id());
        let (calls, waiting, progress) = (Vec::new(), HashMap::new(), Vec::new());
        Rebuild { record: Record::new(), branch, calls, waiting, progress, asides: 0 }
    }

    /// Opens the branch under a name, as work beside another session is.
    pub(super) fn named(&mut self, name: String, nth: u64) {
        self.append(Chunk::Forked(Forked { nth, from: None, name: Some(name) }), None, None, None);
    }

    /// A remark on the way.
    pub(super) fn note(&mut self, text: impl Into<String>, at: Option<Timestamp>, usage: Option<Usage>) -> StepId {
        self.append(Chunk::note(text.into()), None, at, usage)
    }

    /// Appends a chunk that is neither an answer nor a result.
    pub(super) fn push(&mut self, chunk: Chunk, beside: &Beside) -> StepId {
        match chunk {
            Chunk::Assistant(answer) => self.answer(answer, beside, None),
            Chunk::ToolResult(result) => self.result(result, beside).0,
            chunk => self.append(chunk, beside.by.clone(), beside.at, beside.usage),
        }
    }

    /// Appends an answer. Without `progress`, nobody knows what was done about its calls.
    pub(super) fn answer(&mut self, answer: Assistant, beside: &Beside, progress: Option<&[Kept]>) -> StepId {
        let first = self.calls.len();
        for (nth, call) in answer.calls.iter().enumerate().rev() {
            self.waiting.entry(call.id.clone()).or_default().push_front(first + nth);
        }
        let asked = answer.calls.iter().map(|call| Asked {
            id: call.id.clone(),
            tool: call.tool.clone(),
            open: true,
            told: progress.is_some(),
        });
        self.calls.extend(asked);
        self.progress.extend(progress.unwrap_or_default().iter().filter_map(Kept::chunk));
        self.append(Chunk::Assistant(answer), beside.by.clone(), beside.at, beside.usage)
    }

    /// Appends a result, and says whether a call waited for it.
    pub(super) fn result(&mut self, result: ToolResult, beside: &Beside) -> (StepId, bool) {
        let call = self.waiting.get_mut(&result.call).and_then(VecDeque::pop_front);
        call.into_iter().for_each(|at| self.calls[at].open = false);
        let step = self.append(Chunk::ToolResult(result), beside.by.clone(), beside.at, beside.usage);
        (step, call.is_some())
    }

    /// Closes calls that nobody told the end of though the work went on after them, and counts them.
    pub(super) fn give_up(&mut self) -> u64 {
        let lost: Vec<_> =
            self.calls.iter().filter(|call| call.open && !call.told).map(|call| call.id.clone()).collect();
        for call in &lost {
            let result = ToolResult::new(call.clone(), Outcome::Unknown, "no result was recorded");
            self.result(result, &Beside::default());
        }
        lost.len() as u64
    }

    /// Keeps other work aside.
    pub(super) fn keep_aside(&mut self, work: &Record) {
        if self.record.head().is_none() {
            self.note("begins with work that is kept aside", None, None);
        }
        self.asides += 1;
        let how = Merged { nth: self.asides, ..Strategy::Aside.into() };
        let kept = self.record.merge(work, how, Stamp::on(self.branch));
        self.record = kept.expect("neither calls nor length are in the way of keeping something aside");
    }

    /// Marks what is open at the end: as it was told, and otherwise as begun with an end that nobody knows.
    pub(super) fn settle(&mut self, notes: &Notes) {
        for chunk in std::mem::take(&mut self.progress) {
            if matches!(chunk, Chunk::ToolStarted(_) | Chunk::Approved(_) | Chunk::Denied(_)) {
                self.append(chunk, None, None, None);
            }
        }
        let in_doubt: Vec<_> = self.calls.iter().filter(|call| call.open && !call.told).collect();
        let started: Vec<_> = in_doubt.iter().map(|call| ToolStarted { call: call.id.clone(), key: None }).collect();
        for call in in_doubt {
            let (id, tool) = (&call.id, &call.tool);
            notes.add(format!(
                "call `{id}` ({tool}) has no result: it stays open, and whether it took effect is not known"
            ));
        }
        // The writer may have died while it ran: only what changes nothing is made again without asking.
        started.into_iter().for_each(|started| _ = self.append(started.into(), None, None, None));
    }

    pub(super) fn into_record(self) -> Record {
        self.record
    }

    fn append(&mut self, chunk: Chunk, by: Option<Arc<str>>, at: Option<Timestamp>, usage: Option<Usage>) -> StepId {
        self.record.push(chunk, Stamp { branch: self.branch, by, usage, at }).id()
    }
}
