//! One round of calls: those that may run side by side do, and their results are appended in the order of the calls.

mod files;
mod replayed;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rath_record::Text;
use rath_record::chunk::{Call, Effect, Outcome, ToolResult, ToolStarted};
use rath_record::turn::{Pending, Progress};
use serde_json::Value;

use self::files::{Files, Left};
use super::context::Key;
use super::output::shown;
use super::schedule::{Held, plain};
use super::{Handle, Nature, OUTPUT_LIMIT, Output, ToolCx, Touch};
use crate::error::ErrorKind;
use crate::event::EventKind;
use crate::limits::{stopped, within_limits};
use crate::sandbox::Root;
use crate::session::Session;
use crate::session::{Error, Result};

/// The tools that calls are looked up in.
pub(crate) struct Toolbox<'a> {
    pub(crate) tools: &'a [Handle],
    /// How many calls run at once.
    pub(crate) at_once: usize,
}

/// Whether the model was shown all that the tools said.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Shown {
    All,
    Part,
}

/// Makes the calls that have no result yet, and appends what comes of them.
///
/// Where one of them waits for a decision, none is made.
pub(crate) async fn run_calls(session: &mut Session, toolbox: &Toolbox<'_>, pending: Vec<Pending>) -> Result<Shown> {
    let plans: Vec<_> = pending.into_iter().map(|pending| plan(session, toolbox.tools, pending)).collect();
    if let Some(error) = undecided(&plans) {
        return Err(error.with_session(session));
    }
    if let Some(replay) = session.replaying().cloned() {
        return Box::pin(replayed::run(session, &replay, plans)).await;
    }
    let mut round = Round::of(plans);
    round.prepare(session).await;
    let mut running = FuturesUnordered::new();
    loop {
        round.append(session);
        // What is not begun when it is over is not begun at all.
        if let Some(stopped) = stopped(session) {
            while let Some(Some((nth, said))) = running.next().now_or_never() {
                round.finish(session, nth, said);
            }
            drop(running);
            if let Some(nth) = round.first_writer() {
                round.look_after(session, nth).await?;
            }
            round.break_off(session);
            round.files.reached(session);
            return Err(stopped.record(session));
        }
        round.look_before(session).await?;
        let started = round.start(session, toolbox.at_once.saturating_sub(running.len()));
        // That it starts is durable before it does: otherwise a crash could leave an effect that nobody knows of.
        if !started.is_empty() {
            session.durable().await?;
        }
        for (nth, ready, cx) in started {
            running.push(call(nth, ready, cx));
        }
        if running.is_empty() {
            round.files.reached(session);
            return Ok(round.shown);
        }
        // Why it ended early is found out above.
        if let Ok(Some((nth, said))) = within_limits(session, running.next()).await {
            round.look_after(session, nth).await?;
            round.finish(session, nth, said);
        }
    }
}

/// What is to be done about a call.
struct Plan {
    call: Call,
    what: What,
}

enum What {
    /// It is clear what the model will read.
    Say(Said),
    Make(Ready),
    /// A person has to decide.
    Ask(Doubt),
}

#[derive(Clone, Copy, PartialEq)]
enum Doubt {
    NeedsApproval,
    /// It was started once, and nobody knows how it ended.
    Unknown,
}

/// A call that can be made.
#[derive(Clone)]
struct Ready {
    tool: Handle,
    arguments: Value,
    nature: Nature,
    touches: Vec<Touch>,
    key: Key,
    /// How much of its output the model is shown, and how long it may take.
    limit: usize,
    time: Duration,
    /// Whether the record says already that it was started.
    started: bool,
}

/// How a call ended, and what there is to say about it.
struct Said {
    outcome: Outcome,
    text: String,
    /// How much of it the model is shown.
    limit: usize,
}

impl Said {
    fn new(outcome: Outcome, text: impl Into<String>) -> Self {
        Said { outcome, text: text.into(), limit: OUTPUT_LIMIT }
    }
}

