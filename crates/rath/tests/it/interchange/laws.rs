//! The law of interchange, over random records: a trajectory that rath wrote is read back as the same session.
//! `RATH_CASES` sets how many.

use proptest::prelude::*;
use rath::chunk::{
    Approved, Asked, Assistant, Call, Change, Checked, Compressed, Conflict, Decided, Denied, Effect, Failed, Forked,
    Image, Json, Memory, MemoryEvent, Merged, Observed, Outcome, Placed, RecalledEntry, Resolution, Strategy as Join,
    ToolResult, ToolStarted, Tree, User, Verdict,
};
use rath::interchange::atif::{read, write};
use rath::record::{BranchId, Digest, Record, Stamp, Timestamp};
use rath::turn::{self, Next};
use rath::{Chunk, Session, Text, Usage, view};

use super::{next, visible_state};

/// One action of a random program. The first number chooses among the records that exist, the second what is pushed.
#[derive(Clone, Debug)]
enum Act {
    Push(usize, u8),
    Fork(usize),
    Merge(usize, usize, Join),
}

fn act() -> impl Strategy<Value = Act> {
    let at = 0_usize..64;
    let join = prop_oneof![3 => Just(Join::Ancestor), 1 => Just(Join::Concat), 3 => Just(Join::Aside)];
    prop_oneof![
        8 => (at.clone(), any::<u8>()).prop_map(|(at, what)| Act::Push(at, what)),
        1 => at.clone().prop_map(Act::Fork),
        1 => (at.clone(), at, join).prop_map(|(ours, theirs, join)| Act::Merge(ours, theirs, join)),
    ]
}

fn effect(path: u8) -> Effect {
    Effect::new(format!("file {path}"), Change::Modified).with_after(Digest::compute(&[path]))
}

