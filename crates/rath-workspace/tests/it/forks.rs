//! Forks of large workspaces, which share files and are still independent.

use std::fs;
use std::path::PathBuf;

use rath_workspace::{ErrorKind, ForkMethod, Workspace};

use super::support::Scratch;

/// Returns a workspace with enough files for an overlay.
fn large() -> Scratch {
    let scratch = Scratch::new();
    for nth in 0..1_200 {
        let folder = scratch.root.join(format!("d{}", nth / 100));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(format!("{nth}.txt")), format!("file {nth}\n")).expect("written");
    }
    scratch
}

fn fork_paths(scratch: &Scratch, name: &str) -> (PathBuf, PathBuf) {
    (scratch.folder.path().join(name), scratch.folder.path().join(format!("{name}.index")))
}

#[test]
fn forks_of_a_large_workspace_are_independent_and_durable() {
    let scratch = large();
    let mut origin = scratch.workspace();
    let tree = origin.snapshot().expect("a snapshot").tree;
    let [one, two] = ["one", "two"].map(|name| fork_paths(&scratch, name));
    let mut first = origin.fork(tree, &one.0, &one.1).expect("a fork");
    let mut second = origin.fork(tree, &two.0, &two.1).expect("a fork");
    assert_eq!(first.snapshot().expect("a snapshot").tree, tree);

    fs::write(one.0.join("d0/0.txt"), "one\n").expect("written");
    fs::remove_file(one.0.join("d0/1.txt")).expect("removed");
    fs::rename(one.0.join("d1"), one.0.join("moved")).expect("renamed");
    fs::write(scratch.root.join("d0/2.txt"), "origin\n").expect("written");
    let changed = first.snapshot().expect("a snapshot").tree;
    let diff = scratch.objects.diff(Some(tree), changed).expect("a diff");
    assert_eq!(diff.len(), 102, "{diff:?}");
    assert_eq!(second.snapshot().expect("a snapshot").tree, tree);
    assert_eq!(fs::read_to_string(one.0.join("d0/2.txt")).expect("read"), "file 2\n");

    // A fork that is opened again has its changes.
    drop((first, second));
    let mut again = Workspace::open_fork(&one.0, &scratch.objects, &one.1).expect("opened");
    assert_eq!(again.snapshot().expect("a snapshot").tree, changed);
    let also = Workspace::open_fork(&one.0, &scratch.objects, &fork_paths(&scratch, "also").1).expect("opened");
    drop(again);
    assert!(one.0.join("moved/100.txt").exists(), "another workspace is still open");
    drop(also);
    let mut third = Workspace::open_fork(&two.0, &scratch.objects, &two.1).expect("opened");
    assert_eq!(third.snapshot().expect("a snapshot").tree, tree);

    // A similar tree shares the base version.
    let [near, far] = ["near", "far"].map(|name| fork_paths(&scratch, name));
    let mut near = origin.fork(changed, &near.0, &near.1).expect("a fork");
    assert_eq!(near.last_snapshot().expect("known").tree, changed);
    assert_eq!(near.snapshot().expect("a snapshot").tree, changed);
    for nth in 0..1_200 {
        fs::write(scratch.root.join(format!("d{}/{nth}.txt", nth / 100)), format!("other {nth}\n")).expect("written");
    }
    let other = origin.snapshot().expect("a snapshot").tree;
    let mut far = origin.fork(other, &far.0, &far.1).expect("a fork");
    assert_eq!(far.snapshot().expect("a snapshot").tree, other);
    assert_eq!(near.snapshot().expect("a snapshot").tree, changed);
}

