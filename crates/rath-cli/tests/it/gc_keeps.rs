//! Tests of `rath gc`: what it cannot judge it keeps, and says so.

use std::path::PathBuf;

use rath_test_support::wait_until;
use serde_json::{Value, json};

use crate::fixture::{Fixture, STORES, for_each_store};

/// Runs `rath gc --json`, and returns its output as JSON, its text for people and its exit code.
fn gc(fixture: &Fixture, args: &[&str]) -> (Value, String, Option<i32>) {
    let output = fixture.rath(&[&["gc", "--json"], args].concat());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    (serde_json::from_slice(&output.stdout).unwrap_or_default(), told, output.status.code())
}

/// Lets a fork of a session work, and returns its directory.
fn worked_fork(fixture: &Fixture, session: &str) -> PathBuf {
    let fork = fixture.fork(session);
    fixture.work(Some(&fork), "Fork", "echo fork > n.txt");
    let forks = std::fs::read_dir(fixture.path("work/.rath/work")).expect("forks").flatten();
    let mut paths = forks.map(|entry| entry.path());
    paths.find(|path| path.to_string_lossy().ends_with(&fork)).expect("a directory")
}

#[test]
fn a_fork_with_files_that_no_version_has_is_kept_until_it_is_forced() {
    for_each_store("", |fixture| {
        fixture.write("work/.gitignore", "*.log\ntarget\n");
        let id = fixture.work(None, "One", "echo one > n.txt");
        let [clean, ignored] = [(); 2].map(|()| worked_fork(fixture, &id));
        std::fs::create_dir_all(ignored.join("target/debug")).expect("a directory");
        std::fs::write(ignored.join("target/debug/program"), "built").expect("written");
        std::fs::write(ignored.join("mine.log"), "mine").expect("written");
        std::fs::create_dir_all(clean.join("target/empty")).expect("a directory");
        let (json, told, code) = gc(fixture, &["--all"]);
        assert_eq!(code, Some(0), "{told}");
        assert!(told.contains("no version has these files: mine.log, target/debug/program\n"), "{told}");
        assert_eq!(json["files"][0]["kept_forks"].as_array().map(Vec::len), Some(1), "{json}");
        assert!(!clean.exists(), "a directory without files holds nothing");
        assert_eq!(std::fs::read_to_string(ignored.join("mine.log")).expect("read"), "mine");
        gc(fixture, &["--force"]);
        assert!(!ignored.exists());
    });
}

#[test]
fn a_fork_that_cannot_be_read_is_kept_with_the_reason() {
    for_each_store("", |fixture| {
        fixture.work(None, "One", "echo one > n.txt");
        let strange = fixture.path("work/.rath/work/01980a5e-7a40-7cc2-8d4e-3f2b1c0d9e8f");
        std::fs::create_dir_all(strange.parent().expect("a parent")).expect("a directory");
        std::fs::write(&strange, "no directory").expect("written");
        let (_, told, _) = gc(fixture, &["--all"]);
        assert!(told.contains("9e8f: its files cannot be read: cannot open the workspace"), "{told}");
        assert!(strange.exists() && !told.contains("changed outside"), "{told}");
    });
}

#[test]
fn a_dry_run_beside_a_running_session_says_what_the_real_one_does() {
    for_each_store("", |fixture| {
        fixture.work(None, "One", "echo one > n.txt");
        let command = "touch started; while [ ! -e stop ]; do sleep 0.05; done";
        let call = json!({"calls": [{"name": "shell", "arguments": {"command": command}}]});
        fixture.script(&format!("{call}\n{}\n", json!({"text": "Done."})));
        let mut running = fixture.start(&["run", "Two", "--sandbox", "local:work", "--model", "script:script.jsonl"]);
        wait_until("the command runs", || fixture.path("work/started").exists());
        let (mut counted, counted_text, counted_code) = gc(fixture, &["--all", "--dry-run"]);
        let (removed, removed_text, removed_code) = gc(fixture, &["--all"]);
        std::fs::write(fixture.path("work/stop"), "").expect("written");
        assert!(running.wait().expect("ended").success());
        counted["dry_run"] = json!(false);
        assert_eq!((&counted, counted_code), (&removed, removed_code), "{counted_text}{removed_text}");
        assert_eq!(removed["deleted"].as_array().map(Vec::len), Some(1), "{removed}");
        assert_eq!(removed["kept"].as_object().map(serde_json::Map::len), Some(1), "{removed}");
        assert!(removed["steps"].as_u64() > Some(0), "{removed}");
    });
}

