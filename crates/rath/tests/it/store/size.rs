//! Shared steps are stored once, and steps that are not read take no memory.

use std::path::Path;

use rath::chunk::Call;
use rath::chunk::ToolStarted;
use rath::prelude::*;
use rath::store::Store;

use super::common::{KINDS, child as again, exhaustive, setting, uri};
use crate::support::{block_on, close};

/// So many bytes of words that are never the same.
fn words(name: &str, bytes: usize) -> String {
    let mut text = String::new();
    while text.len() < bytes {
        text.push_str(&rath::Digest::compute(format!("{name} {}", text.len()).as_bytes()).to_string());
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

/// A turn as agents have them: a question, four calls with their results, an answer.
fn say(session: &mut Session, nth: usize) {
    session.push(Chunk::user(words(&format!("{nth} asks"), 200 + nth * 37 % 300)));
    for call in 0..4 {
        let (name, id) = (format!("{nth} {call}"), format!("call_{nth}_{call}"));
        session.push(Chunk::calls([Call::new(&*id, "look", format!("{{\"at\":\"{}\"}}", words(&name, 60)))]));
        session.push(ToolStarted::new(id.clone()));
        session.push(Chunk::result(&*id, words(&format!("{name} says"), 100 + (nth * 4 + call) * 211 % 1_900)));
    }
    session.push(Chunk::assistant(words(&format!("{nth} answers"), 400 + nth * 101 % 900)));
}

fn bytes(path: &Path) -> u64 {
    match path.is_dir() {
        true => std::fs::read_dir(path).expect("a folder").map(|entry| bytes(&entry.expect("an entry").path())).sum(),
        false => std::fs::metadata(path).map_or(0, |facts| facts.len()),
    }
}

/// Compares the room that a store takes, closed, with one file that has every step once.
async fn check(kind: &str, name: &str, write: impl AsyncFn(&Store) -> Result<Session>) {
    let folder = rath_test_support::temp_dir();
    let below = folder.path().join("below");
    std::fs::create_dir(&below).expect("a folder");
    let file = folder.path().join("one.rath");
    {
        let store = Store::open(&uri(kind, &below)).await.expect("a store");
        let session = write(&store).await.expect("it is written");
        session.save_blocking(&file).expect("saved");
        drop(session);
        store.close().await.expect("it is closed");
    }
    let (taken, once) = (bytes(&below), bytes(&file));
    let most = once + once / 10 + if kind == "sqlite" { 64 * 1024 } else { 0 };
    println!("{kind} {name}: {taken} bytes, once {once}, {:.3}", taken as f64 / once as f64);
    assert!(taken <= most, "{kind} {name}: {taken} bytes; {once} for every step once");
}

#[test]
fn a_store_takes_no_more_room_than_every_step_once() {
    let stages = if exhaustive() { 500 } else { 25 };
    for kind in KINDS {
        block_on(async {
            check(kind, "chain", async |store| {
                let mut session = Session::user("begin").record(store).await?;
                let branch = session.id();
                for nth in 0..stages {
                    say(&mut session, nth);
                    session.durable().await?;
                    drop(session);
                    session = store.resume(branch).await?.complete()?;
                }
                Ok(session)
            })
            .await;
            check(kind, "detached at each stage", async |store| {
                let mut session = Session::user("begin").record(store).await?;
                for nth in 0..stages {
                    session = if nth % 2 == 0 { session.detach() } else { session.fork() };
                    say(&mut session, nth);
                    session.durable().await?;
                    let branch = session.id();
                    drop(session);
                    session = store.resume(branch).await?.complete()?;
                }
                Ok(session)
            })
            .await;
            check(kind, "64 forks", async |store| {
                let mut session = Session::user("begin").record(store).await?;
                (0..64).for_each(|nth| say(&mut session, nth));
                let forks = (0..64).map(|nth| {
                    let mut fork = session.fork();
                    say(&mut fork, 100 + nth);
                    fork
                });
                let all = Session::merge_all(forks).await?;
                all.durable().await?;
                Ok(all)
            })
            .await;
            check(kind, "ten diamonds, each with work aside", async |store| {
                let mut session = Session::user("begin").record(store).await?;
                for nth in 0..10 {
                    let (mut left, mut right) = (session.fork(), session.fork());
                    say(&mut left, 10 * nth);
                    say(&mut right, 10 * nth + 1);
                    session = left.merge(&right).await?;
                    let mut aside = session.aside("helper");
                    say(&mut aside, 10 * nth + 2);
                    session.keep_aside(&aside);
                    session.durable().await?;
                }
                Ok(session)
            })
            .await;
        });
    }
}

/// The most memory that this process ever had, in kilobytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process has one");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it says so");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

#[test]
#[ignore = "what the test here starts"]
fn child() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    let store = block_on(Store::open(&uri)).expect("a store");
    let branch = setting("RATH_BRANCH").parse().expect("a branch");
    let mut session = block_on(store.resume(branch)).expect("resumed").complete().expect("complete");
    assert_eq!(session.as_record().newest_first().take(10).count(), 10);
    session.push(Chunk::user("one more"));
    block_on(session.durable()).expect("durable");
    std::fs::write(setting("RATH_PEAK"), peak().to_string()).expect("a file");
    close(session, store);
}

#[cfg(target_os = "linux")]
#[test]
fn a_long_session_is_opened_in_the_memory_of_a_short_one() {
    let most = if exhaustive() { 1_000_000 } else { 40_000 };
    let peaks = [10_000, most].map(|steps| {
        let folder = rath_test_support::temp_dir();
        let uri = uri("sqlite", folder.path());
        let branch = block_on(async {
            let store = Store::open(&uri).await.expect("a store");
            let mut session = Session::user("begin").record(&store).await.expect("recorded");
            for nth in 1..steps {
                session.push(Chunk::user(format!("{nth}: what was said here is not long, and there is much of it")));
                if nth % 5_000 == 0 {
                    session.durable().await.expect("durable");
                }
            }
            session.durable().await.expect("durable");
            let branch = session.id();
            drop(session);
            store.close().await.expect("it is closed");
            branch
        });
        let peak = folder.path().join("peak").to_str().expect("UTF-8").to_owned();
        let settings = [("RATH_STORE", &*uri), ("RATH_BRANCH", &branch.to_string()), ("RATH_PEAK", &peak)];
        let begun = std::time::Instant::now();
        let output = again("store::size::child", &settings).output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let peak: u64 = std::fs::read_to_string(peak).expect("a file").parse().expect("a number");
        println!("{steps} steps: opened with {peak} kB at the most, in {:.1} s", begun.elapsed().as_secs_f32());
        peak
    });
    assert!(peaks[1] < 2 * peaks[0], "{peaks:?}");
}
