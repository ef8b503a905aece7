//! A recorded session, and the progress of a program that repeats it.

mod answer;
mod calls;
mod divergence;
pub(crate) mod json_diff;

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use rath_record::chunk::{Chunk, Forked, Instructions, Merged, Strategy};
use rath_record::{CallId, CounterId, Digest, Step, StepId};

pub(crate) use answer::recorded_failure;
pub use calls::CallDifference;
pub(crate) use calls::{FilesAfter, ReplayDirs};
pub use divergence::Divergence;

use super::mirror::is_unseen_note;
use super::{BranchDirs, Error, Result, Session};
use crate::error::ErrorKind;
use crate::policy::ActivePolicy;
use crate::secrets::Secrets;

tokio::task_local! {
    /// The replay that runs in this task.
    ///
    /// A session that the program creates itself is attached to the replay through this: otherwise it would ask a model.
    static CURRENT: Arc<Replay>;
}

/// Returns the replay that runs in this task.
pub(crate) fn current() -> Option<Arc<Replay>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Runs `work` with a replay as the current one of its task.
pub(crate) fn with_current<F: Future>(replay: Arc<Replay>, work: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(replay, work)
}

/// A recorded session, and the progress of a program that repeats it.
///
/// The id of a step is a hash of its chunk and of all steps before it. So a program does the same as the recording as long
/// as the id of each step that it appends is in the recording: one lookup per step is enough.
pub(crate) struct Replay {
    steps: HashMap<StepId, Step>,
    /// The steps by their first parent; none is the parent of a first step.
    children: HashMap<Option<StepId>, Vec<StepId>>,
    /// The first step whose text was forgotten.
    forgotten: Option<StepId>,
    /// The directories in which tools run again; none if they do not run.
    dirs: Option<Arc<ReplayDirs>>,
    /// True if the replay ends at the first call that differs.
    stops_at_difference: bool,
    /// The values to hide in the output of tools.
    secrets: Secrets,
    /// The policy that hides files from tools.
    policy: Option<Arc<ActivePolicy>>,
    state: Mutex<ReplayState>,
}

#[derive(Default)]
struct ReplayState {
    /// The recorded steps that the replay reached, each with the run that appended it; none if the step was accepted from
    /// the recording.
    reached: HashMap<StepId, Option<u64>>,
    /// The number of the current run.
    run: u64,
    /// The step that the current run began at.
    from: Option<StepId>,
    /// The number of steps of the current run that are in the recording.
    matched_steps: u64,
    requests: u64,
    /// The number of requests that cannot be compared: a text before them was forgotten.
    forgotten_requests: u64,
    /// The calls that were made again, by the steps of their results, with the number of changed files that were compared.
    calls: HashMap<StepId, u64>,
    /// The differences of those calls.
    differences: Vec<CallDifference>,
    divergence: Option<Divergence>,
    /// The first action of the program on a line that is not in the recording.
    ///
    /// It is a divergence only if the program needs its result.
    unrecorded: Option<Divergence>,
    /// True if the program asked for a step that the recording does not have, while the recording continues in another way.
    ///
    /// The recorded run may have been cut short there, and the program started again.
    may_be_cut_short: bool,
    /// The number of tasks that wait for something that was never recorded.
    waiting: u64,
    /// The number of tools that are running.
    tools: u64,
    /// Wakes the driver.
    waker: Option<Waker>,
}

impl Replay {
    pub(crate) fn new(session: &Session, dirs: Option<Arc<ReplayDirs>>, stops_at_difference: bool) -> Arc<Self> {
        let lineage = session.lineage();
        let (mut steps, mut children) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for step in lineage.walk() {
            children.entry(parent(step)).or_default().push(step.id());
            steps.insert(step.id(), step.clone());
        }
        let forgotten = lineage.walk().into_iter().find(|step| step.withheld().is_some()).map(Step::id);
        let (secrets, policy) = (session.secrets().clone(), session.policy().cloned());
        Arc::new(Replay {
            steps,
            children,
            forgotten,
            dirs,
            stops_at_difference,
            secrets,
            policy,
            state: Mutex::default(),
        })
    }

