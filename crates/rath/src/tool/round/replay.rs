//! A round of calls in a replay: starts and results in the order of the recording.

use std::collections::HashSet;
use std::sync::Arc;

use rath_record::chunk::{Call, CallOrigin, Change, Chunk, Effect, Outcome, ToolResult, ToolStarted};
use rath_record::turn::{self, Next, Progress};
use rath_record::{CallId, Record, Step, draw, view};
use serde_json::{Value, json};

use super::permission::denial;
use super::{CallAction, CallEnd, CallOutcome, CallPlan, OutputVisibility, ReadyCall, make_call, plan};
use super::{truncate, undecided};
use crate::policy::{ActivePolicy, Mode, Policy};
use crate::session::{
    ChangedPaths, Divergence, FilesAfter, Replay, Result, Session, is_aside, is_by_program, is_of_workspace,
    lossy_path, recorded_failure,
};
use crate::tool::{TOOLS_NOTE, ToolCx, ToolHandle};

/// Appends the recorded results of the calls. No call is made, unless tools run again.
pub(super) async fn run(session: &mut Session, replay: &Replay, mut plans: Vec<CallPlan>) -> Result<OutputVisibility> {
    let goes_on = repeat_decisions(session, replay, &mut plans);
    let lacks_decision = goes_on && session.has_forgotten();
    let mut calls: Vec<ReplayedCall> = plans
        .into_iter()
        .map(|plan| {
            let is_forgotten = replay.is_forgotten(plan.origin.answer)
                || lacks_decision && !matches!(plan.action, CallAction::Make(_) | CallAction::Close(_));
            ReplayedCall::new(plan, is_forgotten)
        })
        .collect();
    let compared = calls.iter().filter(|call| !call.is_forgotten);
    if let Some(error) = undecided(compared.map(|call| (&call.call, &call.action))) {
        return Err(error.with_session(session));
    }
    let mut amount = OutputVisibility::Full;
    while calls.iter().any(|call| !call.is_closed) {
        let action = || {
            let open = calls.iter().filter(|call| !call.is_closed).map(|call| &*call.call.tool).collect::<Vec<_>>();
            format!("tools are called: {}", open.join(", "))
        };
        let step = replay.next_step(session, action, |chunk| is_of_round(chunk, &calls)).await?;
        match step.chunk() {
            Chunk::ToolStarted(started) => {
                match ReplayedCall::find_open(&mut calls, &started.call, |call| call.cx.is_none() && !call.is_forgotten)
                {
                    Some(call) => call.start(session, Some(started)),
                    None => session.append_recorded(&step),
                }
            }
            Chunk::ToolResult(result) => {
                let Some(call) = ReplayedCall::find_open(&mut calls, &result.call, |_| true) else { continue };
                call.finish(session, replay, &step, result).await?;
                if result.whole.is_some() {
                    amount = OutputVisibility::Partial;
                }
            }
            Chunk::Merged(merged) => {
                if let Some(aside) = step.parents().get(1).and_then(|aside| aside.step()) {
                    replay.accept_step(aside);
                    session.keep_aside_of(&Session::resume_own(Record::at(aside.clone())), merged.call.clone());
                }
            }
            _ => {
                session.append_recorded(&step);
                if let Some(error) = recorded_failure(&step) {
                    return Err(error.with_session(session));
                }
            }
        }
    }
    replay.ensure_not_diverged(session)?;
    Ok(amount)
}

