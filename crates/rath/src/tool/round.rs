//! A round of tool calls: the calls of one answer, run concurrently where possible.
//!
//! Results are appended in the order of the calls.

mod decided_paths;
mod files;
mod permission;
mod plan;
mod replay;

use std::collections::HashSet;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rath_record::chunk::{Call, Chunk, Effect, Outcome, ToolResult, Tree};
use rath_record::turn::{PendingCall, Progress};
use rath_record::{CallId, Text};
use tracing::{Instrument, Span};

use self::decided_paths::DecidedPaths;
use self::files::{FileChanges, RoundFiles, Wake};
pub(crate) use self::plan::never_made;
use self::plan::{CallAction, CallOutcome, CallPlan, PANICKED, ReadyCall, plan, undecided};
pub(crate) use self::replay::repeat_call;
use super::output::truncate;
use super::schedule::{TouchSet, normalize_path};
use super::{Nature, Output, ToolCx, ToolHandle, Touch};
use crate::blocking::run_blocking;
use crate::error::ErrorKind;
use crate::policy::ActivePolicy;
use crate::sandbox::Root;
use crate::session::{Error, EventKind, PutBackReport, Result, Session, spans, stop_reason, within_limits};

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
    let may_be_unobserved = pending.iter().any(|pending| pending.progress != Progress::New);
    let mut plans: Vec<_> = pending.into_iter().map(|pending| plan(toolbox.tools, pending)).collect();
    if let Some(replay) = session.replaying().cloned() {
        return Box::pin(replay::run(session, &replay, plans)).await;
    }
    // Calls that were started before end now, or are made again.
    if may_be_unobserved {
        Box::pin(session.look()).await?;
    }
    permission::decide(session, &mut plans).await?;
    if let Some(error) = undecided(plans.iter().map(CallPlan::parts)) {
        if let Some(reason) = stop_reason(session) {
            return Err(reason.record(session));
        }
        permission::record_questions(session, &plans);
        return Err(error.with_session(session));
    }
    let mut round = Round::new(plans);
    round.prepare(session).await;
    let mut running = FuturesUnordered::new();
    let made = make_calls(session, toolbox, &mut round, &mut running).await;
    let Err(error) = made else { return made };
    // An error of one call must not take away what others have done.
    Box::pin(round.leave(session, running)).await;
    Err(error.with_session(session))
}

/// Makes the calls of a round until each has a result or waits for a person.
async fn make_calls(
    session: &mut Session,
    toolbox: &Toolbox<'_>,
    round: &mut Round,
    running: &mut FuturesUnordered<CallFuture>,
) -> Result<OutputVisibility> {
    loop {
        round.append(session).await?;
        // No call starts after the limit is reached.
        if let Some(reason) = stop_reason(session) {
            let aborted = Box::pin(round.abort(session, std::mem::take(running))).await;
            // The stop is on the record even if the files cannot be looked at; that error is reported.
            let stopped = reason.record(session);
            return Err(aborted.err().unwrap_or(stopped));
        }
        round.snapshot_before(session).await?;
        let started = round.start(session, toolbox.max_concurrent.saturating_sub(running.len())).await?;
        round.give_up_turn();
        // The start of a call is durable before the call runs: otherwise a crash could leave an effect that is not recorded.
        if !started.is_empty() {
            session.durable().await?;
        }
        for (nth, ready, cx) in started {
            let span = round.span_of(nth);
            running.push(Box::pin(make_call(nth, ready, cx).instrument(span)));
        }
        if running.is_empty() && !round.files.wants_turn {
            if round.has_unappended() {
                continue;
            }
            round.files.save_progress(session).await?;
            return match round.paused(session) {
                Some(error) => Err(error.with_session(session)),
                None => Ok(round.visibility),
            };
        }
        // If a limit ends the wait, the next turn of the loop handles it.
        if round.files.wants_turn {
            match Box::pin(within_limits(session, round.files.next_or_turn(running))).await {
                Ok(Wake::Ended((nth, end))) => round.end(session, nth, end).await?,
                Ok(Wake::Turn(guard)) => round.files.guard = Some(guard),
                Err(_) => {}
            }
        } else if let Ok(Some((nth, end))) = within_limits(session, running.next()).await {
            round.end(session, nth, end).await?;
        }
    }
}

const MOVED: &str = "denied: a path leads to another file than when it was allowed";

type CallFuture = Pin<Box<dyn Future<Output = (usize, CallEnd)> + Send>>;

/// A call that starts, with its position in the round and its context.
type StartedCall = (usize, Box<ReadyCall>, Arc<ToolCx>);

