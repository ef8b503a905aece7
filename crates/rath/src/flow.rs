//! What people write: modules that take a session and give it back.
//!
//! A [`Module`] knows what it is made of, a [`Workflow`] says what it does with a session, and [`Run::run`] does it. An
//! [`Agent`] is a workflow, and so are a [`Compressor`], a [`Sequential`], and a closure that takes a session.

mod agent;
mod answer;
mod compressor;
mod fan;
mod module;
mod running;
mod selector;
mod sequential;

use std::future::Future;

pub use agent::Agent;
pub use compressor::Compressor;
pub use fan::{Branch, Fan, Joined, fork_join};
pub use module::{Binding, Module, Modules, tree};
pub use running::{Events, Running};
pub use selector::Selector;
pub use sequential::Sequential;

pub(crate) use module::Scope;

use crate::error::Result;
use crate::session::Session;

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
    /// Every step that is appended on the way says which module did it, by its path: `readme.agent`.
    fn run(&self, session: Session) -> Running<'_>;
}

impl<W: Workflow> Run for W {
    fn run(&self, session: Session) -> Running<'_> {
        Running::new(session, move |session| Box::pin(enter(self, session, |session| self.forward(session))))
    }
}

/// Hands a session to a module, and takes it back however it comes out.
async fn enter<Fut>(module: &dyn Module, session: Session, work: impl FnOnce(Session) -> Fut) -> Result<Session>
where
    Fut: Future<Output = Result<Session>>,
{
    let entered = session.quiet();
    let (by, scope) = (session.module().map(Into::into), session.scope().cloned());
    let leave = |session: Session| session.within_scope(by, scope);
    match work(Scope::enter(session, module)).await {
        Ok(session) => Ok(leave(session)),
        Err(error) if error.session().is_none() => Err(error.with_session(&entered)),
        Err(error) => Err(error.map_session(leave)),
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
