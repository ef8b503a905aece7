//! The handle to all servers of a configuration.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rath::Secrets;
use rath::tool::{ToolListing, ToolSource, Tools};
#[cfg(unix)]
use rath_sandbox::Isolated;
use rath_sandbox::Sandbox;

use crate::config::{ServerConfig, StdioServer, Transport, Walls};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::Limits;
use crate::resources;
use crate::server::Server;

/// The servers of a configuration, for all sessions of a program.
///
/// Clones are handles to the same servers. A server is started when it is first needed, once for all sessions, forks and sub-agents,
/// and again at the next use after it has ended. When the last handle is dropped, every process is killed with all that it started,
/// as it is if this program ends in any other way.
///
/// Given to an agent, the servers' tools are called `SERVER__TOOL`:
///
/// ```
/// use rath::prelude::*;
/// use rath_mcp::{Config, McpServers, Origin, Places};
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let text = r#"{"mcpServers": {"notes": {"command": "mcp-notes"}}}"#;
/// let config = Config::parse(text, Origin::User, |name| std::env::var(name).ok())?;
/// let servers = McpServers::new(config.servers, Places::in_directory("./"))?;
/// let provider = Provider::from(Script::of([r#"{"text": "Done."}"#])?);
/// let agent = Agent::new("You take notes.", &provider).tools_from(servers.clone());
/// # drop(agent);
/// # Ok(())
/// # }
/// # example().unwrap();
/// ```
#[derive(Clone)]
pub struct McpServers(Arc<Servers>);

struct Servers {
    /// In the order of their names.
    list: Vec<Arc<Server>>,
    /// The tools that read resources.
    resource_tools: Tools,
}

/// The sandboxes in which the processes of servers run, and their limits.
///
/// ```
/// use rath_mcp::Places;
/// use rath_sandbox::{Isolated, Sandbox};
///
/// let mut places = Places::in_directory("/srv/app");
/// places.isolated = Sandbox::new(Isolated::new("/srv/app").hide("notes"));
/// ```
#[derive(Clone, Debug)]
pub struct Places {
    /// The workspace.
    pub directory: PathBuf,
    /// For [`Walls::Isolated`].
    pub isolated: Sandbox,
    /// For [`Walls::Network`].
    pub network: Sandbox,
    /// For [`Walls::Outside`].
    pub outside: Sandbox,
    /// The limits for each server.
    pub limits: Limits,
}

impl Places {
    /// Returns the usual places in a workspace: isolated without network, isolated with network, and without walls.
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        Places {
            isolated: Sandbox::isolated(&directory),
            #[cfg(unix)]
            network: Isolated::new(&directory).network().into(),
            #[cfg(not(unix))]
            network: Sandbox::isolated(&directory),
            outside: Sandbox::local(&directory),
            limits: Limits::default(),
            directory,
        }
    }

    /// Returns the sandbox of a process, and its directory as the sandbox names it.
    fn of(&self, process: &StdioServer) -> Result<(Sandbox, String), &'static str> {
        let sandbox = match process.walls {
            Walls::Isolated => &self.isolated,
            Walls::Network => &self.network,
            Walls::Outside => &self.outside,
        };
        let cwd = Path::new(&process.cwd);
        if !cwd.is_absolute() {
            return Ok((sandbox.clone(), process.cwd.clone()));
        }
        if process.walls == Walls::Outside {
            return Ok((Sandbox::local(cwd), String::new()));
        }
        let directory = std::path::absolute(&self.directory).unwrap_or_else(|_| self.directory.clone());
        let inside = cwd.strip_prefix(&directory).ok();
        let inside = inside.filter(|path| path.components().all(|part| matches!(part, Component::Normal(_))));
        let inside =
            inside.and_then(Path::to_str).ok_or("its `cwd` is outside of the workspace, where walls keep it")?;
        Ok((sandbox.clone(), inside.to_owned()))
    }
}

/// The state of a server.
///
/// Returned by [`McpServers::connect`].
#[derive(Debug)]
pub struct ServerStatus {
    /// The name of the server.
    pub name: String,
    /// The version of the protocol that both sides agreed on, or the reason why there is no connection or no list of tools.
    pub protocol: Result<String>,
    /// The names of its tools, as models know them.
    pub tools: Vec<String>,
    /// Remarks, such as tools that were left out.
    pub notes: Vec<String>,
}

