//! Versions of a directory: snapshots, changes, merges, forks.
#![cfg(unix)]

mod edits;
mod forks;
mod hostile;
mod laws;
mod merge;
mod saved_meanwhile;
mod support;
mod sweep;
mod unread;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use expect_test::{Expect, expect};
use rath_workspace::{Objects, Workspace};

use self::support::{Scratch, changes_text, restore};

/// Applies changes to a directory, and compares the reported changes.
fn check(prepare: impl Fn(&Path), work: impl Fn(&Path), expected: Expect) {
    let scratch = Scratch::new();
    prepare(&scratch.root);
    let mut workspace = scratch.workspace();
    let before = workspace.snapshot().expect("a snapshot");
    work(&scratch.root);
    let after = workspace.snapshot().expect("a snapshot");
    expected.assert_eq(&changes_text(&workspace.changes(&before, &after).expect("changes")));
}

fn put(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
    fs::write(path, content).expect("a file");
}

const STORY: &str = "once\nupon\na\ntime\nthere\nwas\na\nfile\n";

#[test]
fn changes_are_reported_by_path() {
    check(
        |root| {
            put(&root.join("kept"), "same");
            put(&root.join("edited"), "one");
            put(&root.join("gone"), "bye");
            put(&root.join("src/old.rs"), STORY);
        },
        |root| {
            fs::write(root.join("edited"), "two").expect("written");
            fs::remove_file(root.join("gone")).expect("removed");
            put(&root.join("new/one"), "hello");
            fs::rename(root.join("src/old.rs"), root.join("src/new.rs")).expect("renamed");
            fs::write(root.join("src/new.rs"), STORY.replace("once", "twice")).expect("written");
        },
        expect![[r#"
            modified edited one -> two
            deleted gone bye -> -
            created new/one - -> hello
            renamed src/new.rs from src/old.rs once.. -> twice..
        "#]],
    );
}

#[test]
fn a_file_a_link_and_a_directory_can_replace_each_other() {
    check(
        |root| {
            put(&root.join("file"), "a file");
            put(&root.join("directory/inside"), "inside");
            put(&root.join("program"), "#!");
            symlink("file", root.join("link")).expect("a link");
        },
        |root| {
            fs::remove_file(root.join("file")).expect("removed");
            put(&root.join("file/inside"), "below");
            fs::remove_dir_all(root.join("directory")).expect("removed");
            symlink("elsewhere", root.join("directory")).expect("a link");
            fs::set_permissions(root.join("program"), fs::Permissions::from_mode(0o755)).expect("set");
            fs::remove_file(root.join("link")).expect("removed");
            put(&root.join("link"), "file");
        },
        expect![[r#"
            created directory - -> elsewhere
            deleted directory/inside inside -> -
            deleted file a file -> -
            created file/inside - -> below
            modified link file -> file
            modified program #! -> #!
        "#]],
    );
}

#[test]
fn untracked_paths_are_reported_with_the_reason() {
    check(
        |root| {
            put(&root.join(".gitignore"), "*.log\n/cache/\n");
            put(&root.join("a.log"), "1");
            put(&root.join("cache/one"), "1");
            put(&root.join("sub/.git/HEAD"), "ref");
            put(&root.join("sub/.git/refs/x"), "ref");
            put(&root.join(".git/HEAD"), "ref");
            put(&root.join(".git/objects/00/x"), "object");
            fs::create_dir(root.join("hollow")).expect("a directory");
            put(&root.join("grows"), "small");
            put(&root.join(".rath/ours"), "1");
        },
        |root| {
            put(&root.join("a.log"), "22");
            put(&root.join("cache/one"), "22");
            put(&root.join("cache/deep/two"), "2");
            put(&root.join("sub/.git/refs/x"), "another");
            put(&root.join("sub/.git/refs/y"), "another");
            put(&root.join(".git/objects/00/y"), "object");
            fs::remove_dir(root.join("hollow")).expect("removed");
            fs::create_dir_all(root.join("empty/below")).expect("a directory");
            rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), rustix::fs::Mode::RWXU).expect("a pipe");
            put(&root.join("grows"), vec![b'x'; 33 << 20]);
            put(&root.join("large"), vec![b'x'; 33 << 20]);
            put(&root.join(".rath/ours"), "2");
        },
        expect![[r#"
            modified a.log - -> - (ignored)
            created cache/deep/two - -> - (ignored)
            modified cache/one - -> - (ignored)
            created empty/below - -> - (empty directory)
            modified grows small -> - (too large)
            deleted hollow - -> - (empty directory)
            created large - -> - (too large)
            created pipe - -> - (special)
            modified sub/.git - -> - (ignored)
        "#]],
    );
}

#[test]
fn many_changes_in_an_ignored_directory_are_reported_as_one() {
    let many = |root: &Path, count: usize, text: &str| {
        (0..count).for_each(|nth| put(&root.join(format!("target/deep/{nth}")), text));
    };
    check(
        |root| {
            put(&root.join(".gitignore"), "target\nother\n");
            many(root, 30, "1");
            put(&root.join("other/x"), "1");
        },
        |root| {
            many(root, 30, "22");
            fs::remove_dir_all(root.join("other")).expect("removed");
        },
        expect![[r#"
            deleted other/x - -> - (ignored)
            modified target - -> - (ignored)
        "#]],
    );
    // Too many names: the directory is reported by its own metadata.
    check(
        |root| {
            put(&root.join(".gitignore"), "target\n");
            (0..10_100)
                .for_each(|nth| fs::write(created(&root.join("target")).join(nth.to_string()), "").expect("a file"));
        },
        |root| put(&root.join("target/one-more"), "1"),
        expect![[r#"
            modified target - -> - (ignored)
        "#]],
    );
}

fn created(path: &Path) -> &Path {
    fs::create_dir_all(path).expect("a directory");
    path
}

#[test]
fn a_file_that_becomes_ignored_is_no_longer_tracked() {
    check(
        |root| {
            put(&root.join("a.log"), "1");
            put(&root.join("out/b"), "2");
            put(&root.join("was.tmp"), "3");
            put(&root.join("sub/.gitignore"), "c\n");
            put(&root.join("sub/c"), "4");
        },
        |root| {
            put(&root.join(".gitignore"), "*.log\nout/\n");
            fs::remove_file(root.join("sub/.gitignore")).expect("removed");
        },
        expect![[r#"
            created .gitignore - -> *.log..
            modified a.log 1 -> - (ignored)
            modified out/b 2 -> - (ignored)
            deleted sub/.gitignore c.. -> -
            modified sub/c - -> 4
        "#]],
    );
}

#[test]
fn a_file_that_becomes_ignored_stays_tracked_where_that_is_wanted() {
    let folder = rath_test_support::temp_dir();
    let root = &folder.path().join("project");
    put(&root.join("a.log"), "1");
    put(&root.join("out/b"), "2");
    put(&root.join("out/deep/c"), "3");
    let objects = Objects::open(&folder.path().join("objects")).expect("objects");
    let index = folder.path().join("index");
    let mut workspace = Workspace::open(root, &objects, &index).expect("a workspace");
    let before = workspace.snapshot().expect("a snapshot");
    workspace.keep_tracked();
    put(&root.join(".gitignore"), "*\n");
    put(&root.join("out/.gitignore"), "*\n!c\n");
    let print = |changes: Vec<rath_workspace::FileChange>| {
        let print = |change: &rath_workspace::FileChange| format!("{:?} {}", change.kind, change.path);
        changes.iter().map(print).collect::<Vec<_>>().join(", ")
    };
    // The first walk sees the rules change, the second has seen them, the third is by another process.
    for round in 0..3 {
        put(&root.join("a.log"), format!("edited {round}"));
        put(&root.join("out/deep/c"), format!("edited {round}"));
        put(&root.join(format!("out/new{round}")), "new");
        if round == 2 {
            drop(workspace);
            workspace = Workspace::open(root, &objects, &index).expect("a workspace");
            workspace.keep_tracked();
        }
        let after = workspace.snapshot().expect("a snapshot");
        let files = objects.files(after.tree).expect("files");
        let names: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
        assert_eq!(names, ["a.log", "out/b", "out/deep/c"], "round {round}");
        let changed = print(objects.diff(Some(before.tree), after.tree).expect("a difference"));
        assert_eq!(changed, "Modified a.log, Modified out/deep/c", "round {round}");
    }
    // Whoever does not ask for it gets git's rules again.
    drop(workspace);
    let mut workspace = Workspace::open(root, &objects, &index).expect("a workspace");
    let fresh = workspace.snapshot().expect("a snapshot");
    assert_eq!(objects.files(fresh.tree).expect("files").len(), 0);
}

#[test]
fn a_file_that_is_no_longer_ignored_is_tracked_again() {
    check(
        |root| {
            put(&root.join(".gitignore"), "out\n");
            put(&root.join("out/deep/b"), "2");
        },
        |root| fs::remove_file(root.join(".gitignore")).expect("removed"),
        expect![[r#"
            deleted .gitignore out.. -> -
            modified out/deep/b - -> 2
        "#]],
    );
}

#[test]
fn names_that_are_not_utf8_are_tracked_and_reported() {
    use std::os::unix::ffi::OsStrExt as _;
    let name = |bytes: &'static [u8]| Path::new(std::ffi::OsStr::from_bytes(bytes));
    check(
        |root| put(&root.join("caf\u{e9}"), "text"),
        |root| {
            put(&root.join(name(b"caf\xe9")), "latin");
            put(&root.join(name(b"\"quoted\"")), "quoted");
            put(&root.join(name(b"a\nb\\")), "odd");
        },
        expect![[r#"
            created "\"quoted\"" - -> quoted
            created "caf\351" - -> latin
            created a
            b\ - -> odd
        "#]],
    );
    let scratch = Scratch::new();
    put(&scratch.root.join(name(b"caf\xe9")), "latin");
    let mut workspace = scratch.workspace();
    let tree = workspace.snapshot().expect("a snapshot").tree;
    let paths: Vec<_> = scratch.objects.files(tree).expect("files").into_iter().map(|file| file.path).collect();
    assert_eq!(paths, ["\"caf\\351\""]);
    assert_eq!(scratch.objects.read(tree, &paths[0]).expect("read"), Some(b"latin".to_vec()));
    assert_eq!(scratch.objects.read(tree, "caf").expect("read"), None);
}

#[test]
fn directories_can_be_nested_deeper_than_a_path_is_long() {
    let scratch = Scratch::new();
    let deep = |levels: usize, twig: bool| {
        let mut dir =
            rustix::fs::open(&scratch.root, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).expect("open");
        for _ in 0..levels {
            for name in ["deeper", "twig"].into_iter().take(1 + usize::from(twig)) {
                let _ = rustix::fs::mkdirat(&dir, name, rustix::fs::Mode::RWXU);
            }
            dir = rustix::fs::openat(&dir, "deeper", rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty())
                .expect("open");
        }
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
        drop(rustix::fs::openat(&dir, "file", flags, rustix::fs::Mode::RWXU).expect("a file"));
    };
    deep(1_500, true);
    let mut workspace = scratch.workspace();
    let before = workspace.snapshot().expect("a snapshot");
    assert_eq!(scratch.objects.files(before.tree).expect("files").len(), 1);
    let into = scratch.folder.path().join("out");
    scratch.objects.checkout(before.tree, &into).expect("written");
    let index = scratch.folder.path().join("out.index");
    assert_eq!(
        Workspace::open(&into, &scratch.objects, &index).expect("opened").snapshot().expect("a snapshot").tree,
        before.tree
    );
    // Deeper than git reads, a directory is reported and not tracked.
    deep(2_100, false);
    let after = workspace.snapshot().expect("a snapshot");
    assert_eq!(before.tree, after.tree);
    let changes = workspace.changes(&before, &after).expect("changes");
    assert_eq!(
        changes.iter().filter_map(|change| change.untracked).collect::<Vec<_>>(),
        [rath_workspace::UntrackedReason::Special]
    );
    // The shell cannot remove paths that are too long to name.
    for root in [&scratch.root, &into] {
        support::remove_deep(root);
    }
}

#[test]
fn a_change_that_keeps_size_and_time_is_found() {
    check(
        |root| put(&root.join("file"), "one"),
        |root| {
            let path = root.join("file");
            let modified = fs::metadata(&path).and_then(|found| found.modified()).expect("a time");
            fs::write(&path, "two").expect("written");
            fs::File::options().write(true).open(&path).expect("open").set_modified(modified).expect("set");
        },
        expect![[r#"
            modified file one -> two
        "#]],
    );
}

#[test]
fn a_missing_damaged_or_foreign_index_costs_only_time() {
    let scratch = Scratch::new();
    (0..50).for_each(|nth| put(&scratch.root.join(format!("d{}/{nth}", nth % 5)), nth.to_string()));
    put(&scratch.root.join(".gitignore"), "*.log\n");
    put(&scratch.root.join("a.log"), "1");
    let (tree, untracked) = {
        let mut workspace = scratch.workspace();
        let snapshot = workspace.snapshot().expect("a snapshot");
        (snapshot.tree, snapshot.untracked())
    };
    let reopened = scratch.workspace();
    let last = reopened.last_snapshot().expect("a last snapshot");
    assert_eq!((&last.tree, &last.untracked()), (&tree, &untracked));
    drop(reopened);
    let bytes = fs::read(scratch.index()).expect("an index");
    for nth in 0..200 {
        let mut damaged = bytes.clone();
        let at = nth * 7919 % damaged.len();
        damaged[at] ^= 1 << (nth % 8);
        if nth % 3 == 0 {
            damaged.truncate(at);
        }
        fs::write(scratch.index(), damaged).expect("written");
        let mut workspace = scratch.workspace();
        assert!(workspace.last_snapshot().is_none());
        assert_eq!(workspace.snapshot().expect("a snapshot").tree, tree);
    }
    // Another folder of versions: the objects that the index names do not exist there.
    let objects = Objects::open(&scratch.folder.path().join("others")).expect("versions");
    let mut workspace = Workspace::open(&scratch.root, &objects, &scratch.index()).expect("opened");
    assert_eq!(workspace.snapshot().expect("a snapshot").tree, tree);
    assert_eq!(objects.files(tree).expect("files").len(), 51);
    objects.read(tree, "d0/0").expect("read").expect("there");
}

#[test]
fn a_fork_is_an_independent_directory_with_the_same_files() {
    let scratch = Scratch::new();
    put(&scratch.root.join(".gitignore"), "*.log\n");
    put(&scratch.root.join("a.log"), "untracked");
    put(&scratch.root.join("small"), "small");
    put(&scratch.root.join("sub/large"), "large\n".repeat(10_000));
    put(&scratch.root.join("sub/program"), "#!");
    fs::set_permissions(scratch.root.join("sub/program"), fs::Permissions::from_mode(0o755)).expect("set");
    symlink("sub/large", scratch.root.join("link")).expect("a link");
    let mut workspace = scratch.workspace();
    let before = workspace.snapshot().expect("a snapshot");
    // Later changes are not in the fork, though the live directory contains them.
    put(&scratch.root.join("sub/large"), "other\n".repeat(10_000));
    let into = scratch.folder.path().join("fork");
    let index = scratch.folder.path().join("fork.index");
    let mut fork = workspace.fork(before.tree, &into, &index).expect("a fork");
    let there = fork.snapshot().expect("a snapshot");
    assert_eq!(there.tree, before.tree);
    assert!(there.untracked().is_empty());
    assert_eq!(fs::read_link(into.join("link")).expect("a link"), Path::new("sub/large"));
    put(&into.join("small"), "of the fork");
    assert_eq!(fs::read(scratch.root.join("small")).expect("read"), b"small");
    let after = fork.snapshot().expect("a snapshot");
    expect![[r#"
        modified small small -> of the fork
    "#]]
    .assert_eq(&changes_text(&fork.changes(&there, &after).expect("changes")));
    drop(fork);
    let reopened = Workspace::open(&into, &scratch.objects, &index).expect("opened");
    assert_eq!(reopened.last_snapshot().expect("a last snapshot").tree, after.tree);
}

#[test]
fn a_restore_writes_only_what_differs_and_leaves_untracked_files() {
    let scratch = Scratch::new();
    let root = &scratch.root;
    put(&root.join(".gitignore"), "*.log\n");
    put(&root.join("same"), "same");
    put(&root.join("edited"), "one");
    put(&root.join("gone/deep/file"), "back again");
    put(&root.join("shape"), "a file");
    symlink("same", root.join("link")).expect("a link");
    let mut workspace = scratch.workspace();
    let before = workspace.snapshot().expect("a snapshot");
    let same = fs::metadata(root.join("same")).expect("metadata");
    put(&root.join("edited"), "two");
    fs::remove_dir_all(root.join("gone")).expect("removed");
    fs::remove_file(root.join("shape")).expect("removed");
    put(&root.join("shape/now/a/directory"), "new");
    fs::create_dir_all(root.join("shape/hollow/twice")).expect("a directory");
    put(&root.join("new/file"), "new");
    put(&root.join("new/a.log"), "untracked");
    fs::remove_file(root.join("link")).expect("removed");
    let restored = restore(&mut workspace, before.tree).expect("restored");
    assert_eq!(restored.tree, before.tree);
    use std::os::unix::fs::MetadataExt as _;
    let now = fs::metadata(root.join("same")).expect("metadata");
    assert_eq!((same.ino(), same.ctime_nsec()), (now.ino(), now.ctime_nsec()));
    assert_eq!(fs::read(root.join("new/a.log")).expect("read"), b"untracked");
    assert!(!root.join("new/file").exists());
    assert_eq!(fs::read(root.join("shape")).expect("read"), b"a file");
}

#[test]
fn a_restore_that_would_overwrite_an_untracked_file_changes_nothing() {
    let scratch = Scratch::new();
    let root = &scratch.root;
    put(&root.join("a.log"), "old");
    put(&root.join("b"), "one");
    let mut workspace = scratch.workspace();
    let before = workspace.snapshot().expect("a snapshot");
    put(&root.join(".gitignore"), "*.log\n");
    put(&root.join("a.log"), "new, and untracked");
    put(&root.join("b"), "two");
    let error = restore(&mut workspace, before.tree).expect_err("an untracked file is in the way");
    expect![[r#"
        cannot restore `a.log`: the untracked file `a.log` is in the way
        hint: move or delete `a.log`"#]]
    .assert_eq(&format!("{error:?}"));
    assert_eq!(fs::read(root.join("b")).expect("read"), b"two");
    // A file that has the wanted content already is not in the way.
    put(&root.join("a.log"), "old");
    assert_eq!(restore(&mut workspace, before.tree).expect("restored").tree, before.tree);
}

#[test]
fn several_processes_can_write_to_one_folder_at_once() {
    let scratch = Scratch::new();
    let trees: Vec<_> = std::thread::scope(|scope| {
        let work = (0..4).map(|nth| {
            let scratch = &scratch;
            scope.spawn(move || {
                let root = scratch.folder.path().join(format!("root{nth}"));
                // Half of the files are the same for all, and enough for a pack.
                (0..100).for_each(|file| {
                    put(&root.join(format!("d/{file}")), (file * (nth * (file % 2) + 1)).to_string());
                });
                let objects = Objects::open(&scratch.folder.path().join("versions")).expect("versions");
                let index = scratch.folder.path().join(format!("index{nth}"));
                let mut workspace = Workspace::open(&root, &objects, &index).expect("opened");
                let tree = workspace.snapshot().expect("a snapshot").tree;
                objects.sync().expect("synced");
                tree
            })
        });
        work.collect::<Vec<_>>().into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let seen = Objects::open(&scratch.folder.path().join("versions")).expect("versions");
    for tree in &trees {
        for file in seen.files(*tree).expect("files") {
            seen.read(*tree, &file.path).expect("read").expect("there");
        }
        // A handle that was opened before the others wrote sees their objects.
        assert_eq!(scratch.objects.files(*tree).expect("files").len(), 100);
    }
    support::git(&seen, &["fsck", "--full", "--no-dangling"]);
}

#[test]
fn a_directory_can_be_written_to_during_a_snapshot() {
    let scratch = Scratch::new();
    put(&scratch.root.join("still"), "still");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let over = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let text = |nth: usize| format!("{nth:9}\n").repeat(20_000);
    std::thread::scope(|scope| {
        let writers = [
            scope.spawn(|| (0..).take_while(|_| !over()).for_each(|nth| put(&scratch.root.join("busy"), text(nth)))),
            scope.spawn(|| {
                for nth in (0..).take_while(|_| !over()) {
                    put(&scratch.root.join(format!("comes/{}/and/goes", nth % 3)), "x");
                    let _ = fs::remove_dir_all(scratch.root.join(format!("comes/{}", (nth + 1) % 3)));
                }
            }),
        ];
        let mut workspace = scratch.workspace();
        let looked = (0..30).try_for_each(|_| -> rath_workspace::Result<()> {
            let snapshot = workspace.snapshot()?;
            // Objects are checked when they are read: no content is stored under a wrong id.
            for file in scratch.objects.files(snapshot.tree)? {
                scratch.objects.read(snapshot.tree, &file.path)?.expect("there");
            }
            assert_eq!(scratch.objects.read(snapshot.tree, "still")?, Some(b"still".to_vec()));
            Ok(())
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        looked.expect("every snapshot succeeds");
        let last = workspace.snapshot().expect("a snapshot");
        assert_eq!(last.tree.to_string(), format!("git:{}", scratch.git_tree()));
    });
}

#[test]
fn stale_temporary_files_are_removed_and_git_finds_no_damage() {
    let scratch = Scratch::new();
    put(&scratch.root.join("a"), "one");
    scratch.workspace().snapshot().expect("a snapshot");
    let versions = scratch.objects.folder().to_owned();
    let stale =
        [versions.join("tmp_stale"), versions.join("objects/tmp_stale"), versions.join("objects/pack/tmp_stale")];
    for path in &stale {
        fs::write(path, "half an object").expect("written");
        let days = std::time::SystemTime::now() - std::time::Duration::from_secs(3 * 24 * 60 * 60);
        fs::File::options().write(true).open(path).expect("open").set_modified(days).expect("set");
    }
    fs::write(versions.join("objects/tmp_busy"), "another process writes this").expect("written");
    let objects = Objects::open(&versions).expect("versions");
    assert!(stale.iter().all(|path| !path.exists()));
    assert!(versions.join("objects/tmp_busy").exists());
    support::git(&objects, &["fsck", "--full", "--no-dangling"]);
    // No reference names the objects, and git keeps them all the same.
    let count = support::git(&objects, &["count-objects"]);
    let _ = rath_test_support::git().arg("--git-dir").arg(&versions).args(["gc", "--prune=now", "--quiet"]).output();
    assert_eq!(support::git(&objects, &["count-objects"]), count);
}

#[test]
fn a_restore_that_cannot_finish_leaves_everything_as_it_was() {
    let folder = rath_test_support::temp_dir();
    let root = &folder.path().join("project");
    for (name, text) in [("a", "1"), ("b", "2"), ("deep/c", "3"), ("gone/d", "4"), ("was-dir/e", "5")] {
        put(&root.join(name), text);
    }
    let objects = Objects::open(&folder.path().join("objects")).expect("objects");
    let mut workspace = Workspace::open(root, &objects, &folder.path().join("index")).expect("a workspace");
    let wanted = workspace.snapshot().expect("a snapshot").tree;
    for name in ["gone", "was-dir"] {
        fs::remove_dir_all(root.join(name)).expect("removed");
    }
    for (name, text) in [("a", "x"), ("b", "y"), ("deep/c", "z"), ("new/f", "w"), ("was-dir", "v")] {
        put(&root.join(name), text);
    }
    let contents = || {
        let read = |name: &str| fs::read_to_string(root.join(name)).ok();
        ["a", "b", "deep/c", "gone/d", "was-dir/e", "new/f", "was-dir"].map(read)
    };
    let before = contents();
    let now = workspace.snapshot().expect("a snapshot").tree;
    let mut stored = Vec::new();
    for part in fs::read_dir(folder.path().join("objects/objects")).expect("objects") {
        stored.extend(
            fs::read_dir(part.expect("a part").path()).expect("a part").map(|file| file.expect("a file").path()),
        );
    }
    let mut failed = 0;
    for object in stored.iter().filter(|path| path.is_file()) {
        let away = folder.path().join("away");
        fs::rename(object, &away).expect("moved");
        let restored = restore(&mut workspace, wanted);
        fs::rename(&away, object).expect("moved");
        match restored {
            Err(_) => {
                failed += 1;
                assert_eq!(contents(), before, "without {}", object.display());
            }
            Ok(_) => _ = restore(&mut workspace, now).expect("back again"),
        }
    }
    assert!(failed >= 5, "each of the five files was missing once: {failed}");
    restore(&mut workspace, wanted).expect("all is there");
    assert_eq!(contents()[..2], [Some("1".to_owned()), Some("2".to_owned())]);
}
