//! `rath replay`: repeat a session and compare.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::pin;
use std::task::Poll;

use rath::chunk::Chunk;
use rath::prelude::*;
use rath::record::draw::printable;
use rath::sandbox::TempDir;
use rath::tool::builtin;
use rath::view;
use serde_json::json;

use crate::agent::{self, AgentArgs};
use crate::output::{self, CommandResult, Exit, Failure};
use crate::sandboxes;
use crate::sessions::{LoadedSession, SessionArg, Source};
use crate::signals;
use crate::strictness::Strictness;

/// Repeat a session and compare it with the record
///
/// Without options no model is asked and no tool runs: everything that follows from the record, including the bytes of
/// every request, is built again and compared. With --tools, tools run again in an empty directory. With --from and
/// --model, another model continues from an earlier step, on a new branch.
#[derive(clap::Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    session: SessionArg,
    /// Run the tools again, in an empty directory or in --sandbox, and compare their results
    #[arg(long, conflicts_with = "from")]
    tools: bool,
    /// Continue from this step, or from the step before it if it is an answer
    #[arg(long, value_name = "STEP", requires = "model")]
    from: Option<String>,
    /// The model that continues: openai:NAME, anthropic:NAME or script:FILE
    #[arg(long, value_name = "MODEL", requires = "from")]
    model: Option<String>,
    /// The system prompt of the agent that continues (default: the recorded one)
    #[arg(long, value_name = "TEXT", requires = "from")]
    system: Option<String>,
    /// The sandbox of the tools: isolated:DIRECTORY or local:DIRECTORY
    ///
    /// Default with --from: where they ran, as strictly as in the whole session. Default with --tools: an empty directory, isolated at least as strictly as when
    /// they ran.
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
        let differences = rebuilt.differences.iter().map(|difference| {
            json!({
                "step": difference.step,
                "what": difference.part,
                "expected": difference.expected,
                "found": difference.found,
            })
        });
        let differences: Vec<_> = differences.collect();
        let (steps, requests) = (rebuilt.steps, rebuilt.requests);
        let json = json!({"exact": rebuilt.is_exact(), "head": rebuilt.head, "steps": steps, "requests": requests, "differences": differences});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        output::text(|out| writeln!(out, "{}", printable(&rebuilt.to_string())))?;
    }
    Ok(if rebuilt.is_exact() { Exit::Success } else { Exit::Differs })
}

/// Runs the tools again. The model's answers are those of the record.
async fn replay_tools(args: &ReplayArgs, loaded: &LoadedSession) -> CommandResult {
    loaded.require_own()?;
    let agent = recorded_agent(&loaded.session)?;
    let directory = TempDir::create_workspace_blocking("replay")?;
    let sandbox = sandboxes::strict_sandbox(loaded, args.sandbox.as_deref(), directory.path()).await?;
    match args.sandbox.is_some() {
        true => sandboxes::print_sandbox(&sandbox, true).await?,
        false => sandboxes::print_sandbox_in(&sandbox, "a temporary directory", false).await?,
    }
    let session = loaded.session.clone().hiding(agent::secrets());
    let replayed = {
        let mut replay = session.replay(&agent).reexecuting(sandbox).into_future();
        let mut stop = pin!(signals::stop_requested());
        let first = poll_fn(|cx| match replay.as_mut().poll(cx) {
            Poll::Pending => stop.as_mut().poll(cx).map(|()| None),
            replayed => replayed.map(Some),
        });
        // Dropping the replay ends the command that runs; the directory is removed with `directory`.
        let stopped =
            || Failure::new("the replay was interrupted", "nothing of it is stored").with_exit(Exit::Interrupted);
        first.await.ok_or_else(stopped)??
    };
    if args.json {
        let divergence = replayed.divergence.as_ref().map(|divergence| {
            json!({
                "step": divergence.step,
                "pointer": divergence.pointer,
                "expected": divergence.expected,
                "found": divergence.found,
            })
        });
        let (steps, requests) = (replayed.steps, replayed.requests);
        let json = json!({"exact": replayed.is_exact(), "head": replayed.head, "steps": steps, "requests": requests, "divergence": divergence});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        let pointer = replayed.divergence.as_ref().map(|divergence| divergence.pointer.as_str());
        // The replayed agent has one model, and so its answers differ from where the session changed to another.
        let text = match pointer.is_some_and(|pointer| pointer.starts_with("/provider")) {
            true => "this session used two models; only the first can be replayed here".to_owned(),
            false => replayed.to_string(),
        };
        output::text(|out| writeln!(out, "{}", printable(&text)))?;
    }
    Ok(if replayed.is_exact() { Exit::Success } else { Exit::Differs })
}

/// Builds the agent of the session from its record. Its model gives the recorded answers.
fn recorded_agent(session: &Session) -> Result<Agent, Failure> {
    let Some((_, instructions)) = view::instructions(session.as_record()) else {
        return Err(Failure::new("no agent ran in this session", "`rath replay` without --tools checks the record"));
    };
    let Some(provider) = Provider::recorded(session) else {
        return Err(Failure::new(
            "no model answered in this session",
            "`rath replay` without --tools checks the record",
        ));
    };
    let mut agent = Agent::new(instructions.text.clone(), &provider).turns(u64::MAX);
    let mut unknown = Vec::new();
    for tool in &instructions.tools {
        let known = builtin::all().only(|name| name == tool.name);
        // Every agent gets `read_output` by itself, as soon as it has output to read.
        if known.names().next().is_none() && tool.name != "read_output" {
            unknown.push(format!("`{}`", tool.name));
        }
        agent = agent.tools(known);
    }
    if unknown.is_empty() {
        return Ok(agent);
    }
    let message = format!("the session used tools that this program does not have: {}", unknown.join(", "));
    Err(Failure::new(
        message,
        "replay it with the program that has them: `session.replay(&workflow).reexecuting(place)`",
    ))
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
