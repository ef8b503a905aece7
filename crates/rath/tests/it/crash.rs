//! After a crash the files are looked at: whatever ends a call whose end was not observed, what has changed is on the record.

use std::path::Path;

use expect_test::expect;
use rath::chunk::ToolSpec;
use rath::prelude::*;
use rath::tool::builtin::Shell;
use rath::tool::{Nature, Output};
use rath::turn::{Next, Progress};
use rath::{BranchId, Origin};
use serde_json::{Value, json};

use crate::files::{effects, files, placed};
use crate::support::{block_on, close, folder, log, put, script, worker};

/// A way to go on with a call in doubt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Skip,
    GiveResult,
    Deny,
    Approve,
    /// Nothing is decided. What changed is on the record because the session was opened again.
    Nothing,
}

/// The place in which the call was made.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Where {
    Root,
    Fork,
}

/// The changes to files that were made between two looks, by author.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Changed {
    Nothing,
    ByCall,
    ByOthers,
    ByBoth,
}

impl Changed {
    fn by_call(self) -> bool {
        matches!(self, Changed::ByCall | Changed::ByBoth)
    }

    fn by_others(self) -> bool {
        matches!(self, Changed::ByOthers | Changed::ByBoth)
    }
}

/// A session whose program ended while its second call ran.
struct Crashed {
    folder: rath_test_support::TempDir,
    kept: rath_test_support::TempDir,
    id: BranchId,
    directory: std::path::PathBuf,
    command: String,
}

impl Crashed {
    fn new(place: Where, changed: Changed) -> Self {
        let (folder, kept) = (folder(&[("a.txt", "one\n")]), folder(&[]));
        let store = open(kept.path());
        let mut session = block_on(placed(&folder).record(&store)).expect("recorded");
        session = block_on(worker(&[&["echo two >> a.txt"]]).run(session)).expect("a run");
        let root = folder.path().to_owned();
        let directory = match place {
            Where::Root => root,
            Where::Fork => {
                session = block_on(session.fork().record(&store)).expect("recorded");
                root.join(".rath/work").join(session.id().to_string())
            }
        };
        session.push(Chunk::user("go on"));
        let (begun, again) = (kept.path().join("begun"), kept.path().join("again"));
        let change = if changed.by_call() { "echo three >> a.txt; echo new > new.txt;" } else { "" };
        // A call that is made again ends.
        let command = format!("{change} touch '{}'; test -e '{}' || exec sleep 1000", begun.display(), again.display());
        let (id, agent) = (session.id(), worker(&[&[&command]]));
        block_on(async {
            tokio::select! {
                _ = agent.run(session) => panic!("the call does not end"),
                () = async { while !begun.exists() { tokio::time::sleep(std::time::Duration::from_millis(2)).await } } => {}
            }
        });
        std::fs::write(again, "").expect("written");
        if changed.by_others() {
            put(&directory, "mine.txt", "mine\n");
        }
        block_on(store.close()).expect("closed");
        Crashed { folder, kept, id, directory, command }
    }
}

fn open(kept: &Path) -> Store {
    block_on(Store::open(&format!("sqlite:{}", kept.join("s.db").display()))).expect("a store")
}

/// Ends the calls in doubt.
fn end(session: &mut Session, end: End, crashed: &Crashed) {
    let Next::RunTools(calls) = session.next() else { panic!("no call is open") };
    assert_eq!(calls.iter().map(|it| it.progress.clone()).collect::<Vec<_>>(), [Progress::Unknown]);
    let call = calls[0].call.id.clone();
    match end {
        End::Skip => block_on(session.skip(call)),
        End::GiveResult => block_on(session.give_result(call, "done by hand")),
        End::Deny => session.deny(call, "no"),
        End::Approve => session.approve(call),
        End::Nothing => return,
    }
    .expect("it is in doubt");
    // The script of the model goes on after the call.
    let agent = worker(&[&[&crashed.command]]);
    *session = block_on(agent.run(session.clone())).unwrap_or_else(|error| panic!("{end:?}: {error}"));
}

