//! A process is killed at any moment, and what it was told is kept, is kept.
//!
//! A child of the test's runs an agent on a recorded session; its tools leave a line with a witness outside, before they
//! return. The parent kills it, looks at what the store says against what the witness and the child's own listener wrote
//! down, decides what is in doubt, and lets the next child go on. `RATH_KILLS` sets how many kills a kind of store gets.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rath::Difference;
use rath::chunk::{Call, Finish, Identity};
use rath::prelude::*;
use rath::provider::{Answer, DeltaSink, ProviderBackend, ProviderError, Request, Settings, Shape};
use rath::record::{Digest, Record, Step};
use rath::store::Store;
use rath::turn::Next;
use rath::turn::Progress;
use rath::{Event, Usage};
use serde_json::{Value, json};

use super::common::{All, Chance, KINDS, append_line, child as again, lines, setting, uri};
use crate::shape::check_shape;
use crate::support::{block_on, close};

/// The number of answers after which a session is complete.
const ANSWERS: usize = 44;

/// A model whose answer depends on nothing but the request.
struct Model {
    identity: Identity,
    settings: Arc<Settings>,
}

impl Model {
    fn provider(shape: Shape) -> Provider {
        let identity = Identity { provider: "model".to_owned(), model: "steady".to_owned() };
        Provider::new(Model { identity, settings: Arc::new(Settings::new(shape)) })
    }

    fn answer(request: &Value) -> Answer {
        let messages = request["messages"].as_array().expect("messages");
        let told = messages[0]["content"].as_str().unwrap_or_default();
        let said = messages.iter().filter(|message| message["role"] == "assistant").count();
        let usage = Some(Usage::new(10, 1));
        let say = |text: String| Answer { text, usage, ..Answer::default() };
        let call = |tools: &[&str]| Answer {
            calls: tools
                .iter()
                .enumerate()
                .map(|(nth, tool)| {
                    let arguments = if *tool == "help" { json!({ "task": format!("{said}") }) } else { json!({}) };
                    Call::new(format!("{tool}_{said}_{nth}"), *tool, arguments.to_string())
                })
                .collect(),
            finish: Finish::Calls,
            ..say(String::new())
        };
        match (told.starts_with("Help"), said) {
            (true, 0) => call(&["put", "send"]),
            (true, _) => say("helped".to_owned()),
            (false, said) => match said % 11 {
                0 => call(&["look"]),
                1 => call(&["send", "look", "put"]),
                2 => call(&["put", "put", "look", "send"]),
                4 => call(&["look", "help"]),
                5 => call(&["send"]),
                6 => call(&["send", "send"]),
                8 => call(&["put"]),
                9 => call(&["look", "look", "look", "send"]),
                said => say(format!("so much for {said}")),
            },
        }
    }
}

impl ProviderBackend for Model {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    async fn send(&self, request: &Request, _: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        tokio::task::yield_now().await;
        Ok(Model::answer(&serde_json::from_slice(request.body()).expect("JSON")))
    }
}

/// Leaves a line outside: what was done, for which call, under which key.
async fn witness(kind: &str, cx: &ToolCx) {
    append_line(setting("RATH_WITNESS"), &format!("{kind} {} {}", cx.call().id, cx.key()));
    // A chance to be killed when the effect is there and is not reported yet.
    tokio::time::sleep(Duration::from_millis(2)).await;
}

/// Look.
#[tool(read_only)]
async fn look(cx: &ToolCx) -> &'static str {
    witness("look", cx).await;
    "seen"
}

/// Put it there.
#[tool(idempotent)]
async fn put(cx: &ToolCx) -> &'static str {
    witness("put", cx).await;
    "put"
}

/// Send it.
#[tool]
async fn send(cx: &ToolCx) -> &'static str {
    witness("send", cx).await;
    "sent"
}

fn agent() -> Agent {
    let provider = Model::provider(Shape::Chat);
    let helper = Agent::new("Help.", &provider).tool(put).tool(send);
    Agent::new("Work.", &provider).tool(look).tool(put).tool(send).delegate("help", helper)
}

/// Runs an agent, and writes down the steps that it hears of.
async fn run(agent: &Agent, session: Session) -> Result<Session> {
    let heard = setting("RATH_ACK");
    let listener = move |event: &Event| {
        if let EventKind::Step(step) = &event.kind {
            append_line(&heard, &step.id().to_string());
        }
    };
    agent.run(session).on_event(listener).await
}

async fn said(session: &mut Session, words: &str) -> Result<()> {
    let step = session.push(Chunk::user(words));
    session.durable().await?;
    append_line(setting("RATH_ACK"), &step.to_string());
    Ok(())
}

