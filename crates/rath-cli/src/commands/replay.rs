//! `rath replay`: repeat a session and compare.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::pin;
use std::task::Poll;

use rath::chunk::Chunk;
use rath::prelude::*;
use rath::record::draw::printable;
use rath::replay::RebuildDifference;
use rath::sandbox::TempDir;
use rath::tool::builtin;
use serde_json::json;

use crate::agent::{self, AgentArgs};
use crate::configuration::Permissions;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::sandboxes;
use crate::sessions::{LoadedSession, SessionAtArg, Source};
use crate::signals;
use crate::strictness::Strictness;

/// Repeat a session and compare it with the record
///
/// Without options no model is asked and no tool runs: everything that follows from the record, including the bytes of
/// every request, is built again and compared. With --tools, every recorded call is made again as well, on the recorded
/// files in a new directory, and its output and the files that it changes are compared. With --from and --model, another
/// model continues from an earlier step, on a new branch.
#[derive(clap::Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    session: SessionAtArg,
    /// Make the recorded calls again, in a new directory with the recorded files, and compare
    #[arg(long, conflicts_with = "from")]
    tools: bool,
    /// Stop at the first difference
    #[arg(long, requires = "tools")]
    first: bool,
    /// Continue from this step, or from the step before it if it is an answer
    #[arg(long, value_name = "STEP", requires = "model")]
    from: Option<String>,
    /// The model that continues: openai:NAME, anthropic:NAME, gemini:NAME or script:FILE
    #[arg(long, value_name = "MODEL", requires = "from")]
    model: Option<String>,
    /// The system prompt of the agent that continues (default: the recorded one)
    #[arg(long, value_name = "TEXT", requires = "from")]
    system: Option<String>,
    /// The sandbox of the tools: isolated:DIRECTORY or local:DIRECTORY
    ///
    /// Default with --from: where they ran, as strictly as in the whole session. Default with --tools: a new directory,
    /// isolated at least as strictly as when they ran. With --tools, recorded files are restored only in an empty
    /// directory.
    #[arg(long, value_name = "SANDBOX")]
    sandbox: Option<String>,
    /// The calls that are made without asking: read-only, ask, workspace or full (default: the strictest mode of the session)
    #[arg(long, value_name = "MODE", requires = "from")]
    mode: Option<Mode>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &ReplayArgs) -> CommandResult {
    let loaded = args.session.read().await?;
    let exit = loaded.warn();
    let result = match &args.from {
        Some(step) => continue_from(args, &loaded, step).await?,
        None if args.tools => replay_tools(args, &loaded).await?,
        None => rebuild(args, &loaded)?,
    };
    Ok(if exit == Exit::Success { result } else { exit })
}

/// Rebuilds what follows from the record, without a model or tools.
fn rebuild(args: &ReplayArgs, loaded: &LoadedSession) -> CommandResult {
    let rebuilt = loaded.session.rebuild();
    if args.json {
        let differences: Vec<_> = rebuilt.differences.iter().map(record_difference).collect();
        let (steps, requests, exact) = (rebuilt.steps, rebuilt.requests, rebuilt.is_exact() && rebuilt.requests > 0);
        let mut json = json!({"exact": exact, "head": rebuilt.head, "steps": steps, "requests": requests, "differences": differences});
        if rebuilt.forgotten_requests > 0 {
            json["forgotten_requests"] = rebuilt.forgotten_requests.into();
        }
        output::data(|out| output::json_line(out, &json))?;
    } else {
        output::text(|out| writeln!(out, "{}", printable(&rebuilt.to_string())))?;
    }
    Ok(exit_of(!rebuilt.is_exact(), rebuilt.requests + rebuilt.forgotten_requests))
}

/// Returns the exit code of a comparison. Without anything to compare, it has not succeeded.
fn exit_of(has_differences: bool, compared: u64) -> Exit {
    match (has_differences, compared) {
        (true, _) => Exit::Differs,
        (false, 0) => Exit::Failure,
        (false, _) => Exit::Success,
    }
}

fn record_difference(difference: &RebuildDifference) -> serde_json::Value {
    json!({
        "step": difference.step,
        "what": difference.part,
        "expected": difference.expected,
        "found": difference.found,
    })
}

