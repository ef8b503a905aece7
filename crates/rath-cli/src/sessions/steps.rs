//! Reading the step that an argument names: `SESSION@STEP`, `@STEP`, or a lone step of the newest session.

use std::path::Path;

use rath::record::Step;
use rath::record::draw::one_line;

use super::names::hint_list;
use super::{LoadedSession, NEWEST, StoreArg, read};
use crate::output::{self, Exit, Failure};

/// The arguments that name a step.
#[derive(clap::Args)]
pub(crate) struct StepArg {
    /// A session: the first digits of its id, a title, `@` for the newest, `@-1` for the one before it, or a session file. With `@STEP`
    /// after it, one of its steps. A step alone is one of the newest session
    #[arg(value_name = "SESSION[@STEP]", default_value = NEWEST)]
    session: String,
    /// The step: the first digits of its id, a branch for its newest step, or `head` for the newest step of all
    step: Option<String>,
    #[command(flatten)]
    store: StoreArg,
}

/// The arguments that name a session, or a session as it was at one of its steps.
#[derive(clap::Args)]
pub(crate) struct SessionAtArg {
    /// A session: the first digits of its id, a title, `@` for the newest, `@-1` for the one before it, or a session file. With `@STEP`
    /// after it, the session up to that step
    #[arg(value_name = "SESSION[@STEP]", default_value = NEWEST)]
    session: String,
    #[command(flatten)]
    store: StoreArg,
}

impl SessionAtArg {
    /// Reads the session, up to the step that is named with it.
    pub(crate) async fn read(&self) -> Result<LoadedSession, Failure> {
        read_at(&self.session, &self.store).await
    }
}

/// A step with its session.
pub(crate) struct NamedStep {
    pub(crate) loaded: LoadedSession,
    /// The step; none if only the session was named.
    pub(crate) step: Option<Step>,
    /// The step as the user named it, after a space, or empty: it is repeated in hints.
    pub(crate) typed: String,
}

impl StepArg {
    /// Reads the session, and finds the step in it.
    pub(crate) async fn read(&self) -> Result<NamedStep, Failure> {
        let (name, inner) = split_step(&self.session);
        if let (Some(inner), Some(step)) = (inner, &self.step) {
            let message = format!("wanted one step, found `{}` and `{}`", one_line(inner), one_line(step));
            return Err(Failure::new(message, "leave one of them out").with_exit(Exit::Usage));
        }
        let Some(step) = inner.or(self.step.as_deref()) else { return self.read_lone(name).await };
        NamedStep::find(read(name, &self.store).await?, step)
    }

    /// Reads the session or the step that a single word names.
    async fn read_lone(&self, word: &str) -> Result<NamedStep, Failure> {
        let failure = match read(word, &self.store).await {
            Ok(loaded) => return Ok(NamedStep { loaded, step: None, typed: String::new() }),
            Err(failure) => failure,
        };
        // Several sessions may have the name, or the file may be damaged.
        let may_be_step = failure.exit == Exit::Failure && !word.starts_with('@') && !Path::new(word).exists();
        if !may_be_step {
            return Err(failure);
        }
        let Ok(newest) = read(NEWEST, &self.store).await else { return Err(failure) };
        match newest.may_name_step(word) {
            true => NamedStep::find(newest, word),
            false => {
                let message =
                    format!("there is no session, no file and no step of the newest session `{}`", one_line(word));
                let steps = format!("{} the steps of the newest one", newest.command("log", ""));
                Err(Failure::new(message, format!("{}; {steps}", hint_list(&self.store.option()))))
            }
        }
    }

    /// Returns the option that names the store.
    pub(crate) fn store(&self) -> &StoreArg {
        &self.store
    }
}

impl NamedStep {
    fn find(loaded: LoadedSession, step: &str) -> Result<Self, Failure> {
        let typed = format!(" {}", output::quote(step));
        let step = Some(loaded.find_step(step)?.clone());
        Ok(NamedStep { loaded, step, typed })
    }

    /// Returns the step, or the newest one of the session where none was named.
    pub(crate) fn step_or_head(&self) -> Result<&Step, Failure> {
        match &self.step {
            Some(step) => Ok(step),
            None => self.loaded.find_step("head"),
        }
    }
}

/// Splits `SESSION@STEP`. The newest session is `@`, so that `@@STEP` and `@STEP` are steps of it.
pub(crate) fn split_step(name: &str) -> (&str, Option<&str>) {
    let Some(rest) = name.strip_prefix('@') else {
        let split = name.rsplit_once('@').filter(|_| !Path::new(name).exists());
        return split.map_or((name, None), |(session, step)| (session, Some(step)));
    };
    let number = rest
        .strip_prefix('-')
        .map_or(0, |digits| 1 + digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len()));
    let (session, step) = name.split_at(1 + number);
    (session, Some(step.strip_prefix('@').unwrap_or(step)).filter(|step| !step.is_empty()))
}

/// Reads the session that `name` means, as `SESSION` or, at one of its steps, as `SESSION@STEP`.
pub(crate) async fn read_at(name: &str, store: &StoreArg) -> Result<LoadedSession, Failure> {
    let (name, Some(step)) = split_step(name) else { return read(name, store).await };
    let loaded = read(name, store).await?;
    let step = loaded.find_step(step)?.clone();
    Ok(loaded.at(step))
}
