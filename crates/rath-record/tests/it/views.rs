//! The views of a record, as tables.

use expect_test::{Expect, expect};
use rath_record::chunk::{Call, Observed, Outcome, Placed, ToolResult, ToolStarted, Tree};
use rath_record::view::{self, CallResult, Freshness, Message, Unobserved};
use rath_record::{BranchId, Chunk, Record, Stamp};

use crate::support::record;

fn messages(record: &Record) -> String {
    let seen = view::messages(record);
    let mut out = String::new();
    if let Some((_, instructions)) = seen.instructions {
        out.push_str(&format!("system: {}\n", instructions.text));
    }
    for message in &seen.list {
        match message {
            Message::User(_, user) => out.push_str(&format!("user: {}\n", user.text)),
            Message::Recalled(_, found) => {
                let found: Vec<_> = found.iter().map(|found| found.text.to_string()).collect();
                out.push_str(&format!("recalled: {}\n", found.join(", ")));
            }
            Message::Summary(_, text) => out.push_str(&format!("summary: {text}\n")),
            Message::Assistant(_, answer, exchanges) => {
                out.push_str(&format!("assistant: {}\n", answer.text));
                for exchange in exchanges {
                    let closing = match exchange.result {
                        CallResult::Recorded(result) => result.output.to_string(),
                        CallResult::Missing => "(nothing)".to_owned(),
                    };
                    out.push_str(&format!("  {}#{} -> {closing}\n", exchange.call.tool, exchange.id));
                }
            }
        }
    }
    out
}

fn check(story: &str, expected: Expect) {
    expected.assert_eq(&messages(&record(story)));
}

