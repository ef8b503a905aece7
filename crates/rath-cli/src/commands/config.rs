//! `rath config`: show the configuration, and accept that of a project.

use std::path::{Path, PathBuf};

use rath::policy::Mode;
use rath::record::draw::one_line;

use crate::configuration::{
    self, ConfigFile, FileState, McpFiles, Permissions, Trust, trust_command, trust_files, user_file,
};
use crate::output::{self, CommandResult, Exit};

/// Show what is configured, or accept the file of a project
///
/// Permissions are in `~/.config/rath/config.toml`, and in `rath.toml` in the
/// directory of a project:
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
    Show,
    /// Accept what the project's `rath.toml` and `.mcp.json` say now. A file that changes is not accepted any longer
    Trust {
        /// The files, if not the innermost of each kind
        files: Vec<PathBuf>,
    },
}

pub(crate) fn run(args: &ConfigArgs) -> CommandResult {
    match &args.action {
        None | Some(ConfigAction::Show) => show(),
        Some(ConfigAction::Trust { files }) => {
            trust_files(files)?;
            show()
        }
    }
}

fn show() -> CommandResult {
    let permissions = Permissions::read(Some(Path::new(".")))?;
    permissions.warn_of_others();
    let (gc_rules, mcp) = (configuration::gc_rules()?, McpFiles::read(Some(Path::new(".")))?);
    mcp.notices.iter().for_each(|notice| output::note(notice));
    let mut described = Vec::new();
    for file in &mcp.files {
        match file.outline() {
            Ok(servers) => described.push((file, servers)),
            // Of others, and not in force: it harms nothing.
            Err(failure) => output::warning(&failure.to_string()),
        }
    }
    let from = |source: &ConfigFile| output::home_path(&source.path);
    output::text(|out| {
        if permissions.mode.is_none() && permissions.project_modes.is_empty() {
            let (terminal, scripts) = (Mode::Ask.name(), Mode::Workspace.name());
            writeln!(out, "mode {terminal} in a terminal, {scripts} in scripts  (default)")?;
        }
        for (mode, source) in permissions.mode.iter().chain(&permissions.project_modes) {
            let usual = permissions.mode.as_ref().map_or(Mode::Workspace, |(mode, _)| *mode);
            let is_in_force = source.trust == Trust::Full || *mode < usual;
            let prefix = if is_in_force { "" } else { "not in force: " };
            writeln!(out, "{prefix}mode {}  ({})", mode.name(), from(source))?;
        }
        for (rule, source) in &permissions.rules {
            writeln!(out, "{}  ({})", one_line(&rule.to_string()), from(source))?;
        }
        for (rule, source) in &permissions.ignored {
            writeln!(out, "not in force: {}  ({})", one_line(&rule.to_string()), from(source))?;
        }
        for (file, servers) in &described {
            let prefix = if file.state == FileState::InForce { "" } else { "not in force: " };
            for (name, description) in servers {
                writeln!(out, "{prefix}mcp server {name}: {description}  ({})", output::home_path(&file.path))?;
            }
        }
        let path = user_file().map(|path| output::home_path(&path)).unwrap_or_default();
        gc_rules.lines().iter().try_for_each(|rule| writeln!(out, "gc {rule}  ({path})"))
    })?;
    let proposed = described.iter().map(|(file, _)| file).filter(|file| file.state != FileState::InForce);
    let ignored = permissions.ignored.iter().map(|(_, source)| &*source.path);
    let proposed: Vec<_> = ignored.chain(proposed.map(|file| &*file.path)).collect();
    if !proposed.is_empty() {
        output::message!("hint: `{}` accepts what the project allows", trust_command(proposed));
    } else if permissions.rules.is_empty()
        && let Some(path) = user_file()
    {
        output::message!("hint: rules go to {}; `rath config --help` shows the format", output::home_path(&path));
    }
    Ok(Exit::Success)
}
