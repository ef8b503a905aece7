//! Calls that were not started, and what the user said since.
//!
//! Without the guard the user says nothing else, or decides about the call.

use std::process::Stdio;

use rath_test_support::{Terminal, wait_until};
use serde_json::json;

use super::place::{Place, printed, shell, tool};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    fn row(name: &'static str, attempt: impl Fn(Trial) -> Observation + Send + Sync + 'static) -> Attack {
        Attack::new(name, Plane::OpenCalls, HoldsIn::Both, attempt)
    }
    let mut all: Vec<_> = MOVED_LINES
        .iter()
        .map(|(name, line)| row(name, move |trial| try_moved_at_question(trial, line, ["shown", "other"])))
        .collect();
    all.extend([
        row("a call that waited while the user said no", |trial| {
            let words: &[&str] = if trial.guard == Guard::On { &["No, don't."] } else { &[] };
            resume(trial, &waiting(trial), words)
        }),
        row("a call after an interrupt at the question, and a no", |trial| {
            let place = interrupted(trial);
            let words: &[&str] = if trial.guard == Guard::On { &["No, don't."] } else { &[] };
            resume(trial, &place, words)
        }),
        row("a denied call", |trial| {
            let place = waiting(trial);
            let decision = if trial.guard == Guard::On { "--deny" } else { "--approve" };
            place.rath(&["review", &place.session(), decision, "call_1_1"]);
            resume(trial, &place, &[])
        }),
        row("a call on a second branch", |trial| try_fork(trial, &waiting(trial))),
        row("a call on a second branch, approved on the first", |trial| {
            let place = waiting(trial);
            let review = place.rath(&["review", &place.session(), "--approve", "call_1_1"]);
            assert!(review.status.success(), "{}", printed(&review));
            try_fork(trial, &place)
        }),
        row("a call on a branch that a resume opens", |trial| {
            let options: &[&str] = if trial.guard == Guard::On { &["--fork"] } else { &[] };
            resume(trial, &waiting(trial), options)
        }),
        row("a call that was started before rath was killed", try_killed),
        row("a call whose path leads elsewhere since it was approved", try_moved_path),
        row("a redirection that leads elsewhere outside while the user is asked", |trial| {
            try_moved_at_question(trial, "echo x > link/pwned; cp file other/pwned", ["{out}/sub", "{out}"])
        }),
        row("a call in a session of words that was read-only", |trial| try_after_words(trial, "read-only", &[])),
        row("a call in a session of words that asked", |trial| try_after_words(trial, "ask", &[])),
        row("a call in a read-only session whose sandbox is named again", |trial| {
            try_after_words(trial, "read-only", &["--sandbox", trial.sandbox.uri()])
        }),
        row("a call in a merge of a session that was read-only", try_after_merge),
        row("a call in a branch from before a session was read-only", try_at_prompt),
        row("a call like one that was refused at the question", |trial| try_after_question(trial, "n")),
        row("a call like one that was allowed at the question", |trial| try_after_question(trial, "y")),
    ]);
    all
}

/// Lines that write through a link, which leads elsewhere while the user is asked.
const MOVED_LINES: &[(&str, &str)] = &[
    ("a redirection that leads elsewhere while the user is asked", "echo x > link/pwned"),
    ("a redirection behind cd that leads elsewhere", "cd link; echo x > pwned"),
    ("a redirection by /proc that leads elsewhere", "echo x > /proc/self/cwd/link/pwned"),
    ("a command behind cd that leads elsewhere", "cd link && cp ../file pwned"),
    ("a redirection in a subshell that leads elsewhere", "(cd ./link; echo x > pwned)"),
    ("a redirection behind two cds that leads elsewhere", "cd below; cd ../link && echo x > pwned"),
    ("a redirection behind pushd that leads elsewhere", "bash -c 'pushd link; echo x > pwned'"),
    ("a redirection behind an evaluated cd that leads elsewhere", "eval 'cd link'; echo x > pwned"),
    ("a redirection behind cd with options that leads elsewhere", "command cd -P -- link; echo x > pwned"),
];

const CALL: &str = "echo x >> pwned";

/// Returns a project with a session whose call waits for the user.
fn waiting(trial: Trial) -> Place {
    let place = Place::new();
    let output = place.agent(trial.sandbox, &[shell(CALL)], &["--mode", "ask"]);
    assert_eq!(output.status.code(), Some(4), "{}", printed(&output));
    place
}

