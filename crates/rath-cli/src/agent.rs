//! Running an agent: its options, its output, and resuming a stored session.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Instant;

use anstyle::Style;
use rath::chunk::Outcome;
use rath::prelude::*;
use rath::record::draw::{self, count, one_line, preview};
use rath::store::path_within_reach;
use rath::tool::builtin;
use rath::turn::Next;
use rath::{Certificate, Difference, Resumed, ToolChange};
use rath::{Event, StepId, Text, Usage, view};
use serde_json::json;

use crate::guarded::is_guarded;
use crate::json::StepJson;
use crate::output::{self, BRANCH, Exit, Failure};
use crate::sandboxes::{print_sandbox, refuse_home};
use crate::sessions::{StoredSession, guest_failure, store_option};

/// The options that set up an agent.
#[derive(clap::Args)]
pub(crate) struct AgentArgs {
    /// The model: openai:NAME, anthropic:NAME or script:FILE
    #[arg(long, value_name = "MODEL")]
    model: String,
    /// The system prompt. Default: the one of the stored session; otherwise the agent is told to be careful and brief
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// The sandbox of the tools: isolated:DIRECTORY, local:DIRECTORY or none
    ///
    /// In `isolated:` commands can read the machine, write only in the directory, and have no network. In `local:`
    /// commands can do anything you can. With `none` the agent has no tools. Default: where the tools of the stored
    /// session ran; otherwise `isolated:.`
    #[arg(long, value_name = "SANDBOX")]
    sandbox: Option<String>,
    /// Allow network access in an isolated sandbox
    #[arg(long)]
    network: bool,
    /// The number of times that the model may be asked
    #[arg(long, value_name = "N", default_value_t = DEFAULT_TURNS)]
    turns: u64,
    /// Print one JSON object for each event
    #[arg(long)]
    json: bool,
}

/// The number of model calls that a run may make where `--turns` is not given.
const DEFAULT_TURNS: u64 = 100;
const DEFAULT_SYSTEM: &str =
    "You are a careful assistant. Do what the user asks, with the tools you have, and answer briefly.";

/// The choice to continue a session that changed since its last turn.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum OnDifference {
    Refuse,
    Continue,
}

/// The branch on which a stored session continues.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum ResumeMode {
    /// The session's own branch, which no other process may write meanwhile.
    SameBranch,
    /// A new branch.
    Fork,
}

/// Collects the secrets in the environment: the values of variables with names such as `OPENAI_API_KEY`.
pub(crate) fn secrets() -> Secrets {
    const SUFFIXES: [&str; 6] = ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PASSWD", "_CREDENTIALS"];
    let mut secrets = Secrets::default();
    for (name, value) in std::env::vars_os() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        // Some variables name the file that holds the secret, and tools have to be able to use that path.
        let is_file = Path::new(value).is_absolute() && Path::new(value).exists();
        if SUFFIXES.iter().any(|suffix| name.to_ascii_uppercase().ends_with(suffix)) && !is_file {
            // A variable may hold several keys. A value that is rejected as too short cannot be told from a word.
            for value in value.split(',').chain([value]) {
                let _ = secrets.add(name, value);
            }
        }
    }
    secrets
}

impl AgentArgs {
    pub(crate) fn new(model: String, system: Option<String>, sandbox: Option<String>) -> Self {
        AgentArgs { model, system, sandbox, network: false, turns: DEFAULT_TURNS, json: false }
    }

    /// Builds the agent. Without `--system` it keeps the prompt of `session`.
    pub(crate) async fn agent(&self, session: Option<&Session>) -> Result<Agent, Failure> {
        let provider = self.provider().await?;
        let recorded = session.and_then(|session| view::instructions(session.as_record())).map(|(_, it)| &it.text);
        let system = match (&self.system, recorded) {
            (Some(text), _) => Text::from(text.as_str()),
            (None, Some(text)) => text.clone(),
            (None, None) => DEFAULT_SYSTEM.into(),
        };
        let agent = Agent::new(system, &provider).turns(self.turns);
        Ok(match self.sandbox(session)? {
            None => agent,
            Some(_) => agent.tools(builtin::all()),
        })
    }

