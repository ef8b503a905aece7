//! The decisions about a mirror, as tables.

use expect_test::{Expect, expect};

use super::plan::{
    CopiedEntry, Copies, ExceededLimit, FileStat, KnownFile, KnownFiles, ListedEntry, MirrorLimits, Walk, plan_fetch,
    plan_send,
};
use crate::sandbox::{DirEntry, FileKind};

const LIMITS: MirrorLimits = MirrorLimits { names: 7, depth: 2, path_bytes: 12, file_bytes: 100, total_bytes: 250 };

/// Returns an entry: `name/` is a directory, `name@` a link, `name!` a pipe; a file has a size behind `:`, and a mark behind `#`.
fn entry(text: &str) -> DirEntry {
    let other = |name: &str, kind| DirEntry::new(name, kind, 0);
    match text.as_bytes().last() {
        Some(b'/') => other(&text[..text.len() - 1], FileKind::Directory),
        Some(b'@') => other(&text[..text.len() - 1], FileKind::Symlink),
        Some(b'!') => other(&text[..text.len() - 1], FileKind::Other),
        _ => {
            let (text, mark) = text.split_once('#').map_or((text, None), |(text, mark)| (text, Some(mark)));
            let (name, bytes) = text.split_once(':').unwrap_or((text, "1"));
            let entry = DirEntry::new(name, FileKind::File, bytes.parse().expect("a size"));
            mark.into_iter().fold(entry, DirEntry::with_mark)
        }
    }
}

fn known(files: &[(&str, Option<&str>)]) -> KnownFiles {
    let mut known = KnownFiles::default();
    for (path, mark) in files {
        let file = KnownFile { mark: mark.map(str::to_owned), digest: Some("d".to_owned()), copy: Some(stat(1)) };
        known.files.insert((*path).to_owned(), file);
    }
    known
}

fn stat(inode: u64) -> FileStat {
    FileStat { bytes: 1, modified: None, inode }
}

/// A directory with its entries and its ignore rules.
type TestDir<'a> = (&'a str, &'a [&'a str], &'a str);

