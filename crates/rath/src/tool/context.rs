//! The context of a tool call.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rath_record::chunk::{Call, Checked, Chunk};
use rath_record::{CallId, Digest, StepId, Text};

use super::hiding::hiding;
use super::source::TOOLS_NOTE;
use crate::blocking::run_blocking;
use crate::error::ErrorKind;
use crate::flow::{Run, module_name};
use crate::sandbox::{ExtraAccess, Root, Sandbox};
use crate::secrets::SecretStream;
use crate::session::{Error, EventKind, ProgressTracker, Result, Session};

/// The idempotency key of a call.
#[derive(Clone)]
pub(super) enum CallKey {
    /// A key that the tool chose.
    Given(String),
    /// A key that follows from the call. It is computed when it is first needed.
    Derived { answer: StepId, call: CallId, digest: OnceLock<String> },
}

impl CallKey {
    /// Creates the key that follows from a call and the answer that asked for it.
    pub(super) fn derive(answer: StepId, call: CallId) -> Self {
        CallKey::Derived { answer, call, digest: OnceLock::new() }
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            CallKey::Given(key) => key,
            CallKey::Derived { answer, call, digest } => {
                digest.get_or_init(|| Digest::compute(format!("{answer} {call}").as_bytes()).to_string())
            }
        }
    }
}

/// The depth to which tools may run workflows that call tools. It ends an agent that delegates its task to itself.
const MAX_NESTING: u32 = 16;

/// The context of a tool call: the session, the call, and the place that the tool works in.
///
/// ```
/// use rath::chunk::Call;
/// use rath::prelude::*;
///
/// /// Greet a person.
/// #[tool]
/// async fn greet(cx: &ToolCx, name: String) -> String {
///     cx.output("greeting .."); // for the listeners of the run
///     format!("hello {name}")
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// let cx = ToolCx::new(Session::user("Greet Ada."), Call::new("c1", "greet", r#"{"name": "Ada"}"#));
/// let output = greet.call(&cx, serde_json::json!({ "name": "Ada" })).await?;
/// assert_eq!(output.text, "hello Ada");
/// # Ok(())
/// # }
/// ```
pub struct ToolCx {
    /// The session when the call was made.
    session: Session,
    call: Call,
    key: CallKey,
    /// The workflows that were run for this call.
    workflows: Mutex<Vec<Arc<ProgressTracker>>>,
    /// The results of checks that ran for this call.
    checks: Mutex<Vec<Checked>>,
    /// The notes that are recorded before the result of the call.
    notes: Mutex<Vec<String>>,
    /// The reports of progress, of which one may end in the middle of a secret.
    reports: Mutex<SecretStream>,
    /// The sessions of workflows that were run before the call was paused.
    paused: Mutex<Vec<Session>>,
    /// The access beyond the walls of the sandbox that was allowed for this call.
    extra: ExtraAccess,
}

impl ToolCx {
    pub(super) fn with_key(session: Session, call: Call, key: CallKey) -> Self {
        let reports = Mutex::new(session.secrets().stream());
        let (workflows, checks, notes, paused) = Default::default();
        ToolCx { session, call, key, workflows, checks, notes, reports, paused, extra: ExtraAccess::default() }
    }

    /// Gives the call the sessions of the workflows that it ran before it was paused.
    pub(super) fn resuming(mut self, paused: Vec<Session>) -> Self {
        self.paused = Mutex::new(paused);
        self
    }

    /// Creates a context to test a tool with: `tool.call(&ToolCx::new(session, call), arguments)`.
    pub fn new(session: Session, call: Call) -> Self {
        let key = CallKey::Given(call.id.to_string());
        ToolCx::with_key(session, call, key)
    }

    /// Returns the session that the call is part of, as it was when the call was made.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the call.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Returns the idempotency key of the call: it stays the same when the call is made again, and no other call has it.
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Returns the sandbox that the session's tools run in, for files and commands.
    pub async fn sandbox(&self) -> Result<Sandbox> {
        let sandbox = self.session.branch_sandbox().await?;
        Ok(match self.session.policy() {
            Some(policy) => hiding(sandbox, policy),
            None => sandbox,
        })
    }

    /// Resolves a path in the session's workspace, which has to be a directory on this machine.
    ///
    /// The path is relative to the workspace and may not leave it, by `..` or by a symlink. A file that is replaced by a
    /// symlink after this check is not noticed; the methods of [`ToolCx::sandbox`] are safe against that.
    pub async fn path(&self, path: &str) -> Result<PathBuf> {
        let (sandbox, path) = (self.sandbox().await?, path.to_owned());
        run_blocking(move || {
            let elsewhere =
                || Error::new(ErrorKind::Place, format_args!("{} is not a directory on this machine", sandbox.uri()));
            let root = Root::open(sandbox.directory().ok_or_else(elsewhere)?)?;
            Ok(root.path().join(root.resolve(&path)?))
        })
        .await
    }

