//! Tests of commands on sessions in stores.

use expect_test::expect;
use rath::chunk::Call;
use rath::prelude::*;

use crate::fixture::{Fixture, for_each_store, replace};
use crate::{LOOK, workshop};

const ASK: [&str; 6] = ["run", "What is here?", "--model", "script:script.jsonl", "--sandbox", "local:work"];

/// Runs an agent once. Returns the short id of its session.
fn asked(fixture: &Fixture) -> String {
    assert_eq!(fixture.code(&ASK), 0);
    fixture.newest()
}

#[test]
fn run_keeps_a_session_that_every_command_reads() {
    for_each_store(LOOK, |fixture| {
        fixture.check(
            &ASK,
            &expect![[r#"
                Let me look.
                It says hello.
                ! no sandbox: tools start in FOLDER/work and can do anything you can
                ! ✓ read_file a.txt
                ! ✗ shell exit 3  failed
                !   │ exit code 3
                ! done in TIME: 4,079 tokens
                ! saved as S1; `rath log S1 --store STORE` shows the steps
                exit 0
            "#]],
        );
        let id = fixture.newest();
        fixture.check(
            &["ls"],
            &expect![[r#"
                S1  TIME  4,079 tokens  done  What is here?  in FOLDER/work
                exit 0
            "#]],
        );
        fixture.check(
            &["log", "-v", &id, "-n", "2"],
            &expect![[r#"
                ○  STEP1 main  assistant: It says hello.  [agent]  (2080 in, 4 out)
                ○  STEP2 main  tool result: call_2_2 failed: exit code 3  [agent]
                ~
                exit 0
            "#]],
        );
        fixture.check(
            &["show", &id, "8f73"],
            &expect![[r#"
                step     STEP1
                kind     user
                branch   main SESSION1
                at       TIME

                What is here?
                exit 0
            "#]],
        );
        fixture.check(
            &["cost", &id],
            &expect![[r#"
                script:script           4059 in, 20 out  no price
                total of priced models                   $0.00
                ! hint: `rath cost --help` tells how to give the prices of other models
                exit 0
            "#]],
        );
        fixture.check(
            &["verify", &id],
            &expect![[r#"
                intact: 10 steps, 1 file version
                exit 0
            "#]],
        );
        fixture.check(
            &["verify"],
            &expect![[r#"
                intact: 1 branch, 10 steps, 1 file version
                exit 0
            "#]],
        );
        fixture.check(
            &["verify", "--json"],
            &expect![[r#"
                {"branches":1,"damage":[],"files":{"absent":0,"bytes":39,"checked":1,"damage":[],"directories":1,"forgotten":0,"unlisted":0},"steps":10,"whole":true}
                exit 0
            "#]],
        );
        fixture.check(
            &["review", &id],
            &expect![[r#"
                ! nothing is waiting for you
                exit 0
            "#]],
        );
        fixture.check(&["ls", "--json"], &expect![[r#"
            {"session":"SESSION1","family":"SESSION1","head":"STEP1","at":"TIME","chunks":10,"usage":{"input":4059,"output":20},"next":"done","open_calls":0,"is_tip":true,"written_by":null,"place":"local:FOLDER/work","is_guest":false,"title":"What is here?"}
            exit 0
        "#]]);
        // `--as-sent` prints the request and nothing else.
        let sent = fixture.out(&["show", &id, "head", "--as-sent"]);
        assert_eq!(fixture.out(&["render", &id]), format!("{sent}\n"));
        let head = &fixture.json(&["show", &id, "head", "--json"])[0];
        assert_eq!(head["chunk"]["request"], rath::Digest::compute(sent.as_bytes()).to_string());
        fixture.check(
            &["show", &id, "8f73", "--as-sent"],
            &expect![[r#"
                ! error: step STEP1 is not an answer of a model
                ! hint: `rath render S1 8f73 --to openai:gpt-5 --store STORE` shows the request that would be sent now
                exit 1
            "#]],
        );
        // A session is named by either end of its id, or by its newest step.
        let whole = &fixture.json(&["ls", "--json"])[0];
        let names = [&whole["session"], &whole["head"]].map(|name| name.as_str().expect("an id").to_owned());
        for name in [&*names[0], &names[0][..12], &names[0].to_uppercase()[20..], &names[1][..6]] {
            assert_eq!(fixture.out(&["log", "-v", name]), fixture.out(&["log", "-v", &id]), "{name}");
        }
    });
}

#[test]
fn resume_continues_if_nothing_changed() {
    for_each_store(LOOK, |fixture| {
        let id = asked(fixture);
        let resume = ["resume", &id, "And now?", "--model", "script:script.jsonl"];
        let placed = [&resume[..], &["--sandbox", "local:work"]].concat();
        fixture.script(r#"{"text": "Still hello."}"#);
        fixture.check(
            &resume,
            &expect![[r#"
                Still hello.
                ! nothing changed since the last turn
                ! no sandbox: tools start in FOLDER/work and can do anything you can
                ! done in TIME: 2,104 tokens
                ! saved as S1; `rath log S1 --store STORE` shows the steps
                exit 0
            "#]],
        );
        fixture.check(
            &placed,
            &expect![[r#"
                Still hello.
                ! nothing changed since the last turn
                ! no sandbox: tools start in FOLDER/work and can do anything you can
                ! done in TIME: 2,125 tokens
                ! saved as S1; `rath log S1 --store STORE` shows the steps
                exit 0
            "#]],
        );
        fixture.check(
            &["resume", &id, "--model", "script:script.jsonl", "--sandbox", "local:work"],
            &expect![[r#"
                ! error: nothing to do: there is no prompt, and no unfinished turn to continue
                ! hint: `rath resume S1 'Go on.' --sandbox local:work --store STORE` continues it
                exit 1
            "#]],
        );
        fixture.write("other.jsonl", r#"{"text": "Other."}"#);
        let other = ["resume", &id, "And you?", "--model", "script:other.jsonl", "--sandbox", "local:work"];
        fixture.check(
            &other,
            &expect![[r#"
                Other.
                ! the model was script:script and is script:other
                ! no sandbox: tools start in FOLDER/work and can do anything you can
                ! done in TIME: 2,146 tokens
                ! saved as S1; `rath log S1 --store STORE` shows the steps
                exit 0
            "#]],
        );
        fixture.check(&["log", "-v", &id, "-n", "5"], &expect![[r#"
            ○  STEP1 main  assistant: Other.  [agent]  (2144 in, 2 out)
            ○  STEP2 main  note: from script:script to script:other: rewritten: 2 call ids  [agent]
            ○  STEP3 main  instructions: You are a careful assistant. Do what the user asks, with th… (tools: read_file, list_files, file_exists, search_files, write_fil…)  [agent]
            ○  STEP4 main  user: And you?
            ○  STEP5 main  resumed: the model was script:script and is script:other
            ~
            exit 0
        "#]]);
        fixture.check(
            &["show", &id, "head", "--as-sent", "--json"],
            &expect![[r#"
                ! error: `--as-sent` cannot be used with `--json`
                ! hint: leave one of them out; `rath show --help` describes them
                exit 2
            "#]],
        );
        let go_on = ["run", "More.", "--session", &id, "--model", "script:other.jsonl", "--sandbox", "local:work"];
        fixture.check(
            &go_on,
            &expect![[r#"
                Other.
                ! nothing changed since the last turn
                ! no sandbox: tools start in FOLDER/work and can do anything you can
                ! done in TIME: 2,164 tokens
                ! saved as S1; `rath log S1 --store STORE` shows the steps
                exit 0
            "#]],
        );
        fixture.check(
            &[&resume[..], &["--sandbox", "local:none"]].concat(),
            &expect![[r#"
                ! the model was script:other and is script:script
                ! error: cannot work in `FOLDER/none`: No such file or directory (os error 2)
                ! hint: the directory has to be there
                exit 1
            "#]],
        );
        assert_eq!(fixture.json(&["ls", "--all", "--json"]).len(), 1);
    });
}

#[test]
fn a_system_prompt_is_kept_on_resume() {
    for_each_store(r#"{"text": "Arr."}"#, |fixture| {
        let model = ["--model", "script:script.jsonl"];
        assert_eq!(fixture.code(&[&["run", "Hi.", "--system", "You are a pirate."], &model[..]].concat()), 0);
        let id = fixture.newest();
        assert_eq!(fixture.code(&[&["resume", &id, "Again."], &model[..]].concat()), 0);
        let other = [&["resume", &id, "Again.", "--system", "You are a clerk."], &model[..]].concat();
        fixture.check(
            &other,
            &expect![[r#"
            Arr.
            ! the prompt has changed
            ! sandbox: writes only in FOLDER, no network
            ! done in TIME: 1,994 tokens
            ! saved as S1; `rath log S1 --store STORE` shows the steps
            exit 0
        "#]],
        );
    });
}

#[test]
fn one_process_writes_a_session_and_others_fork_it() {
    for_each_store(r#"{"text": "Slow.", "delay_ms": 60000}"#, |fixture| {
        let model = ["--model", "script:script.jsonl"];
        let mut running =
            fixture.start(&[&["run", "Take your time.", "--sandbox", "isolated:work"], &model[..]].concat());
        let is_asked = || fixture.json(&["ls", "--json"]).first().is_some_and(|it| it["chunks"] == 4);
        while !is_asked() {
            std::thread::yield_now();
        }
        let id = fixture.newest();
        fixture.script(r#"{"text": "Quick."}"#);
        fixture.check(
            &["ls"],
            &expect![[r#"
                S1  TIME  0 tokens  running in process N on HOST  Take your time.  in FOLDER/work
                exit 0
            "#]],
        );
        fixture.check(
            &["review", &id],
            &expect![[r#"
                ! running in process N on HOST: calls without a result may still be running
                ! nothing is waiting for you
                exit 0
            "#]],
        );
        let resume = [&["resume", &id], &model[..]].concat();
        fixture.check(
            &resume,
            &expect![[r#"
            ! error: the session S1 is being written by process N on HOST
            ! hint: wait until it is done, or continue on a new branch: `rath resume S1 --store STORE --fork`
            exit 1
        "#]],
        );
        fixture.check(
            &["gc", "--delete", &id],
            &expect![[r#"
                ! note: files in work/.rath were left alone: a process N there
                ! error: the session S1 is being written by process N on HOST
                ! hint: wait until that process N done, or stop it
                exit 1
            "#]],
        );
        fixture.check(
            &[&resume[..], &["--fork"]].concat(),
            &expect![[r#"
                Quick.
                ! nothing changed since the last turn
                ! sandbox: writes only in FOLDER/work/.rath/work/SESSION2, no network
                ! forked as S2
                ! done in TIME: 1,982 tokens
                ! saved as S2; `rath log S2 --store STORE` shows the steps
                exit 0
            "#]],
        );
        let fork = fixture.newest();
        fixture.check(
            &["log", "-v", &fork],
            &expect![[r#"
                ○  STEP1 b1  assistant: Quick.  [agent]  (1980 in, 2 out)
                ○  STEP2 b1  forked
                ○  STEP3 main  instructions: You are a careful assistant. Do what the user asks, with th… (tools: read_file, list_files, file_exists, search_files, write_fil…)  [agent]
                ○  STEP4 main  files recorded: STEP5  [agent]
                ○  STEP6 main  sandbox: isolated:FOLDER/work
                ○  STEP7 main  user: Take your time.
                exit 0
            "#]],
        );
        let interrupt = rath_test_support::program("kill").args(["-INT", &running.id().to_string()]).status();
        assert!(interrupt.expect("kill runs").success());
        assert_eq!(running.wait().expect("it ends").code(), Some(130));
        fixture.check(
            &resume,
            &expect![[r#"
                Quick.
                ! nothing changed since the last turn
                ! sandbox: writes only in FOLDER/work, no network
                ! done in TIME: 1,982 tokens
                ! saved as S1; `rath log S1 --store STORE` shows the steps
                exit 0
            "#]],
        );
        fixture.check(
            &["verify"],
            &expect![[r#"
                intact: 2 branches, 8 steps, 1 file version
                exit 0
            "#]],
        );
        fixture.check(
            &["ls"],
            &expect![[r#"
                S2  TIME  1,982 tokens  done  Take your time.  in FOLDER/work
                S1  TIME  1,982 tokens  done  Take your time.  in FOLDER/work
                exit 0
            "#]],
        );
    });
}

/// A command that changes two files and waits.
const CHANGING: &str = r#"
{"text": "Look.", "calls": [{"name": "shell", "arguments": {"command": "sh change.sh"}}]}
"#;

#[test]
fn every_request_to_stop_is_obeyed_alike() {
    for_each_store(CHANGING, |fixture| {
        for signal in ["-INT", "-TERM", "-HUP"] {
            fixture.script(CHANGING);
            fixture.write("work/.envrc", "export A=1\n");
            fixture.write("work/a.txt", "old\n");
            let change = "echo evil > .envrc; echo new > a.txt; echo x > hold; sleep 60";
            fixture.write("work/change.sh", change);
            let _ = std::fs::remove_file(fixture.path("work/hold"));
            let sandboxed = [&ASK[..5], &["isolated:work"]].concat();
            let mut running = fixture.start(&sandboxed);
            rath_test_support::wait_until("the command runs", || fixture.path("work/hold").exists());
            let sent = rath_test_support::program("kill").args([signal, &running.id().to_string()]).status();
            assert!(sent.expect("kill runs").success());
            assert_eq!(running.wait().expect("it ends").code(), Some(130), "{signal}");
            let envrc = std::fs::read_to_string(fixture.path("work/.envrc")).expect("it is there");
            assert_eq!(envrc, "export A=1\n", "{signal}: it is put back");
            let log = fixture.out(&["log", "-v", &fixture.newest()]);
            assert!(log.contains("~a.txt") && log.contains("interrupted"), "{signal}: {log}");
        }
    });
}

/// A command that waits when it runs first, and ends at once when it runs again.
const LONG: &str = r#"
{"text": "Look.", "calls": [{"name": "shell", "arguments": {"command": "echo x >> hold; test $(wc -l < hold) -gt 1 || while test -e hold; do sleep 0.05; done"}}, {"name": "read_file", "arguments": {"path": "a.txt"}}]}
"#;

/// Starts a session and kills its process in the middle of a call.
fn crashed(fixture: &Fixture) -> String {
    let mut running = fixture.start(&ASK);
    // The shell creates the file before it writes to it.
    while !std::fs::read(fixture.path("work/hold")).is_ok_and(|written| written.ends_with(b"\n")) {
        std::thread::yield_now();
    }
    running.kill().expect("it is killed");
    running.wait().expect("it ends");
    fixture.script(r#"{"text": "Well."}"#);
    fixture.newest()
}

#[test]
fn a_call_interrupted_by_a_crash_waits_for_a_decision() {
    for_each_store(LONG, |fixture| {
        let id = crashed(fixture);
        let call = &fixture.json(&["review", &id, "--json"])[0]["call"];
        let call = call.as_str().expect("a call");
        fixture.check(
            &["ls"],
            &expect![[r#"
                S1  TIME  2,013 tokens  stopped during: shell echo x >> hold; te…  What is here?  in FOLDER/work
                exit 0
            "#]],
        );
        fixture.check(&["review", &id], &expect![[r#"
            call_2_1  shell {"command":"echo x >> hold; test $(wc -l < hold) -gt 1 || while test -e hold; do sleep 0.05; done"}
              waiting for you since TIME; it was interrupted, and may or may not have finished
            call_2_2  read_file {"path":"a.txt"}
              not started since TIME; made on resume, if your rules allow it
            ! hint: `rath review S1 --approve call_2_1 --store STORE` runs it again
            ! hint: `rath review S1 --deny call_2_1 --store STORE` refuses it
            ! hint: `rath review --help` shows the other ways to decide
            exit 4
        "#]]);
        let resume = ["resume", &id, "--model", "script:script.jsonl", "--sandbox", "local:work"];
        fixture.check(
            &resume,
            &expect![[r#"
                ! the last run did not end properly: process N on HOST
                ! 2 things changed since the last turn:
                ! - hold added after `shell` started, by this call or by others
                ! - a call of `shell` was interrupted, and may or may not have finished
                ! no sandbox: tools start in FOLDER/work and can do anything you can
                ! saved as S1; `rath log S1 --store STORE` shows the steps
                ! error: may have taken effect, and its end is unknown: `call_2_1` (shell)
                ! hint: `rath review S1 --store STORE` shows what is waiting for you
                exit 4
            "#]],
        );
        fixture.check(
            &["review", &id, "--approve", call],
            &expect![[r#"
                call_2_2  read_file {"path":"a.txt"}
                  not started since TIME; made on resume, if your rules allow it
                ! 1 decision recorded
                ! hint: `rath review S1 --approve call_2_2 --store STORE` lets it run
                ! hint: `rath review S1 --deny call_2_2 --store STORE` refuses it
                ! hint: `rath review --help` shows the other ways to decide
                exit 4
            "#]],
        );
        std::fs::remove_file(fixture.path("work/a.txt")).expect("removed");
        fixture.check(
            &resume,
            &expect![[r#"
                Well.
                ! a.txt deleted since the last turn
                ! no sandbox: tools start in FOLDER/work and can do anything you can
                ! ✓ shell echo x >> hold; test $(wc -l < hold) -gt 1 || while test -e…
                !   hold
                !   @@ -1,1 +1,2 @@
                !    x
                !   +x
                ! ✗ read_file a.txt  failed
                !   │ cannot read `a.txt`: there is no such file
                ! done in TIME: 1 file changed, 2,144 tokens
                ! saved as S1; `rath log S1 --store STORE` shows the steps
                exit 0
            "#]],
        );
        fixture.check(
            &[&resume[..], &["--anyway"]].concat(),
            &expect![[r#"
                ! error: nothing to do: there is no prompt, and no unfinished turn to continue
                ! hint: `rath resume S1 'Go on.' --sandbox local:work --store STORE --anyway` continues it
                exit 1
            "#]],
        );
        std::fs::remove_file(fixture.path("work/hold")).expect("what was left running ends");
    });
}

#[test]
fn decisions_are_recorded_all_or_none_and_reach_the_model() {
    let decisions: [(&[&str], &str); 4] = [
        (&["--approve", "CALL"], " ok"),
        (&["--deny", "CALL", "--reason", "too slow"], " denied: too slow"),
        (&["--skip", "CALL"], " unknown: it was started"),
        (&["--result", "CALL", "found.txt"], " ok: it was done"),
    ];
    for (decision, result) in decisions {
        for_each_store(LONG, |fixture| {
            let id = crashed(fixture);
            let calls = fixture.json(&["review", &id, "--json"]);
            let [first, second] = [0, 1].map(|nth| calls[nth]["call"].as_str().expect("a call").to_owned());
            fixture.write("found.txt", "it was done");
            assert_eq!(fixture.code(&["review", &id, "--skip", &second, "--approve", "nope"]), 1);
            assert_eq!(fixture.code(&["review", &id, "--skip", &second, "--deny", &second]), 2);
            assert_eq!(fixture.code(&["review", &id, "--approve", &first, "--approve", &first]), 2);
            assert_eq!(fixture.json(&["review", &id, "--json"]), calls);
            let decision = decision.iter().map(|word| if *word == "CALL" { &first } else { *word });
            assert_eq!(fixture.code(&["review", &id].into_iter().chain(decision).collect::<Vec<_>>()), 4);
            assert_eq!(fixture.code(&["review", &id, "--approve", &second]), 0);
            let resume = ["resume", &id, "--model", "script:script.jsonl", "--sandbox", "local:work"];
            assert_eq!(fixture.code(&resume), 0);
            let log = fixture.out(&["log", "-v", &id]);
            assert!(log.contains(&format!("tool result: {first}{result}")), "{log}");
            assert!(log.contains(&format!("tool result: {second} ok: hello")), "{log}");
            assert_eq!(fixture.code(&["verify"]), 0);
            std::fs::remove_file(fixture.path("work/hold")).expect("what was left running ends");
        });
    }
}

#[test]
fn a_command_that_fails_gives_the_session_back() {
    for_each_store(LOOK, |fixture| {
        let id = asked(fixture);
        let resume = ["resume", &id, "Go on.", "--model", "script:script.jsonl", "--sandbox", "local:work"];
        std::fs::rename(fixture.path("work"), fixture.path("moved")).expect("moved");
        assert_eq!(fixture.code(&resume), 3);
        std::fs::rename(fixture.path("moved"), fixture.path("work")).expect("moved");
        fixture.write("work/a.txt", "changed since\n");
        let restore = format!("{id}@head");
        assert_eq!(fixture.code(&["restore", &restore]), 0);
        fixture.script(r#"{"error": {"kind": "key"}}"#);
        assert_eq!(fixture.code(&resume), 1);
        for listed in fixture.json(&["ls", "--all", "--json"]) {
            assert!(listed["written_by"].is_null(), "{listed}");
        }
    });
}

#[test]
fn damage_is_listed_and_the_rest_is_copied() {
    for_each_store(LOOK, |fixture| {
        let id = asked(fixture);
        fixture.damage("exit code 3", "exit code 4");
        for args in [&["verify"][..], &["verify", &id], &["log", "-v", &id], &["export", &id]] {
            assert_eq!(fixture.code(args), 3, "{args:?}");
        }
        let report = &fixture.json(&["verify", &id, "--json"])[0];
        assert_eq!(report["whole"], false);
        assert_eq!(
            report["damage"][0]["fault"].as_str().map(|it| it.contains("does not match")),
            Some(true),
            "{report}"
        );
        let resume = ["resume", &id, "Go on.", "--model", "script:script.jsonl", "--sandbox", "local:work"];
        assert_eq!(fixture.code(&resume), 3);
        let out = fixture.out(&["salvage", &id, "copy.rath"]);
        assert!(
            out.contains("lost: step ") && out.contains("copied 9 steps to copy.rath: the copy marks what is lost"),
            "{out}"
        );
        assert_eq!(fixture.code(&["salvage", &id, "other.rath"]), 3);
        fixture.check(
            &["salvage", &id, "copy.rath"],
            &expect![[r#"
            ! error: cannot write copy.rath: there is a file of that name
            ! hint: choose another file name
            exit 1
        "#]],
        );
        fixture.check(
            &["verify", "copy.rath"],
            &expect![[r#"
                1 item marked as missing: lost earlier, or removed by `rath forget`
                intact: 12 rows, 9 steps, N bytes
                files not checked: the steps name some, and the file holds none
                exit 0
            "#]],
        );
        fixture.check(&["log", "-v", "copy.rath"], &expect![[r#"
            ○  STEP1 main  assistant: It says hello.  [agent]  (2080 in, 4 out)
            │
            ~

            ○  STEP2 main  tool started: call_2_2  [agent]
            ○  STEP3 main  tool result: call_2_1 ok: hello  [agent]
            ○  STEP4 main  tool started: call_2_1  [agent]
            ○  STEP5 main  assistant: Let me look. calls read_file({"path":"a.txt"}), shell({"command":"exit 3"})  [agent]  (1979 in, 16 out)
            ○  STEP6 main  instructions: You are a careful assistant. Do what the user asks, with th… (tools: read_file, list_files, file_exists, search_files, write_fil…)  [agent]
            ○  STEP7 main  files recorded: STEP8  [agent]
            ○  STEP9 main  sandbox: local:FOLDER/work
            ○  STEP10 main  user: What is here?
            exit 0
        "#]]);
        for store in ["sqlite:copy.db", "jsonl:copies"] {
            assert_eq!(fixture.code(&["salvage", &id, store]), 3);
            let list = crate::printed(&fixture.path(""), &["ls", "--all", "--store", store]);
            assert!(list.contains("What is here?"), "{list}");
        }
    });
}

#[test]
fn salvage_copies_an_undamaged_session_completely() {
    for_each_store(LOOK, |fixture| {
        let id = asked(fixture);
        fixture.check(
            &["salvage", &id, "copy.rath"],
            &expect![[r#"
                copied 10 steps to copy.rath: nothing is lost
                exit 0
            "#]],
        );
        fixture.check(
            &["salvage", "copy.rath", "again.rath", "--json"],
            &expect![[r#"
                {"damage":[],"lost_payloads":[],"lost_steps":[],"steps":10}
                exit 0
            "#]],
        );
        assert_eq!(std::fs::read(fixture.path("copy.rath")).ok(), std::fs::read(fixture.path("again.rath")).ok());
        replace(&fixture.path("copy.rath"), "It says hello.", "It says jello.");
        assert_eq!(fixture.code(&["salvage", "copy.rath", "third.rath"]), 3);
        assert_eq!(fixture.code(&["verify", "third.rath"]), 0);
        // The file of a store is a session file like any other.
        if fixture.store.starts_with("jsonl") {
            let whole = fixture.json(&["ls", "--json"])[0]["session"].as_str().expect("an id").to_owned();
            assert_eq!(fixture.code(&["salvage", &format!(".rath/s/{whole}.jsonl"), "fourth.rath"]), 0);
        }
    });
}

#[test]
fn a_bundle_goes_from_store_to_store() {
    for_each_store(LOOK, |fixture| {
        let id = asked(fixture);
        let there = |args: &[&str]| crate::printed(&fixture.path(""), args);
        assert_eq!(fixture.code(&["export", &id, "--as", "bundle", "-o", "b.rath"]), 0);
        let bundle = std::fs::read(fixture.path("b.rath")).expect("read");
        assert_eq!(fixture.out(&["export", &id, "--as", "bundle"]).as_bytes(), bundle);
        fixture.check(
            &["verify", "b.rath"],
            &expect![[r#"
                intact: 14 rows, 10 steps, 1 file version, N bytes
                exit 0
            "#]],
        );
        for store in ["sqlite:new/other.db", "jsonl:others"] {
            assert_eq!(there(&["import", "b.rath", "--store", store]), format!("{id}\n"));
            let again = there(&["import", "b.rath", "--json", "--store", store]);
            assert!(again.contains(r#""new":false"#) && again.contains(r#""steps":10"#), "{again}");
            assert_eq!(there(&["log", "-v", &id, "--store", store]), fixture.out(&["log", "-v", &id]));
            assert!(there(&["verify", "--store", store]).starts_with("intact: 1 branch, 10 steps"));
        }
        // An older bundle adds nothing to the store that continued; a newer bundle adds the new steps to the others.
        fixture.script(r#"{"text": "Still hello."}"#);
        assert_eq!(
            fixture.code(&["resume", &id, "And?", "--model", "script:script.jsonl", "--sandbox", "local:work"]),
            0
        );
        fixture.check(
            &["import", "b.rath"],
            &expect![[r#"
                S1
                ! its files are in .rath/workspace
                ! already in the store; `rath log S1 --store STORE` shows the steps
                exit 0
            "#]],
        );
        assert_eq!(fixture.code(&["export", &id, "--as", "bundle", "-o", "newer.rath"]), 0);
        for store in ["sqlite:new/other.db", "jsonl:others"] {
            assert_eq!(there(&["import", "newer.rath", "--store", store]), format!("{id}\n"));
            let whole = there(&["verify", "--store", store]);
            assert!(whole.starts_with("intact: 1 branch, 12 steps"), "{whole}");
        }
        assert_eq!(fixture.code(&["export", &id, "-o", "graph.jsonl"]), 0);
        fixture.check(
            &["verify", "graph.jsonl"],
            &expect![[r#"
                intact: a graph of 1 session; every seal matches and no parent is missing
                exit 0
            "#]],
        );
    });
}

#[test]
fn sessions_are_exported_to_other_formats_and_imported_again() {
    for_each_store(LOOK, |fixture| {
        let id = asked(fixture);
        for format in ["openrath", "atif"] {
            let file = format!("{format}.out");
            assert_eq!(fixture.code(&["export", &id, "--as", format, "-o", &file]), 0);
        }
        for format in ["openrath", "atif"] {
            assert_eq!(fixture.code(&["gc", "--delete", &id]), 0);
            assert_eq!(fixture.code(&["import", &format!("{format}.out")]), 0, "{format}");
            assert_eq!(fixture.newest(), id, "{format}");
            assert!(fixture.out(&["log", "-v", &id]).contains("assistant: It says hello."), "{format}");
            assert_eq!(fixture.json(&["ls", "--json"])[0]["next"], "done", "{format}");
        }
        fixture.write("a.json", "{\n  \"schema_version\": \"ATIF-v2.0\"}");
        for (args, code) in [(&["import", "a.json"][..], 1), (&["export", &id, "--as", "pdf"], 2)] {
            assert_eq!(fixture.code(args), code, "{args:?}");
        }
    });
}

#[test]
fn replay_repeats_a_session() {
    for_each_store(LOOK, |fixture| {
        let id = asked(fixture);
        fixture.check(
            &["replay", &id],
            &expect![[r#"
                exact: 2 requests
                exit 0
            "#]],
        );
        fixture.check(
            &["replay", &id, "--json"],
            &expect![[r#"
            {"differences":[],"exact":true,"head":"STEP1","requests":2,"steps":10}
            exit 0
        "#]],
        );
        // In a directory that has the files, and in a new one, in which they are restored.
        fixture.check(
            &["replay", &id, "--tools", "--sandbox", "local:work"],
            &expect![[r#"
                exact: 2 requests, 2 calls, 0 files
                ! no sandbox: tools start in FOLDER/work and can do anything you can
                exit 0
            "#]],
        );
        fixture.check(
            &["replay", &id, "--tools"],
            &expect![[r#"
                exact: 2 requests, 2 calls, 0 files
                ! sandbox: writes only in a temporary directory, no network
                exit 0
            "#]],
        );
        fixture.write("other.jsonl", r#"{"text": "I would rather not look."}"#);
        fixture.check(&["replay", &id, "--from", "8f73", "--model", "script:other.jsonl"], &expect![[r#"
            I would rather not look.
            shared up to STEP1  user: What is here?
            - STEP2  sandbox: local:FOLDER/work
            - STEP3  files recorded: STEP4  [agent]
            - STEP5  instructions: You are a careful assistant. Do what the user asks, with th… (tools: read_file, list_files, file_exists, search_files, write_fil…)  [agent]
            - STEP6  assistant: Let me look. calls read_file({"path":"a.txt"}), shell({"command":"exit 3"})  [agent]  (1979 in, 16 out)
            - STEP7  tool started: call_2_1  [agent]
            - STEP8  tool result: call_2_1 ok: hello  [agent]
            - STEP9  tool started: call_2_2  [agent]
            - STEP10  tool result: call_2_2 failed: exit code 3  [agent]
            - STEP11  assistant: It says hello.  [agent]  (2080 in, 4 out)
            + STEP12  forked
            + STEP13  sandbox: isolated:FOLDER/work
            + STEP14  files recorded: STEP4  [agent]
            + STEP15  instructions: You are a careful assistant. Do what the user asks, with th… (tools: read_file, list_files, file_exists, search_files, write_fil…)  [agent]
            + STEP16  assistant: I would rather not look.  [agent]  (1979 in, 6 out)
            usage
            - 4059 in, 20 out
            + 1979 in, 6 out
            last words
            - It says hello.
            + I would rather not look.
            ! sandbox: writes only in FOLDER/work/.rath/work/SESSION2, no network
            ! done in TIME: 1,985 tokens
            ! saved as S2
            exit 0
        "#]]);
        assert_eq!(fixture.code(&["replay", &id, "--from", "8f73"]), 2);
        assert_eq!(fixture.code(&["replay", "ffffffff"]), 1);
    });
}

#[test]
fn the_undamaged_part_of_a_file_is_imported_with_anyway() {
    for_each_store(LOOK, |fixture| {
        let mut session = Session::user("one");
        session.push(Chunk::assistant("two"));
        session.push(Chunk::user("three"));
        session.save_blocking(fixture.path("s.rath")).expect("saved");
        replace(&fixture.path("s.rath"), "two", "tow");
        assert_eq!(fixture.code(&["import", "s.rath"]), 3);
        assert!(!fixture.path(".rath").exists(), "nothing is made");
        assert_eq!(fixture.code(&["import", "s.rath", "--anyway"]), 3);
        let list = fixture.json(&["ls", "--json"]);
        let titles: Vec<_> = list.iter().map(|it| it["title"].as_str().unwrap_or_default()).collect();
        assert_eq!(titles, ["three"]);
        let log = fixture.out(&["log", "-v", &fixture.newest()]);
        assert!(log.contains("user: one") && log.contains("user: three"), "{log}");
        // Once is enough.
        assert_eq!(fixture.code(&["import", "s.rath", "--anyway"]), 3);
        assert_eq!(fixture.out(&["log", "-v", &fixture.newest()]), log);
    });
}

#[test]
fn forget_removes_text_and_gc_frees_space() {
    for_each_store(LOOK, |fixture| {
        let id = asked(fixture);
        fixture.check(
            &["forget", &id, "head"],
            &expect![[r#"
                ! the text of step STEP1 is removed
                exit 0
            "#]],
        );
        fixture.check(
            &["log", "-v", &id, "-n", "1"],
            &expect![[r#"
                ○  STEP1 main  assistant: [forgotten]  [agent]  (2080 in, 4 out)
                ~
                exit 0
            "#]],
        );
        fixture.check(
            &["forget", &id, "zzz"],
            &expect![[r#"
            ! error: wanted the first digits of a step's id, a branch, or `head`, found `zzz`
            ! hint: `rath log S1 --store STORE` lists the steps
            exit 1
        "#]],
        );
        fixture.check(
            &["verify", &id],
            &expect![[r#"
                intact: 10 steps, 1 file version
                exit 0
            "#]],
        );
        assert_eq!(fixture.code(&["export", &id, "--as", "bundle", "-o", "b.rath"]), 0);
        fixture.check(
            &["verify", "b.rath"],
            &expect![[r#"
                1 step without its text: removed by `rath forget`
                intact: 14 rows, 10 steps, 1 file version, N bytes
                exit 0
            "#]],
        );
        fixture.check(
            &["forget", "b.rath", "head"],
            &expect![[r#"
                ! error: wanted a session in a store, found the file b.rath
                ! hint: `rath import b.rath --store STORE` copies it into the store
                exit 2
            "#]],
        );
        let freed = &fixture.json(&["gc", "--delete", &id, "--json"])[0];
        assert_eq!((freed["deleted"].as_array().map(Vec::len), &freed["steps"]), (Some(1), &10.into()));
        fixture.check(
            &["ls"],
            &expect![[r#"
            exit 0
        "#]],
        );
        fixture.check(
            &["gc"],
            &expect![[r#"
                deleted 0 sessions; freed 0 steps, 0 bytes
                exit 0
            "#]],
        );
        assert_eq!(fixture.code(&["gc", "--delete", &id]), 1);
    });
}

#[test]
fn names_of_sessions_that_do_not_exist_are_explained() {
    for_each_store(LOOK, |fixture| {
        for args in [&["ls"][..], &["log", "-v", "abcd"], &["gc"], &["verify"], &["review", "abcd"]] {
            let error = String::from_utf8(fixture.rath(args).stderr).expect("UTF-8");
            assert!(error.starts_with("error: there is no store at .rath/s"), "{error}");
            assert!(
                error.ends_with("hint: `rath run 'What is in this directory?'` makes one; `--store` names another\n"),
                "{error}"
            );
        }
        assert!(!fixture.path(".rath").exists(), "nothing is made by looking");
        let one = asked(fixture);
        let two = asked(fixture);
        assert_ne!(one, two);
        fixture.check(
            &["log", "no-such-file.rath"],
            &expect![[r#"
                ! error: there is no session and no file `no-such-file.rath`
                ! hint: `rath ls --all --store STORE` lists the sessions
                exit 1
            "#]],
        );
        fixture.check(
            &["log", "-v", "abcdefabcdef"],
            &expect![[r#"
                ! error: no session `abcdefabcdef` in STORE
                ! hint: `rath ls --all --store STORE` lists the sessions
                exit 1
            "#]],
        );
        fixture.check(
            &["log", "-v", "00000000-0000-7000-8000-000000000000"],
            &expect![[r#"
                ! error: no session STEP1-0000-7000-8000-000000000000 in STORE
                ! hint: `rath ls` lists them
                exit 1
            "#]],
        );
        let ambiguous = String::from_utf8(fixture.rath(&["log", "0"]).stderr).expect("UTF-8");
        assert!(ambiguous.starts_with("error: `0` may mean any of 2 sessions: "), "{ambiguous}");
        assert!(ambiguous.ends_with("hint: give more of its id\n"), "{ambiguous}");
        fixture.check(
            &["show", &one, "abcdef"],
            &expect![[r#"
                ! error: there is no step `abcdef` in S1
                ! hint: `rath log S1 --store STORE` lists the steps
                exit 1
            "#]],
        );
        fixture.check(
            &["resume", &one, "--model", "foo:x"],
            &expect![[r#"
                ! error: unknown kind of provider `foo`; known: anthropic, gemini, openai, script
                ! hint: use openai:NAME, anthropic:NAME, gemini:NAME or script:FILE
                exit 2
            "#]],
        );
        fixture.write("s.rath", "");
        fixture.check(
            &["resume", "s.rath", "--model", "script:script.jsonl"],
            &expect![[r#"
                ! error: wanted a session in a store, found the file s.rath
                ! hint: `rath import s.rath --store STORE` copies it into the store
                exit 2
            "#]],
        );
        fixture.check(
            &["review", &one, "--approve", "call_9"],
            &expect![[r#"
                ! error: no call `call_9` waits for a decision
                ! hint: every call in this session has its result; `rath review S1 --store STORE` shows what is waiting for you
                exit 1
            "#]],
        );
        fixture.check(
            &["review", &one, "--result", "call_9", "none.txt"],
            &expect![[r#"
                ! error: cannot read the result in none.txt: No such file or directory (os error 2)
                ! hint: `--result CALL FILE` names a file with the text for the model
                exit 1
            "#]],
        );
    });
}

#[test]
fn a_file_that_is_no_store_is_left_unchanged() {
    let folder = workshop(LOOK);
    let notes = "These are notes, and there are many of them.\n".repeat(100);
    std::fs::write(folder.path().join("notes.txt"), &notes).expect("written");
    let check = |args: &[&str], expected| crate::check(folder.path(), args, expected);
    check(
        &["ls", "--store", "sqlite:notes.txt"],
        expect![[r#"
            ! error: sqlite:notes.txt is not a database, or its beginning is damaged
            ! hint: name a file that rath wrote; `rath export --help` lists the formats
            exit 1
        "#]],
    );
    check(
        &["salvage", "abcd", "copy.rath", "--store", "sqlite:notes.txt"],
        expect![[r#"
            ! error: sqlite:notes.txt is not a database, or its beginning is damaged
            ! hint: name a file that rath wrote; `rath export --help` lists the formats
            exit 1
        "#]],
    );
    check(
        &["ls", "--store", "sqlite:work"],
        expect![[r#"
            ! error: wanted a file for sqlite:work, found a directory
            ! hint: write `sqlite:work/rath.db`
            exit 1
        "#]],
    );
    check(
        &["ls", "--store", "jsonl:notes.txt"],
        expect![[r#"
        ! error: wanted a directory for jsonl:notes.txt, found a file
        ! hint: write `jsonl:.rath/sessions`
        exit 1
    "#]],
    );
    check(
        &["ls", "--store", "file:notes.txt"],
        expect![[r#"
            ! error: invalid value `file:notes.txt` for `--store <STORE>`: a session file is named by its path, notes.txt, in place of the session
            ! hint: `rath ls --help` describes it
            exit 2
        "#]],
    );
    check(
        &["ls", "--store", "sqlight:notes.txt"],
        expect![[r#"
            ! error: invalid value `sqlight:notes.txt` for `--store <STORE>`: wanted sqlite:PATH, jsonl:DIRECTORY or memory:
            ! hint: `rath ls --help` describes it
            exit 2
        "#]],
    );
    check(
        &["ls", "--store", "notes.txt"],
        expect![[r#"
            ! error: invalid value `notes.txt` for `--store <STORE>`: wanted sqlite:PATH, jsonl:DIRECTORY or memory:
            ! hint: `rath ls --help` describes it
            exit 2
        "#]],
    );
    check(
        &["ls", "--store", "jsonl:work"],
        expect![[r#"
        exit 0
    "#]],
    );
    check(
        &["ls", "--store", "memory:"],
        expect![[r#"
        exit 0
    "#]],
    );
    check(
        &["run", "hi", "--model", "script:script.jsonl", "--store", "memory:", "--sandbox", "none"],
        expect![[r#"
            Let me look.
            It says hello.
            ! ✗ read_file a.txt  unknown tool
            !   │ unknown tool `read_file`; tools: none
            ! ✗ shell exit 3  unknown tool
            !   │ unknown tool `shell`; tools: none
            ! done in TIME: 254 tokens
            exit 0
        "#]],
    );
    check(
        &["run", "hi", "--model", "script:script.jsonl", "--store", "sqlite:notes.txt"],
        expect![[r#"
            ! error: sqlite:notes.txt is not a database, or its beginning is damaged
            ! hint: name a file that rath wrote; `rath export --help` lists the formats
            exit 1
        "#]],
    );
    check(
        &["run", "hi", "--model", "script:script.jsonl", "--store", "file:s.rath", "--session", "ab"],
        expect![[r#"
            ! error: `--session` and `--continue` name a session in a store, and a `file:` holds only one session
            ! hint: leave them out, or name a store
            exit 2
        "#]],
    );
    assert_eq!(std::fs::read_to_string(folder.path().join("notes.txt")).expect("read"), notes);
}

#[test]
fn decisions_on_a_file_are_saved_in_it() {
    let folder = workshop(r#"{"text": "done"}"#);
    let mut session = Session::user("go").to(Sandbox::local("work"));
    session.push(Chunk::calls([Call::new("c1", "shell", r#"{"command": "echo again"}"#)]));
    session.push(rath::chunk::ToolStarted::new("c1"));
    session.save_blocking(folder.path().join("s.rath")).expect("saved");
    assert_eq!(crate::rath(folder.path(), &["review", "s.rath"]).status.code(), Some(4));
    let check = |args: &[&str], expected| crate::check(folder.path(), args, expected);
    check(
        &["review", "s.rath", "--skip", "c1"],
        expect![[r#"
            ! 1 decision recorded
            ! nothing is waiting for you; `rath run --store file:s.rath --model MODEL` continues
            exit 0
        "#]],
    );
    check(
        &["run", "--model", "script:script.jsonl", "--sandbox", "local:work", "--store", "file:s.rath"],
        expect![[r#"
            done
            ! no sandbox: tools start in FOLDER/work and can do anything you can
            ! done in TIME: 2,050 tokens
            ! saved in s.rath; `rath log s.rath` shows the steps
            exit 0
        "#]],
    );
}

#[test]
fn a_file_with_thousands_of_branches_is_imported() {
    const BRANCHES: u64 = 8_000;
    let folder = rath_test_support::temp_dir();
    let session = rath::Session::user("begin");
    let heads = (0..BRANCHES).map(|nth| {
        let mut fork = session.fork();
        fork.push(rath::Chunk::user(nth.to_string()));
        fork.head().expect("a step").clone()
    });
    let lineage = rath::record::lineage::Lineage::new(heads);
    rath::salvage_blocking(&lineage, folder.path().join("many.rath")).expect("written");
    for new in [true, false] {
        let output = super::rath(folder.path(), &["import", "many.rath", "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((&json["steps"], &json["new"]), (&(2 * BRANCHES + 1).into(), &new.into()));
    }
    let list = super::printed(folder.path(), &["ls", "--json"]);
    assert_eq!(list.lines().count() as u64, BRANCHES);
}