/// Appends the decisions that the recorded run made about the calls: by its policy, or by a person whom it asked.
///
/// Returns true if the recorded run went on with the calls.
fn repeat_decisions(session: &mut Session, replay: &Replay, plans: &mut [CallPlan]) -> bool {
    let next = |session: &Session, plans: &[CallPlan]| {
        replay.next_decision(session, |id| plans.iter().any(|plan| plan.call.id == *id))
    };
    while let Some(step) = next(session, plans).filter(is_by_program) {
        session.append_recorded(&step);
        match step.chunk() {
            Chunk::Approved(approved) => decide(plans, (&approved.call, approved.origin), |action| match action {
                CallAction::Make(ready) | CallAction::AskApproval { ready, .. } => {
                    CallAction::Make(ReadyCall { progress: Progress::Approved, ..ready })
                }
                other => other,
            }),
            Chunk::Denied(denied) => {
                decide(plans, (&denied.call, denied.origin), |_| CallAction::Close(denial(denied)));
            }
            Chunk::Asked(asked) => decide(plans, (&asked.call, None), |action| match action {
                CallAction::Make(ready) => CallAction::AskApproval { ready, why: asked.why.clone(), rule: None },
                other => other,
            }),
            _ => {}
        }
    }
    // The recorded run ended here if a person decided afterwards, or if nothing came of a call that needs an approval.
    let is_decided_later = next(session, plans).is_some();
    let goes_on =
        replay.next_is(session, |chunk| is_of_calls(chunk, &|id| plans.iter().any(|plan| plan.call.id == *id)));
    for plan in plans {
        let waits = |ready: &ReadyCall| ready.progress == Progress::New && (is_decided_later || ready.needs_approval);
        plan.action = match std::mem::replace(&mut plan.action, CallAction::AskEnd) {
            CallAction::Make(ready) if !goes_on && waits(&ready) => {
                CallAction::AskApproval { ready, why: String::new(), rule: None }
            }
            other => other,
        };
    }
    goes_on
}

/// Replaces the action of the call with this origin; without one, of the first undecided call with this id.
fn decide(
    plans: &mut [CallPlan],
    (id, origin): (&CallId, Option<CallOrigin>),
    change: impl FnOnce(CallAction) -> CallAction,
) {
    let is_open = |action: &CallAction| match action {
        CallAction::Make(ready) => ready.progress != Progress::Approved,
        CallAction::AskApproval { .. } => true,
        CallAction::Close(_) | CallAction::AskEnd | CallAction::AskBelow(_) => false,
    };
    let is_meant = |plan: &CallPlan| plan.call.id == *id && origin.is_none_or(|origin| plan.origin == origin);
    if let Some(plan) = plans.iter_mut().find(|plan| is_meant(plan) && is_open(&plan.action)) {
        plan.action = change(std::mem::replace(&mut plan.action, CallAction::AskEnd));
    }
}

/// Returns whether the chunk belongs to a round with these calls, or ends the round.
fn is_of_round(chunk: &Chunk, calls: &[ReplayedCall]) -> bool {
    is_of_calls(chunk, &|id| calls.iter().any(|call| !call.is_closed && call.call.id == *id))
}

fn is_of_calls(chunk: &Chunk, is_open: &dyn Fn(&CallId) -> bool) -> bool {
    match chunk {
        Chunk::ToolStarted(started) => is_open(&started.call),
        Chunk::ToolResult(result) => is_open(&result.call),
        Chunk::Interrupted(_) => true,
        Chunk::Note(note) if note.text.as_str().is_some_and(|text| text.starts_with(TOOLS_NOTE)) => true,
        chunk => is_aside(chunk) || is_of_workspace(chunk),
    }
}

/// A call of the round, and its progress.
struct ReplayedCall {
    call: Call,
    action: CallAction,
    /// The context of the call; none before it is started.
    cx: Option<Arc<ToolCx>>,
    /// True once the result is appended.
    is_closed: bool,
    /// True if the arguments or a decision was forgotten: then the recorded steps are all that is known of the call.
    is_forgotten: bool,
}

impl ReplayedCall {
    fn new(CallPlan { call, action, .. }: CallPlan, is_forgotten: bool) -> Self {
        ReplayedCall { call, action, cx: None, is_closed: false, is_forgotten }
    }

