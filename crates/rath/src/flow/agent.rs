//! An agent: a prompt, a model and tools.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rath_record::chunk::{Chunk, Failed, Instructions, ToolSpec};
use rath_record::turn::Next;
use rath_record::{Text, view};
use serde_json::{Value, json};

use super::answer::AnswerFormat;
use super::compressor::Compressor;
use super::ending::{Endings, close_unfinished, whole_answer};
use super::listed_tools::{ListedTools, as_recorded};
use super::module::{Binding, Module};
use super::{CloneRun, Run, Workflow};
use crate::error::ErrorKind;
use crate::memory::Memory;
use crate::provider::Provider;
use crate::sandbox::Sandbox;
use crate::session::{Error, EventKind, Result, Session};
use crate::tool::{
    ErasedSource, Output, OutputVisibility, READ_OUTPUT, ReadOutput, Tool, ToolCx, ToolHandle, ToolSource, Toolbox,
    Tools, run_calls,
};

/// A prompt, a model and tools.
///
/// Run on a session, an agent asks the model and makes the calls that the model asks for, until the model asks for no more.
/// A model whose answer was cut off by its limit is told so and goes on, three times at most; an empty answer is asked for
/// once more. A run fails if the provider withholds an answer, and makes no call of that answer.
/// The prompt and the tools are recorded as a chunk of their own, not as part of the conversation.
///
/// An agent that gave the newest answer has nothing to do, so running it twice in a row asks the model once. To run it
/// again, push a user message, run another agent, or let a [`Selector`](super::Selector) pick it. A session in which another
/// agent is in the middle of a turn is returned unchanged: a workflow that is run again from its beginning reaches that
/// agent by itself.
///
/// ```
/// use rath::prelude::*;
/// use rath::Text;
///
/// /// Count the words in a short text.
/// #[tool]
/// async fn word_count(/// Text to count.
///                     text: String) -> Result<usize> { Ok(text.split_whitespace().count()) }
///
/// # async fn example() -> Result<()> {
/// let script = [r#"{"calls": [{"name": "word_count", "arguments": {"text": "to be or not"}}]}"#, r#"{"text": "Four."}"#];
/// let agent = Agent::new("You count words.", &Script::of(script)?.into()).tool(word_count);
/// let session = agent.run(Session::user("How many words are in `to be or not`?")).await?;
/// assert_eq!(session.text(), Some("Four."));
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
pub struct Agent {
    prompt: Text,
    provider: Provider,
    name: Option<String>,
    description: String,
    pub(super) tools: Vec<ToolHandle>,
    pub(super) sources: Vec<Arc<dyn ErasedSource>>,
    delegates: Vec<Delegate>,
    pub(super) memory: Option<Memory>,
    pub(super) commits_on_run: bool,
    pub(super) extractor: Option<Provider>,
    sandbox: Option<Sandbox>,
    compressor: Option<Box<Compressor>>,
    pub(super) answer_format: Option<Arc<AnswerFormat>>,
    max_turns: u64,
    max_concurrent_calls: usize,
}

/// The number of model calls that one run may make by default.
const DEFAULT_MAX_TURNS: u64 = 100;
/// The number of tool calls that run at once by default.
const DEFAULT_MAX_CONCURRENT_CALLS: usize = 64;
/// The number of turns after an attempt to fold the conversation in which it is not tried again.
const TURNS_BETWEEN_FOLDS: u64 = 4;

impl Agent {
    /// Creates an agent with this prompt that asks this model.
    pub fn new(prompt: impl Into<Text>, provider: &Provider) -> Self {
        Agent {
            prompt: prompt.into(),
            provider: provider.clone(),
            name: None,
            description: String::new(),
            tools: Vec::new(),
            sources: Vec::new(),
            delegates: Vec::new(),
            memory: None,
            commits_on_run: false,
            extractor: None,
            sandbox: None,
            compressor: None,
            answer_format: None,
            max_turns: DEFAULT_MAX_TURNS,
            max_concurrent_calls: DEFAULT_MAX_CONCURRENT_CALLS,
        }
    }

    /// Sets the name of an agent that is not a field of a module.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the description, which the model of a selector or of another agent reads.
    pub fn describe(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Adds a tool.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(ToolHandle::new(tool));
        self
    }

    /// Adds several tools.
    pub fn tools(mut self, tools: Tools) -> Self {
        self.tools.extend(tools.into_handles());
        self
    }

