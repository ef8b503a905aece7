//! A command runs once at most, also if the connection breaks or the client is killed.

use std::future::poll_fn;
use std::pin::pin;
use std::process::Stdio;
use std::task::Poll;
use std::time::Duration;

use rath_opensandbox::OpenSandboxServer;
use rath_sandbox::{Command, ExitStatus, Registry, Result, Sandbox, SandboxBackend};
use rath_test_support::{exhaustive, seeds, this_test, wait_until};
use rath_testkit::opensandbox::{Fault, StandIn};

use crate::support::{address, block_on, on};

/// The variables that tell a client where its sandbox is.
const ADDRESS: &str = "RATH_TEST_ADDRESS";
const KEY: &str = "RATH_TEST_KEY";
const URI: &str = "RATH_TEST_URI";

/// A command that leaves a line for each time that it runs.
const COUNTED: &str = "echo run >> ../runs; echo out; echo err >&2; exit 3";

/// Waits: a client is stopped at some point of its work.
fn pause(time: Duration) {
    block_on(async { tokio::time::sleep(time).await });
}

/// Returns the number of times that the counted command ran.
fn runs(server: &StandIn) -> usize {
    let home = &server.sandboxes()[0].home;
    std::fs::read_to_string(home.join("runs")).map_or(0, |text| text.lines().count())
}

/// Checks the result of the counted command: the right one, or an error that says what is known.
fn check(result: Result<rath_sandbox::Output>, runs: usize, case: &str) {
    match result {
        Ok(output) => {
            assert_eq!((output.status, runs), (ExitStatus::Exit(3), 1), "{case}");
            assert_eq!((&*output.stdout.head, &*output.stderr.head), (&b"out\n"[..], &b"err\n"[..]), "{case}");
        }
        Err(error) if error.message().contains("not started") => assert_eq!(runs, 0, "{case}: {error}"),
        Err(error) => {
            assert!(error.message().contains("outcome of the command is unknown"), "{case}: {error:?}");
            assert!(error.hint().is_some_and(|hint| hint.contains("not sent a second time")), "{case}: {error:?}");
            assert!(runs <= 1, "{case}: it ran {runs} times");
        }
    }
}

#[test]
fn a_command_whose_connection_breaks_is_not_sent_again() {
    let server = StandIn::start();
    let sandbox = Sandbox::new(on(&server));
    block_on(sandbox.run(&Command::shell("true"))).expect("it runs");
    let cut = |bytes| (format!("cut after {bytes} bytes"), Fault::CutAfter(bytes));
    let named = [Fault::Cut, Fault::NoAnswer, Fault::Status(404), Fault::Status(500), Fault::Status(503)];
    let faults = named.into_iter().map(|fault| (format!("{fault:?}"), fault));
    let step = if exhaustive() { 1 } else { 37 };
    let mut was_cut = 0;
    for (case, fault) in faults.chain((0..900).step_by(step).map(cut)) {
        let _ = std::fs::remove_file(server.sandboxes()[0].home.join("runs"));
        server.fail("/command", fault);
        let result = block_on(sandbox.run(&Command::shell(COUNTED)));
        was_cut += usize::from(result.is_err());
        check(result, runs(&server), &case);
        // The sandbox works as before.
        assert_eq!(block_on(sandbox.run(&Command::shell("echo here"))).expect("it runs").stdout.head, b"here\n");
    }
    assert!(was_cut > 9, "{was_cut} commands were cut");
}

#[test]
fn a_command_that_is_left_is_ended_first_and_its_script_removed() {
    let server = StandIn::start();
    let sandbox = Sandbox::new(on(&server));
    block_on(sandbox.run(&Command::shell("true"))).expect("it runs");
    let mark = format!("86301.{:010}", std::process::id());
    let command = Command::shell(&format!("setsid sleep {mark} & sleep {mark}"));
    for (request, fault) in [
        ("/files/upload", Fault::NoAnswer),
        ("/files/upload", Fault::Status(500)),
        ("/command", Fault::NoAnswer),
        ("/command", Fault::Cut),
        ("/command", Fault::CutAfter(0)),
        ("/command", Fault::CutAfter(60)),
        ("/command", Fault::Status(404)),
        ("/command", Fault::Status(500)),
    ] {
        server.fail(request, fault);
        let error = block_on(sandbox.run(&command)).expect_err("it is left");
        assert!(!is_running(&mark), "{request}, {fault:?}: {error}");
        assert!(server.command_dirs().is_empty(), "{request}, {fault:?}: {:?}", server.command_dirs());
    }
}

