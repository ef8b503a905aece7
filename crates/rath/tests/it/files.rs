//! Files as part of the session: what calls change is on the record, forks keep apart, merges join, and every line has its
//! author.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use expect_test::expect;
use rath::Origin;
use rath::chunk::{Resolution, Verdict};
use rath::prelude::*;
use rath::record::draw;
use rath::tool::builtin::{Check, WriteFile};
use rath::turn::Next;
use rath::view;
use rath::view::Freshness;
use serde_json::json;

use crate::support::{block_on, close, folder, log, put, script, worker};

/// Lists the content of a folder, without rath's own files.
pub(crate) fn files(root: &Path) -> String {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
            let path = entry.path();
            if entry.file_name() == ".rath" {
                continue;
            }
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(root).expect("below").to_string_lossy().into_owned();
            found.push(format!("{name}: {}", std::fs::read_to_string(&path).expect("text").replace('\n', "|")));
        }
    }
    found.sort();
    found.join("\n")
}

pub(crate) fn work(mut session: Session, rounds: &[&[&str]]) -> Session {
    if session.next() == Next::Done {
        session.push(Chunk::user("go on"));
    }
    block_on(worker(rounds).run(session)).expect("a run")
}

pub(crate) fn placed(folder: &rath_test_support::TempDir) -> Session {
    Session::user("go").to(Sandbox::local(folder.path()))
}

/// Every change on the record, step by step.
pub(crate) fn effects(session: &Session) -> String {
    let steps = session.as_record().steps().into_iter();
    let told = steps.filter(|step| !step.chunk().effects().is_empty()).map(|step| {
        let effects = step.chunk().effects().iter().map(draw::describe_effect).collect::<Vec<_>>();
        format!("{}: {}\n", step.chunk().kind(), effects.join(" "))
    });
    told.collect()
}

