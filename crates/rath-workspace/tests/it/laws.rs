//! Properties that hold for any directory and any edits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use proptest::prelude::*;
use rath_workspace::Digest;
use rath_workspace::{ChangeKind, FileChange, UntrackedReason};
use rath_workspace::{Mode, Snapshot, Workspace};

use super::edits::{self, RULES, apply, edits};
use super::support::{PathKind, PathState, Scratch, git, observe, restore};

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..rath_test_support::property(24) })]

    #[test]
    fn a_snapshot_is_the_tree_that_git_makes(first in edits(30), then in prop::collection::vec(edits(6), 1..4)) {
        let scratch = Scratch::new();
        let mut workspace = scratch.workspace();
        let mut before: Option<(Snapshot, BTreeMap<Vec<u8>, PathState>)> = None;
        for round in [first].iter().chain(&then) {
            round.iter().for_each(|edit| apply(&scratch.root, edit));
            let snapshot = workspace.snapshot().expect("a snapshot");
            prop_assert_eq!(snapshot.tree.to_string(), format!("git:{}", scratch.git_tree()));
            let fresh = scratch.folder.path().join("no-index");
            let mut fresh = Workspace::open(&scratch.root, &scratch.objects, &fresh).expect("opened");
            prop_assert_eq!(&fresh.snapshot().expect("a snapshot").untracked(), &snapshot.untracked());
            drop(fresh);
            fs::remove_file(scratch.folder.path().join("no-index")).expect("removed");
            let seen = observe(&scratch.root);
            if let Some((last, was)) = &before {
                let changes = workspace.changes(last, &snapshot).expect("changes");
                check_reported_changes(&scratch, (last, was), (&snapshot, &seen), &changes);
                let diff = scratch.objects.diff(Some(last.tree), snapshot.tree).expect("a diff");
                check_against_diff(&changes, &diff);
            }
            before = Some((snapshot, seen));
        }
        let (last, seen) = before.expect("a round");
        check_checkout(&scratch, &last, &seen);
    }

    #[test]
    fn a_restore_makes_any_tree_from_any_other(first in edits(20), second in edits(20)) {
        let scratch = Scratch::new();
        let mut workspace = scratch.workspace();
        // Without ignore rules and pipes, no untracked file can be in the way.
        let plain = |edit: &&edits::Edit| !matches!(edit, edits::Edit::Ignore(..) | edits::Edit::Pipe(_) | edits::Edit::Git(_));
        let empty = workspace.snapshot().expect("a snapshot");
        first.iter().filter(plain).for_each(|edit| apply(&scratch.root, edit));
        let one = workspace.snapshot().expect("a snapshot");
        second.iter().filter(plain).for_each(|edit| apply(&scratch.root, edit));
        let two = workspace.snapshot().expect("a snapshot");
        for wanted in [&one, &two, &empty, &two, &one] {
            let restored = restore(&mut workspace, wanted.tree).expect("restored");
            prop_assert_eq!(&restored.tree, &wanted.tree);
            prop_assert_eq!(restored.tree.to_string(), format!("git:{}", scratch.git_tree()));
        }
        check_patch(&scratch, &one, &two);
        let into = scratch.folder.path().join("fork");
        let mut fork = workspace.fork(two.tree, &into, &scratch.folder.path().join("fork.index")).expect("a fork");
        prop_assert_eq!(&fork.snapshot().expect("a snapshot").tree, &two.tree);
    }

    #[test]
    fn ignore_files_mean_what_they_mean_to_git(
        above in prop::collection::vec(rule(), 0..5),
        below in prop::collection::vec(rule(), 0..4),
    ) {
        let scratch = Scratch::new();
        for dir in ["", "a/", "b/", "a/b/", "a/a/", "a/b/a/", "sub/", "sub/a/b/"] {
            for name in ["a.c", "x.log", "ab", "z z", "!x", "b.", "[a]", "\\"] {
                let path = scratch.root.join(format!("{dir}{name}"));
                fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
                fs::write(path, "").expect("written");
            }
        }
        fs::write(scratch.root.join(".gitignore"), above.join("\n")).expect("written");
        fs::write(scratch.root.join("a/.gitignore"), below.join("\r\n")).expect("written");
        let tree = scratch.workspace().snapshot().expect("a snapshot").tree;
        prop_assert_eq!(tree.to_string(), format!("git:{}", scratch.git_tree()));
    }
}

