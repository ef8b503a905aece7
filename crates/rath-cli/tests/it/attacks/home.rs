//! A home directory that is the workspace: its private files stay private.
//!
//! Without the guard the same directory is the workspace of a user whose home is elsewhere.

use serde_json::{Value, json};

use super::place::{CANARY, EVIL, Place, printed, results, shell, tool};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let mut all: Vec<_> = ROWS
        .iter()
        .map(|(name, holds_in, call)| {
            let plane = if *holds_in == HoldsIn::Both { Plane::FileTools } else { Plane::Walls };
            Attack::new(name, plane, *holds_in, move |trial| try_call(trial, &call()))
        })
        .collect();
    let start = |name, directory: &'static str| {
        Attack::new(name, Plane::Permissions, HoldsIn::None, move |trial| try_start(trial, directory))
    };
    all.push(start("a run started in the home directory by mistake", "home"));
    all.push(start("a run started above the home directory by mistake", ""));
    all.extend(RENAMES.iter().map(|(name, directory, lines)| {
        Attack::new(name, Plane::Walls, HoldsIn::Isolated, move |trial| {
            let calls: Vec<_> = lines.iter().map(|line| shell(line)).collect();
            try_calls(trial, directory, &calls)
        })
    }));
    all.push(Attack::new("the key of rath in a named directory, renamed", Plane::Walls, HoldsIn::Isolated, try_named));
    all.push(Attack::new("a home that commands see elsewhere", Plane::Walls, HoldsIn::Isolated, |trial| {
        try_in(trial, "isolated:.?at=/tmp/work", &[shell("cat .ssh/id")])
    }));
    all.push(Attack::new("a configuration planted in a home", Plane::Walls, HoldsIn::Isolated, try_planted));
    all.push(Attack::new(
        "a configuration planted in a home that is writable",
        Plane::Walls,
        HoldsIn::Isolated,
        |trial| try_planted_outside(trial, "~"),
    ));
    all.push(Attack::new("a configuration planted from above the home", Plane::Walls, HoldsIn::Isolated, |trial| {
        try_planted_outside(trial, "~/..")
    }));
    all.push(Attack::new("a configuration planted in a part of a home", Plane::Walls, HoldsIn::Isolated, |trial| {
        try_planted_outside(trial, "~/.local")
    }));
    all.push(Attack::new("a link in a home replaced by a directory", Plane::Walls, HoldsIn::Isolated, try_linked));
    all.push(Attack::new(
        "a file in the place of a private directory, replaced",
        Plane::Walls,
        HoldsIn::Isolated,
        try_replaced_file,
    ));
    all.push(Attack::new(
        "a private directory in one that cannot be searched",
        Plane::Walls,
        HoldsIn::Isolated,
        try_unsearchable,
    ));
    all.push(Attack::new("private files in the versions of a home", Plane::Walls, HoldsIn::None, try_checkout));
    all.push(Attack::new("private files in a fork of a home", Plane::FileTools, HoldsIn::Both, try_fork));
    all.push(Attack::new(
        "private files planted in a fork of a home",
        Plane::Walls,
        HoldsIn::Both,
        try_planted_in_fork,
    ));
    all
}

/// Commands, one after the other: a directory above a private file is renamed, and then the file is read under its new name.
const RENAMES: &[(&str, &str, &[&str])] = &[
    ("the key of rath renamed with its directory", "home", &["mv .local l", "cat l/share/rath/user.key"]),
    ("the key of rath renamed with its parent", "home", &["mv .local/share .local/s", "cat .local/s/rath/user.key"]),
    ("a directory of keys renamed", "home", &["mv .ssh s", "cat s/id"]),
    ("a home renamed from above", "", &["mv home h", "cat h/.ssh/id h/.netrc"]),
];

