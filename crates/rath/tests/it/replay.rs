//! Replays that are exact, or diverge at the first step that differs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use expect_test::{Expect, expect};
use rath::chunk::{Call, Finish};
use rath::chunk::{Identity, ToolSpec};
use rath::memory::Note;
use rath::prelude::*;
use rath::provider::Retry;
use rath::provider::{Answer, DeltaSink, ProviderBackend, ProviderError, Request, Settings, Shape};
use rath::record::Record;
use rath::tool::Output;
use rath::turn::Next;
use rath::{StepId, Usage};
use serde_json::{Value, json};

use crate::running::{All, Then, all, at_every_moment, poll};
use crate::support::{MemoryAnswer, TestMemory, block_on, folder, now, script};

/// A model that must not be asked.
struct Mute {
    identity: Identity,
    settings: Arc<Settings>,
}

impl ProviderBackend for Mute {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    async fn send(&self, _: &Request, _: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        panic!("a model was asked in a replay")
    }
}

/// Returns a mute model with the identity of the scripts in these tests.
pub(crate) fn mute() -> Provider {
    mute_as("script", "script")
}

fn mute_as(provider: &str, model: &str) -> Provider {
    let identity = Identity { provider: provider.to_owned(), model: model.to_owned() };
    Provider::new(Mute { identity, settings: Arc::new(Settings::new(Shape::Chat)) })
}

/// Returns a memory that must not be asked.
fn mute_memory() -> Memory {
    Memory::new(TestMemory { writes: MemoryAnswer::Panics, reads: MemoryAnswer::Panics })
}

fn run(workflow: &dyn Run, session: Session) -> Session {
    match block_on(workflow.run(session)) {
        Ok(session) => session,
        Err(error) => error.into_session().expect("an error carries the session"),
    }
}

/// Rebuilds a session and replays it, as it is and from its bytes.
fn check(session: &Session, workflow: &dyn Run, expected: Expect) {
    assert!(session.rebuild().is_exact(), "{}", session.rebuild());
    let replayed = block_on(session.replay(workflow)).expect("a replay").to_string();
    expected.assert_eq(&format!("{replayed}\n"));
    let bytes = rath::record::codec::Encoder::encode_record(session.as_record()).expect("bytes");
    let opened = rath::record::codec::read(&bytes).expect("a record").record;
    let again = block_on(Session::resume_own(opened).replay(workflow)).expect("a replay").to_string();
    assert_eq!(again, replayed);
}

fn exact(session: &Session, workflow: &dyn Run) {
    let replayed = block_on(session.replay(workflow)).expect("a replay");
    assert!(replayed.is_exact(), "{replayed}\n{}", session.lineage());
    assert_eq!(replayed.steps, session.lineage().walk().len() as u64, "{}", session.lineage());
    assert!(session.rebuild().is_exact(), "{}", session.rebuild());
}

/// A tool that returns how often it was called.
#[derive(Clone, Default)]
struct Counter {
    calls: Arc<AtomicU64>,
    /// The first call that returns another text.
    changes_at: Option<u64>,
    description: &'static str,
    nature: Nature,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Nature {
    #[default]
    Plain,
    Approval,
    Fails,
}

impl Tool for Counter {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("count", self.description, json!({"type": "object"}))
    }

    fn needs_approval(&self, _: &Value) -> bool {
        self.nature == Nature::Approval
    }

    async fn call(&self, _: &ToolCx, _: Value) -> Result<Output> {
        let nth = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if self.nature == Nature::Fails {
            return Err(Error::new(ErrorKind::Tool, "no"));
        }
        let extra = if self.changes_at.is_some_and(|at| nth >= at) { ", or so" } else { "" };
        Ok(format!("call {nth}{extra}").into())
    }
}

const COUNT: &str = r#"{"calls": [{"name": "count"}], "usage": {"input": 10, "output": 2}}"#;
const DONE: &str = r#"{"text": "done", "usage": {"input": 20, "output": 1}}"#;

fn says(texts: &[&str]) -> Provider {
    script(texts.iter().map(|text| json!({"text": text, "usage": {"input": 10, "output": 1}}).to_string()))
}

fn counting(provider: &Provider, counter: &Counter) -> Agent {
    Agent::new("Count.", provider).tool(counter.clone())
}

mod readme {
    use super::*;

    /// Count the words in a short text.
    #[tool]
    async fn word_count(
        /// Text to count.
        text: String,
    ) -> Result<usize> {
        Ok(text.split_whitespace().count())
    }

    /// Counts words, then folds the run into one message.
    #[derive(Module)]
    struct Readme {
        agent: Agent,
        compressor: Compressor,
    }

    impl Workflow for Readme {
        async fn forward(&self, mut session: Session) -> Result<Session> {
            self.agent.remember(&mut session, "The user likes compact technical summaries.").await?;
            session = self.agent.run(session).await?;
            self.agent.commit(&mut session).await?;
            self.compressor.run(session).await
        }
    }

    fn readme(provider: &Provider, memory: &Memory) -> Readme {
        Readme {
            agent: Agent::new("You count words.", provider).tool(word_count).memory(memory),
            compressor: Compressor::new(provider).keep(0),
        }
    }

