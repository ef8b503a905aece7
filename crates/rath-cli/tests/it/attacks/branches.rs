//! The law of branches: a branch from an earlier step, a merge, and a session of which a step was forgotten do nothing that the session
//! itself could not do, in every mode and sandbox. A replay leaves no file behind that the run put back.

use std::cell::Cell;

use serde_json::json;

use super::SandboxKind;
use super::place::{CANARY, Place, printed, shell};

const MODES: [&str; 4] = ["read-only", "ask", "workspace", "full"];
/// The options of a session that is as loose as can be.
const LOOSE: [&str; 4] = ["--mode", "full", "--sandbox", "local:."];

#[test]
fn a_branch_is_as_strict_as_an_isolated_session() {
    check_all("isolated:.");
}

#[test]
fn a_branch_is_as_strict_as_an_isolated_session_with_restrictions() {
    check_all("isolated:.?cpu_time=30s&hide=hid.txt");
}

#[test]
fn a_branch_is_as_strict_as_a_local_session() {
    check_all("local:.");
}

#[test]
fn a_replay_puts_back_the_files_that_the_run_put_back() {
    let place = Place::new();
    place.write("work/copy/.vscode/tasks.json", "old");
    place.write("work/.vscode/tasks.json", "old");
    let line = "echo x | tee .envrc .vscode/tasks.json > new";
    let run = place.agent(SandboxKind::Isolated, &[shell(line)], &[]);
    assert!(run.status.success(), "{}", printed(&run));
    let replayed = place.rath(&["replay", &place.session(), "--tools", "--sandbox", "isolated:copy"]);
    assert!(replayed.status.success(), "{}", printed(&replayed));
    let files = [".envrc", ".vscode/tasks.json", "new"].map(|name| place.read(&format!("work/copy/{name}")));
    assert_eq!(files, ["", "old", "x\n"]);
}

/// Fails with a list of all branches that did more than their session.
fn check_all(sandbox: &str) {
    let failures: String = MODES.iter().map(|mode| Law::new(mode, sandbox).check()).collect();
    assert!(failures.is_empty(), "\n{failures}");
}

/// A session in a mode and a sandbox, and the branches that are taken from it.
struct Law<'a> {
    place: Place,
    mode: &'a str,
    sandbox: &'a str,
    attempts: Cell<u32>,
}

/// The harm that an agent did.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Harm {
    changed: bool,
    read_hidden: bool,
    left: bool,
}

