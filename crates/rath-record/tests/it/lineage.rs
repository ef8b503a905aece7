//! The graph of steps, compared as it is drawn.

use expect_test::{Expect, expect};
use rath_record::chunk::Strategy;
use rath_record::lineage::{self, Lineage};
use rath_record::{MergeError, Record, Side, Stamp, Step};

use crate::support::{branch, merge, record, scenario};

fn check(story: &str, expected: Expect) {
    let mut scenario = scenario(story);
    expected.assert_eq(&format!("{}\n", scenario.current_record().lineage()));
}

fn describe(steps: &[&Step]) -> Vec<String> {
    steps.iter().map(|step| rath_record::draw::describe(step.chunk())).collect()
}

#[test]
fn the_log_draws_forks_and_merges_newest_first() {
    check(
        "user hi; assistant hello; fork poet; user verse; on main; fork b2; user prose; on poet; merge b2; user both",
        expect![[r#"
            ○  5ba84331 b3  user: both
            ◆    ca441cbe b3  merged
            ├─╮
            │ ○  41f224cd b2  user: prose
            │ ○  52d3a36c b2  forked
            ○ │  401361b7 poet  user: verse
            ○ │  b2b7198c poet  forked
            ├─╯
            ○  f14b3364 main  assistant: hello  [agent.main]  (10 in, 1 out)
            ○  bc8e3744 main  user: hi
        "#]],
    );
}

#[test]
fn a_line_without_branches_is_drawn_straight() {
    check(
        "instructions be brief; user hi; calls ls#1; started 1; result 1 a  b; assistant done",
        expect![[r#"
        ○  9613d2ee main  assistant: done  [agent.main]  (10 in, 1 out)
        ○  206255e5 main  tool result: 1 ok: a b
        ○  a96bc785 main  tool started: 1
        ○  afaaad14 main  assistant calls ls({})  [agent.main]  (10 in, 1 out)
        ○  fb697b0d main  user: hi
        ○  22fe3267 main  instructions: be brief
    "#]],
    );
}

#[test]
fn a_log_line_stays_one_line_for_any_content() {
    let mut record = Record::new();
    let text = format!("a\tb\nc\u{1b}[31m\u{202e}{}", "x".repeat(10_000_000));
    record.push(rath_record::Chunk::user(text), Stamp::on(branch("main")));
    expect![[r#"user: a b c\u{1b}[31m\u{202e}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"#]]
        .assert_eq(record.lineage().to_string().split_once("main  ").expect("the branch").1);
}

#[test]
fn the_common_ancestor_is_the_nearest() {
    let scenario = scenario("user a; fork b1; user b; on main; user c; fork b2; user d");
    let (b1, b2) = (scenario.branch("b1").head().expect("a step"), scenario.branch("b2").head().expect("a step"));
    let base = lineage::common_ancestor(b1, b2).expect("both begin with a");
    assert_eq!(describe(&[base]), ["user: a"]);
    assert_eq!(lineage::common_ancestor(b2, b1).map(Step::id), Some(base.id()));
    assert_eq!(lineage::common_ancestor(b1, base).map(Step::id), Some(base.id()));
    assert_eq!(lineage::common_ancestor(b1, b1).map(Step::id), Some(b1.id()));
    let stranger = record("user stranger");
    assert!(lineage::common_ancestor(b1, stranger.head().expect("a step")).is_none());
}

#[test]
fn a_diff_names_what_each_side_has() {
    let scenario =
        scenario("user a; fork b1; user b; on main; fork b2; user c; fork b3; user d; on b1; user e; on b3; note f");
    let diff =
        lineage::diff(scenario.branch("b1").head().expect("a step"), scenario.branch("b3").head().expect("a step"));
    assert_eq!(describe(&[diff.base.expect("a")]), ["user: a"]);
    assert_eq!(describe(&diff.ours), ["forked", "user: b", "user: e"]);
    assert_eq!(describe(&diff.theirs), ["forked", "user: c", "forked", "user: d", "note: f"]);
}

#[test]
fn ancestors_and_descendants_are_each_others_mirror() {
    let mut scenario = scenario("x= user a; fork b1; y= user b; on main; fork b2; z= user c; on b1; merge b2; user d");
    let labels = scenario.labels.clone();
    let lineage = scenario.current_record().lineage();
    assert_eq!(describe(&lineage.ancestors(labels["y"])), ["user: a", "forked"]);
    assert_eq!(describe(&lineage.ancestors(labels["x"])), Vec::<String>::new());
    assert_eq!(describe(&lineage.descendants(labels["z"])), ["merged", "user: d"]);
    assert_eq!(lineage.descendants(labels["x"]).len(), 6);
    for step in lineage.walk() {
        for descendant in lineage.descendants(step.id()) {
            assert!(lineage.ancestors(descendant.id()).contains(&step));
        }
    }
}

#[test]
fn merging_with_an_open_call_is_refused_and_the_call_is_named() {
    let scenario = scenario("user hi; fork b1; calls ls#call_7; fork b2; on main; fork b3; user ho");
    let (open, closed) = (scenario.branch("b1"), scenario.branch("b3"));
    let named = |side| MergeError::OpenCall {
        side,
        call: "call_7".into(),
        tool: "ls".to_owned(),
        step: open.head().expect("a step").id(),
    };
    assert_eq!(merge(open, closed).map(|_| ()), Err(named(Side::Ours)));
    assert_eq!(merge(closed, open).map(|_| ()), Err(named(Side::Theirs)));
    let told = merge(closed, open).map(|_| ()).expect_err("refused").to_string();
    assert!(told.starts_with("their side has a call without a result: `call_7` (ls), of the answer "), "{told}");
}

#[test]
fn a_call_that_was_skipped_long_ago_is_still_open() {
    let scenario =
        scenario("user hi; calls ls#1; user never mind; assistant all right; fork b1; user x; on main; user y");
    assert!(merge(scenario.branch("main"), scenario.branch("b1")).is_err());
}

fn concat(ours: &Record, theirs: &Record) -> Result<Record, MergeError> {
    ours.merge(theirs, Strategy::Concat, Stamp::on(branch("merged")))
}

#[test]
fn concatenation_repeats_what_is_shared_and_bills_it_once() {
    let base = record("user hi; assistant hello");
    let twice = concat(&base, &base).expect("short enough");
    assert_eq!(
        describe(&twice.steps()),
        ["user: hi", "assistant: hello", "user: hi", "assistant: hello", "merged (concat)"]
    );
    assert_eq!((twice.chunk_count(), base.chunk_count()), (4, 2));
    assert_eq!(twice.usage(), base.usage());
    assert_eq!(Lineage::new(twice.head().cloned()).walk().len(), 3);

    // Ten rounds turn ten rows into 10,240.
    let mut ten = record(&"user row;".repeat(10));
    for _ in 0..10 {
        ten = concat(&ten, &ten).expect("short enough");
    }
    assert_eq!(ten.chunk_count(), 10_240);
    let newest: Vec<_> = ten.newest_first().map(Step::id).collect();
    let oldest: Vec<_> = ten.steps().into_iter().rev().map(Step::id).collect();
    assert_eq!(newest, oldest);
}

#[test]
fn concatenations_that_would_be_too_long_are_refused() {
    let ten = record(&"user row;".repeat(10));
    let refused = std::iter::repeat(()).try_fold(ten, |ten, ()| concat(&ten, &ten)).expect_err("it ends");
    assert_eq!(refused, MergeError::TooLong { steps: 23_068_670 });
}
