//! Runs: their events, cancellation, and the sessions that they leave.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use expect_test::expect;
use futures_util::Stream;
use rath::Usage;
use rath::chunk::Identity;
use rath::chunk::{Call, Finish};
use rath::prelude::*;
use rath::provider::{Answer, DeltaSink, ProviderBackend, ProviderError, Request, Settings, Shape};
use rath::secrets::AddOutcome;
use rath::tool::builtin::Shell;
use rath::turn::Next;
use rath::turn::Progress;
use serde_json::{Value, json};

use crate::support::{MemoryAnswer, TestMemory, block_on, log, script};

/// A model that answers by its instructions and the number of results. Each answer comes only after a few polls.
pub(crate) struct Model {
    identity: Identity,
    settings: Arc<Settings>,
}

impl Model {
    pub(crate) fn provider() -> Provider {
        let identity = Identity { provider: "model".to_owned(), model: "slow".to_owned() };
        Provider::new(Model { identity, settings: Arc::new(Settings::new(Shape::Chat)) })
    }

    /// Answers a request. The number of results since the user's message tells the turns apart.
    fn answer(request: &Value) -> Answer {
        let messages = request["messages"].as_array().expect("messages");
        let told = messages[0]["content"].as_str().unwrap_or_default();
        let asked = messages.iter().rposition(|message| message["role"] == "user").unwrap_or_default();
        let results = messages[asked..].iter().filter(|message| message["role"] == "tool").count();
        let say = |text: &str| Answer { text: text.to_owned(), usage: Some(Usage::new(10, 1)), ..Answer::default() };
        let call = |calls: &[(&str, Value)]| Answer {
            calls: calls
                .iter()
                .enumerate()
                .map(|(nth, (tool, arguments))| {
                    Call::new(format!("{tool}_{results}_{nth}"), *tool, arguments.to_string())
                })
                .collect(),
            finish: Finish::Calls,
            ..say("")
        };
        match (told.split(['.', '\n']).next().unwrap_or_default(), results) {
            ("Work", 0) => call(&[("wait", json!({})), ("send", json!({})), ("help", json!({"task": "Help."}))]),
            ("Work", 3) => call(&[("wait", json!({}))]),
            ("Work", _) => say("worked"),
            ("Help", 0) => call(&[("wait", json!({}))]),
            ("Help", _) => say("helped"),
            ("You fold conversations", _) => say("folded"),
            ("You direct a conversation: you say who goes on with it", _) => {
                say(if messages.iter().any(|message| message["content"] == "worked") { "0" } else { "1" })
            }
            other => panic!("unexpected request: {other:?}"),
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

    async fn send(&self, request: &Request, sink: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        tokio::task::yield_now().await;
        let answer = Model::answer(&serde_json::from_slice(request.body()).expect("JSON"));
        sink(Delta::Text(&answer.text));
        tokio::task::yield_now().await;
        Ok(answer)
    }
}

/// Wait a little.
#[tool(read_only)]
async fn wait() -> &'static str {
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    "waited"
}

/// Send a letter.
#[tool]
async fn send() -> &'static str {
    tokio::task::yield_now().await;
    "sent"
}

/// A workflow with every kind of work that can be interrupted.
#[derive(Module)]
pub(crate) struct All {
    pub(crate) selector: Selector,
    pub(crate) worker: Agent,
    pub(crate) compressor: Compressor,
}

impl Workflow for All {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        while let Some(next) = self.selector.pick(&mut session, &[&self.worker]).await? {
            session = next.run(session).await?;
        }
        self.compressor.run(session).await
    }
}

pub(crate) fn all() -> All {
    let provider = Model::provider();
    let helper = Agent::new("Help.", &provider).tool(wait);
    All {
        selector: Selector::new(&provider),
        worker: Agent::new("Work.", &provider).tool(wait).tool(send).delegate("help", helper),
        compressor: Compressor::new(&provider).keep(1),
    }
}