/// The end of a running call.
enum CallEnd {
    Done(CallOutcome),
    /// A workflow that the call runs waits for a person.
    Paused,
}

/// Makes one call. A panic and a timeout are outcomes that a model can read, too.
fn make_call(nth: usize, ready: Box<ReadyCall>, cx: Arc<ToolCx>) -> CallFuture {
    let ReadyCall { tool, arguments, output_limit: limit, time_limit, .. } = *ready;
    Box::pin(async move {
        let work = AssertUnwindSafe(async { tool.tool().call(&cx, arguments).await }).catch_unwind();
        let outcome = match tokio::time::timeout(time_limit, work).await {
            Ok(Ok(Ok(Output { text, images, structured, is_failure }))) => {
                let (outcome, text) =
                    if is_failure { (Outcome::Failed, format!("failed: {text}")) } else { (Outcome::Ok, text) };
                CallOutcome { limit, images, structured, ..CallOutcome::new(outcome, text) }
            }
            Ok(Ok(Err(error))) if error.kind() == ErrorKind::Approval && !cx.workflow_sessions().is_empty() => {
                return (nth, CallEnd::Paused);
            }
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
        (nth, CallEnd::Done(outcome))
    })
}

/// Formats a time limit in seconds or milliseconds.
fn format_duration(time: Duration) -> String {
    if time.subsec_nanos() == 0 { format!("{} s", time.as_secs()) } else { format!("{} ms", time.as_millis()) }
}

/// The state of the calls of a round.
struct Round {
    slots: Vec<CallSlot>,
    /// The ids that several calls have.
    shared_ids: HashSet<CallId>,
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
        span: Span,
        nature: Nature,
        /// True if the call does nothing itself but run workflows.
        runs_workflows: bool,
        touches: Vec<Touch>,
        effects: Vec<Effect>,
        /// The policy that the files have to keep which the call leaves behind, and whether a person approved the call.
        policy: Option<(Arc<ActivePolicy>, bool)>,
        /// The files that were put back because of it, and those that could not be.
        put_back: PutBackReport,
    },
    Ended {
        outcome: CallOutcome,
        cx: Option<Arc<ToolCx>>,
        changes: Option<FileChanges>,
        put_back: PutBackReport,
    },
    /// The call has ended, and the changes that it made to files are not known.
    Unobserved {
        outcome: CallOutcome,
        cx: Option<Arc<ToolCx>>,
        put_back: PutBackReport,
    },
    /// A workflow that the call ran waits for a person. It is kept aside, and the call stays open.
    Paused {
        cx: Arc<ToolCx>,
    },
    Appended,
    /// The call is recorded without a result, and stays open.
    LeftOpen,
    /// The work of a paused call is kept aside.
    KeptAside,
}

impl Round {
    fn new(plans: Vec<CallPlan>) -> Self {
        let mut ids = HashSet::new();
        let shared_ids = plans.iter().map(|plan| &plan.call.id).filter(|id| !ids.insert(*id)).cloned().collect();
        let slots = plans.into_iter().map(|CallPlan { call, action, .. }| {
            let state = match action {
                CallAction::Close(outcome) => {
                    CallState::Ended { outcome, cx: None, changes: None, put_back: PutBackReport::default() }
                }
                CallAction::Make(ready) => {
                    // Only paths have to be resolved.
                    let touches = (!ready.touches_paths()).then(|| (0, ready.touches.clone()));
                    CallState::Waiting { ready: Box::new(ready), touches }
                }
                CallAction::AskApproval { .. } | CallAction::AskEnd | CallAction::AskBelow(_) => {
                    unreachable!("no call is made while one waits for a decision")
                }
            };
            CallSlot { call, state }
        });
        Round {
            slots: slots.collect(),
            shared_ids,
            appended: 0,
            changes: 0,
            visibility: OutputVisibility::Full,
            files: RoundFiles::default(),
        }
    }