#[test]
fn a_model_sees_the_conversation_and_the_newest_instructions() {
    check(
        "instructions be brief; user hi; assistant hello; instructions be harsh; note secret; placed local:./",
        expect![[r#"
        system: be harsh
        user: hi
        assistant: hello
    "#]],
    );
}

#[test]
fn a_result_stands_with_its_call_in_call_order() {
    check(
        "user hi; calls ls#1 cat#2; note x; result 2 two; user wait; result 1 one; assistant done",
        expect![[r#"
        user: hi
        assistant: 
          ls#1 -> one
          cat#2 -> two
        user: wait
        assistant: done
    "#]],
    );
}

#[test]
fn a_call_without_result_is_closed_and_a_result_without_call_is_left_out() {
    check(
        "user hi; calls ls#1 cat#2; result 2 two; result 9 stray; user go on",
        expect![[r#"
        user: hi
        assistant: 
          ls#1 -> (nothing)
          cat#2 -> two
        user: go on
    "#]],
    );
}

#[test]
fn a_call_id_is_unique_in_a_view_however_often_the_provider_used_it() {
    check(
        "user hi; calls ls#1; result 1 first; calls ls#1 ls#1; result 1 second; result 1 third",
        expect![[r#"
        user: hi
        assistant: 
          ls#1 -> first
        assistant: 
          ls#1~2 -> second
          ls#1~3 -> third
    "#]],
    );
}

#[test]
fn a_branch_kept_aside_is_not_read_until_it_is_merged() {
    let kept = record("user hi; fork b1; assistant aside; on main; aside b1; assistant hello");
    assert_eq!(kept.steps().len(), 3);
    assert_eq!(kept.lineage().walk().len(), 5);
    assert_eq!(kept.usage(), rath_record::Usage::new(20, 2));
    // Continued and merged, all of the branch is read.
    let merged = record("user hi; fork b1; assistant aside; on main; aside b1; on b1; user more; on main; merge b1");
    let read: Vec<_> = merged.steps().iter().map(|step| rath_record::draw::describe(step.chunk())).collect();
    assert_eq!(read, ["user: hi", "separate work", "forked", "assistant: aside", "user: more", "merged"]);
    assert_eq!(merged.usage(), rath_record::Usage::new(10, 1));
    // So is a branch that was only kept aside.
    let merged = record("user hi; fork b1; assistant aside; on main; aside b1; merge b1");
    assert_eq!(merged.chunk_count(), 2);
}

#[test]
fn a_summary_takes_the_place_of_the_steps_it_hides() {
    check(
        "user zero; x= user one; y= assistant two; user three; compress x y: one and two; assistant four",
        expect![[r#"
        user: zero
        summary: one and two
        user: three
        assistant: four
    "#]],
    );
}

#[test]
fn hiding_half_a_tool_pair_hides_or_keeps_all_of_it() {
    check(
        "user hi; x= calls ls#1; y= result 1 one; assistant done; compress x: the call",
        expect![[r#"
        user: hi
        summary: the call
        assistant: done
    "#]],
    );
    check(
        "user hi; x= calls ls#1; y= result 1 one; assistant done; compress y: the result",
        expect![[r#"
        user: hi
        assistant: 
          ls#1 -> one
        summary: the result
        assistant: done
    "#]],
    );
}

#[test]
fn a_summary_of_a_summary_keeps_everything_below_hidden() {
    check(
        "x= user one; y= compress x: first; z= user two; compress y z: second; user three",
        expect![[r#"
        summary: second
        user: three
    "#]],
    );
}

#[test]
fn a_summary_of_a_summary_takes_its_place() {
    check(
        "x= user one; user two; y= compress x: first; compress y: second",
        expect![[r#"
        summary: second
        user: two
    "#]],
    );
}

#[test]
fn recalled_entries_are_a_message_and_never_system_text() {
    check(
        "instructions be brief; user hi; recall likes tea,cake; recall nothing; remember x",
        expect![[r#"
        system: be brief
        user: hi
        recalled: tea, cake
    "#]],
    );
}

#[test]
fn a_merge_shows_what_is_shared_once_then_ours_then_theirs() {
    check(
        "user hi; assistant hello; fork b1; user ours; calls ls#1; result 1 ours; on main; fork b2; user theirs; \
         calls ls#1; result 1 theirs; on b1; merge b2; user both",
        expect![[r#"
            user: hi
            assistant: hello
            user: ours
            assistant: 
              ls#1 -> ours
            user: theirs
            assistant: 
              ls#1~2 -> theirs
            user: both
        "#]],
    );
}

#[test]
fn a_merge_keeps_our_instructions_and_takes_theirs_where_we_have_none() {
    check(
        "instructions be ours; user hi; fork b1; assistant ours; on main; fork b2; instructions be theirs; \
         assistant theirs; on b1; merge b2",
        expect![[r#"
            system: be ours
            user: hi
            assistant: ours
            assistant: theirs
        "#]],
    );
    check(
        "user hi; fork b1; assistant ours; on main; fork b2; instructions be theirs; assistant theirs; on b1; merge b2",
        expect![[r#"
            system: be theirs
            user: hi
            assistant: ours
            assistant: theirs
        "#]],
    );
    check(
        "instructions be ours; user hi; fork b1; assistant ours; on main; fork b2; instructions be theirs; \
         assistant theirs; on b1; merge b2; instructions be both",
        expect![[r#"
            system: be both
            user: hi
            assistant: ours
            assistant: theirs
        "#]],
    );
}

fn check_files(story: &str, expected: Expect) {
    let record = record(story);
    let mut out = String::new();
    for (path, file) in view::files(&record).list {
        let state = file.digest.map_or("gone".to_owned(), |digest| format!("{digest:.6}"));
        let diverged = if file.diverged.is_empty() { "" } else { " diverged" };
        out.push_str(&format!("{path} {state} by {}{diverged}\n", file.call.map_or("nobody", |call| &call.0)));
    }
    expected.assert_eq(&out);
}

#[test]
fn files_show_the_last_known_state_and_the_call_behind_it() {
    check_files(
        "calls w#1 w#2; wrote 1 a.rs old; wrote 2 a.rs new old",
        expect![[r#"
        a.rs b20ab0 by 2
    "#]],
    );
    check_files(
        "calls w#1 mv#2 rm#3; wrote 1 a.rs x; renamed 2 a.rs b.rs x; removed 3 c.rs",
        expect![[r#"
        a.rs gone by 2
        b.rs 3ae7d8 by 2
        c.rs gone by 3
    "#]],
    );
}

#[test]
fn files_that_two_branches_wrote_are_reported_with_both_versions() {
    let base = "user hi; calls w#0; wrote 0 a.rs base; fork b1; calls w#1; wrote 1 a.rs ours base; on main; fork b2;";
    check_files(
        &format!("{base} calls w#2; wrote 2 a.rs theirs base; on b1; merge b2"),
        expect![[r#"
        a.rs a92d7d by 2 diverged
    "#]],
    );
    check_files(
        &format!("{base} calls w#2; wrote 2 a.rs theirs base; on b1; merge b2; calls w#3; wrote 3 a.rs both theirs"),
        expect![[r#"
            a.rs 2edbc8 by 3
        "#]],
    );
    check_files(
        &format!("{base} calls w#2; wrote 2 b.rs theirs; on b1; merge b2"),
        expect![[r#"
        a.rs cd9488 by 1
        b.rs a92d7d by 2
    "#]],
    );
    check_files(
        &format!("{base} calls w#2; wrote 2 a.rs ours base; on b1; merge b2"),
        expect![[r#"
        a.rs cd9488 by 2
    "#]],
    );
}

fn check_checks(story: &str, expected: &str) {
    let record = record(story);
    let checks = view::checks(&record).list.into_iter().map(|(name, check)| {
        let fresh = if check.freshness == Freshness::Fresh { "fresh" } else { "stale" };
        format!("{name} {:?} {fresh}", check.checked.verdict).to_lowercase()
    });
    assert_eq!(checks.collect::<Vec<_>>().join(", "), expected, "{story}");
}

#[test]
fn a_check_covers_the_state_it_saw_and_no_other() {
    check_checks("user hi", "");
    check_checks("checked test passed", "test passed fresh");
    check_checks("checked test passed; checked test failed", "test failed fresh");
    check_checks("checked test passed; user hi; note x; assistant hello", "test passed fresh");
    check_checks("checked test passed; calls w#1; wrote 1 a.rs x", "test passed stale");
    check_checks("checked test passed; calls w#1; wrote 1 a.rs x; checked test passed", "test passed fresh");
    check_checks("checked test passed; calls ls#1; result 1 x", "test passed fresh");
    check_checks("checked test passed; placed local:./", "test passed stale");
    check_checks("checked test passed; calls rm#1; started 1", "test passed stale");
    check_checks("checked test passed; calls rm#1; started 1; result 1", "test passed fresh");
    check_checks("checked test passed; calls rm#1; started 1; unknown 1", "test passed stale");
    // A forgotten step says nothing, and may have been a later run or a change.
    check_checks("checked lint passed; [note x] checked test passed", "lint passed stale");
    check_checks("checked test passed; [checked test failed] note x", "test passed stale");
    check_checks("[note x] checked test passed; checked test failed", "test failed fresh");
}

#[test]
fn a_check_does_not_cover_changes_on_another_branch() {
    let story = "user hi; fork b1; calls w#1; wrote 1 a.rs x; checked ours passed; on main; fork b2;";
    check_checks(&format!("{story} checked theirs passed; on b1; merge b2"), "ours passed fresh, theirs passed stale");
    check_checks(
        &format!("{story} calls w#2; wrote 2 b.rs y; checked theirs passed; on b1; merge b2"),
        "ours passed stale, theirs passed stale",
    );
}

#[test]
fn a_check_is_the_same_whichever_side_of_a_merge_comes_first() {
    let check = |common: &str, [b1, b2]: [&str; 2], expected: &str| {
        for (last, first) in [("b1", "b2"), ("b2", "b1")] {
            // A merge records the tree that it makes.
            let tree = if common.contains("observed") || b1.contains("observed") { " merged" } else { "" };
            let story = format!("{common}; fork b1; {b1}; on main; fork b2; {b2}; on {last}; merge {first}{tree}");
            check_checks(&story, expected);
        }
    };
    // Of runs that hold, the worst counts; and a run that holds counts before those that do not.
    check("user hi", ["checked test passed", "checked test failed"], "test failed fresh");
    let changed = "calls w#1; wrote 1 a.rs x; checked test";
    check("user hi", [&format!("{changed} passed"), "checked lint passed"], "lint passed stale, test passed fresh");
    check("user hi", [&format!("{changed} passed"), "checked test failed"], "test passed fresh");
    check("user hi", [&format!("{changed} failed"), "checked test passed"], "test failed fresh");
    // A run on one side is newer than one before the fork.
    check("checked test failed", ["checked test passed", "note x"], "test passed fresh");
    check("checked test failed", ["checked test passed", "checked test passed"], "test passed fresh");
    check("checked test passed", ["checked test failed", "note x"], "test failed fresh");
    // Files that were first seen on the other side were not compared, unless the check's side has seen them too.
    check("user hi", ["observed t1; saw test t1 src", "observed t2; observed t3 docs/a"], "test passed stale");
    check("user hi", ["observed t1; saw test t1 src", "observed t1; observed t3 docs/a"], "test passed fresh");
    check(
        "user hi",
        ["observed t1; observed t2 src/a; saw test t2 src", "observed t1; observed t3 docs/a"],
        "test passed fresh",
    );
}

#[test]
fn usage_counts_each_call_once_by_branch_and_module() {
    let record = record(
        "user hi; assistant shared; fork b1; assistant ours; on main; fork b2; assistant theirs; assistant more; \
         on b1; merge b2; assistant both",
    );
    let spending = view::spending(&record);
    let modules: Vec<_> = spending
        .by_module
        .iter()
        .map(|(module, spent)| format!("{} {} {}", module.as_deref().unwrap_or("-"), spent.calls, spent.usage))
        .collect();
    assert_eq!(spending.total.calls, 5);
    assert_eq!(record.usage(), spending.total.usage);
    assert_eq!(spending.total.usage.to_string(), "50 in, 5 out");
    assert_eq!(
        modules,
        [
            "agent.main 1 10 in, 1 out",
            "agent.b1 1 10 in, 1 out",
            "agent.b2 2 20 in, 2 out",
            "agent.merge 1 1 10 in, 1 out"
        ]
    );
    assert_eq!(spending.by_branch.len(), 4);
    assert_eq!(spending.head, record.head().map(|head| head.id()));
}

#[test]
fn a_check_covers_the_tree_that_it_saw() {
    // The tree decides, not the steps in between.
    check_checks("observed t1; saw test t1; observed t2 a; observed t1 a", "test passed fresh");
    check_checks("observed t1; saw test t1; observed t2 a", "test passed stale");
    check_checks("observed t1; saw test t1 src; observed t2 docs/a src2/b", "test passed fresh");
    check_checks("observed t1; saw test t1 ./src/; observed t2 src/a", "test passed stale");
    check_checks("observed t1; saw test t1 src/a.rs; observed t2 src/a.rs", "test passed stale");
    check_checks("observed t1; saw test t1 .; observed t2 docs/a", "test passed stale");
    // A change that was not observed may concern anything.
    check_checks("observed t1; saw test t1 src; calls w#1; unknown 1", "test passed stale");
    check_checks("observed t1; saw test t1; calls w#1; unknown 1; observed t1", "test passed fresh");
    check_checks("observed t1; saw test t1; calls w#1; started 1", "test passed stale");
    // The check did not see a change on another branch.
    check_checks(
        "observed t1; fork b1; saw test t1 src; on main; fork b2; observed t2 src/a; on b1; merge b2",
        "test passed stale",
    );
    check_checks(
        "observed t1; fork b1; saw test t1 src; on main; fork b2; observed t2 docs/a; on b1; merge b2",
        "test passed fresh",
    );
}

#[test]
fn a_conflict_is_open_until_it_is_resolved() {
    let check = |story: &str, expected: &str| {
        let record = record(story);
        let open = view::conflicts(&record).into_iter().map(|conflict| conflict.path.as_str()).collect::<Vec<_>>();
        assert_eq!(open.join(" "), expected, "{story}");
    };
    check("user hi", "");
    check("user hi; clash a; clash b", "a b");
    check("user hi; clash a; clash b; decided a t1", "b");
    check("user hi; clash a; decided a t1; user more", "");
    check("user hi; fork b1; clash a; on main; fork b2; user other; merge b1", "a");
    check("user hi; clash a; fork b1; decided a t1; on main; fork b2; user other; merge b1", "");
}

#[test]
fn the_tree_is_the_newest_one_recorded() {
    let check = |story: &str, expected: Option<&str>| {
        assert_eq!(view::tree(&record(story)).as_ref().map(|tree| tree.0.as_str()), expected, "{story}");
    };
    check("user hi", None);
    check("observed t1; user hi", Some("t1"));
    check("observed t1; observed t2 a; user hi", Some("t2"));
    check("observed t1; calls w#1; unknown 1", None);
    check("observed t1; placed local:elsewhere", None);
    check("observed t1; clash a; decided a t2", Some("t2"));
}

/// A call is observed when its result has a tree, or when the whole workspace was looked at after it began: the result of
/// another call says nothing about it.
#[test]
fn a_call_without_an_end_is_unobserved_until_the_workspace_is_looked_at() {
    /// Makes a record from words: `ask a b`, `start a`, `end a 1` (with a tree), `end a` (by a program), `skip a`,
    /// `given a` (by a person), `look 1`, `place`.
    fn unobserved(words: &str) -> String {
        let mut record = Record::new();
        for step in words.split("; ") {
            let words: Vec<&str> = step.split(' ').collect();
            let tree = |at: usize| words.get(at).map(|name| Tree((*name).to_owned()));
            let result = |outcome| ToolResult::new(words[1], outcome, "");
            let by_program = Stamp::on(BranchId([1; 16])).by("agent");
            let (chunk, stamp): (Chunk, Stamp) = match words[0] {
                "ask" => (Chunk::calls(words[1..].iter().map(|id| Call::new(*id, "shell", "{}"))), by_program),
                "start" => (ToolStarted::new(words[1]).into(), by_program),
                "end" => (result(Outcome::Ok).with_tree(tree(2)).into(), by_program),
                "skip" => (result(Outcome::Unknown).into(), Stamp::on(BranchId([1; 16]))),
                "given" => (result(Outcome::Ok).into(), Stamp::on(BranchId([1; 16]))),
                "look" => (Observed::new(tree(1).expect("a tree")).into(), by_program),
                "place" => (Placed::new("local:.").into(), by_program),
                _ => panic!("`{step}` is no step"),
            };
            record.push(chunk, stamp);
        }
        match view::unobserved(&record) {
            None => "none".to_owned(),
            Some(Unobserved { since, calls, .. }) => {
                let calls: Vec<_> = calls.iter().map(|call| &*call.0).collect();
                format!("{} since {}", calls.join(" "), since.map_or("?".to_owned(), |tree| tree.0))
            }
        }
    }
    for (words, expected) in [
        ("place; ask a; look 0; start a", "a since 0"),
        ("place; ask a; look 0; start a; end a 1", "none"),
        ("place; ask a; look 0; start a; look 1", "none"),
        ("place; ask a; look 0; start a; skip a", "a since 0"),
        ("place; ask a; look 0; start a; given a", "a since 0"),
        // Calls that run at the same time.
        ("place; ask a b c; look 0; start a; start b; start c; end a 1", "b c since 1"),
        ("place; ask a b c; look 0; start a; start b; start c; end a 1; end b 2", "c since 2"),
        ("place; ask a b c; look 0; start a; start b; start c; end b 1; look 2", "none"),
        ("place; ask a b; look 0; start a; start b; end a 1; skip b", "b since 1"),
        ("place; ask a b; look 0; start a; start b; end a 1; look 2; skip b; ask", "none"),
        ("place; ask a b; look 0; start a; start b; end a 1; end b 2; ask", "none"),
        // One after the other.
        ("place; ask a b; look 0; start a; end a 1; start b", "b since 1"),
        // A call that was made again.
        ("place; ask a; look 0; start a; look 1; start a; end a 2", "none"),
        ("place; ask a; look 0; start a; start a; end a 2", "none"),
        ("place; ask a; look 0; start a; start a", "a since 0"),
        // Another turn has calls with the same ids.
        ("place; ask a; look 0; start a; end a 1; ask a; start a", "a since 1"),
        ("place; ask a; start a; end a; ask a; start a; end a", "none"),
        ("place; ask a; start a; skip a; ask a; start a; end a", "a since ?"),
        ("ask a; start a; place", "none"),
    ] {
        assert_eq!(unobserved(words), expected, "{words}");
    }
}
