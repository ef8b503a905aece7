//! Files and directories that can no longer be read keep their last versions, and no restore touches them.

#![cfg(target_os = "linux")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use proptest::prelude::*;
use rath_workspace::{ChangeKind, Objects, Snapshot, TreeId, UntrackedReason, Workspace};

use super::support::Scratch;

const FILES: [&str; 7] = ["a", "d/a", "d/b", "d/e/a", "d/e/f/a", "d/e/f/b", "x/a"];
const DIRECTORIES: [&str; 4] = ["d", "d/e", "d/e/f", "x"];

/// Permissions without which a directory can be neither listed nor entered, not listed, or not entered.
const LOCKS: [u32; 4] = [0o000, 0o100, 0o400, 0o600];

/// The contents of files by their paths.
type Files = BTreeMap<&'static str, String>;

#[derive(Clone, Debug)]
enum Op {
    Write(usize, u8),
    Delete(usize),
    /// Removes a directory with everything below it.
    Remove(usize),
    LockFile(usize),
    LockDirectory(usize, usize),
    UnlockFile(usize),
    UnlockDirectory(usize),
    Snapshot,
    /// Restores the tree of an earlier snapshot.
    Restore(usize),
    /// Opens the directory again, maybe after its index was lost.
    Reopen {
        without_index: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..FILES.len(), 0..9_u8).prop_map(|(file, content)| Op::Write(file, content)),
        1 => (0..FILES.len()).prop_map(Op::Delete),
        1 => (0..DIRECTORIES.len()).prop_map(Op::Remove),
        1 => (0..FILES.len()).prop_map(Op::LockFile),
        3 => (0..DIRECTORIES.len(), 0..LOCKS.len()).prop_map(|(dir, lock)| Op::LockDirectory(dir, lock)),
        1 => (0..FILES.len()).prop_map(Op::UnlockFile),
        2 => (0..DIRECTORIES.len()).prop_map(Op::UnlockDirectory),
        4 => Just(Op::Snapshot),
        3 => (0..8_usize).prop_map(Op::Restore),
        2 => any::<bool>().prop_map(|without_index| Op::Reopen { without_index }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 400, ..rath_test_support::property(40) })]

    /// The law: a snapshot has the present version of what can be read and the last version of what cannot, and names the latter; a
    /// restore that would touch it fails and changes nothing.
    #[test]
    fn what_cannot_be_read_keeps_its_last_version(ops in prop::collection::vec(op(), 1..40)) {
        rath_test_support::as_ordinary_user(|| {
            let mut program = Program::new();
            ops.iter().for_each(|op| program.run(op));
            program.end();
        });
    }
}

/// A directory in which another program works, which knows how to unlock what it has locked.
struct Program {
    scratch: Scratch,
    workspace: Option<Workspace>,
    locks: BTreeMap<&'static str, u32>,
    last: Option<Snapshot>,
    trees: Vec<TreeId>,
    /// True if the index was lost since the last snapshot, and with it the files of which no version is stored.
    lost_index: bool,
}

