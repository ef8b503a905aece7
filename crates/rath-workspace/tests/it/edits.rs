//! Random edits of a directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::support::{path, restore};

/// One edit of a directory.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    Write(EditPath, u8),
    /// Writes different bytes of the same length, and restores the modification time.
    WriteSameSize(EditPath, u8),
    Remove(EditPath),
    Link(EditPath, u8),
    Toggle(EditPath),
    Directory(EditPath),
    Move(EditPath, EditPath),
    Pipe(EditPath),
    Ignore(Vec<u8>, Vec<usize>),
    Git(Vec<u8>),
}

/// One to three names.
pub(crate) type EditPath = Vec<u8>;

const NAMES: [&[u8]; 12] =
    [b"a", b"b", b"ab", b"a.b", b"a-b", b"sub", b"Sub", b"x.log", b"y.log", b"caf\xe9", "\u{fc}".as_bytes(), b"z z"];

pub(crate) const RULES: [&str; 20] = [
    "*.log", "!x.log", "/a", "a/", "sub", "b/a", "**/ab", "a/**", "a/**/b", "*", "!*/", "!a", "?", "[ab]", "[!a]*",
    "sub/*", "z\\ z", "x.log ", "# no", "\\!x",
];

pub(crate) fn edits(max: usize) -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec(edit(), 1..max)
}

fn place() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..NAMES.len(), 1..4)
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        8 => (place(), any::<u8>()).prop_map(|(at, text)| Edit::Write(bytes(at), text)),
        3 => (place(), any::<u8>()).prop_map(|(at, text)| Edit::WriteSameSize(bytes(at), text)),
        3 => place().prop_map(|at| Edit::Remove(bytes(at))),
        1 => (place(), any::<u8>()).prop_map(|(at, to)| Edit::Link(bytes(at), to)),
        1 => place().prop_map(|at| Edit::Toggle(bytes(at))),
        1 => place().prop_map(|at| Edit::Directory(bytes(at))),
        3 => (place(), place()).prop_map(|(from, to)| Edit::Move(bytes(from), bytes(to))),
        1 => place().prop_map(|at| Edit::Pipe(bytes(at))),
        2 => (prop::collection::vec(0..NAMES.len(), 0..3), prop::collection::vec(0..RULES.len(), 0..4))
            .prop_map(|(at, rules)| Edit::Ignore(bytes(at), rules)),
        1 => place().prop_map(|at| Edit::Git(bytes(at))),
    ]
}

fn bytes(names: Vec<usize>) -> EditPath {
    names.into_iter().map(|name| NAMES[name]).collect::<Vec<_>>().join(&b'/')
}

/// Applies an edit, if it is possible.
pub(crate) fn apply(root: &Path, edit: &Edit) {
    match edit {
        Edit::Write(at, text) => {
            let at = make_room(root, at);
            fs::write(at, content(*text)).expect("written");
        }
        Edit::WriteSameSize(at, text) => {
            let at = root.join(path(at));
            let Ok(found) = fs::symlink_metadata(&at) else { return };
            if !found.is_file() {
                return;
            }
            let mut bytes = fs::read(&at).expect("read");
            bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(*text));
            fs::write(&at, bytes).expect("written");
            let file = fs::File::options().write(true).open(&at).expect("open");
            file.set_modified(found.modified().expect("a time")).expect("set");
        }
        Edit::Remove(at) => remove(&root.join(path(at))),
        Edit::Link(at, to) => {
            let at = make_room(root, at);
            symlink(path(NAMES[usize::from(*to) % NAMES.len()]), at).expect("a link");
        }
        Edit::Toggle(at) => {
            let at = root.join(path(at));
            let Ok(found) = fs::symlink_metadata(&at) else { return };
            if found.is_file() {
                fs::set_permissions(&at, fs::Permissions::from_mode(found.permissions().mode() ^ 0o111)).expect("set");
            }
        }
        Edit::Directory(at) => {
            fs::create_dir(make_room(root, at)).expect("a directory");
        }
        Edit::Move(from, to) => {
            let from = root.join(path(from));
            if fs::symlink_metadata(&from).is_err()
                || root.join(path(to)).starts_with(&from)
                || from.starts_with(root.join(path(to)))
            {
                return;
            }
            let to = make_room(root, to);
            if fs::symlink_metadata(&from).is_ok() {
                fs::rename(from, to).expect("moved");
            }
        }
        Edit::Pipe(at) => {
            let at = make_room(root, at);
            rustix::fs::mkfifoat(rustix::fs::CWD, &at, rustix::fs::Mode::RWXU).expect("a pipe");
        }
        Edit::Ignore(at, rules) => {
            let rules: Vec<_> = rules.iter().map(|rule| RULES[*rule]).collect();
            let at = if at.is_empty() { b".gitignore".to_vec() } else { [at, &b"/.gitignore"[..]].concat() };
            fs::write(make_room(root, &at), rules.join("\n")).expect("written");
        }
        Edit::Git(at) => {
            let at = make_room(root, &[at, &b"/.git/HEAD"[..]].concat());
            fs::write(at, content(0)).expect("written");
        }
    }
}

