//! Folding what was said into fewer words.

use std::collections::HashMap;
use std::fmt;

use rath_record::chunk::{
    Approved, Assistant, Chunk, Compressed, Denied, Finish, Instructions, ToolResult, ToolStarted,
};
use rath_record::view::Message;
use rath_record::{CallId, Step, StepId, Text};

use super::Workflow;
use super::module::{Binding, Module, tree};
use crate::error::ErrorKind;
use crate::provider::Provider;
use crate::session::{Error, Result, Session};

/// Folds the older part of a conversation into a summary.
///
/// Nothing is removed: a step is added that names what the model no longer sees and what it still does. Calls are hidden
/// with their results or not at all. What is hidden can be read back: [`Session::folds`] gives each summary with all that it
/// stands for.
///
/// ```
/// use rath::prelude::*;
///
/// # fn example(agent: Agent, provider: &Provider) -> Agent {
/// // By hand, `compressor.run(session).await?`; or before a conversation fills three quarters of the window:
/// agent.compress(Compressor::new(provider).window(128_000).share(0.75))
/// # }
/// ```
#[derive(Clone)]
pub struct Compressor {
    provider: Provider,
    prompt: Text,
    keep: usize,
    window: Option<u64>,
    share: f64,
}

const PROMPT: &str = "\
You fold conversations. Write a summary that stands for the conversation so far, for a model that will go on from it and \
sees nothing else: what was asked for, what was found and decided, which files and names matter, what is still to be done. \
Be exact and brief. Write nothing but the summary.";

/// What the model is asked in the end: the conversation above is not a task for it.
const FOLD: &str = "Write the summary of the conversation above.";

impl Compressor {
    /// One that asks this model for summaries.
    pub fn new(provider: &Provider) -> Self {
        Compressor { provider: provider.clone(), prompt: PROMPT.into(), keep: 2, window: None, share: 0.8 }
    }

    /// Sets what the model is told.
    pub fn prompt(mut self, prompt: impl Into<Text>) -> Self {
        self.prompt = prompt.into();
        self
    }

    /// Sets how many of the newest answers stay as they are, each with its calls and results; two unless told. What the
    /// user said last always does, and so does what follows the newest answer.
    pub fn keep(mut self, answers: usize) -> Self {
        self.keep = answers;
        self
    }

    /// Says how many tokens the context window of the model has whose conversation is folded. Only then is it folded by
    /// itself, where an agent has this compressor.
    pub fn window(mut self, tokens: u64) -> Self {
        self.window = Some(tokens);
        self
    }

    /// Sets how much of the window is filled before the conversation is folded; 0.8 unless told.
    pub fn share(mut self, share: f64) -> Self {
        self.share = share;
        self
    }

    /// Whether a conversation is about to fill the window.
    pub(super) fn is_due(&self, session: &Session, provider: &Provider) -> Result<bool> {
        let Some(window) = self.window else { return Ok(false) };
        Ok(provider.tokens(session)? as f64 >= window as f64 * self.share)
    }
}

impl Workflow for Compressor {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        let Some(fold) = Fold::of(&session, self.keep) else { return Ok(session) };
        let mut aside = session.fork_named("compressor");
        aside.push(Instructions {
            text: self.prompt.clone(),
            tools: Vec::new(),
            provider: Some(self.provider.identity().clone()),
        });
        aside.push(Chunk::user(FOLD));
        let aside = ask_aside(&self.provider, &mut session, aside).await?;
        let summary = summary(&aside).map_err(|error| error.with_session(&session))?;
        let Fold { hidden, kept } = fold;
        session.push(Compressed { hidden, kept, summary });
        Ok(session)
    }
}

/// Asks a model in a session aside, which is kept however it ends.
pub(super) async fn ask_aside(provider: &Provider, session: &mut Session, aside: Session) -> Result<Session> {
    let answered = provider.ask(aside).await;
    let work = answered.as_ref().ok().or_else(|| answered.as_ref().err().and_then(Error::session));
    if let Some(work) = work {
        session.keep_aside(work);
    }
    answered.map_err(|error| error.with_session(session))
}

