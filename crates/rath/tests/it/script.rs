//! The scripted provider.

use expect_test::{Expect, expect};
use rath::Usage;
use rath::prelude::*;
use rath::provider::Retry;

use crate::support::block_on;

fn provider(lines: &[&str]) -> Provider {
    Script::of(lines).expect("it is a script").into()
}

fn ask(provider: &Provider, session: Session) -> Result<Session> {
    block_on(provider.ask(session).into_future())
}

#[test]
fn turns_are_taken_in_order_and_stream() {
    let provider = provider(&[
        "# a comment, and an empty line",
        "",
        r#"{"reasoning":"hm","text":"Let me look.","chunks":3,"calls":[{"name":"look"},{"name":"find","arguments":{"at":1}}]}"#,
        r#"{"text":"Done.","usage":{"input":9,"output":2}}"#,
    ]);
    let mut shown = String::new();
    let each = |delta: Delta<'_>| shown += &format!("{delta:?}\n");
    let mut session = block_on(provider.ask(Session::user("hi")).each(each).into_future()).expect("it is answered");
    expect![[r#"
        Reasoning("hm")
        Text("Let ")
        Text("me l")
        Text("ook.")
        Call { nth: 0, id: "call_3_1", tool: "look", arguments: "{}" }
        Call { nth: 1, id: "call_3_2", tool: "find", arguments: "{\"at\":1}" }
        Finish(Calls)
    "#]]
    .assert_eq(&shown);
    for call in ["call_3_1", "call_3_2"] {
        session.push(Chunk::result(call, "seen"));
    }
    let session = ask(&provider, session).expect("it is answered");
    assert_eq!(session.text(), Some("Done."));
    assert_eq!(provider.identity().to_string(), "script:script");
    expect!["session 79005f2a: 5 steps, 38 in, 10 out, done"].assert_eq(&session.to_string());
}

#[test]
fn an_agent_takes_its_own_turns_and_those_for_any_agent() {
    let provider = provider(&[
        r#"{"text":"writer one","agent":"team.writer"}"#,
        r#"{"text":"anybody"}"#,
        r#"{"text":"critic one","agent":"team.critic"}"#,
        r#"{"text":"writer two","agent":"team.writer"}"#,
    ]);
    let answer = |agent: &str| match ask(&provider, Session::user("hi").by(agent)) {
        Ok(session) => {
            assert_eq!(session.head().expect("it answered").stamp().by.as_deref(), Some(agent));
            session.text().expect("it spoke").to_owned()
        }
        Err(error) => format!("{error:?}"),
    };
    assert_eq!(answer("team.critic"), "anybody");
    assert_eq!(answer("team.writer"), "writer one");
    assert_eq!(answer("team.critic"), "critic one");
    assert_eq!(
        answer("team.critic"),
        "the script `script` has no turn left for `team.critic`\nhint: left for other agents: 1 turn"
    );
    assert_eq!(answer("team.writer"), "writer two");
    assert_eq!(
        answer("team.writer"),
        "the script `script` has no turn left for `team.writer`\nhint: it has 4 turns: add a line for each model call"
    );
}

#[test]
fn the_request_must_contain_the_expected_texts() {
    let lines =
        [r#"{"text":"yes","expect":{"contains":["say \"hi\"","Be brief."]}}"#, r#"{"expect":{"contains":"bye"}}"#];
    let provider = provider(&lines);
    let mut session = Session::system("Be brief.");
    session.push(Chunk::user("please say \"hi\"\nnow"));
    let mut session = ask(&provider, session).expect("it is as expected");
    session.push(Chunk::user("again"));
    let error = ask(&provider, session).expect_err("the request has no `bye`");
    assert_eq!(error.kind(), ErrorKind::Script);
    let text = format!("{error:?}");
    assert!(
        text.starts_with("line 2 of the script `script` expects `bye` in the request\nhint: the request is "),
        "{text}"
    );
    assert!(error.session().expect("it is kept").chunks().any(|chunk| matches!(chunk, Chunk::Failed(_))));
}

#[test]
fn errors_are_retried_like_those_of_a_server() {
    let busy = r#"{"error":{"status":503,"message":"later"}}"#;
    let provider = provider(&[busy, busy, r#"{"text":"now"}"#, r#"{"error":{"status":400,"message":"never"}}"#]);
    let quick = Retry { attempts: 3, first: std::time::Duration::ZERO, ..Retry::default() };
    let provider = provider.retry(quick);
    let mut session = ask(&provider, Session::user("hi")).expect("the third is an answer");
    assert_eq!(session.chunk_count(), 4);
    session.push(Chunk::user("again"));
    let error = ask(&provider, session).expect_err("it is refused");
    assert_eq!((error.kind(), format!("{error:?}")), (ErrorKind::Refused, "never (400)".to_owned()));
}

#[test]
fn usage_accepts_the_names_of_providers() {
    for usage in [
        r#"{"input":9,"output":2}"#,
        r#"{"input_tokens":9,"output_tokens":2}"#,
        r#"{"prompt_tokens":9,"completion_tokens":2}"#,
    ] {
        let provider = provider(&[&format!(r#"{{"text":"ok","usage":{usage}}}"#)]);
        assert_eq!(ask(&provider, Session::user("hi")).expect("it is answered").usage(), Usage::new(9, 2));
    }
}

#[track_caller]
fn check_error(line: &str, expected: Expect) {
    let error = Script::of([r#"{"text":"ok"}"#, line]).expect_err("it is no turn");
    expected.assert_eq(&format!("{error:?}"));
}

#[test]
fn the_error_for_an_invalid_line_names_the_line() {
    check_error(
        "hello",
        expect![[r#"
            line 2 of the script `script` is not a turn: expected value
            hint: a turn is a JSON object on one line: {"text": "hello"}"#]],
    );
    check_error(
        r#"{"txet":"hello"}"#,
        expect![[r#"
            line 2 of the script `script` is not a turn: unknown field `txet`, expected one of `text`, `reasoning`, `calls`, `finish`, `usage`, `error`, `delay_ms`, `chunks`, `agent`, `expect`
            hint: a turn is a JSON object on one line: {"text": "hello"}"#]],
    );
    check_error(
        r#"{"calls":[{"tool":"look"}]}"#,
        expect![[r#"
            line 2 of the script `script` is not a turn: unknown field `tool`, expected `name` or `arguments`
            hint: a turn is a JSON object on one line: {"text": "hello"}"#]],
    );
    check_error(
        r#"{"text":"hello","chunks":0}"#,
        expect![[r#"
        line 2 of the script `script` is not a turn: `chunks` must be at least 1
        hint: a turn is a JSON object on one line: {"text": "hello"}"#]],
    );
    check_error(
        r#"{"text":"hello","error":{"status":500,"message":"no"}}"#,
        expect![[r#"
        line 2 of the script `script` is not a turn: a turn with `error` cannot have `text` or `calls`
        hint: a turn is a JSON object on one line: {"text": "hello"}"#]],
    );
    assert_eq!(Script::of(["", "# nothing"]).expect_err("it is empty").to_string(), "the script `script` has no turns");
}

#[test]
fn a_script_is_read_from_a_file_and_named_without_its_path() {
    let folder = rath_test_support::temp_dir();
    let path = folder.path().join("demo.jsonl");
    std::fs::write(&path, "{\"text\":\"hello\"}\n").expect("it can be written");
    let provider = block_on(Provider::open(&format!("script:{}", path.display()))).expect("it is a script");
    let session = ask(&provider, Session::user("hi")).expect("it is answered");
    assert_eq!(session.text(), Some("hello"));
    let request = session.request(session.head().expect("it answered").id()).expect("it can be rebuilt");
    assert_eq!(request.identity.to_string(), "script:demo");
    assert!(!String::from_utf8_lossy(request.body()).contains(&*folder.path().to_string_lossy()));
}
