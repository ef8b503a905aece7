//! What a person decides about a call.

use rath_record::chunk::{Approved, Denied, Outcome, ToolResult};
use rath_record::{CallId, StepId, Text, turn};

use super::Session;
use crate::error::ErrorKind;
use crate::session::{Error, Result};

impl Session {
    /// Lets a call go ahead that waits for a decision, or that nobody knows the end of.
    pub fn approve(&mut self, call: impl Into<CallId>) -> Result<StepId> {
        let call = self.open_call(call.into())?;
        Ok(self.push(Approved { call }))
    }

    /// Refuses such a call. The model reads the reason.
    pub fn deny(&mut self, call: impl Into<CallId>, reason: impl Into<Text>) -> Result<StepId> {
        let call = self.open_call(call.into())?;
        Ok(self.push(Denied { call, reason: reason.into() }))
    }

    /// Closes a call that nobody knows the end of, without making it again. The model reads that it is not known.
    pub fn skip(&mut self, call: impl Into<CallId>) -> Result<StepId> {
        const WHY: &str = "unknown: it was started, and whether it took effect is not known; it was not made again";
        let call = self.open_call(call.into())?;
        Ok(self.push(ToolResult::new(call, Outcome::Unknown, WHY)))
    }

    /// Closes a call with a result that a person found out. The model reads it as what the tool said.
    pub fn settle(&mut self, call: impl Into<CallId>, output: impl Into<Text>) -> Result<StepId> {
        let call = self.open_call(call.into())?;
        Ok(self.push(ToolResult::new(call, Outcome::Ok, output)))
    }

    /// The name of a call that has no result.
    fn open_call(&self, call: CallId) -> Result<CallId> {
        let open = match self.next() {
            turn::Next::RunTools(open) => open,
            turn::Next::AskModel | turn::Next::Done => Vec::new(),
        };
        if open.iter().any(|pending| pending.call.id == call) {
            return Ok(call);
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
