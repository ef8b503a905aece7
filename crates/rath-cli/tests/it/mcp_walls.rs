//! The reach of an MCP server that runs beside a session: the files of the project, and nothing of the session.

use serde_json::json;

use super::permissions::Place;

const DONE: &str = "{\"text\": \"Done.\"}\n";

/// A run in which the agent asks a server that was told what to do, and waits for it.
const ASK: &str = concat!(
    r#"{"calls": [{"name": "shell", "arguments": {"command": "touch go; until [ -e over ]; do sleep 0.02; done"}}]}"#,
    "\n",
    r#"{"text": "Done."}"#,
    "\n"
);

/// Configures a server that runs a command when it starts, and another one once the agent says so.
fn configure(place: &Place, at_start: &str, during: &str) {
    let program = crate::program_path().display().to_string();
    let wait = "i=0; until [ -e go ] || [ $i = 2000 ]; do sleep 0.02; i=$((i+1)); done";
    let command = format!(
        "echo started >> started.txt; {at_start}\n({wait}\n{during}\ntouch over) >/dev/null 2>&1 </dev/null &\nexec '{program}' mcp serve"
    );
    let server = json!({"mcpServers": {"past": {"command": "sh", "args": ["-c", command]}}});
    place.write("home/.config/rath/mcp.json", &server.to_string());
}

fn run(place: &Place, options: &[&str]) -> String {
    let output = place.run_in("app", options);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{options:?}: {printed}");
    printed
}

/// The first run makes `.rath` and its store, also for a server that was started before them.
#[test]
fn a_server_neither_sees_nor_removes_the_store_of_a_first_run() {
    let place = Place::new(ASK);
    configure(&place, "", "ls -A .rath > seen.txt; rm -rf .rath; mkdir .rath; echo x > .rath/store.db");
    run(&place, &[]);
    assert_eq!(place.read("app/seen.txt"), "");
    let verified = place.rath("app", &["verify"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    let listed = place.rath("app", &["ls", "--json"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), 1);
}

/// A session in a file has its mode, its place and its hidden files from the file.
#[test]
fn the_file_of_a_session_says_which_servers_start_and_what_they_see() {
    let place = Place::new(DONE);
    configure(&place, "cat secret.txt session.rath > seen.txt 2>/dev/null", "");
    place.write("app/secret.txt", "canary\n");
    run(&place, &["--no-mcp", "--sandbox", "isolated:.?hide=secret.txt", "--store", "file:session.rath"]);
    run(&place, &["--store", "file:session.rath"]);
    assert_eq!((place.read("app/started.txt").as_str(), place.read("app/seen.txt").as_str()), ("started\n", ""));
    // A server could write: a session that may only read has none.
    run(&place, &["--no-mcp", "--mode", "read-only", "--store", "file:read.rath"]);
    let printed = run(&place, &["--store", "file:read.rath"]);
    assert_eq!(place.read("app/started.txt"), "started\n", "{printed}");
}

/// The walls of a server are those of the project: a fork works elsewhere.
#[test]
fn a_fork_has_no_server_that_works_in_the_directory_of_another_branch() {
    let place = Place::new(DONE);
    configure(&place, "", "");
    run(&place, &[]);
    assert_eq!(place.read("app/started.txt"), "started\n");
    let listed = String::from_utf8_lossy(&place.rath("app", &["ls"]).stdout).into_owned();
    let fork = place.rath("app", &["fork", listed.split_whitespace().next().expect("an id")]);
    let fork = String::from_utf8_lossy(&fork.stdout).trim().to_owned();
    let model = format!("script:{}", place.path("script.jsonl").display());
    let output = place.rath("app", &["resume", &fork, "Go on.", "--model", &model, "--anyway"]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("MCP servers left out, since a fork has a directory of its own: past"), "{printed}");
    assert_eq!(place.read("app/started.txt"), "started\n");
}
