//! Doing again what a session did, and comparing.
//!
//! A step's name is made of what it says and of all that came before it, and the clock, the cost and the author are no
//! part of it. So the same program over the same answers ends at the same name, and where it does not, the first step that
//! is not in the recording says why.
//!
//! - [`Session::rebuild`] does without the program: everything that can be rebuilt from the steps is rebuilt.
//! - [`Session::replay`] runs the program again. Models, tools and memories say what the recording says that they said.
//! - [`Replaying::reexecuting`] lets the tools run, and compares what they say.
//! - [`Session::compare`] is for what was done differently on purpose: fork with [`Session::at`], go on, and compare.

mod answer;
mod comparison;
mod differ;
mod divergence;
mod rebuilt;
mod recording;

use std::collections::HashSet;
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rath_record::chunk::{Chunk, Forked};
use rath_record::{Step, StepId, draw};
use tokio::time::{Sleep, sleep};

pub use comparison::Comparison;
pub use divergence::Divergence;
pub use rebuilt::{Difference, Rebuilt};

pub(crate) use answer::failure;
pub(crate) use recording::{Replay, is_aside};

use crate::error::ErrorKind;
use crate::flow::Run;
use crate::sandbox::Sandbox;
use crate::session::Session;
use crate::session::{Error, Result};
use recording::{WaitsFor, is_program};

tokio::task_local! {
    /// The replay that goes on in this task. A session that a program begins by hand has to know of it too: otherwise a
    /// model would be asked in it.
    static CURRENT: Arc<Replay>;
}

/// The replay that goes on in this task, if one does.
pub(crate) fn current() -> Option<Arc<Replay>> {
    CURRENT.try_with(Arc::clone).ok()
}

impl Session {
    /// Runs a workflow again over what models, tools and memories said in this session. Await it for how that went.
    ///
    /// No provider, no tool and no memory is called. What no module appended (the user's words, decisions, what was forked
    /// and merged outside a workflow) is taken as it is, and the workflow is run wherever a module went on from there: so a
    /// session that was run several times, or interrupted and resumed, is replayed as one.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// # async fn example() -> Result<()> {
    /// let agent = |prompt: &str| Ok::<_, Error>(Agent::new(prompt, &Script::of([r#"{"text": "The Seine."}"#])?.into()));
    /// let session = agent("Be brief.")?.run(Session::user("Which river runs through Paris?")).await?;
    /// assert!(session.replay(&agent("Be brief.")?).await?.is_exact());
    ///
    /// let replayed = session.replay(&agent("Be long.")?).await?;
    /// assert_eq!(replayed.divergence.expect("it was told something else").pointer, "/text");
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn replay<'a>(&self, workflow: &'a dyn Run) -> Replaying<'a> {
        Replaying { session: self.clone(), workflow, sandbox: None }
    }
}

/// A replay that is about to be made. Await it.
#[must_use = "nothing is done until it is awaited"]
pub struct Replaying<'a> {
    session: Session,
    workflow: &'a dyn Run,
    sandbox: Option<Sandbox>,
}

impl<'a> Replaying<'a> {
    /// Lets tools run, in this sandbox instead of the recorded ones, and compares what they say and what they change.
    ///
    /// Calls are made one after the other, in the order of their results. What is recorded stays what the model reads, so
    /// the first call that differs is where the replay diverges. Calls that ran out of time or were cancelled are not made.
    pub fn reexecuting(mut self, sandbox: impl Into<Sandbox>) -> Self {
        self.sandbox = Some(sandbox.into());
        self
    }

    async fn run(self) -> Result<Replayed> {
        let Replaying { session, workflow, sandbox } = self;
        let lineage = session.lineage();
        if let [gone, ..] = &lineage.missing()[..] {
            let message = format!("step {} is not here, and what came of it cannot be replayed", gone.short());
            return Err(Error::new(ErrorKind::Replay, message)
                .with_hint("open the session from a file that is whole")
                .with_session(&session));
        }
        if let Some(sandbox) = &sandbox {
            sandbox.look(".").await.map_err(|error| Error::from(error).with_session(&session))?;
        }
        let replay = Replay::of(session.as_record(), sandbox, session.secrets().clone());
        let mut driver = Driver { replay: &replay, workflow, ended: HashSet::new(), cuts: Vec::new() };
        driver.drive(session.head()).await;
        let cuts = driver.cuts;
        let (divergence, requests) = (replay.divergence(), replay.requests());
        let steps = lineage.walk().into_iter().filter(|step| replay.is_seen(step.id())).count() as u64;
        Ok(Replayed { head: session.head().map(Step::id), steps, requests, cuts, divergence })
    }
}

