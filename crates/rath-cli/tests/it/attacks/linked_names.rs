//! Files that are reached by another name: rules and the list of guarded files name a link in the directory, or a path through one.
//!
//! Without the guard the same call is made without the rule, or in mode full.

use serde_json::{Value, json};

use super::place::{CANARY, EVIL, Place, printed, results, shell, tool, with_guard};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let reads = READS.iter().map(|(name, holds_in, rule, call)| {
        Attack::new(name, Plane::Permissions, *holds_in, move |trial| try_read(trial, rule, &call()))
    });
    let writes = WRITES.iter().map(|(name, rule, call)| {
        Attack::new(name, Plane::Permissions, HoldsIn::Both, move |trial| try_write(trial, rule, &call()))
    });
    let guarded = GUARDED.iter().map(|(name, holds_in, call)| {
        Attack::new(name, Plane::Permissions, *holds_in, move |trial| try_guarded(trial, &call()))
    });
    reads.chain(writes).chain(guarded).collect()
}

/// Returns a directory with links: to a file, to a file that is missing, to a directory, and from one link to another.
fn place() -> Place {
    let place = Place::new();
    place.write("work/conf/real", CANARY);
    place.write("work/conf/env.sh", "mine\n");
    place.write("work/conf/tasks", "mine\n");
    place.write("work/cfg/settings.json", "mine\n");
    place.write("work/gh/workflows/ci.yml", "mine\n");
    place.write("work/deep/app/key", CANARY);
    for (link, target) in [
        (".env", "conf/real"),
        (".envrc", "conf/env.sh"),
        (".npmrc", "{in}/conf/npm"),
        (".vscode", "cfg"),
        ("cfg/tasks.json", "../conf/tasks"),
        (".github", "gh"),
        ("vault", "deep/app"),
        ("link", ".env"),
    ] {
        place.link(link, target);
    }
    place
}

fn read(path: &str) -> Value {
    tool("read_file", json!({"path": path}))
}

fn write(path: &str) -> Value {
    tool("write_file", json!({"path": path, "text": EVIL}))
}

type ReadRow = (&'static str, HoldsIn, &'static str, fn() -> Value);

/// Ways to read a file that a rule names by a link.
const READS: &[ReadRow] = &[
    ("a denied link", HoldsIn::Both, "read .env", || read(".env")),
    ("a denied link by another link", HoldsIn::Both, "read .env", || read("link")),
    ("the target of a denied link", HoldsIn::Both, "read .env", || read("conf/real")),
    ("the target of a denied link by a search", HoldsIn::Both, "read .env", || {
        tool("search_files", json!({"pattern": "CANARY", "path": "conf"}))
    }),
    ("the target of a denied link by a command", HoldsIn::Isolated, "read .env", || shell("cat .env conf/real")),
    ("a file denied through a link to a directory", HoldsIn::Both, "read /vault/key", || read("vault/key")),
    ("the target of a file denied through a link", HoldsIn::Both, "read /vault/key", || read("deep/app/key")),
    ("a file denied through a link, by a command", HoldsIn::Isolated, "read /vault/key", || shell("cat deep/app/k*")),
    ("a file in the target of a denied link", HoldsIn::Both, "read vault/", || read("deep/app/key")),
    ("a file in the target of a denied link, by a command", HoldsIn::Isolated, "read vault/", || {
        shell("cat deep/*/key")
    }),
];

fn try_read(trial: Trial, rule: &str, call: &Value) -> Observation {
    let place = place();
    if trial.guard == Guard::On {
        place.write("home/.config/rath/config.toml", &format!("[permissions]\ndeny = [\"{rule}\"]\n"));
    }
    let output = place.agent(trial.sandbox, std::slice::from_ref(call), &["--mode", "full"]);
    let text = results(&output);
    assert!(output.status.success(), "all calls were decided: {text}");
    Observation::new(text.contains(CANARY), text)
}

type WriteRow = (&'static str, &'static str, fn() -> Value);

