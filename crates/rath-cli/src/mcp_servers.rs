//! The MCP servers whose tools an agent gets.

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use rath::policy::{Mode, Policy};
use rath::record::draw::{count, one_line};
use rath::sandbox::{Isolated, Sandbox};
use rath::tool::hidden_files_blocking;
use rath_mcp::{McpServers, Places, Transport};

use crate::asking::confirm;
use crate::configuration::{FileState, McpFile, McpFiles, Permissions, trust_command};
use crate::output::{self, Failure};

/// The most rows of a terminal of 80 columns that the servers of a file may take for a person to be asked about them.
const MAX_SHOWN_ROWS: usize = 18;

/// The remark about servers in a mode that refuses changes.
pub(crate) const NONE_IN_READ_ONLY: &str =
    "changes are refused, so MCP servers are left out: they could write in the directory";

/// The session whose agent gets the servers.
pub(crate) struct ServersRequest<'a> {
    /// The sandbox of the session.
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) mode: Mode,
    /// True if the session works in a directory of its own, in which the sandbox does not begin.
    pub(crate) is_fork: bool,
    /// The file that holds the session, if it is in no store.
    pub(crate) store_file: Option<&'a Path>,
}

/// Returns the servers that are in force in the directory of a sandbox, if there are any. Nothing is started.
///
/// A person at the terminal is asked about the file of a project that they have not accepted as it is.
///
/// A server can write in the directory at any time, so there is none in a mode that refuses changes. In a fork there is none that is a
/// program: its changes would be made in the directory of another session.
pub(crate) async fn for_agent(
    request: ServersRequest<'_>,
    is_interactive: bool,
) -> Result<Option<McpServers>, Failure> {
    let ServersRequest { sandbox, mode, is_fork, store_file } = request;
    let Some(directory) = sandbox.directory() else { return Ok(None) };
    let mut files = McpFiles::read(Some(directory))?;
    if mode == Mode::ReadOnly {
        if !files.servers.is_empty() {
            output::note(NONE_IN_READ_ONLY);
        }
        return Ok(None);
    }
    if is_interactive {
        let mut is_accepted = false;
        for file in files.proposed() {
            is_accepted |= ask(file).await?;
        }
        if is_accepted {
            files = McpFiles::read(Some(directory))?;
        }
    } else {
        files.proposed().for_each(note_proposed);
    }
    files.notices.iter().for_each(|notice| output::note(notice));
    if is_fork {
        let programs: Vec<_> = files.servers.extract_if(.., |it| matches!(it.transport, Transport::Stdio(_))).collect();
        let names: Vec<_> = programs.iter().map(|server| one_line(&server.name)).collect();
        if !names.is_empty() {
            let names = names.join(", ");
            output::note(&format!("MCP servers left out, since a fork has a directory of its own: {names}"));
        }
    }
    if files.servers.is_empty() {
        return Ok(None);
    }
    let places = places(sandbox, directory, store_file).await?;
    Ok(Some(McpServers::new(files.servers, places)?))
}

/// The time after which the user is told what the program waits for.
const QUIET_START: Duration = Duration::from_secs(3);

/// Starts the servers, and says which cannot be reached, and which tools are missing. The agent works without these.
pub(crate) async fn connect(servers: &McpServers) {
    let mut connecting = pin!(servers.connect());
    let list = match tokio::time::timeout(QUIET_START, connecting.as_mut()).await {
        Ok(list) => list,
        Err(_) => {
            let names: Vec<_> = servers.names().collect();
            output::message!("waiting for MCP servers to start: {}", one_line(&names.join(", ")));
            connecting.await
        }
    };
    for status in list {
        if let Err(error) = status.protocol {
            output::warning(&format!("MCP: {}", one_line(&error.message())));
            error.hint().into_iter().for_each(|hint| output::message!("hint: {}", one_line(hint)));
        }
        status.notes.iter().for_each(|note| output::note(&format!("MCP: {}", one_line(note))));
    }
}

