//! Many processes on one store: no command fails because another process is at work, nothing of what each did is lost, and the
//! bill is what the models were asked.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rath_test_support::{Chance, count, seed};
use serde_json::{Value, json};

use crate::fixture::{Fixture, for_each_store};
use crate::model_server::{ModelServer, TOKENS};

/// The processes that run at a time.
const PROCESSES: usize = 8;

struct OwnSession {
    id: String,
    prompts: Vec<String>,
    place: String,
}

/// A thread that runs commands, one process after the other.
struct Worker<'a> {
    folder: &'a Path,
    store: &'a str,
    server: &'a ModelServer,
    name: String,
    chance: Chance,
    /// The sessions that this worker made and has not deleted.
    sessions: Vec<OwnSession>,
    commands: u64,
}

impl Worker<'_> {
    fn run(&mut self, args: &[&str]) -> Output {
        self.commands += 1;
        let mut command: Command = rath_test_support::program(crate::program_path());
        self.server.connect(&mut command);
        let output = command.args(args).args(["--store", self.store]).current_dir(self.folder).output();
        let output = output.expect("rath runs");
        let told = String::from_utf8_lossy(&output.stderr);
        // Sessions that begin alike have the same step, and other workers may write theirs.
        let is_refused = args[0] == "forget" && told.contains("may still have a copy of the step");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() || is_refused, "{}: rath {}: {told}{printed}", self.name, args.join(" "));
        output
    }

    fn printed(&mut self, args: &[&str]) -> String {
        String::from_utf8(self.run(args).stdout).expect("UTF-8").trim().to_owned()
    }

    /// Lets a model answer, after a command that writes a file.
    fn ask(&mut self, session: Option<usize>) {
        let words = format!("words {} of {}", self.commands, self.name);
        let command = format!("echo {words} > said.txt");
        let prompt = format!("{words}: {}", json!([{"name": "shell", "arguments": {"command": command}}]));
        match session {
            Some(nth) => {
                let OwnSession { id, place, .. } = &self.sessions[nth];
                let (id, place) = (id.clone(), place.clone());
                // A step that was forgotten may have been one that gave the session another place.
                self.run(&["resume", &id, &prompt, "--model", "openai:m", "--sandbox", &place]);
                self.sessions[nth].prompts.push(prompt);
            }
            None => {
                // Each session has a directory of its own.
                let directory = format!("{}-{}", self.name, self.commands);
                std::fs::create_dir(self.folder.join(&directory)).expect("a directory");
                let place = format!("local:{directory}");
                let told = self.run(&["run", &prompt, "--model", "openai:m", "--sandbox", &place]).stderr;
                let told = String::from_utf8(told).expect("UTF-8");
                let (_, id) = told.split_once("saved as ").expect("it says the id");
                let id = id.split(';').next().expect("an id").to_owned();
                self.sessions.push(OwnSession { id, prompts: vec![prompt], place });
            }
        }
    }

    fn step(&mut self) {
        let some = (!self.sessions.is_empty()).then(|| self.chance.below(self.sessions.len() as u64) as usize);
        let id = some.map(|nth| self.sessions[nth].id.clone()).unwrap_or_default();
        match (self.chance.below(12), some) {
            (0, _) => _ = self.run(&["ls"]),
            (1, _) => _ = self.run(&["verify"]),
            (2, _) => _ = self.run(&["gc"]),
            (3..=5, Some(nth)) => self.ask(Some(nth)),
            (6, Some(_)) => _ = self.run(&["log", "-v", &id]),
            (7, Some(_)) => {
                let prompt = self.printed(&["log", "-v", &id]);
                let prompt = prompt.lines().find(|line| line.contains("user: words")).map(str::to_owned);
                if let Some(line) = prompt {
                    let step = line.split_whitespace().find(|word| word.len() == 8).expect("an id");
                    self.run(&["forget", &id, step]);
                }
            }
            (8, Some(_)) => {
                let file = format!("{}.rath", self.name);
                self.run(&["export", &id, "--as", "bundle", "-o", &file]);
                self.run(&["import", &file]);
            }
            (9, Some(nth)) if self.sessions.len() > 3 => {
                self.run(&["gc", "--delete", &id]);
                self.sessions.remove(nth);
            }
            _ => self.ask(None),
        }
    }
}

/// Returns the number of answers in a log.
fn count_answers(log: &str) -> u64 {
    log.lines().filter(|line| line.contains("  assistant: ") || line.contains("  assistant calls ")).count() as u64
}

#[test]
fn many_processes_do_everything_on_one_store() {
    let seconds = count("RATH_SECONDS", 6);
    for_each_store("", |fixture: &Fixture| {
        let server = &ModelServer::start();
        // There is a store.
        fixture.work(None, "Begin.", "true");
        let end = Instant::now() + Duration::from_secs(seconds);
        let folder = fixture.path("");
        let work = |nth: usize| {
            let name = format!("w{nth}");
            let chance = Chance(seed() * 100 + nth as u64);
            let (sessions, commands) = (Vec::new(), 0);
            let mut worker = Worker { folder: &folder, store: fixture.store, server, name, chance, sessions, commands };
            while Instant::now() < end {
                worker.step();
            }
            worker
        };
        let workers: Vec<Worker<'_>> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..PROCESSES).map(|nth| scope.spawn(move || work(nth))).collect();
            running.into_iter().map(|running| running.join().expect("no command failed")).collect()
        });
        let commands: u64 = workers.iter().map(|worker| worker.commands).sum();
        eprintln!("{}: {commands} commands by {PROCESSES} at a time in {seconds} s", fixture.store);
        assert_eq!(fixture.code(&["verify"]), 0);
        let list = fixture.json(&["ls", "--all", "--json"]);
        for OwnSession { id, prompts, .. } in workers.iter().flat_map(|worker| &worker.sessions) {
            let log = fixture.out(&["log", "-v", id]);
            let words = prompts.last().and_then(|prompt| prompt.split_once(": ")).expect("a prompt").0;
            assert!(log.lines().next().is_some_and(|line| line.contains(words)), "{words}: {log}");
            let asked: u64 = prompts.iter().map(|prompt| server.answers_to(prompt)).sum();
            assert_eq!(asked, 2 * prompts.len() as u64, "{words}: the model was asked once for each turn");
            assert_eq!(count_answers(&log), asked, "{words}: every answer is on the record");
            let is_this = |it: &&Value| it["session"].as_str().is_some_and(|session| session.ends_with(id.as_str()));
            let listed = list.iter().find(is_this).expect("it is listed");
            let used = |kind: &str| listed["usage"][kind].as_u64().expect("a number");
            assert_eq!(used("input") + used("output"), asked * TOKENS, "{words}: every answer is on the bill");
        }
    });
}
