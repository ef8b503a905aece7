//! MCP servers of files: which are in force, and that nothing of a project's file runs before the user has accepted it.

use std::fs;
use std::os::unix::fs::{chown, lchown, symlink};

use expect_test::expect;
use rath_test_support::Terminal;
use serde_json::{Value, json};

use super::permissions::Place;

const DONE: &str = "{\"text\": \"Done.\"}\n";

/// A configuration with one server, which leaves a file when it starts: this program itself.
fn config(name: &str, arguments: &str) -> String {
    let program = crate::program_path().display().to_string();
    let command = format!("echo started $1 >> started.txt; exec '{program}' mcp serve");
    let server = json!({"command": "sh", "args": ["-c", command, "sh", arguments]});
    json!({"mcpServers": {name: server}}).to_string()
}

/// Runs the agent, and returns the servers' marks and the tools that the model was told of.
fn run(place: &Place, directory: &str, options: &[&str]) -> (String, Vec<String>) {
    let output = place.run_in(directory, options);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let marks = place.read(&format!("{directory}/started.txt"));
    let _ = fs::remove_file(place.path(&format!("{directory}/started.txt")));
    let log = place.rath(directory, &["ls", "--json"]);
    let newest = String::from_utf8_lossy(&log.stdout).lines().last().map(str::to_owned).expect("a session");
    let newest: Value = serde_json::from_str(&newest).expect("JSON");
    let log = place.rath(directory, &["log", newest["session"].as_str().expect("an id"), "--json"]);
    let steps = String::from_utf8_lossy(&log.stdout).into_owned();
    let steps = steps.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let instructions: Value =
        steps.map(|step| step["chunk"].clone()).find(|it| it["kind"] == "instructions").expect("a prompt");
    let tools = instructions["tools"].as_array().into_iter().flatten();
    let tools = tools.filter_map(|tool| tool["name"].as_str()).filter(|name| name.contains("__"));
    (marks, tools.map(str::to_owned).collect())
}

