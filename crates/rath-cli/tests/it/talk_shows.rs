//! The view of the agent's work in a conversation.

use expect_test::expect;
use rath_test_support::{Terminal, wait_until};

use crate::permissions::Place;
use crate::talk::{HELLO, lines, talk, talk_with, write_call};

#[test]
fn calls_that_an_earlier_run_asked_for_have_cards_too() {
    let calls = r#"{"calls": [{"name": "shell", "arguments": {"command": "echo out; exit 3"}},
        {"name": "write_file", "arguments": {"path": "b.txt", "content": "from the agent\n"}}]}"#;
    let place = Place::new(&format!("{}\n{{\"text\": \"Done.\"}}", calls.replace('\n', " ")));
    let mut terminal = talk(&place, &[]);
    terminal.press("a new session", 1, "go\r");
    terminal.press("allow it?", 1, "\u{3}");
    terminal.press("stopped; say what to do instead", 1, "/quit\r");
    terminal.finish();

    let script = r#"{"text": "Done."}"#;
    place.write("script.jsonl", script);
    let mut terminal = talk(&place, &[]);
    terminal.press("Enter goes on with it", 1, "/approve\r");
    terminal.press("y: run it", 1, "y\r");
    terminal.press("y: run it", 2, "y\r");
    terminal.press("Enter goes on with the turn", 1, "\r");
    wait_until("the answer", || terminal.screen().contains("Done."));
    terminal.press("Done.", 1, "/quit\r");
    let (screen, _) = terminal.finish();
    assert!(screen.contains("✗ shell echo out; exit 3  failed") && screen.contains("│ out"), "{screen}");
    assert!(screen.contains("✓ write_file b.txt") && screen.contains("+from the agent"), "{screen}");
}

#[test]
fn the_last_row_has_the_whole_width() {
    let place = Place::new(HELLO);
    let mut terminal = talk_with(&place, &[], 200, |command| _ = command.env("NO_COLOR", "1"));
    terminal.press("a new session", 1, "hello\r");
    terminal.press(" tokens · ", 1, "/quit\r");
    let (screen, _) = terminal.finish();
    let directory = place.path("app").canonicalize().expect("a directory").display().to_string();
    let row = lines(&screen).into_iter().find(|line| line.contains(" tokens · ")).expect("the last row");
    assert!(row.ends_with(&directory), "{row}");
}

const SLOW: &str = r#"{"calls": [{"name": "shell", "arguments": {"command": "echo begun; until [ -e go ]; do sleep 0.01; done; echo two >> a.txt"}}]}"#;

#[test]
fn a_run_shows_its_calls_as_a_conversation_does() {
    let place = Place::new(&[SLOW, HELLO].join("\n"));
    let script = format!("script:{}", place.path("script.jsonl").display());
    let mut command = place.command("app", &["run", "go", "--mode", "workspace", "--model", &script]);
    command.env("TERM", "xterm");
    let mut terminal = Terminal::with_columns(command, 80);
    terminal.press("│ begun", 1, "");
    assert!(terminal.screen().contains("● ") && !terminal.screen().contains("✓"), "{}", terminal.screen());
    place.write("app/go", "");
    let (screen, status) = terminal.finish();
    assert!(status.success(), "{screen}");
    let shown = lines(&screen).join("\n");
    assert!(shown.contains("✓ shell echo begun") && shown.contains("Hello, **Ann**."), "{shown}");
    assert!(screen.contains("\u{1b}[32m  +two"), "a diff is coloured: {screen:?}");
}

#[test]
fn in_a_pipe_the_answer_is_data_and_cards_are_plain() {
    let calls = r#"{"calls": [{"name": "shell", "arguments": {"command": "echo out; exit 3"}}]}"#;
    let place = Place::new(&[calls, &*write_call("b.txt", "new"), HELLO].join("\n"));
    let output = place.run_in("app", &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Hello, **Ann**.\n");
    expect![[r#"
        sandbox: writes only in TMP/app, no network
        ✗ shell echo out; exit 3  failed
          │ exit code 3
          │ out
        ✓ write_file b.txt
          b.txt
          new file
          @@ -0,0 +1,1 @@
          +new
        done
        saved
    "#]]
    .assert_eq(&place.stable(&String::from_utf8_lossy(&output.stderr)));
}
