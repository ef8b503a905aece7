//! The values that stand for options of an agent: those of the environment, of a project's file and of the user's file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use rath::policy::Mode;

use super::parse::{ConfigContent, parse, wrong};
use super::profiles::{AgentProfile, KeySource, ModelProfile};
use super::trust::TrustedFiles;
use super::{PROJECT_FILE, ProjectFiles, read_file, trust_command, user_file};
use crate::budgets::BudgetLimit;
use crate::output::{self, Exit, Failure};

/// One value of a file.
///
/// A new kind does not compile before [`Settings::only_restricts`] says what it may do in a file that nobody has accepted.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Setting {
    Model(String),
    Sandbox(String),
    Memory(String),
    Context(bool),
    Budget(BudgetLimit),
    ModelProfile(String, ModelProfile),
    AgentProfile(String, AgentProfile),
}

/// A value, and the place that it comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sourced<T> {
    pub(crate) value: T,
    pub(crate) source: ValueSource,
}

/// The place that a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueSource {
    Variable(&'static str),
    File { path: PathBuf, line: usize },
}

impl<T> Sourced<T> {
    /// Returns true if the value comes from the environment.
    pub(crate) fn is_variable(&self) -> bool {
        matches!(self.source, ValueSource::Variable(_))
    }
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::Variable(name) => f.write_str(name),
            ValueSource::File { path, line } => write!(f, "{}:{line}", output::home_path(path)),
        }
    }
}

/// The values that are in force where no option says otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) model: Option<Sourced<String>>,
    pub(crate) sandbox: Option<Sourced<String>>,
    pub(crate) memory: Option<Sourced<String>>,
    /// The mode of the environment. Those of files are among the permissions.
    pub(crate) mode: Option<Sourced<Mode>>,
    pub(crate) context: Option<Sourced<bool>>,
    /// At most one limit of each kind.
    pub(crate) budget: Vec<Sourced<BudgetLimit>>,
    pub(crate) models: BTreeMap<String, Sourced<ModelProfile>>,
    pub(crate) agents: BTreeMap<String, Sourced<AgentProfile>>,
    /// The values of a project that are not in force.
    pub(crate) ignored: Vec<Sourced<IgnoredValue>>,
}

/// A value of a project that is not in force: what the user reads before they accept it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IgnoredValue {
    pub(crate) name: String,
    pub(crate) value: String,
}

const MODEL_VARIABLE: &str = "RATH_MODEL";
const SANDBOX_VARIABLE: &str = "RATH_SANDBOX";
const MEMORY_VARIABLE: &str = "RATH_MEMORY";
const MODE_VARIABLE: &str = "RATH_MODE";
const CONTEXT_VARIABLE: &str = "RATH_CONTEXT";
const BUDGET_VARIABLE: &str = "RATH_BUDGET";

impl Settings {
    /// Reads the values for an agent that is started in `directory`: the user's file, then those of the project, then the environment.
    /// A later one replaces an earlier one.
    pub(crate) fn read(directory: &Path) -> Result<Self, Failure> {
        let mut settings = Settings::default();
        if let Some(path) = user_file()
            && let Some(text) = read_file(&path)?
        {
            settings.add_file(&path, parse(&path, &text)?, |_, _| true);
        }
        let trusted = TrustedFiles::read()?;
        let mut files = ProjectFiles::find(directory, PROJECT_FILE).files;
        // The outermost file first: what an inner one says is about less.
        files.reverse();
        for (path, text) in files {
            let text = text?;
            let is_trusted = trusted.has(&path, &text);
            let content = parse(&path, &text)?;
            if content.settings.iter().any(|(_, setting)| setting.names_keyring()) {
                return Err(only_for_users(&path, "keyring:"));
            }
            settings.add_file(&path, content, |settings, setting| is_trusted || settings.only_restricts(setting));
        }
        settings.add_environment()?;
        Ok(settings)
    }

    fn add_file(&mut self, path: &Path, content: ConfigContent, is_in_force: impl Fn(&Settings, &Setting) -> bool) {
        for (line, setting) in content.settings {
            let source = ValueSource::File { path: path.to_owned(), line };
            match is_in_force(self, &setting) {
                true => self.set(setting, source),
                false => self.ignored.push(Sourced { value: setting.describe(), source }),
            }
        }
    }

    /// Returns true if a value takes something away and gives nothing: then it is in force in a project's file that the user has not
    /// accepted.
    fn only_restricts(&self, setting: &Setting) -> bool {
        match setting {
            // A model is a server, a key and money.
            Setting::Model(_) | Setting::ModelProfile(..) => false,
            // A sandbox may be weaker, and a memory outside of the project.
            Setting::Sandbox(_) | Setting::Memory(_) => false,
            // The prompt, the tools and the mode.
            Setting::AgentProfile(..) => false,
            Setting::Context(is_read) => !is_read,
            Setting::Budget(limit) => {
                let known = self.budget.iter().find(|known| known.value.is_same_kind(limit));
                known.is_none_or(|known| limit.is_at_most(&known.value))
            }
        }
    }

    fn set(&mut self, setting: Setting, source: ValueSource) {
        match setting {
            Setting::Model(value) => self.model = Some(Sourced { value, source }),
            Setting::Sandbox(value) => self.sandbox = Some(Sourced { value, source }),
            Setting::Memory(value) => self.memory = Some(Sourced { value, source }),
            Setting::Context(value) => self.context = Some(Sourced { value, source }),
            Setting::Budget(value) => {
                self.budget.retain(|known| !known.value.is_same_kind(&value));
                self.budget.push(Sourced { value, source });
            }
            Setting::ModelProfile(name, value) => _ = self.models.insert(name, Sourced { value, source }),
            Setting::AgentProfile(name, value) => _ = self.agents.insert(name, Sourced { value, source }),
        }
    }

