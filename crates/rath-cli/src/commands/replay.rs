//! `rath replay`: what a session did, done again and compared.

use std::future::{Future, IntoFuture, poll_fn};
use std::path::PathBuf;
use std::pin::pin;
use std::task::Poll;

use rath::chunk::Chunk;
use rath::prelude::*;
use rath::record::draw::printable;
use rath::tool::builtin;
use serde_json::json;

use super::show;
use crate::agent::{self, Setup};
use crate::output::{self, Done, Exit, Failure};
use crate::sessions::{Named, Origin, SessionArg};

/// Do again what a session did, and compare
///
/// Without options no model is asked and no tool runs: everything that can be rebuilt from the record is rebuilt, every
/// request to the last byte. With --tools, tools run again in a fresh directory. With --from and --model, another model goes
/// on from an earlier step, as a branch of its own.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Let the tools run again, in a fresh directory or at --sandbox, and compare what each call says
    #[arg(long, conflicts_with = "from")]
    tools: bool,
    /// Go on from this step; from before it, if it is an answer
    #[arg(long, value_name = "STEP", requires = "model")]
    from: Option<String>,
    /// The model that goes on
    #[arg(long, value_name = "openai:NAME | anthropic:NAME | script:FILE", requires = "from")]
    model: Option<String>,
    /// What the agent that goes on is told; left out, what it was told
    #[arg(long, value_name = "TEXT", requires = "from")]
    system: Option<String>,
    /// Where tools run; left out, where they ran
    #[arg(long, value_name = "isolated:DIRECTORY | local:DIRECTORY")]
    sandbox: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let named = args.session.read()?;
    let exit = named.warn();
    let found = match &args.from {
        Some(step) => what_if(args, &named, step)?,
        None if args.tools => tools(args, &named)?,
        None => rebuilt(args, &named)?,
    };
    Ok(if exit == Exit::Fine { found } else { exit })
}

/// Everything that can be rebuilt is, with nobody asked.
fn rebuilt(args: &Args, named: &Named) -> Done {
    let rebuilt = named.session.rebuild();
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
    Ok(if rebuilt.is_exact() { Exit::Fine } else { Exit::Differs })
}

/// The tools that this program has run again.
fn tools(args: &Args, named: &Named) -> Done {
    let agent = recorded_agent(&named.session)?;
    let fresh = Fresh::make()?;
    let sandbox = match &args.sandbox {
        Some(uri) => Sandbox::open(uri)?,
        None => Sandbox::local(&fresh.0),
    };
    let session = named.session.clone().hiding(agent::secrets());
    let replayed = agent::block_on(async {
        let mut replay = session.replay(&agent).reexecuting(sandbox).into_future();
        let mut stop = pin!(tokio::signal::ctrl_c());
        let first = poll_fn(|cx| match replay.as_mut().poll(cx) {
            Poll::Pending => stop.as_mut().poll(cx).map(|_| None),
            replayed => replayed.map(Some),
        });
        // Dropping the replay ends the command that runs; the directory goes with `fresh`.
        let stopped = || Failure::told("the replay was stopped", "nothing of it is kept").exit(Exit::Interrupted);
        Ok(first.await.ok_or_else(stopped)??)
    })?;
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
        output::text(|out| writeln!(out, "{}", printable(&replayed.to_string())))?;
    }
    Ok(if replayed.is_exact() { Exit::Fine } else { Exit::Differs })
}

/// The agent that the session knows, with a model that says what was recorded.
fn recorded_agent(session: &Session) -> Result<Agent, Failure> {
    let Some((_, told)) = view::instructions(session.as_record()) else {
        return Err(Failure::told("no agent worked in this session", "`rath run` lets one work"));
    };
    let Some(provider) = Provider::recorded(session) else {
        return Err(Failure::told("no model answered in this session", "`rath run` asks one"));
    };
    let mut agent = Agent::new(told.text.clone(), &provider).turns(u64::MAX);
    let mut strange = Vec::new();
    for tool in &told.tools {
        let known = builtin::all().only(|name| name == tool.name);
        // Every agent can read on, from the moment on when it has something to read on.
        if known.names().next().is_none() && tool.name != "read_output" {
            strange.push(format!("`{}`", tool.name));
        }
        agent = agent.tools(known);
    }
    if strange.is_empty() {
        return Ok(agent);
    }
    let what = format!("this program does not have the tools of the session: {}", strange.join(", "));
    Err(Failure::told(what, "replay it with the program that has them: `session.replay(&workflow).reexecuting(place)`"))
}

/// Another model goes on from an earlier step.
fn what_if(args: &Args, named: &Named, from: &str) -> Done {
    let step = show::find(named, from)?;
    // An answer is asked for again.
    let step = match (step.chunk(), step.parents().first().and_then(|link| link.step())) {
        (Chunk::Assistant(_), Some(before)) => before,
        _ => step,
    };
    let setup = Setup::new(args.model.clone().unwrap_or_default(), args.system.clone(), args.sandbox.clone());
    agent::block_on(async {
        let mut session = named.session.at(step.id())?.hiding(agent::secrets());
        let agent = setup.agent(Some(&session))?;
        session = setup.placed(session).await?;
        if let Origin::Store(store, ..) = &named.origin {
            session = session.record(store).await?;
        }
        let worked = setup.work(&agent, session).await;
        let kept = worked.session().cloned();
        let ended = worked.end()?;
        if let Some(other) = &kept {
            let comparison = named.session.compare(other);
            output::text(|out| writeln!(out, "{}", printable(&comparison.to_string())))?;
            if other.store().is_some() {
                anstream::eprintln!("kept as {}", other.id().short());
            }
        }
        ended.map_err(|error| match (error.kind(), &named.origin, &kept) {
            (ErrorKind::Cancelled | ErrorKind::Limit, Origin::Store(..), Some(other)) => {
                let again = named.again(other.id(), &setup.again());
                Failure::from(error).hint(format!("`rath resume {again}` goes on from there"))
            }
            _ => error.into(),
        })?;
        Ok(Exit::Fine)
    })
}

/// A directory that nobody has used, and nobody needs afterwards.
struct Fresh(PathBuf);

impl Fresh {
    fn make() -> std::io::Result<Self> {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let name = format!("rath-replay-{}-{}", std::process::id(), since.as_nanos());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder)?;
        Ok(Fresh(folder))
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
