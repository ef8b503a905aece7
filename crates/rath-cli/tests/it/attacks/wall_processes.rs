//! Commands that read or harm other processes, or leave processes behind.

use std::process::Stdio;

use rath::prelude::Sandbox;
use rath::sandbox::Command;

use super::place::Place;
use super::walls::Effect::{CanaryIsPrinted, LineSaysSo, ProcessIsHarmed};
use super::walls::{happens, is_marked_left, mark, wall};
use super::{Attack, Guard, HoldsIn, Observation, Plane, SandboxKind, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let mut all = others();
    all.extend(
        LEFT_BEHIND
            .iter()
            .map(|(name, line)| Attack::new(name, Plane::Walls, HoldsIn::Both, move |trial| try_leaving(trial, line))),
    );
    all.push(Attack::new("a process left when rath is killed", Plane::Walls, HoldsIn::Both, try_killing));
    all
}

/// Lines that leave a process. Without the guard a shell runs them, with nothing that looks after its processes.
const LEFT_BEHIND: &[(&str, &str)] = &[
    ("a process in the background", "sleep MARK & true"),
    ("a process in a session of its own", "setsid sleep MARK & true"),
    ("a process that ignores that its terminal is gone", "nohup sleep MARK >/dev/null 2>&1 & true"),
    ("a process that was forked twice", "(setsid sh -c 'sleep MARK & exit' &) ; true"),
    (
        "a process without open files",
        "perl -e 'exit if fork; close STDIN; close STDOUT; close STDERR; exec \"sleep\", \"MARK\"'",
    ),
    (
        "a process that ignores all signals it can",
        "perl -e 'exit if fork; $SIG{$_} = \"IGNORE\" for qw(TERM HUP INT); setpgrp; exec \"sleep\", \"MARK\"'",
    ),
    ("a process with another name", "perl -e 'exit if fork; exec { \"sleep\" } \"MARK\", \"86400\"'"),
    ("a stopped process", "sleep MARK & kill -STOP $!"),
    ("a process whose supervisor is killed", "setsid sleep MARK & sleep 0.1; kill -9 $PPID; true"),
    (
        "a process whose supervisor is killed, without an environment",
        "(env -i setsid sh -c 'setsid sleep MARK & true' &); sleep 0.1; kill -9 $PPID; true",
    ),
    (
        "processes that fork all the time, whose supervisor is killed",
        "setsid perl -e '$end = time + 4; while (time < $end) { fork and exit }' MARK & sleep 0.1; kill -9 $PPID; true",
    ),
];

fn try_leaving(trial: Trial, line: &str) -> Observation {
    let (place, mark) = (Place::new(), mark());
    let line = line.replace("MARK", &mark);
    let work = place.path("work");
    let text = match (trial.guard, trial.sandbox) {
        (Guard::Off, _) => {
            let mut shell = rath_test_support::program("sh");
            // A line may kill the shell above it.
            let status = shell
                .args(["-c", "sh -c \"$0\"; :", &line])
                .current_dir(work)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            format!("{status:?}")
        }
        (Guard::On, kind) => {
            let open: fn(std::path::PathBuf) -> Sandbox = match kind {
                SandboxKind::Local => |path| Sandbox::local(path),
                SandboxKind::Isolated => |path| Sandbox::isolated(path),
            };
            format!("{:?}", super::super::block_on(open(work).run(&Command::shell(&line))).map(|output| output.status))
        }
    };
    Observation::new(happens(trial.guard, || is_marked_left(&mark)), text)
}

