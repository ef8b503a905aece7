//! Versions of files: every tree that a recorded step names can be checked out after a cut.

use std::collections::{BTreeSet, HashSet};

use rath::chunk::Tree;
use rath::prelude::*;
use rath::store::Store;
use rath::tool::builtin::WriteFile;
use rath::workspace::{ObjectId, Objects, Workspace};
use serde_json::json;

use super::super::common::{All, lines, setting};
use super::{IN_PROJECT, check_parents, for_each_kind, kept, note, project, states};
use crate::support::{block_on, put, script};

/// The number of files that become a pack.
const FILES_OF_A_PACK: usize = 40;

/// An agent that writes these files in one round of calls. No process is started: the recording follows one.
fn writer(files: &[(String, String)]) -> Agent {
    let call =
        |(path, text): &(String, String)| json!({"name": "write_file", "arguments": {"path": path, "content": text}});
    let calls = json!({"calls": files.iter().map(call).collect::<Vec<_>>()}).to_string();
    Agent::new("Work.", &script([calls, r#"{"text": "done"}"#.to_owned()])).tool(WriteFile)
}

async fn write(mut session: Session, files: &[(&str, &str)]) -> Result<Session> {
    session.push(Chunk::user("go on"));
    let files: Vec<_> = files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
    let session = writer(&files).run(session).await?;
    kept(&session).await?;
    Ok(session)
}

/// Files that are written, in a directory and in those of forks, joined, restored and written again by a later process.
async fn work(uri: &str) -> Result<()> {
    let root = project(uri);
    put(&root, "a.txt", "one\ntwo\nthree\n");
    put(&root, "sub/b.txt", "b\n");
    let store = Store::open(uri).await?;
    let session = Session::user("begin").to(Sandbox::local(&root)).record(&store).await?;
    let session = write(session, &[("a.txt", "1\ntwo\nthree\n"), ("new/c.txt", "c\n")]).await?;
    let first = session.head().expect("a step").id();
    let [left, right] = [session.fork(), session.fork()];
    let left = write(left, &[("left.txt", "left\n"), ("a.txt", "1\ntwo\n3\n")]).await?;
    let many: Vec<_> = (0..FILES_OF_A_PACK).map(|nth| (format!("many/{nth}"), format!("file {nth}\n"))).collect();
    let many: Vec<_> = many.iter().map(|(path, text)| (&**path, &**text)).collect();
    let right = write(right, &many).await?;
    let joined = left.merge(&right).await?;
    kept(&joined).await?;
    let mut joined = write(joined, &[("joined.txt", "joined\n")]).await?;
    joined.restore(first).await?;
    kept(&joined).await?;
    let branch = joined.id();
    drop((session, left, right, joined));
    store.close().await?;

    let store = Store::open(uri).await?;
    put(&root, "a.txt", "changed outside\n");
    let session = store.resume(branch).await?.anyway();
    let session = write(session, &[("sub/b.txt", "later\n")]).await?;
    drop(session);
    Ok(store.close().await?)
}

#[test]
#[ignore = "what the test here starts"]
fn child() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    block_on(work(&uri)).expect("nothing fails");
}

/// Reads all files of a tree, each version once. Every version is compared with its id.
fn check_tree(objects: &Objects, tree: &Tree, seen: &mut HashSet<ObjectId>) -> Result<(), String> {
    let id = tree.0.parse().map_err(|error| format!("the tree {} is none: {error}", tree.0))?;
    let missing = |error| format!("the tree {} is not there: {error}", tree.0);
    for file in objects.files(id).map_err(missing)?.into_iter().filter(|file| seen.insert(file.id)) {
        if objects.read(id, &file.path).map_err(missing)?.is_none() {
            return Err(format!("the tree {} has no {}", tree.0, file.path));
        }
    }
    Ok(())
}

/// Checks out a tree and compares it with its id.
fn check_checkout(objects: &Objects, tree: &Tree) -> Result<(), String> {
    let failed = |error| format!("the tree {} cannot be checked out: {error}", tree.0);
    let folder = rath_test_support::temp_dir_in_memory();
    let [into, versions, index] = ["files", "versions", "index"].map(|name| folder.path().join(name));
    let id = tree.0.parse().map_err(failed)?;
    objects.checkout(id, &into).map_err(failed)?;
    let copy = Objects::open(&versions).map_err(failed)?;
    let found = Workspace::open(&into, &copy, &index).and_then(|mut workspace| workspace.snapshot()).map_err(failed)?;
    let is_same = found.tree == id;
    is_same.then_some(()).ok_or_else(|| format!("the tree {} is another one when it is checked out", tree.0))
}

async fn check(uri: &str, notes: &[String]) -> Result<(), String> {
    let failed = |what: &str, error: Error| format!("{what}: {error}\nhint: {:?}", error.hint());
    let store = Store::open(uri).await.map_err(|error| failed("it does not open", error.into()))?;
    let all = All::of(&store).await.map_err(|error| failed("it cannot be read", error))?;
    if !all.damage.is_empty() {
        return Err(format!("it is called damaged: {:?}", all.damage));
    }
    check_parents(&all)?;
    let kept: Vec<_> = notes.iter().filter_map(|note| note.strip_prefix("kept ")?.split_once(' ')).collect();
    if let Some((branch, step)) = kept.iter().find(|(_, step)| !all.steps.contains_key(&step.parse().expect("an id"))) {
        return Err(format!("the step {step} of {branch} is gone"));
    }
    // Trees of steps that were not acknowledged have to be there too: versions are durable before a step names them.
    let trees: HashSet<Tree> = all.steps.values().filter_map(|step| step.chunk().tree().cloned()).collect();
    let root = project(uri);
    if !trees.is_empty() {
        let objects = Objects::open(&root.join(".rath/workspace")).map_err(|error| format!("no versions: {error}"))?;
        let mut seen = HashSet::new();
        trees.iter().try_for_each(|tree| check_tree(&objects, tree, &mut seen))?;
        trees.iter().take(1).try_for_each(|tree| check_checkout(&objects, tree))?;
    }
    // The work continues, in the directory and in those of forks.
    let mut branches: Vec<&str> = kept.iter().map(|(branch, _)| *branch).collect();
    branches.dedup();
    for branch in branches.iter().rev().take(2).collect::<BTreeSet<_>>() {
        let branch = branch.parse().expect("an id");
        let resumed = store.resume(branch).await.map_err(|error| failed("it cannot be resumed", error))?.anyway();
        // Signatures in a store of lines are not synced.
        let session = if resumed.is_guest() { resumed.adopt("tester").to(Sandbox::local(&root)) } else { resumed };
        let continued = write(session, &[("after.txt", "after the cut\n")]).await;
        continued.map_err(|error| failed("it cannot be continued", error))?;
    }
    note("checked");
    store.close().await.map_err(|error| failed("it cannot be closed", error.into()))
}

#[test]
fn every_version_that_a_recorded_step_names_is_there_after_a_power_cut() {
    for_each_kind("store::power_cut::versions::child", IN_PROJECT, |kind, run| {
        run.check(&format!("versions, {kind}"), states(10), |uri, state| block_on(check(uri, &state.notes)));
    });
}

#[test]
#[ignore = "what the test here starts"]
fn recovery() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    block_on(check(&uri, &lines(setting("RATH_EARLIER")))).expect("nothing fails");
}

#[test]
fn a_cut_while_files_are_recovered_after_a_cut_loses_no_version() {
    let (child, recovery) = ("store::power_cut::versions::child", "store::power_cut::versions::recovery");
    for_each_kind(child, IN_PROJECT, |kind, run| {
        let name = format!("versions, {kind}");
        run.check_recoveries(&name, states(5), recovery, |uri, notes| block_on(check(uri, notes)));
    });
}
