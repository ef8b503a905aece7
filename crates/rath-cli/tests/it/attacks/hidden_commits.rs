//! Hidden files in a commit: git runs where they are covered, and would record that they are deleted.
//!
//! Without the guard a command commits where nothing is hidden, and takes the changes of these files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::place::{CANARY, EVIL, Place, results, shell, tool};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let row = |row: &'static CommitRow| {
        let plane = if row.holds_in == HoldsIn::Both { Plane::FileTools } else { Plane::Walls };
        Attack::new(row.name, plane, row.holds_in, move |trial| try_commit(trial, row))
    };
    ROWS.iter().map(row).collect()
}

/// A repository with hidden files.
struct CommitRow {
    name: &'static str,
    holds_in: HoldsIn,
    directory: &'static str,
    /// An option of the sandbox.
    option: &'static str,
    rules: &'static str,
    hidden: &'static [&'static [u8]],
    state: State,
}

/// The state of the first hidden file when the commit is made.
#[derive(PartialEq)]
enum State {
    Changed,
    /// Git was told to take it for unchanged.
    AssumedUnchanged,
    /// Its directory cannot be searched.
    Locked,
}

const fn row(name: &'static str, rules: &'static str, hidden: &'static [&'static [u8]]) -> CommitRow {
    let (holds_in, state) = (HoldsIn::Isolated, State::Changed);
    CommitRow { name, holds_in, directory: "work", option: "", rules, hidden, state }
}

const HIDDEN_DIR: &str = "deny = [\"read secrets/\"]\n";

const ROWS: &[CommitRow] = &[
    row("a directory that a rule hides deleted by a commit", HIDDEN_DIR, &[b"secrets/a/b", b"secrets/c"]),
    row(
        "files that a rule hides deleted by a commit",
        "deny = [\"read secrets/\", \"read *.key\"]\n",
        &[b"secrets/a/b", b"c.key"],
    ),
    CommitRow {
        option: "hide=secrets",
        ..row("a directory that a sandbox hides deleted by a commit", "", &[b"secrets/a/b", b"secrets/c"])
    },
    CommitRow {
        option: "hide=secrets",
        ..row("a hidden file whose name is no text deleted by a commit", "", &[b"secrets/\xff"])
    },
    CommitRow {
        option: "hide=notes.txt",
        ..row("a file that a sandbox hides replaced by a commit", "", &[b"notes.txt"])
    },
    row("a file that is named as a directory of rath in a commit", "", &[b"below/.Rath"]),
    CommitRow {
        state: State::AssumedUnchanged,
        ..row("a hidden file that git takes for unchanged in a commit", HIDDEN_DIR, &[b"secrets/a/b"])
    },
    CommitRow {
        state: State::Locked,
        ..row("a directory that cannot be searched deleted by a commit", "", &[b"locked/b"])
    },
    CommitRow {
        holds_in: HoldsIn::Both,
        directory: "home",
        ..row("a private file of a home in a commit", "", &[b".config/nvim/init.lua", b".netrc"])
    },
];

/// Commits all changes in a repository with hidden files, of which the user has changed some.
fn try_commit(trial: Trial, row: &CommitRow) -> Observation {
    let CommitRow { directory, rules, hidden, .. } = row;
    let place = Place::new();
    place.write("config/rath/config.toml", &format!("[permissions]\nallow = [\"tool *\"]\n{rules}"));
    let top = place.path(directory);
    let write = |name: &[u8], text: &str| {
        let path = top.join(OsStr::from_bytes(name));
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    hidden.iter().for_each(|name| write(name, "one"));
    write(b"seen", "one");
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
    write(hidden[0], CANARY);
    let locked = top.join("locked");
    if row.state == State::AssumedUnchanged {
        git(&["update-index", "--assume-unchanged", "secrets/a/b"]);
    }
    if row.state == State::Locked && trial.guard == Guard::On {
        std::fs::set_permissions(&locked, PermissionsExt::from_mode(0o000)).expect("a mode");
    }
    let commit = match trial.guard {
        Guard::On => tool("commit", json!({"message": "Two."})),
        Guard::Off if row.state == State::AssumedUnchanged => shell("git commit -qm Two. -- ."),
        Guard::Off => shell("git add --ignore-errors -A .; git commit -qm Two."),
    };
    let change = tool("write_file", json!({"path": "seen", "text": EVIL}));
    let [model, script] = place.script(&[json!({"calls": [change]}), json!({"calls": [commit]})]);
    let sandbox = match trial.guard {
        Guard::On => format!("{}?{}", trial.sandbox.uri(), row.option),
        Guard::Off => "local:.".to_owned(),
    };
    let sandbox = sandbox.trim_end_matches('?');
    let run = ["run", "Go.", &model, &script, "--json", "--store", "memory:", "--mode", "full", "--sandbox", sandbox];
    let mut rath = place.command(&run);
    rath.current_dir(place.path(directory)).env("XDG_CONFIG_HOME", place.path("config"));
    let output = rath.output().expect("rath runs");
    if row.state == State::Locked {
        std::fs::set_permissions(&locked, PermissionsExt::from_mode(0o755)).expect("a mode");
    }
    let committed = git(&["-c", "core.quotePath=false", "show", "--format=%s", "--name-status", "-z"]);
    assert!(committed.contains("Two.") && committed.contains("M\0seen"), "{committed} {}", results(&output));
    let harm = hidden.iter().any(|name| committed.contains(&*String::from_utf8_lossy(name)));
    Observation::new(harm, format!("{committed} {}", results(&output)))
}
