//! A server that does not do what it should.

use std::time::Duration;

use rath::tool::{ToolListing, ToolSource};
use rath_mcp::{ErrorKind, McpServers, Places, Transport, Walls};
use rath_test_support::{this_test, wait_until, with_enough_time};
use serde_json::json;

use super::{Fixture, block_on, call, count_marked};

/// Makes one call in each kind of walls, and compares what the model reads.
fn check(mode: &str, tool: &str, expected: &str) {
    for walls in [Walls::Isolated, Walls::Network, Walls::Outside] {
        let fixture = Fixture::new();
        let servers = fixture.servers([fixture.config("srv", mode, walls)]);
        let found = block_on(call(&servers, &format!("srv__{tool}"), json!({})));
        assert_eq!(found, expected, "{walls:?}");
        drop(servers);
        assert_eq!(count_marked(&fixture.mark), 0, "no process is left");
    }
}

#[test]
fn a_server_answers_behind_all_walls() {
    check("", "echo", "echo");
    check("noise", "echo", "echo");
    check("strict", "echo", "echo");
    check("modern", "echo", "echo");
}

#[test]
fn a_server_that_dies_during_a_call_is_an_error_with_its_last_words() {
    check("", "die", "the server `srv`: it has ended (exit status 7); the end of its stderr: out of ideas; []");
}

#[test]
fn a_server_that_cannot_be_started_is_an_error_that_says_why() {
    let fixture = Fixture::new();
    block_on(async {
        let status = fixture.server("dies").connect().await.remove(0);
        let error = status.protocol.expect_err("it dies");
        let expected = "the server `srv`: it could not be started (exit status 3); the end of its stderr: no database";
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Closed, expected));
        let config = rath_mcp::ServerConfig::stdio("srv", "no-such-program", [""; 0]).expect("a name");
        let status = fixture.servers([config]).connect().await.remove(0);
        let error = status.protocol.expect_err("there is none");
        let expected = "the server `srv`: it could not be started \
                        (cannot run `no-such-program`: there is no such program)";
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Start, expected));
    });
}

/// Makes a call with a time limit that is long enough to start the server.
fn call_with_limit(tool: &str) -> String {
    with_enough_time(Duration::from_millis(300), |limit| {
        let fixture = Fixture::new();
        let mut places = fixture.places();
        places.limits.call = limit;
        let servers = McpServers::new([fixture.config("srv", "", Walls::Outside)], places).expect("valid");
        block_on(async {
            let text = call(&servers, &format!("srv__{tool}"), json!({})).await;
            // The server has read the cancellation.
            let cancelled = call(&servers, "srv__cancelled", json!({})).await;
            (cancelled == "1").then(|| text.replace(&format!("{} ms", limit.as_millis()), "its limit"))
        })
    })
}

#[test]
fn a_call_without_an_answer_ends_at_its_limit_and_is_cancelled() {
    assert_eq!(call_with_limit("slow"), "the server `srv`: it has not answered within its limit; []");
    let garbage = r#"{"jsonrpc": "2.0", oops"#;
    let expected = format!(
        "the server `srv`: it has not answered within its limit; it printed a line that is no message: `{garbage}`; []"
    );
    assert_eq!(call_with_limit("garbage"), expected);
}

#[test]
fn a_call_that_is_dropped_is_cancelled() {
    let fixture = Fixture::new();
    let servers = fixture.server("");
    block_on(async {
        let slow = tokio::spawn({
            let servers = servers.clone();
            async move { call(&servers, "srv__slow", json!({})).await }
        });
        wait_until("the call is made", || fixture.path().join("begun").exists());
        slow.abort();
        let mut cancelled = String::new();
        for _ in 0..1000 {
            cancelled = call(&servers, "srv__cancelled", json!({})).await;
            if cancelled != "0" {
                break;
            }
        }
        assert_eq!(cancelled, "1");
    });
}

