//! Typing in a conversation.

use rath_test_support::wait_until;

use crate::permissions::Place;
use crate::talk::{HELLO, json, lines, request, talk, write_call};

#[test]
fn keys_that_come_at_once_are_taken_at_once() {
    let place = Place::new(HELLO);
    let mut terminal = talk(&place, &[]);
    // If each key had to be waited for, the test would give up before the last one.
    let words = "word ".repeat(600);
    terminal.press("a new session", 1, &format!("{words}end\r"));
    terminal.press("Hello, Ann.", 1, "/quit\r");
    let (screen, status) = terminal.finish();
    assert!(status.success(), "{screen}");
    assert!(request(&place).contains(&format!("{words}end")), "{screen}");
}

#[test]
fn a_second_ctrl_c_leaves_unless_a_draft_would_be_lost() {
    let slow = r#"{"calls": [{"name": "shell", "arguments": {"command": "echo begun; sleep 1000"}}]}"#;
    // With a draft the second one takes it away, and the next one asks.
    for (draft, then) in [("", "\u{3}"), ("a draft", "\u{3}\u{3}")] {
        let place = Place::new(&[slow, HELLO].join("\n"));
        let mut terminal = talk(&place, &["--mode", "workspace"]);
        terminal.press("a new session", 1, "first\r");
        terminal.press("│ begun", 1, draft);
        wait_until("the draft", || terminal.screen().contains(&format!("> {draft}")));
        terminal.press("│ begun", 1, "\u{3}");
        terminal.press("stopped; say what to do instead", 1, then);
        if !draft.is_empty() {
            terminal.press("Ctrl-C again leaves", 1, "\u{3}");
        }
        let (screen, status) = terminal.finish();
        assert!(status.success() && screen.contains("saved as "), "{screen}");
    }
    // A turn that was not stopped asks again.
    let place = Place::new(HELLO);
    let mut terminal = talk(&place, &[]);
    terminal.press("a new session", 1, "\u{3}");
    terminal.press("Ctrl-C again leaves", 1, "hello\r");
    terminal.press("Hello, Ann.", 1, "\u{3}");
    terminal.press("Ctrl-C again leaves", 2, "\u{3}");
    terminal.finish();
}

#[test]
fn a_message_that_attaches_files_stays_what_was_typed() {
    let place = Place::new(&[HELLO, r#"{"text": "Read."}"#].join("\n"));
    place.write("app/my notes.txt", "the content of the notes\n");
    let mut terminal = talk(&place, &[]);
    terminal.press("a new session", 1, "read @\"my notes.txt\" and @nofile.txt in @below\r");
    terminal.press("Hello, Ann.", 1, "/quit\r");
    let (screen, _) = terminal.finish();
    assert!(screen.contains("@nofile.txt is no file; sent as text"), "{screen}");
    assert!(screen.contains("@below is a directory; sent as text"), "{screen}");
    let read = request(&place);
    assert_eq!(read.matches("the content of the notes").count(), 1, "{read}");
    let typed = r#"read @"my notes.txt" and @nofile.txt in @below"#;
    assert_eq!(json(&place, &["ls", "--json"])[0]["title"], typed);

    let mut terminal = talk(&place, &["-c"]);
    terminal.press("Hello, Ann.", 1, "/rewind 1\r");
    terminal.press("back to before message 1", 1, "\r");
    terminal.press("Hello, Ann.", 2, "/quit\r");
    let (screen, _) = terminal.finish();
    assert!(screen.contains(&format!("> {typed}")) && !screen.contains("the content of the notes"), "{screen}");
    assert_eq!(request(&place).matches("the content of the notes").count(), 1, "it is attached again, once");
}

#[test]
fn a_step_names_the_message_that_its_turn_began_with() {
    let script = [HELLO, r#"{"text": "Two."}"#, r#"{"text": "Three."}"#];
    let place = Place::new(&script.join("\n"));
    let mut terminal = talk(&place, &[]);
    terminal.press("a new session", 1, "first\r");
    terminal.press("Hello, Ann.", 1, "second\r");
    terminal.press("Two.", 1, "");
    wait_until("the second turn is stored", || {
        json(&place, &["log", "@", "--json"]).iter().any(|step| step["chunk"]["text"] == "Two.")
    });
    let steps = json(&place, &["log", "@", "--json"]);
    let step = steps.iter().find(|step| step["chunk"]["text"] == "Two.").expect("the answer");
    let id = &step["id"].as_str().expect("an id")[..8];
    terminal.press("Two.", 1, "/rewind 99\r");
    terminal.press("or a step, found `99`", 1, &format!("/rewind {id}\r"));
    terminal.press("back to before message 2", 1, " again\r");
    terminal.press("Three.", 1, &format!("/rewind {id}\r"));
    // That turn was taken back already.
    terminal.press("from 1 to 2, or a step", 2, "/quit\r");
    let (screen, _) = terminal.finish();
    let read = request(&place);
    assert!(read.contains("second again") && !read.contains("Two."), "{screen}\n{read}");
}

#[test]
fn answers_to_questions_are_shown() {
    let place = Place::new(&[&*write_call("b.txt", "one"), &*write_call("c.txt", "two"), HELLO].join("\n"));
    let mut terminal = talk(&place, &[]);
    terminal.press("a new session", 1, "go\r");
    terminal.press("allow it?", 1, "y\r");
    terminal.press("allow it?", 2, "n not now\r");
    terminal.press("Hello, Ann.", 1, "/quit\r");
    let (screen, _) = terminal.finish();
    // Printed above the area, and not only typed in it.
    for answer in ["? y", "? n not now"] {
        assert!(screen.contains(&format!("\u{1b}[J{answer}\n")), "{answer}: {screen:?}");
    }
}

/// An answer that was typed and not sent is none to the question after it.
#[test]
fn what_was_typed_for_one_question_answers_no_other() {
    let calls = [&*write_call("safe.txt", "safe"), &*write_call("other.txt", "other"), HELLO];
    let place = Place::new(&calls.join("\n"));
    let mut terminal = talk(&place, &["--mode", "ask"]);
    terminal.press("a new session", 1, "go\r");
    terminal.press("safe.txt", 1, "");
    terminal.press("allow it?", 1, "y");
    wait_until("the letter", || lines(&terminal.screen()).iter().any(|line| line.trim_end() == "? y"));
    terminal.press("allow it?", 1, "\u{3}");
    terminal.press("stopped; say what to do instead", 1, "something else\r");
    wait_until("the next question", || terminal.screen().matches("allow it?").count() >= 2);
    terminal.press("other.txt", 1, "\r");
    terminal.press("not understood", 1, "n\r");
    terminal.press("Hello, Ann.", 1, "/quit\r");
    let (screen, _) = terminal.finish();
    assert!(!place.path("app/other.txt").exists(), "{screen}");
}

#[test]
fn a_check_that_takes_long_can_be_stopped() {
    let place = Place::new(HELLO);
    let mut terminal = talk(&place, &["--mode", "workspace"]);
    terminal.press("a new session", 1, "hello\r");
    terminal.press("Hello, Ann.", 1, "/check touch begun; sleep 1000\r");
    wait_until("the check has begun", || place.path("app/begun").exists());
    terminal.press("Ctrl-C stops", 1, "\u{3}");
    terminal.press("sleep 1000: stopped", 1, "/check true\r");
    terminal.press("true: passed", 1, "/quit\r");
    let (screen, status) = terminal.finish();
    assert!(status.success(), "{screen}");
    assert!(place.rath("app", &["verify"]).status.success());
}
