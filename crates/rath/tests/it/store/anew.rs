//! A store that is written anew, to forget something or to give back room, while others go on with it.

use std::path::Path;

use rath::BranchId;
use rath::StepId;
use rath::prelude::*;
use rath::store::Store;

use super::common::{All, uri};
use super::words;
use crate::support::{block_on, close};

/// Everything in the files of a folder.
fn bytes(folder: &Path) -> Vec<u8> {
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    files.flat_map(|path| std::fs::read(path).expect("a file")).collect()
}

fn contains(folder: &Path, words: &str) -> bool {
    bytes(folder).windows(words.len()).any(|window| window == words.as_bytes())
}

fn push(session: &mut Session, words: &str) -> StepId {
    let step = session.push(Chunk::user(words));
    block_on(session.durable()).expect("durable");
    step
}

fn said(store: &Store, branch: BranchId) -> Vec<String> {
    let found = block_on(store.read(branch)).expect("it is there");
    assert_eq!(found.damage, []);
    found.session.chunks().map(words).collect()
}

#[test]
fn what_is_forgotten_stands_in_no_file() {
    let folder = rath_test_support::temp_dir();
    let uri = uri("sqlite", folder.path());
    let long = "sesame, ".repeat(3_000);
    let (branch, steps) = {
        let store = block_on(Store::open(&uri)).expect("a store");
        let mut session = block_on(Session::user("my number is 4711").record(&store)).expect("recorded");
        let first = session.head().expect("a step").id();
        let steps = [first, push(&mut session, "a"), push(&mut session, &long), push(&mut session, "the last one")];
        let branch = session.id();
        close(session, store);
        (branch, steps)
    };
    let is_there = |words: &str| contains(folder.path(), words);
    assert!(is_there("number is 4711") && is_there("sesame, sesame"));
    let store = block_on(Store::open(&uri)).expect("a store");
    // It is not written, and others are written meanwhile.
    let mut other = block_on(Session::user("another").record(&store)).expect("recorded");
    for step in &steps[..3] {
        block_on(store.forget(branch, *step)).expect("forgotten");
    }
    assert!(!is_there("number is 4711") && !is_there("sesame, sesame"));
    assert_eq!(said(&store, branch), ["[forgotten]", "[forgotten]", "[forgotten]", "the last one"]);
    push(&mut other, "goes on");
    let mut session = block_on(store.resume(branch)).expect("resumed").complete().expect("complete");
    push(&mut session, "and on");
    close((session, other), store);
    let store = block_on(Store::open(&uri)).expect("a store");
    assert_eq!(said(&store, branch)[3..], ["the last one", "and on"]);
    let all = block_on(All::of(&store)).expect("all of it");
    assert_eq!((all.damage, all.steps.len()), (vec![], 7));
}

#[test]
fn whoever_writes_goes_on_when_others_write_the_store_anew() {
    let folder = rath_test_support::temp_dir();
    let uri = uri("sqlite", folder.path());
    let [one, other] = [(); 2].map(|()| block_on(Store::open(&uri)).expect("a store"));
    let mut kept = block_on(Session::user("kept").record(&one)).expect("recorded");
    let mut lines = vec!["kept".to_owned()];
    let mut steps = 1;
    for round in 0..6 {
        // Between what is kept there is what will be gone.
        let mut gone = block_on(Session::user(format!("gone {round}")).record(&other)).expect("recorded");
        for nth in 0..4 {
            push(&mut gone, &format!("gone {round} {nth}"));
            lines.push(format!("kept {round} {nth}"));
            push(&mut kept, &lines[lines.len() - 1]);
            steps += 1;
        }
        let found = block_on(one.read(kept.id())).expect("it is there").session;
        let id = gone.id();
        drop(gone);
        block_on(other.delete(id)).expect("deleted");
        let freed = block_on(other.compact()).expect("compacted");
        assert_eq!(freed.steps, 5);
        assert!(!contains(folder.path(), &format!("gone {round} 1")));
        // What was read before, what is read now, and what is appended then.
        assert_eq!(found.chunks().map(words).collect::<Vec<_>>(), lines);
        for store in [&one, &other] {
            assert_eq!(said(store, kept.id()), lines);
            let check = block_on(store.check()).expect("a check");
            assert_eq!((check.damage, check.steps), (vec![], steps));
        }
        lines.push(format!("after {round}"));
        push(&mut kept, &lines[lines.len() - 1]);
        steps += 1;
        assert_eq!(said(&other, kept.id()), lines);
        let mut fork = block_on(found.fork().record(&one)).expect("recorded");
        push(&mut fork, "from what was read before");
        steps += 2;
    }
    drop((one, other));
    assert_eq!(said(&block_on(Store::open(&uri)).expect("a store"), kept.id()), lines);
}
