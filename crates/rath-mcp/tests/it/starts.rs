//! Starts, lists and restarts.

use std::time::Duration;

use rath::tool::{ToolListing, ToolSource};
use rath_mcp::{ErrorKind, McpServers, ServerConfig, Transport, Walls};
use rath_test_support::wait_until;
use serde_json::json;

use super::{Fixture, block_on, call, count_marked};

#[test]
fn every_changed_list_is_asked_for_again_even_if_the_server_lets_it_be_cached() {
    let fixture = Fixture::new();
    let servers = fixture.server("ttl");
    block_on(async {
        for nth in 1..=100 {
            assert_eq!(call(&servers, "srv__change", json!({})).await, "changed");
            let name = format!("srv__new{nth}");
            assert!(servers.list().await.tools.names().any(|tool| tool == name), "{name}");
        }
    });
}

#[test]
fn a_start_goes_on_without_the_one_who_asked_for_it() {
    let fixture = Fixture::new();
    let servers = fixture.server("waits");
    block_on(async {
        let first = tokio::spawn({
            let servers = servers.clone();
            async move { servers.list().await }
        });
        wait_until("the server is asked", || fixture.path().join("asked").exists());
        first.abort();
        assert!(first.await.is_err_and(|error| error.is_cancelled()));
        std::fs::write(fixture.path().join("go"), "").expect("a file");
        wait_until("the handshake is complete", || fixture.path().join("ready").exists());
        assert_eq!(call(&servers, "srv__echo", json!({})).await, "echo");
        let asked = std::fs::read_to_string(fixture.path().join("asked")).expect("it is there");
        assert_eq!(asked, "x", "one start");
    });
}

#[test]
fn a_start_ends_with_the_last_handle() {
    let fixture = Fixture::new();
    let servers = fixture.server("waits");
    block_on(async {
        let connecting = tokio::spawn(async move { servers.connect().await });
        wait_until("the server is asked", || fixture.path().join("asked").exists());
        connecting.abort();
        wait_until("no process is left", || count_marked(&fixture.mark) == 0);
    });
}

#[test]
fn a_second_start_for_an_older_protocol_counts_and_is_noted() {
    let fixture = Fixture::new();
    let mut places = fixture.places();
    places.limits.starts = 2;
    let servers = McpServers::new([fixture.config("srv", "strict", Walls::Outside)], places).expect("valid");
    block_on(async {
        let note = "the server `srv` was started a second time, for an older version of the protocol: \
                    it could not be started (exit status 1)";
        assert_eq!(servers.list().await.notes, [note]);
        assert_eq!(servers.list().await.notes, [""; 0]);
        assert!(call(&servers, "srv__die", json!({})).await.contains("(exit status 7)"));
        let left_alone = "the server `srv`: it was started 2 times in 10 minutes, and is left alone";
        assert_eq!(servers.list().await.notes, [left_alone]);
    });
}

#[test]
fn a_new_start_for_a_resource_is_noted_at_the_next_list() {
    let fixture = Fixture::new();
    let servers = fixture.server("resources");
    block_on(async {
        assert!(call(&servers, "srv__die", json!({})).await.contains("(exit status 7)"));
        let resources = servers.resources("srv").await.expect("a list");
        let text = servers.read_resource("srv", &resources[0].uri).await.expect("it is there").text;
        assert_eq!(text, "[resource notes]\nfound", "a long address is an address");
        let notes = servers.list().await.notes;
        assert!(notes.iter().any(|note| note.starts_with("the server `srv` was started again")), "{notes:?}");
    });
}

#[test]
fn a_list_that_cannot_be_read_is_asked_for_once() {
    for (mode, millis, expected) in [
        ("mutelist", Some(300), "the server `srv`: it has not listed its tools in time"),
        ("badlist", None, "the server `srv`: its answer is of another kind"),
    ] {
        let fixture = Fixture::new();
        let mut places = fixture.places();
        places.limits.request = millis.map_or(places.limits.request, Duration::from_millis);
        let servers = McpServers::new([fixture.config("srv", mode, Walls::Outside)], places).expect("valid");
        block_on(async {
            for _ in 0..3 {
                let ToolListing { tools, notes } = servers.list().await;
                assert_eq!((tools.names().count(), &notes[..]), (0, &[expected.to_owned()][..]), "{mode}");
            }
            let asked = std::fs::read_to_string(fixture.path().join("asked")).expect("it is there");
            assert_eq!(asked, "x", "{mode}");
        });
    }
}