#[test]
fn what_a_call_changes_is_on_the_record_whatever_changed_it() {
    let folder = folder(&[("a.txt", "one\ntwo\n"), ("b.txt", "b\n"), ("c/d.txt", "d\n"), (".gitignore", "*.log\n")]);
    let session = work(
        placed(&folder),
        &[
            &["sed -i s/two/2/ a.txt", "cat > new.txt <<END\nfresh\nEND"],
            &["mv b.txt c/b.txt && rm c/d.txt"],
            &["true"],
            &["echo noise > x.log; mkdir empty; chmod +x a.txt"],
        ],
    );
    expect![[r#"
        tool_result: ~a.txt
        tool_result: +new.txt
        tool_result: b.txt→c/b.txt -c/d.txt
        tool_result: ~a.txt +empty +x.log
    "#]]
    .assert_eq(&effects(&session));
    // What was there before is on the record before anything changed.
    let first = view::trees(session.as_record()).list[0].step.id();
    let before = session.at(first).expect("a step");
    let checkout = rath_test_support::temp_dir();
    block_on(before.checkout(checkout.path().join("then"))).expect("checked out");
    expect![[r#"
        .gitignore: *.log|
        a.txt: one|two|
        b.txt: b|
        c/d.txt: d|"#]]
    .assert_eq(&files(&checkout.path().join("then")));
}

#[test]
fn the_files_that_a_session_begins_with_are_on_its_record_before_a_model_is_asked() {
    let folder = folder(&[("a.txt", "a\n"), ("dir/b.txt", "b\n")]);
    let session = placed(&folder);
    let (fork, other) = (work(session.fork(), &[]), work(session.fork(), &[]));
    assert!(!folder.path().join(".rath/work").exists(), "a fork whose tools do not run needs no directory");
    let session = work(session, &[]);
    put(folder.path(), "a.txt", "changed\n");
    let session = work(session, &[&["echo c > c.txt"]]);
    for (branch, changed) in [(&fork, ""), (&other, ""), (&session, "observed: ~a.txt\ntool_result: +c.txt\n")] {
        let kinds: Vec<_> = branch.chunks().map(Chunk::kind).filter(|kind| *kind != "forked").collect();
        assert_eq!(kinds[..5], ["user", "placed", "observed", "instructions", "assistant"]);
        assert_eq!(effects(branch), changed);
    }
    assert_eq!(fork.tree(), other.tree());
    let then = rath_test_support::temp_dir();
    block_on(fork.checkout(then.path().join("then"))).expect("checked out");
    assert_eq!(files(&then.path().join("then")), "a.txt: a|\ndir/b.txt: b|");
    // A fork works in the files on its record, whatever its directory is made of.
    let fork = work(fork, &[&["cat a.txt > seen.txt"]]);
    expect!["tool_result: +seen.txt\n"].assert_eq(&effects(&fork));
    assert_eq!(block_on(session.merge(&fork)).expect("merged").conflicts().len(), 0);
}

#[test]
fn what_others_change_between_calls_is_nobodys_call() {
    let folder = folder(&[("a.txt", "one\n")]);
    let session = work(placed(&folder), &[&["echo two >> a.txt"]]);
    put(folder.path(), "a.txt", "mine\n");
    put(folder.path(), "b.txt", "mine too\n");
    let session = work(session, &[&["echo three >> a.txt"]]);
    expect![[r#"
        tool_result: ~a.txt
        observed: ~a.txt +b.txt
        tool_result: ~a.txt
    "#]]
    .assert_eq(&effects(&session));
}

#[test]
fn forks_work_in_directories_of_their_own_and_a_merge_brings_their_files_together() {
    let folder = folder(&[("shared.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n"), ("old.txt", "old\n")]);
    let session = work(placed(&folder), &[&["echo start > start.txt"]]);
    let left =
        work(session.fork(), &[&["echo left > left.txt; sed -i s/1/one/ shared.txt", "pwd > where.txt; rm old.txt"]]);
    let right = work(session.fork(), &[&["echo right > right.txt; sed -i s/9/nine/ shared.txt; cat left.txt"]]);
    // No fork saw another, and the user's directory is as it was.
    expect![[r#"
        old.txt: old|
        shared.txt: 1|2|3|4|5|6|7|8|9|
        start.txt: start|"#]]
    .assert_eq(&files(folder.path()));
    let merged = block_on(left.merge(&right)).expect("merged");
    assert!(merged.conflicts().is_empty());
    let merged = work(merged, &[&["echo end > end.txt"]]);
    let found = files(folder.path());
    let found = found.lines().filter(|line| !line.starts_with("where.txt")).collect::<Vec<_>>().join("\n");
    expect![[r#"
        end.txt: end|
        left.txt: left|
        right.txt: right|
        shared.txt: one|2|3|4|5|6|7|8|nine|
        start.txt: start|"#]]
    .assert_eq(&found);
    // The branch that everything left from goes on by itself, with what it had.
    let alone = work(session, &[&["ls > names.txt"]]);
    assert_eq!(block_on(alone.blame("names.txt")).expect("objects").expect("a file").lines.len(), 4);
    assert!(!folder.path().join("names.txt").exists());
    assert!(block_on(merged.blame("names.txt")).expect("objects").is_none());
}

#[test]
fn what_two_branches_changed_in_one_place_waits_for_a_decision() {
    let folder = folder(&[("a.txt", "one\n"), ("b.txt", "one\n")]);
    let session = work(placed(&folder), &[&["true"]]);
    let ours = work(session.fork(), &[&["echo ours > a.txt; echo ours > b.txt"]]);
    let theirs = work(session.fork(), &[&["echo theirs > a.txt; rm b.txt"]]);
    let mut merged = block_on(ours.merge(&theirs)).expect("merged");
    let paths: Vec<_> = merged.conflicts().iter().map(|conflict| conflict.path.clone()).collect();
    assert_eq!(paths, ["a.txt", "b.txt"]);
    let mut again = merged.clone();
    again.push(Chunk::user("go on"));
    let error = block_on(worker::<[&str; 0], _>(&[]).run(again)).expect_err("undecided");
    assert_eq!(error.kind(), ErrorKind::Approval);
    expect!["files are in conflict: `a.txt` (content), `b.txt` (modified and deleted)"].assert_eq(&error.message());
    assert!(block_on(merged.decide("c.txt", Resolution::Ours)).is_err());
    let mut other = merged.clone();
    block_on(merged.decide("a.txt", Resolution::Theirs)).expect("decided");
    block_on(merged.decide("b.txt", Resolution::Ours)).expect("decided");
    let merged = work(merged, &[&["true"]]);
    expect![[r#"
        a.txt: theirs|
        b.txt: ours|"#]]
    .assert_eq(&files(folder.path()));
    block_on(other.decide_edited("a.txt", b"both\n")).expect("decided");
    block_on(other.decide("b.txt", Resolution::Theirs)).expect("decided");
    let out = rath_test_support::temp_dir();
    block_on(other.checkout(out.path().join("other"))).expect("checked out");
    expect!["a.txt: both|"].assert_eq(&files(&out.path().join("other")));
    assert!(merged.tree() != other.tree());
}

#[test]
fn a_fork_in_another_sandbox_brings_its_files_when_it_is_merged() {
    let (here, there) = (folder(&[("a.txt", "a\n")]), folder(&[("x.txt", "x\n")]));
    let session = work(placed(&here), &[&["echo b > b.txt"]]);
    let fork = work(session.fork().to(Sandbox::local(there.path())), &[&["echo y > y.txt"]]);
    let merged = work(block_on(session.merge(&fork)).expect("merged"), &[&["true"]]);
    assert!(merged.conflicts().is_empty());
    expect![[r#"
        b.txt: b|
        x.txt: x|
        y.txt: y|"#]]
    .assert_eq(&files(here.path()));
}

#[test]
fn every_line_knows_the_call_that_wrote_it() {
    let folder = folder(&[("a.txt", "one\ntwo\nthree\n")]);
    let session = work(placed(&folder), &[&["sed -i s/two/2/ a.txt"], &["echo four >> a.txt"], &["mv a.txt b.txt"]]);
    put(folder.path(), "b.txt", "zero\none\n2\nthree\nfour\n");
    let mut session = work(session, &[&["true"]]);
    block_on(session.check("test -s b.txt", &[])).expect("a check");
    let blame = block_on(session.blame("b.txt")).expect("objects").expect("a file");
    let lines = blame.lines.iter().map(|line| {
        let who = match &line.origin {
            Origin::Before => "before".to_owned(),
            Origin::Outside => "outside".to_owned(),
            Origin::Merge => "merge".to_owned(),
            Origin::Forgotten => "forgotten".to_owned(),
            Origin::InDoubt(calls) => format!("{calls:?} or others"),
            Origin::Call(author) => {
                assert!(author.request.is_some() && author.by.is_some());
                author.call.arguments.to_string()
            }
        };
        assert_eq!(line.checks, ["test -s b.txt"]);
        format!("{}: {who}\n", line.text)
    });
    expect![[r#"
        zero: outside
        one: before
        2: {"command":"sed -i s/two/2/ a.txt"}
        three: before
        four: {"command":"echo four >> a.txt"}
    "#]]
    .assert_eq(&lines.collect::<String>());
}

#[test]
fn a_planted_regression_is_found_in_few_runs_and_no_model_is_asked() {
    let folder = folder(&[("a.txt", "0\n")]);
    for bad in [0, 7, 15] {
        let rounds: Vec<String> = (0..16)
            .map(|nth| format!("echo {nth} > a.txt; {}", if nth == bad { "touch broken" } else { "true" }))
            .collect();
        let rounds: Vec<[&str; 1]> = rounds.iter().map(|round| [round.as_str()]).collect();
        let rounds: Vec<&[&str]> = rounds.iter().map(|round| &round[..]).collect();
        let _ = std::fs::remove_file(folder.path().join("broken"));
        let session = work(placed(&folder), &rounds);
        let found =
            block_on(session.bisect(&["test".to_owned(), "!".to_owned(), "-e".to_owned(), "broken".to_owned()]))
                .expect("a search");
        let step = session.as_record().find(found.step.expect("found")).expect("a step");
        let (call, _) = view::find_call(step).expect("a call");
        assert!(call.arguments.to_string().contains("touch broken"), "{call:?}");
        assert!(found.runs <= 6, "{found:?}");
    }
}

#[test]
fn a_check_goes_stale_when_what_it_saw_changes() {
    let folder = folder(&[("src/a.txt", "a\n"), ("docs/b.txt", "b\n")]);
    let mut session = work(placed(&folder), &[&["true"]]);
    assert_eq!(block_on(session.check("test -e src/a.txt", &["src".to_owned()])).expect("ran"), Verdict::Passed);
    assert_eq!(block_on(session.check("exit 3", &[])).expect("ran"), Verdict::Failed);
    let fresh = |session: &Session| {
        let checks = session.checks().list.into_values();
        checks.map(|check| check.freshness == Freshness::Fresh).collect::<Vec<_>>()
    };
    assert_eq!(fresh(&session), [true, true]);
    let session = work(session, &[&["echo more >> docs/b.txt"]]);
    assert_eq!(fresh(&session), [false, true]);
    let session = work(session, &[&["echo more >> src/a.txt"]]);
    assert_eq!(fresh(&session), [false, false]);
    let session = work(session, &[&["echo a > src/a.txt; echo b > docs/b.txt"]]);
    assert_eq!(fresh(&session), [true, true]);
    assert!(block_on(session.require_check("exit 3")).is_err());
    block_on(session.require_check("test -e src/a.txt")).expect("it covers what is there");
}

#[test]
fn a_check_says_nothing_of_files_that_changed_while_it_ran() {
    let folder = folder(&[("a.txt", "good\n"), ("b.txt", "b\n")]);
    let mut session = work(placed(&folder), &[&["echo bad > a.txt"]]);
    let (bad, inputs) = (session.head().expect("a step").id(), ["b.txt".to_owned()]);
    // It passes because of what is written meanwhile.
    let meanwhile = "echo good > a.txt; grep -q good a.txt";
    assert_eq!(block_on(session.check(meanwhile, &[])).expect("ran"), Verdict::Passed);
    assert_eq!(block_on(session.check("echo good > c.txt; test -e b.txt", &inputs)).expect("ran"), Verdict::Passed);
    session.push(Chunk::user("check it"));
    let call = json!({"calls": [{"name": "check", "arguments": {"command": "echo fine > d.txt"}}]}).to_string();
    let agent = Agent::new("Work.", &script([call, r#"{"text": "done"}"#.to_owned()])).tool(Check);
    let mut session = block_on(agent.run(session)).expect("a run");
    block_on(session.restore(bad)).expect("restored");
    for (check, holds) in [(meanwhile, false), ("echo good > c.txt; test -e b.txt", true), ("echo fine > d.txt", false)]
    {
        assert_eq!(block_on(session.require_check(check)).is_ok(), holds, "{check}");
    }
    // What was changed since and is on no record counts as well.
    put(folder.path(), "b.txt", "changed\n");
    assert!(block_on(session.require_check("echo good > c.txt; test -e b.txt")).is_err());
}

/// A program saves a file at any time while a session goes back and forth: what is overwritten is on the record.
#[test]
fn every_version_that_a_restore_overwrites_is_on_the_record() {
    let folder = folder(&[("a.txt", "first\n")]);
    let session = work(placed(&folder), &[&["echo one > a.txt"]]);
    let one = session.head().expect("a step").id();
    let mut session = work(session, &[&["echo two > a.txt"]]);
    let two = session.head().expect("a step").id();
    let (file, new) = (folder.path().join("a.txt"), rath_test_support::temp_dir());
    let new = new.path().join("new");
    let (is_over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let overwritten = std::thread::scope(|scope| {
        let saving = scope.spawn(|| {
            let mut overwritten = Vec::new();
            for nth in 0.. {
                if is_over.load(SeqCst) {
                    break;
                }
                let (version, before) = (format!("saved {nth}\n"), rounds.load(SeqCst));
                std::fs::write(&new, &version).expect("written");
                std::fs::rename(&new, &file).expect("renamed");
                let is_there = || std::fs::read_to_string(&file).is_ok_and(|text| text == version);
                let wait_for = |rounds_more: usize| {
                    while rounds.load(SeqCst) < before + rounds_more && !is_over.load(SeqCst) {
                        std::thread::yield_now();
                    }
                };
                wait_for(nth % 2);
                if !is_there() {
                    // A file that is put back is away for a moment.
                    wait_for(nth % 2 + 2);
                    if !is_there() {
                        overwritten.push(version);
                    }
                }
            }
            overwritten
        });
        for nth in 0..60 {
            // While a program saves all the time, it may be given up.
            let _ = block_on(session.restore([one, two][nth % 2]));
            rounds.fetch_add(1, SeqCst);
        }
        is_over.store(true, SeqCst);
        saving.join().expect("no panic")
    });
    assert!(!overwritten.is_empty());
    // A restore is recorded with the files of its step, whatever was saved meanwhile.
    let wanted = [one, two].map(|step| session.at(step).expect("a step").tree());
    for step in session.as_record().steps() {
        if let Chunk::Restored(restored) = step.chunk() {
            assert!(wanted.contains(&Some(restored.tree.clone())), "{restored:?}");
        }
    }
    let mut recorded = Vec::new();
    for tree in view::trees(session.as_record()).list {
        let then = rath_test_support::temp_dir();
        block_on(session.at(tree.step.id()).expect("a step").checkout(then.path().join("then"))).expect("checked out");
        recorded.push(std::fs::read_to_string(then.path().join("then/a.txt")).expect("a file"));
    }
    let lost: Vec<_> = overwritten.iter().filter(|version| !recorded.contains(version)).collect();
    assert!(lost.is_empty(), "{lost:?} of {}", overwritten.len());
}

#[test]
fn calls_that_write_side_by_side_are_told_apart_by_what_they_touch() {
    let folder = folder(&[]);
    let calls: Vec<_> = (0..8)
        .map(|nth| json!({"name": "write_file", "arguments": {"path": format!("{nth}.txt"), "text": format!("{nth}\n")}}))
        .collect();
    let turns = [json!({ "calls": calls }).to_string(), r#"{"text": "done"}"#.to_owned()];
    let agent = Agent::new("Work.", &script(turns)).tool(WriteFile);
    let session = block_on(agent.run(placed(&folder))).expect("a run");
    let expected: String = (0..8).map(|nth| format!("tool_result: +{nth}.txt\n")).collect();
    assert_eq!(effects(&session), expected);
    for nth in 0..8 {
        let blame = block_on(session.blame(&format!("{nth}.txt"))).expect("objects").expect("a file");
        let Origin::Call(author) = &blame.lines[0].origin else { panic!("{:?}", blame.lines[0]) };
        assert!(author.call.arguments.to_string().contains(&format!("{nth}.txt")), "{author:?}");
    }
}

/// A tool that changes one file, while a person changes another.
struct WriteOne(std::path::PathBuf);

impl Tool for WriteOne {
    fn spec(&self) -> rath::chunk::ToolSpec {
        rath::chunk::ToolSpec::new("write_one", "Writes a file.", json!({"type": "object", "properties": {}}))
    }

    fn touches(&self, _: &serde_json::Value) -> Vec<rath::tool::Touch> {
        vec![rath::tool::Touch::write("one.txt")]
    }

    async fn call(&self, _: &rath::tool::ToolCx, _: serde_json::Value) -> Result<rath::tool::Output> {
        put(&self.0, "one.txt", "by the call\n");
        put(&self.0, "a.txt", "by a person\n");
        Ok("written".into())
    }
}

#[test]
fn a_file_that_a_person_changes_while_a_call_runs_is_not_the_calls() {
    let folder = folder(&[("a.txt", "a\n")]);
    let model = script([r#"{"calls": [{"name": "write_one", "arguments": {}}]}"#, r#"{"text": "done"}"#]);
    let agent = Agent::new("Work.", &model).tool(WriteOne(folder.path().to_owned()));
    let session = block_on(agent.run(placed(&folder))).expect("a run");
    let session = work(session, &[&["echo shell > shell.txt"]]);
    expect![[r#"
        tool_result: +one.txt
        observed: ~a.txt
        tool_result: +shell.txt
    "#]]
    .assert_eq(&effects(&session));
    let write =
        json!({"calls": [{"name": "write_file", "arguments": {"path": "w.txt", "content": "w\n"}}]}).to_string();
    let agent = Agent::new("Work.", &script([write.as_str(), r#"{"text": "done"}"#])).tool(WriteFile);
    let mut session = session;
    session.push(Chunk::user("go on"));
    let session = block_on(agent.run(session)).expect("a run");
    let origin = |path| {
        let blame = block_on(session.blame(path)).expect("objects").expect("a file");
        match &blame.lines[0].origin {
            Origin::Call(author) => format!("{path}: {:?} {}", author.certainty, author.call.tool),
            origin => format!("{path}: {origin:?}"),
        }
    };
    let origins = ["a.txt", "one.txt", "shell.txt", "w.txt"].map(origin);
    assert_eq!(
        origins,
        ["a.txt: Outside", "one.txt: During write_one", "shell.txt: During shell", "w.txt: By write_file"]
    );
}

#[test]
fn a_store_among_the_files_that_tools_write_ends_a_run_before_the_model_is_asked() {
    let folder = folder(&[("a.txt", "a\n")]);
    for uri in ["jsonl:sessions", "sqlite:my.db", "jsonl:below/sessions"] {
        let (kind, path) = uri.split_once(':').expect("a kind");
        let store = block_on(Store::open(&format!("{kind}:{}", folder.path().join(path).display()))).expect("a store");
        let session = block_on(placed(&folder).record(&store)).expect("recorded");
        let error = block_on(worker(&[["rm -rf sessions my.db below"]]).run(session)).expect_err("the store is there");
        assert_eq!(error.kind(), rath::ErrorKind::Place, "{error}");
        assert!(error.message().ends_with("is in the directory that tools write"), "{error}");
        let mut session = error.into_session().expect("the session");
        assert_eq!(session.as_record().newest_first().filter(|step| step.stamp().usage.is_some()).count(), 0);
        // Nor does anything else change files there.
        assert!(block_on(session.check("true", &[])).is_err() && block_on(session.update_files()).is_err());
        assert!(folder.path().join(path).exists());
        close(session, store);
    }
}

#[test]
fn a_session_goes_back_to_an_earlier_state_of_its_files() {
    let folder = folder(&[("a.txt", "one\n")]);
    let mut session = work(placed(&folder), &[&["echo two > a.txt; echo b > b.txt"]]);
    let first = view::trees(session.as_record()).list[0].step.id();
    put(folder.path(), "c.txt", "mine\n");
    let changed = block_on(session.restore(first)).expect("restored");
    assert_eq!(changed.iter().map(draw::describe_effect).collect::<Vec<_>>(), ["~a.txt", "-b.txt", "-c.txt"]);
    expect!["a.txt: one|"].assert_eq(&files(folder.path()));
    // What was there is on the record, mine included.
    let steps = log(&session);
    assert!(steps.contains("changed outside the agent: +c.txt"), "{steps}");
    assert!(steps.contains(&format!("restored to {}: ~a.txt -b.txt -c.txt", first.short())), "{steps}");
}

#[test]
fn blame_follows_a_line_through_a_restore_to_the_call_that_wrote_it() {
    let folder = folder(&[("a.txt", "one\n")]);
    let mut session = work(placed(&folder), &[&["echo two >> a.txt"]]);
    let good = view::trees(session.as_record()).list[1].step.id();
    session = work(session, &[&["echo junk > a.txt; echo junk > b.txt"]]);
    block_on(session.restore(good)).expect("restored");
    session = work(session, &[&["echo three >> a.txt"]]);
    let blame = block_on(session.blame("a.txt")).expect("objects").expect("a file");
    let origins = blame.lines.iter().map(|line| match &line.origin {
        Origin::Call(author) => format!("{}: {}", line.text, author.call.arguments),
        origin => format!("{}: {origin:?}", line.text),
    });
    let origins: Vec<_> = origins.collect();
    let wanted =
        ["one: Before", r#"two: {"command":"echo two >> a.txt"}"#, r#"three: {"command":"echo three >> a.txt"}"#];
    assert_eq!(origins, wanted);
}

#[test]
fn a_regression_that_came_in_by_a_merge_is_found_where_it_was_made() {
    let folder = folder(&[("a.txt", "0\n")]);
    let session = work(placed(&folder), &[&["echo 1 > a.txt"]]);
    let ours = work(session.fork(), &[&["echo x > x.txt"], &["echo y > y.txt"]]);
    let theirs = work(session.fork(), &[&["echo p > p.txt"], &["touch broken"], &["echo q > q.txt"]]);
    let merged = work(block_on(ours.merge(&theirs)).expect("merged"), &[&["echo z > z.txt"]]);
    let argv = ["test", "!", "-e", "broken"].map(str::to_owned);
    let found = block_on(merged.bisect(&argv)).expect("a search");
    let step = merged.as_record().find(found.step.expect("found")).expect("a step");
    let (call, _) = view::find_call(step).expect("a call");
    assert!(call.arguments.to_string().contains("touch broken"), "{call:?}");
    assert_eq!((found.trees, found.runs), (9, 4));
}

#[test]
fn a_session_that_is_opened_again_says_which_files_are_not_as_they_were_left() {
    let (folder, kept) = (folder(&[("a.txt", "one\n"), (".gitignore", "*.log\n")]), folder(&[]));
    let uri = format!("sqlite:{}", kept.path().join("s.db").display());
    let store = block_on(Store::open(&uri)).expect("a store");
    let session = block_on(placed(&folder).record(&store)).expect("recorded");
    let id = work(session, &[&["echo two > a.txt; echo b > b.txt"]]).id();
    close((), store);

    let store = block_on(Store::open(&uri)).expect("a store");
    let resume = || block_on(store.resume(id)).expect("a session");
    assert_eq!(resume().certificate().to_string(), "nothing has changed");
    put(folder.path(), "a.txt", "mine\n");
    put(folder.path(), "c.txt", "mine\n");
    put(folder.path(), "noise.log", "no version of this is kept\n");
    std::fs::remove_file(folder.path().join("b.txt")).expect("removed");
    expect!["files changed since the last turn: ~a.txt, -b.txt, +c.txt"]
        .assert_eq(resume().certificate().to_string().trim_end());
    assert!(resume().complete().is_err());
    let session = work(resume().accept_file_changes().expect("that is all"), &[&["echo three >> a.txt"]]);
    expect![[r#"
        tool_result: ~a.txt +b.txt
        observed: ~a.txt -b.txt +c.txt
        tool_result: ~a.txt
    "#]]
    .assert_eq(&effects(&session));
    drop(session);
    assert_eq!(resume().certificate().to_string(), "nothing has changed");
    std::fs::remove_dir_all(folder.path()).expect("removed");
    assert!(resume().complete().is_err());
}

#[test]
fn a_killed_merge_writes_nothing_over_a_conflict_and_is_finished_when_the_conflict_is_gone() {
    let (folder, kept) = (folder(&[("a.txt", "1\n"), ("b.txt", "1\n"), ("c.txt", "1\n")]), folder(&[]));
    let uri = format!("sqlite:{}", kept.path().join("s.db").display());
    let store = block_on(Store::open(&uri)).expect("a store");
    let session = work(block_on(placed(&folder).record(&store)).expect("recorded"), &[&["echo d > d.txt"]]);
    let ours = work(session.fork(), &[&["echo 2 > a.txt; echo 2 > b.txt"]]);
    let merged = block_on(ours.merge(&work(session.fork(), &[&["echo 2 > c.txt"]]))).expect("merged");
    let (before, after) = (session.tree().expect("a tree").0, merged.tree().expect("a tree").0);
    let (first, id) = (session.as_record().steps()[0].stamp().branch, merged.id());
    block_on(merged.durable()).expect("written");
    close((session, ours, merged), store);

    // A process that was killed half-way, and then a change of the user's.
    put(folder.path(), ".rath/workspace/updates/root", &format!("{before} {after} {first}\n"));
    put(folder.path(), "a.txt", "2\n");
    put(folder.path(), "b.txt", "mine\n");
    let store = block_on(Store::open(&uri)).expect("a store");
    let resume = || block_on(store.resume(id)).expect("a session").complete().expect("nothing else has changed");
    for _ in 0..2 {
        // No model is asked.
        let mut session = resume();
        session.push(Chunk::user("go on"));
        let error = block_on(worker(&[&["echo e > e.txt"]]).run(session));
        let error = error.expect_err("a conflict");
        assert!(error.message().starts_with("`b.txt` was changed in the directory meanwhile"), "{error}");
        assert_eq!(files(folder.path()), "a.txt: 2|\nb.txt: mine|\nc.txt: 1|\nd.txt: d|");
        assert!(!folder.path().join(".rath/work").join(id.to_string()).exists());
    }
    put(folder.path(), "b.txt", "1\n");
    put(folder.path(), "f.txt", "mine\n");
    work(resume(), &[&["echo e > e.txt"]]);
    assert_eq!(files(folder.path()), "a.txt: 2|\nb.txt: 2|\nc.txt: 2|\nd.txt: d|\ne.txt: e|\nf.txt: mine|");
    assert!(!folder.path().join(".rath/workspace/updates/root").exists());
}

#[test]
fn a_check_on_a_link_depends_on_the_file_that_it_leads_to() {
    let link = |target: &str, path: &Path| std::os::unix::fs::symlink(target, path);
    for (input, changed) in
        [("link", "data/a.txt"), ("src", "data/a.txt"), ("way/a.txt", "data/a.txt"), ("link", "way")]
    {
        let folder = folder(&[("data/a.txt", "1\n"), ("src/main.txt", "1\n"), ("other.txt", "1\n")]);
        link("way/a.txt", &folder.path().join("link")).expect("a link");
        link("data", &folder.path().join("way")).expect("a link");
        link("../link", &folder.path().join("src/own")).expect("a link");
        let mut session = work(placed(&folder), &[&["true"]]);
        assert_eq!(block_on(session.check("true", &[input.to_owned()])).expect("it ran"), Verdict::Passed);
        put(folder.path(), "other.txt", "2\n");
        block_on(session.require_check("true")).expect("it does not depend on that");
        if changed == "way" {
            std::fs::remove_file(folder.path().join("way")).expect("removed");
            link("src", &folder.path().join("way")).expect("a link");
        } else {
            put(folder.path(), changed, "2\n");
        }
        block_on(session.require_check("true")).expect_err("the file is another one");
    }
}

#[test]
fn a_check_on_a_link_to_a_file_that_is_not_compared_is_refused() {
    let folder = folder(&[(".gitignore", "*.log\n"), ("x.log", "1\n")]);
    for (name, target) in [("ignored", "x.log"), ("outside", "/etc/passwd"), ("above", "../x"), ("loop", "loop")] {
        std::os::unix::fs::symlink(target, folder.path().join(name)).expect("a link");
    }
    let mut session = work(placed(&folder), &[&["true"]]);
    for name in ["ignored", "outside", "above", "loop"] {
        let error = block_on(session.check("true", &[name.to_owned()])).expect_err("nothing would be compared");
        assert!(error.message().contains("not compared"), "{}", error.message());
    }
}

#[test]
fn a_check_during_which_a_file_changed_and_changed_back_does_not_hold() {
    for (inputs, holds) in [(&[][..], false), (&["a.txt"], false), (&["b.txt"], true)] {
        let folder = folder(&[("a.txt", "1\n"), ("b.txt", "1\n")]);
        let mut session = work(placed(&folder), &[&["true"]]);
        let inputs: Vec<_> = inputs.iter().map(|input| (*input).to_owned()).collect();
        let command = "echo 2 > a.txt; echo 1 > a.txt";
        assert_eq!(block_on(session.check(command, &inputs)).expect("it ran"), Verdict::Passed);
        assert_eq!(block_on(session.require_check(command)).is_ok(), holds, "{inputs:?}");
        // One that changes nothing holds.
        assert_eq!(block_on(session.check("true", &inputs)).expect("it ran"), Verdict::Passed);
        block_on(session.require_check("true")).expect("nothing changed");
    }
}
