//! An agent at work: how it is set up, how its work is shown, and how a stored session goes on.

use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;

use anstyle::Style;
use rath::prelude::*;
use rath::record::draw::{self, preview, printable};
use rath::tool::builtin;
use rath::{Certificate, Difference, Resumed};
use serde_json::json;

use crate::commands::show::StepJson;
use crate::output::{self, BRANCH, Exit, Failure};
use crate::sessions::Stored;

/// How an agent is set up.
#[derive(clap::Args)]
pub(crate) struct Setup {
    /// The model
    #[arg(long, value_name = "openai:NAME | anthropic:NAME | script:FILE")]
    model: String,
    /// What the agent is told. Left out, it is told to be careful and brief, and in a stored session what it was told there
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Where tools run: `isolated:` shows commands the machine read-only and no network, and lets them write in the directory
    /// alone; in `local:` they can do what you can; with `none` the agent has no tools. Left out, it is where a stored
    /// session's tools ran, and otherwise `isolated:.`
    #[arg(long, value_name = "isolated:DIRECTORY | local:DIRECTORY | none")]
    sandbox: Option<String>,
    /// Let commands reach the network from where they are isolated
    #[arg(long)]
    network: bool,
    /// How often the model may be asked
    #[arg(long, value_name = "N", default_value_t = TURNS)]
    turns: u64,
    /// Print one JSON object for each thing that happens
    #[arg(long)]
    json: bool,
}

/// How often a model may be asked if nobody says otherwise.
const TURNS: u64 = 100;
const NOT_ISOLATED: &str = "`--sandbox local:.` lets tools run without isolation: they can do whatever you can";
const SYSTEM: &str = "You are a careful assistant. Do what the user asks, with the tools you have, and answer briefly.";

/// Whether a session goes on that is not as it was left.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum IfDifferent {
    Refuse,
    GoOn,
}

/// How a stored session goes on.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum GoOn {
    /// On its own branch, which nobody else may write meanwhile.
    Itself,
    /// On a branch of its own.
    AsFork,
}

/// What the environment says is secret, by the names that are given to such things.
pub(crate) fn secrets() -> Secrets {
    const NAMES: [&str; 6] = ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PASSWD", "_CREDENTIALS"];
    let mut secrets = Secrets::default();
    for (name, value) in std::env::vars_os() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        // Some name the file that holds the secret, and a path has to stay one that tools can use.
        let is_file = Path::new(value).is_absolute() && Path::new(value).exists();
        if NAMES.iter().any(|end| name.to_ascii_uppercase().ends_with(end)) && !is_file {
            // A variable may hold several keys. What is too short to be taken is no secret that could be told from a word.
            for value in value.split(',').chain([value]) {
                let _ = secrets.known(name, value);
            }
        }
    }
    secrets
}

impl Setup {
    pub(crate) fn new(model: String, system: Option<String>, sandbox: Option<String>) -> Self {
        Setup { model, system, sandbox, network: false, turns: TURNS, json: false }
    }

    /// The agent. What it was told in `before` it is told again, unless it is to be told something else.
    pub(crate) fn agent(&self, before: Option<&Session>) -> Result<Agent, Failure> {
        let provider = Provider::open(&self.model)?;
        let known = before.and_then(|session| view::instructions(session.as_record())).map(|(_, told)| &told.text);
        let told = match (&self.system, known) {
            (Some(text), _) => Text::from(text.as_str()),
            (None, Some(text)) => text.clone(),
            (None, None) => SYSTEM.into(),
        };
        let agent = Agent::new(told, &provider).turns(self.turns);
        Ok(match self.sandbox(before)? {
            None => agent,
            Some(_) => agent.tools(builtin::all()),
        })
    }

    /// The session where tools are to run. What is in force there is said on stderr.
    pub(crate) async fn placed(&self, session: Session) -> Result<Session, Failure> {
        let Some(sandbox) = self.sandbox(Some(&session))? else { return Ok(session) };
        let can = sandbox.capabilities().await.map_err(|error| {
            let failure = Failure::from(error);
            if self.sandbox.is_some() { failure } else { failure.also(NOT_ISOLATED) }
        })?;
        anstream::eprintln!("tools run in {}: {can}", preview(sandbox.uri()));
        let is_there = session.place().is_some_and(|place| place.as_str() == sandbox.uri());
        Ok(if is_there { session } else { session.to(sandbox) })
    }