    /// Adds the tools of a source, which may change while the agent runs. See [`ToolSource`] for an example.
    pub fn tools_from(mut self, source: impl ToolSource) -> Self {
        self.sources.push(Arc::new(source));
        self
    }

    /// Lets the agent give tasks to another workflow, such as another agent, through a tool of this name.
    ///
    /// The model reads the workflow's description and its answer. The rest of its work is kept aside on the record.
    pub fn delegate(mut self, name: impl Into<String>, workflow: impl Run + Clone) -> Self {
        let delegate = Delegate { name: name.into(), workflow: Arc::new(workflow) };
        self.tools.push(ToolHandle::new(delegate.clone()));
        self.delegates.push(delegate);
        self
    }

    /// Sets a memory. Notes that fit the user's message are recalled before the model is asked.
    ///
    /// The model reads them as data, next to that message, and no note twice.
    pub fn memory(mut self, memory: &Memory) -> Self {
        self.memory = Some(memory.clone());
        self
    }

    /// Lets a model find the facts in what was said, when it is written to the memory: see [`Agent::commit`].
    ///
    /// Each fact becomes a note that names the messages that say it. The messages are written too.
    pub fn extract_facts(mut self, provider: &Provider) -> Self {
        self.extractor = Some(provider.clone());
        self
    }

    /// Writes what was said to the memory after each run: see [`Agent::commit`].
    pub fn commit_on_run(mut self) -> Self {
        self.commits_on_run = true;
        self
    }

    /// Sets a compressor, which folds the conversation before it fills the model's context window: see
    /// [`Compressor::window`].
    pub fn compress(mut self, compressor: Compressor) -> Self {
        self.compressor = Some(Box::new(compressor));
        self
    }

    /// Limits the number of model calls in one run; 100 by default.
    pub fn turns(mut self, limit: u64) -> Self {
        self.max_turns = limit;
        self
    }

    /// Limits the number of tool calls that run at once; 64 by default.
    pub fn max_concurrent_calls(mut self, calls: usize) -> Self {
        self.max_concurrent_calls = calls.max(1);
        self
    }

    /// Returns the provider of the model that the agent asks.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// Runs until the model asks for no more calls. `suffix` is added below the prompt.
    pub(super) async fn run_turns(&self, mut session: Session, suffix: &str) -> Result<Session> {
        session.hide_also(&self.provider.secrets());
        self.sources.iter().for_each(|source| session.hide_also(&source.secrets()));
        self.check_tools(&session)?;
        if self.is_turn_of_another_agent(&session, suffix) {
            return Ok(session);
        }
        if let Some(sandbox) = &self.sandbox
            && session.place().is_none_or(|place| place.as_str() != sandbox.uri())
        {
            session = session.to(sandbox.clone());
        }
        session.refuse_conflicts()?;
        // A message that the agent itself wrote, about an answer that does not fit, is no question for a memory.
        let is_own_message = session.head().is_some_and(|head| {
            matches!(head.chunk(), Chunk::User(_)) && head.stamp().by.as_deref() == session.module()
        });
        if let Some(memory) = self.memory.as_ref().and_then(Memory::directory) {
            session.keep_memory_out(memory);
        }
        if !self.tools.is_empty() || !self.sources.is_empty() {
            // In boxes: agents that call agents would need a larger stack.
            Box::pin(session.require_place()).await?;
            Box::pin(session.write_merged_files()).await?;
            Box::pin(session.record_first_tree()).await?;
        }
        let mut listed = ListedTools::new(&self.tools, ReadOutput::is_needed(&session));
        Box::pin(listed.update(self, &mut session)).await?;
        self.instruct(&mut session, &listed.tools(), suffix);
        let mut turn = 0;
        let mut next_fold = 0;
        let mut endings = Endings::default();
        loop {
            match session.next() {
                Next::Done => {
                    Box::pin(self.commit_after_run(&mut session)).await?;
                    return Ok(session);
                }
                Next::AskModel => {
                    if turn == self.max_turns {
                        return Err(self.too_many_turns(&mut session));
                    }
                    turn += 1;
                    if turn >= next_fold && self.is_fold_due(&session)? {
                        // A conversation that cannot be folded now cannot be folded a turn later either.
                        next_fold = turn + TURNS_BETWEEN_FOLDS;
                        session = Box::pin(self.fold(session)).await?;
                    }
                    if turn == 1 && !is_own_message {
                        Box::pin(self.recall_for_message(&mut session)).await?;
                    }
                    if turn > 1 && Box::pin(listed.update(self, &mut session)).await? {
                        self.instruct(&mut session, &listed.tools(), suffix);
                    }
                    session.emit(|| EventKind::Turn { turn });
                    Box::pin(self.provider.ask_in(&mut session, None)).await?;
                    endings.act_on(&mut session)?;
                }
                Next::RunTools(calls) => {
                    if close_unfinished(&mut session, &calls)? {
                        continue;
                    }
                    let tools = listed.tools();
                    let toolbox = Toolbox { tools: &tools, max_concurrent: self.max_concurrent_calls };
                    let outputs = Box::pin(run_calls(&mut session, &toolbox, calls)).await?;
                    if outputs == OutputVisibility::Partial && listed.add_read_output() {
                        self.instruct(&mut session, &listed.tools(), suffix);
                    }
                }
            }
        }
    }

