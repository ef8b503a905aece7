//! An agent: a prompt, a model, and what it can do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rath_record::chunk::{Chunk, Failed, Instructions, ToolSpec};
use rath_record::turn::Next;
use rath_record::{Text, view};
use serde_json::{Value, json};

use super::compressor::Compressor;
use super::module::{Binding, Module, tree};
use super::{Cloned, Run, Workflow};
use crate::error::ErrorKind;
use crate::memory::Memory;
use crate::provider::Provider;
use crate::sandbox::Sandbox;
use crate::session::{Error, EventKind, Result, Session};
use crate::tool::{Handle, Output, READ_ON, ReadOutput, Shown, Tool, ToolCx, Toolbox, Tools, run_calls};

/// A prompt, a model, and what it can do.
///
/// Run on a session, it asks the model and makes the calls that the model asks for, until the model has said all it has to
/// say. What it was told, with its tools, is a chunk of its own, and never part of the conversation.
///
/// It has nothing to add where it had the last word, so running it twice in a row asks once: push what the user says, let
/// another agent speak, or have a [`Selector`](super::Selector) pick it. And it leaves a session as it is that another
/// agent is in the middle of a turn with: a workflow that is run again from its beginning gets to that agent by itself.
///
/// ```
/// use rath::prelude::*;
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
    tools: Vec<Handle>,
    delegates: Vec<Delegate>,
    pub(super) memory: Option<Memory>,
    sandbox: Option<Sandbox>,
    compressor: Option<Box<Compressor>>,
    turns: u64,
    at_once: usize,
}

/// How often a model is asked in one run, unless told otherwise.
const TURNS: u64 = 100;
/// How many calls run at once, unless told otherwise.
const AT_ONCE: usize = 64;

impl Agent {
    /// An agent with this prompt that asks this model.
    pub fn new(prompt: impl Into<Text>, provider: &Provider) -> Self {
        Agent {
            prompt: prompt.into(),
            provider: provider.clone(),
            name: None,
            description: String::new(),
            tools: Vec::new(),
            delegates: Vec::new(),
            memory: None,
            sandbox: None,
            compressor: None,
            turns: TURNS,
            at_once: AT_ONCE,
        }
    }

