//! The sandboxes of commands: which one is used where the user names none, and what it restricts.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rath::prelude::*;
use rath::record::draw::{count, one_line, preview};
use rath::sandbox::{Capabilities, HostAccess, Isolation, Limit, Network, Registry, home_directories};
use rath::{UnsharedPath, UnsharedReason};

use crate::output::{self, CommandResult, Exit, Failure};
use crate::sessions::LoadedSession;
use crate::strictness::Strictness;
use crate::styled::Line;

const UNISOLATED_HINT: &str = "`--sandbox local:.` runs tools without isolation: they can do anything you can";
const WITHOUT_NAMESPACES: &str = "no namespaces here: commands create and remove files only in subdirectories";
/// The fewest columns of a path that does not fit in a line.
const MIN_PATH_COLUMNS: usize = 16;
/// The number of processes that a sandbox allows by default: not worth a word.
pub(crate) const DEFAULT_PROCESSES: u64 = 1024;

/// The kinds of sandbox that a command can open, and those elsewhere that it has opened.
#[derive(Clone)]
struct SandboxKinds {
    registry: Registry,
    remote: Arc<Mutex<Vec<RemoteSandbox>>>,
}

/// A sandbox elsewhere that the command has opened.
struct RemoteSandbox {
    sandbox: Sandbox,
    /// True if it is named by what a session has recorded.
    is_recorded: bool,
}

/// The sandboxes of sessions that are removed when a command has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoveSandboxes {
    /// Those that the command created, and those of sessions that it ran to their end.
    OfSessions,
    /// Those that the command created.
    OwnOnly,
}

impl SandboxKinds {
    /// Returns the kinds of this program. The environment names the servers of sandboxes elsewhere, and no file of a project does: it
    /// could send the user's key to another one.
    fn new() -> Self {
        let remote = Arc::<Mutex<Vec<RemoteSandbox>>>::default();
        let registry = rath_container::with_containers(Registry::new());
        #[cfg(unix)]
        let registry = {
            let servers = rath_opensandbox::OpenSandboxServer::from_env().add_to(Registry::new());
            let opened = remote.clone();
            registry.with("opensandbox", move |rest| {
                let uri = format!("opensandbox:{rest}");
                let sandbox = servers.open(&uri)?;
                // One that is new gets its name when it is opened.
                let opened_now = RemoteSandbox { sandbox: sandbox.clone(), is_recorded: sandbox.uri() == uri };
                opened.lock().unwrap_or_else(PoisonError::into_inner).push(opened_now);
                Ok(sandbox)
            })
        };
        SandboxKinds { registry, remote }
    }
}

tokio::task_local! {
    /// The kinds of sandbox of the command.
    static KINDS: SandboxKinds;
}

/// Returns the kinds of sandbox that a URI can name.
pub(crate) fn kinds() -> Registry {
    KINDS.try_with(|kinds| kinds.registry.clone()).unwrap_or_default()
}

/// Opens the sandbox that a URI names.
pub(crate) fn open(uri: &str) -> rath::sandbox::Result<Sandbox> {
    kinds().open(uri)
}

/// Runs a command, then ends what its sandboxes keep running elsewhere. Those of a session stay for `rath resume` if the command did not
/// succeed, until their time is over.
pub(crate) async fn closing_sandboxes(
    remove: RemoveSandboxes,
    command: impl Future<Output = CommandResult>,
) -> CommandResult {
    let kinds = SandboxKinds::new();
    let opened = kinds.remote.clone();
    let result = KINDS.scope(kinds, command).await;
    let opened = std::mem::take(&mut *opened.lock().unwrap_or_else(PoisonError::into_inner));
    for RemoteSandbox { sandbox, is_recorded } in opened {
        let is_removed = match remove {
            RemoveSandboxes::OfSessions => matches!(result, Ok(Exit::Success)),
            RemoveSandboxes::OwnOnly => !is_recorded,
        };
        if !is_removed {
            // The program ends here: without a drop, nothing is removed.
            std::mem::forget(sandbox);
        } else if let Err(error) = sandbox.close().await {
            let reason = one_line(&error.message());
            output::warning(&format!("a sandbox is left behind until its time is over: {reason}"));
        }
    }
    result
}

/// Fails if tools would write in the user's home directory, which the user did not ask for.
pub(crate) fn refuse_home(sandbox: &Sandbox) -> Result<(), Failure> {
    let Some(directory) = sandbox.directory().and_then(|directory| directory.canonicalize().ok()) else {
        return Ok(());
    };
    match home_directories().into_iter().find(|home| home.starts_with(&directory)) {
        Some(home) => {
            let whose = if home == directory { "your home directory" } else { "the directory of your home directory" };
            let message = format!("tools would write in {whose}");
            let hint = "change to the directory of a project, or add `--sandbox isolated:.`";
            Err(Failure::new(message, hint).with_exit(Exit::Waiting))
        }
        None => Ok(()),
    }
}

