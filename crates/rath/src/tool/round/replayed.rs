//! A round of calls in a replay: what was begun and what came of it, in the order of the recording.

use std::sync::Arc;

use rath_record::chunk::{Call, Chunk, Outcome, ToolResult, ToolStarted};
use rath_record::{CallId, Record, Step};
use serde_json::{Value, json};

use super::{Plan, Ready, Said, Shown, What, call, shown};
use crate::replay::{Divergence, Replay, failure, is_aside};
use crate::session::Result;
use crate::session::{Session, is_of_workspace};
use crate::tool::{Nature, ToolCx};

/// Appends what came of the calls. None of them is made, unless tools run again.
pub(super) async fn run(session: &mut Session, replay: &Replay, plans: Vec<Plan>) -> Result<Shown> {
    let mut slots: Vec<Slot> = plans.into_iter().map(Slot::of).collect();
    let mut told = Shown::All;
    while slots.iter().any(|slot| !slot.closed) {
        let doing = || {
            let open = slots.iter().filter(|slot| !slot.closed).map(|slot| &*slot.call.tool).collect::<Vec<_>>();
            format!("tools are called: {}", open.join(", "))
        };
        let step = replay.next(session, doing, |chunk| is_of_round(chunk, &slots)).await?;
        match step.chunk() {
            Chunk::ToolStarted(started) => match Slot::named(&mut slots, &started.call, |slot| slot.cx.is_none()) {
                Some(slot) => slot.start(session),
                None => session.go_on_by(&step),
            },
            Chunk::ToolResult(result) => {
                let Some(slot) = Slot::named(&mut slots, &result.call, |_| true) else { continue };
                slot.finish(session, replay, &step, result).await?;
                if result.whole.is_some() {
                    told = Shown::Part;
                }
            }
            Chunk::Merged(_) => {
                if let Some(aside) = step.parents().get(1).and_then(|aside| aside.step()) {
                    replay.take(aside);
                    session.keep_aside(&Session::resume(Record::at(aside.clone())));
                }
            }
            _ => {
                session.go_on_by(&step);
                if let Some(error) = failure(&step) {
                    return Err(error.with_session(session));
                }
            }
        }
    }
    replay.check(session)?;
    Ok(told)
}

/// Whether it says something about these calls, or that they were given up.
fn is_of_round(chunk: &Chunk, slots: &[Slot]) -> bool {
    let open = |call: &CallId| slots.iter().any(|slot| !slot.closed && slot.call.id == *call);
    match chunk {
        Chunk::ToolStarted(started) => open(&started.call),
        Chunk::ToolResult(result) => open(&result.call),
        Chunk::Interrupted(_) => true,
        chunk => is_aside(chunk) || is_of_workspace(chunk),
    }
}

/// A call, and how far it is.
struct Slot {
    call: Call,
    what: What,
    /// There once it is begun.
    cx: Option<Arc<ToolCx>>,
    closed: bool,
}

impl Slot {
    fn of(Plan { call, what }: Plan) -> Self {
        Slot { call, what, cx: None, closed: false }
    }

    /// Of calls with one name, the first that is open and fits.
    fn named<'a>(slots: &'a mut [Slot], call: &CallId, fits: impl Fn(&Slot) -> bool) -> Option<&'a mut Slot> {
        slots.iter_mut().find(|slot| !slot.closed && slot.call.id == *call && fits(slot))
    }

    /// Begins it as the program would, or says what the program would say: the recording decides whether that is right.
    fn start(&mut self, session: &mut Session) {
        match &self.what {
            What::Make(ready) => {
                if !ready.started {
                    let key = matches!(ready.nature, Nature::Idempotent { .. }).then(|| ready.key.as_str().to_owned());
                    session.push(ToolStarted { call: self.call.id.clone(), key });
                }
                self.cx = Some(Arc::new(ToolCx::new(session.for_tool(), self.call.clone(), ready.key.clone())));
            }
            What::Say(said) => {
                session.push(self.result(said));
                self.closed = true;
            }
            What::Ask(_) => {}
        }
    }

    async fn finish(
        &mut self,
        session: &mut Session,
        replay: &Replay,
        step: &Step,
        recorded: &ToolResult,
    ) -> Result<()> {
        if self.cx.is_none() {
            self.start(session);
            replay.check(session)?;
        }
        if self.closed {
            return Ok(());
        }
        self.closed = true;
        if let (What::Make(ready), Some(cx)) = (&self.what, &self.cx)
            && is_made_again(replay, ready, recorded)
        {
            let mut said = {
                // What only runs workflows waits for nothing but the recording.
                let _runs = (!ready.tool.tool().only_runs_workflows()).then(|| replay.tool_runs());
                call(0, ready.clone(), cx.clone()).await.1
            };
            // As it would have been recorded.
            said.text = session.secrets().hide(&said.text).unwrap_or(said.text);
            replay.check(session)?;
            if let Some((pointer, expected, found)) = differs(recorded, &self.result(&said)) {
                return Err(replay.diverge(session, Divergence::values(step, pointer, &expected, &found)));
            }
        }
        session.go_on_by(step);
        Ok(())
    }

    /// What the model reads of what a tool said.
    fn result(&self, said: &Said) -> ToolResult {
        let (output, whole) = shown(said.text.clone(), said.limit);
        ToolResult { whole, ..ToolResult::new(self.call.id.clone(), said.outcome, output) }
    }
}

/// Whether a call is made in a replay. One that hands on its task to a workflow always is, since nothing but the recording
/// answers there. How long a call takes, and when it is stopped, is nothing to repeat.
fn is_made_again(replay: &Replay, ready: &Ready, recorded: &ToolResult) -> bool {
    let ended = matches!(recorded.outcome, Outcome::Ok | Outcome::Failed | Outcome::BadArguments);
    ended && (replay.branch_dirs().is_some() || ready.tool.tool().only_runs_workflows())
}

/// Where what a tool says differs from what it said.
fn differs(recorded: &ToolResult, now: &ToolResult) -> Option<(&'static str, Value, Value)> {
    if recorded.outcome != now.outcome {
        return Some(("/outcome", json!(recorded.outcome), json!(now.outcome)));
    }
    if recorded.output != now.output {
        return Some(("/output", json!(recorded.output.to_string()), json!(now.output.to_string())));
    }
    let (before, after) = (recorded.whole.as_ref(), now.whole.as_ref());
    (before != after).then(|| {
        let say = |text: Option<&rath_record::Text>| json!(text.map(ToString::to_string));
        ("/whole", say(before), say(after))
    })
}