    /// Fails if the tools cannot be offered to a model.
    fn check_tools(&self, session: &Session) -> Result<()> {
        let problem = self.tools.iter().enumerate().find_map(|(nth, tool)| {
            let is_duplicate = self.tools[..nth].iter().any(|earlier| earlier.name() == tool.name());
            let name_problem = if is_duplicate {
                Some(format!("two tools are called `{}`", tool.name()))
            } else {
                let reserved = || format!("a tool cannot be called `{READ_OUTPUT}`: agents have one of that name");
                (tool.name() == READ_OUTPUT).then(reserved)
            };
            tool.definition_error().or(name_problem.map(|problem| Error::new(ErrorKind::Tool, problem)))
        });
        problem.map_or(Ok(()), |problem| Err(problem.with_session(session)))
    }

    /// Returns the instructions for the model, without secrets, as a session records them.
    fn instructions(&self, session: &Session, tools: &[ToolHandle], suffix: &str) -> Instructions {
        let text = if suffix.is_empty() { self.prompt.clone() } else { format!("{}\n\n{suffix}", self.prompt).into() };
        let specs: Vec<_> = tools.iter().map(|tool| tool.spec().clone()).collect();
        let provider = self.provider.identity().clone();
        let mut chunk = Chunk::from(Instructions::new(text).with_tools(specs).with_provider(provider));
        session.secrets().hide_in(&mut chunk);
        let Chunk::Instructions(instructions) = chunk else { unreachable!("hiding secrets keeps the kind of a chunk") };
        instructions
    }

    /// Records the instructions for the model, unless they are in force already.
    fn instruct(&self, session: &mut Session, tools: &[ToolHandle], suffix: &str) {
        let instructions = as_recorded(self.instructions(session, tools, suffix), session);
        let is_known = view::instructions(session.as_record())
            .is_some_and(|(step, known)| *known == instructions || session.is_repeated(step, &instructions));
        if !is_known {
            session.push(instructions);
        }
    }

    /// Returns true if another agent is in the middle of a turn.
    ///
    /// Calls are made by the agent whose model asked for them: the agent at that path, or one with the same instructions.
    fn is_turn_of_another_agent(&self, session: &Session, suffix: &str) -> bool {
        let Next::RunTools(calls) = session.next() else { return false };
        let asked = calls.first().and_then(|pending| session.as_record().find(pending.origin.answer));
        let by = asked.and_then(|step| step.stamp().by.as_deref());
        if by.is_none() || by == session.module() {
            return false;
        }
        let ours = self.instructions(session, &self.tools, suffix);
        view::instructions(session.as_record()).is_some_and(|(_, known)| {
            // The tools of a source may have changed since.
            let is_listed = |name: &str| name == READ_OUTPUT || self.sources.iter().any(|source| source.owns(name));
            let tools = known.tools.iter().filter(|tool| !is_listed(&tool.name));
            (&known.text, &known.provider) != (&ours.text, &ours.provider) || !tools.eq(&ours.tools)
        })
    }

    fn too_many_turns(&self, session: &mut Session) -> Error {
        let times = if self.max_turns == 1 { "once".to_owned() } else { format!("{} times", self.max_turns) };
        let message = format!("the model was asked {times} in one run and is not done");
        session.push(Failed::new(ErrorKind::Limit.name(), message.as_str()));
        Error::new(ErrorKind::Limit, message)
            .with_hint("run it again to continue, or allow more with `Agent::turns`")
            .with_session(session)
    }

    /// Returns true if the conversation is about to fill the context window, and the agent has a compressor.
    fn is_fold_due(&self, session: &Session) -> Result<bool> {
        self.compressor.as_ref().map_or(Ok(false), |compressor| compressor.is_due(session, &self.provider))
    }

