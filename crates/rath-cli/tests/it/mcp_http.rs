//! `rath mcp serve --http`: who may connect, and the clients and suites that others wrote.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rath_test_support::{wait_until, with_enough_time};
use serde_json::{Value, json};

use super::fixture::{Fixture, STORES};
use super::workshop;

/// A server on loopback, stopped when it is dropped.
struct Server {
    process: Child,
    address: SocketAddr,
    /// The path of the URL that it printed.
    path: String,
    _stderr: BufReader<ChildStderr>,
}

impl Server {
    fn start(fixture: &Fixture, environment: &[(&str, &str)]) -> Self {
        Server::start_at(fixture, "127.0.0.1:0", environment)
    }

    fn start_at(fixture: &Fixture, address: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = fixture.command(&["mcp", "serve", "--http", address]);
        command.envs(environment.iter().copied()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the server starts");
        let mut stderr = BufReader::new(process.stderr.take().expect("a pipe"));
        let mut line = String::new();
        while !line.starts_with("serving at ") {
            line.clear();
            assert!(stderr.read_line(&mut line).expect("a line") > 0, "it prints its URL");
        }
        let url = line.trim_end().strip_prefix("serving at http://").expect("a URL");
        let (address, path) = url.split_once('/').expect("a path");
        let (address, path) = (address.parse().expect("an address"), format!("/{path}"));
        Server { process, address, path, _stderr: stderr }
    }

    fn url(&self) -> String {
        format!("http://{}{}", self.address, self.path)
    }

    /// Sends a request, and returns the status and the body.
    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).expect("connected");
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        let is_given = |name: &str| headers.iter().any(|(given, _)| *given == name);
        if !is_given("Host") {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        for (name, value) in [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")] {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        stream.write_all(format!("{head}\r\n").as_bytes()).expect("sent");
        // The server may close before it has read all of a large body.
        let _ = stream.write_all(body);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        let reply = String::from_utf8_lossy(&reply);
        let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_default();
        (head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default(), body.to_owned())
    }

    /// Asks the server to stop, as a service manager does, and returns whether it ended with success.
    fn stop(mut self) -> bool {
        let id = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("signalled");
        self.process.wait().expect("it ends").success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn list_tools() -> Vec<u8> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}).to_string().into_bytes()
}

/// A method, a path, headers, and the status of the response.
type RequestRow<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u16);

const VERSION: (&str, &str) = ("MCP-Protocol-Version", "2026-07-28");
const METHOD: (&str, &str) = ("Mcp-Method", "tools/list");

