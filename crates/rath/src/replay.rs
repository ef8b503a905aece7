//! Repeating a recorded session and comparing the result.
//!
//! The id of a step is a hash of its chunk and of all steps before it; time, cost and author are not hashed. So the same
//! program over the same answers ends at the same id. If it does not, the first step that is not in the recording shows
//! the difference.
//!
//! - [`Session::rebuild`] needs no program: it rebuilds everything that follows from the steps alone.
//! - [`Session::replay`] runs the program again. Models, tools and memories give their recorded answers.
//! - [`ReplayBuilder::reexecuting`] runs the tools too, and compares their results and the files that they change.
//! - [`Session::repeat`] makes the recorded calls again without the program.
//! - [`Session::compare`] compares two sessions that differ on purpose: fork with [`Session::at`], continue, and compare.

mod comparison;
mod rebuild;
mod repeat;

use std::collections::HashSet;
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rath_record::chunk::{Chunk, Forked};
use rath_record::{Step, StepId};
use tokio::time::{Sleep, sleep};

pub use crate::session::{CallDifference, Divergence};
pub use comparison::SessionComparison;
pub use rebuild::{RebuildDifference, RebuildReport};
pub use repeat::{RepeatBuilder, RepeatReport};

use crate::error::ErrorKind;
use crate::flow::Run;
use crate::sandbox::Sandbox;
use crate::session::recording::{self, PendingCause, Replay, is_by_program};
use crate::session::{Error, ForkCounter, ReplayDirs, Result, Session};
use repeat::{Compared, ComparisonEnd};

impl Session {
    /// Runs a workflow again over the recorded answers of models, tools and memories. Await the builder for the report.
    ///
    /// No provider, tool or memory is called. Steps that no module appended (user messages, decisions, forks and merges
    /// outside of a workflow) are taken from the recording, and the workflow is run wherever a module continued from them.
    /// So a session that was run several times, or interrupted and resumed, is replayed as one.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// # async fn example() -> Result<()> {
    /// let agent = |prompt: &str| Ok::<_, Error>(Agent::new(prompt, &Script::of([r#"{"text": "The Seine."}"#])?.into()));
    /// let session = agent("Be brief.")?.run(Session::user("Which river runs through Paris?")).await?;
    /// assert!(session.replay(&agent("Be brief.")?).await?.is_exact());
    ///
    /// let report = session.replay(&agent("Be long.")?).await?;
    /// assert_eq!(report.divergence.expect("the prompt differs").pointer, "/text");
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn replay<'a>(&self, workflow: &'a dyn Run) -> ReplayBuilder<'a> {
        ReplayBuilder { session: self.clone(), workflow, sandbox: None, stops_at_difference: false }
    }
}

/// A replay that has not begun. Awaiting it runs it.
///
/// Returned by [`Session::replay`].
#[must_use = "a replay does nothing until it is awaited"]
pub struct ReplayBuilder<'a> {
    session: Session,
    workflow: &'a dyn Run,
    sandbox: Option<Sandbox>,
    stops_at_difference: bool,
}

impl<'a> ReplayBuilder<'a> {
    /// Runs the tools again, in this sandbox instead of the recorded ones, and compares their results and the files that they
    /// change.
    ///
    /// Calls are made one after the other, in the order of the recorded results, and start from the recorded files if the
    /// directory of the sandbox is empty. The model still reads the recorded results, so the replay goes on after a call that
    /// differs. Calls that timed out or were cancelled are not made.
    pub fn reexecuting(mut self, sandbox: impl Into<Sandbox>) -> Self {
        self.sandbox = Some(sandbox.into());
        self
    }

    /// Stops at the first call that differs.
    pub fn stop_at_first(mut self) -> Self {
        self.stops_at_difference = true;
        self
    }

    async fn run(self) -> Result<ReplayReport> {
        let ReplayBuilder { session, workflow, sandbox, stops_at_difference } = self;
        let lineage = session.lineage();
        if let [missing, ..] = &lineage.missing()[..] {
            let message = format!("step {} is missing, and the steps after it cannot be replayed", missing.short());
            return Err(Error::new(ErrorKind::Replay, message)
                .with_hint("open the session from a file without damage")
                .with_session(&session));
        }
        let dirs = match sandbox {
            Some(sandbox) => Some(ReplayDirs::open(&session, sandbox).await?),
            None => None,
        };
        let makes_calls = dirs.is_some();
        let replay = Replay::new(&session, dirs, stops_at_difference);
        let mut driver = Driver { replay: &replay, workflow, ended: HashSet::new(), cuts: Vec::new() };
        driver.drive(session.head()).await;
        let cuts = driver.cuts;
        let (requests, forgotten_requests) = (replay.requests(), replay.forgotten_requests());
        let differences = replay.call_differences();
        // The replay has stopped at a call that differs, which is reported as that.
        let divergence = replay.divergence().filter(|_| !stops_at_difference || differences.is_empty());
        let divergence = divergence.map(|divergence| match replay.first_forgotten() {
            Some(forgotten) => divergence.after_forgotten(forgotten),
            None => divergence,
        });
        let calls = makes_calls.then(|| replay.same_calls());
        let steps = lineage.walk().into_iter().filter(|step| replay.is_reached(step.id())).count() as u64;
        Ok(ReplayReport {
            head: session.head().map(Step::id),
            steps,
            requests,
            forgotten_requests,
            calls,
            cuts,
            differences,
            divergence,
        })
    }
}

