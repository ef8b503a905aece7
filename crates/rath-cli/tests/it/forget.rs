//! Tests of `rath forget`: what only the forgotten step brought in is in no file of rath's, and what stays is named.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rath_test_support::{Chance, count, git, seed, seeds};

use crate::fixture::{Fixture, for_each_store};

/// A shell command that writes a file whose content is not in the command itself.
fn write(path: &str, word: &str) -> String {
    let (start, end) = word.split_at(word.len() / 2);
    format!("printf '%s%s\\n' {start} {end} > {path}")
}

/// Returns the files of rath's in which a word is found: in their bytes, or in an object of the versions.
fn found(fixture: &Fixture, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for own in [".rath", "work/.rath", "elsewhere.db"] {
        let mut rest = vec![fixture.path(own)];
        while let Some(path) = rest.pop() {
            match std::fs::read_dir(&path) {
                Ok(entries) => rest.extend(entries.flatten().map(|entry| entry.path())),
                Err(_) => {
                    let bytes = std::fs::read(&path).unwrap_or_default();
                    if contains(&bytes, word) {
                        found.push(path.strip_prefix(fixture.path("")).expect("a path").display().to_string());
                    }
                }
            }
        }
    }
    let folder = fixture.path("work/.rath/workspace");
    let objects = git().arg("--git-dir").arg(&folder).args(["cat-file", "--batch", "--batch-all-objects"]).output();
    let objects = objects.expect("git runs").stdout;
    assert!(!objects.is_empty(), "there are objects");
    if contains(&objects, word) {
        found.push("objects".to_owned());
    }
    found.sort();
    found
}

fn contains(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

/// Forgets a step. Returns the exit status and all that is printed.
fn forget(fixture: &Fixture, session: &str, step: &str) -> (i32, String) {
    let output = fixture.rath(&["forget", session, step]);
    (output.status.code().expect("a status"), String::from_utf8(output.stderr).expect("UTF-8"))
}

/// Lets the next run call the shell once.
fn script(fixture: &Fixture, command: &str) {
    let call = serde_json::json!({"calls": [{"name": "shell", "arguments": {"command": command}}]});
    fixture.script(&format!("{call}\n{}\n", serde_json::json!({"text": "Done."})));
}

fn messages(fixture: &Fixture, args: &[&str]) -> (i32, String) {
    let output = fixture.rath(args);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().expect("a status"), String::from_utf8(text).expect("UTF-8"))
}

fn remove(fixture: &Fixture, path: &str) {
    std::fs::remove_file(fixture.path(path)).expect("removed");
}

/// Packs all objects of the versions as git does: as differences to each other.
fn pack(folder: &Path) {
    let list = git().arg("--git-dir").arg(folder).args(["cat-file", "--batch-all-objects", "--batch-check"]).output();
    let list = String::from_utf8(list.expect("git runs").stdout).expect("UTF-8");
    let ids: String = list.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned() + "\n").collect();
    let mut child = git()
        .arg("--git-dir")
        .arg(folder)
        .args(["pack-objects", "-q", "--window=50", "--depth=50"])
        .arg(folder.join("objects/pack/pack"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("git runs");
    std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), ids.as_bytes()).expect("written");
    assert!(child.wait().expect("git ends").success());
    for fan in std::fs::read_dir(folder.join("objects")).expect("objects").flatten() {
        if fan.file_name().len() == 2 {
            std::fs::remove_dir_all(fan.path()).expect("removed");
        }
    }
}

