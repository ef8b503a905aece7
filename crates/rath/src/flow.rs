//! What people write: modules that take a session and give it back.
//!
//! A [`Module`] knows what it is made of, a [`Workflow`] says what it does with a session, and [`Run::run`] does it. An
//! [`Agent`] is a workflow, and so are a [`Compressor`], a [`Sequential`], and a closure that takes a session.

mod agent;
mod answer;
mod compressor;
mod fan;
mod module;
mod remember;
mod running;
mod selector;
mod sequential;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use agent::Agent;
pub use compressor::Compressor;
pub use fan::{Branch, Fan, Joined, fork_join};
pub use module::{Binding, Module, Modules, tree};
pub use running::{Events, Running};
pub use selector::Selector;
pub use sequential::Sequential;

use module::enter_scope;
pub(crate) use module::module_name;

use crate::session::{Newest, Result, Session};

/// A module that does something with a session.
///
/// Write `forward`, call [`run`](Run::run).
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
    label = "this does not say what it does with a session",
    note = "implement `Workflow` for it: `async fn forward(&self, session: Session) -> Result<Session>`"
)]
pub trait Workflow: Module {
    /// What it does with a session.
    fn forward(&self, session: Session) -> impl Future<Output = Result<Session>> + Send;
}

/// A workflow that can be run, whichever it is: `&dyn Run` is any of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be run",
    label = "this is not a workflow",
    note = "add `#[derive(Module)]` to it and implement `Workflow`"
)]
pub trait Run: Module {
    /// Runs it on a session. Await it for the session that comes of it.
    ///
    /// Every step that is appended on the way says which module did it, by its path: `readme.agent`. An error carries the
    /// session as far as it came.
    fn run(&self, session: Session) -> Running<'_>;

    /// What it does, without saying that it is the one who does it.
    #[doc(hidden)]
    fn forward_boxed(&self, session: Session) -> Pin<Box<dyn Future<Output = Result<Session>> + Send + '_>>;
}

impl<W: Workflow> Run for W {
    fn run(&self, session: Session) -> Running<'_> {
        Running::new(session, move |session| Box::pin(enter(self, session, |session| self.forward(session))))
    }

    fn forward_boxed(&self, session: Session) -> Pin<Box<dyn Future<Output = Result<Session>> + Send + '_>> {
        Box::pin(self.forward(session))
    }
}

/// Any workflow.
impl Workflow for Box<dyn Run> {
    fn forward(&self, session: Session) -> impl Future<Output = Result<Session>> + Send {
        (**self).forward_boxed(session)
    }
}

/// A workflow that is shared.
impl<W: Workflow + Clone> Workflow for Arc<W> {
    fn forward(&self, session: Session) -> impl Future<Output = Result<Session>> + Send {
        (**self).forward(session)
    }
}

/// Hands a session to a module, and takes it back however it comes out.
async fn enter<Fut>(module: &dyn Module, session: Session, work: impl FnOnce(Session) -> Fut) -> Result<Session>
where
    Fut: Future<Output = Result<Session>>,
{
    if let Some(replay) = session.replaying() {
        replay.check(&session)?;
    }
    let (by, scope, hub) = (session.module().map(Into::into), session.scope().cloned(), session.hub().clone());
    let leave = |session: Session| session.within_scope(by, scope).heard_by(hub);
    // What people write may fail without the session in hand: then what was seen of it last is what there is.
    let newest = (!module.errors_carry_the_session()).then(|| Newest::of(&session));
    let entered = match &newest {
        None => session,
        Some(newest) => {
            let hub = session.hub().with_newest(newest);
            session.heard_by(hub)
        }
    };
    let outermost = entered.module().is_none();
    let left = match work(enter_scope(entered, module)).await {
        Ok(session) => Ok(leave(session)),
        Err(error) => Err(match newest {
            Some(newest) if !error.session().is_some_and(|session| newest.is_behind(session)) => {
                let mut whole = newest.whole();
                // It may be the session of somebody who was asked on the way.
                error.session().into_iter().for_each(|other| whole.keep_aside(other));
                error.with_session(&leave(whole))
            }
            _ => error.map_session(leave),
        }),
    };
    // Whoever is given the session may tell others what it says.
    if outermost { Session::settled(left).await } else { left }
}

/// A workflow that can be copied, so that one that is part of two agents can be bound for one of them.
pub(crate) trait Cloned: Run {
    fn cloned(&self) -> Box<dyn Cloned>;
}

impl<R: Run + Clone> Cloned for R {
    fn cloned(&self) -> Box<dyn Cloned> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Cloned> {
    fn clone(&self) -> Self {
        (**self).cloned()
    }
}

/// A closure that takes a session and gives it back.
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
