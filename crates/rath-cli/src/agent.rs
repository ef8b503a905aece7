//! Running an agent: its options, its output, and resuming a stored session.

mod differences;
mod outcome;
mod settings;

use std::io::{self, Read};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rath::chunk::User;
use rath::flow::without_answer_schema;
use rath::prelude::*;
use rath::record::draw::count;
use rath::store::path_within_reach;
use rath::tool::builtin;
use rath::turn::Next;
use rath::{Difference, Resumed, Text, view};
use serde_json::Value;
use tokio::sync::mpsc;

pub(crate) use self::differences::{anyway_options, describe_change, describe_paths};
use self::differences::{changed_paths, describe_changes, is_obstacle};
use self::outcome::RunStart;
pub(crate) use self::outcome::{RunOutcome, session_of};
use crate::asking::{PendingQuestion, ask, asking};
use crate::budgets::BudgetLimit;
use crate::changed_files::shorten_list;
use crate::configuration::{Permissions, Settings};
use crate::events::EventPrinter;
use crate::keys;
use crate::mcp_servers::{self, ServersRequest};
use crate::memories::{self, EmbeddingsArg};
use crate::models;
use crate::output::{self, Exit, Failure};
use crate::project_context::push_changed_files;
use crate::prompts::{ImageArgs, parse_option, read_schema, wrong_schema};
use crate::sandboxes::{self, print_sandbox_with, refuse_home, usable_sandbox};
use crate::scripts;
use crate::sessions::{StoredSession, guest_failure, model_option, spaced};
use crate::signals;
use crate::strictness::{RecordedMode, last_mode, mode_note};
use crate::terminal::REDRAW_EVERY;
use crate::unrecorded::{FilesOfFork, record_before_fork};
use crate::unwritten;

/// The options that set up an agent.
#[derive(clap::Args, Clone)]
pub(crate) struct AgentArgs {
    /// The model: openai:NAME, anthropic:NAME, gemini:NAME, script:FILE, or a name in your configuration
    ///
    /// Default: the variable RATH_MODEL; otherwise the model that the stored session used last; otherwise that of the
    /// agent, or `model` in your configuration
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// The agent in your configuration whose prompt, model, tools, memory, turns and mode are used
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The system prompt. Default: the one of the stored session; otherwise the agent is told to be careful and brief
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// The sandbox of the tools: isolated:DIRECTORY, container:IMAGE, local:DIRECTORY or none
    ///
    /// In `isolated:` commands can read the machine, write only in the directory, and have no network. In `container:`
    /// they run in a container of podman or docker, and see the image and the directory only. In `local:`
    /// commands can do anything you can. With `none` the agent has no tools. Default: where the tools of the stored
    /// session ran; otherwise `isolated:.`
    #[arg(long, value_name = "SANDBOX")]
    sandbox: Option<String>,
    /// Allow network access in an isolated sandbox
    #[arg(long)]
    network: bool,
    /// The calls that are made without asking: read-only, ask, workspace or full
    ///
    /// In `read-only` calls that change something are refused, and in `ask` you are asked first. In `workspace` calls
    /// that stay in the directory are made. In `full` all calls are made but those that leave the sandbox and commits.
    /// Rules in the configuration come first: see `rath config --help`. Default: the mode in your configuration; otherwise `ask` in a terminal and `workspace` in
    /// scripts, or `full` with `--sandbox local:..`
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// The memory of the agent, such as local:.rath/memory. Default: none
    ///
    /// Notes that fit a prompt are shown to the model with it, and what you and the model say is written to the memory after
    /// the run. `rath memory` shows and removes notes.
    #[arg(long, value_name = "MEMORY")]
    memory: Option<String>,
    #[command(flatten)]
    embeddings: EmbeddingsArg,
    /// Leave out the tools of MCP servers
    ///
    /// Servers are configured in `~/.config/rath/mcp.json` and in the project's `.mcp.json`: see `rath mcp ls --help`.
    #[arg(long)]
    no_mcp: bool,
    /// The number of times that the model may be asked. Default: that of the agent; otherwise 100
    #[arg(long, value_name = "N")]
    turns: Option<NonZeroU64>,
    /// The limits of the session: 50000tokens, 2usd, 20turns or 10min; several are separated by commas
    ///
    /// Tokens, money and turns of the whole session count, also those before it was resumed; time begins with the run.
    #[arg(long, value_name = "LIMIT", value_delimiter = ',')]
    budget: Vec<BudgetLimit>,
    /// A further member of requests to the model, such as temperature=0.2 or reasoning_effort=low; may be repeated
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = parse_option)]
    model_options: Vec<(String, Value)>,
    /// Do not tell the agent the project's AGENTS.md, the directory, the date and the branch when a session begins
    #[arg(long)]
    no_context: bool,
    /// Print nothing but an answer of JSON that fits the JSON schema in this file
    ///
    /// The agent is told the schema. For an answer that does not fit, it is told what is wrong and asked again, at most twice; then the
    /// command fails. With --json the answer is in the last event.
    #[arg(long, value_name = "FILE")]
    output_schema: Option<PathBuf>,
    /// Print one JSON object for each event
    #[arg(long)]
    json: bool,
    /// The configuration, once it was read.
    #[arg(skip)]
    settings: OnceLock<Settings>,
}