#[test]
fn a_handshake_without_an_answer_ends_at_its_limit() {
    let fixture = Fixture::new();
    let mut places = fixture.places();
    places.limits.start = Duration::from_millis(300);
    let servers = McpServers::new([fixture.config("srv", "never", Walls::Isolated)], places).expect("valid");
    block_on(async {
        let ToolListing { tools, notes } = servers.list().await;
        assert_eq!(tools.names().count(), 0);
        assert_eq!(notes, ["the server `srv`: it has not answered in time"]);
        assert_eq!(count_marked(&fixture.mark), 0, "its process is not left either");
    });
}

#[test]
fn an_answer_that_is_not_valid_ends_its_call_at_once() {
    let text = {
        let fixture = Fixture::new();
        block_on(call(&fixture.server(""), "srv__invalid", json!({})))
    };
    assert!(text.starts_with("the server `srv`: its answer is not valid: "), "{text}");
}

#[test]
fn a_line_without_an_end_ends_the_server() {
    let fixture = Fixture::new();
    let mut places = fixture.places();
    places.limits.message_bytes = 1_000_000;
    let servers = McpServers::new([fixture.config("srv", "", Walls::Isolated)], places).expect("valid");
    block_on(async {
        let text = call(&servers, "srv__big", json!({})).await;
        assert_eq!(text, "the server `srv`: it has ended (it sent a message of more than 1000000 bytes); []");
        // The next use starts it again.
        assert_eq!(call(&servers, "srv__echo", json!({})).await, "echo");
    });
}

#[test]
fn a_server_that_floods_stderr_is_still_answered() {
    check("", "flood", "flooded");
}

#[test]
fn what_a_server_asks_for_is_refused() {
    check("", "ask", "refused");
}

#[test]
fn tools_whose_cleaned_names_collide_have_names_of_their_own() {
    let fixture = Fixture::new();
    let servers = fixture.server("collide");
    block_on(async {
        let names: Vec<_> = servers.list().await.tools.names().map(str::to_owned).collect();
        assert_eq!(names, ["srv__a_b_08b918", "srv__a_b_0da3cf", "srv__a_b"]);
        for (name, original) in names.iter().zip(["a.b", "a/b", "a_b"]) {
            assert_eq!(call(&servers, name, json!({})).await, original);
        }
    });
}

/// Asks servers for their environment in a process that has a secret in its own.
#[test]
#[ignore = "run by `a_server_gets_only_the_environment_that_it_was_given`"]
fn child() {
    if std::env::var("SECRET").as_deref() != Ok("open sesame") {
        return;
    }
    let fixture = Fixture::new();
    for walls in [Walls::Isolated, Walls::Outside] {
        let mut config = fixture.config("srv", "", walls);
        let Transport::Stdio(process) = &mut config.transport else { panic!("a process") };
        process.env = vec![("GIVEN".to_owned(), "yes".to_owned().into())];
        assert_eq!(block_on(call(&fixture.servers([config]), "srv__env", json!({}))), "GIVEN=yes");
    }
}

