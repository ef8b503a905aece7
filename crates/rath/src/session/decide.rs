//! Decisions of a person about calls.

use std::sync::Arc;

use rath_record::chunk::{Approved, CallOrigin, Chunk, Denied, Outcome, ToolResult};
use rath_record::turn::{self, PendingCall, Progress};
use rath_record::{CallId, Digest, StepId, Text, view};

use super::Session;
use crate::error::ErrorKind;
use crate::policy::Rule;
use crate::session::{Error, Result};
use crate::tool::never_made;

impl Session {
    /// Records the decisions that are made through this session and its forks under the name of a person.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// # fn example(session: Session) -> rath::Result<()> {
    /// let mut session = session.decided_by("Ann");
    /// session.approve("call_1")?; // on record as approved by Ann
    /// # Ok(())
    /// # }
    /// ```
    pub fn decided_by(mut self, person: impl Into<Arc<str>>) -> Self {
        self.live.person = Some(person.into());
        self
    }

    /// Returns the name of the person who decides.
    fn person(&self) -> Option<String> {
        self.live.person.as_deref().map(str::to_owned)
    }

    /// Approves a call that waits for a decision or is in doubt. It runs when the session is run again.
    pub fn approve(&mut self, call: impl Into<CallId>) -> Result<StepId> {
        let PendingCall { call, origin, .. } = self.call_to_decide(&call.into())?;
        let subject = self.asked_subject(&call.id, origin);
        let approved = Approved::new(call.id).with_origin(origin).with_subject(subject);
        Ok(self.push(approved.with_by(self.person())))
    }

    /// Denies a call that waits for a decision or is in doubt. The model reads the reason.
    pub fn deny(&mut self, call: impl Into<CallId>, reason: impl Into<Text>) -> Result<StepId> {
        let PendingCall { call, origin, .. } = self.call_to_decide(&call.into())?;
        Ok(self.push(Denied::new(call.id, reason).with_origin(origin).with_by(self.person())))
    }

    /// Closes a call in doubt without running it again. The model reads that its outcome is unknown, or why it is never made.
    ///
    /// Its files are looked at first: what changed since the call began is recorded as changed by the call or by others.
    pub async fn skip(&mut self, call: impl Into<CallId>) -> Result<StepId> {
        const NOT_KNOWN: &str = "and whether it took effect is not known; it was not made again";
        let call = call.into();
        let progress = self.open_call(&call)?.progress;
        if matches!(progress, Progress::New | Progress::Held | Progress::Approved) {
            let message = format!("the call `{call}` was not started");
            let hint = "deny or approve it; only a call that was started can be skipped";
            return Err(Error::new(ErrorKind::Approval, message).with_hint(hint).with_session(self));
        }
        let start = if progress == Progress::HeldUnknown { "may have been" } else { "was" };
        let unknown = || (Outcome::Unknown, format!("unknown: it {start} started, {NOT_KNOWN}"));
        let (outcome, text) = never_made(&progress).unwrap_or_else(unknown);
        self.close(call, outcome, text.into()).await
    }

    /// Closes a call in doubt with a result that a person found out. The model reads it as the output of the tool.
    ///
    /// Its files are looked at first, as by [`skip`](Session::skip).
    pub async fn give_result(&mut self, call: impl Into<CallId>, output: impl Into<Text>) -> Result<StepId> {
        self.close(call.into(), Outcome::Ok, output.into()).await
    }

    /// Looks at the files, and closes a call.
    async fn close(&mut self, call: CallId, outcome: Outcome, output: Text) -> Result<StepId> {
        let call = self.open_call(&call)?.call.id;
        self.look().await?;
        // Without a look the tree is not known: the directory may be missing for now.
        let tree = if view::unobserved(&self.record).is_none() { self.tree() } else { None };
        Ok(self.push(ToolResult::new(call, outcome, output).with_tree(tree)))
    }

    /// Returns the rules that a person gave with an approval in this session, and that are in force.
    pub(crate) fn granted_rules(&self) -> Vec<Rule> {
        let since = self.as_record().newest_first().take_while(|step| !step.voids_earlier_decisions());
        let rules = since.filter_map(|step| match step.chunk() {
            Chunk::Approved(approved) => Some(&approved.rules),
            _ => None,
        });
        rules.flatten().filter_map(|rule| rule.parse().ok()).collect()
    }

    /// Returns the subject of the last question about a call; none if the call was not asked about.
    fn asked_subject(&self, call: &CallId, origin: CallOrigin) -> Option<Digest> {
        self.chunks_about(origin).find_map(|chunk| match chunk {
            Chunk::Asked(asked) if asked.call == *call => asked.subject,
            _ => None,
        })
    }

    /// Returns the chunks in which a decision about a call can be in force, from the newest back to the answer that asks for the call.
    pub(crate) fn chunks_about(&self, origin: CallOrigin) -> impl Iterator<Item = &Chunk> {
        let since_answer = self.as_record().newest_first().take_while(move |step| step.id() != origin.answer);
        since_answer.take_while(|step| !step.voids_earlier_decisions()).map(|step| step.chunk())
    }

    /// Returns the open call with this id, or an error if it is never made.
    fn call_to_decide(&self, id: &CallId) -> Result<PendingCall> {
        let pending = self.open_call(id)?;
        let why = match pending.progress {
            Progress::Forgotten => "it was forgotten",
            Progress::Ambiguous => "another open call has its id",
            _ => return Ok(pending),
        };
        let message = format!("the call `{id}` is not made: {why}");
        let hint = "run the session: the model reads that";
        Err(Error::new(ErrorKind::Approval, message).with_hint(hint).with_session(self))
    }

    /// Returns the call without a result that a decision is about, or an error that lists those.
    fn open_call(&self, call: &CallId) -> Result<PendingCall> {
        self.require_own("decide about its calls")?;
        let open = self.open_calls();
        if let Some(pending) = turn::call_to_decide(&open, call) {
            return Ok(pending.clone());
        }
        let hint = match &open[..] {
            [] => "every call in this session has its result".to_owned(),
            open => {
                let calls = open.iter().map(|pending| format!("`{}` ({})", pending.call.id, pending.call.tool));
                format!("calls without a result: {}", calls.collect::<Vec<_>>().join(", "))
            }
        };
        let message = format!("no call `{call}` waits for a decision");
        Err(Error::new(ErrorKind::Approval, message).with_hint(hint).with_session(self))
    }
}
