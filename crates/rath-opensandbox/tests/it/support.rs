//! Helpers that several tests use.

use std::future::Future;

use rath_opensandbox::{OpenSandbox, OpenSandboxServer};
use rath_testkit::opensandbox::StandIn;

/// A sandbox on a server, in a workspace that the server can give it.
pub(crate) fn on(server: &StandIn) -> OpenSandbox {
    OpenSandbox::image("debian:13").workdir("~/work space").on(&address(server))
}

/// The address and the key of a server.
pub(crate) fn address(server: &StandIn) -> OpenSandboxServer {
    OpenSandboxServer::new(server.address()).key(server.key())
}

/// Runs a test's own runtime.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}