#[test]
fn what_only_the_forgotten_step_brought_in_is_in_no_file_of_raths() {
    for is_packed in [false, true] {
        for_each_store("", |fixture| {
            let id = fixture.work(None, "Begin", "seq 1 400 > keep.txt");
            fixture.work(
                Some(&id),
                "Two",
                &format!("(seq 1 400; {}) > secret.txt", write("/dev/stdout", "canary-one")),
            );
            fixture.work(Some(&id), "Three", "echo later > later.txt");
            let step = fixture.step(&id, "+secret.txt");
            remove(fixture, "work/secret.txt");
            if is_packed {
                pack(&fixture.path("work/.rath/workspace"));
            }
            assert_eq!(found(fixture, "canary-one"), ["objects"]);
            let (code, said) = forget(fixture, &id, &step);
            assert_eq!(found(fixture, "canary-one"), [""; 0], "{said}");
            assert!(said.contains("1 file that it wrote is removed from the versions: secret.txt"), "{said}");
            assert!(!said.contains("still in") && code == 0, "{said}");
            // All other files of all versions are there.
            for step in [fixture.step(&id, "+keep.txt"), step.clone(), fixture.step(&id, "+later.txt")] {
                let _ = std::fs::remove_dir_all(fixture.path("out"));
                let (code, said) = messages(fixture, &["checkout", &format!("{id}@{step}"), "out"]);
                assert_eq!(code, 0, "{said}");
                let text = std::fs::read_to_string(fixture.path("out/keep.txt")).expect("it is there");
                assert_eq!(text.lines().count(), 400);
                assert!(!fixture.path("out/secret.txt").exists());
            }
            assert!(fixture.path("out/later.txt").exists());
            assert_eq!(fixture.code(&["verify"]), 0);
            assert_eq!(fixture.code(&["gc"]), 0);
            // Again: nothing is left to do, and nothing fails.
            assert_eq!(forget(fixture, &id, &step).0, 0);
        });
    }
}

#[test]
fn commands_say_that_the_content_of_a_file_was_removed() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "echo base > keep.txt");
        fixture.work(Some(&id), "Two", &write("secret.txt", "canary-one"));
        let step = fixture.step(&id, "+secret.txt");
        fixture.work(Some(&id), "Three", "echo more >> secret.txt");
        let first = fixture.step(&id, "+keep.txt");
        remove(fixture, "work/secret.txt");
        assert_eq!(forget(fixture, &id, &step).0, 0);
        let at = |step: &str| format!("{id}@{step}");
        let removed = "was removed with `rath forget`";
        let (code, said) = messages(fixture, &["checkout", &at(&step), "out"]);
        assert!(code == 0 && said.contains("secret.txt is left out: its content was removed"), "{said}");
        let (code, said) = messages(fixture, &["diff", &at(&first), &at(&step)]);
        assert!(code == 0 && said.contains("secret.txt") && said.contains(removed), "{code} {said}");
        let (_, said) = messages(fixture, &["diff", &at(&first), &at(&step), "--stat"]);
        assert!(!said.contains("damaged") && !said.contains("missing"), "{said}");
        for args in [
            &["blame", "secret.txt", &at(&step)][..],
            &["bisect", &at(&step), "--sandbox", "local:", "--", "false"],
            &["restore", &at(&step)],
        ] {
            let (code, said) = messages(fixture, args);
            assert!(code != 0 && said.contains("`rath forget`"), "{args:?}: {said}");
            assert!(!said.contains("damaged") && !said.contains("missing"), "{args:?}: {said}");
        }
        let later = fixture.out(&["blame", "secret.txt", &id]);
        assert_eq!(later.matches("forgotten").count(), 2, "{later}");
        assert_eq!(fixture.code(&["verify", &id]), 0);
        assert_eq!(fixture.code(&["export", &id, "--as", "bundle", "-o", "b.rath"]), 0);
        assert_eq!(fixture.code(&["verify", "b.rath"]), 0);
        assert_eq!(fixture.code(&["gc"]), 0);
        // The session continues.
        let model = ["--model", "script:script.jsonl", "--anyway", "--sandbox", "local:work"];
        script(fixture, "echo 4 > four.txt");
        let (code, said) = messages(fixture, &[&["resume", &id, "Four"], &model[..]].concat());
        assert_eq!(code, 0, "{said}");
        let _ = std::fs::remove_dir_all(fixture.path("out"));
        assert_eq!(fixture.code(&["checkout", &id, "out"]), 0);
        assert!(fixture.path("out/four.txt").exists());
    });
}

