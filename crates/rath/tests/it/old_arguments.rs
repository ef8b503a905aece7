//! Sessions of earlier versions, in which calls give arguments under the names of then.

use std::sync::{Arc, Mutex};

use expect_test::expect;
use rath::chunk::ToolSpec;
use rath::policy::{Policy, Question, Reply};
use rath::prelude::*;
use rath::tool::builtin::{self, EditFile, ReadFile, WriteFile};
use rath::tool::{Nature, Output, Tools, Touch};
use rath::{Certainty, Origin};
use serde_json::{Map, Value, json};

use crate::replay::mute;
use crate::support::{block_on, folder, log, script};

/// A built-in tool as an earlier version had it: under other names of its parameters.
struct Earlier<T: Tool> {
    tool: T,
    /// The parameters of then, each with its name of now.
    names: &'static [(&'static str, &'static str)],
}

impl<T: Tool> Earlier<T> {
    fn now(&self, arguments: &Value) -> Value {
        let rename = |(old, now): &(&str, &str)| Some(((*now).to_owned(), arguments.get(*old)?.clone()));
        self.names.iter().filter_map(rename).collect::<Map<_, _>>().into()
    }
}

impl<T: Tool> Tool for Earlier<T> {
    fn spec(&self) -> ToolSpec {
        let now = self.tool.spec();
        let schema: Value = serde_json::from_str(now.parameters.as_str()).expect("JSON");
        let required = schema["required"].as_array().expect("a list");
        let properties: Map<_, _> =
            self.names.iter().map(|(old, now)| ((*old).to_owned(), schema["properties"][*now].clone())).collect();
        let is_required = |now: &str| required.iter().any(|it| it == now);
        let required: Vec<_> = self.names.iter().filter(|(_, now)| is_required(now)).map(|(old, _)| *old).collect();
        let schema =
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        ToolSpec::new(&now.name, "As it was.", schema)
    }

    fn nature(&self, arguments: &Value) -> Nature {
        self.tool.nature(&self.now(arguments))
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        self.tool.touches(&self.now(arguments))
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        self.tool.call(cx, self.now(&arguments)).await
    }
}

/// The tools of an earlier version.
fn earlier_tools() -> Tools {
    let read = Earlier { tool: ReadFile, names: &[("path", "path"), ("from_line", "offset"), ("lines", "limit")] };
    let write = Earlier { tool: WriteFile, names: &[("path", "path"), ("text", "content")] };
    let names = &[("path", "path"), ("old", "old_string"), ("new", "new_string"), ("all", "replace_all")];
    Tools::default().tool(read).tool(write).tool(Earlier { tool: EditFile, names })
}

/// The tools of now, in the same order.
fn tools_of_now() -> Tools {
    Tools::default().tool(ReadFile).tool(WriteFile).tool(EditFile).tool(builtin::ApplyPatch)
}

/// Every parameter that has another name now.
const CALLS: &str = r#"{"calls": [
    {"name": "write_file", "arguments": {"path": "a.txt", "text": "one\ntwo\ntwo\n"}},
    {"name": "edit_file", "arguments": {"path": "a.txt", "old": "two", "new": "2", "all": true}},
    {"name": "read_file", "arguments": {"path": "a.txt", "from_line": 2, "lines": 1}},
    {"name": "edit_file", "arguments": {"path": "a.txt", "old_string": "one", "new_string": "1"}}]}"#;

fn agent(tools: Tools, provider: &Provider) -> Agent {
    Agent::new("Work.", provider).tools(tools)
}