    async fn provider(&self) -> Result<Provider, Failure> {
        let kind = self.model.split_once(':').map(|(kind, _)| kind);
        let is_unknown = kind.is_some_and(|kind| !["openai", "anthropic", "script"].contains(&kind));
        Provider::open(&self.model).await.map_err(|error| match is_unknown {
            true => Failure::from(error).with_hint("use openai:NAME, anthropic:NAME or script:FILE"),
            false => error.into(),
        })
    }

    /// Puts the session into the sandbox, and prints its restrictions on stderr.
    pub(crate) async fn place(&self, session: Session) -> Result<Session, Failure> {
        let Some(sandbox) = self.sandbox(Some(&session))? else { return Ok(session) };
        if self.sandbox.is_none() {
            refuse_home(&sandbox)?;
        }
        print_sandbox(&sandbox, self.sandbox.is_some()).await?;
        let is_there = session.place().is_some_and(|place| place.as_str() == sandbox.uri());
        Ok(if is_there { session } else { session.to(sandbox) })
    }

    /// Fails if a new store would be among the files that tools write.
    pub(crate) fn refuse_store(&self, uri: &str) -> Result<(), Failure> {
        let named = uri.split_once(':').filter(|(kind, path)| ["sqlite", "jsonl"].contains(kind) && !path.is_empty());
        let Some((kind, path)) = named.filter(|(_, path)| !Path::new(path).exists()) else { return Ok(()) };
        let sandbox = self.sandbox(None)?;
        let directory = sandbox.as_ref().and_then(Sandbox::directory);
        match directory.and_then(|directory| path_within_reach(Path::new(path), directory)) {
            Some(inside) => {
                let inside = output::quote(&format!("{kind}:.rath/{}", inside.display()));
                let message = format!("tools could write the store {path}, which is in their directory");
                Err(Failure::new(message, format!("`--store {inside}` is out of their reach")))
            }
            None => Ok(()),
        }
    }

    /// Opens the sandbox that tools run in; none if the agent has no tools.
    fn sandbox(&self, session: Option<&Session>) -> Result<Option<Sandbox>, Failure> {
        let recorded = session.and_then(Session::place);
        self.check_network()?;
        let uri = match (&self.sandbox, &recorded) {
            (Some(none), _) if none == "none" => return Ok(None),
            (Some(uri), _) => uri,
            // An agent that had no tools does not get any by being resumed.
            (None, None) if session.is_some_and(has_begun) => return Ok(None),
            (None, Some(place)) => place.as_str(),
            (None, None) => "isolated:.",
        };
        let separator = if uri.contains('?') { '&' } else { '?' };
        let adds_network = self.network && uri.starts_with("isolated:") && !uri.contains("network=");
        let sandbox =
            if adds_network { Sandbox::open(&format!("{uri}{separator}network=on")) } else { Sandbox::open(uri) };
        sandbox.map(Some).map_err(|error| Failure::from(error).with_exit(Exit::Usage))
    }

    /// Fails if `--network` contradicts `--sandbox`.
    fn check_network(&self) -> Result<(), Failure> {
        let message = match self.sandbox.as_deref().filter(|_| self.network) {
            Some("none") => "`--network` has no effect with `--sandbox none`",
            Some(uri) if uri.contains("network=off") => "`--network` contradicts `network=off` in `--sandbox`",
            _ => return Ok(()),
        };
        Err(Failure::new(message, "leave one of them out").with_exit(Exit::Usage))
    }