#[test]
fn an_unfinished_fork_is_created_again() {
    let scratch = large();
    let mut origin = scratch.workspace();
    let tree = origin.snapshot().expect("a snapshot").tree;
    let (into, index) = fork_paths(&scratch, "fork");
    drop(origin.fork(tree, &into, &index).expect("a fork"));
    assert!(Workspace::is_fork(&into));
    let error = origin.fork(tree, &into, &index).expect_err("it is there");
    assert_eq!(error.kind(), ErrorKind::Io);
    let layers = scratch.folder.path().join("fork.layers");
    if ForkMethod::detect(&scratch.root) != ForkMethod::Overlay {
        return assert!(!layers.exists());
    }
    // As if the process had stopped before the end.
    fs::remove_file(layers.join("below")).expect("removed");
    assert!(!Workspace::is_fork(&into));
    let mut fork = origin.fork(tree, &into, &index).expect("a fork");
    assert_eq!(fork.snapshot().expect("a snapshot").tree, tree);
    // A missing base version is an error: the fork is not treated as an empty directory.
    drop(fork);
    fs::remove_dir_all(scratch.objects.folder().join("versions")).expect("removed");
    let error = Workspace::open_fork(&into, &scratch.objects, &index).expect_err("the base version is missing");
    assert!(error.message().contains("is missing"), "{error}");
}

/// The name of an edit, and the edit of the directory of a base version.
type Edit = (&'static str, fn(PathBuf));

/// A base version may come from elsewhere, with the folder of objects: a fork has the files of its tree all the same.
#[test]
fn a_fork_has_the_files_of_its_tree_also_if_its_base_version_was_changed() {
    let edits: [Edit; 7] = [
        ("changed", |files| fs::write(files.join("d0/0.txt"), "evil 0\n").expect("written")),
        ("changed, with its length and time", |files| {
            let path = files.join("d0/0.txt");
            let modified = fs::metadata(&path).and_then(|stat| stat.modified()).expect("a time");
            fs::write(&path, "evil 0\n").expect("written");
            fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(modified)).expect("set");
        }),
        ("added", |files| fs::write(files.join("d0/evil.txt"), "evil\n").expect("written")),
        ("added, and ignored", |files| fs::write(files.join("d0/evil.ignored"), "evil\n").expect("written")),
        ("removed", |files| fs::remove_file(files.join("d0/0.txt")).expect("removed")),
        ("left without its index", |files| fs::remove_file(files.with_file_name("index")).expect("removed")),
        ("copied with other times", |files| {
            let file = fs::File::options().write(true).open(files.join("d1/100.txt")).expect("opened");
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("set");
        }),
    ];
    let scratch = large();
    fs::write(scratch.root.join(".gitignore"), "*.ignored\n").expect("written");
    let mut origin = scratch.workspace();
    let versions = scratch.objects.folder().join("versions");
    for (what, edit) in edits {
        for is_similar in [false, true] {
            let tree = origin.snapshot().expect("a snapshot").tree;
            let names = [format!("{what} {is_similar} 1"), format!("{what} {is_similar} 2")];
            let [one, two] = names.each_ref().map(|name| fork_paths(&scratch, &name.replace(',', "")));
            drop(origin.fork(tree, &one.0, &one.1).expect("a fork"));
            if ForkMethod::detect(&scratch.root) != ForkMethod::Overlay {
                return assert!(!versions.exists());
            }
            origin.save().expect("saved");
            let base = fs::read_dir(&versions).expect("versions").next().expect("one").expect("an entry").path();
            edit(base.join("files"));
            if is_similar {
                fs::write(scratch.root.join("d1/100.txt"), what).expect("written");
            }
            // As in another process.
            let objects = rath_workspace::Objects::open(scratch.objects.folder()).expect("versions");
            let mut origin = Workspace::open(&scratch.root, &objects, &scratch.index()).expect("a workspace");
            let tree = origin.snapshot().expect("a snapshot").tree;
            let mut fork = origin.fork(tree, &two.0, &two.1).expect("a fork");
            let found = fork.snapshot().expect("a snapshot");
            assert_eq!((found.tree, found.untracked()), (tree, Vec::new()), "{what}");
            assert_eq!(fs::read_to_string(two.0.join("d0/0.txt")).expect("read"), "file 0\n", "{what}");
            drop(fork);
            fs::remove_dir_all(&versions).expect("removed");
        }
    }
}