impl<'a> IntoFuture for Replaying<'a> {
    type Output = Result<Replayed>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Replayed>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// How a replay went.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// The head of the recording.
    pub head: Option<StepId>,
    /// How many of its steps came about again.
    pub steps: u64,
    /// How many requests were rendered again, each the same to the last byte.
    pub requests: u64,
    /// The steps at which a run was cut short, as by a crash, and the program was run again from its beginning: so at least
    /// it can be read.
    pub cuts: Vec<StepId>,
    /// Where the program first did something else.
    pub divergence: Option<Divergence>,
}

impl Replayed {
    /// Whether the program did the same, and ended at the same step.
    pub fn is_exact(&self) -> bool {
        self.divergence.is_none()
    }
}

/// One line where it is exact, and otherwise where it diverges.
impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (steps, requests) = (draw::count(self.steps, "step"), draw::count(self.requests, "request"));
        match (&self.divergence, self.head) {
            (None, Some(head)) => {
                write!(f, "exact: {steps}, {requests}, ends at {}", head.short())?;
                let cuts = self.cuts.iter().map(StepId::short).collect::<Vec<_>>();
                if cuts.is_empty() { Ok(()) } else { write!(f, "; cut short and run again at {}", cuts.join(", ")) }
            }
            (None, None) => f.write_str("exact: nothing happened"),
            (Some(divergence), _) => write!(f, "{divergence}\n  the same before that: {steps}, {requests}"),
        }
    }
}

/// Takes what came from outside as it is, and runs the program where the program went on.
struct Driver<'a> {
    replay: &'a Arc<Replay>,
    workflow: &'a dyn Run,
    /// Where the program came to an end.
    ended: HashSet<StepId>,
    /// Where a run was cut short.
    cuts: Vec<StepId>,
}

/// How a run is begun where a recorded one began.
struct Start {
    /// How many forks had left there before.
    left: u64,
    /// The fork that it began with.
    opening: Option<Forked>,
}

