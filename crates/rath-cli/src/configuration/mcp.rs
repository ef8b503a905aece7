//! The MCP servers of the configuration: `mcp.json` of the user, and `.mcp.json` of a project.

use std::path::{Path, PathBuf};

use rath::record::draw::one_line;
use rath_mcp::{Config, Origin, ServerConfig, Transport};
use serde_json::Value;

use super::trust::{TrustedFiles, accept};
use super::{ProjectFiles, config_directory, read_file, refuse_within_reach, user_file};
use crate::output::{self, Exit, Failure};

/// The file of a project.
pub(super) const PROJECT_FILE: &str = ".mcp.json";
/// The file of the user, beside `config.toml`.
const USER_FILE: &str = "mcp.json";

/// The MCP servers that files name.
#[derive(Default)]
pub(crate) struct McpFiles {
    /// The user's file comes first, then those of the project, the innermost first.
    pub(crate) files: Vec<McpFile>,
    /// The servers that are in force. Of two with one name, the one in the earlier file counts.
    pub(crate) servers: Vec<ServerConfig>,
    /// Remarks about the files.
    pub(crate) notices: Vec<String>,
    /// The names of the servers that are in force, each with its file.
    sources: Vec<(String, PathBuf)>,
}

/// A file that names MCP servers.
pub(crate) struct McpFile {
    pub(crate) path: PathBuf,
    pub(crate) state: FileState,
    /// The servers of a file in force that are not used, each with the reason.
    pub(crate) left_out: Vec<(String, String)>,
    /// The content, exactly as it is shown and accepted.
    text: String,
}

/// Tells whether the servers of a file are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileState {
    /// The user wrote the file, or accepted it as it is.
    InForce,
    /// The file is of the project, and the user has not accepted it.
    New,
    /// The user accepted an earlier content of the file.
    Changed,
}

impl McpFiles {
    /// Reads the files for an agent that works in `directory`.
    pub(crate) fn read(directory: Option<&Path>) -> Result<Self, Failure> {
        let mut files = McpFiles::default();
        if let Some(path) = config_directory().map(|directory| directory.join(USER_FILE)) {
            // The two files of the user are in one directory.
            user_file().map_or(Ok(()), |file| refuse_within_reach(&file, directory))?;
            if let Some(text) = read_file(&path)? {
                let left_out = files.add_servers(&path, &text, Origin::User)?;
                files.files.push(McpFile { path, text, state: FileState::InForce, left_out });
            }
        }
        let found = directory.map(|directory| ProjectFiles::find(directory, PROJECT_FILE));
        let ProjectFiles { files: of_project, of_others } = found.unwrap_or_default();
        for path in of_others {
            files.notices.push(format!("{} is ignored: another user owns it", output::path(&path)));
        }
        let trusted = TrustedFiles::read()?;
        for (path, text) in of_project {
            // What a link leads to may be accepted for another project, where the same commands are other programs.
            if path.is_symlink() {
                files.notices.push(format!("{} is ignored: it is a link; {LINK_HINT}", output::path(&path)));
                continue;
            }
            // A project cannot keep the user from working in it.
            let text = match text {
                Ok(text) => text,
                Err(failure) => {
                    files.notices.push(format!("{}, so it is ignored; mend it, or move it away", failure.message));
                    continue;
                }
            };
            let state = match trusted.has(&path, &text) {
                true => FileState::InForce,
                false if trusted.has_path(&path) => FileState::Changed,
                false => FileState::New,
            };
            let left_out = match state {
                FileState::InForce => files.add_servers(&path, &text, Origin::Project)?,
                FileState::New | FileState::Changed => Vec::new(),
            };
            files.files.push(McpFile { path, text, state, left_out });
        }
        Ok(files)
    }

    /// Returns the files that the user has not accepted as they are. Nothing of them is used.
    pub(crate) fn proposed(&self) -> impl Iterator<Item = &McpFile> {
        self.files.iter().filter(|file| file.state != FileState::InForce)
    }

    /// Adds the servers of a file that is in force, and returns those that are not used. Only now variables are replaced by their
    /// values.
    fn add_servers(&mut self, path: &Path, text: &str, origin: Origin) -> Result<Vec<(String, String)>, Failure> {
        let variable = |name: &str| std::env::var(name).ok();
        let config = Config::parse(text, origin, variable).map_err(|error| wrong(path, &error))?;
        self.notices
            .extend(config.notices.iter().map(|notice| format!("{}: {}", output::path(path), one_line(notice))));
        let reason = |why: String| if why == DISABLED { "it is disabled".to_owned() } else { one_line(&why) };
        let mut left_out: Vec<_> =
            config.left_out.into_iter().map(|(name, why)| (one_line(&name), reason(why))).collect();
        for server in config.servers {
            if let Some((name, used)) = self.sources.iter().find(|(known, _)| *known == server.name) {
                let (name, path) = (one_line(name), output::path(path));
                self.notices.push(format!("the server `{name}` in {path} is ignored: another one has that name"));
                left_out.push((name, format!("the one in {} is used", output::home_path(used))));
            } else {
                self.sources.push((server.name.clone(), path.to_owned()));
                self.servers.push(server);
            }
        }
        Ok(left_out)
    }
}

impl McpFile {
    /// Returns a file that the user is about to accept.
    pub(super) fn proposed(path: &Path, text: &str) -> Result<Self, Failure> {
        if path.is_symlink() {
            let message = format!("{} is a link, and links are not used", output::path(path));
            return Err(Failure::new(message, LINK_HINT));
        }
        Ok(McpFile { path: path.to_owned(), state: FileState::New, left_out: Vec::new(), text: text.to_owned() })
    }

