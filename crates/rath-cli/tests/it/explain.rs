//! `rath explain`: every line fits a terminal, and the numbers are those of the lines.

use rath::Usage;
use rath::chunk::{
    Assistant, Call, Change, Checked, Effect, Identity, Instructions, Outcome, ToolResult, ToolSpec, ToolStarted,
    Verdict,
};
use rath::prelude::*;

/// Creates a session whose texts are all longer than a line.
fn long_session() -> Session {
    let long = |word: &str| format!("{word} ").repeat(40);
    let spec =
        |nth: usize| ToolSpec::new(format!("server__some_tool_{nth}"), "", serde_json::json!({"type": "object"}));
    let identity = Identity { provider: "openrouter".to_owned(), model: "vendor/some-model-4-5-20260101".to_owned() };
    let mut session = Session::user(long("please")).by(long("module"));
    session.push(Instructions::new(long("work")).with_tools((0..30).map(spec).collect::<Vec<_>>()));
    let arguments = serde_json::json!({"command": long("echo")}).to_string();
    let calls = vec![Call::new("call_1_1", "shell", arguments.clone()), Call::new("call_1_2", "shell", arguments)];
    let answer = Assistant::new(long("look")).with_calls(calls).with_provider(identity);
    session.push_with_usage(answer.clone(), Usage::new(123_456, 12_345));
    for call in ["call_1_1", "call_1_2"] {
        session.push(ToolStarted::new(call));
        let effects = vec![Effect::new("src/main.rs", Change::Modified)];
        session.push(ToolResult::new(call, Outcome::Ok, long("output")).with_effects(effects));
    }
    session.push(Checked::new(long("cargo"), Verdict::Broken));
    session.push_with_usage(answer, Usage::new(123_456, 12_345));
    session
}

#[test]
fn every_line_fits_a_terminal_of_80_columns() {
    let folder = rath_test_support::temp_dir();
    let session = long_session();
    session.save_blocking(folder.path().join("s.rath")).expect("saved");
    for step in session.as_record().steps() {
        let shown = super::printed(folder.path(), &["explain", "s.rath", &step.id().to_string()]);
        assert!(!shown.is_empty());
        for line in shown.lines() {
            assert!(line.chars().count() <= 80, "{line}\n{shown}");
        }
    }
}

/// Every tool is named, however many there are.
#[test]
fn what_the_model_saw_is_counted_as_it_is_listed() {
    let folder = rath_test_support::temp_dir();
    long_session().save_blocking(folder.path().join("s.rath")).expect("saved");
    let shown = super::printed(folder.path(), &["explain", "s.rath"]);
    let (_, list) = shown.split_once("the model saw ").expect("a list");
    let (heading, list) = list.split_once(":\n").expect("lines");
    let lines = list.lines().take_while(|line| line.starts_with("  "));
    let steps = lines.filter(|line| !line.starts_with("   ")).count();
    assert_eq!((heading, steps), ("instructions and 2 messages", 3), "{shown}");
    assert!((0..30).all(|nth| list.contains(&format!("server__some_tool_{nth}"))), "{shown}");
}
