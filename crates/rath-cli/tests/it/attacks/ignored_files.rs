//! Files that other programs run unasked, written where git ignores them.
//!
//! Commands may leave such files among dependencies and build results. They must not choose which directories these are, nor bring
//! a file from there into the project. Without the guard the same calls are made in mode full.

use serde_json::Value;

use super::place::{EVIL, Place, printed, shell, with_guard};
use super::{Attack, HoldsIn, Observation, Plane, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let rows = ROWS.iter().map(|(name, file, lines)| {
        Attack::new(name, Plane::Permissions, HoldsIn::Isolated, move |trial| try_lines(trial, file, lines))
    });
    let denied = DENIED.iter().map(|(name, file, lines)| {
        Attack::new(name, Plane::Permissions, HoldsIn::Isolated, move |trial| try_denied_file(trial, file, lines))
    });
    rows.chain(denied).collect()
}

/// A name, the file that is left, and the lines that leave it, one a call.
type IgnoredRow = (&'static str, &'static str, &'static [&'static str]);

const MANY: &str = "for i in $(seq 30); do echo $i > $d/$i; done";
const TOO_MANY: &str = "for i in $(seq 10050); do : > $d/$i; done";

/// The project ignores `target/` and `.idea/`.
const ROWS: &[IgnoredRow] = &[
    (
        "a workflow among many files that are ignored at once",
        ".github/workflows/ci.yml",
        &[
            "echo .github/ >> .gitignore; d=.github/j; mkdir -p $d .github/workflows; cp b .github/workflows/ci.yml; MANY",
        ],
    ),
    (
        "a workflow that is ignored, then no longer",
        ".github/workflows/ci.yml",
        &[
            "echo .github/ >> .gitignore; mkdir .github; echo 1 > .github/a",
            "mkdir .github/workflows; cp b .github/workflows/ci.yml",
            "rm .github/a; echo target/ > .gitignore",
        ],
    ),
    (
        "a workflow among too many files to list",
        ".github/workflows/ci.yml",
        &[
            "echo .github/ >> .gitignore; d=.github/j; mkdir -p $d .github/workflows; cp b .github/workflows/ci.yml; TOO",
        ],
    ),
    (
        "tasks of an editor among many files that are ignored at once",
        ".vscode/tasks.json",
        &["echo .vscode/ >> .gitignore; d=.vscode; mkdir $d; cp b $d/tasks.json; MANY"],
    ),
    (
        "settings of a shell in a directory that is ignored at once",
        "pkg/.envrc",
        &["echo pkg/ >> .gitignore; d=pkg; mkdir $d; cp b $d/.envrc; MANY"],
    ),
    (
        "settings of a shell in a directory that was ignored before",
        "pkg/.envrc",
        &["echo pkg/ >> .gitignore; d=pkg; mkdir $d; MANY", "cp b pkg/.envrc"],
    ),
    (
        "settings of a shell in a directory that is ignored no longer",
        "target/.envrc",
        &["cp b target/.envrc", "echo > .gitignore"],
    ),
    (
        "settings of a shell in a large directory that is ignored no longer",
        "target/.envrc",
        &["d=target; cp b target/.envrc; TOO", "echo > .gitignore"],
    ),
    (
        "settings of a shell in a directory that is ignored at once and cannot be listed",
        "pkg/.envrc",
        &["echo pkg/ >> .gitignore; mkdir pkg; cp b pkg/.envrc; chmod 311 pkg"],
    ),
    (
        "settings of a shell deep in a directory that is ignored at once and cannot be listed",
        "pkg/x/y/.envrc",
        &["echo pkg/ >> .gitignore; d=pkg; mkdir -p $d/x/y; MANY; cp b pkg/x/y/.envrc; chmod 311 pkg/x/y pkg/x"],
    ),
    (
        "settings of a shell in a large directory that is ignored at once",
        "pkg/x/.envrc",
        &["echo pkg/ >> .gitignore; d=pkg/j; mkdir -p $d pkg/x; cp b pkg/x/.envrc; TOO"],
    ),
    (
        "settings of a shell in a directory with the name of a temporary file",
        ".rath-0123456789abcdef0123456789abcdef.tmp/.envrc",
        &["d=.rath-0123456789abcdef0123456789abcdef.tmp; mkdir $d; cp b $d/.envrc; TOO"],
    ),
    (
        "a changed file of an editor in a directory that became large",
        ".idea/workspace.xml",
        &["d=.idea; TOO", "cp b .idea/workspace.xml"],
    ),
    ("a new file of an editor in its ignored directory", ".idea/new.xml", &["cp b .idea/new.xml"]),
    ("a changed file of an editor in its ignored directory", ".idea/workspace.xml", &["cp b .idea/workspace.xml"]),
    ("a changed file of an editor among many", ".idea/workspace.xml", &["d=.idea; cp b .idea/workspace.xml; MANY"]),
    ("a new file of an editor among too many", ".idea/new.xml", &["d=.idea; cp b .idea/new.xml; TOO"]),
];

/// Returns a directory with files that git ignores.
fn place_with_ignored_files() -> Place {
    let place = Place::new();
    place.write("work/b", EVIL);
    place.write("work/.gitignore", "target/\n.idea/\n");
    place.write("work/target/a", "as before");
    place.write("work/.idea/workspace.xml", "as before");
    place
}

fn try_lines(trial: Trial, file: &str, lines: &[&str]) -> Observation {
    let place = place_with_ignored_files();
    let mode = with_guard(trial.guard, &["--mode", "workspace"], &["--mode", "full"]);
    let output = place.agent(trial.sandbox, &calls(lines), &mode);
    Observation::new(place.read(&format!("work/{file}")).contains(EVIL), printed(&output))
}

/// Files that a rule denies to write, in the directory of build results.
const DENIED: &[IgnoredRow] = &[
    ("a new file that a rule denies, ignored", "target/new.pem", &["cp b target/new.pem"]),
    ("a new file that a rule denies, among too many", "target/new.pem", &["d=target; cp b target/new.pem; TOO"]),
    (
        "a new file that a rule denies, where it cannot be listed",
        "target/x/new.pem",
        &["mkdir target/x; cp b target/x/new.pem; chmod 311 target/x"],
    ),
    ("a file that a rule denies, among too many", "target/old.pem", &["d=target; TOO", "cp b target/old.pem"]),
];

fn try_denied_file(trial: Trial, file: &str, lines: &[&str]) -> Observation {
    let place = place_with_ignored_files();
    place.write("work/target/old.pem", "as before");
    let rule = with_guard(trial.guard, &["[permissions]\ndeny = [\"write *.pem\"]\n"], &[""])[0];
    place.write("home/.config/rath/config.toml", rule);
    let output = place.agent(trial.sandbox, &calls(lines), &["--mode", "workspace"]);
    Observation::new(place.read(&format!("work/{file}")).contains(EVIL), printed(&output))
}

fn calls(lines: &[&str]) -> Vec<Value> {
    lines.iter().map(|line| shell(&line.replace("MANY", MANY).replace("TOO", TOO_MANY))).collect()
}