    /// Describes the servers of the file, each by its name and on one line, as they are written: variables have no value here. What
    /// a server is, the parser that starts it says: it is not read here a second time.
    pub(crate) fn outline(&self) -> Result<Vec<(String, String)>, Failure> {
        let config = self.parsed()?;
        let not_servers = || {
            let message = format!("the MCP servers in {} cannot be read", output::path(&self.path));
            Failure::new(message, HINT).with_exit(Exit::Usage)
        };
        let content: Value = serde_json::from_str(&self.text).map_err(|_| not_servers())?;
        let servers = content["mcpServers"].as_object().ok_or_else(not_servers)?;
        let parsed = |name: &str| config.servers.iter().find(|server| server.name == name);
        let left_out =
            |name: &str| config.left_out.iter().find(|(known, _)| known == name).map(|(_, why)| why.as_str());
        let describe = |name: &str, server| match parsed(name) {
            Some(config) => describe(server, config),
            None => left_out(name).map_or_else(String::new, |why| match why {
                DISABLED => why.to_owned(),
                why => format!("left out: {}", one_line(why)),
            }),
        };
        Ok(servers.iter().map(|(name, server)| (one_line(name), describe(name, server))).collect())
    }

    /// Returns the servers as they would be started, with the names of variables in the place of their values.
    fn parsed(&self) -> Result<Config, Failure> {
        Config::outline(&self.text, Origin::Project).map_err(|error| wrong(&self.path, &error))
    }

    /// Accepts the content, as it was read. What cannot work is not accepted.
    pub(crate) fn accept(&self) -> Result<(), Failure> {
        self.parsed()?;
        accept(&self.path, &self.text)
    }
}

/// Describes a server as it is written, whole: the command or the address, and what it is given.
fn describe(server: &Value, config: &ServerConfig) -> String {
    let text = |member: &str| server[member].as_str().map(output::quote).unwrap_or_default();
    let mut parts = Vec::new();
    let (member, what) = match &config.transport {
        Transport::Http(_) => {
            parts.push(format!("sends requests to {}", text("url")));
            ("headers", "with the headers")
        }
        Transport::Stdio(_) => {
            let args = server["args"].as_array().into_iter().flatten();
            let args = args.map(|arg| format!(" {}", output::quote(arg.as_str().unwrap_or("?"))));
            parts.push(format!("runs {}{}", text("command"), args.collect::<String>()));
            parts.extend(server["cwd"].as_str().map(|cwd| format!("in {}", output::quote(cwd))));
            ("env", "with the variables")
        }
    };
    let pairs = server[member].as_object().into_iter().flatten();
    let pairs = pairs
        .map(|(name, value)| format!("{}={}", one_line(name), value.as_str().map(output::quote).unwrap_or_default()));
    let pairs: Vec<_> = pairs.collect();
    if !pairs.is_empty() {
        parts.push(format!("{what} {}", pairs.join(", ")));
    }
    let variables: Vec<_> = config.variables.iter().map(|name| one_line(name)).collect();
    if !variables.is_empty() {
        parts.push(format!("reads from your environment: {}", variables.join(", ")));
    }
    parts.join("; ")
}

/// The reason of the parser for a server that is switched off.
const DISABLED: &str = "disabled";
const LINK_HINT: &str = "put the file itself in its place";
const HINT: &str = "it looks like {\"mcpServers\": {\"name\": {\"command\": \"program\"}}}";

fn wrong(path: &Path, error: &rath_mcp::Error) -> Failure {
    let message = format!("the MCP servers in {} are wrong: {}", output::path(path), one_line(&error.message()));
    Failure::new(message, error.hint().unwrap_or(HINT)).with_exit(Exit::Usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_described_as_it_is_written() {
        for (server, expected) in [
            (r#"{"command": "mcp-files", "args": [".", "a b"]}"#, "runs mcp-files . 'a b'"),
            (
                r#"{"command": "${SHELL:-sh}", "args": ["-c", "echo ${A} ${A}"], "env": {"LD_PRELOAD": "./x.so", "K": "${B_KEY}"}, "cwd": "x"}"#,
                "runs '${SHELL:-sh}' -c 'echo ${A} ${A}'; in x; with the variables K='${B_KEY}', LD_PRELOAD=./x.so; \
                 reads from your environment: A, B_KEY, SHELL",
            ),
            (
                r#"{"type": "http", "url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}"#,
                "sends requests to 'https://${HOST}/mcp'; with the headers Authorization='Bearer ${TOKEN}'; \
                 reads from your environment: HOST, TOKEN",
            ),
            (r#"{"command": "a\u001b[31m\nhint: b"}"#, r"runs $'a\x1b[31m\x0ahint: b'"),
            // The type decides, and what it does not use is not shown as if it were used.
            (
                r#"{"type": "http", "command": "formatter", "args": ["."], "url": "http://h/?k=${KEY}"}"#,
                "sends requests to 'http://h/?k=${KEY}'; reads from your environment: KEY",
            ),
            (r#"{"type": "stdio", "command": "x", "url": "http://h/"}"#, "runs x"),
            (r#"{"command": "x", "disabled": true}"#, "disabled"),
            (r#"{"command": ""}"#, "left out: its `command` is empty"),
            (
                r#"{"url": "${API_BASE:-https://a.example}/mcp"}"#,
                "sends requests to '${API_BASE:-https://a.example}/mcp'; reads from your environment: API_BASE",
            ),
        ] {
            let text = format!(r#"{{"mcpServers": {{"s": {server}}}}}"#);
            let file = McpFile::proposed(Path::new("f"), &text).map_err(|failure| failure.message).expect("a file");
            let outline = file.outline().map_err(|failure| failure.message).expect("servers");
            assert_eq!(outline, [("s".to_owned(), expected.to_owned())]);
        }
    }
}
