//! Malicious trees, and damaged folders.

use std::fs;
use std::process::Stdio;

use rath_workspace::ErrorKind;
use rath_workspace::Objects;
use rath_workspace::{ObjectId, TreeId};

use super::support::{Scratch, git, observe, restore, run};

/// Writes an object with git, which accepts any content here.
fn object(objects: &Objects, kind: &str, bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut git = rath_test_support::git();
    git.arg("--git-dir").arg(objects.folder()).args(["hash-object", "-w", "--literally", "--stdin", "-t", kind]);
    let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("git starts");
    child.stdin.take().expect("its input").write_all(bytes).expect("written");
    let hex = String::from_utf8(child.wait_with_output().expect("it ends").stdout).expect("text");
    (0..40).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

fn entry(mode: &str, name: &[u8], id: &[u8]) -> Vec<u8> {
    [mode.as_bytes(), b" ", name, b"\0", id].concat()
}

fn tree_id(id: &[u8]) -> TreeId {
    TreeId(ObjectId(id.try_into().expect("20 bytes")))
}

#[test]
fn no_tree_writes_outside_of_its_directory() {
    let scratch = Scratch::new();
    let objects = &scratch.objects;
    let blob = object(objects, "blob", b"evil");
    let outside = scratch.folder.path().join("outside");
    fs::create_dir(&outside).expect("a directory");
    let link = object(objects, "blob", outside.to_str().expect("text").as_bytes());
    let inner = object(objects, "tree", &entry("100644", b"file", &blob));
    let rows: Vec<(&str, Vec<u8>)> = vec![
        ("dots", entry("100644", b"..", &blob)),
        ("a dot", entry("40000", b".", &inner)),
        ("dots as a directory", entry("40000", b"..", &inner)),
        ("git's own", entry("40000", b".git", &inner)),
        ("git's own in capitals", entry("40000", b".GiT", &inner)),
        ("ours", entry("100644", b".rath", &blob)),
        ("a slash", entry("100644", b"../outside/file", &blob)),
        ("a path", entry("100644", b"a/b", &blob)),
        ("no name", entry("100644", b"", &blob)),
        ("a mode", entry("160000", b"sub", &blob)),
        ("another mode", entry("100777", b"file", &blob)),
        ("a link and a directory of one name", [entry("120000", b"x", &link), entry("40000", b"x", &inner)].concat()),
        ("a file twice", [entry("100644", b"x", &blob), entry("100644", b"x", &blob)].concat()),
        ("cut", b"100644 file\0abc".to_vec()),
        ("a blob for a tree", entry("40000", b"sub", &blob)),
        ("a tree for a blob", entry("100644", b"file", &inner)),
        ("something missing", entry("100644", b"file", &[7; 20])),
        ("itself missing", entry("40000", b"sub", &[7; 20])),
    ];
    for (what, bytes) in rows {
        let tree = tree_id(&object(objects, "tree", &bytes));
        let into = scratch.folder.path().join("into");
        match objects.checkout(tree, &into) {
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Io), "{what}: {error}"),
            // What is named and is not stored is left out.
            Ok(out) => assert_eq!((out.files, out.left_out.len()), (0, 1), "{what}"),
        }
        assert!(observe(&outside).is_empty(), "{what}");
        let names: Vec<_> =
            observe(scratch.folder.path()).into_keys().filter(|path| path.starts_with(b"file")).collect();
        assert!(names.is_empty(), "{what}: {names:?}");
        // There is none if the tree was refused before anything was written.
        let _ = fs::remove_dir_all(&into);
        // No other operation on the tree does harm either.
        let _ = objects.files(tree);
        let _ = objects.read(tree, "../outside/file");
        let mut workspace = scratch.workspace();
        let _ = restore(&mut workspace, tree);
        assert!(observe(&scratch.root).keys().all(|path| path == b"x"), "{what}");
        let _ = fs::remove_file(scratch.root.join("x"));
    }
}

#[test]
fn a_link_in_the_way_is_not_followed() {
    let scratch = Scratch::new();
    let outside = scratch.folder.path().join("outside");
    fs::create_dir(&outside).expect("a directory");
    fs::create_dir(scratch.root.join("dir")).expect("a directory");
    fs::write(scratch.root.join("dir/file"), "inside").expect("written");
    let mut workspace = scratch.workspace();
    let before = workspace.snapshot().expect("a snapshot");
    fs::remove_dir_all(scratch.root.join("dir")).expect("removed");
    std::os::unix::fs::symlink(&outside, scratch.root.join("dir")).expect("a link");
    assert_eq!(restore(&mut workspace, before.tree).expect("restored").tree, before.tree);
    assert!(observe(&outside).is_empty());
    assert_eq!(fs::read(scratch.root.join("dir/file")).expect("read"), b"inside");
}

