//! The disk fails or is full, at every call in turn, and what was acknowledged is there.
//!
//! A child writes a session while a library that is loaded before it (`tests/faults.c`) makes one call fail, or all from
//! then on. The same library notes when, between the child's own notes of what it was told is kept.

use std::path::{Path, PathBuf};

use rath::prelude::*;
use rath::store::Store;

use super::common::{All, KINDS, append_line, child as again, exhaustive, lines, setting, uri};
use crate::support::block_on;

fn note(line: &str) {
    append_line(setting("RATH_NOTES"), line);
}

/// Waits until all is durable, and notes that it is.
async fn kept(session: &Session) -> Result<()> {
    session.durable().await?;
    note(&format!("kept {}", session.head().expect("a step").id()));
    Ok(())
}

/// A session that is begun, forked, joined, closed, and gone on with.
async fn write(store: &Store) -> Result<()> {
    let mut session = Session::user("one").record(store).await?;
    kept(&session).await?;
    note(&format!("main {}", session.id()));
    session.push(Chunk::assistant("two"));
    kept(&session).await?;
    session.push(Chunk::user("long ".repeat(4_000)));
    kept(&session).await?;
    let mut fork = session.fork();
    fork.push(Chunk::user("in the fork"));
    kept(&fork).await?;
    session.push(Chunk::user("three"));
    let joined = session.merge(&fork).await?;
    kept(&joined).await?;
    note(&format!("main {}", joined.id()));
    let branch = joined.id();
    drop((session, fork, joined));
    go_on(store, branch).await
}

async fn go_on(store: &Store, branch: rath::BranchId) -> Result<()> {
    let mut session = store.resume(branch).await?.anyway();
    session.push(Chunk::user("later"));
    kept(&session).await
}

#[test]
#[ignore = "what the tests here start"]
fn child() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    // Waiting for ever counts as a failure.
    std::thread::spawn(|| {
        std::thread::sleep(std::time::Duration::from_secs(60));
        std::process::exit(7);
    });
    let told = |error: Error| {
        let kind = format!("{:?}", error.kind()).to_lowercase();
        note(&format!("error {kind} {}", error.message().replace('\n', " ")));
    };
    let store = match block_on(Store::open(&uri)) {
        Ok(store) => store,
        Err(error) => return told(error.into()),
    };
    block_on(async {
        if let Err(error) = write(&store).await {
            told(error);
            // A second try gets the same error, or an answer that holds.
            match Session::user("again").record(&store).await {
                Ok(session) => kept(&session).await.unwrap_or_else(told),
                Err(error) => told(error),
            }
            let main =
                lines(setting("RATH_NOTES")).iter().rev().find_map(|line| line.strip_prefix("main ")?.parse().ok());
            if let Some(main) = main {
                go_on(&store, main).await.unwrap_or_else(told);
            }
        }
    });
    // A write that failed was told before.
    let _ = block_on(store.close());
    note("over");
}

#[test]
#[ignore = "what the tests here start"]
fn reader() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    let store = block_on(Store::open(&uri)).expect("it can be read");
    let all = block_on(All::of(&store)).expect("all of it");
    assert_eq!((all.damage, all.steps.len()), (vec![], 2));
    let mut session = block_on(Session::user("more").record(&store)).expect_err("there is no room").into_session();
    session.iter_mut().for_each(|session| _ = session.push(Chunk::user("and more")));
    assert_eq!(session.map(|session| session.chunk_count()), Some(2), "the session is not lost");
    assert_eq!(block_on(All::of(&store)).expect("all of it").steps.len(), 2);
}

/// The library, if there is a compiler for it.
fn library(folder: &Path) -> Option<PathBuf> {
    let made = folder.join("faults.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults.c");
    let built = rath_test_support::program("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&made)
        .arg(source)
        .arg("-ldl")
        .output();
    match built {
        Ok(output) if output.status.success() => Some(made),
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("skipped: no C compiler ({error})");
            None
        }
    }
}

/// Starts a child below a library that makes calls fail in one folder.
fn faulty(test: &str, library: &Path, settings: &[(&str, &str)]) -> std::process::Output {
    // The loader takes a space for the end of a path: the library is named from its own folder.
    let (home, name) = (library.parent().expect("a folder"), library.file_name().expect("a name"));
    let preload = format!("./{}", name.to_str().expect("UTF-8"));
    let settings = [&[("LD_PRELOAD", &*preload)], settings].concat();
    again(test, &settings).current_dir(home).output().expect("it ends")
}

