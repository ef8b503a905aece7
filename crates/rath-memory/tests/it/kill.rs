//! A process that is killed while it writes loses nothing that it was told is durable.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rath_memory::{Lookup, Note, Position, Query};
use rath_test_support::{Chance, count, seed, temp_dir, this_test};

use crate::{id, note, open, recall};

const DIRECTORY: &str = "RATH_TEST_MEMORY";

/// Writes notes and forgets some, and notes down what is done. The parent kills it.
#[test]
#[ignore = "a child process of the test below"]
fn writer() {
    // Among all ignored tests it has no parent.
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let store = open(&directory);
    let mut done = fs::File::options().append(true).create(true).open(directory.join("done")).expect("a file");
    for nth in store.position().expect("a position").0.. {
        // Enough at once that segments are made.
        let size = if nth % 5 == 0 { 700 } else { 1 };
        let first = store.position().expect("a position").0;
        let notes: Vec<Note> =
            (first..first + size).map(|nth| note(nth, &format!("sentence about topic{nth}")).thread("t")).collect();
        store.remember(&notes).expect("durable");
        writeln!(done, "remember {first} {size}").expect("written");
        if nth % 7 == 0 {
            store.forget(&[id(first)], 1).expect("forgotten");
            writeln!(done, "forget {first} 1").expect("written");
        }
    }
}

#[test]
fn a_killed_process_loses_nothing_that_was_durable() {
    let directory = temp_dir();
    let mut chance = Chance(seed());
    let mut seen = 0;
    for _ in 0..count("RATH_KILLS", 20) {
        let settings = [(DIRECTORY, directory.path().to_str().expect("text"))];
        let mut child = this_test("kill::writer", &settings).stdout(Stdio::null()).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(20 + chance.below(300)));
        child.kill().expect("it is killed");
        child.wait().expect("it ends");
        let store = open(directory.path());
        let done = fs::read_to_string(directory.path().join("done")).unwrap_or_default();
        let mut gone = Vec::new();
        let mut last = None;
        for line in done.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, first, size] = words[..] else { continue };
            let (first, size): (u32, u32) = (first.parse().expect("a number"), size.parse().expect("a number"));
            match what {
                "forget" => gone.push(first),
                _ => last = Some(first + size - 1),
            }
        }
        let Some(last) = last else { continue };
        seen = seen.max(last);
        let listed = store.list(&[], Position(0), usize::MAX).expect("a list");
        let listed: HashSet<String> = listed.into_iter().map(|(_, note)| note.id.to_string()).collect();
        for nth in (0..=last).filter(|nth| !listed.contains(&nth.to_string())) {
            let read = store.read(&id(nth)).expect("read");
            assert!(matches!(read, Lookup::Forgotten(_)), "note {nth} of {last} is lost: {read:?}");
        }
        assert!(gone.iter().all(|nth| !listed.contains(&nth.to_string())), "what was forgotten stays so");
        for nth in [0, last / 2, last] {
            let is_gone = gone.contains(&nth);
            let read = store.read(&id(nth)).expect("read");
            assert!(is_gone || matches!(read, Lookup::Note(_) | Lookup::Forgotten(_)), "{nth}: {read:?}");
            let is_found = recall(&store, &Query::new(format!("topic{nth}"))).first() == Some(&nth.to_string());
            // What was being forgotten when the process was killed is forgotten or not.
            assert!(is_found == matches!(read, Lookup::Note(_)) && !(is_found && is_gone), "{nth}");
        }
    }
    assert!(seen > 5_000, "most processes wrote something: {seen}");
}