#[test]
fn only_programs_with_the_secret_are_answered() {
    let fixture = Fixture::in_folder(workshop(""), STORES[0]);
    let server = Server::start(&fixture, &[]);
    let other = Server::start(&fixture, &[]);
    assert_ne!(server.path, other.path, "every server has a secret of its own");
    let port = server.address.port();
    let (local, named) = (format!("http://localhost:{port}"), format!("localhost:{port}"));
    let (absolute, foreign) = (format!("http://{named}{}", server.path), format!("http://example.com{}", server.path));
    let rows: [RequestRow<'_>; 21] = [
        ("POST", &server.path, &[], 200),
        ("POST", &server.path, &[("Host", &named)], 200),
        ("POST", &server.path, &[("Origin", &local)], 200),
        ("POST", "/mcp", &[], 401),
        ("POST", "/mcp", &[("Authorization", "Bearer 0")], 401),
        ("POST", &other.path, &[], 401),
        ("POST", "/mcp/", &[], 401),
        ("POST", "/", &[], 404),
        ("GET", &server.path, &[], 405),
        ("DELETE", &server.path, &[], 405),
        // A page of another site, under its own name and under one that leads here.
        ("POST", &server.path, &[("Origin", "https://example.com")], 403),
        ("POST", &server.path, &[("Origin", "null")], 403),
        ("POST", &server.path, &[("Host", "example.com")], 403),
        ("POST", &server.path, &[("Host", &format!("localhost:{}", port ^ 1))], 403),
        // Names that contradict each other.
        ("POST", &absolute, &[], 200),
        ("POST", &absolute, &[("Host", "example.com")], 403),
        ("POST", &foreign, &[], 403),
        ("POST", &foreign, &[("Host", "example.com")], 403),
        ("POST", &server.path, &[("Host", &named), ("Host", "example.com")], 400),
        ("POST", &server.path, &[("Host", "example.com"), ("Host", &named)], 400),
        ("POST", &server.path, &[("Origin", &local), ("Origin", "https://example.com")], 400),
    ];
    for (method, path, headers, expected) in rows {
        let headers: Vec<_> = headers.iter().copied().chain([VERSION, METHOD]).collect();
        let (status, body) = server.send(method, path, &headers, &list_tools());
        assert_eq!(status, expected, "{method} {path} {headers:?}: {body}");
        assert_eq!(body.contains("list_sessions"), status == 200, "{body}");
    }
    let huge = vec![b' '; 3 << 20];
    let (status, _) = server.send("POST", &server.path, &[VERSION, METHOD], &huge);
    assert!(status == 413 || status == 0, "{status}");
    let (status, _) = server.send("POST", &server.path, &[VERSION, METHOD], b"no JSON");
    assert!((400..500).contains(&status), "{status}");
    let (status, _) = server.send("POST", &server.path, &[VERSION, METHOD], &list_tools());
    assert_eq!(status, 200, "it still answers");
    assert!(server.stop());
}

impl Server {
    /// Opens a connection and sends nothing.
    fn connect_silently(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connected");
        stream.set_nonblocking(true).expect("a socket");
        stream
    }

    /// Sends a request with the secret without the last byte of its body.
    fn send_almost(&self) -> (TcpStream, u8) {
        let (body, mut stream) = (list_tools(), TcpStream::connect(self.address).expect("connected"));
        let (last, body) = body.split_last().expect("a body");
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\nContent-Length: {}\r\n\r\n",
            self.path,
            self.address,
            body.len() + 1,
        );
        stream.write_all(&[head.as_bytes(), body].concat()).expect("sent");
        (stream, *last)
    }
}

/// Returns true unless the server has closed a connection.
fn is_open(mut stream: &TcpStream) -> bool {
    stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// The connections that have shown no secret close each other's only.
#[test]
fn silent_connections_hold_up_no_client() {
    const SILENT: usize = 64;
    let fixture = Fixture::in_folder(workshop(""), STORES[0]);
    let server = Server::start(&fixture, &[]);
    let (is_over, opened) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut silent = Vec::new();
            while !is_over.load(SeqCst) {
                silent.retain(is_open);
                while silent.len() < SILENT {
                    silent.push(server.connect_silently());
                    opened.fetch_add(1, SeqCst);
                }
                std::thread::yield_now();
            }
        });
        wait_until("there are silent connections", || opened.load(SeqCst) >= SILENT);
        let answers = std::panic::catch_unwind(|| {
            with_enough_time(Duration::from_secs(2), |time| {
                assert!(time < Duration::from_secs(10), "a silent connection ends by itself after this time");
                let is_in_time = |_| {
                    let started = Instant::now();
                    let (status, body) = server.send("POST", &server.path, &[VERSION, METHOD], &list_tools());
                    assert_eq!(status, 200, "{body}");
                    started.elapsed() < time
                };
                (0..5).all(is_in_time).then_some(())
            });
        });
        is_over.store(true, SeqCst);
        answers.expect("answers in time");
    });
    assert!(server.stop());
}

