//! Bundles: session files with the versions of files that their steps name.

use std::path::Path;

use expect_test::expect;
use rath::chunk::{Observed, Tree};
use rath::prelude::*;
use rath::record::ObjectId;
use rath::record::codec::{Encoder, Object, ObjectContent, ObjectKind};
use rath::workspace::{self, Objects, TreeId, WalkedContent, Workspace, pack_content};
use rath::{Bundle, BundleFiles, Secrets, verify_blocking};

use crate::support::{block_on, folder};

/// A session that names one version of the files in a folder, stored in its `.rath`.
fn session_with_files(folder: &Path) -> (Session, TreeId) {
    let own = folder.join(".rath");
    let objects = Objects::open(&own.join("workspace")).expect("versions");
    let mut workspace = Workspace::open(folder, &objects, &own.join("index")).expect("a workspace");
    let tree = workspace.snapshot().expect("a snapshot").tree;
    let mut session = Session::user("go").with_files_in(folder);
    session.push(Observed::new(Tree(tree.to_string())));
    (session, tree)
}

fn bundle_bytes(session: &Session) -> Vec<u8> {
    let mut bytes = Vec::new();
    session.export_bundle_to_blocking(&mut bytes, BundleFiles::Include).expect("written");
    bytes
}

/// Returns the objects that a tree consists of, as a bundle holds them.
fn objects_of(folder: &Path, tree: TreeId) -> Vec<Object> {
    let objects = [Objects::open(&folder.join(".rath/workspace")).expect("versions")];
    let walk = Objects::walk(&objects, [(tree.0, workspace::ObjectKind::Tree)]);
    let packed = walk.map(|walked| {
        let WalkedContent::Intact(content) = walked.content else { panic!("{} is stored", walked.path) };
        let kind = match walked.kind {
            workspace::ObjectKind::Blob => ObjectKind::Blob,
            workspace::ObjectKind::Tree => ObjectKind::Tree,
        };
        Object { id: ObjectId(walked.id.0), content: here(kind, &content) }
    });
    packed.collect()
}

fn here(kind: ObjectKind, content: &[u8]) -> ObjectContent {
    ObjectContent::Here { kind, bytes: content.len() as u64, zlib: pack_content(content).expect("packed") }
}

/// Returns a file with the steps of a session and these objects.
fn encode(session: &Session, objects: &[Object]) -> Vec<u8> {
    let mut encoder = Encoder::with_files();
    session.as_record().steps().into_iter().for_each(|step| encoder.push_step(step).expect("a short row"));
    objects.iter().for_each(|object| encoder.push_object(object).expect("a short row"));
    encoder.finish()
}

