//! Session files.

use rath::Usage;
use rath::prelude::*;
use rath::record::codec::Ending;
use rath::record::graph::Ids;
use rath::{verify_blocking, verify_graph_blocking};

use crate::support::now;

fn temporary_directory() -> rath_test_support::TempDir {
    rath_test_support::temp_dir()
}

#[test]
fn an_opened_session_continues_at_its_head() {
    let directory = temporary_directory();
    let path = directory.path().join("session.rath");
    let mut session = Session::user("hi");
    session.push_with_usage(Chunk::assistant("hello"), Usage::new(10, 2));
    let mut fork = session.fork_named("fork");
    fork.push(Chunk::user("in the fork"));
    fork.save_blocking(&path).expect("saved");
    assert!(verify_blocking(&path).expect("read").is_whole());

    let mut opened = Session::open_blocking(&path).expect("opened").session;
    assert_eq!(opened.lineage().to_string(), fork.lineage().to_string());
    assert_eq!((opened.id(), opened.usage()), (fork.id(), fork.usage()));
    opened.push(Chunk::assistant("on"));
    fork.push(Chunk::assistant("on"));
    assert_eq!(opened.head(), fork.head());
}

#[test]
fn equal_forks_are_counted_apart_after_opening() {
    let directory = temporary_directory();
    let path = directory.path().join("session.rath");
    let session = Session::user("hi");
    let answer = |mut fork: Session| {
        fork.push_with_usage(Chunk::assistant("same"), Usage::new(10, 1));
        fork
    };
    now(answer(session.fork()).merge(&answer(session.fork())))
        .expect("nothing is open")
        .save_blocking(&path)
        .expect("saved");
    let opened = Session::open_blocking(&path).expect("opened").session;
    let again = opened.at(session.head().expect("a step").id()).expect("a step");
    assert_eq!(now(answer(again).merge(&opened)).expect("nothing is open").usage(), Usage::new(30, 3));
}

#[test]
fn an_untouched_fork_is_still_a_fork_when_it_is_opened() {
    let directory = temporary_directory();
    let path = directory.path().join("session.rath");
    let fork = Session::user("hi").fork();
    fork.save_blocking(&path).expect("saved");
    let opened = Session::open_blocking(&path).expect("opened").session;
    assert_eq!((opened.id(), opened.chunk_count()), (fork.id(), 1));
}

#[test]
fn a_damaged_file_gives_its_undamaged_steps_and_a_report() {
    let directory = temporary_directory();
    let path = directory.path().join("session.rath");
    let mut session = Session::user("one");
    session.push(Chunk::user("two"));
    session.push(Chunk::user("three"));
    session.save_blocking(&path).expect("saved");
    let mut bytes = std::fs::read(&path).expect("read");
    let at = String::from_utf8_lossy(&bytes).find("two").expect("the second step");
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).expect("written");
    let opened = Session::open_blocking(&path).expect("opened");
    assert_eq!(opened.report.damage.len(), 2);
    assert_eq!(opened.session.chunks().count(), 1, "the line is split at the lost row");
    assert_eq!(opened.lineage.walk().len(), 2, "the step before the lost one is read too");
    assert_eq!(opened.lineage.missing().len(), 1);

    std::fs::write(&path, &bytes[..at]).expect("written");
    let opened = Session::open_blocking(&path).expect("opened");
    assert!(matches!(opened.report.ending, Ending::Cut { .. }));
    assert_eq!(opened.session.chunk_count(), 1);
}

#[test]
fn saving_replaces_a_file_atomically() {
    let directory = temporary_directory();
    let path = directory.path().join("session.rath");
    Session::user("old").save_blocking(&path).expect("saved");
    Session::user("new").save_blocking(&path).expect("saved");
    assert_eq!(Session::open_blocking(&path).expect("opened").session.chunks().next(), Some(&Chunk::user("new")));
    assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 1, "no temporary file is left");

    let error =
        Session::user("x").save_blocking(directory.path().join("no/such/directory/file")).expect_err("no directory");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.session().is_some());
    let error = Session::user("x").save_blocking(directory.path()).expect_err("a directory");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(directory.path().is_dir());
}

#[test]
fn another_file_is_refused_with_a_clear_error() {
    let directory = temporary_directory();
    let path = directory.path().join("README.md");
    std::fs::write(&path, "# not a session\n").expect("written");
    let error = Session::open_blocking(&path).expect_err("not a session");
    assert_eq!(error.kind(), ErrorKind::Format);
    assert!(format!("{error:?}").contains("README.md: not a rath session file"), "{error}");
    assert_eq!(Session::open_blocking(directory.path().join("none")).expect_err("no file").kind(), ErrorKind::Io);
}

