//! A file that is forgotten is removed from all versions, at any time of a kill, and nothing else is.

use std::fs::File;

use super::*;
use crate::{ErrorKind, Workspace};

/// Stores a version of a directory with these files.
fn version(folder: &Path, files: &[(&str, &str)]) -> TreeId {
    let root = folder.join("root");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir(&root).expect("a directory");
    files.iter().for_each(|(path, text)| fs::write(root.join(path), text).expect("written"));
    let objects = Objects::open(&folder.join("versions")).expect("versions");
    let index = folder.join("versions/index/root");
    let mut workspace = Workspace::open(&root, &objects, &index).expect("a workspace");
    let tree = workspace.snapshot().expect("a snapshot").tree;
    workspace.save().expect("saved");
    tree
}

fn open(folder: &Path) -> Objects {
    Objects::open(&folder.join("versions")).expect("versions")
}

fn collector(folder: &Path) -> Collector {
    Collector::open(&folder.join("versions"), CollectMode::Remove).expect("opened").expect("not in use")
}

#[test]
fn a_kill_between_the_list_and_the_removal_loses_nothing_and_the_next_run_finishes() {
    let temp = rath_test_support::temp_dir();
    let tree = version(temp.path(), &[("a.txt", "one\n"), ("b.txt", "two\n")]);
    let id = open(temp.path()).files(tree).expect("files")[0].id;
    collector(temp.path()).forget([id]).expect("listed");
    assert_eq!(open(temp.path()).read(tree, "a.txt").expect("still there").as_deref(), Some(&b"one\n"[..]));
    for _ in 0..2 {
        let mut collector = collector(temp.path());
        collector.forget([id]).expect("listed");
        collector.keep_tree(tree).expect("kept");
        collector.collect().expect("collected");
        drop(collector);
        let error = open(temp.path()).read(tree, "a.txt").expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::Forgotten);
        assert_eq!(error.to_string(), "the content of `a.txt` was removed with `rath forget`");
        assert_eq!(open(temp.path()).read(tree, "b.txt").expect("kept").as_deref(), Some(&b"two\n"[..]));
    }
    assert_eq!(open(temp.path()).forgotten_files().len(), 1, "it is listed once");
}

#[test]
fn a_file_that_has_the_content_again_is_stored_again() {
    let temp = rath_test_support::temp_dir();
    let tree = version(temp.path(), &[("a.txt", "one\n")]);
    let id = open(temp.path()).files(tree).expect("files")[0].id;
    let mut collector = collector(temp.path());
    collector.forget([id]).expect("listed");
    collector.keep_tree(tree).expect("kept");
    collector.collect().expect("collected");
    assert_eq!(collector.copies_below(&temp.path().join("root")), [temp.path().join("root/a.txt")]);
    // The directory is as its index describes it.
    let objects = open(temp.path());
    let index = temp.path().join("versions/index/root");
    let mut workspace = Workspace::open(&temp.path().join("root"), &objects, &index).expect("a workspace");
    assert_eq!(workspace.snapshot().expect("a snapshot").tree, tree);
    assert_eq!(objects.read(tree, "a.txt").expect("stored").as_deref(), Some(&b"one\n"[..]));
}

