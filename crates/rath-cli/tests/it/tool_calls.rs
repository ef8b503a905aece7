//! Calls of the built-in tools as a person sees them.

use std::path::Path;

use expect_test::{Expect, expect};
use rath::chunk::ToolSpec;
use rath::prelude::*;
use rath::store::{Create, Sqlite};
use rath::tool::{Output, Tools, builtin};
use serde_json::{Value, json};

use super::{block_on, rath};

/// Writes the calls of one answer, and an answer that ends the turn.
fn write_script(folder: &Path, calls: &[(&str, Value)]) {
    let calls: Vec<_> = calls.iter().map(|(name, arguments)| json!({"name": name, "arguments": arguments})).collect();
    let script = format!("{}\n{}\n", json!({ "calls": calls }), json!({"text": "Done."}));
    std::fs::write(folder.join("script.jsonl"), script).expect("written");
}

/// Compares the lines on stderr about calls and changes, and the exit code.
fn check(folder: &Path, args: &[&str], expected: Expect) {
    let ran = rath(folder, args);
    let told = String::from_utf8_lossy(&ran.stderr).replace(&folder.display().to_string(), "FOLDER");
    // Neither the time that a run took nor the id of its session is the same every time.
    let is_stable = |line: &&str| !line.starts_with("done in ") && !line.starts_with("saved as ");
    let told: String = told.lines().filter(is_stable).map(|line| format!("{line}\n")).collect();
    let told = crate::fixture::without_call_times(&told);
    let code = ran.status.code().expect("an exit code");
    expected.assert_eq(&format!("{told}exit {code}\n"));
}

#[test]
fn a_call_that_is_refused_is_shown_with_its_argument_and_the_reason() {
    let folder = rath_test_support::temp_dir();
    std::fs::write(folder.path().join("a.txt"), "one\n").expect("written");
    let patch = "*** Begin Patch\n*** Update File: a.txt\n-one\n+1\n*** Add File: b.txt\n+two\n*** End Patch";
    write_script(
        folder.path(),
        &[
            ("grep_search", json!({"query": "one"})),
            ("edit_file", json!({"file_path": "a.txt", "old": "one"})),
            ("read_file", json!({"file_path": "a.txt", "from_line": 0})),
            ("apply_patch", json!({"input": "*** Begin Patch\n*** Rename File: a.txt\n*** End Patch"})),
            ("search_files", json!({"regex": "("})),
            ("shell", json!({"cmd": "true", "timeout": 9000})),
            ("apply_patch", json!({"patch": patch})),
        ],
    );
    let args = ["run", "Go.", "--model", "script:script.jsonl", "--sandbox", "local:.", "--store", "memory:"];
    check(
        folder.path(),
        &args,
        expect![[r#"
            no sandbox: tools start in FOLDER and can do anything you can
            ✗ grep_search {"query":"one"}  unknown tool
              │ unknown tool `grep_search`; tools: `read_file`, `list_files`, `file_exists`, `search_files`, `write_file`, `edit_file`, `apply_patch`, `shell`, `run_code`, `check`, `commit`
            ✗ edit_file a.txt  bad arguments
              │ `new_string`: it is missing
            ✗ read_file a.txt  bad arguments
              │ `from_line`: wanted at least 1, found 0
            ✗ apply_patch {"input":"*** Begin Patch\n*** Rename File: a.txt\n*** End …  bad arguments
              │ line 2 of the patch: wanted `*** Update File: PATH`, `*** Add File: PATH`, `*** Delete File: PATH` or `*** End Patch`, found `*** Rename File: a.txt`
            ✗ search_files (  bad arguments
              │ `pattern`: regex parse error:
              │     (
              │     ^
              │ error: unclosed group
            ✗ shell true  bad arguments
              │ `timeout`: wanted at most 600, found 9000
            ✓ apply_patch a.txt, b.txt
              a.txt
              @@ -1,1 +1,1 @@
              -one
              +1
              b.txt
              new file
              @@ -0,0 +1,1 @@
              +two
            exit 0
        "#]],
    );
    assert_eq!(std::fs::read_to_string(folder.path().join("b.txt")).expect("a file"), "two\n");
}

/// A tool as an earlier version told a model of it. No call of it is made.
struct ToolOfSpec(ToolSpec);

impl Tool for ToolOfSpec {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    async fn call(&self, _: &ToolCx, _: Value) -> rath::Result<Output> {
        unreachable!("the script makes no call")
    }
}

#[test]
fn an_update_between_two_turns_is_one_line_and_no_stop() {
    let folder = rath_test_support::temp_dir();
    std::fs::write(folder.path().join("a.txt"), "one\n").expect("written");
    // All tools but one that came later, some with other arguments or another description.
    let schema = |names: &[&str]| {
        let properties: serde_json::Map<_, _> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        json!({"type": "object", "properties": properties})
    };
    let now = builtin::all();
    let specs = now.specs().filter(|spec| spec.name != "apply_patch").map(|spec| match spec.name.as_str() {
        "edit_file" => ToolSpec::new("edit_file", "Edits.", schema(&["path", "old", "new", "all"])),
        "write_file" => ToolSpec::new("write_file", "Writes.", schema(&["path", "text"])),
        _ => spec.clone(),
    });
    let tools = specs.fold(Tools::default(), |tools, spec| tools.tool(ToolOfSpec(spec)));
    let store =
        Sqlite::open(&folder.path().join(".rath/rath.db").display().to_string(), Create::IfMissing).expect("opened");
    let store = Store::new(store).expect("a store");
    let agent = Agent::new("Work.", &Script::of([r#"{"text": "Well."}"#]).expect("a script").into()).tools(tools);
    let session = block_on(async {
        let session = Session::user("Go.").to(Sandbox::local(folder.path())).record(&store).await?;
        agent.run(session).await
    });
    let id = session.expect("a run").id().short();
    block_on(store.close()).expect("closed");
    let scripts = rath_test_support::temp_dir();
    let edit = json!({"path": "a.txt", "old": "one", "new": "two"});
    write_script(scripts.path(), &[("edit_file", edit)]);
    let model = format!("script:{}", scripts.path().join("script.jsonl").display());
    let sandbox = format!("local:{}", folder.path().display());
    let store = "sqlite:.rath/rath.db";
    let args = ["resume", &id, "More.", "--model", &model, "--sandbox", &sandbox, "--store", store];
    check(
        folder.path(),
        &args,
        expect![[r#"
            rath was updated since the last turn; tools that changed: apply_patch, edit_file, write_file
            no sandbox: tools start in FOLDER and can do anything you can
            ✓ edit_file a.txt
              a.txt
              @@ -1,1 +1,1 @@
              -one
              +two
            exit 0
        "#]],
    );
    assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).expect("a file"), "two\n");
    // The model was told of the tools as they are now: the next turn has nothing to say of them.
    write_script(scripts.path(), &[("list_files", json!({}))]);
    check(
        folder.path(),
        &args,
        expect![[r#"
            nothing changed since the last turn
            no sandbox: tools start in FOLDER and can do anything you can
            ✓ list_files {}
            exit 0
        "#]],
    );
}
