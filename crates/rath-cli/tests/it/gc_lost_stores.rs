//! Tests of `rath gc` where a store was lost, replaced or emptied: the versions that it named stay until the user says that it is gone.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::fixture::{Fixture, for_each_store};

/// Runs `rath gc`, and returns its exit code and its text for people.
pub(crate) fn gc(fixture: &Fixture, args: &[&str]) -> (i32, String) {
    let output = fixture.rath(&[&["gc", "--directory", "work"], args].concat());
    (output.status.code().expect("an exit code"), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns the number of stored versions.
pub(crate) fn versions(fixture: &Fixture) -> usize {
    let entries = |path: PathBuf| std::fs::read_dir(path).expect("a directory").flatten().map(|entry| entry.path());
    let folders = entries(fixture.path("work/.rath/workspace/objects")).filter(|path| path.is_dir());
    folders.map(|folder| entries(folder).count()).sum()
}

/// Returns the file `n.txt` of a session, from its stored versions.
pub(crate) fn stored(fixture: &Fixture, session: &str) -> String {
    let _ = std::fs::remove_dir_all(fixture.path("checked-out"));
    let output = fixture.rath(&["checkout", session, "checked-out"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(fixture.path("checked-out/n.txt")).expect("read")
}

/// Returns the file or directory of a store.
fn place(fixture: &Fixture) -> PathBuf {
    fixture.path(fixture.store.split_once(':').expect("a scheme").1)
}

fn listed(fixture: &Fixture) -> String {
    std::fs::read_to_string(fixture.path("work/.rath/workspace/stores")).expect("a list")
}

/// Returns the URI that the hint of a collection names.
fn named_in_hint(told: &str) -> &str {
    let uri = told.split("--without ").nth(1).and_then(|rest| rest.split(" --store").next()).expect("a hint");
    uri.trim_matches('\'')
}

fn run_in_file(fixture: &Fixture, prompt: &str, command: &str) {
    let call = json!({"calls": [{"name": "shell", "arguments": {"command": command}}]});
    fixture.script(&format!("{call}\n{}\n", json!({"text": "Done."})));
    let file = Fixture::with_store(fixture, "file:session.rath");
    let run = ["run", prompt, "--sandbox", "local:work", "--model", "script:script.jsonl"];
    assert_eq!(file.code(&run), 0);
}

#[test]
fn versions_of_a_lost_store_stay_when_another_is_made_at_its_place() {
    for_each_store("", |fixture| {
        let one = fixture.work(None, "One", "echo one > n.txt");
        let (place, aside) = (place(fixture), fixture.path("aside"));
        std::fs::rename(&place, &aside).expect("moved");
        let two = fixture.work(None, "Two", "echo two > n.txt");
        let before = versions(fixture);
        let (code, told) = gc(fixture, &[]);
        assert!(code == 1 && told.contains("another store lies at"), "{code} {told}");
        assert_eq!(versions(fixture), before);

        let copy = fixture.path("new");
        std::fs::rename(&place, &copy).expect("moved");
        std::fs::rename(&aside, &place).expect("moved back");
        assert_eq!(stored(fixture, &one), "one\n");
        std::fs::rename(&place, &aside).expect("moved");
        std::fs::rename(&copy, &place).expect("moved");

        // The hint works when it is pasted, and does not cost the new store its versions, however often.
        for _ in 0..2 {
            let (code, told) = gc(fixture, &["--without", named_in_hint(&told)]);
            assert_eq!(code, 0, "{told}");
            assert!(versions(fixture) < before);
            assert_eq!(stored(fixture, &two), "two\n");
        }
        assert_eq!(gc(fixture, &[]), (0, String::new()), "the lost store is no longer listed");
    });
}

#[test]
fn versions_of_a_store_elsewhere_that_was_replaced_stay() {
    for elsewhere in ["sqlite:elsewhere.db", "jsonl:elsewhere"] {
        for_each_store("", |fixture| {
            let one = fixture.work(None, "One", "echo one > n.txt");
            let elsewhere = Fixture::with_store(fixture, elsewhere);
            elsewhere.work(None, "Two", "echo two > n.txt");
            let place = place(&elsewhere);
            let removed = if place.is_dir() { std::fs::remove_dir_all(&place) } else { std::fs::remove_file(&place) };
            removed.expect("removed");
            let three = elsewhere.work(None, "Three", "echo three > n.txt");
            let before = versions(fixture);
            let (code, told) = gc(fixture, &["--delete", &one]);
            assert!(code == 1 && told.contains("another store lies at"), "{code} {told}");
            assert_eq!(versions(fixture), before);
            for _ in 0..2 {
                let (code, told) = gc(fixture, &["--without", named_in_hint(&told)]);
                assert_eq!(code, 0, "{told}");
                assert_eq!(stored(&elsewhere, &three), "three\n");
            }
            assert!(versions(fixture) < before);
            assert_eq!(gc(fixture, &[]), (0, String::new()));
        });
    }
}

#[test]
fn versions_stay_when_the_files_of_a_store_are_removed() {
    for_each_store("", |fixture| {
        let one = fixture.work(None, "One", "echo one > n.txt");
        let elsewhere = Fixture::with_store(fixture, "jsonl:elsewhere");
        elsewhere.work(None, "Two", "echo two > n.txt");
        for entry in std::fs::read_dir(place(&elsewhere)).expect("a directory").flatten() {
            std::fs::remove_file(entry.path()).expect("removed");
        }
        let before = versions(fixture);
        let (code, told) = gc(fixture, &["--delete", &one]);
        assert!(code == 1 && told.contains("another store lies at"), "{code} {told}");
        assert_eq!(versions(fixture), before);
    });
}

/// Takes the id from a store and its list, as an older version left them.
fn remove_ids(fixture: &Fixture) {
    match fixture.store.split_once(':') {
        Some(("sqlite", path)) => {
            let store = rusqlite::Connection::open(fixture.path(path)).expect("a database");
            assert_eq!(store.execute("DELETE FROM counts WHERE name GLOB 'store *'", []).expect("removed"), 1);
        }
        _ => std::fs::remove_file(place(fixture).join("rath-store-id")).expect("removed"),
    }
    let list = fixture.path("work/.rath/workspace/stores");
    let uri = format!("{}:{}", fixture.store.split_once(':').expect("a scheme").0, place(fixture).display());
    std::fs::write(list, format!("\n{}\n", json!(uri))).expect("written");
}

#[test]
fn a_store_and_a_list_without_ids_get_them_with_the_next_session() {
    for_each_store("", |fixture| {
        let one = fixture.work(None, "One", "echo one > n.txt");
        assert!(listed(fixture).contains(r#""id":"#), "{}", listed(fixture));
        remove_ids(fixture);
        assert_eq!(gc(fixture, &[]), (0, String::new()));
        assert_eq!(stored(fixture, &one), "one\n");
        assert!(!listed(fixture).contains(r#""id":"#), "{}", listed(fixture));
        let two = fixture.work(None, "Two", "echo two > n.txt");
        assert!(listed(fixture).contains(r#""id":"#), "{}", listed(fixture));
        assert_eq!(gc(fixture, &["--delete", &one]), (0, String::new()));
        assert_eq!(stored(fixture, &two), "two\n");
        std::fs::rename(place(fixture), fixture.path("aside")).expect("moved");
        fixture.work(None, "Three", "echo three > n.txt");
        let before = versions(fixture);
        let (code, told) = gc(fixture, &[]);
        assert!(code == 1 && told.contains("another store lies at"), "{code} {told}");
        assert_eq!(versions(fixture), before);
    });
}

/// Copies a directory.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory").flatten() {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => _ = std::fs::copy(entry.path(), to).expect("copied"),
        }
    }
}

#[test]
fn a_store_that_was_copied_with_its_project_is_recognised() {
    for (store, copied) in
        [("sqlite:work/.rath/s.db", "sqlite:copy/.rath/s.db"), ("jsonl:work/.rath/s", "jsonl:copy/.rath/s")]
    {
        for_each_store("", |fixture| {
            let own = Fixture::with_store(fixture, store);
            let one = own.work(None, "One", "echo one > n.txt");
            let two = own.work(None, "Two", "echo two > n.txt");
            copy(&fixture.path("work"), &fixture.path("copy"));
            let output = Fixture::with_store(fixture, copied).rath(&["gc", "--directory", "copy", "--delete", &one]);
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && told.is_empty(), "{told}");
            assert_eq!(stored(&own, &two), "two\n");
            assert_eq!(gc(&own, &[]), (0, String::new()));
        });
    }
}

/// Moves the store of a fixture, and returns the same directory with the store at its new place.
fn move_store(fixture: &Fixture) -> Fixture {
    let moved =
        Fixture::with_store(fixture, if fixture.store.starts_with("sqlite") { "sqlite:kept.db" } else { "jsonl:kept" });
    std::fs::rename(place(fixture), place(&moved)).expect("moved");
    moved
}

#[test]
fn a_store_that_was_moved_keeps_its_versions() {
    for_each_store("", |fixture| {
        let one = fixture.work(None, "One", "echo one > n.txt");
        let moved = move_store(fixture);
        let (code, told) = gc(&moved, &[]);
        assert!(code == 1 && told.contains("may name them, and cannot be read"), "{code} {told}");
        let present = place(&moved).canonicalize().expect("a store").display().to_string();
        assert!(listed(fixture).contains(&present), "{}", listed(fixture));
        for (code, error) in [(0, ""), (1, "error: no store `")] {
            let (found, text) = gc(&moved, &["--without", named_in_hint(&told)]);
            assert!(found == code && text.starts_with(error) && text.is_empty() == error.is_empty(), "{text}");
            assert!(
                listed(fixture).contains(&present) && listed(fixture).trim().lines().count() == 1,
                "{}",
                listed(fixture)
            );
        }
        let two = fixture.work(None, "Two", "echo two > n.txt");
        assert_eq!(gc(fixture, &["--delete", &two]), (0, String::new()));
        assert_eq!(stored(&moved, &one), "one\n");
    });
}

#[test]
fn a_moved_store_is_listed_when_a_session_in_it_is_adopted() {
    for_each_store("", |fixture| {
        let one = fixture.work(None, "One", "echo one > n.txt");
        let moved = move_store(fixture);
        let output = moved.rath(&["adopt", &one, "--sandbox", "local:work", "--by", "me"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fixture.work(None, "Two", "echo two > n.txt");
        let (code, told) = gc(fixture, &[]);
        assert!(code == 1 && told.contains("another store lies at"), "{code} {told}");
        let before = versions(fixture);
        assert_eq!(gc(fixture, &["--without", named_in_hint(&told)]), (0, String::new()));
        assert_eq!(versions(fixture), before);
    });
}

#[test]
fn stores_that_changed_places_keep_their_versions() {
    for_each_store("", |fixture| {
        let one = fixture.work(None, "One", "echo one > n.txt");
        let other = match fixture.store.starts_with("sqlite") {
            true => Fixture::with_store(fixture, "sqlite:other.db"),
            false => Fixture::with_store(fixture, "jsonl:other"),
        };
        let two = other.work(None, "Two", "echo two > n.txt");
        let aside = fixture.path("aside");
        for (from, to) in [(&place(fixture), &aside), (&place(&other), &place(fixture)), (&aside, &place(&other))] {
            std::fs::rename(from, to).expect("moved");
        }
        let (mut told, mut without) = (gc(fixture, &[]).1, Vec::new());
        while told.contains("--without ") && without.len() < 4 {
            without.extend(["--without".to_owned(), named_in_hint(&told).to_owned()]);
            told = gc(fixture, &without.iter().map(String::as_str).collect::<Vec<_>>()).1;
        }
        assert_eq!(told, "");
        for store in [fixture, &other] {
            assert_eq!(gc(store, &[]), (0, String::new()));
        }
        assert_eq!((stored(&other, &one), stored(fixture, &two)), ("one\n".to_owned(), "two\n".to_owned()));
    });
}

#[test]
fn versions_of_a_session_file_stay_when_it_is_cut_off_or_replaced() {
    for_each_store("", |fixture| {
        let one = fixture.work(None, "One", "echo one > n.txt");
        run_in_file(fixture, "File", "echo file > n.txt");
        let file = fixture.path("session.rath");
        let whole = std::fs::read(&file).expect("read");
        let last_row = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("rows") + 1;
        let before = versions(fixture);
        assert_eq!(gc(fixture, &["--delete", &one, "--dry-run"]).0, 0);
        for length in [0, 1, whole.len() / 2, last_row, whole.len() - 2] {
            std::fs::write(&file, &whole[..length]).expect("written");
            let (code, told) = gc(fixture, &[]);
            assert!(code == 1 && told.contains("session.rath may name them, and cannot be read"), "{length}: {told}");
            assert_eq!(versions(fixture), before, "{length}");
        }
        assert_eq!(fixture.code(&["export", &one, "--as", "bundle", "-o", "other.rath"]), 0);
        std::fs::copy(fixture.path("other.rath"), &file).expect("replaced");
        let (code, told) = gc(fixture, &[]);
        assert!(code == 1 && told.contains("another store lies at file:"), "{told}");
        assert_eq!(versions(fixture), before);

        std::fs::write(&file, &whole).expect("put back");
        assert_eq!(gc(fixture, &["--delete", &one]), (0, String::new()));
        assert_eq!(stored(fixture, "session.rath"), "file\n");
        // Saving another session there is the user's own wish.
        run_in_file(fixture, "Again", "echo again > n.txt");
        assert_eq!(gc(fixture, &[]), (0, String::new()));
        assert_eq!(stored(fixture, "session.rath"), "again\n");
    });
}

#[test]
fn a_session_file_of_a_store_that_was_emptied_costs_its_own_session_only() {
    for left in ["nothing", "zeros", "the header"] {
        let folder = crate::workshop("");
        let fixture = &Fixture::in_folder(folder, "jsonl:.rath/s");
        let one = fixture.work(None, "One", "echo one > n.txt");
        let two = fixture.work(None, "Two", "echo two > n.txt");
        let names_one = |path: &PathBuf| path.to_string_lossy().ends_with(&format!("{one}.jsonl"));
        let mut files = std::fs::read_dir(place(fixture)).expect("a directory").flatten().map(|entry| entry.path());
        let file = files.find(names_one).expect("a session");
        let whole = std::fs::read(&file).expect("read");
        let rest = match left {
            "nothing" => Vec::new(),
            "zeros" => vec![0; whole.len()],
            _ => whole.split_inclusive(|byte| *byte == b'\n').next().expect("a header").to_vec(),
        };
        std::fs::write(&file, rest).expect("emptied");

        let ls = fixture.rath(&["ls"]);
        let told = String::from_utf8_lossy(&ls.stderr).into_owned();
        assert!(ls.status.code() == Some(3) && told.contains(&one), "{told}");
        assert_eq!(String::from_utf8_lossy(&ls.stdout).lines().count(), 1);
        let verify = fixture.rath(&["verify"]);
        let told = String::from_utf8_lossy(&verify.stdout).into_owned() + &String::from_utf8_lossy(&verify.stderr);
        assert!(verify.status.code() == Some(3) && told.contains(&format!("{one}.jsonl: no step")), "{told}");
        let log = fixture.rath(&["log", "-v", &one]);
        let told = String::from_utf8_lossy(&log.stderr).into_owned();
        assert!(log.status.code() == Some(3) && told.contains("no step of the session is left in the file"), "{told}");

        fixture.work(Some(&two), "Go on", "echo more > n.txt");
        let three = fixture.work(None, "Three", "echo three > n.txt");
        let before = versions(fixture);
        let (code, told) = gc(fixture, &["--delete", &three]);
        assert!(code == 1 && told.contains(&format!("{one}.jsonl: no step of the session is left")), "{code} {told}");
        assert_eq!(versions(fixture), before);
        assert_eq!(fixture.newest(), two, "the other one was deleted");

        // The hint works.
        assert!(told.contains(&format!("`rath gc --delete {one} --store jsonl:.rath/s`")), "{told}");
        let (code, told) = gc(fixture, &["--delete", &one]);
        assert!(code == 0 && told.starts_with(&format!("note: {one} is damaged: ")), "{code} {told}");
        assert!(!file.exists() && versions(fixture) < before);
        assert_eq!(stored(fixture, &two), "more\n");
        assert_eq!(fixture.code(&["verify"]), 0);
    }
}

/// Returns the file of a session in a `jsonl:` store.
fn session_path(fixture: &Fixture, id: &str) -> PathBuf {
    let mut files = std::fs::read_dir(place(fixture)).expect("a directory").flatten().map(|entry| entry.path());
    files.find(|path| path.to_string_lossy().ends_with(&format!("{id}.jsonl"))).expect("a session")
}

#[test]
fn a_session_file_with_the_steps_of_another_session_is_damaged() {
    let fixture = &Fixture::in_folder(crate::workshop(""), "jsonl:.rath/s");
    let one = fixture.work(None, "One", "echo one > n.txt");
    let two = fixture.work(None, "Two", "echo two > n.txt");
    let [file, other] = [&one, &two].map(|id| session_path(fixture, id));
    std::fs::rename(&file, fixture.path("whole")).expect("moved");
    std::fs::copy(&other, &file).expect("copied");

    let says = format!("its steps are of the session {two}, not of the one in its name");
    for (command, says) in [(vec!["ls"], &one), (vec!["verify"], &says), (vec!["log", "-v", &one], &says)] {
        let output = fixture.rath(&command);
        let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && told.contains(says), "{command:?}: {told}");
    }
    assert_eq!(fixture.out(&["ls"]).lines().count(), 1);
    fixture.work(Some(&two), "Go on", "echo more > n.txt");
    let before = versions(fixture);
    let (code, told) = gc(fixture, &[]);
    assert!(code == 1 && told.contains(&says), "{code} {told}");
    assert_eq!(versions(fixture), before);

    std::fs::copy(fixture.path("whole"), &file).expect("put back");
    assert_eq!(stored(fixture, &one), "one\n");
    std::fs::copy(&other, &file).expect("copied");
    let (code, told) = gc(fixture, &["--delete", &one]);
    assert!(code == 0 && told.starts_with(&format!("note: {one} is damaged: ")), "{code} {told}");
    assert!(!file.exists() && other.exists() && versions(fixture) < before);
    assert_eq!(stored(fixture, &two), "more\n");
}

/// Deletes a session whose file was emptied or is too long, and perhaps another one.
fn check_delete_of_unreadable(length: u64, chosen: impl Fn(&[String; 2]) -> Vec<String>) {
    let fixture = &Fixture::in_folder(crate::workshop(""), "jsonl:.rath/s");
    let ids = ["one", "two"].map(|text| fixture.work(None, text, &format!("echo {text} > n.txt")));
    let [one, two] = &ids;
    let file = session_path(fixture, one);
    std::fs::File::options().write(true).open(&file).and_then(|file| file.set_len(length)).expect("changed");
    if length > 0 {
        let (code, told) = gc(fixture, &["--delete", two]);
        assert!(
            code == 1 && told.contains(&format!("{one}.jsonl may need steps of the session {two}")),
            "{code} {told}"
        );
        assert!(told.contains(&format!("`rath gc --delete {two} --delete {one} --store jsonl:.rath/s`")), "{told}");
        assert!(session_path(fixture, two).exists());
    }
    let chosen = chosen(&ids);
    let delete = |dry_run: &[&str]| {
        let chosen: Vec<_> = chosen.iter().map(String::as_str).collect();
        let output = fixture.rath(&[&["gc", "--directory", "work"], &chosen[..], dry_run].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let planned = delete(&["--dry-run"]);
    assert!(planned.contains(&format!("would delete {one}\n")) && file.exists(), "{planned}");
    let planned = planned.replace("would delete", "deleted").replace("would free", "freed");
    assert_eq!(planned.replace("would remove", "removed"), delete(&[]));
    assert!(!file.exists());
}

#[test]
fn a_session_file_that_cannot_be_read_can_be_deleted_and_the_dry_run_says_so() {
    for length in [0, (4 << 30) + 1] {
        check_delete_of_unreadable(length, |_| vec!["--all".to_owned()]);
        check_delete_of_unreadable(length, |[one, _]| ["--delete", one].map(str::to_owned).to_vec());
        check_delete_of_unreadable(length, |ids| {
            ids.iter().flat_map(|id| ["--delete".to_owned(), id.clone()]).collect()
        });
    }
}

#[test]
fn a_store_that_no_list_names_cannot_be_given_up() {
    for_each_store("", |fixture| {
        let one = fixture.work(None, "One", "echo one > n.txt");
        let elsewhere = Fixture::with_store(fixture, "jsonl:elsewhere");
        elsewhere.work(None, "Two", "echo two > n.txt");
        let before = versions(fixture);
        let (code, told) = gc(fixture, &["--delete", &one, "--without", "jsonl:elsewere"]);
        assert!(code == 1 && told.starts_with("error: no store `jsonl:elsewere` may name"), "{code} {told}");
        for known in [place(fixture), place(&elsewhere)] {
            assert!(told.contains(&format!("{}`", known.display())), "{told}");
        }
        assert_eq!(versions(fixture), before);
        assert_eq!(stored(fixture, &one), "one\n");
        assert_eq!(
            gc(fixture, &["--without", "jsonl:elsewhere"]),
            (0, String::new()),
            "it is there, and keeps its own"
        );
    });
}

#[test]
fn a_dry_run_says_what_would_be_and_not_what_was() {
    for_each_store("", |fixture| {
        fixture.work(None, "One", "echo one > n.txt");
        let elsewhere = Fixture::with_store(fixture, "jsonl:elsewhere");
        elsewhere.work(None, "Two", "echo two > n.txt");
        std::fs::remove_dir_all(place(&elsewhere)).expect("removed");
        let (code, told) = gc(fixture, &["--dry-run"]);
        assert!(code == 1 && told.contains("no files in work/.rath would be removed: "), "{code} {told}");
        let (code, told) = gc(fixture, &["--dry-run", "--all", "--without", named_in_hint(&told)]);
        assert_eq!((code, told), (0, String::new()));
        let (_, told) = gc(fixture, &["--dry-run", "--max-size", "0K"]);
        assert!(!told.contains("kept ") && !told.contains(" were "), "{told}");
    });
}
