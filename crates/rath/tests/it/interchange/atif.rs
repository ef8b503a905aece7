//! Trajectories in the Agent Trajectory Interchange Format.

use std::io::Write;
use std::process::Stdio;

use expect_test::{Expect, expect};
use rath::interchange::atif::{read, write, write_priced};
use rath::prelude::*;
use rath::{
    Usage, chunk::Assistant, chunk::Call, chunk::Identity, chunk::Image, chunk::Json, provider::Money, provider::Price,
    provider::Prices,
};

use super::laws::without_session;
use super::{log, next, notes, sessions, visible_state};

/// Returns sessions with parts that this format can hold and others cannot.
fn all_sessions() -> Vec<(&'static str, Session)> {
    let mut list = sessions();

    let mut pictures = Session::empty();
    pictures.push(rath::chunk::User::new("see").with_images(vec![Image::new("image/png", *b"png")]));
    list.push(("pictures", pictures));

    let mut work = Session::user("delegate").by("boss");
    work.push(Chunk::calls([Call::new("c", "helper", "{}")]));
    let mut aside = work.aside("helper");
    aside.push(Chunk::user("do it"));
    aside.push_with_usage(Chunk::assistant("done"), Usage::new(5, 1));
    let mut inner = aside.aside("inner");
    inner.push_with_usage(Chunk::assistant("deep"), Usage::new(1, 1));
    aside.keep_aside(&inner);
    work.keep_aside(&aside);
    work.push(Chunk::result("c", "done"));
    work.push_with_usage(Chunk::assistant("It is done."), Usage::new(20, 4));
    let mut lost = work.fork_named("lost");
    lost.push_with_usage(Chunk::assistant("or not"), Usage::new(7, 7));
    work.keep_aside(&lost);
    list.push(("work aside", work.clone()));

    work.push(Chunk::note("a remark"));
    work.push(rath::chunk::Placed::new("local:./"));
    let hidden: Vec<_> = work.as_record().steps().iter().map(|step| step.id()).take(3).collect();
    work.push_with_usage(rath::chunk::Compressed::new(hidden, "They delegated."), Usage::new(9, 2));
    work.push(rath::chunk::Memory::new(
        "m:",
        rath::chunk::MemoryEvent::Recall {
            query: "q".into(),
            found: vec![rath::chunk::RecalledEntry::new("e", "long ".repeat(5000))],
            position: None,
            notice: None,
        },
    ));
    work.push(Chunk::user("and?"));
    list.push(("a summary", work));
    list
}

#[test]
fn a_session_is_read_back_as_it_was_written() {
    for (name, session) in all_sessions() {
        let export = write(&session);
        let import = read(&export.bytes).expect(name);
        assert_eq!(visible_state(&import.session), visible_state(&session), "{name}");
        assert_eq!(import.notes, [], "{name}");
        if session.head().is_some() {
            assert_eq!(import.session.id(), session.id(), "{name}");
        }
        // Writing it again gives the same file.
        let again = write(&import.session).bytes;
        if session.head().is_some() {
            assert_eq!(String::from_utf8(again), String::from_utf8(export.bytes), "{name}");
        }
    }
}

