//! Directories that isolated commands can write besides the workspace, and a workspace that they see at another path.

use serde_json::json;

use super::place::{CANARY, EVIL, Place, printed, results, shell};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let wall = |name, run: fn(Trial) -> Observation| Attack::new(name, Plane::Walls, HoldsIn::Isolated, run);
    let planted = PLANTED
        .iter()
        .map(|row| Attack::new(row.name, Plane::Walls, HoldsIn::Isolated, move |trial| try_planted(trial, row)));
    let others = [
        wall("a hidden file at the own path of a workspace that is elsewhere", try_own_path),
        wall("a private directory that is removed while an agent works", try_removed),
        wall("a home that is a link in the workspace, replaced", try_linked_home),
        wall("the key of rath planted behind a link", try_linked_data),
    ];
    planted.chain(others).collect()
}

/// A file that is planted by commands, one after the other. `{top}` stands for the directory of everything.
struct PlantedRow {
    name: &'static str,
    /// Files that are there before.
    files: &'static [(&'static str, &'static str)],
    /// The workspace.
    directory: &'static str,
    /// The directories outside that commands can write.
    writable: &'static [&'static str],
    lines: &'static [&'static str],
    /// The places where the file must not be.
    planted: &'static [&'static str],
}

const HOOKS: &str = "[core]\nhooksPath = hooks\n";
const GLOBAL_HOOKS: &str = "[core]\nhooksPath = ~/hooks\n";
const TEMPLATE: &str = "[init]\ntemplateDir = ~/template\n";

const BARE: &[(&str, &str)] = &[
    ("outside/HEAD", "ref: refs/heads/main\n"),
    ("outside/config", "[core]\nbare = true\n"),
    ("outside/hooks/x", ""),
    ("outside/info/exclude", ""),
    ("outside/objects/x", ""),
    ("outside/refs/x", ""),
];

