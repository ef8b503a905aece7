//! The engine that tests use, and requests to it beside rath.

use std::future::Future;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rath_container::Container;
use rath_sandbox::{Command, Output, Result, Sandbox};

/// Returns the socket of the engine for tests.
pub(crate) fn socket() -> PathBuf {
    std::env::var_os("RATH_CONTAINER_SOCKET")
        .expect("RATH_CONTAINER_SOCKET names the socket of podman or docker")
        .into()
}

/// Returns the image for tests: programs of busybox in `/bin`.
pub(crate) fn image() -> String {
    std::env::var("RATH_CONTAINER_IMAGE").unwrap_or_else(|_| "localhost/rath-busybox:1".to_owned())
}

/// Returns a container that works in a directory.
pub(crate) fn container(directory: &Path) -> Container {
    Container::image(image()).directory(directory).socket(socket())
}

/// Runs a future on a new runtime.
pub(crate) fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// Runs a line of shell.
pub(crate) fn sh(sandbox: &Sandbox, line: &str) -> Output {
    run(sandbox, &Command::shell(line)).expect("it runs")
}

pub(crate) fn run(sandbox: &Sandbox, command: &Command) -> Result<Output> {
    wait(sandbox.run(command))
}

/// Sends a request to the engine, and returns the answer as text.
pub(crate) fn request(method: &str, path: &str) -> String {
    let mut stream = UnixStream::connect(socket()).expect("the engine is there");
    write!(stream, "{method} /v1.41{path} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answered");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the ids of the containers that show a directory.
pub(crate) fn containers_of(directory: &Path) -> Vec<String> {
    let list = request("GET", "/containers/json?all=1");
    let ids = list.split("\"Id\":\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    let shows = |id: &String| {
        request("GET", &format!("/containers/{id}/json")).contains(&format!("\"{}\"", directory.display()))
    };
    ids.filter(shows).collect()
}