impl Program {
    fn new() -> Self {
        let scratch = Scratch::new();
        let workspace = Some(scratch.workspace());
        Program { scratch, workspace, locks: BTreeMap::new(), last: None, trees: Vec::new(), lost_index: false }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Write(file, content) => self.with_access(|root| {
                let path = root.join(FILES[file]);
                fs::create_dir_all(path.parent().expect("a parent")).expect("created");
                fs::write(path, format!("{content}\n")).expect("written");
            }),
            Op::Delete(file) => {
                self.with_access(|root| _ = fs::remove_file(root.join(FILES[file])));
                self.locks.remove(FILES[file]);
            }
            Op::Remove(directory) => {
                let directory = DIRECTORIES[directory];
                self.with_access(|root| _ = fs::remove_dir_all(root.join(directory)));
                self.locks.retain(|path, _| !is_within(path, directory));
            }
            Op::LockFile(file) => self.set_lock(FILES[file], Some(0)),
            Op::LockDirectory(directory, lock) => self.set_lock(DIRECTORIES[directory], Some(LOCKS[lock])),
            Op::UnlockFile(file) => self.set_lock(FILES[file], None),
            Op::UnlockDirectory(directory) => self.set_lock(DIRECTORIES[directory], None),
            Op::Snapshot => self.snapshot(),
            Op::Restore(nth) => self.restore(nth),
            Op::Reopen { without_index } => {
                self.workspace = None;
                if without_index {
                    let _ = fs::remove_file(self.scratch.index());
                    self.lost_index = true;
                }
                let mut workspace = self.scratch.workspace();
                self.last.iter().for_each(|last| workspace.assume(last.tree));
                self.workspace = Some(workspace);
            }
        }
    }

    /// Unlocks everything: the next snapshot has all that is there.
    fn end(mut self) {
        for path in self.locks.clone().into_keys() {
            self.set_lock(path, None);
        }
        self.snapshot();
    }

    fn with_access<T>(&self, work: impl FnOnce(&Path) -> T) -> T {
        let set =
            |path: &str, mode| _ = fs::set_permissions(self.scratch.root.join(path), fs::Permissions::from_mode(mode));
        // By path: a directory comes before what is in it.
        self.locks.keys().for_each(|path| set(path, 0o755));
        let done = work(&self.scratch.root);
        self.locks.iter().rev().for_each(|(path, mode)| set(path, *mode));
        done
    }

    fn set_lock(&mut self, path: &'static str, lock: Option<u32>) {
        let set = |root: &Path| fs::set_permissions(root.join(path), fs::Permissions::from_mode(0o755)).is_ok();
        self.locks.remove(path);
        if self.with_access(set) {
            self.locks.extend(lock.map(|mode| (path, mode)));
            self.with_access(|_| ());
        }
    }

    fn on_disk(&self) -> Files {
        self.with_access(|root| {
            FILES.into_iter().filter_map(|path| Some((path, fs::read_to_string(root.join(path)).ok()?))).collect()
        })
    }

    /// Returns the locked directories above a path, from the outermost in.
    fn locks_above<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'static str, u32)> + 'a {
        self.locks
            .iter()
            .filter(move |(lock, _)| **lock != path && is_within(path, lock))
            .map(|(at, mode)| (*at, *mode))
    }

    fn is_readable(&self, path: &str) -> bool {
        !self.locks.contains_key(path) && self.locks_above(path).next().is_none()
    }

    /// Returns the files that the next snapshot is to have.
    fn expected(&self, disk: &Files) -> Files {
        let last = self.last.as_ref().map(|last| files(&self.scratch.objects, last.tree)).unwrap_or_default();
        let mut expected = Files::new();
        for path in FILES {
            let is_known_to_be_gone = match self.locks_above(path).next() {
                None => !disk.contains_key(path),
                // The names in it can be seen.
                Some((above, mode)) if mode & 0o400 != 0 => {
                    let name = path[above.len() + 1..].split('/').next().expect("a name");
                    self.with_access(|root| !root.join(above).join(name).exists())
                }
                Some(_) => false,
            };
            let version = if self.is_readable(path) { disk.get(path) } else { last.get(path) };
            expected.extend(version.filter(|_| !is_known_to_be_gone).map(|version| (path, version.clone())));
        }
        expected
    }

    fn snapshot(&mut self) {
        let disk = self.on_disk();
        let expected = self.expected(&disk);
        let workspace = self.workspace.as_mut().expect("open");
        let snapshot = workspace.snapshot().expect("a snapshot");
        let workspace = self.workspace.as_ref().expect("open");
        assert_eq!(files(&self.scratch.objects, snapshot.tree), expected);
        let outdated = |snapshot: &Snapshot| -> BTreeSet<String> {
            let all = snapshot.outdated().into_iter();
            all.inspect(|(_, reason)| assert_eq!(*reason, UntrackedReason::Special)).map(|(path, _)| path).collect()
        };
        let unread: BTreeSet<String> =
            expected.keys().filter(|path| !self.is_readable(path)).map(|path| (*path).to_owned()).collect();
        assert_eq!(outdated(&snapshot), unread);
        if let Some(last) = &self.last {
            let changes = workspace.changes(last, &snapshot).expect("changes");
            for change in &changes {
                let is_known = !self.lost_index || change.before.is_some();
                let is_there = disk.contains_key(&*change.path);
                assert!(!is_there || !is_known || change.kind != ChangeKind::Deleted, "{change:?}");
            }
            for path in unread.difference(&outdated(last)) {
                let named = changes.iter().find(|change| change.path == *path);
                assert_eq!(named.and_then(|change| change.untracked), Some(UntrackedReason::Special), "{path}");
            }
        }
        self.lost_index = false;
        self.trees.push(snapshot.tree);
        self.last = Some(snapshot);
    }

    fn restore(&mut self, nth: usize) {
        self.snapshot();
        let (before, disk) = (self.last.clone().expect("a snapshot"), self.on_disk());
        let tree = self.trees[nth % self.trees.len()];
        let [now, wanted] = [before.tree, tree].map(|tree| files(&self.scratch.objects, tree));
        let is_touched = |path: &&str| now.get(*path) != wanted.get(*path);
        let can = FILES.iter().filter(|path| is_touched(path)).all(|path| self.is_readable(path));
        let restored = self.workspace.as_mut().expect("open").restore(&before, tree);
        assert_eq!(restored.is_ok(), can, "{restored:?}");
        let after = self.on_disk();
        for path in FILES {
            let expected = if can && self.is_readable(path) { wanted.get(path) } else { disk.get(path) };
            assert_eq!(after.get(path), expected, "{path}");
        }
        if let Ok(restored) = restored {
            assert_eq!(restored.tree, tree);
            self.last = Some(restored);
        }
        // A directory that is empty then is removed.
        let root = &self.scratch.root;
        let is_there = self.with_access(|_| DIRECTORIES.map(|path| root.join(path).exists()));
        self.locks.retain(|path, _| DIRECTORIES.iter().position(|known| known == path).is_none_or(|nth| is_there[nth]));
    }
}

fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn files(objects: &Objects, tree: TreeId) -> Files {
    let content =
        |path: &str| String::from_utf8(objects.read(tree, path).expect("read").expect("there")).expect("UTF-8");
    let files = objects.files(tree).expect("a tree").into_iter();
    files.map(|file| (*FILES.iter().find(|known| **known == file.path).expect("known"), content(&file.path))).collect()
}