#[test]
fn files_that_still_have_the_content_are_named_and_stored_again_with_the_next_version() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "echo base > keep.txt");
        fixture.work(Some(&id), "Two", &write("secret.txt", "canary-one"));
        let step = fixture.step(&id, "+secret.txt");
        let fork = fixture.fork(&id);
        fixture.work(Some(&fork), "Fork", "cp secret.txt copy.txt");
        let (code, said) = forget(fixture, &id, &step);
        assert!(code == 0 && said.contains("still in: work/secret.txt (your own file)"), "{said}");
        for name in ["secret.txt", "copy.txt"] {
            let line = said.lines().find(|line| line.contains(&format!("/{name} (a file of branch {fork})")));
            assert!(line.is_some_and(|line| line.contains("still in: work/.rath/work/")), "{name}: {said}");
        }
        assert!(!found(fixture, "canary-one").contains(&"objects".to_owned()));
        assert!(fixture.path("work/secret.txt").exists());
        // A file that stays is part of the next version, and the fork works on.
        script(fixture, "echo 4 > four.txt");
        for (session, rest) in [(&id, &["--anyway"][..]), (&fork, &["--anyway"])] {
            let model = ["--model", "script:script.jsonl", "--sandbox", "local:work"];
            let (code, said) = messages(fixture, &[&["resume", session, "Four"], &model[..], rest].concat());
            assert_eq!(code, 0, "{said}");
            let _ = std::fs::remove_dir_all(fixture.path("out"));
            let (code, said) = messages(fixture, &["checkout", session, "out"]);
            assert!(code == 0 && !said.contains("left out"), "{said}");
            assert_eq!(std::fs::read_to_string(fixture.path("out/secret.txt")).expect("it is there"), "canary-one\n");
        }
    });
}

#[test]
fn content_that_another_step_brought_in_stays_until_that_one_is_forgotten() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "echo base > keep.txt");
        let fork = fixture.fork(&id);
        fixture.work(Some(&id), "Two", &write("one.txt", "canary-one"));
        fixture.work(Some(&fork), "Fork", &write("two.txt", "canary-one"));
        let (one, two) = (fixture.step(&id, "+one.txt"), fixture.step(&fork, "+two.txt"));
        remove(fixture, "work/one.txt");
        let (_, said) = forget(fixture, &id, &one);
        assert!(said.contains(&format!("one.txt stays in the versions: step {two} brought in")), "{said}");
        assert!(found(fixture, "canary-one").contains(&"objects".to_owned()));
        let (_, said) = forget(fixture, &fork, &two);
        assert!(said.contains("removed from the versions: two.txt"), "{said}");
        assert!(!found(fixture, "canary-one").contains(&"objects".to_owned()));
        // Content from before the session stays as well.
        std::fs::write(fixture.path("work/mine.txt"), "canary-mine\n").expect("written");
        let other = fixture.work(None, "Other", &write("copy.txt", "canary-mine"));
        let (_, said) = forget(fixture, &other, &fixture.step(&other, "+copy.txt"));
        assert!(!said.contains("removed from the versions"), "{said}");
        assert!(found(fixture, "canary-mine").contains(&"objects".to_owned()));
    });
}

#[test]
fn a_later_session_that_found_the_content_in_the_directory_does_not_keep_it() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", &write("secret.txt", "canary-one"));
        let later = fixture.work(None, "Later", "rm secret.txt; echo x > x.txt");
        let (code, said) = forget(fixture, &id, &fixture.step(&id, "+secret.txt"));
        assert!(code == 0 && said.contains("removed from the versions: secret.txt"), "{said}");
        assert_eq!(found(fixture, "canary-one"), [""; 0]);
        assert_eq!(fixture.code(&["checkout", &later, "out"]), 0);
    });
}