#[test]
fn damage_to_an_object_is_found_when_it_is_read() {
    // As single files, and in a pack.
    for files in [1, 100] {
        let scratch = Scratch::new();
        (0..files)
            .for_each(|nth| fs::write(scratch.root.join(nth.to_string()), format!("text {nth}")).expect("written"));
        let tree = scratch.workspace().snapshot().expect("a snapshot").tree;
        run(rath_test_support::git().arg("--git-dir").arg(scratch.objects.folder()).args([
            "fsck",
            "--full",
            "--no-dangling",
        ]));
        let objects = scratch.objects.folder().join("objects");
        let all = observe(&objects);
        let files: Vec<_> = all.keys().filter(|path| path.len() > 38 && !path.ends_with(b".idx")).collect();
        for (nth, path) in (0..120).map(|nth| (nth, files[nth % files.len()])) {
            let path = objects.join(super::support::path(path));
            let bytes = fs::read(&path).expect("read");
            let mut damaged = bytes.clone();
            let at = nth * 7919 % damaged.len();
            damaged[at] ^= 1 << (nth % 8);
            fs::write(&path, damaged).expect("written");
            let fresh = Objects::open(scratch.objects.folder()).expect("opened");
            // Either the damage is reported, or the content is right: the damage was in unused bytes.
            if let Ok(files) = fresh.files(tree) {
                for file in files {
                    if let Ok(content) = fresh.read(tree, &file.path) {
                        assert_eq!(content, Some(format!("text {}", file.path).into_bytes()));
                    }
                }
            }
            fs::write(&path, bytes).expect("written");
        }
    }
}

