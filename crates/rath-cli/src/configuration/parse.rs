//! Reading the text of a configuration.

use std::ops::Range;
use std::path::{Path, PathBuf};

use rath::policy::{Mode, Permission, Rule};
use rath::record::draw::one_line;
use toml_edit::{Document, Item, TableLike, TomlError};

use super::profiles::{AgentProfile, ModelProfile, section, text, unknown};
use super::settings::{IgnoredValue, Setting};
use crate::budgets::BudgetLimit;
use crate::output::{self, Exit, Failure};
use crate::retention::GcRules;

/// The number of rules in one section.
const MAX_RULES: usize = 1000;
const KNOWN_NAMES: &str = "model, models, agents, sandbox, memory, context, budget, permissions, projects, gc";

/// The permissions of one section: those for all projects, or for one.
#[derive(Debug, Default)]
pub(super) struct Section {
    /// The directory of the project; none if the section is for all.
    pub(super) project: Option<PathBuf>,
    pub(super) mode: Option<Mode>,
    pub(super) rules: Vec<Rule>,
}

/// The values of a file.
#[derive(Debug, Default)]
pub(super) struct ConfigContent {
    pub(super) sections: Vec<Section>,
    pub(super) gc: Option<GcRules>,
    /// The other values, each with its line.
    pub(super) settings: Vec<(usize, Setting)>,
}

impl ConfigContent {
    /// Describes the values of a project's file, each by its name and its value.
    pub(super) fn describe(&self) -> Vec<(String, String)> {
        let settings = self.settings.iter().map(|(_, setting)| {
            let IgnoredValue { name, value } = setting.describe();
            (name, value)
        });
        let permissions = self.sections.iter().flat_map(|section| {
            let mode = section.mode.map(|mode| ("mode".to_owned(), mode.name().to_owned()));
            let rules = section.rules.iter().map(|rule| {
                let rule = rule.to_string();
                let (permission, rule) = rule.split_once(' ').unwrap_or((&rule, ""));
                (permission.to_owned(), rule.to_owned())
            });
            mode.into_iter().chain(rules)
        });
        settings.chain(permissions).collect()
    }
}

/// The reason why a value is wrong, and its place in the text.
pub(super) struct WrongValue {
    at: Option<Range<usize>>,
    why: String,
}

impl WrongValue {
    pub(super) fn at(at: Option<Range<usize>>, why: String) -> Self {
        WrongValue { at, why }
    }
}

/// Returns a failure about the content of a configuration.
pub(super) fn wrong(path: &Path, why: &str) -> Failure {
    let message = format!("the configuration {} is wrong: {}", output::path(path), one_line(why));
    Failure::new(message, "`rath config --help` shows the format").with_exit(Exit::Usage)
}

/// Reads the values of a file. What it does not know is an error: a misspelt rule would not be in force.
pub(super) fn parse(path: &Path, content: &str) -> Result<ConfigContent, Failure> {
    let line_of = |at: Range<usize>| content.bytes().take(at.start).filter(|byte| *byte == b'\n').count() + 1;
    let failure = |at: Option<Range<usize>>, why: &str| {
        let line = at.map(|at| format!("line {}: ", line_of(at))).unwrap_or_default();
        wrong(path, &format!("{line}{why}"))
    };
    let document = Document::parse(content).map_err(|error: TomlError| failure(error.span(), error.message()))?;
    let mut parsed = ConfigContent::default();
    for (name, item) in document.iter() {
        let at = document.get_key_value(name).and_then(|(key, _)| key.span());
        let line = at.clone().map_or(1, line_of);
        let values = parse_member(path, name, item, &mut parsed);
        let values = values.map_err(|wrong| failure(wrong.at.or(at), &wrong.why))?;
        for (span, value) in values {
            parsed.settings.push((span.map_or(line, line_of), value));
        }
    }
    // What is for one project comes after what is for all, and replaces the mode.
    parsed.sections.sort_by_key(|section| section.project.as_ref().map(|project| project.components().count()));
    Ok(parsed)
}

/// Returns the reason why a name is wrong, with the right place for what other programs call so.
fn unknown_name(name: &str) -> String {
    let place = match name {
        "profiles" | "profile" => "models have names in `models`, and agents in `agents`",
        "providers" | "provider" => "a server with its key is a section of `models`",
        "mcp" | "mcpServers" | "mcp_servers" => {
            "MCP servers are in mcp.json beside config.toml, or in a project's .mcp.json"
        }
        "retention" => "the rules of `rath gc` are in `gc`",
        "tools" | "turns" | "system" => "it is a member of a section of `agents`",
        "key" | "keys" | "base_url" | "options" => "it is a member of a section of `models`",
        "mode" | "allow" | "ask" | "deny" => "it is a member of `permissions`",
        _ => return format!("unknown name `{name}`; known: {KNOWN_NAMES}"),
    };
    format!("unknown name `{name}`: {place}")
}

