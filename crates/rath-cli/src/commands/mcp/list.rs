//! `rath mcp ls`: list the MCP servers that are configured.

use std::io::{self, Write};
use std::path::Path;

use rath::record::draw::{count, one_line};
use rath::sandbox::Sandbox;
use rath_mcp::{McpServers, ServerStatus};

use crate::configuration::{FileState, McpFiles};
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
/// `rath config trust`; if it changes, it has to be accepted again.
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
    /// True if the user wrote the file, or accepted it as it is.
    is_accepted: bool,
    /// True if the user accepted an earlier content of the file.
    is_changed: bool,
    /// The version of the protocol; none if the server was not started or cannot be reached.
    protocol: Option<String>,
    error: Option<String>,
    tools: Vec<String>,
    notes: Vec<String>,
}

pub(crate) async fn run(args: &McpLsArgs) -> CommandResult {
    let mut files = McpFiles::read(Some(Path::new(".")))?;
    files.notices.iter().for_each(|notice| output::note(notice));
    let configs = std::mem::take(&mut files.servers);
    let mut list = listed(&files)?;
    for config in &configs {
        // Of two servers with one name, the first is in force.
        let first = list.iter_mut().find(|server| server.is_accepted && server.name == config.name);
        first.into_iter().for_each(|server| server.is_in_force = true);
    }
    if !args.no_start {
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
    if files.proposed().next().is_some() {
        output::message!("hint: `rath config trust` accepts what the project's file says now");
    } else if list.is_empty() {
        output::message!("no MCP server is configured; `rath mcp ls --help` shows the format");
    }
    let is_failed = list.iter().any(|server| server.error.is_some());
    Ok(if is_failed { Exit::Failure } else { Exit::Success })
}

/// Returns the servers of all files.
fn listed(files: &McpFiles) -> Result<Vec<ListedServer>, output::Failure> {
    let mut list = Vec::new();
    for file in &files.files {
        let outline = match file.outline() {
            Ok(outline) => outline,
            // A file of others that is wrong harms nothing.
            Err(failure) if file.state != FileState::InForce => {
                output::warning(&failure.message);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        list.extend(outline.into_iter().map(|(name, description)| ListedServer {
            name,
            file: output::home_path(&file.path),
            description,
            is_in_force: false,
            is_accepted: file.state == FileState::InForce,
            is_changed: file.state == FileState::Changed,
            protocol: None,
            error: None,
            tools: Vec::new(),
            notes: Vec::new(),
        }));
    }
    Ok(list)
}

impl ListedServer {
    fn add(&mut self, status: ServerStatus) {
        match status.protocol {
            Ok(protocol) => self.protocol = Some(protocol),
            Err(error) => self.error = Some(error.message()),
        }
        (self.tools, self.notes) = (status.tools, status.notes);
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let ListedServer { name, description, file, .. } = self;
        writeln!(out, "{BRANCH}{name}{BRANCH:#}: {description}  ({file})")?;
        if !self.is_in_force {
            let why = match self.is_accepted {
                true => "it is disabled, its variable is not set, or an earlier file has its name",
                false if self.is_changed => "the file changed since you accepted it",
                false => "you have not accepted the file",
            };
            return writeln!(out, "  not in force: {why}");
        }
        match (&self.protocol, &self.error) {
            (Some(protocol), _) => {
                let tools = count(self.tools.len() as u64, "tool");
                writeln!(out, "  reachable, protocol {}, {tools}", one_line(protocol))?;
                self.tools.iter().try_for_each(|tool| writeln!(out, "  {}", one_line(tool)))?;
            }
            (None, Some(error)) => writeln!(out, "  not reachable: {}", one_line(error))?,
            (None, None) => writeln!(out, "  in force")?,
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "  {}", one_line(note)))
    }
}
