//! Limits on the resources of commands.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rath_sandbox::{Command, ExitStatus, Isolated, Isolation, Local, Mechanism, Output, Sandbox};

use super::{count_marked, mark, printed, run, sh};
use crate::block_on;

/// Returns a line of shell with a timeout.
fn with_timeout(line: &str, seconds: u64) -> Command {
    let mut command = Command::shell(line);
    command.timeout = Duration::from_secs(seconds);
    command
}

/// Opens a sandbox in a directory.
type OpenSandbox = fn(&Path) -> Sandbox;

/// Sandboxes with limits on memory and files. A limit on processes would count those of the other tests in some of them.
const MEMORY_AND_FILES: [OpenSandbox; 2] = [
    |directory| Local::new(directory).memory(64 << 20).file_size(1 << 20).into(),
    |directory| Isolated::new(directory).memory(64 << 20).file_size(1 << 20).into(),
];

/// Sandboxes with limits on memory and processes.
const MEMORY_AND_PROCESSES: [OpenSandbox; 3] = [
    |directory| Local::new(directory).memory(64 << 20).processes(200).into(),
    |directory| Isolated::new(directory).memory(64 << 20).processes(200).into(),
    |directory| Isolated::new(directory).memory(64 << 20).into(),
];

/// Runs a check in sandboxes with limits, as far as this machine can enforce them.
fn with_limits<const N: usize>(open: [OpenSandbox; N], check: impl Fn(&Sandbox)) {
    for open in open {
        let directory = rath_test_support::temp_dir();
        let sandbox = open(directory.path());
        match block_on(sandbox.capabilities()) {
            Ok(capabilities) => eprintln!("{capabilities}"),
            Err(error) => {
                eprintln!("skipped: {error}");
                continue;
            }
        }
        check(&sandbox);
        assert_eq!(printed(&sh(&sandbox, "echo still here")), "still here\n");
    }
}

#[test]
fn a_fork_bomb_is_limited_and_killed() {
    with_limits(MEMORY_AND_PROCESSES, |sandbox| {
        for line in ["f() { f | f & }; f; sleep MARK", "f() { setsid sh -c 'sleep MARK' & f & f; }; f"] {
            let mark = mark();
            let output = run(sandbox, &with_timeout(&line.replace("MARK", &mark), 2));
            // It may reach any of its limits first: time, processes or memory.
            assert!(
                matches!(output.status, ExitStatus::TimedOut | ExitStatus::Exit(1..) | ExitStatus::Signal(9)),
                "{:?}",
                output.status
            );
            assert_eq!(count_marked(&mark), 0, "{line}");
        }
    });
}

#[test]
fn a_memory_hog_is_stopped() {
    with_limits(MEMORY_AND_FILES, |sandbox| {
        let output = run(sandbox, &with_timeout("head -c 1G /dev/zero | tail > /dev/null", 60));
        assert!(!matches!(output.status, ExitStatus::Exit(0) | ExitStatus::TimedOut), "{:?}", output.status);
        assert_eq!(
            run(sandbox, &with_timeout("head -c 4M /dev/zero | tail > /dev/null", 60)).status,
            ExitStatus::Exit(0)
        );
    });
}

#[test]
fn processes_are_counted() {
    let open: [OpenSandbox; 3] = [
        |directory| Local::new(directory).processes(200).into(),
        |directory| Isolated::new(directory).processes(200).into(),
        |directory| Isolated::new(directory).into(),
    ];
    for open in open {
        let directory = rath_test_support::temp_dir();
        let sandbox = open(directory.path());
        let capabilities = block_on(sandbox.capabilities()).map(|found| (found.processes, found.isolation));
        let Ok((Some(limit), isolation)) = capabilities else {
            eprintln!("skipped: {sandbox:?} on this machine, {capabilities:?}");
            continue;
        };
        let start = |count: u64| {
            let line = format!("for nth in $(seq {count}); do sleep 1000 & done; echo all of them");
            printed(&run(&sandbox, &with_timeout(&line, 60)))
        };
        // Without a namespace, the system counts all processes of this user, those of other programs too.
        if !matches!((limit.mechanism, isolation), (Mechanism::Rlimit, Isolation::None)) {
            assert_eq!(start(limit.max / 2), "all of them\n", "{limit:?}");
        }
        let text = start(limit.max + limit.max / 2);
        assert!(!text.contains("all of them"), "{limit:?}: {text}");
    }
}

#[test]
fn no_file_grows_beyond_its_limit() {
    with_limits(MEMORY_AND_FILES, |sandbox| {
        let output = sh(sandbox, "head -c 2M /dev/zero > large; stat -c %s large");
        assert!(printed(&output).contains("1048576\n"), "{}", printed(&output));
    });
}

