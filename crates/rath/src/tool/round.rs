//! A round of tool calls: the calls of one answer, run concurrently where possible.
//!
//! Results are appended in the order of the calls.

mod files;
mod replay;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rath_record::Text;
use rath_record::chunk::{Call, Effect, Outcome, ToolResult, ToolStarted};
use rath_record::turn::{PendingCall, Progress};
use serde_json::Value;

use self::files::{FileChanges, RoundFiles};
use super::context::CallKey;
use super::output::truncate;
use super::schedule::{TouchSet, normalize_path};
use super::{Nature, OUTPUT_LIMIT, Output, ToolCx, ToolHandle, Touch};
use crate::blocking::run_blocking;
use crate::error::ErrorKind;
use crate::sandbox::Root;
use crate::session::{Error, EventKind, Result, Session, stop_reason, within_limits};

/// The tools of an agent, and the number of calls that may run at once.
pub(crate) struct Toolbox<'a> {
    pub(crate) tools: &'a [ToolHandle],
    /// The number of calls that may run at once.
    pub(crate) max_concurrent: usize,
}

/// The extent to which the model was shown the outputs of a round.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum OutputVisibility {
    Full,
    /// An output was cut.
    Partial,
}

/// Makes the calls that have no result yet, and appends their results.
///
/// If one of them waits for a decision, none is made.
pub(crate) async fn run_calls(
    session: &mut Session,
    toolbox: &Toolbox<'_>,
    pending: Vec<PendingCall>,
) -> Result<OutputVisibility> {
    session.require_own("make its calls")?;
    let plans: Vec<_> = pending.into_iter().map(|pending| plan(session, toolbox.tools, pending)).collect();
    if let Some(error) = undecided(&plans) {
        return Err(error.with_session(session));
    }
    if let Some(replay) = session.replaying().cloned() {
        return Box::pin(replay::run(session, &replay, plans)).await;
    }
    let mut round = Round::new(plans);
    round.prepare(session).await;
    let mut running = FuturesUnordered::new();
    loop {
        round.append(session).await;
        // No call starts after the limit is reached.
        if let Some(reason) = stop_reason(session) {
            while let Some(Some((nth, outcome))) = running.next().now_or_never() {
                round.finish(session, nth, outcome);
            }
            drop(running);
            if let Some(nth) = round.first_writer() {
                round.snapshot_after(session, nth).await?;
            }
            round.abort(session).await;
            round.files.save_progress(session).await?;
            return Err(reason.record(session));
        }
        round.snapshot_before(session).await?;
        let started = round.start(session, toolbox.max_concurrent.saturating_sub(running.len())).await?;
        // The start of a call is durable before the call runs: otherwise a crash could leave an effect that is not recorded.
        if !started.is_empty() {
            session.durable().await?;
        }
        for (nth, ready, cx) in started {
            running.push(make_call(nth, ready, cx));
        }
        if running.is_empty() {
            round.files.save_progress(session).await?;
            return Ok(round.visibility);
        }
        // If a limit ends the wait, the next turn of the loop handles it.
        if let Ok(Some((nth, outcome))) = within_limits(session, running.next()).await {
            round.snapshot_after(session, nth).await?;
            round.finish(session, nth, outcome);
        }
    }
}

/// A call, and the action that it needs.
struct CallPlan {
    call: Call,
    action: CallAction,
}

/// The action that a call needs.
enum CallAction {
    /// The call is not made: its outcome is known already.
    Close(CallOutcome),
    Make(ReadyCall),
    /// A person has to decide.
    AskPerson(OpenQuestion),
}

/// The reason why a person has to decide about a call.
#[derive(Clone, Copy, PartialEq)]
enum OpenQuestion {
    NeedsApproval,
    /// The call was started, and its end is unknown.
    UnknownEnd,
}

