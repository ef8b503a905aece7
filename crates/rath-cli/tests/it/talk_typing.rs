//! What is typed in a conversation.

use crate::permissions::Place;
use crate::talk::{HELLO, request, talk, write_call};

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