#[test]
fn whatever_ends_a_call_in_doubt_the_files_are_on_the_record() {
    for place in [Where::Root, Where::Fork] {
        for changed in [Changed::Nothing, Changed::ByCall, Changed::ByOthers, Changed::ByBoth] {
            for way in [End::Skip, End::GiveResult, End::Deny, End::Approve, End::Nothing] {
                check(place, changed, way);
            }
        }
    }
}

fn check(place: Where, changed: Changed, way: End) {
    let case = format!("{place:?}, {changed:?}, {way:?}");
    let crashed = Crashed::new(place, changed);
    let store = open(crashed.kept.path());
    let resumed = block_on(store.resume(crashed.id)).expect("a session");
    // The certificate names the call, and the files that it or others changed.
    let told = resumed.certificate().to_string();
    assert!(told.contains("its result is unknown"), "{case}: {told}");
    for (is_changed, path) in [(changed.by_call(), "+new.txt"), (changed.by_others(), "+mine.txt")] {
        assert_eq!(told.contains(path), is_changed, "{case}: {told}");
    }
    let mut session = resumed.to_decide().expect("nothing else differs");
    end(&mut session, way, &crashed);
    block_on(session.durable()).expect("durable");
    // The files on the record are those in the directory.
    let checkout = crashed.kept.path().join("checkout");
    block_on(session.checkout(&checkout)).unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!(files(&checkout), files(&crashed.directory), "{case}");
    // What changed is told of the call or of others.
    let blamed = |path: &str| block_on(session.blame(path)).expect("versions").expect("a file").lines.remove(0).origin;
    for (is_changed, path) in [(changed.by_call(), "new.txt"), (changed.by_others(), "mine.txt")] {
        if is_changed {
            let (origin, is_again) = (blamed(path), way == End::Approve && path == "new.txt");
            assert!(matches!(origin, Origin::InDoubt(_)) || is_again, "{case}: {path}: {origin:?}");
        }
    }
    // Nobody is told of a difference again.
    close(session, store);
    let store = open(crashed.kept.path());
    let resumed = block_on(store.resume(crashed.id)).expect("a session");
    let told = resumed.certificate().to_string();
    match way {
        End::Nothing => assert!(told.contains("its result is unknown") && !told.contains(".txt"), "{case}: {told}"),
        _ => assert_eq!(told, "nothing has changed", "{case}"),
    }
    close(resumed, store);
    drop(crashed.folder);
}

