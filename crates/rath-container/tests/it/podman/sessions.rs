//! Sessions in containers: each branch has its own container and files, and the record is that of every other sandbox.

use std::path::Path;

use rath::chunk::Outcome;
use rath::prelude::*;
use rath::provider::Script;
use rath::tool::builtin::Shell;
use rath_container::with_containers;
use rath_sandbox::Registry;
use rath_test_support::{temp_dir, wait_until};
use rath_testkit::record::{normalized_record, record_digest, work_in};

use super::support::{container, containers_of, image, socket};

fn block_on<T>(work: impl IntoFuture<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(work.into_future())
}

fn agent<T: AsRef<str>>(turns: impl IntoIterator<Item = T>) -> Agent {
    let script: Provider = Script::of(turns).expect("a script").into();
    Agent::new("Work.", &script).tool(Shell)
}

fn shell(line: &str) -> [String; 2] {
    let line = serde_json_string(line);
    [
        format!(r#"{{"calls": [{{"name": "shell", "arguments": {{"command": {line}}}}}]}}"#),
        r#"{"text": "done"}"#.to_owned(),
    ]
}

fn serde_json_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn last_result(session: &Session) -> (Outcome, String) {
    let results = session.chunks().filter_map(|chunk| match chunk {
        Chunk::ToolResult(result) => Some((result.outcome, result.output.to_string())),
        _ => None,
    });
    results.last().expect("a result")
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn a_script_gives_the_same_record_in_every_sandbox() {
    let folders = [temp_dir(), temp_dir(), temp_dir()];
    let [local, isolated, contained] =
        [Sandbox::local(folders[0].path()), Sandbox::isolated(folders[1].path()), container(folders[2].path()).into()]
            .map(|sandbox| block_on(work_in(sandbox)).expect("it runs"));
    let expected = normalized_record(&local);
    assert!(expected.lines().count() > 15 && expected.contains("<place 0>"), "{expected}");
    for folder in &folders {
        let name = folder.path().display().to_string();
        assert!(!expected.contains(&name), "the record names no directory");
    }
    for session in [isolated, contained] {
        assert_eq!(normalized_record(&session), expected);
        assert_eq!(record_digest(&session), record_digest(&local));
    }
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn branches_have_containers_and_files_of_their_own_until_they_are_merged() {
    let folder = temp_dir();
    let work = |mut session: Session, line: &str| {
        session.push(Chunk::user("go on"));
        block_on(agent(shell(line)).run(session)).expect("it runs")
    };
    let session = Session::user("work").to(Sandbox::new(container(folder.path())));
    let session = work(session, "echo base > a.txt; touch /tmp/base; pwd > where");
    let [one, two] = [("one", &session), ("two", &session)].map(|(name, session)| {
        let line = format!("ls /tmp/base 2>/dev/null; cat a.txt; echo {name} > {name}.txt; pwd; ls -A");
        work(session.fork(), &line)
    });
    // Each sees the files at the path of the original, and nothing of the other.
    let path = folder.path().display();
    for (branch, own) in [(&one, "one.txt"), (&two, "two.txt")] {
        let (outcome, output) = last_result(branch);
        assert_eq!(outcome, Outcome::Ok, "{output}");
        let expected = format!("base\n{path}\na.txt\n{own}\nwhere\n");
        assert!(output.contains(&expected), "wanted `{expected}`, found `{output}`");
    }
    let container_count = || containers_of(folder.path()).len();
    assert_eq!(container_count(), 3);
    let merged = block_on(one.merge(&two)).expect("merged");
    let merged = work(merged, "cat one.txt two.txt");
    let (_, output) = last_result(&merged);
    assert!(output.contains("one\ntwo\n"), "{output}");
    drop((session, one, two, merged));
    wait_until("the containers go with their sessions", || container_count() == 0);
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn a_stored_session_goes_on_in_a_container_of_the_same_settings() {
    let (folder, stored) = (temp_dir(), temp_dir());
    let uri = format!("sqlite:{}", stored.path().join("s.db").display());
    let id = block_on(async {
        let store = Store::open(&uri).await.expect("a store");
        let session = Session::user("work").to(Sandbox::new(container(folder.path()).memory(256 << 20)));
        let session = session.record(&store).await.expect("recorded");
        let session = agent(shell("echo one > a.txt")).run(session).await.expect("it runs");
        let id = session.id();
        drop(session);
        store.close().await.expect("closed");
        id
    });
    // The kind of a program that knows the socket of its engine.
    let kinds = with_containers(Registry::new());
    let place = {
        let store = block_on(Store::open(&uri)).expect("a store").sandboxes(kinds);
        let resumed = block_on(store.resume(id)).expect("stored").complete().expect("nothing has changed");
        resumed.place().expect("it has one").to_string()
    };
    let name = |path: &Path| path.display().to_string();
    assert_eq!(place, format!("container:{}?directory={}&memory=256m", image(), name(folder.path())));
    assert!(socket().exists());
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn a_fork_has_a_copy_of_ignored_directories() {
    let folder = temp_dir();
    for (path, text) in
        [(".gitignore", "node_modules\n"), ("node_modules/a.js", "one\n"), (".git/HEAD", "ref: refs/heads/main\n")]
    {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    let work = |mut session: Session, line: &str| {
        session.push(Chunk::user("go on"));
        block_on(agent(shell(line)).run(session)).expect("it runs")
    };
    let session = work(Session::user("work").to(Sandbox::new(container(folder.path()))), "echo base > b.txt");
    let fork = work(
        session.fork(),
        "cat node_modules/a.js; echo two > node_modules/a.js; cat node_modules/a.js; touch .git/x || echo no",
    );
    let (_, output) = last_result(&fork);
    assert!(output.starts_with("one\ntwo\n"), "{output}");
    assert_eq!(std::fs::read_to_string(folder.path().join("node_modules/a.js")).expect("kept"), "one\n");
    assert!(!folder.path().join(".git/x").exists());
}