/// Returns the URI of the sandbox of a session in the current directory, for a hint.
pub(crate) fn in_current_directory(place: &str) -> String {
    match place.split_once(':') {
        Some((kind @ ("isolated" | "local"), rest)) => {
            let options = rest.find('?').map_or("", |at| &rest[at..]);
            output::quote(&format!("{kind}:.{options}"))
        }
        Some(("container", rest)) => {
            let (image, options) = rest.split_once('?').unwrap_or((rest, ""));
            let is_elsewhere = |option: &&str| !option.starts_with("directory=") && !option.starts_with("at=");
            let options: Vec<_> = options.split('&').filter(|it| !it.is_empty()).filter(is_elsewhere).collect();
            let separator = if options.is_empty() { "" } else { "?" };
            output::quote(&format!("container:{image}{separator}{}", options.join("&")))
        }
        _ => "isolated:.".to_owned(),
    }
}

/// Prints the restrictions of a sandbox on stderr. `is_chosen` says that the user named the sandbox.
pub(crate) async fn print_sandbox(sandbox: &Sandbox, is_chosen: bool) -> Result<(), Failure> {
    print_sandbox_with(sandbox, None, is_chosen, "").await
}

/// Prints the restrictions of a sandbox on stderr, and behind them those of the permissions. A fork has a directory of its own.
pub(crate) async fn print_sandbox_with(
    sandbox: &Sandbox,
    fork: Option<&Path>,
    is_chosen: bool,
    permissions: &str,
) -> Result<(), Failure> {
    let directory = fork.or(sandbox.directory()).map_or_else(|| preview(sandbox.uri()), output::home_path);
    print_line(sandbox, &directory, is_chosen, permissions).await
}

/// Prints the restrictions of a sandbox whose commands run in `directory`, in words.
pub(crate) async fn print_sandbox_in(sandbox: &Sandbox, directory: &str, is_chosen: bool) -> Result<(), Failure> {
    print_line(sandbox, directory, is_chosen, "").await
}

async fn print_line(sandbox: &Sandbox, directory: &str, is_chosen: bool, permissions: &str) -> Result<(), Failure> {
    let capabilities = sandbox.capabilities().await.map_err(|error| {
        let is_unavailable = error.kind() == rath::sandbox::ErrorKind::Unavailable;
        let failure = Failure::from(error);
        if is_chosen || !is_unavailable { failure } else { failure.add_hint(UNISOLATED_HINT) }
    })?;
    let line = |directory: &str| Line::from(format!("{}{permissions}", describe_sandbox(directory, &capabilities)));
    match output::message_columns() {
        Some(columns) => {
            let over = line(directory).columns().saturating_sub(columns);
            let room = Line::from(directory).columns().saturating_sub(over).max(MIN_PATH_COLUMNS);
            let lines = line(&end_of_path(directory, room)).wrap(columns, &"  ".into());
            lines.iter().for_each(|line| output::message!("{}", line.plain().trim_end()));
        }
        None => output::message!("{}", line(directory).plain()),
    }
    if let Isolation::Landlock(_) = capabilities.isolation {
        output::message!("{WITHOUT_NAMESPACES}");
    }
    Ok(())
}

/// Returns a path in so many columns: its last names behind `…`, or the end of the last one.
fn end_of_path(path: &str, columns: usize) -> String {
    let width = |text: &str| Line::from(text).columns();
    if width(path) <= columns {
        return path.to_owned();
    }
    let names = path.match_indices('/').map(|(at, _)| &path[at..]);
    let ends = names.chain(path.char_indices().skip(1).map(|(at, _)| &path[at..]));
    format!("…{}", ends.into_iter().find(|end| width(end) < columns).unwrap_or_default())
}

