//! Running workflows one after the other.

use std::fmt;

use super::module::{Binding, Module, name_next_module};
use super::{CloneRun, Run, Workflow};
use crate::session::{Result, Session};

/// Runs workflows one after the other, each on the session that the one before returned.
///
/// ```
/// use rath::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let draft = Agent::new("You write.", &Script::of([r#"{"text": "A pond."}"#])?.into());
/// # let polish = Agent::new("You correct.", &Script::of([r#"{"text": "An old pond."}"#])?.into());
/// let steps = Sequential::new()
///     .then("draft", draft)
///     .then("note", |mut session: Session| async move {
///         session.push(Chunk::note("drafted"));
///         Ok(session)
///     })
///     .then("polish", polish);
/// let session = steps.run(Session::user("Write a haiku.")).await?;
/// assert_eq!(session.text(), Some("An old pond."));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Sequential {
    steps: Vec<(String, Box<dyn CloneRun>)>,
}

impl Sequential {
    /// Creates a sequence without workflows, which returns the session unchanged.
    pub fn new() -> Self {
        Sequential::default()
    }

    /// Adds a workflow. Its name is part of the path of the steps that it appends.
    pub fn then(mut self, name: impl Into<String>, workflow: impl Run + Clone) -> Self {
        self.steps.push((name.into(), Box::new(workflow)));
        self
    }
}

impl Module for Sequential {
    fn kind(&self) -> &str {
        "Sequential"
    }

    fn children(&self) -> Vec<(String, &dyn Module)> {
        self.steps.iter().map(|(name, step)| (name.clone(), &**step as &dyn Module)).collect()
    }

    fn bind(&mut self, binding: &Binding) {
        self.steps.iter_mut().for_each(|(_, step)| step.bind(binding));
    }

    fn errors_carry_the_session(&self) -> bool {
        true
    }
}

impl Workflow for Sequential {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        for (name, step) in &self.steps {
            let scope = session.scope().cloned();
            let by = session.module().map(Into::into);
            session = step.run(name_next_module(session, name)).await?.within_scope(by, scope);
        }
        Ok(session)
    }
}

/// Prints the tree.
impl fmt::Display for Sequential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tree())
    }
}

impl fmt::Debug for Sequential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