impl Driver<'_> {
    async fn drive(&mut self, head: Option<&Step>) {
        // What stands on a line of its own, and was joined from outside, comes before the step that joins it.
        let mut lines: Vec<_> = head.into_iter().map(|head| self.line(head)).collect();
        // Where a run waits for something that never came, and from where it was run. It may have been cut short there in
        // the recording, and run again: then that is what comes next.
        let mut cut: Option<(Divergence, Option<StepId>)> = None;
        while let Some(line) = lines.last_mut() {
            let Some(step) = line.last().cloned() else {
                lines.pop();
                continue;
            };
            if self.replay.is_seen(step.id()) {
                line.pop();
                continue;
            }
            if is_program(&step) {
                let from = step.parents().first().map(|parent| parent.id());
                if cut.as_ref().is_some_and(|(_, before)| *before == from) {
                    break;
                }
                self.run_to(&step).await;
                if cut.is_some() {
                    if self.replay.same() == 0 {
                        break;
                    }
                    self.cuts.extend(from);
                }
                cut = self.replay.divergence().map(|divergence| (divergence, from));
                if cut.is_some() && !self.replay.may_be_cut() {
                    break;
                }
            } else if cut.is_some() {
                break;
            } else {
                let theirs = step.parents().get(1).and_then(|theirs| theirs.step());
                match theirs.filter(|theirs| !self.replay.is_seen(theirs.id())) {
                    Some(theirs) => lines.push(self.line(theirs)),
                    None => self.replay.take(&step),
                }
            }
        }
        if let Some((divergence, _)) = cut {
            self.replay.set_divergence(divergence);
        }
    }

    /// What leads to a step and has not come about yet, newest first, along the first parents.
    fn line(&self, head: &Step) -> Vec<Step> {
        let back = std::iter::successors(Some(head), |step| step.parents().first().and_then(|parent| parent.step()));
        back.take_while(|step| !self.replay.is_seen(step.id())).cloned().collect()
    }

    /// Runs the program from where it was run when it appended `step`.
    async fn run_to(&mut self, step: &Step) {
        let from = step.parents().first().and_then(|parent| parent.step());
        let mut ending = Ending::GivenUp;
        let mut starts = self.starts(step, from.map(Step::id)).into_iter().peekable();
        while let Some(start) = starts.next() {
            self.replay.begin(from.map(Step::id));
            let session = Session::replayed(from, start.left, start.opening, self.replay);
            ending = self.run(session, starts.peek().is_none()).await;
            // What differs from the first step on may have been begun in another way.
            let differs = self.replay.divergence().is_some() || self.replay.lost().is_some();
            if !differs || self.replay.same() > 0 {
                break;
            }
        }
        let error = match &ending {
            Ending::Failed(error) => Some(error.message()),
            Ending::Done(_) | Ending::GivenUp => None,
        };
        // Run again from where it had come to an end, the program does what comes after that end, which is not what the
        // recording goes on with.
        let again = self.replay.same() == 0 && from.is_some_and(|from| self.ended.contains(&from.id()));
        match self.replay.divergence() {
            Some(_) if again => self.replay.set_divergence(Divergence::ended(step, None)),
            Some(_) => {}
            None if !self.replay.is_seen(step.id()) => {
                let lost = self.replay.lost();
                self.replay.set_divergence(lost.unwrap_or_else(|| Divergence::ended(step, error.as_deref())));
            }
            None => {
                if let Ending::Done(session) = &ending {
                    self.ended.extend(session.head().map(Step::id));
                }
            }
        }
    }

    /// The ways in which the run may have been begun, the likely ones first.
    fn starts(&self, step: &Step, from: Option<StepId>) -> Vec<Start> {
        let mut starts = vec![Start { left: 0, opening: None }];
        // Whoever ran it had forked there before.
        let left = self.replay.left(from);
        starts.extend((left > 0).then_some(Start { left, opening: None }));
        // It was run on a fork, which is written down with its first step.
        if let Chunk::Forked(forked) = step.chunk() {
            starts.push(Start { left: forked.nth, opening: Some(forked.clone()) });
        }
        starts
    }

    /// Runs the program once. What has done nothing that is recorded is waited for only if it is the last chance.
    async fn run(&self, session: Session, last: bool) -> Ending {
        let mut run = pin!(CURRENT.scope(self.replay.clone(), self.workflow.run(session)));
        let mut patience: Option<(u64, Pin<Box<Sleep>>)> = None;
        poll_fn(|context| {
            match run.as_mut().poll(context) {
                Poll::Ready(Ok(session)) => return Poll::Ready(Ending::Done(Box::new(session))),
                Poll::Ready(Err(error)) => return Poll::Ready(Ending::Failed(error)),
                Poll::Pending => {}
            }
            match self.replay.waits_for(context.waker()) {
                WaitsFor::ItsOwn => Poll::Pending,
                WaitsFor::Nothing => Poll::Ready(Ending::GivenUp),
                WaitsFor::Others(0) if !last => Poll::Ready(Ending::GivenUp),
                WaitsFor::Others(same) => {
                    let fresh = patience.take().filter(|(before, _)| *before == same);
                    let (_, sleep) = patience.insert(fresh.unwrap_or_else(|| (same, Box::pin(sleep(PATIENCE)))));
                    sleep.as_mut().poll(context).map(|()| Ending::GivenUp)
                }
            }
        })
        .await
    }
}

/// How long one part of a program may take to go on, by a clock of its own, while another waits for what never came.
const PATIENCE: Duration = Duration::from_secs(1);

/// How a run ended.
enum Ending {
    Done(Box<Session>),
    Failed(Error),
    /// It waits for what never came, as it did in the recording when it was dropped.
    GivenUp,
}
