//! `rath replay`: everything that is recorded is compared, and the output says what that was.

use expect_test::expect;
use serde_json::json;

use crate::fixture::{Fixture, for_each_store};

/// Returns the turns of a script in which a model runs these commands, one a turn.
fn turns(commands: &[&str]) -> String {
    let call = |command: &&str| json!({"calls": [{"name": "shell", "arguments": {"command": command}}]}).to_string();
    let turns: Vec<String> = commands.iter().map(call).chain([json!({"text": "Done."}).to_string()]).collect();
    turns.join("\n")
}

/// Runs a new session with these commands, and returns its short id.
fn worked(fixture: &Fixture, commands: &[&str]) -> String {
    fixture.script(&turns(commands));
    let run = ["run", "Go", "--sandbox", "local:work", "--model", "script:script.jsonl"];
    assert_eq!(fixture.code(&run), 0);
    fixture.newest()
}

#[test]
fn tools_start_from_the_recorded_files() {
    for_each_store("", |fixture| {
        let id = worked(fixture, &["cat a.txt", "echo two >> a.txt; echo b > b.txt", "cat a.txt b.txt; rm b.txt"]);
        // What was there then is restored, not what is there now.
        fixture.write("work/a.txt", "mine\n");
        fixture.check(
            &["replay", &id, "--tools"],
            &expect![[r#"
                exact: 4 requests, 3 calls, 3 files
                ! sandbox: writes only in a temporary directory, no network
                exit 0
            "#]],
        );
        assert_eq!(fixture.files("work"), "a.txt: mine\n");
    });
}

#[test]
fn every_difference_is_shown_with_its_reason() {
    for_each_store("", |fixture| {
        let commands = [
            "cat ../nth 2>/dev/null || echo 1 > ../nth",
            "test -e ../nth && cp ../nth a.txt",
            "echo c > c.txt",
            "date +%N > t.txt",
            "test ! -e ../nth && exit 7; rm ../nth",
        ];
        // The ids of steps depend on the time that the fourth command writes.
        let id = worked(fixture, &commands);
        fixture.check(
            &["replay", &id, "--tools"],
            &expect![[r#"
                step STEP1: shell {"command":"test -e ../nth && cp ../nth a.txt"}
                  outcome differs
                  recorded: ok
                  now:      failed: exit code 1
                  files differ
                  recorded: ~a.txt
                  now:      no change
                step STEP2: shell {"command":"date +%N > t.txt"}
                  files differ
                  recorded: +t.txt
                  now:      other content: t.txt
                step STEP3: shell {"command":"test ! -e ../nth && exit 7; rm ../nth"}
                  outcome differs
                  recorded: ok
                  now:      failed: exit code 7
                the same: 6 requests, 2 calls, 1 file
                ! sandbox: writes only in a temporary directory, no network
                ! note: files that git ignores are not recorded: the calls saw them as they are now
                exit 3
            "#]],
        );
        fixture.check(
            &["replay", &id, "--tools", "--first"],
            &expect![[r#"
                step STEP1: shell {"command":"test -e ../nth && cp ../nth a.txt"}
                  outcome differs
                  recorded: ok
                  now:      failed: exit code 1
                  files differ
                  recorded: ~a.txt
                  now:      no change
                the same: 6 requests, 1 call, 0 files
                ! sandbox: writes only in a temporary directory, no network
                ! note: files that git ignores are not recorded: the calls saw them as they are now
                exit 3
            "#]],
        );
        fixture.check(&["replay", &id, "--tools", "--json"], &expect![[r#"
            {"calls":2,"differences":[{"call":{"arguments":"{\"command\":\"test -e ../nth && cp ../nth a.txt\"}","id":"call_2_1","tool":"shell"},"expected":"ok","found":"failed: exit code 1","step":"STEP1","what":"outcome"},{"call":{"arguments":"{\"command\":\"test -e ../nth && cp ../nth a.txt\"}","id":"call_2_1","tool":"shell"},"expected":"~a.txt","found":"no change","step":"STEP1","what":"files"},{"call":{"arguments":"{\"command\":\"date +%N > t.txt\"}","id":"call_4_1","tool":"shell"},"expected":"+t.txt","found":"other content: t.txt","step":"STEP2","what":"files"},{"call":{"arguments":"{\"command\":\"test ! -e ../nth && exit 7; rm ../nth\"}","id":"call_5_1","tool":"shell"},"expected":"ok","found":"failed: exit code 7","step":"STEP3","what":"outcome"}],"exact":false,"files":1,"head":"STEP4","not_made":[],"requests":6}
            ! sandbox: writes only in a temporary directory, no network
            ! note: files that git ignores are not recorded: the calls saw them as they are now
            exit 3
        "#]]);
    });
}

#[test]
fn each_turn_is_compared_with_its_own_model() {
    for_each_store("", |fixture| {
        let id = worked(fixture, &["echo one > one.txt"]);
        fixture.write("other.jsonl", &turns(&["cat one.txt; echo two > two.txt"]));
        assert_eq!(fixture.code(&["resume", &id, "More", "--anyway", "--model", "script:other.jsonl"]), 0);
        fixture.check(
            &["replay", &id, "--tools"],
            &expect![[r#"
                exact: 4 requests, 2 calls, 2 files
                ! sandbox: writes only in a temporary directory, no network
                exit 0
            "#]],
        );
    });
}

#[test]
fn each_fork_has_its_own_files() {
    for_each_store("", |fixture| {
        let first = worked(fixture, &["echo base > f.txt"]);
        let fork = fixture.fork(&first);
        fixture.work(Some(&first), "Ours", "cat f.txt; echo ours > ours.txt; ls");
        fixture.work(Some(&fork), "Theirs", "cat f.txt; echo theirs > theirs.txt; ls");
        let merged = fixture.json(&["merge", &first, &fork, "--json"]);
        let merged = merged[0]["session"].as_str().expect("an id").to_owned();
        fixture.work(Some(&merged), "Both", "cat ours.txt theirs.txt; ls");
        fixture.check(
            &["replay", &merged, "--tools"],
            &expect![[r#"
                exact: 8 requests, 4 calls, 3 files
                ! sandbox: writes only in a temporary directory, no network
                exit 0
            "#]],
        );
    });
}

#[test]
fn a_session_without_requests_has_nothing_to_compare() {
    let folder = rath_test_support::temp_dir();
    let mut session = rath::Session::user("Hello");
    session.push(rath::Chunk::assistant("Hi"));
    session.save_blocking(folder.path().join("s.rath")).expect("saved");
    let fixture = Fixture::in_folder(folder, "sqlite:.rath/s.db");
    let printed = |args: &[&str]| {
        let output = fixture.rath(args);
        (String::from_utf8(output.stdout).expect("UTF-8"), output.status.code())
    };
    let nothing = "nothing to compare: the session has no recorded requests\n";
    assert_eq!(printed(&["replay", "s.rath"]), (nothing.to_owned(), Some(1)));
    let (json, _) = printed(&["replay", "s.rath", "--json"]);
    assert!(json.contains(r#""exact":false"#), "{json}");
}

/// A file that tools may not read is not shown to the calls that are made again either.
#[test]
fn a_replay_hides_the_files_that_the_run_hid() {
    for_each_store("", |fixture| {
        fixture.write("work/key.txt", "4711\n");
        let absolute = format!("isolated:work?hide={}", fixture.path("work/key.txt").display());
        let rows = [
            ("[permissions]\ndeny = [\"read key.txt\"]\n", "isolated:work"),
            ("", "isolated:work?hide=key.txt"),
            ("", &absolute),
        ];
        for (settings, sandbox) in rows {
            fixture.write("work/rath.toml", settings);
            fixture.script(&turns(&["cat key.txt; echo x >> x.txt"]));
            let run = ["run", "Go", "--sandbox", sandbox, "--model", "script:script.jsonl"];
            assert_eq!(fixture.code(&run), 0);
            let replayed = fixture.rath(&["replay", &fixture.newest(), "--tools"]);
            let printed = String::from_utf8_lossy(&replayed.stdout).into_owned();
            assert!(!printed.contains("4711"), "{sandbox}: {printed}");
            assert_eq!(printed, "exact: 2 requests, 1 call, 1 file\n", "{sandbox}");
        }
    });
}
