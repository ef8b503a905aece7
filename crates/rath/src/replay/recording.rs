//! A recorded session as what a program is held against.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use rath_record::chunk::{Chunk, Forked, Merged, Strategy};
use rath_record::{Record, Step, StepId};

use super::divergence::Divergence;
use crate::error::ErrorKind;
use crate::sandbox::Sandbox;
use crate::secrets::Secrets;
use crate::session::BranchDirs;
use crate::session::Session;
use crate::session::{Error, Result};

/// A recorded session, and how far a program has come in doing the same again.
///
/// A step's name is made of what it says and of all that came before it. So a program does the same as long as each step
/// that it appends has a name that is in the recording, and one comparison tells.
pub(crate) struct Replay {
    steps: HashMap<StepId, Step>,
    /// The steps that follow each, and those that follow none, by their first parent.
    after: HashMap<Option<StepId>, Vec<StepId>>,
    /// Where tools run again, if they do.
    branch_dirs: Option<Arc<BranchDirs>>,
    /// What must not be shown of what tools say.
    secrets: Secrets,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The steps that came about again, each with the run that brought it; none where it was taken as it is.
    seen: HashMap<StepId, Option<u64>>,
    run: u64,
    /// The step that this run went on from.
    from: Option<StepId>,
    /// How many steps this run has appended that are in the recording.
    same: u64,
    requests: u64,
    divergence: Option<Divergence>,
    /// The first thing that the program does on a line that is not in the recording. It is a divergence if the program has
    /// to wait for what comes of it.
    lost: Option<Divergence>,
    /// Whether the program waits for something that the recording has not got, while it goes on in another way: the run may
    /// have been cut short there, and the program run again.
    cut: bool,
    /// How many wait for something that never came in the recording.
    waiting: u64,
    /// How many tools run.
    tools: u64,
    /// Wakes whoever runs the program.
    waker: Option<Waker>,
}

impl Replay {
    pub(super) fn of(record: &Record, sandbox: Option<Sandbox>, secrets: Secrets) -> Arc<Self> {
        let lineage = record.lineage();
        let (mut steps, mut after) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for step in lineage.walk() {
            after.entry(parent(step)).or_default().push(step.id());
            steps.insert(step.id(), step.clone());
        }
        let branch_dirs = sandbox.map(|sandbox| Arc::new(BranchDirs::new(sandbox)));
        Arc::new(Replay { steps, after, branch_dirs, secrets, state: Mutex::default() })
    }

    /// What must not be shown of what tools say.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Takes note of a step that the program has appended.
    pub(crate) fn see(&self, step: &Step) {
        let mut state = self.lock();
        if self.steps.contains_key(&step.id()) {
            state.same += 1;
            let run = state.run;
            state.seen.insert(step.id(), Some(run));
            return;
        }
        let known = step.parents().iter().all(|parent| self.steps.contains_key(&parent.id()));
        // A session that was begun by hand may be meant for anything. It matters when a model is asked in it.
        let begun = step.parents().is_empty() && step.stamp().by.is_none();
        if !known || begun {
            return;
        }
        let divergence = match self.expected(&state, step) {
            Some(expected) => Divergence::between(expected, step),
            None => Divergence::beyond(step.parents().first().map(|parent| parent.id()), step),
        };
        match step.chunk() {
            // What is done on a fork may be dropped, and then it is on no record.
            Chunk::Forked(_) => _ = state.lost.get_or_insert(divergence),
            _ => _ = state.divergence.get_or_insert(divergence),
        }
    }

    /// The recorded step that should have come instead: one that says something of the same kind, if there is one.
    fn expected(&self, state: &State, found: &Step) -> Option<&Step> {
        // What was taken as it is has not been done yet.
        let done = |step: &Step| matches!(state.seen.get(&step.id()), Some(Some(_)));
        let mut missed = self.children(parent(found)).filter(|step| is_program(step) && !done(step));
        let first = missed.clone().next();
        missed.find(|step| step.chunk().kind() == found.chunk().kind()).or(first)
    }

    fn children(&self, of: Option<StepId>) -> impl Iterator<Item = &Step> + Clone {
        self.after.get(&of).into_iter().flatten().map(|id| &self.steps[id])
    }

