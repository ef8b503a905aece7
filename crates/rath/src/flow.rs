//! Agents and workflows: modules that take a session and return it.
//!
//! A [`Module`] is a part of a program with children. A [`Workflow`] is a module with a method that takes a session and
//! returns it, and [`Run::run`] runs it. An [`Agent`] is a workflow, and so are a [`Compressor`], a [`Sequential`], and a
//! closure that takes a session.

mod agent;
mod answer;
mod compressor;
mod ending;
mod extract;
mod fork_join;
mod listed_tools;
mod module;
mod remember;
mod running;
mod selector;
mod sequential;
mod session_notes;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tracing::Instrument;

pub use agent::Agent;
#[doc(hidden)]
pub use answer::without_answer_schema;
pub use compressor::Compressor;
pub use fork_join::{Branch, BranchResults, ForkJoin, fork_join};
pub use module::{Binding, Module, Modules};
pub use running::{Events, Running};
pub use selector::Selector;
pub use sequential::Sequential;

use module::enter_scope;
pub(crate) use module::module_name;

use crate::session::{ProgressTracker, Result, Session, spans};

/// A module that takes a session and returns it.
///
/// Implement `forward`, call [`run`](Run::run).
///
/// ```
/// use rath::prelude::*;
///
/// /// Says hello, then goodbye.
/// #[derive(Module)]
/// struct Visit {
///     hello: Agent,
///     goodbye: Agent,
/// }
///
/// impl Workflow for Visit {
///     async fn forward(&self, session: Session) -> Result<Session> {
///         let session = self.hello.run(session).await?;
///         self.goodbye.run(session).await
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a workflow",
    label = "this type does not implement `Workflow`",
    note = "implement `Workflow` for it: `async fn forward(&self, session: Session) -> Result<Session>`"
)]
pub trait Workflow: Module {
    /// Does the work of this workflow on a session.
    fn forward(&self, session: Session) -> impl Future<Output = Result<Session>> + Send;
}

/// A workflow of any type, as `&dyn Run`. Every [`Workflow`] implements it.
///
/// Implemented by [`Agent`], [`Sequential`] and every other [`Workflow`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be run",
    label = "this is not a workflow",
    note = "add `#[derive(Module)]` to it and implement `Workflow`"
)]
pub trait Run: Module {
    /// Runs the workflow on a session. Awaiting the returned value runs it to the end and returns the session.
    ///
    /// Every step that is appended on the way names the module that appended it by its path, such as `readme.agent`. An
    /// error carries the session as far as it came.
    fn run(&self, session: Session) -> Running<'_>;

    /// Runs `forward` without entering this module's path.
    #[doc(hidden)]
    fn forward_boxed(&self, session: Session) -> Pin<Box<dyn Future<Output = Result<Session>> + Send + '_>>;
}

impl<W: Workflow> Run for W {
    fn run(&self, session: Session) -> Running<'_> {
        // The work is in a box: agents that call agents would need a larger stack.
        let work = |session| self.forward_boxed(session);
        Running::new(session, move |session| Box::pin(run_module(self, session, work)))
    }

    fn forward_boxed(&self, session: Session) -> Pin<Box<dyn Future<Output = Result<Session>> + Send + '_>> {
        Box::pin(self.forward(session))
    }
}

/// A workflow of any type.
impl Workflow for Box<dyn Run> {
    fn forward(&self, session: Session) -> impl Future<Output = Result<Session>> + Send {
        (**self).forward_boxed(session)
    }
}

/// A shared workflow.
impl<W: Workflow + Clone> Workflow for Arc<W> {
    fn forward(&self, session: Session) -> impl Future<Output = Result<Session>> + Send {
        (**self).forward(session)
    }
}

/// Runs the work of a module on a session, under the path of the module.
///
/// The path, the scope and the listeners of the session are restored afterwards, also in the session of an error.
async fn run_module<Fut>(module: &dyn Module, session: Session, work: impl FnOnce(Session) -> Fut) -> Result<Session>
where
    Fut: Future<Output = Result<Session>>,
{
    if let Some(replay) = session.replaying() {
        replay.ensure_not_diverged(&session)?;
    }
    let (by, scope, hub) = (session.module().map(Into::into), session.scope().cloned(), session.hub().clone());
    let leave = |session: Session| session.within_scope(by, scope).heard_by(hub);
    // A workflow of the user may fail with an error that has no session. Then the session as it was last seen is used.
    let tracker = (!module.errors_carry_the_session()).then(|| ProgressTracker::new(&session));
    let entered = match &tracker {
        None => session,
        Some(tracker) => {
            let hub = session.hub().with_tracker(tracker);
            session.heard_by(hub)
        }
    };
    let outer = entered.module().map(Arc::<str>::from);
    let entered = enter_scope(entered, module);
    let span = spans::run_span(&entered, outer.as_deref(), module.is_agent());
    let result = work(entered).instrument(span.clone()).await;
    spans::record_run(&span, &result);
    let result = match result {
        Ok(session) => Ok(leave(session)),
        Err(error) => Err(match tracker {
            Some(tracker) if !error.session().is_some_and(|session| tracker.is_continued_by(session)) => {
                let mut latest = tracker.latest();
                // The error may carry the session of another workflow that was run on the way.
                error.session().into_iter().for_each(|other| latest.keep_aside(other));
                error.with_session(&leave(latest))
            }
            _ => error.map_session(leave),
        }),
    };
    // The caller may pass the session on, so its steps have to be durable by then.
    if outer.is_none() { Session::wait_until_durable(result).await } else { result }
}

/// A workflow of any type that can be cloned, so that one that two agents share can be bound for one of them.
pub(crate) trait CloneRun: Run {
    fn clone_boxed(&self) -> Box<dyn CloneRun>;
}

impl<R: Run + Clone> CloneRun for R {
    fn clone_boxed(&self) -> Box<dyn CloneRun> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn CloneRun> {
    fn clone(&self) -> Self {
        (**self).clone_boxed()
    }
}

/// A closure that takes a session and returns it.
impl<F, Fut> Module for F
where
    F: Fn(Session) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Session>> + Send,
{
    fn kind(&self) -> &str {
        "Closure"
    }
}

impl<F, Fut> Workflow for F
where
    F: Fn(Session) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Session>> + Send,
{
    fn forward(&self, session: Session) -> impl Future<Output = Result<Session>> + Send {
        self(session)
    }
}
