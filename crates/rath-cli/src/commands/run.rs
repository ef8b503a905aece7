//! `rath run`: run an agent on a prompt.

use std::path::{Path, PathBuf};

use rath::CallId;
use rath::prelude::*;
use rath::record::draw::one_line;
use rath::store::Create;
use rath::turn::Next;
use rath::turn::Progress;

use crate::agent::{self, AgentArgs, OnDifference, ResumeMode};
use crate::asking::user_name;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::prompts::{CheckArg, ImageArgs};
use crate::sandboxes;
use crate::sessions::{self, DEFAULT_STORE, StoredSession};

/// Run an agent on a prompt
///
/// The answer is printed on stdout, in a terminal as it arrives, and tool calls on stderr. Every step is stored as it
/// happens, so nothing is lost if the run fails. Ctrl-C stops the agent, and `rath resume` continues.
///
/// Secrets are hidden wherever they appear: texts that look like a key, and the values of environment variables whose
/// names end in _KEY, _TOKEN, _SECRET, _PASSWORD, _PASSWD or _CREDENTIALS.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// The prompt; `-` reads it from stdin. Default: finish the interrupted turn of a stored session
    prompt: Option<String>,
    #[command(flatten)]
    agent: AgentArgs,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    check: CheckArg,
    /// The store of the session: sqlite:PATH, jsonl:DIRECTORY, memory: or file:PATH
    ///
    /// A `file:` holds one session; if it exists, the run continues that session.
    #[arg(long, value_name = "STORE", default_value = DEFAULT_STORE)]
    store: Destination,
    /// Continue this session of the store
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Continue the newest session of the store
    #[arg(short = 'c', long = "continue", conflicts_with = "session")]
    goes_on: bool,
    /// Let a call run that is waiting for your decision; may be repeated
    #[arg(long, value_name = "CALL")]
    approve: Vec<String>,
    /// Refuse such a call; may be repeated
    #[arg(long, value_name = "CALL")]
    deny: Vec<String>,
}

/// The place where a session is stored.
#[derive(Clone)]
enum Destination {
    /// A file for this session alone, written before and after the run.
    File(PathBuf),
    /// A store, written step by step.
    Store(String),
}

impl std::str::FromStr for Destination {
    type Err = String;

    fn from_str(uri: &str) -> Result<Self, String> {
        match uri.split_once(':') {
            Some(("file", "")) | None => {
                Err(format!("wanted a store such as `{DEFAULT_STORE}` or `file:session.rath`"))
            }
            Some(("file", path)) => Ok(Destination::File(path.into())),
            Some(_) => sessions::parse_store(uri).map(Destination::Store),
        }
    }
}

pub(crate) async fn run(args: &RunArgs) -> CommandResult {
    // Before the sandbox is set up: it hides the key.
    let is_kept = !matches!(&args.store, Destination::Store(uri) if uri == "memory:");
    if let Some(problem) = is_kept.then(sessions::key_problem).flatten() {
        output::warning(&problem.message);
    }
    let newest = args.goes_on.then(|| sessions::NEWEST.to_owned());
    match (&args.store, newest.as_ref().or(args.session.as_ref())) {
        (Destination::File(path), None) => run_in_file(args, path).await,
        (Destination::File(_), Some(_)) => {
            let message =
                "`--session` and `--continue` name a session in a store, and a `file:` holds only one session";
            Err(Failure::new(message, "leave them out, or name a store").with_exit(Exit::Usage))
        }
        (Destination::Store(uri), session) => run_in_store(args, uri, session.map(String::as_str)).await,
    }
}

async fn run_in_store(args: &RunArgs, uri: &str, name: Option<&str>) -> CommandResult {
    let option = sessions::store_option(uri);
    let (agent, session, store) = match name {
        None => {
            args.agent.refuse_store(uri)?;
            let agent = args.agent.agent(None).await?;
            let mut session = Session::empty().hiding(agent::secrets());
            args.agent.begin(&mut session)?;
            args.decide(&mut session)?;
            args.push_prompt(&mut session, &option)?;
            args.agent.require_directory()?;
            (agent, session, sessions::open(uri, Create::IfMissing).await?)
        }
        Some(name) => {
            let store = sessions::open(uri, Create::Never).await?;
            let branch = sessions::find_branch(&store, name, &option).await?;
            let stored = StoredSession { branch, store, option: option.clone() };
            let (mode, prompt) = (ResumeMode::SameBranch, args.prompt.as_deref());
            let (agent, mut session) = args.agent.reopen(&stored, mode, OnDifference::Refuse, prompt).await?;
            args.decide(&mut session)?;
            args.push_prompt(&mut session, &format!("{option} --session {}", branch.short()))?;
            (agent, session, stored.store)
        }
    };
    // The session is stored before the agent or a server starts: if that fails, nothing is run.
    let placed = args.agent.place(session).await?.record(&store).await?;
    let agent = match name {
        None => args.agent.with_servers(agent, placed.session(), ResumeMode::SameBranch, None).await?,
        Some(_) => agent,
    };
    let outcome = args.agent.work(&agent, placed).await;
    let mut session = outcome.session().cloned();
    let exit = outcome.finish_stored(&args.agent, &option)?;
    Ok(exit.max(args.check.run(session.as_mut()).await?))
}

