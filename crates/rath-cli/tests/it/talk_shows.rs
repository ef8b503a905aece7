//! What a conversation shows of the agent's work.

use rath_test_support::wait_until;

use crate::permissions::Place;
use crate::talk::talk;

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
