//! Patches of several files: all of their changes or none, decisions about them, and the record.

use std::sync::{Arc, Mutex};

use expect_test::expect;
use rath::policy::{Permission, Policy, Question, Reply, Rule};
use rath::prelude::*;
use rath::tool::builtin;
use rath::{Certainty, Origin};
use serde_json::{Value, json};

use crate::builtin::{check, workspace};
use crate::support::{block_on, script};

/// A call with a patch of these sections.
fn patch(sections: &str) -> (&'static str, Value) {
    ("apply_patch", json!({"input": format!("*** Begin Patch\n{sections}\n*** End Patch\n")}))
}

#[test]
fn a_patch_adds_changes_moves_and_deletes() {
    let folder = workspace(&[
        ("src/a.rs", "fn a() {\n    old();\n}\n"),
        ("crlf", "a\r\nb\r\n"),
        ("gone", "x\n"),
        ("dir/from", "1\n2\n"),
    ]);
    check(
        folder.path(),
        &[
            patch(
                "*** Update File: src/a.rs\n@@ fn a() {\n-    old();\n+    new();\n*** Add File: new/b.txt\n+one\n+two\n\
                 *** Delete File: gone\n*** Update File: dir/from\n*** Move to: to.txt\n@@\n-1\n+one\n 2\n\
                 *** Update File: crlf\n@@\n a\n-b\n+c\n+d",
            ),
            // Several sections about one file are applied in order.
            patch(
                "*** Update File: to.txt\n-one\n+1\n*** Update File: to.txt\n-2\n+two\n*** Delete File: new/b.txt\n*** Add File: new/b.txt\n+three",
            ),
            patch("*** Update File: to.txt\n*** Move to: moved.txt"),
        ],
        expect![[r#"
            Ok: changed src/a.rs: 1 hunk
            added new/b.txt: 2 lines
            deleted gone
            moved dir/from to to.txt: 1 hunk
            changed crlf: 1 hunk
            Ok: changed to.txt: 1 hunk
            changed to.txt: 1 hunk
            deleted new/b.txt
            added new/b.txt: 1 line
            Ok: moved to.txt to moved.txt
        "#]],
    );
    let left = |path: &str| std::fs::read_to_string(folder.path().join(path)).ok();
    let files = ["src/a.rs", "crlf", "gone", "dir/from", "dir", "to.txt", "moved.txt", "new/b.txt"].map(left);
    let files: Vec<_> = files.iter().map(Option::as_deref).collect();
    let expected = [
        Some("fn a() {\n    new();\n}\n"),
        Some("a\r\nc\r\nd\r\n"),
        None,
        None,
        None,
        None,
        Some("1\ntwo\n"),
        Some("three\n"),
    ];
    assert_eq!(files, expected);
}

#[test]
fn nothing_is_changed_unless_every_part_fits() {
    let folder = workspace(&[("a", "one\n"), ("b", "two\n"), ("dir/c", "three\n"), (".git/config", "x\n")]);
    std::fs::write(folder.path().join("latin"), b"gr\xfc\xdfe\n").expect("a file");
    std::os::unix::fs::symlink("dir", folder.path().join("link")).expect("a link");
    std::os::unix::fs::symlink("a", folder.path().join("filelink")).expect("a link");
    let first = "*** Update File: a\n-one\n+1\n*** Add File: new\n+new\n*** Delete File: b\n";
    let after = |rest: &str| patch(&format!("{first}{rest}"));
    check(
        folder.path(),
        &[
            after("*** Update File: dir/c\n-thre\n+3"),
            after("*** Update File: dri/c\n-three\n+3"),
            after("*** Delete File: none"),
            after("*** Add File: dir/c\n+3"),
            after("*** Add File: dir\n+3"),
            after("*** Update File: dir/c\n*** Move to: a"),
            after("*** Update File: latin\n-x\n+y"),
            after("*** Add File: ../out\n+x"),
            after("*** Add File: .rath/x\n+x"),
            after("*** Delete File: .git/config"),
            after("*** Update File: link/c\n-three\n+3\n*** Update File: dir/c\n-three\n+3"),
            after("*** Add File: a/below\n+x"),
            after("*** Delete File: filelink"),
            patch("*** Add File: new\n+new\n*** Delete File: filelink"),
            after("*** Update File: dir/c\nthree"),
        ],
        expect![[r#"
            Failed: failed: nothing was changed: cannot change `dir/c`: hunk 1 of 1: its lines are not in the file; line 1 is nearest:
            three
            read the file again, and give the lines as they are there
            Failed: failed: nothing was changed: cannot change `dri/c`: there is no such file; nearest: `dir/c`
            Failed: failed: nothing was changed: cannot delete `none`: there is no such file
            Failed: failed: nothing was changed: cannot add `dir/c`: it exists already; use `*** Update File`, or delete it first
            Failed: failed: nothing was changed: cannot read `dir`: it is a directory
            Failed: failed: nothing was changed: cannot move a file to `a`: it exists already; use `*** Update File`, or delete it first
            Failed: failed: nothing was changed: cannot change `latin`: it is not UTF-8 text
            Failed: failed: nothing was changed: `../out` is outside the workspace
            Failed: failed: nothing was changed: `.rath/x` is in the reserved directory `.rath`
            Failed: failed: nothing was changed: `.git/config` is in the directory `.git`
            Failed: failed: nothing was changed: `link/c` and `dir/c` are the same file; use one name
            Failed: failed: nothing was changed: cannot write `a/below`: it is not a directory
            Failed: failed: nothing was changed: `a` and `filelink` are the same file; use one name
            Failed: failed: nothing was changed: cannot remove `filelink`: it is not an ordinary file
            BadArguments: bad arguments: line 9 of the patch: a line of a hunk has to begin with a space, `-` or `+`, found `three`
        "#]],
    );
    let left = |path: &str| std::fs::read_to_string(folder.path().join(path)).ok();
    let files: Vec<_> = ["a", "b", "dir/c", "new", ".git/config"].map(left).into_iter().collect();
    let expected = [Some("one\n"), Some("two\n"), Some("three\n"), None, Some("x\n")].map(|it| it.map(str::to_owned));
    assert_eq!(files, expected);
}

#[test]
fn a_rule_about_one_of_its_files_decides_about_the_whole_patch() {
    let sections = "*** Update File: a\n-one\n+1\n*** Update File: b\n*** Move to: secret/b";
    let (name, arguments) = patch(sections);
    let run = |policy: Policy| {
        let folder = workspace(&[("a", "one\n"), ("b", "two\n"), (".env", "KEY=1\n")]);
        let call = json!({"calls": [{"name": name, "arguments": arguments}]}).to_string();
        let provider = script([call, r#"{"text": "done"}"#.to_owned()]);
        let agent = Agent::new("Go.", &provider).tools(builtin::all());
        let session = block_on(agent.run(Session::user("go").to(Sandbox::local(folder.path())).under(policy)));
        let session = session.expect("a run");
        let result = session.chunks().find_map(|chunk| match chunk {
            Chunk::ToolResult(result) => Some(result.output.to_string()),
            _ => None,
        });
        (std::fs::read_to_string(folder.path().join("a")).expect("a file"), result.expect("a result"))
    };
    let rule = Rule::new(Permission::Deny, "write secret/*").expect("a rule");
    let (a, told) = run(Policy::new(Mode::Full).rules([rule]));
    assert_eq!((a.as_str(), told.contains("write secret/*")), ("one\n", true), "{told}");
    // A person sees the diff.
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let questions = seen.clone();
    let (a, _) = run(Policy::new(Mode::Ask).ask_with(move |question: Question| {
        questions.lock().expect("no panic").extend(question.preview);
        async move { Reply::Deny { by: "Ann".to_owned(), reason: "no".to_owned() } }
    }));
    assert_eq!(a, "one\n");
    expect![[r#"
        moved b to secret/b
        --- a/a
        +++ b/a
        @@ -1,1 +1,1 @@
        -one
        +1
        --- a/b
        +++ /dev/null
        @@ -1,1 +0,0 @@
        -two
        --- /dev/null
        +++ b/secret/b
        @@ -0,0 +1,1 @@
        +two
    "#]]
    .assert_eq(&seen.lock().expect("no panic").concat());
}

#[test]
fn a_file_that_may_not_be_read_is_neither_shown_nor_changed() {
    let folder = workspace(&[("a", "one\n"), ("secret.txt", "canary\n")]);
    let (name, arguments) =
        patch("*** Update File: a\n-one\n+1\n*** Update File: secret.txt\n-canery\n+x\n*** Delete File: secret.txt");
    let call = json!({"calls": [{"name": name, "arguments": arguments}]}).to_string();
    let provider = script([call, r#"{"text": "done"}"#.to_owned()]);
    let agent = Agent::new("Go.", &provider).tools(builtin::all());
    let rule = Rule::new(Permission::Deny, "read secret.txt").expect("a rule");
    let policy = Policy::new(Mode::Full).rules([rule]);
    let session = block_on(agent.run(Session::user("go").to(Sandbox::local(folder.path())).under(policy)));
    let session = session.expect("a run");
    let told = session.chunks().find_map(|chunk| match chunk {
        Chunk::ToolResult(result) => Some(result.output.to_string()),
        _ => None,
    });
    let expected = "failed: nothing was changed: the user's rules do not allow to read `secret.txt`";
    assert_eq!(told.as_deref(), Some(expected));
    let left = |path: &str| std::fs::read_to_string(folder.path().join(path)).expect("a file");
    assert_eq!((left("a").as_str(), left("secret.txt").as_str()), ("one\n", "canary\n"));
}

#[test]
fn blame_names_a_patch_as_the_author_and_a_repetition_is_exact() {
    let folder = workspace(&[("a", "one\ntwo\n"), ("b", "x\n")]);
    let (name, arguments) =
        patch("*** Update File: a\n@@\n one\n-two\n+2\n*** Update File: ./b\n@@\n+y\n*** Add File: c\n+z");
    let call = json!({"calls": [{"name": name, "arguments": arguments}]}).to_string();
    let provider = script([call, r#"{"text": "done"}"#.to_owned()]);
    let agent = Agent::new("Go.", &provider).tools(builtin::all());
    let session = block_on(agent.run(Session::user("go").to(Sandbox::local(folder.path())))).expect("a run");
    let mut told = String::new();
    for path in ["a", "b", "c"] {
        let blame = block_on(session.blame(path)).expect("blamed").expect("a file");
        for line in blame.lines {
            let origin = match line.origin {
                Origin::Call(author) => {
                    assert_eq!(author.certainty, Certainty::By, "{path}");
                    author.call.tool.to_string()
                }
                other => format!("{other:?}"),
            };
            told.push_str(&format!("{path} {}: {origin}\n", line.text));
        }
    }
    expect![[r#"
        a one: Before
        a 2: apply_patch
        b x: Before
        b y: apply_patch
        c z: apply_patch
    "#]]
    .assert_eq(&told);
    let fresh = rath_test_support::temp_dir();
    let report =
        block_on(session.repeat(builtin::all(), Sandbox::local(fresh.path())).into_future()).expect("repeated");
    assert_eq!(report.to_string(), "exact: 2 requests, 1 call, 3 files");
}
