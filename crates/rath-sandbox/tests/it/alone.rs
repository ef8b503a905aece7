//! Tests that need a process of their own: leaks, secrets in the environment, and sudden death.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::process::Stdio;
use std::task::Poll;
use std::time::Duration;

use rath_sandbox::{Command, ExitStatus, Sandbox};
use rath_test_support::wait_until;

use super::{count_marked, mark, printed, run};
use crate::block_on;

const KINDS: [&str; 2] = ["local", "isolated"];

/// The program that the tests here start as a child.
#[test]
#[ignore = "started by the tests here"]
fn child() {
    let Ok(uri) = std::env::var("RATH_SANDBOX") else { return };
    let sandbox = Sandbox::open(&uri).expect("a sandbox");
    match &*setting("RATH_TASK") {
        "say" => eprintln!("{}", printed(&run(&sandbox, &Command::shell(&setting("RATH_LINE"))))),
        "leak" => {
            run_many(&sandbox, 2);
            let before = counts();
            run_many(&sandbox, 25);
            // The kernel lists a thread for a moment after it was joined.
            let mut after = counts();
            for _ in 0..500 {
                if after == before {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
                after = counts();
            }
            eprintln!("before {before}, after {after}");
        }
        other => panic!("no task `{other}`"),
    }
}

/// Runs commands that end in every possible way.
fn run_many(sandbox: &Sandbox, rounds: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for _ in 0..rounds {
            for line in ["true", "setsid sleep 1000 & exit 1", "kill -9 $$", "head -c 600000 /dev/zero"] {
                sandbox.run(&Command::shell(line)).await.expect("it runs");
            }
            let mut command = Command::shell("cat & sleep 1000");
            command.stdin = vec![0; 1 << 20];
            command.timeout = Duration::from_millis(20);
            sandbox.run(&command).await.expect("it runs");
            sandbox.run(&Command::argv(["no-such-program"])).await.expect_err("there is none");
            // Dropped right after its start.
            let mut dropped = pin!(sandbox.run(&command));
            let polled = poll_fn(|cx| Poll::Ready(dropped.as_mut().poll(cx).is_ready())).await;
            assert!(!polled, "it cannot have ended yet");
        }
    });
}

/// Returns the numbers of open descriptors, threads and children of this process, when all threads that tidy up have ended.
fn counts() -> String {
    let tidies = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("rath-"))
    };
    wait_until("the threads that tidy up have ended", || {
        !std::fs::read_dir("/proc/self/task").expect("it is there").flatten().any(tidies)
    });
    let count = |path: &str| std::fs::read_dir(path).expect("it is there").count();
    let tasks = std::fs::read_dir("/proc/self/task").expect("it is there").flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: usize = children.map(|children| children.split_whitespace().count()).sum();
    format!("{} descriptors, {} threads, {children} children", count("/proc/self/fd"), count("/proc/self/task"))
}