    /// Returns the first open call with this id that fits.
    fn find_open<'a>(
        calls: &'a mut [ReplayedCall],
        id: &CallId,
        fits: impl Fn(&ReplayedCall) -> bool,
    ) -> Option<&'a mut ReplayedCall> {
        calls.iter_mut().find(|call| !call.is_closed && call.call.id == *id && fits(call))
    }

    /// Appends the start of the call, or the result that the program gives without making it.
    ///
    /// The recording is compared with the step that is appended. The rule that allowed the call is taken from there.
    fn start(&mut self, session: &mut Session, recorded: Option<&ToolStarted>) {
        match &self.action {
            CallAction::Make(ready) => {
                let paused = ready.paused_work(session, &self.call);
                // Older recordings lack the start of a call that is made again.
                if recorded.is_some() || ready.progress != Progress::Unknown {
                    let rule = recorded.and_then(|started| started.rule.clone());
                    session.push(ready.start_step(&self.call).with_rule(rule));
                }
                self.cx = Some(ready.context(session, &self.call, paused, None));
            }
            CallAction::Close(said) => {
                session.push(self.result(said));
                self.is_closed = true;
            }
            CallAction::AskApproval { .. } | CallAction::AskEnd | CallAction::AskBelow(_) => {}
        }
    }

    /// Appends the recorded result. If the call is made again, its result is compared first.
    async fn finish(
        &mut self,
        session: &mut Session,
        replay: &Replay,
        step: &Step,
        recorded: &ToolResult,
    ) -> Result<()> {
        // A call whose path was moved at the last moment is refused without a start, and so is one that an earlier version did not
        // understand.
        let is_refused = (recorded.outcome == Outcome::Denied || is_misunderstood(recorded))
            && matches!(self.action, CallAction::Make(_));
        if self.cx.is_none() && !is_refused && !self.is_forgotten {
            self.start(session, None);
            replay.ensure_not_diverged(session)?;
        }
        if self.is_closed {
            return Ok(());
        }
        self.is_closed = true;
        if let (CallAction::Make(ready), Some(cx)) = (&self.action, &self.cx)
            && is_made_again(replay, ready, recorded)
        {
            make_again(session, replay, (step, &self.call), (ready, cx), recorded).await?;
        }
        session.append_recorded(step);
        Ok(())
    }

    /// Returns the result as the model reads it.
    fn result(&self, said: &CallOutcome) -> ToolResult {
        result(&self.call, said)
    }
}

fn result(call: &Call, said: &CallOutcome) -> ToolResult {
    let (output, whole) = truncate(said.text.clone(), said.limit);
    let result = ToolResult::new(call.id.clone(), said.outcome, output).with_whole(whole);
    result.with_images(said.images.clone()).with_structured(said.structured.clone())
}

/// Makes a call again, and compares its result with the recorded one.
async fn make_again(
    session: &Session,
    replay: &Replay,
    (step, call): (&Step, &Call),
    (ready, cx): (&ReadyCall, &Arc<ToolCx>),
    recorded: &ToolResult,
) -> Result<()> {
    // A tool that only runs workflows waits for nothing but the recording, so it does not count as running. Its calls are compared
    // by themselves.
    let runs_tool = !ready.tool.tool().only_runs_workflows();
    if runs_tool {
        replay.before_call(session).await?;
    }
    let again = PutBackAgain::before(session, replay, recorded).await?;
    let mut said = {
        let _guard = runs_tool.then(|| replay.begin_tool());
        match make_call(0, Box::new(ready.clone()), cx.clone()).await.1 {
            CallEnd::Done(outcome) => outcome,
            CallEnd::Paused => CallOutcome::new(Outcome::Failed, "waiting for approval"),
        }
    };
    let after = match again {
        Some(again) => {
            let (lines, after) = again.after(session, recorded).await?;
            said.text.push_str(&lines);
            after
        }
        None if runs_tool => replay.after_call(session, recorded).await?,
        None => None,
    };
    // Secrets are hidden as they would be in the record.
    said.text = session.secrets().hide(&said.text).unwrap_or(said.text);
    replay.ensure_not_diverged(session)?;
    let now = result(call, &said);
    if step.withheld().is_some() {
        return Ok(());
    }
    if runs_tool {
        return replay.compare_call(session, (step, call), (recorded, &now), after).await;
    }
    match first_difference(recorded, &now) {
        // The workflow read a text that was forgotten.
        Some((_, expected, found)) if replay.is_from_forgotten(&expected.to_string(), &found.to_string()) => Ok(()),
        Some((pointer, expected, found)) => {
            Err(replay.diverge(session, Divergence::between_values(step, pointer, &expected, &found)))
        }
        None => Ok(()),
    }
}

