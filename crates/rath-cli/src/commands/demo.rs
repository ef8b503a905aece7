//! `rath demo`: a scripted team repairs a failing test, and its process is killed on the way.

mod crash;
mod directory;
mod printer;
mod scenes;
mod team;

use std::path::{Path, PathBuf};

use rath::prelude::*;
use rath::record::draw::count;
use rath::{BranchId, Origin, StepId};

use self::directory::DemoDirectory;
use self::printer::HEADING;
use self::scenes::RepairBranches;
use self::team::Team;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::sessions;

/// Watch agents repair a failing test, and a crash that costs nothing
///
/// It takes a few seconds and needs no key: a script gives the answers of the models. All else is real: the files, the
/// shells and the tests, the branches and their merge, the memory, the process that is killed, the store. The last lines
/// are commands that look at what happened; ids are new on each run, since forks get random ids and the record has the
/// path of the directory.
#[derive(clap::Args)]
pub(crate) struct DemoArgs {
    /// The directory to make. Default: rath-demo, or the first of rath-demo-2 and so on that is free
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// Be the process that is killed: run this session of the directory
    #[arg(long, value_name = "SESSION", hide = true, requires = "dir")]
    interrupted: Option<String>,
}

pub(crate) async fn run(args: &DemoArgs) -> CommandResult {
    if let (Some(path), Some(session)) = (&args.dir, &args.interrupted) {
        return crash::run_until_killed(&DemoDirectory::existing(path)?, session).await;
    }
    // The session is resumed, which only its user may do.
    if let Some(problem) = sessions::key_problem() {
        return Err(problem);
    }
    let directory = DemoDirectory::create(args.dir.as_deref())?;
    output::text(|out| {
        writeln!(out, "Agents repair a failing test. A script gives the answers of the models; all")?;
        writeln!(out, "else is real, the crash too. The files are in {}", output::path(directory.path()))
    })?;
    let team = Team::new(&directory, team::BEFORE_CRASH).await?;
    let (repaired, store) = scenes::repair(&directory, &team).await?;
    // The right to append to the session goes to the process that is killed.
    store.close().await?;
    crash::kill_another_process(&directory, repaired.merged).await?;
    let session = scenes::resume(&directory, repaired.merged).await?;
    print_summary(&session)?;
    print_commands(&directory, &repaired, &session).await?;
    Ok(Exit::Success)
}

fn print_summary(session: &Session) -> Result<(), Failure> {
    let calls = session.spending().total.calls;
    let tokens = output::grouped(session.usage().total());
    Ok(output::text(|out| {
        writeln!(out, "\nAll of it is on the record: {}, {tokens} tokens.", count(calls, "model call"))
    })?)
}

/// Prints commands that show what happened, each of which works as it is printed.
async fn print_commands(
    directory: &DemoDirectory,
    repaired: &RepairBranches,
    session: &Session,
) -> Result<(), Failure> {
    let repair = answer_behind(session, team::REPAIRED_FILE, team::REPAIRED_LINE).await?;
    let [id, rest, even] = [session.id(), repaired.rest, repaired.even].map(|id: BranchId| id.short());
    let (step, check, file) = (repair.short(), team::TESTS, team::REPAIRED_FILE);
    let line = team::REPAIRED_LINE;
    // Calls are made again, and commands tried, behind walls; where there are none, the user has to say so.
    let has_walls = session.place().is_none_or(|place| !place.as_str().starts_with("local:"));
    let (without_walls, tools) = if has_walls { ("", " --tools") } else { (" --sandbox local:.", "") };
    let groups = [
        ("Go there.", directory::commands_to_enter(directory.path())),
        (
            "The steps; the repair in full; what the model saw, and what it changed.",
            vec![format!("rath log {id}"), format!("rath show {id} {step}"), format!("rath explain {id} {step}")],
        ),
        (
            "The call behind a line; the first files that pass; the two repairs.",
            vec![
                format!("rath blame {file}:{line} {id}"),
                format!("rath bisect {id}{without_walls} -- sh -c '! {check}'"),
                format!("rath diff {rest} {even}"),
            ],
        ),
        (
            "Do it again, and compare; the cost; the memory.",
            vec![format!("rath replay {id}{tools}"), format!("rath cost {id}"), "rath memory recall cent".to_owned()],
        ),
        (
            "Ask on, where it ended.",
            vec![format!("rath resume {id} 'What was wrong?' --model script:{}", team::MODEL_FILE)],
        ),
    ];
    Ok(output::text(|out| {
        for (heading, commands) in groups {
            writeln!(out, "\n{HEADING}{heading}{HEADING:#}")?;
            commands.iter().try_for_each(|command| writeln!(out, "  {command}"))?;
        }
        Ok(())
    })?)
}

/// Returns the answer that asked for the call which wrote a line.
async fn answer_behind(session: &Session, path: &str, line: usize) -> Result<StepId, Failure> {
    let blame = session.blame(path).await?;
    let lines = blame.as_ref().map(|blame| &blame.lines[..]).unwrap_or_default();
    match lines.get(line - 1).map(|line| &line.origin) {
        Some(Origin::Call(author)) => Ok(author.answer),
        _ => Err(Failure::new(format!("no call wrote line {line} of {path}"), "`rath blame` shows who wrote it")),
    }
}

/// Returns the path of a file in the directory as a part of a URI.
fn uri(scheme: &str, path: &Path) -> String {
    format!("{scheme}:{}", path.display())
}