/// Prints a note about ignored files of the user's directory that a fork or copies of recorded files are without.
pub(crate) fn note_unshared(place: &str, unshared: &[UnsharedPath]) {
    const MAX_LISTED: usize = 4;
    let list = |paths: &[&UnsharedPath], describe: &dyn Fn(&UnsharedPath) -> String| {
        let mut list: Vec<_> = paths.iter().take(MAX_LISTED).map(|unshared| describe(unshared)).collect();
        list.extend(paths.len().checked_sub(MAX_LISTED + 1).map(|more| format!("{} more", more + 1)));
        list.join(", ")
    };
    let is_read_only = |unshared: &&UnsharedPath| unshared.reason == UnsharedReason::ReadOnly;
    let (read_only, missing): (Vec<_>, Vec<_>) = unshared.iter().partition(is_read_only);
    if !missing.is_empty() {
        let list = list(&missing, &|unshared| format!("{} ({})", preview(&unshared.path), unshared.reason));
        output::note(&format!("git ignores these, and {place} without them: {list}"));
    }
    if !read_only.is_empty() {
        let list = list(&read_only, &|unshared| preview(&unshared.path));
        output::note(&format!("commands can only read these there: {list}"));
    }
}

/// Returns a sandbox that the user did not name; on a machine without namespaces, one that does without them.
pub(crate) async fn usable_sandbox(sandbox: Sandbox) -> Sandbox {
    let uri = sandbox.uri();
    let is_missing = |error: &rath::sandbox::Error| error.kind() == rath::sandbox::ErrorKind::Unavailable;
    if !uri.starts_with("isolated:") || !sandbox.capabilities().await.is_err_and(|error| is_missing(&error)) {
        return sandbox;
    }
    let separator = if uri.contains('?') { '&' } else { '?' };
    match open(&format!("{uri}{separator}walls=landlock")) {
        Ok(other) if other.capabilities().await.is_ok() => other,
        _ => sandbox,
    }
}

/// Opens the sandbox in which recorded calls, or commands on recorded files, run in `directory`: the one that the user chose,
/// or else one that restricts at least as much as the default and as every sandbox of the recording.
pub(crate) async fn strict_sandbox(
    loaded: &LoadedSession,
    chosen: Option<&str>,
    directory: &Path,
) -> Result<Sandbox, Failure> {
    let usage = |error: rath::sandbox::Error| Failure::from(error).with_exit(Exit::Usage);
    let keep_out = |sandbox: Sandbox| {
        loaded.path().into_iter().for_each(|path| sandbox.keep_out(path));
        sandbox
    };
    if let Some(uri) = chosen {
        return open(uri).map(keep_out).map_err(usage);
    }
    Strictness::of([loaded]).isolate(directory).await.map(keep_out)
}

/// Describes the restrictions of a sandbox on one line.
fn describe_sandbox(directory: &str, capabilities: &Capabilities) -> String {
    let others = capabilities.writable.iter().map(|path| format!(" and {}", one_line(&output::home_path(path))));
    let directory = &format!("{directory}{}", others.collect::<String>());
    let mut line = match capabilities.isolation {
        Isolation::None => return format!("no sandbox: tools start in {directory} and can do anything you can"),
        Isolation::Namespaces(HostAccess::ReadOnly) | Isolation::Landlock(HostAccess::ReadOnly) => {
            format!("sandbox: writes only in {directory}")
        }
        Isolation::Namespaces(HostAccess::Hidden) | Isolation::Landlock(HostAccess::Hidden) => {
            format!("sandbox: reads and writes only in {directory}")
        }
        Isolation::Container => format!("sandbox: a container that reads its image and writes only in {directory}"),
        _ => format!("sandbox: {directory}"),
    };
    match capabilities.network {
        Network::Off => line.push_str(", no network"),
        Network::Hosts => line.push_str(&format!(", network only to {}", one_line(&capabilities.hosts.join(" ")))),
        Network::On => line.push_str(", with network"),
    }
    let limits = [
        ("memory", capabilities.memory, size as fn(u64) -> String),
        ("processes", capabilities.processes.filter(|limit| limit.max != DEFAULT_PROCESSES), output::grouped),
        ("file size", capabilities.file_size, size),
        ("processor time", capabilities.cpu_time, |seconds| format!("{seconds} s")),
    ];
    for (name, limit, amount) in limits {
        if let Some(Limit { max, .. }) = limit {
            line.push_str(&format!(", {name} up to {}", amount(max)));
        }
    }
    line
}

fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{} {name}", bytes / unit),
        None => count(bytes, "byte"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_gives_up_its_beginning() {
        for (columns, expected) in [
            (40, "~/app/.rath/work/01a1f5be-6644db044"),
            (34, "…/.rath/work/01a1f5be-6644db044"),
            (30, "…/work/01a1f5be-6644db044"),
            (20, "…/01a1f5be-6644db044"),
            (16, "…1f5be-6644db044"),
        ] {
            let shown = end_of_path("~/app/.rath/work/01a1f5be-6644db044", columns);
            assert!(Line::from(&*shown).columns() <= columns, "{shown}");
            assert_eq!(shown, expected);
        }
    }
}