type HomeRow = (&'static str, HoldsIn, fn() -> Value);

fn read(path: &str) -> Value {
    tool("read_file", json!({"path": path}))
}

const ROWS: &[HomeRow] = &[
    ("a key in the home", HoldsIn::Both, || read(".ssh/id")),
    ("a key in the home with dots", HoldsIn::Both, || read("project/.././.ssh/./id")),
    ("a key in the home by a link", HoldsIn::Both, || read("link")),
    ("a token in the home", HoldsIn::Both, || read(".config/gh/hosts.yml")),
    ("passwords in the home", HoldsIn::Both, || read(".netrc")),
    ("the key of rath in the home", HoldsIn::Both, || read(".local/share/rath/user.key")),
    ("secrets in the home by a search", HoldsIn::Both, || tool("search_files", json!({"pattern": "C.NARY"}))),
    ("a key for logging in written by a tool", HoldsIn::Both, || {
        tool("write_file", json!({"path": ".ssh/authorized_keys", "text": EVIL}))
    }),
    ("a key in the home by a command", HoldsIn::Isolated, || shell("cat .ssh/id")),
    ("the whole home in an archive", HoldsIn::Isolated, || shell("tar -cf - . | tr -d '\\0'")),
    ("a key for logging in written by a command", HoldsIn::Isolated, || {
        shell("mkdir -p .ssh; echo EVIL-4711 > .ssh/authorized_keys")
    }),
];

/// Makes a directory with private files.
fn private_place() -> Place {
    let place = Place::new();
    for name in [".ssh/id", ".config/gh/hosts.yml", ".netrc", ".local/share/rath/user.key"] {
        place.write(&format!("home/{name}"), CANARY);
    }
    place.write("home/project/x", "harmless");
    std::os::unix::fs::symlink(".ssh/id", place.path("home/link")).expect("a link");
    place.write("elsewhere/x", "");
    place
}

fn try_call(trial: Trial, call: &Value) -> Observation {
    try_calls(trial, "home", std::slice::from_ref(call))
}

fn try_in(trial: Trial, sandbox: &str, calls: &[Value]) -> Observation {
    let place = private_place();
    let turns: Vec<_> = calls.iter().map(|call| json!({"calls": [call]})).collect();
    let [model, script] = place.script(&turns);
    let run = ["run", "Go.", &model, &script, "--json", "--store", "memory:", "--mode", "full", "--sandbox", sandbox];
    let output = in_home(&place, trial, &run).output().expect("rath runs");
    let text = results(&output);
    assert!(output.status.success(), "{text}");
    Observation::new(text.contains(CANARY), text)
}

/// Writes private files that a home directory does not have yet.
fn try_planted(trial: Trial) -> Observation {
    let place = Place::new();
    place.write("elsewhere/x", "");
    let line = "mkdir -p .ssh .config/rath .local/share/rath; for f in .ssh/authorized_keys .config/rath/config.toml \
                .local/share/rath/user.key .netrc; do cp /etc/hostname $f; done; true";
    let [model, script] = place.script(&[json!({"calls": [shell(line)]})]);
    let run = ["run", "Go.", &model, &script, "--store", "memory:", "--mode", "full", "--sandbox", trial.sandbox.uri()];
    let output = in_home(&place, trial, &run).output().expect("rath runs");
    let planted = [".ssh/authorized_keys", ".config/rath/config.toml", ".netrc"];
    let is_planted = planted.iter().any(|name| place.path("home").join(name).exists());
    // The placeholders are gone.
    assert!(trial.guard == Guard::Off || !place.path("home/.ssh").exists() && !place.path("home/.netrc").exists());
    Observation::new(is_planted, printed(&output))
}

/// Writes private files that a home directory does not have yet, from a workspace elsewhere: `writable` is a directory outside that
/// commands can write.
fn try_planted_outside(trial: Trial, writable: &str) -> Observation {
    let place = Place::new();
    place.write("elsewhere/x", "");
    place.write("home/.local/share/x", "");
    let home = place.text("home");
    let line = format!(
        "cd '{home}'; mkdir -p .ssh .config/rath .local/share/rath; for f in .ssh/authorized_keys \
         .config/rath/config.toml .local/share/rath/user.key .netrc; do cp /etc/hostname $f; done; true"
    );
    let [model, script] = place.script(&[json!({"calls": [shell(&line)]})]);
    let sandbox = format!("isolated:.?write={}", writable.replace('~', &home));
    let run = ["run", "Go.", &model, &script, "--store", "memory:", "--mode", "full", "--sandbox", &sandbox];
    let mut command = place.command(&run);
    if trial.guard == Guard::Off {
        command.env("HOME", place.path("elsewhere"));
    }
    let output = command.output().expect("rath runs");
    let planted = [".ssh/authorized_keys", ".config/rath/config.toml", ".local/share/rath/user.key", ".netrc"];
    let is_planted = planted.iter().any(|name| place.path("home").join(name).exists());
    // The placeholders are gone.
    assert!(trial.guard == Guard::Off || !place.path("home/.ssh").exists() && !place.path("home/.netrc").exists());
    Observation::new(is_planted, printed(&output))
}

/// Replaces a file that stands where a private directory would be.
fn try_replaced_file(trial: Trial) -> Observation {
    let place = Place::new();
    place.write("elsewhere/x", "");
    place.write("home/.local", "");
    let line =
        "rm -f .local; mv .local l; mkdir -p .local/share/keyrings; cp /etc/hostname .local/share/keyrings/x; true";
    let [model, script] = place.script(&[json!({"calls": [shell(line)]})]);
    let run = ["run", "Go.", &model, &script, "--store", "memory:", "--mode", "full", "--sandbox", trial.sandbox.uri()];
    let output = in_home(&place, trial, &run).output().expect("rath runs");
    assert!(output.status.success(), "{}", printed(&output));
    Observation::new(place.path("home/.local/share/keyrings/x").exists(), printed(&output))
}

/// Reads a private file whose directory cannot be searched until a command changes that.
fn try_unsearchable(trial: Trial) -> Observation {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.write("elsewhere/x", "");
    place.write("home/.local/share/keyrings/x", CANARY);
    let local = place.path("home/.local");
    std::fs::set_permissions(&local, PermissionsExt::from_mode(0o000)).expect("a mode");
    let home = place.text("home");
    let line = format!("chmod 755 '{home}/.local'; cat '{home}/.local/share/keyrings/x'");
    let [model, script] = place.script(&[json!({"calls": [shell(&line)]})]);
    let sandbox = format!("isolated:.?write={home}");
    let run = ["run", "Go.", &model, &script, "--json", "--store", "memory:", "--mode", "full", "--sandbox", &sandbox];
    let mut command = place.command(&run);
    if trial.guard == Guard::Off {
        command.env("HOME", place.path("elsewhere"));
        std::fs::set_permissions(&local, PermissionsExt::from_mode(0o755)).expect("a mode");
    }
    let output = command.output().expect("rath runs");
    std::fs::set_permissions(&local, PermissionsExt::from_mode(0o755)).expect("a mode");
    let text = results(&output);
    assert!(output.status.success(), "{text}");
    Observation::new(text.contains(CANARY), text)
}

/// Replaces a link that leads out of the workspace.
fn try_linked(trial: Trial) -> Observation {
    let place = Place::new();
    place.write("elsewhere/x", "");
    std::os::unix::fs::symlink(place.path("outside"), place.path("home/.ssh")).expect("a link");
    let line = "rm .ssh; mkdir .ssh; cp /etc/hostname .ssh/authorized_keys; true";
    let [model, script] = place.script(&[json!({"calls": [shell(line)]})]);
    let run = ["run", "Go.", &model, &script, "--store", "memory:", "--mode", "full", "--sandbox", trial.sandbox.uri()];
    let output = in_home(&place, trial, &run).output().expect("rath runs");
    Observation::new(place.path("home/.ssh/authorized_keys").exists(), printed(&output))
}

fn try_calls(trial: Trial, directory: &str, calls: &[Value]) -> Observation {
    let place = private_place();
    let turns: Vec<_> = calls.iter().map(|call| json!({"calls": [call]})).collect();
    let [model, script] = place.script(&turns);
    let run = ["run", "Go.", &model, &script, "--json", "--store", "memory:", "--mode", "full"];
    let mut command = place.command(&[&run[..], &["--sandbox", trial.sandbox.uri()]].concat());
    let home = if trial.guard == Guard::On { "home" } else { "elsewhere" };
    let output = command.current_dir(place.path(directory)).env("HOME", place.path(home)).output().expect("rath runs");
    let text = results(&output);
    assert!(output.status.success(), "{text}");
    let is_written = place.path("home/.ssh/authorized_keys").exists();
    Observation::new(text.contains(CANARY) || is_written, text)
}

fn try_start(trial: Trial, directory: &str) -> Observation {
    let place = private_place();
    let call = tool("write_file", json!({"path": "new", "text": EVIL}));
    let [model, script] = place.script(&[json!({"calls": [call]})]);
    let mut command = place.command(&["run", "Go.", &model, &script, "--mode", "full"]);
    let home = if trial.guard == Guard::On { "home" } else { "/none" };
    let output = command.current_dir(place.path(directory)).env("HOME", place.path(home)).output().expect("rath runs");
    Observation::new(place.path(directory).join("new").exists(), printed(&output))
}

/// Reads a key that `XDG_DATA_HOME` places in the workspace. Without the guard it is the key of another user.
fn try_named(trial: Trial) -> Observation {
    let place = private_place();
    place.write("work/var/data/rath/user.key", CANARY);
    let calls =
        ["mv var v", "cat v/data/rath/user.key var/data/rath/user.key"].map(|line| json!({"calls": [shell(line)]}));
    let [model, script] = place.script(&calls);
    let run = ["run", "Go.", &model, &script, "--json", "--store", "memory:", "--mode", "full"];
    let mut command = place.command(&[&run[..], &["--sandbox", trial.sandbox.uri()]].concat());
    if trial.guard == Guard::On {
        command.env("XDG_DATA_HOME", place.path("work/var/data"));
    }
    let text = results(&command.output().expect("rath runs"));
    Observation::new(text.contains(CANARY), text)
}

/// Lets an agent write a file in a home directory, and returns the place.
fn worked_in_home(trial: Trial) -> Place {
    let place = private_place();
    let write = tool("write_file", json!({"path": "new", "text": "new"}));
    let [model, script] = place.script(&[json!({"calls": [write]})]);
    let run = ["run", "Go.", &model, &script, "--mode", "full", "--sandbox", trial.sandbox.uri()];
    let output = in_home(&place, trial, &run).output().expect("rath runs");
    assert!(output.status.success(), "{}", printed(&output));
    place
}

fn in_home(place: &Place, trial: Trial, args: &[&str]) -> std::process::Command {
    let mut command = place.command(args);
    let home = if trial.guard == Guard::On { "home" } else { "elsewhere" };
    command.current_dir(place.path("home")).env("HOME", place.path(home));
    command
}

fn only_session(place: &Place, trial: Trial) -> String {
    let listed = in_home(place, trial, &["ls", "--json"]).output().expect("rath runs");
    let line: Value = serde_json::from_slice(&listed.stdout).expect("one session");
    line["session"].as_str().expect("an id").to_owned()
}

fn try_checkout(trial: Trial) -> Observation {
    let place = worked_in_home(trial);
    let session = only_session(&place, trial);
    let output = in_home(&place, trial, &["checkout", &session, "../outside/copy"]).output().expect("rath runs");
    assert!(place.path("outside/copy/new").exists(), "{}", printed(&output));
    let files = place.survey("outside/copy");
    Observation::new(files.values().any(|file| file.contains(CANARY)), format!("{files:?}"))
}

fn try_fork(trial: Trial) -> Observation {
    let place = worked_in_home(trial);
    let session = only_session(&place, trial);
    let fork = in_home(&place, trial, &["fork", &session]).output().expect("rath runs");
    let fork = String::from_utf8_lossy(&fork.stdout).trim().to_owned();
    let calls = json!([read(".ssh/id"), read(".config/gh/hosts.yml"), read(".local/share/rath/user.key")]);
    let [model, script] = place.script(&[json!({"calls": calls})]);
    let resume = ["resume", &fork, "Go on.", &model, &script, "--json", "--mode", "full", "--anyway"];
    let resume = [&resume[..], &["--sandbox", trial.sandbox.uri()]].concat();
    let output = in_home(&place, trial, &resume).output().expect("rath runs");
    let text = results(&output);
    assert!(output.status.success(), "{text}");
    Observation::new(text.contains(CANARY), text)
}

/// Creates private files in a fork, merges it into the home directory, restores it there, and checks it out.
fn try_planted_in_fork(trial: Trial) -> Observation {
    let place = worked_in_home(trial);
    let session = only_session(&place, trial);
    let id = |args: &[&str]| {
        let output = in_home(&place, trial, args).output().expect("rath runs");
        assert!(output.status.success(), "{args:?}: {}", printed(&output));
        String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned()
    };
    let fork = id(&["fork", &session]);
    let line = "mkdir -p .ssh .config/rath project; for f in .ssh/authorized_keys .config/rath/config.toml .pgpass \
                project/y; do echo EVIL-4711 > $f; done";
    let [model, script] = place.script(&[json!({"calls": [shell(line)]})]);
    let sandbox = trial.sandbox.uri();
    id(&["resume", &fork, "Go on.", &model, &script, "--mode", "full", "--anyway", "--sandbox", sandbox]);
    let merged = id(&["merge", &session, &fork]);
    id(&["restore", &merged]);
    id(&["checkout", &fork, "../outside/copy"]);
    // The rest of what the fork changed arrives.
    assert!(place.read("home/project/y").contains(EVIL));
    let planted = [".ssh/authorized_keys", ".config/rath/config.toml", ".pgpass"];
    let is_planted = |above: &&str| planted.iter().any(|name| place.path(above).join(name).exists());
    Observation::new(["home", "outside/copy"].iter().any(is_planted), merged)
}