    /// Starts up to `limit` calls that do not conflict with an earlier call.
    async fn start(&mut self, session: &mut Session, limit: usize) -> Result<Vec<StartedCall>> {
        let mut started = Vec::new();
        let mut earlier = TouchSet::default();
        self.resolve_new_touches().await?;
        self.files.wants_turn = false;
        let root = self.files.root().cloned();
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
                        resolved = resolve(vec![ready.touches.clone()], root.as_ref()).await?.remove(0);
                        waits = earlier.conflicts(&resolved);
                    }
                    earlier.add(&resolved);
                    if waits {
                        *touches = Some((self.changes, resolved));
                        continue;
                    }
                    if ready.nature != Nature::ReadOnly && self.files.lacks_turn() {
                        self.files.wants_turn = true;
                        *touches = Some((self.changes, resolved));
                        continue;
                    }
                    // A link that was changed meanwhile leads to a file that no decision was about.
                    if ready.decided_paths.have_moved().await? {
                        let outcome = CallOutcome::new(Outcome::Denied, MOVED);
                        slot.state =
                            CallState::Ended { outcome, cx: None, changes: None, put_back: PutBackReport::default() };
                        continue;
                    }
                    // Looked for before the start is recorded, which ends the pause.
                    let paused = ready.paused_work(session, &slot.call);
                    // Of a call that is made again, too: its changes are those since this start. Of two calls with one id,
                    // a second start would be that of the second call.
                    if ready.progress != Progress::Unknown || !self.shared_ids.contains(&slot.call.id) {
                        session.push(ready.start_step(&slot.call));
                    }
                    session.emit(|| EventKind::ToolStarted(slot.call.clone()));
                    let cx = ready.context(session, &slot.call, paused, Some(&self.files.turn));
                    let state = CallState::Running {
                        cx: cx.clone(),
                        span: spans::tool_span(session, &slot.call),
                        nature: ready.nature.clone(),
                        runs_workflows: ready.runs_workflows(),
                        touches: resolved,
                        effects: Vec::new(),
                        policy: session.policy().map(|policy| (policy.clone(), ready.progress == Progress::Approved)),
                        put_back: PutBackReport::default(),
                    };
                    if let CallState::Waiting { ready, .. } = std::mem::replace(&mut slot.state, state) {
                        started.push((nth, ready, cx));
                    }
                }
                _ => {}
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

    /// Looks at the files when a call has ended, and keeps its end.
    ///
    /// If that fails, the call gets no result: it stays in doubt, and the next look at the files tells what has changed.
    /// So do the calls that end after it and may write, because their changes cannot be told from its own.
    async fn end(&mut self, session: &Session, nth: usize, end: CallEnd) -> Result<()> {
        let may_write = self.may_write(nth);
        let looked = if self.files.is_unseen { Ok(()) } else { self.snapshot_after(session, nth).await };
        self.files.is_unseen |= looked.is_err();
        self.finish(session, nth, end, !(may_write && self.files.is_unseen));
        self.give_up_turn();
        looked
    }

    /// Ends the calls that are done and were not waited for, and stops the others.
    async fn finish_ready(&mut self, session: &Session, mut running: FuturesUnordered<CallFuture>) -> Result<()> {
        let mut looked = Ok(());
        while let Some(Some((nth, end))) = running.next().now_or_never() {
            looked = looked.and(self.end(session, nth, end).await);
        }
        drop(running);
        looked
    }

    fn finish(&mut self, session: &Session, nth: usize, end: CallEnd, is_observed: bool) {
        let slot = &mut self.slots[nth];
        let CallState::Running { cx, span, touches, nature, effects, put_back, .. } =
            std::mem::replace(&mut slot.state, CallState::Appended)
        else {
            return;
        };
        let mut outcome = match end {
            CallEnd::Done(outcome) => outcome,
            CallEnd::Paused => {
                self.changes += u64::from(!touches.is_empty());
                cx.finish_output();
                slot.state = CallState::Paused { cx };
                return;
            }
        };
        // A tool that fails while the run is cancelled failed because of that.
        if outcome.outcome == Outcome::Failed && session.cancel().is_some_and(|cancel| cancel.is_cancelled()) {
            outcome.outcome = Outcome::Cancelled;
        }
        put_back.describe().for_each(|line| outcome.text.push_str(&format!("\n[{line}]")));
        self.changes += u64::from(!touches.is_empty());
        cx.finish_output();
        session.emit(|| EventKind::ToolFinished { call: slot.call.clone(), outcome: outcome.outcome });
        spans::record_call(&span, outcome.outcome, || cut_text(outcome.text.clone(), outcome.limit, session).0);
        if !is_observed {
            slot.state = CallState::Unobserved { outcome, cx: Some(cx), put_back };
            return;
        }
        let changes = if nature == Nature::ReadOnly { None } else { self.files.changes(effects) };
        slot.state = CallState::Ended { outcome, cx: Some(cx), changes, put_back };
    }

    /// Appends the results up to the first call that has not ended.
    async fn append(&mut self, session: &mut Session) -> Result<()> {
        while let Some(slot) = self.slots.get_mut(self.appended) {
            match &slot.state {
                CallState::Ended { .. } => {
                    self.visibility = slot.append(session, self.visibility, &mut self.files).await?;
                }
                CallState::Paused { .. } => slot.keep_aside(session),
                _ => return Ok(()),
            }
            self.appended += 1;
        }
        Ok(())
    }

    /// Returns the span of a running call.
    fn span_of(&self, nth: usize) -> Span {
        match &self.slots[nth].state {
            CallState::Running { span, .. } => span.clone(),
            _ => Span::none(),
        }
    }

    /// Returns true if a call has ended whose result could be appended now.
    fn has_unappended(&self) -> bool {
        self.slots.get(self.appended).is_some_and(|slot| matches!(slot.state, CallState::Ended { .. }))
    }

    /// Returns an error that names the calls which a paused call waits for.
    fn paused(&self, session: &Session) -> Option<Error> {
        let is_paused = |slot: &&CallSlot| matches!(slot.state, CallState::KeptAside);
        let paused: Vec<_> = self.slots.iter().filter(is_paused).map(|slot| slot.call.clone()).collect();
        let open = session.open_calls();
        let below = |call: Call| {
            let prefix = format!("{}/", call.id);
            let calls = open.iter().filter(|pending| pending.call.id.0.starts_with(&prefix)).cloned().collect();
            (call, CallAction::AskBelow(calls))
        };
        let waiting: Vec<_> = paused.into_iter().map(below).collect();
        undecided(waiting.iter().map(|(call, action)| (call, action)))
    }

    /// Appends results for calls that are interrupted.
    ///
    /// A call that changes nothing, or nothing further, gets no result: it is made again when the session continues, and so
    /// is a call that was not started.
    async fn abort(&mut self, session: &mut Session, running: FuturesUnordered<CallFuture>) -> Result<()> {
        let stopped = self.append_interrupted(session, running).await;
        if stopped.is_err() {
            self.record_ended(session).await;
        }
        stopped?;
        self.files.save_progress(session).await
    }

    /// Appends the results of the calls that have ended, and of those that are interrupted.
    async fn append_interrupted(&mut self, session: &mut Session, running: FuturesUnordered<CallFuture>) -> Result<()> {
        const WHY: &str = "cancelled: the run was stopped before the call ended; it may have taken effect";
        self.finish_ready(session, running).await?;
        // The calls are stopped, and so are the workflows that they ran: nothing writes while the files are looked at.
        if let Some(nth) = self.first_writer() {
            self.assign_changes(session, nth).await?;
        }
        for slot in &mut self.slots[self.appended..] {
            if let CallState::Running { cx, span, nature: Nature::Effectful, effects, put_back, .. } = &mut slot.state {
                let (cx, put_back) = (cx.clone(), std::mem::take(put_back));
                let changes = self.files.changes(std::mem::take(effects));
                session.emit(|| EventKind::ToolFinished { call: slot.call.clone(), outcome: Outcome::Cancelled });
                let outcome = CallOutcome::new(Outcome::Cancelled, WHY);
                spans::record_call(span, outcome.outcome, || outcome.text.as_str().into());
                slot.state = CallState::Ended { outcome, cx: Some(cx), changes, put_back };
            }
            match slot.state {
                CallState::Ended { .. } => {
                    self.visibility = slot.append(session, self.visibility, &mut self.files).await?;
                }
                CallState::Paused { .. } => slot.keep_aside(session),
                _ => slot.leave_open(session),
            }
        }
        Ok(())
    }

    /// Records all that is known of the calls when the round fails.
    async fn leave(&mut self, session: &mut Session, running: FuturesUnordered<CallFuture>) {
        // The error that ended the round is the one that is reported.
        let _ = self.finish_ready(session, running).await;
        self.record_ended(session).await;
    }

    /// Appends the results of the calls that have ended. The others stay open.
    async fn record_ended(&mut self, session: &mut Session) {
        for slot in &mut self.slots {
            match slot.state {
                // If the changes of the call cannot be told, the call is left open.
                CallState::Ended { .. } => _ = slot.append(session, self.visibility, &mut self.files).await,
                CallState::Paused { .. } => slot.keep_aside(session),
                _ => slot.leave_open(session),
            }
        }
    }
}