/// Returns a chunk of any kind. Calls, results and decisions share a few ids.
fn chunk(record: &Record, what: u8) -> Chunk {
    let (kind, word) = (what % 21, what / 21);
    let (call, tree) = (format!("c{}", word % 3), Tree(format!("tree {word}")));
    let origin = || {
        let Next::RunTools(open) = turn::next(record) else { return None };
        Some(turn::call_to_decide(&open, &call.as_str().into())?.origin)
    };
    match kind {
        0 => Chunk::user(format!("say {word}")),
        1 => Chunk::assistant("long ".repeat(usize::from(word) * 1000)),
        2 | 3 => {
            let calls: Vec<_> = (0..=word % 3).map(|nth| Call::new(format!("c{nth}"), "t", r#"{"a":1}"#)).collect();
            let facts = Json::parse(r#"{"cost_usd":0.5,"id":"r"}"#).expect("JSON");
            Assistant::new("work").with_reasoning("hm").with_calls(calls).with_facts(facts).into()
        }
        4 | 5 => ToolStarted::new(call).with_key((word > 6).then(|| "key".to_owned())).into(),
        6 | 7 => ToolResult::new(call, if word > 6 { Outcome::Failed } else { Outcome::Ok }, "done")
            .with_whole((word > 9).then(|| Text::from("all of it")))
            .with_effects([effect(word)])
            .with_tree(tree)
            .with_put_back(vec![format!("secret {word}")])
            .into(),
        8 => Observed::new(tree).with_effects([effect(word)]).with_calls(vec![call.as_str().into()]).into(),
        9 => Placed::new(format!("local:./{word}")).into(),
        10 => Checked::new(format!("check {}", word % 2), if word > 5 { Verdict::Passed } else { Verdict::Failed })
            .with_tree(view::tree(record))
            .with_inputs(vec!["file 1".to_owned()])
            .into(),
        11 => Decided::new(format!("file {}", word % 2), Resolution::Theirs, tree).with_effects([effect(word)]).into(),
        12 => Asked::new(call, "may it?").into(),
        13 => Approved::new(call.as_str()).with_origin(origin()).into(),
        14 => Denied::new(call.as_str(), "no").with_origin(origin()).into(),
        15 => Compressed::new(
            record.steps().iter().step_by(usize::from(word % 4) + 1).map(|step| step.id()).collect::<Vec<_>>(),
            "folded",
        )
        .into(),
        16 => Chunk::instructions(format!("be {word}")),
        17 => Memory::new(
            "m:",
            MemoryEvent::Recall {
                query: "q".into(),
                found: vec![RecalledEntry::new("e", "fact")],
                position: None,
                notice: None,
            },
        )
        .into(),
        18 => User::new("see").with_images(vec![Image::new("image/png", [word])]).into(),
        19 => Failed::new("provider", format!("failed {word}")).into(),
        _ => Chunk::note(format!("note {word}")),
    }
}

/// Runs a random program, and returns its last records.
fn run(acts: &[Act]) -> Vec<Record> {
    let stamp = |nth: u64| Stamp::on(BranchId(u128::from(nth).to_be_bytes())).by("a.b").at(Timestamp(nth as i64 * 977));
    let mut root = Record::new();
    root.push(Chunk::user("hi"), stamp(1));
    let mut pool = vec![(root, 1)];
    for (act, nth) in acts.iter().zip(2_u64..) {
        match act {
            Act::Push(at, what) => {
                let at = at % pool.len();
                let (record, branch) = &mut pool[at];
                let chunk = chunk(record, *what);
                let usage = matches!(chunk, Chunk::Assistant(_)).then(|| Usage { reasoning: 2, ..Usage::new(9, nth) });
                let mut stamp = stamp(*branch);
                stamp.usage = usage;
                record.push(chunk, stamp);
            }
            Act::Fork(at) => {
                let (mut fork, _) = pool[at % pool.len()].clone();
                fork.push(Chunk::Forked(Forked::new(nth).with_name(format!("fork {nth}"))), stamp(nth));
                pool.push((fork, nth));
            }
            Act::Merge(ours, theirs, join) => {
                let (ours, theirs) = (ours % pool.len(), theirs % pool.len());
                let (record, branch) = pool[ours].clone();
                let files = Merged::new(*join).with_tree(Tree(format!("merged {nth}")));
                let files = files.with_effects([effect(1)]).with_conflicts([Conflict::new("file 0", "content")]);
                let merge = if *join == Join::Aside { Merged::new(*join).with_nth(nth) } else { files };
                let on = if *join == Join::Aside { branch } else { nth };
                if let Ok(merged) = record.merge(&pool[theirs].0, merge, stamp(on)) {
                    pool.push((merged, on));
                }
            }
        }
    }
    pool.into_iter().rev().take(3).map(|(record, _)| record).collect()
}

/// Prints every step with its parents and its stamp.
fn all_steps(session: &Session) -> Vec<String> {
    let lineage = session.lineage();
    let print = |step: &&rath::record::Step| {
        let parents: Vec<_> = step.parents().iter().map(|parent| parent.id().short()).collect();
        format!("{} {parents:?} {:?} {}", step.id().short(), step.stamp(), step.json())
    };
    lineage.walk().iter().map(print).collect()
}

/// Prints the views that do not depend on how branches parted: files, checks and the state of calls.
fn views(session: &Session) -> String {
    let record = session.as_record();
    let trees: Vec<_> = view::trees(record).list.iter().map(|known| known.tree.clone()).collect();
    let files = session.files().list;
    let files: Vec<_> = files.iter().map(|(path, file)| format!("{path} {:?} {:?}", file.digest, file.call)).collect();
    let checks = session.checks().list;
    let checks: Vec<_> = checks.iter().map(|(name, it)| format!("{name} {:?}", it.freshness)).collect();
    let unobserved = view::unobserved(record).map(|it| (it.since, it.calls));
    let conflicts = view::conflicts(record);
    format!(
        "{}\n{trees:?}\n{:?}\n{files:?}\n{checks:?}\n{unobserved:?}\n{conflicts:?}\n{}",
        visible_state(session),
        view::tree(record),
        next(session),
    )
}

/// Returns a document without the session in it, as if another program had changed it.
pub(super) fn without_session(document: &[u8]) -> Vec<u8> {
    let mut document: serde_json::Value = serde_json::from_slice(document).expect("JSON");
    document["extra"]["rath"].as_object_mut().expect("an object").remove("session");
    serde_json::to_vec(&document).expect("JSON")
}

/// Returns true if a record has one line of steps: only then is its reading order all of it.
fn is_linear(session: &Session) -> bool {
    session.lineage().walk().iter().all(|step| step.parents().len() < 2)
}

proptest! {
    #![proptest_config(rath_test_support::property(150))]

    #[test]
    fn a_trajectory_gives_back_the_session_step_by_step(acts in prop::collection::vec(act(), 1..30)) {
        for record in run(&acts) {
            let session = Session::resume(record);
            let document = write(&session).bytes;
            let import = read(&document).expect("a session");
            prop_assert_eq!(all_steps(&import.session), all_steps(&session));
            prop_assert_eq!(views(&import.session), views(&session));
            prop_assert_eq!(import.session.spending(), session.spending());
            prop_assert!(import.notes.is_empty(), "{:?}", import.notes);
        }
    }

    #[test]
    fn a_changed_trajectory_gives_back_files_and_calls(acts in prop::collection::vec(act(), 1..30)) {
        for record in run(&acts) {
            let session = Session::resume(record);
            let import = read(&without_session(&write(&session).bytes)).expect("a session");
            if is_linear(&session) {
                prop_assert_eq!(views(&import.session), views(&session));
            }
            prop_assert_eq!(import.session.usage(), session.usage());
        }
    }
}