#[test]
fn sessions_that_begin_alike_forget_together() {
    for_each_store("", |fixture| {
        let script = "{\"text\": \"Yes.\"}\n";
        for _ in 0..2 {
            fixture.script(script);
            assert_eq!(fixture.code(&["run", "canary-two", "--model", "script:script.jsonl", "--sandbox", "none"]), 0);
        }
        let id = fixture.newest();
        let step = fixture.step(&id, "user: canary-two");
        let (code, said) = forget(fixture, &id, &step);
        assert_eq!(code, 0, "{said}");
        let listed = fixture.out(&["ls", "--all"]);
        assert!(!listed.contains("canary-two"), "{listed}");
        assert_eq!(fixture.code(&["verify"]), 0);
    });
}

#[test]
fn a_store_elsewhere_that_has_the_step_is_named() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", &write("secret.txt", "canary-one"));
        remove(fixture, "work/secret.txt");
        assert_eq!(fixture.code(&["export", &id, "--as", "bundle", "-o", "copy.rath"]), 0);
        let elsewhere = Fixture::with_store(fixture, "sqlite:elsewhere.db");
        assert_eq!(elsewhere.code(&["import", "copy.rath"]), 0);
        let (_, said) = forget(fixture, &id, &fixture.step(&id, "+secret.txt"));
        assert!(said.contains("elsewhere.db, with its text"), "{said}");
    });
}

#[test]
fn what_could_not_be_reached_is_removed_by_the_next_call() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "echo base > keep.txt");
        fixture.work(Some(&id), "Two", &write("secret.txt", "canary-one"));
        let step = fixture.step(&id, "+secret.txt");
        remove(fixture, "work/secret.txt");
        // As for a process that was killed after it erased the texts, and before it removed the files.
        let in_use = rath::workspace::Objects::open(&fixture.path("work/.rath/workspace")).expect("versions");
        let (code, said) = forget(fixture, &id, &step);
        assert!(code == 1 && said.contains("were left alone: a process works there"), "{said}");
        assert_eq!(found(fixture, "canary-one"), ["objects"]);
        drop(in_use);
        assert_eq!(forget(fixture, &id, &step).0, 0);
        assert_eq!(found(fixture, "canary-one"), [""; 0]);
    });
}

#[test]
fn a_kill_at_any_time_is_repaired_by_the_next_call() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "seq 1 3000 > keep.txt");
        let mut chance = Chance(seed());
        for round in 0..count("RATH_KILLS", 4) {
            let word = format!("canary-number-{round}");
            let many = format!("for i in 1 2 3 4 5 6 7 8; do {}; done", write("s$i.txt", &word));
            let session = fixture.work(None, &word.replace("canary", "round"), &many);
            let step = fixture.step(&session, "+s1.txt");
            (1..=8).for_each(|nth| remove(fixture, &format!("work/s{nth}.txt")));
            let mut running = fixture.start(&["forget", &session, &step]);
            std::thread::sleep(Duration::from_micros(chance.below(60_000)));
            running.kill().expect("killed");
            running.wait().expect("ended");
            let (code, said) = forget(fixture, &session, &step);
            assert_eq!((code, found(fixture, &word)), (0, Vec::new()), "round {round}: {said}");
            assert_eq!(fixture.code(&["verify"]), 0, "round {round}");
        }
        assert_eq!(fixture.code(&["checkout", &id, "out"]), 0);
    });
}