    /// Returns the options that set up the same agent, for a hint.
    pub(crate) fn options(&self) -> String {
        let option = |name: &str, value: &Option<String>| {
            value.iter().map(|value| format!(" --{name} {}", output::quote(value))).collect::<String>()
        };
        let (system, sandbox) = (option("system", &self.system), option("sandbox", &self.sandbox));
        let network = if self.network { " --network" } else { "" };
        format!("--model {}{system}{sandbox}{network}", output::quote(&self.model))
    }

    /// Opens a stored session to continue it, unless something changed since its last turn.
    ///
    /// `prompt` is repeated in hints.
    pub(crate) async fn reopen(
        &self,
        stored: &StoredSession,
        mode: ResumeMode,
        on_difference: OnDifference,
        prompt: Option<&str>,
    ) -> Result<(Agent, Session), Failure> {
        let StoredSession { store, branch, option } = stored;
        let stored = store.read(*branch).await?.session;
        if stored.is_guest() {
            return Err(guest_failure(&stored, &branch.short(), option));
        }
        let agent = self.agent(Some(&stored)).await?;
        let prompt = prompt.map(|prompt| format!(" {}", output::quote(prompt))).unwrap_or_default();
        let fork = if mode == ResumeMode::Fork { " --fork" } else { "" };
        let command = format!("rath resume {}{prompt} {}{option}{fork}", branch.short(), self.options());
        let resumed = match mode {
            ResumeMode::Fork => store.fork(*branch).await?,
            ResumeMode::SameBranch => store.resume(*branch).await.map_err(|error| match error.kind() {
                ErrorKind::Conflict => Failure::from(error)
                    .with_hint(format!("wait until it is done, or continue on a new branch: `{command} --fork`")),
                _ => error.into(),
            })?,
        };
        let resumed = resumed.against(&agent);
        let session = self.accept(resumed, on_difference, &command)?;
        Ok((agent, session.hiding(secrets())))
    }

    /// Takes the session, unless something changed since its last turn.
    ///
    /// Interrupted calls do not count: when the agent runs, those that change nothing are made again, and the others
    /// wait for a decision.
    fn accept(&self, resumed: Resumed, on_difference: OnDifference, command: &str) -> Result<Session, Failure> {
        let certificate = resumed.certificate();
        if let Some(holder) = certificate.left_open_by() {
            output::message!("the last run did not end properly: {holder}");
        }
        let changes = describe_changes(certificate);
        if is_only_in_doubt(certificate) {
            let is_complete = certificate.is_complete();
            let session = resumed.to_decide()?;
            // After an adoption the files at the new place are not compared before a tool runs there.
            let is_adopted = |chunk: &Chunk| matches!(chunk, Chunk::Adopted(_));
            let was_adopted = || session.as_record().newest_first().any(|step| is_adopted(step.chunk()));
            match is_complete {
                true if session.tree().is_some() || !was_adopted() => {
                    output::message!("nothing changed since the last turn");
                }
                true => {}
                false => output::message!("{changes}"),
            }
            return Ok(session);
        }
        if on_difference == OnDifference::Continue {
            output::message!("{changes}");
            return Ok(resumed.anyway());
        }
        let lacks_tool =
            |difference: &Difference| matches!(difference, Difference::Tool { change: ToolChange::Missing, .. });
        let hint = match self.sandbox.is_none() && certificate.differences().iter().all(lacks_tool) {
            true => format!("`{command} --sandbox isolated:.` gives the agent its tools"),
            false => format!("`{command} --anyway` continues (this is recorded)"),
        };
        Err(Failure::new(changes, hint).with_exit(Exit::Differs))
    }

    /// Runs the agent and prints its events.
    pub(crate) async fn work(&self, agent: &Agent, session: Session) -> RunOutcome {
        let start = RunStart::new(&session);
        let mut printer = EventPrinter { json: self.json, answering: false };
        let cancel = Cancel::new();
        let stop = cancel.clone();
        let watch = tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.cancel();
            }
        });
        let mut printed = Ok(());
        let mut events = agent.run(session.until(&cancel)).events();
        while let Some(event) = events.next().await {
            // The agent works on when its output cannot be written: its steps are stored before they are printed.
            if printed.is_ok() {
                printed = printer.print(&event);
            }
        }
        watch.abort();
        let result = events.finish().await;
        RunOutcome { result, start, printed, printer }
    }
}

