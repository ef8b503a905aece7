//! The directory and the record, from the command line: after every command, the files that the calls of a session see are those
//! that `rath checkout` writes.
//!
//! `RATH_SCRIPTS` sets how many programs are made up and run, and `RATH_SEED` the seed of the first.

use rath_test_support::{Chance, seeds};

use crate::fixture::{Fixture, STORES};

/// A command that lists the files with the digests of their content.
const LIST: &str = "find . -name .rath -prune -o -type f -print | LC_ALL=C sort | xargs -r sha256sum";

/// Runs `sh -c` in a directory, and returns what it prints.
fn list(directory: &std::path::Path) -> String {
    let output = rath_test_support::program("sh").args(["-c", LIST]).current_dir(directory).output();
    String::from_utf8(output.expect("sh runs").stdout).expect("text").trim().to_owned()
}

/// Lets the agent of a session run one command, although files may have changed.
fn go_on(fixture: &Fixture, id: &str, command: &str) {
    fixture.script_command(command);
    let resume = ["resume", id, "go on", "--model", "script:script.jsonl", "--anyway"];
    let output = fixture.rath(&resume);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Lets the agent of a session say something, although files may have changed.
fn talk(fixture: &Fixture, id: &str, done: &[String]) {
    fixture.script("{\"text\": \"I see.\"}\n");
    assert_eq!(fixture.code(&["resume", id, "look", "--model", "script:script.jsonl", "--anyway"]), 0, "{done:#?}");
    let status = fixture.json(&["status", id, "--json"]);
    assert_eq!(status[0]["changes"], serde_json::json!([]), "{id}: {done:#?}");
}

/// Compares the files that a call of a session sees with those on its record.
fn compare(fixture: &Fixture, id: &str, done: &[String]) {
    go_on(fixture, id, LIST);
    let steps = fixture.json(&["log", id, "--json"]);
    let result = steps.iter().find(|step| step["chunk"]["kind"] == "tool_result").expect("a result");
    let seen = result["chunk"]["output"].as_str().expect("text").trim();
    let then = rath_test_support::temp_dir();
    let then = then.path().join("then");
    assert_eq!(fixture.code(&["checkout", id, then.to_str().expect("text")]), 0, "{done:#?}");
    assert_eq!(seen, list(&then), "{id}: {done:#?}");
    for step in steps.iter().filter(|step| step["chunk"]["kind"] == "observed") {
        let effects = step["chunk"]["effects"].as_array().into_iter().flatten();
        let is_edit = |path: &str| path.starts_with("edited");
        let by_others: Vec<_> = effects.filter(|it| !it["path"].as_str().is_some_and(is_edit)).collect();
        assert!(by_others.is_empty(), "{id}: {by_others:?} {done:#?}");
    }
}

fn check(seed: u64, sandbox: &str) {
    let mut chance = Chance(seed);
    let store = STORES[(seed % STORES.len() as u64) as usize];
    let fixture = &Fixture::in_folder(crate::workshop(""), store);
    let mut done = vec![format!("seed {seed}, {store}, {sandbox}")];
    let command = |nth: usize, chance: &mut Chance| match chance.below(5) {
        0 => "rm -f a.txt".to_owned(),
        1 => "true".to_owned(),
        _ => format!("mkdir -p made; echo {nth} > made/{nth}.txt; echo {nth} > a.txt"),
    };
    let first = match chance.below(2) {
        // A session that has run no tool.
        0 => {
            fixture.script("{\"text\": \"Hello.\"}\n");
            let run = ["run", "Hello", "--sandbox", sandbox, "--model", "script:script.jsonl"];
            assert_eq!(fixture.code(&run), 0);
            fixture.newest()
        }
        _ => {
            let first = fixture.work_in(sandbox, "Begin", "echo begun > begun.txt");
            done.push("begun".to_owned());
            first
        }
    };
    let mut ids = vec![first];
    for nth in 0..8 {
        let at = chance.below(ids.len() as u64) as usize;
        let id = ids[at].clone();
        match chance.below(8) {
            0..3 => {
                let command = command(nth, &mut chance);
                done.push(format!("resume {id}: {command}"));
                go_on(fixture, &id, &command);
            }
            3 | 4 => {
                done.push(format!("fork {id}"));
                ids.push(fixture.fork(&id));
            }
            5 => {
                let other = ids[chance.below(ids.len() as u64) as usize].clone();
                done.push(format!("merge {id} {other}"));
                let code = fixture.code(&["merge", &id, &other]);
                let merged = fixture.newest();
                for conflict in fixture.json(&["review", &merged, "--json"]) {
                    let path = conflict["conflict"]["path"].as_str().expect("a path");
                    assert_eq!(fixture.code(&["review", &merged, "--take", "theirs", path]), 0, "{path}: {done:#?}");
                }
                assert!(matches!(code, 0 | 4), "{code}: {done:#?}");
                ids[at] = merged;
            }
            6 => {
                let steps = fixture.json(&["log", &id, "--json"]);
                let with_tree = steps.iter().filter(|step| step["chunk"]["tree"].is_string());
                let with_tree: Vec<_> = with_tree.filter_map(|step| step["id"].as_str()).collect();
                let Some(step) = with_tree.get(chance.below(with_tree.len() as u64) as usize) else { continue };
                done.push(format!("restore {id}@{step}"));
                assert_eq!(fixture.code(&["restore", &format!("{id}@{step}")]), 0, "{done:#?}");
            }
            _ => {
                done.push("edit".to_owned());
                fixture.write(&format!("work/edited{nth}.txt"), "mine\n");
            }
        }
        if chance.below(3) == 0 {
            done.push(format!("talk {}", ids[at]));
            talk(fixture, &ids[at], &done);
        }
        compare(fixture, &ids[at], &done);
    }
}

#[test]
fn the_files_of_a_session_are_those_on_its_record_after_every_command() {
    seeds(4).for_each(|seed| check(seed, "local:work"));
}

#[test]
fn the_files_of_an_isolated_session_are_those_on_its_record_after_every_command() {
    seeds(2).for_each(|seed| check(seed, "isolated:work"));
}
