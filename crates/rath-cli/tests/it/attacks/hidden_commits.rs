//! Hidden files in a commit: git runs where they are covered, and would record that they are deleted.
//!
//! Without the guard a command commits, in a sandbox that lets it.

use serde_json::json;

use super::place::{CANARY, EVIL, Place, results, shell, tool};
use super::{Attack, Guard, HoldsIn, Observation, Plane, SandboxKind, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        Attack::new("a directory that a rule hides deleted by a commit", Plane::Walls, HoldsIn::Isolated, |trial| {
            try_commit(trial, ("work", ""), "deny = [\"read secrets/\"]\n", &["secrets/a/b", "secrets/c"])
        }),
        Attack::new("files that a rule hides deleted by a commit", Plane::Walls, HoldsIn::Isolated, |trial| {
            try_commit(trial, ("work", ""), "deny = [\"read secrets/\", \"read *.key\"]\n", &["secrets/a/b", "c.key"])
        }),
        Attack::new("a directory that a sandbox hides deleted by a commit", Plane::Walls, HoldsIn::Isolated, |trial| {
            try_commit(trial, ("work", "hide=secrets"), "", &["secrets/a/b", "secrets/c"])
        }),
        Attack::new("a private file of a home in a commit", Plane::FileTools, HoldsIn::Both, |trial| {
            try_commit(trial, ("home", ""), "", &[".config/nvim/init.lua", ".netrc"])
        }),
    ]
}

/// Commits all changes in a repository with hidden files, of which the user has changed some.
fn try_commit(trial: Trial, (directory, option): (&str, &str), rules: &str, hidden: &[&str]) -> Observation {
    let place = Place::new();
    place.write("config/rath/config.toml", &format!("[permissions]\nallow = [\"tool *\"]\n{rules}"));
    let at = |name: &str| format!("{directory}/{name}");
    hidden.iter().chain(&["seen"]).for_each(|name| place.write(&at(name), "one"));
    let git = |words: &[&str]| {
        let output =
            rath_test_support::git().args(words).current_dir(place.path(directory)).output().expect("git runs");
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    git(&["init", "-q"]);
    git(&["config", "user.name", "Ann"]);
    git(&["config", "user.email", "ann@example.invalid"]);
    git(&["add", "-A"]);
    git(&["commit", "-qm", "One."]);
    place.write(&at(hidden[0]), CANARY);
    let commit = match trial.guard {
        Guard::On => tool("commit", json!({"message": "Two."})),
        Guard::Off => shell("git add --ignore-errors -A .; git commit -qm Two."),
    };
    let change = tool("write_file", json!({"path": "seen", "text": EVIL}));
    let [model, script] = place.script(&[json!({"calls": [change]}), json!({"calls": [commit]})]);
    let sandbox = match (trial.sandbox, trial.guard) {
        (SandboxKind::Isolated, Guard::Off) => format!("isolated:.?git=write&{option}"),
        (sandbox, _) => format!("{}?{option}", sandbox.uri()),
    };
    let sandbox = sandbox.trim_end_matches(['?', '&']);
    let run = ["run", "Go.", &model, &script, "--json", "--store", "memory:", "--mode", "full", "--sandbox", sandbox];
    let mut rath = place.command(&run);
    rath.current_dir(place.path(directory)).env("XDG_CONFIG_HOME", place.path("config"));
    let output = rath.output().expect("rath runs");
    let committed = git(&["show", "--format=%s", "--name-status"]);
    assert!(committed.contains("Two.") && committed.contains("M\tseen"), "{committed} {}", results(&output));
    let harm = hidden.iter().any(|name| committed.contains(name));
    Observation::new(harm, format!("{committed} {}", results(&output)))
}
