//! Programs that are killed while servers run.

use rath_mcp::{McpServers, Places, ServerConfig, Transport, Walls};
use rath_test_support::{count, this_test, wait_until};
use serde_json::json;

use super::{Fixture, block_on, call, count_marked};

/// Starts a server, lets it leave a process, and calls it until the program is killed.
#[test]
#[ignore = "run by `no_server_is_left_when_its_program_is_killed`"]
fn child() {
    let [Ok(mark), Ok(directory), Ok(walls)] = ["MARK", "DIRECTORY", "WALLS"].map(std::env::var) else { return };
    let mut config = ServerConfig::stdio("srv", "perl", ["server.pl", "", &mark]).expect("a name");
    if let Transport::Stdio(process) = &mut config.transport {
        process.walls = if walls == "isolated" { Walls::Isolated } else { Walls::Outside };
    }
    let servers = McpServers::new([config], Places::in_directory(&directory)).expect("valid");
    block_on(async {
        assert_eq!(call(&servers, "srv__leave", json!({})).await, "left");
        loop {
            assert_eq!(call(&servers, "srv__echo", json!({})).await, "echo");
            std::fs::write(std::path::Path::new(&directory).join("ready"), "").expect("a file");
        }
    });
}

#[test]
fn no_server_is_left_when_its_program_is_killed() {
    let fixture = Fixture::new();
    let ready = fixture.path().join("ready");
    let sessions = count("RATH_KILLS", 20);
    for nth in 0..sessions {
        let walls = if nth % 2 == 0 { "isolated" } else { "outside" };
        let directory = fixture.path().to_str().expect("text");
        let settings = [("MARK", &*fixture.mark), ("DIRECTORY", directory), ("WALLS", walls)];
        let mut host = this_test("kill::child", &settings).spawn().expect("it starts");
        wait_until("the server is called", || ready.exists());
        // SIGKILL.
        host.kill().expect("it runs");
        host.wait().expect("it is a child");
        wait_until("no process is left", || count_marked(&fixture.mark) == 0);
        std::fs::remove_file(&ready).expect("it is there");
    }
    println!("{sessions} programs killed, no process left");
}
