//! Tests of `rath gc`: sessions that are deleted leave nothing behind, and all that a session names stays.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use expect_test::{Expect, expect};
use rath_test_support::{Chance, count, seed, wait_until};
use serde_json::{Value, json};

use crate::fixture::{Fixture, for_each_store};

/// Enough files for forks by overlay, where these can be mounted.
const FILES: usize = 1_200;

/// The most bytes of a `.rath` without sessions.
const MAX_EMPTY_BYTES: u64 = 100_000;

fn add_files(fixture: &Fixture) {
    for nth in 0..FILES {
        let directory = fixture.path(&format!("work/d{}", nth % 12));
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::write(directory.join(format!("{nth}.txt")), format!("file {nth}\n")).expect("written");
    }
}

/// Returns all paths below a directory, with the length and the time of each file.
fn listing(directory: &Path) -> Vec<(PathBuf, u64, Option<SystemTime>)> {
    let (mut found, mut rest) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = rest.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            // The kernel marks a mount.
            if entry.file_name() == "incompat" {
                continue;
            }
            let metadata = entry.metadata().expect("metadata");
            let is_directory = metadata.is_dir();
            let at = metadata.modified().ok().filter(|_| !is_directory);
            found.push((entry.path(), if is_directory { 0 } else { metadata.len() }, at));
            if is_directory {
                rest.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

fn bytes(directory: &Path) -> u64 {
    listing(directory).iter().map(|(_, bytes, _)| bytes).sum()
}

/// Returns what `gc` says as JSON, and checks that it succeeds.
fn gc(fixture: &Fixture, args: &[&str]) -> Value {
    let output = fixture.rath(&[&["gc", "--json"], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the names and contents of the files of a session, from its stored versions.
fn files(fixture: &Fixture, session: &str) -> String {
    let into = fixture.path("checked-out");
    let _ = std::fs::remove_dir_all(&into);
    let output = fixture.rath(&["checkout", session, "checked-out"]);
    assert!(output.status.success(), "{session}: {}", String::from_utf8_lossy(&output.stderr));
    let files = listing(&into).into_iter().filter(|(path, ..)| path.is_file());
    files
        .map(|(path, ..)| format!("{}: {}", path.display(), std::fs::read_to_string(&path).unwrap_or_default()))
        .collect()
}

fn stderr(fixture: &Fixture, args: &[&str]) -> (i32, String) {
    let output = fixture.rath(args);
    (output.status.code().expect("an exit code"), String::from_utf8(output.stderr).expect("UTF-8"))
}

#[test]
fn nothing_is_left_after_all_sessions_are_deleted() {
    for_each_store("", |fixture| {
        add_files(fixture);
        let id = fixture.work(None, "Begin", "echo one > n.txt");
        let fork = fixture.fork(&id);
        fixture.work(Some(&fork), "Fork", "echo two > n.txt");
        fixture.work(Some(&id), "Go on", "echo three > n.txt");
        let before = listing(fixture.path("work").as_path());
        let mut counted = gc(fixture, &["--all", "--dry-run"]);
        let after = listing(fixture.path("work").as_path());
        let changed: Vec<_> = before
            .iter()
            .filter(|it| !after.contains(it))
            .chain(after.iter().filter(|it| !before.contains(it)))
            .collect();
        assert!(changed.is_empty(), "a dry run changes nothing: {changed:#?}");
        let removed = gc(fixture, &["--all"]);
        counted["dry_run"] = json!(false);
        assert_eq!(counted, removed, "a dry run says exactly what is removed");
        assert!(removed["files"][0]["versions"]["files"].as_u64() > Some(1_000), "{removed}");
        assert!(removed["files"][0]["forks"]["files"].as_u64() > Some(0), "{removed}");
        for own in ["work/.rath", ".rath"] {
            let left = bytes(&fixture.path(own));
            assert!(left < MAX_EMPTY_BYTES, "{own}: {left} bytes, {:#?}", listing(&fixture.path(own)));
        }
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let path = fixture.path("work").display().to_string().replace(' ', "\\040");
        assert!(!mounts.contains(&path), "{mounts}");
        // The user's own files are as they were, and the next session begins anew.
        assert_eq!(std::fs::read_to_string(fixture.path("work/n.txt")).expect("read"), "three\n");
        let next = fixture.work(None, "Again", "echo four > n.txt");
        assert!(files(fixture, &next).contains("four"));
    });
}

#[test]
fn what_a_session_names_stays_when_another_is_deleted() {
    for_each_store("", |fixture| {
        add_files(fixture);
        let one = fixture.work(None, "One", "echo one > n.txt; echo only > one.txt");
        let two = fixture.work(None, "Two", "rm one.txt; echo two > n.txt");
        let fork = fixture.fork(&two);
        fixture.work(Some(&fork), "Fork", "echo fork > n.txt");
        let before = [&two, &fork].map(|id| files(fixture, id));
        assert!(gc(fixture, &["--delete", &one])["files"][0]["versions"]["files"].as_u64() > Some(0));
        assert_eq!([&two, &fork].map(|id| files(fixture, id)), before);
        assert_eq!(fixture.code(&["verify"]), 0);
        fixture.work(Some(&fork), "Go on", "echo more >> n.txt");
        let again = gc(fixture, &[]);
        assert_eq!(again["files"][0]["forks"]["files"], 0);
    });
}

#[test]
fn versions_that_a_store_elsewhere_names_stay() {
    for_each_store("", |fixture| {
        let one = fixture.work(None, "One", "echo one > n.txt");
        let elsewhere = Fixture::with_store(fixture, "sqlite:elsewhere.db");
        let two = elsewhere.work(None, "Two", "echo two > n.txt");
        let before = files(&elsewhere, &two);
        assert!(before.contains("two"), "{before}");
        gc(fixture, &["--delete", &one]);
        assert_eq!(files(&elsewhere, &two), before);

        // A store that cannot be read may name anything: nothing is removed.
        let three = fixture.work(None, "Three", "echo three > n.txt");
        std::fs::rename(fixture.path("elsewhere.db"), fixture.path("moved.db")).expect("moved");
        let objects = listing(&fixture.path("work/.rath/workspace/objects"));
        let (code, error) = stderr(fixture, &["gc", "--delete", &three]);
        assert_eq!((code, listing(&fixture.path("work/.rath/workspace/objects"))), (1, objects));
        assert!(error.contains("elsewhere.db may name them, and cannot be read: there is no store"), "{error}");
        std::fs::rename(fixture.path("moved.db"), fixture.path("elsewhere.db")).expect("moved");
        gc(fixture, &[]);
        assert_eq!(files(&elsewhere, &two), before);

        // The hint works when it is pasted.
        std::fs::remove_file(fixture.path("elsewhere.db")).expect("removed");
        let (_, error) = stderr(fixture, &["gc", "--directory", "work"]);
        let uri = error.split("--without ").nth(1).and_then(|rest| rest.split(" --store").next()).expect("a hint");
        let uri = uri.trim_matches('\'');
        assert!(
            gc(fixture, &["--directory", "work", "--without", uri])["files"][0]["versions"]["files"].as_u64() > Some(0)
        );
        assert_eq!(stderr(fixture, &["gc", "--directory", "work"]).0, 0, "the store is no longer listed");
    });
}

/// A copy names the versions of the session that it is a copy of.
#[test]
fn versions_that_an_imported_copy_names_stay() {
    for_each_store("", |fixture| {
        let session = fixture.work(None, "Copy", "echo kept > kept.txt");
        let before = files(fixture, &session);
        assert_eq!(fixture.code(&["export", &session, "--as", "bundle", "-o", "copy.rath"]), 0);
        let elsewhere = |args: &[&str]| {
            let mut rath = rath_test_support::program(env!("CARGO_BIN_EXE_rath"));
            rath.args(args).args(["--store", "sqlite:elsewhere/s.db"]).current_dir(fixture.path(""));
            let output = rath.output().expect("rath runs");
            assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        elsewhere(&["import", "copy.rath"]);
        gc(fixture, &["--delete", &session]);
        let _ = std::fs::remove_dir_all(fixture.path("checked-out"));
        elsewhere(&["checkout", &session, "checked-out"]);
        let kept = listing(&fixture.path("checked-out")).into_iter().filter(|(path, ..)| path.is_file());
        let kept: String = kept
            .map(|(path, ..)| format!("{}: {}", path.display(), std::fs::read_to_string(&path).unwrap_or_default()))
            .collect();
        assert_eq!(kept, before);
    });
}

/// A session that cannot be listed may name every version.
#[test]
fn nothing_goes_while_a_session_cannot_be_read() {
    for_each_store("", |fixture| {
        let kept = fixture.work(None, "Keep", "echo kept > kept.txt");
        let other = fixture.work(None, "Delete", "echo other > other.txt");
        match fixture.store.split_once(':') {
            Some(("sqlite", path)) => {
                let store = rusqlite::Connection::open(fixture.path(path)).expect("a database");
                store.execute("UPDATE branches SET title = 'x' WHERE b = 1", []).expect("it is damaged");
            }
            Some((_, folder)) => {
                let files = std::fs::read_dir(fixture.path(folder)).expect("a directory");
                let names_kept = |path: &PathBuf| path.to_string_lossy().ends_with(&format!("{kept}.jsonl"));
                let file = files.flatten().map(|entry| entry.path()).find(names_kept).expect("a session");
                std::fs::write(file, "garbage\n").expect("it is damaged");
            }
            None => unreachable!("a store has a scheme"),
        }
        let objects = fixture.path("work/.rath/workspace/objects");
        let before = listing(&objects);
        let (code, told) = stderr(fixture, &["gc", "--delete", &other]);
        assert!(code != 0 && told.contains("error: "), "{told}");
        assert_eq!(listing(&objects), before);
    });
}

#[test]
fn versions_that_a_session_file_names_stay() {
    for_each_store("", |fixture| {
        let one = fixture.work(None, "One", "echo one > n.txt");
        let call = json!({"calls": [{"name": "shell", "arguments": {"command": "echo file > n.txt"}}]});
        fixture.script(&format!("{call}\n{}\n", json!({"text": "Done."})));
        let file = Fixture::with_store(fixture, "file:session.rath");
        let run = ["run", "File", "--sandbox", "local:work", "--model", "script:script.jsonl"];
        assert_eq!(file.code(&run), 0);
        let before = files(fixture, "session.rath");
        assert!(before.contains("file"), "{before}");
        gc(fixture, &["--delete", &one]);
        assert_eq!(files(fixture, "session.rath"), before);
    });
}

#[test]
fn a_directory_in_use_is_left_alone() {
    for_each_store("", |fixture| {
        let one = fixture.work(None, "One", "echo one > n.txt");
        let command = "echo two > n.txt; touch started; while [ ! -e stop ]; do sleep 0.05; done";
        let call = json!({"calls": [{"name": "shell", "arguments": {"command": command}}]});
        fixture.script(&format!("{call}\n{}\n", json!({"text": "Done."})));
        let run = ["run", "Two", "--sandbox", "local:work", "--model", "script:script.jsonl"];
        let mut running = fixture.start(&run);
        wait_until("the command runs", || fixture.path("work/started").exists());
        let objects = listing(&fixture.path("work/.rath/workspace/objects"));
        let (code, error) = stderr(fixture, &["gc", "--delete", &one]);
        assert_eq!((code, listing(&fixture.path("work/.rath/workspace/objects"))), (0, objects), "{error}");
        assert!(error.contains("were left alone: a process works there"), "{error}");
        std::fs::write(fixture.path("work/stop"), "").expect("written");
        assert!(running.wait().expect("ended").success());
        let two = fixture.newest();
        assert!(files(fixture, &two).contains("two"));
        assert!(gc(fixture, &[])["files"][0]["versions"]["files"].as_u64() > Some(0), "the next one finishes");
        assert!(files(fixture, &two).contains("two"));
    });
}

#[test]
fn a_fork_that_was_edited_is_kept_until_it_is_forced() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "One", "echo one > n.txt");
        let [clean, edited] = ["clean", "edited"].map(|name| {
            let fork = fixture.fork(&id);
            fixture.work(Some(&fork), name, &format!("echo {name} > n.txt"));
            let forks = std::fs::read_dir(fixture.path("work/.rath/work")).expect("forks");
            let find = |entry: std::io::Result<std::fs::DirEntry>| Some(entry.ok()?.path());
            let mut paths = forks.filter_map(find);
            paths.find(|path| path.to_string_lossy().ends_with(&fork)).expect("a directory")
        });
        std::fs::write(edited.join("mine.txt"), "mine\n").expect("written");
        // As a collection leaves it that is killed after the layers of a fork are gone.
        let remnant = edited.with_file_name("01980a5e-7a40-7cc2-8d4e-3f2b1c0d9e8f");
        std::fs::create_dir(&remnant).expect("a directory");
        let (code, error) = stderr(fixture, &["gc", "--all"]);
        assert_eq!(code, 0, "{error}");
        assert!(error.contains("its files were changed outside of the session"), "{error}");
        assert!(!clean.exists() && !remnant.exists());
        assert_eq!(std::fs::read_to_string(edited.join("mine.txt")).expect("read"), "mine\n");
        assert_eq!(gc(fixture, &[])["files"][0]["kept_forks"].as_array().map(Vec::len), Some(1), "it is still there");
        gc(fixture, &["--force"]);
        assert!(!edited.exists());
        assert!(bytes(&fixture.path("work/.rath")) < MAX_EMPTY_BYTES);
    });
}

#[test]
fn a_collection_that_is_killed_loses_nothing_and_the_next_one_finishes() {
    for_each_store("", |fixture| {
        add_files(fixture);
        let kept = fixture.work(None, "Kept", "for i in 1 2 3 4 5 6 7 8; do echo kept $i > k$i.txt; done");
        let fork = fixture.fork(&kept);
        fixture.work(Some(&fork), "Fork", "echo fork > k1.txt");
        let expected = [&kept, &fork].map(|id| files(fixture, id));
        let mut chance = Chance(seed());
        for round in 0..count("RATH_KILLS", 5) {
            let deleted = fixture.work(None, "Deleted", &format!("for i in d0/*; do echo {round} > $i; done"));
            let fork = fixture.fork(&deleted);
            fixture.work(Some(&fork), "Fork", &format!("echo {round} > d1/1.txt"));
            let mut running = fixture.start(&["gc", "--delete", &deleted]);
            std::thread::sleep(Duration::from_micros(chance.below(120_000)));
            running.kill().expect("killed");
            running.wait().expect("ended");

            assert_eq!(fixture.code(&["verify"]), 0, "round {round}");
            assert_eq!(files(fixture, &kept), expected[0], "round {round}");
            let _ = fixture.rath(&["gc", "--delete", &deleted]);
            gc(fixture, &[]);
            let again = gc(fixture, &[]);
            let left: u64 = again["files"].as_array().expect("files").iter().map(removed_files).sum();
            assert_eq!(left, 0, "round {round}: {again}");
            assert_eq!(again["files"][0]["kept_forks"], json!([]), "round {round}");
        }
        assert_eq!([&kept, &fork].map(|id| files(fixture, id)), expected);
        gc(fixture, &["--all"]);
        assert!(bytes(&fixture.path("work/.rath")) < MAX_EMPTY_BYTES);
    });
}

/// Returns the number of files that a collection removed from a directory.
fn removed_files(directory: &Value) -> u64 {
    let kinds = ["versions", "base_versions", "forks", "indexes", "put_back"];
    kinds.iter().map(|kind| directory[kind]["files"].as_u64().expect("a number")).sum()
}

#[test]
fn rules_delete_old_sessions_and_never_those_that_wait() {
    for_each_store("", |fixture| {
        let old = fixture.work(None, "Old", "echo old > n.txt");
        let named = fixture.work(None, "Named", "echo named > n.txt");
        fixture.rath(&["fork", &named, "--name", "release"]);
        // The session waits for a decision about its call.
        fixture.script(&format!("{}\n", json!({"calls": [{"name": "shell", "arguments": {"command": "date"}}]})));
        let ask = ["run", "Waits", "--sandbox", "local:work", "--model", "script:script.jsonl", "--mode", "ask"];
        assert_eq!(fixture.code(&ask), 4);
        let sessions = || fixture.json(&["ls", "--all", "--json"]).len();
        let before = sessions();

        let plan = gc(fixture, &["--older-than", "30d", "--dry-run"]);
        assert_eq!((&plan["deleted"], &plan["kept"]), (&json!([]), &json!({})));
        let plan = gc(fixture, &["--older-than", "0s", "--keep-named", "--dry-run"]);
        assert_eq!(plan["deleted"].as_array().map(Vec::len), Some(1), "{plan}");
        assert!(plan["deleted"][0].as_str().is_some_and(|id| id.ends_with(&old)));
        let mut reasons: Vec<_> = plan["kept"].as_object().expect("kept").values().collect();
        reasons.sort_by_key(|reason| reason.to_string());
        assert_eq!(reasons, ["it has calls waiting for you", "its branch is named release"]);
        assert_eq!(sessions(), before, "a dry run deletes nothing");

        let text = fixture.out(&["gc", "--older-than", "0s", "--keep-named", "--dry-run"]);
        assert!(text.starts_with(&format!("would delete {old} (older-than)  Old\n")), "{text}");
        gc(fixture, &["--older-than", "0s", "--keep-named"]);
        assert_eq!(sessions(), before - 1);
        // Too large: the oldest go first, and what waits stays.
        assert!(gc(fixture, &["--max-size", "1K"])["unreachable_size"].as_u64() > Some(1024));
        let rest = gc(fixture, &["--max-size", "10K"]);
        assert_eq!(rest["rules"].as_object().map(serde_json::Map::len), Some(1), "{rest}");
        assert_eq!(sessions(), 1);
        assert_eq!(fixture.code(&["verify"]), 0);
    });
}

#[test]
fn the_oldest_sessions_go_until_the_others_fit() {
    for_each_store("", |fixture| {
        let random = "head -c 100000 /dev/urandom > n.bin";
        let ids = ["One", "Two", "Three"].map(|prompt| fixture.work(None, prompt, random));
        let plan = gc(fixture, &["--max-size", "10M", "--dry-run"]);
        assert_eq!(plan["deleted"], json!([]));
        // The newest session has two versions of the file: its own, and the one that it found.
        let plan = gc(fixture, &["--max-size", "250K"]);
        assert_eq!(plan["deleted"].as_array().map(Vec::len), Some(2), "{plan}");
        assert!(plan["deleted"][0].as_str().is_some_and(|id| id.ends_with(&ids[0])), "{plan}");
        assert!(bytes(&fixture.path("work/.rath")) < 250 << 10);
        files(fixture, &ids[2]);
    });
}

#[test]
fn rules_are_read_from_the_configuration_and_checked() {
    for_each_store("", |fixture| {
        fixture.work(None, "Old", "echo old > n.txt");
        let with_config = |text: &str, args: &[&str]| {
            std::fs::create_dir_all(fixture.path("config/rath")).expect("a directory");
            fixture.write("config/rath/config.toml", text);
            let output = fixture.command(args).env("XDG_CONFIG_HOME", fixture.path("config")).output();
            let output = output.expect("rath runs");
            (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
        };
        let (code, text) = with_config("[gc]\nolder-than = \"0s\"\n", &["gc", "--dry-run"]);
        assert!(code == Some(0) && text.contains("would delete 1 session"), "{text}");
        let (code, text) = with_config("[gc]\nolder-than = \"0s\"\n", &["gc", "--older-than", "1w", "--dry-run"]);
        assert!(code == Some(0) && text.contains("would delete 0 sessions"), "{text}");
        for (config, wrong) in [
            ("[gc]\nolder-than = 30\n", "gc: `older-than` is not a text"),
            ("[gc]\nolder-than = \"30\"\n", "wanted a number and s, m, h, d or w, such as `30d`, found `30`"),
            ("[gc]\nmax-size = \"lots\"\n", "wanted a number and K, M, G or T, such as `2G`, found `lots`"),
            ("[gc]\nolder = \"30d\"\n", "unknown name `older`; known: older-than, max-size, keep-named"),
        ] {
            let (code, text) = with_config(config, &["gc"]);
            assert!(code == Some(2) && text.contains(wrong), "{text}");
        }
        let (code, text) = with_config("", &["gc", "--older-than", "soon"]);
        assert!(code == Some(2) && text.contains("such as `30d`, found `soon`"), "{text}");
        let (code, text) = with_config("", &["gc", "--all", "--max-size", "1G"]);
        assert!(code == Some(2) && text.contains("give one or the other"), "{text}");
        fixture.write("rath.toml", "[gc]\nolder-than = \"0s\"\n");
        let output = crate::rath(&fixture.path(""), &["config"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("only your own configuration can have `gc`"), "{text}");
    });
}

/// Both kinds of store refuse alike, and name all that has to go together.
#[test]
fn no_session_is_deleted_that_another_needs_or_that_is_not_named() {
    for_each_store("", |fixture| {
        let one = fixture.work(None, "One", "echo one > one.txt");
        let other = fixture.work(None, "Other", "echo other > other.txt");
        let merged = fixture.out(&["merge", &one, &other]).lines().last().expect("an id").to_owned();
        for dry_run in [&["--dry-run"][..], &[]] {
            let check = |args: &[&str], expected: Expect| {
                let args = [&["gc"], args, dry_run].concat();
                match dry_run.is_empty() {
                    true => fixture.check(&args, &expected),
                    // The advice can be pasted, and deletes no more than the command did.
                    false => {
                        let told = stderr(fixture, &args).1;
                        let advice = format!(" --dry-run --store {}` would delete all of them", fixture.store);
                        assert!(told.contains(&advice), "{told}");
                    }
                }
            };
            check(
                &["--delete", &other],
                expect![[r#"
                    ! error: S1 needs steps of the session S2
                    ! hint: `rath gc --delete S2 --delete S1 --delete S3 --store STORE` deletes all of them
                    exit 1
                "#]],
            );
            check(
                &["--delete", &one],
                expect![[r#"
                    ! error: merges with other sessions are branches of S1 and would go too: S3
                    ! hint: `rath gc --delete S1 --delete S3 --store STORE` deletes all of them
                    exit 1
                "#]],
            );
            check(
                &["--delete", &merged],
                expect![[r#"
                    ! error: S3 is a branch of session S1, and cannot be deleted alone
                    ! hint: `rath gc --delete S1 --delete S3 --store STORE` deletes all of them
                    exit 1
                "#]],
            );
        }
        let named = |args: &[&str]| -> Vec<String> {
            let out = fixture.out(&[&["gc"], args].concat());
            out.lines().filter(|line| line.contains("  ")).map(str::to_owned).collect()
        };
        let both = ["--delete", &one, "--delete", &merged];
        let branch = format!("{merged} (branch of {one})  One");
        assert_eq!(
            named(&[&both[..], &["--dry-run"]].concat()),
            [format!("would delete {one}  One"), format!("would delete {branch}")]
        );
        assert_eq!(named(&both), [format!("deleted {one}  One"), format!("deleted {branch}")]);
        assert_eq!(named(&["--delete", &other]), [format!("deleted {other}  Other")]);
    });
}

#[test]
fn a_merge_whose_other_session_cannot_be_read_has_to_be_named_too() {
    let fixture = Fixture::in_folder(crate::workshop(""), "jsonl:.rath/s");
    let one = fixture.work(None, "One", "echo one > one.txt");
    let other = fixture.work(None, "Other", "echo other > other.txt");
    let merged = fixture.out(&["merge", &one, &other]).lines().last().expect("an id").to_owned();
    let files = std::fs::read_dir(fixture.path(".rath/s")).expect("a directory").flatten().map(|entry| entry.path());
    let is_other = |path: &PathBuf| path.to_string_lossy().ends_with(&format!("{other}.jsonl"));
    let file = files.into_iter().find(is_other).expect("a session");
    std::fs::rename(file, fixture.path("aside")).expect("moved");
    let (code, told) = stderr(&fixture, &["gc", "--delete", &one]);
    assert!(code == 1 && told.contains(&format!("would go too: {merged}")), "{code} {told}");
}
