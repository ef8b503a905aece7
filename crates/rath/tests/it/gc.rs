//! Collections and retention rules on stores of every kind.

use std::time::Duration;

use rath::BranchId;
use rath::gc::{Gc, KeepReason, Retention};
use rath::prelude::*;
use rath::record::{Record, Stamp};
use rath_test_support::{Chance, seeds};

use crate::store::common::{KINDS, uri};
use crate::support::{block_on, close, now};

/// Writes a session whose steps have no time, as one that was imported from another format has none.
fn session_without_a_time(text: &str, nth: u8) -> Session {
    let mut record = Record::default();
    record.push(Chunk::user(text), Stamp::on(BranchId([nth; 16])));
    Session::resume_own(record)
}

#[test]
fn a_session_without_a_time_is_never_old() {
    for kind in KINDS {
        let folder = rath_test_support::temp_dir();
        let store = block_on(Store::open(&uri(kind, folder.path()))).expect("a store");
        let session = block_on(session_without_a_time("no time", 7).record(&store)).expect("recorded");
        block_on(session.durable()).expect("durable");
        close(session, store);
        let store = block_on(Store::open(&uri(kind, folder.path()))).expect("a store");
        for rules in [Retention::new().older_than(Duration::ZERO), Retention::new().older_than(Duration::MAX)] {
            let plan = block_on(rules.plan(&store, folder.path())).expect("a plan");
            assert!(plan.delete.is_empty(), "{kind}: {plan:?}");
            let reasons: Vec<_> = plan.kept.iter().map(|(_, reason)| reason).collect();
            assert_eq!(reasons, [&KeepReason::UnknownAge], "{kind}");
        }
        let plan = block_on(Retention::new().max_size(0).plan(&store, folder.path())).expect("a plan");
        assert!(plan.delete.is_empty() && plan.unreachable_size.is_some(), "{kind}: {plan:?}");
    }
}

/// The parts of a report that a dry run has to foretell.
fn described(report: &rath::gc::GcReport) -> String {
    let refused: Vec<_> = report.refused.iter().map(|it| format!("{}: {}", it.family, it.error)).collect();
    let (steps, bytes) = (report.store.steps, report.store.bytes);
    let (deleted, branches) = (&report.deleted, &report.branches);
    format!("deleted {deleted:?}, {branches:?}\nrefused {refused:#?}\n{steps} steps, {bytes} bytes")
}

#[test]
fn a_dry_run_says_what_the_real_one_does() {
    let (mut with_refused, mut with_deleted) = (0, 0);
    for seed in seeds(20) {
        for kind in KINDS {
            let folder = rath_test_support::temp_dir();
            let mut chance = Chance(seed);
            let store = block_on(Store::open(&uri(kind, folder.path()))).expect("a store");
            let mut live: Vec<Session> = Vec::new();
            for nth in 0..3 + chance.below(12) {
                let one = chance.below(live.len().max(1) as u64) as usize;
                let other = chance.below(live.len().max(1) as u64) as usize;
                let new = match chance.below(6) {
                    _ if live.is_empty() => block_on(Session::user("first").record(&store)).expect("recorded"),
                    0 | 1 => block_on(Session::user(format!("said {nth}")).record(&store)).expect("recorded"),
                    2 => live[one].fork(),
                    3 => live[one].detach(),
                    4 => now(live[one].merge(&live[other])).expect("no call is open"),
                    _ => {
                        let long = "x".repeat(chance.below(20_000) as usize);
                        live[one].push(Chunk::user(format!("said {nth} {long}")));
                        continue;
                    }
                };
                live.push(new);
            }
            for session in &mut live {
                session.push(Chunk::user("last"));
                block_on(session.durable()).expect("durable");
            }
            // Some sessions end, and others are still written.
            while !live.is_empty() && chance.below(3) > 0 {
                live.swap_remove(chance.below(live.len() as u64) as usize);
            }
            // The thread that writes releases their rights before it comes to this.
            assert!(block_on(store.delete(BranchId([9; 16]))).is_err());
            let second = block_on(Store::open(&uri(kind, folder.path()))).expect("a store");
            let list = block_on(second.list()).expect("a list");
            let mut families: Vec<_> = list.iter().map(|summary| summary.family).collect();
            families.sort();
            families.dedup();
            families.retain(|_| chance.below(4) > 0);
            if chance.below(2) == 0 {
                families.reverse();
            }
            let counted = block_on(Gc::new().dry_run().run(&second, &families, folder.path())).expect("counted");
            let listed = block_on(second.list()).expect("a list").len();
            assert_eq!(listed, list.len(), "a dry run deletes nothing");
            let removed = block_on(Gc::new().run(&second, &families, folder.path())).expect("removed");
            assert_eq!(described(&counted), described(&removed), "seed {seed}, {kind}");
            with_refused += usize::from(!removed.refused.is_empty());
            with_deleted += usize::from(!removed.deleted.is_empty());
            drop((live, store));
        }
    }
    assert!(with_refused > 0 && with_deleted > 0, "{with_refused} {with_deleted}");
}

