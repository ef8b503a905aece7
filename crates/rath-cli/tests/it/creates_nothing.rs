//! Commands that only read, or that are refused, create nothing where they are called.

use std::path::Path;

/// The commands, with `SESSION` for a session and `FORK` for a fork of it that has no directory.
const COMMANDS: &[&str] = &[
    "ls",
    "status",
    "status FORK",
    "log",
    "show @ head",
    "explain",
    "cost",
    "review",
    "review SESSION --approve none",
    "blame f",
    "diff",
    "diff SESSION FORK",
    "check",
    "replay",
    "verify",
    "export",
    "render SESSION --to openai:gpt-5",
    "bisect SESSION -- test -e f",
    "checkout nosuch out",
    "restore nosuch",
    "salvage nosuch copy.rath",
    "import nosuch",
    "adopt SESSION --by me --sandbox local:nosuch",
    "forget SESSION nosuch",
    "merge SESSION FORK --require never-ran",
    "merge SESSION nosuch",
    "fork nosuch",
    "gc --dry-run",
    "gc --delete nosuch",
    "memory ls",
    "memory recall word",
    "memory read nosuch",
    "config show",
    "doctor",
    "mcp ls",
    "resume nosuch word --model script:SCRIPT",
    "resume SESSION word --model nosuch:model",
    "resume SESSION word --model script:nosuch",
    "resume SESSION word --model script:SCRIPT --sandbox local:nosuch",
    "run word --model nosuch:model",
    "run word --model script:nosuch",
    "run word --model script:SCRIPT --sandbox nosuch:.",
    "run word --model script:SCRIPT --sandbox local:nosuch",
    "run word --model script:SCRIPT --session nosuch",
    "run word --model script:SCRIPT --image nosuch",
    "run word --model script:SCRIPT --budget nosuch",
    "run -c word --model script:SCRIPT --store file:one.rath",
];

/// Calls each command in a directory, which stays as it is.
fn check(directory: &Path, [session, fork, script]: [&str; 3]) {
    let names = || {
        let entries = std::fs::read_dir(directory).expect("a directory");
        entries.map(|entry| entry.expect("an entry").file_name()).collect::<Vec<_>>()
    };
    for command in COMMANDS {
        let command = command.replace("SESSION", session).replace("FORK", fork).replace("SCRIPT", script);
        let args: Vec<_> = command.split(' ').collect();
        let output = crate::rath(directory, &args);
        assert_eq!(names(), Vec::<std::ffi::OsString>::new(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_command_that_reads_or_is_refused_creates_nothing() {
    let folder = crate::workshop("{\"text\": \"Done.\"}\n");
    // A path of its own would have the blank of the temporary directory.
    let script = "../script.jsonl";
    let below = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("a directory");
        path
    };
    // Where there is no store.
    check(&below("empty"), ["aaaaaaaa", "bbbbbbbb", script]);
    // Below a project with a store.
    let run = ["run", "word", "--sandbox", "local:.", "--model", "script:script.jsonl"];
    assert!(crate::rath(folder.path(), &run).status.success());
    let list = crate::printed(folder.path(), &["ls"]);
    let session = list.split(' ').next().expect("a session").to_owned();
    let fork = crate::printed(folder.path(), &["fork", &session]);
    check(&below("below"), [&session, fork.trim(), script]);
}
