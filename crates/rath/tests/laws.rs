//! Scratch.
use std::collections::HashSet;
use rath::prelude::*;
use rath::record::Step;
use rath::store::Store;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
struct Chance(u64);
impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ bits >> 31) % most.max(1)
    }
}
fn stores(check: impl Fn(&dyn Fn() -> Store, &str)) {
    for kind in ["sqlite", "jsonl"] {
        let folder = tempfile::tempdir().expect("a folder");
        let uri = format!("{kind}:{}", folder.path().join("store").display());
        check(&|| Store::open(&uri).expect("a store"), kind);
    }
    let memory = Store::open("memory:").expect("a store");
    check(&|| memory.clone(), "memory");
}

/// What a session is, in words that can be compared.
fn told(session: &Session) -> String {
    let ids: Vec<_> = session.as_record().steps().into_iter().map(|s| s.id().short().to_string()).collect();
    format!("{:?}\n{}\n{:?} {} {}\n{}", ids, session.lineage(), session.usage(), session.chunk_count(), session, session.export(rath::record::graph::Ids::Canonical))
}

fn program(seed: u64, open: &dyn Fn() -> Store, kind: &str) {
    let mut chance = Chance(seed);
    let mut store = open();
    let elsewhere = Store::open("memory:").unwrap();
    let mut trace = Vec::new();
    let mut live = vec![block_on(Session::user("begin").record(&store)).unwrap()];
    let mut kept: Vec<Session> = Vec::new();
    for step in 0..4 + chance.below(22) {
        let at = chance.below(live.len() as u64) as usize;
        let other = chance.below(live.len() as u64) as usize;
        let op = chance.below(16);
        trace.push(format!("{op}({at},{other})"));
        match op {
            0..=2 => { live[at].push(Chunk::user(format!("u{step}"))); }
            3 => { live[at].push_with_usage(Chunk::assistant(format!("a{step}")), Usage { input: 7, output: 3, ..Usage::default() }); }
            4 => { let f = live[at].fork_named(format!("f{step}")); live.push(f); }
            5 => { let f = live[at].fork(); live.push(f); }
            6 => { let f = live[at].detach(); live.push(f); }
            7 => {
                let steps: Vec<StepId> = live[at].lineage().walk().into_iter().map(Step::id).collect();
                if steps.is_empty() { continue }
                let id = steps[chance.below(steps.len() as u64) as usize];
                let f = live[at].at(id).unwrap_or_else(|e| panic!("{kind} {seed} {trace:?}: {e}"));
                live.push(f);
            }
            8 | 9 => { let m = live[at].merge(&live[other]).unwrap(); live.push(m); }
            10 => { let mut a = live[at].aside(format!("aside{step}")); a.push(Chunk::user("side")); live[at].keep_aside(&a); live.push(a); }
            11 => { let o = live[other].clone(); if at != other { live[at].keep_aside(&o); } }
            12 => { // let go, read again, resume
                let session = live.swap_remove(at);
                if let Err(e) = block_on(session.durable()) { panic!("{kind} {seed} {trace:?}: {e}") }
                let id = session.id();
                if session.head().is_some_and(|h| h.stamp().branch == id) {
                    let before = told(&session);
                    let head = session.head().cloned();
                    drop(session);
                    if chance.below(3) > 0 { store = open(); }
                    // Untouched forks of it hold the branch on.
                    match block_on(store.resume(id)) {
                        Ok(resumed) => {
                            let s = resumed.complete().unwrap_or_else(|e| panic!("{kind} {seed} {trace:?}: {e}"));
                            assert_eq!(s.head(), head.as_ref(), "{kind} {seed} {trace:?}");
                            assert_eq!(told(&s), before, "{kind} {seed} {trace:?}");
                            live.push(s);
                        }
                        Err(e) => assert_eq!(e.kind(), ErrorKind::Conflict, "{kind} {seed} {trace:?}: {e}"),
                    }
                } else { kept.push(session); }
                if live.is_empty() { live.push(block_on(Session::user("anew").record(&store)).unwrap()); }
            }
            13 => { // a plain session is recorded, or comes in by a merge
                let mut plain = Session::user(format!("plain{step}"));
                plain.push(Chunk::assistant("p"));
                let plain = match chance.below(3) {
                    0 => block_on(plain.record(&store)).unwrap(),
                    1 => block_on(plain.record(&elsewhere)).unwrap(),
                    _ => plain,
                };
                if plain.store().is_some_and(|s| s.uri() == store.uri()) && kind != "memory" || chance.below(2) == 0 {
                    live[at] = live[at].merge(&plain).unwrap();
                } else { live[at].keep_aside(&plain); }
            }
            14 => { // a fork of what was read is recorded
                block_on(live[at].durable()).unwrap_or_else(|e| panic!("{kind} {seed} {trace:?}: {e}"));
                let id = live[at].id();
                if let Ok(found) = store.read(id) {
                    let mut f = found.session.fork();
                    if chance.below(2) == 0 { f.push(Chunk::user("read")); }
                    let f = block_on(f.record(&store)).unwrap_or_else(|e| panic!("{kind} {seed} {trace:?}: {e}"));
                    live.push(f);
                }
            }
            _ => { // recorded in another store too: it goes on there
                let f = live[at].fork();
                let mut f = block_on(f.record(&elsewhere)).unwrap();
                f.push(Chunk::user("elsewhere"));
                block_on(f.durable()).unwrap();
                let found = elsewhere.read(f.id()).unwrap();
                assert_eq!(told(&found.session), told(&f), "{kind} {seed} {trace:?}");
                live[at] = live[at].merge(&found.session).unwrap();
            }
        }
    }
    let store = open();
    kept.extend(live);
    let mut all = HashSet::new();
    for session in &kept {
        block_on(session.durable()).unwrap_or_else(|e| panic!("{kind} {seed} {trace:?}: {e}"));
        all.extend(session.lineage().walk().into_iter().map(Step::id));
        let Some(head) = session.head() else { continue };
        let own = head.stamp().branch == session.id();
        let branch = head.stamp().branch;
        let found = store.read(branch).unwrap_or_else(|e| panic!("{kind} {seed} {trace:?}: {e}"));
        assert!(found.damage.is_empty(), "{kind} {seed} {trace:?}: {:?}", found.damage);
        if own {
            assert_eq!(found.session.head(), Some(head), "{kind} {seed} {trace:?}");
            assert_eq!(told(&found.session), told(session), "{kind} {seed} {trace:?}");
            // Lazily, in another order.
            let a = store.read(branch).unwrap().session;
            for id in session.lineage().walk().into_iter().map(Step::id) { assert!(a.as_record().find(id).is_some(), "{kind} {seed} {trace:?}"); }
        }
    }
    // Merges of what was read, as of what is in memory.
    for pair in kept.windows(2) {
        let [a, b] = pair else { continue };
        if a.head().is_some_and(|h| h.stamp().branch == a.id()) && b.head().is_some_and(|h| h.stamp().branch == b.id()) {
            let (x, y) = (store.read(a.id()).unwrap().session, store.read(b.id()).unwrap().session);
            let m = x.merge(&y).unwrap();
            let (p, q) = (Session::resume(a.as_record().clone()), Session::resume(b.as_record().clone()));
            let n = p.merge(&q).unwrap();
            assert_eq!(told(&m), told(&n), "{kind} {seed} {trace:?}");
        }
    }
    let check = store.check().unwrap();
    assert!(check.damage.is_empty(), "{kind} {seed} {trace:?}: {:?}", check.damage);
    let mut stored = HashSet::new();
    for l in store.list().unwrap() {
        let f = store.read(l.branch).unwrap();
        assert_eq!(f.session.head().map(Step::id), Some(l.head), "{kind} {seed} {trace:?}");
        stored.extend(f.session.lineage().walk().into_iter().map(Step::id));
    }
    assert!(all.is_subset(&stored), "{kind} {seed} {trace:?}");
    assert_eq!(check.steps, stored.len() as u64, "{kind} {seed} {trace:?}: kept once");
}