    /// Gives it a name, for where it is not a field of a module.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Says what it is for, in words that a selector or another agent reads.
    pub fn describe(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Gives it a tool.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Handle::new(tool));
        self
    }

    /// Gives it several tools.
    pub fn tools(mut self, tools: Tools) -> Self {
        self.tools.extend(tools.handles());
        self
    }

    /// Lets it give tasks to another workflow, an agent for one, as if that were a tool of this name.
    ///
    /// The model reads the workflow's description. It reads nothing of what happens on the way, only the answer; all of it
    /// is kept aside on the record.
    pub fn delegate(mut self, name: impl Into<String>, workflow: impl Run + Clone) -> Self {
        let delegate = Delegate { name: name.into(), workflow: Arc::new(workflow) };
        self.tools.push(Handle::new(delegate.clone()));
        self.delegates.push(delegate);
        self
    }

    /// Gives it a memory. What it knows about the user's words is recalled before the model is asked.
    pub fn memory(mut self, memory: &Memory) -> Self {
        self.memory = Some(memory.clone());
        self
    }

    /// Folds the conversation before it fills the model's context window: see [`Compressor::window`].
    pub fn compress(mut self, compressor: Compressor) -> Self {
        self.compressor = Some(Box::new(compressor));
        self
    }

    /// Limits how often the model is asked in one run; 100 times unless told.
    pub fn turns(mut self, most: u64) -> Self {
        self.turns = most;
        self
    }

    /// Limits how many calls run at once; 64 unless told.
    pub fn calls_at_once(mut self, most: usize) -> Self {
        self.at_once = most.max(1);
        self
    }

    /// The model it asks.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// Runs until the model has nothing more to ask for. `more` is told to the model below the prompt.
    pub(super) async fn go(&self, mut session: Session, more: &str) -> Result<Session> {
        session.hide_also(&self.provider.secrets());
        self.check(&session)?;
        if self.is_others_turn(&session, more) {
            return Ok(session);
        }
        if let Some(sandbox) = &self.sandbox
            && session.place().is_none_or(|place| place.as_str() != sandbox.uri())
        {
            session = session.to(sandbox.clone());
        }
        session.refuse_conflicts()?;
        let mut tools = self.tools.clone();
        if ReadOutput::is_needed(&session) {
            tools.push(Handle::new(ReadOutput));
        }
        // What the agent itself says to the model, about an answer that does not fit, is nothing to ask a memory about.
        let own_words = session.head().is_some_and(|head| {
            matches!(head.chunk(), Chunk::User(_)) && head.stamp().by.as_deref() == session.module()
        });
        self.instruct(&mut session, &tools, more);
        let mut turn = 0;
        let mut compressing = Compressing::default();
        loop {
            match session.next() {
                Next::Done => return Ok(session),
                Next::AskModel => {
                    if turn == self.turns {
                        return Err(self.too_many_turns(&mut session));
                    }
                    turn += 1;
                    session = self.compressed(session, turn, &mut compressing).await?;
                    if turn == 1 && !own_words {
                        self.recall(&mut session).await?;
                    }
                    session.emit(|| EventKind::Turn { turn });
                    session = self.provider.ask(session).run().await?;
                }
                Next::RunTools(calls) => {
                    let toolbox = Toolbox { tools: &tools, at_once: self.at_once };
                    let shown = run_calls(&mut session, &toolbox, calls).await?;
                    if shown == Shown::Part && tools.len() == self.tools.len() {
                        tools.push(Handle::new(ReadOutput));
                        self.instruct(&mut session, &tools, more);
                    }
                }
            }
        }
    }

    /// Whether the tools can be told to a model.
    fn check(&self, session: &Session) -> Result<()> {
        let problem = self.tools.iter().enumerate().find_map(|(nth, tool)| {
            let twice = self.tools[..nth].iter().any(|earlier| earlier.name() == tool.name());
            let wrong = if twice {
                Some(format!("two tools are called `{}`", tool.name()))
            } else {
                let taken = || format!("a tool cannot be called `{READ_ON}`: agents have one of that name");
                (tool.name() == READ_ON).then(taken)
            };
            tool.problem().or(wrong.map(|wrong| Error::new(ErrorKind::Tool, wrong)))
        });
        problem.map_or(Ok(()), |problem| Err(problem.with_session(session)))
    }

    /// What the model is told, as a session records it.
    fn instructions(&self, session: &Session, tools: &[Handle], more: &str) -> Instructions {
        let mut told = Chunk::from(Instructions {
            text: if more.is_empty() { self.prompt.clone() } else { format!("{}\n\n{more}", self.prompt).into() },
            tools: tools.iter().map(|tool| tool.spec().clone()).collect(),
            provider: Some(self.provider.identity().clone()),
        });
        session.secrets().hide_in(&mut told);
        let Chunk::Instructions(told) = told else { unreachable!("hiding changes words, and no kind") };
        told
    }

    /// Tells the model what it is, unless that is what it was told last.
    fn instruct(&self, session: &mut Session, tools: &[Handle], more: &str) {
        let told = self.instructions(session, tools, more);
        let known = view::instructions(session.as_record()).is_some_and(|(_, known)| *known == told);
        if !known {
            session.push(told);
        }
    }

    /// Whether somebody else is in the middle of a turn: calls are made by the agent that they were asked of, which is the
    /// one at this path, or one that was told the same.
    fn is_others_turn(&self, session: &Session, more: &str) -> bool {
        let Next::RunTools(calls) = session.next() else { return false };
        let asked = calls.first().and_then(|pending| session.as_record().find(pending.step));
        let by = asked.and_then(|step| step.stamp().by.as_deref());
        if by.is_none() || by == session.module() {
            return false;
        }
        let told = self.instructions(session, &self.tools, more);
        view::instructions(session.as_record()).is_some_and(|(_, known)| {
            let own = known.tools.iter().filter(|tool| tool.name != READ_ON);
            (&known.text, &known.provider) != (&told.text, &told.provider) || !own.eq(&told.tools)
        })
    }

    fn too_many_turns(&self, session: &mut Session) -> Error {
        let message = format!("the model was asked {} times in one run, and still wants to go on", self.turns);
        session.push(Failed { error: ErrorKind::Limit.name().to_owned(), message: message.as_str().into() });
        Error::new(ErrorKind::Limit, message)
            .with_hint("run it again to go on from there, or allow more with `Agent::turns`")
            .with_session(session)
    }

    /// Folds the conversation if it is about to fill the context window.
    async fn compressed(&self, session: Session, turn: u64, compressing: &mut Compressing) -> Result<Session> {
        let Some(compressor) = &self.compressor else { return Ok(session) };
        if turn < compressing.not_before || !compressor.is_due(&session, &self.provider)? {
            return Ok(session);
        }
        // What cannot be folded now will not be folded better a turn later.
        compressing.not_before = turn + TRY_AGAIN;
        match compressor.run(session).await {
            Err(error) if error.kind() == ErrorKind::Summary => {
                let why = format!("not compressed: {}", error.message());
                let mut session = error.into_session().expect("a run's error carries its session");
                session.push(Chunk::note(why));
                Ok(session)
            }
            folded => folded,
        }
    }
}

