//! Every path in a call of every tool that takes one, by an agent, in every kind of sandbox.

use rath::chunk::{Call, Outcome};
use rath::prelude::*;
use rath::tool::builtin;
use serde_json::{Value, json};

use super::*;
use crate::support::{block_on, script};

/// Every kind of sandbox that works in a directory of this machine.
const SANDBOXES: &[fn(&Path) -> Sandbox] =
    &[|directory| Sandbox::local(directory), |directory| Sandbox::isolated(directory)];

/// Every tool with a path. What changes files comes last.
fn calls(path: &str) -> Vec<Value> {
    let call = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments});
    vec![
        call("read_file", json!({"path": path})),
        call("read_file", json!({"path": path, "offset": 1, "limit": 5})),
        call("file_exists", json!({"path": path})),
        call("list_files", json!({"path": path, "depth": 5})),
        call("search_files", json!({"path": path, "pattern": "C.NARY|r..t:|P.TH="})),
        call("search_files", json!({"pattern": "C.NARY|r..t:|P.TH=", "context": 2})),
        call("list_files", json!({"depth": 64})),
        call(
            "shell",
            json!({"command": "cat secret file passwd sub/secret etc/passwd 2>/dev/null; true", "cwd": path}),
        ),
        call("edit_file", json!({"path": path, "old_string": "A", "new_string": "B", "replace_all": true})),
        call("edit_file", json!({"path": path, "old_string": "harmless", "new_string": "changed"})),
        call("write_file", json!({"path": path, "content": "written"})),
        call("apply_patch", json!({"input": patch(&format!("*** Update File: {path}\n-written\n+patched"))})),
    ]
}

/// Returns a patch with this section.
fn patch(section: &str) -> String {
    format!("*** Begin Patch\n{section}\n*** End Patch")
}

/// The tools whose arguments name no path.
const WITHOUT: [usize; 2] = [5, 6];

fn check(row: &Row, sandbox: fn(&Path) -> Sandbox) {
    let yard = Yard::new();
    row.2(&yard);
    let calls = calls(&path(&yard, row));
    let (many, place) = (calls.len(), sandbox(&yard.inside()));
    let provider = script([json!({ "calls": calls }).to_string(), r#"{"text": "done"}"#.to_owned()]);
    let around = yard.around();
    let name = format!("{:?} in {place:?}", row.0);
    let session = block_on(Agent::new("Go.", &provider).tools(builtin::all()).run(Session::user("go").to(place)));
    let session = session.expect("the run goes on after every call");
    let results = session.chunks().filter_map(|chunk| match chunk {
        Chunk::ToolResult(result) => Some((result.outcome, result.output.to_string())),
        _ => None,
    });
    let results: Vec<_> = results.collect();
    assert_eq!(results.len(), many, "{name}: every call has a result");
    for (nth, (outcome, said)) in results.iter().enumerate() {
        assert!(!leaks(said), "{name}: call {nth} says {said}");
        let (wanted, why) = match row.1 {
            Outside => (false, "is outside the workspace"),
            Own => (false, "is in the reserved directory `.rath`"),
            File => (!matches!(nth, 3 | 7 | 8), ""),
            Directory => (matches!(nth, 2 | 3 | 4 | 7), ""),
            Nothing => (matches!(nth, 2 | 10 | 11), ""),
            Odd => (nth == 2, ""),
            Never if nth == 2 => continue,
            Never => (false, ""),
        };
        let wanted = wanted || WITHOUT.contains(&nth);
        let outcome_wanted = if wanted { Outcome::Ok } else { Outcome::Failed };
        // Some paths cannot be named in a patch, which has no white space around one: it may name another.
        if nth == 11 && (row.0.trim() != row.0 || said.contains("of the patch")) {
            continue;
        }
        assert_eq!(*outcome, outcome_wanted, "{name}: call {nth} says {said}");
        assert!(wanted || said.contains(why), "{name}: call {nth} says {said}");
    }
    assert_eq!(yard.around(), around, "{name}: something changed");
}

#[test]
fn no_tool_reads_or_writes_outside_its_workspace() {
    for sandbox in SANDBOXES {
        ROWS.iter().for_each(|row| check(row, *sandbox));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_that_is_swapped_meanwhile_leads_a_tool_out() {
    use super::race::{SWAPS, Swapping};
    let times = rath_test_support::cases(60);
    for sandbox in SANDBOXES {
        for (one, other, path, prepare) in SWAPS {
            let yard = Yard::new();
            prepare(&yard);
            let call = Call::new("c", "race", "{}");
            let cx = ToolCx::new(Session::user("go").to(sandbox(&yard.inside())), call);
            let around = yard.around();
            let swapping = Swapping::start(&yard, one, other);
            let above = path.split_once('/').map_or("", |(above, _)| above);
            let mut done = 0;
            block_on(async {
                for nth in 0..times {
                    let (path, above) =
                        (json!({"path": path}), json!({"path": above, "depth": 9, "pattern": "C.NARY"}));
                    let text = json!({"path": path["path"], "content": "harmless", "old_string": "A", "new_string": "B", "replace_all": true});
                    let name = path["path"].as_str().expect("a path");
                    let update = format!("*** Update File: {name}\n-harmless\n+changed");
                    let delete = format!("*** Delete File: {name}");
                    let mut said = vec![
                        builtin::ReadFile.call(&cx, path.clone()).await,
                        builtin::ListFiles.call(&cx, above.clone()).await,
                        builtin::SearchFiles.call(&cx, above.clone()).await,
                        builtin::EditFile.call(&cx, text.clone()).await,
                        builtin::WriteFile.call(&cx, text).await,
                        builtin::ApplyPatch.call(&cx, json!({"input": patch(&update)})).await,
                        builtin::ApplyPatch.call(&cx, json!({"input": patch(&delete)})).await,
                    ];
                    if nth % 10 == 0 {
                        let list = json!({"command": "ls", "cwd": above["path"]});
                        said.push(builtin::Shell.call(&cx, list).await);
                    }
                    for said in said {
                        done += usize::from(said.is_ok());
                        let said = said.map_or_else(|error| format!("{error:?}"), |said| said.text);
                        assert!(!leaks(&said) && !said.contains("plain"), "{path}: {said}");
                    }
                }
            });
            assert!(swapping.swaps() > 0 && done > 0, "{path}: {} swaps, {done} done", swapping.swaps());
            drop(swapping);
            assert_eq!(yard.around(), around, "{path}");
        }
    }
}
