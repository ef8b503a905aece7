//! Tests of `rath gc` where a session file of a `jsonl:` store was renamed, copied or moved: all that it names stays.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fixture::Fixture;
use crate::gc_lost_stores::{gc, stored, versions};

fn fixture() -> Fixture {
    Fixture::in_folder(crate::workshop(""), "jsonl:.rath/s")
}

/// Returns the file of a session.
fn file_of(fixture: &Fixture, session: &str) -> PathBuf {
    let entries = fs::read_dir(fixture.path(".rath/s")).expect("a store").flatten().map(|entry| entry.path());
    let is_own = |path: &PathBuf| path.to_string_lossy().ends_with(&format!("{session}.jsonl"));
    entries.into_iter().find(is_own).expect("a file")
}

/// Returns what `rath` says to people, and its exit code.
fn described(fixture: &Fixture, args: &[&str]) -> (i32, String) {
    let output = fixture.rath(args);
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.code().expect("an exit code"), text)
}

/// Runs the first command in a text that begins with `mv`.
fn paste_move(fixture: &Fixture, text: &str) {
    let command = text.split('`').find(|part| part.starts_with("mv ")).expect("a command");
    let folder = fixture.path("");
    let moved = rath_test_support::program("sh").args(["-c", command]).current_dir(folder).status().expect("sh runs");
    assert!(moved.success(), "{command}");
}

/// The places that a user may move the file of a session to, from its name.
const PLACES: [fn(&str) -> String; 7] = [
    |_| "important.jsonl".to_owned(),
    |_| "it's mine.jsonl".to_owned(),
    |name| format!("{name}.bak"),
    |name| format!("{name}.tmp"),
    |name| format!("{}.jsonl", name.strip_suffix(".jsonl").expect("a name").to_uppercase()),
    |name| format!("old/2025/{name}"),
    |_| "old/no-suffix".to_owned(),
];

#[test]
fn versions_that_a_renamed_or_moved_session_names_stay() {
    for place in PLACES {
        let fixture = fixture();
        let one = fixture.work(None, "One", "echo one > n.txt");
        let two = fixture.work(None, "Two", "echo two > n.txt");
        let file = file_of(&fixture, &one);
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
        let place = fixture.path(".rath/s").join(place(name));
        fs::create_dir_all(place.parent().expect("a directory")).expect("made");
        fs::rename(&file, &place).expect("moved");

        let (code, text) = gc(&fixture, &["--delete", &two]);
        assert!(code == 0 && text.contains("1 session file is not listed"), "{code} {text}");
        for args in [&["ls"][..], &["ls", "--json"]] {
            let (code, text) = described(&fixture, args);
            assert!(code == 3 && text.matches("1 session file is not listed").count() == 1, "{code} {text}");
        }
        let (code, text) = described(&fixture, &["verify"]);
        assert!(code == 3 && text.contains(&format!("holds session {one}; `mv -n ")), "{code} {text}");
        paste_move(&fixture, &text);
        assert_eq!(stored(&fixture, &one), "one\n");
        assert_eq!(described(&fixture, &["verify"]).0, 0);
        assert_eq!(fixture.code(&["ls"]), 0);
        gc(&fixture, &["--all"]);
        assert_eq!(versions(&fixture), 0);
    }
}

#[test]
fn versions_stay_while_a_copy_of_a_deleted_session_is_in_the_store() {
    let fixture = fixture();
    let one = fixture.work(None, "One", "echo one > n.txt");
    let (file, copy) = (file_of(&fixture, &one), fixture.path(".rath/s/copy of one.jsonl"));
    fs::copy(&file, &copy).expect("copied");
    let (code, text) = described(&fixture, &["verify"]);
    assert!(code == 3 && text.contains("copy of one.jsonl, remove it, or move it out of the store"), "{code} {text}");
    let before = versions(&fixture);
    let (code, text) = gc(&fixture, &["--all"]);
    assert!(code == 0 && text.contains("copy of one.jsonl"), "{code} {text}");
    assert_eq!(versions(&fixture), before);
    let (_, text) = described(&fixture, &["verify"]);
    paste_move(&fixture, &text);
    assert_eq!(stored(&fixture, &one), "one\n");
}