    /// The recorded step that comes next, for what only the recording knows. `doing` is what the program does.
    ///
    /// Where nothing came, because the work was given up there, nothing comes.
    pub(crate) async fn next(
        &self,
        session: &Session,
        doing: impl FnOnce() -> String,
        wanted: impl Fn(&Chunk) -> bool,
    ) -> Result<Step> {
        self.check(session)?;
        match self.upcoming(session.head(), doing, wanted) {
            Upcoming::Step(step) => Ok(step),
            Upcoming::Nothing => self.wait().await,
            Upcoming::Different => Err(self.error(session)),
        }
    }

    fn upcoming(
        &self,
        head: Option<&Step>,
        doing: impl FnOnce() -> String,
        wanted: impl Fn(&Chunk) -> bool,
    ) -> Upcoming {
        let mut state = self.lock();
        let id = head.map(Step::id);
        if let Some(head) = id.filter(|head| !self.steps.contains_key(head)) {
            state.lost.get_or_insert_with(|| Divergence::off_the_record(head, doing()));
            return Upcoming::Nothing;
        }
        // Two who go on from one step do not do the same twice.
        let fits = || self.children(id).filter(|step| wanted(step.chunk()));
        if let Some(step) = fits().find(|step| !state.seen.contains_key(&step.id())).or(fits().next()) {
            return Upcoming::Step(step.clone());
        }
        let Some(other) = self.children(id).find(|step| is_program(step) && !state.seen.contains_key(&step.id()))
        else {
            return Upcoming::Nothing;
        };
        (state.divergence, state.cut) = (Some(Divergence::instead(other, doing())), true);
        Upcoming::Different
    }

    /// Whether what comes next is one of these.
    pub(super) fn comes(&self, session: &Session, wanted: impl Fn(&Chunk) -> bool) -> bool {
        self.children(session.head().map(Step::id)).any(|step| wanted(step.chunk()))
    }

    /// Waits for what never came. Whoever waits is dropped, as in the recording.
    async fn wait<T>(&self) -> T {
        let _waiting = Counted::new(self, |state| &mut state.waiting);
        // It may wait in a task of its own.
        let waker = self.lock().waker.clone();
        waker.into_iter().for_each(Waker::wake);
        pending().await
    }

