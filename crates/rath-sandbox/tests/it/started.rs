//! Processes with open pipes.

use rath_sandbox::{Command, ErrorKind, ExitStatus, Isolated, Process, Sandbox};
use rath_test_support::{temp_dir, this_test, wait_until};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::{block_on, count_marked, mark};

/// Returns both kinds of sandbox in a directory.
fn both(directory: &std::path::Path) -> [Sandbox; 2] {
    [Sandbox::local(directory), Sandbox::from(Isolated::new(directory))]
}

async fn start(sandbox: &Sandbox, line: &str) -> Process {
    sandbox.start(&Command::shell(line)).await.expect("it starts")
}

#[test]
fn a_process_answers_as_long_as_it_is_asked() {
    let directory = temp_dir();
    for sandbox in both(directory.path()) {
        block_on(async {
            let mut process = start(&sandbox, "while read line; do echo \"<$line>\"; done; echo end >&2; exit 3").await;
            let mut stdin = process.stdin.take().expect("it is new");
            let mut lines = BufReader::new(process.stdout.take().expect("it is new")).lines();
            for nth in 0..100 {
                stdin.write_all(format!("{nth}\n").as_bytes()).await.expect("it reads");
                assert_eq!(lines.next_line().await.expect("it writes"), Some(format!("<{nth}>")));
            }
            drop(stdin);
            let mut stderr = String::new();
            process.stderr.take().expect("it is new").read_to_string(&mut stderr).await.expect("it writes");
            assert_eq!(stderr, "end\n");
            assert_eq!(process.wait().await.expect("it has run"), ExitStatus::Exit(3));
        });
    }
}

#[test]
fn a_process_waits_until_its_output_is_read() {
    let directory = temp_dir();
    for sandbox in both(directory.path()) {
        block_on(async {
            // Without a reader, the second file is never there.
            let line = "touch begun; head -c 50000000 /dev/zero; touch done; cat";
            let mut process = start(&sandbox, line).await;
            wait_until("it has begun", || directory.path().join("begun").exists());
            let mut stdout = process.stdout.take().expect("it is new");
            let mut some = vec![0; 1_000_000];
            stdout.read_exact(&mut some).await.expect("it writes");
            assert!(!directory.path().join("done").exists());
            let mut rest = vec![0; 49_000_000];
            stdout.read_exact(&mut rest).await.expect("it writes");
            wait_until("it has written all", || directory.path().join("done").exists());
        });
        for name in ["begun", "done"] {
            std::fs::remove_file(directory.path().join(name)).expect("it is there");
        }
    }
}

#[test]
fn no_process_is_left_when_the_value_is_dropped() {
    let directory = temp_dir();
    for sandbox in both(directory.path()) {
        let mark = mark();
        block_on(async {
            let daemon = format!("setsid sh -c 'sleep {mark} & sleep {mark}' & trap '' TERM HUP; sleep {mark}");
            let process = start(&sandbox, &daemon).await;
            wait_until("all processes run", || count_marked(&format!("sleep\0{mark}")) == 3);
            drop(process);
        });
        assert_eq!(count_marked(&mark), 0, "{}", sandbox.uri());
    }
}

#[test]
fn what_cannot_be_started_is_an_error() {
    let directory = temp_dir();
    for sandbox in both(directory.path()) {
        block_on(async {
            let mut process = sandbox.start(&Command::argv(["no-such-program"])).await.expect("the supervisor starts");
            let error = process.wait().await.expect_err("there is no such program");
            assert_eq!(error.to_string(), "cannot run `no-such-program`: there is no such program");
            let mut command = Command::argv(["cat"]);
            command.stdin = b"x".to_vec();
            let error = sandbox.start(&command).await.expect_err("stdin is open");
            assert_eq!(error.kind(), ErrorKind::Config);
        });
    }
}

#[test]
fn a_started_process_is_behind_the_walls_of_its_sandbox() {
    let directory = temp_dir();
    let other = temp_dir();
    let line = format!("echo x > '{}/new'; echo x > new; cat", other.path().display());
    let [local, isolated] = both(directory.path());
    let written = |sandbox: &Sandbox| {
        block_on(async {
            let process = start(sandbox, &line).await;
            wait_until("it has written", || directory.path().join("new").exists());
            drop(process);
        });
        std::fs::remove_file(directory.path().join("new")).expect("it is there");
        std::fs::remove_file(other.path().join("new")).is_ok()
    };
    assert!(written(&local));
    assert!(!written(&isolated));
}

/// Starts a process with the mark, and never ends.
#[test]
#[ignore = "run by `a_process_dies_with_the_program`"]
fn child() {
    let [Ok(mark), Ok(uri)] = ["MARK", "URI"].map(std::env::var) else { return };
    block_on(async {
        let sandbox = Sandbox::open(&uri).expect("it is valid");
        let _process = start(&sandbox, &format!("setsid sleep {mark} & sleep {mark}")).await;
        std::future::pending::<()>().await;
    });
}

#[test]
fn a_process_dies_with_the_program() {
    let directory = temp_dir();
    for sandbox in both(directory.path()) {
        let mark = mark();
        let mut host =
            this_test("started::child", &[("MARK", &mark), ("URI", sandbox.uri())]).spawn().expect("it starts");
        wait_until("both processes run", || count_marked(&format!("sleep\0{mark}")) == 2);
        // SIGKILL.
        host.kill().expect("it runs");
        host.wait().expect("it is a child");
        wait_until("all are dead", || count_marked(&mark) == 0);
    }
}