#[cfg(unix)]
#[test]
fn files_that_were_put_aside_stay_while_the_age_of_a_session_is_unknown() {
    for kind in KINDS {
        let (folder, place) = (rath_test_support::temp_dir(), rath_test_support::temp_dir());
        drop(rath::workspace::Objects::open(&folder.path().join(".rath/workspace")).expect("versions"));
        let aside = folder.path().join(".rath/put-back/01980a5e7a407cc28d4e3f2b1c0d9e8f");
        std::fs::create_dir_all(&aside).expect("a directory");
        std::fs::write(aside.join("a.txt"), "before").expect("written");
        let store = block_on(Store::open(&uri(kind, place.path()))).expect("a store");
        let session = block_on(session_without_a_time("no time", 7).record(&store)).expect("recorded");
        block_on(session.durable()).expect("durable");
        let id = session.id();
        close(session, store);
        let store = block_on(Store::open(&uri(kind, place.path()))).expect("a store");
        block_on(Gc::new().run(&store, &[], folder.path())).expect("collected");
        assert!(aside.join("a.txt").exists(), "{kind}");
        let family = block_on(store.list()).expect("a list").iter().find(|it| it.branch == id).expect("listed").family;
        block_on(Gc::new().run(&store, &[family], folder.path())).expect("collected");
        assert!(!aside.exists(), "{kind}: no session is left");
    }
}

/// A session that a merge continued from is listed by itself again when the session with the merge is gone.
#[test]
fn a_session_that_was_merged_into_a_deleted_one_is_listed() {
    for kind in KINDS {
        let folder = rath_test_support::temp_dir();
        let store = block_on(Store::open(&uri(kind, folder.path()))).expect("a store");
        let one = block_on(Session::user("one").record(&store)).expect("recorded");
        let other = block_on(Session::user("other").record(&store)).expect("recorded");
        let merged = now(one.merge(&other)).expect("merged");
        block_on(merged.durable()).expect("durable");
        let (gone, left) = (one.id(), other.id());
        close((one, other, merged), store);
        let store = block_on(Store::open(&uri(kind, folder.path()))).expect("a store");
        block_on(Gc::new().run(&store, &[gone], folder.path())).expect("collected");
        let list = block_on(store.list()).expect("a list");
        let tips: Vec<_> = list.iter().filter(|listed| listed.is_tip).map(|listed| listed.branch).collect();
        assert_eq!(tips, [left], "{kind}");
    }
}

/// A name is a wish to keep a session, also after others continued from the branch. So is a conflict that nobody decided.
#[test]
fn named_sessions_and_undecided_merges_are_kept() {
    for kind in KINDS {
        let (folder, work) = (rath_test_support::temp_dir(), crate::support::folder(&[("a.txt", "one\n")]));
        let store = block_on(Store::open(&uri(kind, folder.path()))).expect("a store");
        let named = block_on(Session::user("named").record(&store)).expect("recorded");
        let (mut left, mut right) = (named.fork_named("left"), named.fork_named("right"));
        [&mut left, &mut right].into_iter().for_each(|fork| _ = fork.push(Chunk::user("more")));
        let merged = now(left.merge(&right)).expect("merged");
        let other = block_on(crate::files::placed(&work).record(&store)).expect("recorded");
        let other = crate::files::work(other, &[&["echo two > a.txt"]]);
        let ours = crate::files::work(other.fork(), &[&["echo ours > a.txt"]]);
        let theirs = crate::files::work(other.fork(), &[&["echo theirs > a.txt"]]);
        let undecided = block_on(ours.merge(&theirs)).expect("merged");
        assert_eq!(rath::view::conflicts(undecided.as_record()).len(), 1);
        block_on(async { merged.durable().await.and(undecided.durable().await) }).expect("durable");
        let (first, second) = (named.id(), other.id());
        close((named, left, right, merged, other, ours, theirs, undecided), store);
        let store = block_on(Store::open(&uri(kind, folder.path()))).expect("a store");
        let rules = Retention::new().older_than(Duration::ZERO).keep_named();
        let plan = block_on(rules.plan(&store, folder.path())).expect("a plan");
        assert!(plan.delete.is_empty(), "{kind}: {plan:?}");
        let is_kept = |family, is_it: fn(&KeepReason) -> bool| {
            plan.kept.iter().any(|(kept, reason)| *kept == family && is_it(reason))
        };
        assert!(is_kept(first, |reason| matches!(reason, KeepReason::Named { .. })), "{kind}: {plan:?}");
        assert!(is_kept(second, |reason| *reason == KeepReason::Waiting), "{kind}: {plan:?}");
    }
}