/// Ways to change a file that a rule names by a link.
const WRITES: &[WriteRow] = &[
    ("a protected link written", "write .env", || write(".env")),
    ("a protected link edited", "write .env", || {
        tool("edit_file", json!({"path": ".env", "old": CANARY, "new": EVIL}))
    }),
    ("the target of a protected link written", "write .env", || write("conf/real")),
    ("a protected link written by a redirection", "write .env", || shell("echo EVIL-4711 > .env")),
    ("a protected link written by a command", "write .env", || shell("echo EVIL-4711 | tee .env")),
    ("the target of a protected link written by a command", "write .env", || shell("cd conf; echo EVIL-4711 > real")),
    ("the target of a protected link that is removed", "write .env", || shell("rm .env; echo EVIL-4711 > conf/real")),
    ("a file protected through a link to a directory", "write /vault/key", || write("vault/key")),
    ("the target of a file protected through a link", "write /vault/key", || shell("echo EVIL-4711 > deep/app/key")),
    ("a new file in the target of a protected link", "write vault", || shell("echo EVIL-4711 > deep/app/new")),
];

fn try_write(trial: Trial, rule: &str, call: &Value) -> Observation {
    let place = place();
    if trial.guard == Guard::On {
        place.write("home/.config/rath/config.toml", &format!("[permissions]\ndeny = [\"{rule}\"]\n"));
    }
    let output = place.agent(trial.sandbox, std::slice::from_ref(call), &["--mode", "full"]);
    Observation::new(is_changed(&place), printed(&output))
}

type GuardedRow = (&'static str, HoldsIn, fn() -> Value);

/// Ways to change a file that other programs run unasked under the name of a link.
const GUARDED: &[GuardedRow] = &[
    ("a guarded link written by a tool", HoldsIn::Both, || write(".envrc")),
    ("the target of a guarded link written by a tool", HoldsIn::Both, || write("conf/env.sh")),
    ("a guarded link to a missing file written by a tool", HoldsIn::Both, || write(".npmrc")),
    ("a file in a guarded link to a directory", HoldsIn::Both, || write(".vscode/settings.json")),
    ("a link in a guarded link to a directory", HoldsIn::Both, || write(".vscode/tasks.json")),
    ("a file below a link that is guarded with it", HoldsIn::Both, || write(".github/workflows/ci.yml")),
    ("a guarded link written by a command", HoldsIn::Isolated, || shell("echo EVIL-4711 | tee .envrc")),
    ("the target of a guarded link", HoldsIn::Isolated, || shell("rm .envrc; echo EVIL-4711 > conf/env.sh")),
    ("the missing target of a guarded link", HoldsIn::Isolated, || shell("echo EVIL-4711 > conf/npm")),
    ("a new file in a guarded link to a directory", HoldsIn::Isolated, || shell("echo EVIL-4711 > cfg/launch.json")),
    ("the target of a link in a guarded link", HoldsIn::Isolated, || shell("echo EVIL-4711 > conf/tasks")),
    ("a workflow in a directory that a link names", HoldsIn::Isolated, || {
        shell("echo EVIL-4711 > gh/workflows/new.yml")
    }),
    ("the target of a guarded link that leads elsewhere now", HoldsIn::Isolated, || {
        shell("ln -sfn conf .vscode; echo EVIL-4711 > cfg/a")
    }),
];

fn try_guarded(trial: Trial, call: &Value) -> Observation {
    let place = place();
    let mode = with_guard(trial.guard, &["--mode", "workspace"], &["--mode", "full"]);
    let output = place.agent(trial.sandbox, std::slice::from_ref(call), &mode);
    Observation::new(is_changed(&place), printed(&output))
}

/// Returns true if a file in the project, outside of `.rath`, has the content that an attack writes.
fn is_changed(place: &Place) -> bool {
    let top = place.path("work");
    let is_own = |path: &std::path::Path| path.starts_with(top.join(".rath"));
    place.survey("work").iter().any(|(path, content)| !is_own(path) && content.contains(EVIL))
}
