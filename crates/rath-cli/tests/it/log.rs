//! Commands that tell what happened: log, show, diff, explain, cost and status, for people and as JSON.

use expect_test::{Expect, expect};
use rath::Usage;
use rath::prelude::*;
use rath_test_support::{Terminal, temp_dir, wait_until};

use crate::fixture::{Fixture, STORES};

/// Two turns: one with edits and a command that fails, one that writes a file.
const FIRST: &str = r#"{"text": "I look first.", "calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}], "usage": {"input": 100, "output": 10}}
{"calls": [{"name": "edit_file", "arguments": {"path": "a.txt", "old": "two", "new": "zwei"}}, {"name": "edit_file", "arguments": {"path": "src/b.txt", "old": "hello", "new": "hallo"}}], "usage": {"input": 200, "output": 10}}
{"calls": [{"name": "shell", "arguments": {"command": "echo four >> a.txt; exit 3"}}], "usage": {"input": 300, "output": 10}}
{"text": "I translated the second line, and the greeting; the fourth line is new.", "usage": {"input": 400, "output": 20}}
"#;
const SECOND: &str = r#"{"calls": [{"name": "write_file", "arguments": {"path": "c.txt", "text": "new\nfile\n"}}], "usage": {"input": 500, "output": 10}}
{"text": "Done.", "usage": {"input": 600, "output": 10}}
"#;

/// Makes a session with two turns, a check, a fork that went on, and their merge. Returns the ids of the first and the merged one.
fn session(fixture: &Fixture) -> (String, String) {
    std::fs::create_dir(fixture.path("work/src")).expect("a directory");
    fixture.write("work/a.txt", "one\ntwo\nthree\n");
    fixture.write("work/src/b.txt", "hello\n");
    fixture.script(FIRST);
    let model = ["--model", "script:script.jsonl"];
    let prompt = "Please translate the second line of a.txt into German, and greet in German too";
    let first = [&["run", prompt, "--sandbox", "local:work"], &model[..]].concat();
    assert_eq!(fixture.code(&first), 0);
    let ours = fixture.newest();
    assert_eq!(fixture.code(&["check", "grep -q zwei a.txt", "--session", &ours]), 0);
    let theirs = fixture.fork(&ours);
    fixture.script(SECOND);
    assert_eq!(fixture.code(&[&["resume", &theirs, "Write c.txt"], &model[..]].concat()), 0);
    fixture.script(&SECOND.replace("c.txt", "d.txt"));
    assert_eq!(fixture.code(&[&["resume", &ours, "Write d.txt"], &model[..]].concat()), 0);
    fixture.rath(&["merge", &ours, &theirs]);
    (ours, fixture.newest())
}

fn fixture() -> Fixture {
    Fixture::in_folder(crate::workshop(FIRST), STORES[0])
}

/// Returns what a command shows in a terminal with so many columns. Styles are written as `<32>`.
fn shown(fixture: &Fixture, args: &[&str], columns: u16, colours: Colours) -> String {
    let mut command = fixture.command(args);
    command.env("TERM", "xterm").env("RATH_PAGER", "");
    if colours == Colours::Off {
        command.env("NO_COLOR", "1");
    }
    let (screen, _) = Terminal::with_columns(command, columns).finish();
    let mut parts = screen.split("\u{1b}[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_once('m').expect("only styles are printed");
        text.push_str(&format!("<{code}>{rest}"));
    }
    text
}

#[derive(Clone, Copy, PartialEq)]
enum Colours {
    On,
    Off,
}

/// Replaces ages, which depend on how busy the machine is.
fn without_ages(text: &str) -> String {
    let mut text = text.to_owned();
    for minutes in 1..60 {
        text = text.replace(&format!("{:<7}", format!("{minutes}m ago")), "now    ");
    }
    text
}

fn check(fixture: &Fixture, text: &str, expected: Expect) {
    fixture.check_text(&without_ages(text), &expected);
}

/// Fails if a line takes more columns than there are.
fn assert_fits(text: &str, columns: usize) {
    for line in text.lines() {
        assert!(line.chars().count() <= columns, "{} columns: {line}", line.chars().count());
    }
}