    /// Returns the values to hide in the output of tools.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Returns the policy that hides files from tools.
    pub(crate) fn policy(&self) -> Option<&Arc<ActivePolicy>> {
        self.policy.as_ref()
    }

    /// Compares a step that the program appended with the recording.
    pub(crate) fn compare_step(&self, step: &Step) {
        let mut state = self.lock();
        if self.steps.contains_key(&step.id()) {
            state.matched_steps += 1;
            let run = state.run;
            state.reached.insert(step.id(), Some(run));
            return;
        }
        let has_known_parents = step.parents().iter().all(|parent| self.steps.contains_key(&parent.id()));
        // A session that the program creates itself is no divergence before a model is asked in it.
        let begins_session = step.parents().is_empty() && step.stamp().by.is_none();
        if !has_known_parents || begins_session {
            return;
        }
        let divergence = match self.expected(&state, step) {
            Some(expected) => Divergence::between(expected, step),
            None => Divergence::after_end(step.parents().first().map(|parent| parent.id()), step),
        };
        match step.chunk() {
            // A fork may have been dropped, and is not in the recording then.
            Chunk::Forked(_) => _ = state.unrecorded.get_or_insert(divergence),
            _ => _ = state.divergence.get_or_insert(divergence),
        }
    }

    /// Returns the recorded step of the same kind that comes next, if its text was forgotten, or if the program made its own from
    /// a forgotten text.
    ///
    /// Such a step cannot be compared, unless the program makes the forgotten text again: then the ids are equal.
    pub(crate) fn forgotten_instead_of(&self, found: &Step, json: &[u8]) -> Option<&Step> {
        if self.steps.contains_key(&found.id()) {
            return None;
        }
        let expected = self.expected(&self.lock(), found)?;
        let cannot_be_compared = || {
            expected.withheld().is_some()
                || std::str::from_utf8(json).is_ok_and(|json| self.is_from_forgotten(&expected.json(), json))
        };
        (expected.chunk().kind() == found.chunk().kind() && cannot_be_compared()).then_some(expected)
    }

    /// Returns true if the program made a text from one that was forgotten, and the recorded run did not.
    pub(crate) fn is_from_forgotten(&self, expected: &str, found: &str) -> bool {
        self.forgotten.is_some() && found.contains(Chunk::FORGOTTEN_TEXT) && !expected.contains(Chunk::FORGOTTEN_TEXT)
    }

    /// Returns true if the text of a recorded step was forgotten.
    pub(crate) fn is_forgotten(&self, step: StepId) -> bool {
        self.steps.get(&step).is_some_and(|step| step.withheld().is_some())
    }

    /// Returns the recorded step that should have come instead, preferring a chunk of the same kind.
    fn expected(&self, state: &ReplayState, found: &Step) -> Option<&Step> {
        // A step that was accepted from the recording may still be repeated by a run.
        let is_repeated = |step: &Step| matches!(state.reached.get(&step.id()), Some(Some(_)));
        let mut candidates = self.children(parent(found)).filter(|step| is_by_program(step) && !is_repeated(step));
        let first = candidates.clone().next();
        candidates.find(|step| step.chunk().kind() == found.chunk().kind()).or(first)
    }

    /// Returns the recorded steps after a step.
    fn children(&self, parent: Option<StepId>) -> impl Iterator<Item = &Step> + Clone {
        self.children.get(&parent).into_iter().flatten().map(|id| &self.steps[id])
    }

    /// Returns the next recorded step with a wanted chunk. `action` describes the action of the program.
    ///
    /// If nothing was recorded, because the work was abandoned there, this waits until it is dropped.
    pub(crate) async fn next_step(
        &self,
        session: &Session,
        action: impl FnOnce() -> String,
        wanted: impl Fn(&Chunk) -> bool,
    ) -> Result<Step> {
        self.ensure_not_diverged(session)?;
        match self.find_next(session.head(), action, wanted) {
            NextStep::Found(step) => Ok(step),
            NextStep::NeverRecorded => self.wait_forever().await,
            NextStep::Diverged => Err(self.divergence_error(session)),
        }
    }

