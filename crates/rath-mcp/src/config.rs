//! The servers that a configuration names: `{"mcpServers": {NAME: {..}}}`.
//!
//! All of this is pure: variables come from a function that the caller passes, and nothing is started or looked up.

mod check;
mod expand;
#[cfg(test)]
mod tests;

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::{Map, Value};

use self::check::{authority, check_header, check_name, check_url};
use self::expand::expand;
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
    /// The servers, by name. Those that are disabled, or name a variable that is not set, are not among them.
    pub servers: Vec<ServerConfig>,
    /// Remarks for the person who wrote the configuration: members that mean nothing here, and servers that are left out.
    pub notices: Vec<String>,
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
    /// holds is not searched for variables. A server with a variable that is not set and has no default is left out.
    ///
    /// To look at a configuration without its values, pass a function that returns the names: `|name| Some(format!("${{{name}}}"))`.
    pub fn parse(text: &str, origin: Origin, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut config = Config::default();
        for (name, server) in servers(text, &mut config.notices)? {
            check_name(&name)?;
            let (variables, looked_up, notices, unset) = Default::default();
            let mut reader =
                ServerReader { name: &name, origin, variable: &variable, variables, looked_up, unset, notices };
            let transport = match (reader.transport(server), &reader.unset) {
                // One server that cannot be used does not keep the others from being used.
                (Err(_), Some(problem)) => {
                    config.notices.push(format!("the server `{name}` is left out: {problem}"));
                    continue;
                }
                (transport, _) => transport?,
            };
            let ServerReader { mut variables, looked_up, notices, .. } = reader;
            config.notices.extend(notices);
            variables.sort();
            variables.dedup();
            let server = transport.map(|transport| ServerConfig { name, transport, variables, looked_up, origin });
            config.servers.extend(server);
        }
        config.servers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(config)
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
        check_name(&name)?;
        let args = args.into_iter().map(Into::into).collect();
        let process =
            StdioServer { command: command.into(), args, env: Vec::new(), cwd: String::new(), walls: Walls::default() };
        Ok(ServerConfig::new(name, Transport::Stdio(process)))
    }

    /// Creates the configuration of a server that is reached by HTTP.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Result<Self> {
        let (name, url) = (name.into(), url.into());
        check_name(&name)?;
        check_url(&url).map_err(|problem| wrong(&name, problem))?;
        let server = HttpServer { url: url.into(), headers: Vec::new() };
        Ok(ServerConfig::new(name, Transport::Http(server)))
    }

    fn new(name: String, transport: Transport) -> Self {
        ServerConfig { name, transport, variables: Vec::new(), looked_up: Vec::new(), origin: Origin::User }
    }

    /// Returns the values that must not be recorded, each with the name that stands for it.
    ///
    /// These are the values of variables in headers and in the address, and of variables with such names as `API_KEY` or
    /// `GITHUB_TOKEN`; in a configuration of the user also headers with such names, and what is written in the query of the address.
    /// A text that a project's file has itself is no secret: it would hide what the project chooses.
    pub fn secrets(&self) -> Vec<(String, SecretString)> {
        let mut secrets = self.looked_up.clone();
        match &self.transport {
            _ if self.origin == Origin::Project => {}
            Transport::Stdio(process) => {
                secrets.extend(process.env.iter().filter(|(name, _)| is_secret_name(name)).cloned());
            }
            Transport::Http(server) => {
                for (name, value) in server.headers.iter().filter(|(name, _)| is_secret_header(name)) {
                    // A header may name a scheme before the secret, or hold several.
                    let parts = value.expose_secret().split([' ', ';', ',', '=']);
                    let values = parts.chain([value.expose_secret()]);
                    secrets.extend(values.map(|value| (name.clone(), SecretString::from(value))));
                }
                let query = server.url.expose_secret().split_once('?').map_or("", |(_, query)| query);
                let query = query.split('#').next().unwrap_or_default();
                let values = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
                secrets.extend(values.map(|value| ("url".to_owned(), SecretString::from(value))));
            }
        }
        secrets.retain(|(_, value)| !value.expose_secret().is_empty());
        secrets
    }
}

/// Returns true if a variable of this name holds a secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let words = ["AUTH", "COOKIE", "CREDENTIAL", "KEY", "PASS", "PAT", "PWD", "SECRET", "TOKEN"];
    name.split('_').any(|part| words.contains(&part))
        || ["APIKEY", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS"].iter().any(|word| name.contains(word))
}

/// Returns true if a header of this name holds a secret.
fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    name.contains("AUTH") || is_secret_name(&name)
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