#[test]
fn a_turn_is_a_line_that_fits_the_terminal() {
    let fixture = fixture();
    let (ours, merged) = session(&fixture);
    let narrow = shown(&fixture, &["log", &merged], 80, Colours::Off);
    assert_fits(&narrow, 80);
    check(
        &fixture,
        &narrow,
        expect![[r#"
        ◆    STEP1  now      b2  merged b1
        ├─╮
        │ ●  STEP2  now      b1  Write c.txt → Done.  [1 call, 1 file changed]
        │ ○  STEP3  now      b1  forked
        ● │  STEP4  now      main  Write d.txt → Done.  [1 call, 1 file changed]
        ├─╯
        ○  STEP5  now      main  check passed: grep -q zwei a.txt
        ●  STEP6  now      main  Please transl… → I translated t…  [4 calls, 2 files]
    "#]],
    );
    assert_eq!(without_ages(&fixture.out(&["log", &merged])), without_ages(&narrow), "a pipe is 80 columns wide");
    let wide = shown(&fixture, &["log", &merged], 200, Colours::Off);
    assert_fits(&wide, 200);
    check(
        &fixture,
        &wide,
        expect![[r#"
        ◆    STEP1  TIME  b2  merged b1
        ├─╮
        │ ●  STEP2  TIME  b1  Write c.txt → Done.  [1 call: write_file, 1 file changed]
        │ ○  STEP3  TIME  b1  forked
        ● │  STEP4  TIME  main  Write d.txt → Done.  [1 call: write_file, 1 file changed]
        ├─╯
        ○  STEP5  TIME  main  check passed: grep -q zwei a.txt
        ●  STEP6  TIME  main  Please translate the second line of a.txt… → I translated the second line, and the gree…  [4 calls: read_file, edit_file x2, shell (1 failed), 2 files changed]
    "#]],
    );
    check(
        &fixture,
        &shown(&fixture, &["log", &ours, "-n", "1"], 80, Colours::On),
        expect![[r#"
        ●  <33>STEP1<0>  <2>now    <0>  Write d.txt → Done.  <2>[1 call: write_file, 1 file changed]<0>
        ~
    "#]],
    );
    for columns in [20, 40, 41, 60, 79, 120, 130] {
        assert_fits(&shown(&fixture, &["log", &merged], columns, Colours::Off), usize::from(columns).max(40));
    }
    // A line a step, in a pipe in full.
    let steps = fixture.json(&["log", &merged, "--json"]).len();
    let unfolded = fixture.out(&["log", &merged, "-v"]);
    assert_eq!(unfolded.matches(['○', '◆']).count(), steps, "{unfolded}");
}

#[test]
fn a_filter_shows_a_part_and_says_so() {
    let fixture = fixture();
    let (_, merged) = session(&fixture);
    let log = |options: &[&str]| {
        let output = fixture.rath(&[&["log", &merged], options].concat());
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        format!("{out}{err}")
    };
    check(
        &fixture,
        &log(&["--tool", "shell"]),
        expect![[r#"
        STEP1  now      main  Please translat… → I translated th…  [4 calls, 2 files]
        note: showing 1 of 6 lines: calls of shell
    "#]],
    );
    check(
        &fixture,
        &log(&["--tool", "shell", "-v"]),
        expect![[r#"
        STEP1 main  tool result: call_3_1 failed: exit code 3 ~a.txt  [agent]
        STEP2 main  tool started: call_3_1  [agent]
        STEP3 main  assistant calls shell({"command":"echo four >> a.txt; exit 3"})  [agent]  (300 in, 10 out)
        note: showing 3 of 29 steps: calls of shell
    "#]],
    );
    check(
        &fixture,
        &log(&["--file", "src", "-v"]),
        expect![[r#"
        STEP1 main  tool result: call_2_2 ok: replaced it in line 1 ~src/b.txt  [agent]
        note: showing 1 of 29 steps: changes of src
    "#]],
    );
    check(
        &fixture,
        &log(&["--file", "./c.txt", "--tool", "write_file"]),
        expect![[r#"
        STEP1  now      b1  Write c.txt → Done.  [1 call: write_file, 1 file changed]
        note: showing 1 of 6 lines: calls of write_file, changes of ./c.txt
    "#]],
    );
    check(
        &fixture,
        &log(&["--since", "2000-01-01", "-n", "1"]),
        expect![[r#"
        STEP1  now      b2  merged b1
        ~
        note: showing 6 of 6 lines: since 2000-01-01 UTC
    "#]],
    );
    check(
        &fixture,
        &log(&["--since", "2999-12-31T23:59"]),
        expect![[r#"
        note: showing 0 of 6 lines: since TIME
    "#]],
    );
    assert!(log(&["--since", "10m"]).contains("\nnote: showing 6 of 6 lines: since 2"), "{}", log(&["--since", "10m"]));
    let json = fixture.json(&["log", &merged, "--json", "--tool", "shell"]);
    let kinds: Vec<_> = json.iter().map(|step| step["chunk"]["kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["tool_result", "tool_started", "assistant"]);
    check(
        &fixture,
        &log(&["--since", "yesterday"]),
        expect![
            "error: invalid value `yesterday` for `--since <TIME>`: wanted a duration such as `2h` or `3d`, or a time such as `2026-11-19` or `TIME"
        ],
    );
}

#[test]
fn a_thousand_steps_are_a_line_a_turn() {
    let folder = temp_dir();
    let mut session = Session::empty();
    for turn in 0..250 {
        session.push(Chunk::user(format!(
            "{turn}: 请把第二行翻译成德语，并且用德语问候，谢谢你的帮助 👩\u{200d}💻 \u{1b}[31m"
        )));
        session.push(Chunk::calls([rath::chunk::Call::new("c1", "read_file", "{}")]));
        session.push(Chunk::result("c1", "text"));
        session.push(Chunk::assistant("好的，我已经把它翻译好了，并且用德语问候了大家，还有别的事情吗？ ".repeat(20)));
    }
    session.save_blocking(folder.path().join("s.rath")).expect("saved");
    let log = crate::printed(folder.path(), &["log", "s.rath"]);
    assert_eq!(log.lines().count(), 250);
    for line in log.lines() {
        assert!(unicode_columns(line) <= 80 && !line.contains('\u{1b}'), "{line}");
    }
    let newest = crate::printed(folder.path(), &["log", "s.rath", "-n", "2"]);
    assert_eq!(newest.lines().map(|line| line.chars().next()).collect::<Vec<_>>(), [Some('●'), Some('●'), Some('~')]);
}

/// Returns the columns of a line in which each character beyond the arrows takes two.
fn unicode_columns(line: &str) -> usize {
    line.chars().map(|c| if c >= '\u{2e80}' { 2 } else { 1 }).sum()
}

/// The pager is a program of the user: it is told no key, and gets nothing that could control the terminal.
#[test]
fn a_pager_shows_the_log_in_a_terminal_and_gets_no_secrets() {
    let fixture = fixture();
    let (ours, _) = session(&fixture);
    fixture.write("pager.sh", "env > env.txt; cat > shown.txt; echo paged\n");
    let run = |options: &[&str], variable: (&str, &str)| {
        let mut command = fixture.command(&[&["log", &ours], options].concat());
        command.env("TERM", "xterm").env("NO_COLOR", "1").env("MY_PASSWORD", "hunter2").env(variable.0, variable.1);
        command.env("OPENAI_API_KEY", "sk-abcdefghijklmnopqrstuvwxyz").env("LESS_TERMCAP_x", "1");
        command.env("LC_TIME", "sk-abcdefghijklmnopqrstuvwxyz");
        let (screen, status) = Terminal::with_columns(command, 80).finish();
        assert!(status.success(), "{screen}");
        screen
    };
    assert_eq!(run(&[], ("RATH_PAGER", "sh pager.sh")), "paged\n");
    let environment = std::fs::read_to_string(fixture.path("env.txt")).expect("the pager ran");
    assert!(environment.contains("TERM=xterm\n") && environment.contains("LESS_TERMCAP_x=1\n"), "{environment}");
    assert!(!environment.contains("sk-") && !environment.contains("hunter2"), "{environment}");
    let paged = std::fs::read_to_string(fixture.path("shown.txt")).expect("the pager ran");
    assert_eq!(without_ages(&paged), without_ages(&fixture.out(&["log", &ours])));
    // A shell reads what only a shell can read.
    assert_eq!(run(&[], ("PAGER", "sh pager.sh && echo again")), "paged\nagain\n");
    for (options, variable) in [
        (&["--no-pager"][..], ("RATH_PAGER", "sh pager.sh")),
        (&[], ("RATH_PAGER", "")),
        (&[], ("PAGER", "cat")),
        (&["--json"], ("PAGER", "sh pager.sh")),
    ] {
        let screen = run(options, variable);
        assert!(screen.contains("Write d.txt") && !screen.contains("paged"), "{screen}");
    }
    let screen = run(&[], ("PAGER", "no-such-pager -x"));
    assert!(screen.starts_with("warning: cannot start the pager `no-such-pager -x`: "), "{screen}");
    assert!(screen.contains("Write d.txt"), "{screen}");
    let mut piped = fixture.command(&["log", &ours]);
    let output = piped.env("TERM", "xterm").env("RATH_PAGER", "sh pager.sh").output().expect("rath runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Write d.txt"));
}

#[test]
fn a_step_that_changed_files_is_shown_with_its_lines() {
    let fixture = fixture();
    let (ours, merged) = session(&fixture);
    let show =
        |text: &str, columns, colours| shown(&fixture, &["show", &ours, &fixture.step(&ours, text)], columns, colours);
    let without_stamp = |text: String| {
        let is_stamp = |line: &&str| ["step ", "branch ", "at ", "request "].iter().any(|name| line.starts_with(name));
        text.lines().filter(|line| !is_stamp(line)).map(|line| format!("{line}\n")).collect::<String>()
    };
    check(
        &fixture,
        &without_stamp(show("call_2_1 ok", 80, Colours::Off)),
        expect![[r#"
        kind     tool_result
        parent   STEP1
        by       agent

        call call_2_1: ok
        ~a.txt
        replaced it in line 2

        diff --git a/a.txt b/a.txt
        --- a/a.txt
        +++ b/a.txt
        @@ -1,3 +1,3 @@
         one
        -two
        +zwei
         three
    "#]],
    );
    check(
        &fixture,
        &without_stamp(show("call_2_2 ok", 80, Colours::On)),
        expect![[r#"
        kind     tool_result
        parent   <33>STEP1<0>
        by       agent

        call call_2_2: ok
        ~src/b.txt
        replaced it in line 1

        <1>diff --git a/src/b.txt b/src/b.txt<0>
        <1>--- a/src/b.txt<0>
        <1>+++ b/src/b.txt<0>
        <36>@@ -1,1 +1,1 @@<0>
        <31>-hello<0>
        <32>+hallo<0>
    "#]],
    );
    check(
        &fixture,
        &without_stamp(show("call_3_1 failed", 200, Colours::Off)),
        expect![[r#"
        kind     tool_result
        parent   STEP1
        by       agent

        call call_3_1: failed
        ~a.txt
        failed: exit code 3

        diff --git a/a.txt b/a.txt
        --- a/a.txt
        +++ b/a.txt
        @@ -1,3 +1,4 @@
         one
         zwei
         three
        +four
    "#]],
    );
    check(
        &fixture,
        &without_stamp(show("calls edit_file", 80, Colours::Off)),
        expect![[r#"
        kind     assistant
        parent   STEP1
        by       agent
        usage    200 in, 10 out
        provider script:script
        finish   calls

        call call_2_1: edit_file a.txt
          -two
          +zwei
        call call_2_2: edit_file src/b.txt
          -hello
          +hallo
    "#]],
    );
    check(
        &fixture,
        &without_stamp(show("checked:", 80, Colours::Off)),
        expect![[r#"
        kind     checked
        parent   STEP1

        check: grep -q zwei a.txt
        result: passed
        files: git:82c43c23ddf90958b5a7ab4daf8275fd0bf73f2d

    "#]],
    );
    let show_merged = |text: &str| fixture.out(&["show", &merged, &fixture.step(&merged, text)]);
    check(
        &fixture,
        &without_stamp(show_merged("merged")),
        expect![[r#"
        kind     merged
        parent   STEP1
        parent   STEP2

        the steps of both branches, the common ones once
        files: git:76100679bbc4289af7979d0f3041dcde610db5ae
    "#]],
    );
    check(
        &fixture,
        &without_stamp(show_merged("forked")),
        expect![[r#"
        kind     forked
        parent   STEP1

        fork 1 of the step before
    "#]],
    );
    check(
        &fixture,
        &without_stamp(show_merged("sandbox:")),
        expect![[r#"
        kind     sandbox
        parent   STEP1

        sandbox: local:FOLDER/work
    "#]],
    );
}

#[test]
fn a_session_is_compared_with_its_start() {
    let fixture = fixture();
    let (ours, merged) = session(&fixture);
    fixture.check(
        &["diff", &ours],
        &expect![[r#"
        diff --git a/a.txt b/a.txt
        --- a/a.txt
        +++ b/a.txt
        @@ -1,3 +1,4 @@
         one
        -two
        +zwei
         three
        +four
        diff --git a/d.txt b/d.txt
        new file mode 100644
        --- /dev/null
        +++ b/d.txt
        @@ -0,0 +1,2 @@
        +new
        +file
        diff --git a/src/b.txt b/src/b.txt
        --- a/src/b.txt
        +++ b/src/b.txt
        @@ -1,1 +1,1 @@
        -hello
        +hallo
        ! session S1 changed 3 files
        exit 0
    "#]],
    );
    fixture.check(
        &["diff", &ours, "--names"],
        &expect![[r#"
        ~a.txt
        +d.txt
        ~src/b.txt
        ! session S1 changed 3 files
        exit 0
    "#]],
    );
    check(
        &fixture,
        &shown(&fixture, &["diff", &ours], 80, Colours::On),
        expect![[r#"
        session S1 changed 3 files
        <1>diff --git a/a.txt b/a.txt<0>
        <1>--- a/a.txt<0>
        <1>+++ b/a.txt<0>
        <36>@@ -1,3 +1,4 @@<0>
         one
        <31>-two<0>
        <32>+zwei<0>
         three
        <32>+four<0>
        <1>diff --git a/d.txt b/d.txt<0>
        <1>new file mode 100644<0>
        <1>--- /dev/null<0>
        <1>+++ b/d.txt<0>
        <36>@@ -0,0 +1,2 @@<0>
        <32>+new<0>
        <32>+file<0>
        <1>diff --git a/src/b.txt b/src/b.txt<0>
        <1>--- a/src/b.txt<0>
        <1>+++ b/src/b.txt<0>
        <36>@@ -1,1 +1,1 @@<0>
        <31>-hello<0>
        <32>+hallo<0>
    "#]],
    );
    // Without a name it is the newest session.
    assert_eq!(fixture.out(&["diff"]), fixture.out(&["diff", &merged]));
    assert_eq!(fixture.json(&["diff", "--json"])[0]["effects"].as_array().map(Vec::len), Some(4));
    // Another session, from a step on.
    let step = format!("{ours}@{}", fixture.step(&ours, "call_2_1 ok"));
    assert!(fixture.out(&["diff", &step]).contains("\n+zwei\n") && !fixture.out(&["diff", &step]).contains("four"));
    // It is a patch that git applies.
    for (name, text) in [("a.txt", "one\ntwo\nthree\n"), ("src/b.txt", "hello\n")] {
        fixture.write(&format!("work/{name}"), text);
    }
    for name in ["c.txt", "d.txt"] {
        std::fs::remove_file(fixture.path("work").join(name)).expect("it is there");
    }
    fixture.write("all.patch", &fixture.out(&["diff"]));
    let applied = rath_test_support::git().args(["apply", "../all.patch"]).current_dir(fixture.path("work")).status();
    assert!(applied.expect("git runs").success());
    assert_eq!(std::fs::read_to_string(fixture.path("work/src/b.txt")).expect("text"), "hallo\n");
}

#[test]
fn the_newest_turn_is_explained() {
    let fixture = fixture();
    let (ours, _) = session(&fixture);
    let narrow = shown(&fixture, &["explain", &ours], 80, Colours::Off);
    let without_digest = |text: &str| {
        text.lines().filter(|line| !line.starts_with("request: ")).map(|line| format!("{line}\n")).collect::<String>()
    };
    check(
        &fixture,
        &without_digest(&narrow),
        expect![[r#"
            the newest turn: Write d.txt
              5 steps from STEP1 to STEP2, 1100 in, 20 out
              1 call: write_file, 1 file changed
            STEP2 main  assistant: Done. [agent] (600 in, 10 out)
            answered by: script:script
            answered in: STEP2, 600 in, 10 out
            the model saw instructions and 7 messages:
              STEP3 instructions: You are a careful assistant. Do what the user asks, wi…
                tools: read_file, list_files, file_exists, search_files, write_file,
                  edit_file, apply_patch, shell, run_code, check, commit
              STEP4 user: Please translate the second line of a.txt into German, and gre…
              STEP5 assistant: I look first. calls read_file({"path":"a… (and the result)
              STEP6 assistant calls edit_file({"new":"zwei","old":"two",… (and 2 results)
              STEP7 assistant calls shell({"command":"echo four >> a.tx… (and the result)
              STEP8 assistant: I translated the second line, and the greeting; the fourt…
              STEP1 user: Write d.txt
              STEP9 assistant calls write_file({"path":"d.txt","text":"… (and the result)
            tools run in: local:FOLDER/work
            changed files:
              STEP10 +d.txt  during write_file call_1_1
            the files come from: STEP10 tool result: call_1_1 ok: wrote 9 bytes +d.txt [a…
            checks:
              STEP11 grep -q zwei a.txt passed on other files
            cost up to this step: 2100 in, 70 out, $0.00
              without models that have no price
        "#]],
    );
    let json = &fixture.json(&["explain", &ours, "--json"])[0];
    assert_eq!(json["turn"]["said"], "Write d.txt");
    assert_eq!(json["turn"]["summary"], "1 call: write_file, 1 file changed");
    assert_eq!(json["turn"]["usage"]["input"], 1100);
    assert_eq!(json["changes"][0]["path"], "d.txt");
    assert_eq!(fixture.json(&["explain", &ours, "head", "--json"])[0]["turn"], serde_json::Value::Null);
}

#[test]
fn the_cost_is_a_tree_in_which_each_call_counts_once() {
    let fixture = fixture();
    let (_, merged) = session(&fixture);
    fixture.write("prices.json", r#"{"script:script": {"input": 1000, "output": 2000}}"#);
    let cost = ["cost", &merged, "--prices", "prices.json", "--tree"];
    let narrow = shown(&fixture, &cost, 80, Colours::Off);
    check(
        &fixture,
        &narrow,
        expect![[r#"
        all branches    8 calls  3,290 tokens  $3.38
        └─ main         8 calls  3,290 tokens  $3.38
           ├─ agent     6 calls  2,170 tokens  $2.24
           └─ b1        2 calls  1,120 tokens  $1.14
              └─ agent  2 calls  1,120 tokens  $1.14
    "#]],
    );
    check(
        &fixture,
        &shown(&fixture, &cost, 200, Colours::On),
        expect![[r#"
        all branches    8 calls  3,290 tokens  $3.38
        └─ <36>main<0>         8 calls  3,290 tokens  $3.38
           ├─ agent     6 calls  2,170 tokens  $2.24
           └─ <36>b1<0>        2 calls  1,120 tokens  $1.14
              └─ agent  2 calls  1,120 tokens  $1.14
    "#]],
    );
    let json = &fixture.json(&[&cost[..], &["--json"]].concat())[0];
    let tree = &json["tree"];
    // Four calls before the fork, and two on each branch.
    assert_eq!((&tree["calls"], &tree["dollars"]), (&8.into(), &json["dollars"]));
    assert_eq!(tree["children"][0]["calls"], 8);
    let names = |node: &serde_json::Value| {
        let children = node["children"].as_array().cloned().unwrap_or_default();
        children.iter().map(|child| child["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&tree["children"][0]), ["agent", "b1"]);
    fixture.check(
        &["cost", &merged, "--tree"],
        &expect![[r#"
            all branches    8 calls  3,290 tokens  $0.00+
            └─ main         8 calls  3,290 tokens  $0.00+
               ├─ agent     6 calls  2,170 tokens  $0.00+
               └─ b1        2 calls  1,120 tokens  $0.00+
                  └─ agent  2 calls  1,120 tokens  $0.00+
            + and the cost of models that have no price
            ! hint: `rath cost --help` tells how to give the prices of other models
            exit 0
        "#]],
    );
}

/// Forks of forks without end are shown, and do not use up the stack.
#[test]
fn a_deep_chain_of_forks_has_a_cost() {
    let folder = temp_dir();
    let mut session = Session::user("Go.");
    for _ in 0..3000 {
        session = session.fork();
        session.push_with_usage(Chunk::assistant("Yes."), Usage::new(10, 1));
    }
    session.save_blocking(folder.path().join("s.rath")).expect("saved");
    let tree = crate::printed(folder.path(), &["cost", "s.rath", "--tree"]);
    assert!(tree.starts_with("all branches "), "{tree}");
    assert_eq!(tree.lines().count(), 3003);
    assert!(tree.lines().next().is_some_and(|line| line.contains("  3000 calls  33,000 tokens  ")), "{tree}");
    assert_fits(&tree, 80);
    assert_fits(&crate::printed(folder.path(), &["log", "s.rath"]), 80);
}

#[test]
fn a_call_of_another_process_is_running() {
    let fixture = fixture();
    fixture.script_command("touch started; while ! test -e go; do true; done");
    let run = ["run", "Wait", "--sandbox", "local:work", "--model", "script:script.jsonl"];
    let mut running = fixture.start(&run);
    wait_until("the call is made", || fixture.path("work/started").exists());
    let status = fixture.json(&["status", "--json"]);
    let out = fixture.out(&["status"]);
    let code = fixture.code(&["status"]);
    fixture.write("work/go", "");
    assert!(running.wait().expect("a status").success());
    assert!(out.contains("\nrunning   shell touch started; while ! test -e go; do true; done\n"), "{out}");
    assert!(!out.contains("in doubt") && !out.contains("decide"), "{out}");
    assert_eq!(status[0]["running"].as_array().map(Vec::len), Some(1));
    assert_eq!(status[0]["waiting"].as_array().map(Vec::len), Some(0));
    assert_eq!(code, 0);
    let done = fixture.out(&["status"]);
    assert!(!done.contains("running"), "{done}");
}

#[test]
fn status_is_the_same_in_a_terminal_of_any_width() {
    let fixture = fixture();
    let (ours, _) = session(&fixture);
    let narrow = shown(&fixture, &["status", &ours], 80, Colours::Off);
    check(
        &fixture,
        &narrow,
        expect![[r#"
            S1  Please translate the second line of a.txt into German, and …
            state     done
            files     FOLDER/work/.rath/work/SESSION1
                      not written there yet: the next turn does it
            model     script:script
            check     grep -q zwei a.txt: passed, before files changed
            tokens    2,170
            hint: `rath resume S1 'Go on.' --store STORE` continues
        "#]],
    );
    check(
        &fixture,
        &shown(&fixture, &["status", &ours], 200, Colours::On),
        expect![[r#"
            <36>S1<0>  Please translate the second line of a.txt into German, and …
            state     done
            files     FOLDER/work/.rath/work/SESSION1
                      not written there yet: the next turn does it
            model     script:script
            check     grep -q zwei a.txt: passed, before files changed
            tokens    2,170
            hint: `rath resume S1 'Go on.' --store STORE` continues
        "#]],
    );
}
