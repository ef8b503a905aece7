//! Tools for working in a workspace: its files, and commands in it.
//!
//! They work in the session's place, and whatever that is made of, through a [`Sandbox`](crate::Sandbox): no path leads out
//! of it. An agent has those that it is given, one by one or several at once.
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

mod check;
mod command;
mod edit_file;
mod file_exists;
mod list_files;
mod read_file;
mod run_code;
mod search_files;
mod shell;
mod tree;
mod write_file;

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};

pub use self::check::Check;
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

/// The tools that change nothing: `read_file`, `list_files`, `file_exists` and `search_files`.
pub fn read_only() -> Tools {
    Tools::default().tool(ReadFile).tool(ListFiles).tool(FileExists).tool(SearchFiles)
}

/// Those, and the ones that change files: `write_file` and `edit_file`.
pub fn files() -> Tools {
    read_only().tool(WriteFile).tool(EditFile)
}

/// All of them: commands too, with `shell`, `run_code` and `check`.
pub fn all() -> Tools {
    files().tool(Shell).tool(RunCode).tool(Check)
}

/// What the model is told about a path.
const PATH: &str = "The path, relative to the workspace.";

fn spec(name: &str, description: &str, properties: Value, required: &[&str]) -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    ToolSpec::new(name, description, schema)
}

fn text<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments[name].as_str().unwrap_or_default()
}

/// What went wrong with a file that the model named.
fn cannot(what: &str, path: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format_args!("cannot {what} `{path}`: {why}"))
}

/// A count with its noun: `1 line`, `2 lines`.
fn count(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