/// Polls a run, and does something after so many polls. Returns its newest state, and its result if it ended.
pub(crate) fn poll(
    flow: &dyn Run,
    session: Session,
    moment: usize,
    then: impl Fn() -> Then,
) -> (Session, Option<Result<Session>>) {
    let mut newest = session.clone();
    let mut events = flow.run(session).events();
    let mut context = Context::from_waker(Waker::noop());
    for polled in 0.. {
        if polled == moment && then() == Then::Drop {
            return (newest, None);
        }
        assert!(polled < moment + 10_000, "it does not end");
        match Pin::new(&mut events).poll_next(&mut context) {
            Poll::Ready(Some(event)) => {
                // Events of delegated work come, too.
                if newest.id() == event.session.id() {
                    newest = event.session;
                }
            }
            Poll::Ready(None) => {
                let Poll::Ready(result) = Box::pin(events.finish()).as_mut().poll(&mut context) else {
                    panic!("it is over")
                };
                return (newest, Some(result));
            }
            Poll::Pending => {}
        }
    }
    unreachable!("the loop ends with the run")
}

#[derive(PartialEq)]
pub(crate) enum Then {
    GoOn,
    Drop,
}

/// Checks that a session can be saved, opened and rendered, and that the work continues from it to the same end.
fn check_whole(session: &Session, wanted: &str) {
    let folder = rath_test_support::temp_dir();
    let path = folder.path().join("left.rath");
    session.save_blocking(&path).expect("a file");
    let opened = Session::open_blocking(&path).expect("a file of ours");
    assert!(opened.report.is_whole(), "{:?}", opened.report);
    Model::provider().request(session).expect("a request");
    let all = all();
    let mut session = opened.session;
    let done = block_on(async {
        loop {
            // An agent in the middle of a turn ends it; then the workflow starts again on that session.
            let run = match session.next() {
                Next::RunTools(_) => all.worker.run(session.clone()),
                Next::AskModel | Next::Done => all.run(session.clone()),
            };
            match run.await {
                Ok(more) if more.folds().is_empty() => session = more,
                Ok(done) => return done,
                // A letter and a delegated task whose ends are unknown.
                Err(error) if error.kind() == ErrorKind::Approval => {
                    session = error.into_session().expect("a session");
                    let Next::RunTools(calls) = session.next() else { panic!("nothing is open") };
                    for pending in calls.iter().filter(|pending| pending.progress == Progress::Unknown) {
                        if &*pending.call.tool != "wait" {
                            session.deny(pending.call.id.clone(), "let it be").expect("it is in doubt");
                        }
                    }
                }
                Err(error) => panic!("{error}\n{}", session.lineage()),
            }
        }
    });
    assert_eq!(done.text(), Some(wanted), "{}", done.lineage());
    let letters =
        done.chunks().filter(|chunk| matches!(chunk, Chunk::ToolStarted(it) if it.call.0.starts_with("send")));
    assert!(letters.count() <= 1, "a letter was sent twice\n{}", done.lineage());
}

/// Runs it for every moment until it ends by itself before that, and returns the number of moments.
pub(crate) fn at_every_moment(check: impl Fn(usize) -> bool) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    (0..)
        .take_while(|moment| {
            // Polled by hand within a runtime that has timers. The work that continues has another runtime.
            let _inside = runtime.enter();
            check(*moment)
        })
        .count()
}

#[test]
fn a_run_cancelled_at_any_moment_leaves_a_session_that_can_continue() {
    let moments = at_every_moment(|moment| {
        let cancel = Cancel::new();
        let flow = all();
        let session = Session::user("go").until(&cancel);
        let (_, result) = poll(&flow, session, moment, || {
            cancel.cancel();
            Then::GoOn
        });
        match result.expect("it ends when it is cancelled") {
            Ok(session) => {
                assert_eq!(session.text(), Some("worked"));
                false
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
                let session = error.into_session().expect("a session");
                assert!(session.lineage().to_string().contains("interrupted: the run was cancelled"));
                check_whole(&session.until(&Cancel::new()), "worked");
                true
            }
        }
    });
    assert!(moments > 50, "{moments} moments");
}

