//! The life of a sandbox: creation, reattachment, forks, removal, and what is said when it is gone.

use std::time::Duration;

use rath_opensandbox::{OpenSandbox, OpenSandboxServer};
use rath_sandbox::{ByteRange, Command, ErrorKind, ExitStatus, ForkStart, Registry, Sandbox, SandboxBackend};
use rath_test_support::{this_test, wait_until};
use rath_testkit::opensandbox::{Fault, StandIn};
use serde_json::json;

use crate::support::{address, block_on, on};

const ALL: ByteRange = ByteRange { offset: 0, max_len: u64::MAX };

#[test]
fn the_settings_reach_the_server() {
    let server = StandIn::start();
    let sandbox = on(&server).env("GREETING", "hi there").cpu("500m").memory("256Mi").allow_host("example.com");
    let sandbox = sandbox.entrypoint(["sleep", "inf"]).timeout(Duration::from_secs(90));
    let output = block_on(Sandbox::new(sandbox.clone()).run(&Command::shell("echo $GREETING; pwd"))).expect("it runs");
    let seen = &server.sandboxes()[0];
    assert_eq!(output.stdout.text(), format!("hi there\n{}/work space\n", seen.home.display()));
    let name = sandbox.uri().split_once("name=").expect("a name").1[..32].to_owned();
    assert_eq!(
        seen.request,
        json!({
            "image": {"uri": "debian:13"},
            "timeout": 90,
            "entrypoint": ["sleep", "inf"],
            "env": {"GREETING": "hi there"},
            "resourceLimits": {"cpu": "500m", "memory": "256Mi"},
            "networkPolicy": {"defaultAction": "deny", "egress": [{"action": "allow", "target": "example.com"}]},
            "metadata": {"rath-name": name},
        })
    );
    assert!(!sandbox.uri().contains("hi"), "a variable may be a secret: {}", sandbox.uri());
}

#[test]
fn a_sandbox_is_found_again_by_its_uri_and_removed_when_it_is_closed() {
    let server = StandIn::start();
    let kinds = address(&server).add_to(Registry::new());
    let kept = on(&server).keep();
    let uri = kept.uri().to_owned();
    block_on(kept.write("a/b.txt", b"one")).expect("written");
    drop(kept);
    assert_eq!(server.sandboxes().len(), 1, "it was asked to stay");
    let again = kinds.open(&uri.replace("&keep=on", "")).expect("a sandbox");
    assert_eq!(block_on(again.read("a/b.txt", ALL)).expect("read"), b"one");
    block_on(again.write("a/b.txt", b"two")).expect("written");
    assert_eq!(server.sandboxes().len(), 1);
    block_on(again.close()).expect("closed");
    assert!(server.sandboxes().is_empty(), "nothing asked it to stay");
    let error = block_on(again.read("a/b.txt", ALL)).expect_err("it is closed");
    assert!(error.message().contains("closed"), "{error}");
    // The drop alone removes it too, a little later.
    let dropped = on(&server);
    block_on(dropped.id()).expect("created");
    drop(dropped);
    wait_until("it is removed", || server.sandboxes().is_empty());
}

/// A use of a sandbox.
type Use = fn(&Sandbox);

#[test]
fn a_sandbox_that_was_found_is_removed_only_if_it_was_worked_in_and_is_closed() {
    let look: Use = |sandbox| {
        block_on(sandbox.list("")).expect("listed");
        block_on(sandbox.read("x", ALL)).expect("read");
        block_on(sandbox.stat("x")).expect("found");
        block_on(sandbox.capabilities()).expect("it is there");
    };
    let run: Use = |sandbox| _ = block_on(sandbox.run(&Command::shell("true"))).expect("it runs");
    let write: Use = |sandbox| block_on(sandbox.write("y", b"1")).expect("written");
    let remove: Use = |sandbox| block_on(sandbox.remove("x")).expect("removed");
    for (name, uses, is_closed, is_left) in [
        ("looked at and dropped", look, false, true),
        ("looked at and closed", look, true, true),
        ("worked in and dropped", run, false, true),
        ("a command and closed", run, true, false),
        ("written and closed", write, true, false),
        ("removed a file and closed", remove, true, false),
    ] {
        let server = StandIn::start();
        let origin = on(&server);
        let fork = origin.for_fork("one", ForkStart::New).expect("a fork");
        for sandbox in [&Sandbox::new(origin.clone()), &fork] {
            block_on(sandbox.write("x", b"1")).expect("written");
        }
        // A later process finds the sandbox of the session, and by it that of the fork.
        let address = address(&server);
        let found = address.add_to(Registry::new()).open(origin.uri()).expect("a sandbox");
        let found_fork = found.for_fork("one", ForkStart::Existing).expect("a fork");
        look(&found);
        uses(&found_fork);
        if is_closed {
            block_on(found.close()).expect("closed");
        }
        drop((found, found_fork));
        // What a drop removes is asked for before this, by the same thread.
        look(&address.add_to(Registry::new()).open(origin.uri()).expect("a sandbox"));
        assert!(block_on(origin.stat("x")).expect("the sandbox of the session is there").is_some(), "{name}");
        assert_eq!(block_on(fork.list("")).is_ok(), is_left, "{name}");
        drop((origin, fork));
        wait_until("what was created is removed", || server.sandboxes().is_empty());
    }
}