/// The number of model calls that a run may make where `--turns` is not given.
pub(crate) const DEFAULT_TURNS: u64 = 100;
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
    keys::hide_in(&mut secrets);
    secrets
}

impl AgentArgs {
    pub(crate) fn new(model: String, system: Option<String>, sandbox: Option<String>, mode: Option<Mode>) -> Self {
        AgentArgs {
            model: Some(model),
            agent: None,
            system,
            sandbox,
            network: false,
            mode,
            memory: None,
            embeddings: EmbeddingsArg::default(),
            no_mcp: true,
            turns: None,
            budget: Vec::new(),
            model_options: Vec::new(),
            no_context: true,
            output_schema: None,
            json: false,
            settings: OnceLock::new(),
        }
    }

    /// Returns the same options with another model.
    pub(crate) fn with_model(&self, model: String) -> Self {
        AgentArgs { model: Some(model), ..self.clone() }
    }

    /// Returns the name of the model that is asked.
    pub(crate) fn model_name(&self, session: Option<&Session>) -> Result<String, Failure> {
        Ok(match &self.model {
            Some(model) => model.clone(),
            None => self.model_choice(session)?.model()?.uri,
        })
    }

    /// Fails if `--json` or `--output-schema` was given to a conversation.
    pub(crate) fn refuse_json(&self) -> Result<(), Failure> {
        let hint = match (self.json, &self.output_schema) {
            (false, None) => return Ok(()),
            (true, _) => "`rath run 'Your words' --json` prints events",
            (false, Some(_)) => "`rath run 'Your words' --output-schema FILE` prints an answer of JSON",
        };
        Err(Failure::new("a conversation has no JSON", hint).with_exit(Exit::Usage))
    }

    /// Builds the agent. Without `--system` it keeps the prompt of `session`.
    pub(crate) async fn agent(&self, session: Option<&Session>) -> Result<Agent, Failure> {
        let profile = self.profile()?;
        let schema = self.output_schema.as_deref().map(read_schema).transpose()?;
        let provider = models::open(&self.model_choice(session)?.model()?, &self.model_options).await?;
        let recorded = session.and_then(|session| view::instructions(session.as_record())).map(|(_, it)| &it.text);
        let named = self.system.as_ref().or_else(|| profile?.system.as_ref());
        let system = match (named, recorded) {
            (Some(text), _) => Text::from(text.as_str()),
            // A schema is for the answers of one command.
            (None, Some(text)) => text.as_str().map_or_else(|| text.clone(), |text| without_answer_schema(text).into()),
            (None, None) => DEFAULT_SYSTEM.into(),
        };
        let sandbox = self.sandbox(session)?;
        let turns = self.turns.map(NonZeroU64::get).or_else(|| profile?.turns).unwrap_or(DEFAULT_TURNS);
        let mut agent = Agent::new(system, &provider).turns(turns);
        match self.memory()? {
            None => self.embeddings.check_unused()?,
            Some(uri) => {
                let directory = sandbox.as_ref().and_then(Sandbox::directory);
                let memory = memories::open_for_agent(uri, directory, &self.embeddings).await?;
                agent = agent.memory(&memory).commit_on_run();
            }
        }
        let names = profile.and_then(|profile| profile.tools.as_ref());
        let tools = builtin::all().only(|name| names.is_none_or(|names| names.iter().any(|known| known == name)));
        let agent = if sandbox.is_some() { agent.tools(tools) } else { agent };
        match (schema, &self.output_schema) {
            (Some(schema), Some(path)) => {
                agent.answer_schema(&schema).map_err(|error| wrong_schema(path, &error.message()))
            }
            _ => Ok(agent),
        }
    }