/// Reads one server.
struct ServerReader<'a, F> {
    name: &'a str,
    origin: Origin,
    variable: &'a F,
    /// The names of the variables that were looked up.
    variables: Vec<String>,
    looked_up: Vec<(String, SecretString)>,
    /// The variable that is not set, if there is one, and where it is named.
    unset: Option<String>,
    notices: Vec<String>,
}

impl<F: Fn(&str) -> Option<String>> ServerReader<'_, F> {
    /// Returns the way to the server; none if it is disabled.
    fn transport(&mut self, server: Value) -> Result<Option<Transport>> {
        let Value::Object(mut members) = server else {
            return Err(self.wrong(format_args!("wanted an object, found {}", kind_of(&server))));
        };
        if members.remove("disabled") == Some(Value::Bool(true)) {
            self.notices.push(format!("the server `{}` is disabled", self.name));
            return Ok(None);
        }
        let is_http = match members.remove("type") {
            None => members.contains_key("url") && !members.contains_key("command"),
            Some(Value::String(kind)) if kind == "stdio" => false,
            Some(Value::String(kind)) if matches!(&*kind, "http" | "streamable-http" | "streamableHttp") => true,
            Some(Value::String(kind)) if kind == "sse" => {
                let problem = "the type `sse` belongs to a version of the protocol that is not supported";
                return Err(self
                    .wrong(problem)
                    .with_hint("most such servers also have an endpoint for the type `http`"));
            }
            Some(kind) => return Err(self.wrong(format_args!("unknown type {kind}; known: \"stdio\", \"http\""))),
        };
        let transport = match is_http {
            true => Transport::Http(self.http(&mut members)?),
            false => Transport::Stdio(self.stdio(&mut members)?),
        };
        for member in members.keys() {
            let shown = shortened(member);
            self.notices.push(format!("the server `{}`: `{shown}` means nothing here and was ignored", self.name));
        }
        Ok(Some(transport))
    }

    fn stdio(&mut self, members: &mut Map<String, Value>) -> Result<StdioServer> {
        let Some(command) = members.remove("command") else {
            return Err(self.wrong("it has neither a `command` nor a `url`"));
        };
        let command = self.text("command", command)?;
        if command.is_empty() {
            return Err(self.wrong("its `command` is empty"));
        }
        let args = match members.remove("args") {
            None => Vec::new(),
            Some(Value::Array(args)) if args.len() <= MAX_LIST_ITEMS => {
                let texts = args.into_iter().enumerate();
                texts.map(|(nth, arg)| self.text(&format!("args[{nth}]"), arg)).collect::<Result<_>>()?
            }
            Some(Value::Array(_)) => return Err(self.too_many("args")),
            Some(other) => return Err(self.wrong(format_args!("`args`: wanted an array, found {}", kind_of(&other)))),
        };
        let env = self.pairs("env", members.remove("env"))?;
        if let Some((name, _)) = env.iter().find(|(name, _)| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(self.wrong(format_args!("`env`: {name:?} is no name of a variable")));
        }
        let cwd = members.remove("cwd").map_or_else(|| Ok(String::new()), |cwd| self.text("cwd", cwd))?;
        let walls = match (members.remove("walls"), self.origin) {
            (None, _) => Walls::default(),
            (Some(_), Origin::Project) => {
                let remark = "a file of the project cannot choose `walls`, so it stays isolated";
                self.notices.push(format!("the server `{}`: {remark}", self.name));
                Walls::default()
            }
            (Some(walls), Origin::User) => match walls.as_str() {
                Some("isolated") => Walls::Isolated,
                Some("network") => Walls::Network,
                Some("none") => Walls::Outside,
                _ => {
                    let known = "known: \"isolated\", \"network\", \"none\"";
                    return Err(self.wrong(format_args!("unknown `walls`; {known}")));
                }
            },
        };
        Ok(StdioServer { command, args, env, cwd, walls })
    }

    fn http(&mut self, members: &mut Map<String, Value>) -> Result<HttpServer> {
        let Some(url) = members.remove("url") else {
            return Err(self.wrong("it is of the type `http` and has no `url`"));
        };
        let url = self.text("url", url)?;
        check_url(&url).map_err(|problem| self.wrong(problem))?;
        let headers = self.pairs("headers", members.remove("headers"))?;
        for (name, value) in &headers {
            check_header(name, value.expose_secret()).map_err(|problem| self.wrong(problem))?;
        }
        Ok(HttpServer { url: url.into(), headers })
    }

    /// Reads an object of texts.
    fn pairs(&mut self, member: &str, value: Option<Value>) -> Result<Vec<(String, SecretString)>> {
        match value {
            None => Ok(Vec::new()),
            Some(Value::Object(pairs)) if pairs.len() <= MAX_LIST_ITEMS => {
                let pairs = pairs.into_iter();
                pairs
                    .map(|(name, value)| {
                        let value = self.text(&format!("{member}.{}", shortened(&name)), value)?;
                        Ok((name, value.into()))
                    })
                    .collect()
            }
            Some(Value::Object(_)) => Err(self.too_many(member)),
            Some(other) => Err(self.wrong(format_args!("`{member}`: wanted an object, found {}", kind_of(&other)))),
        }
    }

    /// Reads a text and replaces the variables in it.
    fn text(&mut self, member: &str, value: Value) -> Result<String> {
        let Value::String(text) = value else {
            return Err(self.wrong(format_args!("`{member}`: wanted a string, found {}", kind_of(&value))));
        };
        let is_sent = member == "url" || member.starts_with("headers.");
        let mut is_unset = false;
        let expanded = expand(&text, MAX_TEXT_BYTES, |name, default| {
            self.variables.push(name.to_owned());
            let value = (self.variable)(name);
            is_unset |= value.is_none() && default.is_none();
            let secret = value.as_deref().filter(|_| is_sent || is_secret_name(name)).map(SecretString::from);
            self.looked_up.extend(secret.map(|secret| (name.to_owned(), secret)));
            value
        });
        let text = expanded.map_err(|problem| {
            let problem = format!("{problem} (in `{member}`)");
            self.unset = is_unset.then(|| format!("{problem} and has no default"));
            self.wrong(problem)
        })?;
        match text.contains('\0') {
            true => Err(self.wrong(format_args!("`{member}` contains a NUL byte"))),
            false => Ok(text),
        }
    }

    fn too_many(&self, member: &str) -> Error {
        self.wrong(format_args!("`{member}` has more than {MAX_LIST_ITEMS} entries"))
    }

    fn wrong(&self, problem: impl fmt::Display) -> Error {
        wrong(self.name, problem)
    }
}

