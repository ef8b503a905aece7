//! Files that another program saves while a restore goes on: none is lost.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use rath_workspace::{ErrorKind, TreeId, Workspace};

use super::put;
use super::support::Scratch;

/// A change that another program makes.
type Change = fn(&Path);

/// The changes, each with the name of the file that it is about.
const CHANGES: [(&str, &str, Change); 12] = [
    ("edited", "saved in place", |root| put(&root.join("edited"), "mine")),
    ("edited", "saved by a rename", |root| {
        put(&root.join("new"), "mine");
        fs::rename(root.join("new"), root.join("edited")).expect("renamed");
    }),
    ("edited", "saved with the same size", |root| put(&root.join("edited"), "thr")),
    ("edited", "exchanged for one of the same size and time", |root| {
        let modified = fs::metadata(root.join("edited")).and_then(|found| found.modified()).expect("a time");
        put(&root.join("new"), "mine".get(..3).expect("text"));
        let file = fs::File::options().write(true).open(root.join("new")).expect("opened");
        file.set_modified(modified).expect("set");
        fs::rename(root.join("new"), root.join("edited")).expect("renamed");
    }),
    ("edited", "replaced by a directory", |root| {
        fs::remove_file(root.join("edited")).expect("removed");
        put(&root.join("edited/mine"), "mine");
    }),
    ("below/edited", "removed with its directory", |root| fs::remove_dir_all(root.join("below")).expect("removed")),
    ("edited", "removed", |root| fs::remove_file(root.join("edited")).expect("removed")),
    ("edited", "made executable", |root| {
        fs::set_permissions(root.join("edited"), fs::Permissions::from_mode(0o755)).expect("set");
    }),
    ("dropped", "saved", |root| put(&root.join("dropped"), "mine")),
    ("dropped", "a link", |root| {
        fs::remove_file(root.join("dropped")).expect("removed");
        symlink("mine", root.join("dropped")).expect("a link");
    }),
    ("added", "created", |root| put(&root.join("added"), "mine")),
    ("link", "led elsewhere", |root| {
        fs::remove_file(root.join("link")).expect("removed");
        symlink("mine", root.join("link")).expect("a link");
    }),
];

/// Returns all files with their content, and whether they can be executed.
fn contents(root: &Path) -> BTreeMap<String, (Vec<u8>, bool)> {
    let list = |path: &Path| fs::read_dir(path).expect("a directory").flatten().collect::<Vec<_>>();
    let below = list(root).into_iter().filter(|entry| entry.path().is_dir()).flat_map(|entry| list(&entry.path()));
    let entries = list(root).into_iter().filter(|entry| !entry.path().is_dir()).chain(below);
    let facts = |entry: fs::DirEntry| {
        let path = entry.path();
        let name = path.strip_prefix(root).expect("below").to_str().expect("UTF-8").to_owned();
        let facts = path.symlink_metadata().expect("metadata");
        let content = match facts.is_symlink() {
            true => fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes(),
            false => fs::read(&path).expect("read"),
        };
        (name, (content, facts.permissions().mode() & 0o100 != 0))
    };
    entries.map(facts).collect()
}

#[test]
fn a_file_that_was_changed_since_the_snapshot_stays_and_all_others_are_as_they_were() {
    for (name, what, change) in CHANGES {
        let scratch = Scratch::new();
        let root = &scratch.root;
        let mut workspace = scratch.workspace();
        for (name, content) in
            [("edited", "one"), ("below/edited", "one"), ("added", "one"), ("a", "one"), ("z", "one")]
        {
            put(&root.join(name), content);
        }
        symlink("one", root.join("link")).expect("a link");
        let wanted = workspace.snapshot().expect("a snapshot");
        ["a", "edited", "below/edited", "dropped", "z"].iter().for_each(|name| put(&root.join(name), "two"));
        ["added", "link"].iter().for_each(|name| fs::remove_file(root.join(name)).expect("removed"));
        symlink("two", root.join("link")).expect("a link");
        let before = workspace.snapshot().expect("a snapshot");
        change(root);
        let changed = contents(root);
        let error = workspace.restore(&before, wanted.tree).expect_err("it would be lost");
        assert_eq!(error.kind(), ErrorKind::Changed, "{name} {what}: {error:?}");
        assert_eq!(error.message(), format!("`{name}` was changed by another program meanwhile"), "{what}");
        assert_eq!(contents(root), changed, "{name} {what}");
        // Once it was seen, it is stored and can be replaced.
        let seen = workspace.snapshot().expect("a snapshot");
        assert_eq!(workspace.restore(&seen, wanted.tree).expect("restored").tree, wanted.tree, "{name} {what}");
    }
}

