//! Tests of sandboxes: the printed restrictions, and that they hold.

use std::process::Output;

use expect_test::expect;
use serde_json::{Value, json};

/// Creates a directory to work in, a home directory with a secret, and a script that makes one call.
fn machine(command: &str) -> rath_test_support::TempDir {
    let folder = rath_test_support::temp_dir();
    for name in ["home", "work"] {
        std::fs::create_dir(folder.path().join(name)).expect("a directory");
    }
    std::fs::write(folder.path().join("home/private.txt"), "nobody's business").expect("a file");
    let call = json!({"calls": [{"name": "shell", "arguments": {"command": command}}]});
    let script = format!("{call}\n{}\n", json!({"text": "Done."}));
    std::fs::write(folder.path().join("script.jsonl"), script).expect("a file");
    folder
}

/// Runs the script with `args`.
fn run(folder: &rath_test_support::TempDir, args: &[&str]) -> Output {
    rath(folder, args).env("CANARY", "sings").output().expect("rath runs")
}

/// Returns the id of the only session.
fn id(folder: &rath_test_support::TempDir) -> String {
    let listed = rath(folder, &["ls"]).output().expect("rath runs");
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("one line of JSON");
    listed["session"].as_str().expect("an id").to_owned()
}

fn rath(folder: &rath_test_support::TempDir, args: &[&str]) -> std::process::Command {
    let mut rath = rath_test_support::program(env!("CARGO_BIN_EXE_rath"));
    let asks = ["run", "resume"].contains(&args[0]);
    let model: &[&str] = if asks { &["--model", "script:../script.jsonl", "--json"] } else { &["--json"] };
    rath.args(args).args(model).current_dir(folder.path().join("work")).env("HOME", folder.path().join("home"));
    rath
}

