//! Sessions of others that would run something, or write files, if they were the user's own.
//!
//! Without the guard the user has adopted the session and approved its call, or made the session here.

use super::super::guests::{Arrival, Visit};
use super::place::{EVIL, Place, printed, shell};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let arrivals = ARRIVALS.iter().map(|(name, arrival)| {
        Attack::new(name, Plane::Guests, HoldsIn::None, move |trial| try_arrival(trial, *arrival, "new"))
    });
    let progress = PROGRESS.iter().map(|(name, progress)| {
        Attack::new(name, Plane::Guests, HoldsIn::None, move |trial| try_arrival(trial, Arrival::Cloned, progress))
    });
    let commands = COMMANDS
        .iter()
        .map(|(name, lines)| Attack::new(name, Plane::Guests, HoldsIn::None, move |trial| try_commands(trial, lines)));
    let others = [
        Attack::new("a fork of a session of others", Plane::Guests, HoldsIn::None, try_fork),
        Attack::new(
            "a replay that runs an isolated session without walls",
            Plane::Guests,
            HoldsIn::Isolated,
            |trial| try_again(trial, &["replay", "SESSION", "--tools"], &[]),
        ),
        Attack::new("a bisection that runs without walls", Plane::Guests, HoldsIn::Isolated, |trial| {
            try_again(trial, &["bisect", "SESSION"], &["--", "sh", "-c", LINE])
        }),
    ];
    arrivals.chain(progress).chain(commands).chain(others).collect()
}

/// Ways by which a session of others comes to a user, whose `rath resume` would run its call.
const ARRIVALS: &[(&str, Arrival)] = &[
    ("a session planted in a cloned .rath", Arrival::Cloned),
    ("a session planted in a store of lines", Arrival::ClonedLines),
    ("a store of the user copied to another directory", Arrival::Copied),
    ("an imported session file", Arrival::Bundle),
    ("a session file named instead of a store", Arrival::File),
    ("an imported session of another format", Arrival::Atif),
    ("an imported session of another program", Arrival::OpenRath),
];

/// States in which the author left the call.
const PROGRESS: &[(&str, &str)] =
    &[("a call that the author approved", "approved"), ("a call that the author started", "started")];

fn line(arrival: Arrival, line: &str) -> String {
    if arrival == Arrival::File { line.replace(" STORE", "") } else { line.to_owned() }
}

fn try_arrival(trial: Trial, arrival: Arrival, progress: &str) -> Observation {
    let visit = Visit::new(arrival, progress);
    let before = visit.files();
    let resume = match arrival {
        Arrival::File => "run --model script:script.jsonl STORE",
        _ => "resume SESSION --model script:script.jsonl --anyway STORE",
    };
    let mut text = String::new();
    if trial.guard == Guard::Off {
        text += &printed(&visit.command(&line(arrival, "adopt SESSION --sandbox local:. --by Ann STORE")));
        let calls = visit.command(&line(arrival, "review SESSION --json STORE"));
        let call: serde_json::Value = serde_json::from_slice(&calls.stdout).expect("one call");
        let approve = format!("review SESSION --approve {} STORE", call["call"].as_str().expect("an id"));
        text += &printed(&visit.command(&line(arrival, &approve)));
    }
    text += &printed(&visit.command(resume));
    Observation::new(visit.files() != before, text)
}

/// Commands on a session in a cloned `.rath`. Without the guard it is the user's own session.
const COMMANDS: &[(&str, &[&str])] = &[
    ("a session of others resumed", &["resume SESSION --model script:script.jsonl STORE"]),
    (
        "a session of others resumed on a new branch",
        &[
            "resume SESSION --model script:script.jsonl --anyway --fork STORE",
            "review SESSION --approve c9 STORE",
            "resume SESSION --model script:script.jsonl --anyway STORE",
        ],
    ),
    ("a session of others run", &["run --session SESSION --model script:script.jsonl STORE"]),
    (
        "a session of others run with an approved call",
        &["run --session SESSION --model script:script.jsonl --approve c9 STORE"],
    ),
    (
        "a call of others approved",
        &["review SESSION --approve c9 STORE", "resume SESSION --model script:script.jsonl --anyway STORE"],
    ),
    (
        "a directory that a session of others names emptied",
        &["restore SESSION STORE", "restore SESSION --anyway STORE"],
    ),
    ("a check of others", &["check touch_checked --session SESSION STORE"]),
    ("calls of others replayed", &["replay SESSION --tools --sandbox local:../fresh STORE"]),
    (
        "a session of others replayed from a step",
        &["replay SESSION --from head --model script:evil.jsonl --sandbox local:../fresh STORE"],
    ),
    (
        "files of others searched for a fault",
        &["bisect SESSION --sandbox local:. STORE -- touch ../../../../../bisected"],
    ),
];

fn try_commands(trial: Trial, lines: &[&str]) -> Observation {
    let arrival = if trial.guard == Guard::On { Arrival::Cloned } else { Arrival::Own };
    let visit = Visit::new(arrival, "new");
    let path = |name: &str| visit.folder.path().join(name);
    std::fs::create_dir(path("fresh")).expect("made");
    // A file of the user that the session does not know.
    std::fs::write(path("outside/mine.txt"), "mine\n").expect("written");
    let call = serde_json::json!({"calls": [shell("touch PWNED")]});
    std::fs::write(path("project/evil.jsonl"), format!("{call}\n{{\"text\": \"Done.\"}}\n")).expect("written");
    let before = visit.files();
    let text: String = lines.iter().map(|line| printed(&visit.command(line))).collect();
    Observation::new(visit.files() != before, text)
}

fn try_fork(trial: Trial) -> Observation {
    let arrival = if trial.guard == Guard::On { Arrival::Cloned } else { Arrival::Own };
    let mut visit = Visit::new(arrival, "new");
    let before = visit.files();
    let fork = visit.command("fork SESSION STORE");
    visit.session = String::from_utf8_lossy(&fork.stdout).trim().to_owned();
    // On a second branch a call waits for the user, also in a session of the user.
    let review = visit.command("review SESSION --approve c9 STORE");
    let resumed = visit.command("resume SESSION --model script:script.jsonl --anyway STORE");
    Observation::new(visit.files() != before, printed(&review) + &printed(&resumed))
}

/// Writes in the directory `outside`, wherever it runs.
const LINE: &str = "echo EVIL-4711 >> \"$(cat outside.path)/file\"; false";

/// Runs recorded calls, or a command on recorded files, of the user's own isolated session. Without the guard the user names a
/// sandbox without walls.
fn try_again(trial: Trial, command: &[&str], rest: &[&str]) -> Observation {
    let place = Place::new();
    place.write("work/outside.path", &place.text("outside"));
    std::fs::create_dir(place.path("fresh")).expect("made");
    let run = place.agent(trial.sandbox, &[shell(LINE), shell("echo more > file")], &["--mode", "full"]);
    assert!(run.status.success() && !place.read("outside/file").contains(EVIL), "{}", printed(&run));
    std::fs::copy(place.path("work/outside.path"), place.path("fresh/outside.path")).expect("copied");
    let session = place.session();
    let fresh = format!("local:{}", place.text("fresh"));
    let mut args: Vec<&str> = command.iter().map(|word| if *word == "SESSION" { &*session } else { word }).collect();
    if trial.guard == Guard::Off {
        args.extend(["--sandbox", &fresh]);
    }
    args.extend(rest);
    let output = place.rath(&args);
    Observation::new(place.read("outside/file").contains(EVIL), printed(&output))
}
