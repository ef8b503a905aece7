//! Two processes want to write one session: one does, the other is told who, and neither takes anything from the other.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use rath::prelude::*;
use rath::store::{Create, Sqlite, Store};
use rath::{BranchId, store};

use super::common::{Chance, KINDS, append_line, child as again, exhaustive, lines, setting, uri};
use crate::support::{block_on, close};

fn path(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

/// Claims, appends a few, lets go; or is refused, and forks now and then.
async fn compete(store: &Store, branch: BranchId, name: &str, until: Instant) -> Result<()> {
    let note = |line: String| append_line(setting("RATH_NOTES"), &line);
    let mut chance = Chance(rath_test_support::seed() + name.bytes().map(u64::from).sum::<u64>());
    for claim in 0.. {
        if Instant::now() > until {
            break;
        }
        match store.resume(branch).await {
            Ok(resumed) => {
                let mut session = resumed.complete()?;
                for nth in 0..=chance.below(4) {
                    let step = session.push(Chunk::user(format!("{name} {claim} {nth}")));
                    session.durable().await?;
                    note(format!("kept {step}"));
                }
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                note(format!("refused {}", error.message()));
                if chance.below(20) == 0 {
                    let mut fork = store.read(branch).await?.session.fork().record(store).await?;
                    let step = fork.push(Chunk::user(format!("{name} by itself")));
                    fork.durable().await?;
                    note(format!("forked {step}"));
                }
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(Duration::from_micros(chance.below(3_000))).await;
    }
    Ok(())
}

#[test]
#[ignore = "what the tests here start"]
fn child() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    let until = Instant::now() + Duration::from_millis(setting("RATH_TIME").parse().expect("a number"));
    let branch = setting("RATH_BRANCH").parse().expect("a branch");
    let store = block_on(Store::open(&uri)).expect("a store");
    block_on(compete(&store, branch, &setting("RATH_NAME"), until)).expect("nothing else goes wrong");
    close((), store);
}

fn race(kind: &str, time: Duration) {
    let folder = rath_test_support::temp_dir();
    let uri = uri(kind, folder.path());
    let store = block_on(Store::open(&uri)).expect("a store");
    let session = block_on(Session::user("begin").record(&store)).expect("recorded");
    let branch = session.id();
    close(session, store);
    let (branch_name, time) = (branch.to_string(), time.as_millis().to_string());
    let names = ["left", "right"];
    let notes = names.map(|name| path(&folder.path().join(name)));
    let running = [0, 1].map(|nth| {
        let settings = [
            ("RATH_STORE", &*uri),
            ("RATH_BRANCH", &branch_name),
            ("RATH_TIME", &time),
            ("RATH_NAME", names[nth]),
            ("RATH_NOTES", &notes[nth]),
        ];
        again("store::race::child", &settings).spawn().expect("it starts")
    });
    let ids = [running[0].id(), running[1].id()];
    for child in running {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{kind}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let store = block_on(Store::open(&uri)).expect("a store");
    assert_eq!(block_on(store.check()).expect("checked").damage, []);
    let session = block_on(store.read(branch)).expect("it is read").session;
    let steps = session.as_record().steps();
    // One straight line, in which everyone who had the right stands in one piece.
    let mut seen: HashSet<String> = HashSet::new();
    let mut last = (String::new(), 0);
    for (nth, step) in steps.iter().enumerate().skip(1) {
        assert_eq!(step.parents().iter().map(|link| link.id()).collect::<Vec<_>>(), [steps[nth - 1].id()]);
        let Chunk::User(user) = step.chunk() else { panic!("{kind}: {step:?}") };
        let (right, number) = user.text.as_str().and_then(|text| text.rsplit_once(' ')).expect("a name and a number");
        let number: u64 = number.parse().expect("a number");
        match last.0 == right {
            true => assert_eq!(number, last.1 + 1),
            false => assert!(seen.insert(right.to_owned()) && number == 0, "{kind}: {right} is interleaved"),
        }
        last = (right.to_owned(), number);
    }
    let on_line: HashSet<String> = steps.iter().map(|step| step.id().to_string()).collect();
    let list = block_on(store.list()).expect("a list");
    let heads: HashSet<String> = list.iter().map(|listed| listed.head.to_string()).collect();
    let (mut kept, mut refused, mut forked) = (0, 0, 0);
    for (nth, notes) in notes.iter().enumerate() {
        let lines = lines(notes);
        for line in &lines {
            match line.split_once(' ').expect("a word first") {
                ("kept", id) => {
                    assert!(on_line.contains(id), "{kind}: {id} is lost");
                    kept += 1;
                }
                ("forked", id) => {
                    assert!(heads.contains(id), "{kind}: the fork {id} is lost");
                    forked += 1;
                }
                (_, why) => {
                    // The name of a process that has just locked a file of lines is not in it yet.
                    let is_named = why.contains(&format!("by process {}", ids[1 - nth]));
                    let is_unnamed = kind == "jsonl" && why.contains("by another process");
                    assert!(is_named || is_unnamed, "{kind}: {why}; {ids:?}");
                    refused += 1;
                }
            }
        }
        assert!(lines.iter().any(|line| line.starts_with("kept ")), "{kind}: {} never got to write", names[nth]);
    }
    println!("{kind}: {kept} steps kept on one line, {refused} refusals, {forked} forks");
    assert_eq!(steps.len() as u64, kept + 1, "{kind}: a step that was not acknowledged is there");
}

#[test]
fn two_processes_that_want_one_session_take_turns_and_lose_nothing() {
    let time = Duration::from_secs(if exhaustive() { 60 } else { 2 });
    KINDS.iter().for_each(|kind| race(kind, time));
}

/// A store whose writers count as dead soon.
fn hasty(uri: &str, lease: Duration) -> Store {
    let path = uri.strip_prefix("sqlite:").expect("it is one");
    let backend = Sqlite::open(path, Create::IfMissing).expect("a store").lease(lease);
    Store::new(backend).expect("a store")
}

#[test]
#[ignore = "what the tests here start"]
fn holder() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    let notes = setting("RATH_NOTES");
    block_on(async {
        let lease = Duration::from_millis(setting("RATH_LEASE").parse().expect("a number"));
        let store = hasty(&uri, lease);
        let mut session = Session::user("begin").record(&store).await.expect("recorded");
        let mut other = Session::user("other").record(&store).await.expect("recorded");
        append_line(&notes, &session.id().to_string());
        while !Path::new(&setting("RATH_GO")).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // It renews its lease, and continues the branch that no other process took.
        tokio::time::sleep(lease * 4 / 3).await;
        other.push(Chunk::user("goes on"));
        other.durable().await.expect("no other process took it");
        session.push(Chunk::user("too late"));
        let told = session.durable().await.expect_err("another process took it");
        append_line(&notes, &format!("{} {}", format!("{:?}", told.kind()).to_lowercase(), told.message()));
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_that_slept_past_its_lease_writes_nothing_over_who_came_after_it() {
    // A loaded machine may be so slow that the holder's lease ends before it is stopped: then it gets a longer one.
    rath_test_support::with_enough_time(Duration::from_millis(300), sleep_past_a_lease);
}

/// Does it with this lease, unless the holder lost it too early.
#[cfg(target_os = "linux")]
fn sleep_past_a_lease(lease: Duration) -> Option<()> {
    use rustix::process::{Pid, Signal, kill_process};
    let folder = rath_test_support::temp_dir();
    let uri = uri("sqlite", folder.path());
    let (notes, go) = (folder.path().join("notes"), folder.path().join("go"));
    let time = lease.as_millis().to_string();
    let settings =
        [("RATH_STORE", &*uri), ("RATH_NOTES", &path(&notes)), ("RATH_GO", &path(&go)), ("RATH_LEASE", &time)];
    let mut child = again("store::race::holder", &settings).spawn().expect("it starts");
    rath_test_support::wait_until("the holder has begun", || !lines(&notes).is_empty());
    let branch: BranchId = lines(&notes)[0].parse().expect("a branch");
    let id = Pid::from_raw(child.id().cast_signed()).expect("an id");
    let store = hasty(&uri, lease);
    let Err(refused) = block_on(store.resume(branch)) else {
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
        return None;
    };
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.message().contains(&format!("process {}", child.id())), "{refused}");
    kill_process(id, Signal::STOP).expect("it is stopped");
    let begun = Instant::now();
    let mut session = loop {
        match block_on(store.resume(branch)) {
            Ok(resumed) => break resumed.complete().expect("complete"),
            Err(error) => assert!(begun.elapsed() < rath_test_support::LIMIT, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    session.push(Chunk::user("mine now"));
    block_on(session.durable()).expect("durable");
    kill_process(id, Signal::CONT).expect("it goes on");
    std::fs::write(&go, "").expect("a file");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = lines(&notes).pop().expect("a line");
    assert!(told.starts_with("conflict ") && told.contains(&format!("process {}", std::process::id())), "{told}");
    session.push(Chunk::user("still mine"));
    block_on(session.durable()).expect("durable");
    drop(session);
    let said: Vec<_> = block_on(store.read(branch)).expect("it is read").session.chunks().map(super::words).collect();
    assert_eq!(said, ["begin", "mine now", "still mine"]);
    let check = block_on(store.check()).expect("checked");
    assert_eq!((check.damage, check.steps), (vec![], 5));
    Some(())
}

#[test]
#[ignore = "what the tests here start"]
fn dying() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    let store = block_on(Store::open(&uri)).expect("a store");
    let session = block_on(Session::user("begin").record(&store)).expect("recorded");
    append_line(setting("RATH_NOTES"), &session.id().to_string());
    // Nothing is closed.
    std::process::exit(0);
}

#[test]
fn what_the_dead_held_is_free_at_once() {
    for kind in KINDS {
        let folder = rath_test_support::temp_dir();
        let (uri, notes) = (uri(kind, folder.path()), path(&folder.path().join("notes")));
        let settings = [("RATH_STORE", &*uri), ("RATH_NOTES", &notes)];
        let mut child = again("store::race::dying", &settings).spawn().expect("it starts");
        assert!(child.wait().expect("it ends").success());
        let branch: BranchId = lines(&notes)[0].parse().expect("a branch");
        let store = block_on(Store::open(&uri)).expect("a store");
        let resumed = block_on(store.resume(branch)).expect("it is free");
        let left_by = resumed.certificate().left_open_by().map(|holder: &store::Holder| holder.pid);
        assert_eq!(left_by, Some(child.id()), "{kind}");
        assert_eq!(resumed.complete().expect("complete").chunk_count(), 1);
    }
}

/// The file of a session has one name: of two processes that import the session at once, the second is told, and its store
/// stays usable.
#[test]
fn of_two_importers_of_one_session_the_second_is_told_and_goes_on() {
    for kind in KINDS {
        let folder = rath_test_support::temp_dir();
        for nth in 0..40 {
            let session = Session::user(format!("session {nth}"));
            let barrier = std::sync::Barrier::new(2);
            let import = || {
                let store = block_on(Store::open(&uri(kind, folder.path()))).expect("a store");
                barrier.wait();
                let recorded = block_on(session.clone().record(&store));
                let is_first = match recorded {
                    Ok(recorded) => block_on(recorded.durable()).is_ok(),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Conflict, "{kind}: {error}");
                        false
                    }
                };
                let other = block_on(Session::user("another").fork().record(&store)).expect("the store is usable");
                close(other, store);
                is_first
            };
            let firsts = std::thread::scope(|scope| {
                [scope.spawn(import), scope.spawn(import)].map(|thread| thread.join().expect("no panic"))
            });
            assert!(firsts.contains(&true), "{kind}: {firsts:?}");
            let store = block_on(Store::open(&uri(kind, folder.path()))).expect("a store");
            let read = block_on(store.read(session.id())).expect("one of them recorded it").session;
            assert_eq!(read.head().map(|step| step.id()), session.head().map(|step| step.id()));
            close((), store);
        }
        let store = block_on(Store::open(&uri(kind, folder.path()))).expect("a store");
        assert!(block_on(store.check()).expect("checked").damage.is_empty());
        close((), store);
    }
}

/// A killed process leaves the file of a session that did not get its name. The next process that writes removes it, and not
/// that of a process that is alive.
#[test]
fn the_next_writer_of_a_folder_removes_what_a_killed_one_left() {
    let folder = rath_test_support::temp_dir();
    let store = block_on(Store::open(&uri("jsonl", folder.path()))).expect("a store");
    let recorded = block_on(Session::user("one").record(&store)).expect("recorded");
    let family = recorded.id();
    close(recorded, store);
    let begun = BranchId(*uuid::Uuid::now_v7().as_bytes());
    let left = |name: String| {
        let path = folder.path().join("store").join(name);
        std::fs::write(&path, "x").expect("written");
        path
    };
    let dead = [family, begun].map(|session| left(format!("{session}.{}.tmp", uuid::Uuid::now_v7().simple())));
    let live = [family, begun].map(|session| left(format!("{session}.{}.tmp", uuid::Uuid::now_v7().simple())));
    let locks = live.each_ref().map(|path| std::fs::File::open(path).expect("a file"));
    locks.iter().for_each(|lock| lock.lock().expect("locked"));
    let store = block_on(Store::open(&uri("jsonl", folder.path()))).expect("a store");
    close(block_on(Session::user("two").record(&store)).expect("recorded"), store);
    assert_eq!(dead.map(|path| path.exists()), [false, false]);
    assert_eq!(live.map(|path| path.exists()), [true, true]);
}
