//! What commands may use, and what happens to those who use more.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rath_sandbox::{Command, ExitStatus, Isolated, Local, Sandbox};

use super::{mark, marked, run, said, sh};
use crate::block_on;

/// A command in its own words, and how long it may take.
fn within(line: &str, seconds: u64) -> Command {
    let mut command = Command::shell(line);
    command.timeout = Duration::from_secs(seconds);
    command
}

/// Both kinds of sandbox with limits, as far as this machine can see to them.
fn limited(check: impl Fn(&Sandbox)) {
    let open: [fn(&Path) -> Sandbox; 3] = [
        |folder| Local::new(folder).memory(64 << 20).processes(200).file_size(1 << 20).into(),
        |folder| Isolated::new(folder).memory(64 << 20).processes(200).file_size(1 << 20).into(),
        |folder| Isolated::new(folder).memory(64 << 20).file_size(1 << 20).into(),
    ];
    for open in open {
        let folder = rath_test_support::temp_dir();
        let sandbox = open(folder.path());
        match block_on(sandbox.capabilities()) {
            Ok(capabilities) => eprintln!("{capabilities}"),
            Err(error) => {
                eprintln!("skipped: {error}");
                continue;
            }
        }
        check(&sandbox);
        assert_eq!(said(&sh(&sandbox, "echo still here")), "still here\n");
    }
}

#[test]
fn a_fork_bomb_is_held_and_cleared_away() {
    limited(|sandbox| {
        for line in ["f() { f | f & }; f; sleep MARK", "f() { setsid sh -c 'sleep MARK' & f & f; }; f"] {
            let mark = mark();
            let ran = run(sandbox, &within(&line.replace("MARK", &mark), 2));
            // Whichever limit it comes to first: its time, its processes or its memory.
            assert!(
                matches!(ran.status, ExitStatus::TimedOut | ExitStatus::Exit(1..) | ExitStatus::Signal(9)),
                "{:?}",
                ran.status
            );
            assert_eq!(marked(&mark), 0, "{line}");
        }
    });
}

#[test]
fn a_memory_hog_is_stopped() {
    limited(|sandbox| {
        let ran = run(sandbox, &within("head -c 1G /dev/zero | tail > /dev/null", 60));
        assert!(!matches!(ran.status, ExitStatus::Exit(0) | ExitStatus::TimedOut), "{:?}", ran.status);
        assert_eq!(run(sandbox, &within("head -c 4M /dev/zero | tail > /dev/null", 60)).status, ExitStatus::Exit(0));
    });
}

#[test]
fn processes_are_counted() {
    let open: [fn(&Path) -> Sandbox; 3] = [
        |folder| Local::new(folder).processes(200).into(),
        |folder| Isolated::new(folder).processes(200).into(),
        |folder| Isolated::new(folder).into(),
    ];
    for open in open {
        let folder = rath_test_support::temp_dir();
        let sandbox = open(folder.path());
        let capabilities = block_on(sandbox.capabilities()).map(|capabilities| capabilities.processes);
        let Ok(Some(limit)) = capabilities else {
            eprintln!("skipped: {sandbox:?} on this machine, {capabilities:?}");
            continue;
        };
        let start = |count: u64| {
            let line = format!("for nth in $(seq {count}); do sleep 1000 & done; echo all of them");
            said(&run(&sandbox, &within(&line, 60)))
        };
        assert_eq!(start(limit.max / 2), "all of them\n", "{limit:?}");
        let told = start(limit.max + limit.max / 2);
        assert!(!told.contains("all of them"), "{limit:?}: {told}");
    }
}

#[test]
fn no_file_grows_beyond_its_limit() {
    limited(|sandbox| {
        let ran = sh(sandbox, "head -c 2M /dev/zero > large; stat -c %s large");
        assert!(said(&ran).contains("1048576\n"), "{}", said(&ran));
    });
}

#[test]
fn processor_time_is_limited() {
    let folder = rath_test_support::temp_dir();
    let second = Duration::from_secs(1);
    for sandbox in [
        Sandbox::from(Local::new(folder.path()).cpu_time(second)),
        Isolated::new(folder.path()).cpu_time(second).into(),
    ] {
        let ran = run(&sandbox, &within("while :; do :; done", 60));
        assert!(matches!(ran.status, ExitStatus::Signal(24 | 9)), "{:?}", ran.status);
    }
}

