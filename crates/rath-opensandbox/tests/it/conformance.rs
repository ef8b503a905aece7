//! The contract of all sandboxes.

use rath_sandbox::{Command, Sandbox};
use rath_testkit::opensandbox::StandIn;
use rath_testkit::sandbox::{SandboxCase, conforms};

use crate::support::{block_on, on};

#[test]
fn a_sandbox_on_a_server_keeps_the_contract() {
    conforms(&mut || {
        let server = StandIn::start();
        SandboxCase::new(Sandbox::new(on(&server)), server)
    });
}

#[test]
fn a_sandbox_can_be_reached_through_the_server() {
    let server = StandIn::start();
    let sandbox = Sandbox::new(on(&server).through_server());
    let output = block_on(sandbox.run(&Command::shell("echo here"))).expect("it runs");
    assert_eq!(output.stdout.head, b"here\n");
    let is_direct = |line: &String| line.contains("/direct/");
    assert!(!server.log().iter().any(is_direct), "{:?}", server.log());
}
