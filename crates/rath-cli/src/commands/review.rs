//! `rath review`: what waits for a person's decision.

use std::io::{self, Write};
use std::path::Path;

use rath::Difference;
use rath::chunk::{Chunk, Taken};
use rath::record::draw::{count, printable};
use rath::store::Holder;
use rath::turn::{Next, Pending, Progress};
use rath::{CallId, Session, StepId, Timestamp};
use serde_json::json;

use crate::agent;
use crate::output::{self, BRANCH, Done, Exit, Failure};
use crate::sessions::{self, Named, Origin, SessionArg};

/// Show what waits for a decision, or decide
///
/// A call waits if it was not begun, because it needs approval or the run stopped before it; or if it is in doubt: it was
/// started, and nobody knows how it ended. A file waits if a merge could not join what both sides made of it. Ends with exit
/// code 4 while something waits.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Let a call go ahead; one in doubt is made again. May be given several times, as the others
    #[arg(long, value_name = "CALL")]
    approve: Vec<String>,
    /// Refuse a call; the model is told
    #[arg(long, value_name = "CALL")]
    deny: Vec<String>,
    /// Why; the model reads it
    #[arg(long, value_name = "TEXT", requires = "deny", default_value = "the user refused it")]
    reason: String,
    /// Close a call without making it again; the model is told that its end is not known
    #[arg(long, value_name = "CALL")]
    skip: Vec<String>,
    /// Close a call with what it came to, as you found out; the model reads the file
    #[arg(long, num_args = 2, value_names = ["CALL", "FILE"])]
    result: Vec<String>,
    /// Take a version of a file in conflict: ours, theirs, or markers, which is both with marks between them
    #[arg(long, num_args = 2, value_names = ["ours | theirs | markers", "PATH"])]
    take: Vec<String>,
    /// Take your own version of a file in conflict
    #[arg(long, num_args = 2, value_names = ["PATH", "FILE"])]
    edited: Vec<String>,
    /// Print one JSON object per call or file that waits
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let named = args.session.read()?;
    let decisions = args.decisions()?;
    if decisions.is_empty() {
        named.warn();
        return show(args, &named, &named.session);
    }
    if named.warn() == Exit::Differs {
        let what = format!("{} is damaged, and what was decided could not be relied on", named.name());
        let hint = format!("{} copies what is good", named.command("salvage", " NEW"));
        return Err(Failure::told(what, hint).exit(Exit::Differs));
    }
    // All of them or none: they are tried on what was read first.
    let mut decided = named.session.fork();
    decide(&mut decided, &decisions)?;
    let session = match &named.origin {
        Origin::File(path, _) => {
            let mut session = named.session.clone().hiding(agent::secrets());
            decide(&mut session, &decisions)?;
            session.save(path)?;
            session
        }
        Origin::Store(store, listed, _) => agent::block_on(async {
            let resumed = store.resume(listed.branch).await.map_err(sessions::held)?;
            let damaged = |it: &Difference| matches!(it, Difference::Damage(_) | Difference::Head { .. });
            let is_damaged = resumed.certificate().differences().iter().any(damaged);
            // Where tools would run does not matter here: nothing is run.
            let mut session = match resumed.to_decide() {
                Err(error) if is_damaged => return Err(error.into()),
                Err(error) => error.into_session().expect("what differs comes with its session"),
                Ok(session) => session,
            }
            .hiding(agent::secrets());
            decide(&mut session, &decisions)?;
            session.durable().await?;
            settle(&named, &session, &decisions).await?;
            Ok(session)
        })?,
    };
    anstream::eprintln!("{} recorded", count(decisions.len() as u64, "decision"));
    show(args, &named, &session)
}

enum Decision {
    Approve(String),
    Deny(String, String),
    Skip(String),
    Settle(String, String),
    Take(String, Taken),
    Edited(String, Vec<u8>),
}

impl Args {
    fn decisions(&self) -> Result<Vec<Decision>, Failure> {
        let approve = self.approve.iter().cloned().map(Decision::Approve);
        let deny = self.deny.iter().map(|call| Decision::Deny(call.clone(), self.reason.clone()));
        let skip = self.skip.iter().cloned().map(Decision::Skip);
        let mut decisions: Vec<_> = approve.chain(deny).chain(skip).collect();
        for pair in self.result.chunks_exact(2) {
            let (call, file) = (&pair[0], Path::new(&pair[1]));
            let text = std::fs::read_to_string(file).map_err(|error| {
                let what = format!("cannot read the result in {}: {error}", file.display());
                Failure::told(what, "it is the text that the model is to read")
            })?;
            decisions.push(Decision::Settle(call.clone(), text));
        }
        for pair in self.take.chunks_exact(2) {
            let taken = match pair[0].as_str() {
                "ours" => Taken::Ours,
                "theirs" => Taken::Theirs,
                "markers" => Taken::Markers,
                other => {
                    let what = format!("wanted `ours`, `theirs` or `markers`, found `{other}`");
                    return Err(Failure::told(what, "`--edited PATH FILE` takes your own version").exit(Exit::Misused));
                }
            };
            decisions.push(Decision::Take(pair[1].clone(), taken));
        }
        for pair in self.edited.chunks_exact(2) {
            let content = std::fs::read(&pair[1]).map_err(|error| {
                Failure::told(format!("cannot read {}: {error}", pair[1]), "it is what the file is to hold")
            })?;
            decisions.push(Decision::Edited(pair[0].clone(), content));
        }
        Ok(decisions)
    }
}