impl Module for Compressor {
    fn kind(&self) -> &str {
        "Compressor"
    }

    fn description(&self) -> &str {
        "Folds the older part of a conversation into a summary."
    }

    fn detail(&self) -> String {
        self.provider.identity().to_string()
    }

    fn bind(&mut self, binding: &Binding) {
        if let Binding::Provider(provider) = binding {
            self.provider = provider.clone();
        }
    }

    fn errors_carry_the_session(&self) -> bool {
        true
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The tree.
impl fmt::Display for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&tree(self))
    }
}

/// The summary that a model gave, if it can stand for what it would hide.
fn summary(session: &Session) -> Result<Text> {
    let unfit = |why: &str| {
        Error::new(ErrorKind::Summary, format_args!("the summary cannot be used: {why}"))
            .with_hint("nothing was hidden; let the model write more, or ask another")
    };
    let Some(Chunk::Assistant(answer)) = session.head().map(Step::chunk) else { return Err(unfit("there is none")) };
    match answer {
        Assistant { finish: Finish::Length, .. } => Err(unfit("the model ran out of tokens")),
        Assistant { finish: Finish::Filtered, .. } => Err(unfit("the provider withheld part of it")),
        Assistant { calls, .. } if !calls.is_empty() => Err(unfit("the model asked for tools instead")),
        Assistant { text, .. } if text.as_str().is_some_and(|text| text.trim().is_empty()) => Err(unfit("it is empty")),
        Assistant { text, .. } => Ok(text.clone()),
    }
}

/// Which steps are hidden and which stay, in reading order.
struct Fold {
    hidden: Vec<StepId>,
    kept: Vec<StepId>,
}

#[derive(Clone, Copy)]
enum Fate {
    Hidden,
    Kept,
}

impl Fold {
    /// None where there is nothing that a summary would make shorter.
    fn of(session: &Session, keep: usize) -> Option<Self> {
        let messages = session.messages().list;
        let is_answer = |message: &Message<'_>| matches!(message, Message::Assistant(..));
        let answers: Vec<usize> = (0..messages.len()).filter(|at| is_answer(&messages[*at])).collect();
        // Everything goes that stands before the first answer that stays, but for what the user said last.
        let first = match keep {
            0 => messages.len(),
            keep => *answers.get(answers.len().checked_sub(keep)?)?,
        };
        let asked = messages.iter().rposition(|message| matches!(message, Message::User(..)));
        let fates: HashMap<StepId, Fate> = messages
            .iter()
            .enumerate()
            .map(|(at, message)| {
                let fate = if at < first && Some(at) != asked { Fate::Hidden } else { Fate::Kept };
                (message.step().id(), fate)
            })
            .collect();
        // A single message would only be said again in other words.
        if fates.values().filter(|fate| matches!(fate, Fate::Hidden)).count() < 2 {
            return None;
        }
        let mut fold = Fold { hidden: Vec::new(), kept: Vec::new() };
        // What happened to a call goes where its answer goes.
        let mut calls: HashMap<&CallId, Option<Fate>> = HashMap::new();
        for step in session.as_record().steps() {
            let own = fates.get(&step.id()).copied();
            let fate = match step.chunk() {
                Chunk::Assistant(answer) => {
                    calls.extend(answer.calls.iter().map(|call| (&call.id, own)));
                    own
                }
                Chunk::ToolStarted(ToolStarted { call, .. })
                | Chunk::ToolResult(ToolResult { call, .. })
                | Chunk::Approved(Approved { call })
                | Chunk::Denied(Denied { call, .. }) => calls.get(call).copied().flatten(),
                _ => own,
            };
            match fate {
                Some(Fate::Hidden) => fold.hidden.push(step.id()),
                Some(Fate::Kept) => fold.kept.push(step.id()),
                None => {}
            }
        }
        Some(fold)
    }
}