#[test]
fn the_log_tells_who_may_have_changed_the_files() {
    let crashed = Crashed::new(Where::Root, Changed::ByBoth);
    let store = open(crashed.kept.path());
    let mut session = block_on(store.resume(crashed.id)).expect("a session").to_decide().expect("a call in doubt");
    block_on(session.skip("call_1_1")).expect("it is in doubt");
    expect![[r#"
        tool_result: ~a.txt
        observed: ~a.txt +mine.txt +new.txt
    "#]]
    .assert_eq(&effects(&session));
    let told = log(&session);
    let told: Vec<_> =
        told.lines().rev().take(2).map(|line| line.split_once("  ").map_or(line, |(_, told)| told)).collect();
    expect![[r#"
        tool result: call_1_1 unknown: it was started, and whether it took effect is not …
        changed by call_1_1, or outside the agent: ~a.txt +mine.txt +new.txt"#]]
    .assert_eq(&told.join("\n"));
    close(session, store);
}

/// A result without its tree would make the record forget the files.
#[test]
fn a_call_whose_files_could_not_be_stored_has_no_result() {
    let folder = folder(&[("a.txt", "one\n")]);
    let (objects, away) = (folder.path().join(".rath/workspace/objects"), folder.path().join(".rath/away"));
    let block = format!("echo two >> a.txt; mv '{0}' '{1}' && touch '{0}'", objects.display(), away.display());
    let error = block_on(worker(&[&[&block]]).run(placed(&folder))).expect_err("nothing can be stored");
    let mut session = error.into_session().expect("the session so far");
    let Next::RunTools(calls) = session.next() else { panic!("the call is closed: {}", log(&session)) };
    assert_eq!(calls[0].progress, Progress::Unknown);
    // It is not closed either without a look at the files.
    let before = log(&session);
    block_on(session.skip("call_1_1")).expect_err("nothing can be stored");
    assert_eq!(log(&session), before);
    std::fs::remove_file(&objects).expect("removed");
    std::fs::rename(away, &objects).expect("renamed");
    block_on(session.skip("call_1_1")).expect("it is in doubt");
    expect!["observed: ~a.txt\n"].assert_eq(&effects(&session));
    let checkout = folder.path().join(".rath/checkout");
    block_on(session.checkout(&checkout)).expect("checked out");
    assert_eq!(files(&checkout), files(folder.path()));
}

/// A tool that asks an agent, and leaves a file when it is done.
struct Ask {
    agent: Agent,
    done: std::path::PathBuf,
}

impl Tool for Ask {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("ask", "Asks an agent.", json!({"type": "object"}))
    }

    fn nature(&self, _: &Value) -> Nature {
        Nature::ReadOnly
    }

    async fn call(&self, cx: &ToolCx, _: Value) -> Result<Output> {
        let session = cx.run(&self.agent, "What do you think?").await?;
        std::fs::write(&self.done, "")?;
        Ok(session.text().unwrap_or_default().into())
    }
}

/// An error of one call takes nothing away that the others have done and that was paid for.
#[test]
fn what_the_other_calls_of_a_failed_round_did_is_on_the_record() {
    for is_first in [true, false] {
        let (folder, kept) = (folder(&[("a.txt", "one\n")]), folder(&[]));
        let (objects, away) = (folder.path().join(".rath/workspace/objects"), folder.path().join(".rath/away"));
        let done = kept.path().join("done");
        let block = format!(
            "until test -e '{2}'; do sleep 0.01; done; echo two >> a.txt; echo out; mv '{0}' '{1}' && touch '{0}'",
            objects.display(),
            away.display(),
            done.display()
        );
        let mut calls = vec![json!({"name": "shell", "arguments": {"command": block}}), json!({"name": "ask"})];
        if !is_first {
            calls.reverse();
        }
        let asked = script([r#"{"text": "A lot."}"#]);
        let ask = Ask { agent: Agent::new("Think.", &asked).named("thinker"), done };
        let agent = Agent::new("Work.", &script([json!({ "calls": calls }).to_string()])).tool(Shell).tool(ask);
        let error = block_on(agent.run(placed(&folder))).expect_err("nothing can be stored");
        let session = error.into_session().expect("the session so far");
        let lineage = session.lineage().to_string();
        for expected in ["ok: A lot.", "[agent.thinker]", "shell ended, but", "tool started"] {
            assert!(lineage.contains(expected), "{is_first}, {expected}:\n{lineage}");
        }
        let Next::RunTools(open) = session.next() else { panic!("the call is closed: {lineage}") };
        let open: Vec<_> = open.iter().map(|open| (&*open.call.tool, open.progress.clone())).collect();
        assert_eq!(open, [("shell", Progress::Unknown)]);
    }
}

/// A directory that is missing for now cannot be looked at, and the record goes on to say so.
#[test]
fn a_call_that_ends_while_its_directory_is_missing_stays_unobserved() {
    let crashed = Crashed::new(Where::Root, Changed::ByCall);
    let store = open(crashed.kept.path());
    let mut session = block_on(store.read(crashed.id)).expect("a session").session;
    let (here, away) = (crashed.folder.path().to_owned(), crashed.kept.path().join("away"));
    std::fs::rename(&here, &away).expect("moved");
    block_on(session.skip("call_1_1")).expect("it is in doubt");
    std::fs::rename(&away, &here).expect("moved back");
    let unobserved = rath::view::unobserved(session.as_record()).expect("nobody looked");
    assert_eq!(unobserved.calls, [rath::CallId::from("call_1_1")]);
    close(session, store);
}

/// A tool that may be made again. Each time it leaves another file; it does not end before `end` exists.
struct Stamp {
    root: std::path::PathBuf,
    end: std::path::PathBuf,
}

impl Tool for Stamp {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("stamp", "Leaves a file.", json!({"type": "object"}))
    }

    fn nature(&self, _: &Value) -> Nature {
        Nature::Idempotent { key: None }
    }

    async fn call(&self, _: &ToolCx, _: Value) -> Result<Output> {
        let nth = std::fs::read_dir(&self.root)?.flatten().filter(|it| it.file_name() != ".rath").count();
        put(&self.root, &format!("stamp-{nth}"), "here\n");
        match self.end.exists() {
            true => Ok("stamped".into()),
            false => std::future::pending().await,
        }
    }
}

/// However often a call that may be made again is interrupted, what it changed is never taken for the work of others.
#[test]
fn each_interrupted_attempt_of_a_call_has_its_changes_on_the_record() {
    let (folder, kept) = (folder(&[]), folder(&[]));
    let (root, end) = (folder.path().to_owned(), kept.path().join("end"));
    let agent = || {
        let turns = [r#"{"calls": [{"name": "stamp"}]}"#, r#"{"text": "done"}"#];
        Agent::new("Work.", &script(turns)).tool(Stamp { root: root.clone(), end: end.clone() })
    };
    let store = open(kept.path());
    let mut session = block_on(placed(&folder).record(&store)).expect("recorded");
    let id = session.id();
    for nth in 0..3 {
        block_on(async {
            let (agent, stamp) = (agent(), root.join(format!("stamp-{nth}")));
            tokio::select! {
                _ = agent.run(session) => panic!("the call does not end"),
                () = async { while !stamp.exists() { tokio::time::sleep(std::time::Duration::from_millis(2)).await } } => {}
            }
        });
        session = block_on(store.resume(id)).expect("a session").to_decide().expect("nothing else differs");
    }
    std::fs::write(&end, "").expect("written");
    session = block_on(agent().run(session)).expect("a run");
    let observed = session.as_record().steps().into_iter().filter_map(|step| match step.chunk() {
        Chunk::Observed(observed) if !observed.effects.is_empty() => {
            let paths: Vec<_> = observed.effects.iter().map(|effect| &*effect.path).collect();
            Some(format!("{} by {:?}", paths.join(" "), observed.calls))
        }
        _ => None,
    });
    expect![[r#"
        stamp-0 by [call_1_1]
        stamp-1 by [call_1_1]
        stamp-2 by [call_1_1]"#]]
    .assert_eq(&observed.collect::<Vec<_>>().join("\n"));
    let report = block_on(session.replay(&agent())).expect("a replay");
    assert!(report.is_exact(), "{report}");
    close(session, store);
}

/// A store of versions that can be taken away and put back.
#[derive(Clone)]
struct Versions {
    objects: std::path::PathBuf,
    away: std::path::PathBuf,
}

impl Versions {
    fn of(folder: &Path) -> Self {
        Versions { objects: folder.join(".rath/workspace/objects"), away: folder.join(".rath/away") }
    }

    fn take_away(&self) {
        std::fs::rename(&self.objects, &self.away).expect("renamed");
        std::fs::write(&self.objects, "").expect("written");
    }

    fn put_back(&self) {
        std::fs::remove_file(&self.objects).expect("removed");
        std::fs::rename(&self.away, &self.objects).expect("renamed");
    }
}

/// A tool that leaves a file of its name. Two of them run at the same time.
struct Leave {
    name: &'static str,
    root: std::path::PathBuf,
    then: Box<dyn Fn() -> std::task::Poll<()> + Send + Sync>,
}

impl Tool for Leave {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new(self.name, "Leaves a file.", json!({"type": "object"}))
    }

    fn touches(&self, _: &Value) -> Vec<rath::tool::Touch> {
        vec![rath::tool::Touch::write(self.name)]
    }

    async fn call(&self, _: &ToolCx, _: Value) -> Result<Output> {
        put(&self.root, self.name, "here\n");
        std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            (self.then)()
        })
        .await;
        Ok("left".into())
    }
}

/// After a look that failed, the next one would take the changes of two calls for those of one.
#[test]
fn no_call_is_given_the_changes_of_another_that_could_not_be_looked_at() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::task::Poll;
    for is_first in [true, false] {
        let folder = folder(&[("a.txt", "one\n")]);
        let (root, versions) = (folder.path().to_owned(), Versions::of(folder.path()));
        let (has_begun, has_ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let first = {
            let (versions, has_begun, has_ended) = (versions.clone(), has_begun.clone(), has_ended.clone());
            move || {
                if !has_begun.load(SeqCst) {
                    return Poll::Pending;
                }
                versions.take_away();
                has_ended.store(true, SeqCst);
                Poll::Ready(())
            }
        };
        let second = {
            let versions = versions.clone();
            move || {
                has_begun.store(true, SeqCst);
                if !has_ended.load(SeqCst) {
                    return Poll::Pending;
                }
                versions.put_back();
                Poll::Ready(())
            }
        };
        let mut calls = vec![json!({"name": "first"}), json!({"name": "second"})];
        if !is_first {
            calls.reverse();
        }
        let agent = Agent::new("Work.", &script([json!({ "calls": calls }).to_string()]))
            .tool(Leave { name: "first", root: root.clone(), then: Box::new(first) })
            .tool(Leave { name: "second", root, then: Box::new(second) });
        let error = block_on(agent.run(placed(&folder))).expect_err("the files could not be stored");
        let mut session = error.into_session().expect("the session so far");
        let lineage = session.lineage().to_string();
        let Next::RunTools(open) = session.next() else { panic!("the calls are closed: {lineage}") };
        assert_eq!(open.len(), 2, "{lineage}");
        assert!(open.iter().all(|open| open.progress == Progress::Unknown), "{lineage}");
        block_on(session.skip("call_1_1")).expect("it is in doubt");
        expect!["observed: +first +second\n"].assert_eq(&effects(&session));
    }
}

/// A run that was stopped says so, also if the files cannot be looked at.
#[test]
fn a_stop_is_on_the_record_even_if_the_files_cannot_be_stored() {
    let folder = folder(&[("a.txt", "one\n")]);
    let (root, versions, cancel) = (folder.path().to_owned(), Versions::of(folder.path()), Cancel::new());
    let stop = {
        let cancel = cancel.clone();
        move || {
            if !cancel.is_cancelled() {
                versions.take_away();
                cancel.cancel();
            }
            std::task::Poll::Pending
        }
    };
    let agent = Agent::new("Work.", &script([r#"{"calls": [{"name": "stop"}]}"#])).tool(Leave {
        name: "stop",
        root,
        then: Box::new(stop),
    });
    let error = block_on(agent.run(placed(&folder).until(&cancel))).expect_err("it was stopped");
    let message = error.to_string();
    let session = error.into_session().expect("the session so far");
    let log = log(&session);
    assert!(log.contains("interrupted: the run was cancelled"), "{message}: {log}");
    assert!(!message.contains("cancelled"), "{message}");
    let Next::RunTools(open) = session.next() else { panic!("the call is closed: {log}") };
    assert_eq!(open[0].progress, Progress::Unknown);
}

/// A call that is refused at the last moment has its result like any other.
#[cfg(unix)]
#[test]
fn a_call_whose_path_was_moved_meanwhile_is_refused_on_the_record() {
    let folder = folder(&[("a.txt", "one\n"), ("b.txt", "two\n")]);
    std::os::unix::fs::symlink("a.txt", folder.path().join("link")).expect("a link");
    let calls = json!({"calls": [
        {"name": "shell", "arguments": {"command": "ln -sfn b.txt link"}},
        {"name": "read_file", "arguments": {"path": "link"}},
    ]});
    let agent = Agent::new("Work.", &script([calls.to_string(), r#"{"text": "done"}"#.to_owned()]))
        .tools(rath::tool::builtin::all());
    let rule = "deny read secret.txt".parse().expect("a rule");
    let policy = Policy::new(Mode::Full).rule(rule);
    let session = block_on(agent.run(placed(&folder).under(policy))).expect("a run");
    let log = log(&session);
    assert!(log.contains("call_1_2 denied: a path leads to another file"), "{log}");
    assert_eq!(log.matches("tool result: call_1_2").count(), 1, "{log}");
    let report = block_on(session.replay(&agent)).expect("a replay");
    assert!(report.is_exact(), "{report}");
}