/// Starts the child with a task, and returns what it printed on stderr.
fn run_child(kind: &str, task: &str, line: &str, settings: &[(&str, &str)]) -> String {
    let folder = rath_test_support::temp_dir();
    let uri = format!("{kind}:{}", folder.path().display());
    let settings = [&[("RATH_SANDBOX", &*uri), ("RATH_TASK", task), ("RATH_LINE", line)], settings].concat();
    let child = rath_test_support::this_test("alone::child", &settings).output().expect("it starts");
    let text = String::from_utf8_lossy(&child.stderr).into_owned();
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn nothing_leaks() {
    for kind in KINDS {
        let text = run_child(kind, "leak", "", &[]);
        let (before, after) = text.split_once(", after ").expect("counts");
        assert_eq!(before.trim_start_matches("before ").trim(), after.trim(), "{kind}");
        assert!(after.contains(" 0 children"), "{after}");
    }
}

/// Secrets under names that are common for them.
const SECRETS: [(&str, &str); 4] = [
    ("RATH_CANARY_ONE", "canary-4711-one"),
    ("AWS_SECRET_ACCESS_KEY", "canary-4711-two"),
    ("OPENAI_API_KEY", "canary-4711-three"),
    ("LD_LIBRARY_PATH_SECRET", "canary-4711-four"),
];

#[test]
fn secrets_in_the_environment_are_out_of_reach() {
    let everywhere = "env; cat /proc/self/environ; set; sh -c env; for file in /proc/[0-9]*/environ; do cat $file; done; \
                      cat /proc/$PPID/environ; tr '\\0' '\\n' </proc/1/cmdline; grep -a canary-4711 /proc/*/mem";
    let rows = [("local", "env; cat /proc/self/environ; set; sh -c env"), ("isolated", everywhere)];
    for (kind, line) in rows {
        let text = run_child(kind, "say", line, &SECRETS);
        assert!(text.contains("PATH="), "it says something: {text}");
        assert!(!text.contains("canary-4711"), "{kind}: {text}");
    }
    // The test would find a secret that is passed on.
    let text = run_child("local", "say", "env", &[("LC_CANARY", "canary-4711-passed-on")]);
    assert!(text.contains("canary-4711-passed-on"), "{text}");
}

#[test]
fn commands_die_with_the_program() {
    for kind in KINDS {
        let mark = mark();
        let folder = rath_test_support::temp_dir();
        let uri = format!("{kind}:{}", folder.path().display());
        let line = format!("setsid sleep {mark} & (setsid sh -c 'sleep {mark} & wait' &); sleep {mark}");
        let settings = [("RATH_SANDBOX", &*uri), ("RATH_TASK", "say"), ("RATH_LINE", &*line)];
        let mut program =
            rath_test_support::this_test("alone::child", &settings).stderr(Stdio::null()).spawn().expect("it starts");
        // The shells have the mark in their arguments too.
        wait_until("it has begun", || count_marked(&mark) >= 5);
        program.kill().expect("it runs");
        program.wait().expect("it has ended");
        wait_until("everything has ended", || count_marked(&mark) == 0);
    }
}

/// Attacks of a command in `local:` on the process that watches it, with the status that the call ends with.
#[test]
fn a_command_cannot_outlive_its_supervisor_nor_hang_the_call() {
    let killed = ExitStatus::Signal(9);
    let rows = [
        ("kill -9 $PPID; sleep MARK", killed),
        ("setsid sleep MARK & setsid sh -c 'sleep MARK; :' & sleep 0.1; kill -9 $PPID; sleep MARK", killed),
        ("(setsid sh -c 'env -i setsid sleep MARK & sleep MARK' &); sleep 0.1; kill -9 $PPID; sleep MARK", killed),
        ("setsid sh -c \"kill -9 $PPID; sleep MARK\" & wait; sleep MARK", killed),
        ("kill -STOP $PPID; setsid sleep MARK & echo done", ExitStatus::Exit(0)),
        ("setsid sleep MARK & kill -STOP $PPID; sleep MARK", ExitStatus::TimedOut),
        ("kill -STOP $PPID; setsid sleep MARK & sleep 0.1; kill -9 $PPID; sleep MARK", killed),
        ("setsid sh -c \"while :; do kill -STOP $PPID; done; : MARK\" & sleep MARK", ExitStatus::TimedOut),
    ];
    for (line, expected) in rows {
        let (folder, mark) = (rath_test_support::temp_dir(), mark());
        let mut command = Command::shell(&line.replace("MARK", &mark));
        command.timeout =
            if expected == ExitStatus::TimedOut { Duration::from_millis(300) } else { Duration::from_secs(300) };
        let output = block_on(Sandbox::local(folder.path()).run(&command)).expect("it runs");
        assert_eq!(output.status, expected, "{line}");
        assert_eq!(count_marked(&mark), 0, "{line}");
    }
}

/// Processes that fork and exit, one after the other, each with a new number. They end by themselves after a few seconds.
const CHAIN: &str = "perl -MTime::HiRes=time -e '$end = time + 4; \
                     while (time < $end) { fork and exit; open F, \">>\", \"beat\"; syswrite F, \"x\"; close F }'";

/// A chain has a new number whenever one looks, and is killed all the same.
#[test]
fn processes_that_fork_all_the_time_do_not_outlive_their_supervisor() {
    for round in 0..6 {
        let folder = rath_test_support::temp_dir();
        let chains = format!("setsid {CHAIN} & ").repeat(1 + round % 3);
        let line = format!("{chains} while [ ! -s beat ]; do sleep 0.02; done; kill -9 $PPID; sleep 5");
        let output = block_on(Sandbox::local(folder.path()).run(&Command::shell(&line))).expect("it runs");
        assert_eq!(output.status, ExitStatus::Signal(9));
        let beats = || std::fs::metadata(folder.path().join("beat")).expect("it has begun").len();
        let before = beats();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(beats(), before, "no process of round {round} is left");
    }
}

/// A call that is dropped while its supervisor is stopped.
#[test]
fn a_dropped_call_leaves_no_process_if_its_supervisor_is_stopped() {
    let (folder, mark) = (rath_test_support::temp_dir(), mark());
    let line = format!("setsid sleep {mark} & kill -STOP $PPID; sleep {mark}");
    let (sandbox, command) = (Sandbox::local(folder.path()), Command::shell(&line));
    block_on(async {
        let mut dropped = pin!(sandbox.run(&command));
        while count_marked(&mark) < 3 {
            let polled = poll_fn(|cx| Poll::Ready(dropped.as_mut().poll(cx).is_ready())).await;
            assert!(!polled, "it cannot have ended yet");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert_eq!(count_marked(&mark), 0);
}

/// Returns a setting that a child was started with.
fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set for a child"))
}
