//! The plan of a round: the action that each call needs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rath_record::Digest;
use rath_record::chunk::{Call, CallOrigin, Image, Json, Outcome, ToolStarted};
use rath_record::turn::{PendingCall, Progress};
use serde_json::Value;

use super::DecidedPaths;
use crate::error::ErrorKind;
use crate::policy::Use;
use crate::sandbox::ExtraAccess;
use crate::session::{Error, Result, Session, WriteTurn};
use crate::tool::context::CallKey;
use crate::tool::{Nature, OUTPUT_LIMIT, ToolCx, ToolHandle, Touch};

/// A call, and the action that it needs.
pub(super) struct CallPlan {
    pub(super) call: Call,
    pub(super) origin: CallOrigin,
    pub(super) action: CallAction,
}

impl CallPlan {
    pub(super) fn parts(&self) -> (&Call, &CallAction) {
        (&self.call, &self.action)
    }
}

/// The action that a call needs.
pub(super) enum CallAction {
    /// The call is not made: its outcome is known already.
    Close(CallOutcome),
    Make(ReadyCall),
    /// A person has to approve the call.
    AskApproval {
        ready: ReadyCall,
        why: String,
        /// The rule or the mode that asks.
        rule: Option<String>,
    },
    /// A person has to decide: the call was started, and its end is unknown.
    AskEnd,
    /// A person has to decide about calls of a workflow that the call runs.
    AskBelow(Vec<PendingCall>),
}

/// A call that can be made.
#[derive(Clone)]
pub(super) struct ReadyCall {
    pub(super) tool: ToolHandle,
    pub(super) arguments: Value,
    pub(super) nature: Nature,
    pub(super) touches: Vec<Touch>,
    pub(super) key: CallKey,
    /// The number of bytes of the output that the model is shown.
    pub(super) output_limit: usize,
    pub(super) time_limit: Duration,
    pub(super) uses: Vec<Use>,
    /// True if the tool asks for an approval of each such call.
    pub(super) needs_approval: bool,
    pub(super) progress: Progress,
    /// The rule that allows the call.
    pub(super) rule: Option<String>,
    /// The access beyond the walls of the sandbox that was allowed for the call.
    pub(super) extra: ExtraAccess,
    /// The paths that the decision about the call was made for.
    pub(super) decided_paths: DecidedPaths,
}

impl ReadyCall {
    /// Returns the step that records the start of the call.
    pub(super) fn start_step(&self, call: &Call) -> ToolStarted {
        let key = matches!(self.nature, Nature::Idempotent { .. }).then(|| self.key.as_str().to_owned());
        ToolStarted::new(call.id.clone()).with_key(key).with_rule(self.rule.clone())
    }

    /// Returns the sessions of workflows that the call ran before it was paused.
    pub(super) fn paused_work(&self, session: &Session, call: &Call) -> Vec<Session> {
        match self.progress {
            Progress::Paused { .. } => session.paused_work(&call.id),
            _ => Vec::new(),
        }
    }

    /// Returns the context of the call. Workflows that it runs take `turn` before they change files.
    pub(super) fn context(
        &self,
        session: &Session,
        call: &Call,
        paused: Vec<Session>,
        turn: Option<&WriteTurn>,
    ) -> Arc<ToolCx> {
        // Another call has the turn of the round while it runs, so its workflows take turns among themselves.
        let turn = turn.filter(|_| self.runs_workflows()).cloned().unwrap_or_default();
        let cx = ToolCx::with_key(session.for_tool().taking_turns(turn), call.clone(), self.key.clone());
        Arc::new(cx.resuming(paused).allowing(self.extra.clone()))
    }

    /// Returns a digest of the files and hosts that a decision about the call is about.
    pub(super) fn subject(&self) -> Digest {
        Digest::compute(format!("{:?} {:?}", self.decided_paths.targets(), self.extra).as_bytes())
    }

    /// Returns true if the call does nothing itself but run workflows.
    pub(super) fn runs_workflows(&self) -> bool {
        self.tool.tool().only_runs_workflows()
    }