/// A call that can be made.
#[derive(Clone)]
struct ReadyCall {
    tool: ToolHandle,
    arguments: Value,
    nature: Nature,
    touches: Vec<Touch>,
    key: CallKey,
    /// The number of bytes of the output that the model is shown.
    output_limit: usize,
    time_limit: Duration,
    /// True if the record has the start of the call already.
    started: bool,
}

impl ReadyCall {
    fn touches_paths(&self) -> bool {
        self.touches.iter().any(Touch::is_of_path)
    }
}

/// The outcome of a call, and its text for the model.
struct CallOutcome {
    outcome: Outcome,
    text: String,
    /// The number of bytes of the text that the model is shown.
    limit: usize,
}

impl CallOutcome {
    fn new(outcome: Outcome, text: impl Into<String>) -> Self {
        CallOutcome { outcome, text: text.into(), limit: OUTPUT_LIMIT }
    }
}

/// Decides which action a call needs.
fn plan(session: &Session, tools: &[ToolHandle], pending: PendingCall) -> CallPlan {
    let PendingCall { step, call, progress, .. } = pending;
    let action = match &progress {
        Progress::Denied { reason } => {
            CallAction::Close(CallOutcome::new(Outcome::Denied, format!("denied: {reason}")))
        }
        Progress::Superseded => CallAction::Close(CallOutcome::new(Outcome::Denied, SUPERSEDED)),
        _ => match parse_call(tools, &call) {
            // The tool may have been another one then, and the call may have taken effect.
            Err(_) if progress == Progress::Unknown => CallAction::AskPerson(OpenQuestion::UnknownEnd),
            Err(outcome) => CallAction::Close(outcome),
            Ok((tool, arguments)) => {
                let key = CallKey::derive(step, call.id.clone());
                // Methods of the tool may panic.
                let choose = AssertUnwindSafe(|| choose_action(session, tool, arguments, key, &progress));
                catch_unwind(choose).unwrap_or_else(|_| match progress {
                    Progress::Unknown => CallAction::AskPerson(OpenQuestion::UnknownEnd),
                    _ => CallAction::Close(CallOutcome::new(Outcome::Failed, PANICKED)),
                })
            }
        },
    };
    CallPlan { call, action }
}

const SUPERSEDED: &str = "not made: the user said something else before it was started";

