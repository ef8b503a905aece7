//! Many processes on one store: no command fails because another process is at work, nothing of what each did is lost, and the
//! bill is what the models were asked.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rath_test_support::{Chance, count, seed};
use serde_json::{Value, json};

use crate::fixture::{Fixture, for_each_store};

/// The processes that run at a time.
const PROCESSES: usize = 8;

/// The tokens of one answer.
const TOKENS: u64 = 6;

/// A thread that runs commands, one process after the other.
struct Worker<'a> {
    folder: &'a Path,
    store: &'a str,
    name: String,
    chance: Chance,
    /// The sessions that this worker made and has not deleted, with the words that each must end with.
    sessions: Vec<(String, String)>,
    /// The number of answers of models in these sessions.
    answers: u64,
    commands: u64,
}

impl Worker<'_> {
    fn run(&mut self, args: &[&str]) -> Output {
        self.commands += 1;
        let mut command: Command = rath_test_support::program(env!("CARGO_BIN_EXE_rath"));
        let output = command.args(args).args(["--store", self.store]).current_dir(self.folder).output();
        let output = output.expect("rath runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: rath {}: {told}", self.name, args.join(" "));
        output
    }

    fn printed(&mut self, args: &[&str]) -> String {
        String::from_utf8(self.run(args).stdout).expect("UTF-8").trim().to_owned()
    }

    /// Lets a model answer, after a command that writes a file.
    fn ask(&mut self, session: Option<usize>) {
        let words = format!("words {} of {}", self.commands, self.name);
        let call = json!({"calls": [{"name": "shell", "arguments": {"command": format!("echo {words} > said.txt")}}],
                          "usage": {"input": 5, "output": 1}});
        let script = format!("{call}\n{}\n", json!({"text": words, "usage": {"input": 5, "output": 1}}));
        let file = format!("{}.jsonl", self.name);
        std::fs::write(self.folder.join(&file), script).expect("written");
        let model = format!("script:{file}");
        self.answers += 2;
        match session {
            Some(nth) => {
                let id = self.sessions[nth].0.clone();
                self.run(&["resume", &id, "Go on.", "--model", &model]);
                self.sessions[nth].1 = words;
            }
            None => {
                // Each session has a directory of its own.
                let directory = format!("{}-{}", self.name, self.commands);
                std::fs::create_dir(self.folder.join(&directory)).expect("a directory");
                let place = format!("local:{directory}");
                let told = self.run(&["run", "Begin.", "--model", &model, "--sandbox", &place]).stderr;
                let told = String::from_utf8(told).expect("UTF-8");
                let (_, id) = told.split_once("saved as ").expect("it says the id");
                let id = id.split(';').next().expect("an id").to_owned();
                self.sessions.push((id, words));
            }
        }
    }

    fn step(&mut self) {
        let some = (!self.sessions.is_empty()).then(|| self.chance.below(self.sessions.len() as u64) as usize);
        let id = some.map(|nth| self.sessions[nth].0.clone()).unwrap_or_default();
        match (self.chance.below(12), some) {
            (0, _) => _ = self.run(&["ls"]),
            (1, _) => _ = self.run(&["verify"]),
            (2, _) => _ = self.run(&["gc"]),
            (3..=5, Some(nth)) => self.ask(Some(nth)),
            (6, Some(_)) => _ = self.run(&["log", &id]),
            (7, Some(_)) => {
                let prompt = self.printed(&["log", &id]);
                let prompt = prompt.lines().find(|line| line.contains("user: Begin.")).map(str::to_owned);
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
                let ids: Vec<_> = self.sessions.iter().map(|(id, _)| id.clone()).collect();
                self.answers = ids.iter().map(|id| count_answers(&self.printed(&["log", id]))).sum();
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
        // There is a store.
        fixture.work(None, "Begin.", "true");
        let end = Instant::now() + Duration::from_secs(seconds);
        let folder = fixture.path("");
        let work = |nth: usize| {
            let name = format!("w{nth}");
            let chance = Chance(seed() * 100 + nth as u64);
            let (sessions, answers, commands) = (Vec::new(), 0, 0);
            let mut worker =
                Worker { folder: &folder, store: fixture.store, name, chance, sessions, answers, commands };
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
        for worker in &workers {
            let (mut billed, mut asked) = (0, 0);
            for (id, words) in &worker.sessions {
                let log = fixture.out(&["log", id]);
                assert!(log.lines().next().is_some_and(|line| line.contains(words.as_str())), "{words}: {log}");
                asked += count_answers(&log);
                let is_this =
                    |it: &&Value| it["session"].as_str().is_some_and(|session| session.ends_with(id.as_str()));
                let listed = list.iter().find(is_this).expect("it is listed");
                let used = |kind: &str| listed["usage"][kind].as_u64().expect("a number");
                billed += used("input") + used("output");
            }
            assert_eq!(asked, worker.answers, "{}: every answer is on the record", worker.name);
            assert_eq!(billed, asked * TOKENS, "{}: every answer is on the bill", worker.name);
        }
    });
}