impl CallSlot {
    /// Keeps the work of a paused call aside.
    fn keep_aside(&mut self, session: &mut Session) {
        if let CallState::Paused { cx } = std::mem::replace(&mut self.state, CallState::KeptAside) {
            let call = &self.call.id;
            cx.workflow_sessions().iter().for_each(|work| session.keep_aside_of(work, Some(call.clone())));
        }
    }

    /// Records what a call has done that gets no result: it stays open, and is made again or waits for a person.
    fn leave_open(&mut self, session: &mut Session) {
        let (cx, put_back, outcome) = match &mut self.state {
            CallState::Running { cx, put_back, .. } => (Some(cx), put_back, None),
            CallState::Unobserved { cx, put_back, outcome } => (cx.as_mut(), put_back, Some(outcome)),
            _ => return,
        };
        if let Some(cx) = cx {
            cx.workflow_sessions().iter().for_each(|work| session.keep_aside(work));
            push_reports(session, cx, None);
        }
        let tool = &self.call.tool;
        let mut lines: Vec<String> = put_back.describe().collect();
        if let Some(outcome) = outcome {
            let (output, _) = cut_text(std::mem::take(&mut outcome.text), outcome.limit, session);
            let output = output.as_str().unwrap_or_default();
            lines =
                vec![format!("{tool} ended, but the changes that it made could not be read. Its output:\n{output}")];
        }
        if !lines.is_empty() {
            session.push(Chunk::note(lines.join("; ")));
        }
        self.state = CallState::LeftOpen;
    }

