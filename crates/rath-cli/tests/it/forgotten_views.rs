//! Tests of the commands that show a session of which a step was forgotten.

use expect_test::expect;

use crate::fixture::{Fixture, for_each_store};

/// Runs a session with two calls that write a file, and forgets the result of the first. Returns the ids of the session and the step.
fn forgotten(fixture: &Fixture) -> (String, String) {
    std::fs::write(fixture.path("work/a.txt"), "one\ntwo\n").expect("written");
    let id = fixture.work(None, "start", "printf 'x%s\\n' yz >> a.txt; cp a.txt s.txt");
    let step = fixture.step(&id, "+s.txt");
    fixture.work(Some(&id), "more", "sed -i s/one/1/ a.txt; echo more >> a.txt");
    assert_eq!(fixture.code(&["forget", &id, &step]), 0);
    (id, step)
}

#[test]
fn a_line_of_a_forgotten_step_is_called_forgotten() {
    for_each_store("", |fixture| {
        let (id, _) = forgotten(fixture);
        fixture.check(
            &["blame", "a.txt", &id],
            &expect![[r#"
            STEP1 forgotten               1  1
            STEP2 before the session      2  two
            STEP1 forgotten               3  xyz
            STEP1 forgotten               4  more
            exit 0
        "#]],
        );
        fixture.check(
            &["blame", "a.txt:3", &id],
            &expect![[r#"
            STEP1 forgotten               3  xyz
              written in this step, which was removed with `rath forget`, or after it
              checks: none covers this line
            exit 0
        "#]],
        );
        let origins = fixture.json(&["blame", "a.txt", &id, "--json"]);
        let origins: Vec<_> = origins.iter().map(|line| line["origin"].as_str().expect("an origin")).collect();
        assert_eq!(origins, ["forgotten", "before", "forgotten", "forgotten"]);
    });
}

#[test]
fn no_hint_about_a_forgotten_step_names_a_command_that_fails() {
    let fixture = Fixture::in_folder(crate::workshop(""), "sqlite:.rath/s.db");
    let (id, step) = forgotten(&fixture);
    fixture.script("{\"text\": \"Done.\"}\n");
    let at = format!("{id}@{step}");
    let commands: &[&[&str]] = &[
        &["log", &id],
        &["blame", "a.txt", &id],
        &["explain", &id, &step],
        &["diff", &id],
        &["diff", &at, &id],
        &["status", &id],
        &["verify", &id],
        &["replay", &id],
        &["show", &id, &step],
        &["checkout", &at, "files"],
        &["restore", &id],
        &["check", "--session", &id],
        &["check", "true", "--session", &id],
        &["fork", &id],
        &["resume", &id, "go on"],
    ];
    let mut hints = std::collections::BTreeSet::new();
    for command in commands {
        let output = fixture.rath(command);
        let printed = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        let quoted = printed.split('`').skip(1).step_by(2).filter(|text| text.starts_with("rath "));
        // The name of the program alone is no command.
        hints.extend(quoted.filter(|text| *text != "rath forget").map(str::to_owned));
    }
    assert!(hints.iter().any(|hint| hint.starts_with("rath resume")), "{hints:?}");
    for hint in hints {
        let command = hint.replace("script:FILE", "script:script.jsonl");
        let line = command.replacen("rath ", "\"$PROGRAM\" ", 1);
        let mut shell = rath_test_support::program("sh");
        shell.args(["-c", &line]).env("PROGRAM", crate::program_path()).current_dir(fixture.path(""));
        let output = shell.output().expect("a shell");
        assert!(matches!(output.status.code(), Some(0 | 3 | 4)), "{hint}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
