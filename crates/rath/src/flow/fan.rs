//! Many branches of one session at once.

use std::future::IntoFuture;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use rath_record::turn::Next;

use super::Run;
use crate::error::ErrorKind;
use crate::sandbox::Sandbox;
use crate::session::{Error, Newest, Result, Session};

/// Forks a session once for each branch and runs the branches side by side. Await it for what became of each.
///
/// A branch that fails, or panics, or stops because a call waits for a decision, does not lose the others: it is in
/// [`Joined::branches`] with its error, and merging keeps its work aside.
///
/// ```
/// use rath::prelude::*;
///
/// # async fn example(session: Session, writer: Agent, critic: Agent) -> Result<Session> {
/// let joined = fork_join(&session, [Branch::new("writer", &writer), Branch::new("critic", &critic)]).at_once(8).await;
/// let session = joined.merge()?; // what failed is kept aside
/// # Ok(session)
/// # }
/// ```
pub fn fork_join<'a>(session: &Session, branches: impl IntoIterator<Item = Branch<'a>>) -> Fan<'a> {
    Fan { session: session.clone(), branches: branches.into_iter().collect(), at_once: AT_ONCE }
}

/// How many branches run at once, unless told otherwise.
const AT_ONCE: usize = 16;

/// One of many branches: a name that the log shows, and what runs on it.
pub struct Branch<'a> {
    name: String,
    workflow: &'a dyn Run,
    sandbox: Option<Sandbox>,
}

impl<'a> Branch<'a> {
    /// A branch that a workflow runs on.
    pub fn new(name: impl Into<String>, workflow: &'a dyn Run) -> Self {
        Branch { name: name.into(), workflow, sandbox: None }
    }

    /// Gives the branch a sandbox of its own.
    pub fn to(mut self, sandbox: impl Into<Sandbox>) -> Self {
        self.sandbox = Some(sandbox.into());
        self
    }
}

/// Branches that are about to run. Await it.
#[must_use = "nothing is done until it is awaited"]
pub struct Fan<'a> {
    session: Session,
    branches: Vec<Branch<'a>>,
    at_once: usize,
}

impl<'a> Fan<'a> {
    /// Limits how many branches run at once; 16 unless told.
    pub fn at_once(mut self, most: usize) -> Self {
        self.at_once = most.max(1);
        self
    }

    async fn run(self) -> Joined {
        let Fan { session, branches, at_once } = self;
        // All forks are made before any runs, so that their numbers do not depend on who is faster.
        let mut running = Vec::with_capacity(branches.len());
        for (nth, Branch { name, workflow, sandbox }) in branches.into_iter().enumerate() {
            let fork = session.fork_named(&name);
            let fork = sandbox.into_iter().fold(fork, Session::to);
            running.push(async move { (nth, name, one(workflow, fork).await) });
        }
        let mut done: Vec<_> = stream::iter(running).buffer_unordered(at_once).collect().await;
        done.sort_by_key(|(nth, ..)| *nth);
        Joined { session, branches: done.into_iter().map(|(_, name, result)| (name, result)).collect() }
    }
}

/// Runs one branch. If it panics, that is its own failure.
async fn one(workflow: &dyn Run, fork: Session) -> Result<Session> {
    let newest = Newest::of(&fork);
    let (outer, hub) = (fork.hub().clone(), fork.hub().with_newest(&newest));
    let done = AssertUnwindSafe(workflow.run(fork.heard_by(hub))).catch_unwind().await;
    let done = done.unwrap_or_else(|_| Err(Error::new(ErrorKind::Other, "it panicked").with_session(&newest.whole())));
    match done {
        Ok(session) => Ok(session.heard_by(outer)),
        Err(error) => Err(error.map_session(|session| session.heard_by(outer))),
    }
}

impl<'a> IntoFuture for Fan<'a> {
    type Output = Joined;
    type IntoFuture = Pin<Box<dyn Future<Output = Joined> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// What became of each branch, in the order in which they were given.
#[derive(Debug)]
pub struct Joined {
    session: Session,
    /// The name of each branch, and what it came to.
    pub branches: Vec<(String, Result<Session>)>,
}

impl Joined {
    /// Joins the branches that succeeded, in order, and keeps those that failed aside.
    ///
    /// An error only if all of them failed; it carries the session with all of them aside.
    pub fn merge(self) -> Result<Session> {
        self.join(Failures::Allowed)
    }

    /// The same, but a branch that failed makes all of it an error, which carries the session with everything joined.
    pub fn all(self) -> Result<Session> {
        self.join(Failures::Refused)
    }

    fn join(self, failures: Failures) -> Result<Session> {
        let Joined { session, branches } = self;
        let (all, mut good, mut bad) = (branches.len(), vec![session.clone()], Vec::new());
        for (name, branch) in branches {
            match branch {
                Ok(branch) => match branch.next() {
                    // Nobody could tell where its result belongs.
                    Next::RunTools(_) => {
                        let why = "it came back with a call that has no result";
                        bad.push((name, Error::new(ErrorKind::Turn, why).with_session(&branch)));
                    }
                    Next::AskModel | Next::Done => good.push(branch),
                },
                Err(error) => bad.push((name, error)),
            }
        }
        let none_is_good = good.len() == 1 && !bad.is_empty();
        let mut joined = match Session::merge_all(good.iter().cloned()) {
            Ok(joined) => joined,
            Err(error) => {
                let mut kept = session;
                let work = good.iter().skip(1).chain(bad.iter().filter_map(|(_, error)| error.session()));
                work.for_each(|work| kept.keep_aside(work));
                return Err(error.with_session(&kept));
            }
        };
        bad.iter().filter_map(|(_, error)| error.session()).for_each(|work| joined.keep_aside(work));
        let refused = failures == Failures::Refused && !bad.is_empty();
        if !none_is_good && !refused {
            return Ok(joined);
        }
        let failed = bad.iter().map(|(name, error)| format!("`{name}`: {}", error.message())).collect::<Vec<_>>();
        let message = format!("{} of {all} branches failed: {}", bad.len(), failed.join("; "));
        let kind = bad.first().map_or(ErrorKind::Merge, |(_, error)| error.kind());
        Err(Error::new(kind, message).with_session(&joined))
    }
}

#[derive(PartialEq)]
enum Failures {
    Allowed,
    Refused,
}
