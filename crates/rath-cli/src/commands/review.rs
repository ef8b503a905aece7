//! `rath review`: show what is waiting for a decision, and decide.

use std::io::{self, Write};
use std::path::Path;

use rath::chunk::{Asked, Chunk, Resolution};
use rath::record::draw::{count, one_line};
use rath::store::Holder;
use rath::turn::{Next, PendingCall, Progress};
use rath::{CallId, Difference, ErrorKind, Session, StepId, Timestamp};
use serde_json::json;

use crate::agent;
use crate::asking::user_name;
use crate::output::{self, BRANCH, CommandResult, Exit, Failure};
use crate::sessions::{self, LoadedSession, SessionArg, Source};
use crate::unwritten::{self, UnwrittenFiles};

/// Show what is waiting for your decision, or decide
///
/// A tool call waits if it needs approval, if the run stopped before it, or if it was interrupted and may or may not have
/// finished. A file waits if a merge found a conflict in it. The exit code is 4 while something is waiting.
#[derive(clap::Args)]
pub(crate) struct ReviewArgs {
    #[command(flatten)]
    session: SessionArg,
    /// Let a call run; an interrupted one runs again. May be repeated, as the other options
    #[arg(long, value_name = "CALL")]
    approve: Vec<String>,
    /// Refuse a call; the model is told
    #[arg(long, value_name = "CALL")]
    deny: Vec<String>,
    /// The reason, which the model is told
    #[arg(long, value_name = "TEXT", requires = "deny", default_value = "the user refused it")]
    reason: String,
    /// Do not run an interrupted call again; the model is told that its result is unknown
    #[arg(long, value_name = "CALL")]
    skip: Vec<String>,
    /// Do not run a call; the model is told that the text of the file is its result
    #[arg(long, num_args = 2, value_names = ["CALL", "FILE"])]
    result: Vec<String>,
    /// Decide a conflict: take `ours`, `theirs`, or `markers` for both versions with conflict markers
    #[arg(long, num_args = 2, value_names = ["VERSION", "PATH"])]
    take: Vec<String>,
    /// Decide a conflict with the content of a file of yours
    #[arg(long, num_args = 2, value_names = ["PATH", "FILE"])]
    edited: Vec<String>,
    /// Print one JSON object per waiting call or file
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &ReviewArgs) -> CommandResult {
    let loaded = args.session.read().await?;
    let decisions = args.decisions()?;
    if decisions.is_empty() {
        loaded.warn();
        return show(args, &loaded, &loaded.session).await;
    }
    if loaded.warn() == Exit::Differs {
        return Err(loaded.damaged());
    }
    loaded.require_own()?;
    // All decisions are recorded, or none: they are tried on a copy first.
    let as_user = |session: Session| session.hiding(agent::secrets()).decided_by(user_name());
    let mut decided = loaded.session.clone();
    let tried = decide(&mut decided, &decisions).await;
    let review = loaded.command("review", "");
    tried.map_err(|error| Failure::from(error).add_hint(&format!("{review} shows what is waiting for you")))?;
    refuse_unwritable(&loaded, &decided, &decisions).await?;
    let session = match &loaded.source {
        Source::File(path, _) => {
            let mut session = as_user(loaded.session.clone());
            decide(&mut session, &decisions).await?;
            session.save(path).await?;
            session
        }
        Source::Store(store, listed, _) => {
            let resumed = store.resume(listed.branch).await.map_err(sessions::explain_held)?;
            let is_damage = |it: &Difference| matches!(it, Difference::Damage(_) | Difference::Head { .. });
            let is_damaged = resumed.certificate().differences().iter().any(is_damage);
            for difference in resumed.certificate().differences() {
                if matches!(difference, Difference::Unobserved { .. }) {
                    output::message!("{}", agent::describe_change(difference));
                }
            }
            // Missing tools or directories do not matter: nothing is run.
            let session = match resumed.to_decide() {
                Err(error) if is_damaged => return Err(error.into()),
                Err(error) => error.into_session().expect("this error holds its session"),
                Ok(session) => session,
            };
            let mut session = as_user(session);
            decide(&mut session, &decisions).await?;
            session.durable().await?;
            write_files(&loaded, &session, &decisions).await?;
            session
        }
    };
    output::message!("{} recorded", count(decisions.len() as u64, "decision"));
    show(args, &loaded, &session).await
}