    /// Adds the tools of MCP servers, which are started here, for a session that is stored and placed: what is not there yet cannot be
    /// hidden from a server. `branch` is the one on which the session continues, and `store_file` the file that holds it, if one does.
    pub(crate) async fn with_servers(
        &self,
        agent: Agent,
        session: &Session,
        branch: ResumeMode,
        store_file: Option<&Path>,
    ) -> Result<Agent, Failure> {
        let Some(sandbox) = self.sandbox(Some(session))?.filter(|_| !self.no_mcp) else { return Ok(agent) };
        // A list of tools is all that the agent has.
        if self.profile()?.is_some_and(|profile| profile.tools.is_some()) {
            return Ok(agent);
        }
        let mode = self.mode_in(&sandbox, &Permissions::read(sandbox.directory())?, last_mode(session))?;
        let is_fork = branch == ResumeMode::Fork || works_elsewhere(session, &sandbox).await;
        let request = ServersRequest { sandbox: &sandbox, mode, is_fork, store_file };
        let Some(servers) = mcp_servers::for_agent(request, self.is_interactive()).await? else { return Ok(agent) };
        // Before the model is asked: the user is told which are missing, and their tools are compared with those of the session.
        mcp_servers::connect(&servers).await;
        Ok(agent.tools_from(servers))
    }

    /// Keeps the path of the script that is the model, so that the session goes on without naming it.
    pub(crate) fn keep_script(&self, session: &Session) {
        if let Ok(model) = self.model_choice(Some(session)).and_then(|choice| choice.model()) {
            scripts::keep(session, &model.uri);
        }
    }

    /// Opens the model.
    pub(crate) async fn provider(&self, session: Option<&Session>) -> Result<Provider, Failure> {
        models::open(&self.model_choice(session)?.model()?, &self.model_options).await
    }

    /// Puts the session into the sandbox and under the user's policy, and prints the restrictions of both on stderr.
    pub(crate) async fn place(&self, session: Session) -> Result<PlacedSession, Failure> {
        let limits = self.limits()?;
        let session = match limits.is_empty() {
            true => session,
            false => session.within(limits.iter().fold(Budget::new(), |budget, limit| limit.limit(budget))),
        };
        let Some(mut sandbox) = self.sandbox(Some(&session))? else {
            return Ok(PlacedSession { session, questions: None, directory: PathBuf::from(".") });
        };
        // Beside the run: what killed processes left is in the way of nothing.
        drop(tokio::task::spawn_blocking(rath::sandbox::sweep_temporaries_blocking));
        if self.sandbox.is_none() {
            refuse_home(&sandbox)?;
            if session.place().is_none() {
                sandbox = usable_sandbox(sandbox).await;
            }
        }
        let permissions = Permissions::read(sandbox.directory())?;
        let last_mode = last_mode(&session);
        let mode = self.mode_in(&sandbox, &permissions, last_mode)?;
        if self.mode.is_none() {
            last_mode.into_iter().for_each(RecordedMode::explain);
        }
        let loosest = unattended_mode(&sandbox);
        let is_there = session.place().is_some_and(|place| place.as_str() == sandbox.uri());
        let fork = if is_there { session.working_directory().await } else { None };
        let described = describe_permissions(mode, &sandbox, &permissions);
        print_sandbox_with(&sandbox, fork.as_deref(), self.sandbox.is_some(), &described).await?;
        permissions.warn(&sandbox);
        let policy = Policy::new(mode).rules(permissions.rules.into_iter().map(|(rule, _)| rule));
        let (policy, questions) = match self.is_interactive() {
            true => asking(policy),
            false => (policy, None),
        };
        let directory = sandbox.directory().unwrap_or(Path::new(".")).to_owned();
        let mut session = if is_there { session } else { session.to(sandbox) };
        // A run without calls leaves no other trace of a mode that the next one would not choose by itself.
        if last_mode.map_or(mode < loosest, |last| last != RecordedMode::Named(mode)) {
            session.push(mode_note(mode));
        }
        Ok(PlacedSession { session: session.under(policy), questions, directory })
    }

