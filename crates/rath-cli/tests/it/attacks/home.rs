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
    all
}

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
    let place = private_place();
    let [model, script] = place.script(&[json!({"calls": [call]})]);
    let run = ["run", "Go.", &model, &script, "--json", "--store", "memory:", "--mode", "full"];
    let mut command = place.command(&[&run[..], &["--sandbox", trial.sandbox.uri()]].concat());
    let home = if trial.guard == Guard::On { "home" } else { "elsewhere" };
    let output = command.current_dir(place.path("home")).env("HOME", place.path(home)).output().expect("rath runs");
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
    let home = if trial.guard == Guard::On { "home" } else { "elsewhere/none" };
    let output = command.current_dir(place.path(directory)).env("HOME", place.path(home)).output().expect("rath runs");
    Observation::new(place.path(directory).join("new").exists(), printed(&output))
}
