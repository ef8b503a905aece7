//! Tools: their specifications, their calls, and the results that a model reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use expect_test::{Expect, expect};
use rath::chunk::ToolSpec;
use rath::chunk::{Call, ToolResult};
use rath::prelude::*;
use rath::tool::Output;
use rath::tool::builtin::{ListFiles, ReadFile, Shell, WriteFile};
use rath::tool::{Nature, Touch};
use rath::turn::Next;
use rath::{Text, Usage};
use serde_json::{Value, json};

use crate::support::{block_on, log, script};

/// Search the files for a pattern.
///
/// Gives one line for each match.
#[tool(read_only, reads(paths), time_limit = 1, output_limit = 64)]
async fn grep(
    cx: &ToolCx,
    /// What to look for.
    pattern: String,
    /// Where to look; everywhere if left out.
    paths: Option<Vec<String>>,
    /// How many lines to give at most.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 100))]
    most: u32,
) -> Result<String> {
    match pattern.as_str() {
        "slow" => {
            std::future::pending::<()>().await;
            unreachable!()
        }
        "panic" => panic!("at {}", file!()),
        "fail" => Err(Error::new(ErrorKind::Io, "the disk is gone").with_hint("buy another")),
        "long" => Ok("ä".repeat(100)),
        _ => Ok(format!("{pattern} in {paths:?}, at most {most}, for {}", cx.call().id)),
    }
}

fn ten() -> u32 {
    10
}

/// Say nothing.
#[tool]
async fn nothing() {}

/// Returns the result of every call, in order.
fn tool_results(session: &Session) -> Vec<&ToolResult> {
    let results = session.chunks().filter_map(|chunk| match chunk {
        Chunk::ToolResult(result) => Some(result),
        _ => None,
    });
    results.collect()
}

/// Returns the outcome and the output of every call, one line each.
fn outputs(session: &Session) -> String {
    tool_results(session).iter().map(|result| format!("{:?}: {}\n", result.outcome, result.output)).collect()
}

