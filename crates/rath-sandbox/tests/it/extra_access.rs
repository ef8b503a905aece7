//! Access beyond the walls: hosts through a proxy, and paths outside of the workspace.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

use rath_sandbox::{Command, ErrorKind, ExitStatus, Isolated, Local, Network, Sandbox};

use super::{block_on, printed, run, sh};

/// A server that answers each request with its head, and sends the head on.
struct Server {
    port: u16,
    heads: mpsc::Receiver<String>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (sender, heads) = mpsc::channel();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(mut client) = client else { continue };
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|read| read > 0) {
                    head.push(byte[0]);
                }
                let _ = client.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello\n");
                if sender.send(String::from_utf8_lossy(&head).into_owned()).is_err() {
                    return;
                }
            }
        });
        Server { port, heads }
    }

    /// Returns the heads of all requests so far.
    fn heads(&self) -> Vec<String> {
        self.heads.try_iter().collect()
    }
}

/// Sends a text to the proxy from inside of a sandbox, and returns what comes back.
fn send(sandbox: &Sandbox, text: &str) -> String {
    let mut command = Command::argv(["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/4128 && cat >&3 && cat <&3"]);
    // Its end shows that there is no more to come; without input the shell would not wait.
    command.stdin = text.as_bytes().to_vec();
    printed(&run(sandbox, &command))
}

fn with_host(host: &str) -> (rath_test_support::TempDir, Sandbox) {
    let directory = rath_test_support::temp_dir();
    let sandbox = Isolated::new(directory.path()).allow_host(host).expect("a host").into();
    (directory, sandbox)
}