#[test]
fn a_request_that_only_reads_is_sent_again() {
    let server = StandIn::start();
    let sandbox = Sandbox::new(on(&server));
    block_on(sandbox.write("a", b"one")).expect("written");
    for fault in [Fault::Cut, Fault::NoAnswer, Fault::Status(503)] {
        server.fail("/files/info", fault);
        server.fail("/files/download", fault);
        let range = rath_sandbox::ByteRange { offset: 1, max_len: 9 };
        assert_eq!(block_on(sandbox.read("a", range)).expect("read"), b"ne", "{fault:?}");
    }
}

#[test]
fn a_call_that_is_dropped_ends_its_command_or_does_not_start_it() {
    let server = StandIn::start();
    let sandbox = Sandbox::new(on(&server));
    block_on(sandbox.run(&Command::shell("true"))).expect("it runs");
    for seed in seeds(12) {
        let _ = std::fs::remove_file(server.sandboxes()[0].home.join("runs"));
        let mark = format!("86300.{:010}{seed:05}", std::process::id());
        let command = Command::shell(&format!("echo run >> ../runs; setsid sleep {mark} & sleep {mark}"));
        block_on(async {
            let mut run = pin!(sandbox.run(&command));
            let mut timer = pin!(tokio::time::sleep(Duration::from_millis(seed * 37 % 200)));
            poll_fn(|cx| match (run.as_mut().poll(cx), timer.as_mut().poll(cx)) {
                (Poll::Ready(result), _) => panic!("it must not end: {result:?}"),
                (Poll::Pending, timer) => timer,
            })
            .await;
        });
        // What was on its way is there by now, or does not start any more.
        pause(Duration::from_millis(400));
        wait_until("its processes are gone", || !is_running(&mark));
        assert!(runs(&server) <= 1, "seed {seed}");
    }
}

/// Returns true if there is a process with a mark in its arguments.
fn is_running(mark: &str) -> bool {
    let lines = std::fs::read_dir("/proc").expect("processes").flatten();
    let mut lines = lines.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(mark))
}

#[test]
fn a_client_that_is_killed_has_run_its_command_once_at_most() {
    let server = StandIn::start();
    // Created by a process that stays.
    let sandbox = on(&server).keep();
    block_on(sandbox.id()).expect("created");
    let uri = sandbox.uri().to_owned();
    let mut started = 0;
    for seed in seeds(10) {
        let _ = std::fs::remove_file(server.sandboxes()[0].home.join("runs"));
        let settings = [(ADDRESS, server.address()), (KEY, server.key()), (URI, &uri)];
        let mut client = this_test("once::client", &settings).stderr(Stdio::null()).spawn().expect("it starts");
        pause(Duration::from_millis(20 + seed * 97 % 400));
        client.kill().expect("killed");
        client.wait().expect("it has ended");
        // A later process finds the same sandbox.
        let again = address(&server).add_to(Registry::new()).open(&uri).expect("a sandbox");
        assert_eq!(block_on(again.run(&Command::shell("echo here"))).expect("it runs").stdout.head, b"here\n");
        assert!(runs(&server) <= 1, "seed {seed}");
        started += runs(&server);
    }
    assert_eq!(server.sandboxes().len(), 1, "{started} clients had started their command");
}

#[test]
#[ignore = "run by `a_client_that_is_killed_has_run_its_command_once_at_most`"]
fn client() {
    let [address, key, uri] = [ADDRESS, KEY, URI].map(std::env::var);
    // Among all ignored tests it has no parent.
    let (Ok(address), Ok(key), Ok(uri)) = (address, key, uri) else { return };
    let kinds = OpenSandboxServer::new(address).key(key).add_to(Registry::new());
    let sandbox = kinds.open(&uri).expect("a sandbox");
    block_on(sandbox.run(&Command::shell(&format!("{COUNTED}; sleep 60")))).expect("it runs");
}