fn turns() -> Provider {
    script([CALLS.replace('\n', " ").as_str(), r#"{"text": "done"}"#])
}

/// Draws a session without the line that names a directory of this machine.
fn log_without_place(session: &Session) -> String {
    log(session).lines().filter(|line| !line.starts_with("sandbox: ")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_session_of_an_earlier_version_is_replayed_repeated_and_blamed() {
    let place = folder(&[]);
    let session = Session::user("go").to(Sandbox::local(place.path()));
    let session = block_on(agent(earlier_tools(), &turns()).run(session)).expect("a run");
    // The last call is in the form of now, which that version did not understand.
    expect![[r#"
        user: go
        files recorded: 4b825dc6  [agent]
        instructions: Work. (tools: read_file, write_file, edit_file)  [agent]
        assistant calls write_file({"path":"a.txt","text":"one\ntwo\ntwo\n"}), edit_file({"all":true,"new":"2","old":"two","path":"a.txt"}), read_file({"from_line":2,"lines":1,"path":"a.txt"}), edit_file({"new_string":"1","old_string":"one","path":"a.txt"})  [agent]  (401 in, 55 out)
        tool started: call_1_1  [agent]
        tool result: call_1_1 ok: wrote 12 bytes +a.txt  [agent]
        tool started: call_1_2  [agent]
        tool result: call_1_2 ok: replaced it 2 times, in lines 2 and 3 ~a.txt  [agent]
        tool started: call_1_3  [agent]
        tool result: call_1_3 ok: [line 2 of 3] 2  [agent]
        tool result: call_1_4 bad arguments: `old`: it is missing; `new`: it is missing; …  [agent]
        assistant: done  [agent]  (653 in, 1 out)
    "#]].assert_eq(&log_without_place(&session));
    let again = || rath_test_support::temp_dir();
    let fresh = again();
    let repeated = block_on(session.repeat(builtin::all(), Sandbox::local(fresh.path())).into_future());
    expect![[r#"
        exact: 2 requests, 3 calls, 2 files
        not made: 1 call (not understood when it was recorded)"#]]
    .assert_eq(&repeated.expect("repeated").to_string());
    for is_reexecuted in [false, true] {
        let fresh = again();
        let now = agent(tools_of_now(), &mute());
        let replay = session.replay(&now);
        let replay = if is_reexecuted { replay.reexecuting(Sandbox::local(fresh.path())) } else { replay };
        let report = block_on(replay.into_future()).expect("a replay");
        assert!(report.is_exact(), "{report}");
    }
    let blame = block_on(session.blame("a.txt")).expect("blamed").expect("a file");
    let by = |line: &rath::Line| match &line.origin {
        Origin::Call(author) => (author.call.tool.to_string(), author.certainty),
        other => panic!("{other:?}"),
    };
    let expected = [("write_file", Certainty::By), ("edit_file", Certainty::By), ("edit_file", Certainty::By)];
    assert_eq!(blame.lines.iter().map(by).collect::<Vec<_>>(), expected.map(|(tool, by)| (tool.to_owned(), by)));
}

#[test]
fn a_session_of_an_earlier_version_goes_on_without_a_question() {
    let place = folder(&[]);
    let store = block_on(Store::open("memory:")).expect("a store");
    let session = block_on(Session::user("go").to(Sandbox::local(place.path())).record(&store)).expect("a session");
    let first = agent(earlier_tools(), &script([r#"{"text": "ready"}"#]));
    let id = block_on(first.run(session)).expect("a run").id();
    let now = agent(tools_of_now(), &turns());
    let resumed = block_on(store.resume(id)).expect("stored").against(&now);
    assert_eq!(resumed.certificate().updated_tools(), ["apply_patch", "edit_file", "read_file", "write_file"]);
    let mut session = resumed.complete().expect("no difference");
    session.push(Chunk::user("go on"));
    // The model writes as it did before; the record has its words.
    let session = block_on(now.run(session)).expect("a run");
    expect![[r#"
        user: go
        files recorded: 4b825dc6  [agent]
        instructions: Work. (tools: read_file, write_file, edit_file)  [agent]
        assistant: ready  [agent]  (401 in, 2 out)
        user: go on
        instructions: Work. (tools: read_file, write_file, edit_file, apply_patch)  [agent]
        assistant calls write_file({"path":"a.txt","text":"one\ntwo\ntwo\n"}), edit_file({"all":true,"new":"2","old":"two","path":"a.txt"}), read_file({"from_line":2,"lines":1,"path":"a.txt"}), edit_file({"new_string":"1","old_string":"one","path":"a.txt"})  [agent]  (763 in, 55 out)
        tool started: call_1_1  [agent]
        tool result: call_1_1 ok: wrote 12 bytes +a.txt  [agent]
        tool started: call_1_2  [agent]
        tool result: call_1_2 ok: replaced it 2 times, in lines 2 and 3 ~a.txt  [agent]
        tool started: call_1_3  [agent]
        tool result: call_1_3 ok: [line 2 of 3] 2  [agent]
        tool started: call_1_4  [agent]
        tool result: call_1_4 ok: replaced it in line 1 ~a.txt  [agent]
        assistant: done  [agent]  (993 in, 1 out)
    "#]].assert_eq(&log_without_place(&session));
    drop(session);
    // A tool that the model knows and that is gone, or is another one, is still a difference.
    let resumed = block_on(store.resume(id)).expect("stored");
    let resumed = resumed.against(&agent(tools_of_now().only(|name| name != "read_file"), &mute()));
    assert_eq!(resumed.certificate().to_string(), "the tool `read_file` is missing");
    drop(resumed);
    let resumed = block_on(store.resume(id)).expect("stored").against(&agent(earlier_tools(), &mute()));
    assert!(resumed.certificate().updated_tools().is_empty(), "tools of a program are no update");
    assert_eq!(resumed.certificate().differences().len(), 4, "{}", resumed.certificate());
}

#[test]
fn a_call_in_an_earlier_form_is_shown_as_a_diff() {
    let place = folder(&[("a.txt", "one\n")]);
    let seen = Arc::<Mutex<Vec<_>>>::default();
    let questions = seen.clone();
    let policy = Policy::new(Mode::Ask).ask_with(move |question: Question| {
        questions.lock().expect("no panic").push((question.call, question.preview));
        async { Reply::Allow { by: "Ann".to_owned(), rules: Vec::new() } }
    });
    let calls = r#"{"calls": [
        {"name": "edit_file", "arguments": {"file_path": "a.txt", "old": "one", "new": "1"}},
        {"name": "write_file", "arguments": {"path": "b.txt", "text": "two\n"}}]}"#;
    let provider = script([calls.replace('\n', " ").as_str(), r#"{"text": "done"}"#]);
    let session = Session::user("go").to(Sandbox::local(place.path())).under(policy);
    block_on(agent(builtin::files(), &provider).run(session)).expect("a run");
    let seen = seen.lock().expect("no panic");
    let told: Vec<_> = seen
        .iter()
        .map(|(call, preview)| format!("{}\n{}", call.arguments, preview.as_deref().unwrap_or("none")))
        .collect();
    expect![[r#"
        {"file_path":"a.txt","new":"1","old":"one"}
        --- a/a.txt
        +++ b/a.txt
        @@ -1,1 +1,1 @@
        -one
        +1
        {"path":"b.txt","text":"two\n"}
        --- /dev/null
        +++ b/b.txt
        @@ -0,0 +1,1 @@
        +two
    "#]]
    .assert_eq(&told.join(""));
}
