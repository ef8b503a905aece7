//! Directories and files that become unreadable and readable again: their last versions stay, they are named, and nothing that rath does
//! touches them or claims that they were compared.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rath::chunk::{Change, Verdict};
use rath::prelude::*;
use rath::record::Step;
use rath::view::{self, Freshness};
use rath_test_support::{Chance, seeds};

use crate::files::{effects, placed, work};
use crate::support::{block_on, folder, put};

const FILES: [&str; 5] = ["a.txt", "d/a.txt", "d/e/a.txt", "d/e/b.txt", "x/a.txt"];
const DIRECTORIES: [&str; 3] = ["d", "d/e", "x"];
const OPERATIONS: [&str; 10] = ["edit", "edit", "lock", "lock", "unlock", "run", "restore", "merge", "check", "reopen"];

/// Sets the permissions of a path. Below a directory that is still locked, they stay.
fn set_mode(root: &Path, path: &str, mode: u32) {
    let _ = std::fs::set_permissions(root.join(path), std::fs::Permissions::from_mode(mode));
}

/// A session, and a user who works in its directory and locks parts of it.
struct Program {
    chance: Chance,
    folder: rath_test_support::TempDir,
    session: Session,
    locked: BTreeSet<&'static str>,
    done: Vec<String>,
}

impl Program {
    fn begin(seed: u64) -> Self {
        let folder = folder(&FILES.map(|path| (path, "0\n")));
        let session = work(placed(&folder), &[&["true"]]);
        Program { chance: Chance(seed), folder, session, locked: BTreeSet::new(), done: Vec::new() }
    }

    fn with_access<T>(&self, work: impl FnOnce(&Path) -> T) -> T {
        let root = self.folder.path();
        self.locked.iter().for_each(|path| set_mode(root, path, 0o755));
        let done = work(root);
        self.locked.iter().rev().for_each(|path| set_mode(root, path, 0));
        done
    }

