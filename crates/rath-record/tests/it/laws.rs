//! The laws of merging, over random graphs. `RATH_CASES` sets how many.

use proptest::prelude::*;
use rath_record::chunk::{self, Change, Checked, Chunk, Compressed, Conflict, Decided, Effect, Forked, Merged};
use rath_record::chunk::{Observed, Resolution, Tree, Verdict};
use rath_record::codec::{self, Encoder};
use rath_record::graph::{self, Ids};
use rath_record::view::{self, CallResult, Message};
use rath_record::{BranchId, Digest, Record, Stamp, Step, StepId, Usage, turn};

use crate::support::{calls, merge, reachable, record, result};

/// One action of a random program. The numbers choose among the branches and calls that exist.
#[derive(Clone, Debug)]
enum Act {
    Say(usize, u8),
    Answer(usize, u8),
    UseTools(usize, u8),
    LeaveOpen(usize),
    Result(usize, u8),
    Check(usize, u8),
    Observe(usize, u8),
    Clash(usize, u8),
    Decide(usize, u8),
    Instruct(usize, u8),
    Compress(usize, u8),
    Fork(usize),
    Merge(usize, usize),
    Aside(usize, usize),
    Concat(usize, usize),
}

/// Generates any action.
fn any_act() -> impl Strategy<Value = Act> {
    let at = 0_usize..64;
    let concat = (at.clone(), at).prop_map(|(ours, theirs)| Act::Concat(ours, theirs));
    prop_oneof![19 => act(), 1 => concat]
}

/// Generates any action but concatenation, which repeats steps on purpose and obeys none of the laws.
fn act() -> impl Strategy<Value = Act> {
    let at = 0_usize..64;
    prop_oneof![
        3 => (at.clone(), 0..3_u8).prop_map(|(at, word)| Act::Say(at, word)),
        3 => (at.clone(), 0..3_u8).prop_map(|(at, word)| Act::Answer(at, word)),
        3 => (at.clone(), 0..4_u8).prop_map(|(at, count)| Act::UseTools(at, count)),
        1 => at.clone().prop_map(Act::LeaveOpen),
        1 => (at.clone(), 0..3_u8).prop_map(|(at, call)| Act::Result(at, call)),
        1 => (at.clone(), 0..8_u8).prop_map(|(at, check)| Act::Check(at, check)),
        1 => (at.clone(), 0..4_u8).prop_map(|(at, tree)| Act::Observe(at, tree)),
        1 => (at.clone(), 0..2_u8).prop_map(|(at, path)| Act::Clash(at, path)),
        1 => (at.clone(), 0..2_u8).prop_map(|(at, path)| Act::Decide(at, path)),
        1 => (at.clone(), 0..3_u8).prop_map(|(at, word)| Act::Instruct(at, word)),
        1 => (at.clone(), 1..9_u8).prop_map(|(at, hidden)| Act::Compress(at, hidden)),
        4 => at.clone().prop_map(Act::Fork),
        2 => (at.clone(), at.clone()).prop_map(|(ours, theirs)| Act::Aside(ours, theirs)),
        4 => (at.clone(), at).prop_map(|(ours, theirs)| Act::Merge(ours, theirs)),
    ]
}

/// Runs an action on one record; a summary, a fork and a merge are left out.
fn alone(record: &mut Record, act: &Act) {
    if let Act::Compress(..) | Act::Fork(_) | Act::LeaveOpen(_) | Act::Aside(..) | Act::Merge(..) | Act::Concat(..) =
        act
    {
        return;
    }
    let mut pool = vec![record.clone()];
    perform(act, &mut pool, 99);
    *record = pool.remove(0);
}

/// Runs a random program and returns every record it ever held a branch at.
fn run(acts: &[Act]) -> Vec<Record> {
    let mut pool = vec![record("user hi"), record("user hi; assistant hello"), record("user other root")];
    let mut branches = 3_u128;
    for act in acts {
        branches += 1;
        perform(act, &mut pool, branches);
    }
    pool
}

