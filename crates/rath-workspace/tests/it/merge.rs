//! Merges, compared with git.

mod generated;

use std::collections::BTreeSet;

use expect_test::{Expect, expect};
use rath_workspace::TreeId;
use rath_workspace::{ConflictKind, Labels, MergeResult, Objects, Workspace};

use super::support::{self, Scratch};
use rath_test_support::{cases, seed};

/// Merges three trees with git; returns the tree and the conflicting paths, or none for a clean merge.
fn by_git(objects: &Objects, [base, ours, theirs]: [TreeId; 3]) -> (String, Option<BTreeSet<Vec<u8>>>) {
    let mut git = rath_test_support::git();
    git.arg("--git-dir").arg(objects.folder()).args([
        "merge-tree",
        "--write-tree",
        "--name-only",
        "--no-messages",
        "-z",
    ]);
    git.arg(format!("--merge-base={}", base.0)).arg(ours.0.to_string()).arg(theirs.0.to_string());
    let output = git.output().expect("git starts");
    let mut parts = output.stdout.split(|byte| *byte == 0);
    let tree = String::from_utf8(parts.next().unwrap_or_default().to_vec()).expect("text");
    let paths = parts.filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect();
    match output.status.code() {
        Some(0) => (tree, None),
        Some(1) => (tree, Some(paths)),
        _ => panic!("{}", String::from_utf8_lossy(&output.stderr)),
    }
}

fn by_us(objects: &Objects, [base, ours, theirs]: [TreeId; 3]) -> MergeResult {
    let labels = Labels { ours: &ours.0.to_string(), theirs: &theirs.0.to_string() };
    objects.merge(base, ours, theirs, labels).expect("merged")
}

/// Counts the merges on which both agree.
#[derive(Default)]
struct Tally {
    merges: usize,
    clean: usize,
    /// Descriptions of the merges on which they differ.
    differing: Vec<String>,
    /// Merges in which git reports a version of a file that its tree does not contain.
    lost: usize,
}

impl Tally {
    fn add(&mut self, what: &str, objects: &Objects, trees: [TreeId; 3]) {
        self.merges += 1;
        let (tree, conflicts) = by_git(objects, trees);
        let ours = by_us(objects, trees);
        let same_tree = ours.tree.0.to_string() == tree;
        let Some(conflicts) = conflicts else {
            self.clean += 1;
            if !same_tree || !ours.conflicts.is_empty() {
                self.differing.push(format!("{what}: git is content; {}", difference(objects, &tree, &ours)));
            }
            return;
        };
        let listed = support::git(objects, &["ls-tree", "-r", "-z", "--name-only", &tree]);
        let listed: BTreeSet<&[u8]> = listed.split(|byte| *byte == 0).collect();
        let moved = ours.conflicts.iter().filter(|conflict| conflict.kind == ConflictKind::Moved);
        if moved
            .clone()
            .any(|conflict| conflicts.contains(conflict.path.as_bytes()) && !listed.contains(conflict.path.as_bytes()))
        {
            self.lost += 1;
            return;
        }
        // Git reports a conflict about a directory without a version.
        let reported = ours.conflicts.iter().filter(|conflict| conflict.kind != ConflictKind::Unmoved);
        let reported: BTreeSet<Vec<u8>> = reported.map(|conflict| conflict.path.clone().into_bytes()).collect();
        let shown =
            |paths: &BTreeSet<Vec<u8>>| paths.iter().map(|path| path.escape_ascii().to_string()).collect::<Vec<_>>();
        if reported != conflicts || ours.conflicts.is_empty() {
            self.differing.push(format!(
                "{what}: git has conflicts in {:?}, we in {:?}",
                shown(&conflicts),
                shown(&reported)
            ));
        } else if !same_tree {
            self.differing.push(format!("{what}: the same conflicts, and {}", difference(objects, &tree, &ours)));
        }
    }

    fn print(&self, of: &str) {
        println!(
            "{of}: {} merges, {} of them clean; {} agree to the byte, {} do not, git lost a file in {}",
            self.merges,
            self.clean,
            self.merges - self.differing.len() - self.lost,
            self.differing.len(),
            self.lost,
        );
        self.differing.iter().for_each(|differing| println!("  {differing}"));
    }
}