/// Returns the output of the call.
fn tool_output(output: &Output) -> String {
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let texts = events.filter(|event| event["event"] == "tool_output");
    texts.map(|event| event["text"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Returns the printed restrictions of the sandbox.
fn restrictions(folder: &rath_test_support::TempDir, output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.contains("sandbox: ")).unwrap_or(&text);
    crate::fixture::normalize(folder.path(), line)
}

/// Returns `true` if commands can be isolated on this machine, and prints the reason if not.
pub(crate) fn can_isolate() -> bool {
    let output = run(&machine("true"), &["run", "hi", "--sandbox", "isolated:."]);
    let can = output.status.success();
    if !can {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
    }
    can
}

/// A command that prints what it can reach.
const LOOK: &str = "echo canary=$CANARY; cat ~/private.txt 2>/dev/null || echo no private.txt; echo; \
                    echo made > made.txt && cat made.txt; touch ../outside.txt; readlink /proc/self/ns/net";

/// The variables of a program are a file in `/proc`, and a command in `local:` can read those of the user's programs.
#[test]
fn the_environment_of_rath_is_not_in_the_files_of_its_processes() {
    let look = "for file in /proc/$PPID/environ /proc/[0-9]*/environ; do tr '\\0' '\\n' <$file; done 2>&1 | grep -a OWN_CANARY | sort -u";
    let folder = machine(look);
    let mut other =
        rath_test_support::program("sleep").arg("1000").env("OWN_CANARY", "found").spawn().expect("it starts");
    let mut rath = rath(&folder, &["run", "Look", "--sandbox", "local:."]);
    let output = rath.env("OWN_CANARY", "sings").output().expect("rath runs");
    other.kill().expect("it runs");
    other.wait().expect("it has ended");
    assert_eq!(tool_output(&output), "OWN_CANARY=found\n");
}

/// A store that the user keeps elsewhere. Isolated commands see what is beside it, unless it is in a home directory.
#[test]
fn a_store_is_out_of_reach_wherever_it_is() {
    if !can_isolate() {
        return;
    }
    let elsewhere = rath_test_support::temp_dir_in(env!("CARGO_TARGET_TMPDIR").as_ref());
    let elsewhere = elsewhere.path().canonicalize().expect("a directory");
    std::fs::write(elsewhere.join("notes.txt"), "seen\n").expect("a file");
    let is_at_home = std::env::home_dir().is_some_and(|home| elsewhere.starts_with(home));
    let out_of_reach = if is_at_home { "0\n" } else { "seen\n0\n" };
    for (kind, name) in [("sqlite", "kept.db"), ("jsonl", "lines")] {
        let quoted = format!("'{}'", elsewhere.display());
        let folder = machine(&format!(
            "exec 2>/dev/null; cat {quoted}/notes.txt; cat {quoted}/{name}* {quoted}/{name}/* | wc -c"
        ));
        let (work, store) = (folder.path().join("work"), format!("{kind}:{}/{name}", elsewhere.display()));
        std::fs::write(work.join("file"), "content").expect("a file");
        let output = run(&folder, &["run", "Look", "--store", &store]);
        assert_eq!(tool_output(&output), out_of_reach, "{kind}: {}", String::from_utf8_lossy(&output.stderr));
        let output = run(&folder, &["run", "Look", "--store", &store, "--sandbox", "local:."]);
        let seen = tool_output(&output);
        assert!(seen.starts_with("seen\n") && seen != "seen\n0\n", "without isolation it works: {kind}: {seen}");
    }
}

/// Runs `rath` on a machine that allows no namespaces: in a user namespace that allows no others. None if there is not even one.
fn run_without_namespaces(folder: &rath_test_support::TempDir, args: &[&str]) -> Option<Output> {
    let rath = rath(folder, args);
    let line = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let mut unshare = rath_test_support::program("unshare");
    unshare.args(["--user", "--map-root-user", "sh", "-c", line]).arg(rath.get_program()).args(rath.get_args());
    for (name, value) in rath.get_envs() {
        unshare.env(name, value.unwrap_or_default());
    }
    let output = unshare.current_dir(folder.path().join("work")).output().ok()?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if stderr.contains("unshare: ") || stderr.contains("max_user_namespaces: ") {
        eprintln!("skipped: no namespace to try it in: {stderr}");
        return None;
    }
    Some(output)
}

#[test]
fn a_machine_without_namespaces_isolates_by_landlock() {
    // The shell writes an error in pieces, which could stand in the middle of a line of the output.
    let look = "exec 2>/dev/null; cat ~/private.txt || echo no private.txt; echo made > sub/made.txt && cat sub/made.txt; \
                echo x > ../outside.txt || echo no outside.txt; ls .rath || echo no .rath; : > /dev/tcp/127.0.0.1/1";
    let folder = machine(look);
    std::fs::create_dir(folder.path().join("work/sub")).expect("a directory");
    let Some(output) = run_without_namespaces(&folder, &["run", "Look"]) else { return };
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    // The kernel is older than Linux 6.12, or Landlock is switched off.
    if stderr.contains("does not allow new namespaces") {
        return eprintln!("skipped: {stderr}");
    }
    assert!(output.status.success(), "{stderr}");
    let told =
        stderr.lines().filter(|line| line.contains("sandbox: ") || line.contains("namespaces")).collect::<Vec<_>>();
    expect![[r#"
        sandbox: writes only in FOLDER/work, no network
        no namespaces here: commands create and remove files only in subdirectories"#]]
    .assert_eq(&crate::fixture::normalize(folder.path(), &told.join("\n")));
    assert_eq!(tool_output(&output), "no private.txt\nmade\nno outside.txt\nno .rath\n");
    assert!(!folder.path().join("outside.txt").exists());
    // Recorded calls run again behind the walls of the recording.
    let output = run_without_namespaces(&folder, &["replay", "--tools", &id(&folder)]).expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("no namespaces here"), "{stderr}");
}

/// A session that was recorded behind namespaces does not go on without them.
#[test]
fn a_session_is_not_resumed_behind_weaker_walls() {
    if !can_isolate() {
        return;
    }
    let folder = machine("echo x > made.txt");
    assert!(run(&folder, &["run", "Look"]).status.success());
    let id = id(&folder);
    for command in [&["resume", &id, "Again"][..], &["replay", "--tools", &id]] {
        let Some(output) = run_without_namespaces(&folder, command) else { return };
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains("does not allow new namespaces"), "{command:?}: {stderr}");
    }
}

#[test]
fn tools_are_isolated_by_default() {
    if !can_isolate() {
        return;
    }
    let host = std::fs::read_link("/proc/self/ns/net").expect("a network").display().to_string();
    let look = |args: &[&str]| {
        let folder = machine(LOOK);
        let output = run(&folder, &[&["run", "Look"], args].concat());
        let printed = tool_output(&output).replace(&host, "the network of the machine\n");
        let printed = printed.split_once("net:[").map_or(&*printed, |(before, _)| before).trim_end();
        let outside = if folder.path().join("outside.txt").exists() { "written" } else { "not written" };
        assert!(folder.path().join("work/made.txt").exists());
        format!("{}\n{printed}\noutside: {outside}\n", restrictions(&folder, &output))
    };
    expect![[r#"
        sandbox: writes only in FOLDER/work, no network
        canary=
        no private.txt

        made
        outside: not written
    "#]]
    .assert_eq(&look(&[]));
    expect![[r#"
        sandbox: writes only in FOLDER/work, no network
        canary=
        no private.txt

        made
        outside: not written
    "#]]
    .assert_eq(&look(&["--sandbox", "isolated:."]));
    expect![[r#"
        sandbox: writes only in FOLDER/work, with network
        canary=
        no private.txt

        made
        the network of the machine
        outside: not written
    "#]]
    .assert_eq(&look(&["--sandbox", "isolated:.", "--network"]));
    expect![[r#"
        no sandbox: tools start in FOLDER/work and can do anything you can
        canary=
        nobody's business
        made
        the network of the machine
        outside: written
    "#]]
    .assert_eq(&look(&["--sandbox", "local:."]));
}

#[test]
fn a_session_stays_where_it_was_placed() {
    if !can_isolate() {
        return;
    }
    let folder = machine("true");
    let printed = |args: &[&str]| restrictions(&folder, &run(&folder, args));
    expect!["sandbox: writes only in FOLDER/work, no network"].assert_eq(&printed(&[
        "run",
        "Look",
        "--sandbox",
        "isolated:.",
    ]));
    let list = crate::printed(&folder.path().join("work"), &["ls", "--json"]);
    let listed: Value = serde_json::from_str(&list).expect("JSON");
    let id = listed["session"].as_str().expect("an id");
    expect!["sandbox: writes only in FOLDER/work, no network"].assert_eq(&printed(&["resume", id, "Again"]));
    expect!["sandbox: writes only in FOLDER/work, with network"].assert_eq(&printed(&[
        "resume",
        id,
        "Again",
        "--network",
    ]));
    expect!["sandbox: writes only in FOLDER/work, with network"].assert_eq(&printed(&["resume", id, "Again"]));
    expect!["no sandbox: tools start in FOLDER/work and can do anything you can"].assert_eq(&printed(&[
        "resume",
        id,
        "Again",
        "--sandbox",
        "local:.",
    ]));
}

#[test]
fn contradicting_options_are_refused_before_anything_runs() {
    let folder = machine("true");
    let check = |args: &[&str], expected: expect_test::Expect| {
        let args = [&["run", "hi", "--model", "script:../script.jsonl"], args].concat();
        crate::check(&folder.path().join("work"), &args, expected);
    };
    check(
        &["--sandbox", "none", "--network"],
        expect![[r#"
            ! error: `--network` has no effect with `--sandbox none`
            ! hint: leave one of them out
            exit 2
        "#]],
    );
    check(
        &["--sandbox", "isolated:.?network=off", "--network"],
        expect![[r#"
            ! error: `--network` contradicts `network=off` in `--sandbox`
            ! hint: leave one of them out
            exit 2
        "#]],
    );
    check(
        &["--sandbox", "isolated:.?netwrk=on"],
        expect![[r#"
            ! error: unknown option `netwrk` of a sandbox of the kind `isolated`; known: network, host, git, walls, memory, processes, file_size, cpu_time, output, hide, show, write, at
            ! hint: `--sandbox isolated:.` names another sandbox; `rath doctor` says what works here
            exit 2
        "#]],
    );
    check(
        &["--sandbox", "isolated:.?network=maybe"],
        expect![[r#"
            ! error: wanted off, on or hosts such as `example.com,*.example.com` as `network` of a sandbox of the kind `isolated`, found `maybe`
            ! hint: `--sandbox isolated:.` names another sandbox; `rath doctor` says what works here
            exit 2
        "#]],
    );
    check(
        &["--sandbox", "isolated:../script.jsonl"],
        expect![[r#"
            ! error: cannot work in `FOLDER/../script.jsonl`: Not a directory (os error 20)
            ! hint: the directory has to be there
            exit 1
        "#]],
    );
    check(
        &["--sandbox", "isolated:/"],
        expect![[r#"
            ! error: wanted a workspace other than `/` for an isolated sandbox
            ! hint: `--sandbox isolated:.` names another sandbox; `rath doctor` says what works here
            exit 1
        "#]],
    );
}

#[test]
fn nothing_runs_where_tools_cannot_be_isolated_as_the_user_said() {
    let folder = machine("touch ran.txt");
    let work = folder.path().join("work");
    let Some(output) = run_without_namespaces(&folder, &["run", "hi", "--sandbox", "isolated:."]) else { return };
    assert_eq!(output.status.code(), Some(1));
    expect![[r#"
        error: cannot run `sh`: this machine does not allow new namespaces: No space left on device (os error 28)
        hint: user namespaces may be switched off: see `sysctl kernel.unprivileged_userns_clone`, `user.max_user_namespaces` and `kernel.apparmor_restrict_unprivileged_userns`; `isolated:.?walls=landlock` does without them, and `local:` without isolation
    "#]].assert_eq(&String::from_utf8_lossy(&output.stderr));
    assert!(!work.join("ran.txt").exists());
    let output = run_without_namespaces(&folder, &["run", "hi", "--sandbox", "local:."]).expect("it runs");
    assert_eq!(output.status.code(), Some(0));
    assert!(work.join("ran.txt").exists());
}

#[test]
fn what_was_recorded_runs_again_behind_walls() {
    if !can_isolate() {
        return;
    }
    let folder = machine("echo line >> ../outside.txt; echo made > made.txt");
    let outside = || std::fs::read_to_string(folder.path().join("outside.txt")).unwrap_or_default();
    let rath = |args: &[&str]| {
        let mut rath = rath_test_support::program(env!("CARGO_BIN_EXE_rath"));
        rath.args(args).current_dir(folder.path().join("work")).output().expect("rath runs")
    };
    assert!(run(&folder, &["run", "hi", "--sandbox", "local:."]).status.success());
    assert_eq!(outside(), "line\n");
    let list = rath(&["ls", "--json"]);
    let listed: Value = serde_json::from_slice(&list.stdout).expect("one session");
    let id = listed["session"].as_str().expect("an id").to_owned();
    let write = ["--", "sh", "-c", "echo line >> ../outside.txt; false"];
    let fresh = format!("local:{}", folder.path().join("fresh/in").display());
    std::fs::create_dir_all(folder.path().join("fresh/in")).expect("made");
    // The command, and true if it may write outside: only with a sandbox that the user names.
    let rows = [
        (vec!["replay", &id, "--tools"], false),
        ([&["bisect", &id][..], &write].concat(), false),
        (vec!["replay", &id, "--tools", "--sandbox", &fresh], true),
        ([&["bisect", &id, "--sandbox", "local:."][..], &write].concat(), true),
    ];
    for (command, may_write) in rows {
        let count = |folder: &rath_test_support::TempDir| {
            ["outside.txt", "fresh/outside.txt", "work/.rath/workspace/outside.txt"]
                .iter()
                .map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default().lines().count())
                .sum::<usize>()
        };
        let before = count(&folder);
        let output = rath(&command);
        let error = String::from_utf8_lossy(&output.stderr);
        let wrote = count(&folder) > before;
        assert!(error.contains("sandbox: "), "{command:?} does not say what is in force: {error}");
        assert_eq!(error.contains("no network"), !may_write, "{command:?}: {error}");
        if !may_write {
            assert!(!wrote, "{command:?} wrote outside: {error}");
        }
    }
}

#[test]
fn a_home_directory_is_a_workspace_only_if_the_user_says_so_and_stays_private() {
    let folder = rath_test_support::temp_dir();
    let home = folder.path().join("home");
    for directory in [".ssh", ".config/gh", ".local/share/rath", "project/.rath", "project/.git"] {
        std::fs::create_dir_all(home.join(directory)).expect("made");
    }
    let secrets = [".ssh/id", ".config/gh/hosts.yml", ".netrc", ".local/share/rath/user.key", "project/.rath/rath.db"];
    secrets.iter().for_each(|path| std::fs::write(home.join(path), "SECRET").expect("written"));
    std::os::unix::fs::symlink(".ssh/id", home.join("link")).expect("a link");
    let read = |path: &str| json!({"name": "read_file", "arguments": {"path": path}});
    let mut calls: Vec<_> = secrets.iter().map(|path| read(path)).collect();
    calls.extend([read("link"), read("project/../.ssh/id"), read("./.ssh/./id")]);
    calls.push(json!({"name": "search_files", "arguments": {"pattern": "SECRET"}}));
    calls.push(json!({"name": "list_files", "arguments": {"path": ".", "depth": 9}}));
    calls.push(json!({"name": "write_file", "arguments": {"path": ".ssh/authorized_keys", "text": "x"}}));
    calls.push(json!({"name": "shell", "arguments": {"command": "cat .ssh/id .netrc .config/gh/hosts.yml"}}));
    let script = format!("{}\n{}\n", json!({"calls": calls}), json!({"text": "Done."}));
    std::fs::write(folder.path().join("script.jsonl"), script).expect("a file");
    let rath = |args: &[&str]| {
        let mut rath = rath_test_support::program(env!("CARGO_BIN_EXE_rath"));
        let model = ["run", "hi", "--model", "script:../script.jsonl", "--store", "memory:", "--json"];
        rath.args(model).args(args).current_dir(&home).env("HOME", &home).output().expect("rath runs")
    };
    let asked = rath(&[]);
    let error = String::from_utf8_lossy(&asked.stderr);
    assert_eq!(asked.status.code(), Some(4), "{error}");
    assert!(error.contains("tools would write in"), "{error}");
    if !can_isolate() {
        return;
    }
    let output = rath(&["--sandbox", "isolated:."]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let results: Vec<_> = events.filter(|event| event["step"]["chunk"]["kind"] == "tool_result").collect();
    assert_eq!(results.len(), calls.len());
    for (call, result) in calls.iter().zip(results) {
        let output = result["step"]["chunk"]["output"].as_str().unwrap_or_default();
        assert!(!output.contains("SECRET"), "{call}: {output}");
    }
    assert!(!home.join(".ssh/authorized_keys").exists());
}

#[test]
fn changed_files_that_other_programs_run_are_named() {
    let folder =
        machine("mkdir -p .vscode sub && echo x > .vscode/tasks.json && echo x > sub/Makefile && echo x > plain");
    let output = run(&folder, &["run", "hi", "--sandbox", "local:."]);
    let error = String::from_utf8_lossy(&output.stderr);
    let named = "warning: other programs run these changed files: .vscode/tasks.json, sub/Makefile\n";
    assert!(error.contains(named), "{error}");
    let plain = run(&machine("echo x > plain"), &["run", "hi", "--sandbox", "local:."]);
    assert!(!String::from_utf8_lossy(&plain.stderr).contains("other programs"), "{plain:?}");
}