#[test]
fn every_reader_of_a_version_knows_that_a_content_was_removed() {
    let temp = rath_test_support::temp_dir();
    let empty = version(temp.path(), &[]);
    let tree = version(temp.path(), &[("a.txt", "one\n"), ("b.txt", "two\n")]);
    let other = version(temp.path(), &[("a.txt", "three\n"), ("b.txt", "two\n")]);
    let objects = open(temp.path());
    let id = objects.files(tree).expect("files")[0].id;
    let changes = objects.diff(Some(empty), tree).expect("a difference");
    drop(objects);
    let mut collector = collector(temp.path());
    collector.forget([id]).expect("listed");
    [tree, other, empty].iter().for_each(|tree| collector.keep_tree(*tree).expect("kept"));
    collector.collect().expect("collected");
    drop(collector);
    let objects = open(temp.path());
    // A difference needs digests alone.
    assert_eq!(objects.diff(Some(empty), tree).expect("a difference"), changes);
    let patch = objects.patch(tree, other).expect("a patch");
    assert!(patch.starts_with("the content of `a.txt` was removed with `rath forget`\ndiff --git a/a.txt"), "{patch}");
    assert!(patch.ends_with("Binary files a/a.txt and b/a.txt differ\n"), "{patch}");
    // A checkout leaves the file out; what has to be complete fails before it writes anything.
    let out = temp.path().join("out");
    let left_out = objects.checkout(tree, &out).expect("checked out");
    let left_out: Vec<_> = left_out.left_out.iter().map(|file| (&*file.path, file.is_forgotten)).collect();
    assert_eq!(left_out, [("a.txt", true)]);
    assert!(out.join("b.txt").exists() && !out.join("a.txt").exists());
    assert_eq!(objects.temp_checkout(tree).map(|_| ()).expect_err("incomplete").kind(), ErrorKind::Forgotten);
    let root = temp.path().join("root");
    let mut workspace = Workspace::open(&root, &objects, &temp.path().join("index")).expect("a workspace");
    workspace.snapshot().expect("a snapshot");
    let now = workspace.snapshot().expect("a snapshot");
    assert_eq!(workspace.restore(&now, tree).map(|_| ()).expect_err("incomplete").kind(), ErrorKind::Forgotten);
    assert_eq!(fs::read_to_string(root.join("a.txt")).expect("untouched"), "three\n");
    let into = temp.path().join("fork");
    let forked = workspace.fork(tree, &into, &temp.path().join("fork-index"));
    assert_eq!(forked.map(|_| ()).expect_err("incomplete").kind(), ErrorKind::Forgotten);
    // A copy of the versions knows it as well.
    let copy = Objects::open(&temp.path().join("copy")).expect("versions");
    copy.copy_tree_from(&objects, tree).expect("copied");
    assert_eq!(copy.read(tree, "a.txt").expect_err("it is gone").kind(), ErrorKind::Forgotten);
    assert!(copy.read(tree, "b.txt").expect("copied").is_some());
}

/// Stores a version with so many files that they go to a pack.
fn packed_version(folder: &Path, name: &str) -> TreeId {
    let many: Vec<(String, String)> =
        (0..1000).map(|nth| (format!("{nth:03}.txt"), format!("{name} {nth}\n"))).collect();
    let files: Vec<(&str, &str)> = many.iter().map(|(path, text)| (&**path, &**text)).collect();
    version(folder, &files)
}

/// Returns the files of packs that have an extension.
fn pack_files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let paths = entries(&folder.join("versions/objects/pack")).expect("packs").into_iter().map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|it| it == extension)).collect()
}

/// A pack without an index that holds a file which was forgotten is never indexed, whatever fails.
#[test]
fn a_pack_with_forgotten_content_gets_no_index_if_it_cannot_be_written_anew() {
    let temp = rath_test_support::temp_dir();
    let tree = packed_version(temp.path(), "one");
    let [index] = &pack_files(temp.path(), "idx")[..] else { panic!("one pack") };
    let other = packed_version(temp.path(), "other");
    let id = open(temp.path()).files(tree).expect("files")[0].id;
    let of_other = open(temp.path()).files(other).expect("files").split_off(1);
    collector(temp.path()).forget([id]).expect("listed");
    fs::remove_file(index).expect("removed");
    let mut collector = collector(temp.path());
    collector.keep_tree(tree).expect("kept");
    // The other pack is to be written anew too, and the end of its last object is lost.
    of_other.iter().map(|file| file.id).chain([other.0]).for_each(|id| collector.keep_file(id));
    let is_other = |path: &PathBuf| path.with_extension("idx") != *index;
    let other = pack_files(temp.path(), "pack").into_iter().find(is_other).expect("the other pack");
    let pack = File::options().write(true).open(other).expect("opened");
    pack.set_len(pack.metadata().expect("a length").len() - 24).expect("cut");
    collector.collect().map(|_| ()).expect_err("a pack is damaged");
    assert!(!index.exists());
}

