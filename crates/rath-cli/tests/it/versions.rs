//! Tests of versions of files: checkout, diff, restore, blame, bisect and check.

use std::path::Path;

use expect_test::expect;
use serde_json::json;

use crate::fixture::for_each_store;

#[test]
fn versions_are_checked_out_compared_and_restored() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "printf 'one\\ntwo\\n' > n.txt; echo x > old.txt");
        let begun = fixture.step(&id, "tool result");
        fixture.work(Some(&id), "Go on", "sed -i s/two/2/ n.txt; mv old.txt new.txt; chmod +x n.txt");
        let then = format!("{id}@{begun}");
        fixture.check(
            &["checkout", &then, "then"],
            &expect![[r#"
                ! wrote 3 files of step STEP1 to then
                exit 0
            "#]],
        );
        fixture.expect(
            &fixture.files("then"),
            &expect![[r#"
            a.txt: hello
            n.txt: one|two
            old.txt: x
        "#]],
        );
        fixture.check(
            &["checkout", &id, "then"],
            &expect![[r#"
                ! error: wanted a new or empty directory, found files in `then`
                ! hint: name a directory that is new or empty
                exit 1
            "#]],
        );
        fixture.check(
            &["checkout", &id, "script.jsonl"],
            &expect![[r#"
                ! error: wanted a new or empty directory, found the file `script.jsonl`
                ! hint: name a directory that is new or empty
                exit 1
            "#]],
        );
        fixture.check(&["checkout", &id, "now", "--json"], &expect![[r#"
            {"directory":"now","files":3,"forgotten":[],"missing":[],"shared":"STEP1","tree":"git:1ba0e3051ff0b8685cc70874a666d088cf11dbae"}
            exit 0
        "#]]);
        fixture.check(
            &["diff", &then, &id],
            &expect![[r#"
                diff --git a/n.txt b/n.txt
                old mode 100644
                new mode 100755
                --- a/n.txt
                +++ b/n.txt
                @@ -1,2 +1,2 @@
                 one
                -two
                +2
                diff --git a/old.txt b/new.txt
                rename from old.txt
                rename to new.txt
                ! 2 files changed
                exit 0
            "#]],
        );
        fixture.check(
            &["diff", &id, &id],
            &expect![[r#"
                ! 0 files changed
                exit 0
            "#]],
        );
        fixture.check(&["diff", &then, &id, "--json"], &expect![[r#"
            {"shared":"STEP1","from":"git:3086df8fb5a11c34e04f9285acb1bbd95cf6797c","to":"git:1ba0e3051ff0b8685cc70874a666d088cf11dbae","effects":[{"path":"n.txt","change":"modified","before":"STEP2","after":"STEP3"},{"path":"new.txt","change":{"renamed":{"from":"old.txt"}},"before":"STEP4","after":"STEP4"}]}
            exit 0
        "#]]);
        // The output is a patch that git accepts, for binary files too.
        fixture.work(Some(&id), "Go on", "printf '\\000\\377' > bin");
        fixture.write("it.patch", &fixture.out(&["diff", &then, &id]));
        let mut git = rath_test_support::git();
        let applied = git.args(["apply", "../it.patch"]).current_dir(fixture.path("then")).status();
        assert!(applied.expect("git runs").success());
        assert_eq!(std::fs::read(fixture.path("then/bin")).expect("a file"), [0, 255]);
        std::fs::remove_file(fixture.path("then/bin")).expect("removed");
        fixture.expect(
            &fixture.files("then"),
            &expect![[r#"
            a.txt: hello
            n.txt: one|2
            new.txt: x
        "#]],
        );
        // The user's changes are recorded before they are undone.
        std::fs::remove_file(fixture.path("work/bin")).expect("removed");
        fixture.write("work/mine.txt", "by hand\n");
        fixture.check(
            &["restore", &then],
            &expect![[r#"
                -mine.txt
                ~n.txt
                new.txt→old.txt
                ! restored step STEP1: 3 files changed in work
                ! your changes were recorded first: `rath restore S1@STEP2 --store STORE` brings them back
                exit 0
            "#]],
        );
        fixture.expect(
            &fixture.files("work"),
            &expect![[r#"
            a.txt: hello
            n.txt: one|two
            old.txt: x
        "#]],
        );
        let hand = format!("{id}@{}", fixture.step(&id, "+mine.txt"));
        fixture.check(&["restore", &hand, "--json"], &expect![[r#"
            {"before":null,"effects":[{"after":"STEP1","change":"created","path":"mine.txt"},{"after":"STEP2","before":"STEP3","change":"modified","path":"n.txt"},{"after":"STEP4","before":"STEP4","change":{"renamed":{"from":"old.txt"}},"path":"new.txt"}],"shared":"STEP5"}
            exit 0
        "#]]);
        fixture.expect(
            &fixture.files("work"),
            &expect![[r#"
            a.txt: hello
            mine.txt: by hand
            n.txt: one|2
            new.txt: x
        "#]],
        );
        fixture.check(
            &["restore", &hand],
            &expect![[r#"
                ! restored step STEP1: 0 files changed in work
                exit 0
            "#]],
        );
    });
}

#[test]
fn every_line_has_its_author() {
    for_each_store("", |fixture| {
        fixture.write("work/n.txt", "one\ntwo\nthree\n");
        let id = fixture.work(None, "Begin", "sed -i s/two/2/ n.txt");
        fixture.write("work/n.txt", "one\n2\nthree\nby hand\n");
        let model = ["--model", "script:script.jsonl", "--anyway"];
        let call =
            json!({"name": "write_file", "arguments": {"path": "n.txt", "text": "one\n2\nthree\nby hand\nlast\n"}});
        fixture.script(&format!("{}\n{}\n", json!({"calls": [call]}), json!({"text": "Done."})));
        assert_eq!(fixture.code(&[&["resume", &id, "Go on"], &model[..]].concat()), 0);
        fixture.check(
            &["blame", "n.txt"],
            &expect![[r#"
                STEP1 before the session      1  one
                STEP2 during shell            2  2
                STEP1 before the session      3  three
                STEP3 outside the agent       4  by hand
                STEP4 write_file              5  last
                ! note: using the newest session, S1
                exit 0
            "#]],
        );
        fixture.check(
            &["check", "test -e n.txt", "--input", "n.txt"],
            &expect![[r#"
                STEP1 test -e n.txt  passed
                ! note: using the newest session, S1
                ! no sandbox: tools start in FOLDER/work and can do anything you can
                exit 0
            "#]],
        );
        assert_eq!(fixture.code(&["check", "test -e none.txt"]), 1);
        fixture.check(
            &["blame", "./n.txt:2", &id],
            &expect![[r#"
                STEP1 during shell            2  2
                  call: shell {"command":"sed -i s/two/2/ n.txt"}
                  by: agent
                  answer: STEP2
                  request: 7c90ac42039a5c69
                  written while this call ran, by it or by another process
                  checks: test -e n.txt
                  failed checks: test -e none.txt
                exit 0
            "#]],
        );
        fixture.check(
            &["blame", "n.txt:4", &id],
            &expect![[r#"
                STEP1 outside the agent       4  by hand
                  checks: test -e n.txt
                  failed checks: test -e none.txt
                exit 0
            "#]],
        );
        fixture.check(
            &["blame", "a.txt:1", &id],
            &expect![[r#"
                STEP1 before the session      1  hello
                  checks: none covers this line
                  failed checks: test -e none.txt
                exit 0
            "#]],
        );
        fixture.check(&["blame", "n.txt:5", &id, "--json"], &expect![[r#"
            {"answer":"STEP1","by":"agent","call":{"arguments":"{\"path\":\"n.txt\",\"text\":\"one\\n2\\nthree\\nby hand\\nlast\\n\"}","id":"call_1_1","tool":"write_file"},"certainty":"by","checks":["test -e n.txt"],"failed_checks":["test -e none.txt"],"line":5,"origin":"call","request":"STEP2","step":"STEP3","text":"last"}
            exit 0
        "#]]);
        fixture.check(
            &["blame", "n.txt:6", &id],
            &expect![[r#"
                ! error: there is no line 6 in `n.txt`, which has 5 lines
                ! hint: lines are counted from 1
                exit 1
            "#]],
        );
        fixture.check(
            &["blame", "none.txt", &id],
            &expect![[r#"
                ! error: there is no file `none.txt` in session S1
                ! hint: name it relative to the session's directory; ignored files are not recorded
                exit 1
            "#]],
        );
    });
}

#[test]
fn bisect_finds_the_call_that_broke_it_and_asks_no_model() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "echo 0 > n.txt");
        for nth in 1..8 {
            let breaks = if nth == 5 { "; echo broken >> a.txt" } else { "" };
            fixture.work(Some(&id), &format!("Turn {nth}"), &format!("echo {nth} > n.txt{breaks}"));
        }
        std::fs::remove_file(fixture.path("script.jsonl")).expect("removed");
        let before = fixture.files("work");
        let good = ["sh", "-c", "! grep -q broken a.txt"];
        fixture.check(
            &[&["bisect", &id, "--"], &good[..]].concat(),
            &expect![[r#"
                STEP1  tool result: call_1_1 ok ~a.txt ~n.txt  [agent]
                  call: shell {"command":"echo 5 > n.txt; echo broken >> a.txt"}
                  by: agent
                  answer: STEP2
                ! sandbox: writes only in copies of the recorded files, no network
                ! tested 9 versions of the files in 4 runs
                exit 0
            "#]],
        );
        fixture.check(&[&["bisect", &id, "--json", "--"], &good[..]].concat(), &expect![[r#"
            {"answer":"STEP1","call":{"arguments":"{\"command\":\"echo 5 > n.txt; echo broken >> a.txt\"}","id":"call_1_1","tool":"shell"},"runs":4,"step":"STEP2","trees":9}
            ! sandbox: writes only in copies of the recorded files, no network
            exit 0
        "#]]);
        let earlier = format!("{id}@{}", fixture.step(&id, "Turn 5"));
        fixture.check(
            &[&["bisect", &earlier, "--"], &good[..]].concat(),
            &expect![[r#"
                ! sandbox: writes only in copies of the recorded files, no network
                ! tested 6 versions of the files in 1 run
                ! the command succeeds at the newest step, so there is nothing to find
                exit 1
            "#]],
        );
        fixture.check(
            &["bisect", &id, "--", "false"],
            &expect![[r#"
                STEP1  files recorded: STEP2  [agent]
                ! sandbox: writes only in copies of the recorded files, no network
                ! tested 9 versions of the files in 4 runs
                ! note: the command fails already on the files from before the session
                exit 0
            "#]],
        );
        fixture.check(
            &["bisect", &id, "--", "no-such-program"],
            &expect![[r#"
                ! sandbox: writes only in copies of the recorded files, no network
                ! error: cannot run `no-such-program`: there is no such program
                ! hint: name a program that is installed, or its path
                exit 1
            "#]],
        );
        assert_eq!(fixture.files("work"), before);
    });
}

#[test]
fn a_check_goes_stale_and_a_merge_can_require_it() {
    for_each_store("", |fixture| {
        let main = fixture.work(None, "Begin", "mkdir src; echo 1 > src/n.txt");
        let whole = "test -e src/n.txt";
        fixture.check(
            &["check", whole],
            &expect![[r#"
                STEP1 test -e src/n.txt  passed
                ! note: using the newest session, S1
                ! no sandbox: tools start in FOLDER/work and can do anything you can
                exit 0
            "#]],
        );
        fixture.check(
            &["check", "cat src/n.txt", "--input", "src"],
            &expect![[r#"
                1
                STEP1 cat src/n.txt  passed
                ! note: using the newest session, S1
                ! no sandbox: tools start in FOLDER/work and can do anything you can
                exit 0
            "#]],
        );
        fixture.check(
            &["check", "printf no; exit 3"],
            &expect![[r#"
                no
                STEP1 printf no; exit 3  failed
                ! note: using the newest session, S1
                ! no sandbox: tools start in FOLDER/work and can do anything you can
                exit 1
            "#]],
        );
        fixture.work(Some(&main), "Go on", "echo hi > other.txt");
        // It depends on what changed, or not.
        fixture.check(
            &["check"],
            &expect![[r#"
                STEP1 cat src/n.txt  passed
                STEP2 printf no; exit 3  failed, stale: files changed since
                STEP3 test -e src/n.txt  passed, stale: files changed since
                ! note: using the newest session, S1
                exit 0
            "#]],
        );
        fixture.check(&["check", "--json"], &expect![[r#"
            {"check":"cat src/n.txt","fresh":true,"inputs":["src"],"output":"1\n","step":"STEP1","tree":"git:656c4f05ba29e63eb71726cd89c7f55194755d31","verdict":"passed"}
            {"check":"printf no; exit 3","fresh":false,"inputs":[],"output":"no","step":"STEP2","tree":"git:656c4f05ba29e63eb71726cd89c7f55194755d31","verdict":"failed"}
            {"check":"test -e src/n.txt","fresh":false,"inputs":[],"output":"","step":"STEP3","tree":"git:656c4f05ba29e63eb71726cd89c7f55194755d31","verdict":"passed"}
            ! note: using the newest session, S1
            exit 0
        "#]]);
        fixture.check(
            &["check", "true", "--input", "scr"],
            &expect![[r#"
                ! note: using the newest session, S1
                ! no sandbox: tools start in FOLDER/work and can do anything you can
                ! error: there is no file `scr` that the check could depend on
                ! hint: paths are relative to the workspace; ignored files do not count
                exit 1
            "#]],
        );
        let (ours, theirs) = (fixture.fork(&main), fixture.fork(&main));
        fixture.work(Some(&ours), "Ours", "echo ours > ours.txt");
        fixture.work(Some(&theirs), "Theirs", "echo theirs > theirs.txt");
        let merge = |check: &'static str| ["merge", &ours, &theirs, "--require", check].map(str::to_owned);
        let merge = |check, expected| fixture.check(&merge(check).each_ref().map(String::as_str), expected);
        merge(
            "make test",
            &expect![[r#"
                ! error: the check `make test` never ran (session S2)
                ! hint: `rath check 'make test' --session S2 --store STORE` runs it
                exit 1
            "#]],
        );
        merge(
            "printf no; exit 3",
            &expect![[r#"
                ! error: the check `printf no; exit 3` did not pass (session S2)
                ! hint: `rath check 'printf no; exit 3' --session S2 --store STORE` runs it
                exit 1
            "#]],
        );
        merge(
            whole,
            &expect![[r#"
                ! error: the check `test -e src/n.txt` passed on other files than there are now (session S2)
                ! hint: `rath check 'test -e src/n.txt' --session S2 --store STORE` runs it
                exit 1
            "#]],
        );
        // A check whose inputs did not change still holds.
        merge(
            "cat src/n.txt",
            &expect![[r#"
                S4
                ! merging 6 steps of S2 and 6 steps of S3, since step STEP1
                ! +theirs.txt
                ! merged files are in work
                ! `rath resume S4 'Go on.' --store STORE` continues it
                exit 0
            "#]],
        );
        for id in [&ours, &theirs] {
            assert_eq!(fixture.code(&["check", whole, "--session", id]), 0);
        }
        // A change by hand that no turn has recorded yet counts as well.
        let status = &fixture.json(&["status", &theirs, "--json"])[0];
        let file = std::path::Path::new(status["directory"].as_str().expect("a directory")).join("theirs.txt");
        std::fs::write(&file, "by hand\n").expect("written");
        let listed = fixture.out(&["check", whole, "--session", &theirs]);
        assert!(listed.contains("passed"), "it runs: {listed}");
        std::fs::write(&file, "again\n").expect("written");
        let listed = fixture.out(&["check", "--session", &theirs]);
        assert!(
            listed.lines().any(|line| line.ends_with("test -e src/n.txt  passed, stale: files changed since")),
            "{listed}"
        );
        assert_eq!(fixture.code(&["merge", &ours, &theirs, "--require", whole]), 1);
        std::fs::write(&file, "by hand\n").expect("written");
        assert_eq!(fixture.code(&["merge", &ours, &theirs, "--require", whole]), 0);
    });
}

#[test]
fn missing_files_are_explained() {
    for_each_store("", |fixture| {
        fixture.script(r#"{"text": "Hello."}"#);
        assert_eq!(fixture.code(&["run", "Say hello", "--model", "script:script.jsonl", "--sandbox", "none"]), 0);
        let talk = fixture.newest();
        for args in
            [&["blame", "a.txt", &talk][..], &["checkout", &talk, "out"], &["check", "true", "--session", &talk]]
        {
            assert_eq!(fixture.code(args), 1, "{args:?}");
        }
        fixture.check(
            &["diff", &talk, &talk],
            &expect![[r#"
                ! error: no files are recorded in session S1 at step STEP1
                ! hint: files are recorded when an agent with tools runs in a sandbox
                exit 1
            "#]],
        );
        fixture.check(
            &["bisect", &talk, "--", "true"],
            &expect![[r#"
                ! error: no files are recorded in session S1 at step STEP1
                ! hint: files are recorded when an agent with tools runs in a sandbox
                exit 1
            "#]],
        );
        fixture.check(
            &["check", "true", "--session", &talk],
            &expect![[r#"
                ! error: session S1 has no directory in which a check could run
                ! hint: it was run with `--sandbox none`
                exit 1
            "#]],
        );
        let id = fixture.work(None, "Begin", "echo 1 > n.txt");
        let early = format!("{id}@{}", fixture.step(&id, "user: Begin"));
        fixture.check(
            &["checkout", &early, "out"],
            &expect![[r#"
                ! error: no files are recorded in session S2 at step STEP1
                ! hint: files are recorded when an agent with tools runs in a sandbox
                exit 1
            "#]],
        );
        fixture.check(
            &["restore", &early],
            &expect![[r#"
                ! error: no files are recorded in session S2 at step STEP1
                ! hint: files are recorded when an agent with tools runs in a sandbox
                exit 1
            "#]],
        );
        assert!(!fixture.path("out").exists());
        // A session file reads what is kept where it worked, and works nowhere itself.
        assert_eq!(fixture.code(&["export", &id, "--as", "bundle", "-o", "s.rath"]), 0);
        fixture.check(
            &["blame", "n.txt", "s.rath"],
            &expect![[r#"
                STEP1 during shell            1  1
                exit 0
            "#]],
        );
        fixture.check(
            &["restore", "s.rath"],
            &expect![[r#"
                ! error: wanted a session in a store, found the file s.rath
                ! hint: `rath checkout s.rath files` writes its files to the directory files
                exit 2
            "#]],
        );
        fixture.check(
            &["check", "true", "--session", "s.rath"],
            &expect![[r#"
                ! error: wanted a session in a store, found the file s.rath
                ! hint: `rath import s.rath --store STORE` copies it into the store
                exit 2
            "#]],
        );
        fixture.check(
            &["fork", "s.rath"],
            &expect![[r#"
                ! error: wanted a session in a store, found the file s.rath
                ! hint: `rath import s.rath --store STORE` copies it into the store
                exit 2
            "#]],
        );
        let versions = |name: &str| fixture.path(Path::new("work/.rath").join(name).to_str().expect("UTF-8"));
        std::fs::rename(versions("workspace"), versions("elsewhere")).expect("moved");
        fixture.check(
            &["blame", "n.txt", &id],
            &expect![[r#"
                ! error: the recorded files of this session are not in this copy
                ! hint: run this in the project's directory, or in a sandbox that has the files
                exit 3
            "#]],
        );
        std::fs::rename(fixture.path("work"), fixture.path("gone")).expect("moved");
        fixture.check(
            &["check", "true", "--session", &id],
            &expect![[r#"
                ! error: tools cannot run at local:FOLDER/work: cannot work in `FOLDER/work`: No such file or directory (os error 2)
                ! hint: `rath resume S2 'Go on.' --sandbox local:. --anyway --store STORE` continues in this directory (this is recorded)
                exit 3
            "#]],
        );
    });
}

#[test]
fn a_reading_command_in_another_directory_creates_nothing_there() {
    for_each_store("", |fixture| {
        fixture.script_command("echo b > b.txt");
        assert_eq!(fixture.code(&["run", "Go", "--sandbox", "local:.", "--model", "script:script.jsonl"]), 0);
        let (id, other) = (fixture.newest(), fixture.path("other"));
        std::fs::create_dir(&other).expect("a directory");
        let (kind, path) = fixture.store.split_once(':').expect("a URI");
        let store = format!("{kind}:../{path}");
        let at = format!("{id}@{}", fixture.step(&id, "user: Go"));
        let rows: [&[&str]; 11] = [
            &["ls"],
            &["log", "-v", &id],
            &["cost", &id],
            &["verify", &id],
            &["render", &id],
            &["diff", &at, &id],
            &["blame", "b.txt", &id],
            &["replay", &id],
            &["replay", &id, "--tools"],
            &["checkout", &id, "../copy"],
            &["bisect", &id, "--", "true"],
        ];
        for row in rows {
            let (own, rest) = row.split_at(row.iter().position(|word| *word == "--").unwrap_or(row.len()));
            let mut command = rath_test_support::program(crate::program_path());
            command.args(own).args(["--store", &store]).args(rest).current_dir(&other);
            let output = command.output().expect("rath runs");
            assert_ne!(output.status.code(), Some(2), "{row:?}: {}", String::from_utf8_lossy(&output.stderr));
            let left: Vec<_> = std::fs::read_dir(&other).expect("listed").flatten().map(|it| it.file_name()).collect();
            assert!(left.is_empty(), "{row:?}: {left:?}");
        }
    });
}

#[test]
fn a_resumed_fork_says_where_it_works() {
    for_each_store("", |fixture| {
        let id = fixture.work_in("isolated:work", "Go", "echo b > b.txt");
        let fork = fixture.fork(&id);
        for (session, is_fork) in [(&fork, true), (&fork, true), (&id, false)] {
            fixture.script_command("true");
            let output = fixture.rath(&["resume", session, "More", "--model", "script:script.jsonl"]);
            let printed = String::from_utf8_lossy(&output.stderr).into_owned();
            let line = printed.lines().find(|line| line.starts_with("sandbox: ")).expect("a line about the sandbox");
            assert_eq!(line.contains("/work/.rath/work/"), is_fork, "{line}");
        }
    });
}
