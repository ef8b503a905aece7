//! Commands are killed at random moments. What was done is on the record, nothing is done twice, and after the next command
//! no process, mount or temporary file is left.
//!
//! `RATH_KILLS` sets the number of kills for each store and sandbox.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rath_test_support::{Chance, count, seed, wait_until};
use serde_json::{Value, json};

use crate::fixture::{Fixture, for_each_store};
use crate::model_server::ModelServer;

/// A session, and the part of its past that was acknowledged.
#[derive(Clone)]
struct KnownSession {
    id: String,
    /// The names of the prompts that were answered.
    answered: Vec<String>,
    /// The sandbox that was given for it and for the session that it was forked from.
    place: String,
    directory: PathBuf,
    /// True if it was forked, or is a fork.
    is_shared: bool,
    /// True if the content of files was forgotten: a fork, a merge and a restore may need it.
    lacks_files: bool,
}

/// The end of a command.
struct KilledRun {
    /// None if the command was killed.
    status: Option<ExitStatus>,
    out: String,
    err: String,
}

struct Trial<'a> {
    fixture: &'a Fixture,
    server: &'a ModelServer,
    sandbox: &'static str,
    chance: Chance,
    sessions: Vec<KnownSession>,
    /// All ids that the store had when it was looked at last.
    ids: HashSet<String>,
    /// The calls that a person let run again.
    approved: HashMap<String, u64>,
    /// The time that each command takes when it is not killed.
    times: HashMap<String, Duration>,
    prompts: u64,
    /// The directories of sessions that did not come to the record.
    lonely: Vec<String>,
    /// The number of files that were looked at.
    looked_at: u64,
    kills: HashMap<String, u64>,
}

impl<'a> Trial<'a> {
    fn new(fixture: &'a Fixture, server: &'a ModelServer, sandbox: &'static str) -> Self {
        let chance = Chance(seed() * 1_000 + fixture.store.len() as u64 * 10 + sandbox.len() as u64);
        Trial {
            fixture,
            server,
            sandbox,
            chance,
            sessions: Vec::new(),
            ids: HashSet::new(),
            approved: HashMap::new(),
            times: HashMap::new(),
            prompts: 0,
            lonely: Vec::new(),
            looked_at: 0,
            kills: HashMap::new(),
        }
    }

    /// Runs a command. It is killed after `limit`.
    fn run_for(&mut self, args: &[&str], limit: Option<Duration>) -> KilledRun {
        let [out, err] = ["out", "err"].map(|name| self.fixture.path(name));
        let mut command = self.fixture.command(args);
        self.server.connect(&mut command);
        // Not pipes: a process that is left behind would hold them.
        command.stdout(File::create(&out).expect("a file")).stderr(File::create(&err).expect("a file"));
        let begun = Instant::now();
        let mut child = command.spawn().expect("rath runs");
        let status = loop {
            if let Some(status) = child.try_wait().expect("a status") {
                break Some(status);
            }
            if limit.is_some_and(|limit| begun.elapsed() >= limit) {
                child.kill().expect("killed");
                child.wait().expect("ended");
                break None;
            }
            std::thread::sleep(Duration::from_micros(300));
        };
        if status.is_some() {
            self.times.insert(args[0].to_owned(), begun.elapsed());
        }
        let read = |path| std::fs::read_to_string(path).expect("text");
        KilledRun { status, out: read(out), err: read(err) }
    }

    /// Runs a command to its end, which has to be good.
    fn run(&mut self, args: &[&str]) -> String {
        let ended = self.run_for(args, None);
        let is_good = ended.status.is_some_and(|status| status.success());
        if !is_good {
            let log = args.get(1).map(|id| self.run_for(&["log", "-v", id], None).out).unwrap_or_default();
            let KilledRun { status, out, err } = ended;
            panic!("{}: rath {}: {status:?}: {out}{err}{log}", self.describe(), args.join(" "));
        }
        ended.out
    }

    /// Runs a command, and kills it at any moment. None if it was killed.
    fn attempt(&mut self, args: &[&str]) -> Option<String> {
        let typical = self.times.get(args[0]).copied().unwrap_or(Duration::from_millis(60));
        let limit = Duration::from_micros(self.chance.below(typical.as_micros() as u64 * 6 / 5 + 1));
        let ended = self.run_for(args, Some(limit));
        let Some(status) = ended.status else {
            *self.kills.entry(args[0].to_owned()).or_default() += 1;
            return None;
        };
        assert!(status.success(), "{}: rath {}: {}", self.describe(), args.join(" "), ended.err);
        Some(ended.out)
    }

    fn describe(&self) -> String {
        format!("{}, {}, seed {}, prompt {}", self.fixture.store, self.sandbox, seed(), self.prompts)
    }

