//! Commands on sessions in stores.

use expect_test::expect;
use rath::prelude::*;

use crate::shop::{Shop, each, replace};
use crate::{LOOK, workshop};

const ASK: [&str; 6] = ["run", "What is here?", "--model", "script:script.jsonl", "--sandbox", "local:work"];

/// Runs an agent once. Gives the short id of its session.
fn asked(shop: &Shop) -> String {
    assert_eq!(shop.code(&ASK), 0);
    shop.newest()
}

#[test]
fn run_keeps_a_session_that_every_command_reads() {
    each(LOOK, |shop| {
        shop.check(
            &ASK,
            &expect![[r#"
                Let me look.
                It says hello.
                ! tools run in local:work: as the user, network on, forks by copy
                ! · read_file {"path":"a.txt"}
                ! · shell {"command":"exit 3"}
                ! · shell failed
                ! session 84336e5b: 10 chunks, placed at local:work, 3071 in, 20 out, done
                ! kept as S1; `rath log S1 --store STORE` shows what happened
                exit 0
            "#]],
        );
        let id = shop.newest();
        shop.check(
            &["ls"],
            &expect![[r#"
                S1  TIME  10 chunks  3091 tokens  done  What is here?
                exit 0
            "#]],
        );
        shop.check(
            &["log", &id, "-n", "2"],
            &expect![[r#"
                ○  84336e5b main  assistant: It says hello.  [agent]  (1586 in, 4 out)
                ○  f4b305bf main  tool result: call_2_2 failed: exit code 3  [agent]
                ~
                exit 0
            "#]],
        );
        shop.check(
            &["show", &id, "8f73"],
            &expect![[r#"
            step     8f7384ec6554bdb1084b20fa4000b2c6ff7cbe4363c517c7da3fffb3c15a01f7
            kind     user
            branch   main SESSION1
            at       TIME

            What is here?
            exit 0
        "#]],
        );
        shop.check(
            &["cost", &id],
            &expect![[r#"
                script:script              3071 in, 20 out  no price
                total of what has a price                   $0.00
                ! hint: `--prices FILE` sets prices of your own
                exit 0
            "#]],
        );
        shop.check(
            &["verify", &id],
            &expect![[r#"
                whole: 10 steps
                exit 0
            "#]],
        );
        shop.check(
            &["verify"],
            &expect![[r#"
                whole: 1 branch, 10 steps
                exit 0
            "#]],
        );
        shop.check(
            &["verify", "--json"],
            &expect![[r#"
                {"branches":1,"damage":[],"steps":10,"whole":true}
                exit 0
            "#]],
        );
        shop.check(
            &["review", &id],
            &expect![[r#"
            ! nothing waits for a decision
            exit 0
        "#]],
        );
        shop.check(&["ls", "--json"], &expect![[r#"
            {"session":"SESSION1","family":"SESSION1","head":"84336e5b1a9ce44d35ac6c8d1df259f745b6dd98e33ca0a639495e94b9979d8d","at":"TIME","chunks":10,"usage":{"input":3071,"output":20},"next":"done","open_calls":0,"is_tip":true,"written_by":null,"title":"What is here?"}
            exit 0
        "#]]);
        // As it was sent, and nothing else.
        let sent = shop.out(&["show", &id, "head", "--as-sent"]);
        assert_eq!(shop.out(&["render", &id]), format!("{sent}\n"));
        let head = &shop.json(&["show", &id, "head", "--json"])[0];
        assert_eq!(head["chunk"]["request"], rath::Digest::of(sent.as_bytes()).to_string());
        shop.check(
            &["show", &id, "8f73", "--as-sent"],
            &expect![[r#"
            ! error: step 8f7384ec is not a model's answer
            ! hint: `rath render S1 8f73 --to openai:MODEL --store STORE` shows what a model would be sent
            exit 1
        "#]],
        );
        // A session is named by either end of its id, or by its newest step.
        let whole = &shop.json(&["ls", "--json"])[0];
        let names = [&whole["session"], &whole["head"]].map(|name| name.as_str().expect("an id").to_owned());
        for name in [&*names[0], &names[0][..12], &names[0].to_uppercase()[20..], &names[1][..6]] {
            assert_eq!(shop.out(&["log", name]), shop.out(&["log", &id]), "{name}");
        }
    });
}

#[test]
fn resume_goes_on_if_the_session_is_as_it_was_left() {
    each(LOOK, |shop| {
        let id = asked(shop);
        let resume = ["resume", &id, "And now?", "--model", "script:script.jsonl"];
        let placed = [&resume[..], &["--sandbox", "local:work"]].concat();
        shop.script(r#"{"text": "Still hello."}"#);
        shop.check(
            &resume,
            &expect![[r#"
                Still hello.
                ! COMPLETE
                ! tools run in local:work: as the user, network on, forks by copy
                ! session f2b16a80: 12 chunks, placed at local:work, 4678 in, 23 out, done
                ! kept as S1; `rath log S1 --store STORE` shows what happened
                exit 0
            "#]],
        );
        shop.check(
            &placed,
            &expect![[r#"
                Still hello.
                ! COMPLETE
                ! tools run in local:work: as the user, network on, forks by copy
                ! session f12f67bb: 14 chunks, placed at local:work, 6306 in, 26 out, done
                ! kept as S1; `rath log S1 --store STORE` shows what happened
                exit 0
            "#]],
        );
        shop.check(
            &["resume", &id, "--model", "script:script.jsonl", "--sandbox", "local:work"],
            &expect![[r#"
            ! COMPLETE
            ! error: there is nothing to do: no prompt, and no stored session that stopped on its way
            ! hint: `rath run "What is in this directory?" --model ..`
            exit 1
        "#]],
        );
        shop.write("other.jsonl", r#"{"text": "Other."}"#);
        let other = ["resume", &id, "And you?", "--model", "script:other.jsonl", "--sandbox", "local:work"];
        shop.check(&other, &expect![[r#"
            ! differs: the model was script:script and is script:other
            ! error: the session S1 is not as it was left
            ! hint: `rath resume S1 --model script:other.jsonl --sandbox local:work --store STORE --anyway` goes on all the same, and puts on the record that you chose to
            exit 3
        "#]]);
        shop.check(
            &[&other[..], &["--anyway"]].concat(),
            &expect![[r#"
                Other.
                ! differs: the model was script:script and is script:other
                ! tools run in local:work: as the user, network on, forks by copy
                ! session 6ad68ec8: 19 chunks, placed at local:work, 7955 in, 28 out, done
                ! kept as S1; `rath log S1 --store STORE` shows what happened
                exit 0
            "#]],
        );
        shop.check(&["log", &id, "-n", "5"], &expect![[r#"
            ○  6ad68ec8 main  assistant: Other.  [agent]  (1649 in, 2 out)
            ○  28db7b0c main  note: from script:script to script:other: rewritten: 2 call ids  [agent]
            ○  31b74403 main  instructions: You are a careful assistant. Do what the user asks, with th… (tools: read_file, list_files, file_exists, search_files, write_fil…)  [agent]
            ○  2bee4854 main  user: And you?
            ○  bb912f68 main  resumed: the model was script:script and is script:other
            ~
            exit 0
        "#]]);
        shop.check(
            &["show", &id, "head", "--as-sent", "--json"],
            &expect![[r#"
            ! error: the argument '--as-sent' cannot be used with '--json'
            ! 
            ! Usage: rath show --as-sent --store <sqlite:PATH | jsonl:DIRECTORY | memory:> <SESSION> <STEP>
            ! 
            ! For more information, try '--help'.
            exit 2
        "#]],
        );
        let go_on = ["run", "More.", "--session", &id, "--model", "script:other.jsonl", "--sandbox", "local:work"];
        shop.check(
            &go_on,
            &expect![[r#"
                Other.
                ! COMPLETE
                ! tools run in local:work: as the user, network on, forks by copy
                ! session 88960d32: 21 chunks, placed at local:work, 9623 in, 30 out, done
                ! kept as S1; `rath log S1 --store STORE` shows what happened
                exit 0
            "#]],
        );
        shop.check(
            &[&resume[..], &["--sandbox", "local:none"]].concat(),
            &expect![[r#"
                ! differs: the model was script:other and is script:script
                ! error: the session S1 is not as it was left
                ! hint: `rath resume S1 --model script:script.jsonl --sandbox local:none --store STORE --anyway` goes on all the same, and puts on the record that you chose to
                exit 3
            "#]],
        );
        assert_eq!(shop.json(&["ls", "--all", "--json"]).len(), 1);
    });
}

#[test]
fn a_prompt_of_ones_own_is_told_again() {
    each(r#"{"text": "Arr."}"#, |shop| {
        let model = ["--model", "script:script.jsonl"];
        assert_eq!(shop.code(&[&["run", "Hi.", "--system", "You are a pirate."], &model[..]].concat()), 0);
        let id = shop.newest();
        assert_eq!(shop.code(&[&["resume", &id, "Again."], &model[..]].concat()), 0);
        let other = [&["resume", &id, "Again.", "--system", "You are a clerk."], &model[..]].concat();
        shop.check(&other, &expect![[r#"
            ! differs: the prompt is another one
            ! error: the session S1 is not as it was left
            ! hint: `rath resume S1 --model script:script.jsonl --store STORE --anyway` goes on all the same, and puts on the record that you chose to
            exit 3
        "#]]);
    });
}

#[test]
fn one_process_writes_a_session_and_others_fork_it() {
    each(r#"{"text": "Slow.", "delay_ms": 60000}"#, |shop| {
        let model = ["--model", "script:script.jsonl"];
        let mut running = shop.start(&[&["run", "Take your time."], &model[..]].concat());
        let is_asked = || shop.json(&["ls", "--json"]).first().is_some_and(|it| it["chunks"] == 3);
        while !is_asked() {
            std::thread::yield_now();
        }
        let id = shop.newest();
        shop.script(r#"{"text": "Quick."}"#);
        shop.check(
            &["ls"],
            &expect![[r#"
                S1  TIME  3 chunks  0 tokens  being written by process N on HOST  Take your time.
                exit 0
            "#]],
        );
        shop.check(
            &["review", &id],
            &expect![[r#"
            ! being written by process N on HOST: what has no result may be under way
            ! nothing waits for a decision
            exit 0
        "#]],
        );
        let resume = [&["resume", &id], &model[..]].concat();
        shop.check(&resume, &expect![[r#"
            ! error: the session S1 is being written by process N on HOST
            ! hint: wait until it is done, or go on by yourself: `rath resume S1 --model script:script.jsonl --store STORE --fork`
            exit 1
        "#]]);
        shop.check(
            &["gc", "--delete", &id],
            &expect![[r#"
                ! error: the session S1 is being written by process N on HOST
                ! hint: wait until it is done, or end that process
                exit 1
            "#]],
        );
        shop.check(
            &[&resume[..], &["--fork"]].concat(),
            &expect![[r#"
                Quick.
                ! COMPLETE
                ! tools run in isolated:.: host read-only, network off, processes 1024 by pid namespace, forks by copy
                ! forked as S2
                ! session a55551d1: 4 chunks, placed at isolated:., 1486 in, 2 out, done
                ! kept as S2; `rath log S2 --store STORE` shows what happened
                exit 0
            "#]],
        );
        let fork = shop.newest();
        shop.check(
            &["log", &fork],
            &expect![[r#"
                ○  a55551d1 b1  assistant: Quick.  [agent]  (1486 in, 2 out)
                ○  d580e34b b1  forked
                ○  e37beb3d main  instructions: You are a careful assistant. Do what the user asks, with th… (tools: read_file, list_files, file_exists, search_files, write_fil…)  [agent]
                ○  12aa4f12 main  placed: isolated:.
                ○  c8c430b5 main  user: Take your time.
                exit 0
            "#]],
        );
        let interrupt = std::process::Command::new("kill").args(["-INT", &running.id().to_string()]).status();
        assert!(interrupt.expect("kill runs").success());
        assert_eq!(running.wait().expect("it ends").code(), Some(130));
        shop.check(
            &resume,
            &expect![[r#"
                Quick.
                ! COMPLETE
                ! tools run in isolated:.: host read-only, network off, processes 1024 by pid namespace, forks by copy
                ! session 06a16974: 5 chunks, placed at isolated:., 1486 in, 2 out, done
                ! kept as S1; `rath log S1 --store STORE` shows what happened
                exit 0
            "#]],
        );
        shop.check(
            &["verify"],
            &expect![[r#"
                whole: 2 branches, 7 steps
                exit 0
            "#]],
        );
        shop.check(
            &["ls"],
            &expect![[r#"
                S2  TIME  4 chunks  1488 tokens  done  Take your time.
                S1  TIME  5 chunks  1488 tokens  done  Take your time.
                exit 0
            "#]],
        );
    });
}

/// The second time it ends at once.
const LONG: &str = r#"
{"text": "Look.", "calls": [{"name": "shell", "arguments": {"command": "echo x >> hold; test $(wc -l < hold) -gt 1 || while test -e hold; do sleep 0.05; done"}}, {"name": "read_file", "arguments": {"path": "a.txt"}}]}
"#;

/// A session whose process was killed in the middle of a call.
fn crashed(shop: &Shop) -> String {
    let mut running = shop.start(&ASK);
    while !shop.path("work/hold").exists() {
        std::thread::yield_now();
    }
    running.kill().expect("it is killed");
    running.wait().expect("it ends");
    shop.script(r#"{"text": "Well."}"#);
    shop.newest()
}

#[test]
fn a_call_in_doubt_after_a_crash_waits_for_a_decision() {
    each(LONG, |shop| {
        let id = crashed(shop);
        let call = &shop.json(&["review", &id, "--json"])[0]["call"];
        let call = call.as_str().expect("a call");
        shop.check(
            &["ls"],
            &expect![[r#"
                S1  TIME  6 chunks  1519 tokens  2 calls open  What is here?
                exit 0
            "#]],
        );
        shop.check(&["review", &id], &expect![[r#"
            call_2_1  shell {"command":"echo x >> hold; test $(wc -l < hold) -gt 1 || while test -e hold; do sleep 0.05; done"}
              in doubt since TIME, asked for in step 335ba962
            call_2_2  read_file {"path":"a.txt"}
              not begun since TIME, asked for in step 335ba962
            ! hint: `--approve CALL`, `--deny CALL`, `--skip CALL` or `--result CALL FILE` decides
            exit 4
        "#]]);
        let resume = ["resume", &id, "--model", "script:script.jsonl", "--sandbox", "local:work"];
        shop.check(&resume, &expect![[r#"
            ! differs: in doubt: `call_2_1` (shell), asked for in step 335ba962, was started, and nobody knows how it ended (not closed by process N on HOST)
            ! tools run in local:work: as the user, network on, forks by copy
            ! kept as S1; `rath log S1 --store STORE` shows what happened
            ! error: started once, and nobody knows how it ended: `call_2_1` (shell)
            ! hint: `rath review S1 --store STORE` shows what waits, and decides
            exit 4
        "#]]);
        shop.check(
            &["review", &id, "--approve", call],
            &expect![[r#"
                call_2_2  read_file {"path":"a.txt"}
                  not begun since TIME, asked for in step 335ba962
                ! 1 decision recorded
                ! hint: `--approve CALL`, `--deny CALL`, `--skip CALL` or `--result CALL FILE` decides
                exit 4
            "#]],
        );
        std::fs::remove_file(shop.path("work/a.txt")).expect("removed");
        shop.check(
            &resume,
            &expect![[r#"
                Well.
                ! COMPLETE
                ! tools run in local:work: as the user, network on, forks by copy
                ! · shell {"command":"echo x >> hold; test $(wc -l < hold) -gt 1 || w…
                ! · read_file {"path":"a.txt"}
                ! · read_file failed
                ! session a5334cb2: 13 chunks, placed at local:work, 3095 in, 36 out, done
                ! kept as S1; `rath log S1 --store STORE` shows what happened
                exit 0
            "#]],
        );
        std::fs::remove_file(shop.path("work/hold")).expect("what was left running ends");
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
        each(LONG, |shop| {
            let id = crashed(shop);
            let calls = shop.json(&["review", &id, "--json"]);
            let [first, second] = [0, 1].map(|nth| calls[nth]["call"].as_str().expect("a call").to_owned());
            shop.write("found.txt", "it was done");
            assert_eq!(shop.code(&["review", &id, "--skip", &second, "--approve", "nope"]), 1);
            assert_eq!(shop.json(&["review", &id, "--json"]), calls);
            let decision = decision.iter().map(|word| if *word == "CALL" { &first } else { *word });
            assert_eq!(shop.code(&["review", &id].into_iter().chain(decision).collect::<Vec<_>>()), 4);
            assert_eq!(shop.code(&["review", &id, "--approve", &second]), 0);
            let resume = ["resume", &id, "--model", "script:script.jsonl", "--sandbox", "local:work"];
            assert_eq!(shop.code(&resume), 0);
            let log = shop.out(&["log", &id]);
            assert!(log.contains(&format!("tool result: {first}{result}")), "{log}");
            assert!(log.contains(&format!("tool result: {second} ok: hello")), "{log}");
            assert_eq!(shop.code(&["verify"]), 0);
            std::fs::remove_file(shop.path("work/hold")).expect("what was left running ends");
        });
    }
}

#[test]
fn damage_is_named_and_the_rest_is_copied() {
    each(LOOK, |shop| {
        let id = asked(shop);
        shop.damage("exit code 3", "exit code 4");
        for args in [&["verify"][..], &["verify", &id], &["log", &id], &["export", &id]] {
            assert_eq!(shop.code(args), 3, "{args:?}");
        }
        let report = &shop.json(&["verify", &id, "--json"])[0];
        assert_eq!(report["whole"], false);
        assert_eq!(report["damage"][0]["fault"].as_str().map(|it| it.contains(" fit")), Some(true), "{report}");
        let resume = ["resume", &id, "Go on.", "--model", "script:script.jsonl", "--sandbox", "local:work"];
        assert_eq!(shop.code(&resume), 3);
        let out = shop.out(&["salvage", &id, "copy.rath"]);
        assert!(out.contains("lost: step f4b305bf\ncopied 9 steps to copy.rath: what is lost is marked"), "{out}");
        assert_eq!(shop.code(&["salvage", &id, "other.rath"]), 3);
        shop.check(
            &["salvage", &id, "copy.rath"],
            &expect![[r#"
            ! error: cannot write copy.rath: there is a file of that name
            ! hint: name a new one
            exit 1
        "#]],
        );
        shop.check(
            &["verify", "copy.rath"],
            &expect![[r#"
                1 name marked as missing: lost before, or forgotten
                whole: 12 rows, 9 steps, 9918 bytes
                exit 0
            "#]],
        );
        shop.check(&["log", "copy.rath"], &expect![[r#"
            ○  84336e5b main  assistant: It says hello.  [agent]  (1586 in, 4 out)
            │
            ~

            ○  4788ab20 main  tool started: call_2_2  [agent]
            ○  d559b680 main  tool result: call_2_1 ok: hello  [agent]
            ○  90233110 main  tool started: call_2_1  [agent]
            ○  d6132b7d main  observed: git:2e81171448eb9f2ee3821e3d447aa6b2fe3ddba1  [agent]
            ○  15cf3422 main  assistant: Let me look. calls read_file({"path":"a.txt"}), shell({"command":"exit 3"})  [agent]  (1485 in, 16 out)
            ○  d9f198f1 main  instructions: You are a careful assistant. Do what the user asks, with th… (tools: read_file, list_files, file_exists, search_files, write_fil…)  [agent]
            ○  f3d6eadc main  placed: local:work
            ○  8f7384ec main  user: What is here?
            exit 0
        "#]]);
        for store in ["sqlite:copy.db", "jsonl:copies"] {
            assert_eq!(shop.code(&["salvage", &id, store]), 3);
            let list = crate::printed(&shop.path(""), &["ls", "--all", "--store", store]);
            assert!(list.contains("What is here?"), "{list}");
        }
    });
}

#[test]
fn what_is_whole_is_copied_whole() {
    each(LOOK, |shop| {
        let id = asked(shop);
        shop.check(
            &["salvage", &id, "copy.rath"],
            &expect![[r#"
                copied 10 steps to copy.rath: nothing is lost
                exit 0
            "#]],
        );
        shop.check(
            &["salvage", "copy.rath", "again.rath", "--json"],
            &expect![[r#"
                {"damage":[],"lost_payloads":[],"lost_steps":[],"steps":10}
                exit 0
            "#]],
        );
        assert_eq!(std::fs::read(shop.path("copy.rath")).ok(), std::fs::read(shop.path("again.rath")).ok());
        replace(&shop.path("copy.rath"), "It says hello.", "It says jello.");
        assert_eq!(shop.code(&["salvage", "copy.rath", "third.rath"]), 3);
        assert_eq!(shop.code(&["verify", "third.rath"]), 0);
        // The file of a store is a session file like any other.
        if shop.store.starts_with("jsonl") {
            let whole = shop.json(&["ls", "--json"])[0]["session"].as_str().expect("an id").to_owned();
            assert_eq!(shop.code(&["salvage", &format!("s/{whole}.jsonl"), "fourth.rath"]), 0);
        }
    });
}

#[test]
fn a_bundle_goes_from_store_to_store() {
    each(LOOK, |shop| {
        let id = asked(shop);
        let there = |args: &[&str]| crate::printed(&shop.path(""), args);
        assert_eq!(shop.code(&["export", &id, "--as", "bundle", "-o", "b.rath"]), 0);
        let bundle = std::fs::read(shop.path("b.rath")).expect("read");
        assert_eq!(shop.out(&["export", &id, "--as", "bundle"]).as_bytes(), bundle);
        shop.check(
            &["verify", "b.rath"],
            &expect![[r#"
                whole: 12 rows, 10 steps, 10232 bytes
                exit 0
            "#]],
        );
        for store in ["sqlite:new/other.db", "jsonl:others"] {
            assert_eq!(there(&["import", "b.rath", "--store", store]), format!("{id}\n"));
            let again = there(&["import", "b.rath", "--json", "--store", store]);
            assert!(again.contains(r#""new":false"#) && again.contains(r#""steps":10"#), "{again}");
            assert_eq!(there(&["log", &id, "--store", store]), shop.out(&["log", &id]));
            assert!(there(&["verify", "--store", store]).starts_with("whole: 1 branch, 10 steps"));
        }
        // Where it went on meanwhile, an older bundle adds nothing; elsewhere, a newer one adds what is new.
        shop.script(r#"{"text": "Still hello."}"#);
        assert_eq!(shop.code(&["resume", &id, "And?", "--model", "script:script.jsonl", "--sandbox", "local:work"]), 0);
        shop.check(
            &["import", "b.rath"],
            &expect![[r#"
            S1
            ! it is there already; `rath log S1 --store STORE` shows what happened
            exit 0
        "#]],
        );
        assert_eq!(shop.code(&["export", &id, "--as", "bundle", "-o", "newer.rath"]), 0);
        for store in ["sqlite:new/other.db", "jsonl:others"] {
            assert_eq!(there(&["import", "newer.rath", "--store", store]), format!("{id}\n"));
            let whole = there(&["verify", "--store", store]);
            assert!(whole.starts_with("whole: 1 branch, 12 steps"), "{whole}");
        }
        assert_eq!(shop.code(&["export", &id, "-o", "graph.jsonl"]), 0);
        shop.check(
            &["verify", "graph.jsonl"],
            &expect![[r#"
            sound: a graph of 1 session, every seal fits and every parent is there
            exit 0
        "#]],
        );
    });
}

#[test]
fn sessions_go_to_others_and_come_back() {
    each(LOOK, |shop| {
        let id = asked(shop);
        for format in ["openrath", "atif"] {
            let file = format!("{format}.out");
            assert_eq!(shop.code(&["export", &id, "--as", format, "-o", &file]), 0);
        }
        for format in ["openrath", "atif"] {
            assert_eq!(shop.code(&["gc", "--delete", &id]), 0);
            assert_eq!(shop.code(&["import", &format!("{format}.out")]), 0, "{format}");
            assert_eq!(shop.newest(), id, "{format}");
            assert!(shop.out(&["log", &id]).contains("assistant: It says hello."), "{format}");
            assert_eq!(shop.json(&["ls", "--json"])[0]["next"], "done", "{format}");
        }
        shop.write("a.json", "{\n  \"schema_version\": \"ATIF-v2.0\"}");
        for (args, code) in [(&["import", "a.json"][..], 1), (&["export", &id, "--as", "pdf"], 2)] {
            assert_eq!(shop.code(args), code, "{args:?}");
        }
    });
}

#[test]
fn replay_does_again_what_a_session_did() {
    each(LOOK, |shop| {
        let id = asked(shop);
        shop.check(
            &["replay", &id],
            &expect![[r#"
                exact: 10 steps, 2 requests, ends at 84336e5b
                exit 0
            "#]],
        );
        shop.check(&["replay", &id, "--json"], &expect![[r#"
            {"differences":[],"exact":true,"head":"84336e5b1a9ce44d35ac6c8d1df259f745b6dd98e33ca0a639495e94b9979d8d","requests":2,"steps":10}
            exit 0
        "#]]);
        // In a directory that has what was there, and in one that has not.
        shop.check(
            &["replay", &id, "--tools", "--sandbox", "local:work"],
            &expect![[r#"
                exact: 10 steps, 2 requests, ends at 84336e5b
                exit 0
            "#]],
        );
        shop.check(
            &["replay", &id, "--tools"],
            &expect![[r#"
                diverges at step d559b680 (tool result: call_2_1 ok: hello), /outcome
                  expected: "ok"
                  found:    "failed"
                  the same before that: 6 steps, 1 request
                exit 3
            "#]],
        );
        shop.write("other.jsonl", r#"{"text": "I would rather not look."}"#);
        shop.check(&["replay", &id, "--from", "8f73", "--model", "script:other.jsonl"], &expect![[r#"
            I would rather not look.
            shared up to 8f7384ec  user: What is here?
            - f3d6eadc  placed: local:work
            - d9f198f1  instructions: You are a careful assistant. Do what the user asks, with th… (tools: read_file, list_files, file_exists, search_files, write_fil…)  [agent]
            - 15cf3422  assistant: Let me look. calls read_file({"path":"a.txt"}), shell({"command":"exit 3"})  [agent]  (1485 in, 16 out)
            - d6132b7d  observed: git:2e81171448eb9f2ee3821e3d447aa6b2fe3ddba1  [agent]
            - 90233110  tool started: call_2_1  [agent]
            - d559b680  tool result: call_2_1 ok: hello  [agent]
            - 4788ab20  tool started: call_2_2  [agent]
            - f4b305bf  tool result: call_2_2 failed: exit code 3  [agent]
            - 84336e5b  assistant: It says hello.  [agent]  (1586 in, 4 out)
            + e14c204f  forked
            + 7f5b438e  placed: isolated:.
            + 7b8bbf3c  instructions: You are a careful assistant. Do what the user asks, with th… (tools: read_file, list_files, file_exists, search_files, write_fil…)  [agent]
            + 0b1b5c87  assistant: I would rather not look.  [agent]  (1485 in, 6 out)
            usage
            - 3071 in, 20 out
            + 1485 in, 6 out
            last words
            - It says hello.
            + I would rather not look.
            ! tools run in isolated:.: host read-only, network off, processes 1024 by pid namespace, forks by copy
            ! kept as S2
            exit 0
        "#]]);
        assert_eq!(shop.code(&["replay", &id, "--from", "8f73"]), 2);
        assert_eq!(shop.code(&["replay", "ffffffff"]), 1);
    });
}

#[test]
fn a_damaged_file_is_taken_in_as_far_as_it_is_good_if_somebody_says_so() {
    each(LOOK, |shop| {
        let mut session = Session::user("one");
        session.push(Chunk::assistant("two"));
        session.push(Chunk::user("three"));
        session.save(shop.path("s.rath")).expect("saved");
        replace(&shop.path("s.rath"), "two", "tow");
        assert_eq!(shop.code(&["import", "s.rath"]), 3);
        assert!(!shop.path("s").exists() && !shop.path("s.db").exists(), "nothing is made");
        assert_eq!(shop.code(&["import", "s.rath", "--anyway"]), 3);
        let list = shop.json(&["ls", "--json"]);
        let titles: Vec<_> = list.iter().map(|it| it["title"].as_str().unwrap_or_default()).collect();
        assert_eq!(titles, ["three"]);
        let log = shop.out(&["log", &shop.newest()]);
        assert!(log.contains("user: one") && log.contains("user: three"), "{log}");
        // Once is enough.
        assert_eq!(shop.code(&["import", "s.rath", "--anyway"]), 3);
        assert_eq!(shop.out(&["log", &shop.newest()]), log);
    });
}

#[test]
fn what_is_forgotten_is_gone_and_what_is_deleted_gives_back_its_room() {
    each(LOOK, |shop| {
        let id = asked(shop);
        shop.check(
            &["forget", &id, "head"],
            &expect![[r#"
                ! what step 84336e5b said is forgotten
                exit 0
            "#]],
        );
        shop.check(
            &["log", &id, "-n", "1"],
            &expect![[r#"
                ○  84336e5b main  assistant: [forgotten]  [agent]  (1586 in, 4 out)
                ~
                exit 0
            "#]],
        );
        shop.check(
            &["forget", &id, "zzz"],
            &expect![[r#"
            ! error: wanted the first digits of a step's id, a branch, or `head`, found `zzz`
            ! hint: `rath log S1 --store STORE` lists the steps
            exit 1
        "#]],
        );
        shop.check(
            &["verify", &id],
            &expect![[r#"
                whole: 10 steps
                exit 0
            "#]],
        );
        assert_eq!(shop.code(&["export", &id, "--as", "bundle", "-o", "b.rath"]), 0);
        shop.check(
            &["verify", "b.rath"],
            &expect![[r#"
                1 step in part only: the rest was to be forgotten
                whole: 12 rows, 10 steps, 10274 bytes
                exit 0
            "#]],
        );
        shop.check(
            &["forget", "b.rath", "head"],
            &expect![[r#"
            ! error: b.rath is a file, and this is for sessions in a store
            ! hint: `rath import FILE` takes it into one
            exit 2
        "#]],
        );
        let freed = &shop.json(&["gc", "--delete", &id, "--json"])[0];
        assert_eq!((freed["deleted"].as_array().map(Vec::len), &freed["steps"]), (Some(1), &10.into()));
        shop.check(
            &["ls"],
            &expect![[r#"
            exit 0
        "#]],
        );
        shop.check(
            &["gc"],
            &expect![[r#"
            0 sessions deleted; freed: 0 steps, 0 bytes
            exit 0
        "#]],
        );
        assert_eq!(shop.code(&["gc", "--delete", &id]), 1);
    });
}

#[test]
fn sessions_are_asked_for_wrongly_and_told_kindly() {
    each(LOOK, |shop| {
        for args in [&["ls"][..], &["log", "abcd"], &["gc"], &["verify"], &["review", "abcd"]] {
            let told = String::from_utf8(shop.rath(args).stderr).expect("UTF-8");
            assert!(told.starts_with("error: there is no store at s"), "{told}");
            assert!(told.ends_with("hint: `rath run` makes one; `--store` names another\n"), "{told}");
        }
        assert!(!shop.path("s").exists() && !shop.path("s.db").exists(), "nothing is made by looking");
        let one = asked(shop);
        let two = asked(shop);
        assert_ne!(one, two);
        shop.check(
            &["log", "no-such-file.rath"],
            &expect![[r#"
            ! error: cannot open no-such-file.rath: No such file or directory (os error 2)
            ! hint: a session in a store is named by digits of its id; `rath ls` lists them
            exit 1
        "#]],
        );
        shop.check(
            &["log", "abcdefabcdef"],
            &expect![[r#"
            ! error: no session `abcdefabcdef` in STORE
            ! hint: `rath ls --all --store STORE` lists them
            exit 1
        "#]],
        );
        shop.check(
            &["log", "00000000-0000-7000-8000-000000000000"],
            &expect![[r#"
            ! error: no session 00000000-0000-7000-8000-000000000000 in STORE
            ! hint: `rath ls` lists them
            exit 1
        "#]],
        );
        let ambiguous = String::from_utf8(shop.rath(&["log", "0"]).stderr).expect("UTF-8");
        assert!(ambiguous.starts_with("error: `0` may mean any of 2 sessions: "), "{ambiguous}");
        assert!(ambiguous.ends_with("hint: give more of its id\n"), "{ambiguous}");
        shop.check(
            &["show", &one, "abcdef"],
            &expect![[r#"
            ! error: no step `abcdef` in S1
            ! hint: `rath log S1 --store STORE` lists the steps
            exit 1
        "#]],
        );
        shop.check(
            &["resume", &one, "--model", "foo:x"],
            &expect![[r#"
            ! error: unknown kind of provider `foo`; known: anthropic, openai, script
            ! hint: use anthropic:, openai: or script:
            exit 1
        "#]],
        );
        shop.write("s.rath", "");
        shop.check(
            &["resume", "s.rath", "--model", "script:script.jsonl"],
            &expect![[r#"
            ! error: s.rath is a file, and this is for sessions in a store
            ! hint: `rath import FILE` takes it into one
            exit 2
        "#]],
        );
        shop.check(
            &["review", &one, "--approve", "call_9"],
            &expect![[r#"
            ! error: no call `call_9` waits for a decision
            ! hint: every call in this session has its result
            exit 1
        "#]],
        );
        shop.check(
            &["review", &one, "--result", "call_9", "none.txt"],
            &expect![[r#"
            ! error: cannot read the result in none.txt: No such file or directory (os error 2)
            ! hint: it is the text that the model is to read
            exit 1
        "#]],
        );
    });
}

#[test]
fn a_store_that_is_something_else_is_left_as_it_is() {
    let folder = workshop(LOOK);
    let notes = "These are notes, and there are many of them.\n".repeat(100);
    std::fs::write(folder.path().join("notes.txt"), &notes).expect("written");
    let check = |args: &[&str], expected| crate::check(folder.path(), args, expected);
    check(
        &["ls", "--store", "sqlite:notes.txt"],
        expect![[r#"
        ! error: sqlite:notes.txt is not a database, or its beginning is damaged
        exit 1
    "#]],
    );
    check(
        &["salvage", "abcd", "copy.rath", "--store", "sqlite:notes.txt"],
        expect![[r#"
        ! error: sqlite:notes.txt is not a database, or its beginning is damaged
        ! hint: the store cannot be opened as a whole, and then no session can be read from it
        exit 1
    "#]],
    );
    check(
        &["ls", "--store", "sqlite:work"],
        expect![[r#"
        ! error: cannot read sqlite:work: unable to open database file: work
        exit 1
    "#]],
    );
    check(
        &["ls", "--store", "jsonl:notes.txt"],
        expect![[r#"
        ! error: there is no store at notes.txt
        ! hint: `rath run` makes one; `--store` names another
        exit 1
    "#]],
    );
    check(
        &["ls", "--store", "file:notes.txt"],
        expect![[r#"
        ! error: unknown kind of store `file`; known: sqlite, jsonl, memory
        ! hint: a session file is named by its path alone
        exit 1
    "#]],
    );
    check(
        &["ls", "--store", "sqlight:notes.txt"],
        expect![[r#"
        ! error: unknown kind of store `sqlight`; known: sqlite, jsonl, memory
        exit 1
    "#]],
    );
    check(
        &["ls", "--store", "notes.txt"],
        expect![[r#"
        ! error: wanted a store, found `notes.txt`
        ! hint: write the kind of store, a colon, and where: `sqlite:.rath/rath.db`
        exit 1
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
        &["run", "hi", "--model", "script:script.jsonl", "--store", "sqlite:notes.txt"],
        expect![[r#"
        ! error: sqlite:notes.txt is not a database, or its beginning is damaged
        exit 1
    "#]],
    );
    check(
        &["run", "hi", "--model", "script:script.jsonl", "--store", "file:s.rath", "--session", "ab"],
        expect![[r#"
        ! error: a session file holds one session, and `--session` names one of many
        ! hint: leave `--session` out, or name a store
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
    session.push(rath::chunk::ToolStarted { call: "c1".into(), key: None });
    session.save(folder.path().join("s.rath")).expect("saved");
    assert_eq!(crate::rath(folder.path(), &["review", "s.rath"]).status.code(), Some(4));
    let check = |args: &[&str], expected| crate::check(folder.path(), args, expected);
    check(
        &["review", "s.rath", "--skip", "c1"],
        expect![[r#"
        ! 1 decision recorded
        ! nothing waits for a decision; `rath run --store file:s.rath --model ..` goes on
        exit 0
    "#]],
    );
    check(
        &["run", "--model", "script:script.jsonl", "--sandbox", "local:work", "--store", "file:s.rath"],
        expect![[r#"
            done
            ! tools run in local:work: as the user, network on, forks by copy
            ! session 5a1a6e9d: 7 chunks, placed at local:work, 1555 in, 1 out, done
            ! `rath log s.rath` shows what happened
            exit 0
        "#]],
    );
}
