//! Programs at random: what was said to be durable is in the store, once, and reads as it does in memory.

use std::collections::HashSet;
use std::time::Duration;

use rath::Usage;
use rath::prelude::*;
use rath::record::Step;
use rath::record::graph::Ids;
use rath::store::{Create, Sqlite, Store};

use super::common::{Chance, exhaustive};
use super::stores;
use crate::support::{block_on, close, now};

#[test]
fn what_a_store_gives_back_is_what_was_in_memory() {
    for seed in rath_test_support::seeds(if exhaustive() { 2000 } else { 15 }) {
        stores(|open| Program::new(seed, open).run());
    }
}

/// A program that chance makes up, and the sessions that it holds.
struct Program<'a> {
    chance: Chance,
    seed: u64,
    open: &'a dyn Fn() -> Store,
    store: Store,
    elsewhere: Store,
    live: Vec<Session>,
    /// True if a second handle wrote: two handles do not know each other's steps.
    is_reopened: bool,
}

impl<'a> Program<'a> {
    fn new(seed: u64, open: &'a dyn Fn() -> Store) -> Self {
        let (store, elsewhere) = (open(), block_on(Store::open("memory:")).expect("a store"));
        let live = vec![block_on(Session::user("begin").record(&store)).expect("recorded")];
        Program { chance: Chance(seed), seed, open, store, elsewhere, live, is_reopened: false }
    }

    fn run(mut self) {
        let length = 4 + self.chance.below(22);
        for nth in 0..length {
            let most = self.live.len() as u64;
            let (at, other) = (self.chance.below(most) as usize, self.chance.below(most) as usize);
            self.step(nth, at, other);
        }
        self.check();
    }

    fn step(&mut self, nth: u64, at: usize, other: usize) {
        let session = &mut self.live[at];
        let new = match self.chance.below(16) {
            0..=2 => {
                session.push(Chunk::user(format!("said {nth}")));
                return;
            }
            3 => {
                let usage = Usage { input: 7, output: 3, ..Usage::default() };
                session.push_with_usage(Chunk::assistant(format!("answered {nth}")), usage);
                return;
            }
            4 => session.fork_named(format!("fork {nth}")),
            5 => session.fork(),
            6 => session.detach(),
            7 => {
                let steps: Vec<_> = session.lineage().walk().into_iter().map(Step::id).collect();
                session.at(steps[self.chance.below(steps.len() as u64) as usize]).expect("it is a step of it")
            }
            8 | 9 => now(self.live[at].merge(&self.live[other])).expect("no call is open"),
            10 => {
                let mut aside = session.aside(format!("aside {nth}"));
                aside.push(Chunk::user("beside it"));
                session.keep_aside(&aside);
                aside
            }
            11 => {
                let work = self.live[other].clone();
                return self.live[at].keep_aside(&work);
            }
            12 => return self.open_again(at),
            13 => {
                let plain = Session::user(format!("plain {nth}"));
                let place = self.chance.below(3);
                let plain = match place {
                    0 => block_on(plain.record(&self.store)).expect("recorded"),
                    1 => block_on(plain.record(&self.elsewhere)).expect("recorded"),
                    _ => plain,
                };
                let merged = now(self.live[at].merge(&plain)).expect("no call is open");
                // Two sessions of the store may each be merged into the other.
                if place == 0 {
                    self.live.push(plain);
                }
                merged
            }
            14 => {
                block_on(session.durable()).unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
                let Ok(found) = block_on(self.store.read(session.id())) else { return };
                block_on(found.session.fork_named(format!("read {nth}")).record(&self.store)).expect("recorded")
            }
            _ => {
                // It goes on in another store, and comes back from there.
                let mut away = block_on(session.fork().record(&self.elsewhere)).expect("recorded");
                away.push(Chunk::user("elsewhere"));
                block_on(away.durable()).expect("durable");
                let found = block_on(self.elsewhere.read(away.id())).expect("it is there").session;
                assert_eq!(described(&found), described(&away), "seed {}", self.seed);
                now(session.merge(&found)).expect("no call is open")
            }
        };
        self.live.push(new);
    }