#[test]
fn later_versions_of_a_file_stay_and_are_named() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", &write("secret.txt", "canary-one"));
        fixture.work(Some(&id), "More", "echo more >> secret.txt");
        let later = fixture.step(&id, "~secret.txt");
        remove(fixture, "work/secret.txt");
        let (_, said) = forget(fixture, &id, &fixture.step(&id, "+secret.txt"));
        assert!(said.contains(&format!("step {later} changed secret.txt again: its version stays")), "{said}");
        assert_eq!(found(fixture, "canary-one"), ["objects"]);
        assert_eq!(forget(fixture, &id, &later).0, 0);
        assert_eq!(found(fixture, "canary-one"), [""; 0]);
    });
}

#[test]
fn files_that_a_fork_shares_with_its_base_version_are_named() {
    for_each_store("", |fixture| {
        for nth in 0..1_200 {
            std::fs::write(fixture.path(&format!("work/{nth}.txt")), format!("file {nth}\n")).expect("written");
        }
        let id = fixture.work(None, "Begin", &write("secret.txt", "canary-one"));
        let step = fixture.step(&id, "+secret.txt");
        let [one, two] = [(); 2].map(|()| fixture.fork(&id));
        fixture.work(Some(&one), "One", "echo 1 > one.txt");
        fixture.work(Some(&two), "Two", "echo 2 > two.txt");
        remove(fixture, "work/secret.txt");
        let (_, said) = forget(fixture, &id, &step);
        for fork in [&one, &two] {
            assert!(said.contains(&format!("secret.txt (a file of branch {fork})")), "{fork}: {said}");
        }
        for path in found(fixture, "canary-one") {
            assert!(said.contains(&format!("still in: {path} ")), "{path}: {said}");
        }
        // The forks work on.
        for fork in [&one, &two] {
            script(fixture, "rm secret.txt");
            let model = ["--model", "script:script.jsonl", "--sandbox", "local:work", "--anyway"];
            let (code, said) = messages(fixture, &[&["resume", fork, "Go on"], &model[..]].concat());
            assert_eq!(code, 0, "{said}");
        }
    });
}

#[test]
fn what_a_call_wrote_and_was_put_back_is_removed() {
    for_each_store("", |fixture| {
        fixture.write("work/.envrc", "export A=1\n");
        fixture.write("work/change.sh", &write(".envrc", "canary-one"));
        script(fixture, "sh change.sh");
        let run = ["run", "Go", "--sandbox", "isolated:work", "--model", "script:script.jsonl"];
        let (code, said) = messages(fixture, &run);
        assert_eq!(code, 0, "{said}");
        let id = fixture.newest();
        assert!(found(fixture, "canary-one").iter().any(|path| path.contains("put-back")), "{said}");
        let step = fixture.step(&id, "tool result");
        assert_eq!(forget(fixture, &id, &step).0, 0);
        assert_eq!(found(fixture, "canary-one"), [""; 0]);
        let envrc = std::fs::read_to_string(fixture.path("work/.envrc")).expect("it is there");
        assert_eq!(envrc, "export A=1\n");
    });
}

#[test]
fn a_merge_that_needs_a_forgotten_content_says_so() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "seq 1 9 > a.txt");
        let [one, two] = [(); 2].map(|()| fixture.fork(&id));
        fixture.work(Some(&one), "One", &format!("{}; seq 2 9 >> a.txt", write("a.txt", "canary-one")));
        fixture.work(Some(&two), "Two", "sed -i s/9/nine/ a.txt");
        let (_, said) = forget(fixture, &one, &fixture.step(&one, "~a.txt"));
        assert!(said.contains("removed from the versions: a.txt"), "{said}");
        let (code, said) = messages(fixture, &["merge", &two, &one]);
        assert!(code != 0 && said.contains("`rath forget`") && !said.contains("damaged"), "{said}");
    });
}