    /// Appends the result of the call, and returns the visibility of all outputs up to this one.
    async fn append(
        &mut self,
        session: &mut Session,
        before: OutputVisibility,
        files: &mut RoundFiles,
    ) -> Result<OutputVisibility> {
        let ended = std::mem::replace(&mut self.state, CallState::Appended);
        let CallState::Ended { outcome, cx, changes, put_back } = ended else { return Ok(before) };
        let work: Vec<Session> = cx.iter().flat_map(|cx| cx.workflow_sessions()).collect();
        // Before the first step is appended: a run that is dropped while it waits leaves all of the steps or none.
        let observed = match changes {
            Some(changes) => Box::pin(with_changes_of_work(session, files, changes, &work)).await.map(Some),
            None => Ok(None),
        };
        let changes = match observed {
            Ok(changes) => changes,
            Err(error) => {
                self.state = CallState::Unobserved { outcome, cx, put_back };
                self.leave_open(session);
                return Err(error);
            }
        };
        work.iter().for_each(|work| session.keep_aside(work));
        let tree = changes.as_ref().map(|changes| &changes.tree);
        cx.iter().for_each(|cx| push_reports(session, cx, tree));
        let (output, whole) = cut_text(outcome.text, outcome.limit, session);
        let visibility = if whole.is_some() { OutputVisibility::Partial } else { before };
        let paths = |files: Vec<(String, String)>| files.into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        let result = ToolResult::new(self.call.id.clone(), outcome.outcome, output)
            .with_whole(whole)
            .with_images(outcome.images)
            .with_structured(outcome.structured)
            .with_put_back(paths(put_back.restored))
            .with_not_put_back(paths(put_back.failed));
        if changes.is_none() {
            session.record_unseen();
        }
        session.push(match changes {
            Some(FileChanges { tree, effects }) => result.with_effects(effects).with_tree(Some(tree)),
            None => result,
        });
        Ok(visibility)
    }
}

/// Returns the part of an output that a model is shown, and the whole output if that is longer.
///
/// Secrets are removed before the text is cut: half a key would not be recognised.
fn cut_text(text: String, limit: usize, session: &Session) -> (Text, Option<Text>) {
    truncate(session.secrets().hide(&text).unwrap_or(text), limit)
}

/// Appends the checks and the notes of a call. A check saw a tree if that is the one after the call too: otherwise it may have seen some
/// files before they changed and others after.
fn push_reports(session: &mut Session, cx: &ToolCx, after: Option<&Tree>) {
    for checked in cx.take_checks() {
        let tree = checked.tree.clone().filter(|tree| after == Some(tree));
        session.push(checked.with_tree(tree));
    }
    cx.take_notes().into_iter().for_each(|note| _ = session.push(Chunk::note(note)));
}

/// Returns the changes that a call made itself or through workflows that it ran, which are kept aside and not read.
async fn with_changes_of_work(
    session: &Session,
    files: &mut RoundFiles,
    changes: FileChanges,
    work: &[Session],
) -> Result<FileChanges> {
    let FileChanges { tree, effects } = changes;
    let seen_by_work = work.iter().flat_map(Session::effects_in_this_directory);
    let changes = FileChanges { tree, effects: seen_by_work.chain(effects).collect() };
    let FileChanges { tree, effects } = files.own_changes(session, changes).await?;
    if work.is_empty() {
        return Ok(FileChanges { tree, effects });
    }
    let effects = match session.tree() {
        Some(before) => session.changes_between(before, tree.clone(), effects).await?,
        None => effects,
    };
    Ok(FileChanges { tree, effects })
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
