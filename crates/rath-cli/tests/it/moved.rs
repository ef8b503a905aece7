//! Sessions whose directory was moved, or replaced by another one: commands create nothing there, and their hints work.

use crate::fixture::{Fixture, for_each_store};

/// Makes a session in `sandbox` and a fork that has run, and moves their directory away. Returns their ids.
fn moved(fixture: &Fixture, sandbox: &str) -> [String; 2] {
    let session = fixture.work_in(sandbox, "Begin", "echo 1 > n.txt");
    let fork = fixture.fork(&session);
    fixture.work(Some(&fork), "Go on", "echo 2 > n.txt");
    std::fs::rename(fixture.path("work"), fixture.path("moved")).expect("moved");
    [session, fork]
}

#[test]
fn commands_that_read_or_refuse_create_nothing() {
    for_each_store("", |fixture| {
        let [session, fork] = &moved(fixture, "local:work");
        let model = ["--model", "script:script.jsonl"];
        let commands: [&[&str]; 18] = [
            &["resume", session, "Go on", model[0], model[1]],
            &["resume", session, "Go on", model[0], model[1], "--sandbox", "local:work"],
            &["run", "Go on", "--session", session, model[0], model[1]],
            &["check", "true", "--session", session],
            &["check"],
            &["restore", session],
            &["restore", fork],
            &["merge", session, fork],
            &["merge", session, session],
            &["fork", session],
            &["diff", session, fork],
            &["blame", "n.txt"],
            &["checkout", session, "out"],
            &["review", session],
            &["verify"],
            &["log", "-v", session],
            &["ls"],
            &["run", "Begin", model[0], model[1], "--sandbox", "local:nothing"],
        ];
        for is_there in [false, true] {
            for command in commands {
                if is_there {
                    std::fs::create_dir(fixture.path("work")).expect("a directory");
                }
                fixture.rath(command);
                if is_there {
                    // Fails if the directory is not empty.
                    std::fs::remove_dir(fixture.path("work")).unwrap_or_else(|error| panic!("{command:?}: {error}"));
                }
                for path in ["work", "nothing", "out"] {
                    assert!(!fixture.path(path).exists(), "{command:?} created {path}");
                }
            }
        }
    });
}

#[test]
fn a_run_that_is_refused_creates_no_store() {
    for sandbox in ["local:nothing", "isolated:nothing", "local:script.jsonl"] {
        for_each_store("", |fixture| {
            fixture.script_command("true");
            assert_ne!(fixture.code(&["run", "Go", "--model", "script:script.jsonl", "--sandbox", sandbox]), 0);
            assert!(!fixture.path(".rath").exists(), "{sandbox}");
        });
    }
}

#[test]
fn a_hint_for_a_session_whose_directory_was_moved_is_a_command_that_works() {
    let isolated = crate::sandbox::can_isolate().then_some("isolated:work?hide=private.txt");
    for sandbox in ["local:work"].into_iter().chain(isolated) {
        for command in ["resume", "check", "restore"] {
            for_each_store("", |fixture| {
                for session in &moved(fixture, sandbox) {
                    let args: &[&str] = match command {
                        "resume" => &["resume", session, "Go on.", "--model", "script:script.jsonl"],
                        "check" => &["check", "true", "--session", session],
                        _ => &["restore", session],
                    };
                    let errors = String::from_utf8(fixture.rath(args).stderr).expect("UTF-8");
                    let hint = errors.lines().find_map(|line| line.strip_prefix("hint: `rath ")).expect("a hint");
                    let (hint, effect) = hint.split_once('`').expect("the end of the command");
                    assert_eq!(effect, " continues in this directory (this is recorded)");
                    let here = sandbox.replace("work", ".");
                    assert!(
                        hint.contains(&format!("--sandbox {here}")) || hint.contains(&format!("'{here}'")),
                        "{hint}"
                    );
                    let hint = hint.replace("script:FILE", "script:script.jsonl");
                    fixture.script_command(&format!("echo {session} > here.txt"));
                    let program = crate::program_path();
                    let mut shell = rath_test_support::program("sh");
                    shell.args(["-c", &format!("'{}' {hint}", program.display())]).current_dir(fixture.path("."));
                    let output = shell.output().expect("sh runs");
                    assert!(output.status.success(), "{hint}: {}", String::from_utf8_lossy(&output.stderr));
                    let log = fixture.out(&["log", "-v", session]);
                    assert!(log.contains(" ok +here.txt") || log.contains(" ok ~here.txt"), "{hint}: {log}");
                    assert!(!fixture.path("work").exists(), "{hint}");
                }
            });
        }
    }
}