fn trust(place: &Place, directory: &str) {
    let output = place.rath(directory, &["config", "trust"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(place.read(&format!("{directory}/started.txt")), "", "to accept a file starts nothing");
}

#[test]
fn nothing_of_a_project_runs_before_it_is_accepted() {
    let place = Place::new(DONE);
    let (file, none) = ("app/.mcp.json", (String::new(), Vec::<String>::new()));
    place.write(file, &config("past", "1"));
    // New: neither a run nor a look at it starts anything.
    assert_eq!(run(&place, "app", &[]), none);
    for args in [&["mcp", "ls"][..], &["config"], &["mcp", "ls", "--json"]] {
        let output = place.rath("app", args);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains("mcp serve"), "{args:?} shows what would run: {printed}");
        assert_eq!(place.read("app/started.txt"), "", "{args:?}");
    }
    // Accepted.
    trust(&place, "app");
    let (marks, tools) = run(&place, "app", &[]);
    assert_eq!(marks, "started 1\n");
    assert!(tools.contains(&"past__list_sessions".to_owned()) && tools.len() == 8, "{tools:?}");
    assert_eq!(run(&place, "app", &["--no-mcp"]), none);
    assert_eq!(run(&place, "app", &["--sandbox", "none"]), none);
    // Changed, if only by a space; and the same content elsewhere.
    place.write(file, &(config("past", "1") + " "));
    assert_eq!(run(&place, "app", &[]), none);
    place.write(file, &config("past", "1"));
    assert_eq!(run(&place, "app", &[]).0, "started 1\n");
    place.write("app/below/.mcp.json", &config("past", "1"));
    place.write("app/.mcp.json", "{\"mcpServers\": {}}");
    assert_eq!(run(&place, "app/below", &[]), none);
}

/// Files in nested directories: each is accepted for itself, and the innermost server of a name is used.
#[test]
fn nested_projects_are_accepted_one_by_one() {
    let place = Place::new(DONE);
    place.write("app/.mcp.json", &config("outer", "outer"));
    trust(&place, "app");
    place.write("app/below/.mcp.json", &config("inner", "inner"));
    let (marks, tools) = run(&place, "app/below", &[]);
    assert_eq!((marks.as_str(), tools.iter().any(|tool| tool.starts_with("inner__"))), ("started outer\n", false));
    trust(&place, "app/below");
    let (marks, tools) = run(&place, "app/below", &[]);
    let mut marks: Vec<_> = marks.lines().collect();
    marks.sort_unstable();
    assert_eq!((marks, tools.len()), (vec!["started inner", "started outer"], 16));
    // One name in both, and in the user's own file.
    place.write("app/below/.mcp.json", &config("outer", "inner"));
    trust(&place, "app/below");
    assert_eq!(run(&place, "app/below", &[]).0, "started inner\n");
    place.write("home/.config/rath/mcp.json", &config("outer", "own"));
    assert_eq!(run(&place, "app/below", &[]).0, "started own\n");
    // A project ends at its repository.
    fs::create_dir(place.path("app/below/.git")).expect("a directory");
    fs::remove_file(place.path("home/.config/rath/mcp.json")).expect("removed");
    fs::remove_file(place.path("app/below/.mcp.json")).expect("removed");
    assert_eq!(run(&place, "app/below", &[]), (String::new(), Vec::new()));
}

#[test]
fn files_that_cannot_be_accepted_are_not_used() {
    // A link: what it leads to may have been accepted for another project.
    let place = Place::new(DONE);
    place.write("app/below/.mcp.json", &config("past", "1"));
    trust(&place, "app/below");
    symlink("below/.mcp.json", place.path("app/.mcp.json")).expect("a link");
    let output = place.run_in("app", &[]);
    assert!(String::from_utf8_lossy(&output.stderr).contains(".mcp.json is ignored: it is a link"));
    assert_eq!(place.read("app/started.txt"), "");
    assert_ne!(place.rath("app", &["config", "trust"]).status.code(), Some(0));
    fs::remove_file(place.path("app/.mcp.json")).expect("removed");
    fs::remove_file(place.path("app/below/.mcp.json")).expect("removed");
    // Too large, no JSON, no servers, a directory, a name twice: an error where it is accepted, and nothing runs.
    let large = format!("{{\"mcpServers\": {{}}, \"x\": \"{}\"}}", "x".repeat(2 << 20));
    let deep = "[".repeat(100_000);
    for text in [&large, "no JSON", "{}", "[]", "{\"mcpServers\": 7}", "", &deep] {
        place.write("app/.mcp.json", text);
        let output = place.rath("app", &["config", "trust"]);
        assert_ne!(output.status.code(), Some(0), "{text:.40}");
    }
    // No text at all: an agent works there all the same.
    let file = place.path("app/.mcp.json");
    fs::remove_file(&file).expect("removed");
    let unreadable: [&dyn Fn(); 3] = [
        &|| fs::create_dir(&file).expect("a directory"),
        &|| fs::write(&file, b"{\"mcpServers\": \"\xff\"}").expect("written"),
        &|| assert!(rath_test_support::program("mkfifo").arg(&file).status().expect("it runs").success()),
    ];
    for make in unreadable {
        make();
        let output = place.rath("app", &["config", "trust"]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && printed.contains(".mcp.json: "), "{printed}");
        let output = place.run_in("app", &[]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && printed.contains("so it is ignored"), "{printed}");
        let _ = fs::remove_dir(&file);
        let _ = fs::remove_file(&file);
    }
    // Of another user: only root can give a file away.
    place.write("app/.mcp.json", &config("past", "2"));
    trust(&place, "app");
    if let Err(error) = chown(place.path("app/.mcp.json"), Some(12_345), None) {
        eprintln!("skipped: {error}");
        return;
    }
    let output = place.run_in("app", &[]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains(".mcp.json is ignored: another user owns it"), "{printed}");
    assert_eq!(place.read("app/started.txt"), "");
    lchown(place.path("app/.mcp.json"), Some(0), None).expect("taken back");
}

/// A project's file gets no value of a variable before it is accepted, and the question names the variables.
#[test]
fn a_person_is_asked_and_sees_what_would_run() {
    let place = Place::new(DONE);
    let hidden = "x".repeat(300);
    let server = json!({
        "command": "${NO_SUCH:-sh}", "args": ["-c", "echo ${OPENAI_API_KEY} > key.txt"], "env": {"K": "${OPENAI_API_KEY}"},
    });
    let long = json!({"command": "sh", "args": ["-c", hidden, "; echo end"]});
    place.write("app/.mcp.json", &json!({"mcpServers": {"helper": server, "long": long}}).to_string());
    let question = "start them, and give their tools to the agent?";
    for (answer, is_accepted) in [("n", false), ("y", true)] {
        let script = format!("script:{}", place.path("script.jsonl").display());
        let mut command = place.command("app", &["run", "Go.", "--model", &script, "--mode", "workspace"]);
        command.env("OPENAI_API_KEY", "sk-correct-horse-battery");
        let mut terminal = Terminal::start(command);
        terminal.answer(question, 1, answer);
        let (screen, status) = terminal.finish();
        assert!(status.success(), "{screen}");
        let shown = screen.replace('\n', "");
        for part in [
            "'${NO_SUCH:-sh}'",
            "'echo ${OPENAI_API_KEY} > key.txt'",
            "reads from your environment",
            "NO_SUCH, OPENAI_API_KEY",
            "; echo end",
        ] {
            assert!(shown.contains(part), "{part} in {screen}");
        }
        assert!(!screen.contains("correct-horse"), "{screen}");
        let trusted = place.read("home/.config/rath/trusted");
        assert_eq!(trusted.contains(".mcp.json"), is_accepted, "{trusted}");
        if !is_accepted {
            assert!(!place.path("app/key.txt").exists());
        }
    }
    // Accepted as it is: no question. Changed: asked again.
    let script = format!("script:{}", place.path("script.jsonl").display());
    let args = ["run", "Go.", "--model", &script, "--mode", "workspace"];
    let mut accepted = place.command("app", &args);
    accepted.env("OPENAI_API_KEY", "sk-correct-horse-battery");
    let (screen, _) = Terminal::start(accepted).finish();
    assert!(!screen.contains(question), "{screen}");
    place.write("app/.mcp.json", &config("helper", "3"));
    let mut terminal = Terminal::start(place.command("app", &args));
    terminal.answer(question, 1, "n");
    let (screen, _) = terminal.finish();
    assert!(screen.contains("changed since you accepted it"), "{screen}");
    assert_eq!(place.read("app/started.txt"), "");
}

#[test]
fn servers_are_listed_with_their_files_and_tools() {
    let place = Place::new(DONE);
    place.write("home/.config/rath/mcp.json", &config("own", "1"));
    place.write(
        "app/.mcp.json",
        r#"{"mcpServers": {"past": {"command": "no-such-program"}, "own": {"command": "other"}}}"#,
    );
    let stable = |output: &std::process::Output| {
        let program = crate::program_path().display().to_string();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        place.stable(&text.replace(&program, "PROGRAM"))
    };
    expect![[r#"
        own: runs sh -c 'echo started $1 >> started.txt; exec '\''PROGRAM'\'' mcp serve' sh 1  (~/.config/rath/mcp.json)
          reachable, protocol 2026-07-28, 8 tools
          own__list_sessions
          own__search_sessions
          own__read_session
          own__read_step
          own__explain_step
          own__blame
          own__diff
          own__request_as_sent
        own: runs other  (TMP/app/.mcp.json)
          not in force: you have not accepted the file
        past: runs no-such-program  (TMP/app/.mcp.json)
          not in force: you have not accepted the file
        hint: `rath config trust` accepts what the project's file says now
    "#]]
    .assert_eq(&stable(&place.rath("app", &["mcp", "ls"])));
    fs::remove_file(place.path("app/started.txt")).expect("the user's own server was started");
    trust(&place, "app");
    let output = place.rath("app", &["mcp", "ls"]);
    assert_eq!(output.status.code(), Some(1));
    expect![[r#"
        own: runs sh -c 'echo started $1 >> started.txt; exec '\''PROGRAM'\'' mcp serve' sh 1  (~/.config/rath/mcp.json)
          reachable, protocol 2026-07-28, 8 tools
          own__list_sessions
          own__search_sessions
          own__read_session
          own__read_step
          own__explain_step
          own__blame
          own__diff
          own__request_as_sent
        own: runs other  (TMP/app/.mcp.json)
          not in force: the one in ~/.config/rath/mcp.json is used
        past: runs no-such-program  (TMP/app/.mcp.json)
          not reachable: the server `past`: it could not be started (cannot run `no-such-program`: there is no such program)
          hint: a program in your home directory cannot be seen from behind walls; in your own configuration, `"walls": "none"` takes them away
        note: the server `own` in .mcp.json is ignored: another one has that name
    "#]].assert_eq(&stable(&output));
    expect![[r#"
        own: runs sh -c 'echo started $1 >> started.txt; exec '\''PROGRAM'\'' mcp serve' sh 1  (~/.config/rath/mcp.json)
          in force
        own: runs other  (TMP/app/.mcp.json)
          not in force: the one in ~/.config/rath/mcp.json is used
        past: runs no-such-program  (TMP/app/.mcp.json)
          in force
        note: the server `own` in .mcp.json is ignored: another one has that name
    "#]]
    .assert_eq(&stable(&place.rath("app", &["mcp", "ls", "--no-start"])));
}

#[test]
fn a_server_without_its_variable_is_left_out_and_the_others_are_used() {
    let place = Place::new(DONE);
    let of_user =
        config("past", "1").replace("{\"mcpServers\":{", "{\"mcpServers\":{\"a\": {\"command\": \"${NO_SUCH}\"}, ");
    place.write("home/.config/rath/mcp.json", &of_user);
    let output = place.run_in("app", &[]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let note = "the server `a` is left out: the variable `NO_SUCH` is not set (in `command`) and has no default";
    assert!(printed.contains(note), "{printed}");
    let (marks, tools) = run(&place, "app", &[]);
    assert_eq!((&*marks, tools.len()), ("started 1\nstarted 1\n", 8), "{printed}");
    let output = place.rath("app", &["mcp", "ls", "--no-start"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = "not in force: the variable `NO_SUCH` is not set (in `command`) and has no default";
    assert!(printed.contains(why), "{printed}");
}

/// Each server that is not used has its one reason, and the one that is used is that of the file which it comes from.
#[test]
fn a_server_that_is_not_in_force_is_listed_with_its_reason() {
    let place = Place::new(DONE);
    let servers = |list: &[(&str, Value)]| {
        let servers: serde_json::Map<_, _> =
            list.iter().map(|(name, server)| ((*name).to_owned(), server.clone())).collect();
        json!({"mcpServers": servers}).to_string()
    };
    let (program, off) = (json!({"command": "true"}), json!({"command": "true", "disabled": true}));
    let of_user = [("both", program.clone()), ("off", off), ("unset", json!({"command": "${NO_SUCH}"}))];
    place.write("home/.config/rath/mcp.json", &servers(&of_user));
    place.write("app/.mcp.json", &servers(&[("both", program.clone()), ("off", program.clone())]));
    trust(&place, "app");
    place.write("app/below/.mcp.json", &servers(&[("new", program)]));
    let output = place.rath("app/below", &["mcp", "ls", "--no-start", "--json"]);
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = listed.lines().map(|line| {
        let row: Value = serde_json::from_str(line).expect("JSON");
        let text = |member: &str| row[member].as_str().unwrap_or("-").to_owned();
        let file = place.stable(&text("file"));
        format!("{} {}: {} {}\n", file.trim_end(), text("name"), row["is_in_force"], text("why_not"))
    });
    expect![[r#"
        ~/.config/rath/mcp.json both: true -
        ~/.config/rath/mcp.json off: false it is disabled
        ~/.config/rath/mcp.json unset: false the variable `NO_SUCH` is not set (in `command`) and has no default
        TMP/app/below/.mcp.json new: false you have not accepted the file
        TMP/app/.mcp.json both: false the one in ~/.config/rath/mcp.json is used
        TMP/app/.mcp.json off: true -
    "#]]
    .assert_eq(&rows.collect::<String>());
}

/// Walls hide the home directory, which the user has to know.
#[test]
fn a_server_that_walls_hide_is_named_with_advice() {
    let place = Place::new(DONE);
    let program = place.path("home/tool");
    symlink("/bin/true", &program).expect("a program");
    place.write("home/.config/rath/mcp.json", &json!({"mcpServers": {"tool": {"command": program}}}).to_string());
    let hint = "hint: a program in your home directory cannot be seen from behind walls";
    let output = place.run_in("app", &[]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut lines = printed.lines().skip_while(|line| !line.starts_with("warning: MCP: the server `tool`: "));
    assert!(lines.nth(1).is_some_and(|line| line.starts_with(hint)), "{printed}");
    let output = place.rath("app", &["mcp", "ls"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = printed.lines().skip_while(|line| !line.starts_with("  not reachable: "));
    assert!(lines.nth(1).is_some_and(|line| line.trim_start().starts_with(hint)), "{printed}");
    let output = place.rath("app", &["mcp", "ls", "--json"]);
    let row: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(row["hint"].as_str().is_some_and(|text| format!("hint: {text}").starts_with(hint)), "{row}");
}

/// A list starts no server that a run would leave out.
#[test]
fn a_list_starts_no_server_where_changes_are_refused() {
    for (file, mode, is_started) in [
        ("home/.config/rath/config.toml", "read-only", false),
        ("app/rath.toml", "read-only", false),
        ("home/.config/rath/config.toml", "workspace", true),
    ] {
        let place = Place::new(DONE);
        place.write("home/.config/rath/mcp.json", &config("own", "1"));
        place.write(file, &format!("[permissions]\nmode = \"{mode}\"\n"));
        let started = if is_started { "started 1\n" } else { "" };
        assert_eq!(run(&place, "app", &[]).0, started, "{file} {mode}");
        let output = place.rath("app", &["mcp", "ls"]);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(place.read("app/started.txt"), started, "{file} {mode}: {printed}");
        assert_eq!(printed.contains("not in force: changes are refused"), !is_started, "{printed}");
        assert!(output.status.success(), "{printed}");
    }
}

/// The outer of two files is accepted by its name, and what is printed says which one was.
#[test]
fn each_file_of_nested_projects_can_be_accepted_from_within() {
    let place = Place::new(DONE);
    place.write("app/.mcp.json", &config("outer", "outer"));
    place.write("app/below/.mcp.json", &config("inner", "inner"));
    place.write("app/rath.toml", "[permissions]\nallow = [\"command echo *\"]\n");
    place.write("app/below/rath.toml", "[permissions]\nallow = [\"command ls\"]\n");
    let accept = |args: &[&str]| {
        let output = place.rath("app/below", &[&["config", "trust"], args].concat());
        let printed = place.stable(&String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{printed}");
        let lines = printed.lines().filter(|line| line.starts_with("accepted ") || line.starts_with("hint: "));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    let both = expect![[r#"
        accepted rath.toml
        accepted .mcp.json
        hint: `rath config trust 'TMP/app/rath.toml' 'TMP/app/.mcp.json'` accepts what the project allows
    "#]];
    both.assert_eq(&accept(&[]));
    assert_eq!(run(&place, "app/below", &[]).0, "started inner\n");
    // The hint of each command names the file that is not in force.
    for args in [&["mcp", "ls", "--no-start"][..], &["config"]] {
        let output = place.rath("app/below", args);
        let printed = place.stable(&String::from_utf8_lossy(&output.stderr));
        assert!(printed.contains("`rath config trust 'TMP/app/"), "{printed}");
    }
    expect![[r#"
        accepted TMP/app/.mcp.json
        hint: `rath config trust 'TMP/app/rath.toml'` accepts what the project allows
    "#]]
    .assert_eq(&accept(&["../.mcp.json"]));
    let marks = run(&place, "app/below", &[]).0;
    assert!(marks.contains("started inner\n") && marks.contains("started outer\n"), "{marks}");
    // Nothing is accepted if one of the files cannot be.
    let trusted = place.read("home/.config/rath/trusted");
    for (name, expected) in [
        ("../a.txt", "is not a file of a project"),
        ("..", "is not a file of a project"),
        ("../../.mcp.json", "error: there is no "),
    ] {
        let output = place.rath("app/below", &["config", "trust", "../rath.toml", name]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && printed.contains(expected), "{name}: {printed}");
        assert_eq!(place.read("home/.config/rath/trusted"), trusted, "{name}");
    }
}

/// A file that cannot be used: each command says which one, and what to do.
#[test]
fn a_file_that_cannot_be_used_is_named_with_advice() {
    let (parts, place) = ([".mcp.json", "hint: "], Place::new(DONE));
    let run_args = ["run", "Go.", "--model", "script:../script.jsonl"];
    let (trust, list, show) = (&["config", "trust"][..], &["mcp", "ls", "--no-start"][..], &["config"][..]);
    place.write("app/below/.mcp.json", &config("past", "1"));
    symlink("below/.mcp.json", place.path("app/.mcp.json")).expect("a link");
    let check = |args: &[&str], parts: &[&str]| {
        let output = place.rath("app", args);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        parts.iter().for_each(|part| assert!(printed.contains(part), "{part} for {args:?}: {printed}"));
    };
    let advice = "put the file itself in its place";
    check(trust, &["error: ", ".mcp.json is a link", advice]);
    for args in [list, show, &run_args] {
        check(args, &[".mcp.json is ignored: it is a link", advice]);
    }
    fs::remove_file(place.path("app/.mcp.json")).expect("removed");
    for (text, problem) in [
        ("{\"mcpServers\": {},}", "at line 1 column 19"),
        ("no JSON", "at line 1 column 2"),
        ("{\"servers\": {}}", "has no member `mcpServers`"),
    ] {
        place.write("app/.mcp.json", text);
        for args in [trust, list, show, &run_args] {
            check(args, &[&parts[..], &[problem]].concat());
        }
        let output = place.rath("app", list);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!printed.contains("rath config trust"), "what is wrong cannot be accepted: {printed}");
    }
}

/// The values of variables decide whether a server is used: what is accepted was shown, whole, with its command.
#[test]
fn no_command_is_hidden_where_a_file_is_accepted() {
    let empty = format!("${{{}:-}}", "A".repeat(120)).repeat(300);
    for server in [
        json!({"command": "sh", "args": ["-c", "touch started.txt; cat"], "cwd": "${NO_SUCH:-a/b}/../.."}),
        json!({"command": "sh", "args": ["-c", empty + "touch started.txt; cat"]}),
        json!({"command": "sh", "args": ["-c", "touch started.txt; cat"], "type": "sse"}),
        json!({"command": "sh", "args": ["-c", "touch started.txt; cat"], "disabled": true}),
    ] {
        let place = Place::new(DONE);
        place.write("app/.mcp.json", &json!({"mcpServers": {"one": server}}).to_string());
        for args in [&["config", "trust"][..], &["mcp", "ls", "--no-start"], &["config"]] {
            let output = place.rath("app", args);
            let printed =
                String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            assert!(printed.contains("runs sh -c '") && printed.contains("touch started.txt; cat'"), "{printed}");
        }
    }
}

/// A server runs in walls, without the files that a rule hides.
#[test]
fn a_server_does_not_see_what_a_rule_hides() {
    let place = Place::new(DONE);
    place.write("app/hidden.txt", "a secret\n");
    place.write("app/shown.txt", "no secret\n");
    place.write("home/.config/rath/config.toml", "[permissions]\ndeny = [\"read hidden.txt\"]\n");
    let program = crate::program_path().display().to_string();
    let command =
        format!("cat hidden.txt shown.txt > started.txt 2>/dev/null; touch ../outside.txt; exec '{program}' mcp serve");
    let server = json!({"mcpServers": {"past": {"command": "sh", "args": ["-c", command]}}});
    place.write("home/.config/rath/mcp.json", &server.to_string());
    let (seen, tools) = run(&place, "app", &[]);
    assert_eq!((seen.as_str(), tools.len()), ("no secret\n", 8));
    assert!(!place.path("outside.txt").exists(), "it writes only in the directory");
}
