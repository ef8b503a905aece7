//! Commands in a fork that change the user's dependencies or repository through what the fork shares, or read there what is hidden.
//! Without the guard the same commands run in the project itself, in `local:`.

use super::place::{CANARY, EVIL, Place, printed, results, shell};
use super::{Attack, Guard, HoldsIn, Observation, Plane, SandboxKind, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let changing = CHANGING
        .iter()
        .map(|(name, line)| Attack::new(name, Plane::Walls, HoldsIn::Both, move |trial| try_change(trial, line)));
    let reading = READING.iter().map(|(name, options, rules)| {
        Attack::new(name, Plane::Walls, HoldsIn::Isolated, move |trial| try_read(trial, options, rules))
    });
    changing.chain(reading).collect()
}

/// A name, and the line that changes a file of the project.
const CHANGING: &[(&str, &str)] = &[
    ("a dependency written in a fork", "echo EVIL > node_modules/dep/index.js"),
    ("a line at the end of a dependency in a fork", "echo EVIL >> node_modules/dep/index.js"),
    ("a dependency cut to nothing in a fork", ": > node_modules/dep/index.js"),
    ("a dependency opened to all in a fork", "chmod 666 node_modules/dep/index.js"),
    ("the time of a dependency in a fork", "touch -d @1 node_modules/dep/index.js"),
    ("a dependency removed in a fork", "rm -rf node_modules/dep"),
    ("a dependency renamed in a fork", "mv node_modules/dep/index.js node_modules/dep/other.js"),
    ("a new dependency in a fork", "mkdir node_modules/new && echo EVIL > node_modules/new/index.js"),
    (
        "a dependency written through a hard link in a fork",
        "ln node_modules/dep/index.js node_modules/hard; echo EVIL > node_modules/hard",
    ),
    ("a dependency written through a link in a fork", "echo EVIL > node_modules/link"),
    ("a dependency written below a new mount in a fork", "umount node_modules; echo EVIL > node_modules/dep/index.js"),
    ("the head of the repository in a fork", "echo EVIL > .git/HEAD"),
    ("a hook of the repository in a fork", "mkdir -p .git/hooks; echo EVIL > .git/hooks/pre-commit"),
    ("a setting of the repository in a fork", "git config core.pager EVIL"),
    ("a branch of the repository in a fork", "git branch evil"),
    ("the repository removed in a fork", "rm -rf .git/refs .git/HEAD"),
];

/// A name, the options of the sandbox, and the rules that hide the file.
const READING: &[(&str, &str, &str)] = &[
    ("a hidden file among dependencies read in a fork", "?hide=node_modules/secret.pem", ""),
    ("a file among dependencies that a rule denies read in a fork", "", "[permissions]\ndeny = [\"read *.pem\"]\n"),
];

fn place_with_dependencies() -> Place {
    let place = Place::new();
    place.write("work/.gitignore", "node_modules/\n");
    place.write("work/node_modules/dep/index.js", "module");
    place.write("work/node_modules/secret.pem", CANARY);
    place.link("node_modules/link", "dep/index.js");
    for words in [
        &["init", "-q", "-b", "main"][..],
        &["add", "."],
        &["-c", "user.name=Ann", "-c", "user.email=ann@example.invalid", "commit", "-qm", "One."],
    ] {
        let done = rath_test_support::git().args(words).current_dir(place.path("work")).status();
        assert!(done.expect("git runs").success(), "{words:?}");
    }
    place
}

fn try_change(trial: Trial, line: &str) -> Observation {
    let place = place_with_dependencies();
    let uri = if trial.guard == Guard::On { trial.sandbox.uri() } else { SandboxKind::Local.uri() };
    let before = survey(&place);
    let seen = run_line(&place, trial.guard, uri, &line.replace("EVIL", EVIL));
    Observation::new(survey(&place) != before, seen)
}

/// Describes the dependencies and the repository, without the times of objects: git gives those a new time that it would write again.
fn survey(place: &Place) -> Vec<(std::path::PathBuf, String)> {
    let objects = place.path("work/.git/objects");
    let git = place.survey("work/.git").into_iter().filter(|(path, _)| !path.starts_with(&objects));
    place.survey("work/node_modules").into_iter().chain(git).collect()
}

fn try_read(trial: Trial, options: &str, rules: &str) -> Observation {
    let place = place_with_dependencies();
    let (options, rules) = if trial.guard == Guard::On { (options, rules) } else { ("", "") };
    place.write("home/.config/rath/config.toml", rules);
    let seen = run_line(&place, Guard::On, &format!("isolated:.{options}"), "cat node_modules/secret.pem; ls");
    Observation::new(seen.contains(CANARY), seen)
}

/// Lets an agent run a line: in a fork with the guard, and in the project without.
fn run_line(place: &Place, guard: Guard, uri: &str, line: &str) -> String {
    let [model, script] = place.script(&[serde_json::json!({"calls": [shell("true")]})]);
    let common = ["--json", "--mode", "full", "--sandbox", uri];
    let run = place.rath(&[&["run", "Go.", &model, &script][..], &common].concat());
    assert!(run.status.success(), "{}", results(&run));
    let session = place.session();
    let [model, script] = place.script(&[serde_json::json!({"calls": [shell(line)]})]);
    let fork: &[&str] = if guard == Guard::On { &["--fork"] } else { &[] };
    let resumed = place.rath(&[&["resume", &session, "More.", &model, &script][..], &common, fork].concat());
    assert!(resumed.status.success(), "{}", results(&resumed));
    results(&resumed)
}

#[test]
fn a_run_a_check_and_a_bisection_name_what_they_are_without() {
    let place = place_with_dependencies();
    place.write("work/.gitignore", "node_modules/\n.env\n");
    place.write("work/.env", "KEY=1\n");
    let [model, script] = place.script(&[serde_json::json!({"calls": [shell("touch broken")]})]);
    let run = place.rath(&["run", "Go.", &model, &script, "--mode", "full"]);
    let note = "git ignores these, and";
    assert!(run.status.success() && !printed(&run).contains(note), "{}", printed(&run));
    let session = place.session();
    let [model, script] = place.script(&[serde_json::json!({"calls": [shell("cat node_modules/dep/index.js")]})]);
    let fork = place.rath(&["resume", &session, "More.", "--fork", &model, &script, "--mode", "full"]);
    let check = place.rath(&["check", "test -e node_modules/dep"]);
    let bisect = place.rath(&["bisect", &session, "--", "sh", "-c", "test -e node_modules/dep && test ! -e broken"]);
    for (output, place) in [(fork, "this branch works"), (check, "the check ran"), (bisect, "the command ran")] {
        let text = printed(&output);
        let wanted = format!("note: {note} {place} without them: .env (a single file)");
        assert!(output.status.success() && text.contains(&wanted), "{text}");
    }
}