/// Makes the recorded calls again, and compares them and the requests with the record.
async fn replay_tools(args: &ReplayArgs, loaded: &LoadedSession) -> CommandResult {
    loaded.require_own()?;
    let directory = TempDir::create_workspace_blocking("replay")?;
    let sandbox = sandboxes::strict_sandbox(loaded, args.sandbox.as_deref(), directory.path()).await?;
    match args.sandbox.is_some() {
        true => sandboxes::print_sandbox(&sandbox, true).await?,
        false => sandboxes::print_sandbox_in(&sandbox, "a temporary directory", false).await?,
    }
    // Files that the user's rules hide from tools are hidden here too.
    let place = loaded.session.place().and_then(|place| sandboxes::open(place.as_str()).ok());
    let permissions = Permissions::read(place.as_ref().and_then(Sandbox::directory))?;
    let policy = Policy::new(Mode::Full).rules(permissions.rules.into_iter().map(|(rule, _)| rule));
    let session = loaded.session.clone().hiding(agent::secrets()).under(policy);
    let repeat = session.repeat(builtin::all(), sandbox);
    let repeat = if args.first { repeat.stop_at_first() } else { repeat };
    let report = {
        let mut repeat = repeat.into_future();
        let mut stop = pin!(signals::stop_requested());
        let first = poll_fn(|cx| match repeat.as_mut().poll(cx) {
            Poll::Pending => stop.as_mut().poll(cx).map(|()| None),
            report => report.map(Some),
        });
        // Dropping the future ends the command that runs; the directory is removed with `directory`.
        let stopped =
            || Failure::new("the replay was interrupted", "nothing of it is stored").with_exit(Exit::Interrupted);
        first.await.ok_or_else(stopped)??
    };
    sandboxes::note_unshared("the calls ran", &report.unshared);
    if !report.call_differences.is_empty() {
        output::note("files that git ignores are not recorded: the calls saw them as they are now");
    }
    if args.json {
        let mut differences: Vec<_> = report.record_differences.iter().map(record_difference).collect();
        differences.extend(report.call_differences.iter().map(|difference| {
            json!({
                "step": difference.step,
                "call": difference.call,
                "what": difference.part,
                "expected": difference.recorded,
                "found": difference.now,
            })
        }));
        let not_made: Vec<_> =
            report.not_made.iter().map(|(step, reason)| json!({"step": step, "reason": reason})).collect();
        let json = json!({
            "exact": report.is_exact(), "head": session.head().map(rath::record::Step::id), "requests": report.requests,
            "calls": report.calls, "files": report.files, "differences": differences, "not_made": not_made,
        });
        output::data(|out| output::json_line(out, &json))?;
    } else {
        output::text(|out| writeln!(out, "{}", printable(&report.to_string())))?;
    }
    Ok(exit_of(report.has_differences(), report.requests + report.forgotten_requests + report.calls))
}

/// Lets another model continue from an earlier step.
async fn continue_from(args: &ReplayArgs, loaded: &LoadedSession, from: &str) -> CommandResult {
    loaded.require_own()?;
    let step = loaded.find_step(from)?;
    // If the step is an answer, the model is asked for it again.
    let step = match (step.chunk(), step.parents().first().and_then(|link| link.step())) {
        (Chunk::Assistant(_), Some(before)) => before,
        _ => step,
    };
    let (model, system, sandbox) = (args.model.clone(), args.system.clone(), args.sandbox.clone());
    let agent_args = AgentArgs::new(model.unwrap_or_default(), system, sandbox, args.mode);
    let mut session = loaded.session.at(step.id())?.hiding(agent::secrets());
    let strictness = Strictness::of([loaded]);
    if args.sandbox.is_none() {
        strictness.keep_place(&mut session).await?;
    }
    if args.mode.is_none() {
        strictness.keep_mode(&mut session);
    }
    let agent = agent_args.agent(Some(&session)).await?;
    let mut placed = agent_args.place(session).await?;
    if let Source::Store(store, ..) = &loaded.source {
        placed = placed.record(store).await?;
    }
    placed.session().check_directory().await?;
    let outcome = agent_args.work(&agent, placed).await;
    let session = outcome.session().cloned();
    let result = outcome.finish()?;
    if let Some(other) = &session {
        let comparison = loaded.session.compare(other);
        output::text(|out| writeln!(out, "{}", printable(&comparison.to_string())))?;
        if other.store().is_some() {
            output::message!("saved as {}", other.id().short());
        }
    }
    result.map_err(|error| match (error.kind(), &loaded.source, &session) {
        (ErrorKind::Cancelled | ErrorKind::Limit, Source::Store(..), Some(other)) => {
            let resume = loaded.resume_other(other, &agent_args.options());
            Failure::from(error).with_hint(format!("{resume} continues from there"))
        }
        _ => error.into(),
    })?;
    Ok(Exit::Success)
}
