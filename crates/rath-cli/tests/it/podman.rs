//! Sessions in containers. These tests need the socket of podman, so they are ignored, and run by `.ci/run`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;

/// Returns the sandbox of these tests.
fn place() -> String {
    let image = std::env::var("RATH_CONTAINER_IMAGE").unwrap_or_else(|_| "localhost/rath-busybox:1".to_owned());
    format!("container:{image}")
}

/// Creates a directory to work in.
fn project() -> rath_test_support::TempDir {
    let folder = rath_test_support::temp_dir();
    std::fs::create_dir(folder.path().join("work")).expect("a directory");
    folder
}

/// Runs the program with a script that runs one command.
fn run_script(folder: &Path, command: &str, args: &[&str]) -> Output {
    let call = json!({"calls": [{"name": "shell", "arguments": {"command": command}}]});
    let script = format!("{call}\n{}\n", json!({"text": "Done."}));
    std::fs::write(folder.join("script.jsonl"), script).expect("a file");
    run(folder, &[args, &["--model", "script:../script.jsonl"]].concat())
}

fn rath(folder: &Path, args: &[&str]) -> Command {
    let socket = std::env::var("RATH_CONTAINER_SOCKET").expect("RATH_CONTAINER_SOCKET names the socket of podman");
    let mut rath = rath_test_support::program(env!("CARGO_BIN_EXE_rath"));
    rath.args(args).current_dir(folder.join("work")).env("HOME", folder.join("home"));
    rath.env("DOCKER_HOST", format!("unix://{socket}"));
    rath
}

fn run(folder: &Path, args: &[&str]) -> Output {
    rath(folder, args).output().expect("rath runs")
}

/// Returns what the program printed on both streams, if it succeeded.
#[track_caller]
fn printed(output: &Output) -> (String, String) {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{out}\n{err}");
    (out, err)
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn a_session_runs_is_resumed_and_forked_in_a_container() {
    let folder = project();
    let folder = folder.path();
    let first = run_script(folder, "echo one > a.txt; pwd > where", &["run", "go", "--sandbox", &place()]);
    let (out, err) = printed(&first);
    let work = folder.join("work");
    let line = format!("sandbox: a container that reads its image and writes only in {}, no network", work.display());
    assert!(err.contains(&line), "wanted `{line}`, found `{err}`\n{out}");
    assert_eq!(std::fs::read_to_string(work.join("where")).expect("a file").trim_end(), work.display().to_string());
    let (listed, _) = printed(&run(folder, &["ls", "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("a line of JSON");
    let id = listed["session"].as_str().expect("an id").to_owned();
    // It goes on in a container without being told.
    let (out, err) = printed(&run_script(folder, "cat a.txt; echo two >> a.txt", &["resume", &id, "again"]));
    assert!(err.contains("sandbox: a container"), "{err}\n{out}");
    assert_eq!(std::fs::read_to_string(work.join("a.txt")).expect("a file"), "one\ntwo\n");
    let (out, err) = printed(&run_script(folder, "cat a.txt", &["resume", &id, "more", "--fork", "--json"]));
    assert!(err.contains("sandbox: a container") && out.contains("one\\ntwo\\n"), "{err}\n{out}");
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn an_image_that_is_missing_and_an_engine_that_is_not_there_are_explained() {
    let folder = project();
    let folder = folder.path();
    let args = ["run", "go", "--sandbox", "container:localhost/rath-no-such:1"];
    let output = run_script(folder, "true", &args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    let wanted = "podman does not have the image `localhost/rath-no-such:1`\nhint: `podman pull localhost/rath-no-such:1` fetches it";
    assert!(text.contains(wanted), "{text}");
    let none = format!("unix://{}", folder.join("nothing").display());
    let output = rath(folder, &[&args[..], &["--model", "script:../script.jsonl"]].concat())
        .env("DOCKER_HOST", none)
        .output()
        .expect("rath runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("cannot be reached") && text.contains("hint: "), "{text}");
    let output = run_script(folder, "true", &["run", "go", "--sandbox", "container:../x"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
