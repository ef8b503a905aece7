//! A record built from the rows of a foreign file.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rath_record::chunk::{
    Assistant, CallOrigin, Chunk, Forked, Merged, Outcome, Placed, Strategy, ToolResult, ToolStarted,
};
use rath_record::turn::{self, Next};
use rath_record::{BranchId, CallId, Record, Stamp, Step, StepId, Timestamp, Usage};

use super::extras::{EmbeddedChunk, Extras};
use super::notes::{NoteCode, Notes};
use crate::secrets::Secrets;
use crate::session::Session;

/// A record under construction, with the calls that are open in it.
///
/// The builder does not read the clock: a step has the time that the file gives, or none.
pub(super) struct RecordBuilder {
    record: Record,
    branch: BranchId,
    calls: Vec<TrackedCall>,
    /// Indices into `calls` of the calls without a result.
    ///
    /// A result belongs to the newest answer with a call of its id, and there to the first such call.
    waiting: HashMap<CallId, VecDeque<usize>>,
    /// Starts and decisions of calls that may still be open at the end.
    progress: Vec<Chunk>,
    aside_count: u64,
    /// The values that no step may hold.
    secrets: Secrets,
}

/// A call that an answer made.
struct TrackedCall {
    id: CallId,
    tool: Arc<str>,
    is_open: bool,
    /// True if the file says whether the call was started, approved or denied.
    has_progress: bool,
}

impl RecordBuilder {
    /// Creates an empty record on a branch; on a new branch if there is no id. Secrets in its steps are hidden.
    pub(super) fn new(branch: Option<BranchId>, secrets: &Secrets) -> Self {
        let branch = branch.unwrap_or_else(|| Session::empty().id());
        let (calls, waiting, progress) = (Vec::new(), HashMap::new(), Vec::new());
        let secrets = secrets.clone();
        RecordBuilder { record: Record::new(), branch, calls, waiting, progress, aside_count: 0, secrets }
    }

