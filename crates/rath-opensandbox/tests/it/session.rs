//! Sessions in a sandbox on a server: effects, forks, merges, and going on in a later process.

use std::collections::BTreeMap;
use std::path::Path;

use rath::prelude::*;
use rath::provider::Script;
use rath::record::draw;
use rath::tool::builtin::{ReadFile, Shell, WriteFile};
use rath_sandbox::Registry;
use rath_testkit::opensandbox::StandIn;
use rath_testkit::record::{normalized_record, record_digest, work_in};
use serde_json::json;

use crate::support::{address, block_on, on};

/// Runs an agent on a session that makes these commands, one after the other.
fn work(mut session: Session, commands: &[&str]) -> Session {
    session.push(Chunk::user("go on"));
    block_on(worker(commands).run(session)).expect("it runs")
}

fn worker(commands: &[&str]) -> Agent {
    let call = |command: &&str| json!({"calls": [{"name": "shell", "arguments": {"command": command}}]}).to_string();
    let turns: Vec<String> = commands.iter().map(call).chain([r#"{"text": "done"}"#.to_owned()]).collect();
    let provider: Provider = Script::of(turns).expect("a script").into();
    Agent::new("Work.", &provider).tool(Shell).tool(WriteFile).tool(ReadFile)
}

/// Returns the changes of files on the record, one line for each step that has some.
fn effects(session: &Session) -> Vec<String> {
    let steps = session.as_record().steps().into_iter();
    let lines =
        steps.map(|step| step.chunk().effects().iter().map(draw::describe_effect).collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect()
}

/// Returns the files in the workspace of each sandbox, the first one first.
fn workspaces(server: &StandIn) -> Vec<BTreeMap<String, String>> {
    let files = |home: &Path| {
        let mut files = BTreeMap::new();
        let mut directories = vec![home.join("work space")];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
                match entry.path().is_dir() {
                    true => directories.push(entry.path()),
                    false => {
                        let name =
                            entry.path().strip_prefix(home.join("work space")).expect("below").display().to_string();
                        files.insert(name, std::fs::read_to_string(entry.path()).expect("a text"));
                    }
                }
            }
        }
        files
    };
    server.sandboxes().iter().map(|sandbox| files(&sandbox.home)).collect()
}

fn files(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn a_script_gives_the_same_record_as_on_this_machine() {
    let (server, folder) = (StandIn::start(), rath_test_support::temp_dir());
    let [local, remote] = [Sandbox::local(folder.path()), Sandbox::new(on(&server))]
        .map(|sandbox| block_on(work_in(sandbox)).expect("it runs"));
    assert_eq!(normalized_record(&remote), normalized_record(&local));
    assert_eq!(record_digest(&remote), record_digest(&local));
}

#[test]
fn what_calls_changed_is_on_the_record() {
    let server = StandIn::start();
    let session = Session::empty().to(Sandbox::new(on(&server)));
    let session = work(session, &["echo 1 > a; mkdir d; echo 2 > d/b", "rm a; echo 3 >> d/b"]);
    assert_eq!(effects(&session), ["+a +d/b", "-a ~d/b"]);
    let patch = block_on(session.patch(&session)).expect("a patch");
    assert_eq!(patch, "");
}

#[test]
fn a_fork_works_in_a_sandbox_of_its_own_and_is_merged() {
    let server = StandIn::start();
    let session = work(Session::empty().to(Sandbox::new(on(&server))), &["echo 1 > a; mkdir d; echo x > d/x"]);
    let [left, right] =
        [work(session.fork(), &["cat a d/x; echo 2 > b; rm d/x"]), work(session.fork(), &["cat a d/x; echo 3 > c"])];
    assert_eq!(effects(&left), ["+a +d/x", "+b -d/x"]);
    let base = files(&[("a", "1\n"), ("d/x", "x\n")]);
    let of_left = files(&[("a", "1\n"), ("b", "2\n")]);
    let of_right = files(&[("a", "1\n"), ("c", "3\n"), ("d/x", "x\n")]);
    assert_eq!(workspaces(&server), [base.clone(), of_left.clone(), of_right.clone()]);
    let merged = block_on(left.merge(&right)).expect("merged");
    let merged = work(merged, &["echo 4 > e"]);
    // The merged branch goes on where both began.
    let wanted = files(&[("a", "1\n"), ("b", "2\n"), ("c", "3\n"), ("e", "4\n")]);
    assert_eq!(workspaces(&server), [wanted, of_left, of_right]);
    assert_eq!(effects(&merged).last().map(String::as_str), Some("+e"));
    let handles = (session, left, right, merged);
    drop(handles);
    rath_test_support::wait_until("all are removed", || server.sandboxes().is_empty());
}

/// Returns what a record says, one JSON text a step, without the place and what follows from it.
fn normalised(session: &Session) -> Vec<String> {
    let place = session.place().expect("a place").to_string();
    let steps = session.as_record().steps().into_iter();
    steps.map(|step| step.json().replace(&place, "PLACE")).collect()
}

#[test]
fn a_run_is_recorded_as_on_this_machine() {
    let (server, folder) = (StandIn::start(), rath_test_support::temp_dir());
    let commands = ["echo 1 > a; mkdir d; echo 2 > d/b; printf 'x\\377'", "rm a; echo err >&2; exit 3", "cat d/b"];
    let here = work(Session::empty().to(Sandbox::local(folder.path())), &commands);
    let there = work(Session::empty().to(Sandbox::new(on(&server))), &commands);
    assert_eq!(normalised(&here), normalised(&there));
}

#[test]
fn a_fork_of_a_fork_begins_with_its_files() {
    let server = StandIn::start();
    let session = work(Session::empty().to(Sandbox::new(on(&server))), &["echo 1 > a"]);
    let fork = work(session.fork(), &["echo 2 > b"]);
    let second = work(fork.fork(), &["echo 3 > c"]);
    assert_eq!(workspaces(&server)[2], files(&[("a", "1\n"), ("b", "2\n"), ("c", "3\n")]));
    let back = work(second.at(session.head().expect("a step").id()).expect("a step"), &["ls > list"]);
    assert_eq!(workspaces(&server)[3], files(&[("a", "1\n"), ("list", "a\nlist\n")]));
    drop((fork, second, back));
}

#[test]
fn a_later_process_finds_the_sandboxes_of_a_session_and_its_forks() {
    let server = StandIn::start();
    let folder = rath_test_support::temp_dir();
    let store = format!("sqlite:{}", folder.path().join("s.db").display());
    let kinds = || address(&server).add_to(Registry::new());
    let open = || block_on(Store::open(&store)).expect("a store").sandboxes(kinds());
    let opened = open();
    let session = Session::empty().to(Sandbox::new(on(&server).keep()));
    let session = work(block_on(session.record(&opened)).expect("recorded"), &["echo 1 > a"]);
    let fork = work(session.fork(), &["echo 2 > b"]);
    let ids = [session.id(), fork.id()];
    drop((session, fork));
    block_on(opened.close()).expect("closed");
    assert_eq!(server.sandboxes().len(), 2, "they were asked to stay");
    // Something changed meanwhile.
    std::fs::write(server.sandboxes()[1].home.join("work space/outside"), "x").expect("written");
    let opened = open();
    let certificate = |opened: &Store, id| block_on(opened.resume(id)).expect("stored").certificate().to_string();
    let certificates = ids.map(|id| certificate(&opened, id));
    assert_eq!(certificates[0], "nothing has changed");
    assert!(certificates[1].contains("outside"), "{}", certificates[1]);
    let fork = block_on(opened.resume(ids[1])).expect("stored").accept_file_changes().expect("accepted");
    let fork = work(fork, &["cat outside >> b"]);
    assert_eq!(effects(&fork), ["+a", "+b", "+outside", "~b"]);
    drop(fork);
    assert_eq!(server.sandboxes().len(), 2, "none was made anew");
    block_on(opened.close()).expect("closed");
    // Gone in the meantime.
    server.expire();
    let opened = open();
    let certificate = certificate(&opened, ids[0]);
    assert!(certificate.contains("is gone"), "{certificate}");
    block_on(opened.close()).expect("closed");
}