#[test]
fn a_removal_that_fails_is_made_again_by_the_next_close() {
    let server = StandIn::start();
    let sandbox = Sandbox::new(on(&server));
    block_on(sandbox.write("x", b"1")).expect("written");
    for _ in 0..3 {
        server.fail("DELETE /v1/sandboxes", Fault::Status(500));
    }
    let error = block_on(sandbox.close()).expect_err("it is not removed");
    assert!(error.message().contains("cannot be removed"), "{error}");
    assert_eq!(server.sandboxes().len(), 1);
    block_on(sandbox.close()).expect("closed");
    assert!(server.sandboxes().is_empty());
    block_on(sandbox.close()).expect("there is nothing to remove any more");
}

#[test]
fn a_creation_of_which_nothing_is_known_leaves_no_sandbox_behind() {
    let adopt: fn(OpenSandbox) = |sandbox| {
        block_on(sandbox.write("x", b"1")).expect("the next use works");
        block_on(sandbox.close()).expect("closed");
    };
    let close: fn(OpenSandbox) = |sandbox| block_on(sandbox.close()).expect("closed");
    for (name, end) in [("used again", adopt), ("closed", close), ("dropped", drop)] {
        let server = StandIn::start();
        // The first look finds nothing. After the request, the server cannot be reached for a while.
        server.fail("GET /v1/sandboxes", Fault::Wait(Duration::ZERO));
        server.fail("POST /v1/sandboxes", Fault::NoAnswer);
        for _ in 0..3 {
            server.fail("GET /v1/sandboxes", Fault::Cut);
        }
        let sandbox = on(&server);
        let error = block_on(sandbox.write("x", b"1")).expect_err("the answer is lost");
        assert!(error.message().contains("cannot be asked"), "{name}: {error}");
        assert_eq!(server.sandboxes().len(), 1, "{name}");
        end(sandbox);
        wait_until("it is removed", || server.sandboxes().is_empty());
        let creations = server.log().iter().filter(|line| *line == "POST /v1/sandboxes").count();
        assert_eq!(creations, 1, "{name}");
    }
}

#[test]
fn a_sandbox_of_others_is_used_and_stays() {
    let server = StandIn::start();
    let owner = on(&server);
    let id = block_on(owner.id()).expect("created");
    let guest = OpenSandbox::attach(&id).workdir("~/work space").on(&address(&server));
    block_on(guest.write("x", b"1")).expect("written");
    block_on(guest.renew()).expect("renewed");
    assert_eq!(server.sandboxes()[0].renewals, 1);
    block_on(guest.close()).expect("closed");
    assert_eq!(block_on(owner.read("x", ALL)).expect("read"), b"1");
    assert!(guest.for_fork("one", ForkStart::New).is_none(), "its image is not known");
}

#[test]
fn a_creation_whose_answer_is_lost_leaves_one_sandbox() {
    for fault in [Fault::NoAnswer, Fault::Cut, Fault::Status(500)] {
        let server = StandIn::start();
        server.fail("POST /v1/sandboxes", fault);
        let sandbox = on(&server);
        let first = block_on(sandbox.write("x", b"1"));
        assert_eq!(first.is_ok(), fault == Fault::NoAnswer, "{fault:?}: {first:?}");
        block_on(sandbox.write("x", b"1")).expect("the next use works");
        assert_eq!(server.sandboxes().len(), 1, "{fault:?}");
        let creations = server.log().iter().filter(|line| *line == "POST /v1/sandboxes").count();
        assert_eq!(creations, if fault == Fault::NoAnswer { 1 } else { 2 }, "{fault:?}");
    }
}

