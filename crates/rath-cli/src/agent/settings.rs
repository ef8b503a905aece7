//! The values of an agent that options leave to the configuration.

use std::path::Path;

use rath::prelude::*;
use rath::record::draw::one_line;

use super::AgentArgs;
use crate::budgets::BudgetLimit;
use crate::configuration::{AgentProfile, Settings};
use crate::models::ModelChoice;
use crate::output::{self, Exit, Failure};
use crate::project_context::push_context;

impl AgentArgs {
    /// Returns the configuration, which is read once, and says once what of it is not in force.
    pub(super) fn settings(&self) -> Result<&Settings, Failure> {
        if self.settings.get().is_none() {
            let settings = Settings::read(Path::new("."))?;
            settings.warn_of_ignored();
            let _ = self.settings.set(settings);
        }
        Ok(self.settings.get().expect("it was just read"))
    }

    /// Returns the section of the agent that was chosen; none if none was.
    pub(super) fn profile(&self) -> Result<Option<&AgentProfile>, Failure> {
        let Some(name) = &self.agent else { return Ok(None) };
        let agents = &self.settings()?.agents;
        let unknown = || {
            let known: Vec<_> = agents.keys().map(String::as_str).collect();
            let hint = match known.is_empty() {
                true => format!("add a section `[agents.{}]`: see `rath config --help`", one_line(name)),
                false => format!("your configuration names these: {}", known.join(", ")),
            };
            Failure::new(format!("unknown agent `{}`", one_line(name)), hint).with_exit(Exit::Usage)
        };
        agents.get(name).map(|agent| Some(&agent.value)).ok_or_else(unknown)
    }

    /// Returns the places that name the model.
    pub(super) fn model_choice<'a>(&'a self, session: Option<&'a Session>) -> Result<ModelChoice<'a>, Failure> {
        let (agent, settings) = (self.profile()?, self.settings()?);
        Ok(ModelChoice { option: self.model.as_deref(), agent, settings, session })
    }

    /// Returns the memory of the agent; none if it has none.
    pub(super) fn memory(&self) -> Result<Option<&str>, Failure> {
        let agent = self.profile()?.and_then(|agent| agent.memory.as_deref());
        let configured = || self.settings.get()?.memory.as_ref().map(|memory| memory.value.as_str());
        Ok(self.memory.as_deref().or(agent).or_else(configured).filter(|memory| *memory != "none"))
    }

    /// Returns the limits of the session: those of the options, and those of the configuration of other kinds.
    pub(super) fn limits(&self) -> Result<Vec<&BudgetLimit>, Failure> {
        let is_free = |limit: &&BudgetLimit| self.budget.iter().all(|known| !known.is_same_kind(limit));
        let configured = self.settings()?.budget.iter().map(|limit| &limit.value).filter(is_free);
        Ok(self.budget.iter().chain(configured).collect())
    }

    /// Tells a new session about the project, unless the user does not want it or the agent has no tools.
    pub(crate) fn begin(&self, session: &mut Session) -> Result<(), Failure> {
        let configured = self.settings()?.context.as_ref().is_none_or(|context| context.value);
        if configured
            && !self.no_context
            && let Some(sandbox) = self.sandbox(None)?
        {
            push_context(session, &sandbox);
        }
        Ok(())
    }

    /// Returns a hint that continues a stored session with other limits.
    pub(super) fn resume_with_budget(
        &self,
        branch: &str,
        limits: &str,
        session: Option<&Session>,
        store: &str,
    ) -> String {
        let model = self.model_choice(session).map(|choice| choice.hint()).unwrap_or_default();
        let agent = self.agent.iter().map(|agent| format!(" --agent {}", output::quote(agent))).collect::<String>();
        format!("`rath resume {branch}{model}{agent} --budget {limits}{store}` allows more and continues")
    }
}