    /// Folds the conversation. If that fails, the session continues with a note that says why.
    async fn fold(&self, session: Session) -> Result<Session> {
        let Some(compressor) = &self.compressor else { return Ok(session) };
        match compressor.run(session).await {
            Err(error) if error.kind() == ErrorKind::Summary => {
                let note = format!("not compressed: {}", error.message());
                let mut session = error.into_session().expect("a run's error carries its session");
                session.push(Chunk::note(note));
                Ok(session)
            }
            result => result,
        }
    }
}

impl Module for Agent {
    fn kind(&self) -> &str {
        "Agent"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn detail(&self) -> String {
        let mut detail = self.provider.identity().to_string();
        if !self.tools.is_empty() {
            let names = self.tools.iter().map(ToolHandle::name).collect::<Vec<_>>();
            detail.push_str(&format!(", tools: {}", names.join(", ")));
        }
        if !self.sources.is_empty() {
            let sources = self.sources.iter().map(|source| source.describe()).collect::<Vec<_>>();
            detail.push_str(&format!(", tools from {}", sources.join(", ")));
        }
        if let Some(memory) = &self.memory {
            detail.push_str(&format!(", memory: {}", memory.uri()));
        }
        detail
    }

    fn children(&self) -> Vec<(String, &dyn Module)> {
        let delegates =
            self.delegates.iter().map(|delegate| (delegate.name.clone(), &*delegate.workflow as &dyn Module));
        let compressor =
            self.compressor.iter().map(|compressor| ("compressor".to_owned(), &**compressor as &dyn Module));
        delegates.chain(compressor).collect()
    }

    fn bind(&mut self, binding: &Binding) {
        match binding {
            Binding::Provider(provider) => self.provider = provider.clone(),
            Binding::Sandbox(sandbox) => self.sandbox = Some(sandbox.clone()),
        }
        self.compressor.iter_mut().for_each(|compressor| compressor.bind(binding));
        for delegate in &mut self.delegates {
            delegate.bind(binding);
            let tool = ToolHandle::new(delegate.clone());
            self.tools.iter_mut().filter(|known| known.name() == delegate.name).for_each(|known| *known = tool.clone());
        }
    }

    fn current_instructions(&self, session: &Session) -> Option<Instructions> {
        let suffix = self.answer_format.as_ref().map_or("", |format| &format.instructions);
        Some(self.instructions(session, &ListedTools::last(&self.tools, &self.sources), suffix))
    }

    fn is_agent(&self) -> bool {
        true
    }

    fn errors_carry_the_session(&self) -> bool {
        true
    }
}

impl Workflow for Agent {
    async fn forward(&self, session: Session) -> Result<Session> {
        match &self.answer_format {
            // In boxes, as below.
            None => Box::pin(self.run_turns(session, "")).await,
            Some(format) => Box::pin(self.run_to_answer(session, format)).await,
        }
    }
}

/// Prints the tree.
impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tree())
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A workflow that an agent calls as a tool.
#[derive(Clone)]
struct Delegate {
    name: String,
    /// Shared by the tool, which runs the workflow, and by the tree, which names it.
    workflow: Arc<dyn CloneRun>,
}

impl Delegate {
    fn bind(&mut self, binding: &Binding) {
        let mut workflow = self.workflow.clone_boxed();
        workflow.bind(binding);
        self.workflow = workflow.into();
    }
}

impl Tool for Delegate {
    fn spec(&self) -> ToolSpec {
        let schema = json!({
            "type": "object",
            "properties": {"task": {"type": "string", "description": "What is to be done, with all that has to be known."}},
            "required": ["task"],
            "additionalProperties": false,
        });
        let description = Some(self.workflow.description()).filter(|description| !description.is_empty());
        ToolSpec::new(&self.name, description.unwrap_or("Does a task and gives back the answer."), schema)
    }

    /// The work has limits of its own: turns, the budget, and the limits of its tools.
    fn time_limit(&self) -> Duration {
        Duration::from_secs(24 * 60 * 60)
    }

    fn only_runs_workflows(&self) -> bool {
        true
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let session = cx.run(&*self.workflow, arguments["task"].as_str().unwrap_or_default()).await?;
        let answer = Some(whole_answer(&session)).filter(|words| !words.trim().is_empty());
        Ok(answer.ok_or_else(|| Error::new(ErrorKind::Answer, "the workflow gave no answer"))?.into())
    }
}
