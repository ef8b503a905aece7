//! `rath status`: how far a session is, where its files are, and what changed since its last turn.

use expect_test::expect;

use crate::fixture::{Fixture, for_each_store};

fn check(fixture: &Fixture, args: &[&str], expected: &expect_test::Expect) {
    fixture.check(&[&["status"], args].concat(), expected);
}

#[test]
fn a_session_is_shown_as_it_is_now() {
    for_each_store("", |fixture| {
        let session = &fixture.work_in("local:work", "Write a file", "echo 1 > a.txt");
        check(
            fixture,
            &[session],
            &expect![[r#"
                S1  Write a file
                state     done
                files     FOLDER/work
                          nothing changed since the last turn
                model     script:script
                tokens    4,023
                ! hint: `rath resume S1 'Go on.' --store STORE` continues
                exit 0
            "#]],
        );
        // A change by hand, and a check that it makes stale.
        fixture.rath(&["check", "test -e a.txt", "--session", session]);
        fixture.write("work/a.txt", "2\n");
        fixture.write("work/b.txt", "new\n");
        check(
            fixture,
            &[session],
            &expect![[r#"
                S1  Write a file
                state     done
                files     FOLDER/work
                          a.txt changed, b.txt added since the last turn
                model     script:script
                check     test -e a.txt: passed, before files changed
                tokens    4,023
                ! hint: `rath resume S1 'Go on.' --store STORE` continues, and tells the model
                exit 3
            "#]],
        );
        // The check records what was changed.
        fixture.rath(&["check", "false", "--session", session]);
        check(
            fixture,
            &[],
            &expect![[r#"
                S1  Write a file
                state     done
                files     FOLDER/work
                          nothing changed since the last turn
                model     script:script
                check     false: failed
                check     test -e a.txt: passed, before files changed
                tokens    4,023
                ! note: using the newest session, S1
                ! hint: `rath resume S1 'Go on.' --store STORE` continues
                exit 0
            "#]],
        );
    });
}

#[test]
fn a_fork_is_shown_with_its_own_directory() {
    for_each_store("", |fixture| {
        let session = fixture.work_in("local:work", "Begin", "echo 1 > a.txt");
        let fork = fixture.fork(&session);
        fixture.work(Some(&fork), "Go on", "echo 2 > a.txt");
        let status = &fixture.json(&["status", &fork, "--json"])[0];
        let directory = status["directory"].as_str().expect("a directory");
        assert!(directory.contains(".rath/work/"), "{directory}");
        assert_eq!(std::fs::read_to_string(format!("{directory}/a.txt")).expect("a file"), "2\n");
        assert_eq!(status["changes"], serde_json::json!([]));
        // A change in the project's directory is none of the fork.
        fixture.write("work/a.txt", "3\n");
        assert_eq!(fixture.code(&["status", &fork]), 0);
        assert_eq!(fixture.code(&["status", &session]), 3);
    });
}

#[test]
fn a_session_that_waits_or_was_made_by_others_says_so() {
    for_each_store("", |fixture| {
        fixture.script_command("echo 1 > a.txt");
        std::fs::create_dir_all(fixture.path("work")).expect("a directory");
        let model = ["--model", "script:script.jsonl", "--sandbox", "local:work", "--mode", "ask"];
        fixture.rath(&[&["run", "Write a file"], &model[..]].concat());
        check(
            fixture,
            &[],
            &expect![[r#"
                S1  Write a file
                state     stopped before: shell echo 1 > a.txt
                files     FOLDER/work
                          nothing changed since the last turn
                decide    not started: shell echo 1 > a.txt
                model     script:script
                tokens    1,988
                ! note: using the newest session, S1
                ! hint: `rath review S1 --store STORE` shows what is waiting for you
                exit 4
            "#]],
        );
        fixture.rath(&["export", &fixture.newest(), "--as", "bundle", "-o", "one.rath"]);
        let other = Fixture::with_store(fixture, "sqlite:other.db");
        other.rath(&["import", "one.rath"]);
        let text = other.out(&["status"]);
        assert!(text.contains("(not made by you)"), "{text}");
        assert!(text.contains("not compared with the record"), "{text}");
    });
}

#[test]
fn what_was_not_compared_is_not_said_to_be_unchanged() {
    for_each_store("", |fixture| {
        let session = &fixture.work_in("local:work", "Write a file", "echo 1 > a.txt");
        fixture.rath(&["check", "test -e a.txt", "--session", session]);
        fixture.rath(&["forget", session, &fixture.step(session, "tool result")]);
        std::fs::remove_file(fixture.path("work/a.txt")).expect("removed");
        check(
            fixture,
            &[session],
            &expect![[r#"
                S1  Write a file
                state     done
                files     unknown, since a step was forgotten
                          not compared with the record
                model     script:script
                check     test -e a.txt: passed, not compared with the files
                tokens    4,023
                ! hint: `rath resume S1 'Go on.' --sandbox 'local:FOLDER/work' --store STORE` continues
                exit 0
            "#]],
        );
        let listed = fixture.out(&["check", "--session", session]);
        assert!(listed.ends_with("passed, not compared with the files\n"), "{listed}");
    });
}

/// Of a file that has become too large, no version is kept: its content is not compared, and nothing is said to hold for it.
#[test]
fn a_file_that_cannot_be_compared_counts_as_changed() {
    for_each_store("", |fixture| {
        let session = &fixture.work_in("local:work", "Write a file", "echo 1 > a.txt; echo 1 > b.txt");
        for (command, input) in [("grep -q 1 a.txt", "a.txt"), ("grep -q 1 b.txt", "b.txt")] {
            assert_eq!(fixture.code(&["check", command, "--input", input, "--session", session]), 0);
        }
        let file = std::fs::File::create(fixture.path("work/a.txt")).expect("created");
        file.set_len(40_000_000).expect("set");
        let status = fixture.out(&["status", session]);
        assert!(status.contains("a.txt changed since the last turn"), "{status}");
        assert!(status.contains("grep -q 1 a.txt: passed, before files changed\n"), "{status}");
        assert!(status.contains("grep -q 1 b.txt: passed\n"), "{status}");
        // The session goes on without a question, and the check still does not hold.
        fixture.script("{\"text\": \"I see.\"}\n");
        let resume = ["resume", session, "look", "--model", "script:script.jsonl"];
        assert_eq!(fixture.code(&resume), 0);
        assert_eq!(fixture.code(&["status", session]), 0);
        let fork = fixture.fork(session);
        for (command, code) in [("grep -q 1 a.txt", 1), ("grep -q 1 b.txt", 0)] {
            assert_eq!(fixture.code(&["merge", session, &fork, "--require", command]), code, "{command}");
        }
    });
}

#[test]
fn what_cannot_be_shown_is_an_error_with_a_way_on() {
    for_each_store("", |fixture| {
        let output = fixture.rath(&["status"]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.starts_with("error: there is no store at "), "{errors}");
        assert!(errors.contains("\nhint: `rath run 'What is in this directory?'` makes one"), "{errors}");
        fixture.work_in("local:work", "Write a file", "echo 1 > a.txt");
        check(
            fixture,
            &["nothing"],
            &expect![[r#"
                ! error: there is no session and no file `nothing`
                ! hint: `rath ls --all --store STORE` lists the sessions
                exit 1
            "#]],
        );
        fixture.rath(&["export", &fixture.newest(), "--as", "bundle", "-o", "one.rath"]);
        check(
            fixture,
            &["one.rath"],
            &expect![[r#"
            ! error: wanted a session in a store, found the file one.rath
            ! hint: `rath import one.rath --store STORE` copies it into the store
            exit 2
        "#]],
        );
    });
}