    /// Continues from the steps of other sessions, which these chunks are in.
    pub(super) fn continue_from<'a>(
        &mut self,
        record: Record,
        inherited: impl Iterator<Item = (&'a Chunk, &'a Extras)>,
    ) {
        self.record = record;
        for (chunk, extras) in inherited {
            match chunk {
                Chunk::Assistant(answer) => self.track_calls(answer, extras.progress.as_deref()),
                Chunk::ToolResult(result) => _ = self.close_call(&result.call),
                _ => {}
            }
        }
    }

    /// Returns the newest step.
    pub(super) fn head(&self) -> Option<&Step> {
        self.record.head()
    }

    /// Appends a place, unless the session has it already.
    pub(super) fn push_place(&mut self, place: Option<String>) {
        let known = self.record.newest_first().find_map(|step| match step.chunk() {
            Chunk::Placed(placed) => Some(&placed.place),
            _ => None,
        });
        if let Some(place) = place.filter(|place| Some(place) != known) {
            self.append(Placed::new(place).into(), None, None, None);
        }
    }

    /// Appends the opening step of a named branch, as an aside has one.
    pub(super) fn open_branch(&mut self, name: String, nth: u64) {
        self.append(Chunk::Forked(Forked::new(nth).with_name(name)), None, None, None);
    }

    /// Appends a note.
    pub(super) fn push_note(&mut self, text: impl Into<String>, at: Option<Timestamp>, usage: Option<Usage>) -> StepId {
        self.append(Chunk::note(text.into()), None, at, usage)
    }

    /// Appends a chunk.
    pub(super) fn push(&mut self, chunk: Chunk, extras: &Extras) -> StepId {
        match chunk {
            Chunk::Assistant(answer) => self.push_answer(answer, extras, None),
            Chunk::ToolResult(result) => self.push_result(result, extras).0,
            Chunk::Approved(mut approved) => {
                approved.origin = approved.origin.or_else(|| self.origin_of(&approved.call));
                self.append(approved.into(), extras.by.clone(), extras.at, extras.usage)
            }
            Chunk::Denied(mut denied) => {
                denied.origin = denied.origin.or_else(|| self.origin_of(&denied.call));
                self.append(denied.into(), extras.by.clone(), extras.at, extras.usage)
            }
            chunk => self.append(chunk, extras.by.clone(), extras.at, extras.usage),
        }
    }

    /// Appends an answer. Without `progress` it is unknown whether its calls were started.
    pub(super) fn push_answer(
        &mut self,
        answer: Assistant,
        extras: &Extras,
        progress: Option<&[EmbeddedChunk]>,
    ) -> StepId {
        self.track_calls(&answer, progress);
        self.append(Chunk::Assistant(answer), extras.by.clone(), extras.at, extras.usage)
    }

    /// Remembers the calls of an answer until they are closed.
    fn track_calls(&mut self, answer: &Assistant, progress: Option<&[EmbeddedChunk]>) {
        let first = self.calls.len();
        for (nth, call) in answer.calls.iter().enumerate().rev() {
            self.waiting.entry(call.id.clone()).or_default().push_front(first + nth);
        }
        let calls = answer.calls.iter().map(|call| TrackedCall {
            id: call.id.clone(),
            tool: call.tool.clone(),
            is_open: true,
            has_progress: progress.is_some(),
        });
        self.calls.extend(calls);
        self.progress.extend(progress.unwrap_or_default().iter().filter_map(EmbeddedChunk::decode));
    }

    /// Closes the call that a result belongs to. Returns false if there is none.
    fn close_call(&mut self, call: &CallId) -> bool {
        let index = self.waiting.get_mut(call).and_then(VecDeque::pop_front);
        index.into_iter().for_each(|index| self.calls[index].is_open = false);
        index.is_some()
    }

    /// Appends a result. Returns its step and whether an open call matched it.
    pub(super) fn push_result(&mut self, result: ToolResult, extras: &Extras) -> (StepId, bool) {
        let is_matched = self.close_call(&result.call);
        let step = self.append(Chunk::ToolResult(result), extras.by.clone(), extras.at, extras.usage);
        (step, is_matched)
    }

    /// Closes the calls that have no result although the agent continued, and returns their number.
    pub(super) fn close_abandoned_calls(&mut self) -> u64 {
        let abandoned: Vec<_> =
            self.calls.iter().filter(|call| call.is_open && !call.has_progress).map(|call| call.id.clone()).collect();
        for call in &abandoned {
            let result = ToolResult::new(call.clone(), Outcome::Unknown, "no result was recorded");
            self.push_result(result, &Extras::default());
        }
        abandoned.len() as u64
    }

    /// Adds the record of other work as an aside.
    pub(super) fn keep_aside(&mut self, work: &Record) {
        if self.record.head().is_none() {
            self.push_note("begins with work that is kept aside", None, None);
        }
        self.aside_count += 1;
        let merge = Merged::new(Strategy::Aside).with_nth(self.aside_count);
        let merged = self.record.merge(work, merge, Stamp::on(self.branch));
        self.record = merged.expect("neither open calls nor length prevent an aside");
    }

    /// Appends the progress of the calls that are open at the end.
    ///
    /// An open call whose progress the file does not give is marked as started, and noted.
    pub(super) fn mark_open_calls(&mut self, notes: &Notes) {
        let mut origins = CallOrigins::of(&self.record);
        for mut chunk in std::mem::take(&mut self.progress) {
            match &mut chunk {
                Chunk::ToolStarted(_) => {}
                Chunk::Approved(approved) => approved.origin = origins.take(&approved.call),
                Chunk::Denied(denied) => denied.origin = origins.take(&denied.call),
                _ => continue,
            }
            self.append(chunk, None, None, None);
        }
        let in_doubt: Vec<_> = self.calls.iter().filter(|call| call.is_open && !call.has_progress).collect();
        let started: Vec<_> = in_doubt.iter().map(|call| ToolStarted::new(call.id.clone())).collect();
        for call in in_doubt {
            let (id, tool) = (&call.id, &call.tool);
            notes.add(
                NoteCode::InDoubt,
                format!("call `{id}` ({tool}) has no result: it stays open, and whether it took effect is not known"),
            );
        }
        // The writer may have died while the call ran. A started call is repeated without asking only if its tool changes
        // nothing.
        started.into_iter().for_each(|started| _ = self.append(started.into(), None, None, None));
    }

    /// Returns the record.
    pub(super) fn into_record(self) -> Record {
        self.record
    }

    /// Returns the origin of the open call that a decision is about.
    fn origin_of(&self, call: &CallId) -> Option<CallOrigin> {
        let Next::RunTools(open) = turn::next(&self.record) else { return None };
        turn::call_to_decide(&open, call).map(|pending| pending.origin)
    }

    fn append(
        &mut self,
        mut chunk: Chunk,
        by: Option<Arc<str>>,
        at: Option<Timestamp>,
        usage: Option<Usage>,
    ) -> StepId {
        self.secrets.hide_in(&mut chunk);
        let by = by.map(|by| self.secrets.hide(&by).map_or(by, Arc::from));
        let mut stamp = Stamp::on(self.branch);
        (stamp.by, stamp.usage, stamp.at) = (by, usage, at);
        self.record.push(chunk, stamp).id()
    }
}

/// The origins of the open calls, by id, in the order in which decisions are about them.
struct CallOrigins(HashMap<CallId, VecDeque<CallOrigin>>);

impl CallOrigins {
    fn of(record: &Record) -> Self {
        let Next::RunTools(open) = turn::next(record) else { return CallOrigins(HashMap::new()) };
        let mut origins: HashMap<CallId, VecDeque<CallOrigin>> = HashMap::new();
        for pending in open.chunk_by(|one, next| one.origin.answer == next.origin.answer).rev().flatten() {
            origins.entry(pending.call.id.clone()).or_default().push_back(pending.origin);
        }
        CallOrigins(origins)
    }

    /// Returns the origin of the next call with this id. The last one stays: a further decision replaces the one before.
    fn take(&mut self, call: &CallId) -> Option<CallOrigin> {
        let origins = self.0.get_mut(call)?;
        if origins.len() > 1 { origins.pop_front() } else { origins.front().copied() }
    }
}
