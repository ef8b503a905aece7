//! Going on with a session: what is asked about first, and what is not.

use rath_test_support::wait_until;

use crate::permissions::Place;

const CALL: &str = r#"{"calls": [{"name": "shell", "arguments": {"command": "echo made >> made.txt"}}]}"#;
const TEXT: &str = r#"{"text": "Well."}"#;
/// A call that changes a file and does not end.
const HANGS: &str = r#"{"calls": [{"name": "shell", "arguments": {"command": "echo made >> made.txt; sleep 1000"}}]}"#;

/// Runs `rath` with these answers, and returns its exit code and what it printed.
fn run(place: &Place, answers: &str, args: &[&str]) -> (i32, String) {
    place.write("script.jsonl", answers);
    let script = format!("script:{}", place.path("script.jsonl").display());
    let output = place.rath("app", &[args, &["--model", &script]].concat());
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code().expect("an exit code"), printed)
}

/// Makes a session whose only call waits for a decision and was not begun.
fn with_waiting_call() -> Place {
    let place = Place::new("");
    let (code, printed) = run(&place, CALL, &["run", "Go.", "--mode", "ask"]);
    assert_eq!(code, 4, "{printed}");
    place
}

/// Makes a session whose program was killed in the middle of a call that had changed a file.
fn with_interrupted_call() -> Place {
    let place = Place::new(HANGS);
    let script = format!("script:{}", place.path("script.jsonl").display());
    let mut child = place.command("app", &["run", "Go.", "--model", &script]).spawn().expect("rath runs");
    wait_until("the call changed a file", || !place.read("app/made.txt").is_empty());
    child.kill().expect("it is killed");
    child.wait().expect("it has ended");
    place
}

#[test]
fn a_call_that_was_not_begun_is_asked_about_and_never_starts_after_other_words() {
    // Without other words it is asked about.
    for mode in ["ask", "read-only"] {
        let place = with_waiting_call();
        let (code, printed) = run(&place, TEXT, &["resume", "@", "--mode", mode]);
        assert_eq!((code, place.read("app/made.txt")), (if mode == "ask" { 4 } else { 0 }, String::new()), "{printed}");
    }
    // After other words it does not start, not even in a mode that asks about nothing.
    for args in [
        &["resume", "@", "Do something else.", "--mode", "full"][..],
        &["resume", "@", "Do something else.", "--mode", "full", "--fork"],
        &["run", "-c", "Do something else.", "--mode", "full"],
    ] {
        let place = with_waiting_call();
        let (code, printed) = run(&place, TEXT, args);
        assert_eq!((code, place.read("app/made.txt")), (0, String::new()), "{args:?}: {printed}");
        // Nor later on.
        let (code, printed) = run(&place, TEXT, &["resume", "@", "And now?", "--mode", "full"]);
        assert_eq!((code, place.read("app/made.txt")), (0, String::new()), "{args:?}: {printed}");
    }
    // A person who allows it first has it made.
    let place = with_waiting_call();
    assert!(place.rath("app", &["review", "--approve", "call_1_1"]).status.success());
    let (code, printed) = run(&place, TEXT, &["resume", "@", "--mode", "ask"]);
    assert_eq!((code, &*place.read("app/made.txt")), (0, "made\n"), "{printed}");
}

#[test]
fn the_only_question_on_going_on_is_about_what_an_interrupted_call_changed() {
    type Change = fn(&Place);
    let rows: [(&str, Change, &[&str]); 4] = [
        ("a file is changed", |place| place.write("app/a.txt", "by hand\n"), &[]),
        ("a file is new", |place| place.write("app/new/b.txt", "by hand\n"), &[]),
        ("a file is gone", |place| std::fs::remove_file(place.path("app/a.txt")).expect("it is there"), &[]),
        ("the prompt of the agent is another", |_| {}, &["--system", "Be someone else."]),
    ];
    for (name, change, options) in rows {
        let place = Place::new("");
        let (code, printed) = run(&place, &format!("{CALL}\n{TEXT}"), &["run", "Go."]);
        assert_eq!(code, 0, "{name}: {printed}");
        change(&place);
        let (code, printed) = run(&place, TEXT, &[&["resume", "@", "Go on."], options].concat());
        assert_eq!(code, 0, "{name}: {printed}");
    }
    for words in [&["resume", "@"][..], &["resume", "@", "Something else."], &["run", "-c", "Something else."]] {
        let place = with_interrupted_call();
        let (code, printed) = run(&place, TEXT, &[words, &["--mode", "full"]].concat());
        assert_eq!((code, &*place.read("app/made.txt")), (4, "made\n"), "{words:?}: {printed}");
        assert!(printed.contains("made.txt added after `shell` started"), "{words:?}: {printed}");
        assert!(place.rath("app", &["review", "--skip", "call_1_1"]).status.success());
        let (code, printed) = run(&place, TEXT, &["resume", "@", "--mode", "full"]);
        assert_eq!((code, &*place.read("app/made.txt")), (0, "made\n"), "{words:?}: {printed}");
    }
}

#[test]
fn a_session_with_a_script_goes_on_without_naming_it_again() {
    let place = Place::new("");
    let (code, printed) = run(&place, TEXT, &["run", "Go."]);
    assert_eq!(code, 0, "{printed}");
    let rath = |args: &[&str]| {
        let output = place.rath("app", args);
        let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code().expect("an exit code"), printed)
    };
    let (code, printed) = rath(&["resume", "@", "And more."]);
    assert!(code == 0 && printed.contains("Well."), "{printed}");
    // The command that a fork prints works as it is printed.
    let (_, printed) = rath(&["fork", "@"]);
    let (_, command) = printed.split_once("`rath ").expect("a command");
    let words: Vec<_> = command.split('`').next().expect("a command").split(' ').collect();
    let quoted =
        words.iter().map(|word| word.trim_matches('\'')).collect::<Vec<_>>().join(" ").replace("Go on.", "Go.");
    let (code, printed) = rath(&quoted.split(' ').collect::<Vec<_>>());
    assert_eq!(code, 0, "{quoted}: {printed}");
    // No model reads the path, and a script that is gone is named anew.
    let (_, read) = rath(&["render", "@", "head", "--to", "openai:gpt-5"]);
    assert!(!read.contains("script.jsonl"), "{read}");
    std::fs::rename(place.path("script.jsonl"), place.path("moved.jsonl")).expect("moved");
    let (code, printed) = rath(&["resume", "@", "And more."]);
    assert!(code == 2 && printed.contains("--model script:FILE"), "{printed}");
    assert_eq!(rath(&["resume", "@", "And more.", "--model", "script:../moved.jsonl"]).0, 0);
    assert_eq!(rath(&["resume", "@", "And more."]).0, 0);
    assert_eq!(rath(&["verify"]).0, 0);
}