#[test]
fn a_server_gets_only_the_environment_that_it_was_given() {
    let output = this_test("hostile::child", &[("SECRET", "open sesame")]).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_server_is_left_alone_after_a_number_of_starts() {
    let fixture = Fixture::new();
    let mut places: Places = fixture.places();
    places.limits.starts = 2;
    let servers = McpServers::new([fixture.config("srv", "", Walls::Outside)], places).expect("valid");
    block_on(async {
        for _ in 0..2 {
            assert!(call(&servers, "srv__die", json!({})).await.contains("(exit status 7)"));
        }
        let ToolListing { tools, notes } = servers.list().await;
        assert_eq!(tools.names().count(), 0);
        assert_eq!(notes, ["the server `srv`: it was started 2 times in 10 minutes, and is left alone"]);
    });
}

#[test]
fn processes_that_a_server_left_die_with_it() {
    for walls in [Walls::Isolated, Walls::Outside] {
        let fixture = Fixture::new();
        let servers = fixture.servers([fixture.config("srv", "", walls)]);
        block_on(async {
            assert_eq!(call(&servers, "srv__leave", json!({})).await, "left");
            wait_until("the daemon runs", || count_marked(&format!("sleep\0{}", fixture.mark)) == 1);
            // A clone and the tools of a listing do not count as much as the last handle.
            let tools = servers.list().await.tools;
            let clone = servers.clone();
            drop(servers);
            assert!(count_marked(&fixture.mark) > 0);
            drop(clone);
            assert_eq!(count_marked(&fixture.mark), 0);
            drop(tools);
        });
    }
}

#[test]
fn a_text_is_cut_after_its_secrets_are_hidden() {
    for (tool, expected) in [
        ("spill", "the server `srv`: it has ended (exit status 7); the end of its stderr: "),
        ("refuse", "the server `srv`: it refuses: xxx"),
    ] {
        let fixture = Fixture::new();
        let mut config = fixture.config("srv", "", Walls::Outside);
        let Transport::Stdio(process) = &mut config.transport else { panic!("a process") };
        process.env = vec![("SECRET_KEY".to_owned(), "open-sesame-open-1234567890".to_owned().into())];
        let text = block_on(call(&fixture.servers([config]), &format!("srv__{tool}"), json!({})));
        assert!(text.starts_with(expected), "{text}");
        assert!(!text.contains("7890") && !text.contains("open-"), "{text}");
    }
}

#[test]
fn an_answer_of_too_many_values_is_an_error() {
    let fixture = Fixture::new();
    let text = block_on(call(&fixture.server(""), "srv__values", json!({})));
    assert_eq!(&text[..text.len().min(80)], "the server `srv`: its answer has more than 262144 values; []");
}

#[test]
fn a_server_that_asks_without_reading_the_replies_is_still_answered() {
    check("", "pings", "answered");
}

#[test]
fn a_server_that_does_not_read_its_stdin_is_started_again() {
    // More than a pipe holds.
    let long = "x".repeat(1_000_000);
    let notes = with_enough_time(Duration::from_millis(200), |limit| {
        let fixture = Fixture::new();
        let mut places = fixture.places();
        places.limits.call = limit;
        let servers = McpServers::new([fixture.config("srv", "", Walls::Outside)], places).expect("valid");
        block_on(async {
            call(&servers, "srv__deaf", json!({})).await;
            for _ in 0..3 {
                call(&servers, "srv__pid", json!({ "text": long })).await;
                let notes = servers.list().await.notes;
                if !notes.is_empty() {
                    return Some(notes);
                }
            }
            None
        })
    });
    assert_eq!(notes, ["the server `srv` was started again: it had ended (it does not read its stdin)"]);
}

/// Each says in one line what is wrong, and in one what to do.
#[test]
fn a_server_that_cannot_be_used_is_not_reachable_and_there_is_a_hint() {
    for (mode, kind, expected) in [
        ("liar", ErrorKind::Answer, "it speaks version 1999-01-01 of the protocol; known: 2024-11-05, "),
        ("quits", ErrorKind::Closed, "it has ended (exit status 9)"),
        ("dies", ErrorKind::Closed, "it could not be started (exit status 3); the end of its stderr: no database"),
        ("badlist", ErrorKind::Answer, "its answer is of another kind"),
    ] {
        let fixture = Fixture::new();
        let status = block_on(fixture.server(mode).connect()).remove(0);
        let error = status.protocol.expect_err(mode);
        assert!(error.message().starts_with(&format!("the server `srv`: {expected}")), "{mode}: {error}");
        assert_eq!(error.kind(), kind, "{mode}: {error}");
        assert!(error.hint().is_some_and(|hint| !hint.contains('\n')), "{mode}: {error:?}");
        assert!(status.tools.is_empty(), "{mode}");
        assert_eq!(count_marked(&fixture.mark), 0, "{mode}: no process is left");
    }
}

/// A server can always name another page.
#[test]
fn a_list_of_resources_or_prompts_is_bounded_in_bytes() {
    let fixture = Fixture::new();
    let servers = fixture.server("fullpages");
    block_on(async {
        assert_eq!(servers.resources("srv").await.expect("a list").len(), 1);
        assert_eq!(servers.prompts("srv").await.expect("a list").len(), 1);
        let notes = servers.list().await.notes;
        assert_eq!(
            notes,
            ["the server `srv` lists more than 524288 bytes of resources or prompts; further ones are left out"]
        );
    });
}
