//! Wrong input of every kind: one line of what is wrong, one of what to do, and an exit code that tells whose mistake it is.
//! A command in a hint works as it is printed.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::{Arc, Mutex};

use expect_test::expect_file;

use crate::demo::path_with_program;
use crate::fixture::with_numbered_steps;
use crate::permissions::Place;

/// The command lines, each with the exit code of the command in its hint. They are run in the directory of [`project`].
const ROWS: &str = include_str!("wrong_input/commands.txt");

/// Makes a project with a session that changed a file, and files that no command can use.
fn project() -> Place {
    let place = Place::new(
        r#"{"calls": [{"name": "shell", "arguments": {"command": "echo two >> a.txt"}}]}
{"text": "I added a line."}"#,
    );
    let output = place.run_in("app", &["--sandbox", "local:."]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    place.write("app/notes.txt", "hello\n");
    place.write("app/bad.json", "{\"openai:gpt-5\": {\"input\": \"much\"}}");
    place.write("app/full/x.txt", "here already\n");
    place.write("script.jsonl", r#"{"text": "Yes."}"#);
    place.write("key.txt", "sk-test-0123456789\n");
    let output = place.rath("app", &["export", "--as", "bundle", "-o", "one.rath"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    place
}

/// Returns a shell in which a person types a command line.
fn shell(place: &Place, line: &str) -> Command {
    let mut shell: Command = rath_test_support::program("sh");
    shell.args(["-c", line]).current_dir(place.path("app"));
    shell
        .env("HOME", place.path("home"))
        .env("USER", "ann")
        .env("PATH", path_with_program())
        .env_remove("XDG_DATA_HOME");
    shell
}

/// Returns the commands of rath in a hint.
fn commands(hint: &str) -> Vec<&str> {
    hint.split('`').skip(1).step_by(2).filter(|code| *code == "rath" || code.starts_with("rath ")).collect()
}

#[test]
fn wrong_input_is_answered_in_two_lines_and_the_hint_works() {
    let place = project();
    let answers: VecDeque<_> = std::iter::repeat_n(serde_json::json!({"text": "Yes."}), 20).collect();
    let url = crate::guide::serve(Arc::new(Mutex::new(answers)));
    let (mut report, mut wrong) = (String::new(), String::new());
    for line in ROWS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let output = shell(&place, line).output().expect("sh runs");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let code = output.status.code().expect("an exit code");
        let lines: Vec<_> = err.lines().collect();
        // What is noted before, and a second line of details, are neither.
        let lines: Vec<_> =
            lines.into_iter().filter(|line| !line.starts_with("note: ") && !line.starts_with("  ")).collect();
        let is_in_form =
            matches!(lines[..], [error, hint] if error.starts_with("error: ") && hint.starts_with("hint: "));
        if !is_in_form || !out.is_empty() || code == 0 {
            wrong.push_str(&format!("$ {line}\n{out}{err}exit {code}\n\n"));
        }
        let stable = err.replace(&place.path("").display().to_string(), "TMP/");
        report.push_str(&with_numbered_steps(&format!("$ {line}\n{stable}exit {code}\n")));
        for command in lines.iter().filter_map(|line| line.strip_prefix("hint: ")).flat_map(commands) {
            // A person who has a key and a model.
            let mut shell = shell(&place, command);
            shell.env("OPENAI_BASE_URL", &url).env("OPENAI_API_KEY", "sk-test").env("RATH_MODEL", "openai:gpt-5");
            let key = std::fs::File::open(place.path("key.txt")).expect("a file");
            let output = shell.stdin(key).output().expect("sh runs");
            if !output.status.success() {
                let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
                wrong.push_str(&format!("$ {line}\n{err}  the hint does not work: {}\n{printed}\n", output.status));
            }
        }
        report.push('\n');
    }
    expect_file!["wrong_input/answers.txt"].assert_eq(&report);
    assert!(wrong.is_empty(), "{wrong}");
}
