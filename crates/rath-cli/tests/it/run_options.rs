//! The options of a run: budgets, images, checks, and members of requests.

use expect_test::expect;

use crate::configuration::{STORE, check, session, stderr};
use crate::model_server::ModelServer;
use crate::permissions::Place;

#[test]
fn a_budget_ends_a_run_and_the_hint_goes_on() {
    let place = Place::new("");
    let server = ModelServer::start();
    let rath = |args: &[&str]| {
        let mut command = place.command("app", &[args, &STORE[..]].concat());
        server.connect(&mut command);
        command.output().expect("rath runs")
    };
    let prompt = r#"work: [{"name": "list_files", "arguments": {}}]"#;
    let output = rath(&["run", prompt, "--model", "openai:m", "--budget", "1turns,1h"]);
    let id = session(&place);
    assert_eq!(output.status.code(), Some(1));
    expect![[r#"
        sandbox: writes only in TMP/app, no network
        ✓ list_files {}
        saved
        error: the budget of 1 turn is used up
        hint: `rath resume ID --budget 2turns,2h --store jsonl:.rath/s` allows more and continues
    "#]]
    .assert_eq(&place.stable(&stderr(&output)).replace(&id, "ID"));
    let output = rath(&["resume", &id, "--budget", "2turns,2h"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn an_image_an_option_and_a_check_go_with_a_prompt() {
    let place = Place::new("{\"text\": \"One.\"}\n");
    std::fs::write(place.path("app/a.png"), [0x89, b'P', b'N', b'G', 13, 10, 26, 10]).expect("written");
    let run = |check: &str| place.run_in("app", &[&["--image", "a.png", "--check", check], &STORE[..]].concat());
    let output = run("test -e a.txt");
    check(
        &place,
        &output,
        &expect![[r#"
        One.
        sandbox: writes only in TMP/app, no network
        done
        saved
        check 'test -e a.txt': passed
        exit 0
    "#]],
    );
    let failed = run("echo broken; exit 3");
    check(
        &place,
        &failed,
        &expect![[r#"
        One.
        sandbox: writes only in TMP/app, no network
        done
        saved
        broken
        check 'echo broken; exit 3': failed
        exit 1
    "#]],
    );
    let listed = place.rath("app", &[&["ls", "--json"], &STORE[..]].concat());
    let id = String::from_utf8_lossy(&listed.stdout).lines().next().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        line["session"].as_str().expect("an id").to_owned()
    });
    let request = place.rath("app", &[&["render", &id.expect("a session")], &STORE[..]].concat());
    assert!(String::from_utf8_lossy(&request.stdout).contains("data:image/png;base64,iVBORw0KGgo="));
}

#[test]
fn options_of_a_model_are_in_its_requests() {
    let place = Place::new("");
    let server = ModelServer::start();
    let args =
        ["run", "hello: []", "--model", "openai:m", "--option", "temperature=0.5", "--option", "reasoning_effort=low"];
    let mut command = place.command("app", &[&args, &STORE[..]].concat());
    server.connect(&mut command);
    let output = command.output().expect("rath runs");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let request = place.rath("app", &[&["render", &session(&place)], &STORE[..]].concat());
    let request = String::from_utf8_lossy(&request.stdout).into_owned();
    assert!(request.contains(r#""temperature":0.5"#) && request.contains(r#""reasoning_effort":"low""#), "{request}");
}