    fn total_kills(&self) -> u64 {
        self.kills.values().sum()
    }

    /// Returns true if a command came so far that there is a store.
    fn has_store(&mut self) -> bool {
        self.run_for(&["ls"], None).status.is_some_and(|status| status.success())
    }

    /// Returns the list of sessions.
    fn list(&mut self) -> Vec<Value> {
        self.run(&["ls", "--all", "--json"]).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Returns the sessions that are new in the store.
    fn new_ids(&mut self) -> Vec<String> {
        let ids: Vec<_> = self.list().iter().map(|it| it["session"].as_str().expect("an id").to_owned()).collect();
        ids.into_iter().filter(|id| self.ids.insert(id.clone())).collect()
    }

    /// Returns a new prompt: the name, and the text. Its calls leave lines that tell how often they were made.
    fn prompt(&mut self) -> (String, String) {
        self.prompts += 1;
        let name = format!("p{}", self.prompts);
        let pause = self.chance.below(20);
        let shell = |nth: u64| {
            let command = format!("mkdir -p did; echo x >> did/{name}.{nth}; sleep 0.0{pause:02}");
            json!({"name": "shell", "arguments": {"command": command}})
        };
        let write =
            |nth: u64| json!({"name": "write_file", "arguments": {"path": format!("did/{name}.{nth}"), "text": "x\n"}});
        let calls = match self.chance.below(3) {
            0 => vec![shell(0)],
            1 => vec![shell(0), shell(1), write(2)],
            _ => vec![write(0), write(1), write(2), shell(3)],
        };
        (name.clone(), format!("{name}: {}", json!(calls)))
    }

    /// Begins a session in a directory of its own.
    fn begin(&mut self, is_killed: bool) {
        let (name, prompt) = self.prompt();
        let directory = self.fixture.path(&format!("work-{name}"));
        std::fs::create_dir(&directory).expect("a directory");
        std::fs::write(directory.join("kept.txt"), "kept\n").expect("written");
        let place = format!("{}:work-{name}", self.sandbox);
        let args = ["run", &prompt, "--model", "openai:m", "--sandbox", &place, "--mode", "full"];
        let ended = if is_killed { self.attempt(&args) } else { Some(self.run(&args)) };
        let new = if self.has_store() { self.new_ids() } else { Vec::new() };
        let [id] = &new[..] else {
            assert!(ended.is_none() && new.is_empty(), "{}: it ran: {new:?}", self.describe());
            return self.lonely.push(format!("work-{name}"));
        };
        let (answered, is_shared, lacks_files) = (Vec::new(), false, false);
        self.sessions.push(KnownSession { id: id.clone(), answered, place, directory, is_shared, lacks_files });
        self.settle(self.sessions.len() - 1, &name, ended.is_some());
    }

    /// Continues a session.
    fn go_on(&mut self, nth: usize) {
        let (name, prompt) = self.prompt();
        let KnownSession { id, place, .. } = self.sessions[nth].clone();
        // A step that was forgotten may have been one that gave the session another place.
        let ended = self.attempt(&["resume", &id, &prompt, "--model", "openai:m", "--sandbox", &place]);
        self.settle(nth, &name, ended.is_some());
    }

    /// Ends the turn that was interrupted, and checks what is on the record.
    fn settle(&mut self, nth: usize, name: &str, is_answered: bool) {
        let KnownSession { id, place, .. } = self.sessions[nth].clone();
        if !is_answered {
            self.decide(&id);
            let list = self.list();
            let next = list.iter().find(|it| it["session"] == *id).map(|it| it["next"].clone());
            if next != Some(json!("done")) {
                self.run(&["resume", &id, "--model", "openai:m", "--sandbox", &place]);
            }
        }
        let log = self.run(&["log", "-v", &id]);
        match log.contains(&format!("assistant: {name}")) {
            true => self.sessions[nth].answered.push(name.to_owned()),
            // The prompt did not come to the record before the end.
            false => assert!(!is_answered && !log.contains(&format!("user: {name}:")), "{}: {log}", self.describe()),
        }
        self.check_session(nth);
    }

    /// Decides about the calls that were interrupted.
    fn decide(&mut self, id: &str) {
        // It fails while something waits.
        let open = self.run_for(&["review", id, "--json"], None).out;
        for line in open.lines() {
            let open: Value = serde_json::from_str(line).expect("JSON");
            let call = open["call"].as_str().expect("a call");
            if open["state"] != "interrupted" {
                continue;
            }
            match self.chance.below(3) {
                0 => {
                    self.run_for(&["review", id, "--approve", call], None);
                    *self.approved.entry(open["arguments"].to_string()).or_default() += 1;
                }
                1 => _ = self.run_for(&["review", id, "--skip", call], None),
                _ => _ = self.run_for(&["review", id, "--deny", call], None),
            }
        }
    }

    fn fork(&mut self, nth: usize) {
        self.sessions[nth].is_shared = true;
        let of = self.sessions[nth].clone();
        self.attempt(&["fork", &of.id]);
        for id in self.new_ids() {
            let directory = of.directory.join(".rath/work").join(&id);
            self.sessions.push(KnownSession { id, directory, ..of.clone() });
            self.check_session(self.sessions.len() - 1);
        }
    }

    /// Merges a session with a fork of it that has work of its own.
    fn merge(&mut self, nth: usize) {
        self.sessions[nth].is_shared = true;
        let ours = self.sessions[nth].clone();
        let fork = self.run(&["fork", &ours.id, "--json"]);
        let fork: Value = serde_json::from_str(&fork).expect("JSON");
        let id = fork["session"].as_str().expect("an id").to_owned();
        self.ids.insert(id.clone());
        let directory = ours.directory.join(".rath/work").join(&id);
        self.sessions.push(KnownSession { id: id.clone(), directory, ..ours.clone() });
        let at = self.sessions.len() - 1;
        self.go_on(at);
        let theirs = self.sessions.pop().expect("the fork");
        self.attempt(&["merge", &ours.id, &theirs.id]);
        for id in self.new_ids() {
            // The merge continues in the directory of ours.
            let mut merged = KnownSession { id, ..ours.clone() };
            merged.answered.extend(theirs.answered.iter().filter(|name| !ours.answered.contains(name)).cloned());
            self.sessions[nth] = merged;
            self.check_session(nth);
        }
    }

    /// Removes the text of the first prompt, or what a call has left.
    fn forget(&mut self, nth: usize) {
        let KnownSession { id, is_shared, .. } = self.sessions[nth].clone();
        let log = self.run(&["log", "-v", &id]);
        let results: Vec<_> =
            log.lines().filter(|line| line.contains("tool result: ") && line.contains(" +did")).collect();
        let line = match results.len() as u64 {
            // Other branches may need the files.
            1.. if !is_shared && self.chance.below(2) == 0 => {
                self.sessions[nth].lacks_files = true;
                results[self.chance.below(results.len() as u64) as usize]
            }
            _ => log.lines().last().expect("a step"),
        };
        let step = line.split_whitespace().find(|word| word.len() == 8).expect("an id").to_owned();
        if self.attempt(&["forget", &id, &step]).is_none() {
            self.run(&["forget", &id, &step]);
        }
        self.check_session(nth);
    }

    fn restore(&mut self, nth: usize) {
        let KnownSession { id, answered, .. } = self.sessions[nth].clone();
        let log = self.run(&["log", "-v", &id]);
        let steps: Vec<_> = log.lines().filter(|line| line.contains("tool result: ")).collect();
        if answered.is_empty() || steps.is_empty() {
            return;
        }
        let line = steps[self.chance.below(steps.len() as u64) as usize];
        let step = line.split_whitespace().find(|word| word.len() == 8).expect("an id");
        let at = format!("{id}@{step}");
        if self.attempt(&["restore", &at]).is_none() {
            self.run(&["restore", &at]);
        }
        self.check_session(nth);
    }

    /// Copies a session to a file and back.
    fn import(&mut self, nth: usize) {
        let id = self.sessions[nth].id.clone();
        self.run(&["export", &id, "--as", "bundle", "-o", "copy.rath"]);
        // Into a store of its own, where the session is new.
        let store = format!("{}-copy{}", self.fixture.store, self.prompts);
        let copy = Fixture::with_store(self.fixture, Box::leak(store.into_boxed_str()));
        let mut trial = Trial::new(&copy, self.server, self.sandbox);
        trial.times = self.times.clone();
        trial.chance = Chance(self.chance.below(u64::MAX));
        if trial.attempt(&["import", "copy.rath"]).is_none() {
            *self.kills.entry("import".to_owned()).or_default() += 1;
            trial.run(&["import", "copy.rath"]);
        }
        trial.run(&["verify"]);
        let [ours, theirs] = [self.run(&["log", "-v", &id]), trial.run(&["log", "-v", &id])];
        assert_eq!(ours.lines().count(), theirs.lines().count(), "{}", self.describe());
    }

    /// Checks the files and the record of a session.
    fn check_session(&mut self, nth: usize) {
        let KnownSession { id, answered, directory, .. } = self.sessions[nth].clone();
        let log = self.run(&["log", "-v", &id]);
        for name in &answered {
            assert!(log.contains(&format!("assistant: {name}")), "{}: {name} is lost: {log}", self.describe());
        }
        // The directory of a fork is made when a tool first needs it.
        let Ok(entries) = std::fs::read_dir(directory.join("did")) else { return };
        for entry in entries {
            self.looked_at += 1;
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let times = std::fs::read_to_string(&path).expect("text").lines().count() as u64;
            let is_it = |arguments: &str| arguments.contains(&format!("did/{name}"));
            let again: u64 = self.approved.iter().filter(|(call, _)| is_it(call)).map(|(_, times)| times).sum();
            assert!(times <= 1 + again, "{}: {name} was done {times} times: {log}", self.describe());
        }
    }

    /// Does one thing, at which it is killed.
    fn step(&mut self) {
        let some = self.sessions.len() as u64;
        if some == 0 || (some < 4 && self.chance.below(4) == 0) {
            return self.begin(true);
        }
        let nth = self.chance.below(some) as usize;
        match self.chance.below(16) {
            6..=10 if self.sessions[nth].lacks_files => self.go_on(nth),
            0..=5 => self.go_on(nth),
            6 | 7 => self.fork(nth),
            8 | 9 => self.merge(nth),
            10 => self.restore(nth),
            11 => self.forget(nth),
            12 => self.import(nth),
            13 if some > 3 => {
                let id = self.sessions.remove(nth).id;
                // A session that others rest on is not deleted.
                let limit = Duration::from_micros(self.chance.below(150_000));
                let ended = self.run_for(&["gc", "--delete", &id], Some(limit));
                *self.kills.entry("gc".to_owned()).or_default() += u64::from(ended.status.is_none());
                let left: HashSet<_> =
                    self.list().iter().map(|it| it["session"].as_str().expect("an id").to_owned()).collect();
                self.sessions.retain(|session| left.contains(&session.id));
            }
            _ => {
                if self.attempt(&["gc"]).is_none() {
                    self.run(&["gc"]);
                }
                (0..self.sessions.len()).for_each(|nth| self.check_session(nth));
            }
        }
    }

    /// Fails if there is anything that a killed process left.
    fn check_left(&mut self) {
        let folder = self.fixture.path("");
        let folder = folder.canonicalize().expect("a directory");
        // A process whose parent was killed ends at once, and not at the same moment.
        wait_until("no process is left", || processes(&folder).is_empty());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
        let shown = folder.to_string_lossy().replace(' ', "\\040");
        assert!(!mounts.contains(&shown), "{}: {mounts}", self.describe());
        let mut left = String::new();
        temporaries(&folder, &mut left);
        assert!(left.is_empty(), "{}: {left}", self.describe());
    }
}

/// Returns the processes that work in a directory, or were started for it.
fn processes(folder: &Path) -> Vec<String> {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| is_number(name));
    let works_there = |number: &String| {
        let process = Path::new("/proc").join(number);
        let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let is_there = std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        is_there || String::from_utf8_lossy(&command).contains(&*folder.to_string_lossy())
    };
    numbers.filter(|number| *number != own).filter(works_there).collect()
}