fn difference(objects: &Objects, tree: &str, ours: &MergeResult) -> String {
    let diff = support::git(objects, &["diff", "--stat", "--no-renames", tree, &ours.tree.0.to_string()]);
    let reported: Vec<_> = ours.conflicts.iter().map(|conflict| (conflict.kind, &conflict.path)).collect();
    format!("we say {reported:?}, and differ in\n{}", String::from_utf8_lossy(&diff))
}

#[test]
fn a_merge_has_the_same_result_as_git() {
    let mut tally = Tally::default();
    for seed in seed()..seed() + u64::from(cases(80)) {
        let scratch = Scratch::new();
        let trees = generated::history(&scratch, seed);
        tally.add(&format!("seed {seed}"), &scratch.objects, [trees[0], trees[1], trees[2]]);
    }
    tally.print("generated");
    assert!(tally.lost * 100 <= tally.merges, "{} of {} lost", tally.lost, tally.merges);
    assert!(tally.differing.is_empty(), "{}", tally.differing.join("\n"));
    assert!(tally.clean > tally.merges / 10 && tally.clean < tally.merges * 9 / 10, "{} clean", tally.clean);
}

/// Merges of releases of libraries. They come from PyPI: see `.ci/run`.
#[test]
#[ignore = "needs the releases of libraries, below RATH_RELEASES"]
fn releases_of_libraries_merge_as_git_merges_them() {
    let folder = std::env::var("RATH_RELEASES").expect("RATH_RELEASES names the directory where the releases are");
    let mut tally = Tally::default();
    let mut libraries: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("wanted releases in {folder}: {error}"))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    libraries.sort();
    for library in libraries {
        let name = library.file_name().expect("a name").to_string_lossy().into_owned();
        let order = std::fs::read_to_string(library.join("order")).expect("the order of releases");
        let scratch = Scratch::new();
        let trees: Vec<TreeId> = order
            .lines()
            .map(|version| {
                let index = scratch.folder.path().join(version);
                let mut workspace = Workspace::open(&library.join(version), &scratch.objects, &index).expect("opened");
                workspace.snapshot().expect("a snapshot").tree
            })
            .collect();
        let versions: Vec<&str> = order.lines().collect();
        // A release, and patches for the one before it.
        for base in 0..trees.len() - 1 {
            for seed in 0..6 {
                let theirs = generated::patched(&scratch, &library.join(versions[base]), (base * 100 + seed) as u64);
                let what = format!("{name}: patch {seed} of {} into {}", versions[base], versions[base + 1]);
                tally.add(&what, &scratch.objects, [trees[base], trees[base + 1], theirs]);
            }
        }
        // Any two releases over any third one, in either order.
        for base in 0..trees.len() {
            for ours in 0..trees.len() {
                for theirs in 0..trees.len() {
                    if base == ours
                        || base == theirs
                        || ours == theirs
                        || ours.abs_diff(theirs) + base.abs_diff(ours) > 5
                    {
                        continue;
                    }
                    let what = format!("{name} {} into {} over {}", versions[theirs], versions[ours], versions[base]);
                    tally.add(&what, &scratch.objects, [trees[base], trees[ours], trees[theirs]]);
                }
            }
        }
    }
    tally.print("releases");
    assert!(tally.merges >= 200, "{} merges", tally.merges);
    assert!(tally.differing.is_empty(), "{} of {} apart", tally.differing.len(), tally.merges);
}

/// Merges three directories, given as paths and contents.
fn check(base: &[(&str, &str)], ours: &[(&str, &str)], theirs: &[(&str, &str)], expected: Expect) {
    let scratch = Scratch::new();
    let tree = |name: &str, files: &[(&str, &str)]| {
        let root = scratch.folder.path().join(name);
        std::fs::create_dir(&root).expect("a directory");
        files.iter().for_each(|(path, content)| super::put(&root.join(path), content));
        let index = scratch.folder.path().join(format!("{name}.index"));
        Workspace::open(&root, &scratch.objects, &index).expect("opened").snapshot().expect("a snapshot").tree
    };
    let trees = [tree("base", base), tree("ours", ours), tree("theirs", theirs)];
    let labels = Labels { ours: "ours", theirs: "theirs" };
    let merged = scratch.objects.merge(trees[0], trees[1], trees[2], labels).expect("merged");
    let mut text = String::new();
    for file in scratch.objects.files(merged.tree).expect("files") {
        let content = scratch.objects.read(merged.tree, &file.path).expect("read").expect("there");
        text += &format!("{}: {}\n", file.path, String::from_utf8_lossy(&content).trim_end().replace('\n', " | "));
    }
    for conflict in &merged.conflicts {
        let side =
            |file: &Option<rath_workspace::TreeFile>| file.as_ref().map_or("-".to_owned(), |file| file.path.clone());
        let sides = [&conflict.base, &conflict.ours, &conflict.theirs].map(side).join(", ");
        text += &format!("{:?} {} ({sides})\n", conflict.kind, conflict.path);
    }
    expected.assert_eq(&text);
    let (_, by_git) = by_git(&scratch.objects, trees);
    assert_eq!(by_git.is_none(), merged.conflicts.is_empty());
}

