//! Every path on a root itself.

use rath::sandbox::{self, ByteRange, ErrorKind, FileKind, Root};

use super::*;

const ALL: ByteRange = ByteRange { offset: 0, max_len: u64::MAX };

/// The outcome of an operation, in a word.
fn described<T>(result: &sandbox::Result<T>, ok: impl FnOnce(&T) -> String) -> String {
    match result {
        Ok(value) => ok(value),
        Err(error) => {
            assert!(!leaks(&format!("{error:?}")), "{error}");
            match (error.kind(), error.message()) {
                (ErrorKind::OutsideWorkspace, message) if message.ends_with("is outside the workspace") => {
                    "outside".to_owned()
                }
                (ErrorKind::OutsideWorkspace, message) if message.ends_with("is in the reserved directory `.rath`") => {
                    "own".to_owned()
                }
                (ErrorKind::Io, message) => {
                    message.rsplit_once("`: ").map_or(message.clone(), |(_, why)| why.to_owned())
                }
                (kind, message) => panic!("{kind:?}: {message}"),
            }
        }
    }
}

/// The expected outcome of each of the six, `*` for any reason.
fn expected(ends: Ends) -> [&'static str; 6] {
    match ends {
        // read, look, list, directory, name, write
        Outside => ["outside", "outside", "outside", "outside", "none", "outside"],
        Own => ["own", "own", "own", "own", "none", "own"],
        File => ["harmless", "File", "it is not a directory", "it is not a directory", "some", "written"],
        Directory => ["it is a directory", "Directory", "listed", "entered", "some", "it is a directory"],
        Nothing => [
            "there is no such file",
            "nothing",
            "there is no such directory",
            "there is no such directory",
            "some",
            "written",
        ],
        Never => ["*", "*", "*", "*", "*", "*"],
        Odd => [
            "it is not an ordinary file",
            "Other",
            "it is not a directory",
            "it is not a directory",
            "some",
            "it is not an ordinary file",
        ],
    }
}

fn check(row: &Row, walking: bool) {
    let yard = Yard::new();
    row.2(&yard);
    let path = path(&yard, row);
    let root = Root::open(&yard.inside()).expect("a root");
    let root = if walking { root.without_openat2() } else { root };
    let around = yard.around();
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let found = [
        described(&root.read(&path, ALL), text),
        described(&root.stat(&path), |entry| match entry {
            Some(entry) => format!("{:?}", entry.kind),
            None => "nothing".to_owned(),
        }),
        described(&root.list(&path), |entries| {
            assert!(entries.iter().all(|entry| entry.name != ".rath" && entry.name != "secret"), "{entries:?}");
            "listed".to_owned()
        }),
        described(&root.open_directory(&path), |_| "entered".to_owned()),
        root.canonical_name(&path).map_or("none", |_| "some").to_owned(),
        described(&root.write(&path, b"written"), |()| {
            assert_eq!(text(&root.read(&path, ALL).expect("it was written")), "written");
            "written".to_owned()
        }),
    ];
    let expected = expected(row.1);
    let name = format!("{:?}, walking: {walking}", row.0);
    assert!(!found.iter().any(|found| leaks(found)), "{name}: {found:?}");
    assert_eq!(yard.around(), around, "{name}: something changed");
    for (found, expected) in found.iter().zip(expected) {
        let is_done = ["harmless", "listed", "entered", "written", "File", "Directory"].contains(&found.as_str());
        assert!(
            if expected == "*" { !is_done } else { found == expected },
            "{name}: wanted {expected:?}, found {found:?}"
        );
    }
}

#[test]
fn no_path_leads_out_of_a_root() {
    assert!(ROWS.len() >= 60);
    for row in ROWS {
        check(row, false);
        check(row, true);
    }
}

#[test]
fn two_paths_that_mean_the_same_have_one_name() {
    let yard = Yard::new();
    yard.link("l", "a/b");
    yard.link("m", "{in}/l/new");
    let root = Root::open(&yard.inside()).expect("a root");
    for (path, name) in [
        ("", Some("")),
        ("a/file", Some("a/file")),
        ("./a//file", Some("a/file")),
        ("l/../file", Some("a/file")),
        ("{in}/a/file", Some("a/file")),
        ("l/none/new", Some("a/b/none/new")),
        ("m", Some("a/b/new")),
        ("none/../a/new", Some("a/new")),
        ("../outside", None),
        (".rath/x", None),
    ] {
        let path = yard.described(path);
        assert_eq!(root.canonical_name(&path).as_deref(), name, "{path}");
    }
}

#[test]
fn a_file_that_is_written_keeps_what_it_was_beside_its_bytes() {
    let yard = Yard::new();
    let root = Root::open(&yard.inside()).expect("a root");
    for mode in [0o600, 0o644, 0o755] {
        let file = yard.inside().join("a/file");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("a mode");
        root.write("a/file", b"new").expect("it is written");
        assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o7777, mode);
    }
    // A link stays a link.
    yard.link("l", "a/file");
    root.write("l", b"newer").expect("it is written");
    assert!(fs::symlink_metadata(yard.inside().join("l")).expect("a link").is_symlink());
    assert_eq!(fs::read(yard.inside().join("a/file")).expect("a file"), b"newer");
    // Nothing else is left in the directory.
    let names: Vec<_> =
        root.list("a").expect("a directory").into_iter().map(|entry| (entry.name, entry.kind)).collect();
    assert_eq!(names, [("b".to_owned(), FileKind::Directory), ("file".to_owned(), FileKind::File)]);
    assert_eq!(fs::read_dir(yard.inside().join("a")).expect("a directory").count(), 2);
}

#[test]
fn a_part_of_a_file_is_read_and_no_more() {
    let yard = Yard::new();
    yard.set("inside/digits", "0123456789");
    let root = Root::open(&yard.inside()).expect("a root");
    let hole = fs::File::create(yard.inside().join("huge")).expect("a file");
    hole.set_len(1 << 40).expect("a terabyte of nothing");
    for (path, from, most, wanted) in [
        ("digits", 0, 3, "012"),
        ("digits", 3, 3, "345"),
        ("digits", 8, 100, "89"),
        ("digits", 10, 1, ""),
        ("digits", 0, 0, ""),
        ("digits", u64::MAX, u64::MAX, ""),
        ("huge", (1 << 40) - 2, 100, "\0\0"),
    ] {
        let read = root.read(path, ByteRange { offset: from, max_len: most }).expect("it can be read");
        assert_eq!(String::from_utf8_lossy(&read), wanted, "{path} {from} {most}");
    }
    assert_eq!(root.read("huge", ALL).expect("it can be read").len(), 64 << 20);
}