/// Returns the walls of servers: those of an isolated command, without the files that the session's sandbox or a rule hides, and
/// without the file that holds the session.
pub(crate) async fn places(sandbox: &Sandbox, directory: &Path, store_file: Option<&Path>) -> Result<Places, Failure> {
    let permissions = Permissions::read(Some(directory))?;
    let policy = Policy::new(Mode::Workspace).rules(permissions.rules.into_iter().map(|(rule, _)| rule));
    let of_session = sandbox.clone();
    let found = tokio::task::spawn_blocking(move || hidden_files_blocking(&of_session, policy)).await;
    let hidden = found
        .map_err(|_| Failure::new("the files that rules hide cannot be found", "`--no-mcp` leaves servers out"))??;
    let isolated = || {
        let isolated = Isolated::new(directory);
        // The machine may have no namespaces, for the session and for servers alike.
        let isolated = if has_weaker_walls(sandbox.uri()) { isolated.without_namespaces() } else { isolated };
        hidden.iter().fold(isolated, |isolated, path| isolated.hide(path))
    };
    let mut places = Places::in_directory(directory);
    (places.isolated, places.network) = (Sandbox::new(isolated()), Sandbox::new(isolated().network()));
    let file = store_file.and_then(|file| file.canonicalize().ok());
    for walls in [&places.isolated, &places.network] {
        file.iter().for_each(|file| walls.keep_out(file));
    }
    Ok(places)
}

/// Returns true for the address of a sandbox without namespaces. A directory may be named as the option is.
fn has_weaker_walls(uri: &str) -> bool {
    let options = uri.strip_prefix("isolated:").and_then(|rest| Some(rest.split_once('?')?.1));
    options.is_some_and(|options| options.split('&').any(|option| option == "walls=landlock"))
}

/// Says that the servers of a file are not in force.
fn note_proposed(file: &McpFile) {
    let changed = if file.state == FileState::Changed { " changed: it" } else { "" };
    match file.outline() {
        Ok(list) if list.is_empty() => {}
        Ok(list) => {
            let (path, servers) = (output::path(&file.path), count(list.len() as u64, "MCP server"));
            output::note(&format!("{path}{changed} names {servers}, not in force; `rath mcp ls` shows them"));
        }
        Err(failure) => output::warning(&failure.to_string()),
    }
}

/// Asks the person at the terminal about a file of the project, and shows all that it would start. Returns true if it is accepted.
async fn ask(file: &McpFile) -> Result<bool, Failure> {
    let path = output::path(&file.path);
    let outline = match file.outline() {
        Ok(outline) => outline,
        Err(failure) => {
            output::warning(&failure.to_string());
            return Ok(false);
        }
    };
    if outline.is_empty() {
        return Ok(false);
    }
    // What scrolls away is not read.
    let rows = outline.iter().map(|(name, description)| (name.len() + description.len() + 4).div_ceil(80));
    if rows.sum::<usize>() > MAX_SHOWN_ROWS {
        output::note(&format!(
            "the MCP servers of {path} are more than a screen shows, and not in force; `rath mcp ls` shows them, \
             `{}` accepts them",
            trust_command([&*file.path])
        ));
        return Ok(false);
    }
    let changed = if file.state == FileState::Changed { " changed since you accepted it, and" } else { "" };
    output::message!("{path}{changed} names {}:", count(outline.len() as u64, "MCP server"));
    for (name, description) in &outline {
        output::message!("  {name}: {description}");
    }
    if !confirm("start them, and give their tools to the agent?").await {
        output::message!("not started; `--no-mcp` leaves servers out without a question");
        return Ok(false);
    }
    file.accept()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_option_chooses_weaker_walls() {
        for (uri, expected) in [
            ("isolated:.?walls=landlock", true),
            ("isolated:/w?host=hidden&walls=landlock&network", true),
            ("isolated:/walls=landlock", false),
            ("isolated:/a%3Fwalls=landlock", false),
            ("isolated:/walls=landlock?host=hidden", false),
            ("isolated:.?hide=walls=landlock", false),
            ("local:.?walls=landlock", false),
        ] {
            assert_eq!(has_weaker_walls(uri), expected, "{uri}");
        }
    }
}
