//! The program, as a person types it.

use std::path::Path;
use std::process::Command;

use expect_test::{Expect, expect};
use rath::prelude::*;

/// Runs `rath` in `folder` and compares what it printed on both streams and how it ended.
fn check(folder: &Path, args: &[&str], expected: Expect) {
    let output = Command::new(env!("CARGO_BIN_EXE_rath")).args(args).current_dir(folder).output().expect("rath runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let err: String = err.lines().map(|line| format!("! {line}\n")).collect();
    let code = output.status.code().expect("an exit code");
    expected.assert_eq(&format!("{out}{err}exit {code}\n"));
}

/// A folder with a session in it that was forked and merged.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut session = Session::user("Which river runs through Paris?");
    session.push_with_usage(Chunk::assistant("The Seine."), Usage::new(14, 4));
    let mut poet = session.fork_named("poet");
    poet.push(Chunk::user("Say it\nin verse."));
    let mut critic = session.fork();
    let call = Call { id: "c1".into(), tool: "search".into(), arguments: r#"{"q":"Seine"}"#.into() };
    critic.push(Assistant { calls: vec![call], finish: Finish::Calls, ..Assistant::default() });
    critic.push(ToolResult {
        call: "c1".into(),
        outcome: Outcome::Ok,
        output: "a river \u{1b}[31m".into(),
        effects: vec![],
        tree: None,
    });
    poet.merge(&critic).expect("nothing is open").save(folder.path().join("s.rath")).expect("saved");
    folder
}

#[test]
fn log_shows_what_happened() {
    let folder = folder();
    check(
        folder.path(),
        &["log", "s.rath"],
        expect![[r#"
        ◆    ceef85e3 b3  merged
        ├─╮
        │ ○  79dc84a8 b2  tool result: c1 ok: a river \u{1b}[31m
        │ ○  f55f31e8 b2  assistant calls search({"q":"Seine"})
        │ ○  b48ca179 b2  forked
        ○ │  522fb461 poet  user: Say it in verse.
        ○ │  52e458d3 poet  forked
        ├─╯
        ○  a6367fdb main  assistant: The Seine.  (14 in, 4 out)
        ○  3c77e466 main  user: Which river runs through Paris?
        exit 0
    "#]],
    );
    check(
        folder.path(),
        &["log", "s.rath", "-n", "2"],
        expect![[r#"
        ◆    ceef85e3 b3  merged
        ├─╮
        │ ○  79dc84a8 b2  tool result: c1 ok: a river \u{1b}[31m
        exit 0
    "#]],
    );
}

#[test]
fn show_shows_a_step() {
    let folder = folder();
    let shown = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_rath")).args(args).current_dir(folder.path()).output();
        String::from_utf8(output.expect("rath runs").stdout).expect("UTF-8")
    };
    // Ids of branches and times differ from run to run.
    let without = |text: &str, fields: [&str; 2]| {
        text.lines().filter(|line| !fields.iter().any(|field| line.starts_with(field))).collect::<Vec<_>>().join("\n")
    };
    let step = |says: &str| {
        let log = shown(&["log", "s.rath"]);
        let line = log.lines().find(|line| line.contains(says)).expect("a step").to_owned();
        line.split_whitespace().find(|word| word.len() == 8).expect("an id").to_owned()
    };
    expect![[r#"
        step     522fb46155f405d155c6c85478a5077cd9e28afce68f3db3bd8125ebbfa0fc62
        kind     user
        parent   52e458d3

        Say it
        in verse."#]]
    .assert_eq(&without(&shown(&["show", "s.rath", &step("verse")]), ["branch", "at "]));
    expect![[r#"
        step     f55f31e8589942e8c6b30b60cacbe072a768a732a13ad45a21d127f435cff6ad
        kind     assistant
        parent   b48ca179

        call c1: search {"q":"Seine"}"#]]
    .assert_eq(&without(&shown(&["show", "s.rath", &step("calls")]), ["branch", "at "]));
    expect![[r#"
        step     79dc84a854fe75414b1c9ae5b95cb3e1da2b53184ffcae49e5ba04990f110e87
        kind     tool_result
        parent   f55f31e8

        call c1: ok
        a river \u{1b}[31m"#]]
    .assert_eq(&without(&shown(&["show", "s.rath", &step("tool result")]), ["branch", "at "]));
    let json: serde_json::Value = serde_json::from_str(&shown(&["show", "s.rath", "head", "--json"])).expect("JSON");
    assert_eq!(json["chunk"]["kind"], "merged");
    assert_eq!(json["parents"].as_array().map(Vec::len), Some(2));
    assert!(json["at"].as_str().is_some_and(|at| at.ends_with('Z')));
}

#[test]
fn verify_names_what_is_damaged() {
    let folder = folder();
    let path = folder.path().join("s.rath");
    let whole = std::fs::read(&path).expect("read");
    let verified = |bytes: &[u8], args: &[&str]| {
        std::fs::write(&path, bytes).expect("written");
        let output = Command::new(env!("CARGO_BIN_EXE_rath")).args(args).current_dir(folder.path()).output();
        let output = output.expect("rath runs");
        let out = String::from_utf8(output.stdout).expect("UTF-8");
        (out, output.status.code().expect("an exit code"))
    };
    let (out, code) = verified(&whole, &["verify", "s.rath"]);
    assert_eq!((out, code), (format!("whole: 10 rows, 8 steps, {} bytes\n", whole.len()), 0));

    let mut flipped = whole.clone();
    let at = String::from_utf8_lossy(&whole).find("Seine.").expect("the answer");
    flipped[at] ^= 1;
    let (out, code) = verified(&flipped, &["verify", "s.rath"]);
    let row = whole[..at].iter().filter(|byte| **byte == b'\n').count();
    assert!(out.contains(&format!("row {row}: the row was changed: its seal does not fit its bytes\n")), "{out}");
    assert!(out.lines().last().is_some_and(|last| last.starts_with("damaged: 9 rows, 7 steps")), "{out}");
    assert_eq!(code, 3);
    let (out, code) = verified(&flipped, &["log", "s.rath"]);
    assert!(out.contains("Which river") && out.contains("verse"), "the rest is shown: {out}");
    assert_eq!(code, 3);

    let (out, code) = verified(&whole[..whole.len() - 60], &["verify", "s.rath"]);
    assert!(out.starts_with("cut off "), "{out}");
    assert_eq!(code, 3);
    // A graph is checked as one.
    let (graph, _) = verified(&whole, &["export", "s.rath"]);
    assert_eq!(verified(graph.as_bytes(), &["verify", "s.rath"]), ("whole: a graph of 4 sessions\n".to_owned(), 0));
    let missing: String = graph.lines().skip(1).map(|line| format!("{line}\n")).collect();
    let (out, code) = verified(missing.as_bytes(), &["verify", "s.rath"]);
    assert!(out.contains(" is missing\n"), "{out}");
    assert_eq!(code, 3);
}

#[test]
fn every_json_line_is_json() {
    let folder = folder();
    for args in [&["log", "s.rath", "--json"][..], &["verify", "s.rath", "--json"], &["export", "s.rath"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_rath")).args(args).current_dir(folder.path()).output();
        let output = String::from_utf8(output.expect("rath runs").stdout).expect("UTF-8");
        assert!(!output.is_empty());
        for line in output.lines() {
            serde_json::from_str::<serde_json::Value>(line).expect("JSON");
        }
    }
}

#[test]
fn holding_it_wrong_is_told_kindly() {
    let folder = folder();
    check(
        folder.path(),
        &["log", "none.rath"],
        expect![[r#"
        ! error: cannot open none.rath: No such file or directory (os error 2)
        exit 1
    "#]],
    );
    check(
        folder.path(),
        &["show", "s.rath", "zzz"],
        expect![[r#"
        ! error: no step `zzz` in s.rath
        ! hint: `rath log s.rath` lists the steps
        exit 1
    "#]],
    );
    std::fs::write(folder.path().join("notes.txt"), "hello\n").expect("written");
    check(
        folder.path(),
        &["log", "notes.txt"],
        expect![[r#"
        ! error: notes.txt: not a rath session file: no line of it is a row
        ! hint: a session file begins with `{"seal":` and is written by `Session::save`
        exit 1
    "#]],
    );
    check(
        folder.path(),
        &["verify", "notes.txt"],
        expect![[r#"
        ! error: notes.txt: not a rath session file: no line of it is a row
        ! hint: a session file begins with `{"seal":` and is written by `Session::save`
        exit 1
    "#]],
    );
    check(
        folder.path(),
        &["lgo", "s.rath"],
        expect![[r#"
        ! error: unrecognized subcommand 'lgo'
        ! 
        ! Usage: rath <COMMAND>
        ! 
        ! For more information, try '--help'.
        exit 2
    "#]],
    );
    check(
        folder.path(),
        &["--help"],
        expect![[r#"
            Read, check and export what agents did

            Usage: rath <COMMAND>

            Commands:
              log     Show what happened, newest first
              show    Show one step, whole
              verify  Check that a file is as it was written, and name what is not
              export  Print the graph of sessions in a file, one JSON line each

            Options:
              -h, --help     Print help
              -V, --version  Print version

            Exit codes: 0 fine, 1 failed, 2 wrong use, 3 damage was found
            exit 0
        "#]],
    );
}
