//! Models and agents that a configuration gives names to.

use std::fmt;
use std::path::{Path, PathBuf};

use rath::policy::Mode;
use rath::tool::builtin;
use serde_json::Value as Json;
use toml_edit::{Item, TableLike, Value};

use super::parse::WrongValue;
use crate::output;

/// The kinds of model that a URI names.
pub(crate) const MODEL_KINDS: [&str; 4] = ["openai", "anthropic", "gemini", "script"];

/// A model with the settings of its server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModelProfile {
    /// The URI of the model.
    pub(crate) uri: String,
    pub(crate) base_url: Option<String>,
    pub(crate) key: Option<KeySource>,
    /// Further members of requests.
    pub(crate) options: Vec<(String, Json)>,
}

/// The place of a key. A configuration never has the key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    Variable(String),
    File(PathBuf),
    /// A name in the keyring of the desktop, which the program `secret-tool` reads.
    Keyring(String),
}

/// An agent with its prompt and its tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AgentProfile {
    pub(crate) system: Option<String>,
    pub(crate) model: Option<String>,
    /// The names of its tools. Without them the agent has all, and those of MCP servers.
    pub(crate) tools: Option<Vec<String>>,
    pub(crate) memory: Option<String>,
    pub(crate) turns: Option<u64>,
    pub(crate) mode: Option<Mode>,
}

impl ModelProfile {
    pub(super) fn parse(path: &Path, item: &Item) -> Result<Self, WrongValue> {
        let table = section(item)?;
        let (mut uri, mut base_url, mut key, mut options) = (None, None, None, Vec::new());
        for (name, item) in table.iter() {
            let wrong = |why: String| WrongValue::at(item.span(), why);
            match name {
                "model" => uri = Some(model_uri(name, item)?),
                "base_url" => {
                    let url = text(name, item)?;
                    if !url.starts_with("http://") && !url.starts_with("https://") {
                        return Err(wrong("`base_url` does not begin with `https://` or `http://`".to_owned()));
                    }
                    base_url = Some(url);
                }
                "key" => key = Some(KeySource::parse(path, &text(name, item)?).map_err(wrong)?),
                "options" => {
                    for (option, item) in section(item)?.iter() {
                        let value = item.as_value().and_then(to_json);
                        let value = value.ok_or_else(|| wrong(format!("the option `{option}` has no JSON value")))?;
                        options.push((option.to_owned(), value));
                    }
                }
                other => return Err(unknown(item, other, "model, base_url, key, options")),
            }
        }
        let uri = uri.ok_or_else(|| WrongValue::at(item.span(), "the section has no `model`".to_owned()))?;
        let has_server = base_url.is_some() || key.is_some() || !options.is_empty();
        if uri.starts_with("script:") && has_server {
            let why = "a script has no `base_url`, `key` or `options`".to_owned();
            return Err(WrongValue::at(item.span(), why));
        }
        Ok(ModelProfile { uri, base_url, key, options })
    }
}

impl fmt::Display for ModelProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.uri)?;
        self.base_url.iter().try_for_each(|url| write!(f, ", at {url}"))?;
        self.key.iter().try_for_each(|key| write!(f, ", with the key in {key}"))?;
        self.options.iter().try_for_each(|(name, value)| write!(f, ", {name}={value}"))
    }
}

impl KeySource {
    /// Reads the name of a variable or of a key in the keyring, or the path of a file beside the configuration or in the home directory.
    fn parse(configuration: &Path, text: &str) -> Result<Self, String> {
        let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        if !text.is_empty() && text.chars().all(is_name) {
            return Ok(KeySource::Variable(text.to_owned()));
        }
        if let Some(name) = text.strip_prefix("keyring:") {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            return match !name.is_empty() && name.chars().all(is_name) && !name.starts_with('-') {
                true => Ok(KeySource::Keyring(name.to_owned())),
                false => Err("a name after `keyring:` has letters, digits, `-`, `_` and `.`".to_owned()),
            };
        }
        if let Some(rest) = text.strip_prefix("~/") {
            return Ok(KeySource::File(std::env::home_dir().unwrap_or_default().join(rest)));
        }
        if text.contains('/') {
            return Ok(KeySource::File(configuration.parent().unwrap_or(Path::new("/")).join(text)));
        }
        // The text is not repeated: it may be a key.
        let places = "the name of a variable, such as `MY_KEY`, the path of a file, or `keyring:NAME`";
        Err(format!("`key` is {places}, never the key itself"))
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::Variable(name) => f.write_str(name),
            KeySource::File(path) => f.write_str(&output::home_path(path)),
            KeySource::Keyring(name) => write!(f, "keyring:{name}"),
        }
    }
}

