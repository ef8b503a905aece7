//! Where commands run, what they may use there, and what is left of them.

mod alone;
mod limits;
mod uri;
mod walls;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rath::sandbox::{Command, Ran, Sandbox};

use crate::support::block_on;

/// Runs a line of shell.
fn sh(sandbox: &Sandbox, line: &str) -> Ran {
    run(sandbox, &Command::shell(line))
}

fn run(sandbox: &Sandbox, command: &Command) -> Ran {
    block_on(sandbox.run(command, &mut |_, _| {})).expect("it runs")
}

/// What it printed, on either stream.
fn said(ran: &Ran) -> String {
    String::from_utf8_lossy(&[&*ran.out.beginning, &*ran.err.beginning].concat()).into_owned()
}

/// A number of seconds that nothing else on this machine sleeps for.
fn mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("86401.{:010}{:04}", std::process::id(), COUNT.fetch_add(1, Relaxed))
}

/// How many processes of this machine have a mark in their command line.
fn marked(mark: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(mark)).count()
}