/// Runs one action on the records of a pool. What it appends is on the branch with this number.
fn perform(act: &Act, pool: &mut Vec<Record>, branches: u128) {
    let stamp = |usage| {
        let mut stamp = Stamp::on(BranchId(branches.to_be_bytes()));
        stamp.usage = usage;
        stamp
    };
    let pick = |at: &usize| at % pool.len();
    match act {
        Act::Say(at, word) => {
            _ = {
                let at = pick(at);
                pool[at].push(Chunk::user(format!("say {word}")), stamp(None))
            }
        }
        Act::Answer(at, word) => {
            let at = pick(at);
            pool[at].push(Chunk::assistant(format!("answer {word}")), stamp(Some(Usage::new(10, 1))));
        }
        Act::UseTools(at, count) => {
            let at = pick(at);
            let ids: Vec<_> = (0..=*count).map(|call| format!("t#{}", call / 2)).collect();
            pool[at].push(calls(&ids.join(" ")), stamp(Some(Usage::new(7, 2))));
            for call in 0..=*count {
                let effects = (call % 2 == 1).then(|| {
                    Effect::new(format!("file {}", call / 2), Change::Modified)
                        .with_before(Digest::compute(&[call]))
                        .with_after(Digest::compute(&branches.to_be_bytes()))
                });
                let result = result(&(call / 2).to_string(), "done", effects.into_iter().collect());
                pool[at].push(result, stamp(None));
            }
        }
        Act::LeaveOpen(at) => {
            let mut left = pool[pick(at)].clone();
            left.push(calls("t#open"), stamp(Some(Usage::new(1, 1))));
            pool.push(left);
        }
        // The result may be late, repeated, or of no call at all.
        Act::Result(at, call) => {
            let at = pick(at);
            pool[at].push(result(["open", "0", "none"][usize::from(*call)], "late", vec![]), stamp(None));
        }
        Act::Check(at, check) => {
            let at = pick(at);
            let verdict = if check & 1 == 0 { Verdict::Passed } else { Verdict::Failed };
            let inputs = if check & 2 == 0 { vec![] } else { vec!["file 0".to_owned()] };
            let tree = view::tree(&pool[at]);
            let check = Checked::new(format!("check {}", check / 4), verdict).with_tree(tree).with_inputs(inputs);
            pool[at].push(check.into(), stamp(None));
        }
        Act::Observe(at, tree) => {
            let at = pick(at);
            let effects = [Effect::new(format!("file {}", tree / 2), Change::Modified)];
            pool[at].push(Observed::new(tree_named(*tree)).with_effects(effects).into(), stamp(None));
        }
        Act::Clash(at, path) => {
            let at = pick(at);
            let conflict = Conflict::new(format!("file {path}"), "content");
            pool[at].push(Merged::new(chunk::Strategy::Ancestor).with_conflicts([conflict]).into(), stamp(None));
        }
        Act::Decide(at, path) => {
            let at = pick(at);
            let decided = Decided::new(format!("file {path}"), Resolution::Ours, tree_named(*path));
            pool[at].push(decided.into(), stamp(None));
        }
        Act::Instruct(at, word) => {
            let at = pick(at);
            pool[at].push(Chunk::instructions(format!("be {word}")), stamp(None));
        }
        Act::Compress(at, hidden) => {
            let at = pick(at);
            let steps = pool[at].steps();
            let hidden: Vec<_> = steps.iter().step_by(usize::from(*hidden)).map(|step| step.id()).collect();
            let compressed = Compressed::new(hidden, "folded");
            pool[at].push(compressed.into(), stamp(None));
        }
        Act::Fork(at) => {
            let mut fork = pool[pick(at)].clone();
            let nth = u64::try_from(branches).unwrap_or_default();
            fork.push(Chunk::Forked(Forked::new(nth)), stamp(None));
            pool.push(fork);
        }
        Act::Aside(ours, theirs) => {
            let (ours, theirs) = (pick(ours), pick(theirs));
            let kept = pool[ours].merge(&pool[theirs].clone(), chunk::Strategy::Aside, stamp(None));
            pool[ours] = kept.expect("nothing can be in the way");
        }
        Act::Merge(ours, theirs) | Act::Concat(ours, theirs) => {
            let strategy = if let Act::Merge(..) = act { chunk::Strategy::Ancestor } else { chunk::Strategy::Concat };
            let (ours, theirs) = (pick(ours), pick(theirs));
            let merged = pool[ours].merge(&pool[theirs].clone(), strategy, stamp(None));
            assert_eq!(merged.is_err(), is_open(&pool[ours]) || is_open(&pool[theirs]));
            // One writer per branch: if a merge returns one of its sides, there must be no second handle on it.
            if let Ok(merged) = merged
                && pool.iter().all(|record| record.head() != merged.head())
            {
                pool.push(merged);
            }
        }
    }
}