#[test]
fn a_sandbox_that_is_gone_is_said_to_be_gone() {
    let server = StandIn::start();
    let sandbox = on(&server);
    block_on(sandbox.write("x", b"1")).expect("written");
    server.expire();
    let mut ignored = |_: rath_sandbox::Stream, _: &[u8]| {};
    let errors = [
        block_on(sandbox.renew()).expect_err("gone"),
        block_on(sandbox.read("x", ALL)).expect_err("gone"),
        block_on(sandbox.write("x", b"2")).expect_err("gone"),
        block_on(sandbox.list("")).expect_err("gone"),
        block_on(sandbox.run(&Command::shell("true"), &mut ignored)).expect_err("gone"),
        block_on(address(&server).add_to(Registry::new()).open(sandbox.uri()).expect("a sandbox").list(""))
            .expect_err("gone"),
    ];
    for error in errors {
        assert!(error.message().ends_with(" is gone"), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("--sandbox opensandbox:debian:13")), "{error:?}");
    }
    assert!(server.sandboxes().is_empty(), "none is made in its place");
}

#[test]
fn a_write_that_fails_leaves_no_temporary_file() {
    let server = StandIn::start();
    let sandbox = Sandbox::new(on(&server));
    block_on(sandbox.write("x", b"1")).expect("written");
    let workspace = server.sandboxes()[0].home.join("work space");
    let files = || -> Vec<_> {
        let entries = std::fs::read_dir(&workspace).expect("a directory");
        entries.map(|entry| entry.expect("an entry").file_name()).collect()
    };
    for (request, fault) in [
        ("/files/upload", Fault::NoAnswer),
        ("/files/upload", Fault::Status(500)),
        ("/command", Fault::Cut),
        ("/command", Fault::Status(500)),
    ] {
        server.fail(request, fault);
        block_on(sandbox.write("x", b"2")).expect_err("it fails");
        wait_until("the temporary file is removed", || files() == ["x"]);
        assert_eq!(block_on(sandbox.read("x", ALL)).expect("read"), b"1", "{request}, {fault:?}");
    }
}

#[test]
fn a_paused_sandbox_is_resumed_by_its_next_use() {
    let server = StandIn::start();
    let sandbox = on(&server);
    block_on(sandbox.write("x", b"1")).expect("written");
    block_on(sandbox.pause()).expect("paused");
    assert_eq!(server.sandboxes()[0].state, "Paused");
    assert_eq!(block_on(sandbox.read("x", ALL)).expect("read"), b"1");
    assert_eq!(server.sandboxes()[0].state, "Running");
}

#[test]
fn a_fork_has_a_sandbox_of_its_own_under_the_same_name_each_time() {
    let server = StandIn::start();
    let origin = on(&server).env("A", "1");
    let fork = origin.for_fork("one", ForkStart::New).expect("it can be forked");
    assert_eq!(origin.for_fork("one", ForkStart::New).expect("a fork").uri(), fork.uri());
    assert_ne!(origin.for_fork("two", ForkStart::New).expect("a fork").uri(), fork.uri());
    block_on(origin.write("x", b"1")).expect("written");
    assert!(block_on(fork.list("")).expect("listed").is_empty(), "it begins without files");
    assert_eq!(block_on(fork.run(&Command::shell("echo $A"))).expect("it runs").stdout.head, b"1\n");
    let lost = origin.for_fork("three", ForkStart::Existing).expect("a fork");
    assert!(block_on(lost.list("")).expect_err("it was never made").message().ends_with(" is gone"));
    assert_eq!(server.sandboxes().len(), 2);
    block_on(origin.close()).expect("closed");
    assert!(server.sandboxes().is_empty(), "forks are closed too");
}

