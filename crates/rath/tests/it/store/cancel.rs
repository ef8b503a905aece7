//! A dropped `resume` leaves no right to write behind.

use std::future::{Future, poll_fn};
use std::task::Poll;

use rath::BranchId;
use rath::prelude::*;
use rath::store::Store;

use super::common::{KINDS, child as again, setting, uri};
use crate::support::{block_on, close};

/// Waits until the store has done all that was queued, and what that queued in turn.
async fn drain(store: &Store) {
    for _ in 0..2 {
        let _ = store.delete(BranchId([0; 16])).await;
    }
}

/// Polls `resume` until it has been pending so many times, and drops it. Returns true if it was ready before.
async fn drop_resume(store: &Store, branch: BranchId, polls: u32, answer: Answer) -> bool {
    let mut resume = Box::pin(store.resume(branch));
    let mut pending = 0;
    let is_ready = poll_fn(|context| match resume.as_mut().poll(context) {
        Poll::Ready(resumed) => Poll::Ready(resumed.map(|_| true)),
        Poll::Pending => {
            pending += 1;
            if pending == polls { Poll::Ready(Ok(false)) } else { Poll::Pending }
        }
    });
    let is_ready = is_ready.await.expect("the session is free");
    if answer == Answer::Unread {
        drain(store).await;
    }
    is_ready
}

/// The fate of the store's answer to a future that is dropped.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    /// It comes after the drop.
    Late,
    /// It is there, and was not polled for.
    Unread,
}

#[test]
fn a_dropped_resume_leaves_the_session_free() {
    for kind in KINDS {
        let folder = rath_test_support::temp_dir();
        let uri = uri(kind, folder.path());
        let store = block_on(Store::open(&uri)).expect("a store");
        let branch = block_on(async { Session::user("hello").record(&store).await.expect("recorded").id() });
        for answer in [Answer::Late, Answer::Unread] {
            for polls in 1.. {
                let is_ready = block_on(drop_resume(&store, branch, polls, answer));
                let second = block_on(store.resume(branch));
                drop(second.unwrap_or_else(|error| panic!("{kind}, {polls} polls, at once: {error:?}")));
                block_on(drain(&store));
                let other = block_on(Store::open(&uri)).expect("another handle");
                let resumed = block_on(other.resume(branch));
                drop(resumed.unwrap_or_else(|error| panic!("{kind}, {polls} polls, another handle: {error:?}")));
                close((), other);
                let settings = [("RATH_STORE", &*uri), ("RATH_BRANCH", &branch.to_string())];
                let ended = again("store::cancel::child", &settings).output().expect("it runs");
                assert!(ended.status.success(), "{kind}, {polls} polls, another process");
                drop(block_on(store.resume(branch)).expect("the same handle"));
                block_on(drain(&store));
                if is_ready {
                    break;
                }
            }
        }
    }
}

#[test]
#[ignore = "what the tests here start"]
fn child() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    let store = block_on(Store::open(&uri)).expect("a store");
    let branch = setting("RATH_BRANCH").parse().expect("a branch");
    close(block_on(store.resume(branch)).expect("it is free"), store);
}