/// Returns the files of all versions that the steps of a session name: by tree and path, with the content. The content of a
/// forgotten file is none.
fn versions(fixture: &Fixture, session: &str) -> BTreeMap<(String, String), Option<String>> {
    let objects = rath::workspace::Objects::open_read_only(&fixture.path("work/.rath/workspace")).expect("versions");
    let mut versions = BTreeMap::new();
    for step in fixture.json(&["log", session, "--json"]) {
        let Some(tree) = step.to_string().split("git:").nth(1).map(|rest| rest[..40].to_owned()) else { continue };
        let id = format!("git:{tree}").parse().expect("an id");
        for file in objects.files(id).expect("the tree is there") {
            let content = match objects.read(id, &file.path) {
                Ok(content) => content.map(|content| String::from_utf8(content).expect("UTF-8")),
                Err(error) if error.kind() == rath::workspace::ErrorKind::Forgotten => None,
                Err(error) => panic!("{}: {error:?}", file.path),
            };
            versions.insert((tree.clone(), file.path), content);
        }
    }
    versions
}

/// Sessions and forks write, copy, rename and delete files, and one of the steps is forgotten. What only it brought in is gone from
/// all versions, and all other files of all versions are as before.
#[test]
fn random_sessions_forget_one_step_and_nothing_else() {
    for seed in seeds(2) {
        for_each_store("", |fixture| {
            let mut chance = Chance(seed);
            let mut sessions = vec![fixture.work(None, "Begin", "echo base > f0.txt")];
            // The sessions that have a word, and the first step that has it.
            let mut brought: Vec<(String, String, String)> = Vec::new();
            for nth in 1..=9 {
                let session = sessions[chance.below(sessions.len() as u64) as usize].clone();
                let (from, to) = (chance.below(3), chance.below(3));
                match chance.below(6) {
                    0 => sessions.push(fixture.fork(&session)),
                    1 => _ = fixture.work(Some(&session), "Copy", &format!("cp f{from}.txt c{to}.txt || true")),
                    2 => _ = fixture.work(Some(&session), "Delete", &format!("rm -f f{to}.txt c{to}.txt")),
                    _ => {
                        let word = format!("canary-word-{nth}");
                        fixture.work(Some(&session), &format!("Write {nth}"), &write(&format!("f{to}.txt"), &word));
                        let step = fixture.json(&["log", &session, "--json"]).into_iter().find_map(|step| {
                            let id = step["id"].as_str().filter(|_| step["chunk"]["kind"] == "tool_result");
                            id.map(str::to_owned)
                        });
                        brought.push((session, step.expect("a result"), word));
                    }
                }
            }
            let Some((session, step, word)) = brought.get(chance.below(brought.len() as u64) as usize).cloned() else {
                return;
            };
            let before: Vec<_> = sessions.iter().map(|session| versions(fixture, session)).collect();
            let (code, said) = forget(fixture, &session, &step[..8]);
            assert_eq!(code, 0, "seed {seed}: {said}");
            for path in found(fixture, &word) {
                assert!(said.contains(&format!("still in: {path} ")), "seed {seed}: {path}: {said}");
            }
            for (session, mut before) in sessions.iter().zip(before) {
                let text = format!("{word}\n");
                before.values_mut().filter(|content| content.as_ref() == Some(&text)).for_each(|it| *it = None);
                assert_eq!(versions(fixture, session), before, "seed {seed}, {session}: {said}");
            }
            assert_eq!(fixture.code(&["verify"]), 0, "seed {seed}");
            assert_eq!(fixture.code(&["gc"]), 0, "seed {seed}");
        });
    }
}