#[test]
fn a_bundle_holds_what_its_steps_name_and_no_more() {
    let folder = folder(&[("a.txt", "one\n"), ("d/b.txt", "two\n"), ("d/c.txt", "one\n")]);
    let (session, tree) = session_with_files(folder.path());
    // A text that looks like a name is none: another session's files stay here.
    std::fs::write(folder.path().join("other.txt"), "of another session\n").expect("written");
    let (_, other) = session_with_files(folder.path());
    let mut session = session;
    session.push(Chunk::user(format!("\"tree\":\"{other}\"")));
    let bytes = bundle_bytes(&session);
    assert_eq!(bytes, encode(&session, &objects_of(folder.path(), tree)));
    let text = String::from_utf8(bytes.clone()).expect("UTF-8");
    let rows = text.lines().map(|line| line[43..].split_once(",\"").expect("members").1);
    let rows: Vec<_> = rows
        .filter_map(|row| row.split_once(",\"zlib").map(|(row, _)| &row[row.find("object").expect("an object")..]))
        .collect();
    expect![[r#"
        object":"f6159feb3098ba2ec604030616417de6b5be6934","tree":61
        object":"5626abf0f72e58d7a153368ba57db4c673c0e171","blob":4
        object":"769e2b01d4399b33361ca9fe63b0a3d0b5ad8f5b","tree":66
        object":"f719efd430d52bcfc8566a43b2eb655688d38871","blob":4"#]]
    .assert_eq(&rows.join("\n"));
    let path = folder.path().join("b.rath");
    std::fs::write(&path, &bytes).expect("written");
    let report = verify_blocking(&path).expect("a file");
    assert!(report.is_whole() && report.has_files);
    assert_eq!((report.files, report.directories), (2, 2));
    // Without files, it is the file that it always was.
    let mut without = Vec::new();
    session.export_bundle_to_blocking(&mut without, BundleFiles::LeaveOut).expect("written");
    assert_eq!(without, session.to_bytes().expect("bytes"));
    assert!(without.starts_with(br#"{"seal":"43e0bdaa2d319fb028fdb2fe6e6c0fc7","format":"rath record","version":1}"#));
}

#[test]
fn every_changed_byte_of_a_bundle_is_found_and_nothing_else_is_stored() {
    let source = folder(&[("a.txt", "one\n"), ("d/b.txt", "two\n")]);
    let (session, tree) = session_with_files(source.path());
    let (bytes, stored) = (bundle_bytes(&session), objects_of(source.path(), tree).len() as u64);
    let temp = rath_test_support::temp_dir_in_memory();
    let path = temp.path().join("b.rath");
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        std::fs::write(&path, &changed).expect("written");
        let verified = verify_blocking(&path);
        assert!(verified.as_ref().map_or(true, |report| !report.is_whole()), "byte {at}: {verified:?}");
        // What is undamaged can be taken over, and is what it was.
        if at % 11 == 0
            && let Ok(bundle) = block_on(Bundle::read(&path, temp.path().join("into"), &Secrets::default()))
        {
            assert!(!bundle.file.report.is_whole(), "byte {at}");
            let imported = block_on(bundle.files.store()).expect("stored");
            assert!(imported.stored <= stored, "byte {at}");
            drop(imported);
            if temp.path().join("into").exists() {
                let found = [Objects::open(&temp.path().join("into/.rath/workspace")).expect("versions")];
                let walk = Objects::walk(&found, [(tree.0, workspace::ObjectKind::Tree)]);
                let is_damaged = |content| matches!(content, WalkedContent::Damaged(_));
                assert!(!walk.map(|walked| walked.content).any(is_damaged), "byte {at}");
                drop(found);
                std::fs::remove_dir_all(temp.path().join("into")).expect("removed");
            }
        }
    }
}

/// Returns files that are sealed as they should be and hold objects that they should not.
fn hostile_files(session: &Session, objects: &[Object]) -> Vec<(&'static str, Vec<u8>)> {
    let id = |kind: &str, content: &[u8]| {
        use std::io::Write;
        let mut git = rath_test_support::git();
        git.args(["hash-object", "--literally", "--stdin", "-t", kind]);
        let mut child =
            git.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().expect("git");
        child.stdin.take().expect("an input").write_all(content).expect("written");
        let hex = String::from_utf8(child.wait_with_output().expect("it ends").stdout).expect("text");
        hex.trim().parse::<ObjectId>().expect("an id")
    };
    let with = |more: Object| encode(session, &[objects, &[more]].concat());
    let changed = |nth: usize, content: ObjectContent| {
        let mut objects = objects.to_vec();
        objects[nth].content = content;
        encode(session, &objects)
    };
    let blob_at = objects.len() - 1;
    let without = |nth: usize| encode(session, &[&objects[..nth], &objects[nth + 1..]].concat());
    let unnamed = Object { id: id("blob", b"unnamed\n"), content: here(ObjectKind::Blob, b"unnamed\n") };
    let ObjectContent::Here { kind, bytes, zlib } = objects[blob_at].content.clone() else { panic!("a blob") };
    let outside = [b"100644 ..\0", &objects[blob_at].id.0[..]].concat();
    let mut steps_outside = session.clone();
    steps_outside.push(Observed::new(Tree(format!("git:{}", id("tree", &outside)))));
    let outside = Object { id: id("tree", &outside), content: here(ObjectKind::Tree, &outside) };
    let mut reversed = objects.to_vec();
    reversed.reverse();
    let bomb = vec![0; 1 << 20];
    vec![
        ("nothing changed", encode(session, objects)),
        ("an object twice", with(objects[blob_at].clone())),
        ("an object that nothing names", with(unnamed)),
        ("an object that is gone and that nothing names", {
            with(Object { id: ObjectId([7; 20]), content: ObjectContent::Missing })
        }),
        ("another content", changed(blob_at, here(ObjectKind::Blob, b"another\n"))),
        ("a file for a directory", changed(0, here(ObjectKind::Blob, b"one\n"))),
        ("a directory for a file", changed(blob_at, here(ObjectKind::Tree, b""))),
        ("another length", changed(blob_at, ObjectContent::Here { kind, bytes: bytes + 1, zlib: zlib.clone() })),
        ("a length of no file", changed(blob_at, ObjectContent::Here { kind, bytes: 1 << 40, zlib: zlib.clone() })),
        ("more after the end", {
            changed(blob_at, ObjectContent::Here { kind, bytes, zlib: [&zlib[..], b"x"].concat() })
        }),
        ("more than it says", {
            changed(blob_at, ObjectContent::Here { kind, bytes, zlib: pack_content(&bomb).expect("packed") })
        }),
        ("no stream", changed(blob_at, ObjectContent::Here { kind, bytes, zlib: Vec::new() })),
        ("a file is left out", without(blob_at)),
        ("all is left out", encode(session, &[])),
        ("the files come first", encode(session, &reversed)),
        ("a name that leads outside", encode(&steps_outside, &[objects, &[outside]].concat())),
        ("a directory is forgotten", {
            changed(0, ObjectContent::Forgotten { bytes: 1, digest: rath::Digest([7; 32]) })
        }),
        ("a file is forgotten", changed(blob_at, ObjectContent::Forgotten { bytes: 1, digest: rath::Digest([7; 32]) })),
        ("a file is missing", changed(blob_at, ObjectContent::Missing)),
    ]
}

fn hostile_source() -> (rath_test_support::TempDir, Session, Vec<Object>) {
    let source = folder(&[("a.txt", "one\n"), ("b.txt", "two\n")]);
    let (session, tree) = session_with_files(source.path());
    let objects = objects_of(source.path(), tree);
    (source, session, objects)
}

#[test]
fn an_object_that_is_not_what_it_should_be_is_damage_and_is_not_stored() {
    let (_source, session, objects) = hostile_source();
    let mut told = String::new();
    for (what, bytes) in hostile_files(&session, &objects) {
        let temp = rath_test_support::temp_dir_in_memory();
        let path = temp.path().join("b.rath");
        std::fs::write(&path, &bytes).expect("written");
        let bundle = block_on(Bundle::read(&path, temp.path(), &Secrets::default())).expect("a file");
        let damage: Vec<_> = bundle.file.report.damage.iter().map(|damage| damage.fault.to_string()).collect();
        let verified = verify_blocking(&path).expect("a file");
        assert_eq!(verified.damage, bundle.file.report.damage, "{what}");
        let imported = block_on(bundle.files.store()).expect("stored");
        let absent = if imported.absent > 0 { format!(", {} absent", imported.absent) } else { String::new() };
        told += &format!("{what}: {} stored{absent}\n", imported.stored);
        damage.iter().for_each(|fault| told += &format!("  {fault}\n"));
    }
    expect![[r#"
        nothing changed: 3 stored
        an object twice: 3 stored
        an object that nothing names: 3 stored
          nothing before it names this version of a file
        an object that is gone and that nothing names: 3 stored
          nothing before it names this version of a file
        another content: 2 stored, 1 absent
          the version of a file does not match its id
          version f719efd4 of a file is not in the file
        a file for a directory: 0 stored, 1 absent
          nothing before it names this version of a file
          nothing before it names this version of a file
          nothing before it names this version of a file
          version 6640fb01 of a file is not in the file
        a directory for a file: 2 stored, 1 absent
          nothing before it names this version of a file
          version f719efd4 of a file is not in the file
        another length: 2 stored, 1 absent
          the version of a file does not match its id
          version f719efd4 of a file is not in the file
        a length of no file: 2 stored, 1 absent
          the version of a file is too large
          version f719efd4 of a file is not in the file
        more after the end: 2 stored, 1 absent
          the version of a file does not match its id
          version f719efd4 of a file is not in the file
        more than it says: 2 stored, 1 absent
          the version of a file does not match its id
          version f719efd4 of a file is not in the file
        no stream: 2 stored, 1 absent
          the version of a file does not match its id
          version f719efd4 of a file is not in the file
        a file is left out: 2 stored, 1 absent
          version f719efd4 of a file is not in the file
        all is left out: 0 stored, 1 absent
          version 6640fb01 of a file is not in the file
        the files come first: 1 stored, 2 absent
          nothing before it names this version of a file
          nothing before it names this version of a file
          version 5626abf0 of a file is not in the file
          version f719efd4 of a file is not in the file
        a name that leads outside: 3 stored, 1 absent
          the version of a file does not match its id
          version 1d5ee371 of a file is not in the file
        a directory is forgotten: 0 stored, 1 absent
          nothing before it names this version of a file
          nothing before it names this version of a file
          nothing before it names this version of a file
          version 6640fb01 of a file is not in the file
        a file is forgotten: 2 stored
        a file is missing: 2 stored, 1 absent
    "#]]
    .assert_eq(&told);
}

#[test]
fn a_secret_of_the_user_leaves_with_no_file_and_comes_with_none() {
    let value = "canary-4711-in-a-file";
    let mut secrets = Secrets::default();
    assert_eq!(secrets.add("TOKEN", value), rath::secrets::AddOutcome::Added);
    let source = folder(&[("a.txt", "one\n"), ("env", &format!("TOKEN={value}\n"))]);
    let (session, _) = session_with_files(source.path());
    // The value became a secret after the version was stored.
    let hiding = session.clone().hiding(secrets.clone());
    let mut bytes = Vec::new();
    let report = hiding.export_bundle_to_blocking(&mut bytes, BundleFiles::Include).expect("written");
    let left_out: Vec<_> = report.left_out.iter().map(|it| (&*it.path, it.reason)).collect();
    assert_eq!(left_out, [("env", rath::LeftOutReason::Secret)]);
    let path = source.path().join("b.rath");
    std::fs::write(&path, bytes).expect("written");
    assert!(verify_blocking(&path).expect("a file").is_whole());
    // A file of others that holds it is refused as a whole.
    std::fs::write(&path, bundle_bytes(&session)).expect("written");
    let into = rath_test_support::temp_dir();
    let error = block_on(Bundle::read(&path, into.path(), &secrets)).err().expect("refused");
    assert!(error.message().contains("holds a secret of yours"), "{error}");
    let objects = Objects::open(&into.path().join(".rath/workspace")).expect("versions");
    let packs = std::fs::read_dir(objects.folder().join("objects/pack")).expect("a folder");
    assert_eq!(packs.count(), 0, "nothing is stored");
}

#[test]
#[ignore = "needs Python with the package blake3, named by RATH_PYTHON: see CONTRIBUTING.md"]
fn the_python_verifier_agrees_about_every_bundle() {
    let python = std::env::var_os("RATH_PYTHON").expect("RATH_PYTHON names a Python that has blake3");
    let (_source, session, objects) = hostile_source();
    let mut files: Vec<_> = hostile_files(&session, &objects).into_iter().map(|(_, bytes)| bytes).collect();
    let whole = bundle_bytes(&session);
    for at in (0..whole.len()).step_by(5) {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        files.push(changed);
        files.push(whole[..at].to_vec());
    }
    let temp = rath_test_support::temp_dir();
    let names: Vec<_> = (0..files.len()).map(|nth| format!("{nth}.rath")).collect();
    names.iter().zip(&files).for_each(|(name, file)| std::fs::write(temp.path().join(name), file).expect("written"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verify.py");
    let mut command = rath_test_support::program(python);
    let output = command.arg(script).args(&names).current_dir(temp.path()).output().expect("Python");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!err.contains("Traceback"), "{err}");
    for name in &names {
        let verdict = match verify_blocking(temp.path().join(name)) {
            Ok(report) if report.is_whole() => format!("{name}: whole, {} rows, {} steps", report.rows, report.steps),
            Ok(report) => format!("{name}: damaged, {} good rows, {} steps", report.rows, report.steps),
            Err(_) => continue,
        };
        let told: Vec<_> = out.lines().filter(|line| line.starts_with(&format!("{name}:"))).collect();
        assert!(told.iter().any(|line| line.starts_with(&verdict)), "{verdict}\n{told:#?}");
    }
}