/// A kill while packs are written anew leaves the old pack without its index.
#[test]
fn a_pack_that_a_kill_left_does_not_bring_forgotten_content_back() {
    let temp = rath_test_support::temp_dir();
    let tree = packed_version(temp.path(), "file");
    let id = open(temp.path()).files(tree).expect("files")[0].id;
    let old = pack_files(temp.path(), "pack").pop().expect("a pack");
    let bytes = fs::read(&old).expect("read");
    for is_needed in [false, true] {
        let mut first = collector(temp.path());
        first.forget([id]).expect("listed");
        first.keep_tree(tree).expect("kept");
        first.collect().expect("collected");
        drop(first);
        fs::write(&old, &bytes).expect("left");
        if is_needed {
            // The new pack did not come to the disk.
            for path in ["pack", "idx"].into_iter().flat_map(|extension| pack_files(temp.path(), extension)) {
                if path != old {
                    fs::remove_file(path).expect("removed");
                }
            }
        }
        let mut next = collector(temp.path());
        next.keep_tree(tree).expect("kept");
        next.collect().expect("collected");
        drop(next);
        let objects = open(temp.path());
        let error = objects.read(tree, "000.txt").expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::Forgotten, "{is_needed}");
        assert_eq!(objects.read(tree, "001.txt").expect("kept").as_deref(), Some(&b"file 1\n"[..]), "{is_needed}");
        drop(objects);
        // Not in a file either that a later reader could find.
        for path in pack_files(temp.path(), "pack") {
            let pack = crate::pack::Pack::reindex(&path).expect("a pack");
            assert!(pack.places().expect("places").iter().all(|(known, _)| *known != id), "{is_needed}");
        }
    }
}

/// Content that a file has again is as any other: the index of its pack can be lost.
#[test]
fn content_that_was_stored_again_is_not_lost_with_the_index_of_its_pack() {
    let temp = rath_test_support::temp_dir();
    let tree = packed_version(temp.path(), "file");
    let id = open(temp.path()).files(tree).expect("files")[0].id;
    fs::create_dir(temp.path().join("other")).expect("a directory");
    let forget = || {
        let mut collector = collector(temp.path());
        collector.forget([id]).expect("listed");
        collector.keep_tree(tree).expect("kept");
        collector.collect().expect("collected");
    };
    let lose_indexes_and_collect = || {
        pack_files(temp.path(), "idx").iter().for_each(|index| fs::remove_file(index).expect("removed"));
        let mut collector = collector(temp.path());
        collector.keep_tree(tree).expect("kept");
        collector.collect().expect("collected");
    };
    for round in 0..2 {
        forget();
        assert_eq!(open(temp.path()).read(tree, "000.txt").expect_err("it is gone").kind(), ErrorKind::Forgotten);
        // All files are new to another folder of versions, so the content is in a pack when it is copied back.
        assert_eq!(packed_version(&temp.path().join("other"), "file"), tree);
        let packs = pack_files(temp.path(), "pack");
        packs.iter().chain(&pack_files(temp.path(), "idx")).for_each(|path| fs::remove_file(path).expect("removed"));
        open(temp.path()).copy_tree_from(&open(&temp.path().join("other")), tree).expect("copied");
        lose_indexes_and_collect();
        let content = open(temp.path()).read(tree, "000.txt").expect("kept");
        assert_eq!(content.as_deref(), Some(&b"file 0\n"[..]), "{round}");
    }
    // A removal after that holds again, also if a kill leaves the old pack.
    let old = pack_files(temp.path(), "pack").pop().expect("a pack");
    let bytes = fs::read(&old).expect("read");
    forget();
    fs::write(&old, bytes).expect("left");
    lose_indexes_and_collect();
    assert_eq!(open(temp.path()).read(tree, "000.txt").expect_err("it is gone").kind(), ErrorKind::Forgotten);
}
