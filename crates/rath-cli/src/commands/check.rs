//! `rath check`: a command run as a check, and recorded.

use rath::chunk::Verdict;
use rath::record::draw::printable;
use rath::view::Freshness;
use serde_json::json;

use crate::agent;
use crate::output::{self, Done, Exit, Failure};
use crate::sessions::{self, Origin, StoreArg};

/// Run a command as a check, and record what it found; without one, list the checks
///
/// The check covers the files as it saw them. When they change it is stale, and says so wherever it is shown.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The command, as for `sh -c`
    command: Option<String>,
    /// The session; the one that was written last if none is named
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// A file or directory that the check depends on, if not on all; may be given several times
    #[arg(long, value_name = "PATH")]
    input: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let named = sessions::read_or_newest(args.session.as_deref(), &args.store)?;
    let exit = named.warn();
    let Some(command) = args.command.as_deref() else {
        list(args, &named.session)?;
        return Ok(exit);
    };
    let Origin::Store(store, listed, _) = &named.origin else {
        let what = format!("{} is a file, and checks are recorded in a store", named.name());
        return Err(Failure::told(what, "`rath import FILE` takes it into one").exit(Exit::Misused));
    };
    if command.trim().is_empty() {
        let hint = "left out, the checks that there are are listed";
        return Err(Failure::told("wanted a command as the check, found nothing", hint).exit(Exit::Misused));
    }
    if named.session.place().is_none() {
        let what = format!("the session {} works nowhere, and has no files to check", named.name());
        return Err(Failure::told(what, "it was run without a sandbox"));
    }
    let session = agent::block_on(async {
        let resumed = store.resume(listed.branch).await.map_err(sessions::held)?;
        // What is different in the files is recorded before the check runs.
        let session = resumed.accept_file_changes().map_err(|error| named.refused(error))?;
        let mut session = session.hiding(agent::secrets());
        session.check(command, &args.input).await.map_err(|error| named.refused(error))?;
        Ok(session)
    })?;
    list(args, &session)?;
    let passed = session.checks().list.get(command).is_some_and(|check| check.checked.verdict == Verdict::Passed);
    Ok(if passed { exit } else { Exit::Failed })
}

fn list(args: &Args, session: &rath::Session) -> Result<(), Failure> {
    let checks = session.checks();
    let shown = checks.list.iter().filter(|(name, _)| args.command.as_ref().is_none_or(|command| command == *name));
    for (name, check) in shown {
        let verdict = match check.checked.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::Broken => "could not run",
        };
        let fresh = check.freshness == Freshness::Fresh;
        let json = json!({
            "check": name, "verdict": check.checked.verdict, "fresh": fresh, "step": check.step.id(),
            "tree": check.checked.tree, "inputs": check.checked.inputs, "output": check.checked.output.as_str(),
        });
        if args.json {
            output::data(|out| output::json_line(out, &json))?;
            continue;
        }
        output::text(|out| {
            if args.command.is_some() {
                let said = printable(check.checked.output.as_str().unwrap_or_default());
                let end = if said.is_empty() || said.ends_with('\n') { "" } else { "\n" };
                write!(out, "{said}{end}")?;
            }
            writeln!(
                out,
                "{} {}  {verdict}{}",
                output::short(&check.step.id()),
                printable(name),
                if fresh { "" } else { ", stale" }
            )
        })?;
    }
    Ok(())
}