enum Decision {
    Approve(String),
    Deny(String, String),
    Skip(String),
    Result(String, String),
    Take(String, Resolution),
    Edited(String, Vec<u8>),
}

impl Decision {
    /// Returns the call or the path that the decision is about.
    fn subject(&self) -> (&'static str, &str) {
        match self {
            Decision::Approve(call) | Decision::Deny(call, _) | Decision::Skip(call) | Decision::Result(call, _) => {
                ("call", call)
            }
            Decision::Take(path, _) | Decision::Edited(path, _) => ("file", path),
        }
    }
}

impl ReviewArgs {
    /// Returns the decisions. Two about the same call or file are an error: which one is meant is not known.
    fn decisions(&self) -> Result<Vec<Decision>, Failure> {
        let decisions = self.all_decisions()?;
        let mut seen = std::collections::HashSet::new();
        match decisions.iter().find(|decision| !seen.insert(decision.subject())) {
            None => Ok(decisions),
            Some(twice) => {
                let (kind, name) = twice.subject();
                let message = format!("two decisions are about the {kind} `{}`", one_line(name));
                Err(Failure::new(message, "nothing was decided; give one of them").with_exit(Exit::Usage))
            }
        }
    }

    fn all_decisions(&self) -> Result<Vec<Decision>, Failure> {
        let approve = self.approve.iter().cloned().map(Decision::Approve);
        let deny = self.deny.iter().map(|call| Decision::Deny(call.clone(), self.reason.clone()));
        let skip = self.skip.iter().cloned().map(Decision::Skip);
        let mut decisions: Vec<_> = approve.chain(deny).chain(skip).collect();
        for pair in self.result.chunks_exact(2) {
            let (call, file) = (&pair[0], Path::new(&pair[1]));
            let text = std::fs::read_to_string(file).map_err(|error| {
                let message = format!("cannot read the result in {}: {error}", file.display());
                Failure::new(message, "`--result CALL FILE` names a file with the text for the model")
            })?;
            decisions.push(Decision::Result(call.clone(), text));
        }
        for pair in self.take.chunks_exact(2) {
            let taken = match pair[0].as_str() {
                "ours" => Resolution::Ours,
                "theirs" => Resolution::Theirs,
                "markers" => Resolution::Markers,
                other => {
                    let message = format!("wanted `ours`, `theirs` or `markers`, found `{other}`");
                    return Err(
                        Failure::new(message, "`--edited PATH FILE` takes a file of yours").with_exit(Exit::Usage)
                    );
                }
            };
            decisions.push(Decision::Take(pair[1].clone(), taken));
        }
        for pair in self.edited.chunks_exact(2) {
            let content = std::fs::read(&pair[1]).map_err(|error| {
                Failure::new(
                    format!("cannot read {}: {error}", pair[1]),
                    "`--edited PATH FILE` names a file with the new content",
                )
            })?;
            decisions.push(Decision::Edited(pair[0].clone(), content));
        }
        Ok(decisions)
    }
}

/// Fails if decisions are the last about conflicts, and the files that they make could not be written.
async fn refuse_unwritable(loaded: &LoadedSession, decided: &Session, decisions: &[Decision]) -> Result<(), Failure> {
    let Source::Store(..) = &loaded.source else { return Ok(()) };
    if !complete_merge(decided, decisions) {
        return Ok(());
    }
    decided.check_update().await.map_err(|error| match error.kind() {
        ErrorKind::Conflict => {
            let hint = "nothing was decided; move your change away, and run this again";
            Failure::from(error).with_hint(hint)
        }
        _ => loaded.explain(error),
    })
}

