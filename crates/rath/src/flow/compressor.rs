//! Folding the older part of a conversation into a summary.

use std::collections::HashMap;
use std::fmt;

use rath_record::chunk::{
    Approved, Asked, Assistant, Chunk, Compressed, Denied, Finish, Instructions, ToolResult, ToolStarted,
};
use rath_record::view::Message;
use rath_record::{CallId, Step, StepId, Text};

use super::Workflow;
use super::module::{Binding, Module};
use crate::error::ErrorKind;
use crate::provider::Provider;
use crate::session::{Error, Result, Session};

/// Folds the older part of a conversation into a summary.
///
/// Nothing is removed: a step is added that names the steps which the model no longer sees and those which it still does.
/// Calls are hidden with their results or not at all. [`Session::folds`] returns each summary with the steps that it stands
/// for.
///
/// ```
/// use rath::prelude::*;
///
/// # fn example(agent: Agent, provider: &Provider) -> Agent {
/// // By hand: `compressor.run(session).await?`. By itself, when a conversation fills three quarters of the window:
/// agent.compress(Compressor::new(provider).window(128_000).share(0.75))
/// # }
/// ```
#[derive(Clone)]
pub struct Compressor {
    provider: Provider,
    prompt: Text,
    keep_answers: usize,
    window: Option<u64>,
    share: f64,
}

const DEFAULT_PROMPT: &str = "\
You fold conversations. Write a summary that stands for the conversation so far, for a model that will go on from it and \
sees nothing else: what was asked for, what was found and decided, which files and names matter, what is still to be done. \
Be exact and brief. Write nothing but the summary.";

/// The last message to the model, so that it does not take the conversation above for its task.
const SUMMARY_REQUEST: &str = "Write the summary of the conversation above.";

impl Compressor {
    /// Creates a compressor that asks this model for summaries.
    pub fn new(provider: &Provider) -> Self {
        Compressor {
            provider: provider.clone(),
            prompt: DEFAULT_PROMPT.into(),
            keep_answers: 2,
            window: None,
            share: 0.8,
        }
    }

    /// Sets the prompt.
    pub fn prompt(mut self, prompt: impl Into<Text>) -> Self {
        self.prompt = prompt.into();
        self
    }

    /// Sets how many of the newest answers stay visible, each with its calls and results; two by default.
    ///
    /// The user's newest message always stays visible, and so does everything after the newest answer.
    pub fn keep(mut self, answers: usize) -> Self {
        self.keep_answers = answers;
        self
    }

    /// Sets the size of the context window, in tokens, of the model whose conversation is folded.
    ///
    /// An agent with this compressor folds its conversation by itself only if the window is set.
    pub fn window(mut self, tokens: u64) -> Self {
        self.window = Some(tokens);
        self
    }

    /// Sets the share of the window that may be filled before the conversation is folded; 0.8 by default.
    pub fn share(mut self, share: f64) -> Self {
        self.share = share;
        self
    }

    /// Returns true if a conversation is about to fill the window.
    pub(super) fn is_due(&self, session: &Session, provider: &Provider) -> Result<bool> {
        let Some(window) = self.window else { return Ok(false) };
        Ok(provider.tokens(session)? as f64 >= window as f64 * self.share)
    }
}

impl Workflow for Compressor {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        let Some(plan) = FoldPlan::new(&session, self.keep_answers) else { return Ok(session) };
        let mut aside = session.fork_named("compressor");
        aside.push(Instructions::new(self.prompt.clone()).with_provider(self.provider.identity().clone()));
        aside.push(Chunk::user(SUMMARY_REQUEST));
        let aside = ask_aside(&self.provider, &mut session, aside).await?;
        let summary = read_summary(&aside).map_err(|error| error.with_session(&session))?;
        let FoldPlan { hidden, kept } = plan;
        session.push(Compressed::new(hidden, summary).with_kept(kept));
        Ok(session)
    }
}

