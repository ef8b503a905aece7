//! A session as a file.

use rath::prelude::*;
use rath::record::codec::Ending;
use rath::{verify, verify_graph};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn a_session_goes_on_where_its_file_ends() {
    let folder = folder();
    let path = folder.path().join("session.rath");
    let mut session = Session::user("hi");
    session.push_with_usage(Chunk::assistant("hello"), Usage::new(10, 2));
    let mut fork = session.fork_named("fork");
    fork.push(Chunk::user("in the fork"));
    fork.save(&path).expect("saved");
    assert!(verify(&path).expect("read").is_whole());

    let mut opened = Session::open(&path).expect("opened").session;
    assert_eq!(opened.lineage().to_string(), fork.lineage().to_string());
    assert_eq!((opened.id(), opened.usage()), (fork.id(), fork.usage()));
    opened.push(Chunk::assistant("on"));
    fork.push(Chunk::assistant("on"));
    assert_eq!(opened.head(), fork.head());
}

#[test]
fn twins_are_told_apart_across_a_file_too() {
    let folder = folder();
    let path = folder.path().join("session.rath");
    let session = Session::user("hi");
    let answer = |mut fork: Session| {
        fork.push_with_usage(Chunk::assistant("same"), Usage::new(10, 1));
        fork
    };
    answer(session.fork()).merge(&answer(session.fork())).expect("nothing is open").save(&path).expect("saved");
    let opened = Session::open(&path).expect("opened").session;
    let again = opened.at(session.head().expect("a step").id()).expect("a step");
    assert_eq!(answer(again).merge(&opened).expect("nothing is open").usage(), Usage::new(30, 3));
}

#[test]
fn an_untouched_fork_is_still_a_fork_when_it_is_opened() {
    let folder = folder();
    let path = folder.path().join("session.rath");
    let fork = Session::user("hi").fork();
    fork.save(&path).expect("saved");
    let opened = Session::open(&path).expect("opened").session;
    assert_eq!((opened.id(), opened.chunk_count()), (fork.id(), 1));
}

#[test]
fn a_damaged_file_gives_what_is_left_and_says_what_is_not() {
    let folder = folder();
    let path = folder.path().join("session.rath");
    let mut session = Session::user("one");
    session.push(Chunk::user("two"));
    session.push(Chunk::user("three"));
    session.save(&path).expect("saved");
    let mut bytes = std::fs::read(&path).expect("read");
    let at = String::from_utf8_lossy(&bytes).find("two").expect("the second step");
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).expect("written");
    let opened = Session::open(&path).expect("opened");
    assert_eq!(opened.report.damage.len(), 2);
    assert_eq!(opened.session.chunks().count(), 1, "the line breaks where the row is lost");
    assert_eq!(opened.lineage.walk().len(), 2, "and the step before it is there too");
    assert_eq!(opened.lineage.missing().len(), 1);

    std::fs::write(&path, &bytes[..at]).expect("written");
    let opened = Session::open(&path).expect("opened");
    assert!(matches!(opened.report.ending, Ending::Cut { .. }));
    assert_eq!(opened.session.chunk_count(), 1);
}

#[test]
fn saving_replaces_a_file_whole_or_not_at_all() {
    let folder = folder();
    let path = folder.path().join("session.rath");
    Session::user("old").save(&path).expect("saved");
    Session::user("new").save(&path).expect("saved");
    assert_eq!(Session::open(&path).expect("opened").session.chunks().next(), Some(&Chunk::user("new")));
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 1, "nothing is left beside it");

    let error = Session::user("x").save(folder.path().join("no/such/folder/file")).expect_err("no folder");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.session().is_some());
    let error = Session::user("x").save(folder.path()).expect_err("a folder");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(folder.path().is_dir());
}

#[test]
fn what_is_no_session_file_gets_a_clear_error() {
    let folder = folder();
    let path = folder.path().join("README.md");
    std::fs::write(&path, "# not a session\n").expect("written");
    let error = Session::open(&path).expect_err("not a session");
    assert_eq!(error.kind(), ErrorKind::Format);
    assert!(format!("{error:?}").contains("README.md: not a rath session file"), "{error}");
    assert_eq!(Session::open(folder.path().join("none")).expect_err("no file").kind(), ErrorKind::Io);
}

#[test]
fn an_exported_graph_verifies() {
    let folder = folder();
    let path = folder.path().join("graph.jsonl");
    std::fs::write(&path, Session::user("hi").fork().export(Ids::Original)).expect("written");
    let report = verify_graph(&path).expect("read");
    assert_eq!((report.rows, report.problems.len()), (2, 0));
}

#[cfg(unix)]
#[test]
fn saving_keeps_permissions_and_follows_links() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let (path, link) = (folder.path().join("private.rath"), folder.path().join("link.rath"));
    std::fs::write(&path, "").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("set");
    std::os::unix::fs::symlink(&path, &link).expect("linked");
    Session::user("hi").save(&link).expect("saved");
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
    assert!(verify(&path).expect("read").is_whole());
    std::fs::remove_file(&path).expect("removed");
    Session::user("hi").save(&link).expect("saved through a link to nothing");
    assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
    assert!(verify(&path).expect("read").is_whole());
    let long = folder.path().join("x".repeat(250));
    Session::user("hi").save(long).expect("saved under a long name");
}

#[test]
fn savers_of_one_path_do_not_meet() {
    let folder = folder();
    let path = folder.path().join("session.rath");
    std::thread::scope(|scope| {
        for nth in 0..4 {
            let path = &path;
            scope.spawn(move || {
                (0..20).for_each(|_| Session::user(nth.to_string()).save(path).expect("saved"));
            });
        }
    });
    assert!(verify(&path).expect("read").is_whole());
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 1);
}