#[test]
fn a_host_that_was_named_can_be_reached_and_no_other() {
    let (server, other) = (Server::start(), Server::start());
    let (port, closed) = (server.port, other.port);
    let (_directory, sandbox) = with_host(&format!("localhost:{port}"));
    let plain = send(&sandbox, &format!("GET http://localhost:{port}/x HTTP/1.1\r\nHost: evil.test\r\n\r\n"));
    assert!(plain.starts_with("HTTP/1.1 200 OK") && plain.ends_with("hello\n"), "{plain}");
    assert_eq!(server.heads(), [format!("GET /x HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n")]);
    let tunnel = send(&sandbox, &format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n"));
    assert!(tunnel.starts_with("HTTP/1.1 200 Connection established") && tunnel.ends_with("hello\n"), "{tunnel}");
    assert_eq!(server.heads(), ["GET / HTTP/1.1\r\n\r\n"]);
    for target in [
        format!("CONNECT localhost:{closed}"),
        format!("CONNECT 127.0.0.1:{port}"),
        format!("CONNECT 0.0.0.0:{port}"),
        format!("CONNECT [::ffff:127.0.0.1]:{port}"),
        format!("CONNECT 2130706433:{port}"),
        format!("CONNECT 0x7f.1:{port}"),
        format!("CONNECT localhost.evil.test:{port}"),
        "CONNECT localhost:22".to_owned(),
        format!("GET http://127.0.0.1:{port}/"),
        format!("GET http://localhost:{closed}/"),
        format!("GET http://localhost:{port}@evil.test/"),
    ] {
        let answer = send(&sandbox, &format!("{target} HTTP/1.1\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 4"), "{target}: {answer}");
    }
    // A second request behind the first, for a host that was not compared.
    let two = format!(
        "GET http://localhost:{port}/ HTTP/1.1\r\n\r\nGET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"
    );
    send(&sandbox, &two);
    assert!(server.heads().concat().matches("evil").next().is_none());
    // Without the proxy nothing is reached.
    for port in [port, closed] {
        let direct = run(&sandbox, &Command::argv(["bash", "-c", &format!("exec 3<>/dev/tcp/127.0.0.1/{port}")]));
        assert_ne!(direct.status, ExitStatus::Exit(0), "{}", printed(&direct));
    }
    assert_eq!((server.heads(), other.heads()), (Vec::new(), Vec::new()));
}

#[test]
fn a_name_that_stands_for_this_machine_is_refused() {
    let server = Server::start();
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name").trim().to_owned();
    let (_directory, sandbox) = with_host(&format!("{name}:{}", server.port));
    let answer = send(&sandbox, &format!("CONNECT {name}:{} HTTP/1.1\r\n\r\nx", server.port));
    assert!(!answer.contains("200"), "{answer}");
    assert_eq!(server.heads(), Vec::<String>::new());
}

#[test]
fn nonsense_and_silence_do_not_disturb_the_proxy() {
    let server = Server::start();
    let (_directory, sandbox) = with_host(&format!("localhost:{}", server.port));
    let line = format!(
        "for i in $(seq 40); do (exec 3<>/dev/tcp/127.0.0.1/4128; head -c 70000 /dev/urandom >&3) 2>/dev/null; done
         exec 4<>/dev/tcp/127.0.0.1/4128
         exec 3<>/dev/tcp/127.0.0.1/4128; printf 'GET http://localhost:{}/ HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3",
        server.port
    );
    let output = run(&sandbox, &Command::argv(["bash", "-c", &line]));
    assert!(printed(&output).ends_with("hello\n"), "{}", printed(&output));
}

#[test]
fn programs_find_the_proxy_in_their_environment() {
    let (_directory, sandbox) = with_host("example.com");
    assert_eq!(
        printed(&sh(&sandbox, "echo $https_proxy $HTTP_PROXY")),
        "http://127.0.0.1:4128 http://127.0.0.1:4128\n"
    );
    let capabilities = block_on(sandbox.capabilities()).expect("it runs");
    assert_eq!((capabilities.network, capabilities.hosts), (Network::Hosts, vec!["example.com".to_owned()]));
    let directory = rath_test_support::temp_dir();
    let off = Sandbox::isolated(directory.path());
    assert_eq!(printed(&sh(&off, "echo $https_proxy$HTTP_PROXY")), "\n");
    // Unix sockets stay closed.
    let socket = sh(&sandbox, "python3 -c 'import socket; socket.socket(socket.AF_UNIX)'");
    assert_ne!(socket.status, ExitStatus::Exit(0));
}

#[test]
fn one_command_may_have_more_access_than_the_others() {
    let directory = rath_test_support::temp_dir_in(env!("CARGO_TARGET_TMPDIR").as_ref());
    let (work, outside) = (directory.path().join("work"), directory.path().join("outside"));
    for path in [
        &work,
        &outside,
        &work.join(".git/refs"),
        &work.join(".git/objects"),
        &outside.join(".git"),
        &outside.join(".rath"),
    ] {
        std::fs::create_dir_all(path).expect("a directory");
    }
    for name in [".git", ".rath"] {
        std::fs::create_dir_all(outside.join("a/b").join(name)).expect("a directory");
    }
    std::fs::write(outside.join("file"), "x").expect("a file");
    let sandbox: Sandbox = Isolated::new(&work).into();
    let server = Server::start();
    let outside = outside.display().to_string();
    let rows = [
        ("outside", format!("echo x > '{outside}/new'")),
        ("file", format!("echo x > '{outside}/file'")),
        ("git", "echo x > .git/refs/x".to_owned()),
        (
            "host",
            format!(
                "exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/4128; printf \"CONNECT localhost:{} HTTP/1.1\\r\\n\\r\\n\" >&3; head -1 <&3 | grep 200'",
                server.port
            ),
        ),
    ];
    for (given, _) in &rows {
        for (needed, line) in &rows {
            let mut command = Command::shell(line);
            match *given {
                "outside" => command.extra.writable = vec![outside.clone()],
                "file" => command.extra.writable = vec![format!("{outside}/file")],
                "git" => command.extra.git = true,
                _ => command.extra.hosts = vec![format!("localhost:{}", server.port)],
            }
            let output = run(&sandbox, &command);
            let expected = given == needed || (*given, *needed) == ("outside", "file");
            // Below a home directory, commands write to a private directory instead.
            let is_private = *needed == "outside" && std::fs::remove_file(format!("{outside}/new")).is_err();
            let has_effect = output.status == ExitStatus::Exit(0) && !is_private;
            assert_eq!(has_effect, expected, "{given}: {line}: {}", printed(&output));
        }
    }
    for line in [
        format!("echo x > '{outside}/.git/config'"),
        format!("ls '{outside}/.rath' | grep . || echo x > '{outside}/.rath/y'"),
        format!("echo x > '{outside}/a/b/.git/config'"),
        format!("echo x > '{outside}/a/b/.rath/y'"),
    ] {
        let mut command = Command::shell(&line);
        command.extra.writable = vec![outside.clone()];
        assert_ne!(run(&sandbox, &command).status, ExitStatus::Exit(0), "{line}");
    }
    for wrong in ["/", "/proc", "/sys/kernel", "relative", "/not there"] {
        let mut command = Command::shell("true");
        command.extra.writable = vec![wrong.to_owned()];
        assert_eq!(block_on(sandbox.run(&command)).expect_err(wrong).kind(), ErrorKind::Config, "{wrong}");
    }
    // Without walls there is nothing to give.
    let mut command = Command::shell("true");
    command.extra.git = true;
    assert_eq!(run(&Local::new(&work).into(), &command).status, ExitStatus::Exit(0));
}