/// A line of an ignore file: a common one, or any.
fn rule() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(&RULES[..]).prop_map(str::to_owned),
        "!?/?([ab*?./\\\\]|\\*\\*|\\*\\*/|\\[[!^]?[]a-c\\\\:-]{1,4}\\]|\\[\\[:(alpha|punct|space|x):\\]\\]| ){1,7}/?",
    ]
}

/// Checks that git gets from one tree to the other with the patch.
fn check_patch(scratch: &Scratch, one: &Snapshot, two: &Snapshot) {
    let patch = scratch.objects.patch(one.tree, two.tree).expect("a patch");
    if patch.is_empty() {
        return;
    }
    let (into, file) = (scratch.folder.path().join("patched"), scratch.folder.path().join("patch"));
    scratch.objects.checkout(one.tree, &into).expect("checked out");
    fs::write(&file, &patch).expect("written");
    let mut apply = rath_test_support::git();
    let output =
        apply.args(["apply", "--whitespace=nowarn"]).arg(&file).current_dir(&into).output().expect("git starts");
    let problem = String::from_utf8_lossy(&output.stderr);
    // Where a link to itself becomes a directory, git refuses its own patches too: it follows the link.
    if let Some((path, _)) = problem.split_once(": Too many levels of symbolic links") {
        let path = into.join(path.trim_start_matches("error: ").trim_matches('"'));
        let loops = path.ancestors().filter(|above| above.is_symlink()).any(|link| fs::metadata(link).is_err());
        assert!(loops, "{problem}\n{patch}");
        return;
    }
    assert!(output.status.success(), "{problem}\n{patch}");
    let index = scratch.folder.path().join("patched.index");
    let mut patched = Workspace::open(&into, &scratch.objects, &index).expect("opened");
    assert_eq!(patched.snapshot().expect("a snapshot").tree, two.tree, "{patch}");
}

fn check_checkout(scratch: &Scratch, snapshot: &Snapshot, seen: &BTreeMap<Vec<u8>, PathState>) {
    let into = scratch.folder.path().join("checked-out");
    scratch.objects.checkout(snapshot.tree, &into).expect("written");
    let written = observe(&into);
    let listed = git(&scratch.objects, &["ls-tree", "-r", "-z", "--name-only", &snapshot.tree.0.to_string()]);
    let names: BTreeSet<&[u8]> = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    let files = written.iter().filter(|(_, seen)| !matches!(seen.kind, PathKind::Directory { .. }));
    assert_eq!(files.clone().map(|(path, _)| &**path).collect::<BTreeSet<_>>(), names);
    for (path, file) in files {
        assert_eq!(file.kind, seen[path].kind, "{}", path.escape_ascii());
    }
    for file in scratch.objects.files(snapshot.tree).expect("files") {
        let content = scratch.objects.read(snapshot.tree, &file.path).expect("read").expect("there");
        assert_eq!(git(&scratch.objects, &["cat-file", "blob", &file.id.to_string()]), content);
        assert!(file.mode != Mode::Directory);
    }
}

/// A reported change: the digests before and after, and the reason for an untracked path.
type ReportedChange = (Option<Digest>, Option<Digest>, Option<UntrackedReason>);