fn wrong(server: &str, problem: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Config, format_args!("the server `{server}`: {problem}"))
}

/// Returns the servers of a configuration in the order of their text, each by its name.
fn servers(text: &str, notices: &mut Vec<String>) -> Result<Vec<(String, Value)>> {
    let invalid = |problem: &dyn fmt::Display| Error::new(ErrorKind::Config, problem);
    if text.len() > MAX_CONFIG_BYTES {
        return Err(invalid(&format_args!("the configuration has more than {MAX_CONFIG_BYTES} bytes")));
    }
    let Members(members) = serde_json::from_str(text)
        .map_err(|error| Error::new(ErrorKind::Config, "the configuration cannot be read").because(error))?;
    let mut servers = None;
    for (name, value) in members {
        match &*name {
            "mcpServers" => servers = Some(value),
            _ => notices.push(format!("`{}` means nothing here and was ignored", shortened(&name))),
        }
    }
    let Some(servers) = servers else {
        return Err(invalid(&"the configuration has no member `mcpServers`")
            .with_hint("it has to look like {\"mcpServers\": {\"name\": {\"command\": \"program\"}}}"));
    };
    let Members(servers) = serde_json::from_str(servers.get())
        .map_err(|error| Error::new(ErrorKind::Config, "`mcpServers` cannot be read").because(error))?;
    if servers.len() > MAX_SERVERS {
        return Err(invalid(&format_args!("the configuration names more than {MAX_SERVERS} servers")));
    }
    let parsed = servers.into_iter().map(|(name, server)| {
        let server = serde_json::from_str(server.get());
        let server = server.map_err(|error| wrong(&shortened(&name), "it cannot be read").because(error))?;
        Ok((name, server))
    });
    parsed.collect()
}

/// The members of an object in their order. A name that occurs twice is an error: other programs may read the other member.
struct Members(Vec<(String, Box<serde_json::value::RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let (mut members, mut names) = (Vec::new(), std::collections::HashSet::new());
                while let Some((name, value)) = map.next_entry::<String, _>()? {
                    if !names.insert(name.clone()) {
                        let shown = shortened(&name);
                        return Err(serde::de::Error::custom(format_args!("`{shown}` occurs twice")));
                    }
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Returns a name for a message: without control characters, and not longer than a name should be.
fn shortened(name: &str) -> String {
    let mut shown: String = name.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if shown.len() < name.len() && name.chars().nth(64).is_some() {
        shown.push_str("..");
    }
    shown
}