/// Runs one turn with these calls, and returns the session and the outputs.
fn results(agent: impl FnOnce(&Provider) -> Agent, calls: &[(&str, &str)]) -> (Session, String) {
    let calls: Vec<_> = calls.iter().map(|(name, arguments)| json!({"name": name, "arguments": arguments})).collect();
    let provider = script([json!({ "calls": calls }).to_string(), r#"{"text": "done"}"#.to_owned()]);
    let session = block_on(agent(&provider).run(Session::user("go"))).expect("a run");
    let text = outputs(&session);
    (session, text)
}

fn check(calls: &[(&str, &str)], expected: Expect) {
    let (_, text) = results(|provider| Agent::new("Look.", provider).tool(grep).tool(nothing), calls);
    expected.assert_eq(&text);
}

#[test]
fn the_specification_of_a_tool_is_that_of_its_function() {
    let ToolSpec { name, description, parameters, .. } = grep.spec();
    let parameters: Value = serde_json::from_str(parameters.as_str()).expect("a schema");
    expect![[r#"
        grep: Search the files for a pattern.

        Gives one line for each match.
        {
          "additionalProperties": false,
          "properties": {
            "most": {
              "default": 10,
              "description": "How many lines to give at most.",
              "format": "uint32",
              "maximum": 100,
              "minimum": 1,
              "type": "integer"
            },
            "paths": {
              "description": "Where to look; everywhere if left out.",
              "items": {
                "type": "string"
              },
              "type": [
                "array",
                "null"
              ]
            },
            "pattern": {
              "description": "What to look for.",
              "type": "string"
            }
          },
          "required": [
            "pattern"
          ],
          "type": "object"
        }
    "#]]
    .assert_eq(&format!("{name}: {description}\n{parameters:#}\n"));
    assert_eq!(grep.nature(&json!({})), Nature::ReadOnly);
    assert_eq!(grep.touches(&json!({"paths": ["a", "b"]})), [Touch::read("a"), Touch::read("b")]);
    assert_eq!(nothing.nature(&json!({})), Nature::Effectful);
}

#[test]
fn every_failure_of_a_call_has_its_own_outcome_and_the_run_continues() {
    check(
        &[
            ("grpe", "{}"),
            ("grep", r#"{"pattern": "x"#),
            ("grep", r#"{"pattern": 3, "paths": ["a", 7], "most": 1000, "limit": 5}"#),
            ("grep", "{}"),
            ("grep", r#"["x"]"#),
            ("grep", r#"{"pattern": "fail"}"#),
            ("grep", r#"{"pattern": "panic"}"#),
            ("grep", r#"{"pattern": "slow"}"#),
        ],
        expect![[r#"
            UnknownTool: unknown tool `grpe`; tools: `grep`, `nothing`
            BadJson: bad JSON: the arguments cannot be read: EOF while parsing a string at line 1 column 14
            BadArguments: bad arguments: `most`: wanted at most 100, found 1000; `paths[1]`: wanted a string, found 7; `pattern`: wanted a string, found 3; `limit`: there is no such field
            BadArguments: bad arguments: `pattern`: it is missing
            BadArguments: bad arguments: the arguments: wanted an object, found an array: ["x"]
            Failed: failed: the disk is gone
            Failed: failed: the tool panicked
            TimedOut: timed out: the limit is 1 s
        "#]],
    );
}

#[test]
fn arguments_that_fit_reach_the_function_as_they_are() {
    check(
        &[
            ("grep", r#"{"pattern": "x", "paths": ["a"], "most": 3}"#),
            ("grep", r#"{"pattern": "x", "paths": null}"#),
            ("nothing", ""),
            ("nothing", "{}"),
        ],
        expect![[r#"
            Ok: x in Some(["a"]), at most 3, for call_1_1
            Ok: x in None, at most 10, for call_1_2
            Ok: done
            Ok: done
        "#]],
    );
}

#[test]
fn a_long_output_is_cut_recorded_whole_and_can_be_read_further() {
    let digest = rath::Digest::compute("ä".repeat(100).as_bytes()).to_string();
    let read = format!(r#"{{"digest": "{digest}", "offset": 64}}"#);
    let provider = script([
        json!({"calls": [{"name": "grep", "arguments": {"pattern": "long"}}]}).to_string(),
        json!({"calls": [{"name": "read_output", "arguments": read}], "expect": {"contains": ["read_output", &digest]}})
            .to_string(),
        r#"{"text": "done"}"#.to_owned(),
    ]);
    let agent = Agent::new("Look.", &provider).tool(grep);
    let session = block_on(agent.run(Session::user("go"))).expect("a run");
    expect![[r#"
        user: go
        instructions: Look. (tools: grep)  [agent]
        assistant calls grep({"pattern":"long"})  [agent]  (175 in, 6 out)
        tool started: call_1_1  [agent]
        tool result: call_1_1 ok: ääääääääääääääääääääääääääääääää [cut after 64 of 200 bytes…  [agent]
        instructions: Look. (tools: grep, read_output)  [agent]
        assistant calls read_output({"digest": "58ddbe0b9a46e8af156e2ce98c895e1be84d8652b3120a0…)  [agent]  (380 in, 26 out)
        tool started: call_2_1  [agent]
        tool result: call_2_1 ok: äääääääääääääääääääääääääääääääääääääääääääääääääääääääääää…  [agent]
        assistant: done  [agent]  (486 in, 1 out)
    "#]].assert_eq(&log(&session));
    let whole = tool_results(&session)[0].whole.as_ref();
    assert_eq!(whole.expect("the whole output").as_str(), Some("ä".repeat(100).as_str()));
}

#[test]
fn a_long_output_survives_a_file_by_its_digest() {
    /// Say much.
    #[tool]
    async fn much() -> String {
        "0123456789".repeat(10_000)
    }
    let (session, _) = results(|provider| Agent::new("Say much.", provider).tool(much), &[("much", "")]);
    let folder = rath_test_support::temp_dir();
    let path = folder.path().join("much.rath");
    session.save_blocking(&path).expect("a file");
    let opened = Session::open_blocking(&path).expect("a file of ours");
    assert!(opened.report.is_whole());
    let whole = tool_results(&opened.session)[0].whole.as_ref();
    assert_eq!(whole.expect("the whole output").as_str().map(str::len), Some(100_000));
}

#[test]
fn what_a_model_reads_holds_no_clock_and_no_path_of_this_machine() {
    let folder = rath_test_support::temp_dir();
    let place = Sandbox::local(folder.path());
    let provider = script([
        json!({"calls": [
            {"name": "read_file", "arguments": {"path": "none.txt"}},
            {"name": "read_file", "arguments": {"path": "../../etc/passwd"}},
            {"name": "read_file", "arguments": {"path": "/etc/passwd"}},
            {"name": "list_files", "arguments": {"path": "."}},
            {"name": "write_file", "arguments": {"path": "a/b.txt", "content": "hello"}},
            {"name": "list_files", "arguments": {}},
            {"name": "read_file", "arguments": {"path": "a"}},
            {"name": "shell", "arguments": {"command": "cat a/b.txt; ls none; exit 3"}},
            {"name": "grep", "arguments": {"pattern": "panic"}},
            {"name": "grep", "arguments": {"pattern": "slow"}},
        ]})
        .to_string(),
        r#"{"text": "done"}"#.to_owned(),
    ]);
    let agent = Agent::new("Look.", &provider).tool(ReadFile).tool(WriteFile).tool(ListFiles).tool(Shell).tool(grep);
    let session = block_on(agent.run(Session::user("go").to(place))).expect("a run");
    let request = String::from_utf8(provider_request(&provider, &session)).expect("UTF-8");
    assert!(!request.contains(folder.path().to_str().expect("UTF-8")), "{request}");
    assert!(!request.contains(env!("CARGO_MANIFEST_DIR")), "{request}");
    expect![[r#"
        Failed: failed: cannot read `none.txt`: there is no such file
        Failed: failed: `../../etc/passwd` is outside the workspace
        Failed: failed: `/etc/passwd` is outside the workspace
        Ok: 
        Ok: wrote 5 bytes
        Ok: a/
        Failed: failed: cannot read `a`: it is a directory
        Failed: failed: exit code 3
        hello
        ls: cannot access 'none': No such file or directory

        Failed: failed: the tool panicked
        TimedOut: timed out: the limit is 1 s
    "#]]
    .assert_eq(&outputs(&session));
}

fn provider_request(provider: &Provider, session: &Session) -> Vec<u8> {
    let mut session = session.clone();
    session.push(Chunk::user("and?"));
    provider.request(&session).expect("a request").body().to_vec()
}

#[test]
fn a_read_sees_the_write_before_it_under_any_name_of_the_path() {
    let folder = rath_test_support::temp_dir();
    std::fs::create_dir(folder.path().join("real")).expect("a folder");
    #[cfg(unix)]
    std::os::unix::fs::symlink("real", folder.path().join("link")).expect("a link");
    let place = Sandbox::local(folder.path());
    for (written, read) in [("a", "a"), ("./a", "a"), ("a", "./x/../a"), ("link/a", "real/a"), ("real/a", "link/a")] {
        let (calls, wanted): (Vec<_>, Vec<_>) = (0..16)
            .map(|nth| {
                let text = format!("{written} {nth}");
                let write = json!({"name": "slow_write", "arguments": {"path": written, "text": text}});
                ([write, json!({"name": "read_file", "arguments": {"path": read}})], text)
            })
            .unzip();
        let provider = script([json!({ "calls": calls.concat() }).to_string(), r#"{"text": "done"}"#.to_owned()]);
        let agent = Agent::new("Work.", &provider).tool(slow_write).tool(ReadFile);
        let session = block_on(agent.run(Session::user("go").to(place.clone()))).expect("a run");
        let results = tool_results(&session);
        let read: Vec<_> = results.iter().skip(1).step_by(2).map(|result| result.output.to_string()).collect();
        assert_eq!(read, wanted);
    }
}

/// Write a file, after others had every chance to run first.
#[tool(writes(path))]
async fn slow_write(cx: &ToolCx, path: String, text: String) -> Result<String> {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    std::fs::write(cx.path(&path).await?, &text).map_err(|error| Error::new(ErrorKind::Io, error))?;
    Ok(String::new())
}

/// Counts how many of its calls run at once.
#[derive(Clone, Default)]
struct Busy {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Tool for Busy {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("busy", "Works.", json!({"type": "object", "properties": {"at": {"type": "string"}}}))
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        arguments["at"].as_str().map(Touch::write_name).into_iter().collect()
    }

    async fn call(&self, _: &ToolCx, arguments: Value) -> Result<Output> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        self.now.fetch_sub(1, Ordering::SeqCst);
        Output::from_value(&arguments)
    }
}

#[test]
fn many_calls_of_one_turn_run_concurrently_and_answer_in_order() {
    for count in [1, 8, 64, 512] {
        let calls: Vec<_> = (0..count).map(|nth| ("busy", format!(r#"{{"n": {nth}}}"#))).collect();
        let calls: Vec<_> = calls.iter().map(|(name, arguments)| (*name, arguments.as_str())).collect();
        let busy = Busy::default();
        let tool = busy.clone();
        let (_, told) =
            results(|provider| Agent::new("Work.", provider).tool(tool).max_concurrent_calls(count), &calls);
        let wanted: String = (0..count).map(|nth| format!("Ok: {{\"n\":{nth}}}\n")).collect();
        assert_eq!(told, wanted);
        assert_eq!(busy.most.load(Ordering::SeqCst), count);
    }
}

#[test]
fn concurrent_calls_are_limited_and_conflicting_calls_never_overlap() {
    let calls = vec![("busy", "{}"); 40];
    let busy = Busy::default();
    let tool = busy.clone();
    results(|provider| Agent::new("Work.", provider).tool(tool).max_concurrent_calls(7), &calls);
    assert_eq!(busy.most.load(Ordering::SeqCst), 7);

    let calls = vec![("busy", r#"{"at": "the desk"}"#); 40];
    let busy = Busy::default();
    let tool = busy.clone();
    results(|provider| Agent::new("Work.", provider).tool(tool), &calls);
    assert_eq!(busy.most.load(Ordering::SeqCst), 1);
}

#[test]
fn a_tool_with_an_invalid_specification_is_refused_before_the_model_is_asked() {
    struct Odd(ToolSpec);
    impl Tool for Odd {
        fn spec(&self) -> ToolSpec {
            self.0.clone()
        }
        async fn call(&self, _: &ToolCx, _: Value) -> Result<Output> {
            Ok(Output::default())
        }
    }
    let check = |specs: &[ToolSpec], expected: Expect| {
        let provider = script([r#"{"text": "never asked"}"#]);
        let agent = specs.iter().fold(Agent::new("Work.", &provider), |agent, spec| agent.tool(Odd(spec.clone())));
        let error = block_on(agent.run(Session::user("go"))).expect_err("no tool");
        assert_eq!(log(error.session().expect("the session")), "user: go\n");
        expected.assert_eq(&format!("{error:?}"));
    };
    check(
        &[ToolSpec::new("read file", "x", json!({}))],
        expect!["the tool `read file` is not valid: its name has to be 1 to 64 letters, digits, `_` and `-`"],
    );
    check(
        &[ToolSpec::new("x", "x", json!({"type": "nonsense"}))],
        expect![[
            r#"the tool `x` is not valid: its schema is not one: `/type`: wanted null, boolean, integer, number, string, array or object, found a string: "nonsense""#
        ]],
    );
    check(
        &[ToolSpec::new("x", "x", json!({})), ToolSpec::new("x", "y", json!({}))],
        expect!["two tools are called `x`"],
    );
}

/// Send money.
#[tool(approval)]
async fn pay(
    /// To whom.
    to: String,
) -> String {
    format!("paid {to}")
}

/// Look something up.
#[tool(read_only)]
async fn look() -> &'static str {
    "seen"
}

#[test]
fn two_calls_that_need_approval_need_two_decisions() {
    let provider = script([
        r#"{"calls": [{"name": "pay", "arguments": {"to": "Ann"}}, {"name": "look"}, {"name": "pay", "arguments": {"to": "Bob"}}]}"#,
        r#"{"text": "done"}"#,
    ]);
    let agent = Agent::new("Pay.", &provider).tool(pay).tool(look);
    let folder = rath_test_support::temp_dir();
    let path = folder.path().join("pay.rath");
    // Every interruption survives a restart of the process.
    let stop = |session: Session| {
        let error = block_on(agent.run(session)).expect_err("a decision is missing");
        assert_eq!(error.kind(), ErrorKind::Approval);
        let message = format!("{error:?}");
        error.into_session().expect("the session").save_blocking(&path).expect("a file");
        (Session::open_blocking(&path).expect("a file").session, message)
    };
    let (mut session, message) = stop(Session::user("go"));
    expect![[r#"
        waiting for approval: `call_1_1` (pay), `call_1_3` (pay)
        hint: decide on each with `session.approve(call)` or `session.deny(call, reason)`, and run again"#]]
    .assert_eq(&message);
    session.approve("call_1_1").expect("it waits");
    let (mut session, message) = stop(session);
    expect![[r#"
        waiting for approval: `call_1_3` (pay)
        hint: decide on each with `session.approve(call)` or `session.deny(call, reason)`, and run again"#]]
    .assert_eq(&message);
    session.deny("call_1_3", "Bob has enough").expect("it waits");
    let error = session.approve("call_1_9").expect_err("no such call");
    expect![[r#"
        no call `call_1_9` waits for a decision
        hint: calls without a result: `call_1_1` (pay), `call_1_2` (look), `call_1_3` (pay)"#]]
    .assert_eq(&format!("{error:?}"));
    let session = block_on(agent.run(session)).expect("a run");
    expect![[r#"
        user: go
        instructions: Pay. (tools: pay, look)  [agent]
        assistant calls pay({"to":"Ann"}), look({}), pay({"to":"Bob"})  [agent]  (134 in, 9 out)
        asked: call_1_1: the tool asks for approval  [agent]
        asked: call_1_3: the tool asks for approval  [agent]
        approved: call_1_1
        denied: call_1_3: Bob has enough
        tool started: call_1_1  [agent]
        tool started: call_1_2  [agent]
        tool result: call_1_1 ok: paid Ann  [agent]
        tool result: call_1_2 ok: seen  [agent]
        tool result: call_1_3 denied: Bob has enough  [agent]
        assistant: done  [agent]  (263 in, 1 out)
    "#]]
    .assert_eq(&log(&session));
}

#[test]
fn a_call_whose_end_is_unknown_runs_again_only_if_it_is_repeatable() {
    /// Store a value.
    #[tool(idempotent)]
    async fn store(cx: &ToolCx) -> String {
        format!("stored under a key of {} digits", cx.key().len())
    }
    /// Send a letter.
    #[tool]
    async fn send() -> &'static str {
        "sent"
    }
    let crashed = |tools: &[&str]| {
        let mut session = Session::user("go");
        let calls = tools.iter().map(|tool| Call::new(*tool, *tool, "{}"));
        session.push(Chunk::calls(calls));
        for tool in tools {
            session.push(rath::chunk::ToolStarted::new(*tool));
        }
        session
    };
    let agent = Agent::new("Go.", &script([r#"{"text": "done"}"#; 3])).tool(store).tool(send).tool(look);
    let session = block_on(agent.run(crashed(&["look", "store"]))).expect("both run again");
    expect![[r#"
        user: go
        assistant calls look({}), store({})
        tool started: look
        tool started: store
        instructions: Go. (tools: store, send, look)  [agent]
        tool started: look  [agent]
        tool started: store  [agent]
        tool result: look ok: seen  [agent]
        tool result: store ok: stored under a key of 64 digits  [agent]
        assistant: done  [agent]  (243 in, 1 out)
    "#]]
    .assert_eq(&log(&session));
    let error = block_on(agent.run(crashed(&["look", "send"]))).expect_err("a letter cannot be taken back");
    expect![[r#"
        may have taken effect, and its end is unknown: `send` (send)
        hint: decide on each with `session.approve(call)` (make it again), `session.skip(call)` or `session.give_result(call, result)`, and run again"#]]
    .assert_eq(&format!("{error:?}"));
    let mut session = error.into_session().expect("a session");
    session.approve("send").expect("it is in doubt");
    let session = block_on(agent.run(session)).expect("a run");
    expect![[r#"
        user: go
        assistant calls look({}), send({})
        tool started: look
        tool started: send
        instructions: Go. (tools: store, send, look)  [agent]
        approved: send
        tool started: look  [agent]
        tool started: send  [agent]
        tool result: look ok: seen  [agent]
        tool result: send ok: sent  [agent]
        assistant: done  [agent]  (235 in, 1 out)
    "#]]
    .assert_eq(&log(&session));
}

#[test]
fn a_sub_agent_returns_its_final_text_and_its_work_is_kept_aside_and_counted() {
    let provider = script([
        r#"{"agent": "agent", "calls": [{"name": "research", "arguments": {"task": "Find the river."}}, {"name": "research", "arguments": {"task": "Find the tower."}}], "usage": {"input": 10, "output": 1}}"#,
        r#"{"agent": "agent.research", "expect": {"contains": "Find the river."}, "calls": [{"name": "look"}], "usage": {"input": 20, "output": 2}}"#,
        r#"{"agent": "agent.research", "expect": {"contains": "seen"}, "text": "The Seine.", "usage": {"input": 40, "output": 4}}"#,
        r#"{"agent": "agent.research", "expect": {"contains": "Find the tower."}, "text": "The Eiffel Tower.", "usage": {"input": 30, "output": 3}}"#,
        r#"{"agent": "agent", "text": "Seine and Eiffel.", "usage": {"input": 50, "output": 5}}"#,
    ]);
    let researcher = Agent::new("You look things up.", &provider).tool(look).describe("Looks things up.");
    let agent = Agent::new("You answer.", &provider).delegate("research", researcher);
    let session = Session::user("What is in Paris?").within(Budget::new().tokens(10_000));
    let session = block_on(agent.run(session)).expect("a run");
    expect![[r#"
        ○  92631c10 main  assistant: Seine and Eiffel.  [agent]  (50 in, 5 out)
        ○  ab798916 main  tool result: call_1_2 ok: The Eiffel Tower.  [agent]
        ◆    c10db8db main  separate work  [agent]
        ├─╮
        │ ○  55918535 research~2  assistant: The Eiffel Tower.  [agent.research]  (30 in, 3 out)
        │ ○  18e816d5 research~2  instructions: You look things up. (tools: look)  [agent.research]
        │ ○  16a7e415 research~2  user: Find the tower.  [agent]
        │ ○  85c57149 research~2  forked  [agent]
        ○  829e24ba main  tool result: call_1_1 ok: The Seine.  [agent]
        ◆    888db384 main  separate work  [agent]
        ├─╮
        │ ○  52285ea8 research  assistant: The Seine.  [agent.research]  (40 in, 4 out)
        │ ○  bae19098 research  tool result: call_2_1 ok: seen  [agent.research]
        │ ○  c9461dd8 research  tool started: call_2_1  [agent.research]
        │ ○  115d3b9d research  assistant calls look({})  [agent.research]  (20 in, 2 out)
        │ ○  e6090a1a research  instructions: You look things up. (tools: look)  [agent.research]
        │ ○  84c0fec8 research  user: Find the river.  [agent]
        │ ○  6f27ea7c research  forked  [agent]
        ○  5f7d5240 main  tool started: call_1_2  [agent]
        ○  1b1e8c4d main  tool started: call_1_1  [agent]
        ○  09a6ecb6 main  assistant calls research({"task":"Find the river."}), research({"task":"Find the tower."})  [agent]  (10 in, 1 out)
        ○  1f92d3ff main  instructions: You answer. (tools: research)  [agent]
        ○  3d10699e main  user: What is in Paris?"#]].assert_eq(&session.lineage().to_string());
    assert_eq!(session.usage(), Usage::new(150, 15));
    assert_eq!(session.budget().expect("a budget").spent_tokens(), 165);
    expect![[r#"
        Agent(script:script, tools: research
          (research): Agent(script:script, tools: look)
        )"#]]
    .assert_eq(&agent.to_string());
    // The model of the outer agent reads nothing of it.
    let request = String::from_utf8(provider_request(&provider, &session)).expect("UTF-8");
    assert!(!request.contains("You look things up."), "{request}");
}

#[test]
fn a_handwritten_tool_can_run_an_agent_too() {
    struct Ask(Agent);
    impl Tool for Ask {
        fn spec(&self) -> ToolSpec {
            ToolSpec::new("ask", "Asks somebody.", json!({"type": "object"}))
        }
        async fn call(&self, cx: &ToolCx, _: Value) -> Result<Output> {
            let session = cx.run(&self.0, "What do you think?").await?;
            Ok(session.text().unwrap_or_default().into())
        }
    }
    let provider =
        script([r#"{"calls": [{"name": "ask"}]}"#, r#"{"text": "A lot."}"#, r#"{"text": "It thinks a lot."}"#]);
    let agent = Agent::new("Ask.", &provider).tool(Ask(Agent::new("Think.", &provider).named("thinker")));
    let session = block_on(agent.run(Session::user("go"))).expect("a run");
    assert!(log(&session).contains("ok: A lot."), "{}", log(&session));
    assert!(session.lineage().to_string().contains("[agent.thinker]"), "{}", session.lineage());
}

#[test]
fn a_sub_agent_that_fails_is_a_failed_call_and_what_it_did_is_kept() {
    let provider = script([
        r#"{"calls": [{"name": "clerk", "arguments": {"task": "Look."}}]}"#,
        r#"{"calls": [{"name": "look"}]}"#,
        r#"{"error": {"status": 400, "message": "no"}}"#,
        r#"{"text": "done"}"#,
    ]);
    let agent = Agent::new("Go.", &provider).delegate("clerk", Agent::new("You look.", &provider).tool(look));
    let session = block_on(agent.run(Session::user("go"))).expect("a run");
    assert!(log(&session).contains("call_1_1 failed: no (400)"), "{}", log(&session));
    assert!(session.lineage().to_string().contains("ok: seen"), "{}", session.lineage());
}

/// A tool whose agent has the same tool.
#[derive(Clone)]
struct Again(Provider);

impl Tool for Again {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("again", "Asks another.", json!({"type": "object"}))
    }

    async fn call(&self, cx: &ToolCx, _: Value) -> Result<Output> {
        let agent = Agent::new("Go on.", &self.0).tool(self.clone());
        let session = cx.run(&agent, "Go on.").await?;
        Ok(session.text().unwrap_or_default().into())
    }
}

#[test]
fn agents_that_call_themselves_come_to_an_end() {
    let check = |budget: Budget, deep: usize, expected: &str| {
        let calls = vec![r#"{"calls": [{"name": "again"}]}"#; deep + 1];
        let provider = script([calls, vec![r#"{"text": "enough"}"#; deep + 1]].concat());
        let agent = Agent::new("Go on.", &provider).tool(Again(provider.clone()));
        let session = block_on(agent.run(Session::user("go").within(budget))).expect("the others go on");
        assert!(session.lineage().to_string().contains(expected), "{}", session.lineage());
    };
    check(Budget::new().depth(5), 5, "the budget allows branches 5 forks deep");
    check(Budget::new(), 16, "tools are nested 16 deep already");
}

#[test]
fn the_model_fails_after_forty_results_and_nothing_is_lost() {
    let calls = json!({"calls": vec![json!({"name": "look"}); 40]}).to_string();
    let provider =
        script([calls, r#"{"error": {"status": 400, "message": "no"}}"#.to_owned(), r#"{"text": "done"}"#.to_owned()]);
    let agent = Agent::new("Go.", &provider).tool(look);
    let error = block_on(agent.run(Session::user("go"))).expect_err("the model fails");
    let session = error.into_session().expect("the session");
    let results = session.chunks().filter(|chunk| matches!(chunk, Chunk::ToolResult(_))).count();
    assert_eq!(results, 40);
    let session = block_on(agent.run(session)).expect("it goes on");
    assert_eq!(session.text(), Some("done"));
    assert_eq!(session.chunks().filter(|chunk| matches!(chunk, Chunk::ToolResult(_))).count(), 40);
}

#[test]
fn a_model_that_never_stops_is_stopped() {
    let agent = Agent::new("Go.", &script([r#"{"calls": [{"name": "look"}]}"#; 9])).tool(look).turns(3);
    let error = block_on(agent.run(Session::user("go"))).expect_err("three turns are allowed");
    expect![[r#"
        the model was asked 3 times in one run and is not done
        hint: run it again to continue, or allow more with `Agent::turns`"#]]
    .assert_eq(&format!("{error:?}"));
    assert_eq!(error.session().expect("the session").next(), Next::AskModel);
}

#[test]
fn a_call_with_an_unknown_end_whose_tool_is_gone_waits_for_a_decision_too() {
    let mut session = Session::user("go");
    session.push(Chunk::calls([Call::new("c", "launch", "{}")]));
    session.push(rath::chunk::ToolStarted::new("c"));
    let agent = Agent::new("Go.", &script([r#"{"text": "done"}"#]));
    let error = block_on(agent.run(session)).expect_err("the end is unknown");
    assert_eq!(error.kind(), ErrorKind::Approval);
}

#[test]
fn all_work_of_a_sub_agent_is_kept_aside_and_counted() {
    let turn = |text: &str| json!({"text": text, "usage": {"input": 100, "output": 10}}).to_string();
    let call = |name: &str| {
        json!({"calls": [{"name": name, "arguments": {"task": "t"}}], "usage": {"input": 1, "output": 1}}).to_string()
    };
    // It forks, works on two branches, merges them, and drops a third.
    let provider = script([call("help"), turn("a"), turn("b"), turn("c"), turn("d"), turn("done")]);
    let inner = Agent::new("Inner.", &provider);
    let forks = move |session: Session| {
        let inner = inner.clone();
        async move {
            inner.run(session.fork()).await?;
            let session = inner.run(session.fork()).await?;
            let branches = [Branch::new("x", &inner as &dyn Run), Branch::new("y", &inner)];
            let mut asked = session.clone();
            asked.push(Chunk::user("and?"));
            fork_join(&asked, branches).await.merge().await
        }
    };
    let agent = Agent::new("Outer.", &provider).delegate("help", forks);
    let session = Session::user("go").within(Budget::new());
    let session = block_on(agent.run(session)).expect("a run");
    assert_eq!(session.usage().total(), session.budget().expect("a budget").spent_tokens(), "{}", session.lineage());

    // Its time is over while it waits for a sub-agent of its own.
    /// Wait for ever.
    #[tool(read_only)]
    async fn for_ever() {
        std::future::pending::<()>().await;
    }
    struct Limited(Agent);
    impl Tool for Limited {
        fn spec(&self) -> ToolSpec {
            ToolSpec::new("limited", "Has little time.", json!({"type": "object"}))
        }
        fn time_limit(&self) -> std::time::Duration {
            std::time::Duration::from_millis(200)
        }
        async fn call(&self, cx: &ToolCx, _: Value) -> Result<Output> {
            cx.run(&self.0, "t").await?;
            Ok(Output::default())
        }
    }
    let waits = r#"{"calls": [{"name": "for_ever"}], "usage": {"input": 1000, "output": 1}}"#.to_owned();
    let provider = script([call("limited"), call("deep"), waits, turn("done")]);
    let deep = Agent::new("Deep.", &provider).tool(for_ever);
    let middle = Agent::new("Middle.", &provider).delegate("deep", deep);
    let agent = Agent::new("Outer.", &provider).tool(Limited(middle));
    let check = |session: &Session| {
        let spent = session.budget().expect("a budget").spent_tokens();
        assert_eq!(session.usage().total(), spent, "{}", session.lineage());
    };
    let session = block_on(agent.run(Session::user("go").within(Budget::new()))).expect("a run");
    assert!(log(&session).contains("timed out"), "{}", log(&session));
    check(&session);

    // After cancellation the work of both sub-agents is on the record.
    let provider = script([
        json!({"calls": [{"name": "help", "arguments": {"task": "1"}}, {"name": "help", "arguments": {"task": "2"}}]})
            .to_string(),
        r#"{"calls": [{"name": "for_ever"}]}"#.to_owned(),
        r#"{"calls": [{"name": "for_ever"}]}"#.to_owned(),
    ]);
    let agent = Agent::new("Outer.", &provider).delegate("help", Agent::new("Help.", &provider).tool(for_ever));
    let cancel = Cancel::new();
    let error = block_on(async {
        let stop = async {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        };
        let run = agent.run(Session::user("go").within(Budget::new()).until(&cancel));
        futures_util::future::join(run, stop).await.0.expect_err("it is cancelled")
    });
    let session = error.into_session().expect("a session");
    check(&session);
    assert_eq!(session.lineage().to_string().matches("interrupted: the run was cancelled").count(), 3);
}

#[test]
fn no_call_starts_after_cancellation() {
    struct Stop(Cancel);
    impl Tool for Stop {
        fn spec(&self) -> ToolSpec {
            ToolSpec::new("stop", "Stops.", json!({"type": "object"}))
        }
        async fn call(&self, _: &ToolCx, _: Value) -> Result<Output> {
            self.0.cancel();
            Ok("stopped".into())
        }
    }
    let cancel = Cancel::new();
    let provider =
        script([r#"{"calls": [{"name": "stop"}, {"name": "look"}, {"name": "pay", "arguments": {"to": "Ann"}}]}"#]);
    let agent = Agent::new("Go.", &provider).tool(Stop(cancel.clone())).tool(look).tool(pay).max_concurrent_calls(1);
    let mut session = Session::user("go").until(&cancel);
    session = block_on(agent.run(session)).expect_err("a decision is missing").into_session().expect("a session");
    session.approve("call_1_3").expect("it waits");
    let session = block_on(agent.run(session)).expect_err("it is cancelled").into_session().expect("a session");
    let Next::RunTools(open) = session.next() else { panic!("{}", session.lineage()) };
    let open: Vec<_> = open.iter().map(|pending| format!("{} {:?}", pending.call.tool, pending.progress)).collect();
    assert_eq!(open, ["look New", "pay Approved"]);
}

#[test]
fn an_empty_answer_is_no_answer() {
    let provider = script([
        r#"{"calls": [{"name": "help", "arguments": {"task": "t"}}]}"#,
        r#"{"text": "Let me see.", "calls": [{"name": "look"}]}"#,
        r#"{"text": ""}"#,
        r#"{"text": ""}"#,
        r#"{"text": "done"}"#,
    ]);
    let agent = Agent::new("Go.", &provider).delegate("help", Agent::new("Help.", &provider).tool(look));
    let session = block_on(agent.run(Session::user("go"))).expect("a run");
    let told = "call_1_1 failed: the model gave an empty answer";
    assert!(log(&session).contains(told), "{}", log(&session));
}

#[test]
fn an_answer_that_was_cut_off_and_goes_on_is_given_back_whole() {
    let provider = script([
        r#"{"calls": [{"name": "help", "arguments": {"task": "t"}}]}"#,
        r#"{"text": "It is su", "finish": "length"}"#,
        r#"{"text": "nny.", "usage": {"input": 1, "output": 1}}"#,
        r#"{"text": "done"}"#,
    ]);
    let agent = Agent::new("Go.", &provider).delegate("help", Agent::new("Help.", &provider));
    let session = block_on(agent.run(Session::user("go"))).expect("a run");
    assert!(log(&session).contains("It is sunny."), "{}", log(&session));
}

#[cfg(unix)]
#[test]
fn a_command_ends_when_it_ends_and_a_pipe_is_no_file() {
    let folder = rath_test_support::temp_dir();
    let place = Sandbox::local(folder.path());
    let provider = script([
        json!({"calls": [
            {"name": "shell", "arguments": {"command": "mkfifo pipe; sleep 1000 & echo started"}},
            {"name": "read_file", "arguments": {"path": "pipe"}},
            {"name": "write_file", "arguments": {"path": "pipe", "content": "x"}},
            {"name": "shell", "arguments": {"command": "head -c 20000000 /dev/zero | tr '\\0' x; echo end"}},
        ]})
        .to_string(),
        r#"{"text": "done"}"#.to_owned(),
    ]);
    let agent = Agent::new("Go.", &provider).tool(Shell).tool(ReadFile).tool(WriteFile);
    let session = block_on(agent.run(Session::user("go").to(place))).expect("a run");
    let results = tool_results(&session);
    assert_eq!(results[0].output.as_str(), Some("started\n"));
    assert_eq!(results[1].output.as_str(), Some("failed: cannot read `pipe`: it is not an ordinary file"));
    assert_eq!(results[2].output.as_str(), Some("failed: cannot write `pipe`: it is not an ordinary file"));
    let whole = results[3].whole.as_ref().and_then(Text::as_str).expect("a long output");
    let (beginning, end) = whole.split_once(" bytes are left out here; the whole is ").expect("something is left out");
    assert!(beginning.starts_with("xxx") && end.ends_with("xxxend\n"), "{}", &whole[whole.len() - 99..]);
}

#[test]
fn the_return_type_of_a_function_decides_its_output() {
    type Outcome<T> = std::result::Result<T, String>;
    /// Fails under another name.
    #[tool]
    async fn aliased() -> Outcome<u32> {
        Err("it broke".to_owned())
    }
    /// Finds nothing.
    #[tool]
    async fn none() -> Option<u32> {
        None
    }
    /// Does it.
    #[tool]
    async fn unit() -> Result<()> {
        Ok(())
    }
    /// Says it.
    #[tool]
    async fn output() -> Result<Output> {
        Ok("said".into())
    }
    /// Has a parameter of its own name.
    #[tool(writes(r#type))]
    async fn query(query: i64, r#type: Option<String>) -> String {
        format!("{query} {type:?}")
    }
    /// Panics before there is anything to wait for.
    struct Early;
    impl Tool for Early {
        fn spec(&self) -> ToolSpec {
            ToolSpec::new("early", "Panics.", json!({"type": "object"}))
        }
        #[allow(clippy::manual_async_fn)]
        fn call(&self, _: &ToolCx, _: Value) -> impl Future<Output = Result<Output>> + Send {
            if self.output_limit() > 0 {
                panic!("early");
            }
            async { Ok(Output::default()) }
        }
    }
    let (_, told) = results(
        |provider| Agent::new("Go.", provider).tool(aliased).tool(none).tool(unit).tool(output).tool(query).tool(Early),
        &[
            ("aliased", ""),
            ("none", "null"),
            ("unit", "{}"),
            ("output", "{}"),
            ("query", r#"{"query": 5.0, "type": "a"}"#),
            ("query", r#"{"query": 1e3}"#),
            ("query", r#"{"query": 18446744073709551616}"#),
            ("early", "{}"),
        ],
    );
    expect![[r#"
        Failed: failed: it broke
        Ok: null
        Ok: done
        Ok: said
        Ok: 5 Some("a")
        Ok: 1000 None
        BadArguments: bad arguments: invalid type: floating point `1.8446744073709552e+19`, expected i64
        Failed: failed: the tool panicked
    "#]]
    .assert_eq(&told);
    assert_eq!(query.touches(&json!({"query": 1, "type": "a"})), [Touch::write("a")]);
}

/// Another name for the crate, as a dependency that was renamed or re-exported has.
mod facade {
    pub(crate) use rath as agents;
}

/// Counts the words of a text.
#[tool(crate = crate::tool::facade::agents, read_only, reads(path))]
async fn count_renamed(path: String) -> usize {
    path.split_whitespace().count()
}

#[test]
fn the_macros_take_the_path_of_the_crate() {
    #[derive(Module)]
    #[module(crate = crate::tool::facade::agents)]
    struct Holder {
        agent: Agent,
    }
    let provider =
        script([r#"{"calls": [{"name": "count_renamed", "arguments": {"path": "a b"}}]}"#, r#"{"text": "2"}"#]);
    let holder = Holder { agent: Agent::new("Count.", &provider).tool(count_renamed) };
    assert_eq!(holder.tree(), "Holder(\n  (agent): Agent(script:script, tools: count_renamed)\n)");
    let session = block_on(holder.agent.run(Session::user("go"))).expect("a run");
    assert_eq!(outputs(&session), "Ok: 2\n");
}

/// Ids of calls need not be unique: the start of the second call must not be taken for one more of the first.
#[test]
fn of_two_calls_with_one_id_each_has_its_own_start() {
    /// Store a value.
    #[tool(idempotent)]
    async fn store() -> &'static str {
        "stored"
    }
    let mut session = Session::user("go");
    session.push(Chunk::calls([Call::new("c", "store", "{}"), Call::new("c", "pay", r#"{"to": "Ann"}"#)]));
    session.push(rath::chunk::ToolStarted::new("c"));
    let agent = Agent::new("Go.", &script([r#"{"text": "done"}"#])).tool(store).tool(pay);
    // The first is made again once the other is decided.
    let error = block_on(agent.run(session)).expect_err("the second waits for approval");
    let mut session = error.into_session().expect("the session so far");
    session.approve("c").expect("it waits");
    let session = block_on(agent.run(session)).expect("a run");
    let log = log(&session);
    assert_eq!(log.matches("tool started: c").count(), 2, "{log}");
    assert!(log.contains("c ok: stored") && log.contains("c ok: paid Ann"), "{log}");
}