#[test]
fn a_flood_of_output_is_cut_off_and_held_in_little_memory() {
    for open in [|path: &Path| Sandbox::local(path), |path: &Path| Sandbox::isolated(path)] {
        let folder = rath_test_support::temp_dir();
        let sandbox = open(folder.path());
        let ran = sh(&sandbox, "head -c 1G /dev/zero");
        assert_eq!((ran.status, ran.stdout.total_bytes), (ExitStatus::TooMuchOutput, 256 << 20));
        assert!(ran.stdout.head.capacity() + ran.stdout.tail.capacity() < 2 << 20);
        let kept = sandbox.spool_path(ran.stdout.spool_digest.expect("it is kept")).expect("it is here");
        assert_eq!(kept.metadata().expect("a file").len(), 256 << 20);
        assert_eq!(said(&sh(&sandbox, "echo still here")), "still here\n");
        drop(sandbox);
        assert!(!kept.exists(), "the folder was the sandbox's own");
    }
}

#[test]
fn what_is_printed_and_kept_stays_in_a_folder_of_the_users() {
    let (folder, spool) = (rath_test_support::temp_dir(), rath_test_support::temp_dir());
    let sandbox = Sandbox::new(Local::new(folder.path()).output(1 << 20).spool(spool.path().join("deep/er")));
    let ran = sh(&sandbox, "head -c 2M /dev/zero; head -c 10 /dev/zero >&2");
    assert_eq!((ran.status, ran.stdout.total_bytes + ran.stderr.total_bytes), (ExitStatus::TooMuchOutput, 1 << 20));
    let kept = sandbox.spool_path(ran.stdout.spool_digest.expect("it is kept")).expect("it is here");
    drop(sandbox);
    assert_eq!(kept.metadata().expect("a file").len(), 1 << 20);
    let all: Vec<_> = std::fs::read_dir(spool.path().join("deep/er")).expect("a folder").flatten().collect();
    assert_eq!(all.len(), 1, "nothing else is left there");
}

#[test]
fn control_groups_go_with_the_sandbox() {
    let groups = || -> Vec<PathBuf> {
        let mine = format!("rath-{}-", std::process::id());
        let mut found = Vec::new();
        let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
        while let Some(folder) = folders.pop() {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
                if entry.file_name().to_string_lossy().starts_with(&mine) {
                    found.push(entry.path());
                }
                folders.push(entry.path());
            }
        }
        found
    };
    let folder = rath_test_support::temp_dir();
    let sandbox = Sandbox::new(Local::new(folder.path()).memory(123 << 20));
    let capabilities = block_on(sandbox.capabilities()).expect("it works here");
    let by = capabilities.memory.expect("it was asked for").mechanism;
    sh(&sandbox, "sleep 1000 & true");
    let own = |limit: &str| {
        let files = ["memory.max", "memory.limit_in_bytes"];
        let told = |group: &PathBuf| files.iter().find_map(|file| std::fs::read_to_string(group.join(file)).ok());
        groups().into_iter().filter(|group| told(group).is_some_and(|told| told.trim() == limit)).collect::<Vec<_>>()
    };
    let made = own(&(123 << 20).to_string());
    eprintln!("{by}: {made:?}");
    assert_eq!(made.is_empty(), by == rath_sandbox::Mechanism::Rlimit);
    let clone = sandbox.clone();
    drop(sandbox);
    assert_eq!(said(&sh(&clone, "echo still here")), "still here\n");
    drop(clone);
    assert!(made.iter().all(|group| !group.exists()), "{made:?}");
    assert!(folder.path().exists());
}

#[test]
fn a_limit_above_the_programs_own_changes_nothing_and_one_of_zero_is_an_error() {
    let folder = rath_test_support::temp_dir();
    let sandbox = Sandbox::new(Local::new(folder.path()).file_size(u64::MAX));
    assert_eq!(sh(&sandbox, "echo x > file").status, ExitStatus::Exit(0));
    let error = Sandbox::open("local:./?processes=0").expect_err("nothing could run");
    assert_eq!(error.kind(), rath_sandbox::ErrorKind::Config);
}