    /// Says that a tool runs, as long as what it gives is there.
    pub(crate) fn tool_runs(&self) -> impl Drop + '_ {
        Counted::new(self, |state| &mut state.tools)
    }

    /// An error if the program has done something else than the recording.
    pub(crate) fn check(&self, session: &Session) -> Result<()> {
        let diverged = self.lock().divergence.is_some();
        if diverged { Err(self.error(session)) } else { Ok(()) }
    }

    /// Notes that the program does something else, if it is the first time, and says so.
    pub(crate) fn diverge(&self, session: &Session, divergence: Divergence) -> Error {
        self.lock().divergence.get_or_insert(divergence);
        self.error(session)
    }

    fn error(&self, session: &Session) -> Error {
        let told = self.lock().divergence.as_ref().map(ToString::to_string).unwrap_or_default();
        Error::new(ErrorKind::Replay, told).with_session(session)
    }

    /// Counts a request that is the recorded one.
    pub(super) fn count_request(&self) {
        self.lock().requests += 1;
    }

    /// Where tools run again, if they do.
    pub(crate) fn branch_dirs(&self) -> Option<Arc<BranchDirs>> {
        self.branch_dirs.clone()
    }

    /// What came of joining these two.
    pub(crate) fn merged(&self, ours: StepId, theirs: StepId, strategy: Strategy) -> Option<Merged> {
        let joins = |step: &&Step| step.parents().get(1).is_some_and(|parent| parent.id() == theirs);
        self.children(Some(ours)).filter(joins).find_map(|step| match step.chunk() {
            Chunk::Merged(merged) if merged.strategy == strategy => Some(merged.clone()),
            _ => None,
        })
    }

    /// Takes a recorded step, and all that it came of, as it is.
    pub(crate) fn take(&self, step: &Step) {
        let mut state = self.lock();
        let mut open = vec![step];
        while let Some(step) = open.pop() {
            if state.seen.contains_key(&step.id()) {
                continue;
            }
            state.seen.insert(step.id(), None);
            open.extend(step.parents().iter().filter_map(|parent| parent.step()));
        }
    }

    pub(super) fn is_seen(&self, step: StepId) -> bool {
        self.lock().seen.contains_key(&step)
    }

    /// Begins a run of the program.
    pub(super) fn begin(&self, from: Option<StepId>) {
        let mut state = self.lock();
        state.from = from;
        (state.run, state.same, state.cut) = (state.run + 1, 0, false);
        (state.divergence, state.lost) = (None, None);
    }

    /// How many steps this run has appended that are in the recording.
    pub(super) fn same(&self) -> u64 {
        self.lock().same
    }

    pub(super) fn requests(&self) -> u64 {
        self.lock().requests
    }

    pub(super) fn divergence(&self) -> Option<Divergence> {
        self.lock().divergence.clone()
    }

    /// Whether a run that did something else may have been cut short there, and the program run again.
    pub(super) fn may_be_cut(&self) -> bool {
        self.lock().cut
    }

    pub(super) fn set_divergence(&self, divergence: Divergence) {
        self.lock().divergence = Some(divergence);
    }

    /// What a run that waits waits for.
    pub(super) fn waits_for(&self, waker: &Waker) -> WaitsFor {
        let mut state = self.lock();
        state.waker = Some(waker.clone());
        if state.divergence.is_some() {
            return WaitsFor::Nothing;
        }
        if state.waiting == 0 || state.tools > 0 {
            return WaitsFor::ItsOwn;
        }
        let by_this_run = |id: StepId| state.from == Some(id) || state.seen.get(&id) == Some(&Some(state.run));
        let mut missed = self.steps.values().filter(|step| is_program(step) && !state.seen.contains_key(&step.id()));
        let goes_on = missed.any(|step| parent(step).is_some_and(by_this_run));
        if goes_on { WaitsFor::Others(state.same) } else { WaitsFor::Nothing }
    }

    /// The first thing that the program does on a line that is not in the recording.
    pub(super) fn lost(&self) -> Option<Divergence> {
        self.lock().lost.clone()
    }

    /// How many forks had left a step when the program came there, as far as those that it made itself tell.
    pub(super) fn left(&self, step: Option<StepId>) -> u64 {
        let forks = self.children(step).filter(|step| is_program(step)).filter_map(|step| match step.chunk() {
            Chunk::Forked(Forked { nth, .. }) => Some(nth.saturating_sub(1)),
            _ => None,
        });
        forks.min().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whatever panics elsewhere, what stands here is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a run waits for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum WaitsFor {
    /// Something that has nothing to do with the recording: a tool, a clock.
    ItsOwn,
    /// What never came, in one part of it, while another may still have something to do, which is known by how many steps
    /// it has appended.
    Others(u64),
    /// What never came, or the program does something else by now.
    Nothing,
}

enum Upcoming {
    Step(Step),
    /// Nothing followed, or only what came from outside.
    Nothing,
    /// Something that does not fit. It is noted.
    Different,
}

/// Counts as long as it is there.
struct Counted<'a> {
    replay: &'a Replay,
    count: fn(&mut State) -> &mut u64,
}

impl<'a> Counted<'a> {
    fn new(replay: &'a Replay, count: fn(&mut State) -> &mut u64) -> Self {
        *count(&mut replay.lock()) += 1;
        Counted { replay, count }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        *(self.count)(&mut self.replay.lock()) -= 1;
    }
}

fn parent(step: &Step) -> Option<StepId> {
    step.parents().first().map(|parent| parent.id())
}

/// Whether a module appended it: what nobody appended came from outside.
pub(super) fn is_program(step: &Step) -> bool {
    step.stamp().by.is_some()
}

/// Whether it puts the work of others on the record.
pub(crate) fn is_aside(chunk: &Chunk) -> bool {
    matches!(chunk, Chunk::Merged(merged) if merged.strategy == Strategy::Aside)
}
