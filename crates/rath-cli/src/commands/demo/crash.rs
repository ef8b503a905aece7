//! The crash: the program starts itself again, and kills that process in the middle of a call.

use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rath::BranchId;
use rath::prelude::*;
use rath::store::Create;

use super::directory::DemoDirectory;
use super::printer::{EventLines, heading, say};
use super::team::{self, Team};
use crate::output::{self, CommandResult, Exit, Failure};
use crate::sessions;

/// The line on stderr of the process that is killed which says that its command runs.
const RUNNING: &str = "the command runs";

/// Lets another process go on with a session, and kills it while a command of its agent runs.
pub(super) async fn kill_another_process(directory: &DemoDirectory, branch: BranchId) -> Result<(), Failure> {
    heading(4, "Another process goes on, and is killed in the middle of a call");
    let mut command = Command::new(std::env::current_exe().map_err(not_started)?);
    command.args(["demo", "--interrupted", &branch.to_string(), "--dir"]).arg(directory.path());
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(not_started)?;
    let killed = tokio::task::spawn_blocking(move || kill_when_running(child)).await;
    match killed.map_err(std::io::Error::other).flatten().map_err(not_started)? {
        None => say("killed", "the process, while the command ran"),
        Some(printed) => return Err(not_started(printed)),
    }
    Ok(())
}

fn not_started(why: impl Display) -> Failure {
    let hint = "`rath ls` in the directory of the demo shows what is on the record until here";
    Failure::new(format!("another process could not go on with the session: {why}"), hint)
}

/// Kills a process as soon as it says that its command runs. Returns what it printed if it ended before.
fn kill_when_running(mut child: Child) -> std::io::Result<Option<String>> {
    let mut printed = Vec::new();
    let mut is_running = false;
    for line in child.stderr.take().into_iter().flat_map(|pipe| BufReader::new(pipe).lines()) {
        let line = line?;
        if line == RUNNING {
            is_running = true;
            break;
        }
        printed.push(line);
    }
    child.kill()?;
    child.wait()?;
    Ok(if is_running { None } else { Some(printed.join("\n")) })
}

/// Runs the agent whose call is interrupted. Does not come to its end.
pub(super) async fn run_until_killed(directory: &DemoDirectory, session: &str) -> CommandResult {
    let team = Team::new(directory, team::BEFORE_CRASH).await?;
    let store = sessions::open(&directory.store(), Create::Never).await?;
    let branch = sessions::find_branch(&store, session, "").await?;
    let mut session = store.resume(branch).await?.complete()?;
    session.push(Chunk::user("Note in CHANGES that no cent is lost, and try every amount."));
    let mut lines = EventLines::of("release");
    let run = team.release.run(session).on_event(move |event| {
        lines.print(event);
        // The command has changed a file before it prints its first line.
        if let EventKind::ToolOutput { .. } = event.kind {
            output::message!("{RUNNING}");
        }
    });
    run.await?;
    Ok(Exit::Success)
}