/// A program saves a file at any time, and notes each version that was overwritten. All of these are stored.
#[test]
fn every_version_that_a_restore_overwrites_was_stored_before() {
    let scratch = Scratch::new();
    let (file, new) = (scratch.root.join("file"), scratch.folder.path().join("new"));
    let (is_over, restores) = (AtomicBool::new(false), AtomicUsize::new(0));
    let trees = ["one", "two"].map(|content| {
        put(&file, content);
        scratch.workspace().snapshot().expect("a snapshot").tree
    });
    let (stored, overwritten) = std::thread::scope(|scope| {
        let restoring = scope.spawn(|| restore_all_the_time(&mut scratch.workspace(), trees, &is_over, &restores));
        let mut overwritten = Vec::new();
        for nth in 0..600 {
            let version = format!("saved {nth}");
            put(&new, &version);
            fs::rename(&new, &file).expect("renamed");
            let (is_there, before) =
                (|| fs::read_to_string(&file).is_ok_and(|text| text == version), restores.load(SeqCst));
            let wait_while = |more: &dyn Fn(usize) -> bool| {
                while more(restores.load(SeqCst) - before) {
                    std::thread::yield_now();
                }
            };
            // Sometimes the next version comes while a restore is under way.
            let rounds = nth % 3;
            wait_while(&|done| is_there() && done < rounds);
            // A file that is put back is away for a moment.
            if !is_there() {
                let at = restores.load(SeqCst) - before;
                wait_while(&|done| done < at + 2);
                if !is_there() {
                    overwritten.push(version);
                }
            }
        }
        is_over.store(true, SeqCst);
        (restoring.join().expect("no panic"), overwritten)
    });
    assert!(!overwritten.is_empty());
    let lost: Vec<_> = overwritten.iter().filter(|version| !stored.contains(*version)).collect();
    assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), overwritten.len());
}

/// Restores two trees in turn, and returns the contents of the file in the snapshots before the restores.
fn restore_all_the_time(
    workspace: &mut Workspace,
    trees: [TreeId; 2],
    is_over: &AtomicBool,
    restores: &AtomicUsize,
) -> Vec<String> {
    let (mut stored, mut nth) = (Vec::new(), 0);
    while !is_over.load(SeqCst) {
        let before = workspace.snapshot().expect("a snapshot");
        match workspace.restore(&before, trees[nth % 2]) {
            Ok(_) => {
                let content = workspace.objects().read(before.tree, "file").expect("stored");
                stored.extend(content.map(|content| String::from_utf8(content).expect("UTF-8")));
                nth += 1;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Changed, "{error:?}"),
        }
        restores.fetch_add(1, SeqCst);
    }
    stored
}

/// A file that cannot be read keeps the version that it had: it is neither deleted nor overwritten.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_can_no_longer_be_read_stays() {
    rath_test_support::as_ordinary_user(a_file_becomes_unreadable);
}

#[cfg(target_os = "linux")]
fn a_file_becomes_unreadable() {
    // The file itself, or the directory with it.
    for (locked, mode) in [("below/file", 0o000), ("below", 0o644)] {
        let scratch = Scratch::new();
        let (file, locked) = (scratch.root.join("below/file"), scratch.root.join(locked));
        let set = |mode| fs::set_permissions(&locked, fs::Permissions::from_mode(mode)).expect("set");
        let mut workspace = scratch.workspace();
        let empty = workspace.snapshot().expect("a snapshot");
        put(&file, "one");
        let seen = workspace.snapshot().expect("a snapshot");
        put(&file, "two");
        set(mode);
        let unread = workspace.snapshot().expect("a snapshot");
        assert_eq!(unread.tree, seen.tree, "{mode:o}: the last version that was read");
        assert_eq!(unread.untracked().len(), 1);
        workspace.restore(&unread, empty.tree).expect_err("it would be lost");
        set(0o755);
        assert_eq!(fs::read(&file).expect("read"), b"two");
    }
}