/// Puts what was decided where the session works, when nothing is left to decide.
async fn settle(named: &Named, session: &Session, decisions: &[Decision]) -> Result<(), Failure> {
    let of_files = |decision: &Decision| matches!(decision, Decision::Take(..) | Decision::Edited(..));
    if decisions.iter().any(of_files) && session.conflicts().is_empty() {
        let directory = session.settle_files().await.map_err(|error| named.refused(error))?;
        directory.iter().for_each(|directory| anstream::eprintln!("its files are in {}", output::path(directory)));
    }
    Ok(())
}

fn decide(session: &mut Session, decisions: &[Decision]) -> rath::Result<()> {
    decisions.iter().try_for_each(|decision| {
        match decision {
            Decision::Approve(call) => session.approve(call.as_str()),
            Decision::Deny(call, reason) => session.deny(call.as_str(), reason.as_str()),
            Decision::Skip(call) => session.skip(call.as_str()),
            Decision::Settle(call, output) => session.settle(call.as_str(), output.as_str()),
            Decision::Take(path, taken) => session.decide(path, *taken),
            Decision::Edited(path, content) => session.decide_edited(path, content),
        }
        .map(|_| ())
    })
}

/// What waits for a decision.
#[derive(serde::Serialize)]
struct Waits {
    call: CallId,
    tool: String,
    arguments: String,
    state: &'static str,
    since: Option<String>,
    step: StepId,
}

impl Waits {
    fn in_session(session: &Session) -> Vec<Waits> {
        let Next::RunTools(calls) = session.next() else { return Vec::new() };
        calls.into_iter().filter_map(|pending| Waits::of(session, pending)).collect()
    }

    fn of(session: &Session, pending: Pending) -> Option<Waits> {
        let state = match pending.progress {
            Progress::New => "not begun",
            Progress::Unknown => "in doubt",
            Progress::Approved | Progress::Denied { .. } => return None,
        };
        Some(Waits {
            since: since(session, &pending).map(output::time),
            arguments: pending.call.arguments.to_string(),
            tool: pending.call.tool.to_string(),
            call: pending.call.id,
            state,
            step: pending.step,
        })
    }
}

/// When a call was started, or asked for.
fn since(session: &Session, pending: &Pending) -> Option<Timestamp> {
    let started = |chunk: &Chunk| matches!(chunk, Chunk::ToolStarted(started) if started.call == pending.call.id);
    let mut newest = session.as_record().newest_first();
    newest.find(|step| step.id() == pending.step || started(step.chunk()))?.stamp().at
}

fn show(args: &Args, named: &Named, session: &Session) -> Done {
    let (waiting, conflicts) = (Waits::in_session(session), session.conflicts());
    if args.json {
        output::data(|out| {
            waiting.iter().try_for_each(|call| output::json_line(out, call))?;
            conflicts.iter().try_for_each(|conflict| output::json_line(out, &json!({ "conflict": conflict })))
        })?;
    } else {
        output::text(|out| {
            waiting.iter().try_for_each(|call| print(out, call))?;
            conflicts.iter().try_for_each(|it| writeln!(out, "{}  in conflict ({})", printable(&it.path), it.what))
        })?;
    }
    if let Some(holder) = writer(named) {
        anstream::eprintln!("being written by {holder}: what has no result may be under way");
    }
    if waiting.is_empty() && conflicts.is_empty() {
        let next = match session.next() {
            Next::Done => String::new(),
            _ if writer(named).is_some() => String::new(),
            Next::AskModel | Next::RunTools(_) => match named.origin {
                Origin::File(..) => format!("; `rath run --store file:{} --model ..` goes on", named.name()),
                Origin::Store(..) => format!("; {} goes on", named.command("resume", " --model ..")),
            },
        };
        anstream::eprintln!("nothing waits for a decision{next}");
        return Ok(Exit::Fine);
    }
    if !waiting.is_empty() {
        anstream::eprintln!("hint: `--approve CALL`, `--deny CALL`, `--skip CALL` or `--result CALL FILE` decides");
    }
    if !conflicts.is_empty() {
        anstream::eprintln!("hint: `--take ours|theirs|markers PATH` or `--edited PATH FILE` decides");
    }
    Ok(Exit::Waiting)
}

/// Who writes the session now.
fn writer(named: &Named) -> Option<&Holder> {
    match &named.origin {
        Origin::File(..) => None,
        Origin::Store(_, listed, _) => listed.holder.as_deref().filter(|holder| !holder.is_dead()),
    }
}

fn print(out: &mut dyn Write, waits: &Waits) -> io::Result<()> {
    let (call, tool) = (printable(&waits.call.to_string()), printable(&waits.tool));
    let since = waits.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
    writeln!(out, "{call}  {BRANCH}{tool}{BRANCH:#} {}", printable(&waits.arguments))?;
    writeln!(out, "  {}{since}, asked for in step {}", waits.state, output::short(&waits.step))
}