const PLANTED: &[PlantedRow] = &[
    PlantedRow {
        name: "a hook in a repository that is renamed outside",
        files: &[("outside/repo/.git/config", ""), ("outside/repo/.git/hooks/x", "")],
        directory: "work",
        writable: &["outside"],
        lines: &[
            "cd '{top}/outside'; mv repo r2; mkdir -p repo/.git",
            "cd '{top}/outside'; echo EVIL-4711 > r2/.git/hooks/pre-commit",
            "cd '{top}/outside'; mv repo r3; mv r2 repo",
        ],
        planted: &["outside/repo/.git/hooks/pre-commit", "outside/r2/.git/hooks/pre-commit"],
    },
    PlantedRow {
        name: "a hook that a repository beside the workspace names",
        files: &[("outside/repo/.git/config", HOOKS), ("outside/repo/hooks/x", ""), ("outside/work/x", "")],
        directory: "outside/work",
        writable: &["outside"],
        lines: &["echo EVIL-4711 > '{top}/outside/repo/hooks/pre-commit'"],
        planted: &["outside/repo/hooks/pre-commit"],
    },
    PlantedRow {
        name: "a hook of all repositories, outside",
        files: &[("home/.gitconfig", GLOBAL_HOOKS), ("home/hooks/x", "")],
        directory: "work",
        writable: &["home"],
        lines: &["echo EVIL-4711 > '{top}/home/hooks/pre-commit'"],
        planted: &["home/hooks/pre-commit"],
    },
    PlantedRow {
        name: "a hook of all repositories in a workspace without one",
        files: &[("home/.gitconfig", GLOBAL_HOOKS), ("home/hooks/x", "")],
        directory: "home",
        writable: &["outside"],
        lines: &["echo EVIL-4711 > hooks/pre-commit"],
        planted: &["home/hooks/pre-commit"],
    },
    PlantedRow {
        name: "a hook of all new repositories",
        files: &[("home/.gitconfig", TEMPLATE), ("home/template/hooks/x", "")],
        directory: "home",
        writable: &["outside"],
        lines: &["echo EVIL-4711 > template/hooks/pre-commit"],
        planted: &["home/template/hooks/pre-commit"],
    },
    PlantedRow {
        name: "a hook in the workspace that the repository above it names",
        files: &[("outside/.git/config", "[core]\nhooksPath = web/hooks\n"), ("outside/web/hooks/x", "")],
        directory: "outside/web",
        writable: &[],
        lines: &["echo EVIL-4711 > hooks/pre-commit"],
        planted: &["outside/web/hooks/pre-commit"],
    },
    PlantedRow {
        name: "a hook outside that the workspace names",
        files: &[("work/.git/config", "[core]\nhooksPath = ../outside/hooks\n"), ("outside/hooks/x", "")],
        directory: "work",
        writable: &["outside"],
        lines: &["echo EVIL-4711 > '{top}/outside/hooks/pre-commit'"],
        planted: &["outside/hooks/pre-commit"],
    },
    PlantedRow {
        name: "a hook in the workspace that a repository outside names",
        files: &[("outside/.git/config", "[core]\nhooksPath = ../work/hooks\n"), ("work/hooks/x", "")],
        directory: "work",
        writable: &["outside"],
        lines: &["echo EVIL-4711 > hooks/pre-commit"],
        planted: &["work/hooks/pre-commit"],
    },
    PlantedRow {
        name: "a hook that a repository without a working tree names",
        files: &[
            ("outside/r.git/config", "[core]\nbare = true\nhooksPath = ../hooks\n"),
            ("outside/r.git/HEAD", "ref: refs/heads/main\n"),
            ("outside/r.git/objects/x", ""),
            ("outside/r.git/refs/x", ""),
            ("outside/hooks/x", ""),
        ],
        directory: "outside",
        writable: &[],
        lines: &["echo EVIL-4711 > hooks/pre-receive"],
        planted: &["outside/hooks/pre-receive"],
    },
    PlantedRow {
        name: "a hook in a repository without a working tree that is writable",
        files: BARE,
        directory: "work",
        writable: &["outside"],
        lines: &["echo EVIL-4711 > '{top}/outside/hooks/pre-receive'; echo EVIL-4711 >> '{top}/outside/config'"],
        planted: &["outside/hooks/pre-receive", "outside/config"],
    },
    PlantedRow {
        name: "a setting in a repository without a working tree that is the workspace",
        files: BARE,
        directory: "outside",
        writable: &[],
        lines: &["mv hooks h; mkdir hooks; echo EVIL-4711 > hooks/pre-receive; echo EVIL-4711 > info/attributes"],
        planted: &["outside/hooks/pre-receive", "outside/info/attributes"],
    },
    PlantedRow {
        name: "a hook that a further working tree names",
        files: &[
            ("work/.git/worktrees/t/config.worktree", "[core]\nhooksPath = ../../work/hooks\n"),
            ("work/.git/worktrees/t/gitdir", "../../../../outside/t/.git\n"),
            ("outside/t/.git", "gitdir: ../../work/.git/worktrees/t\n"),
            ("work/hooks/x", ""),
        ],
        directory: "work",
        writable: &[],
        lines: &["echo EVIL-4711 > hooks/pre-commit"],
        planted: &["work/hooks/pre-commit"],
    },
    PlantedRow {
        name: "a hook in a directory that could not be searched",
        files: &[("work/sub/.git/hooks/x", "")],
        directory: "work",
        writable: &[],
        lines: &["chmod 444 sub", "chmod 755 sub; echo EVIL-4711 > sub/.git/hooks/pre-commit"],
        planted: &["work/sub/.git/hooks/pre-commit"],
    },
    PlantedRow {
        name: "another workspace in the place of a renamed one",
        files: &[("outside/a/ws/.git/config", "")],
        directory: "outside/a/ws",
        writable: &["outside"],
        lines: &[
            "cd '{top}/outside' && mv a b && mkdir -p a/ws/.git/hooks && echo EVIL-4711 > a/ws/.git/hooks/pre-commit",
        ],
        planted: &["outside/a/ws/.git/hooks/pre-commit"],
    },
    PlantedRow {
        name: "another home in the place of one that is writable by two names",
        files: &[("home/.ssh/id", "")],
        directory: "work",
        writable: &["home", ""],
        lines: &["cd '{top}' && mv home h2 && mkdir -p home/.ssh && echo EVIL-4711 > home/.ssh/authorized_keys"],
        planted: &["home/.ssh/authorized_keys"],
    },
    PlantedRow {
        name: "another .rath in the place of a renamed one",
        files: &[("outside/a/.rath/x", "")],
        directory: "work",
        writable: &["outside"],
        lines: &["cd '{top}/outside' && mv a b && mkdir -p a/.rath && echo EVIL-4711 > a/.rath/x"],
        planted: &["outside/a/.rath/x"],
    },
];

/// Without the guard, commands run without walls.
fn try_planted(trial: Trial, row: &PlantedRow) -> Observation {
    let place = Place::new();
    let top = place.text("");
    let top = top.trim_end_matches('/');
    row.files.iter().for_each(|(name, text)| place.write(name, text));
    let calls: Vec<_> = row.lines.iter().map(|line| shell(&line.replace("{top}", top))).collect();
    let calls: Vec<_> = calls.iter().map(|call| json!({"calls": [call]})).collect();
    let [model, script] = place.script(&calls);
    let writable: Vec<_> = row.writable.iter().map(|name| format!("write={top}/{name}")).collect();
    let isolated = format!("isolated:.?{}", writable.join("&"));
    let sandbox = if trial.guard == Guard::On { &isolated } else { "local:." };
    let run = ["run", "Go.", &model, &script, "--json", "--store", "memory:", "--mode", "full", "--sandbox", sandbox];
    let output = place.command(&run).current_dir(place.path(row.directory)).output().expect("rath runs");
    let is_planted = row.planted.iter().any(|name| place.read(name).contains(EVIL));
    Observation::new(is_planted, results(&output))
}