#[cfg(target_os = "linux")]
#[test]
fn a_store_on_a_full_disk_is_read() {
    let folder = rath_test_support::temp_dir();
    let Some(library) = library(folder.path()) else { return };
    for kind in KINDS {
        let root = rath_test_support::temp_dir();
        let below = root.path().canonicalize().expect("a folder");
        let uri = uri(kind, &below);
        let mut session =
            block_on(Session::user("one").record(&block_on(Store::open(&uri)).expect("a store"))).expect("recorded");
        session.push(Chunk::user("two"));
        block_on(session.durable()).expect("durable");
        drop(session);
        let below = below.to_str().expect("UTF-8");
        for fault in [("full", "0"), ("enospc", "1"), ("eio", "1")] {
            let settings = [
                ("RATH_STORE", &*uri),
                ("RATH_FAULT_DIR", below),
                ("RATH_FAULT_KIND", fault.0),
                ("RATH_FAULT_BYTES", "0"),
                ("RATH_FAULT_AT", fault.1),
                ("RATH_FAULT_ON", "1"),
            ];
            let output = faulty("store::faults::reader", &library, &settings);
            assert!(output.status.success(), "{kind} {fault:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// Runs the child with one fault. Gives whether it came to pass, and what is wrong with what is left.
fn fault(kind: &str, library: &Path, fault: &[(&str, &str)]) -> (bool, Vec<String>) {
    let folder = rath_test_support::temp_dir();
    // Links would hide that a file is below it.
    let root = folder.path().canonicalize().expect("a folder");
    let (below, notes) = (root.join("below"), root.join("notes"));
    std::fs::create_dir(&below).expect("a folder");
    let uri = uri(kind, &below);
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (below, notes_path) = (path(&below), path(&notes));
    let mut settings = vec![
        ("RATH_STORE", &*uri),
        ("RATH_NOTES", &*notes_path),
        ("RATH_FAULT_DIR", &*below),
        ("RATH_FAULT_LOG", &*notes_path),
    ];
    settings.extend(fault);
    let output = faulty("store::faults::child", library, &settings);
    let notes = lines(&notes);
    let fired = notes.iter().position(|line| line.starts_with("fault "));
    let mut wrong = Vec::new();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || said.contains("panicked") {
        wrong.push(format!("the child: {} {said}", output.status));
    }
    // That a name is durable is asked for a second time where a database is made.
    let told = |fired: &usize| kind != "sqlite" || notes[*fired].ends_with("file");
    if let Some(fired) = fired.filter(told)
        && fault.contains(&("RATH_FAULT_KIND", "fsync"))
    {
        let after = notes[fired..].iter().filter(|line| line.starts_with("kept "));
        wrong.extend(after.map(|line| format!("after a failed sync: {line}")));
    }
    let errors: Vec<_> = notes.iter().filter(|line| line.starts_with("error ")).collect();
    let strange = errors
        .iter()
        .filter(|line| !["store", "io", "damaged", "conflict"].iter().any(|kind| line[6..].starts_with(kind)));
    wrong.extend(strange.map(|line| format!("not a clear error: {line}")));
    wrong.extend(left(&uri, &notes, errors.is_empty()).err());
    (fired.is_some(), wrong)
}

/// Opens what is left without faults.
fn left(uri: &str, notes: &[String], good: bool) -> Result<(), String> {
    let told = |error: Error| format!("what is left: {error}");
    let store = block_on(Store::open(uri)).map_err(Error::from).map_err(told)?;
    let all = block_on(All::of(&store)).map_err(told)?;
    if let Some(damage) = all.damage.first() {
        return Err(format!("damaged: {damage}"));
    }
    for line in notes {
        if let Some(id) = line.strip_prefix("kept ")
            && !all.steps.keys().any(|step| step.to_string() == id)
        {
            return Err(format!("lost: {id}"));
        }
    }
    let main = notes.iter().rev().find_map(|line| line.strip_prefix("main ")?.parse().ok());
    let Some(main) = main else { return Ok(()) };
    let listed = all.list.iter().find(|listed| listed.branch == main).ok_or("the session is not listed")?;
    // A store that failed meanwhile was not closed; after that it is as it was left.
    let failed_before = notes.iter().position(|line| line.starts_with("error ")).is_some_and(|error| {
        notes.iter().rposition(|line| line.starts_with("kept ")).is_none_or(|kept| kept < error)
            && notes.iter().filter(|line| line.starts_with("main ")).count() < 2
    });
    if listed.holder.is_none() && failed_before && !good {
        return Err("it is reported closed, and was not".to_owned());
    }
    block_on(async {
        let mut session = store.resume(main).await?.complete()?;
        session.push(Chunk::user("and on"));
        session.durable().await
    })
    .map_err(told)
}

/// Tries one fault after the other until none comes to pass, and says how many did.
fn every(
    kind: &str,
    library: &Path,
    settings: &[(&str, &str)],
    name: &str,
    numbers: impl Iterator<Item = u64>,
) -> Vec<String> {
    let (mut tried, mut wrong) = (0, Vec::new());
    for number in numbers {
        let number = number.to_string();
        let mut settings = settings.to_vec();
        settings.push((name, &number));
        let (fired, found) = fault(kind, library, &settings);
        wrong.extend(found.into_iter().map(|why| format!("{kind} {settings:?}: {why}")));
        if !fired {
            break;
        }
        tried += 1;
    }
    println!("{kind} {settings:?}: {tried} faults, {} wrong", wrong.len());
    assert!(tried > 0, "no fault came to pass");
    wrong
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fails_at_any_call_takes_nothing_back_that_was_acknowledged() {
    let folder = rath_test_support::temp_dir();
    let Some(library) = library(folder.path()) else { return };
    let library = &*library;
    let check = |kind: &'static str| {
        let kinds: [&[(&str, &str)]; 5] = [
            &[("RATH_FAULT_KIND", "fsync")],
            &[("RATH_FAULT_KIND", "eio")],
            &[("RATH_FAULT_KIND", "short")],
            &[("RATH_FAULT_KIND", "enospc"), ("RATH_FAULT_ON", "1")],
            &[("RATH_FAULT_KIND", "fsync"), ("RATH_FAULT_ON", "1")],
        ];
        let stride = if exhaustive() { 1 } else { 6 };
        let wrong = kinds
            .into_iter()
            .flat_map(|settings| every(kind, library, settings, "RATH_FAULT_AT", (1..).step_by(stride)));
        // The disk is full, from any byte on.
        let full = (0..).step_by(if exhaustive() { 97 } else { 12_007 });
        wrong.chain(every(kind, library, &[("RATH_FAULT_KIND", "full")], "RATH_FAULT_BYTES", full)).collect::<Vec<_>>()
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let running = KINDS.map(|kind| scope.spawn(move || check(kind)));
        running.into_iter().flat_map(|running| running.join().expect("it ends")).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.iter().take(30).cloned().collect::<Vec<_>>().join("\n"));
}
