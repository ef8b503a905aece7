//! The sandboxes of commands: which one is used where the user names none, and what it restricts.

use std::path::Path;

use rath::prelude::*;
use rath::record::draw::{count, one_line, preview};
use rath::sandbox::{Capabilities, HostAccess, Isolation, Limit, Network, home_directories};
use rath::{UnsharedPath, UnsharedReason};

use crate::output::{self, Exit, Failure};
use crate::sessions::LoadedSession;
use crate::strictness::Strictness;

const UNISOLATED_HINT: &str = "`--sandbox local:.` runs tools without isolation: they can do anything you can";
const WITHOUT_NAMESPACES: &str = "no namespaces here: commands create and remove files only in subdirectories";
/// The number of processes that a sandbox allows by default: not worth a word.
pub(crate) const DEFAULT_PROCESSES: u64 = 1024;

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
    output::message!("{}{permissions}", describe_sandbox(directory, &capabilities));
    if let Isolation::Landlock(_) = capabilities.isolation {
        output::message!("{WITHOUT_NAMESPACES}");
    }
    Ok(())
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
    match Sandbox::open(&format!("{uri}{separator}walls=landlock")) {
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
        return Sandbox::open(uri).map(keep_out).map_err(usage);
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