/// Asks a model in a session aside. Its work is kept aside on the record, also if the model call fails.
pub(super) async fn ask_aside(provider: &Provider, session: &mut Session, aside: Session) -> Result<Session> {
    let result = provider.ask(aside).await;
    let work = result.as_ref().ok().or_else(|| result.as_ref().err().and_then(Error::session));
    if let Some(work) = work {
        session.keep_aside(work);
    }
    result.map_err(|error| error.with_session(session))
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

/// Prints the tree.
impl fmt::Display for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tree())
    }
}

/// Returns the summary that a model gave, or an error if it cannot stand for the steps that it would hide.
fn read_summary(session: &Session) -> Result<Text> {
    let unusable = |why: &str| {
        Error::new(ErrorKind::Summary, format_args!("the summary cannot be used: {why}"))
            .with_hint("nothing was hidden; allow the model more tokens, or use another model")
    };
    let Some(Chunk::Assistant(answer)) = session.head().map(Step::chunk) else {
        return Err(unusable("the model gave none"));
    };
    match answer {
        Assistant { finish: Finish::Length, .. } => Err(unusable("the model ran out of tokens")),
        Assistant { finish: Finish::Filtered, .. } => Err(unusable("the provider withheld part of it")),
        Assistant { calls, .. } if !calls.is_empty() => Err(unusable("the model asked for tools instead")),
        Assistant { text, .. } if text.as_str().is_some_and(|text| text.trim().is_empty()) => {
            Err(unusable("it is empty"))
        }
        Assistant { text, .. } => Ok(text.clone()),
    }
}

/// The steps that a fold hides and those that it keeps visible, in the order of the record.
struct FoldPlan {
    hidden: Vec<StepId>,
    kept: Vec<StepId>,
}

#[derive(Clone, Copy)]
enum Visibility {
    Hidden,
    Kept,
}

impl FoldPlan {
    /// Plans a fold. Returns `None` if a summary would make nothing shorter.
    fn new(session: &Session, keep_answers: usize) -> Option<Self> {
        let messages = session.messages().list;
        let is_answer = |message: &Message<'_>| matches!(message, Message::Assistant(..));
        let answers: Vec<usize> = (0..messages.len()).filter(|at| is_answer(&messages[*at])).collect();
        // Everything before the first answer that is kept is hidden, except the user's newest message.
        let first_kept = match keep_answers {
            0 => messages.len(),
            count => *answers.get(answers.len().checked_sub(count)?)?,
        };
        let newest_question = messages.iter().rposition(|message| matches!(message, Message::User(..)));
        let visibility: HashMap<StepId, Visibility> = messages
            .iter()
            .enumerate()
            .map(|(at, message)| {
                let is_hidden = at < first_kept && Some(at) != newest_question;
                (message.step().id(), if is_hidden { Visibility::Hidden } else { Visibility::Kept })
            })
            .collect();
        // A summary of a single message would be no shorter.
        if visibility.values().filter(|visibility| matches!(visibility, Visibility::Hidden)).count() < 2 {
            return None;
        }
        let mut plan = FoldPlan { hidden: Vec::new(), kept: Vec::new() };
        // The steps of a call are hidden or kept together with the answer that asked for it.
        let mut calls: HashMap<&CallId, Option<Visibility>> = HashMap::new();
        for step in session.as_record().steps() {
            let own = visibility.get(&step.id()).copied();
            let of_step = match step.chunk() {
                Chunk::Assistant(answer) => {
                    calls.extend(answer.calls.iter().map(|call| (&call.id, own)));
                    own
                }
                Chunk::ToolStarted(ToolStarted { call, .. })
                | Chunk::ToolResult(ToolResult { call, .. })
                | Chunk::Asked(Asked { call, .. })
                | Chunk::Approved(Approved { call, .. })
                | Chunk::Denied(Denied { call, .. }) => calls.get(call).copied().flatten(),
                _ => own,
            };
            match of_step {
                Some(Visibility::Hidden) => plan.hidden.push(step.id()),
                Some(Visibility::Kept) => plan.kept.push(step.id()),
                None => {}
            }
        }
        Some(plan)
    }
}