    fn on_disk(&self) -> BTreeMap<&'static str, String> {
        self.with_access(|root| {
            FILES.into_iter().filter_map(|path| Some((path, std::fs::read_to_string(root.join(path)).ok()?))).collect()
        })
    }

    fn is_readable(&self, path: &str) -> bool {
        !self.locked.iter().any(|lock| view::covers(lock, path))
    }

    /// Does something at random, and checks the law.
    fn step(&mut self) {
        let operation = OPERATIONS[self.chance.below(OPERATIONS.len() as u64) as usize];
        self.done.push(operation.to_owned());
        let (before, steps) = (self.on_disk(), self.session.as_record().steps().len());
        let tree = self.session.tree();
        self.operate(operation);
        let after = self.on_disk();
        if operation != "edit" {
            for path in FILES.into_iter().filter(|path| !self.is_readable(path)) {
                assert_eq!(before.get(path), after.get(path), "{path} was touched: {:?}", self.done);
            }
        }
        // A merged session may work in a directory of its own, in which nothing is locked.
        if block_on(self.session.working_directory()).as_deref() != Some(self.folder.path()) {
            return;
        }
        if tree.is_none() || steps > self.session.as_record().steps().len() {
            return;
        }
        let record = block_on(self.session.record_of_now()).expect("the files can be seen");
        let new = record.steps().into_iter().skip(steps);
        for effect in new.flat_map(|step| step.chunk().effects().to_vec()) {
            let is_there = after.contains_key(&*effect.path) || before.contains_key(&*effect.path);
            let is_locked = !self.is_readable(&effect.path);
            assert!(!(is_there && is_locked && effect.change == Change::Deleted), "{effect:?}: {:?}", self.done);
        }
        let named: BTreeSet<String> = newest_unkept(&record.steps());
        for path in FILES.into_iter().filter(|path| after.contains_key(path) && !self.is_readable(path)) {
            assert!(named.contains(path), "{path} is not named: {:?}\n{}", self.done, effects(&self.session));
        }
        for (name, check) in view::checks(&record).list {
            let is_locked = check.checked.inputs.iter().any(|input| !self.is_readable(input));
            assert!(!is_locked || check.freshness == Freshness::Stale, "{name} holds: {:?}", self.done);
        }
    }

    fn operate(&mut self, operation: &str) {
        let file = FILES[self.chance.below(FILES.len() as u64) as usize];
        let directory = DIRECTORIES[self.chance.below(DIRECTORIES.len() as u64) as usize];
        let content = format!("{}\n", self.chance.below(5));
        match operation {
            "edit" => self.with_access(|root| put(root, file, &content)),
            "lock" => {
                let path = if self.chance.below(3) == 0 { file } else { directory };
                if self.with_access(|root| root.join(path).exists()) {
                    self.with_access(|root| set_mode(root, path, 0o755));
                    self.locked.insert(path);
                    self.with_access(|_| ());
                }
            }
            "unlock" => {
                if let Some(path) = self.locked.iter().nth(self.chance.below(3) as usize).copied() {
                    self.locked.remove(path);
                    self.with_access(|root| set_mode(root, path, 0o755));
                }
            }
            "run" => {
                let command = format!("echo {} > run.txt; echo 1 > {file} || true", self.chance.below(5));
                self.session = work(self.session.clone(), &[&[command.as_str()]]);
            }
            "restore" => {
                let steps = self.session.as_record().steps();
                let trees: Vec<_> =
                    steps.iter().filter(|step| step.chunk().tree().is_some()).map(|step| step.id()).collect();
                let at = trees[self.chance.below(trees.len() as u64) as usize];
                // It fails where it would touch what cannot be read.
                let _ = block_on(self.session.restore(at));
            }
            "merge" => {
                let fork = work(self.session.fork(), &[&[&format!("echo {content} > {file}; echo f > fork.txt")]]);
                // So does the next turn: the directory stays as it is.
                let Ok(merged) = block_on(self.session.merge(&fork)) else { return };
                if merged.conflicts().is_empty() && block_on(merged.update_files()).is_ok() {
                    self.session = merged;
                }
            }
            "check" => _ = block_on(self.session.check(&format!("true # {file}"), &[file.to_owned()])),
            _ => self.session = Session::resume_own(self.session.as_record().clone()),
        }
    }
}

/// Returns the files of which the newest step about them says that their content is not kept.
fn newest_unkept(steps: &[&Step]) -> BTreeSet<String> {
    let mut newest = BTreeMap::new();
    for effect in steps.iter().flat_map(|step| step.chunk().effects()) {
        newest.insert(effect.path.clone(), effect.unkept.is_some());
    }
    newest.into_iter().filter(|(_, unkept)| *unkept).map(|(path, _)| path).collect()
}

#[test]
fn what_cannot_be_read_is_neither_touched_nor_said_to_be_compared() {
    rath_test_support::as_ordinary_user(|| {
        for seed in seeds(3) {
            let mut program = Program::begin(seed);
            for _ in 0..14 {
                program.step();
            }
            program.with_access(|_| ());
            let locked = std::mem::take(&mut program.locked);
            locked.iter().for_each(|path| set_mode(program.folder.path(), path, 0o755));
        }
    });
}

#[test]
fn a_check_that_cannot_read_its_input_does_not_hold_when_it_can_be_read_again() {
    rath_test_support::as_ordinary_user(|| {
        let folder = folder(&[("d/a.txt", "1\n"), ("b.txt", "1\n")]);
        let mut session = work(placed(&folder), &[&["true"]]);
        set_mode(folder.path(), "d", 0);
        for (command, input) in [("true", "d/a.txt"), ("true b", "b.txt")] {
            assert_eq!(block_on(session.check(command, &[input.to_owned()])).expect("it ran"), Verdict::Passed);
        }
        set_mode(folder.path(), "d", 0o755);
        for session in [session.clone(), Session::resume_own(session.as_record().clone())] {
            block_on(session.require_check("true")).expect_err("the file may have been another one");
            block_on(session.require_check("true b")).expect("its input was compared");
        }
    });
}