/// Reads a file that a rule hides, at the path that the workspace has on the machine.
fn try_own_path(trial: Trial) -> Observation {
    let place = Place::new();
    place.write("outside/work/.env", CANARY);
    if trial.guard == Guard::On {
        place.write("home/.config/rath/config.toml", "[permissions]\ndeny = [\"read .env\"]\n");
    }
    let outside = place.text("outside");
    let line = format!("cat .env; cat '{outside}/work/.env'; cat '{outside}'/*/.env; true");
    let [model, script] = place.script(&[json!({"calls": [shell(&line)]})]);
    let sandbox = format!("isolated:.?at=/tmp/work&write={outside}");
    let run = ["run", "Go.", &model, &script, "--json", "--store", "memory:", "--mode", "full", "--sandbox", &sandbox];
    let output = place.command(&run).current_dir(place.path("outside/work")).output().expect("rath runs");
    let text = results(&output);
    assert!(output.status.success(), "{text}");
    Observation::new(text.contains(CANARY), text)
}

/// Removes an empty private directory between two commands. Without the guard the home is elsewhere.
fn try_removed(trial: Trial) -> Observation {
    let place = Place::new();
    place.write("elsewhere/x", "");
    let wait = "touch begun; while [ ! -e go ]; do sleep 0.02; done";
    let plant = "mkdir -p .ssh; cp /etc/hostname .ssh/authorized_keys; cp /etc/hostname .netrc; true";
    let [model, script] = place.script(&[wait, plant].map(|line| json!({"calls": [shell(line)]})));
    let run = ["run", "Go.", &model, &script, "--store", "memory:", "--mode", "full", "--sandbox", "isolated:."];
    let home = if trial.guard == Guard::On { "home" } else { "elsewhere" };
    let mut command = place.command(&run);
    command.current_dir(place.path("home")).env("HOME", place.path(home));
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut running = command.spawn().expect("rath runs");
    while !place.path("home/begun").exists() && running.try_wait().expect("it is asked").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let _ = std::fs::remove_dir(place.path("home/.ssh"));
    let _ = std::fs::remove_file(place.path("home/.netrc"));
    place.write("home/go", "");
    let output = running.wait_with_output().expect("rath ends");
    let is_planted = [".ssh/authorized_keys", ".netrc"].iter().any(|name| place.path("home").join(name).exists());
    Observation::new(is_planted, printed(&output))
}

/// Replaces a link that is the home directory. Without the guard the home is elsewhere.
fn try_linked_home(trial: Trial) -> Observation {
    let place = Place::new();
    for name in ["elsewhere/x", "xdg/x", "outside/real/x"] {
        place.write(name, "");
    }
    std::os::unix::fs::symlink("real", place.path("outside/link")).expect("a link");
    let line = "rm link; mkdir -p link/.ssh; cp /etc/hostname link/.ssh/authorized_keys";
    let [model, script] = place.script(&[json!({"calls": [shell(line)]})]);
    let run = ["run", "Go.", &model, &script, "--store", "memory:", "--mode", "full", "--sandbox", "isolated:."];
    let home = if trial.guard == Guard::On { "outside/link" } else { "elsewhere" };
    let mut command = place.command(&run);
    command.env("XDG_CONFIG_HOME", place.path("xdg")).env("XDG_DATA_HOME", place.path("xdg"));
    let output = command.current_dir(place.path("outside")).env("HOME", place.path(home)).output().expect("rath runs");
    Observation::new(place.path("outside/link/.ssh/authorized_keys").exists(), printed(&output))
}

/// Plants a key in the directory that `XDG_DATA_HOME` names through a link. Without the guard nothing names it.
fn try_linked_data(trial: Trial) -> Observation {
    let place = Place::new();
    place.write("work/data/x", "");
    std::os::unix::fs::symlink("work", place.path("link")).expect("a link");
    let line = "mkdir -p data/rath; cp /etc/hostname data/rath/user.key; true";
    let [model, script] = place.script(&[json!({"calls": [shell(line)]})]);
    let run = ["run", "Go.", &model, &script, "--store", "memory:", "--mode", "full", "--sandbox", "isolated:."];
    let mut command = place.command(&run);
    if trial.guard == Guard::On {
        command.env("XDG_DATA_HOME", place.path("link/data"));
    }
    let output = command.output().expect("rath runs");
    Observation::new(place.path("work/data/rath/user.key").exists(), printed(&output))
}