/// Returns `true` if an agent ran in a session, or a person adopted it: then the session says where its tools run.
fn has_begun(session: &Session) -> bool {
    let is_begin = |chunk: &Chunk| matches!(chunk, Chunk::Instructions(_) | Chunk::Adopted(_));
    session.as_record().newest_first().any(|step| is_begin(step.chunk()))
}

/// Describes what changed since the last turn, one line for each change if there are several.
fn describe_changes(certificate: &Certificate) -> String {
    let changes: Vec<_> = certificate.differences().iter().map(|it| one_line(&describe_change(it))).collect();
    match &changes[..] {
        [change] => change.clone(),
        changes => {
            let lines = changes.iter().map(|change| format!("\n- {change}")).collect::<String>();
            format!("{} things changed since the last turn:{lines}", changes.len())
        }
    }
}

fn describe_change(difference: &Difference) -> String {
    match difference {
        Difference::Files { paths } => format!("{} since the last turn", describe_paths(paths)),
        Difference::InDoubt { call, tool, .. } => {
            format!("`{call}` ({tool}) was interrupted, and may or may not have finished")
        }
        other => other.to_string(),
    }
}

/// Describes changed files: `+a`, `~b` and `-c` become `a added, b changed, c deleted`.
pub(crate) fn describe_paths(paths: &[String]) -> String {
    shorten_list(&paths.iter().map(|path| describe_path(path)).collect::<Vec<_>>())
}

fn describe_path(path: &str) -> String {
    match (path.chars().next(), path.get(1..)) {
        (Some('+'), Some(path)) => format!("{path} added"),
        (Some('~'), Some(path)) => format!("{path} changed"),
        (Some('-'), Some(path)) => format!("{path} deleted"),
        _ => match path.split_once('→') {
            Some((from, to)) => format!("{from} renamed to {to}"),
            None => format!("{path} changed"),
        },
    }
}

/// The state at the start of a run, which its summary is compared with.
struct RunStart {
    head: Option<StepId>,
    tokens: u64,
    time: Instant,
}

impl RunStart {
    fn new(session: &Session) -> Self {
        RunStart { head: session.head().map(|step| step.id()), tokens: tokens(session), time: Instant::now() }
    }
}

/// The outcome of an agent's run.
pub(crate) struct RunOutcome {
    pub(crate) result: Result<Session>,
    start: RunStart,
    printed: io::Result<()>,
    printer: EventPrinter,
}

impl RunOutcome {
    /// Returns the session, which a failed run leaves behind too.
    pub(crate) fn session(&self) -> Option<&Session> {
        session_of(&self.result)
    }

    /// Prints the last event, and on success a summary on stderr.
    pub(crate) fn finish(mut self) -> Result<Result<Session>, Failure> {
        let printed = std::mem::replace(&mut self.printed, Ok(()));
        printed.and_then(|()| self.printer.finish(&self.result))?;
        if let Ok(session) = &self.result {
            output::message!("{}", summary(&self.start, session));
        }
        // After a failed run too: what it wrote is there.
        let changed = self.session().map(|session| changed_files(&self.start, session)).unwrap_or_default();
        let guarded: Vec<String> =
            changed.into_iter().filter(|path| is_guarded(path)).map(|path| one_line(&path)).collect();
        if !guarded.is_empty() {
            output::warning(&format!("other programs run these changed files: {}", shorten_list(&guarded)));
        }
        Ok(self.result)
    }