fn tree_named(tree: u8) -> Tree {
    Tree(format!("tree {tree}"))
}

fn is_open(record: &Record) -> bool {
    matches!(turn::next(record), turn::Next::RunTools(_))
}

fn head(record: &Record) -> StepId {
    record.head().expect("a record with steps").id()
}

/// Returns the next action, without step ids.
fn turns(record: &Record) -> (String, Vec<(String, turn::Progress)>) {
    match turn::next(record) {
        turn::Next::RunTools(open) => {
            let open = open.into_iter().map(|pending| (pending.call.id.to_string(), pending.progress));
            ("run".to_owned(), open.collect())
        }
        next => (format!("{next:?}"), vec![]),
    }
}

/// Returns whether `longer` continues `shorter`, whose head is then found along the first parents.
fn continues(longer: &Record, shorter: &Record) -> bool {
    let first_parent = |step: &Step| step.parents().first().and_then(|link| link.step()).cloned();
    std::iter::successors(longer.head().cloned(), first_parent).any(|step| Some(&step) == shorter.head())
}

/// Returns whether `whole` reads every step that `part` reads.
fn reads_all(whole: &Record, part: &Record) -> bool {
    let read: std::collections::HashSet<_> = whole.steps().into_iter().map(Step::id).collect();
    part.steps().into_iter().all(|step| read.contains(&step.id()))
}

/// Returns everything that the views show of a record, except their heads.
fn views(record: &Record) -> String {
    let messages = view::messages(record);
    let files = view::files(record).list;
    let checks = view::checks(record).list;
    let spending = view::spending(record);
    let content: Vec<_> = record.steps().into_iter().filter(|step| !step.chunk().is_marker()).collect();
    format!(
        "{content:#?} {:#?} {:#?} {files:#?} {checks:#?} {:?} {:?} {:?} {:?} {}",
        messages.instructions,
        messages.list,
        spending.total,
        spending.by_branch,
        spending.by_module,
        turn::next(record),
        record.chunk_count(),
    )
}

/// Returns everything that the views show of a record without the ids of steps, except spending.
fn views_without_ids(record: &Record) -> String {
    let mut out = Vec::new();
    let content = |step: &Step| format!("{:?}", step.chunk());
    let messages = view::messages(record);
    out.extend(messages.instructions.map(|(_, instructions)| format!("{instructions:?}")));
    for message in &messages.list {
        out.push(content(message.step()));
        if let Message::Assistant(_, _, exchanges) = message {
            out.push(format!("{exchanges:?}"));
        }
    }
    for (path, file) in view::files(record).list {
        let diverged = file.diverged.len();
        out.push(format!(
            "{path} {:?} {:?} {} {:?} {diverged}",
            file.digest,
            file.unkept,
            content(file.step),
            file.call
        ));
    }
    for (name, check) in view::checks(record).list {
        out.push(format!("{name} {:?} {:?}", check.checked, check.freshness));
    }
    let trees = view::trees(record);
    for recorded in trees.list.iter().chain(&trees.history()) {
        out.push(format!("{:?} {:?} {}", recorded.tree, recorded.before, content(recorded.step)));
    }
    // Of two equal trees in a row, either may be the newest: the history has them once.
    let newest = trees.head.and_then(|head| trees.at(head)).map(|at| trees.list[at].tree);
    out.push(format!("{newest:?}"));
    out.push(format!("{:?} {:?}", view::tree(record), view::unobserved(record)));
    out.push(format!("{:?} {:?}", view::conflicts(record), turns(record)));
    let folds = view::folds(record).into_iter().map(|fold| fold.hidden.into_iter().map(content).collect::<Vec<_>>());
    out.push(format!("{:?} {}", folds.collect::<Vec<_>>(), record.chunk_count()));
    out.join("\n")
}