async fn run_in_file(args: &RunArgs, path: &Path) -> CommandResult {
    let option = format!(" --store {}", output::quote(&format!("file:{}", path.display())));
    let mut session = match path.exists() {
        false => Session::empty(),
        true => open(path).await?,
    }
    .hiding(agent::secrets())
    .keep_out(path);
    let agent = args.agent.agent(Some(&session)).await?;
    if session.head().is_none() {
        args.agent.begin(&mut session)?;
    }
    args.decide(&mut session)?;
    args.push_prompt(&mut session, &option)?;
    let placed = args.agent.place(session).await?;
    placed.session().check_directory().await?;
    // The session is saved before the agent or a server starts: if that fails, nothing is run.
    placed.session().save(path).await?;
    let agent = args.agent.with_servers(agent, placed.session(), ResumeMode::SameBranch, Some(path)).await?;
    let outcome = args.agent.work(&agent, placed).await;
    let waiting = outcome.session().and_then(waiting_call);
    if let Some(session) = outcome.session() {
        session.save(path).await?;
    }
    match outcome.finish()? {
        Ok(mut session) => {
            let path = path.display().to_string();
            output::message!("saved in {path}; `rath log {}` shows the steps", output::quote(&path));
            let exit = args.check.run(Some(&mut session)).await?;
            if args.check.is_given() {
                session.save(&path).await?;
            }
            Ok(exit)
        }
        Err(error) => {
            let options = args.agent.options_for(error.session());
            Err(explain(error, &format!("rath run{options}{option}"), waiting))
        }
    }
}

async fn open(path: &Path) -> Result<Session, Failure> {
    let loaded = sessions::read_file(path).await?;
    match loaded.warn() {
        // Saving the file again would lose what cannot be read.
        Exit::Differs => Err(loaded.damaged()),
        _ => loaded.require_own().map(|()| loaded.session.sandboxes(sandboxes::kinds())),
    }
}

impl RunArgs {
    fn decide(&self, session: &mut Session) -> Result<(), Failure> {
        if let Some(call) = self.approve.iter().find(|call| self.deny.contains(call)) {
            let message = format!("the call `{}` is approved and denied", one_line(call));
            return Err(Failure::new(message, "nothing was decided; give one of them").with_exit(Exit::Usage));
        }
        *session = session.clone().decided_by(user_name());
        for call in &self.approve {
            session.approve(call.as_str())?;
        }
        for call in &self.deny {
            session.deny(call.as_str(), "the user refused it")?;
        }
        Ok(())
    }

    fn push_prompt(&self, session: &mut Session, option: &str) -> Result<(), Failure> {
        let options = self.agent.options_for(Some(session));
        let example = format!("`rath run 'What is in this directory?'{options}{option}` has one");
        agent::push_prompt(session, self.prompt.as_deref(), &self.images, &example)
    }
}

/// Returns the call that a stopped run waits for: the first interrupted one, or else the first that was not started.
fn waiting_call(session: &Session) -> Option<CallId> {
    let Next::RunTools(calls) = session.next() else { return None };
    let first = |fits: fn(&Progress) -> bool| calls.iter().find(|pending| fits(&pending.progress));
    first(Progress::is_in_doubt)
        .or_else(|| first(|progress| *progress == Progress::Held))
        .or_else(|| first(|progress| *progress == Progress::New))
        .map(|pending| pending.call.id.clone())
}

/// Turns the error of a run into a failure. `command` runs the agent on the file again.
fn explain(error: rath::Error, command: &str, waiting: Option<CallId>) -> Failure {
    let kind = error.kind();
    let failure = Failure::from(error);
    match kind {
        ErrorKind::Approval => {
            let call = waiting.map_or_else(|| "CALL".to_owned(), |call| output::quote(&call.to_string()));
            let hint = format!("`{command} --approve {call}` runs it again; --deny {call} refuses it");
            failure.with_hint(hint).with_exit(Exit::Waiting)
        }
        ErrorKind::Cancelled | ErrorKind::Limit => failure.with_hint(format!("`{command}` continues from there")),
        _ => failure,
    }
}