/// The step may have been one that placed the session elsewhere, so its place is not known for sure. The hints name it.
#[test]
fn the_sandbox_has_to_be_named_again_and_the_hint_does() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "echo one > new.txt");
        fixture.work(Some(&id), "Two", "echo two > new.txt");
        let first = fixture.step(&id, "+new.txt");
        let two = fixture.step(&id, "user: Two");
        assert_eq!(forget(fixture, &id, &two).0, 0);
        let wanted = "the session has no sandbox any more: a step of it was removed";
        let sandbox = format!("--sandbox 'local:{}'", fixture.path("work").display());
        let (code, said) = messages(fixture, &["restore", &format!("{id}@{first}")]);
        assert!(code != 0 && said.contains(wanted) && said.contains(&sandbox), "{said}");
        script(fixture, "echo three > new.txt");
        let (code, said) = messages(fixture, &["resume", &id, "Three", "--model", "script:script.jsonl"]);
        assert!(code != 0 && said.contains(wanted), "{said}");
        let hint = said.split('`').find(|part| part.starts_with("rath resume")).expect("a hint");
        let pasted = hint.replacen("rath", &format!("'{}'", crate::program_path().display()), 1);
        let mut shell = rath_test_support::program("sh");
        let output = shell.args(["-c", &pasted]).current_dir(fixture.path("")).output().expect("a shell runs");
        assert!(output.status.success(), "{hint}");
        assert_eq!(fixture.code(&["restore", &format!("{id}@{first}")]), 0);
        assert!(fixture.files("work").contains("new.txt: one\n"));
    });
}

/// A session that was merged into another is not the newest of its line any more. When the other is deleted, its versions stay.
#[test]
fn a_session_that_was_merged_into_a_deleted_one_keeps_its_files() {
    for_each_store("", |fixture| {
        let one = fixture.work(None, "One", "echo one > one.txt");
        let other = fixture.work(None, "Other", "echo other > other.txt");
        let merged = fixture.out(&["merge", &one, &other]).lines().last().expect("an id").to_owned();
        assert_eq!(fixture.code(&["gc", "--delete", &one, "--delete", &merged]), 0);
        remove(fixture, "work/other.txt");
        let third = fixture.work(None, "Third", &write("secret.txt", "canary-one"));
        let step = fixture.step(&third, "+secret.txt");
        remove(fixture, "work/secret.txt");
        let (code, said) = forget(fixture, &third, &step);
        assert!(code == 0 && said.contains("secret.txt"), "{said}");
        let (code, said) = messages(fixture, &["checkout", &other, "out"]);
        assert_eq!(code, 0, "{said}");
        assert_eq!(std::fs::read_to_string(fixture.path("out/other.txt")).expect("read"), "other\n");
    });
}

/// A directory of the user's with that name is no place where rath moves files aside.
#[test]
fn a_fork_keeps_its_own_directory_called_put_back() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "echo base > base.txt");
        let fork = fixture.fork(&id);
        let command = format!("mkdir -p put-back; {}", write("put-back/secret.txt", "canary-one"));
        fixture.work(Some(&fork), "Fork", &command);
        let step = fixture.step(&fork, "+put-back/secret.txt");
        let (_, said) = forget(fixture, &fork, &step);
        assert!(said.contains("still in: ") && said.contains("put-back/secret.txt"), "{said}");
        assert_eq!(fixture.code(&["resume", &fork, "--model", "script:script.jsonl"]), 3, "it has no sandbox any more");
        let work = fixture.path("work/.rath/work");
        let kept = walk(&work).into_iter().find(|path| path.ends_with("put-back/secret.txt")).expect("it is there");
        assert_eq!(std::fs::read_to_string(kept).expect("read"), "canary-one\n");
    });
}

/// Returns all files below a directory.
fn walk(directory: &Path) -> Vec<std::path::PathBuf> {
    let (mut found, mut rest) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(path) = rest.pop() {
        match std::fs::read_dir(&path) {
            Ok(entries) => rest.extend(entries.flatten().map(|entry| entry.path())),
            Err(_) => found.push(path),
        }
    }
    found
}