#[test]
fn processor_time_is_limited() {
    let directory = rath_test_support::temp_dir();
    let second = Duration::from_secs(1);
    for sandbox in [
        Sandbox::from(Local::new(directory.path()).cpu_time(second)),
        Isolated::new(directory.path()).cpu_time(second).into(),
    ] {
        let output = run(&sandbox, &with_timeout("while :; do :; done", 60));
        assert!(matches!(output.status, ExitStatus::Signal(24 | 9)), "{:?}", output.status);
    }
}

#[test]
fn long_output_is_cut_off_and_takes_little_memory() {
    for open in [|path: &Path| Sandbox::local(path), |path: &Path| Sandbox::isolated(path)] {
        let directory = rath_test_support::temp_dir();
        let sandbox = open(directory.path());
        let output = sh(&sandbox, "head -c 1G /dev/zero");
        assert_eq!((output.status, output.stdout.total_bytes), (ExitStatus::TooMuchOutput, 256 << 20));
        assert!(output.stdout.head.capacity() + output.stdout.tail.capacity() < 2 << 20);
        let file = spooled_file(&sandbox, &output);
        assert_eq!(file.metadata().expect("a file").len(), 256 << 20);
        assert_eq!(printed(&sh(&sandbox, "echo still here")), "still here\n");
        drop(sandbox);
        assert!(!file.exists(), "the directory belonged to the sandbox");
    }
}

#[test]
fn spooled_output_stays_in_a_chosen_directory() {
    let (directory, spool) = (rath_test_support::temp_dir(), rath_test_support::temp_dir());
    let sandbox = Sandbox::new(Local::new(directory.path()).output(1 << 20).spool(spool.path().join("deep/er")));
    let output = sh(&sandbox, "head -c 2M /dev/zero; head -c 10 /dev/zero >&2");
    assert_eq!(
        (output.status, output.stdout.total_bytes + output.stderr.total_bytes),
        (ExitStatus::TooMuchOutput, 1 << 20)
    );
    let file = spooled_file(&sandbox, &output);
    drop(sandbox);
    assert_eq!(file.metadata().expect("a file").len(), 1 << 20);
    let all: Vec<_> = std::fs::read_dir(spool.path().join("deep/er")).expect("a directory").flatten().collect();
    assert_eq!(all.len(), 1, "nothing else is left there");
}

#[test]
fn control_groups_are_removed_with_the_sandbox() {
    let groups = || -> Vec<PathBuf> {
        let mine = format!("rath-{}-", std::process::id());
        let mut found = Vec::new();
        let mut directories = vec![PathBuf::from("/sys/fs/cgroup")];
        while let Some(directory) = directories.pop() {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
                if entry.file_name().to_string_lossy().starts_with(&mine) {
                    found.push(entry.path());
                }
                directories.push(entry.path());
            }
        }
        found
    };
    let directory = rath_test_support::temp_dir();
    let sandbox = Sandbox::new(Local::new(directory.path()).memory(123 << 20));
    let capabilities = block_on(sandbox.capabilities()).expect("it works here");
    let mechanism = capabilities.memory.expect("it was asked for").mechanism;
    sh(&sandbox, "sleep 1000 & true");
    let own = |limit: &str| {
        let files = ["memory.max", "memory.limit_in_bytes"];
        let max = |group: &PathBuf| files.iter().find_map(|file| std::fs::read_to_string(group.join(file)).ok());
        groups().into_iter().filter(|group| max(group).is_some_and(|max| max.trim() == limit)).collect::<Vec<_>>()
    };
    let created = own(&(123 << 20).to_string());
    eprintln!("{mechanism}: {created:?}");
    assert_eq!(created.is_empty(), mechanism == rath_sandbox::Mechanism::Rlimit);
    let clone = sandbox.clone();
    drop(sandbox);
    assert_eq!(printed(&sh(&clone, "echo still here")), "still here\n");
    drop(clone);
    assert!(created.iter().all(|group| !group.exists()), "{created:?}");
    assert!(directory.path().exists());
}

#[test]
fn a_limit_above_that_of_the_program_has_no_effect_and_zero_is_an_error() {
    let directory = rath_test_support::temp_dir();
    let sandbox = Sandbox::new(Local::new(directory.path()).file_size(u64::MAX));
    assert_eq!(sh(&sandbox, "echo x > file").status, ExitStatus::Exit(0));
    let error = Sandbox::open("local:./?processes=0").expect_err("nothing could run");
    assert_eq!(error.kind(), rath_sandbox::ErrorKind::Config);
}

/// Returns the file with the output of a command.
fn spooled_file(sandbox: &Sandbox, output: &Output) -> PathBuf {
    let digest = output.stdout.spool_digest.expect("it is spooled");
    block_on(sandbox.spool_path(digest)).expect("it can be looked for").expect("it is here")
}
