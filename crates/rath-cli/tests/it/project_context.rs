//! The step about its project with which a session begins.

use std::process::Output;

use expect_test::expect;

use crate::configuration::{STORE, USER_FILE, stderr};
use crate::permissions::Place;

/// Runs the program in a repository with words for agents, in a directory below its root.
fn run_with_context(place: &Place, options: &[&str]) -> Output {
    let mut command = place
        .command("app/below", &[&["run", "Go.", "--model", "script:../../script.jsonl"], options, &STORE[..]].concat());
    command.env_remove("RATH_CONTEXT").output().expect("rath runs")
}

/// Returns the requests of the only session of `app/below`, without what differs from day to day.
fn described(place: &Place) -> String {
    let listed = place.rath("app/below", &[&["ls", "--json"], &STORE[..]].concat());
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("one session");
    let id = listed["session"].as_str().expect("an id");
    let request = place.rath("app/below", &[&["render", id], &STORE[..]].concat());
    let request: serde_json::Value = serde_json::from_slice(&request.stdout).expect("JSON");
    let messages = request["messages"].as_array().expect("messages");
    let texts = messages.iter().map(|message| {
        let text = message["content"].as_str().unwrap_or_default();
        let lines = text.lines().map(|line| if line.starts_with("date: ") { "date: DAY" } else { line });
        format!("{}: {}\n", message["role"].as_str().expect("a role"), lines.collect::<Vec<_>>().join("\n  "))
    });
    place.stable(&texts.collect::<String>())
}

#[test]
fn a_session_begins_with_the_projects_words_which_are_not_the_users() {
    let place = Place::new("{\"text\": \"One.\"}\n");
    place.write("AGENTS.md", "above the repository\n");
    place.write("app/AGENTS.md", "Run the tests.\n");
    for args in [&["init", "-q", "-b", "feature"][..], &["add", "."], &["commit", "-qm", "first"]] {
        let output = rath_test_support::git().args(args).current_dir(place.path("app")).output().expect("git runs");
        assert!(output.status.success(), "{}", stderr(&output));
    }
    place.write("app/a.txt", "longer than before\n");
    std::fs::remove_file(place.path("app/below/a.txt")).expect("removed");
    place.write("app/CLAUDE.md", "not read\n");
    place.write("app/below/CLAUDE.md", "Be brief below.\n");
    let output = run_with_context(&place, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    expect![[r#"
        system: You are a careful assistant. Do what the user asks, with the tools you have, and answer briefly.
        user: [about the project and this machine; the user did not write this]

          directory: TMP/app/below
          operating system: linux
          date: DAY
          git branch: feature
          changed since git saw them: a.txt, below/a.txt

          AGENTS.md of the project:
          Run the tests.


          below/CLAUDE.md of the project:
          Be brief below.
        user: Go.
    "#]]
    .assert_eq(&described(&place));
    // It is on the record once, also after the session was resumed and the file changed.
    place.write("app/AGENTS.md", "Changed.\n");
    place.write("script.jsonl", "{\"text\": \"Two.\"}\n");
    let listed = place.rath("app/below", &[&["ls", "--json"], &STORE[..]].concat());
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("one session");
    let id = listed["session"].as_str().expect("an id");
    let args = ["resume", id, "And?", "--model", "script:../../script.jsonl"];
    let mut command = place.command("app/below", &[&args, &STORE[..]].concat());
    let output = command.env_remove("RATH_CONTEXT").output().expect("rath runs");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let request = described(&place);
    assert_eq!((request.matches("Run the tests.").count(), request.matches("Changed.").count()), (1, 0), "{request}");
    let log = place.rath("app/below", &[&["log", "-v", id], &STORE[..]].concat());
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    let first = log.lines().rev().find(|line| line.contains("AGENTS.md")).expect("a step");
    let replay = place.rath("app/below", &[&["replay", id], &STORE[..]].concat());
    assert_eq!(replay.status.code(), Some(0), "{}", stderr(&replay));
    assert!(first.contains("recall: environment, AGENTS.md, below/CLAUDE.md (3 found)"), "{log}");
}

#[test]
fn the_context_is_left_out_where_the_user_says_so() {
    for (options, configured) in [(&["--no-context"][..], ""), (&[], "context = false\n"), (&["--sandbox", "none"], "")]
    {
        let place = Place::new("{\"text\": \"One.\"}\n");
        place.write("app/below/AGENTS.md", "Run the tests.\n");
        place.write(USER_FILE, configured);
        let output = run_with_context(&place, options);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let request = described(&place);
        assert!(!request.contains("Run the tests.") && !request.contains("date: "), "{options:?}: {request}");
    }
}

#[test]
fn the_context_is_bounded_and_follows_no_link_out_of_the_project() {
    let place = Place::new("{\"text\": \"One.\"}\n");
    place.write("app/.git/HEAD", "0123456789abcdef0123456789abcdef01234567\n");
    place.write("app/AGENTS.md", &"é".repeat(40_000));
    place.write("AGENTS.md", "private\n");
    std::os::unix::fs::symlink("../../AGENTS.md", place.path("app/below/AGENTS.md")).expect("a link");
    place.write("app/.env", "private\n");
    std::os::unix::fs::symlink(".env", place.path("app/CLAUDE.md")).expect("a link");
    let output = run_with_context(&place, &[]);
    assert_eq!(output.status.code(), Some(0));
    let said: String =
        stderr(&output).lines().filter(|line| line.contains("AGENTS")).map(|it| format!("{it}\n")).collect();
    expect![[r#"
        note: the agent is not told the last 14,464 bytes of AGENTS.md: 64 KiB is the most
        warning: AGENTS.md is not read: it is a link to another file than those of the project for agents
    "#]]
    .assert_eq(&said);
    let request = described(&place);
    assert!(!request.contains("private") && request.contains("git commit: 0123456789ab"));
    assert!(
        request.matches('é').count() == 32_768 && request.contains("[14464 more bytes of AGENTS.md are not shown]")
    );
}

#[test]
fn a_path_of_this_machine_is_told_only_where_tools_see_it() {
    let place = Place::new("{\"text\": \"One.\"}\n");
    let output = run_with_context(&place, &["--sandbox", "local:.."]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(described(&place).contains("directory: TMP/app\n"), "{}", described(&place));
}
