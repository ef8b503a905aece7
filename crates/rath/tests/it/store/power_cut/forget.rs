//! Forgetting: what was said to be removed is in no file after a cut.

use std::fs::File;
use std::path::{Path, PathBuf};

use rath::prelude::*;
use rath::store::Store;
use rath::workspace::Objects;

use super::{IN_PROJECT, for_each_kind, note, project, states};
use crate::forget::{CALL_TIMES, MOVED_ASIDE, called_twice, contains, move_aside};
use crate::support::block_on;

/// The number of steps that are recorded after the removal.
const LATER_STEPS: usize = 20;

/// A call whose changes were put back, and is forgotten.
async fn work(uri: &str) -> Result<()> {
    let root = project(uri);
    drop(Objects::open(&root.join(".rath/workspace"))?);
    let store = Store::open(uri).await?;
    let session = called_twice(&root).record(&store).await?;
    session.durable().await?;
    let (branch, step) = (session.id(), session.head().expect("a step").id());
    drop(session);
    store.close().await?;
    for aside in [CALL_TIMES.first, CALL_TIMES.second].map(|millis| move_aside(&root, millis)) {
        // Only what is durable can come back.
        let file = aside.join("locked.txt");
        let mut paths = file.ancestors().take_while(|path| path.starts_with(&root));
        paths.try_for_each(|path| File::open(path)?.sync_all())?;
    }

    let store = Store::open(uri).await?;
    let report = store.forget(branch, step).await?;
    assert!(report.is_complete(), "{report:?}");
    note("forgotten");
    // Nothing that is written later makes the removal durable.
    let mut session = Session::user("later").record(&store).await?;
    for nth in 0..LATER_STEPS {
        session.push(Chunk::assistant(format!("answer {nth}")));
        session.durable().await?;
    }
    drop(session);
    Ok(store.close().await?)
}

#[test]
#[ignore = "what the test here starts"]
fn child() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    block_on(work(&uri)).expect("nothing fails");
}

/// Returns the files below a directory that have the text that is forgotten.
fn files_with_secret(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut rest) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = rest.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                rest.push(path);
            } else if std::fs::read(&path).is_ok_and(|bytes| contains(&bytes, MOVED_ASIDE)) {
                found.push(path);
            }
        }
    }
    found
}

fn check(uri: &str, notes: &[String]) -> Result<(), String> {
    let found = files_with_secret(&project(uri));
    match found.is_empty() || !notes.iter().any(|note| note == "forgotten") {
        true => Ok(()),
        false => Err(format!("it is there again: {found:?}")),
    }
}

#[test]
fn a_file_that_was_put_back_and_forgotten_is_gone_after_a_power_cut() {
    for_each_kind("store::power_cut::forget::child", IN_PROJECT, |kind, run| {
        run.check(&format!("forget, {kind}"), states(50), |uri, state| check(uri, &state.notes));
    });
}
