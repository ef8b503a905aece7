//! Tools that run in a sandbox on an OpenSandbox server.

use rath_test_support::{TempDir, temp_dir};
use rath_testkit::opensandbox::StandIn;

use crate::model_server::ModelServer;

const SANDBOX: &str = "opensandbox:debian:13?workdir=~/work";

/// Runs the program in a folder, on a model server that plays the calls in the prompt.
fn rath(folder: &TempDir, model: &ModelServer, server: &StandIn, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = rath_test_support::program(env!("CARGO_BIN_EXE_rath"));
    command.current_dir(folder.path()).args(arguments);
    command.env("OPEN_SANDBOX_DOMAIN", server.address()).env("OPEN_SANDBOX_API_KEY", server.key());
    model.connect(&mut command);
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Returns the id of the only session.
fn session(folder: &TempDir, model: &ModelServer, server: &StandIn) -> String {
    let (_, out, err) = rath(folder, model, server, &["ls"]);
    out.split_whitespace().next().unwrap_or_else(|| panic!("no session: {err}")).to_owned()
}

fn call(command: &str) -> String {
    format!(r#"[{{"name": "shell", "arguments": {{"command": "{command}"}}}}]"#)
}

#[test]
fn a_run_works_in_a_new_sandbox_and_removes_it() {
    let (folder, model, server) = (temp_dir(), ModelServer::start(), StandIn::start());
    let prompt = format!("one: {}", call("echo 1 > a.txt"));
    let (code, out, err) =
        rath(&folder, &model, &server, &["run", &prompt, "--model", "openai:m", "--sandbox", SANDBOX]);
    assert_eq!((code, out.trim()), (Some(0), "one"), "{err}");
    assert!(err.contains("sandbox: opensandbox:debian:13?name="), "{err}");
    assert!(server.sandboxes().is_empty(), "it is removed when the session ends");
    // The files are on the record.
    let id = session(&folder, &model, &server);
    let (code, _, err) = rath(&folder, &model, &server, &["checkout", &id, "copy"]);
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(std::fs::read_to_string(folder.path().join("copy/a.txt")).expect("it was checked out"), "1\n");
    // The key is in nothing that was printed or stored.
    let store = std::fs::read(folder.path().join(".rath/rath.db")).expect("a store");
    assert!(!String::from_utf8_lossy(&store).contains(server.key()) && !err.contains(server.key()));
}

#[test]
fn a_session_goes_on_in_the_sandbox_that_stayed_and_says_when_it_is_gone() {
    let (folder, model, server) = (temp_dir(), ModelServer::start(), StandIn::start());
    let sandbox = format!("{SANDBOX}&keep=on");
    let prompt = format!("one: {}", call("echo 1 > a.txt"));
    let (code, _, err) =
        rath(&folder, &model, &server, &["run", &prompt, "--model", "openai:m", "--sandbox", &sandbox]);
    assert_eq!((code, server.sandboxes().len()), (Some(0), 1), "{err}");
    let id = session(&folder, &model, &server);
    let prompt = format!("two: {}", call("cat a.txt > b.txt"));
    let (code, _, err) = rath(&folder, &model, &server, &["resume", &id, &prompt, "--model", "openai:m"]);
    let work = server.sandboxes()[0].home.join("work/b.txt");
    assert_eq!((code, std::fs::read_to_string(work).ok().as_deref()), (Some(0), Some("1\n")), "{err}");
    server.expire();
    let (code, _, err) = rath(&folder, &model, &server, &["resume", &id, "three: []", "--model", "openai:m"]);
    assert!(code != Some(0) && err.contains("is gone"), "{err}");
}

#[test]
fn a_look_at_a_fork_removes_no_sandbox() {
    let (folder, model, server) = (temp_dir(), ModelServer::start(), StandIn::start());
    let rath = |arguments: &[&str]| rath(&folder, &model, &server, arguments);
    // A run that is stopped after its first turn: it can go on.
    let prompt = format!("one: {}", call("echo 1 > a.txt"));
    let run = ["run", &prompt, "--model", "openai:m", "--sandbox", SANDBOX, "--turns", "1"];
    let (code, _, err) = rath(&run);
    assert!(code != Some(0) && server.sandboxes().len() == 1, "{code:?}: {err}");
    let id = session(&folder, &model, &server);
    let (code, out, err) = rath(&["fork", &id, "--json"]);
    assert_eq!(code, Some(0), "{err}");
    let forked: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let fork = forked["session"].as_str().expect("an id");
    let prompt = format!("two: {}", call("echo 2 > b.txt"));
    let (code, _, err) = rath(&["resume", fork, &prompt, "--model", "openai:m", "--turns", "1"]);
    assert!(code != Some(0) && server.sandboxes().len() == 2, "{code:?}: {err}");
    for look in [&["ls"][..], &["status", fork], &["status", &id], &["log", "-v", fork], &["diff", &id, fork]] {
        let (code, _, err) = rath(look);
        assert!(code.is_some() && !err.contains("is gone"), "{look:?}: {err}");
        assert_eq!(server.sandboxes().len(), 2, "{look:?}: {err}");
    }
    // The fork ends, and the session that it comes from goes on.
    let prompt = format!("three: {}", call("cat a.txt b.txt"));
    let (code, _, err) = rath(&["resume", fork, &prompt, "--model", "openai:m"]);
    assert_eq!((code, server.sandboxes().len()), (Some(0), 1), "{err}");
    let prompt = format!("four: {}", call("cat a.txt"));
    let (code, _, err) = rath(&["resume", &id, &prompt, "--model", "openai:m"]);
    assert_eq!((code, server.sandboxes().len()), (Some(0), 0), "{err}");
}

#[test]
fn without_a_server_the_program_says_what_to_set() {
    let (folder, model) = (temp_dir(), ModelServer::start());
    let mut command = rath_test_support::program(env!("CARGO_BIN_EXE_rath"));
    command.current_dir(folder.path()).args(["run", "one: []", "--model", "openai:m", "--sandbox", SANDBOX]);
    // What a project says is not read.
    std::fs::write(folder.path().join("rath.toml"), "[permissions]\nask = []\n").expect("written");
    model.connect(&mut command);
    let output = command.output().expect("it runs");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("OPEN_SANDBOX_DOMAIN"), "{err}");
}
