//! The stand-in server, used by a client that others wrote.

use rath_test_support::program;
use rath_testkit::opensandbox::StandIn;

#[test]
#[ignore = "needs Python with opensandbox: RATH_PYTHON is its path"]
fn the_official_client_can_use_the_server_that_stands_in() {
    let python = std::env::var_os("RATH_PYTHON").expect("RATH_PYTHON is the path of a Python with opensandbox");
    let server = StandIn::start();
    let domain = server.address().trim_start_matches("http://").to_owned();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/sdk.py");
    let output = program(python).args([script, &domain, server.key()]).output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && printed.contains("the SDK is content"),
        "{printed}{errors}\n{:#?}",
        server.take_violations()
    );
    assert!(server.sandboxes().is_empty(), "it removed its sandbox");
}