    fn find_next(
        &self,
        head: Option<&Step>,
        action: impl FnOnce() -> String,
        wanted: impl Fn(&Chunk) -> bool,
    ) -> NextStep {
        let mut state = self.lock();
        let id = head.map(Step::id);
        if let Some(head) = id.filter(|head| !self.steps.contains_key(head)) {
            state.unrecorded.get_or_insert_with(|| Divergence::outside_recording(head, action()));
            return NextStep::NeverRecorded;
        }
        // Two tasks that continue from one step get different recorded steps, if there are two.
        let candidates = || self.children(id).filter(|step| wanted(step.chunk()));
        let unreached = candidates().find(|step| !state.reached.contains_key(&step.id()));
        if let Some(step) = unreached.or(candidates().next()) {
            return NextStep::Found(step.clone());
        }
        let Some(other) = self.children(id).find(|step| is_by_program(step) && !state.reached.contains_key(&step.id()))
        else {
            return NextStep::NeverRecorded;
        };
        let divergence = Divergence::unexpected_action(other, action());
        (state.divergence, state.may_be_cut_short) = (Some(divergence), true);
        NextStep::Diverged
    }

    /// Returns whether a recorded step after the session's head has a wanted chunk.
    pub(crate) fn next_is(&self, session: &Session, wanted: impl Fn(&Chunk) -> bool) -> bool {
        self.children(session.head().map(Step::id)).any(|step| wanted(step.chunk()))
    }

    /// Returns the recorded step that comes next, if its chunk is a wanted one.
    pub(crate) fn next_like(&self, session: &Session, wanted: impl Fn(&Chunk) -> bool) -> Option<Step> {
        self.children(session.head().map(Step::id)).find(|step| wanted(step.chunk())).cloned()
    }

    /// Returns the recorded look at the files, if it comes next.
    pub(crate) fn next_look(&self, session: &Session) -> Option<Step> {
        let is_look = |step: &&Step| matches!(step.chunk(), Chunk::Observed(_)) || is_unseen_note(step.chunk());
        self.children(session.head().map(Step::id)).find(is_look).cloned()
    }

    /// Returns the recorded decision about one of some calls, if it comes next.
    pub(crate) fn next_decision(&self, session: &Session, is_wanted: impl Fn(&CallId) -> bool) -> Option<Step> {
        let decides = |step: &&Step| match step.chunk() {
            Chunk::Approved(approved) => is_wanted(&approved.call),
            Chunk::Denied(denied) => is_wanted(&denied.call),
            Chunk::Asked(asked) => is_wanted(&asked.call),
            _ => false,
        };
        self.children(session.head().map(Step::id)).find(decides).cloned()
    }

    /// Waits until it is dropped, as the recorded task was.
    async fn wait_forever<T>(&self) -> T {
        let _guard = CountGuard::new(self, |state| &mut state.waiting);
        // The program may wait in a task of its own, which does not wake the driver.
        let waker = self.lock().waker.clone();
        waker.into_iter().for_each(Waker::wake);
        pending().await
    }