/// Walks through directories, each given with its entries and its ignore rules, and draws what the mirror gets.
fn walked(known: &KnownFiles, directories: &[TestDir<'_>]) -> String {
    let mut walk = Walk::new(LIMITS, known);
    let mut waiting = vec![Walk::top()];
    while let Some(next) = waiting.pop() {
        let found = directories.iter().find(|(path, ..)| *path == next.path);
        let (entries, rules) = found.map_or((&[][..], ""), |(_, entries, rules)| (*entries, *rules));
        let entries = entries.iter().map(|text| entry(text)).collect();
        match walk.add(&next, entries, (!rules.is_empty()).then_some(rules.as_bytes())) {
            Ok(below) => waiting.extend(below),
            Err(limit) => return format!("{limit}\n"),
        }
    }
    let draw = |(path, entry): (&String, &ListedEntry)| match entry {
        ListedEntry::Directory => format!("{path}/\n"),
        ListedEntry::File { mark } => format!("{path} {}\n", mark.as_deref().unwrap_or("-")),
        ListedEntry::Large { bytes, .. } => format!("{path}, {bytes} bytes\n"),
    };
    walk.finish().iter().map(draw).collect()
}

#[track_caller]
fn check(known: &KnownFiles, directories: &[TestDir<'_>], expected: &Expect) {
    expected.assert_eq(&walked(known, directories));
}

#[test]
fn files_that_have_versions_are_listed() {
    let none = KnownFiles::default();
    check(
        &none,
        &[("", &["a#1", "b", "l@", "p!", "d/", "big:101#2"], ""), ("d", &["c:7"], "")],
        &expect![[r#"
        a 1
        b -
        big, 101 bytes
        d/
        d/c -
    "#]],
    );
    let odd = ["", ".", "..", "/", "a/b", "../a", "a\0", ".rath/", ".Rath/", ".git/", ".GIT/", "ok", "ok/", "ok#2"];
    check(
        &none,
        &[("", &odd, ""), ("ok", &["inside"], "")],
        &expect![[r#"
        ok -
    "#]],
    );
}

#[test]
fn ignored_files_are_left_out_unless_they_were_seen() {
    let directories: [TestDir<'_>; 3] = [
        ("", &["a.log", "b.log", "lib/", "src/"], "*.log\nlib/\n"),
        ("lib", &["x", "y"], ""),
        ("src", &["c.log", "m"], "!c.log\n"),
    ];
    check(
        &KnownFiles::default(),
        &directories,
        &expect![[r#"
        src/
        src/c.log -
        src/m -
    "#]],
    );
    let mut seen = known(&[("a.log", None), ("lib/x", None)]);
    let wanted = expect![[r#"
        a.log -
        lib/
        lib/x -
        src/
        src/c.log -
        src/m -
    "#]];
    check(&seen, &directories, &wanted);
    // A file that was removed and appears again was seen too.
    seen.remove("a.log");
    seen.remove("lib/x");
    check(&seen, &directories, &wanted);
}

#[test]
fn each_limit_is_one() {
    let none = KnownFiles::default();
    let rows: [(&[TestDir<'_>], Result<(), ExceededLimit>); 7] = [
        (&[("", &["a", "b", "c", "d", "e", "f", "g"], "")], Ok(())),
        (&[("", &["a", "b", "c", "d", "e", "f", "g", "h"], "")], Err(ExceededLimit::Names(7))),
        (&[("", &["a", "b", "c", "d", "e", "f", "g", "h"], "[c-z]\n")], Ok(())),
        (&[("", &["a/"], ""), ("a", &["b/"], ""), ("a/b", &["c/"], "")], Err(ExceededLimit::Depth(2))),
        (&[("", &["twelve-bytes"], "")], Ok(())),
        (&[("", &["thirteen-byte"], "")], Err(ExceededLimit::PathBytes(12))),
        (&[("", &["a:100", "b:100", "c:51"], "")], Err(ExceededLimit::TotalBytes(250))),
    ];
    for (directories, expected) in rows {
        let found = walked(&none, directories);
        match expected {
            Ok(()) => assert!(!found.contains("more than"), "{directories:?}: {found}"),
            Err(limit) => assert_eq!(found, format!("{limit}\n"), "{directories:?}"),
        }
    }
}

#[test]
fn only_what_may_have_changed_is_read() {
    let file = |mark: Option<&str>| ListedEntry::File { mark: mark.map(str::to_owned) };
    let listing = [
        ("changed", file(Some("2"))),
        ("dir", ListedEntry::Directory),
        ("dir/new", file(Some("1"))),
        ("marked", file(Some("1"))),
        ("overwritten-here", file(Some("1"))),
        ("swapped", ListedEntry::Directory),
        ("unmarked", file(None)),
    ];
    let listing = listing.map(|(path, entry)| (path.to_owned(), entry)).into();
    let copies = [
        ("changed", CopiedEntry::File(stat(1))),
        ("gone", CopiedEntry::Directory),
        ("gone/file", CopiedEntry::File(stat(1))),
        ("link", CopiedEntry::Other),
        ("marked", CopiedEntry::File(stat(1))),
        ("overwritten-here", CopiedEntry::File(stat(2))),
        ("swapped", CopiedEntry::File(stat(1))),
        ("unmarked", CopiedEntry::File(stat(1))),
    ];
    let copies: Copies = copies.map(|(path, copy)| (path.to_owned(), copy)).into();
    let known = known(&[
        ("changed", Some("1")),
        ("gone/file", Some("1")),
        ("marked", Some("1")),
        ("overwritten-here", Some("1")),
        ("swapped", Some("1")),
        ("unmarked", None),
    ]);
    let plan = plan_fetch(&listing, &copies, &known);
    expect![[r#"
        FetchPlan {
            remove: [
                "swapped",
                "link",
                "gone/file",
                "gone",
            ],
            forget: [
                "gone/file",
                "swapped",
            ],
            make: [
                "dir",
                "swapped",
            ],
            read: [
                (
                    "changed",
                    Some(
                        "2",
                    ),
                ),
                (
                    "dir/new",
                    Some(
                        "1",
                    ),
                ),
                (
                    "overwritten-here",
                    Some(
                        "1",
                    ),
                ),
                (
                    "unmarked",
                    None,
                ),
            ],
            large: [],
        }
    "#]]
    .assert_debug_eq(&plan);
}

#[test]
fn the_sandbox_gets_what_differs_from_what_was_fetched() {
    let known = known(&[("same", None), ("new-content", None), ("removed", None), ("now-a-directory", None)]);
    let mut copies: Copies = [
        ("created", CopiedEntry::File(stat(2))),
        ("new-content", CopiedEntry::File(stat(3))),
        ("now-a-directory", CopiedEntry::Directory),
        ("same", CopiedEntry::File(stat(1))),
    ]
    .map(|(path, copy)| (path.to_owned(), copy))
    .into();
    let plan = plan_send(&copies, &known).expect("ordinary files");
    assert_eq!(plan.remove, ["now-a-directory", "removed"]);
    assert_eq!(plan.write, ["created", "new-content"]);
    copies.insert("link".to_owned(), CopiedEntry::Other);
    assert_eq!(plan_send(&copies, &known), Err("link".to_owned()));
}

#[test]
fn no_path_that_could_lead_out_of_a_mirror_is_used() {
    // Nothing is at these paths: a wall that fails finds nothing to remove.
    let root = std::path::Path::new("/nonexistent-mirror");
    let copies = super::copies::CopiesDir::new(root.to_owned());
    for path in ["", "/", "/nonexistent", "..", "../x", "a/../b", "a//b", "a/", "./a", "a\0b"] {
        let error = copies.read(path).expect_err("refused");
        assert!(error.to_string().contains("no path of a file in a mirror"), "{path:?}: {error}");
    }
}
