//! `rath demo`: what it shows, the commands that it prints, and the picture of it in the documentation.

mod picture;

use std::path::Path;
use std::process::Command;

use expect_test::expect;
use rath_test_support::Terminal;

use crate::fixture::with_numbered_steps;

/// The part of the output in which two agents work at the same time: their lines come in any order.
const AT_THE_SAME_TIME: [&str; 2] = ["2. ", "3. "];

/// Returns the demo in `folder`, where the shell finds the program by its name.
fn demo(folder: &Path, args: &[&str]) -> Command {
    let mut command = rath_test_support::program(crate::program_path());
    command.arg("demo").args(args).current_dir(folder).env("PATH", path_with_program());
    command
}

/// Returns a `PATH` on which the program is found as `rath`.
pub(crate) fn path_with_program() -> std::ffi::OsString {
    let program = crate::program_path();
    let folder = program.parent().expect("a folder").to_owned();
    let others = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&others))).expect("a path")
}

/// Returns what a demo printed that ended well.
fn printed(mut command: Command) -> String {
    let output = command.output().expect("rath runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Sorts the lines of agents that work at the same time by agent.
fn with_sorted_agents(lines: Vec<String>) -> Vec<String> {
    let at = |start: &str| lines.iter().position(|line| line.contains(start)).expect("a heading");
    let [from, to] = AT_THE_SAME_TIME.map(at);
    let mut sorted = lines.clone();
    let agent = |line: &String| {
        let line = line.trim_start();
        let text = line.strip_prefix(picture::NAME_START).unwrap_or(line);
        text.split_whitespace().next().unwrap_or_default().to_owned()
    };
    sorted[from + 1..to - 1].sort_by_key(agent);
    sorted
}

/// Replaces ids by numbers.
fn without_ids(lines: Vec<String>) -> String {
    with_numbered_steps(&(lines.join("\n") + "\n"))
}

/// Returns the commands that a demo printed: those that enter its directory, and the others.
fn commands(printed: &str) -> (Vec<&str>, Vec<&str>) {
    let (_, list) = printed.split_once("Go there.\n").expect("a list of commands");
    let commands = list.lines().filter_map(|line| line.strip_prefix("  "));
    commands.partition(|command| !command.starts_with("rath "))
}

#[test]
fn the_demo_tells_a_repair_and_a_crash() {
    let folder = rath_test_support::temp_dir();
    let printed = printed(demo(folder.path(), &[]));
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    let lines = with_sorted_agents(printed.lines().map(str::to_owned).collect());
    expect![[r#"
        Agents repair a failing test. A script gives the answers of the models; all
        else is real, the crash too. The files are in rath-demo

        1. A test fails, and the memory has a rule about it
          lead     check sh test.sh failed: -100 for 3: the shares add up to -99
          lead     read_file split.sh
          lead     `total / people` drops the rest: the shares add up to too little.

        2. Two agents repair it at the same time, each in its own files
          even     recalls: A refund is split like any bill: never lose a cent.
          even     edit_file split.sh
          even     check sh test.sh failed: -100 for 3: the shares add up to -99
          even     edit_file split.sh
          even     check sh test.sh passed
          even     Each share is the difference of two running totals.
          rest     recalls: A refund is split like any bill: never lose a cent.
          rest     edit_file split.sh
          rest     check sh test.sh failed: 7 for 5: somebody pays 2 cents more
          rest     Nothing is lost, but the last person pays up to 3 cents more.

        3. A selector chooses by the checks, and the choice is merged
          rest     sh test.sh failed
          even     sh test.sh passed
          selector chooses merge_even
          merged   as STEP1; sh test.sh passed on the merged files
          even     remembers: Differences of running totals lose no cent.

        4. Another process goes on, and is killed in the middle of a call
          release  recalls: Differences of running totals lose no cent.
          release  shell echo '1.1 No cent of a bill is lost.' >> CHANGES; sh endure…
          killed   the process, while the command ran

        5. The session goes on where it was
          rath     CHANGES changed after `shell` started, by this call or by others
          rath     a call of `shell` was interrupted, and may or may not have finished
          user     do not make it again (as `rath review --skip` decides)
          release  read_file CHANGES
          release  check sh test.sh passed
          release  CHANGES has its line, once, and the tests pass.

        All of it is on the record: 15 model calls, 17,197 tokens.

        Go there.
          cd rath-demo

        The steps; the repair in full; what the model saw, and what it changed.
          rath log STEP1
          rath show STEP1 STEP2
          rath explain STEP1 STEP2

        The call behind a line; the first files that pass; the two repairs.
          rath blame split.sh:6 STEP1
          rath bisect STEP1 -- sh -c '! sh test.sh'
          rath diff STEP3 STEP4

        Do it again, and compare; the cost; the memory.
          rath replay STEP1 --tools
          rath cost STEP1
          rath memory recall cent

        Ask on, where it ended.
          rath resume STEP1 'What was wrong?' --model script:model.jsonl
    "#]]
    .assert_eq(&without_ids(lines));
    let changes = std::fs::read_to_string(folder.path().join("rath-demo/CHANGES")).expect("a file");
    assert_eq!(changes, "1.0  Splits a bill.\n1.1  No cent of a bill is lost.\n", "the call was made once");
}

/// Pastes each command into a shell, in the order in which they are printed.
fn paste_all(folder: &Path, printed: &str, path: &std::ffi::OsStr) {
    const EXPECTED: [(&str, &str); 10] = [
        ("rath log", "merged"),
        ("rath show", "by       even"),
        ("rath explain", "sh test.sh failed on these files"),
        ("rath blame", "by: even"),
        ("rath bisect", "replaced it in line 6 ~split.sh"),
        ("rath diff", "+    echo $((total * nth / people - total * (nth - 1) / people))"),
        ("rath replay", "exact: 15 requests, 10 calls, 3 files"),
        ("rath cost", "script:model"),
        ("rath memory", "Differences of running totals lose no"),
        ("rath resume", "Each share was rounded towards zero"),
    ];
    let (enter, commands) = commands(printed);
    assert_eq!(commands.len(), EXPECTED.len(), "{printed}");
    for (command, (start, piece)) in commands.iter().zip(EXPECTED) {
        assert!(command.starts_with(start), "{command}");
        let mut shell = rath_test_support::program("sh");
        let line = format!("{} && {command}", enter.join(" && "));
        let output = shell.args(["-c", &line]).current_dir(folder).env("PATH", path).output().expect("sh runs");
        let shown = String::from_utf8_lossy(&output.stdout);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {shown}{err}");
        assert!(shown.contains(piece), "{line}: {shown}");
    }
}

#[test]
fn each_command_that_the_demo_prints_works_as_it_is_printed() {
    let folder = rath_test_support::temp_dir();
    let printed = printed(demo(folder.path(), &[]));
    paste_all(folder.path(), &printed, &path_with_program());
}

#[test]
fn the_commands_work_where_rath_is_not_installed_and_the_directory_has_a_blank() {
    let folder = rath_test_support::temp_dir();
    let mut command = demo(folder.path(), &["--dir", "a demo"]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env("PATH", &path);
    let printed = printed(command);
    assert!(printed.contains("  cd 'a demo'\n  export PATH=\"$PATH\":"), "{printed}");
    paste_all(folder.path(), &printed, &path);
}

/// Runs the demo and each command that it prints on a machine on which `start` is in force. Returns what the demo says about
/// its sandbox; none if there is no such machine.
fn paste_all_on(start: &str) -> Option<String> {
    let folder = rath_test_support::temp_dir();
    let run = |line: &str| {
        let mut unshare = rath_test_support::program("unshare");
        // In this user namespace, no others are allowed.
        let script = format!("echo 0 > /proc/sys/user/max_user_namespaces && exec {start} sh -c \"$0\"");
        unshare.args(["--user", "--map-root-user", "sh", "-c", &script, line]).current_dir(folder.path());
        unshare.env("PATH", path_with_program()).output().expect("unshare runs")
    };
    let output = run("rath demo");
    let err = String::from_utf8(output.stderr).expect("UTF-8");
    if ["unshare: ", "max_user_namespaces: ", "strace: "].iter().any(|problem| err.contains(problem)) {
        eprintln!("skipped: there is nothing to try it in: {err}");
        return None;
    }
    assert!(output.status.success(), "{err}");
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let (enter, commands) = commands(&printed);
    assert_eq!(commands.len(), 10, "{printed}");
    for command in commands {
        let output = run(&format!("{} && {command}", enter.join(" && ")));
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Some(err)
}

#[test]
fn the_demo_and_its_commands_work_without_namespaces() {
    let Some(sandbox) = paste_all_on("") else { return };
    expect![[r#"
        sandbox: writes only in rath-demo, no network
        no namespaces here: commands create and remove files only in subdirectories
    "#]]
    .assert_eq(&sandbox);
}

#[test]
fn the_demo_and_its_commands_work_where_nothing_can_be_isolated() {
    let no_landlock = "-e trace=landlock_create_ruleset -e inject=landlock_create_ruleset:error=ENOSYS";
    let Some(sandbox) = paste_all_on(&format!("strace -f -qq -o /dev/null {no_landlock}")) else { return };
    expect![[r#"
        no sandbox: tools start in rath-demo and can do anything you can
    "#]]
    .assert_eq(&sandbox);
}

#[test]
fn a_directory_that_is_there_is_left_alone() {
    let folder = rath_test_support::temp_dir();
    std::fs::create_dir(folder.path().join("rath-demo")).expect("a directory");
    std::fs::write(folder.path().join("rath-demo/split.sh"), "mine\n").expect("written");
    let output = demo(folder.path(), &["--dir", "rath-demo"]).output().expect("rath runs");
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(err, "error: rath-demo exists\nhint: `rath demo --dir PATH` makes another directory\n");
    assert!(printed(demo(folder.path(), &[])).contains("\n  cd rath-demo-2\n"));
    assert_eq!(std::fs::read_to_string(folder.path().join("rath-demo/split.sh")).expect("read"), "mine\n");
}

#[test]
fn the_picture_in_the_documentation_shows_the_demo() {
    let folder = rath_test_support::temp_dir();
    let mut command = demo(folder.path(), &[]);
    command.env("TERM", "xterm-256color");
    let (screen, status) = Terminal::start(command).finish();
    assert!(status.success(), "{screen}");
    let new = picture::draw(&format!("$ rath demo\n{screen}"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/demo.svg");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &new).expect("written");
    }
    let there = std::fs::read_to_string(&path).expect("docs/demo.svg");
    assert!(there.len() < 50_000, "{} bytes", there.len());
    let rows = |svg: &str| without_ids(with_sorted_agents(picture::rows(svg)));
    let hint = "UPDATE_EXPECT=1 writes docs/demo.svg anew";
    assert_eq!(rows(&there), rows(&new), "{hint}");
}

/// Replaces what differs from one demo to the next: ids, and ages.
fn without_ids_and_ages(text: &str) -> String {
    let ids = regex::Regex::new(r"\b[0-9a-f]{8,16}\b").expect("a pattern");
    let ages = regex::Regex::new(r"\b(now|[0-9]+m ago) +").expect("a pattern");
    ages.replace_all(&ids.replace_all(text, "ID"), "now ").into_owned()
}

#[test]
#[cfg(target_os = "linux")]
fn the_readme_shows_what_the_commands_print_after_the_demo() {
    let folder = rath_test_support::temp_dir();
    printed(demo(folder.path(), &[]));
    let readme = include_str!("../../../../README.md");
    let blocks = readme.split("```text\n$ ").skip(1).map(|rest| rest.split_once("```").expect("the end of a block").0);
    let mut compared = 0;
    for block in blocks {
        let (command, shown) = block.split_once('\n').expect("a command");
        // A conversation is typed, and asks a model.
        if command.contains("--model") {
            continue;
        }
        let mut shell = rath_test_support::program("sh");
        shell.args(["-c", &format!("{command} 2>&1")]).current_dir(folder.path().join("rath-demo"));
        let printed = printed_by(shell.env("PATH", path_with_program()));
        assert_eq!(without_ids_and_ages(&printed), without_ids_and_ages(shown), "$ {command}");
        compared += 1;
    }
    assert_eq!(compared, 4);
}

/// Returns what a command printed, however it ended.
fn printed_by(command: &mut Command) -> String {
    String::from_utf8(command.output().expect("sh runs").stdout).expect("UTF-8")
}