#[test]
fn an_aside_is_a_trajectory_of_its_own() {
    let (_, session) = all_sessions().into_iter().find(|(name, _)| *name == "a summary").expect("it is there");
    let export = write(&session);
    let import = read(&without_session(&export.bytes)).expect("a session");
    expect![[r#"
        user: delegate
        assistant calls helper({})  [boss]
        separate work
        tool result: c ok: done  [boss]
        assistant: It is done.  [boss]  (20 in, 4 out)
        separate work
        note: a remark  [boss]
        sandbox: local:./  [boss]
        compressed: 2 steps into: They delegated.  [boss]  (9 in, 2 out)
        recall: q (1 found)  [boss]
        user: and?  [boss]
        - left_out: 3 forks under `rath` only: steps are written in the order in which they are read
        - changed: 4 steps written once, though shared by several branches
    "#]]
    .assert_eq(&(log(&import.session) + &notes(&export.notes)));
    expect![[r#"
        ○  3ad794e4 main  user: and?  [boss]
        ○  d108a551 main  recall: q (1 found)  [boss]
        ○  0bc8a5c1 main  compressed: 2 steps into: They delegated.  [boss]  (9 in, 2 out)
        ○  855de731 main  sandbox: local:./  [boss]
        ○  7c43e4be main  note: a remark  [boss]
        ◆    1e2e669b main  separate work
        ├─╮
        │ ○  c5fd8331 lost  assistant: or not  [boss]  (7 in, 7 out)
        │ ○  e464b1d3 lost  forked  [boss]
        ○  bcf67c71 main  assistant: It is done.  [boss]  (20 in, 4 out)
        ○  d1676004 main  tool result: c ok: done  [boss]
        ◆    51777059 main  separate work
        ├─╮
        │ ◆    670f808d helper  separate work
        │ ├─╮
        │ │ ○  6b7713ed inner  assistant: deep  [boss]  (1 in, 1 out)
        │ │ ○  a3836670 inner  forked  [boss]
        │ ○  ae51b503 helper  assistant: done  [boss]  (5 in, 1 out)
        │ ○  04ecea6d helper  user: do it  [boss]
        │ ○  0af4efc6 helper  forked  [boss]
        ○  159fb7c4 main  assistant calls helper({})  [boss]
        ○  98ca66d4 main  user: delegate
    "#]]
    .assert_eq(&rath::record::draw::graph(&import.session.lineage()));
}

#[test]
fn a_trajectory_that_another_program_changed_is_read_from_its_steps() {
    let mut session = Session::user("hello");
    session.push(Chunk::calls([Call::new("c", "write", r#"{"version": 1}"#)]));
    session.push(rath::chunk::ToolStarted::new("c"));
    session.push(
        rath::chunk::ToolResult::new("c", rath::chunk::Outcome::Ok, "x").with_tree(rath::chunk::Tree("t".into())),
    );
    let document: serde_json::Value = serde_json::from_slice(&write(&session).bytes).expect("JSON");
    let check = |edit: fn(&mut serde_json::Value), expected: Expect| {
        let mut document = document.clone();
        edit(&mut document);
        let import = read(document.to_string().as_bytes()).expect("a session");
        expected.assert_eq(&(log(&import.session) + &notes(&import.notes)));
        assert_eq!(import.session.tree(), session.tree());
    };
    // Written in another form, the document says the same.
    check(
        |document| document["steps"][0]["reasoning_effort"] = serde_json::Value::Null,
        expect![[r#"
        user: hello
        assistant calls write({"version": 1})
        tool started: c
        tool result: c ok: x
    "#]],
    );
    check(
        |document| document["steps"][0]["message"] = "hullo".into(),
        expect![[r#"
            user: hullo
            assistant calls write({"version":1})
            tool started: c
            tool result: c ok: x
            - changed: the document was changed after rath wrote it: it is read step by step, and forks and merges are one line of steps
        "#]],
    );
    check(
        |document| document["steps"][1]["tool_calls"][0]["arguments"]["version"] = 2.into(),
        expect![[r#"
            user: hello
            assistant calls write({"version":2})
            tool started: c
            tool result: c ok: x
            - changed: the document was changed after rath wrote it: it is read step by step, and forks and merges are one line of steps
        "#]],
    );
    check(
        |document| {
            let session = document["extra"]["rath"]["session"].as_str().expect("a text").replace("hello", "hullo");
            document["extra"]["rath"]["session"] = session.into();
        },
        expect![[r#"
            user: hello
            assistant calls write({"version":1})
            tool started: c
            tool result: c ok: x
            - damaged: the session in the document is damaged: it is read step by step, and forks and merges are one line of steps
        "#]],
    );
}

#[test]
fn a_known_cost_is_written() {
    let mut session = Session::user("hello");
    let provider = Some(Identity { provider: "openai".to_owned(), model: "m".to_owned() });
    let answer = |facts: Option<&str>| {
        Assistant::default()
            .with_provider(provider.clone())
            .with_facts(facts.map(|facts| Json::parse(facts).expect("JSON")))
    };
    session.push_with_usage(answer(Some(r#"{"cost_usd": 0.5}"#)), Usage::new(1_000_000, 0));
    session.push_with_usage(answer(None), Usage::new(1_000_000, 0));
    let costs = |bytes: &[u8]| {
        let document: serde_json::Value = serde_json::from_slice(bytes).expect("JSON");
        let cost = |step: usize| document["steps"][step]["metrics"]["cost_usd"].as_f64();
        (cost(1), cost(2), document["final_metrics"]["total_cost_usd"].as_f64())
    };
    assert_eq!(costs(&write(&session).bytes), (Some(0.5), None, Some(0.5)));
    let prices = Prices::none().set("openai:m", Price::new(2.0, 0.0));
    assert_eq!(costs(&write_priced(&session, &prices).bytes), (Some(0.5), Some(2.0), Some(2.5)));
}

#[test]
fn a_cost_that_a_trajectory_states_is_spent() {
    let step = |nth: u64, cost: &str| {
        format!(
            r#"{{"step_id": {nth}, "source": "agent", "message": "hi", "model_name": "house/m", "metrics": {cost}}}"#
        )
    };
    let steps = [
        step(1, r#"{"prompt_tokens": 10, "completion_tokens": 2, "cost_usd": 0.25}"#),
        step(2, r#"{"cost_usd": 0.5}"#),
        step(3, r#"{"prompt_tokens": 10, "completion_tokens": 2, "cost_usd": -1}"#),
    ];
    let document = format!(r#"{{"schema_version": "ATIF-v1.6", "agent": {{}}, "steps": [{}]}}"#, steps.join(","));
    let session = read(document.as_bytes()).expect("a session").session;
    let prices = Prices::none().set("house:m", Price::new(1_000_000.0, 0.0));
    assert_eq!(session.cost(&prices).total, Money::dollars(0.75 + 10.0));
    assert_eq!(session.cost(&Prices::none()).total, Money::dollars(0.75));
    assert_eq!(session.spending().total.recorded_cost, Money::dollars(0.75));
    assert_eq!(session.spending().total.calls, 3);
    let budget = Budget::new();
    let session = session.within(budget.clone());
    assert_eq!(budget.spent_money(&prices), Money::dollars(10.75));
    // It is given back on export, without a price list too.
    let again = read(&without_session(&write(&session).bytes)).expect("a session").session;
    assert_eq!(
        again.cost(&Prices::none()),
        rath::provider::Cost { head: again.head().map(|head| head.id()), ..session.cost(&Prices::none()) }
    );
}

/// Reads a trajectory of another program and compares steps, usage, next action and notes.
fn check(steps: &str, expected: Expect) {
    let document = format!(
        r#"{{"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {{"name": "other", "version": "1"}}, {steps}}}"#
    );
    let import = read(document.as_bytes()).expect(steps);
    let session = &import.session;
    let notes = notes(&import.notes);
    expected.assert_eq(&format!("{}{}, next: {}\n{notes}", log(session), session.usage(), next(session)));
}

#[test]
fn trajectories_of_others_are_read() {
    check(
        r#""steps": [
            {"step_id": 1, "source": "system", "message": "You are helpful."},
            {"step_id": 2, "source": "system", "message": "Be terse."},
            {"step_id": 3, "timestamp": "2026-01-01T00:00:00Z", "source": "user", "message": "What time is it?"},
            {"step_id": 4, "source": "agent", "model_name": "openai/gpt-5", "message": "Let me see.", "reasoning_content": "Hm.",
             "tool_calls": [{"tool_call_id": "c1", "function_name": "now", "arguments": {"b": 1, "a": 2}}],
             "observation": {"results": [{"source_call_id": "c1", "content": "noon"}]},
             "metrics": {"prompt_tokens": 10, "completion_tokens": 2, "cached_tokens": 4, "cost_usd": 0.01}},
            {"step_id": 5, "source": "agent", "message": "It is noon.", "metrics": {"prompt_tokens": 12, "completion_tokens": 3}}],
           "final_metrics": {"total_prompt_tokens": 30, "total_completion_tokens": 5, "total_cost_usd": 0.02}"#,
        expect![[r#"
            note: came from an ATIF trajectory: {"agent":"other","model":null…
            instructions: You are helpful. Be terse.
            user: What time is it?
            assistant: Let me see. calls now({"b": 1, "a": 2})  (10 in, 2 out)
            tool result: c1 ok: noon
            assistant: It is noon.  (12 in, 3 out)
            note: tokens that the trajectory counts and no step of it used  (8 in, 0 out)
            30 in, 5 out, next: done
            - changed: the trajectory, `final_metrics`: counts $0.01 more than the steps: this cost is assigned to the last answer
            - mismatch: the trajectory, `final_metrics`: counts more tokens than the steps: 8 in, 0 out
        "#]],
    );
    // Results without the id of a call, calls without a result, and system messages in the middle.
    check(
        r#""steps": [
            {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "look"},
             {"type": "image", "source": {"media_type": "image/png", "path": "images/a.png"}}]},
            {"step_id": 2, "source": "agent", "message": "", "tool_calls": [
                {"tool_call_id": "a", "function_name": "ls", "arguments": {}},
                {"tool_call_id": "b", "function_name": "ls", "arguments": {}}],
             "observation": {"results": [{"content": "x.txt"}]}},
            {"step_id": 3, "source": "agent", "message": "I type.", "observation": {"results": [{"content": "$ "}]}},
            {"step_id": 4, "source": "system", "message": "Context was compacted."},
            {"step_id": 5, "source": "agent", "message": "", "extra": {"x": 1}, "tool_calls": [
                {"tool_call_id": "d", "function_name": "finish", "arguments": {}}]}]"#,
        expect![[r#"
            note: came from an ATIF trajectory: {"agent":"other","model":null…
            user: look
            assistant calls ls({}), ls({})
            tool result: a ok: x.txt
            tool result: b unknown: no result was recorded
            assistant: I type.
            user: $
            note: Context was compacted.
            assistant calls finish({})
            tool started: d
            0 in, 0 out, next: run d Unknown
            - elsewhere: the trajectory, step 1, part 2: left out, because it is not in the document: images/a.png
            - in_doubt: call `d` (finish) has no result: it stays open, and whether it took effect is not known
            - in_doubt: 1 call without a result, though the agent continued: whether it took effect is not known
            - changed: 1 observation without a call read as a user message
            - changed: 1 system step in the middle kept as a note, which no model reads
            - left_out: 1 `extra` member left out
        "#]],
    );
    check(
        r#""steps": [
            {"step_id": 1, "source": "user", "message": "delegate"},
            {"step_id": 7, "source": "robot", "message": "beep"},
            {"step_id": 3, "source": "agent", "message": "", "tool_calls": [
                {"tool_call_id": "a", "function_name": "helper", "arguments": {}}],
             "observation": {"results": [{"source_call_id": "a", "subagent_trajectory_ref": [
                {"trajectory_id": "t1"}, {"trajectory_path": "elsewhere.json"}]}]}}],
           "subagent_trajectories": [{"schema_version": "ATIF-v1.7", "trajectory_id": "t1",
            "agent": {"name": "helper", "version": "2"}, "steps": [
                {"step_id": 1, "source": "agent", "message": "done", "metrics": {"prompt_tokens": 5, "completion_tokens": 1}}]}],
           "surprise": 1"#,
        expect![[r#"
            note: came from an ATIF trajectory: {"agent":"other","model":null…
            user: delegate
            note: beep
            assistant calls helper({})
            separate work
            tool result: a ok
            5 in, 1 out, next: ask
            - invalid: the trajectory, step 2: wanted 2 as `step_id`
            - invalid: the trajectory, step 2: wanted `user`, `agent` or `system` as `source`, found robot: kept as a note
            - elsewhere: the trajectory, step 3, `observation`, result 1, reference: the sub-agent's trajectory is not in this document: elsewhere.json
            - left_out: the trajectory: the member surprise is unknown and left out
        "#]],
    );
    // Of two with one id, the first is the one that is referred to, and the other is not lost.
    check(
        r#""steps": [{"step_id": 1, "source": "user", "message": "delegate",
             "observation": {"results": [{"subagent_trajectory_ref": [{"trajectory_id": "t"}]}]}}],
           "subagent_trajectories": [
            {"trajectory_id": "t", "agent": {"name": "one", "version": "1"}, "steps": [
                {"step_id": 1, "source": "agent", "message": "first", "metrics": {"prompt_tokens": 5, "completion_tokens": 1}}]},
            {"trajectory_id": "t", "agent": {"name": "two", "version": "1"}, "steps": [
                {"step_id": 1, "source": "agent", "message": "second", "metrics": {"prompt_tokens": 7, "completion_tokens": 2}}]}]"#,
        expect![[r#"
            note: came from an ATIF trajectory: {"agent":"other","model":null…
            user: delegate
            separate work
            separate work
            12 in, 3 out, next: ask
            - invalid: the trajectory, sub-agent 2: an earlier one has the same `trajectory_id`, so nothing can refer to it
            - changed: 1 sub-agent's trajectory kept at the end: nothing refers to it
        "#]],
    );
}

#[test]
fn other_documents_are_refused_with_a_hint() {
    let check =
        |text: &str, expected: Expect| expected.assert_eq(&format!("{:?}\n", read(text.as_bytes()).expect_err(text)));
    check(
        "",
        expect![[r#"
            wanted an ATIF trajectory: EOF while parsing a value at line 1 column 0
            hint: the document is cut off; it can only be read whole
        "#]],
    );
    check(
        "[]",
        expect![[r#"
            wanted an ATIF trajectory: invalid type: sequence, expected a map at line 1 column 0
            hint: a trajectory is one JSON object: {"schema_version": "ATIF-v1.8", "agent": {..}, "steps": [..]}
        "#]],
    );
    check(
        r#"{"steps": []}"#,
        expect![[r#"
            wanted an ATIF trajectory: there is no `schema_version` that begins with `ATIF-v`
            hint: a trajectory is one JSON object: {"schema_version": "ATIF-v1.8", "agent": {..}, "steps": [..]}
        "#]],
    );
    check(
        r#"{"schema_version": "ATIF-v2.0"}"#,
        expect![[r#"
            wanted a trajectory of version 1, found version 2.0
            hint: read it with a newer rath
        "#]],
    );
    check(
        r#"{"schema_version": "ATIF-v1.8", "steps": ["#,
        expect![[r#"
            wanted an ATIF trajectory: EOF while parsing a list at line 1 column 42
            hint: the document is cut off; it can only be read whole
        "#]],
    );
}

#[test]
fn damage_never_panics_and_a_cut_document_is_refused() {
    let (_, session) = all_sessions().into_iter().find(|(name, _)| *name == "work aside").expect("it is there");
    let document = write(&session).bytes;
    let whole = read(&document).expect("a session");
    let step = if rath_test_support::exhaustive() { 1 } else { 5 };
    for at in (0..document.len()).step_by(step) {
        if at + 1 < document.len() {
            assert!(read(&document[..at]).is_err(), "cut at {at}");
        }
        let mut flipped = document.clone();
        flipped[at] ^= 1 << (at % 8);
        let Ok(read) = read(&flipped) else { continue };
        assert!(read.session.chunk_count() <= whole.session.chunk_count() + 2);
    }
    // Nested deeper than the stack would allow.
    let mut deep = String::new();
    for _ in 0..2000 {
        deep.push_str(r#"{"schema_version":"ATIF-v1.8","trajectory_id":"t","steps":[],"subagent_trajectories":["#);
    }
    deep.push_str(&"]}".repeat(2000));
    assert!(read(deep.as_bytes()).expect("a session").notes.iter().any(|note| note.text.contains("too deep")));
}

/// Validates with the package atif 1.8.0: `pip install atif==1.8.0`.
#[test]
#[ignore = "needs Python with the package atif, named by RATH_PYTHON: see CONTRIBUTING.md"]
fn the_reference_models_accept_what_we_write() {
    let python = std::env::var_os("RATH_PYTHON").expect("RATH_PYTHON names a Python that has atif");
    let mut child = rath_test_support::program(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/interchange/validate_atif.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python");
    let mut pipe = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || {
        all_sessions().iter().for_each(|(_, session)| pipe.write_all(&write(session).bytes).expect("written"));
    });
    let output = child.wait_with_output().expect("Python ends");
    writer.join().expect("written");
    assert!(output.status.success());
    expect![[r#"
        ATIF-v1.8 rath None 0
          0 0 None 0
        ATIF-v1.8 rath None 0
          1 user 'hello' [] [] None
          0 0 None 1
        ATIF-v1.8 rath None 0
          1 system 'You are terse.' [] [] None
          2 user 'one\u2028two\u2029three\x85four\nfive "six" \\ \U0001f600 \ [] [] None
          3 agent 'hi' [] [] (10, 5, None)
          10 5 None 3
        ATIF-v1.8 rath gpt-5 1
          1 system 'You work.' [] [] None
          2 user 'look around' [] [] None
          3 agent 'Looking.' [('a', 'ls', {'z': 1, 'a': [1.5, 'x']}), ('b', 'pwd', {}), ('a', 'ls', {})] [('a', 'x.txt', 0), ('b', 'no', 0), ('a', '', 0)] (100, 20, 0.25)
          100 20 0.25 3
        ATIF-v1.8 rath gpt-5 1
          1 system 'You work.' [] [] None
          2 user 'look around' [] [] None
          3 agent 'Looking.' [('a', 'ls', {'z': 1, 'a': [1.5, 'x']}), ('b', 'pwd', {}), ('a', 'ls', {})] [('a', 'x.txt', 0), ('b', 'no', 0), ('a', '', 0)] (100, 20, 0.25)
          4 agent 'There is' [] [] (200, 2, None)
          300 22 0.25 4
        ATIF-v1.8 rath gpt-5 1
          1 system 'You work.' [] [] None
          2 user 'look around' [] [] None
          3 agent 'Looking.' [('a', 'ls', {'z': 1, 'a': [1.5, 'x']}), ('b', 'pwd', {}), ('a', 'ls', {})] [('a', 'x.txt', 0), ('b', 'no', 0), ('a', '', 0)] (100, 20, 0.25)
          4 agent '' [('new', 'rm', {}), ('begun', 'rm', {}), ('refused', 'rm', {}), ('allowed', 'rm', {})] [] None
          100 20 0.25 4
        ATIF-v1.8 rath None 0
          1 user 'word word word word word word word word word word word word [] [] None
          2 agent 'word word word word word word word word word word word word [] [] None
          0 0 None 2
        ATIF-v1.8 rath None 0
          1 system 'You are terse.' [] [] None
          2 user 'one\u2028two\u2029three\x85four\nfive "six" \\ \U0001f600 \ [] [] None
          3 agent 'hi' [] [] (10, 5, None)
          4 user 'and now?' [] [] None
          10 5 None 4
        ATIF-v1.8 rath None 0
          1 system 'You are terse.' [] [] None
          2 user 'one\u2028two\u2029three\x85four\nfive "six" \\ \U0001f600 \ [] [] None
          3 agent 'hi' [] [] (10, 5, None)
          10 5 None 3
        ATIF-v1.8 rath None 0
          1 system 'You are terse.' [] [] None
          2 user 'one\u2028two\u2029three\x85four\nfive "six" \\ \U0001f600 \ [] [] None
          3 agent 'hi' [] [] (10, 5, None)
          4 user 'meanwhile' [] [] None
          5 user 'and now?' [] [] None
          10 5 None 5
        ATIF-v1.8 rath None 0
          1 user ['text', 'image'] [] [] None
          0 0 None 1
        ATIF-v1.8 rath None 0
          1 user 'delegate' [] [] None
          2 agent '' [('c', 'helper', {})] [('c', 'done', 1)] None
          3 agent 'It is done.' [] [(None, None, 1)] (20, 4, None)
          20 4 None 3
            ATIF-v1.8 helper None 0
              1 user 'do it' [] [] None
              2 agent 'done' [] [(None, None, 1)] (5, 1, None)
              5 1 None 2
                ATIF-v1.8 inner None 0
                  1 agent 'deep' [] [] (1, 1, None)
                  1 1 None 1
            ATIF-v1.8 lost None 0
              1 agent 'or not' [] [] (7, 7, None)
              7 7 None 1
        ATIF-v1.8 rath None 0
          1 user 'delegate' [] [] None
          2 agent '' [('c', 'helper', {})] [('c', 'done', 1)] None
          3 agent 'It is done.' [] [(None, None, 1)] (20, 4, None)
          4 system 'They delegated.' [] [] None
          5 system 'long long long long long long long long long long long long [] [] None
          6 user 'and?' [] [] None
          20 4 None 6
            ATIF-v1.8 helper None 0
              1 user 'do it' [] [] None
              2 agent 'done' [] [(None, None, 1)] (5, 1, None)
              5 1 None 2
                ATIF-v1.8 inner None 0
                  1 agent 'deep' [] [] (1, 1, None)
                  1 1 None 1
            ATIF-v1.8 lost None 0
              1 agent 'or not' [] [] (7, 7, None)
              7 7 None 1
    "#]].assert_eq(&String::from_utf8_lossy(&output.stdout));
}
