//! Processes of rath that are killed: their commands end, and their containers are found again or go.

use std::path::Path;
use std::time::Duration;

use rath_sandbox::{Command, Sandbox};
use rath_test_support::{count, temp_dir, this_test, wait_until};

use super::support::{container, containers_of, image, sh, socket, wait};

const DIRECTORY: &str = "RATH_TEST_DIRECTORY";
/// The number of seconds for which a container waits for its session.
const KEPT: &str = "RATH_TEST_KEPT";

fn is_running(mark: &str) -> bool {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(mark))
}

/// Runs commands until it is killed. Started by the other tests.
#[test]
#[ignore = "a child of the other tests"]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let kept = std::env::var(KEPT).ok().and_then(|seconds| seconds.parse().ok()).expect("a number of seconds");
    let container = container(Path::new(&directory)).kept_after_crash(Duration::from_secs(kept));
    let mark = format!("86398.{}", std::process::id());
    let line = format!("echo $$ >> /tmp/commands; setsid sleep {mark} & echo begun > begun; exec sleep {mark}");
    let _ = wait(Sandbox::new(container).run(&Command::shell(&line)));
}

/// Starts a child, kills it when its command runs, and waits until that is gone.
fn kill_one(directory: &Path, kept: u32) {
    let begun = directory.join("begun");
    let _ = std::fs::remove_file(&begun);
    let (directory, kept) = (directory.display().to_string(), kept.to_string());
    let socket = socket().display().to_string();
    let image = image();
    let settings = [
        (DIRECTORY, &*directory),
        (KEPT, &*kept),
        ("RATH_CONTAINER_SOCKET", &*socket),
        ("RATH_CONTAINER_IMAGE", &*image),
    ];
    let mut child = this_test("podman::kill::child", &settings).spawn().expect("it starts");
    let mark = format!("86398.{}", child.id());
    wait_until("the command runs", || begun.exists() && is_running(&mark));
    child.kill().expect("it is killed");
    child.wait().expect("it has ended");
    wait_until("the command is killed with rath", || !is_running(&mark));
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn a_session_finds_its_container_after_a_crash() {
    let folder = temp_dir();
    kill_one(folder.path(), 600);
    let before = containers_of(folder.path());
    assert_eq!(before.len(), 1);
    let sandbox = Sandbox::new(container(folder.path()).kept_after_crash(Duration::from_secs(600)));
    assert_eq!(sh(&sandbox, "wc -l < /tmp/commands; ps | grep -c '[s]leep'").text(), "1\n0\n");
    assert_eq!(containers_of(folder.path()), before);
    drop(sandbox);
    wait_until("the container goes with its session", || containers_of(folder.path()).is_empty());
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn a_container_in_use_is_not_taken_over() {
    let folder = temp_dir();
    let [one, two] = [0, 1].map(|_| Sandbox::new(container(folder.path())));
    assert_eq!(sh(&one, "echo one > /tmp/of; cat /tmp/of").text(), "one\n");
    assert_eq!(sh(&two, "cat /tmp/of 2>/dev/null; echo two").text(), "two\n");
    assert_eq!(containers_of(folder.path()).len(), 2);
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn nothing_is_left_of_processes_that_were_killed() {
    let kills = count("RATH_KILLS", 20);
    let folders: Vec<_> = (0..kills).map(|_| temp_dir()).collect();
    folders.iter().for_each(|folder| kill_one(folder.path(), 0));
    for folder in &folders {
        wait_until("the container is removed", || containers_of(folder.path()).is_empty());
    }
    // Their directories go with the next start.
    let folder = temp_dir();
    let sandbox = Sandbox::new(container(folder.path()));
    assert_eq!(sh(&sandbox, "echo works").text(), "works\n");
}