#[test]
fn connections_have_bounds() {
    const SILENT: usize = 300;
    // As in `http.rs`.
    const MAX_UNPROVEN: usize = 64;
    const MAX_REQUESTS: usize = 64;
    let fixture = Fixture::in_folder(workshop(""), STORES[0]);
    let server = Server::start(&fixture, &[]);
    let ask = || server.send("POST", &server.path, &[VERSION, METHOD], &list_tools()).0;
    let requests: Vec<_> = (0..MAX_REQUESTS).map(|_| server.send_almost()).collect();
    let silent: Vec<_> = (0..SILENT).map(|_| server.connect_silently()).collect();
    wait_until("the oldest connections are closed", || {
        silent.iter().filter(|stream| is_open(stream)).count() <= MAX_UNPROVEN
    });
    assert!(is_open(&silent[SILENT - 1]), "the newest stays");
    if cfg!(target_os = "linux") {
        let files = std::fs::read_dir(format!("/proc/{}/fd", server.process.id())).expect("a process").count();
        assert!(files < MAX_UNPROVEN + MAX_REQUESTS + 64, "{files} files are open");
    }
    assert_eq!(ask(), 503, "all requests are in use");
    for (mut stream, last) in requests {
        stream.write_all(&[last]).expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    }
    wait_until("there is room for a request", || ask() == 200);
    assert!(server.stop());
}

#[test]
fn every_url_that_is_printed_is_answered() {
    let fixture = Fixture::in_folder(workshop(""), STORES[0]);
    for address in ["127.0.0.1:0", "127.9.9.9:0", "[::1]:0"] {
        if let Err(error) = TcpListener::bind(address) {
            eprintln!("skipped {address}: {error}");
            continue;
        }
        let server = Server::start_at(&fixture, address, &[]);
        let origin = format!("http://{}", server.address);
        for (headers, expected) in [
            (&[VERSION, METHOD][..], 200),
            (&[VERSION, METHOD, ("Origin", &origin)], 200),
            (&[VERSION, METHOD, ("Host", "example.com")], 403),
        ] {
            let (status, body) = server.send("POST", &server.path, headers, &list_tools());
            assert_eq!(status, expected, "{address} {headers:?}: {body}");
        }
        assert!(server.stop());
    }
}