/// Writes the merged files to the session's directory, once every conflict is decided.
async fn write_files(loaded: &LoadedSession, session: &Session, decisions: &[Decision]) -> Result<(), Failure> {
    if complete_merge(session, decisions) {
        let explain = |error: rath::Error| match error.kind() {
            ErrorKind::Conflict => unwritten::explain(error, loaded.name(), loaded.option()),
            _ => loaded.explain(error),
        };
        let directory = session.update_files().await.map_err(explain)?;
        directory.iter().for_each(|directory| output::message!("merged files are in {}", output::path(directory)));
    }
    Ok(())
}

/// Returns true if these decisions were about files, and no conflict is left.
fn complete_merge(session: &Session, decisions: &[Decision]) -> bool {
    let is_about_file = |decision: &Decision| matches!(decision, Decision::Take(..) | Decision::Edited(..));
    decisions.iter().any(is_about_file) && session.conflicts().is_empty()
}

async fn decide(session: &mut Session, decisions: &[Decision]) -> rath::Result<()> {
    for decision in decisions {
        match decision {
            Decision::Approve(call) => session.approve(call.as_str()),
            Decision::Deny(call, reason) => session.deny(call.as_str(), reason.as_str()),
            Decision::Skip(call) => session.skip(call.as_str()).await,
            Decision::Result(call, output) => session.give_result(call.as_str(), output.as_str()).await,
            Decision::Take(path, taken) => session.decide(path, *taken).await,
            Decision::Edited(path, content) => session.decide_edited(path, content).await,
        }?;
    }
    Ok(())
}

/// A tool call that is waiting for a decision.
#[derive(serde::Serialize)]
pub(super) struct WaitingCall {
    call: CallId,
    tool: String,
    arguments: String,
    state: &'static str,
    since: Option<String>,
    step: StepId,
    /// The reason why a person has to decide, and the rule or mode that asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// The time for people.
    #[serde(skip)]
    recent: Option<String>,
    #[serde(skip)]
    is_interrupted: bool,
    #[serde(skip)]
    is_held: bool,
}

impl WaitingCall {
    pub(super) fn all(session: &Session) -> Vec<WaitingCall> {
        session.open_calls().into_iter().filter_map(|pending| WaitingCall::new(session, pending)).collect()
    }

    /// Describes the call on one line: its tool and its main argument.
    pub(super) fn describe(&self) -> String {
        one_line(&format!("{} {}", self.tool, output::main_argument(&self.tool, &self.arguments)))
    }

    /// Returns true if the call was started, and its end is not recorded.
    pub(super) fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// Returns true if the call is not made before a person decides.
    pub(super) fn needs_person(&self) -> bool {
        self.why.is_some() || self.is_interrupted || self.is_held
    }

    /// Returns the call, unless it is decided.
    fn new(session: &Session, pending: PendingCall) -> Option<WaitingCall> {
        let state = match pending.progress {
            Progress::New | Progress::Held => "waiting",
            Progress::Unknown | Progress::HeldUnknown => "interrupted",
            // The decisions of its author are not in force.
            _ if session.is_guest() => "waiting",
            _ => return None,
        };
        let since = since(session, &pending);
        let asked = asked(session, &pending);
        Some(WaitingCall {
            why: asked.map(|asked| asked.why.clone()),
            rule: asked.and_then(|asked| asked.rule.clone()),
            since: since.map(output::time),
            recent: since.map(output::recent),
            is_interrupted: pending.progress.is_in_doubt(),
            is_held: session.is_guest() || matches!(pending.progress, Progress::Held | Progress::HeldUnknown),
            arguments: pending.call.arguments.to_string(),
            tool: pending.call.tool.to_string(),
            call: pending.call.id,
            state,
            step: pending.origin.answer,
        })
    }
}

/// Returns the time at which a call was started, or asked for if it was not started.
fn since(session: &Session, pending: &PendingCall) -> Option<Timestamp> {
    let is_start = |chunk: &Chunk| matches!(chunk, Chunk::ToolStarted(started) if started.call == pending.call.id);
    let mut newest = session.as_record().newest_first();
    newest.find(|step| step.id() == pending.origin.answer || is_start(step.chunk()))?.stamp().at
}

