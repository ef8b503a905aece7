//! Forks of a conversation, and of a session that a person changed files of.

use std::path::PathBuf;

use rath_test_support::wait_until;

use crate::permissions::Place;
use crate::talk::{HELLO, json, request, talk, write_call};

/// Returns the directories of forks.
fn fork_directories(place: &Place) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place.path("app/.rath/work")).expect("forks");
    entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.join("a.txt").exists()).collect()
}

/// Returns the newest files of a session, with their contents.
fn files(place: &Place, session: &str) -> Vec<(String, String)> {
    let into = place.path("copy");
    let _ = std::fs::remove_dir_all(&into);
    let output = place.rath("app", &["checkout", session, "../copy"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let entries = std::fs::read_dir(&into).expect("files").map(|entry| entry.expect("an entry").path());
    let name = |path: &PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
    let mut files: Vec<_> = entries
        .filter(|path| path.is_file())
        .map(|path| (name(&path), std::fs::read_to_string(&path).expect("a text")))
        .collect();
    files.sort();
    files
}

fn owned(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn a_fork_has_the_changes_by_hand_that_the_model_was_told_of_and_those_since() {
    let script = [&*write_call("b.txt", "from the agent"), r#"{"text": "Written."}"#, r#"{"text": "I see."}"#, HELLO];
    let place = Place::new(&script.join("\n"));
    let mut terminal = talk(&place, &["--mode", "workspace"]);
    terminal.press("a new session", 1, "write it\r");
    wait_until("the answer", || terminal.screen().contains("Written."));
    place.write("app/a.txt", "by hand\n");
    place.write("app/mine.txt", "mine\n");
    terminal.press("Written.", 1, "go on\r");
    terminal.press("a.txt changed, mine.txt added since the last turn", 1, "");
    wait_until("the answer", || terminal.screen().contains("I see."));
    place.write("app/late.txt", "late\n");

    // Another process cannot write the session meanwhile, and says what its fork is without.
    let output = place.rath("app", &["fork", "@"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("the fork does not have what changed in") && error.contains("late.txt added"), "{error}");

    terminal.press("I see.", 1, "/fork\r");
    terminal.press("late.txt added since the last turn", 1, "");
    terminal.press("now in the fork", 1, "/sessions\r");
    terminal.press("goes back to the session that this one was forked from", 1, "hello\r");
    terminal.press("Hello, Ann.", 1, "/quit\r");
    let (screen, status) = terminal.finish();
    assert!(status.success(), "{screen}");
    let expected =
        [("a.txt", "by hand\n"), ("b.txt", "from the agent\n"), ("late.txt", "late\n"), ("mine.txt", "mine\n")];
    assert_eq!(files(&place, "@"), owned(&expected));
    let directories = fork_directories(&place);
    assert!(!directories.is_empty());
    for (name, text) in expected {
        assert_eq!(std::fs::read_to_string(directories[0].join(name)).unwrap_or_default(), text, "{name}");
    }
    let read = request(&place);
    assert!(read.contains("a.txt changed, mine.txt added") && read.contains("late.txt added"), "{read}");
    assert!(place.rath("app", &["verify"]).status.success());
}

#[test]
fn a_fork_by_command_has_what_changed_since_the_last_turn() {
    for fork in [&["fork", "@"][..], &["resume", "@", "Go on.", "--fork"]] {
        let place = Place::new(&[&*write_call("b.txt", "from the agent"), HELLO].join("\n"));
        assert!(place.run_in("app", &[]).status.success());
        let original = json(&place, &["ls", "--json"])[0]["session"].as_str().expect("an id").to_owned();
        place.write("app/a.txt", "by hand\n");
        place.write("app/mine.txt", "mine\n");
        place.write("script.jsonl", HELLO);
        let output = place.rath("app", fork);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        assert!(error.contains("a.txt changed, mine.txt added since the last turn"), "{error}");
        assert!(!error.contains("nothing changed since the last turn"), "{error}");
        let expected = owned(&[("a.txt", "by hand\n"), ("b.txt", "from the agent\n"), ("mine.txt", "mine\n")]);
        assert_eq!((files(&place, "@"), files(&place, &original)), (expected.clone(), expected));
        let newest = json(&place, &["ls", "--json"]).pop().expect("a session");
        assert_ne!(newest["session"], original, "{fork:?}");
        let told = "changed since your last turn, not by you: a.txt changed, mine.txt added";
        assert_eq!(request(&place).matches(told).count(), 1, "{fork:?}");
        assert!(place.rath("app", &["verify"]).status.success());
    }
}

#[test]
fn a_session_that_was_forked_is_found_again() {
    let place = Place::new(HELLO);
    assert!(place.run_in("app", &[]).status.success());
    let original = json(&place, &["ls", "--json"])[0]["session"].as_str().expect("an id").to_owned();
    assert!(place.rath("app", &["fork", "@"]).status.success());
    let printed = |args: &[&str]| String::from_utf8_lossy(&place.rath("app", args).stderr).into_owned();
    assert!(printed(&["ls"]).contains("`rath ls --all` also lists 1 session that others go on from"));
    assert!(!printed(&["ls", "--all"]).contains("also lists"));
    let error = printed(&["log", "@-1"]);
    assert!(error.contains("the store has 1 session, and 1 that others go on from"), "{error}");
    assert!(error.contains("`rath ls --all` lists them"), "{error}");
    let mut terminal = talk(&place, &["-c"]);
    terminal.press("/help lists the commands", 1, "/sessions\r");
    let id = &original[original.len() - 8..];
    terminal.press(&format!("/open {id} goes back"), 1, &format!("/open {id}\r"));
    terminal.press(&format!("session {id};"), 1, "/quit\r");
    terminal.finish();
}