/// The secret is the end of a URL, and of a header.
#[test]
fn a_secret_that_a_url_cannot_have_is_refused() {
    let fixture = Fixture::in_folder(workshop(""), STORES[0]);
    let rows: [(&[u8], &str); 10] = [
        (b"", "has fewer than 16 characters"),
        (b"short", "has fewer than 16 characters"),
        (b"correct horse battery", "has a character other than"),
        (b"correct/horse/battery", "has a character other than"),
        (b"correct?horse?battery", "has a character other than"),
        (b"correct#horse#battery", "has a character other than"),
        (b"correct%20horse%20battery", "has a character other than"),
        (b"correct-horse-battery\n", "has a character other than"),
        ("correct-h\u{f6}rse-battery".as_bytes(), "has a character other than"),
        (b"correct-h\xf6rse-battery", "has a character other than"),
    ];
    for (secret, expected) in rows {
        let mut command = fixture.command(&["mcp", "serve", "--http", "127.0.0.1:0"]);
        command.env("RATH_MCP_TOKEN", OsStr::from_bytes(secret)).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("rath runs");
        let mut lines = BufReader::new(process.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
        let line = lines.find(|line| !line.starts_with("waiting for"));
        let _ = process.kill();
        let _ = process.wait();
        let line = line.unwrap_or_default();
        assert!(line.starts_with(&format!("error: RATH_MCP_TOKEN {expected}")), "{secret:?}: {line}");
        assert!(!line.contains("horse"), "{line}");
    }
    let secret = "Correct-horse.battery_~1";
    let server = Server::start(&fixture, &[("RATH_MCP_TOKEN", secret)]);
    let path = server.path.replace("$RATH_MCP_TOKEN", secret);
    assert_eq!(server.send("POST", &path, &[VERSION, METHOD], &list_tools()).0, 200);
}

#[test]
fn a_secret_of_the_user_is_not_printed() {
    let fixture = Fixture::in_folder(workshop(""), STORES[0]);
    let secret = "correct-horse-battery";
    let server = Server::start(&fixture, &[("RATH_MCP_TOKEN", secret)]);
    assert_eq!(server.path, "/mcp/$RATH_MCP_TOKEN");
    let bearer = format!("Bearer {secret}");
    let (status, _) = server.send("POST", "/mcp", &[VERSION, METHOD, ("Authorization", &bearer)], &list_tools());
    assert_eq!(status, 200);
    for (args, environment) in [
        (&["mcp", "serve", "--http", "0.0.0.0:0"][..], &[][..]),
        (&["mcp", "serve", "--http", "192.0.2.1:80"], &[]),
        (&["mcp", "serve", "--http", "[::]:0"], &[]),
        (&["mcp", "serve", "--http", "example.com:80"], &[]),
        (&["mcp", "serve", "--http", "127.0.0.1:0"], &[("RATH_MCP_TOKEN", "short")]),
    ] {
        let output = fixture.command(args).envs(environment.iter().copied()).output().expect("rath runs");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

/// A store with a session.
fn fixture() -> Fixture {
    let fixture = Fixture::in_folder(workshop(""), STORES[0]);
    fixture.work(None, "Write a file, please", "echo one > a.txt; echo the river Seine");
    fixture
}

#[test]
#[ignore = "needs Python with the package mcp, named by RATH_PYTHON: see CONTRIBUTING.md"]
fn the_python_client_asks_about_sessions() {
    let fixture = fixture();
    let python = std::env::var_os("RATH_PYTHON").expect("RATH_PYTHON names a Python that has mcp");
    for mode in ["legacy", "auto"] {
        let server = fixture.command(&["mcp", "serve"]);
        let mut client = rath_test_support::program(&python);
        client.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mcp_client.py")).arg(mode);
        client.arg(server.get_program()).args(server.get_args()).current_dir(fixture.path("."));
        let output = client.output().expect("Python runs");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        let answers: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let [version, tools, list, wrong, pages] = &answers[..] else { panic!("five answers: {printed}") };
        assert_eq!(version, if mode == "auto" { "2026-07-28" } else { "2025-11-25" });
        assert_eq!(tools.as_array().map(Vec::len), Some(8));
        assert!(list.as_str().is_some_and(|list| list.contains("Write a file, please")), "{list}");
        assert!(wrong.as_str().is_some_and(|wrong| wrong.contains("no session")), "{wrong}");
        let sent = fixture.out(&["show", &fixture.newest(), "head", "--as-sent"]);
        assert!(pages.as_str() == Some(&sent), "{pages}");
    }
}

/// Runs the official suite, each scenario of which has to end as the file of expected failures says.
#[test]
#[ignore = "needs the conformance suite in RATH_NODE_MODULES, and Node 22 named by RATH_NODE: see CONTRIBUTING.md"]
fn the_official_suite_passes() {
    let fixture = fixture();
    let modules = std::env::var_os("RATH_NODE_MODULES").expect("RATH_NODE_MODULES names a folder that has the suite");
    let node = std::env::var_os("RATH_NODE").expect("RATH_NODE names a Node of version 22 or later");
    let suite = std::path::Path::new(&modules).join("@modelcontextprotocol/conformance/dist/index.js");
    let server = Server::start(&fixture, &[]);
    let run = |args: &[&str]| {
        let mut command: Command = rath_test_support::program(&node);
        command.arg(&suite).args(["server", "--url", &server.url()]).args(args).current_dir(fixture.path("."));
        let output = command.output().expect("Node runs");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{args:?}\n{out}{err}");
    };
    let expected = |version: &str| format!("{}/tests/mcp/{version}.yml", env!("CARGO_MANIFEST_DIR"));
    for version in ["2026-07-28", "2025-11-25"] {
        run(&["--spec-version", version, "--expected-failures", &expected(version)]);
    }
    // Those that the suite runs only if they are named.
    for scenario in
        ["server-stateless", "caching", "http-header-validation", "input-required-result-unsupported-methods"]
    {
        run(&["--scenario", scenario, "--expected-failures", &expected("2026-07-28")]);
    }
}