/// Returns the question that was asked about a call.
fn asked<'a>(session: &'a Session, pending: &PendingCall) -> Option<&'a Asked> {
    let mut newest = session.as_record().newest_first().take_while(|step| step.id() != pending.origin.answer);
    newest.find_map(|step| match step.chunk() {
        Chunk::Asked(asked) if asked.call == pending.call.id => Some(asked),
        _ => None,
    })
}

async fn show(args: &ReviewArgs, loaded: &LoadedSession, session: &Session) -> CommandResult {
    let (waiting, conflicts) = (WaitingCall::all(session), session.conflicts());
    if args.json {
        output::data(|out| {
            waiting.iter().try_for_each(|call| output::json_line(out, call))?;
            conflicts.iter().try_for_each(|conflict| output::json_line(out, &json!({ "conflict": conflict })))
        })?;
    } else {
        output::text(|out| {
            waiting.iter().try_for_each(|call| print(out, call))?;
            conflicts.iter().try_for_each(|it| writeln!(out, "{}  conflict ({})", one_line(&it.path), it.what))
        })?;
    }
    if let Some(holder) = writer(loaded) {
        output::message!("running in {holder}: calls without a result may still be running");
    }
    if waiting.is_empty() && conflicts.is_empty() {
        if let Some(unwritten) = UnwrittenFiles::of(session).await {
            unwritten::note(&unwritten, loaded.name(), loaded.option());
        }
        let next = match session.next() {
            Next::Done => String::new(),
            _ if writer(loaded).is_some() => String::new(),
            Next::AskModel | Next::RunTools(_) => format!("; {} continues", loaded.resume_command()),
        };
        output::message!("nothing is waiting for you{next}");
        return Ok(Exit::Success);
    }
    let hint = |options: String, effect: &str| {
        output::message!("hint: {} {effect}", loaded.command("review", &options));
    };
    if session.is_guest() {
        hint_adopt(loaded);
        return Ok(Exit::Waiting);
    }
    // The one that holds up the others.
    if let Some(waiting) = waiting.iter().find(|call| call.why.is_some()).or(waiting.first()) {
        let call = output::quote(&waiting.call.to_string());
        hint(format!(" --approve {call}"), if waiting.is_interrupted { "runs it again" } else { "lets it run" });
        hint(format!(" --deny {call}"), "refuses it");
    }
    if let Some(conflict) = conflicts.first() {
        hint(format!(" --take ours {}", output::quote(&conflict.path)), "takes our version");
    }
    output::message!("hint: `rath review --help` shows the other ways to decide");
    Ok(Exit::Waiting)
}

/// Prints how to take over a session that others made.
fn hint_adopt(loaded: &LoadedSession) {
    let adopt = loaded.command("adopt", " --sandbox isolated:.");
    output::message!("this session was not made by you here, so nothing of it runs");
    output::message!("hint: {adopt} takes it over; then you can decide");
}

/// Returns the process that writes the session now.
fn writer(loaded: &LoadedSession) -> Option<&Holder> {
    match &loaded.source {
        Source::File(..) => None,
        Source::Store(_, listed, _) => listed.holder.as_deref().filter(|holder| !holder.is_dead()),
    }
}

fn print(out: &mut dyn Write, waiting: &WaitingCall) -> io::Result<()> {
    let (call, tool) = (one_line(&waiting.call.to_string()), one_line(&waiting.tool));
    let since = waiting.recent.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
    writeln!(out, "{call}  {BRANCH}{tool}{BRANCH:#} {}", one_line(&waiting.arguments))?;
    if waiting.is_held && waiting.is_interrupted {
        return writeln!(out, "  waiting for you{since}; it may have been begun before, and may have finished");
    }
    if waiting.is_held {
        return writeln!(out, "  waiting for you{since}; runs only if you approve it");
    }
    match waiting.is_interrupted {
        true => writeln!(out, "  waiting for you{since}; it was interrupted, and may or may not have finished"),
        false => match (&waiting.why, &waiting.rule) {
            (Some(why), Some(rule)) => {
                writeln!(out, "  waiting for you{since}: {} ({})", one_line(why), one_line(rule))
            }
            _ => writeln!(out, "  not started{since}; made on resume, if your rules allow it"),
        },
    }
}
