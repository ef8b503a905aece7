//! Commands behind walls, their limits, and the processes that they leave.
#![cfg(target_os = "linux")]

mod alone;
mod commit;
mod extra_access;
mod files;
mod landlock;
mod limits;
mod shared;
mod started;
mod uri;
mod walls;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rath_sandbox::{Command, Output, Sandbox};

/// Runs a future on a runtime of its own.
fn block_on<T>(work: impl IntoFuture<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(work.into_future())
}

/// Runs a line of shell.
fn sh(sandbox: &Sandbox, line: &str) -> Output {
    run(sandbox, &Command::shell(line))
}

/// Runs a command.
fn run(sandbox: &Sandbox, command: &Command) -> Output {
    block_on(sandbox.run(command)).expect("it runs")
}

/// Returns stdout and stderr as text.
fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout.head, &*output.stderr.head].concat()).into_owned()
}

/// Returns a number of seconds that no other process of this machine sleeps for.
fn mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("86401.{:010}{:04}", std::process::id(), COUNT.fetch_add(1, Relaxed))
}

/// Counts the processes of this machine with a mark in their command line.
fn count_marked(mark: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(mark)).count()
}