/// Returns a project with a session that was interrupted at its question.
fn interrupted(trial: Trial) -> Place {
    let place = Place::new();
    let [model, script] = place.script(&[json!({"calls": [shell(CALL)]})]);
    let run = ["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "ask"];
    let terminal = Terminal::start(place.command(&run));
    wait_until("the question", || terminal.screen().contains("allow it?"));
    let id = terminal.id().to_string();
    assert!(rath_test_support::program("kill").args(["-INT", &id]).status().expect("kill runs").success());
    let (screen, status) = terminal.finish();
    assert_eq!(status.code(), Some(130), "{screen}");
    place
}

/// Resumes the session in mode full. The model says that it is done.
fn resume(trial: Trial, place: &Place, options: &[&str]) -> Observation {
    let session = place.session();
    let [model, script] = place.script(&[]);
    let resume = ["resume", &session, &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "full", "--anyway"];
    let output = place.rath(&[&resume[..], options].concat());
    Observation::new(place.path("work/pwned").exists(), printed(&output))
}

/// Answers a question, and resumes where no question can be asked. Without the guard the mode is given.
fn try_after_question(trial: Trial, answer: &str) -> Observation {
    let place = Place::new();
    let [model, script] = place.script(&[json!({"calls": [shell("echo x >> asked")]})]);
    let run = ["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "ask"];
    let mut terminal = Terminal::start(place.command(&run));
    terminal.answer("allow it?", 1, answer);
    let (screen, status) = terminal.finish();
    assert!(status.success(), "{screen}");
    let session = place.session();
    let [model, script] = place.script(&[json!({"calls": [shell(CALL)]})]);
    let mode: &[&str] = if trial.guard == Guard::On { &[] } else { &["--mode", "full"] };
    let resume = ["resume", &session, "Go on.", &model, &script, "--anyway"];
    let output = place.rath(&[&resume[..], mode].concat());
    Observation::new(place.path("work/pwned").exists(), printed(&output))
}

/// Runs an agent that makes no call in a mode, and resumes without one. Without the guard the mode is full.
fn try_after_words(trial: Trial, mode: &str, options: &[&str]) -> Observation {
    let place = Place::new();
    let mode = if trial.guard == Guard::On { mode } else { "full" };
    let output = place.agent(trial.sandbox, &[], &["--mode", mode]);
    assert!(output.status.success(), "{}", printed(&output));
    let session = place.session();
    let [model, script] = place.script(&[json!({"calls": [shell(CALL)]})]);
    let output = place.rath(&[&["resume", &session, "Go on.", &model, &script], options].concat());
    Observation::new(place.path("work/pwned").exists(), printed(&output))
}

/// Merges a branch in mode full into a session that was read-only, and resumes. Without the guard both were in mode full.
fn try_after_merge(trial: Trial) -> Observation {
    let place = Place::new();
    let mode = if trial.guard == Guard::On { "read-only" } else { "full" };
    let output = place.agent(trial.sandbox, &[], &["--mode", mode]);
    assert!(output.status.success(), "{}", printed(&output));
    let id = |output: std::process::Output| {
        assert!(output.status.success(), "{}", printed(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let session = place.session();
    let fork = id(place.rath(&["fork", &session]));
    for (session, mode) in [(&session, mode), (&fork, "full")] {
        let [model, script] = place.script(&[]);
        let output = place.rath(&["resume", session, "Go on.", &model, &script, "--mode", mode]);
        assert!(output.status.success(), "{}", printed(&output));
    }
    let merged = id(place.rath(&["merge", &session, &fork]));
    let [model, script] = place.script(&[json!({"calls": [shell(CALL)]})]);
    let output = place.rath(&["resume", &merged, "Go on.", &model, &script, "--anyway"]);
    let is_written = place.survey("work").keys().any(|path| path.ends_with("pwned"));
    Observation::new(is_written, printed(&output))
}

/// Forks a session that was read-only at its first step, and resumes the branch. Without the guard it was in mode full.
fn try_at_prompt(trial: Trial) -> Observation {
    let place = Place::new();
    let mode = if trial.guard == Guard::On { "read-only" } else { "full" };
    let output = place.agent(trial.sandbox, &[], &["--mode", mode]);
    assert!(output.status.success(), "{}", printed(&output));
    let session = place.session();
    let log = place.rath(&["log", "-v", &session]);
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    let prompt = log.lines().find(|line| line.contains("user: Go.")).expect("the prompt");
    let step = prompt.split_whitespace().nth(1).expect("a step");
    let fork = place.rath(&["fork", &format!("{session}@{step}")]);
    let fork = String::from_utf8_lossy(&fork.stdout).trim().to_owned();
    let [model, script] = place.script(&[json!({"calls": [shell(CALL)]})]);
    let output =
        place.rath(&["resume", &fork, "Go on.", &model, &script, "--anyway", "--sandbox", trial.sandbox.uri()]);
    let is_written = place.survey("work").keys().any(|path| path.ends_with("pwned"));
    Observation::new(is_written, printed(&output))
}

/// Approves a call that writes through a link. The link leads elsewhere afterwards; without the guard it did so before.
fn try_moved_path(trial: Trial) -> Observation {
    let place = Place::new();
    let lead_to = |name: &str| {
        let _ = std::fs::remove_file(place.path("work/link"));
        std::os::unix::fs::symlink(name, place.path("work/link")).expect("a link");
    };
    ["work/shown/x", "work/other/x"].iter().for_each(|name| place.write(name, ""));
    lead_to(if trial.guard == Guard::On { "shown" } else { "other" });
    let write = tool("write_file", json!({"path": "link/pwned", "text": "x"}));
    let output = place.agent(trial.sandbox, &[write], &["--mode", "ask"]);
    assert_eq!(output.status.code(), Some(4), "{}", printed(&output));
    let session = place.session();
    let review = place.rath(&["review", &session, "--approve", "call_1_1"]);
    assert!(review.status.success(), "{}", printed(&review));
    lead_to("other");
    let [model, script] = place.script(&[]);
    let resume = ["resume", &session, &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "ask", "--anyway"];
    let text = printed(&place.rath(&resume));
    // A second resume does not take the new question for the one that was answered.
    let text = text + &printed(&place.rath(&resume));
    Observation::new(place.path("work/other/pwned").exists(), text)
}

/// Answers yes to a question about a command that writes through a link, which is changed while the question is shown. Without the guard
/// the link is changed before. `{out}` stands for the directory outside.
fn try_moved_at_question(trial: Trial, line: &str, targets: [&str; 2]) -> Observation {
    let place = Place::new();
    ["work/shown/x", "work/other/x"].iter().for_each(|name| place.write(name, ""));
    let lead_to = |target: &str| {
        let _ = std::fs::remove_file(place.path("work/link"));
        place.link("link", target);
    };
    lead_to(targets[usize::from(trial.guard == Guard::Off)]);
    let [model, script] = place.script(&[json!({"calls": [shell(line)]})]);
    let run = ["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "ask"];
    let mut terminal = Terminal::start(place.command(&run));
    wait_until("the question", || terminal.screen().contains("allow it?"));
    lead_to(targets[1]);
    terminal.answer("allow it?", 1, "y");
    let (screen, _) = terminal.finish();
    Observation::new(place.path("work/other/pwned").exists(), screen)
}

fn try_fork(trial: Trial, place: &Place) -> Observation {
    let session = place.session();
    let fork = place.rath(&["fork", &session]);
    let fork = String::from_utf8_lossy(&fork.stdout).trim().to_owned();
    let chosen = if trial.guard == Guard::On { &fork } else { &session };
    let [model, script] = place.script(&[]);
    let output = place.rath(&["resume", chosen, &model, &script, "--mode", "full", "--anyway"]);
    Observation::new(place.path("work/pwned").exists(), printed(&output))
}

/// A call that may have had its effect is not made a second time. Without the guard the user says that it is to be made.
fn try_killed(trial: Trial) -> Observation {
    let place = Place::new();
    let [model, script] = place.script(&[json!({"calls": [shell("echo x >> pwned; sleep 60")]})]);
    let run = ["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "full"];
    let mut child = place.command(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("rath runs");
    wait_until("the call has begun", || place.read("work/pwned") == "x\n");
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
    let session = place.session();
    let mut text = String::new();
    if trial.guard == Guard::Off {
        text += &printed(&place.rath(&["review", &session, "--approve", "call_1_1"]));
    }
    // The command of the script does not count here: the recorded call does.
    let [model, script] = place.script(&[]);
    let resume = ["resume", &session, &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "full", "--anyway"];
    let mut child = place.command(&resume).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("rath runs");
    let mut is_over = false;
    wait_until("it has ended or begun again", || {
        is_over = child.try_wait().expect("a status").is_some();
        is_over || place.read("work/pwned") == "x\nx\n"
    });
    let _ = child.kill();
    let _ = child.wait();
    Observation::new(place.read("work/pwned") == "x\nx\n", text)
}