impl<'a> IntoFuture for ReplayBuilder<'a> {
    type Output = Result<ReplayReport>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<ReplayReport>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// The result of a replay.
///
/// See [`Session::replay`] for an example.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReplayReport {
    /// The head of the recording.
    pub head: Option<StepId>,
    /// The number of recorded steps that the replay reached.
    pub steps: u64,
    /// The number of requests that were rendered again, each equal to the recorded one byte for byte.
    pub requests: u64,
    /// The number of requests that cannot be compared: a text before them was forgotten.
    pub forgotten_requests: u64,
    /// The number of calls that did the same as when they were recorded, and of the files that they changed; none if no call was
    /// made again.
    pub calls: Option<(u64, u64)>,
    /// The steps at which a run was cut short, as by a crash, and the program was started again from its beginning.
    ///
    /// This is how the recording can be read; it may have other explanations.
    pub cuts: Vec<StepId>,
    /// The calls that differ from the recorded ones.
    pub differences: Vec<CallDifference>,
    /// The first difference between the program and the recording.
    pub divergence: Option<Divergence>,
}

impl ReplayReport {
    /// Returns whether the program did the same as the recording and ended at the same step.
    pub fn is_exact(&self) -> bool {
        self.divergence.is_none() && self.differences.is_empty()
    }
}

/// Writes one line for an exact replay, and otherwise every difference and the divergence.
impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        CallDifference::write_all(&self.differences, f)?;
        self.divergence.iter().try_for_each(|divergence| writeln!(f, "{divergence}"))?;
        let compared = Compared { requests: self.requests, forgotten: self.forgotten_requests, calls: self.calls };
        let rest = match &self.divergence {
            Some(_) => ComparisonEnd::Divergence,
            None if self.differences.is_empty() => ComparisonEnd::Nothing,
            None => ComparisonEnd::Differences,
        };
        compared.write(f, rest)?;
        let cuts = self.cuts.iter().map(StepId::short).collect::<Vec<_>>();
        if cuts.is_empty() { Ok(()) } else { write!(f, "; cut short and run again at {}", cuts.join(", ")) }
    }
}

/// A driver that takes outside steps from the recording, and runs the program where the program continued.
struct Driver<'a> {
    replay: &'a Arc<Replay>,
    workflow: &'a dyn Run,
    /// The steps at which the program ended.
    ended: HashSet<StepId>,
    /// The steps at which a run was cut short.
    cuts: Vec<StepId>,
}

/// The state of a session in which a recorded run may have begun.
struct RunStart {
    /// The count of the forks that the head had before.
    forks: ForkCounter,
    /// The fork that the run began with.
    opening: Option<Forked>,
}

