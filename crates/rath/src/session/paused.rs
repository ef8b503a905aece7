//! Calls that run workflows, and wait because a call in such a workflow waits for a person.
//!
//! A call below another is named by both: `outer/inner`. Decisions about it are recorded in the outer session, and handed to
//! the inner one when it goes on.

use std::sync::Arc;

use rath_record::chunk::{Chunk, Strategy, ToolResult};
use rath_record::turn::{Next, PendingCall, Progress};
use rath_record::{CallId, Record, Step};

use super::Session;

impl Session {
    /// Returns the calls without a result, in order. Those of a workflow that a call runs are named by both: `outer/inner`.
    pub fn open_calls(&self) -> Vec<PendingCall> {
        let Next::RunTools(pending) = self.next() else { return Vec::new() };
        let expand = |pending: PendingCall| {
            let below = match pending.progress {
                Progress::Paused { .. } => self.calls_below(&pending.call.id),
                _ => Vec::new(),
            };
            if below.is_empty() { vec![pending] } else { below }
        };
        pending.into_iter().flat_map(expand).collect()
    }

    /// Returns the open calls of the workflows that a paused call runs.
    fn calls_below(&self, outer: &CallId) -> Vec<PendingCall> {
        let calls = self.paused_work(outer).into_iter().flat_map(|work| work.open_calls());
        calls
            .map(|mut pending| {
                pending.call.id = CallId::from(format!("{outer}/{}", pending.call.id));
                pending
            })
            .collect()
    }

    /// Returns the sessions of the workflows that a paused call runs, with the decisions that were made since.
    pub(crate) fn paused_work(&self, outer: &CallId) -> Vec<Session> {
        let is_start = |chunk: &Chunk| matches!(chunk, Chunk::ToolStarted(started) if started.call == *outer);
        let mut since: Vec<&Step> =
            self.as_record().newest_first().take_while(|step| !is_start(step.chunk())).collect();
        since.reverse();
        let mut work: Vec<Session> = Vec::new();
        for step in since {
            match step.chunk() {
                Chunk::Merged(merged) if merged.strategy == Strategy::Aside && merged.call.as_ref() == Some(outer) => {
                    let kept = step.parents().get(1).and_then(|kept| kept.step());
                    work.extend(kept.map(|kept| self.at_work(kept)));
                }
                chunk => {
                    if let Some(decision) = decision_below(outer, chunk) {
                        hand_down(&mut work, decision);
                    }
                }
            }
        }
        work
    }

    /// Returns a session at a step of its work aside, with the live state of this session, and not recorded.
    fn at_work(&self, head: &Step) -> Session {
        let own = Session::resume_own(Record::at(head.clone()));
        let mut session = Session { record: own.record, branch: own.branch, placed: Arc::default(), ..self.quiet() };
        session.live.place = self.live.place.within(self);
        session.live.recorder = None;
        session.live.ownership = self.live.ownership;
        session.by = None;
        session.deeper()
    }

    /// Returns true if this is the session of a workflow with this name, run on this task.
    pub(crate) fn is_work_on(&self, name: &str, task: &str) -> bool {
        let steps = self.as_record().steps();
        let mut names = steps.iter().filter_map(|step| match step.chunk() {
            Chunk::Forked(forked) => Some(forked.name.as_deref()),
            _ => None,
        });
        let mut tasks = steps.iter().filter_map(|step| match step.chunk() {
            Chunk::User(user) => Some(user.text.as_str()),
            _ => None,
        });
        names.next() == Some(Some(name)) && tasks.next() == Some(Some(task))
    }
}

/// Returns a decision about a call below `outer`, as the inner session records it.
fn decision_below(outer: &CallId, chunk: &Chunk) -> Option<Chunk> {
    let below = |call: &CallId| {
        let call = call.0.strip_prefix(&*outer.0)?.strip_prefix('/')?;
        Some(CallId::from(call))
    };
    Some(match chunk {
        Chunk::Approved(it) => Chunk::Approved({
            let mut it = it.clone();
            it.call = below(&it.call)?;
            it
        }),
        Chunk::Denied(it) => Chunk::Denied({
            let mut it = it.clone();
            it.call = below(&it.call)?;
            it
        }),
        Chunk::ToolResult(it) => ToolResult::new(below(&it.call)?, it.outcome, it.output.clone()).into(),
        _ => return None,
    })
}

/// Appends a decision to the first session that has the call.
fn hand_down(work: &mut [Session], decision: Chunk) {
    let (call, origin) = match &decision {
        Chunk::Approved(it) => (it.call.clone(), it.origin),
        Chunk::Denied(it) => (it.call.clone(), it.origin),
        Chunk::ToolResult(it) => (it.call.clone(), None),
        _ => return,
    };
    let is_meant =
        |pending: &PendingCall| pending.call.id == call && origin.is_none_or(|origin| pending.origin == origin);
    let has_call = |session: &&mut Session| session.open_calls().iter().any(is_meant);
    if let Some(session) = work.iter_mut().find(has_call) {
        session.push(decision);
    }
}
