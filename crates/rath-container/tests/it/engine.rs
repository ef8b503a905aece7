//! Engines that answer slowly, with garbage, endlessly or not at all: every call ends, with a clear error.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rath_container::Container;
use rath_sandbox::{Command, Error, ErrorKind, Sandbox};
use rath_test_support::{TempDir, temp_dir};

/// A server that answers each connection in one way.
struct FakeEngine {
    folder: TempDir,
}

impl FakeEngine {
    /// Serves until the test ends. `answer` gets the first line of the request.
    fn start(answer: impl Fn(&str, &mut UnixStream) + Send + 'static) -> Self {
        let folder = temp_dir();
        let listener = UnixListener::bind(folder.path().join("sock")).expect("a socket");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut request = [0; 4096];
                let read = stream.read(&mut request).unwrap_or(0);
                let text = String::from_utf8_lossy(&request[..read]).into_owned();
                answer(text.lines().next().unwrap_or_default(), &mut stream);
            }
        });
        FakeEngine { folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }
}

/// Returns the error of a command in a container of this engine.
fn error_of(socket: &Path, timeout: Duration) -> Error {
    let folder = temp_dir();
    let container = Container::image("busybox").directory(folder.path()).socket(socket).engine_timeout(timeout);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(Sandbox::new(container).run(&Command::shell("true"))).expect_err("there is no engine")
}

fn check(answer: impl Fn(&str, &mut UnixStream) + Send + 'static, wanted: &str) {
    let engine = FakeEngine::start(answer);
    let error = error_of(&engine.socket(), Duration::from_millis(500));
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let message = error.message();
    assert!(message.contains(wanted), "wanted `{wanted}`, found `{message}`");
    assert!(message.len() < 1000 && !message.contains(char::is_control), "{message:?}");
}

/// Writes an answer of a real engine, with this body.
fn answer(stream: &mut UnixStream, status: &str, body: &str) {
    let head = "Api-Version: 1.41\r\nLibpod-Api-Version: 4.3.1\r\nConnection: close\r\nContent-Type: application/json";
    let _ = write!(stream, "HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
}

#[test]
fn an_engine_that_is_not_there_is_an_error_with_a_hint() {
    let folder = temp_dir();
    let error = error_of(&folder.path().join("nothing"), Duration::from_secs(5));
    assert!(error.message().contains("cannot be reached"), "{error:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("podman.socket")));
}

#[test]
fn an_engine_that_never_answers_is_given_up() {
    check(|_, stream| _ = stream.read(&mut [0; 1]), "does not answer");
}

#[test]
fn an_engine_that_answers_a_byte_at_a_time_is_given_up() {
    let slow = |_: &str, stream: &mut UnixStream| {
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n".iter().chain([b'x'; 1000].iter()) {
            std::thread::sleep(Duration::from_millis(20));
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
        }
    };
    check(slow, "does not answer");
}

#[test]
fn an_engine_that_closes_the_connection_is_an_error() {
    check(|_, _| {}, "cannot be reached");
}

#[test]
fn garbage_is_an_error_on_one_line() {
    check(|_, stream| _ = stream.write_all(b"\x1b[2J\0garbage\r\n\r\n"), "cannot understand the answer");
    check(|_, stream| answer(stream, "200 OK", "\u{1b}[2J{not json"), "cannot understand the answer");
    let no_engine = |_: &str, stream: &mut UnixStream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nOK");
    };
    check(no_engine, "wanted the version of its API");
    check(
        |_, stream| answer(stream, "500 Oops", &format!("{{\"message\":\"\\u001b[2J{}\"}}", "x".repeat(9000))),
        "500",
    );
}

#[test]
fn an_endless_answer_is_cut() {
    let endless = |line: &str, stream: &mut UnixStream| {
        if line.contains("_ping") {
            return answer(stream, "200 OK", "OK");
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[");
        while stream.write_all(&[b' '; 1 << 16]).is_ok() {}
    };
    let engine = FakeEngine::start(endless);
    // Enough time to read as much as is allowed.
    let error = error_of(&engine.socket(), Duration::from_secs(60));
    assert!(error.message().contains("too long") || error.message().contains("body"), "{error:?}");
}

#[test]
fn a_container_with_a_hostile_id_is_not_asked_for() {
    let hostile = |line: &str, stream: &mut UnixStream| {
        if line.contains("/create") {
            answer(stream, "201 Created", r#"{"Id":"../../images/x","Warnings":[]}"#);
        } else if line.contains("/images/") {
            answer(stream, "200 OK", r#"{"Id":"sha256:00"}"#);
        } else if line.contains("/containers/json") {
            answer(stream, "200 OK", "[]");
        } else {
            answer(stream, "200 OK", "OK");
        }
    };
    check(hostile, "wanted the id of a container");
}

#[test]
fn a_limit_that_the_engine_discards_is_an_error() {
    let id = "0".repeat(64);
    let weak = move |line: &str, stream: &mut UnixStream| {
        if line.contains("/create") {
            let warning = "Your kernel does not support memory limit capabilities. Limitation discarded.";
            answer(stream, "201 Created", &format!(r#"{{"Id":"{id}","Warnings":["{warning}"]}}"#));
        } else if line.contains("/images/") {
            answer(stream, "200 OK", r#"{"Id":"sha256:00"}"#);
        } else if line.contains("/containers/json") {
            answer(stream, "200 OK", "[]");
        } else if line.starts_with("DELETE") {
            answer(stream, "204 No Content", "");
        } else {
            answer(stream, "200 OK", "OK");
        }
    };
    check(weak, "cannot enforce a limit");
}