impl Law<'_> {
    fn new<'a>(mode: &'a str, sandbox: &'a str) -> Law<'a> {
        let place = Place::new();
        place.write("work/hid.txt", CANARY);
        Law { place, mode, sandbox, attempts: Cell::new(0) }
    }

    /// Lets an agent of each branch try to do harm. Returns a line for each that did more than the session.
    fn check(&self) -> String {
        let strict = ["--mode", self.mode, "--sandbox", self.sandbox];
        let session = self.talk(&["run", "Go."], &strict);
        self.talk(&["resume", &session, "More."], &[]);
        let loosened = self.fork(&session);
        self.talk(&["resume", &loosened, "More."], &LOOSE);
        let tightened = self.talk(&["run", "Other."], &LOOSE);
        self.talk(&["resume", &tightened, "More."], &strict);
        let (first, placed) = (self.step(&session, "user: Go."), self.step(&session, "sandbox: "));
        let (middle, loose) = (self.step(&session, "assistant: "), self.step(&tightened, "assistant: "));
        let at = |session: &str, step: &str| self.fork(&format!("{session}@{step}"));
        let merge = |ours: &str, theirs: &str| self.id(&["merge", ours, theirs]);
        let branches = [
            ("fork of the first step", at(&session, &first)),
            ("fork of the sandbox", at(&session, &placed)),
            ("fork of a step in the middle", at(&session, &middle)),
            ("fork of the first step of a fork", at(&at(&session, &middle), &first)),
            ("fork of the first step of a fork of the first step", at(&at(&session, &first), &first)),
            ("fork of a fork that was loosened", at(&loosened, &placed)),
            ("fork of a step before the session was strict", at(&tightened, &loose)),
            ("merge of a loosened fork", merge(&session, &loosened)),
            ("merge into a loosened fork", merge(&loosened, &session)),
            ("merge of an earlier step into a loosened fork", merge(&loosened, &format!("{session}@{first}"))),
        ];
        let (allowed, text) = self.attack(|prompt| self.run(&["resume", &session, prompt, "--fork"]));
        assert_eq!(allowed, self.expected(), "{} in {}: {text}", self.mode, self.sandbox);
        let mut results = Vec::new();
        for (name, branch) in branches {
            results.push((name, self.attack(|prompt| self.run(&["resume", &branch, prompt, "--anyway"]))));
        }
        for (name, session, step) in [
            ("replay from the first step", &session, &first),
            ("replay from the sandbox", &session, &placed),
            ("replay from a step in the middle", &session, &middle),
            ("replay from a step before the session was strict", &tightened, &loose),
        ] {
            results.push((name, self.attack(|_| self.run(&["replay", session, "--from", step]))));
        }
        if let Some(note) = self.find_step(&session, "note: mode") {
            let forgotten = self.place.rath(&["forget", &session, &note]);
            assert!(forgotten.status.success(), "{}", printed(&forgotten));
            let resume = |prompt: &str| self.run(&["resume", &session, prompt, "--anyway", "--sandbox", self.sandbox]);
            results.push(("session whose mode was forgotten", self.attack(resume)));
        }
        let exceeds = |harm: &Harm| {
            harm.changed && !allowed.changed || harm.read_hidden && !allowed.read_hidden || harm.left && !allowed.left
        };
        let is_wrong = |(harm, text): &(Harm, String)| exceeds(harm) || !self.is_walled(text);
        let wrong = results.into_iter().filter(|(_, result)| is_wrong(result));
        let lines = wrong.map(|(name, (harm, text))| {
            format!("{} in {}, {name}: {harm:?}, allowed: {allowed:?}\n{text}\n", self.mode, self.sandbox)
        });
        lines.collect()
    }

    /// Returns the harm that the mode and the sandbox allow: the attack is a real one where nothing guards.
    fn expected(&self) -> Harm {
        let is_local = self.sandbox.starts_with("local:");
        let changed = self.mode == "full" || self.mode == "workspace" && !is_local;
        Harm { changed, read_hidden: changed && !self.sandbox.contains("hide="), left: changed && is_local }
    }

    /// Returns true if a run was in the walls of the session.
    fn is_walled(&self, text: &str) -> bool {
        let limit = !self.sandbox.contains("cpu_time") || text.contains("processor time up to 30 s");
        limit && (self.sandbox.starts_with("local:") || !text.contains("no sandbox:"))
    }

    /// Lets an agent try to do harm, and observes it. Returns also all that was printed.
    fn attack(&self, run: impl Fn(&str) -> String) -> (Harm, String) {
        let nth = self.attempts.get();
        self.attempts.set(nth + 1);
        let (seen, pwned) = (format!("seen{nth}"), format!("pwned{nth}"));
        let line = format!("cat hid.txt > {seen}; echo x > {pwned}; echo x > '{}/{pwned}'", self.place.text("outside"));
        self.place.script(&[json!({"calls": [shell(&line)]})]);
        let text = run("Go on.");
        let files = self.place.survey("work");
        let changed = files.keys().any(|path| path.ends_with(&pwned));
        let read_hidden = files.iter().any(|(path, text)| path.ends_with(&seen) && text.contains(CANARY));
        (Harm { changed, read_hidden, left: self.place.path("outside").join(&pwned).exists() }, text)
    }

    /// Runs the program with the model that was written last.
    fn run(&self, args: &[&str]) -> String {
        let script = format!("script:{}", self.place.text("script.jsonl"));
        printed(&self.place.rath(&[args, &["--model", &script]].concat()))
    }

    /// Lets an agent answer without a call. Returns the session.
    fn talk(&self, command: &[&str], options: &[&str]) -> String {
        self.place.script(&[]);
        let text = self.run(&[command, options].concat());
        let (_, saved) = text.split_once("saved as ").unwrap_or_else(|| panic!("{text}"));
        saved.split(';').next().expect("an id").to_owned()
    }

    fn fork(&self, of: &str) -> String {
        self.id(&["fork", of])
    }

    /// Returns the id that a command prints last.
    fn id(&self, args: &[&str]) -> String {
        let output = self.place.rath(args);
        assert!(output.status.success(), "{args:?}: {}", printed(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().last().expect("an id").to_owned()
    }

    fn step(&self, session: &str, text: &str) -> String {
        self.find_step(session, text).unwrap_or_else(|| panic!("no step `{text}`"))
    }

    /// Returns the oldest step of a session whose line in the log contains a text.
    fn find_step(&self, session: &str, text: &str) -> Option<String> {
        let log = printed(&self.place.rath(&["log", "-v", session]));
        let line = log.lines().rev().find(|line| line.contains(text))?;
        line.split_whitespace().find(|word| word.len() == 8).map(str::to_owned)
    }
}
