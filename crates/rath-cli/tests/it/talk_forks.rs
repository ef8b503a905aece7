//! Forks of a conversation, and of a session that a person changed files of.

use std::path::PathBuf;

use crate::permissions::Place;
use crate::talk::{HELLO, json, talk};

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
