//! Random programs over sessions, in which everybody says the same thing: nothing that happened may be lost, and
//! nothing may be counted twice. `RATH_CASES` sets how many.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rath::record::graph;
use rath::record::graph::Ids;
use rath::{Chunk, Session, StepId, Usage};

use crate::support::now;

#[derive(Clone, Debug)]
enum Act {
    Answer(usize),
    Fork(usize),
    Detach(usize),
    At(usize, usize),
    Merge(usize, usize),
    Reopen(usize),
    Root,
}

fn act() -> impl Strategy<Value = Act> {
    let at = 0_usize..64;
    prop_oneof![
        5 => at.clone().prop_map(Act::Answer),
        3 => at.clone().prop_map(Act::Fork),
        1 => at.clone().prop_map(Act::Detach),
        2 => (at.clone(), at.clone()).prop_map(|(at, back)| Act::At(at, back)),
        3 => (at.clone(), at.clone()).prop_map(|(ours, theirs)| Act::Merge(ours, theirs)),
        1 => at.prop_map(Act::Reopen),
        1 => Just(Act::Root),
    ]
}

/// A session, and every model call that led to it, by number.
#[derive(Clone)]
struct Known {
    session: Session,
    calls: Vec<(StepId, u64)>,
}

proptest! {
    #![proptest_config(rath_test_support::property(700))]

    #[test]
    fn every_call_is_counted_once_however_sessions_part_and_meet(acts in prop::collection::vec(act(), 1..24)) {
        let folder = rath_test_support::temp_dir();
        let path = folder.path().join("session.rath");
        let mut pool = vec![Known { session: Session::user("hi"), calls: vec![] }];
        let mut made = 0;
        for act in &acts {
            let pick = |at: &usize| pool[at % pool.len()].clone();
            let new = match act {
                Act::Answer(at) => {
                    let at = at % pool.len();
                    made += 1;
                    let step = pool[at].session.push_with_usage(Chunk::assistant("same"), Usage::new(1, 0));
                    pool[at].calls.push((step, made));
                    continue;
                }
                Act::Fork(at) => {
                    let Known { session, calls } = pick(at);
                    Known { session: session.fork(), calls }
                }
                Act::Detach(at) => {
                    let Known { session, calls } = pick(at);
                    Known { session: session.detach(), calls }
                }
                Act::At(at, back) => {
                    let Known { session, calls } = pick(at);
                    let steps: Vec<_> = session.as_record().steps().into_iter().map(|step| step.id()).collect();
                    let session = session.at(steps[back % steps.len()]).expect("a step");
                    let behind: BTreeSet<_> = session.as_record().steps().into_iter().map(|step| step.id()).collect();
                    let calls = calls.into_iter().filter(|(step, _)| behind.contains(step)).collect();
                    Known { session, calls }
                }
                Act::Merge(ours, theirs) => {
                    let (ours, theirs) = (pick(ours), pick(theirs));
                    let session = now(ours.session.merge(&theirs.session)).expect("nothing is open");
                    let calls: BTreeSet<_> = ours.calls.into_iter().chain(theirs.calls).collect();
                    Known { session, calls: calls.into_iter().collect() }
                }
                // Opened in place of the original, which has no forks at its head: a file does not know of such
                // forks, and theirs and its own next one would be taken for the same.
                Act::Reopen(at) => {
                    let at = at % pool.len();
                    let head = pool[at].session.head().expect("a step").id();
                    let holds = |known: &&Known| known.session.as_record().find(head).is_some();
                    if pool.iter().filter(holds).count() > 1 {
                        continue;
                    }
                    pool[at].session.save_blocking(&path).expect("saved");
                    let canonical = pool[at].session.export(Ids::Canonical);
                    pool[at].session = Session::open_blocking(&path).expect("opened").session;
                    prop_assert_eq!(pool[at].session.export(Ids::Canonical), canonical);
                    continue;
                }
                Act::Root => Known { session: Session::user("other"), calls: vec![] },
            };
            pool.push(new);
            if let Act::Root = act {
                // Roots that say the same are the same: only one of them may have calls.
                let others = pool.iter().filter(|known| known.session.chunks().next() == Some(&Chunk::user("other")));
                if others.count() > 1 {
                    pool.pop();
                }
            }
        }
        for Known { session, calls } in &pool {
            prop_assert_eq!(session.usage(), Usage::new(calls.len() as u64, 0), "{}", session.lineage());
            for ids in [Ids::Original, Ids::Canonical] {
                let report = graph::verify(session.export(ids).as_bytes());
                prop_assert_eq!(report.problems, vec![], "{}", session.lineage());
            }
        }
    }
}