    /// Where tools are to run.
    fn sandbox(&self, session: Option<&Session>) -> Result<Option<Sandbox>, Failure> {
        let known = session.and_then(Session::place);
        self.refuse_network()?;
        let uri = match (&self.sandbox, &known) {
            (Some(none), _) if none == "none" => return Ok(None),
            (Some(uri), _) => uri,
            // An agent that had no tools does not get any by being resumed.
            (None, None) if session.is_some_and(|session| session.text().is_some()) => return Ok(None),
            (None, Some(place)) => place.as_str(),
            (None, None) => "isolated:.",
        };
        let more = if uri.contains('?') { '&' } else { '?' };
        let asks = self.network && uri.starts_with("isolated:") && !uri.contains("network=");
        let sandbox = if asks { Sandbox::open(&format!("{uri}{more}network=on")) } else { Sandbox::open(uri) };
        sandbox.map(Some).map_err(|error| Failure::from(error).exit(Exit::Misused))
    }

    /// An error if commands are to reach the network from where they cannot.
    fn refuse_network(&self) -> Result<(), Failure> {
        let what = match self.sandbox.as_deref().filter(|_| self.network) {
            Some("none") => "there are no commands to reach the network with `--sandbox none`",
            Some(uri) if uri.contains("network=off") => "`--network` and `network=off` contradict each other",
            _ => return Ok(()),
        };
        Err(Failure::told(what, "leave one of them out").exit(Exit::Misused))
    }

    /// The options that set up the same agent again.
    pub(crate) fn again(&self) -> String {
        let sandbox = self.sandbox.iter().map(|place| format!(" --sandbox {place}")).collect::<String>();
        let network = if self.network { " --network" } else { "" };
        format!("--model {}{sandbox}{network}", self.model)
    }

    /// A stored session, opened to go on with it if it is as it was left.
    pub(crate) async fn reopen(
        &self,
        stored: &Stored,
        how: GoOn,
        different: IfDifferent,
    ) -> Result<(Agent, Session), Failure> {
        let Stored { store, branch, .. } = stored;
        let agent = self.agent(Some(&store.read(*branch)?.session))?;
        let resumed = match how {
            GoOn::AsFork => store.fork(*branch)?,
            GoOn::Itself => store.resume(*branch).await.map_err(|error| match error.kind() {
                ErrorKind::Conflict => {
                    let fork = format!("`rath resume {} {}{} --fork`", branch.short(), self.again(), stored.option);
                    Failure::from(error).hint(format!("wait until it is done, or go on by yourself: {fork}"))
                }
                _ => error.into(),
            })?,
        };
        let resumed = resumed.against(&agent);
        anstream::eprintln!("{}", printable(&resumed.certificate().to_string()));
        let session = self.taken(resumed, stored, different)?;
        Ok((agent, session.hiding(secrets())))
    }

    /// The session, if nothing is in the way of going on. What is in doubt is found out when it runs: calls that change
    /// nothing are made again, and the others wait.
    fn taken(&self, resumed: Resumed, stored: &Stored, different: IfDifferent) -> Result<Session, Failure> {
        if is_only_in_doubt(resumed.certificate()) {
            return Ok(resumed.to_decide()?);
        }
        if different == IfDifferent::GoOn {
            return Ok(resumed.anyway());
        }
        let lacks_tools = |difference: &Difference| matches!(difference, Difference::Tool { what: "is not there", .. });
        let hint = match resumed.certificate().differences() {
            [..] if self.sandbox.is_none() && resumed.certificate().differences().iter().all(lacks_tools) => {
                "`--sandbox isolated:DIRECTORY` gives the agent its tools".to_owned()
            }
            _ => {
                let again = format!("rath resume {} {}{}", stored.branch.short(), self.again(), stored.option);
                format!("`{again} --anyway` goes on all the same, and puts on the record that you chose to")
            }
        };
        let what = format!("the session {} is not as it was left", stored.branch.short());
        Err(Failure::told(what, hint).exit(Exit::Differs))
    }

    /// Lets the agent work. What came of it, and whether it could be shown.
    pub(crate) async fn work(&self, agent: &Agent, session: Session) -> Worked {
        let mut printer = Printer { json: self.json, answering: false, terminal: io::stdout().is_terminal() };
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
            // Work that nobody can read is still work: it is kept before anybody hears of it.
            if printed.is_ok() {
                printed = printer.print(&event);
            }
        }
        watch.abort();
        let result = events.finish().await;
        Worked { result, printed, printer }
    }
}

/// What came of an agent's work.
pub(crate) struct Worked {
    pub(crate) result: Result<Session>,
    printed: io::Result<()>,
    printer: Printer,
}

impl Worked {
    /// The session as far as it came.
    pub(crate) fn session(&self) -> Option<&Session> {
        left(&self.result)
    }

    /// Prints how it ended.
    pub(crate) fn end(mut self) -> Result<Result<Session>, Failure> {
        self.printed.and_then(|()| self.printer.end(&self.result))?;
        Ok(self.result)
    }