#[test]
fn the_key_is_in_no_error_and_no_request_to_a_sandbox() {
    let server = StandIn::start();
    server.fail("GET /v1/sandboxes", Fault::Status(403));
    let refused = block_on(on(&server).id()).expect_err("refused");
    let wrong = OpenSandbox::image("i").on(&OpenSandboxServer::new(server.address()).key("wrong-key-9d2"));
    let wrong = block_on(wrong.id()).expect_err("refused");
    let none =
        block_on(OpenSandbox::image("i").on(&OpenSandboxServer::new(server.address())).id()).expect_err("refused");
    for error in [refused, wrong, none] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        let text = format!("{error:?}");
        assert!(!text.contains(server.key()) && !text.contains("wrong-key"), "{text}");
        assert!(text.contains("OPEN_SANDBOX_API_KEY"), "{text}");
    }
    let with_password = OpenSandbox::image("i").on(&OpenSandboxServer::new("http://user:secret@127.0.0.1:9"));
    let text = format!("{:?}", block_on(with_password.id()).expect_err("refused"));
    assert!(!text.contains("secret@"), "{text}");
    assert!(server.take_violations().is_empty());
}

/// The variables that tell a client where its server is.
const ADDRESS: &str = "RATH_TEST_ADDRESS";
const KEY: &str = "RATH_TEST_KEY";

#[test]
fn a_server_on_this_machine_is_reached_without_a_proxy() {
    let server = StandIn::start();
    for host in ["127.0.0.1", "localhost"] {
        let address = server.address().replace("127.0.0.1", host);
        // Nothing listens there.
        let proxy = "http://127.0.0.1:9";
        let proxies = [("HTTP_PROXY", proxy), ("http_proxy", proxy), ("ALL_PROXY", proxy), ("NO_PROXY", "")];
        let settings = [&proxies[..], &[(ADDRESS, &address), (KEY, server.key())]].concat();
        let output = this_test("lifecycle::a_client_behind_a_proxy", &settings).output().expect("it runs");
        assert!(output.status.success(), "{host}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(server.log().iter().any(|line| line.starts_with("POST /direct")), "{host}: {:?}", server.log());
    }
}

#[test]
#[ignore = "run by `a_server_on_this_machine_is_reached_without_a_proxy`"]
fn a_client_behind_a_proxy() {
    // Among all ignored tests it has no parent.
    let [Ok(address), Ok(key)] = [ADDRESS, KEY].map(std::env::var) else { return };
    let sandbox = OpenSandbox::image("i").workdir("~/work").on(&OpenSandboxServer::new(address).key(key));
    block_on(sandbox.write("x", b"1")).expect("written");
    block_on(sandbox.close()).expect("closed");
}

#[test]
fn a_command_that_prints_too_much_is_ended() {
    let server = StandIn::start();
    let sandbox = Sandbox::new(on(&server).output(1_000));
    let output = block_on(sandbox.run(&Command::shell("while :; do echo y; done"))).expect("it runs");
    assert_eq!((output.status, output.stdout.total_bytes), (ExitStatus::TooMuchOutput, 1_000));
    let output = block_on(sandbox.run(&Command::shell("head -c 1000 /dev/zero"))).expect("it runs");
    assert_eq!((output.status, output.stdout.total_bytes), (ExitStatus::Exit(0), 1_000));
}

#[test]
fn an_interpreter_keeps_its_state_and_runs_code_once() {
    let server = StandIn::start();
    let sandbox = on(&server);
    let interpreter = block_on(sandbox.interpreter("bash")).expect("an interpreter");
    let run = |code: &str| block_on(interpreter.run(code, Duration::from_secs(20)));
    assert_eq!(run("x=5; echo run >> runs").expect("it runs").error, None);
    let output = run("echo $x").expect("it runs");
    assert_eq!((&*output.stdout, output.values.len()), ("5\n", 1));
    assert!(run("exit 3").expect("it runs").error.is_some());
    // Code that was not started is not interrupted: other code may run in the interpreter.
    let is_interrupted = || server.log().iter().any(|line| line.starts_with("DELETE"));
    server.fail("POST /direct", Fault::Status(404));
    let error = run("echo never >> lost").expect_err("it is refused");
    assert!(error.message().contains("the code was not started"), "{error}");
    run("echo $x").expect("it runs");
    assert!(!is_interrupted(), "{:?}", server.log());
    server.fail("POST /direct", Fault::NoAnswer);
    let error = run("echo lost >> lost").expect_err("the answer is lost");
    assert!(error.message().contains("the outcome of the code is unknown"), "{error}");
    wait_until("it is interrupted", is_interrupted);
    let lost = std::fs::read_to_string(server.sandboxes()[0].home.join("lost")).expect("it ran");
    assert_eq!(lost, "lost\n");
}