#[test]
fn a_session_file_that_cannot_be_read_is_named_and_nothing_is_removed() {
    let damages: [fn(&Path); 2] = [
        // The first row, by which a file is recognised.
        |path| fs::write(path, format!("#{}", &fs::read_to_string(path).expect("read")[1..])).expect("written"),
        |path| {
            fs::write(path, fs::read_to_string(path).expect("read").replace("echo one", "echo eno")).expect("written");
        },
    ];
    for damage in damages {
        let fixture = fixture();
        let one = fixture.work(None, "One", "echo one > n.txt");
        let two = fixture.work(None, "Two", "echo two > n.txt");
        let (file, aside) = (file_of(&fixture, &one), fixture.path(".rath/s/old/one.jsonl"));
        fs::create_dir_all(fixture.path(".rath/s/old")).expect("made");
        fs::rename(&file, &aside).expect("moved");
        damage(&aside);
        let before = versions(&fixture);
        let (code, text) = gc(&fixture, &[]);
        assert!(code == 1 && text.contains("no files in work/.rath were removed"), "{code} {text}");
        assert!(text.contains("old/one.jsonl"), "{text}");
        let (code, text) = gc(&fixture, &["--delete", &two]);
        assert!(code != 0 && text.contains("old/one.jsonl may need steps of the session"), "{code} {text}");
        assert!(text.contains("hint: if you do not need .rath/s/old/one.jsonl, remove it, or move it out"), "{text}");
        assert_eq!(versions(&fixture), before);
        fs::rename(aside, fixture.path("one.jsonl")).expect("moved out");
        assert_eq!(gc(&fixture, &["--delete", &two]), (0, String::new()));
        assert_eq!(versions(&fixture), 0);
    }
}

/// A copy of a whole store in itself is a store, and its sessions have the right names.
#[test]
fn a_store_below_another_keeps_its_versions_and_is_no_damage() {
    let fixture = fixture();
    let one = fixture.work(None, "One", "echo one > n.txt");
    let below = Fixture::with_store(&fixture, "jsonl:.rath/s/copy");
    fs::create_dir(fixture.path(".rath/s/copy")).expect("made");
    for file in fs::read_dir(fixture.path(".rath/s")).expect("a store").flatten().filter(|file| file.path().is_file()) {
        fs::copy(file.path(), fixture.path(".rath/s/copy").join(file.file_name())).expect("copied");
    }
    assert_eq!([fixture.code(&["ls"]), fixture.code(&["verify"])], [0, 0]);
    assert_eq!(gc(&fixture, &["--all"]), (0, String::new()));
    assert_eq!(stored(&below, &one), "one\n");
}

/// Other files are no session files, and a directory of rath's own is none of a store.
#[test]
fn other_files_in_the_directory_of_a_store_cost_nothing() {
    let fixture = fixture();
    fixture.work(None, "One", "echo one > n.txt");
    fixture.write(".rath/s/notes.txt", "mine");
    fixture.write(".rath/s/data.jsonl", "{\"a\": 1}\n");
    fixture.write(".rath/s/empty.jsonl", "");
    assert_eq!([fixture.code(&["ls"]), fixture.code(&["verify"])], [0, 0]);
    assert_eq!(gc(&fixture, &["--all"]), (0, String::new()));
    assert_eq!(versions(&fixture), 0);
}

#[test]
fn forgetting_a_step_names_the_file_that_still_has_it() {
    let fixture = fixture();
    let one = fixture.work(None, "One", "echo one > n.txt");
    fs::copy(file_of(&fixture, &one), fixture.path(".rath/s/copy.jsonl")).expect("copied");
    let step = fixture.step(&one, "One");
    let (code, text) = described(&fixture, &["forget", &one, &step]);
    assert!(code == 1 && text.contains("copy.jsonl has the step, and is not in the list"), "{code} {text}");
    fs::remove_file(fixture.path(".rath/s/copy.jsonl")).expect("removed");
    assert_eq!(described(&fixture, &["forget", &one, &step]).0, 0);
}

/// A directory in `.rath` with session files is a store also if no file has the name of its session.
#[test]
fn versions_that_a_copied_file_in_the_directory_names_stay() {
    let fixture = fixture();
    let one = fixture.work(None, "One", "echo one > n.txt");
    let backup = fixture.path("work/.rath/backup/deep");
    fs::create_dir_all(&backup).expect("made");
    fs::copy(file_of(&fixture, &one), backup.join("one.jsonl")).expect("copied");
    let before = versions(&fixture);
    assert_eq!(gc(&fixture, &["--all"]).0, 0);
    assert_eq!(versions(&fixture), before);
    fs::remove_dir_all(backup).expect("removed");
    assert_eq!(gc(&fixture, &[]).0, 0);
    assert_eq!(versions(&fixture), 0);
}