impl McpServers {
    /// Creates the handle. Nothing is started before it is needed.
    pub fn new(configs: impl IntoIterator<Item = ServerConfig>, places: Places) -> Result<Self> {
        let mut list: Vec<Arc<Server>> = Vec::new();
        for mut config in configs {
            if list.iter().any(|server| server.name() == config.name) {
                let message = format!("the server `{}`: there are two of this name", config.name);
                return Err(Error::new(ErrorKind::Config, message));
            }
            let sandbox = match &mut config.transport {
                // A server that cannot be started keeps no other from being used.
                Transport::Stdio(process) => places.of(process).map(|(sandbox, cwd)| {
                    process.cwd = cwd;
                    Some(sandbox)
                }),
                Transport::Http(_) => Ok(None),
            };
            list.push(Arc::new(Server::new(config, places.limits, sandbox)));
        }
        list.sort_by(|a, b| a.name().cmp(b.name()));
        let resource_tools = resources::tools(&list);
        Ok(McpServers(Arc::new(Servers { list, resource_tools })))
    }

    /// Returns the names of the servers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.list.iter().map(|server| server.name())
    }

    /// Starts all servers and lists their tools.
    ///
    /// Before a stored session is compared with the present state, so that the tools of servers count.
    pub async fn connect(&self) -> Vec<ServerStatus> {
        let connecting = self.0.list.iter().map(async |server| {
            let connected = async {
                let info = server.connect().await?.peer().peer_info();
                let (tools, notes, failure) = server.try_list_tools().await?;
                match failure {
                    None => Ok((info, tools, notes)),
                    Some(error) => Err(error.copied()),
                }
            };
            let (protocol, tools, mut notes) = match connected.await {
                Ok((info, tools, notes)) => {
                    (Ok(info.map(|info| info.protocol_version.to_string()).unwrap_or_default()), tools, notes)
                }
                Err(error) => (Err(error), Tools::default(), Vec::new()),
            };
            // They stay until there is a record for them.
            notes.splice(0..0, server.pending_notes());
            let tools = tools.names().map(str::to_owned).collect();
            ServerStatus { name: server.name().to_owned(), protocol, tools, notes }
        });
        futures_util::future::join_all(connecting).await
    }

    /// Ends all servers: their processes are given two seconds to end by themselves. The next use starts them again.
    ///
    /// Dropping the last handle ends them at once.
    pub async fn close(&self) {
        futures_util::future::join_all(self.0.list.iter().map(|server| server.close())).await;
    }

    pub(crate) fn server(&self, name: &str) -> Result<&Arc<Server>> {
        self.0.list.iter().find(|server| server.name() == name).ok_or_else(|| {
            let known = self.names().collect::<Vec<_>>().join(", ");
            Error::new(ErrorKind::Config, format_args!("unknown server `{name}`; known: {known}"))
        })
    }
}

impl ToolSource for McpServers {
    fn describe(&self) -> String {
        self.names().collect::<Vec<_>>().join(", ")
    }

    fn owns(&self, name: &str) -> bool {
        let of_server = |server: &str| name.strip_prefix(server).is_some_and(|rest| rest.starts_with("__"));
        self.names().any(of_server) || resources::is_tool(name)
    }

    async fn list(&self) -> ToolListing {
        let listings = futures_util::future::join_all(self.0.list.iter().map(|server| server.list_tools())).await;
        let mut listing = ToolListing::default();
        for (server, (tools, notes)) in self.0.list.iter().zip(listings) {
            listing.tools = listing.tools.and(tools);
            listing.notes.extend(server.take_notes().into_iter().chain(notes));
        }
        listing.tools = listing.tools.and(self.offered_resource_tools());
        listing
    }

    fn last_listed(&self) -> Tools {
        let listed = self.0.list.iter().map(|server| server.last_listed());
        listed.fold(Tools::default(), Tools::and).and(self.offered_resource_tools())
    }

    fn secrets(&self) -> Secrets {
        self.0.list.iter().fold(Secrets::default(), |all, server| all.with(&server.secrets))
    }
}

impl McpServers {
    /// Returns the tools that read resources, if a server that runs has some.
    fn offered_resource_tools(&self) -> Tools {
        let has_resources = |server: &Arc<Server>| {
            let info = server.connected().and_then(|connection| connection.peer().peer_info());
            info.is_some_and(|info| info.capabilities.resources.is_some())
        };
        if self.0.list.iter().any(has_resources) { self.0.resource_tools.clone() } else { Tools::default() }
    }
}

impl std::fmt::Debug for McpServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