/// Writes down the temporary files below a directory.
fn temporaries(directory: &Path, left: &mut String) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let is_in_tmp = directory.ends_with("workspace/tmp");
        if is_in_tmp || name.starts_with("tmp_") || name.starts_with(".rath-") || name.ends_with(".tmp") {
            let _ = writeln!(left, "{}", path.display());
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            temporaries(&path, left);
        }
    }
}

#[test]
fn commands_that_are_killed_lose_nothing_repeat_nothing_and_leave_nothing() {
    let kills = count("RATH_KILLS", 6);
    let server = ModelServer::start();
    for sandbox in ["local", "isolated"] {
        for_each_store("", |fixture| {
            let begun = Instant::now();
            let mut trial = Trial::new(fixture, &server, sandbox);
            while trial.total_kills() < kills {
                trial.step();
                if !trial.sessions.is_empty() {
                    trial.run(&["verify"]);
                }
            }
            (0..trial.sessions.len()).for_each(|nth| trial.check_session(nth));
            // All may have been killed before they did anything: the files of this one have to be found.
            let before = trial.looked_at;
            trial.begin(false);
            assert!(trial.looked_at > before, "the files of calls are looked at");
            // The next command in each directory sweeps it.
            trial.run(&["gc"]);
            for directory in trial.lonely.clone() {
                trial.run(&["gc", "--directory", &directory]);
            }
            trial.check_left();
            let mut done: Vec<_> = trial.kills.iter().collect();
            done.sort();
            eprintln!("{}, {sandbox}: killed {done:?} in {:.0} s", fixture.store, begun.elapsed().as_secs_f32());
        });
    }
}