proptest! {
    #![proptest_config(rath_test_support::property(1_000))]

    #[test]
    fn work_aside_changes_no_view_but_spending(
        acts in prop::collection::vec(act(), 1..24),
        later in prop::collection::vec(act(), 0..6),
        pick in prop::array::uniform2(0_usize..64),
    ) {
        let pool = run(&acts);
        let [ours, work] = pick.map(|at| &pool[at % pool.len()]);
        let stamp = Stamp::on(BranchId([9; 16]));
        let kept = ours.merge(work, chunk::Strategy::Aside, stamp.clone()).expect("nothing can be in the way");
        prop_assert_eq!(views_without_ids(&kept), views_without_ids(ours));

        // Nor does it when the session goes on, and when it is merged.
        let goes_on = |mut record: Record| {
            // Without it, the steps that follow may be those of the work: equal steps after one parent are one step.
            record.push(Chunk::note("goes on"), stamp.clone());
            later.iter().for_each(|act| alone(&mut record, act));
            record
        };
        let (kept, ours) = (goes_on(kept), goes_on(ours.clone()));
        prop_assert_eq!(views_without_ids(&kept), views_without_ids(&ours));
        let far = record("user other root; observed o; checked far passed");
        for other in [&far, work].into_iter().filter(|other| !is_open(other) && !is_open(&ours)) {
            let merged = |ours, theirs| views_without_ids(&merge(ours, theirs).expect("nothing is open"));
            prop_assert_eq!(merged(&kept, other), merged(&ours, other));
            prop_assert_eq!(merged(other, &kept), merged(other, &ours));
        }
        // Spending has each call of both once.
        let mut calls = reachable(&ours);
        calls.extend(reachable(work));
        let once = calls.values().filter_map(|step| step.stamp().usage).fold(Usage::default(), |a, b| a + b);
        prop_assert_eq!(view::spending(&kept).total.usage, once);
    }

    #[test]
    fn merging_obeys_its_laws(acts in prop::collection::vec(act(), 1..24), pick in prop::array::uniform4(0_usize..64)) {
        let pool = run(&acts);
        let closed: Vec<_> = pool.iter().filter(|record| !is_open(record)).collect();
        let [a, b, c, ancestor] = pick.map(|at| closed[at % closed.len()]);

        // Merging with itself or with an ancestor is the identity. The other way round too, if the record continues the
        // ancestor; an ancestor that was merged in must now be read first.
        prop_assert_eq!(head(&merge(a, a).expect("closed")), head(a));
        let behind = a.steps();
        let behind = Record::at((*behind[ancestor.steps().len() % behind.len()]).clone());
        if !is_open(&behind) {
            prop_assert_eq!(head(&merge(a, &behind).expect("closed")), head(a));
            let onwards = merge(&behind, a).expect("closed");
            if continues(a, &behind) {
                prop_assert_eq!(head(&onwards), head(a));
            } else {
                prop_assert!(onwards.steps().starts_with(&behind.steps()));
                prop_assert_eq!(reachable(&onwards).len(), reachable(a).len() + 1);
            }
        }

        // Every view is associative.
        let left = merge(&merge(a, b).expect("closed"), c).expect("closed");
        let right = merge(a, &merge(b, c).expect("closed")).expect("closed");
        prop_assert_eq!(views(&left), views(&right));

        // Checks do not depend on which side comes first, if the merge records the files that it makes.
        let coverage = |ours: &Record, theirs: &Record| {
            let merged = Merged::new(chunk::Strategy::Ancestor).with_tree(Some(tree_named(9)));
            let merged = ours.merge(theirs, merged, Stamp::on(BranchId([9; 16]))).expect("closed");
            let state = |(name, check): (&str, view::Check<'_>)| format!("{name} {:?} {:?}", check.checked, check.freshness);
            view::checks(&merged).list.into_iter().map(state).collect::<Vec<_>>()
        };
        if !reachable(a).contains_key(&head(b)) && !reachable(b).contains_key(&head(a)) {
            prop_assert_eq!(coverage(a, b), coverage(b, a));
        }

        // Both parents are recorded, ours first, unless ours reads all of theirs or theirs continues ours.
        let joined = merge(a, b).expect("closed");
        if reachable(a).contains_key(&head(b)) && reads_all(a, b) {
            prop_assert_eq!(head(&joined), head(a));
        } else if continues(b, a) {
            prop_assert_eq!(head(&joined), head(b));
        } else {
            let parents: Vec<_> = joined.head().expect("a merge").parents().iter().map(|link| link.id()).collect();
            prop_assert_eq!(parents, vec![head(a), head(b)]);
            // Our steps come first and do not move: a provider's prompt cache depends on it.
            let shown: Vec<_> = joined.steps().into_iter().map(Step::id).collect();
            let ours: Vec<_> = a.steps().into_iter().map(Step::id).collect();
            prop_assert_eq!(&shown[..ours.len()], &ours[..]);
        }
    }

    #[test]
    fn continuing_an_earlier_view_gives_the_whole_view(
        acts in prop::collection::vec(any_act(), 1..24),
        pick in prop::array::uniform2(0_usize..64),
    ) {
        let pool = run(&acts);
        let [record, earlier] = pick.map(|at| &pool[at % pool.len()]);
        let earlier_head = earlier.head().expect("no record is empty");
        let Some(after) = record.steps_after(earlier_head) else {
            let concatenates = record.steps().iter().any(|step| {
                matches!(step.chunk(), Chunk::Merged(merged) if merged.strategy == chunk::Strategy::Concat)
            });
            prop_assert!(concatenates || !continues(record, earlier));
            return Ok(());
        };
        let steps = [&earlier.steps()[..], &after].concat();
        prop_assert_eq!(&steps, &record.steps());
        if !is_open(earlier) {
            let (start, whole) = (view::messages(earlier), view::messages(record));
            let carries = |chunk: &Chunk| matches!(chunk, Chunk::Instructions(_) | Chunk::Compressed(_));
            match view::messages_after(&after, start.continuation) {
                Some((more, continuation)) => {
                    prop_assert_eq!([&start.list[..], &more].concat(), whole.list);
                    prop_assert_eq!(continuation, whole.continuation);
                    prop_assert_eq!(start.instructions, whole.instructions);
                }
                None => prop_assert!(after.iter().any(|step| carries(step.chunk()))),
            }
        }
    }

    #[test]
    fn every_record_keeps_its_invariants(acts in prop::collection::vec(any_act(), 1..24)) {
        for record in run(&acts) {
            let reachable = reachable(&record);
            let steps = record.steps();

            // Each model call is counted once.
            let once = reachable.values().filter_map(|step| step.stamp().usage).fold(Usage::default(), |a, b| a + b);
            prop_assert_eq!(record.usage(), once);
            prop_assert_eq!(view::spending(&record).total.usage, once);

            // The running totals equal those of a fresh walk, and the backward walk is the forward walk reversed.
            let chunks = steps.iter().filter(|step| !step.chunk().is_marker()).count();
            prop_assert_eq!(record.chunk_count(), chunks as u64);
            let backwards: Vec<_> = record.newest_first().collect();
            let forwards: Vec<_> = steps.iter().rev().copied().collect();
            prop_assert_eq!(backwards, forwards);
            prop_assert_eq!(record.lineage().walk().len(), reachable.len());

            // Parents come before children.
            let mut seen = std::collections::HashSet::new();
            for step in record.lineage().walk() {
                prop_assert!(step.parents().iter().all(|parent| seen.contains(&parent.id())));
                seen.insert(step.id());
            }

            // Every call has its result unless it is pending, and no id appears twice.
            let mut ids = std::collections::HashSet::new();
            let mut unanswered = 0;
            for message in view::messages(&record).list {
                if let Message::Assistant(_, _, exchanges) = message {
                    for exchange in exchanges {
                        prop_assert!(ids.insert(exchange.id.clone()), "{} twice", exchange.id);
                        unanswered += usize::from(exchange.result == CallResult::Missing);
                    }
                }
            }
            let pending = match turn::next(&record) {
                turn::Next::RunTools(pending) => pending.len(),
                _ => 0,
            };
            prop_assert!(unanswered <= pending);

            // The next action depends only on the steps that are read.
            let mut straight = Record::new();
            for step in &steps {
                straight.push(step.chunk().clone(), step.stamp().clone());
            }
            prop_assert_eq!(turns(&record), turns(&straight));

            // The graph of branches has every parent and no cycle.
            for ids in [Ids::Original, Ids::Canonical] {
                let export = graph::export(&record.lineage(), ids);
                prop_assert_eq!(graph::verify(export.as_bytes()).problems, vec![]);
            }

            // Reading a file and writing it again gives the same bytes.
            let file = Encoder::encode_record(&record).expect("short rows");
            let opened = codec::read(&file).expect("a file of ours");
            prop_assert!(opened.report.is_whole(), "{:?}", opened.report);
            prop_assert_eq!(head(&opened.record), head(&record));
            prop_assert_eq!(views(&opened.record), views(&record));
            prop_assert_eq!(Encoder::encode_record(&opened.record).expect("short rows"), file);
        }
    }
}

#[test]
fn instructions_in_force_do_not_depend_on_the_order_of_merges() {
    let acts = [Act::Instruct(39, 1), Act::Merge(16, 8), Act::Aside(4, 1), Act::Fork(12), Act::Instruct(39, 0)];
    let pool = run(&acts);
    let closed: Vec<_> = pool.iter().filter(|record| !is_open(record)).collect();
    let [a, b, c] = [5, 36, 4].map(|at| closed[at % closed.len()]);
    let left = merge(&merge(a, b).expect("closed"), c).expect("closed");
    let right = merge(a, &merge(b, c).expect("closed")).expect("closed");
    assert_eq!(views(&left), views(&right));
}

#[test]
fn ten_rounds_of_fork_fork_merge_on_ten_rows_leave_ten_rows() {
    let mut ten = record(&"user row;".repeat(10));
    for _ in 0..10 {
        let (one, other) = (ten.clone(), ten.clone());
        ten = merge(&one, &other).expect("nothing is open");
    }
    assert_eq!(ten.steps().len(), 10);
}

#[test]
fn ten_rounds_of_forks_add_only_the_steps_of_the_forks() {
    let mut rows = record(&"user row;".repeat(10));
    for round in 0..10 {
        let fork = |nth: u64, rows: &Record| {
            let mut fork = rows.clone();
            let stamp = Stamp::on(BranchId(u128::from(100 * round + nth).to_be_bytes()));
            fork.push(Chunk::Forked(Forked::new(nth)), stamp.clone());
            fork.push(Chunk::user("the same words"), stamp);
            fork
        };
        rows = merge(&fork(1, &rows), &fork(2, &rows)).expect("nothing is open");
    }
    assert_eq!(rows.chunk_count(), 30);
}

#[test]
fn sixteen_untouched_forks_of_a_hundred_rows_merge_into_a_hundred() {
    let rows = record(&"user row;".repeat(100));
    let forks = vec![rows; 16];
    let merged = forks.iter().skip(1).fold(forks[0].clone(), |all, fork| merge(&all, fork).expect("nothing is open"));
    assert_eq!(merged.steps().len(), 100);
}