    /// Prints how the run on a stored session ended, and the name under which it is stored.
    pub(crate) fn finish_stored(self, args: &AgentArgs, option: &str) -> Result<Exit, Failure> {
        let session = self.session().cloned();
        let branch = session.as_ref().map(|session| session.id().short()).unwrap_or_default();
        let result = self.finish()?;
        let is_unwritten = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Store);
        let how_far = if is_unwritten { ", up to the step that could not be written" } else { "" };
        if option != store_option("memory:") {
            output::message!("saved as {branch}{how_far}; `rath log {branch}{option}` shows the steps");
        }
        let error = match result {
            Ok(_) => return Ok(Exit::Success),
            Err(error) => error,
        };
        let kind = error.kind();
        let failure = Failure::from(error);
        let resume = format!("`rath resume {branch} {}{option}`", args.options());
        Err(match kind {
            ErrorKind::Approval => {
                let hint = format!("`rath review {branch}{option}` shows what is waiting for you");
                failure.with_hint(hint).with_exit(Exit::Waiting)
            }
            ErrorKind::Cancelled | ErrorKind::Limit => failure.with_hint(format!("{resume} continues from there")),
            ErrorKind::Store if !failure.has_hint() => {
                failure.with_hint(format!("when the store can be written again, {resume} continues from there"))
            }
            _ => failure,
        })
    }
}

fn session_of(result: &Result<Session>) -> Option<&Session> {
    result.as_ref().ok().or_else(|| result.as_ref().err().and_then(rath::Error::session))
}

/// Returns the files that a run changed.
fn changed_files(start: &RunStart, session: &Session) -> BTreeSet<String> {
    let steps = session.as_record().newest_first().take_while(|step| Some(step.id()) != start.head);
    let results = steps.filter_map(|step| match step.chunk() {
        Chunk::ToolResult(result) => Some(&result.effects),
        _ => None,
    });
    results.flatten().map(|effect| effect.path.to_string()).collect()
}

/// Joins the first words of a list, and counts the others.
fn shorten_list(words: &[String]) -> String {
    const SHOWN_WORDS: usize = 10;
    let mut shown: Vec<_> = words.iter().take(SHOWN_WORDS).cloned().collect();
    if words.len() > SHOWN_WORDS {
        shown.push(format!("and {} more", words.len() - SHOWN_WORDS));
    }
    shown.join(", ")
}

/// Summarises a run: its time, the files that it changed and the tokens that it used.
fn summary(start: &RunStart, session: &Session) -> String {
    let files = changed_files(start, session);
    let tokens = output::grouped(tokens(session).saturating_sub(start.tokens));
    let elapsed = start.time.elapsed();
    let time = match elapsed.as_secs() {
        0..60 => format!("{:.1} s", elapsed.as_secs_f64()),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    };
    let files = match files.len() as u64 {
        0 => String::new(),
        number => format!("{} changed, ", count(number, "file")),
    };
    format!("done in {time}: {files}{tokens} tokens")
}

fn tokens(session: &Session) -> u64 {
    let Usage { input, output, .. } = session.usage();
    input.saturating_add(output)
}

/// Returns `true` if the only differences are calls that were interrupted.
fn is_only_in_doubt(certificate: &Certificate) -> bool {
    certificate.differences().iter().all(|difference| matches!(difference, Difference::InDoubt { .. }))
}

/// Appends the user's prompt to the session; `-` reads it from stdin.
///
/// Fails if there is no prompt and the session is done. `example` is then the hint: a command with a prompt.
pub(crate) fn push_prompt(session: &mut Session, prompt: Option<&str>, example: &str) -> Result<(), Failure> {
    match prompt {
        Some("-") => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map_err(|error| {
                Failure::new(format!("cannot read the prompt from stdin: {error}"), "a prompt is text in UTF-8")
            })?;
            session.push(Chunk::user(text.trim_end()));
        }
        Some(text) => _ = session.push(Chunk::user(text)),
        None if session.next() == Next::Done => {
            let message = "nothing to do: there is no prompt, and no unfinished turn to continue";
            return Err(Failure::new(message, example));
        }
        None => {}
    }
    Ok(())
}

