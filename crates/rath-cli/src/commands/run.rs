//! `rath run`: an agent at work.

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anstyle::Style;
use rath::prelude::*;
use rath::record::draw::{self, preview, printable};
use rath::tool::builtin::{ListFiles, ReadFile, Shell, WriteFile};
use serde_json::json;

use super::show::StepJson;
use crate::output::{self, BRANCH, Done, Failure, Status};

/// Let an agent work on a prompt
///
/// Its answer goes to stdout as it comes, and what it does on the way to stderr. Ctrl-C stops it; with --store, what was
/// done is kept and a later run goes on from it. What has the shape of a key is hidden wherever it turns up, and so are
/// the values of variables whose names end in _KEY, _TOKEN, _SECRET, _PASSWORD, _PASSWD or _CREDENTIALS.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to do; `-` reads it from stdin. Left out, a stored session goes on where it stopped
    prompt: Option<String>,
    /// The model
    #[arg(long, value_name = "openai:NAME | anthropic:NAME | script:FILE")]
    model: String,
    /// What the agent is told
    #[arg(long, value_name = "TEXT", default_value = SYSTEM)]
    system: String,
    /// Where tools run: a directory in which the agent may read and write files and run commands, as you. Without it the
    /// agent has no tools
    #[arg(long, value_name = "local:DIRECTORY")]
    sandbox: Option<String>,
    /// Where the session is kept, whatever happens. If one is there, the run goes on from it
    #[arg(long, value_name = "file:PATH")]
    store: Option<Store>,
    /// How often the model may be asked
    #[arg(long, value_name = "N", default_value_t = 100)]
    turns: u64,
    /// Let a call go ahead that waits for a decision; may be given several times
    #[arg(long, value_name = "CALL")]
    approve: Vec<String>,
    /// Refuse such a call; may be given several times
    #[arg(long, value_name = "CALL")]
    deny: Vec<String>,
    /// Print one JSON object for each thing that happens
    #[arg(long)]
    json: bool,
}

const SYSTEM: &str = "You are a careful assistant. Do what the user asks, with the tools you have, and answer briefly.";

/// Where a session is kept.
#[derive(Clone)]
struct Store(PathBuf);

impl std::str::FromStr for Store {
    type Err = String;

    fn from_str(uri: &str) -> Result<Self, String> {
        match uri.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Store(path.into())),
            Some((scheme, _)) if scheme != "file" => Err(format!("unknown kind of store `{scheme}`; known: file")),
            _ => Err("wanted a store such as `file:session.rath`".to_owned()),
        }
    }
}

pub(crate) fn run(args: &Args) -> Done {
    let provider = Provider::open(&args.model)?;
    let mut agent = Agent::new(args.system.as_str(), &provider).turns(args.turns);
    let mut session = begin(args, secrets().and(&provider.secrets()))?;
    if let Some(place) = &args.sandbox {
        let place: Place = place.parse().map_err(rath::Error::from)?;
        place.check()?;
        agent = agent.tool(ReadFile).tool(WriteFile).tool(ListFiles).tool(Shell);
        if session.place().as_ref() != Some(&place) {
            session = session.to(place);
        }
    }
    // What cannot be kept is not begun.
    if let Some(Store(path)) = &args.store {
        session.save(path)?;
    }
    let mut printer = Printer { json: args.json, answering: false, terminal: io::stdout().is_terminal() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut printed = Ok(());
    let result = runtime.block_on(async {
        let cancel = Cancel::new();
        let stop = cancel.clone();
        let watch = tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.cancel();
            }
        });
        let mut events = agent.run(session.until(&cancel)).events();
        while let Some(event) = events.next().await {
            // Work that nobody can read is still work: it is kept before anybody hears of it.
            if printed.is_ok() {
                printed = printer.print(&event);
            }
        }
        watch.abort();
        events.finish().await
    });
    let left = result.as_ref().ok().or_else(|| result.as_ref().err().and_then(rath::Error::session));
    if let (Some(session), Some(Store(path))) = (left, &args.store) {
        session.save(path)?;
    }
    printed.and_then(|()| printer.end(&result))?;
    match result {
        Ok(session) => {
            anstream::eprintln!("{session}");
            if let Some(Store(path)) = &args.store {
                anstream::eprintln!("`rath log {}` shows what happened", path.display());
            }
            Ok(Status::Fine)
        }
        Err(error) => Err(told(error, args)),
    }
}

/// What the environment says is secret, by the names that are given to such things.
fn secrets() -> Secrets {
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

/// The session to go on from, with what the user says now.
fn begin(args: &Args, secrets: Secrets) -> Result<Session, Failure> {
    let stored = match &args.store {
        Some(Store(path)) if path.exists() => Some((Session::open(path)?, path)),
        _ => None,
    };
    let mut session = match stored {
        None => Session::empty(),
        Some((opened, path)) => {
            if output::warn(path, &opened.report) == Status::Damaged {
                let what = format!("{} is damaged, and saving it again would lose what cannot be read", path.display());
                return Err(Failure::Told(what, "go on in another store, or mend the file".to_owned()));
            }
            opened.session
        }
    }
    .hiding(secrets);
    for call in &args.approve {
        session.approve(call.as_str())?;
    }
    for call in &args.deny {
        session.deny(call.as_str(), "the user refused it")?;
    }
    match args.prompt.as_deref() {
        Some("-") => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text)?;
            session.push(Chunk::user(text.trim_end()));
        }
        Some(text) => _ = session.push(Chunk::user(text)),
        None if session.next() == Next::Done => {
            let what = "there is nothing to do: no prompt, and no stored session that stopped on its way".to_owned();
            return Err(Failure::Told(what, "`rath run \"What is in this directory?\" --model ..`".to_owned()));
        }
        None => {}
    }
    Ok(session)
}

/// An error in the words of the command line.
fn told(error: rath::Error, args: &Args) -> Failure {
    let Some(Store(path)) = &args.store else { return error.into() };
    let again = format!("rath run --model {} --store file:{}", args.model, path.display());
    let sandbox = args.sandbox.iter().map(|place| format!(" --sandbox {place}")).collect::<String>();
    match error.kind() {
        ErrorKind::Approval => {
            let hint = format!("`{again}{sandbox} --approve CALL` or `--deny CALL` decides, and goes on");
            Failure::Told(error.message().to_owned(), hint)
        }
        ErrorKind::Cancelled | ErrorKind::Limit => {
            Failure::Told(error.message().to_owned(), format!("`{again}{sandbox}` goes on from there"))
        }
        _ => error.into(),
    }
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
        let last = match result {
            Ok(session) => {
                json!({"event": "done", "head": session.head().map(|step| step.id()), "text": session.text(), "usage": session.usage()})
            }
            Err(error) => json!({"event": "error", "message": error.message(), "hint": error.hint()}),
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
