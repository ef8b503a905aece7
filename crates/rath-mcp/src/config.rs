//! The servers that a configuration names: `{"mcpServers": {NAME: {..}}}`.
//!
//! All of this is pure: variables come from a function that the caller passes, and nothing is started or looked up.

mod check;
mod expand;
mod members;
mod reader;
mod secrets;
#[cfg(test)]
mod tests;

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use self::check::{authority, check_name, check_url};
use self::members::WrittenServer;
use self::reader::ServerReader;
use crate::error::{Error, ErrorKind, Result};

/// The servers of one configuration, and remarks about what was passed over.
///
/// ```
/// use rath_mcp::{Config, Origin, Transport};
///
/// let text = r#"{"mcpServers": {
///     "files": {"command": "mcp-files", "args": ["${ROOT:-.}"]},
///     "issues": {"type": "http", "url": "https://issues.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
/// }}"#;
/// let variables = |name: &str| (name == "TOKEN").then(|| "correct horse".to_owned());
/// let config = Config::parse(text, Origin::User, variables)?;
///
/// let [files, issues] = &config.servers[..] else { panic!("two servers") };
/// let Transport::Stdio(process) = &files.transport else { panic!("a process") };
/// assert_eq!(process.args, ["."]);
/// assert_eq!(issues.variables, ["TOKEN"]);
/// assert!(!format!("{issues:?}").contains("correct horse"));
/// # Ok::<(), rath_mcp::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The servers, by name. Those that are left out are not among them.
    pub servers: Vec<ServerConfig>,
    /// The names of the servers that are left out, each with the reason: one that is disabled, wrong, or names a variable that is not set.
    pub left_out: Vec<(String, String)>,
    /// Remarks for the person who wrote the configuration: members that mean nothing here, and servers that are left out.
    pub notices: Vec<String>,
}

/// A server of a configuration as it is written, before variables have values.
///
/// Returned by [`Config::outline`]. `Debug` does not show the written text, which may hold a secret.
#[derive(Clone)]
pub struct ServerOutline {
    /// The name.
    pub name: String,
    /// The server, whole and exactly as it is written. An array of all, if there are several of one name; the text, if it is nested too
    /// deeply to be read.
    pub written: Value,
    /// The server with its texts as they are written; or the reason why it is left out, with all values of variables.
    pub config: Result<ServerConfig, String>,
}

/// The author of a configuration.
///
/// Passed to [`Config::parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file of the project, such as `.mcp.json`. It cannot choose [`Walls`].
    Project,
    /// The user's own configuration.
    User,
}

/// One server of a configuration.
///
/// Part of [`Config`], which has an example.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The name, with which the names of the server's tools begin.
    pub name: String,
    /// The way to the server.
    pub transport: Transport,
    /// The names of the variables that were looked up for this server, sorted.
    pub variables: Vec<String>,
    /// The values of variables that are in headers or in the address, or whose names are those of secrets.
    looked_up: Vec<(String, SecretString)>,
    origin: Origin,
}

/// The way to a server.
///
/// Part of [`ServerConfig`].
#[derive(Clone, Debug)]
pub enum Transport {
    /// A process of this machine, by its stdin and stdout.
    Stdio(StdioServer),
    /// A server that is reached by HTTP ("streamable HTTP").
    Http(HttpServer),
}

/// A server that is a process of this machine.
///
/// Part of [`Transport`]. `Debug` shows neither the arguments nor the values of variables.
#[derive(Clone)]
pub struct StdioServer {
    /// The program.
    pub command: String,
    /// The arguments.
    pub args: Vec<String>,
    /// The environment variables that the process gets besides those of every command.
    pub env: Vec<(String, SecretString)>,
    /// The directory in which the process starts, relative to the workspace; the workspace if it is empty.
    pub cwd: String,
    /// The walls around the process.
    pub walls: Walls,
}

/// The walls around the process of a server.
///
/// Part of [`StdioServer`]. In a configuration of the user, the member `walls` chooses them: `isolated`, `network` or `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Walls {
    /// Those of an isolated command: no network, and only the workspace can be written.
    #[default]
    Isolated,
    /// The walls of an isolated command, with the network of this machine.
    Network,
    /// None: the process can do anything that the user can.
    Outside,
}

/// A server that is reached by HTTP.
///
/// Part of [`Transport`].
#[derive(Clone)]
pub struct HttpServer {
    /// The address of the endpoint. It may contain a secret, so only [`HttpServer::host`] is for messages.
    pub url: SecretString,
    /// The headers of every request.
    pub headers: Vec<(String, SecretString)>,
}

/// The reason for a server that is switched off.
const DISABLED: &str = "disabled";
/// The most bytes that a configuration may have.
const MAX_CONFIG_BYTES: usize = 1 << 20;
/// The most servers that a configuration may name.
const MAX_SERVERS: usize = 64;
/// The most arguments, variables or headers that a server may have.
const MAX_LIST_ITEMS: usize = 256;
/// The most bytes of one text after its variables were replaced.
const MAX_TEXT_BYTES: usize = 32 * 1024;
/// The most bytes of a server's name. With `__` it leaves at least 30 of the 64 bytes that the name of a tool can have.
const MAX_NAME_BYTES: usize = 32;