    pub(super) fn touches_paths(&self) -> bool {
        self.touches.iter().any(Touch::is_of_path)
    }
}

/// The outcome of a call, and its text for the model.
pub(super) struct CallOutcome {
    pub(super) outcome: Outcome,
    pub(super) text: String,
    /// The number of bytes of the text that the model is shown.
    pub(super) limit: usize,
    pub(super) images: Vec<Image>,
    pub(super) structured: Option<Json>,
}

impl CallOutcome {
    pub(super) fn new(outcome: Outcome, text: impl Into<String>) -> Self {
        CallOutcome { outcome, text: text.into(), limit: OUTPUT_LIMIT, images: Vec::new(), structured: None }
    }
}

/// Decides which action a call needs.
pub(super) fn plan(tools: &[ToolHandle], pending: PendingCall) -> CallPlan {
    let PendingCall { origin, call, progress, .. } = pending;
    let action = match never_made(&progress) {
        Some((outcome, text)) => CallAction::Close(CallOutcome::new(outcome, text)),
        None => match parse_call(tools, &call) {
            // The tool may have been another one then, and the call may have taken effect.
            Err(_) if progress.is_in_doubt() => CallAction::AskEnd,
            Err(outcome) => CallAction::Close(outcome),
            Ok((tool, arguments)) => {
                let key = CallKey::derive(origin.answer, call.id.clone());
                // Methods of the tool may panic.
                let choose = AssertUnwindSafe(|| choose_action(tool, arguments, key, &progress));
                catch_unwind(choose).unwrap_or_else(|_| match progress.is_in_doubt() {
                    true => CallAction::AskEnd,
                    false => CallAction::Close(CallOutcome::new(Outcome::Failed, PANICKED)),
                })
            }
        },
    };
    CallPlan { call, origin, action }
}

/// Returns the outcome of a call that is never made, with its text for the model; none if the call can be made.
pub(crate) fn never_made(progress: &Progress) -> Option<(Outcome, String)> {
    match progress {
        Progress::Denied { reason } => Some((Outcome::Denied, format!("denied: {reason}"))),
        Progress::Forgotten => Some((Outcome::Unknown, FORGOTTEN.to_owned())),
        Progress::Ambiguous => Some((Outcome::Unknown, AMBIGUOUS.to_owned())),
        Progress::Superseded => Some((Outcome::Denied, SUPERSEDED.to_owned())),
        _ => None,
    }
}

const FORGOTTEN: &str = "unknown: what was asked for was forgotten; it was not made again";
const AMBIGUOUS: &str = "unknown: several calls had this id; it was not made again";
const SUPERSEDED: &str = "not made, or not finished: the user said something else first";

pub(super) const PANICKED: &str = "failed: the tool panicked";

/// Finds the tool of a call and parses the arguments, or returns the outcome that tells the model what is wrong.
fn parse_call<'a>(tools: &'a [ToolHandle], call: &Call) -> Result<(&'a ToolHandle, Value), CallOutcome> {
    let Some(tool) = tools.iter().find(|tool| tool.name() == &*call.tool) else {
        let known = tools.iter().map(|tool| format!("`{}`", tool.name())).collect::<Vec<_>>();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(CallOutcome::new(Outcome::UnknownTool, format!("unknown tool `{}`; tools: {known}", call.tool)));
    };
    let Some(text) = call.arguments.as_str() else {
        return Err(CallOutcome::new(
            Outcome::BadJson,
            format!("bad JSON: the arguments are not here: {}", call.arguments),
        ));
    };
    // A call without arguments is a call with none.
    let text = if matches!(text.trim(), "" | "null") { "{}" } else { text };
    let arguments: Value = serde_json::from_str(text).map_err(|error| {
        CallOutcome::new(Outcome::BadJson, format!("bad JSON: the arguments cannot be read: {error}"))
    })?;
    match tool.read_arguments(arguments) {
        Ok(mut arguments) => {
            floats_to_integers(&mut arguments);
            Ok((tool, arguments))
        }
        Err(problem) => Err(CallOutcome::new(Outcome::BadArguments, format!("bad arguments: {problem}"))),
    }
}