#[test]
fn laws() {
    let n: u64 = std::env::var("N").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let mut bad = 0;
    for seed in 0..n {
        for kind in ["sqlite", "jsonl", "memory"] {
            let r = std::panic::catch_unwind(|| one(seed, kind));
            if r.is_err() { bad += 1; if bad > 6 { panic!() } }
        }
    }
    assert_eq!(bad, 0);
}
fn one(seed: u64, want: &str) {
    stores(|open, kind| if kind == want { program(seed, open, kind) });
}

#[test]
fn what_is_read_and_deleted_is_recorded_again() {
    stores(|open, kind| {
        let store = open();
        let mut s = Session::user("one");
        s.push(Chunk::assistant("two"));
        let s = block_on(s.record(&store)).unwrap();
        let id = s.id();
        drop(s);
        let found = store.read(id).unwrap().session;
        let _ = found.chunks().count();
        block_on(store.delete(id)).unwrap();
        block_on(store.compact()).unwrap();
        let mut f = found.fork();
        f.push(Chunk::user("three"));
        let f = block_on(f.record(&store));
        match f {
            Ok(f) => {
                let r = store.read(f.id()).unwrap();
                println!("{kind}: {} {:?}", r.session.chunk_count(), r.damage);
                assert_eq!(r.session.chunks().count(), 3, "{kind}");
            }
            Err(e) => println!("{kind}: refused {e}"),
        }
    });
}
#[test]
fn live_merges_what_was_deleted() {
    stores(|open, kind| {
        let store = open();
        let s = block_on(Session::user("one").record(&store)).unwrap();
        let id = s.id();
        drop(s);
        let mut live = block_on(Session::user("live").record(&store)).unwrap();
        let found = store.read(id).unwrap().session;
        block_on(store.delete(id)).unwrap();
        block_on(store.compact()).unwrap();
        live.push(Chunk::assistant("more"));
        let m = live.merge(&found).unwrap();
        match block_on(m.durable()) {
            Ok(()) => {
                let r = store.read(m.id()).unwrap();
                assert!(r.damage.is_empty(), "{kind} {:?}", r.damage);
                assert_eq!(r.session.chunks().count(), 3, "{kind}");
            }
            Err(e) => println!("{kind}: refused {e}"),
        }
    });
}
#[test]
fn astray_then_fork_leaves_the_branch_where_it_is() {
    stores(|open, kind| {
        let store = open();
        let mut s = block_on(Session::user("one").record(&store)).unwrap();
        let mut o = s.clone();
        s.push(Chunk::assistant("this"));
        o.push(Chunk::assistant("that"));
        block_on(s.durable()).unwrap();
        let mut f = block_on(o.durable()).unwrap_err().into_session().unwrap().fork();
        f.push(Chunk::user("further"));
        block_on(f.durable()).unwrap();
        let r = open().read(s.id()).unwrap();
        assert_eq!(r.session.head(), s.head(), "{kind}");
        let id = s.id();
        drop((s, o, f));
        let store = open();
        let mut s = block_on(store.resume(id)).unwrap().complete().unwrap();
        assert_eq!(s.text(), Some("this"), "{kind}");
        s.push(Chunk::user("on"));
        block_on(s.durable()).unwrap();
    });
}
#[test]
fn merged_into_the_unrecorded_is_kept() {
    stores(|open, kind| {
        let store = open();
        let plain = Session::user("one");
        let mut more = plain.clone();
        let s = block_on(plain.record(&store)).unwrap();
        more.push(Chunk::assistant("two"));
        let m = s.merge(&more).unwrap();
        block_on(m.durable()).unwrap();
        let found = store.list().unwrap().iter().any(|l| store.read(l.branch).unwrap().session.text() == Some("two"));
        assert!(found, "{kind}: it was said to be durable");
    });
}
#[test]
fn busy_store_stays_alive() {
    use rath::store::{Sqlite, Create};
    use std::time::Duration;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.db").display().to_string();
    let lease = Duration::from_millis(600);
    let store = Store::new(Sqlite::open(&path, Create::IfMissing).unwrap().lease(lease)).unwrap();
    let mut s = block_on(Session::user("one").record(&store)).unwrap();
    for _ in 0..20 { std::thread::sleep(Duration::from_millis(50)); s.push(Chunk::assistant("x")); }
    block_on(s.durable()).unwrap();
    let other = Store::new(Sqlite::open(&path, Create::IfMissing).unwrap().lease(lease)).unwrap();
    assert!(block_on(other.resume(s.id())).is_err(), "stolen from a busy writer");
}
#[test]
fn lazily_loaded_million() {
    let folder = tempfile::tempdir().unwrap();
    let uri = format!("sqlite:{}", folder.path().join("store").display());
    let store = Store::open(&uri).unwrap();
    let mut s = block_on(Session::user("one").record(&store)).unwrap();
    for i in 0..200_000 { s.push(Chunk::assistant(format!("{i}"))); }
    block_on(s.durable()).unwrap();
    let id = s.id();
    drop(s);
    let f = store.read(id).unwrap().session;
    assert_eq!(f.chunks().count(), 200_001);
    drop(store);
    drop(f);
}