/// After how many turns a conversation is folded again, at the soonest.
const TRY_AGAIN: u64 = 4;

#[derive(Default)]
struct Compressing {
    not_before: u64,
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
            let names = self.tools.iter().map(Handle::name).collect::<Vec<_>>();
            detail.push_str(&format!(", tools: {}", names.join(", ")));
        }
        if let Some(memory) = &self.memory {
            detail.push_str(&format!(", memory: {}", memory.uri()));
        }
        detail
    }

    fn children(&self) -> Vec<(String, &dyn Module)> {
        let delegates =
            self.delegates.iter().map(|delegate| (delegate.name.clone(), &*delegate.workflow as &dyn Module));
        let compressor = self.compressor.iter().map(|it| ("compressor".to_owned(), &**it as &dyn Module));
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
            let tool = Handle::new(delegate.clone());
            self.tools.iter_mut().filter(|known| known.name() == delegate.name).for_each(|known| *known = tool.clone());
        }
    }

    fn told(&self, session: &Session) -> Option<Instructions> {
        Some(self.instructions(session, &self.tools, ""))
    }

    fn errors_carry_the_session(&self) -> bool {
        true
    }
}

impl Workflow for Agent {
    async fn forward(&self, session: Session) -> Result<Session> {
        self.go(session, "").await
    }
}

/// The tree.
impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&tree(self))
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Another workflow as a tool.
#[derive(Clone)]
struct Delegate {
    name: String,
    /// Shared by the tool that runs it and the tree that names it.
    workflow: Arc<dyn Cloned>,
}

impl Delegate {
    fn bind(&mut self, binding: &Binding) {
        let mut workflow = self.workflow.cloned();
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

    /// What it does has limits of its own: turns, the budget, and those of its tools.
    fn time_limit(&self) -> Duration {
        Duration::from_secs(24 * 60 * 60)
    }

    fn only_runs_workflows(&self) -> bool {
        true
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let session = cx.run(&*self.workflow, arguments["task"].as_str().unwrap_or_default()).await?;
        let answer = session.last_words().filter(|words| !words.trim().is_empty());
        Ok(answer.ok_or_else(|| Error::new(ErrorKind::Answer, "it gave no answer"))?.into())
    }
}