/// Checks that all changes are reported, and nothing else.
fn check_reported_changes(
    scratch: &Scratch,
    (before, was): (&Snapshot, &BTreeMap<Vec<u8>, PathState>),
    (after, is): (&Snapshot, &BTreeMap<Vec<u8>, PathState>),
    changes: &[FileChange],
) {
    let tracked = |snapshot: &Snapshot| -> BTreeSet<Vec<u8>> {
        let listed = git(&scratch.objects, &["ls-tree", "-r", "-z", "--name-only", &snapshot.tree.0.to_string()]);
        listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
    };
    let (tracked_before, tracked_after) = (tracked(before), tracked(after));
    let digest = |seen: &PathState| match &seen.kind {
        PathKind::File { content, .. } => Digest::compute(content),
        PathKind::Link(target) => Digest::compute(target),
        _ => panic!("the path is tracked"),
    };
    // The reported changes by path, with a rename as two changes.
    let mut reported: BTreeMap<Vec<u8>, ReportedChange> = BTreeMap::new();
    let mut add = |path: &str, before, after, untracked| {
        let old = reported.insert(unquoted(path), (before, after, untracked));
        assert!(old.is_none(), "{path} is reported twice");
    };
    for change in changes {
        match &change.kind {
            ChangeKind::Renamed { from } => {
                add(from, change.before, None, None);
                add(&change.path, None, change.after, None);
            }
            _ => add(&change.path, change.before, change.after, change.untracked),
        }
    }
    let paths: BTreeSet<&Vec<u8>> = was.keys().chain(is.keys()).collect();
    let inside_git = |path: &[u8]| path.split(|byte| *byte == b'/').position(|name| name == b".git");
    for path in paths {
        if let Some(depth) = inside_git(path) {
            let root: Vec<&[u8]> = path.split(|byte| *byte == b'/').take(depth + 1).collect();
            let is_directory = |seen: &BTreeMap<Vec<u8>, PathState>| {
                seen.get(path).is_some_and(|seen| matches!(seen.kind, PathKind::Directory { .. }))
            };
            if was.get(path) != is.get(path) && !is_directory(was) && !is_directory(is) {
                let entry = reported.get(&root.join(&b'/'));
                assert!(matches!(entry, Some((None, None, Some(UntrackedReason::Ignored)))), "{}", path.escape_ascii());
            }
            continue;
        }
        let (was, is) = (was.get(path), is.get(path));
        let before = was.filter(|_| tracked_before.contains(path)).map(&digest);
        let after = is.filter(|_| tracked_after.contains(path)).map(&digest);
        let kind = |seen: Option<&PathState>| seen.map(|seen| seen.kind.clone());
        let entry = reported.remove(path);
        let shown = path.escape_ascii();
        if before.is_some() || after.is_some() {
            let same = before.is_some() && after.is_some() && kind(was) == kind(is);
            match entry {
                None => assert!(same, "{shown} is missing"),
                Some((reported_before, reported_after, _)) => {
                    assert!(!same, "{shown} is reported, and did not change");
                    assert_eq!((reported_before, reported_after), (before, after), "{shown}");
                }
            }
            continue;
        }
        let directory =
            |seen: Option<&PathState>| matches!(seen.map(|seen| &seen.kind), Some(PathKind::Directory { .. }));
        if let Some((reported_before, reported_after, untracked)) = entry {
            assert_eq!((reported_before, reported_after), (None, None), "{shown}");
            assert!(untracked.is_some() && was != is, "{shown} is reported, and did not change");
        } else if !directory(was) && !directory(is) {
            assert_eq!(kind(was), kind(is), "{shown} is missing");
        } else if was.is_none() || is.is_none() {
            let empty = was.or(is).is_some_and(|seen| seen.kind == PathKind::Directory { is_empty: true });
            assert!(!empty, "the empty directory {shown} is missing");
        }
    }
    reported.retain(|path, _| inside_git(path).is_none());
    assert!(reported.is_empty(), "{reported:?}");
}

fn check_against_diff(changes: &[FileChange], diff: &[FileChange]) {
    // A file that became ignored is reported as modified, though the tree no longer contains it: only paths are
    // compared.
    let mut paths: BTreeSet<&str> = changes.iter().map(|change| &*change.path).collect();
    paths.extend(changes.iter().filter_map(|change| match &change.kind {
        ChangeKind::Renamed { from } => Some(&**from),
        _ => None,
    }));
    for change in diff {
        assert!(paths.contains(&*change.path), "{} is not among {paths:?}", change.path);
    }
}

/// Returns the bytes of a reported path, decoded independently of the crate.
fn unquoted(path: &str) -> Vec<u8> {
    let Some(inside) = path.strip_prefix('"').and_then(|path| path.strip_suffix('"')) else {
        return path.as_bytes().to_vec();
    };
    let mut bytes = Vec::new();
    let mut rest = inside.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => match rest.next().expect("an escape") {
                digit @ b'0'..=b'3' => {
                    let octal = [digit, rest.next().expect("a digit"), rest.next().expect("a digit")];
                    let octal = std::str::from_utf8(&octal).expect("digits");
                    bytes.push(u8::from_str_radix(octal, 8).expect("octal"));
                }
                other => bytes.push(other),
            },
            other => bytes.push(other),
        }
    }
    bytes
}
