//! Workflows one after the other.

use super::module::{Binding, Module};
use super::{Run, Workflow};
use crate::error::Result;
use crate::session::Session;

/// Runs workflows one after the other, each on what the one before gave back.
///
/// ```
/// use rath::prelude::*;
///
/// # async fn example(draft: Agent, polish: Agent) -> Result<()> {
/// let steps = Sequential::new()
///     .then("draft", draft)
///     .then("note", |mut session: Session| async move {
///         session.push(Chunk::note("drafted"));
///         Ok(session)
///     })
///     .then("polish", polish);
/// let session = steps.run(Session::user("Write a haiku.")).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Sequential {
    steps: Vec<(String, Box<dyn Run>)>,
}

impl Sequential {
    /// One that gives back what it was given.
    pub fn new() -> Self {
        Sequential::default()
    }

    /// Adds a workflow under a name, which is part of the path of what it does.
    pub fn then(mut self, name: impl Into<String>, workflow: impl Run) -> Self {
        self.steps.push((name.into(), Box::new(workflow)));
        self
    }
}

impl Module for Sequential {
    fn kind(&self) -> &str {
        "Sequential"
    }

    fn children(&self) -> Vec<(String, &dyn Module)> {
        self.steps.iter().map(|(name, step)| (name.clone(), step as &dyn Module)).collect()
    }

    fn bind(&mut self, binding: &Binding) {
        self.steps.iter_mut().for_each(|(_, step)| step.bind(binding));
    }
}

impl Workflow for Sequential {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        for (_, step) in &self.steps {
            session = step.run(session).await?;
        }
        Ok(session)
    }
}