    /// Counts a running tool until the guard is dropped.
    pub(crate) fn begin_tool(&self) -> impl Drop + '_ {
        CountGuard::new(self, |state| &mut state.tools)
    }

    /// Fails if the program has diverged from the recording.
    pub(crate) fn ensure_not_diverged(&self, session: &Session) -> Result<()> {
        let has_diverged = self.lock().divergence.is_some();
        if has_diverged { Err(self.divergence_error(session)) } else { Ok(()) }
    }

    /// Stores a divergence, unless there is an earlier one, and returns the first as an error.
    pub(crate) fn diverge(&self, session: &Session, divergence: Divergence) -> Error {
        self.lock().divergence.get_or_insert(divergence);
        self.divergence_error(session)
    }

    fn divergence_error(&self, session: &Session) -> Error {
        let message = self.lock().divergence.as_ref().map(ToString::to_string).unwrap_or_default();
        Error::new(ErrorKind::Replay, message).with_session(session)
    }

    /// Counts a request that equals the recorded one.
    pub(crate) fn count_request(&self) {
        self.lock().requests += 1;
    }

    /// Counts a request that cannot be compared: a text before it was forgotten.
    pub(crate) fn count_forgotten_request(&self) {
        self.lock().forgotten_requests += 1;
    }

    /// Returns the directories in which tools run again; none if they do not run.
    pub(crate) fn branch_dirs(&self) -> Option<Arc<BranchDirs>> {
        self.dirs.as_ref().map(|dirs| dirs.branch_dirs().clone())
    }

    /// Returns the recorded merge of two steps.
    pub(crate) fn recorded_merge(&self, ours: StepId, theirs: StepId, strategy: Strategy) -> Option<Merged> {
        let merges_theirs = |step: &&Step| step.parents().get(1).is_some_and(|parent| parent.id() == theirs);
        self.children(Some(ours)).filter(merges_theirs).find_map(|step| match step.chunk() {
            Chunk::Merged(merged) if merged.strategy == strategy => Some(merged.clone()),
            _ => None,
        })
    }

    /// Accepts a recorded step and all its ancestors without repeating them.
    pub(crate) fn accept_step(&self, step: &Step) {
        let mut state = self.lock();
        let mut pending = vec![step];
        while let Some(step) = pending.pop() {
            if state.reached.contains_key(&step.id()) {
                continue;
            }
            state.reached.insert(step.id(), None);
            pending.extend(step.parents().iter().filter_map(|parent| parent.step()));
        }
    }

    /// Returns whether the replay reached a recorded step.
    pub(crate) fn is_reached(&self, step: StepId) -> bool {
        self.lock().reached.contains_key(&step)
    }

    /// Begins a run of the program.
    pub(crate) fn begin_run(&self, from: Option<StepId>) {
        let mut state = self.lock();
        state.from = from;
        (state.run, state.matched_steps, state.may_be_cut_short) = (state.run + 1, 0, false);
        (state.divergence, state.unrecorded) = (None, None);
    }

    /// Returns the number of steps of the current run that are in the recording.
    pub(crate) fn matched_steps(&self) -> u64 {
        self.lock().matched_steps
    }

    pub(crate) fn requests(&self) -> u64 {
        self.lock().requests
    }

    pub(crate) fn forgotten_requests(&self) -> u64 {
        self.lock().forgotten_requests
    }

    pub(crate) fn divergence(&self) -> Option<Divergence> {
        self.lock().divergence.clone()
    }

    /// Returns the first step whose text was forgotten.
    pub(crate) fn first_forgotten(&self) -> Option<StepId> {
        self.forgotten
    }

    /// Returns whether the recorded run may have been cut short where the current run diverged.
    pub(crate) fn may_be_cut_short(&self) -> bool {
        self.lock().may_be_cut_short
    }

    pub(crate) fn set_divergence(&self, divergence: Divergence) {
        self.lock().divergence = Some(divergence);
    }

    /// Returns the reason why a run is pending. `waker` is woken when the reason may have changed.
    pub(crate) fn pending_cause(&self, waker: &Waker) -> PendingCause {
        let mut state = self.lock();
        state.waker = Some(waker.clone());
        if state.divergence.is_some() {
            return PendingCause::Stuck;
        }
        if state.waiting == 0 || state.tools > 0 {
            return PendingCause::Outside;
        }
        let is_by_this_run = |id: StepId| state.from == Some(id) || state.reached.get(&id) == Some(&Some(state.run));
        let mut unreached =
            self.steps.values().filter(|step| is_by_program(step) && !state.reached.contains_key(&step.id()));
        let may_continue = unreached.any(|step| parent(step).is_some_and(is_by_this_run));
        match may_continue {
            true => PendingCause::OtherPart { matched_steps: state.matched_steps },
            false => PendingCause::Stuck,
        }
    }

    /// Returns the first action of the program on a line that is not in the recording.
    pub(crate) fn first_unrecorded(&self) -> Option<Divergence> {
        self.lock().unrecorded.clone()
    }

    /// Returns the counter by which a run that appended `next` after a step counted the forks there.
    pub(crate) fn counter_at(&self, step: Option<StepId>, next: &Step) -> Option<CounterId> {
        // If several programs continued from the step, the one that appended `next` is meant.
        let by_program = self.children(step).filter(|step| is_by_program(step));
        let counter = std::iter::once(next).chain(by_program).find_map(|step| match step.chunk() {
            Chunk::Forked(forked) => Some(forked.counter),
            Chunk::Merged(merged) => Some(merged.counter),
            Chunk::Detached(detached) => Some(detached.counter),
            _ => None,
        });
        counter.flatten()
    }

    /// Returns how many forks a step had when the program came there, as far as the program's own forks show it.
    pub(crate) fn earlier_forks(&self, step: Option<StepId>, by: Option<CounterId>) -> u64 {
        let forks = self.children(step).filter(|step| is_by_program(step)).filter_map(|step| match step.chunk() {
            Chunk::Forked(Forked { nth, counter, .. }) if *counter == by => Some(nth.saturating_sub(1)),
            _ => None,
        });
        forks.min().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, ReplayState> {
        // No code panics while it holds the lock half updated, so a poisoned state is valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Returns true in a replay if these are the instructions of a step whose text was forgotten, and the recorded run did not give
    /// them again.
    pub(crate) fn is_repeated(&self, step: &Step, instructions: &Instructions) -> bool {
        let Some(replay) = self.replaying() else { return false };
        let digest = || {
            let mut json = Vec::new();
            Chunk::from(instructions.clone()).encode(&mut json);
            Digest::compute(&json)
        };
        step.withheld().is_some_and(|withheld| withheld == digest())
            && !replay.next_is(self, |chunk| matches!(chunk, Chunk::Instructions(_)))
    }
}

/// The reason why a run is pending.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum PendingCause {
    /// The run waits for something outside of the recording: a tool, a clock.
    Outside,
    /// One part of the run waits for something that was never recorded, and another part may still continue.
    ///
    /// A change of `matched_steps` between two polls shows that the other part continues.
    OtherPart { matched_steps: u64 },
    /// The run waits for something that was never recorded, or has diverged.
    Stuck,
}

