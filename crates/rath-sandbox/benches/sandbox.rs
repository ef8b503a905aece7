//! What it costs to run a command under a supervisor, and in a world of its own: `cargo xtask bench`.

use std::path::Path;
use std::process::{Command as Plain, Stdio};

use rath_bench::{Table, medians};
use rath_sandbox::{Command, ExitStatus, Isolated, Local, Sandbox};
use tokio::runtime::{Builder, Runtime};

/// How often each is run.
const ROUNDS: usize = 300;

/// What is hidden from an isolated command, and from the same command under bubblewrap.
const HIDDEN: [&str; 9] =
    ["/run", "/home", "/root", "/mnt", "/media", "/var/lib", "/var/log", "/var/spool", "/etc/ssh"];

fn main() {
    let mut table = Table::default();
    local(&mut table);
    local_in_a_large_program(&mut table);
    isolated(&mut table);
    table.print();
}

/// Against the standard library, which starts a process, waits for it and reads what it prints.
fn local(table: &mut Table) {
    let folder = tempfile::tempdir().expect("a folder");
    let (runtime, sandbox) = (one_thread(), Sandbox::new(Local::new(folder.path())));
    let (ours, plain) =
        medians(ROUNDS, || run(&runtime, &sandbox), || wait(Plain::new("true").current_dir(folder.path())));
    eprintln!("  local {ours:.2?}, std::process {plain:.2?}");
    table.at_most("a command in `local`, against std::process::Command", ours.as_secs_f64() / plain.as_secs_f64(), 1.5);
}

/// The same when the program is large, which a fork would have to copy.
fn local_in_a_large_program(table: &mut Table) {
    let ballast = vec![1_u8; 512 << 20];
    let folder = tempfile::tempdir().expect("a folder");
    let (runtime, sandbox) = (one_thread(), Sandbox::new(Local::new(folder.path())));
    let (ours, plain) =
        medians(ROUNDS, || run(&runtime, &sandbox), || wait(Plain::new("true").current_dir(folder.path())));
    assert_eq!(ballast.iter().step_by(1 << 20).count(), 512);
    eprintln!("  local {ours:.2?}, std::process {plain:.2?}, in a program of 512 MiB");
    let what = "the same, in a program that holds 512 MiB";
    table.at_most(what, ours.as_secs_f64() / plain.as_secs_f64(), 1.5);
}

/// Against bubblewrap, told to do the same.
fn isolated(table: &mut Table) {
    let folder = tempfile::tempdir().expect("a folder");
    let (runtime, sandbox) = (one_thread(), Sandbox::new(Isolated::new(folder.path())));
    let bwrap = || bubblewrap(folder.path());
    if !bwrap().stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        eprintln!("  left out: a command in `isolated` against bwrap, which is not here or cannot do it");
        return;
    }
    let (ours, theirs) = medians(ROUNDS, || run(&runtime, &sandbox), || wait(&mut bwrap()));
    eprintln!("  isolated {ours:.2?}, bwrap {theirs:.2?}");
    table.at_most("a command in `isolated`, against bwrap", ours.as_secs_f64() / theirs.as_secs_f64(), 1.5);
}

fn bubblewrap(workspace: &Path) -> Plain {
    let mut bwrap = Plain::new("bwrap");
    bwrap.args(["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "rath"]);
    bwrap.args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp"]);
    for hidden in HIDDEN.iter().filter(|path| Path::new(path).is_dir()) {
        bwrap.args(["--tmpfs", hidden]);
    }
    bwrap.arg("--bind").arg(workspace).arg(workspace).arg("--chdir").arg(workspace).arg("true");
    bwrap
}

fn run(runtime: &Runtime, sandbox: &Sandbox) {
    let ran = runtime.block_on(sandbox.run(&Command::argv(["true"]))).expect("it runs");
    assert_eq!(ran.status, ExitStatus::Exit(0));
}

fn wait(command: &mut Plain) {
    assert!(command.stdin(Stdio::null()).output().expect("it runs").status.success());
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}