impl AgentProfile {
    pub(super) fn parse(item: &Item) -> Result<Self, WrongValue> {
        let mut profile = AgentProfile::default();
        for (name, item) in section(item)?.iter() {
            let wrong = |why: String| WrongValue::at(item.span(), why);
            match name {
                "system" => profile.system = Some(text(name, item)?),
                // Either a URI, or the name of a profile.
                "model" => profile.model = Some(text(name, item)?),
                "memory" => profile.memory = Some(text(name, item)?),
                "mode" => profile.mode = Some(text(name, item)?.parse().map_err(wrong)?),
                "turns" => {
                    let turns =
                        item.as_integer().and_then(|turns| u64::try_from(turns).ok()).filter(|turns| *turns > 0);
                    profile.turns = Some(turns.ok_or_else(|| wrong("`turns` is not a number above 0".to_owned()))?);
                }
                "tools" => {
                    let not_names = || wrong("`tools` is not a list of names".to_owned());
                    let list = item.as_array().ok_or_else(not_names)?.iter();
                    let names: Option<Vec<_>> = list.map(|name| name.as_str().map(str::to_owned)).collect();
                    let names = names.ok_or_else(not_names)?;
                    let known = builtin::all();
                    let known: Vec<&str> = known.names().collect();
                    if let Some(other) = names.iter().find(|name| !known.contains(&name.as_str())) {
                        return Err(wrong(format!("unknown tool `{other}`; known: {}", known.join(", "))));
                    }
                    profile.tools = Some(names);
                }
                other => return Err(unknown(item, other, "system, model, tools, memory, turns, mode")),
            }
        }
        Ok(profile)
    }
}

impl fmt::Display for AgentProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.model.as_ref().map(|model| format!("asks {model}")),
            self.tools.as_ref().map(|tools| format!("tools {}", tools.join(" "))),
            self.memory.as_ref().map(|memory| format!("memory {memory}")),
            self.turns.map(|turns| format!("at most {turns} turns")),
            self.mode.map(|mode| format!("mode {}", mode.name())),
            self.system.as_ref().map(|system| format!("told {system:?}")),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}

/// Returns the section that an item is.
pub(super) fn section(item: &Item) -> Result<&dyn TableLike, WrongValue> {
    item.as_table_like().ok_or_else(|| WrongValue::at(item.span(), "it is not a section".to_owned()))
}

/// Returns the text of a value, which is not empty.
pub(super) fn text(name: &str, item: &Item) -> Result<String, WrongValue> {
    let text = item.as_str().ok_or_else(|| WrongValue::at(item.span(), format!("`{name}` is not a text")))?;
    match text.trim().is_empty() {
        true => Err(WrongValue::at(item.span(), format!("`{name}` is empty"))),
        false => Ok(text.to_owned()),
    }
}

/// Returns the URI of a model.
fn model_uri(name: &str, item: &Item) -> Result<String, WrongValue> {
    let uri = text(name, item)?;
    match uri.split_once(':').is_some_and(|(kind, _)| MODEL_KINDS.contains(&kind)) {
        true => Ok(uri),
        false => {
            let why = format!("`{name}` is not openai:NAME, anthropic:NAME, gemini:NAME or script:FILE, but `{uri}`");
            Err(WrongValue::at(item.span(), why))
        }
    }
}

pub(super) fn unknown(item: &Item, name: &str, known: &str) -> WrongValue {
    WrongValue::at(item.span(), format!("unknown name `{name}`; known: {known}"))
}

fn to_json(value: &Value) -> Option<Json> {
    Some(match value {
        Value::String(text) => Json::from(text.value().as_str()),
        Value::Integer(number) => Json::from(*number.value()),
        Value::Float(number) => Json::from(serde_json::Number::from_f64(*number.value())?),
        Value::Boolean(value) => Json::from(*value.value()),
        Value::Datetime(_) => return None,
        Value::Array(list) => Json::Array(list.iter().map(to_json).collect::<Option<_>>()?),
        Value::InlineTable(table) => {
            let members = table.iter().map(|(name, value)| Some((name.to_owned(), to_json(value)?)));
            Json::Object(members.collect::<Option<_>>()?)
        }
    })
}
