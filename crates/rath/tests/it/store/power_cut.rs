//! The power goes at any moment, and what was acknowledged is there.
//!
//! A child writes to a store below strace and notes what it was told is durable. From its calls the states are built that a
//! power cut may leave ([`PowerCuts`]); each has to open, to hold everything that was noted, and to be called damaged by
//! none. `RATH_CUTS` sets the number of states for each kind of store.

use rath::BranchId;
use rath::prelude::*;
use rath::store::Store;
use rath_test_support::{CutState, PowerCuts};

use super::common::{All, KINDS, append_line, child as again, setting, uri};
use crate::support::block_on;

fn note(line: &str) {
    append_line(setting("RATH_NOTES"), line);
}

/// Waits until all is durable, and notes that it is.
async fn kept(session: &Session) -> Result<()> {
    session.durable().await?;
    note(&format!("kept {} {}", session.id(), session.head().expect("a step").id()));
    Ok(())
}

/// Sessions that are begun, forked, joined, closed, continued, shortened and deleted.
async fn work(uri: &str) -> Result<()> {
    let store = Store::open(uri).await?;
    let mut session = Session::user("one").record(&store).await?;
    kept(&session).await?;
    for nth in 0..6 {
        session.push(Chunk::assistant(format!("answer {nth}")));
        session.push(Chunk::user(format!("question {nth}")));
        kept(&session).await?;
    }
    session.push(Chunk::user("long ".repeat(4_000)));
    kept(&session).await?;
    let mut fork = session.fork();
    fork.push(Chunk::user("in the fork"));
    kept(&fork).await?;
    session.push(Chunk::user("three"));
    let joined = session.merge(&fork).await?;
    kept(&joined).await?;
    let branch = joined.id();
    drop((session, fork, joined));
    store.close().await?;

    // Another process would find the store as it was left.
    let store = Store::open(uri).await?;
    let mut others = Vec::new();
    for nth in 0..3 {
        let mut other = Session::user(format!("another {nth}")).record(&store).await?;
        other.push(Chunk::assistant("a long answer ".repeat(600)));
        kept(&other).await?;
        others.push(other.id());
        drop(other);
    }
    let mut session = store.resume(branch).await?.anyway();
    session.push(Chunk::user("later"));
    kept(&session).await?;
    drop(session);
    store.close().await?;

    let store = Store::open(uri).await?;
    note(&format!("deleting {}", others[0]));
    store.delete(others[0]).await?;
    note(&format!("deleted {}", others[0]));
    store.compact().await?;
    let mut session = store.resume(others[1]).await?.anyway();
    session.push(Chunk::user("and more"));
    kept(&session).await?;
    drop(session);
    Ok(store.close().await?)
}

#[test]
#[ignore = "what the test here starts"]
fn child() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    block_on(work(&uri)).expect("nothing fails");
}

/// Opens a store after a cut, and compares it with what was noted.
async fn check(uri: &str, notes: &[String]) -> std::result::Result<(), String> {
    let failed = |what: &str, error: Error| format!("{what}: {error}\nhint: {:?}", error.hint());
    let store = Store::open(uri).await.map_err(|error| failed("it does not open", error.into()))?;
    let all = All::of(&store).await.map_err(|error| failed("it cannot be read", error))?;
    if !all.damage.is_empty() {
        return Err(format!("it is called damaged: {:?}", all.damage));
    }
    let gone = |branch: &str| notes.iter().any(|note| note.strip_prefix("deleting ") == Some(branch));
    let mut last = None;
    for kept in notes.iter().filter_map(|note| note.strip_prefix("kept ")) {
        let (branch, step) = kept.split_once(' ').expect("a branch and a step");
        if !gone(branch) {
            if !all.steps.contains_key(&step.parse().expect("an id")) {
                return Err(format!("the step {step} of {branch} is gone"));
            }
            last = Some(branch.parse::<BranchId>().expect("an id"));
        }
    }
    for deleted in notes.iter().filter_map(|note| note.strip_prefix("deleted ")) {
        if all.list.iter().any(|listed| listed.branch.to_string() == deleted) {
            return Err(format!("{deleted} is there again"));
        }
    }
    // The work continues.
    let new =
        Session::user("after the cut").record(&store).await.map_err(|error| failed("it cannot be written", error))?;
    new.durable().await.map_err(|error| failed("it cannot be written", error))?;
    if let Some(branch) = last {
        let mut session = store.resume(branch).await.map_err(|error| failed("it cannot be resumed", error))?.anyway();
        session.push(Chunk::user("after the cut"));
        session.durable().await.map_err(|error| failed("it cannot be continued", error))?;
        drop(session);
    }
    drop(new);
    store.close().await.map_err(|error| failed("it cannot be closed", error.into()))?;
    let again = Store::open(uri).await.map_err(|error| failed("it does not open again", error.into()))?;
    let damage = All::of(&again).await.map_err(|error| failed("it cannot be read again", error))?.damage;
    again.close().await.map_err(|error| failed("it cannot be closed again", error.into()))?;
    if damage.is_empty() { Ok(()) } else { Err(format!("it is called damaged later: {damage:?}")) }
}

/// Runs `test` in a process of its own and checks the states that a cut may leave.
fn cut(test: &str, kind: &str, count: usize, check: impl Fn(&str, &CutState) -> std::result::Result<(), String>) {
    let folder = rath_test_support::temp_dir_in_memory();
    let (directory, notes) = (folder.path().join("disk"), folder.path().join("notes"));
    std::fs::create_dir(&directory).expect("a directory");
    let uri = uri(kind, &directory.join("new"));
    let command = again(test, &[("RATH_STORE", &uri), ("RATH_NOTES", notes.to_str().expect("UTF-8"))]);
    let Some(cuts) = PowerCuts::record(&command, &directory, &notes) else {
        return println!("skipped: this machine has no strace");
    };
    let (mut states, mut wrong) = (0, Vec::new());
    cuts.each_state(count, rath_test_support::seed(), |state| {
        states += 1;
        state.write_to(&directory).expect("a state");
        if let Err(why) = check(&uri, state) {
            wrong.push(format!("{kind}, {}: {why}", state.name));
        }
    });
    let shown: Vec<_> = wrong.iter().take(20).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} of {states} states are wrong:\n{}", wrong.len(), shown.join("\n"));
}

#[test]
fn what_was_acknowledged_is_there_after_a_power_cut() {
    for kind in KINDS {
        let count = rath_test_support::count("RATH_CUTS", 300) as usize;
        cut("store::power_cut::child", kind, count, |uri, state| block_on(check(uri, &state.notes)));
    }
}