/// Returns lines; similar numbers share most of them.
fn content(text: u8) -> String {
    if text < 10 {
        return String::new();
    }
    (0..20).map(|line| format!("line {line} of {}\n", if line == 7 { text } else { text / 16 })).collect()
}

/// Returns a path whose parent directories exist and that is free.
fn make_room(root: &Path, at: &[u8]) -> PathBuf {
    let mut dir = root.to_owned();
    let mut names = at.split(|byte| *byte == b'/').peekable();
    while let Some(name) = names.next() {
        dir.push(path(name));
        let is_directory = fs::symlink_metadata(&dir).is_ok_and(|found| found.is_dir());
        if names.peek().is_none() {
            remove(&dir);
        } else if !is_directory {
            remove(&dir);
            fs::create_dir(&dir).expect("a directory");
        }
    }
    dir
}

fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).expect("removed"),
        Ok(_) => fs::remove_file(path).expect("removed"),
        Err(_) => {}
    }
}

/// A file that has a stored version, and whose present content is not kept: it holds a secret, or it is too large.
#[test]
fn a_file_whose_present_version_is_not_kept_is_neither_deleted_nor_overwritten() {
    let contents: [&[u8]; 2] = [b"two secret-value\n", &[b'x'; 2000]];
    for content in contents {
        let temp = rath_test_support::temp_dir();
        let project = temp.path().join("project");
        std::fs::create_dir(&project).expect("a directory");
        let objects = rath_workspace::Objects::open(&temp.path().join("versions")).expect("objects");
        let index = temp.path().join("index");
        let open = || {
            let mut workspace = rath_workspace::Workspace::open(&project, &objects, &index).expect("a workspace");
            workspace.secret_finder(std::sync::Arc::new(|bytes| bytes.windows(12).any(|part| part == b"secret-value")));
            workspace.max_file_size(1000).expect("a limit")
        };
        let mut workspace = open();
        let empty = workspace.snapshot().expect("a snapshot").tree;
        std::fs::write(project.join("file"), "one\n").expect("written");
        let first = workspace.snapshot().expect("a snapshot");
        std::fs::write(project.join("file"), "one, changed\n").expect("written");
        let second = workspace.snapshot().expect("a snapshot");
        std::fs::write(project.join("file"), content).expect("written");
        let unkept = workspace.snapshot().expect("a snapshot");
        assert_eq!(unkept.tree, second.tree, "the last version that was kept");
        assert_eq!(workspace.changes(&second, &unkept).expect("changes").len(), 1, "that it changed is seen");
        assert_eq!(unkept.untracked().len(), 1);
        // Also by a later process.
        drop(workspace);
        let mut workspace = open();
        assert_eq!(workspace.snapshot().expect("a snapshot").tree, second.tree);
        restore(&mut workspace, second.tree).expect("nothing to do");
        for tree in [empty, first.tree] {
            restore(&mut workspace, tree).expect_err("it would be lost");
            assert_eq!(std::fs::read(project.join("file")).expect("a file"), content);
        }
        std::fs::write(project.join("file"), "three\n").expect("written");
        let kept = workspace.snapshot().expect("a snapshot");
        assert_eq!(objects.read(kept.tree, "file").expect("read").as_deref(), Some(&b"three\n"[..]));
        restore(&mut workspace, empty).expect("it is kept");
        assert!(!project.join("file").exists());
    }
}