/// Decides what is to be done about a call.
fn plan(session: &Session, tools: &[Handle], pending: Pending) -> Plan {
    let Pending { step, call, progress } = pending;
    let what = if let Progress::Denied { reason } = &progress {
        What::Say(Said::new(Outcome::Denied, format!("denied: {reason}")))
    } else {
        match read(tools, &call) {
            // Whatever it was, it may have taken effect.
            Err(_) if progress == Progress::Unknown => What::Ask(Doubt::Unknown),
            Err(said) => What::Say(said),
            Ok((tool, arguments)) => {
                let key = Key::of(step, call.id.clone());
                let make = AssertUnwindSafe(|| decide(session, tool, arguments, key, &progress));
                catch_unwind(make).unwrap_or_else(|_| match progress {
                    Progress::Unknown => What::Ask(Doubt::Unknown),
                    _ => What::Say(Said::new(Outcome::Failed, PANICKED)),
                })
            }
        }
    };
    Plan { call, what }
}

const PANICKED: &str = "failed: the tool panicked";

/// The tool that a call means, and its arguments; or what the model has to be told about them.
fn read<'a>(tools: &'a [Handle], call: &Call) -> Result<(&'a Handle, Value), Said> {
    let Some(tool) = tools.iter().find(|tool| tool.name() == &*call.tool) else {
        let known = tools.iter().map(|tool| format!("`{}`", tool.name())).collect::<Vec<_>>();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(Said::new(Outcome::UnknownTool, format!("unknown tool `{}`; tools: {known}", call.tool)));
    };
    let Some(text) = call.arguments.as_str() else {
        return Err(Said::new(Outcome::BadJson, format!("bad JSON: the arguments are not here: {}", call.arguments)));
    };
    // A call without arguments is a call with none.
    let text = if matches!(text.trim(), "" | "null") { "{}" } else { text };
    let mut arguments: Value = serde_json::from_str(text)
        .map_err(|error| Said::new(Outcome::BadJson, format!("bad JSON: the arguments cannot be read: {error}")))?;
    match tool.check(&arguments) {
        Ok(()) => {
            whole_numbers(&mut arguments);
            Ok((tool, arguments))
        }
        Err(wrong) => Err(Said::new(Outcome::BadArguments, format!("bad arguments: {wrong}"))),
    }
}