/// The work of the child: it continues the longest session, and forks and joins it now and then.
async fn work(store: &Store) -> Result<()> {
    let agent = agent();
    let list = store.list().await?;
    let mut session = match list.iter().max_by_key(|listed| listed.totals.chunks) {
        Some(listed) => store.resume(listed.branch).await?.to_decide()?,
        None => Session::user("begin").record(store).await?,
    };
    loop {
        if session.next() != Next::Done {
            session = run(&agent, session).await?;
            continue;
        }
        let answers = session.chunks().filter(|chunk| matches!(chunk, Chunk::Assistant(_))).count();
        if answers >= ANSWERS {
            return Ok(());
        }
        if answers % 3 == 0 {
            let (mut left, mut right) = (session.fork(), session.fork_named("right"));
            said(&mut left, "on the left").await?;
            said(&mut right, "on the right").await?;
            let (left, right) = tokio::try_join!(run(&agent, left), run(&agent, right))?;
            session = left.merge(&right).await?;
        }
        said(&mut session, "go on").await?;
    }
}

#[test]
#[ignore = "what a_process_that_is_killed_.. starts"]
fn child() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    let store = block_on(Store::open(&uri)).expect("a store");
    block_on(work(&store)).expect("the work is done");
    close((), store);
}

/// Counts of failures, which must be zero, and of what was compared.
#[derive(Default)]
struct Counts {
    kills: u64,
    ends: u64,
    acknowledged: u64,
    effects: u64,
    decided: u64,
    wrong: Vec<(&'static str, String)>,
}

const WRONG: [&str; 6] = [
    "acknowledged steps lost",
    "effects without a durable intent",
    "effects repeated without approval",
    "sessions that do not open",
    "requests that would be refused",
    "children that failed",
];

impl Counts {
    fn wrong(&mut self, what: usize, why: impl fmt::Display) {
        self.wrong.push((WRONG[what], why.to_string()));
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { kills, ends, acknowledged, effects, decided, wrong } = self;
        write!(f, "{kills} kills, {ends} sessions ended, {acknowledged} steps acknowledged, {effects} effects, ")?;
        write!(f, "{decided} calls decided")?;
        for what in WRONG {
            write!(f, "; {what}: {}", wrong.iter().filter(|(kind, _)| *kind == what).count())?;
        }
        wrong.iter().take(20).try_for_each(|(kind, why)| write!(f, "\n  {kind}: {why}"))
    }
}

/// One session's place, with those who watch from outside.
struct KillTrial {
    folder: rath_test_support::TempDir,
    uri: String,
    seen_acks: usize,
    seen_effects: usize,
    /// The number of answers at the last look.
    answers: usize,
}

impl KillTrial {
    fn new(kind: &str) -> Self {
        let folder = rath_test_support::temp_dir();
        let uri = uri(kind, folder.path());
        KillTrial { folder, uri, seen_acks: 0, seen_effects: 0, answers: 0 }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self) -> std::process::Child {
        let (ack, witness) = (self.file("ack"), self.file("witness"));
        let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let settings = [("RATH_STORE", &*self.uri), ("RATH_ACK", &path(&ack)), ("RATH_WITNESS", &path(&witness))];
        again("store::kill::child", &settings).spawn().expect("a child starts")
    }