/// Makes the call of a recorded result again, whichever program asked for it. Returns the reason if the call is not made.
pub(crate) async fn repeat_call(replay: &Arc<Replay>, tools: &[ToolHandle], step: &Step) -> Result<Option<String>> {
    let Chunk::ToolResult(recorded) = step.chunk() else { return Ok(None) };
    let Some((call, answer)) = view::find_call(step) else { return Ok(Some("not asked for on the record".to_owned())) };
    if step.withheld().is_some() || answer.withheld().is_some() {
        return Ok(Some("forgotten".to_owned()));
    }
    if !has_ended(recorded) {
        return Ok(Some(draw::outcome_text(recorded.outcome).to_owned()));
    }
    let steps = std::iter::successors(first_parent(step), |step| first_parent(step));
    let earlier = steps.take_while(|step| *step != answer).filter(|step| match step.chunk() {
        Chunk::ToolResult(result) => result.call == recorded.call,
        _ => false,
    });
    let pending = match turn::next(&Record::at(answer.clone())) {
        Next::RunTools(pending) => pending,
        _ => Vec::new(),
    };
    let started = std::iter::successors(first_parent(step), |step| first_parent(step));
    let mut started = started.take_while(|step| *step != answer);
    let is_started =
        started.any(|step| matches!(step.chunk(), Chunk::ToolStarted(started) if started.call == recorded.call));
    let mut pending = pending.into_iter().filter(|pending| pending.call.id == recorded.call);
    let Some(pending) = pending.nth(earlier.count()) else { return Ok(Some("asked for twice".to_owned())) };
    let Some(before) = first_parent(step) else { return Ok(Some("not asked for on the record".to_owned())) };
    let session = replay.session_at(before);
    match plan(tools, pending).action {
        CallAction::Make(ready) if ready.tool.tool().only_runs_workflows() => Ok(Some("a workflow".to_owned())),
        CallAction::Make(_) if is_misunderstood(recorded) && !is_started => {
            Ok(Some("not understood when it was recorded".to_owned()))
        }
        CallAction::Make(ready) => {
            let cx = ready.context(&session, call, Vec::new(), None);
            make_again(&session, replay, (step, call), (&ready, &cx), recorded).await.map(|()| None)
        }
        CallAction::Close(said) if said.outcome == Outcome::UnknownTool => {
            Ok(Some(format!("no tool `{}` in this program", call.tool)))
        }
        CallAction::Close(said) => {
            let now = result(call, &said);
            replay.compare_call(&session, (step, call), (recorded, &now), None).await.map(|()| None)
        }
        CallAction::AskApproval { .. } | CallAction::AskEnd | CallAction::AskBelow(_) => {
            Ok(Some("not approved on its branch".to_owned()))
        }
    }
}

fn first_parent(step: &Step) -> Option<&Step> {
    step.parents().first().and_then(|parent| parent.step())
}

/// The files that a recorded call was not allowed to change. They are put back when it is made again.
struct PutBackAgain {
    paths: HashSet<String>,
    policy: Arc<ActivePolicy>,
}

