//! The power goes at any moment, and what was acknowledged is there.
//!
//! A child writes to a store below strace and notes what it was told is durable. From its calls the states are built that a
//! power cut may leave ([`PowerCuts`]); each has to open, to hold everything that was noted, and to be called damaged by
//! none. `RATH_CUTS` sets the number of states for each kind of store; the other kinds of run have a part of it.

mod forget;
mod two_writers;
mod versions;

use std::path::{Path, PathBuf};
use std::result::Result;

use rath::BranchId;
use rath::prelude::{Chunk, Error, Session};
use rath::store::Store;
use rath_test_support::{CutState, PowerCuts};

use super::common::{All, KINDS, append_line, child as again, lines, setting, uri};
use crate::support::block_on;

/// Notes a line, if this is a process whose calls are recorded.
fn note(line: &str) {
    if let Some(notes) = std::env::var_os("RATH_NOTES") {
        append_line(notes, line);
    }
}

/// Waits until all is durable, and notes that it is.
async fn kept(session: &Session) -> rath::Result<()> {
    session.durable().await?;
    note(&format!("kept {} {}", session.id(), session.head().expect("a step").id()));
    Ok(())
}

/// Sessions that are begun, forked, joined, closed, continued, shortened and deleted.
async fn work(uri: &str) -> rath::Result<()> {
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

/// Fails if a step is there whose parent is not.
fn check_parents(all: &All) -> Result<(), String> {
    let links = all.steps.values().flat_map(|step| step.parents().iter().map(move |link| (step, link)));
    match links.into_iter().find(|(_, link)| link.step().is_none()) {
        Some((step, link)) => Err(format!("step {} is there, and its parent {} is not", step.id(), link.id())),
        None => Ok(()),
    }
}

/// Opens a store after a cut, and compares it with what was noted.
async fn check(uri: &str, notes: &[String]) -> Result<(), String> {
    let failed = |what: &str, error: Error| format!("{what}: {error}\nhint: {:?}", error.hint());
    let store = Store::open(uri).await.map_err(|error| failed("it does not open", error.into()))?;
    let all = All::of(&store).await.map_err(|error| failed("it cannot be read", error))?;
    if !all.damage.is_empty() {
        return Err(format!("it is called damaged: {:?}", all.damage));
    }
    check_parents(&all)?;
    let gone = |branch: &str| notes.iter().any(|note| note.strip_prefix("deleting ") == Some(branch));
    let mut last = None;
    for kept in notes.iter().filter_map(|note| note.strip_prefix("kept ")) {
        let (branch, step) = kept.split_once(' ').expect("a branch and a step");
        if !gone(branch) {
            if !all.steps.contains_key(&step.parse().expect("an id")) {
                return Err(format!("the step {step} of {branch} is gone"));
            }
            let branch = branch.parse::<BranchId>().expect("an id");
            let found = store.read(branch).await.map_err(|error| failed("it cannot be read", error))?;
            if found.session.is_guest() {
                return Err(format!("{branch} is taken for a session of others"));
            }
            last = Some(branch);
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
    kept(&new).await.map_err(|error| failed("it cannot be written", error))?;
    if let Some(branch) = last {
        let mut session = store.resume(branch).await.map_err(|error| failed("it cannot be resumed", error))?.anyway();
        session.push(Chunk::user("after the cut"));
        kept(&session).await.map_err(|error| failed("it cannot be continued", error))?;
        drop(session);
    }
    drop(new);
    store.close().await.map_err(|error| failed("it cannot be closed", error.into()))?;
    let again = Store::open(uri).await.map_err(|error| failed("it does not open again", error.into()))?;
    let damage = All::of(&again).await.map_err(|error| failed("it cannot be read again", error))?.damage;
    again.close().await.map_err(|error| failed("it cannot be closed again", error.into()))?;
    if damage.is_empty() { Ok(()) } else { Err(format!("it is called damaged later: {damage:?}")) }
}

/// A recorded run, and the directory and the store that it wrote.
struct RecordedRun {
    cuts: PowerCuts,
    directory: PathBuf,
    uri: String,
    _folder: rath_test_support::TempDir,
}

impl RecordedRun {
    /// Runs `test` in a process of its own. Returns `None` if this machine has no strace.
    fn new(test: &str, kind: &str, store: &str) -> Option<Self> {
        let folder = rath_test_support::temp_dir_in_memory();
        let directory = folder.path().join("disk");
        std::fs::create_dir_all(directory.join("project")).expect("a directory");
        let uri = uri(kind, &directory.join(store));
        let Some(cuts) = record(test, &uri, &directory, &[]) else {
            println!("skipped: this machine has no strace");
            return None;
        };
        Some(RecordedRun { cuts, directory, uri, _folder: folder })
    }

    /// Checks the states that a cut may leave.
    fn check(&self, name: &str, count: usize, check: impl Fn(&str, &CutState) -> Result<(), String>) {
        self.cuts.check_states(name, count, &self.directory, |state| check(&self.uri, state));
    }

    /// Opens states after a cut by running `test` in a process of its own, and checks `count` states that a second cut may leave.
    fn check_recoveries(
        &self,
        name: &str,
        count: usize,
        test: &str,
        check: impl Fn(&str, &[String]) -> Result<(), String>,
    ) {
        self.cuts.each_state(count.div_ceil(STATES_OF_A_RECOVERY), rath_test_support::seed(), |first| {
            first.write_to(&self.directory).expect("a state");
            let cuts = record(test, &self.uri, &self.directory, &first.notes).expect("strace");
            let name = format!("{name}, {}, then", first.name);
            cuts.check_states(&name, STATES_OF_A_RECOVERY, &self.directory, |second| {
                check(&self.uri, &[&first.notes[..], &second.notes].concat())
            });
        });
    }
}

/// The directory of a store in a project, whose files are in the directory above it.
const IN_PROJECT: &str = "project/.rath";

/// Returns the directory of the project that a store is in.
fn project(uri: &str) -> PathBuf {
    let (_, path) = uri.split_once(':').expect("a URI");
    Path::new(path).ancestors().nth(2).expect("a directory").to_owned()
}

/// Records `test` on each kind of store, and calls `check` with the kind. Does nothing if this machine has no strace.
fn for_each_kind(test: &str, store: &str, check: impl Fn(&str, RecordedRun)) {
    for kind in KINDS {
        let Some(run) = RecordedRun::new(test, kind, store) else { return };
        check(kind, run);
    }
}

/// Runs `test` in a process of its own, and records what it does in a directory after `earlier` was noted.
fn record(test: &str, uri: &str, directory: &Path, earlier: &[String]) -> Option<PowerCuts> {
    let [notes, before] = ["notes", "earlier"].map(|name| directory.with_file_name(name));
    let _ = std::fs::remove_file(&notes);
    let text: String = earlier.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&before, text).expect("notes");
    let [notes_path, before] = [&notes, &before].map(|path| path.to_str().expect("UTF-8"));
    let settings = [("RATH_STORE", uri), ("RATH_NOTES", notes_path), ("RATH_EARLIER", before)];
    PowerCuts::record(&again(test, &settings), directory, &notes)
}

/// Returns the number of states for a kind of run, of which `share` is a part in a hundred.
fn states(share: usize) -> usize {
    (rath_test_support::count("RATH_CUTS", 100) as usize * share).div_ceil(100)
}

#[test]
fn what_was_acknowledged_is_there_after_a_power_cut() {
    for_each_kind("store::power_cut::child", "new", |kind, run| {
        run.check(kind, states(100), |uri, state| block_on(check(uri, &state.notes)));
    });
}

/// The number of states of each run that opens a store after a cut.
const STATES_OF_A_RECOVERY: usize = 10;

#[test]
#[ignore = "what the test here starts"]
fn recovery() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    block_on(check(&uri, &lines(setting("RATH_EARLIER")))).expect("nothing fails");
}

#[test]
fn a_cut_while_a_store_is_opened_after_a_cut_loses_nothing() {
    for_each_kind("store::power_cut::child", "new", |kind, run| {
        run.check_recoveries(kind, states(30), "store::power_cut::recovery", |uri, notes| block_on(check(uri, notes)));
    });
}