    /// Prints how the work on a stored session ended, and where it is kept.
    pub(crate) fn end_stored(self, setup: &Setup, option: &str) -> Result<Exit, Failure> {
        let branch = self.session().map(|session| session.id().short()).unwrap_or_default();
        let result = self.end()?;
        if let Ok(session) = &result {
            anstream::eprintln!("{session}");
        }
        let is_unwritten = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Store);
        let how_far = if is_unwritten { ", up to where it could not be written" } else { "" };
        anstream::eprintln!("kept as {branch}{how_far}; `rath log {branch}{option}` shows what happened");
        let error = match result {
            Ok(_) => return Ok(Exit::Fine),
            Err(error) => error,
        };
        let kind = error.kind();
        let failure = Failure::from(error);
        Err(match kind {
            ErrorKind::Approval => {
                let hint = format!("`rath review {branch}{option}` shows what waits, and decides");
                failure.hint(hint).exit(Exit::Waiting)
            }
            ErrorKind::Cancelled | ErrorKind::Limit => {
                failure.hint(format!("`rath resume {branch} {}{option}` goes on from there", setup.again()))
            }
            ErrorKind::Store if !failure.is_hinted() => {
                let again = format!("`rath resume {branch} {}{option}`", setup.again());
                failure.hint(format!("when it can be written again, {again} goes on from what is kept"))
            }
            _ => failure,
        })
    }
}

fn left(result: &Result<Session>) -> Option<&Session> {
    result.as_ref().ok().or_else(|| result.as_ref().err().and_then(rath::Error::session))
}

/// Whether all that is different are calls that nobody knows the end of.
fn is_only_in_doubt(certificate: &Certificate) -> bool {
    certificate.differences().iter().all(|difference| matches!(difference, Difference::InDoubt { .. }))
}

/// What the user says now; `-` reads it from stdin.
pub(crate) fn say(session: &mut Session, prompt: Option<&str>) -> Result<(), Failure> {
    match prompt {
        Some("-") => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map_err(|error| {
                Failure::told(format!("cannot read the prompt from stdin: {error}"), "a prompt is text in UTF-8")
            })?;
            session.push(Chunk::user(text.trim_end()));
        }
        Some(text) => _ = session.push(Chunk::user(text)),
        None if session.next() == Next::Done => {
            let what = "there is nothing to do: no prompt, and no stored session that stopped on its way";
            return Err(Failure::told(what, "`rath run \"What is in this directory?\" --model ..`"));
        }
        None => {}
    }
    Ok(())
}

/// Waits for something.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// How the work is shown while it is done.
struct Printer {
    json: bool,
    /// Whether the last thing printed is the beginning of an answer.
    answering: bool,
    terminal: bool,
}

const FAINT: Style = Style::new().dimmed();

impl Printer {
    fn print(&mut self, event: &Event) -> io::Result<()> {
        if self.json {
            return output::data(|out| json_event(out, event));
        }
        match &event.kind {
            EventKind::Text(text) => {
                self.answering = true;
                // What a model wrote must not drive a terminal; elsewhere it arrives as it was written.
                let text = if self.terminal { printable(text) } else { text.clone() };
                output::data(|out| out.write_all(text.as_bytes()))
            }
            EventKind::Turn { .. } => self.end_line(),
            EventKind::ToolStarted(call) => {
                let arguments = call.arguments.as_str().map(preview).unwrap_or_default();
                self.note(&format!("{BRANCH}{}{BRANCH:#} {arguments}", preview(&call.tool)))
            }
            EventKind::ToolFinished { call, outcome } if *outcome != Outcome::Ok => {
                self.note(&format!("{BRANCH}{}{BRANCH:#} {}", preview(&call.tool), draw::outcome(*outcome)))
            }
            EventKind::Retry { attempt, of, error, .. } => {
                self.note(&format!("attempt {attempt} of {of} failed: {}", preview(error)))
            }
            _ => Ok(()),
        }
    }

    /// Something beside the answer, on a line of its own.
    fn note(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        anstream::eprintln!("{FAINT}·{FAINT:#} {text}");
        Ok(())
    }

    fn end_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.answering) {
            output::data(|out| out.write_all(b"\n"))?;
        }
        Ok(())
    }

    fn end(&mut self, result: &rath::Result<Session>) -> io::Result<()> {
        self.end_line()?;
        if !self.json {
            return Ok(());
        }
        let id = left(result).filter(|session| session.store().is_some()).map(Session::id);
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

fn json_event(out: &mut dyn Write, event: &Event) -> io::Result<()> {
    let by = event.session.module();
    let told = match &event.kind {
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
            #[derive(serde::Serialize)]
            struct Appended<'a> {
                event: &'static str,
                step: StepJson<'a>,
            }
            return output::json_line(out, &Appended { event: "step", step: StepJson::of(step, None) });
        }
        EventKind::Budget { tokens, turns, .. } => {
            json!({"event": "budget", "by": by, "tokens": tokens, "turns": turns})
        }
        _ => return Ok(()),
    };
    output::json_line(out, &told)
}