#[test]
fn a_run_dropped_at_any_moment_leaves_a_valid_record() {
    let moments = at_every_moment(|moment| {
        let flow = all();
        let (newest, result) = poll(&flow, Session::user("go"), moment, || Then::Drop);
        if result.is_none() {
            check_whole(&newest, "worked");
        }
        result.is_none()
    });
    assert!(moments > 50, "{moments} moments");
}

#[cfg(unix)]
#[test]
fn a_process_ends_with_the_call_that_started_it() {
    let folder = rath_test_support::temp_dir();
    let place = Sandbox::local(folder.path());
    // The process of the command, and one that it started in the background.
    let command = "sleep 1000 >/dev/null 2>&1 & echo $! > left; echo $$ > own.tmp; mv own.tmp own; sleep 1000";
    let turn = json!({"calls": [{"name": "shell", "arguments": {"command": command}}]}).to_string();
    let provider = script([&turn, &turn]);
    let agent = Agent::new("Go.", &provider).tool(Shell);
    let started = || async {
        while !folder.path().join("own").exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let ended = || {
        for name in ["own", "left"] {
            let id = std::fs::read_to_string(folder.path().join(name)).expect("an id");
            let state = || {
                let status = std::fs::read_to_string(format!("/proc/{}/stat", id.trim())).ok()?;
                status.rsplit(')').next()?.trim().chars().next()
            };
            let mut tries = 0;
            while state().is_some_and(|state| state != 'Z') {
                tries += 1;
                assert!(tries < 20_000, "process {name} is still there");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            std::fs::remove_file(folder.path().join(name)).expect("a file");
        }
    };
    // Dropped.
    block_on(async {
        let run = agent.run(Session::user("go").to(place.clone()));
        tokio::select! {
            _ = run => panic!("it sleeps"),
            () = started() => {}
        }
    });
    ended();
    // Cancelled.
    let cancel = Cancel::new();
    let error = block_on(async {
        let run = agent.run(Session::user("go").to(place.clone()).until(&cancel));
        let stop = async {
            started().await;
            cancel.cancel();
        };
        futures_util::future::join(run, stop).await.0.expect_err("it is cancelled")
    });
    ended();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let log = log(error.session().expect("a session"));
    let (_, end) = log.split_once("tool started").expect("it was started");
    expect![[r#"
        : call_2_1  [agent]
        tool result: call_2_1 cancelled: the run was stopped before the call ended; it ma… +left +own  [agent]
        interrupted: the run was cancelled  [agent]
    "#]]
    .assert_eq(end);
}

#[test]
fn events_come_in_order_and_their_session_can_be_read() {
    let provider = script([
        r#"{"text": "Let me see.", "reasoning": "Hm.", "calls": [{"name": "talk"}], "chunks": 2}"#,
        r#"{"text": "Seen."}"#,
    ]);
    /// Talk.
    #[tool(read_only)]
    async fn talk(cx: &ToolCx) -> &'static str {
        cx.output("half way");
        "seen"
    }
    let agent = Agent::new("Look.", &provider).tool(talk);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = heard.clone();
    let session = Session::user("go").within(Budget::new().turns(9));
    let run = agent.run(session).on_event(move |event| {
        let kind = match &event.kind {
            EventKind::Step(step) => format!("step {}", step.chunk().kind()),
            EventKind::Budget { turns, .. } => format!("budget {turns} turns"),
            EventKind::ToolStarted(call) => format!("started {}", call.tool),
            EventKind::ToolFinished { call, outcome } => format!("finished {}: {outcome:?}", call.tool),
            other => format!("{other:?}"),
        };
        told.lock().expect("no panic").push(format!("{kind}, {} chunks", event.session.chunk_count()));
    });
    let session = block_on(run).expect("a run");
    expect![[r#"
        step instructions, 2 chunks
        Turn { turn: 1 }, 2 chunks
        Reasoning("Hm."), 2 chunks
        Text("Let m"), 2 chunks
        Text("e see."), 2 chunks
        step assistant, 3 chunks
        budget 1 turns, 3 chunks
        step tool_started, 4 chunks
        started talk, 4 chunks
        ToolOutput { call: call_1_1, text: "half way" }, 4 chunks
        finished talk: Ok, 4 chunks
        step tool_result, 5 chunks
        Turn { turn: 2 }, 5 chunks
        Text("Seen."), 5 chunks
        step assistant, 6 chunks
        budget 2 turns, 6 chunks"#]]
    .assert_eq(&heard.lock().expect("no panic").join("\n"));
    // The listener of a run gets no events of later work.
    let before = heard.lock().expect("no panic").len();
    let mut later = session;
    later.push(Chunk::note("later"));
    assert_eq!(heard.lock().expect("no panic").len(), before);
}

#[test]
fn a_slow_or_panicking_listener_does_not_affect_the_run() {
    let turn = [r#"{"calls": [{"name": "wait"}]}"#, r#"{"text": "done"}"#];
    let (slow, other) = (Agent::new("Go.", &script(turn)).tool(wait), Agent::new("Go.", &script(turn)).tool(wait));
    let broken = Agent::new("Go.", &script(turn)).tool(wait);
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let order = runtime.block_on(async {
        let order = Mutex::new(Vec::new());
        let note = |name| order.lock().expect("no panic").push(name);
        let first = async {
            // The listener returns only after the other runs, on a runtime that has one thread for all of them.
            let mut waits = true;
            let run = slow.run(Session::user("go")).on_event(move |_| {
                if std::mem::take(&mut waits) {
                    held.recv().expect("a word");
                }
            });
            let session = run.await.expect("a run");
            note("slow");
            session
        };
        let second = async {
            let session = other.run(Session::user("go")).await.expect("a run");
            note("other");
            session
        };
        let third = async {
            let run = broken.run(Session::user("go")).on_event(|_| panic!("a listener's own problem"));
            let session = run.await.expect("a run");
            note("broken");
            session
        };
        let others = async {
            let others = tokio::join!(second, third);
            let_go.send(()).expect("it listens");
            others
        };
        let (first, (second, third)) = tokio::join!(first, others);
        assert_eq!([first.text(), second.text(), third.text()], [Some("done"); 3]);
        order.into_inner().expect("no panic")
    });
    assert_eq!(order.last(), Some(&"slow"));
}

#[test]
fn events_can_be_taken_one_by_one() {
    let agent = Agent::new("Go.", &script([r#"{"text": "one two three", "chunks": 3}"#]));
    let (texts, session) = block_on(async {
        let mut events = agent.run(Session::user("go")).events();
        let mut texts = Vec::new();
        while let Some(event) = events.next().await {
            if let EventKind::Text(text) = event.kind {
                texts.push(text);
            }
        }
        (texts, events.finish().await)
    });
    assert_eq!(texts.concat(), "one two three");
    assert_eq!(texts.len(), 3);
    assert_eq!(session.expect("a run").text(), Some("one two three"));
}

#[test]
fn an_answer_can_be_a_value() {
    #[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
    struct River {
        /// In French.
        name: String,
        km: u32,
    }
    let provider = script([
        r#"{"text": "It is the Seine.", "expect": {"contains": "In French."}}"#,
        r#"{"text": "{\"name\": \"Seine\", \"km\": \"long\"}", "expect": {"contains": "it is not JSON"}}"#,
        r#"{"text": "```json\n{\"name\": \"Seine\", \"km\": 777}\n```", "expect": {"contains": "`km`: wanted an integer, found a string: \"long\""}}"#,
        r#"{"text": "no"}"#,
        r#"{"text": "no"}"#,
        r#"{"text": "no"}"#,
    ]);
    let agent = Agent::new("You know rivers.", &provider);
    let (session, river) = block_on(agent.answer::<River>(Session::user("Which river?"))).expect("an answer");
    assert_eq!(river, River { name: "Seine".to_owned(), km: 777 });
    assert_eq!(session.module(), None);
    let error = block_on(agent.answer::<River>(Session::user("Which river?"))).expect_err("it never fits");
    assert_eq!(error.kind(), ErrorKind::Answer);
    expect![[r#"
        user: Which river?
        instructions: You know rivers. Answer with one JSON value, and nothing el…  [agent]
        assistant: no  [agent]  (113 in, 1 out)
        user: The answer does not fit: it is not JSON: expected ident at …  [agent]
        assistant: no  [agent]  (162 in, 1 out)
        user: The answer does not fit: it is not JSON: expected ident at …  [agent]
        assistant: no  [agent]  (211 in, 1 out)
    "#]]
    .assert_eq(&log(error.session().expect("a session")));
}

#[test]
fn a_fact_is_recalled_once_per_conversation() {
    let memory = Memory::in_process("notes");
    let provider = script([r#"{"text": "ok"}"#; 9]);
    let agent = Agent::new("Go.", &provider).memory(&memory);
    let session = block_on(async {
        let mut session = Session::user("Which colour is best?");
        agent.remember(&mut session, "The best colour is green.").await?;
        session = agent.run(session).await?;
        agent.commit(&mut session).await?;
        agent.commit(&mut session).await?;
        for _ in 0..3 {
            session.push(Chunk::user("Which colour is the best of all?"));
            session = agent.run(session).await?;
        }
        Ok::<_, Error>(session)
    });
    expect![[r#"
        user: Which colour is best?
        remember: The best colour is green.  [agent]
        instructions: Go.  [agent]
        recall: Which colour is best? (1 found)  [agent]
        assistant: ok  [agent]  (69 in, 1 out)
        commit: 3 notes  [agent]
        user: Which colour is the best of all?
        recall: Which colour is the best of all? (0 found)  [agent]
        assistant: ok  [agent]  (93 in, 1 out)
        user: Which colour is the best of all?
        recall: Which colour is the best of all? (0 found)  [agent]
        assistant: ok  [agent]  (117 in, 1 out)
        user: Which colour is the best of all?
        recall: Which colour is the best of all? (0 found)  [agent]
        assistant: ok  [agent]  (141 in, 1 out)
    "#]]
    .assert_eq(&log(&session.expect("a run")));
    // Another session recalls the fact, and the conversation that was committed with it.
    let session = block_on(agent.run(Session::user("Tell me about the colour."))).expect("a run");
    assert!(log(&session).contains("(3 found)"), "{}", log(&session));
    let session = block_on(agent.run(Session::user("Tell me about fish."))).expect("a run");
    assert!(log(&session).contains("(0 found)"), "{}", log(&session));
}

#[test]
fn a_conversation_is_folded_before_it_fills_the_window_and_can_be_read_back() {
    let worker = (0..12).map(|nth| {
        let usage = json!({"input": 100 * (nth % 6 + 1), "output": 10});
        json!({"agent": "agent", "calls": [{"name": "wait"}], "usage": usage}).to_string()
    });
    let folder = (0..5).map(|nth| {
        json!({"agent": "agent.compressor", "text": format!("summary {nth}"), "usage": {"input": 7, "output": 1}})
            .to_string()
    });
    let last = [json!({"agent": "agent", "text": "done", "usage": {"input": 50, "output": 10}}).to_string()];
    let provider = script(worker.chain(folder).chain(last).collect::<Vec<_>>());
    let compressor = Compressor::new(&provider).window(1_000).share(0.5).keep(2);
    let agent = Agent::new("Work.", &provider).tool(wait).compress(compressor);
    let session = block_on(agent.run(Session::user("go"))).expect("a run");
    expect![[r#"
        user: go
        instructions: Work. (tools: wait)  [agent]
        assistant calls wait({})  [agent]  (100 in, 10 out)
        tool started: call_1_1  [agent]
        tool result: call_1_1 ok: waited  [agent]
        assistant calls wait({})  [agent]  (200 in, 10 out)
        tool started: call_2_1  [agent]
        tool result: call_2_1 ok: waited  [agent]
        assistant calls wait({})  [agent]  (300 in, 10 out)
        tool started: call_3_1  [agent]
        tool result: call_3_1 ok: waited  [agent]
        assistant calls wait({})  [agent]  (400 in, 10 out)
        tool started: call_4_1  [agent]
        tool result: call_4_1 ok: waited  [agent]
        assistant calls wait({})  [agent]  (500 in, 10 out)
        tool started: call_5_1  [agent]
        tool result: call_5_1 ok: waited  [agent]
        compressed: 9 steps into: summary 0  [agent.compressor]
        assistant calls wait({})  [agent]  (600 in, 10 out)
        tool started: call_6_1  [agent]
        tool result: call_6_1 ok: waited  [agent]
        assistant calls wait({})  [agent]  (100 in, 10 out)
        tool started: call_7_1  [agent]
        tool result: call_7_1 ok: waited  [agent]
        assistant calls wait({})  [agent]  (200 in, 10 out)
        tool started: call_8_1  [agent]
        tool result: call_8_1 ok: waited  [agent]
        assistant calls wait({})  [agent]  (300 in, 10 out)
        tool started: call_9_1  [agent]
        tool result: call_9_1 ok: waited  [agent]
        assistant calls wait({})  [agent]  (400 in, 10 out)
        tool started: call_10_1  [agent]
        tool result: call_10_1 ok: waited  [agent]
        assistant calls wait({})  [agent]  (500 in, 10 out)
        tool started: call_11_1  [agent]
        tool result: call_11_1 ok: waited  [agent]
        compressed: 19 steps into: summary 1  [agent.compressor]
        assistant calls wait({})  [agent]  (600 in, 10 out)
        tool started: call_12_1  [agent]
        tool result: call_12_1 ok: waited  [agent]
        assistant: done  [agent]  (50 in, 10 out)
    "#]]
    .assert_eq(&log(&session));
    // Nothing is lost: the steps behind a summary are there, and every step is hidden or kept by name.
    let folds = session.folds();
    for fold in &folds {
        assert_eq!(fold.hidden.len(), fold.compressed.hidden.len());
        let pairs = |wanted: fn(&Chunk) -> bool| fold.hidden.iter().filter(|step| wanted(step.chunk())).count();
        let answers = pairs(|chunk| matches!(chunk, Chunk::Assistant(_)));
        assert_eq!(answers, pairs(|chunk| matches!(chunk, Chunk::ToolResult(_))));
        assert_eq!(answers, pairs(|chunk| matches!(chunk, Chunk::ToolStarted(_))));
    }
    assert_eq!(session.usage().input, 2 * 2_100 + 50 + 7 * folds.len() as u64);
}

#[test]
fn an_unusable_summary_is_refused() {
    // The model's answer, and the reason why it is no summary.
    let check = |turn: &str, expected: &str| {
        let provider = script([r#"{"text": "one"}"#, r#"{"text": "two"}"#, turn]);
        let agent = Agent::new("Go.", &provider);
        let error = block_on(async {
            let mut session = agent.run(Session::user("go")).await?;
            session.push(Chunk::user("and?"));
            Compressor::new(&provider).keep(1).run(agent.run(session).await?).await
        });
        let error = error.expect_err("no summary");
        assert_eq!(error.message(), expected);
        let session = error.into_session().expect("a session");
        assert!(session.folds().is_empty());
        // The model call was made and counts.
        assert!(session.lineage().to_string().contains("separate work"), "{}", session.lineage());
    };
    check(r#"{"text": "The user wan", "finish": "length"}"#, "the summary cannot be used: the model ran out of tokens");
    check(r#"{"text": " "}"#, "the summary cannot be used: it is empty");
    check(r#"{"calls": [{"name": "x"}]}"#, "the summary cannot be used: the model asked for tools instead");
    check(r#"{"error": {"status": 400, "message": "no"}}"#, "no (400)");
}

#[test]
fn every_step_is_an_event_forks_and_merges_included() {
    let provider = script([r#"{"text": "a"}"#; 4]);
    let agent = Agent::new("Go.", &provider);
    let flow = move |session: Session| {
        let agent = agent.clone();
        async move {
            let branches = [Branch::new("one", &agent as &dyn Run), Branch::new("two", &agent)];
            let session = fork_join(&session, branches).await.merge().await?;
            // `theirs` has all steps of `ours`, and no listener.
            let mut theirs = Session::resume_own(session.as_record().clone());
            theirs.push(Chunk::user("and?"));
            agent.run(session.merge(&theirs).await?).await
        }
    };
    let (told, session) = block_on(async {
        let mut events = flow.run(Session::user("go")).events();
        let mut told = Vec::new();
        while let Some(event) = events.next().await {
            if let EventKind::Step(step) = event.kind {
                told.push(step.id());
            }
        }
        (told, events.finish().await.expect("a run"))
    });
    let lineage = session.lineage();
    let untold: Vec<_> = lineage.walk().into_iter().filter(|step| !told.contains(&step.id())).collect();
    // The first step was appended before the run, the other one in a session without a listener.
    let untold: Vec<_> = untold.iter().map(|step| rath::record::draw::describe(step.chunk())).collect();
    assert_eq!(untold, ["user: go", "user: and?"]);
}

#[test]
fn a_slow_listener_is_told_how_many_events_were_dropped() {
    /// Talk a lot.
    #[tool(read_only)]
    async fn chatter(cx: &ToolCx) {
        (0..100_000).for_each(|_| cx.output("x"));
    }
    let agent =
        Agent::new("Go.", &script([r#"{"calls": [{"name": "chatter"}]}"#, r#"{"text": "done"}"#])).tool(chatter);
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let heard = Arc::new(Mutex::new((0, 0)));
    let told = heard.clone();
    let mut waits = true;
    let run = agent.run(Session::user("go")).on_event(move |event| {
        if std::mem::take(&mut waits) {
            held.recv().expect("a word");
        }
        let mut told = told.lock().expect("no panic");
        match event.kind {
            EventKind::Missed(count) => told.1 += count,
            _ => told.0 += 1,
        }
    });
    block_on(async {
        let mut run = Box::pin(run);
        // The work is done at once; only the listener is behind.
        let is_pending = std::future::poll_fn(|cx| std::task::Poll::Ready(run.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending);
        let_go.send(()).expect("it listens");
        run.await.expect("a run");
    });
    let (heard, missed) = *heard.lock().expect("no panic");
    assert_eq!(heard + missed, 100_000 + 10);
    assert!(missed > 0);
}

#[test]
fn a_memory_that_hangs_ends_with_the_time_of_the_budget() {
    let hangs = TestMemory { writes: MemoryAnswer::Hangs, reads: MemoryAnswer::Hangs };
    let agent = Agent::new("Go.", &script([r#"{"text": "done"}"#])).memory(&Memory::new(hangs));
    let session = Session::user("go").within(Budget::new().time(std::time::Duration::from_millis(20)));
    let error = block_on(agent.run(session)).expect_err("time is over");
    assert_eq!(error.kind(), ErrorKind::Budget);
}

#[test]
fn facts_survive_merges_and_folds() {
    let memory = Memory::in_process("notes");
    let provider = script([r#"{"text": "ok"}"#; 9]);
    let agent = Agent::new("Go.", &provider).memory(&memory);
    block_on(async {
        let session = Session::user("Tell me about Tom.");
        let (mut ours, mut theirs) = (session.fork(), session.fork());
        agent.remember(&mut ours, "Tom likes whales.").await.expect("remembered");
        agent.remember(&mut theirs, "Tom hates boats.").await.expect("remembered");
        agent.commit(&mut theirs).await.expect("committed");
        let mut merged = ours.merge(&theirs).await.expect("a merge");
        agent.commit(&mut merged).await.expect("committed");
        assert_eq!(memory.recall("Who is Tom?").await.expect("found").len(), 3);
        // An entry that was recalled and then hidden by a fold is recalled again.
        let mut session = agent.run(Session::user("Who is Tom?")).await.expect("a run");
        session.push(Chunk::user("And?"));
        session = agent.run(session).await.expect("a run");
        session = Compressor::new(&provider).keep(0).run(session).await.expect("folded");
        session.push(Chunk::user("Who is Tom?"));
        session = agent.run(session).await.expect("a run");
        let recalled = log(&session);
        assert_eq!(recalled.matches("recall: Who is Tom? (3 found)").count(), 2, "{recalled}");
    });
}

/// A model that begins to answer, and then waits or fails.
struct Begins {
    identity: Identity,
    settings: Arc<Settings>,
    fails: bool,
}

impl ProviderBackend for Begins {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    async fn send(&self, _: &Request, sink: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        for piece in ["It is in ", "the first drawer. The key is hun", "ter2hun"] {
            sink(Delta::Text(piece));
        }
        match self.fails {
            true => Err(ProviderError::new(rath::provider::ProviderErrorKind::Refused, "no more of it")),
            false => std::future::pending().await,
        }
    }
}

/// The part of an answer that a person has read is on the record; half a secret is not.
#[test]
fn text_that_arrived_before_a_stop_is_on_the_record() {
    for (fails, is_watched) in [(false, false), (false, true), (true, false), (true, true)] {
        let identity = Identity { provider: "test".to_owned(), model: "begins".to_owned() };
        let settings = Arc::new(Settings::new(Shape::Chat));
        let agent = Agent::new("Answer.", &Provider::new(Begins { identity, settings, fails }));
        let cancel = Cancel::new();
        let mut secrets = Secrets::default();
        assert_eq!(secrets.add("PASSWORD", "hunter2hunter2"), AddOutcome::Added);
        let session = Session::user("Where?").hiding(secrets).until(&cancel);
        let mut shown = String::new();
        let ended = block_on(async {
            let (mut run, mut stopped) = (agent.run(session), pin!(tokio::time::sleep(Duration::from_millis(20))));
            if !is_watched {
                return tokio::select! {
                    ended = &mut run => ended,
                    () = &mut stopped => { cancel.cancel(); run.await }
                };
            }
            let mut events = run.events();
            loop {
                let event = tokio::select! {
                    event = events.next() => event,
                    () = &mut stopped, if !cancel.is_cancelled() => { cancel.cancel(); continue }
                };
                match event.map(|event| event.kind) {
                    Some(EventKind::Text(text)) => shown.push_str(&text),
                    Some(_) => {}
                    None => return events.finish().await,
                }
            }
        });
        let session = ended.expect_err("it is stopped").into_session().expect("the session so far");
        let partial = match session.head().expect("a step").chunk() {
            Chunk::Interrupted(interrupted) => interrupted.partial.clone(),
            Chunk::Failed(failed) => failed.partial.clone(),
            other => panic!("{other:?}"),
        };
        let partial = partial.expect("text had arrived").to_string();
        assert_eq!(partial, "It is in the first drawer. The key is ", "{fails}, {is_watched}");
        assert!(!is_watched || shown == partial, "{shown}");
        assert!(!format!("{:?}", session.messages()).contains("drawer"), "no model reads it");
    }
}
