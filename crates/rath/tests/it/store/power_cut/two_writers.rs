//! Two processes that write one store of lines: a fork is in another file than its parent.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use rath::prelude::*;
use rath::store::Store;

use super::super::common::{All, uri as uri_in};
use super::{RecordedRun, check_parents, kept, states};
use crate::support::block_on;

/// A process has written steps and not synced them. Another one continues from them, and joins what it finds.
async fn work(uri: &str) -> Result<()> {
    let (_, path) = uri.split_once(':').expect("a URI");
    let store = Store::open(uri).await?;
    let elsewhere = rath_test_support::temp_dir_in_memory();
    let other = Store::open(&uri_in("jsonl", elsewhere.path())).await?;
    let (mut locked, mut forks) = (Vec::new(), Vec::new());
    for nth in 0..3 {
        let mut session = Session::user(format!("first {nth}")).record(&other).await?;
        session.durable().await?;
        session.push(Chunk::assistant("a long answer ".repeat(100 * nth)));
        session.durable().await?;
        let name = format!("{}.jsonl", session.id());
        let content = std::fs::read_to_string(elsewhere.path().join("store").join(&name)).expect("a session");
        locked.push(write_and_sync_in_part(&Path::new(path).join(name), &content).expect("a session"));
        let mut fork = store.fork(session.id()).await?.anyway().record(&store).await?;
        for nth in 0..2 {
            fork.push(Chunk::user(format!("in the fork {nth}")));
            kept(&fork).await?;
        }
        forks.push(fork);
    }
    let joined = forks[0].merge(&forks[1]).await?;
    kept(&joined).await?;
    // Both parents and the child are written together.
    forks.iter_mut().for_each(|fork| _ = fork.push(Chunk::user("once more")));
    let joined = forks[1].merge(&forks[2]).await?;
    kept(&joined).await?;
    drop((joined, forks));
    Ok(store.close().await?)
}

/// Writes the file of a session as a process does that has not come to its last sync, and locks it. The file has its name since its
/// first steps are durable.
fn write_and_sync_in_part(path: &Path, content: &str) -> std::io::Result<File> {
    let mark = content.rfind("\"after_sync\"").expect("a row after a sync");
    let (synced, rest) = content.split_at(content[..mark].rfind('\n').expect("a header") + 1);
    assert!(synced.contains("\"chunk\":"), "the first steps are synced: {synced}");
    let temporary = path.with_extension("0123456789abcdef0123456789abcdef.tmp");
    let mut file = File::create_new(&temporary)?;
    file.lock()?;
    for row in synced.split_inclusive('\n') {
        file.write_all(row.as_bytes())?;
        file.sync_all()?;
    }
    std::fs::rename(&temporary, path)?;
    File::open(path.parent().expect("a folder"))?.sync_all()?;
    file.write_all(rest.as_bytes())?;
    Ok(file)
}

#[test]
#[ignore = "what the test here starts"]
fn child() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    block_on(work(&uri)).expect("nothing fails");
}

async fn check(uri: &str, notes: &[String]) -> Result<(), String> {
    let store = Store::open(uri).await.map_err(|error| format!("it does not open: {error}"))?;
    let all = All::of(&store).await.map_err(|error| format!("it cannot be read: {error}"))?;
    check_parents(&all)?;
    if !all.damage.is_empty() {
        return Err(format!("it is called damaged: {:?}", all.damage));
    }
    let kept = notes.iter().filter_map(|note| note.strip_prefix("kept ")?.split_once(' '));
    for (branch, step) in kept {
        if !all.steps.contains_key(&step.parse().expect("an id")) {
            return Err(format!("the step {step} of {branch} is gone"));
        }
    }
    store.close().await.map_err(|error| format!("it cannot be closed: {error}"))
}

#[test]
fn no_step_is_durable_before_its_parent_in_another_file() {
    let test = "store::power_cut::two_writers::child";
    let Some(run) = RecordedRun::new(test, "jsonl", "new") else { return };
    run.check("two writers", states(30), |uri, state| block_on(check(uri, &state.notes)));
}
