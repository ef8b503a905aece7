//! The cost of running a command under the supervisor, and in namespaces: `cargo xtask bench`.

use std::process::{Command as Plain, Stdio};

use rath_bench::{Table, bubblewrap, medians};
use rath_sandbox::{Command, ExitStatus, Isolated, Local, Sandbox};
use tokio::runtime::{Builder, Runtime};

/// The number of runs of each command.
const ROUNDS: usize = 300;

fn main() {
    let mut table = Table::default();
    local(&mut table);
    local_in_a_large_program(&mut table);
    isolated(&mut table);
    table.print();
}

/// Compares `local` with the standard library, which starts a process, waits for it and reads its output.
fn local(table: &mut Table) {
    let directory = tempfile::tempdir().expect("a directory");
    let (runtime, sandbox) = (one_thread(), Sandbox::new(Local::new(directory.path())));
    let (ours, plain) =
        medians(ROUNDS, || run(&runtime, &sandbox), || wait(Plain::new("true").current_dir(directory.path())));
    eprintln!("  local {ours:.2?}, std::process {plain:.2?}");
    table.at_most("a command in `local`, against std::process::Command", ours.as_secs_f64() / plain.as_secs_f64(), 1.5);
}

/// Compares in a large program, whose page tables a fork would have to copy.
fn local_in_a_large_program(table: &mut Table) {
    let ballast = vec![1_u8; 512 << 20];
    let directory = tempfile::tempdir().expect("a directory");
    let (runtime, sandbox) = (one_thread(), Sandbox::new(Local::new(directory.path())));
    let (ours, plain) =
        medians(ROUNDS, || run(&runtime, &sandbox), || wait(Plain::new("true").current_dir(directory.path())));
    assert_eq!(ballast.iter().step_by(1 << 20).count(), 512);
    eprintln!("  local {ours:.2?}, std::process {plain:.2?}, in a program of 512 MiB");
    let what = "the same, in a program that holds 512 MiB";
    table.at_most(what, ours.as_secs_f64() / plain.as_secs_f64(), 1.5);
}

/// Compares `isolated` with bubblewrap, with the same restrictions.
fn isolated(table: &mut Table) {
    let directory = tempfile::tempdir().expect("a directory");
    let (runtime, sandbox) = (one_thread(), Sandbox::new(Isolated::new(directory.path())));
    let Some(mut bwrap) = bubblewrap(directory.path()) else {
        eprintln!("  left out: a command in `isolated` against bwrap, which is not here or cannot do it");
        return;
    };
    let (ours, theirs) = medians(ROUNDS, || run(&runtime, &sandbox), || wait(&mut bwrap));
    eprintln!("  isolated {ours:.2?}, bwrap {theirs:.2?}");
    table.at_most("a command in `isolated`, against bwrap", ours.as_secs_f64() / theirs.as_secs_f64(), 1.5);
}

fn run(runtime: &Runtime, sandbox: &Sandbox) {
    let output = runtime.block_on(sandbox.run(&Command::argv(["true"]))).expect("it runs");
    assert_eq!(output.status, ExitStatus::Exit(0));
}

fn wait(command: &mut Plain) {
    assert!(command.stdin(Stdio::null()).output().expect("it runs").status.success());
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}
