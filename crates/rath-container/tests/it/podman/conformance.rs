//! Containers keep what every sandbox has to.

use rath_sandbox::Sandbox;
use rath_testkit::sandbox::{SandboxCase, conforms};

use super::support::container;

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn a_container_keeps_its_promises() {
    conforms(&mut || {
        let folder = rath_test_support::temp_dir();
        SandboxCase::new(container(folder.path()), folder)
    });
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn a_container_keeps_its_promises_over_another_directory() {
    let shown = rath_test_support::temp_dir();
    conforms(&mut || {
        let folder = rath_test_support::temp_dir();
        let other = Sandbox::new(container(shown.path())).with_directory(folder.path());
        SandboxCase::new(other.expect("it is on this machine"), folder)
    });
}
