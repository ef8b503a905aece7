//! Sessions whose agents use a server.

use expect_test::{Expect, expect};
use rath::prelude::*;
use rath::record::draw;
use rath::tool::ToolSource;
use rath::{BranchId, ToolChange};
use rath_mcp::{McpServers, Transport, Walls};
use serde_json::json;

use super::{Fixture, block_on, call, count_marked};

/// Returns an answer that calls tools of the server one after the other.
fn calls(tools: &[&str]) -> String {
    let calls: Vec<_> = tools.iter().map(|tool| json!({"name": format!("srv__{tool}"), "arguments": {}})).collect();
    json!({ "calls": calls }).to_string()
}

/// Returns an agent that makes these calls, each in a turn of its own, and then ends.
fn agent(servers: &McpServers, tools: &[&str]) -> Agent {
    let turns = tools.iter().map(|tool| calls(&[tool])).chain([r#"{"text": "Done."}"#.to_owned()]);
    Agent::new("You work.", &Script::of(turns).expect("a script").into()).tools_from(servers.clone()).named("worker")
}

fn session() -> Session {
    Session::user("Go.").under(Policy::new(Mode::Full))
}

/// Runs an agent that makes these calls, and compares what is on the record.
fn check(tools: &[&str], expected: Expect) {
    let fixture = Fixture::new();
    let servers = fixture.server("");
    let session = block_on(agent(&servers, tools).run(session())).expect("a run");
    expected.assert_eq(&lines(&session));
}

/// Draws the steps of a session, one line each.
fn lines(session: &Session) -> String {
    let lines = session.chunks().map(|chunk| match chunk {
        Chunk::Instructions(it) => format!("instructions: {} tools", it.tools.len()),
        chunk => draw::describe(chunk),
    });
    lines.map(|line| line + "\n").collect()
}

#[test]
fn what_a_server_answers_is_on_the_record() {
    check(
        &["echo", "image", "value", "fail"],
        expect![[r#"
            user: Go.
            instructions: 22 tools
            assistant calls srv__echo({})
            tool started: call_1_1
            tool result: call_1_1 ok: echo
            assistant calls srv__image({})
            tool started: call_2_1
            tool result: call_2_1 ok (images: 1)
            assistant calls srv__value({})
            tool started: call_3_1
            tool result: call_3_1 ok: {"sum":3}
            assistant calls srv__fail({})
            tool started: call_4_1
            tool result: call_4_1 failed: no such row (images: 1)
            assistant: Done.
        "#]],
    );
}

#[test]
fn a_changed_list_is_in_force_at_the_next_request() {
    check(
        &["change", "new1"],
        expect![[r#"
            user: Go.
            instructions: 22 tools
            assistant calls srv__change({})
            tool started: call_1_1
            tool result: call_1_1 ok: changed
            note: tools: new: srv__new1
            instructions: 23 tools
            assistant calls srv__new1({})
            tool started: call_2_1
            tool result: call_2_1 ok: called new1
            assistant: Done.
        "#]],
    );
}

#[test]
fn an_end_and_a_new_start_are_on_the_record() {
    check(
        &["die", "echo"],
        expect![[r#"
            user: Go.
            instructions: 22 tools
            assistant calls srv__die({})
            tool started: call_1_1
            note: tools: the server `srv`: it has ended (exit status 7); the …
            tool result: call_1_1 failed: the server `srv`: it has ended (exit status 7); the…
            note: tools: the server `srv` was started again: it had ended (ex…
            assistant calls srv__echo({})
            tool started: call_2_1
            tool result: call_2_1 ok: echo
            assistant: Done.
        "#]],
    );
}

#[test]
fn progress_reaches_the_listeners() {
    let fixture = Fixture::new();
    let reports = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let heard = reports.clone();
    let agent = agent(&fixture.server(""), &["progress"]);
    let run = agent.run(session()).on_event(move |event| {
        if let EventKind::ToolOutput { text, .. } = &event.kind {
            heard.lock().expect("no panic").push_str(text);
        }
    });
    block_on(run).expect("a run");
    assert_eq!(*reports.lock().expect("no panic"), "1/3 part 1\n2/3 part 2\n3/3 part 3\n");
}

#[test]
fn forks_and_sub_agents_share_one_process() {
    let fixture = Fixture::new();
    let servers = fixture.server("");
    let first = block_on(async {
        let first = call(&servers, "srv__pid", json!({})).await;
        let runs = (0..8).map(async |_| agent(&servers, &["pid"]).run(session()).await);
        let inner = Agent::new(
            "You delegate.",
            &Script::of([r#"{"calls": [{"name": "inner", "arguments": {"task": "Go."}}]}"#, r#"{"text": "Done."}"#])
                .expect("a script")
                .into(),
        )
        .delegate("inner", agent(&servers, &["pid"]));
        for session in futures_util::future::join_all(runs).await {
            let session = session.expect("a run");
            assert!(lines(&session).contains(&format!("ok: {first}\n")), "{}", lines(&session));
        }
        inner.run(session()).await.expect("a run");
        assert_eq!(count_marked(&fixture.mark), 1);
        first
    });
    assert!(first.parse::<u32>().is_ok());
    drop(servers);
    assert_eq!(count_marked(&fixture.mark), 0);
}

#[test]
fn a_policy_decides_about_a_server_and_its_hints_decide_nothing() {
    let fixture = Fixture::new();
    let servers = fixture.server("");
    let run = |policy: Policy| block_on(agent(&servers, &["echo"]).run(Session::user("Go.").under(policy)));
    let denied = run(Policy::new(Mode::Full).rule("deny server srv".parse().expect("a rule"))).expect("a run");
    assert!(lines(&denied).contains("denied"), "{}", lines(&denied));
    // The server says that the tool only reads.
    let refused = run(Policy::new(Mode::ReadOnly)).expect("a run");
    assert!(lines(&refused).contains("denied"), "{}", lines(&refused));
    let asked = run(Policy::new(Mode::Ask)).expect_err("a person is asked");
    assert_eq!(asked.kind(), ErrorKind::Approval);
    let allowed = run(Policy::new(Mode::Ask).rule("allow server srv".parse().expect("a rule"))).expect("a run");
    assert!(lines(&allowed).contains("ok: echo"), "{}", lines(&allowed));
}

#[test]
fn values_that_a_server_was_given_are_hidden() {
    let fixture = Fixture::new();
    let mut config = fixture.config("srv", "", Walls::Outside);
    let Transport::Stdio(process) = &mut config.transport else { panic!("a process") };
    process.env = vec![("SECRET_KEY".to_owned(), "open sesame".to_owned().into())];
    let servers = fixture.servers([config]);
    let session = block_on(agent(&servers, &["env"]).run(session())).expect("a run");
    assert!(lines(&session).contains("SECRET_KEY=[secret SECRET_KEY]"), "{}", lines(&session));
}

#[test]
fn a_replay_starts_no_server() {
    let fixture = Fixture::new();
    let servers = fixture.server("");
    let agent = agent(&servers, &["change", "new1", "die", "echo"]);
    let session = block_on(agent.run(session())).expect("a run");
    drop((agent, servers));
    std::fs::remove_file(fixture.path().join("server.pl")).expect("it is there");
    let again = self::agent(&fixture.server(""), &["change", "new1", "die", "echo"]);
    let replayed = block_on(session.replay(&again)).expect("a replay");
    assert!(replayed.is_exact(), "{replayed}");
}

#[test]
fn a_changed_schema_is_a_difference_of_a_resumed_session() {
    let fixture = Fixture::new();
    let differences = block_on(async {
        let store = Store::open("memory:").await.expect("a store");
        let servers = fixture.server("");
        let id: BranchId = {
            let session = session().record(&store).await.expect("it is new");
            agent(&servers, &["echo"]).run(session).await.expect("a run").id()
        };
        let compare = async |servers: &McpServers| {
            servers.connect().await;
            let resumed = store.resume(id).await.expect("stored").against(&agent(servers, &[]));
            resumed.certificate().differences().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(compare(&servers).await, [""; 0]);
        let script = fixture.path().join("server.pl");
        let text = std::fs::read_to_string(&script).expect("it is there");
        let changed = text.replace(r#"{"type":"object"}"#, r#"{"type":"object","properties":{"x":{}}}"#);
        assert_ne!(text, changed);
        std::fs::write(&script, changed).expect("a file");
        servers.close().await;
        compare(&servers).await
    });
    let _ = ToolChange::Arguments;
    assert!(differences.iter().any(|line| line.contains("srv__echo")), "{differences:?}");
}

#[test]
fn the_tools_of_a_server_are_those_of_the_last_listing() {
    let fixture = Fixture::new();
    let servers = fixture.server("");
    assert_eq!(servers.last_listed().names().count(), 0);
    block_on(servers.list());
    assert_eq!(servers.last_listed().names().next(), Some("srv__echo"));
    assert!(servers.owns("srv__anything") && !servers.owns("srv") && !servers.owns("other__echo"));
}