    /// Lets a session go, opens the store anew, and goes on with it.
    fn open_again(&mut self, at: usize) {
        let session = &self.live[at];
        block_on(session.durable()).unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        let (id, before) = (session.id(), described(session));
        if !has_own_steps(session) {
            return;
        }
        self.live.swap_remove(at);
        // Not through a second handle while the first one writes: what one has on its way the other cannot know.
        let store = if self.live.is_empty() { (self.open)() } else { self.store.clone() };
        self.is_reopened |= self.live.is_empty();
        match block_on(store.resume(id)) {
            Ok(resumed) => {
                let session = resumed.complete().expect("as it was left");
                assert_eq!(described(&session), before, "seed {}", self.seed);
                self.live.push(session);
            }
            // An untouched fork holds the branch that it leaves.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "seed {}: {error}", self.seed),
        }
        self.store = store;
        if self.live.is_empty() {
            self.live.push(block_on(Session::user("anew").record(&self.store)).expect("recorded"));
        }
    }

    fn check(self) {
        let (store, seed) = ((self.open)(), self.seed);
        let mut said = HashSet::new();
        for session in &self.live {
            block_on(session.durable()).unwrap_or_else(|error| panic!("seed {seed}, {}: {error}", store.uri()));
            said.extend(session.lineage().walk().into_iter().map(Step::id));
            if has_own_steps(session) {
                let found = block_on(store.read(session.id())).expect("it is there");
                assert!(found.damage.is_empty(), "seed {seed}: {:?}", found.damage);
                assert_eq!(described(&found.session), described(session), "seed {seed}, {}", store.uri());
            }
        }
        for pair in self.live.windows(2).filter(|pair| pair.iter().all(has_own_steps)) {
            let found = |session: &Session| block_on(store.read(session.id())).expect("it is there").session;
            let plain = |session: &Session| Session::resume_own(session.as_record().clone());
            let merged =
                |of: &dyn Fn(&Session) -> Session| now(of(&pair[0]).merge(&of(&pair[1]))).expect("no call is open");
            // Each merge is a step of its own, so their ids differ.
            let read = |session: &Session| format!("{:?}\n{:?}", session.chunks().collect::<Vec<_>>(), session.usage());
            assert_eq!(read(&merged(&found)), read(&merged(&plain)), "seed {seed}");
        }
        let check = block_on(store.check()).expect("a check");
        assert!(check.damage.is_empty(), "seed {seed}: {:?}", check.damage);
        let mut kept = HashSet::new();
        for listed in block_on(store.list()).expect("a list") {
            let found = block_on(store.read(listed.branch)).expect("it is there").session;
            assert_eq!(found.head().map(Step::id), Some(listed.head), "seed {seed}");
            // Branches that begin alike have equal steps, each its own.
            kept.extend(found.lineage().walk().into_iter().map(|step| (step.stamp().branch, step.id())));
        }
        let ids: HashSet<_> = kept.iter().map(|(_, id)| *id).collect();
        assert!(said.is_subset(&ids), "seed {seed}");
        assert!(
            self.is_reopened || check.steps == kept.len() as u64,
            "seed {seed} {}: {} of {}",
            store.uri(),
            check.steps,
            kept.len()
        );
        // Recorded together, all sessions read as if each had been recorded by itself, in no more room.
        let [together, alone] = [0, 1].map(|_| block_on(Store::open("memory:")).expect("a store"));
        let sessions: Vec<_> = self.live.iter().filter(|session| has_own_steps(session)).cloned().collect();
        for session in &sessions {
            let quiet = Session::resume_own(session.as_record().clone());
            block_on(quiet.record(&alone)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        for round in 0..2 {
            let recorded = block_on(together.record_all(self.live.clone()));
            recorded.unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
        }
        for session in &sessions {
            let found = block_on(together.read(session.id())).expect("it is there").session;
            assert_eq!((described(&found), found.is_guest()), (described(session), session.is_guest()), "seed {seed}");
        }
        if sessions.len() == self.live.len() {
            let [together, alone] = [&together, &alone].map(|store| block_on(store.check()).expect("a check").steps);
            assert!(together <= alone, "seed {seed}: {together} steps, {alone} one by one");
        }
    }
}

/// All that a session is, to be compared.
fn described(session: &Session) -> String {
    let steps: Vec<_> = session.as_record().steps().into_iter().map(Step::id).collect();
    format!("{session}\n{steps:?}\n{}\n{}", session.lineage(), session.export(Ids::Canonical))
}

fn has_own_steps(session: &Session) -> bool {
    session.head().is_some_and(|head| head.stamp().branch == session.id())
}

#[test]
fn a_branch_stays_where_it_is_when_whoever_was_refused_goes_on_as_a_fork() {
    stores(|open| {
        let store = open();
        let mut session = block_on(Session::user("one").record(&store)).expect("recorded");
        let mut other = session.clone();
        session.push(Chunk::assistant("this"));
        other.push(Chunk::assistant("that"));
        let mut fork = block_on(other.durable()).expect_err("it came second").into_session().expect("a session").fork();
        fork.push(Chunk::user("further"));
        block_on(fork.durable()).expect("durable");
        let id = session.id();
        assert_eq!(block_on(open().read(id)).expect("it is there").session.head(), session.head());
        session.push(Chunk::user("on"));
        block_on(session.durable()).expect("durable");
        close((session, other, fork), store);
        let session = block_on(open().resume(id)).expect("resumed").complete().expect("as it was left");
        assert_eq!((session.text(), session.chunk_count()), (Some("this"), 3));
    });
}

#[test]
fn forks_of_an_unrecorded_session_are_recorded_at_the_same_time() {
    stores(|open| {
        for _ in 0..rath_test_support::count("RATH_SCRIPTS", 20) {
            let store = open();
            let mut begun = Session::user("one");
            (0..3).for_each(|nth| _ = begun.push(Chunk::assistant(format!("answer {nth}"))));
            let ids: Vec<_> = std::thread::scope(|scope| {
                let record = |nth: u64| {
                    let (mut fork, store) = (begun.fork(), &store);
                    move || {
                        fork.push(Chunk::user(format!("fork {nth}")));
                        let mut fork = block_on(fork.record(store)).expect("recorded");
                        fork.push(Chunk::assistant("further"));
                        block_on(fork.durable()).expect("durable");
                        assert_eq!(
                            described(&block_on(store.read(fork.id())).expect("it is there").session),
                            described(&fork)
                        );
                        fork.id()
                    }
                };
                let forks: Vec<_> = (0..4).map(|nth| scope.spawn(record(nth))).collect();
                forks.into_iter().map(|fork| fork.join().expect("no panic")).collect()
            });
            close((), store);
            let store = open();
            assert!(block_on(store.check()).expect("a check").damage.is_empty());
            for id in ids {
                assert_eq!(block_on(store.read(id)).expect("it is there").session.text(), Some("further"));
            }
        }
    });
}

#[test]
fn what_comes_in_unrecorded_and_stands_for_both_is_kept() {
    stores(|open| {
        let (store, plain) = (open(), Session::user("one"));
        let mut longer = plain.clone();
        longer.push(Chunk::assistant("two"));
        let merged = now(block_on(plain.record(&store)).expect("recorded").merge(&longer)).expect("no call is open");
        block_on(merged.durable()).expect("durable");
        assert_eq!(block_on(store.read(merged.id())).expect("it is there").session.text(), Some("two"));
    });
}

#[test]
fn what_was_deleted_after_it_was_read_is_written_again_or_refused() {
    stores(|open| {
        let store = open();
        let [gone, live] =
            ["gone", "live"].map(|words| block_on(Session::user(words).record(&store)).expect("recorded"));
        let id = gone.id();
        drop(gone);
        let found = block_on(store.read(id)).expect("it is there").session;
        block_on(store.delete(id)).expect("no process writes it");
        block_on(store.compact()).expect("there is room");
        let error =
            block_on(now(live.merge(&found)).expect("no call is open").durable()).expect_err("half of it is gone");
        assert!(error.message().contains("is not in the store"), "{error}");
        let again = block_on(found.fork().record(&store)).expect("recorded");
        let found = block_on(store.read(again.id())).expect("it is there");
        assert_eq!((found.session.chunks().count(), found.damage.len()), (1, 0));
    });
}

#[test]
fn a_fork_that_is_recorded_is_there_at_once() {
    stores(|open| {
        let store = open();
        let session = block_on(Session::user("one").record(&store)).expect("recorded");
        let fork = block_on(session.fork_named("side").record(&store)).expect("recorded");
        let found = block_on(store.read(fork.id())).expect("it is there").session;
        assert_eq!(found.head().map(Step::id), fork.head().map(Step::id));
        assert!(
            matches!(found.head().map(Step::chunk), Some(Chunk::Forked(forked)) if forked.name.as_deref() == Some("side"))
        );
    });
}

#[test]
fn whoever_writes_all_the_time_counts_as_alive() {
    // A loaded machine may be so slow that the lease ends although it writes: then it gets a longer one.
    let error = rath_test_support::with_enough_time(Duration::from_millis(900), |lease| {
        let folder = rath_test_support::temp_dir();
        let path = folder.path().join("store").display().to_string();
        let open =
            || Store::new(Sqlite::open(&path, Create::IfMissing).expect("a file").lease(lease)).expect("a store");
        let store = open();
        let mut session = block_on(Session::user("one").record(&store)).expect("recorded");
        for _ in 0..24 {
            std::thread::sleep(lease / 18);
            session.push(Chunk::assistant("more"));
        }
        block_on(open().resume(session.id())).err()
    });
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[test]
fn sessions_that_begin_alike_are_deleted_one_by_one() {
    stores(|open| {
        let store = open();
        let begin = || {
            let mut session = Session::user("the same");
            session.push(Chunk::assistant("words"));
            let session = block_on(session.record(&store)).expect("recorded");
            block_on(session.durable()).expect("durable");
            session.id()
        };
        let ids = [(); 3].map(|()| begin());
        for (nth, id) in ids.iter().enumerate() {
            block_on(store.delete(*id)).unwrap_or_else(|error| panic!("{}: {error}", store.uri()));
            for kept in &ids[nth + 1..] {
                let kept = block_on(store.read(*kept)).expect("it is there");
                assert_eq!((kept.session.text(), kept.damage.len()), (Some("words"), 0), "{}", store.uri());
            }
        }
    });
}

/// A way to leave a head that was read from a store.
type Leave = fn(&Session) -> Session;

/// Two programs cannot know of each other's forks. What each did is on the record and on the bill, however it is merged.
#[test]
fn equal_work_of_programs_that_read_one_head_stays_apart() {
    const FORKS: usize = 4;
    let ways: [(&str, Leave); 5] = [
        ("a fork", Session::fork),
        ("a fork of a fork", |session| session.fork().fork()),
        ("a fork from an earlier step", |session| {
            session.at(session.as_record().steps()[0].id()).expect("its own step")
        }),
        ("a detachment", Session::detach),
        ("a merge", |session| {
            let mut side = session.fork();
            side.push(Chunk::note("a side"));
            let mut other = session.clone();
            other.push(Chunk::note("another"));
            now(side.merge(&other)).expect("no call is open")
        }),
    ];
    stores(|open| {
        let store = open();
        let mut session = block_on(Session::user("one").record(&store)).expect("recorded");
        session.push(Chunk::assistant("two"));
        block_on(session.durable()).expect("durable");
        for (name, leave) in ways {
            let work = |leave: Leave| {
                // Each reads the store by itself, as a program of its own would.
                let store = open();
                let found = block_on(store.read(session.id())).expect("it is there").session;
                let mut left = block_on(leave(&found).record(&store)).expect("recorded");
                left.push_with_usage(Chunk::assistant("the same"), Usage::new(10, 2));
                block_on(left.durable()).expect("durable");
                left
            };
            let sessions = [(); FORKS].map(|()| work(leave));
            let heads: HashSet<_> = sessions.iter().map(|left| left.head().map(Step::id)).collect();
            assert_eq!(heads.len(), FORKS, "{name}: each did it");
            for order in permutations(FORKS) {
                let merged = now(Session::merge_all(order.iter().map(|nth| sessions[*nth].clone())));
                let merged = merged.expect("no call is open");
                assert_eq!(merged.usage(), Usage::new(10 * FORKS as u64, 2 * FORKS as u64), "{name}: {order:?}");
                let same = merged.chunks().filter(|chunk| **chunk == Chunk::assistant("the same"));
                assert_eq!(same.count(), FORKS, "{name}: {order:?}");
            }
            for left in &sessions {
                let found = block_on(open().read(left.id())).expect("it is there").session;
                assert_eq!(described(&found), described(left), "{name}");
            }
        }
    });
}

/// Returns all orders of the numbers below `count`.
fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for rest in permutations(count - 1) {
        for at in 0..=rest.len() {
            let mut order = rest.clone();
            order.insert(at, count - 1);
            all.push(order);
        }
    }
    all
}
