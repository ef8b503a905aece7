//! `rath config`: show the configuration, and accept that of a project.

use std::path::{Path, PathBuf};

use rath::policy::Mode;
use rath::record::draw::one_line;
use serde_json::json;

use crate::agent;
use crate::configuration::{
    self, ConfigFile, FileState, McpFiles, Permissions, Settings, Trust, trust_command, trust_files, user_file,
};
use crate::keys;
use crate::output::{self, CommandResult, Exit, Failure};

/// Show what is configured, or accept the file of a project
///
/// Values are in `~/.config/rath/config.toml`, and in `rath.toml` in the
/// directory of a project. Variables such as RATH_MODEL come before files, and
/// options before variables:
///
///   model = "fast"        # or openai:NAME, anthropic:NAME, gemini:NAME, script:FILE
///   sandbox = "isolated:."
///   memory = "local:.rath/memory"
///   context = true        # tell the agent AGENTS.md when a session begins
///
///   [models.fast]
///   model = "openai:qwen3"
///   base_url = "http://127.0.0.1:8080/v1"
///   key = "LOCAL_KEY"     # a variable, a file or keyring:NAME, never the key
///   options = { temperature = 0.2 }
///
///   [agents.reviewer]     # for `--agent reviewer`
///   system = "You review changes."
///   model = "fast"
///   tools = ["read_file", "search_files"]
///   turns = 20
///   mode = "read-only"
///
///   [budget]
///   tokens = 50000
///   money = "2usd"
///   turns = 20
///   time = "10min"
///
///   [permissions]
///   mode = "ask"
///   allow = ["command cargo test *", "write docs/"]
///   ask = ["command git *"]
///   deny = ["read .env", "command git push *"]
///
/// The rules of `rath gc` are in your own file: see `rath gc --help`.
///
/// `[projects."/home/me/app"]` in your own file has the same, for one directory.
///
/// Modes: read-only, ask (before anything changes), workspace (changes in the
/// directory are made), full.
///
/// Rules:
///   tool NAME           a tool; `*` stands for any characters
///   command LINE        a command as it is typed; ` *` at its end: with or
///                       without arguments
///   read, write PATH    as in a .gitignore; `/` at its beginning is the top of
///                       the directory
///   host NAME           a host, or all below one: *.example.com
///   outside PATH        an absolute path outside of the directory
///   server NAME         an MCP server
///
/// MCP servers are in `~/.config/rath/mcp.json`, and in `.mcp.json` in the
/// directory of a project: see `rath mcp ls --help`.
///
/// A rule that denies comes first, then one that asks, then one that allows. A
/// project's file can only make things stricter, until you accept it.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    action: Option<ConfigAction>,
}

#[derive(clap::Subcommand)]
enum ConfigAction {
    /// Show what is in force here, and where it comes from (the default)
    Show {
        /// Print one JSON object for each value
        #[arg(long)]
        json: bool,
    },
    /// Read the key of a model from the terminal, or from stdin, and keep it in a file that only you can read
    SetKey {
        /// The provider: openai, anthropic or gemini
        #[arg(value_parser = keys::PROVIDERS)]
        provider: String,
    },
    /// Accept what the project's `rath.toml` and `.mcp.json` say now. A file that changes is not accepted any longer
    Trust {
        /// The files, if not the innermost of each kind
        files: Vec<PathBuf>,
    },
}

/// The form of the list of values.
#[derive(Clone, Copy, PartialEq)]
enum ListFormat {
    Text,
    Json,
}

pub(crate) fn run(args: &ConfigArgs) -> CommandResult {
    match &args.action {
        None => show(ListFormat::Text),
        Some(ConfigAction::Show { json }) => show(if *json { ListFormat::Json } else { ListFormat::Text }),
        Some(ConfigAction::SetKey { provider }) => {
            let path = keys::set(provider)?;
            output::message!("the key for {provider} is in {}", output::home_path(&path));
            Ok(Exit::Success)
        }
        Some(ConfigAction::Trust { files }) => {
            trust_files(files)?;
            show(ListFormat::Text)
        }
    }
}

/// One value, as it is shown.
struct Shown {
    name: String,
    value: String,
    from: String,
    is_in_force: bool,
}

