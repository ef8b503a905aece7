//! Tools for working in a workspace: its files, and commands in it.
//!
//! They work in the session's place through a [`Sandbox`](crate::Sandbox), so no path leads out of it. An agent has the
//! tools that it is given, one by one or several at once.
//!
//! ```
//! use rath::prelude::*;
//! use rath::tool::builtin::{self, EditFile};
//!
//! # fn example(provider: &Provider) {
//! let reviewer = Agent::new("You review.", provider).tools(builtin::read_only());
//! let editor = Agent::new("You correct spelling.", provider).tools(builtin::read_only()).tool(EditFile);
//! let programmer = Agent::new("You write programs.", provider).tools(builtin::all());
//! # }
//! ```

mod apply_patch;
mod arguments;
mod check;
mod command;
mod commit;
mod edit_file;
mod file_exists;
mod list_files;
mod nearest_paths;
mod read_file;
mod run_code;
mod search_files;
mod shell;
mod similar;
mod tree;
mod write_file;

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};

pub use self::apply_patch::ApplyPatch;
use self::apply_patch::Patch;
pub(crate) use self::arguments::{AcceptedForms, is_added_by_update, is_update, written_paths};
pub use self::arguments::{arguments_of, main_argument};
pub use self::check::Check;
pub use self::commit::Commit;
pub use self::edit_file::EditFile;
pub use self::file_exists::FileExists;
pub use self::list_files::ListFiles;
pub use self::read_file::ReadFile;
pub use self::run_code::RunCode;
pub use self::search_files::SearchFiles;
pub use self::shell::Shell;
pub use self::write_file::WriteFile;

use super::Tools;
use crate::error::ErrorKind;
use crate::session::Error;

/// Returns the tools that change nothing: `read_file`, `list_files`, `file_exists` and `search_files`.
///
/// ```
/// let tools = rath::tool::builtin::read_only();
/// assert_eq!(tools.names().collect::<Vec<_>>(), ["read_file", "list_files", "file_exists", "search_files"]);
/// ```
pub fn read_only() -> Tools {
    Tools::default().tool(ReadFile).tool(ListFiles).tool(FileExists).tool(SearchFiles)
}

/// Returns the read-only tools and those that change files: `write_file`, `edit_file` and `apply_patch`.
///
/// ```
/// let tools = rath::tool::builtin::files();
/// assert!(tools.names().any(|name| name == "write_file"));
/// ```
pub fn files() -> Tools {
    read_only().tool(WriteFile).tool(EditFile).tool(ApplyPatch)
}

/// Returns all tools: those for files, and `shell`, `run_code`, `check` and `commit`, which run commands.
///
/// ```
/// let tools = rath::tool::builtin::all();
/// assert!(tools.names().any(|name| name == "shell"));
/// ```
pub fn all() -> Tools {
    files().tool(Shell).tool(RunCode).tool(Check).tool(Commit)
}

/// The description of a path for the model.
const PATH_DESCRIPTION: &str = "The path, relative to the workspace.";

fn spec(name: &str, description: &str, properties: Value, required: &[&str]) -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    ToolSpec::new(name, description, schema)
}

/// Returns an argument that is a string, or the empty string if it was left out.
fn text<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments[name].as_str().unwrap_or_default()
}

/// Returns an argument that is a list of strings; empty if it was left out.
fn texts(arguments: &Value, name: &str) -> Vec<String> {
    arguments[name].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Creates an error about a file that the model named.
fn file_error(action: &str, path: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format_args!("cannot {action} `{path}`: {why}"))
}

/// Formats a count with its noun: `1 line`, `2 lines`.
fn count(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