const PANICKED: &str = "failed: the tool panicked";

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
    let mut arguments: Value = serde_json::from_str(text).map_err(|error| {
        CallOutcome::new(Outcome::BadJson, format!("bad JSON: the arguments cannot be read: {error}"))
    })?;
    match tool.check(&arguments) {
        Ok(()) => {
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

fn choose_action(
    session: &Session,
    tool: &ToolHandle,
    arguments: Value,
    derived_key: CallKey,
    progress: &Progress,
) -> CallAction {
    let nature = tool.tool().nature(&arguments);
    match progress {
        Progress::Held | Progress::New if *progress == Progress::Held || tool.tool().needs_approval(&arguments) => {
            if session.nesting() > 0 {
                let why = "denied: the call needs a person's approval, and no person can be asked here";
                return CallAction::Close(CallOutcome::new(Outcome::Denied, why));
            }
            return CallAction::AskPerson(OpenQuestion::NeedsApproval);
        }
        Progress::Unknown if nature == Nature::Effectful => return CallAction::AskPerson(OpenQuestion::UnknownEnd),
        _ => {}
    }
    let touches = tool.tool().touches(&arguments);
    let key = match &nature {
        Nature::Idempotent { key: Some(key) } => CallKey::Given(key.clone()),
        _ => derived_key,
    };
    let started = *progress == Progress::Unknown;
    let (output_limit, time_limit) = (tool.tool().output_limit(), tool.tool().time_limit());
    CallAction::Make(ReadyCall {
        tool: tool.clone(),
        arguments,
        nature,
        touches,
        key,
        output_limit,
        time_limit,
        started,
    })
}

/// Returns an error that names every call that a person has to decide on.
fn undecided(plans: &[CallPlan]) -> Option<Error> {
    let calls_with = |question: OpenQuestion| {
        let calls = plans.iter().filter(|plan| matches!(plan.action, CallAction::AskPerson(why) if why == question));
        calls.map(|plan| format!("`{}` ({})", plan.call.id, plan.call.tool)).collect::<Vec<_>>()
    };
    let (waiting, unknown) = (calls_with(OpenQuestion::NeedsApproval), calls_with(OpenQuestion::UnknownEnd));
    if waiting.is_empty() && unknown.is_empty() {
        return None;
    }
    let mut why = Vec::new();
    if !waiting.is_empty() {
        why.push(format!("waiting for approval: {}", waiting.join(", ")));
    }
    if !unknown.is_empty() {
        why.push(format!("started, and its end is unknown: {}", unknown.join(", ")));
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

type CallFuture = Pin<Box<dyn Future<Output = (usize, CallOutcome)> + Send>>;

/// Makes one call. A panic and a timeout are outcomes that a model can read, too.
fn make_call(nth: usize, ready: ReadyCall, cx: Arc<ToolCx>) -> CallFuture {
    Box::pin(async move {
        let ReadyCall { tool, arguments, output_limit: limit, time_limit, .. } = ready;
        let work = AssertUnwindSafe(async { tool.tool().call(&cx, arguments).await }).catch_unwind();
        let outcome = match tokio::time::timeout(time_limit, work).await {
            Ok(Ok(Ok(Output { text }))) => CallOutcome { outcome: Outcome::Ok, text, limit },
            Ok(Ok(Err(error))) if error.kind() == ErrorKind::Arguments => {
                CallOutcome::new(Outcome::BadArguments, format!("bad arguments: {}", error.message()))
            }
            Ok(Ok(Err(error))) if error.kind() == ErrorKind::Timeout => {
                CallOutcome { limit, ..CallOutcome::new(Outcome::TimedOut, format!("timed out: {}", error.message())) }
            }
            Ok(Ok(Err(error))) => {
                CallOutcome { limit, ..CallOutcome::new(Outcome::Failed, format!("failed: {}", error.message())) }
            }
            Ok(Err(_)) => CallOutcome::new(Outcome::Failed, PANICKED),
            Err(_) => {
                CallOutcome::new(Outcome::TimedOut, format!("timed out: the limit is {}", format_duration(time_limit)))
            }
        };
        (nth, outcome)
    })
}

/// Formats a time limit in seconds or milliseconds.
fn format_duration(time: Duration) -> String {
    if time.subsec_nanos() == 0 { format!("{} s", time.as_secs()) } else { format!("{} ms", time.as_millis()) }
}

/// The state of the calls of a round.
struct Round {
    slots: Vec<CallSlot>,
    /// The number of results that are appended.
    appended: usize,
    /// The number of calls that have ended and may have changed how a path resolves.
    changes: u64,
    visibility: OutputVisibility,
    files: RoundFiles,
}

struct CallSlot {
    call: Call,
    state: CallState,
}

enum CallState {
    /// Resolved touches are cached, with the value of [`Round::changes`] when they were resolved.
    Waiting {
        ready: Box<ReadyCall>,
        touches: Option<(u64, Vec<Touch>)>,
    },
    Running {
        cx: Arc<ToolCx>,
        nature: Nature,
        touches: Vec<Touch>,
        effects: Vec<Effect>,
    },
    Ended {
        outcome: CallOutcome,
        cx: Option<Arc<ToolCx>>,
        changes: Option<FileChanges>,
    },
    Appended,
}

impl Round {
    fn new(plans: Vec<CallPlan>) -> Self {
        let slots = plans.into_iter().map(|CallPlan { call, action }| {
            let state = match action {
                CallAction::Close(outcome) => CallState::Ended { outcome, cx: None, changes: None },
                CallAction::Make(ready) => {
                    // Only paths have to be resolved.
                    let touches = (!ready.touches_paths()).then(|| (0, ready.touches.clone()));
                    CallState::Waiting { ready: Box::new(ready), touches }
                }
                CallAction::AskPerson(_) => unreachable!("no call is made while one waits for a decision"),
            };
            CallSlot { call, state }
        });
        Round {
            slots: slots.collect(),
            appended: 0,
            changes: 0,
            visibility: OutputVisibility::Full,
            files: RoundFiles::default(),
        }
    }

    /// Starts up to `limit` calls that do not conflict with an earlier call.
    async fn start(&mut self, session: &mut Session, limit: usize) -> Result<Vec<(usize, ReadyCall, Arc<ToolCx>)>> {
        let mut started = Vec::new();
        let mut earlier = TouchSet::default();
        self.resolve_new_touches().await?;
        let root = self.files.root();
        for (nth, slot) in self.slots.iter_mut().enumerate() {
            match &mut slot.state {
                CallState::Running { touches, .. } => earlier.add(touches),
                CallState::Waiting { ready, touches } => {
                    if started.len() == limit {
                        break;
                    }
                    let (known, mut resolved) = touches.take().unwrap_or_default();
                    let mut waits = earlier.conflicts(&resolved);
                    // Paths are resolved again only if the call could start now.
                    if !waits && known != self.changes && ready.touches_paths() {
                        resolved = resolve(vec![ready.touches.clone()], root).await?.remove(0);
                        waits = earlier.conflicts(&resolved);
                    }
                    earlier.add(&resolved);
                    if waits {
                        *touches = Some((self.changes, resolved));
                        continue;
                    }
                    if !ready.started {
                        let key =
                            matches!(ready.nature, Nature::Idempotent { .. }).then(|| ready.key.as_str().to_owned());
                        session.push(ToolStarted::new(slot.call.id.clone()).with_key(key));
                    }
                    session.emit(|| EventKind::ToolStarted(slot.call.clone()));
                    let cx = Arc::new(ToolCx::with_key(session.for_tool(), slot.call.clone(), ready.key.clone()));
                    let state = CallState::Running {
                        cx: cx.clone(),
                        nature: ready.nature.clone(),
                        touches: resolved,
                        effects: Vec::new(),
                    };
                    if let CallState::Waiting { ready, .. } = std::mem::replace(&mut slot.state, state) {
                        started.push((nth, *ready, cx));
                    }
                }
                CallState::Ended { .. } | CallState::Appended => {}
            }
        }
        Ok(started)
    }

    /// Resolves the touches of all calls that wait and were not looked at before.
    async fn resolve_new_touches(&mut self) -> Result<()> {
        let wanted = |slot: &CallSlot| match &slot.state {
            CallState::Waiting { ready, touches: None } => Some(ready.touches.clone()),
            _ => None,
        };
        let wanted: Vec<_> = self.slots.iter().filter_map(wanted).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let resolved = resolve(wanted, self.files.root()).await?;
        let unresolved = self.slots.iter_mut().filter_map(|slot| match &mut slot.state {
            CallState::Waiting { touches: touches @ None, .. } => Some(touches),
            _ => None,
        });
        unresolved.zip(resolved).for_each(|(touches, resolved)| *touches = Some((self.changes, resolved)));
        Ok(())
    }

    fn finish(&mut self, session: &Session, nth: usize, mut outcome: CallOutcome) {
        let slot = &mut self.slots[nth];
        let CallState::Running { cx, touches, nature, effects } =
            std::mem::replace(&mut slot.state, CallState::Appended)
        else {
            return;
        };
        // A tool that fails while the run is cancelled failed because of that.
        if outcome.outcome == Outcome::Failed && session.cancel().is_some_and(|cancel| cancel.is_cancelled()) {
            outcome.outcome = Outcome::Cancelled;
        }
        self.changes += u64::from(!touches.is_empty());
        cx.finish_output();
        session.emit(|| EventKind::ToolFinished { call: slot.call.clone(), outcome: outcome.outcome });
        let changes = if nature == Nature::ReadOnly { None } else { self.files.changes(effects) };
        slot.state = CallState::Ended { outcome, cx: Some(cx), changes };
    }

    /// Appends the results up to the first call that has not ended.
    async fn append(&mut self, session: &mut Session) {
        while let Some(slot) = self.slots.get_mut(self.appended) {
            let CallState::Ended { .. } = slot.state else { return };
            self.visibility = slot.append(session, self.visibility, &mut self.files).await;
            self.appended += 1;
        }
    }

    /// Appends results for calls that are interrupted.
    ///
    /// A call that changes nothing, or nothing further, gets no result: it is made again when the session continues, and so
    /// is a call that was not started.
    async fn abort(&mut self, session: &mut Session) {
        const WHY: &str = "cancelled: the run was stopped before the call ended; it may have taken effect";
        for slot in &mut self.slots[self.appended..] {
            if let CallState::Running { cx, nature, effects, .. } = &mut slot.state {
                let (cx, is_repeatable) = (cx.clone(), *nature != Nature::Effectful);
                let changes = self.files.changes(std::mem::take(effects));
                if is_repeatable {
                    cx.workflow_sessions().iter().for_each(|work| session.keep_aside(work));
                    continue;
                }
                session.emit(|| EventKind::ToolFinished { call: slot.call.clone(), outcome: Outcome::Cancelled });
                let outcome = CallOutcome::new(Outcome::Cancelled, WHY);
                slot.state = CallState::Ended { outcome, cx: Some(cx), changes };
            }
            if let CallState::Ended { .. } = slot.state {
                self.visibility = slot.append(session, self.visibility, &mut self.files).await;
            }
        }
    }
}

impl CallSlot {
    /// Appends the result of the call, and returns the visibility of all outputs up to this one.
    async fn append(
        &mut self,
        session: &mut Session,
        before: OutputVisibility,
        files: &mut RoundFiles,
    ) -> OutputVisibility {
        let ended = std::mem::replace(&mut self.state, CallState::Appended);
        let CallState::Ended { outcome, cx, changes } = ended else { return before };
        // Before the first step is appended: a run that is dropped while it waits leaves all of the steps or none.
        let changes = files.own_changes(session, changes).await;
        cx.iter().flat_map(|cx| cx.workflow_sessions()).for_each(|work| session.keep_aside(&work));
        cx.iter().flat_map(|cx| cx.take_checks()).for_each(|checked| _ = session.push(checked));
        // Secrets are removed before the text is cut: half a key would not be recognised.
        let text = session.secrets().hide(&outcome.text).unwrap_or(outcome.text);
        let (output, whole): (Text, Option<Text>) = truncate(text, outcome.limit);
        let visibility = if whole.is_some() { OutputVisibility::Partial } else { before };
        let result = ToolResult::new(self.call.id.clone(), outcome.outcome, output).with_whole(whole);
        session.push(match changes {
            Some((tree, effects)) => result.with_effects(effects).with_tree(tree),
            None => result,
        });
        visibility
    }
}

/// Replaces the paths of the touches of each call by their canonical names.
async fn resolve(touches: Vec<Vec<Touch>>, root: Option<&Arc<Root>>) -> Result<Vec<Vec<Touch>>> {
    let resolve = move |root: Option<&Root>| -> Vec<Vec<Touch>> {
        let name = |path: &str| root.and_then(|root| root.canonical_name(path)).unwrap_or_else(|| normalize_path(path));
        touches.iter().map(|touches| touches.iter().map(|touch| touch.resolved(name)).collect()).collect()
    };
    match root.cloned() {
        Some(root) => run_blocking(move || Ok(resolve(Some(&root)))).await,
        None => Ok(resolve(None)),
    }
}
