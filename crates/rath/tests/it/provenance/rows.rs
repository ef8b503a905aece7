//! Rows for what random scripts once found, and for what is too slow or too rare for them.

use std::path::Path;

use expect_test::{Expect, expect};
use rath::Origin;
use rath::chunk::Effect;
use rath::prelude::*;
use rath::record::draw;
use rath::turn::Next;
use rath::view;
use serde_json::{Value, json};

use super::model::agent_of;
use super::observer::{RULES, assert_same, kept, lines, walk};
use super::{checked_out, texts};
use crate::support::{block_on, folder, script};

/// A folder with two files.
fn two_files() -> rath_test_support::TempDir {
    folder(&[("a.txt", "one\ntwo\nthree\n"), ("b.txt", "b\n"), (".gitignore", RULES)])
}

/// Makes rounds of calls, each a list of tools with their arguments.
fn work(mut session: Session, rounds: &[&[(&str, Value)]]) -> Session {
    if session.next() == Next::Done {
        session.push(Chunk::user("go on"));
    }
    let calls = |calls: &&[(&str, Value)]| {
        let calls: Vec<_> =
            calls.iter().map(|(name, arguments)| json!({ "name": name, "arguments": arguments })).collect();
        json!({ "calls": calls }).to_string()
    };
    let turns: Vec<_> = rounds.iter().map(calls).chain([r#"{"text": "done"}"#.to_owned()]).collect();
    block_on(agent_of(&script(turns)).run(session)).expect("a run")
}

fn sh(command: &str) -> (&'static str, Value) {
    ("shell", json!({ "command": command }))
}

fn stages(stages: Value) -> (&'static str, Value) {
    ("stages", json!({ "stages": stages }))
}

/// Lists the changes of each step, and the difference of its tree from the one before.
fn described(session: &Session) -> String {
    let mut told = String::new();
    let mut before = None;
    for at in view::trees(session.as_record()).list {
        let now = session.at(at.step.id()).expect("a step");
        let drawn = |effects: &[Effect]| effects.iter().map(draw::describe_effect).collect::<Vec<_>>().join(" ");
        let effects = drawn(at.step.chunk().effects());
        let differs =
            before.map(|before: Session| drawn(&block_on(before.changes(&now)).expect("versions"))).unwrap_or_default();
        if !effects.is_empty() || !differs.is_empty() {
            let also = if effects == differs { String::new() } else { format!(" (the tree: {differs})") };
            told.push_str(&format!("{}: {effects}{also}\n", at.step.chunk().kind()));
        }
        before = Some(now);
    }
    told
}

fn check(rounds: &[&[(&str, Value)]], expected: Expect) -> (Session, rath_test_support::TempDir) {
    let folder = two_files();
    let session = work(Session::user("go").to(Sandbox::local(folder.path())), rounds);
    expected.assert_eq(&described(&session));
    assert_same(&checked_out(&session), &kept(&walk(folder.path())), "what was left");
    (session, folder)
}

#[test]
fn what_one_call_removes_and_another_makes_is_no_rename() {
    let one = stages(json!([{ "write": "c.txt", "text": "one\ntwo\nthree\n" }, { "wait": 9 }]));
    let other = stages(json!([{ "remove": "a.txt" }, { "wait": 9 }]));
    check(
        &[&[one, other]],
        expect![[r#"
            tool_result: +c.txt
            tool_result: -a.txt
        "#]],
    );
}

#[test]
fn a_call_beside_others_leaves_what_it_wrote_and_not_what_came_after() {
    let slow = stages(json!([{ "wait": 60 }, { "write": "slow.txt", "text": "slow\n" }]));
    let first = stages(json!([{ "write": "b.txt", "text": "first\n" }]));
    let second = stages(json!([{ "write": "b.txt", "text": "second\n" }]));
    let (session, _folder) = check(
        &[&[slow, first, second]],
        expect![[r#"
            tool_result: +slow.txt
            tool_result: ~b.txt
            tool_result: ~b.txt
        "#]],
    );
    let contents = view::trees(session.as_record()).list.into_iter().map(|at| {
        let then = checked_out(&session.at(at.step.id()).expect("a step"));
        texts(&then)
            .filter(|(path, _)| *path == b"b.txt")
            .map(|(_, text)| text.escape_ascii().to_string())
            .collect::<String>()
    });
    assert_eq!(contents.collect::<Vec<_>>(), ["b\\n", "b\\n", "first\\n", "second\\n"]);
}

#[test]
fn what_was_on_its_way_only_is_not_told() {
    let renames = stages(json!([
        { "write": "new", "text": "new\n" }, { "wait": 20 }, { "rename": "new", "to": "b.txt" }, { "wait": 20 }
    ]));
    let there_and_back = stages(
        json!([{ "write": "a.txt", "text": "x\n" }, { "wait": 30 }, { "write": "a.txt", "text": "one\ntwo\nthree\n" }]),
    );
    let others: Vec<_> = [8, 25]
        .iter()
        .map(|wait| stages(json!([{ "wait": wait }, { "write": format!("{wait}"), "text": "" }])))
        .collect();
    check(
        &[&[renames, there_and_back, others[0].clone(), others[1].clone()]],
        expect![[r#"
            tool_result: ~b.txt
            tool_result: +8
            tool_result: +25
        "#]],
    );
}

#[test]
fn a_file_whose_name_is_quoted_on_the_record_is_its_writers() {
    let quoted = stages(json!([{ "write": "\"q\".txt", "text": "q\n" }, { "wait": 30 }]));
    let other = stages(json!([{ "wait": 5 }, { "write": "c.txt", "text": "c\n" }]));
    check(
        &[&[quoted, other]],
        expect![[r#"
            tool_result: +"\"q\".txt"
            tool_result: +c.txt
        "#]],
    );
}

#[test]
fn what_others_do_to_ignored_files_is_told_and_nobodys_call() {
    let folder = two_files();
    let session = work(Session::user("go").to(Sandbox::local(folder.path())), &[&[sh("echo x > x.log")]]);
    std::fs::write(folder.path().join("mine.log"), "mine\n").expect("written");
    let session = work(session, &[&[sh("true")], &[sh("echo y > y.log")]]);
    expect![[r#"
        tool_result: +x.log (the tree: )
        observed: +mine.log (the tree: )
        tool_result: +y.log (the tree: )
    "#]]
    .assert_eq(&described(&session));
}

#[test]
fn nobody_hides_behind_a_name_of_ours() {
    let name = format!(".rath-{}.tmp", "0123456789abcdef".repeat(2));
    check(
        &[
            &[sh(&format!("echo half > {name}; echo c > c.txt"))],
            &[sh(&format!("rm {name}"))],
            &[sh("mkdir -p d/.rath; echo hidden > d/.rath/x")],
        ],
        expect![[r#"
            tool_result: +.rath-0123456789abcdef0123456789abcdef.tmp +c.txt (the tree: +c.txt)
            tool_result: +d/.rath/x (the tree: )
        "#]],
    );
}

/// Returns the author of each line of a file, by the call's arguments.
fn blame(session: &Session, path: &str) -> String {
    let blame = block_on(session.blame(path)).expect("versions").expect("a file");
    let line = |line: &rath::Line| match &line.origin {
        Origin::Call(author) => format!("{}: {}\n", line.text, author.call.arguments),
        other => format!("{}: {other:?}\n", line.text),
    };
    blame.lines.iter().map(line).collect()
}

#[test]
fn a_file_that_is_moved_over_another_brings_its_lines_with_their_authors() {
    let (session, _folder) = check(
        &[&[sh("printf 'new 1\\nb\\n' > new.txt")], &[sh("mv new.txt b.txt")]],
        expect![[r#"
            tool_result: +new.txt
            tool_result: ~b.txt -new.txt
        "#]],
    );
    expect![[r#"
        new 1: {"command":"printf 'new 1\\nb\\n' > new.txt"}
        b: {"command":"printf 'new 1\\nb\\n' > new.txt"}
    "#]]
    .assert_eq(&blame(&session, "b.txt"));
}

#[test]
fn a_copy_that_a_fork_made_stays_its_work_when_the_original_is_gone_and_the_fork_merged() {
    let folder = two_files();
    let session = work(Session::user("go").to(Sandbox::local(folder.path())), &[&[sh("true")]]);
    let ours = work(session.fork(), &[&[sh("echo ours > ours.txt")]]);
    let theirs = work(session.fork(), &[&[sh("cp a.txt copy.txt")], &[sh("rm a.txt")]]);
    let merged = block_on(ours.merge(&theirs)).expect("merged");
    expect![[r#"
        one: {"command":"cp a.txt copy.txt"}
        two: {"command":"cp a.txt copy.txt"}
        three: {"command":"cp a.txt copy.txt"}
    "#]]
    .assert_eq(&blame(&merged, "copy.txt"));
}

#[test]
fn what_a_call_wrote_that_was_ended_is_its_work_and_nothing_is_written_afterwards() {
    let kinds: [fn(&Path) -> Sandbox; 2] = [|path| Sandbox::local(path), |path| Sandbox::isolated(path)];
    for open in kinds {
        if block_on(open(two_files().path()).capabilities()).is_err() {
            continue;
        }
        let late = "setsid sh -c 'while :; do echo late >> late.txt; done' & echo now > now.txt";
        let (folder, session) = rath_test_support::with_enough_time(std::time::Duration::from_secs(1), |time| {
            let folder = two_files();
            let ends = json!({ "command": format!("{late}; sleep 60"), "timeout": time.as_secs() });
            let session = work(Session::user("go").to(open(folder.path())), &[&[("shell", ends)], &[sh(late)]]);
            let has_begun = described(&session)
                .lines()
                .next()
                .is_some_and(|line| line.contains("+now.txt") && line.contains("late"));
            has_begun.then_some((folder, session))
        });
        let seen = kept(&walk(folder.path()));
        let told = described(&session);
        assert_eq!(told.lines().next(), Some("tool_result: +late.txt +now.txt"), "{told}");
        // A second may have written nothing before it was ended, and what it wrote is all that there is.
        assert!(matches!(told.lines().nth(1), None | Some("tool_result: ~late.txt")), "{told}");
        assert_same(&checked_out(&session), &seen, "what was left");
        let (_, late) = texts(&seen).find(|(path, _)| *path == b"late.txt").expect("a file");
        assert!(lines(late).all(|line| line == b"late"));
    }
}