#[test]
fn a_list_that_could_not_be_read_is_asked_for_again_after_a_change() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path().join("change"), "").expect("a file");
    let servers = fixture.server("badlist");
    block_on(async {
        assert_eq!(servers.list().await.tools.names().count(), 0);
        // The server said that its list has changed before it sent the first one.
        assert!(servers.list().await.tools.names().count() > 0);
    });
}

#[test]
fn the_tools_of_before_are_used_while_a_changed_list_cannot_be_read() {
    let fixture = Fixture::new();
    let mut places = fixture.places();
    places.limits.request = Duration::from_millis(300);
    let servers = McpServers::new([fixture.config("srv", "mutechange", Walls::Outside)], places).expect("valid");
    block_on(async {
        let count = servers.list().await.tools.names().count();
        assert!(count > 0);
        assert_eq!(call(&servers, "srv__change", json!({})).await, "changed");
        for _ in 0..3 {
            let ToolListing { tools, notes } = servers.list().await;
            let note = "the server `srv`: it has not listed its tools in time";
            assert_eq!((tools.names().count(), &notes[..]), (count, &[note.to_owned()][..]));
        }
        assert_eq!(std::fs::read_to_string(fixture.path().join("asked")).expect("it is there"), "x");
        // The server says that its list has changed, so it is asked again.
        assert_eq!(call(&servers, "srv__change", json!({})).await, "changed");
        let ToolListing { tools, notes } = servers.list().await;
        assert_eq!((tools.names().count(), &notes[..]), (count + 2, &[][..]));
    });
}

#[test]
fn a_resource_that_cannot_be_shown_is_noted() {
    let fixture = Fixture::new();
    let mut config = fixture.config("srv", "resources", Walls::Outside);
    let Transport::Stdio(process) = &mut config.transport else { panic!("a process") };
    process.env = vec![("SECRET_KEY".to_owned(), "correct-horse".to_owned().into())];
    let servers = fixture.servers([config]);
    block_on(async {
        for _ in 0..2 {
            let resources = servers.resources("srv").await.expect("a list");
            assert_eq!(resources.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["long"]);
        }
        let note = "the server `srv` lists resources with addresses that hold a secret value, cannot be shown or have more \
                    than 4096 bytes, which are left out: 1";
        assert_eq!(servers.list().await.notes, [note]);
        assert_eq!(servers.list().await.notes, [""; 0]);
    });
}

#[test]
fn a_server_that_cannot_be_started_keeps_no_other_from_being_used() {
    let fixture = Fixture::new();
    let mut outside = fixture.config("a", "", Walls::Isolated);
    let Transport::Stdio(process) = &mut outside.transport else { panic!("a process") };
    process.cwd = "/".to_owned();
    let servers = fixture.servers([outside, fixture.config("b", "", Walls::Outside)]);
    block_on(async {
        let [a, b] = &servers.connect().await[..] else { panic!("two servers") };
        let error = a.protocol.as_ref().expect_err("it is outside");
        let expected = "the server `a`: its `cwd` is outside of the workspace, where walls keep it";
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Config, expected));
        assert!(b.protocol.is_ok());
        assert_eq!(call(&servers, "b__echo", json!({})).await, "echo");
    });
}

#[test]
fn a_program_that_walls_may_hide_is_an_error_with_a_hint() {
    let fixture = Fixture::new();
    let config = ServerConfig::stdio("srv", "no-such-program", [""; 0]).expect("a name");
    let error = block_on(fixture.servers([config]).connect()).remove(0).protocol.expect_err("there is none");
    let expected = "a program in your home directory cannot be seen from behind walls; in your own configuration, \
                    `\"walls\": \"none\"` takes them away";
    assert_eq!(error.hint(), Some(expected));
}

#[test]
fn limits_can_be_as_long_as_a_duration() {
    let fixture = Fixture::new();
    let mut places = fixture.places();
    let limits = &mut places.limits;
    (limits.start, limits.call, limits.request) = (Duration::MAX, Duration::MAX, Duration::MAX);
    let servers = McpServers::new([fixture.config("srv", "", Walls::Outside)], places).expect("valid");
    assert_eq!(block_on(call(&servers, "srv__echo", json!({}))), "echo");
}
