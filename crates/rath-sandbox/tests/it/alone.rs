//! What is seen in a process that does nothing else: what leaks, what a command learns of it, and its sudden end.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::process::Stdio;
use std::task::Poll;
use std::time::Duration;

use rath_sandbox::{Command, Sandbox};
use rath_test_support::wait_until;

use super::{mark, marked, run, said};
use crate::block_on;

const KINDS: [&str; 2] = ["local", "isolated"];

/// What a child of these tests does.
#[test]
#[ignore = "what the tests here start"]
fn child() {
    let Ok(uri) = std::env::var("RATH_SANDBOX") else { return };
    let sandbox = Sandbox::open(&uri).expect("a sandbox");
    match &*setting("RATH_TASK") {
        "say" => eprintln!("{}", said(&run(&sandbox, &Command::shell(&setting("RATH_LINE"))))),
        "leak" => {
            busy(&sandbox, 2);
            let before = counts();
            busy(&sandbox, 25);
            eprintln!("before {before}, after {}", counts());
        }
        other => panic!("no task `{other}`"),
    }
}

/// Commands that end in every way there is.
fn busy(sandbox: &Sandbox, rounds: usize) {
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
            // Dropped when it has only just begun.
            let mut given_up = pin!(sandbox.run(&command));
            let polled = poll_fn(|cx| Poll::Ready(given_up.as_mut().poll(cx).is_ready())).await;
            assert!(!polled, "it had not even begun");
        }
    });
}

/// Open descriptors, threads and children of this process.
fn counts() -> String {
    let count = |path: &str| std::fs::read_dir(path).expect("it is there").count();
    let tasks = std::fs::read_dir("/proc/self/task").expect("it is there").flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: usize = children.map(|children| children.split_whitespace().count()).sum();
    format!("{} descriptors, {} threads, {children} children", count("/proc/self/fd"), count("/proc/self/task"))
}

fn tell(kind: &str, task: &str, line: &str, settings: &[(&str, &str)]) -> String {
    let folder = rath_test_support::temp_dir();
    let uri = format!("{kind}:{}", folder.path().display());
    let settings = [&[("RATH_SANDBOX", &*uri), ("RATH_TASK", task), ("RATH_LINE", line)], settings].concat();
    let told = again("alone::child", &settings).output().expect("it starts");
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(!told.contains("panicked"), "{told}");
    told
}

#[test]
fn nothing_leaks() {
    for kind in KINDS {
        let told = tell(kind, "leak", "", &[]);
        let (before, after) = told.split_once(", after ").expect("counts");
        assert_eq!(before.trim_start_matches("before ").trim(), after.trim(), "{kind}");
        assert!(after.contains(" 0 children"), "{after}");
    }
}

/// Secrets under the names that they have in the field.
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
        let told = tell(kind, "say", line, &SECRETS);
        assert!(told.contains("PATH="), "it says something: {told}");
        assert!(!told.contains("canary-4711"), "{kind}: {told}");
    }
    // What is looked for could be found.
    let told = tell("local", "say", "env", &[("LC_CANARY", "canary-4711-passed-on")]);
    assert!(told.contains("canary-4711-passed-on"), "{told}");
}

#[test]
fn a_program_that_is_killed_takes_its_commands_along() {
    for kind in KINDS {
        let mark = mark();
        let folder = rath_test_support::temp_dir();
        let uri = format!("{kind}:{}", folder.path().display());
        let line = format!("setsid sleep {mark} & (setsid sh -c 'sleep {mark} & wait' &); sleep {mark}");
        let settings = [("RATH_SANDBOX", &*uri), ("RATH_TASK", "say"), ("RATH_LINE", &*line)];
        let mut program = again("alone::child", &settings).stderr(Stdio::null()).spawn().expect("it starts");
        // The shells themselves have the mark in their words too.
        wait_until("it has begun", || marked(&mark) >= 5);
        program.kill().expect("it runs");
        program.wait().expect("it has ended");
        wait_until("everything has ended", || marked(&mark) == 0);
    }
}

#[test]
fn a_command_ends_even_when_its_supervisor_is_killed() {
    let folder = rath_test_support::temp_dir();
    let sandbox = Sandbox::local(folder.path());
    let mark = mark();
    let ran = block_on(sandbox.run(&Command::shell(&format!("kill -9 $PPID; sleep {mark}"))));
    assert_eq!(ran.expect("it runs").status, rath_sandbox::ExitStatus::Signal(9));
    wait_until("it has ended", || marked(&mark) == 0);
}

/// Returns a setting that a child was started with.
fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set for a child"))
}

/// Returns a command that runs one of the ignored tests of this program.
fn again(test: &str, settings: &[(&str, &str)]) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command.envs(settings.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}