type SettingsAt = Vec<(Option<Range<usize>>, Setting)>;

/// Reads one member of the file. Permissions and the rules of `rath gc` are added to `parsed`, all else is returned.
fn parse_member(path: &Path, name: &str, item: &Item, parsed: &mut ConfigContent) -> Result<SettingsAt, WrongValue> {
    let section_of = |name: &str, item: &'_ Item| {
        let is_section = item.as_table_like().is_some();
        is_section.then_some(()).ok_or_else(|| WrongValue::at(item.span(), format!("`{name}` is not a section")))
    };
    let one = |value: Setting| Ok(vec![(item.span(), value)]);
    match name {
        "model" => return one(Setting::Model(text(name, item)?)),
        "sandbox" => return one(Setting::Sandbox(text(name, item)?)),
        "memory" => return one(Setting::Memory(text(name, item)?)),
        "context" => {
            let not_bool = || WrongValue::at(item.span(), "`context` is neither true nor false".to_owned());
            return one(Setting::Context(item.as_bool().ok_or_else(not_bool)?));
        }
        "models" | "agents" | "budget" | "permissions" | "projects" | "gc" => section_of(name, item)?,
        other => return Err(WrongValue::at(None, unknown_name(other))),
    }
    let table = section(item)?;
    let mut values = Vec::new();
    match name {
        "models" | "agents" => {
            for (profile, item) in table.iter() {
                section_of(&format!("{name}.{profile}"), item)?;
                let is_named =
                    !profile.is_empty() && profile.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
                if !is_named {
                    let why =
                        format!("`{profile}` in `{name}` has other characters than letters, digits, `-`, `_` and `.`");
                    return Err(WrongValue::at(item.span(), why));
                }
                let profile = profile.to_owned();
                values.push((
                    item.span(),
                    match name {
                        "models" => Setting::ModelProfile(profile, ModelProfile::parse(path, item)?),
                        _ => Setting::AgentProfile(profile, AgentProfile::parse(item)?),
                    },
                ));
            }
        }
        "budget" => {
            for (name, item) in table.iter() {
                values.push((item.span(), Setting::Budget(parse_limit(name, item)?)));
            }
        }
        "permissions" => parsed.sections.push(parse_section(None, table)?),
        "projects" => {
            for (project, item) in table.iter() {
                section_of(&format!("projects.{project:?}"), item)?;
                if !Path::new(project).is_absolute() {
                    let why = format!("`{project}` in `projects` is not an absolute path");
                    return Err(WrongValue::at(item.span(), why));
                }
                parsed.sections.push(parse_section(Some(project.into()), section(item)?)?);
            }
        }
        _ => {
            let rules = GcRules::parse(table).map_err(|why| WrongValue::at(item.span(), format!("gc: {why}")))?;
            parsed.gc = Some(rules);
        }
    }
    Ok(values)
}

/// Reads a limit of the section `budget`: `tokens` and `turns` are numbers, the others texts with a unit.
fn parse_limit(name: &str, item: &Item) -> Result<BudgetLimit, WrongValue> {
    let example = match name {
        "tokens" => "50000",
        "turns" => "20",
        "money" => "\"2usd\"",
        "time" => "\"10min\"",
        other => return Err(unknown(item, other, "tokens, money, turns, time")),
    };
    let wrong = || WrongValue::at(item.span(), format!("`{name}` is not a limit such as {example}"));
    let text = match item.as_integer() {
        Some(number) if ["tokens", "turns"].contains(&name) => format!("{number}{name}"),
        _ => item.as_str().ok_or_else(wrong)?.to_owned(),
    };
    text.parse().ok().filter(|limit: &BudgetLimit| limit.name() == name).ok_or_else(wrong)
}

fn parse_section(project: Option<PathBuf>, table: &dyn TableLike) -> Result<Section, WrongValue> {
    let mut section = Section { project, ..Section::default() };
    for (name, item) in table.iter() {
        let wrong = |why: String| WrongValue::at(item.span(), why);
        let permission = match name {
            "mode" => {
                let mode = item.as_str().ok_or_else(|| wrong("`mode` is not a text".to_owned()))?;
                section.mode = Some(mode.parse().map_err(wrong)?);
                continue;
            }
            "allow" => Permission::Allow,
            "ask" => Permission::Ask,
            "deny" => Permission::Deny,
            other => return Err(unknown(item, other, "mode, allow, ask, deny")),
        };
        for value in item.as_array().ok_or_else(|| wrong(format!("`{name}` is not a list of rules")))? {
            let wrong = |why: String| WrongValue::at(value.span(), why);
            let rule = value.as_str().ok_or_else(|| wrong(format!("a rule in `{name}` is not a text")))?;
            section.rules.push(Rule::new(permission, rule).map_err(|error| wrong(error.to_string()))?);
            if section.rules.len() > MAX_RULES {
                return Err(wrong(format!("there are more than {MAX_RULES} rules")));
            }
        }
    }
    Ok(section)
}
