//! The MCP servers of the configuration: `mcp.json` of the user, and `.mcp.json` of a project.

use std::path::{Path, PathBuf};

use rath::record::draw::one_line;
use rath_mcp::{Config, Origin, ServerConfig, ServerOutline, Transport};
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
    origin: Origin,
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
                files.files.push(McpFile { path, text, origin: Origin::User, state: FileState::InForce, left_out });
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
            files.files.push(McpFile { path, text, origin: Origin::Project, state, left_out });
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
        let (path, text) = (path.to_owned(), text.to_owned());
        Ok(McpFile { path, text, origin: Origin::Project, state: FileState::New, left_out: Vec::new() })
    }

    /// Describes the servers of the file, each by its name and on one line, as they are written: variables have no value here.
    ///
    /// All that the parser reads is here, also of a server that is left out: what is accepted was shown, and stays accepted when a
    /// later version can start it.
    pub(crate) fn outline(&self) -> Result<Vec<(String, String)>, Failure> {
        let outline = Config::outline(&self.text, self.origin).map_err(|error| wrong(&self.path, &error))?;
        Ok(outline.iter().map(|server| (one_line(&server.name), describe(server))).collect())
    }

    /// Accepts the content, as it was read. What cannot work is not accepted.
    pub(crate) fn accept(&self) -> Result<(), Failure> {
        self.outline()?;
        accept(&self.path, &self.text)
    }
}

/// Describes a server as it is written, whole: the command or the address, and what it is given; then the reason if it is left out.
fn describe(server: &ServerOutline) -> String {
    let written = &server.written;
    let (shows_command, shows_url) = match &server.config {
        Ok(config) => (matches!(config.transport, Transport::Stdio(_)), matches!(config.transport, Transport::Http(_))),
        Err(_) => (written.get("command").is_some(), written.get("url").is_some()),
    };
    let mut parts = Vec::new();
    if shows_command {
        let args = match &written["args"] {
            Value::Null => String::new(),
            Value::Array(args) => args.iter().map(|arg| format!(" {}", quoted(arg))).collect(),
            other => format!(" {}", quoted(other)),
        };
        parts.push(format!("runs {}{args}", quoted(&written["command"])));
        parts.extend(written.get("cwd").map(|cwd| format!("in {}", quoted(cwd))));
        parts.extend(pairs("with the variables", &written["env"]));
    }
    if shows_url {
        parts.push(format!("sends requests to {}", quoted(&written["url"])));
        parts.extend(pairs("with the headers", &written["headers"]));
    }
    if parts.is_empty() {
        parts.push(format!("is written as {}", quoted(written)));
    }
    match &server.config {
        Ok(config) if config.variables.is_empty() => {}
        Ok(config) => {
            let variables: Vec<_> = config.variables.iter().map(|name| one_line(name)).collect();
            parts.push(format!("reads from your environment: {}", variables.join(", ")));
        }
        Err(why) if why == DISABLED => parts.push(why.clone()),
        Err(why) => parts.push(format!("left out: {}", one_line(why))),
    }
    parts.join("; ")
}

/// Describes the variables or the headers of a server.
fn pairs(what: &str, written: &Value) -> Option<String> {
    let pairs = match written {
        Value::Null => return None,
        Value::Object(pairs) => pairs.iter().map(|(name, value)| format!("{}={}", one_line(name), quoted(value))),
        other => return Some(format!("{what} {}", quoted(other))),
    };
    let pairs: Vec<_> = pairs.collect();
    (!pairs.is_empty()).then(|| format!("{what} {}", pairs.join(", ")))
}

/// Returns a value as one word; one that is no text as its JSON.
fn quoted(value: &Value) -> String {
    value.as_str().map_or_else(|| output::quote(&value.to_string()), output::quote)
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
            // What is left out is shown too, whole.
            (r#"{"command": "x", "args": ["a b"], "disabled": true}"#, "runs x 'a b'; disabled"),
            (r#"{"command": ""}"#, "runs ''; left out: its `command` is empty"),
            (
                r#"{"type": "sse", "url": "http://h/", "command": "x", "args": "y z", "env": [1], "headers": {"A": 2}}"#,
                "runs x 'y z'; with the variables '[1]'; sends requests to http://h/; with the headers A=2; \
                 left out: the type `sse` belongs to a version of the protocol that is not supported; most such servers also \
                 have an endpoint for the type `http`",
            ),
            (
                r#"{"command": "x", "cwd": "a/../.."}"#,
                "runs x; in a/../..; left out: its `cwd` is outside of the project",
            ),
            (r#"["x"]"#, r#"is written as '["x"]'; left out: wanted an object, found an array"#),
            (
                r#"{"command": "x"}, "s": {"command": "y"}"#,
                r#"is written as '[{"command":"x"},{"command":"y"}]'; left out: there are two of this name"#,
            ),
            // The values of variables decide, so it is not left out here.
            (
                r#"{"command": "x", "cwd": "${D:-a/b}/../.."}"#,
                "runs x; in '${D:-a/b}/../..'; reads from your environment: D",
            ),
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
