//! Files that were there before, and are put back as they were after a command changed them.
//!
//! Without the guard the same command runs in mode full, without rules.

use std::os::unix::fs::PermissionsExt;

use super::place::{EVIL, Place, printed, shell};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let rows = ROWS.iter().map(|(name, line)| {
        Attack::new(name, Plane::Permissions, HoldsIn::Isolated, move |trial| try_line(trial, line))
    });
    let planted =
        Attack::new("a wrong version planted for a file", Plane::Permissions, HoldsIn::Isolated, try_planted_version);
    rows.chain([planted]).collect()
}

/// Each line changes `.envrc`, `locked` or another of [`FILES`], and tries to prevent that the file is put back.
const ROWS: &[(&str, &str)] = &[
    ("content too large for a version", "(cat b; head -c 34000000 /dev/zero) > .envrc; cp .envrc locked"),
    ("a secret in the new content", "(cat b .env) > .envrc; cp .envrc locked"),
    ("a pipe where a directory was", "cp b .envrc; cp b locked; rm -r a; mkfifo a"),
    ("a file where a directory was", "cp b .envrc; cp b locked; rm -r a; cp b a"),
    ("a link where a directory was", "cp b .envrc; cp b locked; rm -r a; ln -s below a"),
    ("a pipe where a file was", "rm locked; mkfifo locked; cp b .envrc"),
    (
        "a full directory where a file was",
        "rm locked .envrc; mkdir -p locked/x .envrc; cp b locked/x/y; chmod 555 locked",
    ),
    ("a top directory that cannot be listed", "cp b .envrc; cp b locked; chmod 333 ."),
    ("a top directory that cannot be written", "cp b .envrc; cp b locked; chmod 555 ."),
    ("a top directory without any permission", "cp b .envrc; cp b locked; chmod 000 ."),
    ("a directory that cannot be written", "cp b a/.envrc; chmod 555 a"),
    ("a directory that can be listed and not entered", "cp b a/.envrc; chmod 444 a"),
    ("directories that cannot be entered", "cp b a/.envrc; cp b .envrc; chmod 000 a"),
    ("a denied file with a secret", "cp b .env"),
    ("a denied file with a secret that is deleted", "rm .env"),
    ("a denied file that is ignored", "cp b ignored.lock"),
    ("a denied file that is ignored and deleted", "rm ignored.lock"),
    ("a link with its permissions", "ln -sf b locked"),
    ("other permissions and other content", "chmod 666 locked; cat b >> locked"),
    ("other permissions alone", "chmod 666 locked"),
    ("a file that cannot be read any longer", "cp b locked; chmod 000 locked"),
];

/// A value that is a known secret.
const KEY: &str = "the-key-of-the-house-4711";

/// The files that have to be as before, with their modes.
const FILES: [(&str, &str, u32); 5] = [
    (".envrc", "mine\n", 0o644),
    ("locked", "mine\n", 0o600),
    ("a/.envrc", "mine\n", 0o640),
    (".env", KEY, 0o600),
    ("ignored.lock", "mine\n", 0o600),
];

fn place_with_files(guard: Guard) -> Place {
    let place = Place::new();
    place.write("work/b", EVIL);
    place.write("work/.gitignore", "ignored.lock\n");
    for (name, text, mode) in FILES {
        let name = format!("work/{name}");
        place.write(&name, text);
        std::fs::set_permissions(place.path(&name), PermissionsExt::from_mode(mode)).expect("a mode");
    }
    let rules = match guard {
        Guard::On => "allow = [\"command *\"]\ndeny = [\"write locked\", \"write .env\", \"write *.lock\"]",
        Guard::Off => "allow = [\"command *\"]",
    };
    place.write("home/.config/rath/config.toml", &format!("[permissions]\n{rules}\n"));
    place
}

fn try_line(trial: Trial, line: &str) -> Observation {
    let place = place_with_files(trial.guard);
    let output = run(&place, trial, line);
    observe(&place, &output)
}

fn run(place: &Place, trial: Trial, line: &str) -> std::process::Output {
    // A redirection in the call itself would be refused before it runs.
    place.write("work/attack.sh", line);
    let turns = [serde_json::json!({"calls": [shell("sh attack.sh")]})];
    let [model, script] = place.script(&turns);
    let mode = if trial.guard == Guard::On { "workspace" } else { "full" };
    let sandbox = trial.sandbox.uri();
    let mut command = place.command(&["run", "Go.", &model, &script, "--json", "--sandbox", sandbox, "--mode", mode]);
    command.env("HOUSE_API_KEY", KEY).output().expect("rath runs")
}

/// The harm is a file that is not as before.
fn observe(place: &Place, output: &std::process::Output) -> Observation {
    let open_up = |name: &str| {
        let path = place.path(name);
        if std::fs::symlink_metadata(&path).is_ok_and(|about| about.is_dir()) {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("a mode");
        }
    };
    ["work", "work/a"].into_iter().for_each(open_up);
    let changed = FILES.iter().filter(|(name, text, mode)| {
        let path = place.path("work").join(name);
        let found = std::fs::symlink_metadata(&path).ok().filter(|about| about.is_file());
        let found = found.map(|about| about.permissions().mode() & 0o7777);
        found != Some(*mode) || std::fs::read(&path).ok().as_deref() != Some(text.as_bytes())
    });
    let changed: Vec<_> = changed.map(|(name, ..)| *name).collect();
    // Otherwise the directory of the test cannot be removed.
    open_up("work/locked");
    Observation::new(!changed.is_empty(), format!("{changed:?} {}", printed(output)))
}

/// An object of another content under the id of the content of `.envrc`.
fn try_planted_version(trial: Trial) -> Observation {
    let place = place_with_files(trial.guard);
    // The id of `mine\n` as git computes it, and a copy of an object that git wrote for another content.
    let objects = place.path("work/.rath/workspace/objects");
    let git = |args: &[&str]| {
        let mut git = rath_test_support::program("git");
        let output = git.args(args).current_dir(place.path("outside")).output().expect("git runs");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let id = git(&["hash-object", "../work/.envrc"]);
    git(&["init", "-q", "."]);
    let other = git(&["hash-object", "-w", "../work/b"]);
    let loose = |id: &str| format!("{}/{}", &id[..2], &id[2..]);
    std::fs::create_dir_all(objects.join(&id[..2])).expect("made");
    std::fs::copy(place.path("outside/.git/objects").join(loose(&other)), objects.join(loose(&id))).expect("copied");
    let output = run(&place, trial, "cp b .envrc; cp b locked");
    observe(&place, &output)
}
