//! The findings of `rath doctor`, which changes nothing.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::program_path;

/// Returns what `rath doctor --json` says by part, and the exit code.
fn doctor(folder: &Path, environment: &[(&str, &str)]) -> (BTreeMap<String, Value>, i32) {
    let mut command = rath_test_support::program(program_path());
    command.args(["doctor", "--json"]).envs(environment.iter().copied()).current_dir(folder);
    let output = command.output().expect("rath runs");
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let findings = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let by_part = findings.map(|finding| (finding["part"].as_str().expect("a part").to_owned(), finding));
    (by_part.collect(), output.status.code().expect("an exit code"))
}

/// Returns the names and contents of all files below a directory.
fn files(directory: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let (mut files, mut rest) = (BTreeMap::new(), vec![directory.to_owned()]);
    while let Some(directory) = rest.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => rest.push(path.clone()),
                false => _ = files.insert(path.clone(), std::fs::read(&path).expect("read")),
            }
        }
    }
    files
}

#[test]
fn doctor_says_what_is_wrong_and_changes_nothing() {
    let folder = rath_test_support::temp_dir();
    let data = rath_test_support::temp_dir();
    let config = data.path().join("config");
    let work = folder.path();
    let [data_home, config_home] = [data.path(), &config].map(|path| path.to_str().expect("UTF-8"));
    let environment = [
        ("XDG_DATA_HOME", data_home),
        ("XDG_CONFIG_HOME", config_home),
        ("OPENAI_API_KEY", "sk-not-to-be-shown"),
        ("DOCKER_HOST", "unix:///nonexistent/engine.sock"),
    ];
    let state = |findings: &BTreeMap<String, Value>, part: &str| findings[part]["state"].as_str().map(str::to_owned);
    let (findings, _) = doctor(work, &environment);
    let parts =
        ["namespaces", "Landlock", "limits", "forks", "containers", "git", "key", "configuration", "MCP servers"];
    for part in parts.into_iter().chain(["keys", "store", "temporary files", "terminal"]) {
        assert!(findings.contains_key(part), "{part} is missing");
    }
    assert_eq!(findings["keys"]["text"], "OPENAI_API_KEY");
    assert_eq!(state(&findings, "containers").as_deref(), Some("missing"));
    assert_eq!(state(&findings, "key").as_deref(), Some("ok"));
    for finding in findings.values().filter(|finding| finding["state"] != "ok") {
        assert!(finding["hint"].is_string(), "{finding} says what to do");
    }
    assert_eq!((files(work).len(), files(data.path()).len()), (0, 0), "nothing is made, and no key");
    // A session of this user, then what can be wrong.
    std::fs::write(work.join("s.jsonl"), "{\"text\": \"Hello.\"}\n").expect("written");
    let run = |args: &[&str]| {
        let mut command = rath_test_support::program(program_path());
        let output = command.args(args).envs(environment).current_dir(work).output().expect("rath runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["run", "Say hello", "--sandbox", "none", "--model", "script:s.jsonl"]);
    std::fs::write(work.join("rath.toml"), "[permissions]\nallow = [\"command ls\"]\n").expect("written");
    let before = (files(work), files(data.path()));
    let (findings, _) = doctor(work, &environment);
    assert_eq!(findings["store"]["text"], "1 session");
    assert_eq!(state(&findings, "configuration").as_deref(), Some("missing"));
    assert!(findings["configuration"]["hint"].as_str().expect("a hint").contains("`rath config trust`"));
    assert_eq!((files(work), files(data.path())), before, "nothing is changed");
    for (file, part) in [(work.join("rath.toml"), "configuration"), (data.path().join("rath/user.key"), "key")] {
        let content = std::fs::read(&file).expect("read");
        std::fs::write(&file, "[permissions\n").expect("written");
        let (findings, code) = doctor(work, &environment);
        assert_eq!((state(&findings, part).as_deref(), code), (Some("wrong"), 1), "{part}: {}", findings[part]);
        std::fs::write(&file, content).expect("written");
    }
    std::fs::write(work.join(".rath/rath.db"), "no database").expect("written");
    let (findings, code) = doctor(work, &environment);
    assert_eq!((state(&findings, "store").as_deref(), code), (Some("wrong"), 1), "{}", findings["store"]);
    // As text: one line for each part, with a hint below it unless it is fine.
    let mut command = rath_test_support::program(program_path());
    let output = command.arg("doctor").envs(environment).current_dir(work).output().expect("rath runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(!text.contains("sk-not-to-be-shown"), "{text}");
    for line in text.lines() {
        let is_part = ["ok       ", "missing  ", "wrong    "].iter().any(|state| line.starts_with(state));
        assert!(is_part || line.starts_with("         "), "{text}");
    }
}

/// A part that `rath doctor` calls ok works, and one that it calls wrong ends a run.
#[test]
fn doctor_calls_nothing_ok_that_a_run_fails_for() {
    struct Row {
        /// A file, and its content.
        file: (&'static str, &'static str),
        variable: (&'static str, &'static str),
        part: &'static str,
        state: &'static str,
        options: &'static [&'static str],
    }
    let row = |file, variable, part, state, options| Row { file, variable, part, state, options };
    const NONE: (&str, &str) = ("", "");
    const CONFIG: &str = "home/.config/rath/config.toml";
    let rows = [
        row(NONE, ("RATH_MODE", "wild"), "configuration", "wrong", &[]),
        row(NONE, ("RATH_BUDGET", "lots"), "configuration", "wrong", &[]),
        row(NONE, ("RATH_CONTEXT", "maybe"), "configuration", "wrong", &[]),
        row(NONE, ("RATH_MODEL", "nope"), "model", "wrong", &[]),
        row(NONE, ("RATH_MODEL", "script:none.jsonl"), "model", "wrong", &[]),
        row(NONE, ("RATH_MODEL", "openai:gpt-5"), "model", "wrong", &[]),
        row(NONE, ("RATH_MODEL", ""), "model", "missing", &[]),
        row(NONE, ("RATH_SANDBOX", "dcoker:x"), "directory", "wrong", &[]),
        row(NONE, ("RATH_SANDBOX", "isolated:none"), "directory", "wrong", &[]),
        row(NONE, ("RATH_MEMORY", "notes"), "memory", "wrong", &[]),
        row(NONE, ("RATH_MEMORY", "local:notes"), "memory", "wrong", &[]),
        row(("app/.rath/memory/notes.db", "no notes"), ("RATH_MEMORY", "local:.rath/memory"), "memory", "wrong", &[]),
        row((CONFIG, "modle = \"x\"\n"), NONE, "configuration", "wrong", &[]),
        row((CONFIG, "[gc]\nolder = 3\n"), NONE, "configuration", "wrong", &[]),
        row((CONFIG, "model = \"fast\"\n"), ("RATH_MODEL", ""), "model", "wrong", &[]),
        row(
            (
                CONFIG,
                "[models.fast]\nmodel = \"openai:m\"\nbase_url = \"http://127.0.0.1:1/\"\nkey = \"NO_SUCH_KEY\"\n",
            ),
            NONE,
            "models",
            "missing",
            &["--model", "fast"],
        ),
        row(
            (CONFIG, "[agents.critic]\nmodel = \"nope\"\n"),
            ("RATH_MODEL", ""),
            "agents",
            "missing",
            &["--agent", "critic"],
        ),
        row(("app/rath.toml", "model = \"openai:gpt-5\"\n"), ("RATH_MODEL", ""), "configuration", "missing", &[]),
        row(("app/rath.toml", "[models.x]\n"), NONE, "configuration", "wrong", &[]),
        row(("home/.config/rath/mcp.json", "{"), NONE, "MCP servers", "wrong", &[]),
        row(("app/.rath/rath.db", "no database"), NONE, "store", "wrong", &[]),
    ];
    for row in rows {
        let place = crate::permissions::Place::new("{\"text\": \"Done.\"}\n");
        let script = format!("script:{}", place.path("script.jsonl").display());
        if !row.file.0.is_empty() {
            place.write(row.file.0, row.file.1);
        }
        let run = |args: &[&str]| {
            let mut command = place.command("app", args);
            for name in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"] {
                command.env_remove(name);
            }
            command.env("RATH_MODEL", &script);
            if !row.variable.0.is_empty() {
                command.env(row.variable.0, row.variable.1);
            }
            command.output().expect("rath runs")
        };
        let name = format!("{:?} {:?}", row.file, row.variable);
        let found = run(&["doctor", "--json"]);
        let lines = String::from_utf8(found.stdout).expect("UTF-8");
        let findings: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let finding = findings.iter().rfind(|finding| finding["part"] == row.part).expect("a part");
        assert_eq!(finding["state"], row.state, "{name}: {finding}");
        let is_wrong = findings.iter().any(|finding| finding["state"] == "wrong");
        assert_eq!(found.status.code(), Some(i32::from(is_wrong)), "{name}: {lines}");
        let output = run(&[&["run", "Go."], row.options].concat());
        assert!(!output.status.success(), "{name}: a run works\n{lines}");
    }
}

#[test]
fn doctor_finds_the_store_above() {
    let place = crate::permissions::Place::new("{\"text\": \"Done.\"}\n");
    assert!(place.run_in("app", &["--sandbox", "none"]).status.success());
    let store = |directory: &str| {
        let output = place.rath(directory, &["doctor", "--json"]);
        let lines = String::from_utf8(output.stdout).expect("UTF-8");
        let line = lines.lines().find(|line| line.contains("\"part\":\"store\"")).expect("a store").to_owned();
        serde_json::from_str::<Value>(&line).expect("JSON")["text"].clone()
    };
    assert_eq!((store("app"), store("app/below")), ("1 session".into(), "1 session".into()));
}
