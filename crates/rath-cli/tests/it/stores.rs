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
        shop.check(&ASK, &expect![[""]]);
        let id = shop.newest();
        shop.check(&["ls"], &expect![[""]]);
        shop.check(&["log", &id, "-n", "2"], &expect![[""]]);
        shop.check(&["show", &id, "8f73"], &expect![[""]]);
        shop.check(&["cost", &id], &expect![[""]]);
        shop.check(&["verify", &id], &expect![[""]]);
        shop.check(&["verify"], &expect![[""]]);
        shop.check(&["verify", "--json"], &expect![[""]]);
        shop.check(&["review", &id], &expect![[""]]);
        shop.check(&["ls", "--json"], &expect![[""]]);
        // As it was sent, and nothing else.
        let sent = shop.out(&["show", &id, "head", "--as-sent"]);
        assert_eq!(shop.out(&["render", &id]), format!("{sent}\n"));
        let head = &shop.json(&["show", &id, "head", "--json"])[0];
        assert_eq!(head["chunk"]["request"], rath::Digest::of(sent.as_bytes()).to_string());
        shop.check(&["show", &id, "8f73", "--as-sent"], &expect![[""]]);
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
        shop.check(&resume, &expect![[""]]);
        shop.check(&placed, &expect![[""]]);
        shop.check(&["resume", &id, "--model", "script:script.jsonl", "--sandbox", "local:work"], &expect![[""]]);
        shop.write("other.jsonl", r#"{"text": "Other."}"#);
        let other = ["resume", &id, "And you?", "--model", "script:other.jsonl", "--sandbox", "local:work"];
        shop.check(&other, &expect![[""]]);
        shop.check(&[&other[..], &["--anyway"]].concat(), &expect![[""]]);
        shop.check(&["log", &id, "-n", "5"], &expect![[""]]);
        shop.check(&["show", &id, "head", "--as-sent", "--json"], &expect![[""]]);
        let go_on = ["run", "More.", "--session", &id, "--model", "script:other.jsonl", "--sandbox", "local:work"];
        shop.check(&go_on, &expect![[""]]);
        shop.check(&[&resume[..], &["--sandbox", "local:none"]].concat(), &expect![[""]]);
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
        shop.check(&other, &expect![[""]]);
    });
}

#[test]
fn one_process_writes_a_session_and_others_fork_it() {
    each(r#"{"text": "Slow.", "delay_ms": 60000}"#, |shop| {
        let model = ["--model", "script:script.jsonl"];
        let mut running = shop.start(&[&["run", "Take your time."], &model[..]].concat());
        let is_asked = || shop.json(&["ls", "--json"]).first().is_some_and(|it| it["chunks"] == 2);
        while !is_asked() {
            std::thread::yield_now();
        }
        let id = shop.newest();
        shop.script(r#"{"text": "Quick."}"#);
        shop.check(&["ls"], &expect![[""]]);
        shop.check(&["review", &id], &expect![[""]]);
        let resume = [&["resume", &id], &model[..]].concat();
        shop.check(&resume, &expect![[""]]);
        shop.check(&["gc", "--delete", &id], &expect![[""]]);
        shop.check(&[&resume[..], &["--fork"]].concat(), &expect![[""]]);
        let fork = shop.newest();
        shop.check(&["log", &fork], &expect![[""]]);
        let interrupt = std::process::Command::new("kill").args(["-INT", &running.id().to_string()]).status();
        assert!(interrupt.expect("kill runs").success());
        assert_eq!(running.wait().expect("it ends").code(), Some(130));
        shop.check(&resume, &expect![[""]]);
        shop.check(&["verify"], &expect![[""]]);
        shop.check(&["ls"], &expect![[""]]);
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
        shop.check(&["ls"], &expect![[""]]);
        shop.check(&["review", &id], &expect![[""]]);
        let resume = ["resume", &id, "--model", "script:script.jsonl", "--sandbox", "local:work"];
        shop.check(&resume, &expect![[""]]);
        shop.check(&["review", &id, "--approve", call], &expect![[""]]);
        std::fs::remove_file(shop.path("work/a.txt")).expect("removed");
        shop.check(&resume, &expect![[""]]);
        std::fs::remove_file(shop.path("work/hold")).expect("what was left running ends");
    });
}