impl PutBackAgain {
    /// Looks at the files before a call is made again; none if no file was put back.
    async fn before(session: &Session, replay: &Replay, recorded: &ToolResult) -> Result<Option<Self>> {
        let paths: HashSet<String> = recorded.put_back.iter().chain(&recorded.not_put_back).cloned().collect();
        if paths.is_empty() || replay.branch_dirs().is_none() {
            return Ok(None);
        }
        // A rule that fits more files than the path has them backed up in vain.
        let rules = paths.iter().filter_map(|path| format!("deny write {}", lossy_path(path)).parse().ok());
        let policy = Arc::new(ActivePolicy::new(Policy::new(Mode::Full).rules(rules)));
        let guarding = policy.clone();
        session.with_dir(move |dirs, dir| dirs.observe(&dir, None, Some(&guarding)).map(drop)).await?;
        Ok(Some(PutBackAgain { paths, policy }))
    }

    /// Puts the files back, and returns the lines about it: the recorded ones, if they are true again.
    async fn after(self, session: &Session, recorded: &ToolResult) -> Result<(String, FilesAfter)> {
        let PutBackAgain { paths, policy } = self;
        let refuse = move |effect: &Effect, _: &ChangedPaths<'_>| {
            let is_refused = match &effect.change {
                Change::Renamed { from } => paths.contains(from) || paths.contains(&effect.path),
                _ => paths.contains(&effect.path),
            };
            is_refused.then(|| "as recorded".to_owned())
        };
        let looked = session.with_dir(move |_, dir| dir.changes_except(Some(&policy), true, refuse)).await?;
        let report = looked.put_back;
        let is_same = |files: &[(String, String)], recorded: &[String]| files.iter().map(|(path, _)| path).eq(recorded);
        let is_repeated =
            is_same(&report.restored, &recorded.put_back) && is_same(&report.failed, &recorded.not_put_back);
        let lines = |titles: [&str; 2]| -> Option<String> {
            let text = recorded.whole.as_ref().unwrap_or(&recorded.output).as_str()?;
            let start = titles.iter().find_map(|title| text.rfind(&format!("\n[{title}: ")))?;
            Some(text[start..].to_owned())
        };
        let repeated = is_repeated.then(|| lines(["put back as before", "not put back"])).flatten();
        let lines = repeated.unwrap_or_else(|| report.describe().map(|line| format!("\n[{line}]")).collect());
        Ok((lines, looked.changes?))
    }
}

/// Returns whether a call is made in a replay.
///
/// A call that passes its task to a workflow is always made, because only the recording answers there. Timeouts and
/// cancellations cannot be repeated.
fn is_made_again(replay: &Replay, ready: &ReadyCall, recorded: &ToolResult) -> bool {
    has_ended(recorded) && (replay.branch_dirs().is_some() || ready.tool.tool().only_runs_workflows())
}

/// Returns true if a call may have been refused before it was started: its tool or its arguments were not understood.
fn is_misunderstood(recorded: &ToolResult) -> bool {
    matches!(recorded.outcome, Outcome::UnknownTool | Outcome::BadJson | Outcome::BadArguments)
}

fn has_ended(recorded: &ToolResult) -> bool {
    matches!(recorded.outcome, Outcome::Ok | Outcome::Failed | Outcome::BadArguments)
}

/// Returns the first difference between a recorded result and a new one: a JSON pointer and both values.
fn first_difference(recorded: &ToolResult, now: &ToolResult) -> Option<(&'static str, Value, Value)> {
    if recorded.outcome != now.outcome {
        return Some(("/outcome", json!(recorded.outcome), json!(now.outcome)));
    }
    if recorded.output != now.output {
        return Some(("/output", json!(recorded.output.to_string()), json!(now.output.to_string())));
    }
    let (before, after) = (recorded.whole.as_ref(), now.whole.as_ref());
    (before != after).then(|| {
        let json = |text: Option<&rath_record::Text>| json!(text.map(ToString::to_string));
        ("/whole", json(before), json(after))
    })
}
