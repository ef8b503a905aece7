//! Permissions: modes, rules, the files that they come from, and questions at the terminal.

use std::path::Path;
use std::process::{Command, Output};

use expect_test::{Expect, expect};
use rath_test_support::{TempDir, Terminal, temp_dir};

/// A project, and a home directory.
pub(super) struct Place {
    folder: TempDir,
}

const CALLS: &str = r#"{"calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]}
{"calls": [{"name": "shell", "arguments": {"command": "echo two >> a.txt"}}]}
{"calls": [{"name": "edit_file", "arguments": {"path": "below/a.txt", "old": "one", "new": "three"}}]}
{"calls": [{"name": "shell", "arguments": {"command": "echo two >> a.txt"}}]}
{"text": "Done."}
"#;

impl Place {
    pub(super) fn new(script: &str) -> Self {
        let folder = temp_dir();
        for directory in ["home", "app", "app/below"] {
            std::fs::create_dir(folder.path().join(directory)).expect("a directory");
        }
        let place = Place { folder };
        place.write("app/a.txt", "one\n");
        place.write("app/below/a.txt", "one\n");
        place.write("script.jsonl", script);
        place
    }

    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, text).expect("written");
    }

    pub(super) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(super) fn command(&self, directory: &str, args: &[&str]) -> Command {
        let mut command = rath_test_support::program(env!("CARGO_BIN_EXE_rath"));
        command.env("HOME", self.path("home")).env_remove("XDG_DATA_HOME").env("USER", "ann");
        command.args(args).current_dir(self.path(directory));
        command
    }

    pub(super) fn rath(&self, directory: &str, args: &[&str]) -> Output {
        self.command(directory, args).output().expect("rath runs")
    }

    /// Runs the script in a directory, with these options.
    pub(super) fn run_in(&self, directory: &str, options: &[&str]) -> Output {
        let script = format!("script:{}", self.path("script.jsonl").display());
        self.rath(directory, &[&["run", "Go.", "--model", &script], options].concat())
    }

    /// Compares what was printed, without the paths and ids of this run.
    fn check(&self, output: &Output, expected: Expect) {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let code = output.status.code().expect("an exit code");
        expected.assert_eq(&self.stable(&format!("{out}{err}exit {code}\n")));
    }

    pub(super) fn stable(&self, text: &str) -> String {
        let text = text.replace(&self.folder.path().display().to_string(), "TMP");
        let text = crate::fixture::without_call_times(&text);
        let lines = text.lines().map(|line| match line.split_once("saved as ") {
            Some(_) => "saved".to_owned(),
            None if line.starts_with("done in ") => "done".to_owned(),
            None if line.starts_with("hint: `rath review ") => "hint: review".to_owned(),
            None => line.trim_end().to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n") + "\n"
    }
}

#[test]
fn a_script_is_not_asked_and_stops_where_a_person_has_to_be() {
    let rows: [(&[&str], Expect); 6] = [
        (
            &[],
            expect![[r#"
                Done.
                sandbox: writes only in TMP/app, no network
                ✓ read_file a.txt
                ✓ shell echo two >> a.txt
                  a.txt
                  @@ -1,1 +1,2 @@
                   one
                  +two
                ✓ edit_file below/a.txt
                  below/a.txt
                  @@ -1,1 +1,1 @@
                  -one
                  +three
                ✓ shell echo two >> a.txt
                  a.txt
                  @@ -1,2 +1,3 @@
                   one
                   two
                  +two
                done
                saved
                exit 0
            "#]],
        ),
        (
            &["--mode", "read-only"],
            expect![[r#"
                Done.
                sandbox: writes only in TMP/app, no network; changes are refused
                ✓ read_file a.txt
                ✗ shell echo two >> a.txt  refused (mode read-only)
                ✗ edit_file below/a.txt  refused (mode read-only)
                ✗ shell echo two >> a.txt  refused (mode read-only)
                done
                saved
                exit 0
            "#]],
        ),
        (
            &["--mode", "ask"],
            expect![[r#"
                sandbox: writes only in TMP/app, no network; asks before changes
                ✓ read_file a.txt
                saved
                error: waiting for approval: `call_2_1` (shell)
                hint: review
                exit 4
            "#]],
        ),
        (
            &["--mode", "full"],
            expect![[r#"
                Done.
                sandbox: writes only in TMP/app, no network; asks only before it leaves the sandbox
                ✓ read_file a.txt
                ✓ shell echo two >> a.txt
                  a.txt
                  @@ -1,1 +1,2 @@
                   one
                  +two
                ✓ edit_file below/a.txt
                  below/a.txt
                  @@ -1,1 +1,1 @@
                  -one
                  +three
                ✓ shell echo two >> a.txt
                  a.txt
                  @@ -1,2 +1,3 @@
                   one
                   two
                  +two
                done
                saved
                exit 0
            "#]],
        ),
        (
            &["--sandbox", "local:."],
            expect![[r#"
                Done.
                no sandbox: tools start in TMP/app and can do anything you can
                ✓ read_file a.txt
                ✓ shell echo two >> a.txt
                  a.txt
                  @@ -1,1 +1,2 @@
                   one
                  +two
                ✓ edit_file below/a.txt
                  below/a.txt
                  @@ -1,1 +1,1 @@
                  -one
                  +three
                ✓ shell echo two >> a.txt
                  a.txt
                  @@ -1,2 +1,3 @@
                   one
                   two
                  +two
                done
                saved
                exit 0
            "#]],
        ),
        (
            &["--mode", "workspace", "--sandbox", "local:."],
            expect![[r#"
                no sandbox: tools start in TMP/app and can do anything you can; asks before commands
                ✓ read_file a.txt
                saved
                error: waiting for approval: `call_2_1` (shell)
                hint: review
                exit 4
            "#]],
        ),
    ];
    for (options, expected) in rows {
        let place = Place::new(CALLS);
        let output = place.run_in("app", options);
        place.check(&output, expected);
    }
    let place = Place::new(CALLS);
    place.check(
        &place.run_in("app", &["--mode", "yolo"]),
        expect![[r#"
            error: invalid value `yolo` for `--mode <MODE>`: unknown mode `yolo`; known: read-only, ask, workspace, full
            hint: `rath run --help` describes it
            exit 2
        "#]],
    );
}

#[test]
fn a_decision_after_the_run_is_recorded_with_the_name_of_the_person() {
    let place = Place::new(CALLS);
    let output = place.run_in("app", &["--mode", "ask", "--store", "jsonl:.rath/s"]);
    assert_eq!(output.status.code(), Some(4));
    let listed =
        String::from_utf8_lossy(&place.rath("app", &["ls", "--json", "--store", "jsonl:.rath/s"]).stdout).into_owned();
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let id = listed["session"].as_str().expect("an id");
    let review = place.rath("app", &["review", id, "--approve", "call_2_1", "--store", "jsonl:.rath/s"]);
    assert_eq!(review.status.code(), Some(0), "{}", String::from_utf8_lossy(&review.stderr));
    let script = format!("script:{}", place.path("script.jsonl").display());
    let resume = ["resume", id, "--model", &script, "--mode", "ask", "--store", "jsonl:.rath/s"];
    assert_eq!(place.rath("app", &resume).status.code(), Some(4));
    assert_eq!(place.read("app/a.txt"), "one\ntwo\n");
    let log =
        String::from_utf8_lossy(&place.rath("app", &["log", "-v", id, "--store", "jsonl:.rath/s"]).stdout).into_owned();
    assert!(log.contains("approved by ann: call_2_1"), "{log}");
}

#[test]
fn the_person_at_the_terminal_is_asked() {
    let place = Place::new(CALLS);
    let script = format!("script:{}", place.path("script.jsonl").display());
    let mut terminal = Terminal::start(place.command("app", &["run", "Go.", "--model", &script]));
    terminal.answer("allow it?", 1, "perhaps");
    terminal.answer("not understood", 1, "a");
    terminal.answer("allow it?", 2, "n not now, please");
    let (screen, status) = terminal.finish();
    expect![[r#"
        sandbox: writes only in TMP/app, no network; asks before changes
        ✓ read_file a.txt
        agent wants to use shell (it may change something):
          echo two >> a.txt
        s or a also allows from now on:
          command echo two
          write /a.txt
        allow it?  y: once  s: in this session  a: always in this directory  n WHY: no
        > perhaps
        not understood; y: once  s: in this session  a: always in this directory  n WHY:
          no
        > a
        added to ~/.config/rath/config.toml
        ✓ shell echo two >> a.txt
          a.txt
          @@ -1,1 +1,2 @@
           one
          +two
        agent wants to use edit_file (it may change something):
          --- a/below/a.txt
          +++ b/below/a.txt
          @@ -1,1 +1,1 @@
          -one
          +three
        s or a also allows from now on:
          write /below/a.txt
        allow it?  y: once  s: in this session  a: always in this directory  n WHY: no
        > n not now, please
        refused
        ✓ shell echo two >> a.txt
          a.txt
          @@ -1,2 +1,3 @@
           one
           two
          +two
        Done.
        done
        saved
    "#]]
    .assert_eq(&place.stable(&screen));
    assert_eq!(status.code(), Some(0), "{screen}");
    assert_eq!(place.read("app/a.txt"), "one\ntwo\ntwo\n");
    let written = place.read("home/.config/rath/config.toml");
    expect![[r#"
        [projects."TMP/app"]
        allow = [
          "command echo two",
          "write /a.txt",
        ]
    "#]]
    .assert_eq(&place.stable(&written));
    // The rule holds in this directory, and in no other.
    let options = ["--mode", "ask"];
    place.check(
        &place.run_in("app", &options),
        expect![[r#"
            sandbox: writes only in TMP/app, no network; asks before changes; 2 rules
            ✓ read_file a.txt
            ✓ shell echo two >> a.txt
              a.txt
              @@ -1,3 +1,4 @@
               one
               two
               two
              +two
            saved
            error: waiting for approval: `call_3_1` (edit_file)
            hint: review
            exit 4
        "#]],
    );
    place.write("other/a.txt", "one\n");
    assert_eq!(place.run_in("other", &options).status.code(), Some(4));
    assert_eq!(place.read("other/a.txt"), "one\n");
}

#[test]
fn what_was_typed_before_a_question_is_no_answer_to_it() {
    let place = Place::new(CALLS);
    let script = format!("script:{}", place.path("script.jsonl").display());
    let mut terminal = Terminal::start(place.command("app", &["run", "Go.", "--model", &script]));
    terminal.answer("allow it?", 1, "y\ny\ny\ny");
    terminal.answer("allow it?", 2, "n");
    terminal.answer("allow it?", 3, "n");
    let (screen, _) = terminal.finish();
    assert_eq!(place.read("app/a.txt"), "one\ntwo\n", "{screen}");
}

#[test]
fn an_interrupted_question_leaves_the_call_waiting() {
    for signal in ["INT", "eof"] {
        let place = Place::new(CALLS);
        let script = format!("script:{}", place.path("script.jsonl").display());
        let mut terminal = Terminal::start(place.command("app", &["run", "Go.", "--model", &script]));
        match signal {
            "eof" => terminal.answer("allow it?", 1, "\u{4}"),
            _ => {
                rath_test_support::wait_until("the question", || terminal.screen().contains("allow it?"));
                let kill = rath_test_support::program("kill").args(["-INT", &terminal.id().to_string()]).status();
                assert!(kill.expect("kill runs").success());
            }
        }
        let (screen, status) = terminal.finish();
        let code = if signal == "eof" { 4 } else { 130 };
        assert_eq!(status.code(), Some(code), "{screen}");
        assert_eq!(place.read("app/a.txt"), "one\n");
    }
}

/// In a directory such as `/tmp`, any user can create a file above the project.
#[test]
#[cfg(unix)]
fn a_file_of_another_user_above_the_project_is_ignored() {
    use std::os::unix::fs::{chown, lchown, symlink};
    let place = Place::new("{\"text\": \"Done.\"}\n");
    place.write("rath.toml", "neither TOML nor mine");
    // Only root can give a file away.
    if let Err(error) = chown(place.path("rath.toml"), Some(12_345), None) {
        eprintln!("skipped: {error}");
        return;
    }
    let ignored = || {
        expect![[r#"
            Done.
            sandbox: writes only in TMP/app, no network
            warning: TMP/rath.toml is ignored: another user owns it
            done
            saved
            exit 0
        "#]]
    };
    place.check(&place.run_in("app", &[]), ignored());
    place.check(
        &place.rath("app", &["config"]),
        expect![[r#"
            model none  (default)
            sandbox isolated:.  (default)
            memory none  (default)
            context false  (RATH_CONTEXT)
            turns 100  (default)
            key.openai none  (default)
            key.anthropic none  (default)
            key.gemini none  (default)
            mode ask in a terminal, workspace in scripts  (default)
            warning: TMP/rath.toml is ignored: another user owns it
            hint: `rath config --help` shows the format of ~/.config/rath/config.toml
            exit 0
        "#]],
    );
    // A link of another user to a file of this one, and the other way around.
    place.write("mine.toml", "[permissions]\nmode = \"read-only\"\n");
    std::fs::remove_file(place.path("rath.toml")).expect("removed");
    symlink("mine.toml", place.path("rath.toml")).expect("a link");
    lchown(place.path("rath.toml"), Some(12_345), None).expect("given away");
    place.check(&place.run_in("app", &[]), ignored());
    lchown(place.path("rath.toml"), Some(0), None).expect("taken back");
    chown(place.path("mine.toml"), Some(12_345), None).expect("given away");
    place.check(&place.run_in("app", &[]), ignored());
    // What the owner of the project put into it is the project's.
    chown(place.path("app"), Some(12_345), None).expect("given away");
    std::fs::rename(place.path("mine.toml"), place.path("app/rath.toml")).expect("moved");
    std::fs::remove_file(place.path("rath.toml")).expect("removed");
    place.check(
        &place.rath("app", &["config"]),
        expect![[r#"
            model none  (default)
            sandbox isolated:.  (default)
            memory none  (default)
            context false  (RATH_CONTEXT)
            turns 100  (default)
            key.openai none  (default)
            key.anthropic none  (default)
            key.gemini none  (default)
            mode read-only  (TMP/app/rath.toml)
            hint: `rath config --help` shows the format of ~/.config/rath/config.toml
            exit 0
        "#]],
    );
}

#[test]
fn a_project_can_forbid_and_cannot_allow_until_it_is_trusted() {
    let place = Place::new(CALLS);
    place.write("app/rath.toml", "[permissions]\nmode = \"full\"\nallow = [\"command echo *\", \"write a.txt\"]\n");
    let options = ["--mode", "ask"];
    place.check(
        &place.run_in("app", &options),
        expect![[r#"
            sandbox: writes only in TMP/app, no network; asks before changes
            note: rath.toml allows 2 rules, not in force; `rath config` shows them
            ✓ read_file a.txt
            saved
            error: waiting for approval: `call_2_1` (shell)
            hint: review
            exit 4
        "#]],
    );
    place.check(
        &place.rath("app", &["config"]),
        expect![[r#"
            model none  (default)
            sandbox isolated:.  (default)
            memory none  (default)
            context false  (RATH_CONTEXT)
            turns 100  (default)
            key.openai none  (default)
            key.anthropic none  (default)
            key.gemini none  (default)
            not in force: mode full  (TMP/app/rath.toml)
            not in force: allow command echo *  (TMP/app/rath.toml)
            not in force: allow write a.txt  (TMP/app/rath.toml)
            hint: `rath config trust` accepts what the project allows
            exit 0
        "#]],
    );
    place.check(
        &place.rath("app", &["config", "trust"]),
        expect![[r#"
            model none  (default)
            sandbox isolated:.  (default)
            memory none  (default)
            context false  (RATH_CONTEXT)
            turns 100  (default)
            key.openai none  (default)
            key.anthropic none  (default)
            key.gemini none  (default)
            mode full  (TMP/app/rath.toml)
            allow command echo *  (TMP/app/rath.toml)
            allow write a.txt  (TMP/app/rath.toml)
            accepted rath.toml
              mode: full
              allow: command echo *
              allow: write a.txt
            exit 0
        "#]],
    );
    place.check(
        &place.run_in("app", &options),
        expect![[r#"
            Done.
            sandbox: writes only in TMP/app, no network; asks before changes; 2 rules
            ✓ read_file a.txt
            ✓ shell echo two >> a.txt
              a.txt
              @@ -1,1 +1,2 @@
               one
              +two
            ✓ edit_file below/a.txt
              below/a.txt
              @@ -1,1 +1,1 @@
              -one
              +three
            ✓ shell echo two >> a.txt
              a.txt
              @@ -1,2 +1,3 @@
               one
               two
              +two
            done
            saved
            exit 0
        "#]],
    );
    // Another content, and the same content elsewhere, are not trusted.
    place.write("app/rath.toml", "[permissions]\nallow = [\"command *\"]\n");
    place.write("app/a.txt", "one\n");
    assert_eq!(place.run_in("app", &options).status.code(), Some(4));
    place.write("app/rath.toml", "[permissions]\nmode = \"read-only\"\ndeny = [\"read /below/a.txt\"]\n");
    place.check(
        &place.run_in("app", &[]),
        expect![[r#"
            Done.
            sandbox: writes only in TMP/app, no network; changes are refused; 1 rule
            ✓ read_file a.txt
            ✗ shell echo two >> a.txt  refused (mode read-only)
            ✗ edit_file below/a.txt  refused (mode read-only)
            ✗ shell echo two >> a.txt  refused (mode read-only)
            done
            saved
            exit 0
        "#]],
    );
    // The file of a project counts in its directories too.
    place.check(
        &place.run_in("app/below", &["--mode", "workspace"]),
        expect![[r#"
            Done.
            sandbox: writes only in TMP/app/below, no network; 1 rule
            ✗ read_file a.txt  refused (deny read /below/a.txt)
            ✓ shell echo two >> a.txt
            ✗ edit_file below/a.txt  failed
              │ cannot read `below/a.txt`: there is no such file; nearest: `a.txt`
            ✓ shell echo two >> a.txt
            done
            saved
            exit 0
        "#]],
    );
}

#[test]
fn a_wrong_configuration_is_an_error_and_nothing_runs() {
    let place = Place::new(CALLS);
    let mut found = String::new();
    for text in [
        "[permissions]\nallow = [\"comand ls\"]\n",
        "[permissions]\nallows = []\n",
        "[permissions]\nmode = \"yolo\"\n",
        "[permissions]\nmode = 1\n",
        "[permissions]\ndeny = \"read .env\"\n",
        "[permissions]\ndeny = [1]\n",
        "permissions = 1\n",
        "[permission]\n",
        "[permissions\n",
        "[projects.\"app\"]\n",
        "[projects]\na = 1\n",
        "\u{202e}\u{1b}[31m = 1\n",
    ] {
        for name in ["app/rath.toml", "home/.config/rath/config.toml"] {
            place.write(name, text);
            let output = place.run_in("app", &[]);
            assert_eq!(output.status.code(), Some(2), "{text}");
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!error.contains('\u{1b}') && !error.contains('\u{202e}'), "{error:?}");
            found.push_str(error.lines().next().unwrap_or_default());
            found.push('\n');
            std::fs::remove_file(place.path(name)).expect("removed");
        }
    }
    expect![[r#"
        error: the configuration rath.toml is wrong: line 2: `allow comand ls` is not a rule: unknown kind `comand`; known: tool, command, read, write, host, server, outside
        error: the configuration TMP/home/.config/rath/config.toml is wrong: line 2: `allow comand ls` is not a rule: unknown kind `comand`; known: tool, command, read, write, host, server, outside
        error: the configuration rath.toml is wrong: line 2: unknown name `allows`; known: mode, allow, ask, deny
        error: the configuration TMP/home/.config/rath/config.toml is wrong: line 2: unknown name `allows`; known: mode, allow, ask, deny
        error: the configuration rath.toml is wrong: line 2: unknown mode `yolo`; known: read-only, ask, workspace, full
        error: the configuration TMP/home/.config/rath/config.toml is wrong: line 2: unknown mode `yolo`; known: read-only, ask, workspace, full
        error: the configuration rath.toml is wrong: line 2: `mode` is not a text
        error: the configuration TMP/home/.config/rath/config.toml is wrong: line 2: `mode` is not a text
        error: the configuration rath.toml is wrong: line 2: `deny` is not a list of rules
        error: the configuration TMP/home/.config/rath/config.toml is wrong: line 2: `deny` is not a list of rules
        error: the configuration rath.toml is wrong: line 2: a rule in `deny` is not a text
        error: the configuration TMP/home/.config/rath/config.toml is wrong: line 2: a rule in `deny` is not a text
        error: the configuration rath.toml is wrong: line 1: `permissions` is not a section
        error: the configuration TMP/home/.config/rath/config.toml is wrong: line 1: `permissions` is not a section
        error: the configuration rath.toml is wrong: line 1: unknown name `permission`; known: model, models, agents, sandbox, memory, context, budget, permissions, projects, gc
        error: the configuration TMP/home/.config/rath/config.toml is wrong: line 1: unknown name `permission`; known: model, models, agents, sandbox, memory, context, budget, permissions, projects, gc
        error: the configuration rath.toml is wrong: line 1: unclosed table, expected `]`
        error: the configuration TMP/home/.config/rath/config.toml is wrong: line 1: unclosed table, expected `]`
        error: the configuration rath.toml is wrong: line 1: `app` in `projects` is not an absolute path
        error: the configuration TMP/home/.config/rath/config.toml is wrong: line 1: `app` in `projects` is not an absolute path
        error: the configuration rath.toml is wrong: line 2: `projects."a"` is not a section
        error: the configuration TMP/home/.config/rath/config.toml is wrong: line 2: `projects."a"` is not a section
        error: the configuration rath.toml is wrong: line 1: key with no value, expected `=`
        error: the configuration TMP/home/.config/rath/config.toml is wrong: line 1: key with no value, expected `=`
    "#]].assert_eq(&place.stable(&found));
    assert_eq!(place.read("app/a.txt"), "one\n");
    place.write("app/rath.toml", "[projects.\"/\"]\nallow = [\"tool *\"]\n");
    place.check(
        &place.run_in("app", &[]),
        expect![[r#"
        error: the configuration rath.toml is wrong: only your own configuration can have `projects`
        hint: `rath config --help` shows the format
        exit 2
    "#]],
    );
}

#[test]
fn tools_cannot_write_the_configuration() {
    let script = r#"{"calls": [{"name": "write_file", "arguments": {"path": "rath.toml", "text": "x"}}]}
{"text": "Done."}
"#;
    let place = Place::new(script);
    assert_eq!(place.run_in("app", &[]).status.code(), Some(4));
    let mut inside = place.command("app", &["run", "Go.", "--model", "script:../script.jsonl"]);
    let output = inside.env("XDG_CONFIG_HOME", place.path("app/config")).output().expect("rath runs");
    place.check(
        &output,
        expect![[r#"
            error: tools could write your configuration config/rath/config.toml, which is in their directory
            hint: work in another directory, or set XDG_CONFIG_HOME to one outside of it
            exit 1
        "#]],
    );
    assert!(!Path::new(&place.path("app/rath.toml")).exists());
}

#[test]
fn a_rule_that_allows_a_path_through_a_link_is_warned_about() {
    let place = Place::new("{\"text\": \"Done.\"}\n");
    std::fs::create_dir(place.path("app/real")).expect("made");
    std::os::unix::fs::symlink("real", place.path("app/conf")).expect("a link");
    for (rule, is_warned) in [
        ("allow = [\"read conf/secret.txt\"]", true),
        ("allow = [\"write conf/*\"]", true),
        ("allow = [\"read real/secret.txt\"]", false),
        ("allow = [\"read conf\"]", false),
        ("allow = [\"read */conf/x\"]", false),
        ("deny = [\"read conf/secret.txt\"]", false),
        ("ask = [\"write conf/*\"]", false),
    ] {
        place.write("home/.config/rath/config.toml", &format!("[permissions]\n{rule}\n"));
        let output = place.run_in("app", &[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(error.contains("fits nothing: conf is a link"), is_warned, "{rule}: {error}");
    }
}