/// Writes `5.0` as `5`: to a schema both are integers, to a program that reads integers only one is.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            // Up to where a float tells every integer from the next.
            let whole = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15);
            if let Some(whole) = whole {
                *value = Value::from(whole as i64);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn decide(session: &Session, tool: &Handle, arguments: Value, own_key: Key, progress: &Progress) -> What {
    let nature = tool.tool().nature(&arguments);
    match progress {
        Progress::New if tool.tool().needs_approval(&arguments) => {
            if session.nesting() > 0 {
                let why = "denied: it needs a person's approval, and nobody can be asked here";
                return What::Say(Said::new(Outcome::Denied, why));
            }
            return What::Ask(Doubt::NeedsApproval);
        }
        Progress::Unknown if nature == Nature::Effectful => return What::Ask(Doubt::Unknown),
        _ => {}
    }
    let touches = tool.tool().touches(&arguments);
    let key = match &nature {
        Nature::Idempotent { key: Some(key) } => Key::Given(key.clone()),
        _ => own_key,
    };
    let started = *progress == Progress::Unknown;
    let (limit, time) = (tool.tool().output_limit(), tool.tool().time_limit());
    What::Make(Ready { tool: tool.clone(), arguments, nature, touches, key, limit, time, started })
}

/// Names every call that a person has to decide on.
fn undecided(plans: &[Plan]) -> Option<Error> {
    let named = |doubt: Doubt| {
        let calls = plans.iter().filter(|plan| matches!(plan.what, What::Ask(why) if why == doubt));
        calls.map(|plan| format!("`{}` ({})", plan.call.id, plan.call.tool)).collect::<Vec<_>>()
    };
    let (waiting, unknown) = (named(Doubt::NeedsApproval), named(Doubt::Unknown));
    if waiting.is_empty() && unknown.is_empty() {
        return None;
    }
    let mut why = Vec::new();
    if !waiting.is_empty() {
        why.push(format!("waiting for approval: {}", waiting.join(", ")));
    }
    if !unknown.is_empty() {
        why.push(format!("started once, and nobody knows how it ended: {}", unknown.join(", ")));
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

type Ending = Pin<Box<dyn Future<Output = (usize, Said)> + Send>>;

/// Makes one call. Whatever happens in there, something comes of it that a model can read.
fn call(nth: usize, ready: Ready, cx: Arc<ToolCx>) -> Ending {
    Box::pin(async move {
        let Ready { tool, arguments, limit, time, .. } = ready;
        let work = AssertUnwindSafe(async { tool.tool().call(&cx, arguments).await }).catch_unwind();
        let said = match tokio::time::timeout(time, work).await {
            Ok(Ok(Ok(Output { text }))) => Said { outcome: Outcome::Ok, text, limit },
            Ok(Ok(Err(error))) if error.kind() == ErrorKind::Arguments => {
                Said::new(Outcome::BadArguments, format!("bad arguments: {}", error.message()))
            }
            Ok(Ok(Err(error))) if error.kind() == ErrorKind::Timeout => {
                Said { limit, ..Said::new(Outcome::TimedOut, format!("timed out: {}", error.message())) }
            }
            Ok(Ok(Err(error))) => Said { limit, ..Said::new(Outcome::Failed, format!("failed: {}", error.message())) },
            Ok(Err(_)) => Said::new(Outcome::Failed, PANICKED),
            Err(_) => Said::new(Outcome::TimedOut, format!("timed out: it may take {}", length(time))),
        };
        (nth, said)
    })
}

/// A time limit in words.
fn length(time: Duration) -> String {
    if time.subsec_nanos() == 0 { format!("{} s", time.as_secs()) } else { format!("{} ms", time.as_millis()) }
}

/// How far the calls of a round are.
struct Round {
    slots: Vec<Slot>,
    /// How many results are appended.
    appended: usize,
    /// How many calls have ended that may have changed what a path means.
    changes: u64,
    shown: Shown,
    files: Files,
}

struct Slot {
    call: Call,
    state: State,
}

enum State {
    Waiting { ready: Box<Ready>, touches: Option<(u64, Vec<Touch>)> },
    Running { cx: Arc<ToolCx>, nature: Nature, touches: Vec<Touch>, effects: Vec<Effect> },
    Over { said: Said, cx: Option<Arc<ToolCx>>, left: Option<Left> },
    Appended,
}

impl Round {
    fn of(plans: Vec<Plan>) -> Self {
        let slots = plans.into_iter().map(|Plan { call, what }| {
            let state = match what {
                What::Say(said) => State::Over { said, cx: None, left: None },
                What::Make(ready) => State::Waiting { ready: Box::new(ready), touches: None },
                What::Ask(_) => unreachable!("nothing is made while something waits for a decision"),
            };
            Slot { call, state }
        });
        Round { slots: slots.collect(), appended: 0, changes: 0, shown: Shown::All, files: Files::default() }
    }

    /// Starts up to `most` calls that nothing before them is in the way of.
    fn start(&mut self, session: &mut Session, most: usize) -> Vec<(usize, Ready, Arc<ToolCx>)> {
        let mut started = Vec::new();
        let mut held = Held::default();
        let root = self.files.root();
        for (nth, slot) in self.slots.iter_mut().enumerate() {
            match &mut slot.state {
                State::Running { touches, .. } => held.add(touches),
                State::Waiting { ready, touches } => {
                    if started.len() == most {
                        break;
                    }
                    let resolve = || match &ready.touches[..] {
                        [] => Vec::new(),
                        touches => resolve(touches, root),
                    };
                    let (known, mut resolved) = touches.take().unwrap_or_else(|| (self.changes, resolve()));
                    let mut waits = held.conflicts(&resolved);
                    // What a path means is looked up again only where it matters.
                    if !waits && known != self.changes {
                        resolved = resolve();
                        waits = held.conflicts(&resolved);
                    }
                    held.add(&resolved);
                    if waits {
                        *touches = Some((self.changes, resolved));
                        continue;
                    }
                    if !ready.started {
                        let key =
                            matches!(ready.nature, Nature::Idempotent { .. }).then(|| ready.key.as_str().to_owned());
                        session.push(ToolStarted { call: slot.call.id.clone(), key });
                    }
                    session.emit(|| EventKind::ToolStarted(slot.call.clone()));
                    let cx = Arc::new(ToolCx::new(session.for_tool(), slot.call.clone(), ready.key.clone()));
                    let state = State::Running {
                        cx: cx.clone(),
                        nature: ready.nature.clone(),
                        touches: resolved,
                        effects: Vec::new(),
                    };
                    if let State::Waiting { ready, .. } = std::mem::replace(&mut slot.state, state) {
                        started.push((nth, *ready, cx));
                    }
                }
                State::Over { .. } | State::Appended => {}
            }
        }
        started
    }

    fn finish(&mut self, session: &Session, nth: usize, mut said: Said) {
        let slot = &mut self.slots[nth];
        let State::Running { cx, touches, nature, effects } = std::mem::replace(&mut slot.state, State::Appended)
        else {
            return;
        };
        // What a tool says when it was stopped with everything else is that it was stopped.
        if said.outcome == Outcome::Failed && session.cancel().is_some_and(|cancel| cancel.is_cancelled()) {
            said.outcome = Outcome::Cancelled;
        }
        self.changes += u64::from(!touches.is_empty());
        session.emit(|| EventKind::ToolFinished { call: slot.call.clone(), outcome: said.outcome });
        let left = if nature == Nature::ReadOnly { None } else { self.files.left(effects) };
        slot.state = State::Over { said, cx: Some(cx), left };
    }

    /// Appends the results that no earlier one is missing before.
    fn append(&mut self, session: &mut Session) {
        while let Some(slot) = self.slots.get_mut(self.appended) {
            let State::Over { .. } = slot.state else { return };
            self.shown = slot.append(session, self.shown, &mut self.files);
            self.appended += 1;
        }
    }

    /// Appends what can be said when the round is ended early. A call that changes nothing, or nothing further, stays
    /// open: it is made again when the session goes on, and so is one that was not started.
    fn break_off(&mut self, session: &mut Session) {
        const WHY: &str = "cancelled: the run was stopped before it ended; whether it took effect is not known";
        for slot in &mut self.slots[self.appended..] {
            if let State::Running { cx, nature, effects, .. } = &mut slot.state {
                let (cx, again) = (cx.clone(), *nature != Nature::Effectful);
                let left = self.files.left(std::mem::take(effects));
                if again {
                    cx.work().iter().for_each(|work| session.keep_aside(work));
                    continue;
                }
                session.emit(|| EventKind::ToolFinished { call: slot.call.clone(), outcome: Outcome::Cancelled });
                slot.state = State::Over { said: Said::new(Outcome::Cancelled, WHY), cx: Some(cx), left };
            }
            if let State::Over { .. } = slot.state {
                self.shown = slot.append(session, self.shown, &mut self.files);
            }
        }
    }
}

impl Slot {
    fn append(&mut self, session: &mut Session, before: Shown, files: &mut Files) -> Shown {
        let over = std::mem::replace(&mut self.state, State::Appended);
        let State::Over { said, cx, left } = over else { return before };
        cx.iter().flat_map(|cx| cx.work()).for_each(|work| session.keep_aside(&work));
        cx.iter().flat_map(|cx| cx.checks()).for_each(|checked| _ = session.push(checked));
        // Before it is cut: half a key is not found.
        let text = session.secrets().hide(&said.text).unwrap_or(said.text);
        let (output, whole): (Text, Option<Text>) = shown(text, said.limit);
        let shown = if whole.is_some() { Shown::Part } else { before };
        let result = ToolResult { whole, ..ToolResult::new(self.call.id.clone(), said.outcome, output) };
        session.push(files.tell(session, result, left));
        shown
    }
}

fn resolve(touches: &[Touch], root: Option<&Root>) -> Vec<Touch> {
    let name = |path: &str| root.and_then(|root| root.name(path)).unwrap_or_else(|| plain(path));
    touches.iter().map(|touch| touch.resolved(name)).collect()
}