#[test]
fn packs_that_git_wrote_are_read() {
    let scratch = Scratch::new();
    for nth in 0..60 {
        let text: String =
            (0..200).map(|line| format!("line {line} of {}\n", if line == nth { nth } else { 0 })).collect();
        fs::write(scratch.root.join(nth.to_string()), text).expect("written");
    }
    let tree = scratch.workspace().snapshot().expect("a snapshot").tree;
    let files = scratch.objects.files(tree).expect("files");
    let before: Vec<_> = files.iter().map(|file| scratch.objects.read(tree, &file.path).expect("read")).collect();
    // Git packs all objects with deltas, and our pack is removed.
    let pack = scratch.objects.folder().join("objects/pack");
    let ours: Vec<_> = fs::read_dir(&pack).expect("a list").map(|entry| entry.expect("an entry").path()).collect();
    let list: String =
        files.iter().map(|file| format!("{}\n", file.id)).chain([format!("{}\n", &tree.0.to_string())]).collect();
    let mut packing = rath_test_support::git();
    packing.arg("--git-dir").arg(scratch.objects.folder()).args([
        "pack-objects",
        "--delta-base-offset",
        "--no-reuse-object",
        "-q",
    ]);
    packing.arg(pack.join("pack")).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = packing.spawn().expect("git starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("its input"), list.as_bytes()).expect("written");
    assert!(child.wait().expect("it ends").success());
    ours.iter().for_each(|path| fs::remove_file(path).expect("removed"));
    let fresh = Objects::open(scratch.objects.folder()).expect("opened");
    let after: Vec<_> = files.iter().map(|file| fresh.read(tree, &file.path).expect("read")).collect();
    assert_eq!(before, after);
    // The pack does contain deltas.
    let index = fs::read_dir(&pack).expect("a list").map(|entry| entry.expect("an entry").path());
    let index = index.into_iter().find(|path| path.extension().is_some_and(|it| it == "idx")).expect("an index");
    let listed = git(&fresh, &["verify-pack", "-v", index.to_str().expect("text")]);
    assert!(String::from_utf8_lossy(&listed).contains("chain length = 1"));
}

/// A small file can stand for a large one. Blame reads every version, and none that is too large for it.
#[test]
fn blame_unpacks_no_version_that_is_too_large() {
    use rath_workspace::Revision;
    let scratch = Scratch::new();
    let objects = &scratch.objects;
    let tree = |content: &[u8]| {
        let blob = object(objects, "blob", content);
        tree_id(&object(objects, "tree", &entry("100644", b"file", &blob)))
    };
    let most = Revision { tree: tree(&vec![b'\n'; 32 << 20]), parents: vec![] };
    assert!(objects.blame(&[most], 0, "file").is_ok());
    let large = Revision { tree: tree(&vec![b'\n'; (32 << 20) + 1]), parents: vec![] };
    let small = Revision { tree: tree(b"one\n"), parents: vec![0] };
    for head in [0, 1] {
        let error = objects.blame(&[large.clone(), small.clone()], head, "file").expect_err("a version is too large");
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert_eq!(error.message(), "`file` has more than 32 MiB: its lines are not traced");
    }
}

#[test]
fn an_object_with_another_content_than_its_id_says_is_written_anew() {
    // In a file of its own, and in a pack.
    for is_packed in [false, true] {
        let scratch = Scratch::new();
        let folder = scratch.objects.folder().to_owned();
        fs::write(scratch.root.join("file"), "mine").expect("written");
        let id = run(rath_test_support::git().args(["hash-object"]).arg(scratch.root.join("file")));
        let id = String::from_utf8(id).expect("text");
        let other: String =
            object(&scratch.objects, "blob", b"evil").iter().map(|byte| format!("{byte:02x}")).collect();
        let loose = |id: &str| folder.join("objects").join(&id[..2]).join(id[2..].trim());
        fs::create_dir_all(loose(&id).parent().expect("a folder")).expect("made");
        fs::rename(loose(&other), loose(&id)).expect("renamed");
        if is_packed {
            plant_pack(&folder, &id, &loose(&id));
        }
        let objects = Objects::open(&folder).expect("versions");
        let index = scratch.folder.path().join("another index");
        let mut workspace = rath_workspace::Workspace::open(&scratch.root, &objects, &index).expect("a workspace");
        let tree = workspace.snapshot().expect("a snapshot").tree;
        for objects in [&objects, &Objects::open(&folder).expect("versions")] {
            let content = objects.read(tree, "file").expect("it is intact");
            assert_eq!(content.as_deref(), Some(&b"mine"[..]), "{is_packed}");
        }
    }
}

/// Moves an object into a pack whose index has it under an id of its own.
fn plant_pack(folder: &std::path::Path, id: &str, loose: &std::path::Path) {
    let other = rath_test_support::temp_dir();
    let git = || {
        let mut git = rath_test_support::git();
        git.arg("--git-dir").arg(other.path().join("git"));
        git
    };
    run(git().arg("init").arg("-q").arg("--bare"));
    fs::write(other.path().join("evil"), "evil").expect("written");
    let evil = run(git().args(["hash-object", "-w"]).arg(other.path().join("evil")));
    fs::write(other.path().join("ids"), &evil).expect("written");
    let ids = fs::File::open(other.path().join("ids")).expect("a file");
    let name = run(git().arg("pack-objects").arg("-q").arg(other.path().join("pack")).stdin(ids));
    let name = String::from_utf8(name).expect("text");
    let pack = other.path().join(format!("pack-{}", name.trim()));
    // The ids begin after the header and the fan-out table, and the last 20 bytes are the checksum.
    let mut index = fs::read(pack.with_extension("idx")).expect("an index");
    let bytes: Vec<u8> = (0..40).step_by(2).map(|at| u8::from_str_radix(&id[at..at + 2], 16).expect("hex")).collect();
    for first in 0..256 {
        let count = u32::from(first >= usize::from(bytes[0]));
        index[8 + 4 * first..][..4].copy_from_slice(&count.to_be_bytes());
    }
    index[8 + 1024..][..20].copy_from_slice(&bytes);
    let end = index.len() - 20;
    fs::write(other.path().join("body"), &index[..end]).expect("written");
    let sum = run(rath_test_support::program("sha1sum").arg(other.path().join("body")));
    let sum = String::from_utf8(sum).expect("text");
    for (at, byte) in index[end..].iter_mut().enumerate() {
        *byte = u8::from_str_radix(&sum[2 * at..2 * at + 2], 16).expect("hex");
    }
    let target = folder.join("objects/pack/pack-0000000000000000000000000000000000000000.idx");
    fs::write(&target, index).expect("written");
    fs::copy(pack.with_extension("pack"), target.with_extension("pack")).expect("copied");
    fs::remove_file(loose).expect("removed");
}