/// Replaces `5.0` by `5`: a schema takes both for integers, but serde reads only the second as one.
fn floats_to_integers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            // Above this a float does not tell every integer from the next.
            let whole = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15);
            if let Some(whole) = whole {
                *value = Value::from(whole as i64);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(floats_to_integers),
        Value::Object(members) => members.values_mut().for_each(floats_to_integers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Decides which action a call with valid arguments needs, as far as the record says. The policy is asked later.
fn choose_action(tool: &ToolHandle, arguments: Value, derived_key: CallKey, progress: &Progress) -> CallAction {
    if let Some(problem) = tool.tool().refuses(&arguments) {
        return match progress.is_in_doubt() {
            true => CallAction::AskEnd,
            false => CallAction::Close(CallOutcome::new(Outcome::BadArguments, format!("bad arguments: {problem}"))),
        };
    }
    let nature = tool.tool().nature(&arguments);
    // A workflow goes on from its own record; any other tool would do anew what it did before it was paused.
    let is_paused = matches!(progress, Progress::Paused { .. });
    let is_in_doubt = *progress == Progress::Unknown || (is_paused && !tool.tool().only_runs_workflows());
    // A call that is held is not made again by itself, even if that changes nothing.
    if is_in_doubt && nature == Nature::Effectful || *progress == Progress::HeldUnknown {
        return CallAction::AskEnd;
    }
    let key = match &nature {
        Nature::Idempotent { key: Some(key) } => CallKey::Given(key.clone()),
        _ => derived_key,
    };
    let ready = ReadyCall {
        tool: tool.clone(),
        nature,
        touches: tool.tool().touches(&arguments),
        uses: tool.tool().uses(&arguments),
        needs_approval: tool.tool().needs_approval(&arguments),
        key,
        output_limit: tool.tool().output_limit(),
        time_limit: tool.tool().time_limit(),
        progress: progress.clone(),
        rule: None,
        decided_paths: DecidedPaths::default(),
        extra: ExtraAccess::default(),
        arguments,
    };
    match progress {
        Progress::Held => CallAction::AskApproval { ready, why: HELD.to_owned(), rule: None },
        _ => CallAction::Make(ready),
    }
}

const HELD: &str = "it was asked for on another branch, or before the session was adopted";

/// Returns an error that names every call that a person has to decide on.
pub(super) fn undecided<'a>(calls: impl IntoIterator<Item = (&'a Call, &'a CallAction)>) -> Option<Error> {
    let (mut waiting, mut unknown) = (Vec::new(), Vec::new());
    for (call, action) in calls {
        match action {
            CallAction::AskApproval { .. } => waiting.push(format!("`{}` ({})", call.id, call.tool)),
            CallAction::AskEnd => unknown.push(format!("`{}` ({})", call.id, call.tool)),
            CallAction::AskBelow(calls) => {
                for PendingCall { call, progress, .. } in calls {
                    let list = if progress.is_in_doubt() { &mut unknown } else { &mut waiting };
                    list.push(format!("`{}` ({})", call.id, call.tool));
                }
            }
            CallAction::Close(_) | CallAction::Make(_) => {}
        }
    }
    if waiting.is_empty() && unknown.is_empty() {
        return None;
    }
    let mut why = Vec::new();
    if !waiting.is_empty() {
        why.push(format!("waiting for approval: {}", waiting.join(", ")));
    }
    if !unknown.is_empty() {
        why.push(format!("may have taken effect, and its end is unknown: {}", unknown.join(", ")));
    }
    let hint = match unknown[..] {
        [] => "decide on each with `session.approve(call)` or `session.deny(call, reason)`, and run again",
        _ => {
            "decide on each with `session.approve(call)` (make it again), `session.skip(call)` or \
             `session.give_result(call, result)`, and run again"
        }
    };
    Some(Error::new(ErrorKind::Approval, why.join("; ")).with_hint(hint))
}
