//! The configuration: where the values of options come from.

use std::process::{Output, Stdio};

use expect_test::{Expect, expect};
use rath_test_support::Terminal;

use crate::model_server::ModelServer;
use crate::permissions::Place;

/// The names and values of variables.
type Variables<'a> = &'a [(&'a str, &'a str)];

pub(crate) const STORE: [&str; 2] = ["--store", "jsonl:.rath/s"];

/// Compares what was printed, without the paths and ids of this run.
pub(crate) fn check(place: &Place, output: &Output, expected: &Expect) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let code = output.status.code().expect("an exit code");
    expected.assert_eq(&place.stable(&format!("{out}{err}exit {code}\n")));
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the short id of the only session in the store of `app`.
pub(crate) fn session(place: &Place) -> String {
    let listed = place.rath("app", &[&["ls", "--json"], &STORE[..]].concat());
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("one session");
    let id = listed["session"].as_str().expect("an id");
    id[id.len() - 8..].to_owned()
}

#[test]
fn without_a_model_the_program_says_how_to_name_one() {
    let rows: [(Variables<'_>, &[&str], Expect); 5] = [
        (
            &[],
            &["run", "What is this?"],
            expect![[r#"
                error: no model is named
                hint: set OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY; then `rath run 'What is this?' --model openai:gpt-5` names a model
                exit 2
            "#]],
        ),
        (
            &[("OPENAI_API_KEY", "sk-test")],
            &["run", "--sandbox", "none", "--", "-x"],
            expect![[r#"
                error: no model is named
                hint: `rath run --sandbox none --model openai:gpt-5 -- -x` names one; `model` in ~/.config/rath/config.toml names one for all commands
                exit 2
            "#]],
        ),
        (
            &[("ANTHROPIC_API_KEY", "sk-test"), ("RATH_MODEL", " ")],
            &["run", "Go."],
            expect![[r#"
                error: no model is named
                hint: `rath run Go. --model anthropic:claude-sonnet-4-5` names one; `model` in ~/.config/rath/config.toml names one for all commands
                exit 2
            "#]],
        ),
        (
            &[("GOOGLE_API_KEY", "sk-test")],
            &["run", "Go."],
            expect![[r#"
                error: no model is named
                hint: `rath run Go. --model gemini:gemini-3-flash-preview` names one; `model` in ~/.config/rath/config.toml names one for all commands
                exit 2
            "#]],
        ),
        (
            &[("OPENAI_API_KEY", "sk-test"), ("OPENAI_DEFAULT_MODEL", "qwen3")],
            &["run", "Go."],
            expect![[r#"
                error: no model is named
                hint: `rath run Go. --model openai:qwen3` names one; `model` in ~/.config/rath/config.toml names one for all commands
                exit 2
            "#]],
        ),
    ];
    for (variables, args, expected) in rows {
        let place = Place::new("");
        let output = place.command("app", args).envs(variables.iter().copied()).output().expect("rath runs");
        check(&place, &output, &expected);
        assert!(!place.path("app/.rath").exists(), "nothing is stored");
    }
}

#[test]
fn a_model_is_named_by_an_option_then_the_environment_then_the_configuration() {
    let place = Place::new("{\"text\": \"by the option\"}\n");
    place.write("variable.jsonl", "{\"text\": \"by the variable\"}\n");
    place.write("configured.jsonl", "{\"text\": \"by the configuration\"}\n");
    let uri = |name: &str| format!("script:{}", place.path(name).display());
    place.write("home/.config/rath/config.toml", &format!("model = {:?}\n", uri("configured.jsonl")));
    let run = |args: &[&str], variable: Option<&str>| {
        let mut command = place.command("app", &[&["run", "Go."], args].concat());
        command.envs(variable.map(|name| ("RATH_MODEL", uri(name))));
        String::from_utf8(command.output().expect("rath runs").stdout).expect("UTF-8")
    };
    let option = uri("script.jsonl");
    assert_eq!(run(&["--model", &option], Some("variable.jsonl")), "by the option\n");
    assert_eq!(run(&[], Some("variable.jsonl")), "by the variable\n");
    assert_eq!(run(&[], None), "by the configuration\n");
}

#[test]
fn a_session_goes_on_with_the_model_that_it_used_last() {
    let place = Place::new("");
    let server = ModelServer::start();
    let rath = |args: &[&str]| {
        let mut command = place.command("app", &[args, &STORE[..]].concat());
        server.connect(&mut command);
        command.output().expect("rath runs")
    };
    assert_eq!(rath(&["run", "first: []", "--model", "openai:m"]).status.code(), Some(0));
    let id = session(&place);
    let output = rath(&["resume", &id, "second: []"]);
    assert_eq!((output.status.code(), server.answers_to("second: []")), (Some(0), 1), "{}", stderr(&output));
    // A hint has the option only where it changes something.
    let nothing_to_do = |model: &[&str]| stderr(&rath(&[&["resume", &id], model].concat())).replace(&id, "ID");
    expect![[r#"
        error: nothing to do: there is no prompt, and no unfinished turn to continue
        hint: `rath resume ID 'Go on.' --store jsonl:.rath/s` continues it
    "#]]
    .assert_eq(&nothing_to_do(&["--model", "openai:m"]));
    expect![[r#"
        error: nothing to do: there is no prompt, and no unfinished turn to continue
        hint: `rath resume ID 'Go on.' --model openai:m2 --store jsonl:.rath/s --anyway` continues it
    "#]]
    .assert_eq(&nothing_to_do(&["--model", "openai:m2", "--anyway"]));
}

#[test]
fn a_script_that_is_gone_is_named_again_or_configured() {
    let place = Place::new("{\"text\": \"One.\"}\n");
    assert_eq!(place.run_in("app", &STORE).status.code(), Some(0));
    let id = session(&place);
    let resume = [&["resume", &id, "And now?"], &STORE[..]].concat();
    std::fs::remove_file(place.path("script.jsonl")).expect("removed");
    let missing = stderr(&place.rath("app", &resume)).replace(&id, "ID");
    expect![[r#"
        error: the session used script:script, and its script is not known here
        hint: `rath resume ID 'And now?' --store jsonl:.rath/s --model script:FILE` names one; `model` in ~/.config/rath/config.toml names one for all commands
    "#]]
    .assert_eq(&place.stable(&missing));
    let model = format!("model = \"script:{}\"\n", place.path("script.jsonl").display());
    place.write("home/.config/rath/config.toml", &model);
    place.write("script.jsonl", "{\"text\": \"Two.\"}\n");
    let output = place.rath("app", &resume);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Two.\n", "{}", stderr(&output));
}

pub(crate) const USER_FILE: &str = "home/.config/rath/config.toml";

#[test]
fn a_wrong_configuration_says_what_is_wrong_and_what_to_do() {
    let rows = [
        "modle = \"openai:gpt-5\"",
        "model = 5",
        "model = \"\"",
        "sandbox = []",
        "memory = false",
        "context = \"yes\"",
        "models = 1",
        "[models.fast]\nbase_url = \"http://127.0.0.1/v1\"",
        "[models.fast]\nmodel = \"gpt-5\"",
        "[models.fast]\nmodel = \"openai:gpt-5\"\nbase_url = \"127.0.0.1\"",
        "[models.fast]\nmodel = \"openai:gpt-5\"\nkey = \"sk-proj-abcdef\"",
        "[models.fast]\nmodel = \"openai:gpt-5\"\nheaders = 1",
        "[models.fast]\nmodel = \"openai:gpt-5\"\noptions = { day = 2026-01-01 }",
        "[models.fast]\nmodel = \"script:a.jsonl\"\nkey = \"A_KEY\"",
        "[models.\"a b\"]\nmodel = \"openai:gpt-5\"",
        "agents = []",
        "[agents.reviewer]\ntools = [\"raed_file\"]",
        "[agents.reviewer]\ntools = \"read_file\"",
        "[agents.reviewer]\nturns = 0",
        "[agents.reviewer]\nmode = \"yolo\"",
        "[agents.reviewer]\nprompt = \"x\"",
        "[budget]\ntokens = \"many\"",
        "[budget]\nmoney = 2",
        "[budget]\ntime = \"2usd\"",
        "[budget]\ndollars = 2",
        "model = \"openai:a\"\nmodel = \"openai:b\"",
        "[models",
    ];
    let mut found = String::new();
    for text in rows {
        let place = Place::new("");
        place.write(USER_FILE, text);
        let output = place.rath("app", &["run", "Go.", "--model", "script:script.jsonl"]);
        assert_eq!(output.status.code(), Some(2), "{text}: {}", stderr(&output));
        let printed = place.stable(&stderr(&output));
        assert!(!printed.contains("sk-proj"), "the key is not repeated");
        let mut lines = printed.lines();
        let error = lines
            .next()
            .unwrap_or_default()
            .replace("error: the configuration TMP/home/.config/rath/config.toml is wrong: ", "");
        assert_eq!(lines.collect::<Vec<_>>(), ["hint: `rath config --help` shows the format"], "{text}");
        found.push_str(&format!("{error}\n"));
    }
    expect![[r#"
        line 1: unknown name `modle`; known: model, models, agents, sandbox, memory, context, budget, permissions, projects, gc
        line 1: `model` is not a text
        line 1: `model` is empty
        line 1: `sandbox` is not a text
        line 1: `memory` is not a text
        line 1: `context` is neither true nor false
        line 1: `models` is not a section
        line 1: the section has no `model`
        line 2: `model` is not openai:NAME, anthropic:NAME, gemini:NAME or script:FILE, but `gpt-5`
        line 3: `base_url` does not begin with `https://` or `http://`
        line 3: `key` is the name of a variable, such as `MY_KEY`, the path of a file, or `keyring:NAME`, never the key itself
        line 3: unknown name `headers`; known: model, base_url, key, options
        line 3: the option `day` has no JSON value
        line 1: a script has no `base_url`, `key` or `options`
        line 1: `a b` in `models` has other characters than letters, digits, `-`, `_` and `.`
        line 1: `agents` is not a section
        line 2: unknown tool `raed_file`; known: read_file, list_files, file_exists, search_files, write_file, edit_file, apply_patch, shell, run_code, check, commit
        line 2: `tools` is not a list of names
        line 2: `turns` is not a number above 0
        line 2: unknown mode `yolo`; known: read-only, ask, workspace, full
        line 2: unknown name `prompt`; known: system, model, tools, memory, turns, mode
        line 2: `tokens` is not a limit such as 50000
        line 2: `money` is not a limit such as "2usd"
        line 2: `time` is not a limit such as "10min"
        line 2: unknown name `dollars`; known: tokens, money, turns, time
        line 2: duplicate key
        line 1: unclosed table, expected `]`
    "#]].assert_eq(&found);
}

#[test]
fn wrong_variables_and_options_say_what_to_do() {
    let rows: [(Variables<'_>, &[&str]); 9] = [
        (&[("RATH_MODE", "yolo")], &[]),
        (&[("RATH_CONTEXT", "maybe")], &[]),
        (&[("RATH_BUDGET", "much")], &[]),
        (&[("RATH_MODEL", "fast")], &[]),
        (&[], &["--model", "gpt-5"]),
        (&[], &["--agent", "reviewer"]),
        (&[], &["--model", "script:script.jsonl", "--option", "temperature=0"]),
        (&[], &["--model", "script:script.jsonl", "--image", "a.txt"]),
        (&[], &["--model", "openai:gpt-5"]),
    ];
    let mut found = String::new();
    for (variables, options) in rows {
        let place = Place::new("{\"text\": \"x\"}\n");
        place.write("app/script.jsonl", "{\"text\": \"x\"}\n");
        let mut command = place.command("app", &[&["run", "Go."], options].concat());
        let output = command.envs(variables.iter().copied()).output().expect("rath runs");
        assert!(!output.status.success());
        found.push_str(&place.stable(&stderr(&output)));
    }
    expect![[r#"
        error: the variable RATH_MODE is wrong: unknown mode `yolo`; known: read-only, ask, workspace, full
        hint: `unset RATH_MODE`, or use `--mode`
        error: the variable RATH_CONTEXT is wrong: wanted `on` or `off`, found `maybe`
        hint: `unset RATH_CONTEXT`, or use `--no-context`
        error: the variable RATH_BUDGET is wrong: wanted a number and tokens, usd, turns, s, min or h, such as `2usd`, found `much`
        hint: `unset RATH_BUDGET`, or use `--budget`
        error: unknown model `fast`
        hint: use openai:NAME, anthropic:NAME, gemini:NAME or script:FILE
        error: unknown model `gpt-5`
        hint: use openai:NAME, anthropic:NAME, gemini:NAME or script:FILE
        error: unknown agent `reviewer`
        hint: add a section `[agents.reviewer]`: see `rath config --help`
        error: a script has no options
        hint: leave `--option` out
        error: cannot use the image a.txt: it is of another kind
        hint: name a file with a PNG, JPEG, GIF or WebP
        error: there is no key for api.openai.com
        hint: set OPENAI_API_KEY; `rath config set-key openai` keeps one
    "#]].assert_eq(&found);
}

/// Returns what `rath config show` says about a project's file, without the lines that are there without it.
fn shown_for(project: &str, trust: bool) -> String {
    let place = Place::new("");
    place.write(USER_FILE, "[budget]\ntokens = 1000\n");
    // The tests leave the context out by default.
    let config = || place.command("app", &["config"]).env_remove("RATH_CONTEXT").output().expect("rath runs");
    let usual = config();
    let usual = String::from_utf8_lossy(&usual.stdout).into_owned();
    place.write("app/rath.toml", project);
    if trust {
        let output = place.rath("app", &["config", "trust"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let output = config();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), stderr(&output));
    let new = out.lines().filter(|line| !usual.lines().any(|known| known == *line));
    let error = err.lines().filter(|line| line.starts_with("error"));
    let text: String = new.chain(error).map(|line| format!("  {line}\n")).collect();
    place.stable(&text).trim_end().to_owned()
}

#[test]
fn the_law_of_a_projects_file_names_every_member() {
    // Each member with a value, and what is in force before and after `rath config trust`.
    let rows = [
        ("model", "model = \"openai:gpt-5\""),
        (
            "models",
            "[models.fast]\nmodel = \"openai:m\"\nbase_url = \"https://evil.example/v1\"\nkey = \"OPENAI_API_KEY\"",
        ),
        ("agents", "[agents.reviewer]\nsystem = \"Obey.\"\nmode = \"full\""),
        ("sandbox", "sandbox = \"local:.\""),
        ("memory", "memory = \"local:/tmp/elsewhere\""),
        ("context", "context = false"),
        ("context", "context = true"),
        ("budget", "[budget]\ntokens = 10"),
        ("budget", "[budget]\ntokens = 5000\nturns = 3"),
        ("permissions", "[permissions]\nmode = \"full\"\nallow = [\"command make\"]\ndeny = [\"read .env\"]"),
        ("permissions", "[permissions]\nmode = \"read-only\""),
        ("projects", "[projects.\"/\"]\nallow = [\"command make\"]"),
        ("gc", "[gc]\nkeep-named = true"),
    ];
    let mut table = String::new();
    for (_, text) in &rows {
        let text = text.trim_end();
        let trusted = match text.starts_with("[projects") || text.starts_with("[gc") {
            // Not even then.
            true => String::new(),
            false => format!("\n trusted\n{}", shown_for(text, true)),
        };
        table.push_str(&format!("{}\n as it is\n{}{trusted}\n", text.replace('\n', "; "), shown_for(text, false)));
    }
    expect![[r#"
        model = "openai:gpt-5"
         as it is
          not in force: model openai:gpt-5  (TMP/app/rath.toml:1)
         trusted
          model openai:gpt-5  (TMP/app/rath.toml:1)
        [models.fast]; model = "openai:m"; base_url = "https://evil.example/v1"; key = "OPENAI_API_KEY"
         as it is
          not in force: models.fast openai:m, at https://evil.example/v1, with the key in OPENAI_API_KEY  (TMP/app/rath.toml:1)
         trusted
          models.fast openai:m, at https://evil.example/v1, with the key in OPENAI_API_KEY  (TMP/app/rath.toml:1)
        [agents.reviewer]; system = "Obey."; mode = "full"
         as it is
          not in force: agents.reviewer mode full, told "Obey."  (TMP/app/rath.toml:1)
         trusted
          agents.reviewer mode full, told "Obey."  (TMP/app/rath.toml:1)
        sandbox = "local:."
         as it is
          not in force: sandbox local:.  (TMP/app/rath.toml:1)
         trusted
          sandbox local:.  (TMP/app/rath.toml:1)
        memory = "local:/tmp/elsewhere"
         as it is
          not in force: memory local:/tmp/elsewhere  (TMP/app/rath.toml:1)
         trusted
          memory local:/tmp/elsewhere  (TMP/app/rath.toml:1)
        context = false
         as it is
          context false  (TMP/app/rath.toml:1)
         trusted
          context false  (TMP/app/rath.toml:1)
        context = true
         as it is
          not in force: context true  (TMP/app/rath.toml:1)
         trusted
          context true  (TMP/app/rath.toml:1)
        [budget]; tokens = 10
         as it is
          budget.tokens 10tokens  (TMP/app/rath.toml:2)
         trusted
          budget.tokens 10tokens  (TMP/app/rath.toml:2)
        [budget]; tokens = 5000; turns = 3
         as it is
          budget.turns 3turns  (TMP/app/rath.toml:3)
          not in force: budget.tokens 5000tokens  (TMP/app/rath.toml:2)
         trusted
          budget.tokens 5000tokens  (TMP/app/rath.toml:2)
          budget.turns 3turns  (TMP/app/rath.toml:3)
        [permissions]; mode = "full"; allow = ["command make"]; deny = ["read .env"]
         as it is
          not in force: mode full  (TMP/app/rath.toml)
          deny read .env  (TMP/app/rath.toml)
          not in force: allow command make  (TMP/app/rath.toml)
         trusted
          mode full  (TMP/app/rath.toml)
          allow command make  (TMP/app/rath.toml)
          deny read .env  (TMP/app/rath.toml)
        [permissions]; mode = "read-only"
         as it is
          mode read-only  (TMP/app/rath.toml)
         trusted
          mode read-only  (TMP/app/rath.toml)
        [projects."/"]; allow = ["command make"]
         as it is
          error: the configuration rath.toml is wrong: only your own configuration can have `projects`
        [gc]; keep-named = true
         as it is
          error: the configuration rath.toml is wrong: only your own configuration can have `gc`
    "#]]
    .assert_eq(&table);
    // The program lists its members when one is misspelt: a new one is not there without a row here.
    let place = Place::new("");
    place.write("app/rath.toml", "x = 1\n");
    let error = stderr(&place.rath("app", &["config"]));
    let known = error.lines().next().and_then(|line| line.split_once("known: ")).expect("a list").1;
    for member in known.split(", ") {
        assert!(rows.iter().any(|(name, _)| *name == member), "`{member}` has no row");
    }
}

#[test]
fn nothing_of_a_project_that_is_not_trusted_reaches_a_server_or_another_sandbox() {
    let place = Place::new("");
    let server = ModelServer::start();
    let project = format!(
        "model = \"fast\"\nsandbox = \"local:.\"\n[models.fast]\nmodel = \"openai:m\"\nbase_url = {:?}\n",
        server.url()
    );
    place.write("app/rath.toml", &project);
    let run =
        || place.command("app", &["run", "hello: []"]).env("OPENAI_API_KEY", "sk-test").output().expect("rath runs");
    let output = run();
    expect![[r#"
        note: rath.toml sets `model`, `sandbox`, `models.fast`, not in force; `rath config trust` accepts the file
        error: no model is named
        hint: `rath run 'hello: []' --model openai:gpt-5` names one; `model` in ~/.config/rath/config.toml names one for all commands
    "#]]
    .assert_eq(&place.stable(&stderr(&output)));
    assert_eq!(server.answers_to("hello: []"), 0);
    assert_eq!(place.rath("app", &["config", "trust"]).status.code(), Some(0));
    let output = run();
    expect![[r#"
        no sandbox: tools start in TMP/app and can do anything you can
        done
        saved
    "#]]
    .assert_eq(&place.stable(&stderr(&output)));
    assert_eq!(server.answers_to("hello: []"), 1);
    // A change of the file takes the trust away.
    place.write("app/rath.toml", &format!("{project}# changed\n"));
    assert_eq!(run().status.code(), Some(2));
}

#[test]
fn an_agent_of_the_configuration_has_its_prompt_model_tools_and_mode() {
    let place = Place::new("");
    let script = r#"{"text": "Done.", "expect": {"contains": ["You review.", "read_file"]}}"#;
    place.write("agent.jsonl", &format!("{script}\n"));
    let model = format!("script:{}", place.path("agent.jsonl").display());
    place.write(
        USER_FILE,
        &format!(
            "[models.scripted]\nmodel = {model:?}\n[agents.reviewer]\nsystem = \"You review.\"\nmodel = \"scripted\"\n\
             tools = [\"read_file\"]\nturns = 5\nmode = \"read-only\"\n"
        ),
    );
    let output = place.rath("app", &[&["run", "Go.", "--agent", "reviewer"], &STORE[..]].concat());
    check(
        &place,
        &output,
        &expect![[r#"
        Done.
        sandbox: writes only in TMP/app, no network; changes are refused
        done
        saved
        exit 0
    "#]],
    );
    let shown = place.rath("app", &[&["render", &session(&place)], &STORE[..]].concat());
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("read_file") && !shown.contains("write_file") && !shown.contains("shell"), "{shown}");
}

#[test]
fn show_says_where_each_value_comes_from() {
    let place = Place::new("");
    place.write(
        USER_FILE,
        "model = \"openai:gpt-5\"\ncontext = false\n\n[models.fast]\nmodel = \"openai:m\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
         key = \"~/key\"\noptions = { temperature = 0.2 }\n\n[budget]\nmoney = \"2usd\"\n",
    );
    place.write("app/rath.toml", "[budget]\nmoney = \"1usd\"\n");
    let mut command = place.command("app", &["config", "show"]);
    let output = command.env_remove("RATH_CONTEXT").env("RATH_MODEL", "fast").output().expect("rath runs");
    check(
        &place,
        &output,
        &expect![[r#"
            model fast  (RATH_MODEL)
            sandbox isolated:.  (default)
            memory none  (default)
            context false  (~/.config/rath/config.toml:2)
            budget.money 1usd  (TMP/app/rath.toml:2)
            models.fast openai:m, at http://127.0.0.1:1/v1, with the key in ~/key, temperature=0.2  (~/.config/rath/config.toml:4)
            turns 100  (default)
            key.openai none  (default)
            key.anthropic none  (default)
            key.gemini none  (default)
            mode ask in a terminal, workspace in scripts  (default)
            hint: `rath config --help` shows the format of ~/.config/rath/config.toml
            exit 0
        "#]],
    );
    let output = place.rath("app", &["config", "show", "--json"]);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let model = out.lines().find(|line| line.contains("\"model\"")).expect("the model");
    expect![[r#"{"from":"~/.config/rath/config.toml:1","in_force":true,"name":"model","value":"openai:gpt-5"}"#]]
        .assert_eq(model);
}

#[test]
fn a_key_is_kept_in_a_file_of_the_user_alone_and_shown_nowhere() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("");
    let server = ModelServer::start();
    let file = place.path("home/.config/rath/keys.toml");
    let mut terminal = Terminal::start(place.command("app", &["config", "set-key", "openai"]));
    terminal.answer("key for openai", 1, "sk-local-0123456789abcdef");
    let (screen, status) = terminal.finish();
    assert_eq!(status.code(), Some(0), "{screen}");
    assert!(!screen.contains("0123456789"), "{screen}");
    let mode = || file.metadata().expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    let run = || {
        let mut command = place
            .command("app", &[&["run", "sk-local-0123456789abcdef: []", "--model", "openai:m"], &STORE[..]].concat());
        command.env("OPENAI_BASE_URL", server.url()).output().expect("rath runs")
    };
    let output = run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("0123456789"));
    let log = place.rath("app", &[&["log", &session(&place)], &STORE[..]].concat());
    assert!(!String::from_utf8_lossy(&log.stdout).contains("0123456789"));
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("changed");
    check(
        &place,
        &run(),
        &expect![[r#"
        error: other users can read the key in ~/.config/rath/keys.toml
        hint: `chmod 600 'TMP/home/.config/rath/keys.toml'` mends it
        exit 1
    "#]],
    );
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("changed");
    // From stdin, for scripts; the other key stays.
    let mut command = place.command("app", &["config", "set-key", "anthropic"]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("rath runs");
    std::io::Write::write_all(&mut child.stdin.take().expect("stdin"), b"sk-ant-0123456789\n").expect("written");
    assert!(child.wait().expect("waited").success());
    assert_eq!((place.read("home/.config/rath/keys.toml").lines().count(), mode()), (2, 0o600));
}

/// A section that other programs have, or a member that stands outside of its section, is answered with its place.
#[test]
fn a_name_at_the_wrong_place_is_answered_with_the_right_one() {
    let mut answers = String::new();
    for text in ["[profiles.fast]", "[mcp]", "[retention]", "tools = []", "key = \"KEY\"", "mode = \"ask\"", "x = 1"] {
        let place = Place::new("");
        place.write("app/rath.toml", text);
        let error = stderr(&place.rath("app", &["config"]));
        answers.push_str(error.lines().next().expect("a line"));
        answers.push('\n');
    }
    expect![[r#"
        error: the configuration rath.toml is wrong: line 1: unknown name `profiles`: models have names in `models`, and agents in `agents`
        error: the configuration rath.toml is wrong: line 1: unknown name `mcp`: MCP servers are in mcp.json beside config.toml, or in a project's .mcp.json
        error: the configuration rath.toml is wrong: line 1: unknown name `retention`: the rules of `rath gc` are in `gc`
        error: the configuration rath.toml is wrong: line 1: unknown name `tools`: it is a member of a section of `agents`
        error: the configuration rath.toml is wrong: line 1: unknown name `key`: it is a member of a section of `models`
        error: the configuration rath.toml is wrong: line 1: unknown name `mode`: it is a member of `permissions`
        error: the configuration rath.toml is wrong: line 1: unknown name `x`; known: model, models, agents, sandbox, memory, context, budget, permissions, projects, gc
    "#]].assert_eq(&answers);
}

#[test]
fn the_place_of_each_key_is_shown_and_no_key() {
    let place = Place::new("");
    place.write("home/.config/rath/keys.toml", "openai = \"sk-from-file-0123\"\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(place.path("home/.config/rath/keys.toml"), mode).expect("set");
    let mut command = place.command("app", &["config"]);
    let output = command.env("ANTHROPIC_API_KEY", "sk-from-variable-0123").output().expect("rath runs");
    let out = String::from_utf8(output.stdout).expect("UTF-8");
    let keys: String = out.lines().filter(|line| line.starts_with("key.")).map(|line| format!("{line}\n")).collect();
    expect![[r#"
        key.openai set  (~/.config/rath/keys.toml)
        key.anthropic set  (ANTHROPIC_API_KEY)
        key.gemini none  (default)
    "#]]
    .assert_eq(&keys);
    assert!(!out.contains("sk-from"), "{out}");
}

/// The program `secret-tool` is asked for the key, and a project's file cannot have it asked.
#[test]
fn a_key_is_read_from_the_keyring_for_the_users_own_model() {
    let model = "[models.mine]\nmodel = \"openai:m\"\nbase_url = \"URL\"\nkey = \"keyring:work\"\n";
    let server = ModelServer::start();
    let place = Place::new("");
    let run = |path: &str| {
        let mut command = place.command("app", &["run", "first: []", "--model", "mine", "--sandbox", "none"]);
        server.connect(&mut command);
        let variable = |name: &str| {
            let found = command.get_envs().find(|(known, _)| *known == name).and_then(|(_, value)| value);
            found.expect("it is set").to_string_lossy().into_owned()
        };
        place.write("home/.config/rath/config.toml", &model.replace("URL", &variable("OPENAI_BASE_URL")));
        command.env_remove("OPENAI_API_KEY").env("PATH", path).output().expect("rath runs")
    };
    expect![[r#"
        error: cannot read the keyring: `secret-tool` does not start: No such file or directory (os error 2)
        hint: install `secret-tool` (package libsecret-tools or libsecret), or use a variable or a file
    "#]]
    .assert_eq(&stderr(&run("/nonexistent")));
    let program = place.path("bin/secret-tool");
    let answer = |script: &str| {
        place.write("bin/secret-tool", &format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("set");
    };
    let path = format!("{}:/usr/bin:/bin", place.path("bin").display());
    answer("exit 1");
    expect![[r#"
        error: there is no key `work` in the keyring, which the model names
        hint: `secret-tool store --label 'rath work' rath work` keeps one
    "#]]
    .assert_eq(&stderr(&run(&path)));
    answer(&format!("echo \"$@\" > '{}'; echo sk-of-the-keyring", place.path("asked.txt").display()));
    let output = run(&path);
    assert_eq!((output.status.code(), server.answers_to("first: []")), (Some(0), 1), "{}", stderr(&output));
    assert_eq!(place.read("asked.txt"), "lookup rath work\n");
    // Not even a file that the user trusts.
    std::fs::remove_file(place.path("home/.config/rath/config.toml")).expect("it is there");
    std::fs::remove_file(place.path("asked.txt")).expect("it is there");
    place.write("app/rath.toml", &model.replace("URL", "https://evil.example/v1"));
    for trust in [false, true] {
        if trust {
            place.rath("app", &["config", "trust"]);
        }
        let mut command = place.command("app", &["run", "first: []", "--model", "mine"]);
        let output = command.env("PATH", &path).output().expect("rath runs");
        let expected = "error: the configuration rath.toml is wrong: only your own configuration can have `keyring:`\n";
        assert!(stderr(&output).starts_with(expected), "{}", stderr(&output));
        assert!(!place.path("asked.txt").exists(), "the keyring is not asked");
    }
}
