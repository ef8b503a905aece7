//! The directory and the record: after every operation, the directory that a session works in has the files that its record says.
//!
//! `RATH_SCRIPTS` sets how many programs are made up and run, and `RATH_SEED` the seed of the first.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rath::chunk::{Change, Resolution};
use rath::prelude::*;
use rath::turn::Next;
use rath::view;
use rath_test_support::{Chance, seeds};

use crate::files::files;
use crate::support::{block_on, folder, put, worker};

/// The operations of a program.
const OPERATIONS: [&str; 17] = [
    "run", "run", "run", "run", "run", "talk", "fork", "fork", "merge", "merge", "merge", "join", "restore", "reopen",
    "edit", "check", "update",
];

/// A command that lists the files with their content.
const LIST: &str = "find . -name .rath -prune -o -type f -print | cut -c3- | LC_ALL=C sort | \
    while read -r file; do echo \"$file: $(tr '\\n' '|' < \"$file\")\"; done";

/// The kinds of sandbox that the sessions of a program work in.
type Kind = fn(&Path) -> Sandbox;

/// A program that is made up, and the sessions that it has.
struct Program {
    chance: Chance,
    root: PathBuf,
    store: Option<Store>,
    uri: String,
    sessions: Vec<Session>,
    /// The operations so far.
    done: Vec<String>,
    /// The paths that the user changed in the project.
    edited: BTreeSet<String>,
}

impl Program {
    async fn begin(seed: u64, root: &Path, uri: String, kind: Kind) -> Self {
        let store = Store::open(&uri).await.expect("a store");
        let session = Session::user("go").to(kind(root)).record(&store).await.expect("recorded");
        let mut program = Program {
            chance: Chance(seed),
            root: root.to_owned(),
            store: Some(store),
            uri,
            sessions: vec![session],
            done: Vec::new(),
            edited: BTreeSet::new(),
        };
        // Half of the programs begin with a session that has never looked at its directory.
        if seed.is_multiple_of(2) {
            program.run(0).await;
        }
        program
    }

    /// Returns a command that changes a file which others change as well, or one that only it knows.
    fn command(&mut self) -> String {
        let nth = self.done.len();
        match self.chance.below(8) {
            0 => "rm -f a.txt".to_owned(),
            1 => "mkdir -p dir; mv b.txt dir/b.txt 2>/dev/null; true".to_owned(),
            2 => format!("sed -i s/3/{nth}/ lines.txt"),
            3 => format!("sed -i s/7/{nth}/ lines.txt"),
            4 => "true".to_owned(),
            _ => format!("mkdir -p made; echo {nth} > made/{nth}.txt; echo {nth} > a.txt"),
        }
    }

    fn pick(&mut self) -> usize {
        self.chance.below(self.sessions.len() as u64) as usize
    }

    async fn run(&mut self, at: usize) {
        let command = self.command();
        self.done.push(format!("run {at}: {command}"));
        let session = ready(self.sessions[at].clone());
        self.sessions[at] = worker(&[[command]]).run(session).await.expect("a run");
    }

    /// Runs the next operation.
    async fn step(&mut self) {
        let operation = OPERATIONS[self.chance.below(OPERATIONS.len() as u64) as usize];
        let at = self.pick();
        match operation {
            "run" => self.run(at).await,
            "talk" => {
                self.done.push(format!("talk {at}"));
                let session = ready(self.sessions[at].clone());
                self.sessions[at] = worker::<[&str; 0], _>(&[]).run(session).await.expect("a talk");
            }
            "fork" => {
                self.done.push(format!("fork {at}"));
                self.sessions.push(self.sessions[at].fork());
            }
            "merge" => {
                let other = self.pick();
                self.done.push(format!("merge {at} {other}"));
                let merged = self.sessions[at].merge(&self.sessions[other]).await.expect("a merge");
                let merged = self.decided(merged).await;
                match self.chance.below(3) {
                    0 => self.sessions.push(merged),
                    _ => self.sessions[at] = merged,
                }
            }
            "join" => {
                let (one, other) = (self.command(), self.command());
                self.done.push(format!("join {at}: {one}, {other}"));
                let (one, other) = (worker(&[[one]]), worker(&[[other]]));
                let branches = [Branch::new("one", &one), Branch::new("other", &other)];
                let results = fork_join(&ready(self.sessions[at].clone()), branches).await;
                let merged = results.merge().await.expect("a merge");
                self.sessions[at] = self.decided(merged).await;
            }
            "restore" => {
                let trees: Vec<_> = {
                    let trees = view::trees(self.sessions[at].as_record());
                    trees.history().iter().map(|tree| tree.step.id()).collect()
                };
                let Some(step) = trees.get(self.chance.below(trees.len() as u64) as usize) else { return };
                self.done.push(format!("restore {at} {}", step.short()));
                self.sessions[at].restore(*step).await.expect("restored");
            }
            "reopen" => self.reopen().await,
            "edit" => {
                let path = format!("edited{}.txt", self.chance.below(4));
                self.done.push(format!("edit {path}"));
                put(&self.root, &path, &format!("mine {}\n", self.done.len()));
                self.edited.insert(path);
            }
            "check" => {
                self.done.push(format!("check {at}"));
                self.sessions[at].check("true", &[]).await.expect("a check");
            }
            _ => {
                self.done.push(format!("update {at}"));
                self.sessions[at].update_files().await.expect("updated");
            }
        }
        self.compare(at).await;
    }