    /// Gives the call access beyond the walls of the sandbox, which a rule or a person allowed.
    pub(super) fn allowing(mut self, extra: ExtraAccess) -> Self {
        self.extra = extra;
        self
    }

    /// Returns the access beyond the walls of the sandbox that a rule or a person allowed for this call.
    pub(crate) fn extra_access(&self) -> &ExtraAccess {
        &self.extra
    }

    /// Adds the result of a check, which is recorded before the result of the call.
    pub(crate) fn add_check(&self, checked: Checked) {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).push(checked);
    }

    /// Takes the results of checks that ran for this call.
    pub(super) fn take_checks(&self) -> Vec<Checked> {
        std::mem::take(&mut self.checks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a note to the record, before the result of the call. The model does not read it.
    ///
    /// For what happened on the way and is neither output nor a file: that a server was started again, for example.
    pub fn note(&self, text: impl Into<String>) {
        let text = format!("{TOOLS_NOTE}{}", text.into());
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// Takes the notes that were added for this call.
    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reports progress to the listeners of the run. The model does not read it.
    pub fn output(&self, text: impl Into<String>) {
        if self.session.hub().is_empty() {
            return;
        }
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        self.report(reports.push(&text.into()) + &reports.release_short());
    }

    /// Reports what was held back of the last report.
    pub(super) fn finish_output(&self) {
        self.report(self.reports.lock().unwrap_or_else(PoisonError::into_inner).finish());
    }

    fn report(&self, text: String) {
        if !text.is_empty() {
            self.session.emit(|| EventKind::ToolOutput { call: self.call.id.clone(), text });
        }
    }

    /// Runs a workflow on a task, in a session of its own, and returns that session: `session.text()` is its answer.
    ///
    /// The workflow works in the same place and on the same budget. Its work is kept aside on the record of the session that
    /// the call is part of, also if it fails.
    ///
    /// If a call in the workflow waits for a person, the error says so. A tool that returns it is paused: its own call waits as
    /// well, and when the person has decided, it is made again and the workflow goes on from where it stopped.
    pub async fn run(&self, workflow: &dyn Run, task: impl Into<Text>) -> Result<Session> {
        if self.session.nesting() >= MAX_NESTING {
            let message = format!("tools are nested {MAX_NESTING} deep already");
            return Err(Error::new(ErrorKind::Limit, message).with_session(&self.session));
        }
        let (name, task) = (module_name(&self.session, workflow), task.into());
        let (session, is_new) = match self.take_paused(&name, &task) {
            Some(paused) => (self.continue_paused(paused).await?, false),
            None => (self.session.aside(name), true),
        };
        let mut session = session.nested();
        let tracker = ProgressTracker::new(&session);
        let hub = session.hub().with_tracker(&tracker);
        session = session.heard_by(hub);
        if is_new {
            session.push(Chunk::user(task));
        }
        tracker.update(&session);
        self.workflows.lock().unwrap_or_else(PoisonError::into_inner).push(tracker.clone());
        let result = workflow.run(session).await;
        let last = result.as_ref().ok().or_else(|| result.as_ref().err().and_then(Error::session));
        last.into_iter().for_each(|session| tracker.update(session));
        result
    }

    /// Takes the session of a workflow that this call ran before it was paused.
    fn take_paused(&self, name: &str, task: &Text) -> Option<Session> {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        let index = paused.iter().position(|work| task.as_str().is_some_and(|task| work.is_work_on(name, task)))?;
        Some(paused.remove(index))
    }

    /// Returns the session of a paused workflow, ready to go on: with the listeners and the store of this one.
    async fn continue_paused(&self, paused: Session) -> Result<Session> {
        let mut paused = paused.heard_by(self.session.hub().clone());
        paused.set_by(self.session.module().map(Arc::from));
        match self.session.store() {
            Some(store) => paused.record(store).await,
            None => Ok(paused),
        }
    }

    /// Returns the sessions of workflows that were run for this call, as far as they came.
    pub(super) fn workflow_sessions(&self) -> Vec<Session> {
        let workflows = self.workflows.lock().unwrap_or_else(PoisonError::into_inner);
        workflows.iter().flat_map(|tracker| tracker.branches()).filter(|session| session.head().is_some()).collect()
    }
}