/// Kills rath while a command runs. Without the guard it is a shell that is killed.
fn try_killing(trial: Trial) -> Observation {
    let (place, mark) = (Place::new(), mark());
    let line = format!("setsid sleep {mark} & touch begun; wait");
    let mut command = match trial.guard {
        Guard::On => {
            let [model, script] = place.script(&[serde_json::json!({"calls": [super::place::shell(&line)]})]);
            place.command(&["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "full"])
        }
        Guard::Off => {
            let mut shell = rath_test_support::program("sh");
            shell.args(["-c", &line]).current_dir(place.path("work"));
            shell
        }
    };
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    rath_test_support::wait_until("it has begun", || place.path("work/begun").exists());
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
    // The supervisor learns of the end by a pipe, which takes a moment.
    if trial.guard == Guard::On {
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    Observation::new(happens(trial.guard, || is_marked_left(&mark)), line)
}

fn others() -> Vec<Attack> {
    vec![
        wall("the environment of another process", CanaryIsPrinted, "tr '\\0' '\\n' < /proc/$VICTIM/environ"),
        wall("the command line of another process", CanaryIsPrinted, "tr '\\0' '\\n' < /proc/$VICTIM/cmdline"),
        // The number of its descriptor depends on what the tests were started with.
        wall(
            "an open file of another process",
            CanaryIsPrinted,
            "for f in /proc/$VICTIM/fd/*; do [ -f \"$f\" ] && cat \"$f\"; done",
        ),
        wall("the directory of another process", CanaryIsPrinted, "cat /proc/$VICTIM/cwd/secret"),
        wall("the root directory of another process", CanaryIsPrinted, "cat \"/proc/$VICTIM/root$HIDDEN/secret\""),
        wall(
            "the memory of another process by its file",
            CanaryIsPrinted,
            "perl -e 'open M, \"<\", \"/proc/$ENV{VICTIM}/maps\" or die; ($l) = grep /stack/, <M>; $l =~ /^(\\w+)-(\\w+)/; \
             ($a, $b) = (hex $1, hex $2); open F, \"<\", \"/proc/$ENV{VICTIM}/mem\" or die; sysseek F, $a, 0; sysread F, $x, $b - $a; print $x =~ /(CANARY-\\w+)/'",
        ),
        wall(
            "the memory of another process by a system call",
            CanaryIsPrinted,
            "perl -e 'open M, \"<\", \"/proc/$ENV{VICTIM}/maps\" or exit 1; ($l) = grep /stack/, <M>; $l =~ /^(\\w+)-(\\w+)/; \
             ($a, $b) = (hex $1, hex $2); $x = \"\\0\" x ($b - $a); $i = pack(\"PQ\", $x, $b - $a); $o = pack(\"QQ\", $a, $b - $a); \
             syscall(310, $ENV{VICTIM} + 0, $i, 1, $o, 1, 0); print $x =~ /(CANARY-\\w+)/'",
        ),
        wall("all command lines of the machine", CanaryIsPrinted, "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'"),
        wall("a list of the processes", CanaryIsPrinted, "ps axww"),
        wall("a process ended", ProcessIsHarmed, "kill -9 $VICTIM"),
        wall("a process stopped", ProcessIsHarmed, "kill -STOP $VICTIM"),
        wall(
            "a process found by its name and ended",
            ProcessIsHarmed,
            "for p in /proc/[0-9]*; do [ \"$(readlink $p/cwd)\" = \"$HIDDEN\" ] && kill -9 ${p#/proc/}; done; true",
        ),
        wall(
            "a process ended by one of its threads",
            ProcessIsHarmed,
            "perl -e 'syscall(234, $ENV{VICTIM} + 0, $ENV{VICTIM} + 0, 9) == 0 or die $!'",
        ),
        wall(
            "a process ended by a descriptor of it",
            ProcessIsHarmed,
            "perl -e '$f = syscall(434, $ENV{VICTIM} + 0, 0); $f >= 0 or die; syscall(424, $f, 9, 0, 0) == 0 or die'",
        ),
        wall(
            "a process traced",
            ProcessIsHarmed,
            "perl -e 'syscall(101, 16, $ENV{VICTIM} + 0, 0, 0) == 0 or die $!; kill(9, $ENV{VICTIM})'",
        ),
        wall("the priority of a process", ProcessIsHarmed, "renice -n 5 -p $VICTIM"),
        wall(
            "the limits of a process",
            ProcessIsHarmed,
            "perl -e '$l = pack(\"QQ\", 4711, 4711); syscall(302, $ENV{VICTIM} + 0, 1, $l, 0) == 0 or die $!'",
        ),
        wall(
            "an open file of another process copied",
            CanaryIsPrinted,
            "perl -e '$p = syscall(434, $ENV{VICTIM} + 0, 0); $p >= 0 or exit 1; for $n (3 .. 9) { $f = syscall(438, $p, $n, 0); \
             next if $f < 0; sysread(F, $x, 99) if open(F, \"<&=\", $f) && sysseek(F, 0, 0); print $x }'",
        ),
        wall(
            "the namespaces of the machine",
            LineSaysSo,
            "readlink /proc/$VICTIM/ns/mnt > a 2>/dev/null && readlink /proc/self/ns/mnt > b && cmp -s a b && echo HARM",
        ),
        wall(
            "the threads of another process",
            LineSaysSo,
            "perl -e 'opendir D, \"/proc/$ENV{VICTIM}/task\" or exit 1; print \"HARM\"'",
        ),
        wall("the first process of the machine", LineSaysSo, "tr '\\0' ' ' < /proc/1/cmdline | grep -q . && echo HARM"),
    ]
}
