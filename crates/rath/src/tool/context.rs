//! What a tool knows of the call it answers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rath_record::chunk::{Call, Checked, Chunk};
use rath_record::{CallId, Digest, StepId, Text};

use crate::error::ErrorKind;
use crate::event::{EventKind, Newest};
use crate::flow::{Run, Scope};
use crate::sandbox::{Root, Sandbox};
use crate::session::Session;
use crate::session::{Error, Result};

/// The key of a call.
#[derive(Clone)]
pub(super) enum Key {
    /// What the tool says.
    Given(String),
    /// The call's own, made when somebody asks for it.
    Own { answer: StepId, call: CallId, made: OnceLock<String> },
}

impl Key {
    /// One that is this call's own.
    pub(super) fn of(answer: StepId, call: CallId) -> Self {
        Key::Own { answer, call, made: OnceLock::new() }
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            Key::Given(key) => key,
            Key::Own { answer, call, made } => {
                made.get_or_init(|| Digest::of(format!("{answer} {call}").as_bytes()).to_string())
            }
        }
    }
}

/// How many tools deep work can be: an agent that gives its own task to itself ends here.
const NESTED_MOST: u32 = 16;

/// What a tool knows of the call it answers.
pub struct ToolCx {
    /// As it was when the call was made.
    session: Session,
    call: Call,
    key: Key,
    /// The work of others that was done for this call.
    work: Mutex<Vec<Arc<Newest>>>,
    /// What checks found that ran for this call.
    checks: Mutex<Vec<Checked>>,
}

impl ToolCx {
    pub(super) fn new(session: Session, call: Call, key: Key) -> Self {
        ToolCx { session, call, key, work: Mutex::default(), checks: Mutex::default() }
    }

    /// The context of a call that nobody made, to try a tool with: `tool.call(&ToolCx::of(session, call), arguments)`.
    pub fn of(session: Session, call: Call) -> Self {
        let key = Key::Given(call.id.to_string());
        ToolCx::new(session, call, key)
    }

    /// The session that the call is part of, as it was when the call was made.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The call.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// A key for whoever must not do the same thing twice: the same whenever this call is made, and no other call's.
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// The sandbox that the session's tools run in: its files and its commands.
    pub fn sandbox(&self) -> Result<Sandbox> {
        self.session.branch_dir().map(|dir| dir.sandbox().clone())
    }

    /// The file that a path means in the session's workspace, which has to be a directory on this machine.
    ///
    /// The path is relative to it, and may not lead out of it, by `..` or by a link. What is done with the file afterwards
    /// is not watched: [`ToolCx::sandbox`] reads and writes so that nothing that is swapped meanwhile leads out.
    pub fn path(&self, path: &str) -> Result<PathBuf> {
        let sandbox = self.sandbox()?;
        let elsewhere =
            || Error::new(ErrorKind::Place, format_args!("{} is no directory of this machine", sandbox.uri()));
        let root = Root::open(sandbox.directory().ok_or_else(elsewhere)?)?;
        Ok(root.path().join(root.resolve(path)?))
    }

    /// Puts what a check found on the record of the session that the call is part of.
    pub(crate) fn checked(&self, checked: Checked) {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).push(checked);
    }

    /// What checks found that ran for this call.
    pub(super) fn checks(&self) -> Vec<Checked> {
        std::mem::take(&mut self.checks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells whoever listens how the work gets on. The model does not read it.
    pub fn output(&self, text: impl Into<String>) {
        self.session.emit(|| EventKind::ToolOutput { call: self.call.id.clone(), text: text.into() });
    }

    /// Gives a task to a workflow, in a session of its own, and gives back what came of it: `session.text()` is its answer.
    ///
    /// It works in the same place and on the same budget. What it did is kept aside on the record of the session that the
    /// call is part of, however it ended. Nobody can be asked for a decision on the way: a tool that needs one is denied.
    pub async fn run(&self, workflow: &dyn Run, task: impl Into<Text>) -> Result<Session> {
        if self.session.nesting() >= NESTED_MOST {
            let message = format!("work is {NESTED_MOST} tools deep already");
            return Err(Error::new(ErrorKind::Limit, message).with_session(&self.session));
        }
        let mut session = self.session.aside(Scope::name(&self.session, workflow)).nested();
        let work = Newest::of(&session);
        let hub = session.hub().with_newest(&work);
        session = session.heard_by(hub);
        session.push(Chunk::user(task));
        work.see(&session);
        self.work.lock().unwrap_or_else(PoisonError::into_inner).push(work.clone());
        let result = workflow.run(session).await;
        let left = result.as_ref().ok().or_else(|| result.as_ref().err().and_then(Error::session));
        left.into_iter().for_each(|session| work.see(session));
        result
    }

    /// The work of others that was done for this call, as far as it came.
    pub(super) fn work(&self) -> Vec<Session> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.iter().flat_map(|work| work.all()).filter(|session| session.head().is_some()).collect()
    }
}