#[test]
fn an_exported_graph_verifies() {
    let directory = temporary_directory();
    let path = directory.path().join("graph.jsonl");
    std::fs::write(&path, Session::user("hi").fork().export(Ids::Original)).expect("written");
    let report = verify_graph_blocking(&path).expect("read");
    assert_eq!((report.rows, report.problems.len()), (2, 0));
}

#[cfg(unix)]
#[test]
fn saving_keeps_permissions_and_follows_links() {
    use std::os::unix::fs::PermissionsExt;
    let directory = temporary_directory();
    let (path, link) = (directory.path().join("private.rath"), directory.path().join("link.rath"));
    std::fs::write(&path, "").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("set");
    std::os::unix::fs::symlink(&path, &link).expect("linked");
    Session::user("hi").save_blocking(&link).expect("saved");
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
    assert!(verify_blocking(&path).expect("read").is_whole());
    std::fs::remove_file(&path).expect("removed");
    Session::user("hi").save_blocking(&link).expect("saved through a link to nothing");
    assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
    assert!(verify_blocking(&path).expect("read").is_whole());
    let long = directory.path().join("x".repeat(250));
    Session::user("hi").save_blocking(long).expect("saved under a long name");
}

#[test]
fn concurrent_saves_to_one_path_leave_a_whole_file() {
    let directory = temporary_directory();
    let path = directory.path().join("session.rath");
    std::thread::scope(|scope| {
        for nth in 0..4 {
            let path = &path;
            scope.spawn(move || {
                (0..20).for_each(|_| Session::user(nth.to_string()).save_blocking(path).expect("saved"));
            });
        }
    });
    assert!(verify_blocking(&path).expect("read").is_whole());
    assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 1);
}

#[test]
fn a_signed_file_cannot_be_given_another_content() {
    use rath::chunk::{Call, Placed};
    use rath::record::codec::{self, Encoder};
    use rath::record::{Digest, Parents, Step, StoredChunk};
    let folder = rath_test_support::temp_dir();
    let path = folder.path().join("s.rath");
    let mut session = Session::user("hi");
    session.push(Placed::new("isolated:."));
    session.push(Chunk::note("to be a place"));
    session.push(Chunk::assistant("to be a call"));
    session.save_blocking(&path).expect("saved");
    assert!(!Session::open_blocking(&path).expect("opened").session.is_guest());
    let contents = codec::read(&std::fs::read(&path).expect("read")).expect("a session");
    let forged: [(usize, Chunk); 2] =
        [(2, Placed::new("local:/").into()), (3, Chunk::calls([Call::new("c1", "shell", r#"{"command":"evil"}"#)]))];
    let mut encoder = Encoder::new();
    for (nth, step) in contents.steps.iter().enumerate() {
        let step = match forged.iter().find(|(at, _)| *at == nth) {
            None => step.clone(),
            Some((_, chunk)) => {
                let mut json = Vec::new();
                chunk.encode(&mut json);
                let json = std::str::from_utf8(&json).expect("JSON");
                let withheld = Some(Digest::compute(step.json().as_bytes()));
                let stored = StoredChunk { chunk: chunk.clone(), json, withheld };
                let parents = Parents::One(step.parents()[0].clone());
                Step::from_store(step.id(), parents, stored, step.stamp().clone(), &step.encode_totals())
                    .expect("a step")
            }
        };
        let signature = contents.signatures.get(&(step.stamp().branch, step.id())).copied();
        encoder.push_signed_step(&step, signature).expect("encoded");
    }
    std::fs::write(&path, encoder.finish()).expect("written");
    let opened = Session::open_blocking(&path).expect("opened");
    assert!(opened.report.is_whole() && opened.report.withheld == 2, "{:?}", opened.report);
    assert_eq!(
        opened.session.head().map(|head| head.id()),
        session.head().map(|head| head.id()),
        "the ids are the same"
    );
    assert_eq!(opened.session.place(), None);
    if let rath::turn::Next::RunTools(calls) = opened.session.next() {
        assert!(calls.iter().all(|pending| pending.progress == rath::turn::Progress::Forgotten), "{calls:?}");
        assert!(calls.iter().all(|pending| pending.call.arguments.as_str() == Some("{}")), "{calls:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_session_is_written_to_a_pipe_and_does_not_replace_it() {
    use std::os::unix::fs::FileTypeExt as _;
    let folder = rath_test_support::temp_dir();
    let pipe = folder.path().join("pipe");
    assert!(rath_test_support::program("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || std::fs::read(pipe).expect("read"))
    };
    Session::user("hello").save_blocking(&pipe).expect("saved");
    assert!(std::fs::symlink_metadata(&pipe).expect("it is there").file_type().is_fifo());
    let copy = folder.path().join("copy.rath");
    std::fs::write(&copy, reader.join().expect("bytes")).expect("written");
    assert_eq!(Session::open_blocking(&copy).expect("a session").session.chunk_count(), 1);
}