impl Driver<'_> {
    async fn drive(&mut self, head: Option<&Step>) {
        // A line that was merged from outside comes before the step that merges it.
        let mut lines: Vec<_> = head.into_iter().map(|head| self.line(head)).collect();
        // The divergence of a run that waits for something that was never recorded, and the step that the run began at. The
        // recorded run may have been cut short there and started again: then the new run comes next.
        let mut cut: Option<(Divergence, Option<StepId>)> = None;
        while let Some(line) = lines.last_mut() {
            let Some(step) = line.last().cloned() else {
                lines.pop();
                continue;
            };
            if self.replay.is_reached(step.id()) {
                line.pop();
                continue;
            }
            if is_by_program(&step) {
                let from = step.parents().first().map(|parent| parent.id());
                if cut.as_ref().is_some_and(|(_, before)| *before == from) {
                    break;
                }
                self.run_to(&step).await;
                if cut.is_some() {
                    if self.replay.matched_steps() == 0 {
                        break;
                    }
                    self.cuts.extend(from);
                }
                cut = self.replay.divergence().map(|divergence| (divergence, from));
                if cut.is_some() && !self.replay.may_be_cut_short() {
                    break;
                }
            } else if cut.is_some() {
                break;
            } else {
                let theirs = step.parents().get(1).and_then(|theirs| theirs.step());
                match theirs.filter(|theirs| !self.replay.is_reached(theirs.id())) {
                    Some(theirs) => lines.push(self.line(theirs)),
                    None => self.replay.accept_step(&step),
                }
            }
        }
        if let Some((divergence, _)) = cut {
            self.replay.set_divergence(divergence);
        }
    }

    /// Returns the steps up to `head` that are not reached yet, newest first, along the first parents.
    fn line(&self, head: &Step) -> Vec<Step> {
        let ancestors =
            std::iter::successors(Some(head), |step| step.parents().first().and_then(|parent| parent.step()));
        ancestors.take_while(|step| !self.replay.is_reached(step.id())).cloned().collect()
    }

    /// Runs the program from the step at which it was run when it appended `step`.
    async fn run_to(&mut self, step: &Step) {
        let from = step.parents().first().and_then(|parent| parent.step());
        let mut outcome = RunOutcome::Abandoned;
        let mut starts = self.starts(step, from.map(Step::id)).into_iter().peekable();
        while let Some(start) = starts.next() {
            self.replay.begin_run(from.map(Step::id));
            let session = Session::replayed(from, start.forks, start.opening, self.replay);
            outcome = self.run(session, starts.peek().is_none()).await;
            // A run that differs from its first step on may have begun in another state.
            let differs = self.replay.divergence().is_some() || self.replay.first_unrecorded().is_some();
            if !differs || self.replay.matched_steps() > 0 {
                break;
            }
        }
        let error = match &outcome {
            RunOutcome::Done(_) | RunOutcome::Abandoned => None,
            RunOutcome::Failed(error) => Some(error.message()),
        };
        // The program had ended at this step, so the recorded step after it is missing from the program. The divergence of
        // a run from there would be misleading.
        let had_ended = self.replay.matched_steps() == 0 && from.is_some_and(|from| self.ended.contains(&from.id()));
        match self.replay.divergence() {
            Some(_) if had_ended => self.replay.set_divergence(Divergence::ended_early(step, None)),
            Some(_) => {}
            None if !self.replay.is_reached(step.id()) => {
                let unrecorded = self.replay.first_unrecorded();
                self.replay
                    .set_divergence(unrecorded.unwrap_or_else(|| Divergence::ended_early(step, error.as_deref())));
            }
            None => {
                if let RunOutcome::Done(session) = &outcome {
                    self.ended.extend(session.head().map(Step::id));
                }
            }
        }
    }

    /// Returns the states in which the run may have begun, the likely ones first.
    fn starts(&self, step: &Step, from: Option<StepId>) -> Vec<RunStart> {
        let start = |counter, count: u64, opening| {
            let forks = ForkCounter { id: counter, count: count.into() };
            RunStart { forks, opening }
        };
        // The program made the head, or had read it from a store.
        let counter = self.replay.counter_at(from, step);
        let mut starts = vec![start(counter, 0, None)];
        // The session had been forked there before the run.
        let earlier = self.replay.earlier_forks(from, counter);
        starts.extend((earlier > 0).then(|| start(counter, earlier, None)));
        // The program was run on a fork, which is recorded with its first step.
        if let Chunk::Forked(forked) = step.chunk() {
            starts.push(start(forked.counter, forked.nth, Some(forked.clone())));
        }
        starts
    }

    /// Runs the program once.
    ///
    /// A run that stalls before its first recorded step is abandoned at once, unless `is_last`: then there is no other way
    /// to begin it.
    async fn run(&self, session: Session, is_last: bool) -> RunOutcome {
        let mut run = pin!(recording::with_current(self.replay.clone(), self.workflow.run(session)));
        let mut stall: Option<(u64, Pin<Box<Sleep>>)> = None;
        poll_fn(|context| {
            match run.as_mut().poll(context) {
                Poll::Ready(Ok(session)) => return Poll::Ready(RunOutcome::Done(Box::new(session))),
                Poll::Ready(Err(error)) => return Poll::Ready(RunOutcome::Failed(error)),
                Poll::Pending => {}
            }
            match self.replay.pending_cause(context.waker()) {
                PendingCause::Outside => Poll::Pending,
                PendingCause::Stuck => Poll::Ready(RunOutcome::Abandoned),
                PendingCause::OtherPart { matched_steps: 0 } if !is_last => Poll::Ready(RunOutcome::Abandoned),
                PendingCause::OtherPart { matched_steps } => {
                    let same_stall = stall.take().filter(|(before, _)| *before == matched_steps);
                    let (_, timeout) =
                        stall.insert(same_stall.unwrap_or_else(|| (matched_steps, Box::pin(sleep(STALL_TIMEOUT)))));
                    timeout.as_mut().poll(context).map(|()| RunOutcome::Abandoned)
                }
            }
        })
        .await
    }
}

/// The time without a new step after which a run is abandoned.
///
/// It applies while one part of the program waits for something that was never recorded and another part may continue.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);

/// The end of one run of the program.
enum RunOutcome {
    Done(Box<Session>),
    Failed(Error),
    /// The run waits for something that was never recorded, as it did in the recording when it was dropped.
    Abandoned,
}
