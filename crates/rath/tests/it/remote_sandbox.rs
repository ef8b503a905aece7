//! Sessions in a sandbox that is no directory of this machine.

mod backend;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use expect_test::{Expect, expect};
use rath::chunk::Outcome;
use rath::gc::Gc;
use rath::prelude::*;
use rath::record::draw;
use rath::sandbox::{Command, DirEntry, FileKind};
use rath::tool::builtin::{ReadFile, Shell, WriteFile};
use rath::{Bundle, BundleFiles, Secrets};
use rath_test_support::{Chance, seeds};

use self::backend::Remote;
use crate::support::{block_on, close, folder, put, script, worker};

/// A change of a mirror that no fetch made, with its name.
type Damage = (&'static str, fn(&Path));

const WRITE: [&str; 2] = [
    r#"{"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "one\n"}}]}"#,
    r#"{"text": "written"}"#,
];

fn writer() -> Agent {
    Agent::new("Work.", &script(WRITE)).tool(WriteFile).tool(ReadFile).tool(Shell)
}

/// Returns a store of each kind in a directory.
fn stores(root: &Path) -> [String; 2] {
    [format!("sqlite:{}", root.join("s.db").display()), format!("jsonl:{}", root.join("sessions").display())]
}

/// Runs an agent on a session with one more message.
fn run(mut session: Session, agent: &Agent) -> Session {
    session.push(Chunk::user("go on"));
    block_on(agent.run(session)).expect("it runs")
}

/// Draws what the record says about files, one line a step.
fn described(session: &Session) -> String {
    let told = session.as_record().steps().into_iter().filter_map(|step| {
        let effects: Vec<_> = step.chunk().effects().iter().map(draw::describe_effect).collect();
        let tree = if step.chunk().tree().is_some() { "files seen" } else { "no files" };
        match step.chunk() {
            Chunk::ToolResult(result) => Some(format!("{:?}, {tree}: {}\n", result.outcome, effects.join(" "))),
            Chunk::Observed(_) => Some(format!("observed: {}\n", effects.join(" "))),
            Chunk::Restored(_) => Some(format!("restored: {}\n", effects.join(" "))),
            Chunk::Placed(placed) => Some(format!("placed in {}, {tree}\n", placed.place)),
            Chunk::Note(note) => Some(format!("note: {}\n", note.text)),
            _ => None,
        }
    });
    told.collect()
}

fn check(session: &Session, expected: &Expect) {
    expected.assert_eq(&described(session));
}

/// Returns the files below a directory with their contents, without those of rath.
fn files_in(directory: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(below) = directories.pop() {
        for entry in std::fs::read_dir(below).expect("a directory").map(|entry| entry.expect("an entry").path()) {
            let name = entry.strip_prefix(directory).expect("a path in it").display().to_string();
            match entry.is_dir() {
                true if name == ".rath" => {}
                true => directories.push(entry),
                false => _ = files.insert(name, std::fs::read_to_string(&entry).expect("a text")),
            }
        }
    }
    files
}

/// Returns the only mirror beside a store in a directory.
fn mirror_in(root: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(root.join(".rath/remote")).expect("mirrors");
    entries.next().expect("a mirror").expect("an entry").path()
}

fn authors(session: &Session, path: &str) -> Vec<(String, String)> {
    let blame = block_on(session.blame(path)).expect("blamed").expect("a file");
    let line = |line: rath::Line| match line.origin {
        rath::Origin::Call(author) => (line.text, author.call.tool.to_string()),
        origin => (line.text, format!("{origin:?}")),
    };
    blame.lines.into_iter().map(line).collect()
}

#[test]
fn calls_have_trees_and_effects_and_all_that_follows_from_them() {
    let folder = folder(&[("box/b.txt", "two\n"), ("box/.gitignore", "lib/\n"), ("box/lib/big.js", "no\n")]);
    for uri in stores(folder.path()) {
        let root = folder.path().join("box");
        let remote = Remote::new(&root);
        let store = block_on(Store::open(&uri)).expect("a store");
        let session = block_on(Session::user("write").to(remote.sandbox()).record(&store)).expect("recorded");
        let first = run(session, &writer());
        let last = run(
            first.clone(),
            &worker(&[["echo more >> a.txt; mkdir d; echo x > d/n.txt; echo y > lib/big.js; rm b.txt"]]),
        );
        check(
            &last,
            &expect![[r#"
                placed in remote:box, no files
                observed: 
                Ok, files seen: +a.txt
                Ok, files seen: ~a.txt -b.txt +d/n.txt
            "#]],
        );
        assert!(!remote.take_reads().contains(&"lib/big.js".to_owned()), "an ignored file is not read");
        let (one, more) = (("one".to_owned(), "write_file".to_owned()), ("more".to_owned(), "shell".to_owned()));
        assert_eq!(authors(&last, "a.txt"), [one, more]);
        let patch = block_on(first.patch(&last)).expect("a patch");
        assert!(patch.contains("+more\n") && patch.contains("-two\n"), "{patch}");
        let copy = folder.path().join("copy");
        block_on(last.checkout(&copy)).expect("checked out");
        let mut wanted = files_in(&root);
        wanted.remove("lib/big.js");
        assert_eq!(files_in(&copy), wanted);
        assert!(block_on(last.check_files()).expect("checked").is_whole());
        let found =
            block_on(last.bisect_in(&Sandbox::local(folder.path()), &["test", "-e", "b.txt"].map(str::to_owned)));
        assert_eq!(found.expect("bisected").trees, 3);
        close((first, last), store);
        std::fs::remove_dir_all(&copy).expect("removed");
        std::fs::remove_dir_all(root.join("d")).expect("removed");
        std::fs::remove_file(root.join("a.txt")).expect("removed");
        put(&root, "b.txt", "two\n");
    }
}

#[test]
fn a_stored_session_sees_what_was_changed_meanwhile_and_reads_only_that() {
    let folder = folder(&[("box/b.txt", "two\n"), ("box/c/d.txt", "three\n")]);
    let remote = Remote::new(&folder.path().join("box"));
    for uri in stores(folder.path()) {
        let store = block_on(Store::open(&uri)).expect("a store");
        let session = block_on(Session::user("write").to(remote.sandbox()).record(&store)).expect("recorded");
        let session = run(session, &writer());
        let id = session.id();
        close(session, store);
        remote.take_reads();
        put(&folder.path().join("box"), "b.txt", &format!("changed for {uri}\n"));
        let store = block_on(Store::open(&uri)).expect("a store").sandboxes(remote.kinds());
        let resumed = block_on(store.resume(id)).expect("stored");
        assert_eq!(resumed.certificate().to_string(), "files changed since the last turn: ~b.txt");
        assert_eq!(remote.take_reads(), ["b.txt"]);
        let session = run(resumed.accept_file_changes().expect("only files"), &worker(&[["echo four > c/e.txt"]]));
        assert!(
            described(&session).contains("observed: ~b.txt\nOk, files seen: +c/e.txt\n"),
            "{}",
            described(&session)
        );
        assert_eq!(remote.take_reads(), ["c/e.txt"]);
        // A program that does not know the kind reads the versions beside the store.
        close(session, store);
        let store = block_on(Store::open(&uri)).expect("a store");
        let read = block_on(store.read(id)).expect("stored").session;
        assert_eq!(authors(&read, "c/e.txt"), [("four".to_owned(), "shell".to_owned())]);
        assert!(block_on(store.check_files(folder.path())).expect("checked").is_whole());
        close(read, store);
        std::fs::remove_file(folder.path().join("box/c/e.txt")).expect("removed");
    }
}

#[test]
fn a_file_without_a_mark_is_read_every_time() {
    let folder = folder(&[("b.txt", "two\n")]);
    let remote = Remote::new(folder.path());
    remote.behaviour.has_marks.store(false, Relaxed);
    let session = run(Session::empty().to(remote.sandbox()), &worker(&[["echo 2 > b.txt"]]));
    assert!(remote.take_reads().iter().filter(|path| *path == "b.txt").count() >= 2);
    assert!(described(&session).contains("Ok, files seen: ~b.txt\n"), "{}", described(&session));
}

#[test]
fn beyond_a_limit_nothing_is_said_about_files() {
    let deep = "d/".repeat(70);
    let folder = folder(&[("a.txt", "one\n")]);
    let session = Session::empty().to(Remote::new(folder.path()).sandbox());
    let session = run(session, &worker(&[["echo 2 > b.txt"]]));
    assert!(session.tree().is_some());
    let session = run(session, &worker(&[vec![format!("mkdir -p {deep}")], vec!["echo 3 > c.txt".to_owned()]]));
    check(
        &session,
        &expect![[r#"
            placed in remote:box, no files
            observed: 
            Ok, files seen: +b.txt
            placed in remote:box, no files
            note: the files in remote:box are not versioned: more than 64 directories are nested
            Ok, no files: 
            Ok, no files: 
        "#]],
    );
    assert_eq!(session.tree(), None);
    assert_eq!(session.text(), Some("done"));
}

#[test]
fn a_session_whose_files_cannot_be_seen_is_replayed() {
    let deep = "d/".repeat(70);
    for commands in [vec!["true".to_owned()], vec![format!("mkdir -p {deep}"), "echo 3 > c.txt".to_owned()]] {
        let folder = folder(&[("a.txt", "one\n")]);
        let remote = Remote::new(folder.path());
        remote.behaviour.is_down.store(commands.len() == 1, Relaxed);
        let agent = worker(&commands.iter().map(|command| [command]).collect::<Vec<_>>());
        let session = run(Session::empty().to(remote.sandbox()), &agent);
        assert!(described(&session).contains("are not versioned"), "{}", described(&session));
        let report = block_on(session.replay(&agent)).expect("replayed");
        assert!(report.is_exact(), "{report}");
    }
}

#[test]
fn files_that_cannot_be_listed_end_no_run_and_are_seen_again_later() {
    let folder = folder(&[("a.txt", "one\n")]);
    let remote = Remote::new(folder.path());
    let session = run(Session::empty().to(remote.sandbox()), &worker(&[["echo 2 > b.txt"]]));
    remote.behaviour.is_down.store(true, Relaxed);
    let session = run(session, &worker(&[["echo 3 > c.txt"]]));
    remote.behaviour.is_down.store(false, Relaxed);
    let session = run(session, &worker(&[["echo 4 > d.txt"]]));
    check(
        &session,
        &expect![[r#"
            placed in remote:box, no files
            observed: 
            Ok, files seen: +b.txt
            placed in remote:box, no files
            note: the files in remote:box are not versioned: the line is dead
            Ok, no files: 
            observed: 
            Ok, files seen: +d.txt
        "#]],
    );
}

#[test]
fn a_stored_session_whose_files_cannot_be_seen_is_not_said_to_be_unchanged() {
    let folder = folder(&[("box/a.txt", "one\n")]);
    let remote = Remote::new(&folder.path().join("box"));
    let [uri, _] = stores(folder.path());
    let store = block_on(Store::open(&uri)).expect("a store");
    let session = block_on(Session::empty().to(remote.sandbox()).record(&store)).expect("recorded");
    let session = run(session, &worker(&[["echo 2 > b.txt"]]));
    let id = session.id();
    close(session, store);
    remote.behaviour.is_down.store(true, Relaxed);
    let store = block_on(Store::open(&uri)).expect("a store").sandboxes(remote.kinds());
    let resumed = block_on(store.resume(id)).expect("stored");
    let told = "tools cannot run at remote:box: its files cannot be seen: the line is dead";
    assert_eq!(resumed.certificate().to_string(), told);
    close(resumed, store);
}

#[test]
fn no_name_of_the_sandbox_leads_out_of_the_mirror() {
    let folder = folder(&[
        ("box/a.txt", "one\n"),
        ("box/x", "x\n"),
        ("outside.txt", "mine\n"),
        ("victim/file.txt", "mine too\n"),
    ]);
    let remote = Remote::new(&folder.path().join("box"));
    let long = "n".repeat(300);
    // Paths of this test's own directory: a wall that fails must not cost more than that.
    let absolute = folder.path().join("victim").display().to_string();
    let names = [
        "..",
        ".",
        "",
        &*absolute,
        "../outside.txt",
        "../../outside.txt",
        "../../../outside.txt",
        "../../../victim",
        "d/../../e",
        "a\0b",
        ".rath",
        ".RATH",
        ".git",
        ".Git",
        "x/y",
        "a.txt",
        &*long,
    ];
    let kinds = [FileKind::File, FileKind::Directory, FileKind::Symlink, FileKind::Other];
    let entry = |name: &&str| kinds.map(|kind| DirEntry::new(*name, kind, 4).with_mark("m"));
    *remote.behaviour.extra.lock().expect("a lock") = names.iter().flat_map(entry).collect();
    let store = block_on(Store::open(&stores(folder.path())[0])).expect("a store");
    let session = block_on(Session::empty().to(remote.sandbox()).record(&store)).expect("recorded");
    let session = run(session, &worker(&[["echo 2 > b.txt"]]));
    let mirror = mirror_in(folder.path());
    let wanted =
        [("a.txt", "one\n"), ("b.txt", "2\n"), ("x", "x\n")].map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(files_in(&mirror), wanted.into());
    assert_eq!(std::fs::read_dir(mirror.join("..")).expect("mirrors").count(), 1, "there is nothing beside it");
    for (path, text) in [("outside.txt", "mine\n"), ("victim/file.txt", "mine too\n")] {
        assert_eq!(std::fs::read_to_string(folder.path().join(path)).expect("a file"), text);
    }
    assert!(described(&session).contains("Ok, files seen: +b.txt\n"), "{}", described(&session));
    let read: Vec<_> = remote.take_reads();
    assert!(read.iter().all(|path| ["a.txt", "b.txt", "x"].contains(&&**path)), "{read:?}");
    close(session, store);
}

#[test]
fn copies_that_were_changed_or_lost_are_replaced() {
    let folder = folder(&[("box/a.txt", "one\n"), ("box/d/b.txt", "two\n"), ("outside.txt", "mine\n")]);
    let remote = Remote::new(&folder.path().join("box"));
    let [uri, _] = stores(folder.path());
    let store = block_on(Store::open(&uri)).expect("a store");
    let session = block_on(Session::empty().to(remote.sandbox()).record(&store)).expect("recorded");
    let id = run(session, &worker(&[["echo 2 > b.txt"]])).id();
    block_on(store.close()).expect("closed");
    let mirror = mirror_in(folder.path());
    let damages: [Damage; 5] = [
        ("content", |mirror| std::fs::write(mirror.join("a.txt"), "ONE\n").expect("written")),
        ("a new file", |mirror| std::fs::write(mirror.join("d/c.txt"), "three\n").expect("written")),
        ("a link", |mirror| {
            std::fs::remove_dir_all(mirror.join("d")).expect("removed");
            std::os::unix::fs::symlink(mirror.join("../../.."), mirror.join("d")).expect("linked");
        }),
        ("a list that cannot be read", |mirror| {
            std::fs::write(mirror.join(".rath/mirror.json"), "{").expect("written");
        }),
        ("a list with paths of others", |mirror| {
            let list = r#"{"files": {"../../../outside.txt": {"digest": "0"}, "d/../a.txt": {}}}"#;
            std::fs::write(mirror.join(".rath/mirror.json"), list).expect("written");
        }),
    ];
    for (what, damage) in damages {
        damage(&mirror);
        let store = block_on(Store::open(&uri)).expect("a store").sandboxes(remote.kinds());
        let resumed = block_on(store.resume(id)).expect("stored");
        assert_eq!(resumed.certificate().to_string(), "nothing has changed", "{what}");
        assert_eq!(files_in(&mirror), files_in(&folder.path().join("box")), "{what}");
        close(resumed, store);
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("outside.txt")).expect("a file"), "mine\n");
}

#[test]
fn a_file_that_is_too_large_is_noticed_and_not_read() {
    let folder = folder(&[("a.txt", "one\n")]);
    let remote = Remote::new(folder.path());
    let session = Session::empty().to(remote.sandbox());
    let session = run(session, &worker(&[["truncate -s 33M big"], ["truncate -s 34M big"], ["rm big"]]));
    check(
        &session,
        &expect![[r#"
            placed in remote:box, no files
            observed: 
            Ok, files seen: +big
            Ok, files seen: ~big
            Ok, files seen: -big
        "#]],
    );
    assert!(!remote.take_reads().contains(&"big".to_owned()));
}

#[test]
fn a_bundle_has_the_files() {
    let folder = folder(&[("box/a.txt", "one\n")]);
    let session = Session::empty().to(Remote::new(&folder.path().join("box")).sandbox());
    let session = run(session, &worker(&[["echo 2 > b.txt"]]));
    let (bundle, into) = (folder.path().join("one.rath"), folder.path().join("into"));
    block_on(session.export_bundle(&bundle, BundleFiles::Include)).expect("exported");
    std::fs::create_dir(&into).expect("a directory");
    let read = block_on(Bundle::read(&bundle, &into, &Secrets::default())).expect("a bundle");
    let imported = read.file.session.clone();
    block_on(read.files.store()).expect("stored");
    let copy = folder.path().join("copy");
    block_on(imported.with_files_in(&into).checkout(&copy)).expect("checked out");
    assert_eq!(files_in(&copy), files_in(&folder.path().join("box")));
}

#[test]
fn a_restore_writes_and_removes_files_in_the_sandbox() {
    let folder = folder(&[("a.txt", "one\n"), ("d/b.txt", "two\n")]);
    let remote = Remote::new(folder.path());
    let session = run(Session::empty().to(remote.sandbox()), &worker(&[["echo 2 > c.txt; rm d/b.txt"]]));
    let step = session.head().expect("a step").id();
    let mut session =
        run(session, &worker(&[["echo 3 > a.txt; rm c.txt; echo new > e.txt; mkdir -p d; echo 5 > d/b.txt"]]));
    let before = files_in(folder.path());
    remote.behaviour.can_remove.store(false, Relaxed);
    let error = block_on(session.restore(step)).expect_err("a file cannot be removed");
    assert!(error.message().contains("no file is removed here"), "{error}");
    assert_eq!(files_in(folder.path()), before, "nothing was written");
    remote.behaviour.can_remove.store(true, Relaxed);
    let effects: Vec<_> =
        block_on(session.restore(step)).expect("restored").iter().map(draw::describe_effect).collect();
    assert_eq!(effects, ["~a.txt", "+c.txt", "-d/b.txt", "-e.txt"]);
    let wanted = [("a.txt", "one\n"), ("c.txt", "2\n")].map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(files_in(folder.path()), wanted.into());
    // What was restored is as the record says.
    let session = run(session, &worker(&[["echo 6 > f.txt"]]));
    assert!(described(&session).ends_with("-e.txt\nOk, files seen: +f.txt\n"), "{}", described(&session));
}

#[test]
fn a_fork_is_refused_and_what_it_does_elsewhere_is_merged() {
    let folder = folder(&[("box/a.txt", "one\n"), ("here/a.txt", "one\n")]);
    let root = folder.path().join("box");
    let remote = Remote::new(&root);
    let session = run(Session::empty().to(remote.sandbox()), &worker(&[["echo 2 > b.txt"]]));
    let mut fork = session.fork();
    fork.push(Chunk::user("go on"));
    let fork = block_on(worker(&[["echo 3 > c.txt"]]).run(fork)).expect("the model reads the error");
    assert!(described(&fork).contains("Failed, no files"), "{}", described(&fork));
    let elsewhere = session.fork().to(Sandbox::local(folder.path().join("here")));
    let elsewhere = run(elsewhere, &worker(&[["echo 1 >> a.txt; echo 3 > c.txt"]]));
    let merged = block_on(session.merge(&elsewhere)).expect("merged");
    let merged = run(merged, &worker(&[["cat a.txt c.txt"]]));
    let wanted = [("a.txt", "one\n1\n"), ("b.txt", "2\n"), ("c.txt", "3\n")]
        .map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(files_in(&root), wanted.into(), "{}", described(&merged));
}

#[test]
fn a_session_that_is_recorded_later_keeps_its_versions() {
    let folder = folder(&[("box/a.txt", "one\n")]);
    let remote = Remote::new(&folder.path().join("box"));
    let session = run(Session::empty().to(remote.sandbox()), &writer());
    let [uri, _] = stores(folder.path());
    let store = block_on(Store::open(&uri)).expect("a store");
    let session = block_on(session.record(&store)).expect("recorded");
    let session = run(session, &worker(&[["echo more >> a.txt"]]));
    assert!(described(&session).ends_with("Ok, files seen: ~a.txt\n"), "{}", described(&session));
    let id = session.id();
    close(session, store);
    let store = block_on(Store::open(&uri)).expect("a store").sandboxes(remote.kinds());
    let session = block_on(store.resume(id)).expect("stored").complete().expect("nothing has changed");
    let copy = folder.path().join("copy");
    block_on(session.checkout(&copy)).expect("checked out");
    assert_eq!(files_in(&copy), files_in(&folder.path().join("box")));
    assert!(block_on(session.check_files()).expect("checked").is_whole());
    close(session, store);
}

#[test]
fn a_collection_keeps_the_versions_that_sessions_name_and_frees_the_others() {
    let folder = folder(&[("box/a.txt", "one\n")]);
    let remote = Remote::new(&folder.path().join("box"));
    for uri in stores(folder.path()) {
        let store = block_on(Store::open(&uri)).expect("a store");
        let record = |text: &str| {
            let session = block_on(Session::user(text).to(remote.sandbox()).record(&store)).expect("recorded");
            run(session, &worker(&[[format!("echo {text} for {uri} > {text}.txt")]])).id()
        };
        let (kept, gone) = (record("kept"), record("gone"));
        let report = block_on(Gc::new().run(&store, &[gone], folder.path())).expect("collected");
        assert_eq!(report.deleted, [gone]);
        let [directory] = &report.directories[..] else { panic!("one mirror: {report:?}") };
        assert!(directory.skipped.is_none() && directory.removed.versions.files > 0, "{directory:?}");
        assert!(block_on(store.check_files(folder.path())).expect("checked").is_whole());
        let read = block_on(store.read(kept)).expect("stored").session;
        let copy = folder.path().join("copy");
        block_on(read.checkout(&copy)).expect("checked out");
        assert!(copy.join("kept.txt").exists());
        std::fs::remove_dir_all(copy).expect("removed");
        assert!(mirror_in(folder.path()).join("kept.txt").exists());
        close(read, store);
    }
}

#[test]
fn copies_of_files_go_with_the_last_session_that_names_versions() {
    let folder = folder(&[("box/a.txt", "one\n")]);
    let remote = Remote::new(&folder.path().join("box"));
    let store = block_on(Store::open(&stores(folder.path())[0])).expect("a store");
    let session = block_on(Session::empty().to(remote.sandbox()).record(&store)).expect("recorded");
    let id = run(session, &worker(&[["echo 2 > b.txt"]])).id();
    let mirror = mirror_in(folder.path());
    assert_eq!(files_in(&mirror).len(), 2);
    block_on(Gc::new().dry_run().run(&store, &[id], folder.path())).expect("counted");
    assert_eq!(files_in(&mirror).len(), 2);
    block_on(Gc::new().run(&store, &[id], folder.path())).expect("collected");
    assert_eq!(files_in(&mirror).len(), 0);
    assert_eq!(files_in(&folder.path().join("box")).len(), 2);
    // The next session begins with what is there.
    let session = block_on(Session::empty().to(remote.sandbox()).record(&store)).expect("recorded");
    let session = run(session, &worker(&[["echo 3 > c.txt"]]));
    assert!(described(&session).ends_with("observed: \nOk, files seen: +c.txt\n"), "{}", described(&session));
    close(session, store);
}

/// While one helper looks at files, the call of another ends, and its files are looked at.
#[test]
fn helpers_that_work_at_the_same_time_do_not_wait_for_each_other_for_ever() {
    let helper = |rounds: usize, name: &str| {
        let write = |nth| {
            let call = format!(r#"{{"name": "write_file", "arguments": {{"path": "{name}{nth}", "text": "x"}}}}"#);
            format!(r#"{{"calls": [{call}]}}"#)
        };
        let turns = (0..rounds).map(write).chain([r#"{"text": "written"}"#.to_owned()]);
        Agent::new("Help.", &script(turns)).tool(WriteFile)
    };
    let agent = {
        let names = ["one", "two", "three", "four"];
        let calls = names.map(|name| format!(r#"{{"name": "{name}", "arguments": {{"task": "write"}}}}"#)).join(", ");
        let turns = [format!(r#"{{"calls": [{calls}]}}"#), r#"{"text": "done"}"#.to_owned()];
        let helpers = names.iter().zip(1..).map(|(name, rounds)| (*name, helper(rounds, name)));
        helpers.fold(Agent::new("Work.", &script(turns)), |agent, (name, helper)| agent.delegate(name, helper))
    };
    let folder = folder(&[("a.txt", "one\n"), ("d/e/f.txt", "two\n")]);
    let session = run(Session::empty().to(Remote::new(folder.path()).sandbox()), &agent);
    assert_eq!((session.text(), files_in(folder.path()).len()), (Some("done"), 12), "{}", described(&session));
    // A change that the look of another helper found is on the record from the next look on.
    let session = run(session, &worker(&[["echo 2 > b.txt"]]));
    assert_eq!(block_on(session.checkout(folder.path().join("copy"))).expect("checked out").files, 13);
}

#[test]
fn the_trees_are_those_of_a_directory_with_the_same_files() {
    for seed in seeds(6) {
        let mut chance = Chance(seed);
        let folder = folder(&[("box/a", "one\n"), ("here/a", "one\n")]);
        let remote = Remote::new(&folder.path().join("box"));
        remote.behaviour.has_marks.store(chance.below(2) == 0, Relaxed);
        let mut sessions =
            [Session::empty().to(remote.sandbox()), Session::empty().to(Sandbox::local(folder.path().join("here")))];
        for _ in 0..3 {
            let rounds: Vec<_> = (0..1 + chance.below(4)).map(|_| [random_command(&mut chance)]).collect();
            sessions = sessions.map(|session| run(session, &worker(&rounds)));
            let outside = random_command(&mut chance);
            for place in ["box", "here"] {
                let sandbox = Sandbox::local(folder.path().join(place));
                block_on(sandbox.run(&Command::shell(&outside))).expect("it runs");
            }
        }
        let trees = sessions.each_ref().map(|session| {
            let steps = session.as_record().steps();
            let mut trees: Vec<_> = steps.iter().filter_map(|step| step.chunk().tree().cloned()).collect();
            // In a directory of this machine, changes of ignored files are recorded too.
            trees.dedup();
            trees
        });
        assert!(trees[0].len() > 1, "seed {seed}");
        assert_eq!(trees[0], trees[1], "seed {seed}\n{}\n{}", described(&sessions[0]), described(&sessions[1]));
    }
}

/// Returns a command that changes files, some of them ignored.
fn random_command(chance: &mut Chance) -> String {
    let names = ["a", "b", "d/a", "d/b", "d/e/a", "lib/x", "g.log"];
    let mut name = || names[chance.below(names.len() as u64) as usize];
    let (one, other) = (name(), name());
    let line = chance.below(1_000);
    match chance.below(8) {
        0 => format!("rm -rf {one}"),
        1 => format!("mkdir -p $(dirname {other}); mv {one} {other}"),
        2 => "rm -rf d".to_owned(),
        3 => "printf '*.log\\nlib/\\n' > .gitignore".to_owned(),
        4 => "printf 'b\\n' > .gitignore".to_owned(),
        5 => "rm -f .gitignore".to_owned(),
        _ => format!("mkdir -p $(dirname {one}); echo {line} >> {one}"),
    }
}

#[test]
fn sessions_in_one_sandbox_at_a_time_see_its_files() {
    let folder = folder(&[("box/a.txt", "one\n")]);
    let remote = Remote::new(&folder.path().join("box"));
    let store = block_on(Store::open(&stores(folder.path())[0])).expect("a store");
    let work = |nth: usize| {
        let (store, remote) = (store.clone(), remote.clone());
        async move {
            let mut session = Session::user("go").to(remote.sandbox()).record(&store).await.expect("recorded");
            for round in 0..3 {
                session.push(Chunk::user("go on"));
                let command = format!("echo {round} > own-{nth}-{round}.txt");
                session = worker(&[[command]]).run(session).await.expect("it runs");
            }
            session
        }
    };
    let sessions = block_on(async { futures_util::future::join_all((0..4).map(work)).await });
    for (nth, session) in sessions.iter().enumerate() {
        let results = session.chunks().filter_map(|chunk| match chunk {
            Chunk::ToolResult(result) => Some((result.outcome, result.effects.clone())),
            _ => None,
        });
        for (round, (outcome, effects)) in results.enumerate() {
            let own = format!("own-{nth}-{round}.txt");
            assert_eq!(outcome, Outcome::Ok);
            assert!(effects.iter().any(|effect| effect.path == own), "{}", described(session));
        }
    }
    close(sessions, store);
}
