//! What is typed in a conversation.

use crate::permissions::Place;
use crate::talk::{HELLO, request, talk};

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