    /// Compares what the store says with what others saw.
    fn check(&mut self, counts: &mut Counts, chance: &mut Chance) {
        let store = match block_on(Store::open(&self.uri)) {
            Ok(store) => store,
            Err(error) => return counts.wrong(3, error),
        };
        let all = match block_on(All::of(&store)) {
            Ok(all) => all,
            Err(error) => return counts.wrong(3, error),
        };
        all.damage.iter().for_each(|damage| counts.wrong(3, damage));
        let acks = lines(self.file("ack"));
        let kept: HashSet<String> = all.steps.keys().map(ToString::to_string).collect();
        acks.iter().filter(|ack| !kept.contains(*ack)).for_each(|ack| counts.wrong(0, ack));
        let effects = lines(self.file("witness"));
        check_effects(&all, &effects, counts);
        counts.acknowledged += (acks.len() - self.seen_acks) as u64;
        counts.effects += (effects.len() - self.seen_effects) as u64;
        (self.seen_acks, self.seen_effects) = (acks.len(), effects.len());
        if let Some(longest) = all.longest() {
            let behind = block_on(store.read(longest.branch)).expect("it was read before").session;
            self.answers = behind.chunks().filter(|chunk| matches!(chunk, Chunk::Assistant(_))).count();
            block_on(decide(&store, longest.branch, counts, chance)).unwrap_or_else(|error| counts.wrong(3, error));
        }
        close(all, store);
    }
}

/// The name of a call: that of the answer that asked for it, and its own.
fn name(answer: &Step, call: &str) -> String {
    Digest::compute(format!("{} {call}", answer.id()).as_bytes()).to_string()
}

/// The answer that a step about a call belongs to, and whether the call had been started before.
fn asked(step: &Step, call: &str) -> Option<(String, bool)> {
    let mut started = false;
    for before in Record::at(step.clone()).newest_first().skip(1) {
        match before.chunk() {
            Chunk::ToolStarted(it) if it.call.0.as_ref() == call => started = true,
            Chunk::Assistant(it) if it.calls.iter().any(|it| it.id.0.as_ref() == call) => {
                return Some((name(before, call), started));
            }
            _ => {}
        }
    }
    None
}

fn check_effects(all: &All, effects: &[String], counts: &mut Counts) {
    let (mut intents, mut approvals) = (HashMap::<String, u64>::new(), HashMap::<String, u64>::new());
    for step in all.steps.values() {
        match step.chunk() {
            Chunk::ToolStarted(it) => {
                let Some((name, _)) = asked(step, &it.call.0) else { continue };
                if it.key.as_ref().is_some_and(|key| *key != name) {
                    counts.wrong(2, format!("{} was started under another key", it.call));
                }
                *intents.entry(name).or_default() += 1;
            }
            Chunk::Approved(it) => {
                if let Some((name, true)) = asked(step, &it.call.0) {
                    *approvals.entry(name).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    let mut done = HashMap::<&str, u64>::new();
    for effect in effects {
        let [kind, call, key] = effect.split(' ').collect::<Vec<_>>()[..] else { panic!("`{effect}` is no effect") };
        let done = done.entry(key).or_default();
        *done += 1;
        if !intents.contains_key(key) {
            counts.wrong(1, format!("{kind} for {call}"));
        }
        if kind == "send" && *done > 1 + approvals.get(key).copied().unwrap_or_default() {
            counts.wrong(2, format!("{kind} for {call}, for the {done}th time"));
        }
    }
}

/// Opens the session to go on with it, looks at what a model would be sent, and decides what is in doubt.
async fn decide(store: &Store, branch: rath::BranchId, counts: &mut Counts, chance: &mut Chance) -> Result<()> {
    let resumed = store.resume(branch).await?;
    for difference in resumed.certificate().differences() {
        if !matches!(difference, Difference::InDoubt { .. } | Difference::Unobserved { .. }) {
            counts.wrong(3, difference);
        }
    }
    let mut session = resumed.to_decide()?;
    for shape in [Shape::Chat, Shape::Messages] {
        match Model::provider(shape).request(&session) {
            Ok(request) => check_shape(&request, shape).unwrap_or_else(|error| counts.wrong(4, error)),
            // Nothing to be asked yet: calls wait, or the model has just spoken.
            Err(error) if error.kind() == ErrorKind::Turn => {}
            Err(error) => counts.wrong(4, error),
        }
    }
    if let Next::RunTools(calls) = session.next() {
        for pending in calls.into_iter().filter(|pending| pending.progress == Progress::Unknown) {
            if matches!(&*pending.call.tool, "send" | "help") {
                counts.decided += 1;
                match chance.below(3) {
                    0 => session.approve(pending.call.id)?,
                    1 => session.skip(pending.call.id).await?,
                    _ => session.give_result(pending.call.id, "it was done").await?,
                };
            }
        }
    }
    session.durable().await
}

/// Kills children until there were enough kills.
fn kill(kind: &str, kills: u64) -> Counts {
    let mut counts = Counts::default();
    let mut chance = Chance(rath_test_support::seed() + kind.len() as u64);
    let mut stage = KillTrial::new(kind);
    // The time of a run that is not killed.
    let begun = Instant::now();
    let ended = stage.start().wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let typical = begun.elapsed();
    stage.check(&mut counts, &mut chance);
    stage = KillTrial::new(kind);
    while counts.kills < kills {
        let mut child = stage.start();
        // Any moment of what is left to be done; now and then one just after the start.
        let left = typical.mul_f64((ANSWERS.saturating_sub(stage.answers) as f64 / ANSWERS as f64).max(0.3));
        let most = if chance.below(10) == 0 { 30_000 } else { left.as_micros() as u64 };
        let until = Instant::now() + Duration::from_micros(chance.below(most));
        while Instant::now() < until && child.try_wait().expect("it can be asked").is_none() {
            std::thread::sleep(Duration::from_micros(500).min(until.saturating_duration_since(Instant::now())));
        }
        if let Some(status) = child.try_wait().expect("it can be asked") {
            let output = child.wait_with_output().expect("it ended");
            if !status.success() {
                counts.wrong(5, String::from_utf8_lossy(&output.stderr));
            }
            counts.ends += 1;
            stage.check(&mut counts, &mut chance);
            stage = KillTrial::new(kind);
            continue;
        }
        child.kill().expect("it can be killed");
        child.wait().expect("it is over");
        counts.kills += 1;
        stage.check(&mut counts, &mut chance);
        if counts.wrong.len() > 20 {
            break;
        }
    }
    counts
}

#[cfg(unix)]
#[test]
fn a_process_that_is_killed_at_any_moment_loses_nothing_it_was_told_is_kept_and_repeats_nothing_unasked() {
    let kills = rath_test_support::count("RATH_KILLS", 20);
    let counts = std::thread::scope(|scope| {
        let running = KINDS.map(|kind| scope.spawn(move || (kind, Instant::now(), kill(kind, kills))));
        running.map(|running| {
            let (kind, begun, counts) = running.join().expect("it ends");
            println!("{kind} ({:.1} s): {counts}", begun.elapsed().as_secs_f32());
            counts
        })
    });
    for counts in counts {
        assert!(counts.wrong.is_empty() && counts.kills >= kills, "{counts}");
    }
}
