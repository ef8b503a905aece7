//! Hidden files in a directory that is mounted a second time.
//!
//! Without the guard commands run without walls; for file tools the home is elsewhere, and no rule is there.

use serde_json::{Value, json};

use super::place::{CANARY, EVIL, Place, results, shell, tool};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial, Users};

pub(super) fn attacks() -> Vec<Attack> {
    let row = |row: &'static MountedRow| {
        let (plane, holds_in) = match row.action {
            Action::Command(_) => (Plane::Walls, HoldsIn::Isolated),
            Action::Read(_) => (Plane::FileTools, HoldsIn::Both),
        };
        let attack = Attack::new(row.name, plane, holds_in, move |trial| try_row(trial, row));
        attack.by(Users::RootOnly("mounting a directory needs privileges"))
    };
    ROWS.iter().map(row).collect()
}

/// A directory that is mounted at another path. `{top}` stands for the directory of everything.
struct MountedRow {
    name: &'static str,
    from: &'static str,
    /// A path below the directory of everything, or one of the machine.
    to: &'static str,
    /// Options of the sandbox.
    options: &'static str,
    rules: &'static str,
    action: Action,
}

/// An action that reads a canary, or writes a file.
enum Action {
    Command(&'static str),
    Read(&'static str),
}

/// Attacks on the home directory, without options and rules.
const fn home_row(name: &'static str, from: &'static str, to: &'static str, action: Action) -> MountedRow {
    MountedRow { name, from, to, options: "", rules: "", action }
}

const ROWS: &[MountedRow] = &[
    home_row(
        "a home mounted below the workspace",
        "home",
        "work/x/home",
        Action::Command("cat x/home/.ssh/id x/home/.netrc"),
    ),
    home_row(
        "a home mounted below the workspace, by a tool",
        "home",
        "work/x/home",
        Action::Read("x/home/.config/gh/hosts.yml"),
    ),
    home_row(
        "a home mounted below the workspace, renamed",
        "home",
        "work/x/home",
        Action::Command("mv x y; cat y/home/.netrc; mv x/home/.ssh x/home/s; cat x/home/s/id"),
    ),
    home_row(
        "a directory above a home mounted below the workspace",
        "",
        "work/all",
        Action::Command("cat all/home/.ssh/id all/home/.netrc"),
    ),
    home_row("a directory of keys mounted in the workspace", "home/.ssh", "work/keys", Action::Command("cat keys/id")),
    home_row("a directory of keys mounted for a tool", "home/.ssh", "work/keys", Action::Read("keys/id")),
    home_row(
        "a part of a private directory mounted in the workspace",
        "home/.config/gh",
        "work/gh",
        Action::Command("cat gh/hosts.yml"),
    ),
    home_row("a home mounted elsewhere on the machine", "home", "/srv", Action::Command("cat /srv/.ssh/id /srv/notes")),
    home_row(
        "a key for logging in planted in a home mounted below the workspace",
        "home",
        "work/x/home",
        Action::Command("mkdir -p x/home/.gnupg; echo EVIL-4711 > x/home/.gnupg/planted"),
    ),
    home_row(
        "a hook planted where the hooks are mounted",
        "work/.git/hooks",
        "work/h",
        Action::Command("echo EVIL-4711 > h/planted"),
    ),
    home_row("a .rath mounted elsewhere on the machine", "work", "/srv", Action::Command("cat /srv/.rath/x")),
    MountedRow {
        name: "a home mounted below a path that is writable",
        from: "home",
        to: "outside/x/home",
        options: "write={top}/outside",
        rules: "",
        action: Action::Command("cat '{top}/outside/x/home/.ssh/id'"),
    },
    MountedRow {
        name: "a directory that a sandbox hides mounted again",
        from: "work/secrets",
        to: "work/again",
        options: "hide=secrets",
        rules: "",
        action: Action::Command("cat again/x"),
    },
    MountedRow {
        name: "a directory that a rule hides mounted again",
        from: "work/secrets",
        to: "work/again",
        options: "",
        rules: "deny = [\"read secrets/\"]\n",
        action: Action::Command("cat again/x"),
    },
    MountedRow {
        name: "a file that a rule hides mounted again, by a tool",
        from: "work/secrets",
        to: "work/again",
        options: "",
        rules: "deny = [\"read secrets/\"]\n",
        action: Action::Read("again/x"),
    },
    MountedRow {
        name: "a home mounted below the workspace, without namespaces",
        from: "home",
        to: "work/x/home",
        options: "walls=landlock",
        rules: "",
        action: Action::Command("cat x/home/.ssh/id x/home/.netrc; echo EVIL-4711 > x/home/.gnupg/planted"),
    },
];

/// The error of a machine on which Landlock cannot be the only wall.
const NO_LANDLOCK: &str = "cannot isolate commands by Landlock alone";

fn try_row(trial: Trial, row: &MountedRow) -> Observation {
    let place = Place::new();
    let private = ["home/.ssh/id", "home/.config/gh/hosts.yml", "home/.netrc", "home/notes"];
    private.iter().chain(&["work/secrets/x", "work/.rath/x"]).for_each(|name| place.write(name, CANARY));
    ["work/.git/hooks/x", "work/.git/config", "elsewhere/x"].iter().for_each(|name| place.write(name, ""));
    let rules = if trial.guard == Guard::On { row.rules } else { "" };
    place.write("config/rath/config.toml", &format!("[permissions]\nallow = [\"tool *\"]\n{rules}"));
    let from = place.path(row.from);
    let to = place.path(row.to);
    std::fs::create_dir_all(&to).expect("made");
    let top = place.text("").trim_end_matches('/').to_owned();
    let call: Value = match row.action {
        Action::Command(line) => shell(&line.replace("{top}", &top)),
        Action::Read(path) => tool("read_file", json!({"path": path})),
    };
    let [model, script] = place.script(&[json!({"calls": [call]})]);
    let sandbox = match (trial.guard, &row.action) {
        (Guard::Off, Action::Command(_)) => "local:.".to_owned(),
        _ => format!("{}?{}", trial.sandbox.uri(), row.options.replace("{top}", &top)),
    };
    let sandbox = sandbox.trim_end_matches('?');
    let run = ["run", "Go.", &model, &script, "--json", "--store", "memory:", "--mode", "full", "--sandbox", sandbox];
    let rath = place.command(&run);
    // The mount ends with its namespace.
    let mut command = rath_test_support::program("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.args(["mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"", "sh"]).args([from, to]);
    command.arg(rath.get_program()).args(rath.get_args()).current_dir(place.path("work"));
    command.envs(rath.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let home = if trial.guard == Guard::On { "home" } else { "elsewhere" };
    command.env("HOME", place.path(home)).env("XDG_CONFIG_HOME", place.path("config"));
    let output = command.output().expect("unshare runs");
    let text = results(&output);
    assert!(output.status.success() || text.contains(NO_LANDLOCK), "{text}");
    let planted = ["home/.gnupg/planted", "work/.git/hooks/planted"];
    let is_planted = planted.iter().any(|name| place.read(name).contains(EVIL));
    Observation::new(text.contains(CANARY) || is_planted, text)
}