impl Config {
    /// Parses a configuration.
    ///
    /// `${NAME}` and `${NAME:-default}` are replaced in commands, arguments, directories, addresses, and the values of variables and
    /// headers. `variable` returns the value of a variable; the default stands for one that is not set or empty. What a variable
    /// holds is not searched for variables.
    ///
    /// One wrong server does not keep the others from being used: it is left out, and a notice says why.
    pub fn parse(text: &str, origin: Origin, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut config = Config::default();
        for WrittenServer { name, value, problem } in members::servers(text, &mut config.notices)? {
            let shown = shortened(&name);
            let reader = ServerReader::new(name.clone(), origin, &variable);
            match problem.map_or_else(|| reader.read(value, &mut config.notices), Err) {
                Ok(Some(server)) => config.servers.push(server),
                Ok(None) => {
                    config.notices.push(format!("the server `{shown}` is disabled"));
                    config.left_out.push((name, DISABLED.to_owned()));
                }
                Err(problem) => {
                    config.notices.push(format!("the server `{shown}` is left out: {problem}"));
                    config.left_out.push((name, problem));
                }
            }
        }
        config.servers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(config)
    }

    /// Returns all servers of a configuration as they are written, by name, to look at them before variables are read.
    ///
    /// A server that is left out here is left out by [`Config::parse`] with all values of variables: a text with variables is not checked,
    /// since its value decides.
    ///
    /// ```
    /// use rath_mcp::{Config, Origin};
    ///
    /// let text = r#"{"mcpServers": {"issues": {"url": "${BASE:-https://issues.example}/mcp"}}}"#;
    /// let outline = Config::outline(text, Origin::Project)?;
    /// assert_eq!(outline[0].written["url"], "${BASE:-https://issues.example}/mcp");
    /// assert_eq!(outline[0].config.as_ref().unwrap().variables, ["BASE"]);
    /// # Ok::<(), rath_mcp::Error>(())
    /// ```
    pub fn outline(text: &str, origin: Origin) -> Result<Vec<ServerOutline>> {
        let mut outline = Vec::new();
        for WrittenServer { name, value, problem } in members::servers(text, &mut Vec::new())? {
            let reader = ServerReader::for_outline(name.clone(), origin);
            let config = match problem {
                Some(problem) => Err(problem),
                None => reader.read(value.clone(), &mut Vec::new()),
            };
            let config = config.and_then(|config| config.ok_or_else(|| DISABLED.to_owned()));
            outline.push(ServerOutline { name, written: value, config });
        }
        outline.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(outline)
    }
}

impl ServerConfig {
    /// Creates the configuration of a server that is a process.
    pub fn stdio(
        name: impl Into<String>,
        command: impl Into<String>,
        args: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self> {
        let name = name.into();
        check_name(&name).map_err(|problem| wrong(&name, problem))?;
        let args = args.into_iter().map(Into::into).collect();
        let process =
            StdioServer { command: command.into(), args, env: Vec::new(), cwd: String::new(), walls: Walls::default() };
        Ok(ServerConfig::new(name, Transport::Stdio(process)))
    }

    /// Creates the configuration of a server that is reached by HTTP.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Result<Self> {
        let (name, url) = (name.into(), url.into());
        check_name(&name).map_err(|problem| wrong(&name, problem))?;
        check_url(&url).map_err(|problem| wrong(&name, problem))?;
        let server = HttpServer { url: url.into(), headers: Vec::new() };
        Ok(ServerConfig::new(name, Transport::Http(server)))
    }

    fn new(name: String, transport: Transport) -> Self {
        ServerConfig { name, transport, variables: Vec::new(), looked_up: Vec::new(), origin: Origin::User }
    }
}

impl HttpServer {
    /// Returns the host and the port of the address, which can be shown.
    pub fn host(&self) -> &str {
        authority(self.url.expose_secret()).unwrap_or_default()
    }

    /// Returns true if the server is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = match self.host().strip_prefix('[') {
            Some(address) => address.split(']').next(),
            None => self.host().split(':').next(),
        };
        let host = host.unwrap_or_default();
        host.eq_ignore_ascii_case("localhost")
            || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    }
}

impl fmt::Debug for ServerOutline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("ServerOutline");
        text.field("name", &self.name).field("config", &self.config).finish_non_exhaustive()
    }
}

impl fmt::Debug for StdioServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        let mut text = f.debug_struct("StdioServer");
        text.field("command", &self.command).field("args", &self.args.len()).field("env", &env);
        text.field("cwd", &self.cwd).field("walls", &self.walls).finish()
    }
}

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("HttpServer").field("host", &self.host()).field("headers", &headers).finish()
    }
}

fn wrong(server: &str, problem: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Config, format_args!("the server `{server}`: {problem}"))
}

/// Returns a name for a message: without control characters, and not longer than a name should be.
fn shortened(name: &str) -> String {
    let mut shown: String = name.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if shown.len() < name.len() && name.chars().nth(64).is_some() {
        shown.push_str("..");
    }
    shown
}