    fn add_environment(&mut self) -> Result<(), Failure> {
        for (name, setting) in [
            (MODEL_VARIABLE, Setting::Model as fn(String) -> Setting),
            (SANDBOX_VARIABLE, Setting::Sandbox),
            (MEMORY_VARIABLE, Setting::Memory),
        ] {
            if let Some(value) = variable(name) {
                self.set(setting(value), ValueSource::Variable(name));
            }
        }
        if let Some(value) = variable(MODE_VARIABLE) {
            let mode = value.parse().map_err(|error: String| wrong_variable(MODE_VARIABLE, &error, "--mode"))?;
            self.mode = Some(Sourced { value: mode, source: ValueSource::Variable(MODE_VARIABLE) });
        }
        if let Some(value) = variable(CONTEXT_VARIABLE) {
            let is_read = match value.as_str() {
                "on" | "true" | "1" => true,
                "off" | "false" | "0" => false,
                _ => {
                    let why = format!("wanted `on` or `off`, found `{value}`");
                    return Err(wrong_variable(CONTEXT_VARIABLE, &why, "--no-context"));
                }
            };
            self.set(Setting::Context(is_read), ValueSource::Variable(CONTEXT_VARIABLE));
        }
        for value in variable(BUDGET_VARIABLE).iter().flat_map(|value| value.split(',')) {
            let limit =
                value.trim().parse().map_err(|error: String| wrong_variable(BUDGET_VARIABLE, &error, "--budget"))?;
            self.set(Setting::Budget(limit), ValueSource::Variable(BUDGET_VARIABLE));
        }
        Ok(())
    }

    /// Returns the values in force and their names, each with the place that it comes from.
    pub(crate) fn lines(&self) -> Vec<(String, String, String)> {
        fn line<T: fmt::Display>(name: impl Into<String>, value: &Sourced<T>) -> (String, String, String) {
            (name.into(), value.value.to_string(), value.source.to_string())
        }
        let unset = |name: &str, value: &str| (name.to_owned(), value.to_owned(), "default".to_owned());
        let mut lines = vec![
            self.model.as_ref().map_or_else(|| unset("model", "none"), |value| line("model", value)),
            self.sandbox.as_ref().map_or_else(|| unset("sandbox", "isolated:."), |value| line("sandbox", value)),
            self.memory.as_ref().map_or_else(|| unset("memory", "none"), |value| line("memory", value)),
            self.context.as_ref().map_or_else(|| unset("context", "true"), |value| line("context", value)),
        ];
        lines.extend(self.budget.iter().map(|limit| line(format!("budget.{}", limit.value.name()), limit)));
        lines.extend(self.models.iter().map(|(name, model)| line(format!("models.{name}"), model)));
        lines.extend(self.agents.iter().map(|(name, agent)| line(format!("agents.{name}"), agent)));
        lines
    }

    /// Returns the files with values that are not in force.
    pub(crate) fn ignored_files(&self) -> impl Iterator<Item = &Path> {
        self.ignored.iter().filter_map(|ignored| match &ignored.source {
            ValueSource::File { path, .. } => Some(&**path),
            ValueSource::Variable(_) => None,
        })
    }

    /// Says which values of the project are not in force, and how to accept them.
    pub(crate) fn warn_of_ignored(&self) {
        let files: Vec<&Path> = self.ignored_files().collect();
        let Some(path) = files.first() else { return };
        let names: Vec<_> = self.ignored.iter().map(|ignored| format!("`{}`", ignored.value.name)).collect();
        let (path, names, command) = (output::path(path), names.join(", "), trust_command(files.iter().copied()));
        output::note(&format!("{path} sets {names}, not in force; `{command}` accepts the file"));
    }
}

impl Setting {
    /// Describes the value to a user who has not accepted it.
    pub(super) fn describe(&self) -> IgnoredValue {
        let value = match self {
            Setting::Model(text) | Setting::Sandbox(text) | Setting::Memory(text) => text.clone(),
            Setting::Context(is_told) => is_told.to_string(),
            Setting::Budget(limit) => limit.to_string(),
            Setting::ModelProfile(_, model) => model.to_string(),
            Setting::AgentProfile(_, agent) => agent.to_string(),
        };
        IgnoredValue { name: self.name(), value }
    }

    /// Returns true if the value names a key in the keyring, which is never a project's.
    fn names_keyring(&self) -> bool {
        matches!(self, Setting::ModelProfile(_, ModelProfile { key: Some(KeySource::Keyring(_)), .. }))
    }

    /// Returns the name of the value in a file.
    fn name(&self) -> String {
        match self {
            Setting::Model(_) => "model".to_owned(),
            Setting::Sandbox(_) => "sandbox".to_owned(),
            Setting::Memory(_) => "memory".to_owned(),
            Setting::Context(_) => "context".to_owned(),
            Setting::Budget(limit) => format!("budget.{}", limit.name()),
            Setting::ModelProfile(name, _) => format!("models.{name}"),
            Setting::AgentProfile(name, _) => format!("agents.{name}"),
        }
    }
}

/// Returns the value of a variable; none if it is empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn wrong_variable(name: &str, why: &str, option: &str) -> Failure {
    Failure::new(format!("the variable {name} is wrong: {why}"), format!("`unset {name}`, or use `{option}`"))
        .with_exit(Exit::Usage)
}

/// Fails for a value that only the user's own file can have.
pub(super) fn only_for_users(path: &Path, name: &str) -> Failure {
    wrong(path, &format!("only your own configuration can have `{name}`"))
}