const LONG: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

#[test]
fn a_merge_contains_both_sides_and_reports_conflicts() {
    let with = |line: &str, other: &str| LONG.replace(line, other);
    check(
        &[("text", LONG), ("moved", "a\nb\nc\nd\ne\n"), ("gone", "x\n")],
        &[("text", &with("1", "one")), ("elsewhere", "a\nb\nc\nd\ne\n"), ("gone", "x\n"), ("ours", "o\n")],
        &[("text", &with("9", "nine")), ("moved", "a\nb\nc\nd\nE\n")],
        expect![[r#"
            elsewhere: a | b | c | d | E
            ours: o
            text: one | 2 | 3 | 4 | 5 | 6 | 7 | 8 | nine
        "#]],
    );
    check(
        &[("text", LONG), ("dir/a", "a\n"), ("deleted", LONG)],
        &[("text", &with("5", "five")), ("dir/a", "a\n"), ("new", "ours\n"), ("renamed", LONG), ("file", "f\n")],
        &[("text", &with("5", "cinq")), ("dir/a", "a\n"), ("new", "theirs\n"), ("file/in", "d\n")],
        expect![[r#"
            dir/a: a
            file/in: d
            file~ours: f
            new: <<<<<<< ours | ours | ======= | theirs | >>>>>>> theirs
            renamed: 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9
            text: 1 | 2 | 3 | 4 | <<<<<<< ours | five | ======= | cinq | >>>>>>> theirs | 6 | 7 | 8 | 9
            FileAndDirectory file~ours (-, file, -)
            BothAdded new (-, new, new)
            RenamedDeleted renamed (deleted, renamed, -)
            Content text (text, text, text)
        "#]],
    );
    // One side renames a directory, the other adds a file to it.
    check(
        &[("dir/a", LONG), ("dir/b", "b\nb\n"), ("apart", "x\ny\nz\n")],
        &[("new/a", LONG), ("new/b", "b\nb\n"), ("here", "x\ny\nz\n")],
        &[("dir/a", LONG), ("dir/b", "b\nb\n"), ("dir/c", "c\n"), ("there", "x\ny\nz\n")],
        expect![[r#"
            here: x | y | z
            new/a: 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9
            new/b: b | b
            new/c: c
            there: x | y | z
            RenamedApart apart (apart, -, -)
            RenamedApart here (-, here, -)
            Moved new/c (-, -, dir/c)
            RenamedApart there (-, -, there)
        "#]],
    );
}

#[test]
fn nothing_is_lost_where_a_moved_directory_meets_a_file() {
    // Theirs replaced a file by a directory; ours renamed the directory above, where the file is unchanged.
    check(
        &[("old/x", LONG), ("old/y", "y\ny\ny\n"), ("old/a", "a\nb\nc\nd\n")],
        &[("new/x", LONG), ("new/y", "y\ny\ny\n"), ("new/a", "a\nb\nc\nd\n")],
        &[("old/x", LONG), ("old/y", "y\ny\ny\n"), ("old/a/inside", "z\n"), ("old/z", "z\nz\n")],
        expect![[r#"
            new/a/inside: z
            new/a~ours: a | b | c | d
            new/x: 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9
            new/y: y | y | y
            new/z: z | z
            Moved new/a/inside (-, -, old/a/inside)
            RenamedDeleted new/a~ours (old/a, new/a, -)
            Moved new/z (-, -, old/z)
        "#]],
    );
}

#[test]
fn merging_an_unchanged_side_gives_the_other_side() {
    for seed in 0..20 {
        let scratch = Scratch::new();
        let [base, ours, _] = generated::history(&scratch, seed);
        for trees in [[base, ours, base], [base, base, ours], [base, ours, ours], [ours, ours, ours]] {
            let merged = by_us(&scratch.objects, trees);
            assert_eq!((merged.tree, merged.conflicts.len()), (ours, 0), "seed {seed}");
        }
    }
}