/// A store that no list names: an older version wrote none.
#[test]
fn versions_that_a_store_in_the_directory_names_stay_without_a_list() {
    for store in ["sqlite:work/.rath/other.db", "jsonl:work/.rath/others"] {
        for_each_store("", |fixture| {
            let one = fixture.work(None, "One", "echo one > n.txt");
            let other = Fixture::with_store(fixture, store);
            let two = other.work(None, "Two", "echo two > n.txt");
            std::fs::remove_file(fixture.path("work/.rath/workspace/stores")).expect("removed");
            let (_, told, code) = gc(fixture, &["--directory", "work", "--delete", &one]);
            assert_eq!(code, Some(0), "{told}");
            let output = other.rath(&["checkout", &two, "checked-out"]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(std::fs::read_to_string(fixture.path("checked-out/n.txt")).expect("read"), "two\n");
        });
    }
}

#[cfg(unix)]
#[test]
fn a_list_that_names_a_pipe_or_a_device_does_not_hang_a_collection() {
    for_each_store("", |fixture| {
        fixture.work(None, "One", "echo one > n.txt");
        let pipe = fixture.path("pipe");
        let made = rath_test_support::program("mkfifo").arg(&pipe).status().expect("mkfifo runs");
        assert!(made.success());
        let list = fixture.path("work/.rath/workspace/stores");
        let listed = std::fs::read_to_string(&list).expect("read");
        for place in [pipe.as_path(), "/dev/zero".as_ref()] {
            std::fs::write(&list, format!("{listed}\n{}\n", json!(format!("file:{}", place.display()))))
                .expect("written");
            let (_, told, code) = gc(fixture, &["--directory", "work"]);
            assert!(code == Some(1) && told.contains("it is no regular file"), "{told}");
        }
    });
}

#[test]
fn a_pack_whose_index_is_lost_is_read_before_anything_goes() {
    for_each_store("", |fixture| {
        for nth in 0..300 {
            fixture.write(&format!("work/{nth}.txt"), &format!("file {nth}\n"));
        }
        let id = fixture.work(None, "One", "echo one > n.txt");
        let packs = fixture.path("work/.rath/workspace/objects/pack");
        let is_index = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "idx");
        let files = |path: &PathBuf| std::fs::read_dir(path).expect("listed").flatten().map(|entry| entry.path());
        let indexes: Vec<_> = files(&packs).filter(is_index).collect();
        assert!(!indexes.is_empty());
        indexes.iter().for_each(|index| std::fs::remove_file(index).expect("removed"));
        let (_, told, code) = gc(fixture, &[]);
        assert_eq!(code, Some(0), "{told}");
        let output = fixture.rath(&["checkout", &id, "checked-out"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(std::fs::read_to_string(fixture.path("checked-out/7.txt")).expect("read"), "file 7\n");
    });
}

#[test]
fn a_size_that_cannot_be_reached_deletes_nothing() {
    for_each_store("", |fixture| {
        fixture.work(None, "Small", "echo small > n.txt");
        let command =
            "head -c 300000 /dev/urandom > large.bin; touch started; while [ ! -e stop ]; do sleep 0.05; done";
        fixture.work(None, "Large", "head -c 300000 /dev/urandom > large.bin");
        let call = json!({"calls": [{"name": "shell", "arguments": {"command": command}}]});
        fixture.script(&format!("{call}\n{}\n", json!({"text": "Done."})));
        let mut running = fixture.start(&["run", "Runs", "--sandbox", "local:work", "--model", "script:script.jsonl"]);
        wait_until("the command runs", || fixture.path("work/started").exists());
        let (json, told, code) = gc(fixture, &["--max-size", "100K"]);
        std::fs::write(fixture.path("work/stop"), "").expect("written");
        assert!(running.wait().expect("ended").success());
        assert_eq!((&json["deleted"], code), (&json!([]), Some(0)), "{told}");
        assert!(json["unreachable_size"].as_u64() > Some(300_000), "{json}");
        assert!(told.contains("max-size deleted nothing: the sessions that are in use"), "{told}");
        // When it has ended, it can be deleted.
        let (json, told, _) = gc(fixture, &["--max-size", "100K"]);
        assert_eq!(json["deleted"].as_array().map(Vec::len), Some(3), "{json} {told}");
    });
}

#[test]
fn a_damaged_tree_costs_its_own_session_only() {
    for_each_store("", |fixture| {
        let ids = ["One", "Two", "Three"].map(|name| fixture.work(None, name, &format!("echo {name} > {name}.txt")));
        let log = fixture.json(&["log", &ids[1], "--json"]);
        let text = log.iter().map(Value::to_string).collect::<String>();
        // The last tree that the second session recorded.
        let tree = text.split("git:").nth(1).map(|rest| rest[..40].to_owned()).expect("a tree");
        let object = fixture.path("work/.rath/workspace/objects").join(&tree[..2]).join(&tree[2..]);
        std::fs::write(&object, "damaged").expect("written");
        // The third session found that tree.
        let (json, told, code) = gc(fixture, &["--max-size", "1K", "--dry-run"]);
        assert_eq!((&json["deleted"], code), (&json!([]), Some(3)), "{told}");
        let staying = json["unreachable_size"].as_u64().expect("a size") / 1024 + 1;
        let (json, told, _) = gc(fixture, &["--max-size", &format!("{staying}K"), "--dry-run"]);
        assert_eq!(json["deleted"].as_array().map(Vec::len), Some(1), "{json} {told}");
        assert!(json["deleted"][0].as_str().is_some_and(|id| id.ends_with(&ids[0])), "{json}");
    });
}

/// Output that is too long for memory lies in the user's own directory of rath.
#[cfg(target_os = "linux")]
#[test]
fn temporary_files_of_a_killed_run_are_removed_by_the_next_command() {
    for_each_store("", |fixture| {
        let names = || {
            let entries = std::fs::read_dir(fixture.path("data/rath/tmp")).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let command = "head -c 3000000 /dev/zero | tr '\\0' x; sleep 1000";
        let call = json!({"calls": [{"name": "shell", "arguments": {"command": command}}]});
        fixture.script(&format!("{call}\n{}\n", json!({"text": "Done."})));
        let run = ["run", "Long", "--sandbox", "local:work", "--model", "script:script.jsonl"];
        let mut rath = fixture.command(&run);
        rath.env("XDG_DATA_HOME", fixture.path("data")).stdout(std::process::Stdio::null());
        let mut running = rath.stderr(std::process::Stdio::null()).spawn().expect("rath runs");
        wait_until("the output is stored", || names().iter().any(|name| name.starts_with("rath-spool-")));
        assert_eq!(gc_in(fixture), Some(0));
        assert!(names().iter().any(|name| name.starts_with("rath-spool-")), "the run is alive");
        running.kill().expect("killed");
        running.wait().expect("ended");
        wait_until("the lock is free", || {
            assert_eq!(gc_in(fixture), Some(0));
            names().is_empty()
        });
    });
}

/// Runs `rath gc` with the data directory of the test.
fn gc_in(fixture: &Fixture) -> Option<i32> {
    let mut rath = fixture.command(&["gc"]);
    rath.env("XDG_DATA_HOME", fixture.path("data")).output().expect("rath runs").status.code()
}

#[test]
fn nothing_is_removed_from_a_project_by_a_copy_of_it() {
    for (store, sandbox) in STORES.iter().flat_map(|store| [(store, "local:work"), (store, "local:.")]) {
        let fixture = Fixture::in_folder(crate::workshop(""), store);
        fixture.work_in(sandbox, "Begin", "echo 1 > n.txt");
        let session = fixture.newest();
        fixture.work(Some(&fixture.fork(&session)), "Go on", "echo 2 > n.txt");
        let copy = rath_test_support::temp_dir();
        let mut command = rath_test_support::program("cp");
        let is_copied = command.arg("-a").arg(fixture.path(".")).arg(copy.path().join("project")).status();
        assert!(is_copied.expect("cp runs").success());
        let before = all_files(&fixture.path("."));
        for options in [&["gc"][..], &["gc", "--all"], &["gc", "--all", "--force"]] {
            let mut gc = rath_test_support::program(crate::program_path());
            let output = gc.args(options).args(["--store", store]).current_dir(copy.path().join("project")).output();
            let output = output.expect("rath runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(all_files(&fixture.path(".")), before, "{options:?} {store} {sandbox}");
        }
        assert_eq!(fixture.code(&["verify"]), 0);
    }
}

/// Returns the paths of all files below a directory.
fn all_files(root: &std::path::Path) -> std::collections::BTreeSet<std::path::PathBuf> {
    let (mut found, mut below) = (std::collections::BTreeSet::new(), vec![root.to_owned()]);
    while let Some(directory) = below.pop() {
        for entry in std::fs::read_dir(directory).expect("listed").map(|entry| entry.expect("an entry")) {
            if entry.file_type().expect("a type").is_dir() {
                below.push(entry.path());
            }
            found.insert(entry.path());
        }
    }
    found
}
