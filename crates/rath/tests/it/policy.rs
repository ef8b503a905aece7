//! Policies: which calls are made, which wait for a person, and which are refused.

use std::path::Path;
use std::sync::{Arc, Mutex};

use expect_test::{Expect, expect};
use rath::chunk::{Call, ToolStarted};
use rath::policy::{Question, Reply, Rule};
use rath::prelude::*;
use rath::tool::builtin;

use crate::replay::mute;
use crate::support::{block_on, log, script};

/// Send money.
#[tool(approval)]
async fn pay(to: String) -> String {
    format!("paid {to}")
}

/// Look something up.
#[tool(read_only)]
async fn look() -> &'static str {
    "seen"
}

fn rule(text: &str) -> Rule {
    text.parse().expect("a rule")
}

/// Runs an agent with all tools, of which each call is one turn, and compares what happened.
fn check(policy: Policy, sandbox: impl Fn(&Path) -> Sandbox, calls: &[(&str, &str)], expected: Expect) {
    let folder = rath_test_support::temp_dir();
    std::fs::write(folder.path().join("secret.txt"), "secret").expect("a file");
    #[cfg(unix)]
    std::os::unix::fs::symlink("secret.txt", folder.path().join("harmless.txt")).expect("a link");
    let turns = calls
        .iter()
        .map(|(name, arguments)| format!(r#"{{"calls": [{{"name": "{name}", "arguments": {arguments}}}]}}"#));
    let provider = script(turns.chain([r#"{"text": "done"}"#.to_owned()]));
    let agent = |provider: &Provider| Agent::new("Go.", provider).tools(builtin::all()).tool(pay).tool(look);
    let session = Session::user("go").to(sandbox(folder.path())).under(policy);
    let (session, end) = match block_on(agent(&provider).run(session)) {
        Ok(session) => (session, String::new()),
        Err(error) => {
            let message = error.message();
            (error.into_session().expect("the session"), message)
        }
    };
    let kinds = ["tool started", "tool result", "approved", "denied"];
    let mut text: Vec<_> = log(&session)
        .lines()
        .filter(|line| kinds.iter().any(|kind| line.starts_with(kind)))
        .map(|line| line.trim_end_matches("  [agent]").to_owned())
        .collect();
    text.extend((!end.is_empty()).then_some(end));
    expected.assert_eq(&text.join("\n"));
    // A replay makes the recorded decisions, whatever the policy would be now.
    let report = block_on(session.replay(&agent(&mute()))).expect("a replay");
    assert!(report.is_exact(), "{report}");
}

fn isolated(path: &Path) -> Sandbox {
    Sandbox::isolated(path)
}

#[test]
fn each_mode_makes_asks_about_or_refuses_the_calls() {
    let calls = [
        ("read_file", r#"{"path": "secret.txt"}"#),
        ("shell", r#"{"command": "echo hello"}"#),
        ("pay", r#"{"to": "Ann"}"#),
    ];
    check(
        Policy::new(Mode::ReadOnly),
        isolated,
        &calls[..2],
        expect![[r#"
            tool started: call_1_1
            tool result: call_1_1 ok: secret
            denied: call_2_1: the rules of the user do not allow it (rule: mode read-only)
            tool result: call_2_1 denied: the rules of the user do not allow it (mode read-on…"#]],
    );
    check(
        Policy::new(Mode::Ask),
        isolated,
        &calls,
        expect![[r#"
            tool started: call_1_1
            tool result: call_1_1 ok: secret
            waiting for approval: `call_2_1` (shell)"#]],
    );
    check(
        Policy::new(Mode::Workspace),
        isolated,
        &calls,
        expect![[r#"
            tool started: call_1_1
            tool result: call_1_1 ok: secret
            tool started: call_2_1
            tool result: call_2_1 ok: hello
            waiting for approval: `call_3_1` (pay)"#]],
    );
    check(
        Policy::new(Mode::Workspace),
        |path| Sandbox::local(path),
        &calls,
        expect![[r#"
            tool started: call_1_1
            tool result: call_1_1 ok: secret
            waiting for approval: `call_2_1` (shell)"#]],
    );
    check(
        Policy::new(Mode::Full),
        |path| Sandbox::local(path),
        &calls,
        expect![[r#"
            tool started: call_1_1
            tool result: call_1_1 ok: secret
            tool started: call_2_1
            tool result: call_2_1 ok: hello
            waiting for approval: `call_3_1` (pay)"#]],
    );
}

#[test]
fn a_rule_is_recorded_with_the_call_that_it_decided() {
    let policy = Policy::new(Mode::Ask)
        .rule(rule("allow command echo *"))
        .rule(rule("allow tool pay"))
        .rule(rule("deny read secret.txt"))
        .rule(rule("deny command curl *"));
    let calls = [
        ("shell", r#"{"command": "echo hello"}"#),
        ("shell", r#"{"command": "echo $(curl example.com)"}"#),
        ("read_file", r#"{"path": "secret.txt"}"#),
        ("read_file", r#"{"path": "./harmless.txt"}"#),
        ("read_file", r#"{"path": "x/../secret.txt"}"#),
        ("pay", r#"{"to": "Ann"}"#),
        ("shell", r#"{"command": "echo hello; rm secret.txt"}"#),
    ];
    check(
        policy,
        isolated,
        &calls,
        expect![[r#"
        tool started: call_1_1 (allow command echo *)
        tool result: call_1_1 ok: hello
        denied: call_2_1: the rules of the user do not allow it (rule: deny command curl *)
        tool result: call_2_1 denied: the rules of the user do not allow it (deny command…
        denied: call_3_1: the rules of the user do not allow it (rule: deny read secret.txt)
        tool result: call_3_1 denied: the rules of the user do not allow it (deny read se…
        denied: call_4_1: the rules of the user do not allow it (rule: deny read secret.txt)
        tool result: call_4_1 denied: the rules of the user do not allow it (deny read se…
        denied: call_5_1: the rules of the user do not allow it (rule: deny read secret.txt)
        tool result: call_5_1 denied: the rules of the user do not allow it (deny read se…
        tool started: call_6_1 (allow tool pay)
        tool result: call_6_1 ok: paid Ann
        waiting for approval: `call_7_1` (shell)"#]],
    );
}

#[test]
fn a_person_is_asked_and_a_rule_that_the_person_gives_holds_for_the_session() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let questions = asked.clone();
    let policy = Policy::new(Mode::Ask).ask_with(move |question: Question| {
        let Question { call, why, rules, .. } = &question;
        let rules_text: Vec<_> = rules.iter().map(ToString::to_string).collect();
        questions.lock().expect("no panic").push(format!("{}: {why} [{}]", call.tool, rules_text.join("; ")));
        let by = "Ann".to_owned();
        let answer = match &*call.tool {
            "shell" => Reply::Allow { by, rules: question.rules },
            "pay" => Reply::Allow { by, rules: Vec::new() },
            "write_file" => Reply::Deny { by, reason: "not that file".to_owned() },
            _ => Reply::Wait,
        };
        async move { answer }
    });
    let calls = [
        ("shell", r#"{"command": "echo hello"}"#),
        ("shell", r#"{"command": "echo hello"}"#),
        ("shell", r#"{"command": "echo other"}"#),
        ("pay", r#"{"to": "Ann"}"#),
        ("pay", r#"{"to": "Ann"}"#),
        ("write_file", r#"{"path": "a", "content": "x"}"#),
        ("edit_file", r#"{"path": "secret.txt", "old_string": "secret", "new_string": "x"}"#),
    ];
    check(
        policy,
        isolated,
        &calls,
        expect![[r#"
        approved by Ann: call_1_1; from here on allow command echo hello
        tool started: call_1_1
        tool result: call_1_1 ok: hello
        tool started: call_2_1 (allow command echo hello)
        tool result: call_2_1 ok: hello
        approved by Ann: call_3_1; from here on allow command echo other
        tool started: call_3_1
        tool result: call_3_1 ok: other
        approved by Ann: call_4_1
        tool started: call_4_1
        tool result: call_4_1 ok: paid Ann
        approved by Ann: call_5_1
        tool started: call_5_1
        tool result: call_5_1 ok: paid Ann
        denied by Ann: call_6_1: not that file
        tool result: call_6_1 denied: not that file
        waiting for approval: `call_7_1` (edit_file)"#]],
    );
    expect![[r#"
        shell: it may change something [allow command echo hello]
        shell: it may change something [allow command echo other]
        pay: the tool asks for approval [allow tool pay]
        pay: the tool asks for approval [allow tool pay]
        write_file: it may change something [allow write /a]
        edit_file: it may change something [allow write /secret.txt]"#]]
    .assert_eq(&asked.lock().expect("no panic").join("\n"));
}

#[test]
fn a_way_out_of_the_walls_is_a_question_of_its_own() {
    let outside = rath_test_support::temp_dir();
    let write = format!(r#"{{"command": "echo x > '{0}/x'", "outside": ["{0}"]}}"#, outside.path().display());
    let fetch = r#"{"command": "echo $https_proxy", "hosts": ["crates.io"]}"#;
    let full = |text: &str| Policy::new(Mode::Full).rules(text.split(';').filter(|it| !it.is_empty()).map(rule));
    // The text of the command is allowed, and the way out is not.
    let policy = full("allow tool *;allow command *");
    check(policy, isolated, &[("shell", fetch)], expect!["waiting for approval: `call_1_1` (shell)"]);
    assert!(!outside.path().join("x").exists());
    check(
        full("allow command *;allow host crates.io"),
        isolated,
        &[("shell", fetch)],
        expect![[r#"
        tool started: call_1_1 (allow command *, allow host crates.io)
        tool result: call_1_1 ok: http://127.0.0.1:4128"#]],
    );
    let allowed = full("").rule(rule("allow command *")).rule(rule("allow write x"));
    let allowed = allowed.rule(rule(&format!("allow outside {}", outside.path().display())));
    let folder = rath_test_support::temp_dir();
    let session = Session::user("go").to(Sandbox::isolated(folder.path())).under(allowed);
    let calls = format!(r#"{{"calls": [{{"name": "shell", "arguments": {write}}}]}}"#);
    let agent = Agent::new("Go.", &script([calls.as_str(), r#"{"text": "done"}"#])).tools(builtin::all());
    let (session, message) = run(&agent, session);
    assert_eq!(message, "", "{}", log(&session));
    assert!(outside.path().join("x").exists(), "{}", log(&session));
    // Without walls there is no way out to ask for.
    check(
        full(""),
        |path| Sandbox::local(path),
        &[("shell", fetch)],
        expect![[r#"
        tool started: call_1_1
        tool result: call_1_1 ok"#]],
    );
}

#[test]
fn a_command_leaves_no_file_behind_that_the_rules_do_not_allow() {
    let check = |policy: Policy, approve: bool, expected: Expect| {
        let folder = crate::support::folder(&[
            (".vscode/settings.json", "old"),
            (".husky/pre-commit", "old"),
            (".gitignore", "ignored\n"),
            ("src/a", "old"),
            ("src/b", "old"),
        ]);
        let line = "echo new > Makefile; cp Makefile .envrc; cp Makefile .vscode/settings.json; rm .husky/pre-commit; \
                    cp Makefile src/a; mv src/b .exrc; mkdir -p sub/.vscode; cp Makefile sub/.vscode/tasks.json; \
                    mkdir ignored; cp Makefile ignored/.envrc";
        let call = serde_json::json!({"calls": [{"name": "shell", "arguments": {"command": line}}]}).to_string();
        let agent = Agent::new("Go.", &script([call.as_str(), r#"{"text": "done"}"#])).tools(builtin::all());
        let (mut session, _) = run(&agent, Session::user("go").to(Sandbox::isolated(folder.path())).under(policy));
        if approve {
            session.approve("call_1_1").expect("it waits");
            (session, _) = run(&agent, session);
        }
        let files = [".envrc", ".vscode/settings.json", ".husky/pre-commit", "Makefile", "src/a", "src/b", ".exrc"];
        let files = files.iter().chain(&["sub/.vscode/tasks.json", "ignored/.envrc"]).map(|path| {
            let text = std::fs::read_to_string(folder.path().join(path)).unwrap_or("none".to_owned());
            format!("{path}: {}", text.trim())
        });
        let said = session.chunks().filter_map(|chunk| match chunk {
            Chunk::ToolResult(result) => Some(format!("{}", result.output)),
            _ => None,
        });
        expected.assert_eq(&files.chain(said).collect::<Vec<_>>().join("\n"));
        // The record says what is there.
        let (again, _) = run(&agent, session.clone());
        assert_eq!(again.tree(), session.tree());
        block_on(session.checkout(folder.path().join("copy"))).expect("the tree is stored");
        for path in [".envrc", "src/b", ".husky/pre-commit"] {
            assert_eq!(folder.path().join("copy").join(path).exists(), folder.path().join(path).exists(), "{path}");
        }
    };
    check(
        Policy::new(Mode::Workspace),
        false,
        expect![[r#"
            .envrc: none
            .vscode/settings.json: old
            .husky/pre-commit: old
            Makefile: new
            src/a: new
            src/b: old
            .exrc: none
            sub/.vscode/tasks.json: none
            ignored/.envrc: none

            [put back as before: .envrc (other programs run it without being asked to), src/b (other programs run it without being asked to), .exrc (other programs run it without being asked to), .husky/pre-commit (other programs run it without being asked to), .vscode/settings.json (other programs run it without being asked to), ignored/.envrc (other programs run it without being asked to), sub/.vscode/tasks.json (other programs run it without being asked to)]"#]],
    );
    let some = Policy::new(Mode::Workspace).rule(rule("allow write .envrc")).rule(rule("deny write /src/a"));
    check(
        some,
        false,
        expect![[r#"
            .envrc: new
            .vscode/settings.json: old
            .husky/pre-commit: old
            Makefile: new
            src/a: old
            src/b: old
            .exrc: none
            sub/.vscode/tasks.json: none
            ignored/.envrc: new

            [put back as before: src/b (other programs run it without being asked to), .exrc (other programs run it without being asked to), .husky/pre-commit (other programs run it without being asked to), .vscode/settings.json (other programs run it without being asked to), src/a (deny write /src/a), sub/.vscode/tasks.json (other programs run it without being asked to)]"#]],
    );
    check(
        Policy::new(Mode::Full),
        false,
        expect![[r#"
        .envrc: new
        .vscode/settings.json: new
        .husky/pre-commit: none
        Makefile: new
        src/a: new
        src/b: none
        .exrc: old
        sub/.vscode/tasks.json: new
        ignored/.envrc: new
    "#]],
    );
    check(
        Policy::new(Mode::Ask),
        true,
        expect![[r#"
        .envrc: new
        .vscode/settings.json: new
        .husky/pre-commit: none
        Makefile: new
        src/a: new
        src/b: none
        .exrc: old
        sub/.vscode/tasks.json: new
        ignored/.envrc: new
    "#]],
    );
}

/// Runs lines of shell one after the other in a directory, and returns what the model was told.
fn run_lines(folder: &Path, policy: Policy, lines: &[&str]) -> (Session, String) {
    let call =
        |line: &&str| serde_json::json!({"calls": [{"name": "shell", "arguments": {"command": line}}]}).to_string();
    let turns: Vec<String> = lines.iter().map(call).chain([r#"{"text": "done"}"#.to_owned()]).collect();
    let agent = Agent::new("Go.", &script(turns)).tools(builtin::all());
    let (session, _) = run(&agent, Session::user("go").to(Sandbox::isolated(folder)).under(policy));
    let said = session.chunks().filter_map(|chunk| match chunk {
        Chunk::ToolResult(result) => Some(result.output.to_string()),
        _ => None,
    });
    let said = said.collect::<Vec<_>>().join("\n");
    (session, said)
}

#[test]
fn no_file_that_was_there_is_lost_when_others_are_put_back() {
    for line in [": > .gitignore", "rm .gitignore", "mv .gitignore other", "cp .gitignore .vscode/settings.json"] {
        let folder = crate::support::folder(&[
            (".gitignore", ".envrc\n.vscode/\n*.db\n"),
            (".envrc", "mine"),
            (".vscode/settings.json", "mine"),
            ("local.db", "mine"),
        ]);
        std::fs::create_dir(folder.path().join("empty")).expect("a directory");
        let policy = || Policy::new(Mode::Workspace).rule(rule("deny write *.db"));
        let (_, said) = run_lines(
            folder.path(),
            policy(),
            &[line, "cp .gitignore empty/.envrc || cp other empty/.envrc || touch empty/.envrc", "true"],
        );
        let read = |path: &str| std::fs::read_to_string(folder.path().join(path)).unwrap_or_default();
        assert_eq!((read(".envrc").as_str(), read("local.db").as_str()), ("mine", "mine"), "{line}: {said}");
        assert!(!read(".vscode/settings.json").is_empty(), "{line}");
        assert!(folder.path().join("empty").is_dir() && !folder.path().join("empty/.envrc").exists(), "{line}");
    }
    // What is put back is kept aside.
    let folder = crate::support::folder(&[(".envrc", "old")]);
    run_lines(folder.path(), Policy::new(Mode::Workspace), &["cp /etc/hostname .envrc"]);
    let kept = std::fs::read_dir(folder.path().join(".rath/put-back")).expect("a directory").count();
    assert_eq!((kept, std::fs::read_to_string(folder.path().join(".envrc")).ok().as_deref()), (1, Some("old")));
}

#[test]
fn a_command_cannot_hide_what_it_leaves_behind() {
    for (line, left) in [
        ("printf '.envrc\\n' > .gitignore; cp b .envrc", ".envrc"),
        ("printf '*' > star; mkdir .vscode; cp star .vscode/.gitignore; cp b .vscode/tasks.json", ".vscode/tasks.json"),
        ("mkdir -p a/.husky; printf '*' > a/.gitignore; cp b a/.husky/pre-commit", "a/.husky/pre-commit"),
        ("truncate -s 51M .envrc", ".envrc"),
        ("mkfifo .envrc", ".envrc"),
        ("ln -s b .envrc", ".envrc"),
        ("git init -q . ; cp b .git/hooks/pre-commit", ".git/hooks/pre-commit"),
        ("mkdir sub; cd sub; git init -q; cp ../b .git/hooks/pre-commit", "sub/.git/hooks/pre-commit"),
        ("mkdir .ENVRC.d; cp b .Envrc", ".Envrc"),
    ] {
        let folder = crate::support::folder(&[("b", "evil")]);
        let (session, said) = run_lines(folder.path(), Policy::new(Mode::Workspace), &[line]);
        assert!(folder.path().join(left).symlink_metadata().is_err(), "{line}: {said}\n{}", log(&session));
        assert!(said.contains("put back"), "{line}: {said}");
        assert!(log(&session).contains("(put back: "), "{}", log(&session));
        // Without the policy it is there: the attack is a real one.
        run_lines(folder.path(), Policy::new(Mode::Full), &[line]);
        assert!(folder.path().join(left).symlink_metadata().is_ok(), "{line}");
    }
}

/// A `.git` that appears is put aside: that of a directory which a command renames would be lost, or replaced by another.
#[test]
fn the_directory_of_a_repository_cannot_be_renamed() {
    for line in ["mv sub other", "mv a other", "mv sub other; cp -r other sub; echo evil >> sub/.git/HEAD"] {
        let folder = crate::support::folder(&[("sub/x", "x"), ("a/sub/x", "x")]);
        let head = |repository: &str| folder.path().join(repository).join(".git/HEAD");
        for repository in ["sub", "a/sub"] {
            std::fs::create_dir_all(folder.path().join(repository).join(".git")).expect("a directory");
            std::fs::write(head(repository), "ref: refs/heads/main").expect("written");
        }
        let (_, said) = run_lines(folder.path(), Policy::new(Mode::Workspace), &[line]);
        for repository in ["sub", "a/sub"] {
            let text = std::fs::read_to_string(head(repository)).unwrap_or_default();
            assert_eq!(text, "ref: refs/heads/main", "{line}: {said}");
        }
    }
}

#[test]
fn putting_back_follows_no_link_and_loses_nothing() {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let folder = crate::support::folder(&[
        ("w/.github/workflows/ci.yml", "mine"),
        ("w/a/.envrc", "mine"),
        ("w/.gitignore", "*.db\nign/\n"),
        ("w/local.db", "mine"),
        ("w/ign/.envrc", "mine"),
        ("other/.github/workflows/ci.yml", "theirs"),
    ]);
    let work = folder.path().join("w");
    let policy = || Policy::new(Mode::Workspace).rule(rule("deny write key"));
    run_lines(&work, policy(), &["rm -rf .github; ln -s ../other/.github .github"]);
    assert_eq!(read(folder.path().join("other/.github/workflows/ci.yml")), "theirs");
    assert_eq!(read(work.join(".github/workflows/ci.yml")), "mine");
    run_lines(&work, policy(), &["rm -rf a; mv local.db a"]);
    let kept = rath_test_support::program("grep").args(["-rl", "mine", ".rath/put-back"]).current_dir(&work).output();
    let kept = String::from_utf8_lossy(&kept.expect("grep runs").stdout).into_owned();
    assert!(work.join("local.db").exists() || kept.lines().any(|path| path.ends_with("/a")), "{kept}");
    assert_eq!(read(work.join("a/.envrc")), "mine");
    run_lines(&work, policy(), &["rm -rf a; ln -s ign a"]);
    assert_eq!(read(work.join("ign/.envrc")), "mine");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(work.join("key"), "mine").expect("a file");
        std::fs::set_permissions(work.join("key"), PermissionsExt::from_mode(0o600)).expect("a mode");
        run_lines(&work, policy(), &["true", "cp .gitignore x; cat x >> key; cp x y"]);
        let mode = std::fs::metadata(work.join("key")).expect("a file").permissions().mode() & 0o777;
        assert_eq!((read(work.join("key")).as_str(), mode), ("mine", 0o600));
    }
    // A pipe, a large file and a name that is no Unicode are no cover.
    for (first, second, left) in [
        ("mkfifo x", "rm -rf x; mkdir -p x; cp local.db x/.envrc || touch x/.envrc", "x/.envrc"),
        ("truncate -s 5G x", "rm -rf x; mkdir -p x; touch x/.envrc", "x/.envrc"),
    ] {
        run_lines(&work, policy(), &[first, second]);
        assert!(work.join(left).symlink_metadata().is_err(), "{second}");
        run_lines(&work, policy(), &["rm -rf x"]);
    }
    let name = "\"$(printf '\\377')\"";
    run_lines(&work, policy(), &[&format!("mkdir -p {name}; touch {name}/.envrc")]);
    let (_, said) = run_lines(&work, policy(), &["find . -name .envrc | wc -l"]);
    assert_eq!(said.trim(), "2", "{said}");
}

#[test]
fn a_hidden_file_cannot_be_moved_to_where_it_can_be_read() {
    for (rule_text, lines) in [
        ("deny read config/prod.key", &["mv config c2", "cat c2/prod.key"][..]),
        ("deny read .env", &["mv app \"$(printf '\\377')\"", "cat */.env"]),
        ("deny read *.key", &["mv config/prod.key \"$(printf '\\377').key\"; true", "cat ./*.key config/*"]),
        ("deny read .env", &["chmod 311 app", "chmod 755 app; cat app/.env"]),
        ("deny read config/prod.key", &["echo prod.key > .gitignore; true", "mv config c2", "cat c2/prod.key"]),
        (
            "deny read config/prod.key",
            &["echo build/ > .gitignore; mkdir build", "mv config build/c2", "cat build/c2/prod.key"],
        ),
        ("deny read config/prod.key", &["echo config/ > .gitignore; mv config c2", "cat c2/prod.key"]),
        ("deny read .env", &["ln app/.env h; cat h", "cat h"]),
        ("deny read .env", &["cp -r app b; cat b/.env", "cat b/.env"]),
    ] {
        let folder = crate::support::folder(&[("config/prod.key", "canary"), ("app/.env", "canary"), ("app/x", "y")]);
        let policy = || Policy::new(Mode::Workspace).rule(rule(rule_text));
        let (_, said) = run_lines(folder.path(), policy(), lines);
        assert!(!said.contains("canary"), "{lines:?}: {said}");
        let (_, said) = run_lines(folder.path(), policy(), &["find . -name '*.key' -o -name .env; true"]);
        assert!(said.contains(".env") || said.contains(".key"), "{lines:?}: {said}");
    }
}

#[test]
fn a_file_that_may_not_be_read_is_kept_from_every_tool() {
    const SECRET: &str = "canary-4711";
    let folder = crate::support::folder(&[("a/.env", SECRET), (".env", SECRET), ("keys/one", SECRET), ("b", "plain")]);
    #[cfg(unix)]
    std::os::unix::fs::symlink(".env", folder.path().join("link")).expect("a link");
    let calls = [
        ("read_file", r#"{"path": ".env"}"#),
        ("read_file", r#"{"path": "link"}"#),
        ("read_file", r#"{"path": "keys/one"}"#),
        ("read_file", r#"{"path": "b"}"#),
        ("search_files", r#"{"pattern": "canary"}"#),
        ("search_files", r#"{"pattern": "canary", "path": "a"}"#),
        ("edit_file", r#"{"path": ".env", "old_string": "x", "new_string": "y"}"#),
        ("shell", r#"{"command": "cat .env a/.env link keys/one; cat b; grep -r canary . ; ls -a"}"#),
        ("run_code", r#"{"language": "bash", "code": "cat .e* */.e* keys/*"}"#),
        ("check", r#"{"command": "grep -q canary .env"}"#),
    ];
    for (mode, rules, is_hidden) in
        [(Mode::Workspace, "deny read .env;deny read keys/", true), (Mode::Workspace, "", false)]
    {
        let policy = Policy::new(mode).rules(rules.split(';').filter(|it| !it.is_empty()).map(rule));
        let turns = calls
            .iter()
            .map(|(name, arguments)| format!(r#"{{"calls": [{{"name": "{name}", "arguments": {arguments}}}]}}"#));
        let provider = script(turns.chain([r#"{"text": "done"}"#.to_owned()]));
        let agent = Agent::new("Go.", &provider).tools(builtin::all());
        let (session, message) = run(&agent, Session::user("go").to(Sandbox::isolated(folder.path())).under(policy));
        assert_eq!(message, "");
        let said: Vec<_> = session
            .chunks()
            .filter_map(|chunk| match chunk {
                Chunk::ToolResult(result) => Some(result.output.to_string()),
                _ => None,
            })
            .collect();
        let leaks = said.iter().filter(|text| text.contains("4711")).count();
        assert_eq!(leaks == 0, is_hidden, "{said:#?}");
        assert!(said[3].contains("plain") && said[7].contains("plain"), "{said:#?}");
        // The files themselves are as they were.
        assert_eq!(std::fs::read_to_string(folder.path().join("a/.env")).expect("a file"), SECRET);
        assert_eq!(session.files().list.len(), 0, "{}", log(&session));
    }
}

#[test]
fn a_commit_asks_and_no_hook_runs() {
    let folder = rath_test_support::temp_dir();
    let git = |words: &[&str]| {
        let done = rath_test_support::git().args(words).current_dir(folder.path()).output().expect("git runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    git(&["init", "-q"]);
    git(&["config", "user.name", "Ann"]);
    git(&["config", "user.email", "ann@example.invalid"]);
    let hook = folder.path().join(".git/hooks/pre-commit");
    std::fs::write(&hook, "#!/bin/sh\ntouch hooked\n").expect("a hook");
    #[cfg(unix)]
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    std::fs::write(folder.path().join("a"), "one").expect("a file");
    std::fs::write(folder.path().join("b; touch c"), "two").expect("a file");
    let turns = [
        r#"{"calls": [{"name": "shell", "arguments": {"command": "git commit --allow-empty -m x"}}]}"#,
        r#"{"calls": [{"name": "commit", "arguments": {"message": "$(touch d) `touch e`", "paths": ["b; touch c"]}}]}"#,
        r#"{"calls": [{"name": "commit", "arguments": {"message": "The rest."}}]}"#,
        r#"{"text": "done"}"#,
    ];
    let agent = Agent::new("Go.", &script(turns)).tools(builtin::all());
    let session = Session::user("go").to(Sandbox::isolated(folder.path())).under(Policy::new(Mode::Workspace));
    let (mut session, message) = run(&agent, session);
    assert_eq!(message, "waiting for approval: `call_2_1` (commit)");
    session.approve("call_2_1").expect("it waits");
    let (mut session, message) = run(&agent, session);
    assert_eq!(message, "waiting for approval: `call_3_1` (commit)");
    session.approve("call_3_1").expect("it waits");
    let (session, message) = run(&agent, session);
    assert_eq!(message, "", "{}", log(&session));
    let committed = git(&["log", "--format=%an %s", "--name-only"]);
    assert_eq!(committed, "Ann The rest.\n\na\nAnn $(touch d) `touch e`\n\nb; touch c\n", "{}", log(&session));
}

#[test]
fn a_question_about_a_commit_names_its_files_and_those_that_are_left_out() {
    let folder = rath_test_support::temp_dir();
    let sh = |line: &str| {
        let mut shell = rath_test_support::program("sh");
        let done = shell.args(["-c", line]).current_dir(folder.path()).output().expect("a shell runs");
        assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    };
    sh("git init -q; git config user.name Ann; git config user.email ann@example.invalid; mkdir secrets; \
        touch changed same removed secrets/a secrets/b; git add .; git commit -qm One.; \
        echo two > changed; echo two > secrets/a; touch same new; rm removed");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let questions = asked.clone();
    let policy = Policy::new(Mode::Workspace).rule(rule("deny read secrets/")).ask_with(move |question: Question| {
        questions.lock().expect("no panic").extend(question.preview);
        async { Reply::Allow { by: "Ann".to_owned(), rules: Vec::new() } }
    });
    let turns = [
        r#"{"calls": [{"name": "commit", "arguments": {"message": "Two.", "paths": ["new"]}}]}"#,
        r#"{"calls": [{"name": "commit", "arguments": {"message": "Three."}}]}"#,
        r#"{"text": "done"}"#,
    ];
    let agent = Agent::new("Go.", &script(turns)).tools(builtin::all());
    let session = Session::user("go").to(Sandbox::isolated(folder.path())).under(policy);
    let (session, message) = run(&agent, session);
    assert_eq!(message, "", "{}", log(&session));
    expect![[r#"
        Two.

        new: 1 file
        new
        Three.

        all changes: 2 files
        changed
        removed
        left out, because tools may not read it: secrets"#]]
    .assert_eq(&asked.lock().expect("no panic").join("\n"));
}

/// Each row prepares a repository by a line of shell, and has what the call of `commit` returns and what is committed then.
#[test]
fn a_commit_runs_no_filter_and_takes_no_repository_below() {
    let nested = "git init -q sub; git -C sub commit -q --allow-empty -m x";
    let rows = [
        ("echo two > a; echo new > b; mkdir c; echo new > c/d", "3 files changed", "a b c/d"),
        ("rm a; echo new > ' -b'", "2 files changed", " -b a"),
        (
            "echo two > a; git config filter.x.clean 'touch ran; cat'; echo 'a filter=x' > .gitattributes",
            "cannot fork",
            "",
        ),
        (
            "echo new > b; git config filter.x.process 'touch ran'; echo 'b filter=x' > .gitattributes",
            "cannot fork",
            "",
        ),
        (nested, "failed: nothing was committed", ""),
        (&format!("{nested}; rm a; mv sub a"), "failed: nothing was committed", ""),
        (
            &format!(
                "{nested}; mv sub ../outside; git -c protocol.file.allow=always submodule add -q ../outside sub; \
                   git commit -qm sub; echo new > sub/b; echo two > a"
            ),
            "1 file changed",
            "a",
        ),
        // Within one second, git tells by the time of the index that a file of the same size may differ.
        (
            "git config core.trustctime false; touch -d @1000000000 a; git update-index a; echo two > a; \
                touch -d @1000000000 a .git/index",
            "1 file changed",
            "a",
        ),
        ("true", "nothing to commit", ""),
    ];
    for (prepare, expected, files) in rows {
        let folder = rath_test_support::temp_dir();
        let work = folder.path().join("work");
        std::fs::create_dir(&work).expect("a directory");
        let sh = |line: &str| {
            let line = format!(
                "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x; {line}"
            );
            let mut shell = rath_test_support::program("sh");
            let done = shell.args(["-c", &line]).current_dir(&work).output().expect("a shell runs");
            assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8_lossy(&done.stdout).into_owned()
        };
        sh(&format!(
            "git init -q; git config user.name Ann; git config user.email ann@example.invalid; \
                     echo one > a; git add a; git commit -qm One.; {prepare}; git rev-parse HEAD > ../before"
        ));
        let turns = [r#"{"calls": [{"name": "commit", "arguments": {"message": "Two."}}]}"#, r#"{"text": "done"}"#];
        let agent = Agent::new("Go.", &script(turns)).tools(builtin::all());
        let session = Session::user("go").to(Sandbox::isolated(&work)).under(Policy::new(Mode::Workspace));
        let (mut session, _) = run(&agent, session);
        session.approve("call_1_1").expect("it waits");
        let (session, message) = run(&agent, session);
        assert_eq!(message, "", "{prepare}: {}", log(&session));
        assert!(log(&session).contains(expected), "{prepare}: {}", log(&session));
        let committed = sh("git diff --name-only -z $(cat ../before) HEAD | tr '\\0' ' '");
        assert_eq!(committed.trim_end(), files, "{prepare}: {}", log(&session));
        assert!(!work.join("ran").exists(), "{prepare}");
    }
}

/// Runs a workflow, and returns the session and the message of an error.
fn run(workflow: &dyn Run, session: Session) -> (Session, String) {
    match block_on(workflow.run(session)) {
        Ok(session) => (session, String::new()),
        Err(error) => {
            let message = error.message();
            (error.into_session().expect("the session"), message)
        }
    }
}

const CLERK: [&str; 4] = [
    r#"{"agent": "agent", "calls": [{"name": "clerk", "arguments": {"task": "Pay Ann."}}, {"name": "look"}]}"#,
    r#"{"agent": "agent.clerk", "calls": [{"name": "look"}, {"name": "pay", "arguments": {"to": "Ann"}}]}"#,
    r#"{"agent": "agent.clerk", "text": "I tried."}"#,
    r#"{"agent": "agent", "text": "done"}"#,
];

fn with_clerk(provider: &Provider) -> Agent {
    let clerk = Agent::new("You pay.", provider).tool(pay).tool(look);
    Agent::new("Go.", provider).delegate("clerk", clerk).tool(look)
}

#[test]
fn an_approval_that_a_sub_agent_needs_is_asked_for_above_it() {
    let folder = rath_test_support::temp_dir();
    for stored in [false, true] {
        for decision in ["approve", "deny"] {
            let agent = with_clerk(&script(CLERK));
            let uri = format!("sqlite:{}", folder.path().join(format!("{decision}.db")).display());
            let store = block_on(Store::open(&uri)).expect("a store");
            let mut session = Session::user("go");
            if stored {
                session = block_on(session.record(&store)).expect("a session");
            }
            let (mut session, message) = run(&agent, session);
            assert_eq!(message, "waiting for approval: `call_1_1/call_2_1` (look), `call_1_1/call_2_2` (pay)");
            // Without a decision nothing happens.
            let steps = session.chunk_count();
            let (again, message) = run(&agent, session.clone());
            assert_eq!((again.chunk_count(), message.is_empty()), (steps, false));
            if stored {
                let id = session.id();
                drop((session, again));
                session = block_on(store.resume(id)).expect("stored").against(&agent).to_decide().expect("undamaged");
            }
            match decision {
                "approve" => session.approve("call_1_1/call_2_2").expect("it waits"),
                _ => session.deny("call_1_1/call_2_2", "too much").expect("it waits"),
            };
            let (session, message) = run(&agent, session);
            assert_eq!(message, "", "{}", session.lineage());
            assert_eq!(session.text(), Some("done"));
            let lineage = session.lineage().to_string();
            let expected = if decision == "approve" { "call_2_2 ok: paid Ann" } else { "call_2_2 denied: too much" };
            assert!(lineage.contains(expected) && lineage.contains("call_1_1 ok: I tried."), "{lineage}");
            assert_eq!(lineage.matches("You pay.").count(), 1, "{lineage}");
            let report = block_on(session.replay(&with_clerk(&mute()))).expect("a replay");
            assert!(report.is_exact(), "{report}\n{lineage}");
        }
    }
}

#[test]
fn a_sub_agent_asks_the_person_above_it() {
    let policy = Policy::new(Mode::Full).ask_with(|question: Question| async move {
        assert_eq!(question.module.as_deref(), Some("agent.clerk"));
        Reply::Allow { by: "Ann".to_owned(), rules: Vec::new() }
    });
    let agent = with_clerk(&script(CLERK));
    let (session, message) = run(&agent, Session::user("go").under(policy));
    assert_eq!(message, "");
    assert!(session.lineage().to_string().contains("approved by Ann: call_2_2"), "{}", session.lineage());
    let report = block_on(session.replay(&with_clerk(&mute()))).expect("a replay");
    assert!(report.is_exact(), "{report}");
}

#[test]
fn a_paused_sub_agent_does_not_go_on_after_the_user_said_something_else() {
    let agent = with_clerk(&script(CLERK.into_iter().chain([r#"{"agent": "agent", "text": "fine"}"#])));
    let (mut session, _) = run(&agent, Session::user("go"));
    session.approve("call_1_1/call_2_2").expect("it waits");
    session.push(Chunk::user("No, leave it."));
    let (session, _) = run(&agent, session);
    assert!(!session.lineage().to_string().contains("paid"), "{}", session.lineage());
}

#[test]
fn a_fork_inherits_the_policy_and_a_merge_keeps_it() {
    let session = Session::user("go").under(Policy::new(Mode::ReadOnly));
    let merged = block_on(Session::user("other").merge(&session.fork())).expect("a merge");
    for session in [session.fork(), session.detach(), session.clone(), merged] {
        let provider = script([
            r#"{"calls": [{"name": "write_file", "arguments": {"path": "a", "content": "b"}}]}"#,
            r#"{"text": "done"}"#,
        ]);
        let agent = Agent::new("Go.", &provider).tools(builtin::all());
        let (session, _) = run(&agent, session);
        assert!(log(&session).contains("(rule: mode read-only)"), "{}", log(&session));
    }
}

/// A call that a rule allowed before a crash is made again only if the rules of now allow it.
#[test]
fn a_call_that_is_made_again_after_a_crash_is_decided_anew() {
    let crashed = |folder: &Path, policy: Policy| {
        let mut session = Session::user("go").to(Sandbox::local(folder)).under(policy);
        session.push(Chunk::calls([Call::new("c1", "write_file", r#"{"path": "a.txt", "content": "x"}"#)]));
        session.push(ToolStarted::new("c1").with_rule(Some("mode full".to_owned())));
        session
    };
    let agent = || Agent::new("Go.", &script([r#"{"text": "done"}"#])).tools(builtin::all());
    for (policy, expected) in [
        (Policy::new(Mode::Full), "made"),
        (Policy::new(Mode::Workspace), "made"),
        (Policy::new(Mode::Ask), "asked"),
        (Policy::new(Mode::Full).rule(rule("ask write a.txt")), "asked"),
        (Policy::new(Mode::ReadOnly), "refused"),
    ] {
        let folder = rath_test_support::temp_dir();
        let file = folder.path().join("a.txt");
        let told = format!("{policy:?}");
        let found = match block_on(agent().run(crashed(folder.path(), policy))) {
            Ok(_) => {
                if file.exists() {
                    "made"
                } else {
                    "refused"
                }
            }
            Err(error) if file.exists() => panic!("{told}: {error}"),
            Err(error) => {
                assert_eq!(error.message(), "waiting for approval: `c1` (write_file)", "{told}");
                let mut session = error.into_session().expect("the session");
                session.approve("c1").expect("it waits");
                block_on(agent().run(session)).expect("it is approved");
                assert!(file.exists(), "{told}");
                "asked"
            }
        };
        assert_eq!(found, expected, "{told}");
    }
}

#[test]
fn a_skipped_call_is_not_said_to_be_started_if_it_was_not() {
    let open = || {
        let mut session = Session::user("go");
        session.push(Chunk::calls([Call::new("c1", "pay", "{}")]));
        session
    };
    let check = |mut session: Session, expected: &str| {
        block_on(session.skip("c1")).expect("it is open");
        let log = log(&session);
        assert!(log.contains(expected), "{log}");
    };
    let mut denied = open();
    denied.deny("c1", "not today").expect("it waits");
    check(denied, "tool result: c1 denied: not today");
    let mut superseded = open();
    superseded.push(Chunk::user("Something else."));
    check(superseded, "not made, or not finished");
    let mut started = open();
    started.push(ToolStarted::new("c1"));
    check(started, "tool result: c1 unknown: it was started");
}