    /// Returns the mode for calls in a sandbox. `last` is the mode in which the session was left.
    fn mode_in(
        &self,
        sandbox: &Sandbox,
        permissions: &Permissions,
        last: Option<RecordedMode>,
    ) -> Result<Mode, Failure> {
        if let Some(mode) = self.mode {
            return Ok(mode);
        }
        let variable = self.settings()?.mode.as_ref().map(|mode| mode.value);
        let named = variable.or(self.profile()?.and_then(|profile| profile.mode));
        let mode = named.unwrap_or_else(|| permissions.mode_or(self.default_mode(sandbox)));
        // A session goes on as strictly as it was, unless the user chooses anew. A sandbox is no choice of a mode, but for that
        // of each kind.
        let is_kept = |last: &Mode| *last < mode && (self.sandbox.is_none() || *last < Mode::Workspace);
        Ok(last.map(RecordedMode::mode).filter(is_kept).unwrap_or(mode))
    }

    /// Returns the mode where neither an option nor the configuration chooses one.
    fn default_mode(&self, sandbox: &Sandbox) -> Mode {
        match self.is_interactive() {
            true => Mode::Ask,
            false => unattended_mode(sandbox),
        }
    }

    /// Returns true if the person at the terminal can be asked.
    fn is_interactive(&self) -> bool {
        !self.json && output::is_interactive()
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

    /// Fails if the directory of a new session is not there.
    pub(crate) fn require_directory(&self) -> Result<(), Failure> {
        let sandbox = self.sandbox(None)?;
        match sandbox.as_ref().and_then(Sandbox::directory) {
            Some(directory) => Ok(rath::sandbox::Root::open(directory).map(drop)?),
            None => Ok(()),
        }
    }

    /// Opens the sandbox that tools run in; none if the agent has no tools.
    fn sandbox(&self, session: Option<&Session>) -> Result<Option<Sandbox>, Failure> {
        let recorded = session.and_then(Session::place);
        let configured = self.settings()?.sandbox.as_ref().map(|sandbox| sandbox.value.as_str());
        self.check_network()?;
        let uri = match (&self.sandbox, &recorded) {
            (Some(none), _) if none == "none" => return Ok(None),
            (Some(uri), _) => uri,
            // An agent that had no tools does not get any by being resumed.
            (None, None) if session.is_some_and(has_begun) => return Ok(None),
            (None, Some(place)) => place.as_str(),
            (None, None) if configured == Some("none") => return Ok(None),
            (None, None) => configured.unwrap_or("isolated:."),
        };
        let separator = if uri.contains('?') { '&' } else { '?' };
        let has_switch = uri.starts_with("isolated:") || uri.starts_with("container:");
        let adds_network = self.network && has_switch && !uri.contains("network=");
        let sandbox =
            if adds_network { sandboxes::open(&format!("{uri}{separator}network=on")) } else { sandboxes::open(uri) };
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
        let model = self.model.iter().map(|model| format!("--model {}", output::quote(model))).collect::<String>();
        model + &self.other_options()
    }

    /// Returns the options that set up the same agent on a session, for a hint, each after a space.
    pub(crate) fn options_for(&self, session: Option<&Session>) -> String {
        let model = self.model_choice(session).map(|choice| choice.hint()).unwrap_or_default();
        model + &self.other_options()
    }

    fn other_options(&self) -> String {
        let option = |name: &str, value: &Option<String>| {
            value.iter().map(|value| format!(" --{name} {}", output::quote(value))).collect::<String>()
        };
        let (system, sandbox) = (option("system", &self.system), option("sandbox", &self.sandbox));
        let (agent, memory) =
            (option("agent", &self.agent), option("memory", &self.memory) + &self.embeddings.option());
        let schema = self.output_schema.as_ref().map(|path| path.display().to_string());
        let schema = option("output-schema", &schema);
        let network = if self.network { " --network" } else { "" };
        let mcp = if self.no_mcp { " --no-mcp" } else { "" };
        let mode = self.mode.map(|mode| format!(" --mode {}", mode.name())).unwrap_or_default();
        let limits: Vec<_> = self.budget.iter().map(ToString::to_string).collect();
        let budget = if limits.is_empty() { String::new() } else { format!(" --budget {}", limits.join(",")) };
        let options = self.model_options.iter().map(|(name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!(" --option {}", output::quote(&format!("{name}={value}")))
        });
        let options = options.collect::<String>();
        format!("{agent}{system}{sandbox}{network}{mode}{memory}{mcp}{budget}{options}{schema}")
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
        let prompt = prompt.map(|prompt| format!(" {}", output::quote(prompt))).unwrap_or_default();
        let fork = if mode == ResumeMode::Fork { " --fork" } else { "" };
        let command =
            format!("rath resume {}{prompt}{}{option}{fork}", branch.short(), self.options_for(Some(&stored)));
        if let (None, Some(place)) = (&self.sandbox, stored.forgotten_place()) {
            let message = "the session has no sandbox any more: a step of it was removed with `rath forget`";
            let is_named = self.model_choice(Some(&stored)).is_ok_and(|choice| !choice.hint().is_empty());
            let options = spaced(&[if is_named { "" } else { model_option(&stored) }]);
            let hint = format!("`{command}{options} --sandbox {}` gives it one", output::quote(place.as_str()));
            return Err(Failure::new(message, hint).with_exit(Exit::Differs));
        }
        if mode == ResumeMode::SameBranch && self.sandbox.is_none() {
            // Before anything is recorded: the files of a merge are written first.
            let explain = |error| unwritten::explain(error, &branch.short(), option);
            stored.check_update().await.map_err(explain)?;
        }
        let agent = self.agent(Some(&stored)).await?;
        let agent = self.with_servers(agent, &stored, mode, None).await?;
        let files = match mode {
            ResumeMode::Fork => record_before_fork(store, *branch).await?,
            ResumeMode::SameBranch => FilesOfFork::AsRecorded,
        };
        let resumed = match mode {
            ResumeMode::Fork => store.fork(*branch).await?,
            ResumeMode::SameBranch => store.resume(*branch).await.map_err(|error| match error.kind() {
                ErrorKind::Conflict => Failure::from(error)
                    .with_hint(format!("wait until it is done, or continue on a new branch: `{command} --fork`")),
                _ => error.into(),
            })?,
        };
        let resumed = resumed.against(&agent);
        let session = self.accept(resumed, on_difference, files, &command)?;
        Ok((agent, session.hiding(secrets())))
    }

    /// Takes the session, and says what changed since its last turn. Fails if steps or the directory of the session are missing.
    ///
    /// Files, tools, models and prompts change between two turns, and the model is told. Interrupted calls are no obstacle either: when the
    /// agent runs, those that change nothing are made again, and the others wait for a decision.
    fn accept(
        &self,
        resumed: Resumed,
        on_difference: OnDifference,
        files: FilesOfFork,
        command: &str,
    ) -> Result<Session, Failure> {
        let certificate = resumed.certificate();
        if let Some(holder) = certificate.left_open_by() {
            output::message!("the last run did not end properly: {holder}");
        }
        let is_updated = !certificate.updated_tools().is_empty();
        if is_updated {
            let tools = shorten_list(certificate.updated_tools());
            output::message!("rath was updated since the last turn; tools that changed: {tools}");
        }
        let differences = certificate.differences();
        if on_difference == OnDifference::Refuse && differences.iter().any(is_obstacle) {
            let changes = describe_changes(certificate);
            let hint = match &self.sandbox {
                None => {
                    let (options, effect) = anyway_options(certificate);
                    format!("`{command} {options}` {effect}")
                }
                Some(_) => format!("`{command} --anyway` continues (this is recorded)"),
            };
            return Err(Failure::new(changes, hint).with_exit(Exit::Differs));
        }
        let is_complete = certificate.is_complete();
        if !is_complete {
            output::message!("{}", describe_changes(certificate));
        }
        let is_file_change = |it: &Difference| it.is_open() || matches!(it, Difference::Files { .. });
        // A fork is without changes that are not recorded, and its model is not told of them.
        let changed = differences.iter().filter(|_| files != FilesOfFork::WithoutChanges).filter_map(changed_paths);
        let changed: Vec<_> = changed.map(<[_]>::to_vec).collect();
        let mut session = match differences.iter().all(is_file_change) {
            true => resumed.accept_file_changes()?,
            false => resumed.anyway(),
        };
        changed.iter().for_each(|paths| push_changed_files(&mut session, paths));
        // After an adoption the files at the new place are not compared before a tool runs there.
        let is_adopted = |chunk: &Chunk| matches!(chunk, Chunk::Adopted(_));
        let was_adopted = || session.as_record().newest_first().any(|step| is_adopted(step.chunk()));
        if is_complete
            && !is_updated
            && files == FilesOfFork::AsRecorded
            && (session.tree().is_some() || !was_adopted())
        {
            output::message!("nothing changed since the last turn");
        }
        Ok(session)
    }

    /// Runs the agent and prints its events. Questions about calls are asked at the terminal.
    pub(crate) async fn work(&self, agent: &Agent, placed: PlacedSession) -> RunOutcome {
        let PlacedSession { session, questions, directory } = placed;
        self.keep_script(&session);
        let start = RunStart::new(&session);
        let mut printer = EventPrinter::new(self.json, directory.clone());
        if self.output_schema.is_some() {
            printer = printer.with_answer_at_end();
        }
        let cancel = Cancel::new();
        let stop = cancel.clone();
        let watch = tokio::spawn(async move {
            signals::stop_requested().await;
            stop.cancel();
        });
        let mut printed = Ok(());
        let mut events = agent.run(session.until(&cancel)).events();
        let mut questions = questions.unwrap_or_else(|| mpsc::unbounded_channel().1);
        let mut tick = tokio::time::interval(REDRAW_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            let (question, answer) = tokio::select! {
                biased;
                event = events.next() => {
                    let Some(event) = event else { break };
                    // The agent works on when its output cannot be written: its steps are stored before they are printed.
                    if printed.is_ok() {
                        printed = printer.print(&event).await;
                    }
                    continue;
                }
                Some(question) = questions.recv() => question,
                _ = tick.tick() => {
                    printer.show_live();
                    continue;
                }
            };
            // What happened before the question.
            while let Some(event) = next_now(events.next()).await {
                if printed.is_ok() {
                    printed = printer.print(&event).await;
                }
            }
            printed = printed.and_then(|()| printer.pause());
            let _ = answer.send(ask(&question, &directory, &cancel).await);
        }
        watch.abort();
        let result = events.finish().await;
        RunOutcome { result, start, printed, printer }
    }
}

/// Returns the result of a future that is ready; none if it is not.
async fn next_now<T>(next: impl Future<Output = Option<T>>) -> Option<T> {
    tokio::select! {
        biased;
        next = next => next,
        () = std::future::ready(()) => None,
    }
}

/// Returns true if a session works in another directory than that of its sandbox, as a fork does.
async fn works_elsewhere(session: &Session, sandbox: &Sandbox) -> bool {
    let directory = session.working_directory().await;
    let canonical = |path: &Path| path.canonicalize().ok();
    let (Some(own), Some(root)) = (directory.as_deref(), sandbox.directory()) else { return false };
    canonical(own) != canonical(root)
}

/// Returns the mode where no person can be asked and neither an option nor the configuration chooses one.
fn unattended_mode(sandbox: &Sandbox) -> Mode {
    // Without walls there is no workspace to stay in.
    if sandbox.uri().starts_with("local:") { Mode::Full } else { Mode::Workspace }
}

/// Returns `true` if an agent ran in a session, or a person adopted it: then the session says where its tools run.
pub(crate) fn has_begun(session: &Session) -> bool {
    let is_begin = |chunk: &Chunk| matches!(chunk, Chunk::Instructions(_) | Chunk::Adopted(_));
    session.as_record().newest_first().any(|step| is_begin(step.chunk()))
}

/// A session that is ready to run, and the questions that its policy asks.
pub(crate) struct PlacedSession {
    session: Session,
    questions: Option<mpsc::UnboundedReceiver<PendingQuestion>>,
    /// The directory of the project.
    directory: PathBuf,
}

impl PlacedSession {
    /// Records the session in a store, and checks that its directory can be worked in.
    pub(crate) async fn record(self, store: &Store) -> Result<Self, Failure> {
        let session = self.session.record(store).await?;
        session.check_directory().await?;
        Ok(PlacedSession { session, ..self })
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the session, the questions of its policy, and the directory of the project.
    pub(crate) fn into_parts(self) -> (Option<Session>, Option<mpsc::UnboundedReceiver<PendingQuestion>>, PathBuf) {
        (Some(self.session), self.questions, self.directory)
    }
}

/// Describes the permissions in force, as far as the sandbox does not say it: the end of a line.
fn describe_permissions(mode: Mode, sandbox: &Sandbox, permissions: &Permissions) -> String {
    let has_walls = !sandbox.uri().starts_with("local:");
    let mode = match mode {
        Mode::ReadOnly => "; changes are refused",
        Mode::Ask => "; asks before changes",
        Mode::Workspace if !has_walls => "; asks before commands",
        Mode::Full if has_walls => "; asks only before it leaves the sandbox",
        _ => "",
    };
    match permissions.rules.len() as u64 {
        0 => mode.to_owned(),
        rules => format!("{mode}; {}", count(rules, "rule")),
    }
}

/// Returns the failure of a command without a prompt on a session that is done. `example` is a command with a prompt.
pub(crate) fn nothing_to_do(example: impl Into<String>) -> Failure {
    Failure::new("nothing to do: there is no prompt, and no unfinished turn to continue", example)
}

/// Appends the user's prompt to the session, with images; `-` reads it from stdin.
///
/// Fails if there is no prompt and the session is done. `example` is then the hint: a command with a prompt.
pub(crate) fn push_prompt(
    session: &mut Session,
    prompt: Option<&str>,
    images: &ImageArgs,
    example: &str,
) -> Result<(), Failure> {
    let images = images.read()?;
    let text = match prompt {
        Some("-") => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map_err(|error| {
                Failure::new(format!("cannot read the prompt from stdin: {error}"), "a prompt is text in UTF-8")
            })?;
            text.trim_end().to_owned()
        }
        Some(text) => text.to_owned(),
        None if session.next() == Next::Done => return Err(nothing_to_do(example)),
        None if !images.is_empty() => {
            return Err(Failure::new("an image belongs to a prompt, and there is none", example).with_exit(Exit::Usage));
        }
        None => return Ok(()),
    };
    if text.trim().is_empty() {
        return Err(Failure::new("wanted a prompt, found an empty text", example).with_exit(Exit::Usage));
    }
    session.push(User::new(text).with_images(images));
    Ok(())
}