/// Prints the events of a run as they happen.
struct EventPrinter {
    json: bool,
    /// Set while the last line printed is an answer that is not yet ended.
    answering: bool,
}

const FAINT: Style = Style::new().dimmed();

impl EventPrinter {
    fn print(&mut self, event: &Event) -> io::Result<()> {
        if self.json {
            return output::data(|out| write_json_event(out, event));
        }
        match &event.kind {
            EventKind::Text(text) => {
                self.answering = true;
                output::data(|out| out.write_all(text.as_bytes()))
            }
            EventKind::Turn { .. } => self.end_line(),
            EventKind::ToolStarted(call) => {
                let argument = output::main_argument(call.arguments.as_str().unwrap_or_default());
                self.note(&format!("{BRANCH}{}{BRANCH:#} {argument}", preview(&call.tool)))
            }
            EventKind::ToolFinished { call, outcome } if *outcome != Outcome::Ok => {
                self.note(&format!("{BRANCH}{}{BRANCH:#} {}", preview(&call.tool), draw::outcome_text(*outcome)))
            }
            EventKind::Retry { attempt, of, error, .. } => {
                self.note(&format!("attempt {attempt} of {of} failed: {}", preview(error)))
            }
            _ => Ok(()),
        }
    }

    /// Prints a line on stderr, after the answer's line is ended.
    fn note(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        output::message!("{FAINT}·{FAINT:#} {text}");
        Ok(())
    }

    fn end_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.answering) {
            output::data(|out| out.write_all(b"\n"))?;
        }
        Ok(())
    }

    fn finish(&mut self, result: &rath::Result<Session>) -> io::Result<()> {
        self.end_line()?;
        if !self.json {
            return Ok(());
        }
        let id = session_of(result).filter(|session| session.store().is_some()).map(Session::id);
        let last = match result {
            Ok(session) => {
                let head = session.head().map(|step| step.id());
                json!({"event": "done", "session": id, "head": head, "text": session.text(), "usage": session.usage()})
            }
            Err(error) => {
                json!({"event": "error", "session": id, "message": error.message(), "hint": error.hint()})
            }
        };
        output::data(|out| output::json_line(out, &last))
    }
}

/// An appended step as an event in JSON.
#[derive(serde::Serialize)]
struct StepEventJson<'a> {
    event: &'static str,
    step: StepJson<'a>,
}

fn write_json_event(out: &mut dyn Write, event: &Event) -> io::Result<()> {
    let by = event.session.module();
    let json = match &event.kind {
        EventKind::Turn { turn } => json!({"event": "turn", "by": by, "turn": turn}),
        EventKind::Text(text) => json!({"event": "text", "by": by, "text": text}),
        EventKind::Reasoning(text) => json!({"event": "reasoning", "by": by, "text": text}),
        EventKind::Retry { attempt, of, error, wait } => {
            json!({"event": "retry", "by": by, "attempt": attempt, "of": of, "error": error, "wait_ms": wait.as_millis() as u64})
        }
        EventKind::ToolStarted(call) => json!({"event": "tool_started", "by": by, "call": call}),
        EventKind::ToolOutput { call, text } => json!({"event": "tool_output", "by": by, "call": call, "text": text}),
        EventKind::ToolFinished { call, outcome } => {
            json!({"event": "tool_finished", "by": by, "call": call.id, "outcome": outcome})
        }
        EventKind::Step(step) => {
            return output::json_line(out, &StepEventJson { event: "step", step: StepJson::new(step, None) });
        }
        EventKind::Budget { tokens, turns, .. } => {
            json!({"event": "budget", "by": by, "tokens": tokens, "turns": turns})
        }
        _ => return Ok(()),
    };
    output::json_line(out, &json)
}