#[test]
fn decisions_are_recorded_all_or_none_and_reach_the_model() {
    let decisions: [(&[&str], &str); 4] = [
        (&["--approve", "CALL"], " ok"),
        (&["--deny", "CALL", "--reason", "too slow"], " denied: denied: too slow"),
        (&["--skip", "CALL"], " unknown: unknown: it was started"),
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
        assert!(out.contains("lost: step f2ef2f2d\ncopied 8 steps to copy.rath: what is lost is marked"), "{out}");
        assert_eq!(shop.code(&["salvage", &id, "other.rath"]), 3);
        shop.check(&["salvage", &id, "copy.rath"], &expect![[""]]);
        shop.check(&["verify", "copy.rath"], &expect![[""]]);
        shop.check(&["log", "copy.rath"], &expect![[""]]);
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
        shop.check(&["salvage", &id, "copy.rath"], &expect![[""]]);
        shop.check(&["salvage", "copy.rath", "again.rath", "--json"], &expect![[""]]);
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
        shop.check(&["verify", "b.rath"], &expect![[""]]);
        for store in ["sqlite:new/other.db", "jsonl:others"] {
            assert_eq!(there(&["import", "b.rath", "--store", store]), format!("{id}\n"));
            let again = there(&["import", "b.rath", "--json", "--store", store]);
            assert!(again.contains(r#""new":false"#) && again.contains(r#""steps":9"#), "{again}");
            assert_eq!(there(&["log", &id, "--store", store]), shop.out(&["log", &id]));
            assert!(there(&["verify", "--store", store]).starts_with("whole: 1 branch, 9 steps"));
        }
        // Where it went on meanwhile, an older bundle adds nothing; elsewhere, a newer one adds what is new.
        shop.script(r#"{"text": "Still hello."}"#);
        assert_eq!(shop.code(&["resume", &id, "And?", "--model", "script:script.jsonl", "--sandbox", "local:work"]), 0);
        shop.check(&["import", "b.rath"], &expect![[""]]);
        assert_eq!(shop.code(&["export", &id, "--as", "bundle", "-o", "newer.rath"]), 0);
        for store in ["sqlite:new/other.db", "jsonl:others"] {
            assert_eq!(there(&["import", "newer.rath", "--store", store]), format!("{id}\n"));
            assert!(there(&["verify", "--store", store]).starts_with("whole: 1 branch, 11 steps"));
        }
        assert_eq!(shop.code(&["export", &id, "-o", "graph.jsonl"]), 0);
        shop.check(&["verify", "graph.jsonl"], &expect![[""]]);
    });
}

#[test]
fn import_knows_the_files_of_others() {
    each(LOOK, |shop| {
        shop.write("o.jsonl", r#"{"record_type": "header", "version": 1}"#);
        shop.write("a.json", "{\n  \"schema_version\": \"ATIF-v1.8\"}");
        Session::user("hi").save(shop.path("s.rath")).expect("saved");
        for (args, code) in [
            (&["import", "o.jsonl"][..], 1),
            (&["import", "a.json"], 1),
            (&["export", "s.rath", "--as", "openrath"], 1),
            (&["export", "s.rath", "--as", "atif"], 1),
            (&["export", "s.rath", "--as", "pdf"], 2),
        ] {
            assert_eq!(shop.code(args), code, "{args:?}");
        }
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
        assert_eq!(titles, ["three", "salvaged"]);
    });
}

#[test]
fn what_is_forgotten_is_gone_and_what_is_deleted_gives_back_its_room() {
    each(LOOK, |shop| {
        let id = asked(shop);
        shop.check(&["forget", &id, "head"], &expect![[""]]);
        shop.check(&["log", &id, "-n", "1"], &expect![[""]]);
        shop.check(&["forget", &id, "zzz"], &expect![[""]]);
        shop.check(&["verify", &id], &expect![[""]]);
        assert_eq!(shop.code(&["export", &id, "--as", "bundle", "-o", "b.rath"]), 0);
        shop.check(&["verify", "b.rath"], &expect![[""]]);
        shop.check(&["forget", "b.rath", "head"], &expect![[""]]);
        let freed = &shop.json(&["gc", "--delete", &id, "--json"])[0];
        assert_eq!((freed["deleted"].as_array().map(Vec::len), &freed["steps"]), (Some(1), &9.into()));
        shop.check(&["ls"], &expect![[""]]);
        shop.check(&["gc"], &expect![[""]]);
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
        shop.check(&["log", "no-such-file.rath"], &expect![[""]]);
        shop.check(&["log", "abcdefabcdef"], &expect![[""]]);
        shop.check(&["log", "00000000-0000-7000-8000-000000000000"], &expect![[""]]);
        let ambiguous = String::from_utf8(shop.rath(&["log", "0"]).stderr).expect("UTF-8");
        assert!(ambiguous.starts_with("error: `0` may mean any of 2 sessions: "), "{ambiguous}");
        assert!(ambiguous.ends_with("hint: give more of its id\n"), "{ambiguous}");
        shop.check(&["show", &one, "abcdef"], &expect![[""]]);
        shop.check(&["resume", &one, "--model", "foo:x"], &expect![[""]]);
        shop.write("s.rath", "");
        shop.check(&["resume", "s.rath", "--model", "script:script.jsonl"], &expect![[""]]);
        shop.check(&["review", &one, "--approve", "call_9"], &expect![[""]]);
        shop.check(&["review", &one, "--result", "call_9", "none.txt"], &expect![[""]]);
    });
}

#[test]
fn a_store_that_is_something_else_is_left_as_it_is() {
    let folder = workshop(LOOK);
    let notes = "These are notes, and there are many of them.\n".repeat(100);
    std::fs::write(folder.path().join("notes.txt"), &notes).expect("written");
    let check = |args: &[&str], expected| crate::check(folder.path(), args, expected);
    check(&["ls", "--store", "sqlite:notes.txt"], expect![[""]]);
    check(&["ls", "--store", "sqlite:work"], expect![[""]]);
    check(&["ls", "--store", "jsonl:notes.txt"], expect![[""]]);
    check(&["ls", "--store", "file:notes.txt"], expect![[""]]);
    check(&["ls", "--store", "sqlight:notes.txt"], expect![[""]]);
    check(&["ls", "--store", "notes.txt"], expect![[""]]);
    check(&["ls", "--store", "jsonl:work"], expect![[""]]);
    check(&["ls", "--store", "memory:"], expect![[""]]);
    check(&["run", "hi", "--model", "script:script.jsonl", "--store", "sqlite:notes.txt"], expect![[""]]);
    check(&["run", "hi", "--model", "script:script.jsonl", "--store", "file:s.rath", "--session", "ab"], expect![[""]]);
    assert_eq!(std::fs::read_to_string(folder.path().join("notes.txt")).expect("read"), notes);
}

#[test]
fn decisions_on_a_file_are_saved_in_it() {
    let folder = workshop(r#"{"text": "done"}"#);
    let mut session = Session::user("go").to(Place::local("work"));
    session.push(Chunk::calls([Call::new("c1", "shell", r#"{"command": "echo again"}"#)]));
    session.push(rath::chunk::ToolStarted { call: "c1".into(), key: None });
    session.save(folder.path().join("s.rath")).expect("saved");
    assert_eq!(crate::rath(folder.path(), &["review", "s.rath"]).status.code(), Some(4));
    let check = |args: &[&str], expected| crate::check(folder.path(), args, expected);
    check(&["review", "s.rath", "--skip", "c1"], expect![[""]]);
    check(
        &["run", "--model", "script:script.jsonl", "--sandbox", "local:work", "--store", "file:s.rath"],
        expect![[""]],
    );
}