fn show(format: ListFormat) -> CommandResult {
    let (permissions, settings) = (Permissions::read(Some(Path::new(".")))?, Settings::read(Path::new("."))?);
    permissions.warn_of_others();
    let (gc_rules, mcp) = (configuration::gc_rules()?, McpFiles::read(Some(Path::new(".")))?);
    mcp.notices.iter().for_each(|notice| output::note(notice));
    let from = |source: &ConfigFile| output::home_path(&source.path);
    let mut shown = Vec::new();
    let mut add = |name: &str, value: String, from: String, is_in_force| {
        shown.push(Shown { name: name.to_owned(), value, from, is_in_force });
    };
    for (name, value, from) in settings.lines() {
        add(&name, value, from, true);
    }
    add("turns", agent::DEFAULT_TURNS.to_string(), "default".to_owned(), true);
    match keys::sources() {
        // A file of keys that is wrong does not hide the rest.
        Err(failure) => output::warning(&failure.message),
        Ok(sources) => sources.into_iter().for_each(|(provider, source)| {
            let value = if source.is_some() { "set" } else { "none" };
            add(&format!("key.{provider}"), value.to_owned(), source.unwrap_or_else(|| "default".to_owned()), true);
        }),
    }
    for ignored in &settings.ignored {
        add(&ignored.value.name, ignored.value.value.clone(), ignored.source.to_string(), false);
    }
    if let Some(mode) = &settings.mode {
        add("mode", mode.value.name().to_owned(), mode.source.to_string(), true);
    } else if permissions.mode.is_none() && permissions.project_modes.is_empty() {
        let (terminal, scripts) = (Mode::Ask.name(), Mode::Workspace.name());
        add("mode", format!("{terminal} in a terminal, {scripts} in scripts"), "default".to_owned(), true);
    }
    for (mode, source) in permissions.mode.iter().chain(&permissions.project_modes) {
        let usual = permissions.mode.as_ref().map_or(Mode::Workspace, |(mode, _)| *mode);
        let is_in_force = settings.mode.is_none() && (source.trust == Trust::Full || *mode < usual);
        add("mode", mode.name().to_owned(), from(source), is_in_force);
    }
    for (rules, is_in_force) in [(&permissions.rules, true), (&permissions.ignored, false)] {
        for (rule, source) in rules {
            let rule = rule.to_string();
            let (permission, rule) = rule.split_once(' ').unwrap_or((&rule, ""));
            add(permission, rule.to_owned(), from(source), is_in_force);
        }
    }
    let mut proposed: Vec<&Path> = permissions.ignored.iter().map(|(_, source)| &*source.path).collect();
    proposed.extend(settings.ignored_files());
    for file in &mcp.files {
        match file.outline() {
            Ok(servers) => {
                let is_in_force = file.state == FileState::InForce;
                proposed.extend((!is_in_force).then_some(&*file.path));
                for (name, description) in servers {
                    let value = format!("{name}: {description}");
                    add("mcp server", value, output::home_path(&file.path), is_in_force);
                }
            }
            // Of others, and not in force: it harms nothing.
            Err(failure) => output::warning(&failure.to_string()),
        }
    }
    let path = user_file().map(|path| output::home_path(&path)).unwrap_or_default();
    gc_rules.lines().into_iter().for_each(|rule| add("gc", rule, path.clone(), true));
    print(&shown, format)?;
    if !proposed.is_empty() {
        output::message!("hint: `{}` accepts what the project allows", trust_command(proposed));
    } else if permissions.rules.is_empty()
        && let Some(path) = user_file()
    {
        output::message!("hint: `rath config --help` shows the format of {}", output::home_path(&path));
    }
    Ok(Exit::Success)
}

fn print(shown: &[Shown], format: ListFormat) -> Result<(), Failure> {
    if format == ListFormat::Json {
        for Shown { name, value, from, is_in_force } in shown {
            let json = json!({"name": name, "value": value, "from": from, "in_force": is_in_force});
            output::data(|out| output::json_line(out, &json))?;
        }
        return Ok(());
    }
    output::text(|out| {
        for Shown { name, value, from, is_in_force } in shown {
            let prefix = if *is_in_force { "" } else { "not in force: " };
            let value = if value.is_empty() { String::new() } else { format!(" {}", one_line(value)) };
            writeln!(out, "{prefix}{}{value}  ({from})", one_line(name))?;
        }
        Ok(())
    })?;
    Ok(())
}