    #[test]
    fn the_program_in_the_readme_replays_exactly() {
        let provider = script([
            r#"{"calls": [{"name": "word_count", "arguments": {"text": "the session is the value"}}], "usage": {"input": 92, "output": 18}}"#,
            r#"{"text": "Five words.", "usage": {"input": 131, "output": 4}}"#,
            r#"{"text": "The user asked for a word count; it is five.", "usage": {"input": 120, "output": 12}}"#,
        ]);
        let session = run(
            &readme(&provider, &Memory::in_process("notes")),
            Session::user("How many words: the session is the value?"),
        );
        // The step that the README shows.
        let exact = expect![[r#"
            exact: 3 requests
        "#]];
        check(&session, &readme(&mute(), &mute_memory()), exact);
    }
}

#[test]
fn a_session_without_a_program_is_accepted() {
    let empty = |session: Session| async move { Ok(session) };
    // The first rung of the ladder.
    let mut session = Session::user("Which river runs through Paris?").to(Sandbox::local("./"));
    session.push_with_usage(Chunk::assistant("The Seine."), Usage::new(14, 4));
    let mut poet = session.fork_named("poet");
    poet.push(Chunk::user("Say it in verse."));
    poet.push_with_usage(Chunk::assistant("Grey Seine, slow silver under stone."), Usage::new(26, 9));
    let mut critic = session.fork_named("critic");
    critic.push(Chunk::user("Is that right?"));
    critic.push_with_usage(Chunk::assistant("It is, since Roman times."), Usage::new(25, 7));
    let merged = now(poet.merge(&critic)).expect("a merge");
    exact(&merged, &empty);
    // The second.
    let provider = says(&["The Seine.", "The Tiber."]);
    let session = block_on(async {
        let mut session = Session::system("You are a guide.").within(Budget::new().turns(10));
        for question in ["Which river runs through Paris?", "And through Rome?"] {
            session.push(Chunk::user(question));
            session = provider.ask(session).await?;
        }
        Ok::<_, Error>(session)
    });
    let session = session.expect("a session");
    exact(&session, &empty);
    assert_eq!(session.rebuild().requests, 2);
    // An empty session.
    exact(&Session::empty(), &empty);
    assert_eq!(Session::empty().rebuild().to_string(), "nothing to compare: the session has no recorded requests");
}

#[test]
fn a_tool_loop_over_several_turns_of_the_user() {
    let counter = Counter::default();
    let agent = counting(&script([COUNT, COUNT, DONE, COUNT, DONE]), &counter);
    let mut session = run(&agent, Session::user("go"));
    session.push(Chunk::note("a remark"));
    session.push(Chunk::user("once more"));
    let session = run(&agent, session);
    assert_eq!(counter.calls.load(Ordering::Relaxed), 3);
    let exact = expect![[r#"
        exact: 5 requests
    "#]];
    check(&session, &counting(&mute(), &counter), exact);
    // No tool ran.
    assert_eq!(counter.calls.load(Ordering::Relaxed), 3);
}

#[test]
fn wrong_calls_of_a_model_are_answered_the_same() {
    let provider = script([
        r#"{"calls": [{"name": "nobody"}, {"name": "count", "arguments": "{"}, {"name": "count"}, {"name": "count", "arguments": "[]"}]}"#,
        DONE,
    ]);
    let counter = Counter { nature: Nature::Fails, ..Counter::default() };
    let session = run(&counting(&provider, &counter), Session::user("go"));
    exact(&session, &counting(&mute(), &counter));
}

#[test]
fn a_cut_output_that_is_read_further() {
    /// Say much.
    #[tool(read_only, output_limit = 100)]
    async fn much() -> String {
        "word ".repeat(100)
    }
    let agent = |provider: &Provider| Agent::new("Read.", provider).tool(much);
    let digest = rath::Digest::compute("word ".repeat(100).as_bytes());
    let read = json!({"calls": [{"name": "read_output", "arguments": {"digest": digest.to_string(), "offset": 100}}]});
    let provider = script([r#"{"calls": [{"name": "much"}]}"#, &read.to_string(), DONE]);
    exact(&run(&agent(&provider), Session::user("go")), &agent(&mute()));
}

/// A workflow with two agents side by side.
#[derive(Module)]
struct Both {
    writer: Agent,
    critic: Agent,
}

impl Workflow for Both {
    async fn forward(&self, session: Session) -> Result<Session> {
        let branches = [Branch::new("writer", &self.writer), Branch::new("critic", &self.critic)];
        fork_join(&session, branches).await.merge().await
    }
}

fn both(provider: &Provider) -> Both {
    Both { writer: Agent::new("Write.", provider).tool(Counter::default()), critic: Agent::new("Criticise.", provider) }
}

#[test]
fn branches_that_are_merged_or_kept_aside() {
    let good = script([
        r#"{"agent": "both.writer", "calls": [{"name": "count"}]}"#,
        r#"{"agent": "both.writer", "text": "w"}"#,
        r#"{"agent": "both.critic", "text": "c"}"#,
    ]);
    let bad = script([
        r#"{"agent": "both.writer", "error": {"status": 400, "message": "no"}}"#,
        r#"{"agent": "both.critic", "text": "c"}"#,
    ]);
    let all_bad = script([r#"{"error": {"status": 400, "message": "no"}}"#; 2]);
    for provider in [good, bad, all_bad] {
        exact(&run(&both(&provider), Session::user("go")), &both(&mute()));
    }
}

/// A fork of a head that was read names its counter. A replay takes that from the recording.
#[test]
fn programs_that_read_one_head_and_did_the_same() {
    let turns = [
        r#"{"agent": "both.writer", "calls": [{"name": "count"}]}"#,
        r#"{"agent": "both.writer", "text": "w"}"#,
        r#"{"agent": "both.critic", "text": "c"}"#,
    ];
    let base = Session::user("go");
    // As a program has it that read it from a store.
    let read = || Session::resume_own(base.as_record().clone());
    let forked = |session: Session| run(&both(&script(turns)), session);
    let picked = |session: Session| run(&support(&says(&["2", "Turn it off.", "0"])), session);
    let check = |work: &dyn Fn(Session) -> Session, silent: &dyn Run, usage: Usage| {
        let [first, second, third] = [read(), read(), base.clone()].map(work);
        for session in [&first, &second, &third, &work(read().fork()), &work(read().detach())] {
            exact(session, silent);
        }
        let merged = now(Session::merge_all([first.clone(), second.clone(), third.clone()])).expect("a merge");
        assert_eq!(merged.usage(), usage, "{}", merged.lineage());
        exact(&merged, silent);
        exact(&now(third.merge(&second)).expect("a merge"), silent);
    };
    let usage = forked(base.clone()).usage();
    check(&forked, &both(&mute()), usage + usage + usage);
    let usage = picked(base.clone()).usage();
    check(&picked, &support(&mute()), usage + usage + usage);
}

#[test]
fn forks_that_were_made_outside_the_program() {
    let provider = script([DONE; 5]);
    let agent = Agent::new("Go.", &provider);
    let silent = Agent::new("Go.", &mute());
    let base = Session::user("go");
    // Run on a fork without steps of its own.
    let (ours, theirs) = (run(&agent, base.fork()), run(&agent, base.fork_named("other")));
    exact(&ours, &silent);
    exact(&now(ours.merge(&theirs)).expect("a merge"), &silent);
    // Run from an earlier step.
    let asked = ours.as_record().steps()[0].id();
    let mut again = ours.at(asked).expect("a step");
    exact(&run(&agent, again.clone()), &silent);
    again.push(Chunk::user("or else?"));
    exact(&run(&agent, again), &silent);
    // Run in an aside.
    let mut whole = ours.clone();
    let mut aside = whole.aside("beside");
    aside.push(Chunk::user("and?"));
    whole.keep_aside(&run(&agent, aside));
    whole.push(Chunk::note("kept"));
    exact(&whole, &silent);
    // Detached.
    exact(&whole.detach(), &silent);
}

/// A workflow that selects between two agents.
#[derive(Module)]
struct Support {
    selector: Selector,
    billing: Agent,
    tech: Agent,
}

impl Workflow for Support {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        while let Some(next) = self.selector.pick(&mut session, &[&self.billing, &self.tech]).await? {
            session = next.run(session).await?;
        }
        Ok(session)
    }
}

fn support(provider: &Provider) -> Support {
    Support {
        selector: Selector::new(provider),
        billing: Agent::new("You do billing.", provider).describe("Knows about invoices."),
        tech: Agent::new("You do tech.", provider).describe("Knows about machines."),
    }
}

#[test]
fn a_selector_picks_the_same_routes() {
    for texts in [&["2", "Turn it off.", "1", "Pay.", "0"][..], &["2", "Turn it off.", "7"], &[""]] {
        let session = run(&support(&says(texts)), Session::user("It is broken."));
        exact(&session, &support(&mute()));
        // Forks were made there before and dropped.
        let base = Session::user("It is broken.");
        let _ = (base.fork(), base.fork());
        exact(&run(&support(&says(texts)), base.clone()), &support(&mute()));
        exact(&run(&support(&says(texts)), base.fork()), &support(&mute()));
    }
}

#[test]
fn a_conversation_that_is_folded_when_it_gets_long() {
    let agent = |provider: &Provider, summaries: &Provider| {
        Agent::new("Count.", provider)
            .tool(Counter::default())
            .compress(Compressor::new(summaries).window(100).share(0.5).keep(1))
    };
    let turn = r#"{"calls": [{"name": "count"}], "usage": {"input": 60, "output": 2}}"#;
    for summary in [r#"{"text": "It counts."}"#, r#"{"text": "", "finish": "length"}"#] {
        let provider = script([turn, turn, turn, turn, turn, turn, DONE]);
        let session = run(&agent(&provider, &script([summary; 4])), Session::user("go"));
        assert_eq!(session.folds().is_empty(), summary.contains("length"));
        exact(&session, &agent(&mute(), &mute()));
    }
}

#[test]
fn a_task_that_is_delegated() {
    let agent = |provider: &Provider, helps: &str| {
        let helper = Agent::new(helps, provider).describe("Helps.").tool(Counter::default());
        Agent::new("Work.", provider).delegate("help", helper).tool(Counter::default())
    };
    let turns = [
        r#"{"agent": "agent", "calls": [{"name": "help", "arguments": {"task": "Help."}}, {"name": "count"}, {"name": "help", "arguments": {"task": "Help more."}}]}"#,
        r#"{"agent": "agent.help", "calls": [{"name": "count"}]}"#,
        r#"{"agent": "agent.help", "text": "helped"}"#,
        r#"{"agent": "agent.help", "text": "helped more"}"#,
        r#"{"agent": "agent", "text": "done"}"#,
    ];
    let project = folder(&[]);
    let placed = Session::user("go").to(Sandbox::local(project.path()));
    for session in [Session::user("go"), placed] {
        let session = run(&agent(&script(turns), "Help well."), session);
        exact(&session, &agent(&mute(), "Help well."));
        replay_without_each_step(&session, &agent(&mute(), "Help well."));
        let replayed = block_on(session.replay(&agent(&mute(), "Help badly."))).expect("a replay");
        assert_eq!(replayed.divergence.as_ref().expect("a divergence").pointer, "/text", "{replayed}");
    }
    // A delegate that fails.
    let failing =
        [turns[0], r#"{"agent": "agent.help", "error": {"status": 400, "message": "no"}}"#, turns[3], turns[4]];
    exact(&run(&agent(&script(failing), "Help."), Session::user("go")), &agent(&mute(), "Help."));
}

#[test]
fn a_memory_gives_its_recorded_answers() {
    #[derive(Module)]
    struct Minds {
        agent: Agent,
    }
    impl Workflow for Minds {
        async fn forward(&self, mut session: Session) -> Result<Session> {
            self.agent.remember(&mut session, "The Seine runs through Paris.").await?;
            self.agent.commit(&mut session).await?;
            session = self.agent.run(session).await?;
            self.agent.forget(&mut session, &["none".parse().expect("an id")]).await?;
            Ok(session)
        }
    }
    let minds = |provider: &Provider, memory: &Memory| Minds { agent: Agent::new("Know.", provider).memory(memory) };
    let memory = Memory::in_process("notes");
    let mut session = run(&minds(&script([DONE, DONE]), &memory), Session::user("Which river runs through Paris?"));
    session.push(Chunk::user("And what about the Seine?"));
    let session = run(&minds(&script([DONE]), &memory), session);
    exact(&session, &minds(&mute(), &mute_memory()));
    // A commit that fails ends the run, in the replay too.
    let broken = Memory::new(TestMemory { writes: MemoryAnswer::Fails, reads: MemoryAnswer::Empty });
    let session = run(&minds(&mute(), &broken), Session::user("Which river runs through Paris?"));
    exact(&session, &minds(&mute(), &mute_memory()));
}

/// Returns a copy of a session in which a step is forgotten.
fn without(session: &Session, step: StepId) -> Session {
    let store = block_on(Store::open("memory:")).expect("a store");
    let copy = block_on(session.clone().record(&store)).expect("recorded");
    let id = copy.id();
    block_on(copy.durable()).expect("durable");
    drop(copy);
    block_on(store.forget(id, step)).expect("forgotten");
    block_on(store.read(id)).expect("opened").session
}

/// Forgets each step of a session in turn, and replays what is left of it.
///
/// Returns the results, each with the kinds of the steps that were forgotten.
fn replay_without_each_step(session: &Session, workflow: &dyn Run) -> String {
    let mut results: Vec<(String, String)> = Vec::new();
    for step in session.lineage().walk() {
        let opened = without(session, step.id());
        let replayed = block_on(opened.replay(workflow)).expect("a replay");
        // A session whose place was forgotten has none: it takes other steps.
        if let (Chunk::Placed(_), Some(divergence)) = (step.chunk(), &replayed.divergence) {
            let reason =
                format!("step {} was forgotten: the program may differ for that reason alone", step.id().short());
            assert_eq!(divergence.detail.as_deref(), Some(&*reason));
            continue;
        }
        assert!(replayed.is_exact(), "without {}: {replayed}\n{}", step.chunk().kind(), opened.lineage());
        assert_eq!(replayed.steps, session.lineage().walk().len() as u64, "without {}", step.chunk().kind());
        let kind = step.chunk().kind().to_owned();
        match results.iter_mut().find(|(result, _)| *result == replayed.to_string()) {
            Some((_, kinds)) => *kinds += &format!(", {kind}"),
            None => results.push((replayed.to_string(), kind)),
        }
    }
    results.into_iter().map(|(result, kinds)| format!("{kinds}\n  {result}\n")).collect()
}

#[test]
fn a_replay_says_that_a_text_was_forgotten() {
    let counter = Counter::default();
    let memory = Memory::in_process("notes");
    block_on(memory.remember(Note::new("The Seine runs through Paris."))).expect("written");
    let agent = |provider: &Provider, memory: &Memory| counting(provider, &counter).memory(memory).commit_on_run();
    let turns = [
        r#"{"calls": [{"name": "count", "arguments": {"of": "words"}}]}"#,
        DONE,
        r#"{"calls": [{"name": "count"}, {"name": "count"}]}"#,
        DONE,
    ];
    let provider = script(turns);
    let mut session = run(&agent(&provider, &memory), Session::user("Which river runs through Paris?"));
    session.push(Chunk::user("And the Seine?"));
    let session = run(&agent(&provider, &memory), session);
    assert_eq!(session.text(), Some("done"));
    exact(&session, &agent(&mute(), &mute_memory()));
    expect![[r#"
        user, memory
          4 requests cannot be compared: a text was forgotten
        instructions, assistant, user
          exact: 2 requests; 2 requests cannot be compared: a text was forgotten
        assistant, tool_result
          exact: 1 request; 3 requests cannot be compared: a text was forgotten
        tool_started, memory, memory, assistant, tool_started, tool_started, assistant, memory
          exact: 4 requests
        tool_result, tool_result
          exact: 3 requests; 1 request cannot be compared: a text was forgotten
    "#]]
    .assert_eq(&replay_without_each_step(&session, &agent(&mute(), &mute_memory())));
}

#[test]
fn a_run_that_waited_for_approval() {
    let counter = Counter { nature: Nature::Approval, ..Counter::default() };
    let steps = |provider: &Provider| {
        Sequential::new().then("draft", Agent::new("Draft.", provider)).then("clerk", counting(provider, &counter))
    };
    let two = r#"{"agent": "sequential.clerk", "calls": [{"name": "count"}, {"name": "count"}]}"#;
    let turns = [r#"{"agent": "sequential.draft", "text": "a draft"}"#, two, DONE];
    let record = steps(&script(turns));
    let mut session = run(&record, Session::user("go"));
    exact(&session, &steps(&mute()));
    session.approve("call_2_1").expect("it waits");
    // The other call still waits.
    let mut session = run(&record, session);
    session.deny("call_2_2", "once is enough").expect("it waits");
    let session = run(&record, session);
    assert_eq!(session.text(), Some("done"));
    assert_eq!(counter.calls.load(Ordering::Relaxed), 1);
    exact(&session, &steps(&mute()));
    replay_without_each_step(&session, &steps(&mute()));
    assert_eq!(counter.calls.load(Ordering::Relaxed), 1);
}

#[test]
fn failed_attempts_are_replayed_without_waiting() {
    let agent = |provider: &Provider| Agent::new("Go.", provider);
    let retry = Retry { first: std::time::Duration::ZERO, longest: std::time::Duration::ZERO, ..Retry::default() };
    let turns = [r#"{"error": {"status": 503, "message": "busy"}}"#; 2];
    let some = script(turns.into_iter().chain([DONE])).retry(retry);
    exact(&run(&agent(&some), Session::user("go")), &agent(&mute()));
    let none = script([r#"{"error": {"status": 503, "message": "busy"}}"#; 9]).retry(retry);
    let session = run(&agent(&none), Session::user("go"));
    // A session whose run failed is resumed by running it again.
    let session = run(&agent(&script([DONE])), session);
    assert_eq!(session.text(), Some("done"));
    exact(&session, &agent(&mute()));
}

#[test]
fn a_budget_that_was_used_up_and_replaced() {
    let counter = Counter::default();
    let session = Session::user("go").within(Budget::new().turns(2));
    let agent = counting(&script([COUNT, COUNT, DONE]), &counter);
    let session = run(&agent, session);
    assert_eq!(session.text(), None);
    let session = run(&agent, session.within(Budget::new().turns(20)));
    assert_eq!(session.text(), Some("done"));
    exact(&session, &counting(&mute(), &counter));
}

#[test]
fn an_answer_that_is_a_value() {
    #[derive(JsonSchema, serde::Deserialize)]
    #[schemars(crate = "rath::schemars")]
    struct River {
        length_km: u32,
    }
    let workflow = |provider: Provider| {
        move |session: Session| {
            let agent = Agent::new("You know rivers.", &provider);
            async move {
                let (mut session, river) = agent.answer::<River>(session).await?;
                session.push(Chunk::note(format!("{} km", river.length_km)));
                Ok(session)
            }
        }
    };
    let session = run(&workflow(says(&["long", r#"{"length_km": 777}"#])), Session::user("How long is the Seine?"));
    exact(&session, &workflow(mute()));
}

#[test]
fn a_session_that_a_program_creates_asks_no_model() {
    let workflow = |provider: Provider, keep: bool| {
        move |mut session: Session| {
            let agent = Agent::new("Go.", &provider).named("agent");
            async move {
                let other = agent.run(Session::user("a question beside it")).await?;
                if keep {
                    session.keep_aside(&other);
                }
                session.push(Chunk::note(other.text().unwrap_or_default()));
                Ok(session)
            }
        }
    };
    let session = run(&workflow(script([DONE]), true), Session::user("go"));
    check(
        &session,
        &workflow(mute(), true),
        expect![[r#"
            exact: 1 request
        "#]],
    );
    // A session that was not kept is not in the recording.
    let session = run(&workflow(script([DONE]), false), Session::user("go"));
    check(
        &session,
        &workflow(mute(), false),
        expect![[r#"
            diverges outside the recording
              expected: nothing, the recording ends here
              found:    script:script is asked after step bfcbad8a
              the session in which it is done is not part of the recorded one
            nothing before that was compared
        "#]],
    );
}

/// A workflow that uses everything, and can resume in the middle of a turn.
#[derive(Module)]
struct Resumed {
    all: All,
}

impl Workflow for Resumed {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        if let Next::RunTools(_) = session.next() {
            session = self.all.worker.run(session).await?;
        }
        self.all.run(session).await
    }
}

/// Resumes a session until it is done, and denies every call that waits for approval.
fn resume(flow: &Resumed, mut session: Session) -> Session {
    block_on(async {
        loop {
            match flow.run(session.until(&Cancel::new())).await {
                Ok(done) => return done,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Approval, "{error}");
                    session = error.into_session().expect("a session");
                    let Next::RunTools(calls) = session.next() else { panic!("nothing is open") };
                    for pending in calls {
                        session.deny(pending.call.id, "let it be").expect("it is in doubt");
                    }
                }
            }
        }
    })
}

fn mute_all() -> Resumed {
    Resumed { all: all().to(mute_as("model", "slow")) }
}

#[test]
fn a_run_that_was_cancelled_at_any_moment_and_resumed() {
    let moments = at_every_moment(|moment| {
        let (cancel, flow) = (Cancel::new(), Resumed { all: all() });
        let (_, result) = poll(&flow, Session::user("go").until(&cancel), moment, || {
            cancel.cancel();
            Then::GoOn
        });
        match result.expect("it ends when it is cancelled") {
            Ok(session) => {
                exact(&session, &mute_all());
                false
            }
            Err(error) => {
                let session = error.into_session().expect("a session");
                exact(&session, &mute_all());
                exact(&resume(&flow, session), &mute_all());
                true
            }
        }
    });
    assert!(moments > 50, "{moments} moments");
}

#[test]
fn a_run_that_was_dropped_at_any_moment_and_resumed() {
    let resumed = AtomicU64::new(0);
    let moments = at_every_moment(|moment| {
        let flow = Resumed { all: all() };
        let (newest, result) = poll(&flow, Session::user("go"), moment, || Then::Drop);
        if result.is_none() {
            // As it would be opened from a store.
            let newest = Session::resume_own(newest.as_record().clone());
            matches_recorded_steps(&newest, &mute_all());
            let cut = block_on(newest.replay(&mute_all())).expect("a replay");
            // Only a run that was waiting can be seen to have been cut short.
            if cut.is_exact() {
                exact(&resume(&flow, newest), &mute_all());
                resumed.fetch_add(1, Ordering::Relaxed);
            }
        }
        result.is_none()
    });
    assert!(moments > 50, "{moments} moments");
    assert!(resumed.load(Ordering::Relaxed) > 30, "{resumed:?} of {moments} moments");
}

/// Asserts that the program repeats all recorded steps. It may continue after them.
fn matches_recorded_steps(session: &Session, workflow: &dyn Run) {
    let replayed = block_on(session.replay(workflow)).expect("a replay");
    assert_eq!(replayed.steps, session.lineage().walk().len() as u64, "{replayed}\n{}", session.lineage());
    if let Some(more) = &replayed.divergence {
        assert_eq!((more.step, &more.expected), (session.head().map(|head| head.id()), &None), "{replayed}");
    }
}

#[test]
fn every_prefix_of_a_session_can_be_replayed() {
    let session = run(&Resumed { all: all() }, Session::user("go"));
    for step in session.as_record().steps() {
        matches_recorded_steps(&Session::resume_own(Record::at(step.clone())), &mute_all());
    }
}

/// A workflow as it was recorded, or with something changed.
struct WriterFlow {
    prompt: &'static str,
    description: &'static str,
    editor: &'static str,
    provider: Provider,
    note: Option<&'static str>,
    turns: u64,
}

impl WriterFlow {
    fn new(provider: Provider) -> Self {
        let description = "Counts.";
        WriterFlow { prompt: "Write.", description, editor: "Edit.", provider, note: Some("written"), turns: 100 }
    }

    fn flow(self) -> Sequential {
        let WriterFlow { prompt, description, editor, provider, note, turns } = self;
        let counter = Counter { description, ..Counter::default() };
        Sequential::new()
            .then("writer", Agent::new(prompt, &provider).tool(counter).turns(turns))
            .then("note", move |mut session: Session| async move {
                note.into_iter().for_each(|note| _ = session.push(Chunk::note(note)));
                Ok(session)
            })
            .then("editor", Agent::new(editor, &provider))
    }
}

#[test]
fn a_change_is_reported_at_the_first_step_that_differs() {
    let session = run(&WriterFlow::new(script([COUNT, DONE, DONE])).flow(), Session::user("go"));
    let recorded = || WriterFlow::new(mute());
    let settings = || {
        let identity = Identity { provider: "script".to_owned(), model: "script".to_owned() };
        let mut settings = Settings::new(Shape::Chat);
        settings.set("temperature", 0.5).expect("an option");
        Provider::new(Mute { identity, settings: Arc::new(settings) })
    };
    check(
        &session,
        &recorded().flow(),
        expect![[r#"
            exact: 3 requests
        "#]],
    );
    // The prompt of the first agent, of the second, and what a tool is for.
    check(
        &session,
        &WriterFlow { prompt: "Write well.", ..recorded() }.flow(),
        expect![[r#"
            diverges at step b7c8cfbd (instructions: Write. (tools: count)), /text
              expected: "Write."
              found:    "Write well."
            nothing before that was compared
        "#]],
    );
    check(
        &session,
        &WriterFlow { editor: "Edit well.", ..recorded() }.flow(),
        expect![[r#"
            diverges at step c898b90e (instructions: Edit.), /text
              expected: "Edit."
              found:    "Edit well."
            the same before that: 2 requests
        "#]],
    );
    check(
        &session,
        &WriterFlow { description: "Adds up.", ..recorded() }.flow(),
        expect![[r#"
            diverges at step b7c8cfbd (instructions: Write. (tools: count)), /tools/0/description
              expected: "Counts."
              found:    "Adds up."
            nothing before that was compared
        "#]],
    );
    // Another model, and another setting.
    check(
        &session,
        &WriterFlow { provider: mute_as("script", "other"), ..recorded() }.flow(),
        expect![[r#"
            diverges at step b7c8cfbd (instructions: Write. (tools: count)), /provider/model
              expected: "script"
              found:    "other"
            nothing before that was compared
        "#]],
    );
    check(
        &session,
        &WriterFlow { provider: settings(), ..recorded() }.flow(),
        expect![[r#"
            diverges at step 24290c2b (assistant calls count({})), /request
              expected: "c2690a8155a9ce67a2e4e655e782901b3f1029fdad5b581517ccdb4078…
              found:    "2574c7257436e19dc18005deb109ecdf01f2cd2c76c5c5c55c9f87d287…
              in the request, at /temperature: expected nothing, found 0.5
            nothing before that was compared
        "#]],
    );
    // A step that the program appends itself is another one, or missing.
    check(
        &session,
        &WriterFlow { note: Some("done"), ..recorded() }.flow(),
        expect![[r#"
            diverges at step 5d0b4609 (note: written), /text
              expected: "written"
              found:    "done"
            the same before that: 2 requests
        "#]],
    );
    check(
        &session,
        &WriterFlow { note: None, ..recorded() }.flow(),
        expect![[r#"
            diverges at step 5d0b4609 (note: written)
              expected: note: written
              found:    instructions: Edit.
            the same before that: 2 requests
        "#]],
    );
    // A program that stops in the middle, one that stops at the end, and one that continues.
    check(
        &session,
        &WriterFlow { turns: 1, ..recorded() }.flow(),
        expect![[r#"
            diverges at step b156e485 (assistant: done)
              expected: assistant: done
              found:    failed: limit: the model was asked once in one run and is n…
            the same before that: 1 request
        "#]],
    );
    let first = Agent::new("Write.", &mute()).tool(Counter { description: "Counts.", ..Counter::default() });
    check(
        &session,
        &first,
        expect![[r#"
            diverges at step 5d0b4609 (note: written)
              expected: note: written
              found:    nothing, the program ended
            the same before that: 2 requests
        "#]],
    );
    let more = recorded().flow().then("reader", Agent::new("Read.", &mute()));
    check(
        &session,
        &more,
        expect![[r#"
            diverges at step 311baf78 (the last step there)
              expected: nothing, the recording ends here
              found:    instructions: Read.
            the same before that: 3 requests
        "#]],
    );
    let fails = recorded().flow().then("fails", |_| async { Err(Error::new(ErrorKind::Other, "no")) });
    check(
        &session,
        &fails,
        expect![[r#"
            exact: 3 requests
        "#]],
    );
}

#[test]
fn a_route_or_a_menu_that_was_changed() {
    let session = run(&support(&says(&["2", "Turn it off.", "0"])), Session::user("It is broken."));
    let renamed = Support { tech: Agent::new("You do tech.", &mute()).describe("Knows all."), ..support(&mute()) };
    check(
        &session,
        &renamed,
        expect![[r#"
            diverges at step a5d6a8d7 (instructions: You direct a conversation: you say who goes on with it. Ans…), /text
              expected: ….\n\n2. tech: Knows about machines."
              found:    ….\n\n2. tech: Knows all."
            nothing before that was compared
        "#]],
    );
    let forced = Support { selector: Selector::new(&mute()).force(["billing", "done"]), ..support(&mute()) };
    check(
        &session,
        &forced,
        expect![[r#"
            diverges at step ee3d2e5f (forked)
              expected: forked
              found:    selected: billing (of 2)
            nothing before that was compared
        "#]],
    );
    // The same routes without a model are a divergence.
    let followed = Support { selector: Selector::new(&mute()).follow(&session), ..support(&mute()) };
    check(
        &session,
        &followed,
        expect![[r#"
            diverges at step ee3d2e5f (forked)
              expected: forked
              found:    selected: tech (of 2)
            nothing before that was compared
        "#]],
    );
}

#[test]
fn a_changed_result_in_the_recording_is_detected() {
    let agent = |provider: &Provider| counting(provider, &Counter::default());
    let session = run(&agent(&script([COUNT, DONE])), Session::user("go"));
    // The same steps with another result: the answer after it names the original request.
    let mut changed = Session::empty();
    for step in session.as_record().steps() {
        let chunk = match step.chunk() {
            Chunk::ToolResult(result) => Chunk::result(result.call.clone(), "call 7"),
            chunk => chunk.clone(),
        };
        changed = match &step.stamp().by {
            Some(by) => changed.by(by.clone()),
            None => changed,
        };
        changed.push(chunk);
    }
    let rebuilt = changed.rebuild();
    expect![[r#"
        step 0e86d972, request
          expected: 6eb8f35e190abe328d2f98b1eca3175f80e616236fe965aee4b07305c80…
          found:    the rebuilt request has digest bff68547, the one sent had 6…
        the same: 1 request"#]]
    .assert_eq(&rebuilt.to_string());
    let replayed = block_on(changed.replay(&agent(&mute()))).expect("a replay");
    expect![[r#"
        diverges at step 0e86d972 (assistant: done), /request
          expected: "6eb8f35e190abe328d2f98b1eca3175f80e616236fe965aee4b07305c8…
          found:    "bff685472c803f65908ffbc89287b608a4528db799e6cf713d3ad001cd…
        the same before that: 1 request"#]]
    .assert_eq(&replayed.to_string());
}

#[test]
fn tools_that_run_again_are_compared_call_by_call() {
    let folder = rath_test_support::temp_dir();
    let fresh = || Sandbox::local(folder.path());
    let counter = Counter::default();
    let session = run(&counting(&script([COUNT, COUNT, COUNT, COUNT, COUNT, DONE]), &counter), Session::user("go"));
    let results: Vec<_> = session
        .as_record()
        .steps()
        .into_iter()
        .filter(|step| matches!(step.chunk(), Chunk::ToolResult(_)))
        .map(|step| step.id())
        .collect();
    let again = |counter: &Counter| {
        block_on(session.replay(&counting(&mute(), counter)).reexecuting(fresh())).expect("a replay")
    };
    let same = Counter::default();
    expect!["exact: 6 requests, 5 calls, 0 files"].assert_eq(&again(&same).to_string());
    assert_eq!(same.calls.load(Ordering::Relaxed), 5);
    let mutated = Counter { changes_at: Some(3), ..Counter::default() };
    let replayed = again(&mutated);
    // The model reads the recorded results, so the calls after it are made too.
    expect![[r#"
        step 44142ae6: count {}
          output differs
          recorded: call 3
          now:      call 3, or so
        step 65860506: count {}
          output differs
          recorded: call 4
          now:      call 4, or so
        step d1cd7471: count {}
          output differs
          recorded: call 5
          now:      call 5, or so
        the same: 6 requests, 2 calls, 0 files"#]]
    .assert_eq(&replayed.to_string());
    assert_eq!(replayed.differences.iter().map(|it| it.step).collect::<Vec<_>>(), results[2..]);
    assert_eq!(mutated.calls.load(Ordering::Relaxed), 5);
    let mutated = Counter { changes_at: Some(3), ..Counter::default() };
    let agent = counting(&mute(), &mutated);
    let replayed = block_on(session.replay(&agent).reexecuting(fresh()).stop_at_first()).expect("a replay");
    expect![[r#"
        step 44142ae6: count {}
          output differs
          recorded: call 3
          now:      call 3, or so
        the same: 3 requests, 2 calls, 0 files"#]]
    .assert_eq(&replayed.to_string());
    // No call is made after the first that differs.
    assert_eq!(mutated.calls.load(Ordering::Relaxed), 3);
    let fails = Counter { nature: Nature::Fails, changes_at: Some(5), ..Counter::default() };
    assert_eq!(again(&fails).differences.len(), 5);
}

#[test]
fn tools_that_run_again_work_in_a_fresh_place() {
    use rath::tool::builtin::{ListFiles, ReadFile, WriteFile};
    let agent = |provider: &Provider| {
        let helper = Agent::new("Look.", provider).describe("Looks.").tool(ListFiles);
        Agent::new("Work.", provider).tool(WriteFile).tool(ReadFile).delegate("look", helper)
    };
    let write = json!({"agent": "agent", "calls": [
        {"name": "write_file", "arguments": {"path": "a.txt", "content": "one"}},
        {"name": "read_file", "arguments": {"path": "a.txt"}},
    ]});
    // In a turn of its own: beside the call that writes, it would see the file or not.
    let look = json!({"agent": "agent", "calls": [{"name": "look", "arguments": {"task": "What is there?"}}]});
    let list = json!({"agent": "agent.look", "calls": [{"name": "list_files", "arguments": {}}]});
    let said = json!({"agent": "agent.look", "text": "a file"});
    let done = json!({"agent": "agent", "text": "done"});
    let (recorded, fresh) = (rath_test_support::temp_dir(), rath_test_support::temp_dir());
    let place = |folder: &rath_test_support::TempDir| Sandbox::local(folder.path());
    let provider = script([write, look, list, said, done].map(|turn| turn.to_string()));
    let session = run(&agent(&provider), Session::user("go").to(place(&recorded)));
    std::fs::remove_file(recorded.path().join("a.txt")).expect("it was written");
    let replayed = block_on(session.replay(&agent(&mute())).reexecuting(place(&fresh))).expect("a replay");
    assert!(replayed.is_exact(), "{replayed}\n{}", session.lineage());
    assert_eq!(std::fs::read_to_string(fresh.path().join("a.txt")).expect("it was written"), "one");
    assert!(!recorded.path().join("a.txt").exists());
    // Without the program, the calls of the helper are made by themselves.
    let other = rath_test_support::temp_dir();
    let report = block_on(session.repeat(rath::tool::builtin::files(), place(&other))).expect("repeated");
    let expected = "exact: 5 requests, 3 calls, 1 file\nnot made: 1 call (no tool `look` in this program)";
    assert_eq!(report.to_string(), expected);
    // A directory with files is left as it is, and one of them did not exist in the recording.
    std::fs::remove_file(fresh.path().join("a.txt")).expect("it was written");
    std::fs::write(fresh.path().join("b.txt"), "two").expect("a file");
    let replayed = block_on(session.replay(&agent(&mute())).reexecuting(place(&fresh))).expect("a replay");
    let [difference] = &replayed.differences[..] else { panic!("{replayed}") };
    assert_eq!((&*difference.call.tool, difference.part), ("list_files", "output"));
    // A missing directory is reported before anything runs.
    let error = block_on(session.replay(&agent(&mute())).reexecuting(Sandbox::local("no/such/place")));
    assert_eq!(error.expect_err("no place").kind(), ErrorKind::Place);
}

#[test]
fn calls_are_not_repeated_without_the_files_that_they_read() {
    let (recorded, fresh) = (crate::support::folder(&[("a.txt", "one\n")]), rath_test_support::temp_dir());
    let session = crate::files::work(crate::files::placed(&recorded), &[&["cat a.txt"]]);
    let repeat = |session: &Session| {
        block_on(session.repeat(rath::tool::builtin::all(), Sandbox::local(fresh.path())).into_future())
    };
    assert_eq!(repeat(&session).expect("repeated").to_string(), "exact: 2 requests, 1 call, 0 files");
    std::fs::remove_dir_all(recorded.path().join(".rath")).expect("removed");
    std::fs::remove_file(fresh.path().join("a.txt")).expect("it was restored");
    let error = repeat(&Session::resume_own(session.as_record().clone())).expect_err("no files");
    assert_eq!(error.message(), "the recorded files of this session are not in this copy");
}

#[test]
fn calls_are_not_repeated_if_they_were_forgotten() {
    let recorded = crate::support::folder(&[("a.txt", "one\n")]);
    let session = crate::files::work(crate::files::placed(&recorded), &[&["cat a.txt"], &["cat a.txt"]]);
    let is_wanted = |step: &&rath::record::Step| matches!(step.chunk(), Chunk::Assistant(_) | Chunk::ToolResult(_));
    let reports = session.as_record().steps().into_iter().filter(is_wanted).map(|step| {
        let fresh = rath_test_support::temp_dir();
        let copy = without(&session, step.id());
        let report = block_on(copy.repeat(rath::tool::builtin::all(), Sandbox::local(fresh.path())).into_future());
        format!("without {}:\n{}\n", step.chunk().kind(), report.expect("repeated"))
    });
    expect![[r#"
        without assistant:
        exact: 1 request, 1 call, 0 files; 2 requests cannot be compared: a text was forgotten
        not made: 1 call (forgotten)
        without tool_result:
        exact: 1 request, 1 call, 0 files; 2 requests cannot be compared: a text was forgotten
        not made: 1 call (forgotten)
        without assistant:
        exact: 2 requests, 1 call, 0 files; 1 request cannot be compared: a text was forgotten
        not made: 1 call (forgotten)
        without tool_result:
        exact: 2 requests, 1 call, 0 files; 1 request cannot be compared: a text was forgotten
        not made: 1 call (forgotten)
        without assistant:
        exact: 3 requests, 2 calls, 0 files
    "#]]
    .assert_eq(&reports.collect::<String>());
}

#[test]
fn approved_tools_run_again() {
    let folder = rath_test_support::temp_dir();
    let counter = Counter { nature: Nature::Approval, ..Counter::default() };
    let agent = counting(&script([COUNT, COUNT, DONE]), &counter);
    let mut session = run(&agent, Session::user("go"));
    session.approve("call_1_1").expect("it waits");
    let mut session = run(&agent, session);
    session.deny("call_2_1", "enough").expect("it waits");
    let session = run(&agent, session);
    let again = Counter { nature: Nature::Approval, ..Counter::default() };
    let place = Sandbox::local(folder.path());
    let replayed = block_on(session.replay(&counting(&mute(), &again)).reexecuting(place)).expect("a replay");
    assert!(replayed.is_exact(), "{replayed}");
    assert_eq!(again.calls.load(Ordering::Relaxed), 1);
}

#[test]
fn two_continuations_are_compared() {
    let counter = Counter::default();
    let session = run(&counting(&script([COUNT, DONE]), &counter), Session::user("go"));
    let asked = session.as_record().steps()[0].id();
    let other = session.at(asked).expect("a step");
    let other = run(&Agent::new("Be brief.", &says(&["Done at once."])), other);
    expect![[r#"
        shared up to 68a0222d  user: go
        - df80e2c2  instructions: Count. (tools: count)  [agent]
        - 9a6ffb99  assistant calls count({})  [agent]  (10 in, 2 out)
        - d00339b5  tool started: call_1_1  [agent]
        - 2ac4b718  tool result: call_1_1 ok: call 1  [agent]
        - 80dac5ba  assistant: done  [agent]  (20 in, 1 out)
        + ff10db14  forked  [agent]
        + f35c70dd  instructions: Be brief.  [agent]
        + 6537fb7f  assistant: Done at once.  [agent]  (10 in, 1 out)
        usage
        - 30 in, 3 out
        + 10 in, 1 out
        last words
        - done
        + Done at once."#]]
    .assert_eq(&session.compare(&other).to_string());
    assert_eq!(session.compare(&other).usage(), (Usage::new(30, 3), Usage::new(10, 1)));
    expect![[r#"
        shared up to 80dac5ba  assistant: done  [agent]  (20 in, 1 out)
        both are the same"#]]
    .assert_eq(&session.compare(&session).to_string());
    expect![[r#"
        nothing is shared
        + 68a0222d  user: go"#]]
    .assert_eq(&Session::empty().compare(&Session::user("go")).to_string());
}

/// A provider that gives prepared answers, with the identity and the settings of a real one.
struct Prepared {
    identity: Identity,
    settings: Arc<Settings>,
    answers: std::sync::Mutex<Vec<Answer>>,
}

impl ProviderBackend for Prepared {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    async fn send(&self, _: &Request, _: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        Ok(self.answers.lock().expect("not poisoned").remove(0))
    }
}

#[test]
fn real_providers_are_replayed_without_a_network() {
    // No server listens at this address.
    let nowhere = "http://127.0.0.1:9";
    let anthropic = Provider::from(Anthropic::new("claude").key("none").base_url(nowhere).expect("a URL"));
    let openai = Provider::from(OpenAi::new("gpt").key("none").base_url(nowhere).expect("a URL"));
    let prepared = |real: &Provider, answers: Vec<Answer>| {
        let Request { identity, settings, .. } = real.request(&Session::user("?")).expect("a request");
        Provider::new(Prepared { identity, settings, answers: std::sync::Mutex::new(answers) })
    };
    let answer = |text: &str| Answer { text: text.to_owned(), usage: Some(Usage::new(7, 3)), ..Answer::default() };
    let calls = Answer {
        calls: vec![Call::new("a", "count", "{}"), Call::new("b", "count", "{}")],
        finish: Finish::Calls,
        reasoning: "Hm.".to_owned(),
        sidecar: Some(json!([{"type": "thinking", "thinking": "Hm.", "signature": "s"}]).into()),
        ..answer("")
    };
    let flow = |first: &Provider, second: &Provider| {
        let first = counting(first, &Counter::default());
        Sequential::new().then("first", first).then("second", Agent::new("Go on.", second))
    };
    let record = flow(&prepared(&anthropic, vec![calls, answer("a")]), &prepared(&openai, vec![answer("b")]));
    let session = run(&record, Session::user("go"));
    assert_eq!(session.text(), Some("b"));
    // Some parts of one model's answer cannot be sent to the other, and that is recorded.
    assert!(session.chunks().any(|chunk| matches!(chunk, Chunk::Note(_))), "{}", session.lineage());
    exact(&session, &flow(&anthropic, &openai));
    let hotter = Provider::from(Anthropic::new("claude").key("none").max_tokens(9).base_url(nowhere).expect("a URL"));
    check(
        &session,
        &flow(&hotter, &openai),
        expect![[r#"
            diverges at step a75be6fe (assistant calls count({}), count({})), /request
              expected: "984fa58840a5ab6efc6ab92e8b8b59987c91c5d57c376b5b981f341b00…
              found:    "24950e502d33e41838b2f7dbd0315f647b9b0413e8a5f6a8ee83c11e23…
              in the request, at /max_tokens: expected 8192, found 9
            nothing before that was compared
        "#]],
    );
    check(
        &session,
        &flow(&openai, &openai),
        expect![[r#"
            diverges at step 3fc92a4c (instructions: Count. (tools: count)), /provider/model
              expected: "claude"
              found:    "gpt"
            nothing before that was compared
        "#]],
    );
}

#[test]
fn abandoned_work_is_abandoned_again() {
    #[derive(Module)]
    struct Race {
        slow: Agent,
        failing: Agent,
        #[module(skip)]
        keeps: bool,
    }
    impl Workflow for Race {
        async fn forward(&self, session: Session) -> Result<Session> {
            let failing = async {
                if self.keeps {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
                let failed = self.failing.run(session.fork_named("failing")).await;
                // An error without a session gets the steps of all branches.
                failed.map_err(|error| if self.keeps { Error::other(error.message()) } else { error })
            };
            let (ours, theirs) = tokio::try_join!(self.slow.run(session.fork()), failing)?;
            ours.merge(&theirs).await
        }
    }
    let race = |provider: &Provider, keeps| {
        let (slow, failing) = (Agent::new("Wait.", provider), Agent::new("Fail.", provider));
        Race { slow, failing, keeps }
    };
    for keeps in [true, false] {
        let provider = script([
            r#"{"agent": "race.slow", "text": "never", "delay_ms": 100000}"#,
            r#"{"agent": "race.failing", "error": {"status": 400, "message": "no"}}"#,
        ]);
        let session = run(&race(&provider, keeps), Session::user("go"));
        assert_eq!(session.lineage().to_string().contains("instructions: Wait."), keeps, "{}", session.lineage());
        exact(&session, &race(&mute(), keeps));
    }
    // In a task of its own.
    let spawned = |provider: Provider| {
        move |session: Session| {
            let agent = Agent::new("Go.", &provider).named("agent");
            async move {
                let run = tokio::spawn(async move { agent.run(session).await });
                run.await.map_err(Error::other)?
            }
        }
    };
    let mut session = run(&spawned(script([DONE])), Session::user("go"));
    exact(&session, &spawned(mute()));
    let before = session.as_record().steps()[1].clone();
    session = Session::resume_own(Record::at(before));
    exact(&session, &spawned(mute()));
}

#[test]
fn a_program_that_crashed_and_was_started_again() {
    #[derive(Module)]
    struct Minds {
        agent: Agent,
    }
    impl Workflow for Minds {
        async fn forward(&self, mut session: Session) -> Result<Session> {
            self.agent.remember(&mut session, "A fact.").await?;
            self.agent.run(session).await
        }
    }
    let minds = |provider: &Provider| Minds { agent: counting(provider, &Counter::default()).memory(&mute_memory()) };
    let memory = Memory::in_process("notes");
    let record = |turns: &[&str]| Minds { agent: counting(&script(turns), &Counter::default()).memory(&memory) };
    // The stored steps at the crash: the model has answered, and no call was made yet.
    let whole = run(&record(&[COUNT, DONE]), Session::user("go"));
    for (nth, expected) in [
        (
            3,
            expect![[r#"
                exact: 2 requests; cut short and run again at 10fecca4
            "#]],
        ),
        (
            4,
            expect![[r#"
                exact: 2 requests; cut short and run again at f852f962
            "#]],
        ),
    ] {
        let stored = Session::resume_own(Record::at(whole.as_record().steps()[nth].clone()));
        let turns = if nth == 3 { &[COUNT, DONE][..] } else { &[DONE] };
        let session = run(&record(turns), stored);
        assert_eq!(session.text(), Some("done"));
        check(&session, &minds(&mute()), expected);
    }
}

#[test]
fn a_difference_at_the_end_of_a_long_text_is_shown() {
    let long = |end: &str| format!("{}{end}", "All that is to be known. ".repeat(1_000));
    let session = run(&Agent::new(long("Be brief."), &script([DONE])), Session::user("go"));
    check(
        &session,
        &Agent::new(long("Be long."), &mute()),
        expect![[r#"
            diverges at step 86405b33 (instructions: All that is to be known. All that is to be known. All that …), /text
              expected: …t is to be known. Be brief."
              found:    …t is to be known. Be long."
            nothing before that was compared
        "#]],
    );
}

#[test]
fn a_step_of_a_newer_version_is_accepted() {
    let agent = |provider: &Provider| counting(provider, &Counter::default());
    let session = run(&agent(&script([COUNT, DONE])), Session::user("go"));
    // The first answer and the result hold an unknown member.
    let mut head: Option<rath::record::Step> = None;
    for step in session.as_record().steps() {
        let json = match step.chunk() {
            Chunk::ToolResult(_) => step.json().replacen("\"call\":", "\"mood\":\"good\",\"call\":", 1),
            Chunk::Assistant(answer) if !answer.calls.is_empty() => {
                step.json().replacen("\"finish\":", "\"mood\":\"good\",\"finish\":", 1)
            }
            _ => step.json().into_owned(),
        };
        let parents = head
            .take()
            .map_or(rath::record::Parents::None, |head| rath::record::Parents::One(rath::record::Parent::Loaded(head)));
        head = Some(rath::record::Step::from_json(parents, &json, step.stamp().clone()).expect("a chunk"));
    }
    let newer = Session::resume_own(Record::at(head.expect("steps")));
    assert_ne!(newer.head(), session.head());
    exact(&newer, &agent(&mute()));
}

#[test]
fn a_recording_with_a_missing_step_is_refused() {
    let session = run(&counting(&script([COUNT, DONE]), &Counter::default()), Session::user("go"));
    let steps = session.as_record().steps();
    let gone = rath::record::Parents::One(rath::record::Parent::Missing(Box::new(steps[1].id())));
    let step = rath::record::Step::from_json(gone, &steps[2].json(), steps[2].stamp().clone()).expect("a chunk");
    let broken = Session::resume_own(Record::at(step));
    let error = block_on(broken.replay(&counting(&mute(), &Counter::default()))).expect_err("a gap");
    assert_eq!(error.kind(), ErrorKind::Replay);
    assert!(!broken.rebuild().is_exact());
}
