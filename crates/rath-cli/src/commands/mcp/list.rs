//! `rath mcp ls`: list the MCP servers that are configured.

use std::io::{self, Write};
use std::path::Path;

use rath::policy::Mode;
use rath::record::draw::{count, one_line};
use rath::sandbox::Sandbox;
use rath_mcp::{McpServers, ServerStatus};

use crate::configuration::{FileState, McpFiles, Permissions, trust_command};
use crate::mcp_servers;
use crate::output::{self, BRANCH, CommandResult, Exit};

/// List the MCP servers whose tools `rath run` gives to an agent
///
/// Servers are in `~/.config/rath/mcp.json`, and in `.mcp.json` in the directory
/// of a project, in the form that other programs use too:
///
///   {"mcpServers": {
///     "files": {"command": "mcp-files", "args": ["."], "env": {"A": "b"}},
///     "issues": {"type": "http", "url": "https://issues.example/mcp",
///                "headers": {"Authorization": "Bearer ${ISSUES_TOKEN}"}}}}
///
/// A program runs in the directory, isolated: without network, and writing
/// nowhere else. In your own file, `"walls": "network"` lets it use the network,
/// and `"walls": "none"` takes the walls away.
///
/// The file of a project is used once you have accepted its content with
/// `rath config trust`; if it changes, it has to be accepted again. Where your
/// configuration chooses the mode read-only, no server is started.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct McpLsArgs {
    /// Do not start the servers to list their tools
    #[arg(long)]
    no_start: bool,
    /// Print one JSON object per server
    #[arg(long)]
    json: bool,
}

/// A server of a file, and its state.
#[derive(serde::Serialize)]
struct ListedServer {
    name: String,
    file: String,
    /// The command that runs, or the host that is asked.
    description: String,
    is_in_force: bool,
    /// The reason why the server is not in force.
    why_not: Option<String>,
    /// True if the user wrote the file, or accepted it as it is.
    is_accepted: bool,
    /// True if the user accepted an earlier content of the file.
    is_changed: bool,
    /// The version of the protocol; none if the server was not started or cannot be reached.
    protocol: Option<String>,
    error: Option<String>,
    /// Advice for the person who can mend the error.
    hint: Option<String>,
    tools: Vec<String>,
    notes: Vec<String>,
}

pub(crate) async fn run(args: &McpLsArgs) -> CommandResult {
    let mut files = McpFiles::read(Some(Path::new(".")))?;
    files.notices.iter().for_each(|notice| output::note(notice));
    let is_read_only = Permissions::read(Some(Path::new(".")))?.mode_or(Mode::Workspace) == Mode::ReadOnly;
    if is_read_only && !files.servers.is_empty() {
        output::note(mcp_servers::NONE_IN_READ_ONLY);
    }
    let mut list = listed(&files, is_read_only)?;
    if !args.no_start && !is_read_only {
        let configs = std::mem::take(&mut files.servers);
        let servers =
            McpServers::new(configs, mcp_servers::places(&Sandbox::isolated("."), Path::new("."), None).await?)?;
        for status in servers.connect().await {
            if let Some(server) = list.iter_mut().find(|server| server.is_in_force && server.name == status.name) {
                server.add(status);
            }
        }
        servers.close().await;
    }
    match args.json {
        true => output::data(|out| list.iter().try_for_each(|server| output::json_line(out, server)))?,
        false => output::text(|out| list.iter().try_for_each(|server| server.print(out)))?,
    }
    let proposed: Vec<_> = files.proposed().filter(|file| file.outline().is_ok()).map(|file| &*file.path).collect();
    if !proposed.is_empty() {
        output::message!("hint: `{}` accepts what the project's file says now", trust_command(proposed));
    } else if list.is_empty() {
        output::message!("no MCP server is configured; `rath mcp ls --help` shows the format");
    }
    let is_failed = list.iter().any(|server| server.error.is_some());
    Ok(if is_failed { Exit::Failure } else { Exit::Success })
}

/// Returns the servers of all files.
fn listed(files: &McpFiles, is_read_only: bool) -> Result<Vec<ListedServer>, output::Failure> {
    let mut list = Vec::new();
    for file in &files.files {
        let outline = match file.outline() {
            Ok(outline) => outline,
            // A file of others that is wrong harms nothing.
            Err(failure) if file.state != FileState::InForce => {
                output::warning(&failure.to_string());
                continue;
            }
            Err(failure) => return Err(failure),
        };
        for (name, description) in outline {
            let left_out = file.left_out.iter().find(|(known, _)| *known == name).map(|(_, why)| why.clone());
            let why_not = match file.state {
                FileState::New => Some("you have not accepted the file".to_owned()),
                FileState::Changed => Some("the file changed since you accepted it".to_owned()),
                FileState::InForce => left_out.or_else(|| is_read_only.then(|| "changes are refused".to_owned())),
            };
            list.push(ListedServer {
                name,
                file: output::home_path(&file.path),
                description,
                is_in_force: why_not.is_none(),
                why_not,
                is_accepted: file.state == FileState::InForce,
                is_changed: file.state == FileState::Changed,
                protocol: None,
                error: None,
                hint: None,
                tools: Vec::new(),
                notes: Vec::new(),
            });
        }
    }
    Ok(list)
}

impl ListedServer {
    fn add(&mut self, status: ServerStatus) {
        match status.protocol {
            Ok(protocol) => self.protocol = Some(protocol),
            Err(error) => (self.error, self.hint) = (Some(error.message()), error.hint().map(str::to_owned)),
        }
        (self.tools, self.notes) = (status.tools, status.notes);
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let ListedServer { name, description, file, .. } = self;
        writeln!(out, "{BRANCH}{name}{BRANCH:#}: {description}  ({file})")?;
        if let Some(why) = &self.why_not {
            return writeln!(out, "  not in force: {why}");
        }
        match (&self.protocol, &self.error) {
            (Some(protocol), _) => {
                let tools = count(self.tools.len() as u64, "tool");
                writeln!(out, "  reachable, protocol {}, {tools}", one_line(protocol))?;
                self.tools.iter().try_for_each(|tool| writeln!(out, "  {}", one_line(tool)))?;
            }
            (None, Some(error)) => {
                writeln!(out, "  not reachable: {}", one_line(error))?;
                self.hint.iter().try_for_each(|hint| writeln!(out, "  hint: {}", one_line(hint)))?;
            }
            (None, None) => writeln!(out, "  in force")?,
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "  {}", one_line(note)))
    }
}