/// The result of looking for the next recorded step.
enum NextStep {
    Found(Step),
    /// Nothing follows in the recording, or only steps from outside.
    NeverRecorded,
    /// A step with another chunk follows. The divergence is stored.
    Diverged,
}

/// A guard that increments a counter of the state, and decrements it when it is dropped.
struct CountGuard<'a> {
    replay: &'a Replay,
    count: fn(&mut ReplayState) -> &mut u64,
}

impl<'a> CountGuard<'a> {
    fn new(replay: &'a Replay, count: fn(&mut ReplayState) -> &mut u64) -> Self {
        *count(&mut replay.lock()) += 1;
        CountGuard { replay, count }
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        *(self.count)(&mut self.replay.lock()) -= 1;
    }
}

/// Returns the first parent of a step.
fn parent(step: &Step) -> Option<StepId> {
    step.parents().first().map(|parent| parent.id())
}

/// Returns whether a module of the program appended the step. Other steps came from outside.
pub(crate) fn is_by_program(step: &Step) -> bool {
    step.stamp().by.is_some()
}

/// Returns whether the chunk adds an aside to the record.
pub(crate) fn is_aside(chunk: &Chunk) -> bool {
    matches!(chunk, Chunk::Merged(merged) if merged.strategy == Strategy::Aside)
}
