//! `rath check`: run a command as a check and record its result.

use rath::chunk::Verdict;
use rath::record::draw::{one_line, printable};
use rath::view::{self, Freshness};
use serde_json::json;

use super::ls::{HolderCache, ListedSession};
use crate::agent;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::sandboxes;
use crate::sessions::{self, Source, StoreArg};

/// Run a command as a check and record its result, or list the checks
///
/// A check holds for the files that it saw. When they change, it is listed as stale.
#[derive(clap::Args)]
pub(crate) struct CheckArgs {
    /// The command, as for `sh -c`. Default: list the checks
    command: Option<String>,
    /// The session (default: the newest)
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// A file or directory that the check depends on (default: all of them); may be repeated
    #[arg(long, value_name = "PATH")]
    input: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &CheckArgs) -> CommandResult {
    let loaded = sessions::read_or_newest(args.session.as_deref(), &args.store).await?;
    let exit = loaded.warn();
    let Some(command) = args.command.as_deref() else {
        let is_running = match &loaded.source {
            Source::Store(store, summary, _) => {
                let listed = ListedSession::of_loaded(&loaded, store, summary).await;
                listed.is_running(&mut HolderCache::default())
            }
            Source::File(..) => false,
        };
        list(args, &loaded.session, is_running).await?;
        return Ok(exit);
    };
    let (store, listed) = match &loaded.source {
        Source::Store(store, listed, _) => (store, listed),
        Source::File(path, _) => return Err(sessions::needs_store(path, &args.store)),
    };
    if command.trim().is_empty() {
        let hint = loaded.command("check --session", "") + " lists the checks";
        return Err(Failure::new("wanted a command, found an empty text", hint).with_exit(Exit::Usage));
    }
    loaded.require_own()?;
    if loaded.session.place().is_none() {
        let message = format!("session {} has no directory in which a check could run", loaded.name());
        let hint = match loaded.session.forgotten_place() {
            Some(_) => format!("a step of it was forgotten; {} gives it one", loaded.resume_command()),
            None => "it was run with `--sandbox none`".to_owned(),
        };
        return Err(Failure::new(message, hint));
    }
    let resumed = store.resume(listed.branch).await.map_err(sessions::explain_held)?;
    // Changed files are no obstacle: the changes are recorded before the check runs.
    let session = loaded.accept_file_changes(resumed)?;
    let mut session = session.hiding(agent::secrets());
    if let Some(place) = session.place() {
        let (sandbox, directory) = (sandboxes::open(place.as_str())?, session.working_directory().await);
        sandboxes::print_sandbox_with(&sandbox, directory.as_deref(), true, "").await?;
    }
    let verdict = session.check(command, &args.input).await.map_err(|error| loaded.explain(error))?;
    list(args, &session, false).await?;
    sandboxes::note_unshared("the check ran", &session.unshared_paths());
    Ok(if verdict == Verdict::Passed { exit } else { Exit::Failure })
}

async fn list(args: &CheckArgs, session: &rath::Session, is_running: bool) -> Result<(), Failure> {
    // Where the files cannot be looked at, what is on the record is shown.
    let found = match () {
        () if is_running => Err("another process works with them".to_owned()),
        () if session.place().is_none() => Err("the session has no directory any more".to_owned()),
        () => session.record_of_now().await.map_err(|error| error.message()),
    };
    let is_compared = found.is_ok();
    let record = found.unwrap_or_else(|why| {
        output::warning(&format!("the files were not compared with the record: {}", one_line(&why)));
        session.as_record().clone()
    });
    let checks = view::checks(&record);
    // On the record, secrets in the command are hidden.
    let command =
        args.command.as_ref().map(|command| agent::secrets().hide(command).unwrap_or_else(|| command.clone()));
    let shown = checks.list.iter().filter(|(name, _)| command.as_ref().is_none_or(|command| command == *name));
    for (name, check) in shown {
        let verdict = super::verdict_text(check.checked.verdict);
        let fresh = is_compared && check.freshness == Freshness::Fresh;
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
                let printed = printable(check.checked.output.as_str().unwrap_or_default());
                let end = if printed.is_empty() || printed.ends_with('\n') { "" } else { "\n" };
                write!(out, "{printed}{end}")?;
            }
            writeln!(
                out,
                "{} {}  {verdict}{}",
                output::short(&check.step.id()),
                one_line(name),
                match &check.checked.tree {
                    _ if fresh => "",
                    _ if !is_compared => ", not compared with the files",
                    None => ", stale: files changed while it ran, or since",
                    Some(_) => ", stale: files changed since",
                }
            )
        })?;
    }
    Ok(())
}
