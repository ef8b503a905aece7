//! Work that is kept aside: it is on the record and paid for, and no view but spending and lineage shows it.

use rath::chunk::{Resolution, ToolSpec, Verdict};
use rath::prelude::*;
use rath::tool::builtin::{Shell, WriteFile};
use rath::tool::{Output, Touch};
use rath::view::{self, Freshness};
use rath::{Line, Origin};
use serde_json::json;

use crate::files::{effects, files, placed, work};
use crate::support::{block_on, folder, script};

/// Describes the origin of a line.
fn origin(line: &Line) -> String {
    match &line.origin {
        Origin::Call(author) => format!("{} {}", author.call.tool, author.call.arguments),
        other => format!("{other:?}"),
    }
}

/// Returns an agent that lets another one write `a.txt`, then answers.
fn delegating() -> Agent {
    let write = r#"{"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "by the helper\n"}}]}"#;
    let helper = Agent::new("Help.", &script([write, r#"{"text": "written"}"#])).tool(WriteFile);
    let ask = r#"{"calls": [{"name": "help", "arguments": {"task": "write a.txt"}}]}"#;
    Agent::new("Work.", &script([ask, r#"{"text": "done"}"#])).delegate("help", helper)
}

/// The changes of a sub-agent are those of the call that ran it: they are in that call's result, and not only aside.
#[test]
fn a_call_has_the_changes_of_the_workflow_that_it_ran() {
    let folder = folder(&[("b.txt", "b\n")]);
    let session = block_on(delegating().run(placed(&folder))).expect("a run");
    assert_eq!(effects(&session), "tool_result: +a.txt\n");
    let files = view::files(session.as_record());
    assert_eq!(files.list.keys().copied().collect::<Vec<_>>(), ["a.txt"]);
    let blame = block_on(session.blame("a.txt")).expect("objects").expect("a file");
    assert_eq!(origin(&blame.lines[0]), r#"help {"task":"write a.txt"}"#);
}

/// A tool that lets an agent do its work, and writes a file itself.
struct Ask(Agent);

impl Tool for Ask {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("ask", "Asks an agent.", json!({"type": "object"}))
    }

    fn touches(&self, _: &serde_json::Value) -> Vec<Touch> {
        vec![Touch::everything()]
    }

    async fn call(&self, cx: &ToolCx, _: serde_json::Value) -> Result<Output> {
        cx.run(&self.0, "write").await?;
        cx.sandbox().await?.write("g.txt", b"g\n").await?;
        Ok("done".into())
    }
}

/// Sub-agents that work in one directory at the same time, one of them through another and one through a tool, and a call beside
/// them: each has its own changes, and no others. None waits for ever for its turn.
#[test]
fn sub_agents_at_the_same_time_do_not_get_each_others_changes() {
    [1, 2, 3, 16].into_iter().for_each(check_sub_agents);
}

fn check_sub_agents(max_concurrent_calls: usize) {
    let calls = |calls: &[(&str, serde_json::Value)]| {
        let call = |(name, arguments): &(&str, serde_json::Value)| json!({"name": name, "arguments": arguments});
        json!({"calls": calls.iter().map(call).collect::<Vec<_>>()}).to_string()
    };
    let shell = |name: &str, nth: usize| {
        let command = format!("echo {nth} >> {name}.txt; sleep 0.02; echo {nth} > {name}{nth}.txt; sleep 0.02");
        ("shell", json!({"command": command}))
    };
    let done = || r#"{"text": "done"}"#.to_owned();
    let helper = |name: &str| {
        let turns =
            [calls(&[shell(name, 1)]), calls(&[shell(name, 2), shell(name, 3)]), calls(&[shell(name, 4)]), done()];
        Agent::new("Help.", &script(turns)).tool(Shell)
    };
    let task = json!({"task": "write"});
    let pass_on = calls(&[("inner", task.clone())]);
    let through = Agent::new("Pass on.", &script([pass_on, done()])).delegate("inner", helper("c"));
    let ask = [("first", task.clone()), ("second", task.clone()), shell("d", 1), ("ask", json!({})), ("third", task)];
    let agent = Agent::new("Work.", &script([calls(&ask), done()]))
        .max_concurrent_calls(max_concurrent_calls)
        .tool(Shell)
        .tool(Ask(helper("f")))
        .delegate("first", helper("a"))
        .delegate("second", helper("b"))
        .delegate("third", through);
    let folder = folder(&[("e.txt", "e\n")]);
    let session = block_on(agent.run(placed(&folder))).expect("a run");
    let of = |name: &str| "+X.txt +X1.txt +X2.txt +X3.txt +X4.txt".replace('X', name);
    let expected = [of("a"), of("b"), "+d.txt +d1.txt".to_owned(), of("f") + " +g.txt", of("c")];
    let expected: String = expected.iter().map(|effects| format!("tool_result: {effects}\n")).collect();
    assert_eq!(effects(&session), expected, "{}", session.lineage());
    // Of the calls of the sub-agents too.
    for step in session.lineage().walk() {
        let (Chunk::ToolResult(result), Some((call, _))) = (step.chunk(), view::find_call(step)) else { continue };
        let command = call.arguments.as_str().unwrap_or_default();
        let is_own = |path: &str| &*call.tool != "shell" || command.contains(&format!(" {path}"));
        assert!(result.effects.iter().all(|effect| is_own(&effect.path)), "{command}: {:?}", result.effects);
    }
    for (name, tool) in [("a", "first"), ("b", "second"), ("c", "third"), ("d", "shell"), ("f", "ask")] {
        for path in [format!("{name}.txt"), format!("{name}1.txt")] {
            let blame = block_on(session.blame(&path)).expect("objects").expect("a file");
            assert!(blame.lines.iter().all(|line| origin(line).starts_with(tool)), "{path}: {blame:?}");
        }
    }
    // The directory has the files on the record: nothing is observed between the calls of the session, and nothing after them.
    let session = work(session, &[&["true"]]);
    let observed = session.as_record().steps().into_iter().filter(|step| matches!(step.chunk(), Chunk::Observed(_)));
    assert_eq!(observed.count(), 1, "{}", session.lineage());
}

/// Returns the session after a program that tries three times, checks each and merges the second. The others are kept aside.
fn best_of_three(folder: &rath_test_support::TempDir) -> Session {
    let session = work(placed(folder), &[&["echo start > log.txt"]]);
    let tries = ["echo 1 > a.txt; echo first >> log.txt", "echo 2 > a.txt; echo second >> log.txt", "echo 3 > a.txt"];
    let tries: Vec<_> = tries.iter().map(|command| work(session.fork(), &[&[command]])).collect();
    let checked = tries.into_iter().map(|mut one| {
        let verdict = block_on(one.check("grep -q 2 a.txt", &[])).expect("it ran");
        (one, verdict)
    });
    let (won, lost): (Vec<_>, Vec<_>) = checked.partition(|(_, verdict)| *verdict == Verdict::Passed);
    let mut session = block_on(session.merge(&won[0].0)).expect("merged");
    lost.iter().for_each(|(one, _)| session.keep_aside(one));
    session
}

#[test]
fn what_a_losing_try_did_overrules_nothing_of_the_winner() {
    let folder = folder(&[]);
    let session = best_of_three(&folder);
    assert_eq!(session.lineage().walk().iter().filter(|step| step.chunk().kind() == "checked").count(), 3);
    block_on(session.require_check("grep -q 2 a.txt")).expect("the winner's check holds");
    let checks = session.checks();
    assert_eq!(checks.list["grep -q 2 a.txt"].freshness, Freshness::Fresh);
    let changed = view::files(session.as_record());
    assert!(changed.list.values().all(|file| file.diverged.is_empty()), "{changed:?}");
    assert!(view::trees(session.as_record()).list.iter().all(|tree| session.as_record().steps().contains(&tree.step)));
    block_on(session.update_files()).expect("written");
    assert_eq!(files(folder.path()), "a.txt: 2|\nlog.txt: start|second|");
    let blame = block_on(session.blame("a.txt")).expect("objects").expect("a file");
    assert_eq!(origin(&blame.lines[0]), r#"shell {"command":"echo 2 > a.txt; echo second >> log.txt"}"#);
    assert_eq!(blame.lines[0].checks, ["grep -q 2 a.txt"]);
    // No try of the others is among the versions that are searched.
    let argv = ["grep", "-q", "nothing", "a.txt"].map(str::to_owned);
    let found = block_on(session.bisect(&argv)).expect("a search");
    assert_eq!(found.trees, 3, "{found:?}");
}

/// The session has run no tool itself, so it has no version of the files that its forks began with.
#[test]
fn a_fork_of_a_new_session_brings_its_files_to_the_directory() {
    let folder = folder(&[("a.txt", "a\n")]);
    let session = placed(&folder);
    let lost = work(session.fork(), &[&["echo 1 > b.txt"]]);
    let won = work(session.fork(), &[&["echo 2 > b.txt; rm a.txt"]]);
    let mut session = block_on(session.merge(&won)).expect("merged");
    session.keep_aside(&lost);
    crate::support::put(folder.path(), "mine.txt", "mine\n");
    block_on(session.update_files()).expect("written");
    assert_eq!(files(folder.path()), "b.txt: 2|\nmine.txt: mine|");
}

#[test]
fn losing_tries_are_repeated_on_their_own_files() {
    let (folder, fresh) = (folder(&[]), rath_test_support::temp_dir());
    let session = best_of_three(&folder);
    let repeat = session.repeat(rath::tool::builtin::all(), Sandbox::local(fresh.path()));
    assert_eq!(block_on(repeat).expect("repeated").to_string(), "exact: 8 requests, 4 calls, 6 files");
}

#[test]
fn work_aside_that_is_merged_later_brings_its_files() {
    let folder = folder(&[]);
    let mut session = work(placed(&folder), &[&["echo a > a.txt"]]);
    let other = work(session.fork(), &[&["echo b > b.txt"]]);
    session.keep_aside(&other);
    let merged = block_on(session.merge(&other)).expect("merged");
    block_on(merged.update_files()).expect("written");
    assert_eq!(files(folder.path()), "a.txt: a|\nb.txt: b|");
}

#[test]
fn a_failed_check_is_no_cover() {
    let folder = folder(&[]);
    let mut session = work(placed(&folder), &[&["echo a > a.txt"]]);
    for command in ["test -e a.txt", "test -e b.txt"] {
        block_on(session.check(command, &[])).expect("it ran");
    }
    let blame = block_on(session.blame("a.txt")).expect("objects").expect("a file");
    assert_eq!(blame.lines[0].checks, ["test -e a.txt"]);
    assert_eq!(blame.lines[0].failed_checks, ["test -e b.txt"]);
}

#[test]
fn a_version_with_undecided_conflicts_is_not_tested() {
    let folder = folder(&[("a.txt", "0\n")]);
    let session = work(placed(&folder), &[&["true"]]);
    let ours = work(session.fork(), &[&["echo 1 > a.txt"]]);
    let theirs = work(session.fork(), &[&["echo 2 > a.txt"]]);
    let mut merged = block_on(ours.merge(&theirs)).expect("merged");
    let argv = ["sh", "-c", "test -e fine || ! grep -e 3 -e '<<<' a.txt"].map(str::to_owned);
    // The conflict itself would be found, and it is no one's mistake.
    let error = block_on(merged.bisect(&argv)).expect_err("the newest files are in conflict");
    assert!(error.to_string().contains("files are in conflict: `a.txt`"), "{error}");
    block_on(merged.decide("a.txt", Resolution::Ours)).expect("decided");
    let merged = work(merged, &[&["echo b > b.txt"], &["echo 3 > a.txt"]]);
    let found = block_on(merged.bisect(&argv)).expect("a search");
    let step = merged.as_record().find(found.step.expect("found")).expect("a step");
    let (call, _) = view::find_call(step).expect("a call");
    assert!(call.arguments.to_string().contains("echo 3"), "{call:?}");
}