/// A tree that is damaged keeps no content that is to be forgotten.
#[test]
fn a_damaged_tree_does_not_keep_forgotten_content() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "mkdir sub; echo base > sub/base.txt");
        fixture.work(Some(&id), "Two", &write("secret.txt", "canary-one"));
        let step = fixture.step(&id, "+secret.txt");
        remove(fixture, "work/secret.txt");
        let folder = fixture.path("work/.rath/workspace");
        let list =
            git().arg("--git-dir").arg(&folder).args(["cat-file", "--batch-all-objects", "--batch-check"]).output();
        let list = String::from_utf8(list.expect("git runs").stdout).expect("UTF-8");
        // The tree of `sub` is the smallest.
        let trees = list.lines().filter(|line| line.contains(" tree ") && !line.ends_with(" 0"));
        let smallest = trees.min_by_key(|line| line.rsplit(' ').next().and_then(|size| size.parse::<u64>().ok()));
        let tree = smallest.and_then(|line| line.split(' ').next()).expect("a tree");
        let path = folder.join("objects").join(&tree[..2]).join(&tree[2..]);
        let mut permissions = std::fs::metadata(&path).expect("an object").permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
        std::fs::set_permissions(&path, permissions).expect("writable");
        std::fs::write(&path, "no object").expect("written");
        let (code, said) = forget(fixture, &id, &step);
        assert!(code == 1 && said.contains("is removed") && said.contains("damaged"), "{code} {said}");
        assert_eq!(found(fixture, "canary-one"), [""; 0], "{said}");
    });
}

/// The digest of a file that a later step moved is no reference to the output that showed the file.
#[test]
fn a_long_output_that_showed_a_file_is_gone_also_if_the_file_was_moved_later() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "seq -f 'canary-%g' 4000 > big.txt; cat big.txt");
        fixture.work(Some(&id), "Two", "mv big.txt moved.txt");
        let step = fixture.step(&id, "+big.txt");
        let moved = fixture.step(&id, "moved.txt");
        remove(fixture, "work/moved.txt");
        for step in [&step, &moved] {
            let (_, said) = forget(fixture, &id, step);
            assert!(!said.contains("error"), "{said}");
        }
        assert_eq!(found(fixture, "canary-3999"), Vec::<String>::new());
    });
}

/// A hint names the store in which the other step is.
#[test]
fn a_step_of_another_store_is_named_with_its_store() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "echo nothing");
        fixture.work(Some(&id), "Two", &write("secret.txt", "canary-one"));
        let step = fixture.step(&id, "+secret.txt");
        remove(fixture, "work/secret.txt");
        let other = Fixture::with_store(fixture, "sqlite:elsewhere.db");
        let theirs = other.work(None, "Other", "echo nothing");
        other.work(Some(&theirs), "Two", &write("secret.txt", "canary-one"));
        remove(fixture, "work/secret.txt");
        let (_, said) = forget(fixture, &id, &step);
        let hint = said.lines().find_map(|line| line.strip_prefix("hint: `rath ")).expect("a hint");
        let args = hint.split('`').next().expect("a command");
        assert!(args.contains("elsewhere.db"), "{said}");
        let pasted = format!("'{}' {args}", crate::program_path().display());
        let mut shell = rath_test_support::program("sh");
        let output = shell.args(["-c", &pasted]).current_dir(fixture.path("")).output().expect("a shell runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(found(fixture, "canary-one"), Vec::<String>::new(), "{said}");
    });
}

/// Content that is gone is not said to stay.
#[test]
fn a_restored_file_that_is_forgotten_is_not_said_to_stay() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "echo nothing");
        fixture.work(Some(&id), "Two", &write("secret.txt", "canary-one"));
        let step = fixture.step(&id, "+secret.txt");
        fixture.work(Some(&id), "Three", "rm secret.txt");
        fixture.out(&["restore", &format!("{id}@{step}")]);
        fixture.work(Some(&id), "Four", "echo nothing");
        remove(fixture, "work/secret.txt");
        let (status, said) = forget(fixture, &id, &step);
        assert!(status == 0 && !said.contains("secret.txt stays") && !said.contains("its version stays"), "{said}");
        assert_eq!(found(fixture, "canary-one"), Vec::<String>::new(), "{said}");
    });
}
