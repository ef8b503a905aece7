//! Running several workflows on forks of one session.

use std::future::IntoFuture;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use rath_record::turn::Next;

use super::Run;
use crate::error::ErrorKind;
use crate::sandbox::Sandbox;
use crate::session::{Error, ProgressTracker, Result, Session};

/// Forks a session once for each branch and runs the branches concurrently. Await it for the result of each.
///
/// A branch that fails, panics, or stops because a call waits for a decision does not affect the others: it is in
/// [`BranchResults::branches`] with its error, and merging keeps its work aside.
///
/// ```
/// use rath::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let writer = Agent::new("You write.", &Script::of([r#"{"text": "A pond."}"#])?.into());
/// # let critic = Agent::new("You correct.", &Script::of([r#"{"text": "No frog."}"#])?.into());
/// # let session = Session::user("Write a haiku.");
/// let branches = [Branch::new("writer", &writer), Branch::new("critic", &critic)];
/// let results = fork_join(&session, branches).max_concurrent(8).await;
/// let session = results.merge().await?; // the work of branches that failed is kept aside
/// assert_eq!(session.messages().list.len(), 3);
/// # Ok(())
/// # }
/// ```
pub fn fork_join<'a>(session: &Session, branches: impl IntoIterator<Item = Branch<'a>>) -> ForkJoin<'a> {
    let branches = branches.into_iter().collect();
    ForkJoin { session: session.clone(), branches, max_concurrent: DEFAULT_MAX_CONCURRENT_BRANCHES }
}

/// The number of branches that run at once by default.
const DEFAULT_MAX_CONCURRENT_BRANCHES: usize = 16;

/// A fork to be made: its name, which the log shows, and the workflow that runs on it.
///
/// Passed to [`fork_join`].
pub struct Branch<'a> {
    name: String,
    workflow: &'a dyn Run,
    sandbox: Option<Sandbox>,
}

impl<'a> Branch<'a> {
    /// Creates a branch that a workflow runs on.
    pub fn new(name: impl Into<String>, workflow: &'a dyn Run) -> Self {
        Branch { name: name.into(), workflow, sandbox: None }
    }

    /// Gives the branch a sandbox of its own.
    pub fn to(mut self, sandbox: impl Into<Sandbox>) -> Self {
        self.sandbox = Some(sandbox.into());
        self
    }
}

/// Branches that run when this is awaited.
///
/// Returned by [`fork_join`].
#[must_use = "nothing is done until it is awaited"]
pub struct ForkJoin<'a> {
    session: Session,
    branches: Vec<Branch<'a>>,
    max_concurrent: usize,
}

impl<'a> ForkJoin<'a> {
    /// Limits how many branches run at once; 16 by default.
    pub fn max_concurrent(mut self, branches: usize) -> Self {
        self.max_concurrent = branches.max(1);
        self
    }

    async fn run(self) -> BranchResults {
        let ForkJoin { session, branches, max_concurrent } = self;
        // All forks are made before any runs, so that their numbers do not depend on which is faster.
        let mut running = Vec::with_capacity(branches.len());
        for (nth, Branch { name, workflow, sandbox }) in branches.into_iter().enumerate() {
            let fork = session.fork_named(&name);
            let fork = sandbox.into_iter().fold(fork, Session::to);
            running.push(async move { (nth, name, run_branch(workflow, fork).await) });
        }
        let mut results: Vec<_> = stream::iter(running).buffer_unordered(max_concurrent).collect().await;
        results.sort_by_key(|(nth, ..)| *nth);
        BranchResults { session, branches: results.into_iter().map(|(_, name, result)| (name, result)).collect() }
    }
}

/// Runs one branch. A panic is the failure of this branch only.
async fn run_branch(workflow: &dyn Run, fork: Session) -> Result<Session> {
    let tracker = ProgressTracker::new(&fork);
    let (outer, hub) = (fork.hub().clone(), fork.hub().with_tracker(&tracker));
    let result = AssertUnwindSafe(workflow.run(fork.heard_by(hub))).catch_unwind().await;
    let panicked = || Error::new(ErrorKind::Other, "the workflow panicked").with_session(&tracker.latest());
    match result.unwrap_or_else(|_| Err(panicked())) {
        Ok(session) => Ok(session.heard_by(outer)),
        Err(error) => Err(error.map_session(|session| session.heard_by(outer))),
    }
}

impl<'a> IntoFuture for ForkJoin<'a> {
    type Output = BranchResults;
    type IntoFuture = Pin<Box<dyn Future<Output = BranchResults> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// The results of all branches, in the order in which the branches were given.
///
/// Created by [`fork_join`] when it is awaited.
#[derive(Debug)]
pub struct BranchResults {
    /// The session that was forked.
    session: Session,
    /// The name and the result of each branch.
    pub branches: Vec<(String, Result<Session>)>,
}

impl BranchResults {
    /// Merges the branches that succeeded, in order, and keeps the work of those that failed aside.
    ///
    /// Fails only if all of them failed; the error carries the session with the work of all of them aside.
    pub async fn merge(self) -> Result<Session> {
        self.merge_with(Failures::Allowed).await
    }

    /// Merges all branches, and fails if one of them failed. The error carries the merged session.
    pub async fn merge_strict(self) -> Result<Session> {
        self.merge_with(Failures::Refused).await
    }

    async fn merge_with(self, failures: Failures) -> Result<Session> {
        let BranchResults { session, branches } = self;
        let (count, mut good, mut bad) = (branches.len(), vec![session.clone()], Vec::new());
        for (name, branch) in branches {
            match branch {
                Ok(branch) => match branch.next() {
                    // After a merge it would be unclear which branch the result belongs to.
                    Next::RunTools(_) => {
                        let why = "the branch ended with a tool call that has no result";
                        bad.push((name, Error::new(ErrorKind::Turn, why).with_session(&branch)));
                    }
                    Next::AskModel | Next::Done => good.push(branch),
                },
                Err(error) => bad.push((name, error)),
            }
        }
        let none_is_good = good.len() == 1 && !bad.is_empty();
        let mut merged = match Session::merge_all(good.clone()).await {
            Ok(merged) => merged,
            Err(error) => {
                let mut session = session;
                let work = good.iter().skip(1).chain(bad.iter().filter_map(|(_, error)| error.session()));
                work.for_each(|work| session.keep_aside(work));
                return Err(error.with_session(&session));
            }
        };
        bad.iter().filter_map(|(_, error)| error.session()).for_each(|work| merged.keep_aside(work));
        let is_refused = failures == Failures::Refused && !bad.is_empty();
        if !none_is_good && !is_refused {
            return Ok(merged);
        }
        let failed = bad.iter().map(|(name, error)| format!("`{name}`: {}", error.message())).collect::<Vec<_>>();
        let message = format!("{} of {count} branches failed: {}", bad.len(), failed.join("; "));
        let kind = bad.first().map_or(ErrorKind::Merge, |(_, error)| error.kind());
        Err(Error::new(kind, message).with_session(&merged))
    }
}

/// Decides if a merge may succeed although a branch failed.
#[derive(PartialEq)]
enum Failures {
    Allowed,
    Refused,
}