    /// Decides the conflicts of a merge.
    async fn decided(&mut self, mut merged: Session) -> Session {
        let paths: BTreeSet<_> = merged.conflicts().iter().map(|conflict| conflict.path.clone()).collect();
        for path in paths {
            let taken = if self.chance.below(2) == 0 { Resolution::Ours } else { Resolution::Theirs };
            self.done.push(format!("decide {path}: {taken:?}"));
            merged.decide(&path, taken).await.expect("decided");
        }
        merged
    }

    /// Closes the store, and opens all sessions again as another process does.
    async fn reopen(&mut self) {
        self.done.push("reopen".to_owned());
        let mut branches = Vec::new();
        for session in std::mem::take(&mut self.sessions) {
            // A fork that did nothing is not in the store.
            let mut session = session;
            session.push(Chunk::note("left"));
            session.durable().await.expect("durable");
            branches.push(session.id());
        }
        self.store.take().expect("open").close().await.expect("closed");
        let store = Store::open(&self.uri).await.expect("a store");
        for branch in branches {
            let resumed = store.resume(branch).await.expect("resumed");
            let session = resumed.accept_file_changes().expect("nothing else changed");
            self.compare_unused(&session).await;
            self.sessions.push(session);
        }
        self.store = Some(store);
    }

    /// Compares the files on the record of a session that was just opened with those in its directory.
    async fn compare_unused(&self, session: &Session) {
        // The files of a merge are written when they are first used.
        let is_written = |step: &rath::record::Step| {
            let is_merge = matches!(step.chunk(), Chunk::Merged(_) | Chunk::Decided(_));
            step.chunk().tree().map(|_| step.stamp().branch == session.id() && !is_merge)
        };
        let directory = session.working_directory().await.filter(|directory| directory.is_dir());
        let (Some(directory), Some(true)) = (directory, session.as_record().find_newest(is_written)) else { return };
        let then = rath_test_support::temp_dir();
        session.checkout(then.path().join("then")).await.expect("checked out");
        assert_eq!(files(&directory), files(&then.path().join("then")), "{:#?}\n{session}", self.done);
    }

    /// Compares the directory of a session with the files on its record.
    async fn compare(&mut self, at: usize) {
        // A look records changes that the user made.
        let session = ready(self.sessions[at].clone());
        let session = worker(&[[LIST]]).run(session).await.expect("a look");
        let found = session.as_record().newest_first().find_map(|step| match step.chunk() {
            Chunk::ToolResult(result) => Some(result.output.to_string()),
            _ => None,
        });
        let found = found.expect("a result");
        let told = format!("{:#?}", self.done);
        let then = rath_test_support::temp_dir();
        session.checkout(then.path().join("then")).await.expect("checked out");
        assert_eq!(found.trim(), files(&then.path().join("then")), "session {at}\n{told}");
        let mut has_tree = false;
        for step in session.as_record().steps() {
            has_tree |= step.chunk().tree().is_some();
            let is_answer = matches!(step.chunk(), Chunk::Assistant(_));
            assert!(has_tree || !is_answer, "session {at}: no files before step {}\n{told}", step.id());
            let Chunk::Observed(observed) = step.chunk() else { continue };
            for effect in &observed.effects {
                assert!(
                    self.edited.contains(&effect.path) && effect.change != Change::Deleted,
                    "session {at}: {} {:?} by others\n{told}",
                    effect.path,
                    effect.change,
                );
            }
        }
        self.sessions[at] = session;
    }
}

/// Returns a session that can be run.
fn ready(mut session: Session) -> Session {
    if session.next() == Next::Done {
        session.push(Chunk::user("go on"));
    }
    session
}

fn check(seed: u64, kind: Kind) {
    let project = folder(&[("a.txt", "a\n"), ("b.txt", "b\n"), ("lines.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")]);
    let stores = rath_test_support::temp_dir();
    let uri = match seed % 3 {
        0 => format!("jsonl:{}", stores.path().join("sessions").display()),
        _ => format!("sqlite:{}", stores.path().join("sessions.db").display()),
    };
    block_on(async {
        let mut program = Program::begin(seed, project.path(), uri, kind).await;
        for _ in 0..12 {
            program.step().await;
            if program.sessions.len() > 5 {
                let at = program.pick();
                program.done.push(format!("drop {at}"));
                program.sessions.remove(at);
            }
        }
    });
}

#[test]
fn the_directory_of_a_session_has_the_files_on_its_record() {
    seeds(30).for_each(|seed| {
        println!("seed {seed}");
        check(seed, |path| Sandbox::local(path));
    });
}

#[test]
fn the_directory_of_an_isolated_session_has_the_files_on_its_record() {
    let folder = rath_test_support::temp_dir();
    if let Err(error) = block_on(Sandbox::isolated(folder.path()).capabilities()) {
        return eprintln!("nothing is isolated here: {error}");
    }
    seeds(10).for_each(|seed| check(seed, |path| Sandbox::isolated(path)));
}
