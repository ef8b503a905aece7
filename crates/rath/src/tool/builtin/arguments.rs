//! The names and forms in which calls of the built-in tools give arguments.
//!
//! A parameter has one name in the schema, which the model is told of, and other names under which it is accepted. The rule: **a name
//! that was ever released stays accepted**, for calls on record have to be made, shown and compared as they were meant. Names that
//! models use out of habit are accepted too, where they can mean one parameter only.
//!
//! The record keeps a call as the model sent it. Tools, policies and previews read it through [`AcceptedForms::read`], and errors name a
//! parameter as the call did.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use rath_record::chunk::ToolSpec;
use serde_json::{Map, Value};

use super::Patch;

/// Another name under which a call may give an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alias {
    name: &'static str,
    meaning: AliasMeaning,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum AliasMeaning {
    /// The parameter of this name.
    Parameter(&'static str),
    /// The parameter of this name, in milliseconds instead of seconds.
    Milliseconds(&'static str),
    /// A remark about the call, which changes nothing.
    Remark,
}

const fn alias(name: &'static str, parameter: &'static str) -> Alias {
    Alias { name, meaning: AliasMeaning::Parameter(parameter) }
}

const fn milliseconds(name: &'static str, parameter: &'static str) -> Alias {
    Alias { name, meaning: AliasMeaning::Milliseconds(parameter) }
}

const fn remark(name: &'static str) -> Alias {
    Alias { name, meaning: AliasMeaning::Remark }
}

/// The names of earlier versions, by tool: none is ever removed, and each has a row in the test of this module.
const RELEASED: [(&str, &[Alias]); 3] = [
    ("read_file", &[alias("from_line", "offset"), alias("lines", "limit")]),
    ("write_file", &[alias("text", "content")]),
    ("edit_file", &[alias("old", "old_string"), alias("new", "new_string"), alias("all", "replace_all")]),
];

/// The names of the path of a file that models use.
const FILE: [Alias; 7] = [
    alias("file_path", "path"),
    alias("filePath", "path"),
    alias("filepath", "path"),
    alias("file", "path"),
    alias("filename", "path"),
    alias("target_file", "path"),
    alias("absolute_path", "path"),
];

/// The names of the path of a directory that models use.
const DIRECTORY: [Alias; 7] = [
    alias("dir_path", "path"),
    alias("dir", "path"),
    alias("directory", "path"),
    alias("folder", "path"),
    alias("target_directory", "path"),
    alias("file_path", "path"),
    alias("absolute_path", "path"),
];

/// The names of a number of seconds that models use.
const SECONDS: [Alias; 4] = [
    alias("timeout_seconds", "timeout"),
    alias("timeout_secs", "timeout"),
    milliseconds("timeout_ms", "timeout"),
    milliseconds("timeout_millis", "timeout"),
];

const COMMAND: [Alias; 2] = [alias("cmd", "command"), alias("command_line", "command")];
const REMARKS: [Alias; 4] = [remark("description"), remark("explanation"), remark("justification"), remark("reason")];

/// The names that models use out of habit, by tool.
const HABITUAL: [(&str, &[&[Alias]]); 11] = [
    ("read_file", &[&FILE, &[alias("start_line", "offset")]]),
    ("list_files", &[&DIRECTORY, &[alias("max_depth", "depth")]]),
    ("file_exists", &[&FILE]),
    (
        "search_files",
        &[
            &DIRECTORY,
            &[
                alias("regex", "pattern"),
                alias("query", "pattern"),
                alias("include", "glob"),
                alias("include_pattern", "glob"),
                alias("file_pattern", "glob"),
                alias("context_lines", "context"),
                alias("-C", "context"),
            ],
        ],
    ),
    ("write_file", &[&FILE, &[alias("contents", "content"), alias("file_text", "content")]]),
    (
        "edit_file",
        &[
            &FILE,
            &[
                alias("old_str", "old_string"),
                alias("oldString", "old_string"),
                alias("old_text", "old_string"),
                alias("new_str", "new_string"),
                alias("newString", "new_string"),
                alias("new_text", "new_string"),
                alias("replaceAll", "replace_all"),
            ],
        ],
    ),
    ("apply_patch", &[&[alias("patch", "input"), alias("patch_text", "input"), alias("patchText", "input")], &REMARKS]),
    (
        "shell",
        &[
            &COMMAND,
            &SECONDS,
            &[
                alias("workdir", "cwd"),
                alias("working_dir", "cwd"),
                alias("working_directory", "cwd"),
                alias("directory", "cwd"),
            ],
            &REMARKS,
        ],
    ),
    ("run_code", &[&SECONDS, &REMARKS, &[alias("lang", "language")]]),
    ("check", &[&COMMAND, &REMARKS]),
    ("commit", &[&[alias("files", "paths")]]),
];

/// Returns the other names under which calls of a built-in tool give arguments.
pub(crate) fn aliases(tool: &str) -> impl Iterator<Item = &'static Alias> {
    let released = RELEASED.iter().filter(move |(name, _)| *name == tool).flat_map(|(_, aliases)| *aliases);
    let tool = tool.to_owned();
    let habitual = HABITUAL.iter().filter(move |(name, _)| *name == tool);
    released.chain(habitual.flat_map(|(_, lists)| lists.iter().copied().flatten()))
}

/// Returns the arguments of a call of a built-in tool under the names of its schema, under which names the call gave them; none if they
/// are no JSON object.
///
/// The record keeps a call as the model sent it: under a name of an earlier version, or one that models use out of habit. The arguments
/// of other tools are returned as they are.
///
/// ```
/// use rath::tool::builtin;
///
/// let arguments = builtin::arguments_of("edit_file", r#"{"file_path": "a.txt", "old": "one", "new": "two"}"#);
/// assert_eq!(arguments, Some(serde_json::json!({"path": "a.txt", "old_string": "one", "new_string": "two"})));
/// ```
pub fn arguments_of(tool: &str, arguments: &str) -> Option<Value> {
    static FORMS: LazyLock<BTreeMap<String, AcceptedForms>> =
        LazyLock::new(|| super::all().specs().map(|spec| (spec.name.clone(), AcceptedForms::new(spec))).collect());
    let arguments: Value = serde_json::from_str(arguments).ok()?;
    let arguments = match FORMS.get(tool) {
        // Arguments that contradict each other are returned as they are.
        Some(forms) => forms.read(arguments.clone()).map_or(arguments, |read| read.values),
        None => arguments,
    };
    arguments.is_object().then_some(arguments)
}

/// Returns the argument that says most about a call: its command, its pattern, or the paths that it reads or changes.
///
/// ```
/// use rath::tool::builtin;
///
/// assert_eq!(builtin::main_argument("shell", r#"{"cmd": "ls"}"#).as_deref(), Some("ls"));
/// ```
pub fn main_argument(tool: &str, arguments: &str) -> Option<String> {
    let given = arguments_of(tool, arguments)?;
    let main = ["command", "pattern", "path"].iter().find_map(|name| given[*name].as_str());
    match main {
        Some(main) => Some(main.to_owned()),
        None => Some(written_paths(tool, arguments).join(", ")).filter(|paths| !paths.is_empty()),
    }
}

/// Returns the paths of all files that a call of a tool for files may change; none of another tool.
pub(crate) fn written_paths(tool: &str, arguments: &str) -> Vec<String> {
    let given = arguments_of(tool, arguments).unwrap_or_default();
    match tool {
        "write_file" | "edit_file" => given["path"].as_str().map(str::to_owned).into_iter().collect(),
        "apply_patch" => {
            let patch = given["input"].as_str().and_then(|input| Patch::parse(input).ok());
            patch.iter().flat_map(Patch::paths).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns true if a built-in tool only differs from the one that a model was told of as a version of rath does from an earlier one:
/// a call in the form that the model knows is still accepted.
pub(crate) fn is_update(recorded: &ToolSpec, now: &ToolSpec) -> bool {
    if !is_builtin(now) {
        return false;
    }
    let forms = AcceptedForms::new(now);
    let schema: Value = serde_json::from_str(recorded.parameters.as_str()).unwrap_or_default();
    // A parameter that is required now and has no other name must have been there.
    let was_there = |name: &String| {
        schema["properties"].as_object().is_some_and(|known| {
            let names = forms
                .aliases
                .iter()
                .filter(|alias| matches!(alias.meaning, AliasMeaning::Parameter(parameter) if parameter == name))
                .map(|alias| alias.name);
            names.chain([name.as_str()]).any(|name| known.contains_key(name))
        })
    };
    let required = forms.parameters.iter().filter(|(_, parameter)| parameter.is_required);
    let mut known = schema["properties"].as_object().into_iter().flatten();
    known.all(|(name, _)| forms.accepts(name)) && required.map(|(name, _)| name).all(was_there)
}

/// Returns true if a tool that a model was not told of came to a set of built-in tools in a later version: the model was told of the tool
/// beside which it came.
pub(crate) fn is_added_by_update(new: &ToolSpec, known: &[ToolSpec]) -> bool {
    let beside = ADDED.iter().find(|(name, _)| *name == new.name).map(|(_, beside)| *beside);
    is_builtin(new) && beside.is_some_and(|beside| known.iter().any(|tool| tool.name == beside))
}

/// The tools that came to a set in a later version, each with a tool that was in the set before.
const ADDED: [(&str, &str); 1] = [("apply_patch", "edit_file")];

fn is_builtin(spec: &ToolSpec) -> bool {
    super::all().specs().any(|known| known == spec)
}

/// The names and forms in which calls of one built-in tool give arguments.
pub(crate) struct AcceptedForms {
    parameters: BTreeMap<String, Parameter>,
    aliases: Vec<&'static Alias>,
}

struct Parameter {
    /// The type in the schema.
    kind: String,
    /// True for a line of shell.
    is_command: bool,
    is_required: bool,
}

/// The arguments of a call under the names of the schema.
#[derive(Debug)]
pub(crate) struct ReadArguments {
    pub(crate) values: Value,
    /// The parameters that the call gave under another name, with that name.
    pub(crate) renamed: Vec<(&'static str, &'static str)>,
}

impl AcceptedForms {
    pub(crate) fn new(spec: &ToolSpec) -> Self {
        let schema: Value = serde_json::from_str(spec.parameters.as_str()).unwrap_or_default();
        let required = |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|it| it == name));
        let parameter = |(name, schema): (&String, &Value)| {
            let kind = schema["type"].as_str().unwrap_or_default().to_owned();
            (name.clone(), Parameter { kind, is_command: name == "command", is_required: required(name) })
        };
        let properties = schema["properties"].as_object();
        AcceptedForms {
            parameters: properties.into_iter().flatten().map(parameter).collect(),
            aliases: aliases(&spec.name).collect(),
        }
    }

    /// Returns true if calls may give an argument under this name.
    pub(crate) fn accepts(&self, name: &str) -> bool {
        self.parameters.contains_key(name) || self.aliases.iter().any(|alias| alias.name == name)
    }

    /// Reads the arguments of a call. Those that are not understood stay as they are: the check against the schema refuses them.
    pub(crate) fn read(&self, arguments: Value) -> Result<ReadArguments, String> {
        let given = match arguments {
            Value::Object(given) => given,
            // Arguments that were encoded twice.
            Value::String(text) => match serde_json::from_str(&text) {
                Ok(Value::Object(given)) => given,
                _ => return Ok(ReadArguments { values: Value::String(text), renamed: Vec::new() }),
            },
            other => return Ok(ReadArguments { values: other, renamed: Vec::new() }),
        };
        let (mut values, mut renamed) = (Map::new(), Vec::new());
        let (own, others): (Vec<_>, Vec<_>) =
            given.into_iter().partition(|(name, _)| self.parameters.contains_key(name));
        for (name, value) in own {
            let parameter = &self.parameters[&name];
            // Some models write null for what they leave out.
            if !value.is_null() || parameter.is_required {
                values.insert(name, parameter.convert(value));
            }
        }
        for (name, value) in others {
            let Some(alias) = self.aliases.iter().find(|alias| alias.name == name) else {
                values.insert(name, value);
                continue;
            };
            let (parameter, value) = match alias.meaning {
                AliasMeaning::Remark => continue,
                AliasMeaning::Parameter(parameter) => (parameter, self.parameters[parameter].convert(value)),
                AliasMeaning::Milliseconds(parameter) => {
                    (parameter, to_seconds(self.parameters[parameter].convert(value)))
                }
            };
            if value.is_null() && !self.parameters[parameter].is_required {
                continue;
            }
            match values.get(parameter) {
                Some(known) if *known == value => {}
                Some(_) => {
                    let first =
                        renamed.iter().find(|(known, _)| *known == parameter).map_or(parameter, |(_, name)| *name);
                    return Err(format!(
                        "`{first}` and `{name}` mean the same, and their values differ; give `{parameter}` only"
                    ));
                }
                None => {
                    values.insert(parameter.to_owned(), value);
                    renamed.push((parameter, alias.name));
                }
            }
        }
        Ok(ReadArguments { values: Value::Object(values), renamed })
    }
}

impl Parameter {
    /// Converts a value to the type of the parameter, if it can mean one value only.
    fn convert(&self, value: Value) -> Value {
        let converted = match (self.kind.as_str(), &value) {
            ("integer", Value::String(text)) => text.trim().parse::<u64>().ok().map(Value::from),
            ("boolean", Value::String(text)) => match text.trim() {
                "true" | "True" => Some(Value::Bool(true)),
                "false" | "False" => Some(Value::Bool(false)),
                _ => None,
            },
            ("array", Value::String(text)) => serde_json::from_str(text).ok().filter(Value::is_array),
            ("string", Value::Array(words)) if self.is_command => to_command_line(words).map(Value::String),
            _ => None,
        };
        converted.unwrap_or(value)
    }
}

/// Converts milliseconds to seconds, rounded up.
fn to_seconds(milliseconds: Value) -> Value {
    milliseconds.as_u64().map_or(milliseconds, |count| count.div_ceil(1000).into())
}

/// Returns the line of shell that runs these words as a command.
fn to_command_line(words: &[Value]) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,@%+".contains(c);
    let quote = |word: &str| match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    let words: Option<Vec<_>> = words.iter().map(|word| Some(quote(word.as_str()?))).collect();
    words.filter(|words| !words.is_empty()).map(|words| words.join(" "))
}

#[cfg(test)]
mod tests;
